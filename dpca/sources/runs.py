"""Parts of an uncompressed array in a file, read by offset straight into place.

A memory map would do the same in a line, but its pages count as private memory in places.
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


def read_block(file: Any, offset: int, shape: Sequence[int], region: Region, target: NDArray[Any], name: str) -> None:
    """Fill an array from a C-ordered one that a file holds.

    Parameters
    ----------
    file : open for reading, unbuffered or not: its position is neither used nor moved
    offset : where the stored array begins
    shape : of the stored array
    region : which part of it
    target : of the region's shape and the stored dtype, contiguous along its last axis; any strides else
    name : what errors call the file

    Raises
    ------
    StorageError
        When the file ends before the region does.
    """
    if not target.size:
        return
    strides = [math.prod(shape[axis + 1 :]) * target.itemsize for axis in range(len(shape))]
    # Behind `last` every axis is whole, in the file and in memory, so one run covers them all.
    last = len(shape) - 1
    while (
        last > 0
        and region[last] == slice(0, shape[last])
        and target.strides[last - 1] == target.strides[last] * target.shape[last]
    ):
        last -= 1
    base = offset + region[last].start * strides[last]
    for index in product(*(range(length) for length in target.shape[:last])):
        start = base + sum((piece.start + i) * s for piece, i, s in zip(region, index, strides, strict=False))
        _fill(file, memoryview(target[index].reshape(-1, copy=False).view(np.uint8)), start, name)


def _fill(file: Any, target: memoryview, position: int, name: str) -> None:
    while target:
        count = os.preadv(file.fileno(), [target], position)
        if not count:
            raise StorageError(
                f"{name}: the file ends at byte {position}, before the end of its array",
                "It was truncated: write it again.",
            )
        target, position = target[count:], position + count
