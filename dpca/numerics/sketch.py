"""What K = X_c X_c' comes to on a few random vectors: how far an answer is from the data, measured.

Beside the products, and from the same values before they are rounded to working precision, each pass adds up the sketch
Y = X_c (X_c' Omega) in float64, with t random columns Omega: 4 t flops a value, where products take m. Any pair (v,
lambda) that a solver finds is then held against the true K: Omega' (K v - lambda v) = Y' v - lambda Omega' v has t random
combinations of the residual's entries, so that its norm estimates the residual's, whatever it is made of: values
rounded, sums that round in one direction where columns repeat, the eigensolve (Freivalds, MFCS 1979; Halko, Martinsson
and Tropp, SIAM Review 53, 2011, section 4.3).

An eigenvalue lies within the residual r of lambda (Parlett, The Symmetric Eigenvalue Problem, theorem 4.5.1), which makes
an eigenvector of K off by an angle of r / gap at most (11.7.1). A second pass takes the vectors one step of subspace
iteration further, and gives Ritz values, whose error is of second order. A vector that K's error turns by e_c towards the
vector of a smaller lambda_c gives a component that is off by e_c sigma_c / sigma, and a value whose relative error is the
square of that: sum of e_c^2 lambda_c / lambda, where the residual after the step is r = norm of e_c lambda_c. By Cauchy and
Schwarz the sum is at most |e| r / lambda: the angle before the step times the relative residual after it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]

COLUMNS = 8
"""Of Omega."""
SAFETY = 2.5
"""What estimates are multiplied by to bound: the norm of 8 normal values falls short of theirs by more once in 250 times."""
RELIABLE = 1e-2
"""The largest relative error of a singular value that is called reliable."""
SMALLEST = 2.0**-49
"""No error is claimed to be smaller: 14.7 digits; products, sums and roots of float64 each take a part of what is left."""


def random_columns(m: int, centered: bool) -> F64:
    """Omega, (m, t): the same at every call, orthogonal, and without the mean of samples that are centred.

    Its rows' inner products are those of the identity on average, and exactly so where t reaches m.
    """
    rank = m - centered
    t = min(COLUMNS, rank)
    columns = np.random.default_rng(m).standard_normal((m, t))
    if centered:
        columns -= columns.mean(axis=0)
    found: F64 = np.linalg.qr(columns)[0] * np.sqrt(rank / max(1, t))
    return found


@dataclass(frozen=True)
class Sketch:
    """K on random columns."""

    columns: F64
    """Omega, (m, t)."""
    product: F64
    """Y = K Omega, (m, t), from float64."""

    def residuals(self, vectors: F64, values: F64) -> F64:
        """Bounds of |K v - lambda v| of vectors (m, k) with norm 1 and values (k,)."""
        combined = self.product.T @ vectors - (self.columns.T @ vectors) * values
        return SAFETY * norms(combined)

    def backward_error(self, product: F64, largest: float) -> float:
        """A bound of |D| with A'A = (X + D)'(X + D) for a factor A, from A'A Omega, (m, t), and the largest of sigma."""
        if not largest:
            return 0.0
        # Where what is strong is exact, D is where X is weak, and does not show: QR promises eps sigma_1, and no less.
        measured = SAFETY * float(norms((product - self.product).reshape(-1, 1))[0]) / (2 * largest)
        return max(measured, float(np.finfo(np.float64).eps) * largest)

    def missed(self, product: F64, vectors: F64) -> float:
        """A bound of what a computed K has lost of the space that its chosen vectors, (m, k), leave.

        A residual shows that an eigenvalue is there, not that none is missing before it; by Weyl none is that exceeds this.

        Parameters
        ----------
        product : of the computed K with Omega, (m, t)
        """
        difference = self.product - product
        difference = difference - vectors @ (vectors.T @ difference)
        largest = float(np.abs(difference).max(initial=0.0))
        return SAFETY * largest * float(np.linalg.norm(difference / largest, 2)) if largest else 0.0

    def entries(self, product: F64, diagonal: F64, norms2: F64) -> float:
        """How far entry (i, j) of a computed K is off, relative to |x_i| |x_j|, in the sample where that is largest.

        Parameters
        ----------
        product : of the computed K with Omega, (m, t)
        diagonal : of the computed K
        norms2 : what it should be, |x_i|^2, (m,): errors may lie there alone
        """
        norms2 = np.maximum(norms2, 0.0)
        rows, sizes = norms((product - self.product).T), np.sqrt(norms2) * np.sqrt(norms2.sum())
        spread = np.divide(rows, sizes, out=np.zeros_like(rows), where=sizes > 0)
        alone = np.divide(diagonal - norms2, norms2, out=np.zeros_like(rows), where=norms2 > 0)
        return float(max(spread.max(initial=0.0), np.sqrt(np.square(alone).mean())))

    def scaled(self, factors: F64) -> Sketch:
        """Of diag(factors) K diag(factors), where factors are alike; else it sees some of the side more than others."""
        inverse = np.divide(1.0, factors, out=np.zeros_like(factors), where=factors > 0)
        size = float(norms(inverse[:, None])[0]) / math.sqrt(int(np.count_nonzero(inverse)) or 1)
        inverse, factors = inverse / (size or 1.0), factors / (size or 1.0)
        return Sketch(self.columns * inverse[:, None], self.product * factors[:, None])


def norms(columns: F64) -> F64:
    """Norms of columns whose squares may be too small, or too large, for float64."""
    largest = float(np.abs(columns).max(initial=0.0))
    if not 0 < largest < np.inf:
        return np.full(columns.shape[1], largest)
    found: F64 = largest * np.linalg.norm(columns / largest, axis=0)
    return found


def first_order(values: F64, residuals: F64) -> F64:
    """Relative errors of sqrt(lambda) where lambda is off by a residual at most; infinite where that reaches it."""
    left = values - residuals
    ratio = np.divide(values, left, out=np.full_like(values, np.inf), where=left > 0)
    return np.sqrt(ratio) - 1


def second_order(gaps: F64, before: F64, after: F64) -> F64:
    """Relative errors of the square roots of Ritz values, from residuals before the step and after it; infinite beyond the gap."""
    apart, inverse = gaps > before, np.divide(1.0, gaps, out=np.zeros_like(gaps), where=gaps > before)
    found: F64 = np.where(apart, (before * inverse) * (after * inverse) / 2, np.inf)
    return found


def claimed(errors: F64) -> F64:
    """Decimal digits of values with these relative errors, from 0 to 14.7."""
    digits: F64 = np.abs(np.log10(np.clip(errors, SMALLEST, 1.0)))
    return digits
