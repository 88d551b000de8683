"""Statistics of rows, from products that operators leave: distances, groups compared, a target predicted. No data, and no maps.

All are of the rows about their mean. Sums of squares are off by no more than the norm of the errors of their products (`dpca.derived.rounding`);
each certificate has what follows for its statistic as `error`, relative.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from dpca.analyses import kernels, projection
from dpca.analyses.answers import ALPHA, H2, Answer, Array, of_rows, row_axis, why_so_few
from dpca.analyses.axis import Axis, in_order
from dpca.analyses.samples import By, Number, Samples
from dpca.derived import statistics
from dpca.derived.gram import matrix_of
from dpca.derived.operators import F64, Center, Remainder, Select
from dpca.derived.ridge import POINTS, Decomposed, grid, heritability, likelihood
from dpca.derived.ridge import ridge as ridge_of
from dpca.derived.statistics import Grouped, Test, arrangements, coded
from dpca.errors import ConfigError, DataError
from dpca.numerics.sketch import RELIABLE, SMALLEST

TESTS = {
    "wilks_lambda": "Wilks' lambda",
    "pillai_trace": "Pillai's trace",
    "hotelling_lawley_trace": "Hotelling-Lawley trace",
    "roy_greatest_root": "Roy's greatest root",
}
"""Statistics of MANOVA, and what they are called in words."""
SOURCES = ("between", "within", "total")
"""Of sums of squares."""


def distances(rows: Samples) -> Answer:
    """Euclidean distances of the rows from each other."""
    found, error = kernels.distances(rows)
    axis, known_above = row_axis(rows.axis), kernels.nearest_known(error)
    pairs = found[np.triu_indices(rows.n, 1)]
    near = int(np.count_nonzero(pairs < known_above))
    caveat = ""
    if near:
        left = why_so_few(rows.known, _amplification(rows), "they are small beside the norms of the rows")
        caveat = f"{near:,} of {len(pairs):,} distances are below {known_above:.3g}, where they have less than two digits: {left}"
    low, middle, high = (float(one) for one in np.quantile(pairs, [0.0, 0.5, 1.0]))
    other = f"{axis.name}_b"
    return _answer(
        "distances",
        rows,
        {"distances": Array(found, (axis.name, other), {"known_above": known_above})},
        [axis, replace(axis, name=other)],
        f"{len(pairs):,} distances from {low:.5g} to {high:.5g}, median {middle:.5g}",
        [caveat],
        known_above=known_above,
    )


def pcoa(rows: Samples, n_components: Number = None) -> Answer:
    """Principal coordinates of the Euclidean distances (Gower, Biometrika 53, 1966): the scores and the spectrum of PCA, without maps."""
    found = rows.pca(n_components)
    return replace(found, kind="pcoa", maps=None, certificate={**found.certificate, "kind": "pcoa"})


def permanova(rows: Samples, by: By, permutations: int = 999, seed: int = 0, strata: By | None = None) -> Answer:
    """Permutational analysis of variance: whether groups differ in their centres; spreads that differ count, too.

    Parameters
    ----------
    by : a part of the dates, or a label for each sample of the run, or each row
    permutations : of labels, by a generator that `seed` starts; 0 for none, and no p value
    strata : as `by`, of blocks within which labels are permuted
    """
    rows = unweighted(rows, "PERMANOVA is")
    groups = _grouped(rows, by)
    blocks = None if strata is None else coded(labels_of(rows, strata, "strata"))[1]
    moved = rows.centred.transformed
    found = statistics.permanova(matrix_of(moved.products), groups, permutations, seed, blocks)
    ways = arrangements(groups, blocks)
    few = (
        f"labels can be arranged in {ways:,.0f} ways that differ, fewer than the {permutations:,} permutations: no p value below about "
        f"{1 / ways:.2g} is possible"
    )
    sizes, noise = groups.sizes, moved.error
    error = noise / max(found.between, noise) + 2 * noise / max(found.within, noise)
    p_value = _plain(found.p_value)
    said = f", p {p_value:.3g} ({permutations:,} permutations, seed {seed})" if p_value is not None else ""
    n_groups = len(groups.names)
    return _answer(
        "permanova",
        rows,
        {
            "pseudo_f": Array(np.array(found.pseudo_f), ()),
            "p_value": Array(np.array(found.p_value), ()),
            "r2": Array(np.array(found.r2), (), {"long_name": "share of the sum of squares between groups"}),
            "sum_of_squares": Array(np.array([found.between, found.within, found.total]), ("source",)),
            "degrees_of_freedom": Array(np.array([*found.degrees, sum(found.degrees)]), ("source",)),
            "permuted_f": Array(found.permuted, ("permutation",)),
            "group_size": Array(sizes.astype(np.int64), ("group",)),
        },
        [Axis("source", np.array(SOURCES)), Axis("group", groups.names)],
        f"pseudo-F {found.pseudo_f:.5g} of {n_groups:,} groups, R2 {found.r2:.4g}{said}",
        [few if permutations and ways <= permutations else "", _inexact(rows, error, "pseudo-F")],
        pseudo_f=_plain(found.pseudo_f),
        p_value=p_value,
        r2=found.r2,
        groups=n_groups,
        permutations=permutations,
        seed=seed,
        distinct_permutations=_plain(ways),
        error=error,
    )


def manova(rows: Samples, by: By, n_components: int) -> Answer:
    """Multivariate analysis of variance of the leading scores of PCA: whether groups differ in them.

    Parameters
    ----------
    by : as of `permanova`
    n_components : how many scores, at most n - g
    """
    rows = unweighted(rows, "MANOVA is")
    groups = _grouped(rows, by)
    if n_components > groups.residual_degrees:
        statistics.manova(np.empty((rows.n, n_components)), groups)  # says so before the eigensolve
    answer = rows.pca(n_components)
    found = statistics.manova(answer.arrays["scores"].values / answer.arrays["singular_values"].values, groups)
    tests = dict(zip(TESTS, (found.wilks, found.pillai, found.hotelling_lawley, found.roy), strict=True))
    wilks = found.wilks
    correlations = np.sqrt(found.correlations2)
    arrays = {
        "statistic": Array(np.array([one.value for one in tests.values()]), ("test",)),
        "f_value": Array(np.array([one.f_value for one in tests.values()]), ("test",)),
        "degrees_of_freedom": Array(np.array([one.degrees for one in tests.values()]), ("test", "part")),
        "p_value": Array(np.array([one.p_value for one in tests.values()]), ("test",)),
        "canonical_correlations": Array(correlations, ("canonical",)),
        "group_size": Array(groups.sizes.astype(np.int64), ("group",)),
    }
    axes = [
        Axis("test", np.array(list(TESTS))),
        Axis("part", np.array(["numerator", "denominator"])),
        Axis("group", groups.names),
    ]
    n_groups = len(groups.names)
    verdict = (
        f"Wilks' lambda {wilks.value:.5g} of {n_groups:,} groups in {n_components} scores, F({wilks.degrees[0]:g}, {wilks.degrees[1]:.5g}) = "
        f"{wilks.f_value:.5g}, p {wilks.p_value:.3g}"
    )
    certificate = {
        **answer.certificate,
        "kind": "manova",
        "verdict": verdict,
        "groups": n_groups,
        "tests": {name: _of_test(one) for name, one in tests.items()},
        "roy_is_a_bound": len(correlations) > 1,
    }
    return Answer("manova", arrays, {axis.name: axis for axis in axes}, None, certificate)


def _of_test(test: Test) -> dict[str, Any]:
    return {
        "value": test.value,
        "f_value": _plain(test.f_value),
        "degrees_of_freedom": list(test.degrees),
        "p_value": _plain(test.p_value),
    }


def ridge(
    rows: Samples,
    target: ArrayLike,
    alpha: float | Sequence[float] | Literal["auto"] = "auto",
    left_out: Axis | None = None,
    name: str = "target",
) -> Answer:
    """Ridge regression of a target on the rows, with predictions for each row by all others; GBLUP where K is a genetic relationship matrix.

    The alpha of least error is chosen, by these predictions: with several alphas their error is that of the best, and so a little too good.

    Parameters
    ----------
    target : y, of the samples of the run or of the rows; operators act on the samples, not on it
    alpha : what is added to the eigenvalues of the rows' products; several, or a grid about their mean ("auto")
    left_out : the axis of all samples of the run, for predictions of those that a selection left out; None for none
    name : of the target
    """
    rows = unweighted(rows, "ridge regression is")
    values = target_of(rows, target, name)
    if not np.ptp(values) > 0:
        raise DataError(f"{name} is {values[0]:g} for all {rows.n:,} rows", "Give a target that varies.", key="target")
    given = None if isinstance(alpha, str) else np.atleast_1d(np.asarray(alpha, np.float64))
    if given is not None and (given.ndim != 1 or not given.size or not ((given > 0) & (given < np.inf)).all()):
        wrong = given[~((given > 0) & (given < np.inf))]
        raise ConfigError(
            f"alpha is {float(wrong[0]) if wrong.size else alpha!r}, but positive numbers are allowed: without a penalty nothing is left to predict "
            "where there are fewer samples than features",
            "Give a positive number, several, or auto.",
            key="alpha",
        )
    if isinstance(alpha, str) and alpha != "auto":
        raise ConfigError(f"alpha is {alpha!r}, but a number, several or auto is allowed", key="alpha")
    centred = rows.centred
    moved, axis = centred.transformed, row_axis(rows.axis)
    alphas = grid(moved.products.total / (rows.n - 1)) if given is None else np.unique(given)
    decomposed = Decomposed.of(moved)
    found = ridge_of(decomposed, values, alphas)
    r2 = float(found.r2[found.chosen])
    arrays = {
        "mean_squared_error": Array(found.mean_squared_errors, (ALPHA,), {"long_name": "of predictions left out"}),
        "r2": Array(found.r2, (ALPHA,), {"long_name": "1 - sum of squared errors left out / that of the target"}),
        "target": Array(values, (axis.name,)),
        "fitted": Array(found.fitted, (axis.name,)),
        "leave_one_out": Array(found.leave_one_out, (axis.name,)),
        "leverage": Array(found.leverages, (axis.name,)),
        "dual_coefficients": Array(found.dual, (axis.name,)),
    }
    axes = [axis, Axis(ALPHA, alphas)]
    if left_out is not None:
        others = projection.left_out(centred, left_out)
        coefficients = centred.chain.adjoint(found.dual[:, None])
        predicted = projection.projected(centred, coefficients, None, others)[:, 0] + values.mean()
        dim = f"{axis.name}_left_out"
        arrays["predicted_left_out"] = Array(predicted, (dim,))
        axes.append(replace(others.axis, name=dim))
    # A prediction's error is (R y)_i / R_ii with R = (P + alpha I)^-1, and |dR| / |R| is at most |dP| / (smallest + alpha).
    solved = SMALLEST * float(decomposed.eigenvalues[0])
    error = 2 * (moved.error + solved) / (decomposed.smallest + found.alpha)
    tried = f" of {len(alphas)} tried" if len(alphas) > 1 else ""
    return _answer(
        "ridge",
        rows,
        arrays,
        axes,
        f"leave-one-out R2 {r2:.4g} with alpha {found.alpha:.5g}{tried}, {found.degrees:.4g} degrees of freedom",
        [
            f"the rows predict {name} no better than its mean does" if r2 <= 0 else "",
            _at_the_end(alphas, found.chosen, decomposed.smallest),
            _beforehand(rows),
            _inexact(rows, error, "the fit"),
        ],
        target=name,
        alpha=found.alpha,
        r2=r2,
        mean_squared_error=float(found.mean_squared_errors[found.chosen]),
        degrees_of_freedom=found.degrees,
        error=error,
    )


def _at_the_end(alphas: F64, chosen: int, smallest: float) -> str:
    """What has to be said where the best of several alphas is the first or the last; one that penalizes no direction by a hundredth is as 0."""
    if len(alphas) < 2 or 0 < chosen < len(alphas) - 1 or alphas[chosen] < smallest / 100:
        return ""
    if chosen:
        return f"the largest alpha, {alphas[-1]:.3g}, is the best of those tried: more may be better"
    return f"the smallest alpha, {alphas[0]:.3g}, is the best of those tried: less may be better"


def of_all_rows(rows: Samples) -> str:
    """The operators that were made of all rows, in words."""
    pairs = zip(rows.chain.operators, rows.told, strict=True)
    return "; ".join(words for operator, words in pairs if not isinstance(operator, Select | Center))


def _beforehand(rows: Samples) -> str:
    """What has to be said of rows that others were used for, also the one that is left out."""
    if not (words := of_all_rows(rows)):
        return ""
    return f"operators ({words}) were made of all rows before one was left out, so that its prediction knows a little of it"


def reml(rows: Samples, target: ArrayLike, covariates: F64 | None = None, name: str = "target") -> Answer:
    """The share of a target's variance that lies in the rows, h2, by restricted maximum likelihood.

    y = X b + g + e with var g = s2 h2 G and var e = s2 (1 - h2) I; G = P / (tr P / n) has mean diagonal 1, where P are the products of the rows
    about their mean. The standard error is that of large samples, from the curvature of the likelihood.

    Parameters
    ----------
    target : y, as of `ridge`
    covariates : fixed effects beside the constant, (samples,) or (samples, q), of the samples of the run or of the rows
    """
    rows = unweighted(rows, "REML is")
    values = target_of(rows, target, name)
    centred = rows.centred
    beside = centred if covariates is None else centred.regress_out(covariates)
    fixed = Center(rows.n) if covariates is None else beside.chain.operators[-1]
    assert isinstance(fixed, Remainder)
    scale = centred.transformed.products.total / rows.n
    moved = beside.transformed
    given = likelihood(Decomposed.of(moved), values, scale, np.asarray(fixed.basis, np.float64))
    found = heritability(given)
    alpha = (1 - found.h2) / found.h2 * scale if found.h2 > 0 else None
    ends = {
        0: "the likelihood is largest at h2 = 0, the end of what is possible: no share of the rows is found, and there is no standard error there",
        1: "the likelihood is largest at h2 = 1, the end of what is possible: there is no standard error there; are there duplicates, or "
        "more covariates than the samples bear?",
    }
    error = moved.error / scale
    spread = "" if found.at_boundary else f" +- {found.standard_error:.2g}"
    curve = np.linspace(0.0, given.highest, POINTS)
    return _answer(
        "heritability",
        rows,
        {
            "heritability": Array(np.array(found.h2), ()),
            "standard_error": Array(np.array(found.standard_error), ()),
            "variance_of_rows": Array(np.array(found.h2 * found.variance), ()),
            "residual_variance": Array(np.array((1 - found.h2) * found.variance), ()),
            "target": Array(values, (row_axis(rows.axis).name,)),
            "log_likelihood": Array(np.array([given.at(float(one)) for one in curve]), (H2,)),
        },
        [row_axis(rows.axis), Axis(H2, curve)],
        f"h2 {found.h2:.4g}{spread}, p {found.p_value:.3g} (REML, likelihood ratio {found.ratio:.4g})",
        [ends[round(found.h2)] if found.at_boundary else "", _inexact(rows, error, "the likelihood")],
        target=name,
        h2=found.h2,
        standard_error=_plain(found.standard_error),
        at_boundary=found.at_boundary,
        p_value=found.p_value,
        likelihood_ratio=found.ratio,
        log_likelihood=found.log_likelihood,
        log_likelihood_at_0=found.log_likelihood_0,
        variance_of_rows=found.h2 * found.variance,
        residual_variance=(1 - found.h2) * found.variance,
        fixed_effects=int(fixed.basis.shape[1]),
        scale=scale,
        alpha_of_ridge=alpha,
        error=error,
    )


def target_of(rows: Samples, given: ArrayLike, name: str = "target") -> F64:
    """A number for each row, (rows,).

    Parameters
    ----------
    given : of the samples of the run, or of the rows
    """
    values = np.asarray(given)
    if values.shape == (rows.chain.n_in,) and rows.origin is not None:
        values = values[rows.origin]
    if values.shape != (rows.n,):
        raise ConfigError(
            f"{name} has shape {values.shape}, but there are {rows.chain.n_in:,} samples, and {rows.n:,} rows of them here",
            "Give a number for each sample of the result.",
            key="target",
        )
    found = np.full(rows.n, np.nan)
    for number, one in enumerate(values.tolist()):
        try:
            found[number] = one
        except (TypeError, ValueError):
            break
    wrong = np.flatnonzero(~np.isfinite(found))
    if wrong.size:
        at, names = int(wrong[0]), rows.axis.names
        raise DataError(
            f"{name} of sample {names[at] if names else at} is {values[at]}, which is no finite number"
            + (f", and so of {len(wrong) - 1:,} others" if len(wrong) > 1 and values.dtype.kind in "fc" else ""),
            "Select the samples that have one, or fill it in.",
            key="target",
        )
    return found


def unweighted(rows: Samples, what: str) -> Samples:
    """Rows as they are."""
    if rows.weights is not None:
        raise ConfigError(
            f"{what} of rows that count alike, but these have weights", "Leave the weights out.", key="weights"
        )
    return rows


def labels_of(rows: Samples, by: By, key: str = "by") -> Any:
    """A label for each row; errors have this key."""
    try:
        return rows.labels(by)[0]
    except ConfigError as error:
        raise ConfigError(error.message, error.remedy, key) from error.__cause__


def _grouped(rows: Samples, by: By) -> Grouped:
    """Rows by their labels, seasons in the order of the year."""
    found = Grouped.of(labels_of(rows, by))
    return Grouped(*in_order(found.names[found.codes]))


def _amplification(rows: Samples) -> float:
    return rows.centred.transformed.amplification


def _inexact(rows: Samples, error: float, what: str) -> str:
    """What has to be said where the errors of products leave fewer than two digits."""
    if error <= RELIABLE:
        return ""
    why = f"the products are of {rows.known.solver} in {rows.known.precision} precision"
    return f"{what} may have less than two digits (relative error up to {error:.1g}): " + why_so_few(
        rows.known, _amplification(rows), why
    )


def _plain(value: float) -> float | None:
    """A number for JSON, which has no NaN and no infinity."""
    return float(value) if np.isfinite(value) else None


def _answer(
    kind: str,
    rows: Samples,
    arrays: Mapping[str, Array],
    axes: Sequence[Axis],
    verdict: str,
    caveats: Sequence[str],
    **own: Any,
) -> Answer:
    if "error" in own:
        own["error"] = max(own["error"], SMALLEST)
    certificate = {
        **of_rows(kind, rows, _amplification(rows)),
        **own,
        "caveat": "; ".join(filter(None, caveats)),
        "maps": None,
        "verdict": verdict,
    }
    coordinates = {axis.name: axis for axis in axes if axis.values is not None}
    return Answer(kind, arrays, coordinates, None, certificate)
