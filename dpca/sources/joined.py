"""Arrays that follow each other along the samples, such as a file a year, read as one array.

A slab holds all samples of some features, so it is put together from a part of each file. `dpca.sources.joining` checks
that the files belong together.
"""

from __future__ import annotations

import hashlib
import os
import resource
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import islice, takewhile
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dpca.errors import StorageError
from dpca.slabs import extent, placed, split
from dpca.sources.base import Layout, Reader, Region, Source, size_of
from dpca.sources.calendars import Conversion
from dpca.sources.coordinate import Auxiliary, Coordinate, Parts, Vector
from dpca.sources.dated import told_by
from dpca.sources.facts import A, Kinds, kinds_of
from dpca.sources.memory import of_auxiliary
from dpca.system.buffers import Buffer

MEMBER = "member"
"""The coordinate that names the member of an ensemble that each sample is of."""
KEPT_OPEN, KEPT_BYTES = 128, 2**27
"""Most files that a reader keeps open, and most memory that they take; others are opened for each read (1.5 ms in HDF5)."""
OPENED_BYTES, OPENED_CHUNKS = 2**20, 4
"""Memory of an open file: 0.7 MB in HDF5 (measured), and buffers of a chunk."""
UNPACKED_VALUES = 2**16
"""Values that are unpacked at a time, in the cache."""


@dataclass(frozen=True)
class Member:
    """One of the files, and its place among all samples."""

    source: Source
    start: int
    stop: int
    conversion: Conversion
    """The change of its times to the units of the first file."""


@dataclass(frozen=True)
class Along:
    """The coordinate of all samples."""

    name: str
    dtype: Any
    parts: Parts
    attributes: dict[str, Any]


