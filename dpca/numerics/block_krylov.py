"""Leading eigenpairs of K = X_c X_c' by block Krylov, from products with blocks of vectors alone, and what each is worth.

K is never formed. Pass by pass, a space V grows by a block Q, whose product K Q is what a pass adds up; each new block is the last product,
made orthogonal to all of V (Golub and Underwood, The block Lanczos method, in Mathematical Software III, 1977; Musco and Musco,
Randomized block Krylov methods for stronger and faster approximate singular value decomposition, NeurIPS 2015).

Values. With V'K V = S diag(theta) S', u = V s are Ritz vectors. X' V s spans features, whose Ritz values come from K V and V'K V without
another pass: half an iteration for free. Both are lower bounds of eigenvalues (Cauchy's interlacing theorem).

Upper bounds. Let U be j Ritz vectors with values theta_1 >= ... >= theta_j and residuals R = K U - U diag(theta), and mu the largest eigenvalue
of K on what is orthogonal to them. By the Schur complement, an eigenvalue lambda > mu of K is one of diag(theta) plus a semidefinite matrix
of at most R'R / (lambda - mu), so that lambda_i <= lambda_i(diag(theta) + R'R / (theta_i - mu)) (Parlett, The Symmetric Eigenvalue Problem, chapters 10 and
11; Li and Li, A note on eigenvalues of perturbed Hermitian matrices, Linear Algebra Appl. 395, 2005). Values that are equal or close to each other do no harm among the j.

That nothing was missed. A residual shows that an eigenvalue is there, not that no larger one is missing, and mu is not known. It is bounded
with a stated chance, because columns of the first block are random (`most`): were lambda_i as large as x, the space would hold a Ritz value that is
larger than the one that it has, except with a chance that Gaussian matrices have (Halko, Martinsson and Tropp, SIAM Review 53, 2011,
proposition 10.4, and theorem 10.8 with Chebyshev polynomials in place of powers). All of this is of the matrix that products multiply with; how far that is
from K the sketch measures, and what lies below its errors is called 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dpca.numerics.backproject import Ritz
from dpca.numerics.sketch import SMALLEST, Sketch
from dpca.types import F64

CHANCE = 1e-6
"""The chance that a bound fails because the random block missed something, over all bounds and passes."""
STATEMENTS = 10
"""Statements on Gaussian matrices for each column of the block and each pass p, times p^2: the sum over all of them is 1."""
OVERSAMPLING = (20, 40)
"""Columns of a block beyond those asked for, at least and at most: they decide what can be proved after how many passes."""
ROWS = 4096
"""Rows of tall matrices that are worked on at a time."""
FAR = 100
"""More passes than these are not foreseen."""
CLEAR = 4.0
"""A Ritz value is told from 0 if it is so many times the error of its product."""
SOLID = 1e-10
"""Share of the largest below which Ritz values have too few digits for a pencil, and no eigenvalue is known to be smaller."""
SHARPENED = 3
"""How often bounds of smaller eigenvalues sharpen those of larger ones."""
LARGEST_ANGLE = 300.0
BULK = 12
"""A component that would take so many passes more is in the bulk: it is hardly larger than what is around it."""
NEGLIGIBLE = 1e-14
"""Directions that are smaller than this share of a product are rounding."""


@dataclass(frozen=True)
class Iteration:
    """How block Krylov is done."""

    block: int | None = None
    """Columns of a block; None for n_components and twice that more, but 20 to 40 more."""
    max_passes: int = 12
    """Most reads of the data."""
    tolerance: float = 1e-6
    """Largest certified relative error of an eigenvalue that counts as reliable."""
    windows: bool = False
    """Whether the first pass goes over spans in a random order, and improves its block after 1, 2, 4, ... of them."""
    restart: bool = False
    """Whether two passes with an independent random block look for what was missed."""

    def columns(self, n_components: int, dimensions: int) -> int:
        """Columns of a block, at most as many as there are dimensions."""
        least, most = OVERSAMPLING
        asked = n_components + min(max(least, 2 * n_components), most) if self.block is None else self.block
        return max(1, min(asked, dimensions))


def random_block(m: int, columns: int, null: F64 | None, number: int = 0) -> F64:
    """A Gaussian block, orthonormal, (m, columns): the same at every call; `number` makes others, independent of it.

    Parameters
    ----------
    null : a vector of length 1 that K maps to 0, (m,), which the block is orthogonal to; None for none
    """
    block = np.random.default_rng([m, number, 26]).standard_normal((m, columns))
    return without(orthonormal(without(block, null)), null)


def without(columns: F64, vector: F64 | None) -> F64:
    """Part of columns that is orthogonal to a vector of length 1; all of them if None."""
    return columns if vector is None else columns - np.outer(vector, vector @ columns)


def orthonormal(block: F64) -> F64:
    """An orthonormal basis of the columns."""
    return np.asarray(np.linalg.qr(block)[0], np.float64)


@dataclass
class Space:
    """V, orthonormal, and K V: blocks beside each other, of which there are as many as passes."""

    m: int
    null: F64 | None = None
    """A vector of length 1 that K maps to 0, (m,); None for none."""
    blocks: list[F64] = field(default_factory=list)
    products: list[F64] = field(default_factory=list)
    random: int = 0
    """How many columns of the first block are Gaussian; the others are any. With them the space has all Krylov blocks of these."""
    chain: int = 0
    """How many of the first blocks are Krylov blocks of the first."""
    exhausted: bool = False
    """Whether K maps V into V, to double precision: then it has each eigenvalue, as often as there are Gaussian columns in the first block."""
    projected: F64 = field(default_factory=lambda: np.zeros((0, 0)))
    """V'K V."""
    _halves: F64 | None = None

    @property
    def size(self) -> int:
        return len(self.projected)

    @property
    def dimensions(self) -> int:
        """The most columns that V can have."""
        return self.m - (self.null is not None)

    @property
    def columns(self) -> int:
        """Columns of the first block."""
        return self.blocks[0].shape[1] if self.blocks else 0

    @property
    def complete(self) -> bool:
        """Whether V spans everything."""
        return self.size >= self.dimensions

    def add(self, block: F64, product: F64, *, chained: bool) -> None:
        """Let V grow.

        Parameters
        ----------
        block, product : Q, orthonormal and orthogonal to V, and K Q, (m, columns)
        chained : whether Q follows the random block, or is it
        """
        product = without(product, self.null)
        self.blocks.append(block)
        self.products.append(product)
        self.chain += chained and self.chain == len(self.blocks) - 1
        along = self.inner(product)
        size = self.size
        grown = np.zeros((len(along), len(along)))
        grown[:size, :size] = self.projected
        # (Q'K V)' = V'K Q in exact arithmetic; both are at hand only for the last block.
        grown[:, size:] = along
        grown[size:, :size] = along[:size].T
        corner = grown[size:, size:]
        grown[size:, size:] = (corner + corner.T) / 2
        self.projected = grown
        self._halves = None

    @property
    def halves(self) -> F64:
        """Ritz values of features in the span of X'V, descending: eigenvalues of the pencil (K V)'K V, V'K V."""
        if self._halves is None:
            self._halves = self._pencil()
        return self._halves

    def _pencil(self) -> F64:
        values, turn = np.linalg.eigh(self.projected)
        kept = values > SOLID * max(float(values[-1]), 0.0)
        # From the columns K V s / sqrt(theta) themselves: (K V)'K V has an error of eps lambda_1^2, which would hide small ones.
        turn = turn[:, kept] / np.sqrt(values[kept])
        squares = np.zeros((turn.shape[1], turn.shape[1]))
        for _, products in self.rows():
            columns = products @ turn
            squares += columns.T @ columns
        return np.asarray(np.linalg.eigvalsh(squares)[::-1], np.float64)

    def inner(self, others: F64) -> F64:
        """V' A, (size, columns)."""
        return (
            np.concatenate([block.T @ others for block in self.blocks])
            if self.blocks
            else np.zeros((0, others.shape[1]))
        )

    def _combined(self, coefficients: F64, of: Sequence[F64]) -> F64:
        found = np.zeros((self.m, coefficients.shape[1]))
        start = 0
        for block in of:
            found += block @ coefficients[start : start + block.shape[1]]
            start += block.shape[1]
        return found

    def outside(self, others: F64) -> F64:
        """Part of some columns that is orthogonal to V and to the null vector; twice, since rounding is along V after the first time."""
        for _ in range(2):
            others = without(others - self.vectors(self.inner(others)), self.null)
        return others

    def following(self, block: F64) -> F64 | None:
        """An orthonormal block that is orthogonal to V, from some columns; None where V holds all of them but for rounding in float64."""
        size = float(np.abs(block).max(initial=0.0))
        if not size > 0:
            return None
        left = self.outside(block / size)
        columns, triangle = np.linalg.qr(left)
        turned, sizes, _ = np.linalg.svd(triangle)
        largest = float(np.linalg.norm(block / size))
        kept = int(np.count_nonzero(sizes > NEGLIGIBLE * largest))
        kept = min(kept, self.dimensions - self.size)
        return orthonormal(self.outside(columns @ turned[:, :kept])) if kept > 0 else None

    def vectors(self, coefficients: F64) -> F64:
        """V C, (m, columns), for C of (size, columns)."""
        return self._combined(coefficients, self.blocks)

    def images(self, coefficients: F64) -> F64:
        """K V C, (m, columns), for C of (size, columns)."""
        return self._combined(coefficients, self.products)

    def rows(self) -> Iterator[tuple[F64, F64]]:
        """Rows of V and of K V, some at a time."""
        for rows in _rows(self.m):
            yield np.hstack([block[rows] for block in self.blocks]), np.hstack([one[rows] for one in self.products])


