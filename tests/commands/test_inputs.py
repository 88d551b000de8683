"""Inputs side by side on the command line: run, plan, transform, reconstruct, resume, job arrays; and what is refused."""

import json
import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest
import zarr

from dpca.commands import batch
from tests.commands.calls import dpca, run
from tests.made import made
from tests.resume.disturbed import disturbed, in_small_slabs, killed
from tests.stores import bits, random_array

N, WIND, SITES = 12, (30, 400), 6000
CONFIG = """
input:
  - {name: wind, uri: wind.zarr, samples_axis: time}
  - {name: sites, uri: sites.h5, array: x, samples_axis: 0, weights: {uri: w.npy}}
preprocess: {scale: std, block_scaling: first_eigenvalue}
model: {n_components: 3}
output: {path: r}
"""


def write():
    wind, sites = random_array(0, (N, *WIND), "f4"), random_array(1, (N, SITES), "f8")
    zarr.create_array("wind.zarr", data=wind, chunks=(N, 3, 400), dimension_names=("time", "lat", "lon"))
    with h5py.File("sites.h5", "w") as file:
        file.create_dataset("x", data=sites, chunks=(N, 600))
    weights = np.random.default_rng(2).uniform(0.5, 2, SITES)
    np.save("w.npy", weights)
    Path("c.yaml").write_text(CONFIG)


@pytest.fixture
def small(monkeypatch):
    """Slabs so small that there are ten spans of each."""
    in_small_slabs(monkeypatch)


@pytest.fixture
def arrays():
    made(write)
    wind, sites = random_array(0, (N, *WIND), "f4"), random_array(1, (N, SITES), "f8")
    return wind.astype("f8").reshape(N, -1), sites, np.load("w.npy")


def scaled(arrays):
    """X_c as the config asks for it, of each input."""
    wind, sites, weights = arrays
    parts = [(x - x.mean(0)) / x.std(0, ddof=1) for x in (wind, sites)]
    parts[1] = parts[1] * weights
    return [part * np.sqrt(N - 1) / np.linalg.svd(part, compute_uv=False)[0] for part in parts]


def test_a_run(arrays, small, capsys):
    assert dpca("run", "c.yaml") == 0
    assert "cumulative    wind   sites" in capsys.readouterr().out
    found, parts = zarr.open_group("r/result.zarr"), scaled(arrays)
    u, s, vt = np.linalg.svd(np.hstack(parts), full_matrices=False)
    np.testing.assert_allclose(found["singular_values"][:], s[:3], rtol=1e-6)
    components = np.hstack([found["components_wind"][:].reshape(3, -1), found["components_sites"][:]])
    np.testing.assert_allclose(np.abs(np.sum(components * vt[:3], axis=1)), 1, rtol=1e-6)
    shares = [((part.T @ u[:, :3]) ** 2).sum(0) / s[:3] ** 2 for part in parts]
    np.testing.assert_allclose(found["variance_share"][:], shares, rtol=1e-6)
    assert found["components_wind"].metadata.dimension_names == ("component", "wind_lat", "wind_lon")
    assert found["components_sites"].metadata.dimension_names == ("component", "sites_feature")
    assert found["scores"].metadata.dimension_names == ("time", "component")
    assert list(found["group"][:]) == ["wind", "sites"]
    manifest = json.loads(Path("r/manifest.json").read_text())
    assert [one["group"] for one in manifest["input"]] == ["wind", "sites"]
    assert manifest["counts"]["passes"] == 2


