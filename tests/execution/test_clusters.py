"""Schedulers and workers as users start them: by hand, late, in another directory, without a mount, killed, paused."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from contextlib import ExitStack
from pathlib import Path

import dask
import dask.array as da
import h5py
import numpy as np
import pytest
import xarray
import zarr
from distributed import Client, get_client
from distributed.core import Status

from dpca import PCA, KernelPCA, slabs
from dpca.errors import ClusterError, ConfigError, DataError, DpcaError, InputError, NotSeenError
from dpca.execution import engine, executors
from dpca.planning import search
from dpca.system.blas import blas_libraries
from tests.clusters import ByHand, hides_directories, local_cluster
from tests.commands.calls import dpca
from tests.genotypes.cohorts import cohort, write_plink
from tests.stores import random_array

pytestmark = pytest.mark.long

X = random_array(0, (12, 60), "f4")


@pytest.fixture
def by_hand(tmp_path):
    with ExitStack() as stack:
        yield ByHand(stack, tmp_path)


@pytest.fixture(scope="module")
def blind(tmp_path_factory):
    """A worker that has another directory where the data are."""
    hides_directories()
    data, apart = tmp_path_factory.mktemp("data"), tmp_path_factory.mktemp("apart")
    with ExitStack() as stack:
        there = ByHand(stack, apart)
        there.worker(hides=data)
        yield there, data


def zarr_of(path):
    return zarr.create_array(path, data=X, chunks=(12, 6), overwrite=True)


def hdf5_of(path):
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=X, chunks=(12, 6))
    return path


def xarray_of(path):
    with dask.config.set(scheduler="synchronous"):  # a worker would write to the directory that it sees
        xarray.DataArray(X, dims=("time", "x"), name="t").chunk(x=6).to_zarr(path, mode="w", consolidated=False)
    return xarray.open_zarr(path, consolidated=False)["t"]


KINDS = {
    "zarr": lambda path: zarr_of(f"{path}.zarr"),
    "from_zarr": lambda path: da.from_zarr(zarr_of(f"{path}.zarr").store.root) + 1,
    "from_array": lambda path: da.from_array(zarr_of(f"{path}.zarr"), inline_array=True),
    "xarray": lambda path: xarray_of(f"{path}.zarr"),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", ["fit", "kernels", "transform", "inverse"])
def test_what_a_worker_does_not_see_is_an_error_that_names_it(blind, kind, way):
    there, data = blind
    x = KINDS[kind](data / f"{kind}-{way}")
    use = {
        "fit": lambda: PCA(3, client=there.client).fit(x),
        "kernels": lambda: KernelPCA(3, client=there.client).fit(x),
        "transform": lambda: PCA(3).fit(X).set_params(client=there.client).transform(x),
        "inverse": lambda: PCA(3, client=there.client, store=data).fit(X),
    }[way]
    with pytest.raises(NotSeenError, match=r"worker tcp://127.0.0.1:\d+ on \S+: .*does not see") as caught:
        use()
    assert str(data) in str(caught.value)
    if way == "inverse":
        assert "store=" in caught.value.remedy


def bed_of(path):
    write_plink(cohort(n=12, d=40, missing=0, special=False), Path(path).with_suffix(""))


INPUTS = {"x.zarr": zarr_of, "x.h5": hdf5_of, "x.npy": lambda path: np.save(path, X), "x.bed": bed_of}


@pytest.mark.parametrize("name", INPUTS)
def test_a_run_names_the_worker_that_does_not_see_its_input(blind, name, capsys, monkeypatch, tmp_path):
    there, data = blind
    array = "\n  array: x" if name == "x.h5" else ""
    INPUTS[name](str(data / name))
    Path("c.yaml").write_text(f"input:\n  uri: {data / name}{array}\nmodel: {{n_components: 2}}\noutput: {{path: r}}\n")
    assert dpca("run", "c.yaml", "--set", f"compute.cluster={{scheduler: '{there.address}'}}") == 1
    said = capsys.readouterr().err
    assert "worker tcp://127.0.0.1" in said
    assert str(data / name) in said


def test_a_result_that_a_worker_does_not_see_is_refused_before_data_are_read(blind, capsys, tmp_path):
    there, data = blind
    zarr_of(str(tmp_path / "x.zarr"))
    Path("c.yaml").write_text(f"input: {{uri: x.zarr}}\nmodel: {{n_components: 2}}\noutput: {{path: {data / 'r'}}}\n")
    assert dpca("run", "c.yaml", "--set", f"compute.cluster={{scheduler: '{there.address}'}}") == 1
    said = capsys.readouterr().err
    assert "worker tcp://127.0.0.1" in said
    assert "output.path" in said


COMMANDS = {
    "run": ("x.zarr", ("run", "c.yaml", "--overwrite")),
    "kernels": ("x.zarr", ("run", "c.yaml", "--overwrite", "--set", "model.kind=kernel_pca")),
    "gram_mean_product": ("x.zarr", ("run", "c.yaml", "--overwrite", "--set", "preprocess.scale=std")),
    "tsqr": ("x.zarr", ("run", "c.yaml", "--overwrite", "--set", "model.svd_solver=tsqr")),
    "block Krylov": ("x.zarr", ("run", "c.yaml", "--overwrite", "--set", "model.svd_solver=block_krylov")),
    "transform": ("new.zarr", ("transform", "r", "{data}/new.zarr", "--out", "t.zarr")),
    "extend by what is not seen": ("new.zarr", ("extend", "r", "{data}/new.zarr", "--output", "e")),
    "extend what is not seen": ("x.zarr", ("extend", "r", "new.zarr", "--output", "e")),
    "derive": ("x.zarr", ("derive", "d.yaml", "--components")),
}
"""By what they show: the input that the worker does not see, and a command after a run on `x.zarr`, whose result it sees."""


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_names_the_worker_that_does_not_see_an_input(blind, name, capsys):
    there, data = blind
    hidden, command = COMMANDS[name]
    at = {file: data / file if file == hidden else Path(file) for file in ("x.zarr", "new.zarr")}
    for path in at.values():
        zarr_of(str(path))
    Path("c.yaml").write_text(f"input: {{uri: {at['x.zarr']}}}\nmodel: {{n_components: 2}}\noutput: {{path: r}}\n")
    Path("d.yaml").write_text(
        "from: r\nanalyses: [{name: a, model: {kind: pca, n_components: 2}}]\noutput: {path: d}\n"
    )
    assert dpca("run", "c.yaml") == 0
    on = ("--scheduler", there.address)
    if command[0] != "transform":
        on = ("--set", f"compute.cluster={{scheduler: '{there.address}'}}")
    capsys.readouterr()
    assert dpca(*(word.format(data=data) for word in command), *on) == 1
    said = capsys.readouterr().err
    assert "worker tcp://127.0.0.1" in said
    assert "does not see" in said
    assert hidden in said


def test_workers_that_were_started_elsewhere_see_relative_paths(by_hand, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    by_hand.worker(cwd=tmp_path / "elsewhere")
    zarr_of("x.zarr")
    alone = PCA(3).fit(X).explained_variance_
    for x in (zarr.open_array("x.zarr"), da.from_zarr("x.zarr"), xarray_of("y.zarr")):
        assert_close(PCA(3, client=by_hand.client).fit(x), alone)


def assert_close(fit, variances):
    np.testing.assert_allclose(fit.explained_variance_, variances, rtol=1e-5)


# Workers.


def gated(path):
    """A function of blocks that waits until a file is there, as long as a test wants it to; workers know nothing of this module."""

    def wait(block):
        while block.size and not os.path.exists(path):
            threading.Event().wait(0.02)
        return block

    return wait


def in_background(function):
    """A thread that calls a function, and where to ask for what it found."""
    found = []

    def call():
        try:
            found.append(function())
        except Exception as error:
            found.append(error)

    thread = threading.Thread(target=call, daemon=True)
    thread.start()

    def result():
        thread.join(60)
        assert not thread.is_alive()
        if isinstance(found[0], Exception):
            raise found[0]
        return found[0]

    return result


def until(condition):
    """Wait until something is so."""
    for _ in range(600):
        if condition():
            return
        threading.Event().wait(0.1)
    raise AssertionError


@pytest.fixture
def soon(monkeypatch):
    """Schedulers are asked often, and a fit has many spans."""
    monkeypatch.setattr(executors, "LOOK_SECONDS", 0.1)
    monkeypatch.setattr(engine.fold, "__defaults__", (None, 0.1))
    monkeypatch.setattr(slabs, "TILE_WIDTH", 1)
    monkeypatch.setattr(search, "SLAB_BYTES", 300)
    monkeypatch.setattr(search, "SLAB_WIDTH", 1)


def lazy(gate, n=40):
    """Values, and a Dask array of them whose blocks wait for a file."""
    values = np.concatenate([X] * n, axis=1)
    return values, da.from_array(values, chunks=(12, 6)).map_blocks(gated(str(gate)), dtype=values.dtype)


def test_workers_that_come_late_get_spans_at_once(by_hand, soon, tmp_path):
    by_hand.worker()
    gate = tmp_path / "gate"
    values, x = lazy(gate)
    fit = in_background(lambda: PCA(3, client=by_hand.client).fit(x))
    until(lambda: any(by_hand.client.processing().values()))
    for _ in range(2):
        by_hand.worker()
    until(lambda: len([keys for keys in by_hand.client.processing().values() if keys]) == 3)
    gate.touch()
    assert_close(fit(), PCA(3).fit(values).explained_variance_)


def test_a_worker_is_waited_for_and_said_to_be(by_hand, caplog):
    fit = in_background(lambda: PCA(3, client=by_hand.client).fit(X))
    until(lambda: "has no workers yet; waiting for one" in caplog.text)
    by_hand.worker()
    assert_close(fit(), PCA(3).fit(X).explained_variance_)


@pytest.mark.parametrize("when", ["before", "while"])
def test_a_scheduler_that_ends_while_a_worker_is_waited_for_is_said_to_have_ended(by_hand, when, caplog):
    executor = executors.Distributed(by_hand.client)
    if when == "before":
        by_hand.scheduler.kill()
        until(lambda: by_hand.client.status != "running")
    workers = in_background(lambda: executor.workers(None))
    if when == "while":
        until(lambda: "has no workers yet; waiting for one" in caplog.text)
        by_hand.scheduler.kill()
    with pytest.raises(ClusterError, match="stopped answering"):
        workers()


def test_an_adaptive_cluster_starts_a_worker(tmp_path):
    with local_cluster(tmp_path, 0) as cluster, Client(cluster) as client:
        cluster.adapt(minimum=0, maximum=1)
        assert_close(PCA(3, client=client).fit(X), PCA(3).fit(X).explained_variance_)


AS_TOLD = {"DASK_DISTRIBUTED__WORKER__MEMORY__PAUSE": "False"}
"""A worker that does not look at its memory, and so stays paused for as long as a test wants it to."""


def become(status, dask_worker):
    dask_worker.status = status


def test_a_paused_worker_hands_its_spans_to_others(by_hand, soon, tmp_path):
    for _ in range(2):
        by_hand.worker(**AS_TOLD)
    one, _ = by_hand.client.nthreads()
    gate = tmp_path / "gate"
    values, x = lazy(gate)
    fit = in_background(lambda: PCA(3, client=by_hand.client).fit(x))
    until(lambda: all(len(keys) > 1 for keys in by_hand.client.processing().values()))
    by_hand.client.run(become, Status.paused, workers=[one])
    gate.touch()
    assert_close(fit(), PCA(3).fit(values).explained_variance_)


def test_what_was_lost_with_its_only_worker_is_computed_again(by_hand, soon, tmp_path):
    worker, gate = by_hand.worker(), tmp_path / "gate"
    values, x = lazy(gate)
    model = PCA(3).fit(values)
    scores = in_background(lambda: model.set_params(client=by_hand.client).transform(x))
    until(lambda: begun(by_hand.client))  # it has the components by now
    worker.kill()
    until(lambda: not by_hand.client.nthreads())
    by_hand.worker()
    gate.touch()
    np.testing.assert_array_equal(scores(), model.set_params(client=None).transform(values))


@pytest.mark.parametrize("what", ["paused", "gone"])
def test_a_run_without_workers_says_so_and_goes_on_when_one_is_there(by_hand, soon, tmp_path, what, capfd):
    worker = by_hand.worker(**AS_TOLD)
    (address,) = by_hand.client.nthreads()
    gate = tmp_path / "gate"
    zarr_of("x.zarr")
    Path("c.yaml").write_text("input: {uri: x.zarr}\nmodel: {n_components: 3}\noutput: {path: r}\n")
    values, x = lazy(gate)
    from dpca.execution.executors import Distributed
    from dpca.execution.progress import Progress
    from tests.runs import decompose_array

    said = []

    class Said(Progress):
        def say(self, sentence):
            said.append(sentence)

    fit = in_background(
        lambda: decompose_array(x, 3, executor=Distributed(by_hand.client), store=tmp_path / "r", progress=Said())
    )
    until(lambda: any(by_hand.client.processing().values()))
    if what == "paused":
        by_hand.client.run(become, Status.paused)
        gate.touch()
        until(lambda: any("all workers are paused" in one and address in one for one in said))
        by_hand.client.run(become, Status.running)
    else:
        worker.kill()
        until(lambda: any("has no workers; waiting for one" in one for one in said))
        gate.touch()
        by_hand.worker(awaited=False)
    np.testing.assert_allclose(fit().spectrum.explained_variance[:3], PCA(3).fit(values).explained_variance_, rtol=1e-5)


# What is left behind.


def left(dask_scheduler):
    """What a scheduler has of fits."""
    scheduler = dask_scheduler
    return {
        "topics": [name for name in scheduler._broker._topics if name.startswith("dpca")],
        "locks": list(scheduler.extensions["semaphores"].max_leases),
        "plugins": [name for name in scheduler.worker_plugins if "dpca" in name],
        "tasks": list(scheduler.tasks),
    }


def blas():
    return [library["num_threads"] for library in blas_libraries()]


NOTHING = {"topics": [], "locks": [], "plugins": [], "tasks": []}
FITS = """
import sys, numpy as np, dask.array as da
from distributed import Client
from dpca import PCA
from tests.execution.test_clusters import lazy
with Client(sys.argv[1]) as client:
    PCA(3, client=client).fit(lazy(sys.argv[2])[1])
