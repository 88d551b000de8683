"""Maximum covariance analysis of two groups of features: the directions of largest covariance."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from dpca.analyses.answers import COMPONENT, Answer, Array
from dpca.analyses.kind import Context, most_of, number_of
from dpca.analyses.kinds.pairs import SHOWN, OfTwo, pair_of
from dpca.analyses.samples import Samples
from dpca.derived.feature_groups import maximum_covariance, p_value, permutations
from dpca.store.derived import StoredAnalysis


class Mca(OfTwo):
    """Maximum covariance analysis of two groups of features."""

    title = "maximum covariance analysis"
    statistic = "squared covariances"

    kind: Literal["mca"]

    def run(self, rows: Samples, context: Context) -> Answer:
        a, b = pair_of(rows, self.groups)
        orders = permutations(rows.n, self.permutations, self.seed)
        found = maximum_covariance(a.matrix, b.matrix, number_of(self.n_components), (a.floor, b.floor), orders)
        arrays = {
            "singular_values": Array(found.values, (COMPONENT,)),
            "covariance": Array(found.values / (rows.n - 1), (COMPONENT,)),
            "squared_covariance_fraction": Array(found.values**2 / found.total, (COMPONENT,)),
        }
        certificate: dict[str, Any] = {"permutations": self.permutations, "seed": self.seed}
        if self.permutations:
            certificate["p_value"] = p_value(found.total, found.test)
        return self.answer(rows, (a, b), found, arrays, certificate)

    def columns(self, n: int) -> int:
        return 2 * most_of(self.n_components, n)

    @classmethod
    def first(cls, value: float, rows: Samples) -> str:
        return f"covariance {value / (rows.n - 1):.4g}"

    @classmethod
    def table(cls, analysis: StoredAnalysis) -> tuple[list[str], list[list[str]]]:
        values, fractions = (
            np.asarray(analysis[name][...], np.float64) for name in ("covariance", "squared_covariance_fraction")
        )
        rows = [
            [str(number), f"{value:.6g}", f"{100 * fraction:.2f} %"]
            for number, (value, fraction) in enumerate(zip(values[:SHOWN], fractions, strict=False), 1)
        ]
        return ["pair", "covariance", "share of squared covariance"], rows
