"""Runs that are ended by signals, kills and faults, and gone on with."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import zarr
from distributed import LocalCluster

from dpca import durable, steps
from dpca.config import load
from dpca.ledger import Damaged, Ledger
from dpca.run import run
from tests.commands.calls import dpca
from tests.stores import random_array
from tests.test_crashes import bits

N, D = 12, 6000


@pytest.fixture
def config(monkeypatch):
    """Ten spans of one slab each: float64, whose sums would tell another order."""
    zarr.create_array("x.zarr", data=random_array(0, (N, D), "f8"), chunks=(N, 600), dimension_names=("time", "x"))
    Path("c.yaml").write_text("input: {uri: x.zarr}\nmodel: {n_components: 3}\noutput: {path: r}\n")
    in_small_slabs(monkeypatch)
    return "c.yaml"


def in_small_slabs(monkeypatch):
    monkeypatch.setattr("dpca.slabs.TILE_WIDTH", 1)
    monkeypatch.setattr("dpca.planning.SLAB_BYTES", 60_000)


@pytest.fixture
def undisturbed(config):
    assert dpca("run", config) == 0
    found = bits("r")
    shutil.rmtree("r")
    return found


START = """
import os, signal, sys, threading
import dpca.slabs, dpca.passes, dpca.durable
import dpca.planning
dpca.slabs.TILE_WIDTH, dpca.planning.SLAB_BYTES = 1, 60_000
"""
END = """
from dpca.cli import main
main(sys.argv[1:])
"""


def disturbed(what, *arguments, start=START):
    """`dpca` in a process of its own, after some Python."""
    Path("disturbed.py").write_text(start + what + END)
    command = [sys.executable, "disturbed.py", *arguments]
    return subprocess.run(command, capture_output=True, text=True)


AT_SLAB = """
panels, seen = dpca.passes.FeaturePanels.panels, []
def counting(self, raw):
    seen.append(1)
    if len(seen) == {slab}:
        {action}
    yield from panels(self, raw)
