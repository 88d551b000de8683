"""Transform and reconstruct, ended and gone on with."""

import os
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest
import zarr

from dpca.execution.stage import Runner
from dpca.store import ledger
from dpca.store.fitted import Fitted
from dpca.system import lock
from tests.commands.calls import dpca
from tests.resume.disturbed import D, N, disturbed, rewrite_a_chunk, truncated
from tests.stores import random_array

pytestmark = pytest.mark.long

APPLY = """
import dpca.methods.projection
dpca.methods.projection.GROUP_SAMPLES = 3
import dpca.methods.{module} as module
original, seen = module.{task}, []
def counted(*arguments):
    number = arguments[-2]
    os.write(1, b"part %d\\n" % number)
    seen.append(number)
    if len(seen) == {at}:
        os.kill(os.getpid(), signal.{signal})
    return original(*arguments)
module.{task} = counted
"""


@pytest.mark.parametrize(("command", "name"), [("transform", "SIGTERM"), ("reconstruct", "SIGKILL")])
@pytest.mark.usefixtures("finished")
def test_transform_and_reconstruct_go_on_where_they_stopped(command, name):
    given = ("transform", "r", "x.zarr") if command == "transform" else ("reconstruct", "r")
    task = "projection_span" if command == "transform" else "reconstruction_span"
    what = APPLY.format(module="projection", task=task, at=9, signal=name)
    small = (
        what + "dpca.methods.projection.CHUNK_BYTES = 8 * 600 * 3\ndpca.methods.projection.SLAB_BYTES = 8 * 600 * 3\n"
    )
    whole = disturbed(small.replace("== 9", "== -1"), *given, "--out", "whole.zarr")
    assert whole.returncode == 0, whole.stderr
    done = disturbed(small, *given, "--out", "out.zarr", "--workers", "1")
    assert done.returncode in (1, -signal.SIGKILL), done.stderr
    assert not Path("out.zarr").exists()
    if name == "SIGTERM":
        assert "the same command again goes on from there" in done.stderr
    again = disturbed(small.replace("== 9", "== -1"), *given, "--out", "out.zarr", "--workers", "2")
    assert again.returncode == 0, again.stderr
    first, second = ([line for line in run.stdout.splitlines() if line.startswith("part")] for run in (done, again))
    assert len(first) >= 9
    assert len(set(first) & set(second)) <= 2  # what was in hand
    assert set(first) | set(second) == {line for line in whole.stdout.splitlines() if line.startswith("part")}
    for path in Path("whole.zarr").rglob("*"):
        if path.is_file():
            assert (Path("out.zarr") / path.relative_to("whole.zarr")).read_bytes() == path.read_bytes()
    assert not [entry for entry in os.listdir() if entry.startswith(".out")]


@pytest.mark.parametrize("command", ["transform", "reconstruct"])
@pytest.mark.usefixtures("finished")
def test_damaged_scores_and_samples_under_way_are_computed_again(command):
    zarr.create_array("new.zarr", data=random_array(1, (N, D), "f8"), chunks=(3, 600), dimension_names=("time", "x"))
    given = ("transform", "r", "new.zarr") if command == "transform" else ("reconstruct", "r")
    task = "projection_span" if command == "transform" else "reconstruction_span"
    at = 25 if command == "transform" else 9
    what = APPLY.format(module="projection", task=task, at=at, signal="SIGKILL")
    what += "dpca.methods.projection.CHUNK_BYTES = 8 * 600 * 3\ndpca.methods.projection.SLAB_BYTES = 8 * 600 * 3\n"
    what += "dpca.store.ledger.SHARE = 10**6\n"  # sums take the place of parts at once
    assert disturbed(what, *given, "--out", "out.zarr", "--workers", "1").returncode == -signal.SIGKILL
    files = [path for path in Path(".out.zarr.partial").glob("*/arrays/*/c/**/*") if path.is_file()]
    name = "scores" if command == "transform" else "reconstruction"
    truncated(min(path for path in files if path.parts[3] == name))
    again = disturbed(what.replace(f"== {at}", "== -1"), *given, "--out", "out.zarr")
    assert again.returncode == 0, again.stderr
    assert f"{name} is damaged" in again.stderr
    assert disturbed(what.replace(f"== {at}", "== -1"), *given, "--out", "whole.zarr").returncode == 0
    out, whole = (zarr.open_group(path, mode="r")[name][...] for path in ("out.zarr", "whole.zarr"))
    np.testing.assert_array_equal(out, whole)


