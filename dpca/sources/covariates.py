"""Covariates of samples from a file: columns of a table, or an array."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dpca.errors import DpcaError, InputError
from dpca.sources import open_source
from dpca.sources.columns import DELIMITERS, matched
from dpca.sources.labels import Place, open_labels

F64 = NDArray[np.float64]


def read_covariates(
    place: Place, n_samples: int, columns: Sequence[str] | None, ids: str | None, names: Sequence[str]
) -> tuple[F64, list[str]]:
    """Covariates, (n_samples, covariates), and their names.

    Parameters
    ----------
    place : a table, or an array of (n_samples,) or (n_samples, covariates)
    columns : of a table; a column that is not of numbers gives one covariate for each of its values but the first
    ids : column with the samples' names, by which rows are found; None where rows are in the order of the samples
    names : of the samples

    Raises
    ------
    InputError
        When they can't be read, are of other samples, or are not finite.
    """
    if not place.uri.lower().endswith(tuple(DELIMITERS)):
        return _of_array(place, n_samples, columns or ids)
    if columns is None:
        raise InputError(
            f"{place.shown}: which columns are covariates is not said", "Name them: columns: [age, site].", place.key
        )
    if ids is not None and not names:
        raise InputError(
            f"{place.shown}: key is {ids!r}, but the samples have no names to find there",
            "Leave key out if rows are in the order of the samples.",
            f"{place.key}.key",
        )
    values, called = [], []
    for column in columns:
        texts = _column(place, column, ids, n_samples, names)
        try:
            values.append(np.array([float(text) for text in texts]))
            called.append(column)
        except ValueError:
            for level in sorted({*texts})[1:]:
                values.append(np.array([float(text == level) for text in texts]))
                called.append(f"{column} {level}")
    if not values:
        raise InputError(
            f"{place.shown}: {', '.join(columns)} is the same for all samples", "Name another column.", place.key
        )
    return _finite(np.stack(values, axis=1), place), called


def _column(place: Place, column: str, ids: str | None, n_samples: int, names: Sequence[str]) -> list[str]:
    """The values of a column as text, one for each sample."""
    if ids is not None:
        return [str(value) for value in matched(place.uri, column, ids, list(names), place.key)]
    own = Place(place.uri, place.array, column, place.key)
    return [str(value) for value in open_labels(own, n_samples)[...].tolist()]


def _of_array(place: Place, n_samples: int, of_table: object) -> tuple[F64, list[str]]:
    if of_table is not None:
        raise InputError(
            f"{place.shown}: has no columns with names: it is neither .csv nor .tsv",
            "Leave columns and key out.",
            place.key,
        )
    try:
        source = open_source(place.uri, place.array)
    except DpcaError as cause:
        raise InputError(f"{cause.message}", cause.remedy, place.key) from cause
    shape = source.layout.shape
    if shape[0] != n_samples or len(shape) > 2:
        raise InputError(
            f"{place.shown}: has shape {shape}, but there are {n_samples:,} samples", "Give a row for each.", place.key
        )
    with source.open() as reader:
        values = reader.read(tuple(slice(0, length) for length in shape)).astype(np.float64)
    return _finite(values.reshape(n_samples, -1), place), [source.layout.name]


def _finite(values: F64, place: Place) -> F64:
    wrong = np.argwhere(~np.isfinite(values))
    if wrong.size:
        raise InputError(
            f"{place.shown}: the covariate of sample {wrong[0][0]} is {values[tuple(wrong[0])]}",
            "Fill it, or select the samples that have one.",
            place.key,
        )
    return values
