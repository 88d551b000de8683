"""Optimized dynamic mode decomposition: exponentials in time, fitted to all scores at once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from dpca.derived.dmd import Modes, modes_of
from dpca.derived.gram import Transformed
from dpca.derived.operators import Matrix
from dpca.derived.pca import leading
from dpca.derived.times import increasing
from dpca.errors import ConfigError
from dpca.types import F64

C128 = NDArray[np.complex128]
EVALUATIONS, CONVERGED = 500, 1e-12


def optimized_dmd(samples: Transformed, times: F64, rank: int, start: C128 | None = None) -> Modes:
    """Optimized DMD of the first scores: less biased by noise than exact DMD, and at any times.

    The exponents omega that minimize |Z - Phi B|, Phi_ij = exp(omega_j t_i), for the first scores Z = U diag(sigma), by variable
    projection: B is the least-squares solution for each omega (Askham and Kutz, SIAM J. Appl. Dyn. Syst. 17, 2018, algorithm 3).

    Parameters
    ----------
    samples : A X
    times : of its rows, (rows,), increasing
    rank : number of scores, and of modes
    start : first guess of the exponents, (rank,); None for those of the trapezoidal rule (algorithm 4)
    """
    times = increasing(times, samples.n, "optimized DMD")
    if 2 * rank > samples.n:
        raise ConfigError(f"rank is {rank}, but {samples.n} rows allow {samples.n // 2} at most", key="rank")
    variances, vectors, supported = leading(samples, samples.products, rank, key="rank")
    scores = vectors * np.sqrt(variances)
    span = float(times[-1] - times[0])
    elapsed = (times - times[0]) / span
    guess = _trapezoidal(scores, elapsed) if start is None else np.asarray(start, complex) * span
    if guess.shape != (rank,):
        raise ConfigError(f"the first guess has shape {guess.shape}, but {rank} exponents are needed", key="start")
    found = least_squares(
        lambda parameters: _Fit(_complex(parameters), elapsed, scores).residual,
        _real(guess),
        lambda parameters: _Fit(_complex(parameters), elapsed, scores).jacobian,
        x_scale="jac",
        ftol=CONVERGED,
        xtol=CONVERGED,
        gtol=CONVERGED,
        max_nfev=EVALUATIONS,
    )
    if not found.success:
        raise ConfigError(
            f"optimized DMD of rank {rank} has not converged after {EVALUATIONS} evaluations",
            "Take another rank, or give exponents to start from.",
            key="rank",
        )
    exponents, step = _complex(found.x), span / (samples.n - 1)
    weights = (vectors / np.sqrt(variances)) @ _Fit(exponents, elapsed, scores).maps_at_start.conj().T
    # Errors of the scores reach the exponents through J^+.
    weights_of_scores = vectors / np.sqrt(variances)
    wrong = samples.errors(weights_of_scores, samples.chain.adjoint(weights_of_scores), variances) * np.sqrt(variances)
    error = np.abs(_complex(np.linalg.norm(np.linalg.pinv(found.jac), axis=1))) * wrong.max() * step / span
    return modes_of(samples, times, exponents / span, step, weights, supported, error)


@dataclass(frozen=True, eq=False)
class _Fit:
    """Exponentials of time, and the scores as combinations of them."""

    exponents: C128
    """omega, (k,)."""
    elapsed: F64
    """t, (rows,)."""
    scores: Matrix
    """Z, (rows, k)."""

    @cached_property
    def since(self) -> F64:
        """Time since the start, or until the end where an exponential grows, so that none overflows, (rows, k)."""
        origin = np.where(self.exponents.real > 0, self.elapsed[-1], self.elapsed[0])
        return np.asarray(self.elapsed[:, None] - origin)

    @cached_property
    def columns(self) -> C128:
        """Phi with columns that are 1 at most, (rows, k)."""
        return np.asarray(np.exp(self.exponents * self.since))

    @cached_property
    def basis(self) -> C128:
        """Q of their span, (rows, k)."""
        return np.linalg.qr(self.columns)[0]

    @cached_property
    def maps(self) -> C128:
        """B, (k, k)."""
        return np.asarray(np.linalg.lstsq(self.columns, self.scores, rcond=None)[0], complex)

    @property
    def maps_at_start(self) -> C128:
        """B of exponentials that are 1 at the start."""
        return np.asarray(self.maps * self.columns[0][:, None])

    @property
    def residual(self) -> F64:
        """(I - Q Q^H) Z, (2 rows k,)."""
        return _real(self._beside(self.scores))

    @property
    def jacobian(self) -> F64:
        """Kaufman's -(I - Q Q^H) dPhi/domega_j b_j (BIT 15, 1975), (2 rows k, 2 k).

        It leaves out a term that vanishes with the residual; the gradient that it gives is exact.
        """
        beside = self._beside(self.since * self.columns)
        slopes = [-np.outer(column, row) for column, row in zip(beside.T, self.maps, strict=True)]
        return np.stack([_real(slope) for slope in slopes] + [_real(1j * slope) for slope in slopes], axis=1)

    def _beside(self, columns: Matrix) -> C128:
        return np.asarray(columns - self.basis @ (self.basis.conj().T @ columns))


def _trapezoidal(scores: Matrix, elapsed: F64) -> C128:
    """Eigenvalues of the A for which (z_{i+1} - z_i) / (t_{i+1} - t_i) = A (z_{i+1} + z_i) / 2 in the least-squares sense."""
    middle = (scores[1:] + scores[:-1]) / 2
    slopes = np.diff(scores, axis=0) / np.diff(elapsed)[:, None]
    return np.linalg.eigvals(np.linalg.lstsq(middle, slopes, rcond=None)[0]).astype(complex)


def _real(values: Matrix) -> F64:
    """Real and imaginary parts as one vector."""
    return np.concatenate([values.real.ravel(), values.imag.ravel()])


def _complex(values: F64) -> C128:
    """A vector from its real and imaginary parts."""
    k = len(values) // 2
    return np.asarray(values[:k] + 1j * values[k:])
