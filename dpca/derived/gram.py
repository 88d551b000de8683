"""The products of samples, and those of operators applied to them: A K A^H.

Precision. Where the entry (i, j) of K is off by `rounding` |x_i| |x_j|, and these errors are independent, those of A K A^H have a norm (of
Frobenius) of about `rounding` times sum_i |x_i|^2 |a_i|^2, with a_i the columns of A: the trace that A K A^H would have if the samples were
orthogonal to each other. Its ratio to the trace that A K A^H has is the amplification: 1 for a selection, tr K / tr(A K A^H) for a
projector that removes a few directions, with nearly all of the variance in them perhaps. A factor R of K has relative errors in its columns,
not in their products, and so keeps twice the digits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.linalg

from dpca.derived import rounding
from dpca.derived.operators import BLOCK, EPS, Chain, Matrix, Operator, SelectRows, blocks
from dpca.errors import ConfigError, DataError
from dpca.numerics.accumulators.gram import eigh
from dpca.numerics.gram_matrix import GramMatrix
from dpca.numerics.sketch import COLUMNS
from dpca.numerics.spectrum import reciprocal
from dpca.settings import MODEL
from dpca.types import F64

Choose = Callable[[F64], int]
"""The number of vectors, from all eigenvalues, descending."""


@dataclass(frozen=True, eq=False)
class Products:
    """Inner products of n samples: K, and what makes X X' = K + r 1' + 1 r' + c 11' of it."""

    matrix: Matrix
    """K, (n, n), symmetric or Hermitian."""
    mean_product: F64
    """r = X_c m~ with the mean m~, (n,)."""
    mean_norm2: float
    """c = m~' m~."""
    rounding: float = EPS
    """Error of the entry (i, j) of K relative to |x_i| |x_j|, as `GramMatrix.rounding`."""

    def __post_init__(self) -> None:
        _check(self.matrix, self.mean_product, "Gram matrix", square=True)

    @property
    def n(self) -> int:
        """Number of samples."""
        return len(self.matrix)

    @property
    def total(self) -> float:
        """tr K."""
        return float(np.trace(self.matrix).real)

    @property
    def is_real(self) -> bool:
        """Whether the rows are real."""
        return np.isrealobj(self.matrix)

    def norms2(self, about_mean: bool) -> F64:
        """|x_i|^2, about the mean or not, (n,)."""
        diagonal = np.diagonal(self.matrix).real
        return np.maximum(diagonal if about_mean else diagonal + 2 * self.mean_product + self.mean_norm2, 0.0)

    def along(self, directions: Matrix, about_mean: bool) -> Matrix:
        """Rows along random directions among the samples, (n, t), from normal numbers, (n, t)."""
        sizes = np.sqrt(self.norms2(about_mean))
        right = directions * reciprocal(sizes)[:, None] / np.sqrt(self.n)
        return self.cross(right) if about_mean else with_mean(self, right)

    def under(self, operator: Operator) -> Products:
        """The products of the rows of A X, whose mean is not removed: A K A^H where A 1 = 0, else A (X X') A^H.

        Made in an array of (p, n), of which nothing is copied where p = n: no more than K and this exist. Hermitian to the bit.
        """
        n, p = self.n, operator.n_out
        found = np.empty((p, n), operator.apply(self._columns(slice(0, 1), operator.removes_mean)).dtype)
        for columns in blocks(n):
            found[:, columns] = operator.apply(self._columns(columns, operator.removes_mean))
        made = found[:, :p] if p <= n else np.empty((p, p), found.dtype)
        for rows in blocks(p):
            made[rows] = operator.apply(found[rows].conj().T).conj().T
        return plain(_symmetrized(made if p == n else made.copy()), self.rounding)

    def beside(self, parts: Sequence[SelectRows]) -> Products:
        """The products of rows that consist of one of each part, beside each other: the sum of S_l K S_l'. K is that of rows as they are."""
        found = np.zeros((parts[0].n_out, parts[0].n_out), self.matrix.dtype)
        for part in parts:
            found += self.matrix[part.picks][:, part.picks]
        return plain(found, self.rounding)

    def eigenpairs(self, choose: Choose) -> tuple[F64, Matrix]:
        """All eigenvalues, descending, and the vectors of the largest, as many as are chosen, (n, k)."""
        if not np.iscomplexobj(self.matrix):
            factors = eigh(self.matrix, lambda values, *_: choose(values))
            return factors.eigenvalues, factors.vectors
        # Values alone, then some vectors: a quarter of the time of all vectors, though the matrix is reduced twice.
        eigenvalues = np.linalg.eigvalsh(self.matrix)[::-1]
        lowest = self.n - choose(eigenvalues)
        return eigenvalues, scipy.linalg.eigh(self.matrix, subset_by_index=[lowest, self.n - 1])[1][:, ::-1]

    def form(self, left: Matrix, right: Matrix) -> Matrix:
        """L^H K R, for columns of coefficients."""
        return np.asarray(left.conj().T @ (self.matrix @ right))

    def cross(self, right: Matrix) -> Matrix:
        """K R: the products of each sample with combinations of them."""
        return np.asarray(self.matrix @ right)

    def _columns(self, columns: slice, about_mean: bool) -> Matrix:
        """Columns of K or X X'."""
        block = self.matrix[:, columns]
        if about_mean or not (self.mean_norm2 or self.mean_product.any()):
            return block
        return np.asarray(block + self.mean_product[:, None] + (self.mean_product[columns] + self.mean_norm2))


