"""Kernel PCA, ended and gone on with: the pass, the eigensolves of a sweep, transform and reconstruct."""

import json
import os
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest
import zarr

from dpca.methods import first_pass
from tests.commands.calls import dpca
from tests.resume.disturbed import at_slab, disturbed, killed, parts, truncated
from tests.stores import bits

pytestmark = pytest.mark.long

SWEEP = (
    "input: {uri: x.zarr}\n"
    "model: {kind: kernel_pca, kernel: [rbf, poly], gamma: [1e-4, median], n_components: 3}\n"
    "output: {path: r}\n"
)


@pytest.fixture
def sweep(config):
    Path(config).write_text(SWEEP)
    return config


def test_a_sweep_that_was_killed_has_the_same_bits(sweep):
    assert dpca("run", sweep) == 0
    expected = bits("r")
    shutil.rmtree("r")
    killed(sweep, slab=7)
    before = parts()
    assert before
    assert dpca("run", sweep, "--resume") == 0
    assert bits("r") == expected


def test_eigensolves_that_ended_are_not_done_again(sweep):
    """Killed at the third of four kernels."""
    assert dpca("run", sweep) == 0
    expected = bits("r")
    shutil.rmtree("r")
    third = """
import dpca.kernels.cases as cases
original, seen = cases.eigh, []
def counted(*arguments, **named):
    seen.append(1)
    if len(seen) == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return original(*arguments, **named)
cases.eigh = counted
"""
    assert disturbed(third, "run", sweep).returncode == -signal.SIGKILL
    done = disturbed(third.replace("== 3", "== 4") + "\n", "run", sweep, "--resume")
    assert done.returncode == 0, done.stderr  # two were left
    assert bits("r") == expected


def test_a_kernel_that_overflows_costs_no_reading(sweep, capsys, monkeypatch):
    """Other kernels of the model go on with what was summed up."""
    assert dpca("run", sweep, "--set", "model.kernel=poly", "--set", "model.gamma=1e300") == 2
    assert "overflows" in (error := capsys.readouterr().err)
    assert "What is finished is kept" in error
    with monkeypatch.context() as without:
        without.setattr(first_pass, "first_span_of_features", None)  # nothing is read again
        assert dpca("run", sweep, "--resume") == 0
    assert json.loads(Path("r/manifest.json").read_text())["config"]["model"]["kernel"] == ["rbf", "poly"]
    found = bits("r")
    shutil.rmtree("r")
    assert dpca("run", sweep) == 0
    assert bits("r") == found


def test_what_the_gram_matrix_is_of_may_not_change(sweep, capsys):
    done = disturbed(at_slab(7, "os.kill(os.getpid(), signal.SIGTERM)"), "run", sweep)
    assert done.returncode == 1
    assert dpca("run", sweep, "--resume", "--set", "preprocess.scale=std") == 2
    assert "the config changed since the run began: preprocess.scale" in capsys.readouterr().err


APPLY = """
import dpca.methods.training as module
module.GROUP_SAMPLES = 4
original, seen = module.{task}, []
def counted(*arguments):
    number = arguments[-2]
    os.write(1, b"part %d\\n" % number)
    seen.append(number)
    if len(seen) == {at}:
        os.kill(os.getpid(), signal.SIGKILL)
    return original(*arguments)
module.{task} = counted
module.SLAB_BYTES = 60_000
"""


