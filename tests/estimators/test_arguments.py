"""xarray in, xarray out: names, coordinates and attributes come back with scores, components and samples."""

import pickle
import re
import warnings
from pathlib import Path

import dask.array as da
import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone

from dpca import PCA, KernelPCA
from dpca.errors import ConfigError, InputError
from dpca.sources import as_source, xarray_labels
from dpca.sources.dask_array import DaskSource
from dpca.store import labelled
from dpca.store.stored import RESERVED_DIMS
from tests.commands.calls import dpca
from tests.drawn import examples
from tests.stores import random_array

DIMS = ("time", "lat", "lon")
SHAPE = (12, 5, 4)
NOISE = random_array(0, SHAPE, "f8")
DAYS = np.arange("2001-01-01", "2001-01-13", dtype="datetime64[D]").astype("datetime64[ns]")


@pytest.fixture
def field():
    """With every kind of coordinate that belongs to samples, to features, or to neither."""
    return xr.DataArray(
        NOISE,
        dims=DIMS,
        name="sst",
        attrs={"units": "K", "long_name": "sea surface temperature"},
        coords={
            "time": ("time", DAYS, {"long_name": "day"}),
            "season": ("time", np.arange(12) % 4, {"meaning": "quarter"}),
            "lat": ("lat", np.linspace(60, 20, 5), {"units": "degrees_north"}),
            "lon": ("lon", ["a", "b", "c", "d"]),
            "area": (("lat", "lon"), np.arange(20.0).reshape(5, 4), {"units": "m2"}),
            "level": 500,
        },
    )


MODELS = [
    PCA(samples_axis="time"),
    PCA(samples_axis="time", whiten=True, scale="std"),
    KernelPCA(kernel="linear", samples_axis="time", center=True),
]


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
def test_all_components_give_the_field_back(field, model, lazy):
    data = field.transpose("lat", "time", "lon")
    fitted = clone(model)
    scores = fitted.fit_transform(data.chunk(lat=2) if lazy else data)
    assert scores.dims == ("time", "component")
    assert scores.component.values.tolist() == [*range(1, 1 + scores.sizes["component"])]
    xr.testing.assert_identical(
        scores.coords.to_dataset().drop_vars("component"),
        field[:, 0, 0].drop_vars(["lat", "lon", "area"]).coords.to_dataset(),
    )
    xr.testing.assert_allclose(fitted.transform(data), scores, atol=1e-9)
    restored = fitted.inverse_transform(scores)
    assert isinstance(restored.data, da.Array if lazy else np.ndarray)
    xr.testing.assert_allclose(restored.load(), data, rtol=1e-10)
    assert (restored.name, restored.attrs, restored.dims) == (data.name, data.attrs, data.dims)
    xr.testing.assert_identical(restored.coords.to_dataset(), data.coords.to_dataset())


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize(
    "how",
    [
        {},
        {"scale": "std"},
        {"scale": "std", "scale_ddof": 0},
        {"weights": "sqrt_cos_lat"},
        {"scale": "std", "whiten": True},
    ],
    ids=str,
)
def test_maps_in_the_unit_of_the_data_and_as_correlations(field, how, lazy):
    """Of one standard deviation of the score: regression of the data on it, whatever they were scaled and weighted by."""
    data = field.transpose("time", "lat", "lon").assign_attrs(units="degC")
    fitted = PCA(3, **how).fit(data.chunk(lat=2) if lazy else data)
    scores = fitted.to_xarray().scores.values
    x, z = data.values - data.values.mean(axis=0), scores / scores.std(axis=0, ddof=1)
    expected = np.einsum("nk,nij->kij", z, x) / (len(x) - 1)
    maps = fitted.to_xarray(as_covariance=True, as_correlation=how.get("scale") == "std")
    np.testing.assert_allclose(maps.as_covariance, expected, atol=1e-10)
    assert maps.as_covariance.dims == ("component", "lat", "lon")
    assert maps.as_covariance.attrs == {"long_name": "data for one standard deviation of the score", "units": "degC"}
    if how.get("scale") == "std":
        np.testing.assert_allclose(maps.as_correlation, expected / x.std(axis=0, ddof=1), atol=1e-10)
    else:
        with pytest.raises(ConfigError, match="standard deviation of each feature"):
            fitted.to_xarray(as_correlation=True)


