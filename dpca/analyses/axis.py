"""The axis of samples, or of the rows that operators leave of them: dates, numbers or names, and what follows from these."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpca.derived.times import IRREGULAR, increasing, regular_step
from dpca.errors import ConfigError
from dpca.settings import Setting
from dpca.sources.calendars import SEASONS, dates, days_of, is_time, needs_cftime, number_of
from dpca.sources.coordinate import Coordinate, Parts
from dpca.sources.finding import LabelledAxis
from dpca.types import F64

TIME = Setting("time")

PARTS = {"year": 1, "season": 2, "month": 2, "year_month": 2, "day_of_year": 3, "day": 3, "hour": 3}
"""Parts of dates, by which samples are grouped or selected, and how many of year, month and day tell each."""
COUNTED = frozenset(
    [
        "week",
        "day",
        "hour",
        "minute",
        "second",
        "millisecond",
        "microsecond",
        "nanosecond",
        "month",
        "year",
        "sample",
        "step",
    ]
)
"""Units that are words, so that more of them have an s."""
_MONTH = "month"


@dataclass(frozen=True)
class Clock:
    """Regular times, counted in steps."""

    times: F64
    """Times of the rows, (rows,), in steps."""
    step: str
    """The step in words: 1 month, 5 days."""


@dataclass(frozen=True, eq=False)
class Axis:
    """The coordinate of samples or rows."""

    name: str
    """Name of the dimension."""
    values: NDArray[Any] | None
    """Numbers or text, (rows,); None where they have no coordinate."""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    """`units` and `calendar` make dates of numbers (CF conventions, 4.4)."""

    @classmethod
    def of_coordinate(cls, name: str, coordinate: Coordinate) -> Axis:
        """A coordinate, read."""
        values = np.asarray(coordinate.values[slice(0, coordinate.values.shape[0])])
        return cls(name, np.array(values.tolist()) if coordinate.text else values, coordinate.attributes)

    def of(self, values: NDArray[Any]) -> Axis:
        """This axis with other rows."""
        return replace(self, values=values)

    @property
    def as_coordinate(self) -> Coordinate:
        """This axis as a coordinate, for comparisons; there are values."""
        assert self.values is not None
        return Coordinate(self.name, self.values, Parts.of(self.values.dtype), self.attributes)

    @cached_property
    def dates(self) -> list[str] | None:
        """Dates as ISO 8601 writes them; None where the values are none."""
        return None if self.values is None else dates(self.values, self.attributes)

    @cached_property
    def labelled(self) -> LabelledAxis | None:
        """The values, by which rows are found; None where there are none."""
        return None if self.values is None else LabelledAxis(self.name, self.values, self.attributes)

    @cached_property
    def names(self) -> list[str]:
        """The values as text; empty where there are none."""
        return [] if self.labelled is None else self.labelled.names

    def of_months(self, months: Sequence[str]) -> Axis:
        """The first days of months such as 1999-02, in the units of these dates."""
        if self.values is None or self.values.dtype.kind not in "iuf":
            return self.of(np.array(months))
        return self.of(np.array([number_of(f"{month}-01", self.attributes, self.name) for month in months]))

    def part(self, name: str, others: Sequence[str] = ()) -> NDArray[Any]:
        """A part of each date, (rows,): month, or time.month as xarray writes it.

        Parameters
        ----------
        others : what else is allowed, for the message
        """
        prefix, _, last = name.rpartition(".")
        if last in PARTS and prefix not in ("", self.name):
            raise ConfigError(
                f"samples are grouped by {name!r}, but their axis is {self.name!r}",
                f"Write {self.name}.{last}, or {last} alone.",
                key="by",
            )
        if last not in PARTS:
            near = difflib.get_close_matches(name, [*PARTS, *others], n=1)
            raise ConfigError(
                f"samples are grouped by {name!r}, but {', '.join(PARTS)} of their dates are allowed"
                + f", {', '.join(others)}" * bool(others)
                + ", or a file of labels",
                f"Did you mean {near[0]}?" if near else "Name a part of the dates, or give {uri: labels.npy}.",
                key="by",
            )
        moments = None if self.labelled is None else self.labelled.moments
        if moments is None:
            raise ConfigError(f"{last} needs dates, but {self._what_it_is}", self._remedy)
        short = next((number for number, one in enumerate(moments) if len(one) < PARTS[last]), None)
        if short is not None:
            raise ConfigError(
                f"{last} needs dates, but {self.names[short]} does not tell its day", "Choose month, season or year."
            )
        year, month, day, hour = (np.array([(*one, 0, 0)[place] for one in moments]) for place in range(4))
        if last == "season":
            return np.asarray(np.array(SEASONS)[month % 12 // 3])
        if last == "year_month":
            return np.array([f"{y:04d}-{m:02d}" for y, m in zip(year, month, strict=True)])
        # day_of_year is of a year with all days: what follows 28 February has the same number in every year.
        parts: dict[str, NDArray[Any]] = {
            "year": year,
            "month": month,
            "day_of_year": 100 * month + day,
            "day": day,
            "hour": hour,
        }
        return parts[last]

    @property
    def _what_it_is(self) -> str:
        if self.values is None:
            return "the samples have no coordinate"
        if needs_cftime(self.attributes):
            return f"those of {self.name!r} are of calendar {self.attributes.get('calendar')}, which needs cftime, and that is not installed"
        if self.values.dtype.kind not in "iuf":
            return f"{self.name!r} holds names"
        if not is_time(self.attributes):
            return f"{self.name!r} holds numbers without a date to count from"
        return f"{self.name!r} has units {self.attributes['units']!r} and calendar {self.attributes.get('calendar', 'standard')!r}, which tell no dates"

    @property
    def _remedy(self) -> str:
        if self.values is not None and needs_cftime(self.attributes):
            return "pip install cftime."
        if self.values is not None and is_time(self.attributes):
            return (
                "Right are days, hours, minutes or seconds since a day that the calendar has, such as days since 1950-01-01 (months since in "
                "calendar 360_day), and calendar standard, proleptic_gregorian, noleap, all_leap, 360_day or julian: correct both, or give labels."
            )
        return "Run on data whose samples have dates (numbers with units such as days since 1950-01-01, or names such as 1999-02-28), or give labels."

    def times(self, what: str) -> F64:
        """Times as numbers, (rows,), in the units of the coordinate."""
        if self.values is not None and self.values.dtype.kind in "iuf":
            return self.values.astype(np.float64)
        days = None if self.dates is None else days_of(self.dates)
        if days is None:
            raise ConfigError(
                f"{what} needs times, but {self._what_it_is}",
                f"{TIME.set_to('index')} if the samples follow each other at regular times.",
                key="time",
            )
        return days

    def clock(self, what: str) -> Clock:
        """Regular times: equal steps, or one row in each month, or every so many months."""
        times = increasing(self.times(what), len(self), what)
        steps = np.diff(times)
        usual = float(np.median(steps))
        odd = np.abs(steps - usual) > IRREGULAR * usual
        if odd.any() and self.dates is not None:
            months = 12 * self.part("year") + self.part("month")
            apart, counts = np.unique(np.diff(months), return_counts=True)
            each = int(apart[counts.argmax()])
            if len(apart) == 1 and each > 0:
                return Clock(np.arange(len(self), dtype=np.float64), _counted(each, _MONTH))
            raise self._gap(what, np.diff(months) != each if each else odd, "a month" if each == 1 else "")
        step = regular_step(times, len(self), what)
        return Clock((times - times[0]) / step, _counted(step, self.unit))

    def _gap(self, what: str, odd: NDArray[np.bool_], each: str) -> ConfigError:
        """Times are not regular: `odd` has the steps, (rows - 1,), that are not as most of them."""
        assert self.dates is not None
        assert self.labelled is not None
        assert self.labelled.moments is not None
        steps, days = np.diff(self.times(what)), [one[1:3] for one in self.labelled.moments]
        places = np.flatnonzero(odd)
        at = int(places[0])
        usual = each or _counted(float(np.median(steps)), self.unit)
        problem = f"{what} needs regular times, but {self.dates[at + 1]} follows {self.dates[at]}, where most samples are {usual} apart"
        if all((days[number], days[number + 1]) == ((2, 28), (3, 1)) for number in places):
            return ConfigError(
                f"{problem}: there is no 29 February",
                f"{TIME.set_to('index')}, which numbers the samples, so that each year has 365 days.",
                key="time",
            )
        more = f" ({len(places) - 1:,} more such gaps)" if len(places) > 1 else ""
        return ConfigError(problem + more, "Select samples without a gap, or leave it out.")

    @property
    def unit(self) -> str:
        """The unit of its numbers, in words."""
        if self.values is not None and self.values.dtype.kind not in "iuf":
            return "day"
        unit = str(self.attributes.get("units", "")).partition(" since ")[0].strip()
        return unit.removesuffix("s") if unit.removesuffix("s") in COUNTED else unit or "unit"

    def __len__(self) -> int:
        return 0 if self.values is None else len(self.values)


def in_order(labels: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.intp]]:
    """Labels that differ, sorted, seasons in the order of the year; and the number of each row's among them, (rows,)."""
    names, codes = np.unique(labels, return_inverse=True)
    if not {*names.tolist()} <= {*SEASONS}:
        return names, codes
    order = np.argsort([SEASONS.index(name) for name in names.tolist()])
    return names[order], np.argsort(order)[codes]


def _counted(number: float, unit: str) -> str:
    return f"{number:g} {unit}" + "s" * (number != 1 and unit in COUNTED)
