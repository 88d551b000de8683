"""Groups of features as users ask for them: some of them, weighted against each other, and held against each other."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from dpca.analyses.answers import COMPONENT, Answer, Array, Maps, of_rows, row_axis
from dpca.analyses.axis import Axis
from dpca.derived.feature_groups import (
    Pair,
    canonical_correlations,
    maximum_covariance,
    multiplied_by,
    p_value,
    permutations,
    shares,
    similarity,
    weighted_sum,
)
from dpca.derived.gram import AnyProducts, matrix_of
from dpca.derived.operators import F64, Chain, Matrix
from dpca.derived.pca import UpTo
from dpca.errors import ConfigError
from dpca.numerics.accumulators.gram import eigh
from dpca.numerics.panels import BlockScaling

if TYPE_CHECKING:
    from dpca.analyses.samples import Samples

GROUP, SIDE, PERMUTATION = "group", "side", "permutation"
SHOWN = 6
"""Groups that are named in words."""
P_VALUES = {
    "p_value": "of the sum of {statistic}, by {permutations} permutations of the rows of the second group",
    "p_value_of_first": "of the first correlation, by {permutations} permutations of the rows of the second group",
}
"""Of a pair of groups: names of arrays and entries of the certificate, and what they are."""
SCALINGS = ("none", "first_eigenvalue", "total_variance")


@dataclass(frozen=True, eq=False)
class Features:
    """The groups of features that results have a Gram matrix of each, and how they count."""

    names: tuple[str, ...]
    parts: tuple[int, ...]
    """For each the number of the result, or of its input, that it is in."""
    read: Callable[[str], AnyProducts]
    """Reads the products of the samples in one of them."""
    divisor: float
    """Of variances of the run."""
    shared: Callable[[str], tuple[F64, int]] | None = None
    """Where products of two samples are divided by the number of features that both have: reads these of one of them, (n, n), and the number
    of features that count there. What `read` gives is not divided. None for other products."""
    weights: tuple[float, ...] = ()
    """What the products of each are multiplied by; empty before any are chosen, when all count as they are."""

    @property
    def all_weights(self) -> tuple[float, ...]:
        """The weights of all groups."""
        return self.weights or (1.0,) * len(self.names)

    @property
    def products(self) -> AnyProducts:
        """The products of samples whose features are those of all groups, weighted; each is read."""
        names = [name for name, weight in zip(self.names, self.all_weights, strict=True) if weight]
        found = weighted_sum([self.read(name) for name in names], [weight for weight in self.all_weights if weight])
        return found if self.ratios is None else multiplied_by(found, self.ratios)

    @property
    def each(self) -> Iterator[AnyProducts]:
        """The products of each group as they are in the sum, without its weight."""
        for name in self.names:
            yield self.read(name) if self.ratios is None else multiplied_by(self.read(name), self.ratios)

    @cached_property
    def ratios(self) -> F64 | None:
        """The number of features over that which two samples have, of the groups that count, (n, n); None where products are not divided."""
        if self.shared is None:
            return None
        if not set(self.all_weights) <= {0.0, 1.0}:
            raise ConfigError(
                "features are weighted, but products were divided by the number of features that two samples have (missing: pairwise)",
                "Leave weights and scaling out: groups can be chosen, and left out.",
                key="features",
            )
        found = [self.shared(name) for name, weight in zip(self.names, self.all_weights, strict=True) if weight]
        counts = np.sum([one for one, _ in found], axis=0)
        total = sum(number for _, number in found)
        ratios: F64 = np.divide(total, counts, out=np.zeros_like(counts), where=counts > 0)
        return ratios

    @property
    def factors(self) -> F64 | None:
        """What the features of each part are multiplied by, (parts,): roots of weights; None where all count as they are."""
        if not self.weights or set(self.weights) == {1.0}:
            return None
        found = dict[int, float]()
        for name, part, weight in zip(self.names, self.parts, self.weights, strict=True):
            if found.setdefault(part, weight) != weight:
                raise ConfigError(
                    f"group {name} counts otherwise than others of the same input, and components are made of whole inputs",
                    "Leave components out (components: false): scores and spectrum need none; or run with inputs side by side.",
                    key="features",
                )
        return np.sqrt([found[part] for part in sorted(found)])

    def chosen(
        self,
        only: Sequence[str] | None = None,
        leave_out: Sequence[str] = (),
        weights: Mapping[str, float] | None = None,
        scaling: BlockScaling = "none",
    ) -> Features:
        """Some of the groups, weighted.

        Parameters
        ----------
        only, leave_out : names of groups that count, and of ones that do not
        weights : of products, by name; 1 for others
        scaling : first_eigenvalue divides the products of each group by its first eigenvalue (multiple factor analysis), total_variance by its total
            variance, both of the samples as the run had them; weights come on top
        """
        given = dict(weights or {})
        for name in (*(only or ()), *leave_out, *given):
            self.number(name)
        if scaling not in SCALINGS:
            raise ConfigError(
                f"scaling is {scaling!r}, but {', '.join(SCALINGS)} is allowed", "Choose one.", key="scaling"
            )
        wrong = next((name for name, weight in given.items() if not (np.isfinite(weight) and weight >= 0)), None)
        if wrong is not None:
            raise ConfigError(f"the weight of group {wrong} is {given[wrong]}, but 0 or more is allowed", key="weights")
        found = [
            before * given.get(name, 1.0) * float((only is None or name in only) and name not in leave_out)
            for name, before in zip(self.names, self.all_weights, strict=True)
        ]
        if not any(found):
            raise ConfigError(
                f"no group of features is left of {', '.join(self.names)}", "Leave one in.", key="features"
            )
        if scaling != "none":
            sizes = [
                _size(self.read(name), scaling) if weight else 1.0
                for name, weight in zip(self.names, found, strict=True)
            ]
            found = [
                weight * (self.divisor / size if size > 0 else 1.0) for weight, size in zip(found, sizes, strict=True)
            ]
        return replace(self, weights=tuple(found))

    @property
    def told(self) -> str:
        """Which groups count, and how much, in words; empty where all count as they are."""
        if not self.weights:
            return ""
        words = [
            f"{name}" + (f" times {weight:.4g}" if weight != 1 else "")
            for name, weight in zip(self.names, self.weights, strict=True)
            if weight
        ]
        shown = ", ".join(words) if len(words) <= SHOWN else f"{len(words)} of {len(self.names)} groups"
        return f"features of {shown}"

    def number(self, name: str) -> int:
        """The number of a group."""
        if name in self.names:
            return self.names.index(name)
        near = difflib.get_close_matches(name, self.names, n=1)
        raise ConfigError(
            f"there is no group of features {name!r}, but {', '.join(self.names[:10])}"
            + (f" and {len(self.names) - 10} more" if len(self.names) > 10 else ""),
            f"Did you mean {near[0]!r}?" if near else "Name one of them.",
            key="features",
        )


@dataclass(frozen=True, eq=False)
class _Sides:
    """How parts count in each of the two sides of an analysis, or in one of them."""

    factors: F64
    """(parts, 2), or (parts,)."""


def shares_of(rows: Samples, answer: Answer) -> Answer:
    """The answer of a pca with the share of each group of features in each component, variance_share."""
    if answer.kind != "pca":
        raise ConfigError(
            f"shares of groups in the variance are those of components of a pca, but this is {answer.kind}",
            "Ask them of gram.pca(...).",
        )
    features = features_of(rows)
    found = shares(features.each, features.all_weights, answer.its_maps.coefficients)
    arrays = {**answer.arrays, "variance_share": Array(found, (GROUP, COMPONENT))}
    return replace(
        answer, arrays=arrays, coordinates={**answer.coordinates, GROUP: Axis(GROUP, np.array(features.names))}
    )


def mca(
    rows: Samples, groups: Sequence[str], n_components: int | UpTo | None, n_permutations: int, seed: int
) -> Answer:
    """Maximum covariance analysis of two groups of features: the directions of largest covariance."""
    a, b = _pair_of(rows, groups)
    orders = _orders(rows.n, n_permutations, seed)
    found = maximum_covariance(a.matrix, b.matrix, n_components, (a.floor, b.floor), orders)
    arrays = {
        "singular_values": Array(found.values, (COMPONENT,)),
        "covariance": Array(found.values / (rows.n - 1), (COMPONENT,)),
        "squared_covariance_fraction": Array(found.values**2 / found.total, (COMPONENT,)),
    }
    certificate: dict[str, Any] = {"permutations": n_permutations, "seed": seed}
    if n_permutations:
        certificate["p_value"] = p_value(found.total, found.test)
    return _of_pair("mca", rows, (a, b), found, arrays, certificate, "squared covariances")


def cca(
    rows: Samples, groups: Sequence[str], n_leading: int, n_components: int | None, n_permutations: int, seed: int
) -> Answer:
    """Canonical correlations of the leading principal components of two groups of features."""
    a, b = _pair_of(rows, groups)
    orders = _orders(rows.n, n_permutations, seed)
    found = canonical_correlations(a.matrix, b.matrix, n_leading, n_components, (a.floor, b.floor), orders)
    arrays = {"correlations": Array(found.values, (COMPONENT,))}
    certificate: dict[str, Any] = {"n_leading": n_leading, "permutations": n_permutations, "seed": seed}
    if n_permutations:
        certificate["p_value"] = p_value(found.total, found.test)
        certificate["p_value_of_first"] = p_value(float(found.values[0]), found.first)
    return _of_pair("cca", rows, (a, b), found, arrays, certificate, "squared correlations")


def similarities(rows: Samples, n_permutations: int, seed: int) -> Answer:
    """RV coefficients of all pairs of groups of features, with p values by permutations of the rows of one of the two."""
    features, orders = features_of(rows), _orders(rows.n, n_permutations, seed)
    g = len(features.names)
    found, p_values = np.eye(g), np.full((g, g), np.nan)
    for i, j in combinations(range(g), 2):  # two matrices at a time
        a, b = (_group(rows, features, features.names[one]) for one in (i, j))
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
        **of_rows("similarity", rows, _amplification(rows)),
        "permutations": n_permutations,
        "seed": seed,
        "caveat": _of_chance(n_permutations),
        "maps": None,
        "verdict": verdict,
    }
    coordinates = {GROUP: Axis(GROUP, names), f"{GROUP}_b": Axis(f"{GROUP}_b", names)}
    return Answer("similarity", arrays, coordinates, None, certificate)


def features_of(rows: Samples) -> Features:
    """The groups of features of the samples' results."""
    features = rows.features
    if features is None or len(features.names) < 2:
        raise ConfigError(
            f"{rows.known.name}: has one group of features, and none to hold against it",
            "Run with output.groups (labels or ranges), with a list of inputs, or give several results of the same samples.",
            key="features",
        )
    return features


