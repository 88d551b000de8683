"""A label for each sample, or each feature, from a file of its own."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpca.errors import InputError


def read_labels(uri: str, array: str | None, length: int, of: str = "samples") -> NDArray[Any]:
    """Labels, (length,): numbers or strings from Zarr, HDF5 or .npy, or the lines of a text file.

    Raises
    ------
    InputError
        When they can't be read, or are not one for each of what they are `of`.
    """
    try:
        found = _read(uri, array)
    except (OSError, ValueError, KeyError, TypeError, UnicodeDecodeError) as cause:
        raise InputError(
            f"{uri}: labels can't be read{f' from {array}' if array else ''}: {cause}",
            "Name a Zarr array, an HDF5 dataset (and model.labels.array), a .npy or a text file with a label a line.",
            key="model.labels",
        ) from cause
    if found.shape != (length,):
        raise InputError(
            f"{uri}: holds labels of shape {found.shape}, but there are {length:,} {of}",
            f"Give a label for each of the {of}, in their order.",
            key="model.labels",
        )
    if found.dtype.kind == "f" and np.isnan(found).any():
        raise InputError(
            f"{uri}: the label of number {int(np.argmax(np.isnan(found)))} of the {of} is NaN",
            f"Give each of the {of} a label.",
            "model.labels",
        )
    return found


def _read(uri: str, array: str | None) -> NDArray[Any]:
    if os.path.isdir(uri) or "://" in uri or uri.endswith(".zip"):
        import zarr

        found = zarr.open(uri, path=array or "", mode="r")
        if not isinstance(found, zarr.Array):
            raise ValueError("it is a group: name the array in it")
        return _plain(found[...])
    with open(uri, "rb") as file:
        head = file.read(8)
    if head.startswith(b"\x93NUMPY"):
        return _plain(np.load(uri, allow_pickle=False))
    if head == b"\x89HDF\r\n\x1a\n":
        import h5py

        with h5py.File(uri, "r") as group:
            if array is None:
                raise ValueError("it is an HDF5 file: name the dataset in it")
            stored = group[array]
            return _plain(stored.asstr()[...] if h5py.check_string_dtype(stored.dtype) else stored[...])
    with open(uri, encoding="utf-8") as text:
        return np.array([line.strip() for line in text if line.strip()])


def _plain(values: Any) -> NDArray[Any]:
    """Strings as NumPy's own, so that they compare."""
    found = np.asarray(values)
    return np.array(found.tolist()) if found.dtype.kind in "OT" else found
