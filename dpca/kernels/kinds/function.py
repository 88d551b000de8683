"""A function of the Gram matrix, given in Python, as a kernel."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from dpca.errors import ConfigError
from dpca.kernels.inner import EPS, Inner
from dpca.kernels.kernel import Kernel
from dpca.types import F64

SQUARED_DISTANCES = "squared_distances"
"""The parameter by which a function asks for distances."""
OF_TWO_SAMPLES = "sklearn.metrics.pairwise"
"""The module of functions of samples, which would take the Gram matrix for samples."""


@dataclass(frozen=True)
class FunctionKernel(Kernel):
    """A function, called as function(G, **params), with squared_distances=D as well if it has a parameter of that name."""

    of: str
    """The name of the function."""
    function: Callable[..., Any] | None = None
    """None in a result, which holds numbers alone."""
    params: Mapping[str, Any] = field(default_factory=dict)

    called: ClassVar = "function"
    by_rows: ClassVar = False
    """A function may take any value of the matrix for another one."""

    @property
    def name(self) -> str:
        """The name of the function."""
        return self.of

    def of_new(self, inner: Inner, eps: float) -> F64:
        """The kernel between new samples and those of a fit, (m, n); what rounding changes is not known."""
        return self.matrix(inner)[0]

    def values(self, inner: Inner, eps: float) -> tuple[F64, F64 | None]:
        """Values of the function, and what each changes by where its arguments are moved by their errors, up and down.

        Errors have signs of their own, drawn, but the same at every call: a function may compare some entries with others,
        and where all were moved alike, nothing would change. An entry that is no number on one side counts by the other.
        """
        values, rounding = self._called(inner)
        if not eps:
            return values, None
        signs = np.random.default_rng(len(values)).choice([-1.0, 1.0], values.shape)
        if inner.first is not None:
            signs = np.triu(signs) + np.triu(signs, 1).T
        changes = []
        for direction in (signs, -signs):
            moved, _ = self._called(inner, direction, eps)
            changes.append(np.abs(moved - values))
        change = np.fmax(*changes)
        change[np.isnan(change)] = np.inf
        return values, np.maximum(change, rounding * np.abs(values), out=change)

    def _called(self, inner: Inner, signs: F64 | None = None, eps: float = 0.0) -> tuple[F64, float]:
        """Values of the function, and the rounding of their type; with signs, of arguments that are moved by their errors."""
        if self.function is None:
            raise ConfigError(
                f"kernel {self.name} is a function that the result does not hold",
                "Pickle the estimator, where the function can be imported.",
                key="model.kernel",
            )
        arguments, gram = dict(self.params), inner.gram()
        if signs is not None:
            gram += signs * inner.errors(eps)
        if SQUARED_DISTANCES in parameters_of(self.function):
            distances = inner.squared_distances()
            if signs is not None:
                distances -= signs * inner.errors_of_distances(eps)
            arguments[SQUARED_DISTANCES] = np.maximum(distances, 0.0, out=distances)
        values = np.asarray(self.function(gram, **arguments))
        if values.dtype.kind not in "biuf":
            raise ConfigError(
                f"kernel {self.name} gave values of dtype {values.dtype}, but real numbers are allowed",
                "Give a function that returns them.",
                key="model.kernel",
            )
        rounding = float(np.finfo(values.dtype).eps) if values.dtype.kind == "f" else 0.0
        values = values.astype(np.float64)
        if values.shape != inner.products.shape:
            raise ConfigError(
                f"kernel {self.name} gave an array of shape {values.shape} for a Gram matrix of shape {inner.products.shape}",
                "Give a function of the matrix that returns one of the same shape.",
                key="model.kernel",
            )
        return values, max(rounding, EPS)


def parameters_of(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """The parameters of a function, by name; none of one that does not say them."""
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):
        return {}


def check_function(name: str, function: Callable[..., Any], params: Mapping[str, Any]) -> None:
    """Refuse a function that can't be called with the Gram matrix alone, such as one of two samples."""
    asked = (SQUARED_DISTANCES,) if SQUARED_DISTANCES in parameters_of(function) else ()
    try:
        inspect.signature(function).bind(np.empty((0, 0)), **params, **dict.fromkeys(asked))
        if getattr(function, "__module__", None) != OF_TWO_SAMPLES:
            return
        problem = "is a function of samples"
    except TypeError as cause:
        problem = f"can't be called so ({cause})"
    except ValueError:  # it does not say its parameters
        return
    with_params = f", with kernel_params {', '.join(map(repr, params))}" if params else ""
    raise ConfigError(
        f"kernel {name} {problem}: it is called once, with the inner products X X' of all samples, (n, n), as its only argument, and "
        f"{SQUARED_DISTANCES}=..., too, if it has such a parameter{with_params}",
        "Give a function of these, lambda gram, squared_distances: numpy.exp(-squared_distances). For a function of two samples compute its "
        "matrix, sklearn.metrics.pairwise.pairwise_kernels(X, metric=function), and give that with kernel='precomputed'.",
        key="model.kernel",
    )
