"""Views: sources that show another source otherwise, and read nothing by themselves."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Self

from numpy.typing import NDArray

from dpca.sources.base import Layout, Reader, Region, Source
from dpca.sources.coordinate import Auxiliary, Coordinate
from dpca.sources.facts import A, Kinds


class ViewReader(Reader):
    """A reader of a view, over one of the source behind it, which retries failed reads and explains them."""

    def __init__(self, layout: Layout, reader: Reader) -> None:
        super().__init__(layout)
        self._reader, self.left_out = reader, reader.left_out

    def parts(self, region: Region) -> Iterable[Region]:
        """The regions of the source behind it that a region needs, in the order in which they are read."""
        return [region]

    def will_read(self, regions: Iterable[Region]) -> None:
        self._reader.will_read(part for region in regions for part in self.parts(region))

    def read(self, region: Region) -> NDArray[Any]:
        values = self._read(region)
        self.bytes_read += values.nbytes
        self.absent_chunks, self.retries = self._reader.absent_chunks, self._reader.retries
        return values

    def _read(self, region: Region) -> NDArray[Any]:
        return self._reader.read(region)

    def coordinate(self, axis: int) -> Coordinate | None:
        return self._reader.coordinate(axis)

    def auxiliaries(self) -> Sequence[Auxiliary]:
        return self._reader.auxiliaries()


class View(Source):
    """A source that shows another one otherwise.

    Parameters
    ----------
    source : the source behind it
    layout : of the view
    """

    def __init__(self, source: Source, layout: Layout) -> None:
        self._source, self.layout = source, layout
        self.notes, self.chosen = source.notes, source.chosen

    def behind(self, region: Region) -> Region:
        """The smallest region of the source behind it that holds a region."""
        return region

    def reader(self, reader: Reader) -> Reader:
        """The reader of the view over one of the source behind it."""
        return ViewReader(self.layout, reader)

    def restrict(self, region: Region) -> Self:
        part = copy.copy(self)
        part._source = self._source.restrict(self.behind(region))
        return part

    def held(self, shape: tuple[int, ...]) -> dict[str, int]:
        return self._source.held(shape)

    @contextmanager
    def open(self) -> Iterator[Reader]:
        with self._source.open() as reader:
            yield self.reader(reader)

    @property
    def in_memory(self) -> bool:
        return self._source.in_memory

    @property
    def knows(self) -> Kinds:
        return self._source.knows

    def about(self, kind: type[A]) -> A | None:
        return self._source.about(kind)

    def beside(self, name: str) -> Source:
        return self._source.beside(name)

    def stored_bytes(self) -> int | None:
        return self._source.stored_bytes()

    @property
    def blocks(self) -> Mapping[Any, Any]:
        return self._source.blocks

    def with_blocks(self, blocks: Mapping[Any, NDArray[Any]]) -> Self:
        part = copy.copy(self)
        part._source = self._source.with_blocks(blocks)
        return part

    def check_sharing(self, regions: Iterable[Region], n_regions: int) -> None:
        self._source.check_sharing(map(self.behind, regions), n_regions)

    def fingerprint(self) -> dict[str, Any]:
        return self._source.fingerprint()

    def state(self, region: Region) -> str | None:
        return self._source.state(self.behind(region))
