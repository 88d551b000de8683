"""Back-projection: the singular vectors of the streamed side, usually w_k = X_c' alpha_k, and measurements of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpca.numerics.accumulators.tallies import Counts
from dpca.numerics.sketch import COLUMNS
from dpca.numerics.sparse_lines import Part
from dpca.types import F64

LOST_EPS = 64
"""Vectors are made orthonormal again where W'W differs from the identity by more than this many eps."""


TOGETHER = 256
"""Columns of deviations that are multiplied together."""
TURNED = 1e-6
"""Vectors that a Rayleigh-Ritz step rotates by less than this stay as they are."""


@dataclass(frozen=True)
class MeasuredFit:
    """Measurements of components and scores, complete after the last span."""

    overlap: F64
    """W'W, after any repair, (n_components, n_components)."""
    scores_overlap: F64
    """U'U, where the scores are U diag(sigma), after any repair."""
    before: F64 | None
    """The overlap of the streamed side before its repair, which the kept side never needs; None without a repair."""
    misfit: F64
    """|X_c w - sigma u|, or |X_c' u - sigma w| where samples were streamed, (n_components,)."""
    refined: bool = False
    """Whether the singular values are Ritz values of the second pass."""


@dataclass
class BackprojectionPartial:
    """The contribution of one part of the streamed side to the certificate.

    The vectors are the components W where samples are kept, and the left singular vectors U where features are kept.
    """

    overlap: F64
    """W' W, (n_components, n_components): the identity once all parts are added."""
    projection: F64
    """X_c W, (m, n_components): the kept vectors times sigma once all parts are added."""
    low: F64
    """Smallest and largest entry of each vector, (n_components,)."""
    high: F64
    checked: F64
    """(Omega' X_c) W, (t, n_components): Omega' X_c W summed in another order; only for products in double precision."""
    sketch: F64
    """X_c X_c' Omega, (m, t), where samples are streamed: features are not scaled before this pass."""
    _columns: F64 = field(repr=False)
    counts: Counts = field(default_factory=Counts)

    @classmethod
    def empty(cls, m: int, k: int, columns: F64) -> BackprojectionPartial:
        """The contribution of no data: zeros."""
        t = columns.shape[1]
        return cls(
            np.zeros((k, k)), np.zeros((m, k)), np.zeros(k), np.zeros(k), np.zeros((t, k)), np.zeros((m, t)), columns
        )

    def add(self, matrix: NDArray[Any], alpha: NDArray[Any], stored: np.dtype[Any] | None = None) -> NDArray[Any]:
        """Back-project a part of X_c.

        Parameters
        ----------
        matrix : the part of X_c, kept side by streamed side, (m, w)
        alpha : (m, n_components), in the same dtype
        stored : dtype that the vectors are rounded to before they are measured; the dtype of the matrix if None

        Returns
        -------
        (n_components, w), in the dtype of the matrix
        """
        vectors: NDArray[Any] = alpha.T @ matrix
        if stored is not None and stored != matrix.dtype:
            vectors = vectors.astype(stored).astype(matrix.dtype)
        self.overlap += vectors @ vectors.T
        if matrix.dtype == np.float32 and matrix.flags.c_contiguous:  # a third faster for these alone (measured)
            self.projection += matrix @ vectors.T
        else:
            self.projection += (vectors @ matrix.T).T
        if matrix.dtype == np.float64:
            self.checked += (self._columns.T @ matrix) @ vectors.T
        self._widen(vectors.min(axis=1, initial=0), vectors.max(axis=1, initial=0))
        return vectors

    def add_lines(self, part: Part, alpha: F64, stored: np.dtype[Any], *, sketched: bool = False) -> F64:
        """Back-project a part of X_c that exists as products, in float64.

        Parameters
        ----------
        part, alpha, stored : as for `add`
        sketched : whether the sketch of the part is added, too
        """
        k = alpha.shape[1]
        found = part.into(np.hstack([alpha, self._columns]))
        vectors, checked = found[:, :k].astype(stored).astype(np.float64), found[:, k:]
        image = part.back(np.hstack([vectors, checked]) if sketched else vectors)
        self.overlap += vectors.T @ vectors
        self.projection += image[:, :k]
        self.checked += checked.T @ vectors
        if sketched:
            self.sketch += image[:, k:]
        self._widen(vectors.min(axis=0, initial=0), vectors.max(axis=0, initial=0))
        return vectors.T

    def merge(self, other: BackprojectionPartial) -> BackprojectionPartial:
        """Add the contribution of another span, in place."""
        self.overlap += other.overlap
        self.projection += other.projection
        self.checked += other.checked
        self.sketch += other.sketch
        self._widen(other.low, other.high)
        self.counts.merge(other.counts)
        return self

    @property
    def signs(self) -> F64:
        """Signs that make the entry of largest magnitude in each vector positive, (n_components,)."""
        return np.where(-self.low > self.high, -1.0, 1.0)

    def _widen(self, low: NDArray[Any], high: NDArray[Any]) -> None:
        self.low, self.high = np.minimum(self.low, low), np.maximum(self.high, high)


