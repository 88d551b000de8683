"""How many components: rules from the spectrum alone, each with its formula and its paper.

Every rule is a function of the eigenvalues; `suggestions` gives what all of them say. Three assume that noise
is white, alike in every feature and independent; where the spectrum contradicts that, they say so instead of
giving a number: on smooth or unequal noise they would take dozens of noise components for signal.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]
Rule = Literal["rank", "broken_stick", "gavish_donoho", "marchenko_pastur", "mle"]
NComponents = int | float | Rule | None

NOT_MET = "assumption not met"
GRID = 4001


@dataclass(frozen=True)
class Eigenvalues:
    """A spectrum, as the rules see it."""

    values: F64
    """lambda_1 >= lambda_2 ..., those of the covariance times the divisor; 0 beyond the numerical rank."""
    rank: int
    n_samples: int
    n_features: int
    """Features that vary."""
    center: bool
    total: float
    """Sum of all, as the shares of the variance are taken of it."""

    @property
    def most(self) -> int:
        """The most that can differ from 0: min(n - 1, d) for centred data."""
        return max(1, min(self.n_samples - self.center, self.n_features))

    @property
    def ratio(self) -> F64:
        """Shares of the total variance."""
        return self.values / self.total if self.total > 0 else np.zeros_like(self.values)

    @property
    def beta(self) -> float:
        """The matrix's shorter side over its longer one; one sample is lost to the mean."""
        n, d = max(1, self.n_samples - self.center), max(1, self.n_features)
        return min(n, d) / max(n, d)


@dataclass(frozen=True)
class Chosen:
    """How many components a model has, and where the number is from."""

    n_components: int
    reason: str
    problem: str = ""
    """Why the rule gave no number, if it gave none."""


def choose(n_components: NComponents, given: Eigenvalues) -> Chosen:
    """The number of components that a model asks for.

    Parameters
    ----------
    n_components : a number, a share of the variance between 0 and 1, a key of RULES, or None for all
    given : the spectrum
    """
    if n_components is None:
        return Chosen(given.values.size, "all of them")
    if isinstance(n_components, str):
        found = RULES[n_components](given)
        if isinstance(found, str):
            return Chosen(1, n_components, found)
        return Chosen(max(1, found), f"{n_components} found {found}")
    if n_components < 1:
        found = fraction(given, n_components)
        return Chosen(
            found, f"{found} have {given.ratio[:found].sum():.4g} of the variance, {n_components:g} asked for"
        )
    return Chosen(int(n_components), "as asked for")


def rank(given: Eigenvalues) -> int:
    """Eigenvalues that differ from rounding."""
    return given.rank


def fraction(given: Eigenvalues, share: float) -> int:
    """The fewest components whose share of the variance exceeds `share`."""
    reached = np.cumsum(given.ratio)
    return min(int(np.searchsorted(reached, share, side="right")) + 1, given.most)


def broken_stick(given: Eigenvalues) -> int:
    """Components whose share exceeds what a stick broken at random has in its k-th longest piece.

    lambda_k / sum(lambda) > (1 / p) sum_{i=k}^{p} 1 / i, from the first on until one does not; p = min(n - 1, d).
    Frontier, Journal of Experimental Marine Biology and Ecology 25, 1976; Jackson, Ecology 74, 1993.
    """
    p = given.most
    expected = np.cumsum(1.0 / np.arange(p, 0, -1))[::-1] / p
    return _leading(given.ratio[:p] > expected)


def gavish_donoho(given: Eigenvalues) -> int | str:
    """Singular values above the optimal hard threshold for unknown white noise.

    tau = omega(beta) median(sigma_1..sigma_p), omega(beta) = lambda*(beta) / sqrt(mu_beta), with
    lambda*(beta)^2 = 2 (beta + 1) + 8 beta / (beta + 1 + sqrt(beta^2 + 14 beta + 1)) and mu_beta the median of the
    Marchenko-Pastur distribution. Gavish and Donoho, IEEE Transactions on Information Theory 60, 2014, eq. 11.
    """
    beta = given.beta
    optimal = 2 * (beta + 1) + 8 * beta / (beta + 1 + math.sqrt(beta**2 + 14 * beta + 1))
    return _above(given, optimal)


def marchenko_pastur(given: Eigenvalues) -> int | str:
    """Eigenvalues above the edge of the noise.

    White noise of variance s^2 in a p x q matrix, p <= q, has eigenvalues of at most s^2 q (1 + sqrt(beta))^2;
    s^2 q = median(lambda_1..lambda_p) / mu_beta. Marchenko and Pastur, Mathematics of the USSR-Sbornik 1, 1967.
    """
    return _above(given, (1 + math.sqrt(given.beta)) ** 2)


def mle(given: Eigenvalues) -> int | str:
    """The dimension of greatest evidence under probabilistic PCA, for more samples than features.

    Minka, Automatic Choice of Dimensionality for PCA, NIPS 2000, eq. 77.
    """
    n, d = given.n_samples, given.n_features
    spectrum = given.values[:d] / n
    if spectrum[-1] <= 0:
        return given.rank
    evidence = [-math.inf, *(_log_evidence(spectrum, k, n) for k in range(1, d))]
    return max(1, int(np.argmax(evidence)))