class Renewed:
    """A space in which vectors, and products that are better than those that led to them, take the place of their shadows in V.

    With U = V C + what V lacks, and N an orthonormal basis of what is orthogonal to C, it is [U, V N], with the products [K U, K V N].

    Parameters
    ----------
    vectors, products : U, orthonormal, and K U, (m, k)
    """

    def __init__(self, space: Space, vectors: F64, products: F64) -> None:
        self.m = space.m
        products = without(products, space.null)
        self._space, self._own, self._images = space, vectors, products
        k = vectors.shape[1]
        along = space.inner(vectors)
        self._rest = np.linalg.qr(along, mode="complete")[0][:, k:]
        self.size = k + self._rest.shape[1]
        self.projected = np.zeros((self.size, self.size))
        self.projected[:k, :k] = (vectors.T @ products + products.T @ vectors) / 2
        self.projected[k:, :k] = self._rest.T @ space.inner(products)
        self.projected[:k, k:] = self.projected[k:, :k].T
        self.projected[k:, k:] = self._rest.T @ space.projected @ self._rest

    def vectors(self, coefficients: F64) -> F64:
        """Vectors, see Space."""
        k = self._own.shape[1]
        return self._own @ coefficients[:k] + self._space.vectors(self._rest @ coefficients[k:])

    def images(self, coefficients: F64) -> F64:
        """Images, see Space."""
        k = self._own.shape[1]
        return self._images @ coefficients[:k] + self._space.images(self._rest @ coefficients[k:])

    def rows(self) -> Iterator[tuple[F64, F64]]:
        """Rows, see Space."""
        for rows, (basis, products) in zip(_rows(self.m), self._space.rows(), strict=True):
            yield (
                np.hstack([self._own[rows], basis @ self._rest]),
                np.hstack([self._images[rows], products @ self._rest]),
            )