@dataclass(frozen=True, eq=False)
class FactorProducts:
    """Products from F with F F^H = K: F = R' where a QR factorization of X_c' = Q R is kept. Nothing is squared."""

    factor: Matrix
    """F, (n, m)."""
    mean_product: F64
    """Field of Products of the same name."""
    mean_norm2: float
    """Field of Products of the same name."""
    rounding: float = EPS
    """Error of a row of F relative to its norm."""

    def __post_init__(self) -> None:
        _check(self.factor, self.mean_product, "factor R", square=False)

    @property
    def n(self) -> int:
        return len(self.factor)

    @property
    def total(self) -> float:
        return float(np.linalg.norm(self.factor) ** 2)

    @property
    def is_real(self) -> bool:
        return np.isrealobj(self.factor)

    def norms2(self, about_mean: bool) -> F64:
        squares: F64 = np.einsum("ij,ij->i", self.factor.conj(), self.factor).real
        return np.maximum(squares if about_mean else squares + 2 * self.mean_product + self.mean_norm2, 0.0)

    def along(self, directions: Matrix, about_mean: bool) -> Matrix:
        rows = self.factor if about_mean else self._about_zero
        return np.asarray(rows @ np.resize(directions, (rows.shape[1], directions.shape[1])))

    def under(self, operator: Operator) -> FactorProducts:
        rows = self.factor if operator.removes_mean else self._about_zero
        return plain_factor(operator.apply(rows), self.rounding)

    def beside(self, parts: Sequence[SelectRows]) -> FactorProducts:
        return plain_factor(np.hstack([self.factor[part.indices] for part in parts]), self.rounding)

    def eigenpairs(self, choose: Choose) -> tuple[F64, Matrix]:
        vectors, values, _ = np.linalg.svd(self.factor, full_matrices=False)
        eigenvalues = np.zeros(self.n)
        eigenvalues[: values.size] = values**2
        return eigenvalues, vectors[:, : choose(eigenvalues)]

    def form(self, left: Matrix, right: Matrix) -> Matrix:
        return np.asarray((self.factor.conj().T @ left).conj().T @ (self.factor.conj().T @ right))

    def cross(self, right: Matrix) -> Matrix:
        return np.asarray(self.factor @ (self.factor.conj().T @ right))

    @property
    def _about_zero(self) -> Matrix:
        """F of X instead of X_c: [F + 1 z^H, s 1] with F z = r, and s^2 what c has beyond |z|^2. (n, m + 1)."""
        if not (self.mean_norm2 or self.mean_product.any()):
            return self.factor
        within, beside = self._mean
        return np.hstack([self.factor + within, np.full((self.n, 1), beside)])

    @cached_property
    def _mean(self) -> tuple[F64, float]:
        """z, (m,), and s: 0 where r and c do not tell them from 0, which are differences of numbers that may be equal."""
        left, values, right = np.linalg.svd(self.factor, full_matrices=False)
        along, share = left.T @ self.mean_product, self.n * EPS
        known = np.abs(along) > share * values[0] * np.sqrt(self.mean_norm2)
        within = (along[known] / values[known]) @ right[known]
        rest = self.mean_norm2 - float(np.linalg.norm(within) ** 2)
        return within, float(np.sqrt(rest)) if rest > share * self.mean_norm2 else 0.0


