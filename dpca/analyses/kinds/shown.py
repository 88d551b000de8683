"""Parts of sections of reports: scores over their coordinate, and words."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpca.analyses.kind import AnalysisView
from dpca.report import derived_figures as figures
from dpca.report import findings
from dpca.report.figures import POSITION, of_order, scale_of, score
from dpca.report.findings import MOST_POINTS
from dpca.report.marks import Table
from dpca.store.derived import StoredAnalysis
from dpca.store.names import names_along


def small(value: float | None) -> str:
    """A number, or - for none."""
    return "-" if value is None else f"{value:.4g}"


def names_in(analysis: StoredAnalysis, coordinate: str) -> list[str]:
    """Names of groups along a coordinate."""
    return [str(name) for name in analysis[coordinate][...]]


def first_of(count: int, total: int) -> str:
    """How much of a table is shown, in words; empty for all."""
    return "" if count == total else f" The table has the first {count} of {total}."


def scores_of(view: AnalysisView, numbers: list[int], is_complex: bool, phases: bool) -> dict[str, Any]:
    """Scores over their coordinate."""
    scores = view.analysis["scores"]
    count, every = scores.shape[0], -(-scores.shape[0] // MOST_POINTS)
    part = "" if every == 1 else f" One of {every:,} rows is drawn."
    if not view.drawn or not numbers:
        return {"scores": None, "scores_caption": ""}
    axis = findings.axis_of(view.analysis, scores.dims[0], "row", MOST_POINTS)
    values = np.asarray(scores[:, : max(numbers) + 1])[::every]
    if not is_complex:
        return {
            **real_scores(view, axis, values.astype(np.float64), every),
            "scores_caption": f"Scores of {count:,} rows.{part}",
        }
    shown = numbers[:3] if phases else numbers[:2]
    drawn = figures.of_complex_scores(
        values[:, shown], shown, axis, every, phases, view.id("scores"), "score" if phases else "mode"
    )
    below = ", and phase below" if phases else ""
    which = "Scores" if phases else "Modes"
    return {
        "scores": drawn,
        "scores_caption": f"{which} in {count:,} rows: real part, within the amplitude (dashed){below}.{part}",
    }


def real_scores(
    view: AnalysisView, axis: findings.DrawnAxis, values: np.ndarray[Any, Any], every: int
) -> dict[str, Any]:
    """The figure of scores, and the table of rows that it shows."""
    dim, count = view.analysis["scores"].dims[0], view.analysis["scores"].shape[0]
    columns = {score(number): column for number, column in enumerate(values.T)}
    columns[POSITION] = axis.positions(len(values), every)
    names = tuple(names_along(view.analysis, dim or "row", range(0, count, every)))
    rows = Table(f"row of {view.analysis.name}", names, columns, every=every)
    scale = scale_of(axis, len(values), every, view.id("rows"))
    return {"scores": of_order(values.shape[1], scale, view.id("scores"), rows.word), "rows": rows}
