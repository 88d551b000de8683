"""The faces and the Golub set through the command line, from YAML, against published references."""

import json
from functools import cache
from pathlib import Path

import h5py
import numpy as np
import pytest
import xarray as xr
import zarr

from dpca.cli.app import main


def write(kind, name, values, chunks):
    if kind == "zarr":
        zarr.create_array(f"{name}.zarr", data=values, chunks=chunks)
        return f"{name}.zarr"
    if kind == "hdf5":
        with h5py.File(f"{name}.h5", "w") as file:
            file.create_dataset("X", data=values, chunks=chunks, compression="gzip")
        return f"{name}.h5"
    np.save(f"{name}.npy", values)
    return f"{name}.npy"


def run(uri, n_components=20, **keys):
    text = f"input:\n  uri: {uri}\nmodel:\n  n_components: {n_components}\noutput:\n  path: result\n"
    Path("config.yaml").write_text(text)
    overrides = [part for key, value in keys.items() for part in ("--set", f"{key.replace('__', '.')}={value}")]
    main(["run", "config.yaml", *overrides])
    return xr.open_zarr("result/result.zarr").load()


@cache
def expected_of(path):
    """The dense SVD of the samples of a file, centred: scores of length 1, singular values and components."""
    values = np.load(path)
    return np.linalg.svd(values - values.mean(0), full_matrices=False)


@pytest.mark.parametrize(("kind", "orientation"), [("zarr", "samples last"), ("hdf5", "samples first")])
def test_orl_faces(shared_data, kind, orientation):
    path = shared_data("orl-faces") / "faces_400x10304_u8.npy"
    faces = np.load(path).reshape(400, 112, 92)
    if orientation == "samples last":
        uri = write(kind, "faces", np.ascontiguousarray(np.moveaxis(faces, 0, -1)), (14, 92, 100))
        result = run(uri, input__samples_axis=2)
    else:
        result = run(write(kind, "faces", faces, (100, 14, 92)))
    np.testing.assert_allclose(result.explained_variance_ratio[:3], [0.1760955, 0.12906636, 0.06841042], rtol=1e-6)
    np.testing.assert_allclose(result.explained_variance[:3], [2823910.06, 2069739.46, 1097046.14], rtol=1e-8)
    assert result.components.shape == (20, 112, 92)
    assert result.components.dtype == np.float32
    _, sigma, vt = expected_of(path)
    np.testing.assert_allclose(result.singular_values, sigma[:20], rtol=1e-6)
    found = result.components.values.reshape(20, -1)
    np.testing.assert_allclose(np.abs((found * vt[:20]).sum(1)), 1, rtol=1e-6)
    assert json.loads(Path("result/certificate.json").read_text())["reliable_components"] == 20


@pytest.mark.parametrize("kind", ["zarr", "hdf5", "npy"])
def test_golub_expression(shared_data, kind):
    path = shared_data("golub-expression") / "expression_72x7129_f64.npy"
    result = run(write(kind, "golub", np.load(path), (72, 1000)))
    np.testing.assert_allclose(result.explained_variance_ratio[:3], [0.17427768, 0.10338643, 0.0769023], rtol=1e-7)
    assert result.components.dtype == np.float64
    u, sigma, _ = expected_of(path)
    np.testing.assert_allclose(result.singular_values, sigma[:20], rtol=1e-12)
    scores = u[:, :20] * sigma[:20]
    signs = np.sign((scores * result.scores.values).sum(0))
    np.testing.assert_allclose(result.scores, scores * signs, atol=1e-8 * sigma[0])


def test_golub_standardized(shared_data):
    values = np.load(shared_data("golub-expression") / "expression_72x7129_f64.npy")
    result = run(write("zarr", "golub", values, (72, 1000)), preprocess__scale="std")
    standardized = (values - values.mean(0)) / values.std(0, ddof=1)
    sigma = np.linalg.svd(standardized, compute_uv=False)
    np.testing.assert_allclose(result.singular_values, sigma[:20], rtol=1e-12)


