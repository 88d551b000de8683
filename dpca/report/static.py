"""Figures as SVG, for paper, for readers without JavaScript, and for cells of notebooks: small, and in the colour of the text around."""

from __future__ import annotations

import base64
import math
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpca.report.marks import (
    COLOR_MAPS,
    COLORS,
    INK,
    LOOKS,
    NO_VALUE,
    SHAPES,
    Area,
    Boxes,
    Figure,
    Image,
    Labels,
    Line,
    Mark,
    Panel,
    Points,
    RowLine,
    RowPoints,
    Rule,
    Scale,
    Table,
    Upright,
    Words,
    look_of,
)
from dpca.types import F64

MOST_POINTS = 1500
"""Number of points above which every k-th is drawn, also of lines."""
MARGIN = 0.04
"""Share of a drawing that is left free on each side of it."""
LEFT, RIGHT, TOP, BOTTOM, BAR = 70, 12, 20, 38, 62
"""Pixels around the area between the axes; and for a bar of colours."""
LETTER = 6.2
"""Width of a letter, in pixels."""
LINE = 11
"""Height of a line of text, in pixels."""
BESIDE = 8
"""Most letters of what is marked beside an axis."""
DASHED = {"solid": "", "dashed": "6 4", "dotted": "1.5 3", "dotdash": "6 3 1.5 3"}
# Paths of radius 1 about the point where they begin.
OUTLINES = {
    "circle": ((-1, 0), "a1 1 0 1 0 2 0a1 1 0 1 0-2 0z"),
    "square": ((-0.9, -0.9), "h1.8v1.8h-1.8z"),
    "triangle": ((0, -1), "l1 1.8h-2z"),
    "inverted_triangle": ((0, 1), "l-1-1.8h2z"),
    "diamond": ((0, -1), "l1 1l-1 1l-1-1z"),
    "hex": ((-1, 0), "l.5-.9h1l.5.9l-.5.9h-1z"),
    "plus": ((-1, -0.25), "h.75v-.75h.5v.75h.75v.5h-.75v.75h-.5v-.75h-.75z"),
    "star": ((0, -1), "l.23 .69h.72l-.59 .43l.23 .69l-.59-.43l-.59 .43l.23-.69l-.59-.43h.72z"),
    "dash": ((-1, 0), "h2"),
}


def as_svg(figure: Figure, tables: Mapping[str, Table]) -> str:
    """An <svg> element as wide as its container, at most as wide as the figure."""
    table, parts, y = tables.get(figure.table), list[str](), 0.0
    for number, row in enumerate(figure.panels):
        width = figure.width / max(len(one) for one in figure.panels)
        heights = []
        for place, panel in enumerate(row):
            drawn, height = _panel(panel, table, width, figure.height, legend=not number and not place)
            parts.append(f'<g transform="translate({place * width:.0f} {y:.0f})">{drawn}</g>')
            heights.append(height)
        y += max(heights)
    return (
        f'<svg viewBox="0 0 {figure.width:.0f} {y:.0f}" style="--natural: {figure.width:.0f}px" role="img" '
        f'aria-label="{escape(figure.about, quote=True)}" font-family="sans-serif" font-size="11" fill="currentColor">{"".join(parts)}</svg>'
    )


@dataclass(frozen=True)
class _Area:
    """The area between the axes, in pixels."""

    x: Callable[[Any], Any]
    y: Callable[[Any], Any]
    left: float
    right: float
    top: float
    bottom: float


def _panel(panel: Panel, table: Table | None, width: float, height: float, legend: bool) -> tuple[str, float]:
    bar = next((mark for mark in panel.marks if isinstance(mark, Image) and mark.bar), None)
    left, right = LEFT, width - RIGHT - (BAR if bar is not None else 0)
    top = TOP * (1.0 + bool(panel.periods))
    if panel.ratio is not None:
        height = panel.ratio * (right - left) + top + BOTTOM
    bottom = height - BOTTOM
    across, down = extent_of(panel.x, panel.marks, table, "x"), extent_of(panel.y, panel.marks, table, "y")
    area = _Area(_placed(panel.x, across, left, right), _placed(panel.y, down, bottom, top), left, right, top, bottom)
    clip = f'<svg x="{left}" y="{top}" width="{right - left:.1f}" height="{bottom - top:.1f}" viewBox="{left} {top} {right - left:.1f} {bottom - top:.1f}">'
    inside = "".join(_drawn(mark, area, table) for mark in panel.marks)
    parts = [
        clip,
        inside,
        "</svg>",
        _frame(area),
        _marked_below(panel.x, across, area),
        _marked_left(panel.y, down, area),
    ]
    if panel.title:
        parts.append(_text((left + right) / 2, top - 7, panel.title))
    elif legend or len(_named(panel.marks)):
        parts.append(_legend(panel, table, area))
    if bar is not None:
        parts.append(_bar(bar, area))
    return "".join(parts), height


