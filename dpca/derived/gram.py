"""The products of samples, and those of operators applied to them: A K A^H.

Precision. Where the entry (i, j) of K is off by `rounding` |x_i| |x_j|, and these errors are independent, those of A K A^H have a norm (of
Frobenius) of about `rounding` times sum_i |x_i|^2 |a_i|^2, with a_i the columns of A: the trace that A K A^H would have if the samples were
orthogonal to each other. Its ratio to the trace that A K A^H has is the amplification: 1 for a selection, tr K / tr(A K A^H) for a
projector that removes a few directions, with nearly all of the variance in them perhaps. A factor R of K has relative errors in its columns,
not in their products, and so keeps twice the digits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg

from dpca.derived.operators import EPS, F64, Chain, Matrix, Operator, Select
from dpca.errors import ConfigError, DataError
from dpca.numerics.accumulators.gram import eigh
from dpca.numerics.gram_matrix import GramMatrix
from dpca.numerics.sketch import SMALLEST
from dpca.numerics.spectrum import reciprocal

Choose = Callable[[F64], int]
"""The number of vectors, from all eigenvalues, descending."""
BLOCK = 256
"""Columns or rows that are transformed together, so that intermediate arrays stay small."""


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

    def floor(self, eigenvalues: F64, exposed: float) -> float:
        """What an eigenvalue has to exceed to be told from 0: rounding of the eigensolve, which alone makes any negative, and of products.

        Parameters
        ----------
        eigenvalues : all of them, (n,)
        exposed : the trace if samples were orthogonal
        """
        solved = max(self.n * EPS * float(eigenvalues.max()), -2 * float(eigenvalues.min()))
        return max(solved, self.n * EPS * exposed, self.rounding * exposed)

    def norms2(self, about_mean: bool) -> F64:
        """|x_i|^2, about the mean or not, (n,)."""
        diagonal = np.diagonal(self.matrix).real
        return np.maximum(diagonal if about_mean else diagonal + 2 * self.mean_product + self.mean_norm2, 0.0)

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

    def beside(self, parts: Sequence[Select]) -> Products:
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

    def errors(self, lengths2: F64, eigenvalues: F64, exposed: float) -> F64:
        """Relative errors of eigenvalues, (k,), each at most its residual in the true matrix.

        A K A^H u - lambda u = A dK A^H u, whose norm is about rounding (sum_i |x_i|^2 |b_i|^2)^(1/2) exposed^(1/2) with b = A^H u; an
        eigenvalue lies within this of lambda (Parlett, The Symmetric Eigenvalue Problem, theorem 4.5.1).

        Parameters
        ----------
        lengths2 : sum_i |x_i|^2 |c_i|^2 for coefficients c = b / sqrt(lambda), (k,)
        exposed : the trace of A K A^H if samples were orthogonal
        """
        return max(self.rounding, SMALLEST) * np.sqrt(lengths2 * exposed * reciprocal(eigenvalues))

    def _columns(self, columns: slice, about_mean: bool) -> Matrix:
        """Columns of K or X X'."""
        block = self.matrix[:, columns]
        if about_mean or not (self.mean_norm2 or self.mean_product.any()):
            return block
        return np.asarray(block + self.mean_product[:, None] + (self.mean_product[columns] + self.mean_norm2))


