"""The protocol of sources: a layout, and readers that return regions of the array."""

from __future__ import annotations

import math
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from itertools import islice, pairwise, product
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpca.errors import DataError, InputError, NotSeenError, StorageError
from dpca.settings import INPUT
from dpca.slabs import extent
from dpca.sources.chosen import Selection
from dpca.sources.coordinate import Auxiliary, Coordinate
from dpca.sources.credentials import Secrets
from dpca.sources.facts import A, Kinds
from dpca.sources.lines import FewValues, Lines
from dpca.sources.missing import EVERY, is_marked
from dpca.sources.retries import tried_again
from dpca.system.buffers import Buffer
from dpca.units import is_plain

T = TypeVar("T")

Region = tuple[slice, ...]
"""One slice, with both ends given, for every axis of the stored array."""


LONGEST_NAME = 255
"""Most bytes in the name of a file."""
READ_SECONDS = 900.0
AHEAD = 2
"""Number of regions that the system is asked to read in advance."""
CHUNKS_A_CALL = 1024
CHUNK_OVERHEAD_BYTES = 8192
"""Memory that libraries use for each chunk of a call during a read: 6 kB in HDF5, 1 to 2 kB in zarr (measured)."""


def _is_name(dim: str) -> bool:
    """Whether a coordinate can have this name, in a result and in other formats."""
    try:
        return is_plain(dim) and len(dim.encode()) <= LONGEST_NAME
    except UnicodeEncodeError:
        return False


SamplesAxis = int | str | Sequence[int | str]
"""The axis of samples, by its number or name; several, where samples lie along them (`dpca.sources.stacked`)."""


@dataclass(frozen=True)
class StackedAxes:
    """Several axes in storage that are one axis of samples."""

    axis: int
    """This one, 0 or -1."""
    names: tuple[str, ...]
    """Names of the axes in storage, the last of which changes fastest from sample to sample."""
    lengths: tuple[int, ...]
    """Their lengths; 0 where some samples were chosen, or others joined, so that samples are no box of the axes."""

    @property
    def chosen(self) -> StackedAxes:
        """The axes of some of the samples, or of these and others."""
        return replace(self, lengths=(0,) * len(self.lengths))


@dataclass(frozen=True)
class Code:
    """A stored number that stands for no value."""

    value: int
    words: str
    """Its meaning."""
    remedy: str
    """Advice where a value is needed in its place."""


