"""Products of the first samples from an earlier run, which a pass over more samples need not make again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dpca.numerics.ladder import Rung
from dpca.types import F64


@dataclass(frozen=True)
class KnownGram:
    """The Gram matrix of the first samples."""

    n_samples: int
    """Their number."""
    rung: Rung
    """Solver and precision of its products, which those of the others have, too."""
    rows: Callable[[int, slice], F64]
    """Rows of K_g, by the number of the group of features: about the mean of these samples where they are centred, and not
    scaled against other groups."""
    repeats: bool = False
    """Whether new samples may have the values of old ones."""

    def of(self, rung: Rung) -> int:
        """The number of samples whose products a solver need not make: those of another precision are made anew."""
        return self.n_samples if rung == self.rung else 0
