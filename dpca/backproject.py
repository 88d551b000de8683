"""Components from alpha: w_k = X_c' alpha_k, and what is measured of them on the way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpca.preprocess import Panel

F64 = NDArray[np.float64]


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


def held(n_samples: int, n_components: int, slab_features: int, working_dtype: np.dtype[Any]) -> dict[str, int]:
    """Bytes of what the back-projection of a span holds, by name."""
    return {
        "W'W and X_c W of a span": 8 * n_components * (n_components + n_samples),
        "components of a slab": n_components * slab_features * working_dtype.itemsize,
        "products of a panel": n_components * (n_components + n_samples + 4096) * working_dtype.itemsize,
    }


def merge(total: BackprojectionPartial, partial: BackprojectionPartial) -> BackprojectionPartial:
    """Add a partial to a total, in place."""
    total.overlap += partial.overlap
    total.projection += partial.projection
    total.bytes_read += partial.bytes_read
    return total
