"""The names of samples and features of a result, and its dates."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpca.store.results import Result

FIRST_YEAR = 1583
"""From this year on, the calendars that CF calls standard agree."""
MOST_SECONDS, TICK = 1e12, 1e-4
"""The largest distance from 1970 that is taken for a date; and the error of sums of fractions of a day, in seconds."""
_SINCE = re.compile(
    r"(day|hour|minute|second)s? since (\d{4}-\d\d?-\d\d?)(?:[T ](\d\d:\d\d)(?::00(?:\.0)?)?)?(?: ?(?:UTC|Z))?"
)
_SECONDS = {"day": 86400, "hour": 3600, "minute": 60, "second": 1}
_CALENDARS = ("standard", "gregorian", "proleptic_gregorian")


def sample_names(result: Result, numbers: Sequence[int] | None = None) -> list[str]:
    """The names of all or some samples: from their coordinate, else their numbers."""
    return names_along(result, result.dims.sample, range(result.n_samples) if numbers is None else numbers)


def names_along(result: Result, dim: str, numbers: Sequence[int]) -> list[str]:
    """The names of some positions along a dimension: from its coordinate, else their numbers."""
    coordinate = result.coordinate(dim)
    if coordinate is None:
        return [str(number) for number in numbers]
    whole = len(numbers) == coordinate.values.shape[0]
    stored = np.asarray(coordinate.values[...] if whole else [coordinate.values[number] for number in numbers])
    times = moments(stored, coordinate.attributes)
    if times is not None:
        return [str(moment) for moment in times]
    return [f"{value:g}" if coordinate.values.dtype.kind == "f" else str(value) for value in stored]


def moments(values: NDArray[Any], attributes: Mapping[str, Any]) -> NDArray[np.datetime64] | None:
    """Dates and times of a coordinate in the CF conventions' units of time since a date (4.4); None for other units.

    They are in days, seconds or milliseconds: the coarsest unit that keeps the stored precision. None also for model
    calendars, whose years have other lengths, and for times finer than a millisecond: these are left as numbers.
    """
    match = _SINCE.fullmatch(str(attributes.get("units", "")).strip())
    if match is None or values.dtype.kind not in "iuf" or attributes.get("calendar", "standard") not in _CALENDARS:
        return None
    unit, date, time = match.groups()
    year, month, day = (int(part) for part in date.split("-"))
    begins = np.datetime64(f"{year:04d}-{month:02d}-{day:02d}T{time or '00:00'}", "s")
    since_1970 = values.astype(np.float64) * _SECONDS[unit] + begins.astype(np.int64)
    if year < FIRST_YEAR or not (np.abs(since_1970) < MOST_SECONDS).all():
        return None
    stored_to = np.spacing(np.abs(values)) * _SECONDS[unit] if values.dtype.kind == "f" else 0.0
    for name, per_second in (("D", 1 / 86400), ("s", 1), ("ms", 1000)):
        ticks = np.round(since_1970 * per_second)
        if (np.abs(ticks / per_second - since_1970) <= np.maximum(stored_to, TICK)).all():
            return ticks.astype(np.int64).astype(f"datetime64[{name}]")
    return None