def _rows(m: int) -> Iterator[slice]:
    return (slice(start, min(start + ROWS, m)) for start in range(0, m, ROWS))


@dataclass(frozen=True)
class RitzPairs:
    """Ritz pairs of K in a space."""

    values: F64
    """theta, descending, (size,)."""
    turn: F64
    """S, (size, size): u = V s."""
    squares: F64
    """R'R of the first `j` pairs, (j, j)."""

    @classmethod
    def of(cls, space: Space | Renewed, j: int) -> Self:
        """The pairs of a space, with the residuals of the first j."""
        values, turn = np.linalg.eigh(space.projected)
        values, turn = values[::-1].copy(), turn[:, ::-1].copy()
        leading, first = turn[:, :j], values[:j]
        squares = np.zeros((leading.shape[1], leading.shape[1]))
        for basis, products in space.rows():
            residual = products @ leading - (basis @ leading) * first
            squares += residual.T @ residual
        return cls(values, turn, squares)

    @property
    def residuals(self) -> F64:
        """|K u - theta u| of the first pairs, (j,)."""
        return np.sqrt(np.maximum(np.diagonal(self.squares), 0.0))


def most(values: F64, columns: int, passes: int, dimensions: int, trace: float) -> F64:
    """Upper bound of each eigenvalue of K, but for CHANCE, (columns + 1,), from Ritz values and the random block that they follow from.

    The space of features X' p(K) Omega has s-dimensional subspaces on which Ritz values are at least lambda_i / (1 + e_i^2), i <= s, with
    e_i = |D Omega2| |Omega1^+| / d(lambda_i). Here Omega1 are the coefficients of Omega, with l columns, in the first s eigenvectors, Omega2 those
    in the others, p is a Chebyshev polynomial, at most 1 on [0, mu] with mu the largest of the other eigenvalues, d(x) = sqrt(x / mu) p(x), and D
    has d of the other eigenvalues, so that |D|_2 <= 1, and |D|_F^2 is at most their sum over mu. For a Gaussian Omega, |Omega1^+| <=
    e sqrt(l) / (l - s + 1) t but for a chance of t^-(l - s + 1), and |D Omega2| <= |D|_F + |D|_2 (sqrt(l) + u) but for exp(-u^2 / 2)
    (Halko, Martinsson and Tropp, SIAM Review 53, 2011, propositions 10.4 and 10.3). If all that is known of mu is that lambda_i is larger, its
    own level theta_i (1 + slack) in the place of mu bounds lambda_i, to a factor. With these bounds as mu for larger eigenvalues, theirs become sharp.

    Parameters
    ----------
    values : Ritz values of the features, descending
    columns, passes : l, and how many blocks the Krylov space has
    dimensions : of K
    trace : of K
    """
    n = columns + 1
    theta = np.zeros(n)
    theta[: min(n, len(values))] = values[:n]
    rest = np.maximum(trace - np.concatenate([[0.0], np.cumsum(theta[:-1])]), 0.0)
    found = np.minimum.accumulate(rest)
    degree, chance = passes - 1, CHANCE / (STATEMENTS * columns * passes**2)
    if degree < 1:
        return found
    power = columns + 1 - np.arange(1, n)  # l - s + 1 for s = 1 ... l
    spread = math.e * math.sqrt(columns) / power * (chance / 2) ** (-1 / power)
    wide = math.sqrt(columns) + math.sqrt(2 * math.log(2 / chance))
    slack = np.array([[0.02], [0.1], [0.3], [1.0]])
    n_found = int((theta[:columns] > 0).sum())
    mu = theta[:n_found] * (1 + slack)
    sizes = spread[:n_found] * (np.sqrt(np.minimum(dimensions, rest[:n_found] / mu)) + wide) / np.sqrt(slack)
    found[:n_found] = np.minimum(found[:n_found], (mu * _ratios(sizes, degree)).min(axis=0))
    found = np.minimum.accumulate(found)
    for _ in range(SHARPENED):
        for index in range(columns):
            mu = found[index + 1 :]  # of lambda_{s + 1}, s = index + 1 ... l
            known = (mu > 0) & (mu < theta[index])
            if not known.any():
                continue
            mu = np.where(known, mu, 1.0)
            sizes = spread[index:] * (np.sqrt(np.minimum(dimensions, rest[index + 1 :] / mu)) + wide)
            grown = np.log(sizes) - _growth(np.arccosh(np.where(known, 2 * theta[index] / mu - 1, 1.0)), degree)
            squares = np.exp(2 * np.minimum(grown, 300.0))
            found[index] = min(found[index], theta[index] * (1 + float(np.where(known, squares, np.inf).min())))
        found = np.minimum.accumulate(found)
    return np.asarray(np.maximum(found, SOLID * theta[0]), np.float64)