@dataclass(frozen=True)
class Ritz:
    """Singular values and vectors of X_c, restricted to the span of the second pass's not quite orthonormal vectors."""

    values: F64
    """Descending, (n_components,); 0 for vectors that are zero rows, which come last."""
    kept: F64
    """Orthonormal vectors of the kept side, (m, n_components)."""
    transform: F64
    """T, (n_components, n_components): T W' has orthonormal rows, and X_c' kept = (T W')' diag(values) in their span."""

    @classmethod
    def of(cls, overlap: F64, projection: F64, nonzero: NDArray[np.bool_]) -> Ritz | None:
        """A Rayleigh-Ritz step, from k x k and m x k matrices only.

        With W'W = L L' the columns of W L^-T are orthonormal (Golub and Van Loan, 5.2.9), and X_c W L^-T = U S R'
        (8.6.3: Ritz values from below). An eigenvector with an error of theta gives a value with an error of theta^2.

        Parameters
        ----------
        overlap, projection : W'W and X_c W
        nonzero : mask of the vectors that are not zero rows; these come first

        Returns
        -------
        None where the vectors are too far from orthonormal
        """
        rank, repair = int(nonzero.sum()), orthogonalizer(overlap, nonzero)
        if repair is None:
            return None
        inverse = repair[:rank, :rank]
        projected = projection[:, :rank] @ inverse.T
        right = np.linalg.svd(projected, full_matrices=False)[2]
        # LAPACK's values have an error of eps sigma_1. The norms of the columns do not: errors of the vectors enter them squared.
        columns = projected @ right.T
        norms = np.linalg.norm(columns, axis=0)
        order = np.argsort(-norms, kind="stable")
        rotation = (right @ inverse)[order]
        # The signs of singular vectors are arbitrary: choose those that keep each vector's direction.
        signs = np.where(np.diagonal(rotation) < 0, -1.0, 1.0)
        values, kept, transform = np.zeros(len(overlap)), np.zeros_like(projection), np.zeros_like(overlap)
        values[:rank], transform[:rank, :rank] = norms[order], rotation * signs[:, None]
        # Rounding of a strong column is large relative to a weak one, so each is made orthogonal to those before it.
        columns = columns[:, order] / np.where(values[:rank] > 0, values[:rank], 1)
        orthonormal, triangle = np.linalg.qr(columns)
        kept[:, :rank] = orthonormal * np.where(np.diagonal(triangle) < 0, -signs, signs)
        return cls(values, kept, transform)

    @property
    def turns(self) -> bool:
        """Whether any vector changes by more than TURNED, relative to its singular value."""
        change = np.abs(self.transform - np.diag((self.values > 0).astype(float)))
        ratios = np.divide.outer(
            1 / np.where(self.values > 0, self.values, np.inf), 1 / np.maximum(self.values, 1e-300)
        )
        return bool((change * np.maximum(1.0, ratios)).max(initial=0.0) > TURNED)


def orthogonalizer(overlap: F64, nonzero: NDArray[np.bool_]) -> F64 | None:
    """The matrix T that makes components orthonormal: (T W')(T W')' = I.

    Back-projection divides by sigma, so W'W has an error of about eps sigma_1 / sigma_j. With the Cholesky factor of
    W'W = L L' this is repaired: T = L^-1, as in Cholesky-QR (Golub and Van Loan, 5.2.9). T is lower triangular, so
    a component changes only by multiples of stronger ones.

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
    """Whether W'W is the identity to the precision of W, zero rows excepted."""
    part = np.ix_(nonzero, nonzero)
    off = np.abs(overlap[part] - np.eye(int(nonzero.sum()))).max(initial=0.0)
    return bool(off <= LOST_EPS * np.finfo(dtype).eps)


def sums_of_squares(coefficients: NDArray[Any], matrix: NDArray[Any]) -> F64:
    """Sums of squares of each feature over the maps C' X, (w,): nothing of all maps exists.

    Parameters
    ----------
    coefficients : C, (n, r)
    matrix : X, (n, w)
    """
    found = np.zeros(matrix.shape[1])
    for start in range(0, coefficients.shape[1], TOGETHER):
        maps = coefficients[:, start : start + TOGETHER].T @ matrix
        found += np.einsum("rw,rw->w", maps, maps, dtype=np.float64)
    return found


def held(m: int, n_components: int, slab_width: int, working_dtype: np.dtype[Any]) -> dict[str, int]:
    """Bytes that the back-projection of a span holds, by name of the array."""
    return {
        "overlap and projection of a span": 8 * n_components * (n_components + m),
        "vectors of a slab": n_components * slab_width * working_dtype.itemsize,
        "products of a panel": n_components * (n_components + m + 4096) * working_dtype.itemsize,
        "a panel's vectors as they are stored, and as measured": 2 * n_components * 4096 * working_dtype.itemsize,
        "random columns, and products with them": 8 * COLUMNS * (3 * m + n_components + 4096),
    }
