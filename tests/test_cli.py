"""The commands as a user calls them: a process, its exit code, its two outputs."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
import xarray as xr
import zarr
from distributed import LocalCluster

from dpca.cli import main
from tests.reference import assert_right, dense_pca
from tests.stores import random_array

X = random_array(0, (12, 20, 30), "f4")


@pytest.fixture
def config(tmp_path):
    zarr.create_array("x.zarr", data=X, chunks=(5, 20, 7), dimension_names=("time", "lat", "lon"))
    Path("c.yaml").write_text("input:\n  uri: x.zarr\nmodel:\n  n_components: 4\noutput:\n  path: out/r\n")
    return "c.yaml"


def dpca(*arguments):
    """In this process, which is faster; `test_as_a_process` shows that it is the same."""
    try:
        main([str(argument) for argument in arguments])
    except SystemExit as stop:
        return stop.code
    return 0


def test_as_a_process(config):
    done = subprocess.run([sys.executable, "-m", "dpca", "run", config], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "component  singular value" in done.stdout
    assert "4 of 4 components reliable" in done.stdout
    assert "12 samples, 600 features, 2 reads" in done.stdout
    assert "result: out/r" in done.stdout
    assert "dpca: gram: 100 %" in done.stderr
    assert "\r" not in done.stdout + done.stderr
    again = subprocess.run([sys.executable, "-m", "dpca", "run", config], capture_output=True, text=True)
    assert again.returncode == 2
    assert again.stderr.splitlines() == [
        "dpca: error: c.yaml:6:9: out/r: holds a result already",
        "  Choose another output.path, or replace it with --overwrite.",
    ]
    assert dpca("run", config, "--overwrite") == 0


def test_the_result_directory(config, recwarn):
    assert dpca("run", config) == 0
    assert sorted(os.listdir("out/r")) == ["certificate.json", "manifest.json", "result.zarr", "status.json"]
    with xr.open_zarr("out/r/result.zarr") as result:
        assert not recwarn.list
        assert result.attrs["format_version"] == 1
        assert "largest magnitude" in result.attrs["sign_rule"]
        dims = {name: array.dims for name, array in result.data_vars.items()}
        assert dims == {
            "scores": ("sample", "component"),
            "alpha": ("sample", "component"),
            "components": ("component", "lat", "lon"),
            "mean": ("lat", "lon"),
            "scale": ("lat", "lon"),
            "weights": ("lat", "lon"),
            "singular_values": ("component",),
            "explained_variance": ("component",),
            "explained_variance_ratio": ("component",),
            "projection_error": ("component",),
            "eigenvalues": ("eigenvalue",),
            "gram": ("sample", "sample_b"),
            "gram_mean_product": ("sample",),
            "gram_mean_norm2": (),
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
    assert json.loads(Path("out/r/status.json").read_text())["state"] == "done"


def test_a_manifest_repeats_its_run(config):
    import yaml

    assert dpca("run", config) == 0
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
        np.testing.assert_array_equal(result.sample, data.time)
        assert result.scores.sel(sample="2000-01-05").shape == (12,)


def test_a_run_on_an_existing_scheduler_gives_the_same_bits(config, tmp_path):
    assert dpca("run", config) == 0
    with LocalCluster(
        2, threads_per_worker=1, dashboard_address=None, host="127.0.0.1", local_directory=str(tmp_path)
    ) as cluster:
        address = cluster.scheduler_address
        assert (
            dpca("run", config, "--set", f"compute.cluster={{scheduler: '{address}'}}", "--set", "output.path=far") == 0
        )
    for name in ("gram", "scores", "components", "mean"):
        near, far = (zarr.open_array(f"{path}/result.zarr/{name}", mode="r")[...] for path in ("out/r", "far"))
        np.testing.assert_array_equal(near, far)
    assert json.loads(Path("far/status.json").read_text())["done_bytes"] == X.nbytes


@pytest.mark.parametrize(
    ("keys", "code", "message"),
    [
        (["input.uri=nowhere.zarr"], 2, "nowhere.zarr: does not exist"),
        (["input.array=sst"], 2, "x.zarr: is itself an array"),
        (["input.samples_axis=3"], 2, "samples_axis is 3, but the array has 3 axes, shape (12, 20, 30)"),
        (["input.samples_axis=month"], 2, "samples_axis is 'month', but the array has dimensions 'time', 'lat', 'lon'"),
        (["model.n_components=13"], 2, "n_components is 13, but x.zarr has 12 samples and 600 features"),
        (["model.ddof=12"], 2, "ddof is 12, but from 0 to n_samples - 1 = 11 is allowed"),
        (["compute.cluster={scheduler: nonsense}"], 1, "no Dask scheduler answers at 'nonsense'"),
    ],
)
def test_bad_input_is_told_before_anything_is_written(config, capsys, keys, code, message, monkeypatch):
    monkeypatch.setattr("dpca.clusters.CONNECT_SECONDS", 1)
    assert dpca("run", config, *(part for key in keys for part in ("--set", key))) == code
    shown = capsys.readouterr().err.splitlines()
    assert message in shown[0]
    assert shown[0].startswith("dpca: error: ")
    assert shown[1].startswith("  ")
    assert not Path("out/r/manifest.json").exists()
    assert not Path("out/r/ledger").exists()


def test_an_error_in_a_value_names_the_line_that_sets_it(config, capsys):
    Path("n.yaml").write_text(Path(config).read_text().replace("n_components: 4", "n_components: 400"))
    assert dpca("run", "n.yaml") == 2
    assert "n.yaml:4:17: n_components is 400, but x.zarr has" in capsys.readouterr().err


@pytest.mark.parametrize(("shape", "message"), [((1, 50), "has 1 sample(s)"), ((5, 0), "has no features")])
def test_data_that_pca_is_not_defined_for(config, capsys, shape, message):
    np.save("e.npy", np.ones(shape))
    assert dpca("run", config, "--set", "input.uri=e.npy", "--set", "model.n_components=1") == 2
    assert message in capsys.readouterr().err


def test_a_missing_value_stops_the_run_and_leaves_no_result(config, capsys):
    x = X.copy()
    x[2, 3, 4] = np.nan
    np.save("nan.npy", x)
    assert dpca("run", config, "--set", "input.uri=nan.npy") == 2
    shown = capsys.readouterr().err
    assert "nan.npy: 1 missing values (NaN)" in shown
    assert "the first at index [2, 3, 4] (sample 2): nan" in shown
    assert os.listdir("out/r") == ["status.json"]
    status = json.loads(Path("out/r/status.json").read_text())
    assert status["state"] == "failed"
    assert "[2, 3, 4]" in status["message"]
    assert dpca("run", config, "--set", "input.uri=nan.npy", "--set", "preprocess.missing=mean") == 0
    assert "1 missing values were replaced" in capsys.readouterr().err


def test_a_failed_overwrite_keeps_the_old_result(config):
    assert dpca("run", config) == 0
    before = Path("out/r/manifest.json").read_bytes()
    (Path("x.zarr") / "c" / "1" / "0" / "2").write_bytes(b"no zstd frame")
    assert dpca("run", config, "--overwrite") == 1
    assert Path("out/r/manifest.json").read_bytes() == before
    assert zarr.open_group("out/r/result.zarr", mode="r")["scores"].shape == (12, 4)


def test_a_chunk_that_fails_to_decode_is_named(config, capsys):
    (Path("x.zarr") / "c" / "1" / "0" / "2").write_bytes(b"no zstd frame")
    assert dpca("run", config) == 1
    assert "x.zarr: chunk (1, 0, 2), region [5:10, 0:20, 14:21], could not be read" in capsys.readouterr().err


def test_absent_chunks_are_reported_or_refused(config, capsys):
    (Path("x.zarr") / "c" / "1" / "0" / "2").unlink()
    assert dpca("run", config) == 0
    assert "x.zarr: 1 chunks were never written and read as fill values" in capsys.readouterr().err
    assert json.loads(Path("out/r/manifest.json").read_text())["counts"]["absent_chunks"] == 1
    assert dpca("run", config, "--overwrite", "--set", "input.absent_chunks=error") == 2
    assert "chunk 'c/1/0/2' was never written" in capsys.readouterr().err


def test_ambiguous_and_absent_arrays_are_named(config, capsys):
    with h5py.File("two.h5", "w") as file:
        file["a"], file["b"] = X, X
    assert dpca("run", config, "--set", "input.uri=two.h5") == 2
    assert "two.h5: which array? It holds a (12, 20, 30), b (12, 20, 30)" in capsys.readouterr().err
    assert dpca("run", config, "--set", "input.uri=two.h5", "--set", "input.array=c") == 2
    assert "--set input.array=c: two.h5: has no array 'c'; it holds a (12, 20, 30)" in capsys.readouterr().err


def test_unreliable_components_are_said_on_stderr(config, capsys):
    rng = np.random.default_rng(0)
    u, v = np.linalg.qr(rng.normal(size=(10, 3)))[0], np.linalg.qr(rng.normal(size=(60000, 3)))[0]
    np.save("steep.npy", (u * [1.0, 1e-2, 3e-4] @ v.T).astype("f4"))
    keys = ["input.uri=steep.npy", "preprocess.center=false", "model.n_components=3"]
    assert dpca("run", config, *(part for key in keys for part in ("--set", key))) == 0
    shown = capsys.readouterr()
    assert "not reliable" in shown.out
    assert "components 2 have singular values below" in shown.err
    assert "set model.precision: double" in shown.err


def test_interrupt_exits_130_and_leaves_no_result(config, tmp_path):
    """The signal comes from inside the run, at its first slab: no sleeping, no race."""
    Path("interrupted.py").write_text(
        "import os, signal, sys\n"
        "import dpca.passes\n"
        "read = dpca.passes.Standardizer.panels\n"
        "def panels(self, raw):\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    yield from read(self, raw)\n"
        "dpca.passes.Standardizer.panels = panels\n"
        "from dpca.cli import main\n"
        "main(['run', 'c.yaml'])\n"
    )
    done = subprocess.run([sys.executable, "interrupted.py"], capture_output=True, text=True)
    assert done.returncode == 130, done.stderr
    assert "dpca: interrupted" in done.stderr
    assert "Traceback" not in done.stderr
    assert os.listdir("out/r") == ["status.json"]
    assert json.loads(Path("out/r/status.json").read_text())["state"] == "interrupted"


def test_a_killed_run_is_an_unfinished_one(config, capsys):
    Path("killed.py").write_text(
        "import os, signal\n"
        "import dpca.run\n"
        "def kill(*args): os.kill(os.getpid(), signal.SIGKILL)\n"
        "dpca.run.ResultDirectory.publish = kill\n"
        "from dpca.cli import main\n"
        "main(['run', 'c.yaml'])\n"
    )
    done = subprocess.run([sys.executable, "killed.py"], capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL
    assert not Path("out/r/manifest.json").exists()
    assert dpca("run", config) == 2
    assert "holds an unfinished run" in capsys.readouterr().err
    assert dpca("run", config, "--overwrite") == 0


def test_debug_shows_the_traceback(config):
    done = subprocess.run(
        [sys.executable, "-m", "dpca", "run", config, "--debug", "--set", "input.uri=no"],
        capture_output=True,
        text=True,
    )
    assert done.returncode != 0
    assert "Traceback" in done.stderr


def test_validate(config, capsys):
    assert dpca("validate", config) == 0
    assert capsys.readouterr().out == "c.yaml: valid\n"
    assert dpca("validate", config, "--set", "model.n_component=3") == 2
    assert "Did you mean model.n_components?" in capsys.readouterr().err
    assert dpca("validate", config, "--set", "input.uri=no.zarr") == 0
    assert "its input no.zarr does not exist here" in capsys.readouterr().err


def test_status(config, capsys):
    assert dpca("status", "out/r") == 2
    assert "out/r: has no readable status.json" in capsys.readouterr().err
    assert dpca("run", config) == 0
    capsys.readouterr()
    assert dpca("status", "out/r") == 0
    assert "out/r: done (4 of 4 components reliable" in capsys.readouterr().out
    status = json.loads(Path("out/r/status.json").read_text())
    status.update(state="running", message="", done_bytes=5, total_bytes=10, seconds_left=75.0, bytes_per_second=2e6)
    Path("out/r/status.json").write_text(json.dumps(status))
    assert dpca("status", "out/r") == 0
    assert "stage 3 of 3, components: 50 % of 10 B, 2 MB/s, 1:15 left" in capsys.readouterr().out
    assert dpca("status", "out/r", "--json") == 0
    assert json.loads(capsys.readouterr().out)["total_bytes"] == 10


def test_schema(capsys):
    assert dpca("schema") == 0
    assert json.loads(capsys.readouterr().out)["properties"]["model"]


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
        "key": "(not kept)"
    }


def test_usage_errors_exit_2(capsys):
    assert dpca("run") == 2
    assert dpca("fly") == 2
    assert dpca("--help") == 0
    assert "Exit codes" in capsys.readouterr().out


def test_demo(capsys, monkeypatch):
    assert dpca("demo", "--samples", "60", "--features", "3000") == 0
    shown = capsys.readouterr().out
    assert "$ dpca run dpca-demo/demo.yaml --overwrite" in shown
    assert "demo: right" in shown
    result = zarr.open_group("dpca-demo/result/result.zarr", mode="r+")
    result["singular_values"][3] *= 1.01
    from dpca.demo import check, make

    assert check(Path("dpca-demo"), make(Path("dpca-demo"), 60, 3000))[1] is False
