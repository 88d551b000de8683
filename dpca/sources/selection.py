"""Chosen features of a matrix, such as the variable genes of AnnData: a source of these alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpca.slabs import Cuts, extent, grow, placed
from dpca.sources.base import Layout, Reader, Region, Source, size_of, within
from dpca.sources.chosen import Selection
from dpca.sources.coordinate import Auxiliary, Coordinate
from dpca.sources.facts import A
from dpca.sources.memory import of_auxiliary
from dpca.sources.view import View, ViewReader

PART_BYTES = 8 * 2**20
"""Size of the parts in which a region is read, unless a chunk is larger."""


class ChosenFeatures(View):
    """A dense array of storage with only the chosen entries of an axis.

    A region is read in parts of whole chunks, of which entries are taken: features lie beside each other in storage, unlike
    samples (`SelectedSource`), so that going from one to the next costs more than reading what is between them.
    """

    def __init__(self, source: Source, selection: Selection) -> None:
        super().__init__(source, layout_of(source.layout, selection))
        self._selection = selection

    def behind(self, region: Region) -> Region:
        return self._selection.stored(region)

    def reader(self, reader: Reader) -> Reader:
        return _ChosenReader(self.layout, reader, self._selection)

    def held(self, shape: tuple[int, ...]) -> dict[str, int]:
        part = tuple(cut.step for cut in _cuts(self._source.layout))
        inside = {f"{name}, as stored": size for name, size in self._source.held(part).items()}
        return {
            "slab": 2 * size_of(shape, self.layout.dtype),
            "chosen features": self._selection.positions.nbytes,
        } | inside

    def beside(self, name: str) -> Source:
        with self.open() as reader:
            auxiliaries = [
                Auxiliary.of(one.axes, name, np.asarray(one.coordinate.values[...]))
                for one in reader.auxiliaries()
                if one.coordinate.name == name
            ]
        return of_auxiliary(name, self.layout, auxiliaries)

    def about(self, kind: type[A]) -> A | None:
        found = self._source.about(kind)
        return found if found is None or kind.of_samples else found.of(self._selection.positions)

    def fingerprint(self) -> dict[str, Any]:
        return {**self._source.fingerprint(), "features": self._selection.fingerprint}

    @property
    def place(self) -> tuple[str | list[str], str | None] | None:
        return self._source.place

    @property
    def selection(self) -> Selection:
        return self._selection


class _ChosenReader(ViewReader):
    def __init__(self, layout: Layout, reader: Reader, selection: Selection) -> None:
        super().__init__(layout, reader)
        self._selection = selection

    def parts(self, region: Region) -> Iterator[Region]:
        axis, chosen = self._selection.axis, self._selection.positions[region[self._selection.axis]]
        for part in _parts(self._reader.layout, self._selection.stored(region)):
            first, last = np.searchsorted(chosen, (part[axis].start, part[axis].stop))
            if first < last:
                yield part

    def _read(self, region: Region) -> NDArray[Any]:
        axis = self._selection.axis
        out = self._buffer.view(extent(region), self.layout.dtype)
        chosen, stored = self._selection.positions[region[axis]], self._selection.stored(region)
        for part in self.parts(region):
            first, last = np.searchsorted(chosen, (part[axis].start, part[axis].stop))
            target = out[placed(within(part, stored), axis, slice(int(first), int(last)))]
            np.take(self._reader.read(part), chosen[first:last] - part[axis].start, axis, target)
        return out

    def coordinate(self, axis: int) -> Coordinate | None:
        found = self._reader.coordinate(axis)
        return self._selection.coordinate(found) if axis == self._selection.axis else found

    def auxiliaries(self) -> Sequence[Auxiliary]:
        axis, found = self._selection.axis, self._reader.auxiliaries()
        chosen = [(one, self._selection.coordinate(one.coordinate)) for one in found if one.axes == (axis,)]
        return [one for one in found if axis not in one.axes] + [
            Auxiliary(one.axes, coordinate) for one, coordinate in chosen if coordinate is not None
        ]


def _cuts(layout: Layout) -> tuple[Cuts, ...]:
    """Cuts of a stored array into parts of whole chunks."""
    chunks = [Cuts.of(length, chunk) for length, chunk in zip(layout.shape, layout.chunks, strict=True)]
    return grow(chunks, list(reversed(range(len(chunks)))), PART_BYTES // layout.dtype.itemsize)


def _parts(layout: Layout, region: Region) -> Iterator[Region]:
    """The parts of a region, along these cuts."""
    axes = []
    for piece, cut in zip(region, _cuts(layout), strict=True):
        inner = range(piece.start - piece.start % cut.step + cut.step, piece.stop, cut.step)
        axes.append([slice(start, stop) for start, stop in pairwise([piece.start, *inner, piece.stop])])
    yield from product(*axes)


def layout_of(layout: Layout, selection: Selection) -> Layout:
    """The layout of an array of the chosen entries: a chunk has as many as a stored one holds of them."""
    chunks: list[Any] = list(layout.chunks)
    if (step := chunks[selection.axis]) != 1:
        edges = [*range(0, selection.length, step), selection.length]
        held = np.diff(np.searchsorted(selection.positions, edges))
        chunks[selection.axis] = tuple(int(count) for count in held if count)
    shape = (*layout.shape[: selection.axis], selection.positions.size, *layout.shape[selection.axis + 1 :])
    return replace(layout, shape=shape, chunks=tuple(chunks), shards=None, stored_dtype=None)
