"""A run as a job array: the same bits as `dpca run`, whatever order, repetition or damage."""

import errno
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
from collections import defaultdict
from itertools import count
from pathlib import Path

import numpy as np
import pytest
import zarr

from dpca.commands import batch
from dpca.config.loading import load
from dpca.planning import search
from dpca.store.ledger import Ledger
from dpca.system import durable
from tests.commands.calls import dpca
from tests.commands.test_block_krylov import factors
from tests.resume.disturbed import disturbed, flipped, in_small_slabs, staged, truncated
from tests.stores import bits, random_array

pytestmark = pytest.mark.long

CASES = {
    "samples kept": ((12, 6000), (12, 600), "model: {n_components: 3}"),
    "gram in single, then in double": ((12, 6000), (12, 600), "model: {n_components: 12}"),
    "samples stream by": ((3000, 12), (300, 12), "model: {n_components: 3}"),
    "samples stream by, standardized, by tsqr": (
        (3000, 12),
        (300, 12),
        "preprocess: {scale: std}\nmodel: {n_components: 3, svd_solver: tsqr}",
    ),
    "standardized, without components": (
        (12, 6000),
        (12, 600),
        "preprocess: {scale: std}\nmodel: {n_components: 3}",
    ),
    "groups of features": (
        (12, 6000),
        (12, 600),
        "model: {n_components: bi_cross_validation}\n"
        "output: {path: r, groups: {ranges: {a: [0, 2500], b: [2500, 6000]}, validation: 3}}",
    ),
    "rotated": ((12, 6000), (12, 600), "model: {n_components: 3, rotation: {kind: promax}}"),
    "block Krylov": ((60, 6000), (60, 600), "model: {n_components: 4, svd_solver: block_krylov}"),
    "kernels": ((12, 6000), (12, 600), "model: {kind: kernel_pca, kernel: [rbf, poly], n_components: 3}"),
}


@pytest.fixture(params=CASES)
def config(request, monkeypatch):
    shape, chunks, keys = CASES[request.param]
    x = random_array(0, shape, "f4" if "single" in request.param else "f8")
    if "Krylov" in request.param:
        x = factors(shape)
        monkeypatch.setattr(search, "PRODUCT_SLAB_BYTES", 60_000)
    if "single" in request.param:
        x[7:] = x[:5] + 1e-6 * x[7:]  # the last components are below what single precision supports
    zarr.create_array("x.zarr", data=x, chunks=chunks)
    components = "" if "without" not in request.param else ", components: false"
    output = "" if "output:" in keys else f"output: {{path: r{components}}}\n"
    Path("c.yaml").write_text(f"input: {{uri: x.zarr}}\n{keys}\n{output}")
    in_small_slabs(monkeypatch)
    return "c.yaml"


@pytest.fixture
def wide(monkeypatch):
    """Ten spans."""
    zarr.create_array("x.zarr", data=random_array(0, (12, 6000), "f8"), chunks=(12, 600))
    Path("c.yaml").write_text("input: {uri: x.zarr}\nmodel: {n_components: 3}\noutput: {path: r}\n")
    in_small_slabs(monkeypatch)
    return "c.yaml"


def test_it_has_the_bits_of_a_run(config, capsys):
    assert dpca("run", config, "--set", "output.path=expected") == 0
    assert dpca("batch", "init", config, "--partitions", "4") == 0
    rng, stages = random.Random(0), []
    for _ in range(20):
        capsys.readouterr()
        assert dpca("batch", "status", "r", "--json") == 0
        found = json.loads(capsys.readouterr().out)
        if found["state"] == "done":
            break
        stages.append(found["stage"])
        assert found["partitions_missing"] == list(range(found["partitions"]))
        order = [*range(found["partitions"]), 2, 0]  # some of them twice
        rng.shuffle(order)
        for index in order:
            assert dpca("batch", "partition", "r", "--index", index) == 0
        assert dpca("batch", "finalize", "r") == 0
    assert found["state"] == "done"
    assert len(stages) == len(set(stages)) >= 1
    assert bits("r") == bits("expected")
    assert sorted(os.listdir("r")) == ["certificate.json", "manifest.json", "result.zarr", "status.json"]
    assert dpca("batch", "finalize", "r") == 0  # again: nothing is left to do


