"""K Q = X_c (X_c' Q) for a block of vectors Q, m x l, as a sum over panels or slabs: both products in the task that reads.

Four flops for each value and column, where a Gram matrix takes m for each value; the sum is m x l. Products run in working precision, for some
hundred streamed values at a time, and are added up in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dpca.errors import PrecisionError
from dpca.numerics.accumulators.tallies import Corrections, Counts, Tally
from dpca.numerics.panels import SlabPanel
from dpca.numerics.sparse_lines import Part
from dpca.numerics.weights import mean_of
from dpca.settings import MODEL
from dpca.types import F64

BLOCK_BYTES = 2**22
"""Part of a slab in working precision that is in hand at a time: it stays in the cache for both products."""


@dataclass
class BlockProduct:
    """The product of the first pass, with the tally of the same pass; a sum that follows the contract of accumulators in part."""

    matrix: F64
    """X_c X_c' Q, (m, l)."""
    tally: Tally
    exact: bool = False
    power = 2
    _block: F64 = field(default_factory=lambda: np.zeros((0, 0)), repr=False)
    """Q, (m, l)."""

    @classmethod
    def after(cls, block: F64, tally: Tally) -> Self:
        """The sum over no data."""
        return cls(np.zeros_like(block), tally, False, block)

    def of_slab(self, panels: Iterable[SlabPanel]) -> Iterator[SlabPanel]:
        """Add the panels of a slab; yields each after it is added."""
        for panel in panels:
            if self.matrix.shape[1]:
                self.matrix += self._product(panel)
            self._correct(self.tally.add(panel))
            yield panel

    def _product(self, panel: SlabPanel) -> NDArray[Any]:
        if panel.lines is not None:
            return panel.lines.back(panel.lines.into(self._block))
        block = self._block.astype(panel.matrix.dtype)
        with np.errstate(over="ignore", invalid="ignore"):
            return finite(panel.matrix @ (block.T @ panel.matrix).T)

    def close(self) -> Self:
        """End a span."""
        self.tally.close()
        return self

    def emptied(self, tally: Tally) -> Self:
        """The sum over no data, with the same block."""
        return self.after(self._block, tally)

    def merge(self, other: Self) -> Self:
        """Add another span's sum, in place."""
        self.matrix += other.matrix
        self._correct(self.tally.merge(other.tally))
        return self

    def _correct(self, found: Corrections) -> None:
        """Centre the matrix by the means of all samples, where each panel is about its own."""
        for sign, vector in ((1, found.lacks), (-1, found.exceeds)):
            if vector is not None:
                self.matrix += sign * np.outer(vector, vector @ self._block)

    def compared(self, center: bool, shares: F64 | None, columns: F64) -> tuple[F64, F64]:
        """Comparison with the sketch: the size of Omega' K Q plus how far it is from that of the sketch, (K Omega)' Q; and that size."""
        matrix = self.matrix - mean_of(self.matrix, shares) if center else self.matrix
        exact = self.tally.sketch.T @ self._block
        size, off = np.linalg.norm(exact), np.linalg.norm(columns.T @ matrix - exact)
        return np.array([size + off]), np.array([size])

    def scale(self, factors: F64) -> None:
        """Multiply what is kept by factors, (m,)."""
        self.matrix *= factors[:, None]

    def recenter(self, shares: F64 | None = None) -> None:
        """Remove the mean that rounding left in a sum over samples, in place."""
        self.matrix -= mean_of(self.matrix, shares)


@dataclass
class Product:
    """The product of a later pass."""

    matrix: F64
    """X_c X_c' Q, (m, l)."""
    sketch: F64
    """X_c X_c' Omega, (m, t), in float64; of no columns where it is known."""
    counts: Counts = field(default_factory=Counts)

    @classmethod
    def empty(cls, m: int, columns: int, sketched: int = 0) -> Self:
        """The sum over no data."""
        return cls(np.zeros((m, columns)), np.zeros((m, sketched)))

    def merge(self, other: Self) -> Self:
        """Add another span's sum, in place."""
        self.matrix += other.matrix
        self.sketch += other.sketch
        self.counts.merge(other.counts)
        return self

    def add_lines(self, block: F64, part: Part, sketched: F64 | None = None) -> None:
        """Add a slab of sparse lines, in float64.

        Parameters
        ----------
        block : Q, (m, l)
        sketched : columns of the sketch, (m, t), if it is added up, too
        """
        columns = block.shape[1]
        image = part.back(part.into(block if sketched is None else np.hstack([block, sketched])))
        self.matrix += image[:, :columns]
        if sketched is not None:
            self.sketch += image[:, columns:]

    def add(
        self, block: NDArray[Any], width: int, rows_of: Callable[[slice], NDArray[Any]], factor: F64 | None = None
    ) -> None:
        """Add a slab.

        Parameters
        ----------
        block : Q, (m, l), in working precision
        width : streamed length of the slab
        rows_of : returns some rows of the slab in working precision, (rows, width), valid until the next call
        factor : what streamed values are multiplied by besides, (width,); None for nothing
        """
        m, columns = block.shape
        step = max(1, BLOCK_BYTES // (block.itemsize * max(1, width)))
        along = np.zeros((columns, width))
        with np.errstate(over="ignore", invalid="ignore"):
            for start in range(0, m, step):
                rows = slice(start, min(start + step, m))
                along += block[rows].T @ rows_of(rows)
            if factor is not None:
                along *= np.square(factor)
            turned = finite(along.astype(block.dtype)).T
            for start in range(0, m, step):
                rows = slice(start, min(start + step, m))
                self.matrix[rows] += rows_of(rows) @ turned


def finite(product: NDArray[Any]) -> NDArray[Any]:
    """The product."""
    if not np.isfinite(product).all():
        raise PrecisionError(
            f"values too large for products in {product.dtype}: their sums overflow",
            f"{MODEL.precision.set_to('double')}, or store the data in other units.",
        )
    return product


def held(m: int, columns: int, width: int, working_dtype: np.dtype[Any]) -> dict[str, int]:
    """Bytes that adding up a span holds, by name of the array."""
    return {
        "product of a span": 8 * m * columns,
        "product of a slab": 8 * m * columns,
        "block of vectors": (8 + working_dtype.itemsize) * m * columns,
        "part of a slab in hand, and its products": 2 * BLOCK_BYTES + 3 * 8 * columns * width,
    }
