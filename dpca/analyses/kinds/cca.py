"""Canonical correlations of the leading principal components of two groups of features."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from dpca.analyses.answers import COMPONENT, Answer, Array
from dpca.analyses.kind import Context, most_of
from dpca.analyses.kinds.pairs import SHOWN, OfTwo, pair_of
from dpca.analyses.samples import Samples
from dpca.config.schema import AUTO
from dpca.derived.feature_groups import canonical_correlations, p_value, permutations
from dpca.store.derived import StoredAnalysis


class Cca(OfTwo):
    """Canonical correlations of the leading principal components of two groups of features."""

    maps_are_weights = True
    title = "canonical correlations of leading components"
    statistic = "squared correlations"

    kind: Literal["cca"]
    n_leading: Annotated[int, Field(ge=1, description="Principal components of each group.")] = 10

    def run(self, rows: Samples, context: Context) -> Answer:
        a, b = pair_of(rows, self.groups)
        orders = permutations(rows.n, self.permutations, self.seed)
        n_components = None if self.n_components == AUTO else self.n_components
        found = canonical_correlations(a.matrix, b.matrix, self.n_leading, n_components, (a.floor, b.floor), orders)
        arrays = {"correlations": Array(found.values, (COMPONENT,))}
        certificate: dict[str, Any] = {
            "n_leading": self.n_leading,
            "permutations": self.permutations,
            "seed": self.seed,
        }
        if self.permutations:
            certificate["p_value"] = p_value(found.total, found.test)
            certificate["p_value_of_first"] = p_value(float(found.values[0]), found.first)
        return self.answer(rows, (a, b), found, arrays, certificate)

    def columns(self, n: int) -> int:
        return 2 * min(most_of(self.n_components, n), self.n_leading)

    @classmethod
    def table(cls, analysis: StoredAnalysis) -> tuple[list[str], list[list[str]]]:
        values = np.asarray(analysis["correlations"][...], np.float64)
        return ["pair", "correlation"], [
            [str(number), f"{value:.6g}"] for number, value in enumerate(values[:SHOWN], 1)
        ]
