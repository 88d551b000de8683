"""Spectral proper orthogonal decomposition: at each frequency, the components of what blocks of the record have there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import signal

from dpca.derived.gram import FactorProducts, Transformed
from dpca.derived.operators import Matrix, finite
from dpca.derived.pca import signed
from dpca.derived.times import regular_step
from dpca.errors import ConfigError
from dpca.numerics.sketch import RELIABLE
from dpca.numerics.spectrum import reciprocal
from dpca.types import F64

C128 = NDArray[np.complex128]


@dataclass(frozen=True, eq=False)
class SpectralComponents:
    """Components at each frequency; the energies of all of them sum to Welch's estimate of the spectral density, summed over features."""

    frequencies: F64
    """Cycles per unit of the times, (frequencies,)."""
    energies: F64
    """lambda, density of variance per unit of frequency, descending at each, (frequencies, k)."""
    total: F64
    """Sum of all energies at a frequency, (frequencies,)."""
    rank: NDArray[np.intp]
    """Number of energies that can be told from 0 at a frequency, (frequencies,)."""
    scores: C128
    """Scores of the blocks, (frequencies, blocks, k); their squares sum to the energies."""
    coefficients: C128
    """C of the original samples, (frequencies, n, k), 0 where the energy is: modes phi = X_c' C, and a block's row of A_f X is scores phi'."""
    starts: NDArray[np.intp]
    """The first row of each block, (blocks,)."""
    error: F64
    """Estimated relative error of each energy, (frequencies, k)."""
    amplification: float
    """See `dpca.derived.gram`."""
    fourier: C128
    """Coefficients of a block's rows in its sum at each frequency, (frequencies, block)."""

    def blocks_of(self, rows: Matrix) -> C128:
        """A_f B_f for rows B_f, (frequencies, rows, k): the Fourier sums of the blocks, (frequencies, blocks, k)."""
        block = self.fourier.shape[1]
        sums = [np.einsum("ft,ftk->fk", self.fourier, rows[:, start : start + block]) for start in self.starts]
        return np.stack(sums, axis=1)

    @property
    def reliable(self) -> NDArray[np.bool_]:
        """Whether an energy has two digits or more, (frequencies, k)."""
        return self.error <= RELIABLE


