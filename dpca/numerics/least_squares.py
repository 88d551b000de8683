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


def n_pairs(n_components: int) -> int:
    """Number of pairs of components, in any order."""
    return n_components * (n_components + 1) // 2


def products_of(components: F64) -> F64:
    """Products of each pair of components, (k, features), at each feature, (k (k + 1) / 2, features)."""
    first, second = np.triu_indices(len(components))
    return np.asarray(components[first] * components[second])


def add_products(sums: F64, components: F64, missing: NDArray[np.bool_] | None) -> None:
    """Add the products of components over the features that each sample has.

    Parameters
    ----------
    sums : (samples, k (k + 1) / 2), the entries of W_P' W_P on and above the diagonal
    components : (k, features)
    missing : mask of the values that are missing, (samples, features); None for none
    """
    products = products_of(components)
    sums += products.sum(axis=1)
    if missing is not None and (some := missing.any(axis=0)).any():
        sums -= missing[:, some].astype(np.float64) @ products[:, some].T


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
    Both (samples, k); NaN for samples with too few values for k components. Errors are NaN where no value is left beside these
    """
    n, k = scores.shape
    first, second = np.triu_indices(k)
    normal = np.empty((n, k, k))
    normal[:, first, second] = normal[:, second, first] = sums
    values, vectors = np.linalg.eigh(normal)
    enough = (n_values >= k) & (values[:, 0] > SMALLEST) if k else np.ones(n, bool)
    inverse = np.where(values > SMALLEST, 1 / np.where(values > SMALLEST, values, 1), np.nan)
    along = np.einsum("nij,ni->nj", vectors, scores)
    found = np.where(enough[:, None], np.einsum("nij,nj->ni", vectors, inverse * along), np.nan)
    residual = np.maximum(squares - np.einsum("nk,nk->n", found, scores), 0)
    left = np.where(n_values > k, n_values - k, np.nan)
    errors = np.sqrt((residual / left)[:, None] * np.einsum("nij,nj->ni", vectors**2, inverse))
    return found, errors
