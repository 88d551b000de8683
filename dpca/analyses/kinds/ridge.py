"""Ridge regression of a target on the rows, with predictions for each row by all others; GBLUP where K is a genetic relationship matrix.

The alpha of least error is chosen, by these predictions: with several alphas their error is that of the best, and so a little too good.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from dpca.analyses import projection
from dpca.analyses.answers import ALPHA, Answer, Array, row_axis
from dpca.analyses.axis import Axis
from dpca.analyses.kind import AnalysisView, Contents, Context, Kind, Target
from dpca.analyses.kinds.components import points
from dpca.analyses.samples import Samples
from dpca.analyses.statistics import answered, inexact, of_all_rows, target_of, unweighted
from dpca.derived.ridge import N_ALPHAS, Decomposed, grid
from dpca.derived.ridge import ridge as ridge_of
from dpca.errors import DataError
from dpca.numerics.sketch import SMALLEST
from dpca.report.marks import COLORS, Figure, Line, Panel, Points, Rule, Scale
from dpca.types import F64


class Ridge(Kind):
    """Ridge regression of a target on the rows (GBLUP for genotypes). Each row is also predicted by the others."""

    title = "ridge regression"
    matrices = 5

    kind: Literal["ridge"]
    target: Target
    alpha: Annotated[
        Literal["auto"]
        | Annotated[float, Field(gt=0)]
        | Annotated[list[Annotated[float, Field(gt=0)]], Field(min_length=1)],
        Field(
            description="What is added to the eigenvalues of the rows' products. A number; or several, of which the one with the "
            "smallest leave-one-out error is chosen; auto: a grid from 10^-4 to 10^4 times the mean eigenvalue."
        ),
    ] = "auto"
    left_out: Annotated[
        bool, Field(description="Also predictions for the samples that a selection left out: predicted_left_out.")
    ] = False

    def run(self, rows: Samples, context: Context) -> Answer:
        rows = unweighted(rows, "ridge regression is")
        target = context.target(self.target)
        values, name = target_of(rows, target.values, target.name), target.name
        if not np.ptp(values) > 0:
            raise DataError(
                f"{name} is {values[0]:g} for all {rows.n:,} rows", "Give a target that varies.", key="target"
            )
        centred = rows.centred
        moved, axis = centred.transformed, row_axis(rows.axis)
        alphas = (
            grid(moved.products.total / (rows.n - 1)) if self.alpha == "auto" else np.unique(np.atleast_1d(self.alpha))
        )
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
        if self.left_out:
            others = projection.left_out(centred, context.samples.axis)
            coefficients = centred.chain.adjoint(found.dual[:, None])
            predicted = projection.projected(centred, coefficients, None, others)[:, 0] + values.mean()
            dim = f"{axis.name}_left_out"
            arrays["predicted_left_out"] = Array(predicted, (dim,))
            axes.append(replace(others.axis, name=dim))
        # A prediction's error is (R y)_i / R_ii with R = (P + alpha I)^-1, and |dR| / |R| is at most |dP| / (smallest + alpha).
        solved = SMALLEST * float(decomposed.eigenvalues[0])
        error = 2 * (moved.error + solved) / (decomposed.smallest + found.alpha)
        tried = f" of {len(alphas)} tried" if len(alphas) > 1 else ""
        return answered(
            "ridge",
            rows,
            arrays,
            axes,
            f"leave-one-out R2 {r2:.4g} with alpha {found.alpha:.5g}{tried}, {found.degrees:.4g} degrees of freedom",
            [
                f"the rows predict {name} no better than its mean does" if r2 <= 0 else "",
                at_the_end(alphas, found.chosen, decomposed.smallest),
                beforehand(rows),
                inexact(rows, error, "the fit"),
            ],
            target=name,
            alpha=found.alpha,
            r2=r2,
            mean_squared_error=float(found.mean_squared_errors[found.chosen]),
            degrees_of_freedom=found.degrees,
            error=error,
        )

    def vectors(self, n: int) -> int:
        # Besides its arrays: of each alpha fitted values, errors and leverages while the best is chosen.
        count = N_ALPHAS if self.alpha == "auto" else len(self.alpha) if isinstance(self.alpha, list) else 1
        return 6 + 4 * count

    @classmethod
    def section(cls, view: AnalysisView) -> tuple[Contents, list[str]]:
        analysis, document = view.analysis, view.analysis.certificate
        alphas, errors, r2 = (
            np.asarray(analysis[name][...], np.float64) for name in ("alpha", "mean_squared_error", "r2")
        )
        chosen = int(np.argmin(errors))
        near = sorted({*range(max(0, chosen - 3), min(len(alphas), chosen + 4)), 0, len(alphas) - 1})
        rows = [
            [
                f"{alphas[at]:.5g}" + " (chosen)" * (at == chosen and len(alphas) > 1),
                f"{errors[at]:.6g}",
                f"{r2[at]:.4f}",
            ]
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
        draw: dict[str, Callable[[str], Figure]] = {
            "0": lambda name: of_predictions(target, predicted, document["target"], name)
        }
        caption = (
            "Each row's value, and its prediction by the regression on all others; the line is where they are the same."
        )
        if len(alphas) > 1:
            draw["1"] = lambda name: of_alphas(alphas, r2, name)
            caption += " Beside it: R2 of these predictions for each alpha."
        return view.contents(table, draw, caption), []


def at_the_end(alphas: F64, chosen: int, smallest: float) -> str:
    """Caveat where the best of several alphas is the first or the last; one that penalizes no direction by a hundredth is as 0."""
    if len(alphas) < 2 or 0 < chosen < len(alphas) - 1 or alphas[chosen] < smallest / 100:
        return ""
    if chosen:
        return f"the largest alpha, {alphas[-1]:.3g}, is the best of those tried: more may be better"
    return f"the smallest alpha, {alphas[0]:.3g}, is the best of those tried: less may be better"


def beforehand(rows: Samples) -> str:
    """Caveat about rows that others were used for, also the one that is left out."""
    if not (words := of_all_rows(rows)):
        return ""
    return f"operators ({words}) were made of all rows before one was left out, so that its prediction knows a little of it"


def of_predictions(target: F64, predicted: F64, called: str, name: str) -> Figure:
    """Predictions against what was predicted."""
    ends = np.array([float(target.min()), float(target.max())])
    panel = Panel(
        (Line(ends, ends, width=0.7, opacity=0.7), points(target, predicted)),
        Scale(called),
        Scale("prediction by the other rows"),
    )
    return Figure(name, "predictions", ((panel,),), 320, 420, about="Predictions against values")


def of_alphas(alphas: F64, r2: F64, name: str) -> Figure:
    """R2 of predictions for each alpha."""
    marks = (Line(alphas, r2, COLORS[0], 1.2), Points(alphas, r2, size=4), Rule(0.0, "y", width=0.5, opacity=0.5))
    panel = Panel(marks, Scale("alpha", log=True), Scale("R2 of predictions"))
    return Figure(name, "alphas", ((panel,),), 320, 420, about="R2 for each alpha")