class _JoinedReader(Reader):
    def __init__(
        self,
        layout: Layout,
        axis: int,
        members: Sequence[Member],
        along: Along | None,
        n_open: int,
        stack: ExitStack,
        ensemble: bool,
    ) -> None:
        super().__init__(layout)
        self._ensemble = ensemble
        self._axis, self._members, self._along = axis, members, along
        self._n_open, self._stack, self._kept = n_open, stack, dict[int, Reader]()
        self._part = Buffer()

    def _among(self, samples: slice) -> Iterator[tuple[int, slice, slice]]:
        """The files that have some of the samples: number, the samples in the file, and in the whole."""
        for number, member in enumerate(self._members):
            start, stop = max(samples.start, member.start), min(samples.stop, member.stop)
            if start < stop:
                yield number, slice(start - member.start, stop - member.start), slice(start, stop)

    @contextmanager
    def _opened(self, number: int, keep: bool = False) -> Iterator[Reader]:
        """A file's reader, which stays open if not too many do, or if it is to be kept."""
        if number in self._kept:
            yield self._kept[number]
        elif keep or len(self._kept) < self._n_open:
            yield self._kept.setdefault(number, self._stack.enter_context(self._reader(number)))
        else:
            with self._reader(number) as reader:
                yield reader

    @contextmanager
    def _reader(self, number: int) -> Iterator[Reader]:
        source = self._members[number].source
        with ExitStack() as stack:
            try:
                reader = stack.enter_context(source.open())
            except OSError as cause:
                raise StorageError(
                    f"{source.layout.name}: can't be opened: {cause.strerror or cause}", "See who removes or locks it."
                ) from cause
            reader._buffer = self._part  # one for all files, as only one is read at a time
            yield reader

    def read(self, region: Region) -> NDArray[Any]:
        for following in islice(self._to_come, 1):
            self.expect(following)
        out = self._buffer.view(extent(region), self.layout.dtype)
        samples = region[self._axis]
        for number, inside, whole in self._among(samples):
            place = slice(whole.start - samples.start, whole.stop - samples.start)
            with self._opened(number) as reader:
                self._take(reader, placed(region, self._axis, inside), out[(slice(None),) * self._axis + (place,)])
        self.bytes_read += out.nbytes
        return out

    def _take(self, reader: Reader, region: Region, target: NDArray[Any]) -> None:
        """Read a region of a file into its place."""
        absent, retries = reader.absent_chunks, reader.retries
        reader.will_read([region])
        values = reader.read(region)
        self.absent_chunks += reader.absent_chunks - absent
        self.retries += reader.retries - retries
        if encoding_of(reader.layout) == encoding_of(self.layout):
            target[...] = values
            return
        factor, offset = reader.layout.packing
        for box, _, _ in split(values.shape, UNPACKED_VALUES):
            block = values[box].astype(np.float64)
            missing = reader.layout.marked(block)
            block *= factor
            block += offset
            block[missing] = np.nan
            target[box] = block

    def expect(self, region: Region) -> None:
        for number, inside, _ in self._among(region[self._axis]):
            if number in self._kept:
                self._kept[number].expect(placed(region, self._axis, inside))

    def _read(self, region: Region) -> NDArray[Any]:
        raise AssertionError  # `read` never calls it

    def coordinate(self, axis: int) -> Coordinate | None:
        if axis != self._axis or self._along is None:
            with self._opened(0, keep=True) as reader:
                found, self.left_out = reader.coordinate(axis), reader.left_out
            # The plan counts what comparing it with another file's took, too.
            return found and replace(found, parts=replace(found.parts, chunk_bytes=2 * found.parts.chunk_bytes))
        name, dtype, parts = self._along.name, self._along.dtype, self._along.parts
        shape = (self.layout.shape[axis],)
        return Coordinate(name, Vector(name, shape, dtype, self._samples, parts), parts, self._along.attributes)

    def auxiliaries(self) -> Sequence[Auxiliary]:
        with self._opened(0, keep=True) as reader:
            found = [one for one in reader.auxiliaries() if self._axis not in one.axes]
        return [*found, self._of_members()] if self._ensemble else found

    def _of_members(self) -> Auxiliary:
        """The name of the file of each sample, without what all names share."""
        stems = [
            os.path.basename(member.source.layout.name.partition(":")[0]).partition(".")[0] for member in self._members
        ]
        names = stems if len(set(stems)) == len(stems) else [member.source.layout.name for member in self._members]
        lengths = [member.stop - member.start for member in self._members]
        return Auxiliary.of((self._axis,), MEMBER, np.repeat(np.array(names), lengths))

    def _samples(self, samples: slice) -> NDArray[Any]:
        """A part of the coordinate of all samples."""
        assert self._along is not None
        out: NDArray[Any] = np.empty(samples.stop - samples.start, self._along.dtype)
        for number, inside, whole in self._among(samples):
            with self._opened(number) as reader:
                found = told_by(reader, self._axis)
                assert found is not None  # as when the files were compared
                part = self._members[number].conversion(found.values[inside])
                out[whole.start - samples.start : whole.stop - samples.start] = part
        return out


