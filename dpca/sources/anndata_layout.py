"""The layout of AnnData in HDF5 and Zarr: names of cells and genes beside a matrix, and sparse matrices.

Attributes of groups describe it (AnnData's "on-disk format"), so the anndata package is not needed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dpca.errors import InputError

OBS_NAMES, VAR_NAMES = "obs_names", "var_names"
"""Names of the axes of such a matrix: AnnData's own words for the labels along them."""
_MATRIX = re.compile(r"(?P<root>|.*?/)(?:X|layers/[^/]+|(?P<raw>raw/)X)")
IN_PARTS = (
    "where that is more than memory, copy it to a Zarr array, a thousand rows of anndata.io.sparse_dataset at a time"
)


def names_beside(path: str, node: Callable[[str], Any]) -> dict[int, tuple[str, Any]]:
    """Name of each axis of an AnnData matrix, with the array of labels along it; empty for any other array.

    Parameters
    ----------
    path : path of the matrix in its file
    node : function that returns the group or array at a path of that file (the root at ""), or None
    """
    match = _MATRIX.fullmatch(path.strip("/"))
    if match is None or _attributes(node(match["root"].rstrip("/"))).get("encoding-type") != "anndata":
        return {}
    labels = {}
    for axis, (dim, table) in enumerate(((OBS_NAMES, "obs"), (VAR_NAMES, f"{match['raw'] or ''}var"))):
        frame = match["root"] + table
        index = _attributes(node(frame)).get("_index")
        if isinstance(index, str) and ".." not in index:
            labels[axis] = dim, node(f"{frame}/{index}")
    return labels


@dataclass(frozen=True)
class Sparse:
    """A sparse matrix: a group of the arrays data, indices and indptr, which is not read."""

    shape: tuple[int, ...]
    dtype: str
    """Its encoding, csr_matrix or csc_matrix, listed in place of an array's dtype."""

    @classmethod
    def of(cls, group: Any) -> Sparse | None:
        """The sparse matrix that a group of HDF5 or Zarr holds, or None."""
        attributes = _attributes(group)
        kind, shape = attributes.get("encoding-type"), attributes.get("shape", ())
        if not isinstance(kind, str) or kind not in ("csr_matrix", "csc_matrix"):
            return None
        return cls(tuple(int(length) for length in shape), kind)

    def refused(self, uri: str, path: str) -> InputError:
        """The error for a request to read it."""
        read = f"anndata.{'read_h5ad' if os.path.isfile(uri) else 'read_zarr'}({uri!r})"
        matrix = f"a.layers[{os.path.basename(path)!r}]" if "layers/" in path else "a.X"
        raw = ".raw.to_adata()" if path.endswith("raw/X") else ""
        return InputError(
            f"{uri}: {path or 'what is there'} is a sparse matrix ({self.dtype}), and sparse matrices are not read",
            f"Write it dense, in Python ({IN_PARTS}):\na = {read}{raw}\n{matrix} = {matrix}.toarray()\n"
            "a.write_h5ad('dense.h5ad')",
            key="input.array",
        )


def without_parts(arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Arrays and sparse matrices by path, without the arrays that make up the sparse matrices."""
    return {path: item for path, item in arrays.items() if not isinstance(arrays.get(os.path.dirname(path)), Sparse)}


def chosen(uri: str, arrays: Mapping[str, Any], array: str | None) -> str:
    """Path of the array that is meant: the one that was named, else the only one with two or more axes.

    Parameters
    ----------
    uri : their path or URL, for error messages
    arrays : arrays and sparse matrices by path

    Raises
    ------
    InputError
        When there is none, when several could be meant, or when it is sparse.
    """
    wide = [path for path, item in arrays.items() if len(item.shape) > 1]
    named = array.strip("/") if array is not None else wide[0] if len(wide) == 1 else None
    if named is not None and named in arrays:
        if isinstance(arrays[named], Sparse):
            raise arrays[named].refused(uri, named)
        return named
    shapes = [
        f"{path} {item.shape}{' (sparse)' * isinstance(item, Sparse)}" for path, item in sorted(arrays.items())[:12]
    ]
    listed = ", ".join(shapes) or "no array"
    if array is None and not wide:
        raise InputError(
            f"{uri}: holds no array of two axes or more ({listed})",
            "PCA needs samples and features: name another file.",
            key="input.uri",
        )
    problem = "which array? It holds" if array is None else f"has no array {array!r}; it holds"
    raise InputError(f"{uri}: {problem} {listed}", "Set input.array to one of them.", key="input.array")


def _attributes(group: Any) -> dict[str, Any]:
    return {} if group is None else dict(group.attrs)