def spod(
    samples: Transformed,
    times: F64,
    block: int,
    overlap: int | None = None,
    window: str | F64 = "hamming",
    frequencies: Literal["all"] | Sequence[float] = "all",
    n_components: int | None = None,
) -> SpectralComponents:
    """Spectral POD by Welch's method (Towne, Schmidt and Colonius, J. Fluid Mech. 847, 2018, section 3.1).

    At each frequency f the blocks' windowed Fourier sums are rows of A_f X, and A_f K A_f^H = U diag(lambda) U^H is a matrix of blocks by
    blocks. Where the rows are real the spectrum is one-sided: energies above 0 and below Nyquist are doubled.

    Parameters
    ----------
    samples : A X; its mean is not removed here
    times : of its rows, (rows,), regular
    block : rows in a block
    overlap : rows that a block shares with the next; None for half of it
    window : a name for scipy.signal.get_window (periodic), or its values, (block,)
    frequencies : "all", or some, of which each stands for the nearest that blocks resolve
    n_components : at each frequency; None for as many as there are blocks (or columns of a factor, if these are fewer)
    """
    step = regular_step(times, samples.n, "SPOD")
    starts = _starts(samples.n, block, block // 2 if overlap is None else overlap)
    if n_components is not None and not 1 <= n_components <= len(starts):
        raise ConfigError(
            f"n_components is {n_components}, but {len(starts)} blocks have 1 to {len(starts)}",
            "Ask for fewer, or take shorter blocks.",
            key="n_components",
        )
    fourier, chosen = _fourier(_window(window, block), step, samples.products.is_real, frequencies)
    fourier /= np.sqrt(len(starts))
    energies, vectors, totals = _decomposed(samples, fourier, starts)
    k = min(n_components or len(starts), vectors.shape[2])
    scores = np.empty((len(chosen), len(starts), k), complex)
    coefficients = np.empty((len(chosen), samples.chain.n_in, k), complex)
    rank, error = np.empty(len(chosen), np.intp), np.empty((len(chosen), k))
    for f in range(len(chosen)):
        sums = np.zeros((samples.n, len(starts)), complex)  # A_f^H
        for number, start in enumerate(starts):
            sums[start : start + block, number] = fourier[f].conj()
        # Rows that are alike, such as means of groups, add up in a block, and so do their errors; where rows cancel, their rounding is left.
        of_samples = samples.chain.adjoint(sums)
        together = float(samples.norms2 @ (np.abs(of_samples) ** 2).sum(axis=1))
        squares = (np.abs(sums) ** 2).sum(axis=1)
        lengths = float(samples.lengths2 @ squares)
        exposed = max(together, float(samples.exposed @ squares))
        rounded = max(
            _norm2(sums.conj().T @ samples.rounded), float(squares @ (np.abs(samples.rounded) ** 2).sum(axis=1))
        )
        rank[f] = samples.rank(energies[f], max(exposed, lengths))
        energies[f, rank[f] :] = 0.0
        kept, directions = energies[f, :k], signed(vectors[f, :, :k])
        of_blocks = directions * reciprocal(np.sqrt(kept))
        scores[f], coefficients[f] = directions * np.sqrt(kept), (of_samples @ of_blocks).conj()
        error[f] = samples.errors(sums @ of_blocks, coefficients[f], kept, exposed, rounded, lengths)
    return SpectralComponents(
        chosen, energies[:, :k], totals, rank, scores, coefficients, starts, error, samples.amplification, fourier
    )


def _norm2(matrix: Matrix) -> float:
    return float(np.linalg.norm(matrix) ** 2)


def _decomposed(samples: Transformed, fourier: C128, starts: NDArray[np.intp]) -> tuple[F64, C128, F64]:
    """Eigenvalues, descending, (frequencies, blocks), vectors, and traces of all A_f K A_f^H."""
    products, block, n_blocks = samples.products, fourier.shape[1], len(starts)
    if isinstance(products, FactorProducts):
        spectra = np.stack([fourier @ products.factor[start : start + block] for start in starts], axis=1)
        vectors, values, _ = np.linalg.svd(spectra, full_matrices=False)
        energies = np.zeros((len(fourier), n_blocks))
        energies[:, : values.shape[1]] = values**2
        return energies, vectors, energies.sum(axis=1)
    matrices = np.empty((len(fourier), n_blocks, n_blocks), complex)
    for i, start in enumerate(starts):
        spectra = fourier @ products.matrix[start : start + block]
        for j, other in enumerate(starts[: i + 1]):
            matrices[:, i, j] = np.einsum("ft,ft->f", spectra[:, other : other + block], fourier.conj())
    energies, vectors = np.linalg.eigh(matrices)  # of the lower triangle
    return energies[:, ::-1].copy(), vectors[:, :, ::-1], np.einsum("fii->f", matrices).real


def _fourier(window: F64, step: float, real: bool, frequencies: Literal["all"] | Sequence[float]) -> tuple[C128, F64]:
    """Rows w_t exp(-2 pi i f t step), scaled to a spectral density, (frequencies, block), and the frequencies."""
    block = len(window)
    all_of = np.asarray(np.fft.rfftfreq(block, step) if real else np.fft.fftfreq(block, step), np.float64)
    bins = np.arange(len(all_of)) if isinstance(frequencies, str) else _bins(all_of, frequencies, 1 / (2 * step))
    phases = np.outer(bins, np.arange(block)) % block  # whole numbers, so that no digits are lost in large ones
    rows = np.asarray(np.exp(-2j * np.pi / block * phases) * (window * np.sqrt(step / (window @ window))), complex)
    if real:
        rows[(bins > 0) & (2 * bins < block)] *= np.sqrt(2)
    return rows, all_of[bins]


def _bins(all_of: F64, frequencies: Sequence[float], nyquist: float) -> NDArray[np.intp]:
    """The numbers of the resolved frequencies that are nearest to some, each once."""
    wanted = finite(frequencies, "frequencies").reshape(-1)
    lowest = min(0.0, float(all_of.min()))
    if not wanted.size or wanted.min() < lowest or wanted.max() > nyquist * (1 + 1e-9):
        raise ConfigError(
            f"frequencies are {wanted.tolist()}, but {lowest:g} to {nyquist:g} cycles per unit of time are allowed",
            "Give frequencies in the unit of the times, or 'all'.",
            key="frequencies",
        )
    return np.unique(np.abs(all_of - wanted[:, None]).argmin(axis=1))


def _starts(n: int, block: int, overlap: int) -> NDArray[np.intp]:
    """The first rows of the blocks."""
    if not 2 <= block <= n:
        raise ConfigError(f"block is {block} rows, but 2 to {n} are allowed for a record of {n}", key="block")
    if not 0 <= overlap < block:
        raise ConfigError(
            f"overlap is {overlap} rows, but 0 to {block - 1} are allowed for blocks of {block}", key="overlap"
        )
    starts = np.arange(0, n - block + 1, block - overlap)
    if len(starts) < 2:
        raise ConfigError(
            f"a record of {n} rows has one block of {block}, with {overlap} shared, but components need two or more",
            "Take shorter blocks, or a larger overlap.",
            key="block",
        )
    return starts


def _window(window: str | F64, block: int) -> F64:
    try:
        values = signal.get_window(window, block) if isinstance(window, str) else finite(window, "window")
    except ValueError as cause:
        raise ConfigError(
            f"window is {window!r}: {cause}", "Name one of scipy.signal.get_window.", key="window"
        ) from cause
    if values.shape != (block,) or not values.any():
        raise ConfigError(
            f"the window has shape {values.shape}, but ({block},) is allowed, and not all 0", key="window"
        )
    return np.asarray(values, np.float64)
