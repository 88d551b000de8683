"""Job arrays on a real Slurm: from stage to stage by themselves, with tasks killed, requeued and run twice."""

import os
import sys
from pathlib import Path

import pytest
import zarr

from tests.commands.calls import dpca, dpca_process
from tests.stores import random_array
from tests.test_crashes import bits

pytestmark = pytest.mark.alone

DPCA = [sys.executable, "-m", "dpca"]


@pytest.fixture
def config(monkeypatch, slurm):
    """Four spans."""
    zarr.create_array("x.zarr", data=random_array(0, (16, 64_000), "f8"), chunks=(16, 4000))
    Path("c.yaml").write_text("input: {uri: x.zarr}\nmodel: {n_components: 3}\noutput: {path: r}\n")
    monkeypatch.setenv("PATH", slurm.environment["PATH"])
    monkeypatch.setenv("SLURM_CONF", slurm.environment["SLURM_CONF"])
    assert dpca("run", "c.yaml", "--set", "output.path=expected") == 0
    return "c.yaml"


def submitted(config):
    """What was said, in words. In a process of its own, whose memory is the plan's."""
    done = dpca_process("submit", config, "--partitions", "8")
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def ended(slurm, words):
    """Wait for what was submitted, and all that follows it; the states of all tasks."""
    array, last = words[words.index("array") + 1].rstrip(","), words[words.index("and") + 1]
    states = []
    while not Path("r/manifest.json").exists():
        states += [*slurm.wait(array).values(), *slurm.wait(last).values()]
        assert states[-1] == "COMPLETED", (states, slurm.logs(), logs())
        following = sorted(int(job) for job in slurm("squeue", "-h", "-o", "%A").split())
        if following:
            array, last = following[0], following[-1]
    return states


def logs():
    return "\n".join(path.read_text() for path in Path("r.slurm").glob("*.log"))


def test_scripts_are_what_sbatch_takes(slurm, config, capsys):
    assert dpca("submit", config, "--dry-run", "--partitions", "8", "--sbatch=--partition=high") == 0
    printed = capsys.readouterr().out
    assert not Path("r").exists()
    assert not Path("r.slurm").exists()
    for text in printed.split("# " + os.path.abspath("r.slurm"))[1:]:
        name, _, script = text.partition("\n")
        Path("script").write_text(script)
        slurm("sbatch", "--test-only", "script")
        assert "#SBATCH --partition=high" in script, name


def test_a_run_goes_on_by_itself_to_the_bits_of_a_run(slurm, config):
    assert set(ended(slurm, submitted(config))) == {"COMPLETED"}
    assert bits("r") == bits("expected")


def test_sbatch_that_is_not_there(config, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    done = dpca_process("submit", config)
    assert done.returncode == 1
    assert "sbatch is not here" in done.stderr
