"""A job that holds a run: on its own cores, or with workers in its tasks; it meets its walltime, or is preempted."""

import json
from pathlib import Path

import pytest

from tests.commands.calls import dpca_process
from tests.customized import spans
from tests.slurm.daemons import NODES, until
from tests.slurm.strangers import assert_closed, processes
from tests.slurm.test_array import RUNNER
from tests.stores import bits

pytestmark = pytest.mark.clusters

SLOW = "'SLURM_RESTART_COUNT' in os.environ or time.sleep(3.5)"
"""Storage that takes its time, until the job comes again: one pass over twenty spans would be more than a minute."""


def submitted(*how):
    done = dpca_process("submit", "c.yaml", *how)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()[2].rstrip(";")


def log(job):
    path = Path(f"r.slurm/{job}.log")
    return path.read_text() if path.exists() else ""


def restarts(slurm, job):
    words = dict(word.split("=", 1) for word in slurm("scontrol", "show", "job", job).split() if "=" in word)
    return int(words["Restarts"])


def test_a_walltime_of_one_minute_for_more_than_one(slurm, config, customized):
    customized(SLOW)
    limits = ("--sbatch=--time=1", "--sbatch=--signal=B:USR1@15")
    job = submitted("--as", "job", "--set", "compute.workers=1", *limits)
    states = slurm.wait(job, 600)
    assert set(states.values()) == {"COMPLETED"}, log(job)
    assert bits("r") == bits("expected")
    assert spans() == spans("components_span") == list(range(20))
    assert restarts(slurm, job) >= 1
    assert "dpca: stopped by SIGUSR1" in log(job)
    assert "spans were finished before" in log(job)


def test_a_job_that_is_preempted_comes_again_and_goes_on(slurm, config, customized):
    customized("if span == 10 and once('held'):\n            os.mkfifo('go'); open('go').close()")
    job = submitted("--as", "job", "--set", "compute.workers=1")
    until(Path("go").exists, explain=lambda: log(job))
    everything = ("--partition=high", f"--nodes={NODES}", "--exclusive", "--output=/dev/null")
    slurm("sbatch", *everything, "--wrap", "true")
    assert set(slurm.wait(job).values()) == {"COMPLETED"}, log(job)
    assert restarts(slurm, job) == 1
    assert "spans were finished before" in log(job)
    assert bits("r") == bits("expected")
    assert spans() == list(range(20))


def test_a_result_whose_path_has_a_blank(slurm, config):
    job = submitted("--as", "job", "--set", "output.path=my results/the first")
    assert set(slurm.wait(job).values()) == {"COMPLETED"}
    assert bits("my results/the first") == bits("expected")
    assert "certificate" in Path(f"my results/the first.slurm/{job}.log").read_text()


def test_workers_in_the_tasks_of_a_job(slurm, config):
    job = submitted("--set", RUNNER)
    assert set(slurm.wait(job).values()) == {"COMPLETED"}, log(job)
    assert bits("r") == bits("expected")
    assert [path.name for path in Path("r.slurm").iterdir() if path.name != "job.sbatch"] == [f"{job}.log"]


def test_a_scheduler_that_dies(slurm, config, customized):
    customized("if span == 10 and once('held'):\n            os.mkfifo('go'); open('go').close()")
    job = submitted("--set", RUNNER)
    until(Path("go").exists, explain=lambda: log(job))
    (scheduler,) = processes(SLURM_JOB_ID=job, SLURM_PROCID="0")
    (written,), (keys,) = Path("r.slurm").glob("scheduler-*"), Path("r.slurm").glob(".tls-*")
    address = json.loads(written.read_text())["address"]
    assert_closed(lambda: processes(SLURM_JOB_ID=job), address, keys, workers=2)
    scheduler.kill()
    assert set(slurm.wait(job).values()) == {"FAILED"}, log(job)
    done = dpca_process("run", "c.yaml", "--resume")
    assert done.returncode == 0, done.stderr
    assert "spans were finished before" in done.stderr
    assert bits("r") == bits("expected")
