"""Workers of a cluster that die, and tasks that come late."""

import os
import shutil
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import dask
import numpy as np
import pytest
from distributed import Client

from dpca.execution.executors import Distributed
from tests.clusters import local_cluster
from tests.commands.calls import dpca, dpca_process
from tests.customized import customized, twenty_spans
from tests.resume.disturbed import disturbed, killed, parts
from tests.slurm.daemons import until
from tests.stores import bits

__all__ = ["customized"]

pytestmark = pytest.mark.alone

POISON = """
import os, signal, threading
import dpca.methods.spans
original = dpca.methods.spans.first_span_of_features
def poisoned(work, span, report):
    if span == 4 and (not os.path.exists({flag!r}) or {always}):
        open({flag!r}, "w").close()
        {act}
    return original(work, span, report)
"""
ACTS = {
    "killed": "os.kill(os.getpid(), signal.SIGKILL)",
    "killed while it writes": "import dpca.system.durable\n        dpca.system.durable.DISK.rename = lambda *_: os.kill(os.getpid(), signal.SIGKILL)",
    # What the nanny ends at its next look: more than the limit, held until then.
    "over its memory": "held = b'x' * 600_000_000\n        threading.Event().wait()",
    # Until somebody opens the other end.
    "hangs": "os.mkfifo({flag!r} + '.go')\n        open({flag!r} + '.go').close()",
}
PATCH = """
sys.path.insert(0, os.getcwd())
import dpca.methods.first_pass, poison
dpca.methods.first_pass.first_span_of_features = poison.poisoned
"""


@pytest.fixture
def cluster(tmp_path):
    """Two workers, for one test: a span that hangs holds one of them, and the other goes on."""
    # 15 seconds after a death, Dask gives a worker up that is not there at that moment: dead again, and not yet started again.
    patient = dask.config.set({"distributed.deploy.lost-worker-timeout": "1 h"})
    with patient, local_cluster(tmp_path / "dask", memory_limit="500 MB") as cluster:
        yield cluster


@pytest.fixture
def poisoned(cluster, tmp_path):
    """Runs on the cluster, with a span that does something to its worker."""

    def start(what, always=False, client=""):
        flag = str(tmp_path / "flag")
        act = ACTS[what].format(flag=flag)
        Path("poison.py").write_text(POISON.format(flag=flag, always=always, act=act))
        with cluster.get_client() as asking:
            asking.upload_file("poison.py")
        return disturbed(PATCH + client, "run", "c.yaml", *place, *on_cluster)

    place = ("--set", f"input.uri={os.path.abspath('x.zarr')}")
    on_cluster = ("--set", f"compute.cluster={{scheduler: '{cluster.scheduler_address}'}}")
    return start


def resumed():
    return dpca("run", "c.yaml", "--resume", "--set", f"input.uri={os.path.abspath('x.zarr')}")


@pytest.mark.parametrize("what", ["killed", "killed while it writes", "over its memory"])
def test_the_span_of_a_worker_that_dies_is_done_again_elsewhere(undisturbed, poisoned, what):
    done = poisoned(what)
    assert done.returncode == 0, done.stderr
    assert bits("r") == undisturbed


@pytest.mark.parametrize("what", ["killed", "over its memory"])
def test_a_span_that_ends_every_worker_ends_the_run_and_nothing_else(undisturbed, poisoned, cluster, what):
    done = poisoned(what, always=True)
    assert done.returncode == 1
    assert "was given up: every worker that took it died, 4 times over" in done.stderr
    # Dask may give up a span that the same workers had: then the message names this one beside it.
    assert "span 4, region [0:12, 2400:3000]" in done.stderr
    assert "--resume goes on" in done.stderr
    assert parts()
    with cluster.get_client() as client:
        client.wait_for_workers(2, timeout=60)
        assert client.submit(sum, [1, 2]).result(timeout=60) == 3
    assert resumed() == 0
    assert bits("r") == undisturbed


