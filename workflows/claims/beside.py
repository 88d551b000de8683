"""What is said beside the components, held against the same numbers from singular values in longdouble.

Probabilistic PCA (Tipping and Bishop, Journal of the Royal Statistical Society B 61, 1999) written once more, so that a mistake of
`dpca.numerics.uncertain` is seen.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpca.numerics.dimension import Eigenvalues, by_rule
from dpca.numerics.spectrum import TOTAL_ERROR

Long = np.longdouble
LONG_ROUNDING = 1e-17
"""What of the largest singular value can't be told from rounding: a hundred times the precision of longdouble."""
RULES = ("broken_stick", "gavish_donoho", "marchenko_pastur", "mle")
"""Those that read eigenvalues alone. `rank` counts what a precision can tell from 0, and has no truth of its own."""


@dataclass(frozen=True)
class Fitted:
    """Data as a fit sees them, in longdouble."""

    rows: NDArray[Any]
    """Centred, without covariates, times the roots of the weights; samples by features."""
    divisor: float
    """Of variances."""
    weight: float
    """The sum of the weights; the number of samples without."""
    n_counted: int
    """Number of samples; one of weight w of frequency counts as w."""

    def log_density(self, values: NDArray[Any], k: int) -> Any:
        """The mean log-likelihood of the samples, and the noise; `values` are eigenvalues of the covariance, k those of the model."""
        d, share = self.rows.shape[1], Long(self.divisor) / Long(self.weight)
        noise = values[k:].sum() / max(self.left(k), 1)
        above = values[:k] > noise
        log, distance = np.log(values[:k][above]).sum(), share * above.sum()
        if d > above.sum():
            log += (d - above.sum()) * np.log(noise)
            distance += share * (values[k:].sum() + values[:k][~above].sum()) / noise
        return -(d * np.log(2 * Long(np.pi)) + log + distance) / 2

    def left(self, k: int) -> int:
        """How many eigenvalues there are beside k, those that are 0 with them."""
        return min(self.n_counted, self.rows.shape[1]) - k


def plain(flat: NDArray[Any]) -> Fitted:
    """Samples as they are."""
    return Fitted(flat, len(flat) - 1, len(flat), len(flat))


def weighted(flat: NDArray[Any], weights: NDArray[Any], kind: str) -> Fitted:
    """Samples about their weighted mean."""
    w = weights.astype(Long)
    rows = np.sqrt(w)[:, None] * (flat - (w / w.sum()) @ flat)
    divisor = w.sum() - (1 if kind == "frequency" else (w**2).sum() / w.sum())
    return Fitted(rows, float(divisor), float(w.sum()), round(w.sum()) if kind == "frequency" else len(flat))


def without(flat: NDArray[Any], covariates: NDArray[Any]) -> Fitted:
    """Samples without what least squares on the covariates, and a constant, explain. In longdouble by Gram and Schmidt, twice."""
    basis: list[NDArray[Any]] = []
    for column in (np.ones(len(flat)), *covariates.T):
        one = column.astype(Long)
        for _ in range(2):
            for other in basis:
                one = one - other * (other @ one)
        basis.append(one / np.sqrt(one @ one))
    rows = flat
    for _ in range(2):
        for one in basis:
            rows = rows - np.outer(one, one @ rows)
    return Fitted(rows, len(flat) - 1, len(flat), len(flat))


def said(
    fitted: Fitted, sigma: NDArray[Any], estimator: Any, counted: int | None
) -> Iterator[tuple[str, float, float, float]]:
    """Every number that is shown, as name, value, absolute error that is claimed, and truth.

    Parameters
    ----------
    sigma : singular values of `fitted.rows`, in longdouble
    estimator : a fitted `dpca.PCA`
    counted : number of features that rules count; None where rules are not looked at
    """
    certificate, k = estimator.certificate_, estimator.n_components_
    values = sigma**2 / Long(fitted.divisor)
    beyond = values[k:].sum()
    truths = {
        "projection error": ("projection_error", beyond),
        "noise": ("noise_variance", beyond / max(fitted.left(k), 1)),
    }
    if beyond > 0 or fitted.rows.shape[1] == k:
        truths["likelihood"] = ("log_likelihood", fitted.log_density(values, k))
    for name, (key, truth) in truths.items():
        if certificate[key]["value"]:
            yield name, certificate[key]["value"], certificate[key]["error"], float(truth)
    total = values.sum()
    for component, share in zip(certificate["components"], estimator.explained_variance_ratio_, strict=True):
        if share > 0 and component["digits"] > 0:
            true, error = values[component["index"]] / (total or 1), 10 ** -component["digits"]
            yield "share", share, float(share * (2 * error + error**2 + TOTAL_ERROR)), float(true)
    if counted is not None:
        rank = int((sigma > LONG_ROUNDING * sigma[0]).sum())
        known = Eigenvalues(
            np.asarray(np.where(np.arange(sigma.size) < rank, sigma, 0) ** 2, np.float64),
            rank,
            len(fitted.rows),
            counted,
            True,
            float((sigma**2).sum()),
        )
        for name, number in certificate["n_components"]["suggested"].items():
            if name in RULES and isinstance(number, int):
                truth = by_rule(name, known)
                yield "rule", number, 1e-2 * max(number, 1), float(truth) if isinstance(truth, int) else np.inf
