"""A target regressed on the rows, from their products: ridge regression, which is GBLUP, and heritability by REML."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import optimize, stats

from dpca.derived.gram import Transformed
from dpca.derived.operators import EPS, Matrix
from dpca.errors import DataError
from dpca.settings import MODEL
from dpca.types import F64

DECADES, A_DECADE = 4, 4
"""Size of the grid of `grid`: from 10^-4 to 10^4 times the mean eigenvalue, in quarters of a decade."""
N_ALPHAS = 2 * DECADES * A_DECADE + 1
"""How many there are."""
POINTS = 201
"""Points of the grid on which the restricted likelihood is looked at, before its maximum is refined."""


@dataclass(frozen=True, eq=False)
class Decomposed:
    """Rows about their mean as eigenpairs of their products, P = U diag(lambda) U'."""

    eigenvalues: F64
    """Those that can be told from 0, (r,)."""
    vectors: Matrix
    """U, (n, r)."""

    @classmethod
    def of(cls, rows: Transformed) -> Decomposed:
        """All pairs of rows about their mean."""
        eigenvalues, vectors = rows.products.eigenpairs(lambda values: max(1, rows.rank(values)))
        rank = min(rows.rank(eigenvalues), vectors.shape[1])
        if not rank:
            raise DataError(
                "nothing that the operators leave of the samples can be told from rounding",
                f"Leave one of them out, or run with {MODEL.precision.at('double')}, if products are in single precision.",
            )
        return cls(np.asarray(eigenvalues[:rank]), vectors[:, :rank])

    @cached_property
    def beside(self) -> Matrix:
        """Orthonormal directions about the mean whose eigenvalue can't be told from 0, (n, n - 1 - r): none where all can."""
        n, r = self.vectors.shape
        found = np.random.default_rng(0).standard_normal((n, n - 1 - r))
        for _ in range(2):
            found -= found.mean(axis=0)
            found = np.linalg.qr(found - self.vectors @ (self.vectors.T @ found))[0]
        return found

    @property
    def smallest(self) -> float:
        """The smallest eigenvalue of all directions about the mean; 0 where some can't be told from 0."""
        n, r = self.vectors.shape
        return float(self.eigenvalues[-1]) if r == n - 1 else 0.0


@dataclass(frozen=True, eq=False)
class RidgeFit:
    """Ridge regressions of one target, with an intercept that is not penalized, for several alphas."""

    alphas: F64
    """(a,)."""
    mean_squared_errors: F64
    """Mean squared errors of predictions for each row by a regression on all others, (a,)."""
    r2: F64
    """1 less their sum of squares over that of the target about its mean, (a,); below 0 where the mean predicts better."""
    chosen: int
    """The number of the alpha whose error is least."""
    fitted: F64
    """Fitted values with the chosen alpha, (n,)."""
    leave_one_out: F64
    """The predictions of that alpha, (n,)."""
    leverages: F64
    """Diagonal of its H, (n,)."""
    dual: F64
    """(P + alpha I)^-1 (y - mean), (n,): the products of another row with these, plus the mean, are its prediction."""

    @property
    def alpha(self) -> float:
        """The chosen one."""
        return float(self.alphas[self.chosen])

    @property
    def degrees(self) -> float:
        """Effective degrees of freedom of the fit, tr H."""
        return float(self.leverages.sum())


def grid(mean_eigenvalue: float) -> F64:
    """The alphas that are tried where none is given, ascending, about the mean eigenvalue of the rows."""
    return mean_eigenvalue * np.logspace(-DECADES, DECADES, N_ALPHAS)


def ridge(rows: Decomposed, target: F64, alphas: F64) -> RidgeFit:
    """Ridge regression (Hoerl and Kennard, Technometrics 12, 1970) by its dual; predictions left out in closed form (Allen, Technometrics 16, 1974).

    Fitted values are H y with H = U diag(lambda / (lambda + alpha)) U' + 11'/n; the prediction for a row by the regression on all others has
    the error (y - H y) / (1 - h), with h the diagonal of H, exactly: the mean is that of the others, too. I - H is summed from alpha /
    (lambda + alpha), and 1 where lambda is 0: of small alphas, y and H y are nearly the same.

    Parameters
    ----------
    target : y, (n,), finite
    alphas : positive, (a,)
    """
    mean = float(target.mean())
    centred = target - mean
    weights = rows.vectors.T @ centred
    left = alphas / (rows.eigenvalues[:, None] + alphas)
    beside = rows.beside @ (rows.beside.T @ centred)
    residuals = rows.vectors @ (left * weights[:, None]) + beside[:, None]
    free = np.square(rows.vectors) @ left + np.square(rows.beside).sum(axis=1)[:, None]
    errors = residuals / free
    squares = (errors**2).sum(axis=0)
    chosen = int(np.argmin(squares))
    return RidgeFit(
        alphas,
        squares / len(target),
        1 - squares / float(centred @ centred),
        chosen,
        target - residuals[:, chosen],
        target - errors[:, chosen],
        1 - free[:, chosen],
        residuals[:, chosen] / alphas[chosen],
    )


