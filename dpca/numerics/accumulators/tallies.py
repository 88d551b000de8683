"""What one reading gives besides the matrix, and costs nothing more."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from dpca.numerics.preprocess import About, FeaturePanel, Means, Panel, Rules, SamplePanel, is_constant

F64 = NDArray[np.float64]


@dataclass
class Counts:
    """What was met while the data were read."""

    bytes_read: int = 0
    """Bytes of slabs as decoded."""
    n_missing: int = 0
    absent_chunks: int = 0
    """Chunks that the store never wrote, read as its fill value."""
    retries: int = 0
    """Reads that were tried again."""
    read_seconds: float = field(default=0.0, compare=False)
    """Of all tasks, from the request for a slab until its values are there."""
    compute_seconds: float = field(default=0.0, compare=False)
    """Of all tasks, from there to the next request."""

    def merge(self, other: Counts) -> None:
        """Count what another span has met."""
        self.bytes_read += other.bytes_read
        self.n_missing += other.n_missing
        self.absent_chunks += other.absent_chunks
        self.retries += other.retries
        self.read_seconds += other.read_seconds
        self.compute_seconds += other.compute_seconds


class Tally(Protocol):
    """What every accumulator counts beside its matrix, by what streams by."""

    counts: Counts
    squares: F64
    """Sums of squares, added up in float64 without the products: of each of the m."""

    def add(self, panel: Panel) -> Corrections:
        """Count a panel; returns what the matrix lacks after it was added."""
        ...

    def merge(self, other: Self) -> Corrections:
        """Count what another span has counted; likewise."""
        ...

    sketch: F64
    """Of the matrix, as of `dpca.numerics.sketch`, (m, t)."""

    @property
    def total(self) -> float:
        """Sum of squares, added up in float64 without the products: what the trace of the matrix should be."""
        ...

    @property
    def varies(self) -> bool:
        """Whether samples differ by more than what rounding makes of one value."""
        ...


@dataclass(frozen=True)
class Corrections:
    """Vectors whose outer products a matrix lacks, or has too much of, for its means to be those of all samples."""

    lacks: F64 | None = None
    exceeds: F64 | None = None


@dataclass
class FeatureTally:
    """Of features that stream by, all samples of each: every mean is known, so nothing needs correcting."""

    mean_product: F64
    """r = X_c m~ with m~ = mean / scale, (n_samples,): with it X X' = K + r 1' + 1 r' + c 11'."""
    sketch: F64
    """Of the matrix, as of `dpca.numerics.sketch`, (n_samples, t)."""
    squares: F64
    """Sums of squares of each sample, added up in float64 without the products, (n_samples,)."""
    mean_norm2: float = 0.0
    """c = m~' m~."""
    n_constant: int = 0
    n_empty: int = 0
    """Features without any value."""
    varies: bool = False
    """Whether samples differ by more than what rounding makes of one value."""
    counts: Counts = field(default_factory=Counts)

    @classmethod
    def empty(cls, n_samples: int, n_columns: int = 0) -> Self:
        """An empty tally; the sketch is on so many columns."""
        return cls(np.zeros(n_samples), np.zeros((n_samples, n_columns)), np.zeros(n_samples))

    @property
    def total(self) -> float:
        """Sum of squares of what the matrix is of."""
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
        """Count what another span has counted."""
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
    """Of samples that stream by: how many, the mean and the sum of squares about it of each feature.

    No block of samples knows the mean of all, so each is centred by its own, and a join of two adds what their
    means differ by: the pairwise update of Chan, Golub and LeVeque (The American Statistician 37, 1983, eq. 2.1),
    which loses no digits to the mean as X'X - n m m' does.
    """

    squares: F64
    """Sum of squares about the mean of each feature, in float64 without products, (n_features,)."""
    centered: bool
    origin: F64
    """The mean is origin + offset: where features are far from 0, only differences keep their digits."""
    offset: F64
    sketch: F64
    """Of the matrix, as of `dpca.numerics.sketch`, (n_features, t)."""
    _columns: F64 = field(repr=False)
    count: int = 0
    counts: Counts = field(default_factory=Counts)

    @classmethod
    def empty(cls, n_features: int, centered: bool, columns: F64 | None = None) -> Self:
        """Of nothing; `centered` says whether the matrix is about the mean."""
        columns = np.empty((n_features, 0)) if columns is None else columns
        zeros = (np.zeros(n_features) for _ in range(3))
        squares, origin, offset = zeros
        return cls(squares, centered, origin, offset, np.zeros_like(columns), columns)

    @property
    def varies(self) -> bool:
        """As of FeatureTally: what is summed up are differences, which are 0 where features are constant."""
        return bool(self.total > 0)

    @property
    def mean(self) -> F64:
        """(n_features,)."""
        return self.origin + self.offset

    @property
    def total(self) -> float:
        """Sum of squares of what the matrix is of."""
        return float(self.squares.sum()) + (0.0 if self.centered else self.count * float(self.mean @ self.mean))

    def add(self, panel: Panel) -> Corrections:
        """Count a panel; returns what the scatter matrix lacks after its product was added."""
        assert isinstance(panel, SamplePanel)
        count = panel.stop - panel.start
        self.counts.n_missing += panel.n_missing
        lacks = self._join(count, panel.origin, panel.offset, panel.squares)
        exceeds = None if panel.left is None else np.sqrt(count) * panel.left
        self.sketch += panel.sketch
        return self._corrected(lacks, exceeds)

    def merge(self, other: Self) -> Corrections:
        """Count what another span has counted; likewise."""
        self.counts.merge(other.counts)
        lacks = self._join(other.count, other.origin, other.offset, other.squares)
        self.sketch += other.sketch
        return self._corrected(lacks)

    def _corrected(self, lacks: F64 | None, exceeds: F64 | None = None) -> Corrections:
        """What the matrix lacks, which the sketch has then."""
        if not self.centered:
            return Corrections()
        for sign, vector in ((1, lacks), (-1, exceeds)):
            if vector is not None:
                self.sketch += sign * np.outer(vector, vector @ self._columns)
        return Corrections(lacks, exceeds)

    def _join(self, count: int, origin: F64, offset: F64, squares: F64) -> F64 | None:
        """Join other samples; returns c with scatter = scatter_a + scatter_b + c c', (n_features,)."""
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
    """How many values of each feature are present, and their mean; before missing ones can be filled in."""

    count: NDArray[np.int64]
    means: Means
    """0 where no value is present."""
    counts: Counts = field(default_factory=Counts)

    @classmethod
    def empty(cls, n_features: int) -> Self:
        """Of nothing."""
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
        """Join what another span has counted."""
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
    """Mean and divisor of every feature, once all samples are known."""

    mean: F64
    """(n_features,); 0 without centring, NaN for a feature without any value."""
    divisor: F64
    """(n_features,); 1 for a constant feature, NaN for one without any value."""
    constant: NDArray[np.bool_]
    """Features without variation; none unless they should be scaled."""
    empty: NDArray[np.bool_]
    """Features without any value."""
    about: About
    """What X_c is made with."""

    @classmethod
    def nothing(cls) -> Self:
        """Of no features."""
        none, no = np.empty(0), np.empty(0, bool)
        return cls(none, none, no, no, About(none, none, none))

    @classmethod
    def of(cls, moments: Moments, rules: Rules, present: Present | None) -> Self:
        """From what was counted; `present` where values may be missing."""
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
