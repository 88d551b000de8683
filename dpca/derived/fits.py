"""Operators along the samples that leave the rest of a fit: without a trend in time, without covariates."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from dpca.derived.operators import EPS, EXTENDED, Remainder, finite, orthonormal
from dpca.errors import ConfigError
from dpca.types import F64


@dataclass(frozen=True, eq=False)
class Detrend(Remainder):
    """Less a polynomial in time, fitted by least squares to each feature; times need not be regular."""

    times: F64
    """Times of the samples, (n,), in any unit."""
    degree: int = 1

    def __post_init__(self) -> None:
        times = finite(self.times, "times")
        if times.ndim != 1:
            raise ConfigError(f"times have shape {times.shape}, but one number a sample is allowed")
        if self.degree < 0:
            raise ConfigError(f"degree is {self.degree}, but 0 or more is allowed", key="degree")
        distinct, parameters = len(np.unique(times)), self.degree + 1
        if distinct <= parameters:
            raise ConfigError(
                f"a polynomial of degree {self.degree} fits all {distinct} distinct times of {len(times)} samples, and nothing is left",
                f"Take a degree below {max(distinct - 1, 1)}, or more samples.",
                key="degree",
            )

    @cached_property
    def basis(self) -> Any:
        """Orthonormal polynomials, (n, degree + 1), in the span of Legendre polynomials, which are nearly so."""
        times = np.asarray(self.times, EXTENDED)
        centred = times - (times.max() + times.min()) / 2
        scaled = centred / np.abs(centred).max()
        return orthonormal(np.polynomial.legendre.legvander(scaled, self.degree) / np.sqrt(EXTENDED(len(times))))


@dataclass(frozen=True, eq=False)
class LessCovariates(Remainder):
    """Less the least-squares fit of covariates to each feature: I - Z Z^+. Covariates may depend on each other."""

    covariates: F64
    """Z, (n, covariates) or (n,)."""
    intercept: bool = True
    """Whether a constant is fitted beside them."""

    def __post_init__(self) -> None:
        n, columns = self._columns.shape
        if not columns:
            raise ConfigError("no covariates are given", "Name at least one.")
        if self.basis.shape[1] >= n:
            raise ConfigError(
                f"{self.basis.shape[1]} independent covariates, the constant included, fit all {n} samples, and nothing is left",
                "Take fewer covariates, or more samples.",
            )

    @property
    def gain(self) -> float | None:
        return 0.0 if self.intercept else None

    @property
    def _columns(self) -> F64:
        covariates = finite(self.covariates, "covariates")
        return covariates.reshape(len(covariates), -1)

    @cached_property
    def basis(self) -> Any:
        """An orthonormal basis of the covariates' span, (n, rank)."""
        columns, n = self._columns.astype(EXTENDED), len(self._columns)
        constant = np.full((n, int(self.intercept)), 1 / np.sqrt(EXTENDED(n)))
        sizes = np.linalg.norm(columns, axis=0)
        columns = columns - constant @ (constant.T @ columns)
        norms = np.linalg.norm(columns, axis=0)
        columns = columns[:, norms > n * EPS * sizes] / norms[norms > n * EPS * sizes]
        return np.hstack([constant, orthonormal(columns)])
