"""Kernels of an affine function of inner products, a = gamma G + coef0. poly: a^degree; sigmoid: tanh(a)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dpca.kernels.inner import EPS, Inner
from dpca.kernels.kernel import Kernel
from dpca.settings import MODEL
from dpca.types import F64


@dataclass(frozen=True)
class Poly(Kernel):
    """Products of features: (gamma G + coef0)^degree."""

    gamma: float
    degree: float
    coef0: float

    called: ClassVar = "poly"

    @property
    def semidefinite(self) -> bool:
        """Whether the kernel of any samples has no negative eigenvalue."""
        return self.degree % 1 == 0 and self.coef0 >= 0

    def remedy(self, value: float) -> str:
        if np.isnan(value):
            return f"A power that is no integer is not defined of a negative base: choose an integer {MODEL.degree}"
        return super().remedy(value)

    def values(self, inner: Inner, eps: float) -> tuple[F64, F64 | None]:
        argument, error = argument_of(inner, self.gamma, self.coef0, eps)
        degree = self.degree
        if degree % 1:
            # A power that is not an integer is undefined below 0, and rounding alone may have made a 0 negative.
            rounding = 8 * max(eps, EPS) * (self.gamma * inner.magnitudes() + abs(self.coef0))
            argument[(argument < 0) & (argument >= -rounding)] = 0.0
        values = argument**degree
        if error is None:
            return values, None
        size = np.abs(argument)
        grown, shrunk = (size + error) ** degree, np.maximum(size - error, 0.0) ** degree
        return values, np.maximum(grown - size**degree, size**degree - shrunk)


@dataclass(frozen=True)
class Sigmoid(Kernel):
    """A neuron's answer: tanh(gamma G + coef0)."""

    gamma: float
    coef0: float

    called: ClassVar = "sigmoid"
    bounded: ClassVar = True
    saturates: ClassVar = True

    def values(self, inner: Inner, eps: float) -> tuple[F64, F64 | None]:
        argument, error = argument_of(inner, self.gamma, self.coef0, eps)
        values = np.tanh(argument)
        if error is None:
            return values, None
        return values, np.maximum(np.tanh(argument + error) - values, values - np.tanh(argument - error))


def argument_of(inner: Inner, gamma: float, coef0: float, eps: float) -> tuple[F64, F64 | None]:
    """gamma G + coef0, (m, n), and its errors; None for eps = 0."""
    values, error = inner.gram(), inner.errors(eps) if eps else None
    values *= gamma
    size = np.abs(values) if eps else None
    values += coef0
    if error is not None and size is not None:
        error *= gamma
        size += np.abs(values)
        error += EPS * size
    return values, error
