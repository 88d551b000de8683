"""The figures of the report of derived analyses.

Amplitudes have a map of colours from dark to light, phases one that returns to where it began.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpca.report.derived_findings import SpectrumShown
from dpca.report.figures import (
    image_of,
    largest,
    not_reliable,
    panel_of,
    scale_of,
    width_of,
)
from dpca.report.findings import DrawnAxis
from dpca.report.maps import Component, Picture
from dpca.report.marks import (
    COLORS,
    INK,
    Area,
    Boxes,
    Figure,
    Line,
    Mark,
    Panel,
    Points,
    Scale,
    Upright,
)
from dpca.types import F64

FAINT = 0.1
"""Where an amplitude is below this share of the largest, its phase is not drawn."""
HALF_TURN = 180.0
TURN = (-HALF_TURN, HALF_TURN)
TURNS = (-HALF_TURN, -HALF_TURN / 2, 0.0, HALF_TURN / 2, HALF_TURN)


def of_spectrum(spectrum: SpectrumShown, name: str, intervals: F64 | None = None) -> Figure:
    """The share of the variance of each component, and of all up to it.

    Parameters
    ----------
    intervals : limits of the shares, (2, k), NaN for none
    """
    numbers, shares = np.arange(1, len(spectrum.ratio) + 1, dtype=np.float64), 100 * spectrum.ratio
    reliable, sums = spectrum.reliable, np.cumsum(shares)
    marks: list[Mark] = [
        Boxes(numbers - 0.35, numbers + 0.35, np.zeros(len(shares)), shares, label="of each"),
        Line(numbers, sums, label="of all up to it"),
        Points(numbers, sums, INK, size=4),
    ]
    if intervals is not None:
        low, high = 100 * np.minimum(intervals, 1.0)
        marks.append(Upright(numbers, low, high, INK, 1.2, ends=True, label="interval"))
    if not reliable.all():
        marks.append(not_reliable(numbers[~reliable], shares[~reliable]))
    panel = Panel(tuple(marks), Scale("component", whole=True), Scale("share of the variance (%)", (0.0, 104.0)))
    return Figure(name, "shares of components", ((panel,),), 250, 420, about="Shares of components in the variance")


def of_complex_scores(
    scores: NDArray[Any],
    numbers: Sequence[int],
    axis: DrawnAxis,
    every: int,
    phases: bool,
    name: str,
    word: str = "score",
) -> Figure:
    """Real parts within their amplitudes, and below them phases, of some complex scores, (rows, numbers)."""
    at, rows = axis.positions(len(scores), every), list[tuple[Panel, ...]]()
    x = scale_of(axis, len(scores), every, f"{name} rows")
    plain = Scale(marked=False, together=x.together)
    for place, number in enumerate(numbers):
        values, last = scores[:, place], place == len(numbers) - 1
        size = np.abs(values)
        marks = (
            Line(at, values.real, COLORS[0]),
            *(Line(at, sign * size, COLORS[1], dash="dashed") for sign in (1, -1)),
        )
        rows.append((Panel(marks, x if last and not phases else plain, Scale(f"{word} {number + 1}")),))
        if phases:
            below = Points(at, np.angle(values, deg=True), COLORS[2], size=3)
            turns = Scale("phase (°)", TURN, marks={turn: f"{turn:g}" for turn in TURNS[::2]})
            rows.append((Panel((below,), x if last else plain, turns),))
    return Figure(
        name, "complex scores", tuple(rows), 120, 760, about=f"{word}s: real parts, amplitudes" + ", phases" * phases
    )


def of_complex(component: Component, axes_of: list[DrawnAxis], name: str, together: str = "") -> Figure:
    """A complex map as its amplitude and its phase."""
    about, views = "Amplitude and phase", component.pictures
    amplitudes = [np.abs(values) for values in component.views]
    limit = largest(amplitudes)
    if len(views[0].shape) == 1:
        rows = tuple(
            row
            for view, values in zip(views, component.views, strict=True)
            for row in _complex_line(values, view, axes_of[view.axes[0]], limit, name)
        )
        return Figure(name, "complex line", rows, 150, 760, about=about)
    pairs = list[tuple[Panel, Panel]]()
    for view, values, sizes in zip(views, component.views, amplitudes, strict=True):
        angles = np.where(np.isnan(sizes), np.nan, np.angle(values, deg=True))
        size = replace(image_of(view, axes_of, sizes, (0.0, limit), "amplitude"), colors="sequential")
        turn = replace(
            image_of(view, axes_of, angles, TURN, "phase (°)"),
            colors="cyclic",
            adjustable=False,
            marks=TURNS,
            faint=(sizes < FAINT * limit).astype(np.float64),
        )
        pairs.append((panel_of(view, axes_of, (size,), together), panel_of(view, axes_of, (turn,), together)))
    return Figure(name, "complex map", tuple(pairs), 280, width_of(pairs[0]), about=about)


def _complex_line(
    values: NDArray[Any], view: Picture, axis: DrawnAxis, limit: float, name: str
) -> tuple[tuple[Panel, ...], ...]:
    at, sizes = axis.positions(len(values), view.step[0]), np.abs(values)
    shown = sizes >= FAINT * limit
    phases = np.angle(values[shown], deg=True)
    x = scale_of(axis, len(values), view.step[0], f"{name} x")
    turns = Scale("phase (°)", TURN, marks={turn: f"{turn:g}" for turn in TURNS[::2]})
    above = Panel(
        (Area(at, np.zeros(len(at)), sizes, opacity=0.6),),
        Scale(marked=False, together=x.together),
        Scale("amplitude", (0.0, 1.05 * limit)),
        view.title,
    )
    return (above,), (Panel((Points(at[shown], phases, COLORS[2], size=3),), x, turns),)
