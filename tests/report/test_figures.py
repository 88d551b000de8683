"""Figures as plain values: as SVG, and as the block that the page's script reads."""

import base64
import json
import re
import zlib
from dataclasses import replace
from itertools import pairwise
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone

from dpca import PCA, KernelPCA
from dpca.report import figures, marks
from dpca.report.findings import DrawnAxis
from dpca.report.maps import Component, pictures
from dpca.report.marks import (
    COLOR_MAPS,
    COLORS,
    Area,
    Boxes,
    Figure,
    Image,
    Labels,
    Line,
    Panel,
    Points,
    RowLine,
    RowPoints,
    Rule,
    Scale,
    Slices,
    Table,
    Upright,
    Volume,
    Words,
)
from dpca.report.payload import PIXEL_TYPE, packed
from dpca.report.static import LETTER, LINE, as_svg, kinds_of, palette_of, ticks_of
from tests.drawn import examples

RNG = np.random.default_rng(0)


def table(n=30, labels=None, nan=False):
    columns = {name: RNG.standard_normal(n) for name in ("score 0", "score 1", "position")}
    if nan:
        columns["score 1"][:] = np.nan
    names = tuple(f'<b>&"{number}' for number in range(n))
    return Table("sample", names, columns, None if labels is None else Labels.of(labels))


def figure(*marks, x=None, y=None, **how):
    panel = Panel(marks, x or Scale("across"), y or Scale("up"), **how)
    return Figure("name", "kind", ((panel,),), table="samples", about="what it shows")


def drawn(of, rows=None):
    return ET.fromstring(as_svg(of, {"samples": rows or table()}))


def unpacked(of, rows=None):
    """What the script reads: JSON, and the arrays that it refers to."""
    block = zlib.decompress(packed([of], {"samples": rows or table()}))
    length = int.from_bytes(block[:4], "little")
    numbers = block[4 + length :]

    def found(value):
        if isinstance(value, list):
            return [found(one) for one in value]
        if isinstance(value, dict) and "array" in value:
            kind, at, count = value["array"]
            assert (4 + length) % 8 == at % 8 == 0  # as typed arrays of a browser need it
            array = np.frombuffer(numbers, f"<{kind}", count, at).reshape(value["shape"])
            none = np.iinfo(array.dtype).min if array.dtype.kind == "i" else None
            return array if "unit" not in value else np.where(array == none, np.nan, array * value["unit"])
        return {key: found(one) for key, one in value.items()} if isinstance(value, dict) else value

    return found(json.loads(block[4 : 4 + length]))


X, Y = np.arange(5.0), np.array([1.0, 2.0, np.nan, 4.0, 5.0])
MARKS = {
    "line": Line(X, Y, dash="dashed", label="a & b <c>"),
    "points": Points(X, Y, shape="diamond"),
    "hollow": Points(X, Y, shape="star", hollow=True),
    "area": Area(X, -X, X),
    "boxes": Boxes(X, X + 1, 0 * X, X, label="<i>"),
    "upright": Upright(X, X, X + 1, ends=True),
    "rule": Rule(2.0, "x", label="here"),
    "image": Image(RNG.standard_normal((4, 6)), -0.5, 5.5, 3.5, -0.5, (-2.0, 2.0), title="°"),
    "words": Words(1.0, 2.0, "<b>"),
    "rows": RowPoints("score 0", "score 1"),
    "line of rows": RowLine("position", "score 0"),
}


@pytest.mark.parametrize("name", MARKS)
def test_every_mark_is_drawn_and_packed(name):
    of = figure(MARKS[name], title="<title>" if name == "words" else "")
    svg = drawn(of)
    assert svg.get("aria-label") == "what it shows"
    assert svg.findall(".//{*}text") or svg.findall(".//text")
    (read,) = unpacked(of)["figures"]
    mark = read["panels"][0][0]["marks"][0]
    assert mark["is"] == type(MARKS[name]).__name__
    if name == "line":
        np.testing.assert_array_equal(mark["y"], Y)
    if name == "image":
        np.testing.assert_allclose(
            mark["values"], MARKS[name].values, atol=np.abs(MARKS[name].values).max() / np.iinfo(PIXEL_TYPE).max
        )


