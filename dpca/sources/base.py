"""What every source offers: a layout, and readers that fill a buffer with a region of it."""

from __future__ import annotations

import base64
import math
import os
import struct
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from itertools import islice, pairwise, product
from types import EllipsisType
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpca.errors import DataError, DpcaError, InputError, StorageError
from dpca.sources.credentials import Secrets
from dpca.units import is_plain

T = TypeVar("T")

Region = tuple[slice, ...]
"""One slice with both ends for every axis of the stored array."""


LONGEST_NAME = 255
"""Bytes of a file's name."""
READ_SECONDS = 900.0
AHEAD = 2
"""Regions that the system is asked to read before they are needed."""
RETRY_SECONDS = (0.1, 0.5, 2.0)
"""Pauses before a read that failed is tried again."""
VECTOR_CHUNK_BYTES = 2**28
"""Coordinates and labels of larger chunks are not read."""
PIECE_VALUES, PIECE_BYTES = 2**13, 2**20
"""Of a coordinate, so many texts or so many bytes of numbers are in hand at a time, and make a chunk of a result."""
TEXT_BYTES = 256
"""What a value takes at most whose length is its own, such as a name, on average over a chunk."""
TEXT_OBJECT_BYTES = 128
"""What a text takes in memory besides its characters, as an object of Python and of NumPy (100, measured)."""
CHUNKS_A_CALL = 1024
CHUNK_OVERHEAD_BYTES = 8192
"""What libraries hold for each chunk of a call, while it is read: 6 kB in HDF5, 1 to 2 kB in zarr (measured)."""


EVERY = (-math.inf, math.inf)
"""A valid range that every value is in."""


def _is_name(dim: str) -> bool:
    """Whether a coordinate can be called so, in a result and in other formats."""
    try:
        return is_plain(dim) and len(dim.encode()) <= LONGEST_NAME
    except UnicodeEncodeError:
        return False


