"""Tall-skinny QR: R of X_c' = Q R, n x n (of X_c = Q R, d x d, where there are fewer features), updated panel by panel.

R gives the singular values without squaring the condition number.

R of [R; P'] is the R factor of all panels so far, within a span and from span to span, in their order (Demmel,
Grigori, Hoemmen and Langou, SIAM J. Sci. Comput. 34, 2012). Q is never formed: X_c' = Q R and R = U S V' give sigma
and the right singular vectors V, which are the score directions. Householder QR is backward stable, so each sigma
has an error of a small multiple of eps sigma_1, where the Gram matrix gives eps sigma_1^2 / sigma_j (Golub and
Van Loan, Matrix Computations, 4th ed., 8.6).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dpca.numerics.accumulators.factors import Choose, Factors
from dpca.numerics.accumulators.tallies import Corrections, Tally
from dpca.numerics.panels import SlabPanel
from dpca.numerics.sketch import norms
from dpca.types import F64

STACK_BYTES = 2**27


@dataclass
class Tsqr:
    """The R factor of the data that were added so far."""

    matrix: F64
    """R, (m, m), upper triangular."""
    tally: Tally
    exact = False
    power = 1
    _stack: F64 | None = field(default=None, repr=False)
    """R, and below it the rows that wait to be factored."""
    _waiting: int = 0

    @classmethod
    def empty(cls, m: int, tally: Tally) -> Self:
        """The factor of no data."""
        return cls(np.zeros((m, m)), tally)

    def of_slab(self, panels: Iterable[SlabPanel]) -> Iterator[SlabPanel]:
        """Factor the panels of a slab; yields each after it is added."""
        for panel in panels:
            self._push(panel.matrix.T)
            self._push(self._rows(self.tally.add(panel)))
            yield panel

    def close(self) -> Self:
        """End a span: factor the rows that wait."""
        self._factor()
        self._stack = None
        return self

    def emptied(self, tally: Tally) -> Self:
        """The factor of no data."""
        return self.empty(len(self.matrix), tally)

    def compared(self, center: bool, shares: F64 | None, columns: F64) -> tuple[F64, F64]:
        """The sum of squares of R, and that of the data."""
        return self.squares(center, shares).sum(keepdims=True), np.array([self.tally.total])

    def merge(self, other: Tsqr) -> Self:
        """R of the rows of both spans."""
        correction = self._rows(self.tally.merge(other.tally))
        self.matrix = _r_of(np.vstack([self.matrix, other.matrix, correction]))
        return self

    def squares(self, center: bool, shares: F64 | None = None) -> F64:
        """Sum of squares of each of the m from R, (m,)."""
        rows = self.matrix - self._mean(shares) if center else self.matrix
        return np.asarray(np.einsum("ij,ij->j", rows, rows), np.float64)

    def times(self, vectors: F64) -> F64:
        """R'R V."""
        product: F64 = self.matrix.T @ (self.matrix @ vectors)
        return product

    def scale(self, factors: F64) -> None:
        """Multiply features by factors, (m,), in place: R D of X_c D = Q R D."""
        self.matrix *= factors

    def recenter(self, shares: F64 | None = None) -> None:
        """R (I - s 1'), in place: removes the mean that rounding left; R H without shares s."""
        self.matrix -= self._mean(shares)

    def _mean(self, shares: F64 | None) -> F64:
        """The mean of the columns of R, (m, 1)."""
        mean: F64 = self.matrix.mean(axis=1) if shares is None else self.matrix @ shares
        return mean[:, None]

    def finish(self, choose: Choose, leading: int | None = None) -> Factors:
        """SVD of R, which gives all."""
        m = len(self.matrix)
        left, sigma, right = np.linalg.svd(self.matrix)
        floor = (m * np.finfo(np.float64).eps * float(sigma[0])) ** 2
        total = float(np.einsum("ij,ij->", self.matrix, self.matrix))
        n_components = choose(sigma**2, floor, total)
        vectors = np.ascontiguousarray(right[:n_components].T)
        residuals = norms(self.matrix @ vectors - left[:, :n_components] * sigma[:n_components])
        largest = float(sigma[0])
        return Factors(
            sigma**2,
            vectors,
            residuals / largest if largest else residuals,
            floor=floor,
            total=total,
        )

    def _rows(self, corrections: Corrections) -> F64:
        """The correction of R as rows: R'R + c c' belongs to [R; c']."""
        return np.empty((0, len(self.matrix))) if corrections.lacks is None else corrections.lacks[None]

    def _push(self, rows: NDArray[Any]) -> None:
        m = len(self.matrix)
        if self._stack is None:
            self._stack = np.empty((m + waiting_rows(m), m))
        while len(rows):
            start = m + self._waiting
            taken = rows[: len(self._stack) - start]
            self._stack[start : start + len(taken)] = taken
            self._waiting += len(taken)
            rows = rows[len(taken) :]
            if m + self._waiting == len(self._stack):
                self._factor()

    def _factor(self) -> None:
        if not self._waiting:
            return
        assert self._stack is not None
        m = len(self.matrix)
        self._stack[:m] = self.matrix
        self.matrix = _r_of(self._stack[: m + self._waiting])
        self._waiting = 0

    @staticmethod
    def held(m: int, working_dtype: np.dtype[Any]) -> dict[str, int]:  # noqa: ARG004  always float64
        """Bytes that the accumulation of a span holds, by name of the array."""
        rows = m + waiting_rows(m)
        return {"R factor of a span": 2 * 8 * m * m, "rows to be factored, and LAPACK's copy": 2 * 8 * rows * m}

    @staticmethod
    def held_to_merge(m: int) -> dict[str, int]:
        """Bytes that merging spans holds, by name, without the spans that wait."""
        return {"R factor": 8 * m * m, "two of them stacked, and LAPACK's copy": 2 * 2 * 8 * m * m}

    @staticmethod
    def held_to_finish(m: int, n_components: int) -> dict[str, int]:
        """Bytes that `finish` holds, by name: LAPACK's dgesdd for all vectors needs a workspace of 4 m^2 + 7 m."""
        return {
            "R factor": 8 * m * m,
            "its copy for LAPACK": 8 * m * m,
            "singular vectors": 2 * 8 * m * m,
            "LAPACK's workspace": 8 * (4 * m * m + 7 * m + 64 * 2 * m),
            "chosen vectors and their residuals": 3 * 8 * m * n_components,
        }


def _r_of(rows: F64) -> F64:
    factor: F64 = np.asarray(np.linalg.qr(rows, mode="r"))
    return factor


def waiting_rows(m: int) -> int:
    """Rows factored together: 4 m, at 1.2 times the least cost; where that exceeds 128 MiB fewer, but at least m."""
    return max(m, min(4 * m, STACK_BYTES // (8 * m)), 1)
