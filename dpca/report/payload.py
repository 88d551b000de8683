"""Figures and tables as one compressed block, which the script of the page reads.

It is JSON with numbers beside it: an array is {array: [type, where they begin, how many], shape}. Pixels have 16 bits: so many units of a
65,534th of their range. Values of volumes have 8. The least number that the type has is no value.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import deflate
import numpy as np
from numpy.typing import NDArray

from dpca.report.marks import COLOR_MAPS, COLORS, INK, NO_VALUE, SHAPES, Figure, Image, Panel, Table, Volume
from dpca.report.static import extent_of

ALIGNED = 8
LEVEL = 6
PIXEL_TYPE, VOXEL_TYPE = np.dtype(np.int16), np.dtype(np.int8)
ENOUGH = 1e-6
"""Numbers have 32 bits where that changes them by no more than this share of their range: less than a pixel."""


def packed(figures: Sequence[Figure], tables: Mapping[str, Table]) -> bytes:
    """The block, compressed as zlib does."""
    numbers = _Numbers()
    contents = {
        "figures": [_figure(figure, tables, numbers) for figure in figures],
        "tables": {name: _plain(table, numbers) for name, table in tables.items()},
        "color_maps": COLOR_MAPS,
        "colors": COLORS,
        "shapes": SHAPES,
        "ink": INK,
        "no_value": NO_VALUE,
    }
    text = json.dumps(contents, separators=(",", ":"), allow_nan=False).encode()
    text += b" " * (-(len(text) + 4) % ALIGNED)
    return bytes(deflate.zlib_compress(len(text).to_bytes(4, "little") + text + bytes(numbers.held), LEVEL))


class _Numbers:
    """Arrays one after another."""

    def __init__(self) -> None:
        self.held = bytearray()
        self._places = dict[bytes, int]()
        """Where an array is, by its digest: coasts are in many figures."""

    def add(self, values: NDArray[Any], **further: Any) -> dict[str, Any]:
        kind = values.dtype.newbyteorder("<")
        content = np.ascontiguousarray(values, kind).tobytes()
        digest = hashlib.blake2b(content).digest()
        if (at := self._places.get(digest, -1)) < 0:
            self.held += bytes(-len(self.held) % ALIGNED)
            at = self._places[digest] = len(self.held)
            self.held += content
        return {"array": [kind.str[1:], at, values.size], "shape": list(values.shape), **further}


def _figure(figure: Figure, tables: Mapping[str, Table], numbers: _Numbers) -> dict[str, Any]:
    table = tables.get(figure.table)
    panels = [[_panel(panel, table, numbers) for panel in row] for row in figure.panels]
    return {
        "name": figure.name,
        "panels": panels,
        "height": figure.height,
        "width": figure.width,
        "table": figure.table,
        "volume": _plain(figure.volume, numbers),
    }


def _panel(panel: Panel, table: Table | None, numbers: _Numbers) -> dict[str, Any]:
    found: dict[str, Any] = _plain(panel, numbers)
    for along, scale in (("x", panel.x), ("y", panel.y)):
        found[f"{along}_extent"] = list(extent_of(scale, panel.marks, table, along))
    return found


def _plain(value: Any, numbers: _Numbers) -> Any:
    """Value that JSON can hold."""
    if isinstance(value, Image | Volume):
        own = {name: _plain(getattr(value, name), numbers) for name in _names(value) if name != "values"}
        kind = PIXEL_TYPE if isinstance(value, Image) else VOXEL_TYPE
        return {"is": type(value).__name__, **own, "values": _pixels(value.values, kind, numbers)}
    if is_dataclass(value):
        return {"is": type(value).__name__, **{name: _plain(getattr(value, name), numbers) for name in _names(value)}}
    if isinstance(value, np.ndarray):
        return numbers.add(_small(value))
    if isinstance(value, Mapping):
        if all(isinstance(key, str) for key in value):
            return {key: _plain(one, numbers) for key, one in value.items()}
        return [[float(key), _plain(one, numbers)] for key, one in value.items()]
    if isinstance(value, list | tuple):
        return [_plain(one, numbers) for one in value]
    return value


def _names(value: Any) -> list[str]:
    return [one.name for one in fields(value)]


def _pixels(values: NDArray[np.float64], kind: np.dtype[Any], numbers: _Numbers) -> dict[str, Any]:
    """Values to as many bits of the largest magnitude as a type has."""
    largest, limits = float(np.nanmax(np.abs(values), initial=0.0)), np.iinfo(kind)
    unit = largest / limits.max or 1.0
    pixels = np.where(np.isnan(values), limits.min, np.rint(np.nan_to_num(values / unit)))
    return numbers.add(pixels.astype(kind), unit=unit)


def _small(values: NDArray[Any]) -> NDArray[Any]:
    """In the smallest type that shows the same."""
    if values.dtype.kind in "biu":
        return values.astype(np.min_scalar_type(int(values.max(initial=0))))
    single = values.astype(np.float32)
    known = values[np.isfinite(values)]
    extent = float(np.ptp(known)) if known.size else 0.0
    same = np.abs(np.nan_to_num(single.astype(np.float64) - values)).max(initial=0.0) <= ENOUGH * extent
    return single if same else values.astype(np.float64)
