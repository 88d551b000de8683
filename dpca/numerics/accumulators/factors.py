"""What comes out of an accumulator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]
Choose = Callable[[F64, float, float], int]
"""How many components: from the eigenvalues, descending, the floor below which they count as 0, and their sum."""


@dataclass(frozen=True)
class Factors:
    """Singular values, and the singular vectors on the side of samples."""

    eigenvalues: F64
    """Squares of the singular values, descending, (m,); small ones may be negative through rounding."""
    vectors: F64
    """(m, n_components), orthonormal, on the kept side."""
    residuals: F64
    """How well each fits what was added up, relative to the largest, (n_components,)."""
    floor: float
    """Eigenvalues at or below this can't be told from 0."""
    total: float
    """Sum of the eigenvalues."""

    @classmethod
    def nothing(cls) -> Self:
        """Of the types that all have."""
        return cls(np.zeros(0), np.zeros((0, 0)), np.zeros(0), 0.0, 0.0)
