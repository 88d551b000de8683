"""Groups of features held against each other: the rows in one of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from dpca.analyses.answers import Answer, Maps
from dpca.analyses.features import FeatureMatrices
from dpca.analyses.samples import Samples, Unread
from dpca.derived.feature_groups import weighted_sum
from dpca.derived.gram import AnyProducts, matrix_of
from dpca.derived.operators import Matrix
from dpca.errors import ConfigError
from dpca.types import F64


@dataclass(frozen=True, eq=False)
class Sides:
    """How parts count in each of the two sides of an analysis, or in one of them."""

    factors: F64
    """(parts, 2), or (parts,)."""


@dataclass(frozen=True, eq=False)
class Group:
    """The rows in one group of features, about their mean."""

    name: str
    features: FeatureMatrices
    weight: float
    matrix: Matrix
    """Their products, (rows, rows)."""
    floor: float
    """Least eigenvalue that can be told from 0."""


def group_of(rows: Samples, features: FeatureMatrices, name: str) -> Group:
    """The rows in one group of features."""
    weight = features.all_weights[features.number(name)]
    if not weight:
        raise ConfigError(f"group {name} is left out", "Leave it in, or name another.", key="groups")
    transformed = rows_in(rows, features, name).centred.transformed
    matrix = matrix_of(transformed.products)
    largest = np.array([float(np.trace(matrix)), 0.0])
    floor = transformed.floor(largest)
    return Group(name, features, weight, matrix, max(floor, transformed.products.rounding * largest[0]))


def rows_in(rows: Samples, features: FeatureMatrices, name: str) -> Samples:
    """The rows in one group of features, as it is weighted; its products are read when they are needed."""
    read = partial(_weighed, features.read, name, features.all_weights[features.number(name)])
    return replace(rows, source=Unread(rows.chain.n_in, read))


def sides_of(rows: Samples, answer: Answer) -> list[tuple[Samples, Answer]]:
    """The rows in each of the two groups of features of an analysis that has maps of both, and its answer in this group alone."""
    features, maps = rows.groups_of_features, answer.its_maps
    assert maps.weighting is not None
    factors = maps.weighting.factors
    assert factors is not None
    found = []
    for side, name in enumerate(answer.certificate["groups"]):
        scores_of = rows.centred.chain.apply
        overlaps = None if maps.overlaps is None else maps.overlaps[side : side + 1]
        weighting, arrays = Sides(factors[:, side]), (maps.coefficients[side], maps.scores[side])
        one = Maps(arrays[0], (), maps.orthonormal, scores_of, arrays[1], weighting, overlaps=overlaps)
        found.append((rows_in(rows, features, name), replace(answer, maps=one)))
    return found


def _weighed(read: Callable[[str], AnyProducts], name: str, weight: float) -> AnyProducts:
    return weighted_sum([read(name)], [weight])


def _amplification(rows: Samples) -> float:
    return rows.centred.transformed.amplification
