"""A scheduler on one host, workers on two others: what travels, and what becomes of a run when a link is cut."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.customized import spans
from tests.slurm.daemons import until
from tests.stores import bits

pytestmark = pytest.mark.clusters

SCHEDULER = ("-m", "distributed.cli.dask_scheduler", "--host", "10.77.0.1", "--scheduler-file", "scheduler.json")
WORKER = ("-m", "distributed.cli.dask_worker", "--scheduler-file", "scheduler.json", "--nthreads", "1", "--no-nanny")
HERE = ("--dashboard-address", "127.0.0.1:0")
ON = ("--set", "compute.cluster={scheduler_file: scheduler.json}")
HELD = "if span == 4 and once('held'):\n            open('where', 'w').write(os.environ['HOST']); os.mkfifo('go'); open('go').close()"


@pytest.fixture
def cluster(hosts, config):
    """As many workers as are started."""
    quiet = {"stderr": subprocess.DEVNULL}
    hosts.start("scheduler", *SCHEDULER, *HERE, **quiet)
    until(Path("scheduler.json").exists)

    def start(*names):
        for host in names:
            hosts.start(host, *WORKER, *HERE, **quiet)
        hosts.start(
            "scheduler",
            "-c",
            f"from distributed import Client; Client(scheduler_file='scheduler.json').wait_for_workers({len(names)}, 60)",
        ).wait()

    return start


def run(hosts):
    return hosts.start("scheduler", "-m", "dpca", "run", "c.yaml", *ON, stderr=subprocess.PIPE, text=True)


def ended(running):
    said = running.communicate(timeout=200)[1]
    assert running.returncode == 0, said
    assert bits("r") == bits("expected")


def test_little_travels_and_it_is_in_the_manifest(hosts, cluster):
    cluster("one", "two")
    ended(run(hosts))
    network = json.loads(Path("r/manifest.json").read_text())["network"]
    assert network.keys() == {"gram in double", "components"}
    assert all(0 < sum(traffic.values()) < 20_000 for traffic in network.values()), network


def test_a_host_that_is_cut_off_in_the_middle(hosts, cluster, customized):
    customized(HELD)
    cluster("one", "two")
    running = run(hosts)
    until(Path("go").exists)
    hosts.cut(Path("where").read_text())
    ended(running)
    assert spans() == list(range(20))


def test_a_host_that_comes_when_the_only_one_is_cut_off(hosts, cluster, customized):
    customized(HELD)
    cluster("one")
    running = run(hosts)
    until(Path("go").exists)
    hosts.cut("one")
    hosts.start("two", *WORKER, *HERE, stderr=subprocess.DEVNULL)
    ended(running)
