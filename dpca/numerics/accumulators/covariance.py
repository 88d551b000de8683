"""S = X_c' X_c, d x d, as a sum over panels of samples, for data with fewer features than samples.

Products are those of the Gram matrix with sides exchanged, and as exact (`dpca.numerics.accumulators.gram`). Each panel is
about its own means; what they differ by from the means of all is added as the tally says (Chan, Golub and LeVeque,
`dpca.numerics.accumulators.tallies.Moments`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Self

import numpy as np

from dpca.numerics.accumulators.factors import F64
from dpca.numerics.accumulators.gram import Gram
from dpca.numerics.accumulators.tallies import Corrections
from dpca.numerics.preprocess import Panel


class Covariance(Gram):
    """The scatter matrix of some samples: n - ddof times their covariance."""

    def of_slab(self, panels: Iterable[Panel]) -> Iterator[Panel]:
        """Add the panels of a slab; yields each when it is in."""
        found = []
        for panel in panels:
            self.exact &= self.add(panel.matrix) and panel.integers
            found.append(self.tally.add(panel))
            yield panel
        self._correct(found)

    def merge(self, other: Gram) -> Self:
        """Add another span's sum, in place."""
        self.matrix += other.matrix
        self.exact &= other.exact
        self._correct([self.tally.merge(other.tally)])
        return self

    def _correct(self, found: list[Corrections]) -> None:
        for sign, vectors in ((1, [c.lacks for c in found]), (-1, [c.exceeds for c in found])):
            rows = [vector for vector in vectors if vector is not None]
            if rows:
                stacked = np.array(rows)
                self.matrix += sign * (stacked.T @ stacked)

    def squares(self, center: bool) -> F64:
        """What the sum of squares of each feature is by the products, (m,)."""
        return np.diagonal(self.matrix).copy()

    def scale(self, factors: F64) -> None:
        """Multiply features by factors, (m,), in place."""
        self.matrix *= factors[:, None]
        self.matrix *= factors

    def recenter(self) -> None:
        """Nothing: panels were centred, and joined with regard to their means."""

    @staticmethod
    def held(m: int, working_dtype: np.dtype[Any]) -> dict[str, int]:
        """Bytes of what the accumulation of a span holds, by name."""
        return {**Gram.held(m, working_dtype), "correction for the means": 2 * 8 * m * m}

    @staticmethod
    def held_to_merge(m: int) -> dict[str, int]:
        """Bytes of what adding up spans holds, by name, besides those that wait."""
        return {"Gram matrix": 8 * m * m, "correction for the means": 2 * 8 * m * m}