def test_a_reconstruction_of_tall_data_may_go_on_with_other_workers():
    """Its parts are blocks of samples: they have to be the same whoever makes them."""
    np.save("tall.npy", random_array(0, (400, 3), "f8"))
    Path("tall.yaml").write_text("input: {uri: tall.npy}\nmodel: {n_components: 3}\noutput: {path: t}\n")
    assert dpca("run", "tall.yaml") == 0
    assert dpca("reconstruct", "t", "--out", "whole.zarr") == 0
    small = APPLY.format(module="projection", task="reconstruction_span", at=3, signal="SIGKILL")
    small += "dpca.methods.projection.CHUNK_BYTES = 8 * 3 * 10\n"
    done = disturbed(small, "reconstruct", "t", "--out", "out.zarr", "--workers", "2")
    assert done.returncode == -signal.SIGKILL
    again = disturbed(small.replace("== 3", "== -1"), "reconstruct", "t", "--out", "out.zarr", "--workers", "1")
    assert again.returncode == 0, again.stderr
    out, whole = (zarr.open_group(path, mode="r")["reconstruction"][...] for path in ("out.zarr", "whole.zarr"))
    np.testing.assert_array_equal(out, whole)


@pytest.mark.usefixtures("finished")
def test_a_transform_of_other_samples_does_not_go_on_with_those_of_before():
    small = APPLY.format(module="projection", task="projection_span", at=9, signal="SIGKILL")
    small += "dpca.methods.projection.SLAB_BYTES = 8 * 600 * 3\n"
    done = disturbed(small, "transform", "r", "x.zarr", "--out", "out.zarr", "--workers", "1")
    assert done.returncode == -signal.SIGKILL
    rewrite_a_chunk()
    assert dpca("transform", "r", "x.zarr", "--out", "out.zarr") == 0
    assert dpca("transform", "r", "x.zarr", "--out", "anew.zarr") == 0
    out, anew = (zarr.open_group(path, mode="r")["scores"][...] for path in ("out.zarr", "anew.zarr"))
    np.testing.assert_array_equal(out, anew)


@pytest.mark.usefixtures("finished")
def test_a_transform_that_ended_between_its_publication_and_its_tidying():
    """What is finished of it tells of scores that are elsewhere now."""
    assert dpca("transform", "r", "x.zarr", "--out", "whole.zarr") == 0
    what = """
import dpca.commands.apply, dpca.system.durable
move = dpca.system.durable.move
def moved(*arguments):
    move(*arguments)
    os.kill(os.getpid(), signal.SIGKILL)
dpca.system.durable.move = moved
"""
    assert disturbed(what, "transform", "r", "x.zarr", "--out", "out.zarr").returncode == -signal.SIGKILL
    whole = zarr.open_group("whole.zarr", mode="r")["scores"][...]
    np.testing.assert_array_equal(zarr.open_group("out.zarr", mode="r")["scores"][...], whole)
    assert dpca("transform", "r", "x.zarr", "--out", "out.zarr", "--overwrite") == 0
    np.testing.assert_array_equal(zarr.open_group("out.zarr", mode="r")["scores"][...], whole)


@pytest.mark.parametrize("command", ["transform", "reconstruct"])
def test_a_result_that_is_replaced_while_it_is_applied(finished, command, monkeypatch, capsys):
    given = ("transform", "r", "x.zarr") if command == "transform" else ("reconstruct", "r")
    of, seen = Fitted.of, []

    def replacing(self, *arguments):
        found = of(self, *arguments)
        if not seen:
            seen.append(1)
            done = disturbed("", "run", finished, "--overwrite", "--set", "preprocess.scale=std")
            assert done.returncode == 0, done.stderr
        return found

    monkeypatch.setattr(Fitted, "of", replacing)
    assert dpca(*given, "--out", "out.zarr", "--workers", "1") == 2
    assert "r: was replaced while it was read" in capsys.readouterr().err
    assert not Path("out.zarr").exists()
    assert dpca(*given, "--out", "out.zarr") == 0


