"""Linear operators along the samples: which of them, less what, weighted how. They act on any matrix with a row a sample.

None is formed densely: an operator is a sparse matrix, or what a projector on a few directions leaves (`Remainder`).

Rounding. An operator acts in the precision of what it is given, with weights that it knows to `EXTENDED` precision. A chain gives its operators
`EXTENDED` precision and rounds only what is left in the end, since steps cancel (what is left of a mean, a season, a trend), and recursive
filters amplify what they round. That costs less than the eigensolve that follows. `Chain.rounding` measures what is lost all the same.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpca.errors import ConfigError, DataError
from dpca.types import F64

Matrix = NDArray[Any]
"""float64 or complex128; rows are samples."""
EPS = float(np.finfo(np.float64).eps)
EXTENDED = np.longdouble
"""Where operators act: 64 bits of mantissa on x86, 113 on ARM under Linux, and those of float64 elsewhere."""
LOWER = np.float64 if np.finfo(EXTENDED).eps < EPS else np.float32
"""Where they act for comparison."""
BLOCK = 256
"""Columns or rows that are transformed together, so that intermediate arrays stay small."""


class Operator(ABC):
    """A: n_in samples to n_out rows."""

    @property
    @abstractmethod
    def n_in(self) -> int:
        """Number of samples that it takes."""

    @property
    def n_out(self) -> int:
        """Number of rows that it gives."""
        return self.n_in

    @property
    @abstractmethod
    def gain(self) -> float | None:
        """g in A 1 = g 1: 0 where the mean is removed, 1 where it is kept; None where A 1 is not constant."""

    @property
    def removes_mean(self) -> bool:
        """Whether A 1 = 0, by construction."""
        return self.gain == 0.0

    @abstractmethod
    def apply(self, matrix: Matrix) -> Matrix:
        """A M, for M of shape (n_in, columns)."""

    @abstractmethod
    def adjoint(self, matrix: Matrix) -> Matrix:
        """A^H M, for M of shape (n_out, columns)."""

    def rows(self, samples: NDArray[Any]) -> NDArray[Any]:
        """Name of each row, (n_out,), from that of each sample, (n_in,): numbers, dates, or any coordinate."""
        return samples


@dataclass(frozen=True, eq=False)
class Chain(Operator):
    """Operators that are applied one after another; without any, the identity."""

    n: int
    operators: tuple[Operator, ...] = ()

    def __post_init__(self) -> None:
        n = self.n
        for number, operator in enumerate(self.operators, 1):
            if operator.n_in != n:
                raise ConfigError(
                    f"operator {number}, {type(operator).__name__}, is made for {operator.n_in} samples, but gets {n}",
                    "Make it from the labels, times or covariates of the rows that the one before it leaves.",
                )
            n = operator.n_out

    @property
    def n_in(self) -> int:
        return self.n

    @property
    def n_out(self) -> int:
        return self.operators[-1].n_out if self.operators else self.n

    @property
    def gain(self) -> float | None:
        gain = 1.0
        for operator in self.operators:
            if operator.gain is None:
                return None
            gain *= operator.gain
            if not gain:
                break
        return gain

    def then(self, *operators: Operator) -> Chain:
        """This chain with more operators behind it."""
        return Chain(self.n, self.operators + operators)

    def apply(self, matrix: Matrix) -> Matrix:
        return _in_blocks(self.through, matrix) if self.operators else matrix

    def adjoint(self, matrix: Matrix) -> Matrix:
        return _in_blocks(self._adjoint, matrix) if self.operators else matrix

    def rounding(self, matrix: Matrix) -> Matrix:
        """About what rounding adds to A M, (n_out, columns): what it adds in a lower precision, which is that much larger, for so much less."""
        given = _in(matrix, LOWER)
        found = self.through(given) - self.through(_in(given, EXTENDED))
        return _in(found * (np.finfo(EXTENDED).eps / np.finfo(LOWER).eps), np.float64)

    def through(self, matrix: Matrix) -> Matrix:
        """A M, in the precision of M."""
        return reduce(lambda found, operator: operator.apply(found), self.operators, matrix)

    def _adjoint(self, matrix: Matrix) -> Matrix:
        return reduce(lambda found, operator: operator.adjoint(found), reversed(self.operators), matrix)

    def rows(self, samples: NDArray[Any]) -> NDArray[Any]:
        return reduce(lambda found, operator: operator.rows(found), self.operators, samples)


class SparseOperator(Operator):
    """A real operator with few nonzero weights a row."""

    @property
    @abstractmethod
    def matrix(self) -> Any:
        """A, sparse, (n_out, n_in)."""

    @property
    def n_in(self) -> int:
        return int(self.matrix.shape[1])

    @property
    def n_out(self) -> int:
        return int(self.matrix.shape[0])

    def apply(self, matrix: Matrix) -> Matrix:
        return np.asarray(like(self.matrix, matrix) @ matrix)

    def adjoint(self, matrix: Matrix) -> Matrix:
        return np.asarray(like(self.matrix, matrix).T @ matrix)


class Remainder(Operator):
    """I - Q Q' with orthonormal columns Q: what is left of the samples beside a fit to them. Symmetric."""

    @property
    @abstractmethod
    def basis(self) -> Any:
        """Q in extended precision, (n, q), dense or sparse."""

    @property
    def n_in(self) -> int:
        return int(self.basis.shape[0])

    @property
    def gain(self) -> float | None:
        return 0.0

    def apply(self, matrix: Matrix) -> Matrix:
        basis = like(self.basis, matrix)
        return np.asarray(matrix - basis @ (basis.T @ matrix))

    def adjoint(self, matrix: Matrix) -> Matrix:
        return self.apply(matrix)


