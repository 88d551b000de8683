"""Faults from the world: inputs that change, fail, hang and heal; disks."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import h5py
import numpy as np
import pytest
import zarr

from dpca.execution import engine
from dpca.methods import first_pass, second_pass
from dpca.store.outputs import Outputs
from tests.commands.calls import dpca
from tests.resume.disturbed import END, START, D, N, at_slab, disturbed, killed, left_by_a_kill, parts, rewrite_a_chunk
from tests.stores import bits

pytestmark = pytest.mark.long


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (["preprocess.scale=std"], 'the config changed since the run began: preprocess.scale: "none", now "std"'),
        (["model.n_components=5"], "model.n_components: 3, now 5"),
        (["output.components=false"], "output.components: true, now false"),
    ],
)
def test_a_changed_config_is_refused_by_name(config, keys, said, capsys):
    left_by_a_kill()
    before = parts()
    assert dpca("run", config, "--resume", *(word for key in keys for word in ("--set", key))) == 2
    shown = capsys.readouterr().err
    assert said in shown
    assert "start anew with --overwrite" in shown
    assert parts() == before


def append():
    array = zarr.open_array("x.zarr", mode="r+")
    array.resize((N, D + 600))


def lose_a_chunk():
    os.remove("x.zarr/c/0/3")


@pytest.mark.parametrize("change", [rewrite_a_chunk, append, lose_a_chunk])
def test_a_changed_input_is_refused(config, change, capsys):
    left_by_a_kill()
    change()
    assert dpca("run", config, "--resume") == 2
    assert "the input x.zarr changed since the run began" in capsys.readouterr().err


def test_an_input_that_changes_while_it_is_read_gives_no_result(config, capsys, monkeypatch):
    from dpca.methods import spans

    original = spans.components_span

    def changing(work, alpha, span, report):
        if span == 5:
            rewrite_a_chunk()
        return original(work, alpha, span, report)

    monkeypatch.setattr(second_pass, "components_span", changing)
    # One worker: another might be reading that chunk, and say so of its region.
    assert dpca("run", config, "--set", "compute.workers=1") == 2
    assert "x.zarr: changed while it was read: sizes or times of its chunk files are others" in capsys.readouterr().err
    assert not Path("r/manifest.json").exists()
    assert dpca("run", config, "--resume") == 2


def test_store_errors_now_and_then_are_tried_again_and_counted(config, undisturbed, monkeypatch, capsys):
    from dpca.sources.zarr_array import ZarrReader

    original, failed = ZarrReader._read, set()

    def failing(self, region):
        if region[1].start in (0, 1200, 2400) and region[1].start not in failed:
            failed.add(region[1].start)
            raise OSError("the network was away")
        return original(self, region)

    monkeypatch.setattr(ZarrReader, "_read", failing)
    assert dpca("run", config) == 0
    assert bits("r") == undisturbed
    assert json.loads(Path("r/manifest.json").read_text())["counts"]["retried_reads"] == 3
    assert "3 reads failed and succeeded when they were tried again" in capsys.readouterr().err


def test_a_read_that_hangs_ends_the_run_in_time(config, undisturbed):
    what = """
import dpca.execution.executors
dpca.execution.executors.ABANDON_SECONDS = 0.2
from dpca.sources.zarr_array import ZarrReader
read = ZarrReader._read
def hanging(self, region):
    if region[1].start == 3000:
        threading.Event().wait()
    return read(self, region)
ZarrReader._read = hanging
"""
    done = disturbed(what, "run", config, "--set", "input.read_seconds=0.5")
    assert done.returncode == 1
    assert "x.zarr: span 5, region [0:12, 3000:3600], hangs: no slab was read within 0.5 s" in done.stderr
    assert "--resume goes on" in done.stderr
    assert dpca("run", config, "--resume") == 0
    assert bits("r") == undisturbed


def test_a_chunk_that_heals(config, undisturbed, capsys):
    chunk = Path("x.zarr/c/0/7")
    facts, content = chunk.stat(), chunk.read_bytes()
    chunk.write_bytes(bytes(len(content)))
    os.utime(chunk, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    assert dpca("run", config) == 1
    shown = capsys.readouterr().err
    assert "x.zarr: chunk (0, 7), region [0:12, 4200:4800], could not be read" in shown
    assert "--resume goes on" in shown
    chunk.write_bytes(content)
    os.utime(chunk, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    assert dpca("run", config, "--resume") == 0
    assert bits("r") == undisturbed


READ_ONLY = """
import shlex, subprocess
def read_only():
    while subprocess.run(["mount", "-o", "remount,ro", "disk"], capture_output=True).returncode:
        pass  # while another thread writes a file there
