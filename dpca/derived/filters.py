"""Filters in time, as operators along the samples: times have to be regular.

Weights of finite length (`Lanczos`, `RunningMean`) need samples on both sides: rows are lost at both ends, and none is made up. The recursive
filter (`Butterworth`) keeps all rows: it extends the record at both ends by reflection, so the first and last rows, about one period of the
lowest frequency, are worth less than others.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import signal, sparse

from dpca.derived.operators import EXTENDED, Matrix, Operator, SparseOperator, like
from dpca.derived.times import regular_step
from dpca.errors import ConfigError
from dpca.types import F64

Band = tuple[float | None, float | None]
"""The lowest and the highest frequency that pass, in cycles per unit of time; None where there is no limit."""


@dataclass(frozen=True, eq=False)
class Butterworth(Operator):
    """The Butterworth filter forwards and backwards, without a shift of phase: scipy.signal.sosfiltfilt with its defaults.

    The response is the square of a filter of `order`. The record is extended at both ends by its odd reflection, over
    3 (2 sections + 1) samples or slightly fewer.
    """

    times: F64
    """Times of the samples, (n,), regular."""
    band: Band
    order: int = 4

    def __post_init__(self) -> None:
        checked_band(self.band, self.step)
        if self.order < 1:
            raise ConfigError(f"order is {self.order}, but 1 or more is allowed", key="order")
        if self.n_in <= self.edge:
            raise ConfigError(
                f"the filter extends the record by {self.edge} samples at both ends, but there are {self.n_in} in all",
                "Take a lower order, or more samples.",
                key="order",
            )

    @property
    def n_in(self) -> int:
        return len(self.times)

    @property
    def gain(self) -> float | None:
        return 1.0 if self.band[0] is None else 0.0

    @cached_property
    def step(self) -> float:
        """Step of the times."""
        return regular_step(self.times, len(self.times), "a filter")

    @cached_property
    def sections(self) -> F64:
        """Second-order sections, (sections, 6)."""
        low, high = self.band
        kind = "lowpass" if low is None else "highpass" if high is None else "bandpass"
        limits = [limit for limit in self.band if limit is not None]
        limit = limits if kind == "bandpass" else limits[0]
        return np.asarray(signal.butter(self.order, limit, kind, fs=1 / self.step, output="sos"), np.float64)

    @cached_property
    def edge(self) -> int:
        """Samples by which the record is extended at each end, as sosfiltfilt does."""
        sections = self.sections
        zeros = min(int((sections[:, 2] == 0).sum()), int((sections[:, 5] == 0).sum()))
        return 3 * (2 * len(sections) + 1 - zeros)

    def apply(self, matrix: Matrix) -> Matrix:
        edge, first, last = self.edge, 2 * matrix[:1], 2 * matrix[-1:]
        padded = np.concatenate([first - matrix[edge:0:-1], matrix, last - matrix[-2 : -edge - 2 : -1]])
        return self._filtered(self._filtered(padded)[::-1])[::-1][edge : edge + self.n_in]

    def _filtered(self, padded: Matrix) -> Matrix:
        """F x, forwards, as if the first value had been there for ever."""
        sections = like(self.sections, padded)
        return np.asarray(signal.sosfilt(sections, padded, axis=0, zi=_steady(sections)[..., None] * padded[:1])[0])

    def adjoint(self, matrix: Matrix) -> Matrix:
        # A = P J F J F E: extend, filter, reverse, filter, reverse, cut. So A' = E' F' J F' J P'.
        edge, n = self.edge, self.n_in
        padded = np.zeros((n + 2 * edge, *matrix.shape[1:]), matrix.dtype)
        padded[edge : edge + n] = matrix
        padded = self._transposed(self._transposed(padded[::-1])[::-1])
        left, found, right = padded[:edge], padded[edge : edge + n].copy(), padded[edge + n :]
        found[0] += 2 * left.sum(axis=0)  # E puts 2 x_0 - x_edge, ..., 2 x_0 - x_1 before the record
        found[1 : edge + 1] -= left[::-1]
        found[-1] += 2 * right.sum(axis=0)
        found[n - 1 - edge : n - 1] -= right[::-1]
        return found

    def _transposed(self, padded: Matrix) -> Matrix:
        """F' y of the forward filter F x = L x + g x_0, with L' = J L J and g from a start in the steady state of x_0."""
        sections = like(self.sections, padded)
        found = np.asarray(signal.sosfilt(sections, padded[::-1], axis=0))[::-1].copy()
        start = signal.sosfilt(sections, np.zeros(len(padded), sections.dtype), zi=_steady(sections))[0]
        found[0] += start @ padded
        return found


class Weighted(SparseOperator):
    """A filter with the same weights about each sample that has enough others on both sides."""

    times: F64

    @property
    @abstractmethod
    def weights(self) -> Matrix:
        """Weights of a sample and its neighbours, (window,)."""

    @property
    @abstractmethod
    def n_in(self) -> int:
        """Number of samples that it takes."""

    @cached_property
    def matrix(self) -> Any:
        """The weights in each row, shifted by one, (n - window + 1, n)."""
        weights, n = self.weights, self.n_in
        offsets = np.arange(len(weights))
        return sparse.diags_array(weights, offsets=offsets, shape=(n - len(weights) + 1, n)).tocsr()

    def rows(self, samples: NDArray[Any]) -> NDArray[Any]:
        """The samples in the middle of each window; the later of two."""
        middle = len(self.weights) // 2
        return samples[middle : middle + self.n_out]


def _steady(sections: Matrix) -> Matrix:
    """The state of second-order sections, transposed direct form II, that have had the input 1 for ever, (sections, 2): scipy.signal.sosfilt_zi."""
    states, level = np.empty((len(sections), 2), sections.dtype), sections.dtype.type(1)
    for state, section in zip(states, sections, strict=True):
        b, a = section[:3], section[3:]
        gain = b.sum() / a.sum()
        state[1] = level * (b[2] - a[2] * gain)
        state[0] = level * (b[1] - a[1] * gain) + state[1]
        level *= gain
    return states


@dataclass(frozen=True, eq=False)
class RunningMean(Weighted):
    """The mean of `window` samples that follow each other."""

    times: F64
    """Times of the samples, (n,), regular."""
    window: int

    def __post_init__(self) -> None:
        regular_step(self.times, len(self.times), "a running mean")
        _check_window(self.window, len(self.times))

    @property
    def n_in(self) -> int:
        return len(self.times)

    @property
    def gain(self) -> float | None:
        return 1.0

    @property
    def weights(self) -> Matrix:
        return np.full(self.window, 1 / EXTENDED(self.window))


@dataclass(frozen=True, eq=False)
class Lanczos(Weighted):
    """The Lanczos filter of an odd window (Duchon, Lanczos filtering in one and two dimensions, J. Appl. Meteor. 18, 1979, eq. 9 and 14).

    The weights of a low-pass are sin(2 pi f k) / (pi k) times sigma factors sin(pi k / m) / (pi k / m), |k| < m = (window + 1) / 2, here
    divided by their sum, so that a constant stays. A band is the difference of two low-passes, a high-pass of 1 and one.
    """

    times: F64
    """Times of the samples, (n,), regular."""
    band: Band
    window: int

    def __post_init__(self) -> None:
        checked_band(self.band, regular_step(self.times, len(self.times), "a filter"))
        _check_window(self.window, len(self.times))
        if self.window % 2 == 0 or self.window < 3:
            raise ConfigError(
                f"window is {self.window}, but an odd number of samples, 3 or more, is allowed", key="window"
            )

    @property
    def n_in(self) -> int:
        return len(self.times)

    @property
    def gain(self) -> float | None:
        return 1.0 if self.band[0] is None else 0.0

    @cached_property
    def weights(self) -> F64:
        """Symmetric, (window,)."""
        low, high = self.band
        return self._low_pass(high) - (0.0 if low is None else self._low_pass(low))

    def _low_pass(self, limit: float | None) -> F64:
        """Weights that sum to 1; without a limit those of the identity."""
        m = (self.window + 1) // 2
        k = np.arange(1 - m, m)
        if limit is None:
            return np.asarray(k == 0, np.float64)
        cycles = 2 * limit * regular_step(self.times, len(self.times), "a filter")
        weights = cycles * np.sinc(cycles * k) * np.sinc(k / m)
        return np.asarray(weights / weights.sum(), np.float64)


def checked_band(band: Band, step: float) -> None:
    """Check that a band lies between 0 and the Nyquist frequency."""
    limits, nyquist = [limit for limit in band if limit is not None], 1 / (2 * step)
    if not limits or not all(0 < limit < nyquist for limit in limits) or limits != sorted(set(limits)):
        raise ConfigError(
            f"band is {list(band)}, but increasing frequencies above 0 and below {nyquist:g} cycles per unit of time are allowed, "
            f"which is half of one cycle per step of {step:g}",
            "Give frequencies in the unit of the times; null leaves one end open.",
            key="band",
        )


def _check_window(window: int, n: int) -> None:
    if not 1 <= window <= n:
        raise ConfigError(f"window is {window} samples, but 1 to {n} are allowed for {n} samples", key="window")
