"""Orthogonal matrices that are found by iteration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dpca.types import F64

TOLERANCE = 1e-10
"""An iteration has converged when no entry of its matrix changes by more."""
MOST_ITERATIONS = 2000


@dataclass(frozen=True)
class Turn:
    """A matrix, and how it was found."""

    matrix: F64
    iterations: int = 0
    change: float = 0.0
    """Largest change of an entry in the last iteration."""

    @property
    def converged(self) -> bool:
        return bool(self.change <= TOLERANCE)


def iterated(begin: F64, step: Callable[[F64], F64]) -> Turn:
    """Repeat a step until its matrix stays as it is, up to the signs of columns."""
    found, iterations, change = begin, 0, np.inf
    while change > TOLERANCE and iterations < MOST_ITERATIONS:
        iterations += 1
        new = step(found)
        new = new * np.where(np.einsum("ij,ij->j", new, found) < 0, -1.0, 1.0)
        change, found = float(np.abs(new - found).max()), new
    return Turn(found, iterations, change)


def orthogonal(matrix: F64) -> F64:
    """The nearest matrix with orthonormal columns (Golub and Van Loan, 6.4.1)."""
    left, _, right = np.linalg.svd(matrix, full_matrices=False)
    return np.asarray(left @ right, np.float64)
