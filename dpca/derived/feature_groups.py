"""Groups of features against each other, from the products of the same rows in each of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpca.derived.gram import AnyProducts, FactorProducts, Products, matrix_of, with_mean
from dpca.derived.operators import Matrix
from dpca.derived.pca import UpTo
from dpca.errors import ConfigError
from dpca.types import F64


def weighted_sum(parts: Sequence[AnyProducts], weights: Sequence[float]) -> AnyProducts:
    """The products of samples whose features are those of all groups, each multiplied by the root of its weight: sum_g w_g K_g.

    Products are those of groups of one run, or of several, each about its mean.
    """
    chosen = [(one, weight) for one, weight in zip(parts, weights, strict=True) if weight > 0]
    first, weight = chosen[0]
    if len(chosen) == 1 and weight == 1:
        return first
    r = np.sum([weight * one.mean_product for one, weight in chosen], axis=0)
    c = float(sum(weight * one.mean_norm2 for one, weight in chosen))
    rounding = max(one.rounding for one, _ in chosen)
    if all(isinstance(one, FactorProducts) for one, _ in chosen):
        factors = [np.sqrt(weight) * one.factor for one, weight in chosen if isinstance(one, FactorProducts)]
        return FactorProducts(np.hstack(factors), r, c, rounding)
    matrix = np.zeros((first.n, first.n))
    for one, weight in chosen:
        matrix += weight * matrix_of(one)
    return Products(matrix, r, c, rounding)


def multiplied_by(products: AnyProducts, ratios: F64) -> Products:
    """Products about the mean, each multiplied by a number of its own, (n, n): those of no samples, which have no mean to be put back."""
    matrix = matrix_of(products)
    return Products(matrix * ratios, np.zeros(len(matrix)), 0.0, products.rounding)


def shares(groups: Iterator[AnyProducts], weights: Sequence[float], coefficients: Matrix) -> F64:
    """The share of each group in the variance of each component, (groups, k): w_g c^H X_g X_g' c, for X_g' c its part of the component.

    Parameters
    ----------
    coefficients : of the components, of norm 1 over all groups, (n, k)
    """
    parts = [
        weight * np.einsum("nk,nk->k", coefficients.conj(), with_mean(one, coefficients)).real
        for one, weight in zip(groups, weights, strict=True)
    ]
    return np.array(parts)


@dataclass(frozen=True, eq=False)
class Pair:
    """Directions of two groups of features that go together, and the scores of rows along them."""

    values: F64
    """Singular values of X_1' X_2, or correlations, descending, (k,)."""
    scores: tuple[F64, F64]
    """(rows, k) of each group."""
    coefficients: tuple[F64, F64]
    """Coefficients of the rows: directions are X_1' c and X_2' c, (rows, k) each."""
    total: float
    """The sum of squares of all singular values, or of all correlations."""
    test: F64
    """That sum for each permutation of the rows of the second group, (permutations,)."""
    first: F64
    """And the largest value, (permutations,); of covariances it is not computed, and empty."""
    overlaps: tuple[F64, F64] | None = None
    """Products of the directions of each group with each other, (k, k); None where they are orthonormal."""


def maximum_covariance(
    first: Matrix, second: Matrix, k: int | UpTo | None, floors: tuple[float, float], orders: NDArray[np.intp]
) -> Pair:
    """Maximum covariance analysis: the singular value decomposition of X_1' X_2, from K_1 and K_2 of centred rows.

    With K_g = U_g diag(lambda_g) U_g', the singular values are those of F_1' F_2, F_g = U_g diag(sqrt(lambda_g)) (Bretherton, Smith and
    Wallace, Journal of Climate 5, 1992; their squares are the eigenvalues of K_1 K_2).

    Parameters
    ----------
    k : how many; all if None
    floors : what eigenvalues of K_1 and K_2 have to exceed
    orders : permutations of rows, (permutations, rows)
    """
    (u_1, l_1), (u_2, l_2) = _eigenpairs(first, floors[0]), _eigenpairs(second, floors[1])
    left, values, right = np.linalg.svd((u_1 * np.sqrt(l_1)).T @ (u_2 * np.sqrt(l_2)), full_matrices=False)
    p, q = _signed(u_1 * np.sqrt(l_1) @ left, left, right.T)
    k = _number(k, len(values))
    scores = (u_1 * np.sqrt(l_1)) @ p[:, :k], (u_2 * np.sqrt(l_2)) @ q[:, :k]
    coefficients = (u_1 / np.sqrt(l_1)) @ p[:, :k], (u_2 / np.sqrt(l_2)) @ q[:, :k]
    test = np.array([_inner(first, second, order) for order in orders])
    return Pair(values[:k], scores, coefficients, float(np.sum(values**2)), test, np.empty(0))


