"""Singular values to more digits than float64 has, to hold claims of 15 digits against.

In numpy.longdouble, which has 64 bits of mantissa on x86: U from LAPACK's SVD in float64 is made orthogonal to those
bits, and the rows of U'X, which are orthogonal but for rounding of float64, are made orthogonal by Jacobi's rotations.
They keep the relative accuracy of small singular values (Demmel and Veselic, SIAM J. Matrix Anal. Appl. 13, 1992).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Long = np.longdouble
SWEEPS = 12


def centred(x: NDArray[Any], *, center: bool = True, scale: str = "none", missing: str = "error") -> NDArray[Any]:
    """X_c of samples by features, in longdouble; `missing` as of PCA."""
    assert missing == "mean" or not np.isnan(np.asarray(x, np.float64)).any()
    x = x.reshape(len(x), -1).astype(Long)
    present = np.isfinite(x)
    number = np.maximum(present.sum(0), 1)
    mean = np.where(present, x, 0).sum(0) / number
    values = np.where(present, x - mean, 0)
    values = np.where(present, values - values.sum(0) / number, 0)
    divisor = np.ones(1, Long)
    if scale == "std":
        variance = (values**2).sum(0) / np.maximum(number - 1, 1)
        constant = variance <= (4 * np.finfo(np.float64).eps * np.abs(mean)) ** 2
        divisor = np.sqrt(np.where(constant, 1, variance))
        values = np.where(constant, 0, values / divisor)
    return values if center else values + mean / divisor


def singular_values(x: NDArray[Any]) -> NDArray[Any]:
    """All of them, descending, in longdouble; x is as of `centred`."""
    if x.shape[0] > x.shape[1]:
        x = x.T
    scale = float(np.abs(x).max()) or 1.0
    x = x / Long(scale)
    left = _orthogonal(np.linalg.svd(np.asarray(x, np.float64), full_matrices=False)[0])
    rows = left.T @ x
    # What is left of dimensions that the data do not have is not worth diagonalizing.
    sizes = np.sqrt((rows**2).sum(1))
    rows = np.where((sizes > 1e-17 * sizes.max())[:, None], rows, 0)
    return np.sqrt(np.maximum(np.sort(_diagonalized(rows @ rows.T))[::-1], 0)) * Long(scale)


def kernel_values(x: NDArray[Any], gamma: float) -> NDArray[Any]:
    """Square roots of the eigenvalues of the centred kernel exp(-gamma |x_i - x_j|^2), descending, in longdouble."""
    gram = x @ x.T
    squares = np.diagonal(gram)
    kernel = np.exp(-Long(gamma) * np.maximum(squares[:, None] + squares - 2 * gram, 0))
    kernel = kernel - kernel.mean(0)
    return centred_values(kernel - kernel.mean(1)[:, None])


def centred_values(kernel: NDArray[Any]) -> NDArray[Any]:
    """Square roots of the eigenvalues of a symmetric matrix in longdouble, descending, 0 for those below 0."""
    vectors = _orthogonal(np.linalg.eigh(np.asarray(kernel, np.float64))[1])
    return np.sqrt(np.maximum(np.sort(_diagonalized(vectors.T @ kernel @ vectors))[::-1], 0))


def _orthogonal(vectors: NDArray[Any]) -> NDArray[Any]:
    """Orthogonal to the digits of longdouble: the error is squared each time (Newton and Schulz)."""
    vectors = vectors.astype(Long)
    for _ in range(2):
        vectors = vectors @ (3 * np.eye(vectors.shape[1], dtype=Long) - vectors.T @ vectors) / 2
    return vectors


def _diagonalized(matrix: NDArray[Any]) -> NDArray[Any]:
    """Eigenvalues of a symmetric matrix that is nearly diagonal relative to its diagonal: Jacobi, n / 2 pairs at a time."""
    n = len(matrix)
    order = np.arange(n + n % 2)
    for _ in range(SWEEPS):
        rotated = False
        for _ in range(len(order) - 1):
            first, second = order[: len(order) // 2], order[len(order) // 2 :][::-1]
            kept = (first < n) & (second < n)
            rotated |= _rotate(matrix, first[kept], second[kept])
            order = np.concatenate([order[:1], order[-1:], order[1:-1]])
        if not rotated:
            break
    return np.diagonal(matrix).copy()


def _rotate(matrix: NDArray[Any], p: NDArray[Any], q: NDArray[Any]) -> bool:
    """Make the entries (p, q) zero, in place; returns whether any was not."""
    between, first, second = matrix[p, q], matrix[p, p], matrix[q, q]
    needed = np.abs(between) > np.finfo(Long).eps * np.sqrt(np.abs(first * second))
    if not needed.any():
        return False
    p, q, between, first, second = p[needed], q[needed], between[needed], first[needed], second[needed]
    theta = (second - first) / (2 * between)
    t = np.where(theta >= 0, 1, -1) / (np.abs(theta) + np.sqrt(1 + theta**2))
    c = 1 / np.sqrt(1 + t**2)
    s = c * t
    rows_p, rows_q = matrix[p], matrix[q]
    matrix[p], matrix[q] = c[:, None] * rows_p - s[:, None] * rows_q, s[:, None] * rows_p + c[:, None] * rows_q
    columns_p, columns_q = matrix[:, p], matrix[:, q]
    matrix[:, p], matrix[:, q] = c * columns_p - s * columns_q, s * columns_p + c * columns_q
    return True