dpca.passes.FeaturePanels.panels = counting
"""


def at_slab(slab, action):
    return AT_SLAB.format(slab=slab, action=action)


def parts():
    return sorted("/".join(path.parts[-2:]) for path in Path("r/ledger").glob("*/parts/*/*.npz"))


@pytest.mark.parametrize(("name", "code"), [("SIGTERM", 1), ("SIGUSR1", 1), ("SIGINT", 130)])
@pytest.mark.parametrize("slab", [5, 14])
def test_a_signal_leaves_a_run_that_is_gone_on_with(config, undisturbed, name, code, slab, monkeypatch):
    done = disturbed(at_slab(slab, f"os.kill(os.getpid(), signal.{name})"), "run", config)
    assert done.returncode == code, done.stderr
    assert f"dpca: stopped by {name}\n  What is finished is kept: dpca run c.yaml --resume goes on." in done.stderr
    assert "Traceback" not in done.stderr
    assert json.loads(Path("r/status.json").read_text())["state"] == "interrupted"
    assert not Path("r/manifest.json").exists()
    computed = []
    keep = durable.write

    def counted(path, save):
        if path.suffix == ".npz" and path.stem.isdigit():
            computed.append(f"{path.parent.name}/{path.name}")
        keep(path, save)

    monkeypatch.setattr(durable, "write", counted)
    before = parts()
    assert before
    assert dpca("run", config, "--resume") == 0
    assert bits("r") == undisturbed
    assert not set(computed) & set(before)
    assert len(set(computed)) == len(computed)


def test_a_second_signal_leaves_at_once(config, undisturbed):
    """The first waits for a span that hangs; the second does not."""
    action = (
        "os.kill(os.getpid(), signal.SIGINT); threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start(); "
        "threading.Event().wait(60)"
    )
    done = disturbed(at_slab(5, action), "run", config)
    assert done.returncode == 130
    assert dpca("run", config, "--resume") == 0
    assert bits("r") == undisturbed


def test_a_signal_is_answered_though_a_span_hangs(config, undisturbed):
    what = "import dpca.engine\ndpca.engine.ABANDON_SECONDS = 0.2\n"
    what += at_slab(5, "os.kill(os.getpid(), signal.SIGTERM); threading.Event().wait()")
    done = disturbed(what, "run", config)
    assert done.returncode == 1
    assert "dpca: stopped by SIGTERM" in done.stderr
    assert dpca("run", config, "--resume") == 0
    assert bits("r") == undisturbed


@pytest.mark.parametrize("slab", [3, 8, 12, 19])
def test_kill_9(config, undisturbed, slab):
    done = disturbed(at_slab(slab, "os.kill(os.getpid(), signal.SIGKILL)"), "run", config)
    assert done.returncode == -signal.SIGKILL
    assert dpca("run", config, "--resume") == 0
    assert bits("r") == undisturbed


def test_resume_begins_a_run_and_leaves_a_finished_one(config, undisturbed, capsys):
    assert dpca("run", config, "--resume") == 0
    before = os.stat("r/manifest.json").st_mtime_ns
    capsys.readouterr()
    assert dpca("run", config, "--resume") == 0
    assert os.stat("r/manifest.json").st_mtime_ns == before
    assert "certificate: 3 of 3 components reliable" in capsys.readouterr().out
    assert dpca("run", config, "--resume", "--overwrite") == 2
    assert "give one of them" in capsys.readouterr().err


def killed(config, slab=14, workers="auto"):
    how = ("--set", f"compute.workers={workers}")
    done = disturbed(at_slab(slab, "os.kill(os.getpid(), signal.SIGKILL)"), "run", config, *how)
    assert done.returncode == -signal.SIGKILL, done.stderr


def test_a_damaged_part_is_named_and_computed_again(config, undisturbed, capsys):
    killed(config, 6)
    files = sorted(Path("r/ledger").glob("*/parts/gram-in-double/*.npz"))
    content = files[0].read_bytes()
    for damaged in (
        content[: len(content) // 2],
        b"",
        content[:300] + bytes([content[300] ^ 1]) + content[301:],
        files[1].read_bytes(),
    ):
        copy = Path("copy")
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree("r", copy)
        files[0].write_bytes(damaged)
        assert dpca("run", config, "--resume") == 0
        shown = capsys.readouterr().err
        assert f"gram-in-double/{files[0].name} is " in shown
        assert "it is computed again" in shown
        assert bits("r") == undisturbed
        shutil.rmtree("r")
        copy.rename("r")


def staged(array="*"):
    """Files of the arrays under way."""
    return sorted(str(path) for path in Path("r/ledger").glob(f"*/result.zarr/{array}/c/**/*") if path.is_file())


def truncated(path):
    Path(path).write_bytes(Path(path).read_bytes()[:-5])


def flipped(path):
    content = bytearray(Path(path).read_bytes())
    content[len(content) // 2] ^= 1
    Path(path).write_bytes(content)


def in_turn(damaged, damage):
    """Damage each of some files of an unfinished run, one at a time; go on, and see that it has the same bits."""
    shutil.copytree("r", "before")
    for path in damaged:
        damage(path)
        yield path
        shutil.rmtree("r")
        shutil.copytree("before", "r")


def spans_computed(monkeypatch):
    """Count the spans of each kind that are computed."""
    computed = []
    for name in ("first_span_of_features", "components_span", "left_vectors_span", "scores_span"):
        task = getattr(steps, name)

        def counted(*arguments, task=task):
            computed.append((task.__name__, arguments[-2]))
            return task(*arguments)

        monkeypatch.setattr(steps, name, counted)
    return computed


@pytest.mark.parametrize("damage", [truncated, flipped, os.remove])
def test_what_a_span_wrote_and_is_damaged_is_named_and_that_span_computed_again(
    config, undisturbed, damage, monkeypatch, capsys
):
    killed(config, 16, workers=1)
    computed = spans_computed(monkeypatch)
    assert dpca("run", config, "--resume") == 0
    usual = sorted(computed)
    shutil.rmtree("r")
    killed(config, 16, workers=1)
    files = staged("mean") + staged("components")
    assert len(files) > 12
    for path in in_turn(files, damage):
        del computed[:]
        capsys.readouterr()
        assert dpca("run", config, "--resume") == 0
        array, chunk = path.split("/")[4], path.split("/")[-1]
        shown = capsys.readouterr().err
        assert f"dpca: {os.getcwd()}/{path.partition('/c/')[0]}" in shown
        assert "it is computed again" in shown
        task = "first_span_of_features" if array == "mean" else "components_span"
        assert sorted(computed) == sorted([*usual, (task, int(chunk))])
        assert bits("r") == undisturbed


@pytest.mark.parametrize("what", ["result.zarr/zarr.json", "result.zarr/mean/zarr.json", "result.zarr/scale/zarr.json"])
def test_damaged_metadata_of_arrays_under_way_are_made_again(config, undisturbed, what):
    killed(config, 16)
    truncated(next(Path("r/ledger").glob(f"*/{what}")))
    assert dpca("run", config, "--resume") == 0
    assert bits("r") == undisturbed


TALL = "input: {uri: tall.npy}\nmodel: {n_components: 3}\noutput: {path: r}\n"


def test_damaged_scores_under_way_of_tall_data(monkeypatch):
    np.save("tall.npy", random_array(0, (6000, 12), "f8"))
    Path("tall.yaml").write_text(TALL)
    in_small_slabs(monkeypatch)
    assert dpca("run", "tall.yaml") == 0
    undisturbed = bits("r")
    shutil.rmtree("r")
    what = "import dpca.passes\nspan = dpca.passes.scores_span\nimport dpca.steps\n"
    what += "dpca.steps.scores_span = lambda *a: os.kill(os.getpid(), 9) if a[-2] == 6 else span(*a)\n"
    assert disturbed(what, "run", "tall.yaml").returncode == -signal.SIGKILL
    files = staged("left_vectors") + staged("scores") + staged("alpha")
    assert len({path.split("/")[4] for path in files}) == 3
    computed = spans_computed(monkeypatch)
    for path in in_turn(files[::3], truncated):
        del computed[:]
        assert dpca("run", "tall.yaml", "--resume") == 0
        assert bits("r") == undisturbed
        again = ("left_vectors_span" if "left_vectors" in path else "scores_span", int(path.split("/")[6]))
        assert again in computed or again[0] == "left_vectors_span"
        assert len([task for task, _ in computed if task == "left_vectors_span"]) == ("left_vectors" in path)


@pytest.mark.parametrize("shape", [(400, 4), (6, 4000)])
@pytest.mark.parametrize("committed", [False, True])
def test_an_output_that_is_damaged_when_what_it_came_from_is_gone(shape, committed, monkeypatch):
    """In the moment before the result is published: its pass is done again."""
    left, right = (np.linalg.qr(random_array(seed, (length, 4), "f8"))[0] for seed, length in enumerate(shape))
    np.save("x.npy", (left * [1, 1e-2, 1e-4, 1e-6]) @ right.T)
    Path("c.yaml").write_text("input: {uri: x.npy}\nmodel: {n_components: 3}\noutput: {path: r}\n")
    assert dpca("run", "c.yaml") == 0
    undisturbed = bits("r")
    shutil.rmtree("r")

    class Crash(BaseException):
        pass

    def crash(*_):
        raise Crash

    with monkeypatch.context() as patch:
        patch.setattr("dpca.results.ResultDirectory.publish" if committed else "dpca.run._manifest", crash)
        with pytest.raises(Crash):
            run(load("c.yaml"))
    assert not staged("orthonormal")
    assert not staged("left_vectors")
    files = staged("scores") + staged("components")
    for _ in in_turn(files, truncated):
        assert dpca("run", "c.yaml", "--resume") == 0
        assert bits("r") == undisturbed


def test_every_flipped_byte_of_a_part_is_found_or_harmless(tmp_path):
    said = []
    stage = Ledger(tmp_path / "parts", "run", 10**9, said.append).stage("gram")
    value = np.arange(6.0).reshape(2, 3)
    stage.keep(0, value)
    path = tmp_path / "parts" / "gram" / "0.npz"
    content = path.read_bytes()
    found = 0
    for position in range(len(content)):
        path.write_bytes(content[:position] + bytes([content[position] ^ 0x10]) + content[position + 1 :])
        try:
            np.testing.assert_array_equal(stage.load(0, np.zeros((0, 0))), value)
        except Damaged:
            found += 1
    assert found > 200


def test_an_object_array_is_never_unpickled(tmp_path):
    stage = Ledger(tmp_path, "run", 1, print).stage("gram")
    stage.keep(0, np.zeros(2))
    np.savez(tmp_path / "gram" / "0.npz", value=np.array([{"evil": 1}], object), key=np.zeros(1, np.uint8))
    with pytest.raises(Damaged, match=r"is damaged .*allow_pickle"):
        stage.load(0, np.zeros(0))


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (["preprocess.scale=std"], 'the config changed since the run began: preprocess.scale: "none", now "std"'),
        (["model.n_components=5"], "model.n_components: 3, now 5"),
        (["output.components=false"], "output.components: true, now false"),
    ],
)
def test_a_changed_config_is_refused_by_name(config, keys, said, capsys):
    killed(config)
    before = parts()
    assert dpca("run", config, "--resume", *(word for key in keys for word in ("--set", key))) == 2
    shown = capsys.readouterr().err
    assert said in shown
    assert "start anew with --overwrite" in shown
    assert parts() == before


def test_workers_and_memory_may_change(config, undisturbed):
    killed(config)
    done = disturbed("", "run", config, "--resume", "--set", "compute.workers=1", "--set", "compute.memory=300MiB")
    assert done.returncode == 0, done.stderr
    assert bits("r") == undisturbed


def test_a_plan_that_fits_no_more_exits_3_and_loses_nothing(config, undisturbed, capsys):
    killed(config)
    assert dpca("run", config, "--resume", "--set", "compute.memory=50MiB") == 3
    assert "compute.memory" in capsys.readouterr().err
    assert dpca("run", config, "--resume") == 0
    assert bits("r") == undisturbed


def rewrite_a_chunk():
    array = zarr.open_array("x.zarr", mode="r+")
    array[:, 600:1200] = array[:, 600:1200] + 1.0


def append():
    array = zarr.open_array("x.zarr", mode="r+")
    array.resize((N, D + 600))


def lose_a_chunk():
    os.remove("x.zarr/c/0/3")


@pytest.mark.parametrize("change", [rewrite_a_chunk, append, lose_a_chunk])
def test_a_changed_input_is_refused(config, change, capsys):
    killed(config)
    change()
    assert dpca("run", config, "--resume") == 2
    assert "the input changed since the run began" in capsys.readouterr().err


def test_an_input_that_changes_while_it_is_read_gives_no_result(config, capsys, monkeypatch):
    from dpca import passes

    original = passes.components_span

    def changing(work, alpha, span, report):
        if span == 5:
            rewrite_a_chunk()
        return original(work, alpha, span, report)

    monkeypatch.setattr("dpca.steps.components_span", changing)
    assert dpca("run", config) == 2
    assert "x.zarr: changed while it was read: chunks_sha256" in capsys.readouterr().err
    assert not Path("r/manifest.json").exists()
    assert dpca("run", config, "--resume") == 2


def test_a_second_run_is_refused_while_the_first_lives(config, undisturbed, capsys, monkeypatch):
    monkeypatch.setattr("dpca.lock.STALE_SECONDS", 3.0)
    wait = "(print('reached', flush=True), sys.stdin.readline())"
    what = "import dpca.lock\ndpca.lock.BEAT_SECONDS = 0.2\n" + at_slab(14, wait)
    Path("disturbed.py").write_text(START + what + END)
    command = [sys.executable, "disturbed.py", "run", config]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout.readline() == "reached\n"
        for how in ("--resume", "--overwrite"):
            assert dpca("run", config, how) == 2
            assert f"r: a run is going on there, in process {first.pid} on " in capsys.readouterr().err
        first.communicate("go on\n")
    assert first.returncode == 0
    assert bits("r") == undisturbed


def test_store_errors_now_and_then_are_tried_again_and_counted(config, undisturbed, monkeypatch, capsys):
    from dpca.sources.zarr_array import _ZarrReader

    original, failed = _ZarrReader._read, set()

    def failing(self, region):
        if region[1].start in (0, 1200, 2400) and region[1].start not in failed:
            failed.add(region[1].start)
            raise OSError("the network was away")
        return original(self, region)

    monkeypatch.setattr(_ZarrReader, "_read", failing)
    assert dpca("run", config) == 0
    assert bits("r") == undisturbed
    assert json.loads(Path("r/manifest.json").read_text())["counts"]["retried_reads"] == 3
    assert "3 reads failed and succeeded when they were tried again" in capsys.readouterr().err


def test_a_read_that_hangs_ends_the_run_in_time(config, undisturbed):
    what = """