RULES: dict[str, Callable[[Eigenvalues], int | str]] = {
    "rank": rank,
    "broken_stick": broken_stick,
    "gavish_donoho": gavish_donoho,
    "marchenko_pastur": marchenko_pastur,
    "mle": mle,
}


def suggestions(given: Eigenvalues) -> dict[str, int | str]:
    """What every rule says: a number of components, or why it has none."""
    applicable = {name: rule for name, rule in RULES.items() if name != "mle" or given.n_samples > given.n_features}
    return {name: rule(given) for name, rule in applicable.items()}


def noise_edge(given: Eigenvalues) -> float | None:
    """The largest eigenvalue that white noise would have, as of `marchenko_pastur`; None where the noise is not white."""
    noise = _white_noise(given)
    return None if noise is None else (1 + math.sqrt(given.beta)) ** 2 * noise


def noise_misfit(given: Eigenvalues) -> float:
    """Largest distance of the distribution of the noise eigenvalues from Marchenko and Pastur's (Kolmogorov).

    Noise is what lies below the edge. Signal shifts the median of the whole, so the noise's own is taken, and the
    edge again from that, a few times.
    """
    bulk = values = np.sort(given.values[: given.most])
    at, cumulative, noise = *_distribution(given.beta), 0.0
    for _ in range(6):
        noise = float(np.median(bulk) / np.interp(0.5, cumulative, at))
        bulk = values[values <= noise * at[-1]]
        if noise <= 0 or not bulk.size:
            return 1.0
        # What signal takes, noise lacks: as if its matrix had fewer rows.
        at, cumulative = _distribution(given.beta * bulk.size / values.size)
    expected, ranks = np.interp(bulk / noise, at, cumulative), np.arange(bulk.size + 1) / bulk.size
    return float(max(np.abs(expected - ranks[1:]).max(), np.abs(expected - ranks[:-1]).max()))


def allowed_misfit(p: int) -> float:
    """The largest `noise_misfit` of p eigenvalues that white noise is believed to have.

    Measured for p from 20 to 500: white noise stays below 2.8 / p and 0.02, a correlation of 0.5 between
    neighbouring features comes to 0.05 at p = 500 and 0.13 at p = 30 (tests/test_dimension.py).
    """
    return 0.02 + 3 / p


def _above(given: Eigenvalues, limit: float) -> int | str:
    """Eigenvalues above `limit` times the noise, if the noise is white."""
    noise = _white_noise(given)
    if noise is None:
        return NOT_MET
    return int(np.count_nonzero(given.values[: given.most] > limit * noise))


def _white_noise(given: Eigenvalues) -> float | None:
    """s^2 q, as of `_noise`; None where the noise is not white."""
    noise = _noise(given)
    return None if noise <= 0 or noise_misfit(given) > allowed_misfit(given.most) else noise


def _noise(given: Eigenvalues) -> float:
    """s^2 q from the median of all eigenvalues."""
    at, cumulative = _distribution(given.beta)
    return float(np.median(given.values[: given.most]) / np.interp(0.5, cumulative, at))


@lru_cache(maxsize=8)
def _distribution(beta: float) -> tuple[F64, F64]:
    """Eigenvalues of white noise over s^2 q, and the share of them below each."""
    low, high = (1 - math.sqrt(beta)) ** 2, (1 + math.sqrt(beta)) ** 2
    # x = middle - radius cos(t): the density's square roots at both ends become smooth in t.
    t = np.linspace(0.0, math.pi, GRID)
    at = (low + high) / 2 - (high - low) / 2 * np.cos(t)
    radius2 = ((high - low) / 2 * np.sin(t)) ** 2
    density = np.divide(radius2, 2 * math.pi * beta * at, out=np.zeros_like(at), where=at > 1e-12)
    density[0] = density[1]  # where beta is 1 the distribution begins at 0, and this is 0 / 0 with a limit
    steps = (density[1:] + density[:-1]) / 2 * np.diff(t)
    cumulative = np.append(0.0, np.cumsum(steps))
    return at, cumulative / cumulative[-1]


def _leading(kept: NDArray[np.bool_]) -> int:
    """How many are kept before the first that is not; one at least, since a model needs one."""
    return max(1, int(np.argmin(kept)) if not kept.all() else kept.size)


def _log_evidence(spectrum: F64, k: int, n: int) -> float:
    """log p(D | k), Laplace's approximation."""
    d = spectrum.size
    prior = -k * math.log(2.0) + sum(
        math.lgamma((d - i + 1) / 2) - math.log(math.pi) * (d - i + 1) / 2 for i in range(1, k + 1)
    )
    fitted = -0.5 * n * float(np.log(spectrum[:k]).sum())
    noise = max(float(spectrum[k:].sum()) / (d - k), np.finfo(np.float64).tiny)
    residual = -0.5 * n * (d - k) * math.log(noise)
    m = d * k - k * (k + 1) / 2
    volume = 0.5 * (m + k) * math.log(2 * math.pi)
    inverse = 1.0 / np.append(spectrum[:k], np.full(d - k, noise))
    hessian = 0.0
    for i in range(k):
        differences = (spectrum[i] - spectrum[i + 1 :]) * (inverse[i + 1 :] - inverse[i])
        hessian += float(np.log(np.maximum(differences, np.finfo(np.float64).tiny)).sum()) + math.log(n) * (d - i - 1)
    return prior + fitted + residual + volume - 0.5 * hessian - 0.5 * k * math.log(n)
