"""The scripts in workflows/slurm, as a person would use them."""

import shutil
import sys
from pathlib import Path

import pytest

from dpca.commands.submit import STOPPABLE
from tests.commands.calls import dpca_process
from tests.slurm.daemons import until
from tests.stores import bits

TEMPLATES = Path(__file__).parents[2] / "workflows" / "slurm"
SCRIPTS = sorted(path.name for path in TEMPLATES.glob("*.sbatch"))

pytestmark = pytest.mark.clusters


@pytest.fixture
def here(slurm, monkeypatch):
    """Copies to edit, and dpca on the path."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{slurm.environment['PATH']}")
    for name in SCRIPTS:
        text = (TEMPLATES / name).read_text()
        for given, ours in (
            ("scripts=workflows/slurm", "scripts=."),
            ("--cpus-per-task=16", "--cpus-per-task=2"),
            ("--mem=64G", "--mem=2G"),
            ("--mem=4G", "--mem=1G"),
            ("--mem-per-cpu=4G", "--mem-per-cpu=500M"),
            ("--ntasks=64", "--ntasks=4"),
        ):
            text = text.replace(given, ours)
        Path(name).write_text(text)


@pytest.mark.parametrize("name", SCRIPTS)
def test_slurm_takes_it(slurm, here, name):
    slurm("sbatch", "--test-only", name, "c.yaml")
    assert STOPPABLE in Path(name).read_text()


def ended(slurm):
    until(lambda: not slurm.queue(), 120, lambda: logs())
    assert Path("r/manifest.json").exists(), logs()
    assert bits("r") == bits("expected")


def logs():
    return "\n".join(path.read_text() for path in Path().glob("dpca-*.log"))


def test_an_array(slurm, config, here):
    done = dpca_process("batch", "init", "c.yaml", "--partitions", "4", "--set", "compute.memory=400MiB")
    assert done.returncode == 0, done.stderr
    array = slurm("sbatch", "--parsable", "--array=0-3", "array.sbatch", "r")
    slurm("sbatch", f"--dependency=afterany:{array}", "finalize.sbatch", "r", "0-3")
    ended(slurm)


def test_a_job(slurm, config, here):
    slurm("sbatch", "job.sbatch", "c.yaml", "--set", "compute.memory=1GiB")
    ended(slurm)


def test_a_job_step(slurm, config, here):
    shutil.copy("c.yaml", "step.yaml")
    with open("step.yaml", "a") as file:
        file.write("compute: {cluster: {slurm_runner: {workers: 2, memory: 450 MiB, interface: lo}}}\n")
    slurm("sbatch", "step.sbatch", "step.yaml")
    ended(slurm)
