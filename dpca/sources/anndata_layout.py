"""The layouts of AnnData and of 10x Genomics in HDF5 and Zarr: tables of cells and genes beside a matrix, sparse matrices, and which array is meant.

Attributes of groups describe that of AnnData (its "on-disk format"), so the anndata package is not needed; names of arrays that of 10x ("HDF5
Feature-Barcode Matrix Format", Cell Ranger documentation).
"""

from __future__ import annotations

import operator
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dpca.errors import InputError
from dpca.settings import INPUT
from dpca.sources.cf import described_by, text_of

OBS_NAMES, VAR_NAMES = "obs_names", "var_names"
"""Names of the axes of such a matrix: AnnData's own words for the labels along them."""
_MATRIX = re.compile(r"(?P<root>|.*?/)(?:X|layers/[^/]+|(?P<raw>raw/)X)")
_MATRICES = re.compile(r"(?P<root>|.*?/)(?:X|(?P<beside>layers|raw|obs|var|obsm|varm|obsp|varp|uns)/.*)")
"""Matrices of an AnnData container; all but X stand beside X."""
_BOUNDS = re.compile(r"(?P<group>|.*/)(?:(?P<of>[^/]+)_(?:bnds|bounds|vertices)|bounds_(?P<name>[^/]+))", re.IGNORECASE)
"""Customary names of bounds of cells, where no coordinate says that they are its own; bounds_lon of NEMO is of nav_lon."""
_PLACES = re.compile(r"degrees?_?(north|east|n|e)", re.IGNORECASE)
"""Units of latitudes and longitudes (CF conventions 1.11, sections 4.1 and 4.2)."""
SPARSE = ("csr_matrix", "csc_matrix")
"""The encodings of sparse matrices: by rows, by columns."""
PARTS_OF_10X = ("data", "indices", "indptr", "barcodes", "shape")
CONTAINERS = ("anndata", "MuData")
"""The encodings of containers of annotated matrices: of one, and of several, each of which is AnnData."""


def tables_beside(path: str, node: Callable[[str], Any]) -> dict[int, str]:
    """Path of the table of each axis of an AnnData matrix, of its cells and of its genes; empty for any other array.

    Parameters
    ----------
    path : path of the matrix in its file
    node : function that returns the group or array at a path of that file (the root at ""), or None
    """
    match = _MATRIX.fullmatch(path.strip("/"))
    if match is None or _attributes(node(match["root"].rstrip("/"))).get("encoding-type") != "anndata":
        return {}
    return {0: f"{match['root']}obs", 1: f"{match['root']}{match['raw'] or ''}var"}


def names_beside(path: str, node: Callable[[str], Any]) -> dict[int, tuple[str, str]]:
    """Name of each axis of an AnnData matrix, with the path of the labels along it; `path` and `node` as above."""
    labels = {}
    for axis, table in tables_beside(path, node).items():
        index = _attributes(node(table)).get("_index")
        if isinstance(index, str) and ".." not in index:
            labels[axis] = (OBS_NAMES, VAR_NAMES)[axis], f"{table}/{index}"
    return labels


def column_beside(name: str, path: str, axis: int, column: str, node: Callable[[str], Any]) -> str:
    """Path of a column of the table of an axis; `path` and `node` as above.

    Parameters
    ----------
    name : of the matrix, for error messages
    """
    table = tables_beside(path, node).get(axis)
    if table is None:
        raise InputError(
            f"{name}: is no matrix of an AnnData container (X, layers/NAME, raw/X), so no table has column {column!r}",
            f"Leave {INPUT.features} out, or name such a matrix in {INPUT.array}.",
            key="input.features",
        )
    order = _attributes(node(table)).get("column-order", ())
    columns = [str(held) for held in (() if isinstance(order, str | bytes) else order)]
    if column not in columns or ".." in column:
        raise InputError(
            f"{name}: {table} has no column {column!r}; it has {', '.join(columns[:12]) or 'none'}",
            f"Set {INPUT.features.column} to a boolean one of them.",
            key="input.features",
        )
    return f"{table}/{column}"


def categories_of(path: str, node: Callable[[str], Any]) -> tuple[str, str] | None:
    """Paths of the codes and of the categories of a categorical column; None for anything else. `node` as above.

    They are two arrays of a group; in files of anndata before 0.8 the column is the codes, and categories lie in __categories.
    """
    path = path.strip("/")
    attributes = _attributes(node(path))
    if attributes.get("encoding-type") == "categorical":
        return f"{path}/codes", f"{path}/categories"
    table, _, column = path.rpartition("/")
    beside = f"{table}/__categories/{column}".lstrip("/")
    return (path, beside) if "categories" in attributes and node(beside) is not None else None