"""


@pytest.mark.parametrize("slab", [0, 5, 14])
def test_an_output_that_is_or_becomes_read_only(config, undisturbed, slab):
    """The output's file system is a real one, in a namespace of its own."""
    if subprocess.run(["unshare", "-m", "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True).returncode:
        pytest.skip("a file system of a test's own needs unshare and mount, which are not permitted here")
    Path("disk").mkdir()
    Path("disturbed.py").write_text(START + READ_ONLY + (at_slab(slab, "read_only()") if slab else "read_only()") + END)
    run = f"{sys.executable} disturbed.py run {config} --set output.path=disk/r"
    script = f"mount -t tmpfs none disk; {run}; code=$?; mount -o remount,rw disk; cp -a disk/. .; exit $code"
    done = subprocess.run(["unshare", "-m", "sh", "-c", script], capture_output=True, text=True)
    assert done.returncode == 1
    assert "could not be written: Read-only file system\n  Check the disk and its permissions." in done.stderr
    assert "Traceback" not in done.stderr
    assert Path("r/ledger").exists() == (slab > 0)
    assert dpca("run", config, "--resume") == 0
    assert bits("r") == undisturbed


def shortened(path, by):
    with open(path, "r+b") as file:
        file.truncate(os.path.getsize(path) - by)


@pytest.mark.parametrize("kind", ["npy", "hdf5", "hdf5 gzip", "zarr"])
def test_a_file_that_is_cut_short_while_it_is_read(config, kind, monkeypatch, capsys):
    """No wrong number, and no crash of the process: an error that names the file."""
    x = zarr.open_array("x.zarr")[...]
    name = {"npy": "x.npy", "zarr": "x.zarr"}.get(kind, "x.h5")
    if kind == "npy":
        np.save(name, x)
    if "hdf5" in kind:
        with h5py.File(name, "w") as file:
            how = {"chunks": (N, 600), "compression": "gzip"} if "gzip" in kind else {}
            file.create_dataset("x", data=x, **how)
    victim = "x.zarr/c/0/6" if kind == "zarr" else name
    original = first_pass.first_span_of_features

    def cutting(work, span, report):
        if span == 3:
            shortened(victim, os.path.getsize(victim) // 2)
        return original(work, span, report)

    monkeypatch.setattr(first_pass, "first_span_of_features", cutting)
    done = dpca("run", config, "--set", f"input.uri={name}", "--set", "compute.workers=1")
    shown = capsys.readouterr().err
    assert done in (1, 2)
    assert f"dpca: error: {name}" in shown
    assert "defect" not in shown
    assert not Path("r/manifest.json").exists()
    # What was read of it is not used, even if it should be whole again.
    assert dpca("run", config, "--set", f"input.uri={name}", "--resume") in (1, 2)
    assert name in capsys.readouterr().err


def test_looking_at_what_is_finished_is_no_hanging_read(config, undisturbed, monkeypatch, capsys):
    """However long it takes in all: a clock goes a second ahead with each look."""

    class Clock:
        ahead = 0.0

        def monotonic(self):
            return time.monotonic() + self.ahead

    clock, damage = Clock(), Outputs.damage

    def slow(*arguments):
        clock.ahead += 1.0
        return damage(*arguments)

    left_by_a_kill(19)
    monkeypatch.setattr(engine, "time", clock)
    monkeypatch.setattr(Outputs, "damage", slow)
    assert dpca("run", config, "--resume", "--set", "input.read_seconds=5", "--set", "compute.workers=1") == 0
    assert clock.ahead > 10
    assert bits("r") == undisturbed


def test_weights_that_changed_while_a_run_was_down_are_refused(config, capsys):
    np.save("weights.npy", np.ones(D))
    weighted = ("--set", "preprocess.weights={uri: weights.npy}")
    killed(config, 7, how=weighted)
    assert parts()
    kept = Path("weights.npy").read_bytes(), os.stat("weights.npy").st_mtime_ns
    np.save("weights.npy", np.linspace(1, 2, D))
    assert dpca("run", config, *weighted, "--resume") == 2
    assert "the config changed since the run began: preprocess.fields.weights" in capsys.readouterr().err
    Path("weights.npy").write_bytes(kept[0])
    os.utime("weights.npy", ns=(kept[1], kept[1]))
    assert dpca("run", config, *weighted, "--resume") == 0
    assert dpca("run", config, *weighted, "--resume") == 0  # nothing is left to do
    np.save("weights.npy", np.linspace(1, 2, D))
    assert dpca("run", config, *weighted, "--resume") == 2
    os.remove("weights.npy")
    assert dpca("run", config, *weighted, "--resume") == 0  # a result stays valid without its weights


BESIDE = {
    "weights of samples": (N, "preprocess.sample_weights={uri: beside.npy}", "preprocess.sample_weights.sha256"),
    "sessions": (N, "preprocess.regress_out={by: {uri: beside.npy}}", "preprocess.regress_out.sha256"),
    "groups of features": (D, "output.groups={labels: {uri: beside.npy}}", "output.groups.sha256"),
}
"""What is read before the passes, of which no part of them tells: its length, the key of the config, and what is said."""


@pytest.mark.parametrize("kind", BESIDE)
def test_what_is_beside_the_data_and_changed_while_a_run_was_down_is_refused(config, kind, capsys):
    length, key, named = BESIDE[kind]
    values = np.arange(length) // (length // 4) + 1.0
    np.save("beside.npy", values)
    killed(config, 7, how=("--set", key))
    np.save("beside.npy", values[::-1])
    assert dpca("run", config, "--set", key, "--resume") == 2
    assert f"the config changed since the run began: {named}" in capsys.readouterr().err
    np.save("beside.npy", values)
    assert dpca("run", config, "--set", key, "--resume") == 0
    assert dpca("run", config, "--set", key, "--resume") == 0  # nothing is left to do
