"""The figures of the report of a run, and parts that those of derived analyses share with them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpca.report.coasts import coasts
from dpca.report.findings import DrawnAxis, FeatureRanges, Quality, Scree, Solution
from dpca.report.maps import Component, Picture, Sliced
from dpca.report.marks import (
    COLORS,
    DASHES,
    HATCHES,
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
    RowLine,
    RowPoints,
    Rule,
    Scale,
    Slices,
    Upright,
    Volume,
)
from dpca.types import F64

LETTERS = 80
"""Names along an axis are all marked where they have no more letters than this, spaces included."""
MARKS = 8
"""Years that are marked along an axis."""
NAMES = 400
"""Positions along an axis whose names are known where it is looked at closer."""
FEW = 60
"""Up to so many values are drawn as single stems."""
POSITION = "position"
"""The column of rows that has their order, or their coordinate."""


def scale_of(axis: DrawnAxis, length: int = 0, step: int = 1, together: str = "") -> Scale:
    """The scale of an axis, marked at round numbers, with names, or, of a time, with years or dates.

    Parameters
    ----------
    length, step : number of points along it, and of entries that each of them stands for
    """
    names: Mapping[float, str] = axis.named(math.inf)
    if axis.time is not None and length:
        at = axis.positions(length, step)
        some = at[:: -(-length // NAMES)]
        names = dict(zip(some.tolist(), axis.dates(some), strict=True))
    return Scale(
        axis.label,
        whole=not axis.known,
        marks=axis.years(MARKS) or axis.named(LETTERS),
        names=names,
        together=together,
    )


def of_eigenvalues(scree: Scree) -> Figure:
    """The share of the variance of each eigenvalue, with its sampling error, and the edge of the noise."""
    k, shown = scree.n_components, scree.n_shown
    numbers, values = np.arange(1, shown + 1, dtype=np.float64), 100 * scree.ratio[:shown]
    first, kept = numbers[:k], values[:k]
    errors = np.clip(scree.errors[: len(kept)], 0, 0.99) * kept
    reliable = scree.reliable[: len(kept)]
    marks: list[Mark] = [
        Line(numbers, values, width=0.8, opacity=0.5),
        Upright(first, kept - errors, kept + errors, COLORS[0], ends=True),
        Points(first[reliable], kept[reliable], label="kept"),
    ]
    if not reliable.all():
        marks.append(not_reliable(first[~reliable], kept[~reliable], "kept, not reliable"))
    if scree.edge is not None:
        marks.append(Rule(100 * scree.edge / scree.total, "y", COLORS[2], dash="dashed", label="edge of white noise"))
    panel = Panel(tuple(marks), Scale("component", whole=True), Scale("% of the variance", log=True))
    return Figure("eigenvalues", "eigenvalues", ((panel,),), width=420, about="Eigenvalues")


def not_reliable(x: F64, y: F64, label: str = "not reliable") -> Points:
    """Points that are marked as not reliable."""
    return Points(x, y, COLORS[1], "square", hollow=True, label=label)


def of_shares(scree: Scree) -> Figure:
    """The cumulative share of the variance, and the numbers of components that the rules suggest."""
    k, shown = scree.n_components, int(np.count_nonzero(scree.eigenvalues > 0))
    numbers, shares = np.arange(1, shown + 1, dtype=np.float64), 100 * np.cumsum(scree.ratio[:shown])
    rules = {name: value for name, value in scree.suggested.items() if isinstance(value, int) and name != "rank"}
    marks: list[Mark] = [Line(numbers, shares), Points(numbers[:k], shares[:k])]
    for number, (name, value) in enumerate(rules.items()):
        dash = DASHES[(number + 1) % len(DASHES)]
        marks.append(Rule(value, "x", COLORS[(number + 1) % len(COLORS)], dash=dash, label=f"{name}: {value}"))
    panel = Panel(tuple(marks), Scale("number of components", whole=True), Scale("% of the variance", limits=(0, 102)))
    return Figure("shares", "shares", ((panel,),), width=420, about="Share of the variance of leading components")


def of_validation(errors: F64) -> Figure:
    """The error of bi-cross-validation by number of components, (most + 1,), and where it is smallest."""
    best = int(np.argmin(errors))
    shown = errors[: max(2 * best, 10) + 1]
    smallest = Points(np.array([float(best)]), errors[[best]], label=f"smallest: {best}")
    panel = Panel(
        (Line(np.arange(len(shown), dtype=np.float64), shown), smallest),
        Scale("number of components", whole=True),
        Scale("error of what was left out"),
    )
    return Figure("bi-cross-validation", "validation", ((panel,),), width=420, about="Error of bi-cross-validation")


def of_group_shares(shares: F64, names: Sequence[str], name: str = "group-shares") -> Figure:
    """The share of each group of features in each component, (groups, components), as stacked bars."""
    count = shares.shape[1]
    numbers, left, boxes = np.arange(1, count + 1, dtype=np.float64), np.zeros(count), list[Mark]()
    for number, (share, group) in enumerate(zip(100 * shares, names, strict=True)):
        color, hatch = COLORS[number % len(COLORS)], HATCHES[number // len(COLORS) % len(HATCHES)]
        boxes.append(Boxes(left, left + share, numbers - 0.4, numbers + 0.4, color, group, hatch))
        left = left + share
    panel = Panel(
        tuple(boxes),
        Scale("% of the variance", limits=(0, 100)),
        Scale("component", limits=(count + 0.5, 0.5), whole=True),
    )
    height = 27 * count + 60
    return Figure(name, "group shares", ((panel,),), height, 460, about="Shares of groups in each component")


def of_scores(count: int, table: str = "samples") -> Figure | None:
    """Scores against each other, of which so many are in a table; None where there is one."""
    if count < 2:
        return None
    columns = tuple(map(score, range(count)))
    pairs = [(0, 1), (1, 2) if count == 3 else (2, 3)][: 1 + (count > 2)]
    panels = tuple(
        Panel(
            (RowPoints(columns[x], columns[y]),),
            Scale(columns[x]),
            Scale(columns[y]),
            choices=columns if count > 2 else (),
        )
        for x, y in pairs
    )
    return Figure("scores", "scores", (panels,), 380, 440 * len(pairs), table, "Scores of samples against each other")


def score(number: int) -> str:
    """The column that has the scores of a component, whose position is `number`; readers count from 1."""
    return f"score {number + 1}"


def of_kernels(answers: Sequence[Solution], table: str = "samples") -> Figure:
    """The first two scores of each kernel, which are columns of a table."""
    across = min(4, len(answers))
    panels = []
    for answer in answers:
        assert answer.kernel is not None
        value = answer.kernel.parameters["gamma"]
        gamma = "" if value is None else f", gamma {value:.3g}"
        x, y = of_kernel(answer.number)
        marks = (RowPoints(x, y),) if answer.scores.shape[1] > 1 else ()
        plain = Scale(marked=False)
        panels.append(Panel(marks, plain, plain, f"{answer.number}: {answer.kernel.name}{gamma}"))
    rows = tuple(tuple(panels[start : start + across]) for start in range(0, len(panels), across))
    return Figure("kernels", "kernels", rows, 190, 210 * across, table, "The first two scores of each kernel")


def of_kernel(number: int) -> tuple[str, str]:
    """The columns that have the first two scores of a kernel of a sweep."""
    return f"kernel {number}, score 1", f"kernel {number}, score 2"


def of_order(count: int, scale: Scale, name: str = "order", table: str = "samples") -> Figure:
    """The first scores of rows against their order, or their coordinate."""
    shown = min(3, count)
    rows = tuple(
        (
            Panel(
                (RowLine(POSITION, score(number)), RowPoints(POSITION, score(number))),
                scale if number == shown - 1 else _unmarked(scale),
                Scale(score(number)),
            ),
        )
        for number in range(shown)
    )
    return Figure(name, "order", rows, 130, 760, table, "Scores in the order of samples")


def _unmarked(scale: Scale) -> Scale:
    return Scale(limits=scale.limits, marked=False, together=scale.together)


def of_component(
    called: str,
    component: Component,
    axes_of: list[DrawnAxis],
    groups: FeatureRanges | None = None,
    name: str | None = None,
    together: str = "features",
    unit: str = "",
) -> Figure:
    """A component, drawn in the shape of the data.

    Parameters
    ----------
    called : its number, with the name of its group of several
    name : what no other figure of the page is called; None for one that follows from `called`
    together : what is the same for components that are looked at closer together
    unit : of the values; empty for loadings, which have none
    """
    name, views = name or identified(f"component {called}"), component.pictures
    about = f"{'Map' if unit else 'Loadings'} of component {called}"
    if groups is not None:
        panel = _grouped(called, component, views[0], axes_of[0], groups, together)
        return Figure(name, "component by group", ((panel,),), 200, 760, about=about)
    if len(views[0].shape) == 1:
        lines = tuple(
            (_line(called, values, view, axes_of[view.axes[0]], together, unit),)
            for view, values in zip(views, component.views, strict=True)
        )
        return Figure(name, "component as a line", lines, 160, 760, about=about)
    limit = largest(component.views)
    panels = [
        panel_of(view, axes_of, (image_of(view, axes_of, values, (-limit, limit), unit),), together)
        for view, values in zip(views, component.views, strict=True)
    ]
    rows = arranged(panels)
    volume = volume_of(component.whole, views, axes_of) if component.whole else None
    return Figure(name, "component as a map", rows, 280, width_of(rows[0]), about=about, volume=volume)


def volume_of(whole: Sliced, views: Sequence[Picture], axes_of: Sequence[DrawnAxis]) -> Volume:
    """The slices that panels of three views may show."""
    across, axes = list[Slices](), sorted({axis for view in views for axis in view.axes})
    for number, view in enumerate(views):
        edges, lines = list[tuple[float, float]](), list[F64]()
        for axis, length, step in zip(view.axes, view.shape, view.step, strict=True):
            drawn, other = axes_of[axis], axes.index(axis)
            first, last = drawn.edges(length * step)
            pitch = (last - first) / (length * step)
            edges.append((first, first + pitch * whole.step[other] * whole.values.shape[other]))
            lines.append(np.asarray(first + pitch * (whole.entries[other] + 0.5), np.float64))
        (bottom, top), (left, right) = edges
        across.append(Slices(whole.names[number], whole.at[number], left, right, bottom, top, (lines[0], lines[1])))
    return Volume(whole.values, tuple(across))


BESIDE = 3
"""Panels in a row, at most."""


def arranged(panels: Sequence[Panel]) -> tuple[tuple[Panel, ...], ...]:
    """Panels of images in rows, with one bar of colours at the end of each row."""
    across = min(len(panels), BESIDE if len(panels) != 4 else 2)
    rows = [panels[start : start + across] for start in range(0, len(panels), across)]
    return tuple(tuple(one if one is row[-1] else _without_bar(one) for one in row) for row in rows)


def _without_bar(panel: Panel) -> Panel:
    return replace(
        panel, marks=tuple(replace(mark, bar=False) if isinstance(mark, Image) else mark for mark in panel.marks)
    )


def width_of(panels: Sequence[Panel], height: float = 300) -> float:
    """The width in pixels of panels beside each other that are as high as this, or less."""
    return float(np.clip(sum(height / (panel.ratio or 1.0) + 90 for panel in panels), 260, 860))


def axes_on(view: Picture, axes_of: Sequence[DrawnAxis]) -> tuple[DrawnAxis, DrawnAxis]:
    """The axes down and across an image of a view."""
    if view.places is not None:
        return view.places.down, view.places.across
    down, across = (axes_of[axis] for axis in view.axes)
    return down, across


def image_of(
    view: Picture, axes_of: Sequence[DrawnAxis], values: F64, limits: tuple[float, float], title: str = ""
) -> Image:
    """One view of a component as an image.

    Parameters
    ----------
    axes_of : all axes of the features
    """
    down, across = axes_on(view, axes_of)
    (height, width), (rows, columns) = view.shape, view.step
    left, right = across.edges(width * columns)
    first, last = down.edges(height * rows)
    return Image(values, left, right, first, last, limits, title=title, adjustable=True)


def panel_of(
    view: Picture, axes_of: Sequence[DrawnAxis], marks: tuple[Mark, ...], together: str = "", title: str = ""
) -> Panel:
    """The panel of images of a view; rows run downward unless their coordinate grows upward.

    Where steps along both axes are alike, so they are on the page; else nothing says how high the panel is, and it is not much higher, or lower,
    than wide.
    """
    down, across = axes_on(view, axes_of)
    (height, width), (rows, columns) = view.shape, view.step
    left, right = across.edges(width * columns)
    first, last = down.edges(height * rows)
    low, high = min(first, last), max(first, last)
    shape = (
        abs(high - low) / abs(right - left)
        if down.alike(across)
        else np.clip(height * rows / (width * columns), 0.4, 1.0)
    )
    x, y = scale_of(across, width, columns), scale_of(down, height, rows)
    group = f"{together} {view.axes} {view.cut}" if together else ""
    if (down.toward, across.toward) == ("north", "east"):
        lines = coasts(min(left, right), max(left, right), low, high)
        marks = marks if lines is None else (*marks, lines)
    if view.crossed:
        of_y, of_x = (view.crossed[axis] for axis in view.axes)
        at_y, at_x = down.at(of_y, height * rows), across.at(of_x, width * columns)
        marks = (*marks, Rule(at_y, "y", width=0.5, opacity=0.6), Rule(at_x, "x", width=0.5, opacity=0.6))
    return Panel(
        marks,
        Scale(
            x.label, (left, right), whole=x.whole, marks=x.marks, names=x.names, together=f"{group} x" if group else ""
        ),
        Scale(
            y.label,
            (low, high) if down.known and not down.downward else (high, low),
            whole=y.whole,
            marks=y.marks,
            names=y.names,
            together=f"{group} y" if group else "",
        ),
        title or view.title,
        ratio=float(np.clip(shape, 0.2, 3.0)),
    )


def of_outliers(quality: Quality, table: str = "samples") -> Figure:
    """Leverage against the share of each sample outside the components."""
    least, most = float(quality.leverage.min()), float(quality.leverage.max())
    # Else the axis would show rounding errors.
    limits = (least - 0.1, most + 0.1) if most - least < 1e-6 else None
    panel = Panel(
        (RowPoints("leverage", "share that components leave"),),
        Scale("leverage", limits),
        Scale("share that components leave", (-0.02, 1.02)),
    )
    return Figure("outliers", "outliers", ((panel,),), 320, 420, table, "Leverage and residuals of samples")


PLACE = "place in the matrix"
"""The column with the place of a sample in the drawn matrix of similarities; NaN where it is not in it."""


def of_similarity(quality: Quality, table: str = "samples") -> Figure:
    """Cosines between centred samples, ordered by the first score."""
    n = len(quality.similarity)
    every = "" if quality.every == 1 else f", one of {quality.every}"
    panel = Panel(
        (
            Image(quality.similarity, -0.5, n - 0.5, -0.5, n - 0.5, (-1.0, 1.0), title="cosine"),
            RowPoints(PLACE, PLACE, across=True, opacity=0.0),
        ),
        Scale(f"samples by score 1{every}", (-0.5, n - 0.5), marked=False),
        Scale(limits=(n - 0.5, -0.5), marked=False),
        ratio=1.0,
    )
    return Figure("similarity", "similarity", ((panel,),), 320, 420, table, "Similarity of samples")


def identified(*words: str) -> str:
    """An id of an element of the page."""
    return ".".join(re.sub(r"\W+", "-", word) for word in words if word)


def largest(values: Sequence[NDArray[Any]]) -> float:
    """The largest magnitude; 1 where there is none."""
    return float(max(np.nanmax(np.abs(one), initial=0) for one in values)) or 1.0


def _line(called: str, values: F64, view: Picture, axis: DrawnAxis, together: str, unit: str = "") -> Panel:
    at = axis.positions(len(values), view.step[0])
    zero: list[Mark] = [Rule(0.0, "y", width=0.5)]
    if len(values) > FEW:
        drawn: list[Mark] = [Area(at, np.minimum(values, 0), np.maximum(values, 0), opacity=0.9)]
    else:
        drawn = [
            Upright(at, np.minimum(values, 0), np.maximum(values, 0), COLORS[0]),
            Points(at, values, COLORS[0], size=5),
        ]
    x = scale_of(axis, len(values), view.step[0], f"{together} x")
    return Panel(tuple(zero + drawn), x, Scale(f"component {called}" + (f" ({unit})" if unit else "")), view.title)


def _grouped(
    called: str, component: Component, view: Picture, axis: DrawnAxis, groups: FeatureRanges, together: str
) -> Panel:
    """Absolute loadings group by group, as in a Manhattan plot, with boundaries between them."""
    values, stops = np.abs(component.views[0]), [*groups.starts[1:], groups.length]
    at, marks = view.step[0] * np.arange(len(values), dtype=np.float64), list[Mark]()
    for index, (start, stop) in enumerate(zip(groups.starts, stops, strict=True)):
        inside = (at >= start) & (at < stop)
        marks.append(Points(at[inside], values[inside], (COLORS[0], INK)[index % 2], SHAPES[index % 2], 3.5))
        if index:
            marks.append(Rule(start, "x", width=0.4, opacity=0.5))
    middles = [(start + stop) / 2 for start, stop in zip(groups.starts, stops, strict=True)]
    return Panel(
        tuple(marks),
        Scale(
            f"{axis.label}, by group",
            (0.0, float(groups.length)),
            marks=dict(zip(middles, groups.names, strict=True)),
            together=f"{together} x",
        ),
        Scale(f"|component {called}|", (0.0, 1.05 * largest([values]))),
    )
