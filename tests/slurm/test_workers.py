"""Workers in Slurm jobs that a run submits: cancelled, preempted, over their memory, refused."""

import functools
import json
import os
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from dpca.commands import foresight
from tests.commands.calls import dpca, dpca_process
from tests.customized import spans
from tests.slurm.daemons import NODES, until
from tests.slurm.strangers import assert_closed, processes
from tests.stores import bits

pytestmark = pytest.mark.clusters

WORKERS = "{cores: 1, memory: 500 MiB, walltime: '30:00', queue: low, interface: lo, minimum: 2, maximum: 2}"
HELD = "if span == 4 and once('held'):\n            os.mkfifo('go'); open('go').close()"
"""Somewhere in the middle a span waits until the other end is opened."""
TOO_LARGE = "if span == 4: held = b'x' * 700_000_000; os.mkfifo(f'go{os.getpid()}'); open(f'go{os.getpid()}').close()"


def on(workers, command="run"):
    return (command, "c.yaml", "--set", f"compute.cluster={{slurm: {workers}}}")


@pytest.fixture
def held(slurm, config, customized, request):
    """A run whose fifth span waits, in one of two workers."""
    customized(HELD)
    command = [sys.executable, "-m", "dpca", *on(getattr(request, "param", WORKERS))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as run:
        until(Path("go").exists)
        yield run
        run.kill()


def ended(run):
    said = run.communicate(timeout=200)[0]
    assert run.returncode == 0, said
    assert bits("r") == bits("expected")
    return said


def test_workers_of_a_run_s_own_of_which_one_is_cancelled(slurm, held):
    workers = slurm.queue()
    assert len(workers) == 2
    slurm("scancel", workers[0])
    until(lambda: workers[0] not in slurm.queue())
    with suppress(OSError):  # no reader, where that worker was the one that waited
        os.close(os.open("go", os.O_WRONLY | os.O_NONBLOCK))
    ended(held)
    assert set(spans()) == set(range(20))
    assert len(spans()) <= 21  # what the cancelled one had just finished may be done again
    assert not slurm.queue(), "a job was left behind"


@pytest.mark.parametrize("held", [WORKERS, WORKERS.replace("interface: lo, ", "")], indirect=True)
def test_scheduler_and_workers_answer_nobody_but_the_run(slurm, held):
    running = functools.partial(processes, SLURM_CONF=slurm.environment["SLURM_CONF"])
    commands = [word for process in running() for word in process.cmdline()]
    (address,) = {word for word in commands if word.startswith("tls://") and word != "tls://"}
    (keys,) = Path("r.slurm").glob(".tls-*")
    listening = assert_closed(running, address, keys, workers=2)
    assert listening == {"127.0.0.1"} or "interface" not in " ".join(held.args)
    with open("go", "w"):
        ended(held)
    assert not keys.exists()


def test_all_workers_are_preempted_and_the_run_goes_on_when_there_is_room_again(slurm, held):
    everything = ("--partition=high", f"--nodes={NODES}", "--exclusive", "--output=/dev/null")
    job = slurm("sbatch", "--parsable", *everything, "--wrap", "until [ -e over ]; do sleep 0.2; done")
    until(lambda: slurm.states(job)[job] == "RUNNING", explain=slurm.logs)
    said, patience = [], threading.Timer(120, held.kill)
    patience.start()
    while not said or "has no workers" not in said[-1]:
        said.append(held.stdout.readline())
        assert said[-1], "".join(said)
    patience.cancel()
    Path("over").touch()
    ended(held)
    assert set(spans()) == set(range(20))
    assert len(spans()) <= 22  # each may have ended between a span's last line and its receipt


def test_workers_retire_before_their_walltime_and_are_replaced(slurm, config, customized):
    customized(
        "time.sleep(3)"
    )  # storage that takes its time: two passes over twenty spans are a minute for two workers
    before = set(slurm("scontrol", "show", "job", "--oneliner", check=False).splitlines())
    command = [
        sys.executable,
        "-m",
        "dpca",
        *on(WORKERS.replace("30:00", "1:01")),
    ]  # for Slurm two minutes: of one, a slow start may take all that a worker has to retire in
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as run:
        ended(run)
    jobs = set(slurm("scontrol", "show", "job", "--oneliner").splitlines()) - before
    states = [word.split("=")[1] for job in jobs if "dask-worker" in job for word in job.split() if "JobState=" in word]
    assert len(states) >= 4
    assert (
        "COMPLETED" in states
    )  # of its own accord; those at the end of the run are cancelled, and on a slow node one may be late
    assert set(states) <= {"COMPLETED", "CANCELLED", "TIMEOUT"}
    # What a worker has in hand when it retires is done again by another.
    assert len(spans()) + len(spans("components_span")) <= 40 + len(states)


def test_a_worker_that_takes_more_memory_than_it_has(slurm, config, customized):
    customized(TOO_LARGE)
    done = dpca_process(*on(WORKERS))
    assert done.returncode == 1
    assert (
        "span 4, region [0:12, 2400:3000], was given up: every worker that took it died, 11 times over" in done.stderr
    )
    assert "for a worker, which may take 300 MiB, 60 % of the workers' limit of 500 MiB" in done.stderr
    assert "--resume goes on" in done.stderr
    customized()
    assert dpca_process("run", "c.yaml", "--resume").returncode == 0
    assert bits("r") == bits("expected")


def test_a_run_that_is_told_to_stop_leaves_no_job_behind(slurm, held):
    held.terminate()
    said = held.communicate(timeout=60)[0]
    assert held.returncode == 1
    assert "dpca: stopped by SIGTERM" in said
    assert not slurm.queue()


def test_a_job_that_holds_a_run_and_is_cancelled_takes_its_workers_along(slurm, config, customized):
    customized(HELD)
    done = dpca_process(*on(WORKERS, "submit"))
    assert done.returncode == 0, done.stderr
    job = done.stdout.split()[2].rstrip(";")
    until(Path("go").exists, explain=lambda: Path(f"r.slurm/{job}.log").read_text())
    slurm("scancel", job)
    until(lambda: not slurm.queue())
    assert json.loads(Path("r/status.json").read_text())["state"] == "interrupted"
    assert not Path("r/.lock").exists()


def test_a_job_that_holds_a_run_with_workers_of_its_own(slurm, config):
    done = dpca_process(*on(WORKERS, "submit"))
    assert done.returncode == 0, done.stderr
    until(lambda: not slurm.queue())
    assert bits("r") == bits("expected"), Path("r.slurm/1.log").read_text()


def test_to_plan_submits_nothing(slurm, config, capsys):
    assert dpca(*on(WORKERS, "plan"), "--json") == 0
    memory = json.loads(capsys.readouterr().out)["memory"]
    assert [(process["name"], process["count"]) for process in memory["processes"]] == [("client", 1), ("worker", 2)]
    assert not slurm.queue()
    assert not Path("r.slurm").exists()


def test_what_slurm_refuses_ends_the_run_at_once(slurm, config, capsys):
    assert dpca(*on(WORKERS.replace("queue: low", "queue: nowhere"))) == 1
    shown = capsys.readouterr().err
    assert "sbatch refuses the job of a worker: " in shown
    assert "see whether Slurm answers: sinfo." in shown
    assert not slurm.queue()


def test_a_walltime_in_which_no_span_would_end(config, capsys, monkeypatch):
    monkeypatch.setattr(foresight, "SPAN_SHARE", 1e-9)
    assert dpca(*on(WORKERS)) == 2
    assert "compute.cluster.slurm.walltime is 30:00, but a span of this run takes about" in capsys.readouterr().err
    assert not Path("r").exists()