def canonical_correlations(
    first: Matrix, second: Matrix, n_leading: int, k: int | None, floors: tuple[float, float], orders: NDArray[np.intp]
) -> Pair:
    """Canonical correlations of the leading principal components of both groups: svd(U_1' U_2) (Bjorck and Golub, Mathematics of Computation 27, 1973).

    Parameters
    ----------
    n_leading : how many components of each; of more features than rows, all of them would correlate perfectly
    k, floors, orders : as of `maximum_covariance`
    """
    (u_1, l_1), (u_2, l_2) = _eigenpairs(first, floors[0]), _eigenpairs(second, floors[1])
    fewest = min(len(l_1), len(l_2))
    if not 1 <= n_leading <= fewest:
        raise ConfigError(
            f"n_leading is {n_leading}, but 1 to {fewest} is allowed: the smaller of the two groups has {fewest} components",
            "Ask for fewer; far fewer than rows, since correlations of many components are large by chance.",
            key="n_leading",
        )
    u_1, u_2, l_1, l_2 = u_1[:, :n_leading], u_2[:, :n_leading], l_1[:n_leading], l_2[:n_leading]
    left, values, right = np.linalg.svd(u_1.T @ u_2)
    p, q = _signed(u_1 @ left, left, right.T)
    k = _number(k, n_leading)
    permuted = np.array([np.linalg.svd(u_1.T @ u_2[order], compute_uv=False) for order in orders]).reshape(
        -1, n_leading
    )
    values = np.minimum(values, 1.0)
    return Pair(
        values[:k],
        (u_1 @ p[:, :k], u_2 @ q[:, :k]),
        ((u_1 / l_1) @ p[:, :k], (u_2 / l_2) @ q[:, :k]),
        float(np.sum(values**2)),
        np.sum(permuted**2, axis=1),
        permuted[:, 0] if len(permuted) else np.empty(0),
        (p[:, :k].T @ (p[:, :k] / l_1[:, None]), q[:, :k].T @ (q[:, :k] / l_2[:, None])),
    )


def similarity(first: Matrix, second: Matrix, orders: NDArray[np.intp]) -> tuple[float, F64]:
    """The RV coefficient of two groups, <K_1, K_2> / (|K_1| |K_2|) of centred rows, and that of each permutation of the second.

    Robert and Escoufier, Applied Statistics 25, 1976; linear centred kernel alignment (Kornblith and others, ICML 2019) is the same number.
    """
    size = float(np.linalg.norm(first) * np.linalg.norm(second))
    identity = np.arange(len(first))
    return _inner(first, second, identity) / size, np.array([_inner(first, second, order) for order in orders]) / size


def permutations(n: int, count: int, seed: int) -> NDArray[np.intp]:
    """Random orders of n rows, (count, n)."""
    rng = np.random.default_rng(seed)
    return np.array([rng.permutation(n) for _ in range(count)], np.intp).reshape(count, n)


def p_value(found: float, permuted: F64) -> float:
    """The share of orders, the given one among them, with a statistic as large as the one that was found."""
    return float((1 + np.count_nonzero(permuted >= found * (1 - 1e-12))) / (1 + len(permuted)))


def _inner(first: Matrix, second: Matrix, order: NDArray[np.intp]) -> float:
    return float(np.einsum("ij,ij->", first, second[order][:, order]))


def _eigenpairs(matrix: Matrix, floor: float) -> tuple[F64, F64]:
    """Vectors and eigenvalues above a floor, descending."""
    values, vectors = np.linalg.eigh(matrix)
    rank = int((values > floor).sum())
    return vectors[:, ::-1][:, :rank], values[::-1][:rank]


def _signed(scores: F64, left: F64, right: F64) -> tuple[F64, F64]:
    """Both sides with signs such that the entry of largest magnitude in each score vector of the first group is positive."""
    signs = np.sign(scores[np.argmax(np.abs(scores), axis=0), np.arange(scores.shape[1])])
    signs = np.where(signs == 0, 1.0, signs)
    return left * signs, right[:, : len(signs)] * signs


def _number(asked: int | UpTo | None, most: int) -> int:
    if isinstance(asked, UpTo):
        return min(asked.number, most)
    if asked is not None and not 1 <= asked <= most:
        raise ConfigError(
            f"n_components is {asked}, but 1 to {most} is allowed for these groups",
            "Ask for fewer.",
            key="n_components",
        )
    return most if asked is None else asked
