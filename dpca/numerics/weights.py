"""Weights of samples: how often each was observed, or how much it is trusted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dpca.types import F64

Kind = Literal["frequency", "reliability"]
ROUNDING = 1e-12
"""A divisor below this share of the sum of weights is what rounding left of 0."""


def mean_of(rows: F64, shares: F64 | None) -> F64:
    """The mean of the rows of a matrix, by their shares; equal ones if None."""
    mean: F64 = rows.mean(axis=0) if shares is None else shares @ rows
    return mean


@dataclass(frozen=True)
class SampleWeights:
    """Positive weights w of samples. Means are weighted, and K becomes D^(1/2) K D^(1/2) with D = diag(w)."""

    values: F64
    """w, (n_samples,)."""
    kind: Kind = "frequency"
    """"frequency": a sample of weight 2 stands for two equal ones; "reliability": only ratios of weights matter."""
    name: str = "sample weights"
    """Name in error messages."""

    @property
    def roots(self) -> F64:
        """sqrt(w), (n_samples,)."""
        return np.sqrt(self.values)

    @property
    def total(self) -> float:
        """sum(w)."""
        return float(self.values.sum())

    @property
    def shares(self) -> F64:
        """w / sum(w), (n_samples,)."""
        return self.values / self.total

    @property
    def n_effective(self) -> float:
        """The number of samples that they are worth: sum(w) for frequencies, else sum(w)^2 / sum(w^2) (Kish, 1965, 11.2)."""
        return self.total if self.kind == "frequency" else self.total**2 / float((self.values**2).sum())

    def divisor(self, ddof: int) -> float:
        """The divisor of a variance of all samples."""
        return float(self.divisors(np.ones((len(self.values), 1)), ddof)[0])

    def divisors(self, present: NDArray[Any], ddof: int) -> F64:
        """The divisors of variances of the samples that are present, (features,); 0 where there are too few.

        sum(w) - ddof for frequencies, sum(w) - ddof sum(w^2) / sum(w) for reliabilities: both unbiased with ddof = 1
        (GNU Scientific Library, weighted variance; Rimoldini, Astron. Comput. 5, 2014, appendix A).

        Parameters
        ----------
        present : (n_samples, features), 1 where a value is present, else 0
        """
        total = self.values @ present
        lost = float(ddof) * np.ones_like(total)
        if self.kind == "reliability":
            lost *= np.divide(self.values**2 @ present, total, out=np.zeros_like(total), where=total > 0)
        divisors: F64 = np.where(total - lost > ROUNDING * total, total - lost, 0.0)
        return divisors
