"""Data that fit in memory: what one pass reads of a source stays there for those that follow."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from numpy.typing import NDArray

from dpca.sources.base import Coordinate, Layout, Reader, Region, Source

Slabs = dict[tuple[tuple[int, int], ...], NDArray[Any]]


class KeptSource:
    """A source whose regions are read once each, by tasks of one process that share its memory."""

    def __init__(self, source: Source, slabs: Slabs | None = None) -> None:
        self._source, self._slabs = source, {} if slabs is None else slabs

    @property
    def layout(self) -> Layout:
        return self._source.layout

    def restrict(self, region: Region) -> KeptSource:
        return KeptSource(self._source.restrict(region), self._slabs)

    def held(self, shape: tuple[int, ...]) -> dict[str, int]:
        return self._source.held(shape)

    @contextmanager
    def open(self) -> Iterator[Reader]:
        with self._source.open() as reader:
            yield _KeptReader(reader, self._slabs)

    def stored_bytes(self) -> int | None:
        return self._source.stored_bytes()

    def fingerprint(self) -> dict[str, Any]:
        return self._source.fingerprint()


class _KeptReader(Reader):
    def __init__(self, reader: Reader, slabs: Slabs) -> None:
        super().__init__(reader.layout)
        self._reader, self._slabs = reader, slabs

    def read(self, region: Region) -> NDArray[Any]:
        key = tuple((piece.start, piece.stop) for piece in region)
        if key not in self._slabs:
            self._slabs[key] = self._reader.read(region)
            self._reader.give_away()
            self.absent_chunks, self.retries = self._reader.absent_chunks, self._reader.retries
            self.bytes_read = self._reader.bytes_read
        return self._slabs[key]

    def _read(self, region: Region) -> NDArray[Any]:
        raise AssertionError  # `read` never asks

    def coordinate(self, axis: int) -> Coordinate | None:
        return self._reader.coordinate(axis)