@dataclass(frozen=True, eq=False)
class _Group:
    """The rows in one group of features, about their mean."""

    name: str
    features: Features
    weight: float
    matrix: Matrix
    """Their products, (rows, rows)."""
    floor: float
    """What an eigenvalue has to exceed to be told from 0."""


def _group(rows: Samples, features: Features, name: str) -> _Group:
    weight = features.all_weights[features.number(name)]
    if not weight:
        raise ConfigError(f"group {name} is left out", "Leave it in, or name another.", key="groups")
    transformed = _in_group(rows, features, name).centred.transformed
    matrix = matrix_of(transformed.products)
    largest = np.array([float(np.trace(matrix)), 0.0])
    floor = transformed.floor(largest)
    return _Group(name, features, weight, matrix, max(floor, transformed.products.rounding * largest[0]))


def _in_group(rows: Samples, features: Features, name: str) -> Samples:
    """The rows in one group of features, as it is weighted; its products are read when they are needed."""
    from dpca.analyses.samples import Unread

    read = partial(_weighed, features.read, name, features.all_weights[features.number(name)])
    return replace(rows, source=Unread(rows.chain.n_in, read))


def sides_of(rows: Samples, answer: Answer) -> list[tuple[Samples, Answer]]:
    """The rows in each of the two groups of features of an analysis that has maps of both, and its answer in this group alone."""
    features, maps = features_of(rows), answer.its_maps
    assert maps.weighting is not None
    factors = maps.weighting.factors
    assert factors is not None
    found = []
    for side, name in enumerate(answer.certificate["groups"]):
        scores_of = rows.centred.chain.apply
        overlaps = None if maps.overlaps is None else maps.overlaps[side : side + 1]
        weighting, arrays = _Sides(factors[:, side]), (maps.coefficients[side], maps.scores[side])
        one = Maps(arrays[0], (), maps.orthonormal, scores_of, arrays[1], weighting, overlaps=overlaps)
        found.append((_in_group(rows, features, name), replace(answer, maps=one)))
    return found


