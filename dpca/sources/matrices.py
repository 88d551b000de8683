"""The matrix at a path of a container: dense or sparse, with all of its features or with those that a table chooses."""

from __future__ import annotations

from collections.abc import Callable

from dpca.errors import InputError
from dpca.sources.anndata_layout import Sparse, column_beside, names_beside, names_of_10x
from dpca.sources.base import Source
from dpca.sources.chosen import Selection
from dpca.sources.container import Container
from dpca.sources.coordinate import VectorTooLarge
from dpca.sources.selection import ChosenFeatures
from dpca.sources.sparse import PARTS, SparseSource

FEATURES = 1
"""The axis of an AnnData matrix that its table of features describes."""


def matrix_at(
    container: Container, path: str, name: str, source: Callable[[str], Source], column: str | None = None
) -> Source:
    """The source of an array, or of a sparse matrix.

    Parameters
    ----------
    path : of the array, or of the group that a sparse matrix is
    name : in error messages
    source : gives the source of the array at a path
    column : of AnnData's table of features, which chooses some; None for all
    """
    node = container.node(path)
    matrix = None if container.is_array(node) else Sparse.of(node)
    found = source(path) if matrix is None else sparse_at(container, path, name, matrix, source)
    return found if column is None else with_features(container, path, found, column)


def sparse_at(
    container: Container, path: str, name: str, matrix: Sparse, source: Callable[[str], Source]
) -> SparseSource:
    """The source of a sparse matrix; parameters as above."""
    parts = [f"{path}/{part}".lstrip("/") for part in PARTS]
    for part, at in zip(PARTS, parts, strict=True):
        if not container.is_array(container.node(at)):
            raise InputError(
                f"{name}: is no sparse matrix: it has no array {part}", "Write it again.", key="input.array"
            )
    beside = container.names_beside(path, names_of_10x if matrix.of_10x else names_beside)
    names = {axis: (dim, container.labels(at, f"{name}, coordinate {dim}")) for axis, dim, at in beside}
    return SparseSource(name, matrix, map(source, parts), names)


def with_features(container: Container, path: str, source: Source, column: str) -> Source:
    """The features of a matrix of AnnData for which a column of their table is true."""
    name, length = source.layout.name, source.layout.shape[FEATURES]
    found = container.node(column_beside(name, path, FEATURES, column, container.node))
    if not container.is_array(found):
        kind = "absent" if found is None else container.attributes(found).get("encoding-type", "absent")
        raise InputError(
            f"{name}: column {column!r} is {kind}, but a boolean column is allowed",
            f"Store it as one: adata.var[{column!r}] = adata.var[{column!r}].astype(bool).",
            key="input.features",
        )
    try:
        mask = container.vector(found, f"{name}, column {column}")
    except VectorTooLarge as cause:
        raise InputError(f"{name}: {cause}", "Store it in smaller chunks.", key="input.features") from cause
    selection = Selection.of(name, FEATURES, length, column, mask)
    return source.choose(selection) if isinstance(source, SparseSource) else ChosenFeatures(source, selection)
