"""Kernel matrices from inner products: formulas on plain arrays, at any gamma, without the data.

With G = X X' and rows as samples (Scholkopf, Smola and Mueller, Neural Computation 10, 1998):

=========  =======================================================
linear     G
poly       (gamma G + coef0)^degree
sigmoid    tanh(gamma G + coef0)
cosine     G_ij / sqrt(G_ii G_jj), 0 where a sample is 0
rbf        exp(-gamma (G_ii + G_jj - 2 G_ij))
=========  =======================================================

What was streamed is about the mean of the fit, K = X_c X_c', in which small differences keep their digits. Distances
are taken from it, since they are the same. The others take G = K + r 1' + 1 r' + c 11', with r = X_c m~ and c = m~' m~.
"""

from __future__ import annotations

import hashlib
import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dpca.errors import ConfigError, PrecisionError

F64 = NDArray[np.float64]
KernelName = Literal["linear", "poly", "rbf", "sigmoid", "cosine", "precomputed"]

USES: dict[str, tuple[str, ...]] = {
    "linear": (),
    "poly": ("gamma", "degree", "coef0"),
    "rbf": ("gamma",),
    "sigmoid": ("gamma", "coef0"),
    "cosine": (),
    "precomputed": (),
}
"""The kernels, and the parameters that each has."""

Indefinite = Literal["truncate", "error"]
BLOCK_ROWS = 256
CERTIFICATE_BYTES = 5000
"""What Python and JSON take for the certificate of a component (measured)."""
BOUNDED = ("rbf", "sigmoid", "cosine")
"""Kernels whose values are 1 at most."""
ROUNDED = 0.1
"""A kernel of new samples that rounding changes by more than this is refused."""
INDEPENDENT = 1e-3
"""Errors of a kernel's values that are larger than this part of the largest are not taken for independent."""
ALONE, SATURATED, FLAT = 1e-3, 1e-6, 1e-9


@dataclass(frozen=True)
class Inner:
    """Inner products of some samples, m, with those of a fit, n, all less the mean of the fit."""

    products: F64
    """X_c X_c', (m, n)."""
    rows: F64
    """Squared norms of the first, (m,)."""
    columns: F64
    """Squared norms of those of the fit, (n,)."""
    row_mean_product: F64
    """r of the first, X_c m~, (m,)."""
    column_mean_product: F64
    mean_norm2: float
    """c = m~' m~."""
    row_norms2: F64 | None = None
    """Squared norms that were added up without products, where those may have lost them."""
    column_norms2: F64 | None = None

    @classmethod
    def of_fit(cls, gram: F64, mean_product: F64, mean_norm2: float, norms2: F64 | None = None) -> Inner:
        """Of the samples of the fit with each other."""
        squares = np.diagonal(gram).copy()
        return cls(gram, squares, squares, mean_product, mean_product, mean_norm2, norms2, norms2)

    @classmethod
    def of_points(cls, points: F64, fitted: F64) -> Inner:
        """Of points that are in memory, (m, k), with others, (n, k); their origin is the mean."""
        return cls(
            points @ fitted.T,
            np.einsum("ij,ij->i", points, points),
            np.einsum("ij,ij->i", fitted, fitted),
            np.zeros(len(points)),
            np.zeros(len(fitted)),
            0.0,
        )

    def about_mean(self) -> Inner:
        """The same of samples whose mean is their origin: what kernels see of data that are centred."""
        zeros = np.zeros(len(self.rows)), np.zeros(len(self.columns))
        return replace(self, row_mean_product=zeros[0], column_mean_product=zeros[1], mean_norm2=0.0)

    def of_rows(self, rows: slice) -> Inner:
        """Of some of the first samples."""
        return replace(
            self,
            products=self.products[rows],
            rows=self.rows[rows],
            row_mean_product=self.row_mean_product[rows],
            row_norms2=None if self.row_norms2 is None else self.row_norms2[rows],
        )

    def gram(self) -> F64:
        """G = X X', as if the mean had never been taken away, (m, n)."""
        found = self.row_mean_product[:, None] + self.column_mean_product  # the same of (i, j) and of (j, i)
        found += self.products
        found += self.mean_norm2
        return found

    def magnitudes(self) -> F64:
        """What each of G was added up from, (m, n): eps of it is how far rounding alone puts it."""
        found = np.sqrt(self.rows[:, None] * self.columns)
        found += np.abs(self.row_mean_product)[:, None]
        found += np.abs(self.column_mean_product) + self.mean_norm2
        return found

    def norms2(self) -> tuple[F64, F64]:
        """Squared norms as if the mean had never been taken away, (m,) and (n,)."""
        return (
            _norms2(self.rows, self.row_mean_product, self.mean_norm2),
            _norms2(self.columns, self.column_mean_product, self.mean_norm2),
        )

    def squared_distances(self) -> F64:
        """G_ii + G_jj - 2 G_ij, (m, n); 0 where rounding left less."""
        found = self.rows[:, None] + self.columns
        found -= 2.0 * self.products
        return np.maximum(found, 0.0, out=found)

    def sizes2(self) -> tuple[F64, F64]:
        """|x_i|^2 of both, (m,) and (n,), as well as they are known."""
        row = self.rows if self.row_norms2 is None else self.row_norms2
        column = self.columns if self.column_norms2 is None else self.column_norms2
        return np.maximum(row, 0.0), np.maximum(column, 0.0)

    def sizes(self) -> F64:
        """|x_i| |x_j|, (m, n), what errors of the products are relative to."""
        row, column = self.sizes2()
        return np.sqrt(row)[:, None] * np.sqrt(column)