def _growth(angle: Any, degree: int) -> Any:
    """The logarithm of d(r mu) = sqrt(r) T(2 r - 1), with 2 r - 1 = cosh(angle)."""
    return 0.5 * np.log((1 + np.cosh(angle)) / 2) + degree * angle + np.log1p(np.exp(-2 * degree * angle)) - math.log(2)


def _ratios(sizes: F64, degree: int) -> F64:
    """The smallest ratio r >= 1 with d(r mu) >= size, for each size; infinite where it is beyond reach."""
    wanted, low, high = np.log(np.maximum(sizes, 1.0)), np.zeros(sizes.shape), np.ones(sizes.shape)
    while (short := (high <= LARGEST_ANGLE) & (_growth(high, degree) < wanted)).any():
        low, high = np.where(short, high, low), np.where(short, 2 * high, high)
    far = high > LARGEST_ANGLE
    for _ in range(30):
        middle = (low + high) / 2
        short = _growth(middle, degree) < wanted
        low, high = np.where(short, middle, low), np.where(short, high, middle)
    return np.where(far, np.inf, (1 + np.cosh(high)) / 2)


@dataclass(frozen=True)
class LeadingPairs:
    """Leading eigenpairs by a space."""

    values: F64
    """Lower bounds of the eigenvalues, descending, (k,), which are reported."""
    upper: F64
    """Upper bounds of the eigenvalues, (k,), but for CHANCE, and for errors of products."""
    residuals: F64
    """|K u - theta u| of Ritz pairs, (k,): an eigenvalue is no further from theta."""
    products: F64
    """Measured errors |K u - K~ u| of computed products, (k,)."""
    more: F64
    """Passes after which a bound would meet the tolerance, foreseen, (k,); infinite beyond FAR."""
    later: F64
    """Relative bounds foreseen after as many passes again, (k,)."""
    last: F64
    """Relative bounds foreseen after a pass with the vectors, which renews the space and proves nothing more, (k,)."""
    further: F64
    """Ritz values beyond, descending; they are lower bounds, too."""
    vectors: F64
    """Orthonormal, (m, k): the Ritz vectors after half an iteration more."""

    def bounds(self, values: F64) -> F64:
        """How far eigenvalues are from reported values at most, (k,)."""
        return bounds_of(values, self.upper, self.products)

    @property
    def relative(self) -> F64:
        """Bounds relative to values, (k,)."""
        return relative(self.values, self.bounds(self.values))

    @property
    def noise(self) -> float:
        """The largest error of a product, relative to the largest value."""
        return float(self.products.max(initial=0.0)) / (float(self.values.max(initial=0.0)) or 1.0)

    @property
    def bulk(self) -> NDArray[np.bool_]:
        """Which are in the bulk, (k,)."""
        return self.more > BULK


