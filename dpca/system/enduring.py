"""A file that HDF5 writes, on a disk that may be full."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


class _Enduring(io.FileIO):
    """A file whose first failure is kept: HDF5 can't close a file after one, and ends the process when it tries to again."""

    failure: OSError | None = None

    def write(self, content: Any) -> int:
        left = memoryview(content).cast("B")
        n_bytes = len(left)
        try:
            while left and self.failure is None:
                left = left[super().write(left) :]
        except OSError as cause:
            self.failure = cause
        return n_bytes

    def truncate(self, size: int | None = None) -> int:
        try:
            return super().truncate(size)
        except OSError as cause:
            self.failure = self.failure or cause
            return size or 0


@contextmanager
def enduring(path: Path) -> Iterator[io.FileIO]:
    """A new file for h5py, or a library above it; a write that failed is raised in the end, when HDF5 is done with the file."""
    with _Enduring(path, "w+") as file:
        try:
            yield file
        except Exception as error:  # of what could not be read back
            if file.failure is not None:
                raise file.failure from error
            raise
        if file.failure is not None:
            raise file.failure
