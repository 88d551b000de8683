import pickle
import threading
import weakref
from concurrent.futures import Future
from contextlib import contextmanager

import dask
import numpy as np
import pytest
import zarr
from distributed import Client
from hypothesis import given
from hypothesis import strategies as st

from dpca.errors import ClusterError, DataError
from dpca.execution.engine import Calls, Session, Watch, fold
from dpca.execution.executors import Distributed, Threads, TopicReport, on_worker
from dpca.methods.passes import Pass
from dpca.numerics.accumulators.gram import GramAccumulator
from dpca.numerics.panels import Rules
from dpca.planning.cuts import plan_layout
from dpca.sources import as_source, open_source
from tests.clusters import local_cluster
from tests.runs import arrays_of, decompose_array
from tests.stores import random_array

SHAPE, CHUNKS = (20, 3000), (20, 100)
PLAN = {"slab_bytes": 20 * 8 * 200, "n_spans": 11, "tile_width": 1}


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """float64, whose sums depend on their order: float32 products summed in float64 come out alike in any."""
    path = tmp_path_factory.mktemp("engine") / "x.zarr"
    zarr.create_array(path, data=random_array(0, SHAPE, "f8"), chunks=CHUNKS)
    return path


@pytest.fixture(scope="module")
def undisturbed(stored):
    return arrays_of(decompose_array(open_source(stored), 4, executor=Threads(1), **PLAN))


