"""HDF5 datasets, netCDF-4 included: contiguous, chunked, with the filters of hdf5plugin."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import h5py
import hdf5plugin  # noqa: F401  registers its filters with HDF5
import numpy as np
from numpy.typing import NDArray

from dpca.errors import DataError, InputError
from dpca.settings import INPUT
from dpca.slabs import extent
from dpca.sources.anndata_layout import Sparse, beside_others, categories_of, chosen, names_beside, without_parts
from dpca.sources.auxiliary import CHARACTERS, ArrayBeside, auxiliaries_of, of_characters, paths_beside
from dpca.sources.base import Buffer, Layout, Reader, Region, Source, check_dtype, shifted, size_of, within
from dpca.sources.cf import about_values, cf_attributes, coordinate_of, text_of
from dpca.sources.coordinate import TEXT_BYTES, Auxiliary, Coordinate, Parts, Vector, VectorTooLarge
from dpca.sources.hdf5_chunks import DecodedChunks, StoredChunks, stored_itemsize
from dpca.sources.npy import file_facts, file_state
from dpca.sources.selection import ChosenFeatures
from dpca.sources.sparse import PARTS, SparseSource, choose
from dpca.system import regular

MOST_VIRTUAL = 16
"""Deepest allowed nesting of virtual datasets: HDF5 follows them by recursion, on the stack."""
_COPY = "Copy the values into one file (h5repack)."
PIECES_A_CALL = 200
"""One call of h5py costs as much as this many reads inside HDF5 (0.2 ms, 1 us)."""
# A netCDF dimension without values is stored as a scale whose NAME begins with this text.
_NETCDF_NO_VARIABLE = b"This is a netCDF dimension but not a netCDF variable"


class _Hdf5Reader(Reader):
    def __init__(self, layout: Layout, dataset: h5py.Dataset, fill: bool, beyond: NDArray[Any] | None) -> None:
        super().__init__(layout)
        self._beyond = beyond
        self.dataset, self._fill, self._part = dataset, fill, Buffer()
        self._incomplete = _absent(dataset) > 0
        self._decoded = DecodedChunks.of(dataset)
        self._checks = Checks(dataset)

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
        name, scale = _scale(self.dataset, axis)
        if not isinstance(scale, h5py.Dataset) or _elsewhere(scale):
            return None
        characters = scale.dtype == CHARACTERS and scale.ndim == 2
        if scale.shape[: 1 + (not characters)] != (self.layout.shape[axis],) or not _is_readable(scale):
            return None
        if bytes(scale.attrs.get("NAME", b"")).startswith(_NETCDF_NO_VARIABLE):
            return None
        try:
            values = _vector_of(scale, f"{self.layout.name}, coordinate {name}")
        except VectorTooLarge as cause:
            self.left_out.append(str(cause))
            return None
        return coordinate_of(name, of_characters(values) if characters else values, scale.attrs)

    def auxiliaries(self) -> Sequence[Auxiliary]:
        group = self.dataset.parent

        def beside(name: str) -> ArrayBeside | None:
            dataset = _beside(self.dataset, name)
            if dataset is None or not _is_readable(dataset):
                return None
            dims = [_dimension(dataset, axis) for axis in range(dataset.ndim)]
            return ArrayBeside(dims, _vector_of(dataset, f"{self.layout.name}, coordinate {name}"), dataset.attrs)

        return list(auxiliaries_of(self.layout, [self.dataset.attrs, group.attrs], beside, self.left_out))


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
        with _opened(self._path) as file:
            self._array = _find(self._path, file, array)
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
        chunks, divisible, codec = dataset.chunks, _divisible(dataset), _filters(dataset)
        if dataset.is_virtual:
            chunks, codec = _chunks_behind(dataset)
        layout = Layout(
            name,
            shape,
            chunks=chunks or (1,) * dataset.ndim,
            divisible=divisible,
            codec=codec,
            dims=tuple(_dimension(dataset, axis) for axis in range(dataset.ndim)),
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
        with _opened(self._path) as file:
            yield self._reader(file[self._array])

    def _reader(self, dataset: h5py.Dataset) -> Reader:
        return _Hdf5Reader(self.layout, dataset, self._fill, _missing(self.layout))

    def beside(self, name: str) -> Source:
        with self.open() as reader:
            found = _beside(cast(_Hdf5Reader, reader).dataset, name)
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


def _opened(path: str) -> h5py.File:
    """A file, opened for reading, without a cache: no chunk is read twice, and HDF5 reads a part of an
    uncompressed chunk only if the whole chunk does not fit into the cache."""
    try:
        regular.opened(path).close()  # HDF5 would wait for a pipe
        return h5py.File(path, "r", rdcc_nbytes=0)
    except OSError as cause:
        raise InputError(
            f"{path}: not readable as HDF5: {cause}", "Check that the file is whole and that no one writes it."
        ) from cause


def open_hdf5(
    path: str | Path, array: str | None = None, absent_chunks: str = "fill", column: str | None = None
) -> Hdf5Source | SparseSource | ChosenFeatures:
    """The source of a dataset or sparse matrix of a file; the parameters, and errors, are those of `Hdf5Source`.

    Parameters
    ----------
    column : of AnnData's table of features, which chooses some; None for all
    """
    path = os.fspath(path)
    with _opened(path) as file:
        found = _find(path, file, array)
        node = partial(_node, file)
        matrix = Sparse.of(node(found))
        source: Hdf5Source | SparseSource = (
            Hdf5Source(path, found, absent_chunks)
            if matrix is None
            else _sparse(node(found), matrix, lambda part: Hdf5Source(path, f"{found}/{part}", absent_chunks))
        )
        if column is None:
            return source
        return choose(source, found, column, node, _vector_of)


def of_group(group: h5py.Group, matrix: Sparse) -> SparseSource:
    """The source of a sparse matrix that is a group of an open file; within this process its datasets are used."""
    return _sparse(group, matrix, lambda part: Hdf5Source.of(group[part]))


def _sparse(group: h5py.Group, matrix: Sparse, source: Callable[[str], Hdf5Source]) -> SparseSource:
    """The sparse matrix that a group is; `source` gives that of one of its datasets."""
    path, node = group.file.filename, partial(_node, group.file)
    name = f"{path}:{group.name.lstrip('/')}"
    for part in PARTS:
        if not isinstance(_node(group, part), h5py.Dataset):
            raise InputError(
                f"{name}: is no sparse matrix: it has no array {part}", "Write it again.", key="input.array"
            )
    found = names_beside(group.name, node).items()
    labels = partial(_labels, path) if _has_file(group.file) else partial(_labels_of, node)
    names = {axis: (dim, partial(labels, at)) for axis, (dim, at) in found if node(at) is not None}
    return SparseSource(name, matrix, map(source, PARTS), names)


def _find(path: str, file: h5py.File, array: str | None) -> str:
    with suppress(OSError):  # a link to a missing file
        if array is not None and isinstance(file.get(array), h5py.Dataset):
            return array
    return chosen(path, arrays_of(file), array, partial(_node, file))


def _node(group: h5py.Group, path: str) -> Any:
    """The group or dataset at a path; None where there is none, and where it or its values lie in another file."""
    with suppress(OSError):  # a link to a missing file
        found = group.get(path or "/")
        if found is None or found.file.filename != group.file.filename:
            return None
        return None if isinstance(found, h5py.Dataset) and _elsewhere(found) else found
    return None


def _labels(path: str, array: str) -> Vector | None:
    """Labels along an axis; None where they are neither text nor numbers, or lie in other files."""
    with _opened(path) as file:
        if _labels_of(partial(_node, file), array) is None:
            return None
    return read_vector(path, array)


def _labels_of(node: Callable[[str], Any], array: str) -> Vector | None:
    """`_labels` of a file that is open."""
    dataset = node(array)
    if not isinstance(dataset, h5py.Dataset) or not _is_readable(dataset):
        return None
    return _vector_of(dataset, f"{dataset.file.filename}:{array}")


def arrays_of(file: h5py.File) -> dict[str, h5py.Dataset | Sparse]:
    """Every dataset of a file, by path; sparse matrices in place of the datasets that make them up."""
    try:
        arrays = {
            name: array
            for name, item in _items(file)
            if (array := item if isinstance(item, h5py.Dataset) else Sparse.of(item)) is not None
            and array.shape is not None
        }
    except RuntimeError as cause:
        raise InputError(
            f"{file.filename}: its groups are not readable: {cause}", "It is damaged: restore it from its source."
        ) from cause
    return without_parts(arrays)


def _items(file: h5py.File) -> Iterator[tuple[str, h5py.Group | h5py.Dataset]]:
    """Every group and dataset of a file by path, each once, in the order of names; links are not followed.

    h5py's own visit looks each up from the root, which takes the square of the depth.
    """
    seen = {h5py.h5o.get_info(file.id).addr}
    waiting: list[tuple[str, h5py.Group]] = [("", file)]
    while waiting:
        prefix, group = waiting.pop()
        below = []
        for name in sorted(group):
            if not isinstance(group.get(name, getlink=True), h5py.HardLink):
                continue
            item = group[name]
            address = h5py.h5o.get_info(item.id).addr if isinstance(item, h5py.Group | h5py.Dataset) else None
            if address is None or address in seen:
                continue
            seen.add(address)
            yield f"{prefix}{name}", item
            if isinstance(item, h5py.Group):
                below.append((f"{prefix}{name}/", item))
        waiting += below[::-1]


def list_datasets(path: str) -> list[tuple[str, tuple[int, ...], str, bool]]:
    """Path, shape and dtype of every dataset and sparse matrix of a file, and whether it stands beside another one."""
    with _opened(path) as file:
        arrays = arrays_of(file)
        beside = beside_others(arrays, partial(_node, file))
        return [(name, item.shape, str(item.dtype), name in beside) for name, item in arrays.items()]


def _filters(dataset: h5py.Dataset) -> str:
    """Names of a dataset's filters, in HDF5's own order."""
    properties = dataset.id.get_create_plist()
    filters = [properties.get_filter(number) for number in range(properties.get_nfilters())]
    return ", ".join(text_of(name).split(";")[0] or f"filter {code}" for code, _, _, name in filters) or "none"


def _divisible(dataset: h5py.Dataset) -> bool:
    """Whether HDF5 reads parts of chunks: no filters, and chunks larger than the cache with which the file was opened."""
    if dataset.chunks is None or dataset.id.get_create_plist().get_nfilters():
        return False
    _, cache, _ = dataset.id.get_access_plist().get_chunk_cache()
    return bool(math.prod(dataset.chunks) * dataset.dtype.itemsize > cache)


def files_behind(dataset: h5py.Dataset) -> list[str]:
    """The other files with values of a dataset: those of the parts of a virtual dataset, recursively."""
    files: dict[str, None] = {}
    visited: set[tuple[str, str]] = set()

    def visit(dataset: h5py.Dataset, above: tuple[tuple[str, int], ...]) -> None:
        name = f"{dataset.file.filename}:{dataset.name}"
        this = os.path.realpath(dataset.file.filename), h5py.h5o.get_info(dataset.id).addr
        if this in above or len(above) == MOST_VIRTUAL:
            what = "of itself" if this in above else f"of more than {MOST_VIRTUAL} others, each of the next"
            raise InputError(f"{name}: is a virtual dataset that is a part {what}", _COPY)
        if dataset.external:
            # HDF5 looks for a relative name in the directory in which it runs, which workers do not share.
            raise InputError(f"{name}: has its values in external storage, {dataset.external[0][0]}", _COPY)
        for part in dataset.virtual_sources() if dataset.is_virtual else ():
            path = _source_path(dataset, part)
            if part.file_name != ".":
                files[path] = None
            if (path, part.dset_name) not in visited:
                file, source = _open_part(dataset, part)
                with file:
                    visit(source, (*above, this))
                visited.add((path, part.dset_name))

    visit(dataset, ())
    return list(files)


def _open_part(dataset: h5py.Dataset, part: Any) -> tuple[h5py.File, h5py.Dataset]:
    """A part of a virtual dataset, with its file, which the caller closes."""
    whole, path = f"{dataset.file.filename}:{dataset.name}", _source_path(dataset, part)
    # HDF5 knows the variable as it was when it started as well.
    prefix = os.environ.get("HDF5_VDS_PREFIX") or dataset.id.get_access_plist().get_virtual_prefix().decode()
    if prefix:
        raise InputError(
            f"{whole}: is a virtual dataset, and HDF5 would look for its parts in {prefix}, by HDF5_VDS_PREFIX",
            "Unset HDF5_VDS_PREFIX, and put the files side by side.",
        )
    if not os.path.exists(path):
        raise InputError(
            f"{whole}: is a virtual dataset, and its source file {part.file_name} is absent",
            f"Put the file back: {path}.",
        )
    file = _opened(path)
    source = None
    with suppress(OSError):  # a link to a missing file
        source = file.get(part.dset_name)
    if not isinstance(source, h5py.Dataset):
        raise InputError(
            f"{whole}: is a virtual dataset, and its source {path}:{part.dset_name} is absent", "Put it back."
        )
    if h5py.h5o.get_info(source.id).fileno != h5py.h5o.get_info(file.id).fileno:
        raise InputError(
            f"{whole}: is a virtual dataset, and its source {path}:{part.dset_name} is a link to another file, "
            f"{source.file.filename}",
            "Name that file in the virtual dataset, or copy the values into one file (h5repack).",
        )
    return file, source


class Checks:
    """Checks of stored chunks before HDF5 decodes them; for a virtual dataset, of the chunks of its parts."""

    def __init__(self, dataset: h5py.Dataset) -> None:
        self._dataset, self._chunks = dataset, StoredChunks.of(dataset)
        parts = dataset.virtual_sources() if dataset.is_virtual else []
        self._parts = {number: (part, _box(part.vspace, dataset.shape)[0]) for number, part in enumerate(parts)}
        self._met: dict[int, tuple[h5py.File, h5py.Dataset, Checks]] = {}
        """Parts met so far, with their open files: HDF5 keeps them open as well."""

    def __bool__(self) -> bool:
        return self._chunks is not None or bool(self._parts)

    def check(self, region: Region) -> None:
        """Refuse a region if one of its chunks does not hold as many bytes as belong there."""
        if self._chunks is not None:
            self._chunks.check(region)
        for number, (part, place) in list(self._parts.items()):
            if any(
                piece.start >= box.stop or piece.stop <= box.start for piece, box in zip(region, place, strict=True)
            ):
                continue
            if number not in self._met:
                file, source = _open_part(self._dataset, part)
                self._met[number] = file, source, Checks(source)
            _, source, inside = self._met[number]
            if inside:
                inside.check(_of_part(region, part, self._dataset.shape, source.shape))
            else:  # no chunk of this part is compressed
                del self._parts[number], self._met[number]


def _box(space: Any, shape: tuple[int, ...]) -> tuple[Region, bool]:
    """The bounding box of a selection, and whether the selection fills it."""
    everything = tuple(slice(0, length) for length in shape)
    if space.get_select_type() == h5py.h5s.SEL_ALL:
        return everything, True
    try:
        corners, n_values = zip(*space.get_select_bounds(), shape, strict=True), space.get_select_npoints()
    except RuntimeError:  # an unlimited selection, where the dataset may grow
        return everything, False
    box = tuple(slice(first, min(last + 1, length)) for first, last, length in corners)
    return box, math.prod(extent(box)) == n_values


def _of_part(region: Region, part: Any, whole: tuple[int, ...], shape: tuple[int, ...]) -> Region:
    """The region of a part that a region of the virtual dataset reads; all that is used of the part where that is unclear."""
    (place, full), (source, full_source) = _box(part.vspace, whole), _box(part.src_space, shape)
    lead = len(place) - len(source)
    lengths, of_source = (extent(box) for box in (place, source))
    if not (full and full_source and lead >= 0 and lengths == (1,) * lead + of_source):
        return source
    inside = within(tuple(map(_common, region, place)), place)[lead:]
    return tuple(slice(p.start + s.start, p.stop + s.start) for p, s in zip(inside, source, strict=True))


def _common(one: slice, other: slice) -> slice:
    return slice(max(one.start, other.start), min(one.stop, other.stop))


def read_vector(path: str, array: str) -> Vector | None:
    """A small array in a file that is opened anew for each read; None if there is no such array."""
    with _opened(path) as file:
        dataset = file.get(array)
        if not isinstance(dataset, h5py.Dataset):
            return None
        if not os.path.samefile(dataset.file.filename, path) or _elsewhere(dataset):
            raise ValueError("its values lie in another file")
        if dataset.shape is None:
            raise ValueError("it is empty (h5py.Empty)")
        described = replace(_vector_of(dataset, f"{path}:{array}"), attributes=about_values(dataset.attrs))

    def read(piece: slice) -> Any:
        with _opened(path) as file:
            return _vector_of(file[array], described.name)[piece]

    return replace(described, read=read)


def _beside(dataset: h5py.Dataset, name: str) -> h5py.Dataset | None:
    """The dataset of that name in the nearest group of another one; None where there is none."""
    nodes = (_node(dataset.file, path) for path in paths_beside(dataset.name, name))
    return next((node for node in nodes if isinstance(node, h5py.Dataset)), None)


def _is_readable(dataset: h5py.Dataset) -> bool:
    """Whether values are numbers or text."""
    return dataset.shape is not None and (
        h5py.check_string_dtype(dataset.dtype) is not None or dataset.dtype.kind in "biuf"
    )


def categories_in(path: str, array: str) -> tuple[str, str] | None:
    """`categories_of` for a column in a file."""
    with _opened(path) as file:
        return categories_of(array, partial(_node, file))


def _elsewhere(dataset: h5py.Dataset) -> bool:
    """Whether values lie in other files, which could be any file."""
    return bool(dataset.is_virtual or dataset.external)


def _vector_of(dataset: h5py.Dataset, name: str) -> Vector:
    """An open dataset as a small array, read in parts."""
    parts = _parts_of(dataset)
    Vector.check(name, parts)
    values, checks = dataset.asstr() if h5py.check_string_dtype(dataset.dtype) else dataset, Checks(dataset)

    def read(piece: slice) -> Any:
        checks.check((piece,) * min(1, dataset.ndim))
        return values[piece if dataset.ndim else ()]

    return Vector(name, dataset.shape, values.dtype, read, parts)


def _parts_of(dataset: h5py.Dataset) -> Parts:
    """The parts in which a dataset can be read along its first axis."""
    if dataset.ndim > 1:
        return Parts.of_rows(dataset.dtype, dataset.shape, (dataset.chunks or (1,))[0])
    chunk = math.prod(dataset.chunks or ())
    string = h5py.check_string_dtype(dataset.dtype)
    if string is not None and string.length is None:
        # A chunk holds the addresses of the texts, and HDF5 fetches only the requested ones.
        return Parts(TEXT_BYTES, 1, chunk * stored_itemsize(dataset) if dataset.chunks else 0)
    return Parts.of(dataset.dtype, chunk)


def _source_path(dataset: h5py.Dataset, part: Any) -> str:
    """The file of a part of a virtual dataset, whose name is relative to the folder of that dataset."""
    whole: str = dataset.file.filename
    for name in (part.file_name, part.dset_name):
        if "%" in name:
            raise InputError(
                f"{whole}:{dataset.name}: is a virtual dataset with the pattern {name} in place of a source, and only names "
                "without % are allowed",
                _COPY,
            )
    return whole if part.file_name == "." else str(os.path.join(os.path.dirname(whole), part.file_name))


def _chunks_behind(dataset: h5py.Dataset) -> tuple[tuple[int, ...] | None, str]:
    """Chunk shape (None without chunks) and filters of a virtual dataset, taken from its first source.

    Sources with fewer axes have the trailing axes of the whole, as when files of one sample each are stacked.
    If the chunks of the sources do not form a regular grid, the whole counts as one chunk.
    """
    parts = dataset.virtual_sources()
    if not parts:
        return None, "none"
    first, ndim = parts[0], dataset.ndim
    file, source = _open_part(dataset, first)
    with file:
        if source.chunks is None:
            return None, "none"
        chunks = (1,) * (ndim - source.ndim) + source.chunks[-ndim:]
        boxes = [_box(part.vspace, dataset.shape)[0] for part in parts]
        aligned = all(piece.start % chunk == 0 for box in boxes for piece, chunk in zip(box, chunks, strict=True))
        return chunks if aligned else dataset.shape, _filters(source)


def _absent(dataset: h5py.Dataset) -> int:
    """Number of chunks that were never written; 1 for a contiguous dataset without storage."""
    if dataset.is_virtual:
        return 0
    if dataset.chunks is None:
        return int(dataset.id.get_offset() is None and dataset.id.get_storage_size() == 0)
    grid: int = math.prod(-(-length // chunk) for length, chunk in zip(dataset.shape, dataset.chunks, strict=True))
    return grid - int(dataset.id.get_num_chunks())


def _dimension(dataset: h5py.Dataset, axis: int) -> str | None:
    return str(dataset.dims[axis].label) or _scale(dataset, axis)[0] or None


def _scale(dataset: h5py.Dataset, axis: int) -> tuple[str, Any]:
    """Name and values of the first scale of an axis, or of AnnData's labels in its place; "" and None without any."""
    scales = dataset.dims[axis]
    if len(scales):
        return _last(scales[0].name), scales[0]
    node = partial(_node, dataset.file)
    name, path = names_beside(dataset.name or "", node).get(axis, ("", ""))
    if isinstance(names := node(path), h5py.Dataset):
        return name, names
    return "", None


def _last(name: str | None) -> str:
    return (name or "").rsplit("/", 1)[-1]
