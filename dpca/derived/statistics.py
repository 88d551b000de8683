"""Groups of rows compared: PERMANOVA of their distances, MANOVA of their leading scores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse, special, stats

from dpca.derived.operators import EPS
from dpca.errors import ConfigError, DataError
from dpca.types import F64

FEW = 12
"""Up to so many groups, sums over their members are products of full matrices; of more, of sparse ones."""
TIES = 1e-10
"""Sums of squares that differ by less than this share of their total are the same."""


@dataclass(frozen=True, eq=False)
class Grouped:
    """Rows in groups of two or more."""

    names: NDArray[Any]
    """Labels of the groups, sorted, (g,)."""
    codes: NDArray[np.intp]
    """The number of each row's group, (n,)."""

    @classmethod
    def of(cls, labels: NDArray[Any], key: str = "by") -> Self:
        """Rows by their labels, (n,)."""
        names, codes = coded(labels)
        sizes = np.bincount(codes)
        if len(names) == 1:
            raise ConfigError(
                f"all {len(codes):,} rows have the label {names[0]}, and there is no other group to compare them with",
                "Give labels that differ.",
                key=key,
            )
        alone = names[sizes == 1]
        if alone.size:
            others = f", and so have {len(alone) - 1:,} others" if len(alone) > 1 else ""
            raise ConfigError(
                f"label {alone[0]} has one row alone{others} (of {len(names):,} labels of {len(codes):,} rows): a group of one has no spread",
                "Leave such rows out (select), or give labels that several rows share.",
                key=key,
            )
        return cls(names, codes)

    @property
    def sizes(self) -> NDArray[np.intp]:
        """Rows in each group, (g,)."""
        return np.bincount(self.codes)

    @property
    def residual_degrees(self) -> int:
        """n - g."""
        return len(self.codes) - len(self.names)


def coded(labels: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.intp]]:
    """Labels that differ, sorted, and the number of each row's among them."""
    labels = np.asarray(labels)
    missing = np.array([one is None or one == "" for one in labels.tolist()]) | (labels != labels)
    if missing.any():
        raise DataError(
            f"the label of row {int(np.argmax(missing))} is missing",
            "Give each row a label, or select those that have one.",
        )
    names, codes = np.unique(labels.astype(str) if labels.dtype.kind == "O" else labels, return_inverse=True)
    return names, codes


@dataclass(frozen=True, eq=False)
class PermanovaTest:
    """Sums of squares between and within groups, and F beside those of permuted labels."""

    between: float
    """tr(P P_g), with the products P of rows about their mean and the projector P_g on groups."""
    total: float
    """tr P."""
    degrees: tuple[int, int]
    """g - 1 and n - g."""
    permuted: F64
    """F of each permutation, (permutations,)."""
    p_value: float
    """(1 + number of permutations whose F is not smaller) / (1 + permutations); NaN without permutations."""

    @property
    def within(self) -> float:
        """tr(P (I - P_g))."""
        return self.total - self.between

    @property
    def pseudo_f(self) -> float:
        """Pseudo-F: the ratio of mean squares between and within groups."""
        return float(_ratio(self.between, self.total, self.degrees))

    @property
    def r2(self) -> float:
        """The share of groups in the total."""
        return self.between / self.total


def _ratio(between: Any, total: float, degrees: tuple[int, int]) -> Any:
    first, second = degrees
    with np.errstate(divide="ignore"):
        return np.divide(between, first) / np.maximum(np.divide(total - between, second), 0.0)


