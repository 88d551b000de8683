"""Runs that end badly: what is said, what is left, with which exit code."""

import json
import os
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
import zarr

from dpca.commands import run as commands_run
from dpca.execution import clusters
from tests.commands.calls import X, dpca, given, run
from tests.made import made


@pytest.mark.parametrize(
    ("keys", "code", "message"),
    [
        (["input.uri=nowhere.zarr"], 2, "nowhere.zarr: does not exist"),
        (["input.array=sst"], 2, "x.zarr: is itself an array"),
        (["input.samples_axis=3"], 2, "samples_axis is 3, but the array has 3 axes, shape (12, 20, 30)"),
        (["input.samples_axis=month"], 2, "samples_axis is 'month', but the array has dimensions 'time', 'lat', 'lon'"),
        (["model.n_components=13"], 2, "n_components is 13, but x.zarr has 12 samples and 600 features"),
        (["model.ddof=12"], 2, "ddof is 12, but from 0 to n_samples - 1 = 11 is allowed"),
        (
            ["compute.cluster={scheduler: nonsense}"],
            2,
            "compute.cluster.scheduler is 'nonsense', but an address with a port is allowed",
        ),
    ],
)
def test_bad_input_is_told_before_anything_is_written(config, capsys, keys, code, message, monkeypatch):
    monkeypatch.setattr(clusters, "CONNECT_SECONDS", 1)
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
    made(run, given)
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
    sets = [part for key in keys for part in ("--set", key)]
    assert dpca("run", config, *sets, "--set", "model.svd_solver=gram_eigh") == 0
    shown = capsys.readouterr()
    assert "not reliable" in shown.out
    assert "component 3 is not what the data give in a second pass (residual_data above 0.01)" in shown.err
    assert "gram_eigh in single precision lost it: set model.precision: double, or leave both to auto" in shown.err
    assert dpca("run", config, *sets, "--overwrite") == 0
    shown = capsys.readouterr()
    assert "3 of 3 components reliable (gram_eigh, double)" in shown.out
    assert "dpca: gram: component 3 has a singular value of " in shown.err
    assert " that it supports, so gram in double is tried" in shown.err
    manifest = json.loads(Path("out/r/manifest.json").read_text())
    assert manifest["counts"]["passes"] == 3
    assert ", 1 read of the data, then kept in memory, " in shown.out
    assert manifest["numerics"]["choices"][-1] == "gram in double supports every component that was asked for"


def test_interrupt_exits_130_and_leaves_no_result(config):
    """The signal comes from inside the run, at its first slab: no sleeping, no race."""
    Path("interrupted.py").write_text(
        "import os, signal, sys\n"
        "import dpca.methods.passes\n"
        "read = dpca.methods.passes.FeaturePanels.panels\n"
        "def panels(self, *arguments):\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    yield from read(self, *arguments)\n"
        "dpca.methods.passes.FeaturePanels.panels = panels\n"
        "from dpca.cli.app import main\n"
        "main(['run', 'c.yaml'])\n"
    )
    done = subprocess.run([sys.executable, "interrupted.py"], capture_output=True, text=True)
    assert done.returncode == 130, done.stderr
    assert "dpca: stopped by SIGINT" in done.stderr
    assert "Traceback" not in done.stderr
    assert set(os.listdir("out/r")) <= {"status.json", "ledger"}  # the span in hand may come to its end
    assert json.loads(Path("out/r/status.json").read_text())["state"] == "interrupted"


def test_a_run_that_was_stopped_before_its_publication_is_an_unfinished_one(config, capsys, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(commands_run.ResultDirectory, "publish", stop)
        assert dpca("run", config) == 130
    assert not Path("out/r/manifest.json").exists()
    assert dpca("run", config) == 2
    shown = capsys.readouterr().err
    assert "holds an unfinished run" in shown
    assert "Go on with it with dpca run --resume, or start it anew with --overwrite" in shown
    assert dpca("run", config, "--overwrite") == 0


@pytest.mark.parametrize("command", ["plan", "run"])
def test_an_output_path_that_is_a_file_is_refused_by_its_line(config, capsys, command):
    Path("afile").write_text("")
    for path in ("afile", "afile/deeper/r"):
        assert dpca(command, config, "--set", f"output.path={path}") == 2
        assert f"--set output.path={path}: afile: exists and is not a directory" in capsys.readouterr().err.replace(
            f"{os.getcwd()}/", ""
        )


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"", "bad.h5: is empty (0 bytes)"), (b"\x89HDF\r\n\x1a\n0000", "bad.h5: not readable as HDF5")],
)
def test_a_damaged_hdf5_file_is_said_to_be_so_by_every_command(config, capsys, content, said):
    Path("bad.h5").write_bytes(content)
    for command in (["inspect", "bad.h5"], ["init", "bad.h5"], ["plan", config, "--set", "input.uri=bad.h5"]):
        assert dpca(*command) == 2
        assert said in capsys.readouterr().err


def test_data_without_any_value_have_no_result(capsys):
    np.save("nothing.npy", np.full((12, 40), np.nan))
    Path("c.yaml").write_text("input: {uri: nothing.npy}\npreprocess: {missing: mean}\noutput: {path: r}\n")
    assert dpca("run", "c.yaml") == 2
    assert "nothing.npy: all 480 values are missing: there is nothing to analyse" in capsys.readouterr().err


def test_data_that_do_not_vary_are_said_not_to(capsys):
    np.save("same.npy", np.full((12, 40), 7.0))
    Path("c.yaml").write_text("input: {uri: same.npy}\noutput: {path: r}\n")
    assert dpca("run", "c.yaml") == 0
    said = capsys.readouterr().err
    assert "note: the samples do not differ from their mean: there are no components to find" in said
    assert "auto" not in said


def test_what_another_precision_mends_is_not_gone_on_with(capsys):
    np.save("small.npy", np.random.default_rng(0).standard_normal((12, 40)) * 1e-25)
    Path("c.yaml").write_text(
        "input: {uri: small.npy}\nmodel: {precision: single, n_components: 3}\noutput: {path: r}\n"
    )
    assert dpca("run", "c.yaml") == 1
    said = capsys.readouterr().err
    assert "Set model.precision: double" in said
    assert said.endswith("Then start it anew with --overwrite.\n")
    assert dpca("run", "c.yaml", "--set", "model.precision=double", "--overwrite") == 0


@pytest.mark.parametrize("streams", ["<&- >&- 2>&-", "2>/dev/full", "2>&1 | true"])
def test_a_run_that_nobody_listens_to_ends_well(config, streams):
    command = f"{sys.executable} -m dpca run {config} {streams}; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(Path("out/r/status.json").read_text())["state"] == "done"


def test_what_is_printed_on_a_full_disk_is_not_taken_for_printed():
    command = f"{sys.executable} -m dpca schema > /dev/full"
    assert subprocess.run(["bash", "-c", command]).returncode != 0
