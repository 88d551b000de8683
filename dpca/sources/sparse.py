"""Sparse matrices by rows (CSR) or by columns (CSC), of HDF5, Zarr or scipy: read slab by slab, as lines or dense.

The values of such a matrix lie line after line (row or column) in `data`, with their places along the line in `indices`;
`indptr` says where each line begins. Each of the three is a source of one axis, so that whatever reads
arrays of a format (its checks of chunks, its retries) reads sparse matrices of it. A line is a chunk of the layout, so the
other side of the matrix can only be streamed from a copy in scratch (`dpca.planning.rechunk`), which has the lines of that side where
few values are stored (`dpca.sources.turned`).

Where values are few, passes take the lines of a slab as they are stored (`dpca.sources.lines`); else, and in whatever wants an array, the slab is
made dense. Within a task, a stored chunk that two slabs share is read once; a chunk that two tasks share is read by both.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dpca.errors import DataError, InputError
from dpca.slabs import extent
from dpca.sources.anndata_layout import Sparse
from dpca.sources.base import Layout, Reader, Region, Source, check_dtype, size_of
from dpca.sources.chosen import Selection
from dpca.sources.coordinate import Coordinate, Vector, VectorTooLarge
from dpca.sources.lines import FEW, FewValues, Lines
from dpca.sources.lines import held as held_as_lines
from dpca.sources.memory import MemorySource
from dpca.sources.selection import layout_of

PARTS = ("data", "indices", "indptr")
BLOCK = 2**17
"""Stored values that are put into a slab at a time: as fast as scipy's loop within a third, for any dtype and duplicates."""
LINES_BYTES = 2**18
"""Lines of the layout's chunks are as many as make this, dense: fewer would take longer to find than to read."""

Names = Mapping[int, tuple[str, Callable[[], Vector | None]]]
"""Name of an axis, and a function that opens the labels along it."""


