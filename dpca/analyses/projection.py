"""Samples that took no part in an analysis, on its components: those that a selection left out, or new ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpca.analyses.axis import Axis
from dpca.analyses.samples import By, Samples
from dpca.derived.fits import Detrend, LessCovariates
from dpca.derived.groups import Anomalies, GroupMeans
from dpca.derived.operators import Center, Matrix, Operator, SelectRows, Weights
from dpca.errors import ConfigError
from dpca.settings import OUTPUT
from dpca.sources.calendars import conversion

REFUSED = {
    "extended": "its rows are windows of samples that follow each other",
    "hilbert": "the analytic signal is made of all samples, before and after",
    "dmd": "its modes are of samples that follow each other",
    "optimized_dmd": "its modes are fitted to the times of its samples",
    "spod": "its rows are Fourier sums of samples that follow each other",
    "pcoa": "it has no components, and pca, which has its scores, does",
    **dict.fromkeys(("distances", "permanova", "manova", "heritability", "similarity"), "it has no components"),
    "ridge": "it predicts those that a selection left out with left_out alone",
    "kernel_pca": "a kernel of them is needed: dpca.KernelPCA projects",
}
"""Why samples can't be projected on the components of a kind of analysis."""
NO_MAPS = {
    "kernel_pca": (
        "its components lie in no space of features",
        "dpca.KernelPCA finds pre-images: fit_inverse_transform=True.",
    ),
    "similarity": ("it compares whole groups of features", "Ask a pca, mca or cca for them."),
    **dict.fromkeys(
        ("mca", "cca"),
        (
            f"one of its groups is labels within an input ({OUTPUT.groups}), and maps are made of whole inputs",
            "Run with an input of each group (a list of inputs), or open results of each.",
        ),
    ),
    "pcoa": ("it is of distances", "Ask a pca for them, which has its scores."),
}
"""Why analyses of a kind have no components among the features, and what to do; of others, they are statistics of rows."""
BEFORE_AND_AFTER = "needs the samples before and after"
OPERATORS = {
    "Difference": BEFORE_AND_AFTER,
    "Butterworth": BEFORE_AND_AFTER,
    "Lanczos": BEFORE_AND_AFTER,
    "RunningMean": BEFORE_AND_AFTER,
    "Between": "puts the mean of its group in the place of a sample",
    "GroupMeans": "makes rows of several samples",
}
"""Why operators have no meaning for a sample that took no part."""


@dataclass(frozen=True, eq=False)
class Others:
    """Samples that took no part."""

    axis: Axis
    """Their coordinate."""
    numbers: NDArray[np.intp] | None = None
    """Which samples of the run they are, (m,); None for new ones."""


def left_out(rows: Samples, axis: Axis) -> Others:
    """The samples of a run that are not among some rows.

    Parameters
    ----------
    axis : of all samples of the run
    """
    check_operators(rows)
    assert rows.origin is not None
    numbers = np.setdiff1d(np.arange(rows.chain.n_in), rows.origin)
    if not numbers.size:
        raise ConfigError(
            f"all {rows.chain.n_in:,} samples took part, and none is left to project",
            "Select some of them before the analysis.",
        )
    return Others(axis if axis.values is None else axis.of(axis.values[numbers]), numbers)


def check(kind: str, rows: Samples) -> None:
    """Refuse an analysis on whose components no other samples can be projected."""
    if kind in REFUSED:
        raise ConfigError(
            f"samples are projected on an analysis of kind {kind}, but {REFUSED[kind]}",
            "Project on principal components (pca).",
        )
    check_operators(rows)


def no_maps(kind: str) -> ConfigError:
    """Refusal where components of an analysis without any are asked for."""
    why, remedy = NO_MAPS.get(kind, ("it is a statistic of the rows", "Ask a pca for them."))
    return ConfigError(f"{kind} has no components among the features: {why}", remedy)


def check_operators(rows: Samples) -> None:
    """Refuse operators that have no meaning for a sample that took no part, or that keep the mean."""
    for operator, words in zip(rows.chain.operators, rows.told, strict=True):
        why = OPERATORS.get(type(operator).__name__)
        if why is not None:
            raise ConfigError(
                f"samples that took no part can't be projected: an operator ({words}) {why}",
                "Apply it to the samples before the run, or leave it out.",
            )
    if not rows.chain.removes_mean:
        raise ConfigError(
            "samples that took no part can't be projected on components of operators that keep a part of the mean",
            "Fit a constant beside the covariates (intercept), or center first.",
        )


