"""Runs that are ended by signals and kills, and gone on with."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import zarr

from dpca.store import directory
from dpca.system import durable, lock
from tests.commands.calls import dpca
from tests.made import made
from tests.resume.disturbed import (
    END,
    START,
    N,
    at_slab,
    disturbed,
    killed,
    left_by_a_kill,
    parts,
    rewrite_a_chunk,
    sparse_rows,
    truncated,
    whole_rows,
)
from tests.stores import bits

pytestmark = pytest.mark.long


@pytest.mark.parametrize(("name", "code", "slab"), [("SIGTERM", 1, 14), ("SIGUSR1", 1, 5), ("SIGINT", 130, 14)])
def test_a_signal_leaves_a_run_that_is_gone_on_with(config, undisturbed, name, code, slab, monkeypatch):
    done = disturbed(at_slab(slab, f"os.kill(os.getpid(), signal.{name})"), "run", config)
    assert done.returncode == code, done.stderr
    assert f"dpca: stopped by {name}\n  What is finished is kept: dpca run c.yaml --resume goes on." in done.stderr
    assert "Traceback" not in done.stderr
    assert json.loads(Path("r/status.json").read_text())["state"] == "interrupted"
    assert not Path("r/manifest.json").exists()
    computed = []
    keep = durable.write

    def counted(path, save):
        if path.suffix == ".npz" and path.stem.isdigit():
            computed.append(f"{path.parent.name}/{path.name}")
        keep(path, save)

    monkeypatch.setattr(durable, "write", counted)
    before = parts()
    assert before
    assert dpca("run", config, "--resume") == 0
    assert bits("r") == undisturbed
    assert not set(computed) & set(before)
    assert len(set(computed)) == len(computed)


def test_a_second_signal_leaves_at_once(config, undisturbed):
    """The first waits for a span that hangs; the second does not."""
    action = (
        "os.kill(os.getpid(), signal.SIGINT); threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start(); "
        "threading.Event().wait(60)"
    )
    done = disturbed(at_slab(5, action), "run", config)
    assert done.returncode == 130
    assert dpca("run", config, "--resume") == 0
    assert bits("r") == undisturbed


def test_a_signal_is_answered_though_a_span_hangs(config, undisturbed):
    what = "import dpca.execution.executors\ndpca.execution.executors.ABANDON_SECONDS = 0.2\n"
    what += at_slab(5, "os.kill(os.getpid(), signal.SIGTERM); threading.Event().wait()")
    done = disturbed(what, "run", config)
    assert done.returncode == 1
    assert "dpca: stopped by SIGTERM" in done.stderr
    assert dpca("run", config, "--resume") == 0
    assert bits("r") == undisturbed


@pytest.mark.parametrize("slab", [3, 12])
def test_kill_9(config, undisturbed, slab):
    done = disturbed(at_slab(slab, "os.kill(os.getpid(), signal.SIGKILL)"), "run", config)
    assert done.returncode == -signal.SIGKILL
    assert dpca("run", config, "--resume") == 0
    assert bits("r") == undisturbed


def test_resume_begins_a_run_and_leaves_a_finished_one(config, undisturbed, capsys):
    assert dpca("run", config, "--resume") == 0
    before, files = os.stat("r/manifest.json").st_mtime_ns, sorted(os.listdir("r"))
    capsys.readouterr()
    Path("r/ledger/parts").mkdir(parents=True)  # what a kill leaves of the end, when all is in its place
    Path("r/.status.json.partial").touch()
    assert dpca("run", config, "--resume") == 0
    assert sorted(os.listdir("r")) == files
    assert os.stat("r/manifest.json").st_mtime_ns == before
    assert "certificate: 3 of 3 components reliable" in capsys.readouterr().out
    assert dpca("run", config, "--resume", "--overwrite") == 2
    assert "give one of them" in capsys.readouterr().err


def test_workers_and_memory_may_change(config, undisturbed):
    left_by_a_kill()
    done = disturbed("", "run", config, "--resume", "--set", "compute.workers=1", "--set", "compute.memory=300MiB")
    assert done.returncode == 0, done.stderr
    assert bits("r") == undisturbed


def test_a_plan_that_fits_no_more_exits_3_and_loses_nothing(config, undisturbed, capsys):
    left_by_a_kill()
    assert dpca("run", config, "--resume", "--set", "compute.memory=50MiB") == 3
    assert "compute.memory" in capsys.readouterr().err
    assert dpca("run", config, "--resume") == 0
    assert bits("r") == undisturbed


def test_a_second_run_is_refused_while_the_first_lives(config, undisturbed, capsys, monkeypatch):
    monkeypatch.setattr(lock, "STALE_SECONDS", 3.0)
    wait = "(print('reached', flush=True), sys.stdin.readline())"
    what = "import dpca.system.lock\ndpca.system.lock.BEAT_SECONDS = 0.2\n" + at_slab(14, wait)
    Path("disturbed.py").write_text(START + what + END)
    command = [sys.executable, "disturbed.py", "run", config]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout.readline() == "reached\n"
        for how in ("--resume", "--overwrite"):
            assert dpca("run", config, how) == 2
            assert f"r: a run is going on there, in process {first.pid} on " in capsys.readouterr().err
        first.communicate("go on\n")
    assert first.returncode == 0
    assert bits("r") == undisturbed


@pytest.mark.parametrize("rows", [whole_rows, sparse_rows])
def test_a_copy_in_scratch_is_gone_on_with(rows):
    """The copy is made in bands; after a kill those that are finished are not copied again."""
    made(rows)
    plain = "import os, signal, sys\n"
    whole = disturbed("", "run", "rows.yaml", start=plain)
    assert whole.returncode == 0, whole.stderr
    assert json.loads(Path("r/manifest.json").read_text())["reading"] == "copy"
    expected = bits("r")
    shutil.rmtree("r")
    what = """
