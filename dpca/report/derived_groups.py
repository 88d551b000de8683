"""What the report of derived analyses shows of groups of features against each other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpca.report.marks import Figure, Image, Panel, Points, Scale
from dpca.store.derived import Analysis

F64 = NDArray[np.float64]

NAMES = {
    "mca": "maximum covariance analysis",
    "cca": "canonical correlations of leading components",
    "similarity": "similarity of groups of features",
}
SHOWN = 12
"""Rows of a table, and groups whose names fit an image."""


def contents(analysis: Analysis, drawn: bool, identify: Callable[..., str]) -> dict[str, Any]:
    """The table and the figures of an analysis; parameters as of `dpca.report.derived_statistics.contents`."""
    tell = _similarity if analysis.kind == "similarity" else _pair
    table, draw, caption = tell(analysis)
    figures = [draw(identify("groups"))] if drawn else []
    return {"figures": figures, "figures_caption": caption, "table": table, "scores": None, "scores_caption": ""}


def captions(analysis: Analysis) -> list[str]:
    """The beginning of the caption of each map."""
    return [f"Pair {number}" for number in range(1, analysis["scores"].shape[-1] + 1)]


def names_in(analysis: Analysis, coordinate: str) -> list[str]:
    """Names of groups along a coordinate."""
    return [str(name) for name in analysis[coordinate][...]]


def _pair(analysis: Analysis) -> tuple[dict[str, Any], Callable[[str], Figure], str]:
    document, first = analysis.certificate, names_in(analysis, "side")
    is_mca = analysis.kind == "mca"
    values = np.asarray(analysis["covariance" if is_mca else "correlations"][...], np.float64)
    head = ["pair", "covariance", "share of squared covariance"] if is_mca else ["pair", "correlation"]
    rows = [[str(number), f"{value:.6g}"] for number, value in enumerate(values[:SHOWN], 1)]
    if is_mca:
        fractions = np.asarray(analysis["squared_covariance_fraction"][...], np.float64)
        rows = [[*row, f"{100 * fraction:.2f} %"] for row, fraction in zip(rows, fractions, strict=False)]
    tested = ""
    if "p_value" in document:
        what = "sum of squared covariances" if is_mca else "sum of squared correlations"
        tested = f"; p of the {what} {document['p_value']:.4g}, by {document['permutations']:,} permutations"
    scores = np.asarray(analysis["scores"][:, :, 0], np.float64)
    caption = f"Scores of the first pair: of {first[0]} and of {first[1]}, each divided by its standard deviation."
    table = {"caption": f"{first[0]} and {first[1]}{tested}", "head": head, "rows": rows}
    return table, lambda name: of_pair(scores, first, name), caption


def _similarity(analysis: Analysis) -> tuple[dict[str, Any], Callable[[str], Figure], str]:
    names, found = names_in(analysis, "group"), np.asarray(analysis["similarity"][...], np.float64)
    p_values = np.asarray(analysis["p_value"][...], np.float64) if "p_value" in analysis else None
    pairs = [(i, j) for i in range(len(names)) for j in range(i + 1, len(names))]
    pairs.sort(key=lambda pair: -found[pair])
    rows = [
        [names[i], names[j], f"{found[i, j]:.4f}", *([] if p_values is None else [f"{p_values[i, j]:.3g}"])]
        for i, j in pairs[:SHOWN]
    ]
    head = ["group", "and", "RV coefficient", *([] if p_values is None else ["p"])]
    table = {"caption": "Pairs of groups, the most alike first", "head": head, "rows": rows}
    return table, lambda name: of_similarity(found, names, name), "RV coefficients (linear CKA) of groups of features."


def of_pair(scores: F64, names: list[str], name: str) -> Figure:
    """The first scores of two groups against each other, (2, rows)."""
    deviations = scores.std(axis=1)
    x, y = scores / np.where(deviations > 0, deviations, 1.0)[:, None]
    panel = Panel((Points(x, y, size=4, opacity=0.7),), Scale(names[0]), Scale(names[1]))
    return Figure(name, "pairs", ((panel,),), 320, 420, about="Scores of a pair of groups")


def of_similarity(found: F64, names: list[str], name: str) -> Figure:
    """Similarities of groups, (groups, groups), as an image."""
    edge = len(names) - 0.5
    few = len(names) <= SHOWN
    scale = Scale("" if few else "group", whole=True, marks=dict(enumerate(names)) if few else {})
    image = Image(found, -0.5, edge, -0.5, edge, (0.0, 1.0), "sequential", "RV coefficient")
    panel = Panel((image,), replace(scale, limits=(-0.5, edge)), replace(scale, limits=(edge, -0.5)), ratio=1.0)
    return Figure(name, "similarity of groups", ((panel,),), 320, 460, about="Similarity of groups of features")
