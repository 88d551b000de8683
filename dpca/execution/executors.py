"""Where spans run: threads of this process, or the workers of a Dask scheduler. The only file that knows either.

Both hand out futures; what is common to both is in `dpca.execution.engine`.
"""

from __future__ import annotations

import logging
import math
import threading
import time
import uuid
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

from threadpoolctl import threadpool_limits

from dpca.errors import Cancelled, ClusterError, DpcaError
from dpca.execution.engine import Session, TaskExecutor
from dpca.execution.progress import Report
from dpca.execution.stage import Alive, Traffic
from dpca.planning.runplan import Workers
from dpca.system.machine import Budget, memory_budget
from dpca.system.signals import THREADS
from dpca.units import describe_memory

if TYPE_CHECKING:
    from distributed import Client

LOOK_SECONDS = 5.0
"""How often a scheduler is asked who is alive."""
ABANDON_SECONDS = 8.0
"""How long spans in hand may take to stop, when a run ends before them: a signal is answered within 10 s."""

T = TypeVar("T")


class Threads(TaskExecutor):
    """The embedded default: threads in this process, nothing to start.

    NumPy's products, Zarr's decoding and file reads all release the GIL, so threads are as fast as
    processes here and share one interpreter's memory.
    """

    shares_memory = True
    traffic = stand_in = None

    def __init__(self, n_workers: int) -> None:
        self.n_workers = n_workers

    def workers(self, memory: int | None) -> Workers:
        return Workers(0, self.n_workers, memory_budget(memory))

    def alive(self) -> Alive:
        return Alive(self.n_workers)

    def guard(self) -> Any:
        return threading.Lock()

    @contextmanager
    def session(self, progress: Report, n_tasks: int) -> Iterator[Session]:
        stop = threading.Event()

        def report(n_bytes: int) -> None:
            if stop.is_set():
                raise Cancelled("stopped: the run ended before this span did")
            progress(n_bytes)

        # Limits are for the whole process, so they are set once around the pass, not inside tasks.
        pool, submitted = ThreadPoolExecutor(n_tasks, THREADS), list[Any]()
        with threadpool_limits(1, user_api="blas"):

            def submit(function: Callable[..., Any], *arguments: Any) -> Any:
                submitted[:] = [future for future in submitted if not future.done()]
                submitted.append(pool.submit(function, *arguments, report))
                return submitted[-1]

            try:
                yield Session(submit, share=lambda value: value)
            finally:
                # Spans in hand stop at their next slab, spans not begun never start; one that hangs is left behind.
                stop.set()
                pool.shutdown(wait=False, cancel_futures=True)
                wait([future for future in submitted if not future.cancelled()], ABANDON_SECONDS)


