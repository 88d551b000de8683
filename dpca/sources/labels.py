"""A label or a name for each sample, or each feature, from a file of its own."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpca.errors import DpcaError, InputError
from dpca.settings import INPUT, Setting
from dpca.sources import is_hdf5, list_arrays, netcdf3
from dpca.sources.anndata_layout import categories_of
from dpca.sources.base import Source
from dpca.sources.cf import about_values
from dpca.sources.columns import column_of, matched
from dpca.sources.coordinate import Parts, Vector
from dpca.sources.credentials import without_credentials
from dpca.sources.finding import LabelledAxis
from dpca.system import regular

LABELS = "model.labels"


@dataclass(frozen=True)
class Place:
    """Where labels or names are."""

    uri: str
    """Zarr, HDF5, .npy, a text file with one a line, or a table: .csv or .tsv."""
    array: str | None = None
    """Path of the array inside."""
    column: str | None = None
    """Name of the column of a table."""
    key: str = LABELS
    """The key of the configuration that says so, for errors."""

    @property
    def shown(self) -> str:
        return without_credentials(self.uri)


def read_labels(
    uri: str, array: str | None, length: int, of: str = "samples", column: str | None = None, key: str = LABELS
) -> NDArray[Any]:
    """Labels, (length,): numbers or strings. Parameters as in `Place`."""
    place = Place(uri, array, column, key)
    labels = _plain(open_labels(place, length, of)[...])
    if labels.dtype.kind == "f" and np.isnan(labels).any():
        raise InputError(
            f"{place.shown}: the label of number {int(np.argmax(np.isnan(labels)))} of the {of} is NaN",
            f"Give each of the {of} a label.",
            place.key,
        )
    return labels


def labels_of(source: Source, axis: int, place: Place, ids: str | None = None) -> NDArray[Any]:
    """Labels of the samples of a source, (n_samples,).

    Parameters
    ----------
    axis : of the samples
    ids : column of a table with the samples' names, by which rows are found; None where there is a label for each sample
        in storage, in their order
    """
    if ids is None:
        n_stored = source.layout.n_stored or source.layout.shape[axis]
        labels = read_labels(place.uri, place.array, n_stored, column=place.column, key=place.key)
        return labels if source.chosen is None else labels[source.chosen]
    if place.column is None:
        raise InputError(
            f"{place.shown}: key is {ids!r}, but no column of labels is named",
            f"Set {Setting(place.key).column}.",
            place.key,
        )
    known = labelled(source, axis)
    if known is None:
        raise InputError(
            f"{place.shown}: key is {ids!r}, but the samples of {source.layout.name} have no names to find there",
            f"Give them names with {INPUT.sample_names}, or leave {Setting(place.key + '.key')} out if rows are in their order.",
            f"{place.key}.key",
        )
    try:
        return matched(place.uri, place.column, ids, known, place.key)
    except (OSError, ValueError) as cause:
        raise _unreadable(place, cause) from cause


def labelled(source: Source, axis: int) -> LabelledAxis | None:
    """The values along an axis, by which its samples are found, if the source has a coordinate there."""
    with source.open() as reader:
        coordinate = reader.coordinate(axis)
        if coordinate is None:
            return None
        return LabelledAxis(coordinate.name, np.asarray(coordinate.values[...]), coordinate.attributes)


def open_labels(place: Place, length: int, of: str = "samples") -> Vector:
    """Labels as stored, (length,), which are read when they are indexed."""
    labels = open_values(place, of)
    if labels.shape != (length,):
        header = labels.shape == (length + 1,) and labels.dtype.kind == "T" and os.path.isfile(place.uri)
        raise InputError(
            f"{place.shown}: holds labels of shape {labels.shape}, but there are {length:,} {of}"
            + (" (is the first line a header?)" if header else ""),
            f"Give a label for each of the {of}, in their order, without a header.",
            place.key,
        )
    return labels


def open_values(place: Place, of: str = "samples") -> Vector:
    """The values of an array or of a text file, however many there are."""
    try:
        return _open(place, of)
    except DpcaError:
        raise
    except (OSError, ValueError, KeyError, TypeError) as cause:
        raise _unreadable(place, cause) from cause


def _unreadable(place: Place, cause: Exception) -> DpcaError:
    if isinstance(cause, DpcaError):
        return cause
    return InputError(
        f"{place.shown}: labels can't be read{f' from {place.array}' if place.array else ''}: {_reason(cause)}",
        f"Name a Zarr array, an HDF5 dataset (and {Setting(place.key).array}), a .npy, a text file with a label a line, or a table.",
        place.key,
    )


def _reason(cause: Exception) -> str:
    """The reason why a file can't be read, in words."""
    if isinstance(cause, FileNotFoundError):
        return "it does not exist"
    if isinstance(cause, UnicodeDecodeError):
        return "it is no text (UTF-8), and neither Zarr nor HDF5 nor .npy"
    return str(cause)


