"""Regressors of samples: which month each is of, a polynomial in its time, its covariates; for samples of a fit, and for new ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from itertools import accumulate
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dpca.derived.fits import LessCovariates
from dpca.derived.operators import EPS, finite
from dpca.errors import ConfigError, DataError, InputError
from dpca.numerics.regression import FitPart, LeastSquares, Regression
from dpca.settings import INPUT, PREPROCESS
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
    inside: tuple[Column, ...] | None = None
    """Where text names groups of samples, in each of which regressors are fitted alone: the columns that they are made of."""
    numbers: NDArray[np.intp] | None = None
    """Numbers of the samples, where they are those of one group."""
    where: str = ""
    """The group that they are of, in errors."""

    @property
    def numeric(self) -> bool:
        """Whether it has numbers."""
        return self.values.dtype.kind in "biuf"

    def of_groups(self, levels: Sequence[str]) -> list[tuple[NDArray[np.intp], list[Column]]]:
        """For each group the numbers of its samples, and the columns inside it, of them alone."""
        assert self.inside is not None
        for one in self.inside:
            if one.numeric:
                _finite(one.values, one.name)  # whose error has numbers of all samples
        found = []
        for level in levels:
            own = np.flatnonzero(self.values == level)
            where = f" of {self.name} {level}"
            found.append((own, [replace(one, values=one.values[own], numbers=own, where=where) for one in self.inside]))
        return found


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

    @property
    def members(self) -> tuple[int, ...]:
        """For each group the number of the regressor that is 1 in it, else 0."""
        return tuple(range(len(self.levels)))

    def of_samples(self, column: Column) -> F64:
        """The regressors of samples, (n, levels)."""
        values = np.asarray(column.values)
        if column.numeric:
            raise _of_another_kind(self.name, "numbers", "text")
        found = values[:, None] == np.array(self.levels)[None, :]
        unknown = np.flatnonzero(~found.any(axis=1))
        if unknown.size:
            first = unknown[0] if column.numbers is None else column.numbers[unknown[0]]
            raise InputError(
                f"{KEY}: {self.name} is {values[unknown[0]]} of sample {first}{column.where}, and {len(unknown)} samples in all are of none of "
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
                f"samples{column.where}, and nothing is left",
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
        if not column.numeric:
            raise _of_another_kind(self.name, "text", "numbers")
        scaled = (_finite(values, self.name) - self.middle) / self.half
        polynomials = np.polynomial.legendre.legvander(scaled, len(self.means))[:, 1:]
        return np.asarray(polynomials - np.array(self.means), np.float64)


Simple = Levels | Polynomial


def _term_of(column: Column) -> Simple:
    return Polynomial.of(column) if column.numeric else Levels.of(column)


@dataclass(frozen=True)
class Within:
    """Terms of each group of samples alone, and its mean: regressors are those of the group where a sample is in it, else 0."""

    name: str
    levels: tuple[str, ...]
    """Names of the groups."""
    terms: tuple[tuple[Simple, ...], ...]
    """Those of each group. Their regressors follow that of its mean, which is 1 where a sample is in it."""

    @classmethod
    def of(cls, column: Column) -> Self:
        """Those of the groups that a column of text names."""
        levels = Levels.of(column).levels
        return cls(column.name, levels, tuple(tuple(map(_term_of, inside)) for _, inside in column.of_groups(levels)))

    @property
    def names(self) -> tuple[str, ...]:
        of_means = Levels(self.name, self.levels).names
        return tuple(
            name
            for mean, terms in zip(of_means, self.terms, strict=True)
            for name in (mean, *(f"{mean}: {inner}" for term in terms for inner in term.names))
        )

    def of_samples(self, column: Column) -> F64:
        """The regressors of samples, (n, p)."""
        indicators = Levels(self.name, self.levels).of_samples(column)
        blocks = [indicators[:, [number]] for number in range(len(self.levels))]
        for number, (terms, (own, inside)) in enumerate(zip(self.terms, column.of_groups(self.levels), strict=True)):
            if terms:
                block = np.zeros((len(indicators), sum(len(term.names) for term in terms)))
                block[own] = matrix_of(terms, inside)
                blocks[number] = np.hstack([blocks[number], block])
        return np.hstack(blocks)

    @property
    def members(self) -> tuple[int, ...]:
        """For each group the number of the regressor that is 1 in it, else 0."""
        widths = [1 + sum(len(term.names) for term in terms) for terms in self.terms]
        return tuple(accumulate(widths[:-1], initial=0))

    def regression(self, matrix: F64) -> Regression:
        """That of each group by itself.

        Parameters
        ----------
        matrix : the regressors of the samples of the fit, (n, p)
        """
        n, p = matrix.shape
        parts, groups, stops = [], groups_of(self, matrix), (*self.members[1:], p)
        for level, terms, own, mean, stop in zip(self.levels, self.terms, groups, self.members, stops, strict=True):
            inside = slice(mean + 1, stop)
            parts.append(FitPart(own, self._inside(level, terms, matrix[own, inside]), inside, mean))
        return Regression(tuple(parts), n, p, groups)

    def _inside(self, level: str, terms: tuple[Simple, ...], matrix: F64) -> LeastSquares:
        """The fit of a group."""
        n, p = matrix.shape
        if terms and (found := _least_squares_of(terms, matrix)) is not None:
            return found
        if not terms and n > 1:
            return LeastSquares(np.full((n, 1), 1 / np.sqrt(n)), np.zeros((0, 0)))
        fitted = ", ".join([*(term.name for term in terms), "the mean"])
        raise ConfigError(
            f"{KEY}: {fitted} fit {f'all {n} samples' if n > 1 else 'the only sample'} of {self.name} {level} exactly, with "
            f"{min(n, p + 1)} parameter{'s' * (n > 1)}, and nothing is left of them",
            f"Leave samples of that group out with {INPUT.samples}, "
            + (f"fit fewer regressors in each {self.name}, " * bool(terms))
            + f"or give in {KEY.by} groups of more samples.",
            KEY.by,
        )


Term = Simple | Within
Terms = tuple[Term, ...]


def terms_of(stored: Sequence[Mapping[str, Any]]) -> Terms:
    """Terms from plain values, as `Design.stored` writes them."""
    return tuple(
        Within(one["name"], tuple(one["levels"]), tuple(tuple(map(_simple_of, terms)) for terms in one["terms"]))
        if "terms" in one
        else _simple_of(one)
        for one in stored
    )


def _simple_of(one: Mapping[str, Any]) -> Simple:
    if "levels" in one:
        return Levels(one["name"], tuple(one["levels"]))
    return Polynomial(one["name"], one["middle"], one["half"], tuple(one["means"]), one["attributes"])


def title_of(terms: Terms) -> str:
    """Terms in words: month, time; or month, time and the mean in each run alone."""
    if terms and isinstance(within := terms[0], Within):
        inside = ", ".join(term.name for term in within.terms[0])
        return f"{inside} and the mean in each {within.name} alone".removeprefix(" and ")
    return ", ".join(term.name for term in terms)


def columns_behind(terms: Terms, matrix: F64, first: int) -> F64:
    """Numbers of samples, (n, q), that as covariates fit what the regressors of terms from number `first` on do.

    Parameters
    ----------
    matrix : the regressors of the samples, (n, p)
    first : number of a term; in each group, where terms are of groups
    """
    if not isinstance(within := terms[0], Within):
        return matrix[:, sum(len(term.names) for term in terms[:first]) :]
    blocks, start = [], 0
    for inside in within.terms:  # those of other groups are 0, so that those of all groups lie in the same columns
        before, behind = (sum(len(term.names) for term in part) for part in (inside[:first], inside[first:]))
        start += 1 + before
        blocks.append(matrix[:, start : start + behind])
        start += behind
    found = np.zeros((len(matrix), max(block.shape[1] for block in blocks)))
    for block in blocks:
        found[:, : block.shape[1]] += block
    return found


def groups_of(term: Levels | Within, matrix: F64) -> tuple[NDArray[np.intp], ...]:
    """The numbers of the samples of each group, from the regressors that begin with those of the term."""
    return tuple(np.flatnonzero(matrix[:, member]) for member in term.members)


def levels_behind(within: Within, matrix: F64) -> NDArray[Any]:
    """The name of the group of each sample, (n,), from the regressors."""
    names: NDArray[Any] = np.array(within.levels)[matrix[:, list(within.members)].argmax(axis=1)]
    return names


def grouped(terms: Terms) -> Levels | Within | None:
    """The term that says in which group a sample is: the first one; None where that has numbers."""
    return None if isinstance(terms[0], Polynomial) else terms[0]


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
        terms = tuple(_term_of(one) if one.inside is None else Within.of(one) for one in columns)
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
        """The fit of all samples, or of each group.

        The fit is the mean plus Z B. The coefficients of groups, each times its share of the samples, sum to 0: they are what a
        group differs by. If regressors depend on each other, coefficients are the smallest that give the fit.
        """
        if isinstance(within := self.terms[0], Within):
            return within.regression(self.matrix)
        found = _least_squares_of(self.terms, self.matrix)
        if found is None:
            n, p = self.matrix.shape
            raise ConfigError(
                f"{KEY}: {title_of(self.terms)} fit all {n} samples exactly, with {min(n, p + 1)} parameters, the "
                "constant included, and nothing is left",
                "Take fewer (a season in place of a day of the year, a smaller degree), or more samples.",
                KEY,
            )
        return Regression.of_all(found, () if (first := grouped(self.terms)) is None else groups_of(first, self.matrix))

    @property
    def groups(self) -> tuple[str, ...]:
        """Names of the groups that samples are in by the first term; none where that has numbers."""
        first = grouped(self.terms)
        return () if first is None else Levels(first.name, first.levels).names


def _least_squares_of(terms: Sequence[Term], matrix: F64) -> LeastSquares | None:
    """The fit of terms and a constant; None where they fit all samples exactly.

    Parameters
    ----------
    matrix : the regressors of the samples, (n, p)
    """
    n, p = matrix.shape
    try:
        basis = np.asarray(LessCovariates(matrix).basis, np.float64)
    except ConfigError:
        return None
    means = matrix.mean(axis=0)
    found = np.linalg.lstsq(matrix - means, basis[:, 1:], rcond=max(n, p) * EPS)[0]
    start = 0
    for term in terms:
        of_term = slice(start, start + len(term.names))
        if isinstance(term, Levels):
            found[of_term] -= means[of_term] @ found[of_term]
        start = of_term.stop
    return LeastSquares(basis, found)


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