def _weighed(read: Callable[[str], AnyProducts], name: str, weight: float) -> AnyProducts:
    return weighted_sum([read(name)], [weight])


def _pair_of(rows: Samples, groups: Sequence[str]) -> Iterator[_Group]:
    features = features_of(rows)
    if len(groups) != 2 or groups[0] == groups[1]:
        raise ConfigError(
            f"groups are {', '.join(groups) or 'none'}, but two of {', '.join(features.names)} are needed", key="groups"
        )
    return (_group(rows, features, name) for name in groups)


def _of_pair(
    kind: str,
    rows: Samples,
    groups: tuple[_Group, _Group],
    found: Pair,
    arrays: dict[str, Array],
    certificate: dict[str, Any],
    statistic: str,
) -> Answer:
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
    first = (
        f"covariance {found.values[0] / (rows.n - 1):.4g}" if kind == "mca" else f"correlation {found.values[0]:.4g}"
    )
    certificate = {
        **of_rows(kind, rows, _amplification(rows)),
        "groups": names,
        **certificate,
        "caveat": _of_chance(int(certificate["permutations"])),
        "maps": None,
        "verdict": f"{len(found.values)} pairs of directions of {names[0]} and {names[1]}, the first with {first}{said}",
    }
    return Answer(kind, arrays, coordinates, _maps_of_pair(rows.centred.chain, groups, found), certificate)


def _maps_of_pair(chain: Chain, groups: tuple[_Group, _Group], found: Pair) -> Maps | None:
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
    return Maps(coefficients, (SIDE,), "each", scores_of, np.stack(found.scores), _Sides(factors), overlaps=overlaps)


def _orders(n: int, count: int, seed: int) -> Any:
    if count < 0:
        raise ConfigError(f"permutations is {count}, but 0 or more is allowed", key="permutations")
    return permutations(n, count, seed)


def _of_chance(count: int) -> str:
    if not count:
        return ""
    return "permutations suppose that rows can be exchanged: of rows that follow each other in time, which are alike, p values are too small"


def _of_sides(chain: Chain, projected: Matrix) -> Matrix:
    return np.stack([chain.apply(one) for one in projected])


def _amplification(rows: Samples) -> float:
    return rows.centred.transformed.amplification


def _size(products: AnyProducts, scaling: BlockScaling) -> float:
    """What the products of a group are divided by, times the divisor of variances."""
    if scaling == "total_variance":
        return products.total
    return float(eigh(matrix_of(products), lambda *_: 1).eigenvalues[0])
