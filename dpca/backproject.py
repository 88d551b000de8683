"""The streamed side's vectors from alpha, components w_k = X_c' alpha_k as a rule, and what is measured on the way."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpca.accumulators.tallies import Counts

F64 = NDArray[np.float64]

LOST_EPS = 64
"""Orthogonality that is lost by more than so many eps is repaired."""


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
    counts: Counts = field(default_factory=Counts)

    @classmethod
    def empty(cls, m: int, k: int) -> BackprojectionPartial:
        return cls(np.zeros((k, k)), np.zeros((m, k)), np.zeros(k), np.zeros(k))

    def add(self, matrix: NDArray[Any], alpha: NDArray[Any]) -> NDArray[Any]:
        """Back-project a part of X_c.

        Parameters
        ----------
        matrix : the kept side by that part, (m, w)
        alpha : (m, n_components), in the same dtype

        Returns
        -------
        (n_components, w), in the same dtype
        """
        vectors: NDArray[Any] = alpha.T @ matrix
        self.overlap += vectors @ vectors.T
        self.projection += (vectors @ matrix.T).T
        self._widen(vectors.min(axis=1, initial=0), vectors.max(axis=1, initial=0))
        return vectors

    def merge(self, other: BackprojectionPartial) -> BackprojectionPartial:
        """Add another span's, in place."""
        self.overlap += other.overlap
        self.projection += other.projection
        self._widen(other.low, other.high)
        self.counts.merge(other.counts)
        return self

    @property
    def signs(self) -> F64:
        """What makes the entry of largest magnitude in each vector positive, (n_components,)."""
        return np.where(-self.low > self.high, -1.0, 1.0)

    def _widen(self, low: NDArray[Any], high: NDArray[Any]) -> None:
        self.low, self.high = np.minimum(self.low, low), np.maximum(self.high, high)


def orthogonalizer(overlap: F64, nonzero: NDArray[np.bool_], working_dtype: np.dtype[Any]) -> F64 | None:
    """What makes components orthonormal that are not: T with (T W')(T W')' = I.

    Back-projection divides by sigma, so W'W is off by about eps sigma_1 / sigma_j. With W'W = L L' its
    factor repairs it: T = L^-1, as in Cholesky-QR (Golub and Van Loan, 5.2.9). T is lower triangular, so a
    component changes by stronger ones alone.

    Parameters
    ----------
    overlap : W'W
    nonzero : which components are not zero rows
    working_dtype : of W

    Returns
    -------
    (n_components, n_components), or None where W is orthonormal to working precision, or too far from it
    """
    part = np.ix_(nonzero, nonzero)
    if np.abs(overlap[part] - np.eye(int(nonzero.sum()))).max(initial=0.0) <= LOST_EPS * np.finfo(working_dtype).eps:
        return None
    try:
        lower = np.linalg.cholesky(overlap[part])
    except np.linalg.LinAlgError:
        return None
    transform = np.zeros_like(overlap)
    transform[part] = np.linalg.inv(lower)
    return transform


def held(m: int, n_components: int, slab_width: int, working_dtype: np.dtype[Any]) -> dict[str, int]:
    """Bytes of what the back-projection of a span holds, by name."""
    return {
        "overlap and projection of a span": 8 * n_components * (n_components + m),
        "vectors of a slab": n_components * slab_width * working_dtype.itemsize,
        "products of a panel": n_components * (n_components + m + 4096) * working_dtype.itemsize,
    }