"""


def test_nothing_of_a_fit_is_left_whether_it_ends_overlaps_another_or_is_killed(by_hand, tmp_path):
    by_hand.worker(nthreads=2, OPENBLAS_NUM_THREADS="2")
    before = by_hand.client.run(blas)
    irregular = da.from_array(X, chunks=(12, (7, 13, 5, 15, 20)))
    PCA(3, client=by_hand.client).fit(irregular)
    gates = [tmp_path / name for name in "ab"]
    fits = [in_background(lambda gate=gate: PCA(3, client=by_hand.client).fit(lazy(gate)[1])) for gate in gates]
    until(lambda: len(begun(by_hand.client)) == 2)
    assert {tuple(found) for found in by_hand.client.run(blas).values()} == {(1,) * len(blas())}
    for gate, fit in zip(gates, fits, strict=True):
        gate.touch()
        fit()
    until(lambda: by_hand.client.run(blas) == before)
    until(lambda: by_hand.client.run_on_scheduler(left) == NOTHING)
    gate = tmp_path / "c"
    killed = subprocess.Popen([sys.executable, "-c", FITS, by_hand.address, str(gate)])
    until(lambda: begun(by_hand.client))
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    gate.touch()
    PCA(3, client=by_hand.client).fit(X)
    until(lambda: by_hand.client.run(blas) == before)
    until(lambda: by_hand.client.run_on_scheduler(left) == NOTHING)


def begun(client):
    return set().union(*client.run(lambda dask_worker: {task.key for task in dask_worker.state.executing}).values())


# Clients.


def test_clusters_tasks_and_threads_of_coroutines_are_clients(by_hand):
    by_hand.worker(nthreads=2)
    alone = PCA(3).fit(X).explained_variance_
    by_hand.get_client = lambda: Client(by_hand.address, set_as_default=False)  # as clusters have it
    assert_close(PCA(3, client=by_hand).fit(X), alone)

    def in_task(seed):
        return PCA(3, client=get_client()).fit(np.roll(X, seed, axis=1)).explained_variance_

    found = by_hand.client.gather(by_hand.client.map(in_task, range(4)))
    np.testing.assert_allclose(found, [alone] * 4, rtol=1e-5)

    async def fits():
        async with Client(by_hand.address, asynchronous=True) as client:
            with pytest.raises(ConfigError, match="is asynchronous here"):
                PCA(3, client=client).fit(X)
            with pytest.raises(ConfigError, match=r"active client .* is asynchronous here"):
                PCA(3).fit(X)
            return await asyncio.to_thread(PCA(3, client=client).fit, X)

    assert_close(asyncio.run(fits()), alone)


# Graphs.


def test_chunks_that_dask_would_exchange_between_workers_are_changed_by_tasks(by_hand):
    for _ in range(2):
        by_hand.worker()
    values = random_array(1, (60, 400), "f4")
    x = da.from_array(values, chunks=(5, 400))
    moved = x.rechunk((-1, 40))
    assert any("P2P" in type(layer).__name__ for layer in moved.dask.layers.values())
    labelled = xarray.DataArray(x, dims=("time", "x")).chunk(time=-1, x=50)
    for one in (moved, moved * 2 / 2, labelled):
        assert_close(PCA(3, client=by_hand.client).fit(one), PCA(3).fit(values).explained_variance_)


# What is said.


def test_the_cause_is_named(by_hand, soon, tmp_path):
    worker = by_hand.worker()
    client = by_hand.client

    def fails(block):
        raise KeyError("tape 7")

    def needs_a_file(block):
        return block + os.path.getsize(tmp_path / "absent")

    x = da.from_array(X, chunks=(12, 6))
    with pytest.raises(DataError, match=r"function of its own failed .* KeyError: 'tape 7'\n(?s:.*)in fails"):
        PCA(3, client=client).fit(x.map_blocks(fails, dtype="f4"))
    with pytest.raises(NotSeenError, match=r"worker tcp.* could not be computed: FileNotFoundError"):
        PCA(3, client=client).fit(x.map_blocks(needs_a_file, dtype="f4"))
    with Client(by_hand.address, set_as_default=False) as other:
        closed = other.persist(x)
    with pytest.raises(InputError, match="not there any more: its state is cancelled"):
        PCA(3, client=client).fit(closed)

    gate = tmp_path / "cancelled"
    kept = client.persist(x)
    fit = in_background(lambda: PCA(3, client=client).fit(kept.map_blocks(gated(str(gate)), dtype="f4")))
    until(lambda: begun(client))
    client.cancel(kept, force=True)
    with pytest.raises(ClusterError, match="has cancelled a task, or blocks that it needs"):
        fit()
    gate.touch()

    (first,) = client.nthreads()
    (scattered,) = client.scatter([X], workers=[first])
    gate = tmp_path / "lost"
    lazy = da.from_delayed(dask.delayed(gated(str(gate)))(scattered), X.shape, "f4")
    fit = in_background(lambda: PCA(3, client=client).fit(lazy))
    until(lambda: begun(client))  # where its data are, and nowhere else
    worker.kill()
    by_hand.worker(awaited=False)
    gate.touch()
    with pytest.raises(DpcaError, match="persisted or scattered") as caught:
        fit()
    assert "damaged" not in str(caught.value)


@pytest.mark.parametrize(
    ("code", "said"), [("__version__ = '9.9'", "has dpca 9.9"), ("raise ImportError('none')", "no dpca")]
)
def test_another_dpca_on_a_worker_is_named(by_hand, tmp_path, code, said):
    (tmp_path / "other" / "dpca").mkdir(parents=True)
    (tmp_path / "other" / "dpca" / "__init__.py").write_text(code)
    by_hand.worker(PYTHONPATH=str(tmp_path / "other"))
    with pytest.raises(ClusterError, match=rf"worker tcp://\S+ has {said}|worker tcp://\S+ .*{said}"):
        PCA(3, client=by_hand.client).fit(X)


def test_a_worker_that_is_ended_below_60_percent_is_planned_for(by_hand):
    from dpca.execution.executors import Distributed

    by_hand.worker("--memory-limit", "1GiB", DASK_DISTRIBUTED__WORKER__MEMORY__TERMINATE="0.5")
    assert Distributed(by_hand.client).workers(None).budget.bytes == int(2**30 * 0.45)
