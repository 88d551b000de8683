"""rbf: exp(-gamma |x - y|^2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dpca.kernels.inner import EPS, Inner
from dpca.kernels.kernel import Kernel
from dpca.types import F64


@dataclass(frozen=True)
class Rbf(Kernel):
    """Nearness of samples: exp(-gamma (G_ii + G_jj - 2 G_ij))."""

    gamma: float

    called: ClassVar = "rbf"
    bounded: ClassVar = True
    if_alone: ClassVar = "; a smaller gamma would see neighbours: model.gamma: median"
    positive: ClassVar = True

    def values(self, inner: Inner, eps: float) -> tuple[F64, F64 | None]:
        argument = inner.squared_distances()
        argument *= self.gamma
        values = np.exp(-argument)
        if not eps:
            return values, None
        error = self.gamma * inner.errors_of_distances(eps) + EPS * argument
        nearer = np.exp(-np.maximum(argument - error, 0.0)) - values
        return values, np.maximum(nearer, -np.expm1(-error) * values)
