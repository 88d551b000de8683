"""Where spans run: threads of this process, or workers of a Dask scheduler. The only file that knows about these two.

Both return futures; the code that they share is in `dpca.execution.engine`. On a scheduler nothing of a fit stays: no plugin, no lock, no
topic of events, whether its client ends, or is killed.
"""

from __future__ import annotations

import logging
import math
import socket
import threading
import time
import uuid
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakSet

from dpca.errors import Cancelled, ClusterError, DpcaError, NotSeenError, StorageError
from dpca.execution.engine import Session, TaskExecutor
from dpca.execution.progress import Report
from dpca.execution.stage import Alive, Traffic
from dpca.planning.runplan import Workers
from dpca.system.buffers import reuse_memory
from dpca.system.durable import asking_as_here
from dpca.system.machine import Budget, memory_budget
from dpca.system.signals import THREADS
from dpca.units import describe_memory, describe_seconds
from dpca.version import __version__

if TYPE_CHECKING:
    from distributed import Client

LOOK_SECONDS = 5.0
"""How often a scheduler is asked which workers are alive."""
AWAIT_SECONDS = 0.5
"""How often it is asked while none is there."""
ABANDON_SECONDS = 8.0
"""How long running spans may take to stop when the run ends before they do: a signal is answered within 10 s."""
NO_WORKERS = "distributed.scheduler.no-workers-timeout"
"""Dask's own setting: how long a task may wait where no worker is there; null, its default, is for ever."""
SHARE = 0.6
"""Share of a worker's memory limit that spans may take: there Dask begins to spill by default, at 80 % it pauses a worker, at 95 % it ends it."""
BELOW = 0.9
"""Share of the limit at which a worker is paused or ended that spans may take, where that is set lower."""
REPORTS = 100
"""Reports of all tasks together in a second, at most: a thousand workers that told of each slab would keep a scheduler busy."""
LATE_SECONDS = 2.0
"""How late the event of a task that was cancelled may come."""
ASKED_VERSION = "__import__('dpca').__version__"
"""Expression for the version of dpca, where there may be none: a function of dpca could not be sent there."""
PREFIX = "dpca/"
"""How the names of all topics and locks begin; the identifier of their client follows."""

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

        pool, submitted = ThreadPoolExecutor(n_tasks, THREADS, reuse_memory), WeakSet[Any]()

        def submit(function: Callable[..., Any], *arguments: Any) -> Any:
            future = pool.submit(asking_as_here(function), *arguments, report)
            submitted.add(future)
            return future

        try:
            yield Session(submit, share=lambda value: value)
        finally:
            # Running spans stop at their next slab, waiting ones never start; a span that hangs is abandoned.
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
            wait([future for future in submitted if not future.cancelled()], ABANDON_SECONDS)


