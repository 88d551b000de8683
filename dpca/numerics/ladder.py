"""The ladder of solvers that a run tries in turn: each rung is a solver and the precision of its products."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

BLOCK_KRYLOV = "block_krylov"
"""The solver without a matrix: products with blocks of vectors, pass by pass (`dpca.numerics.block_krylov`)."""
Precision = Literal["auto", "single", "double"]


@dataclass(frozen=True)
class Rung:
    """A solver and the dtype of its products."""

    solver: str
    """A key of `dpca.numerics.accumulators.SOLVERS`, or `BLOCK_KRYLOV`."""
    dtype: np.dtype[Any]

    @property
    def name(self) -> str:
        """Its name for people, and that of its stage of a run: gram, covariance in double, tsqr."""
        short = self.solver.removesuffix("_eigh")
        return short if self.solver == "tsqr" or self.dtype == np.float32 else f"{short} in double"


def working_dtype(dtype: np.dtype[Any], precision: Precision) -> np.dtype[Any]:
    """The dtype of products.

    "auto" is float32 for bool, float16, float32 and integers of up to 16 bits, whose values float32 holds
    exactly, and float64 for wider types. Products in float32, added up in float64, usually leave K with an error below
    float32's eps, and of up to 28 eps where columns repeat (`dpca.numerics.accumulators.gram`). Each run measures the
    error (`dpca.numerics.sketch`), which decides which components need the next rung.
    """
    if precision == "auto":
        narrow = dtype.kind == "b" or (dtype.kind in "iu" and dtype.itemsize <= 2)
        precision = "single" if narrow or (dtype.kind == "f" and dtype.itemsize <= 4) else "double"
    return np.dtype(np.float32 if precision == "single" else np.float64)
