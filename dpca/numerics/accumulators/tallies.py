"""Tallies: what a pass counts besides the matrix, without another read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from dpca.numerics.panels import About, FeatureCounts, FeaturePanel, Means, Rules, SamplePanel, SlabPanel
from dpca.numerics.preprocess import is_constant, places_of, scale_of
from dpca.types import F64


@dataclass
class Counts:
    """Counts of a pass over the data."""

    bytes_read: int = 0
    """Bytes of the slabs after decoding."""
    n_missing: int = 0
    n_filled: int = 0
    """Missing values of features that are used, which were replaced."""
    n_plausible: int = 0
    """Values that mark missing ones, though smaller and larger values lie beside them."""
    absent_chunks: int = 0
    """Chunks that were never written to the store, and are read as its fill value."""
    retries: int = 0
    """Reads that were retried."""
    read_seconds: float = field(default=0.0, compare=False)
    """Sum over all tasks of the time from the request for a slab to the arrival of its values."""
    compute_seconds: float = field(default=0.0, compare=False)
    """Sum over all tasks of the time from there to the next request."""

    def merge(self, other: Counts) -> None:
        """Add the counts of another span."""
        self.bytes_read += other.bytes_read
        self.n_missing += other.n_missing
        self.n_filled += other.n_filled
        self.n_plausible += other.n_plausible
        self.absent_chunks += other.absent_chunks
        self.retries += other.retries
        self.read_seconds += other.read_seconds
        self.compute_seconds += other.compute_seconds


class Tally(Protocol):
    """The contract of tallies: what an accumulator counts besides its matrix; one class for each streamed side."""

    counts: Counts
    squares: F64
    """Sum of squares of each of the m, in float64 without the products."""

    def add(self, panel: SlabPanel) -> Corrections:
        """Count a panel; returns the corrections that the matrix needs after adding it."""
        ...

    def merge(self, other: Self) -> Corrections:
        """Add the tally of another span; also returns corrections."""
        ...

    def close(self) -> None:
        """End a span: complete what was counted."""
        ...

    sketch: F64
    """Sketch of the matrix, as in `dpca.numerics.sketch`, (m, t)."""

    @property
    def total(self) -> float:
        """Sum of squares in float64 without the products: what the trace of the matrix should be."""
        ...

    @property
    def varies(self) -> bool:
        """Whether samples differ by more than rounding."""
        ...


@dataclass(frozen=True)
class Corrections:
    """Vectors whose outer products are added to a matrix, or subtracted, to centre it by the means of all samples."""

    lacks: F64 | None = None
    exceeds: F64 | None = None


@dataclass
class FeatureTally:
    """The tally of streamed features: all samples of each are there, so means are exact and nothing needs correction."""

    mean_product: F64
    """r = X_c m~ with m~ = mean / scale, (n_samples,): with it X X' = K + r 1' + 1 r' + c 11'."""
    sketch: F64
    """Sketch of the matrix, as in `dpca.numerics.sketch`, (n_samples, t)."""
    squares: F64
    """Sum of squares of each sample, in float64 without the products, (n_samples,)."""
    mean_norm2: float = 0.0
    """c = m~' m~."""
    absent: F64 = field(default_factory=lambda: np.zeros((0, 0)), metadata={"symmetric": True})
    """A A' of the mask A of missing values, (n_samples, n_samples): features that neither sample has. Empty if not counted."""
    features: FeatureCounts = field(default_factory=FeatureCounts)
    varies: bool = False
    """Whether samples differ by more than rounding."""
    fitted: float = 0.0
    """Sum of squares of what the rounding of fits that were subtracted is relative to."""
    counts: Counts = field(default_factory=Counts)
    _upper: NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, np.int32), repr=False, compare=False)
    """Counts of the span in hand that are not in `absent` yet: above the diagonal, flattened. Empty if there are none."""

    @classmethod
    def empty(cls, n_samples: int, n_columns: int = 0, pairs: bool = False) -> Self:
        """An empty tally, with a sketch of `n_columns` columns; `pairs` if missing values are counted for pairs of samples."""
        found = cls(np.zeros(n_samples), np.zeros((n_samples, n_columns)), np.zeros(n_samples))
        if pairs:
            found.absent = np.zeros((n_samples, n_samples))
        return found

    @classmethod
    def like(cls, other: Self) -> Self:
        """An empty tally of the same kind as another."""
        return cls.empty(len(other.squares), other.sketch.shape[1], other.absent.size > 0)

    def shared(self, n_features: int) -> F64:
        """Number of features that both of two samples have, of `n_features`: d - a 1' - 1 a' + A A', (n_samples, n_samples)."""
        return shared_by(self.absent, n_features)

    @property
    def total(self) -> float:
        """Sum of squares of the data in the matrix."""
        return float(self.squares.sum())

    @property
    def off(self) -> float:
        """How much the rounding of fits that were subtracted may change any singular value: their error is of few directions."""
        return float(np.finfo(np.float64).eps * np.sqrt(self.fitted))

    def add(self, panel: SlabPanel) -> Corrections:
        """Count a panel."""
        assert isinstance(panel, FeaturePanel)
        self.mean_product += panel.mean_product
        self.sketch += panel.sketch
        self.mean_norm2 += panel.mean_norm2
        self.squares += panel.squares
        self.counts.n_missing += panel.n_missing
        self.counts.n_filled += panel.n_filled
        self.features.merge(panel.features)
        self.fitted += panel.fitted
        if panel.absent is not None:
            self._count(panel.absent)
        self.varies |= panel.varies
        return Corrections()

    def _count(self, absent: NDArray[np.bool_]) -> None:
        """Count where both of two samples have no value, (n_samples, features)."""
        n_samples, n_features = absent.shape
        places = places_of(absent)
        if places.size > SPARSE * absent.size:
            dense = absent.astype(np.float32)  # exact: a panel has fewer than 2^24 features
            self.absent += dense @ dense.T
            return
        if not places.size:
            return
        if absent.flags.f_contiguous:
            features, samples = places // n_samples, places % n_samples
        else:
            order = np.argsort(places % n_features, kind="stable")
            features, samples = (places % n_features)[order], (places // n_features)[order]
        self.absent[np.diag_indices(n_samples)] += np.bincount(samples, minlength=n_samples)
        if not self._upper.size:
            self._upper = np.zeros(n_samples**2, np.int32)
        # Each with the one behind it of the same feature, with the one after that, and so on: samples ascend.
        behind = np.cumsum(np.bincount(features))[features] - np.arange(len(features))
        distance, first = 1, np.flatnonzero(behind > 1)
        while first.size:
            np.add.at(self._upper, samples[first] * n_samples + samples[first + distance], np.int32(1))
            distance += 1
            first = first[behind[first] > distance]

    def close(self) -> None:
        """End a span: add what was counted above the diagonal."""
        if self._upper.size:
            upper = self._upper.reshape(self.absent.shape)
            self.absent += upper
            self.absent += upper.T
            self._upper = np.zeros(0, np.int32)

    def merge(self, other: Self) -> Corrections:
        """Add the tally of another span."""
        self.mean_product += other.mean_product
        self.sketch += other.sketch
        self.mean_norm2 += other.mean_norm2
        self.squares += other.squares
        self.features.merge(other.features)
        self.fitted += other.fitted
        self.absent += other.absent
        self.varies |= other.varies
        self.counts.merge(other.counts)
        return Corrections()


def shared_by(absent: F64, n_features: int) -> F64:
    """Number of features that both of two samples have, (n, n), from those that neither has, as in a FeatureTally."""
    alone = np.diagonal(absent)
    shared: F64 = n_features - alone[:, None] - alone + absent
    return shared


SPARSE = 0.03
"""Up to this share of missing values their pairs are counted one by one, which then takes less time than products (measured)."""


@dataclass
class Moments:
    """The tally of streamed samples: their number, and for each feature the mean and the sum of squares about it.

    The mean of all samples is not known yet, so each block is centred by its own mean, and joining two blocks adds a
    term for the difference of their means: the pairwise update of Chan, Golub and LeVeque (The American Statistician
    37, 1983, eq. 2.1), which does not lose digits to a large mean as X'X - n m m' does.
    """

    squares: F64
    """Sum of squares of each feature about its mean, in float64 without products, (n_features,)."""
    centered: bool
    origin: F64
    """The mean is origin + offset: differences from the origin keep digits that a mean far from 0 would lose."""
    offset: F64
    low: F64
    """The smallest value of each feature minus the origin; 0 unless scales are ranges."""
    high: F64
    """The largest value minus the origin."""
    sketch: F64
    """Sketch of the matrix, as in `dpca.numerics.sketch`, (n_features, t)."""
    _columns: F64 = field(repr=False)
    count: int = 0
    counts: Counts = field(default_factory=Counts)

    @classmethod
    def empty(cls, n_features: int, centered: bool, columns: F64 | None = None) -> Self:
        """An empty tally; `centered` says whether the matrix is about the mean."""
        columns = np.empty((n_features, 0)) if columns is None else columns
        squares, origin, offset, low, high = (np.zeros(n_features) for _ in range(5))
        return cls(squares, centered, origin, offset, low, high, np.zeros_like(columns), columns)

    @property
    def varies(self) -> bool:
        """Mask of features that vary. The sums are of differences, which are exactly 0 where features are constant."""
        return bool(self.total > 0)

    @property
    def mean(self) -> F64:
        """(n_features,)."""
        return self.origin + self.offset

    @property
    def total(self) -> float:
        """Sum of squares of the data in the matrix."""
        return float(self.squares.sum()) + (0.0 if self.centered else self.count * float(self.mean @ self.mean))

    def add(self, panel: SlabPanel) -> Corrections:
        """Count a panel; returns the corrections that the scatter matrix needs after adding its product."""
        assert isinstance(panel, SamplePanel)
        count = panel.stop - panel.start
        self.counts.n_missing += panel.n_missing
        self.counts.n_filled += panel.n_filled
        lacks = self._join(count, panel)
        exceeds = None if panel.left is None else np.sqrt(count) * panel.left
        self.sketch += panel.sketch
        if self.centered and exceeds is not None and not panel.centred_sketch:
            self.sketch -= np.outer(exceeds, exceeds @ self._columns)
        return self._corrected(lacks, exceeds)

    def merge(self, other: Self) -> Corrections:
        """Add the tally of another span; also returns corrections."""
        self.counts.merge(other.counts)
        lacks = self._join(other.count, other)
        self.sketch += other.sketch
        return self._corrected(lacks)

    def close(self) -> None:
        """End a span: there is nothing to complete."""

    def _corrected(self, lacks: F64 | None, exceeds: F64 | None = None) -> Corrections:
        """The corrections of the matrix; the sketch is corrected here."""
        if not self.centered:
            return Corrections()
        if lacks is not None:
            self.sketch += np.outer(lacks, lacks @ self._columns)
        return Corrections(lacks, exceeds)

    def _join(self, count: int, other: SamplePanel | Moments) -> F64 | None:
        """Join other samples; returns c, (n_features,), with scatter = scatter_a + scatter_b + c c'."""
        if not self.count:
            self.count, self.origin, self.offset, self.squares = count, other.origin, other.offset, other.squares
            self.low, self.high = other.low, other.high
            return None
        total, moved = self.count + count, other.origin - self.origin
        difference = moved + (other.offset - self.offset)
        lacks: F64 = difference * np.sqrt(self.count * count / total)
        self.offset = self.offset + difference * (count / total)
        self.squares = self.squares + other.squares + lacks**2
        self.low, self.high = np.minimum(self.low, other.low + moved), np.maximum(self.high, other.high + moved)
        self.count = total
        return lacks


@dataclass
class Present:
    """Number and mean of the present values of each feature: the first pass, before missing values can be filled in."""

    count: NDArray[np.int64]
    means: Means
    """0 where no value is present."""
    counts: Counts = field(default_factory=Counts)

    @classmethod
    def empty(cls, n_features: int) -> Self:
        """An empty count."""
        return cls(np.zeros(n_features, np.int64), Means(np.zeros(n_features), np.zeros(n_features)))

    @property
    def mean(self) -> F64:
        """(n_features,)."""
        return self.means.origin + self.means.offset

    def add(self, count: NDArray[np.int64], means: Means, n_missing: int) -> None:
        """Count the present values of a panel."""
        self._join(count, means)
        self.counts.n_missing += n_missing

    def merge(self, other: Self) -> Self:
        """Add the count of another span."""
        self._join(other.count, other.means)
        self.counts.merge(other.counts)
        return self

    def _join(self, count: NDArray[np.int64], means: Means) -> None:
        total = self.count + count
        first = self.count == 0
        origin = np.where(first, means.origin, self.means.origin)
        offset = np.where(first, means.offset, self.means.offset)
        difference = (means.origin - origin) + (means.offset - offset)
        self.means = Means(origin, offset + difference * (count / np.maximum(total, 1)))
        self.count = total


@dataclass(frozen=True)
class Standard:
    """Mean and divisor of every feature, from all samples."""

    mean: F64
    """(n_features,); 0 without centring, NaN for a feature that is left out."""
    divisor: F64
    """(n_features,); 1 for a constant feature, NaN for one that is left out."""
    weights: F64
    """(n_features,); NaN for a feature that is left out."""
    left_out: NDArray[np.bool_]
    """Mask of the features that are left out."""
    features: FeatureCounts
    about: About
    """Means and factors that turn X into X_c."""

    @classmethod
    def nothing(cls) -> Self:
        """Tally of no features."""
        none = np.empty(0)
        return cls(none, none, none, np.empty(0, bool), FeatureCounts(), About(none, none, none))

    @classmethod
    def of(cls, moments: Moments, rules: Rules, present: Present | None, weights: F64 | None = None) -> Self:
        """The means and divisors from the tallies.

        Parameters
        ----------
        present : where values may be missing, else None
        weights : of the features, flattened; NaN for one that is left out. None for weights of 1
        """
        n_present = np.full(moments.mean.size, moments.count) if present is None else present.count
        mean = moments.mean if present is None else present.mean
        given = np.ones(mean.size) if weights is None else weights
        masked, empty = np.isnan(given), n_present == 0
        incomplete = rules.too_few(n_present, moments.count) & ~empty
        divisor = n_present - rules.ddof_of_features
        variance = moments.squares / np.maximum(divisor, 1)
        steady = variance < rules.min_variance
        constant = is_constant(variance, mean, divisor) & (rules.scale != "none")
        divisor = scale_of(rules.scale, variance, moments.high - moments.low, constant)
        counted, left_out = [], np.zeros(mean.size, bool)
        for mask in (masked, empty, incomplete, steady):
            counted.append(int((mask & ~left_out).sum()))
            left_out |= mask
        features = FeatureCounts(
            constant=int((constant & ~left_out).sum()),
            masked=counted[0],
            empty=counted[1],
            incomplete=counted[2],
            steady=counted[3],
        )
        factor = np.where(left_out | (constant & rules.center), 0.0, np.nan_to_num(given) / divisor)
        zero = np.zeros_like(mean)
        origin, offset = (moments.origin, moments.offset) if rules.center else (zero, zero)
        return cls(
            np.where(left_out, np.nan, mean if rules.center else 0.0),
            np.where(left_out, np.nan, divisor),
            np.where(left_out, np.nan, given),
            left_out,
            features,
            About(origin, offset, factor),
        )
