"""Small arrays beside the data, such as coordinates and labels: read in parts, never whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import EllipsisType
from typing import Any

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

    def __getitem__(self, piece: slice | EllipsisType) -> NDArray[Any]:
        """A part, or all for `...`.

        Raises
        ------
        StorageError
            When it can't be read or decoded.
        """

        def explain(cause: Exception) -> StorageError:
            return StorageError(
                f"{self.name}: can't be read: {type(cause).__name__}: {self.secrets.hidden(str(cause))}",
                "It is damaged, truncated or of a codec that is not installed. Restore it from its source.",
            )

        start, stop, _ = (slice(None) if piece is ... else piece).indices(self.shape[0])
        return np.asarray(tried_again(lambda: self.read(slice(start, stop)), explain, self.secrets))

    @staticmethod
    def check(name: str, parts: Parts) -> None:
        """Refuse large chunks.

        Raises
        ------
        VectorTooLarge
            When a chunk, which is always read whole, takes more than `VECTOR_CHUNK_BYTES`.
        """
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
class Difference:
    """How the values of two coordinates of one length differ."""

    index: int
    """The first that differs."""
    found: Any
    expected: Any
    count: int
    """How many differ."""


def difference(theirs: Coordinate, ours: Coordinate) -> Difference | None:
    """The difference of two coordinates of one length, which are read in pieces; None if they are equal, NaN as NaN."""
    length, first, count = min(theirs.piece, ours.piece), (0, None, None), 0
    for (piece, found), (_, expected) in zip(theirs.pieces(length), ours.pieces(length), strict=True):
        if theirs.text or ours.text:
            found, expected = found.astype(object), expected.astype(object)
        wrong = found != expected
        if not (theirs.text or ours.text):
            wrong &= ~(np.isnan(found) & np.isnan(expected))
        if wrong.any() and not count:
            at = int(np.argmax(wrong))
            first = (piece.start + at, _plain(found[at]), _plain(expected[at]))
        count += int(wrong.sum())
    return Difference(*first, count) if count else None


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
