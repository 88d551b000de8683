"""K = X_c X_c', n x n, as a sum over panels of features.

Products are symmetric rank-k updates of at most `panel_width` columns in working precision, added up
in float64. With unit roundoff u and panels of w columns, each entry of a panel's product has an error of at most
gamma_w |x_i|'|x_j|, gamma_w = w u / (1 - w u) (Higham, Accuracy and Stability of Numerical Algorithms,
2nd ed., eq. 3.5), and of about sqrt(w) u |x_i|'|x_j| if rounding errors are independent (Higham and
Mary, SIAM J. Sci. Comput. 41, 2019, thm 3.1). The sum over panels adds u64 times their number. So the
relative error of K does not grow with the number of features: the width of a panel bounds it.

Measured in single precision, panels of 4096 features, largest error over largest entry of K (`make precision`):
1.7e-7 at 10^4 features, 6e-8 at 10^5 and 2e-8 at 10^6, for white data, for few factors and for means far from 0:
float32's eps, 1.2e-7, or little more. Panels of 16384 double the error, panels of 256 halve it. Columns that repeat
have equal terms, whose sums round in one direction: 1.7e-6 at 10^4 features of which 20 are different, and 3.3e-6, 28
eps, where all are the same, however many. So no bound is claimed by formula: each run measures the error of its own
products (`dpca.numerics.sketch`), and claims that.

Integers of 8 bits are centred by their rounded means, so that the products are products of integers; while the squares of
a panel sum to less than 2^24, float32 represents every partial sum, and K is exact until H K H.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dpca.errors import PrecisionError
from dpca.numerics.accumulators import krylov
from dpca.numerics.accumulators.factors import Choose, Factors
from dpca.numerics.accumulators.tallies import Tally
from dpca.numerics.panels import SlabPanel
from dpca.numerics.sketch import norms
from dpca.settings import MODEL
from dpca.system.buffers import Buffer
from dpca.types import F64

EXACT = {4: 2.0**24, 8: 2.0**53}
"""Integers below this are exact, by size of the float; a sum of squares above it, even rounded, does not fall below again."""


@dataclass
class GramAccumulator:
    """The Gram matrix of some features, and the tally of the same pass."""

    matrix: F64 = field(metadata={"symmetric": True})
    """X_c X_c', (m, m); the ledger stores one half of it."""
    tally: Tally
    exact: bool = True
    """Whether no product was rounded, as in single precision with integers that are small enough."""
    power = 2
    semidefinite: bool = True
    """Whether only rounding makes eigenvalues negative."""
    _product: Buffer = field(default_factory=Buffer, repr=False, compare=False)

    @classmethod
    def empty(cls, m: int, tally: Tally) -> Self:
        """The sum over no data."""
        return cls(np.zeros((m, m)), tally)

    def of_slab(self, panels: Iterable[SlabPanel]) -> Iterator[SlabPanel]:
        """Add the panels of a slab; yields each after it is added."""
        for panel in panels:
            self.exact &= self.add_panel(panel)
            self.tally.add(panel)
            yield panel

    def add_panel(self, panel: SlabPanel) -> bool:
        """Add P P' of a panel; returns whether every sum is exact."""
        if panel.lines is None:
            return self.add(panel.matrix) and panel.integers
        for part in panel.lines.lines.add_product(self.matrix):
            self.add(part)
        return False

    def add(self, matrix: NDArray[Any]) -> bool:
        """Add P P', where there are several blocks to the lower ones alone; returns whether every sum is exact if P holds integers.

        The diagonal decides: by Cauchy and Schwarz no partial sum of an entry exceeds the largest diagonal entry, and
        float32 represents every integer up to 2^24.
        """
        m = len(matrix)
        side = min(m, BLOCK)
        largest, products = 0.0, self._product.view((side, side), matrix.dtype)
        for first in range(0, m, side):
            rows = slice(first, min(first + side, m))
            for second in range(0, first + side, side):
                columns = slice(second, min(second + side, m))
                product = products[: rows.stop - first, : columns.stop - second]
                with np.errstate(over="ignore", invalid="ignore"):
                    # For A @ A.T NumPy calls BLAS syrk, half the work of a general product, and releases the GIL.
                    np.matmul(matrix[rows], matrix[columns].T, out=product)
                self.matrix[rows, columns] += product
            diagonal = np.einsum("ii->i", product)
            if not np.isfinite(diagonal).all():
                raise PrecisionError(
                    f"values too large for products in {matrix.dtype}: the sum of their squares overflows",
                    f"{MODEL.precision.set_to('double')}, or store the data in other units.",
                )
            largest = max(largest, float(diagonal.max()))
        return largest < EXACT[matrix.dtype.itemsize]

    def close(self) -> Self:
        """End a span: fill the other triangle, and release the buffer of products."""
        m = len(self.matrix)
        for first in range(BLOCK, m, BLOCK):
            for second in range(0, first, BLOCK):
                block = self.matrix[first : first + BLOCK, second : second + BLOCK]
                self.matrix[second : second + BLOCK, first : first + BLOCK] = block.T
        self._product.release()
        self.tally.close()
        return self

    def emptied(self, tally: Tally) -> Self:
        """The sum over no data, of the same kind."""
        return self.empty(len(self.matrix), tally)

    def compared(self, center: bool, shares: F64 | None, columns: F64) -> tuple[F64, F64]:
        """The trace of the matrix, and the sum of squares."""
        return self.squares(center, shares).sum(keepdims=True), np.array([self.tally.total])

    def merge(self, other: GramAccumulator) -> Self:
        """Add the sum of another span, in place, so that no third n x n matrix is needed."""
        self.matrix += other.matrix
        self.exact &= other.exact
        self.tally.merge(other.tally)
        return self

    def squares(self, center: bool, shares: F64 | None = None) -> F64:
        """Sum of squares of X_c from the products: the trace of H K H, (1,)."""
        if not center:
            return np.array([np.trace(self.matrix)])
        if shares is None:
            return np.array([np.trace(self.matrix) - self.matrix.sum() / len(self.matrix)])
        row = self.matrix @ shares
        return np.array([np.trace(self.matrix) - 2 * row.sum() + len(row) * float(shares @ row)])

    def times(self, vectors: F64) -> F64:
        """K V."""
        # K is symmetric: BLAS takes V' K faster, in which rows of K are read one after another.
        product: F64 = (np.ascontiguousarray(vectors.T) @ self.matrix).T
        return product

    def scale(self, factors: F64) -> None:
        """Multiply rows and columns by factors, (m,), in place."""
        self.matrix *= factors[:, None]
        self.matrix *= factors

    def recenter(self, shares: F64 | None = None) -> None:
        """(I - 1 s') K (I - s 1'), in place: removes the mean that rounding left; H K H without shares s."""
        center_gram(self.matrix, shares)

    def finish(self, choose: Choose, leading: int | None = None) -> Factors:
        """Eigendecomposition."""
        return eigh(self.matrix, choose, self.semidefinite, leading=leading)

    @staticmethod
    def held(m: int, working_dtype: np.dtype[Any]) -> dict[str, int]:
        """Bytes that the accumulation of a span holds, by name of the array."""
        return {"Gram matrix of a span": 8 * m * m, "product of a panel": working_dtype.itemsize * min(m, BLOCK) ** 2}

    @staticmethod
    def held_to_merge(m: int) -> dict[str, int]:
        """Bytes that adding up spans holds, by name, without the spans that wait."""
        return {"Gram matrix": 8 * m * m}

    @staticmethod
    def held_to_finish(m: int, n_components: int) -> dict[str, int]:
        """Bytes that `finish` holds, by name of the array.

        Below `LARGE` numpy.linalg.eigh calls LAPACK's dsyevd on a copy of the matrix, with a workspace of 1 + 6m + 2m^2
        values (LAPACK Users' Guide), and then copies the vectors.
        """
        arrays = {"Gram matrix": 8 * m * m, "chosen vectors and their residuals": 3 * 8 * m * n_components}
        if m >= LARGE:
            return {**arrays, "its copy for LAPACK": 8 * m * m, "LAPACK's workspace": 8 * m * (64 + 18 + 8 + 5)}
        return {
            **arrays,
            "its copy for LAPACK": 8 * m * m,
            "eigenvectors": 8 * m * m,
            "LAPACK's workspace": 8 * (1 + 6 * m + 2 * m * m),
        }


