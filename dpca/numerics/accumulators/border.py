"""K = X_c X_c', n x n, where the first n_1 samples have been decomposed before: only the columns of the n_2 others are added up.

Panels are those of a run on all samples, about the mean of all: whatever is not a product (means, squares, r, c and the
sketch) is what such a run would find, and the sketch measures the errors of the old products with those of the new. Products take
2 n n_2 flops a feature instead of n^2.

K_1 of the earlier run is about the mean of its samples. About any other centre the same products are K_1 + h 1' + 1 h', and
their row sums give h: with t, the row sums over the first n_1 columns, n_1 h = t - sum(t) / (2 n_1), since K_1 1 = 0. The row
sums over all columns are P P' 1 of the panels P, 4 flops a value; the border's are taken off. So nothing is assumed of what
rounding has left of the means.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dpca.errors import PrecisionError
from dpca.numerics.accumulators.gram import BLOCK, GramAccumulator
from dpca.numerics.accumulators.tallies import FeatureTally, Tally
from dpca.settings import MODEL
from dpca.types import F64

READ_BYTES = 2**23
"""Size of the rows of known products that are read at a time."""


@dataclass
class Border(GramAccumulator):
    """The last columns of a Gram matrix, and the tally of the pass over all samples."""

    matrix: F64
    """X_c X_new', (n, n_2)."""
    sums: F64 = field(default_factory=lambda: np.zeros(0))
    """X_c X_c' 1, (n,)."""

    @classmethod
    def after(cls, n_known: int, m: int, tally: Tally) -> Self:
        """The sum over no data, where the products of the first `n_known` of m samples are known."""
        return cls(np.zeros((m, m - n_known)), tally, exact=False, sums=np.zeros(m))

    def add(self, matrix: NDArray[Any]) -> bool:
        """Add P P_new' and P P' 1; whether their sums are exact is not known: False."""
        m, n_new = self.matrix.shape
        products = self._product.view((min(m, BLOCK), min(n_new, BLOCK)), matrix.dtype)
        n_known, finite = m - n_new, True
        with np.errstate(over="ignore", invalid="ignore"):
            for rows, columns in product(_blocks(m), _blocks(n_new)):
                part = products[: rows.stop - rows.start, : columns.stop - columns.start]
                np.matmul(matrix[rows], matrix[n_known:][columns].T, out=part)
                finite &= bool(np.isfinite([part.min(), part.max()]).all())
                self.matrix[rows, columns] += part
            sums = matrix @ (np.ones(len(matrix), matrix.dtype) @ matrix)
        if not (finite and np.isfinite(sums).all()):
            raise PrecisionError(
                f"values too large for products in {matrix.dtype}: the sum of their squares overflows",
                f"{MODEL.precision.set_to('double')}, or store the data in other units.",
            )
        self.sums += sums
        return False

    def close(self) -> Self:
        """End a span: release the buffer of products."""
        self._product.release()
        self.tally.close()
        return self

    def merge(self, other: GramAccumulator) -> Self:
        """Add the sum of another span, in place."""
        assert isinstance(other, Border)
        self.sums += other.sums
        return super().merge(other)

    def whole(self, known: Callable[[slice], F64], center: bool) -> GramAccumulator:
        """The Gram matrix of all samples, symmetric to the bit.

        Parameters
        ----------
        known : rows of that of the first samples, (n_1, n_1): about their mean if `center`
        """
        n, n_new = self.matrix.shape
        n_known = n - n_new
        tally = self.tally
        assert isinstance(tally, FeatureTally)
        gram = GramAccumulator.empty(n, tally)
        gram.exact = False
        shift = np.zeros(n_known)
        if center:
            among = self.sums[:n_known] - self.matrix[:n_known].sum(axis=1)
            shift = (among - among.mean() / 2) / n_known
        together = max(1, READ_BYTES // (8 * n_known))
        for start in range(0, n_known, together):
            rows = slice(start, min(start + together, n_known))
            gram.matrix[rows, :n_known] = known(rows) + (shift[rows, None] + shift)
        gram.matrix[:, n_known:] = self.matrix
        gram.matrix[n_known:, :n_known] = self.matrix[:n_known].T
        corner = self.matrix[n_known:]
        gram.matrix[n_known:, n_known:] = (corner + corner.T) / 2
        return gram

    @staticmethod
    def flops(n_known: int, m: int) -> int:
        """Flops of the products of a feature: of old samples with new ones, and of these with each other."""
        return 2 * m * (m - n_known)


def _blocks(length: int) -> list[slice]:
    return [slice(start, min(start + BLOCK, length)) for start in range(0, length, BLOCK)]


SAME = 2.0**-40
"""Relative difference up to which sums over all features, in float64, are those of equal values."""


def repeated(n_known: int, tallies: Sequence[FeatureTally]) -> tuple[int, int] | None:
    """The first new sample that has the values of one of the `n_known` before it, and that one; None if there is none.

    Equal values have equal sums of squares, an equal product with the mean, and equal rows of the sketch, to the rounding of
    float64, whatever the precision of the products. Samples that differ differ in one of these 10 sums, as random columns do not lie
    in the plane that is orthogonal to their difference.

    Parameters
    ----------
    tallies : of each group of features
    """
    squares = np.sum([one.squares for one in tallies], axis=0)
    sketch = np.sum([one.sketch for one in tallies], axis=0)
    mean_product = np.sum([one.mean_product for one in tallies], axis=0)
    combined, size = np.column_stack([sketch, mean_product]), np.sqrt(squares)
    sizes = np.sqrt([*[squares.sum()] * sketch.shape[1], sum(one.mean_norm2 for one in tallies)])
    for new in range(n_known, len(size)):
        near = np.flatnonzero(np.abs(squares[:n_known] - squares[new]) <= SAME * squares[new])
        apart = np.abs(combined[near] - combined[new]) > SAME * size[new] * sizes
        same = near[~apart.any(axis=1)]
        if same.size:
            return new, int(same[0])
    return None
