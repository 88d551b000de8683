"""The streamed side's vectors from alpha, components w_k = X_c' alpha_k as a rule, and what is measured on the way."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpca.numerics.accumulators.tallies import Counts
from dpca.numerics.sketch import COLUMNS

F64 = NDArray[np.float64]

LOST_EPS = 64
"""Orthogonality that is lost by more than so many eps is repaired."""


TURNED = 1e-6
"""Vectors that a Rayleigh-Ritz step turns by less are left as they are."""


@dataclass(frozen=True)
class Measured:
    """What was measured of components and scores, once everything is in."""

    overlap: F64
    """W'W, after any repair, (n_components, n_components)."""
    scores_overlap: F64
    """U'U with scores U diag(sigma), after any repair."""
    before: F64 | None
    """Of the side that streamed by, the only one that may need repair, before it; None where it did not."""
    captured: F64
    """(X_c W)' X_c W."""
    misfit: F64
    """|X_c w - sigma u|, or |X_c' u - sigma w| where samples streamed by, (n_components,)."""
    refined: bool = False
    """Whether singular values are Ritz values of the second pass."""


@dataclass
class BackprojectionPartial:
    """What a part of the streamed side's vectors contributes to the certificate.

    With samples kept these are the components W; with features kept, the left singular vectors U.
    """

    overlap: F64
    """W' W, (n_components, n_components): the identity once everything is in."""
    projection: F64
    """X_c W, (m, n_components): the kept vectors times sigma once everything is in."""
    low: F64
    """Smallest and largest entry of each vector, (n_components,)."""
    high: F64
    checked: F64
    """(Omega' X_c) W, (t, n_components): Omega' X_c W with sums in another order; of products in double precision."""
    sketch: F64
    """X_c X_c' Omega, (m, t), where samples stream by: only now are features scaled."""
    _columns: F64 = field(repr=False)
    counts: Counts = field(default_factory=Counts)

    @classmethod
    def empty(cls, m: int, k: int, columns: F64) -> BackprojectionPartial:
        """The measurements of nothing."""
        t = columns.shape[1]
        return cls(
            np.zeros((k, k)), np.zeros((m, k)), np.zeros(k), np.zeros(k), np.zeros((t, k)), np.zeros((m, t)), columns
        )

    def add(self, matrix: NDArray[Any], alpha: NDArray[Any], stored: np.dtype[Any] | None = None) -> NDArray[Any]:
        """Back-project a part of X_c.

        Parameters
        ----------
        matrix : the kept side by that part, (m, w)
        alpha : (m, n_components), in the same dtype
        stored : what vectors are rounded to, the dtype of the matrix if None; what is measured is of those

        Returns
        -------
        (n_components, w), in the dtype of the matrix
        """
        vectors: NDArray[Any] = alpha.T @ matrix
        if stored is not None and stored != matrix.dtype:
            vectors = vectors.astype(stored).astype(matrix.dtype)
        self.overlap += vectors @ vectors.T
        self.projection += (vectors @ matrix.T).T
        if matrix.dtype == np.float64:
            self.checked += (self._columns.T @ matrix) @ vectors.T
        self._widen(vectors.min(axis=1, initial=0), vectors.max(axis=1, initial=0))
        return vectors

    def merge(self, other: BackprojectionPartial) -> BackprojectionPartial:
        """Add another span's, in place."""
        self.overlap += other.overlap
        self.projection += other.projection
        self.checked += other.checked
        self.sketch += other.sketch
        self._widen(other.low, other.high)
        self.counts.merge(other.counts)
        return self

    @property
    def signs(self) -> F64:
        """What makes the entry of largest magnitude in each vector positive, (n_components,)."""
        return np.where(-self.low > self.high, -1.0, 1.0)

    def _widen(self, low: NDArray[Any], high: NDArray[Any]) -> None:
        self.low, self.high = np.minimum(self.low, low), np.maximum(self.high, high)