def extent_of(scale: Scale, marks: Sequence[Mark], table: Table | None, along: str) -> tuple[float, float]:
    """Where an axis begins and ends."""
    if scale.limits is not None:
        return scale.limits
    found = [np.asarray(values, np.float64) for mark in marks for values in _values(mark, table, along)]
    values = np.concatenate([one.reshape(-1) for one in found]) if found else np.empty(0)
    values = values[np.isfinite(values) & ((values > 0) | (not scale.log))]
    if not values.size:
        return (0.1, 1.0) if scale.log else (0.0, 1.0)
    low, high = float(values.min()), float(values.max())
    if scale.log:
        room = (high / low) ** MARGIN if high > low else 2.0
        return low / room, high * room
    room = MARGIN * (high - low) or 0.5 * abs(high) or 0.5
    return low - room, high + room


def _values(mark: Mark, table: Table | None, along: str) -> list[Any]:
    """The values of a mark along an axis."""
    of_x = along == "x"
    match mark:
        case RowPoints() | RowLine():
            return [] if table is None else [table.columns[mark.x if of_x else mark.y]]
        case Area() | Upright():
            return [mark.x] if of_x else [mark.low, mark.high]
        case Boxes():
            return [mark.left, mark.right] if of_x else [mark.low, mark.high]
        case Image():
            return [[mark.left, mark.right]] if of_x else [[mark.bottom, mark.top]]
        case Rule():
            return [[mark.at]] if (mark.along == "x") == of_x else []
        case Line() | Points() | Words():
            return [mark.x if of_x else mark.y]


def _placed(scale: Scale, extent: tuple[float, float], first: float, last: float) -> Callable[[Any], Any]:
    """Transformation of values into pixels."""
    turn: Callable[[Any], Any] = np.log10 if scale.log else np.asarray
    low, high = (float(turn(value)) for value in extent)
    factor = (last - first) / ((high - low) or 1.0)

    def place(values: Any) -> Any:
        with np.errstate(divide="ignore", invalid="ignore"):
            return first + factor * (turn(np.asarray(values, np.float64)) - low)

    return place


def _drawn(mark: Mark, area: _Area, table: Table | None) -> str:
    match mark:
        case Line():
            return _line(area.x(mark.x), area.y(mark.y), mark.color, mark.width, mark.dash, mark.opacity)
        case Points():
            how = (mark.color, mark.shape, mark.size, mark.hollow, mark.opacity)
            return _points(area.x(mark.x), area.y(mark.y), *how)
        case Area():
            x, low, high = area.x(mark.x), area.y(mark.low), area.y(mark.high)
            outline = _path(np.concatenate([x, x[::-1]]), np.concatenate([high, low[::-1]]))
            return f'<path d="{outline}z" fill="{_color(mark.color)}" fill-opacity="{mark.opacity:g}"/>'
        case Boxes():
            x, y = (np.sort([of(one), of(other)], axis=0) for of, one, other in _corners(mark, area))
            boxes = "".join(
                f"M{a:.1f} {c:.1f}H{b:.1f}V{d:.1f}H{a:.1f}z" for a, b, c, d in zip(*x, *y, strict=True) if b > a
            )
            return f'<path d="{boxes}" fill="{_color(mark.color)}" fill-opacity=".85" stroke="#fff" stroke-width=".5"/>'
        case Upright():
            return _upright(mark, area)
        case Rule():
            at = float(area.x(mark.at) if mark.along == "x" else area.y(mark.at))
            upright, level = ([at, at], [area.top, area.bottom]), ([area.left, area.right], [at, at])
            across, down = upright if mark.along == "x" else level
            return _line(np.array(across), np.array(down), mark.color, mark.width, mark.dash, mark.opacity)
        case Image():
            return _image(mark, area)
        case Words():
            return _text(float(area.x(mark.x)), float(area.y(mark.y)) - 4, mark.text)
        case RowLine():
            if table is None:
                return ""
            return _line(area.x(table.columns[mark.x]), area.y(table.columns[mark.y]), INK, 0.5, "solid", 0.4)
        case RowPoints():
            return "" if table is None else _rows(mark, area, table)


