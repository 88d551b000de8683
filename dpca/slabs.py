"""The division of the streamed axes into slabs, which form tiles, which form spans. Pure arithmetic on integers.

One side of the matrix is kept, the other is streamed. If samples are fewer, they are kept, and features are
streamed, each with all samples (the Gram matrix); if features are fewer, samples are streamed (the covariance).
The hierarchy, from storage to the cluster:

==========  =====================================================================================
chunk       what storage holds
slab        a box of the streamed axes, whole on the kept ones, aligned to chunks: held by one task
tile        a box of whole slabs: one chunk of every output array that has the streamed axes
span        consecutive tiles that one task streams through: the unit of distribution and retry
==========  =====================================================================================

Cuts depend only on the chunk grid, the dtype, the kept side, n_components and `slab_bytes`, never on
workers or memory, so that the same input gives the same floating-point sums everywhere. No object
here grows with the streamed length: a regular grid is a length and a step.

The shape of this file (a pure plan that other code executes) follows rechunker's algorithm.py.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from typing import Literal, TypeVar

T = TypeVar("T")

Box = tuple[slice, ...]
"""One slice for each axis, with both ends given."""

Side = Literal["samples", "features"]

SLAB_BYTES = 8 * 2**20
"""Bytes that one task holds at a time, at least: larger slabs are not read faster, and fit the cache less."""
TILE_WIDTH = 2**20 // 8
TILE_BYTES = 64 * 2**20
PANEL_WIDTH = 4096
PARTIALS_SHARE = 8
"""The m x m partials of all spans, in float64, together take at most an eighth of the data, ..."""
MIN_SPANS, MAX_SPANS = 16, 4096
"""... unless that leaves fewer than 16 spans: then neighbours are merged as they are added up (`dpca.store.ledger`)."""
BLOCK_BYTES = 2**21
"""Size of the float64 values that are centred at a time: the fastest of 128 kB to 4 MB for m from 500 to 4000."""
BLOCK_OF_MANY_BYTES = 2**24
"""Their size where m is far more: a block of 2 MiB would be 8 values of each sample, and half as fast (measured at m = 50,000)."""
MAX_PRODUCTS = 256
"""Most spans of a pass that multiplies with a block of vectors."""
PANEL_BYTES, NARROWEST_PANEL = 2**25, 32
"""A panel of all of many samples has so many bytes in single precision, but is no narrower than products are fast."""
FEW_SPANS, SPAN_WIDTH = 4, 32768
"""If the data are hardly wider than the matrix, spans are this wide instead, unless that leaves fewer than 4: keeping a
partial takes as long as multiplying 1500 features (measured), for any m."""
CHUNK_BYTES = 2**20
"""Least size of a chunk of an output, unless many components limit tiles to `TILE_BYTES`."""


@dataclass(frozen=True)
class Cuts:
    """The cuts of one axis into pieces: every `step`, or at `edges` where the pieces differ."""

    length: int
    """Length of the axis."""
    step: int
    """Length of a piece; the longest piece where they differ."""
    edges: tuple[int, ...] | None = None
    """Ends of the pieces, 0 and `length` included, or None if `step` is enough."""

    @classmethod
    def of(cls, length: int, chunks: int | Sequence[int]) -> Cuts:
        """Cuts along chunks: one chunk length, or all of them where they differ."""
        if isinstance(chunks, int):
            return cls(length, max(1, min(chunks, length)))
        sizes = [size for size in chunks if size]
        if not sizes:
            return cls(length, 1)
        regular = all(size == sizes[0] for size in sizes[:-1]) and sizes[-1] <= sizes[0]
        if regular:
            return cls(length, sizes[0])
        edges = [0]
        for size in sizes:
            edges.append(edges[-1] + size)
        return cls(length, max(sizes), tuple(edges))

    def __len__(self) -> int:
        return -(-self.length // self.step) if self.edges is None else len(self.edges) - 1

    def __getitem__(self, index: int) -> slice:
        if not 0 <= index < len(self):
            raise IndexError(index)
        if self.edges is None:
            start = index * self.step
            return slice(start, min(start + self.step, self.length))
        return slice(self.edges[index], self.edges[index + 1])

    def within(self, piece: slice) -> Iterator[slice]:
        """The pieces inside `piece`, whose ends have to be cuts."""
        if self.edges is None:
            for start in range(piece.start, piece.stop, self.step):
                yield slice(start, min(start + self.step, piece.stop))
        else:
            first, last = bisect_right(self.edges, piece.start) - 1, bisect_right(self.edges, piece.stop - 1)
            for start, stop in pairwise(self.edges[first : last + 1]):
                yield slice(start, stop)

    def coarsen(self, limit: int) -> Cuts:
        """Join neighbours while a piece stays at or below `limit`; a piece is never divided."""
        if self.edges is None:
            return Cuts(self.length, min(self.length, max(1, limit // self.step) * self.step))
        edges = [0]
        for start, stop in pairwise(self.edges):
            if stop - edges[-1] > limit and start > edges[-1]:
                edges.append(start)
        edges.append(self.length)
        return Cuts.of(self.length, [stop - start for start, stop in pairwise(edges)])


def common_chunks(length: int, mine: int | tuple[int, ...], other: int | tuple[int, ...]) -> int | tuple[int, ...]:
    """Chunks of an axis that end where chunks of both of two arrays end; arguments and result as for `Cuts.of`."""
    if isinstance(mine, int) and isinstance(other, int):
        return min(length, math.lcm(mine, other))

    def edges(cuts: Cuts) -> set[int]:
        return {0, *(piece.stop for piece in cuts.within(slice(0, length)))}

    ends = sorted(edges(Cuts.of(length, mine)) & edges(Cuts.of(length, other)))
    return tuple(stop - start for start, stop in pairwise(ends))


def grow(cuts: Sequence[Cuts], order: Sequence[int], limit: int) -> tuple[Cuts, ...]:
    """Join pieces, fastest axis first, while a box of them holds at most `limit` elements.

    An axis joins its neighbours only when every faster axis is whole, so a box is contiguous in the
    order of storage and consecutive boxes follow each other in it.

    Parameters
    ----------
    cuts : sequence of Cuts, one for each axis
    order : the axes from fastest to slowest in storage
    limit : elements of a box; exceeded only where a single piece of each axis already does
    """
    grown = list(cuts)
    for axis in order:
        across = math.prod(other.step for index, other in enumerate(grown) if index != axis)
        grown[axis] = grown[axis].coarsen(max(1, limit // across))
        if len(grown[axis]) > 1:
            break
    return tuple(grown)


def split(shape: Sequence[int], limit: int) -> Iterator[tuple[Box, int, int]]:
    """Cut a C-ordered array into boxes of at most `limit` elements.

    Yields
    ------
    box, start, stop : the box, and its range in the flattened array. The ranges follow each
        other from 0 to the array's size.
    """
    axes = range(len(shape))
    cuts = grow([Cuts(length, 1) for length in shape], list(reversed(axes)), limit)
    start = 0
    for box in product(*(cut.within(slice(0, cut.length)) for cut in cuts)):
        stop = start + math.prod(extent(box))
        yield box, start, stop
        start = stop


@dataclass(frozen=True)
class Plan:
    """The division of an array, and the order of reading. All integers; written unchanged to the manifest."""

    shape: tuple[int, ...]
    """Shape of the input array, samples axis included."""
    samples_axis: int
    """The axis of `shape` that holds the samples; never negative."""
    keeps: Side
    """The side that is whole in every slab; the other is streamed."""
    kept_fastest: bool
    """Whether neighbouring values in storage differ along the kept side (say, samples of one feature)."""
    slabs: tuple[Cuts, ...]
    """Cuts of each streamed axis into slabs."""
    tiles: tuple[Cuts, ...]
    """Cuts of each streamed axis into tiles; every edge of a tile is an edge of a slab."""
    n_spans: int
    """Number of spans; each takes an equal share of the tiles, in C order."""
    panel_width: int
    """Width of the widest product: see `dpca.numerics.accumulators.gram`."""
    block_width: int
    """Streamed length that is centred at a time, in cache: see `dpca.numerics.preprocess`."""

    @property
    def n_samples(self) -> int:
        return self.shape[self.samples_axis]

    @property
    def feature_shape(self) -> tuple[int, ...]:
        return self.shape[: self.samples_axis] + self.shape[self.samples_axis + 1 :]

    @property
    def n_features(self) -> int:
        return math.prod(self.feature_shape)

    @property
    def kept_axes(self) -> tuple[int, ...]:
        """Axes of the input that are whole in every slab."""
        return axes_of(self.keeps, len(self.shape), self.samples_axis)

    @property
    def streamed_axes(self) -> tuple[int, ...]:
        """Axes of the input that are cut into slabs."""
        return tuple(axis for axis in range(len(self.shape)) if axis not in self.kept_axes)

    @property
    def streamed_shape(self) -> tuple[int, ...]:
        return tuple(self.shape[axis] for axis in self.streamed_axes)

    @property
    def n_kept(self) -> int:
        """Length of the kept side, m: the matrix in memory is m x m."""
        return math.prod(self.shape[axis] for axis in self.kept_axes)

    @property
    def n_tiles(self) -> int:
        return math.prod(len(cut) for cut in self.tiles)

    @property
    def n_slabs(self) -> int:
        return math.prod(len(cut) for cut in self.slabs)

    @property
    def slab_width(self) -> int:
        """Streamed length of the largest slab."""
        return math.prod(cut.step for cut in self.slabs)

    @property
    def tile_width(self) -> int:
        """Streamed length of the largest tile."""
        return math.prod(cut.step for cut in self.tiles)

    @property
    def regular(self) -> bool:
        """Whether tiles are the chunks of a regular grid, so that no two tasks write one chunk."""
        return all(cut.edges is None for cut in self.tiles)

    def tiles_of(self, span: int) -> Iterator[Box]:
        """The tiles of span number `span`, in C order."""
        for number in self._tile_numbers(span):
            yield tuple(cut[position] for cut, position in zip(self.tiles, self._tile(number), strict=True))

    def bounds_of(self, span: int) -> Box:
        """The smallest box that holds the tiles of a span, however many these are."""
        numbers = self._tile_numbers(span)
        first, last = self._tile(numbers[0]), self._tile(numbers[-1])
        box, apart = list[slice](), False
        for cut, start, stop in zip(self.tiles, first, last, strict=True):
            # Behind the first axis along which they differ, the one goes to the end, and the other comes from the start.
            box.append(
                slice(cut[0].start, cut[len(cut) - 1].stop) if apart else slice(cut[start].start, cut[stop].stop)
            )
            apart = apart or start != stop
        return tuple(box)

    def _tile_numbers(self, span: int) -> range:
        return range(span * self.n_tiles // self.n_spans, (span + 1) * self.n_tiles // self.n_spans)

    def _tile(self, number: int) -> list[int]:
        """The places of a tile along the axes."""
        index = []
        for cut in reversed(self.tiles):
            number, position = divmod(number, len(cut))
            index.append(position)
        return index[::-1]

    def slabs_of(self, tile: Box) -> Iterator[Box]:
        """The slabs of a tile, in C order."""
        yield from product(*(cut.within(piece) for cut, piece in zip(self.slabs, tile, strict=True)))

    def region(self, box: Box) -> Box:
        """A box of the streamed axes as a region of the input, with the kept axes whole."""
        slices = [slice(0, length) for length in self.shape]
        for axis, piece in zip(self.streamed_axes, box, strict=True):
            slices[axis] = piece
        return tuple(slices)

    def features_in(self, region: Sequence[T]) -> tuple[T, ...]:
        """One value per input axis (an index, a shape), without the value of the samples axis."""
        return tuple(region[: self.samples_axis]) + tuple(region[self.samples_axis + 1 :])


def axes_of(side: Side, n_axes: int, samples_axis: int) -> tuple[int, ...]:
    """The axes of a side: the one of samples, or the others, of features."""
    return tuple(axis for axis in range(n_axes) if (axis == samples_axis) == (side == "samples"))


def extent(box: Box) -> tuple[int, ...]:
    """The shape of a box."""
    return tuple(piece.stop - piece.start for piece in box)


def placed(region: Box, axis: int, piece: slice) -> Box:
    """A region with another slice on one axis."""
    return (*region[:axis], piece, *region[axis + 1 :])


def make_plan(
    shape: tuple[int, ...],
    itemsize: int,
    chunks: Sequence[int | Sequence[int]],
    *,
    samples_axis: int = 0,
    keeps: Side = "samples",
    shards: Sequence[int] | None = None,
    order: str = "C",
    n_components: int = 1,
    slab_bytes: int = SLAB_BYTES,
    n_spans: int | None = None,
    tile_width: int | None = None,
    columns: int | None = None,
    unit: int = 1,
) -> Plan:
    """Plan the slabs, tiles and spans of an array.

    Parameters
    ----------
    shape, itemsize : shape of the input array, bytes of a value
    chunks : for each axis a chunk length, or all of them where they differ; 1 where storage may be cut anywhere
    samples_axis : the axis of samples, from 0
    keeps : the side that is whole in every slab
    shards : shape of a shard, if any. Slabs follow shards where a column of shards fits `slab_bytes`,
        so that no shard is opened by two slabs
    order : "C" or "F", the order of axes in storage
    n_components : width of the outputs, which bounds a tile
    slab_bytes : size to which a slab is grown; a single column of chunks may exceed it
    n_spans : number of spans, instead of the rule: as many as keep the m x m partials of all spans together below an
        eighth of the data, but at least 16, so that work can be shared out (at least 4 where the data are hardly
        wider than m), and at most 4096
    tile_width : streamed length that a tile reaches by joining slabs, unless many components or few tiles limit it;
        `TILE_WIDTH` if None
    columns : of a block of vectors, where spans yield the product with one, m x columns, instead of m x m partials
    unit : number of neighbouring features along their last axis that are never cut apart; it divides the length of this axis
    """
    kept = axes_of(keeps, len(shape), samples_axis)
    axes = [axis for axis in range(len(shape)) if axis not in kept]
    n_kept = max(1, math.prod(shape[axis] for axis in kept))
    fastest_first = range(len(axes)) if order == "F" else range(len(axes) - 1, -1, -1)
    slab_width = max(1, slab_bytes // (n_kept * itemsize))
    grid = [Cuts.of(shape[axis], chunks[axis]) for axis in axes]
    if shards is not None:
        packed = [Cuts.of(shape[axis], shards[axis]) for axis in axes]
        if math.prod(cut.step for cut in packed) <= slab_width:
            grid = packed
    if unit > 1:
        last = grid[-1]
        ends = last.step if last.edges is None else tuple(stop - start for start, stop in pairwise(last.edges))
        grid[-1] = Cuts.of(last.length, common_chunks(last.length, ends, unit))
    slabs = grow(grid, fastest_first, slab_width)
    # A tile has as many slabs as make a chunk of 1 MiB or more of a float64 array, unless components would exceed
    # 64 MiB, or tiles would be so few that cores idle: then chunks are joined in the end (`dpca.store.outputs`).
    slab_size = math.prod(cut.step for cut in slabs)
    n_streamed = math.prod(shape[axis] for axis in axes)
    asked = TILE_WIDTH if tile_width is None else tile_width
    widest = min(asked + slab_size - 1, TILE_BYTES // (8 * max(1, n_components)), n_streamed // MIN_SPANS)
    tiles = grow(slabs, fastest_first, widest)
    n_tiles = math.prod(len(cut) for cut in tiles)
    if n_spans is None:
        n_bytes = math.prod(shape) * itemsize
        # A power of two, so that as many cores finish together.
        fewest = min(MIN_SPANS, max(FEW_SPANS, 2 ** round(math.log2(max(1, n_streamed / SPAN_WIDTH)))))
        n_spans = min(MAX_SPANS, n_bytes // (PARTIALS_SHARE * 8 * n_kept**2))
        if columns is not None:
            n_spans = min(MAX_PRODUCTS, n_bytes // (PARTIALS_SHARE * 8 * n_kept * columns))
        # As many tiles for each, where spans are many: two for each of 9 would be too few where one for each of 17 is meant.
        n_spans = max(fewest, -(-n_tiles // -(-n_tiles // n_spans))) if n_spans > fewest else fewest
    return Plan(
        shape=tuple(shape),
        samples_axis=samples_axis,
        keeps=keeps,
        kept_fastest=len(shape) > 1 and (0 if order == "F" else len(shape) - 1) in kept,
        slabs=slabs,
        tiles=tiles,
        n_spans=max(1, min(n_spans, n_tiles)),
        panel_width=_in_units(
            PANEL_WIDTH if columns is None else max(NARROWEST_PANEL, min(PANEL_WIDTH, PANEL_BYTES // (4 * n_kept))),
            unit,
        ),
        block_width=_in_units(block_width(n_kept, BLOCK_BYTES if columns is None else BLOCK_OF_MANY_BYTES), unit),
    )


def _in_units(width: int, unit: int) -> int:
    """A width that cuts no unit, at least one."""
    return max(unit, width - width % unit)


def block_width(n_kept: int, n_bytes: int = BLOCK_BYTES) -> int:
    """Streamed length that is centred at a time."""
    return max(8, min(PANEL_WIDTH, n_bytes // (8 * n_kept)))