class Distributed(TaskExecutor):
    """A Dask scheduler. Tasks report through its events.

    Parameters
    ----------
    client : connected to it
    elastic : whether workers come and go by themselves, so that none may be there for a while
    """

    shares_memory = False
    stand_in = None

    def __init__(self, client: Client, elastic: bool = False) -> None:
        self.client, self._elastic = client, elastic
        self.address: str = client.scheduler_info()["address"]
        self.traffic = Traffic()
        self._alive, self._looked = Alive(0), -math.inf

    def alive(self) -> Alive:
        # Every worker's figures travel for this, so not every second.
        if time.monotonic() - self._looked > LOOK_SECONDS:
            self._looked = time.monotonic()
            with suppress(OSError, TimeoutError, CancelledError, RuntimeError):  # who computes will notice
                found = self.client.scheduler_info(n_workers=-1)
                if "workers" not in found:  # the client has lost its scheduler
                    return self._alive
                workers = found["workers"].values()
                fullest = max((int(worker["metrics"].get("memory", 0)) for worker in workers), default=0)
                dashboard = self.client.dashboard_link if "dashboard" in found["services"] else None
                self._alive = Alive(len(workers), fullest, dashboard)
        return self._alive

    @contextmanager
    def _answered(self) -> Iterator[None]:
        """Say of what fails with a scheduler that is gone that this is why, whatever Dask calls it."""
        try:
            yield
        except DpcaError:
            raise
        except Exception as cause:
            if isinstance(cause, OSError | TimeoutError | CancelledError) or self.client.status != "running":
                raise ClusterError(
                    f"the scheduler at {self.address} stopped answering: {cause}",
                    "Check that it and its workers still run.",
                ) from cause
            raise

    @property
    def n_workers(self) -> int:
        with self._answered():
            return sum(self.client.nthreads().values())

    def workers(self, memory: int | None) -> Workers:
        with self._answered():
            found = self.client.scheduler_info(n_workers=-1).get("workers", {}).values()
        if not found:
            raise self._no_workers()
        processes, threads = len(found), max(worker["nthreads"] for worker in found)
        limit = min((worker["memory_limit"] for worker in found if worker["memory_limit"]), default=None)
        return Workers(processes, threads, worker_budget(memory, limit, processes), memory_budget())

    def _share(self, value: Any) -> Any:
        """A value as a task of its own: what is scattered is lost with the worker that holds it."""
        with warnings.catch_warnings():
            # Dask would rather have what is large scattered; this travels to the scheduler once.
            warnings.filterwarnings("ignore", "Sending large graph")
            return self.client.submit(_itself, value, pure=False)

    def _no_workers(self) -> ClusterError:
        return ClusterError(f"the scheduler at {self.address} has no workers", "Start some: dask worker ADDRESS.")

    def guard(self) -> Any:
        from distributed import Lock

        return Lock(f"dpca-{uuid.uuid4().hex}")

    @contextmanager
    def session(self, progress: Report, n_tasks: int) -> Iterator[Session]:
        if not self.n_workers and not self._elastic:
            raise self._no_workers()
        topic, submitted = f"dpca-{uuid.uuid4().hex}", list[Any]()

        def submit(function: Callable[..., Any], *arguments: Any) -> Any:
            # Dask keeps a result as long as its future lives: forget those that were added up.
            submitted[:] = [future for future in submitted if not future.done()]
            future = self.client.submit(function, *arguments, TopicReport(topic), pure=False)
            submitted.append(future)
            return future

        try:
            with self._answered():
                before = self._travelled()
                self.client.subscribe_topic(topic, lambda event: progress(event[1]))
                self.client.register_plugin(_one_blas_thread(), name=topic)
                yield Session(submit, self._share, lambda: self._elastic and not self.n_workers)
                self._count(before, self._travelled())
        finally:
            if self.client.status == "running":  # a scheduler that is gone has nothing left to forget
                with suppress(OSError, TimeoutError):
                    self.client.cancel(submitted)
                    self.client.unsubscribe_topic(topic)
                    self.client.unregister_worker_plugin(topic)

    def _travelled(self) -> dict[str, Travelled]:
        """The records of each worker."""
        found: dict[str, Travelled] = self.client.run(_travelled, on_error="ignore")
        return found

    def _count(self, before: dict[str, Travelled], after: dict[str, Travelled]) -> None:
        """Add what has travelled meanwhile; of workers that are gone nothing is known."""
        received = sent = 0
        for worker, (log, total) in after.items():
            old, old_total = before.get(worker, ([], 0))
            last = max((moment for moment, _ in old), default=-math.inf)
            received += sum(size for moment, size in log if moment > last)
            sent += total - old_total
        self.traffic += Traffic(received, max(0, sent - received))


def hush() -> None:
    """Have the client of Dask not log that its scheduler is gone, with a traceback: the run says so."""
    logging.getLogger("distributed.client").setLevel(logging.CRITICAL)


def worker_budget(memory: int | None, limit: int | None, processes: int) -> Budget:
    """What each worker may take.

    Parameters
    ----------
    memory : what is asked for, in bytes; None for what Dask lets it have before it spills
    limit : what a worker is ended at; None where there is none
    processes : how many workers share this machine, where there is none
    """
    if memory is not None and (limit is None or memory <= limit):
        return Budget(memory, "as asked for")
    if limit is None:
        here = memory_budget()
        return Budget(here.bytes // processes, f"its share of {here.origin}")
    if memory is not None:
        origin = f"the workers' limit, which is less than the {describe_memory(memory)} asked for"
        return Budget(limit, origin, lowered=True)
    # Dask begins to spill at 60 % of a worker's limit, and pauses it at 80 %.
    return Budget(limit * 6 // 10, f"60 % of the workers' limit of {describe_memory(limit)}")


Travelled = tuple[list[tuple[float, int]], int]
"""Of a worker: when it has received how much from others, the last thousand times; and what it handed out in all."""


def _travelled(dask_worker: Any) -> Travelled:
    log = [(entry["start"], entry["total"]) for entry in dask_worker.transfer_incoming_log]
    return log, dask_worker.transfer_outgoing_bytes_total


def _itself(value: T) -> T:
    return value


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
