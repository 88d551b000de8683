"""What a pass adds up, by solver: one contract, one file each. NumPy only; they know no scheduler.

An accumulator sees the data as panels P, m x w: the side that is kept, by a part of the side that streams by (all
samples of some features, or all features of some samples). `of_slab` adds a slab panel by panel, `merge` another
span's sum, and `finish` decomposes what is there in the end. What a panel counts for besides its product is its
tally's (`dpca.numerics.accumulators.tallies`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Protocol, Self

import numpy as np

from dpca.numerics.accumulators.covariance import Covariance
from dpca.numerics.accumulators.factors import F64, Choose, Factors
from dpca.numerics.accumulators.gram import Gram
from dpca.numerics.accumulators.tallies import FeatureTally, Moments, Tally
from dpca.numerics.accumulators.tsqr import Tsqr
from dpca.numerics.preprocess import Panel
from dpca.slabs import Plan


class Accumulator(Protocol):
    """The contract of the solvers."""

    matrix: F64
    """What is added up, (m, m)."""
    tally: Tally
    exact: bool
    """Whether nothing was rounded."""
    power: int
    """Of sigma, that the matrix holds: 2 where it squares the condition number, else 1."""

    @classmethod
    def empty(cls, m: int, tally: Tally) -> Self:
        """The sum over nothing."""
        ...

    def of_slab(self, panels: Iterable[Panel]) -> Iterator[Panel]:
        """Add the panels of a slab; yields each when it is in."""
        ...

    def close(self) -> Self:
        """The end of a span: let go of what only `of_slab` needs, before the sum waits or travels."""
        ...

    def merge(self, other: Self) -> Self:
        """Add another span's sum, in place."""
        ...

    def squares(self, center: bool) -> F64:
        """What the sums of squares of X_c are by the products: in all, or of each of the m; to be checked."""
        ...

    def times(self, vectors: F64) -> F64:
        """X_c X_c' V, or X_c' X_c V, of what is there; (m, j)."""
        ...

    def scale(self, factors: F64) -> None:
        """Multiply the kept features by factors that only all samples gave, (m,)."""
        ...

    def recenter(self) -> None:
        """Remove what rounding left of the mean from a matrix over samples, in place."""
        ...

    def finish(self, choose: Choose) -> Factors:
        """Decompose; `choose` says how many components, once the eigenvalues are known."""
        ...

    @staticmethod
    def held(m: int, working_dtype: np.dtype[Any]) -> dict[str, int]:
        """Bytes of what the accumulation of a span holds, by name."""
        ...

    @staticmethod
    def held_to_merge(m: int) -> dict[str, int]:
        """Bytes of what adding up spans holds, by name, besides those that wait."""
        ...

    @staticmethod
    def held_to_finish(m: int, n_components: int) -> dict[str, int]:
        """Bytes of what `finish` holds, by name."""
        ...


SOLVERS: dict[str, type[Accumulator]] = {"gram_eigh": Gram, "covariance_eigh": Covariance, "tsqr": Tsqr}


def tally_of(plan: Plan, center: bool, columns: F64) -> Tally:
    """What is to be counted of what streams by, empty; `columns` are those of the sketch."""
    if plan.keeps == "samples":
        return FeatureTally.empty(plan.n_kept, columns.shape[1])
    return Moments.empty(plan.n_kept, center, columns)
