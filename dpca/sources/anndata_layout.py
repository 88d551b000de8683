"""What AnnData keeps beside a matrix, in HDF5 and in Zarr alike: names of cells and genes; and which matrices are sparse.

Its layout (the "on-disk format" of AnnData) is told by attributes of groups, so the package itself is not needed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dpca.errors import InputError

OBS_NAMES, VAR_NAMES = "obs_names", "var_names"
"""What the axes of such a matrix are called: as AnnData calls the names along them."""
_MATRIX = re.compile(r"(?P<root>|.*?/)(?:X|layers/[^/]+|(?P<raw>raw/)X)")
IN_PARTS = (
    "where that is more than memory, copy it to a Zarr array, a thousand rows of anndata.io.sparse_dataset at a time"
)


def names_beside(path: str, node: Callable[[str], Any]) -> dict[int, tuple[str, Any]]:
    """Of each axis of a matrix in AnnData its name, and the array of names along it; empty of any other array.

    Parameters
    ----------
    path : of the matrix in its file
    node : gives the group or array at a path of that file, the root at ""; None where there is none
    """
    match = _MATRIX.fullmatch(path.strip("/"))
    if match is None or _attributes(node(match["root"].rstrip("/"))).get("encoding-type") != "anndata":
        return {}
    found = {}
    for axis, (dim, table) in enumerate(((OBS_NAMES, "obs"), (VAR_NAMES, f"{match['raw'] or ''}var"))):
        frame = match["root"] + table
        index = _attributes(node(frame)).get("_index")
        if isinstance(index, str) and ".." not in index:
            found[axis] = dim, node(f"{frame}/{index}")
    return found


@dataclass(frozen=True)
class Sparse:
    """A sparse matrix: a group of the arrays data, indices and indptr, which is not read."""

    shape: tuple[int, ...]
    dtype: str
    """Its encoding, in the place where arrays have the dtype: csr_matrix or csc_matrix."""

    @classmethod
    def of(cls, group: Any) -> Sparse | None:
        """That which a group of HDF5 or Zarr is, if it is one."""
        attributes = _attributes(group)
        kind, shape = attributes.get("encoding-type"), attributes.get("shape", ())
        if not isinstance(kind, str) or kind not in ("csr_matrix", "csc_matrix"):
            return None
        return cls(tuple(int(length) for length in shape), kind)

    def refused(self, uri: str, path: str) -> InputError:
        """What to say where it is asked for."""
        read = f"anndata.{'read_h5ad' if os.path.isfile(uri) else 'read_zarr'}({uri!r})"
        matrix = f"a.layers[{os.path.basename(path)!r}]" if "layers/" in path else "a.X"
        raw = ".raw.to_adata()" if path.endswith("raw/X") else ""
        return InputError(
            f"{uri}: {path or 'what is there'} is a sparse matrix ({self.dtype}), and sparse matrices are not read",
            f"Write it dense, in Python ({IN_PARTS}):\na = {read}{raw}\n{matrix} = {matrix}.toarray()\n"
            "a.write_h5ad('dense.h5ad')",
            key="input.array",
        )


def without_parts(found: Mapping[str, Any]) -> dict[str, Any]:
    """Arrays and sparse matrices by path, without the arrays that these are made of."""
    return {path: item for path, item in found.items() if not isinstance(found.get(os.path.dirname(path)), Sparse)}


def chosen(uri: str, found: Mapping[str, Any], array: str | None) -> str:
    """Which array of several at a place is meant: that which was named, else the only one of two axes or more.

    Parameters
    ----------
    uri : of the place, as errors call it
    found : arrays and sparse matrices by path

    Raises
    ------
    InputError
        When there is none, when several could be meant, or when it is sparse.
    """
    wide = [path for path, item in found.items() if len(item.shape) > 1]
    named = array.strip("/") if array is not None else wide[0] if len(wide) == 1 else None
    if named is not None and named in found:
        if isinstance(found[named], Sparse):
            raise found[named].refused(uri, named)
        return named
    shapes = [
        f"{path} {item.shape}{' (sparse)' * isinstance(item, Sparse)}" for path, item in sorted(found.items())[:12]
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
