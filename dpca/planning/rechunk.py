"""A copy of the input in scratch, for chunks that can't be read just once in each pass within the budget.

Each task reads a band of whole chunks and writes it as one chunk of an uncompressed Zarr array. So every stored
chunk is decoded once, every file is written whole by one task, and a slab is then read as parts of these chunks,
at the cost of its own bytes (`dpca.sources.runs`). To read as much as fits, and write chunks that suit both sides,
is rechunker's algorithm with one stage.

Measured against Dask's p2p rechunk on 500 x 2,000,000 float32 in chunks of whole rows (4 GB, zstd), two
threads, in alternation: 6 to 12 s, 0.3 GiB of memory and 4.0 GB of disk here; 35 to 48 s, 2.2 GiB and 6.7 GB with p2p,
which did not finish with two worker processes of 700 MiB, and starts again from zero when it is interrupted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path

import zarr

from dpca.errors import writing
from dpca.slabs import Cuts
from dpca.sources.base import Layout, Region, Source, size_of
from dpca.sources.zarr_array import ZarrSource
from dpca.store.synced import SyncedStore
from dpca.system import durable

UNIT_SHARE = 16
"""A band takes 1/16 of the budget: with the copies that zarr makes of it, each task takes a quarter of the budget."""


@dataclass(frozen=True)
class Copy:
    """A planned copy of the input, with the same shape, dtype and values, in other chunks."""

    layout: Layout
    """The layout of the copy: that of the input with other chunks."""

    @property
    def unit(self) -> tuple[int, ...]:
        """Shape of the band that one task copies: a chunk of the copy."""
        return self.layout.chunk_shape

    @property
    def bytes(self) -> int:
        """Bytes on disk: nothing is compressed, and chunks at an edge are padded to full size."""
        return self.n_units * self.layout.chunk_bytes

    @property
    def n_units(self) -> int:
        return math.prod(-(-length // step) for length, step in zip(self.layout.shape, self.unit, strict=True))

    def region(self, number: int) -> Region:
        """The region that one task copies."""
        region: list[slice] = []
        for length, step in zip(reversed(self.layout.shape), reversed(self.unit), strict=True):
            number, index = divmod(number, -(-length // step))
            region.append(slice(index * step, min((index + 1) * step, length)))
        return tuple(reversed(region))

    def held_to_write(self, source: Source) -> dict[str, int]:
        """Bytes that a task holds while it copies, by name of the array."""
        unit = tuple(min(step, length) for step, length in zip(self.unit, self.layout.shape, strict=True))
        band = size_of(self.unit, self.layout.dtype)
        return {**source.held(unit), "band being written": 2 * band}

    def held_to_read(self, shape: tuple[int, ...]) -> dict[str, int]:
        """Bytes that a reader of the copy holds for a slab, by name of the array."""
        return ZarrSource.held_of(self.layout, shape)

    def create(self, path: str) -> bool:
        """Create the empty array; False if it exists already, partly filled by a run that is resumed."""
        layout = self.layout
        with writing(path):
            if self._is_there(path):
                return False
            durable.remove(Path(path))  # left by a run that was killed
            durable.make_own(Path(path), "a copy of the input", "Remove it.")  # the data may be confidential
            zarr.create_array(
                SyncedStore(path),
                shape=layout.shape,
                dtype=layout.dtype.newbyteorder("="),
                chunks=layout.chunk_shape,
                compressors=None,
            )
        return True

    @staticmethod
    def _is_there(path: str) -> bool:
        try:
            zarr.open_array(path, mode="r")
        except (OSError, ValueError, KeyError):
            return False
        return True

    def open(self, path: str) -> Source:
        """The copy as a source; its errors name the input, which has the same indices."""
        return ZarrSource(zarr.open_array(path, mode="r"), self.layout.name, "damage").like(self.layout)


def plan_copy(layout: Layout, kept_axes: tuple[int, ...], budget_bytes: int) -> Copy | None:
    """The copy of an array whose columns of chunks are too large.

    Parameters
    ----------
    layout : of the input
    kept_axes : axes that are whole in every slab
    budget_bytes : memory of a process, which limits the band that a task copies; a band is at least one chunk

    Returns
    -------
    None where no copy helps, since chunks differ in length
    """
    grid = [Cuts.of(length, chunk) for length, chunk in zip(layout.shape, layout.chunks, strict=True)]
    if any(cut.edges is not None for cut in grid):
        return None
    unit = [cut.step for cut in grid]
    # Streamed axes first: longer rows give a slab longer reads. Then as much of the kept axes as fits.
    axes = list(reversed(range(len(grid))))
    order = [axis for axis in axes if axis not in kept_axes] + [axis for axis in axes if axis in kept_axes]
    for axis in order:
        times = max(1, budget_bytes // UNIT_SHARE // size_of(tuple(unit), layout.dtype))
        unit[axis] = min(grid[axis].length, unit[axis] * times)
        if unit[axis] < grid[axis].length:
            break
    return copy_in(layout, tuple(unit))


def copy_in(layout: Layout, chunks: tuple[int, ...]) -> Copy:
    """The copy of an array in the given chunks."""
    return Copy(replace(layout, chunks=chunks, shards=None, divisible=True, codec="none", order="C", stored_dtype=None))