def test_every_array_says_what_it_is(field, tmp_path):
    """In memory, in files, and of new samples: long_name and units, which follow from scaling; components count from 1."""
    data = field.assign_attrs(units="m s-1")
    for how, unit, square in (
        ({}, "m s-1", "(m s-1)2"),
        ({"scale": "std"}, "1", "1"),
        ({"scale": "pareto"}, None, None),
    ):
        fitted = PCA(3, **how).fit(data)
        fitted.save(tmp_path / f"{square}.r")
        stored = xr.open_zarr(tmp_path / f"{square}.r" / "result.zarr")
        for found in (fitted.to_xarray(), stored):
            assert all("long_name" in array.attrs for array in found.data_vars.values())
            assert found.component.values.tolist() == [1, 2, 3]
            assert [found[name].attrs.get("units") for name in ("scores", "explained_variance")] == [unit, square]
            assert [found[name].attrs["units"] for name in ("mean", "components")] == ["m s-1", "1"]
        assert fitted.components_.sel(component=1).dims == ("lat", "lon")
    whitened = PCA(3, whiten=True).fit(data).to_xarray()
    assert [whitened[name].attrs["units"] for name in ("scores", "singular_values")] == ["1", "m s-1"]
    days = PCA(3).fit(field.assign_attrs(units="days"))
    days.save(tmp_path / "days")
    found = xr.open_zarr(tmp_path / "days" / "result.zarr").scores  # no time spans
    assert (found.dtype, found.attrs["units"]) == (np.float64, "d")


@given(
    order=st.permutations(DIMS),
    chunks=st.one_of(st.none(), st.fixed_dictionaries({dim: st.integers(1, 12) for dim in DIMS})),
    by_name=st.booleans(),
    dtype=st.sampled_from(["f4", "f8", "i2"]),
)
@examples(6)
def test_any_order_of_dimensions_and_any_chunks_give_the_numbers_of_numpy(order, chunks, by_name, dtype):
    x = (10 * NOISE).astype(dtype)
    data = xr.DataArray(x, dims=DIMS, coords={"time": DAYS, "lat": np.arange(5.0)}).transpose(*order)
    data = data if chunks is None else data.chunk(chunks)
    expected = PCA(3).fit(x)
    fitted = PCA(3, samples_axis="time" if by_name else order.index("time"))
    scores = fitted.fit_transform(data)
    assert (scores.dims, scores.time.equals(data.time)) == (("time", "component"), True)
    np.testing.assert_allclose(scores, expected.transform(x), rtol=1e-4, atol=1e-4)
    found = fitted.to_xarray().load()
    np.testing.assert_allclose(found.components.transpose("component", "lat", "lon"), expected.components_, atol=1e-5)
    np.testing.assert_allclose(found["mean"].transpose("lat", "lon"), expected.mean_, rtol=1e-6, atol=1e-6)
    assert found.lat.equals(data.lat)
    assert fitted.inverse_transform(scores).dims == tuple(order)


@pytest.mark.parametrize("model", MODELS[::2], ids=lambda model: type(model).__name__)
def test_a_part_of_the_samples_keeps_its_own_coordinates(field, model):
    fitted = clone(model).fit(field)
    part = fitted.transform(field).isel(time=slice(3, 6))
    xr.testing.assert_allclose(fitted.inverse_transform(part), field[3:6], rtol=1e-10)
    xr.testing.assert_allclose(fitted.inverse_transform(part.transpose()), field[3:6], rtol=1e-10)
    later = field[:2].assign_coords(time=DAYS[:2] + np.timedelta64(365, "D"), level=850)
    xr.testing.assert_allclose(fitted.inverse_transform(fitted.transform(later)), later, rtol=1e-10)


