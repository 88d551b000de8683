"""The leading eigenpairs of a large symmetric matrix by block Lanczos, and a proof that none was missed.

A block Krylov space grows until its leading Ritz pairs have residuals of rounding (Golub and Underwood, The block Lanczos method, in
Mathematical Software III, 1977; Saad, Numerical Methods for Large Eigenvalue Problems, 2011, chapter 6); each block is made orthogonal to
all before it. The products with the matrix are of whole blocks (BLAS 3), where the reduction to tridiagonal form spends half its
work in products with single vectors.

Then a Cholesky factorization (m^3 / 3 flops) decides whether there are more. With V of j columns, Lambda > 0, K has at most j
eigenvalues of theta or more if theta I - (K - V Lambda V') is positive definite, whatever V is (Weyl's inequality: lambda_{j+1}(K) <=
lambda_1(K - V Lambda V')), and j Ritz values lie above theta. In floating point a factorization that succeeds proves that no
eigenvalue of the matrix is below -m (m + 1) u max_i a_ii (Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., theorem 10.3;
Rump, BIT Numerical Mathematics 46, 2006), and the gap around theta has to be wider than that.

Where no such space is found within a third of the dimensions, or the proof fails, all eigenvalues have to be computed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpca.types import F64

EPS = float(np.finfo(np.float64).eps)
BLOCK = 16
SMALL, SMALL_BLOCK = 6000, 8
"""Smaller matrices take smaller blocks, whose spaces need fewer dimensions: reading the matrix counts less there."""
MOST = 3
"""A space has at most a MOST-th of the dimensions of the matrix, so that it takes less memory than a copy of it."""
FURTHER = 8
"""Pairs that are found beyond those asked for: the proof is at the widest gap among their eigenvalues."""
GAP = 1e-6
"""A relative gap that is wide enough not to look for more than two pairs beyond those asked for."""
GROWTH = 1.25
"""By how much a space grows between two looks at its Ritz pairs."""
SHARE = 1 / 3
"""Share of the time that all eigenvalues take: measured at 10,000 x 10,000 on white noise; where eigenvalues decay, 1 / 8."""
ROUNDING = 4 * EPS
"""A residual, relative to the largest eigenvalue, that more dimensions do not make smaller."""
LARGE = 3000
"""All eigenvalues of smaller matrices take about a second."""
CHEAP = 200
"""All eigenvalues take some 5 % of the products of so many times as many streamed values as there are kept ones."""
SEED = 0


@dataclass(frozen=True)
class Leading:
    """The largest eigenvalues of a matrix, and the proof that they are."""

    eigenvalues: F64
    """Descending, (j,), j > k; all positive."""
    vectors: F64
    """Vectors of the first k, (m, k), orthonormal."""
    smallest: float
    """The smallest Ritz value, which the smallest eigenvalue does not exceed."""


def most_leading(m: int) -> int:
    """The largest number of leading pairs of an m x m matrix that is worth looking for them alone."""
    return m // 40


def pays(m: int, n_streamed: int, k: int) -> bool:
    """Whether the other eigenvalues of an m x m matrix would take long, by themselves and beside the products with its streamed side."""
    return m >= LARGE and n_streamed < CHEAP * m and k <= most_leading(m)


def leading(matrix: F64, k: int) -> Leading | None:
    """The k leading eigenpairs, and eigenvalues beyond, one at least; None where they are not found, or not proved.

    Parameters
    ----------
    matrix : (m, m), symmetric
    """
    found = ritz_pairs(matrix, k)
    if found is None:
        return None
    values, rows, smallest = found
    j = k + 1 + int(np.argmax(_gaps(values[k:])))
    if not has_no_more(matrix, rows[:j], values[:j], float(values[j - 1] + values[j]) / 2):
        return None
    return Leading(values[:j], np.ascontiguousarray(rows[:k].T), smallest)


def has_no_more(matrix: F64, rows: F64, values: F64, theta: float) -> bool:
    """Whether it is proved that no eigenvalues of theta or more are beside those of some vectors.

    Parameters
    ----------
    matrix : (m, m), symmetric
    rows, values : orthonormal vectors, (j, m), and their Ritz values, (j,), descending, above theta
    """
    from dpca.numerics.accumulators.lapack import cholesky  # importing SciPy is slow

    m, j = len(matrix), len(values)
    # Of the factorization; of forming its matrix, where K is as large as its trace; of the Ritz values.
    unknown = EPS * (m * (m + 1) * theta + (j + 2) * float(np.trace(matrix)) + m * float(values[0]))
    if not values[-1] - theta > unknown:
        return False
    left = (rows.T * values) @ rows
    left -= matrix
    np.einsum("ii->i", left)[...] += theta
    return cholesky(left)


def _gaps(values: F64) -> F64:
    """Between neighbours, relative to the smaller one."""
    return values[:-1] / values[1:] - 1


def ritz_pairs(matrix: F64, k: int) -> tuple[F64, F64, float] | None:
    """Leading Ritz values, k + 2 or more, their vectors as rows, and the smallest Ritz value; None without them."""
    m, wanted = len(matrix), k + 2
    b = SMALL_BLOCK if m < SMALL else BLOCK
    most, look = m // MOST // b * b, max(8 * b, 3 * (k + FURTHER))
    if most < look:
        return None
    # Vectors are rows, each in one piece of memory.
    basis, projected = np.empty((most, m)), np.zeros((most, most))
    basis[:b] = orthonormal_columns(np.random.default_rng(SEED).standard_normal((b, m)))[0]
    for size in range(b, most + 1, b):
        known, last = basis[:size], slice(size - b, size)
        rest = known[last] @ matrix
        along = np.zeros((size, b))
        # All that is left but for rounding is along the last two blocks; then, once more, along any.
        for first in (max(0, size - 2 * b), 0):
            part = known[first:] @ rest.T
            along[first:] += part
            rest -= part.T @ known[first:]
        projected[:size, last], projected[last, :size] = along, along.T
        following, beyond = orthonormal_columns(rest)
        following -= (following @ known.T) @ known  # where little was left, its rounding is along what came before
        following, turned = orthonormal_columns(following)
        beyond = turned @ beyond
        if size >= look or size + b > most:
            look = int(GROWTH * size)
            values, turn = np.linalg.eigh((projected[:size, :size] + projected[:size, :size].T) / 2)
            values, turn = values[::-1], turn[:, ::-1]
            residuals = np.linalg.norm(beyond @ turn[last], axis=0)
            good = int(np.argmin(np.append(residuals <= ROUNDING * values[0], False)))
            if values[0] <= 0 or (good >= wanted and values[wanted - 1] <= m * EPS * values[0]):
                return None  # fewer are not zero
            count = min(good, k + FURTHER, int(np.count_nonzero(values > m * EPS * values[0])))
            if count == k + FURTHER or (count >= wanted and _gaps(values[k:count]).max() > GAP):
                return values[:count], turn[:, :count].T @ known, float(values[-1])
        if size + b <= most:
            basis[size : size + b] = following
            projected[size : size + b, last], projected[last, size : size + b] = beyond, beyond.T
    return None


def orthonormal_columns(rows: F64) -> tuple[F64, F64]:
    """Q as rows, and R: rows' = Q' R."""
    columns, factor = np.linalg.qr(rows.T)
    return np.ascontiguousarray(columns.T), factor
