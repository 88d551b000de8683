"""Kernel matrices from inner products: formulas on arrays, for any gamma, without reading data.

With G = X X' and rows as samples (Scholkopf, Smola and Mueller, Neural Computation 10, 1998):

=========  =======================================================
linear     G
poly       (gamma G + coef0)^degree
sigmoid    tanh(gamma G + coef0)
cosine     G_ij / sqrt(G_ii G_jj), 0 where a sample is 0
rbf        exp(-gamma (G_ii + G_jj - 2 G_ij))
=========  =======================================================

The streamed matrix is centred by the mean of the fit, K = X_c X_c', so that small differences keep their digits. Distances
are computed from K, since they do not change. Other kernels use G = K + r 1' + 1 r' + c 11', with r = X_c m~ and c = m~' m~.
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
from dpca.numerics.gram_matrix import GramMatrix
from dpca.settings import MODEL
from dpca.types import F64

KernelName = Literal["linear", "poly", "rbf", "sigmoid", "cosine", "precomputed"]

USES: dict[str, tuple[str, ...]] = {
    "linear": (),
    "poly": ("gamma", "degree", "coef0"),
    "rbf": ("gamma",),
    "sigmoid": ("gamma", "coef0"),
    "cosine": (),
    "precomputed": (),
}
"""The kernels and their parameters."""

Indefinite = Literal["truncate", "error"]
EPS = float(np.finfo(np.float64).eps)
BLOCK_ROWS = 256
CERTIFICATE_BYTES = 5000
"""Memory of the certificate of a component in Python and JSON (measured)."""
BOUNDED = ("rbf", "sigmoid", "cosine")
"""Kernels whose values are at most 1."""
ROUNDED = 0.1
"""A kernel of new samples is refused if rounding changes it by more than this share of its size."""
INDEPENDENT = 1e-3
"""Errors of a kernel's values are not assumed to be independent above this share of the largest value."""
SINGLE = 1e-12
"""Products with a larger relative error may be better in double precision."""
ALONE, SATURATED, FLAT = 1e-3, 1e-6, 1e-9
SQUARED_DISTANCES = "squared_distances"
"""The parameter by which a function asks for distances."""
OF_TWO_SAMPLES = "sklearn.metrics.pairwise"
"""The module of functions of samples, which would take the Gram matrix for samples."""