@dataclass(frozen=True, eq=False)
class SelectRows(SparseOperator):
    """Some of the samples, in any order, also more than once (a draw of the bootstrap)."""

    indices: NDArray[np.intp]
    """Numbers of the rows, (n_out,), from 0 to n - 1."""
    n: int

    def __post_init__(self) -> None:
        indices = np.asarray(self.indices)
        if indices.ndim != 1 or not indices.size or indices.dtype.kind not in "iu":
            raise ConfigError(
                f"a selection of samples of shape {indices.shape} and type {indices.dtype} is not a list of numbers",
                "Select at least one sample.",
            )
        if indices.min() < 0 or indices.max() >= self.n:
            raise ConfigError(
                f"samples {indices.min()} to {indices.max()} are selected, but there are samples 0 to {self.n - 1}",
                "Select samples that exist.",
            )

    @property
    def n_in(self) -> int:
        return self.n

    @property
    def n_out(self) -> int:
        return len(self.indices)

    @property
    def gain(self) -> float | None:
        return 1.0

    @property
    def picks(self) -> slice | NDArray[np.intp]:
        """The indices; a slice where they follow each other, with which nothing is copied."""
        first, m = int(self.indices[0]), self.n_out
        together = int(self.indices[-1]) == first + m - 1 and bool((np.diff(self.indices) == 1).all())
        return slice(first, first + m) if together else self.indices

    @cached_property
    def matrix(self) -> Any:
        """One 1 a row, (n_out, n)."""
        from scipy import sparse

        m = self.n_out
        return sparse.csr_array((np.ones(m), self.indices, np.arange(m + 1)), shape=(m, self.n))

    def apply(self, matrix: Matrix) -> Matrix:
        return matrix[self.indices]

    def rows(self, samples: NDArray[Any]) -> NDArray[Any]:
        return np.asarray(samples[self.indices])


@dataclass(frozen=True, eq=False)
class Difference(SparseOperator):
    """x_{t + lag} - x_t; a row is named after the later sample."""

    n: int
    lag: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.lag < self.n:
            raise ConfigError(f"lag is {self.lag}, but 1 to {self.n - 1} is allowed for {self.n} samples", key="lag")

    @property
    def gain(self) -> float | None:
        return 0.0

    @cached_property
    def matrix(self) -> Any:
        """-1 and 1 in each row, (n - lag, n)."""
        from scipy import sparse

        return sparse.diags_array([-1.0, 1.0], offsets=[0, self.lag], shape=(self.n - self.lag, self.n)).tocsr()

    def rows(self, samples: NDArray[Any]) -> NDArray[Any]:
        return samples[self.lag :]


@dataclass(frozen=True, eq=False)
class Center(Remainder):
    """Less the mean of all samples: I - 11'/n."""

    n: int

    def __post_init__(self) -> None:
        if self.n < 2:
            raise ConfigError(
                f"{self.n} samples are left, and nothing of them without their mean", "Select more samples."
            )

    @cached_property
    def basis(self) -> Any:
        """1 / sqrt(n), (n, 1)."""
        return np.full((self.n, 1), 1 / np.sqrt(EXTENDED(self.n)))