def _corners(mark: Boxes, area: _Area) -> list[tuple[Callable[[Any], Any], F64, F64]]:
    return [(area.x, mark.left, mark.right), (area.y, mark.low, mark.high)]


def _rows(mark: RowPoints, area: _Area, table: Table) -> str:
    if not mark.opacity:
        return ""
    x, y = area.x(table.columns[mark.x]), area.y(table.columns[mark.y])
    size = 4.0 if len(x) <= 500 else 2.5
    kinds = [(np.ones(len(x), bool), COLORS[0], SHAPES[0])] if table.labels is None else kinds_of(table.labels)
    return "".join(
        _points(x[inside], y[inside], color, shape, size, False, mark.opacity) for inside, color, shape in kinds
    )


def kinds_of(labels: Labels) -> list[tuple[NDArray[np.bool_], str, Any]]:
    """The rows of each colour and shape, as masks."""
    if labels.numbers is None:
        codes = labels.codes % LOOKS
        return [(codes == code, *look_of(code)) for code in range(min(LOOKS, len(labels.names)))]
    values = labels.numbers
    palette = palette_of("sequential", 16)
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    level = np.clip(np.nan_to_num(15.99 * (values - low) / ((high - low) or 1.0)).astype(int), 0, 15)
    return [(level == number, color, SHAPES[0]) for number, color in enumerate(palette)]


def palette_of(name: str, count: int) -> list[str]:
    """So many colours of a map of colours."""
    anchors = np.array([[int(color[at : at + 2], 16) for at in (1, 3, 5)] for color in COLOR_MAPS[name]], float)
    at = np.linspace(0, len(anchors) - 1, count)
    found = np.stack([np.interp(at, np.arange(len(anchors)), anchors[:, part]) for part in range(3)], axis=1)
    return ["#{:02x}{:02x}{:02x}".format(*row) for row in np.rint(found).astype(int).tolist()]


