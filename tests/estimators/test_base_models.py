"""A fit that lasts: pickled, saved, moved, loaded by the other interface, it answers the same or says why not."""

import json
import os
import pickle
import shutil
import subprocess
import sys

import dask.array as da
import numpy as np
import pytest
import xarray as xr
import zarr
from distributed import Client
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_validate

from dpca import PCA, KernelPCA
from dpca.errors import ConfigError, DataError, InputError, OutputExistsError
from dpca.estimators.base import NotPortable
from dpca.store.results import open_result
from tests.commands.calls import dpca as command
from tests.stores import random_array

X = random_array(0, (12, 300), "f4")
NEW = random_array(1, (5, 300), "f4")


class CarryingLittle(PCA):
    """A PCA whose fit is pickled only up to 1000 bytes."""

    _carried_bytes = 1000


class CarryingNothing(PCA):
    """A PCA whose fit is never pickled, only the path of it."""

    _carried_bytes = 0


@pytest.fixture
def refused(capsys):
    """The message of a command that ends with 2."""

    def message(*arguments):
        capsys.readouterr()
        assert command(*arguments) == 2
        return capsys.readouterr().err

    return message


FIT = """
import pickle, sys, dask.array as da, h5py, numpy as np, zarr
from dpca import PCA, KernelPCA
kind, model = sys.argv[1:3]
x, new = np.load("x.npy"), np.load("new.npy")
if kind == "dask":
    data = da.from_array(x, chunks=(12, 100))
elif kind == "zarr":
    data = zarr.create_array("x.zarr", data=x, chunks=(12, 50))
elif kind == "hdf5":
    with h5py.File("x.h5", "w") as file:
        file["x"] = x
    data = h5py.File("x.h5")["x"]
else:
    data = x
estimator = PCA(3) if model == "pca" else KernelPCA(3, kernel="rbf", gamma=1e-3)
estimator.fit(data)
pickle.dump((estimator, estimator.transform(new)), open("fit.pickle", "wb"))
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", X)
    np.save("new.npy", NEW)
    return tmp_path


@pytest.mark.long
@pytest.mark.parametrize("model", ["pca", "kernel_pca"])
@pytest.mark.parametrize("kind", ["numpy", "dask", "zarr", "hdf5"])
def test_a_pickled_fit_answers_the_same_when_the_process_that_made_it_is_gone(here, kind, model):
    subprocess.run([sys.executable, "-c", FIT, kind, model], check=True)
    fitted, scores = pickle.loads((here / "fit.pickle").read_bytes())
    np.testing.assert_array_equal(fitted.transform(NEW), scores)
    assert np.asarray(fitted.mean_).shape == (300,)
    if model == "pca":
        restored = np.asarray(fitted.inverse_transform(scores))
        np.testing.assert_allclose(np.asarray(PCA(3).fit(X).inverse_transform(scores)), restored, rtol=1e-5, atol=1e-5)


def test_a_fit_too_large_to_be_carried_names_its_store_or_is_not_pickled(here):
    lazy = da.from_array(X, chunks=(12, 100))
    with pytest.raises(NotPortable, match="in a temporary directory"):
        pickle.dumps(CarryingLittle(3).fit(lazy))
    fitted = CarryingLittle(3, store="kept").fit(lazy)
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.transform(NEW), fitted.transform(NEW))
    (place,) = (here / "kept").iterdir()
    os.remove(place / "result.zarr" / "components" / "c" / "0" / "0")
    for one in (again, fitted):
        with pytest.raises(InputError, match="components/c/0/0 is gone"):
            one.transform(NEW)
    with pytest.raises(InputError, match="is gone"):
        np.asarray(again.components_)
    shutil.rmtree(place)
    with pytest.raises(InputError, match="does not exist"):
        pickle.loads(pickle.dumps(fitted)).transform(NEW)


@pytest.mark.long
@pytest.mark.parametrize("model", [PCA(3), KernelPCA(3, kernel="rbf", gamma=1e-3)])
def test_fits_of_a_cross_validation_in_other_processes_come_back_whole(model):
    lazy = da.from_array(random_array(0, (12, 300), "f8"), chunks=(12, 100))
    found = cross_validate(model, lazy, n_jobs=2, cv=2, return_estimator=True, scoring=_first_score)
    assert np.isfinite(found["test_score"]).all()
    for fitted, rows in zip(found["estimator"], (slice(6, 12), slice(0, 6)), strict=True):
        np.testing.assert_allclose(
            fitted.transform(NEW), clone(model).fit(lazy[rows].compute()).transform(NEW), atol=1e-9
        )


def _first_score(estimator, X, y=None):
    return float(np.asarray(estimator.transform(X))[0, 0])


def test_fits_with_one_store_have_places_of_their_own(here):
    first = PCA(2, store="kept").fit(da.from_array(X, chunks=(12, 100)))
    before = np.asarray(first.components_)
    PCA(2, store="kept").fit(da.from_array(NEW, chunks=(5, 100)))
    np.testing.assert_array_equal(np.asarray(first.components_), before)
    assert len(list((here / "kept").iterdir())) == 2


@pytest.mark.long
@pytest.mark.parametrize(
    "model",
    [
        PCA(3, whiten=True, scale="std"),
        KernelPCA(3, kernel="poly", fit_inverse_transform=True),
        KernelPCA(3, kernel="precomputed"),
    ],
)
@pytest.mark.parametrize("lazy", [False, True])
def test_a_saved_fit_is_moved_and_loaded_with_the_same_bits(here, model, lazy, capsys):
    new, x = NEW, X
    if model.get_params().get("kernel") == "precomputed":
        x, new = x @ x.T, NEW @ x.T
    fitted = clone(model).fit(da.from_array(x, chunks=(12, 100)) if lazy else x)
    scores = fitted.transform(new)
    assert fitted.save("saved") == here / "saved"
    with pytest.raises(OutputExistsError, match="exists already"):
        fitted.save("saved")
    os.makedirs("elsewhere")
    os.rename("saved", "elsewhere/moved")
    load = (
        "import numpy as np, sys; from dpca import PCA, KernelPCA; "
        f"np.save('scores.npy', {type(model).__name__}.load('elsewhere/moved').transform(np.load('given.npy')))"
    )
    np.save("given.npy", new)
    subprocess.run([sys.executable, "-c", load], check=True)
    np.testing.assert_array_equal(np.load("scores.npy"), scores)
    assert command("transform", "elsewhere/moved", "given.npy", "--out", "scores.zarr") == 0
    np.testing.assert_allclose(zarr.open_group("scores.zarr")["scores"][...], scores, rtol=1e-5, atol=1e-5)
    assert command("export", "elsewhere/moved", "--to", "csv", "--out", "table") == 0
    assert command("status", "elsewhere/moved") == 2
    assert "is a fit that was saved in Python: it has no run" in capsys.readouterr().err
    loaded = type(model).load("elsewhere/moved")
    assert loaded.get_params()["n_components"] == 3
    for name in ("explained_variance_ratio_", "certificate_", "n_samples_", "n_features_in_"):
        np.testing.assert_equal(getattr(loaded, name), getattr(fitted, name))
    if model.get_params().get("kernel") != "precomputed":
        np.testing.assert_array_equal(
            np.asarray(loaded.inverse_transform(scores)), np.asarray(fitted.inverse_transform(scores))
        )


def test_a_model_that_was_loaded_is_saved_with_its_training_data(here):
    fitted = KernelPCA(3, kernel="rbf", gamma=0.01).fit(X)
    fitted.save("saved")
    KernelPCA.load("saved").save("again")
    shutil.rmtree("saved")
    np.testing.assert_array_equal(KernelPCA.load("again").transform(NEW), fitted.transform(NEW))


def test_a_result_of_the_command_line_is_a_fitted_estimator(here):
    (here / "c.yaml").write_text(
        "input: {uri: x.npy}\nmodel: {n_components: 4, whiten: true}\noutput: {path: r, report: false}\n"
    )
    assert command("run", "c.yaml") == 0
    fitted = PCA(4, whiten=True).fit(X)
    loaded = PCA.load("r")
    np.testing.assert_allclose(loaded.transform(NEW), fitted.transform(NEW), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(loaded.noise_variance_, fitted.noise_variance_, rtol=1e-9)
    np.testing.assert_allclose(loaded.score_samples(NEW), fitted.score_samples(NEW), rtol=1e-5)
    with pytest.raises(ConfigError, match=r"a result of pca, not of kernel_pca\nLoad it with PCA\.load"):
        KernelPCA.load("r")
    pickled = pickle.dumps(CarryingNothing.load("r"))
    assert command("run", "c.yaml", "--overwrite", "--set", "model.n_components=2") == 0
    with pytest.raises(InputError, match="holds the result of another run by now"):
        pickle.loads(pickled).transform(NEW)


def test_a_kernel_of_a_sweep_is_loaded_with_its_training_data(here):
    (here / "c.yaml").write_text(
        "input: {uri: x.npy}\nmodel: {kind: kernel_pca, kernel: [rbf, linear], n_components: 3}\noutput: {path: r, report: false}\n"
    )
    assert command("run", "c.yaml") == 0
    with pytest.raises(ConfigError, match="has 2 kernels"):
        KernelPCA.load("r")
    fitted = KernelPCA(3, kernel="linear", center=True).fit(X)
    np.testing.assert_allclose(
        KernelPCA.load("r", kernel_case=1).transform(NEW), fitted.transform(NEW), rtol=1e-5, atol=1e-5
    )
    os.rename("x.npy", "y.npy")
    with pytest.raises(DataError, match="needs its training data again"):
        KernelPCA.load("r", kernel_case=1)
    moved = KernelPCA.load("r", kernel_case=0, training="y.npy")
    np.testing.assert_allclose(
        moved.transform(NEW), KernelPCA(3, kernel="rbf").fit(X).transform(NEW), rtol=1e-4, atol=1e-5
    )


def field(**coordinates):
    x = random_array(0, (12, 6, 5), "f8")
    return xr.DataArray(x, dims=("time", "lat", "lon"), coords=coordinates)


DAYS = np.arange("2001-01-01", "2001-01-13", dtype="datetime64[D]").astype("datetime64[ns]")
LAT, LON = np.linspace(60, 10, 6), np.arange(5.0)


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("model", [PCA(2, samples_axis="time"), KernelPCA(2, samples_axis="time", kernel="rbf")])
def test_other_coordinates_are_refused_in_python_as_on_the_command_line(here, model, lazy, refused):
    data = field(time=DAYS, lat=LAT, lon=LON)
    fitted = clone(model).fit(data.chunk(lat=2) if lazy else data)
    same = fitted.transform(data)
    np.testing.assert_allclose(fitted.transform(data.isel(time=slice(0, 3))), same[:3], atol=1e-9)
    # A dimension is found by its name, wherever it stands.
    np.testing.assert_allclose(fitted.transform(data.transpose("lat", "time", "lon")), same, atol=1e-9)
    reversed_latitude = data.isel(lat=slice(None, None, -1))
    with pytest.raises(InputError, match=r"feature 0 along 'lat' is 10\.0, but this estimator was fitted to 60\.0"):
        fitted.transform(reversed_latitude)
    with pytest.raises(InputError, match="axis 1 is 'level'"):
        fitted.transform(data.rename(lat="level"))
    fitted.save("saved")
    xr.Dataset({"x": reversed_latitude}).to_zarr("reversed.zarr", consolidated=False)
    message = refused("transform", "saved", "reversed.zarr", "--out", "scores.zarr")
    assert "feature 0 along 'lat' is 10.0" in message


def test_a_client_stays_with_clones_and_does_not_travel(cluster):
    x = random_array(0, (12, 40), "f8")
    with Client(cluster, set_as_default=False) as client:
        given = PCA(2, client=client)
        assert clone(given).client is client
        search = GridSearchCV(given, {"n_components": [1, 2]}, cv=2).fit(x)
        assert search.best_estimator_.client is client
        again = pickle.loads(pickle.dumps(given.fit(x)))
        assert again.client is None
        np.testing.assert_array_equal(again.transform(x), given.transform(x))
    with pytest.raises(ConfigError, match="client is .* which was closed"):
        given.transform(x)


def times_of(path):
    with xr.open_zarr(path) as opened:
        return opened.load()


def test_samples_keep_the_name_of_their_dimension(here):
    xr.Dataset({"x": field(time=DAYS, lat=LAT, lon=LON)}).to_zarr("x.zarr", consolidated=False)
    (here / "c.yaml").write_text(
        "input: {uri: x.zarr, array: x, samples_axis: time}\nmodel: {n_components: 2}\noutput: {path: r, report: false}\n"
    )
    assert command("run", "c.yaml") == 0
    found = times_of("r/result.zarr")
    assert found.scores.dims == ("time", "component")
    assert found.gram.dims == ("time", "time_b")
    index = xr.DataArray(np.arange(12.0), dims="time", coords={"time": DAYS})
    shifted = index.assign_coords(time=DAYS + np.timedelta64(1, "D"))
    assert xr.corr(found.scores, index, dim="time").sizes == {"component": 2}
    assert not np.allclose(xr.corr(found.scores, index, dim="time"), xr.corr(found.scores, shifted, dim="time"))
    assert command("reconstruct", "r", "--out", "rec.zarr", "--samples", "3:7") == 0
    restored = times_of("rec.zarr")
    assert restored.reconstruction.dims == ("time", "lat", "lon")
    np.testing.assert_array_equal(restored.time, DAYS[3:7])
    assert command("transform", "r", "rec.zarr", "--out", "again.zarr") == 0
    again = times_of("again.zarr")
    np.testing.assert_allclose(again.scores, found.scores[3:7], rtol=1e-6)
    np.testing.assert_array_equal(again.time, DAYS[3:7])
    assert command("export", "r", "--to", "netcdf", "--out", "r.nc") == 0
    with xr.open_dataset("r.nc") as exported:
        assert exported.scores.dims == ("time", "component")
        np.testing.assert_array_equal(exported.time, DAYS)


def test_results_of_the_first_version_still_open(here, refused):
    """They keep no inventory, and call the samples `sample`."""
    (here / "c.yaml").write_text("input: {uri: x.npy}\nmodel: {n_components: 2}\noutput: {path: r, report: false}\n")
    assert command("run", "c.yaml") == 0
    scores = open_result("r").arrays["scores"][...]
    manifest = json.loads((here / "r" / "manifest.json").read_text())
    del manifest["arrays"]
    (here / "r" / "manifest.json").write_text(json.dumps({**manifest, "format_version": 1}))
    np.testing.assert_allclose(PCA.load("r").transform(X), scores, rtol=1e-5, atol=1e-5)
    os.remove("r/result.zarr/components/c/0/0")
    assert "components/c/0/0 is gone" in refused("transform", "r", "x.npy", "--out", "s.zarr")


def test_blocks_on_a_cluster_do_not_travel_in_a_pickle(cluster, tmp_path):
    with Client(cluster) as client:
        lazy = da.from_array(X, chunks=(12, 100)).persist()
        fitted = KernelPCA(2, kernel="rbf", client=client).fit(lazy)
        with pytest.raises(NotPortable, match="training data are blocks on a cluster"):
            pickle.dumps(fitted)
        fitted.save(tmp_path / "saved")
        expected = fitted.transform(NEW)
    np.testing.assert_allclose(KernelPCA.load(tmp_path / "saved").transform(NEW), expected, rtol=1e-5, atol=1e-6)
