"""A view of some samples of an array, in any order."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpca.slabs import Cuts, extent
from dpca.sources.base import Layout, Reader, Region, Source, size_of
from dpca.sources.coordinate import Auxiliary, Coordinate, Parts
from dpca.sources.facts import A
from dpca.sources.view import View, ViewReader

T = TypeVar("T")
Numbers = NDArray[np.int64]

READ_BYTES = 2**22
"""Samples that follow each other in storage are read together up to this size; a chunk is read whole where it has to be."""
GAP_BYTES = 2**16
"""Samples between two chosen ones are read along where they take less than this and no chunk more: a call costs more."""
SAMPLE = "sample"


class SelectedSource(View):
    """The chosen samples of an array.

    Chunks without a chosen sample are not read, and each other chunk once by each region that needs it. Its chunks
    along the samples end where no chunk in storage has samples on both sides, so that slabs that follow them
    read every chunk once.

    Parameters
    ----------
    source : the array
    axis : of the samples
    chosen : (n,), their numbers in storage, each once
    """

    def __init__(self, source: Source, axis: int, chosen: Numbers) -> None:
        layout = source.layout
        length = layout.shape[axis]
        # Storage that can be cut anywhere is like one chunk of which parts can be read.
        cuts = Cuts.of(length, layout.chunks[axis]) if layout.chunked else Cuts(length, length)
        super().__init__(
            source,
            replace(
                layout,
                shape=_with(layout.shape, axis, len(chosen)),
                chunks=_with(layout.chunks, axis, _chunks(chosen, cuts) if layout.chunked else 1),
                shards=layout.shards and _with(layout.shards, axis, len(chosen)),
                dims=_with(layout.dims, axis, layout.dims[axis] or SAMPLE),
                n_stored=length,
                stack=layout.stack and layout.stack.chosen,
            ),
        )
        self.axis, self.chosen, self._first = axis, chosen, 0
        self._storage = _Storage(cuts, layout.chunked and not layout.divisible)
        self.is_range = bool((np.diff(chosen) == 1).all())
        """Whether the samples follow each other in storage: then nothing has to be put together."""

    def _rows(self, region: Region) -> Numbers:
        """The numbers in storage of the samples of a region."""
        assert self.chosen is not None
        piece = region[self.axis]
        return self.chosen[piece.start - self._first : piece.stop - self._first]

    def behind(self, region: Region) -> Region:
        rows = self._rows(region)
        return _with(region, self.axis, slice(int(rows.min()), int(rows.max()) + 1) if len(rows) else slice(0, 0))

    def reads(self, region: Region) -> list[_Read]:
        """The reads that give a region, in the order of storage."""
        if self.is_range:
            return [_Read(self.behind(region)[self.axis], slice(None), slice(None))]
        rows = self._rows(region)
        if not len(rows):
            return []
        places = np.argsort(rows, kind="stable")
        rows, reads = rows[places], []
        for part in self._storage.parts(rows, _bytes_of_row(self.layout, extent(region), self.axis)):
            start, stop = int(rows[part.start]), int(rows[part.stop - 1]) + 1
            reads.append(_Read(slice(start, stop), _compact(places[part]), _compact(rows[part] - start)))
        return reads

    def reader(self, reader: Reader) -> Reader:
        return _SelectedReader(self, reader)

    def restrict(self, region: Region) -> Self:
        part = super().restrict(region)
        part.chosen, part._first = self._rows(region), region[self.axis].start
        return part

    def held(self, shape: tuple[int, ...]) -> dict[str, int]:
        if self.is_range:
            return self._source.held(shape)
        n_bytes = _bytes_of_row(self.layout, shape, self.axis)
        together = self._storage.longest(n_bytes)
        inside = self._source.held(_with(shape, self.axis, together))
        return {
            "slab": size_of(shape, self.layout.dtype),
            **{f"{name}, of one read of chosen samples": size for name, size in inside.items()},
            "chosen samples of one read": n_bytes * min(together, shape[self.axis]),
        }

    def about(self, kind: type[A]) -> A | None:
        found = self._source.about(kind)
        if found is None or not kind.of_samples or self.chosen is None:
            return found
        return found.of(self.chosen)

    def stored_bytes(self) -> int | None:
        return None

    def fingerprint(self) -> dict[str, Any]:
        assert self.chosen is not None
        digest = hashlib.sha256(np.ascontiguousarray(self.chosen, "<i8").tobytes()).hexdigest()
        return {**self._source.fingerprint(), "samples": {"chosen": len(self.chosen), "sha256": digest}}

    def state(self, region: Region) -> str | None:
        """The states of the chunks that are read; others may change."""
        if not self._source.layout.chunked:
            return super().state(region)
        states = [self._source.state(_with(region, self.axis, read.rows)) for read in self.reads(region)]
        known = [state for state in dict.fromkeys(states) if state is not None]
        if len(known) < len(set(states)):
            return None
        return known[0] if len(known) == 1 else hashlib.sha256("\n".join(known).encode()).hexdigest()


@dataclass(frozen=True)
class _Read:
    """One read of samples that follow each other, or nearly so, in storage."""

    rows: slice
    """In storage."""
    to: slice | Numbers
    """Their places among the samples of the region."""
    chosen: slice | Numbers
    """The chosen ones among the rows."""


@dataclass(frozen=True)
class _Storage:
    """The axis of samples in storage."""

    cuts: Cuts
    """Into chunks."""
    whole: bool
    """Whether chunks can only be read whole."""

    def longest(self, n_bytes: int) -> int:
        """Most samples that are read together, where each has so many bytes."""
        fitting = max(1, READ_BYTES // max(1, n_bytes))
        return min(self.cuts.length, max(fitting, self.cuts.step) if self.whole else fitting)

    def parts(self, rows: Numbers, n_bytes: int) -> Iterator[slice]:
        """Ascending rows divided into what is read together."""
        chunks = _number_of(self.cuts, rows)
        between, most = np.diff(rows) - 1, GAP_BYTES // max(1, n_bytes)
        together = (between == 0) | ((np.diff(chunks) == 0) & (self.whole | (between <= most)))
        longest = self.longest(n_bytes)
        for start, stop in _runs(together):
            while rows[stop - 1] - rows[start] >= longest:
                end = int(np.searchsorted(rows, rows[start] + longest))
                if self.whole:  # not within a chunk
                    end = int(np.searchsorted(chunks, chunks[end]))
                    end = end if end > start else int(np.searchsorted(chunks, chunks[start], "right"))
                    if end == stop:
                        break
                yield slice(start, end)
                start = end
            yield slice(start, stop)


def _runs(together: NDArray[np.bool_]) -> Iterator[tuple[int, int]]:
    """The ends of runs of neighbours, given which neighbours are together."""
    edges = [0, *(np.flatnonzero(~together) + 1).tolist(), len(together) + 1]
    yield from pairwise(edges)


def _number_of(cuts: Cuts, rows: Numbers) -> Numbers:
    """The numbers of the pieces that hold some rows."""
    if cuts.edges is None:
        return rows // cuts.step
    return np.searchsorted(cuts.edges, rows, "right") - 1


def _chunks(chosen: Numbers, cuts: Cuts) -> int | tuple[int, ...]:
    """Lengths into which the chosen samples can be cut so that no chunk of storage has samples on both sides."""
    _, chunks = np.unique(_number_of(cuts, chosen), return_inverse=True)
    places = np.arange(len(chosen))
    last = np.zeros(len(chosen), np.int64)
    np.maximum.at(last, chunks, places)
    ends = np.flatnonzero(np.maximum.accumulate(last[chunks]) == places) + 1
    lengths = tuple(np.diff(ends, prepend=0).tolist())
    regular = Cuts.of(len(chosen), lengths)
    return lengths if regular.edges is not None else regular.step


def _compact(numbers: Numbers) -> slice | Numbers:
    """Numbers as a slice, where they ascend in equal steps."""
    steps = np.diff(numbers)
    if len(numbers) > 1 and (steps[0] <= 0 or (steps != steps[0]).any()):
        return numbers
    return slice(int(numbers[0]), int(numbers[-1]) + 1, int(steps[0]) if len(steps) else 1)


def _with(of_axes: tuple[T, ...], axis: int, value: T) -> tuple[T, ...]:
    """One value for each axis, with another for one of them."""
    return (*of_axes[:axis], value, *of_axes[axis + 1 :])


def _bytes_of_row(layout: Layout, shape: tuple[int, ...], axis: int) -> int:
    """Bytes of one sample of a region."""
    return size_of(_with(shape, axis, 1), layout.dtype)


class _SelectedReader(ViewReader):
    def __init__(self, source: SelectedSource, reader: Reader) -> None:
        super().__init__(source.layout, reader)
        self._source = source
        self._known: dict[tuple[int, ...], list[_Read]] = {}
        """The reads of the regions met so far, which differ by their samples and their size alone."""

    def _reads(self, region: Region) -> list[_Read]:
        piece, shape = region[self._source.axis], extent(region)
        key = (piece.start, piece.stop, _bytes_of_row(self.layout, shape, self._source.axis))
        if key not in self._known:
            self._known[key] = self._source.reads(region)
        return self._known[key]

    def parts(self, region: Region) -> Iterable[Region]:
        return [_with(region, self._source.axis, read.rows) for read in self._reads(region)]

    def _read(self, region: Region) -> NDArray[Any]:
        axis, reads = self._source.axis, self._reads(region)
        if self._source.is_range:
            return self._reader.read(_with(region, axis, reads[0].rows))
        out = self._buffer.view(extent(region), self.layout.dtype)
        before = (slice(None),) * axis
        for read in reads:
            values = self._reader.read(_with(region, axis, read.rows))
            out[(*before, read.to)] = values[(*before, read.chosen)]
        return out

    def coordinate(self, axis: int) -> Coordinate | None:
        coordinate = self._reader.coordinate(axis)
        if axis != self._source.axis:
            return coordinate
        if coordinate is None:  # their numbers in storage say which they are
            chosen, dim = self._source.chosen, str(self.layout.dims[axis])
            assert chosen is not None
            return Coordinate(dim, chosen, Parts.of(chosen.dtype))
        return self._chosen_of(coordinate)

    def _chosen_of(self, coordinate: Coordinate) -> Coordinate:
        values = np.asarray(coordinate.values[...])[self._source.chosen]
        parts = Parts.of(values.dtype, coordinate.values.shape[0])  # all of them are read, to take some
        return replace(coordinate, values=values, parts=parts)

    def auxiliaries(self) -> Sequence[Auxiliary]:
        axis, found = self._source.axis, self._reader.auxiliaries()
        of_samples = [Auxiliary(one.axes, self._chosen_of(one.coordinate)) for one in found if one.axes == (axis,)]
        return [one for one in found if axis not in one.axes] + of_samples
