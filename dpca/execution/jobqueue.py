"""Dask workers as Slurm jobs that a run submits, or as tasks of the same job step as the run itself.

They listen at one address of their machines, and only accept holders of the key that each run makes for itself (TLS),
since a scheduler runs any code it is sent. The only file that knows about dask-jobqueue (extra `slurm`).
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from dpca.errors import ClusterError
from dpca.execution.executors import Distributed, Threads, hush, worker_budget
from dpca.execution.progress import Progress
from dpca.execution.stage import Alive, P, Stage, T, Traffic
from dpca.planning.runplan import Workers
from dpca.settings import COMPUTE, OUTPUT
from dpca.store.ledger import Checkpoint
from dpca.system import durable
from dpca.system.machine import memory_budget
from dpca.units import walltime_seconds

if TYPE_CHECKING:
    from distributed import Security

RETIRE_SHARE, STAGGER_SHARE = 0.85, 0.04
"""A worker retires after this share of its walltime, plus or minus; another worker starts its current span again."""
SPAN_SHARE = 0.1
"""A span has to end within this share of the walltime, so that no more work than that is lost."""
DEATHS = 10
"""How many workers may die with a span: when they are preempted, the span is not the cause."""
DEATH_SECONDS = 60
"""How long a worker looks for a scheduler that does not answer, before it ends."""
LEAST_TASKS = 3
"""A scheduler, the run, and a worker."""
TARGET_SECONDS = 0.1
"""All allowed workers are requested at once, since each span takes many times as long as this."""
VALID_DAYS = 365
"""How long a run's certificate is valid, after and before the moment it is made: a node's clock may be slow."""
LOOPBACK = "127.0.0.1:0"
"""The address of what answers over HTTP, without a login: of a worker, how many tasks and how much memory it has."""
NO_PAGES = {"distributed.scheduler.http.routes": [], "distributed.dashboard.link": ""}
"""Settings of Dask for a scheduler that shows nobody what it runs."""
CERTIFICATE, KEY = "certificate.pem", "key.pem"
OF_SCRIPTS = ("scripts and logs", f"Remove it, or choose another {OUTPUT.path}.")
"""Contents of the directory beside a result, and the advice where it is another's."""
REACHED_FROM = "import sys; from distributed.utils import get_ip; print(get_ip(sys.argv[1]))"
"""Prints the address from which this machine reaches another one, chosen as Dask's workers choose theirs."""


@dataclass(frozen=True, kw_only=True)
class SlurmJobs:
    """Jobs with one worker each, which a run submits and replaces."""

    cores: int
    memory: int
    """Memory of each worker, in bytes."""
    walltime: str
    maximum: int
    minimum: int = 1
    queue: str | None = None
    account: str | None = None
    interface: str | None = None
    job_extra_directives: Sequence[str] = ()
    job_script_prologue: Sequence[str] = ()
    logs: str = "."
    """The directory of the workers' logs."""

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
    """Memory of each worker, in bytes."""
    interface: str | None = None
    logs: str = "."
    """The directory where the scheduler writes its address."""

    @property
    def n_processes(self) -> int:
        return self.workers

    @property
    def n_tasks(self) -> int:
        """The number of tasks, with the scheduler and the run."""
        return self.workers + 2


class Promised:
    """The executor on workers that are described before they exist: they are started when the first stage runs.

    Parameters
    ----------
    place : the description of the workers
    start : starts them
    """

    shares_memory, adds_up = False, True

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

    def run(self, stage: Stage[T, P], progress: Progress, checkpoint: Checkpoint | None = None) -> T:
        """Run of a stage, see `Executor.run`."""
        return self._there.run(stage, progress, checkpoint)

    def close(self) -> None:
        """End the workers, if they were started."""
        self._stack.close()

    @property
    def _there(self) -> Distributed:
        if self._started is None:
            self._started = self._stack.enter_context(self._start())
        return self._started


@contextmanager
def submitting(place: SlurmJobs) -> Iterator[Promised]:
    """Workers in jobs of their own, submitted when there is something to do, and cancelled at the end."""
    promised = Promised(place, lambda: jobs_of(place))
    try:
        yield promised
    finally:
        promised.close()


@contextmanager
def outside(place: SlurmStep) -> Iterator[Promised]:
    """Workers of a job step, seen from outside: a run can be planned for them, but not computed."""

    def start() -> NoReturn:
        raise ClusterError(
            f"{COMPUTE.cluster} is slurm_runner, but this is no task of a job step that dpca run was started in",
            f"In a job: srun --ntasks {place.n_tasks} dpca run CONFIG; dpca submit writes such a job.",
            key="compute.cluster",
        )

    yield Promised(place, start)


