"""The arrays of a fit that new samples are projected with."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpca.numerics.preprocess import F64
from dpca.slabs import Box


@dataclass(frozen=True)
class Fitted:
    """What new samples are projected with: arrays with feature axes, sliced by box (NumPy, or stored)."""

    mean: Any
    scale: Any
    components: Any

    def of(self, box: Box, n_components: int | None = None) -> Fitted:
        """Those of a box of features, in memory."""
        components = self.components[(slice(0, n_components), *box)]
        return Fitted(np.asarray(self.mean[box]), np.asarray(self.scale[box]), np.asarray(components))

    def of_mean(self, box: Box) -> tuple[F64, F64]:
        """Means and divisors of a box of features, in memory: all that a kernel fit has with feature axes."""
        return np.asarray(self.mean[box], np.float64), np.asarray(self.scale[box], np.float64)

    def flat(self, box: Box) -> tuple[F64, F64, F64]:
        """Those of a box, features along the last axis: 0 where a feature has no component."""
        components = np.nan_to_num(np.asarray(self.components[(slice(None), *box)], np.float64))
        return (
            np.asarray(self.mean[box], np.float64).reshape(-1),
            np.asarray(self.scale[box], np.float64).reshape(-1),
            components.reshape(len(components), -1),
        )

    @property
    def chunk_bytes(self) -> int:
        """Of the components as stored; 0 in memory."""
        chunks = getattr(self.components, "chunks", None)
        return math.prod(chunks) * int(self.components.dtype.itemsize) if chunks else 0