def test_a_volume_is_packed_in_a_byte_for_each_value():
    values = RNG.standard_normal((4, 5, 6))
    values[1, 2, 3] = np.nan
    slices = Slices(("a", "b"), 1, 0.0, 1.0, 0.0, 1.0, (X, X))
    of = replace(figure(MARKS["image"]), volume=Volume(values, (slices,) * 3))
    assert drawn(of) is not None
    (read,) = unpacked(of)["figures"]
    np.testing.assert_allclose(read["volume"]["values"], values, atol=np.nanmax(np.abs(values)) / 254)
    assert read["volume"]["across"][0]["names"] == ["a", "b"]


@pytest.mark.parametrize("labels", [np.arange(30) % 3, np.array([f"g{n}" for n in range(30)]), np.linspace(0, 1, 30)])
def test_rows_are_coloured_by_their_labels(labels):
    rows = table(labels=labels)
    svg = drawn(figure(RowPoints("score 0", "score 1")), rows)
    fills = {one.get("fill") for one in svg.iter() if one.get("transform", "").startswith("scale")}
    assert 3 <= len(fills) <= 16
    assert unpacked(figure(RowPoints("score 0", "score 1")), rows)["tables"]["samples"]["names"] == list(rows.names)


@pytest.mark.parametrize("count", [2, 8, 9, 40])
def test_categories_have_colours_of_the_palette_and_numbers_of_a_map(count):
    named = Labels.of(np.array([f"g{number:02d}" for number in range(count)]))
    looks = [(color, shape) for _, color, shape in kinds_of(named)]
    assert {color for color, _ in looks} == set(COLORS[:count])
    assert len(set(looks)) == count
    numbers = [color for _, color, _ in kinds_of(Labels.of(np.linspace(0, 1, 40)))]
    assert numbers == palette_of("sequential", 16)


@pytest.mark.parametrize(
    ("scale", "height"),
    [
        pytest.param(Scale(marks={float(n): f"group {n}" for n in range(30)}, limits=(-1, 30)), 120, id="many names"),
        pytest.param(Scale("small", limits=(-0.00035, 0.00035)), 280, id="small numbers"),
        pytest.param(Scale(limits=(0, 1e5), names={n * 1e4: f"{n:.1f}" for n in range(11)}), 60, id="low"),
        pytest.param(Scale(limits=(1e-9, 1e9), log=True), 60, id="powers"),
    ],
)
def test_what_is_marked_along_axes_does_not_touch(scale, height):
    panel = Panel((Line(X, X),), scale, scale)
    svg = ET.fromstring(as_svg(Figure("name", "kind", ((panel,),), height, 260, "samples"), {"samples": table()}))
    texts = [one for one in svg.iter() if one.tag.endswith("text") and one.get("x") and one.text != scale.label]
    beside = sorted(float(one.get("y")) for one in texts if one.get("text-anchor") == "end")
    below = sorted((float(one.get("x")), len(one.text)) for one in texts if one.get("text-anchor") == "middle")
    assert all(other - one >= LINE for one, other in pairwise(beside))
    for (one, letters), (other, more) in pairwise(below):
        assert other - one >= LETTER * (letters + more) / 2
    if scale.label == "small":  # a number that is cut is another one
        values = {round(float(one.text) * 1e4, 6) for one in texts if one.get("text-anchor") == "end"}
        assert values <= set(range(-4, 5))


@pytest.mark.parametrize("rows", [table(1), table(nan=True), table(labels=np.array(["same"] * 30))])
def test_one_row_and_rows_without_values(rows):
    of = figure(RowPoints("score 0", "score 1"))
    assert "NaN" not in as_svg(of, {"samples": rows})
    assert "nan" not in as_svg(of, {"samples": rows})
    extent = unpacked(of, rows)["figures"][0]["panels"][0][0]["y_extent"]
    assert extent[0] < extent[1]


