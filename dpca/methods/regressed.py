"""The regressors that a configuration asks for, of the samples of a fit and of new ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpca.config.inputs import Covariates, LabelsFile
from dpca.config.schema import RegressOut
from dpca.derived.regressors import KEY, Column, Design, Levels, Polynomial, Within, matrix_of, terms_of
from dpca.errors import InputError
from dpca.sources.groups import FeatureGroup, has_names
from dpca.sources.labels import labels_of
from dpca.sources.regressors import covariates_of, cycle_of, grouped_by, names_of_groups, times_of, trend_of
from dpca.store.results import Result
from dpca.types import F64

GROUP = "group"
"""Name of groups of samples whose labels have none."""


def design_of(
    asked: RegressOut | None, groups: Sequence[FeatureGroup], given: Sequence[Column] = (), by: Column | None = None
) -> Design | None:
    """The regressors of the samples that inputs share; None for none. Reads coordinates, covariates and labels.

    Parameters
    ----------
    given : covariates in memory, instead of a file
    by : labels in memory, instead of a file
    """
    if asked is None:
        return None
    columns = [*_of_time(asked, groups), *given]
    if asked.covariates is not None:
        where = asked.covariates
        columns += _covariates(where, groups, where.columns, where.categorical or (), KEY.covariates.key)
    if by is None and asked.by is not None:
        by = _groups(asked.by, groups, KEY.by.key)
    return Design.of(columns if by is None else [replace(by, inside=tuple(columns))])


def regressors_of(
    fit: Result,
    groups: Sequence[FeatureGroup],
    given: Covariates | Sequence[Column] | None,
    by: LabelsFile | Column | None = None,
) -> F64 | None:
    """The regressors of new samples, (m, p), as a fit defines them; None where it subtracts no regression.

    Parameters
    ----------
    given : covariates of the new samples, or where they are, if the fit has any
    by : labels of their groups, or where they are, if the fit is of groups; a coordinate need not be given
    """
    asked, key = asked_of(fit), "covariates"
    if by is not None and (asked is None or asked.by is None):
        raise InputError(
            f"{fit.name}: was fitted without groups of samples, but new samples are given labels of some",
            "Leave by out.",
            "by",
        )
    if given is not None and (asked is None or asked.covariates is None):
        raise InputError(
            f"{fit.name}: was fitted without covariates, but new samples are given some", "Leave covariates out.", key
        )
    if asked is None:
        return None
    stored = terms_of(fit.manifest["regressors"])
    within = stored[0] if isinstance(stored[0], Within) else None
    terms = stored if within is None else within.terms[0]  # the columns are those of each group
    into = next((term.attributes for term in terms if isinstance(term, Polynomial)), None) if asked.trend else None
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
    if within is not None:
        assert asked.by is not None
        if by is None and not isinstance(asked.by, str):
            raise InputError(
                f"{fit.name}: was fitted in each {within.name} alone, and labels of the new samples are not given",
                "Name them in a YAML file of the new samples: uri, and by: {uri: PATH}; in Python pass by to transform.",
                "by",
            )
        by = by if isinstance(by, Column) else _groups(by or asked.by, groups, "by" if by else KEY.by.key)
    if len(columns) != len(terms):
        raise InputError(
            f"{fit.name}: was fitted with {', '.join(term.name for term in terms)}, but new samples have "
            + ", ".join(column.name for column in columns),
            "Give as many columns of covariates, in the order of the fit.",
            key,
        )
    if within is None:
        return matrix_of(terms, columns)
    assert isinstance(by, Column)
    return within.of_samples(replace(by, inside=tuple(columns)))


def regressors_in(fit: Result, groups: Sequence[FeatureGroup], covariates: Any, by: Any) -> F64 | None:
    """The regressors of new samples by `regressors_of`, of covariates (`columns_in`) and labels (`labels_in`) in memory; None for none."""
    asked, n = asked_of(fit), groups[0].n_samples
    names = asked.covariates.columns if asked is not None and asked.covariates is not None else None
    given = None if covariates is None else columns_in(covariates, n, names)
    return regressors_of(fit, groups, given, None if by is None else labels_in(by, n))


def labels_in(given: Any, n_samples: int) -> Column:
    """Labels of groups of samples in memory as a column, of text; numbers count as their text.

    Parameters
    ----------
    given : (n,), numbers or text; a Series or a DataArray gives its name
    """
    key, name = KEY.by.key, getattr(given, "name", None)
    labels = _of_type(str(KEY.by), given)
    if labels.shape != (n_samples,):
        raise InputError(
            f"{KEY.by} has shape {labels.shape}, but X has {n_samples} samples", "Give a label for each sample.", key
        )
    return Column(GROUP if name is None else str(name), names_of_groups(labels, str(KEY.by), key))


def columns_in(given: Any, n_samples: int, names: Sequence[str] | None = None) -> list[Column]:
    """Covariates in memory as columns.

    Parameters
    ----------
    given : an array of numbers, (n,) or (n, q); or arrays (n,) of numbers or text by name, such as a DataFrame. Their types
        decide: text and pandas.Categorical are categories, also if each value is a number
    names : of those to take, in this order, where they have names; None for all
    """
    if hasattr(given, "items"):
        arrays = {str(name): _of_type(f"covariates: {name}", values) for name, values in given.items()}
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
                f"{name} is missing ({found.ravel()[lacking]!r}) of sample {lacking}",
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
    asked = fit.manifest["config"]["preprocess"]["regress_out"]
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


def _groups(by: str | LabelsFile, groups: Sequence[FeatureGroup], key: str) -> Column:
    """The groups of samples, by a coordinate of this name, or by labels in a file."""
    if isinstance(by, str):
        return Column(by, grouped_by(groups, by, key))
    place, group = by.at(key), _to_match(groups, by.key)
    labels = labels_of(group.source, group.samples_axis, place, by.key)
    return Column(by.column or GROUP, names_of_groups(labels, place.shown, key))


def _to_match(groups: Sequence[FeatureGroup], key: str | None) -> FeatureGroup:
    """The input whose samples find their rows in a table, by their names if these are in its column `key`."""
    return next((group for group in groups if key is not None and has_names(group)), groups[0])


def _covariates(
    given: Covariates,
    groups: Sequence[FeatureGroup],
    names: Sequence[str] | None,
    categorical: Sequence[str],
    key: str,
) -> list[Column]:
    """The columns of these names of a file; samples are found by the names of an input that has any."""
    group = _to_match(groups, given.key)
    found = covariates_of(group, given.uri, given.array, names, given.key, key, categorical)
    return [Column(name, values) for name, values in found]
