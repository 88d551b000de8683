"""Draws of the rows in the report of derived analyses: intervals, angles, and maps of standard errors beside maps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpca.report.marks import INK, Area, Figure, Line, Panel, Points, Scale
from dpca.store.arrays import of_group
from dpca.store.derived import StoredAnalysis
from dpca.store.stored import Stored
from dpca.types import F64


@dataclass(frozen=True, eq=False)
class DrawnIntervals:
    """Intervals, angles and congruence of the components of an analysis, from draws."""

    words: str
    level: float
    shares: F64
    """Limits of the shares of the variance, (2, k); NaN where there are none."""
    angles: F64
    """Angles of each draw, in degrees, (draws, k)."""
    congruence: F64
    """Its median, (k,)."""

    def table(self, numbers: Sequence[int]) -> dict[str, Any]:
        """Table of some components, and what its columns mean."""
        head = ["component", f"{100 * self.level:g} % interval of the share", "angle", "w'w"]
        words = (
            f"From {len(self.angles):,} draws ({self.words}), medians. Angle: the largest between the components up to this one and those of a draw; "
            "small where their span is certain. w'w: product with the component of a draw that is most like it; near 1 where the component "
            "itself is."
        )
        return {
            "caption": "Other samples",
            "head": head,
            "rows": [self._cells(number) for number in numbers],
            "words": words,
        }

    def _cells(self, number: int) -> list[str]:
        low, high = 100 * self.shares[:, number]
        alike = self.congruence[number]
        return [
            str(number + 1),
            "none" if np.isnan(low) else f"{low:.2f} to {high:.2f} %",
            f"{np.median(self.angles[:, number]):.1f}°",
            "-" if np.isnan(alike) else f"{alike:.3f}",
        ]


def draws_of(analysis: StoredAnalysis) -> DrawnIntervals | None:
    """Draws of an analysis; None where none were made."""
    told = analysis.certificate.get("resampling")
    if told is None:
        return None
    shares, angles = (
        np.asarray(analysis[name][...], np.float64) for name in ("explained_variance_ratio_interval", "subspace_angle")
    )
    congruence = np.array([np.nan if one is None else one for one in told["congruence"]])
    return DrawnIntervals(told["words"], told["level"], shares, angles, congruence)


def errors_of(analysis: StoredAnalysis, group: str) -> Stored | None:
    """The maps of standard errors of a group of features; None where there are none."""
    name = of_group("standard_errors", group)
    return analysis.get(name)


def of_angles(draws: DrawnIntervals, name: str) -> Figure:
    """The largest angle between leading components of draws and of all rows: the median, and most draws."""
    numbers = np.arange(1, draws.angles.shape[1] + 1, dtype=np.float64)
    low, middle, high = np.quantile(draws.angles, [(1 - draws.level) / 2, 0.5, (1 + draws.level) / 2], axis=0)
    panel = Panel(
        (
            Area(numbers, low, high, label=f"{100 * draws.level:g} % of draws"),
            Line(numbers, middle, label="median"),
            Points(numbers, middle, INK, size=4),
        ),
        Scale("leading components", whole=True),
        Scale("largest angle (degrees)", (0.0, 92.0)),
    )
    return Figure(name, "angles", ((panel,),), 250, 420, about="Angles between components of draws")