def test_the_plan_counts_all_inputs(arrays, small, capsys):
    assert dpca("plan", "c.yaml", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert [one["spans"] for one in document["inputs"]] == [10, 10]
    assert (document["spans"], document["n_features"]) == (20, 12_000 + SITES)
    assert document["input"]["bytes"] == 4 * N * 12_000 + 8 * N * SITES
    assert document["passes"][0]["bytes"] == document["input"]["bytes"]
    planned = {array["name"]: array["shape"] for array in document["output"]["arrays"]}
    made(run, write)
    found = zarr.open_group("r/result.zarr")
    assert {name: list(found[name].shape) for name in planned} == planned
    assert dpca("plan", "c.yaml", "--set", "output.path=p") == 0
    assert "sites, sites.h5:x: 12 x 6,000 float64 in chunks of 12 x 600" in capsys.readouterr().out


def test_new_samples_and_samples_from_scores(arrays, capsys):
    made(run, write)
    Path("new.yaml").write_text(
        "- {name: sites, uri: sites.h5, array: x, samples: [3, 1]}\n- {name: wind, uri: wind.zarr, samples: [3, 1]}\n"
    )
    assert dpca("transform", "r", "new.yaml", "--out", "t.zarr") == 0
    found = zarr.open_group("r/result.zarr")
    scores = zarr.open_group("t.zarr")
    np.testing.assert_allclose(scores["scores"][:], found["scores"][:][[3, 1]], rtol=1e-5, atol=1e-5)
    assert sorted(scores.array_keys()) == ["component", "scores", "time"]
    for kind in ("netcdf", "hdf5", "npz", "csv", "anndata"):
        assert dpca("export", "t.zarr", "--to", kind) == 0
    assert dpca("reconstruct", "r", "--out", "back.zarr") == 0
    back, (wind, sites, _) = zarr.open_group("back.zarr"), arrays
    parts, factors = scaled(arrays), found["block_factor"][:]
    z, scales = found["scores"][:], (found["scale_wind"][:].reshape(-1), found["scale_sites"][:] / np.load("w.npy"))
    for name, x, scale, factor in zip(("wind", "sites"), (wind, sites), scales, factors, strict=True):
        w = found[f"components_{name}"][:].reshape(3, -1)
        np.testing.assert_allclose(
            back[f"reconstruction_{name}"][:].reshape(N, -1), x.mean(0) + z @ w * scale / factor, rtol=1e-4, atol=1e-4
        )
    assert len(parts) == 2


def test_exports(arrays, capsys):
    xarray = pytest.importorskip("xarray")
    made(run, write)
    for kind in ("netcdf", "hdf5", "npz", "csv"):
        assert dpca("export", "r", "--to", kind) == 0
    found = zarr.open_group("r/result.zarr")
    with xarray.open_dataset("r.nc", engine="h5netcdf") as netcdf, h5py.File("r.h5") as hdf5, np.load("r.npz") as npz:
        assert netcdf["components_wind"].dims == ("component", "wind_lat", "wind_lon")
        for name in ("components_wind", "components_sites", "gram_by_group", "variance_share"):
            for other in (netcdf, hdf5, npz):
                np.testing.assert_array_equal(np.asarray(other[name]), found[name][:])
    assert dpca("export", "r", "--to", "anndata") == 2
    assert "is of the inputs wind, sites, side by side" in capsys.readouterr().err


def test_all_components_give_the_samples_back(arrays):
    assert dpca("run", "c.yaml", "--set", f"model.n_components={N - 1}", "--set", "model.precision=double") == 0
    assert dpca("reconstruct", "r", "--out", "back.zarr") == 0
    back, (wind, sites, _) = zarr.open_group("back.zarr"), arrays
    np.testing.assert_allclose(back["reconstruction_wind"][:].reshape(N, -1), wind, atol=1e-10)
    np.testing.assert_allclose(back["reconstruction_sites"][:], sites, atol=1e-10)


@pytest.mark.long
@pytest.mark.parametrize("slab", [4, 14, 20, 30])
def test_a_run_that_was_killed_goes_on(arrays, small, slab):
    assert dpca("run", "c.yaml") == 0
    whole = bits("r")
    shutil.rmtree("r")
    killed("c.yaml", slab)
    assert dpca("run", "c.yaml", "--resume") == 0
    assert bits("r") == whole


@pytest.mark.long
@pytest.mark.parametrize("how", [(), ("--set", "model.n_components=11"), ("--set", "output.components=false")], ids=str)
def test_a_job_array_has_the_same_bits(arrays, small, how):
    assert dpca("run", "c.yaml", *how) == 0
    whole = bits("r")
    shutil.rmtree("r")
    assert dpca("batch", "init", "c.yaml", "--partitions", 3, *how) == 0
    for _ in range(8):
        for index in (2, 0, 1):
            dpca("batch", "partition", "r", "--index", index)
        assert dpca("batch", "finalize", "r") == 0
        if Path("r/manifest.json").exists():
            break
    assert batch.status(Path("r"))["state"] == "done"
    assert bits("r") == whole


@pytest.mark.long
def test_a_copy_of_an_input_in_scratch():
    """Whole rows, which do not fit the memory in columns; the other input is read in place."""
    x, y = random_array(0, (40, 200_000), "f8"), random_array(1, (40, 50), "f8")
    zarr.create_array("rows.zarr", data=x, chunks=(1, 200_000))
    np.save("y.npy", y)
    Path("rows.yaml").write_text(
        "input: [{name: rows, uri: rows.zarr}, {name: few, uri: y.npy}]\nmodel: {n_components: 3}\n"
        "compute: {memory: 262 MiB, workers: 1}\noutput: {path: r, components: false}\n"
    )
    done = disturbed("", "run", "rows.yaml", start="import sys\n")
    assert done.returncode == 0, done.stderr
    manifest = json.loads(Path("r/manifest.json").read_text())
    assert manifest["reading"] == ["copy", "columns"]
    s = np.linalg.svd(np.hstack([x - x.mean(0), y - y.mean(0)]), compute_uv=False)
    np.testing.assert_allclose(zarr.open_group("r/result.zarr")["singular_values"][:], s[:3], rtol=1e-10)


def test_kernels_of_several_inputs(arrays, capsys):
    how = ("--set", "model.kind=kernel_pca", "--set", "model.kernel=rbf", "--set", "preprocess.block_scaling=none")
    assert dpca("run", "c.yaml", *how) == 0
    x = np.hstack(self_scaled(arrays))
    from sklearn.decomposition import KernelPCA

    expected = KernelPCA(3, kernel="rbf").fit(x)
    eigenvalues = zarr.open_group("r/result.zarr")["eigenvalues"][:]
    np.testing.assert_allclose(eigenvalues[:3], expected.eigenvalues_, rtol=1e-4)
    assert dpca("transform", "r", "wind.zarr", "--out", "t.zarr") == 2
    assert "is of the inputs wind, sites, side by side" in capsys.readouterr().err


def self_scaled(arrays):
    wind, sites, weights = arrays
    parts = [(x - x.mean(0)) / x.std(0, ddof=1) for x in (wind, sites)]
    return parts[0], parts[1] * weights


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (("- {name: wind,", "- {"), "c.yaml:3:"),
        (("name: sites", "name: wind"), "input.1 is named wind, as input.0 is"),
        (("name: sites", "name: 1st"), "c.yaml:4:12: input.1.name is '1st'"),
        (("samples_axis: 0", "samples_axis: place"), "input sites: sites.h5:x: input.samples_axis is 'place'"),
        (("uri: sites.h5", "uri: gone.h5"), "c.yaml:4:"),
        (("uri: w.npy", "uri: none.npy"), "input sites: none.npy"),
        (("first_eigenvalue", "second"), "preprocess.block_scaling is 'second'"),
        (("n_components: 3", "n_components: 3, svd_solver: covariance_eigh"), "each have a matrix over their samples"),
        (("samples_axis: time}", "samples_axis: time, samples: {stop: 6}}"), "has 12 samples along axis 0, but wind"),
        (("samples_axis: time}", "samples_axis: time, shape: 3}"), "unknown key input.0.shape"),
        (
            ("n_components: 3", "kind: kernel_pca, kernel: precomputed"),
            "input is a list, but a kernel matrix is one input",
        ),
    ],
    ids=str,
)
def test_what_is_wrong_is_named(arrays, capsys, change, told):
    text = Path("c.yaml").read_text()
    assert change[0] in text
    Path("c.yaml").write_text(text.replace(*change))
    assert dpca("run", "c.yaml") == 2
    assert told in capsys.readouterr().err
    assert not Path("r").exists()


