"""What xarray opens: each engine beside the values that were written, where its package is installed (`make peers`; rasterio in `make looks`)."""

import json
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
import yaml
import zarr

from dpca import PCA
from dpca.errors import InputError
from dpca.sources import open_source
from tests.commands.calls import dpca
from tests.peers import imported
from tests.sources.test_zarr_array import whole

X = np.random.default_rng(0).normal(size=(8, 5, 6)).astype("f4")
LATITUDES, LONGITUDES = np.linspace(50, 30, 5), np.arange(6) * 10.0


def field(values=X):
    times = np.datetime64("2001-01-01", "ns") + np.arange(len(values)) * np.timedelta64(1, "D")
    coords = {"time": times, "latitude": LATITUDES, "longitude": LONGITUDES}
    return xr.DataArray(values, coords, ("time", "latitude", "longitude"), name="t", attrs={"units": "K"})


def netcdf(engine):
    def write():
        field().to_netcdf("x.data", engine=engine)
        return {"uri": "x.data", "engine": engine}

    return write


def grib():
    codes = imported("eccodes")
    imported("cfgrib")
    grid = {
        "Ni": 6, "Nj": 5, "latitudeOfFirstGridPointInDegrees": 50, "latitudeOfLastGridPointInDegrees": 30,
        "longitudeOfFirstGridPointInDegrees": 0, "longitudeOfLastGridPointInDegrees": 50, "iDirectionIncrementInDegrees": 10,
        "jDirectionIncrementInDegrees": 5, "indicatorOfParameter": 130, "bitsPerValue": 24,
    }  # fmt: skip
    with open("x.grib", "wb") as file:
        for number, values in enumerate(X):
            message = codes.codes_grib_new_from_samples("regular_ll_sfc_grib1")
            for key, value in {**grid, "dataDate": 20010101 + number}.items():
                codes.codes_set(message, key, value)
            codes.codes_set_values(message, values.astype("f8").ravel())
            codes.codes_write(message, file)
            codes.codes_release(message)
    return {"uri": "x.grib", "engine": "cfgrib"}


def references():
    hdf = imported("kerchunk.hdf")
    field().to_netcdf("x.nc", engine="h5netcdf")
    Path("refs.json").write_text(json.dumps(hdf.SingleHdf5ToZarr("x.nc").translate()))
    return {"uri": "refs.json", "engine": "kerchunk", "array": "t"}


def of_icechunk():
    icechunk = imported("icechunk")
    repository = icechunk.Repository.create(icechunk.local_filesystem_storage("ice"))
    for values, tag in ((X, "first"), (X + 1, "second")):
        session = repository.writable_session("main")
        field(values).to_dataset().to_zarr(session.store, consolidated=False, mode="w", zarr_format=3)
        repository.create_tag(tag, snapshot_id=session.commit(tag))
    return {"uri": "ice", "engine": "icechunk", "engine_options": {"tag": "first"}}


def geotiff():
    pytest.importorskip("rioxarray")
    xr.DataArray(X, dims=("band", "y", "x"), coords={"y": LATITUDES, "x": LONGITUDES}).rio.write_crs(
        4326
    ).rio.to_raster("x.tif")
    return {"uri": "x.tif", "engine": "rasterio"}


