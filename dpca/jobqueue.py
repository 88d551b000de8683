"""Dask workers as jobs of Slurm that a run submits, or as the tasks of a job step that the run is itself one of.

The only file that knows dask-jobqueue (extra `slurm`).
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import dask

from dpca.errors import ClusterError
from dpca.executors import Alive, Distributed, Session, Threads, Traffic, worker_budget
from dpca.machine import memory_budget
from dpca.passes import Report
from dpca.runplan import Workers
from dpca.units import walltime_seconds

RETIRE_SHARE, STAGGER_SHARE = 0.85, 0.04
"""A worker retires after so much of its walltime, give or take; another does what it has in hand, from its beginning."""
SPAN_SHARE = 0.1
"""A span has to end within this share of the walltime, so that no more than that is lost."""
DEATHS = 10
"""Workers that a span may cost: where they are preempted, that is no fault of the span's."""
DEATH_SECONDS = 60
"""How long a worker looks for a scheduler that does not answer, before it ends."""
TARGET_SECONDS = 0.1
"""All workers that there may be are asked for at once: each span is many times this long."""


@dataclass(frozen=True, kw_only=True)
class SlurmJobs:
    """Jobs with a worker each, which a run submits and replaces."""

    cores: int
    memory: int
    """Of each, in bytes."""
    walltime: str
    maximum: int
    minimum: int = 1
    queue: str | None = None
    account: str | None = None
    interface: str | None = None
    job_extra_directives: Sequence[str] = ()
    job_script_prologue: Sequence[str] = ()
    logs: str = "."
    """Directory of the workers' logs."""

    @property
    def n_processes(self) -> int:
        return self.maximum

    @property
    def walltime_seconds(self) -> int:
        return walltime_seconds(self.walltime)


@dataclass(frozen=True, kw_only=True)
class SlurmStep:
    """Tasks of a job step: a scheduler, the run itself, and workers."""

    workers: int
    cores: int
    memory: int
    """Of each worker, in bytes."""
    interface: str | None = None
    logs: str = "."
    """Where the scheduler writes its address."""

    @property
    def n_processes(self) -> int:
        return self.workers

    @property
    def n_tasks(self) -> int:
        """With the scheduler and the run."""
        return self.workers + 2


class Promised:
    """Workers that are known before they are there: nothing is started until there is something to do.

    Parameters
    ----------
    place : what they will be
    start : starts them
    """

    shares_memory = False

    def __init__(self, place: SlurmJobs | SlurmStep, start: Callable[[], AbstractContextManager[Distributed]]) -> None:
        self._place, self._start = place, start
        self._started: Distributed | None = None
        self._stack = ExitStack()

    @property
    def n_workers(self) -> int:
        return self._place.n_processes * self._place.cores

    @property
    def traffic(self) -> Traffic:
        return self._started.traffic if self._started else Traffic()

    @property
    def stand_in(self) -> Threads:
        return Threads(1)

    def workers(self, memory: int | None) -> Workers:
        place = self._place
        budget = worker_budget(memory, place.memory, place.n_processes)
        return Workers(place.n_processes, place.cores, budget, memory_budget())

    def alive(self) -> Alive:
        return self._started.alive() if self._started else Alive(0, 0)

    def guard(self) -> Any:
        return self._there.guard()

    def session(self, progress: Report, n_tasks: int) -> AbstractContextManager[Session]:
        return self._there.session(progress, n_tasks)

    def close(self) -> None:
        """End what was started."""
        self._stack.close()

    @property
    def _there(self) -> Distributed:
        if self._started is None:
            self._started = self._stack.enter_context(self._start())
        return self._started


@contextmanager
def submitting(place: SlurmJobs) -> Iterator[Promised]:
    """Workers in jobs of their own, once there is something to do; they are cancelled in the end."""
    promised = Promised(place, lambda: _jobs(place))
    try:
        yield promised
    finally:
        promised.close()


@contextmanager
def outside(place: SlurmStep) -> Iterator[Promised]:
    """Workers of a job step, seen from outside of it: they can be planned with, and no more."""

    def start() -> NoReturn:
        raise ClusterError(
            "compute.cluster is slurm_runner, but this is no task of a job step that dpca run was started in",
            f"In a job: srun --ntasks {place.n_tasks} dpca run CONFIG; dpca submit writes such a job.",
            key="compute.cluster",
        )

    yield Promised(place, start)


