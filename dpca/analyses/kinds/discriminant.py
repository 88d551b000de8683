"""Linear discriminant scores of labelled rows: the directions in which groups differ most for their spread, in the leading components."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from dpca.analyses.answers import COMPONENT, Answer, Array, Maps, row_axis
from dpca.analyses.axis import Axis
from dpca.analyses.certificates import answer_of_maps
from dpca.analyses.features import GROUP
from dpca.analyses.kind import AnalysisView, Contents, Context, Kind, Labels
from dpca.analyses.kinds.components import points
from dpca.analyses.kinds.permanova import BY
from dpca.analyses.samples import Samples
from dpca.analyses.statistics import grouped, unweighted
from dpca.derived.discriminant import discriminants
from dpca.derived.pca import UpTo, pca
from dpca.errors import ConfigError
from dpca.report.marks import COLORS, SHAPES, Figure, Panel, Points, Scale
from dpca.store.derived import StoredAnalysis
from dpca.types import F64


class Discriminant(Kind):
    """Linear discriminants: the directions in which groups differ most for their spread, in the leading components."""

    maps_are_weights = True
    title = "linear discriminants"
    matrices = 5
    has_maps = centred = True

    kind: Literal["discriminant"]
    by: Annotated[Labels, BY]
    n_components: Annotated[
        int,
        Field(
            ge=1, description="Principal components that groups are told apart in; at most the rows less the groups."
        ),
    ]

    def run(self, rows: Samples, context: Context) -> Answer:
        rows = unweighted(rows, "discriminants are").centred
        groups, k = grouped(rows, context.labels(self.by)), self.n_components
        found = pca(rows.transformed, UpTo(k + 1))  # with the next one, to know how well the space is told from it
        if k > found.rank:
            raise ConfigError(
                f"groups are told apart in {k} components, but only {found.rank} can be told from rounding",
                f"Give 1 to {found.rank}.",
                key="n_components",
            )
        following = float(found.eigenvalues[k]) if len(found.eigenvalues) > k else 0.0
        lengths = np.sqrt(found.eigenvalues[:k])
        vectors = found.scores[:, :k] / lengths
        told = discriminants(vectors, groups)
        gap = float(found.eigenvalues[k - 1]) - following
        errors = told.errors(min(1.0, rows.transformed.error / gap) if gap > 0 else 1.0)
        scores, axis = vectors @ told.axes, row_axis(rows.axis)
        means = np.stack([scores[groups.codes == number].mean(axis=0) for number in range(len(groups.names))])
        arrays = {
            "scores": Array(scores, (axis.name, COMPONENT)),
            "canonical_correlations": Array(np.sqrt(told.correlations2), (COMPONENT,)),
            "between_group_variance_ratio": Array(
                told.share,
                (COMPONENT,),
                {"long_name": "share of the variance between groups, in units of that within them"},
            ),
            "group_means": Array(means, (GROUP, COMPONENT), {"long_name": "mean scores of each group"}),
            "group_size": Array(groups.sizes.astype(np.int64), (GROUP,)),
        }
        turned = told.axes / lengths[:, None]  # from scores of components to those of discriminants
        coefficients = found.coefficients[:, :k] @ turned
        maps = Maps(coefficients, (), "each", rows.chain.apply, scores, overlaps=(turned.T @ turned)[None])
        answer = answer_of_maps(self.called(), rows, errors, found.amplification, k, arrays, axis, maps)
        first = float(np.sqrt(told.correlations2[0]))
        answer.certificate["verdict"] = (
            f"{len(told.share)} discriminants of {len(groups.names):,} groups in {k} components, the first with canonical correlation "
            f"{first:.4g}; {answer.certificate['verdict']}"
        )
        answer.certificate["groups"] = len(groups.names)
        return Answer(
            answer.kind,
            arrays,
            {**answer.coordinates, GROUP: Axis(GROUP, groups.names)},
            answer.maps,
            answer.certificate,
        )

    def columns(self, n: int) -> int:
        return self.n_components

    @classmethod
    def section(cls, view: AnalysisView) -> tuple[Contents, list[str]]:
        analysis = view.analysis
        rho, share, digits = (
            np.asarray(analysis[name][...], np.float64)
            for name in ("canonical_correlations", "between_group_variance_ratio", "digits")
        )
        reliable = analysis.certificate["reliable"]
        rows = [
            [
                str(number + 1),
                "yes" if reliable[number] else "no",
                f"{digits[number]:.1f}",
                f"{one:.5g}",
                f"{100 * part:.2f} %",
            ]
            for number, (one, part) in enumerate(zip(rho, share, strict=True))
        ]
        head = ["discriminant", "reliable", "digits", "canonical correlation", "share of what is between groups"]
        table = {"caption": f"Discriminants of {analysis.certificate['groups']:,} groups", "head": head, "rows": rows}
        names = [str(name) for name in analysis[GROUP][...]]
        scores, means = (np.asarray(analysis[name][...], np.float64) for name in ("scores", "group_means"))
        caption = (
            "Scores of the first two discriminants, of variance 1 within groups, and the mean of each group (large, "
            f"{', '.join(names[: len(SHAPES)])})."
        )
        drawn = {"groups": lambda name: of_groups(scores, means, names, name)}
        return view.contents(table, drawn, caption), [f"Discriminant {number}" for number in range(1, len(rho) + 1)]

    @classmethod
    def n_maps(cls, stored: StoredAnalysis) -> int:
        return int(stored["canonical_correlations"].shape[0])


def of_groups(scores: F64, means: F64, names: list[str], name: str) -> Figure:
    """The first two scores of rows, and the means of groups."""
    across, up = scores[:, 0], scores[:, 1] if scores.shape[1] > 1 else np.zeros(len(scores))
    marks = [points(across, up)]
    for number, called in enumerate(names[: len(SHAPES)]):
        mean = means[number : number + 1]
        height = mean[:, 1] if means.shape[1] > 1 else np.zeros(1)
        marks.append(Points(mean[:, 0], height, COLORS[number], SHAPES[number], 12, label=called))
    panel = Panel(tuple(marks), Scale("discriminant 1"), Scale("discriminant 2" if scores.shape[1] > 1 else ""))
    return Figure(name, "discriminants", ((panel,),), 320, 460, about="Discriminant scores and means of groups")
