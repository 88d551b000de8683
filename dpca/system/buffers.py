"""Memory that is allocated once and used again: for each read of a task, and by the tasks of a thread one after another.

The system clears each page of new memory, which may take longer than decoding what is then written there (measured on a virtual machine).
"""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

_HERE = threading.local()


def reuse_memory() -> None:
    """Keep the memory of buffers that are gone for the next ones of this thread, until the thread ends."""
    _HERE.blocks = []


def _taken(n_bytes: int) -> NDArray[np.uint8]:
    """Memory of that size or somewhat more: a block of this thread that nobody uses any more, or a new one in place of all of these."""
    blocks: list[NDArray[np.uint8]] | None = getattr(_HERE, "blocks", None)
    if blocks is None:
        return np.empty(n_bytes, np.uint8)
    # Each array over a block refers to it: else there is only the list, and the argument here.
    unused = [number for number in range(len(blocks)) if sys.getrefcount(blocks[number]) == 2]
    fitting = [number for number in unused if n_bytes <= blocks[number].size <= 2 * n_bytes]
    if fitting:
        return blocks[min(fitting, key=lambda number: blocks[number].size)]
    for number in reversed(unused):
        del blocks[number]
    blocks.append(np.empty(n_bytes, np.uint8))
    return blocks[-1]


class Buffer:
    """Memory that is allocated once and used again. For one thread at a time."""

    def __init__(self) -> None:
        self._bytes: NDArray[np.uint8] = np.empty(0, np.uint8)

    def view(self, shape: Sequence[int], dtype: np.dtype[Any]) -> NDArray[Any]:
        """A C-contiguous array over the buffer, which grows if needed. Its content is undefined."""
        needed = math.prod(shape) * dtype.itemsize
        if self._bytes.size < needed:
            self.release()  # before the new memory is allocated
            self._bytes = _taken(needed)
        return self._bytes[:needed].view(dtype).reshape(shape)

    def release(self) -> None:
        """Give the memory back."""
        self._bytes = np.empty(0, np.uint8)
