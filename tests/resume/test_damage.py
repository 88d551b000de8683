"""What a run left is damaged before it is gone on with."""

import os
import re
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest

from dpca.commands import run as running
from dpca.commands.run import run
from dpca.config.loading import load
from dpca.methods import first_pass, second_pass
from dpca.store import directory
from dpca.store.directory import ResultDirectory
from dpca.store.outputs import Outputs
from dpca.system import durable
from tests.commands.calls import dpca
from tests.made import made
from tests.resume.disturbed import (
    disturbed,
    flipped,
    in_small_slabs,
    in_turn,
    left_by_a_kill,
    staged,
    ten_spans,
    truncated,
)
from tests.stores import bits, random_array

pytestmark = pytest.mark.long


def test_a_damaged_part_is_named_and_computed_again(config, undisturbed, capsys):
    left_by_a_kill(6)
    files = sorted(Path("r/ledger").glob("*/parts/1-gram-in-double/*.npz"))
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


@pytest.mark.parametrize("before", ["gather", "finish"])
@pytest.mark.parametrize("name", ["mean", "components", "scores", "eigenvalues"])
def test_a_chunk_that_is_lost_before_the_end_of_the_run_that_wrote_it(
    config, undisturbed, name, before, monkeypatch, capsys
):
    """What reads the result would take it for zeros: that a chunk is there is asked once more as the result is published."""
    end = getattr(Outputs, before)

    def lossy(outputs):
        os.remove(staged(name)[-1])
        end(outputs)

    with monkeypatch.context() as patch:
        patch.setattr(Outputs, before, lossy)
        assert dpca("run", config) == 1
    assert re.search(rf"/{name}(: 1 of its 1 chunks are|.* is) gone\n.*--resume", capsys.readouterr().err)
    assert dpca("run", config, "--resume") == 0
    assert bits("r") == undisturbed


def spans_computed(monkeypatch):
    """Count the spans of each kind that are computed."""
    computed = []
    places = {first_pass: ["first_span_of_features"]}
    places[second_pass] = ["components_span", "left_vectors_span", "scores_span"]
    for place, name in ((place, name) for place, names in places.items() for name in names):
        task = getattr(place, name)

        def counted(*arguments, task=task):
            computed.append((task.__name__, arguments[-2]))
            return task(*arguments)

        monkeypatch.setattr(place, name, counted)
    return computed


@pytest.mark.parametrize("damage", [truncated, flipped, os.remove])
def test_what_a_span_wrote_and_is_damaged_is_named_and_that_span_computed_again(
    config, undisturbed, damage, monkeypatch, capsys
):
    left_by_a_kill(16, workers=1)
    computed = spans_computed(monkeypatch)
    assert dpca("run", config, "--resume") == 0
    usual = sorted(computed)
    shutil.rmtree("r")
    left_by_a_kill(16, workers=1)
    files = staged("mean") + staged("components*")
    assert len(files) > 12
    if damage is not truncated:  # a file is a file, wherever it lies
        files = files[::4]
    for path in in_turn(files, damage):
        del computed[:]
        capsys.readouterr()
        assert dpca("run", config, "--resume") == 0
        array, chunk = path.split("/")[4], path.split("/")[-1]
        shown = capsys.readouterr().err
        assert f"dpca: {os.getcwd()}/{path.partition('/c/')[0]}" in shown
        assert "it is computed again" in shown
        # The second pass begins where the first ended.
        part = ("first_span_of_features", int(chunk)) if array == "mean" else ("components_span", 9 - int(chunk))
        assert sorted(computed) == sorted([*usual, part])
        assert bits("r") == undisturbed


@pytest.mark.parametrize("what", ["result.zarr/zarr.json", "result.zarr/mean/zarr.json", "result.zarr/scale/zarr.json"])
def test_damaged_metadata_of_arrays_under_way_are_made_again(config, undisturbed, what):
    left_by_a_kill(16)
    truncated(next(Path("r/ledger").glob(f"*/{what}")))
    assert dpca("run", config, "--resume") == 0
    assert bits("r") == undisturbed


TALL = "input: {uri: tall.npy}\nmodel: {n_components: 3}\noutput: {path: r}\n"


@pytest.fixture
def tall(monkeypatch):
    """Samples that stream by; the bits of the result, which is gone."""
    np.save("tall.npy", random_array(0, (6000, 12), "f8"))
    Path("tall.yaml").write_text(TALL)
    in_small_slabs(monkeypatch)
    assert dpca("run", "tall.yaml") == 0
    undisturbed = bits("r")
    shutil.rmtree("r")
    return undisturbed


def test_damaged_scores_under_way_of_tall_data(tall, monkeypatch):
    what = "import dpca.methods.sweeps\nspan = dpca.methods.sweeps.scores_span\nimport dpca.methods.second_pass\n"
    what += "dpca.methods.second_pass.scores_span = lambda *a: os.kill(os.getpid(), 9) if a[-2] == 6 else span(*a)\n"
    assert disturbed(what, "run", "tall.yaml").returncode == -signal.SIGKILL
    files = staged("left_vectors*") + staged("scores*") + staged("alpha*")
    assert len({path.split("/")[4] for path in files}) == 3
    computed = spans_computed(monkeypatch)
    for path in in_turn(files[::3], truncated):
        del computed[:]
        assert dpca("run", "tall.yaml", "--resume") == 0
        assert bits("r") == tall
        again = ("left_vectors_span" if "left_vectors" in path else "scores_span", int(path.split("/")[6]))
        assert again in computed or again[0] == "left_vectors_span"
        assert len([task for task, _ in computed if task == "left_vectors_span"]) == ("left_vectors" in path)


