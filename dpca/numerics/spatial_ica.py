"""Independent components of maps, from their fourth moments over features: FastICA with a cubic contrast, and JADE.

Spatial ICA (McKeown et al., Human Brain Mapping 6, 1998): the maps are mixtures of sources that are independent over
features. Both find an orthogonal matrix for whitened maps, and ask for nothing but their fourth moments.
"""

from __future__ import annotations

import numpy as np

from dpca.numerics.fourth_moments import FourthMoments, members
from dpca.numerics.turns import TOLERANCE, Turn, iterated, orthogonal
from dpca.types import F64

THE_SAME = 1e-12
"""A map is the same everywhere where its variance over features is at most this share of its mean square."""
MOST_SWEEPS = 30
"""Most sweeps of Jacobi rotations through all pairs of columns, which converge quadratically."""


def whitening(moments: FourthMoments) -> F64 | None:
    """The symmetric V, (k, k), for which the maps times V, centred over features, have covariance I (divisor: the number of features).

    Orthonormal maps have nearly equal variances over features, whose eigenvectors would be arbitrary: the symmetric matrix is not.

    Returns
    -------
    None where a combination of the maps is the same everywhere
    """
    mean, second = moments.first / moments.n_features, moments.second / moments.n_features
    values, vectors = np.linalg.eigh(second - np.outer(mean, mean))
    if not values[0] > THE_SAME * np.diagonal(second).max():
        return None
    return np.asarray((vectors / np.sqrt(values)) @ vectors.T, np.float64)


def whitened(moments: FourthMoments, turn: F64) -> FourthMoments:
    """Fourth moments, means over features, of the centred maps times V."""
    mean = moments.first / moments.n_features
    found = moments.turned(np.vstack([-mean @ turn, turn]))
    return FourthMoments(found.k, found.pairs / moments.n_features)


def fastica(moments: FourthMoments, *, deflation: bool) -> Turn:
    """The orthogonal matrix by the fixed point w <- E[z (w'z)^3] - 3 w, beginning with the maps as they are.

    Hyvarinen and Oja, Neural Computation 9, 1997; Hyvarinen, IEEE Transactions on Neural Networks 10, 1999, eq. 20 and
    section IV: one after another (deflation), or all at once (parallel, with W <- (W W')^(-1/2) W).

    Parameters
    ----------
    moments : of `whitened` maps

    Returns
    -------
    (k, k): sources are the whitened maps times it
    """
    k = moments.k
    if not deflation:
        return iterated(np.eye(k), lambda found: orthogonal(moments.cubes(found) - 3 * found))
    found, iterations, change = np.zeros((k, k)), 0, 0.0
    for number in range(k):
        before = found[:, :number]

        def step(one: F64, before: F64 = before) -> F64:
            free = moments.cubes(one) - 3 * one
            for _ in range(2):  # twice is enough (Golub and Van Loan, 5.2.8)
                free -= before @ (before.T @ free)
            return free / np.linalg.norm(free)

        # The map that the sources before leave most of.
        begin = np.eye(k) - before @ before.T
        begin = begin[:, [int(np.argmax(np.diagonal(begin)))]]
        begin /= np.linalg.norm(begin)
        one = iterated(begin, step) if number < k - 1 else Turn(begin)  # nothing else is left for the last
        found[:, number : number + 1] = one.matrix
        iterations, change = iterations + one.iterations, max(change, one.change)
    return Turn(found, iterations, change)


def jade(moments: FourthMoments) -> Turn:
    """The orthogonal matrix that makes all cumulant matrices as diagonal as it can (Cardoso and Souloumiac, IEE Proceedings F 140, 1993).

    Cumulant matrices of an orthonormal basis of the symmetric matrices, jointly diagonalized by Jacobi rotations with the
    angle of Cardoso and Souloumiac, SIAM Journal on Matrix Analysis 17, 1996.

    Parameters
    ----------
    moments : of `whitened` maps
    """
    k = moments.k
    firsts, seconds = members(k)
    matrices, eye = moments.matrices(), np.eye(k)
    for number, (c, d) in enumerate(zip(firsts, seconds, strict=True)):
        matrices[:, :, number] -= eye * (c == d) + np.outer(eye[c], eye[d]) + np.outer(eye[d], eye[c])
    matrices *= np.where(firsts == seconds, 1.0, np.sqrt(2.0))
    found, largest, sweeps = np.eye(k), np.inf, 0
    while largest > TOLERANCE and sweeps < MOST_SWEEPS:
        sweeps, largest = sweeps + 1, 0.0
        for p, q in zip(firsts, seconds, strict=True):
            if p == q:
                continue
            difference, both = matrices[p, p] - matrices[q, q], matrices[p, q] + matrices[q, p]
            on = float(difference @ difference - both @ both)
            off = 2 * float(difference @ both)
            angle = 0.5 * np.arctan2(off, on + np.hypot(on, off))
            largest = max(largest, abs(angle))
            if angle:
                for rows in (matrices, matrices.swapaxes(0, 1), found.T):
                    first, second = rows[p], rows[q]
                    rows[p], rows[q] = (
                        np.cos(angle) * first + np.sin(angle) * second,
                        np.cos(angle) * second - np.sin(angle) * first,
                    )
    return Turn(found, sweeps, largest)
