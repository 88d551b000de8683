"""Findings of the report of derived analyses, as plain values read from a result; as `findings` for runs.

Units: a frequency is stored per step of the rows, such as 1 / (5 days), and told per unit, here per day.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpca.report.findings import SHOWN_COMPONENTS
from dpca.report.maps import READ_BYTES, Component, sharing
from dpca.store.derived import StoredAnalysis
from dpca.store.stored import Stored
from dpca.types import F64

Lead = tuple[int, ...]

MOST_MAPS, MOST_LAGS = 4, 6
"""Largest number of maps of an analysis that are drawn, and of lags of one of them."""
MOST_ANALYSES = 20
"""Largest number of analyses that have figures."""
MOST_FIGURES = 32
"""Largest number of maps in a report, of all analyses and groups of features together; each analysis with figures has one."""
PIXELS = 160
"""Pixels of a map, fewer than `maps.PIXELS`: a report of derived analyses has more maps than that of a run."""
REAL = 1e-2
"""A complex map whose imaginary part is below this share of its largest value is drawn as a real one: nobody would see the rest."""
_PER = re.compile(r"1 / \((?:([0-9.e+-]+) )?(.+)\)")


@dataclass(frozen=True)
class Unit:
    """Unit of frequencies: so many units of time a step."""

    number: float
    name: str

    @classmethod
    def of(cls, array: Stored) -> Unit:
        """Unit of an array of frequencies or exponents."""
        found = _PER.fullmatch(str(array.attributes.get("units", "")))
        if found is None:
            return cls(1.0, "row")
        number = float(found[1] or 1)
        return cls(number, found[2] if number == 1 else found[2].removesuffix("s"))

    def period(self, frequency: float) -> str:
        """In units, of a frequency per unit; empty of 0."""
        return f"{1 / frequency:.4g}" if frequency else ""

    @property
    def plural(self) -> str:
        """Its name for several; an abbreviation stays as it is."""
        return self.name if len(self.name) < 3 or self.name.endswith("s") else f"{self.name}s"

    def counted(self, number: str) -> str:
        """So many units, in words."""
        return f"{number} {self.name if number == '1' else self.plural}"


@dataclass(frozen=True, eq=False)
class SpectrumShown:
    """The components of an analysis."""

    singular_values: F64
    ratio: F64
    """Shares of the variance, (k,)."""
    digits: F64
    reliable: NDArray[np.bool_]
    residuals: Sequence[float | None]
    """Residuals of the maps, (k,); empty where there are none."""
    turns: F64 | None
    """Rows in which complex scores turn once, weighted by their squared amplitude, (k,); None of real ones."""


def spectrum(analysis: StoredAnalysis) -> SpectrumShown:
    """Spectrum of pca, extended and hilbert."""
    singular_values, ratio = (values_of(analysis[name]) for name in ("singular_values", "explained_variance_ratio"))
    scores, maps = analysis["scores"], analysis.certificate["maps"]
    turns = None
    if scores.dtype.kind == "c":
        values = np.asarray(scores[...])
        angles = np.angle(np.einsum("ij,ij->j", values[1:], values[:-1].conj()))
        with np.errstate(divide="ignore"):
            turns = np.asarray(2 * np.pi / np.abs(angles))
    reliable = np.array(analysis.certificate["reliable"], bool)
    residuals = [] if maps is None else maps["residual_data"]
    return SpectrumShown(singular_values, ratio, values_of(analysis["digits"]), reliable, residuals, turns)


def lags(count: int) -> list[int]:
    """Numbers of the lags that are drawn, the first and the last among them."""
    return sorted(set(np.linspace(0, count - 1, min(count, MOST_LAGS)).round().astype(int).tolist()))


def n_maps(n_analyses: int, n_groups: int) -> int:
    """How many maps each analysis may have drawn."""
    return min(MOST_MAPS, MOST_FIGURES // (n_analyses * n_groups) or 1)


def affordable(array: Stored, maps: list[list[Lead]], read_bytes: int = READ_BYTES) -> list[list[Lead]]:
    """The first maps that are read with `read_bytes` decoded: a chunk that has other maps, too, is decoded whole."""
    for count in range(len(maps), 0, -1):
        leads = [lead for one in maps[:count] for lead in one]
        ahead = len(leads[0])
        each = math.prod(array.chunks[:ahead]) * math.prod(array.shape[ahead:]) * array.dtype.itemsize
        if len(sharing(leads, array.chunks[:ahead])) * each <= read_bytes:
            return maps[:count]
    return []


def as_real(component: Component) -> Component:
    """A complex component without a phase as a real one; any other as it is."""
    views = component.views
    if any(view.dtype.kind != "c" for view in views):
        return component
    largest = max((float(np.nanmax(np.abs(view), initial=0)) for view in views), default=0.0)
    if any(np.nanmax(np.abs(view.imag), initial=0) > REAL * largest for view in views):
        return component
    return replace(component, views=tuple(np.asarray(view.real) for view in views))


def rows_shown(values: Sequence[Any]) -> Sequence[Any]:
    """The first rows of a table."""
    return values[: 2 * SHOWN_COMPONENTS]


def values_of(array: Stored) -> F64:
    """Stored values in float64."""
    return np.asarray(array[...], np.float64)
