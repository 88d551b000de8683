"""The sketch: K = X_c X_c' times a few random vectors, which measures the error of an answer against the data.

In addition to the products, from the same values before they are rounded to working precision, each pass adds up the
sketch Y = X_c (X_c' Omega) in float64, with t random columns Omega: 4 t flops a value, where products take m. Any pair (v,
lambda) of a solver is then tested against the true K: Omega' (K v - lambda v) = Y' v - lambda Omega' v holds t random
combinations of the residual's entries, so its norm estimates that of the residual, whatever the cause: rounded values,
sums that round in one direction where columns repeat, the eigensolve (Freivalds, MFCS 1979; Halko, Martinsson and Tropp,
SIAM Review 53, 2011, section 4.3).

With a residual r, an eigenvalue of K lies within r of lambda (Parlett, The Symmetric Eigenvalue Problem, theorem 4.5.1),
and the angle between v and an eigenvector of K is at most r / gap (11.7.1). A second pass applies one more step of subspace
iteration to the vectors and gives Ritz values, whose error is of second order. If the error of K rotates a vector by e_c
towards the vector of a smaller lambda_c, the component has an error of e_c sigma_c / sigma, and the value the square of that
as its relative error: sum of e_c^2 lambda_c / lambda, where the residual after the step is r = norm of e_c lambda_c. By Cauchy
and Schwarz the sum is at most |e| r / lambda: the angle before the step times the relative residual after it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from dpca.types import F64

COLUMNS = 8
"""Number of columns of Omega."""
SAFETY = 2.5
"""Factor that makes bounds of estimates: the norm of 8 normal values is too small by more than this once in 250 times."""
RELIABLE = 1e-2
"""Largest relative error of a singular value that counts as reliable."""
SMALLEST = 2.0**-49
"""Smallest error that is claimed, 14.7 digits: products, sums and roots in float64 each add rounding errors of their own."""


def random_columns(m: int, centered: bool) -> F64:
    """Omega, (m, t): the same at every call, with orthogonal columns, and without a mean where samples are centred.

    Omega Omega' is the identity on average, and exactly where t reaches m.
    """
    rank = m - centered
    t = min(COLUMNS, rank)
    columns = np.random.default_rng(m).standard_normal((m, t))
    if centered:
        columns -= columns.mean(axis=0)
    omega: F64 = np.linalg.qr(columns)[0] * np.sqrt(rank / max(1, t))
    return omega


def _inverse(factors: F64) -> tuple[F64, float]:
    """1 / factors, 0 where they are 0, and the root mean square of what is not 0; 1 without any."""
    inverse = np.divide(1.0, factors, out=np.zeros_like(factors), where=factors > 0)
    size = float(norms(inverse[:, None])[0]) / math.sqrt(int(np.count_nonzero(inverse)) or 1)
    return inverse, size or 1.0


@dataclass(frozen=True)
class Sketch:
    """K times random columns."""

    columns: F64
    """Omega, (m, t)."""
    product: F64
    """Y = K Omega, (m, t), computed in float64."""
    off: float = 0.0
    """How much any sigma may be off by what was rounded before, and what no product shows: a fit that was subtracted from X."""

    unequal: float = 1.0
    """By how much a norm may be larger than these columns show, which are weighted unequally."""

    def residuals(self, vectors: F64, values: F64, images: F64 | None = None) -> F64:
        """Bounds of |K v - lambda v| for vectors of norm 1, (m, k), and values, (k,); or of |K v - b| for images b, (m, k)."""
        combined = self.product.T @ vectors - (
            self.columns.T @ vectors * values if images is None else self.columns.T @ images
        )
        return SAFETY * self.unequal * norms(combined) + self.squared(values)

    def squared(self, values: F64) -> F64:
        """How much eigenvalues may be off by what was rounded before, (k,)."""
        off: F64 = (2 * np.sqrt(np.maximum(values, 0.0)) + self.off) * self.off
        return off

    def backward_error(self, product: F64, largest: float) -> float:
        """A bound of |D|, where A'A = (X + D)'(X + D) for a factor A, from A'A Omega, (m, t), and the largest sigma."""
        if not largest:
            return 0.0
        # If strong directions are exact, D lies where X is weak, and is not visible here: QR guarantees only eps sigma_1.
        measured = SAFETY * self.unequal * float(norms((product - self.product).reshape(-1, 1))[0]) / (2 * largest)
        return max(measured, float(np.finfo(np.float64).eps) * largest) + self.off

    def missed(self, product: F64, vectors: F64) -> float:
        """A bound of what a computed K has lost in the complement of its chosen vectors, (m, k).

        A residual shows that an eigenvalue exists, not that no larger one is missing. By Weyl, none above this is.

        Parameters
        ----------
        product : the computed K times Omega, (m, t)
        """
        difference = self.product - product
        difference = difference - vectors @ (vectors.T @ difference)
        largest = float(np.abs(difference).max(initial=0.0))
        size = float(np.linalg.norm(difference / largest, 2)) if largest else 0.0
        return SAFETY * self.unequal * largest * size + self.off**2

    def entries(self, product: F64, diagonal: F64, norms2: F64) -> float:
        """Error of the entries (i, j) of a computed K relative to |x_i| |x_j|, for the sample where it is largest.

        Parameters
        ----------
        product : the computed K times Omega, (m, t)
        diagonal : of the computed K, (m,)
        norms2 : the true diagonal, |x_i|^2, (m,): errors may be there only
        """
        norms2 = np.maximum(norms2, 0.0)
        rows, sizes = norms((product - self.product).T), np.sqrt(norms2) * np.sqrt(norms2.sum())
        spread = np.divide(rows, sizes, out=np.zeros_like(rows), where=sizes > 0)
        alone = np.divide(diagonal - norms2, norms2, out=np.zeros_like(rows), where=norms2 > 0)
        before = 2 * self.off / (float(np.sqrt(norms2.sum())) or 1.0)
        return float(max(spread.max(initial=0.0), np.sqrt(np.square(alone).mean()))) + before

    def scaled(self, factors: F64) -> Sketch:
        """The sketch of diag(factors) K diag(factors), for similar factors; else it weights parts of the side unequally."""
        inverse, size = _inverse(factors)
        off = self.off * float(factors.max(initial=0.0))
        return Sketch(self.columns * (inverse / size)[:, None], self.product * (factors / size)[:, None], off)

    def weighted(self, roots: F64) -> Sketch:
        """Residuals for roots of weights of samples, however different they are: as if all errors were those of the heaviest one."""
        _, size = _inverse(roots)
        return replace(self.scaled(roots), unequal=size * float(roots.max(initial=0.0)))

    def unscaled(self, factors: F64) -> Sketch:
        """The opposite for the product: with the columns as they were before, the sketch of K; factors are above 0."""
        inverse, size = _inverse(factors)
        return Sketch(self.columns, self.product * inverse[:, None] * size, self.off * float(inverse.max(initial=0.0)))


