"""The figures of the report of a run, as SVG."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from dpca.report.drawing import COLORS, INK, MANY_POINTS, MARKERS, as_text, image, mark, new_figure, styled, svg
from dpca.report.findings import Answer, Axis, Component, Groups, Picture, Quality, Scree

LEGEND_LETTERS = 24
LETTER_SHARE = 0.0125
"""Width of a letter of a name below a plot, as a share of the width of the plot."""


@styled
def of_eigenvalues(scree: Scree) -> str:
    """Eigenvalues with their sampling errors and the edge of the noise."""
    k, shown = scree.n_components, scree.n_shown
    figure = new_figure(4.2, 3.1)
    axes = figure.subplots()
    numbers, values = np.arange(shown), scree.eigenvalues[:shown]
    axes.semilogy(numbers, values, color=INK, linewidth=0.8, alpha=0.5)
    first, kept = numbers[:k], values[:k]
    errors = np.clip(scree.errors[: len(kept)], 0, 0.99) * kept
    axes.errorbar(first, kept, errors, fmt="none", ecolor=COLORS[0], capsize=2, linewidth=1)
    reliable = scree.reliable[: len(kept)]
    axes.plot(first[reliable], kept[reliable], "o", color=COLORS[0], markersize=4, label="kept")
    if not reliable.all():
        how: dict[str, Any] = {"markerfacecolor": "none", "color": COLORS[1], "label": "kept, not reliable"}
        axes.plot(first[~reliable], kept[~reliable], "s", **how)
    if scree.edge is not None:
        axes.axhline(scree.edge, color=COLORS[2], linestyle="--", linewidth=1, label="edge of white noise")
    axes.set(xlabel="component", ylabel="eigenvalue")
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.legend(loc="upper right")
    return svg(figure, "eigenvalues")


@styled
def of_shares(scree: Scree) -> str:
    """The cumulative share of the variance, and the numbers of components that the rules suggest."""
    k, shown = scree.n_components, int(np.count_nonzero(scree.eigenvalues > 0))
    figure = new_figure(4.2, 3.1)
    axes = figure.subplots()
    numbers, shares = np.arange(1, shown + 1), np.cumsum(scree.ratio[:shown])
    axes.plot(numbers, shares, color=INK, linewidth=1)
    axes.plot(numbers[:k], shares[:k], "o", color=COLORS[0], markersize=4)
    rules = {name: value for name, value in scree.suggested.items() if isinstance(value, int) and name != "rank"}
    for (name, value), color, style in zip(
        rules.items(), COLORS[1:], ("--", "-.", ":", (0, (5, 1, 1, 1)), (0, (1, 1))), strict=False
    ):
        axes.axvline(value, color=color, linestyle=style, linewidth=1, label=f"{name}: {value}")
    axes.set(xlabel="number of components", ylabel="share of the variance", ylim=(0, 1.02))
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    if rules:
        axes.legend(loc="lower right")
    return svg(figure, "shares")


@styled
def of_validation(errors: NDArray[np.float64]) -> str:
    """The error of bi-cross-validation by number of components, (most + 1,), and where it is smallest."""
    best = int(np.argmin(errors))
    shown = errors[: max(2 * best, 10) + 1]
    figure = new_figure(4.2, 3.1)
    axes = figure.subplots()
    axes.plot(np.arange(len(shown)), shown, color=INK, linewidth=1)
    axes.plot([best], [errors[best]], "o", color=COLORS[0], markersize=5, label=f"smallest: {best}")
    axes.set(xlabel="number of components", ylabel="error of what was left out")
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.legend(loc="upper right")
    return svg(figure, "bi-cross-validation")


@styled
def of_group_shares(shares: NDArray[np.float64], names: Sequence[str], name: str = "group-shares") -> str:
    """The share of each group of features in each component, (groups, components), as stacked bars."""
    count = shares.shape[1]
    figure = new_figure(4.6, 0.28 * count + 0.9)
    axes = figure.subplots()
    numbers, left = np.arange(count), np.zeros(count)
    for number, (share, group) in enumerate(zip(shares, names, strict=True)):
        hatch = ("", "//", "..", "xx")[number // len(COLORS) % 4]
        color = COLORS[number % len(COLORS)]
        axes.barh(
            numbers, share, left=left, color=color, hatch=hatch, edgecolor="white", linewidth=0.5, label=as_text(group)
        )
        left = left + share
    axes.set(xlabel="share of the variance", ylabel="component", xlim=(0, 1), ylim=(count - 0.5, -0.5))
    axes.yaxis.set_major_locator(MaxNLocator(8, integer=True))
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=min(len(names), 4))
    return svg(figure, name)


@styled
def of_scores(scores: NDArray[np.float64], labels: NDArray[Any] | None) -> str:
    """The first scores against each other."""
    count = min(4, scores.shape[1])
    if count < 2:
        return ""
    figure = new_figure(2.1 * (count - 1) + 1.6, 2.1 * (count - 1))
    panels = figure.subplots(count - 1, count - 1, squeeze=False)
    drawn: list[Any] = []
    for row in range(1, count):
        for column in range(count - 1):
            axes = panels[row - 1][column]
            if column >= row:
                axes.axis("off")
                continue
            drawn = _points(axes, scores[:, column], scores[:, row], labels)
            axes.xaxis.set_major_locator(MaxNLocator(3))
            axes.yaxis.set_major_locator(MaxNLocator(3))
            if row == count - 1:
                axes.set_xlabel(f"score {column}")
            if column == 0:
                axes.set_ylabel(f"score {row}")
    _legend(figure, drawn, labels)
    return svg(figure, "scores")


@styled
def of_kernels(answers: list[Answer], labels: NDArray[Any] | None) -> str:
    """The first two scores of each kernel."""
    across = min(4, len(answers))
    down = -(-len(answers) // across)
    figure = new_figure(1.9 * across + (1.0 if labels is not None else 0.0), 2.0 * down)
    panels = figure.subplots(down, across, squeeze=False).reshape(-1)
    drawn: list[Any] = []
    for axes in panels[len(answers) :]:
        axes.axis("off")
    for axes, answer in zip(panels, answers, strict=False):
        if answer.scores.shape[1] < 2:
            axes.axis("off")
        else:
            drawn = _points(axes, answer.scores[:, 0], answer.scores[:, 1], labels)
        kernel = answer.kernel
        assert kernel is not None
        gamma = "" if math.isnan(kernel.gamma) else f", gamma {kernel.gamma:.3g}"
        axes.set_title(f"{answer.number}: {kernel.name}{gamma}", fontsize=7)
        axes.set(xticks=[], yticks=[])
    _legend(figure, drawn, labels)
    return svg(figure, "kernels")


@styled
def of_order(
    scores: NDArray[np.float64],
    axis: Axis,
    labels: NDArray[Any] | None,
    every: int = 1,
    name: str = "order",
    many: int = MANY_POINTS,
) -> str:
    """The first scores of every `every`-th sample against the order of samples, or their coordinate.

    Parameters
    ----------
    many : larger numbers of samples are drawn as one bitmap
    """
    count = min(3, scores.shape[1])
    figure = new_figure(6.4, 1.2 * count + 0.5)
    at = axis.positions(len(scores), every)
    panels = figure.subplots(count, 1, sharex=True, squeeze=False)[:, 0]
    for number, axes in enumerate(panels):
        axes.plot(at, scores[:, number], color=INK, linewidth=0.4, alpha=0.4, rasterized=len(scores) > many)
        _points(axes, at, scores[:, number], labels, many)
        axes.set_ylabel(f"score {number}")
        axes.yaxis.set_major_locator(MaxNLocator(3))
    panels[-1].set_xlabel(as_text(axis.label))
    mark(panels[-1].xaxis, axis, 8)
    return svg(figure, name)


@styled
def of_component(
    called: str,
    component: Component,
    views: tuple[Picture, ...],
    axes_of: list[Axis],
    groups: Groups | None = None,
    name: str | None = None,
) -> str:
    """A component, drawn in the shape of the data.

    Parameters
    ----------
    called : its number, with the name of its group of several
    name : what no other figure of the page is called; None for one that follows from `called`
    """
    name = name or _id(called)
    if groups is not None:
        return _grouped(called, component, views[0], axes_of[0], groups, name)
    if len(views[0].axes) == 1:
        return _line(called, component, views[0], axes_of[0], name)
    shapes = [view.shape for view in views]
    width = sum(shape[1] for shape in shapes)
    height = 3.0 if len(views) > 1 else min(4.0, 3.6 * shapes[0][0] / shapes[0][1] + 0.7)
    figure = new_figure(min(7.4, max(2.6, 1.5 + height * width / max(shape[0] for shape in shapes))), height)
    panels = figure.subplots(1, len(views), squeeze=False, width_ratios=[shape[1] for shape in shapes])[0]
    limit = float(np.nanmax([np.nanmax(np.abs(values), initial=0) for values in component.views])) or 1.0
    drawn: Any = None
    for panel, view, values in zip(panels, views, component.views, strict=True):
        drawn = image(panel, values, view, axes_of, cmap="RdBu_r", vmin=-limit, vmax=limit)
    figure.colorbar(drawn, ax=list(panels), shrink=0.8, aspect=30)
    return svg(figure, name)


@styled
def of_outliers(quality: Quality) -> str:
    """Leverage against the share of each sample outside the components."""
    figure = new_figure(4.2, 3.4)
    axes = figure.subplots()
    many = len(quality.leverage) > MANY_POINTS
    axes.plot(quality.leverage, quality.outside, "o", color=COLORS[0], markersize=3, alpha=0.7, rasterized=many)
    least, most = float(quality.leverage.min()), float(quality.leverage.max())
    if most - least < 1e-6:  # else the axis would show rounding errors
        axes.set_xlim(least - 0.1, most + 0.1)
    axes.set(xlabel="leverage", ylabel="share that components leave", ylim=(-0.02, 1.02))
    return svg(figure, "outliers")


@styled
def of_similarity(quality: Quality) -> str:
    """Cosines between centred samples, ordered by the first score."""
    figure = new_figure(4.2, 3.4)
    axes = figure.subplots()
    drawn = axes.imshow(quality.similarity, cmap="RdBu_r", vmin=-1, vmax=1, interpolation="nearest")
    every = "" if quality.every == 1 else f", one of {quality.every}"
    axes.set(xlabel=f"samples by score 0{every}", ylabel="", xticks=[], yticks=[])
    figure.colorbar(drawn, ax=axes, shrink=0.8, label="cosine")
    return svg(figure, "similarity")


def _id(called: str) -> str:
    return re.sub(r"\W+", "-", f"component{called}")


def _line(called: str, component: Component, view: Picture, axis: Axis, name: str) -> str:
    figure = new_figure(6.4, 1.8)
    axes = figure.subplots()
    (values,) = component.views
    at = axis.positions(len(values), view.step[0])
    if len(values) > 60:
        many = len(values) > MANY_POINTS
        axes.fill_between(at, 0, values, step="mid", color=COLORS[0], linewidth=0.3, rasterized=many)
    else:
        axes.stem(at, values, linefmt=COLORS[0], markerfmt="o", basefmt=" ")
    axes.axhline(0, color=INK, linewidth=0.5)
    axes.set(xlabel=as_text(axis.label), ylabel=as_text(f"component {called}"))
    mark(axes.xaxis, axis, 8)
    return svg(figure, name)


def _grouped(called: str, component: Component, view: Picture, axis: Axis, groups: Groups, name: str) -> str:
    """Absolute loadings group by group, as in a Manhattan plot, with boundaries between them."""
    figure = new_figure(7.4, 2.2)
    axes = figure.subplots()
    values, stops = np.abs(component.views[0]), [*groups.starts[1:], groups.length]
    at = view.step[0] * np.arange(len(values))
    for index, (start, stop) in enumerate(zip(groups.starts, stops, strict=True)):
        inside = (at >= start) & (at < stop)
        how: dict[str, Any] = {"color": COLORS[0] if index % 2 == 0 else INK, "markersize": 2.5}
        axes.plot(at[inside], values[inside], "os"[index % 2], rasterized=len(values) > MANY_POINTS, **how)
        if index:
            axes.axvline(start, color=INK, linewidth=0.3, alpha=0.5)
    middles = [(start + stop) / 2 for start, stop in zip(groups.starts, stops, strict=True)]
    named, last = [], -math.inf
    for middle, title in zip(middles, groups.names, strict=True):
        room = LETTER_SHARE * (len(title) + 1) * groups.length
        if middle - last >= room:  # a name that would touch the previous one is left out
            named.append((middle, title))
            last = middle
    axes.set_xticks([middle for middle, _ in named], [as_text(title) for _, title in named])
    axes.tick_params(axis="x", length=0, labelsize=8)
    axes.set(
        xlabel=f"{as_text(axis.label)}, by group",
        ylabel=as_text(f"|component {called}|"),
        xlim=(0, groups.length),
        ylim=(0, None),
    )
    return svg(figure, name)


def _points(axes: Any, x: Any, y: Any, labels: NDArray[Any] | None, many: int = MANY_POINTS) -> list[Any]:
    size = 9 if len(x) <= 500 else 3
    how = {"s": size, "linewidths": 0, "alpha": 0.8, "rasterized": len(x) > many}
    if labels is None:
        return [axes.scatter(x, y, color=COLORS[0], **how)]
    kinds = np.unique(labels)
    if len(kinds) > len(COLORS):
        if labels.dtype.kind in "biuf":
            return [axes.scatter(x, y, c=labels.astype(float), cmap=_visible("viridis"), **how)]
        return [axes.scatter(x, y, c=np.unique(labels, return_inverse=True)[1], cmap=_visible("turbo"), **how)]
    return [
        axes.scatter(x[labels == kind], y[labels == kind], color=color, marker=marker, label=_short(str(kind)), **how)
        for kind, color, marker in zip(kinds, COLORS, MARKERS, strict=False)
    ]


def _short(name: str) -> str:
    return as_text(name if len(name) <= LEGEND_LETTERS else name[: LEGEND_LETTERS - 3] + "...")


def _visible(name: str) -> ListedColormap:
    """A colour map without its dark end, which is invisible on a dark page."""
    return ListedColormap(mpl.colormaps[name](np.linspace(0.2, 1, 256)))


def _legend(figure: Figure, drawn: list[Any], labels: NDArray[Any] | None) -> None:
    if labels is None or not drawn:
        return
    if len(drawn) > 1:
        figure.legend(handles=drawn, loc="upper right", markerscale=2)
    elif labels.dtype.kind in "biuf":
        figure.colorbar(drawn[0], ax=figure.axes, shrink=0.6, label="label")