def bounds_of(values: F64, upper: F64, products: F64) -> F64:
    """How far eigenvalues are from values at most, (k,), if these are lower bounds but for errors of products."""
    bounds: F64 = np.maximum(upper - values, 0.0) + products + SMALLEST * values
    return bounds


def relative(values: F64, bounds: F64) -> F64:
    """Bounds relative to values, (k,); to the largest one for values that can't be told from 0, and infinite where that is none, too."""
    nothing = values <= 0
    with np.errstate(over="ignore"):
        found: F64 = bounds / np.where(nothing, max(float(values.max(initial=0.0)), np.finfo(float).tiny), values)
    return found


def found_in(
    space: Space,
    sketch: Sketch,
    k: int,
    trace: float,
    tolerance: float,
    *,
    renewed: Renewed | None = None,
    refines: bool = False,
) -> LeadingPairs:
    """The k leading eigenpairs, with their bounds; fewer where the space is smaller.

    Parameters
    ----------
    renewed : the space with better vectors in it; None for none
    sketch : of K, in float64, which the errors of products are measured by
    trace : of K, added up without products
    tolerance : that is asked for
    refines : whether errors of products do not count in what is foreseen, as where a pass in double precision follows
    """
    within = space if renewed is None else renewed
    j = min(space.size, max(k, space.columns))
    pairs = RitzPairs.of(within, j)
    leading = pairs.turn[:, :j]
    images = within.images(leading)
    theta = pairs.values[:j]
    errors = sketch.residuals(within.vectors(leading), theta, images)
    # Errors of products would count e^2 / theta times in the half iteration; what can't be told from them is 0.
    positive = np.logical_and.accumulate(theta > np.maximum(NEGLIGIBLE * float(theta[0]), CLEAR * errors))
    images *= np.divide(1.0, np.sqrt(np.maximum(theta, 0.0)), out=np.zeros(j), where=positive)
    half = Ritz.of(np.diag(positive.astype(float)), images, positive)
    assert half is not None
    above = most_of(space, trace)
    values = half.values**2
    more, later, last = foreseen(space, pairs, 0 * errors if refines else errors, trace, k, tolerance)
    return LeadingPairs(
        values=values[:k],
        upper=upper_bounds(pairs, errors, above)[:k],
        residuals=pairs.residuals[:k] + errors[:k] + np.abs(values - theta)[:k],
        products=errors[:k],
        more=more,
        later=later,
        last=last,
        further=values[k:],
        vectors=half.kept[:, :k],
    )


def most_of(space: Space, trace: float, passes: int = 0) -> F64:
    """Upper bounds of the eigenvalues, (Gaussian columns + 1,); with so many passes more, if nothing else changed.

    Parameters
    ----------
    trace : of K, added up without products
    """
    columns = space.random or space.columns
    if space.complete or space.exhausted:
        values = np.linalg.eigvalsh(space.projected)[::-1]
        return np.append(values[: columns + 1], np.zeros(max(0, columns + 1 - space.size)))
    return most(space.halves, columns, space.chain + passes, space.dimensions, trace)