def norms(columns: F64) -> F64:
    """Norms of columns whose squares may underflow or overflow in float64."""
    largest = float(np.abs(columns).max(initial=0.0))
    if not 0 < largest < np.inf:
        return np.full(columns.shape[1], largest)
    lengths: F64 = largest * np.linalg.norm(columns / largest, axis=0)
    return lengths


def first_order(values: F64, residuals: F64) -> F64:
    """Relative errors of sqrt(lambda) if the error of lambda is at most its residual; infinite where lambda is no larger."""
    lowest = values - residuals
    ratio = np.divide(values, lowest, out=np.full_like(values, np.inf), where=lowest > 0)
    return np.sqrt(ratio) - 1


def second_order(gaps: F64, before: F64, after: F64) -> F64:
    """Relative errors of square roots of Ritz values, from residuals before and after the step; infinite beyond the gap."""
    apart, inverse = gaps > before, np.divide(1.0, gaps, out=np.zeros_like(gaps), where=gaps > before)
    errors: F64 = np.where(apart, (before * inverse) * (after * inverse) / 2, np.inf)
    return errors


def claimed(errors: F64) -> F64:
    """Decimal digits of values with these relative errors, from 0 to 14.7."""
    digits: F64 = np.abs(np.log10(np.clip(errors, SMALLEST, 1.0)))
    return digits