import dpca.engine
dpca.engine.ABANDON_SECONDS = 0.2
from dpca.sources.zarr_array import _ZarrReader
read = _ZarrReader._read
def hanging(self, region):
    if region[1].start == 3000:
        threading.Event().wait()
    return read(self, region)
_ZarrReader._read = hanging
"""
    done = disturbed(what, "run", config, "--set", "input.read_seconds=0.5")
    assert done.returncode == 1
    assert "x.zarr: span 5, region [0:12, 3000:3600], hangs: no slab was read within 0.5 s" in done.stderr
    assert "--resume goes on" in done.stderr
    assert dpca("run", config, "--resume") == 0
    assert bits("r") == undisturbed


def test_a_chunk_that_heals(config, undisturbed, capsys):
    chunk = Path("x.zarr/c/0/7")
    facts, content = chunk.stat(), chunk.read_bytes()
    chunk.write_bytes(bytes(len(content)))
    os.utime(chunk, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    assert dpca("run", config) == 1
    shown = capsys.readouterr().err
    assert "x.zarr: chunk (0, 7), region [0:12, 4200:4800], could not be read" in shown
    assert "--resume goes on" in shown
    chunk.write_bytes(content)
    os.utime(chunk, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    assert dpca("run", config, "--resume") == 0
    assert bits("r") == undisturbed


def test_a_copy_in_scratch_is_gone_on_with(undisturbed, monkeypatch):
    """The copy is made in bands; after a kill those that are finished are not copied again."""
    zarr.create_array("rows.zarr", data=random_array(0, (40, 200_000), "f8"), chunks=(1, 200_000))
    Path("rows.yaml").write_text(
        "input: {uri: rows.zarr}\nmodel: {n_components: 3}\ncompute: {memory: 262 MiB, workers: 1}\noutput: {path: s}\n"
    )
    plain = "import os, signal, sys\n"
    whole = disturbed("", "run", "rows.yaml", start=plain)
    assert whole.returncode == 0, whole.stderr
    assert json.loads(Path("s/manifest.json").read_text())["reading"] == "copy"
    expected = bits("s")
    shutil.rmtree("s")
    what = """
