"""Components from alpha: w_k = X_c' alpha_k, and what is measured of them on the way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpca.preprocess import Panel

F64 = NDArray[np.float64]

LOST_EPS = 64
"""Orthogonality that is lost by more than so many eps is repaired."""


@dataclass
class BackprojectionPartial:
    """What the components of some features contribute to the certificate."""

    overlap: F64
    """W' W, (n_components, n_components): the identity once all features are in."""
    projection: F64
    """X_c W, (n_samples, n_components): V diag(sigma) once all features are in."""
    bytes_read: int = 0

    @classmethod
    def empty(cls, n_samples: int, n_components: int) -> BackprojectionPartial:
        return cls(np.zeros((n_components, n_components)), np.zeros((n_samples, n_components)))

    def add(self, panel: Panel, alpha: NDArray[Any]) -> NDArray[Any]:
        """Back-project a panel.

        Parameters
        ----------
        panel : of f features
        alpha : (n_samples, n_components), in the panel's dtype

        Returns
        -------
        (n_components, f), in the panel's dtype
        """
        components: NDArray[Any] = alpha.T @ panel.matrix
        self.overlap += components @ components.T
        self.projection += panel.matrix @ components.T
        return components

    def merge(self, other: BackprojectionPartial) -> BackprojectionPartial:
        """Add another span's, in place."""
        self.overlap += other.overlap
        self.projection += other.projection
        self.bytes_read += other.bytes_read
        return self


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


def held(n_samples: int, n_components: int, slab_features: int, working_dtype: np.dtype[Any]) -> dict[str, int]:
    """Bytes of what the back-projection of a span holds, by name."""
    return {
        "W'W and X_c W of a span": 8 * n_components * (n_components + n_samples),
        "components of a slab": n_components * slab_features * working_dtype.itemsize,
        "products of a panel": n_components * (n_components + n_samples + 4096) * working_dtype.itemsize,
    }
