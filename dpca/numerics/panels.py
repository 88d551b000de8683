"""Panels: parts of X_c, centred and scaled, with what was counted on the way; and the rules of preprocessing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray

from dpca.numerics.sparse_lines import Part
from dpca.types import F64

Convention = Literal["plink2", "smartpca", "snprelate"]
"""Divisor of centred dosages of an allele, by its frequency (`dpca.numerics.dosages`)."""
Spread = Literal["none", "std", "pareto", "range"]
Scale = Spread | Convention
Missing = Literal["error", "mean", "drop", "land", "pairwise"]
BlockScaling = Literal["none", "first_eigenvalue", "total_variance"]


@dataclass(frozen=True)
class Rules:
    """The preprocessing of each feature, in this order: leave out, fill, centre by its mean, divide in each group, divide by its scale.

    Its weight multiplies it after that (`dpca.sources.weights`).
    """

    center: bool = True
    """Subtract the mean of the present values."""
    scale: Scale = "none"
    """The divisor, of the present values: "std", the standard deviation, with divisor (their number - ddof); "pareto", its
    square root; "range", the largest value less the smallest (van den Berg et al., BMC Genomics 7:142, 2006, table 1); for
    dosages of alleles a `Convention`."""
    missing: Missing = "error"
    """"mean" replaces a missing value by its feature's mean; "drop" leaves out features with one; "land" those without any value, and
    refuses others that miss one; "pairwise" fills
    as "mean", and divides each entry of K by the number of features that both samples have; "error" refuses it."""
    ddof: int = 1
    min_variance: float = 0.0
    """Features of a smaller variance, before scaling, are left out."""
    max_missing: float = 1.0
    """Features with a larger share of missing values are left out; one without any value always is."""
    min_minor_allele_frequency: float = 0.0
    """Frequency in dosages below which variants are left out; those without variation always are."""
    scale_ddof: int | None = None
    """ddof of the variance of a feature, by which `scale` and `min_variance` go; None for that of the spectrum."""
    of_reference: bool = False
    """Whether means and frequencies of dosages are those of some samples only, so that X_c has a mean over all."""
    by_group: bool = False
    """Whether what a regression leaves is divided by its standard deviation in each group of samples, before `scale`."""

    @property
    def convention(self) -> Convention | None:
        """The convention of dosages; None for other scales."""
        return self.scale if self.scale in get_args(Convention) else None  # type: ignore[return-value]

    @property
    def ddof_of_features(self) -> int:
        """ddof of the variance of a feature."""
        return self.ddof if self.scale_ddof is None else self.scale_ddof

    @property
    def by_variance(self) -> bool:
        """Whether X_c depends on ddof of the variance of features."""
        return self.scale in ("std", "pareto") or self.by_group

    @property
    def centered(self) -> bool:
        """Whether X_c sums to 0 over the samples."""
        return self.center and not self.of_reference

    @property
    def filters(self) -> bool:
        """Whether a feature that has values may be left out."""
        return self.is_whole or self.min_variance > 0 or self.max_missing < 1 or self.convention is not None

    @property
    def is_whole(self) -> bool:
        """Whether no feature that is used misses a value."""
        return self.missing in ("drop", "land")

    @classmethod
    def of(cls, preprocess: Mapping[str, Any], ddof: int, *, center: bool) -> Self:
        """The rules of a configuration, from its section `preprocess`, of this version or an earlier one.

        Parameters
        ----------
        center : whether data are streamed about their mean
        """
        filters, scale = preprocess.get("filters") or {}, preprocess["scale"]
        names = ("min_variance", "max_missing", "min_minor_allele_frequency")
        limits = {name: filters[name] for name in names if name in filters}
        limits["scale_ddof"] = preprocess.get("scale_ddof")
        limits["by_group"] = (preprocess.get("regress_out") or {}).get("scale") is not None
        if isinstance(scale, Mapping):
            limits["of_reference"] = scale.get("reference") is not None
            scale = scale["binomial"]
        return cls(center, scale, preprocess["missing"], ddof, **limits)

    def finds(self, weighted: bool) -> tuple[str, ...]:
        """Which of mean, scale and weights a pass over features finds; the others are 0 and 1 for all of them.

        Parameters
        ----------
        weighted : whether features have weights or a mask
        """
        leaves_out = self.missing != "error" or self.filters or weighted
        found = {"mean": self.center or leaves_out, "scale": self.scale != "none" or leaves_out, "weights": leaves_out}
        return tuple(name for name, is_found in found.items() if is_found)

    def too_few(self, n_present: Any, n_samples: int) -> Any:
        """Whether features have too many missing values, given the number of those present."""
        n_missing = n_samples - n_present
        return (n_missing > 0) if self.is_whole else (n_missing > self.max_missing * n_samples)


@dataclass
class FeatureCounts:
    """Numbers of features that preprocessing treats in a way of their own."""

    constant: int = 0
    """Features without variation, which stay 0; counted only with scaling."""
    empty: int = 0
    """Left out: features without any value."""
    masked: int = 0
    """Left out by a mask."""
    incomplete: int = 0
    """Left out, since more values are missing than is allowed."""
    steady: int = 0
    """Left out, since their variance is smaller than is allowed."""
    monomorphic: int = 0
    """Left out: variants of which all people have the same two alleles, which are alike."""
    rare: int = 0
    """Left out: variants whose minor allele is rarer than is allowed."""

    @classmethod
    def of(cls, counts: Mapping[str, int]) -> Self:
        """The numbers in a record that `as_counts` made, perhaps by an earlier version with fewer kinds."""
        return cls(**{kind.name: counts.get(f"{kind.name}_features", 0) for kind in fields(cls)})

    def as_counts(self) -> dict[str, int]:
        """The numbers by name: constant_features and so on."""
        return {f"{kind.name}_features": getattr(self, kind.name) for kind in fields(self)}

    @property
    def left_out(self) -> int:
        return sum(getattr(self, kind.name) for kind in fields(self) if kind.name != "constant")

    @property
    def uncounted(self) -> int:
        """Those that are not among the features that two samples have in common: of these, alike ones are, as for plink 2."""
        return self.left_out - self.monomorphic

    def merge(self, other: FeatureCounts) -> None:
        """Add the counts of other features."""
        for kind in fields(self):
            setattr(self, kind.name, getattr(self, kind.name) + getattr(other, kind.name))


@dataclass
class SlabPanel:
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
    lines: Part | None = field(default=None, kw_only=True)
    """In place of `matrix`, which is empty then: the same part as products of sparse lines."""
    n_filled: int = field(default=0, kw_only=True)
    """Missing values in features that are used, which are replaced; of all features where it is not known yet which are."""


@dataclass
class FeaturePanel(SlabPanel):
    """Some features with all their samples: columns of X_c, (n_samples, features)."""

    mean: F64
    """Mean of the present values; 0 without centring, NaN for a feature that is left out."""
    divisor: F64
    """Scale that values were divided by; 1 for a constant feature, NaN for one that is left out."""
    weights: F64
    """Weight that they were multiplied by then; NaN for a feature that is left out."""
    squares: F64
    """Sum of squares of each sample about the mean, (n_samples,), in float64 before rounding."""
    mean_product: F64
    """X_c m~ with m~ = mean * weight / divisor, (n_samples,)."""
    mean_norm2: float
    """m~' m~."""
    features: FeatureCounts
    absent: NDArray[np.bool_] | None
    """Where values are missing in features that are used, (n_samples, features); None unless they are counted in pairs."""
    varies: bool
    """Whether any feature varies by more than rounding."""
    regression: F64 | None = None
    """Coefficients of the regressors whose fit was subtracted, (p, features), NaN for a feature that is left out; None without."""
    group_scale: F64 | None = None
    """Divisors after that in each group of samples, (groups, features), as `divisor`; None without."""
    fitted: float = 0.0
    """Sum of squares of what rounding of that fit is relative to, scaled as the features are."""


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
    mean_norm2: float = 0.0
    """m~' m~."""


@dataclass
class SamplePanel(SlabPanel):
    """Some samples with all their features: columns of X_c', about the means of these samples, (n_features, samples)."""

    origin: F64
    """The first of these samples, (n_features,)."""
    offset: F64
    """Mean of these samples minus their origin: differences keep the digits that a mean far from 0 would lose."""
    squares: F64
    """Sum of squares of each feature about these means, in float64 without products."""
    low: F64
    """The smallest value of each feature minus the origin, (n_features,); 0 unless scales are ranges."""
    high: F64
    """The largest value minus the origin."""
    left: F64 | None
    """The part of the mean that remains in `matrix` where it was centred by a rounded mean, or not at all; else None."""
    centred_sketch: bool = field(default=False, kw_only=True)
    """Whether the sketch is about the mean, where a part of that remains in `matrix`."""


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
