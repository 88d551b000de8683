"""Pre-images: samples whose images come close to a point of feature space, as combinations of the training samples.

A row of weights for each point, (m, n), in memory; `dpca.methods.training` streams the training data by to combine them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dpca.kernels.kernel import Inner, Kernel
from dpca.numerics.accumulators.factors import F64

ITERATIONS, CONVERGED = 500, 1e-9
SAME = 1e-6
"""A kernel that varies by less between any two scores is the same for all."""


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
    """Which combinations of the training samples pre-images are: A X_c + b m', with m the mean.

    Parameters
    ----------
    how : True for ridge regression, "fixed_point" for that, False for the linear kernel's own
    points, fitted : scores, (m, k) and those of the fit, (n, k)
    alpha : of the fit, (n, k)
    ridge : of the regression
    gram : X_c X_c', (n, n), for the fixed point
    say : told what did not converge

    Returns
    -------
    A, b : (m, n) and (m,)
    """
    ones = np.ones(len(points))
    if not how:
        return linear_weights(points, alpha), ones
    if how == "fixed_point":
        assert gram is not None
        return fixed_point_weights(kernel, points, fitted, alpha, gram, say), ones
    weights = ridge_weights(kernel, points, fitted, ridge)
    # A (X_c + 1 m') where the kernel saw the means; else they are not the regression's to find.
    return weights, ones if kernel.about_mean else weights.sum(axis=1)


def held_to_find(how: bool | str, m: int, n: int, k: int) -> int:
    """Bytes of what the weights of m points take to find, with n training samples."""
    scores = 2 * 8 * n * k
    if how == "fixed_point":
        return scores + 8 * n * n + 7 * 8 * m * n
    return scores + (3 * 8 * n * n + 4 * 8 * m * n if how else 2 * 8 * m * n)


def ridge_weights(kernel: Kernel, points: F64, fitted: F64, alpha: float) -> F64:
    """A = k(Z_new, Z) (k(Z, Z) + alpha I)^-1: the kernel ridge regression of samples on scores.

    Bakir, Weston and Scholkopf, Learning to find pre-images, NIPS 16, 2004; with the kernel itself between scores, as
    scikit-learn has it.

    Parameters
    ----------
    points, fitted : scores, (m, k) and those of the fit, (n, k)
    alpha : the ridge

    Returns
    -------
    (m, n)
    """
    ridge, _ = kernel.matrix(Inner.of_points(fitted, fitted))
    ridge[np.diag_indices(len(ridge))] += alpha
    beside, _ = kernel.matrix(Inner.of_points(points, fitted))
    return np.asarray(np.linalg.solve(ridge, beside.T).T, np.float64)


def is_flat(kernel: Kernel, fitted: F64) -> bool:
    """Whether a kernel is the same between any two scores, so that a regression by it gives the mean for all.

    At a gamma that suits wide samples it is: scores of rbf are at most 1, distances of samples may be millions.
    """
    if kernel.name != "rbf":
        return False
    return bool(kernel.gamma * Inner.of_points(fitted, fitted).squared_distances().max(initial=0.0) < SAME)


def linear_weights(points: F64, alpha: F64) -> F64:
    """A = Z_new alpha': about the mean, the linear kernel's samples of scores, as PCA has them, (m, n)."""
    return np.asarray(points @ alpha.T, np.float64)


def fixed_point_weights(
    kernel: Kernel, points: F64, fitted: F64, alpha: F64, gram: F64, say: Callable[[str], None] = lambda _: None
) -> F64:
    """The sample whose image is nearest to a point, for rbf: x = sum_i a_i k(x, x_i) x_i / sum_i a_i k(x, x_i), iterated.

    Mika, Scholkopf, Smola, Mueller, Scholz and Ratsch, Kernel PCA and de-noising in feature spaces, NIPS 11, 1999, eq. 10;
    a_i are the point's weights in feature space, the mean's included. Every x on the way is a combination of the training
    samples, so that the Gram matrix alone gives its distances, and no data are read. It begins at sum_i a_i x_i, which it
    is for a small gamma; where the weights cancel, at the training sample with the nearest scores.

    Parameters
    ----------
    kernel : rbf
    points, fitted : scores, (m, k) and those of the fit, (n, k)
    alpha : (n, k), of the fit
    gram : X_c X_c', (n, n)
    say : told how many points did not converge

    Returns
    -------
    (m, n), rows of which sum to 1
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
        # Less the least distance, so that not all of them underflow: the factor cancels.
        distances -= distances.min(axis=1)[:, None]
        found = images[moved] * np.exp(-kernel.gamma * np.maximum(distances, 0.0))
        total = found.sum(axis=1)
        cancels = total <= CONVERGED * np.abs(found).sum(axis=1)
        found /= np.where(cancels, 1.0, total)[:, None]
        if cancels.any():
            found[cancels] = 0.0
            found[cancels, nearest[moved][cancels]] = 1.0
        change = np.abs(found - weights[moved]).max(axis=1)
        weights[moved] = found
        moved[moved] = change > CONVERGED * np.abs(found).max(axis=1)
    if moved.any():
        say(f"{int(moved.sum())} of {len(points)} pre-images still moved after {ITERATIONS} iterations")
    return weights
