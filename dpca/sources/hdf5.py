"""HDF5 datasets, netCDF-4 included: contiguous, chunked, with the filters of hdf5plugin."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import h5py
import numpy as np
from numpy.typing import NDArray

from dpca.errors import DataError, InputError
from dpca.settings import INPUT
from dpca.slabs import extent
from dpca.sources.anndata_layout import Sparse
from dpca.sources.base import Layout, Reader, Region, Source, check_dtype, shifted, size_of, within
from dpca.sources.cf import cf_attributes
from dpca.sources.coordinate import Auxiliary, Coordinate
from dpca.sources.file import file_facts, file_state
from dpca.sources.hdf5_chunks import DecodedChunks
from dpca.sources.hdf5_container import Hdf5Container, dimension
from dpca.sources.hdf5_files import Checks, chunks_behind, files_behind, filters_of, opened
from dpca.sources.matrices import matrix_at, sparse_at
from dpca.sources.sparse import SparseSource
from dpca.system.buffers import Buffer

PIECES_A_CALL = 200
"""One call of h5py costs as much as this many reads inside HDF5 (0.2 ms, 1 us)."""


class _Hdf5Reader(Reader):
    def __init__(self, layout: Layout, dataset: h5py.Dataset, fill: bool, beyond: NDArray[Any] | None) -> None:
        super().__init__(layout)
        self._beyond = beyond
        self.dataset, self._fill, self._part = dataset, fill, Buffer()
        self._incomplete = _absent(dataset) > 0
        self._decoded = DecodedChunks.of(dataset)
        self._checks = Checks(dataset)
        self._container = Hdf5Container(dataset.file)

    def _read(self, region: Region) -> NDArray[Any]:
        out = self._buffer.view(extent(region), self.layout.in_storage)
        stored = self._stored(region)
        if stored != region:
            out[...] = self._beyond
        if all(piece.start < piece.stop for piece in stored):
            self._read_stored(stored, region, out)
        return out

    def _stored(self, region: Region) -> Region:
        """The part of a region that the dataset has: a netCDF variable may be shorter than its unlimited dimension."""
        return tuple(
            slice(min(piece.start, length), min(piece.stop, length))
            for piece, length in zip(region, self.dataset.shape, strict=True)
        )

    def _read_stored(self, stored: Region, region: Region, out: NDArray[Any]) -> None:
        """Read the part of a region that the dataset has, to its place in the array of the whole region."""
        if self._incomplete:
            self._count_absent(stored)
        if self._decoded is not None:
            self._read_decoded(self._decoded, stored, region, out)
            return
        self._checks.check(stored)
        if _scattered(self.layout, out.shape):
            for _, piece in self._chunks_in(stored):
                part = self._part.view(extent(piece), self.layout.in_storage)
                self.dataset.read_direct(part, source_sel=piece)
                out[within(piece, region)] = part
            return
        for piece in self._calls(stored) if self.dataset.chunks else [stored]:
            self.dataset.read_direct(out, source_sel=piece, dest_sel=within(piece, region))

    def expect(self, region: Region) -> None:
        stored = self._stored(region)
        if self._decoded is not None and all(piece.start < piece.stop for piece in stored):
            for index, _ in self._chunks_in(stored):
                self._decoded.expect(self._corner(index))

    def _corner(self, index: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(number * length for number, length in zip(index, self.layout.chunk_shape, strict=True))

    def _read_decoded(self, chunks: DecodedChunks, stored: Region, region: Region, out: NDArray[Any]) -> None:
        """Read chunk by chunk, and decode without HDF5's lock."""
        for index, piece in self._chunks_in(stored):
            target = out[within(piece, region)]
            corner = self._corner(index)
            if not chunks.read(corner, shifted(piece, corner), target):
                self._checks.check(piece)
                self.dataset.read_direct(out, source_sel=piece, dest_sel=within(piece, region))

    def _count_absent(self, region: Region) -> None:
        for index, piece in self._chunks_in(region) if self.dataset.chunks else [((0,) * len(region), region)]:
            if self.dataset.chunks:
                if not self._begins_in(index, piece):
                    continue
                if self.dataset.id.get_chunk_info_by_coord(self._corner(index)).byte_offset is not None:
                    continue
            self.absent_chunks += 1
            if not self._fill:
                raise DataError(
                    f"{self.layout.name}: chunk {index} was never written, and absent_chunks is 'error'",
                    f"Write it, or set {INPUT.absent_chunks.at('fill')} to read it as the dataset's fill value "
                    f"({self.dataset.fillvalue}).",
                )

    def coordinate(self, axis: int) -> Coordinate | None:
        return self._container.coordinate(self.dataset.name, axis, self.layout, self.left_out)

    def auxiliaries(self) -> Sequence[Auxiliary]:
        return self._container.auxiliaries(self.dataset.name, self.dataset.attrs, self.layout, self.left_out)