@pytest.mark.usefixtures("finished")
def test_a_command_whose_lock_was_taken_over_publishes_nothing(monkeypatch, capsys):
    """It slept for longer than the lock lasts; another is at it now."""
    monkeypatch.setattr(lock.Lock, "held", lambda self: False)
    assert dpca("transform", "r", "x.zarr", "--out", "s.zarr") == 2
    assert "another" in capsys.readouterr().err
    assert not Path("s.zarr").exists()


@pytest.mark.parametrize("command", ["transform r x.zarr", "reconstruct r"])
@pytest.mark.usefixtures("finished")
def test_a_command_that_finds_its_files_removed_says_who_took_over(command, monkeypatch, capsys):
    """Another process ended the same command meanwhile, and left nothing of it: all, or what is just looked at."""

    def gone(path):
        shutil.rmtree(".s.zarr.partial", ignore_errors=True)
        raise FileNotFoundError(path)

    run_stage = Runner.run
    for late in ("_reads_of", "run"):
        with monkeypatch.context() as patch:
            if late == "run":
                patch.setattr(Runner, "run", lambda *given: [shutil.rmtree(".s.zarr.partial"), run_stage(*given)])
            else:
                patch.setattr(ledger, "_reads_of", gone)
            assert dpca(*command.split(), "--out", "s.zarr") == 2
        assert "another run has taken it over" in capsys.readouterr().err


CHANGING = """
import shutil
import zarr
def change(path):
    os.rename(path + '/c/0/9', 'kept')
    zarr.open_array(path, mode='r+').blocks[0, 9] = 1.0
"""


@pytest.mark.parametrize(
    ("kernel", "of", "share"),
    [("linear", "new.zarr", 8), ("linear", "new.zarr", 10**6), ("rbf", "x.zarr", 10**6), ("rbf", "new.zarr", 8)],
)
def test_what_was_read_of_changed_data_is_not_used_after_a_kill(config, kernel, of, share):
    """Of new samples or of the training data of a kernel; of a part and of a sum of parts."""
    model = [] if kernel == "linear" else ["--set", "model.kind=kernel_pca", "--set", "model.kernel=rbf"]
    assert dpca("run", config, *model) == 0
    zarr.create_array("new.zarr", data=random_array(1, (N, D), "f8"), chunks=(3, 600), dimension_names=("time", "x"))
    module, task = ("projection", "projection_span") if kernel == "linear" else ("training", "cross_span")
    what = f"import dpca.methods.training\ndpca.methods.{module}.GROUP_SAMPLES, dpca.methods.{module}.SLAB_BYTES = 3, 8 * 600 * 3\n"
    what += (
        f"dpca.store.ledger.SHARE = {share}\n"
        + CHANGING
        + APPLY.format(module=module, task=task, at=-1, signal="SIGKILL")
    )
    given = ("transform", "r", "new.zarr", "--workers", "1", "--out")
    whole = disturbed(what, *given, "whole.zarr")
    assert whole.returncode == 0
    n_parts = whole.stdout.count("part")
    assert n_parts >= 30
    at = f"seen.append(number)\n    if number == 3: change('{of}')"
    struck = what.replace("seen.append(number)", at).replace("== -1", f"== {n_parts}")
    done = disturbed(struck, *given, "out.zarr")
    assert done.returncode == -signal.SIGKILL, done.stderr
    os.replace("kept", f"{of}/c/0/9")
    again = disturbed(what, *given, "out.zarr")
    assert again.returncode == 0, again.stderr
    out, expected = (zarr.open_group(path, mode="r")["scores"][...] for path in ("out.zarr", "whole.zarr"))
    np.testing.assert_array_equal(out, expected)
