"""Figures as plain values: panels with two axes each, and marks in them.

The page draws them where they can be looked at closer (`page.js`), and `dpca.report.static` as SVG for paper and for readers without
JavaScript. The palette is that of Okabe and Ito, which can be read with colour blindness; shapes or positions always carry the same
information.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dpca.types import F64

Dash = Literal["solid", "dashed", "dotted", "dotdash"]
Shape = Literal["circle", "square", "triangle", "diamond", "inverted_triangle", "hex", "plus", "star", "dash"]

INK = "ink"
"""The colour of text, which is another one on a dark page."""
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8f8f8f", "#b5a100")
SHAPES: tuple[Shape, ...] = ("circle", "square", "triangle", "diamond", "inverted_triangle", "hex", "plus", "star")
"""All have an area, which is what is coloured."""
DASHES: tuple[Dash, ...] = ("solid", "dashed", "dotdash", "dotted")
NO_VALUE = "#9a9a9a"
"""Colour of pixels without any value; a value near 0 is white."""
COLOR_MAPS = {
    # RdBu of ColorBrewer, reversed.
    "diverging": (
        *("#053061", "#2166ac", "#4393c3", "#92c5de", "#d1e5f0", "#f7f7f7"),
        *("#fddbc7", "#f4a582", "#d6604d", "#b2182b", "#67001f"),
    ),
    # viridis without its dark end, which is hard to see on a dark page.
    "sequential": ("#414487", "#355f8d", "#2a788e", "#21918c", "#22a884", "#44bf70", "#7ad151", "#bddf26", "#fde725"),
    # After romaO (Crameri, Shephard and Heron, Nature Communications 11, 2020): no colour is near white, black or grey.
    "cyclic": (
        *("#733957", "#8c3b36", "#a9652f", "#c7a04f", "#d3d38d", "#a8d8bb", "#6fb8cb", "#4d85b8", "#5a5593"),
        "#733957",
    ),
}
Colors = Literal["diverging", "sequential", "cyclic"]


LOOKS = len(COLORS) * len(SHAPES)
"""Categories that differ in colour or in shape; more begin anew."""


def look_of(code: int) -> tuple[str, Shape]:
    """The colour and the shape of a category: each colour comes with another shape where there are more categories than colours."""
    return COLORS[code % len(COLORS)], SHAPES[(code + code // len(COLORS)) % len(SHAPES)]


@dataclass(frozen=True)
class Scale:
    """An axis of a panel."""

    label: str = ""
    limits: tuple[float, float] | None = None
    """Where it begins and ends; what is drawn decides if None."""
    log: bool = False
    whole: bool = False
    """Only whole numbers are marked."""
    marks: Mapping[float, str] = field(default_factory=dict)
    """Marks instead of round numbers, where at least two of them are in sight."""
    names: Mapping[float, str] = field(default_factory=dict)
    """Marks where fewer of the `marks` are in sight."""
    marked: bool = True
    together: str = ""
    """Axes with the same word here move together."""


@dataclass(frozen=True, eq=False)
class Line:
    """A line through points; a value that is NaN interrupts it."""

    x: F64
    y: F64
    color: str = INK
    width: float = 1.0
    dash: Dash = "solid"
    label: str = ""
    opacity: float = 1.0


@dataclass(frozen=True, eq=False)
class Points:
    """Single points."""

    x: F64
    y: F64
    color: str = COLORS[0]
    shape: Shape = "circle"
    size: float = 6.0
    """Diameter in pixels."""
    hollow: bool = False
    label: str = ""
    opacity: float = 0.85


@dataclass(frozen=True, eq=False)
class Area:
    """Area between two lines."""

    x: F64
    low: F64
    high: F64
    color: str = COLORS[0]
    label: str = ""
    opacity: float = 0.25


@dataclass(frozen=True, eq=False)
class Boxes:
    """Bars."""

    left: F64
    right: F64
    low: F64
    high: F64
    color: str = COLORS[0]
    label: str = ""
    hatch: str = ""
    """Hatch that tells boxes of one colour apart; empty or one of HATCHES."""


HATCHES = ("", "/", ".", "x")


@dataclass(frozen=True, eq=False)
class Upright:
    """Vertical lines between two values: stems, and intervals, which end in short lines."""

    x: F64
    low: F64
    high: F64
    color: str = INK
    width: float = 1.0
    ends: bool = False
    label: str = ""


@dataclass(frozen=True)
class Rule:
    """A straight line across the panel at one value of x, or of y."""

    at: float
    along: Literal["x", "y"]
    """The axis that the value is of."""
    color: str = INK
    width: float = 1.0
    dash: Dash = "solid"
    label: str = ""
    opacity: float = 1.0


@dataclass(frozen=True, eq=False)
class Image:
    """Values as colours, the first row at `bottom`; NaN where there is no value."""

    values: F64
    """(rows, columns)."""
    left: float
    right: float
    bottom: float
    top: float
    limits: tuple[float, float]
    """The values of the first and the last colour."""
    colors: Colors = "diverging"
    title: str = ""
    """Title of the bar of colours."""
    bar: bool = True
    """Whether there is a bar of colours beside the panel."""
    marks: tuple[float, ...] = ()
    """Marks along this bar."""
    adjustable: bool = False
    """Whether readers may set how far its colours go."""
    faint: F64 | None = None
    """Where it is not 0, a pixel with a value has no colour, as without sense; (rows, columns)."""


@dataclass(frozen=True)
class Words:
    """Text at a point, above it."""

    x: float
    y: float
    text: str


@dataclass(frozen=True)
class RowPoints:
    """The rows of a table as points in the colours of their labels: a row that is selected here is selected everywhere."""

    x: str
    """A column of the table."""
    y: str
    across: bool = False
    """Whether rows are selected by x alone."""
    opacity: float = 0.8


@dataclass(frozen=True)
class RowLine:
    """A faint line through all rows of a table, in their order."""

    x: str
    y: str


Mark = Line | Points | Area | Boxes | Upright | Rule | Image | Words | RowPoints | RowLine


@dataclass(frozen=True)
class Panel:
    """Two axes, and what is between them."""

    marks: tuple[Mark, ...]
    x: Scale = Scale()
    y: Scale = Scale()
    title: str = ""
    ratio: float | None = None
    """Height over width of the area between the axes; free if None."""
    choices: tuple[str, ...] = ()
    """Columns of the table of rows that the reader may choose for x and y."""
    periods: str = ""
    """The label of a further axis, above the panel, which shows 1 / x."""


@dataclass(frozen=True, eq=False)
class Slices:
    """The slices across one axis of a volume, in a panel that shows one of them; the other two axes are its y and its x."""

    names: tuple[str, ...]
    """Title of the panel at each slice."""
    at: int
    """The slice that the panel shows at first, closer."""
    left: float
    right: float
    bottom: float
    top: float
    """Edges of a slice, as of an image."""
    lines: tuple[F64, F64]
    """Where the panel has a line for each slice across its y and across its x."""


@dataclass(frozen=True, eq=False)
class Volume:
    """Values on three axes. The reader moves through the slices across each."""

    values: F64
    """(slices across the first axis, across the second, across the third); NaN where there is no value."""
    across: tuple[Slices, ...]
    """For each of the first three panels of the figure: the first is across the first axis, and so on."""


@dataclass(frozen=True)
class Figure:
    """Panels in rows."""

    name: str
    """Name that no other figure of the page has."""
    kind: str
    """Name that other figures of the same kind have, too; the first of each is drawn as a static picture, also."""
    panels: tuple[tuple[Panel, ...], ...]
    height: float = 280
    """Height of a row of panels without a ratio of their own, in pixels."""
    width: float = 640
    """The largest that is of use, in pixels."""
    table: str = ""
    """The table that points of rows are of."""
    about: str = ""
    """For those who can't see it."""
    volume: Volume | None = None
    """Values that its panels are slices of, where the reader may move through more of them."""


@dataclass(frozen=True, eq=False)
class Labels:
    """Labels of rows."""

    names: tuple[str, ...]
    """Different labels, in order."""
    codes: NDArray[np.int64]
    """Number of the label of each row, (rows,)."""
    numbers: F64 | None = None
    """Label of each row, where labels are numbers, and many: a colour follows from it, (rows,)."""

    @classmethod
    def of(cls, labels: NDArray[Any]) -> Labels:
        """Names and colours of the labels of rows."""
        found, codes = np.unique(labels, return_inverse=True)
        names = tuple(map(str, found.tolist()))
        many = labels.dtype.kind in "biuf" and len(found) > len(COLORS)
        return cls(names, codes.astype(np.int64), labels.astype(np.float64) if many else None)


@dataclass(frozen=True, eq=False)
class Table:
    """Rows that several figures show, such as samples."""

    word: str
    """Word for a row."""
    names: tuple[str, ...]
    columns: Mapping[str, F64]
    """(rows,) each."""
    labels: Labels | None = None
    every: int = 1
    """Every `every`-th of all rows is in it."""
