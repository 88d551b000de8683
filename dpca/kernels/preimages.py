"""Pre-images: samples whose images are close to a given point of feature space, as combinations of training samples.

Each point has a row of weights, (m, n) in all, in memory; `dpca.methods.training` streams the training data to combine them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dpca.kernels.inner import Inner
from dpca.kernels.kernel import Kernel
from dpca.kernels.kinds.rbf import Rbf
from dpca.types import F64

ITERATIONS, CONVERGED = 500, 1e-9
SAME = 1e-6
"""A kernel that varies by less than this between any two scores counts as constant."""


def weights_of(
    kernel: Kernel,
    how: bool | str,
    points: F64,
    fitted: F64,
    alpha: F64,
    ridge: float,
    gram: F64 | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> tuple[F64, F64]:
    """Weights of the training samples in the pre-images: A X_c + b m', with m the mean.

    Parameters
    ----------
    how : True for ridge regression, "fixed_point" for the iteration, False for the exact one of the linear kernel
    points, fitted : scores of the points, (m, k), and of the fit, (n, k)
    alpha : of the fit, (n, k)
    ridge : of the regression
    gram : X_c X_c', (n, n), for "fixed_point"
    say : called with a message if points did not converge

    Returns
    -------
    A, b : (m, n) and (m,)
    """
    ones = np.ones(len(points))
    if not how:
        return linear_weights(points, alpha), ones
    if how == "fixed_point":
        assert gram is not None
        assert isinstance(kernel, Rbf)  # a config asks for it of no other
        return fixed_point_weights(kernel, points, fitted, alpha, gram, say), ones
    weights = ridge_weights(kernel, points, fitted, ridge)
    # A (X_c + 1 m') where the kernel used uncentred samples; else the mean is added with weight 1.
    return weights, ones if kernel.about_mean else weights.sum(axis=1)


def held_to_find(how: bool | str, m: int, n: int, k: int) -> int:
    """Bytes that the computation of the weights of m points holds, with n training samples."""
    scores = 2 * 8 * n * k
    if how == "fixed_point":
        return scores + 8 * n * n + 7 * 8 * m * n
    return scores + (3 * 8 * n * n + 4 * 8 * m * n if how else 2 * 8 * m * n)


def ridge_weights(kernel: Kernel, points: F64, fitted: F64, alpha: float) -> F64:
    """A = k(Z_new, Z) (k(Z, Z) + alpha I)^-1: the kernel ridge regression of samples on scores.

    Bakir, Weston and Scholkopf, Learning to find pre-images, NIPS 16, 2004; with the same kernel between scores, as
    in scikit-learn.

    Parameters
    ----------
    points, fitted : scores of the points, (m, k), and of the fit, (n, k)
    alpha : the ridge

    Returns
    -------
    (m, n)
    """
    regularized, _ = kernel.matrix(Inner.of_points(fitted, fitted))
    regularized[np.diag_indices(len(regularized))] += alpha
    between, _ = kernel.matrix(Inner.of_points(points, fitted))
    return np.asarray(np.linalg.solve(regularized, between.T).T, np.float64)


def is_flat(kernel: Kernel, fitted: F64) -> bool:
    """Whether a kernel is nearly constant on the scores, so that a regression with it gives the mean for every point.

    It is, if gamma suits samples at large distances: scores of rbf are at most 1, distances of samples may be millions.
    """
    if not isinstance(kernel, Rbf):
        return False
    return bool(kernel.gamma * Inner.of_points(fitted, fitted).squared_distances().max(initial=0.0) < SAME)


def linear_weights(points: F64, alpha: F64) -> F64:
    """A = Z_new alpha', (m, n): centred samples from scores of the linear kernel, as in PCA."""
    return np.asarray(points @ alpha.T, np.float64)


def fixed_point_weights(
    kernel: Rbf, points: F64, fitted: F64, alpha: F64, gram: F64, say: Callable[[str], None] = lambda _: None
) -> F64:
    """The sample whose image is nearest to a point, for rbf: x = sum_i a_i k(x, x_i) x_i / sum_i a_i k(x, x_i), iterated.

    Mika, Scholkopf, Smola, Mueller, Scholz and Ratsch, Kernel PCA and de-noising in feature spaces, NIPS 11, 1999, eq. 10;
    a_i are the point's weights in feature space, including those of the mean. Every iterate is a combination of the training
    samples, so the Gram matrix gives its distances, and no data are read. The iteration starts at sum_i a_i x_i, its limit
    for a small gamma; where the weights cancel, it continues at the training sample with the nearest scores.

    Parameters
    ----------
    points, fitted : scores of the points, (m, k), and of the fit, (n, k)
    alpha : of the fit, (n, k)
    gram : X_c X_c', (n, n)
    say : called with a message if points did not converge

    Returns
    -------
    (m, n); each row sums to 1
    """
    n, squares = len(gram), np.diagonal(gram)
    images = points @ alpha.T
    images += (1 - images.sum(axis=1))[:, None] / n
    nearest = Inner.of_points(points, fitted).squared_distances().argmin(axis=1)
    weights, moved = images.copy(), np.ones(len(points), bool)
    for _ in range(ITERATIONS):
        if not moved.any():
            break
        products = weights[moved] @ gram
        distances = np.einsum("ij,ij->i", products, weights[moved])[:, None] + squares - 2 * products
        # Minus the smallest distance, so that they do not all underflow: this factor cancels.
        distances -= distances.min(axis=1)[:, None]
        updated = images[moved] * np.exp(-kernel.gamma * np.maximum(distances, 0.0))
        total = updated.sum(axis=1)
        cancels = total <= CONVERGED * np.abs(updated).sum(axis=1)
        updated /= np.where(cancels, 1.0, total)[:, None]
        if cancels.any():
            updated[cancels] = 0.0
            updated[cancels, nearest[moved][cancels]] = 1.0
        change = np.abs(updated - weights[moved]).max(axis=1)
        weights[moved] = updated
        moved[moved] = change > CONVERGED * np.abs(updated).max(axis=1)
    if moved.any():
        say(f"{int(moved.sum())} of {len(points)} pre-images still moved after {ITERATIONS} iterations")
    return weights
