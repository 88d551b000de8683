"""One sum for each group of features, of the same samples: K_g, whose sum over the groups is K.

Features are divided into named groups (inputs side by side, or labels), and for validation into folds, which are groups of spans, or of
features, that lie between each other. K is the sum over the named groups where there are several, else that over the folds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpca.numerics.accumulators import Accumulator
from dpca.numerics.accumulators.gram import eigh
from dpca.numerics.accumulators.tallies import Counts, FeatureTally
from dpca.numerics.panels import BlockScaling
from dpca.numerics.sketch import Sketch
from dpca.types import F64


class Mergeable(Protocol):
    """Value that spans give, and that is added up."""

    def merge(self, other: Any, /) -> Any:
        """Add another one, in place."""
        ...


S = TypeVar("S", bound=Mergeable)


@dataclass(frozen=True)
class OfGroup(Generic[S]):
    """Value of a span, and the group that the span is of."""

    group: int
    sum: S


@dataclass(frozen=True)
class ByGroup(Generic[S]):
    """The sums of all groups, in their order."""

    sums: tuple[S, ...]

    def merge(self, part: OfGroup[S]) -> Self:
        """Add what a span gives to the sum of its group, in place."""
        self.sums[part.group].merge(part.sum)
        return self


Cell = tuple[int, int]
"""The numbers of a named group and of a fold."""


@dataclass(frozen=True)
class OfCells:
    """Values of a span: a sum for each named group and fold that it has features of."""

    named: NDArray[np.int64]
    """Numbers of the named groups, (cells,)."""
    folds: NDArray[np.int64]
    """Numbers of the folds, (cells,)."""
    sums: tuple[Accumulator, ...] = field(metadata={"any_number": True})

    @classmethod
    def of(cls, sums: Mapping[Cell, Accumulator]) -> Self:
        """The sums by cell, in the order of cells."""
        cells = sorted(sums)
        named, folds = np.array(cells, np.int64).reshape(-1, 2).T.copy()
        return cls(named, folds, tuple(sums[cell].close() for cell in cells))


@dataclass(frozen=True)
class GroupedMatrices:
    """The matrices of all groups, in their order."""

    sums: tuple[Accumulator, ...]
    """Summands of K: the named groups; where there is but one of these, the folds, if there are any."""
    folds: tuple[Accumulator, ...] = ()
    """The folds beside several named groups."""
    of_folds: bool = False
    """Whether `sums` are the folds."""

    @classmethod
    def empty(cls, n_named: int, n_folds: int, nothing: Callable[[], Accumulator]) -> Self:
        """The sums over no data."""
        of_folds = n_named == 1 and n_folds > 0
        sums = tuple(nothing() for _ in range(n_folds if of_folds else n_named))
        return cls(sums, () if of_folds else tuple(nothing() for _ in range(n_folds)), of_folds)

    def merge(self, part: OfCells) -> Self:
        """Add what a span gives to the sums of its groups, in place."""
        for named, fold, one in zip(part.named, part.folds, part.sums, strict=True):
            self.sums[fold if self.of_folds else named].merge(one)
            if self.folds:
                self.folds[fold].merge(one)
        return self

    def join(self, other: GroupedMatrices) -> Self:
        """Add sums of the same groups over other spans, in place."""
        for mine, theirs in zip(self.every, other.every, strict=True):
            mine.merge(theirs)
        return self

    @property
    def every(self) -> tuple[Accumulator, ...]:
        """All sums."""
        return (*self.sums, *self.folds)

    @property
    def named(self) -> tuple[Accumulator, ...]:
        """The sums of several named groups; none where all features are in one."""
        return () if self.of_folds or len(self.sums) == 1 else self.sums

    @property
    def for_validation(self) -> tuple[Accumulator, ...]:
        """The folds."""
        return self.sums if self.of_folds else self.folds

    @property
    def counts(self) -> Counts:
        """Counts while the data were read, in all groups."""
        return counted(one.tally.counts for one in self.sums)

    @property
    def matrix(self) -> F64:
        """The first of the matrices: all are of one size."""
        return self.sums[0].matrix

    def squares(self, center: bool) -> F64:
        """`Accumulator.squares` of the sum over the groups."""
        return np.asarray(sum(one.squares(center) for one in self.sums))

    def times(self, vectors: F64) -> F64:
        """`Accumulator.times` of the sum over the groups."""
        return np.asarray(sum(one.times(vectors) for one in self.sums))

    def total(self) -> Accumulator:
        """The sum over the groups, added in their order; the sum itself where there is one group."""
        first, *others = self.sums
        if not others:
            return first
        tally = first.tally
        assert isinstance(tally, FeatureTally)
        total = first.emptied(FeatureTally.like(tally))
        for one in self.sums:
            total.merge(one)
        return total


def counted(parts: Iterable[Counts]) -> Counts:
    """Counts of several groups as one."""
    counts = Counts()
    for one in parts:
        counts.merge(one)
    return counts


ROUNDING = 2.0**-46
"""Relative error of the root of a sum of squares in float64: up to 8e-15 where columns repeat (`make claims`)."""


@dataclass(frozen=True)
class BlockFactors:
    """Factors of the features of each group."""

    values: F64
    """(groups,)."""
    error: float = 0.0
    """Largest relative error of a factor, which every singular value then has beside its own."""

    @classmethod
    def of(
        cls,
        sums: Sequence[Accumulator],
        scaling: BlockScaling,
        divisor: float,
        squares: Sequence[float],
        sketches: Sequence[Sketch],
    ) -> Self:
        """The factors by which groups are scaled against each other.

        first_eigenvalue : 1 / sqrt(lambda_1 of the group's own covariance), so that no group decides the first component
            by its size: multiple factor analysis (Escofier and Pages, Computational Statistics & Data Analysis 18, 1994)
        total_variance : 1 / sqrt(the sum of its variances), so that groups count alike, however many features they have

        A group without variance keeps the factor 1. For the only group of a run it is 1, too: a common factor changes no share.

        Parameters
        ----------
        sums : centred, and scaled feature by feature
        divisor : of variances
        squares : the sum of squares of each group, added up without products
        sketches : of each group
        """
        if scaling == "none" or len(sums) == 1:
            return cls(np.ones(len(sums)))
        found = [(square, ROUNDING) for square in squares]
        if scaling == "first_eigenvalue":
            found = [_first(one, sketch) for one, sketch in zip(sums, sketches, strict=True)]
        sizes = np.array([size for size, _ in found]) / divisor
        factors = np.where(sizes > 0, 1.0 / np.sqrt(np.where(sizes > 0, sizes, 1.0)), 1.0)
        return cls(factors, max(error for _, error in found))


def weigh(sum_: Accumulator, factor: float) -> None:
    """Multiply the features of a sum by a factor, in place."""
    tally = sum_.tally
    assert isinstance(tally, FeatureTally)
    if factor == 1:
        return
    sum_.matrix *= factor**sum_.power
    sum_.exact = False
    for products in (tally.squares, tally.sketch, tally.mean_product):
        products *= factor**2
    tally.mean_norm2 *= factor**2
    tally.fitted *= factor**2


def shares(sums: tuple[F64, ...], power: int, vectors: F64, eigenvalues: F64) -> F64:
    """The share of each group in the variance of each component, v' K_g v / lambda, (groups, k); 0 where lambda is 0.

    Parameters
    ----------
    sums : K_g where `power` is 2, else R_g with K_g = R_g'R_g, (n, n) each
    vectors : (n, k), of norm 1
    eigenvalues : (k,)
    """
    parts = np.array([_quadratic(matrix, power, vectors) for matrix in sums])
    found: F64 = np.divide(parts, eigenvalues, out=np.zeros_like(parts), where=eigenvalues > 0)
    return found


def _quadratic(matrix: F64, power: int, vectors: F64) -> F64:
    product = matrix @ vectors
    return np.asarray(np.einsum("nk,nk->k", vectors if power == 2 else product, product), np.float64)


def _first(one: Accumulator, sketch: Sketch) -> tuple[float, float]:
    """The largest eigenvalue of K_g, and the relative error of its root, as the sketch measures it."""
    if not one.matrix.any():
        return 0.0, 0.0
    if one.power == 1:
        sigma = float(np.linalg.norm(one.matrix, 2))
        return sigma**2, sketch.backward_error(one.times(sketch.columns), sigma) / sigma
    factors = eigh(one.matrix, lambda *_: 1)
    largest = float(factors.eigenvalues[0])
    return largest, float(sketch.residuals(factors.vectors, factors.eigenvalues[:1])[0]) / (2 * largest)