class Hdf5Source(Source):
    """A dataset of an HDF5 file, opened anew by each task.

    Parameters
    ----------
    path : the file
    array : path of the dataset inside; may be left out if only one has two or more axes
    absent_chunks : "fill" or "error"
    """

    def __init__(self, path: str | Path, array: str | None = None, absent_chunks: str = "fill") -> None:
        self._path, self._fill = os.fspath(path), absent_chunks == "fill"
        self._open: h5py.Dataset | None = None
        self._alone = ""
        """The driver of a file that only this process can read."""
        with opened(self._path) as file:
            self._array = _path_of(file, array)
            dataset = file[self._array]
            self._behind = files_behind(dataset)
            self._check_inside(dataset)
            self.layout = self._describe(dataset, _netcdf_shape(dataset))

    @classmethod
    def of(cls, dataset: h5py.Dataset) -> Hdf5Source:
        """The source of a dataset that is already open; within this process that one is used.

        Other processes open its file by name, unless no file has this name and these bytes: then only this process reads it.
        """
        source = object.__new__(cls)
        source._path, source._array, source._fill = dataset.file.filename, dataset.name, True
        source._open, source._alone = dataset, "" if _has_file(dataset.file) else dataset.file.driver
        source._behind = files_behind(dataset)
        source.layout = source._describe(dataset, dataset.shape)
        return source

    def _check_inside(self, dataset: h5py.Dataset) -> None:
        """Refuse values that lie elsewhere: the author of the file could make dpca read any other file.

        Parts of a virtual dataset may lie in the folder of the file or below.
        """
        if not os.path.samefile(dataset.file.filename, self._path):
            raise InputError(
                f"{self._path}:{self._array}: is a link to another file, {dataset.file.filename}",
                f"Name that file in {INPUT.uri}.",
                key="input.uri",
            )
        here = Path(self._path).resolve().parent
        for path in self._behind:
            if here not in Path(path).resolve().parents:
                raise InputError(
                    f"{self._path}:{self._array}: has its values in {path}, which is not in {here}",
                    "Put the files side by side, or copy the values into one (h5repack).",
                    key="input.uri",
                )

    def _describe(self, dataset: h5py.Dataset, shape: tuple[int, ...]) -> Layout:
        """The layout of a dataset, as an array of a shape that may be longer: what is beyond the dataset is missing."""
        name = f"{self._path}:{dataset.name.lstrip('/')}"
        if self._alone:
            name = f"the h5py dataset {dataset.name}"
        if dataset.shape is None:
            raise InputError(
                f"{name}: is an empty dataset (h5py.Empty), without any axis",
                "PCA needs samples and features: name another one.",
                key="input.array",
            )
        check_dtype(name, dataset.dtype)
        chunks, divisible, codec = dataset.chunks, _divisible(dataset), filters_of(dataset)
        if dataset.is_virtual:
            chunks, codec = chunks_behind(dataset)
        layout = Layout(
            name,
            shape,
            chunks=chunks or (1,) * dataset.ndim,
            divisible=divisible,
            codec=codec,
            dims=tuple(dimension(dataset, axis) for axis in range(dataset.ndim)),
            **cf_attributes(name, dataset.attrs, dataset.dtype, dataset.fillvalue),
        )
        if shape == dataset.shape:
            return layout
        there = [
            f"{length:,} of the {whole:,} entries along its unlimited dimension {layout.dims[axis] or axis!r}"
            for axis, (length, whole) in enumerate(zip(dataset.shape, shape, strict=True))
            if length < whole
        ]
        holds = f"it holds {' and '.join(there)}"
        if _missing(layout) is None:
            raise InputError(
                f"{name}: {holds}, and has no _FillValue, so that nothing of type {dataset.dtype} can stand for the others",
                "Write the others, or give it a _FillValue.",
                key="input.array",
            )
        return replace(layout, remarks=(f"{holds}, and the others are missing",))

    def __getstate__(self) -> dict[str, Any]:
        if self._alone:
            raise InputError(
                f"{self.layout.name}: its file is open in this process alone (driver {self._alone}), and workers can't open it",
                "Write it to a file, open that with h5py.File(path), and fit its dataset; or fit without a client.",
            )
        return {**self.__dict__, "_open": None}

    def held(self, shape: tuple[int, ...]) -> dict[str, int]:
        slab = {"slab": size_of(shape, self.layout.dtype)}
        if not self.layout.chunked:
            return slab
        held = {**slab, "bookkeeping of chunks": self.layout.bookkeeping_bytes}
        if _scattered(self.layout, shape):
            held["part of a chunk"] = size_of(_part_of(self.layout, shape), self.layout.dtype)
        if self.layout.codec == "none":
            return held
        chunk = self.layout.chunk_bytes
        return {**held, "chunk as stored": chunk, "chunk as decoded": chunk, "chunk put together from its bytes": chunk}

    @contextmanager
    def open(self) -> Iterator[Reader]:
        if self._open is not None:
            yield self._reader(self._open)
            return
        with opened(self._path) as file:
            yield self._reader(file[self._array])

    def _reader(self, dataset: h5py.Dataset) -> Reader:
        return _Hdf5Reader(self.layout, dataset, self._fill, _missing(self.layout))

    def beside(self, name: str) -> Source:
        with self.open() as reader:
            dataset = cast(_Hdf5Reader, reader).dataset
            found = Hdf5Container(dataset.file).beside(dataset.name, name)
            assert found is not None
            return Hdf5Source(self._path, found.name) if self._open is None else Hdf5Source.of(found)

    def stored_bytes(self) -> int | None:
        with self.open() as reader:
            return int(cast(_Hdf5Reader, reader).dataset.id.get_storage_size())

    @property
    def place(self) -> tuple[str, str | None] | None:
        return None if self._alone else (os.path.abspath(self._path), self._array.lstrip("/"))

    def fingerprint(self) -> dict[str, Any]:
        if self._alone:
            return {"kind": "h5py", "array": self._array.strip("/"), "shape": list(self.layout.shape)}
        facts = {"kind": "hdf5", "uri": self._path, "array": self._array.strip("/"), **file_facts(self._path)}
        others = {path: file_facts(path) for path in self._behind if os.path.exists(path)}
        return {**facts, "files": others} if others else facts

    def state(self, region: Region) -> str | None:
        return None if self._alone else ", ".join(map(file_state, (self._path, *self._behind)))