@pytest.mark.parametrize("model", MODELS[:1] + MODELS[2:3], ids=lambda model: type(model).__name__)
def test_scores_of_some_components_are_placed_by_their_numbers(field, model):
    fitted = clone(model).set_params(n_components=3).fit(field)
    scores = fitted.transform(field)
    alone = fitted.inverse_transform(scores * (scores.component != 2))
    for order in ([1, 3], [3, 1]):
        xr.testing.assert_allclose(fitted.inverse_transform(scores.sel(component=order)), alone, rtol=1e-10)
    whole = fitted.inverse_transform(scores)
    xr.testing.assert_allclose(fitted.inverse_transform(scores.isel(component=[2, 0, 1])), whole, rtol=1e-10)
    for wrong in (
        scores.isel(component=[0, 0]),
        scores.assign_coords(component=[0, 1, 2]),
        scores.assign_coords(component=list("abc")),
    ):
        with pytest.raises(InputError, match="each of 1 to 3 is allowed once"):
            fitted.inverse_transform(wrong)
    with pytest.raises(InputError, match="the fit has 3 components"):
        fitted.inverse_transform(scores.drop_vars("component").isel(component=[0, 1]))


def test_numpy_in_numpy_out(field):
    fitted = PCA(3, samples_axis="time").fit(field)
    assert type(fitted.transform(field.values[:2])) is np.ndarray
    assert type(fitted.inverse_transform(np.zeros((2, 3)))) is np.ndarray
    of_numpy = PCA(3)
    assert type(of_numpy.fit_transform(field.values)) is np.ndarray
    assert type(of_numpy.components_) is np.ndarray
    refitted = PCA(3).fit(field).fit(NOISE[:, 0])
    assert set(refitted.to_xarray().coords) == {"component"}  # nothing of the first fit stays


def test_a_fit_of_numpy_labels_what_a_dataarray_lets_it_label(field):
    fitted = PCA(3).fit(NOISE)
    scores = fitted.transform(field)
    assert scores.time.identical(field.time.drop_vars(["lat", "lon", "area"], errors="ignore"))
    assert fitted.inverse_transform(scores).dims == ("time", "feature_0", "feature_1")


def test_the_fit_as_a_dataset(field, tmp_path):
    fitted = PCA(3, samples_axis="time", scale="std").fit(field)
    found = fitted.to_xarray()
    coords = found.coords.to_dataset().drop_vars("component").drop_attrs(deep=False)
    xr.testing.assert_identical(coords, field.coords.to_dataset())
    assert found.components.dims == ("component", "lat", "lon")
    assert found["mean"].attrs == field.attrs
    xr.testing.assert_allclose(found.scores.drop_attrs(), fitted.transform(field).drop_attrs(), atol=1e-9)
    for name in ("components", "mean", "scale", "singular_values", "explained_variance", "explained_variance_ratio"):
        np.testing.assert_array_equal(found[name], getattr(fitted, f"{name}_"))
    found.to_netcdf("fit.nc", engine="h5netcdf")
    fitted.components_ = -fitted.components_
    np.testing.assert_array_equal(fitted.to_xarray().components, fitted.components_)
    again = pickle.loads(pickle.dumps(fitted))
    xr.testing.assert_identical(again.to_xarray(), fitted.to_xarray())
    fitted.save(tmp_path / "fit")
    loaded = PCA.load(tmp_path / "fit").to_xarray()
    for name in DIMS:
        np.testing.assert_array_equal(loaded[name], field[name])
    assert loaded.lat.attrs == field.lat.attrs
    np.testing.assert_array_equal(loaded.components, fitted.components_)


def test_a_result_of_the_command_line_as_a_dataset(field, monkeypatch):
    monkeypatch.setattr(labelled, "HELD_BYTES", 100)
    field.drop_vars("level").to_zarr("x.zarr", consolidated=False)
    Path("c.yaml").write_text(
        "input: {uri: x.zarr, array: sst, samples_axis: time}\nmodel: {n_components: 2}\noutput: {path: r, report: false}\n"
    )
    assert dpca("run", "c.yaml") == 0
    fitted = PCA.load("r")
    found = fitted.to_xarray()
    assert isinstance(found.components.data, da.Array)
    assert isinstance(found.singular_values.data, np.ndarray)
    with xr.open_zarr("r/result.zarr") as opened:
        xr.testing.assert_equal(found.load(), opened.load())
    restored = fitted.inverse_transform(fitted.transform(field))
    assert (restored.dims, restored.name) == (DIMS, None)
    np.testing.assert_array_equal(restored.time, DAYS)
    np.testing.assert_array_equal(restored.lat, field.lat)