def test_names_that_make_one_name_of_two_axes_are_refused(capsys):
    for name, dims in (("a", ("time", "lat_x")), ("a_lat", ("time", "x"))):
        zarr.create_array(f"{name}.zarr", data=random_array(0, (6, 9), "f8"), dimension_names=dims)
    Path("c.yaml").write_text("input: [{name: a, uri: a.zarr}, {name: a_lat, uri: a_lat.zarr}]\noutput: {path: r}\n")
    assert dpca("run", "c.yaml") == 2
    assert "'a_lat_x' would be the name of two things" in capsys.readouterr().err


def test_what_a_resumed_run_has_otherwise_is_said_of_its_input(arrays, capsys):
    made(run, write)
    assert dpca("run", "c.yaml", "--resume", "--set", "input.1.missing_values=[-9]") == 2
    assert "input.1.missing_values: [], now [-9.0]" in capsys.readouterr().err
    assert dpca("validate", "c.yaml", "--set", "input.1.name=a b") == 2
    assert (
        "input.1.name is 'a b', but a letter, and then letters, digits, - and _ is allowed" in capsys.readouterr().err
    )


def test_an_input_without_variance_is_noted(arrays, capsys):
    np.save("same.npy", np.full((N, 7), 3.5))
    again = Path("c.yaml").read_text().replace("preprocess:", "  - {name: same, uri: same.npy}\npreprocess:")
    Path("c.yaml").write_text(again)
    assert dpca("run", "c.yaml") == 0
    assert "note: input same has no variance" in capsys.readouterr().err
    np.testing.assert_array_equal(zarr.open_group("r/result.zarr")["variance_share"][2], 0)