def _has_file(file: h5py.File) -> bool:
    """Whether a regular file has the name and the bytes of an open HDF5 file, which may be in memory or in several files."""
    plain = file.driver in ("sec2", "stdio", "direct") or (file.driver == "core" and file.mode == "r")
    return plain and os.path.isfile(file.filename)


def _netcdf_shape(dataset: h5py.Dataset) -> tuple[int, ...]:
    """The shape of a netCDF variable, which along an unlimited dimension is that of the longest variable there.

    Source: NetCDF-4 format specification, "Dimensions" (appendix of the NetCDF Users Guide).
    """
    shape: list[int] = list(dataset.shape or ())
    for axis, most in enumerate(dataset.maxshape or ()):
        scales = dataset.dims[axis]
        if most is None and len(scales) and scales[0].maxshape == (None,):
            along = [(scales[0], 0), *_users(scales[0])]
            shape[axis] = max(shape[axis], *(one.shape[number] for one, number in along))
    return tuple(shape)


def _users(scale: h5py.Dataset) -> Iterator[tuple[h5py.Dataset, int]]:
    """The datasets that a dimension scale is attached to, and the axis of each."""
    for reference, axis in scale.attrs.get("REFERENCE_LIST", ()):
        user = scale.file[reference] if reference else None
        if isinstance(user, h5py.Dataset) and 0 <= axis < user.ndim:
            yield user, int(axis)


