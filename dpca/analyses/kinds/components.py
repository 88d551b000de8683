"""Analyses with a spectrum of components: the form of their answers, and their section of a report."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpca.analyses.answers import COMPONENT, Answer, Array, Maps, row_axis
from dpca.analyses.axis import Axis
from dpca.analyses.certificates import answer_of_maps
from dpca.analyses.kind import AnalysisView, Contents, Kind
from dpca.analyses.kinds.shown import first_of, names_in, scores_of
from dpca.analyses.samples import Samples
from dpca.derived.pca import Components
from dpca.report import derived_figures as figures
from dpca.report import derived_findings as derived
from dpca.report import derived_resampling as resampling
from dpca.report import findings, rotation
from dpca.report.figures import of_group_shares
from dpca.report.findings import SHOWN_SCORES
from dpca.report.marks import Figure, Points
from dpca.store.derived import StoredAnalysis
from dpca.types import F64

MANY_POINTS = 2000
"""Larger numbers of points are smaller."""


class OfComponents(Kind):
    """An analysis with a spectrum of components, real or complex."""

    has_maps = True

    @classmethod
    def section(cls, view: AnalysisView) -> tuple[Contents, list[str]]:
        found = derived.spectrum(view.analysis)
        is_complex = found.turns is not None
        shares, sums = 100 * found.ratio, 100 * np.cumsum(found.ratio)
        head = ["component", "reliable", "digits", "singular value", "share", "cumulative"]
        head += ["one turn, in rows"] * is_complex + ["residual of the map"] * bool(found.residuals)
        draws = resampling.draws_of(view.analysis)
        rows = [
            [
                str(number + 1),
                "yes" if found.reliable[number] else "no",
                f"{found.digits[number]:.1f}",
                f"{found.singular_values[number]:.6g}",
                f"{shares[number]:.2f} %",
                f"{sums[number]:.2f} %",
                *([f"{found.turns[number]:.4g}"] if found.turns is not None else []),
                *([residual_of(found.residuals[number])] if found.residuals else []),
            ]
            for number in derived.rows_shown(range(len(shares)))
        ]
        turn = " A turn is that of the score in the complex plane, on average: the period of what propagates."
        intervals, drawn, grouped = None if draws is None else draws.shares, list[Figure](), ""
        if view.drawn:
            drawn.append(figures.of_spectrum(found, view.id("spectrum"), intervals))
            drawn += [] if draws is None else [resampling.of_angles(draws, view.id("angles"))]
        if "variance_share" in view.analysis:
            names = names_in(view.analysis, "group")
            parts = np.asarray(view.analysis["variance_share"][:, : findings.SHOWN_COMPONENTS], np.float64)
            drawn += [of_group_shares(parts, names, view.id("shares"))] if view.drawn else []
            grouped = " Beside it the share of each group of features in each component."
        contents = {
            "figures": drawn,
            "figures_caption": "The share of each component in the variance of the rows."
            + turn * is_complex
            + grouped
            + first_of(len(rows), len(shares)),
            "table": {"caption": "Components", "head": head, "rows": rows},
            "beside": ([] if draws is None else [draws.table(derived.rows_shown(range(len(shares))))])
            + rotated_of(view.analysis),
            **scores_of(view, list(range(min(SHOWN_SCORES, len(shares)))), is_complex, phases=is_complex),
        }
        captions = [f"Component {number}, {share:.2f} % of the variance" for number, share in enumerate(shares, 1)]
        if "rotation_matrix" in view.analysis:
            of_rotated = np.asarray(view.analysis["rotated_explained_variance_ratio"][...], np.float64)
            captions += [
                f"Rotated component {n}, {100 * share:.2f} % of the variance" for n, share in enumerate(of_rotated, 1)
            ]
        return contents, captions

    @classmethod
    def n_maps(cls, stored: StoredAnalysis) -> int:
        return int(stored["explained_variance_ratio"].shape[0])


def of_components(kind: str, rows: Samples, found: Components, divisor: float) -> Answer:
    """Principal components, real or complex."""
    axis = row_axis(rows.axis)
    maps = Maps(found.coefficients, (), "each", rows.chain.apply, found.scores)
    return answer_of_maps(
        kind, rows, found.error, found.amplification, found.rank, spectrum_of(found, axis, divisor), axis, maps
    )


def spectrum_of(found: Components, axis: Axis, divisor: float) -> dict[str, Array]:
    """Scores, and what is of each component."""
    return {
        "scores": Array(found.scores, (axis.name, COMPONENT)),
        "eigenvalues": Array(found.eigenvalues, (COMPONENT,)),
        "singular_values": Array(np.sqrt(found.eigenvalues), (COMPONENT,)),
        "explained_variance": Array(found.explained_variance(divisor=divisor), (COMPONENT,)),
        "explained_variance_ratio": Array(found.explained_variance_ratio, (COMPONENT,)),
    }


def rotated_of(analysis: StoredAnalysis) -> list[dict[str, Any]]:
    """The table of rotated components, where there are some."""
    if "rotation_matrix" not in analysis:
        return []
    matrix, share = (
        np.asarray(analysis[name][...], np.float64) for name in ("rotation_matrix", "rotated_explained_variance_ratio")
    )
    words = f"Of {len(matrix)} components, the first {matrix.shape[1]} rotated by {analysis.certificate['rotation']['kind']}; no data were read for it."
    return [{"caption": "Rotated components", "words": words, **rotation.made_of(matrix, share)}]


def points(x: F64, y: F64) -> Points:
    """Points of a size that many have room with."""
    return Points(x, y, size=2.5 if len(x) > MANY_POINTS else 5)


def residual_of(value: float | None) -> str:
    """A residual, or - for none."""
    return "-" if value is None else f"{value:.1e}"