@dataclass(frozen=True)
class Sparse:
    """A sparse matrix: a group of the arrays data, indices and indptr."""

    shape: tuple[int, ...]
    """Empty where its attribute is no shape of a matrix."""
    dtype: str
    """Its encoding, csr_matrix or csc_matrix, listed in place of an array's dtype."""
    of_10x: bool = False
    """Whether it lies as 10x Genomics stores it."""

    @classmethod
    def of(cls, group: Any) -> Sparse | None:
        """The sparse matrix that a group of HDF5 or Zarr holds, or None."""
        if (of_10x := _cells_of_10x(group)) is not None:
            return cls(of_10x, "csr_matrix", of_10x=True)
        attributes = _attributes(group)
        kind, shape = attributes.get("encoding-type"), attributes.get("shape", ())
        if not isinstance(kind, str) or kind not in SPARSE:
            return None
        try:
            lengths = tuple(operator.index(length) for length in shape)
        except TypeError:
            lengths = ()
        return cls(lengths if len(lengths) == 2 and min(lengths) >= 0 else (), kind)


def without_parts(arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Arrays and sparse matrices by path, without the arrays that make up the sparse matrices."""
    return {path: item for path, item in arrays.items() if not isinstance(arrays.get(os.path.dirname(path)), Sparse)}


def beside_others(arrays: Mapping[str, Any], node: Callable[[str], Any]) -> set[str]:
    """Paths of the arrays that stand beside another one, and are not meant unless they are named.

    These are bounds, coordinates and the like, by CF attributes of the other, by their units or by their names; texts; and in
    an AnnData container layers and raw beside its X, and all of obs, var, obsm, varm, obsp, varp and uns. Where nothing else
    has two axes, coordinates and texts may be meant.

    Parameters
    ----------
    arrays, node : as for `chosen`
    """
    described = set[str]().union(*(described_by(getattr(item, "attrs", {})) for item in arrays.values()))
    of_x = {path for path in arrays if _beside_x(path, arrays, node)}
    describing = {
        path
        for path, item in arrays.items()
        if path.rpartition("/")[2] in described or _are_bounds(path, arrays) or _is_text(item) or _has_places(item)
    }
    data = {path for path, item in arrays.items() if len(item.shape) > 1} - of_x - describing
    return of_x | describing if data else of_x


def _are_bounds(path: str, arrays: Mapping[str, Any]) -> bool:
    """Whether an array is called as bounds of another one are."""
    if (match := _BOUNDS.fullmatch(path)) is None:
        return False
    name = match["of"] or match["name"]
    return any(f"{match['group']}{start}{name}" in arrays for start in ("", "nav_"))


def _is_text(item: Any) -> bool:
    return getattr(item.dtype, "kind", "") in "SUT"


def _has_places(item: Any) -> bool:
    """Whether the values of an array are latitudes or longitudes, by its units."""
    units = text_of(getattr(item, "attrs", {}).get("units"))
    return isinstance(units, str) and _PLACES.fullmatch(units) is not None


def _beside_x(path: str, arrays: Mapping[str, Any], node: Callable[[str], Any]) -> bool:
    """Whether a path in an AnnData container is not of the matrix that it is about."""
    match = _MATRICES.fullmatch(path)
    if match is None or match["beside"] is None:
        return False
    if _attributes(node(match["root"].rstrip("/"))).get("encoding-type") not in CONTAINERS:
        return False
    return not tables_beside(path, node) or f"{match['root']}X" in arrays


def chosen(uri: str, arrays: Mapping[str, Any], array: str | None, node: Callable[[str], Any]) -> str:
    """Path of the array that is meant: the one that was named, else the only one with two axes or more that stands beside no other.

    `dpca inspect` and `dpca init` take the same one; where there are several, they look at the largest, and say that they guess.

    Parameters
    ----------
    uri : their path or URL, for error messages
    arrays : arrays and sparse matrices by path
    node : as for `tables_beside`
    """
    wide = {path for path, item in arrays.items() if len(item.shape) > 1}
    meant = [*(wide - beside_others(arrays, node))] if array is None else [array.strip("/")]
    named = meant[0] if len(meant) == 1 else None
    if named is not None and named in arrays:
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
    raise InputError(f"{uri}: {problem} {listed}", f"Set {INPUT.array} to one of them.", key="input.array")


def _cells_of_10x(group: Any) -> tuple[int, int] | None:
    """Number of cells and of genes of a sparse matrix as 10x Genomics stores it in HDF5; None for anything else.

    Stored by columns, which are cells: the same arrays are cells by genes, stored by rows.
    """
    # A group of Zarr is not asked: each question may be a request.
    if type(group).__module__.partition(".")[0] != "h5py" or any(part not in group for part in PARTS_OF_10X):
        return None
    genes, cells = (operator.index(length) for length in group["shape"][...])
    return cells, genes


def names_of_10x(path: str, node: Callable[[str], Any]) -> dict[int, tuple[str, str]]:
    """Name of each axis of a matrix of 10x, with the path of the labels along it; `path` and `node` as above.

    Before Cell Ranger 3 all names were beside the matrix. Those of genes need not differ: scanpy has them so, too.
    """
    genes = next((name for name in ("features/name", "gene_names") if node(f"{path}/{name}") is not None), None)
    return {0: (OBS_NAMES, f"{path}/barcodes")} | ({1: (VAR_NAMES, f"{path}/{genes}")} if genes else {})


def _attributes(group: Any) -> dict[str, Any]:
    return {} if group is None else dict(group.attrs)
