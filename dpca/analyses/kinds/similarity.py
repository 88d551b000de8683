"""RV coefficients of all pairs of groups of features, with p values by permutations of the rows of one of the two."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Annotated, Literal

import numpy as np

from dpca.analyses.answers import Answer, Array
from dpca.analyses.axis import Axis
from dpca.analyses.certificates import of_rows
from dpca.analyses.feature_groups import group_of
from dpca.analyses.features import GROUP
from dpca.analyses.kind import AnalysisView, Contents, Context, Kind
from dpca.analyses.kinds.pairs import PERMUTATIONS, SEED, SHOWN, of_chance
from dpca.analyses.kinds.shown import names_in
from dpca.analyses.samples import Samples
from dpca.analyses.statistics import amplification
from dpca.derived.feature_groups import p_value, permutations, similarity
from dpca.report.marks import Figure, Image, Panel, Scale
from dpca.types import F64


class Similarity(Kind):
    """RV coefficients (linear CKA) of all pairs of groups of features."""

    title = "similarity of groups of features"
    matrices = 7

    kind: Literal["similarity"]
    permutations: Annotated[int, PERMUTATIONS] = 999
    seed: Annotated[int, SEED] = 0

    def run(self, rows: Samples, context: Context) -> Answer:
        n_permutations = self.permutations
        features, orders = rows.groups_of_features, permutations(rows.n, n_permutations, self.seed)
        g = len(features.names)
        found, p_values = np.eye(g), np.full((g, g), np.nan)
        for i, j in combinations(range(g), 2):  # two matrices at a time
            a, b = (group_of(rows, features, features.names[one]) for one in (i, j))
            value, permuted = similarity(a.matrix, b.matrix, orders)
            found[i, j] = found[j, i] = value
            if n_permutations:
                p_values[i, j] = p_values[j, i] = p_value(value, permuted)
        arrays = {"similarity": Array(found, (GROUP, f"{GROUP}_b"))}
        if n_permutations:
            arrays["p_value"] = Array(p_values, (GROUP, f"{GROUP}_b"))
        names = np.array(features.names)
        largest = max(combinations(range(g), 2), key=lambda pair: found[pair])
        verdict = f"RV coefficients of {g} groups of features, the largest {found[largest]:.4g} of {names[largest[0]]} and {names[largest[1]]}"
        certificate = {
            **of_rows("similarity", rows, amplification(rows)),
            "permutations": n_permutations,
            "seed": self.seed,
            "caveat": of_chance(n_permutations),
            "maps": None,
            "verdict": verdict,
        }
        coordinates = {GROUP: Axis(GROUP, names), f"{GROUP}_b": Axis(f"{GROUP}_b", names)}
        return Answer("similarity", arrays, coordinates, None, certificate)

    @classmethod
    def section(cls, view: AnalysisView) -> tuple[Contents, list[str]]:
        analysis = view.analysis
        names, found = names_in(analysis, GROUP), np.asarray(analysis["similarity"][...], np.float64)
        p_values = np.asarray(analysis["p_value"][...], np.float64) if "p_value" in analysis else None
        pairs = [(i, j) for i in range(len(names)) for j in range(i + 1, len(names))]
        pairs.sort(key=lambda pair: -found[pair])
        rows = [
            [names[i], names[j], f"{found[i, j]:.4f}", *([] if p_values is None else [f"{p_values[i, j]:.3g}"])]
            for i, j in pairs[:SHOWN]
        ]
        head = ["group", "and", "RV coefficient", *([] if p_values is None else ["p"])]
        table = {"caption": "Pairs of groups, the most alike first", "head": head, "rows": rows}
        caption = "RV coefficients (linear CKA) of groups of features."
        return view.contents(table, {"groups": lambda name: of_similarity(found, names, name)}, caption), []


def of_similarity(found: F64, names: list[str], name: str) -> Figure:
    """Similarities of groups, (groups, groups), as an image."""
    edge = len(names) - 0.5
    few = len(names) <= SHOWN
    scale = Scale("" if few else "group", whole=True, marks=dict(enumerate(names)) if few else {})
    image = Image(found, -0.5, edge, -0.5, edge, (0.0, 1.0), "sequential", "RV coefficient")
    panel = Panel((image,), replace(scale, limits=(-0.5, edge)), replace(scale, limits=(edge, -0.5)), ratio=1.0)
    return Figure(name, "similarity of groups", ((panel,),), 320, 460, about="Similarity of groups of features")
