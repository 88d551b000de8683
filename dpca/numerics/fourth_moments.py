"""Fourth moments of a few maps over very many features: all that varimax and cubic ICA ever ask of the maps.

Varimax iterates on sums over features of l_a (l R)_j^3, and FastICA with a cubic contrast and JADE on the same sums of
whitened maps. These are polynomials of degree four in the maps, so that the k^4 / 24 sums of l_a l_b l_c l_d, added up in one
sweep, replace the maps in every iteration. A column of ones beside the maps gives the sums of degrees 0 to 3 with them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpca.types import F64

PANEL = 512
"""Features whose products of pairs are held at a time; it decides the order of sums, and so their last bits."""
NO_COMMUNALITY = 1e-20
"""A feature whose communality is at most this share of the mean one has none: what is left of a constant by rounding."""


@dataclass(frozen=True)
class Loadings:
    """How maps become the columns whose moments are added up."""

    scales: F64
    """Factor of each map, (k,)."""
    least: float | None = None
    """With Kaiser's rule, each feature is divided by the root of its communality, the sum of squares of its loadings, and
    left out where that is at most this; None without the rule."""

    @classmethod
    def of(cls, scales: F64, normalize: bool, n_features: int) -> Loadings:
        """Loadings of orthonormal maps; `normalize` for Kaiser's rule (Psychometrika 23, 1958)."""
        return cls(scales, NO_COMMUNALITY * float(scales @ scales) / max(1, n_features) if normalize else None)

    def of_maps(self, maps: NDArray[Any]) -> F64:
        """The loadings of a part of the maps, (k, w), without features that are NaN or have no communality: (k, at most w)."""
        loadings = maps.astype(np.float64) * self.scales[:, None]
        communality = np.einsum("kf,kf->f", loadings, loadings)
        if self.least is None:
            return loadings[:, ~np.isnan(communality)]
        kept = communality > self.least  # False where it is NaN
        return np.asarray(loadings[:, kept] / np.sqrt(communality[kept]), np.float64)


def n_sums(k: int) -> int:
    """The number of sums for k maps: of a, b, c, d in order, among the maps and a column of ones."""
    return math.comb(k + 4, 4)


def added(sums: F64, loadings: F64) -> None:
    """Add the fourth moments of a part of the features to their sums, in place.

    For each c, a product of all l_a l_b with a <= b <= c and all l_c l_d with d >= c: each sum is computed once.

    Parameters
    ----------
    sums : (n_sums(k),)
    loadings : (k, w) without NaN
    """
    columns = np.vstack([np.ones((1, loadings.shape[1])), loadings])
    for start in range(0, columns.shape[1], PANEL):
        panel = columns[:, start : start + PANEL]
        pairs = np.vstack([panel[: b + 1] * panel[b] for b in range(len(panel))])
        place = 0
        for c in range(len(panel)):
            # The pairs (c, d) with d >= c are products of rows, too, but they do not lie together.
            block = pairs[: _n_pairs(c + 1)] @ (panel[c] * panel[c:]).T
            sums[place : place + block.size] += block.reshape(-1)
            place += block.size


@dataclass(frozen=True)
class FourthMoments:
    """Fourth moments as a symmetric matrix of pairs: entry (ab, cd) is the sum over features of l_a l_b l_c l_d."""

    k: int
    """Number of columns, a column of ones, number 0, included."""
    pairs: F64
    """(k (k + 1) / 2, the same); pair (a, b) with a <= b has number b (b + 1) / 2 + a."""

    @classmethod
    def of(cls, sums: F64, k: int) -> FourthMoments:
        """The moments of k maps, and of ones, from their sums."""
        k += 1
        pairs, place = np.empty((_n_pairs(k), _n_pairs(k))), 0
        firsts, seconds = members(k)
        for c in range(k):
            a, b, d = firsts[: _n_pairs(c + 1), None], seconds[: _n_pairs(c + 1), None], np.arange(c, k)[None]
            block = sums[place : place + a.size * d.size].reshape(a.size, d.size)
            for one, other in (
                (_number(a, b), _number(c, d)),
                (_number(a, c), _number(b, d)),
                (_number(b, c), _number(a, d)),
            ):
                pairs[one, other] = pairs[other, one] = block
            place += block.size
        return cls(k, pairs)

    @property
    def n_features(self) -> float:
        """The number of features that were added up."""
        return float(self.pairs[0, 0])

    @property
    def first(self) -> F64:
        """Sums of l_a, (k - 1,)."""
        return np.asarray(self.pairs[0, _number(np.zeros(self.k - 1, int), np.arange(1, self.k))])

    @property
    def second(self) -> F64:
        """Sums of l_a l_b, (k - 1, k - 1)."""
        each = np.arange(1, self.k)
        return np.asarray(self.pairs[0, _number(np.minimum.outer(each, each), np.maximum.outer(each, each))])

    @property
    def fourth(self) -> FourthMoments:
        """Those of degree four alone: without the column of ones."""
        firsts, seconds = members(self.k)
        kept = np.flatnonzero((firsts > 0) & (seconds > 0))
        return FourthMoments(self.k - 1, self.pairs[np.ix_(kept, kept)])

    def turned(self, matrix: F64) -> FourthMoments:
        """Moments of other columns, (k, k') combinations of these."""
        k = matrix.shape[1]
        (a, b), (i, j) = members(self.k), members(k)
        turn = matrix[np.ix_(a, i)] * matrix[np.ix_(b, j)]
        turn += np.where((a != b)[:, None], matrix[np.ix_(b, i)] * matrix[np.ix_(a, j)], 0.0)
        return FourthMoments(k, turn.T @ self.pairs @ turn)

    def cubes(self, matrix: F64) -> F64:
        """Sums of l_a (l R)_j^3 for combinations R of the columns, (k, k'): (k, k')."""
        firsts, seconds = members(self.k)
        squares = matrix[firsts] * matrix[seconds] * np.where(firsts == seconds, 1.0, 2.0)[:, None]
        return np.asarray(np.einsum("abj,bj->aj", self._square(self.pairs @ squares), matrix))

    def matrices(self) -> F64:
        """Sums of l_a l_b l_c l_d as a matrix over a and b for each pair (c, d), (k, k, pairs)."""
        return self._square(self.pairs)

    def _square(self, by_pair: F64) -> F64:
        """Rows by pair as rows by both of its members."""
        each = np.arange(self.k)
        return np.asarray(by_pair[_number(np.minimum.outer(each, each), np.maximum.outer(each, each))])


def members(k: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Both members of each pair of k columns, in order of their numbers."""
    seconds, firsts = np.tril_indices(k)
    return firsts, seconds


def _n_pairs(k: int) -> int:
    return k * (k + 1) // 2


def _number(first: Any, second: Any) -> Any:
    """The number of a pair with first <= second."""
    return second * (second + 1) // 2 + first


def held(k: int, width: int) -> dict[str, int]:
    """Bytes that a task holds to add up moments of k maps, `width` features at a time, by name of the array."""
    return {
        "fourth moments of a span": 8 * n_sums(k),
        "loadings of a panel": 4 * 8 * (k + 1) * width,
        "products of pairs of a panel": 8 * (2 * _n_pairs(k + 1) + 2 * (k + 1)) * PANEL,
        "moments of a panel": 8 * n_sums(k),
    }


def held_to_solve(k: int) -> int:
    """Bytes that a rotation holds for k maps: the matrix of pairs, turned, and as matrices."""
    return 8 * 6 * _n_pairs(k + 1) ** 2