def _norms2(about_mean: F64, mean_product: F64, mean_norm2: float) -> F64:
    """|x - m|^2 + 2 (x - m)'m + |m|^2, 0 where it can't be told from rounding."""
    found = about_mean + 2 * mean_product + mean_norm2
    size = np.abs(about_mean) + 2 * np.abs(mean_product) + mean_norm2
    return np.where(found > 64 * np.finfo(np.float64).eps * size, found, 0.0)


@dataclass(frozen=True)
class Kernel:
    """A kernel with all its parameters: one case of a sweep."""

    name: str = "linear"
    """A key of USES, or the name of `function`."""
    gamma: float = math.nan
    degree: float = math.nan
    coef0: float = math.nan
    """NaN where the kernel has no such parameter."""
    about_mean: bool = False
    """Whether the kernel sees samples less their mean; it is the same to linear and rbf."""
    function: Callable[..., Any] | None = None
    """Called as function(G, **params), and with squared_distances=D besides if it has a parameter of that name."""
    params: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        given = [f"{name}={getattr(self, name):.6g}" for name in USES.get(self.name, ())]
        return f"{self.name}({', '.join(given)})" if given else self.name

    @property
    def parameters(self) -> dict[str, float | None]:
        """gamma, degree and coef0; None where the kernel has no such parameter."""
        given = {name: getattr(self, name) for name in ("gamma", "degree", "coef0")}
        return {name: None if math.isnan(value) else value for name, value in given.items()}

    @property
    def digest(self) -> str:
        """A word that no other kernel has: a run may be gone on with by other kernels."""
        return hashlib.sha256(repr(self).encode()).hexdigest()[:16]

    def matrix(self, inner: Inner, eps: float = 0.0) -> tuple[F64, float]:
        """The kernel matrix, (m, n), and how far its eigenvalues may be off.

        Parameters
        ----------
        inner : inner products
        eps : of the precision of the products

        Returns
        -------
        matrix, noise : an entry G_ij is off by eps |x_i| |x_j| or so, and that of the kernel by the most that it
            changes within that of its argument; a symmetric matrix of independent errors changes eigenvalues by the norm of
            its longest row or so (Bandeira and van Handel, Annals of Probability 44, 2016), one of large errors, which are
            not independent, by the largest sum of a row (Gershgorin)

        Raises
        ------
        ConfigError
            When a value is not finite.
        """
        if "gamma" in USES.get(self.name, ()) and math.isnan(self.gamma):
            raise ConfigError(
                f"kernel {self.name}: model.gamma is median, but the median of the squared distances between samples is 0: "
                "most are alike",
                "Set model.gamma to a number.",
                key="model.gamma",
            )
        if self.about_mean:
            inner = inner.about_mean()
        if self.function is not None:
            found = self._called(inner)
            self._check(found)
            return found, eps * longest_row(found)
        matrix, noise, total = np.empty(inner.products.shape), 0.0, 0.0
        for rows in blocks(len(matrix)):
            with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
                matrix[rows], change = self._of(inner.of_rows(rows), eps)
                if change is not None:
                    if self.name == "rbf" and inner.rows is inner.columns:  # a sample is at 0 from itself
                        change[np.arange(len(change)), np.arange(rows.start, rows.stop)] = 0.0
                    noise = np.maximum(noise, longest_row(change))
                    if change.max(initial=0.0) > INDEPENDENT * max(1e-300, np.abs(matrix[rows]).max(initial=0.0)):
                        total = np.maximum(total, change.sum(axis=1).max(initial=0.0))
            self._check(matrix[rows], rows.start)
        noise = float(np.maximum(noise, total))  # which keep what is not a number
        return matrix, noise if np.isfinite(noise) else math.inf

    def of_new(self, inner: Inner, eps: float) -> F64:
        """The kernel of new samples with those of a fit, (m, n).

        Parameters
        ----------
        inner, eps : as for `matrix`

        Raises
        ------
        PrecisionError
            When rounding alone changes it: at a large gamma a sample would not be found near itself.
        """
        found, noise = self.matrix(inner, eps)
        # Of far samples a bounded kernel is nothing, which rounding may double: what counts is what it may be.
        size = max(longest_row(found), 1.0 if self.name in BOUNDED else 0.0)
        if self.function is None and noise > ROUNDED * max(size, 1e-300):
            raise PrecisionError(
                f"kernel {self}: rounding of the products changes what new samples have in common with those of the fit by "
                f"{noise:.1e}, where that is {size:.1e} at most",
                "Fit with precision: double, or with a smaller gamma, or scale the features.",
                key="model.gamma",
            )
        return found

    def _of(self, inner: Inner, eps: float) -> tuple[F64, F64 | None]:
        """Values, and how much each may change with the error of its inner products, relative to lengths; None of eps 0."""
        off = eps * inner.sizes() if eps else None
        if self.name == "rbf":
            argument = inner.squared_distances()
            argument *= self.gamma
            values = np.exp(-argument)
            if off is None:
                return values, None
            row, column = inner.sizes2()
            off = self.gamma * (eps * (row[:, None] + column) + 2 * off)
            nearer = np.exp(-np.maximum(argument - off, 0.0)) - values
            return values, np.maximum(nearer, -np.expm1(-off) * values)
        if self.name == "linear":  # centred it is the same, with all digits
            return inner.products, off
        values = inner.gram()
        if off is not None:  # rounding of what the mean adds
            off += float(np.finfo(np.float64).eps) * np.sqrt(np.multiply.outer(*inner.norms2()))
        if self.name == "cosine":
            return self._cosine(inner, values, off, eps)
        values *= self.gamma
        values += self.coef0
        if self.name == "poly" and self.degree % 1:
            # A power that is no integer is not defined below 0, where rounding alone may have put what is 0.
            rounding = (
                8 * max(eps, float(np.finfo(np.float64).eps)) * (self.gamma * inner.magnitudes() + abs(self.coef0))
            )
            values[(values < 0) & (values >= -rounding)] = 0.0
        if off is not None:
            off *= self.gamma
        if self.name == "sigmoid":
            found = np.tanh(values)
            if off is None:
                return found, None
            return found, np.maximum(np.tanh(values + off) - found, found - np.tanh(values - off))
        found = values**self.degree
        if off is None:
            return found, None
        size = np.abs(values)
        return found, np.maximum(
            (size + off) ** self.degree - size**self.degree,
            size**self.degree - np.maximum(size - off, 0.0) ** self.degree,
        )

    @staticmethod
    def _cosine(inner: Inner, values: F64, off: F64 | None, eps: float) -> tuple[F64, F64 | None]:
        row2, column2 = inner.norms2()
        norms = np.sqrt(row2)[:, None] * np.sqrt(column2)
        np.divide(values, norms, out=values, where=norms > 0)
        values[norms == 0] = 0.0
        if off is None:
            return values, None
        change = np.divide(off, norms, out=np.full_like(norms, 2.0), where=norms > 0)
        sizes = inner.sizes2()
        for norms2, size, mean_product, axis in (
            (row2, sizes[0], inner.row_mean_product, 1),
            (column2, sizes[1], inner.column_mean_product, 0),
        ):
            magnitude = eps * size + 4 * float(np.finfo(np.float64).eps) * (
                size + 2 * np.abs(mean_product) + inner.mean_norm2
            )
            relative = np.divide(magnitude, norms2, out=np.full_like(norms2, 2.0), where=norms2 > 0)
            # Only of a sample that is 0 nothing is unknown: its cosine is 0.
            change += np.expand_dims(np.where(magnitude > 0, relative, 0.0), axis)
            change[np.broadcast_to(np.expand_dims(magnitude == 0, axis), change.shape)] = 0.0
        return values, np.minimum(change, 2.0)

    def _called(self, inner: Inner) -> F64:
        assert self.function is not None
        given = dict(self.params)
        if "squared_distances" in inspect.signature(self.function).parameters:
            given["squared_distances"] = inner.squared_distances()
        found = np.asarray(self.function(inner.gram(), **given))
        if found.dtype.kind not in "biuf":
            raise ConfigError(
                f"kernel {self.name} gave values of dtype {found.dtype}, but real numbers are allowed",
                "Give a function that returns them.",
                key="model.kernel",
            )
        found = found.astype(np.float64)
        if found.shape != inner.products.shape:
            raise ConfigError(
                f"kernel {self.name} gave an array of shape {found.shape} for a Gram matrix of shape {inner.products.shape}",
                "Give a function of the matrix that returns one of the same shape.",
                key="model.kernel",
            )
        return found

    def _check(self, values: F64, start: int = 0) -> None:
        if np.isfinite(values).all():
            return
        first = np.argwhere(~np.isfinite(values))[0]
        found = values[tuple(first)]
        why = "is not a number" if np.isnan(found) else "overflows"
        remedy = "Choose a smaller model.gamma or model.degree"
        if np.isnan(found) and self.name == "poly":
            remedy = "A power that is no integer is not defined of a negative base: choose an integer model.degree"
        raise ConfigError(
            f"kernel {self}: its value {why} between samples {first[0] + start} and {first[1]}",
            f"{remedy}, or scale the features.",
            key="model.gamma" if "gamma" in USES.get(self.name, ()) else "model.kernel",
        )