@pytest.mark.parametrize("n_workers", [1, 2, 3])
def test_threads_do_not_change_a_bit(stored, undisturbed, n_workers):
    found = decompose_array(open_source(stored), 4, executor=Threads(n_workers), **PLAN)
    assert found.plan.n_spans == 11
    assert arrays_of(found) == undisturbed


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    """Of a cluster of two processes, which nothing uses that does not ask for it."""
    with (
        local_cluster(tmp_path_factory.mktemp("dask"), 2) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


def test_processes_do_not_change_a_bit(stored, undisturbed, client, tmp_path):
    executor = Distributed(client)
    assert executor.n_workers == 2
    found = decompose_array(open_source(stored), 4, executor=executor, store=tmp_path / "r.zarr", **PLAN)
    assert arrays_of(found) == undisturbed


@pytest.mark.parametrize("n_workers", [1, 3])
def test_workers_do_not_change_a_bit(stored, undisturbed, n_workers, tmp_path):
    with local_cluster(tmp_path, n_workers, processes=False) as cluster, Client(cluster) as client:
        executor = Distributed(client)
        assert executor.n_workers == n_workers
        found = decompose_array(open_source(stored), 4, executor=executor, store=tmp_path / "r.zarr", **PLAN)
        assert arrays_of(found) == undisturbed


def test_the_bits_do_depend_on_the_spans_so_the_tests_above_can_fail(stored, undisturbed):
    found = decompose_array(open_source(stored), 4, **{**PLAN, "n_spans": 2})
    assert arrays_of(found)["gram"] != undisturbed["gram"]


class Adding(Calls):
    """Calls whose futures are there already, and whose results are numbers or lists."""

    def __init__(self, *futures):
        self.given = futures

    def submit(self, number):
        return self.given[number]

    def add(self, total, found):
        return total + found


class Scripted(Adding):
    """Futures that are done when the script says so, in any order."""

    def __init__(self, finish_order):
        self.finish_order, self.futures, self.most, self.added = list(finish_order), {}, 0, 0

    def submit(self, number):
        future = Future()
        self.futures[number] = future
        self.most = max(self.most, len(self.futures) - self.added)
        while self.finish_order and self.finish_order[0] in self.futures:
            done = self.finish_order.pop(0)
            self.futures[done].set_result([done])
        return future

    def add(self, total, found):
        self.added += 1
        return super().add(total, found)


@given(st.data())
def test_results_are_added_in_order_whatever_finishes_first_and_never_more_than_the_window(data):
    n, window = data.draw(st.integers(1, 12)), data.draw(st.integers(1, 5))
    # Any order in which a window of calls can finish.
    order, open_, next_ = [], [], 0
    while len(order) < n:
        while next_ < n and len(open_) < window and next_ < min(open_, default=next_) + window:
            open_.append(next_)
            next_ += 1
        order.append(open_.pop(data.draw(st.integers(0, len(open_) - 1))))
    script = Scripted(order)
    assert fold(script, range(n), [], lambda: window) == list(range(n))
    assert script.most <= window


def test_a_failure_ends_the_sum_while_an_earlier_call_still_runs():
    futures = [Future() for _ in range(3)]
    futures[2].set_exception(KeyError("third"))
    with pytest.raises(KeyError, match="third"):
        fold(Adding(*futures), range(3), 0, lambda: 3)


def test_a_call_is_looked_at_a_few_times_however_many_are_under_way():
    """The oldest of a thousand ends last."""
    looks = []

    class Looked(Future):
        def done(self):
            looks.append(self)
            return super().done()

    n = 1000
    futures = [Looked() for _ in range(n)]

    class Ending(Adding):
        def submit(self, number):
            if number == n - 1:
                for future in reversed(futures):
                    future.set_result(1)
            return super().submit(number)

    assert fold(Ending(*futures), range(n), 0, lambda: n) == n
    assert len(looks) < 5 * n


def test_a_worker_tells_of_many_slabs_at_a_time_and_of_all_in_the_end(client):
    def task(count, report):
        for _ in range(count):
            report(3)

    for seconds, most in ((60.0, 2), (0.0, 501)):
        topic = f"dpca/{client.id}/{seconds}"
        told, all_told = [], threading.Event()

        def hear(event, told=told, all_told=all_told):
            told.append(event[1])
            if sum(told) >= 1500:
                all_told.set()

        client.subscribe_topic(topic, hear)
        client.submit(on_worker, task, 500, TopicReport(topic, seconds), pure=False).result()
        assert all_told.wait(60)  # events come by a way of their own
        client.unsubscribe_topic(topic)
        assert sum(told) == 1500
        assert len(told) <= most


class Explained(Adding):
    def explain(self, number, error, beside):
        return RuntimeError(f"{number} beside {beside}: {error}")


def test_a_failure_is_explained_with_the_calls_that_had_not_finished_either():
    futures = [Future() for _ in range(4)]
    futures[1].set_result(1)
    futures[2].set_exception(KeyError("innocent"))
    futures[3].set_exception(KeyError("guilty"))
    with pytest.raises(RuntimeError, match=r"2 beside \[0, 3\]"):
        fold(Explained(*futures), range(4), 0, lambda: 4)


def test_a_result_that_was_added_is_let_go_of(stored):
    """No more n x n partials exist than the window has places."""
    alive, most = weakref.WeakSet(), []
    original = GramAccumulator.empty.__func__

    def counted(cls, n, tally):
        partial = original(cls, n, tally)
        alive.add(partial)
        most.append(len(alive))
        return partial

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GramAccumulator, "empty", classmethod(counted))
        patch.setattr(GramAccumulator, "__hash__", object.__hash__)
        decompose_array(open_source(stored), 4, executor=Threads(1), window=2, **PLAN)
    assert len(most) == 12  # the total and 11 spans
    assert max(most) <= 3


def test_blocks_that_live_on_the_cluster_stay_there(client, tmp_path):
    da = pytest.importorskip("dask.array")
    x = random_array(1, SHAPE, "f8")
    expected = arrays_of(decompose_array(da.from_array(x, chunks=(20, 100)), 4, **PLAN))
    with client.as_current():
        source = as_source(client.persist(da.from_array(x, chunks=(20, 100)) + 0))
        assert len(source.restrict((slice(0, 20), slice(0, 200))).blocks) == 2
        found = decompose_array(source, 4, executor=Distributed(client), store=tmp_path / "r.zarr", **PLAN)
        assert arrays_of(found) == expected


def test_a_pass_submits_a_task_a_span_and_no_data(stored, tmp_path):
    """What travels to a worker is small, whatever d is; what spans share travels once."""
    submitted, shared = [], []

    class Counted(Threads):
        @contextmanager
        def session(self, progress, n_tasks):
            with super().session(progress, n_tasks) as session:

                def submit(function, *arguments):
                    submitted.append(len(pickle.dumps(arguments[0])))
                    return session.submit(function, *arguments)

                yield Session(submit, lambda value: shared.append(value) or session.share(value))

    decompose_array(open_source(stored), 4, executor=Counted(2), store=tmp_path / "r.zarr", **PLAN)
    assert len(submitted) == 2 * 11
    assert max(submitted) < 10_000
    assert [value.shape for value in shared] == [(20, 4)]  # alpha