class Distributed(TaskExecutor):
    """The executor on a Dask scheduler. Tasks report through its events.

    Workers come and go: a span of one that is gone is computed by another, and where none is there, the run waits.

    Parameters
    ----------
    client : a client connected to the scheduler
    """

    shares_memory = False
    stand_in = None

    def __init__(self, client: Client) -> None:
        self.client = client
        self.address: str = client.scheduler_info()["address"]
        self.traffic = Traffic()
        self._there: Mapping[str, Mapping[str, Any]] = {}
        """Workers by address, as the scheduler described them when it was last asked."""
        self._dashboard: str | None = None
        self._looked = self._ran = -math.inf
        """When it was last asked, and when a worker was last there that could begin a task."""
        self._inputs: dict[Any, Any] = {}
        """Blocks on the cluster that tasks under way need."""
        self._judged = -math.inf
        """When it was last asked before tasks of paused workers were looked for."""
        self._planned = 0
        """The number of workers that the run was planned for."""
        self._idle: set[str] = set()
        """Tasks that a paused worker had not begun when it was last looked at."""
        self._same_version = False
        self._locks: list[Any] = []

    # Workers.

    def alive(self) -> Alive:
        self._look()
        fullest = max(map(_memory, self._there.values()), default=0)
        return Alive(len(self._there), fullest, self._dashboard)

    def _look(self, again: bool = False) -> None:
        """Ask the scheduler for its workers, unless it was asked a moment ago: it sends the figures of each."""
        if not again and time.monotonic() - self._looked <= LOOK_SECONDS:
            return
        self._looked = time.monotonic()
        with suppress(OSError, TimeoutError, CancelledError, RuntimeError):  # the computation itself will notice
            info = self.client.scheduler_info(n_workers=-1)
            if "workers" not in info:  # the client has lost its scheduler
                return
            self._there = info["workers"]
            self._dashboard = self.client.dashboard_link if "dashboard" in info["services"] else None
            if self._that_are("running"):
                self._ran = time.monotonic()

    def _that_are(self, status: str) -> list[str]:
        """The addresses of workers in a state of Dask: running, where they begin tasks, or paused."""
        return [address for address, worker in self._there.items() if worker.get("status") == status]

    @property
    def n_workers(self) -> int:
        with self._answered():
            return sum(self.client.nthreads().values())

    def workers(self, memory: int | None) -> Workers:
        infos = list(self._awaited().values())
        processes, threads = len(infos), max(worker["nthreads"] for worker in infos)
        limit = min((worker["memory_limit"] for worker in infos if worker["memory_limit"]), default=None)
        with self._answered():
            shares = self.client.run(_most_memory, on_error="ignore").values()
        self._planned = processes
        share = min((found for found in shares if isinstance(found, float)), default=SHARE)
        return Workers(processes, threads, worker_budget(memory, limit, processes, share), memory_budget())

    def _awaited(self) -> Mapping[str, Mapping[str, Any]]:
        """The workers, once there is one."""
        with self._answered():
            self._look(again=True)
            if not self._there:
                self._ran = time.monotonic()
                logging.getLogger("dpca").warning("%s yet; waiting for one", self._no_worker)
            # A task that waits makes an adaptive cluster start a worker.
            asking = [] if self._there else [self.client.submit(_itself, None, pure=False)]
            while not self._there:
                if self.client.status != "running":
                    raise self._lost(ConnectionError("it has closed the connection"))
                self._check_patience()
                with suppress(TimeoutError):
                    asking[0].result(timeout=AWAIT_SECONDS)
                self._look(again=True)
        return self._there

    @property
    def _no_worker(self) -> str:
        return f"the scheduler at {self.address} has no workers"

    def _check_patience(self) -> None:
        """Refuse to wait any longer for a worker than Dask is told to."""
        import dask
        from dask.utils import parse_timedelta

        allowed = parse_timedelta(dask.config.get(NO_WORKERS, None), default="s")
        if allowed is not None and time.monotonic() - self._ran > allowed:
            raise ClusterError(
                f"{self._no_worker}" + (" that are not paused" if self._there else ""),
                f"Start some: dask worker {self.address}. This process waited {describe_seconds(allowed)} for one, as "
                f"{NO_WORKERS} says.",
            )

    def _waits(self) -> str:
        """Why no worker begins a task, in a sentence; empty if one does."""
        self._look()
        for block in self._inputs.values():
            if block.status == "cancelled":  # what is lost is computed again, or cancelled, if nobody knows how
                raise self._explained(CancelledError(block.key))
        if self._that_are("running"):
            return ""
        self._check_patience()
        paused = [
            f"{address} has {describe_memory(_memory(worker))} of {describe_memory(worker['memory_limit'])}"
            for address in self._that_are("paused")
            for worker in [self._there[address]]
        ]
        if paused:
            return f"all workers are paused, since their memory is nearly full: {'; '.join(paused)}"
        return self._no_worker

    def _stuck(self, futures: Sequence[Any]) -> list[int]:
        """Which tasks a paused worker has, and does not begin, for two looks, while others would."""
        self._look()
        if self._judged == self._looked:
            return []
        self._judged = self._looked
        before, self._idle = self._idle, set()
        paused = self._that_are("paused")
        if paused and self._that_are("running"):
            with suppress(OSError, TimeoutError, CancelledError, RuntimeError):
                there = self.client.processing(workers=paused)
                begun = self.client.run(_begun, workers=paused, on_error="ignore")
                keys = {key for found in there.values() for key in found}
                self._idle = keys.difference(*(found for found in begun.values() if isinstance(found, set)))
        return [number for number, future in enumerate(futures) if future.key in self._idle & before]

    def _grown(self, window: int) -> int:
        """The window, where more workers are there than were planned for: each has no more in hand."""
        self._look()
        running = len(self._that_are("running"))
        return -(-window * running // self._planned) if running > self._planned > 0 else window

    # Errors.

    @contextmanager
    def _answered(self) -> Iterator[None]:
        """Explain an error of Dask; any is one of a lost scheduler, if that does not answer any more."""
        try:
            yield
        except Exception as cause:
            explained = self._explained(cause)
            if explained is cause:
                raise
            raise explained from cause

    def _lost(self, cause: BaseException) -> ClusterError:
        return ClusterError(
            f"the scheduler at {self.address} stopped answering: {cause}", "Check that it and its workers still run."
        )

    def _gone(self, what: str) -> ClusterError:
        return ClusterError(
            f"the scheduler at {self.address} has cancelled a task, or blocks that it needs: {what}",
            "Somebody has cancelled or released them, or the only worker that had them is gone: blocks of X that were "
            "persisted or scattered. Persist them again, or give X as it was before.",
        )

    def _explained(self, error: BaseException) -> BaseException:
        """The error to raise for what a task has raised, or Dask in its place: those about files are made by the task."""
        name = type(error).__name__  # not all of Dask's classes are public
        cause: BaseException | None = error
        while cause is not None:  # Dask hides what a value says that can't be sent
            if isinstance(cause, DpcaError):
                return cause
            cause = cause.__cause__ or cause.__context__
        if self.client.status != "running":
            return self._lost(error)
        if isinstance(error, CancelledError):
            reason = getattr(error, "reason", "")
            if reason == "scheduler-connection-lost":
                return self._lost(error)
            if reason == "scheduler-restart":
                return ClusterError(
                    f"the scheduler at {self.address} was restarted", "Begin again (dpca run: --resume)."
                )
            return self._gone(str(error))
        if name in ("NoWorkerError", "NoValidWorkerError"):
            return ClusterError(f"{self._no_worker}: {error}", f"Start some: dask worker {self.address}.")
        if isinstance(error, OSError | TimeoutError):
            return self._lost(error)
        try:
            self._check_versions()  # another version may be the cause
        except ClusterError as explanation:
            return explanation
        except Exception:  # it does not answer: what was raised first says more
            return error
        return error

    def _check_versions(self) -> None:
        """Refuse a scheduler or workers that have no dpca, or another one."""
        found = self.client.run(eval, ASKED_VERSION, on_error="return")
        places = {f"worker {address}": there for address, there in found.items()}
        try:
            places[f"the scheduler at {self.address}"] = self.client.run_on_scheduler(eval, ASKED_VERSION)
        except ImportError as error:
            places[f"the scheduler at {self.address}"] = error
        for place, there in places.items():
            if isinstance(there, ImportError) or (isinstance(there, str) and there != __version__):
                has = f"dpca {there}" if isinstance(there, str) else f"no dpca that can be imported ({there})"
                raise ClusterError(
                    f"{place} has {has}, and this process has dpca {__version__}",
                    "Install the same version of dpca for the scheduler, all workers and the client.",
                )

    # Tasks.

    def _share(self, value: Any) -> Any:
        """A value as a task of its own: a scattered value would be lost with the worker that holds it."""
        with warnings.catch_warnings():
            # Dask recommends to scatter large values; this one is sent to the scheduler only once.
            warnings.filterwarnings("ignore", "Sending large graph")
            return self.client.submit(_itself, value, pure=False)

    def _new_name(self) -> str:
        return f"{PREFIX}{self.client.id}/{uuid.uuid4().hex}"

    def guard(self) -> Any:
        from distributed import Lock

        self._locks.append(Lock(self._new_name(), scheduler_rpc=self.client.scheduler, loop=self.client.loop))
        return self._locks[-1]

    def close(self) -> None:
        """Remove the locks that were made, when no task needs them any more."""
        if self.client.status == "running":
            with suppress(OSError, TimeoutError, CancelledError):
                for lock in self._locks:
                    lock.close()
        self._locks.clear()

    @contextmanager
    def session(self, progress: Report, n_tasks: int) -> Iterator[Session]:
        # Dask keeps a result as long as its future lives: those that were added up are let go of.
        topic, submitted = self._new_name(), WeakSet[Any]()
        seconds = n_tasks / REPORTS

        def submit(function: Callable[..., Any], *arguments: Any) -> Any:
            future = self.client.submit(on_worker, function, *arguments, TopicReport(topic, seconds), pure=False)
            submitted.add(future)
            lists = (one for one in arguments if isinstance(one, list))
            self._inputs |= {block.key: block for one in lists for block in one if hasattr(block, "status")}
            return future

        self._ran = time.monotonic()
        with self._answered():
            if not self._same_version:
                self._check_versions()
                self._same_version = True
            before = self._travelled()
            self.client.subscribe_topic(topic, lambda event: progress(event[1]))
        try:
            with self._answered():
                yield Session(submit, self._share, self._waits, self._stuck, self._grown, self._explained)
                self._count(before, self._travelled())
        finally:
            self._inputs.clear()
            if self.client.status == "running":  # a lost scheduler has nothing left to clean up
                with suppress(OSError, TimeoutError, CancelledError):
                    self.client.cancel(list(submitted))
                    self.client.unsubscribe_topic(topic)
                    self.client.run_on_scheduler(_forget)

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
    """Keep Dask from logging tracebacks in the client when its scheduler is gone: the run reports that itself."""
    for name in ("client", "core", "batched", "comm", "utils"):
        logging.getLogger(f"distributed.{name}").setLevel(logging.CRITICAL)


def worker_budget(memory: int | None, limit: int | None, processes: int, share: float = SHARE) -> Budget:
    """The memory budget of each worker.

    Parameters
    ----------
    memory : the memory asked for, in bytes; None for what Dask lets a worker use before it spills
    limit : the memory at which a worker is ended; None if there is no limit
    processes : how many workers share this machine, if there is no limit
    share : of the limit, what spans may take
    """
    if memory is not None and (limit is None or memory <= limit):
        return Budget(memory, "as asked for")
    if limit is None:
        here = memory_budget()
        return Budget(here.bytes // processes, f"its share of {here.origin}")
    if memory is not None:
        origin = f"the workers' limit, which is less than the {describe_memory(memory)} asked for"
        return Budget(limit, origin, lowered=True)
    return Budget(
        int(limit * share), f"{share:.0%} of the workers' limit of {describe_memory(limit)}".replace("%", " %")
    )


def _memory(worker: Mapping[str, Any]) -> int:
    """The memory that a worker takes, as the scheduler describes it."""
    return int(worker["metrics"].get("memory", 0))


def _most_memory() -> float:
    """The share of its limit that a worker may take, by its own settings; asked on the worker."""
    import dask

    limits = [dask.config.get(f"distributed.worker.memory.{what}", False) for what in ("pause", "terminate")]
    return min(SHARE, *(BELOW * float(share) for share in limits if share))


def _begun(dask_worker: Any) -> set[str]:
    """The tasks that a worker has begun; asked on the worker."""
    return {task.key for task in dask_worker.state.executing | dask_worker.state.long_running}


def _forget(dask_scheduler: Any) -> None:
    """Have a scheduler forget the topics that nobody listens to any more, and what clients have left that were killed."""

    def left(name: str) -> bool:
        return name.startswith(PREFIX) and name.split("/")[1] not in dask_scheduler.clients

    def forget() -> None:
        topics, locks = dask_scheduler._broker._topics, dask_scheduler.extensions["semaphores"]
        for name in [name for name, topic in topics.items() if name.startswith(PREFIX)]:
            if left(name) or not topics[name].subscribers:
                del topics[name]
        for known in (locks.max_leases, locks.lease_timeouts, locks.leases, locks.events):
            for name in list(filter(left, known)):
                del known[name]

    dask_scheduler.loop.call_later(LATE_SECONDS, forget)


Travelled = tuple[list[tuple[float, int]], int]
"""Records of a worker: time and bytes of the last thousand transfers from others; and all bytes that it has sent."""


def _travelled(dask_worker: Any) -> Travelled:
    log = [(entry["start"], entry["total"]) for entry in dask_worker.transfer_incoming_log]
    return log, dask_worker.transfer_outgoing_bytes_total


def _itself(value: T) -> T:
    return value


def on_worker(function: Callable[..., T], *arguments: Any) -> T:
    """Call a function; an error about files says which worker has it, since others may see them."""
    from distributed import get_worker

    here = f"worker {get_worker().address} on {socket.gethostname()}"
    mount = "Mount the place on every host, by the same path, or give data that all workers see."
    try:
        result = function(*arguments)
        arguments[-1].end()
        return result
    except StorageError as error:
        raise error.saying(f"{here}: {error.marked_message}") from error
    except DpcaError as error:
        if isinstance(error.__cause__, FileNotFoundError):  # the process that began has opened it
            raise NotSeenError(f"{here}: {error.marked_message}", mount, error.key) from error
        raise
    except FileNotFoundError as cause:
        raise NotSeenError(f"{here}: there is no {cause.filename or cause}", mount) from cause
    except OSError as cause:
        raise StorageError(
            f"{here}: {type(cause).__name__}: {cause}", "Look into the storage, and what this worker may do there."
        ) from cause


class TopicReport:
    """A report from a worker to the client, through the scheduler's events. It stops a task that nobody waits for any more.

    Parameters
    ----------
    seconds : the least time between two events of a task: the scheduler and the client take a millisecond for each
    """

    def __init__(self, topic: str, seconds: float = 0.0) -> None:
        self._topic, self._seconds = topic, seconds
        self._told, self._untold = -math.inf, 0

    def __call__(self, n_bytes: int) -> None:
        from distributed import get_worker

        worker = get_worker()
        task = worker.state.tasks.get(worker.get_current_task())
        if task is None or task.state == "cancelled":
            raise Cancelled("stopped: the run ended before this span did")
        self._untold += n_bytes
        if time.monotonic() - self._told >= self._seconds:
            self._tell()

    def end(self) -> None:
        """Tell what has not been told yet, if anything."""
        if self._untold:
            self._tell()

    def _tell(self) -> None:
        from distributed import get_worker

        get_worker().log_event(self._topic, self._untold)
        self._told, self._untold = time.monotonic(), 0
