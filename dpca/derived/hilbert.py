"""Complex EOFs: components of the analytic signal, which find what propagates, with amplitude and phase."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from dpca.derived.gram import AnyProducts, transformed
from dpca.derived.operators import EXTENDED, Center, Chain, Matrix, Operator, like
from dpca.derived.pca import Components, UpTo, pca, phases_of
from dpca.errors import ConfigError

Padding = Literal["none", "exp"]


@dataclass(frozen=True, eq=False)
class Analytic(Operator):
    """x + i H(x), with H the Hilbert transform in time (Marple, IEEE Trans. Signal Processing 47, 1999; scipy.signal.hilbert).

    By the discrete Fourier transform F, which takes the record as periodic: A = F^-1 diag(h) F with h = 1 at frequencies 0 and Nyquist,
    2 above 0 and 0 below. h is real, so A is Hermitian. With padding "exp" (as in xeofs) the record is extended first, by its
    length at both ends: by the straight line fitted to it, plus what the first and last value differ from that, which decays as exp(-t / decay).
    """

    n: int
    padding: Padding = "none"
    decay: float = 0.2
    """Length of the padding, in lengths of the record."""

    def __post_init__(self) -> None:
        if self.n < 3:
            raise ConfigError(
                f"an analytic signal needs 3 samples or more, but there are {self.n}", "Select more samples."
            )
        if self.padding not in ("none", "exp"):
            raise ConfigError(f"padding is {self.padding!r}, but 'none' or 'exp' is allowed", key="padding")
        if not self.decay > 0:
            raise ConfigError(f"decay is {self.decay}, but a number above 0 is allowed", key="decay")

    @property
    def n_in(self) -> int:
        return self.n

    @property
    def gain(self) -> float | None:
        return 1.0 if self.padding == "none" else None

    def apply(self, matrix: Matrix) -> Matrix:
        if self.padding == "none":
            return _positive_frequencies(matrix)
        at_start, at_end, line, slope = (like(one, matrix) for one in (*self._decays, *self._line))
        fitted = slope @ matrix
        beside = matrix - line[self.n : 2 * self.n] @ fitted
        padded = np.concatenate([at_start * beside[:1], beside, at_end * beside[-1:]])
        return _positive_frequencies(padded + line @ fitted)[self.n : 2 * self.n]

    def adjoint(self, matrix: Matrix) -> Matrix:
        if self.padding == "none":
            return _positive_frequencies(matrix)
        n, (at_start, at_end, line, slope) = self.n, (like(one, matrix) for one in (*self._decays, *self._line))
        padded = np.zeros((3 * n, matrix.shape[1]), np.result_type(matrix, np.complex64))
        padded[n : 2 * n] = matrix
        padded = _positive_frequencies(padded)
        beside = padded[n : 2 * n].copy()
        beside[0] += (at_start * padded[:n]).sum(axis=0)
        beside[-1] += (at_end * padded[2 * n :]).sum(axis=0)
        return np.asarray(beside + slope.T @ (line.T @ padded - line[n : 2 * n].T @ beside))

    @cached_property
    def _decays(self) -> tuple[Matrix, Matrix]:
        """Columns by which the first and the last value are multiplied before and behind the record, (n, 1) each."""
        decays = np.exp(-np.arange(self.n, dtype=EXTENDED) / self.n / EXTENDED(self.decay))[:, None]
        return decays[::-1], decays

    @cached_property
    def _line(self) -> tuple[Matrix, Matrix]:
        """T, (3 n, 2), and S, (2, n): T S x is the line fitted to x, before, in and behind the record."""
        times = (np.arange(-self.n, 2 * self.n, dtype=EXTENDED) - EXTENDED(self.n - 1) / 2) / self.n
        line = np.stack([np.ones_like(times), times], axis=1)
        within = line[self.n : 2 * self.n]  # whose columns are orthogonal
        return line, (within / np.square(within).sum(axis=0)).T


@dataclass(frozen=True, eq=False)
class Positive(Operator):
    """diag(h) F at the frequencies above 0, with F unitary: F of the analytic signal without padding of rows whose mean is removed."""

    n: int

    @property
    def n_in(self) -> int:
        return self.n

    @property
    def n_out(self) -> int:
        return self.n // 2

    @property
    def gain(self) -> float | None:
        return 0.0

    @cached_property
    def _gains(self) -> Matrix:
        """h, (n_out, 1)."""
        gains = np.full((self.n_out, 1), 2.0)
        if self.n % 2 == 0:
            gains[-1] = 1.0
        return gains

    def apply(self, matrix: Matrix) -> Matrix:
        return np.asarray(like(self._gains, matrix) * np.fft.fft(matrix, axis=0, norm="ortho")[1 : self.n_out + 1])

    def adjoint(self, matrix: Matrix) -> Matrix:
        return self.in_time(like(self._gains, matrix) * matrix)

    def in_time(self, spectra: Matrix) -> Matrix:
        """F^-1: rows of time, (n, k), from those of these frequencies."""
        padded = np.zeros((self.n, spectra.shape[1]), np.result_type(spectra, np.complex64))
        padded[1 : self.n_out + 1] = spectra
        return np.asarray(np.fft.ifft(padded, axis=0, norm="ortho"))

    def rows(self, samples: Any) -> Any:
        """Cycles in the record."""
        return np.arange(1, self.n_out + 1)


def hilbert(
    products: AnyProducts,
    chain: Chain,
    n_components: int | UpTo | None = None,
    padding: Padding = "none",
    decay: float = 0.2,
) -> Components:
    """Complex principal components (Barnett, Mon. Weather Rev. 111, 1983; Horel, J. Climate Appl. Meteor. 23, 1984).

    A K A^H with A = H T H B: the chain B, its mean removed, the analytic signal T, and its mean removed, which padding may shift.

    Parameters
    ----------
    products : of the n samples
    chain : B, whose rows follow each other at regular times
    n_components : None for all
    padding, decay : see Analytic

    Returns
    -------
    Components
        scores and coefficients are complex; amplitude and phase of a map are those of X_c' C
    """
    whole = analytic(chain, padding, decay)
    if padding != "none":
        return pca(transformed(products, whole), n_components)
    # Without padding the signal has no other frequencies than positive ones: half as many rows as samples, an eighth of the work.
    positive = Positive(chain.n_out)
    found = pca(transformed(products, chain.then(Center(chain.n_out), positive)), n_components)
    scores = positive.in_time(found.scores)
    phases = phases_of(scores)
    return replace(found, scores=scores * phases, coefficients=found.coefficients * phases)


def analytic(chain: Chain, padding: Padding = "none", decay: float = 0.2) -> Chain:
    """H T H B: the analytic signal of the rows of B, about its mean."""
    n = chain.n_out
    centred = Center(n)
    return chain.then(centred, Analytic(n, padding, decay), centred)


def _positive_frequencies(matrix: Matrix) -> Matrix:
    """F^-1 diag(h) F M."""
    n = len(matrix)
    gains = np.zeros((n, 1), matrix.real.dtype)
    gains[0] = 1.0
    gains[1 : (n + 1) // 2] = 2.0
    if n % 2 == 0:
        gains[n // 2] = 1.0
    return np.asarray(np.fft.ifft(gains * np.fft.fft(matrix, axis=0), axis=0))