def test_an_array_on_the_way_whose_removal_was_stopped_halfway_is_gone(tall, monkeypatch):
    remove = durable.Disk.remove_tree

    def stopped(disk, path):
        if "_~in_hand_of_" in path.name:
            Path(path, "zarr.json").unlink()
            raise KeyboardInterrupt
        remove(disk, path)

    with monkeypatch.context() as patch:
        patch.setattr(durable.Disk, "remove_tree", stopped)
        assert dpca("run", "tall.yaml") == 130
    assert staged("*_~in_hand_of_*")
    assert dpca("run", "tall.yaml", "--resume") == 0
    assert bits("r") == tall


@pytest.mark.parametrize("shape", [(400, 4), (6, 4000)])
@pytest.mark.parametrize("committed", [False, True])
@pytest.mark.parametrize("rotated", [False, True])
def test_an_output_that_is_damaged_when_what_it_came_from_is_gone(shape, committed, rotated, monkeypatch):
    """In the moment before the result is published: its pass is done again. The same of each file of the ledger."""
    left, right = (np.linalg.qr(random_array(seed, (length, 4), "f8"))[0] for seed, length in enumerate(shape))
    np.save("x.npy", (left * [1, 1e-2, 1e-4, 1e-6]) @ right.T)
    model = f"{{n_components: 3{', rotation: {kind: varimax}' if rotated else ''}}}"
    Path("c.yaml").write_text(f"input: {{uri: x.npy}}\nmodel: {model}\noutput: {{path: r}}\n")
    assert dpca("run", "c.yaml") == 0
    undisturbed = bits("r")
    shutil.rmtree("r")

    class Crash(BaseException):
        pass

    def crash(*_, **__):
        raise Crash

    with monkeypatch.context() as patch:
        patch.setattr(*((ResultDirectory, "publish") if committed else (running, "manifest_of")), crash)
        with pytest.raises(Crash):
            run(load("c.yaml"))
    assert not staged("*in_hand*")
    files = staged("scores") + staged("components") + staged("rotated_scores") + staged("rotated_components")
    files += [str(path) for path in Path("r/ledger").glob("*/parts/*/*.npz")]
    for path in in_turn(files, truncated):
        assert dpca("run", "c.yaml", "--resume") == 0, path
        assert bits("r") == undisturbed, path


def of_other_units(path):
    Path(path).write_text(Path(path).read_text().replace('"attributes": {', '"attributes": {"units": "K",'))


def test_metadata_that_change_when_what_an_array_came_from_is_gone_are_made_again(tall, monkeypatch):
    """Metadata have no checksum of their own."""

    def crash(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(running, "manifest_of", crash)
        assert dpca("run", "tall.yaml") == 130
    files = [
        str(path) for name in ("scores", "alpha") for path in Path("r/ledger").glob(f"*/result.zarr/{name}/zarr.json")
    ]
    assert len(files) == 2
    for path in in_turn(files, of_other_units):
        assert "units" in Path(path).read_text()
        assert dpca("run", "tall.yaml", "--resume") == 0
        assert bits("r") == tall


def run_until_its_publication():
    """Ten spans with what a run left that ended before it published its result, to be made."""

    class Crash(BaseException):
        pass

    def crash(*_, **__):
        raise Crash

    made(ten_spans)
    with pytest.MonkeyPatch.context() as patch:
        in_small_slabs(patch)
        patch.setattr(directory.ResultDirectory, "publish", crash)
        with pytest.raises(Crash):
            run(load("c.yaml"))


@pytest.mark.parametrize(
    "lost", ["scores/c", "singular_values/c", "components/c", "components", "mean", "zarr.json", ""]
)
def test_what_is_lost_of_a_result_that_is_not_published_yet_is_computed_again(config, undisturbed, lost):
    made(run_until_its_publication)
    (path,) = Path("r/ledger").glob(f"*/result.zarr/{lost}")
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert dpca("run", config, "--resume") == 0
    assert bits("r") == undisturbed


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"sha256": "", "document": {}}'])
def test_a_damaged_declaration_of_the_result_is_made_again(config, undisturbed, text):
    made(run_until_its_publication)
    Path("r/ledger/commit.json").write_text(text)
    assert dpca("run", config, "--resume") == 0
    assert bits("r") == undisturbed


CHANGED = {
    "shape": ("components_~in_hand_of_components", "6000", "6001"),
    "dtype": ("mean", "float64", "int64"),
    "precision": ("mean", "float64", "float16"),
    "fill": ("scale", '"fill_value": 1.0', '"fill_value": 3.0'),
    "chunks": ("components_~in_hand_of_components", "600\n", "620\n"),
}


@pytest.mark.parametrize("change", CHANGED)
def test_metadata_that_say_something_else_are_made_again(config, undisturbed, change):
    left_by_a_kill(19)
    array, old, new = CHANGED[change]
    (path,) = Path("r/ledger").glob(f"*/result.zarr/{array}/zarr.json")
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    assert dpca("run", config, "--resume") == 0
    assert bits("r") == undisturbed


@pytest.mark.parametrize(
    ("name", "text"),
    [
        *(("manifest.json", text) for text in ("[]", "null", "{}", '{"format_version": 1}', "{")),
        *(("status.json", text) for text in ("[]", "{}", "{")),
    ],
)
def test_damaged_records_are_errors_and_not_defects(finished, name, text, capsys):
    Path("r", name).write_text(text)
    codes = [
        dpca("status", "r"),
        dpca("transform", "r", "x.zarr", "--out", "s.zarr"),
        dpca("run", finished, "--resume"),
    ]
    assert set(codes) <= {0, 2}
    assert dpca("run", finished, "--overwrite") == 0
    assert "defect" not in capsys.readouterr().err
