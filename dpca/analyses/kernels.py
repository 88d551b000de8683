"""Distances of rows, and kernel PCA of them, from products that operators leave: no data."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dpca.analyses.answers import COMPONENT, Answer, Array, row_axis
from dpca.analyses.samples import Samples
from dpca.derived.gram import matrix_of, with_mean
from dpca.derived.operators import F64, blocks
from dpca.errors import ConfigError
from dpca.kernels import cases
from dpca.kernels.kernel import USES, Inner, Kernels
from dpca.numerics.sketch import RELIABLE

NEARLY = 1e-3
"""How far a norm of products in single precision may be off."""
NAMES = tuple(name for name in USES if name != "precomputed")


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


def kernel_pca(
    rows: Samples,
    kernel: str,
    n_features: int,
    gamma: float | Literal["median"] | None = None,
    degree: float = 3.0,
    coef0: float = 1.0,
    n_components: int | None = None,
) -> Answer:
    """Kernel PCA of the rows (`dpca.kernels`), without maps, since its components lie in no space of features; eigenvalues that are negative beyond rounding are left out, and told.

    Parameters
    ----------
    kernel : linear, poly, rbf, sigmoid or cosine
    n_features : d, for gamma
    gamma : of rbf, poly and sigmoid; None for 1 / d, "median" for 1 / (median of squared distances)
    n_components : None for all that can be told from 0
    """
    if kernel not in NAMES:
        raise ConfigError(f"kernel is {kernel!r}, but {', '.join(NAMES)} is allowed", "Choose one.", key="kernel")
    if not (gamma is None or gamma == "median" or (isinstance(gamma, int | float) and 0 <= gamma < np.inf)):
        raise ConfigError(f"gamma is {gamma!r}, but a number from 0, 'median' or None is allowed", key="gamma")
    if n_components is not None and not 1 <= n_components < rows.n:
        raise ConfigError(
            f"n_components is {n_components}, but 1 to {rows.n - 1} is allowed for {rows.n} rows", key="n_components"
        )
    inner, axis = inner_of(rows), row_axis(rows.axis)
    asked = Kernels((kernel,), (gamma,), (float(degree),), (float(coef0),))
    (one,) = asked.cases(n_features, inner)
    matrix, noise = one.matrix(inner, rows.products.rounding)
    request = cases.Request(n_components, 1, remove_zero_eig=False, indefinite="truncate", of_samples=not rows.of_pairs)
    found = cases.solve(one, matrix, noise, request, rows.n - 1, lambda finish: finish())
    spectrum = found.spectrum
    per_component = {
        "eigenvalues": spectrum.eigenvalues[: spectrum.n_components],
        "explained_variance": spectrum.explained_variance,
        "explained_variance_ratio": spectrum.explained_variance_ratio,
        "digits": np.floor(10 * spectrum.digits) / 10,
    }
    arrays = {
        "scores": Array(spectrum.scaled, (axis.name, COMPONENT)),
        **{name: Array(values, (COMPONENT,)) for name, values in per_component.items()},
    }
    coordinates = {} if axis.values is None else {axis.name: axis}
    return Answer("kernel_pca", arrays, coordinates, None, _certificate(rows, found))


def _certificate(rows: Samples, found: cases.Case) -> dict[str, Any]:
    """As of other analyses (`dpca.analyses.answers`), with the kernel, its parameters, and what is to be said of it."""
    known, spectrum = rows.known, found.spectrum
    reliable, amplification = spectrum.reliable, rows.centred.transformed.amplification
    good, total = int(reliable.sum()), spectrum.n_components
    sentences = list(found.notes)
    if good < total:
        sentences.append(
            f"{total - good} of {total} components of kernel {found.kernel} have less than two digits, since its values have the errors "
            f"of {known.solver} in {known.precision} precision; {known.remedy}"
        )
    return {
        "kind": "kernel_pca",
        "kernel": found.kernel.name,
        **found.kernel.parameters,
        "samples": list(rows.told),
        "rows": rows.n,
        "solver": known.solver,
        "precision": known.precision,
        "amplification": amplification,
        "rank": spectrum.rank,
        "digits": (np.floor(10 * spectrum.digits) / 10).tolist(),
        "reliable": reliable.tolist(),
        "reliable_components": good,
        "components": total,
        "negative_eigenvalues": found.n_negative,
        "caveat": "; ".join(sentences),
        "maps": None,
        "verdict": f"{good} of {total} components of kernel {found.kernel} reliable ({known.solver}, {known.precision}), amplification "
        f"{amplification:,.3g}",
    }


def nearest_known(error: float) -> float:
    """The distance below which its square has less than two digits."""
    return float(np.sqrt(error / RELIABLE))
