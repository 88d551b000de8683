"""Inner products of samples, from which kernels follow without reading data; and how rows of a kernel matrix are centred.

The streamed matrix is centred by the mean of the fit, K = X_c X_c', so that small differences keep their digits. Distances
are computed from K, since they do not change. Kernels that need the mean use G = K + r 1' + 1 r' + c 11', with r = X_c m~ and c = m~' m~.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dpca.numerics.gram_matrix import GramMatrix
from dpca.types import F64

EPS = float(np.finfo(np.float64).eps)
BLOCK_ROWS = 256


@dataclass(frozen=True)
class Inner:
    """Inner products of m samples with the n samples of a fit, all centred by the mean of the fit."""

    products: F64
    """X_c X_c', (m, n)."""
    rows: F64
    """Squared norms of the m samples, (m,)."""
    columns: F64
    """Squared norms of the samples of the fit, (n,)."""
    row_mean_product: F64
    """r = X_c m~ of the m samples, (m,)."""
    column_mean_product: F64
    mean_norm2: float
    """c = m~' m~."""
    row_norms2: F64 | None = None
    """Squared norms that were summed without products, where the products may be less accurate; else None."""
    column_norms2: F64 | None = None
    first: int | None = None
    """Number of the first of the m samples among the n of the fit; None where they are others."""

    @classmethod
    def of_gram(cls, gram: GramMatrix) -> Inner:
        """Inner products of the samples of the fit with each other."""
        matrix, product, norms2 = gram.matrix, gram.mean_product, gram.norms2
        squares = np.diagonal(matrix).copy()
        return cls(matrix, squares, squares, product, product, gram.mean_norm2, norms2, norms2, first=0)

    @classmethod
    def of_points(cls, points: F64, fitted: F64) -> Inner:
        """Inner products of points in memory, (m, k), with others, (n, k); their mean is taken to be the origin."""
        return cls(
            points @ fitted.T,
            np.einsum("ij,ij->i", points, points),
            np.einsum("ij,ij->i", fitted, fitted),
            np.zeros(len(points)),
            np.zeros(len(fitted)),
            0.0,
        )

    def about_mean(self) -> Inner:
        """These products with the mean as origin: the input of kernels on centred data."""
        zeros = np.zeros(len(self.rows)), np.zeros(len(self.columns))
        return replace(self, row_mean_product=zeros[0], column_mean_product=zeros[1], mean_norm2=0.0)

    def of_rows(self, rows: slice) -> Inner:
        """The inner products of some of the m samples."""
        return replace(
            self,
            products=self.products[rows],
            rows=self.rows[rows],
            row_mean_product=self.row_mean_product[rows],
            row_norms2=None if self.row_norms2 is None else self.row_norms2[rows],
            first=None if self.first is None else self.first + rows.start,
        )

    def gram(self) -> F64:
        """G = X X' of the samples before centring, (m, n)."""
        gram = self.row_mean_product[:, None] + self.column_mean_product  # the same for (i, j) and (j, i)
        gram += self.products
        gram += self.mean_norm2
        return self._cleared(gram)

    def magnitudes(self) -> F64:
        """Sum of the magnitudes of the terms of G, (m, n): times eps, it is the rounding error of G."""
        magnitudes = self.sizes()
        magnitudes += np.abs(self.row_mean_product)[:, None]
        magnitudes += np.abs(self.column_mean_product) + self.mean_norm2
        return self._cleared(magnitudes)

    def errors(self, eps: float) -> F64:
        """Errors of G, (m, n), where those of the products are eps |x_i| |x_j|: these, and rounding of the terms of the mean."""
        errors = self.sizes()
        errors *= eps
        errors += EPS * self.magnitudes()
        return self._cleared(errors)

    def errors_of_distances(self, eps: float) -> F64:
        """Errors of squared distances, (m, n), from independent ones of three products; none of a sample from itself."""
        row, column = self.sizes2()
        errors = np.hypot(np.hypot(row[:, None], column), 2 * self.sizes())
        errors *= eps
        errors[self._same] = 0.0
        return errors

    @property
    def _same(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Places of samples beside themselves, which only a fit has."""
        own = np.arange(len(self.rows) if self.first is not None else 0)
        return own, own + (self.first or 0)

    def _cleared(self, values: F64) -> F64:
        """Values with 0 where a sample is 0, in place."""
        row, column = self.zeros
        values[row] = 0.0
        values[:, column] = 0.0
        return values

    @property
    def zeros(self) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Which samples are 0 before centring, (m,) and (n,), as `dpca.numerics.preprocess.of_zeros` marks them."""
        products = self.row_mean_product, self.column_mean_product
        row, column = [
            (product == -self.mean_norm2) & (size == self.mean_norm2)
            for product, size in zip(products, self.sizes2(), strict=True)
        ]
        return row, column

    def norms2(self) -> tuple[F64, F64]:
        """Squared norms of the samples before centring, (m,) and (n,)."""
        return (
            _norms2(self.rows, self.row_mean_product, self.mean_norm2),
            _norms2(self.columns, self.column_mean_product, self.mean_norm2),
        )

    def squared_distances(self) -> F64:
        """G_ii + G_jj - 2 G_ij, (m, n); 0 where rounding made it negative."""
        distances = self.rows[:, None] + self.columns
        distances -= 2.0 * self.products
        return np.maximum(distances, 0.0, out=distances)

    def sizes2(self) -> tuple[F64, F64]:
        """|x_i|^2 of both sets of samples, (m,) and (n,), from the most accurate source."""
        row = self.rows if self.row_norms2 is None else self.row_norms2
        column = self.columns if self.column_norms2 is None else self.column_norms2
        return np.maximum(row, 0.0), np.maximum(column, 0.0)

    def sizes(self) -> F64:
        """|x_i| |x_j|, (m, n), the scale of the errors of the products."""
        row, column = self.sizes2()
        return np.sqrt(row)[:, None] * np.sqrt(column)


def _norms2(about_mean: F64, mean_product: F64, mean_norm2: float) -> F64:
    """|x - m|^2 + 2 (x - m)'m + |m|^2, with 0 where it can't be told from rounding."""
    norms2 = about_mean + 2 * mean_product + mean_norm2
    size = np.abs(about_mean) + 2 * np.abs(mean_product) + mean_norm2
    return np.where(norms2 > 64 * EPS * size, norms2, 0.0)


def longest_row(values: F64) -> float:
    """The largest norm of a row, without overflow of the squares."""
    return float(row_lengths(values).max(initial=0.0))


def row_lengths(values: F64) -> F64:
    """The norm of each row, (m,), without overflow of the squares; that of the largest value in all where one is not finite."""
    largest = float(np.abs(values).max(initial=0.0))
    if not 0 < largest < math.inf:
        return np.full(len(values), largest)
    scaled = values / largest
    return np.asarray(largest * np.sqrt(np.einsum("ij,ij->i", scaled, scaled)))


def blocks(n: int) -> Iterator[slice]:
    """Slices of rows that are computed together, so that intermediate arrays stay small."""
    for start in range(0, n, BLOCK_ROWS):
        yield slice(start, min(start + BLOCK_ROWS, n))


def median_gamma(inner: Inner) -> float:
    """1 / (median of the squared distances between different samples); NaN where that is 0.

    The median heuristic (Garreau, Jitkrittum and Kanagawa, arXiv:1707.07269, 2017), with gamma = 1 / median.
    """
    n = len(inner.rows)
    distances = np.empty(n * (n - 1) // 2)
    start = 0
    for number in range(1, n):
        row = inner.of_rows(slice(number, number + 1)).squared_distances()[0, :number]
        distances[start : start + number] = row
        start += number
    median = float(np.median(distances, overwrite_input=True)) if distances.size else 0.0
    return 1.0 / median if median > 0 else math.nan


@dataclass(frozen=True)
class Centering:
    """The means of a fit's kernel matrix, which also centre the rows of new samples."""

    columns: F64
    """Mean of each column, (n,)."""
    all: float

    @classmethod
    def of(cls, matrix: F64) -> Centering:
        """The means of the kernel matrix of the fit."""
        columns = matrix.mean(axis=0)
        return cls(columns, float(columns.mean()))

    def apply(self, rows: F64) -> F64:
        """k - (k 1/n) 1' - 1 columns' + all, for rows of the kernel, (m, n), in place.

        Subtracts the mean of the fit's images in feature space (Scholkopf et al. 1998, appendix A).
        """
        rows -= rows.mean(axis=1)[:, None]
        rows -= self.columns - self.all
        return rows
