"""Dynamic mode decomposition: modes that oscillate, and grow or decay, x_{t + 1} = A x_t, from the products of the snapshots alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dpca.derived.gram import AnyProducts, Transformed
from dpca.derived.operators import Matrix, SelectRows
from dpca.derived.pca import UpTo, leading
from dpca.derived.times import regular_step
from dpca.errors import ConfigError
from dpca.numerics.sketch import RELIABLE
from dpca.numerics.spectrum import reciprocal
from dpca.types import F64

C128 = NDArray[np.complex128]
SAME = 1e-9
"""Exponents are conjugates of each other to within this share."""


@dataclass(frozen=True, eq=False)
class Modes:
    """Dynamic modes, the strongest first: the row of A X at time t is about sum_j b_j exp(omega_j (t - t_0)) phi_j'."""

    exponents: C128
    """omega = log(mu) / step, growth rate + 2 pi i frequency, per unit of the times, (k,)."""
    step: float
    """Step of the times, by which exponents become eigenvalues of a step."""
    amplitudes: F64
    """b of modes of norm 1, above 0, (k,): the real part of b phi is the mode at the first time."""
    scores: C128
    """b_j exp(omega_j (t - t_0)), the part of each mode in each row, (rows, k)."""
    coefficients: C128
    """C of the modes phi = X_c' C, (n, k)."""
    rank: int
    """Number of principal components that the products support."""
    error: F64
    """Estimated error of each eigenvalue mu relative to |mu|, (k,)."""
    amplification: float
    """See `dpca.derived.gram`."""

    @property
    def eigenvalues(self) -> C128:
        """mu = exp(omega step), of one step, (k,)."""
        return np.exp(self.exponents * self.step)

    @property
    def frequencies(self) -> F64:
        """Cycles per unit of the times, (k,)."""
        return self.exponents.imag / (2 * np.pi)

    @property
    def growth_rates(self) -> F64:
        """Per unit of the times, (k,); negative where a mode decays."""
        return self.exponents.real

    @property
    def reliable(self) -> NDArray[np.bool_]:
        """Whether an eigenvalue has two digits or more, (k,)."""
        return self.error <= RELIABLE


def dmd(
    samples: Transformed,
    times: F64,
    rank: int | UpTo | None = None,
    kind: Literal["exact", "projected"] = "exact",
    delays: int = 1,
) -> Modes:
    """Dynamic mode decomposition (Tu et al., J. Comput. Dyn. 1, 2014, algorithms 1 and 2), by the method of snapshots.

    With X_1 the rows but the last, X_2 the rows but the first, and X_1 X_1' = V S^2 V': A~ = S^-1 V' (X_1 X_2') V S^-1 has the
    eigenvalues mu and vectors w. Exact modes are X_2' V S^-1 w, which are eigenvectors of the operator from one row to the next;
    projected ones X_1' V S^-1 w, their projections onto the principal components of X_1 but for a factor. Here they are of norm 1 (of
    complex rows, their conjugates). Amplitudes fit the first row by least squares.

    With delays, rows are windows [x_t, ..., x_{t + delays - 1}] (higher order DMD, Le Clainche and Vega, SIAM J. Appl. Dyn. Syst. 16,
    2017), whose products are sum_l S_l K S_l', where S_l selects the rows from l on. So frequencies may be more than directions of the
    features. Amplitudes fit the first window; modes are their part of its first row.

    Parameters
    ----------
    samples : A X
    times : of its rows, (rows,), regular
    rank : number of principal components of X_1 that A~ acts on; None for all
    kind : of the modes
    delays : the number of rows in a window
    """
    if kind not in ("exact", "projected"):
        raise ConfigError(f"modes is {kind!r}, but exact or projected is allowed", "Choose one.", key="modes")
    step, n = regular_step(times, samples.n, "DMD"), samples.n - delays + 1
    if delays < 1 or n < 2:
        raise ConfigError(
            f"delays is {delays}, but 1 to {samples.n - 1} is allowed for {samples.n} rows: two windows or more are needed",
            "Take fewer delays.",
            key="delays",
        )
    shifts = [SelectRows(np.arange(start, start + n), samples.n) for start in range(delays)]
    products = samples.products.beside(shifts) if delays > 1 else samples.products
    first, last = SelectRows(np.arange(n - 1), n), SelectRows(np.arange(1, n), n)
    exposed = float(sum(samples.exposed[shift.indices[:-1]].sum() for shift in shifts))
    variances, vectors, supported = leading(samples, products.under(first), rank, exposed, "rank")
    scaled = vectors * reciprocal(np.sqrt(variances))
    before, behind = first.adjoint(scaled), last.adjoint(scaled)
    reduced = products.form(before, behind)
    eigenvalues, right = np.linalg.eig(reduced)
    if not eigenvalues.all():
        raise ConfigError(
            "a mode has the eigenvalue 0 and no exponent: it is gone after one step", "Take a lower rank.", key="rank"
        )
    weights = (behind if kind == "exact" else before) @ right
    weights = weights / _lengths(products, weights)
    start = np.zeros((n, 1))
    start[0] = 1.0
    amplitudes = np.linalg.lstsq(products.form(weights, weights), products.form(weights, start)[:, 0], rcond=None)[0]
    # An eigenvalue moves by what A~ does, times its condition number (Golub and Van Loan, 7.2.2).
    of_rows = np.stack([shift.adjoint(before) for shift in shifts])
    coefficients = np.stack([samples.chain.adjoint(of_delay) for of_delay in of_rows])
    worst = samples.errors(of_rows, coefficients, variances, exposed).max() * np.linalg.norm(reduced, 2)
    conditions = np.linalg.norm(right, axis=0) * np.linalg.norm(np.linalg.inv(right), axis=1)
    exponents = np.log(eigenvalues.conj().astype(complex)) / step
    error = conditions * worst / np.abs(eigenvalues)
    return modes_of(samples, times, exponents, step, shifts[0].adjoint(weights * amplitudes), supported, error)


def modes_of(
    samples: Transformed, times: F64, exponents: C128, step: float, weights: Matrix, rank: int, error: F64
) -> Modes:
    """Modes by the size of their amplitudes, pairs of conjugates side by side.

    Parameters
    ----------
    weights : coefficients of the rows in b_j phi_j, conjugated, (rows, k)
    others : as in Modes
    """
    sizes = _lengths(samples.products, weights)
    paired = np.abs(exponents[:, None] - exponents.conj()) <= SAME * np.abs(exponents)
    order = np.lexsort((-exponents.imag, -np.maximum(sizes, np.where(paired, sizes, 0.0).max(axis=1))))
    exponents, sizes = exponents[order], sizes[order]
    return Modes(
        exponents,
        step,
        sizes,
        np.asarray(sizes * np.exp(np.outer(times - times[0], exponents)), complex),
        np.asarray(samples.chain.adjoint(weights[:, order] * reciprocal(sizes)).conj(), complex),
        rank,
        error[order],
        samples.amplification,
    )


def _lengths(products: AnyProducts, weights: Matrix) -> F64:
    """Norms of the combinations of rows, (k,)."""
    return np.asarray(np.sqrt(np.einsum("ij,ij->j", weights.conj(), products.cross(weights)).real))