@contextmanager
def _jobs(place: SlurmJobs) -> Iterator[Distributed]:
    from distributed import Client
    from distributed.utils import get_ip_interface

    host = get_ip_interface(place.interface) if place.interface else ""
    seconds = place.walltime_seconds
    lifetime = [
        "--lifetime",
        f"{int(RETIRE_SHARE * seconds)}s",
        "--lifetime-stagger",
        f"{int(STAGGER_SHARE * seconds)}s",
    ]
    Path(place.logs).mkdir(parents=True, exist_ok=True)
    site = dask.config.get("jobqueue.slurm", {})
    with dask.config.set({"distributed.scheduler.allowed-failures": DEATHS}):
        cluster = _dask_jobqueue().SLURMCluster(
            cores=place.cores,
            processes=1,
            memory=f"{place.memory}B",
            walltime=place.walltime,
            queue=place.queue,
            account=place.account,
            interface=place.interface,
            job_extra_directives=[
                *(site.get("job-extra-directives") or []),
                "--no-requeue",  # what is preempted is replaced: it does not come back by itself besides
                f"--output={shlex.quote(place.logs.replace('%', '%%'))}/worker-%j.log",
                *place.job_extra_directives,
            ],
            job_script_prologue=list(place.job_script_prologue) or None,
            worker_extra_args=["--dashboard-address", "127.0.0.1:0", *(site.get("worker-extra-args") or []), *lifetime],
            death_timeout=DEATH_SECONDS,
            scheduler_options={"dashboard_address": f"{host}:0", **(site.get("scheduler-options") or {})},
        )
    with cluster:
        _check_script(cluster.job_script())
        # What is lost is replaced by adapt, but not by scale.
        cluster.adapt(minimum=place.minimum, maximum=place.maximum, target_duration=f"{TARGET_SECONDS}s")
        with Client(cluster, set_as_default=False) as client:
            yield Distributed(client, elastic=True)


def _dask_jobqueue() -> Any:
    """The library; its import takes over Ctrl-C, which is given back."""
    before = signal.getsignal(signal.SIGINT)
    try:
        from dask_jobqueue import slurm
    except ImportError as cause:
        raise ClusterError(
            "compute.cluster is one of Slurm's, for which dask-jobqueue is not installed",
            "Install it: pip install dask-jobqueue.",
            key="compute.cluster",
        ) from cause
    finally:
        signal.signal(signal.SIGINT, before)
    return slurm


def check_here() -> None:
    """Refuse to begin where no job could be submitted.

    Raises
    ------
    ClusterError
        When dask-jobqueue is not installed, or sbatch not here.
    """
    _dask_jobqueue()
    if shutil.which("sbatch") is None:
        raise ClusterError("sbatch is not here", "Run this where Slurm's commands are.", key="compute.cluster")


def _check_script(script: str) -> None:
    """Have Slurm look at a job before any is submitted: a refusal later would only be logged.

    A job is held and cancelled, since --test-only refuses also what has to wait for nodes that are down.
    """
    how: dict[str, Any] = {"capture_output": True, "text": True, "check": False}
    done = subprocess.run(["sbatch", "--hold", "--parsable"], input=script, **how)
    if not done.returncode:
        subprocess.run(["scancel", done.stdout.strip().partition(";")[0]], **how)
    else:
        raise ClusterError(
            f"sbatch refuses the job of a worker: {done.stderr.strip()}",
            "Correct compute.cluster.slurm, or see whether Slurm answers: sinfo.",
            key="compute.cluster.slurm",
        )


@contextmanager
def joined(place: SlurmStep) -> Iterator[Distributed]:
    """The part that this process has in a job step: the second task goes on here, the others are its cluster and end here.

    Raises
    ------
    ClusterError
        When this is no task of a job step, or of one with fewer than three.
    """
    runner_type = _dask_jobqueue().SLURMRunner
    from distributed import Client

    rank = os.environ.get("SLURM_PROCID", "")
    if rank != "1":
        # The run is told to stop; its cluster ends with it.
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        signal.signal(signal.SIGINT, lambda *_: os._exit(0))
    Path(place.logs).mkdir(parents=True, exist_ok=True)
    file = Path(place.logs) / f"scheduler-{_step()}.json"
    listen = {"interface": place.interface} if place.interface else {}
    try:
        runner = runner_type(
            scheduler_file=str(file),
            scheduler_options={**listen, "dashboard_address": "127.0.0.1:0"},
            worker_options={
                **listen,
                "nthreads": place.cores,
                "memory_limit": place.memory,
                "dashboard_address": "127.0.0.1:0",
                "death_timeout": DEATH_SECONDS,
            },
        )
    except RuntimeError as cause:  # which is also what too few tasks are called
        raise ClusterError(
            f"this is no task of a job step with {place.n_tasks}: {cause}",
            f"Start it with srun --ntasks {place.n_tasks} dpca run CONFIG; dpca submit writes such a job.",
            key="compute.cluster",
        ) from cause
    try:
        with Client(runner, set_as_default=False) as client:
            client.wait_for_workers(1)
            yield Distributed(client, elastic=True)
    finally:
        file.unlink(missing_ok=True)
        with suppress(OSError):  # of a scheduler that is gone
            runner.close()


def _step() -> str:
    """What tells this job step from any other, of this job or of the same requeued."""
    names = ("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT")
    return "-".join(os.environ.get(name, "0") for name in names)


def in_step() -> bool:
    """Whether this process is a task that srun started, rather than the job's script."""
    return "SLURM_STEP_ID" in os.environ
