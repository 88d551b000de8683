"""The figures of the report of derived analyses.

Amplitudes have a map of colours from dark to light, phases one that returns to where it began.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpca.report.derived_findings import Density, Mode, Spectrum, Unit
from dpca.report.figures import (
    arranged,
    image_of,
    largest,
    not_reliable,
    panel_of,
    scale_of,
    width_of,
)
from dpca.report.findings import Axis, Component, Picture
from dpca.report.marks import (
    COLORS,
    DASHES,
    INK,
    SHAPES,
    Area,
    Boxes,
    Figure,
    Image,
    Line,
    Mark,
    Panel,
    Points,
    Rule,
    Scale,
    Upright,
    Words,
)

F64 = NDArray[np.float64]

FAINT = 0.1
"""Where an amplitude is below this share of the largest, its phase is not drawn."""
PEAKS = 3
"""Largest number of peaks whose periods are written into a spectrum."""
HALF_TURN = 180.0
TURN = (-HALF_TURN, HALF_TURN)
TURNS = (-HALF_TURN, -HALF_TURN / 2, 0.0, HALF_TURN / 2, HALF_TURN)


def of_spectrum(spectrum: Spectrum, name: str, intervals: F64 | None = None) -> Figure:
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


def of_circle(modes: Sequence[Mode], name: str) -> Figure:
    """Eigenvalues of a step, and the circle on which modes neither grow nor decay; areas follow amplitudes."""
    around = np.linspace(0, 2 * np.pi, 361)
    marks: list[Mark] = [
        Line(np.cos(around), np.sin(around), width=0.7, opacity=0.7),
        Rule(0.0, "x", width=0.4, opacity=0.4),
        Rule(0.0, "y", width=0.4, opacity=0.4),
    ]
    most = max(mode.amplitude for mode in modes) or 1.0
    for reliable in (True, False):
        some = [mode for mode in modes if mode.reliable == reliable]
        # Marks of one size are drawn together: amplitudes are told by four of them.
        for quarter in range(4):
            points = [
                value
                for mode in some
                if min(3, int(4 * mode.amplitude / most)) == quarter
                for value in {mode.eigenvalue, _other(mode)}
                if math.isfinite(value.real) and math.isfinite(value.imag)
            ]
            if points:
                x, y = (np.array([getattr(value, part) for value in points]) for part in ("real", "imag"))
                size = 4.0 + 2.5 * quarter
                label = ("reliable" if reliable else "not reliable") if not all(one.reliable for one in modes) else ""
                marks.append(
                    Points(x, y, size=size, label=label)
                    if reliable
                    else Points(x, y, COLORS[1], "square", size, hollow=True, label=label)
                )
    panel = Panel(tuple(marks), Scale("real part of the eigenvalue"), Scale("imaginary part"), ratio=1.0)
    return Figure(
        name, "eigenvalues of modes", ((panel,),), 320, 400, about="Eigenvalues of modes in the complex plane"
    )


def of_amplitudes(modes: Sequence[Mode], unit: Unit, name: str) -> Figure:
    """The amplitude of each mode at its frequency."""
    at, sizes = np.array([mode.frequency for mode in modes]), np.array([mode.amplitude for mode in modes])
    reliable = np.array([mode.reliable for mode in modes])
    low = 0.5 * float(sizes[sizes > 0].min(initial=1.0))
    panel = Panel(
        (
            Upright(at, np.full(len(at), low), sizes, COLORS[0]),
            Points(at[reliable], sizes[reliable], label="reliable" if not reliable.all() else ""),
            not_reliable(at[~reliable], sizes[~reliable]),
        )[: 2 + (not reliable.all())],
        Scale(f"frequency (per {unit.name})"),
        Scale("amplitude", (low, 1.3 * float(sizes.max(initial=2 * low))), log=True),
    )
    return Figure(name, "amplitudes of modes", ((panel,),), 320, 420, about="Amplitudes of modes at their frequencies")


def of_density(density: Density, unit: Unit, most: int, name: str) -> Figure:
    """Energies over frequency, with the periods of the highest peaks; 0 has no place on an axis of logarithms."""
    positive = density.frequencies > 0
    at, energies, reliable = density.frequencies[positive], density.energies[positive], density.reliable[positive]
    count, few = min(most, energies.shape[1]), len(at) < 3
    total = np.where(density.total[positive] > 0, density.total[positive], np.nan)
    marks: list[Mark] = [Line(at, total, dash="dotted", label="all")]
    if few:
        marks.append(Points(at, total, INK, size=4))
    for number in range(count):
        values = np.where(energies[:, number] > 0, energies[:, number], np.nan)
        color, dash = COLORS[number], DASHES[number % len(DASHES)]
        marks.append(Line(at, values, color, 1.3, dash, label=f"mode {number + 1}"))
        if few:
            marks.append(Points(at, values, color, size=4, label=f"mode {number + 1}"))
        wrong = ~reliable[:, number]
        if wrong.any():
            marks.append(not_reliable(at[wrong], values[wrong]))
    for peak in [peak for peak in density.peaks if density.frequencies[peak] > 0][:PEAKS]:
        where = float(density.frequencies[peak]), float(density.energies[peak, 0])
        if where[1] > 0:
            marks.append(Words(*where, f"{1 / where[0]:.4g}"))
    panel = Panel(
        tuple(marks),
        Scale(f"frequency (per {unit.name})", log=len(at) > 0),
        Scale("energy per frequency", log=True),
        periods=f"period ({unit.name})" if len(at) else "",
    )
    return Figure(name, "spectra", ((panel,),), 340, 700, about="Energy over frequency")


def of_blocks(amplitudes: F64, labels: Sequence[str], axis: Axis, name: str) -> Figure:
    """Amplitudes of blocks, (blocks, frequencies), over where they begin."""
    at, marks = axis.positions(len(amplitudes)), list[Mark]()
    for number, label in enumerate(labels):
        color, values = COLORS[number], amplitudes[:, number]
        marks.append(Line(at, values, color, dash=DASHES[number % len(DASHES)], label=label))
        marks.append(Points(at, values, color, SHAPES[number % 4], 5, label=label))
    x = scale_of(axis, len(amplitudes))
    panel = Panel(
        tuple(marks),
        Scale(f"{axis.label}, first row of the block", whole=x.whole, marks=x.marks, names=x.names),
        Scale("amplitude", (0.0, 1.05 * largest([amplitudes]))),
    )
    return Figure(name, "amplitudes of blocks", ((panel,),), 220, 700, about="Amplitudes of blocks")


def of_complex_scores(
    scores: NDArray[Any], numbers: Sequence[int], axis: Axis, every: int, phases: bool, name: str, word: str = "score"
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


def of_complex(
    component: Component, views: tuple[Picture, ...], axes_of: list[Axis], name: str, together: str = ""
) -> Figure:
    """A complex map as its amplitude and its phase."""
    about = "Amplitude and phase"
    amplitudes = [np.abs(values) for values in component.views]
    limit = largest(amplitudes)
    if len(views[0].axes) == 1:
        rows = tuple(
            row
            for view, values in zip(views, component.views, strict=True)
            for row in _complex_line(values, view, axes_of[view.axes[0]], limit, name)
        )
        return Figure(name, "complex line", rows, 150, 760, about=about)
    pairs = list[tuple[Panel, Panel]]()
    for view, values, sizes in zip(views, component.views, amplitudes, strict=True):
        size = image_of(view, axes_of, sizes, (0.0, limit), colors="sequential", title="amplitude")
        turn = image_of(
            view,
            axes_of,
            np.where(np.isnan(sizes), np.nan, np.angle(values, deg=True)),
            TURN,
            colors="cyclic",
            adjustable=False,
            title="phase (°)",
            marks=TURNS,
            faint=(sizes < FAINT * limit).astype(np.float64),
        )
        pairs.append((panel_of(view, axes_of, (size,), together), panel_of(view, axes_of, (turn,), together)))
    return Figure(name, "complex map", tuple(pairs), 280, width_of(pairs[0]), about=about)


def of_lags(
    components: Sequence[Component],
    titles: Sequence[str],
    view: Picture,
    axes_of: list[Axis],
    name: str,
    together: str = "",
) -> Figure:
    """Maps of one component at several lags, beside each other, in the same colours."""
    limit = largest([component.views[0] for component in components])
    panels = [
        panel_of(view, axes_of, (image_of(view, axes_of, component.views[0], (-limit, limit)),), together, title)
        for component, title in zip(components, titles, strict=True)
    ]
    rows = arranged(panels)
    return Figure(name, "maps at lags", rows, 280, width_of(rows[0]), about="Maps at several lags")


def of_lagged_line(values: F64, lags: F64, lag_label: str, view: Picture, axis: Axis, name: str) -> Figure:
    """A component of one axis of features at all lags, (lags, pixels), as an image."""
    limit, (left, right) = largest([values]), axis.edges(values.shape[1] * view.step[0])
    half = float((lags[-1] - lags[0]) / max(1, len(lags) - 1) / 2) or 0.5
    low, high = float(lags[0]) - half, float(lags[-1]) + half
    x = scale_of(axis, values.shape[1], view.step[0])
    panel = Panel(
        (Image(values, left, right, low, high, (-limit, limit)),),
        Scale(x.label, (left, right), whole=x.whole, marks=x.marks, names=x.names),
        Scale(lag_label, (low, high), whole=True),
    )
    return Figure(name, "lags", ((panel,),), 230, 700, about="A component at several lags")


def _complex_line(
    values: NDArray[Any], view: Picture, axis: Axis, limit: float, name: str
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


def _other(mode: Mode) -> complex:
    """The eigenvalue of the other of a pair."""
    return mode.eigenvalue.conjugate() if len(mode.numbers) > 1 else mode.eigenvalue
