"""linear: G; and a kernel matrix that is the input."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dpca.kernels.inner import Inner
from dpca.kernels.kernel import Kernel
from dpca.types import F64


@dataclass(frozen=True)
class Linear(Kernel):
    """Inner products: PCA."""

    called: ClassVar = "linear"
    tells_neighbours: ClassVar = False
    positive: ClassVar = True

    def values(self, inner: Inner, eps: float) -> tuple[F64, F64 | None]:
        # After centring K is the same as G, and more accurate.
        return inner.products, eps * inner.sizes() if eps else None


@dataclass(frozen=True)
class Precomputed(Kernel):
    """A kernel matrix that is the input."""

    called: ClassVar = "precomputed"

    def values(self, inner: Inner, eps: float) -> tuple[F64, F64 | None]:
        raise AssertionError("a kernel matrix that is the input is read, not computed")
