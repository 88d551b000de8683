"""Inner products of features: a matrix of each k neighbouring ones, such as the mass matrix of an element of a mesh.

With M = L L' (Cholesky), the samples X_c L have the inner products X_c M X_c'. The components W of X_c L, orthonormal rows, are maps
W L^-1 of the features, orthonormal in M, and scores are products of X_c with W L' = (W L^-1) M (Sirovich, Quart. Appl. Math. 45,
1987; Volkwein, Proper Orthogonal Decomposition, 2013, 1.1, equation 1.9).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from dpca.types import F64

EPS = float(np.finfo(np.float64).eps)
ASYMMETRIC = 1e-10
"""Entries of a matrix may differ from those of its transpose by this share of the geometric mean of their diagonal entries."""


def least_eigenvalues(matrices: F64) -> F64:
    """The smallest eigenvalue of each matrix, (..., k, k), that is scaled to 1 on its diagonal, (...); 0 where it is no inner product.

    That is where it is not finite, not symmetric, or, as far as k roundings tell, not positive definite.
    """
    k = matrices.shape[-1]
    diagonal = np.diagonal(matrices, axis1=-2, axis2=-1)
    usable = np.asarray(np.isfinite(matrices).all(axis=(-2, -1)) & (diagonal > 0).all(axis=-1))
    roots = np.sqrt(np.where(usable[..., None], diagonal, 1.0))
    scaled = np.where(usable[..., None, None], matrices, np.eye(k)) / (roots[..., :, None] * roots[..., None, :])
    usable &= (np.abs(scaled - scaled.swapaxes(-2, -1)) <= ASYMMETRIC).all(axis=(-2, -1))
    least = np.linalg.eigvalsh(scaled)[..., 0]
    return np.where(usable & (least > k * EPS), least, 0.0)


@dataclass(frozen=True, eq=False)
class Roots:
    """The Cholesky factors L of the matrices of some neighbouring features."""

    values: F64
    """(b, k, k), lower triangular, of b k features."""
    least: F64
    """The smallest eigenvalue of each matrix that is scaled to 1 on its diagonal, (b,)."""

    @classmethod
    def of(cls, matrices: F64, least: F64, grid: Sequence[int]) -> Self:
        """Those of matrices M, (..., k, k), which broadcast to a grid of them in C order.

        Parameters
        ----------
        least : their `least_eigenvalues`, none of which is 0
        """
        k = matrices.shape[-1]
        factors = np.linalg.cholesky((matrices + matrices.swapaxes(-2, -1)) / 2)
        return cls(np.broadcast_to(factors, (*grid, k, k)).reshape(-1, k, k), np.broadcast_to(least, grid).reshape(-1))

    def of_features(self, along: slice) -> Self:
        """Those of some of the features, which cut no matrix."""
        k = self.values.shape[1]
        blocks = slice(along.start // k, along.stop // k)
        return type(self)(self.values[blocks], self.least[blocks])

    def multiply(self, rows: F64) -> float:
        """Multiply rows, (m, b k), by L, in place; returns the sum of squares of what their rounding errors are relative to.

        A value is a sum of k products, whose errors are taken as independent. The factors are those of M + E with |E_ij| up to k eps times
        the root of M_ii M_jj (Higham, Accuracy and Stability of Numerical Algorithms, 2002, theorem 10.3): no singular value changes by
        more than its share k eps over the least eigenvalue (Demmel and Veselic, SIAM J. Matrix Anal. Appl. 13, 1992), nor the square of
        one by more than k eps of the squares of rows with M_ii.
        """
        k = self.values.shape[1]
        squares = np.square(rows).sum(axis=0).reshape(-1, k)
        sizes = np.einsum("bi,bij->b", squares, np.square(self.values))
        rows[...] = self.times(rows)
        images = np.square(rows).sum(axis=0).reshape(-1, k).sum(axis=1)
        of_factors = np.minimum(np.square(k / self.least) * images, k / EPS * sizes)
        return float((k * sizes + of_factors).sum())

    def times(self, rows: F64) -> F64:
        """Rows times L, (m, b k)."""
        return self._product(rows, self.values)

    def times_transposed(self, rows: F64) -> F64:
        """Rows times L', (m, b k)."""
        return self._product(rows, self.values.transpose(0, 2, 1))

    def undone(self, rows: F64) -> F64:
        """Rows times L^-1, (m, b k)."""
        found = np.asarray(np.linalg.solve(self.values.transpose(0, 2, 1), self._by_matrix(rows)), np.float64)
        return self._as_rows(found)

    def bound(self, sizes: F64) -> F64:
        """The largest sizes of a row times L, (b k,), of one whose values have at most these sizes."""
        found: F64 = self._product(np.abs(sizes)[None], np.abs(self.values))[0]
        return found

    def _by_matrix(self, rows: F64) -> F64:
        """Rows, (m, b k), as (b, k, m): a view where memory allows."""
        return rows.T.reshape(*self.values.shape[:2], len(rows))

    @staticmethod
    def _as_rows(found: F64) -> F64:
        """(b, k, m) as rows, (m, b k)."""
        rows: F64 = found.reshape(-1, found.shape[2]).T
        return rows

    def _product(self, rows: F64, factors: F64) -> F64:
        """Rows times factors, (m, b k)."""
        return self._as_rows(np.matmul(factors.transpose(0, 2, 1), self._by_matrix(rows)))


class Usual:
    """The usual inner product, x' x: nothing is multiplied."""

    def multiply(self, rows: F64) -> float:
        """Leave rows as they are, without an error."""
        return 0.0

    def times(self, rows: F64) -> F64:
        """Rows as they are."""
        return rows

    undone = bound = times


USUAL = Usual()
