"""What a solver found, as singular values and vectors of the side that was kept; how far each is to be trusted.

With rows as samples and K = X_c X_c' = V diag(lambda) V' (the method of snapshots: Sirovich, Quart. Appl.
Math. 45, 1987): sigma_j = sqrt(lambda_j), scores Z = V diag(sigma), alpha_k = v_k / sigma_k, components
w_k = X_c' alpha_k. The eigenvalues of the covariance X_c' X_c / (n - ddof) are lambda_j / (n - ddof).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpca.accumulators.factors import F64, Factors

MAX_DIGITS = 15.0
SIGN_RULE = "the entry of largest magnitude in each score vector is positive"


@dataclass(frozen=True)
class Spectrum:
    """The decomposition of the m x m matrix of the side that was kept, samples or features."""

    eigenvalues: F64
    """lambda = sigma^2, descending, (min(n, d),); 0 beyond the numerical rank."""
    vectors: F64
    """(m, n_components); columns beyond the rank are orthonormal and arbitrary."""
    total: float
    """trace(K): the total variance times the divisor."""
    rank: int
    """Eigenvalues that are distinguishable from rounding."""
    largest_rank: int
    """What the rank can be at most: min(n, d), one less of n where the data were centred."""
    supported: float
    """Smallest sigma_j / sigma_1 that solver and precision support: sqrt(eps) where the solver squares it, else m eps."""
    power: int
    """Power of sigma that the solver's matrix holds, 2 or 1."""
    n_samples: int
    ddof: int
    residuals: F64
    """How well each fits the solver's matrix, relative to the largest: |K v - lambda v| / lambda_1 for the Gram."""

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
    def scaled(self) -> F64:
        """Vectors times sigma, (m, n_components): of samples the scores Z = V diag(sigma), of features X_c' U."""
        return self.vectors * self.singular_values

    @property
    def alpha(self) -> F64:
        """Vectors over sigma, (m, n_components), 0 where sigma is: what the other side's vectors are found with."""
        return self.vectors * reciprocal(self.singular_values)

    @property
    def signs(self) -> F64:
        """What makes the entry of largest magnitude in each vector positive, (n_components,)."""
        largest = np.argmax(np.abs(self.vectors), axis=0)
        return np.where(self.vectors[largest, np.arange(self.n_components)] < 0, -1.0, 1.0)

    def signed(self, signs: F64) -> Spectrum:
        """The same with vectors multiplied by signs, (n_components,)."""
        return replace(self, vectors=self.vectors * signs)

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

    def components_for(self, share: float) -> int:
        """The fewest components that have this share of the variance."""
        if not self.total > 0:
            return 0
        return min(int(np.searchsorted(np.cumsum(self.eigenvalues) / self.total, share)) + 1, self.rank)

    @property
    def effective_rank(self) -> float:
        """exp of the entropy of lambda / sum(lambda): how many components share the variance, as if evenly; 0 for none.

        Roy and Vetterli, The effective rank, EUSIPCO 2007.
        """
        positive = self.eigenvalues[self.eigenvalues > 0]
        shares = positive / positive.sum()
        return float(np.exp(-(shares * np.log(shares)).sum())) if positive.size else 0.0

    @property
    def noise_variance(self) -> float:
        """Mean of the eigenvalues that were left out, over n - ddof; 0 when none were."""
        left = self.eigenvalues[self.n_components :]
        return float(left.mean()) / self.divisor if left.size else 0.0

    @property
    def reliable(self) -> NDArray[np.bool_]:
        """Which components the working precision supports, (n_components,)."""
        sigma = self.singular_values
        return (sigma > 0) & (sigma >= self.supported * (sigma[0] if sigma.size else 0.0))

    @property
    def digits(self) -> F64:
        """Decimal digits that solver and precision support in each singular value, (n_components,).

        One at the limit of what is supported, and `power` more for each factor of ten above it: the solver's
        error is eps sigma_1^power in sigma_j^power.
        """
        sigma = self.singular_values
        with np.errstate(divide="ignore"):
            above = np.log10(sigma / (sigma[0] or 1.0) / self.supported)
        digits: F64 = np.clip(1 + self.power * above, 0.0, MAX_DIGITS)
        return digits

    @property
    def gaps(self) -> F64:
        """(lambda_j - lambda_{j+1}) / lambda_j, (n_components,); 0 where lambda_j is 0."""
        below = np.append(self.eigenvalues, 0.0)[1 : self.n_components + 1]
        kept = self.eigenvalues[: self.n_components]
        gaps: F64 = np.divide(kept - below, kept, out=np.zeros_like(kept), where=kept > 0)
        return gaps

    def gap_above(self, index: int) -> float:
        """(lambda_{j-1} - lambda_j) / lambda_j of component j; infinite for the first."""
        here = self.eigenvalues[index]
        return float((self.eigenvalues[index - 1] - here) / here) if index and here > 0 else np.inf

    @property
    def lacking(self) -> NDArray[np.bool_]:
        """Which components another solver might still tell from 0, (n_components,): not reliable, below the largest rank.

        Those that came out as 0 are among them: a matrix that squares sigma can't tell 0 from 1e-9 sigma_1.
        """
        return ~self.reliable & (np.arange(self.n_components) < self.largest_rank) & (self.total > 0)

    @property
    def whitening(self) -> F64:
        """What whitened scores are divided by: sqrt(explained variance), 1 where it is 0."""
        deviation = np.sqrt(self.explained_variance)
        return np.where(deviation > 0, deviation, 1.0)


def reciprocal(values: F64) -> F64:
    """1 / values, and 0 where they are 0."""
    return np.divide(1.0, values, out=np.zeros_like(values), where=values > 0)


def ranked(eigenvalues: F64, floor: float, n_samples: int, n_features: int, center: bool) -> tuple[F64, int, int]:
    """The min(n, d) eigenvalues that the data have, 0 beyond the numerical rank; that rank, and the largest it can be."""
    limit = min(n_samples - center, n_features)
    values = eigenvalues[: min(n_samples, n_features)]
    rank = min(int(np.count_nonzero(values > floor)), limit)
    return np.where(np.arange(values.size) < rank, values, 0.0), rank, limit


def spectrum_of(
    factors: Factors,
    *,
    n_samples: int,
    n_features: int,
    center: bool,
    ddof: int,
    working_dtype: np.dtype[Any],
) -> Spectrum:
    """What a solver found, as a spectrum of the data.

    Parameters
    ----------
    factors : of `finish`
    n_samples, n_features : their smaller one bounds the rank, which centring takes one sample from
    center, ddof : of the data; the divisor is n - ddof
    working_dtype : dtype of the products
    """
    eigenvalues, rank, limit = ranked(factors.eigenvalues, factors.floor, n_samples, n_features, center)
    vectors = factors.vectors
    # A matrix that holds sigma^power to within eps supports sigma down to eps^(1 / power).
    eps = float(np.finfo(working_dtype).eps)
    return Spectrum(
        eigenvalues=eigenvalues,
        vectors=vectors,
        total=factors.total,
        rank=rank,
        largest_rank=limit,
        supported=eps ** (1 / factors.power) * (len(vectors) if factors.power == 1 else 1),
        power=factors.power,
        n_samples=n_samples,
        ddof=ddof,
        residuals=factors.residuals,
    )
