"""From the Gram matrix to singular values, scores and alpha. In memory, n x n.

With rows as samples and K = X_c X_c' = V diag(lambda) V' (the method of snapshots: Sirovich, Quart. Appl.
Math. 45, 1987): sigma_j = sqrt(lambda_j), scores Z = V diag(sigma), alpha_k = v_k / sigma_k, components
w_k = X_c' alpha_k. The eigenvalues of the covariance X_c' X_c / (n - ddof) are lambda_j / (n - ddof).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]

SIGN_RULE = "the entry of largest magnitude in each score vector is positive"


@dataclass(frozen=True)
class Spectrum:
    """The decomposition on the n x n side."""

    eigenvalues: F64
    """lambda of K, descending, (min(n, d),); 0 beyond the numerical rank."""
    vectors: F64
    """V, (n_samples, n_components), signs set; columns beyond the rank are orthonormal and arbitrary."""
    total: float
    """trace(K): the total variance times the divisor."""
    rank: int
    """Eigenvalues that are distinguishable from rounding."""
    largest_rank: int
    """What the rank can be at most: min(n, d), one less of n where the data were centred."""
    supported: float
    """Smallest sigma_j / sigma_1 that the working precision supports: sqrt(eps), since K squares it."""
    n_samples: int
    ddof: int
    residuals: F64
    """|K v - lambda v| / lambda_1 of each component, (n_components,)."""

    @property
    def n_components(self) -> int:
        return int(self.vectors.shape[1])

    @property
    def divisor(self) -> float:
        return self.n_samples - self.ddof

    @property
    def singular_values(self) -> F64:
        """sigma, (n_components,)."""
        return np.sqrt(self.eigenvalues[: self.n_components])

    @property
    def scores(self) -> F64:
        """Z = V diag(sigma), (n_samples, n_components)."""
        return self.vectors * self.singular_values

    @property
    def alpha(self) -> F64:
        """V diag(1 / sigma), (n_samples, n_components); a column of zeros where sigma is 0."""
        sigma = self.singular_values
        return self.vectors * np.divide(1.0, sigma, out=np.zeros_like(sigma), where=sigma > 0)

    @property
    def explained_variance(self) -> F64:
        """lambda_j / (n - ddof), (n_components,)."""
        return self.eigenvalues[: self.n_components] / self.divisor

    @property
    def explained_variance_ratio(self) -> F64:
        """lambda_j / trace(K), over the total variance, not over the computed part; 0 where there is none."""
        kept = self.eigenvalues[: self.n_components]
        return kept / self.total if self.total > 0 else np.zeros_like(kept)

    @property
    def projection_error(self) -> F64:
        """Variance that the first k components leave, sum_{j>k} lambda_j / (n - ddof), (n_components,)."""
        # Added up from the smallest, so that the tail keeps its digits.
        left = np.append(np.cumsum(self.eigenvalues[::-1])[::-1], 0.0)
        return left[1 : self.n_components + 1] / self.divisor

    @property
    def reliable(self) -> NDArray[np.bool_]:
        """Which components the working precision supports, (n_components,)."""
        sigma = self.singular_values
        return (sigma > 0) & (sigma >= self.supported * (sigma[0] if sigma.size else 0.0))

    @property
    def whitening(self) -> F64:
        """What whitened scores are divided by: sqrt(explained variance), 1 where it is 0."""
        deviation = np.sqrt(self.explained_variance)
        return np.where(deviation > 0, deviation, 1.0)


def held(n_samples: int, n_components: int) -> dict[str, int]:
    """Bytes of what `solve` holds, by name: LAPACK's dsyevd, through numpy.linalg.eigh.

    Its workspace is 1 + 6n + 2n^2 values (LAPACK Users' Guide); NumPy hands it a copy of the matrix and
    takes the vectors out of it.
    """
    n = n_samples
    return {
        "Gram matrix": 8 * n * n,
        "its copy for LAPACK": 8 * n * n,
        "eigenvectors": 8 * n * n,
        "LAPACK's workspace": 8 * (1 + 6 * n + 2 * n * n),
        "chosen vectors and their residuals": 3 * 8 * n * n_components,
    }


def largest_n(free_bytes: int) -> int:
    """The most samples for which `solve` fits into so much memory."""
    return math.isqrt(max(0, free_bytes) // 40)


def center_gram(gram: F64) -> F64:
    """H K H with H = I - 11'/n, in place: removes what is left of the mean after rounding."""
    row = gram.mean(axis=1)
    gram -= row[:, None]
    gram -= gram.mean(axis=0)
    return gram


def solve(
    gram: F64, *, n_features: int, n_components: int, center: bool, ddof: int, working_dtype: np.dtype[Any]
) -> Spectrum:
    """Eigendecomposition of a finished Gram matrix.

    Parameters
    ----------
    gram : K, (n, n) float64, after `center_gram` where the data were centred
    n_features : d, which bounds the rank
    n_components : how many to keep, at most min(n, d)
    center : whether the data were centred, which takes one from the rank
    ddof : the divisor is n - ddof
    working_dtype : dtype of the products that made K

    Notes
    -----
    An eigenvalue counts as zero below n eps64 lambda_1 (the backward error of the eigensolve) or below
    twice the magnitude of the most negative one: K has none but through rounding, so that one measures it.
    """
    n = gram.shape[0]
    eigenvalues, vectors = np.linalg.eigh(gram)
    eigenvalues, vectors = eigenvalues[::-1], vectors[:, ::-1]
    largest = max(float(eigenvalues[0]), 0.0)
    floor = max(n * np.finfo(np.float64).eps * largest, -2.0 * float(eigenvalues[-1]))
    limit = min(n - 1 if center else n, n_features)
    rank = min(int(np.count_nonzero(eigenvalues > floor)), limit)
    kept = np.where(np.arange(n) < rank, eigenvalues, 0.0)[: min(n, n_features)]
    chosen = np.ascontiguousarray(vectors[:, :n_components])
    largest_entry = np.argmax(np.abs(chosen), axis=0)
    chosen *= np.where(chosen[largest_entry, np.arange(n_components)] < 0, -1.0, 1.0)
    residuals = np.linalg.norm(gram @ chosen - chosen * eigenvalues[:n_components], axis=0)
    return Spectrum(
        eigenvalues=kept,
        vectors=chosen,
        total=float(np.trace(gram)),
        rank=rank,
        largest_rank=limit,
        supported=float(np.sqrt(np.finfo(working_dtype).eps)),
        n_samples=n,
        ddof=ddof,
        residuals=residuals / largest if largest else residuals,
    )