def _missing(layout: Layout) -> NDArray[Any] | None:
    """A missing value as it would be in storage; None where no value marks one."""
    if layout.dtype.kind == "f":
        return np.array(np.nan, layout.dtype)
    limits = np.iinfo(layout.dtype) if layout.dtype.kind in "iu" else None
    for mark in layout.missing_values:
        if limits is not None and limits.min <= mark <= limits.max and mark == int(mark):
            return np.array(int(mark), layout.dtype).view(layout.in_storage)
    return None


def _scattered(layout: Layout, shape: Sequence[int]) -> bool:
    """Whether chunks would be scattered over a region in so many pieces that each is better read on its own.

    HDF5 reads an uncompressed chunk in pieces that are contiguous in the target: chunks of one column
    value by value (40 s for 160 MB, measured; 0.3 s when each is read on its own).
    """
    if not (layout.divisible and layout.chunked):
        return False
    part, run = _part_of(layout, shape), 1
    for inside, length in zip(reversed(part), reversed(shape), strict=True):
        run *= inside
        if inside < length:
            break
    return math.prod(part) > PIECES_A_CALL * run


def _part_of(layout: Layout, shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(map(min, layout.chunk_shape, shape))


def _divisible(dataset: h5py.Dataset) -> bool:
    """Whether HDF5 reads parts of chunks: no filters, and chunks larger than the cache with which the file was opened."""
    if dataset.chunks is None or dataset.id.get_create_plist().get_nfilters():
        return False
    _, cache, _ = dataset.id.get_access_plist().get_chunk_cache()
    return bool(math.prod(dataset.chunks) * dataset.dtype.itemsize > cache)


def _absent(dataset: h5py.Dataset) -> int:
    """Number of chunks that were never written; 1 for a contiguous dataset without storage."""
    if dataset.is_virtual:
        return 0
    if dataset.chunks is None:
        return int(dataset.id.get_offset() is None and dataset.id.get_storage_size() == 0)
    grid: int = math.prod(-(-length // chunk) for length, chunk in zip(dataset.shape, dataset.chunks, strict=True))
    return grid - int(dataset.id.get_num_chunks())


def _path_of(file: h5py.File, array: str | None) -> str:
    """Path of the dataset or sparse matrix that is meant; one that is a link is taken if it is named."""
    with suppress(OSError):  # a link to a missing file
        if array is not None and isinstance(file.get(array), h5py.Dataset):
            return array
    return Hdf5Container(file).meant(array)


def open_hdf5(
    path: str | Path, array: str | None = None, absent_chunks: str = "fill", column: str | None = None
) -> Source:
    """The source of a dataset or sparse matrix of a file; the parameters, and errors, are those of `Hdf5Source`.

    Parameters
    ----------
    column : of AnnData's table of features, which chooses some; None for all
    """
    path = os.fspath(path)

    def source(of: str) -> Hdf5Source:
        return Hdf5Source(path, of, absent_chunks)

    with opened(path) as file:
        found = _path_of(file, array)
        return matrix_at(Hdf5Container(file), found, f"{path}:{found.lstrip('/')}", source, column)


def of_group(group: h5py.Group, matrix: Sparse) -> SparseSource:
    """The source of a sparse matrix that is a group of an open file; within this process its datasets are used."""
    file = group.file
    name = f"{file.filename}:{group.name.lstrip('/')}"
    return sparse_at(
        Hdf5Container(file, _has_file(file)), group.name, name, matrix, lambda part: Hdf5Source.of(file[part])
    )
