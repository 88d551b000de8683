"""What a report shows, against dense NumPy."""

import sys

import numpy as np
import pytest
import xarray as xr
import zarr
from hypothesis import given
from hypothesis import strategies as st

from dpca import PCA
from dpca.errors import InputError
from dpca.report import figures, findings, maps
from dpca.report.marks import Line, Rule
from dpca.store.results import Result, open_result
from dpca.store.stored import Arrays
from tests.commands.calls import dpca
from tests.drawn import examples
from tests.stores import random_array


def result_of(x, chunks, dims=None, **model):
    zarr.create_array("x.zarr", data=x, chunks=chunks, dimension_names=dims, overwrite=True)
    keys = ", ".join(f"{key}: {value}" for key, value in {"n_components": 3, **model}.items())
    with open("c.yaml", "w") as file:
        missing = "error" if model.get("kernel") == "precomputed" else "mean"
        file.write(
            f"input: {{uri: x.zarr}}\npreprocess: {{missing: {missing}}}\nmodel: {{{keys}}}\noutput: {{path: r}}\n"
        )
    assert dpca("run", "c.yaml", "--overwrite") == 0
    return open_result("r")


def scree_of(result):
    (answer,) = findings.answers(result)
    return findings.scree(result, answer)


def dense_picture(values, picture):
    """Of each pixel's features the one of largest magnitude, the plain way."""
    for axis in sorted(picture.middle, reverse=True):
        values = values.take(picture.middle[axis], axis)
    found = np.full(picture.shape, np.nan, values.dtype)
    for index in np.ndindex(values.shape):
        pixel, value = tuple(i // step for i, step in zip(index, picture.step, strict=True)), values[index]
        if not np.isnan(value) and not abs(found[pixel]) >= abs(value):
            found[pixel] = value
    return found


@given(st.lists(st.integers(1, 9), min_size=1, max_size=4), st.integers(0, 99), st.booleans())
@examples(40)
def test_pictures_keep_the_largest_value_of_each_pixel(shape, seed, of_complex):
    rng = np.random.default_rng(seed)
    values = rng.standard_normal(shape) + (1j * rng.standard_normal(shape) if of_complex else 0)
    values[rng.random(shape) < 0.1] = np.nan
    chunks = tuple(int(rng.integers(1, length + 1)) for length in shape)
    for picture in maps.pictures(tuple(shape), pixels=2):
        view = np.full(picture.shape, np.nan, values.dtype)
        for region in maps.blocks_of(tuple(shape), chunks, block_bytes=100):
            maps.add_block(view, picture, values[region], region)
        expected = dense_picture(values, picture)
        np.testing.assert_array_equal(np.abs(view), np.abs(expected))  # of x and -x either may stay
        assert max(picture.shape) <= 8
        assert len(picture.shape) == 1 or np.prod(picture.shape) <= 4


LENGTHS = {"x": 40, "y": 30, "z": 20, "point": 7219, "uvw": 3, "lev": 18, "lat": 91, "lon": 432}
COORDINATES = {
    "x": (np.arange(40.0), "m"),
    "y": (np.arange(30.0), "m"),
    "z": (np.arange(20.0), "m"),
    "lev": (np.linspace(10, 1000, 18), "hPa"),
    "lat": (np.linspace(-90, 90, 91), "degrees_north"),
    "lon": (np.arange(432) / 1.2, "degrees_east"),
}


@pytest.mark.parametrize(
    ("dims", "shapes", "titles"),
    [
        pytest.param("point uvw", [(903,)] * 3, ["uvw 0", "uvw 1", "uvw 2"], id="no point stands for three values"),
        pytest.param("lev lon", [(18, 432)], [""], id="what fits is not made smaller"),
        pytest.param("lat lon", [(91, 432)], [""], id="the longer side has the pixels that the shorter leaves"),
        pytest.param("lon lon", [(216, 216)], [""], id="more cells than pixels"),
        pytest.param("z y x", [(30, 40), (20, 40), (20, 30)], [""] * 3, id="three axes of space"),
        pytest.param(
            "z y x uvw",
            [(30, 40)] * 3 + [(20, 40)] * 3 + [(20, 30)] * 3,
            ["uvw 0", "uvw 1", "uvw 2"] * 3,
            id="three axes of space, and one that is none",
        ),
        pytest.param("uvw lat lon", [(91, 432)] * 3, ["uvw 0", "uvw 1", "uvw 2"], id="a map of each"),
    ],
)
def test_axes_that_are_not_space_are_panels(dims, shapes, titles):
    of, array = of_dims(dims)
    views = maps.views_of(of, array, 1)
    assert [view.shape for view in views] == shapes
    assert [view.title for view in views] == titles


def of_dims(dims, of_first=None):
    """What has coordinates, the first of them with some attributes, and a component along these axes."""
    dims, store = dims.split(), {}
    group = zarr.create_group(store)
    for name in {*dims} & {*COORDINATES}:
        values, units = COORDINATES[name]
        group.create_array(name, data=values, dimension_names=(name,)).attrs["units"] = units
    if of_first:
        group[dims[0]].attrs.update(of_first)
    shape = (1, *(LENGTHS[name] for name in dims))
    group.create_array("components", shape=shape, dtype="f4", dimension_names=("component", *dims))
    arrays = Arrays(store, "r", None)
    return Result(None, {}, arrays, "r"), arrays["components"]


@pytest.mark.parametrize(
    ("dims", "attributes", "downward", "ratio"),
    [
        pytest.param("lev lon", {}, True, 0.4, id="pressure, which is of other units than degrees"),
        pytest.param("lev lon", {"units": "m"}, False, 0.4, id="height"),
        pytest.param("lev lon", {"units": "m", "positive": "down"}, True, 0.4, id="depth"),
        pytest.param("lat lon", {}, False, 182 / 360, id="degrees, and degrees"),
        pytest.param("y x", {}, False, 30 / 40, id="metres, and metres"),
    ],
)
def test_maps_stand_as_what_they_show_does(dims, attributes, downward, ratio):
    of, array = of_dims(dims, attributes)
    axes = [findings.axis_of(of, name, "") for name in dims.split()]
    panel = figures.panel_of(maps.views_of(of, array, 1)[0], axes, ())
    assert (panel.y.limits[0] > panel.y.limits[1]) == downward
    assert panel.ratio == pytest.approx(ratio, rel=1e-2)


def test_components_their_largest_features_and_names():
    x = random_array(0, (12, 20, 30), "f8")
    result = result_of(x, (12, 7, 11), ("sample", "row", "column"))
    w = result.arrays["components"][...]
    w = w * np.sqrt(result.arrays["explained_variance"][...])[:, None, None]  # for one standard deviation of the score
    found = maps.components(result, 3)
    for number, component in enumerate(found):
        np.testing.assert_array_equal(component.views[0], w[number])
        order = np.argsort(-np.abs(w[number]).reshape(-1))[: findings.TOP]
        rows, columns = np.unravel_index(order, (20, 30))
        assert [extreme.name for extreme in component.top] == [
            f"({r}, {c})" for r, c in zip(rows, columns, strict=True)
        ]
        np.testing.assert_array_equal([extreme.value for extreme in component.top], w[number].reshape(-1)[order])


def test_no_more_is_read_than_takes_a_minute():
    result = result_of(random_array(0, (12, 20, 30), "f8"), (12, 7, 11))
    for limit, drawn in ((10**9, 3), (2 * 600 * 8, 2), (600 * 8 - 1, 0)):
        assert maps.n_drawn(result, read_bytes=limit) == drawn


def test_samples_that_are_the_same_and_samples_that_stand_out():
    x = random_array(0, (12, 400), "f8")
    x[7] = x[3]
    x[9] *= 30
    result = result_of(x, (12, 100))
    (answer,) = findings.answers(result)
    found = findings.quality(result, answer)
    assert found.n_same == 1
    assert found.pairs[0][:2] == (3, 7)
    assert found.pairs[0][2] < 1e-6
    assert np.argmax(found.leverage) == 9
    centred = x - x.mean(axis=0)
    u, sigma, _ = np.linalg.svd(centred, full_matrices=False)
    np.testing.assert_allclose(found.leverage, (u[:, :3] ** 2).sum(axis=1), atol=1e-10)
    outside = 1 - (u[:, :3] ** 2 * sigma[:3] ** 2).sum(axis=1) / (centred**2).sum(axis=1)
    np.testing.assert_allclose(found.outside, outside, atol=1e-8)
    order = np.argsort(u[:, 0] * np.sign(u[np.argmax(np.abs(u[:, 0])), 0]))
    lengths = np.linalg.norm(centred, axis=1)
    expected = (centred @ centred.T / np.outer(lengths, lengths))[np.ix_(order, order)]
    np.testing.assert_allclose(found.similarity, expected, atol=1e-8)


def test_the_edge_of_white_noise_and_none_where_it_is_not_white():
    rng = np.random.default_rng(0)
    noise = rng.standard_normal((100, 1000))
    planted = noise + 9 * rng.standard_normal((100, 1)) @ rng.standard_normal((1, 1000)) / 3
    found = scree_of(result_of(planted, (100, 250)))
    assert np.count_nonzero(found.eigenvalues > found.edge * 1.02) == 1
    np.testing.assert_allclose(found.ratio.sum(), 1, rtol=1e-9)
    assert scree_of(result_of(np.cumsum(noise, axis=1), (100, 250))).edge is None


def test_what_there_is_no_gram_matrix_for():
    result = result_of(random_array(0, (300, 12), "f8"), (100, 12))
    (answer,) = findings.answers(result)
    assert findings.quality(result, answer) is None


def test_axes_have_coordinates_where_these_are_positions():
    group = zarr.create_group("g.zarr")
    group.create_array(
        "t", data=random_array(0, (6, 5, 4), "f8"), chunks=(6, 5, 4), dimension_names=("time", "lat", "id")
    )
    for name, values in (("lat", np.linspace(60, -60, 5)), ("id", np.array([3, 1, 4, 1])), ("time", np.arange(6.0))):
        group.create_array(name, data=values, dimension_names=(name,))
    group["lat"].attrs["units"] = "degrees_north"
    with open("c.yaml", "w") as file:
        file.write("input: {uri: g.zarr, array: t}\nmodel: {n_components: 2}\noutput: {path: r}\n")
    assert dpca("run", "c.yaml") == 0
    result = open_result("r")
    lat = findings.axis_of(result, "lat", "")
    assert (lat.label, lat.first, lat.last) == ("lat (degrees_north)", 60, -60)
    assert lat.edges(5) == (75, -75)
    assert not findings.axis_of(result, "id", "").known
    assert not findings.axis_of(result, None, "feature axis 0").known


@pytest.mark.parametrize(
    ("calendar", "days", "years", "tenth"),
    [
        ("standard", 365.25, {"1991", "1992", "1993", "1994"}, "1990-05-26"),
        ("noleap", 365, {"1991", "1992", "1993", "1994"}, "1990-05-26"),
        ("360_day", 3600, {"2000", "2010", "2020", "2030"}, "1990-05-26"),
        ("360_day", 1, set(), "1990-05-26"),
    ],
)
def test_an_axis_of_time_is_marked_with_years_or_dates(calendar, days, years, tenth):
    pytest.importorskip("cftime")
    axis = findings.axis_of(along_time(calendar, 15 + np.arange(5) * days), "time", "")
    assert axis.label == "time"
    marks = axis.years(5)
    assert set(marks.values()) == years
    assert axis.dates(np.array(list(marks))) == [f"{year}-01-01" for year in marks.values()]
    assert axis.dates(np.array([145.0])) == [tenth]
    assert axis.dates(np.array([np.pi])) == ["3.14159"]


def test_an_axis_of_time_without_cftime_says_what_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "cftime", None)
    axis = findings.axis_of(along_time("noleap", np.arange(5.0)), "time", "")
    assert axis.label == "time (days since 1990-01-01, calendar noleap: cftime, not installed, would tell the dates)"
    assert (axis.years(5), axis.dates(np.array([2.0]))) == ({}, ["2"])


