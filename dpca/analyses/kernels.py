"""Distances of rows, and their inner products as kernels take them, from products that operators leave: no data."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpca.analyses.samples import Samples
from dpca.derived.gram import matrix_of, with_mean
from dpca.derived.operators import blocks
from dpca.errors import ConfigError
from dpca.kernels.inner import Inner
from dpca.numerics.sketch import RELIABLE
from dpca.types import F64

NEARLY = 1e-3
"""How far a norm of products in single precision may be off."""


def inner_of(rows: Samples) -> Inner:
    """The inner products of rows about their mean, and of their mean.

    With B the operators and H the centring, the rows have (H B) K (H B)', their mean m = X' B' 1/p the products H B X m and m'm.
    """
    if rows.weights is not None:
        raise ConfigError(
            "distances and kernels are of rows that were multiplied by the roots of their weights",
            "Leave the weights out.",
            key="weights",
        )
    centred = rows.centred
    transformed = centred.transformed
    matrix = matrix_of(transformed.products)
    mean = rows.chain.adjoint(np.full((rows.n, 1), 1 / rows.n))
    of_mean = with_mean(rows.products, mean)
    squares = np.diagonal(matrix).copy()
    r, c = centred.chain.apply(of_mean)[:, 0], max(float(mean[:, 0] @ of_mean[:, 0]), 0.0)
    # An entry of A K A' is off by about rounding sqrt(e_i e_j), with e the norms that rows had if samples were orthogonal.
    zero = _of_zeros(rows)
    r, exposed = np.where(zero, -c, r), np.where(zero, c, transformed.exposed)
    return Inner(matrix, squares, squares, r, r, c, exposed, exposed, first=0)


def _of_zeros(rows: Samples) -> NDArray[np.bool_]:
    """Which rows are made of samples of zeros alone (`dpca.numerics.preprocess.of_zeros`), (rows,)."""
    products, zero = rows.products, np.ones(rows.n, bool)
    norms2, c = products.norms2(about_mean=True), products.mean_norm2
    # Norms from products are not those that were marked, but close; K of no samples has no mean.
    nonzero = np.flatnonzero((products.mean_product != -c) | (np.abs(norms2 - c) > NEARLY * c))
    if len(nonzero) == products.n:
        return np.zeros(rows.n, bool)
    for some in blocks(len(nonzero)):
        alone = np.zeros((products.n, len(nonzero[some])))
        alone[nonzero[some], np.arange(alone.shape[1])] = 1.0
        zero &= ~rows.chain.apply(alone).any(axis=1)
    return zero


def distances(rows: Samples) -> tuple[F64, float]:
    """Euclidean distances of the rows from each other, (rows, rows), and the largest error of their squares."""
    inner = inner_of(rows)
    found = inner.squared_distances()
    np.fill_diagonal(found, 0.0)
    return np.sqrt(found, out=found), 4 * rows.centred.transformed.largest_error


def nearest_known(error: float) -> float:
    """The distance below which its square has less than two digits."""
    return float(np.sqrt(error / RELIABLE))
