"""One kernel solved: from its matrix to a spectrum, and what is known of it besides."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpca.errors import ConfigError, InputError
from dpca.kernels.kernel import Centering, Indefinite, Inner, Kernel, blocks, longest_row, notes
from dpca.numerics.accumulators.factors import F64, Factors
from dpca.numerics.accumulators.gram import eigh
from dpca.numerics.dimension import Eigenvalues, NComponents, choose
from dpca.numerics.sketch import SAFETY, Sketch
from dpca.numerics.spectrum import Spectrum, judged

SHARE = 0.95
"""Of the variance, for which the table of a sweep says how many components it takes."""
ASYMMETRIC = 1e-6
"""A kernel matrix may differ from its transpose by this, relative to its largest value."""
NEGATIVE_SHARE, NEGATIVE_VALUE = 1e-5, 1e-10
"""Negative eigenvalues beyond these are no rounding: relative to the largest, and in themselves (as in scikit-learn)."""


@dataclass(frozen=True)
class Request:
    """What is asked of a kernel."""

    n_components: NComponents
    ddof: int
    remove_zero_eig: bool
    """Whether components of eigenvalues that are 0 are left out."""
    indefinite: Indefinite
    """What becomes of negative eigenvalues."""


@dataclass(frozen=True)
class Case:
    """What one kernel gave."""

    kernel: Kernel
    spectrum: Spectrum
    centering: Centering
    notes: tuple[str, ...] = ()
    """What is the matter with the kernel, in words."""
    n_negative: int = 0
    """Eigenvalues that are negative beyond rounding, which were left out."""
    most_negative: float = 0.0
    """Relative to the largest in magnitude."""
    reason: str = ""
    """Where the number of components is from."""
    problem: str = ""
    """Why there is no answer, if there is none."""
    accuracy: float | None = None
    """Share of samples whose nearest neighbour in the scores has the same label."""

    @property
    def document(self) -> dict[str, Any]:
        """What is known of it, in plain values."""
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
    noise: float | Sketch,
    request: Request,
    largest_rank: int,
    eigensolve: Callable[[Callable[[], Factors]], Factors],
    labels: NDArray[Any] | None = None,
) -> Case:
    """Kernel PCA of a kernel matrix: H k H = V diag(lambda) V' with H = I - 11'/n, scores V diag(sqrt(lambda)).

    Parameters
    ----------
    kernel, matrix : (n, n); it is centred in place
    noise : how far eigenvalues may be off through the precision of the products; or a sketch of what the matrix
        should be once it is centred, which tells
    request : how many components, and what becomes of negative eigenvalues
    largest_rank : what the rank can be at most, n - 1 or less
    eigensolve : carries out the eigensolve that it is given
    labels : of each sample, (n,)

    Raises
    ------
    InputError
        When the matrix is not symmetric.
    ConfigError
        When eigenvalues are negative, where the request does not have them left out.
    """
    n, asked = len(matrix), request.n_components
    found = notes(kernel, matrix)
    asymmetry = _asymmetry(matrix)
    rounding = float(np.finfo(np.float64).eps) * max(longest_row(matrix[rows]) for rows in blocks(n))
    centering = Centering.of(matrix)
    centering.apply(matrix)
    if asymmetry and _asymmetry(matrix):  # what centring takes away does not matter
        given = kernel.name == "precomputed"
        raise InputError(
            f"kernel {kernel} is not symmetric: it is {asymmetry}",
            "Store both halves: (K + K') / 2 where they differ by rounding, K + K' - diag(K) where one is zero."
            if given
            else "A kernel of two samples must not depend on their order.",
            key="input.uri" if given else "model.kernel",
        )
    hidden = not isinstance(noise, Sketch) and noise > rounding  # eigenvalues may be, by what products are off by
    if not isinstance(noise, Sketch):
        rounding = max(rounding, noise)
    reasons: list[str] = []

    def choosing(eigenvalues: F64, floor: float, total: float) -> int:
        values, rank = _positive(eigenvalues, max(floor, rounding), largest_rank)
        # What is left of a rule for linear PCA is how many eigenvalues there may be.
        chosen = choose(asked, Eigenvalues(values, rank, n, max(1, largest_rank), True, total))
        reasons.append(chosen.reason)
        drops = asked is None or request.remove_zero_eig
        return min(chosen.n_components, rank) if drops else chosen.n_components

    factors = eigensolve(lambda: eigh(matrix, choosing, semidefinite=False))
    if not reasons:  # the factors are from a run before
        choosing(factors.eigenvalues, factors.floor, factors.total)
    eigenvalues, floor = factors.eigenvalues, max(factors.floor, rounding)
    limit = 0.0 if isinstance(noise, Sketch) else SAFETY * rounding
    largest, magnitude = max(float(eigenvalues[0]), 0.0), max(float(np.abs(eigenvalues).max()), NEGATIVE_VALUE)
    beyond = NEGATIVE_SHARE * magnitude + NEGATIVE_VALUE
    if request.indefinite == "error":
        _refuse_negative(kernel, eigenvalues if asked is None else eigenvalues[: factors.vectors.shape[1]], beyond)
    negative = eigenvalues[eigenvalues < -max(beyond, limit)]
    if negative.size:
        found.append(
            f"kernel {kernel} is not positive semidefinite: {negative.size} eigenvalues are negative, down to "
            f"{negative.min() / magnitude:.1e} of the largest in magnitude; they were left out"
        )
    values, rank = _positive(eigenvalues, floor, largest_rank)
    spectrum = Spectrum(
        eigenvalues=values,
        vectors=factors.vectors,
        total=factors.total if rank or hidden else 0.0,
        rank=rank,
        largest_rank=largest_rank,
        errors=np.full(factors.vectors.shape[1], np.inf),
        supported=1.0,
        n_samples=n,
        ddof=request.ddof,
        residuals=factors.residuals,
    )
    spectrum = spectrum.signed(spectrum.signs)
    if isinstance(noise, Sketch):
        bounds = noise.residuals(spectrum.vectors, values[: spectrum.n_components])
    else:
        bounds = limit + factors.residuals * largest
    spectrum = judged(spectrum, bounds, 2)
    return Case(
        kernel,
        spectrum,
        centering,
        tuple(found),
        int(negative.size),
        float(negative.min() / magnitude) if negative.size else 0.0,
        reasons[-1],
        accuracy=None if labels is None else neighbour_accuracy(spectrum.scaled, labels),
    )


def failed(kernel: Kernel, problem: str, n_samples: int, request: Request) -> Case:
    """A case of a sweep without an answer."""
    k, nothing = request.n_components if isinstance(request.n_components, int) else 1, np.zeros(n_samples)
    vectors = np.full((n_samples, k), np.nan)
    spectrum = Spectrum(nothing, vectors, 0.0, 0, 0, np.full(k, np.inf), 1.0, n_samples, request.ddof, np.zeros(k))
    return Case(kernel, spectrum, Centering(nothing, 0.0), (problem,), problem=problem)


def neighbour_accuracy(scores: F64, labels: NDArray[Any]) -> float:
    """Share of samples whose nearest other sample, by scores (n, k), has the same label: leave-one-out 1-NN."""
    inner, right = Inner.of_points(scores, scores), 0
    for rows in blocks(len(scores)):
        distances = inner.of_rows(rows).squared_distances()
        distances[np.arange(len(distances)), np.arange(rows.start, rows.stop)] = np.inf
        right += int(np.count_nonzero(labels[distances.argmin(axis=1)] == labels[rows]))
    return right / len(scores)


def _positive(eigenvalues: F64, floor: float, limit: int) -> tuple[F64, int]:
    """Eigenvalues with 0 for those that are not above the floor; how many are, which is `limit` at most."""
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


def _asymmetry(matrix: F64) -> str:
    """Between which samples a matrix differs most from its transpose, in words; none where that is rounding."""
    worst, i, j, largest = 0.0, 0, 0, 0.0
    for rows in blocks(len(matrix)):
        difference = np.abs(matrix[rows] - matrix[:, rows].T)
        largest = max(largest, float(np.abs(matrix[rows]).max()))
        at = int(difference.argmax())
        if difference.flat[at] > worst:
            worst, (i, j) = float(difference.flat[at]), divmod(at, len(matrix))
            i += rows.start
    if worst <= ASYMMETRIC * largest:
        return ""
    return f"{matrix[i, j]:.6g} between samples {i} and {j}, but {matrix[j, i]:.6g} between {j} and {i}"