@pytest.mark.parametrize("command", ["transform", "reconstruct"])
def test_transform_and_reconstruct_go_on_where_they_stopped(config, command):
    model = "{kind: kernel_pca, kernel: rbf, gamma: median, n_components: 3, fit_inverse_transform: true}"
    Path(config).write_text(f"input: {{uri: x.zarr}}\nmodel: {model}\noutput: {{path: r}}\n")
    assert dpca("run", config) == 0
    given = ("transform", "r", "x.zarr") if command == "transform" else ("reconstruct", "r")
    task = "cross_span" if command == "transform" else "preimage_span"
    never, ninth = (APPLY.format(task=task, at=at) for at in (-1, 9))
    whole = disturbed(never, *given, "--out", "whole.zarr")
    assert whole.returncode == 0, whole.stderr
    done = disturbed(ninth, *given, "--out", "out.zarr", "--workers", "1")
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert not Path("out.zarr").exists()
    if command == "reconstruct":
        truncated(min(path for path in Path(".out.zarr.partial").glob("*/arrays/*/c/**/*") if path.is_file()))
    again = disturbed(never, *given, "--out", "out.zarr", "--workers", "2")
    assert again.returncode == 0, again.stderr
    first, second, every = (
        {line for line in run.stdout.splitlines() if line.startswith("part")} for run in (done, again, whole)
    )
    assert len(first) >= 9
    assert len(first & second) <= 2 + (command == "reconstruct")  # what was in hand, and what is damaged
    assert first | second == every
    for path in Path("whole.zarr").rglob("*"):
        if path.is_file():
            assert (Path("out.zarr") / path.relative_to("whole.zarr")).read_bytes() == path.read_bytes()
    assert not [entry for entry in os.listdir() if entry.startswith(".out")]


def test_a_result_that_was_not_published_is_of_the_kernel_that_is_asked_for(sweep):
    """Begun as one kernel, ended as another but for its last step, and asked for as the first again."""
    rbf, poly = ("--set", "model.kernel=rbf"), ("--set", "model.kernel=poly")
    assert dpca("run", sweep, *rbf, "--set", "output.path=expected") == 0
    killed(sweep, slab=7, how=rbf)
    publish_fails = (
        "import dpca.store.directory\ndpca.store.directory.ResultDirectory.publish = lambda *_: os._exit(9)\n"
    )
    assert disturbed(publish_fails, "run", sweep, "--resume", *poly).returncode == 9
    assert dpca("run", sweep, "--resume", *rbf) == 0
    assert bits("r") == bits("expected")


OTHER_KERNELS = {
    "one of a sweep": ("[rbf, poly]", "rbf"),
    "a kernel of fewer components": ("[rbf, poly]", "[linear, rbf]"),
    "a matrix that is given": ("linear", "precomputed"),
}


@pytest.mark.parametrize("kind", OTHER_KERNELS)
def test_nothing_is_left_of_kernels_that_a_run_was_begun_with(sweep, kind):
    """It ended when all of their arrays were written."""
    points = np.random.default_rng(0).standard_normal((12, 2))
    np.save("x.npy", points @ points.T)
    before, after = OTHER_KERNELS[kind]
    ends = "import dpca.commands.run\ndpca.commands.run.manifest_of = lambda *_, **__: os._exit(9)\n"
    model = "model={{kind: kernel_pca, n_components: 3, gamma: null, kernel: {}}}"
    given = ("--set", "input.uri=x.npy")
    assert dpca("run", sweep, *given, "--set", model.format(after), "--set", "output.path=expected") == 0
    assert disturbed(ends, "run", sweep, *given, "--set", model.format(before)).returncode == 9
    assert dpca("run", sweep, *given, "--set", model.format(after), "--resume") == 0
    assert bits("r") == bits("expected")


def test_a_run_that_was_reading_goes_on_from_a_kept_gram_matrix(sweep):
    """Means and scales are the kept result's, in its chunks."""
    scaled = ("--set", "preprocess.scale=std", "--set", "model={kind: kernel_pca, kernel: linear}")
    assert dpca("run", sweep, *scaled, "--set", "output.path=full") == 0
    killed(sweep, slab=7, how=scaled)
    assert dpca("run", sweep, *scaled, "--resume", "--from-gram", "full") == 0
    assert dpca("transform", "r", "x.zarr", "--out", "s.zarr") == 0
    found, expected = (zarr.open_array(path, mode="r")[...] for path in ("s.zarr/scores", "r/result.zarr/scores"))
    np.testing.assert_allclose(found, expected, atol=1e-9)
    for name in ("mean", "scale"):
        pair = (zarr.open_array(f"{path}/result.zarr/{name}", mode="r")[...] for path in ("r", "full"))
        np.testing.assert_array_equal(*pair)