@dataclass(frozen=True, eq=False)
class FactorProducts:
    """The same, from F with F F^H = K: F = R' where a QR factorization of X_c' = Q R is kept. Nothing is squared."""

    factor: Matrix
    """F, (n, m)."""
    mean_product: F64
    """As in Products."""
    mean_norm2: float
    """As in Products."""
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

    def floor(self, eigenvalues: F64, exposed: float) -> float:
        return max(self.n * EPS, self.rounding) ** 2 * exposed

    def norms2(self, about_mean: bool) -> F64:
        rows = self.factor if about_mean else self._about_zero
        return np.asarray(np.linalg.norm(rows, axis=1) ** 2)

    def under(self, operator: Operator) -> FactorProducts:
        rows = self.factor if operator.removes_mean else self._about_zero
        return plain_factor(operator.apply(rows), self.rounding)

    def beside(self, parts: Sequence[Select]) -> FactorProducts:
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

    def errors(self, lengths2: F64, eigenvalues: F64, exposed: float) -> F64:
        """As of Products: |b^H dF|, twice, since lambda is the square of sigma."""
        return 2 * max(self.rounding, SMALLEST) * np.sqrt(lengths2)

    @property
    def _about_zero(self) -> Matrix:
        """F of X instead of X_c: [F + 1 z^H, s 1] with F z = r, and s^2 what c has beyond |z|^2. (n, m + 1)."""
        if not (self.mean_norm2 or self.mean_product.any()):
            return self.factor
        within = np.linalg.lstsq(self.factor, self.mean_product, rcond=None)[0]
        beside = np.sqrt(max(self.mean_norm2 - float(np.linalg.norm(within) ** 2), 0.0))
        return np.hstack([self.factor + within, np.full((self.n, 1), beside)])


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
    """Of the rows, p of them."""
    chain: Chain
    """A."""
    norms2: F64
    """|x_i|^2 of the samples, about the mean where A removes it, (n,)."""
    exposed: F64
    """Squared norm of each row if the samples were orthogonal to each other, (p,)."""

    @property
    def n(self) -> int:
        """Number of rows, p."""
        return self.products.n

    @property
    def amplification(self) -> float:
        """How much of the samples the operator removes: what errors of K weigh more in A K A^H than in K."""
        return float(self.exposed.sum()) / self.products.total

    def rank(self, eigenvalues: F64, exposed: float | None = None) -> int:
        """The number of eigenvalues, descending, that can be told from 0."""
        exposed = float(self.exposed.sum()) if exposed is None else exposed
        return int(np.count_nonzero(eigenvalues > self.products.floor(eigenvalues, exposed)))

    def errors(self, coefficients: Matrix, eigenvalues: F64, exposed: float | None = None) -> F64:
        """Relative errors of eigenvalues, (k,), from the coefficients of their components, (n, k), or one such a lag; infinite where they are 0."""
        lengths2 = (self.norms2 @ np.abs(coefficients) ** 2).reshape(-1, len(eigenvalues)).sum(axis=0)
        exposed = float(self.exposed.sum()) if exposed is None else exposed
        errors = np.maximum(self.products.errors(lengths2, eigenvalues, exposed), SMALLEST)
        return np.where(eigenvalues > 0, errors, np.inf)


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

    Raises
    ------
    ConfigError
        When the chain is made for another number of samples.
    DataError
        When nothing is left of them.
    """
    if chain.n_in != products.n:
        raise ConfigError(
            f"the operators are made for {chain.n_in} samples, but there are {products.n}",
            "Make them from the labels, times or covariates of these samples.",
        )
    rows, norms2 = products.under(chain), products.norms2(chain.removes_mean)
    exposed, sizes = np.zeros(rows.n), np.sqrt(norms2)
    for columns in blocks(chain.n_in):
        alone = np.zeros((chain.n_in, columns.stop - columns.start))
        alone[np.arange(columns.start, columns.stop), np.arange(alone.shape[1])] = sizes[columns]
        exposed += (np.abs(chain.apply(alone)) ** 2).sum(axis=1)
    if rows.total <= rows.floor(np.array([rows.total]), float(exposed.sum())):
        raise DataError(
            f"the operators leave nothing of the samples: {rows.total:.3g} of a variance of {norms2.sum():.3g}, which is rounding",
            "Leave one of them out, or run with `precision: double`, if products are in single precision.",
        )
    return Transformed(rows, chain, norms2, exposed)


def plain(matrix: Matrix, rounding: float) -> Products:
    """Products of rows as they are, with whatever mean they have."""
    return Products(matrix, np.zeros(len(matrix)), 0.0, rounding)


def plain_factor(factor: Matrix, rounding: float) -> FactorProducts:
    """The same, from their factor."""
    return FactorProducts(factor, np.zeros(len(factor)), 0.0, rounding)


def blocks(n: int) -> Iterator[slice]:
    """Slices of columns or rows that are transformed together."""
    for start in range(0, n, BLOCK):
        yield slice(start, min(start + BLOCK, n))


def _symmetrized(matrix: Matrix) -> Matrix:
    """(M + M^H) / 2, in place."""
    for rows in blocks(len(matrix)):
        beyond = slice(rows.start, None)
        matrix[rows, beyond] = (matrix[rows, beyond] + matrix[beyond, rows].conj().T) / 2
        matrix[beyond, rows] = matrix[rows, beyond].conj().T
    return matrix


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
