"""What figures are made of: the style, images, axes that are marked, and SVG.

Text stays text, and lines take the text colour of the page, so that a figure suits light and dark pages. The palette is that
of Okabe and Ito, which can be read with colour blindness; shapes or positions always carry the same information. Only this file
and those of figures import matplotlib (extra `report`).
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, ParamSpec

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator
from numpy.typing import NDArray

from dpca.report.findings import Axis, Picture

P = ParamSpec("P")

MISSING = "#9a9a9a"
"""Colour of pixels without any value; a value near 0 is white."""
INK = "#102030"
"""Placeholder for the text colour of the page."""
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8f8f8f", "#b5a100")
MARKERS = "os^DvPX*"
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
"""Control characters and surrogates, which no font has."""
LETTERS = 10
"""For each mark that an axis has room for."""
MANY_POINTS = 2000
"""Larger numbers of points are drawn as one bitmap, not as single shapes."""
STYLE: Any = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 9,
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
    "legend.frameon": False,
}


def styled(draw: Callable[P, str]) -> Callable[P, str]:
    """A drawing function in the style of the report, which leaves the caller's matplotlib settings unchanged."""

    @wraps(draw)
    def drawing(*arguments: P.args, **named: P.kwargs) -> str:
        with mpl.rc_context(STYLE):
            return draw(*arguments, **named)

    return drawing


def new_figure(width: float, height: float) -> Figure:
    """An empty figure, in inches."""
    return Figure(figsize=(width, height), layout="constrained")


def svg(figure: Figure, name: str) -> str:
    """The <svg> element, as wide as its container, in the text colour of the page; the same bytes for the same figure."""
    written = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": name}):
        figure.savefig(written, format="svg", metadata={"Date": None}, dpi=110)
    text = written.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    width = re.search(r'width="([\d.]+)pt"', text)
    assert width is not None
    text = re.sub(r' (width|height)="[\d.]+pt"', "", text, count=2)
    style = f'style="--natural: {float(width[1]) * 4 / 3:.0f}px"'
    return text.replace(INK, "currentColor").replace("<svg", f'<svg {style} role="img"', 1)


def as_text(name: str) -> str:
    """A name as plain text: matplotlib would set text between dollar signs as mathematics."""
    return CONTROL.sub("\ufffd", name).replace("$", r"\$")


def mark(ticks: Any, axis: Axis, most: int) -> None:
    """Mark an axis at round numbers, or with names; a time where years begin, or, if it is shorter, with dates."""
    marks: dict[float, str] = axis.years(most) or axis.named(LETTERS * most)
    if marks:
        ticks.set_ticks(list(marks), list(map(as_text, marks.values())))
        return
    ticks.set_major_locator(MaxNLocator(most if axis.time is None else min(most, 5), integer=not axis.known))
    if axis.time is not None:
        ticks.set_major_formatter(FuncFormatter(lambda position, _: axis.date(position)))


def image(panel: Any, values: NDArray[Any], view: Picture, axes_of: Sequence[Axis], **how: Any) -> Any:
    """Draw one view of a component into a panel; pixels without any value are grey.

    Parameters
    ----------
    axes_of : all axes of the features
    how : colours and their limits, for imshow
    """
    down, across = (axes_of[axis] for axis in view.axes)
    extent, upward = _extent(down, across, view)
    drawn = panel.imshow(
        values,
        extent=extent,
        origin="lower" if upward else "upper",
        interpolation="nearest",
        aspect="equal" if down.known == across.known else "auto",
        **how,
    )
    panel.set_facecolor(MISSING)
    panel.set(xlabel=as_text(across.label), ylabel=as_text(down.label))
    mark(panel.xaxis, across, 4)
    mark(panel.yaxis, down, 4)
    return drawn


def ratio_of(view: Picture, axes_of: Sequence[Axis]) -> float:
    """Height over width of an image, as `image` draws it where there is room."""
    down, across = (axes_of[axis] for axis in view.axes)
    if not (down.known and across.known):
        return view.shape[0] / view.shape[1]
    (left, right, low, high), _ = _extent(down, across, view)
    return abs(high - low) / abs(right - left)


def _extent(down: Axis, across: Axis, view: Picture) -> tuple[tuple[float, float, float, float], bool]:
    """Edges of an image in the units of its axes, and whether its first row is at the bottom."""
    (height, width), (pitch, _) = view.shape, view.step
    left, right = across.edges(width * pitch)
    first, last = down.edges(height * pitch)
    upward = down.known and first < last
    return ((left, right, first, last) if upward else (left, right, last, first)), upward