def _open(place: Place, of: str) -> Vector:
    uri, array = place.uri, place.array
    if os.path.isdir(uri) or "://" in uri or uri.endswith(".zip"):
        import zarr

        from dpca.sources.zarr_container import attributes_of, vector_of
        from dpca.sources.zarr_store import leaves, open_node

        node: Any = open_node(uri, None)
        if array is not None and isinstance(node, zarr.Group):
            group, node = node, None if leaves(array) else node.get(array)
            if node is not None and (categorical := categories_of(array, group.get)) is not None:
                parts = [group.get(path) for path in categorical]
                vectors = [vector_of(part, place.shown) for part in parts if isinstance(part, zarr.Array)]
                return _of_categories(place, of, *vectors)
        if not isinstance(node, zarr.Array):
            raise _which(place)
        return replace(vector_of(node, place.shown), attributes=about_values(attributes_of(node)))
    with regular.opened(uri) as file:
        head = file.read(8)
    if head.startswith(b"\x93NUMPY"):
        from dpca.sources.npy import header_of

        shape, _, dtype, _ = header_of(uri)
        return Vector(
            uri, shape, dtype, lambda piece: np.load(uri, mmap_mode="r", allow_pickle=False)[piece], Parts.of(dtype)
        )
    in_netcdf3 = head.startswith(netcdf3.MAGICS)
    if in_netcdf3 or is_hdf5(uri, head):
        if in_netcdf3:
            read_vector = netcdf3.read_vector
        else:
            from dpca.sources.hdf5_container import categories_in, read_vector

            if array is not None and (categorical := categories_in(uri, array)) is not None:
                found = (read_vector(uri, path) for path in categorical)
                return _of_categories(place, of, *(vector for vector in found if vector is not None))
        stored = None if array is None else read_vector(uri, array)
        if stored is None:
            raise _which(place)
        return stored
    return column_of(uri, place.column, of, place.key)


def is_categorical(place: Place) -> bool:
    """Whether a place is a categorical column of AnnData, whose values are names."""
    uri, array = place.uri, place.array
    if array is None:
        return False
    try:
        if os.path.isdir(uri) or "://" in uri or uri.endswith(".zip"):
            from dpca.sources.zarr_store import leaves, open_node

            node: Any = open_node(uri, None)
            return not leaves(array) and hasattr(node, "get") and categories_of(array, node.get) is not None
        with regular.opened(uri) as file:
            if not is_hdf5(uri, file.read(8)):
                return False
    except OSError:  # which reading it will explain
        return False
    from dpca.sources.hdf5_container import categories_in

    return categories_in(uri, array) is not None


def _of_categories(place: Place, of: str, *vectors: Vector) -> Vector:
    """A categorical column, of its codes and its categories, as the names of these."""
    if len(vectors) != 2:
        raise _unreadable(place, ValueError("it has no arrays codes and categories"))
    codes, categories = vectors
    dtype = np.dtypes.StringDType()

    def read(piece: slice) -> NDArray[Any]:
        at = np.asarray(codes[piece])
        names = np.array([str(name) for name in categories[...].tolist()], dtype)
        wrong = (at < 0) | (at >= len(names))
        if wrong.any():
            raise InputError(
                f"{place.shown}: number {piece.start + int(np.argmax(wrong))} of the {of} has no category in {place.array}",
                f"Give each of the {of} one.",
                place.key,
            )
        found: NDArray[Any] = names[at]
        return found

    return Vector(place.shown, codes.shape, dtype, read, Parts.of(dtype, codes.parts.chunk))


def _which(place: Place) -> InputError:
    """The error for a group if no array is named, or the named one is absent."""
    held = ", ".join(item["path"] for item in list_arrays(place.uri)[:12]) or "no array"
    problem = "which array?" if place.array is None else f"has no array {place.array!r};"
    return InputError(
        f"{place.shown}: {problem} it holds {held}",
        f"Set {Setting(place.key).array} to one of them.",
        key=f"{place.key}.array",
    )


def _plain(values: Any) -> NDArray[Any]:
    """Labels with strings in NumPy's own type, so that they can be compared."""
    labels = np.asarray(values)
    return np.array(labels.tolist() if labels.dtype.kind in "OT" else labels)
