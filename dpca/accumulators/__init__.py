"""What a pass adds up, by solver: one contract, one file each. NumPy only; they know no scheduler.

An accumulator sees the data as panels P of some features, all samples of each. `of_slab` adds a slab panel by
panel, `merge` another span's sum, and `finish` decomposes what is there in the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Protocol, Self

import numpy as np

from dpca.accumulators.factors import F64, Choose, Factors, Tally
from dpca.accumulators.gram import Gram
from dpca.accumulators.tsqr import Tsqr
from dpca.preprocess import Panel


class Accumulator(Protocol):
    """The contract of the solvers."""

    matrix: F64
    """What is added up, (m, m) with m samples."""
    tally: Tally
    exact: bool
    """Whether nothing was rounded."""

    def trace(self, center: bool) -> float:
        """Sum of the squared singular values so far."""
        ...

    @classmethod
    def empty(cls, m: int) -> Self:
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

    def finish(self, center: bool, choose: Choose) -> Factors:
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


SOLVERS: dict[str, type[Accumulator]] = {"gram_eigh": Gram, "tsqr": Tsqr}
