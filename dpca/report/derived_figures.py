"""The figures of the report of derived analyses, as SVG.

Amplitudes have a map of colours from dark to light, phases one that returns to where it began.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.colors import LinearSegmentedColormap, ListedColormap
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from dpca.report.derived_findings import Density, Mode, Spectrum, Unit
from dpca.report.drawing import (
    COLORS,
    INK,
    MANY_POINTS,
    MISSING,
    as_text,
    image,
    mark,
    new_figure,
    ratio_of,
    styled,
    svg,
)
from dpca.report.findings import Axis, Component, Picture

F64 = NDArray[np.float64]

FAINT = 0.1
"""Where an amplitude is below this share of the largest, its phase is not drawn."""
WIDTH = 7.6
"""Of the figures of complex and of lagged maps, in inches."""
LINES = ("-", "--", "-.", ":")
MANY = 150
"""As `drawing.MANY_POINTS`: a report of derived analyses has more figures than that of a run."""
PEAKS = 3
"""Largest number of peaks whose periods are written into a spectrum."""
CYCLE = ("#733957", "#8c3b36", "#a9652f", "#c7a04f", "#d3d38d", "#a8d8bb", "#6fb8cb", "#4d85b8", "#5a5593", "#733957")
"""After romaO (Crameri, Shephard and Heron, Nature Communications 11, 2020): no colour is near white, black or grey."""
PHASES: Any = LinearSegmentedColormap.from_list("phases", CYCLE)
HALF_TURN = 180
NOT_RELIABLE: Any = {"linestyle": "none", "marker": "s", "markerfacecolor": "none", "color": COLORS[1]}


@styled
def of_spectrum(spectrum: Spectrum, name: str, intervals: F64 | None = None) -> str:
    """The share of the variance of each component, and of all up to it.

    Parameters
    ----------
    intervals : limits of the shares, (2, k), NaN for none
    """
    figure = new_figure(4.2, 2.6)
    axes = figure.subplots()
    numbers, shares, reliable = np.arange(len(spectrum.ratio)), 100 * spectrum.ratio, spectrum.reliable
    axes.bar(numbers, shares, width=0.7, color=COLORS[0], alpha=0.85, label="of each")
    axes.plot(numbers, np.cumsum(shares), color=INK, linewidth=1, marker="o", markersize=3, label="of all up to it")
    if intervals is not None:
        low, high = 100 * np.minimum(intervals, 1.0)
        axes.vlines(numbers, low, high, color=INK, linewidth=1.2, label="interval")
        axes.plot(numbers, low, "_", numbers, high, "_", color=INK, markersize=5)
    if not reliable.all():
        axes.plot(numbers[~reliable], shares[~reliable], label="not reliable", **NOT_RELIABLE)
    axes.set(xlabel="component", ylabel="share of the variance (%)", ylim=(0, 104))
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.legend(loc="upper left", bbox_to_anchor=(0, 1.18), ncols=3)
    return svg(figure, name)


@styled
def of_circle(modes: Sequence[Mode], name: str) -> str:
    """Eigenvalues of a step, and the circle on which modes neither grow nor decay; areas follow amplitudes."""
    figure = new_figure(4.2, 3.6)
    axes = figure.subplots()
    around = np.linspace(0, 2 * np.pi, 361)
    axes.plot(np.cos(around), np.sin(around), color=INK, linewidth=0.7, alpha=0.7)
    axes.axhline(0, color=INK, linewidth=0.4, alpha=0.4)
    axes.axvline(0, color=INK, linewidth=0.4, alpha=0.4)
    largest = max(mode.amplitude for mode in modes) or 1.0
    filled, hollow = {"c": COLORS[0], "marker": "o"}, {"edgecolors": COLORS[1], "facecolors": "none", "marker": "s"}
    for reliable, how in ((True, filled), (False, hollow)):
        some = [mode for mode in modes if mode.reliable == reliable]
        points = [
            (value, mode.amplitude) for mode in some for value in {mode.eigenvalue, _other(mode)} if _finite(value)
        ]
        if points:
            values, sizes = (np.array(one) for one in zip(*points, strict=True))
            drawn: dict[str, Any] = {"s": 12 + 90 * sizes / largest, "rasterized": len(values) > MANY_POINTS, **how}
            axes.scatter(values.real, values.imag, alpha=0.8, zorder=3, linewidths=1, **drawn)
    axes.set(xlabel="real part of the eigenvalue", ylabel="imaginary part", aspect="equal")
    if not all(mode.reliable for mode in modes):
        axes.plot([], [], "o", color=COLORS[0], label="reliable")
        axes.plot([], [], label="not reliable", **NOT_RELIABLE)
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)
    return svg(figure, name)


@styled
def of_amplitudes(modes: Sequence[Mode], unit: Unit, name: str) -> str:
    """The amplitude of each mode at its frequency, and the periods of the strongest."""
    figure = new_figure(4.2, 3.6)
    axes = figure.subplots()
    at, sizes = np.array([mode.frequency for mode in modes]), np.array([mode.amplitude for mode in modes])
    reliable = np.array([mode.reliable for mode in modes])
    low = 0.5 * float(sizes[sizes > 0].min(initial=1.0))
    axes.vlines(at, low, sizes, color=COLORS[0], linewidth=1)
    axes.plot(at[reliable], sizes[reliable], "o", color=COLORS[0], markersize=4)
    axes.plot(at[~reliable], sizes[~reliable], **NOT_RELIABLE)
    axes.set(xlabel=as_text(f"frequency (per {unit.name})"), ylabel="amplitude")
    axes.set_yscale("log")
    axes.set_ylim(low, None)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    return svg(figure, name)


@styled
def of_density(density: Density, unit: Unit, most: int, name: str) -> str:
    """Energies over frequency, with the periods of the highest peaks; 0 has no place on an axis of logarithms."""
    figure = new_figure(6.4, 3.4)
    axes = figure.subplots()
    positive = density.frequencies > 0
    at, energies, reliable = density.frequencies[positive], density.energies[positive], density.reliable[positive]
    count, few = min(most, energies.shape[1]), len(at) < 3
    total = np.where(density.total[positive] > 0, density.total[positive], np.nan)
    axes.plot(at, total, color=INK, linewidth=1, linestyle=(0, (1, 1)), marker="." if few else "", label="all")
    for number in range(count):
        values = np.where(energies[:, number] > 0, energies[:, number], np.nan)
        how: dict[str, Any] = {"color": COLORS[number], "linestyle": LINES[number % len(LINES)], "linewidth": 1.3}
        axes.plot(at, values, marker="o" if few else "", markersize=3, label=f"mode {number}", **how)
        wrong = ~reliable[:, number]
        if wrong.any():
            label = "not reliable" if number == int(np.argmax(~reliable.all(axis=0))) else None
            axes.plot(at[wrong], values[wrong], label=label, markersize=4, **NOT_RELIABLE)
    for peak in [peak for peak in density.peaks if density.frequencies[peak] > 0][:PEAKS]:
        where = (density.frequencies[peak], density.energies[peak, 0])
        if where[1] > 0:
            axes.annotate(
                f"{1 / where[0]:.4g}", where, (0, 5), textcoords="offset points", ha="center", va="bottom", fontsize=8
            )
    axes.set(xlabel=as_text(f"frequency (per {unit.name})"), ylabel="energy per frequency")
    axes.set_yscale("log")
    axes.margins(y=0.12)
    if len(at):
        axes.set_xscale("log")
        periods = axes.secondary_xaxis("top", functions=(_inverse, _inverse))
        periods.set_xlabel(as_text(f"period ({unit.name})"))
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    return svg(figure, name)


@styled
def of_blocks(amplitudes: F64, labels: Sequence[str], axis: Axis, name: str) -> str:
    """Amplitudes of blocks, (blocks, frequencies), over where they begin."""
    figure = new_figure(6.4, 2.0)
    axes = figure.subplots()
    at = axis.positions(len(amplitudes))
    for number, label in enumerate(labels):
        style: dict[str, Any] = {"color": COLORS[number], "linestyle": LINES[number % len(LINES)]}
        axes.plot(at, amplitudes[:, number], marker="os^D"[number % 4], markersize=3.5, label=as_text(label), **style)
    axes.set(ylabel="amplitude", ylim=(0, None), xlabel=as_text(f"{axis.label}, first row of the block"))
    mark(axes.xaxis, axis, 8)
    axes.yaxis.set_major_locator(MaxNLocator(3))
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    return svg(figure, name)


@styled
def of_complex_scores(
    scores: NDArray[Any], numbers: Sequence[int], axis: Axis, every: int, phases: bool, name: str, word: str = "score"
) -> str:
    """Real parts within their amplitudes, and below them phases, of some complex scores, (rows, numbers)."""
    each = 2 if phases else 1
    figure = new_figure(6.4, (1.9 if phases else 1.2) * len(numbers) + 0.5)
    ratios = [1.6, 1.0] if phases else [1.0]
    panels = figure.subplots(each * len(numbers), 1, sharex=True, squeeze=False, height_ratios=ratios * len(numbers))
    at, many = axis.positions(len(scores), every), len(scores) > MANY_POINTS
    for place, number in enumerate(numbers):
        values, panel = scores[:, place], panels[each * place, 0]
        panel.plot(at, values.real, color=COLORS[0], linewidth=0.9, rasterized=many)
        for sign in (1, -1):
            envelope: dict[str, Any] = {"color": COLORS[1], "linestyle": "--", "linewidth": 0.9}
            panel.plot(at, sign * np.abs(values), rasterized=many, **envelope)
        panel.set_ylabel(f"{word} {number}")
        panel.yaxis.set_major_locator(MaxNLocator(3))
        if phases:
            below = panels[each * place + 1, 0]
            below.plot(
                at, np.angle(values, deg=True), ".", color=COLORS[2], markersize=3, rasterized=len(values) > MANY
            )
            below.set(ylabel="phase (°)", ylim=(-HALF_TURN, HALF_TURN), yticks=[-HALF_TURN, 0, HALF_TURN])
    panels[-1, 0].set_xlabel(as_text(axis.label))
    mark(panels[-1, 0].xaxis, axis, 8)
    return svg(figure, name)


@styled
def of_complex(component: Component, views: tuple[Picture, ...], axes_of: list[Axis], name: str) -> str:
    """A complex map as its amplitude and its phase."""
    if len(views[0].axes) == 1:
        return _complex_line(component.views[0], views[0], axes_of[0], name)
    shapes = [view.shape for view in views]
    down, across = (1, 2) if len(views) == 1 else (2, len(views))
    ratios = [1.0, 1.0] if len(views) == 1 else [float(shape[1]) for shape in shapes]
    widths = [(WIDTH - (2.2 if len(views) == 1 else 1.0 + 0.5 * across)) * ratio / sum(ratios) for ratio in ratios]
    heights = [width * ratio_of(view, axes_of) for width, view in zip(widths, views, strict=False)]
    figure = new_figure(WIDTH, min(3.4, max(1.0, *heights) + 0.6) * down)
    panels = figure.subplots(down, across, squeeze=False, width_ratios=ratios)
    of_amplitudes, of_phases = (panels[:, 0], panels[:, 1]) if len(views) == 1 else (panels[0], panels[1])
    amplitudes = [np.abs(values) for values in component.views]
    limit = _largest(amplitudes)
    drawn: Any = None
    for panel, view, sizes in zip(of_amplitudes, views, amplitudes, strict=True):
        drawn = image(panel, sizes, view, axes_of, cmap="viridis", vmin=0, vmax=limit)
    figure.colorbar(drawn, ax=list(of_amplitudes), shrink=0.8, aspect=30, label="amplitude")
    turn: dict[str, Any] = {"cmap": PHASES, "vmin": -HALF_TURN, "vmax": HALF_TURN}
    for panel, view, values, sizes in zip(of_phases, views, component.views, amplitudes, strict=True):
        missing = np.where(np.isnan(sizes), 0.0, np.nan)
        image(panel, missing, view, axes_of, cmap=ListedColormap([MISSING]))
        phases = np.where(sizes >= FAINT * limit, np.angle(values, deg=True), np.nan)
        drawn = image(panel, phases, view, axes_of, **turn)
        panel.set_facecolor("none")
    _phase_bar(figure, drawn, list(of_phases))
    return svg(figure, name)


@styled
def of_lags(
    components: Sequence[Component], titles: Sequence[str], view: Picture, axes_of: list[Axis], name: str
) -> str:
    """Maps of one component at several lags, beside each other, in the same colours."""
    across = min(3, len(components))
    down = -(-len(components) // across)
    each = (WIDTH - 1.6) / 3
    figure = new_figure(1.6 + each * across, min(2.6, each * ratio_of(view, axes_of) + 0.35) * down + 0.4)
    panels = figure.subplots(down, across, squeeze=False, sharex=True, sharey=True)
    limit = _largest([component.views[0] for component in components])
    drawn: Any = None
    for panel in panels.reshape(-1)[len(components) :]:
        panel.axis("off")
    for number, (component, title) in enumerate(zip(components, titles, strict=True)):
        panel = panels.reshape(-1)[number]
        drawn = image(panel, component.views[0], view, axes_of, cmap="RdBu_r", vmin=-limit, vmax=limit)
        panel.set_title(as_text(title), fontsize=8)
        panel.set(xlabel="", ylabel="")
        panel.tick_params(labelbottom=number + across >= len(components))
    figure.supylabel(as_text(axes_of[view.axes[0]].label), fontsize=9)
    figure.supxlabel(as_text(axes_of[view.axes[1]].label), fontsize=9)
    figure.colorbar(drawn, ax=panels, shrink=0.8, aspect=30)
    return svg(figure, name)


@styled
def of_lagged_line(values: F64, lags: F64, lag_label: str, view: Picture, axis: Axis, name: str) -> str:
    """A component of one axis of features at all lags, (lags, pixels), as an image."""
    figure = new_figure(6.4, 2.6)
    axes = figure.subplots()
    limit, (left, right) = _largest([values]), axis.edges(values.shape[1] * view.step[0])
    half = (lags[-1] - lags[0]) / max(1, len(lags) - 1) / 2 or 0.5
    drawn = axes.imshow(
        values,
        cmap="RdBu_r",
        vmin=-limit,
        vmax=limit,
        extent=(left, right, lags[0] - half, lags[-1] + half),
        origin="lower",
        interpolation="nearest",
        aspect="auto",
    )
    axes.set_facecolor(MISSING)
    axes.set(xlabel=as_text(axis.label), ylabel=as_text(lag_label))
    mark(axes.xaxis, axis, 8)
    axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    figure.colorbar(drawn, ax=axes, shrink=0.8, aspect=30)
    return svg(figure, name)


def _complex_line(values: NDArray[Any], view: Picture, axis: Axis, name: str) -> str:
    figure = new_figure(6.4, 2.6)
    above, below = figure.subplots(2, 1, sharex=True)
    at, sizes, many = axis.positions(len(values), view.step[0]), np.abs(values), len(values) > MANY_POINTS
    above.plot(at, sizes, color=COLORS[0], linewidth=0.8, rasterized=many)
    above.set(ylabel="amplitude", ylim=(0, None))
    shown = sizes >= FAINT * _largest([sizes])
    phases = np.angle(values[shown], deg=True)
    below.plot(at[shown], phases, ".", color=COLORS[2], markersize=3, rasterized=len(values) > MANY)
    below.set(ylabel="phase (°)", ylim=(-HALF_TURN, HALF_TURN), yticks=[-HALF_TURN, 0, HALF_TURN])
    below.set_xlabel(as_text(axis.label))
    mark(below.xaxis, axis, 8)
    return svg(figure, name)


def _phase_bar(figure: Any, drawn: Any, panels: list[Any]) -> None:
    bar = figure.colorbar(drawn, ax=panels, shrink=0.8, aspect=30, label="phase (°)")
    bar.set_ticks([-HALF_TURN, -HALF_TURN / 2, 0, HALF_TURN / 2, HALF_TURN])


def _largest(values: Sequence[F64]) -> float:
    """The largest magnitude; 1 where there is none."""
    return float(max(np.nanmax(np.abs(one), initial=0) for one in values)) or 1.0


def _other(mode: Mode) -> complex:
    """The eigenvalue of the other of a pair."""
    return mode.eigenvalue.conjugate() if len(mode.numbers) > 1 else mode.eigenvalue


def _finite(value: complex) -> bool:
    return math.isfinite(value.real) and math.isfinite(value.imag)


def _inverse(values: Any) -> Any:
    with np.errstate(divide="ignore"):
        return 1 / np.asarray(values, np.float64)


def identifier(*words: str) -> str:
    """An id of an element of the page."""
    return ".".join(re.sub(r"\W+", "-", word) for word in words if word)