ENGINES = [
    pytest.param(netcdf("h5netcdf"), id="h5netcdf"),
    pytest.param(netcdf("scipy"), id="scipy"),
    pytest.param(grib, id="cfgrib"),
    pytest.param(references, id="kerchunk"),
    pytest.param(of_icechunk, id="icechunk"),
    # In one process with eccodes, the libraries behind rasterio end it by a signal, also without dpca.
    pytest.param(geotiff, id="rasterio", marks=pytest.mark.looks),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("write", ENGINES)
def test_an_engine_gives_the_values_and_places_and_commands_use_them(write, capsys):
    asked = write()
    source = open_source(**asked)
    np.testing.assert_allclose(whole(source)[0], X, atol=1e-6)
    with source.open() as reader:
        np.testing.assert_allclose(reader.read((slice(2, 5), slice(1, 3), slice(0, 6))), X[2:5, 1:3], atol=1e-6)
        np.testing.assert_allclose(reader.coordinate(1).values[...], LATITUDES)
    Path("c.yaml").write_text(
        yaml.safe_dump(
            {
                "input": asked,
                "model": {"n_components": 3, "precision": "double"},
                "output": {"path": "r", "report": False},
            }
        )
    )
    assert not dpca("plan", "c.yaml")
    locked = f"engine {asked['engine']} reads one block at a time" in capsys.readouterr().out
    assert locked == (asked["engine"] not in ("icechunk", "kerchunk"))
    assert not dpca("run", "c.yaml")
    flat = X.reshape(8, -1) - X.reshape(8, -1).mean(axis=0)
    expected = np.linalg.svd(flat, compute_uv=False)[:3]
    np.testing.assert_allclose(zarr.open_group("r/result.zarr")["singular_values"][...], expected, rtol=1e-5)
    # New samples are opened by the engine of the fit, and the result is opened again with its data.
    assert not dpca("transform", "r", asked["uri"], "--out", "s.zarr")
    scores = zarr.open_group("s.zarr")["scores"][...]
    np.testing.assert_allclose(np.linalg.norm(scores, axis=0), expected, rtol=1e-5)
    np.testing.assert_allclose(PCA.load("r").singular_values_, expected, rtol=1e-5)


@pytest.mark.filterwarnings("ignore")
def test_a_branch_that_moved_is_another_input():
    asked = {**of_icechunk(), "engine_options": {}}
    import icechunk

    repository = icechunk.Repository.open(icechunk.local_filesystem_storage("ice"))
    before = open_source(**asked).fingerprint()
    tagged = open_source(**{**asked, "engine_options": {"snapshot": before["snapshot"]}})
    session = repository.writable_session("main")
    field(X * 2).to_dataset().to_zarr(session.store, consolidated=False, mode="w", zarr_format=3)
    session.commit("third")
    assert open_source(**asked).fingerprint() != before
    assert tagged.fingerprint() == before
    np.testing.assert_allclose(whole(tagged)[0], X + 1)
    for options in ({"tag": "none"}, {"commit": "x"}):
        with pytest.raises(InputError, match="as an Icechunk repository|'commit'"):
            open_source(**{**asked, "engine_options": options})


def test_what_an_engine_does_not_open_is_refused_in_a_sentence():
    Path("x.data").write_bytes(b"nothing of the kind")
    with pytest.raises(InputError, match=r"x\.data: xarray's engine h5netcdf can't open it"):
        open_source("x.data", engine="h5netcdf")
    with pytest.raises(InputError, match=r"engine: nope.*|engine is 'nope', but xarray has the engines"):
        open_source("x.data", engine="nope")
    with pytest.raises(InputError, match=r"gone\.nc: does not exist"):
        open_source("gone.nc", engine="h5netcdf")
    xr.Dataset({"a": field(), "b": field()}).to_netcdf("two.nc", engine="h5netcdf")
    with pytest.raises(InputError, match=r"which array\? It holds a \(8, 5, 6\), b"):
        open_source("two.nc", engine="h5netcdf")
    with pytest.raises(InputError, match=r"has no array 'c'; it holds a"):
        open_source("two.nc", "c", engine="h5netcdf")


def test_objects_of_xarray_that_are_not_read_yet_are_read_by_blocks():
    field().to_netcdf("x.nc", engine="h5netcdf")
    with xr.open_dataset("x.nc", engine="h5netcdf") as data:
        fitted = PCA(3).fit(data["t"])
        assert not data["t"].variable._in_memory
    flat = X.reshape(8, -1) - X.reshape(8, -1).mean(axis=0)
    np.testing.assert_allclose(fitted.singular_values_, np.linalg.svd(flat, compute_uv=False)[:3], rtol=1e-5)