@dataclass(frozen=True, eq=False)
class Likelihood:
    """The restricted likelihood of y = X b + g + e, with var g = h2 s2 G and var e = (1 - h2) s2 I, over h2, at the best b and s2.

    Error contrasts are the eigenvectors of M G M with M = I - X X^+, in which y has independent components (Patterson and Thompson,
    Biometrika 58, 1971; Kang et al., Genetics 178, 2008). The constant is that of contrasts that are orthonormal.
    """

    eigenvalues: F64
    """Eigenvalues of M G M that can be told from 0, (r,)."""
    squares: F64
    """Squares of y's components along their vectors, (r,)."""
    n_zero: int
    """Contrasts of eigenvalue 0."""
    rest: float
    """The square of y's component there."""

    @property
    def n(self) -> int:
        """Number of contrasts, n less the rank of X."""
        return len(self.eigenvalues) + self.n_zero

    @cached_property
    def _all(self) -> tuple[F64, F64, F64]:
        """Eigenvalues, squares and how often each counts; contrasts of eigenvalue 0 are one."""
        if not self.n_zero:
            return self.eigenvalues, self.squares, np.ones(len(self.eigenvalues))
        counts = np.append(np.ones(len(self.eigenvalues)), self.n_zero)
        return np.append(self.eigenvalues, 0.0), np.append(self.squares, self.rest), counts

    @property
    def highest(self) -> float:
        """The largest h2 at which it is finite: 1, or just below."""
        return 1.0 - (EPS**0.5 if self.n_zero else 0.0)

    def variance(self, h2: float) -> float:
        """The best s2 at an h2: total variance in units of y squared."""
        values, squares, _ = self._all
        return float((squares / (1 + h2 * (values - 1))).sum()) / self.n

    def at(self, h2: float) -> float:
        """The logarithm of the likelihood."""
        values, _, counts = self._all
        logarithms = float((counts * np.log1p(h2 * (values - 1))).sum())
        return -0.5 * (self.n * (math.log(2 * math.pi * self.variance(h2)) + 1) + logarithms)

    def slopes(self, h2: float) -> tuple[float, float]:
        """Its first and second derivative with respect to h2."""
        values, squares, counts = self._all
        weights, steps = 1 / (1 + h2 * (values - 1)), values - 1
        total, slope, bend = (float((factor * squares * weights).sum()) for factor in self._factors(weights, steps))
        first = self.n * slope / total + float((counts * steps * weights).sum())
        second = self.n * (bend / total - (slope / total) ** 2) - float((counts * (steps * weights) ** 2).sum())
        return -0.5 * first, -0.5 * second

    @staticmethod
    def _factors(weights: F64, steps: F64) -> tuple[F64, F64, F64]:
        moved = steps * weights
        return np.ones_like(moved), -moved, 2 * moved**2


@dataclass(frozen=True)
class HeritabilityFit:
    """The share of the variance that lies in the rows."""

    h2: float
    standard_error: float
    """From the curvature of the likelihood; NaN at the ends, 0 and 1, where it means nothing."""
    variance: float
    """Variance of both parts together."""
    log_likelihood: float
    log_likelihood_0: float
    """Without the rows, at h2 = 0."""

    @property
    def at_boundary(self) -> bool:
        """Whether the likelihood is largest at 0 or 1."""
        return not 0 < self.h2 < 1 - 2 * EPS**0.5

    @property
    def ratio(self) -> float:
        """Twice the logarithm of the ratio of likelihoods."""
        return max(2 * (self.log_likelihood - self.log_likelihood_0), 0.0)

    @property
    def p_value(self) -> float:
        """P value of h2 = 0: the ratio is 0 in half of all cases then, else chi-squared with one degree of freedom (Self and Liang, JASA 82, 1987)."""
        return 0.5 * float(stats.chi2.sf(self.ratio, 1)) if self.h2 > 0 else 1.0


def likelihood(rows: Decomposed, target: F64, scale: float, basis: F64) -> Likelihood:
    """The restricted likelihood of a target.

    Parameters
    ----------
    rows : eigenpairs of M P M, with the products P and the fixed effects' M
    target : y, (n,)
    scale : what divides P to make G of it
    basis : orthonormal columns that span the fixed effects, the constant among them, (n, q)
    """
    left = target - basis @ (basis.T @ target)
    if np.linalg.norm(left) <= len(target) * EPS * np.linalg.norm(target):
        raise DataError(
            "the target does not vary beside the fixed effects: they fit it, and no variance is left to divide",
            "Give another target, or fewer covariates.",
        )
    components = rows.vectors.T @ left
    n_zero = len(target) - basis.shape[1] - len(rows.eigenvalues)
    rest = max(float(left @ left - components @ components), 0.0) if n_zero else 0.0
    return Likelihood(rows.eigenvalues / scale, components**2, n_zero, rest)


def heritability(given: Likelihood) -> HeritabilityFit:
    """The h2 of largest likelihood: the best of a grid, refined where the slope is 0, to rounding."""
    points = np.linspace(0.0, given.highest, POINTS)
    values = np.array([given.at(float(point)) for point in points])
    best = int(np.argmax(values))
    low, high = float(points[max(best - 1, 0)]), float(points[min(best + 1, POINTS - 1)])
    if given.slopes(low)[0] > 0 > given.slopes(high)[0]:
        h2 = float(optimize.brentq(lambda h2: given.slopes(h2)[0], low, high, xtol=1e-15, rtol=4 * EPS))
        curvature = given.slopes(h2)[1]
        error = float(np.sqrt(-1 / curvature)) if curvature < 0 else float("nan")
    else:
        h2, error = float(points[best]), float("nan")
    return HeritabilityFit(h2, error, given.variance(h2), given.at(h2), given.at(0.0))
