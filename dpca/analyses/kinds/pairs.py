"""Analyses of two groups of features against each other: their answer, their maps, and their section of a report."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import Field

from dpca.analyses.answers import COMPONENT, Answer, Array, Maps, row_axis
from dpca.analyses.axis import Axis
from dpca.analyses.certificates import of_rows
from dpca.analyses.feature_groups import Group, Sides, group_of
from dpca.analyses.kind import AnalysisView, Components, Contents, Kind
from dpca.analyses.kinds.shown import names_in
from dpca.analyses.samples import Samples
from dpca.analyses.statistics import amplification
from dpca.config.inputs import Text
from dpca.config.schema import AUTO
from dpca.derived.feature_groups import Pair
from dpca.derived.operators import Chain, Matrix
from dpca.errors import ConfigError
from dpca.report.derived_findings import Lead
from dpca.report.marks import Figure, Panel, Points, Scale
from dpca.store.derived import StoredAnalysis
from dpca.store.stored import Stored
from dpca.types import F64

SIDE = "side"
SHOWN = 12
"""Rows of a table."""
PERMUTATIONS = Field(ge=0, description="Random orders of the rows of one group, for p values; 0 for none.")
SEED = Field(ge=0, description="Of these orders.")
P_VALUES = {
    "p_value": "of the sum of {statistic}, by {permutations} permutations of the rows of the second group",
    "p_value_of_first": "of the first correlation, by {permutations} permutations of the rows of the second group",
}
"""Names of arrays and entries of the certificate of a pair of groups, and their meanings."""


class OfTwo(Kind):
    """Two groups of features against each other."""

    matrices = 11
    has_maps = centred = True
    statistic: ClassVar[str]
    """The numbers whose sum the p value is about."""

    groups: Annotated[list[Text], Field(min_length=2, max_length=2, description="Names of the two groups of features.")]
    n_components: Components = AUTO
    permutations: Annotated[int, PERMUTATIONS] = 999
    seed: Annotated[int, SEED] = 0

    @classmethod
    def first(cls, value: float, rows: Samples) -> str:
        """The first pair, in words."""
        return f"correlation {value:.4g}"

    @classmethod
    def table(cls, analysis: StoredAnalysis) -> tuple[list[str], list[list[str]]]:
        """The head and the first rows of a table of pairs."""
        raise NotImplementedError

    @classmethod
    def section(cls, view: AnalysisView) -> tuple[Contents, list[str]]:
        analysis = view.analysis
        document, first = analysis.certificate, names_in(analysis, SIDE)
        head, rows = cls.table(analysis)
        tested = ""
        if "p_value" in document:
            what = f"sum of {cls.statistic}"
            tested = f"; p of the {what} {document['p_value']:.4g}, by {document['permutations']:,} permutations"
        scores = np.asarray(analysis["scores"][:, :, 0], np.float64)
        caption = f"Scores of the first pair: of {first[0]} and of {first[1]}, each divided by its standard deviation."
        table = {"caption": f"{first[0]} and {first[1]}{tested}", "head": head, "rows": rows}
        contents = view.contents(table, {"groups": lambda name: of_pair(scores, first, name)}, caption)
        return contents, [f"Pair {number}" for number in range(1, cls.n_maps(analysis) + 1)]

    @classmethod
    def shown(cls, stored: StoredAnalysis, array: Stored, count: int, group: str = "") -> list[list[Lead]]:
        sides = names_in(stored, SIDE)
        if group not in sides:
            return []
        return [[(sides.index(group), number)] for number in range(min(count, array.shape[1]))]

    @classmethod
    def n_maps(cls, stored: StoredAnalysis) -> int:
        return int(stored["scores"].shape[-1])

    def answer(
        self,
        rows: Samples,
        groups: tuple[Group, Group],
        found: Pair,
        arrays: dict[str, Array],
        certificate: dict[str, Any],
    ) -> Answer:
        """The answer, from the pairs that were found.

        Parameters
        ----------
        arrays, certificate : those that the kind has alone
        """
        kind, statistic = self.called(), self.statistic
        axis, names = row_axis(rows.axis), [one.name for one in groups]
        arrays["scores"] = Array(np.stack(found.scores), (SIDE, axis.name, COMPONENT))
        for name, words in P_VALUES.items():
            if name in certificate:
                said = words.format(statistic=statistic, permutations=certificate["permutations"])
                arrays[name] = Array(np.array(certificate[name]), (), {"long_name": said})
        coordinates = {SIDE: Axis(SIDE, np.array(names))}
        if axis.values is not None:
            coordinates[axis.name] = axis
        said = f", p {certificate['p_value']:.4g} of the sum of {statistic}" if "p_value" in certificate else ""
        first = self.first(float(found.values[0]), rows)
        certificate = {
            **of_rows(kind, rows, amplification(rows)),
            "groups": names,
            **certificate,
            "caveat": of_chance(int(certificate["permutations"])),
            "maps": None,
            "verdict": f"{len(found.values)} pairs of directions of {names[0]} and {names[1]}, the first with {first}{said}",
        }
        return Answer(kind, arrays, coordinates, maps_of_pair(rows.centred.chain, groups, found), certificate)


def maps_of_pair(chain: Chain, groups: tuple[Group, Group], found: Pair) -> Maps | None:
    """The directions of both groups among the features; None where a group is labels within an input, since maps are made of whole inputs."""
    parts = [one.features.parts[one.features.number(one.name)] for one in groups]
    if {one.features.parts.count(part) for one, part in zip(groups, parts, strict=True)} != {1}:
        return None
    factors = np.zeros((max(groups[0].features.parts) + 1, 2))
    for side, (one, part) in enumerate(zip(groups, parts, strict=True)):
        factors[part, side] = np.sqrt(one.weight)
    coefficients = np.stack([np.asarray(chain.adjoint(one)) for one in found.coefficients])
    overlaps = None if found.overlaps is None else np.stack(found.overlaps)
    scores_of = partial(_of_sides, chain)
    return Maps(coefficients, (SIDE,), "each", scores_of, np.stack(found.scores), Sides(factors), overlaps=overlaps)


def of_chance(count: int) -> str:
    """The assumption of permutations, in words; empty for none."""
    if not count:
        return ""
    return "permutations suppose that rows can be exchanged: of rows that follow each other in time, which are alike, p values are too small"


def _of_sides(chain: Chain, projected: Matrix) -> Matrix:
    return np.stack([chain.apply(one) for one in projected])


def pair_of(rows: Samples, groups: Sequence[str]) -> tuple[Group, Group]:
    """The rows in two groups of features."""
    features = rows.groups_of_features
    if groups[0] == groups[1]:
        raise ConfigError(
            f"groups are {', '.join(groups)}, but two of {', '.join(features.names)} are needed", key="groups"
        )
    first, second = (group_of(rows, features, name) for name in groups)
    return first, second


def of_pair(scores: F64, names: list[str], name: str) -> Figure:
    """The first scores of two groups against each other, (2, rows)."""
    deviations = scores.std(axis=1)
    x, y = scores / np.where(deviations > 0, deviations, 1.0)[:, None]
    panel = Panel((Points(x, y, size=4, opacity=0.7),), Scale(names[0]), Scale(names[1]))
    return Figure(name, "pairs", ((panel,),), 320, 420, about="Scores of a pair of groups")
