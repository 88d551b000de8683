"""X_c' X_c, d x d, as a sum over blocks of samples, for data with fewer features than samples.

No block knows the mean of all, so each is centred by its own, and a join of two adds what their means differ
by: the pairwise update of Chan, Golub and LeVeque (The American Statistician 37, 1983, eq. 2.1), which loses no
digits to the mean as X'X - n m m' does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from dpca.accumulators.factors import F64, Choose, Factors, Tally
from dpca.accumulators.gram import Gram, eigh
from dpca.preprocess import Panel


@dataclass
class Moments:
    """How many samples, and their mean."""

    mean: F64
    """(n_features,)."""
    count: int = 0

    def join(self, count: int, mean: F64) -> F64:
        """Join others; returns c with scatter = scatter_a + scatter_b + c c', (n_features,)."""
        total = self.count + count
        difference = mean - self.mean
        self.mean = self.mean + difference * (count / total)
        correction: F64 = difference * np.sqrt(self.count * count / total)
        self.count = total
        return correction


@dataclass
class Covariance(Gram):
    """The scatter matrix of some samples about their mean."""

    moments: Moments = field(default_factory=lambda: Moments(np.zeros(0)))

    @classmethod
    def empty(cls, m: int) -> Self:
        """The sum over nothing."""
        return cls(np.zeros((m, m)), Tally(np.zeros(m)), moments=Moments(np.zeros(m)))

    def of_slab(self, panels: Iterable[Panel]) -> Iterator[Panel]:
        """Add blocks of samples; yields each when it is in."""
        for panel in super().of_slab(panels):
            if panel.center is not None:
                self._correct(self.moments.join(panel.count, panel.center))
            yield panel

    def merge(self, other: Gram) -> Self:
        """Add another span's sum, in place."""
        super().merge(other)
        if isinstance(other, Covariance) and other.moments.count:
            self._correct(self.moments.join(other.moments.count, other.moments.mean))
        return self

    def finish(self, center: bool, choose: Choose) -> Factors:
        """Eigendecomposition of the scatter matrix."""
        return eigh(self.matrix, choose)

    def _correct(self, difference: F64) -> None:
        self.matrix += np.outer(difference, difference)
        self.tally.squares += float(difference @ difference)

    @staticmethod
    def held(m: int, working_dtype: np.dtype[Any]) -> dict[str, int]:
        """Bytes of what the accumulation of a span holds, by name."""
        return {**Gram.held(m, working_dtype), "correction for the mean": 8 * m * m}
