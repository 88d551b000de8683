"""Times as the CF conventions store them: numbers in units such as `days since 1950-01-01`, in one of their calendars (4.4)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dpca.sources.calendars import dates

_SECONDS = {
    **dict.fromkeys(("week",), Fraction(604800)),
    **dict.fromkeys(("day", "d"), Fraction(86400)),
    **dict.fromkeys(("hour", "hr", "h"), Fraction(3600)),
    **dict.fromkeys(("minute", "min"), Fraction(60)),
    **dict.fromkeys(("second", "sec", "s"), Fraction(1)),
    **dict.fromkeys(("millisecond", "millisec", "msec", "ms"), Fraction(1, 10**3)),
    **dict.fromkeys(("microsecond", "microsec", "us"), Fraction(1, 10**6)),
    **dict.fromkeys(("nanosecond", "nanosec", "ns"), Fraction(1, 10**9)),
}
"""Seconds of a unit. Months and years are no fixed time."""
_SINCE = re.compile(
    r"\s*(?P<unit>[a-z]+)\s+since\s+(?P<date>-?\d+-\d+-\d+)"
    r"(?:[t\s]+(?P<time>\d+(?::\d+){0,2}(?:\.\d*)?))?\s*(?P<zone>z|utc|gmt|[+-]\d+(?::\d+)?)?\s*",
    re.IGNORECASE,
)
_REAL = ("standard", "gregorian", "proleptic_gregorian", "julian", "")
"""Calendars that name the same days, each in its own way; those of models have days of their own."""
_ALIASES = {"365_day": "noleap", "366_day": "all_leap"}
_NOLEAP = (0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334)
_ALL_LEAP = (0, 31, 60, 91, 121, 152, 182, 213, 244, 274, 305, 335)
_REFORM = (1582, 10, 15)
"""The first day of the Gregorian calendar; before it, dates of the standard calendar are Julian."""


def is_time(attributes: Mapping[str, Any]) -> bool:
    """Whether the values of a coordinate are times, by its attributes."""
    return " since " in str(attributes.get("units", ""))


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


@dataclass(frozen=True)
class TimeUnits:
    """Units and calendar of a coordinate of times."""

    seconds: Fraction
    """Seconds of a unit."""
    epoch: Fraction
    """The time at 0, in seconds from a day that is the same for all units of a calendar."""
    calendar: str
    """Its name in the CF conventions; standard for all calendars that name the same days."""

    @classmethod
    def of(cls, attributes: Mapping[str, Any]) -> Self | None:
        """Units and calendar by the attributes of a coordinate; None if they are not understood."""
        match = _SINCE.fullmatch(str(attributes.get("units", "")))
        calendar = str(attributes.get("calendar", "")).lower()
        if match is None:
            return None
        unit = match["unit"].lower()
        seconds = _SECONDS.get(unit, _SECONDS.get(unit.removesuffix("s")))
        sign = -1 if match["date"].startswith("-") else 1
        year, month, day = map(int, match["date"].removeprefix("-").split("-"))
        days = _days(calendar, sign * year, month, day)
        if seconds is None or days is None:
            return None
        clock = zip((match["time"] or "0").split(":"), (3600, 60, 1), strict=False)
        epoch = 86400 * days + sum((Fraction(number) * size for number, size in clock), Fraction(0))
        calendar = "standard" if calendar in _REAL else _ALIASES.get(calendar, calendar)
        return cls(seconds, epoch - _east(match["zone"] or ""), calendar)

    def to(self, other: TimeUnits) -> Conversion | None:
        """The conversion to other units; None if their calendar differs."""
        if self.calendar != other.calendar:
            return None
        return Conversion(self.seconds / other.seconds, (self.epoch - other.epoch) / other.seconds)


def shown(value: Any, attributes: Mapping[str, Any]) -> str:
    """A time in words: a date, or, where the calendar is not known here, the number and its units."""
    number = np.asarray(value)
    written = dates(number.reshape(1), attributes) if number.dtype.kind in "iuf" else None
    return f"{number.item()} {attributes.get('units', '')}" if written is None else written[0]


def _days(calendar: str, year: int, month: int, day: int) -> int | None:
    """The number of a day in its calendar; None if it has no such calendar or day."""
    if not (1 <= month <= 12 and 1 <= day <= 31):
        return None
    if calendar == "360_day":
        return 360 * year + 30 * (month - 1) + day - 1
    if calendar in ("noleap", "365_day"):
        return 365 * year + _NOLEAP[month - 1] + day - 1
    if calendar in ("all_leap", "366_day"):
        return 366 * year + _ALL_LEAP[month - 1] + day - 1
    if calendar not in _REAL:
        return None
    gregorian = calendar == "proleptic_gregorian" or (calendar != "julian" and (year, month, day) >= _REFORM)
    # Years begin in March here, so that a leap day is the last of its year; before it come (153 m + 2) / 5 days of m months.
    year, month = (year, month - 3) if month > 2 else (year - 1, month + 9)
    number = 365 * year + year // 4 + (153 * month + 2) // 5 + day
    return number - year // 100 + year // 400 + 2 if gregorian else number


def _east(zone: str) -> int:
    """Seconds by which a time zone is ahead of UTC, such as +01:00, -0330 or 5."""
    if not zone or zone.isalpha():
        return 0
    digits = zone[1:].replace(":", "")
    hours, minutes = (digits, "0") if len(digits) < 3 else (digits[:-2], digits[-2:])
    return (-1 if zone[0] == "-" else 1) * (3600 * int(hours) + 60 * int(minutes))
