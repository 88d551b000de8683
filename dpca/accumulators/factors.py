"""What every accumulator counts beside its matrix, and what comes out of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpca.preprocess import Panel

F64 = NDArray[np.float64]
Choose = Callable[[F64, float, float], int]
"""How many components: from the eigenvalues, descending, the floor below which they count as 0, and their sum."""


@dataclass
class Tally:
    """What one reading gives besides the matrix, and costs nothing more."""

    mean_product: F64
    """r = X_c m~ with m~ = mean / scale, (n_samples,): with it X X' = K + r 1' + 1 r' + c 11'."""
    mean_norm2: float = 0.0
    """c = m~' m~."""
    squares: float = 0.0
    """Sum of squares of X_c, added up in float64 without the products: the total variance times the divisor."""
    n_missing: int = 0
    n_constant: int = 0
    absent_chunks: int = 0
    bytes_read: int = 0
    """Bytes of slabs as decoded."""

    def add(self, panel: Panel) -> None:
        """Count a panel."""
        self.mean_product += panel.mean_product
        self.mean_norm2 += panel.mean_norm2
        self.squares += panel.squares
        self.n_missing += panel.n_missing
        self.n_constant += panel.n_constant

    def merge(self, other: Tally) -> None:
        """Count what another span has counted."""
        self.mean_product += other.mean_product
        self.mean_norm2 += other.mean_norm2
        self.squares += other.squares
        self.n_missing += other.n_missing
        self.n_constant += other.n_constant
        self.absent_chunks += other.absent_chunks
        self.bytes_read += other.bytes_read


@dataclass(frozen=True)
class Factors:
    """Singular values, and the singular vectors on the side of samples."""

    eigenvalues: F64
    """Squares of the singular values, descending, (m,); small ones may be negative through rounding."""
    vectors: F64
    """(m, n_components), orthonormal."""
    residuals: F64
    """How well each fits what was added up, relative to the largest, (n_components,)."""
    floor: float
    """Eigenvalues at or below this can't be told from 0."""
    total: float
    """Sum of the eigenvalues."""
    power: int
    """Power of sigma that the matrix holds: 2 where it squares the condition number, else 1."""
