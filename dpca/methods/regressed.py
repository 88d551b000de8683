"""The regressors that a configuration asks for, of the samples of a fit and of new ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpca.config.inputs import Covariates
from dpca.config.schema import RegressOut
from dpca.derived.regressors import KEY, Column, Design, Levels, matrix_of, terms_of
from dpca.errors import InputError
from dpca.sources.groups import FeatureGroup, has_names
from dpca.sources.regressors import covariates_of, cycle_of, times_of, trend_of
from dpca.store.results import Result
from dpca.types import F64


def design_of(asked: RegressOut | None, groups: Sequence[FeatureGroup], given: Sequence[Column] = ()) -> Design | None:
    """The regressors of the samples that inputs share; None for none. Reads coordinates and covariates.

    Parameters
    ----------
    given : covariates in memory, instead of a file
    """
    if asked is None:
        return None
    columns = [*_of_time(asked, groups), *given]
    if asked.covariates is not None:
        where = asked.covariates
        columns += _covariates(where, groups, where.columns, where.categorical or (), KEY.covariates.key)
    return Design.of(columns)


def regressors_of(
    fit: Result, groups: Sequence[FeatureGroup], given: Covariates | Sequence[Column] | None
) -> F64 | None:
    """The regressors of new samples, (m, p), as a fit defines them; None where it subtracts no regression.

    Parameters
    ----------
    given : covariates of the new samples, or where they are, if the fit has any
    """
    asked, key = asked_of(fit), "covariates"
    if given is not None and (asked is None or asked.covariates is None):
        raise InputError(
            f"{fit.name}: was fitted without covariates, but new samples are given some", "Leave covariates out.", key
        )
    if asked is None:
        return None
    terms = terms_of(fit.manifest["regressors"])
    into = next((term.attributes for term in terms if not isinstance(term, Levels)), None) if asked.trend else None
    columns = _of_time(asked, groups, into)
    if asked.covariates is not None:
        names = asked.covariates.columns
        if given is None:
            raise InputError(
                f"{fit.name}: covariates were regressed out ({', '.join(names or [asked.covariates.uri])}), and those of the new "
                "samples are not given",
                "Name them in a YAML file of the new samples: uri, and covariates: {uri: PATH, columns: [...]}; in Python pass "
                "covariates to transform.",
                key,
            )
        if isinstance(given, Covariates):  # each column is read as what it is in the fit: few values may look otherwise
            named = given.columns or names
            of_fit = zip(named or (), terms[len(columns) :], strict=False)
            columns += _covariates(
                given, groups, named, [name for name, term in of_fit if isinstance(term, Levels)], key
            )
        else:
            columns += given
    if len(columns) != len(terms):
        raise InputError(
            f"{fit.name}: was fitted with {', '.join(term.name for term in terms)}, but new samples have "
            + ", ".join(column.name for column in columns),
            "Give as many columns of covariates, in the order of the fit.",
            key,
        )
    return matrix_of(terms, columns)


def columns_in(given: Any, n_samples: int, names: Sequence[str] | None = None) -> list[Column]:
    """Covariates in memory as columns.

    Parameters
    ----------
    given : an array of numbers, (n,) or (n, q); or arrays (n,) of numbers or text by name, such as a DataFrame. Their types
        decide: text and pandas.Categorical are categories, also if each value is a number
    names : of those to take, in this order, where they have names; None for all
    """
    if hasattr(given, "items"):
        arrays = {str(name): _of_type(str(name), values) for name, values in given.items()}
        absent = [name for name in names or arrays if name not in arrays]
        if absent:
            raise InputError(
                f"covariates have {', '.join(arrays)}, but the fit had {', '.join(names or [])}",
                "Give those of the fit.",
            )
        arrays = {name: arrays[name] for name in names or arrays}
    else:
        matrix = np.asarray(given)
        matrix = matrix[:, None] if matrix.ndim == 1 else matrix
        if matrix.ndim != 2 or matrix.dtype.kind not in "biuf":
            raise InputError(
                f"covariates have shape {matrix.shape} and type {matrix.dtype}, but numbers, (n,) or (n, q), are allowed",
                "Give text by name, in a mapping or a DataFrame.",
            )
        arrays = {f"covariate {number}": values for number, values in enumerate(matrix.T)}
    for name, values in arrays.items():
        if values.shape != (n_samples,):
            raise InputError(
                f"covariates: {name} has shape {values.shape}, but X has {n_samples} samples",
                "Give one for each sample.",
            )
    return [Column(name, values) for name, values in arrays.items()]


def _of_type(name: str, values: Any) -> NDArray[Any]:
    """Values as numbers, or as the text of categories, as their type says; of Python objects that of the values."""
    is_categorical = hasattr(getattr(values, "dtype", None), "categories")
    found = np.asarray(values, object if is_categorical else None)
    if found.dtype.kind == "O":
        lacking = next((number for number, one in enumerate(found.ravel()) if _is_missing(one)), None)
        if lacking is not None:
            raise InputError(
                f"covariates: {name} is missing ({found.ravel()[lacking]!r}) of sample {lacking}",
                "Give a value for each sample, or leave out those without one.",
            )
        found = np.array(found.tolist())
    return found if found.dtype.kind in "biuf" and not is_categorical else found.astype(str)


def _is_missing(value: Any) -> bool:
    """Whether it is None, NaN, or pandas.NA, which equals nothing and is no truth."""
    try:
        return value is None or bool(value != value)
    except TypeError:
        return True


def asked_of(fit: Result) -> RegressOut | None:
    """Regression that a fit subtracts beside means, as its configuration says; None for nothing."""
    asked = fit.manifest["config"]["preprocess"].get("regress_out")
    return None if asked is None else RegressOut.model_validate(asked)


def _of_time(asked: RegressOut, groups: Sequence[FeatureGroup], into: Mapping[str, Any] | None = None) -> list[Column]:
    """The columns that times give; `into` has the units of the fit."""
    columns = []
    if asked.seasonal_cycle is not None:
        key = KEY.seasonal_cycle.key
        groups_of_dates = cycle_of(times_of(groups, key), asked.seasonal_cycle, key)
        columns.append(Column(asked.seasonal_cycle, groups_of_dates))
    if asked.trend is not None:
        key = KEY.trend.key
        numbers, attributes = trend_of(times_of(groups, key), key, into)
        columns.append(Column("time", numbers, asked.trend, attributes))
    return columns


def _covariates(
    given: Covariates,
    groups: Sequence[FeatureGroup],
    names: Sequence[str] | None,
    categorical: Sequence[str],
    key: str,
) -> list[Column]:
    """The columns of these names of a file; samples are found by the names of an input that has any."""
    named = [group for group in groups if given.key is not None and has_names(group)]
    found = covariates_of((named or list(groups))[0], given.uri, given.array, names, given.key, key, categorical)
    return [Column(name, values) for name, values in found]