import dpca.methods.copying, dpca.methods.decomposition
copy, seen = dpca.methods.copying.copy_unit, []
def counted(work, number, report):
    seen.append(number)
    print("band", number, flush=True)
    if number == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return copy(work, number, report)
dpca.methods.decomposition.copy_unit = counted
"""
    done = disturbed(what, "run", "rows.yaml", start=plain)
    assert done.returncode == -signal.SIGKILL
    again = disturbed(what.replace("if number == 2", "if False"), "run", "rows.yaml", "--resume", start=plain)
    assert again.returncode == 0, again.stderr
    first, second = (
        {line for line in text.splitlines() if line.startswith("band")} for text in (done.stdout, again.stdout)
    )
    assert first & second <= {"band 2", "band 1"}
    assert bits("r") == expected
    shutil.rmtree("r")
    disturbed(what, "run", "rows.yaml", start=plain)
    truncated(min(file for file in Path("r/ledger/scratch").glob("*/copy.zarr/**/[0b]*") if file.is_file()))
    again = disturbed(what.replace("if number == 2", "if False"), "run", "rows.yaml", "--resume", start=plain)
    assert again.returncode == 0, again.stderr
    assert re.search(r"scratch/.*/[0b].* has \d+ bytes, not \d+: it is computed again", again.stderr)
    assert "band 0" in again.stdout
    assert bits("r") == expected


def test_a_run_that_slept_while_another_took_over_leaves_that_alone(config, undisturbed, monkeypatch, capsys):
    """It was stopped by SIGSTOP, for longer than locks wait."""
    monkeypatch.setattr(lock, "STALE_SECONDS", 1.0)
    what = "import dpca.system.lock\ndpca.system.lock.BEAT_SECONDS = 0.1\n" + at_slab(
        14, "os.kill(os.getpid(), signal.SIGSTOP)"
    )
    Path("disturbed.py").write_text(START + what + END)
    command = [sys.executable, "disturbed.py", "run", config]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as first:
        os.waitid(os.P_PID, first.pid, os.WSTOPPED | os.WNOWAIT)
        assert dpca("run", config, "--overwrite", "--set", "preprocess.scale=std") == 0
        before = {path: path.read_bytes() for path in Path("r").rglob("*") if path.is_file()}
        os.kill(first.pid, signal.SIGCONT)
        said = first.communicate()[1]
    assert first.returncode == 2
    assert "r: another run has taken it over, since this one did not move for a while" in said
    after = {path: path.read_bytes() for path in Path("r").rglob("*") if path.is_file()}
    del before[Path("r/status.json")], after[Path("r/status.json")]
    assert after == before


def test_a_finished_result_is_not_taken_for_that_of_another_config_or_input(finished, capsys):
    config = finished
    assert dpca("run", config, "--resume") == 0
    assert dpca("run", config, "--resume", "--set", "compute.workers=1") == 0
    assert dpca("run", config, "--resume", "--set", "model.n_components=5") == 2
    assert "r: holds the result of another config or input: model.n_components: 3, now 5" in capsys.readouterr().err
    rewrite_a_chunk()
    assert dpca("run", config, "--resume") == 2
    assert "sizes or times of its chunk files are others" in capsys.readouterr().err
    shutil.rmtree("x.zarr")
    assert dpca("run", config, "--resume") == 0  # a result outlives its input


def test_what_has_ended_but_for_its_publication_needs_no_input(config, undisturbed, monkeypatch, capsys):
    with monkeypatch.context() as patch:
        patch.setattr(directory.ResultDirectory, "publish", lambda *_: os.kill(os.getpid(), signal.SIGTERM))
        assert dpca("run", config) == 1
    Path("x.zarr").rename("y.zarr")
    other = lock.Lock(Path("r"))
    other.acquire()
    assert dpca("run", config, "--resume") == 2
    assert "r: a run is going on there" in capsys.readouterr().err
    assert not Path("r/manifest.json").exists()
    other.release()
    assert dpca("run", config, "--resume") == 0
    assert bits("r") == undisturbed


def test_the_advice_is_the_command_that_goes_on(config, undisturbed):
    how = ("--set", "model.n_components=2", "--set", "output.path=elsewhere")
    done = disturbed(at_slab(14, "os.kill(os.getpid(), signal.SIGTERM)"), "run", config, *how)
    command = f"dpca run {config} {' '.join(how)} --resume"
    assert f"What is finished is kept: {command} goes on." in done.stderr
    assert dpca(*command.split()[1:]) == 0
    assert zarr.open_group("elsewhere/result.zarr", mode="r")["scores"].shape == (N, 2)


@pytest.mark.parametrize("uri", ["./x.zarr", "{}/x.zarr", "x.zarr/", "moved"])
def test_where_the_input_lies_and_how_that_is_spelled_is_no_matter(config, undisturbed, uri, tmp_path):
    left_by_a_kill()
    if uri == "moved":
        Path("x.zarr").rename("moved")
    uri = uri.format(os.getcwd())
    assert dpca("run", config, "--resume", "--set", f"input.uri={uri}", "--set", "input.samples_axis=-2") == 0
    assert bits("r") == undisturbed


def test_the_status_of_a_run_that_was_killed(config, capsys):
    left_by_a_kill()
    assert dpca("status", "r") == 0
    assert "r: killed (what is finished is kept: --resume goes on)" in capsys.readouterr().out
    assert dpca("run", config, "--resume") == 0
    killed(config, how=("--overwrite",))
    assert dpca("run", config) == 2
    shown = capsys.readouterr().err
    assert "r: holds a result already, and an unfinished run that is to replace it" in shown
    assert "--resume" in shown


def test_the_copy_in_a_scratch_that_is_no_longer_used_is_removed():
    made(whole_rows)
    for place in ("one", "two"):
        Path(place).mkdir()
    plain = "import os, signal, sys\nimport dpca.methods.spans\n"
    where = ("run", "rows.yaml", "--set", "compute.scratch=one")
    assert disturbed(at_slab(2, "os.kill(os.getpid(), signal.SIGKILL)"), *where, start=plain).returncode < 0
    assert os.listdir("one")
    done = disturbed("", "run", "rows.yaml", "--resume", "--set", "compute.scratch=two", start=plain)
    assert done.returncode == 0, done.stderr
    assert os.listdir("one") == os.listdir("two") == []


def requeued(monkeypatch, job):
    monkeypatch.setenv("SLURM_JOB_ID", job)
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")


def test_the_copy_in_a_scratch_of_a_run_that_has_ended_but_for_its_publication_is_removed():
    made(whole_rows)
    Path("one").mkdir()
    dies = "from dpca.system.scratch import ScratchFolder\nScratchFolder.remove = lambda _: os.kill(os.getpid(), signal.SIGKILL)"
    start = "import os, signal, sys\nimport dpca.methods.spans\n"
    assert disturbed(dies, "run", "rows.yaml", "--set", "compute.scratch=one", start=start).returncode < 0
    assert os.listdir("one")
    assert Path("r/ledger/commit.json").exists()
    assert dpca("run", "rows.yaml", "--resume", "--set", "compute.scratch=one") == 0
    assert not os.listdir("one")


def test_a_job_that_was_requeued_goes_on_by_itself(config, undisturbed, monkeypatch, capsys):
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    killed(config)
    requeued(monkeypatch, "7")
    assert dpca("run", config) == 0
    assert "spans were finished before" in capsys.readouterr().err
    assert bits("r") == undisturbed
    assert dpca("run", config) == 0  # requeued after its end


def test_a_job_that_was_requeued_replaces_what_is_not_its_own(config, undisturbed, monkeypatch, capsys):
    killed(config, how=("--set", "preprocess.center=false"))
    requeued(monkeypatch, "7")
    assert dpca("run", config, "--overwrite") == 0
    assert "spans were finished before" not in capsys.readouterr().err
    assert bits("r") == undisturbed
    before = os.stat("r/manifest.json").st_mtime_ns
    assert dpca("run", config, "--overwrite") == 0  # it had ended already
    assert os.stat("r/manifest.json").st_mtime_ns == before
    requeued(monkeypatch, "8")
    assert dpca("run", config, "--overwrite") == 0
    assert os.stat("r/manifest.json").st_mtime_ns != before


def test_a_signal_that_comes_twice_is_one(config, undisturbed):
    """As from a batch system, to a job and to its processes."""
    action = "[os.kill(os.getpid(), signal.SIGTERM) for _ in range(2)]"
    done = disturbed(at_slab(5, action), "run", config)
    assert done.returncode == 1
    assert "dpca: stopped by SIGTERM" in done.stderr
    assert "--resume goes on" in done.stderr
    assert not Path("r/.lock").exists()
    assert dpca("run", config, "--resume") == 0
    assert bits("r") == undisturbed
