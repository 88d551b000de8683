"""The spectrum of what a pass has added up so far: to look at while it runs, and no result.

The leading eigenvalues of a matrix that is half there, by block power iteration with a Rayleigh-Ritz step at its end (Halko,
Martinsson and Tropp, SIAM Review 53, 2011, algorithm 4.4): a few products with m x 15, where a decomposition would hold up
the pass. What it gives is at most the eigenvalue, and close to it where eigenvalues fall.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpca.numerics.accumulators import Accumulator
from dpca.numerics.accumulators.factors import F64

PREVIEWS = 10
"""Of a pass: after each tenth of its spans there is one, but the last."""
COMPONENTS, OVERSAMPLING, ITERATIONS = 5, 10, 4
WIDTH = COMPONENTS + OVERSAMPLING


@dataclass(frozen=True)
class Preview:
    """Of what was added up."""

    spans: int
    n_spans: int
    explained_variance_ratio: tuple[float, ...]
    """Leading shares of the variance that was added up, descending."""


def is_due(spans: int, n_spans: int) -> bool:
    """Whether this span completes another tenth of a pass; what is complete needs no preview."""
    return spans < n_spans and PREVIEWS * spans // n_spans > PREVIEWS * (spans - 1) // n_spans


def leading_shares(found: Accumulator, center: bool, factors: F64 | None = None) -> tuple[float, ...]:
    """Of the sum of squares, what the leading components have.

    Parameters
    ----------
    found : of m samples or m features, as far as it is
    center : whether the mean over the m is still to be removed
    factors : what features will be multiplied by, (m,); None for nothing
    """
    m = len(found.matrix)
    weights = np.ones(m) if factors is None else factors
    squares = found.squares(center)
    total = float((squares if factors is None else squares * factors**2).sum())
    if not (total > 0 and np.isfinite(total)):
        return ()  # what is the matter will be said when the pass has ended

    def product(block: F64) -> F64:
        block = weights[:, None] * block
        block = found.times(block - block.mean(axis=0) if center else block)
        return weights[:, None] * (block - block.mean(axis=0) if center else block)

    block: F64 = np.random.default_rng(0).standard_normal((m, min(WIDTH, m)))
    for _ in range(ITERATIONS):
        block = np.asarray(np.linalg.qr(product(block))[0], np.float64)
    values = np.linalg.eigvalsh(block.T @ product(block))[::-1]
    return tuple(min(1.0, float(value / total)) for value in values[:COMPONENTS] if value > 0)


def held(m: int) -> int:
    """Bytes that it takes for a moment: blocks of vectors, with LAPACK's copies."""
    return 6 * 8 * m * WIDTH
