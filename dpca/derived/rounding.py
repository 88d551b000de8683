"""Errors of eigenvalues of what operators leave: all of them are composed here, from where they enter and how far they reach.

With rows A X, A = A_s ... A_1, and a component of eigenvalue lambda = sigma^2, vector u and coefficients c = A^H u / sigma, errors enter

- in the stored products: the entry (i, j) of K is off by `rounding` |x_i| |x_j|, the row i of a factor F by `rounding` |x_i|;
- in each operator, by what it rounds: `Chain.rounding` measures the sum of what reaches the rows, D, in a few random directions;
- in the rows r_i that operators leave, whose products are kept in double: the entry (i, j) is off by eps |r_i| |r_j|, of which sums of rows that
  cancel keep all. Rows that are alike, such as means of neighbours, are longer than those of samples that are orthogonal to each other;
- in the mean that is put back, X X' = K + 1 r' + r 1' + c 11', of which r is off by a share of |x_i| |m|, and c of |m|^2, also where a factor
  gets a column for it, whose square is the difference of c and another;
- in the eigensolve, by a few eps of the largest eigenvalue (singular value of a factor) for all of them: `SMALLEST`, 8 eps, beside at most
  7 that were measured (20 to 300 rows, white, graded and nearly deficient).

Of a symmetric matrix with an error E, lambda lies within |E u| of the computed one (Parlett, The Symmetric Eigenvalue Problem, theorem
4.5.1); sigma of a factor with an error dF within |u^H dF|. Errors of entries are taken to be independent. What cancels later (y - H y in
`ridge`) is computed so that it does not.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpca.derived.operators import EPS
from dpca.numerics.sketch import SAFETY, SMALLEST
from dpca.numerics.spectrum import reciprocal
from dpca.types import F64


@dataclass(frozen=True, eq=False)
class Reach:
    """How far errors reach into the eigenvalues of some components."""

    eigenvalues: F64
    """lambda, descending from the largest of all, (k,)."""
    stored: F64
    """sum_i |x_i|^2 |c_i|^2: of stored products, (k,)."""
    exposed: float
    """The trace of A K A^H if samples were orthogonal: the same over all directions."""
    rows: F64
    """sum_i |r_i|^2 |w_i|^2 with the weights w of rows: of their own products, (k,)."""
    lengths: float
    """The trace of the products if rows were orthogonal: the same over all directions."""
    operators: F64
    """|u^H D|^2 / lambda: of what operators round, (k,)."""
    anywhere: float
    """|D|^2: the same over all directions."""
    mean: F64
    """|u^H A 1|^2 |m|^2 / lambda where the mean m is put back, (k,)."""


def of_matrix(reach: Reach, rounding: float) -> F64:
    """Relative errors of eigenvalues of A K A^H, (k,); infinite where they are 0.

    Of the products, A dK c sigma has a norm of about rounding (stored lambda)^(1/2) exposed^(1/2). Where operators leave few directions, that is
    hardly more than its part along u, c^H dK c: one random number, of which rounding stored is the size, and SAFETY times that the limit. What
    operators add to rows is beside the rows of the other side, D X' and its transpose.
    """
    inverse = reciprocal(reach.eigenvalues)
    directions = np.maximum(reach.exposed, SAFETY**2 * reach.stored * reach.eigenvalues)
    of_products = max(rounding, SMALLEST) * np.sqrt(reach.stored * directions)
    of_operators = SAFETY * (np.sqrt(reach.operators * reach.exposed) + np.sqrt(reach.stored * reach.anywhere))
    of_rows = EPS * np.sqrt(reach.rows * reach.lengths)
    solved = SMALLEST * reach.eigenvalues.max(initial=0.0) * inverse
    return _of_all((of_products + of_operators + of_rows) * np.sqrt(inverse) + solved, reach, rounding)


def of_factor(reach: Reach, rounding: float, n: int) -> F64:
    """Rounding from singular values of A F, twice their relative errors.

    Of n samples: a direction of F that has less than n eps of the mean is taken to have nothing of it.
    """
    solved = SMALLEST * np.sqrt(reach.eigenvalues.max(initial=0.0) * reciprocal(reach.eigenvalues))
    of_rows = (
        max(rounding, SMALLEST) * np.sqrt(reach.stored) + SAFETY * np.sqrt(reach.operators) + EPS * np.sqrt(reach.rows)
    )
    return _of_all(2 * (of_rows + solved), reach, max(rounding, n * EPS))


def _of_all(errors: F64, reach: Reach, rounding: float) -> F64:
    errors = errors + max(rounding, SMALLEST) * (2 * np.sqrt(reach.mean * reach.stored) + reach.mean)
    return np.where(reach.eigenvalues > 0, np.maximum(errors, SMALLEST), np.inf)


def of_products(exposed: float, anywhere: float, rounding: float) -> float:
    """The norm of the errors of A K A^H, or with the squared norm of a row in both an entry of it."""
    return rounding * exposed + SAFETY * (2 * float(np.sqrt(anywhere * exposed)) + anywhere)


def floor_of_matrix(n: int, eigenvalues: F64, exposed: float, anywhere: float, mean: float, rounding: float) -> float:
    """Threshold that an eigenvalue has to exceed to be told from 0: rounding of the eigensolve, which alone makes any negative, and of what it is given.

    Parameters
    ----------
    n : number of rows
    eigenvalues : all of them, or the largest and the least
    exposed, anywhere, rounding : as above
    mean : |A 1|^2 |m|^2
    """
    solved = max(n * EPS * float(eigenvalues.max()), -2 * float(eigenvalues.min()))
    return max(solved, max(n * EPS, rounding) * max(exposed, mean), SAFETY * of_products(exposed, anywhere, 0.0))


def floor_of_factor(n: int, _: F64, exposed: float, anywhere: float, mean: float, rounding: float) -> float:
    """Floor of squares of singular values of A F."""
    share = max(n * EPS, rounding)
    return max(share**2 * exposed, SAFETY**2 * anywhere, share * float(np.sqrt(mean * exposed)))