def test_one_kernel_of_a_sweep_as_a_dataset(field):
    field.to_zarr("x.zarr", consolidated=False)
    Path("c.yaml").write_text(
        "input: {uri: x.zarr, array: sst, samples_axis: time}\n"
        "model: {kind: kernel_pca, kernel: [rbf, linear], n_components: 2}\noutput: {path: r, report: false}\n"
    )
    assert dpca("run", "c.yaml") == 0
    fitted = KernelPCA.load("r", kernel_case=1)
    found = fitted.to_xarray()
    assert (found.scores.dims, str(found.kernel.values)) == (("time", "component"), "linear")
    np.testing.assert_allclose(np.abs(found.scores), np.abs(fitted.transform(field)), atol=1e-8)


def test_stacked_dimensions_come_back_stacked(field):
    runs = xr.concat([field, -2 * field], xr.DataArray([1, 2], dims="member", name="member")).drop_vars("season")
    samples = runs.stack(run=("member", "time"))
    fitted = PCA(samples_axis="run")
    scores = fitted.fit_transform(samples)
    assert scores.unstack("run").sizes == {"component": 20, "member": 2, "time": 12}
    xr.testing.assert_allclose(fitted.inverse_transform(scores).unstack("run").transpose(*runs.dims), runs, rtol=1e-9)
    cells = field.drop_vars("area").stack(cell=("lat", "lon"))
    fitted = PCA(2, samples_axis="time").fit(cells)
    assert fitted.to_xarray().components.unstack("cell").dims == ("component", "lat", "lon")


def test_names_that_a_result_has_for_something_else(field):
    data = field.drop_vars("area").rename(time="component", lat="mean", lon="scores", level="eigenvalue")
    fitted = PCA(samples_axis="component")
    scores = fitted.fit_transform(data)
    assert scores.dims == ("sample", "component")
    np.testing.assert_array_equal(scores.sample, DAYS)
    found = fitted.to_xarray()
    assert found.components.dims == ("component", "feature_mean", "feature_scores")
    np.testing.assert_array_equal(found.feature_mean, field.lat)
    xr.testing.assert_allclose(fitted.inverse_transform(scores), data, rtol=1e-10)


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("model", MODELS[1:], ids=lambda model: type(model).__name__)
@pytest.mark.parametrize("name", ["time", "lat"])
def test_an_array_may_be_called_as_one_of_its_dimensions(field, name, model, lazy, tmp_path):
    data = field.drop_vars("area").rename(name)
    data = data.chunk(time=5) if lazy else data
    fitted = clone(model).fit(data)
    scores = fitted.transform(data)
    scores.to_zarr(tmp_path / "scores.zarr", consolidated=False)
    back = fitted.inverse_transform(scores)
    assert back.name == name
    back.to_zarr(tmp_path / "back.zarr", consolidated=False)
    fitted.to_xarray().to_zarr(tmp_path / "fit.zarr", consolidated=False)
    loaded = type(model).load(fitted.save(tmp_path / "saved"))
    np.testing.assert_allclose(loaded.transform(data), scores, atol=1e-9)
    np.testing.assert_allclose(loaded.inverse_transform(loaded.transform(data)), back, atol=1e-9)


@pytest.mark.parametrize("dim", ["variance_share", "reconstruction", "shrinkage"])
def test_a_dimension_may_be_called_as_an_array_that_only_some_outputs_have(field, dim, capsys):
    data = field.drop_vars(["area", "season"]).rename(time=dim)
    data.to_dataset().to_zarr("x.zarr", consolidated=False)
    Path("c.yaml").write_text(
        f"input: {{uri: x.zarr, array: sst, samples_axis: {dim}}}\noutput: {{path: r, report: false}}\n"
    )
    assert dpca("run", "c.yaml") == 0
    assert dpca("transform", "r", "x.zarr", "--out", "s.zarr") == 0
    assert dpca("reconstruct", "r", "--out", "b.zarr") == 0
    with xr.open_zarr("s.zarr") as scores, xr.open_zarr("b.zarr") as back:
        assert scores.scores.dims == ("sample", "component")
        np.testing.assert_array_equal(scores.sample, DAYS)
        np.testing.assert_array_equal(back.sample, DAYS)
        np.testing.assert_allclose(back.reconstruction, data.values, atol=1e-9)