def test_partitions_have_nothing_to_do_before_it_is_decided_how_to_go_on(config, monkeypatch, capsys):
    """The process that adds up is stopped before each of its decisions, and tasks of the array come again."""
    assert dpca("run", config, "--set", "output.path=expected") == 0
    assert dpca("batch", "init", config, "--partitions", "2") == 0
    once, stopped = Ledger.once, []

    def stopping(ledger, name, compute, like):
        if name not in stopped and not ledger.checkpoint(name).has(0):
            stopped.append(name)
            raise KeyboardInterrupt
        return once(ledger, name, compute, like)

    waited = 0
    while not Path("r/manifest.json").exists():
        capsys.readouterr()
        codes = [dpca("batch", "partition", "r", "--index", index) for index in (0, 1)]
        said, before = capsys.readouterr(), len(stopped)
        assert codes == [0, 0] or said.err.count("all of its stages are complete") == 2
        waited += said.out.count("nothing to do before dpca batch finalize has gone on")
        with monkeypatch.context() as patch:
            patch.setattr(Ledger, "once", stopping)
            assert (dpca("batch", "finalize", "r") == 0) == (len(stopped) == before)
    assert len(stopped) >= 1
    assert waited >= 2 * (len(stopped) - 1)  # after the last all may be complete
    assert bits("r") == bits("expected")


TO_THE_NEXT = [("partition", "r", "--index", "1"), ("partition", "r", "--index", "0"), ("finalize", "r")]
WRITTEN = re.compile(r"npz$|json$|/(mean|components\w*|eigenvalues)/")


