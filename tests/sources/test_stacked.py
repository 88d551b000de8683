"""Samples along several axes, as one axis."""

import math
from pathlib import Path

import dask.array as da
import numpy as np
import pytest
import xarray as xr
import yaml
import zarr
from hypothesis import given
from hypothesis import strategies as st

from dpca import PCA
from dpca.config.inputs import Input
from dpca.errors import InputError
from dpca.planning.cuts import plan_layout
from dpca.sources import as_source
from dpca.sources.stacked import StackedSource, stacked
from tests.commands.calls import dpca
from tests.drawn import examples
from tests.runs import RecordingSource
from tests.stores import random_array

SHAPES = st.lists(st.integers(1, 5), min_size=2, max_size=4)


@st.composite
def _views(draw):
    """An array, axes of samples in any order, and what the view of it has to be."""
    shape = draw(SHAPES)
    axes = draw(st.permutations(range(len(shape))))[: draw(st.integers(1, len(shape)))]
    x = np.array(random_array(0, shape, "f8"), order=draw(st.sampled_from("CF")))
    moved = np.moveaxis(x, axes, range(len(axes)))
    expected = moved.reshape(-1, *moved.shape[len(axes) :])
    return x, axes, expected


@examples(200)
@given(_views(), st.data())
def test_every_region_is_that_of_the_array_of_rows(drawn, data):
    x, axes, expected = drawn
    view = StackedSource(as_source(x), axes)
    expected = np.moveaxis(expected, 0, view.axis)
    region = tuple(
        slice(*sorted(data.draw(st.lists(st.integers(0, length), min_size=2, max_size=2)))) for length in expected.shape
    )
    assert view.layout.shape == expected.shape
    for one in (view, view.restrict(region)):
        with one.open() as reader:
            np.testing.assert_array_equal(reader.read(region), expected[region])


@examples(60)
@given(_views(), st.data())
def test_slabs_read_each_value_once(drawn, data):
    x, axes, expected = drawn
    chunks = tuple(data.draw(st.integers(1, length)) for length in x.shape)
    recorded = RecordingSource(as_source(zarr.create_array({}, data=np.ascontiguousarray(x), chunks=chunks)))
    view = StackedSource(recorded, axes)
    keeps = data.draw(st.sampled_from(["samples", "features"]))
    plan = plan_layout(view.layout, view.axis, 1, keeps, slab_bytes=data.draw(st.integers(0, 400)))
    expected, n_values = np.moveaxis(expected, 0, view.axis), 0
    with view.open() as reader:
        for span in range(plan.n_spans):
            for tile in plan.tiles_of(span):
                for slab in plan.slabs_of(tile):
                    region = plan.region(slab)
                    n_values += math.prod(piece.stop - piece.start for piece in region)
                    np.testing.assert_array_equal(reader.read(region), expected[region])
    assert n_values == x.size == sum(math.prod(p.stop - p.start for p in region) for region in recorded.regions)


@pytest.mark.parametrize(
    ("chunks", "axes", "expected"),
    [
        ((2, 5, 4), (0, 1), 10),  # whole members
        ((1, 5, 4), (0, 1), 5),
        ((1, 2, 4), (0, 1), 5),  # 2 does not divide 5
        ((3, 2, 4), (0, 1), 15),
        ((6, 1, 4), (1, 0), 6),
        ((2, 1, 4), (1, 0), 2),
        ((6, 5, 2), (0, 1), 30),
    ],
)
def test_chunks_of_samples_end_where_those_of_storage_do(chunks, axes, expected):
    array = zarr.create_array({}, shape=(6, 5, 4), chunks=chunks, dtype="f8")
    assert StackedSource(as_source(array), axes).layout.chunks[0] == expected


def _ensemble():
    """12 months of 3 members, on a grid."""
    x = random_array(3, (12, 3, 4, 5), "f8") + random_array(4, (12, 1, 4, 5), "f8")
    return xr.DataArray(
        x,
        dims=("time", "member", "lat", "lon"),
        coords={
            "time": np.arange("2000-01", "2001-01", dtype="datetime64[M]").astype("datetime64[ns]"),
            "member": ["r1", "r10", "r2"],
            "lat": np.linspace(-60, 60, 4),
            "lon": np.arange(5) * 10.0,
            "start": ("member", [7, 8, 9]),
            "lead": (("time", "member"), np.arange(36).reshape(12, 3)),
        },
        name="t2m",
    )


