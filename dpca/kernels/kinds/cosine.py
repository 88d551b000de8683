"""cosine: G_ij / sqrt(G_ii G_jj), 0 where a sample is 0."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dpca.kernels.inner import EPS, Inner
from dpca.kernels.kernel import Kernel
from dpca.types import F64


@dataclass(frozen=True)
class Cosine(Kernel):
    """The cosine of the angle between samples."""

    called: ClassVar = "cosine"
    bounded: ClassVar = True
    positive: ClassVar = True

    def values(self, inner: Inner, eps: float) -> tuple[F64, F64 | None]:
        values, error = inner.gram(), inner.errors(eps) if eps else None
        row2, column2 = inner.norms2()
        norms = np.sqrt(row2)[:, None] * np.sqrt(column2)
        np.divide(values, norms, out=values, where=norms > 0)
        values[(norms == 0) | np.logical_or.outer(*inner.zeros)] = 0.0
        return values, None if error is None else _change_of_cosine(inner, values, norms, error, eps)


def _change_of_cosine(inner: Inner, cosines: F64, norms: F64, error: F64, eps: float) -> F64:
    """The most that cosines change within the errors of the products and of the norms, (m, n)."""
    change = np.divide(error, norms, out=np.full_like(norms, 2.0), where=norms > 0)
    products = inner.row_mean_product, inner.column_mean_product
    for axis, norms2, size, mean_product, zero in zip(
        (1, 0), inner.norms2(), inner.sizes2(), products, inner.zeros, strict=True
    ):
        terms = size + 2 * np.abs(mean_product) + inner.mean_norm2
        magnitude = eps * size + 4 * EPS * terms
        relative = np.divide(magnitude, norms2, out=np.ones_like(norms2), where=norms2 > 0)
        known = np.expand_dims(relative < 1, axis)
        change += np.abs(cosines) * np.expand_dims(1 / np.sqrt(1 - np.minimum(relative, 0.99)) - 1, axis)
        change[np.broadcast_to(~known, change.shape)] = 2.0
        # Only the cosine of a sample that is exactly 0 has no error: it is 0.
        change[np.broadcast_to(np.expand_dims(zero, axis), change.shape)] = 0.0
    return np.minimum(change, 2.0)
