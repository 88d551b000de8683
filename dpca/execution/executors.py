"""Where spans run: threads of this process, or workers of a Dask scheduler. The only file that knows about these two.

Both return futures; the code that they share is in `dpca.execution.engine`.
"""

from __future__ import annotations

import logging
import math
import socket
import threading
import time
import uuid
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

from dpca.errors import Cancelled, ClusterError, DpcaError, NotSeenError
from dpca.execution.engine import Session, TaskExecutor
from dpca.execution.progress import Report
from dpca.execution.stage import Alive, Traffic
from dpca.planning.runplan import Workers
from dpca.system.blas import blas_threads
from dpca.system.machine import Budget, memory_budget
from dpca.system.signals import THREADS
from dpca.units import describe_memory

if TYPE_CHECKING:
    from distributed import Client

LOOK_SECONDS = 5.0
"""How often a scheduler is asked which workers are alive."""
ABANDON_SECONDS = 8.0
"""How long running spans may take to stop when the run ends before they do: a signal is answered within 10 s."""

T = TypeVar("T")


class Threads(TaskExecutor):
    """The default executor: threads in this process, with nothing to start.

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

        # The limits apply to the whole process, so they are set once around the pass, not inside tasks.
        pool, submitted = ThreadPoolExecutor(n_tasks, THREADS), list[Any]()
        with blas_threads(1):

            def submit(function: Callable[..., Any], *arguments: Any) -> Any:
                submitted[:] = [future for future in submitted if not future.done()]
                submitted.append(pool.submit(function, *arguments, report))
                return submitted[-1]

            try:
                yield Session(submit, share=lambda value: value)
            finally:
                # Running spans stop at their next slab, waiting ones never start; a span that hangs is abandoned.
                stop.set()
                pool.shutdown(wait=False, cancel_futures=True)
                wait([future for future in submitted if not future.cancelled()], ABANDON_SECONDS)


class Distributed(TaskExecutor):
    """The executor on a Dask scheduler. Tasks report through its events.

    Parameters
    ----------
    client : a client connected to the scheduler
    elastic : whether workers come and go by themselves, so that for a while there may be none
    """

    shares_memory = False
    stand_in = None

    def __init__(self, client: Client, elastic: bool = False) -> None:
        self.client, self._elastic = client, elastic
        self.address: str = client.scheduler_info()["address"]
        self.traffic = Traffic()
        self._alive, self._looked = Alive(0), -math.inf

    def alive(self) -> Alive:
        # This fetches the figures of every worker, so it is not done every second.
        if time.monotonic() - self._looked > LOOK_SECONDS:
            self._looked = time.monotonic()
            with suppress(OSError, TimeoutError, CancelledError, RuntimeError):  # the computation itself will notice
                info = self.client.scheduler_info(n_workers=-1)
                if "workers" not in info:  # the client has lost its scheduler
                    return self._alive
                workers = info["workers"].values()
                fullest = max((int(worker["metrics"].get("memory", 0)) for worker in workers), default=0)
                dashboard = self.client.dashboard_link if "dashboard" in info["services"] else None
                self._alive = Alive(len(workers), fullest, dashboard)
        return self._alive

    @contextmanager
    def _answered(self) -> Iterator[None]:
        """Report any error of Dask as a lost scheduler, if the scheduler does not answer any more."""
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
            infos = self.client.scheduler_info(n_workers=-1).get("workers", {}).values()
        if not infos:
            raise self._no_workers()
        processes, threads = len(infos), max(worker["nthreads"] for worker in infos)
        limit = min((worker["memory_limit"] for worker in infos if worker["memory_limit"]), default=None)
        return Workers(processes, threads, worker_budget(memory, limit, processes), memory_budget())

    def _share(self, value: Any) -> Any:
        """A value as a task of its own: a scattered value would be lost with the worker that holds it."""
        with warnings.catch_warnings():
            # Dask recommends to scatter large values; this one is sent to the scheduler only once.
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
            # Dask keeps a result as long as its future lives: release those that were added up.
            submitted[:] = [future for future in submitted if not future.done()]
            future = self.client.submit(_on_worker, function, *arguments, TopicReport(topic), pure=False)
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
            if self.client.status == "running":  # a lost scheduler has nothing left to clean up
                with suppress(OSError, TimeoutError):
                    self.client.cancel(submitted)
                    self.client.unsubscribe_topic(topic)
                    self.client.unregister_worker_plugin(topic)

    def _travelled(self) -> dict[str, Travelled]:
        """The transfer records of each worker."""
        records: dict[str, Travelled] = self.client.run(_travelled, on_error="ignore")
        return records

    def _count(self, before: dict[str, Travelled], after: dict[str, Travelled]) -> None:
        """Add the traffic between two records; that of workers that are gone is unknown."""
        received = sent = 0
        for worker, (log, total) in after.items():
            old, old_total = before.get(worker, ([], 0))
            last = max((moment for moment, _ in old), default=-math.inf)
            received += sum(size for moment, size in log if moment > last)
            sent += total - old_total
        self.traffic += Traffic(received, max(0, sent - received))


def hush() -> None:
    """Keep Dask's client from logging a traceback when its scheduler is gone: the run reports that itself."""
    logging.getLogger("distributed.client").setLevel(logging.CRITICAL)


def worker_budget(memory: int | None, limit: int | None, processes: int) -> Budget:
    """The memory budget of each worker.

    Parameters
    ----------
    memory : the memory asked for, in bytes; None for what Dask lets a worker use before it spills
    limit : the memory at which a worker is ended; None if there is no limit
    processes : how many workers share this machine, if there is no limit
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
"""Records of a worker: time and bytes of the last thousand transfers from others; and all bytes that it has sent."""


def _travelled(dask_worker: Any) -> Travelled:
    log = [(entry["start"], entry["total"]) for entry in dask_worker.transfer_incoming_log]
    return log, dask_worker.transfer_outgoing_bytes_total


def _itself(value: T) -> T:
    return value


def _on_worker(function: Callable[..., T], *arguments: Any) -> T:
    """Call a function; an error about files says which worker has it, since others may see them."""
    from distributed import get_worker

    here = f"worker {get_worker().address} on {socket.gethostname()}"
    try:
        return function(*arguments)
    except NotSeenError as error:
        raise NotSeenError(f"{here}: {error.message}", error.remedy, error.key) from error
    except FileNotFoundError as cause:
        raise NotSeenError(
            f"{here}: there is no {cause.filename or cause}",
            "Mount the place on every host, by the same path, or give data that all workers see.",
        ) from cause


class TopicReport:
    """A report from a worker to the client, through the scheduler's events."""

    def __init__(self, topic: str) -> None:
        self._topic = topic

    def __call__(self, n_bytes: int) -> None:
        from distributed import get_worker

        get_worker().log_event(self._topic, n_bytes)


def _one_blas_thread() -> Any:
    """A worker plugin that limits BLAS to one thread while it is registered."""
    from distributed.diagnostics.plugin import WorkerPlugin

    class OneBlasThread(WorkerPlugin):
        def setup(self, worker: Any) -> None:
            self._limits = blas_threads(1)

        def teardown(self, worker: Any) -> None:
            self._limits.restore_original_limits()

    return OneBlasThread()
