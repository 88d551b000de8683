"""Tallies: what a pass counts besides the matrix, without another read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from dpca.numerics.panels import About, FeaturePanel, Means, Panel, Rules, SamplePanel
from dpca.numerics.preprocess import is_constant

F64 = NDArray[np.float64]


@dataclass
class Counts:
    """Counts of a pass over the data."""

    bytes_read: int = 0
    """Bytes of the slabs after decoding."""
    n_missing: int = 0
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
        self.absent_chunks += other.absent_chunks
        self.retries += other.retries
        self.read_seconds += other.read_seconds
        self.compute_seconds += other.compute_seconds


class Tally(Protocol):
    """The contract of tallies: what an accumulator counts besides its matrix; one class for each streamed side."""

    counts: Counts
    squares: F64
    """Sum of squares of each of the m, in float64 without the products."""

    def add(self, panel: Panel) -> Corrections:
        """Count a panel; returns the corrections that the matrix needs after adding it."""
        ...

    def merge(self, other: Self) -> Corrections:
        """Add the tally of another span; also returns corrections."""
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
    n_constant: int = 0
    n_empty: int = 0
    """Features without any value."""
    varies: bool = False
    """Whether samples differ by more than rounding."""
    counts: Counts = field(default_factory=Counts)

    @classmethod
    def empty(cls, n_samples: int, n_columns: int = 0) -> Self:
        """An empty tally, with a sketch of `n_columns` columns."""
        return cls(np.zeros(n_samples), np.zeros((n_samples, n_columns)), np.zeros(n_samples))

    @property
    def total(self) -> float:
        """Sum of squares of the data in the matrix."""
        return float(self.squares.sum())

    def add(self, panel: Panel) -> Corrections:
        """Count a panel."""
        assert isinstance(panel, FeaturePanel)
        self.mean_product += panel.mean_product
        self.sketch += panel.sketch
        self.mean_norm2 += panel.mean_norm2
        self.squares += panel.squares
        self.counts.n_missing += panel.n_missing
        self.n_constant += panel.n_constant
        self.n_empty += panel.n_empty
        self.varies |= panel.varies
        return Corrections()

    def merge(self, other: Self) -> Corrections:
        """Add the tally of another span."""
        self.mean_product += other.mean_product
        self.sketch += other.sketch
        self.mean_norm2 += other.mean_norm2
        self.squares += other.squares
        self.n_constant += other.n_constant
        self.n_empty += other.n_empty
        self.varies |= other.varies
        self.counts.merge(other.counts)
        return Corrections()


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
    sketch: F64
    """Sketch of the matrix, as in `dpca.numerics.sketch`, (n_features, t)."""
    _columns: F64 = field(repr=False)
    count: int = 0
    counts: Counts = field(default_factory=Counts)

    @classmethod
    def empty(cls, n_features: int, centered: bool, columns: F64 | None = None) -> Self:
        """An empty tally; `centered` says whether the matrix is about the mean."""
        columns = np.empty((n_features, 0)) if columns is None else columns
        zeros = (np.zeros(n_features) for _ in range(3))
        squares, origin, offset = zeros
        return cls(squares, centered, origin, offset, np.zeros_like(columns), columns)

    @property
    def varies(self) -> bool:
        """As in FeatureTally. The sums are of differences, which are exactly 0 where features are constant."""
        return bool(self.total > 0)

    @property
    def mean(self) -> F64:
        """(n_features,)."""
        return self.origin + self.offset

    @property
    def total(self) -> float:
        """Sum of squares of the data in the matrix."""
        return float(self.squares.sum()) + (0.0 if self.centered else self.count * float(self.mean @ self.mean))

    def add(self, panel: Panel) -> Corrections:
        """Count a panel; returns the corrections that the scatter matrix needs after adding its product."""
        assert isinstance(panel, SamplePanel)
        count = panel.stop - panel.start
        self.counts.n_missing += panel.n_missing
        lacks = self._join(count, panel.origin, panel.offset, panel.squares)
        exceeds = None if panel.left is None else np.sqrt(count) * panel.left
        self.sketch += panel.sketch
        return self._corrected(lacks, exceeds)

    def merge(self, other: Self) -> Corrections:
        """Add the tally of another span; also returns corrections."""
        self.counts.merge(other.counts)
        lacks = self._join(other.count, other.origin, other.offset, other.squares)
        self.sketch += other.sketch
        return self._corrected(lacks)

    def _corrected(self, lacks: F64 | None, exceeds: F64 | None = None) -> Corrections:
        """The corrections of the matrix; the sketch is corrected here."""
        if not self.centered:
            return Corrections()
        for sign, vector in ((1, lacks), (-1, exceeds)):
            if vector is not None:
                self.sketch += sign * np.outer(vector, vector @ self._columns)
        return Corrections(lacks, exceeds)

    def _join(self, count: int, origin: F64, offset: F64, squares: F64) -> F64 | None:
        """Join other samples; returns c, (n_features,), with scatter = scatter_a + scatter_b + c c'."""
        if not self.count:
            self.count, self.origin, self.offset, self.squares = count, origin, offset, squares
            return None
        total = self.count + count
        difference = (origin - self.origin) + (offset - self.offset)
        lacks: F64 = difference * np.sqrt(self.count * count / total)
        self.offset = self.offset + difference * (count / total)
        self.squares = self.squares + squares + lacks**2
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
    """(n_features,); 0 without centring, NaN for a feature without any value."""
    divisor: F64
    """(n_features,); 1 for a constant feature, NaN for one without any value."""
    constant: NDArray[np.bool_]
    """Mask of features without variation; all False without scaling."""
    empty: NDArray[np.bool_]
    """Mask of features without any value."""
    about: About
    """Means and factors that turn X into X_c."""

    @classmethod
    def nothing(cls) -> Self:
        """Of no features."""
        none, no = np.empty(0), np.empty(0, bool)
        return cls(none, none, no, no, About(none, none, none))

    @classmethod
    def of(cls, moments: Moments, rules: Rules, present: Present | None) -> Self:
        """The means and divisors from the tallies; `present` where values may be missing."""
        n_present = np.full(moments.mean.size, moments.count) if present is None else present.count
        mean = moments.mean if present is None else present.mean
        divisor, constant, empty = np.ones(mean.size), np.zeros(mean.size, bool), n_present == 0
        if rules.scale == "std":
            variance = moments.squares / np.maximum(n_present - rules.ddof, 1)
            constant = is_constant(variance, mean, n_present, rules.ddof)
            divisor = np.where(constant, 1.0, np.sqrt(variance))
        factor = np.where(empty | (constant & rules.center), 0.0, 1 / divisor)
        zero = np.zeros_like(mean)
        origin, offset = (moments.origin, moments.offset) if rules.center else (zero, zero)
        return cls(
            np.where(empty, np.nan, mean if rules.center else 0.0),
            np.where(empty, np.nan, divisor),
            constant,
            empty,
            About(origin, offset, factor),
        )