def permanova(
    matrix: F64, groups: Grouped, permutations: int = 999, seed: int = 0, strata: NDArray[np.intp] | None = None
) -> PermanovaTest:
    """Permutational analysis of variance of Euclidean distances (Anderson, Austral Ecology 26, 2001), which follow from products.

    Labels are permuted by a generator of their own, `seed`: the same draws as scikit-bio's for the same seed. 2 n^2 operations a permutation,
    times the number of groups where these are few.

    Parameters
    ----------
    matrix : products of rows about their mean, (n, n)
    permutations : of labels; 0 for none
    strata : the number of each row's block, (n,): labels are permuted within blocks
    """
    if permutations < 0:
        raise ConfigError(f"permutations is {permutations}, but 0 or more is allowed", key="permutations")
    codes, total = groups.codes, float(np.trace(matrix))
    n, g = len(codes), len(groups.names)
    degrees = g - 1, n - g
    rng = np.random.default_rng(seed)
    blocks = (
        [np.arange(n)] if strata is None else [np.flatnonzero(strata == block) for block in range(strata.max() + 1)]
    )
    between, permuted = float(_between(matrix, codes[None], groups.sizes)[0]), np.empty(permutations)
    each = max(1, n // (2 * g))  # so that sums take half as much as the products
    for start in range(0, permutations, each):
        drawn = np.empty((min(each, permutations - start), n), np.intp)
        for labels in drawn:
            for block in blocks:
                labels[block] = rng.permutation(codes[block])
        permuted[start : start + len(drawn)] = _between(matrix, drawn, groups.sizes)
    reached = int(np.count_nonzero(permuted >= between - TIES * total))
    p_value = (1 + reached) / (1 + permutations) if permutations else float("nan")
    return PermanovaTest(between, total, degrees, np.asarray(_ratio(permuted, total, degrees)), p_value)


def _between(matrix: F64, codes: NDArray[np.intp], sizes: NDArray[np.intp]) -> F64:
    """Sums of squares between groups, sum_g 1_g' P 1_g / n_g, of some labels of the rows, (labels, n)."""
    (count, n), g = codes.shape, len(sizes)
    rows, columns = (codes + g * np.arange(count)[:, None]).ravel(), np.tile(np.arange(n), count)
    members: Any = sparse.csr_array((np.ones(count * n), (rows, columns)), shape=(count * g, n))
    if g <= FEW:
        members = members.toarray()
    sums = (members @ matrix).reshape(count, g, n)
    of_own = np.take_along_axis(sums, codes[:, None, :], axis=1)[:, 0]
    return np.asarray(np.maximum((of_own / sizes[codes]).sum(axis=1), 0.0))


def arrangements(groups: Grouped, strata: NDArray[np.intp] | None = None) -> float:
    """The number of ways to arrange the labels among the rows that may differ in F; infinite beyond what a float64 holds."""
    blocks = np.zeros(len(groups.codes), np.intp) if strata is None else strata
    counts = np.zeros((blocks.max() + 1, len(groups.names)), np.intp)
    np.add.at(counts, (blocks, groups.codes), 1)
    ways = special.gammaln(counts.sum(axis=1) + 1).sum() - special.gammaln(counts + 1).sum()
    # Groups with the same number of rows in each block can be exchanged, and the groups stay the same.
    alike = np.unique(counts, axis=1, return_counts=True)[1]
    with np.errstate(over="ignore"):
        return float(np.round(np.exp(ways - special.gammaln(alike + 1).sum())))


@dataclass(frozen=True)
class Test:
    """A statistic, with its approximation by F."""

    value: float
    f_value: float
    degrees: tuple[float, float]

    @property
    def p_value(self) -> float:
        """P value of F; NaN where its degrees of freedom are not positive."""
        return float(stats.f.sf(self.f_value, *self.degrees)) if min(self.degrees) > 0 else float("nan")


@dataclass(frozen=True, eq=False)
class ManovaTests:
    """Four statistics of the same canonical correlations."""

    correlations2: F64
    """Squared canonical correlations of scores and groups, descending, (min(k, g - 1),)."""
    wilks: Test
    pillai: Test
    hotelling_lawley: Test
    roy: Test


def manova(vectors: F64, groups: Grouped) -> ManovaTests:
    """Multivariate analysis of variance of rows whose variables are orthonormal, as eigenvectors are.

    With orthonormal U about its mean, squared canonical correlations are the eigenvalues of U' P_g U = H (H + E)^-1. The approximations by F
    are those of SAS and statsmodels (Rao for Wilks' lambda; McKeon, Biometrika 61, 1974, for the trace of Hotelling and Lawley, where n - g
    allows it, else Pillai and Samson; an upper bound for Roy's root).

    Parameters
    ----------
    vectors : U, (n, k), about the mean of the rows
    """
    p, v, q = vectors.shape[1], groups.residual_degrees, len(groups.names) - 1
    if p > v:
        raise ConfigError(
            f"n_components is {p}, but 1 to {v} is allowed: {len(vectors):,} rows less {q + 1} groups leave {v} directions of spread within",
            "Ask for fewer components, or merge groups.",
            key="n_components",
        )
    sums = np.zeros((q + 1, p))
    np.add.at(sums, groups.codes, vectors)
    s = min(p, q)
    correlations2 = np.asarray(
        np.linalg.svd(sums / np.sqrt(groups.sizes)[:, None], compute_uv=False)[:s] ** 2, np.float64
    )
    if correlations2[0] >= 1 - len(vectors) * EPS:
        raise DataError(
            "a combination of the scores does not vary within the groups at all, and statistics of their spread are infinite",
            "Ask for fewer components, or give labels that rows differ from.",
        )
    ratios = correlations2 / (1 - correlations2)
    m, n = (abs(p - q) - 1) / 2, (v - p - 1) / 2
    wilks, pillai, trace, root = np.prod(1 - correlations2), correlations2.sum(), ratios.sum(), ratios[0]
    squares = p * p + q * q - 5
    t = np.sqrt((p * p * q * q - 4) / squares) if squares > 0 else 1.0
    degrees = float(p * q), (v - (p - q + 1) / 2) * t - (p * q - 2) / 2
    power = wilks ** (1 / t)
    of_wilks = Test(float(wilks), float((1 - power) / power * degrees[1] / degrees[0]), (degrees[0], float(degrees[1])))
    degrees = s * (2 * m + s + 1), s * (2 * n + s + 1)
    of_pillai = Test(float(pillai), float(degrees[1] / degrees[0] * pillai / (s - pillai)), degrees)
    if n > 0:
        b = (p + 2 * n) * (q + 2 * n) / (2 * (2 * n + 1))  # of McKeon's times n - 1, which may be 0
        degrees = float(p * q), 4 + (p * q + 2) * (n - 1) / (b - (n - 1))
        of_trace = Test(float(trace), float(degrees[1] / degrees[0] * trace * 2 * n / (degrees[1] - 2)), degrees)
    else:
        degrees = s * (2 * m + s + 1), 2 * (s * n + 1)
        of_trace = Test(float(trace), float(degrees[1] / degrees[0] / s * trace), degrees)
    largest = max(p, q)
    degrees = float(largest), float(v - largest + q)
    return ManovaTests(
        correlations2,
        of_wilks,
        of_pillai,
        of_trace,
        Test(float(root), float(degrees[1] / degrees[0] * root), degrees),
    )
