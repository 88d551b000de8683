"""A source whose data fit in memory: what one pass reads is kept there for the passes that follow.

Not if keeping takes longer than reading: a virtual machine may have to ask its host for every page that is touched
for the first time, at less than 1 GB/s, and zstd decodes faster. Both are timed on the way; the choice
changes no bit of the result.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dpca.sources.base import Reader, Region, Source
from dpca.sources.coordinate import Auxiliary, Coordinate
from dpca.sources.lines import Lines

BLOCK_BYTES = 2**28
"""Size of the allocated blocks: so large, the system clears them in huge pages, which takes a tenth of the time."""


TRIED_BYTES = 2**26
"""Bytes that are kept in any case, to measure the cost."""


class Slabs:
    """Arrays by region, packed into large blocks of memory, as long as keeping them is faster than reading them again.

    Parameters
    ----------
    tried_bytes : bytes that are kept in any case, to measure the cost
    """

    def __init__(self, tried_bytes: int = TRIED_BYTES) -> None:
        self._tried_bytes = tried_bytes
        self._reading = self._keeping = 0.0
        self._bytes = 0
        self._found: dict[tuple[tuple[int, int], ...], tuple[NDArray[Any], int]] = {}
        self._lines: dict[tuple[tuple[int, int], ...], tuple[Lines, int]] = {}
        self._free: NDArray[np.uint8] = np.empty(0, np.uint8)
        self._lock = threading.Lock()

    def get(self, region: Region) -> tuple[NDArray[Any], int] | None:
        """The values of a region, and how many absent chunks were met when they were read; None if they are not kept."""
        return self._found.get(_key(region))

    def lines_of(self, region: Region) -> tuple[Lines, int] | None:
        """The lines of a sparse matrix in a region, and how many absent chunks were met; None if they are not kept."""
        return self._lines.get(_key(region))

    def keep_lines(self, region: Region, lines: Lines, absent_chunks: int) -> tuple[Lines, int]:
        """Keep lines, which are in memory of their own and take less than the region would if it were dense."""
        return self._lines.setdefault(_key(region), (lines, absent_chunks))

    def keep(self, region: Region, values: NDArray[Any], read_seconds: float, absent_chunks: int = 0) -> NDArray[Any]:
        """Keep a copy of values that took `read_seconds` to read, and return it; or return the values, without keeping them.

        Parameters
        ----------
        absent_chunks : how many were met: they belong to what each pass counts, whether it reads them or not
        """
        if self._bytes > self._tried_bytes and self._keeping > self._reading:
            return values
        began, size = time.perf_counter(), -(-values.nbytes // 64) * 64
        with self._lock:
            if self._free.size < size:
                self._free = np.empty(max(size, BLOCK_BYTES), np.uint8)
            memory, self._free = self._free[:size], self._free[size:]
        order = "F" if values.flags.f_contiguous and not values.flags.c_contiguous else "C"
        kept: NDArray[Any] = memory[: values.nbytes].view(values.dtype).reshape(values.shape, order=order)  # type: ignore[call-overload]
        kept[...] = values
        self._found[_key(region)] = kept, absent_chunks
        with self._lock:
            self._bytes += values.nbytes
            self._reading += read_seconds
            self._keeping += time.perf_counter() - began
        return kept


def _key(region: Region) -> tuple[tuple[int, int], ...]:
    return tuple((piece.start, piece.stop) for piece in region)


class KeptSource(Source):
    """A source whose regions are read once each, by tasks of one process, which share the memory."""

    def __init__(self, source: Source, slabs: Slabs | None = None) -> None:
        self.layout = source.layout
        self._source, self._slabs = source, slabs or Slabs()

    @property
    def lines_axis(self) -> int | None:
        return self._source.lines_axis

    def restrict(self, region: Region) -> Self:
        return type(self)(self._source.restrict(region), self._slabs)

    def held(self, shape: tuple[int, ...]) -> dict[str, int]:
        return self._source.held(shape)

    @contextmanager
    def open(self) -> Iterator[Reader]:
        with self._source.open() as reader:
            yield _KeptReader(reader, self._slabs)

    def beside(self, name: str) -> Source:
        return self._source.beside(name)

    def stored_bytes(self) -> int | None:
        return self._source.stored_bytes()

    def fingerprint(self) -> dict[str, Any]:
        return self._source.fingerprint()

    def state(self, region: Region) -> str | None:
        return self._source.state(region)

    @property
    def place(self) -> tuple[str | list[str], str | None] | None:
        return self._source.place


class _KeptReader(Reader):
    def __init__(self, reader: Reader, slabs: Slabs) -> None:
        super().__init__(reader.layout)
        self._reader, self._slabs = reader, slabs

    def read(self, region: Region) -> NDArray[Any]:
        found = self._slabs.get(region)
        if found is not None:
            kept, absent = found
        else:
            before, began = self._reader.absent_chunks, time.perf_counter()
            values = self._reader.read(region)
            absent = self._reader.absent_chunks - before
            kept = self._slabs.keep(region, values, time.perf_counter() - began, absent)
            self.retries, self.bytes_read = self._reader.retries, self._reader.bytes_read
        self.absent_chunks += absent
        return kept

    def read_lines(self, region: Region) -> Lines | None:
        found = self._slabs.lines_of(region)
        if found is None and self._slabs.get(region) is None:
            before = self._reader.absent_chunks
            lines = self._reader.read_lines(region)
            self.retries, self.bytes_read = self._reader.retries, self._reader.bytes_read
            if lines is None:
                return None
            found = self._slabs.keep_lines(region, lines, self._reader.absent_chunks - before)
        if found is None:
            return None
        self.absent_chunks += found[1]
        return found[0]

    def will_read(self, regions: Iterable[Region]) -> None:
        self._reader.will_read(region for region in regions if self._slabs.get(region) is None)

    def _read(self, region: Region) -> NDArray[Any]:
        raise AssertionError  # `read` never calls it

    def coordinate(self, axis: int) -> Coordinate | None:
        return self._reader.coordinate(axis)

    def auxiliaries(self) -> Sequence[Auxiliary]:
        return self._reader.auxiliaries()
