"""What samples are, or the rows that operators leave of them: dates, numbers or names, and what follows from these."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpca.derived.operators import F64
from dpca.derived.times import IRREGULAR, increasing, regular_step
from dpca.errors import ConfigError, InputError
from dpca.sources.calendars import SEASONS, Moment, dates, is_time, moment_of, moments, needs_cftime, text_of_number
from dpca.sources.coordinate import Coordinate

PARTS = ("year", "season", "month", "year_month", "day_of_year", "day", "hour")
"""Parts of dates, by which samples are grouped or selected."""
_ISO = re.compile(r"([+-]?\d+)-(\d\d)-(\d\d)(?:T(\d\d):(\d\d)(.*))?")
_MONTH = "month"


@dataclass(frozen=True)
class Clock:
    """Regular times, counted in steps."""

    times: F64
    """Of the rows, (rows,), in steps."""
    step: str
    """The step in words: 1 month, 5 days."""


@dataclass(frozen=True, eq=False)
class Axis:
    """The coordinate of samples or rows."""

    name: str
    """Of the dimension."""
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
        """The same axis with other rows."""
        return replace(self, values=values)

    @cached_property
    def dates(self) -> list[str] | None:
        """Dates as ISO 8601 writes them; None where the values are none."""
        if self.values is None or self.values.dtype.kind not in "iuf":
            return None
        return dates(self.values, self.attributes)

    @cached_property
    def names(self) -> list[str]:
        """The values as text; numbers from 0 where there are none."""
        if self.dates is not None:
            return self.dates
        if self.values is None:
            return []
        return [text_of_number(value) if self.values.dtype.kind == "f" else str(value) for value in self.values]

    @cached_property
    def moments(self) -> list[Moment] | None:
        """Dates as numbers that compare as they do; None where the values are none."""
        return None if self.dates is None or self.values is None else moments(self.values, self.attributes)

    def moment(self, label: Any) -> Moment:
        """A date as far as a label says it; a whole number is a year.

        Raises
        ------
        ConfigError
            When it is no date of the calendar of the samples.
        """
        if isinstance(label, int) and 0 <= label <= 9999:
            label = f"{label:04d}"
        try:
            return moment_of(str(label), self.attributes, repr(self.name))
        except InputError as cause:
            raise ConfigError(cause.message, cause.remedy, key="select") from cause

    def part(self, name: str) -> NDArray[Any]:
        """A part of each date, (rows,): month, or time.month as xarray writes it.

        Raises
        ------
        ConfigError
            When there are no dates, or no such part.
        """
        prefix, _, last = name.rpartition(".")
        if last not in PARTS or prefix not in ("", self.name):
            raise ConfigError(
                f"samples are grouped by {name!r}, but {', '.join(PARTS)} of their dates are allowed, or a file of labels",
                "Name a part of the dates, or give {uri: labels.npy}.",
                key="by",
            )
        return self._parts(f"{last} needs dates")[last]

    def _parts(self, what: str) -> dict[str, NDArray[Any]]:
        if self.dates is None:
            raise ConfigError(f"{what}, but {self._what_it_is}", self._remedy)
        found = [match.groups() for match in map(_ISO.fullmatch, self.dates) if match]
        year, month, day, hour = (np.array([int(one[place] or 0) for one in found]) for place in range(4))
        return {
            "year": year,
            "season": np.array(SEASONS)[month % 12 // 3],
            "month": month,
            "year_month": np.array([f"{y:04d}-{m:02d}" for y, m in zip(year, month, strict=True)]),
            # Of a year with all days: what follows 28 February has the same number in every year.
            "day_of_year": 100 * month + day,
            "day": day,
            "hour": hour,
        }

    @property
    def _what_it_is(self) -> str:
        if self.values is None:
            return "the samples have no coordinate"
        if needs_cftime(self.attributes):
            return f"those of {self.name!r} are of calendar {self.attributes.get('calendar')}, which needs cftime, and that is not installed"
        return f"{self.name!r} holds {'names' if self.values.dtype.kind not in 'iuf' else 'numbers without a date to count from'}"

    @property
    def _remedy(self) -> str:
        if self.values is not None and needs_cftime(self.attributes):
            return "pip install cftime."
        return (
            "Run on data whose samples have dates (numbers with units such as days since 1950-01-01), or give labels."
        )

    def times(self, what: str) -> F64:
        """Times as numbers, (rows,), in the units of the coordinate.

        Raises
        ------
        ConfigError
            When there are none.
        """
        if self.values is None or self.values.dtype.kind not in "iuf":
            raise ConfigError(
                f"{what} needs times, but {self._what_it_is}",
                "Set time: index if the samples follow each other at regular times.",
                key="time",
            )
        return self.values.astype(np.float64)

    def clock(self, what: str) -> Clock:
        """Regular times: equal steps, or one row in each month, or every so many months.

        Raises
        ------
        ConfigError
            When there are no times, or they are not regular.
        """
        times = increasing(self.times(what), len(self), what)
        steps = np.diff(times)
        if (np.abs(steps - np.median(steps)) > IRREGULAR * np.median(steps)).any() and self.dates is not None:
            parts = self._parts(what)
            months = 12 * parts["year"] + parts["month"]
            apart = np.unique(np.diff(months))
            if len(apart) == 1 and apart[0] > 0:
                return Clock(np.arange(len(self), dtype=np.float64), _counted(int(apart[0]), _MONTH))
            wrong = int(np.flatnonzero(np.abs(steps - np.median(steps)) > IRREGULAR * np.median(steps))[0])
            raise ConfigError(
                f"{what} needs regular times, but the step after {self.dates[wrong]} is {steps[wrong]:g}, and "
                f"{np.median(steps):g} elsewhere ({self.unit})",
                "Select samples without a gap, or leave it out.",
            )
        step = regular_step(times, len(self), what)
        return Clock((times - times[0]) / step, _counted(step, self.unit))

    @property
    def unit(self) -> str:
        """The unit of its numbers, in words."""
        units = str(self.attributes.get("units", ""))
        return units.partition(" since ")[0].strip().rstrip("s") if is_time(self.attributes) else units or "unit"

    def __len__(self) -> int:
        return 0 if self.values is None else len(self.values)


def _counted(number: float, unit: str) -> str:
    return f"{number:g} {unit}" + ("s" if number != 1 and unit != "unit" else "")