def test_an_error_on_a_worker_comes_back_as_itself(client, tmp_path):
    x = random_array(0, SHAPE, "f8")
    x[3, 1234] = np.nan
    zarr.create_array(tmp_path / "bad.zarr", data=x, chunks=CHUNKS)
    with pytest.raises(DataError, match=r"bad\.zarr: 1 missing values \(NaN\) .* \[3, 1234\] \(sample 3\)") as caught:
        decompose_array(
            open_source(tmp_path / "bad.zarr"), 4, executor=Distributed(client), store=tmp_path / "r.zarr", **PLAN
        )
    assert "preprocess.missing" in caught.value.remedy


def test_a_scheduler_without_workers_is_waited_for_as_long_as_dask_is_told_to_and_not_longer(stored, tmp_path):
    with (
        dask.config.set({"distributed.scheduler.no-workers-timeout": "100ms"}),
        local_cluster(tmp_path, 0, processes=False) as cluster,
        Client(cluster) as client,
        pytest.raises(ClusterError, match="has no workers"),
    ):
        decompose_array(open_source(stored), 4, executor=Distributed(client), store=tmp_path / "r.zarr")


def test_an_error_stops_the_spans_that_are_left(stored):
    """One thread: spans begin in order, so none begins after the one that fails."""
    from tests.runs import RecordingSource

    x = random_array(0, SHAPE, "f8")
    x[0, 500] = np.nan
    source = RecordingSource(as_source(x))
    with pytest.raises(DataError):
        decompose_array(source, 4, executor=Threads(1), **PLAN)
    assert len(source.regions) <= 4


def test_blas_threads_are_restored_after_a_pass(stored):
    from threadpoolctl import threadpool_info

    def blas():
        return [info["num_threads"] for info in threadpool_info() if info["user_api"] == "blas"]

    before = blas()
    decompose_array(open_source(stored), 4, **PLAN)
    assert blas() == before


class Lost(Future):
    """Done, until its result is asked for: the worker that had it is gone. Then it is done again."""

    asked = 0

    def done(self):
        return self.asked != 1 or super().done()

    def exception(self, timeout=None):
        return None

    def result(self, timeout=None):
        self.asked += 1
        if self.asked == 1:
            raise TimeoutError
        return super().result(timeout)


def test_what_was_done_and_is_lost_is_waited_for_again():
    future = Lost()
    threading.Timer(0.1, future.set_result, [7]).start()
    assert fold(Adding(future), range(1), 0, lambda: 1, look_seconds=0.01) == 7
    assert future.asked == 2


def test_what_is_lost_and_fails_when_it_is_done_again_is_a_failure_like_others():
    class KilledAgain(Future):
        asked = False

        def done(self):
            return True

        def exception(self, timeout=None):
            return KeyError("killed again") if self.asked else None

        def result(self, timeout=None):
            self.asked = True
            raise self.exception()

    with pytest.raises(RuntimeError, match=r"0 beside \[1\]: 'killed again'"):
        fold(Explained(KilledAgain(), Future()), range(2), 0, lambda: 2)


def test_what_is_lost_for_good_is_no_wait_without_an_end():
    with pytest.raises(TimeoutError):
        fold(Adding(Lost()), range(1), 0, lambda: 1, Watch(0.1), look_seconds=0.01)


def test_what_a_task_carries_does_not_grow_with_chunks():
    """An array of a million chunks, none of which is read."""
    sizes, spans = [], []
    for n_chunks in (1000, 1_000_000):
        array = zarr.create_array({}, shape=(100, 16 * n_chunks), chunks=(100, 16), dtype="f4")
        source = as_source(array)
        plan = plan_layout(source.layout, 0, 2, tile_width=1)
        work = Pass(source, plan, Rules(True, "none", "error", 1), np.dtype("f4"))
        sizes.append(max(len(pickle.dumps(work.part(span)[0])) for span in range(0, plan.n_spans, 97)))
        spans.append(plan.n_spans)
    assert max(sizes) < 5000
    assert max(spans) < 1000