@pytest.mark.parametrize("config", ["samples kept", "block Krylov"], indirect=True)
def test_what_is_damaged_on_the_way_is_computed_again_or_refused_in_a_sentence(config, capsys):
    """One file of each of these kinds, cut or removed, halfway through the time in which there is one."""
    assert dpca("run", config, "--set", "output.path=expected") == 0
    assert dpca("batch", "init", config, "--partitions", "2") == 0
    seen, moments = defaultdict(list), count()
    while not Path("r/manifest.json").exists():
        for command in TO_THE_NEXT:
            moment = f"moment-{next(moments)}"
            shutil.copytree("r", moment)
            for path in sorted(path for path in Path("r/ledger").rglob("*") if path.is_file()):
                if not WRITTEN.search(str(path)) or (path.name == "zarr.json" and "mean" not in path.parts):
                    continue
                seen[re.sub(r"[0-9a-f]{8,}|[0-9]+\b", "#", str(path))].append((moment, path))
            assert dpca("batch", *command) == 0

    def ends():
        failed = 0
        while failed < 3 and not Path("r/manifest.json").exists():
            failed += [dpca("batch", *command) for command in TO_THE_NEXT][-1]
        assert "defect" not in capsys.readouterr().err
        return Path("r/manifest.json").exists()

    assert len(seen) > 8
    for number, found in enumerate(seen.values()):
        moment, path = found[len(found) // 2]
        shutil.rmtree("r")
        shutil.copytree(moment, "r")
        content = path.read_bytes()
        path.unlink() if number % 2 else path.write_bytes(content[: len(content) // 2])
        if not ends():
            assert path.parent.name == "ledger"  # how it was begun is written down once
            path.write_bytes(content)
            assert ends()
        assert bits("r") == bits("expected"), path


@pytest.mark.parametrize("shape", [(12, 6000), (3000, 12)])
def test_a_partition_of_the_second_pass_does_not_read_the_matrix(shape, monkeypatch, capsys):
    """Of 20,000 samples it has 3.2 GB, where alpha has 3 MB."""
    zarr.create_array("x.zarr", data=random_array(0, shape, "f8"), chunks=(min(300, shape[0]), min(600, shape[1])))
    Path("c.yaml").write_text("input: {uri: x.zarr}\nmodel: {n_components: 3}\noutput: {path: r}\n")
    in_small_slabs(monkeypatch)
    assert dpca("run", "c.yaml", "--set", "output.path=expected") == 0
    assert dpca("batch", "init", "c.yaml", "--partitions", "2") == 0
    for index in range(2):
        assert dpca("batch", "partition", "r", "--index", index) == 0
    assert dpca("batch", "finalize", "r") == 0
    (matrix,) = Path("r/ledger").glob("*/parts/*/sum-*.npz")
    kept = matrix.read_bytes()
    matrix.write_bytes(b"")
    capsys.readouterr()
    for index in range(2):
        assert dpca("batch", "partition", "r", "--index", index) == 0
    assert capsys.readouterr().out.count("spans computed") == 2
    matrix.write_bytes(kept)
    for _ in range(2):
        dpca("batch", "finalize", "r")
        for index in range(2):
            dpca("batch", "partition", "r", "--index", index)
    assert bits("r") == bits("expected")


def test_all_that_is_missing_or_damaged_is_named_at_once(wide, capsys):
    assert dpca("run", wide, "--set", "output.path=expected") == 0
    assert dpca("batch", "init", wide, "--partitions", "5") == 0
    assert "stage gram in double has 5 partitions: dpca batch partition r --index 0 to 4" in capsys.readouterr().out
    for index in (0, 1, 3):
        assert dpca("batch", "partition", "r", "--index", index) == 0
    (part,) = Path("r/ledger").glob("*/parts/*/8.npz")
    flipped(part)
    capsys.readouterr()
    assert dpca("batch", "finalize", "r") == 1
    error = capsys.readouterr().err
    assert "r: stage gram in double: partitions 2-4 of 5 are missing or damaged" in error
    assert "span 8: " in error
    assert "sbatch --array=2-4 YOUR_SCRIPT." in error
    assert not Path("r/manifest.json").exists()
    assert not part.exists()  # so that dpca batch status counts it as missing
    for index in (2, 3, 4):
        assert dpca("batch", "partition", "r", "--index", index) == 0
    assert "partition 3 of gram in double: 1 spans computed, 1 were there" in capsys.readouterr().out
    assert dpca("batch", "finalize", "r") == 0
    for index in range(5):
        assert dpca("batch", "partition", "r", "--index", index) == 0
    Path(staged("components*")[3]).unlink()
    assert dpca("batch", "finalize", "r") == 1
    assert "is gone" in capsys.readouterr().err
    assert dpca("batch", "status", "r") == 0
    assert "4 of 5 partitions are there" in capsys.readouterr().out
    for again in range(2):  # at once, too
        if again:
            Path(staged("components*")[3]).unlink()
        for index in range(5):
            assert dpca("batch", "partition", "r", "--index", index) == 0
        assert capsys.readouterr().out.count("1 spans computed, 1 were there") == 1
    assert dpca("batch", "finalize", "r") == 0
    assert bits("r") == bits("expected")


@pytest.mark.parametrize(
    ("whole", "other"), [("1200", "1300"), ("6000", "6001"), ("float32", "float64"), ("component", "componenu")]
)
def test_arrays_whose_metadata_are_damaged_are_written_by_no_partition_before_they_are_made_again(
    wide, whole, other, capsys
):
    """Two at a time would write into the same chunks, and lose what is in them."""
    zarr.create_array("x.zarr", data=random_array(0, (12, 6000), "f4"), chunks=(12, 600), overwrite=True)
    assert dpca("run", wide, "--set", "output.path=expected") == 0
    assert dpca("batch", "init", wide, "--partitions", "2") == 0
    assert [dpca("batch", *command) for command in TO_THE_NEXT] == [0, 0, 0]
    (metadata,) = Path("r/ledger").glob("*/result.zarr/components*/zarr.json")
    metadata.write_text(re.sub(rf"\b{whole}\b", other, metadata.read_text(), count=1))
    capsys.readouterr()
    assert [dpca("batch", *command) for command in TO_THE_NEXT] == [1, 1, 1]
    assert capsys.readouterr().err.count("zarr.json is damaged: it describes another array\n") == 2
    assert [dpca("batch", *command) for command in TO_THE_NEXT] == [0, 0, 0]
    assert bits("r") == bits("expected")


@pytest.mark.parametrize(
    "spoil", [None, os.remove, truncated, lambda path: path.write_text(path.read_text().replace('"group"', '"groub"'))]
)
def test_partitions_leave_the_metadata_of_the_group_to_the_process_that_adds_up(wide, spoil):
    """Beside coordinates that are no index, which are said there; a partition needs them for nothing."""
    group = zarr.create_group("x.zarr", overwrite=True)
    for name, values, dims in (
        ("X", random_array(0, (12, 6000), "f8"), ("time", "x")),
        ("x", np.arange(6000.0), ("x",)),
        ("station", np.arange(6000) % 7, ("x",)),
    ):
        chunks = (*values.shape[:-1], 600)
        group.create_array(name, data=values, chunks=chunks, dimension_names=dims).attrs.update(
            {"coordinates": "station"} if name == "X" else {}
        )
    on = ("--set", "input.array=X")
    assert dpca("run", wide, *on, "--set", "output.path=expected") == 0
    assert "station" in zarr.open_group("expected/result.zarr").attrs["coordinates"]
    assert dpca("batch", "init", wide, *on, "--partitions", "2") == 0
    (metadata,) = Path("r/ledger").glob("*/result.zarr/zarr.json")
    if spoil:
        spoil(metadata)
    before = [(path.stat().st_ino, path.read_bytes()) for path in metadata.parent.glob("zarr.json")]
    assert [dpca("batch", *command) for command in TO_THE_NEXT[:2]] == [0, 0]
    assert [(path.stat().st_ino, path.read_bytes()) for path in metadata.parent.glob("zarr.json")] == before
    assert dpca("batch", *TO_THE_NEXT[2]) == 0
    assert [dpca("batch", *command) for command in TO_THE_NEXT] == [0, 0, 0]
    assert bits("r") == bits("expected")


def test_the_stage_that_is_open_is_recorded_under_the_lock(wide, monkeypatch):
    """Or one that sleeps there would record an earlier stage over that of another, which had gone on."""
    write, locked = durable.write_checked, []

    def writing(path, document):
        if path.name == batch.BATCH:
            locked.append(os.listdir("r/.lock"))
        write(path, document)

    monkeypatch.setattr(durable, "write_checked", writing)
    assert dpca("batch", "init", wide, "--partitions", "2") == 0
    batch.go_on_with(Path("r"), load(Path(wide)))  # as dpca submit does for the rest of a run
    assert [dpca("batch", *command) for command in TO_THE_NEXT] == [0, 0, 0]
    assert len(locked) == 3
    assert all(locked)


def test_a_disk_that_is_full_when_the_stage_is_recorded_is_told_of_in_the_status(wide, monkeypatch, capsys):
    """It said that the run goes on, which a watch from another host believes."""
    write = durable.write_checked

    def full(path, document):
        if path.name == batch.BATCH:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(path, document)

    with monkeypatch.context() as patch:
        patch.setattr(durable, "write_checked", full)
        assert dpca("batch", "init", wide, "--partitions", "2") == 1
    assert "No space left on device" in capsys.readouterr().err
    status = json.loads(Path("r/status.json").read_text())
    assert (status["state"], "No space left" in status["message"]) == ("failed", True)
    assert dpca("batch", "init", wide, "--partitions", "2", "--overwrite") == 0


def test_partitions_run_beside_each_other_and_one_is_killed(wide):
    assert dpca("run", wide, "--set", "output.path=expected") == 0
    assert dpca("batch", "init", wide) == 0
    command = [sys.executable, "-m", "dpca", "batch", "partition", "r", "--index"]
    for _ in range(2):
        killed = disturbed(
            "import dpca.system.durable\ndpca.system.durable.DISK.rename = lambda *a: os.kill(os.getpid(), signal.SIGKILL)\n",
            *("batch", "partition", "r", "--index", "4"),
        )
        assert killed.returncode == -signal.SIGKILL
        running = [subprocess.Popen([*command, str(index)]) for index in range(10)]
        assert [process.wait() for process in running] == [0] * 10
        assert dpca("batch", "finalize", "r") == 0
    assert bits("r") == bits("expected")


def test_from_another_directory(wide, monkeypatch):
    """Relative paths of the config start where the run was begun."""
    place = os.getcwd()
    assert dpca("batch", "init", wide, "--partitions", "1") == 0
    for command in (("partition", "--index", "0"), ("finalize",)) * 2:
        Path(place, "elsewhere").mkdir(exist_ok=True)
        monkeypatch.chdir(Path(place, "elsewhere"))
        assert dpca("batch", command[0], "../r", *command[1:]) == 0
    monkeypatch.chdir(place)
    assert Path("r/manifest.json").exists()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("partition", "r", "--index", "0"), "r: holds no run of dpca batch that is under way"),
        (("finalize", "r"), "r: holds no run of dpca batch that is under way"),
        (("status", "r"), "r: holds no run of dpca batch that is under way"),
        (("init", "c.yaml", "--partitions", "0"), "--partitions is 0"),
    ],
)
def test_what_is_not_there(wide, arguments, sentence, capsys):
    assert dpca("batch", *arguments) == 2
    assert sentence in capsys.readouterr().err