@dataclass(frozen=True)
class Layout:
    """Facts about an array before any of its values is read."""

    name: str
    """Name in error messages: path and array, free of credentials."""
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    """Type of the values as they are read."""
    chunks: tuple[int | tuple[int, ...], ...]
    """For each axis a chunk length, or all of them where they differ; 1 where storage may be cut anywhere."""
    shards: tuple[int, ...] | None = None
    """Shape of a shard, for a sharded Zarr array."""
    divisible: bool = False
    """Whether a part of a chunk can be read without the rest: chunked, but not compressed."""
    codec: str = "none"
    """Compression of the chunks, in words."""
    order: str = "C"
    """Order of the axes in storage, "C" or "F"."""
    dims: tuple[str | None, ...] = ()
    """Names of the axes, or None; a name that no file could have, or that is not one line of text, becomes None."""
    missing_values: tuple[float, ...] = ()
    """Stored values that mark a missing value besides NaN: by the source's own attributes, or as configured."""
    valid_range: tuple[float, float] = EVERY
    """Stored values outside this range are missing, by the source's own attributes."""
    stored_dtype: np.dtype[Any] | None = None
    """Integer type in storage if its signedness differs: its bytes are reinterpreted as `dtype`. None if it is `dtype`."""
    read_seconds: float = READ_SECONDS
    """Seconds without a slab read after which storage counts as hanging."""
    packing: tuple[float, float] = (1.0, 0.0)
    """scale_factor and add_offset of the CF conventions: value = stored * scale_factor + add_offset."""
    units: str = ""
    long_name: str = ""
    """Units of the values, by the source's own attributes."""
    codes: tuple[Code, ...] = ()
    """Values that stand for none, by the format."""
    remarks: tuple[str, ...] = ()
    """Remarks on its storage before a run, in sentences."""
    n_stored: int | None = None
    """Number of samples in storage, where some of them were chosen."""
    stack: StackedAxes | None = None
    """The axes in storage that samples lie along, where these are several."""
    few_values: FewValues | None = None
    """Facts about a sparse matrix of which few values are stored; None of any other array."""

    def __post_init__(self) -> None:
        dims = self.dims or (None,) * len(self.shape)
        object.__setattr__(self, "dims", tuple(dim if dim is None or _is_name(dim) else None for dim in dims))

    @property
    def n_values(self) -> int:
        return math.prod(self.shape)

    @property
    def of_units(self) -> dict[str, str]:
        """The attributes that say in what units values are; none where that is not known."""
        return {"units": self.units} if self.units else {}

    @property
    def of_values(self) -> dict[str, str]:
        """The attributes that say what values are, and in what units; none where that is not known."""
        return self.of_units | ({"long_name": self.long_name} if self.long_name else {})

    @property
    def bytes(self) -> int:
        """Bytes of the decoded array."""
        return size_of(self.shape, self.dtype)

    @property
    def may_miss(self) -> bool:
        """Whether a value can be missing at all."""
        return self.dtype.kind == "f" or bool(self.missing_values) or self.valid_range != EVERY

    def marked(self, values: NDArray[Any]) -> NDArray[np.bool_]:
        """Mask of the stored values that mark a missing value."""
        return is_marked(values, self.missing_values, self.valid_range)

    @property
    def marks(self) -> str:
        """Markers of a missing value, in words: NaN or -999 or outside the valid range 0 to 100."""
        low, high = self.valid_range
        outside = [] if self.valid_range == EVERY else [f"outside the valid range {low:g} to {high:g}"]
        return " or ".join(["NaN", *(f"{mark:g}" for mark in self.missing_values), *outside])

    @property
    def in_storage(self) -> np.dtype[Any]:
        """The dtype in storage."""
        return self.dtype if self.stored_dtype is None else self.stored_dtype

    @property
    def chunked(self) -> bool:
        """Whether storage has chunks, rather than allowing a cut anywhere."""
        return any(chunk != 1 for chunk in self.chunks)

    @property
    def chunk_shape(self) -> tuple[int, ...]:
        """Shape of a chunk; of the largest where they differ."""
        return tuple(chunk if isinstance(chunk, int) else max(chunk, default=1) for chunk in self.chunks)

    @property
    def chunk_bytes(self) -> int:
        """Bytes of such a chunk, decoded; of one value where storage may be cut anywhere."""
        return size_of(self.chunk_shape, self.dtype)

    @property
    def bookkeeping_bytes(self) -> int:
        """Memory that a library uses for the chunks of one call."""
        chunks = math.prod(-(-length // chunk) for length, chunk in zip(self.shape, self.chunk_shape, strict=True))
        return CHUNK_OVERHEAD_BYTES * min(CHUNKS_A_CALL, chunks)

    def axis_of(self, axis: SamplesAxis) -> int:
        """The number of the samples axis, from 0, given a number or the name of a dimension; or of several, after they became one."""
        if not isinstance(axis, int | str):
            assert self.stack is not None
            return self.stack.axis % len(self.shape)
        if isinstance(axis, str):
            if axis in self.dims:
                return self.dims.index(axis)
            named, number = (
                ", ".join(repr(dim) for dim in self.dims if dim),
                f"a number from 0 to {len(self.shape) - 1}",
            )
            raise InputError(
                f"{self.name}: {INPUT.samples_axis} is {axis!r}, but "
                + (f"the array has dimensions {named}" if named else "the axes of the array have no names"),
                f"Name one of them, or give {number}." if named else f"Give {number}.",
                key=INPUT.samples_axis,
            )
        if not self.shape:
            raise InputError(f"{self.name}: is a single value", "PCA needs samples and features.", key="input.uri")
        if not -len(self.shape) <= axis < len(self.shape):
            raise InputError(
                f"{self.name}: {INPUT.samples_axis} is {axis}, but the array has {len(self.shape)} axes, shape {self.shape}",
                f"Give a number from 0 to {len(self.shape) - 1}.",
                key=INPUT.samples_axis,
            )
        return axis % len(self.shape)


def size_of(shape: Sequence[int], dtype: np.dtype[Any]) -> int:
    """Size of an array in bytes."""
    return math.prod(shape) * dtype.itemsize


def check_dtype(name: str, dtype: Any) -> np.dtype[Any]:
    """Accept real numbers that float64 can hold: float16/32/64, integers, bool."""
    kind: str = getattr(dtype, "kind", "O")
    if kind in "biu" or (kind == "f" and dtype.itemsize <= 8 and dtype.isbuiltin != 2):
        accepted: np.dtype[Any] = np.dtype(dtype)
        return accepted
    raise InputError(
        f"{name}: values are of dtype {dtype}, which PCA is not defined for here",
        "Allowed are float16, float32, float64, every integer type and bool. Store a real-valued array "
        "(for complex data its real and imaginary parts, for labels an encoding of them).",
    )


def read_ahead(file: int, start: int = 0, size: int = 0) -> None:
    """Ask the system, where it takes such advice, to read `size` bytes of an open file into its cache; 0 is all from `start`."""
    if hasattr(os, "posix_fadvise"):
        with suppress(OSError):
            os.posix_fadvise(file, start, size, os.POSIX_FADV_WILLNEED)


class Reader(ABC):
    """An open source, for one thread at a time; every task opens its own."""

    def __init__(
        self,
        layout: Layout,
        secrets: Secrets | None = None,
        coordinates: Mapping[int, Coordinate] | None = None,
        auxiliaries: Sequence[Auxiliary] = (),
    ) -> None:
        self.layout, self._secrets = layout, secrets or Secrets()
        self._coordinates, self._auxiliaries = coordinates or {}, auxiliaries
        self.absent_chunks = 0
        """Number of chunks so far that were never written, and were read as the fill value."""
        self.retries = 0
        """Number of retries after failed reads."""
        self.bytes_read = 0
        """Decoded bytes of the regions read so far."""
        self.left_out: list[str] = []
        """Requested coordinates that were not read, with the reason."""
        self._buffer = Buffer()
        """Memory of the arrays that `read` lends, in readers that do not read in place."""
        self._to_come: Iterator[Region] = iter(())

    def will_read(self, regions: Iterable[Region]) -> None:
        """Announce the regions that will be read, in order, so that the system can read ahead."""
        self._to_come = iter(regions)
        for region in islice(self._to_come, AHEAD):
            self.expect(region)

    def read(self, region: Region) -> NDArray[Any]:
        """Values of a region, as stored.

        The array is lent: it is valid until the next read, and must not be written to. A failed read is retried
        a few times, since stores fail occasionally.
        """

        values = self._tried(self._read, region)
        shape = extent(region)
        if values.shape != shape:
            raise DataError(
                f"{self.layout.name}: region {describe(region)} was read as an array of shape {values.shape}, not {shape}",
                "The data changed while they were read, or are not what their metadata say.",
            )
        self.bytes_read += values.nbytes
        return values if self.layout.stored_dtype is None else values.view(self.layout.dtype)

    def read_lines(self, region: Region) -> Lines | None:
        """The stored values of a region of a sparse matrix; None where it is not sparse, or values are many: `read` has them.

        A failed read is retried, as by `read`.
        """
        lines = self._tried(self._lines_of, region)
        if lines is not None:
            self.bytes_read += size_of(extent(region), self.layout.dtype)
        return lines

    def _lines_of(self, region: Region) -> Lines | None:
        return None

    def _tried(self, read: Callable[[Region], T], region: Region) -> T:
        """The answer of `read` for a region, after several attempts where storage fails; the next region is read ahead."""

        def count() -> None:
            self.retries += 1

        for following in islice(self._to_come, 1):
            self.expect(following)
        return tried_again(lambda: read(region), lambda cause: self._explain(region, cause), self._secrets, again=count)

    def expect(self, region: Region) -> None:  # noqa: B027  most sources can't
        """Ask the system to read the stored bytes of a region ahead, where possible, while this process computes."""

    @abstractmethod
    def _read(self, region: Region) -> NDArray[Any]: ...

    def coordinate(self, axis: int) -> Coordinate | None:
        """The coordinate along an axis, if the source has one."""
        return self._coordinates.get(axis)

    def auxiliaries(self) -> Sequence[Auxiliary]:
        """Coordinates that are no index."""
        return self._auxiliaries

    def _chunks_in(self, region: Region) -> Iterator[tuple[tuple[int, ...], Region]]:
        """Index and region of each chunk that a region touches, clipped to the region."""
        axes = []
        for piece, chunks in zip(region, self.layout.chunks, strict=True):
            pieces = []
            if isinstance(chunks, int):
                for index in range(piece.start // chunks, -(-piece.stop // chunks)):
                    start, stop = index * chunks, (index + 1) * chunks
                    pieces.append((index, slice(max(start, piece.start), min(stop, piece.stop))))
            else:
                stop = 0
                for index, size in enumerate(chunks):
                    start, stop = stop, stop + size
                    if start < piece.stop and stop > piece.start:
                        pieces.append((index, slice(max(start, piece.start), min(stop, piece.stop))))
            axes.append(pieces)
        for choice in product(*axes):
            yield tuple(index for index, _ in choice), tuple(piece for _, piece in choice)

    def _calls(self, region: Region) -> Iterator[Region]:
        """Parts of a region that touch at most CHUNKS_A_CALL chunks each, as libraries use memory for each chunk of a call."""
        left, axes = CHUNKS_A_CALL, []
        for piece, chunk in zip(reversed(region), reversed(self.layout.chunk_shape), strict=True):
            first, last = piece.start // chunk, -(-piece.stop // chunk)
            step = min(max(1, last - first), left)
            left = max(1, left // step)
            edges = [piece.start, *(number * chunk for number in range(first + step, last, step)), piece.stop]
            axes.append([slice(start, stop) for start, stop in pairwise(edges)])
        yield from product(*reversed(axes))

    def _begins_in(self, index: tuple[int, ...], piece: Region) -> bool:
        """Whether a part of a chunk begins where the chunk does: true for one of the regions that share it."""
        return all(
            part.start == number * chunk
            for number, part, chunk in zip(index, piece, self.layout.chunk_shape, strict=True)
        )

    def _explain(self, region: Region, cause: Exception) -> StorageError:
        """The error for a region whose read failed: reads its chunks one by one to find and name the bad one."""
        where = "region " + describe(region)
        if self.layout.chunked:
            for index, piece in self._chunks_in(region):
                try:
                    self._read(piece)
                except Exception as error:
                    where, cause = f"chunk {index}, region {describe(piece)},", error
                    break
        kind = NotSeenError if isinstance(cause, FileNotFoundError) else StorageError
        return kind(
            f"{self.layout.name}: {where} could not be read: {type(cause).__name__}: {self._secrets.hidden(str(cause))}",
            "See whether its storage answers, and what this process may do there."
            # Libraries raise errors of the system without a number for bytes that they can't decode.
            if isinstance(cause, TimeoutError) or (isinstance(cause, OSError) and cause.errno is not None)
            else "The stored chunk is damaged, truncated or of a codec that is not installed. Restore it from its "
            "source, or delete it to have it read as the fill value.",
        )


def same_auxiliaries(first: Reader, other: Reader) -> Iterator[tuple[Auxiliary, Auxiliary]]:
    """Pairs of coordinates that are no index, of one name and along the same axes, of two arrays with the same axes."""
    found = {(one.coordinate.name, one.axes): one for one in other.auxiliaries()}
    for one in first.auxiliaries():
        if (same := found.get((one.coordinate.name, one.axes))) is not None:
            yield one, same


class Source(ABC):
    """The place of X. It holds plain values that are sent to a worker; files are opened there."""

    layout: Layout
    notes: tuple[str, ...] = ()
    """Notes for the user about it, in sentences."""
    chosen: NDArray[np.int64] | None = None
    """The numbers in storage of the samples, where some of them were chosen."""

    @abstractmethod
    def held(self, shape: tuple[int, ...]) -> dict[str, int]:
        """Bytes of each array, by name, that a reader holds while it reads a region of this shape."""

    @abstractmethod
    def open(self) -> AbstractContextManager[Reader]:
        """Open the source for reading."""

    @abstractmethod
    def fingerprint(self) -> dict[str, Any]:
        """Identity of the input for a manifest: small, and free of credentials."""

    def state(self, region: Region) -> str | None:
        """A text that changes when a region is rewritten, as far as can be known without reading it; None if it can't."""
        return None

    def restrict(self, region: Region) -> Self:
        """This source restricted to `region`, for a task that reads no more; it is addressed like the whole."""
        return self

    def beside(self, name: str) -> Source:
        """A coordinate that is no index (`Reader.auxiliaries`), as a source, which is not read here."""
        raise AssertionError(f"no source has a coordinate {name}")

    def stored_bytes(self) -> int | None:
        """Bytes in storage, if they can be known cheaply."""
        return None

    @property
    def place(self) -> tuple[str | list[str], str | None] | None:
        """Path or paths, and array inside, with which a config's input opens it again; None where values are in memory or computed."""
        return None

    @property
    def in_memory(self) -> bool:
        """Whether values are in the memory of this process."""
        return False

    @property
    def only(self) -> Source:
        """The array of its only sample, where it is a file that is one sample, such as an image; else itself."""
        return self

    @property
    def lines_axis(self) -> int | None:
        """The axis of the lines that its readers may give as they are stored (`Reader.read_lines`); None where they never do."""
        return None

    @property
    def selection(self) -> Selection | None:
        """The chosen features, where not all of the stored ones are read."""
        return None

    @property
    def knows(self) -> Kinds:
        """Kinds of facts about its samples or its features that it may know."""
        return ()

    def about(self, kind: type[A]) -> A | None:
        """Facts of a kind; None where they are not known."""
        return None

    # Only for arrays that Dask computes.

    @property
    def blocks(self) -> Mapping[Any, Any]:
        """Futures of the blocks on a cluster that reading needs, by key."""
        return {}

    def with_blocks(self, blocks: Mapping[Any, NDArray[Any]]) -> Self:
        """This source with blocks in place of its futures."""
        return self

    def check_sharing(self, regions: Iterable[Region], n_regions: int) -> None:  # noqa: B027  files share nothing
        """Refuse an array if each of these regions needs most of the whole to be computed."""


def describe(region: Region) -> str:
    """A region as NumPy would index it: [0:400, 16:32]."""
    return "[" + ", ".join(f"{piece.start}:{piece.stop}" for piece in region) + "]"


def within(region: Region, outer: Region) -> Region:
    """A region of the whole array, relative to the region `outer` that contains it."""
    return shifted(region, [piece.start for piece in outer])


def shifted(region: Region, offset: Sequence[int]) -> Region:
    """A region of the whole array, relative to the part that starts at `offset`."""
    return tuple(slice(p.start - o, p.stop - o) for p, o in zip(region, offset, strict=True))