class SparseSource(Source):
    """A sparse matrix.

    Parameters
    ----------
    name : in error messages
    matrix : shape and encoding
    parts : the sources of data, indices and indptr
    names : of the axes
    selection : the chosen features; None for all
    """

    def __init__(
        self,
        name: str,
        matrix: Sparse,
        parts: Iterable[Source],
        names: Names | None = None,
        selection: Selection | None = None,
    ) -> None:
        self._matrix, self._names, self._selection = matrix, names or {}, selection
        self._data, self._indices, self._indptr = parts
        self._lines = 0 if matrix.dtype == "csr_matrix" else 1
        _check(name, matrix, self._lines, *(part.layout for part in self._parts))
        dtype, codec = self._data.layout.dtype, self._data.layout.codec
        line = size_of((matrix.shape[1 - self._lines],), dtype)
        chunks = [max(1, length) for length in matrix.shape]
        chunks[self._lines] = min(chunks[self._lines], -(-LINES_BYTES // max(1, line)))
        layout = Layout(
            name,
            matrix.shape,
            check_dtype(name, dtype),
            tuple(chunks),
            codec=", ".join([matrix.dtype[:3], *({codec} - {"none"})]),
            dims=tuple(self._names.get(axis, (None,))[0] for axis in (0, 1)),
            few_values=_few_values(matrix.shape, self._lines, self._data.layout.shape[0]),
        )
        self.layout = layout if selection is None else layout_of(layout, selection)

    @classmethod
    def of(cls, matrix: Any) -> SparseSource:
        """The source of a matrix or array of scipy.sparse, by lines along its longer side, which is the one that is streamed."""
        name = "the sparse matrix"
        if matrix.ndim != 2:
            raise InputError(f"{name}: has shape {matrix.shape}", "Give a matrix of samples by features.")
        matrix = matrix.tocsr() if matrix.shape[0] >= matrix.shape[1] else matrix.tocsc()
        arrays = (MemorySource(getattr(matrix, part), name=f"{name}, {part}") for part in PARTS)
        return cls(name, Sparse(tuple(map(int, matrix.shape)), f"{matrix.format}_matrix"), arrays)

    def choose(self, selection: Selection) -> SparseSource:
        """The matrix of the chosen features alone."""
        return SparseSource(self.layout.name, self._matrix, self._parts, self._names, selection)

    @property
    def _parts(self) -> tuple[Source, Source, Source]:
        return self._data, self._indices, self._indptr

    @property
    def in_memory(self) -> bool:
        return self._data.in_memory

    @property
    def selection(self) -> Selection | None:
        return self._selection

    @property
    def lines_axis(self) -> int:
        return self._lines

    def copied(self) -> SparseSource:
        """This source over a copy of arrays in memory."""
        parts = (part.copied() for part in self._parts if isinstance(part, MemorySource))
        return SparseSource(self.layout.name, self._matrix, parts, self._names, self._selection)

    def held(self, shape: tuple[int, ...]) -> dict[str, int]:
        held = {
            "slab": size_of(shape, self.layout.dtype),
            "ends of lines": 3 * 8 * (shape[self._lines] + 1),
            "places of values": 6 * 8 * BLOCK,
            "stored values of a slab": held_as_lines(math.prod(shape), self.layout.dtype),
        }
        if self._selection is not None:
            held["chosen features, and their numbers"] = self._selection.positions.nbytes + 8 * self._selection.length
        for name, part in zip(PARTS, self._parts, strict=True):
            block = (min(_block(part.layout)[1], part.layout.shape[0]),)
            held |= {f"{what} of {name}": size for what, size in part.held(block).items()}
        return held

    @contextmanager
    def open(self) -> Iterator[Reader]:
        with self._data.open() as data, self._indices.open() as indices, self._indptr.open() as indptr:
            yield _SparseReader(self.layout, self._matrix, (data, indices, indptr), self._names, self._selection)

    def stored_bytes(self) -> int | None:
        sizes = [part.stored_bytes() for part in self._parts]
        return sum(size or 0 for size in sizes) if None not in sizes else None

    @property
    def place(self) -> tuple[str | list[str], str | None] | None:
        place = self._data.place
        return None if place is None else (place[0], (place[1] or "").rpartition("/")[0] or None)

    def fingerprint(self) -> dict[str, Any]:
        parts = {name: part.fingerprint() for name, part in zip(PARTS, self._parts, strict=True)}
        found = {
            "kind": f"{self._matrix.dtype[:3]} in {parts['data']['kind']}",
            "uri": self.layout.name,
            **{name: {key: part[key] for key in part if key not in ("kind", "uri")} for name, part in parts.items()},
        }
        return found if self._selection is None else {**found, "features": self._selection.fingerprint}

    def state(self, region: Region) -> str | None:
        part = self._pieces(region)
        states = [source.state((piece,)) for source, piece in zip(self._parts, part, strict=True)]
        return None if None in states else " ".join(map(str, states))

    def restrict(self, region: Region) -> Self:
        if not self.in_memory:
            return self
        part = object.__new__(type(self))
        part.__dict__.update(self.__dict__)
        pieces = self._pieces(region)
        part._data, part._indices, part._indptr = (
            source.restrict((piece,)) for source, piece in zip(self._parts, pieces, strict=True)
        )
        return part

    def _pieces(self, region: Region) -> tuple[slice, slice, slice]:
        """The pieces of data, indices and indptr that a region lies in, by the first and the last of its lines."""
        lines = _lines_in_storage(region, self._lines, self._selection)
        with self._indptr.open() as reader:
            first, last = (int(reader.read((slice(end, end + 1),))[0]) for end in (lines.start, lines.stop))
        n_values = self._data.layout.shape[0]
        values = slice(min(max(0, first), n_values), min(max(0, last), n_values))
        return values, values, slice(lines.start, lines.stop + 1)


class _SparseReader(Reader):
    def __init__(
        self,
        layout: Layout,
        matrix: Sparse,
        parts: tuple[Reader, Reader, Reader],
        names: Names,
        selection: Selection | None,
    ) -> None:
        super().__init__(layout)
        self._parts, self._names, self._selection = parts, names, selection
        self._data, self._indices, self._indptr = map(_InOrder, parts)
        self._lines = 0 if matrix.dtype == "csr_matrix" else 1
        self._width = matrix.shape[1 - self._lines]
        self._numbers: NDArray[np.int64] | None = None
        if selection is not None and selection.axis != self._lines:
            self._numbers = np.full(selection.length, -1)
            self._numbers[selection.positions] = np.arange(selection.positions.size)

    def _read(self, region: Region) -> NDArray[Any]:
        out = self._buffer.view(extent(region), self.layout.dtype)
        out[...] = 0
        for place, stored in self._runs(region[self._lines]):
            self._add(stored, region[1 - self._lines], out, place)
        self._count()
        return out

    def _lines_of(self, region: Region) -> Lines | None:
        """The stored values of a region, unless they are many."""
        across, most = region[1 - self._lines], math.prod(extent(region)) // FEW
        values, places, numbers = [], [], []
        for place, stored in self._runs(region[self._lines]):
            ends = self._ends(stored)
            most -= int(ends[-1] - ends[0])
            if most < 0:
                return None
            for columns, some, first, counts in self._some(stored, ends, across):
                values.append(some.copy())  # lent until the next read
                places.append((columns - across.start).astype(np.int32))
                numbers.append((place + first, counts))
        ends = np.zeros(region[self._lines].stop - region[self._lines].start + 1, np.int32)
        for first, counts in numbers:
            ends[first + 1 : first + 1 + len(counts)] += counts
        self._count()
        return Lines(
            np.concatenate([np.empty(0, self.layout.dtype), *values]),
            np.concatenate([np.empty(0, np.int32), *places]),
            np.cumsum(ends, dtype=np.int32),
            across.stop - across.start,
            self._lines,
        )

    def _count(self) -> None:
        """Count what the readers of the three parts have met."""
        self.absent_chunks = sum(part.absent_chunks for part in self._parts)
        self.retries = sum(part.retries for part in self._parts)

    def _runs(self, lines: slice) -> Iterator[tuple[int, slice]]:
        """Lines of a slab that follow each other in storage, too: where they begin in the slab, and where in storage."""
        if self._selection is None or self._selection.axis != self._lines:
            yield 0, lines
            return
        chosen = self._selection.positions[lines]
        ends = [0, *(np.flatnonzero(np.diff(chosen) != 1) + 1).tolist(), len(chosen)]
        for start, stop in pairwise(ends):
            if start < stop:
                yield start, slice(int(chosen[start]), int(chosen[stop - 1]) + 1)

    def _add(self, lines: slice, across: slice, out: NDArray[Any], place: int) -> None:
        """Add the values of some lines of storage to a slab, in which these lines begin at number `place`."""
        flat = out.reshape(-1)
        line, step = (out.shape[1], 1) if self._lines == 0 else (1, out.shape[1])
        for columns, values, first, counts in self._some(lines, self._ends(lines), across):
            begins = np.repeat(np.arange(place + first, place + first + len(counts)) * line, counts)
            np.add.at(flat, begins + (columns - across.start) * step, values)

    def _some(
        self, lines: slice, ends: NDArray[np.int64], across: slice
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[Any], int, NDArray[np.int64]]]:
        """The values of some lines of storage, a block at a time: places, values, the first line, and how many each line has."""
        position, stop = int(ends[0]), int(ends[-1])
        while position < stop:
            limit = min(position + BLOCK, stop)
            places, values = self._indices.some(position, limit), self._data.some(position, limit)
            count = min(len(places), len(values))
            columns = self._columns(places[:count], lines, ends, position)
            first = int(np.searchsorted(ends, position, "right")) - 1
            last = int(np.searchsorted(ends, position + count, "left"))
            cuts = np.clip(ends[first : last + 1], position, position + count)
            counts, values = np.diff(cuts), values[:count]
            if self._numbers is not None or across != slice(0, self._width):
                kept = (columns >= across.start) & (columns < across.stop)
                columns, values = columns[kept], values[kept]
                counts = np.diff(np.append(0, np.cumsum(kept))[cuts - position])
            yield columns, values, first, counts
            position += count

    def _ends(self, lines: slice) -> NDArray[np.int64]:
        """Where each of some lines begins among the values, and where the last one ends."""
        ends, position, n_values = np.empty(lines.stop - lines.start + 1, np.int64), 0, self._data.length
        while position < len(ends):
            found = self._indptr.some(lines.start + position, lines.stop + 1)
            ends[position : position + len(found)] = found
            position += len(found)
        wrong = (ends < 0) | (ends > n_values)
        if not wrong.any():  # so that no difference overflows
            wrong[1:] = np.diff(ends) < 0
            wrong[0] = lines.start == 0 and ends[0] != 0
        if wrong.any():
            at = int(np.argmax(wrong))
            raise DataError(
                f"{self._name(2)}: entry {lines.start + at} is {ends[at]}, but they ascend from 0 to {n_values} at most, the "
                "number of values",
                "The matrix is damaged: write it again.",
            )
        return ends

    def _columns(self, places: NDArray[Any], lines: slice, ends: NDArray[np.int64], position: int) -> NDArray[np.int64]:
        """Places of values along their lines, by number in the layout; -1 for those that are not chosen."""
        columns = places.astype(np.int64)
        if columns.min() < 0 or columns.max() >= self._width:
            at = int(np.argmax((columns < 0) | (columns >= self._width)))
            line = lines.start + int(np.searchsorted(ends, position + at, "right")) - 1
            raise DataError(
                f"{self._name(1)}: entry {position + at}, of {('row', 'column')[self._lines]} {line}, is {columns[at]}, but "
                f"0 to {self._width - 1} is allowed in a matrix of this shape",
                "The matrix is damaged: write it again.",
            )
        return columns if self._numbers is None else self._numbers[columns]

    def _name(self, part: int) -> str:
        return self._parts[part].layout.name

    def coordinate(self, axis: int) -> Coordinate | None:
        name, opened = self._names.get(axis, ("", lambda: None))
        try:
            values = opened()
        except VectorTooLarge as cause:
            self.left_out.append(str(cause))
            return None
        chooses = self._selection is not None and self._selection.axis == axis
        length = self._selection.length if self._selection is not None and chooses else self.layout.shape[axis]
        if values is None or values.shape != (length,):
            return None
        found = Coordinate(name, values, values.parts)
        return self._selection.coordinate(found) if self._selection is not None and chooses else found


class _InOrder:
    """A stored vector that is read in whole chunks, in order: a chunk that two pieces share is read once."""

    def __init__(self, reader: Reader) -> None:
        self._reader, self.length = reader, reader.layout.shape[0]
        self._chunk, self._block = _block(reader.layout)
        self._start, self._held = 0, np.empty(0)

    def some(self, start: int, stop: int) -> NDArray[Any]:
        """Values from `start` on: one at least, and up to `stop` at most."""
        if not self._start <= start < self._start + len(self._held):
            first = start - start % self._chunk
            last = min(first + self._block, -(-stop // self._chunk) * self._chunk, self.length)
            self._held = self._held[:0]  # should the read fail, its memory holds nothing
            self._start, self._held = first, self._reader.read((slice(first, last),))
        return self._held[start - self._start : stop - self._start]


def _block(layout: Layout) -> tuple[int, int]:
    """Length of a chunk of a vector, and of as many chunks as are read together."""
    chunk = max(1, layout.chunk_shape[0])
    return chunk, chunk * max(1, BLOCK // chunk)


def _few_values(shape: tuple[int, ...], lines: int, n_stored: int) -> FewValues | None:
    return FewValues(lines, n_stored) if FEW * n_stored <= math.prod(shape) else None


def _lines_in_storage(region: Region, lines: int, selection: Selection | None) -> slice:
    return (region if selection is None or selection.axis != lines else selection.stored(region))[lines]


def _check(name: str, matrix: Sparse, lines: int, data: Layout, indices: Layout, indptr: Layout) -> None:
    """Refuse arrays that make up no matrix of a shape, as far as their own shapes and types tell."""
    problem = ""
    if len(matrix.shape) != 2:
        problem = "its attribute shape is not two lengths"
    elif any(len(part.shape) != 1 for part in (data, indices, indptr)) or data.shape != indices.shape:
        problem = f"data has shape {data.shape} and indices has {indices.shape}, but they are values and their places"
    elif indptr.shape != (matrix.shape[lines] + 1,):
        problem = f"indptr has shape {indptr.shape}, but a {matrix.dtype} of shape {matrix.shape} has {matrix.shape[lines] + 1} entries"
    elif any(part.dtype.kind not in "iu" for part in (indices, indptr)):
        problem = f"indices has dtype {indices.dtype} and indptr {indptr.dtype}, but integers are allowed"
    if problem:
        raise InputError(f"{name}: is no sparse matrix: {problem}", "Write it again.", key="input.array")
