"""Runs the spans of a pass on Dask and merges what they return. The only file that knows a scheduler.

How Dask carries a pass, and why
--------------------------------
The graph has one task a span and a fixed binary tree of merges above them: S spans and S - 1 merges,
however many chunks the data have. A task opens the source and streams its slabs through a buffer of its
own; the blocks themselves are no tasks. Two other ways are natural in Dask, and wrong at scale:

- A graph that loads each block in one task and multiplies it in another lets the scheduler put the two on
  different workers, so in the end the whole dataset crosses the network.
- A tree with an n x n partial for every chunk moves n^2 values a chunk. With n = 2,000 and chunks of
  1,000 features a partial is four times the chunk (float64 against float32).

A span sums its n x n partial in place and only that leaves the task, so what travels is S n^2 values,
independent of the number of features: spans grow with them instead (`dpca.slabs`).

Floating-point addition is not associative, so the tree is fixed by the plan. Any scheduler may run it in
any order with the same bits: Dask's threads within this process, or a distributed client. Both run one
BLAS thread a task, since two tasks with one thread each beat one with two by 1.4-1.6 (measured), and
since the number of BLAS threads changes the bits.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from dask.base import compute
from dask.delayed import Delayed, delayed
from threadpoolctl import threadpool_limits

from dpca.errors import Cancelled, ClusterError, DpcaError
from dpca.passes import Pass, Report

if TYPE_CHECKING:
    from distributed import Client

P = TypeVar("P")


class Executor(Protocol):
    """Where spans run."""

    @property
    def n_workers(self) -> int:
        """Tasks that run at the same time."""
        ...

    @property
    def shares_memory(self) -> bool:
        """Whether tasks run in this process and see its memory."""
        ...

    def guard(self) -> Any:
        """A lock that all tasks can take, as a context manager that travels to them."""
        ...

    def compute(self, build: Callable[[Report], Delayed], progress: Report) -> Any:
        """Run the graph that `build` makes around a report function; return its value."""
        ...


def run_pass(
    span_task: Callable[..., P],
    work: Pass,
    *arguments: Any,
    merge: Callable[[P, P], P],
    executor: Executor,
    progress: Report,
) -> P:
    """Run a task for each span of a pass and merge the partials along a fixed tree.

    Parameters
    ----------
    span_task : called as `span_task(work, *arguments, span, report)`
    work : source, plan and rules
    arguments : what all spans get besides, small
    merge : pure; the tree of merges depends on the number of spans alone
    progress : called with the bytes of each slab that is done, from any thread
    """

    def build(report: Report) -> Delayed:
        # Dask starts tasks of equal rank by name, the last first: so names count down, and spans run in order.
        n_spans, run = work.plan.n_spans, uuid.uuid4().hex
        numbers = count(n_spans, -1)

        def merged(left: Delayed, right: Delayed) -> Delayed:
            task: Delayed = delayed(merge)(left, right, dask_key_name=f"merge-{run}-{next(numbers):06d}")
            return task

        leaves = []
        for span in range(n_spans):
            part = work.of_span(span)
            futures = getattr(part.source, "futures", {})
            leaves.append(
                delayed(_call)(
                    span_task,
                    part,
                    list(futures),
                    list(futures.values()),
                    arguments,
                    span,
                    report,
                    dask_key_name=f"{span_task.__name__}-{run}-{n_spans - span:06d}",
                )
            )
        root: Delayed = merge_tree(leaves, merged)
        return root

    result: P = executor.compute(build, progress)
    return result


def merge_tree(partials: Sequence[Any], merge: Callable[[Any, Any], Any]) -> Any:
    """Merge neighbours, level by level, until one is left."""
    level = list(partials)
    while len(level) > 1:
        pairs = zip(level[::2], level[1::2], strict=False)
        level = [merge(left, right) for left, right in pairs] + level[len(level) - len(level) % 2 :]
    return level[0]


def _call(
    span_task: Callable[..., P],
    work: Pass,
    keys: list[Any],
    blocks: list[Any],
    arguments: tuple[Any, ...],
    span: int,
    report: Report,
) -> P:
    if keys:
        supplied: Any = work.source
        work = replace(work, source=supplied.supply(dict(zip(keys, blocks, strict=True))))
    return span_task(work, *arguments, span, report)


class Threads:
    """The embedded default: Dask's threads in this process, nothing to start.

    NumPy's products, Zarr's decoding and file reads all release the GIL, so threads are as fast as
    processes here and share one interpreter's memory.
    """

    shares_memory = True

    def __init__(self, n_workers: int) -> None:
        self.n_workers = n_workers

    def guard(self) -> Any:
        return threading.Lock()

    def compute(self, build: Callable[[Report], Delayed], progress: Report) -> Any:
        stop = threading.Event()

        def report(n_bytes: int) -> None:
            if stop.is_set():
                raise Cancelled("stopped: the run ended before this span did")
            progress(n_bytes)

        # Limits are for the whole process, so they are set once around the pass, not inside tasks.
        with threadpool_limits(1, user_api="blas"), ThreadPoolExecutor(self.n_workers) as pool:
            try:
                return compute(build(report), scheduler="threads", pool=pool, optimize_graph=False)[0]
            finally:
                # Spans in hand stop at their next slab, spans not begun never start.
                stop.set()
                pool.shutdown(cancel_futures=True)


class Distributed:
    """An existing Dask scheduler. Tasks report through its events."""

    shares_memory = False

    def __init__(self, client: Client) -> None:
        self.client = client
        self.address: str = client.scheduler_info()["address"]

    @property
    def n_workers(self) -> int:
        return sum(self.client.nthreads().values())

    def guard(self) -> Any:
        from distributed import Lock

        return Lock(f"dpca-{uuid.uuid4().hex}")

    def compute(self, build: Callable[[Report], Delayed], progress: Report) -> Any:
        from distributed.client import Future

        if not self.n_workers:
            raise ClusterError(f"the scheduler at {self.address} has no workers", "Start some: dask worker ADDRESS.")
        topic = f"dpca-{uuid.uuid4().hex}"
        self.client.subscribe_topic(topic, lambda event: progress(event[1]))
        plugin = _one_blas_thread()
        self.client.register_plugin(plugin, name=topic)
        future: Future[Any] | None = None
        try:
            future = self.client.compute(build(TopicReport(topic)), optimize_graph=False)
            return future.result()
        except DpcaError:
            raise
        except (OSError, TimeoutError) as cause:
            raise ClusterError(
                f"the scheduler at {self.address} stopped answering: {cause}",
                "Check that it and its workers still run.",
            ) from cause
        finally:
            if future is not None:
                future.cancel()
            self.client.unsubscribe_topic(topic)
            self.client.unregister_worker_plugin(topic)


class TopicReport:
    """Reports from a worker to the client through the scheduler's events."""

    def __init__(self, topic: str) -> None:
        self._topic = topic

    def __call__(self, n_bytes: int) -> None:
        from distributed import get_worker

        get_worker().log_event(self._topic, n_bytes)


def _one_blas_thread() -> Any:
    """A worker plugin that holds BLAS to one thread while it is registered."""
    from distributed.diagnostics.plugin import WorkerPlugin

    class OneBlasThread(WorkerPlugin):
        def setup(self, worker: Any) -> None:
            self._limits = threadpool_limits(1, user_api="blas")

        def teardown(self, worker: Any) -> None:
            self._limits.restore_original_limits()

    return OneBlasThread()
