"""A preview of the spectrum from the spans that are added up so far: to look at while a pass runs, not a result.

The leading eigenvalues of the unfinished matrix, by block power iteration with a final Rayleigh-Ritz step (Halko,
Martinsson and Tropp, SIAM Review 53, 2011, algorithm 4.4): a few products with m x 15 matrices, where a decomposition would
delay the pass. Each value is a lower bound of its eigenvalue, and close to it where eigenvalues decay.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpca.numerics.accumulators import Accumulator
from dpca.numerics.accumulators.grouped import GroupedMatrices
from dpca.types import F64

PREVIEWS = 10
"""A pass is divided into this many parts: a preview follows each of them except the last."""
COMPONENTS, OVERSAMPLING, ITERATIONS = 5, 10, 4
WIDTH = COMPONENTS + OVERSAMPLING


@dataclass(frozen=True)
class Preview:
    """A preview of the spans that were added up."""

    spans: int
    n_spans: int
    explained_variance_ratio: tuple[float, ...]
    """The largest shares of the variance that was added up, descending."""


def is_due(spans: int, n_spans: int) -> bool:
    """Whether this span completes another tenth of a pass; a complete pass needs no preview."""
    return spans < n_spans and PREVIEWS * spans // n_spans > PREVIEWS * (spans - 1) // n_spans


def leading_shares(
    partial: Accumulator | GroupedMatrices, center: bool, factors: F64 | None = None
) -> tuple[float, ...]:
    """Shares of the sum of squares that the leading components have.

    Parameters
    ----------
    partial : the unfinished sum, over m samples or m features
    center : whether the mean over these m has to be removed yet
    factors : what features will be multiplied by, (m,); None for no scaling
    """
    m = len(partial.matrix)
    weights = np.ones(m) if factors is None else factors
    squares = partial.squares(center)
    total = float((squares if factors is None else squares * factors**2).sum())
    if not (total > 0 and np.isfinite(total)):
        return ()  # the end of the pass reports what is wrong

    def product(block: F64) -> F64:
        block = weights[:, None] * block
        block = partial.times(block - block.mean(axis=0) if center else block)
        return weights[:, None] * (block - block.mean(axis=0) if center else block)

    block: F64 = np.random.default_rng(0).standard_normal((m, min(WIDTH, m)))
    for _ in range(ITERATIONS):
        block = np.asarray(np.linalg.qr(product(block))[0], np.float64)
    values = np.linalg.eigvalsh(block.T @ product(block))[::-1]
    return tuple(min(1.0, float(value / total)) for value in values[:COMPONENTS] if value > 0)


def held(m: int) -> int:
    """Bytes that a preview takes for a moment: blocks of vectors, with LAPACK's copies."""
    return 6 * 8 * m * WIDTH