def beyond(pairs: RitzPairs, errors: F64, above: F64) -> tuple[F64, F64]:
    """For each j: the largest eigenvalue on what is orthogonal to the first j Ritz vectors, at most, and trace(R'R) of these.

    With r = |R| and the gap g = theta_j - a to a bound a of lambda_{j+1}, it is at most a + s with s (g - s) = r^2, the smaller solution, where
    g^2 > 4 r^2: by the interlacing theorem for the span of the j and a vector beside them, whose smallest eigenvalue is lambda_{j+1} at most.
    """
    n = min(len(errors), len(above) - 1)
    # (R + E)'(R + E) <= 1.1 R'R + 11 E'E
    traces = np.cumsum(1.1 * np.diagonal(pairs.squares)[:n] + 11 * np.arange(1, n + 1) * np.square(errors[:n]))
    gaps = pairs.values[:n] - above[1 : n + 1]
    apart = (gaps > 0) & (gaps * gaps > 4 * traces)
    spilled = (gaps - np.sqrt(np.where(apart, gaps * gaps - 4 * traces, 0.0))) / 2
    return np.where(apart, above[1 : n + 1] + spilled, np.inf), traces


def upper_bounds(pairs: RitzPairs, errors: F64, above: F64) -> F64:
    """Upper bounds of the eigenvalues, (j,).

    Parameters
    ----------
    errors : measured errors of the products of the pairs, (j,)
    above : what the eigenvalues are at most, from `most_of`
    """
    theta = pairs.values[: len(errors)]
    found = np.full(len(theta), np.inf)
    found[: len(above)] = above[: len(theta)]
    mus, traces = beyond(pairs, errors, above)
    for i in range(len(mus)):
        over = np.where(mus[i:] < theta[i], theta[i] - np.where(np.isfinite(mus[i:]), mus[i:], 0.0), 0.0)
        if not over.any():
            continue
        # The j that is best for the trace; what counts of R'R is its part in the direction of u_i.
        best = int(np.argmin(np.divide(traces[i:], over, out=np.full(len(over), np.inf), where=over > 0)))
        for at in {best, int(np.argmax(over))}:
            j = i + at + 1
            total = 1.1 * pairs.squares[:j, :j] + 11 * float(np.square(errors[:j]).sum()) * np.eye(j)
            values = np.linalg.eigvalsh(np.diag(theta[:j]) + total / over[at])
            found[i] = min(found[i], float(values[j - 1 - i]))
    return found


def foreseen(
    space: Space, pairs: RitzPairs, errors: F64, trace: float, k: int, tolerance: float
) -> tuple[F64, F64, F64]:
    """After how many passes more the relative bounds would meet a tolerance; what they would be after as many passes again, and after a last one.

    A pass makes residuals smaller by the growth of a Chebyshev polynomial beyond the eigenvalues that a block can't tell apart. The last one, with Ritz
    vectors, by their ratio to these.
    """
    theta = np.maximum(pairs.values, 0.0)
    j = len(errors)
    level = float(theta[min(space.columns, len(theta) - 1)])
    gamma = np.divide(theta[:j], level, out=np.full(j, 1e12), where=level > 0) - 1
    growth = np.log1p(2 * gamma + 2 * np.sqrt(np.maximum(gamma * gamma + gamma, 0.0)))
    own = np.diagonal(pairs.squares)

    def after(passes: int, shrunk: F64 | None = None) -> F64:
        shrunk = np.exp(-np.minimum(growth * passes, 300)) if shrunk is None else shrunk
        later = replace(pairs, squares=np.diag(own * shrunk**2))
        above = most_of(space, trace, passes)
        mus, _ = beyond(later, errors, above)
        upper = np.full(j, np.inf)
        upper[: len(above)] = above[:j]
        for i in range(len(mus)):
            over = theta[i] - float(mus[i:].min())
            if over > 0:
                upper[i] = min(upper[i], theta[i] + 1.1 * later.squares[i, i] / over)
        return relative(theta[:k], bounds_of(theta[:k], upper[:k], errors[:k]))

    more = np.full(min(k, j), np.inf)
    for passes in (*range(1, 9), 10, BULK, 16, 24, 40, 64, FAR):
        more = np.where(np.isinf(more) & (after(passes) <= tolerance), passes, more)
        if np.isfinite(more).all():
            break
    return more, after(max(1, space.chain)), after(0, 1 / (1 + gamma))