@dataclass(frozen=True, eq=False)
class Weights(Operator):
    """D^(1/2) (I - 1 w' / sum(w)) with D = diag(w): samples about their weighted mean, each times the root of its weight."""

    weights: F64
    """w, (n,), 0 or more."""

    def __post_init__(self) -> None:
        weights = finite(self.weights, "weights of samples")
        if weights.ndim != 1 or (weights < 0).any() or np.count_nonzero(weights) < 2:
            raise ConfigError(
                f"weights of samples have shape {weights.shape}, a smallest value of {weights.min(initial=0.0):g}, and "
                f"{np.count_nonzero(weights)} that are not 0, but one a sample, 0 or more, is allowed, and two have to be positive",
                "Give each sample a weight.",
            )

    @property
    def n_in(self) -> int:
        return len(self.weights)

    @property
    def gain(self) -> float | None:
        return 0.0

    @cached_property
    def roots(self) -> Matrix:
        """sqrt(w) as a column in extended precision, (n, 1)."""
        return np.sqrt(np.asarray(self.weights, EXTENDED))[:, None]

    @cached_property
    def shares(self) -> Matrix:
        """w / sum(w) as a column, (n, 1)."""
        return np.asarray(np.square(self.roots) / np.square(self.roots).sum())

    def apply(self, matrix: Matrix) -> Matrix:
        return np.asarray(like(self.roots, matrix) * (matrix - like(self.shares, matrix).T @ matrix))

    def adjoint(self, matrix: Matrix) -> Matrix:
        rooted = like(self.roots, matrix) * matrix
        return np.asarray(rooted - like(self.shares, matrix) * rooted.sum(axis=0))


def like(weights: Any, matrix: Matrix) -> Any:
    """Weights, dense or sparse, in the precision of what they are multiplied with."""
    return weights.astype(matrix.real.dtype if matrix.dtype.kind in "fc" else np.float64)


def _in(matrix: Matrix, precision: type[np.floating[Any]]) -> Matrix:
    """A matrix in a precision, real or complex as it is."""
    return matrix.astype(np.result_type(precision, np.complex64) if np.iscomplexobj(matrix) else precision)


def orthonormal(columns: Matrix) -> Matrix:
    """A basis of the span of columns of about norm 1, with orthonormal columns in extended precision, (n, rank).

    Left singular vectors are combinations of the columns, which leaves them in their span; there they are made orthogonal by Newton's
    iteration (Bjorck and Bowie, SIAM J. Numer. Anal. 8, 1971), each time to twice as many digits.
    """
    _, values, right = np.linalg.svd(np.asarray(columns, np.float64), full_matrices=False)
    kept = values > max(columns.shape) * EPS * values.max(initial=0.0)
    basis = np.asarray(columns @ (right[kept].T / values[kept]), EXTENDED)
    for _ in range(3):
        basis = basis @ (3 * np.eye(basis.shape[1], dtype=EXTENDED) - basis.T @ basis) / 2
    return basis


def blocks(n: int, size: int = BLOCK) -> Iterator[slice]:
    """Slices of columns or rows that are transformed together."""
    for start in range(0, n, size):
        yield slice(start, min(start + size, n))


def _in_blocks(function: Callable[[Matrix], Matrix], matrix: Matrix) -> Matrix:
    """f(M) of each column alone, computed in extended precision and rounded."""
    found = None
    for columns in blocks(matrix.shape[1], BLOCK // 8):  # each twice as large as in float64, and there are more of them
        part = _in(function(_in(matrix[:, columns], EXTENDED)), np.float64)
        if found is None:
            found = np.empty((len(part), matrix.shape[1]), part.dtype)
        found[:, columns] = part
    assert found is not None
    return found


def finite(values: Iterable[Any] | NDArray[Any], what: str) -> F64:
    """Values as float64."""
    found = np.asarray(values, np.float64)
    wrong = np.argwhere(~np.isfinite(found))
    if wrong.size:
        at = tuple(int(i) for i in wrong[0])
        raise DataError(
            f"{what}: the value of sample {at[0]} is {found[at]}", "Fill it, or select the samples that have one."
        )
    return found
