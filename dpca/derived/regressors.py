"""Regressors of samples: which month each is of, a polynomial in its time, its covariates; for samples of a fit, and for new ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dpca.derived.fits import LessCovariates
from dpca.derived.operators import EPS, finite
from dpca.errors import ConfigError, DataError, InputError
from dpca.numerics.regression import Regression
from dpca.settings import PREPROCESS
from dpca.types import F64

KEY = PREPROCESS.regress_out


@dataclass(frozen=True, eq=False)
class Column:
    """A property of samples, of which regressors are made."""

    name: str
    values: NDArray[Any]
    """Numbers, or text, which names categories, (n,)."""
    degree: int = 1
    """Degree of the polynomial in it, if it has numbers."""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    """Units and calendar of times."""


@dataclass(frozen=True)
class Levels:
    """A regressor for each group of samples: 1 where a sample is in it, else 0."""

    name: str
    levels: tuple[str, ...]

    @classmethod
    def of(cls, column: Column) -> Self:
        """Those of the groups that a column of text names."""
        return cls(column.name, tuple(map(str, np.unique(column.values))))

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"{self.name} {level}" for level in self.levels)

    def of_samples(self, column: Column) -> F64:
        """The regressors of samples, (n, levels)."""
        values = np.asarray(column.values)
        if values.dtype.kind in "biuf":
            raise _of_another_kind(self.name, "numbers", "text")
        found = values[:, None] == np.array(self.levels)[None, :]
        unknown = np.flatnonzero(~found.any(axis=1))
        if unknown.size:
            raise InputError(
                f"{KEY}: {self.name} is {values[unknown[0]]} of sample {unknown[0]}, and {len(unknown)} samples in all are of none of "
                f"the fit's: {', '.join(self.levels[:12])}" + (" and others" if len(self.levels) > 12 else ""),
                "Of such samples nothing is known to subtract: leave them out, or fit with samples of that kind.",
                KEY,
            )
        return np.asarray(found, np.float64)


@dataclass(frozen=True)
class Polynomial:
    """Legendre polynomials in a number from -1 to 1 over the samples of the fit, each less its mean over them."""

    name: str
    middle: float
    half: float
    """The number is (value - middle) / half."""
    means: tuple[float, ...]
    """Means of the polynomials, one a degree from 1 on."""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    """Units and calendar of the values, if they are times."""

    @classmethod
    def of(cls, column: Column) -> Self:
        """Those of a column of numbers."""
        values = _finite(column.values, column.name)
        low, high, distinct = float(values.min()), float(values.max()), len(np.unique(values))
        if 1 < column.degree >= min(distinct, len(values) - 1):
            raise ConfigError(
                f"{KEY}: a polynomial of degree {column.degree} in {column.name} fits all {distinct} distinct values of {len(values)} "
                "samples, and nothing is left",
                f"Take a degree below {max(2, min(distinct, len(values) - 1))}, or more samples.",
                KEY,
            )
        raw = cls(
            column.name, (low + high) / 2, (high - low) / 2 or 1.0, (0.0,) * column.degree, dict(column.attributes)
        )
        return replace(raw, means=tuple(map(float, raw.of_samples(column).mean(axis=0))))

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"{self.name} P{degree}" if degree > 1 else self.name for degree in range(1, len(self.means) + 1))

    def of_samples(self, column: Column) -> F64:
        """The regressors of samples, (n, degree)."""
        values = np.asarray(column.values)
        if values.dtype.kind not in "biuf":
            raise _of_another_kind(self.name, "text", "numbers")
        scaled = (_finite(values, self.name) - self.middle) / self.half
        polynomials = np.polynomial.legendre.legvander(scaled, len(self.means))[:, 1:]
        return np.asarray(polynomials - np.array(self.means), np.float64)


Term = Levels | Polynomial
Terms = tuple[Term, ...]


def terms_of(stored: Sequence[Mapping[str, Any]]) -> Terms:
    """Terms from plain values, as `Design.stored` writes them."""
    return tuple(
        Levels(one["name"], tuple(one["levels"]))
        if "levels" in one
        else Polynomial(one["name"], one["middle"], one["half"], tuple(one["means"]), one["attributes"])
        for one in stored
    )


def matrix_of(terms: Terms, columns: Sequence[Column]) -> F64:
    """The regressors of samples, (n, p), by the terms of a fit, from the same columns."""
    return np.hstack([term.of_samples(column) for term, column in zip(terms, columns, strict=True)])


@dataclass(frozen=True, eq=False)
class Design:
    """The regressors of the samples of a fit."""

    terms: Terms
    matrix: F64
    """Z, (n, p)."""

    @classmethod
    def of(cls, columns: Sequence[Column]) -> Self:
        """The regressors that columns make."""
        terms = tuple(Polynomial.of(one) if one.values.dtype.kind in "biuf" else Levels.of(one) for one in columns)
        return cls(terms, matrix_of(terms, columns))

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the regressors, p of them."""
        return tuple(name for term in self.terms for name in term.names)

    @property
    def stored(self) -> list[dict[str, Any]]:
        """The terms as plain values."""
        return [asdict(term) for term in self.terms]

    @cached_property
    def regression(self) -> Regression:
        """The projector on what they explain, and what makes their coefficients.

        The fit is the mean plus Z B. The coefficients of groups, each times its share of the samples, sum to 0: they are what a
        group differs by. If regressors depend on each other, coefficients are the smallest that give the fit.
        """
        n, p = self.matrix.shape
        try:
            basis = np.asarray(LessCovariates(self.matrix).basis, np.float64)
        except ConfigError as cause:
            raise ConfigError(
                f"{KEY}: {', '.join(term.name for term in self.terms)} fit all {n} samples exactly, with {min(n, p + 1)} parameters, the "
                "constant included, and nothing is left",
                "Take fewer (a season in place of a day of the year, a smaller degree), or more samples.",
                KEY,
            ) from cause
        means = self.matrix.mean(axis=0)
        found = np.linalg.lstsq(self.matrix - means, basis[:, 1:], rcond=max(n, p) * EPS)[0]
        start = 0
        for term in self.terms:
            of_term = slice(start, start + len(term.names))
            if isinstance(term, Levels):
                found[of_term] -= means[of_term] @ found[of_term]
            start = of_term.stop
        return Regression(basis, found)


def _of_another_kind(name: str, found: str, expected: str) -> InputError:
    return InputError(
        f"{KEY}: {name} is {found} of the new samples, but {expected} in the fit",
        f"Give {expected}, as the fit had.",
        KEY,
    )


def _finite(values: NDArray[Any], name: str) -> F64:
    try:
        return finite(values, f"{KEY}: {name}")
    except DataError as error:
        raise DataError(error.marked_message, error.marked_remedy, KEY) from None
