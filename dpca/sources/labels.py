"""A label for each sample, or each feature, from a file of its own."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpca.errors import DpcaError, InputError
from dpca.sources import list_arrays
from dpca.sources.credentials import without_credentials


def read_labels(uri: str, array: str | None, length: int, of: str = "samples") -> NDArray[Any]:
    """Labels, (length,): numbers or strings from Zarr, HDF5 or .npy, or the lines of a text file.

    Raises
    ------
    InputError
        When they can't be read, or there is not one for each of the samples or features.
    """
    shown = without_credentials(uri)
    try:
        labels = _read(uri, array, of)
        if labels.shape == (length,):
            labels = _plain(labels[...])
    except DpcaError:
        raise
    except (OSError, ValueError, KeyError, TypeError) as cause:
        raise InputError(
            f"{shown}: labels can't be read{f' from {array}' if array else ''}: {_reason(cause)}",
            "Name a Zarr array, an HDF5 dataset (and model.labels.array), a .npy or a text file with a label a line.",
            key="model.labels",
        ) from cause
    if labels.shape != (length,):
        header = labels.shape == (length + 1,) and labels.dtype.kind == "U"
        raise InputError(
            f"{shown}: holds labels of shape {labels.shape}, but there are {length:,} {of}"
            + (" (is the first line a header?)" if header else ""),
            f"Give a label for each of the {of}, in their order, without a header.",
            key="model.labels",
        )
    if labels.dtype.kind == "f" and np.isnan(labels).any():
        raise InputError(
            f"{shown}: the label of number {int(np.argmax(np.isnan(labels)))} of the {of} is NaN",
            f"Give each of the {of} a label.",
            "model.labels",
        )
    return np.asarray(labels)


def _reason(cause: Exception) -> str:
    """The reason why a file can't be read, in words."""
    if isinstance(cause, FileNotFoundError):
        return "it does not exist"
    if isinstance(cause, UnicodeDecodeError):
        return "it is no text (UTF-8), and neither Zarr nor HDF5 nor .npy"
    return str(cause)


def _read(uri: str, array: str | None, of: str) -> Any:
    """Labels as stored; except for lines of text, they are read when they are indexed."""
    if os.path.isdir(uri) or "://" in uri or uri.endswith(".zip"):
        import zarr

        from dpca.sources.zarr_array import vector_of
        from dpca.sources.zarr_store import leaves, open_node

        node: Any = open_node(uri, None)
        if array is not None and isinstance(node, zarr.Group):
            node = None if leaves(array) else node.get(array)
        if not isinstance(node, zarr.Array):
            raise _which(uri, array)
        return vector_of(node, uri)
    with open(uri, "rb") as file:
        head = file.read(8)
    if head.startswith(b"\x93NUMPY"):
        from dpca.sources.npy import header_of

        header_of(uri)
        return np.load(uri, mmap_mode="r", allow_pickle=False)
    if head == b"\x89HDF\r\n\x1a\n":
        from dpca.sources.hdf5 import read_vector

        stored = None if array is None else read_vector(uri, array)
        if stored is None:
            raise _which(uri, array)
        return stored
    with open(uri, encoding="utf-8") as text:
        lines = [line.strip() for line in text]
    while lines and not lines[-1]:
        lines.pop()
    if "" in lines:
        number = lines.index("")
        raise InputError(
            f"{uri}: line {number + 1} is empty, so {of[:-1]} {number} has no label",
            f"Give each of the {of} a label, one a line, without a header.",
            key="model.labels",
        )
    return np.array(lines)


def _which(uri: str, array: str | None) -> InputError:
    """The error for a group if no array is named, or the named one is absent."""
    held = ", ".join(item["path"] for item in list_arrays(uri)[:12]) or "no array"
    problem = "which array?" if array is None else f"has no array {array!r};"
    return InputError(
        f"{without_credentials(uri)}: {problem} it holds {held}",
        "Set model.labels.array to one of them.",
        key="model.labels.array",
    )


def _plain(values: Any) -> NDArray[Any]:
    """Labels with strings in NumPy's own type, so that they can be compared."""
    labels = np.asarray(values)
    return np.array(labels.tolist() if labels.dtype.kind in "OT" else labels)
