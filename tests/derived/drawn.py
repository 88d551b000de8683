"""Samples for derived analyses, their products, and every operator beside what it does to samples, by other means."""

from dataclasses import dataclass

import numpy as np
from scipy import signal

from dpca.derived.filters import Butterworth, Lanczos, RunningMean
from dpca.derived.fits import Detrend, LessCovariates
from dpca.derived.gram import FactorProducts, Products
from dpca.derived.groups import Anomalies, Between, GroupMeans
from dpca.derived.hilbert import Analytic
from dpca.derived.operators import Center, Difference, SelectRows, Weights

STEP = 0.5


@dataclass(frozen=True)
class Samples:
    """X = X_c + mean."""

    x: np.ndarray
    mean: np.ndarray

    @property
    def centred(self):
        return self.x - self.mean

    @property
    def times(self):
        return 3.0 + STEP * np.arange(len(self.x))

    @property
    def products(self):
        c = self.centred
        return Products(c @ c.T, c @ self.mean, float(self.mean @ self.mean))

    @property
    def factor(self):
        c = self.centred
        return FactorProducts(np.linalg.qr(c.T)[1].T, c @ self.mean, float(self.mean @ self.mean))

    @property
    def both(self):
        return self.products, self.factor


def samples(seed=0, n=60, d=300, mean=5.0, dtype="f8"):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, 6)).cumsum(0) @ rng.standard_normal((6, d)) + 0.3 * rng.standard_normal((n, d)) + mean
    x = x.astype(dtype).astype(float)
    return Samples(x, x.mean(0))


def operators(n, seed=0):
    """By name: an operator on n rows, and the same on an array of n rows, computed in another way."""
    rng = np.random.default_rng(seed)
    t = STEP * np.arange(n)
    chosen, months, years = rng.integers(0, n, n - 3), np.arange(n) % 6, np.arange(n) // 5
    z, w = rng.standard_normal((n, 2)), rng.random(n) + 0.1
    uneven = np.sort(rng.random(n)) * 1e3
    ones = np.ones((n, 1))
    return {
        "select": (SelectRows(chosen, n), lambda x: x[chosen]),
        "difference": (Difference(n, 2), lambda x: x[2:] - x[:-2]),
        "center": (Center(n), lambda x: x - x.mean(0)),
        "weights": (Weights(w), lambda x: np.sqrt(w)[:, None] * (x - np.average(x, axis=0, weights=w))),
        "group means": (GroupMeans(years), lambda x: np.stack([x[years == y].mean(0) for y in range(max(years) + 1)])),
        "anomalies": (Anomalies(months), lambda x: x - means(x, months)),
        "between": (Between(months), lambda x: means(x, months) - x.mean(0)),
        "detrend": (Detrend(uneven, 2), lambda x: beside(x, np.vander((uneven - 500) / 500, 3))),
        "regress out": (LessCovariates(z), lambda x: beside(x, np.hstack([ones, z]))),
        "regress out alone": (LessCovariates(z[:, 0], intercept=False), lambda x: beside(x, z[:, :1])),
        "low-pass": (Butterworth(t, (None, 0.3)), lambda x: filtered(x, 4, 0.3, "lowpass")),
        "high-pass": (Butterworth(t, (0.1, None), 2), lambda x: filtered(x, 2, 0.1, "highpass")),
        "band-pass": (Butterworth(t, (0.1, 0.4), 1), lambda x: filtered(x, 1, (0.1, 0.4), "bandpass")),
        "running mean": (RunningMean(t, 6), lambda x: convolved(x, np.full(6, 1 / 6))),
        "Lanczos low": (Lanczos(t, (None, 0.2), 7), lambda x: convolved(x, lanczos(7, 0.2 * STEP))),
        "Lanczos band": (
            Lanczos(t, (0.1, 0.2), 7),
            lambda x: convolved(x, lanczos(7, 0.2 * STEP)) - convolved(x, lanczos(7, 0.1 * STEP)),
        ),
        "Lanczos high": (Lanczos(t, (0.1, None), 7), lambda x: x[3:-3] - convolved(x, lanczos(7, 0.1 * STEP))),
        "analytic": (Analytic(n), lambda x: x + 1j * conjugate(x)),
        "analytic, padded": (Analytic(n, "exp"), lambda x: padded_analytic(x, 0.2)),
    }


def means(x, labels):
    """Of the row's group, for each row."""
    found = np.empty_like(x)
    for label in np.unique(labels):
        found[labels == label] = x[labels == label].mean(0)
    return found


def beside(x, columns):
    return x - columns @ np.linalg.lstsq(columns, x, rcond=None)[0]


def filtered(x, order, limits, kind):
    sections = signal.butter(order, limits, kind, fs=1 / STEP, output="sos")
    parts = [signal.sosfiltfilt(sections, part, axis=0) for part in (x.real, x.imag)]
    return parts[0] + 1j * parts[1] if np.iscomplexobj(x) else parts[0]


def convolved(x, weights):
    return np.stack([np.convolve(column, weights, mode="valid") for column in x.T], axis=1)


def lanczos(window, cycles):
    """Duchon's low-pass weights, as in the documentation of Iris, then divided by their sum."""
    order = (window - 1) // 2 + 1
    weights = np.zeros(2 * order + 1)
    weights[order] = 2 * cycles
    k = np.arange(1.0, order)
    sigma = np.sin(np.pi * k / order) * order / (np.pi * k)
    first = np.sin(2.0 * np.pi * cycles * k) / (np.pi * k)
    weights[order - 1 : 0 : -1] = weights[order + 1 : -1] = first * sigma
    return weights[1:-1] / weights.sum()


def conjugate(x):
    """The Hilbert transform of columns, also of complex ones."""
    parts = [signal.hilbert(part, axis=0).imag for part in (x.real, x.imag)]
    return parts[0] + 1j * parts[1] if np.iscomplexobj(x) else parts[0]


def padded_analytic(x, decay):
    """What xeofs does before it removes the mean (xeofs.utils.hilbert_transform, 3.0)."""
    n = len(x)
    t, extended = np.arange(n), np.arange(-n, 2 * n)
    line = np.linalg.lstsq(np.vander(t, 2), x, rcond=None)[0]
    left = x - np.vander(t, 2) @ line
    falls = np.exp(-t / n / decay)[:, None]
    y = np.concatenate([falls[::-1] * left[0], left, falls * left[-1]]) + np.vander(extended, 2) @ line
    return (y + 1j * conjugate(y))[n : 2 * n]


def assert_close(found, expected, tolerance=1e-12):
    """Equal to within a share of the largest value."""
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance * np.abs(expected).max())


def assert_same_up_to_phase(found, expected, tolerance=1e-9):
    """Columns that are equal but for a factor of magnitude 1 each."""
    phases = np.einsum("ij,ij->j", expected.conj(), found)
    assert_close(found * (np.abs(phases) / phases), expected, tolerance)