AnyProducts = Products | FactorProducts


def with_mean(products: AnyProducts, right: Matrix) -> Matrix:
    """X X' C, the products with the mean, for columns of coefficients: K C + r 1'C + 1 r'C + c 11'C."""
    r, sums = products.mean_product, right.sum(axis=0)
    return np.asarray(products.cross(right) + np.outer(r, sums) + (r @ right + products.mean_norm2 * sums))


def matrix_of(products: AnyProducts) -> Matrix:
    """The inner products of rows as a matrix, (rows, rows), whatever they are kept as."""
    return products.factor @ products.factor.conj().T if isinstance(products, FactorProducts) else products.matrix


@dataclass(frozen=True, eq=False)
class Transformed:
    """The rows of A X, known by their products."""

    products: AnyProducts
    """Products of the p rows."""
    chain: Chain
    """A."""
    norms2: F64
    """|x_i|^2 of the samples, about the mean where A removes it, else the larger of this and that, (n,)."""
    exposed: F64
    """Squared norm of each row if the samples were orthogonal to each other, (p,)."""
    amplification: float
    """How much of the samples the operator removes: what errors of K weigh more in A K A^H than in K."""
    rounded: Matrix
    """D of `dpca.derived.rounding`: what operators round in the rows, along directions whose squares add up, (p, t)."""
    mean: F64
    """|A 1| |m| where the mean m was put back, else 0, (p,)."""

    @property
    def n(self) -> int:
        """Number of rows, p."""
        return self.products.n

    @cached_property
    def lengths2(self) -> F64:
        """|r_i|^2 of the rows, (p,)."""
        return self.products.norms2(True)

    @property
    def error(self) -> float:
        """The norm of the errors of their products."""
        return rounding.of_products(float(self.exposed.sum()), _norm2(self.rounded), self.products.rounding)

    @property
    def largest_error(self) -> float:
        """Largest error of an entry of their products."""
        most = np.square(np.abs(self.rounded)).sum(axis=1).max()
        return rounding.of_products(float(self.exposed.max()), float(most), self.products.rounding)

    def rank(self, eigenvalues: F64, exposed: float | None = None) -> int:
        """The number of eigenvalues, descending, that can be told from 0."""
        return int(np.count_nonzero(eigenvalues > self.floor(eigenvalues, exposed)))

    def floor(self, eigenvalues: F64, exposed: float | None = None) -> float:
        """Threshold that an eigenvalue, of all of them, has to exceed to be told from 0; `exposed` is their sum if samples were orthogonal."""
        exposed = float(self.exposed.sum()) if exposed is None else exposed
        floor = rounding.floor_of_factor if isinstance(self.products, FactorProducts) else rounding.floor_of_matrix
        return floor(self.n, eigenvalues, exposed, _norm2(self.rounded), _norm2(self.mean), self.products.rounding)

    def errors(
        self,
        weights: Matrix,
        coefficients: Matrix,
        eigenvalues: F64,
        exposed: float | None = None,
        anywhere: float | None = None,
        lengths: float | None = None,
    ) -> F64:
        """Relative errors of eigenvalues, (k,), descending from the largest; infinite where they are 0.

        Parameters
        ----------
        weights : of the rows in components of norm 1, (p, k), or one such a lag, (lags, p, k)
        coefficients : A^H times them: of the samples, (n, k) or (lags, n, k)
        exposed : as of `floor`
        anywhere, lengths : |D|^2, and squared norms of rows that were orthogonal to each other, in sums of rows, where the components are of such
            sums; None for the rows themselves
        """
        n_lags = len(weights) if weights.ndim == 3 else 1

        def squares(of: Matrix, columns: Matrix) -> F64:
            found = np.abs(columns.conj().T @ of) ** 2
            return np.asarray(found.reshape(-1, columns.shape[1], len(eigenvalues)).sum(axis=(0, 1)))

        def weighted(norms2: F64, columns: Matrix) -> F64:
            return np.asarray((norms2 @ np.abs(columns) ** 2).reshape(-1, len(eigenvalues)).sum(axis=0))

        reach = rounding.Reach(
            eigenvalues,
            weighted(self.norms2, coefficients),
            float(self.exposed.sum()) if exposed is None else exposed,
            weighted(self.lengths2, weights),
            float(self.lengths2.sum()) * n_lags if lengths is None else lengths,
            squares(weights, self.rounded),
            _norm2(self.rounded) * n_lags if anywhere is None else anywhere,
            squares(weights, self.mean[:, None]),
        )
        if isinstance(self.products, FactorProducts):
            return rounding.of_factor(reach, self.products.rounding, len(self.norms2))
        return rounding.of_matrix(reach, self.products.rounding)


