"""The contract of a kernel: its values from inner products, what they change by within the errors of these, and what is said of its matrix.

With G = X X' and rows as samples (Scholkopf, Smola and Mueller, Neural Computation 10, 1998); `dpca.kernels.kinds` has a class for each.
"""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, fields
from typing import ClassVar

import numpy as np

from dpca.errors import ConfigError, PrecisionError
from dpca.kernels.inner import Inner, blocks, longest_row, row_lengths
from dpca.settings import MODEL
from dpca.types import F64

ROUNDED = 0.1
"""A kernel of new samples is refused if rounding changes it by more than this share of its size."""
INDEPENDENT = 1e-3
"""Errors of a kernel's values are not assumed to be independent above this share of the largest value."""
SINGLE = 1e-12
"""Products with a larger relative error may be better in double precision."""
ALONE, SATURATED, FLAT = 1e-3, 1e-6, 1e-9
PARAMETERS = ("gamma", "degree", "coef0")


@dataclass(frozen=True)
class Kernel(ABC):
    """A kernel with the values of all its parameters, which are its fields: one case of a sweep."""

    about_mean: bool = field(default=False, kw_only=True)
    """Whether the kernel is applied to centred samples; it makes no difference to linear and rbf."""

    called: ClassVar[str]
    """Its name in a configuration."""
    bounded: ClassVar[bool] = False
    """Whether its values are at most 1."""
    positive: ClassVar[bool] = False
    """Whether it is semidefinite with any parameters."""
    saturates: ClassVar[bool] = False
    """Whether its values may all be 1 or -1, as far as digits tell."""
    tells_neighbours: ClassVar[bool] = True
    """Whether samples that have nothing in common are a fault of its parameters."""
    if_alone: ClassVar[str] = ""
    """Advice for them, after the sentence that says so."""
    by_rows: ClassVar[bool] = True
    """Whether rows of its matrix may be computed without the others."""

    @abstractmethod
    def values(self, inner: Inner, eps: float) -> tuple[F64, F64 | None]:
        """Values, (m, n), and the error of each from errors of eps |x_i| |x_j| in its inner product; None for eps = 0."""

    @property
    def name(self) -> str:
        """Its name in a configuration, or that of its function."""
        return self.called

    @property
    def semidefinite(self) -> bool:
        """Whether the kernel of any samples has no negative eigenvalue, so that one is an error."""
        return self.positive

    def remedy(self, value: float) -> str:
        """Advice where a value is not finite."""
        return f"Choose a smaller {MODEL.gamma} or {MODEL.degree}"

    @classmethod
    def parameter_names(cls) -> tuple[str, ...]:
        """Its parameters among gamma, degree and coef0."""
        return tuple(one.name for one in fields(cls) if one.name in PARAMETERS)

    @property
    def parameters(self) -> dict[str, float | None]:
        """gamma, degree and coef0; None where the kernel has no such parameter."""
        values = {name: getattr(self, name, math.nan) for name in PARAMETERS}
        return {name: None if math.isnan(value) else value for name, value in values.items()}

    def __str__(self) -> str:
        values = [f"{name}={getattr(self, name):.6g}" for name in self.parameter_names()]
        return f"{self.name}({', '.join(values)})" if values else self.name

    @property
    def digest(self) -> str:
        """An identifier that no other kernel has: a resumed run may have other kernels."""
        return hashlib.sha256(repr(self).encode()).hexdigest()[:16]

    def matrix(self, inner: Inner, eps: float = 0.0) -> tuple[F64, F64]:
        """The kernel matrix, (m, n), and the error of each row, (m,).

        Parameters
        ----------
        inner : inner products
        eps : relative error of the products

        Returns
        -------
        matrix, noise : the error of an entry G_ij is about eps |x_i| |x_j|, that of the kernel's entry, E_ij, its largest
            change over this range of its argument. With independent errors |E v|^2 is about sum_j v_j^2 |E_j|^2 for a vector
            v, and no eigenvalue changes by much more than the longest row (Bandeira and van Handel, Annals of Probability
            44, 2016); with large ones, which are not independent, |E v|^2 <= max_i t_i sum_j v_j^2 t_j with the row sums t
            (Schur), and none by more than the largest (Gershgorin). So that is |E_j|, or sqrt(t_j max_i t_i)
        """
        if math.isnan(getattr(self, "gamma", 0.0)):
            if eps > SINGLE:
                raise PrecisionError(
                    f"kernel {self.name}: {MODEL.gamma} is median, but products in single precision can't tell most samples from each other",
                    f"{MODEL.precision.set_to('double')}, or {MODEL.gamma} to a number.",
                    key="model.gamma",
                )
            raise ConfigError(
                f"kernel {self.name}: {MODEL.gamma} is median, but the median of the squared distances between samples is 0: "
                "most are alike",
                f"Set {MODEL.gamma} to a number.",
                key="model.gamma",
            )
        if self.about_mean:
            inner = inner.about_mean()
        matrix, dependent = np.empty(inner.products.shape), False
        lengths, sums = np.zeros(len(matrix)), np.zeros(len(matrix))
        for rows in blocks(len(matrix)) if self.by_rows else (slice(0, len(matrix)),):
            with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
                matrix[rows], change = self.values(inner.of_rows(rows), eps)
                if change is not None:
                    lengths[rows], sums[rows] = row_lengths(change), change.sum(axis=1)
                    largest = max(1e-300, np.abs(matrix[rows]).max(initial=0.0))
                    dependent |= bool(change.max(initial=0.0) > INDEPENDENT * largest)
            self._check(matrix[rows], rows.start)
        noise = np.maximum(lengths, np.sqrt(sums) * np.sqrt(sums.max(initial=0.0))) if dependent else lengths
        return matrix, np.where(np.isfinite(noise), noise, np.inf)

    def of_new(self, inner: Inner, eps: float) -> F64:
        """The kernel between new samples and those of a fit, (m, n).

        Parameters
        ----------
        inner, eps : as for `matrix`
        """
        matrix, errors = self.matrix(inner, eps)
        noise = float(errors.max(initial=0.0))
        # Between distant samples a bounded kernel is nearly 0, and rounding may double that: compare with its largest value.
        size = max(longest_row(matrix), 1.0 if self.bounded else 0.0)
        if noise > ROUNDED * max(size, 1e-300):
            raise PrecisionError(
                f"kernel {self}: rounding of the products changes what new samples have in common with those of the fit by "
                f"{noise:.1e}, where that is {size:.1e} at most",
                f"Fit with {MODEL.precision.at('double')}, or with a smaller {MODEL.gamma}, or scale the features.",
                key="model.gamma",
            )
        return matrix

    def _check(self, values: F64, start: int = 0) -> None:
        if np.isfinite(values).all():
            return
        first = np.argwhere(~np.isfinite(values))[0]
        value = values[tuple(first)]
        why = "is not a number" if np.isnan(value) else "overflows"
        raise ConfigError(
            f"kernel {self}: its value {why} between samples {first[0] + start} and {first[1]}",
            f"{self.remedy(value)}, or scale the features.",
            key="model.gamma" if "gamma" in self.parameter_names() else "model.kernel",
        )