def _line(x: F64, y: F64, color: str, width: float, dash: str, opacity: float) -> str:
    every = 1 if np.isnan(x).any() else -(-len(x) // MOST_POINTS) or 1  # of pieces each point counts
    dashed = f' stroke-dasharray="{DASHED[dash]}"' if DASHED[dash] else ""
    faint = f' stroke-opacity="{opacity:g}"' if opacity < 1 else ""
    return f'<path d="{_path(x[::every], y[::every])}" fill="none" stroke="{_color(color)}" stroke-width="{width:g}"{dashed}{faint}/>'


def _path(x: F64, y: F64) -> str:
    """A path through points; one that is not finite interrupts it."""
    known, parts, begins = np.isfinite(x) & np.isfinite(y), list[str](), True
    for a, b, there in zip(x.tolist(), y.tolist(), known.tolist(), strict=True):
        if there:
            parts.append(f"{'M' if begins else 'L'}{a:.1f} {b:.1f}")
        begins = not there
    return "".join(parts)


def _points(x: F64, y: F64, color: str, shape: str, size: float, hollow: bool, opacity: float) -> str:
    every = -(-len(x) // MOST_POINTS) or 1
    x, y = x[::every], y[::every]
    known, radius = np.isfinite(x) & np.isfinite(y), size / 2
    (right, down), outline = OUTLINES[shape]
    # Coordinates are in radii, so that one outline serves all sizes.
    path = "".join(
        f"M{a:.1f} {b:.1f}{outline}"
        for a, b in zip((x[known] / radius + right).tolist(), (y[known] / radius + down).tolist(), strict=True)
    )
    line = hollow or shape == "dash"
    fill = (
        f'fill="none" stroke="{_color(color)}" stroke-width="{1.2 / radius:.2f}"'
        if line
        else f'fill="{_color(color)}" fill-opacity="{opacity:g}"'
    )
    return f'<path transform="scale({radius:g})" d="{path}" {fill}/>' if path else ""


def _upright(mark: Upright, area: _Area) -> str:
    x, low, high = area.x(mark.x), area.y(mark.low), area.y(mark.high)
    rows = [row for row in zip(x.tolist(), low.tolist(), high.tolist(), strict=True) if all(map(math.isfinite, row))]
    path = "".join(f"M{a:.1f} {b:.1f}V{c:.1f}" for a, b, c in rows)
    if mark.ends:
        path += "".join(f"M{a - 2.5:.1f} {b:.1f}h5M{a - 2.5:.1f} {c:.1f}h5" for a, b, c in rows)
    return f'<path d="{path}" fill="none" stroke="{_color(mark.color)}" stroke-width="{mark.width:g}"/>'


def _image(mark: Image, area: _Area) -> str:
    x, y = sorted(area.x([mark.left, mark.right]).tolist()), sorted(area.y([mark.bottom, mark.top]).tolist())
    values = mark.values
    if area.y(mark.bottom) > area.y(mark.top):  # the first row is the lowest
        values = values[::-1]
    if area.x(mark.left) > area.x(mark.right):
        values = values[:, ::-1]
    if mark.faint is not None:
        faint = mark.faint if area.y(mark.bottom) <= area.y(mark.top) else mark.faint[::-1]
        values = np.where(faint > 0, np.nan, values)
    encoded = base64.b64encode(_png(values, mark)).decode()
    return (
        f'<image x="{x[0]:.1f}" y="{y[0]:.1f}" width="{x[1] - x[0]:.1f}" height="{y[1] - y[0]:.1f}" preserveAspectRatio="none" '
        f'style="image-rendering: pixelated" href="data:image/png;base64,{encoded}"/>'
    )


def _png(values: F64, mark: Image) -> bytes:
    """An image of 255 colours, and one for pixels without a value (PNG specification, 11.2: colour type 3)."""
    low, high = mark.limits
    level = np.clip(254 * (values - low) / ((high - low) or 1.0), 0, 254)
    pixels = np.where(np.isnan(level), 255, np.nan_to_num(level)).astype(np.uint8)
    height, width = pixels.shape
    colors = bytes.fromhex("".join(color[1:] for color in (*palette_of(mark.colors, 255), NO_VALUE)))
    rows = np.hstack([np.zeros((height, 1), np.uint8), pixels]).tobytes()
    chunks = (
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
        (b"PLTE", colors),
        (b"IDAT", zlib.compress(rows, 6)),
        (b"IEND", b""),
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )


def _frame(area: _Area) -> str:
    path = f"M{area.left:.1f} {area.top:.1f}V{area.bottom:.1f}H{area.right:.1f}"
    return f'<path d="{path}" fill="none" stroke="currentColor" stroke-width=".8"/>'


def _marked_below(scale: Scale, extent: tuple[float, float], area: _Area) -> str:
    parts, middle = [], (area.left + area.right) / 2
    if scale.marked:
        last = -math.inf
        for value, name in ticks_of(scale, extent, 7).items():
            at, wide = float(area.x(value)), LETTER * len(name)
            if at - wide / 2 < last:
                continue  # it would touch the one before
            last = at + wide / 2 + LETTER
            parts.append(f'<path d="M{at:.1f} {area.bottom:.1f}v4" stroke="currentColor" stroke-width=".8"/>')
            parts.append(_text(at, area.bottom + 15, name))
    return "".join(parts) + _text(middle, area.bottom + 31, scale.label)


def _marked_left(scale: Scale, extent: tuple[float, float], area: _Area) -> str:
    parts, middle = [], (area.top + area.bottom) / 2
    if scale.marked:
        last = math.inf
        for at, name in sorted(
            ((float(area.y(value)), name) for value, name in ticks_of(scale, extent, 5).items()), reverse=True
        ):
            if at + LINE > last:
                continue  # it would touch the one below
            last = at
            parts.append(f'<path d="M{area.left:.1f} {at:.1f}h-4" stroke="currentColor" stroke-width=".8"/>')
            parts.append(_text(area.left - 7, at + 3.5, _in_few(name), "end"))
    if scale.label:
        parts.append(
            f'<text transform="translate(10 {middle:.0f}) rotate(-90)" text-anchor="middle">{escape(scale.label)}</text>'
        )
    return "".join(parts)


def ticks_of(scale: Scale, extent: tuple[float, float], most: int) -> dict[float, str]:
    """Ticks of an axis, and how they are written: its own marks, or round numbers."""
    low, high = min(extent), max(extent)
    for own in (scale.marks, scale.names):
        inside = {value: name for value, name in own.items() if low <= value <= high}
        if len(inside) > 1:
            every = -(-len(inside) // most) if own is scale.names else 1
            return dict(list(inside.items())[::every])
    if scale.log:
        return _powers(low, high, most)
    rough = (high - low) / most or 1.0
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * (1 - 1e-9))
    step = max(step, 1.0) if scale.whole else step
    first = math.ceil(low / step - 1e-9)
    values = [number * step for number in range(first, math.floor(high / step + 1e-9) + 1)]
    return {value: f"{value:.10g}" if abs(value) > 1e-12 * step else "0" for value in values}


def _powers(low: float, high: float, most: int) -> dict[float, str]:
    """Powers of ten; where there are fewer than two, round numbers between them."""
    first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
    if last - first >= 1:
        return {10.0**power: f"1e{power}" for power in range(first, last + 1, -(-(last - first + 1) // most))}
    found = [factor * 10.0**power for power in range(first - 1, last + 1) for factor in (1, 2, 3, 5, 7)]
    return {value: f"{value:g}" for value in found if low <= value <= high}


def _named(marks: Sequence[Mark]) -> dict[str, str]:
    """The colour of each label."""
    return {
        mark.label: mark.color
        for mark in reversed(marks)
        if isinstance(mark, Line | Points | Area | Boxes | Upright | Rule) and mark.label
    }


def _legend(panel: Panel, table: Table | None, area: _Area) -> str:
    found = _named(panel.marks)
    if table is not None and table.labels is not None and len(table.labels.names) <= len(COLORS):
        found |= dict(zip(table.labels.names, COLORS, strict=False))
    if not found:
        return ""
    words = "".join(
        f'<tspan fill="{_color(color)}" dx="8">&#9632;</tspan><tspan dx="2">{escape(_short(name))}</tspan>'
        for name, color in reversed(found.items())
    )
    return f'<text x="{area.left:.0f}" y="{TOP - 8}">{words}</text>'


def _in_few(name: str) -> str:
    """A name in as few letters as are beside an axis; a number is rounded and not cut, which would make it another one."""
    if len(name) <= BESIDE:
        return name
    try:
        mantissa, _, power = f"{float(name):.2e}".partition("e")
        return f"{float(mantissa):g}e{int(power)}"
    except ValueError:
        return f"{name[: BESIDE - 1]}…"


def _short(name: str) -> str:
    return name if len(name) <= 24 else f"{name[:21]}..."


def _bar(mark: Image, area: _Area) -> str:
    """The bar of colours beside a panel."""
    x, height = area.right + 10, area.bottom - area.top
    low, high = mark.limits
    values = np.linspace(low, high, 64)[::-1, None]
    encoded = base64.b64encode(_png(values, mark)).decode()
    parts = [
        f'<image x="{x:.1f}" y="{area.top:.1f}" width="9" height="{height:.1f}" preserveAspectRatio="none" href="data:image/png;base64,{encoded}"/>'
    ]
    marks = dict.fromkeys(mark.marks, "") or ticks_of(Scale(), mark.limits, 4)
    last = math.inf
    for value in sorted(marks):
        at = area.bottom - height * (value - low) / ((high - low) or 1.0)
        if at + LINE > last:
            continue
        last = at
        parts.append(_text(x + 12, at + 3.5, f"{value:.3g}", "start"))
    if mark.title:
        parts.append(_text(x + 26, area.top - 7, mark.title))
    return "".join(parts)


def _text(x: float, y: float, text: str, anchor: str = "middle") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>' if text else ""


def _color(color: str) -> str:
    return "currentColor" if color == INK else color
