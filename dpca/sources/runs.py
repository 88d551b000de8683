"""Parts of an uncompressed array in a file, read by offset straight into place.

A memory map would do the same in one line, but some systems count its pages as private memory.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpca.errors import StorageError

Region = tuple[slice, ...]


LONG_RUN_BYTES = 2**16
"""Runs of this length are read by a call of their own; shorter ones are read together, and then copied into place."""
TOGETHER_BYTES = 2**20
SHORT_STEP_BYTES = 2**12
"""Entries that lie no further apart are read with what is between them: the system reads pages of this size anyway."""


def read_block(
    file: Any,
    offset: int,
    shape: Sequence[int],
    region: Region,
    target: NDArray[Any],
    name: str,
    step: int | None = None,
) -> None:
    """Fill an array with a region of the C-ordered array in a file.

    Parameters
    ----------
    file : open for reading, unbuffered or not: its position is neither used nor moved
    offset : byte at which the stored array begins
    shape : shape of the stored array
    region : the part of it to read
    target : array of the region's shape and the stored dtype, with any strides
    name : name of the file in error messages
    step : bytes from an entry along the first axis to the next, where other values lie between, of an array of two axes or
        more; None where there are none
    """
    if not target.size:
        return
    strides = [math.prod(shape[axis + 1 :]) * target.itemsize for axis in range(len(shape))]
    if step is not None:
        strides[0] = step
        if step <= SHORT_STEP_BYTES:
            _read_with_gaps(file, offset, shape, strides, region, target, name)
            return
    # Axes after `stored` are whole in the file, those after `placed` are also contiguous in the target.
    stored, first_whole = len(shape) - 1, 0 if step is None else 1
    while stored > first_whole and region[stored] == slice(0, shape[stored]):
        stored -= 1
    placed = len(shape) - 1
    while placed > stored and target.strides[placed - 1] == target.strides[placed] * target.shape[placed]:
        placed -= 1
    contiguous = target.strides[-1] == target.itemsize or target.shape[-1] == 1
    long = math.prod(target.shape[placed:]) * target.itemsize >= LONG_RUN_BYTES
    last = placed if contiguous and (long or placed == stored) else stored
    base = offset + region[last].start * strides[last]
    for index in product(*(range(length) for length in target.shape[:last])):
        start = base + sum((piece.start + i) * s for piece, i, s in zip(region, index, strides, strict=False))
        block = target[index]
        if block.flags.c_contiguous:
            _fill(file, _bytes_of(block), start, name)
            continue
        step = max(1, TOGETHER_BYTES // strides[last])
        for first in range(0, len(block), step):
            rows: NDArray[Any] = np.empty((min(step, len(block) - first), *block.shape[1:]), block.dtype)
            _fill(file, _bytes_of(rows), start + first * strides[last], name)
            block[first : first + len(rows)] = rows


def _read_with_gaps(
    file: Any,
    offset: int,
    shape: Sequence[int],
    strides: Sequence[int],
    region: Region,
    target: NDArray[Any],
    name: str,
) -> None:
    """`read_block` of entries along the first axis that are read with what lies between them."""
    entry = math.prod(shape[1:]) * target.itemsize
    together = max(1, TOGETHER_BYTES // strides[0])
    for first in range(0, len(target), together):
        count = min(together, len(target) - first)
        content: NDArray[Any] = np.empty((count - 1) * strides[0] + entry, np.uint8)
        _fill(file, memoryview(content), offset + (region[0].start + first) * strides[0], name)  # type: ignore[arg-type]
        entries: NDArray[Any] = np.ndarray((count, *shape[1:]), target.dtype, content, strides=strides)
        target[first : first + count] = entries[(slice(None), *region[1:])]


def _bytes_of(block: NDArray[Any]) -> memoryview:
    """The memory of a contiguous array of any byte order."""
    return memoryview(block.reshape(-1, copy=False).view(np.uint8))  # type: ignore[arg-type]


def _fill(file: Any, target: memoryview, position: int, name: str) -> None:
    while target:
        count = os.preadv(file.fileno(), [target], position)
        if not count:
            raise StorageError(
                f"{name}: the file ends at byte {position}, before the end of its array",
                "It was truncated: write it again.",
            )
        target, position = target[count:], position + count
