"""Accumulators: the sum that a pass builds for each solver, one contract and one file each, independent of schedulers.

An accumulator sees the data as panels P, m x w: the kept side by a part of the streamed side (all samples of some
features, or all features of some samples). `of_slab` adds the panels of a slab, `merge` adds the sum of another span,
and `finish` decomposes the complete sum. Everything else that a pass counts is in the tally of the accumulator
(`dpca.numerics.accumulators.tallies`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Protocol, Self

import numpy as np

from dpca.numerics.accumulators.border import Border
from dpca.numerics.accumulators.covariance import Covariance
from dpca.numerics.accumulators.factors import Choose, Factors
from dpca.numerics.accumulators.gram import GramAccumulator
from dpca.numerics.accumulators.tallies import FeatureTally, Moments, Tally
from dpca.numerics.accumulators.tsqr import Tsqr
from dpca.numerics.panels import Rules, SlabPanel
from dpca.slabs import Plan
from dpca.types import F64


class Accumulator(Protocol):
    """The contract of the solvers."""

    matrix: F64
    """The sum, (m, m)."""
    tally: Tally
    exact: bool
    """Whether nothing was rounded."""
    power: int
    """Power of sigma in the matrix: 2 where it squares the condition number, else 1."""

    @classmethod
    def empty(cls, m: int, tally: Tally) -> Self:
        """The sum over no data."""
        ...

    def of_slab(self, panels: Iterable[SlabPanel]) -> Iterator[SlabPanel]:
        """Add the panels of a slab; yields each after it is added."""
        ...

    def close(self) -> Self:
        """End a span: release what only `of_slab` needs, before the sum waits or is sent."""
        ...

    def merge(self, other: Self) -> Self:
        """Add another span's sum, in place."""
        ...

    def emptied(self, tally: Tally) -> Self:
        """The sum over no data, of the same kind."""
        ...

    def compared(self, center: bool, shares: F64 | None, columns: F64) -> tuple[F64, F64]:
        """Sum of products, and the same sum without them, (1,) each.

        Parameters
        ----------
        shares : as for `squares`
        columns : those of the sketch
        """
        ...

    def squares(self, center: bool, shares: F64 | None = None) -> F64:
        """Sums of squares of X_c from the products, to be checked: one in all, or one for each of the m.

        Parameters
        ----------
        shares : of the samples in the mean, (m,), which sum to 1; equal if None
        """
        ...

    def times(self, vectors: F64) -> F64:
        """X_c X_c' V, or X_c' X_c V, of the data added so far, (m, j)."""
        ...

    def scale(self, factors: F64) -> None:
        """Multiply what is kept by factors, (m,): scales of features, known only after all samples, or roots of weights."""
        ...

    def recenter(self, shares: F64 | None = None) -> None:
        """Remove the mean that rounding left in a matrix over samples, in place; `shares` as for `squares`."""
        ...

    def finish(self, choose: Choose, leading: int | None = None) -> Factors:
        """Decompose the sum.

        Parameters
        ----------
        choose : gives the number of components from the eigenvalues
        leading : the number of components for which the leading eigenvalues are enough; None where `choose` needs all
        """
        ...

    @staticmethod
    def held(m: int, working_dtype: np.dtype[Any]) -> dict[str, int]:
        """Bytes that the accumulation of a span holds, by name of the array."""
        ...

    @staticmethod
    def held_to_merge(m: int) -> dict[str, int]:
        """Bytes that adding up spans holds, by name, without the spans that wait."""
        ...

    @staticmethod
    def held_to_finish(m: int, n_components: int) -> dict[str, int]:
        """Bytes that `finish` holds, by name of the array."""
        ...


SOLVERS: dict[str, type[Accumulator]] = {"gram_eigh": GramAccumulator, "covariance_eigh": Covariance, "tsqr": Tsqr}


def nothing(solver: str, plan: Plan, rules: Rules, columns: F64, n_known: int = 0) -> Accumulator:
    """The sum of a solver over no data.

    Parameters
    ----------
    columns : those of the sketch
    n_known : number of the first samples whose products are known, and not added up
    """
    tally = tally_of(plan, rules, columns)
    return Border.after(n_known, plan.n_kept, tally) if n_known else SOLVERS[solver].empty(plan.n_kept, tally)


def tally_of(plan: Plan, rules: Rules, columns: F64) -> Tally:
    """An empty tally for the streamed side of a plan; `columns` are those of the sketch."""
    if plan.keeps == "samples":
        return FeatureTally.empty(plan.n_kept, columns.shape[1], rules.missing == "pairwise")
    return Moments.empty(plan.n_kept, rules.center, columns)
