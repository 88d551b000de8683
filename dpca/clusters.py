"""Which executor a run gets: this machine, or a scheduler at an address."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from dask.system import CPU_COUNT

from dpca.engine import Distributed, Executor, Threads
from dpca.errors import ClusterError

CONNECT_SECONDS = 30


def local(workers: int | None = None) -> Threads:
    """All cores that this process may use (affinity and cgroup quota respected), or so many."""
    return Threads(workers or CPU_COUNT)


@contextmanager
def connect(scheduler: str | None, workers: int | None) -> Iterator[Executor]:
    """The executor of a configuration.

    Parameters
    ----------
    scheduler : address of a running Dask scheduler, or None for this machine
    workers : threads on this machine; None for all cores

    Raises
    ------
    ClusterError
        When no scheduler answers.
    """
    if scheduler is None:
        yield local(workers)
        return
    from distributed import Client

    try:
        client = Client(scheduler, timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as cause:
        raise ClusterError(
            f"no Dask scheduler answers at {scheduler!r}: {cause}",
            "Start one (dask scheduler) or correct compute.cluster.scheduler, for example tcp://host:8786.",
        ) from cause
    with client:
        yield Distributed(client)


def of_client(client: Any | None) -> Executor:
    """The executor in Python: the given client, else the active one, else this machine."""
    if client is None and "distributed" in sys.modules:
        from distributed import Client

        try:
            client = Client.current()
        except ValueError:
            client = None
    return local() if client is None else Distributed(client)
