"""Kernel PCA of one kernel: from its matrix to a spectrum, with diagnostics."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpca.errors import ConfigError, InputError
from dpca.kernels.inner import EPS, Centering, Inner, blocks, longest_row
from dpca.kernels.kernel import Kernel, notes
from dpca.kernels.sweep import Indefinite
from dpca.numerics.accumulators.factors import Factors
from dpca.numerics.accumulators.gram import eigh
from dpca.numerics.dimension import Eigenvalues, NComponents, choose
from dpca.numerics.sketch import SAFETY, Sketch
from dpca.numerics.spectrum import Spectrum, judged
from dpca.types import F64

SHARE = 0.95
"""Share of the variance for which the table of a sweep gives the number of components."""
ASYMMETRIC = 1e-6
"""Largest difference between a kernel matrix and its transpose that is accepted, relative to its largest value."""
NEGATIVE_SHARE, NEGATIVE_VALUE = 1e-5, 1e-10
"""Negative eigenvalues beyond these, and beyond errors, are not rounding: relative to the largest, and absolute (as in scikit-learn)."""
HIDES = 1e-10
"""Errors of eigenvalues that are told as what may hide others, relative to the largest."""


@dataclass(frozen=True)
class Request:
    """Options of kernel PCA."""

    n_components: NComponents
    ddof: int
    remove_zero_eig: bool
    """Whether components with eigenvalue 0 are left out."""
    indefinite: Indefinite
    """How negative eigenvalues are handled."""
    of_samples: bool = True
    """Whether products are those of samples; divided by a count for each two, they may have negative eigenvalues themselves."""


@dataclass(frozen=True)
class Case:
    """The result of one kernel."""

    kernel: Kernel
    spectrum: Spectrum
    centering: Centering
    notes: tuple[str, ...] = ()
    """Problems of the kernel, in words."""
    n_negative: int = 0
    """Number of eigenvalues that are negative beyond rounding; they are left out."""
    most_negative: float = 0.0
    """The most negative eigenvalue, relative to the largest in magnitude."""
    reason: str = ""
    """Where the number of components comes from."""
    problem: str = ""
    """Why there is no answer; empty if there is one."""
    accuracy: float | None = None
    """Share of samples whose nearest neighbour in the scores has the same label."""

    @property
    def document(self) -> dict[str, Any]:
        """The result in plain values, for the certificate."""
        spectrum = self.spectrum
        return {
            "kernel": self.kernel.name,
            **self.kernel.parameters,
            "problem": self.problem or None,
            "notes": list(self.notes),
            "negative_eigenvalues": self.n_negative,
            "most_negative": self.most_negative,
            "variance_captured": float(spectrum.explained_variance_ratio.sum()),
            "components_95": spectrum.components_for(SHARE),
            "effective_rank": spectrum.effective_rank,
            "neighbour_accuracy": self.accuracy,
        }


def solve(
    kernel: Kernel,
    matrix: F64,
    noise: F64,
    request: Request,
    largest_rank: int,
    eigensolve: Callable[[Callable[[], Factors]], Factors],
    labels: NDArray[Any] | None = None,
    sketch: Sketch | None = None,
) -> Case:
    """Kernel PCA of a kernel matrix: H k H = V diag(lambda) V' with H = I - 11'/n, and scores V diag(sqrt(lambda)).

    Parameters
    ----------
    kernel, matrix : the kernel and its matrix, (n, n), which is centred in place
    noise : error of each row through the precision of the products, (n,), as of `Kernel.matrix`
    request : number of components, and the handling of negative eigenvalues
    largest_rank : upper bound of the rank, n - 1 or less
    eigensolve : runs the eigensolve that is passed to it, or returns the factors of an earlier run
    labels : of each sample, (n,)
    sketch : of the true centred matrix, which measures the error of each component
    """
    n, requested = len(matrix), request.n_components
    remarks = notes(kernel, matrix)
    # Values are rounded by half of their last bit.
    rounding = EPS / 2 * max(longest_row(matrix[rows]) for rows in blocks(n))
    centering, asymmetry = _centre(kernel, matrix)
    error, positive = float(noise.max()) + asymmetry, kernel.semidefinite and request.of_samples
    hides = error > rounding  # whether errors of the products may hide eigenvalues
    reasons: list[str] = []
    asked = 0

    def limit_of(eigenvalues: F64) -> float:
        """How far eigenvalues may be off. Where only errors make one negative, it measures them."""
        return SAFETY * max(rounding + error, -float(eigenvalues.min(initial=0.0)) if positive else 0.0)

    def ranked(eigenvalues: F64, floor: float) -> tuple[F64, int]:
        """Eigenvalues, and how many are not 0; with a sketch those that errors hide have no digits, and need not be."""
        return _positive(eigenvalues, max(floor, rounding if sketch else limit_of(eigenvalues)), largest_rank)

    def choosing(eigenvalues: F64, floor: float, total: float) -> int:
        nonlocal asked
        values, rank = ranked(eigenvalues, floor)
        # The rules for linear PCA need only the largest possible number of eigenvalues.
        chosen = choose(requested, Eigenvalues(values, rank, n, max(1, largest_rank), True, total))
        asked = largest_rank if requested in (None, "rank") else min(chosen.n_components, largest_rank)
        drops = requested is None or request.remove_zero_eig
        told = (
            f", of which {rank} of at most {largest_rank} can be told from rounding" if drops and rank < asked else ""
        )
        reasons.append(chosen.reason + told)
        return min(chosen.n_components, rank) if drops else chosen.n_components

    factors = eigensolve(lambda: eigh(matrix, choosing, semidefinite=positive and sketch is None))
    if not reasons:  # the factors come from an earlier run
        choosing(factors.eigenvalues, factors.floor, factors.total)
    limit = limit_of(factors.eigenvalues)
    n_negative, most_negative = _negative(kernel, factors, math.inf if positive else limit, request)
    if n_negative:
        remarks.append(
            f"kernel {kernel} is not positive semidefinite: {n_negative} eigenvalues are negative, down to "
            f"{most_negative:.1e} of the largest in magnitude; they were left out"
        )
    values, rank = ranked(factors.eigenvalues, factors.floor)
    kept, largest = factors.vectors.shape[1], float(factors.eigenvalues[0])
    left_out = max(asked - max(kept, rank), 0)
    if left_out and limit > HIDES * largest:
        remarks.append(
            f"kernel {kernel}: up to {left_out} further components were left out, since errors of its values are up to "
            f"{min(limit / (largest or 1.0), 1.0):.1e} of the largest eigenvalue"
        )
    spectrum = Spectrum(
        eigenvalues=values,
        vectors=factors.vectors,
        total=factors.total if rank or hides else 0.0,
        rank=rank,
        largest_rank=largest_rank,
        errors=np.full(kept, np.inf),
        supported=1.0,
        n_samples=n,
        divisor=n - request.ddof,
        residuals=factors.residuals,
        hidden=left_out if hides else 0,
    )
    spectrum = spectrum.signed(spectrum.signs)
    if sketch is None:
        # Of each component by its own samples; where eigenvalues below 0 show larger errors than were expected, all have them.
        own = rounding + asymmetry + _combined(noise, spectrum.vectors)
        bounds = own * (limit / (rounding + error or 1.0)) if np.isfinite(limit) else np.full(kept, np.inf)
        bounds = bounds + factors.residuals * max(largest, 0.0)
    else:
        bounds = sketch.residuals(spectrum.vectors, values[: spectrum.n_components])
    # The trace has the errors of all, and negative eigenvalues: what is beyond the components is the sum of the others.
    spectrum = replace(judged(spectrum, bounds, 2), total_off=np.inf, rest_off=max(values.size - kept, 0) * limit)
    return Case(
        kernel,
        spectrum,
        centering,
        tuple(remarks),
        n_negative,
        most_negative,
        reasons[-1],
        accuracy=None if labels is None else neighbour_accuracy(spectrum.scaled, labels),
    )


def _centre(kernel: Kernel, matrix: F64) -> tuple[Centering, float]:
    """Centre a kernel matrix, (n, n), in place; returns the means, and by how much it is not symmetric then."""
    asymmetry, _ = _asymmetry(matrix)
    centering = Centering.of(matrix)
    centering.apply(matrix)
    Centering.of(matrix).apply(matrix)  # means were rounded, by as much in a whole row
    remaining, size = _asymmetry(matrix)
    if asymmetry and remaining:  # asymmetry that centring removes does not matter
        precomputed = kernel.name == "precomputed"
        raise InputError(
            f"kernel {kernel} is not symmetric: it is {asymmetry}",
            "Store both halves: (K + K') / 2 where they differ by rounding, K + K' - diag(K) where one is zero."
            if precomputed
            else "A kernel of two samples must not depend on their order.",
            key="input.uri" if precomputed else "model.kernel",
        )
    return centering, size


def _combined(noise: F64, vectors: F64) -> F64:
    """sqrt(sum_j v_j^2 noise_j^2) for each vector of norm 1, (n, k)."""
    largest = float(noise.max()) or 1.0
    return np.asarray(largest * np.sqrt((noise / largest) ** 2 @ vectors**2))


def _negative(kernel: Kernel, factors: Factors, limit: float, request: Request) -> tuple[int, float]:
    """How many eigenvalues are negative beyond rounding, and the most negative one relative to the largest in magnitude.

    Parameters
    ----------
    limit : how far eigenvalues may be off
    """
    eigenvalues = factors.eigenvalues
    magnitude = max(float(np.abs(eigenvalues).max()), NEGATIVE_VALUE)
    beyond = max(NEGATIVE_SHARE * magnitude + NEGATIVE_VALUE, limit)
    if request.indefinite == "error":
        all_requested = request.n_components is None
        _refuse_negative(kernel, eigenvalues if all_requested else eigenvalues[: factors.vectors.shape[1]], beyond)
    negative = eigenvalues[eigenvalues < -beyond]
    return int(negative.size), float(negative.min() / magnitude) if negative.size else 0.0


def failed(kernel: Kernel, problem: str, n_samples: int, request: Request) -> Case:
    """A case of a sweep that gave no answer."""
    k, nothing = request.n_components if isinstance(request.n_components, int) else 1, np.zeros(n_samples)
    vectors = np.full((n_samples, k), np.nan)
    divisor = n_samples - request.ddof
    spectrum = Spectrum(nothing, vectors, 0.0, 0, 0, np.full(k, np.inf), 1.0, n_samples, divisor, np.zeros(k))
    return Case(kernel, spectrum, Centering(nothing, 0.0), (problem,), problem=problem)


def neighbour_accuracy(scores: F64, labels: NDArray[Any]) -> float:
    """Share of samples whose nearest other sample in the scores, (n, k), has the same label: leave-one-out 1-NN."""
    inner, right = Inner.of_points(scores, scores), 0
    for rows in blocks(len(scores)):
        distances = inner.of_rows(rows).squared_distances()
        distances[np.arange(len(distances)), np.arange(rows.start, rows.stop)] = np.inf
        right += int(np.count_nonzero(labels[distances.argmin(axis=1)] == labels[rows]))
    return right / len(scores)


def _positive(eigenvalues: F64, floor: float, limit: int) -> tuple[F64, int]:
    """Eigenvalues, with 0 in place of those at or below the floor; the number above it, at most `limit`."""
    rank = min(int(np.count_nonzero(eigenvalues > floor)), limit)
    return np.where(np.arange(eigenvalues.size) < rank, eigenvalues, 0.0), rank


def _refuse_negative(kernel: Kernel, eigenvalues: F64, beyond: float) -> None:
    smallest = float(eigenvalues.min(initial=0.0))
    if smallest < -beyond:
        raise ConfigError(
            f"There are significant negative eigenvalues, the smallest {smallest:.4g} of a largest of "
            f"{float(eigenvalues.max()):.4g}: kernel {kernel} is not positive semidefinite",
            "Ask for fewer components, or choose another kernel.",
            key="model.kernel",
        )


def _asymmetry(matrix: F64) -> tuple[str, float]:
    """The samples between which a matrix differs most from its transpose, in words, empty where that is rounding; its largest row."""
    worst, i, j, largest, size = 0.0, 0, 0, 0.0, 0.0
    for rows in blocks(len(matrix)):
        difference = np.abs(matrix[rows] - matrix[:, rows].T)
        size = max(size, longest_row(difference))
        largest = max(largest, float(np.abs(matrix[rows]).max()))
        at = int(difference.argmax())
        if difference.flat[at] > worst:
            worst, (i, j) = float(difference.flat[at]), divmod(at, len(matrix))
            i += rows.start
    if worst <= ASYMMETRIC * largest:
        return "", size
    return f"{matrix[i, j]:.6g} between samples {i} and {j}, but {matrix[j, i]:.6g} between {j} and {i}", size
