"""Projection of samples by least squares on the values that they have, as smartpca's lsqproject does (EIGENSOFT, POPGEN/README).

A sample x with the values of the features P alone has the scores s that minimise the sum over P of (x_f - sum_k s_k w_kf)^2: (W_P' W_P) s = W_P' x_P.
Without a missing value W'W is the identity, and s = W' x. Standard errors are those of ordinary least squares: the variance of the residuals,
with |P| - k degrees of freedom, times the diagonal of (W_P' W_P)^-1.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpca.types import F64

SMALLEST = 1e-6
"""Least eigenvalue of W_P' W_P, at most 1, with which scores are given: below, a component has next to no weight on the values that are there."""

ABSENT = 1e-12
"""A component of a smaller square is 0."""
SOLVED_VALUES = 2**20
"""Entries of W_P' W_P that are solved together."""


def n_sums(n_components: int) -> int:
    """Number of sums of a sample: of each pair of components, in any order, and of the square of each over all features."""
    return n_components * (n_components + 1) // 2 + n_components


def products_of(components: F64) -> F64:
    """Products of each pair of components, (k, features), at each feature, (k (k + 1) / 2, features)."""
    first, second = np.triu_indices(len(components))
    return np.asarray(components[first] * components[second])


def add_products(sums: F64, components: F64, missing: NDArray[np.bool_] | None) -> None:
    """Add the products of components over the features that each sample has.

    Parameters
    ----------
    sums : (samples, k (k + 1) / 2 + k), the entries of W_P' W_P on and above the diagonal, and the diagonal of W'W
    components : (k, features)
    missing : mask of the values that are missing, (samples, features); None for none
    """
    products = products_of(components)
    of_pairs, of_all = sums[:, : len(products)], sums[:, len(products) :]
    of_pairs += products.sum(axis=1)
    of_all += np.einsum("kf,kf->k", components, components)
    if missing is not None and (some := missing.any(axis=0)).any():
        of_pairs -= missing[:, some].astype(np.float64) @ products[:, some].T


def solved(scores: F64, squares: F64, sums: F64, n_values: F64) -> tuple[F64, F64]:
    """Scores by least squares, and their standard errors.

    Parameters
    ----------
    scores : W_P' x_P, (samples, k)
    squares : |x_P|^2, (samples,)
    sums : as of `add_products`
    n_values : number of values of each sample, (samples,)

    Returns
    -------
    Both (samples, k); NaN for samples with too few values for the components. Errors are NaN where no value is left beside these, and of a component
    that is 0, whose score is 0
    """
    found, errors = np.empty_like(scores), np.empty_like(scores)
    step = max(1, SOLVED_VALUES // max(1, scores.shape[1] ** 2))
    for start in range(0, len(scores), step):
        piece = slice(start, start + step)
        found[piece], errors[piece] = _solved(scores[piece], squares[piece], sums[piece], n_values[piece])
    return found, errors


def _solved(scores: F64, squares: F64, sums: F64, n_values: F64) -> tuple[F64, F64]:
    n, k = scores.shape
    first, second = np.triu_indices(k)
    normal = np.empty((n, k, k))
    normal[:, first, second] = normal[:, second, first] = sums[:, :-k] if k else sums
    absent = (sums[:, -k:] if k else sums) < ABSENT  # a component without variance is 0
    sample, component = np.nonzero(absent)
    normal[sample, component, component] = 1
    n_components = k - absent.sum(axis=1)
    values, vectors = np.linalg.eigh(normal)
    enough = (n_values >= n_components) & (values.min(axis=1, initial=1) > SMALLEST)
    inverse = np.where(values > SMALLEST, 1 / np.where(values > SMALLEST, values, 1), np.nan)
    along = np.einsum("nij,ni->nj", vectors, scores)
    found = np.where(enough[:, None], np.einsum("nij,nj->ni", vectors, inverse * along), np.nan)
    residual = np.maximum(squares - np.einsum("nk,nk->n", found, scores), 0)
    left = np.where(n_values > n_components, n_values - n_components, np.nan)
    errors = np.sqrt((residual / left)[:, None] * np.einsum("nij,nj->ni", vectors**2, inverse))
    return found, np.where(absent, np.nan, errors)