@dataclass(frozen=True)
class Kernels:
    """The kernels that are asked for: every combination of what their parameters may be."""

    names: tuple[str, ...] = ("linear",)
    gammas: tuple[float | Literal["median"] | None, ...] = (None,)
    """None for 1 / n_features, "median" for 1 / the median squared distance."""
    degrees: tuple[float, ...] = (3.0,)
    coef0s: tuple[float, ...] = (1.0,)
    sweep: bool = False
    """Whether results have a dimension of cases, even of one."""
    about_mean: bool = False
    function: Callable[..., Any] | None = None
    params: Mapping[str, Any] = field(default_factory=dict)
    alpha: float = 1.0
    """Of the ridge regression that finds pre-images."""
    fit_inverse_transform: bool | Literal["fixed_point"] = False
    """How pre-images are found: by ridge regression, of the linear kernel too; or, of rbf, by fixed-point iteration."""
    indefinite: Indefinite = "truncate"
    """What becomes of negative eigenvalues beyond rounding: they are left out and reported, or refused."""
    remove_zero_eig: bool = False
    """Whether components of eigenvalue 0 are left out where a number of them was asked for, too."""

    @property
    def precomputed(self) -> bool:
        """Whether the input is a kernel matrix."""
        return self.names == ("precomputed",)

    @property
    def n_cases(self) -> int:
        """How many kernels there are, unless some turn out to be the same."""
        return sum(math.prod(len(values) for values in self._values(name)) for name in self.names)

    def cases(self, n_features: int, inner: Inner) -> list[Kernel]:
        """The kernels, each with its parameters."""
        median = median_gamma(inner) if "median" in self.gammas and self._need_gamma else 0.0
        found: list[Kernel] = []
        for name in self.names:
            for values in product(*self._values(name)):
                given = dict(zip(USES.get(name, ()), values, strict=True))
                if "gamma" in given:
                    asked = given["gamma"]
                    given["gamma"] = median if asked == "median" else 1 / n_features if asked is None else asked
                kernel = Kernel(name, about_mean=self.about_mean, function=self.function, params=self.params, **given)
                if kernel not in found:
                    found.append(kernel)
        return found

    @property
    def _need_gamma(self) -> bool:
        return any("gamma" in USES.get(name, ()) for name in self.names)

    def _values(self, name: str) -> list[tuple[Any, ...]]:
        given = {"gamma": self.gammas, "degree": self.degrees, "coef0": self.coef0s}
        return [given[parameter] for parameter in USES.get(name, ())]


