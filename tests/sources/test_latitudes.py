"""Weights of latitudes that lie along several axes of features, or beside the only one: dpca run, inspect, and DataArrays."""

from pathlib import Path

import dask.array as da
import h5py
import numpy as np
import pytest
import xarray as xr
import zarr

from dpca import PCA
from dpca.errors import DataError, InputError
from tests.commands.calls import dpca

N, Y, X = 8, 5, 7
RNG = np.random.default_rng(0)
LAT = np.linspace(-70, 80, Y)[:, None] + RNG.uniform(-4, 4, (Y, X))
VALUES = RNG.standard_normal((N, Y, X))


def curvilinear(**attributes):
    """A field on a grid of two axes without coordinates of their own."""
    coords = {"lat": (("y", "x"), LAT, attributes), "lon": (("y", "x"), LAT + 100, {"units": "degrees_east"})}
    return xr.DataArray(VALUES, dims=("time", "y", "x"), coords=coords, name="tos")


def unstructured():
    cells = {"lat": ("cell", LAT.ravel()), "area": ("cell", np.ones(Y * X))}
    return xr.DataArray(VALUES.reshape(N, -1), dims=("time", "cell"), coords=cells, name="tos")


def expected(lat=LAT, values=VALUES):
    """Singular values, densely."""
    x = values.reshape(N, -1) * np.sqrt(np.cos(np.radians(lat))).ravel()
    return np.linalg.svd(x - x.mean(axis=0), compute_uv=False)[:3]


KINDS = {
    "y, x": curvilinear(units="degrees_north"),
    "x, y": curvilinear(standard_name="latitude").transpose("time", "x", "y"),
    "last samples": curvilinear().transpose("y", "x", "time"),
    "radians": curvilinear(standard_name="latitude", units="radian").assign_coords(
        lat=(("y", "x"), np.radians(LAT), {"standard_name": "latitude", "units": "radian"})
    ),
    "cells": unstructured(),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("stored", ["numpy", "dask", "all of dask"])
def test_of_data_arrays(kind, stored):
    data = KINDS[kind]
    if stored != "numpy":
        data = data.chunk(time=3)
    if stored == "all of dask":
        dims = data.lat.dims
        data = data.assign_coords(lat=(dims, da.from_array(data.lat.values, chunks=3), data.lat.attrs))
    fitted = PCA(3, samples_axis="time", weights="sqrt_cos_lat").fit(data)
    np.testing.assert_allclose(fitted.singular_values_, expected(), rtol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", ["zarr2", "zarr3", "netcdf", "netcdf classic"])
def test_of_files(kind, form, capsys):
    data = KINDS[kind].to_dataset()
    if form.startswith("netcdf"):
        uri = "x.nc"
        data.to_netcdf(uri, engine="h5netcdf" if form == "netcdf" else "scipy")
    else:
        uri = "x.zarr"
        data.to_zarr(uri, zarr_format=int(form[-1]), consolidated=False)
    Path("c.yaml").write_text(
        f"input: {{uri: {uri}, array: tos, samples_axis: time}}\n"
        "preprocess: {weights: sqrt_cos_lat}\nmodel: {n_components: 3}\noutput: {path: r}\n"
    )
    assert dpca("run", "c.yaml") == 0
    np.testing.assert_allclose(zarr.open_array("r/result.zarr/singular_values")[:], expected(), rtol=1e-9)
    capsys.readouterr()
    assert dpca("inspect", uri, "--array", "tos", "--samples-axis", "time") == 0
    assert "'lat' holds latitudes" in " ".join(capsys.readouterr().out.split())


def test_of_hdf5_without_names_of_axes_in_a_group_packed_and_of_several_files():
    packed = np.round((LAT + 90) / 0.01).astype("i2")
    for number, part in enumerate((VALUES[:5], VALUES[5:])):
        with h5py.File(f"x{number}.h5", "w") as file:
            group = file.create_group("ocean")
            group["tos"] = part
            group["tos"].attrs["coordinates"] = "nav_lat nav_lon"
            file["nav_lat"] = packed
            file["nav_lat"].attrs.update(scale_factor=0.01, add_offset=-90.0)
    Path("c.yaml").write_text(
        "input: {uri: 'x*.h5', array: ocean/tos, samples_axis: 0}\n"
        "preprocess: {weights: sqrt_cos_lat}\nmodel: {n_components: 3}\noutput: {path: r}\n"
    )
    assert dpca("run", "c.yaml") == 0
    found = zarr.open_array("r/result.zarr/singular_values")[:]
    np.testing.assert_allclose(found, expected(packed * 0.01 - 90), rtol=1e-9)


def test_the_coordinate_of_an_axis_goes_before_and_latitudes_of_samples_are_none():
    own = curvilinear().rename(y="rlat", x="rlon").assign_coords(rlat=np.linspace(-20, 20, Y))
    fitted = PCA(3, samples_axis="time", weights="sqrt_cos_lat").fit(own)
    rotated = np.repeat(np.linspace(-20, 20, Y), X)
    np.testing.assert_allclose(fitted.singular_values_, expected(rotated), rtol=1e-9)
    track = xr.DataArray(VALUES, dims=("time", "y", "x"), coords={"lat": (("time", "x"), np.zeros((N, X)))})
    with pytest.raises(InputError, match="but no axis has latitudes"):
        PCA(3, samples_axis="time", weights="sqrt_cos_lat").fit(track)
    two = curvilinear().assign_coords(latitude=(("y", "x"), LAT))
    with pytest.raises(InputError, match="more than one axis has latitudes"):
        PCA(3, samples_axis="time", weights="sqrt_cos_lat").fit(two)


def test_latitudes_that_are_wrong_or_missing():
    lat = LAT.copy()
    lat[2, 3] = 91
    with pytest.raises(InputError, match=r"latitude 'lat' at index \[2, 3\] is 91, but -90 to 90 degrees are allowed"):
        PCA(3, samples_axis="time", weights="sqrt_cos_lat").fit(curvilinear().assign_coords(lat=(("y", "x"), lat)))
    lat[2, 3] = np.nan
    data = curvilinear().assign_coords(lat=(("y", "x"), lat))
    with pytest.raises(DataError, match=r"sqrt_cos_lat of 'lat' of .*: the weight of feature \[2, 3\] is nan"):
        PCA(3, samples_axis="time", weights="sqrt_cos_lat").fit(data)
    mask = np.isfinite(lat)
    fitted = PCA(3, samples_axis="time", weights="sqrt_cos_lat", filters={"mask": mask}).fit(data)
    np.testing.assert_allclose(fitted.singular_values_, expected(np.where(mask, lat, 0), VALUES * mask), rtol=1e-9)