def projected(rows: Samples, coefficients: Matrix, scores: Matrix | None, others: Others) -> Matrix:
    """Scores of samples that took no part, (m, k): they go through the operators beside those that did.

    Of each operator the others lose what it fits to the rows at their place: the mean of the rows (weighted, for `Weights`), the mean of those
    of the same group, the trend at their time, the fit at their covariates. All that is known of any sample here is X_c W; a sample that
    did take part would get its own score (divided by the root of its weight).

    Parameters
    ----------
    rows : of the analysis, with all of its operators
    coefficients : C of its components W = X_c' C, (n, k)
    scores : X_c W of the others, (m, k), about the mean of the run; None where they are samples of the run
    others : of these
    """
    check_operators(rows)
    own = rows.products.cross(coefficients)
    found = own[others.numbers] if scores is None else scores
    for operator, by in zip(rows.chain.operators, rows.by, strict=True):
        if not isinstance(operator, SelectRows):
            found = found - _fitted(operator, by, own, others, rows.axis)
        own = operator.apply(own)
    return np.asarray(found)


def _fitted(operator: Operator, by: By | None, own: Matrix, others: Others, axis: Axis) -> Matrix:
    """Fit that an operator takes from other samples, (m, k) or (1, k), from X W of the rows before it, (rows, k)."""
    match operator:
        case Center():
            return np.asarray(own.mean(axis=0, keepdims=True))
        case Weights():
            return np.asarray(operator.shares.T @ own)
        case Anomalies():
            labels = others.axis.part(by) if isinstance(by, str) else _of_others(by, others, "labels")
            return _means(operator, labels, own, others.axis)
        case Detrend():
            return _trend(operator, _times(others, axis), own)
        case LessCovariates():
            covariates = np.asarray(_of_others(by, others, "covariates"), np.float64)
            return _fit(operator, covariates.reshape(len(covariates), -1), own)
        case _:
            raise AssertionError(f"{type(operator).__name__} is neither projected nor refused")


def _of_others(by: Any, others: Others, what: str) -> NDArray[Any]:
    """Labels or covariates of the others."""
    if others.numbers is None or by is None:
        which = "new samples" if others.numbers is None else "the samples that were left out"
        raise ConfigError(
            f"{what} of {which} are not known, by which an operator goes",
            "Give them for all samples of the result; of new samples only parts of their dates are known.",
        )
    return np.asarray(by)[others.numbers]


def _means(operator: Anomalies, labels: NDArray[Any], own: Matrix, axis: Axis) -> Matrix:
    """Means of the rows of the same group."""
    groups, means = np.unique(operator.labels), GroupMeans(operator.labels).apply(own)
    places = np.minimum(np.searchsorted(groups, labels), len(groups) - 1)
    unknown = np.flatnonzero(groups[places] != labels)
    if unknown.size:
        first = int(unknown[0])
        raise ConfigError(
            f"{_called(axis, first)} is of group {labels[first]}, of which no sample took part: its mean is not known",
            f"Leave such samples out; the groups are {', '.join(map(str, groups[:12].tolist()))}.",
        )
    return np.asarray(means[places])


def _trend(operator: Detrend, times: NDArray[np.float64], own: Matrix) -> Matrix:
    """The polynomial that was fitted to the rows, at other times."""
    given = np.asarray(operator.times, np.float64)
    middle, half = (given.max() + given.min()) / 2, (given.max() - given.min()) / 2
    at_rows, at_others = (
        np.polynomial.legendre.legvander((t - middle) / half, operator.degree) for t in (given, times)
    )
    return np.asarray(at_others @ np.linalg.lstsq(at_rows, own, rcond=None)[0])


def _fit(operator: LessCovariates, covariates: NDArray[np.float64], own: Matrix) -> Matrix:
    """The regression that was fitted to the rows, at other covariates."""
    given = np.asarray(operator.covariates, np.float64).reshape(len(own), -1)
    middle = given.mean(axis=0) * operator.intercept
    spread = np.linalg.norm(given - middle, axis=0)
    spread[spread == 0] = 1.0
    constant = [np.full((len(part), int(operator.intercept)), 1 / np.sqrt(len(given))) for part in (given, covariates)]
    at_rows, at_others = (
        np.hstack([ones, (part - middle) / spread]) for ones, part in zip(constant, (given, covariates), strict=True)
    )
    return np.asarray(at_others @ np.linalg.lstsq(at_rows, own, rcond=None)[0])


def _times(others: Others, axis: Axis) -> NDArray[np.float64]:
    """Times of the others, in the units of the rows."""
    times = others.axis.times("the trend of other samples")
    same = conversion(others.axis.attributes, axis.attributes)
    if same is not None:
        return np.asarray(same(times), np.float64)
    ours, theirs = (one.attributes.get("units") for one in (axis, others.axis))
    if ours != theirs:
        raise ConfigError(
            f"times of new samples are in {theirs!r}, and those of the result in {ours!r}",
            "Give them in the same units.",
        )
    return times


def _called(axis: Axis, number: int) -> str:
    names: Sequence[str] = axis.names
    return f"sample {names[number]}" if names else f"sample {number}"
