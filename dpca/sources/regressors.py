"""Regressors of samples: their dates and times, and covariates in files beside the data."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dpca.errors import ConfigError, InputError
from dpca.settings import INPUT, Setting, either
from dpca.sources import calendars, open_source
from dpca.sources.calendars import as_names
from dpca.sources.columns import DELIMITERS
from dpca.sources.credentials import without_credentials
from dpca.sources.file import fingerprint_of_bytes
from dpca.sources.groups import FeatureGroup, has_names
from dpca.sources.labels import Place, is_categorical, labels_of, open_values
from dpca.types import F64

Cycle = Literal["season", "month", "day_of_year", "hour"]

_DATE = re.compile(r"-?\d+-(\d\d)(?:-(\d\d)(?:[T ](\d\d).*)?)?")


@dataclass(frozen=True)
class Times:
    """The times of samples."""

    name: str
    """Name of the data, in errors."""
    numbers: F64 | None
    """In units of the attributes, if these are of time; None where samples have names."""
    attributes: Mapping[str, Any]
    dates: list[str] | None
    """Dates as ISO 8601 writes them; None where they are plain numbers, or names."""


def times_of(groups: Sequence[FeatureGroup], key: str) -> Times:
    """The times of the samples that inputs share, of the first that has any.

    Parameters
    ----------
    key : of the configuration, which needs them
    """
    group = next((group for group in groups if has_names(group)), None)
    name = groups[0].layout.name
    if group is None:
        raise InputError(
            f"{name}: {Setting(key)} needs the samples' dates or times, but its samples axis {groups[0].samples_axis} has no coordinate",
            f"Name the axis that has one with {INPUT.samples_axis}, give dates such as 1999-02-28 with {INPUT.sample_names}, or leave it out.",
            key,
        )
    with group.source.open() as reader:
        coordinate = reader.coordinate(group.samples_axis)
        assert coordinate is not None
        values, attributes = np.asarray(coordinate.values[...]), coordinate.attributes
    if not coordinate.text:
        about = {name: str(attributes[name]) for name in ("units", "calendar") if name in attributes}
        return Times(group.layout.name, values.astype(np.float64), about, calendars.dates(values, attributes))
    texts = calendars.dates(values, attributes)
    days = None if texts is None else calendars.days_of(texts)
    return Times(group.layout.name, days, {} if days is None else calendars.OF_NAMES, texts)


def cycle_of(times: Times, cycle: Cycle, key: str) -> NDArray[Any]:
    """The season, month, day or hour that each sample is of, as text, (n,)."""
    if times.dates is None:
        missing = " (cftime, which is not installed, could tell them)" * calendars.needs_cftime(times.attributes)
        raise InputError(
            f"{times.name}: {Setting(key)} is {cycle}, but the samples' times are no dates: their units are "
            f"{times.attributes.get('units')!r}{missing}",
            "Dates have units such as days since 1850-01-01, or are text such as 1999-02-28; with other times, leave it out.",
            key,
        )
    parts = [found.groups("") if (found := _DATE.fullmatch(date)) else ("", "", "") for date in times.dates]
    needed = int(cycle == "day_of_year")
    lacking = next((date for date, part in zip(times.dates, parts, strict=True) if not part[needed]), None)
    if lacking is not None:
        raise InputError(
            f"{times.name}: {Setting(key)} is {cycle}, but a sample's date is {lacking}, which does not tell it",
            "Choose a coarser one: season or month.",
            key,
        )
    if cycle == "season":
        return np.array([calendars.SEASONS[int(month) % 12 // 3] for month, _, _ in parts])
    if cycle == "month":
        return np.array([month for month, _, _ in parts])
    if cycle == "day_of_year":
        return np.array([f"{month}-{day}" for month, day, _ in parts])
    return np.array([hour or "00" for _, _, hour in parts])


def trend_of(times: Times, key: str, into: Mapping[str, Any] | None = None) -> tuple[F64, Mapping[str, Any]]:
    """The times as numbers, (n,), and their units.

    Parameters
    ----------
    into : the units of the fit, of which new samples are
    """
    if times.numbers is None:
        raise InputError(
            f"{times.name}: {Setting(key)} is a polynomial in time, but the samples have names, and no times",
            "Give numbers or dates along the samples, or leave it out.",
            key,
        )
    if into is None or dict(into) == dict(times.attributes) or not (into.get("units") or times.attributes.get("units")):
        return times.numbers, times.attributes
    convert = calendars.conversion(times.attributes, into)
    if convert is None:
        raise InputError(
            f"{times.name}: times are {times.attributes.get('units')!r} (calendar {times.attributes.get('calendar', 'standard')}), which "
            f"can't be converted to the fit's: {into.get('units')!r} (calendar {into.get('calendar', 'standard')})",
            "Give times in the units and calendar of the fit.",
            key,
        )
    return np.asarray(convert(times.numbers), np.float64), into


def grouped_by(groups: Sequence[FeatureGroup], by: str, key: str) -> NDArray[Any]:
    """The group that each sample is in, as text, (n,), by a coordinate along the samples that is no index, of the first input that has it.

    Parameters
    ----------
    by : its name
    key : of the configuration, which names it
    """
    known = list[str]()
    for group in groups:
        with group.source.open() as reader:
            for one in reader.auxiliaries():
                if one.axes == (group.samples_axis,):
                    if one.coordinate.name == by:
                        values = np.asarray(one.coordinate.values[...])
                        return names_of_groups(values, f"{group.layout.name}: {by}", key, one.coordinate.attributes)
                    known.append(one.coordinate.name)
    has = (
        f"those beside their index are {', '.join(dict.fromkeys(known))}"
        if known
        else "they have none beside their index"
    )
    raise InputError(
        f"{groups[0].layout.name}: {Setting(key)} is {without_credentials(by)!r}, but the samples have no coordinate of that name: {has}",
        "Name one of these, or give " + either("labels in a file: {uri: PATH}.", "a label for each sample."),
        key,
    )


def names_of_groups(
    labels: NDArray[Any], name: str, key: str, attributes: Mapping[str, Any] = MappingProxyType({})
) -> NDArray[Any]:
    """Labels as text, (n,): dates where attributes say so, and whole numbers without a point.

    Parameters
    ----------
    name : of the labels, in errors
    key : of the configuration
    """
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        first = int(np.argmax(~np.isfinite(labels)))
        raise InputError(
            f"{name} is {labels[first]} of sample {first}, which tells no group",
            f"Give each sample a group, or leave samples without one out with {INPUT.samples}.",
            key,
        )
    return np.array(as_names(labels, attributes), str)


def covariates_of(
    group: FeatureGroup,
    uri: str,
    array: str | None,
    columns: Sequence[str] | None,
    ids: str | None,
    key: str,
    categorical: Sequence[str] = (),
) -> list[tuple[str, NDArray[Any]]]:
    """Covariates of samples by name, (n,) each: numbers, or text, which names categories.

    Parameters
    ----------
    group : the samples
    uri, array : a table, .csv or .tsv; or an array, (n,) or (n, q); or a categorical column of AnnData
    columns : of a table; None for an array
    ids : the column of a table with the samples' names; None where rows are in the order of samples in storage
    key : of the configuration that says so
    categorical : those of the columns that stay text, also if each value is a number; a table has no types that could tell
    """
    shown = without_credentials(uri)
    if not _is_table(uri):
        if columns or ids or categorical:
            named = "columns are" if columns else "key is" if ids else "categorical is"
            raise ConfigError(
                f"{shown}: is no table (.csv or .tsv), but {named} named",
                "Leave columns, key and categorical out for an array: all of its columns are covariates, and numbers.",
                key,
            )
        place = Place(uri, array, None, key)
        if is_categorical(place):
            return [("covariate 0", labels_of(group.source, group.samples_axis, place))]
        return _of_array(group, uri, array, key)
    if not columns:
        raise ConfigError(
            f"{shown}: is a table, and which of its columns are covariates is not said",
            f"Name them: {key.rpartition('.')[2]}: {{uri: {shown}, columns: [NAME, NAME]}}.",
            key,
        )
    unknown = [name for name in categorical if name not in columns]
    if unknown:
        raise ConfigError(
            f"{shown}: {unknown[0]!r} is categorical, but the columns are {', '.join(columns)}",
            f"Name some of these in {Setting(key).categorical}.",
            f"{key}.categorical",
        )
    axis = group.samples_axis
    read = {name: labels_of(group.source, axis, Place(uri, array, name, key), ids) for name in columns}
    return [(name, values if name in categorical else _as_numbers(values)) for name, values in read.items()]


def _of_array(group: FeatureGroup, uri: str, array: str | None, key: str) -> list[tuple[str, NDArray[Any]]]:
    source = open_source(uri, array)
    layout, n = source.layout, group.layout.n_stored or group.n_samples
    if layout.shape[:1] not in ((n,), (group.n_samples,)) or len(layout.shape) > 2 or layout.dtype.kind not in "biuf":
        raise InputError(
            f"{layout.name}: covariates have shape {layout.shape} and type {layout.dtype}, but there are {n:,} samples: numbers of shape "
            f"({n},) or ({n}, q) are allowed",
            "Give a row for each sample, in their order; a table (.csv) may have text, and be matched by its key.",
            key,
        )
    with source.open() as reader:
        values = (
            reader.read(tuple(slice(0, length) for length in layout.shape))
            .astype(np.float64)
            .reshape(layout.shape[0], -1)
        )
    if group.source.chosen is not None and len(values) == n:
        values = values[group.source.chosen]
    return [(f"covariate {number}", one) for number, one in enumerate(values.T)]


def fingerprint_of_labels(place: Place) -> dict[str, Any]:
    """Fingerprint that tells labels of samples from others."""
    if place.column is not None:
        return fingerprint_of(place.uri, None)
    names = "\0".join(map(str, np.asarray(open_values(place)[...]).tolist()))
    return {"sha256": hashlib.sha256(names.encode()).hexdigest()}


def fingerprint_of(uri: str, array: str | None) -> dict[str, Any]:
    """Fingerprint that tells a file of covariates from another one."""
    if not _is_table(uri):
        if is_categorical(place := Place(uri, array)):
            names = "\0".join(map(str, open_values(place)[...].tolist()))
            return {"sha256": hashlib.sha256(names.encode()).hexdigest()}
        return open_source(uri, array).fingerprint()
    return fingerprint_of_bytes(uri)


def _is_table(uri: str) -> bool:
    return os.path.splitext(uri)[1].lower() in DELIMITERS


def _as_numbers(values: NDArray[Any]) -> NDArray[Any]:
    """Text as numbers, if each value is one; else as it is."""
    try:
        return values.astype(np.float64)
    except ValueError:
        return values
