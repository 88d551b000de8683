"""K = X_c X_c', n x n, as a sum over panels of features.

Products are symmetric rank-k updates of at most `panel_features` columns in working precision, added up
in float64. With unit roundoff u and panels of w columns, each entry of a panel's product is off by at most
gamma_w |x_i|'|x_j|, gamma_w = w u / (1 - w u) (Higham, Accuracy and Stability of Numerical Algorithms,
2nd ed., eq. 3.5), and by about sqrt(w) u |x_i|'|x_j| for rounding errors that are independent (Higham and
Mary, SIAM J. Sci. Comput. 41, 2019, thm 3.1). The sum over panels adds u64 times their number. So the
relative error of K does not grow with the number of features: a panel's width bounds it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpca.errors import PrecisionError
from dpca.preprocess import Panel

F64 = NDArray[np.float64]


@dataclass
class GramPartial:
    """The Gram matrix of some features, and what else one reading of them gives."""

    gram: F64
    """X_c X_c', (n_samples, n_samples)."""
    mean_product: F64
    """r = X_c m~ with m~ = mean / scale, (n_samples,): with it X X' = K + r 1' + 1 r' + c 11'."""
    mean_norm2: float = 0.0
    """c = m~' m~."""
    squares: float = 0.0
    """Sum of squares of X_c, added up in float64 without the products: what the trace has to equal."""
    n_missing: int = 0
    n_constant: int = 0
    absent_chunks: int = 0
    bytes_read: int = 0
    """Bytes of slabs as decoded."""
    _product: NDArray[Any] | None = field(default=None, repr=False)

    @classmethod
    def empty(cls, n_samples: int) -> GramPartial:
        return cls(np.zeros((n_samples, n_samples)), np.zeros(n_samples))

    def add(self, panel: Panel) -> None:
        """Add a panel.

        Raises
        ------
        PrecisionError
            When a product overflows the working precision.
        """
        matrix = panel.matrix
        if self._product is None or self._product.dtype != matrix.dtype:
            self._product = np.empty(self.gram.shape, matrix.dtype)
        with np.errstate(over="ignore", invalid="ignore"):
            # NumPy calls BLAS syrk for A @ A.T, half the work of a general product, and drops the GIL.
            np.matmul(matrix, matrix.T, out=self._product)
        if not np.isfinite(np.einsum("ii->i", self._product)).all():
            raise PrecisionError(
                f"values too large for products in {matrix.dtype}: the sum of their squares overflows",
                "Set model.precision: double, or store the data in other units.",
            )
        self.gram += self._product
        self.mean_product += panel.mean_product
        self.mean_norm2 += panel.mean_norm2
        self.squares += panel.squares
        self.n_missing += panel.n_missing
        self.n_constant += panel.n_constant

    def finish(self) -> GramPartial:
        """Let go of what only `add` needs, before the partial waits or travels."""
        self._product = None
        return self


def held(n_samples: int, working_dtype: np.dtype[Any]) -> dict[str, int]:
    """Bytes of what the accumulation of a span holds, by name."""
    return {"Gram matrix of a span": 8 * n_samples**2, "product of a panel": working_dtype.itemsize * n_samples**2}


def merge(total: GramPartial, partial: GramPartial) -> GramPartial:
    """Add a partial to a total, in place, so that no third n x n matrix is needed."""
    total.gram += partial.gram
    total.mean_product += partial.mean_product
    total.mean_norm2 += partial.mean_norm2
    total.squares += partial.squares
    total.n_missing += partial.n_missing
    total.n_constant += partial.n_constant
    total.absent_chunks += partial.absent_chunks
    total.bytes_read += partial.bytes_read
    return total
