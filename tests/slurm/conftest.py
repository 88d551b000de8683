"""A Slurm for the tests here, started once; they skip where it is not installed, and fail for that in CI."""

import os

import pytest

from tests.customized import customized, twenty_spans
from tests.made import made
from tests.slurm import daemons

__all__ = ["customized"]


@pytest.fixture(scope="session")
def cluster(tmp_path_factory):
    absent = daemons.missing()
    if absent:
        if os.environ.get("DPCA_NEEDS_CLUSTERS"):
            pytest.fail(f"not installed: {', '.join(absent)}")
        pytest.skip(f"needs Slurm and munge (not installed: {', '.join(absent)})")
    if os.geteuid() != 0:
        pytest.skip("a Slurm of the test's own needs root")
    with daemons.slurm(tmp_path_factory.mktemp("slurm") / "cluster") as cluster:
        yield cluster


@pytest.fixture
def slurm(cluster, monkeypatch):
    """The cluster, for this process and what it starts; nothing of a test is left in it."""
    for name in ("PATH", "SLURM_CONF"):
        monkeypatch.setenv(name, cluster.environment[name])
    yield cluster
    cluster("scancel", "--user=root")
    daemons.until(lambda: not cluster.queue())


@pytest.fixture
def config(slurm, customized):
    """Twenty spans, and the result of a run on them."""
    made(twenty_spans)
    return "c.yaml"
