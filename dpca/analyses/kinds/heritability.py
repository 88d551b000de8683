"""The share of a target's variance that lies in the rows, h2, by restricted maximum likelihood.

y = X b + g + e with var g = s2 h2 G and var e = s2 (1 - h2) I; G = P / (tr P / n) has mean diagonal 1, where P are the products of the rows
about their mean. The standard error is that of large samples, from the curvature of the likelihood.
"""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from dpca.analyses.answers import H2, Answer, Array, row_axis
from dpca.analyses.axis import Axis
from dpca.analyses.kind import AnalysisView, Contents, Context, Fixed, Kind, Target
from dpca.analyses.kinds.shown import small
from dpca.analyses.samples import Samples
from dpca.analyses.statistics import answered, inexact, plain, target_of, unweighted
from dpca.derived.operators import Center, Remainder
from dpca.derived.ridge import POINTS, Decomposed, heritability, likelihood
from dpca.report.marks import COLORS, Figure, Line, Panel, Rule, Scale
from dpca.types import F64


class Heritability(Kind):
    """The share of a target's variance that lies in the rows, by restricted maximum likelihood (REML)."""

    title = "heritability by REML"
    matrices = 6

    kind: Literal["heritability"]
    target: Target
    covariates: Annotated[Fixed | None, Field(description="Fixed effects beside the constant.")] = None

    def run(self, rows: Samples, context: Context) -> Answer:
        rows = unweighted(rows, "REML is")
        target = context.target(self.target)
        values, name = target_of(rows, target.values, target.name), target.name
        covariates = None if self.covariates is None else context.covariates(self.covariates)[0]
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
        return answered(
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
            [ends[round(found.h2)] if found.at_boundary else "", inexact(rows, error, "the likelihood")],
            target=name,
            h2=found.h2,
            standard_error=plain(found.standard_error),
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

    def vectors(self, n: int) -> int:
        return 2

    @classmethod
    def section(cls, view: AnalysisView) -> tuple[Contents, list[str]]:
        analysis, document = view.analysis, view.analysis.certificate
        error = document["standard_error"]
        rows = [
            ["h2", f"{document['h2']:.5g}" + ("" if error is None else f" +- {error:.2g}")],
            ["variance of the rows' part", f"{document['variance_of_rows']:.6g}"],
            ["residual variance", f"{document['residual_variance']:.6g}"],
            ["fixed effects", str(document["fixed_effects"])],
            [
                "log-likelihood, and at h2 = 0",
                f"{document['log_likelihood']:.7g}, {document['log_likelihood_at_0']:.7g}",
            ],
            ["p of h2 = 0", small(document["p_value"])],
        ]
        table = {"caption": f"Of {document['target']}", "head": [], "rows": rows}
        at, values = (np.asarray(analysis[name][...], np.float64) for name in ("h2", "log_likelihood"))
        caption = "Restricted log-likelihood at each h2, less its largest; above the dashed line is its interval of 95 %, that of large samples."
        return view.contents(table, {"0": lambda name: of_likelihood(at, values, document["h2"], name)}, caption), []


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
