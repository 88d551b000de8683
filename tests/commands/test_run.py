"""What dpca run leaves behind, from a process, its exit code and its two outputs."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
import zarr
from click.shell_completion import ShellComplete

from dpca import PCA, __version__
from dpca.cli.app import commands
from tests.commands.calls import X, dpca, given, run
from tests.made import made
from tests.reference import assert_right, dense_pca


def test_as_a_process(config, capsys):
    done = subprocess.run([sys.executable, "-m", "dpca", "run", config], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "component  singular value" in done.stdout
    assert "4 of 4 components reliable" in done.stdout
    assert "12 samples, 600 features, 1 read of the data, then kept in memory," in done.stdout
    assert "result: out/r" in done.stdout
    assert "dpca: gram: 100 %" in done.stderr
    assert "\r" not in done.stdout + done.stderr
    assert dpca("run", config) == 2
    assert capsys.readouterr().err.splitlines() == [
        "dpca: error: c.yaml:6:9: out/r: holds a result already",
        "  Choose another output.path, or replace it with --overwrite.",
    ]
    assert dpca("run", config, "--overwrite") == 0


@pytest.mark.usefixtures("sbatch")
@pytest.mark.parametrize("command", ["run", "batch init", "submit", "submit --as job"])
def test_a_place_that_is_taken_is_refused_before_anything_is_opened_or_a_job_begins(command, capsys):
    """Data may take long to open, and workers hours to come."""
    made(run, given)
    shutil.rmtree("x.zarr")
    assert dpca(*command.split(), "c.yaml") == 2
    assert "out/r: holds a result already" in capsys.readouterr().err
    assert not Path("out/r.slurm").exists()


def test_the_result_directory(config, recwarn):
    assert dpca("run", config) == 0
    assert sorted(os.listdir("out/r")) == ["certificate.json", "manifest.json", "result.zarr", "status.json"]
    with xr.open_zarr("out/r/result.zarr") as result:
        assert not recwarn.list
        assert result.attrs["format_version"] == 2
        assert "largest magnitude" in result.attrs["sign_rule"]
        dims = {name: array.dims for name, array in result.data_vars.items()}
        assert dims == {
            "scores": ("time", "component"),
            "alpha": ("time", "component"),
            "components": ("component", "lat", "lon"),
            "mean": ("lat", "lon"),
            "scale": ("lat", "lon"),
            "weights": ("lat", "lon"),
            "singular_values": ("component",),
            "explained_variance": ("component",),
            "explained_variance_ratio": ("component",),
            "projection_error": ("component",),
            "eigenvalues": ("eigenvalue",),
            "gram": ("time", "time_b"),
            "gram_mean_product": ("time",),
            "gram_mean_norm2": (),
            "gram_sketch": ("time", "random_column"),
            "gram_norms2": ("time",),
        }
        assert {name: str(a.dtype) for name, a in result.data_vars.items() if a.dtype != "f8"} == {
            "components": "float32"
        }
        flat = X.reshape(12, 600)
        dense = dense_pca(flat)
        assert_right(
            {
                "singular_values": result.singular_values.values,
                "scores": result.scores.values,
                "components": result.components.values.reshape(4, 600),
            },
            dense,
            np.float32,
        )
        # The raw Gram from the centred one: X X' = K + r 1' + 1 r' + c 11'.
        r, c = result.gram_mean_product.values, float(result.gram_mean_norm2)
        raw = result.gram.values + r[:, None] + r[None, :] + c
        x = flat.astype(float)
        np.testing.assert_allclose(raw, x @ x.T, rtol=1e-5, atol=1e-5 * np.abs(x @ x.T).max())
        assert (result.scale == 1).all()
        assert (result.weights == 1).all()
    manifest = json.loads(Path("out/r/manifest.json").read_text())
    assert manifest["config"]["model"]["n_components"] == 4
    assert manifest["input"]["shape"] == [12, 20, 30]
    assert manifest["plan"]["n_spans"] == 1
    assert manifest["counts"]["passes"] == 2
    assert manifest["numerics"]["working_dtype"] == "float32"
    assert manifest["environment"]["blas"]
    assert manifest["environment"]["libraries"]["dpca"] == __version__
    assert json.loads(Path("out/r/status.json").read_text())["state"] == "done"


def test_a_manifest_repeats_its_run():
    import yaml

    made(run, given)
    repeated = json.loads(Path("out/r/manifest.json").read_text())["config"]
    repeated["output"]["path"] = "again"
    Path("again.yaml").write_text(yaml.safe_dump(repeated))
    assert dpca("run", "again.yaml") == 0
    for name in ("gram", "scores", "components"):
        first, second = (zarr.open_array(f"{path}/result.zarr/{name}", mode="r")[...] for path in ("out/r", "again"))
        np.testing.assert_array_equal(first, second)


def test_every_key_of_the_config_does_its_work(config):
    keys = [
        "input.samples_axis=lat",
        "preprocess.scale=std",
        "model.precision=double",
        "model.ddof=0",
        "model.whiten=true",
        "compute.workers=1",
        "output.gram=false",
    ]
    assert dpca("run", config, *(part for key in keys for part in ("--set", key))) == 0
    result = zarr.open_group("out/r/result.zarr", mode="r")
    dense = dense_pca(np.moveaxis(X, 1, 0).reshape(20, 360), scale="std", ddof=0)
    assert "gram" not in result
    assert result["components"].shape == (4, 12, 30)
    assert result["components"].dtype == np.float64
    assert result["components"].metadata.dimension_names == ("component", "time", "lon")
    np.testing.assert_allclose(result["explained_variance"][:], dense.singular_values[:4] ** 2 / 20)
    np.testing.assert_allclose((result["scores"][:] ** 2).sum(0), 20)
    assert json.loads(Path("out/r/manifest.json").read_text())["workers"] == 1


def test_without_components_one_read_is_enough(config):
    assert dpca("run", config, "--set", "output.components=false") == 0
    result = zarr.open_group("out/r/result.zarr", mode="r")
    assert "components" not in result
    assert result["scores"].shape == (12, 4)
    assert json.loads(Path("out/r/manifest.json").read_text())["counts"]["passes"] == 1
    assert json.loads(Path("out/r/certificate.json").read_text())["orthogonality"] is None


def test_the_default_number_of_components_is_20_or_what_there_is(config):
    text = Path(config).read_text().replace("model:\n  n_components: 4\n", "")
    Path("d.yaml").write_text(text)
    assert dpca("run", "d.yaml") == 0
    assert zarr.open_group("out/r/result.zarr", mode="r")["scores"].shape == (12, 12)


def test_coordinates_of_the_source_come_along(tmp_path):
    data = xr.Dataset(
        {"sst": (("time", "lat", "lon"), X)},
        coords={
            "time": np.arange("2000-01-01", "2000-01-13", dtype="M8[D]").astype("M8[ns]"),
            "lat": np.linspace(-45, 45, 20),
            "lon": np.arange(30.0),
        },
    )
    data.to_zarr("ocean.zarr", zarr_format=3, consolidated=False)
    Path("c.yaml").write_text("input: {uri: ocean.zarr, samples_axis: time}\noutput: {path: r}\n")
    assert dpca("run", "c.yaml") == 0
    with xr.open_zarr("r/result.zarr") as result:
        assert result.components.dims == ("component", "lat", "lon")
        np.testing.assert_array_equal(result.lat, data.lat)
        np.testing.assert_array_equal(result.time, data.time)
        assert result.scores.sel(time="2000-01-05").shape == (12,)


def test_secrets_of_a_url_stay_out_of_the_result(config, capsys):
    uri, secret = "memory://bucket/x.zarr", "hunter2"
    zarr.create_array(uri, data=X, chunks=(5, 20, 7))
    options = f"input.storage_options={{key: {secret}}}"
    assert dpca("run", config, "--set", f"input.uri={uri}", "--set", options) == 0
    shown = capsys.readouterr()
    written = [path.read_text() for path in Path("out").rglob("*.json")]
    assert written
    assert not any(secret in text for text in (*written, shown.out, shown.err))
    assert json.loads(Path("out/r/manifest.json").read_text())["config"]["input"]["storage_options"] == {
        "key": "(hidden)"
    }


def test_null_is_all_components_as_in_python_and_auto_is_twenty(capsys):
    """In a result of an earlier version, null is what auto is now: extend takes it so."""
    x = np.random.default_rng(0).standard_normal((30, 50))
    np.save("x.npy", x)
    np.save("y.npy", x[:2] + 1)
    for asked, k in (("null", 30), ("auto", 20), (None, 20)):
        lines = "" if asked is None else f"model: {{n_components: {asked}}}\n"
        Path("c.yaml").write_text(f"input: {{uri: x.npy}}\n{lines}output: {{path: r, report: false}}\n")
        assert dpca("run", "c.yaml", "--overwrite") == 0
        assert zarr.open_array("r/result.zarr/components").shape == (k, 50)
    assert PCA().fit(x).components_.shape == (30, 50)
    manifest = json.loads(Path("r/manifest.json").read_text())
    manifest["asked"]["model"]["n_components"] = None
    del manifest["made"]  # which such a version did not write
    Path("r/manifest.json").write_text(json.dumps(manifest))
    assert dpca("extend", "r", "y.npy", "--output", "more") == 0
    assert zarr.open_array("more/result.zarr/components").shape == (20, 50)


def test_what_is_no_config_is_told_from_one(config, capsys):
    """Data, and a result; and a run that has ended says that nothing was left."""
    assert dpca("run", "x.zarr") == 2
    assert "Make one: dpca init x.zarr > x.yaml. Then give that: x.yaml." in capsys.readouterr().err
    assert dpca("run", config) == 0
    capsys.readouterr()
    assert dpca("run", config, "--resume") == 0
    assert "out/r: is finished already, and nothing was left to compute" in capsys.readouterr().err
    assert dpca("plan", "out/r") == 2
    assert "out/r: is a result, but a config is needed" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "typed", "completed"),
    [
        ("run", "model.n", ["model.n_components="]),
        ("run", "comp", ["compute."]),
        ("derive", "output.p", ["output.path="]),
    ],
)
def test_keys_of_set_are_completed(command, typed, completed):
    found = ShellComplete(commands, {}, "dpca", "_DPCA_COMPLETE").get_completions([command, "c.yaml", "--set"], typed)
    assert [one.value for one in found] == completed
