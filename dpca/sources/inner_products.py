"""Inner products of features: matrices of neighbouring ones in an array, or on the diagonal of a sparse matrix; read in parts."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dpca.errors import DataError, InputError
from dpca.settings import PREPROCESS
from dpca.slabs import Box, extent
from dpca.sources.base import Region, Source
from dpca.sources.memory import MemorySource
from dpca.system import regular
from dpca.types import F64

KEY = PREPROCESS.inner_product
LARGEST = 1024
"""Most features that a matrix is of: so many times the memory of a slab is taken for theirs, and of its products the time."""


@dataclass(frozen=True)
class InnerProduct:
    """Matrices of k neighbouring features along the last feature axis."""

    source: Source
    """(..., k, k), whose first axes broadcast to those of features, the last of which is k times as long."""
    unit: int
    """k."""

    @classmethod
    def of(cls, source: Source, feature_shape: Sequence[int], name: str) -> Self:
        """That of an array of matrices.

        Parameters
        ----------
        name : of the data, for errors
        """
        layout, shape = source.layout, source.layout.shape
        unit = shape[-1] if len(shape) > 1 and shape[-2] == shape[-1] else 0
        if not 0 < unit <= LARGEST or feature_shape[-1] % unit:
            raise InputError(
                f"{layout.name}: has shape {shape}, but the features of {name} have shape {tuple(feature_shape)}",
                f"Give an array (..., k, k) of a matrix for each k neighbours along the last axis of features, whose length k divides, k up to {LARGEST}.",
                key=KEY.key,
            )
        found = cls(source, unit)
        grid = found.grid(feature_shape)
        if len(shape) - 2 > len(grid) or any(
            own not in (1, length) for own, length in zip(reversed(shape[:-2]), reversed(grid), strict=False)
        ):
            raise InputError(
                f"{layout.name}: has shape {shape}, but the features of {name}, {tuple(feature_shape)}, have {grid} matrices of {unit} x {unit}",
                f"Give an array of shape {(*grid, unit, unit)}, or one with lengths of 1, or without the first axes, where it is constant along these.",
                key=KEY.key,
            )
        return found

    def grid(self, feature_shape: Sequence[int]) -> tuple[int, ...]:
        """How many matrices there are along each axis of features."""
        return (*feature_shape[:-1], feature_shape[-1] // self.unit)

    def region(self, box: Box) -> Region:
        """The region of the source for a box of features, which cuts no matrix."""
        last = slice(box[-1].start // self.unit, box[-1].stop // self.unit)
        leading = self.source.layout.shape[:-2]
        along = (*box[:-1], last)[len(box) - len(leading) :]
        pieces = [piece if length > 1 else slice(0, 1) for piece, length in zip(along, leading, strict=True)]
        return (*pieces, slice(0, self.unit), slice(0, self.unit))

    @contextmanager
    def open(self) -> Iterator[Callable[[Box], F64]]:
        """A function that returns the matrices of a box of features, (..., k, k), which broadcast to its grid."""
        with self.source.open() as reader:
            yield lambda box: reader.read(self.region(box)).astype(np.float64)

    def restrict(self, box: Box) -> Self:
        """This restricted to a box, for a task that needs no more."""
        return replace(self, source=self.source.restrict(self.region(box)))

    @property
    def input(self) -> tuple[Source, Region]:
        """The array, with its whole region."""
        return self.source, tuple(slice(0, length) for length in self.source.layout.shape)

    def held(self, shape: Sequence[int]) -> dict[str, int]:
        """Bytes that are held for a box of features of this shape, by name."""
        region = extent(self.region(tuple(slice(0, -(-length // self.unit) * self.unit) for length in shape)))
        of_source = {f"inner product: {part}": size for part, size in self.source.held(region).items()}
        return {"inner product of a slab": 6 * 8 * self.unit * math.prod(shape), **of_source}

    def unusable(self, box: Box, matrices: F64, wrong: NDArray[np.bool_]) -> DataError:
        """The error that names the first wrong matrix of a box of features.

        Parameters
        ----------
        matrices, wrong : those that were read, (..., k, k), and which of them are no inner products, (...)
        """
        first = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
        index = [int(place) + piece.start for place, piece in zip(first, self.region(box), strict=False)]
        shown = np.array2string(matrices[first][:3, :3], precision=4, separator=", ").replace("\n", "")
        return DataError(
            f"{self.source.layout.name}: matrix {index} begins with {shown}, and {int(wrong.sum())} of those read are not finite, not symmetric, or "
            "not positive definite: such a matrix is no inner product",
            f"Repair it; features that count for nothing are left out by {PREPROCESS.filters.mask}, with a matrix that is 1 on its diagonal there.",
            key=KEY.key,
        )


def inner_product_of(given: Source | Any, feature_shape: Sequence[int], name: str) -> InnerProduct:
    """The inner product of an array of matrices, or of a sparse matrix of scipy.

    Parameters
    ----------
    name : of the data, for errors
    """
    if isinstance(given, Source):
        return InnerProduct.of(given, feature_shape, name)
    return of_sparse(given, feature_shape, str(KEY))


def sparse_of(path: str) -> Any:
    """The sparse matrix in a file of `scipy.sparse.save_npz`."""
    import scipy.sparse  # slow to import

    try:
        with regular.opened(path) as file:
            return scipy.sparse.load_npz(file)
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as cause:
        raise InputError(
            f"{path}: can't be read as a sparse matrix of scipy: {type(cause).__name__}: {cause}",
            "Name a file that scipy.sparse.save_npz wrote, or an array (..., k, k) in Zarr, HDF5 or .npy.",
            key=KEY.key,
        ) from cause


def of_sparse(matrix: Any, feature_shape: Sequence[int], name: str) -> InnerProduct:
    """The inner product of a sparse matrix over all features, (d, d), whose values lie in equal blocks along the diagonal.

    Parameters
    ----------
    matrix : of scipy.sparse
    name : of the matrix, for errors
    """
    n_features, length = math.prod(feature_shape), feature_shape[-1]
    if matrix.shape != (n_features, n_features):
        raise InputError(
            f"{name}: is a matrix of shape {matrix.shape}, but there are {n_features:,} features",
            "Give a row and a column for each feature, in C order of their axes.",
            key=KEY.key,
        )
    entries = matrix.tocoo()
    rows, columns = entries.row[entries.data != 0], entries.col[entries.data != 0]
    furthest = int(np.abs(rows - columns).max(initial=0))
    fitting = (
        size
        for size in range(furthest + 1, min(LARGEST, length) + 1)
        if length % size == 0 and (rows // size == columns // size).all()
    )
    unit = next(fitting, None)
    if unit is None:
        widest = int(np.argmax(np.abs(rows - columns)))
        raise InputError(
            f"{name}: couples feature {int(rows[widest])} with {int(columns[widest])}, and its values lie in no equal blocks of up to {LARGEST} "
            f"neighbours along the diagonal, along the last axis of features ({length:,})",
            "A mass matrix of elements that share nodes is one block, which no part of the features can be multiplied with alone: give the sums of "
            "its rows as weights (their square roots; the lumped mass matrix). Blocks of discontinuous elements, or of vectors at a point, need their features side by side.",
            key=KEY.key,
        )
    blocks = np.zeros((n_features // unit, unit, unit))
    np.add.at(blocks, (entries.row // unit, entries.row % unit, entries.col % unit), entries.data)
    grid = (*feature_shape[:-1], length // unit)
    return InnerProduct(MemorySource(blocks.reshape(*grid, unit, unit), name=name), unit)
