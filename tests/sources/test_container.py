"""Files as xarray writes them, NetCDF-4 and both versions of Zarr: the same numbers, names and coordinates as it reads."""

from pathlib import Path

import h5py
import numpy as np
import pytest
import xarray as xr

from dpca import PCA
from dpca.sources import open_source
from tests.commands.calls import dpca
from tests.stores import random_array

PACKED = {"dtype": "i2", "scale_factor": 0.01, "add_offset": 273.15, "_FillValue": np.int16(-32767)}


def dataset():
    """A packed field with land, on packed latitudes, along monthly means."""
    values = 273 + random_array(0, (6, 10, 8), "f8")
    values[:, 0, 3] = np.nan
    coordinates = {
        "time": ("time", np.arange("2000-01", "2000-07", dtype="datetime64[M]").astype("datetime64[ns]")),
        "lat": ("lat", np.linspace(60, 15, 10), {"units": "degrees_north", "standard_name": "latitude"}),
        "lon": ("lon", np.arange(8, dtype="f4")),
    }
    fields = xr.Dataset({"t2m": (("lat", "time", "lon"), values.transpose(1, 0, 2), {"units": "K"})}, coordinates)
    fields["bounds"] = (("time", "side"), np.zeros((6, 2)))
    fields.t2m.encoding = {**PACKED, "chunksizes": (5, 3, 8)}
    fields.lat.encoding = {"dtype": "i2", "scale_factor": 0.5, "add_offset": 10.0, "_FillValue": np.int16(-1)}
    fields.time.encoding = {"units": "hours since 1900-01-01", "dtype": "i8"}
    return fields


def written(kind):
    """The path of the file, and the Dataset that xarray reads from it."""
    fields, path = dataset(), f"x.{kind.partition('-')[0]}"
    if kind == "nc":
        fields.to_netcdf(path, engine="h5netcdf")
        return path, xr.load_dataset(path, engine="h5netcdf")
    del fields.t2m.encoding["chunksizes"]
    fields.t2m.encoding["chunks"] = (5, 3, 8)
    fields.to_zarr(path, zarr_format=int(kind[-1]), consolidated=False)
    with xr.open_zarr(path, consolidated=False) as opened:
        return path, opened.load()


@pytest.mark.parametrize("kind", ["nc", "zarr-2", "zarr-3"])
def test_a_file_has_the_axes_numbers_and_coordinates_that_xarray_reads(kind):
    path, expected = written(kind)
    source = open_source(path, "t2m")
    assert source.layout.dims == ("lat", "time", "lon")
    with source.open() as reader:
        latitude, longitude = reader.coordinate(0), reader.coordinate(2)
        np.testing.assert_array_equal(latitude.values[...], expected.lat)
        np.testing.assert_array_equal(np.concatenate([part for _, part in latitude.pieces(3)]), expected.lat)
        assert (latitude.values.dtype, longitude.values.dtype) == ("f8", "f4")
        assert dict(latitude.attributes) == {"units": "degrees_north", "standard_name": "latitude"}
    Path("c.yaml").write_text(
        f"input: {{uri: {path}, array: t2m, samples_axis: time}}\npreprocess: {{missing: mean}}\n"
        "model: {n_components: 3, precision: double}\noutput: {path: r, report: false}\n"
    )
    assert dpca("run", "c.yaml") == 0
    fitted = PCA(3, samples_axis="time", missing="mean", precision="double").fit(expected.t2m)
    found, of_xarray = PCA.load("r").to_xarray().load(), fitted.to_xarray()
    for name in ("time", "lat", "lon"):
        np.testing.assert_array_equal(found[name], expected[name])
    np.testing.assert_allclose(found.singular_values, of_xarray.singular_values, rtol=1e-6)
    np.testing.assert_allclose(found.components, of_xarray.components, atol=1e-5)
    assert found.components.isnull().sum() == 3
    # What one of the two wrote down as coordinates, the other one accepts.
    np.testing.assert_allclose(np.asarray(PCA.load("r").transform(expected.t2m)), found.scores, atol=1e-5)
    fitted.save("of_xarray")
    Path("new.yaml").write_text(f"{{uri: {path}, array: t2m, samples_axis: time}}\n")
    assert dpca("transform", "of_xarray", "new.yaml", "--out", "scores.zarr") == 0


def test_attributes_of_coordinates_that_other_writers_store_in_other_types():
    """netCDF-C writes a string as an array of one; a number is no description."""
    with h5py.File("x.nc", "w") as file:
        file["v"], file["time"] = random_array(0, (4, 30), "f8"), np.arange(4.0)
        file["time"].make_scale("time")
        file["v"].dims[0].attach_scale(file["time"])
        file["time"].attrs["units"] = np.array(["days since 2000-01-01"], h5py.string_dtype())
        file["time"].attrs["calendar"] = np.bytes_(b"standard")
        file["time"].attrs["long_name"] = np.float32(1)
    Path("c.yaml").write_text("input: {uri: x.nc, array: v, samples_axis: time}\noutput: {path: r, report: false}\n")
    assert dpca("run", "c.yaml") == 0
    with xr.open_zarr("r/result.zarr") as found:
        np.testing.assert_array_equal(found.time, np.arange("2000-01-01", "2000-01-05", dtype="datetime64[D]"))


@pytest.mark.parametrize(
    ("calendar", "second"), [("noleap", "1999-03-01"), ("360_day", "1999-02-29"), ("standard", "1999-03-01")]
)
def test_exports_keep_dates_of_every_calendar(calendar, second):
    pytest.importorskip("cftime")
    fields, model = dataset().drop_encoding(), calendar != "standard"
    fields["time"] = xr.date_range("1999-02-28", periods=6, calendar=calendar, use_cftime=model)
    fields.to_zarr("x.zarr", consolidated=False)
    Path("c.yaml").write_text(
        "input: {uri: x.zarr, array: t2m, samples_axis: time}\npreprocess: {missing: mean}\n"
        "model: {n_components: 2}\noutput: {path: r, report: false}\n"
    )
    assert dpca("run", "c.yaml") == 0
    for to in ("csv", "npz", "netcdf"):
        assert dpca("export", "r", "--to", to) == 0
    assert Path("r-scores.csv").read_text().splitlines()[2].startswith(f"{second},")
    with np.load("r.npz") as found:
        assert str(found["time.calendar"] if model else found["time"][1]) == (calendar if model else second)
    with xr.open_dataset("r.nc", engine="h5netcdf") as opened:
        np.testing.assert_array_equal(opened.time, fields.time)
