"""A copy of the input in scratch, for chunks that can't be read just once in each pass within the budget.

Each task reads a band of whole chunks and writes it as one chunk of an uncompressed Zarr array. So every stored
chunk is decoded once, every file is written whole by one task, and a slab is then read as parts of these chunks,
at the cost of its own bytes (`dpca.sources.runs`). To read as much as fits, and write chunks that suit both sides,
is rechunker's algorithm with one stage.

The lines of a sparse matrix of which few values are stored are turned instead (`dpca.sources.turned`): the copy has the stored values
alone, and passes read them as lines of the side that they stream.

Measured against Dask's p2p rechunk on 500 x 2,000,000 float32 in chunks of whole rows (4 GB, zstd), two
threads, in alternation: 6 to 12 s, 0.3 GiB of memory and 4.0 GB of disk here; 35 to 48 s, 2.2 GiB and 6.7 GB with p2p,
which did not finish with two worker processes of 700 MiB, and starts again from zero when it is interrupted.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from pathlib import Path

import zarr

from dpca.errors import writing
from dpca.slabs import Cuts
from dpca.sources.base import Layout, Reader, Region, Source, size_of
from dpca.sources.lines import FewValues, Lines, held_to_turn
from dpca.sources.turned import ENDS, PLACES, Band, TurnedSource, band_of, held_of
from dpca.sources.zarr_array import ZarrSource
from dpca.sources.zarr_chunks import key_of
from dpca.store.synced import SyncedStore
from dpca.system import durable

UNIT_SHARE = 16
"""A band takes 1/16 of the budget: with the copies that zarr makes of it, each task takes a quarter of the budget."""
TURNED_SHARE, TURNED_BYTES = 64, 2**30
"""A band whose lines are turned takes 1/64 of the budget, at most 1 GiB, as a dense one: were all of its values stored, each task
would take some 1/8 of the budget."""


@dataclass(frozen=True)
class Copy(ABC):
    """A planned copy of the input, with the same shape, dtype and values, in other chunks."""

    layout: Layout
    """The layout of the copy: that of the input with other chunks."""

    @property
    def unit(self) -> tuple[int, ...]:
        """Shape of the band that one task copies: a chunk of the copy."""
        return self.layout.chunk_shape

    @property
    @abstractmethod
    def bytes(self) -> int:
        """Bytes on disk."""

    @property
    def lines_axis(self) -> int | None:
        """The axis of the lines by which the copy is read (`Source.lines_axis`); None if it is dense."""
        return None

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

    @abstractmethod
    def held_to_write(self, source: Source) -> dict[str, int]:
        """Bytes that a task holds while it copies, by name of the array."""

    @abstractmethod
    def held_to_read(self, shape: tuple[int, ...]) -> dict[str, int]:
        """Bytes that a reader of the copy holds for a slab, by name of the array."""

    def create(self, path: str) -> bool:
        """Create the empty copy; False if it exists already, partly filled by a run that is resumed."""
        with writing(path):
            if self._is_there(path):
                return False
            durable.remove(Path(path))  # left by a run that was killed
            durable.make_own(Path(path), "a copy of the input", "Remove it.")  # the data may be confidential
            self._begin(path)
        return True

    @abstractmethod
    def _is_there(self, path: str) -> bool: ...

    @abstractmethod
    def _begin(self, path: str) -> None: ...

    @abstractmethod
    def open(self, path: str) -> Source:
        """The copy as a source; its errors name the input, which has the same indices."""

    @abstractmethod
    def write(self, path: str, number: int, reader: Reader, *, synced: bool) -> int:
        """Copy one band; returns the bytes that were read.

        Parameters
        ----------
        reader : of the input
        synced : whether the band is flushed to the disk
        """

    @abstractmethod
    def damage(self, path: str, number: int) -> str | None:
        """Fault of a band that was copied before."""

    def _unit_within(self) -> tuple[int, ...]:
        """Shape of the largest band."""
        return tuple(min(step, length) for step, length in zip(self.unit, self.layout.shape, strict=True))


@dataclass(frozen=True)
class DenseCopy(Copy):
    """An uncompressed Zarr array."""

    @property
    def bytes(self) -> int:
        return self.n_units * self.layout.chunk_bytes  # chunks at an edge are padded to full size

    def held_to_write(self, source: Source) -> dict[str, int]:
        return {**source.held(self._unit_within()), "band being written": 2 * size_of(self.unit, self.layout.dtype)}

    def held_to_read(self, shape: tuple[int, ...]) -> dict[str, int]:
        return ZarrSource.held_of(self.layout, shape)

    def _begin(self, path: str) -> None:
        zarr.create_array(
            SyncedStore(path),
            shape=self.layout.shape,
            dtype=self.layout.dtype.newbyteorder("="),
            chunks=self.layout.chunk_shape,
            compressors=None,
        )

    def _is_there(self, path: str) -> bool:
        try:
            zarr.open_array(path, mode="r")
        except (OSError, ValueError, KeyError):
            return False
        return True

    def open(self, path: str) -> Source:
        return ZarrSource(zarr.open_array(path, mode="r"), self.layout.name, "damage").like(self.layout)

    def write(self, path: str, number: int, reader: Reader, *, synced: bool) -> int:
        # Otherwise a chunk of fill values would not be written, and would look lost.
        array = zarr.open_array(SyncedStore(path) if synced else path, mode="r+").with_config(
            {"write_empty_chunks": True}
        )
        region = self.region(number)
        values = reader.read(region)
        with writing(f"{path}: the copy of {self.layout.name}"):
            array[region] = values
        return values.nbytes

    def damage(self, path: str, number: int) -> str | None:
        """Fault of a band: chunks are uncompressed, so their size tells."""
        array = zarr.open_array(path, mode="r")
        pairs = zip(self.region(number), self.unit, strict=True)
        file = Path(path) / key_of(array, tuple(piece.start // step for piece, step in pairs))
        size = file.stat().st_size if file.exists() else 0
        expected = self.layout.chunk_bytes
        return None if size == expected else f"{file} has {size} bytes, not {expected}"


@dataclass(frozen=True)
class SparseCopy(Copy):
    """Files of bands whose lines are turned."""

    axis: int
    """The axis of the lines of the input; a band has whole ones."""
    n_stored: int
    """The most values that are stored."""

    @property
    def lines_axis(self) -> int:
        return 1 - self.axis

    @property
    def bytes(self) -> int:
        values = self.n_stored * (PLACES.itemsize + self.layout.dtype.itemsize)
        return values + self.n_units * ENDS.itemsize * (self.layout.shape[1 - self.axis] + 1)

    def held_to_write(self, source: Source) -> dict[str, int]:
        unit = self._unit_within()
        n_values = min(math.prod(unit), self.n_stored)
        turned = held_to_turn(n_values, self.layout.shape[1 - self.axis], self.layout.dtype)
        return {**source.held(unit), "stored values of a band, turned and being written": turned}

    def held_to_read(self, shape: tuple[int, ...]) -> dict[str, int]:
        return held_of(self.layout, shape, self.axis, self.unit[self.axis])

    def _begin(self, path: str) -> None:
        pass

    def _is_there(self, path: str) -> bool:
        return Path(path).is_dir() and not (Path(path) / "zarr.json").exists()

    def open(self, path: str) -> Source:
        return TurnedSource(path, self.layout, self.axis, self.unit[self.axis])

    def write(self, path: str, number: int, reader: Reader, *, synced: bool) -> int:
        region = self.region(number)
        lines = reader.read_lines(region)
        turned = Lines.of(reader.read(region), 1 - self.axis) if lines is None else lines.turned
        with writing(f"{path}: the copy of {self.layout.name}"):
            write = durable.write if synced else durable.write_unflushed
            self._band(path, number).write(turned, write)
        return size_of(tuple(piece.stop - piece.start for piece in region), self.layout.dtype)

    def damage(self, path: str, number: int) -> str | None:
        return self._band(path, number).damage

    def _band(self, path: str, number: int) -> Band:
        return band_of(path, number, self.layout, self.axis, self.unit[self.axis])


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
    band_bytes = budget_bytes // UNIT_SHARE
    if few_by_lines(layout, kept_axes) is not None:
        band_bytes = min(budget_bytes // TURNED_SHARE, TURNED_BYTES)
    axes = list(reversed(range(len(grid))))
    order = [axis for axis in axes if axis not in kept_axes] + [axis for axis in axes if axis in kept_axes]
    for axis in order:
        times = max(1, band_bytes // size_of(tuple(unit), layout.dtype))
        unit[axis] = min(grid[axis].length, unit[axis] * times)
        if unit[axis] < grid[axis].length:
            break
    return copy_in(layout, kept_axes, tuple(unit))


def copy_in(layout: Layout, kept_axes: tuple[int, ...], chunks: tuple[int, ...]) -> Copy:
    """The copy of an array in the given chunks; of a sparse matrix, what takes less of the disk."""
    copied = replace(layout, chunks=chunks, shards=None, divisible=True, codec="none", order="C", stored_dtype=None)
    dense, few = DenseCopy(copied), few_by_lines(layout, kept_axes)
    if few is None or chunks[1 - few.axis] < layout.shape[1 - few.axis]:
        return dense
    turned = SparseCopy(copied, few.axis, few.n_stored)
    return turned if turned.bytes < dense.bytes else dense


def few_by_lines(layout: Layout, kept_axes: tuple[int, ...]) -> FewValues | None:
    """The facts about a sparse matrix whose lines follow each other along the side that is kept; None for other arrays."""
    few = layout.few_values
    return few if few is not None and few.axis in kept_axes else None
