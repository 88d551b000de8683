"""Principal components of resampled rows, from the products of the rows: how much they would differ with other samples.

A draw has each row some number of times, c, (p,). With m = sum c and w = c / m, its components are those of diag(c)^(1/2) (I - 1 w') P (I - w 1')
diag(c)^(1/2) on the rows that it has, 0.63 p of p in a bootstrap: a quarter of the work, and the same eigenvalues as rows repeated. Their
coefficients follow, and with them their products with the components of all rows, their scores, and whatever else.

Intervals of variances and shares are made of their logarithms, whose spread hardly depends on their size. Of the bootstrap they are symmetric
percentile-t intervals (Hall, Journal of the Royal Statistical Society B 50, 1988), which cover better than percentiles: an error for each draw
follows from its scores, since a row changes log lambda by (s^2 / lambda - 1) / m (Critchley, Biometrika 72, 1985). Of groups left out they
are of the root of the jackknife's variance and squared bias (Efron, The Jackknife, the Bootstrap and Other Resampling Plans, 1982), by
quantiles of Student's t. How often they cover is measured (`workflows/validation`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any, Literal, Protocol

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from scipy import optimize, stats
from threadpoolctl import threadpool_limits

from dpca.derived.gram import Transformed, matrix_of
from dpca.numerics.spectrum import reciprocal
from dpca.types import F64

Align = Literal["order", "procrustes"]
FURTHER = 5
"""Components of a draw beyond the number of those of all rows, with which these may have changed places."""
BATCH = 8
"""Draws in hand for each thread."""
Rows = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Draw:
    """Rows, in units that come or go together: single rows, blocks of a record, or groups."""

    rows: Rows
    """Their numbers, (m,)."""
    starts: Rows
    """Where the units begin among them, (units,)."""


class Scheme(Protocol):
    """How rows are drawn, and what the draws say."""

    @property
    def number(self) -> int:
        """How many draws there are."""
        ...

    def draws(self) -> Iterator[Draw]:
        """The draws, always the same."""
        ...

    @property
    def weights(self) -> F64:
        """Weights of squared distances of draws from all rows, so that they sum to that of other samples, (draws,)."""
        ...

    def deviations(self, values: F64, of_all: F64) -> F64:
        """Columns whose squares, summed over the draws, are the variance of a statistic.

        Parameters
        ----------
        values : of each draw, (draws, ...)
        of_all : of all rows, (...)
        """
        ...

    def intervals(self, values: F64, errors: F64, of_all: F64, influences: F64, level: float) -> F64:
        """Lower and upper limit of a statistic, (2, k).

        Parameters
        ----------
        values, errors : of each draw, and its standard errors, (draws, k)
        of_all, influences : of all rows, (k,), and what each row adds to it by its being there, m times, (p, k)
        """
        ...

    def plain_intervals(self, values: F64, of_all: F64, level: float) -> F64:
        """Intervals without standard errors of each draw, (2, ...)."""
        ...


@dataclass(frozen=True, eq=False)
class Bootstrap:
    """Units drawn with replacement, as many rows as there are (of groups as many groups).

    Blocks are those of the circular block bootstrap (Politis and Romano, in Exploring the Limits of Bootstrap, 1992). Single rows are the draws
    of `numpy.random.default_rng(seed).choice(n, n)`, one after another.
    """

    n: int
    """Number of rows."""
    number: int
    seed: int = 0
    block: int = 1
    """Rows that follow each other in a unit."""
    codes: Rows | None = None
    """The number of each row's group, (n,), where groups are drawn."""

    def draws(self) -> Iterator[Draw]:
        generator = np.random.default_rng(self.seed)
        for _ in range(self.number):
            if self.codes is not None:
                chosen = generator.choice(len(self._members), len(self._members))
                sizes = np.array([len(self._members[unit]) for unit in chosen])
                yield Draw(np.concatenate([self._members[unit] for unit in chosen]), np.cumsum(sizes) - sizes)
                continue
            if self.block == 1:
                yield Draw(generator.choice(self.n, self.n), np.arange(self.n))
                continue
            starts = generator.choice(self.n, -(-self.n // self.block))
            rows = (starts[:, None] + np.arange(self.block)) % self.n
            yield Draw(rows.ravel()[: self.n], np.arange(0, self.n, self.block))

    @cached_property
    def _members(self) -> list[Rows]:
        assert self.codes is not None
        return [np.flatnonzero(self.codes == code) for code in range(self.codes.max() + 1)]

    @property
    def weights(self) -> F64:
        return np.full(self.number, 1 / (self.number - 1))

    def deviations(self, values: F64, of_all: F64) -> F64:
        return np.asarray((values - values.mean(axis=0)) / np.sqrt(self.number - 1))

    def intervals(self, values: F64, errors: F64, of_all: F64, influences: F64, level: float) -> F64:
        own = self._error(influences)
        with np.errstate(invalid="ignore", divide="ignore"):
            most = np.quantile(np.abs(values - of_all) / errors, level, axis=0)
        return np.stack([of_all - most * own, of_all + most * own])

    def plain_intervals(self, values: F64, of_all: F64, level: float) -> F64:
        return np.quantile(values, [(1 - level) / 2, (1 + level) / 2], axis=0)

    def _error(self, influences: F64) -> F64:
        """The standard error of all rows, as `error_of` has that of a draw."""
        if self.codes is not None:
            sums = np.stack([influences[members].sum(axis=0) for members in self._members])
            return np.asarray(np.sqrt((sums**2).sum(axis=0)) / self.n)
        around = np.concatenate([influences, influences[: self.block - 1]])
        sums = np.lib.stride_tricks.sliding_window_view(around, self.block, axis=0).sum(axis=-1)
        return np.asarray(np.sqrt((sums**2).sum(axis=0) / self.block) / self.n)


@dataclass(frozen=True, eq=False)
class LeaveOut:
    """All rows but those of a group, each group once; where each row is a group, the jackknife.

    Groups need not be equal (Busing, Meijer and van der Leeden, Statistics and Computing 9, 1999): where one has m of n rows, h = n / m, and
    a statistic t without it becomes the pseudo-value h t(all) - (h - 1) t.
    """

    codes: Rows
    """The number of each row's group, (n,)."""

    @property
    def number(self) -> int:
        return int(self.codes.max()) + 1

    def draws(self) -> Iterator[Draw]:
        for group in range(self.number):
            rows = np.flatnonzero(self.codes != group)
            yield Draw(rows, np.arange(len(rows)))

    @property
    def weights(self) -> F64:
        return np.asarray((len(self.codes) / np.bincount(self.codes) - 1) / self.number)

    def _pseudo(self, values: F64, of_all: F64) -> tuple[F64, F64, F64]:
        """Pseudo-values, their mean, which is the statistic less its bias, and h, (draws, 1 ...)."""
        sizes = np.bincount(self.codes)
        h = (len(self.codes) / sizes).reshape(-1, *(1,) * of_all.ndim)
        pseudo = h * of_all - (h - 1) * values
        return pseudo, np.asarray((pseudo / h).sum(axis=0)), h

    def deviations(self, values: F64, of_all: F64) -> F64:
        pseudo, mean, h = self._pseudo(values, of_all)
        return np.asarray((pseudo - mean) / np.sqrt((h - 1) * self.number))

    def intervals(self, values: F64, errors: F64, of_all: F64, influences: F64, level: float) -> F64:
        bias = of_all - self._pseudo(values, of_all)[1]
        reach = np.sqrt((self._reach(values, of_all, level) ** 2) + (self._quantile(level) * bias) ** 2)
        return np.stack([of_all - reach, of_all + reach])

    def plain_intervals(self, values: F64, of_all: F64, level: float) -> F64:
        reach = self._reach(values, of_all, level)
        return np.stack([of_all - reach, of_all + reach])

    def _reach(self, values: F64, of_all: F64, level: float) -> F64:
        return np.asarray(self._quantile(level) * np.sqrt((self.deviations(values, of_all) ** 2).sum(axis=0)))

    def _quantile(self, level: float) -> float:
        return float(stats.t.ppf((1 + level) / 2, self.number - 1))


@dataclass(frozen=True, eq=False)
class OfDraw:
    """The components of one draw; those that are in no order of their own are aligned with those of all rows."""

    logs: F64
    """Logarithms of variances and of shares, in order of size, (2, k); NaN where a draw has no such component."""
    errors: F64
    """Standard errors of these, (2, k)."""
    angles: F64
    """The largest angle, in degrees, between the leading 1, 2, ... k components and as many of all rows, (k,)."""
    congruence: F64
    """w'w of each component with the one of the draw that is most like it, (k,); NaN where the draw has none for it."""
    matched: NDArray[np.bool_]
    """Whether the draw has coefficients and scores beside those of a component, (k,)."""
    coefficients: F64
    """Coefficients of the rows, (p, k)."""
    scores: F64
    """Scores of all rows about the mean of the draw, (p, k)."""


@dataclass(frozen=True, eq=False)
class Estimate:
    """A statistic of each component, with what draws say of it."""

    of_draws: F64
    """(draws, k)."""
    standard_error: F64
    """(k,)."""
    interval: F64
    """Lower and upper limit, (2, k)."""


@dataclass(frozen=True, eq=False)
class Resampled:
    """Results of draws about components. NaN where a draw has fewer components."""

    variances: Estimate
    """lambda / (m - 1), in order of size."""
    shares: Estimate
    """lambda / tr, in order of size."""
    lacking: Rows
    """Draws with too few components for a variance of this order, (k,)."""
    unmatched: Rows
    """Draws that have no scores and maps beside those of a component, (k,)."""
    angles: F64
    """Angles of each draw, (draws, k)."""
    congruence: F64
    """(draws, k)."""
    instability: F64
    """|w - w_b|^2 = 2 (1 - w'w_b), as it is expected of other samples, (k,): from 0 to about 0.2 where two components mix freely, and beyond.

    Whatever the alignment, w_b is the component of a draw that is most like w. Draws that leave some rows out are extrapolated, so that it may
    exceed the 2 that a squared distance can be."""
    scores_standard_error: F64
    """(p, k)."""
    scores_interval: F64
    """(2, p, k)."""
    deviations: F64 | None
    """Coefficients of the rows whose maps square and sum to the variance of each component, (p, k, r), r at most p and the number of draws."""


def resampled(
    rows: Transformed,
    eigenvalues: F64,
    scores: F64,
    scheme: Scheme,
    level: float = 0.95,
    align: Align = "order",
    of_maps: bool = False,
    threads: int = 1,
) -> Resampled:
    """Results of draws of rows about their principal components.

    Parameters
    ----------
    rows : A X, about the mean of the rows
    eigenvalues, scores : of their components, (k,) and (p, k)
    level : of the intervals
    align : order: each component with the one of a draw that it is most like, with its sign; procrustes: the leading k of a draw turned to be
        as near to them as can be. Variances, shares and angles are not aligned: their k-th is that of the k-th largest
    of_maps : also find `deviations`
    threads : which the result does not depend on
    """
    (p, k), number = scores.shape, scheme.number
    matrix = matrix_of(rows.products)
    floor = rows.floor(np.append(eigenvalues, 0.0))

    def solve(draw: Draw) -> OfDraw:
        return of_draw(matrix, draw, scores, floor, align)

    logs, errors = np.empty((2, number, k)), np.empty((2, number, k))
    angles, congruence, matched = np.empty((number, k)), np.empty((number, k)), np.empty((number, k), bool)
    all_scores = np.empty((k, number, p))
    coefficients = np.empty((k, number, p)) if of_maps else None
    for at, one in enumerate(_solved(scheme.draws(), solve, threads)):
        logs[:, at], errors[:, at], angles[at], congruence[at] = one.logs, one.errors, one.angles, one.congruence
        all_scores[:, at], matched[at] = one.scores.T, one.matched
        if coefficients is not None:
            coefficients[:, at] = one.coefficients.T
    lacking, unmatched = np.isnan(logs[0]).sum(axis=0), (~matched).sum(axis=0)
    both = np.log(eigenvalues / (p - 1)), np.log(eigenvalues / np.trace(matrix))
    own = influences(matrix, scores, eigenvalues)
    variances, shares = (
        _estimate(scheme, logs[which], errors[which], both[which], own[which], level, most)
        for which, most in ((0, np.inf), (1, 1.0))
    )
    error, interval = np.empty((p, k)), np.empty((2, p, k))
    for component, of_one in enumerate(all_scores):
        error[:, component] = np.sqrt((scheme.deviations(of_one, scores[:, component]) ** 2).sum(axis=0))
        interval[..., component] = scheme.plain_intervals(of_one, scores[:, component], level)
    error[:, unmatched > 0], interval[..., unmatched > 0] = np.nan, np.nan
    instability = scheme.weights @ (2 - 2 * congruence)
    deviations: F64 | None = None
    if coefficients is not None:
        of_all = (scores * reciprocal(eigenvalues)).T
        each = [reduced(scheme.deviations(*both)) for both in zip(coefficients, of_all, strict=True)]
        deviations = np.stack(each, axis=1)
        deviations[:, unmatched > 0] = np.nan
    return Resampled(
        variances, shares, lacking, unmatched, angles, congruence, instability, error, interval, deviations
    )


def _estimate(
    scheme: Scheme, logs: F64, errors: F64, of_all: F64, influence: F64, level: float, most: float
) -> Estimate:
    values, own = np.exp(logs), np.exp(of_all)
    error = np.sqrt((scheme.deviations(values, own) ** 2).sum(axis=0))
    with np.errstate(over="ignore"):  # of very few rows there is no upper limit
        limits = np.exp(scheme.intervals(logs, errors, of_all, influence, level))
    return Estimate(values, error, np.minimum(limits, most))


def _solved(draws: Iterator[Draw], solve: Callable[[Draw], OfDraw], threads: int) -> Iterator[OfDraw]:
    """Results of each draw, in their order. A draw is one thread's, so that its bits are the same whatever their number."""
    with threadpool_limits(1, user_api="blas"), ThreadPoolExecutor(threads) as pool:
        while some := list(islice(draws, BATCH * threads)):
            yield from pool.map(solve, some)


def of_draw(matrix: F64, draw: Draw, scores: F64, floor: float, align: Align) -> OfDraw:
    """The components of a draw.

    Parameters
    ----------
    matrix : P, products of rows about their mean, (p, p)
    scores : of all rows on their components W, (p, k): P C of their coefficients
    floor : what an eigenvalue has to exceed to be told from 0
    """
    m, (p, k) = len(draw.rows), scores.shape
    rows, numbers, counts = np.unique(draw.rows, return_inverse=True, return_counts=True)
    weights, roots = counts / m, np.sqrt(counts)
    products = matrix[np.ix_(rows, rows)]
    of_mean = products @ weights
    products -= of_mean[:, None]
    products += weights @ of_mean - of_mean
    norms2 = np.diagonal(products).copy()
    total = float(counts @ norms2)
    products *= roots[:, None]
    products *= roots
    n_found = min(k + FURTHER, len(rows))
    values, vectors = scipy.linalg.eigh(
        products, subset_by_index=[len(rows) - n_found, len(rows) - 1], overwrite_a=True, check_finite=False
    )
    values, vectors = values[::-1], vectors[:, ::-1]
    there = int(np.count_nonzero(values > floor))
    values, vectors = values[:there], vectors[:, :there]
    logs, errors = np.full((2, k), np.nan), np.full((2, k), np.nan)
    if there:
        own = slice(min(k, there))
        logs[:, own] = np.log(values[own] / (m - 1)), np.log(values[own] / total)
        both = _influences(vectors[:, own] / roots[:, None], norms2, total, m)
        errors[:, own] = [error_of(one[numbers], draw.starts) for one in both]
    loads = (vectors * roots[:, None]) / np.sqrt(values)
    loads -= np.outer(weights, loads.sum(axis=0))
    coefficients = np.zeros((p, there))
    coefficients[rows] = loads
    overlap = scores.T @ coefficients
    turn = turned(overlap, align)
    coefficients = coefficients @ turn
    found = matrix @ coefficients
    angles, congruence = angles_between(overlap), congruence_of(overlap)
    return OfDraw(
        logs, errors, angles, congruence, np.asarray(turn.any(axis=0)), coefficients, found - weights @ found[rows]
    )


def influences(matrix: F64, scores: F64, eigenvalues: F64) -> tuple[F64, F64]:
    """How much each row adds to the logarithms of variances and of shares by its being there, p times, (p, k) each."""
    norms2 = np.diagonal(matrix)
    return _influences(scores / np.sqrt(eigenvalues), norms2, float(norms2.sum()), len(matrix))


def _influences(directions: F64, norms2: F64, total: float, m: int) -> tuple[F64, F64]:
    """Influences of rows, from u = s / sqrt(lambda), (rows, k), |x|^2 of the rows and its sum over all m."""
    of_variance = m * directions**2 - 1
    return of_variance, of_variance - (m * norms2 / total - 1)[:, None]


def error_of(influence: F64, starts: Rows) -> F64:
    """The standard error of a statistic, (k,), from what each of m rows adds to it, m times, (m, k), in units that begin at `starts`."""
    sums = np.add.reduceat(influence, starts, axis=0)
    return np.asarray(np.sqrt((sums**2).sum(axis=0)) / len(influence))


def turned(overlap: F64, align: Align) -> F64:
    """Rotation of the components of a draw to those of all rows, (found, k): 0 for one beside which the draw has none.

    Parameters
    ----------
    overlap : W' W_b, (k, found)
    """
    k, there = overlap.shape
    turn = np.zeros((there, k))
    if align == "order":
        own, theirs = optimize.linear_sum_assignment(-np.abs(overlap))
        turn[theirs, own] = np.where(overlap[own, theirs] < 0, -1.0, 1.0)
    elif there >= k:
        left, _, right = np.linalg.svd(overlap[:, :k])
        turn[:k] = right.T @ left.T
    return turn


def congruence_of(overlap: F64) -> F64:
    """w'w of each component with the one of a draw that is most like it, (k,): NaN where there is none; parameters as of `turned`."""
    turn = turned(overlap, "order")
    return np.where(turn.any(axis=0), (overlap * turn.T).sum(axis=1), np.nan)


def angles_between(overlap: F64) -> F64:
    """The largest angle, in degrees, between the leading 1, 2, ... k components of both, (k,); 90 where one has fewer."""
    angles = np.full(len(overlap), 90.0)
    for size in range(1, min(overlap.shape) + 1):
        smallest = np.linalg.svd(overlap[:size, :size], compute_uv=False)[-1]
        angles[size - 1] = np.degrees(np.arccos(min(smallest, 1.0)))
    return angles


def reduced(deviations: F64) -> F64:
    """Columns of coefficients, (p, r), whose maps have the same sum of squares as those of the deviations, (draws, p): R' of their QR."""
    number, p = deviations.shape
    if number <= p:
        return deviations.T
    triangle: F64 = scipy.linalg.qr(deviations, mode="r", check_finite=False)[0][:p]
    return triangle.T


def cut(deviations: F64, matrix: F64, columns: int) -> tuple[F64, F64]:
    """Fewer columns of each component, those of the largest variance, and the share of the variance that is lost, (k,).

    The singular value decomposition of X'D follows from D'P D.

    Parameters
    ----------
    deviations : D of each component, (p, k, r)
    matrix : P, (p, p)
    """
    kept, lost = list[Any](), list[float]()
    for one in np.moveaxis(deviations, 1, 0):
        if np.isnan(one).any():
            kept.append(one[:, :columns])
            lost.append(np.nan)
            continue
        values, vectors = np.linalg.eigh(one.T @ (matrix @ one))
        values = np.maximum(values, 0.0)
        kept.append(one @ vectors[:, ::-1][:, :columns])
        lost.append(float(values[:-columns].sum() / values.sum()) if values.sum() else 0.0)
    return np.stack(kept, axis=1), np.array(lost)