BLOCK = 2048
"""Products of more samples than this are made block by block, each added while it is near, and one of two that mirror each other."""
LARGE = 2000
"""Matrices of this size or more are solved for the chosen vectors only; smaller ones give all vectors within a second."""
CLEAR = 10
"""How far above the floor leading eigenvalues are to be, whose own floor is an estimate."""


CENTRED_ROWS = 256
"""Rows that are centred together, so that the array to subtract stays small."""


def center_gram(gram: F64, shares: F64 | None = None) -> F64:
    """H K H with H = I - 11'/n, in place: removes the mean that rounding left; the result is symmetric to the bit.

    With shares s, (n,), of the samples in the mean H is I - 1 s'.
    """
    row = gram.mean(axis=1) if shares is None else gram @ shares
    half = row - (row.mean() if shares is None else float(shares @ row)) / 2
    for start in range(0, len(gram), CENTRED_ROWS):
        gram[start : start + CENTRED_ROWS] -= half[start : start + CENTRED_ROWS, None] + half
    return gram


def eigh(
    matrix: F64, choose: Choose, semidefinite: bool = True, large: int | None = None, leading: int | None = None
) -> Factors:
    """Eigendecomposition of a symmetric matrix.

    An eigenvalue counts as zero below m eps64 lambda_1 (the backward error of the eigensolve). If the matrix is
    semidefinite up to rounding, also below twice the magnitude of the most negative eigenvalue: only rounding makes
    eigenvalues negative, so that one measures it. For other matrices `total` is the sum of the positive eigenvalues.

    Parameters
    ----------
    large : the size from which on only the chosen vectors are computed; `LARGE` if None
    leading : where the leading eigenvalues of a semidefinite matrix are enough, the number of their vectors: if that pays, and that none
        of them was missed can be proved, the others are not computed (`krylov`)
    """
    found = _leading(matrix, leading)
    if found is None:
        ascending, vectors_of = _decomposed(matrix, LARGE if large is None else large)
        eigenvalues, smallest = ascending[::-1], float(ascending[0])
    else:
        eigenvalues, smallest = found.eigenvalues, found.smallest
    largest = max(float(eigenvalues[0]), 0.0)
    floor = _floor(len(matrix), max(largest, -smallest))
    if semidefinite:
        floor = max(floor, -2.0 * smallest)
    total = float(np.trace(matrix) if semidefinite else eigenvalues[eigenvalues > floor].sum())
    n_components = choose(eigenvalues, floor, total)
    chosen = vectors_of(n_components) if found is None else found.vectors
    residuals = norms(matrix @ chosen - chosen * eigenvalues[:n_components])
    return Factors(
        eigenvalues,
        chosen,
        residuals / largest if largest else residuals,
        floor=floor,
        total=total,
        complete=found is None,
    )