def notes(kernel: Kernel, matrix: F64) -> list[str]:
    """Problems of a kernel matrix that is not centred yet, in words."""
    n = len(matrix)
    if n < 2:
        return []
    diagonal = np.diagonal(matrix)
    largest = float(np.abs(diagonal).max())
    aside, low, high, saturated = 0.0, np.inf, -np.inf, 0
    for rows in blocks(n):
        block = matrix[rows]
        low, high = min(low, float(block.min())), max(high, float(block.max()))
        saturated += int(np.count_nonzero(np.abs(block) > 1 - SATURATED)) if kernel.saturates else 0
        block = np.abs(block)
        block[np.arange(len(block)), np.arange(rows.start, rows.stop)] = 0.0
        aside = max(aside, float(block.max()))
    if high - low <= FLAT * max(abs(high), abs(low)):
        return [f"kernel {kernel} is constant ({high:.4g} for every two samples): nothing is left to find"]
    if aside <= ALONE * largest and kernel.tells_neighbours:
        what = f"kernel {kernel} is the identity, or nearly (no two samples have more than {aside / largest:.1e} in common)"
        return [f"{what}: every sample is a component of its own{kernel.if_alone}"]
    if saturated > 0.9 * n * n:
        return [
            f"kernel {kernel} is saturated: {100 * saturated / n**2:.0f} % of its values are 1 or -1; take a smaller gamma"
        ]
    return []
