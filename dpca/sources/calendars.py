"""Dates of time axes: numbers in units of time since a date (CF conventions, 4.4), in calendars of the world and of models.

Years of 365, 366 or 360 days, and dates before 1583, are counted by cftime, which only this file knows (extra `netcdf`).
Without it they stay numbers.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from fractions import Fraction
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpca.errors import InputError

MOST_SECONDS, TICK = 1e12, 1e-4
"""The largest distance from the beginning of a count that is taken for a date; the error of sums of fractions of a day."""
FIRST_YEAR = 1583
"""From this year on, the calendars of the world agree."""
_FIRST_DAY = np.datetime64("1582-10-15")
"""With this day the calendar that CF calls standard becomes the Gregorian one."""
_YEAR_0 = np.datetime64("0000-01-01")
_MIXED, _PROLEPTIC = ("standard", "gregorian"), ("proleptic_gregorian",)
_SINCE = re.compile(
    r"(week|day|hour|minute|(?:milli|micro|nano)?second)s? since (\d{4}-\d\d?-\d\d?)(?:[T ](\d\d:\d\d)(?::00(?:\.0)?)?)?(?: ?(?:UTC|Z))?"
)
_SECONDS = {"week": 604800, "day": 86400, "hour": 3600, "minute": 60, "second": 1} | {
    "millisecond": 1e-3,
    "microsecond": 1e-6,
    "nanosecond": 1e-9,
}
_STEPS = {"D": ("days", 86400.0), "s": ("seconds", 1.0), "ms": ("milliseconds", 1e-3)}
SEASONS = ("DJF", "MAM", "JJA", "SON")
"""By the number of the month in the year: month % 12 // 3."""
_ISO = re.compile(r"([+-]?\d{4,}-\d\d-\d\d)(?:[T ](\d\d):(\d\d)(?::(\d\d(?:\.\d{1,6})?))?)?")


_WRITTEN = re.compile(
    r"([+-]?\d{4,})(?:-(\d\d?)(?:-(\d\d?)(?:[T ] *(\d\d?)(?::(\d\d)(?::(\d\d)(?:\.(\d+))?)?)?)?)?)?(?: *(?:Z|UTC))?"
)
_NAMED = re.compile(
    r"[+-]?\d{4,}-(?:0[1-9]|1[012])(?:-(?:0[1-9]|[12]\d|3[01])(?:[T ]\d\d(?::\d\d(?::\d\d(?:\.\d+)?)?)?Z?)?)?"
)
OF_NAMES: Mapping[str, str] = {"units": "days since 1970-01-01", "calendar": "proleptic_gregorian"}
"""In what dates that are names count."""
Moment = tuple[int, ...]
"""Year, month, day, hour, minute, second and microsecond, as far as they are known: (1998, 2) is all of that month. Moments of one
calendar are in the order of these numbers, whatever its years are."""


