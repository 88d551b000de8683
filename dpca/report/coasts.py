"""Coast lines of maps in longitudes and latitudes: `coast.txt`, from Natural Earth's map of countries at 1:110 million.

Natural Earth (naturalearthdata.com) is in the public domain. Borders between countries were taken out, coasts simplified to a tenth of a degree,
and islands below 0.6 square degrees left out. A line of the file is a coast: its first point in tenths of a degree east and north, then steps.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np

from dpca.report.marks import INK, Line
from dpca.sources.latitudes import TURN
from dpca.types import F64

LEAST_DEGREES = 8.0
"""Maps that are less wide and high have no coasts: they would be too coarse."""


@cache
def _world() -> tuple[F64, F64]:
    """Longitudes from -180 to 180 and latitudes of all coasts, NaN between two."""
    lines = list[F64]()
    for text in (Path(__file__).parent / "coast.txt").read_text().splitlines():
        steps = np.array([pair.split(",") for pair in text.split()], np.int64)
        lines += [steps.cumsum(axis=0) / 10, np.full((1, 2), np.nan)]
    points = np.concatenate(lines)
    return points[:, 0], points[:, 1]


def coasts(west: float, east: float, south: float, north: float) -> Line | None:
    """The coasts of a map between two longitudes, of any turn of the earth, and two latitudes; None where there are none, or the map is small."""
    if max(east - west, north - south) < LEAST_DEGREES:
        return None
    longitudes, latitudes = _world()
    x, y = list[F64](), list[F64]()
    for turn in range(int(np.floor((west + 180) / TURN)), int(np.ceil((east + 180) / TURN))):
        at = longitudes + TURN * turn
        inside = (at >= west) & (at <= east) & (latitudes >= south) & (latitudes <= north)
        # With a neighbour of each point, so that lines go on to the edge; the panel cuts them there.
        kept = inside | np.append(inside[1:], False) | np.append(False, inside[:-1])
        ends = kept | np.append(False, kept[:-1])  # what follows a piece is a gap
        x.append(np.where(kept, at, np.nan)[ends])
        y.append(np.where(kept, latitudes, np.nan)[ends])
        x.append(np.array([np.nan]))
        y.append(np.array([np.nan]))
    across, down = np.concatenate(x), np.concatenate(y)
    return Line(across, down, INK, 0.7, opacity=0.8) if np.isfinite(across).any() else None
