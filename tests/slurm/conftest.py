"""A Slurm for the tests here, started once; they skip where it is not installed, and fail for that in CI."""

import os

import pytest

from tests.slurm import daemons


@pytest.fixture(scope="session")
def slurm(tmp_path_factory):
    absent = daemons.missing()
    if absent:
        if os.environ.get("DPCA_NEEDS_SLURM"):
            pytest.fail(f"not installed: {', '.join(absent)}")
        pytest.skip(f"needs Slurm and munge (not installed: {', '.join(absent)})")
    if os.geteuid() != 0:
        pytest.skip("a Slurm of the test's own needs root")
    with daemons.slurm(tmp_path_factory.mktemp("slurm") / "cluster") as cluster:
        yield cluster