def longest_row(values: F64) -> float:
    """The largest norm of a row, without squares that overflow."""
    largest = float(np.abs(values).max(initial=0.0))
    if not 0 < largest < math.inf:
        return largest
    scaled = values / largest
    return largest * float(np.sqrt(np.einsum("ij,ij->i", scaled, scaled).max()))


def blocks(n: int) -> Iterator[slice]:
    """Rows that are worked on together, so that what is in between stays small."""
    for start in range(0, n, BLOCK_ROWS):
        yield slice(start, min(start + BLOCK_ROWS, n))


def median_gamma(inner: Inner) -> float:
    """1 / the median of the squared distances of different samples; NaN where that is 0.

    The median heuristic (Garreau, Jitkrittum and Kanagawa, arXiv:1707.07269, 2017), with gamma = 1 / median.
    """
    n = len(inner.rows)
    found = np.empty(n * (n - 1) // 2)
    start = 0
    for number in range(1, n):
        row = inner.of_rows(slice(number, number + 1)).squared_distances()[0, :number]
        found[start : start + number] = row
        start += number
    median = float(np.median(found, overwrite_input=True)) if found.size else 0.0
    return 1.0 / median if median > 0 else math.nan


@dataclass(frozen=True)
class Centering:
    """The means of a fit's kernel matrix, which centre other rows too."""

    columns: F64
    """Of each column, (n,)."""
    all: float

    @classmethod
    def of(cls, matrix: F64) -> Centering:
        """Of the kernel matrix of the fit."""
        columns = matrix.mean(axis=0)
        return cls(columns, float(columns.mean()))

    def apply(self, rows: F64) -> F64:
        """k - (k 1/n) 1' - 1 columns' + all, of rows of the kernel, (m, n), in place.

        Less the mean of the fit's images in feature space (Scholkopf et al. 1998, appendix A).
        """
        rows -= rows.mean(axis=1)[:, None]
        rows -= self.columns - self.all
        return rows


def notes(kernel: Kernel, matrix: F64) -> list[str]:
    """What is the matter with a kernel matrix that is not centred yet, in words."""
    n = len(matrix)
    if n < 2:
        return []
    diagonal = np.diagonal(matrix)
    largest = float(np.abs(diagonal).max())
    aside, low, high, saturated = 0.0, np.inf, -np.inf, 0
    for rows in blocks(n):
        block = matrix[rows]
        low, high = min(low, float(block.min())), max(high, float(block.max()))
        saturated += int(np.count_nonzero(np.abs(block) > 1 - SATURATED)) if kernel.name == "sigmoid" else 0
        block = np.abs(block)
        block[np.arange(len(block)), np.arange(rows.start, rows.stop)] = 0.0
        aside = max(aside, float(block.max()))
    if high - low <= FLAT * max(abs(high), abs(low)):
        return [f"kernel {kernel} is constant ({high:.4g} for every two samples): nothing is left to find"]
    if aside <= ALONE * largest and kernel.name != "linear":
        what = f"kernel {kernel} is the identity, or nearly (no two samples have more than {aside / largest:.1e} in common)"
        remedy = "; a smaller gamma would see neighbours: model.gamma: median" if kernel.name == "rbf" else ""
        return [f"{what}: every sample is a component of its own{remedy}"]
    if saturated > 0.9 * n * n:
        return [
            f"kernel {kernel} is saturated: {100 * saturated / n**2:.0f} % of its values are 1 or -1; take a smaller gamma"
        ]
    return []


def held(n: int, n_components: int, kernels: Kernels) -> dict[str, int]:
    """Bytes of what every kernel of a Gram matrix takes besides its eigensolve, by name."""
    found = {
        "eigenvalues and vectors of kernels": 8 * n * (n_components + 2) * kernels.n_cases,
        "scores and alpha of a kernel, being written": 4 * 8 * n * n_components,
        "certificate, some numbers for each component": CERTIFICATE_BYTES * n_components * kernels.n_cases,
        "kernel being made": 10 * 8 * min(BLOCK_ROWS, n) * n,
    }
    if "median" in kernels.gammas:
        found["distances of samples, for their median"] = 4 * n * n
    if kernels.function is not None:
        found["Gram matrix and distances, for the function"] = 3 * 8 * n * n
    return found