class JoinedSource(Source):
    """Arrays that follow each other along the samples; `dpca.sources.joining.join` makes one of files that belong together.

    Parameters
    ----------
    layout : of the whole
    axis : of the samples
    members : in the order of the samples
    along : the coordinate of the samples, if there is one
    ensemble : whether the files are members of an ensemble, of which each sample is named
    """

    def __init__(
        self, layout: Layout, axis: int, members: Sequence[Member], along: Along | None, ensemble: bool = False
    ) -> None:
        self.layout, self._axis, self._members, self._along = layout, axis, tuple(members), along
        self._ensemble = ensemble

    def restrict(self, region: Region) -> Self:
        samples, members = region[self._axis], []
        for member in self._members:
            start, stop = max(samples.start, member.start), min(samples.stop, member.stop)
            if start < stop:
                inside = placed(region, self._axis, slice(start - member.start, stop - member.start))
                members.append(replace(member, source=member.source.restrict(inside)))
        return type(self)(self.layout, self._axis, members, self._along, self._ensemble)

    def held(self, shape: tuple[int, ...]) -> dict[str, int]:
        longest: dict[Any, Member] = {}
        for member in self._members:
            kind = type(member.source), member.source.layout.chunk_shape, member.source.layout.codec
            longest[kind] = max(longest.get(kind, member), member, key=lambda member: member.stop - member.start)
        parts: dict[str, int] = {}
        for member in longest.values():
            length = min(shape[self._axis], member.stop - member.start)
            of_part = (*shape[: self._axis], length, *shape[self._axis + 1 :])
            for name, n_bytes in member.source.held(of_part).items():
                parts[name] = max(n_bytes, parts.get(name, 0))
        layouts = [member.source.layout for member in self._members]
        kept = most_open(layouts) * _opened_bytes(layouts)
        slab, part = size_of(shape, self.layout.dtype), parts.pop("slab", 0)
        return {"slab": slab, "part of a slab, from one file": part, **parts, "files kept open": kept}

    @contextmanager
    def open(self) -> Iterator[Reader]:
        allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        layouts = [member.source.layout for member in self._members]
        n_open = max(1, min(most_open(layouts), allowed // (4 * (os.cpu_count() or 1))))
        with ExitStack() as stack:
            yield _JoinedReader(self.layout, self._axis, self._members, self._along, n_open, stack, self._ensemble)

    def beside(self, name: str) -> Source:
        """That of the first file, as are the coordinates of features."""
        if self._ensemble and name == MEMBER:
            with self.open() as reader:
                return of_auxiliary(name, self.layout, reader.auxiliaries())
        return self._members[0].source.beside(name)

    def stored_bytes(self) -> int | None:
        sizes = [member.source.stored_bytes() for member in self._members]
        known = [size for size in sizes if size is not None]
        return sum(known) if len(known) == len(sizes) else None

    @property
    def place(self) -> tuple[str | list[str], str | None] | None:
        places = [member.source.place for member in self._members]
        paths = [place[0] for place in places if place is not None and isinstance(place[0], str)]
        arrays = {place[1] for place in places if place is not None}
        return (paths, arrays.pop()) if len(paths) == len(places) and len(arrays) == 1 else None

    @property
    def knows(self) -> Kinds:
        return kinds_of([member.source for member in self._members])

    def about(self, kind: type[A]) -> A | None:
        sources = [member.source for member in self._members]
        return kind.joined([one.layout.name for one in sources], [one.about(kind) for one in sources])

    def fingerprint(self) -> dict[str, Any]:
        names = _short([member.source.layout.name for member in self._members])
        files = [member.source.fingerprint() for member in self._members]
        for file in files:
            file.pop("uri", None)  # their places do not matter
        return {
            "kind": "joined",
            "uri": self.layout.name,
            "order": names,
            "files": dict(zip(names, files, strict=True)),
        }

    def state(self, region: Region) -> str | None:
        digest = hashlib.sha256()
        for member in self.restrict(region)._members:
            start, stop = (max(member.start, region[self._axis].start), min(member.stop, region[self._axis].stop))
            inside = placed(region, self._axis, slice(start - member.start, stop - member.start))
            digest.update(f"{member.source.state(inside)}\n".encode())
        return digest.hexdigest()


def most_open(layouts: Sequence[Layout]) -> int:
    """The number of files that a reader keeps open."""
    return max(1, min(KEPT_OPEN, len(layouts), KEPT_BYTES // _opened_bytes(layouts)))


def _opened_bytes(layouts: Sequence[Layout]) -> int:
    return OPENED_BYTES + OPENED_CHUNKS * max((layout.chunk_bytes for layout in layouts), default=0)


def encoding_of(layout: Layout) -> tuple[Any, ...]:
    """Encoding of stored values: their packing, and which of them are missing."""
    return layout.packing, layout.missing_values, layout.valid_range


def _short(names: Sequence[str]) -> list[str]:
    """Paths without the folders that all of them share."""
    paths = [name.split("/") for name in names]
    shared = len(list(takewhile(lambda level: len(set(level)) == 1, zip(*(path[:-1] for path in paths), strict=False))))
    return ["/".join(path[shared:]) for path in paths]