import dpca.rechunk, dpca.decomposition
copy, seen = dpca.rechunk.copy_unit, []
def counted(work, number, report):
    seen.append(number)
    print("band", number, flush=True)
    if number == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return copy(work, number, report)
dpca.decomposition.copy_unit = counted
"""
    done = disturbed(what, "run", "rows.yaml", start=plain)
    assert done.returncode == -signal.SIGKILL
    again = disturbed(what.replace("if number == 2", "if False"), "run", "rows.yaml", "--resume", start=plain)
    assert again.returncode == 0, again.stderr
    first, second = (
        {line for line in text.splitlines() if line.startswith("band")} for text in (done.stdout, again.stdout)
    )
    assert first & second <= {"band 2", "band 1"}
    assert bits("s") == expected
    shutil.rmtree("s")
    disturbed(what, "run", "rows.yaml", start=plain)
    truncated(next(Path("s/ledger/scratch").glob("*/c/0/0")))
    again = disturbed(what.replace("if number == 2", "if False"), "run", "rows.yaml", "--resume", start=plain)
    assert again.returncode == 0, again.stderr
    assert re.search(r"scratch/.*/c/0/0 has \d+5 bytes, not \d+0: it is computed again", again.stderr)
    assert "band 0" in again.stdout
    assert bits("s") == expected


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with LocalCluster(
        2,
        threads_per_worker=1,
        dashboard_address=None,
        host="127.0.0.1",
        local_directory=str(tmp_path_factory.mktemp("dask")),
    ) as cluster:
        yield cluster


POISON = """
import os, signal
import dpca.passes, dpca.decomposition
original = dpca.passes.first_span_of_features
def poisoned(work, span, report):
    if span == 4 and (not os.path.exists({flag!r}) or {always}):
        open({flag!r}, "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    return original(work, span, report)
"""


@pytest.mark.parametrize("always", [False, True])
def test_workers_that_die(config, undisturbed, cluster, always, monkeypatch, capsys, tmp_path):
    """The span is done again elsewhere; one that kills every worker ends the run, and nothing else."""
    Path("poison.py").write_text(POISON.format(flag=str(tmp_path / "flag"), always=always))
    sys.path.insert(0, os.getcwd())
    try:
        import importlib

        import poison

        importlib.reload(poison)
        with cluster.get_client() as client:
            client.run(lambda path=os.getcwd(): __import__("sys").path.insert(0, path))
            client.upload_file("poison.py")
        monkeypatch.setattr("dpca.steps.first_span_of_features", poison.poisoned)
        place = ("--set", f"input.uri={os.path.abspath('x.zarr')}")
        where = (*place, "--set", f"compute.cluster={{scheduler: '{cluster.scheduler_address}'}}")
        code = dpca("run", config, *where)
    finally:
        sys.path.remove(os.getcwd())
    if not always:
        assert code == 0
        assert bits("r") == undisturbed
        return
    assert code == 1
    shown = capsys.readouterr().err
    assert (
        "/x.zarr: span 4, region [0:12, 2400:3000], was given up: every worker that took it died, 4 times over" in shown
    )
    assert parts()
    monkeypatch.setattr("dpca.steps.first_span_of_features", poison.original)
    assert dpca("run", config, "--resume", *place) == 0
    assert bits("r") == undisturbed


APPLY = """
import dpca.projection
dpca.projection.GROUP_SAMPLES = 3
import dpca.{module} as module
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


@pytest.mark.parametrize("name", ["SIGKILL", "SIGTERM"])
@pytest.mark.parametrize("command", ["transform", "reconstruct"])
def test_transform_and_reconstruct_go_on_where_they_stopped(config, command, name):
    assert dpca("run", config) == 0
    given = ("transform", "r", "x.zarr") if command == "transform" else ("reconstruct", "r")
    task = "projection_span" if command == "transform" else "reconstruction_span"
    what = APPLY.format(module="projection", task=task, at=9, signal=name)
    small = what + "dpca.projection.CHUNK_BYTES = 8 * 600 * 3\ndpca.projection.SLAB_BYTES = 8 * 600 * 3\n"
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
def test_damaged_scores_and_samples_under_way_are_computed_again(config, command):
    assert dpca("run", config) == 0
    zarr.create_array("new.zarr", data=random_array(1, (N, D), "f8"), chunks=(3, 600), dimension_names=("time", "x"))
    given = ("transform", "r", "new.zarr") if command == "transform" else ("reconstruct", "r")
    task = "projection_span" if command == "transform" else "reconstruction_span"
    what = APPLY.format(module="projection", task=task, at=25, signal="SIGKILL")
    what += "dpca.projection.CHUNK_BYTES = 8 * 600 * 3\ndpca.projection.SLAB_BYTES = 8 * 600 * 3\n"
    what += "dpca.ledger.SHARE = 10**6\n"  # sums take the place of parts at once
    assert disturbed(what, *given, "--out", "out.zarr", "--workers", "1").returncode == -signal.SIGKILL
    files = [path for path in Path(".out.zarr.partial").glob("*/arrays/*/c/**/*") if path.is_file()]
    name = "scores" if command == "transform" else "reconstruction"
    truncated(min(path for path in files if path.parts[3] == name))
    again = disturbed(what.replace("== 25", "== -1"), *given, "--out", "out.zarr")
    assert again.returncode == 0, again.stderr
    assert f"{name} is damaged" in again.stderr
    assert disturbed(what.replace("== 25", "== -1"), *given, "--out", "whole.zarr").returncode == 0
    out, whole = (zarr.open_group(path, mode="r")[name][...] for path in ("out.zarr", "whole.zarr"))
    np.testing.assert_array_equal(out, whole)


@pytest.mark.parametrize("workers", [("2", "1", 3), ("1", "2", 2)])
def test_a_reconstruction_of_tall_data_may_go_on_with_other_workers(workers, tmp_path):
    """Its parts are blocks of samples: they have to be the same whoever makes them."""
    np.save("tall.npy", random_array(0, (400, 3), "f8"))
    Path("tall.yaml").write_text("input: {uri: tall.npy}\nmodel: {n_components: 3}\noutput: {path: t}\n")
    assert dpca("run", "tall.yaml") == 0
    assert dpca("reconstruct", "t", "--out", "whole.zarr") == 0
    small = APPLY.format(module="projection", task="reconstruction_span", at=workers[2], signal="SIGKILL")
    small += "dpca.projection.CHUNK_BYTES = 8 * 3 * 10\n"
    done = disturbed(small, "reconstruct", "t", "--out", "out.zarr", "--workers", workers[0])
    assert done.returncode == -signal.SIGKILL
    again = disturbed(
        small.replace(f"== {workers[2]}", "== -1"), "reconstruct", "t", "--out", "out.zarr", "--workers", workers[1]
    )
    assert again.returncode == 0, again.stderr
    out, whole = (zarr.open_group(path, mode="r")["reconstruction"][...] for path in ("out.zarr", "whole.zarr"))
    np.testing.assert_array_equal(out, whole)


def test_a_transform_of_other_samples_does_not_go_on_with_those_of_before(config):
    assert dpca("run", config) == 0
    small = APPLY.format(module="projection", task="projection_span", at=9, signal="SIGKILL")
    small += "dpca.projection.SLAB_BYTES = 8 * 600 * 3\n"
    done = disturbed(small, "transform", "r", "x.zarr", "--out", "out.zarr", "--workers", "1")
    assert done.returncode == -signal.SIGKILL
    rewrite_a_chunk()
    assert dpca("transform", "r", "x.zarr", "--out", "out.zarr") == 0
    assert dpca("transform", "r", "x.zarr", "--out", "anew.zarr") == 0
    out, anew = (zarr.open_group(path, mode="r")["scores"][...] for path in ("out.zarr", "anew.zarr"))
    np.testing.assert_array_equal(out, anew)