def test_every_array_of_a_result_has_a_name_that_no_dimension_has(field):
    field = field.drop_vars(["season", "area", "level"])
    fits = [
        PCA(3, samples_axis="time", block_scaling="total_variance").fit({"a": field, "b": field.isel(lat=slice(2))}),
        PCA(3, samples_axis="time").fit(field, sample_weight=np.arange(1, 13)),
        KernelPCA(3, kernel="rbf", samples_axis="time", fit_inverse_transform="fixed_point").fit(field),
    ]
    dims = {"time", *(f"{group}{dim}" for group in ("", "a_", "b_") for dim in ("lat", "lon"))}
    for fitted in fits:
        names = {re.sub(r"_(a|b|by_group)$", "", name) for name in fitted._result.arrays}
        assert names - dims <= RESERVED_DIMS


def test_land_is_missing_in_what_comes_back(field):
    land = field.where((field.lat != 40) | (field.lon != "b"))
    with pytest.raises(ValueError, match="missing"):
        PCA(samples_axis="time").fit(land)
    fitted = PCA(samples_axis="time", missing="mean").fit(land)
    xr.testing.assert_allclose(fitted.inverse_transform(fitted.transform(land)), land, rtol=1e-10)
    xr.testing.assert_equal(fitted.to_xarray().components.isnull().all("component"), land.isnull().all("time"))


def test_likelihoods_are_labelled_too(field):
    found = PCA(2, samples_axis="time").fit(field).score_samples(field)
    assert found.dims == ("time",)
    np.testing.assert_array_equal(found.season, field.season)


@pytest.mark.filterwarnings("ignore")
def test_an_output_that_scikit_learn_sets_takes_precedence(field):
    table = PCA(2, samples_axis="time").set_output(transform="pandas").fit_transform(field)
    assert list(table.columns) == ["pca0", "pca1"]


def test_calendars_of_models_come_back_as_dates(field, tmp_path):
    pytest.importorskip("cftime")
    data = field.assign_coords(time=xr.date_range("1999-02-28", periods=12, calendar="360_day", use_cftime=True))
    fitted = PCA(samples_axis="time")
    restored = fitted.inverse_transform(fitted.fit_transform(data))
    assert restored.time.identical(data.time)
    fitted.save(tmp_path / "fit")
    assert PCA.load(tmp_path / "fit").to_xarray().time.values[2].isoformat() == "1999-02-30T00:00:00"
    with xr.open_zarr(tmp_path / "fit" / "result.zarr") as opened:
        np.testing.assert_array_equal(opened.time, data.time)


def test_what_can_not_be_labelled_is_refused(field):
    with pytest.raises(InputError, match=r"an xarray\.Dataset with variables 'a', 'b'.*\n.*X\['NAME'\]"):
        KernelPCA().fit(xr.Dataset({"a": field, "b": field}))
    fitted = PCA(3, samples_axis="time").fit(field)
    scores = fitted.transform(field)
    with pytest.raises(InputError, match=r"scores have dimensions \('component',\).*\n.*isel"):
        fitted.inverse_transform(scores.isel(time=0))
    with pytest.raises(InputError, match="scores have shape .12, 2., but the fit has 3 components"):
        fitted.inverse_transform(scores.isel(component=slice(2)).drop_vars("component"))
    with pytest.raises(InputError, match="samples_axis is 'time', but the array has dimensions 'day'"):
        fitted.transform(field.rename(time="day"))


