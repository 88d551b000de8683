"""Panels: parts of X_c, centred and scaled, with what was counted on the way; and the rules of preprocessing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]


@dataclass(frozen=True)
class Rules:
    """The preprocessing of each feature, in this order: fill, centre by its mean, divide by its scale."""

    center: bool = True
    """Subtract the mean of the present values."""
    scale: Literal["none", "std"] = "none"
    """"std" divides by the standard deviation of the present values, with divisor (number of them - ddof)."""
    missing: Literal["error", "mean"] = "error"
    """"mean" replaces a missing value by its feature's mean; "error" refuses it."""
    ddof: int = 1


@dataclass
class Panel:
    """A preprocessed part of a slab; valid until the next panel."""

    start: int
    stop: int
    """The part of the streamed side, as flattened indices within the slab."""
    matrix: NDArray[Any]
    """Kept side by this part of the streamed side, (m, stop - start), in working precision; either axis may be contiguous."""
    n_missing: int
    integers: bool
    """Whether `matrix` holds integers: it is centred by rounded means, so that products may be exact."""
    sketch: F64
    """X_c X_c' Omega over this part, (m, t), in float64; includes the means that remain in `matrix` if it holds integers."""


@dataclass
class FeaturePanel(Panel):
    """Some features with all their samples: columns of X_c, (n_samples, features)."""

    mean: F64
    """Mean of the present values; 0 without centring, NaN where no value is present."""
    divisor: F64
    """Scale that values were divided by; 1 for a constant feature, NaN where no value is present."""
    squares: F64
    """Sum of squares of each sample about the mean, (n_samples,), in float64 before rounding."""
    mean_product: F64
    """X_c m~ with m~ = mean / divisor, (n_samples,)."""
    mean_norm2: float
    """m~' m~."""
    n_constant: int
    """Features without variation; counted only with scaling."""
    n_empty: int
    """Features without any value."""
    varies: bool
    """Whether any feature varies by more than rounding."""


@dataclass
class AppliedPanel:
    """Some features of new samples, preprocessed by the means and divisors of a fit; valid until the next panel."""

    matrix: NDArray[Any]
    """(samples, features), in working precision."""
    squares: F64
    """Sum of squares of each sample, in float64 before rounding."""
    mean_product: F64
    """Product of each sample with m~ = mean / divisor, also in float64 before rounding."""
    start: int
    stop: int


@dataclass
class SamplePanel(Panel):
    """Some samples with all their features: columns of X_c', about the means of these samples, (n_features, samples)."""

    origin: F64
    """The first of these samples, (n_features,)."""
    offset: F64
    """Mean of these samples minus their origin: differences keep the digits that a mean far from 0 would lose."""
    squares: F64
    """Sum of squares of each feature about these means, in float64 without products."""
    left: F64 | None
    """The part of the mean that remains in `matrix` where it was centred by a rounded mean; else None."""


@dataclass(frozen=True)
class Means:
    """Means of features, each in two parts, to keep the digits that a mean far from 0 would lose."""

    origin: F64
    offset: F64
    """The mean is origin + offset, (n_features,) each."""


@dataclass(frozen=True)
class About:
    """Means and factors to centre and scale samples with, where features are kept."""

    origin: F64
    """The mean is origin + offset, (n_features,) each."""
    offset: F64
    factor: F64
    """Factor that each feature is multiplied by, (n_features,)."""
