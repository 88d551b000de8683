"""Principal components of what operators leave of the samples: A K A^H = U diag(lambda) U^H."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpca.derived.gram import AnyProducts, Transformed
from dpca.derived.operators import EPS, Matrix
from dpca.errors import ConfigError, DataError
from dpca.numerics.sketch import RELIABLE
from dpca.numerics.spectrum import reciprocal
from dpca.settings import MODEL, Setting
from dpca.types import F64


@dataclass(frozen=True)
class UpTo:
    """A number of components that fewer may do for: as many as can be told from 0, and no more than this."""

    number: int


@dataclass(frozen=True, eq=False)
class Components:
    """Scores, and what makes the components W of the samples: X_c' C where the operators remove the mean, else X' C.

    The rows are A X = scores W^H, where all components are taken.
    """

    eigenvalues: F64
    """lambda of A K A^H, descending, (k,)."""
    total: float
    """tr(A K A^H)."""
    rank: int
    """Number of eigenvalues that can be told from 0."""
    scores: Matrix
    """U diag(sqrt(lambda)), (rows, k); the entry of largest magnitude in each column is real and positive."""
    coefficients: Matrix
    """C = A^H U diag(1 / sqrt(lambda)), of the original samples, (n, k)."""
    error: F64
    """Estimated relative error of each eigenvalue, (k,)."""
    amplification: float
    """See `dpca.derived.gram`: how much of the samples the operators remove."""

    @property
    def reliable(self) -> NDArray[np.bool_]:
        """Whether an eigenvalue has two digits or more, (k,)."""
        return self.error <= RELIABLE

    @property
    def explained_variance_ratio(self) -> F64:
        """lambda / tr(A K A^H), (k,)."""
        return self.eigenvalues / self.total

    def explained_variance(self, ddof: int = 1, divisor: float | None = None) -> F64:
        """lambda / divisor, (k,); of rows - ddof, unless one is given, as weighted samples need it."""
        return self.eigenvalues / (len(self.scores) - ddof if divisor is None else divisor)


def pca(samples: Transformed, n_components: int | UpTo | None = None) -> Components:
    """Principal components of A X (the method of snapshots: Sirovich, Quart. Appl. Math. 45, 1987).

    Parameters
    ----------
    samples : A X, `dpca.derived.gram.transformed`
    n_components : None for all; `UpTo` where fewer will do
    """
    eigenvalues, vectors, rank = leading(samples, samples.products, n_components)
    scales = np.sqrt(eigenvalues)
    weights = vectors * reciprocal(scales)
    coefficients = samples.chain.adjoint(weights)
    return Components(
        eigenvalues,
        samples.products.total,
        rank,
        vectors * scales,
        coefficients,
        samples.errors(weights, coefficients, eigenvalues),
        samples.amplification,
    )


def leading(
    samples: Transformed,
    products: AnyProducts,
    n_components: int | UpTo | None,
    exposed: float | None = None,
    key: str = "n_components",
) -> tuple[F64, Matrix, int]:
    """The largest eigenvalues of products of rows, their vectors, (rows, k), with the sign rule, and the rank.

    Parameters
    ----------
    products : of rows that are made of `samples`
    n_components : None for all
    exposed : trace of the products if samples were orthogonal; that of `samples` if None
    key : what the number is called, for the error
    """

    def choose(eigenvalues: F64) -> int:
        return _checked(n_components, samples.rank(eigenvalues, exposed), key)

    eigenvalues, vectors = products.eigenpairs(choose)
    return eigenvalues[: vectors.shape[1]], signed(vectors), samples.rank(eigenvalues, exposed)


def signed(vectors: Matrix) -> Matrix:
    """Vectors whose entries of largest magnitude are real and positive, (n, k): the sign of a real one, the phase of a complex one."""
    return np.asarray(vectors * phases_of(vectors))


def phases_of(vectors: Matrix) -> Matrix:
    """Factors that make the entry of largest magnitude of each vector real and positive, (k,)."""
    largest = vectors[np.abs(vectors).argmax(axis=0), np.arange(vectors.shape[1])]
    return np.asarray(largest.conj() / np.abs(largest))


def _checked(number: int | UpTo | None, rank: int, key: str) -> int:
    """How many components: all, or as many as are requested."""
    if not rank:
        raise DataError(
            "nothing that the operators leave of the samples can be told from rounding",
            f"Leave one of them out, or run with {MODEL.precision.at('double')}, if products are in single precision.",
        )
    if isinstance(number, UpTo):
        return min(number.number, rank)
    if number is not None and not 1 <= number <= rank:
        raise ConfigError(
            f"{Setting(key)} is {number}, but 1 to {rank} is allowed: only {rank} eigenvalues can be told from 0 after the operators",
            f"Ask for fewer, leave operators out, or run with {MODEL.precision.at('double')}, if products are in single precision.",
            key=key,
        )
    return rank if number is None else number


def project(products: AnyProducts, coefficients: Matrix, cross: Matrix, origin: F64) -> Matrix:
    """Scores of samples that took no part: those that a selection left out (rows of K), or new ones (one pass over both data).

    (x_i - sum_j o_j x_j) . w_k = (K_i - o'K) C, with o the weights of the samples whose mean is subtracted: equal weights of the
    selected ones for `Center`, of the same month for `Anomalies`.

    Parameters
    ----------
    products : of the n samples, before operators
    coefficients : C, (n, k), of operators that remove the mean
    cross : products of the m samples, less the mean of the n, with the n: rows of K, (m, n)
    origin : o, (n,), or one row for each of the m samples, (m, n); sums to 1

    Returns
    -------
    (m, k)
    """
    kept = np.abs(coefficients.sum(axis=0)) > len(coefficients) ** 0.5 * 1e3 * EPS * np.linalg.norm(
        coefficients, axis=0
    )
    if kept.any():
        raise ConfigError(
            "samples are projected on components of operators that keep the mean, but only components about a mean are allowed",
            "Center the samples behind the other operators.",
        )
    if cross.shape[1:] != (products.n,) or origin.shape[-1:] != (products.n,):
        raise ConfigError(
            f"cross products have shape {cross.shape} and weights {origin.shape}, for {products.n} samples"
        )
    if not np.allclose(origin.sum(axis=-1), 1.0):
        raise ConfigError(f"the weights of the mean sum to {origin.sum(axis=-1).flat[0]:g}, but 1 is allowed")
    return np.asarray(cross @ coefficients - origin @ products.cross(coefficients))
