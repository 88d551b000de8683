"""Small arrays beside the data, such as coordinates and labels: read in parts, never whole."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import EllipsisType, MappingProxyType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dpca.errors import StorageError
from dpca.sources.credentials import Secrets
from dpca.sources.retries import tried_again

VECTOR_CHUNK_BYTES = 2**28
"""Coordinates and labels with larger chunks are not read."""
PIECE_VALUES, PIECE_BYTES = 2**13, 2**20
"""Texts, or bytes of numbers, of a coordinate that are processed at a time, and that make up a chunk in a result."""
TEXT_BYTES = 256
"""Most bytes of a value of variable length, such as a name, on average over a chunk."""
TEXT_OBJECT_BYTES = 128
"""Memory of a text beyond its characters, as an object of Python and of NumPy (100, measured)."""
COORDINATE_ATTRIBUTES = ("units", "calendar", "long_name", "standard_name")
"""Attributes of a coordinate that are kept."""


@dataclass(frozen=True)
class Parts:
    """The parts in which a vector can be read."""

    width: int
    """Bytes of a value as stored; for text of variable length, on average."""
    chunk: int = 1
    """Number of values that are decoded together, whatever part is requested."""
    chunk_bytes: int = 0
    """Bytes of the values that are decoded together."""

    @classmethod
    def of(cls, dtype: Any, chunk: int = 1) -> Parts:
        """The parts for values of a type, in chunks of `chunk` values."""
        width = TEXT_BYTES if dtype.kind in "OT" else max(1, int(dtype.itemsize))
        return cls(width, chunk, chunk * width)

    @classmethod
    def of_rows(cls, dtype: Any, shape: Sequence[int], chunk: int = 1) -> Parts:
        """The parts for an array of one axis or more, which is read in rows along the first, `chunk` of which are decoded together."""
        width = cls.of(dtype).width * math.prod(shape[1:])
        return cls(width, chunk, chunk * width)


@dataclass(frozen=True)
class Vector:
    """A small array that a file holds beside the data, such as a coordinate or labels. Read in parts, by indexing."""

    name: str
    """Name in error messages."""
    shape: tuple[int, ...]
    dtype: Any
    read: Callable[[slice], Any]
    """Function that returns a part, given a slice with both ends."""
    parts: Parts
    secrets: Secrets = field(default_factory=Secrets)
    attributes: Mapping[str, Any] = field(default_factory=dict)
    """Attributes of the array that say what its values mean; empty where they are not known."""

    def __getitem__(self, piece: slice | EllipsisType) -> NDArray[Any]:
        """A part, or all for `...`."""

        def explain(cause: Exception) -> StorageError:
            return StorageError(
                f"{self.name}: can't be read: {type(cause).__name__}: {self.secrets.hidden(str(cause))}",
                "It is damaged, truncated or of a codec that is not installed. Restore it from its source.",
            )

        start, stop, _ = (slice(None) if piece is ... else piece).indices(self.shape[0] if self.shape else 1)
        return np.asarray(tried_again(lambda: self.read(slice(start, stop)), explain, self.secrets))

    @staticmethod
    def check(name: str, parts: Parts) -> None:
        """Refuse large chunks."""
        if parts.chunk_bytes > VECTOR_CHUNK_BYTES:
            raise VectorTooLarge(
                f"{name} has chunks of {parts.chunk_bytes} bytes, and {VECTOR_CHUNK_BYTES} at most are allowed"
            )


class VectorTooLarge(ValueError):
    """A vector whose chunks are too large."""


@dataclass
class Coordinate:
    """Values along one axis, such as latitudes or the names of genes. `values` is read in slices, never whole."""

    name: str
    values: Any
    parts: Parts
    attributes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> bool:
        """Whether values are strings."""
        return self.values.dtype.kind not in "biuf"

    @property
    def piece(self) -> int:
        """Number of values that are copied or compared at a time."""
        fitting = max(1, PIECE_BYTES // self.parts.width)
        return min(PIECE_VALUES, fitting) if self.text else fitting

    @property
    def held(self) -> int:
        """Bytes of memory that copying or comparing it takes."""
        # A chunk as stored, as decoded and as values; a piece as these, as the text to write, encoded and compressed.
        parts, piece, beside = self.parts, self.piece, TEXT_OBJECT_BYTES * self.text
        read = 3 * max(parts.chunk_bytes, piece * parts.width) + beside * max(parts.chunk, piece)
        return read + piece * (3 * parts.width + 2 * beside)

    def pieces(self, length: int | None = None) -> Iterator[tuple[slice, NDArray[Any]]]:
        """Its values in order, `length` at a time (`piece` if None); each chunk is decoded once."""
        length, total = length or self.piece, int(self.values.shape[0])
        together = max(1, length // self.parts.chunk) * self.parts.chunk
        begin, block = 0, np.empty(0)
        for start in range(0, total, length):
            stop, copies = min(start + length, total), []
            position = start
            while position < stop:
                if not begin <= position < begin + len(block):
                    begin, block = position - position % self.parts.chunk, np.empty(0)
                    block = self.values[slice(begin, min(begin + together, total))]
                copies.append(block[position - begin : stop - begin].copy())
                position += len(copies[-1])
            yield slice(start, stop), np.concatenate(copies)  # a copy, so that no view keeps the block in memory


@dataclass(frozen=True)
class Auxiliary:
    """A coordinate that is no index, along one axis or several: the latitudes of a grid (y, x), the subject of each sample.

    An auxiliary coordinate variable of the CF conventions (1.11, section 5).
    """

    axes: tuple[int, ...]
    """The axes of the data that it lies along, in the order of its own; none for one of all values, such as a height."""
    coordinate: Coordinate
    """Its values have the shape of these axes; a piece has whole rows along the first of them."""

    @classmethod
    def of(
        cls, axes: Sequence[int], name: str, values: Any, attributes: Mapping[str, Any] = MappingProxyType({})
    ) -> Self:
        """Coordinate of values in memory."""
        return cls(tuple(axes), Coordinate(name, values, Parts.of_rows(values.dtype, values.shape), attributes))


@dataclass(frozen=True)
class CoordinateDifference:
    """How the values of two coordinates of one shape differ."""

    index: int | tuple[int, ...]
    """The first that differs; a number along one axis, several along several."""
    found: Any
    expected: Any
    count: int
    """How many differ."""


def difference(theirs: Coordinate, ours: Coordinate) -> CoordinateDifference | None:
    """The difference of two coordinates of one shape, which are read in pieces; None if they are equal, NaN as NaN.

    Numbers are equal if they differ by rounding alone, of single precision where one side has no more digits, or by a
    thousandth of the smallest step between values: no two values of a coordinate are as close as that.
    """
    length, count = min(theirs.piece, ours.piece), 0
    first: tuple[Any, Any, Any] = (0, None, None)
    for (piece, found), (_, expected) in zip(theirs.pieces(length), ours.pieces(length), strict=True):
        if theirs.text or ours.text:
            wrong = np.asarray(found.astype(object) != expected.astype(object))
        else:
            wrong = _apart(found, expected)
        if wrong.any() and not count:
            at, *within = map(int, np.unravel_index(int(np.argmax(wrong)), wrong.shape))
            index = (piece.start + at, *within) if within else piece.start + at
            first = (index, _plain(found[at, *within]), _plain(expected[at, *within]))
        count += int(wrong.sum())
    return CoordinateDifference(*first, count) if count else None


def _apart(found: NDArray[Any], expected: NDArray[Any]) -> NDArray[np.bool_]:
    """Which numbers differ by more than rounding."""
    wrong = np.asarray((found != expected) & ~(np.isnan(found) & np.isnan(expected)))
    if not wrong.any() or (found.dtype.kind != "f" and expected.dtype.kind != "f"):
        return wrong
    theirs, ours = found.astype(np.float64), expected.astype(np.float64)
    values = np.unique(ours[np.isfinite(ours)])
    step = np.diff(values).min(initial=np.inf)
    size = np.maximum(np.abs(theirs), np.abs(ours))
    allowed = np.maximum(4 * np.finfo(np.float64).eps * size, 1e-3 * step if np.isfinite(step) else 0.0)
    if _in_single(theirs) or _in_single(ours):
        allowed = np.maximum(allowed, np.minimum(2 * np.finfo(np.float32).eps * size, step / 4))
    with np.errstate(invalid="ignore"):
        return np.asarray(wrong & ~(np.abs(theirs - ours) <= allowed))


def _in_single(values: NDArray[np.float64]) -> bool:
    """Whether float32 holds every value."""
    with np.errstate(over="ignore"):
        return bool(np.array_equal(values.astype(np.float32), values, equal_nan=True))


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
