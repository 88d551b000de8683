"""Memory that is allocated once and used again: for each read of a task, and by the tasks of a thread one after another.

The system clears each page of new memory, which takes as long as decoding what is then written there.
"""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

_FREE = threading.local()
_NOTHING = np.empty(0, np.uint8)


def reuse_memory() -> None:
    """Keep the memory of buffers that are gone for the next ones of this thread, until the thread ends."""
    _FREE.blocks = []


def _taken(n_bytes: int) -> NDArray[np.uint8]:
    """Memory of that size or somewhat more: of a buffer that is gone, if one fits; else all that is left of such is released."""
    blocks: list[NDArray[np.uint8]] = getattr(_FREE, "blocks", [])
    fitting = [number for number, block in enumerate(blocks) if n_bytes <= block.size <= 2 * n_bytes]
    if fitting:
        return blocks.pop(min(fitting, key=lambda number: blocks[number].size))
    blocks.clear()
    return np.empty(n_bytes, np.uint8)


class Buffer:
    """Memory that is allocated once and used again. For one thread at a time.

    Parameters
    ----------
    memory : of someone else, which it begins with; None for nothing
    """

    def __init__(self, memory: NDArray[np.uint8] | None = None) -> None:
        self._bytes: NDArray[np.uint8] = _NOTHING if memory is None else memory
        self._lent = memory is not None

    def view(self, shape: Sequence[int], dtype: np.dtype[Any]) -> NDArray[Any]:
        """A C-contiguous array over the buffer, which grows if needed. Its content is undefined."""
        needed = math.prod(shape) * dtype.itemsize
        if self._bytes.size < needed:
            self.release()  # before the new memory is allocated
            self._bytes, self._lent = _taken(needed), False
        return self._bytes[:needed].view(dtype).reshape(shape)

    def release(self) -> None:
        """Give the memory back: to the next buffers of this thread, if they may have it and no array over it is left."""
        block, self._bytes = self._bytes, _NOTHING
        free = getattr(_FREE, "blocks", None)
        if (
            free is not None and block.size and not self._lent and sys.getrefcount(block) == 2
        ):  # by this name, and as the argument
            free.append(block)

    def __del__(self) -> None:
        self.release()
