"""Job arrays on a real Slurm: from stage to stage by themselves, with tasks killed, requeued and run twice."""

import os
from pathlib import Path

import pytest

from tests.commands.calls import dpca, dpca_process
from tests.customized import spans
from tests.slurm.daemons import until
from tests.stores import bits

pytestmark = pytest.mark.clusters


def submitted(config, *how):
    """Numbers of the array and of what follows it. In a process of its own, whose memory is the plan's."""
    done = dpca_process("submit", config, "--partitions", "8", *how)
    assert done.returncode == 0, done.stderr
    words = done.stdout.split()
    return words[words.index("array") + 1].rstrip(","), words[words.index("and") + 1]


def ended(slurm, array, last):
    """Wait for what was submitted, and all that follows it; the states of all tasks."""
    states = []
    while not Path("r/manifest.json").exists():
        states += [*slurm.wait(array).values(), *slurm.wait(last).values()]
        assert states[-1] == "COMPLETED", (states, slurm.logs(), logs())
        following = slurm.queue()
        if following:
            array, last = following[0], following[-1]
    return states


def logs():
    return "\n".join(path.read_text() for path in Path("r.slurm").glob("*.log"))


def test_a_run_goes_on_by_itself_to_the_bits_of_a_run(slurm, config):
    array, last = submitted(config, "--at-once", "2")
    assert "ArrayTaskThrottle=2" in slurm("scontrol", "show", "job", array)
    assert set(ended(slurm, array, last)) == {"COMPLETED"}
    assert bits("r") == bits("expected")
    assert spans() == spans("components_span") == list(range(20))


def test_the_passes_of_block_krylov_follow_each_other_to_the_bits_of_a_run(slurm, config):
    how = ("--set", "model.svd_solver=block_krylov")
    assert dpca("run", config, *how, "--set", "output.path=krylov") == 0
    assert set(ended(slurm, *submitted(config, *how))) == {"COMPLETED"}
    assert bits("r") == bits("krylov")


def test_a_task_that_is_killed_and_requeued_and_one_that_runs_twice(slurm, config, customized):
    customized("if span == 10 and once('held'):\n            os.mkfifo('go'); open('go').close()")
    array, last = submitted(config)
    until(Path("go").exists, explain=logs)
    slurm("scontrol", "requeue", f"{array}_2")  # spans 2, 10 and 18
    assert dpca_process("batch", "partition", "r", "--index", "2").returncode == 0
    assert dpca_process("batch", "partition", "r", "--index", "5").returncode == 0
    ended(slurm, array, last)
    assert bits("r") == bits("expected")
    assert set(spans()) == set(range(20))
    assert "were there" in logs()


def test_going_on_has_the_partitions_it_was_begun_with(slurm, config, capsys):
    assert dpca_process("batch", "init", config, "--partitions", "8").returncode == 0
    assert dpca("submit", config, "--partitions", "4") == 2
    assert "--partitions is 4, but the run under way in r was begun with 8" in capsys.readouterr().err
    assert dpca("submit", config, "--set", "preprocess.center=false") == 2
    assert "was begun with no --set" in capsys.readouterr().err
    done = dpca_process("submit", config)
    assert done.returncode == 0, done.stderr
    words = done.stdout.split()
    ended(slurm, words[words.index("array") + 1].rstrip(","), words[words.index("and") + 1])
    assert bits("r") == bits("expected")


def test_an_array_that_nothing_would_follow_is_cancelled(slurm, config, tmp_path, monkeypatch):
    """The second time sbatch is asked, it refuses."""
    (tmp_path / "bin").mkdir()
    stub = tmp_path / "bin" / "sbatch"
    real = slurm("which", "sbatch")
    stub.write_text(
        f'#!/bin/sh\n[ -e once ] && {{ echo "no more jobs" >&2; exit 1; }}\ntouch once\nexec {real} --hold "$@"\n'
    )
    stub.chmod(0o755)
    monkeypatch.setenv("PATH", f"{stub.parent}:{os.environ['PATH']}")
    done = dpca_process("submit", config, "--partitions", "8")
    assert done.returncode == 1
    assert "finalize.sbatch: no more jobs" in done.stderr
    until(lambda: not slurm.queue())


def test_sbatch_that_is_not_there(config, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    done = dpca_process("submit", config)
    assert done.returncode == 1
    assert "sbatch is not here" in done.stderr


RUNNER = "compute.cluster={slurm_runner: {workers: 2, memory: 500 MiB, interface: lo}}"
JOBS = "compute.cluster={slurm: {cores: 1, memory: 500 MiB, walltime: '30:00', interface: lo, maximum: 2}}"


@pytest.mark.parametrize(
    "how",
    [("--partitions", "8"), ("--as", "job"), ("--set", RUNNER), ("--set", JOBS)],
    ids=["array", "job", "runner", "jobs"],
)
def test_scripts_are_what_sbatch_takes(slurm, config, capsys, how):
    assert dpca("submit", config, "--dry-run", *how, "--sbatch=--partition=high") == 0
    printed = capsys.readouterr().out
    assert not Path("r").exists()
    assert not Path("r.slurm").exists()
    scripts = printed.split("# " + os.path.abspath("r.slurm"))[1:]
    assert len(scripts) == (2 if how[0] == "--partitions" else 1)
    for text in scripts:
        name, _, script = text.partition("\n")
        Path("script").write_text(script)
        slurm("sbatch", "--test-only", "script")
        for line in ("--partition=high", "--signal=B:USR1@120", "--requeue", "--output="):
            assert f"#SBATCH {line}" in script, name


@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        (("--as", "array", "--set", RUNNER), "a job array needs no cluster, but compute.cluster is not local"),
        (("--as", "job", "--partitions", "3"), "--partitions is 3, but a job is no array"),
    ],
)
def test_what_contradicts_itself(config, how, sentence, capsys):
    assert dpca("submit", config, *how) == 2
    assert sentence in capsys.readouterr().err