@contextmanager
def jobs_of(place: SlurmJobs) -> Iterator[Distributed]:
    """Workers as jobs of their own, with a scheduler in this process."""
    import dask
    from distributed import Client
    from distributed.utils import get_ip, get_ip_interface

    seconds = place.walltime_seconds
    lifetime = [
        "--lifetime",
        f"{int(RETIRE_SHARE * seconds)}s",
        "--lifetime-stagger",
        f"{int(STAGGER_SHARE * seconds)}s",
    ]
    durable.make_own(Path(place.logs), *OF_SCRIPTS)
    library, site = _dask_jobqueue(), dask.config.get("jobqueue.slurm", {})
    scheduler_options, interface = site.get("scheduler-options") or {}, place.interface or site.get("interface")
    host = get_ip_interface(interface) if interface else get_ip()
    # Where no interface is named, a worker listens at the address by which it reaches the scheduler.
    # With -P, no module is imported from the folder where a job begins: one that lies beside the data may be called numpy.py.
    python = f"{site.get('python') or shlex.quote(sys.executable)} -P"
    there = f"{python} {shlex.join(['-c', REACHED_FROM, host])}"
    for left in Path(place.logs).glob(".tls-*"):  # by runs that were killed: this one holds the lock of the output
        shutil.rmtree(left, ignore_errors=True)
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": DEATHS, **NO_PAGES}),
        tempfile.TemporaryDirectory(prefix=".tls-", dir=place.logs) as keys,
    ):
        make_keys(Path(keys))
        cluster = library.SLURMCluster(
            cores=place.cores,
            processes=1,
            memory=f"{place.memory}B",
            walltime=place.walltime,
            queue=place.queue,
            account=place.account,
            interface=interface,
            python=python,
            protocol="tls://",
            security=security_of(Path(keys), in_scripts=True),
            job_extra_directives=[
                *(site.get("job-extra-directives") or []),
                "--no-requeue",  # a preempted job is replaced, so it must not come back by itself, too
                f"--output={shlex.quote(place.logs.replace('%', '%%'))}/worker-%j.log",
                *place.job_extra_directives,
            ],
            job_script_prologue=list(place.job_script_prologue) or None,
            worker_extra_args=[
                *([] if interface else ["--host", f'"$({there})"']),
                *("--no-dashboard", "--dashboard-address", LOOPBACK),
                *(site.get("worker-extra-args") or []),
                *lifetime,
            ],
            death_timeout=DEATH_SECONDS,
            scheduler_options={
                **({} if "interface" in scheduler_options else {"host": host}),
                "dashboard": False,
                "dashboard_address": LOOPBACK,
                **scheduler_options,
            },
        )
        with cluster:
            _check_script(cluster.job_script())
            # adapt replaces lost workers, scale does not.
            cluster.adapt(minimum=place.minimum, maximum=place.maximum, target_duration=f"{TARGET_SECONDS}s")
            with Client(cluster, set_as_default=False) as client:
                yield Distributed(client)