def test_sea_surface_temperature(shared_data):
    """The components of eofs, on the grid that they were asked for."""
    folder = shared_data("climate-sst")
    grid = {name: np.load(folder / f"{name}.npy") for name in ("time", "latitude", "longitude")}
    sst = xr.DataArray(np.load(folder / "sst.npy"), coords=grid, dims=tuple(grid), name="sst", attrs={"units": "K"})
    fitted = PCA(samples_axis="time", missing="mean")
    scores = fitted.fit_transform(sst)
    found = fitted.to_xarray()
    expected = sst.copy(data=np.broadcast_to(np.load(folder / "eofs.equal.npy")[0], sst.shape)).isel(time=0, drop=True)
    np.testing.assert_allclose(abs(found.components.sel(component=1)), abs(expected), atol=1e-6)
    np.testing.assert_array_equal(found.latitude, sst.latitude)
    xr.testing.assert_allclose(fitted.inverse_transform(scores), sst, rtol=1e-10)


def test_arrays_of_different_units_that_are_not_scaled_are_named(field):
    both = xr.Dataset({"p": 1e4 * field.assign_attrs(units="Pa"), "t": field.assign_attrs(units="K")})
    with pytest.warns(UserWarning, match=re.escape("p (Pa), t (K) have different units")):
        fitted = PCA(2).fit(both)
    assert (fitted.variance_share_[0] > 0.999).all()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        PCA(2, block_scaling="first_eigenvalue").fit(both)
        PCA(2, scale="std").fit(both)
        PCA(2).fit(both.assign(p=both.p.assign_attrs(units="K")))
        PCA(2).fit(both.drop_attrs())


@pytest.mark.parametrize(
    ("chunks", "of"),
    [(None, lambda x: x), ((4, 5, 2), lambda x: x[2:, 1:]), (None, lambda x: x.transpose("lat", "lon", "time"))],
)
def test_an_array_of_a_file_that_is_not_read_yet_is_read_block_by_block(field, chunks, of, monkeypatch):
    """As xarray.open_dataset gives it, without chunks: no method loads it, and decoding, cuts and transposing are as they were."""
    monkeypatch.setattr(xarray_labels, "BLOCK_BYTES", 200)
    packed = {"dtype": "i2", "scale_factor": 0.01, "_FillValue": -99, "chunksizes": chunks}
    field.drop_vars(["season", "level"]).to_netcdf("x.nc", engine="h5netcdf", encoding={"sst": packed})
    with xr.open_dataset("x.nc", engine="h5netcdf") as opened:
        lazy = of(opened["sst"])
        blocks = as_source(lazy)
        assert isinstance(blocks, DaskSource)
        assert blocks.layout.chunk_bytes <= (200 if chunks is None else 4 * 5 * 2 * 8)
        for fitted in (PCA(2, samples_axis="time"), KernelPCA(2, samples_axis="time")):
            scores = fitted.fit_transform(lazy)
            xr.testing.assert_allclose(fitted.transform(lazy), scores, atol=1e-9)
            assert not lazy.variable._in_memory
            expected = clone(fitted).fit_transform(of(xr.load_dataset("x.nc", engine="h5netcdf")["sst"]))
            np.testing.assert_allclose(abs(scores), abs(expected), atol=1e-9)


def test_dates_along_another_axis_than_that_of_the_samples_are_said(field, capsys):
    other = field.transpose("lat", "lon", "time").drop_vars(["season", "level", "lon"])
    with pytest.warns(UserWarning, match="along axis 0, 'lat', but 'time' has dates.*set samples_axis to 'time'"):
        PCA(2).fit(other)
    by_names = PCA(2, samples_axis=("lat", "time")).fit(other)
    by_index = PCA(2, samples_axis="sample").fit(other.stack(sample=("lat", "time")))
    np.testing.assert_allclose(by_names.singular_values_, by_index.singular_values_)
    other.to_netcdf("x.nc", engine="h5netcdf")
    Path("c.yaml").write_text("input: {uri: x.nc}\nmodel: {n_components: 2}\noutput: {path: r, report: false}\n")
    assert dpca("run", "c.yaml") == 0
    assert "but 'time' has dates" in capsys.readouterr().err
    assert dpca("run", "c.yaml", "--overwrite", "--set", "input.samples_axis=lat") == 0
    assert "has dates" not in capsys.readouterr().err