def test_what_all_tasks_share_outlives_the_worker_that_holds_it(cluster):
    alpha = np.arange(2.0**21).reshape(2**20, 2)  # 16 MiB, which Dask would warn about
    with cluster.get_client() as client, Distributed(client).session(lambda _: None, 2) as session:
        shared = session.share(alpha)
        client.gather(session.submit(lambda value, report: None, shared))
        while holders := [worker for found in client.who_has(shared).values() for worker in found]:
            client.run(lambda: os.kill(os.getpid(), signal.SIGKILL), workers=holders[:1], on_error="ignore")
            if holders[0] not in client.scheduler_info()["workers"]:
                break
        found = session.submit(lambda value, report: value.sum(), shared).result(timeout=60)
    assert found == alpha.sum()


STOP = """
import dpca.execution.progress
advance, seen = dpca.execution.progress.Progress.advance, []
def counting(self, n_bytes):
    seen.append(1)
    if len(seen) == 5:
        os.kill(os.getpid(), signal.{name})
    advance(self, n_bytes)
dpca.execution.progress.Progress.advance = counting
"""


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_a_signal_on_a_cluster_is_answered_though_a_span_hangs_and_that_comes_too_late(
    undisturbed, poisoned, cluster, name, tmp_path
):
    done = poisoned("hangs", client=STOP.format(name=name))
    assert done.returncode == (130 if name == "SIGINT" else 1), done.stderr
    assert f"dpca: stopped by {name}" in done.stderr
    assert dpca("run", "c.yaml", "--overwrite", "--set", "preprocess.scale=std", "--set", "output.path=std") == 0
    expected = bits("std")
    # Another run in the same directory, under way, when the span of the first goes on.
    shutil.rmtree("r/.lock", ignore_errors=True)
    killed("c.yaml", 14, how=("--overwrite", "--set", "preprocess.scale=std"))
    before = {path: path.read_bytes() for path in Path("r").rglob("*") if path.is_file()}
    os.close(os.open(tmp_path / "flag.go", os.O_WRONLY | os.O_NONBLOCK))  # an error if no span waits for it
    with cluster.get_client() as client:
        # Each worker has one thread: what is asked of it now is answered when that has come to its end.
        asked = [client.submit(sum, [1], workers=[worker], pure=False) for worker in client.scheduler_info()["workers"]]
        assert client.gather(asked) == [1, 1]
    assert {path: path.read_bytes() for path in Path("r").rglob("*") if path.is_file()} == before
    assert dpca("run", "c.yaml", "--resume", "--set", "preprocess.scale=std") == 0
    assert bits("r") == expected


def test_a_scheduler_that_dies_ends_the_run_with_one_error(customized, tmp_path):
    twenty_spans()
    customized("if span == 4 and once('held'):\n            os.mkfifo('go'); open('go').close()")
    here = ("--host", "127.0.0.1", "--dashboard-address", "127.0.0.1:0", "--scheduler-file", "s.json")
    cluster = (("scheduler", "--port", "0"), ("worker", "--no-nanny", "--nthreads", "1"))
    on = ("--set", "compute.cluster={scheduler_file: s.json}")
    with ExitStack() as stack:

        def started(*command, **how):
            process = stack.enter_context(subprocess.Popen([sys.executable, "-m", *command], **how))
            stack.callback(process.kill)
            return process

        scheduler, _ = (
            started(f"distributed.cli.dask_{name}", *how, *here, stderr=subprocess.DEVNULL) for name, *how in cluster
        )
        until(Path("s.json").exists)
        with Client(scheduler_file="s.json", set_as_default=False) as client:
            client.wait_for_workers(1)
        run = started("dpca", "run", "c.yaml", *on, stderr=subprocess.PIPE, text=True)
        until(Path("go").exists)
        scheduler.kill()
        said = run.communicate(timeout=100)[1]
    assert run.returncode == 1
    lines = [line for line in said.splitlines() if not line.startswith("dpca: gram") and "dashboard" not in line]
    assert lines[0].startswith("dpca: error: the scheduler at tcp://127.0.0.1:")
    assert lines[-1].endswith(" --resume goes on.")
    assert all(line.startswith("dpca: error: ") for line in lines[:-1])
    assert dpca_process("run", "c.yaml", "--resume").returncode == 0
    assert bits("r") == bits("expected")