def make_keys(place: Path) -> None:
    """Write a new key for a run, and a certificate signed with it, to a directory that nobody else can read."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "dpca")])
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(VALID_DAYS))
        .not_valid_after(now + timedelta(VALID_DAYS))
        .sign(key, hashes.SHA256())
    )
    plain = (serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    for file, content in (
        (CERTIFICATE, certificate.public_bytes(serialization.Encoding.PEM)),
        (KEY, key.private_bytes(serialization.Encoding.PEM, *plain)),
    ):
        os.close(os.open(place / file, os.O_CREAT | os.O_EXCL, 0o600))
        (place / file).write_bytes(content)


def security_of(keys: Path, in_scripts: bool = False) -> Security:
    """The TLS settings of a scheduler, its workers and its client.

    Parameters
    ----------
    in_scripts : whether workers get the settings in a line of a script
    """
    from distributed import Security

    class InScripts(Security):
        def get_tls_config_for_role(self, role: str) -> dict[str, Any]:
            paths: dict[str, Any] = super().get_tls_config_for_role(role)
            if role != "worker":
                return paths
            return {name: None if path is None else shlex.quote(path) for name, path in paths.items()}

    certificate, key = str(keys / CERTIFICATE), str(keys / KEY)
    roles = ("client", "scheduler", "worker")
    return (InScripts if in_scripts else Security)(
        require_encryption=True,
        tls_ca_file=certificate,
        **{f"tls_{role}_cert": certificate for role in roles},
        **{f"tls_{role}_key": key for role in roles},
    )


def _dask_jobqueue() -> Any:
    """The library, once `cryptography` is found, too; its import takes over Ctrl-C, which is restored."""
    before = signal.getsignal(signal.SIGINT)
    try:
        import cryptography  # noqa: F401
        from dask_jobqueue import slurm
    except ImportError as cause:
        raise ClusterError(
            f"{COMPUTE.cluster} is one of Slurm's, for which {cause.name} is not installed",
            "Install what it needs: pip install dask-jobqueue cryptography.",
            key="compute.cluster",
        ) from cause
    finally:
        signal.signal(signal.SIGINT, before)
    return slurm


def check_here() -> None:
    """Refuse to begin on a machine where no job can be submitted."""
    _dask_jobqueue()
    if shutil.which("sbatch") is None:
        raise ClusterError("sbatch is not here", "Run this where Slurm's commands are.", key="compute.cluster")


def _check_script(script: str) -> None:
    """Have Slurm check a job before any is submitted: a later refusal would only be logged.

    A job is submitted on hold and cancelled, since --test-only also refuses jobs that wait for nodes that are down.
    """
    run = partial(subprocess.run, capture_output=True, text=True, check=False)
    done = run(["sbatch", "--hold", "--parsable"], input=script)
    if not done.returncode:
        run(["scancel", done.stdout.strip().partition(";")[0]])
    else:
        raise ClusterError(
            f"sbatch refuses the job of a worker: {done.stderr.strip()}",
            f"Correct {COMPUTE.cluster.slurm}, or see whether Slurm answers: sinfo.",
            key="compute.cluster.slurm",
        )


@contextmanager
def joined(place: SlurmStep) -> Iterator[Distributed]:
    """The cluster of a job step: the second task continues with it as the run; the others serve it, and end here."""
    runner_type = _dask_jobqueue().SLURMRunner
    import dask
    from distributed import Client
    from distributed.comm.addressing import get_address_host
    from distributed.core import rpc
    from distributed.utils import get_ip, json_load_robust

    rank, n_tasks = (int(os.environ.get(name, "0")) for name in ("SLURM_PROCID", "SLURM_NTASKS"))
    if n_tasks < LEAST_TASKS:
        raise ClusterError(
            f"this is no task of a job step with {place.n_tasks}, but of one with {n_tasks}",
            f"Start it with srun --ntasks {place.n_tasks} dpca run CONFIG; dpca submit writes such a job.",
            key="compute.cluster",
        )
    if rank != 1:
        # The run is told to stop; its cluster ends with it.
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        signal.signal(signal.SIGINT, lambda *_: os._exit(0))
    logs = Path(place.logs)
    file, keys = logs / f"scheduler-{_step()}.json", logs / f".tls-{_step()}"
    with ExitStack() as ending:
        if rank == 1:
            ending.callback(file.unlink, missing_ok=True)
            ending.callback(shutil.rmtree, keys, ignore_errors=True)
        if rank == 0:
            shutil.rmtree(keys, ignore_errors=True)  # left by a killed step of the same number
            durable.make_own(logs, *OF_SCRIPTS)
            durable.make_own(keys, *OF_SCRIPTS)
            make_keys(keys)
            scheduler: tuple[str, ...] = ()
        else:  # the scheduler writes the file when it listens, after it has made the keys
            scheduler = (get_address_host(json_load_robust(str(file))["address"]),)
        security = security_of(keys)
        listen = {
            **({"interface": place.interface} if place.interface else {"host": get_ip(*scheduler)}),
            "protocol": "tls://",
            "security": security,
            "dashboard": False,
            "dashboard_address": LOOPBACK,
        }
        ending.enter_context(dask.config.set(NO_PAGES))
        runner = runner_type(
            scheduler_file=str(file),
            scheduler_options=dict(listen),
            worker_options={
                **listen,
                "nthreads": place.cores,
                "memory_limit": place.memory,
                "death_timeout": DEATH_SECONDS,
            },
        )
        # The runner's own connection, which ends the scheduler, has no key.
        runner.scheduler_comm = rpc(runner.scheduler_address, connection_args=security.get_connection_args("client"))
        ending.callback(_close, runner)
        with Client(runner, security=security, set_as_default=False) as client:
            client.wait_for_workers(1)
            hush()
            yield Distributed(client)


def _close(runner: Any) -> None:
    with suppress(OSError):  # from a scheduler that is gone
        runner.close()


def _step() -> str:
    """The identifier of this job step, unique among all steps of this job, also when the job is requeued."""
    names = ("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT")
    return "-".join(os.environ.get(name, "0") for name in names)


def in_step() -> bool:
    """Whether this process is a task started by srun, and not the job's script."""
    return "SLURM_STEP_ID" in os.environ
