"""Lines of a sparse matrix as they are stored: the values that are not zero, one line after another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

FEW = 8
"""Lines are read as they are stored where at most one of so many values is: else dense ones take less memory."""


@dataclass(frozen=True)
class FewValues:
    """Facts about a sparse matrix of which few values are stored."""

    axis: int
    """The axis along which its lines follow each other: 0 where they are rows."""
    n_stored: int
    """Number of stored values; of a view of the matrix, no fewer than it has."""


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

    @classmethod
    def of(cls, values: NDArray[Any], axis: int) -> Lines:
        """The lines along an axis of a dense matrix, with the values that are not zero."""
        by_line = values if axis == 0 else values.T
        numbers, places = np.nonzero(by_line)
        ends = np.searchsorted(numbers, np.arange(len(by_line) + 1)).astype(np.int32)
        return cls(by_line[numbers, places], places.astype(np.int32), ends, by_line.shape[1], axis)

    @property
    def turned(self) -> Lines:
        """Lines along the other axis, with the same values, each in the order of the lines that they come from."""
        from scipy.sparse import csr_array  # slow to import

        numbers = np.arange(len(self.values), dtype=self.ends.dtype)  # values may be of a type that SciPy does not know
        turned = csr_array((numbers, self.places, self.ends), shape=self.shape).tocsc()
        ends, places = turned.indptr.astype(np.int32), turned.indices.astype(np.int32)
        return Lines(self.values[turned.data], places, ends, len(self.ends) - 1, 1 - self.axis)


def held(n_values: int, dtype: np.dtype[Any]) -> int:
    """Most bytes of the lines of a region of so many values, as stored and as they are put together."""
    return 2 * (n_values // FEW) * (dtype.itemsize + 8)


def held_to_turn(n_values: int, width: int, dtype: np.dtype[Any]) -> int:
    """Most bytes of a region of so many values, `width` long across its lines, as lines that are turned; perhaps all are stored."""
    return n_values * (2 * dtype.itemsize + 24) + 16 * (width + 1)
