"""The arrays of a fit that project new samples."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dpca.numerics.regression import Regressed
from dpca.slabs import Box
from dpca.types import F64


@dataclass(frozen=True)
class Fitted:
    """The arrays that project new samples: they have feature axes and are sliced by box (NumPy, or stored)."""

    mean: Any
    scale: Any
    weights: Any
    components: Any
    factor: float = 1.0
    """Factor of all weights: that of a group of features against others."""
    regression: Regressed | None = None
    """Coefficients of what is subtracted beside the mean, and divisors in groups of samples; None for nothing."""
    weighted_components: Any = None
    """Components times the inner product, whose products with features are scores; None where these are the components."""

    @property
    def projecting(self) -> Fitted:
        """This with what scores are products with in place of the components."""
        if self.weighted_components is None:
            return self
        return replace(self, components=self.weighted_components, weighted_components=None)

    def of(self, box: Box, n_components: int | None = None) -> Fitted:
        """The arrays of a box of features, in memory."""
        components = self.components[(slice(0, n_components), *box)]
        mean, scale, weights = (np.asarray(array[box]) for array in (self.mean, self.scale, self.weights))
        return Fitted(mean, scale, weights, np.asarray(components), self.factor, self.regressed(box))

    def regressed(self, box: Box) -> Regressed | None:
        """Coefficients and divisors of groups of samples for a box of features, in memory; None where there are none."""
        return None if self.regression is None else self.regression.of(box)

    def of_mean(self, box: Box) -> tuple[F64, F64]:
        """Means and divisors of a box of features, in memory: a kernel fit needs no other arrays with feature axes."""
        return np.asarray(self.mean[box], np.float64), self.divisor(box)

    def divisor(self, box: Box) -> F64:
        """1 / t = scale / weight of a box, in memory: infinite where the weight is 0, NaN for a feature that is left out."""
        with np.errstate(divide="ignore"):
            divisor = np.asarray(self.scale[box], np.float64) / np.asarray(self.weights[box], np.float64)
            return divisor if self.factor == 1 else divisor / self.factor

    def back(self, box: Box) -> F64:
        """1 / t, by which samples are found from scores; 0 where t is 0, so that they are the mean there."""
        divisor = self.divisor(box)
        return np.where(np.isinf(divisor), 0.0, divisor)

    def flat(self, box: Box) -> tuple[F64, F64, F64]:
        """Means, divisors and components of a box, with features along the last axis; components are 0 where there are none."""
        components = np.nan_to_num(np.asarray(self.components[(slice(None), *box)], np.float64))
        mean, divisor = self.of_mean(box)
        return mean.reshape(-1), divisor.reshape(-1), components.reshape(len(components), -1)

    @property
    def chunk_bytes(self) -> int:
        """Bytes of a stored chunk of the components; 0 if they are in memory."""
        chunks = getattr(self.components, "chunks", None)
        return math.prod(chunks) * int(self.components.dtype.itemsize) if chunks else 0