@pytest.mark.parametrize(("upward", "rightward"), [(True, True), (False, True), (True, False), (False, False)])
def test_pixels_lie_where_their_coordinates_are(upward, rightward):
    """The pixel of value 1 is at the first row and column, wherever these are on the page."""
    values = np.zeros((2, 3))
    values[0, 0] = 1.0
    bottom, top = (0.0, 2.0) if upward else (2.0, 0.0)
    left, right = (0.0, 3.0) if rightward else (3.0, 0.0)
    image = Image(values, left, right, bottom, top, (-1.0, 1.0), bar=False)
    svg = drawn(figure(image, x=Scale(limits=(0.0, 3.0)), y=Scale(limits=(0.0, 2.0))))
    data = base64.b64decode(next(one for one in svg.iter() if one.tag.endswith("image")).get("href").partition(",")[2])
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    length = int.from_bytes(data[data.index(b"IDAT") - 4 : data.index(b"IDAT")])
    at = data.index(b"IDAT") + 4
    rows = np.frombuffer(zlib.decompress(data[at : at + length]), np.uint8).reshape(2, 4)[:, 1:]
    # Rows of a picture run downward: the one at 0 is its last.
    assert rows[1 if upward else 0, 0 if rightward else 2] == 254
    assert (rows == 254).sum() == 1


@given(low=st.floats(-1e6, 1e6), wide=st.floats(1e-3, 1e6), most=st.integers(2, 9), log=st.booleans())
@examples(50)
def test_marks_are_round_numbers_within_the_axis(low, wide, most, log):
    low = abs(low) + 1e-3 if log else low
    found = ticks_of(Scale(log=log), (low, low + wide), most)
    assert len(found) <= 2 * most + 3
    slack = 1e-6 * wide
    assert all(low - slack <= value <= low + wide + slack for value in found)
    if not log and wide > 1e-6 * abs(low):
        assert len(found) >= 1


def test_names_of_an_axis_where_it_is_looked_at_closer():
    names = {float(number): f"day {number}" for number in range(40)}
    scale = Scale(marks={0.0: "1990", 39.0: "1991"}, names=names)
    assert list(ticks_of(scale, (-1.0, 40.0), 5).values()) == ["1990", "1991"]
    assert list(ticks_of(scale, (10.0, 14.0), 5).values()) == [f"day {number}" for number in range(10, 15)]


def test_entries_of_a_short_axis_have_pictures_of_their_own():
    views = pictures((2, 5, 7), apart={0: ["u", "v"]})
    assert [(view.title, view.axes, view.middle) for view in views] == [("u", (1, 2), {0: 0}), ("v", (1, 2), {0: 1})]
    assert not any(view.cut for view in views)
    component = Component(tuple(RNG.standard_normal(view.shape) for view in views), (), views)
    axes = [DrawnAxis(name) for name in ("wind", "lat", "lon")]
    of = figures.of_component("0", component, axes)
    assert [panel.title for panel in of.panels[0]] == ["u", "v"]
    limits = {mark.limits for panel in of.panels[0] for mark in panel.marks}
    assert len(limits) == 1  # colours mean the same in both
    assert [panel.marks[0].bar for panel in of.panels[0]] == [False, True]
    assert len({panel.x.together for panel in of.panels[0]}) == 1
    assert all(view.cut for view in pictures((9, 9, 9, 9)))


def test_maps_of_colours_begin_and_end_with_their_colours():
    for name, anchors in COLOR_MAPS.items():
        palette = palette_of(name, 255)
        assert (palette[0], palette[-1]) == (anchors[0], anchors[-1])
        assert all(re.fullmatch("#[0-9a-f]{6}", color) for color in palette)


@pytest.mark.parametrize(("estimator", "count"), [(PCA(3), 2 + 2), (KernelPCA(3, kernel="rbf"), 2), (PCA(1), 1 + 1)])
def test_a_fit_in_a_cell_of_a_notebook(estimator, count):
    """Eigenvalues, scores where there are two, and the first two maps."""
    x = np.random.default_rng(0).standard_normal((20, 50))
    assert "svg" not in estimator._repr_html_().split("</style>")[-1].replace("svg xmlns", "")
    fit = clone(estimator).fit(x)
    text = fit._repr_html_()
    assert "20 samples: " in text
    assert "% of the variance" in text
    pictures_of = re.findall(r"<svg viewBox.*?</svg>", text, re.DOTALL)
    assert len(pictures_of) == count
    assert len(text) < 200_000


def test_every_shape_has_an_area():
    """The page fills marks and draws no outlines: of a mark without an area nothing would be seen."""
    assert len(set(marks.SHAPES)) == len(marks.COLORS)
    assert not {"x", "cross", "asterisk", "y", "dash", "dot"} & set(marks.SHAPES)
