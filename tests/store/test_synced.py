"""Small arrays of a result that are written together: the files of one after another, in one round trip to zarr's event loop."""

from contextlib import suppress
from errno import ENOSPC
from pathlib import Path

import numpy as np
import pytest
import zarr
from zarr.core import sync as loop

from dpca.errors import DiskFullError
from dpca.sources.coordinate import Coordinate, Parts
from dpca.store.outputs import TOGETHER_BYTES, Outputs
from dpca.store.synced import SyncedStore
from dpca.system import durable
from tests.commands.calls import dpca
from tests.stores import contents, random_array


@pytest.fixture
def trips(monkeypatch):
    """A list that grows by one with every round trip."""
    counted, original = [], loop._runner
    monkeypatch.setattr(loop, "_runner", lambda coroutine: counted.append(coroutine) or original(coroutine))
    return counted


def write_all(outputs):
    for number in range(5):
        outputs.write(f"a{number}", random_array(number, (9, number), "f8"), ("sample", "component"), {"n": number})
    outputs.write("nothing", 3.5, ())
    outputs.write("large", np.zeros(TOGETHER_BYTES // 8 + 1), ("sample",))
    outputs.write_text("names", ["x", "", "yz"], "name")


def test_they_are_what_one_after_another_writes(trips, tmp_path):
    alone, at_once = (Outputs(SyncedStore(tmp_path / name)) for name in "ab")
    for outputs in (alone, at_once):
        outputs.create({})
    trips.clear()
    write_all(alone)
    assert len(trips) == 8
    trips.clear()
    with at_once.together(), at_once.together():
        write_all(at_once)
        assert len(trips) == 1  # the large one waits for no other
    assert len(trips) == 2
    assert contents(tmp_path / "a") == contents(tmp_path / "b")
    assert at_once.inventory() == alone.inventory()


def test_an_array_that_is_replaced_is_read_anew(tmp_path):
    outputs = Outputs(SyncedStore(tmp_path))
    outputs.create({})
    outputs.write("a", np.arange(3.0), ("sample",))
    assert outputs.array("a").shape == (3,)
    with outputs.together():
        outputs.write("a", np.arange(5.0), ("sample",))
    assert outputs.array("a")[...].tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("gone", ["", "a0"])
def test_a_late_task_does_not_bring_back_what_was_removed(tmp_path, gone):
    outputs = Outputs(SyncedStore(tmp_path / "r"))
    outputs.create({})
    outputs.write("a0", np.zeros((4, 2)), ("sample", "component"))
    array = outputs.array("a0")
    durable.remove(tmp_path / "r" / gone)
    with pytest.raises(FileNotFoundError, match="is gone"):
        array[...] = 1
    assert not (tmp_path / "r" / "a0").exists()


def test_nothing_is_written_if_the_block_raises(tmp_path):
    outputs = Outputs(SyncedStore(tmp_path))
    outputs.create({})
    with suppress(ZeroDivisionError), outputs.together():
        outputs.write("a", np.arange(3.0), ("sample",))
        raise ZeroDivisionError
    assert "a" not in outputs
    outputs.write("b", np.arange(3.0), ("sample",))
    assert "b" in outputs


def write_three(outputs):
    with outputs.together():
        for name in "abc":
            outputs.write(name, np.arange(3.0), ("sample",))


def test_one_that_cannot_be_written_is_named(tmp_path, monkeypatch):
    outputs = Outputs(SyncedStore(tmp_path / "r"))
    outputs.create({})
    put = SyncedStore._put

    def full(store, key, value):
        if key.startswith("b/c"):
            raise OSError(ENOSPC, "No space left on device")
        put(store, key, value)

    monkeypatch.setattr(SyncedStore, "_put", full)
    with pytest.raises(DiskFullError, match="r/b: could not be written"):
        write_three(outputs)


@pytest.mark.parametrize(
    "change",
    [
        lambda outputs: outputs.write_coordinate("b", Coordinate("b", np.arange(3.0), Parts.of(np.dtype("f8"))), "b"),
        lambda outputs: outputs.name_coordinates(["b"]),
        lambda outputs: outputs.finish(),
    ],
)
def test_a_full_disk_is_said_whatever_is_written(change, tmp_path, monkeypatch):
    outputs = Outputs(SyncedStore(tmp_path / "r"))
    outputs.create({})

    def full(*_):
        raise OSError(ENOSPC, "No space left on device")

    monkeypatch.setattr(durable, "write", full)
    with pytest.raises(DiskFullError, match="r.*: could not be written: No space left"):
        change(outputs)


def test_a_small_run_takes_few_round_trips(trips):
    """What a user waits for in a small command is these: 82, 38 and 61 when every array was written, and its metadata read, alone."""
    zarr.create_array("x.zarr", data=random_array(0, (30, 2000), "f4"), chunks=(30, 500))
    Path("c.yaml").write_text("input: {uri: x.zarr}\nmodel: {n_components: 4}\noutput: {path: r}\n")
    for command, at_most in (
        (("run", "c.yaml"), 26),
        (("transform", "r", "x.zarr", "--out", "s.zarr"), 15),
        (("reconstruct", "r", "--out", "y.zarr"), 13),
    ):
        trips.clear()
        assert dpca(*command) == 0
        assert len(trips) <= at_most, command
