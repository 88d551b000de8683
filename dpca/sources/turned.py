"""A sparse matrix by lines of its other side: turned band by band, into files of scratch (`dpca.planning.rechunk`).

A band is neighbouring lines of the stored matrix. Its file has the same values by the other side: where each line of that
side begins among them, their places in the band (both int32), and the values. So a slab of the other side, with all of the stored lines, is
one run of each part of each file, and takes no more memory than its values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from dpca.errors import StorageError
from dpca.slabs import extent
from dpca.sources.base import Layout, Reader, Region, Source, size_of
from dpca.sources.lines import FEW, Lines
from dpca.sources.lines import held as held_as_lines
from dpca.sources.runs import read_block

ENDS = PLACES = np.dtype(np.int32)
BLOCK = 2**17
"""The most values that are put into a dense slab at a time."""


@dataclass(frozen=True)
class Band:
    """The file of a band.

    Parameters
    ----------
    name : of the matrix that was copied
    path : of the file
    n_lines : number of lines of the other side
    width : number of stored lines, which is how long these are
    dtype : of the values
    """

    name: str
    path: Path
    n_lines: int
    width: int
    dtype: np.dtype[Any]

    def write(self, lines: Lines, write: Callable[[Path, Callable[[BinaryIO], object]], None]) -> None:
        """Write the lines of the other side by a function of `dpca.system.durable`."""

        def save(file: BinaryIO) -> None:
            for part in (lines.ends.astype(ENDS), lines.places.astype(PLACES), lines.values.astype(self.dtype)):
                file.write(part.tobytes())

        write(self.path, save)

    @property
    def damage(self) -> str | None:
        """Fault of the file; None if it has the size that its number of values says."""
        size = self.path.stat().st_size if self.path.exists() else 0
        least = self._size(0)
        expected = self._size(int(self.ends(slice(self.n_lines, self.n_lines))[0])) if size >= least else least
        return None if size == expected else f"{self.path} has {size} bytes, not {expected}"

    def _size(self, n_values: int) -> int:
        return ENDS.itemsize * (self.n_lines + 1) + n_values * (PLACES.itemsize + self.dtype.itemsize)

    def ends(self, lines: slice) -> NDArray[np.int32]:
        """Where each of some lines begins among the values, and where the last one ends."""
        return self._read(ENDS, 0, self.n_lines + 1, slice(lines.start, lines.stop + 1))

    def values(self, piece: slice, n_values: int) -> tuple[NDArray[np.int32], NDArray[Any]]:
        """Places and values of a piece of all `n_values`."""
        offset = ENDS.itemsize * (self.n_lines + 1)
        places = self._read(PLACES, offset, n_values, piece)
        if places.size and not 0 <= places.min() <= places.max() < self.width:
            raise StorageError(f"{self.name}: {self.path} of its copy is damaged", "Remove the file.")
        return places, self._read(self.dtype, offset + PLACES.itemsize * n_values, n_values, piece)

    def _read(self, dtype: np.dtype[Any], offset: int, length: int, piece: slice) -> NDArray[Any]:
        found = np.empty(piece.stop - piece.start, dtype)
        try:
            with self.path.open("rb", buffering=0) as file:
                read_block(file, offset, (length,), (piece,), found, f"{self.name}, {self.path} of its copy")
        except FileNotFoundError:
            raise StorageError(
                f"{self.name}: {self.path.name} is gone from the copy that was made of it",
                "See who removes files there.",
            ) from None
        return found


def band_of(folder: str, number: int, layout: Layout, axis: int, step: int) -> Band:
    """The file of a band in a folder; other parameters as of TurnedSource."""
    width = min(step, layout.shape[axis] - number * step)
    path = Path(folder) / f"band-{number:06}"
    return Band(layout.name, path, layout.shape[1 - axis], width, layout.dtype.newbyteorder("="))


def held_of(layout: Layout, shape: tuple[int, ...], axis: int, step: int) -> dict[str, int]:
    """Bytes of each array, by name, that a reader holds while it reads a region; parameters as of TurnedSource."""
    n_bands = -(-layout.shape[axis] // step)
    return {
        "slab": size_of(shape, layout.dtype),
        "ends of lines, of each band": n_bands * ENDS.itemsize * (shape[1 - axis] + 1),
        "stored values of a slab": held_as_lines(math.prod(shape), layout.dtype) + 16 * math.prod(shape) // FEW,
        "places of values": 5 * 8 * BLOCK,
    }


class TurnedSource(Source):
    """A matrix in files of bands.

    Parameters
    ----------
    folder : of the files
    layout : of the matrix; errors name the matrix that was turned
    axis : of the lines that were stored in it
    step : number of lines of a band
    """

    def __init__(self, folder: str, layout: Layout, axis: int, step: int) -> None:
        self.layout, self._folder, self._axis, self._step = layout, folder, axis, step

    @property
    def lines_axis(self) -> int:
        return 1 - self._axis

    def held(self, shape: tuple[int, ...]) -> dict[str, int]:
        return held_of(self.layout, shape, self._axis, self._step)

    @contextmanager
    def open(self) -> Iterator[Reader]:
        yield _TurnedReader(self._folder, self.layout, self._axis, self._step)

    def fingerprint(self) -> dict[str, Any]:
        return {"uri": self._folder}


class _TurnedReader(Reader):
    def __init__(self, folder: str, layout: Layout, axis: int, step: int) -> None:
        super().__init__(layout)
        self._folder, self._axis, self._step = folder, axis, step

    def _lines_of(self, region: Region) -> Lines | None:
        """The stored values of a region, unless they are many."""
        bands = list(self._bands(region))
        lengths = [int(ends[-1]) - int(ends[0]) for _, _, ends, _ in bands]
        if sum(lengths) > math.prod(extent(region)) // FEW:
            return None
        across = region[self._axis]
        found_ends = np.zeros(region[1 - self._axis].stop - region[1 - self._axis].start + 1, np.int64)
        found_ends[1:] = np.cumsum(sum(np.diff(ends) for _, _, ends, _ in bands), dtype=np.int64)
        begins = found_ends[:-1].copy()
        values, places = np.empty(sum(lengths), self.layout.dtype), np.empty(sum(lengths), PLACES)
        for first, band, ends, n_values in bands:
            counts = np.diff(ends)
            # The lines of a band are one after the other; here each comes behind that of the band before.
            at = np.repeat(begins - (ends[:-1] - ends[0]), counts)
            at += np.arange(len(at))
            some, values[at] = band.values(slice(int(ends[0]), int(ends[-1])), n_values)
            places[at] = some + np.int32(first - across.start)
            begins += counts
        width = across.stop - across.start
        if bands and (bands[0][0] < across.start or bands[-1][0] + self._step > across.stop):
            inside = (places >= 0) & (places < width)
            found_ends = np.append(0, np.cumsum(inside))[found_ends]
            values, places = values[inside], places[inside]
        return Lines(values, places, found_ends.astype(np.int32), width, 1 - self._axis)

    def _read(self, region: Region) -> NDArray[Any]:
        out = self._buffer.view(extent(region), self.layout.dtype)
        out[...] = 0
        across, flat = region[self._axis], out.reshape(-1)
        line, step = (1, out.shape[1]) if self._axis == 0 else (out.shape[1], 1)
        for first, band, ends, n_values in self._bands(region):
            for start in range(int(ends[0]), int(ends[-1]), BLOCK):
                stop = min(start + BLOCK, int(ends[-1]))
                places, values = band.values(slice(start, stop), n_values)
                lines = np.searchsorted(ends, np.arange(start, stop), "right") - 1
                at = places.astype(np.int64) + (first - across.start)
                inside = (at >= 0) & (at < across.stop - across.start)
                np.add.at(flat, lines[inside] * line + at[inside] * step, values[inside])
        return out

    def _bands(self, region: Region) -> Iterator[tuple[int, Band, NDArray[np.int32], int]]:
        """The bands that a region lies in: the number of the first stored line, the file, the ends of the lines of the region, and
        how many values there are."""
        across, lines = region[self._axis], region[1 - self._axis]
        for number in range(across.start // self._step, -(-across.stop // self._step)):
            band = band_of(self._folder, number, self.layout, self._axis, self._step)
            n_values = int(band.ends(slice(band.n_lines, band.n_lines))[0])
            yield number * self._step, band, band.ends(lines), n_values
