"""Which samples a label means: one rule for configs, commands, tables and Python."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dpca.sources.calendars import Moment, as_names, moment_of, moments

Pairing = Literal["moment", "day", "month"]
PAIRING: Mapping[Pairing, int] = {"moment": 7, "day": 3, "month": 2}
"""How much of their dates the samples of two arrays share, and how many numbers of a moment that is."""


def paired_by(one: Sequence[Moment], other: Sequence[Moment]) -> Pairing | None:
    """The most that dates of one number share in this order, where it tells them apart; None if they are others."""
    for name, length in PAIRING.items():
        begin, others = ([moment[:length] for moment in moments] for moments in (one, other))
        if begin == others and len({*begin}) == len(begin):
            return name
    return None


@dataclass(frozen=True, eq=False)
class LabelledAxis:
    """The values of a coordinate, by which samples are found."""

    name: str
    """Name of the coordinate, in errors."""
    values: NDArray[Any]
    """(n,)"""
    attributes: Mapping[str, Any]
    """`units` and `calendar` make dates of numbers (CF conventions, 4.4)."""

    @cached_property
    def moments(self) -> list[Moment] | None:
        """Dates as numbers that compare as they do; None where the values are none."""
        return moments(self.values, self.attributes)

    @cached_property
    def names(self) -> list[str]:
        """The values as text."""
        return as_names(self.values, self.attributes)

    def places(self, label: Any) -> list[int]:
        """The numbers of the samples with a label: a name as it is there, as much of a date as is written, or a number of equal value."""
        wanted = str(label)
        if self.values.dtype.kind not in "biuf" and (exact := self._by_name.get(wanted)):
            return exact
        if self.moments is not None:
            return self._by_moment.get(self.moment(label), [])
        if self.values.dtype.kind not in "iuf":
            return self._by_name.get(wanted, [])
        try:
            number = int(wanted) if re.fullmatch(r"-?\d+", wanted) else float(label)
        except (TypeError, ValueError):
            return []
        # In single precision 0.1 is the number that is nearest to it.
        return np.flatnonzero(
            self.values == (self.values.dtype.type(number) if self.values.dtype.kind == "f" else number)
        ).tolist()

    def moment(self, label: Any) -> Moment:
        """A date as far as a label says it; a whole number is a year."""
        if isinstance(label, int) and 0 <= label <= 9999:
            label = f"{label:04d}"
        return moment_of(str(label), self.attributes, repr(self.name))

    @cached_property
    def _by_moment(self) -> dict[Moment, list[int]]:
        """The samples of each year, month, day and so on."""
        places: dict[Moment, list[int]] = {}
        for number, moment in enumerate(self.moments or ()):
            for length in range(1, len(moment) + 1):
                places.setdefault(moment[:length], []).append(number)
        return places

    @cached_property
    def _by_name(self) -> dict[str, list[int]]:
        places: dict[str, list[int]] = {}
        for number, name in enumerate(self.names):
            places.setdefault(name, []).append(number)
        return places
