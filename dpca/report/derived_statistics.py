"""What the report of derived analyses shows of statistics of rows: distances, groups compared, a target predicted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpca.report.figures import largest
from dpca.report.marks import COLORS, Boxes, Figure, Image, Line, Panel, Points, Rule, Scale
from dpca.store.derived import Analysis

F64 = NDArray[np.float64]
Contents = dict[str, Any]

NAMES = {
    "distances": "distances",
    "pcoa": "principal coordinates",
    "permanova": "permutational analysis of variance",
    "manova": "multivariate analysis of variance of scores",
    "ridge": "ridge regression",
    "heritability": "heritability by REML",
}
TESTS = {
    "wilks_lambda": "Wilks' lambda",
    "pillai_trace": "Pillai's trace",
    "hotelling_lawley_trace": "Hotelling-Lawley trace",
    "roy_greatest_root": "Roy's greatest root",
}
PIXELS = 400
"""Most rows and columns of the image of distances."""
MANY_POINTS = 2000
"""Larger numbers of points are smaller."""
BLOCK_BYTES = 2**24
"""Of distances that are read at a time."""


def contents(analysis: Analysis, drawn: bool, identify: Callable[..., str]) -> Contents:
    """The table and the figures of an analysis.

    Parameters
    ----------
    drawn : whether it has figures
    identify : an id of a figure, from what it is called
    """
    tell = {
        "distances": _distances,
        "permanova": _permanova,
        "manova": _manova,
        "ridge": _ridge,
        "heritability": _heritability,
    }
    table, draw, caption = tell[analysis.kind](analysis)
    figures = [one(identify(str(number))) for number, one in enumerate(draw)] if drawn else []
    return {"figures": figures, "figures_caption": caption, "table": table, "scores": None, "scores_caption": ""}


Told = tuple[Contents, list[Callable[[str], Figure]], str]
"""A table, what draws figures, and their caption."""


def _distances(analysis: Analysis) -> Told:
    array = analysis["distances"]
    n = array.shape[0]
    step = -(-n // PIXELS)
    table = {
        "caption": "Distances",
        "head": ["rows", "known above"],
        "rows": [[f"{n:,}", f"{analysis.certificate['known_above']:.3g}"]],
    }
    part = "" if step == 1 else f" One of {step:,} rows is drawn."
    values = thinned(array, step)
    caption = f"Distances of {n:,} rows from each other, in their order.{part}"
    return table, [lambda name: of_distances(values, step, name)], caption


def thinned(array: Any, step: int) -> F64:
    """Every so many rows and columns of a stored matrix, which is read in blocks."""
    n = array.shape[0]
    block = step * max(1, BLOCK_BYTES // (8 * n * step))
    parts = [np.asarray(array[start : start + block])[::step, ::step] for start in range(0, n, block)]
    return np.concatenate(parts).astype(np.float64)


def _permanova(analysis: Analysis) -> Told:
    document = analysis.certificate
    squares, degrees = (
        np.asarray(analysis[name][...], np.float64) for name in ("sum_of_squares", "degrees_of_freedom")
    )
    f, p = document["pseudo_f"], document["p_value"]
    rows = [
        ["between groups", f"{degrees[0]:.0f}", f"{squares[0]:.6g}", f"{document['r2']:.4f}", _small(f), _small(p)],
        ["within groups", f"{degrees[1]:.0f}", f"{squares[1]:.6g}", f"{1 - document['r2']:.4f}", "", ""],
        ["total", f"{degrees[2]:.0f}", f"{squares[2]:.6g}", "1", "", ""],
    ]
    head = ["source", "degrees of freedom", "sum of squares", "share (R2)", "pseudo-F", "p"]
    table = {"caption": f"Sums of squares, {document['groups']:,} groups", "head": head, "rows": rows}
    if not document["permutations"] or f is None:
        return table, [], ""
    permuted = np.asarray(analysis["permuted_f"][...], np.float64)
    caption = f"F of {len(permuted):,} permutations of the labels (seed {document['seed']}), and that of the labels as they are (line)."
    return table, [lambda name: of_permutations(permuted, f, name)], caption


def _manova(analysis: Analysis) -> Told:
    tests = analysis.certificate["tests"]
    rows = [
        [
            TESTS[name],
            f"{one['value']:.6g}",
            _small(one["f_value"]),
            " and ".join(f"{degree:.6g}" for degree in one["degrees_of_freedom"]),
            _small(one["p_value"]),
        ]
        for name, one in tests.items()
    ]
    bound = ": of Roy's root the F is an upper bound, and its p a lower one" * analysis.certificate["roy_is_a_bound"]
    head = ["statistic", "value", "F", "degrees of freedom", "p"]
    return {"caption": f"Statistics, with approximations by F{bound}", "head": head, "rows": rows}, [], ""


def _ridge(analysis: Analysis) -> Told:
    document = analysis.certificate
    alphas, errors, r2 = (np.asarray(analysis[name][...], np.float64) for name in ("alpha", "mean_squared_error", "r2"))
    chosen = int(np.argmin(errors))
    near = sorted({*range(max(0, chosen - 3), min(len(alphas), chosen + 4)), 0, len(alphas) - 1})
    rows = [
        [f"{alphas[at]:.5g}" + " (chosen)" * (at == chosen and len(alphas) > 1), f"{errors[at]:.6g}", f"{r2[at]:.4f}"]
        for at in near
    ]
    shown = (
        ""
        if len(near) == len(alphas)
        else f" ({len(near)} of {len(alphas)} alphas: the best, those near it, and the ends)"
    )
    table = {
        "caption": f"Predictions of {document['target']}, each by a regression on all other rows{shown}",
        "head": ["alpha", "mean squared error", "R2"],
        "rows": rows,
    }
    target, predicted = (np.asarray(analysis[name][...], np.float64) for name in ("target", "leave_one_out"))
    drawn: list[Callable[[str], Figure]] = [lambda name: of_predictions(target, predicted, document["target"], name)]
    caption = (
        "Each row's value, and its prediction by the regression on all others; the line is where they are the same."
    )
    if len(alphas) > 1:
        drawn.append(lambda name: of_alphas(alphas, r2, name))
        caption += " Beside it: R2 of these predictions for each alpha."
    return table, drawn, caption


def _heritability(analysis: Analysis) -> Told:
    document = analysis.certificate
    error = document["standard_error"]
    rows = [
        ["h2", f"{document['h2']:.5g}" + ("" if error is None else f" +- {error:.2g}")],
        ["variance of the rows' part", f"{document['variance_of_rows']:.6g}"],
        ["residual variance", f"{document['residual_variance']:.6g}"],
        ["fixed effects", str(document["fixed_effects"])],
        ["log-likelihood, and at h2 = 0", f"{document['log_likelihood']:.7g}, {document['log_likelihood_at_0']:.7g}"],
        ["p of h2 = 0", _small(document["p_value"])],
    ]
    table = {"caption": f"Of {document['target']}", "head": [], "rows": rows}
    at, values = (np.asarray(analysis[name][...], np.float64) for name in ("h2", "log_likelihood"))
    caption = "Restricted log-likelihood at each h2, less its largest; above the dashed line is its interval of 95 %, that of large samples."
    return table, [lambda name: of_likelihood(at, values, document["h2"], name)], caption


def of_distances(values: F64, step: int, name: str) -> Figure:
    """Distances as an image."""
    edge = len(values) * step - 0.5
    image = Image(values, -0.5, edge, -0.5, edge, (0.0, largest([values])), "sequential", "distance")
    panel = Panel((image,), Scale("row", (-0.5, edge), whole=True), Scale("row", (edge, -0.5), whole=True), ratio=1.0)
    return Figure(name, "distances", ((panel,),), 360, 460, about="Distances of rows from each other")


def of_plane(scores: F64, name: str) -> Figure:
    """The first coordinate against the second."""
    second = scores[:, 1] if scores.shape[1] > 1 else np.zeros(len(scores))
    panel = Panel(
        (_points(scores[:, 0], second),),
        Scale("coordinate 0"),
        Scale("coordinate 1" if scores.shape[1] > 1 else ""),
        ratio=float(np.clip(np.ptp(second) / (np.ptp(scores[:, 0]) or 1.0), 0.4, 1.5)),
    )
    return Figure(name, "plane", ((panel,),), 320, 420, about="Principal coordinates")


def of_permutations(permuted: F64, found: float, name: str) -> Figure:
    """F of permutations, as a histogram, and that of the labels as they are."""
    finite = permuted[np.isfinite(permuted)]
    counts, edges = np.histogram(finite, bins=min(40, max(5, len(finite) // 20)))
    bars = Boxes(edges[:-1], edges[1:], np.zeros(len(counts)), counts.astype(np.float64))
    panel = Panel((bars, Rule(found, "x", COLORS[1], 1.5)), Scale("pseudo-F"), Scale("permutations"))
    return Figure(name, "permutations", ((panel,),), 250, 420, about="F of permutations")


def of_predictions(target: F64, predicted: F64, called: str, name: str) -> Figure:
    """Predictions against what was predicted."""
    ends = np.array([float(target.min()), float(target.max())])
    panel = Panel(
        (Line(ends, ends, width=0.7, opacity=0.7), _points(target, predicted)),
        Scale(called),
        Scale("prediction by the other rows"),
    )
    return Figure(name, "predictions", ((panel,),), 320, 420, about="Predictions against values")


def of_alphas(alphas: F64, r2: F64, name: str) -> Figure:
    """R2 of predictions for each alpha."""
    marks = (Line(alphas, r2, COLORS[0], 1.2), Points(alphas, r2, size=4), Rule(0.0, "y", width=0.5, opacity=0.5))
    panel = Panel(marks, Scale("alpha", log=True), Scale("R2 of predictions"))
    return Figure(name, "alphas", ((panel,),), 320, 420, about="R2 for each alpha")


def of_likelihood(at: F64, values: F64, found: float, name: str) -> Figure:
    """The logarithm of the restricted likelihood, near its largest."""
    below = values - values.max()
    panel = Panel(
        (
            Line(at, below, COLORS[0], 1.2),
            Rule(-1.92, "y", width=0.7, dash="dashed", opacity=0.7),
            Rule(found, "x", COLORS[1]),
        ),
        Scale("h2", (0.0, 1.0)),
        Scale("log-likelihood", (max(-12.0, float(below.min())) - 0.5, 0.5)),
    )
    return Figure(name, "likelihood", ((panel,),), 250, 420, about="Likelihood of heritabilities")


def _points(x: F64, y: F64) -> Points:
    return Points(x, y, size=2.5 if len(x) > MANY_POINTS else 5)


def _small(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"