@dataclass(frozen=True)
class Inner:
    """Inner products of m samples with the n samples of a fit, all centred by the mean of the fit."""

    products: F64
    """X_c X_c', (m, n)."""
    rows: F64
    """Squared norms of the m samples, (m,)."""
    columns: F64
    """Squared norms of the samples of the fit, (n,)."""
    row_mean_product: F64
    """r = X_c m~ of the m samples, (m,)."""
    column_mean_product: F64
    mean_norm2: float
    """c = m~' m~."""
    row_norms2: F64 | None = None
    """Squared norms that were summed without products, where the products may be less accurate; else None."""
    column_norms2: F64 | None = None
    first: int | None = None
    """Number of the first of the m samples among the n of the fit; None where they are others."""

    @classmethod
    def of_gram(cls, gram: GramMatrix) -> Inner:
        """Inner products of the samples of the fit with each other."""
        matrix, product, norms2 = gram.matrix, gram.mean_product, gram.norms2
        squares = np.diagonal(matrix).copy()
        return cls(matrix, squares, squares, product, product, gram.mean_norm2, norms2, norms2, first=0)

    @classmethod
    def of_points(cls, points: F64, fitted: F64) -> Inner:
        """Inner products of points in memory, (m, k), with others, (n, k); their mean is taken to be the origin."""
        return cls(
            points @ fitted.T,
            np.einsum("ij,ij->i", points, points),
            np.einsum("ij,ij->i", fitted, fitted),
            np.zeros(len(points)),
            np.zeros(len(fitted)),
            0.0,
        )

    def about_mean(self) -> Inner:
        """These products with the mean as origin: the input of kernels on centred data."""
        zeros = np.zeros(len(self.rows)), np.zeros(len(self.columns))
        return replace(self, row_mean_product=zeros[0], column_mean_product=zeros[1], mean_norm2=0.0)

    def of_rows(self, rows: slice) -> Inner:
        """The inner products of some of the m samples."""
        return replace(
            self,
            products=self.products[rows],
            rows=self.rows[rows],
            row_mean_product=self.row_mean_product[rows],
            row_norms2=None if self.row_norms2 is None else self.row_norms2[rows],
            first=None if self.first is None else self.first + rows.start,
        )

    def gram(self) -> F64:
        """G = X X' of the samples before centring, (m, n)."""
        gram = self.row_mean_product[:, None] + self.column_mean_product  # the same for (i, j) and (j, i)
        gram += self.products
        gram += self.mean_norm2
        return self._cleared(gram)

    def magnitudes(self) -> F64:
        """Sum of the magnitudes of the terms of G, (m, n): times eps, it is the rounding error of G."""
        magnitudes = self.sizes()
        magnitudes += np.abs(self.row_mean_product)[:, None]
        magnitudes += np.abs(self.column_mean_product) + self.mean_norm2
        return self._cleared(magnitudes)

    def errors(self, eps: float) -> F64:
        """Errors of G, (m, n), where those of the products are eps |x_i| |x_j|: these, and rounding of the terms of the mean."""
        errors = self.sizes()
        errors *= eps
        errors += EPS * self.magnitudes()
        return self._cleared(errors)

    def errors_of_distances(self, eps: float) -> F64:
        """Errors of squared distances, (m, n), from independent ones of three products; none of a sample from itself."""
        row, column = self.sizes2()
        errors = np.hypot(np.hypot(row[:, None], column), 2 * self.sizes())
        errors *= eps
        errors[self._same] = 0.0
        return errors

    @property
    def _same(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Places of samples beside themselves, which only a fit has."""
        own = np.arange(len(self.rows) if self.first is not None else 0)
        return own, own + (self.first or 0)

    def _cleared(self, values: F64) -> F64:
        """Values with 0 where a sample is 0, in place."""
        row, column = self.zeros
        values[row] = 0.0
        values[:, column] = 0.0
        return values

    @property
    def zeros(self) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Which samples are 0 before centring, (m,) and (n,), as `dpca.numerics.preprocess.of_zeros` marks them."""
        products = self.row_mean_product, self.column_mean_product
        row, column = [
            (product == -self.mean_norm2) & (size == self.mean_norm2)
            for product, size in zip(products, self.sizes2(), strict=True)
        ]
        return row, column

    def norms2(self) -> tuple[F64, F64]:
        """Squared norms of the samples before centring, (m,) and (n,)."""
        return (
            _norms2(self.rows, self.row_mean_product, self.mean_norm2),
            _norms2(self.columns, self.column_mean_product, self.mean_norm2),
        )

    def squared_distances(self) -> F64:
        """G_ii + G_jj - 2 G_ij, (m, n); 0 where rounding made it negative."""
        distances = self.rows[:, None] + self.columns
        distances -= 2.0 * self.products
        return np.maximum(distances, 0.0, out=distances)

    def sizes2(self) -> tuple[F64, F64]:
        """|x_i|^2 of both sets of samples, (m,) and (n,), from the most accurate source."""
        row = self.rows if self.row_norms2 is None else self.row_norms2
        column = self.columns if self.column_norms2 is None else self.column_norms2
        return np.maximum(row, 0.0), np.maximum(column, 0.0)

    def sizes(self) -> F64:
        """|x_i| |x_j|, (m, n), the scale of the errors of the products."""
        row, column = self.sizes2()
        return np.sqrt(row)[:, None] * np.sqrt(column)


def _norms2(about_mean: F64, mean_product: F64, mean_norm2: float) -> F64:
    """|x - m|^2 + 2 (x - m)'m + |m|^2, with 0 where it can't be told from rounding."""
    norms2 = about_mean + 2 * mean_product + mean_norm2
    size = np.abs(about_mean) + 2 * np.abs(mean_product) + mean_norm2
    return np.where(norms2 > 64 * EPS * size, norms2, 0.0)


@dataclass(frozen=True)
class Kernel:
    """A kernel with the values of all its parameters: one case of a sweep."""

    name: str = "linear"
    """A key of USES, or the name of `function`."""
    gamma: float = math.nan
    degree: float = math.nan
    coef0: float = math.nan
    """NaN where the kernel has no such parameter."""
    about_mean: bool = False
    """Whether the kernel is applied to centred samples; it makes no difference to linear and rbf."""
    function: Callable[..., Any] | None = None
    """Called as function(G, **params), with squared_distances=D as well if it has a parameter of that name."""
    params: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        values = [f"{name}={getattr(self, name):.6g}" for name in USES.get(self.name, ())]
        return f"{self.name}({', '.join(values)})" if values else self.name

    @property
    def parameters(self) -> dict[str, float | None]:
        """gamma, degree and coef0; None where the kernel has no such parameter."""
        values = {name: getattr(self, name) for name in ("gamma", "degree", "coef0")}
        return {name: None if math.isnan(value) else value for name, value in values.items()}

    @property
    def semidefinite(self) -> bool:
        """Whether the kernel of any samples has no negative eigenvalue, so that one is an error."""
        powers = self.name == "poly" and self.degree % 1 == 0 and self.coef0 >= 0
        return self.function is None and (self.name in ("linear", "rbf", "cosine") or powers)

    @property
    def digest(self) -> str:
        """An identifier that no other kernel has: a resumed run may have other kernels."""
        return hashlib.sha256(repr(self).encode()).hexdigest()[:16]

    def matrix(self, inner: Inner, eps: float = 0.0) -> tuple[F64, F64]:
        """The kernel matrix, (m, n), and the error of each row, (m,).

        Parameters
        ----------
        inner : inner products
        eps : relative error of the products

        Returns
        -------
        matrix, noise : the error of an entry G_ij is about eps |x_i| |x_j|, that of the kernel's entry, E_ij, its largest
            change over this range of its argument. With independent errors |E v|^2 is about sum_j v_j^2 |E_j|^2 for a vector
            v, and no eigenvalue changes by much more than the longest row (Bandeira and van Handel, Annals of Probability
            44, 2016); with large ones, which are not independent, |E v|^2 <= max_i t_i sum_j v_j^2 t_j with the row sums t
            (Schur), and none by more than the largest (Gershgorin). So that is |E_j|, or sqrt(t_j max_i t_i)
        """
        if "gamma" in USES.get(self.name, ()) and math.isnan(self.gamma):
            if eps > SINGLE:
                raise PrecisionError(
                    f"kernel {self.name}: {MODEL.gamma} is median, but products in single precision can't tell most samples from each other",
                    f"{MODEL.precision.set_to('double')}, or {MODEL.gamma} to a number.",
                    key="model.gamma",
                )
            raise ConfigError(
                f"kernel {self.name}: {MODEL.gamma} is median, but the median of the squared distances between samples is 0: "
                "most are alike",
                f"Set {MODEL.gamma} to a number.",
                key="model.gamma",
            )
        if self.about_mean:
            inner = inner.about_mean()
        matrix, dependent = np.empty(inner.products.shape), False
        lengths, sums = np.zeros(len(matrix)), np.zeros(len(matrix))
        # A function may take any value of the matrix for another one.
        for rows in blocks(len(matrix)) if self.function is None else (slice(0, len(matrix)),):
            with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
                matrix[rows], change = self._of(inner.of_rows(rows), eps)
                if change is not None:
                    lengths[rows], sums[rows] = row_lengths(change), change.sum(axis=1)
                    largest = max(1e-300, np.abs(matrix[rows]).max(initial=0.0))
                    dependent |= bool(change.max(initial=0.0) > INDEPENDENT * largest)
            self._check(matrix[rows], rows.start)
        noise = np.maximum(lengths, np.sqrt(sums) * np.sqrt(sums.max(initial=0.0))) if dependent else lengths
        return matrix, np.where(np.isfinite(noise), noise, np.inf)

    def of_new(self, inner: Inner, eps: float) -> F64:
        """The kernel between new samples and those of a fit, (m, n).

        Parameters
        ----------
        inner, eps : as for `matrix`
        """
        if self.function is not None:
            return self.matrix(inner)[0]
        matrix, errors = self.matrix(inner, eps)
        noise = float(errors.max(initial=0.0))
        # Between distant samples a bounded kernel is nearly 0, and rounding may double that: compare with its largest value.
        size = max(longest_row(matrix), 1.0 if self.name in BOUNDED else 0.0)
        if noise > ROUNDED * max(size, 1e-300):
            raise PrecisionError(
                f"kernel {self}: rounding of the products changes what new samples have in common with those of the fit by "
                f"{noise:.1e}, where that is {size:.1e} at most",
                "Fit with precision: double, or with a smaller gamma, or scale the features.",
                key="model.gamma",
            )
        return matrix

    def _of(self, inner: Inner, eps: float) -> tuple[F64, F64 | None]:
        """Values, and the error of each from errors of eps |x_i| |x_j| in its inner product; None for eps = 0."""
        if self.function is not None:
            return self._measured(inner, eps)
        if self.name == "linear":  # after centring it is the same as G, and more accurate
            return inner.products, eps * inner.sizes() if eps else None
        if self.name == "rbf":
            return self._rbf(inner, eps)
        values, error = inner.gram(), inner.errors(eps) if eps else None
        if self.name == "cosine":
            row2, column2 = inner.norms2()
            norms = np.sqrt(row2)[:, None] * np.sqrt(column2)
            np.divide(values, norms, out=values, where=norms > 0)
            values[(norms == 0) | np.logical_or.outer(*inner.zeros)] = 0.0
            return values, None if error is None else _change_of_cosine(inner, values, norms, error, eps)
        values *= self.gamma
        size = np.abs(values) if eps else None
        values += self.coef0
        if error is not None and size is not None:
            error *= self.gamma
            size += np.abs(values)
            error += EPS * size
        return self._sigmoid(values, error) if self.name == "sigmoid" else self._poly(inner, values, error, eps)

    def _rbf(self, inner: Inner, eps: float) -> tuple[F64, F64 | None]:
        """exp(-gamma d), and the most that it changes within the error of d."""
        argument = inner.squared_distances()
        argument *= self.gamma
        values = np.exp(-argument)
        if not eps:
            return values, None
        error = self.gamma * inner.errors_of_distances(eps) + EPS * argument
        nearer = np.exp(-np.maximum(argument - error, 0.0)) - values
        return values, np.maximum(nearer, -np.expm1(-error) * values)

    @staticmethod
    def _sigmoid(argument: F64, error: F64 | None) -> tuple[F64, F64 | None]:
        """tanh of the argument, and the most that it changes within the error of the argument."""
        values = np.tanh(argument)
        if error is None:
            return values, None
        return values, np.maximum(np.tanh(argument + error) - values, values - np.tanh(argument - error))

    def _poly(self, inner: Inner, argument: F64, error: F64 | None, eps: float) -> tuple[F64, F64 | None]:
        """The argument to the power of the degree, and the most that it changes within the error of the argument."""
        degree = self.degree
        if degree % 1:
            # A power that is not an integer is undefined below 0, and rounding alone may have made a 0 negative.
            rounding = 8 * max(eps, EPS) * (self.gamma * inner.magnitudes() + abs(self.coef0))
            argument[(argument < 0) & (argument >= -rounding)] = 0.0
        values = argument**degree
        if error is None:
            return values, None
        size = np.abs(argument)
        grown, shrunk = (size + error) ** degree, np.maximum(size - error, 0.0) ** degree
        return values, np.maximum(grown - size**degree, size**degree - shrunk)

    def _measured(self, inner: Inner, eps: float) -> tuple[F64, F64 | None]:
        """Values of the function, and what each changes by where its arguments are moved by their errors, up and down.

        Errors have signs of their own, drawn, but the same at every call: a function may compare some entries with others,
        and where all were moved alike, nothing would change. An entry that is no number on one side counts by the other.
        """
        values, rounding = self._called(inner)
        if not eps:
            return values, None
        signs = np.random.default_rng(len(values)).choice([-1.0, 1.0], values.shape)
        if inner.first is not None:
            signs = np.triu(signs) + np.triu(signs, 1).T
        changes = []
        for direction in (signs, -signs):
            moved, _ = self._called(inner, direction, eps)
            changes.append(np.abs(moved - values))
        change = np.fmax(*changes)
        change[np.isnan(change)] = np.inf
        return values, np.maximum(change, rounding * np.abs(values), out=change)

    def _called(self, inner: Inner, signs: F64 | None = None, eps: float = 0.0) -> tuple[F64, float]:
        """Values of the function, and the rounding of their type; with signs, of arguments that are moved by their errors."""
        assert self.function is not None
        arguments, gram = dict(self.params), inner.gram()
        if signs is not None:
            gram += signs * inner.errors(eps)
        if SQUARED_DISTANCES in parameters_of(self.function):
            distances = inner.squared_distances()
            if signs is not None:
                distances -= signs * inner.errors_of_distances(eps)
            arguments[SQUARED_DISTANCES] = np.maximum(distances, 0.0, out=distances)
        values = np.asarray(self.function(gram, **arguments))
        if values.dtype.kind not in "biuf":
            raise ConfigError(
                f"kernel {self.name} gave values of dtype {values.dtype}, but real numbers are allowed",
                "Give a function that returns them.",
                key="model.kernel",
            )
        rounding = float(np.finfo(values.dtype).eps) if values.dtype.kind == "f" else 0.0
        values = values.astype(np.float64)
        if values.shape != inner.products.shape:
            raise ConfigError(
                f"kernel {self.name} gave an array of shape {values.shape} for a Gram matrix of shape {inner.products.shape}",
                "Give a function of the matrix that returns one of the same shape.",
                key="model.kernel",
            )
        return values, max(rounding, EPS)

    def _check(self, values: F64, start: int = 0) -> None:
        if np.isfinite(values).all():
            return
        first = np.argwhere(~np.isfinite(values))[0]
        value = values[tuple(first)]
        why = "is not a number" if np.isnan(value) else "overflows"
        remedy = f"Choose a smaller {MODEL.gamma} or {MODEL.degree}"
        if np.isnan(value) and self.name == "poly":
            remedy = f"A power that is no integer is not defined of a negative base: choose an integer {MODEL.degree}"
        raise ConfigError(
            f"kernel {self}: its value {why} between samples {first[0] + start} and {first[1]}",
            f"{remedy}, or scale the features.",
            key="model.gamma" if "gamma" in USES.get(self.name, ()) else "model.kernel",
        )


@dataclass(frozen=True)
class Kernels:
    """The requested kernels: every combination of the values of their parameters."""

    names: tuple[str, ...] = ("linear",)
    gammas: tuple[float | Literal["median"] | None, ...] = (None,)
    """None for 1 / n_features, "median" for 1 / (median squared distance)."""
    degrees: tuple[float, ...] = (3.0,)
    coef0s: tuple[float, ...] = (1.0,)
    sweep: bool = False
    """Whether results have a dimension of cases, even for one case."""
    about_mean: bool = False
    function: Callable[..., Any] | None = None
    params: Mapping[str, Any] = field(default_factory=dict)
    alpha: float = 1.0
    """The ridge of the regression that finds pre-images."""
    fit_inverse_transform: bool | Literal["fixed_point"] = False
    """How pre-images are found: True for ridge regression, also for linear; "fixed_point" for the iteration of rbf."""
    indefinite: Indefinite = "truncate"
    """How eigenvalues that are negative beyond rounding are handled: left out and reported, or refused."""
    remove_zero_eig: bool = False
    """Whether components with eigenvalue 0 are left out even if a number of components was requested."""

    @property
    def precomputed(self) -> bool:
        """Whether the input is a kernel matrix."""
        return self.names == ("precomputed",)

    @property
    def n_cases(self) -> int:
        """The number of kernels, before equal ones are merged."""
        return sum(math.prod(len(values) for values in self._values(name)) for name in self.names)

    def cases(self, n_features: int, inner: Inner) -> list[Kernel]:
        """The kernels, each with its parameters."""
        median = median_gamma(inner) if "median" in self.gammas and self._need_gamma else 0.0
        kernels: list[Kernel] = []
        for name in self.names:
            for values in product(*self._values(name)):
                case = dict(zip(USES.get(name, ()), values, strict=True))
                if "gamma" in case:
                    gamma = case["gamma"]
                    case["gamma"] = median if gamma == "median" else 1 / n_features if gamma is None else gamma
                kernel = Kernel(name, about_mean=self.about_mean, function=self.function, params=self.params, **case)
                if kernel not in kernels:
                    kernels.append(kernel)
        return kernels

    @property
    def _need_gamma(self) -> bool:
        return any("gamma" in USES.get(name, ()) for name in self.names)

    def _values(self, name: str) -> list[tuple[Any, ...]]:
        choices = {"gamma": self.gammas, "degree": self.degrees, "coef0": self.coef0s}
        return [choices[parameter] for parameter in USES.get(name, ())]


def _change_of_cosine(inner: Inner, cosines: F64, norms: F64, error: F64, eps: float) -> F64:
    """The most that cosines change within the errors of the products and of the norms, (m, n)."""
    change = np.divide(error, norms, out=np.full_like(norms, 2.0), where=norms > 0)
    products = inner.row_mean_product, inner.column_mean_product
    for axis, norms2, size, mean_product, zero in zip(
        (1, 0), inner.norms2(), inner.sizes2(), products, inner.zeros, strict=True
    ):
        terms = size + 2 * np.abs(mean_product) + inner.mean_norm2
        magnitude = eps * size + 4 * EPS * terms
        relative = np.divide(magnitude, norms2, out=np.ones_like(norms2), where=norms2 > 0)
        known = np.expand_dims(relative < 1, axis)
        change += np.abs(cosines) * np.expand_dims(1 / np.sqrt(1 - np.minimum(relative, 0.99)) - 1, axis)
        change[np.broadcast_to(~known, change.shape)] = 2.0
        # Only the cosine of a sample that is exactly 0 has no error: it is 0.
        change[np.broadcast_to(np.expand_dims(zero, axis), change.shape)] = 0.0
    return np.minimum(change, 2.0)


def parameters_of(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """The parameters of a function, by name; none of one that does not say them."""
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):
        return {}


def check_function(name: str, function: Callable[..., Any], params: Mapping[str, Any]) -> None:
    """Refuse a function that can't be called with the Gram matrix alone, such as one of two samples."""
    asked = (SQUARED_DISTANCES,) if SQUARED_DISTANCES in parameters_of(function) else ()
    try:
        inspect.signature(function).bind(np.empty((0, 0)), **params, **dict.fromkeys(asked))
        if getattr(function, "__module__", None) != OF_TWO_SAMPLES:
            return
        problem = "is a function of samples"
    except TypeError as cause:
        problem = f"can't be called so ({cause})"
    except ValueError:  # it does not say its parameters
        return
    with_params = f", with kernel_params {', '.join(map(repr, params))}" if params else ""
    raise ConfigError(
        f"kernel {name} {problem}: it is called once, with the inner products X X' of all samples, (n, n), as its only argument, and "
        f"{SQUARED_DISTANCES}=..., too, if it has such a parameter{with_params}",
        "Give a function of these, lambda gram, squared_distances: numpy.exp(-squared_distances). For a function of two samples compute its "
        "matrix, sklearn.metrics.pairwise.pairwise_kernels(X, metric=function), and give that with kernel='precomputed'.",
        key="model.kernel",
    )


def longest_row(values: F64) -> float:
    """The largest norm of a row, without overflow of the squares."""
    return float(row_lengths(values).max(initial=0.0))


def row_lengths(values: F64) -> F64:
    """The norm of each row, (m,), without overflow of the squares; that of the largest value in all where one is not finite."""
    largest = float(np.abs(values).max(initial=0.0))
    if not 0 < largest < math.inf:
        return np.full(len(values), largest)
    scaled = values / largest
    return np.asarray(largest * np.sqrt(np.einsum("ij,ij->i", scaled, scaled)))


def blocks(n: int) -> Iterator[slice]:
    """Slices of rows that are computed together, so that intermediate arrays stay small."""
    for start in range(0, n, BLOCK_ROWS):
        yield slice(start, min(start + BLOCK_ROWS, n))


def median_gamma(inner: Inner) -> float:
    """1 / (median of the squared distances between different samples); NaN where that is 0.

    The median heuristic (Garreau, Jitkrittum and Kanagawa, arXiv:1707.07269, 2017), with gamma = 1 / median.
    """
    n = len(inner.rows)
    distances = np.empty(n * (n - 1) // 2)
    start = 0
    for number in range(1, n):
        row = inner.of_rows(slice(number, number + 1)).squared_distances()[0, :number]
        distances[start : start + number] = row
        start += number
    median = float(np.median(distances, overwrite_input=True)) if distances.size else 0.0
    return 1.0 / median if median > 0 else math.nan


@dataclass(frozen=True)
class Centering:
    """The means of a fit's kernel matrix, which also centre the rows of new samples."""

    columns: F64
    """Mean of each column, (n,)."""
    all: float

    @classmethod
    def of(cls, matrix: F64) -> Centering:
        """The means of the kernel matrix of the fit."""
        columns = matrix.mean(axis=0)
        return cls(columns, float(columns.mean()))

    def apply(self, rows: F64) -> F64:
        """k - (k 1/n) 1' - 1 columns' + all, for rows of the kernel, (m, n), in place.

        Subtracts the mean of the fit's images in feature space (Scholkopf et al. 1998, appendix A).
        """
        rows -= rows.mean(axis=1)[:, None]
        rows -= self.columns - self.all
        return rows


def notes(kernel: Kernel, matrix: F64) -> list[str]:
    """Problems of a kernel matrix that is not centred yet, in words."""
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
    """Bytes that the kernels of a Gram matrix hold without the eigensolve, by name of the array."""
    arrays = {
        "eigenvalues and vectors of kernels": 8 * n * (n_components + 2) * kernels.n_cases,
        "scores and alpha of a kernel, being written": 4 * 8 * n * n_components,
        "certificate, some numbers for each component": CERTIFICATE_BYTES * n_components * kernels.n_cases,
        "kernel being made": 10 * 8 * min(BLOCK_ROWS, n) * n,
    }
    if "median" in kernels.gammas:
        arrays["distances of samples, for their median"] = 4 * n * n
    if kernels.function is not None:
        arrays["Gram matrix, distances, their errors, and values, for the function"] = 10 * 8 * n * n
    return arrays
