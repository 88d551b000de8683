"""The executor of a run: this machine, a Dask scheduler that runs already, or one that the run starts on Slurm."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from dpca.errors import ClusterError, ConfigError
from dpca.execution.executors import Distributed, Threads, hush
from dpca.execution.jobqueue import SlurmJobs, SlurmStep, outside, submitting
from dpca.execution.stage import Executor
from dpca.settings import COMPUTE
from dpca.sources.credentials import in_text, without_credentials
from dpca.system import regular
from dpca.system.machine import cores

CONNECT_SECONDS = 30


def local(workers: int | None = None) -> Threads:
    """Threads on all cores that this process may use (affinity and cgroup quota respected), or `workers` threads."""
    return Threads(workers or cores())


@dataclass(frozen=True)
class SchedulerPlace:
    """Where a Dask scheduler runs."""

    address: str | None = None
    file: str | None = None
    """The path of a file with the address, instead of the address."""
    tls: tuple[str, str, str] | None = None
    """Paths of the authority's certificate, the client's certificate, and the client's key."""

    def __str__(self) -> str:
        return repr(without_credentials(str(self.address))) if self.file is None else f"the address in {self.file}"


Place = SchedulerPlace | SlurmJobs | SlurmStep


@contextmanager
def connect(place: Place | None, workers: int | None) -> Iterator[Executor]:
    """The executor of a configuration.

    Parameters
    ----------
    place : where a Dask scheduler runs, or will; None for this machine
    workers : threads on this machine; None for all cores
    """
    if place is None:
        yield local(workers)
    elif isinstance(place, SlurmJobs):
        with submitting(place) as jobs:
            yield jobs
    elif isinstance(place, SlurmStep):
        with outside(place) as planned:
            yield planned
    else:
        with _existing(place) as existing:
            yield existing


@contextmanager
def _existing(scheduler: SchedulerPlace) -> Iterator[Distributed]:
    from distributed import Client, Security

    for path in (scheduler.file, *(scheduler.tls or ())):
        if path is not None and not os.path.isfile(path):
            raise ConfigError(f"{path}: is not a file", "Name one that this process can read.", key="compute.cluster")
    security = None
    if scheduler.tls:
        ca, cert, key = scheduler.tls
        security = Security(tls_ca_file=ca, tls_client_cert=cert, tls_client_key=key, require_encryption=True)
    address = scheduler.address if scheduler.file is None else _address_in(scheduler.file)
    _check_address(address, scheduler)
    try:
        client = Client(address, timeout=CONNECT_SECONDS, set_as_default=False, security=security)
    except (OSError, TimeoutError, ValueError, TypeError) as cause:
        raise ClusterError(
            f"no Dask scheduler answers at {scheduler}: {in_text(str(cause))}",
            f"Start one (dask scheduler) or correct {COMPUTE.cluster.scheduler}, for example tcp://host:8786.",
        ) from cause
    hush()
    with client:
        yield Distributed(client)


def _check_address(address: str | None, scheduler: SchedulerPlace) -> None:
    """Refuse an address that Dask would try for a minute, only to report that nobody answers."""
    if not re.search(r":\d+/?$", address or ""):
        raise ConfigError(
            f"{COMPUTE.cluster.scheduler} is {scheduler}, but an address with a port is allowed",
            "Write it like tcp://host:8786.",
            key="compute.cluster.scheduler",
        )
    import dask

    dask_certificate = dask.config.get("distributed.comm.tls.client.cert", None)
    if str(address).startswith("tls://") and not (scheduler.tls or dask_certificate):
        raise ConfigError(
            f"{COMPUTE.cluster.scheduler} is {scheduler}, a tls:// address, which needs {COMPUTE.cluster.tls}",
            "Set ca, cert and key there.",
            key="compute.cluster.scheduler",
        )


def _address_in(path: str) -> str:
    """The address in the file that a scheduler wrote."""
    try:
        return str(regular.read_json(path)["address"])
    except (OSError, ValueError, KeyError, TypeError) as cause:
        raise ConfigError(
            f"{path}: is not what a Dask scheduler writes ({type(cause).__name__}: {cause})",
            "Start it with dask scheduler --scheduler-file PATH, and wait until it runs.",
            key="compute.cluster.scheduler_file",
        ) from cause


@contextmanager
def on_client(client: Any | None) -> Iterator[Executor]:
    """The executor for the Python API: a client or cluster of Dask, else the active client, else this machine.

    A fit within a task leaves the worker's pool of threads meanwhile, so that its own tasks can run there.
    """
    given = client
    if client is None and "distributed" in sys.modules:
        from distributed import Client

        with suppress(ValueError):
            client = Client.current()
    if client is None:
        yield local()
        return
    with ExitStack() as stack:
        if hasattr(client, "get_client"):  # a cluster
            client = stack.enter_context(client.get_client())
        _check_client(client, given)
        executor = Distributed(client)
        stack.callback(executor.close)
        _leave_pool(stack)
        yield executor


def _check_client(client: Any, given: Any) -> None:
    which = f"client is {client!r}" if given is not None else f"the active client is {client!r}"
    if not hasattr(client, "scheduler_info"):
        raise ConfigError(
            f"{which}, but a Client or cluster of dask.distributed is allowed",
            "Pass Client(ADDRESS), or None for the active one or this machine.",
        )
    if client.status in ("closed", "closing"):
        raise ConfigError(
            f"{which}, which was closed", "Pass one that is connected, or None for the active one or this machine."
        )
    if client.asynchronous:
        raise ConfigError(
            f"{which}, which is asynchronous here: a fit would wait for the event loop that it runs in",
            "Call it in a thread, await asyncio.to_thread(pca.fit, X), or pass another client, Client(ADDRESS).",
        )


def _leave_pool(stack: ExitStack) -> None:
    """Leave the worker's pool of threads, if this is one of its tasks, until the stack ends: it would wait for tasks that have no thread."""
    from distributed import get_worker, rejoin, secede
    from distributed.threadpoolexecutor import thread_state

    with suppress(ValueError):  # this is no task
        get_worker()
        if getattr(thread_state, "proceed", False):  # it has not left by itself
            secede()
            stack.callback(rejoin)