def test_sea_surface_temperature_with_land_left_out(shared_data):
    """eofs' own solution with equal weights; land is NaN at all times, in the data and in the components."""
    folder = shared_data("climate-sst")
    result = run(write("npy", "sst", np.load(folder / "sst.npy"), None), 3, preprocess__missing="mean")
    np.testing.assert_allclose(result.explained_variance, np.load(folder / "eigenvalues.equal.npy")[:3], rtol=1e-7)
    eofs = np.load(folder / "eofs.equal.npy")[:3]
    found = result.components.values
    np.testing.assert_array_equal(np.isnan(found), np.isnan(eofs))
    overlap = np.nansum(found * eofs, axis=(1, 2)) / np.sqrt(np.nansum(eofs**2, axis=(1, 2)))
    np.testing.assert_allclose(np.abs(overlap), 1, rtol=1e-7)


@pytest.mark.parametrize("kind", ["zarr", "hdf5", "npy"])
def test_a_config_that_init_prints_runs_on_real_data(shared_data, kind, capsys):
    """Land in the temperatures is missing, which init sees and sets; the answer is the published one."""
    folder = shared_data("climate-sst")
    uri = write(kind, "ocean", np.load(folder / "sst.npy"), (15, 4, 18) if kind != "npy" else None)
    main(["init", uri])
    Path("started.yaml").write_text(capsys.readouterr().out)
    main(["run", "started.yaml"])
    result = xr.open_zarr("results/ocean/result.zarr")
    eigenvalues = np.load(folder / "eigenvalues.equal.npy")
    np.testing.assert_allclose(result.explained_variance[: len(eigenvalues)], eigenvalues, rtol=1e-6, atol=1e-10)


def test_genotypes_that_mark_missing_by_minus_1_are_warned_of(shared_data, capsys):
    main(["inspect", str(shared_data("hapmap-genotypes") / "genotype_279x9088_int8.npy")])
    assert "the minimum is -1 as stored. If that marks missing values" in capsys.readouterr().out


@pytest.mark.parametrize("weights", ["equal", "latitude", "area"])
def test_sea_surface_temperature_with_land_and_weights(shared_data, weights):
    """Against the solutions of the eofs package: eigenvalues, EOFs and PCs up to sign, and the reconstruction."""
    place = shared_data("climate-sst")
    given = {name: np.load(place / f"{name}.npy") for name in ("sst", "latitude", "longitude", "time")}
    expected = {
        name: np.load(place / f"{name}.{weights}.npy") for name in ("eigenvalues", "eofs", "pcs", "rcon", "variance")
    }
    xr.DataArray(
        given["sst"],
        dims=("time", "latitude", "longitude"),
        coords={
            "time": given["time"],
            "latitude": ("latitude", given["latitude"], {"units": "degrees_north"}),
            "longitude": given["longitude"],
        },
        name="sst",
    ).to_netcdf("sst.nc", engine="h5netcdf")
    keys = {"input__array": "sst", "input__samples_axis": "time", "preprocess__missing": "mean"}
    if weights == "latitude":
        keys["preprocess__weights"] = "sqrt_cos_lat"
    elif weights == "area":
        keys["preprocess__weights"] = f"{{uri: {place / 'weights.area.npy'}}}"
    k = len(expected["pcs"].T)
    result = run("sst.nc", k, **keys)
    np.testing.assert_allclose(result.explained_variance, expected["eigenvalues"][:k], rtol=1e-6)
    np.testing.assert_allclose(result.explained_variance_ratio, expected["variance"][:k] / 100, rtol=1e-6)
    signs = np.sign((result.scores.values * expected["pcs"]).sum(0))
    np.testing.assert_allclose(result.scores * signs, expected["pcs"], atol=1e-5 * np.abs(expected["pcs"]).max())
    eofs = expected["eofs"].reshape(-1, 11, 18)[:k]
    np.testing.assert_allclose(result.components * signs[:, None, None], eofs, atol=1e-5)
    assert (np.isnan(result.components) == np.isnan(given["sst"][0])).all()
    # Theirs is of the first, second and fifth EOF, as anomalies.
    some = np.tensordot(result.scores[:, [0, 1, 4]].values, result.components[[0, 1, 4]].values, axes=1)
    np.testing.assert_allclose(some / result.weights.values, expected["rcon"], atol=1e-10)
    main(["reconstruct", "result", "--out", "back.zarr"])
    back = xr.open_zarr("back.zarr").load().reconstruction
    np.testing.assert_allclose(back, given["sst"], atol=1e-10)