def _floor(m: int, magnitude: float) -> float:
    return m * float(np.finfo(np.float64).eps) * magnitude


def _leading(matrix: F64, k: int | None) -> krylov.Leading | None:
    """The leading pairs, unless an eigenvalue among them is so small that the smallest of all decides whether it counts as zero."""
    if k is None or not k <= krylov.most_leading(len(matrix)) or (found := krylov.leading(matrix, k)) is None:
        return None
    smallest, floor = found.smallest, _floor(len(matrix), float(found.eigenvalues[0]))
    return found if found.eigenvalues[-1] > CLEAR * max(floor, -2.0 * smallest) else None


def eigensolve_flops(m: int, leading: bool) -> int:
    """Flops of `eigh`: 9 m^3 for all vectors, 4/3 m^3 for the reduction only (Golub and Van Loan, 8.3); for leading pairs m^3 at most."""
    if leading:
        return m**3  # a third for the Cholesky factorization, the rest for products with a space of m / 3 dimensions
    return 9 * m**3 if m < LARGE else 4 * m**3 // 3


def load(m: int) -> None:
    """Import what `eigh` needs for m x m: SciPy has its own BLAS, which must be loaded before threads are set."""
    if m >= LARGE:
        import dpca.numerics.accumulators.lapack  # noqa: F401


def _decomposed(matrix: F64, large: int) -> tuple[F64, Callable[[int], F64]]:
    """All eigenvalues, ascending, and a function that gives the vectors of the k largest, in descending order."""
    if len(matrix) < large:
        return _whole(matrix)
    from dpca.numerics.accumulators.lapack import LapackError, Tridiagonal  # importing SciPy is slow

    def leading(k: int) -> F64:
        try:
            return reduced.leading(k)
        except LapackError:
            return _whole(matrix)[1](k)

    try:
        reduced = Tridiagonal(matrix)
    except LapackError:  # dsyevd uses another algorithm
        return _whole(matrix)
    return reduced.eigenvalues, leading


def _whole(matrix: F64) -> tuple[F64, Callable[[int], F64]]:
    """Eigenpairs by LAPACK's dsyevd, which computes every vector."""
    eigenvalues, vectors = np.linalg.eigh(matrix)
    return eigenvalues, lambda k: np.ascontiguousarray(vectors[:, ::-1][:, :k])