@dataclass(frozen=True)
class Ritz:
    """Singular values and vectors of X_c within the span of vectors that a second pass gave, not quite orthonormal."""

    values: F64
    """Descending; 0 for vectors that are zero rows, which come last, (n_components,)."""
    kept: F64
    """Vectors of the kept side, (m, n_components), orthonormal."""
    transform: F64
    """T, (n_components, n_components): the rows of T W' are orthonormal, and X_c' kept = (T W')' diag(values) in their span."""

    @classmethod
    def of(cls, overlap: F64, projection: F64, nonzero: NDArray[np.bool_]) -> Ritz | None:
        """A Rayleigh-Ritz step, from k x k and m x k matrices alone.

        With W'W = L L' the columns of W L^-T are orthonormal (Golub and Van Loan, 5.2.9), and X_c W L^-T = U S R'
        (8.6.3: Ritz values from below). An eigenvector that is off by theta gives a value that is off by theta^2.

        Parameters
        ----------
        overlap, projection : W'W and X_c W
        nonzero : which vectors are not zero rows; they come first

        Returns
        -------
        None where the vectors are too far from orthonormal
        """
        j, whole = int(nonzero.sum()), orthogonalizer(overlap, nonzero)
        if whole is None:
            return None
        inverse = whole[:j, :j]
        onto = projection[:, :j] @ inverse.T
        right = np.linalg.svd(onto, full_matrices=False)[2]
        # LAPACK's values are off by eps sigma_1; the columns' own norms are not, and what these vectors are off by counts squared.
        columns = onto @ right.T
        found = np.linalg.norm(columns, axis=0)
        order = np.argsort(-found, kind="stable")
        turn = (right @ inverse)[order]
        # As it was where it hardly turns: signs of singular vectors are anybody's.
        signs = np.where(np.diagonal(turn) < 0, -1.0, 1.0)
        values, kept, transform = np.zeros(len(overlap)), np.zeros_like(projection), np.zeros_like(overlap)
        values[:j], transform[:j, :j] = found[order], turn * signs[:, None]
        # What rounding of a strong one leaves in a weak one is large to it: each is made orthogonal to those before it.
        columns = columns[:, order] / np.where(values[:j] > 0, values[:j], 1)
        orthonormal, triangle = np.linalg.qr(columns)
        kept[:, :j] = orthonormal * np.where(np.diagonal(triangle) < 0, -signs, signs)
        return cls(values, kept, transform)

    @property
    def turns(self) -> bool:
        """Whether vectors change by more than TURNED, each relative to its singular value."""
        change = np.abs(self.transform - np.diag((self.values > 0).astype(float)))
        ratios = np.divide.outer(
            1 / np.where(self.values > 0, self.values, np.inf), 1 / np.maximum(self.values, 1e-300)
        )
        return bool((change * np.maximum(1.0, ratios)).max(initial=0.0) > TURNED)


def orthogonalizer(overlap: F64, nonzero: NDArray[np.bool_]) -> F64 | None:
    """What makes components orthonormal that are not: T with (T W')(T W')' = I.

    Back-projection divides by sigma, so W'W is off by about eps sigma_1 / sigma_j. With W'W = L L' its
    factor repairs it: T = L^-1, as in Cholesky-QR (Golub and Van Loan, 5.2.9). T is lower triangular, so a
    component changes by stronger ones alone.

    Returns
    -------
    (n_components, n_components), or None where W is too far from orthonormal
    """
    part = np.ix_(nonzero, nonzero)
    try:
        lower = np.linalg.cholesky(overlap[part])
    except np.linalg.LinAlgError:
        return None
    transform = np.zeros_like(overlap)
    transform[part] = np.linalg.inv(lower)
    return transform


def is_orthonormal(overlap: F64, nonzero: NDArray[np.bool_], dtype: np.dtype[Any]) -> bool:
    """Whether W'W is the identity to the precision of W, but for zero rows."""
    part = np.ix_(nonzero, nonzero)
    off = np.abs(overlap[part] - np.eye(int(nonzero.sum()))).max(initial=0.0)
    return bool(off <= LOST_EPS * np.finfo(dtype).eps)


def held(m: int, n_components: int, slab_width: int, working_dtype: np.dtype[Any]) -> dict[str, int]:
    """Bytes of what the back-projection of a span holds, by name."""
    return {
        "overlap and projection of a span": 8 * n_components * (n_components + m),
        "vectors of a slab": n_components * slab_width * working_dtype.itemsize,
        "products of a panel": n_components * (n_components + m + 4096) * working_dtype.itemsize,
        "a panel's vectors as they are stored, and as measured": 2 * n_components * 4096 * working_dtype.itemsize,
        "random columns, and products with them": 8 * COLUMNS * (3 * m + n_components + 4096),
    }