def test_a_partition_that_there_is_not_and_a_config_that_changed(wide, capsys):
    assert dpca("batch", "init", wide, "--partitions", "3") == 0
    assert dpca("batch", "partition", "r", "--index", "3") == 2
    assert "--index is 3, but a stage has 3 partitions" in capsys.readouterr().err
    Path("c.yaml").write_text(Path("c.yaml").read_text().replace("n_components: 3", "n_components: 4"))
    assert dpca("batch", "partition", "r", "--index", "0") == 2
    assert "the config changed since the run began: model.n_components" in capsys.readouterr().err
    zarr.open_array("x.zarr", mode="r+")[0, 0] = np.nan
    assert dpca("batch", "init", "c.yaml") == 2
    shown = capsys.readouterr().err
    assert "holds an unfinished run (see dpca batch status r)" in shown
    assert (
        "Go on with it with dpca batch partition and dpca batch finalize, or start it anew with --overwrite." in shown
    )
    assert dpca("batch", "partition", "c.yaml", "--index", "0") == 2
    assert "c.yaml: holds no run of dpca batch that is under way" in capsys.readouterr().err


def test_a_task_that_is_started_again_after_the_end_ends_well_and_says_why(wide, capsys):
    assert dpca("batch", "init", wide, "--partitions", "1") == 0
    while not Path("r/manifest.json").exists():
        assert dpca("batch", "partition", "r", "--index", "0") == 0
        assert dpca("batch", "finalize", "r") == 0
    before = bits("r")
    assert dpca("batch", "partition", "r", "--index", "0") == 0
    assert "partition 0: nothing to do, r is a result that is whole" in capsys.readouterr().out
    assert bits("r") == before


