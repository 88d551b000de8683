"""NumPy's .npy files, read by offset: some systems would count the pages of a memory map as private memory."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from numpy.lib import format as npy_format
from numpy.typing import NDArray

from dpca.errors import InputError
from dpca.slabs import extent
from dpca.sources.base import Layout, Reader, Region, check_dtype, size_of
from dpca.sources.file import FileSource
from dpca.sources.runs import read_block
from dpca.system import regular

MAGIC = b"\x93NUMPY"
HEADER_BYTES = 2**14
"""Bytes read to find the header: numpy accepts no header of this length."""


class _NpyReader(Reader):
    def __init__(self, layout: Layout, file: Any, offset: int) -> None:
        super().__init__(layout)
        self._file, self._offset = file, offset

    def _read(self, region: Region) -> NDArray[Any]:
        # A Fortran-ordered file is the C-ordered file of the transpose.
        fortran = self.layout.order == "F"
        shape = self.layout.shape[::-1] if fortran else self.layout.shape
        region = region[::-1] if fortran else region
        out = self._buffer.view(extent(region), self.layout.dtype)
        read_block(self._file, self._offset, shape, region, out, self.layout.name)
        return out.T if fortran else out


class NpySource(FileSource):
    """A .npy file of format version 1 or 2, in C or Fortran order; version 3 is only for named fields."""

    kind = "npy"

    def __init__(self, path: str | Path) -> None:
        super().__init__(path)
        shape, fortran, dtype, self._offset = header_of(self.path)
        self.layout = Layout(
            self.path, shape, check_dtype(self.path, dtype), (1,) * len(shape), order="F" if fortran else "C"
        )

    def held(self, shape: tuple[int, ...]) -> dict[str, int]:
        return {"slab": size_of(shape, self.layout.dtype)}

    @contextmanager
    def open(self) -> Iterator[Reader]:
        with regular.opened(self.path) as file:
            yield _NpyReader(self.layout, file, self._offset)


def header_of(path: str) -> tuple[tuple[int, ...], bool, Any, int]:
    """Shape, whether it is in Fortran order, dtype, and the offset of the values."""
    with regular.opened(path) as file:
        start = io.BytesIO(file.read(HEADER_BYTES))
    try:
        version = npy_format.read_magic(start)
        # Pickled objects are refused by dtype: nothing is ever unpickled.
        read_header = {
            (1, 0): npy_format.read_array_header_1_0,
            (2, 0): npy_format.read_array_header_2_0,
        }.get(version)
        if read_header is None:
            raise ValueError(f"format version {version}")
        shape, fortran, dtype = read_header(start)
        if min(shape, default=0) < 0:
            raise ValueError(f"shape {shape}")
    except Exception as cause:  # the header is a Python literal, whose parser raises many types of error
        raise InputError(
            f"{path}: its .npy header can't be read: {cause}", "Write the file again with numpy.save."
        ) from cause
    return shape, fortran, dtype, start.tell()