def along_time(calendar, values):
    store = {}
    time = zarr.create_group(store).create_array("time", data=values, dimension_names=("time",))
    time.attrs.update(units="days since 1990-01-01", calendar=calendar)
    return Result(None, {}, Arrays(store, "r", None), "r")


@given(st.integers(1, 400), st.integers(1, 60), st.sampled_from(["rising", "falling", "neither", "repeated"]))
@examples(30)
def test_a_long_coordinate_streams_by(length, most, kind):
    values = np.cumsum(np.random.default_rng(length).random(length) + 0.1)
    if kind == "falling":
        values = values[::-1]
    if kind == "neither":
        values[length // 2 :] = values[: length - length // 2]
    if kind == "repeated":
        values[-2:] = values[-1]
    store = {}
    group = zarr.create_group(store)
    group.create_array("t", data=values, chunks=(7,), dimension_names=("t",))
    result = Result(None, {}, Arrays(store, "r", None), "r")
    found = findings.axis_of(result, "t", "", most, block_bytes=8 * 13)
    steps = np.diff(values)
    assert found.known == bool((steps > 0).all() or (steps < 0).all())
    if found.known:
        step = -(-length // most)
        np.testing.assert_array_equal(found.positions(-(-length // step), step), values[::step])
        assert (found.first, found.last) == (values[0], values[-1])


def test_groups_are_runs_of_labels():
    found = findings.groups_of(np.array(["1", "1", "2", "X", "X", "X"]))
    assert (found.names, found.starts, found.length) == (("1", "2", "X"), (0, 2, 3), 6)
    with pytest.raises(InputError, match="change 199 times along the features"):
        findings.groups_of(np.arange(200))


def test_each_kernel_of_a_sweep_has_its_own_spectrum_scores_and_quality():
    x = random_array(0, (20, 300), "f8")
    x[7] = x[3]
    result = result_of(x, (20, 100), kind="kernel_pca", kernel="[rbf, linear, sigmoid]", gamma="[0.001, 0.01]")
    found = findings.answers(result)
    assert [str(answer.kernel).split("(")[0] for answer in found] == ["rbf", "rbf", "linear", "sigmoid", "sigmoid"]
    distances = ((x[:, None] - x) ** 2).sum(axis=2)
    for answer, gamma in zip(found[:2], (0.001, 0.01), strict=True):
        kernel = np.exp(-gamma * distances)
        kernel = kernel - kernel.mean(axis=0) - kernel.mean(axis=1)[:, None] + kernel.mean()
        values, vectors = np.linalg.eigh(kernel)
        values, vectors = values[::-1], vectors[:, ::-1]
        scree = findings.scree(result, answer)
        np.testing.assert_allclose(scree.eigenvalues[:5], values[:5], rtol=1e-9)
        np.testing.assert_allclose(scree.ratio[:5], values[:5] / values.sum(), rtol=1e-9)
        assert scree.edge is None
        quality = findings.quality(result, answer)
        assert quality.pairs[0][:2] == (3, 7)
        assert quality.n_same == 1
        np.testing.assert_allclose(quality.leverage, (vectors[:, :3] ** 2).sum(axis=1), atol=1e-9)
        outside = 1 - (vectors[:, :3] ** 2 * values[:3]).sum(axis=1) / np.diag(kernel)
        np.testing.assert_allclose(quality.outside, outside, atol=1e-9)


def test_a_kernel_matrix_that_was_given_is_not_kept():
    x = random_array(0, (20, 300), "f8")
    result = result_of(x @ x.T, (20, 20), kind="kernel_pca", kernel="precomputed")
    (answer,) = findings.answers(result)
    assert findings.quality(result, answer) is None
    np.testing.assert_allclose(
        answer.scores.T @ answer.scores, np.diag(answer.singular_values**2), rtol=1e-9, atol=1e-4
    )


def _on_earth(kind):
    """Latitudes, longitudes, and the names of the axes that they lie along."""
    rng = np.random.default_rng(5)
    if kind == "curvilinear":
        y, x = np.meshgrid(np.linspace(-1, 1, 30), np.linspace(-1, 1, 40), indexing="ij")
        return 50 + 20 * y - 8 * x**2, (355 + 40 * x * (1 + 0.3 * y)) % 360, ("y", "x")
    if kind == "tripolar, some cells without a place":
        y, x = np.meshgrid(np.linspace(-70, 85, 40), np.linspace(0, 360, 60, endpoint=False), indexing="ij")
        latitudes = y.copy()
        latitudes[20:22, 5:9] = np.nan
        return latitudes, (x + 73) % 360 - 180, ("y", "x")
    return np.rad2deg(np.arcsin(rng.uniform(-1, 1, 900))), rng.uniform(0, 360, 900), ("cell",)


@pytest.mark.parametrize("levels", [0, 3, 12])
@pytest.mark.parametrize("kind", ["curvilinear", "tripolar, some cells without a place", "points"])
def test_features_with_latitudes_beside_them_are_drawn_where_they_are(kind, levels):
    latitudes, longitudes, dims = _on_earth(kind)
    rng, shape = np.random.default_rng(0), (*((levels,) if levels else ()), *latitudes.shape)
    data = xr.DataArray(
        rng.normal(size=(9, *shape)),
        dims=("time", *(("lev",) if levels else ()), *dims),
        coords={
            "lat": (dims, latitudes, {"units": "degrees_north"}),
            "lon": (dims, longitudes, {"units": "degrees_east"}),
            **({"lev": ("lev", np.arange(levels) * 10.0, {"units": "m"})} if levels else {}),
        },
    )
    PCA(2, samples_axis="time").fit(data).save("r")
    result = open_result("r")
    component = maps.components(result, 1)[0]
    values = result.arrays["components"][0] * np.sqrt(result.arrays["explained_variance"][0])
    assert len(component.views) == (levels if levels == 3 else 1)
    for number, (picture, view) in enumerate(zip(component.pictures, component.views, strict=True)):
        of_level = values if not levels else values[picture.middle[0]]
        if levels == 3:
            np.testing.assert_array_equal(of_level, values[number])
        elif levels:
            assert picture.middle[0] == np.unravel_index(np.argmax(np.abs(values)), values.shape)[0]
            assert picture.title == f"lev {picture.middle[0] * 10}"
        down, across = figures.axes_on(picture, [])
        known = np.isfinite(latitudes)
        longitude = (longitudes - across.first) % 360 + across.first
        rows = np.rint((latitudes[known] - down.first) / (down.last - down.first) * (view.shape[0] - 1)).astype(int)
        columns = np.rint((longitude[known] - across.first) / (across.last - across.first) * (view.shape[1] - 1))
        found = np.zeros(view.shape)
        np.maximum.at(found, (rows, columns.astype(int) % view.shape[1]), np.abs(of_level[known]))
        np.testing.assert_allclose(np.abs(view)[found > 0], found[found > 0], rtol=1e-6)
        assert np.isin(view[np.isfinite(view)], of_level).all()
        figure = figures.of_component("1", component, [findings.DrawnAxis(name) for name in dims])
        assert [mark for mark in figure.panels[0][0].marks if isinstance(mark, Line)]


@pytest.mark.parametrize("first", [0, 180, 350])
def test_longitudes_that_begin_anywhere_are_one_map(first):
    lon = (first + np.arange(36) * 10.0) % 360
    data = xr.DataArray(
        np.random.default_rng(0).normal(size=(5, 19, 36)),
        dims=("time", "lat", "lon"),
        coords={"lat": np.linspace(-90, 90, 19), "lon": ("lon", lon, {"units": "degrees_east"})},
    )
    axis = findings.axis_of(PCA(2).fit(data)._result, "lon", "")
    np.testing.assert_allclose((axis.positions(36) - lon) % 360, 0)
    np.testing.assert_allclose(np.diff(axis.positions(36)), 10)
    assert -180 <= axis.first < axis.last < 360
    assert axis.toward == "east"


def test_fill_values_are_no_places_on_the_earth():
    latitudes, longitudes = np.meshgrid(np.linspace(-60, 60, 9), np.arange(10) * 36.0, indexing="ij")
    placed = maps.placed_at(latitudes, np.where(latitudes > 30, 1e20, longitudes))
    assert ((placed.columns < 0) == (latitudes > 30)).all()
    data = xr.DataArray(np.zeros((3, 4)), dims=("time", "lat"), coords={"lat": [-900.0, -300, 300, 900]})
    data = data + np.arange(3)[:, None] * np.arange(1, 5)
    assert findings.axis_of(PCA(1).fit(data)._result, "lat", "").toward == ""


def test_a_volume_is_cut_where_its_largest_loading_is():
    x = random_array(0, (12, 9, 10, 11), "f8")
    x[:, 2, 7, 4] *= 30
    x[:, 6, 1, 9] *= 20
    result = result_of(x, (12, 4, 5, 11), ("sample", "z", "y", "x"))
    for component, largest in zip(maps.components(result, 2), ((2, 7, 4), (6, 1, 9)), strict=True):
        value = result.arrays["components"][...]
        for picture, view in zip(component.pictures, component.views, strict=True):
            (cut,) = picture.cut
            assert picture.middle[cut] == largest[cut]
            assert picture.title == f"{'zyx'[cut]} {largest[cut]}"
            assert picture.crossed == {axis: largest[axis] for axis in picture.axes}
            assert np.abs(view).max() == pytest.approx(np.abs(view[tuple(largest[axis] for axis in picture.axes)]))
        assert value.shape[1:] == (9, 10, 11)
        figure = figures.of_component("1", component, [findings.DrawnAxis(name) for name in "zyx"])
        rules = {(mark.along, mark.at) for panel in figure.panels[0] for mark in panel.marks if isinstance(mark, Rule)}
        assert rules == {
            *(("y", float(at)) for at in (largest[0], largest[1])),
            *(("x", float(at)) for at in (largest[1], largest[2])),
        }


def test_a_reader_moves_through_slices_of_a_volume_of_few_values_that_leave_out_no_peak():
    x = random_array(0, (12, 9, 10, 11), "f8")
    x[:, 2, 7, 4] *= 30
    result = result_of(x, (12, 4, 5, 11), ("sample", "z", "y", "x"))
    closest, plain = maps.components(result, 2, 2 * 990), maps.components(result, 2)
    values = result.arrays["components"][...] * np.sqrt(result.arrays["explained_variance"][...])[:, None, None, None]
    for number, component in enumerate(closest):
        assert component.whole.step == (1, 1, 1)
        np.testing.assert_allclose(component.whole.values, values[number], rtol=1e-12)
        assert component.whole.names[0][:3] == ("z 0", "z 1", "z 2")
        for one, other in zip(component.views, plain[number].views, strict=True):
            np.testing.assert_array_equal(one, other)
    assert [component.whole for component in plain] == [None, None]
    whole = maps.components(result, 1, 150)[0].whole
    assert whole.values.size <= 150
    assert whole.step == (2, 2, 2)
    for block in np.ndindex(whole.values.shape):
        part = values[(0, *(slice(2 * at, 2 * at + 2) for at in block))]
        assert whole.values[block] == pytest.approx(part.flat[np.abs(part).argmax()])
    assert whole.at == (1, 3, 2)
    assert [names[at] for names, at in zip(whole.names, whole.at, strict=True)] == ["z 2", "y 7", "x 4"]
    assert whole.names[1] == ("y 1", "y 3", "y 5", "y 7", "y 9")


def test_coarser_slices_and_their_lines_are_where_their_features_are():
    x = random_array(0, (12, 9, 10, 11), "f8")
    result = result_of(x, (12, 4, 5, 11), ("sample", "z", "y", "x"))
    component = maps.components(result, 1, 150)[0]
    axes = [
        findings.DrawnAxis(name, 100.0 * number, 100.0 * number + 2 * length)
        for number, (name, length) in enumerate(zip("zyx", (8, 9, 10), strict=True))
    ]
    figure = figures.of_component("1", component, axes)
    for number, (panel, slices) in enumerate(zip(figure.panels[0], figure.volume.across, strict=True)):
        image = panel.marks[0]
        assert (slices.left, slices.bottom) == (image.left, image.bottom)
        assert slices.right == pytest.approx(image.right + (2.0 if (image.right - image.left) % 4 else 0))
        assert slices.names[slices.at] == panel.title
        rules = {mark.along: mark.at for mark in panel.marks if isinstance(mark, Rule)}
        down, along = (one for one in range(3) if one != number)
        at = figure.volume.across
        assert slices.lines[0][at[down].at] == pytest.approx(rules["y"])
        assert slices.lines[1][at[along].at] == pytest.approx(rules["x"])


def test_a_report_has_volumes_of_three_axes_alone_and_of_a_byte_for_each_of_a_million_values_at_most():
    assert maps.whole_of(maps.pictures((30, 40)), (30, 40), 10**6) is None
    features = (3000, 200, 100)
    whole = maps.whole_of(maps.pictures(features), features, maps.VOXELS // maps.SCROLLED)
    assert np.prod(whole.shape) <= maps.VOXELS / maps.SCROLLED
    assert whole.step == tuple(-(-length // count) for length, count in zip(features, whole.shape, strict=True))
    assert max(whole.shape) <= 2 * min(whole.shape)
