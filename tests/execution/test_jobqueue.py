"""Schedulers and workers that a run starts on Slurm, started here without one: who gets an answer, and what a killed run leaves."""

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from dpca.execution.jobqueue import SlurmJobs, jobs_of
from tests.slurm.strangers import assert_closed, ports_of, processes

pytestmark = pytest.mark.long

SBATCH = """#!/bin/sh
case "$*" in *--hold*) exec echo 1;; esac
for script; do true; done
cp "$script" "$script.job"
setsid sh "$script.job" >/dev/null 2>&1 </dev/null &
echo $!
"""
SCANCEL = """#!/bin/sh
[ "$1" = 1 ] || for job; do kill -- -"$job"; done
"""
TASK = """
import sys
from dpca.execution.jobqueue import SlurmStep, joined
with joined(SlurmStep(workers=1, cores=1, memory=10**9, interface="lo", logs="r.slurm")) as executor:
    print(executor.client.scheduler_info()["address"], flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def commands(tmp_path, monkeypatch):
    """Commands of Slurm that start a job on this machine, and end it."""
    place = tmp_path / "bin"
    place.mkdir()
    for name, script in (("sbatch", SBATCH), ("scancel", SCANCEL)):
        (place / name).write_text(script)
        (place / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{place}:{os.environ['PATH']}")
    monkeypatch.setenv("OF_TEST", str(tmp_path))


def test_jobs_answer_nobody_but_the_run_and_a_killed_run_s_key_is_removed(commands):
    before = ports_of([psutil.Process()])
    left = Path("r.slurm/.tls-left")
    left.mkdir(parents=True)
    with jobs_of(SlurmJobs(cores=1, memory=10**9, walltime="30:00", maximum=1, interface="lo", logs="r.slurm")) as run:
        run.client.wait_for_workers(1, timeout=60)
        (keys,) = Path("r.slurm").glob(".tls-*")
        assert keys != left
        assert ports_of([psutil.Process()]) > before
        address = run.client.scheduler_info()["address"]
        of_test = os.environ["OF_TEST"]
        assert_closed(lambda: [psutil.Process(), *processes(OF_TEST=of_test)], address, keys, workers=1)
        assert not run.alive().dashboard
    assert not keys.exists()


def test_tasks_of_a_job_step_answer_nobody_but_the_run(tmp_path):
    how = {"OF_TEST": str(tmp_path), "SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_NTASKS": "3"}
    tasks = [
        subprocess.Popen(
            [sys.executable, "-c", TASK],
            env={**os.environ, **how, "SLURM_PROCID": str(rank)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(3)
    ]
    try:
        address = tasks[1].stdout.readline().strip()
        (keys,) = Path("r.slurm").glob(".tls-*")
        assert_closed(lambda: processes(**how), address, keys, workers=1)
    finally:
        said = [task.communicate(timeout=60)[0] for task in (tasks[1], tasks[0], tasks[2])]
    assert said == ["", "", ""]
    assert not keys.exists()
