"""The arrays of a fit that project new samples."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpca.numerics.preprocess import F64
from dpca.slabs import Box


@dataclass(frozen=True)
class Fitted:
    """The arrays that project new samples: they have feature axes and are sliced by box (NumPy, or stored)."""

    mean: Any
    scale: Any
    components: Any

    def of(self, box: Box, n_components: int | None = None) -> Fitted:
        """The arrays of a box of features, in memory."""
        components = self.components[(slice(0, n_components), *box)]
        return Fitted(np.asarray(self.mean[box]), np.asarray(self.scale[box]), np.asarray(components))

    def of_mean(self, box: Box) -> tuple[F64, F64]:
        """Means and divisors of a box of features, in memory: a kernel fit has no other arrays with feature axes."""
        return np.asarray(self.mean[box], np.float64), np.asarray(self.scale[box], np.float64)

    def flat(self, box: Box) -> tuple[F64, F64, F64]:
        """The arrays of a box, with features along the last axis; components are 0 where a feature has none."""
        components = np.nan_to_num(np.asarray(self.components[(slice(None), *box)], np.float64))
        return (
            np.asarray(self.mean[box], np.float64).reshape(-1),
            np.asarray(self.scale[box], np.float64).reshape(-1),
            components.reshape(len(components), -1),
        )

    @property
    def chunk_bytes(self) -> int:
        """Bytes of a stored chunk of the components; 0 if they are in memory."""
        chunks = getattr(self.components, "chunks", None)
        return math.prod(chunks) * int(self.components.dtype.itemsize) if chunks else 0
