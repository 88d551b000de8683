"""Lines of a sparse matrix as they are stored: the values that are not zero, one line after another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

FEW = 8
"""Lines are read as they are stored where at most one of so many values is: else dense ones take less memory."""


@dataclass(frozen=True, eq=False)
class Lines:
    """Lines of a region along its axis `axis`, which are its rows or its columns; the other side is `width` long.

    The arrays stay valid when more is read, and must not be written to.
    """

    values: NDArray[Any]
    """Stored values, (nnz,), of the matrix's type."""
    places: NDArray[np.int32]
    """Place of each along its line, from 0 to width - 1, (nnz,); perhaps not ascending, and perhaps one several times, whose values are added."""
    ends: NDArray[np.int32]
    """Where each line begins among the values, and where the last one ends, (n_lines + 1,)."""
    width: int
    axis: int

    @property
    def shape(self) -> tuple[int, int]:
        """Number of lines, and their width."""
        return len(self.ends) - 1, self.width


def held(n_values: int, dtype: np.dtype[Any]) -> int:
    """Most bytes of the lines of a region of so many values, as stored and as they are put together."""
    return 2 * (n_values // FEW) * (dtype.itemsize + 8)
