"""The kernels that are asked for: every combination of the values of their parameters, from one Gram matrix."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any, Literal

from dpca.kernels.inner import BLOCK_ROWS, Inner, median_gamma
from dpca.kernels.kernel import Kernel
from dpca.kernels.kinds import USES, kernel_of
from dpca.kernels.kinds.function import FunctionKernel

Indefinite = Literal["truncate", "error"]
CERTIFICATE_BYTES = 5000
"""Memory of the certificate of a component in Python and JSON (measured)."""


@dataclass(frozen=True)
class Kernels:
    """The requested kernels: every combination of the values of their parameters."""

    names: tuple[str, ...] = ("linear",)
    gammas: tuple[float | Literal["median"] | None, ...] = (None,)
    """None for 1 / n_features, "median" for 1 / (median squared distance)."""
    degrees: tuple[float, ...] = (3.0,)
    coef0s: tuple[float, ...] = (1.0,)
    sweep: bool = False
    """Whether results have a dimension of cases, even for one case."""
    about_mean: bool = False
    function: Callable[..., Any] | None = None
    params: Mapping[str, Any] = field(default_factory=dict)
    alpha: float = 1.0
    """The ridge of the regression that finds pre-images."""
    fit_inverse_transform: bool | Literal["fixed_point"] = False
    """How pre-images are found: True for ridge regression, also for linear; "fixed_point" for the iteration of rbf."""
    indefinite: Indefinite = "truncate"
    """How eigenvalues that are negative beyond rounding are handled: left out and reported, or refused."""
    remove_zero_eig: bool = False
    """Whether components with eigenvalue 0 are left out even if a number of components was requested."""

    @property
    def precomputed(self) -> bool:
        """Whether the input is a kernel matrix."""
        return self.names == ("precomputed",)

    @property
    def n_cases(self) -> int:
        """The number of kernels, before equal ones are merged."""
        return sum(math.prod(len(values) for values in self._values(name)) for name in self.names)

    def cases(self, n_features: int, inner: Inner) -> list[Kernel]:
        """The kernels, each with its parameters."""
        median = median_gamma(inner) if "median" in self.gammas and self._need_gamma else 0.0
        kernels: list[Kernel] = []
        for name in self.names:
            for values in product(*self._values(name)):
                case = dict(zip(USES.get(name, ()), values, strict=True))
                if "gamma" in case:
                    gamma = case["gamma"]
                    case["gamma"] = median if gamma == "median" else 1 / n_features if gamma is None else gamma
                if self.function is None:
                    kernel = kernel_of(name, about_mean=self.about_mean, **case)
                else:
                    kernel = FunctionKernel(name, self.function, self.params, about_mean=self.about_mean)
                if kernel not in kernels:
                    kernels.append(kernel)
        return kernels

    @property
    def _need_gamma(self) -> bool:
        return any("gamma" in USES.get(name, ()) for name in self.names)

    def _values(self, name: str) -> list[tuple[Any, ...]]:
        choices = {"gamma": self.gammas, "degree": self.degrees, "coef0": self.coef0s}
        return [choices[parameter] for parameter in USES.get(name, ())]


def held(n: int, n_components: int, kernels: Kernels) -> dict[str, int]:
    """Bytes that the kernels of a Gram matrix hold without the eigensolve, by name of the array."""
    arrays = {
        "eigenvalues and vectors of kernels": 8 * n * (n_components + 2) * kernels.n_cases,
        "scores and alpha of a kernel, being written": 4 * 8 * n * n_components,
        "certificate, some numbers for each component": CERTIFICATE_BYTES * n_components * kernels.n_cases,
        "kernel being made": 10 * 8 * min(BLOCK_ROWS, n) * n,
    }
    if "median" in kernels.gammas:
        arrays["distances of samples, for their median"] = 4 * n * n
    if kernels.function is not None:
        arrays["Gram matrix, distances, their errors, and values, for the function"] = 10 * 8 * n * n
    return arrays