def test_scripts_have_what_is_asked_for_each_job(wide, capsys):
    how = ("--at-once", "4", "--sbatch=--account=physics", "--sbatch-array=--qos=many", "--sbatch-finalize=--qos=short")
    assert dpca("submit", wide, "--dry-run", *how, "--job-script-prologue", "module load python/3.12") == 0
    array, finalize = capsys.readouterr().out.split("finalize.sbatch\n", 1)
    assert "#SBATCH --array=0-9%4\n" in array
    assert "#SBATCH --qos=many\n" in array
    assert "#SBATCH --qos=short\n" in finalize
    assert "--array" not in finalize.partition("stoppable()")[0]
    for script in (array, finalize):
        assert "#SBATCH --account=physics\n" in script
        assert script.index("module load python/3.12\n") < script.index("stoppable ", script.index("return $code"))
        assert script.count("--qos") == 1


@pytest.mark.parametrize("flag", ["--sbatch", "--sbatch-array", "--sbatch-finalize"])
@pytest.mark.parametrize("option", ["--array=0-16%4", "-a0-3"])
def test_an_array_of_other_tasks_is_refused(wide, flag, option, capsys):
    assert dpca("submit", wide, "--dry-run", f"{flag}={option}") == 2
    assert "--at-once" in capsys.readouterr().err


def test_without_sbatch_nothing_is_begun(wide, monkeypatch, capsys):
    monkeypatch.setenv("PATH", os.getcwd())
    for way in ("array", "job"):
        assert dpca("submit", wide, "--as", way) == 1
    assert "sbatch is not here" in capsys.readouterr().err
    assert not Path("r").exists()
    assert not Path("r.slurm").exists()
    assert dpca("submit", wide, "--as", "job", "--dry-run", "--at-once", "2") == 2
