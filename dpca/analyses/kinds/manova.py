"""Multivariate analysis of variance of the leading scores of PCA: whether groups differ in them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from dpca.analyses.answers import Answer, Array
from dpca.analyses.axis import Axis
from dpca.analyses.kind import AnalysisView, Contents, Context, Kind, Labels
from dpca.analyses.kinds.pca import components
from dpca.analyses.kinds.permanova import BY
from dpca.analyses.kinds.shown import small
from dpca.analyses.samples import Samples
from dpca.analyses.statistics import grouped, plain, unweighted
from dpca.derived import statistics
from dpca.derived.statistics import Test

TESTS = {
    "wilks_lambda": "Wilks' lambda",
    "pillai_trace": "Pillai's trace",
    "hotelling_lawley_trace": "Hotelling-Lawley trace",
    "roy_greatest_root": "Roy's greatest root",
}
"""Statistics of MANOVA, and what they are called in words."""


class Manova(Kind):
    """A test whether groups differ in the leading scores: Wilks, Pillai, Hotelling and Lawley, Roy."""

    title = "multivariate analysis of variance of scores"
    matrices = 5

    kind: Literal["manova"]
    by: Annotated[Labels, BY]
    n_components: Annotated[int, Field(ge=1, description="How many scores; at most the rows less the groups.")]

    def run(self, rows: Samples, context: Context) -> Answer:
        rows = unweighted(rows, "MANOVA is")
        groups = grouped(rows, context.labels(self.by))
        n_components = self.n_components
        if n_components > groups.residual_degrees:
            statistics.manova(np.empty((rows.n, n_components)), groups)  # says so before the eigensolve
        answer = components(rows, n_components)
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
            "tests": {name: of_test(one) for name, one in tests.items()},
            "roy_is_a_bound": len(correlations) > 1,
        }
        return Answer("manova", arrays, {axis.name: axis for axis in axes}, None, certificate)

    @classmethod
    def section(cls, view: AnalysisView) -> tuple[Contents, list[str]]:
        rows = [
            [
                TESTS[name],
                f"{one['value']:.6g}",
                small(one["f_value"]),
                " and ".join(f"{degree:.6g}" for degree in one["degrees_of_freedom"]),
                small(one["p_value"]),
            ]
            for name, one in view.analysis.certificate["tests"].items()
        ]
        bound = (
            ": of Roy's root the F is an upper bound, and its p a lower one"
            * view.analysis.certificate["roy_is_a_bound"]
        )
        head = ["statistic", "value", "F", "degrees of freedom", "p"]
        table = {"caption": f"Statistics, with approximations by F{bound}", "head": head, "rows": rows}
        return view.contents(table, {}, ""), []


def of_test(test: Test) -> dict[str, Any]:
    """One of the statistics, as the certificate has it."""
    return {
        "value": test.value,
        "f_value": plain(test.f_value),
        "degrees_of_freedom": list(test.degrees),
        "p_value": plain(test.p_value),
    }
