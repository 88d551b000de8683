"""Sums in two levels: neighbours first, on a cluster by workers; the same bits wherever they are added up, and after any disturbance."""

import json
from pathlib import Path

import numpy as np
import pytest
import zarr
from distributed import Client

from dpca.errors import DpcaError
from dpca.execution import engine
from dpca.execution.executors import Distributed, Threads
from dpca.planning import runplan
from dpca.sources import open_source
from dpca.store.ledger import Checkpoint
from tests.clusters import local_cluster
from tests.commands.calls import dpca
from tests.made import made
from tests.resume.disturbed import in_small_slabs
from tests.runs import arrays_of, decompose_array
from tests.stores import bits, random_array

SHAPE, CHUNKS = (20, 3000), (20, 100)
PLAN = {"slab_bytes": 20 * 8 * 200, "n_spans": 11, "tile_width": 1}


@pytest.fixture
def stored(tmp_path):
    zarr.create_array(tmp_path / "x.zarr", data=random_array(0, SHAPE, "f8"), chunks=CHUNKS)
    return tmp_path / "x.zarr"


@pytest.mark.parametrize("together", [3, 11])
def test_the_bits_follow_from_how_many_are_added_up_together(stored, together, tmp_path):
    found = decompose_array(open_source(stored), 4, executor=Threads(1), together=together, **PLAN)
    expected = arrays_of(found)
    np.testing.assert_allclose(
        found.spectrum.singular_values,
        np.linalg.svd(zarr.open_array(stored)[...] - zarr.open_array(stored)[...].mean(axis=0), compute_uv=False)[:4],
        rtol=1e-12,
    )
    assert (
        arrays_of(decompose_array(open_source(stored), 4, executor=Threads(3), together=together, **PLAN)) == expected
    )
    with local_cluster(tmp_path, 2, processes=False) as cluster, Client(cluster) as client:
        how = {"executor": Distributed(client), "store": tmp_path / "r.zarr", "together": together}
        assert arrays_of(decompose_array(open_source(stored), 4, **how, **PLAN)) == expected


def test_the_tests_above_can_fail(stored):
    one, other = (decompose_array(open_source(stored), 4, together=together, **PLAN) for together in (1, 3))
    assert arrays_of(one)["gram"] != arrays_of(other)["gram"]


@pytest.mark.parametrize("solver", ["covariance_eigh", "tsqr"])
def test_other_solvers_add_up_in_two_levels(solver, tmp_path):
    x = random_array(0, (3000, 20), "f8")
    zarr.create_array(tmp_path / "t.zarr", data=x, chunks=(100, 20))
    how = {"solver": solver, "together": 3, "slab_bytes": 20 * 8 * 200, "n_spans": 11, "tile_width": 1}
    found = decompose_array(open_source(tmp_path / "t.zarr"), 4, **how)
    expected = np.linalg.svd(x - x.mean(axis=0), compute_uv=False)[:4]
    np.testing.assert_allclose(found.spectrum.singular_values, expected, rtol=1e-12)


def three_together(monkeypatch):
    in_small_slabs(monkeypatch)
    monkeypatch.setattr(runplan, "TOGETHER", 3)
    monkeypatch.setattr(runplan, "MANY", 1)


def ten_spans():
    zarr.create_array("x.zarr", data=random_array(0, (12, 6000), "f8"), chunks=(12, 600))
    Path("c.yaml").write_text("input: {uri: x.zarr}\nmodel: {n_components: 3}\noutput: {path: r}\n")
    with pytest.MonkeyPatch.context() as patch:
        three_together(patch)
        assert dpca("run", "c.yaml", "--set", "output.path=expected") == 0


@pytest.fixture
def config(monkeypatch):
    """Ten spans, of which three are added up together."""
    made(ten_spans)
    three_together(monkeypatch)
    plan = json.loads(Path("expected/manifest.json").read_text())
    assert plan["plan"]["n_spans"] == 10
    return bits("expected")


@pytest.fixture
def cluster(tmp_path):
    with local_cluster(tmp_path, 2, processes=False, protocol="tcp") as cluster:  # in this process, which tests disturb
        yield f"compute.cluster={{scheduler: '{cluster.scheduler_address}'}}"


def test_this_process_adds_a_sum_for_each_group_and_reads_no_part(config, cluster, monkeypatch):
    read, joined = [], []
    loaded, join = engine.TasksAddedUp.loaded, engine.TasksAddedUp.joined
    monkeypatch.setattr(engine.TasksAddedUp, "loaded", lambda *a: read.append(a) or loaded(*a))
    monkeypatch.setattr(engine.TasksAddedUp, "joined", lambda *a: joined.append(a[2]) or join(*a))
    assert dpca("run", "c.yaml", "--set", cluster) == 0
    assert bits("r") == config
    assert joined == [range(3), range(3, 6), range(6, 9), range(9, 10)]
    assert read == []


@pytest.mark.parametrize("damaged", ["sum", "part", "both"])
def test_what_is_damaged_is_added_up_again(config, cluster, damaged, monkeypatch, capsys):
    plain, done = Checkpoint.keep_sum_of, []

    def keeping(self, numbers, value):
        plain(self, numbers, value)
        if numbers[0] == 3:
            done.append(numbers)
            if damaged in ("sum", "both"):
                self._path_of(numbers).write_bytes(b"something else")
            if damaged == "both":
                self._path(4).write_bytes(b"something else")

    if damaged == "part":
        loading = Checkpoint.load

        def load(self, number, like):
            if number == 4 and not done:
                done.append(number)
                self._path(4).write_bytes(b"something else")
            return loading(self, number, like)

        monkeypatch.setattr(Checkpoint, "load", load)
    monkeypatch.setattr(Checkpoint, "keep_sum_of", keeping)
    assert dpca("run", "c.yaml", "--set", cluster) == 0
    assert done
    assert bits("r") == config
    assert "is damaged" in capsys.readouterr().err


@pytest.mark.parametrize(("goes_on", "after"), [("here", 2), ("there", 1)])
def test_a_run_goes_on_wherever_it_ended(config, cluster, goes_on, after, monkeypatch):
    join, seen = engine.TasksAddedUp.joined, []

    def ending(*arguments):
        seen.append(1)
        if len(seen) > after:
            raise DpcaError("enough")
        return join(*arguments)

    with monkeypatch.context() as disturbed:
        disturbed.setattr(engine.TasksAddedUp, "joined", ending)
        assert dpca("run", "c.yaml", "--set", cluster) == 1
    where = ("--set", cluster) if goes_on == "there" else ()
    assert dpca("run", "c.yaml", "--resume", *where) == 0
    assert bits("r") == config


def test_a_job_array_has_the_same_bits(config):
    assert dpca("batch", "init", "c.yaml", "--partitions", "2") == 0
    for _ in range(2):  # stages
        for index in (1, 0):
            assert dpca("batch", "partition", "r", "--index", index) == 0
        assert dpca("batch", "finalize", "r") == 0
    assert bits("r") == config


def test_a_plan_holds_the_sum_of_neighbours(config, capsys):
    capsys.readouterr()
    assert dpca("plan", "c.yaml", "--json") == 0
    assert "sum of neighbouring spans" in capsys.readouterr().out
