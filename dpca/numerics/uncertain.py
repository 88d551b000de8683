"""Numbers with their errors, and what follows from the variance beyond the components: noise, and likelihood.

Probabilistic PCA: with the noise P, the mean of the eigenvalues that were left out, and the variances lambda_j of the components, the
covariance is W diag(lambda - P) W' + P I. Its inverse and determinant need no d x d matrix (Woodbury):

    log p(x) = -1/2 (d log 2 pi + sum_j log lambda_j + (d - k) log P + sum_j z_j^2 / lambda_j + (|x|^2 - |z|^2) / P).

Tipping and Bishop, Journal of the Royal Statistical Society B 61, 1999; Bishop, Pattern Recognition and Machine Learning, 12.2.1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpca.numerics.sketch import RELIABLE
from dpca.types import F64


@dataclass(frozen=True)
class Uncertain:
    """A number, and how far it may be from what it stands for."""

    value: float
    error: float
    """Absolute."""

    @property
    def known(self) -> bool:
        """Whether it has two digits."""
        return self.error <= RELIABLE * abs(self.value)

    @property
    def shown(self) -> float:
        """The value, NaN where it has less than two digits."""
        return self.value if self.known else np.nan

    @property
    def as_json(self) -> dict[str, float | None]:
        """`value`, null where it is NaN, and `error`, null where it has no bound."""
        return {
            "value": self.value if np.isfinite(self.value) else None,
            "error": self.error if np.isfinite(self.error) else None,
        }


def log_likelihood(variances: F64, noise: float, n_features: int, squared_scores: F64, outside: F64) -> F64:
    """The logarithm of the density of samples, (n_samples,).

    Parameters
    ----------
    variances : lambda_j, (k,), those above the noise alone
    noise : P, above 0 where k < d
    n_features : d
    squared_scores : z_j^2, (n_samples, k)
    outside : |x|^2 - |z|^2, (n_samples,)
    """
    left = n_features - variances.size
    log_determinant = np.log(variances).sum() + (left * np.log(noise) if left else 0.0)
    distances = squared_scores @ (1 / variances) + (outside / noise if left else 0.0)
    likelihood: F64 = -0.5 * (n_features * np.log(2 * np.pi) + log_determinant + distances)
    return likelihood


def of_training(
    variances: F64, errors: F64, noise: Uncertain, n_features: int, n_samples: float, divisor: float, outside: Uncertain
) -> Uncertain:
    """The mean log-likelihood of the samples of a fit, whose scores have the variances of the components.

    Parameters
    ----------
    variances, errors : lambda_j and their absolute errors, (k,)
    noise : P
    n_features, n_samples : d, and the number of samples
    divisor : of variances
    outside : the variance beyond the components
    """
    above = variances > noise.value
    kept, left = variances[above], n_features - int(above.sum())
    if left and not (noise.known and noise.value > 0):
        return Uncertain(np.nan, np.inf)
    # Components that are not above the noise are noise.
    beyond, share = outside.value + float(variances[~above].sum()), divisor / n_samples
    value = log_likelihood(kept, noise.value, n_features, share * kept[None, :], np.array([share * beyond]))[0]
    slope = abs(1 - share) * float((errors[above] / kept).sum()) + share * float(errors[~above].sum()) / (
        noise.value or 1.0
    )
    if left:
        slope += abs(left - share * beyond / noise.value) * noise.error / noise.value
        slope += share * outside.error / noise.value
    return Uncertain(float(value), 0.5 * slope) if np.isfinite(slope) else Uncertain(np.nan, np.inf)
