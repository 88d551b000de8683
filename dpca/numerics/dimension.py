"""The number of components: rules that use only the spectrum, each with its formula and its paper.

Every rule is a function of the eigenvalues; `suggestions` applies all of them. Three assume white noise:
independent, and of equal variance in every feature. Where the spectrum contradicts that, they say so and give
no number: with smooth or unequal noise they would count dozens of noise components as signal.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dpca.numerics.sketch import RELIABLE
from dpca.types import F64

Rule = Literal["rank", "broken_stick", "gavish_donoho", "marchenko_pastur", "mle", "bi_cross_validation"]
NComponents = int | float | Rule | None

BI_CROSS_VALIDATION: Rule = "bi_cross_validation"
"""The rule that needs more than the spectrum (`dpca.numerics.bi_cross_validation`)."""
NOT_MET = "assumption not met"
NOT_KNOWN = "not known in this precision"
"""Problem of a rule that reads eigenvalues which rounding of the products hides."""
ROUNDING = 1e-12
"""Largest error of an eigenvalue, relative to the largest one, that is of float64."""
GRID = 4001


@dataclass(frozen=True)
class Eigenvalues:
    """A spectrum, as input of the rules."""

    values: F64
    """lambda_1 >= lambda_2 ..., of the covariance times the divisor; 0 beyond the numerical rank."""
    rank: int
    n_samples: int
    n_features: int
    """Number of features, without those that are left out, and those without variation where features are scaled."""
    center: bool
    total: float
    """Sum of all eigenvalues: shares of the variance are relative to it."""
    errors: F64 | None = None
    """How far each may be from a true one; None for not at all."""

    def known(self, index: int) -> bool:
        """Whether an eigenvalue has two digits."""
        return self.errors is None or bool(self.errors[index] <= RELIABLE * self.values[index])

    @property
    def most(self) -> int:
        """Largest possible number of nonzero eigenvalues: min(n - 1, d) for centred data."""
        return max(1, min(self.n_samples - self.center, self.n_features))

    @property
    def ratio(self) -> F64:
        """Shares of the total variance."""
        return self.values / self.total if self.total > 0 else np.zeros_like(self.values)

    @property
    def beta(self) -> float:
        """Shorter side of the matrix over its longer one; centring takes one sample."""
        n, d = max(1, self.n_samples - self.center), max(1, self.n_features)
        return min(n, d) / max(n, d)


@dataclass(frozen=True)
class Chosen:
    """The number of components of a model, and where it comes from."""

    n_components: int
    reason: str
    problem: str = ""
    """Why the rule gave no number; empty if it gave one."""


def choose(n_components: NComponents, spectrum: Eigenvalues, validated: int | str | None = None) -> Chosen:
    """The number of components that a model requests.

    Parameters
    ----------
    n_components : a number, a share of the variance between 0 and 1, a key of RULES, or None for all
    spectrum : the eigenvalues that a rule or a share needs
    validated : the number by bi-cross-validation, or why it gives none, where groups of features were added up for it
    """
    if n_components is None:
        return Chosen(spectrum.values.size, "all of them")
    if n_components == BI_CROSS_VALIDATION:
        assert validated is not None
        if isinstance(validated, str):
            return Chosen(1, n_components, validated)
        return Chosen(max(1, validated), f"{n_components} found {validated}")
    if isinstance(n_components, str):
        number = by_rule(n_components, spectrum)
        if isinstance(number, str):
            return Chosen(1, n_components, number)
        return Chosen(max(1, number), f"{n_components} found {number}")
    if n_components < 1:
        number = fraction(spectrum, n_components)
        return Chosen(
            number, f"{number} have {spectrum.ratio[:number].sum():.4g} of the variance, {n_components:g} asked for"
        )
    return Chosen(int(n_components), "as asked for")


def rank(spectrum: Eigenvalues) -> int:
    """The number of eigenvalues that can be told from rounding."""
    return spectrum.rank


def fraction(spectrum: Eigenvalues, share: float) -> int:
    """The smallest number of components whose share of the variance exceeds `share`."""
    reached = np.cumsum(spectrum.ratio)
    return min(int(np.searchsorted(reached, share, side="right")) + 1, spectrum.most)


def broken_stick(spectrum: Eigenvalues) -> int:
    """Components whose share exceeds the expected k-th longest piece of a stick that is broken at random.

    lambda_k / sum(lambda) > (1 / p) sum_{i=k}^{p} 1 / i, counted up to the first k that fails; p = min(n - 1, d).
    Frontier, Journal of Experimental Marine Biology and Ecology 25, 1976; Jackson, Ecology 74, 1993.
    """
    p = spectrum.most
    expected = np.cumsum(1.0 / np.arange(p, 0, -1))[::-1] / p
    return _leading(spectrum.ratio[:p] > expected)


def gavish_donoho(spectrum: Eigenvalues) -> int | str:
    """The number of singular values above the optimal hard threshold for white noise of unknown variance.

    tau = omega(beta) median(sigma_1..sigma_p), omega(beta) = lambda*(beta) / sqrt(mu_beta), with
    lambda*(beta)^2 = 2 (beta + 1) + 8 beta / (beta + 1 + sqrt(beta^2 + 14 beta + 1)) and mu_beta the median of the
    Marchenko-Pastur distribution. Gavish and Donoho, IEEE Transactions on Information Theory 60, 2014, eq. 11.
    """
    beta = spectrum.beta
    optimal = 2 * (beta + 1) + 8 * beta / (beta + 1 + math.sqrt(beta**2 + 14 * beta + 1))
    return _above(spectrum, optimal)


def marchenko_pastur(spectrum: Eigenvalues) -> int | str:
    """The number of eigenvalues above the edge of the noise.

    White noise of variance s^2 in a p x q matrix, p <= q, has eigenvalues up to s^2 q (1 + sqrt(beta))^2, with
    s^2 q = median(lambda_1..lambda_p) / mu_beta. Marchenko and Pastur, Mathematics of the USSR-Sbornik 1, 1967.
    """
    return _above(spectrum, (1 + math.sqrt(spectrum.beta)) ** 2)


def mle(spectrum: Eigenvalues) -> int | str:
    """The dimension with the greatest evidence under probabilistic PCA, for more samples than features.

    Minka, Automatic Choice of Dimensionality for PCA, NIPS 2000, eq. 77.
    """
    n, d = spectrum.n_samples, spectrum.n_features
    variances = spectrum.values[:d] / n
    if variances[-1] <= 0:
        return spectrum.rank
    evidence = [-math.inf, *_log_evidence(variances, n)]
    return max(1, int(np.argmax(evidence)))


RULES: dict[str, Callable[[Eigenvalues], int | str]] = {
    "rank": rank,
    "broken_stick": broken_stick,
    "gavish_donoho": gavish_donoho,
    "marchenko_pastur": marchenko_pastur,
    "mle": mle,
}


def by_rule(name: str, spectrum: Eigenvalues) -> int | str:
    """The number of components by a rule, or why there is none: where what it reads is not known, its number is not either."""
    number, known = RULES[name](spectrum), True
    if spectrum.total > 0 and spectrum.errors is not None:
        if name in ("rank", "mle") and spectrum.rank < spectrum.most:
            # What float64 can't tell from 0 is not in the rank; single precision hides more than that.
            known = spectrum.errors.min() <= ROUNDING * spectrum.values[0]
        elif name == "mle":
            known = spectrum.known(spectrum.most - 1)
        elif name == "broken_stick":
            known = spectrum.errors.max() <= RELIABLE * spectrum.total / spectrum.most**2
        elif name != "rank":
            known = spectrum.known((spectrum.most - 1) // 2)
    return number if known else NOT_KNOWN


def suggestions(spectrum: Eigenvalues) -> dict[str, int | str]:
    """The answer of every rule that applies: a number of components, or why there is none."""
    rules = [name for name in RULES if name != "mle" or spectrum.n_samples > spectrum.n_features]
    return {name: by_rule(name, spectrum) for name in rules}


def noise_edge(spectrum: Eigenvalues) -> float | None:
    """The largest eigenvalue of white noise, as in `marchenko_pastur`; None where the noise is not white."""
    noise = _white_noise(spectrum)
    return None if noise is None else (1 + math.sqrt(spectrum.beta)) ** 2 * noise


def noise_misfit(spectrum: Eigenvalues) -> float:
    """Kolmogorov distance between the distribution of the noise eigenvalues and that of Marchenko and Pastur.

    Noise is what lies below the edge. Signal shifts the median of all eigenvalues, so the median of the noise and the
    edge that follows from it are found by iteration.
    """
    bulk = values = np.sort(spectrum.values[: spectrum.most])
    grid, cumulative, noise = *distribution_of(spectrum.beta), 0.0
    for _ in range(6):
        noise = float(np.median(bulk) / np.interp(0.5, cumulative, grid))
        bulk = values[values <= noise * grid[-1]]
        if noise <= 0 or not bulk.size:
            return 1.0
        # Signal takes dimensions from the noise, as if the matrix of the noise had fewer rows.
        grid, cumulative = distribution_of(spectrum.beta * bulk.size / values.size)
    expected, ranks = np.interp(bulk / noise, grid, cumulative), np.arange(bulk.size + 1) / bulk.size
    return float(max(np.abs(expected - ranks[1:]).max(), np.abs(expected - ranks[:-1]).max()))


def allowed_misfit(p: int) -> float:
    """The largest `noise_misfit` of p eigenvalues that still counts as white noise.

    Measured for p from 20 to 500: white noise stays below 2.8 / p and 0.02, a correlation of 0.5 between
    neighbouring features gives 0.05 at p = 500 and 0.13 at p = 30 (tests/numerics/test_dimension.py).
    """
    return 0.02 + 3 / p


def _above(spectrum: Eigenvalues, limit: float) -> int | str:
    """The number of eigenvalues above `limit` times the noise, if the noise is white."""
    noise = _white_noise(spectrum)
    if noise is None:
        return NOT_MET
    return int(np.count_nonzero(spectrum.values[: spectrum.most] > limit * noise))


def _white_noise(spectrum: Eigenvalues) -> float | None:
    """s^2 q, as in `_noise`; None where the noise is not white."""
    noise = _noise(spectrum)
    return None if noise <= 0 or noise_misfit(spectrum) > allowed_misfit(spectrum.most) else noise


def _noise(spectrum: Eigenvalues) -> float:
    """s^2 q from the median of all eigenvalues."""
    grid, cumulative = distribution_of(spectrum.beta)
    return float(np.median(spectrum.values[: spectrum.most]) / np.interp(0.5, cumulative, grid))


@lru_cache(maxsize=8)
def distribution_of(beta: float) -> tuple[F64, F64]:
    """Distribution of eigenvalues of white noise: a grid of values / (s^2 q), and the share of eigenvalues below each."""
    low, high = (1 - math.sqrt(beta)) ** 2, (1 + math.sqrt(beta)) ** 2
    # x = middle - radius cos(t): the square roots of the density at both ends become smooth in t.
    t = np.linspace(0.0, math.pi, GRID)
    grid = (low + high) / 2 - (high - low) / 2 * np.cos(t)
    radius2 = ((high - low) / 2 * np.sin(t)) ** 2
    density = np.divide(radius2, 2 * math.pi * beta * grid, out=np.zeros_like(grid), where=grid > 1e-12)
    density[0] = density[1]  # with beta = 1 the distribution begins at 0, and this is 0 / 0, which has a limit
    steps = (density[1:] + density[:-1]) / 2 * np.diff(t)
    cumulative = np.append(0.0, np.cumsum(steps))
    return grid, cumulative / cumulative[-1]


def _leading(kept: NDArray[np.bool_]) -> int:
    """The number of leading True values, at least one, since a model needs a component."""
    return max(1, int(np.argmin(kept)) if not kept.all() else kept.size)


def _log_evidence(spectrum: F64, n: int) -> Iterator[float]:
    """log p(D | k) by Laplace's approximation, for k from 1 to d - 1.

    The determinant of the Hessian has a factor for each pair of a kept eigenvalue and a later one. Only those of the noise
    change with k for pairs that were there before, so that all k take d^2 logarithms, where each k alone would.
    """
    d, tiny = spectrum.size, np.finfo(np.float64).tiny
    prior = between = across = 0.0
    for k in range(1, d):
        kept, joining, left = spectrum[: k - 1], spectrum[k - 1], spectrum[k:]
        prior += math.lgamma((d - k + 1) / 2) - math.log(math.pi) * (d - k + 1) / 2 - math.log(2.0)
        fitted = -0.5 * n * float(np.log(spectrum[:k]).sum())
        noise = max(float(left.sum()) / (d - k), tiny)
        residual = -0.5 * n * (d - k) * math.log(noise)
        m = d * k - k * (k + 1) / 2
        volume = 0.5 * (m + k) * math.log(2 * math.pi)
        between += _log_sum((kept - joining) * (1.0 / joining - 1.0 / kept))
        across += _log_sum(joining - left) - _log_sum(kept - joining)
        hessian = between + across + (d - k) * _log_sum(1.0 / noise - 1.0 / spectrum[:k]) + math.log(n) * m
        yield prior + fitted + residual + volume - 0.5 * hessian - 0.5 * k * math.log(n)


def _log_sum(factors: F64) -> float:
    return float(np.log(np.maximum(factors, np.finfo(np.float64).tiny)).sum())