def test_results_of_a_data_array_have_its_axes_again():
    data = _ensemble()
    fitted = PCA(None, samples_axis=("time", "member")).fit(data)
    plain = PCA(None).fit(data.values.reshape(36, 4, 5))
    np.testing.assert_allclose(fitted.singular_values_, plain.singular_values_, rtol=1e-12)
    dataset, scores = fitted.to_xarray(), fitted.transform(data)
    assert scores.dims == dataset["scores"].dims == ("time", "member", "component")
    np.testing.assert_allclose(scores, dataset["scores"], atol=1e-10)
    for name in ("time", "member", "start", "lead"):
        xr.testing.assert_identical(scores[name].drop_vars("component", errors="ignore"), data[name])
        xr.testing.assert_equal(dataset[name], data[name])
    back = fitted.inverse_transform(scores)
    xr.testing.assert_allclose(back, data)
    some = fitted.inverse_transform(scores.isel(time=[3], component=[0, 1]).transpose("component", "member", "time"))
    assert some.dims == data.dims
    assert some.sizes["time"] == 1
    new = fitted.transform(data.isel(time=[2], member=[2, 0]))
    np.testing.assert_allclose(new, scores.isel(time=[2], member=[2, 0]), atol=1e-10)


@pytest.mark.parametrize("dims", [("lat", "lon", "time", "member"), ("member", "lat", "time", "lon")])
@pytest.mark.parametrize("axes", [("time", "member"), ("member", "time")])
def test_the_order_of_axes_in_storage_does_not_matter(dims, axes):
    data = _ensemble()
    expected = PCA(3).fit(data.values.reshape(36, 4, 5))
    stored = data.transpose(*dims)
    for given_ in (stored, stored.chunk({"time": 5, "lat": 2})):
        fitted = PCA(3, samples_axis=axes).fit(given_)
        np.testing.assert_allclose(fitted.singular_values_, expected.singular_values_, rtol=1e-10)
        back = fitted.inverse_transform(fitted.transform(stored))
        assert back.dims == dims


def test_axes_told_by_number_give_rows():
    x = _ensemble().values
    fitted = PCA(3, samples_axis=(1, 0)).fit(x)
    np.testing.assert_allclose(
        fitted.singular_values_, PCA(3).fit(x.swapaxes(0, 1).reshape(36, 4, 5)).singular_values_, rtol=1e-12
    )
    assert fitted.transform(da.from_array(x)).shape == (36, 3)


def test_dates_follow_for_a_seasonal_cycle():
    data = _ensemble()
    how = {"regress_out": {"seasonal_cycle": "month"}}
    fitted = PCA(3, samples_axis=("member", "time"), **how).fit(data)
    anomalies = (data - data.mean("member")).values.reshape(36, -1)
    np.testing.assert_allclose(fitted.singular_values_, np.linalg.svd(anomalies, compute_uv=False)[:3], rtol=1e-10)


@pytest.mark.parametrize(
    ("axes", "said"),
    [
        ((0, "time"), "names an axis twice"),
        ((), "names no axis"),
        (("time", "run"), "samples_axis is 'run', but the array has dimensions 'time', 'member'"),
    ],
)
def test_axes_that_are_not_there_are_refused(axes, said):
    with pytest.raises(InputError, match=said):
        stacked(as_source(_ensemble()), axes)


def test_files_are_joined_along_the_first_axis_and_exported_along_all(tmp_path):
    data = _ensemble()
    for number, part in enumerate((data.isel(time=slice(0, 6)), data.isel(time=slice(6, 12)))):
        part.to_dataset().to_netcdf(tmp_path / f"m{number}.nc", engine="h5netcdf")
    given_ = {"uri": str(tmp_path / "m*.nc"), "array": "t2m", "samples_axis": ["time", "member"]}
    source = Input.model_validate({**given_, "uri": [str(tmp_path / f"m{number}.nc") for number in (0, 1)]}).open()
    with source.open() as reader:
        np.testing.assert_array_equal(
            reader.read(tuple(slice(0, n) for n in source.layout.shape)), data.values.reshape(36, 4, 5)
        )
    Path("c.yaml").write_text(
        yaml.safe_dump({"input": given_, "model": {"n_components": 2}, "output": {"path": "r", "report": False}})
    )
    assert dpca("run", "c.yaml") == 0
    assert dpca("export", "r", "--to", "netcdf", "--out", "r.nc") == 0
    assert dpca("export", "r", "--to", "csv", "--out", "r") == 0
    assert dpca("transform", "r", "c.yaml", "--out", "s.zarr") == 0
    assert dpca("reconstruct", "r", "--out", "b.zarr") == 0
    for made in ("s", "b"):
        assert dpca("export", f"{made}.zarr", "--to", "netcdf", "--out", f"{made}.nc") == 0
    with (
        xr.open_dataset("r.nc", engine="h5netcdf") as found,
        xr.open_dataset("s.nc", engine="h5netcdf") as scores,
        xr.open_dataset("b.nc", engine="h5netcdf") as back,
    ):
        assert found["scores"].dims == scores["scores"].dims == ("time", "member", "component")
        np.testing.assert_allclose(found["scores"], scores["scores"], atol=1e-9)
        assert back["reconstruction"].dims == data.dims
        assert list(found["member"].values) == ["r1", "r10", "r2"]
        assert found["time"].values[1] == np.datetime64("2000-02-01")
    assert Path("r-scores.csv").read_text().splitlines()[2].startswith("2000-01-01,r10,")