def test_keys_of_lists_are_for_lists(capsys):
    np.save("x.npy", random_array(0, (5, 9), "f8"))
    Path("c.yaml").write_text("input: {uri: x.npy, name: x}\noutput: {path: r}\n")
    assert dpca("run", "c.yaml") == 2
    assert "input.name is for an input of a list" in capsys.readouterr().err
    Path("c.yaml").write_text("input: {uri: x.npy}\npreprocess: {block_scaling: total_variance}\noutput: {path: r}\n")
    assert dpca("run", "c.yaml") == 2
    assert "c.yaml:2:29: preprocess.block_scaling is total_variance" in capsys.readouterr().err
    Path("c.yaml").write_text("input: [{uri: x.npy, name: x}]\noutput: {path: r}\n")
    assert dpca("run", "c.yaml") == 2
    assert "input" in capsys.readouterr().err


def test_samples_in_another_order_are_named(capsys):
    rng, names = np.random.default_rng(0), [f"s{number}" for number in range(8)]
    for file, order in (("a.h5", range(8)), ("b.h5", [0, 1, 3, 2, 4, 5, 6, 7])):
        with h5py.File(file, "w") as opened:
            opened["x"] = rng.standard_normal((8, 20))
            Path(f"{file}.txt").write_text("\n".join(names[number] for number in order))
    Path("c.yaml").write_text(
        "input:\n"
        + "".join(f"  - {{name: {n}, uri: {n}.h5, array: x, sample_names: {{uri: {n}.h5.txt}}}}\n" for n in "ab")
        + "output: {path: r}\n"
    )
    assert dpca("run", "c.yaml") == 2
    assert (
        "input b: sample 2 of b.h5:x is s3, but s2 in a, a.h5:x: the samples are in another order"
        in capsys.readouterr().err
    )
    again = "input.1.samples=[s0, s1, s2, s3, s4, s5, s6, s7]"
    assert dpca("run", "c.yaml", "--set", again) == 0


def test_times_in_other_units_are_the_same_samples(capsys):
    for name, units, times in (
        ("a", "days since 2000-01-01", [0, 1, 2, 3]),
        ("b", "hours since 2000-01-02", [-24, 0, 24, 48]),
    ):
        group = zarr.open_group(f"{name}.zarr", mode="w")
        group.create_array(
            "x", data=random_array(len(name), (4, 10), "f8"), chunks=(4, 10), dimension_names=("time", "y")
        )
        group.create_array(
            "time", data=np.array(times, "f8"), chunks=(4,), dimension_names=("time",), attributes={"units": units}
        )
    Path("c.yaml").write_text(
        "input:\n" + "".join(f"  - {{name: {n}, uri: {n}.zarr, array: x}}\n" for n in "ab") + "output: {path: r}\n"
    )
    assert dpca("run", "c.yaml") == 0
    zarr.open_group("b.zarr")["time"].attrs["units"] = "hours since 2000-01-03"
    assert dpca("run", "c.yaml", "--overwrite") == 2
    assert "input b: sample 0 of b.zarr:x is 2000-01-02" in capsys.readouterr().err


def test_new_samples_without_any_value_of_any_input_are_nan(arrays, small, capsys):
    made(run, write, "preprocess.missing=mean")
    wind, sites = random_array(3, (4, *WIND), "f4"), random_array(4, (4, SITES), "f8")
    wind[[1, 2]], sites[[1, 3]] = np.nan, np.nan
    np.save("wind.npy", wind)
    np.save("sites.npy", sites)
    Path("new.yaml").write_text("- {name: sites, uri: sites.npy}\n- {name: wind, uri: wind.npy}\n")
    assert dpca("transform", "r", "new.yaml", "--out", "t.zarr") == 0
    assert "note: sample 1: no value of a feature that the fit kept, and NaN in the result" in capsys.readouterr().err
    scores = zarr.open_group("t.zarr")["scores"][:]
    assert np.flatnonzero(np.isnan(scores).all(axis=1)).tolist() == [1]
    assert np.isfinite(np.delete(scores, 1, axis=0)).all()
