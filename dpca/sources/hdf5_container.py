"""The groups and datasets of an HDF5 file: names, coordinates and labels beside a dataset, netCDF-4 and AnnData included."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import h5py

from dpca.errors import InputError
from dpca.sources.anndata_layout import Sparse, categories_of, names_beside, without_parts
from dpca.sources.cf import about_values
from dpca.sources.container import Container, Listed
from dpca.sources.coordinate import TEXT_BYTES, Parts, Vector
from dpca.sources.hdf5_chunks import stored_itemsize
from dpca.sources.hdf5_files import Checks, elsewhere, opened

# A netCDF dimension without values is stored as a scale whose NAME begins with this text.
_NETCDF_NO_VARIABLE = b"This is a netCDF dimension but not a netCDF variable"


class Hdf5Container(Container):
    """An open HDF5 file.

    Parameters
    ----------
    reopens : whether a file of its name holds the same, so that labels can be read when this one is closed
    """

    def __init__(self, file: h5py.File, reopens: bool = True) -> None:
        self._file, self._reopens, self.shown = file, reopens, os.fspath(file.filename)

    def node(self, path: str) -> Any:
        """The node at a path; None also where it or its values lie in another file."""
        return node_of(self._file, path)

    def arrays(self) -> dict[str, h5py.Dataset | Sparse]:
        try:
            arrays = {
                name: array
                for name, item in _items(self._file)
                if (array := item if isinstance(item, h5py.Dataset) else Sparse.of(item)) is not None
                and array.shape is not None
            }
        except RuntimeError as cause:
            raise InputError(
                f"{self.shown}: its groups are not readable: {cause}", "It is damaged: restore it from its source."
            ) from cause
        return without_parts(arrays)

    def is_array(self, node: Any) -> bool:
        return isinstance(node, h5py.Dataset)

    def is_readable(self, array: Any) -> bool:
        return array.shape is not None and (
            h5py.check_string_dtype(array.dtype) is not None or array.dtype.kind in "biuf"
        )

    def attributes(self, node: Any) -> Mapping[str, Any]:
        attributes: Mapping[str, Any] = node.attrs
        return attributes

    def dims(self, array: Any) -> Sequence[str | None]:
        return [dimension(array, axis) for axis in range(array.ndim)]

    def along(self, path: str, axis: int, dim: str | None) -> tuple[str, Any]:
        name, scale = _scale(self._file[path], axis)
        if not isinstance(scale, h5py.Dataset) or elsewhere(scale):
            return name, None
        if bytes(scale.attrs.get("NAME", b"")).startswith(_NETCDF_NO_VARIABLE):
            return name, None
        return name, scale

    def vector(self, array: Any, name: str) -> Vector:
        return vector_of(array, name)

    def labels(self, path: str, name: str) -> Callable[[], Vector | None]:
        return partial(_labels, self.shown, path) if self._reopens else partial(self._vector_at, path)

    def _vector_at(self, path: str) -> Vector | None:
        array = self.readable_at(path)
        return None if array is None else vector_of(array, f"{self.shown}:{path}")

    def readable_at(self, path: str) -> h5py.Dataset | None:
        """The dataset at a path; None where it is none of numbers or text, or lies in other files."""
        array = self.node(path)
        return array if self.is_array(array) and self.is_readable(array) else None


def _labels(path: str, array: str) -> Vector | None:
    """Labels in a file that is opened for them; None where they are neither text nor numbers, or lie in other files."""
    with opened(path) as file:
        if Hdf5Container(file).readable_at(array) is None:
            return None
    return read_vector(path, array)


def list_datasets(path: str) -> list[Listed]:
    """Path, shape and dtype of every dataset and sparse matrix of a file, and whether it stands beside another one."""
    with opened(path) as file:
        return Hdf5Container(file).listed()


def node_of(group: h5py.Group, path: str) -> Any:
    """The group or dataset at a path; None where there is none, and where it or its values lie in another file."""
    with suppress(OSError):  # a link to a missing file
        found = group.get(path or "/")
        if found is None or found.file.filename != group.file.filename:
            return None
        return None if isinstance(found, h5py.Dataset) and elsewhere(found) else found
    return None


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


def read_vector(path: str, array: str) -> Vector | None:
    """A small array in a file that is opened anew for each read; None if there is no such array."""
    with opened(path) as file:
        dataset = file.get(array)
        if not isinstance(dataset, h5py.Dataset):
            return None
        if not os.path.samefile(dataset.file.filename, path) or elsewhere(dataset):
            raise ValueError("its values lie in another file")
        if dataset.shape is None:
            raise ValueError("it is empty (h5py.Empty)")
        described = replace(vector_of(dataset, f"{path}:{array}"), attributes=about_values(dataset.attrs))

    def read(piece: slice) -> Any:
        with opened(path) as file:
            return vector_of(file[array], described.name)[piece]

    return replace(described, read=read)


def categories_in(path: str, array: str) -> tuple[str, str] | None:
    """`categories_of` for a column in a file."""
    with opened(path) as file:
        return categories_of(array, partial(node_of, file))


def vector_of(dataset: h5py.Dataset, name: str) -> Vector:
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


def dimension(dataset: h5py.Dataset, axis: int) -> str | None:
    """The name of an axis, by its label, its first scale or AnnData; None without any."""
    return str(dataset.dims[axis].label) or _scale(dataset, axis)[0] or None


def _scale(dataset: h5py.Dataset, axis: int) -> tuple[str, Any]:
    """Name and values of the first scale of an axis, or of AnnData's labels in its place; "" and None without any."""
    scales = dataset.dims[axis]
    if len(scales):
        return _last(scales[0].name), scales[0]
    node = partial(node_of, dataset.file)
    name, path = names_beside(dataset.name or "", node).get(axis, ("", ""))
    if isinstance(names := node(path), h5py.Dataset):
        return name, names
    return "", None


def _last(name: str | None) -> str:
    return (name or "").rsplit("/", 1)[-1]