@pytest.mark.parametrize(
    "dims", [("time", "member", "lat", "lon"), ("lat", "lon", "time", "member"), ("lat", "member", "lon", "time")]
)
@pytest.mark.parametrize("axes", [("time", "member"), ("member", "time"), ["member"]])
@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"member": ["a", "a", "b"]},
        {"member": [np.nan, 1.0, 2.0]},
        {"member": None, "lat": None},
        {"member": None, "time": None, "lat": None, "lon": None},
    ],
    ids=["as they are", "twice", "NaN", "some without", "without"],
)
def test_axes_come_back_from_fits_and_from_results_whatever_their_coordinates_are(dims, axes, changed, tmp_path):
    data = _ensemble().drop_vars(["start", "lead"]).transpose(*dims)
    data = data.drop_vars([name for name, values in changed.items() if values is None])
    data = data.assign_coords({name: (name, values) for name, values in changed.items() if values is not None})
    fitted = PCA(None, samples_axis=axes, precision="double").fit(data)
    scores = fitted.fit_transform(data)
    assert scores.dims == fitted.to_xarray()["scores"].dims == (*axes, "component")
    fitted.save(tmp_path / "r")
    for one in (fitted, PCA.load(tmp_path / "r")):
        found = one.transform(data)
        np.testing.assert_allclose(found, scores, atol=1e-9)
        back = one.inverse_transform(found)
        np.testing.assert_allclose(back.transpose(*dims), data, atol=1e-9)
        for name in data.coords:
            xr.testing.assert_equal(back[name].drop_vars("component", errors="ignore"), data[name])


@pytest.mark.parametrize("name", ["sample", "component", "eigenvalue", "scores", "mean"])
def test_axes_with_names_of_a_results_own_are_refused(name):
    data = _ensemble().rename(member=name)
    with pytest.raises(InputError, match=f"samples_axis has '{name}', which is the name of something else"):
        PCA(2, samples_axis=("time", name)).fit(data)


def test_samples_in_another_order_stay_along_one_axis(tmp_path):
    _ensemble().to_dataset().to_netcdf(tmp_path / "m.nc", engine="h5netcdf")
    given_ = {"uri": str(tmp_path / "m.nc"), "array": "t2m", "samples_axis": ["time", "member"]}
    order = [35, *range(35)]
    for name, samples, dims in (("a", order, ("sample",)), ("b", [*range(6)], ("time", "member"))):
        config = {"input": {**given_, "samples": samples}, "model": {"n_components": 2}, "output": {"path": name}}
        Path("c.yaml").write_text(yaml.safe_dump(config))
        assert dpca("run", "c.yaml", "--set", "output.report=false") == 0
        assert dpca("export", name, "--to", "netcdf", "--out", f"{name}.nc") == 0
        with xr.open_dataset(f"{name}.nc", engine="h5netcdf") as found:
            assert found["scores"].dims == (*dims, "component")
            assert found["member"].values.ravel()[0] == ("r2" if name == "a" else "r1")


@pytest.mark.parametrize("axis", [np.int64(1), [1], (np.int64(1),), np.array([1])])
def test_one_axis_in_any_spelling(axis):
    x = random_array(0, (6, 9), "f8")
    np.testing.assert_array_equal(PCA(2, samples_axis=axis).fit(x).mean_, PCA(2, samples_axis=1).fit(x).mean_)
