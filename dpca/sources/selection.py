"""Chosen features of a matrix, such as the variable genes of AnnData: a source of these alone."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpca.errors import InputError
from dpca.slabs import Cuts, grow, placed
from dpca.sources.base import Layout, Reader, Region, Source, size_of, within
from dpca.sources.coordinate import PIECE_VALUES, Auxiliary, Coordinate, Vector
from dpca.sources.memory import of_auxiliary

PART_BYTES = 8 * 2**20
"""Size of the parts in which a region is read, unless a chunk is larger."""


@dataclass(frozen=True, eq=False)
class Selection:
    """The chosen entries of an axis, in the order of storage."""

    axis: int
    length: int
    """Length of the axis in storage."""
    positions: NDArray[np.int64]
    """(n,), ascending: where they are in storage."""
    column: str
    """Name of the column that chooses them."""

    @classmethod
    def of(cls, name: str, axis: int, length: int, column: str, mask: Vector) -> Selection:
        """The entries for which a column is true.

        Parameters
        ----------
        name, length : of the matrix, for error messages, and of its axis
        mask : the column
        """
        if getattr(mask.dtype, "kind", "O") != "b":
            raise InputError(
                f"{name}: column {column!r} is of dtype {mask.dtype}, but a boolean column is allowed",
                f"Store it as one: adata.var[{column!r}] = adata.var[{column!r}].astype(bool).",
                key="input.features",
            )
        if mask.shape != (length,):
            raise InputError(
                f"{name}: column {column!r} has shape {mask.shape}, but there are {length:,} features",
                "Write the file again: its table does not belong to its matrix.",
                key="input.features",
            )
        steps = Coordinate(column, mask, mask.parts).pieces()
        found = [piece.start + np.flatnonzero(values) for piece, values in steps]
        positions = np.concatenate([np.empty(0, np.int64), *found])
        if not positions.size:
            raise InputError(
                f"{name}: column {column!r} is true for none of the {length:,} features",
                "Name another column.",
                key="input.features",
            )
        return cls(axis, length, positions, column)

    def stored(self, region: Region) -> Region:
        """The smallest region of storage that holds a region of the chosen entries."""
        chosen = self.positions[region[self.axis]]
        piece = slice(int(chosen[0]), int(chosen[-1]) + 1) if chosen.size else slice(0, 0)
        return placed(region, self.axis, piece)

    def of_layout(self, layout: Layout) -> Layout:
        """The layout of an array of the chosen entries: a chunk has as many as a stored one holds of them."""
        chunks: list[Any] = list(layout.chunks)
        if (step := chunks[self.axis]) != 1:
            edges = [*range(0, self.length, step), self.length]
            held = np.diff(np.searchsorted(self.positions, edges))
            chunks[self.axis] = tuple(int(count) for count in held if count)
        shape = (*layout.shape[: self.axis], self.positions.size, *layout.shape[self.axis + 1 :])
        return replace(layout, shape=shape, chunks=tuple(chunks), shards=None, stored_dtype=None)

    def coordinate(self, stored: Coordinate | None) -> Coordinate | None:
        """The part of a coordinate along the axis that belongs to the chosen entries."""
        if stored is None or stored.values.shape != (self.length,):
            return None
        values = stored.values

        def read(piece: slice) -> NDArray[Any]:
            chosen = self.positions[piece]
            first, last = (int(chosen[0]), int(chosen[-1]) + 1) if chosen.size else (0, 0)
            found = [np.asarray(values[first:first])]
            for start in range(first, last, PIECE_VALUES):
                here = chosen[(chosen >= start) & (chosen < start + PIECE_VALUES)]
                if here.size:
                    found.append(np.asarray(values[start : min(start + PIECE_VALUES, last)])[here - start])
            return np.concatenate(found)

        return replace(stored, values=Vector(stored.name, self.positions.shape, values.dtype, read, stored.parts))

    @cached_property
    def fingerprint(self) -> dict[str, Any]:
        """Identity of the choice, for a manifest."""
        digest = hashlib.sha256(self.positions.astype("<i8").tobytes()).hexdigest()
        return {"column": self.column, "of": self.length, "chosen_sha256": digest}


class SelectedSource(Source):
    """A dense array of storage with only the chosen entries of an axis."""

    def __init__(self, source: Source, selection: Selection) -> None:
        self._source, self._selection = source, selection
        self.layout = selection.of_layout(source.layout)

    def held(self, shape: tuple[int, ...]) -> dict[str, int]:
        part = tuple(cut.step for cut in _cuts(self._source.layout))
        inside = {f"{name}, as stored": size for name, size in self._source.held(part).items()}
        return {
            "slab": 2 * size_of(shape, self.layout.dtype),
            "chosen features": self._selection.positions.nbytes,
        } | inside

    @contextmanager
    def open(self) -> Iterator[Reader]:
        with self._source.open() as reader:
            yield _SelectedReader(self.layout, reader, self._selection)

    def beside(self, name: str) -> Source:
        with self.open() as reader:
            auxiliaries = [
                Auxiliary.of(one.axes, name, np.asarray(one.coordinate.values[...]))
                for one in reader.auxiliaries()
                if one.coordinate.name == name
            ]
        return of_auxiliary(name, self.layout, auxiliaries)

    def stored_bytes(self) -> int | None:
        return self._source.stored_bytes()

    def fingerprint(self) -> dict[str, Any]:
        return {**self._source.fingerprint(), "features": self._selection.fingerprint}

    def state(self, region: Region) -> str | None:
        return self._source.state(self._selection.stored(region))

    @property
    def place(self) -> tuple[str | list[str], str | None] | None:
        return self._source.place

    @property
    def selection(self) -> Selection:
        return self._selection


class _SelectedReader(Reader):
    def __init__(self, layout: Layout, reader: Reader, selection: Selection) -> None:
        super().__init__(layout)
        self._reader, self._selection = reader, selection

    def _read(self, region: Region) -> NDArray[Any]:
        axis = self._selection.axis
        out = self._buffer.view([piece.stop - piece.start for piece in region], self.layout.dtype)
        chosen, stored = self._selection.positions[region[axis]], self._selection.stored(region)
        for part in _parts(self._reader.layout, stored):
            first, last = np.searchsorted(chosen, (part[axis].start, part[axis].stop))
            if first < last:
                target = out[placed(within(part, stored), axis, slice(int(first), int(last)))]
                np.take(self._reader.read(part), chosen[first:last] - part[axis].start, axis, target)
        self.absent_chunks, self.retries = self._reader.absent_chunks, self._reader.retries
        return out

    def coordinate(self, axis: int) -> Coordinate | None:
        found = self._reader.coordinate(axis)
        self.left_out = self._reader.left_out
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
