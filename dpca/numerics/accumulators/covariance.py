"""S = X_c' X_c, d x d, as a sum over panels of samples, for data with fewer features than samples.

Products are those of the Gram matrix with the sides exchanged, and as exact (`dpca.numerics.accumulators.gram`). Each panel
is centred by its own means; the tally gives the corrections for their differences from the means of all samples (Chan, Golub
and LeVeque, `dpca.numerics.accumulators.tallies.Moments`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from dpca.numerics.accumulators.gram import GramAccumulator
from dpca.numerics.accumulators.tallies import Corrections
from dpca.numerics.panels import SlabPanel
from dpca.types import F64

TOGETHER = 64
"""Panels whose corrections are made together, before the span ends."""


@dataclass
class Covariance(GramAccumulator):
    """The scatter matrix of some samples: n - ddof times their covariance."""

    _waiting: list[Corrections] = field(default_factory=list, repr=False, compare=False)
    """Corrections of panels that were added, which are made together: each takes as long as reading and writing the matrix."""

    def of_slab(self, panels: Iterable[SlabPanel]) -> Iterator[SlabPanel]:
        """Add the panels of a slab; yields each after it is added."""
        for panel in panels:
            self.exact &= self.add_panel(panel)
            self._waiting.append(self.tally.add(panel))
            yield panel
        if len(self._waiting) >= TOGETHER:
            self._correct(self._waiting)

    def close(self) -> Self:
        """End a span: correct for the means of its last panels, too."""
        self._correct(self._waiting)
        return super().close()

    def merge(self, other: GramAccumulator) -> Self:
        """Add another span's sum, in place."""
        self.matrix += other.matrix
        self.exact &= other.exact
        self._correct([self.tally.merge(other.tally)])
        return self

    def _correct(self, corrections: list[Corrections]) -> None:
        for add, vectors in ((np.add, [c.lacks for c in corrections]), (np.subtract, [c.exceeds for c in corrections])):
            rows = [vector for vector in vectors if vector is not None]
            if rows:
                stacked = np.array(rows)
                add(self.matrix, stacked.T @ stacked, out=self.matrix)
        corrections.clear()

    def squares(self, center: bool, shares: F64 | None = None) -> F64:
        """Sum of squares of each feature from the products, (m,)."""
        return np.diagonal(self.matrix).copy()

    def recenter(self, shares: F64 | None = None) -> None:
        """Nothing to do: panels are centred, and corrected for their means when they are added."""

    @staticmethod
    def held(m: int, working_dtype: np.dtype[Any]) -> dict[str, int]:
        """Bytes that the accumulation of a span holds, by name of the array."""
        vectors = 4 * 8 * TOGETHER * m
        return {**GramAccumulator.held(m, working_dtype), "correction for the means": 8 * m * m + vectors}

    @staticmethod
    def held_to_merge(m: int) -> dict[str, int]:
        """Bytes that adding up spans holds, by name, without the spans that wait."""
        return {"Gram matrix": 8 * m * m, "correction for the means": 8 * m * m}
