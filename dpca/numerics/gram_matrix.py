"""The Gram matrix of the samples, with all that has to be known of the data to use it without them.

The first pass gives it, a result keeps it, kernels are computed from it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from dpca.numerics.accumulators.tallies import Counts, shared_by
from dpca.numerics.ladder import Rung
from dpca.numerics.panels import FeatureCounts
from dpca.numerics.sketch import Sketch
from dpca.types import F64

UNKNOWN = 32
"""Assumed error of products, in eps, where no sketch tells (earlier versions): up to 28 were measured."""


@dataclass(frozen=True)
class SummedFeatures:
    """The features that a matrix over samples is summed over."""

    total: int
    """d; features that are left out are included."""
    counts: FeatureCounts = field(default_factory=FeatureCounts)
    groups: tuple[str, ...] = ("",)
    """Names of the groups of features that were added up; the one group of a dataset without groups has no name."""

    @property
    def present(self) -> int:
        """Features that are not left out."""
        return self.total - self.counts.left_out

    @property
    def counted(self) -> int:
        """Features of which it counts who has them."""
        return self.total - self.counts.uncounted


@dataclass(frozen=True, kw_only=True)
class GramMatrix:
    """K = X_c X_c' of n samples, the sum over all groups of features.

    With r and c it gives the products of samples before centring: X X' = K + r 1' + 1 r' + c 11'.
    """

    kept: F64
    """K, (n, n); or R of a QR factorization, upper triangular, with K = R'R, where the solver is tsqr."""
    mean_product: F64
    """r = X_c m~ with m~ = mean / scale, (n,)."""
    mean_norm2: float
    """c = m~' m~."""
    norms2: F64
    """Squared norm of each sample in X_c, added up without products, (n,)."""
    features: SummedFeatures
    rung: Rung
    """Solver and precision of the products."""
    exact: bool
    """Whether no product was rounded."""
    difference: float
    """Relative difference between the trace and the sum of squares without products."""
    sketch: Sketch | None
    """None where an earlier version kept none."""
    counts: Counts = field(default_factory=Counts)
    """Counts of what was met while the data were read."""
    absent: F64 | None = None
    """Features that neither of two samples has, (n, n), where K is divided by those that both have; else None."""

    @property
    def n_samples(self) -> int:
        return len(self.mean_product)

    @property
    def shared(self) -> F64 | None:
        """Features that both of two samples have, (n, n); None where they were not counted."""
        return None if self.absent is None else shared_by(self.absent, self.features.counted)

    @property
    def is_factor(self) -> bool:
        """Whether R is kept instead of K."""
        return self.rung.solver == "tsqr"

    def unweighted(self, roots: F64) -> GramMatrix:
        """K of samples as they are, from D^(1/2) K D^(1/2) with the roots of their weights, (n,); r, c and norms have no weights."""
        sketch = None if self.sketch is None else self.sketch.unscaled(roots)
        kept = self.kept / roots if self.is_factor else self.kept / roots / roots[:, None]
        return replace(self, kept=kept, sketch=sketch)

    @cached_property
    def matrix(self) -> F64:
        """K, (n, n)."""
        return self.kept.T @ self.kept if self.is_factor else self.kept

    @cached_property
    def rounding(self) -> float:
        """Error of an entry (i, j), relative to |x_i| |x_j|, as the sketch measures it."""
        eps = float(np.finfo(np.float64).eps)
        if self.sketch is None:
            return eps if self.exact else UNKNOWN * float(np.finfo(self.rung.dtype).eps)
        product = self.matrix @ self.sketch.columns
        return max(eps, self.sketch.entries(product, np.diagonal(self.matrix), self.norms2))
