"""Permutational analysis of variance (Anderson, Austral Ecology 26, 2001): whether groups differ in their centres; spreads that differ count, too."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from dpca.analyses.answers import Answer, Array
from dpca.analyses.axis import Axis
from dpca.analyses.kind import AnalysisView, Contents, Context, Kind, Labels
from dpca.analyses.kinds.shown import small
from dpca.analyses.samples import Samples
from dpca.analyses.statistics import answered, grouped, inexact, labels_of, plain, unweighted
from dpca.derived import statistics
from dpca.derived.gram import matrix_of
from dpca.derived.statistics import arrangements, coded
from dpca.report.marks import COLORS, Boxes, Figure, Panel, Rule, Scale
from dpca.types import F64

BY = Field(
    description="A part of the samples' dates, or a label for each sample of the result: {uri, array, column}. Each group needs two rows."
)
SOURCES = ("between", "within", "total")
"""Sources of sums of squares."""


class Permanova(Kind):
    """A test whether groups differ, by squared distances between and within groups and permutations of labels."""

    title = "permutational analysis of variance"
    matrices = 4

    kind: Literal["permanova"]
    by: Annotated[Labels, BY]
    permutations: Annotated[int, Field(ge=0, description="Of labels; 0 for none, and no p value.")] = 999
    seed: Annotated[int, Field(ge=0, description="Of the permutations: the same seed draws the same.")] = 0
    strata: Annotated[
        Labels | None, Field(description="As by: blocks within which labels are permuted; null for one block.")
    ] = None

    def run(self, rows: Samples, context: Context) -> Answer:
        rows = unweighted(rows, "PERMANOVA is")
        groups = grouped(rows, context.labels(self.by))
        blocks = None
        if self.strata is not None:
            blocks = coded(labels_of(rows, context.labels(self.strata, "strata"), "strata"))[1]
        permutations, seed = self.permutations, self.seed
        moved = rows.centred.transformed
        found = statistics.permanova(matrix_of(moved.products), groups, permutations, seed, blocks)
        ways = arrangements(groups, blocks)
        few = (
            f"labels can be arranged in {ways:,.0f} ways that differ, fewer than the {permutations:,} permutations: no p value below about "
            f"{1 / ways:.2g} is possible"
        )
        sizes, noise = groups.sizes, moved.error
        error = noise / max(found.between, noise) + 2 * noise / max(found.within, noise)
        p_value = plain(found.p_value)
        said = f", p {p_value:.3g} ({permutations:,} permutations, seed {seed})" if p_value is not None else ""
        n_groups = len(groups.names)
        return answered(
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
            [few if permutations and ways <= permutations else "", inexact(rows, error, "pseudo-F")],
            pseudo_f=plain(found.pseudo_f),
            p_value=p_value,
            r2=found.r2,
            groups=n_groups,
            permutations=permutations,
            seed=seed,
            distinct_permutations=plain(ways),
            error=error,
        )

    @classmethod
    def section(cls, view: AnalysisView) -> tuple[Contents, list[str]]:
        analysis, document = view.analysis, view.analysis.certificate
        squares, degrees = (
            np.asarray(analysis[name][...], np.float64) for name in ("sum_of_squares", "degrees_of_freedom")
        )
        f, p = document["pseudo_f"], document["p_value"]
        rows = [
            ["between groups", f"{degrees[0]:.0f}", f"{squares[0]:.6g}", f"{document['r2']:.4f}", small(f), small(p)],
            ["within groups", f"{degrees[1]:.0f}", f"{squares[1]:.6g}", f"{1 - document['r2']:.4f}", "", ""],
            ["total", f"{degrees[2]:.0f}", f"{squares[2]:.6g}", "1", "", ""],
        ]
        head = ["source", "degrees of freedom", "sum of squares", "share (R2)", "pseudo-F", "p"]
        table = {"caption": f"Sums of squares, {document['groups']:,} groups", "head": head, "rows": rows}
        if not document["permutations"] or f is None:
            return view.contents(table, {}, ""), []
        permuted = np.asarray(analysis["permuted_f"][...], np.float64)
        caption = f"F of {len(permuted):,} permutations of the labels (seed {document['seed']}), and that of the labels as they are (line)."
        return view.contents(table, {"0": lambda name: of_permutations(permuted, f, name)}, caption), []


def of_permutations(permuted: F64, found: float, name: str) -> Figure:
    """F of permutations, as a histogram, and that of the labels as they are."""
    finite = permuted[np.isfinite(permuted)]
    counts, edges = np.histogram(finite, bins=min(40, max(5, len(finite) // 20)))
    bars = Boxes(edges[:-1], edges[1:], np.zeros(len(counts)), counts.astype(np.float64))
    panel = Panel((bars, Rule(found, "x", COLORS[1], 1.5)), Scale("pseudo-F"), Scale("permutations"))
    return Figure(name, "permutations", ((panel,),), 250, 420, about="F of permutations")