def products_of(gram: GramMatrix) -> AnyProducts:
    """The products of the samples of a run, K or its factor R, as the run's result keeps them."""
    if gram.is_factor:
        return FactorProducts(gram.kept.T, gram.mean_product, gram.mean_norm2)
    return Products(gram.kept, gram.mean_product, gram.mean_norm2, gram.rounding)


def transformed(products: AnyProducts, chain: Chain) -> Transformed:
    """The products of the rows of A X.

    Parameters
    ----------
    products : of the n samples
    chain : A; with the identity the rows are the samples with their mean, so PCA wants a chain that removes it
    """
    if chain.n_in != products.n:
        raise ConfigError(
            f"the operators are made for {chain.n_in} samples, but there are {products.n}",
            "Make them from the labels, times or covariates of these samples.",
        )
    rows, about_mean, squares = products.under(chain), products.norms2(True), products.norms2(chain.removes_mean)
    norms2, exposed, total = np.maximum(about_mean, squares), np.zeros(rows.n), 0.0
    for columns in blocks(chain.n_in, BLOCK // 2):
        alone = np.zeros((chain.n_in, columns.stop - columns.start))
        alone[np.arange(columns.start, columns.stop), np.arange(alone.shape[1])] = 1.0
        weights2 = np.abs(chain.through(alone))
        np.square(weights2, out=weights2)
        exposed += weights2 @ norms2[columns]
        total += float(weights2.sum(axis=0) @ squares[columns])
    directions = np.random.default_rng(products.n).standard_normal((products.n, COLUMNS)) / np.sqrt(COLUMNS)
    rounded, mean = chain.rounding(products.along(directions, chain.removes_mean)), np.zeros(rows.n)
    if not chain.removes_mean:
        mean = np.abs(chain.apply(np.ones((products.n, 1)))[:, 0]) * np.sqrt(products.mean_norm2)
    amplification = total / rows.total if rows.total > 0 else np.inf
    found = Transformed(rows, chain, norms2, exposed, amplification, rounded, mean)
    if rows.total <= found.floor(np.array([rows.total])):
        raise DataError(
            f"the operators leave nothing of the samples: {rows.total:.3g} of a variance of {norms2.sum():.3g}, which is rounding",
            f"Leave one of them out, or run with {MODEL.precision.at('double')}, if products are in single precision.",
        )
    return found


def plain(matrix: Matrix, rounding: float) -> Products:
    """Products of rows as they are, with whatever mean they have."""
    return Products(matrix, np.zeros(len(matrix)), 0.0, rounding)


def plain_factor(factor: Matrix, rounding: float) -> FactorProducts:
    """Products from their factor."""
    return FactorProducts(factor, np.zeros(len(factor)), 0.0, rounding)


def _symmetrized(matrix: Matrix) -> Matrix:
    """(M + M^H) / 2, in place."""
    for rows in blocks(len(matrix)):
        beyond = slice(rows.start, None)
        matrix[rows, beyond] = (matrix[rows, beyond] + matrix[beyond, rows].conj().T) / 2
        matrix[beyond, rows] = matrix[rows, beyond].conj().T
    return matrix


def _norm2(matrix: Matrix) -> float:
    return float(np.linalg.norm(matrix) ** 2)


def _check(matrix: Matrix, mean_product: Any, what: str, square: bool) -> None:
    n = len(matrix)
    if matrix.ndim != 2 or (square and matrix.shape[1] != n) or np.shape(mean_product) != (n,):
        raise ConfigError(
            f"the {what} has shape {matrix.shape}, and the products with the mean {np.shape(mean_product)}"
        )
    if not np.isfinite(matrix.sum()):
        raise DataError(
            f"the {what} has values that are NaN or infinite", "Run again: a result is never published with them."
        )
