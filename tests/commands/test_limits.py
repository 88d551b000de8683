"""Runs that meet a limit on the way: a disk that fills up, memory that was not foreseen."""

import json
import os
import shlex
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import zarr

from dpca.commands import prepare, run
from dpca.system.machine import Peak
from tests.commands.calls import dpca
from tests.stores import random_array


def may_mount():
    return (
        subprocess.run(["unshare", "-m", "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True).returncode == 0
    )


@pytest.fixture
def small_disk():
    """`small_disk(size, *command)` runs Python where the directory `disk` is a disk of its own, copied to `kept` after."""
    if not may_mount():
        pytest.skip("a file system of a test's own needs unshare and mount, which are not permitted here")

    def call(size, *arguments):
        Path("disk").mkdir(exist_ok=True)
        command = shlex.join([sys.executable, *arguments])
        script = f"mount -t tmpfs -o size={size} none disk; {command}; code=$?; cp -a disk kept; exit $code"
        return subprocess.run(["unshare", "-m", "sh", "-c", script], capture_output=True, text=True)

    return call


@pytest.fixture
def wide():
    zarr.create_array("wide.zarr", data=random_array(0, (20, 100_000), "f4"), chunks=(20, 10_000))
    Path("w.yaml").write_text("input: {uri: wide.zarr}\nmodel: {n_components: 10}\noutput: {path: disk/r}\n")
    Path("later.py").write_text(
        "import dpca.cli.app, dpca.planning.disk\n"
        "dpca.planning.disk.free_disk = lambda path: 10**9  # before someone else took it\n"
        "dpca.cli.app.main(['run', 'w.yaml'])\n"
    )
    return "w.yaml"


def test_a_disk_that_fills_up_in_the_first_pass_leaves_no_result_and_says_so(wide, small_disk):
    done = small_disk("300k", "-m", "dpca", "run", wide)
    assert done.returncode == 3
    assert "takes up to 4.8" in done.stderr
    shutil.rmtree("kept")
    done = small_disk("300k", "later.py")
    assert done.returncode == 1
    assert "could not be written: No space left on device" in done.stderr
    assert "Free some space, or write to another disk." in done.stderr
    assert "Traceback" not in done.stderr
    assert "manifest.json" not in os.listdir("kept/r")
    assert "result.zarr" not in os.listdir("kept/r")


def test_a_disk_that_fills_up_in_the_second_pass_keeps_what_the_first_found(wide, small_disk):
    done = small_disk("2500k", "later.py")
    assert done.returncode == 1
    assert "No space left on device" in done.stderr
    assert "--resume goes on." in done.stderr
    assert sorted(os.listdir("kept/r")) == ["ledger", "status.json"]
    assert json.loads(Path("kept/r/status.json").read_text())["state"] == "failed"
    (group,) = Path("kept/r/ledger").glob("*/result.zarr")
    assert dpca("run", wide) == 0
    for name in ("scores", "singular_values"):
        whole = zarr.open_array(f"disk/r/result.zarr/{name}", mode="r")[...]
        np.testing.assert_array_equal(zarr.open_array(f"{group}/{name}", mode="r")[...], whole)


@pytest.fixture
def rows():
    """Whole rows in a compressed array: with this memory they are copied to scratch first."""
    zarr.create_array("rows.zarr", data=random_array(0, (8, 2**20), "f4"), chunks=(1, 2**20))
    Path("rows.yaml").write_text(
        "input: {uri: rows.zarr}\nmodel: {n_components: 2}\noutput: {path: r}\n"
        "compute: {memory: 245 MiB, workers: 1, scratch: disk}\n"
    )
    Path("disk").mkdir()
    return "rows.yaml"


def test_scratch_that_is_too_small_is_refused_beforehand(rows, capsys, monkeypatch):
    monkeypatch.setattr(prepare, "free_disk", lambda path: 10**7)
    for command in ("plan", "run"):
        assert dpca(command, rows) == 3
        error, remedy = capsys.readouterr().err.splitlines()
        assert "rows.zarr: its chunks, 1 x 1,048,576, have to be copied to scratch, which takes" in error
        assert "has 10 MB free" in error
        assert "Set compute.scratch to a directory with" in remedy
    assert sorted(os.listdir()) == ["disk", "rows.yaml", "rows.zarr"]
    assert not os.listdir("disk")


def test_scratch_that_fills_up_all_the_same_leaves_neither_result_nor_copy(rows, small_disk):
    Path("later.py").write_text(
        "import dpca.cli.app, dpca.commands.prepare\n"
        "dpca.commands.prepare.free_disk = lambda path: 10**9  # before someone else took it\n"
        f"dpca.cli.app.main(['run', '{rows}'])\n"
    )
    done = small_disk("8m", "later.py")
    assert done.returncode == 1
    assert "copy.zarr: could not be written: No space left on device" in done.stderr
    assert os.listdir("kept") == []
    assert os.listdir("r") == ["status.json"]


def test_a_run_that_takes_more_than_its_budget_is_stopped_and_says_so(wide, capsys, monkeypatch):
    """No memory that was not foreseen is known, so the measurement is replaced."""

    @contextmanager
    def too_much():
        peak = Peak()
        peak.bytes = 2**41
        yield peak

    monkeypatch.setattr(run, "watched_memory", too_much)
    assert dpca("run", wide) == 3
    shown = capsys.readouterr().err
    assert "the run took 2 TiB of memory where" in shown
    assert "it was stopped at its budget of" in shown
    assert os.listdir("disk/r") == ["status.json"]