@dataclass(frozen=True)
class Layout:
    """What is known of an array before any of its values is read."""

    name: str
    """What errors call it: path and array, free of credentials."""
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    """Of values as they are read."""
    chunks: tuple[int | tuple[int, ...], ...]
    """For each axis a chunk length, or all of them where they differ; 1 where any cut is as good."""
    shards: tuple[int, ...] | None = None
    """The grid that chunks are packed in, for a sharded Zarr array."""
    divisible: bool = False
    """Whether a part of a chunk can be read at the cost of its own bytes: chunked, but not compressed."""
    codec: str = "none"
    """What chunks are compressed with, in words."""
    order: str = "C"
    """Order of the axes in storage, "C" or "F"."""
    dims: tuple[str | None, ...] = ()
    """Names of the axes, where the source has any; one that no file could have, or that is not one line of text, is none."""
    missing_values: tuple[float, ...] = ()
    """Stored values that mark a missing one besides NaN: by the source's own attributes, or as told."""
    valid_range: tuple[float, float] = EVERY
    """Stored values outside are missing, by the source's own attributes."""
    stored_dtype: np.dtype[Any] | None = None
    """In storage, where that has only the other sign: values are read as bytes of that kind; None for `dtype`."""
    read_seconds: float = READ_SECONDS
    """How long no slab may be read until storage counts as hanging."""
    packing: tuple[float, float] = (1.0, 0.0)
    """scale_factor and add_offset of the CF conventions: value = stored * scale_factor + add_offset."""

    def __post_init__(self) -> None:
        dims = self.dims or (None,) * len(self.shape)
        object.__setattr__(self, "dims", tuple(dim if dim is None or _is_name(dim) else None for dim in dims))

    @property
    def n_values(self) -> int:
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """Bytes of the array as decoded."""
        return size_of(self.shape, self.dtype)

    @property
    def may_miss(self) -> bool:
        """Whether a value can be missing at all."""
        return self.dtype.kind == "f" or bool(self.missing_values) or self.valid_range != EVERY

    def marked(self, values: NDArray[Any]) -> NDArray[np.bool_]:
        """Where stored values mark a missing one."""
        return is_marked(values, self.missing_values, self.valid_range)

    @property
    def marks(self) -> str:
        """What marks a missing value, in words: NaN, -999 or outside 0 to 100."""
        low, high = self.valid_range
        outside = [] if self.valid_range == EVERY else [f"outside the valid range {low:g} to {high:g}"]
        return " or ".join(["NaN", *(f"{mark:g}" for mark in self.missing_values), *outside])

    @property
    def in_storage(self) -> np.dtype[Any]:
        """The dtype that storage has."""
        return self.dtype if self.stored_dtype is None else self.stored_dtype

    @property
    def chunked(self) -> bool:
        """Whether storage has chunks, rather than being as good to cut anywhere."""
        return any(chunk != 1 for chunk in self.chunks)

    @property
    def chunk_shape(self) -> tuple[int, ...]:
        """Shape of a chunk, of the largest where they differ."""
        return tuple(chunk if isinstance(chunk, int) else max(chunk, default=1) for chunk in self.chunks)

    @property
    def chunk_bytes(self) -> int:
        """Bytes of such a chunk as decoded; of one value where any cut is as good."""
        return size_of(self.chunk_shape, self.dtype)

    @property
    def bookkeeping_bytes(self) -> int:
        """What a library holds for the chunks of one call."""
        chunks = math.prod(-(-length // chunk) for length, chunk in zip(self.shape, self.chunk_shape, strict=True))
        return CHUNK_OVERHEAD_BYTES * min(CHUNKS_A_CALL, chunks)

    def axis_of(self, axis: int | str) -> int:
        """The samples axis as a number from 0, from a number or a dimension's name.

        Raises
        ------
        InputError
            When the array has no such axis.
        """
        if isinstance(axis, str):
            if axis in self.dims:
                return self.dims.index(axis)
            named, number = (
                ", ".join(repr(dim) for dim in self.dims if dim),
                f"a number from 0 to {len(self.shape) - 1}",
            )
            raise InputError(
                f"{self.name}: samples_axis is {axis!r}, but "
                + (f"the array has dimensions {named}" if named else "the axes of the array have no names"),
                f"Name one of them, or give {number}." if named else f"Give {number}.",
                key="input.samples_axis",
            )
        if not self.shape:
            raise InputError(f"{self.name}: is a single value", "PCA needs samples and features.", key="input.uri")
        if not -len(self.shape) <= axis < len(self.shape):
            raise InputError(
                f"{self.name}: samples_axis is {axis}, but the array has {len(self.shape)} axes, shape {self.shape}",
                f"Give a number from 0 to {len(self.shape) - 1}.",
                key="input.samples_axis",
            )
        return axis % len(self.shape)


def size_of(shape: Sequence[int], dtype: np.dtype[Any]) -> int:
    """Bytes of an array."""
    return math.prod(shape) * dtype.itemsize


def check_dtype(name: str, dtype: Any) -> np.dtype[Any]:
    """Accept real numbers that float64 can hold: float16/32/64, integers, bool.

    Raises
    ------
    InputError
        For complex numbers, strings, objects, records, times and extended precision, by name.
    """
    kind: str = getattr(dtype, "kind", "O")
    if kind in "biu" or (kind == "f" and dtype.itemsize <= 8 and dtype.isbuiltin != 2):
        accepted: np.dtype[Any] = np.dtype(dtype)
        return accepted
    raise InputError(
        f"{name}: values are of dtype {dtype}, which PCA is not defined for here",
        "Allowed are float16, float32, float64, every integer type and bool. Store a real-valued array "
        "(for complex data its real and imaginary parts, for labels an encoding of them).",
    )


def cf_attributes(array: str, attributes: Mapping[str, Any], dtype: np.dtype[Any]) -> dict[str, Any]:
    """What attributes say of stored values, as fields of a Layout.

    The CF conventions: scale_factor and add_offset (8.1), _FillValue, missing_value, valid_min, valid_max and
    valid_range (2.5.1); and _Unsigned, by which netCDF stores integers that its format has no type for
    (NetCDF Users Guide, appendix A).

    Parameters
    ----------
    array : what errors call the array

    Raises
    ------
    InputError
        When scale_factor or add_offset is no number that values can be unpacked by, or another is a number as text.
    """

    def refused(name: str, allowed: str) -> InputError:
        return InputError(
            f"{array}: attribute {name} is {_text(attributes[name])!r}, but {allowed} is allowed",
            "Correct the attribute where the data are made, or delete it.",
            key="input.uri",
        )

    def numbers(name: str) -> NDArray[Any]:
        given = _text(attributes.get(name, ()))
        if isinstance(given, str):
            found = _encoded(given) if name == "_FillValue" else ""
            if found == "" and _reads_as_number(given):
                raise refused(name, "a number, and no text of one,")
            given = found
        try:
            values = np.asarray(given).reshape(-1)
        except ValueError:  # lists in lists
            values = np.empty(0, object)
        return values if values.dtype.kind in "biuf" else np.empty(0)

    def number(name: str, otherwise: float, allowed: str) -> float:
        if name not in attributes:
            return otherwise
        values = np.empty(0) if isinstance(_text(attributes[name]), str) else numbers(name)
        if values.size != 1 or not np.isfinite(values[0]) or (name == "scale_factor" and not values[0]):
            raise refused(name, allowed)
        return float(values[0])

    other = {("i", "true"): "u", ("u", "false"): "i"}.get((dtype.kind, str(_text(attributes.get("_Unsigned"))).lower()))
    meant = dtype if other is None else np.dtype(f"{dtype.byteorder}{other}{dtype.itemsize}")
    factor = number("scale_factor", 1.0, "a finite number other than 0")
    offset = number("add_offset", 0.0, "a finite number")

    def as_meant(values: NDArray[Any]) -> NDArray[Any]:
        """Of integers of the other sign."""
        if other is None or values.dtype.kind == "f":
            return values
        bits = 8 * dtype.itemsize
        return np.array([int(value) % 2**bits for value in values], np.uint64).astype(meant).astype(np.float64)

    def limits(name: str) -> list[float]:
        values = numbers(name)
        # Those of another kind than what is stored are of unpacked values.
        unpacked = dtype.kind in "iu" and values.dtype.kind == "f" and (factor, offset) != (1.0, 0.0)
        found = (values - offset) / factor if unpacked else as_meant(values)
        return sorted(map(float, found))

    low, high = EVERY
    if len(both := limits("valid_range")) == 2:
        low, high = both
    low, high = max([low, *limits("valid_min")[:1]]), min([high, *limits("valid_max")[:1]])
    if factor < 0 and not len(both):  # the largest value is stored as the smallest
        low, high = max([EVERY[0], *limits("valid_max")[:1]]), min([EVERY[1], *limits("valid_min")[:1]])
    marks = [float(mark) for name in ("_FillValue", "missing_value") for mark in as_meant(numbers(name))]
    return {
        "dtype": meant,
        "stored_dtype": None if other is None else dtype,
        "missing_values": as_stored(marks, meant),
        "packing": (factor, offset),
        "valid_range": (low, high),
    }


def _text(value: Any) -> Any:
    """An attribute as text: HDF5 has bytes, and arrays of one."""
    value = value[0] if isinstance(value, np.ndarray) and value.size == 1 else value
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def as_stored(marks: Iterable[float], dtype: np.dtype[Any]) -> tuple[float, ...]:
    """Marks of missing values as an array of this type holds them: rounded to it, each once; NaN needs no mark."""
    with np.errstate(over="ignore"):
        rounded = [float(np.asarray(mark).astype(dtype)) if dtype.kind == "f" else float(mark) for mark in marks]
    return tuple(dict.fromkeys(mark for mark in rounded if not np.isnan(mark)))


def is_marked(
    values: NDArray[Any], marks: Sequence[float], valid: tuple[float, float] | None = None
) -> NDArray[np.bool_]:
    """Where values are one of the marks, or outside what is valid."""
    found = np.zeros(values.shape, bool)
    for mark in marks:
        found |= values == mark
    if valid is not None and valid != EVERY:
        found |= (values < valid[0]) | (values > valid[1])
    return found


def type_of_masked(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """A type that holds values of another one, and NaN where they are masked."""
    if dtype.kind == "f":
        return dtype
    return np.dtype(np.float32 if dtype.itemsize <= 2 else np.float64)


def unmasked(values: Any, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Values in a type that holds NaN, which takes the place of those that are masked.

    Raises
    ------
    DataError
        When values are masked that the type can't mark, or integers are so large that float64 rounds them.
    """
    if not isinstance(values, np.ma.MaskedArray):
        return np.asarray(values).astype(dtype, copy=False)
    mask = np.ma.getmaskarray(values)
    if dtype.kind != "f" and mask.any():
        raise DataError(
            "a block of the array is masked, but its meta is not, which promised that none would be",
            "Call map_blocks(numpy.ma.asarray, meta=numpy.ma.array([], dtype=x.dtype)) on it, or fill it: da.ma.filled.",
        )
    if values.dtype.kind in "iu" and (np.abs(values.astype(np.float64)) >= 2**53).any():
        raise DataError(
            "masked integers are 2**53 or more in magnitude, where float64 rounds them",
            "Subtract a whole number from the feature where the data are made.",
        )
    found = np.array(values.data, dtype)
    if mask.any():
        found[mask] = np.nan
    return found


def _reads_as_number(text: str) -> bool:
    """Whether a text was meant as a number other than NaN, which needs no mark."""
    try:
        return not math.isnan(float(text))
    except ValueError:
        return False


def _encoded(text: str) -> Any:
    """A number as xarray writes it into the JSON of Zarr: base64 of a little-endian double."""
    try:
        return struct.unpack("<d", base64.b64decode(text, validate=True))[0]
    except (ValueError, struct.error):
        return ""


def read_ahead(file: int, start: int = 0, size: int = 0) -> None:
    """Ask the system to read a part of an open file, or all from `start` on, into its cache, where it takes such advice."""
    if hasattr(os, "posix_fadvise"):
        with suppress(OSError):
            os.posix_fadvise(file, start, size, os.POSIX_FADV_WILLNEED)


class Buffer:
    """Memory that is allocated once and lent out again for each read."""

    def __init__(self) -> None:
        self._bytes: NDArray[np.uint8] = np.empty(0, np.uint8)

    def view(self, shape: Sequence[int], dtype: np.dtype[Any]) -> NDArray[Any]:
        """A C-contiguous array over the buffer, which grows when it has to. Its content is undefined."""
        needed = math.prod(shape) * dtype.itemsize
        if self._bytes.size < needed:
            self._bytes = np.empty(0, np.uint8)  # let go of the old one before taking the new
            self._bytes = np.empty(needed, np.uint8)
        return self._bytes[:needed].view(dtype).reshape(shape)


@dataclass(frozen=True)
class Parts:
    """In which parts a vector can be read."""

    width: int
    """Bytes of a value as stored; of text whose lengths differ on average."""
    chunk: int = 1
    """Values that are decoded together, whatever part is asked for."""
    chunk_bytes: int = 0
    """What is decoded together takes."""

    @classmethod
    def of(cls, dtype: Any, chunk: int = 1) -> Parts:
        """Of values of a type, in chunks of so many."""
        width = TEXT_BYTES if dtype.kind in "OT" else max(1, int(dtype.itemsize))
        return cls(width, chunk, chunk * width)


@dataclass(frozen=True)
class Vector:
    """A small array that a file holds beside the data: a coordinate, labels. Read in parts, by indexing."""

    name: str
    """What errors call it."""
    shape: tuple[int, ...]
    dtype: Any
    read: Callable[[slice], Any]
    """Gives a part, between two ends."""
    parts: Parts
    secrets: Secrets = field(default_factory=Secrets)

    def __getitem__(self, piece: slice | EllipsisType) -> NDArray[Any]:
        """A part, or all.

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
        """Refuse chunks that are no small ones.

        Raises
        ------
        VectorTooLarge
            When a chunk, which is read whole whatever part is asked for, takes more than `VECTOR_CHUNK_BYTES`.
        """
        if parts.chunk_bytes > VECTOR_CHUNK_BYTES:
            raise VectorTooLarge(
                f"{name} has chunks of {parts.chunk_bytes} bytes, and {VECTOR_CHUNK_BYTES} at most are allowed"
            )


class VectorTooLarge(ValueError):
    """Of a vector whose chunks are no small ones."""


COORDINATE_ATTRIBUTES = ("units", "calendar", "long_name", "standard_name")
"""What is kept of a coordinate's."""


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
        """How many values are in hand at a time where it is copied or compared."""
        fitting = max(1, PIECE_BYTES // self.parts.width)
        return min(PIECE_VALUES, fitting) if self.text else fitting

    @property
    def held(self) -> int:
        """Bytes that are held where it is copied or compared."""
        # A chunk as stored, as decoded and as values; a piece as these, as the text to write, encoded and compressed.
        parts, piece, beside = self.parts, self.piece, TEXT_OBJECT_BYTES * self.text
        read = 3 * max(parts.chunk_bytes, piece * parts.width) + beside * max(parts.chunk, piece)
        return read + piece * (3 * parts.width + 2 * beside)

    def pieces(self, length: int | None = None) -> Iterator[tuple[slice, NDArray[Any]]]:
        """Its values in order, so many at a time (`piece` if None); each chunk is decoded once."""
        length, total = length or self.piece, int(self.values.shape[0])
        together = max(1, length // self.parts.chunk) * self.parts.chunk
        begin, block = 0, np.empty(0)
        for start in range(0, total, length):
            stop, found = min(start + length, total), []
            position = start
            while position < stop:
                if not begin <= position < begin + len(block):
                    begin, block = position - position % self.parts.chunk, np.empty(0)
                    block = self.values[slice(begin, min(begin + together, total))]
                found.append(block[position - begin : stop - begin].copy())
                position += len(found[-1])
            yield slice(start, stop), np.concatenate(found)  # a copy, so that no view keeps the block in memory


class Reader(ABC):
    """An open source. One thread at a time; every task opens its own."""

    def __init__(
        self, layout: Layout, secrets: Secrets | None = None, coordinates: Mapping[int, Coordinate] | None = None
    ) -> None:
        self.layout, self._secrets, self._coordinates = layout, secrets or Secrets(), coordinates or {}
        self.absent_chunks = 0
        """Chunks met so far that the store never wrote, and that were read as its fill value."""
        self.retries = 0
        """Reads that failed and were tried again."""
        self.bytes_read = 0
        """Bytes of the regions that were read, decoded."""
        self.left_out: list[str] = []
        """Coordinates that were asked for, but are not read, with the reason."""
        self._buffer = Buffer()
        """What is lent, by readers that do not read in place."""
        self._to_come: Iterator[Region] = iter(())

    def will_read(self, regions: Iterable[Region]) -> None:
        """Say which regions `read` will be asked for, in turn, so that the system can be ahead of it."""
        self._to_come = iter(regions)
        for region in islice(self._to_come, AHEAD):
            self.expect(region)

    def read(self, region: Region) -> NDArray[Any]:
        """Values of a region, as stored.

        The array is lent: it is valid until the next read, and not to be written to. A read that fails is tried
        again a few times, since stores fail now and then.

        Raises
        ------
        StorageError
            When a chunk can't be read or decoded; names the chunk.
        """

        def count() -> None:
            self.retries += 1

        for following in islice(self._to_come, 1):
            self.expect(following)
        found = tried_again(
            lambda: self._read(region), lambda cause: self._explain(region, cause), self._secrets, again=count
        )
        self.bytes_read += found.nbytes
        return found if self.layout.stored_dtype is None else found.view(self.layout.dtype)

    def expect(self, region: Region) -> None:  # noqa: B027  most can't
        """Have the system read what is stored of a region ahead, where it can, while this process computes."""

    @abstractmethod
    def _read(self, region: Region) -> NDArray[Any]: ...

    def coordinate(self, axis: int) -> Coordinate | None:
        """The coordinate along an axis, where the source has one."""
        return self._coordinates.get(axis)

    def _chunks_in(self, region: Region) -> Iterator[tuple[tuple[int, ...], Region]]:
        """Index and region of each chunk that a region touches, clipped to the region."""
        axes = []
        for piece, chunks in zip(region, self.layout.chunks, strict=True):
            found = []
            if isinstance(chunks, int):
                for index in range(piece.start // chunks, -(-piece.stop // chunks)):
                    start, stop = index * chunks, (index + 1) * chunks
                    found.append((index, slice(max(start, piece.start), min(stop, piece.stop))))
            else:
                stop = 0
                for index, size in enumerate(chunks):
                    start, stop = stop, stop + size
                    if start < piece.stop and stop > piece.start:
                        found.append((index, slice(max(start, piece.start), min(stop, piece.stop))))
            axes.append(found)
        for choice in product(*axes):
            yield tuple(index for index, _ in choice), tuple(piece for _, piece in choice)

    def _calls(self, region: Region) -> Iterator[Region]:
        """Parts of a region that touch at most CHUNKS_A_CALL chunks each, for libraries that hold something for each."""
        left, axes = CHUNKS_A_CALL, []
        for piece, chunk in zip(reversed(region), reversed(self.layout.chunk_shape), strict=True):
            first, last = piece.start // chunk, -(-piece.stop // chunk)
            step = min(max(1, last - first), left)
            left = max(1, left // step)
            edges = [piece.start, *(number * chunk for number in range(first + step, last, step)), piece.stop]
            axes.append([slice(start, stop) for start, stop in pairwise(edges)])
        yield from product(*reversed(axes))

    def _begins_in(self, index: tuple[int, ...], piece: Region) -> bool:
        """Whether a chunk's part begins where the chunk does: true of one of the regions that divide it."""
        return all(
            part.start == number * chunk
            for number, part, chunk in zip(index, piece, self.layout.chunk_shape, strict=True)
        )

    def _explain(self, region: Region, cause: Exception) -> StorageError:
        """Find the chunk that fails by reading them one by one; only after a read has failed."""
        where = "region " + describe(region)
        if self.layout.chunked:
            for index, piece in self._chunks_in(region):
                try:
                    self._read(piece)
                except Exception as error:
                    where, cause = f"chunk {index}, region {describe(piece)},", error
                    break
        return StorageError(
            f"{self.layout.name}: {where} could not be read: {type(cause).__name__}: {self._secrets.hidden(str(cause))}",
            "The stored chunk is damaged, truncated or of a codec that is not installed. Restore it from its "
            "source, or delete it to have it read as the fill value.",
        )


def tried_again(
    read: Callable[[], T],
    explain: Callable[[Exception], DpcaError],
    secrets: Secrets,
    again: Callable[[], None] = lambda: None,
) -> T:
    """What a store gives, asked a few times: stores fail now and then.

    Parameters
    ----------
    explain : what to raise in the end
    again : called before each further try
    """
    for pause in (*RETRY_SECONDS, None):
        try:
            return read()
        except (DpcaError, MemoryError):
            raise
        except Exception as cause:
            if pause is None:
                raise explain(cause) from secrets.cause(cause)
            again()
            time.sleep(pause)
    raise AssertionError  # the last pause is None


class Source(ABC):
    """Where X lives. Plain values that travel to a worker; files are opened there."""

    layout: Layout

    @abstractmethod
    def held(self, shape: tuple[int, ...]) -> dict[str, int]:
        """Bytes of each array that a reader holds while it reads a region of this shape, by name."""

    @abstractmethod
    def open(self) -> AbstractContextManager[Reader]:
        """Open it for reading."""

    @abstractmethod
    def fingerprint(self) -> dict[str, Any]:
        """What identifies the input in a manifest: small, and free of credentials."""

    def state(self, region: Region) -> str | None:
        """What changes when a region is rewritten, as far as that is seen without reading it; None where nothing tells."""
        return None

    def restrict(self, region: Region) -> Self:
        """What a task that reads only `region` has to carry; addressed as the whole is."""
        return self

    def stored_bytes(self) -> int | None:
        """Bytes that it takes where it is, if that can be known cheaply."""
        return None

    @property
    def place(self) -> tuple[str, str | None] | None:
        """Path, and array inside, by which `open_source` opens the same again; None where values are in memory or computed."""
        return None

    # Of arrays that Dask computes.

    @property
    def blocks(self) -> Mapping[Any, Any]:
        """Futures of blocks that live on a cluster, which reading needs, by key."""
        return {}

    def with_blocks(self, blocks: Mapping[Any, NDArray[Any]]) -> Self:
        """The same with the blocks that its futures stood for."""
        return self

    def check_sharing(self, regions: Iterable[Region], n_regions: int) -> None:  # noqa: B027  files share nothing
        """Refuse an array of which each of these regions computes most of the whole."""


def describe(region: Region) -> str:
    """A region as NumPy would index it: [0:400, 16:32]."""
    return "[" + ", ".join(f"{piece.start}:{piece.stop}" for piece in region) + "]"


def within(region: Region, outer: Region) -> Region:
    """A region of the whole as a region of the outer one that it lies in."""
    return shifted(region, [piece.start for piece in outer])


def shifted(region: Region, offset: Sequence[int]) -> Region:
    """A region of the whole as a region of the part that starts at `offset`."""
    return tuple(slice(p.start - o, p.stop - o) for p, o in zip(region, offset, strict=True))
