"""The result of an accumulator: eigenvalues and vectors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import numpy as np

from dpca.types import F64

Choose = Callable[[F64, float, float], int]
"""Gives the number of components from: eigenvalues, descending; the floor at which they count as 0; their sum."""


@dataclass(frozen=True)
class Factors:
    """Squared singular values, and the singular vectors of the kept side."""

    eigenvalues: F64
    """Squares of the singular values, descending: all of them, (m,), of which rounding may make small ones negative; or the leading ones,
    more than there are vectors, where that none was missed is proved."""
    vectors: F64
    """(m, n_components), orthonormal."""
    residuals: F64
    """Residual of each in the summed matrix, relative to the largest, (n_components,)."""
    floor: float
    """Eigenvalues at or below this can't be told from 0."""
    total: float
    """Sum of all eigenvalues."""
    complete: bool = True
    """Whether `eigenvalues` has all of them."""

    @classmethod
    def nothing(cls) -> Self:
        """Empty factors, with arrays of the right types."""
        return cls(np.zeros(0), np.zeros((0, 0)), np.zeros(0), 0.0, 0.0)