@dataclass(frozen=True)
class _Count:
    """A count of time: so many seconds a unit, from so many seconds after a midnight."""

    unit: float
    midnight: Any
    """numpy.datetime64 in days, or cftime.datetime."""
    after: float

    def ticks(self, values: NDArray[Any]) -> tuple[str, NDArray[np.int64]] | None:
        """Whole days, seconds or milliseconds after midnight, the coarsest that keep the stored precision; None for finer times."""
        counted = values.astype(np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            seconds = counted * self.unit + self.after
            if not (np.abs(seconds) < MOST_SECONDS).all():
                return None
        stored_to = np.spacing(np.abs(values)) * self.unit if values.dtype.kind == "f" else 0.0
        for name, (_, step) in _STEPS.items():
            ticks = np.round(seconds / step)
            if (np.abs(ticks * step - seconds) <= np.maximum(stored_to, TICK)).all():
                return name, ticks.astype(np.int64)
        return None


def datetimes(values: NDArray[Any], attributes: Mapping[str, Any]) -> NDArray[np.datetime64] | None:
    """Dates and times of a coordinate as NumPy has them, exactly; None for other units, and in calendars of models.

    They are in days, seconds or milliseconds: the coarsest unit that keeps the stored precision. None also for times
    finer than a millisecond, and for dates that the calendar does not share with NumPy's, which is Gregorian at all times.

    Parameters
    ----------
    values : numbers, along one axis
    attributes : `units`, such as days since 1850-01-01, and `calendar`; standard if absent
    """
    count, calendar = _of_the_world(attributes), _calendar(attributes)
    if values.dtype.kind not in "iuf" or calendar not in (*_MIXED, *_PROLEPTIC):
        return None
    if count is not None and (found := count.ticks(values)) is not None:
        name, ticks = found
        moments: NDArray[np.datetime64] = count.midnight.astype(f"datetime64[{name}]") + ticks
    else:
        texts = _of_cftime(values, attributes)
        if texts is None:
            return None
        moments = np.array(texts, "datetime64")
    return moments if calendar in _PROLEPTIC or (moments >= _FIRST_DAY).all() else None


def dates(values: NDArray[Any], attributes: Mapping[str, Any]) -> list[str] | None:
    """Dates and times of a coordinate as ISO 8601 writes them, 1999-02-30 also, where years have 360 days; None for other units.

    None also for times finer than a millisecond, and where cftime is needed and not installed (`needs_cftime`). Names are dates
    where each tells a month at least, and are as they were written.

    Parameters
    ----------
    values, attributes : as for `datetimes`
    """
    if values.dtype.kind not in "biuf":
        names = [str(value) for value in values.tolist()]
        return names if names and all(map(_NAMED.fullmatch, names)) else None
    moments = datetimes(values, attributes)
    if moments is None or (moments < _YEAR_0).any():  # negative years are no ISO 8601 as NumPy writes them
        return _of_cftime(values, attributes)
    return [str(moment) for moment in moments]


def as_names(values: NDArray[Any], attributes: Mapping[str, Any]) -> list[str]:
    """The values of a coordinate as text: dates where its attributes say that they are."""
    told = dates(values, attributes)
    if told is not None:
        return told
    return [text_of_number(value) if values.dtype.kind == "f" else str(value) for value in values]


def days_of(names: Sequence[str]) -> NDArray[np.float64] | None:
    """The days of names that are dates, in units of `OF_NAMES`, (n,); None for a day that only calendars of models have."""
    try:
        return np.array(names, "datetime64[ms]").astype(np.float64) / 86_400_000
    except ValueError:
        return None


def text_of_number(value: np.floating[Any]) -> str:
    """The shortest text that reads back as the same number of its type: 3, 0.1, 20000101.0."""
    short = f"{value:g}"
    return short if type(value)(short) == value else str(value)


def moments(values: NDArray[Any], attributes: Mapping[str, Any]) -> list[Moment] | None:
    """The dates of a coordinate as numbers that compare as they do, of names as far as they tell it; None where `dates` gives none."""
    told = dates(values, attributes)
    return (
        None
        if told is None
        else [_moment(match, whole=values.dtype.kind in "iuf") for match in map(_WRITTEN.fullmatch, told) if match]
    )


def moment_of(date: str, attributes: Mapping[str, Any], name: str) -> Moment:
    """A date as someone writes it, as far as it is written: 1998, 1998-2, 1998-02-01 12:00, 1998-02-01T12:00:00Z.

    Parameters
    ----------
    attributes : of the coordinate, as for `datetimes`
    name : of the coordinate, in errors
    """
    match = _WRITTEN.fullmatch(date.strip())
    if match is None:
        raise InputError(
            f"{name}: {date!r} is no date",
            "Write as much as is meant of 1999-02-28T12:00:00: 1999, 1999-02, 1999-02-28 12:00.",
        )
    moment = _moment(match, whole=False)
    if len(moment) > 2:
        attributes = attributes if is_time(attributes) else OF_NAMES
        number_of(f"{match[1]}-{moment[1]:02d}-{moment[2]:02d}", attributes, name)  # refuses what its calendar has not
    if any(number > most for number, most in zip(moment[1:], (12, 31, 23, 59, 59), strict=False)) or 0 in moment[1:3]:
        raise InputError(
            f"{name}: {date!r} is no date", "Write months from 1 to 12, hours to 23, minutes and seconds to 59."
        )
    return moment


def _moment(match: re.Match[str], whole: bool = True) -> Moment:
    *numbers, fraction = match.groups()
    found = [int(number) for number in numbers if number is not None]
    if fraction is not None:
        found.append(int(fraction[:6].ljust(6, "0")))
    return (*found, *(0 for _ in range(7 - len(found)))) if whole else tuple(found)


def number_of(date: str, attributes: Mapping[str, Any], name: str) -> float:
    """The number of a date in the units of a coordinate: what `dates` writes, read back.

    Parameters
    ----------
    date : 1999-02-28, or 1999-02-28T12:00:00
    attributes : as for `datetimes`
    name : of the coordinate, in errors
    """
    units, calendar = attributes.get("units"), _calendar(attributes)
    if not is_time(attributes):
        raise InputError(f"{name}: {date!r} is a date, but the units are {units!r}", "Give a number in these units.")
    counts = (_of_the_world(attributes), _of_models(attributes))
    written = _ISO.fullmatch(date.strip())
    for count in counts:
        if count is None or written is None:
            continue
        with suppress(ValueError, OverflowError), _unwarned():
            days, time = _days_after(count.midnight, written[1]), [float(part or 0) for part in written.groups()[1:]]
            before = isinstance(count.midnight, np.datetime64) and count.midnight + days < _FIRST_DAY
            if not (before and calendar in _MIXED) and time[0] < 24 and max(time[1:]) < 60:
                seconds = 86400 * days + 3600 * time[0] + 60 * time[1] + time[2]
                return float((seconds - count.after) / count.unit)
    if counts == (None, None) and needs_cftime(attributes):
        raise InputError(
            f"{name}: dates of calendar {calendar}, {units}, need cftime, which is not installed",
            f"pip install cftime, or give a number of {units}.",
        )
    raise InputError(
        f"{name}: {date!r} is no date of calendar {calendar}, in which its numbers are {units}",
        "Write 1999-02-28 or 1999-02-28T12:00:00, a day that the calendar has.",
    )


@dataclass(frozen=True)
class Conversion:
    """The change of numbers from one unit of time to another: value * factor + shift."""

    factor: Fraction = Fraction(1)
    shift: Fraction = Fraction(0)

    @property
    def keeps_integers(self) -> bool:
        """Whether integers stay integers."""
        return self.factor.denominator == self.shift.denominator == 1

    def __call__(self, values: NDArray[Any]) -> NDArray[Any]:
        """Numbers in the other unit: int64 if they are integers and stay so, else float64; as they are if nothing changes."""
        if self == Conversion():
            return values
        if self.keeps_integers and values.dtype.kind in "iu":
            return values.astype(np.int64) * int(self.factor) + int(self.shift)
        return values.astype(np.float64) * float(self.factor) + float(self.shift)


def conversion(attributes: Mapping[str, Any], into: Mapping[str, Any]) -> Conversion | None:
    """Conversion of times to other units; None if their calendars differ, or one is not understood.

    Parameters
    ----------
    attributes, into : of the times, and of times in the other units, as for `datetimes`
    """
    for count_of in (_of_the_world, _of_models):
        ours, theirs = count_of(attributes), count_of(into)
        if ours is None or theirs is None:
            continue
        with suppress(TypeError, ValueError), _unwarned():  # cftime does not subtract dates of two calendars
            days = _days_between(ours.midnight, theirs.midnight)
            unit, other = (Fraction(count.unit).limit_denominator(10**9) for count in (ours, theirs))
            shift = 86400 * days + Fraction(ours.after) - Fraction(theirs.after)
            return Conversion(unit / other, shift / other)
    return None


def needs_cftime(attributes: Mapping[str, Any]) -> bool:
    """Whether a coordinate is a time whose dates only cftime can tell, and cftime is not installed."""
    known = _of_the_world(attributes) is not None
    of_no_length = str(attributes.get("units")).strip().startswith("month") and _calendar(attributes) != "360_day"
    return is_time(attributes) and not known and not of_no_length and find_spec("cftime") is None


def is_time(attributes: Mapping[str, Any]) -> bool:
    """Whether the values of a coordinate are times, by its attributes."""
    return " since " in str(attributes.get("units", ""))


def _calendar(attributes: Mapping[str, Any]) -> str:
    return str(attributes.get("calendar", "standard")).strip().lower()


def _of_the_world(attributes: Mapping[str, Any]) -> _Count | None:
    """The count of units that NumPy's own calendar can tell; None for others."""
    match = _SINCE.fullmatch(str(attributes.get("units", "")).strip())
    if match is None or _calendar(attributes) not in (*_MIXED, *_PROLEPTIC):
        return None
    unit, date, time = match.groups()
    year, month, day = (int(part) for part in date.split("-"))
    if year < FIRST_YEAR:
        return None
    hour, minute = (int(part) for part in (time or "00:00").split(":"))
    try:
        midnight = np.datetime64(f"{year:04d}-{month:02d}-{day:02d}", "D")
    except ValueError:  # 30 February
        return None
    return _Count(_SECONDS[unit], midnight, 3600 * hour + 60 * minute)


def _of_models(attributes: Mapping[str, Any]) -> _Count | None:
    """The count of units that cftime can tell; None for others, and without cftime."""
    if not is_time(attributes) or find_spec("cftime") is None:
        return None
    import cftime

    with suppress(ValueError, OverflowError), _unwarned():
        units, calendar = str(attributes["units"]).strip(), _calendar(attributes)
        begin, following = cftime.num2date(np.array([0, 1]), units, calendar, only_use_cftime_datetimes=True)
        midnight = begin.replace(hour=0, minute=0, second=0, microsecond=0)
        return _Count((following - begin).total_seconds(), midnight, (begin - midnight).total_seconds())
    return None


def _of_cftime(values: NDArray[Any], attributes: Mapping[str, Any]) -> list[str] | None:
    count = _of_models(attributes)
    if count is None or values.dtype.kind not in "iuf" or (found := count.ticks(values)) is None:
        return None
    name, ticks = found
    with suppress(ValueError, OverflowError), _unwarned():
        moments = (count.midnight + timedelta(**{_STEPS[name][0]: tick}) for tick in ticks.tolist())
        if name == "D":
            return [moment.isoformat().partition("T")[0] for moment in moments]
        return [moment.isoformat(timespec="seconds" if name == "s" else "milliseconds") for moment in moments]
    return None


@contextmanager
def _unwarned() -> Iterator[None]:
    """Without cftime's warnings of years before 1, which CF does not know in some calendars."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*not supported by CF")
        yield


def _days_between(one: Any, other: Any) -> int:
    """The days from the second midnight to the first, of the same calendar."""
    difference = one - other
    return int(difference.astype(np.int64)) if isinstance(difference, np.timedelta64) else int(difference.days)


def _days_after(midnight: Any, date: str) -> int:
    """The days from one day to another of the same calendar."""
    if isinstance(midnight, np.datetime64):
        return int((np.datetime64(date, "D") - midnight).astype(np.int64))
    year, month, day = (int(part) for part in date.rsplit("-", 2))
    return int((midnight.replace(year=year, month=month, day=day) - midnight).days)
