"""The section `compute` of a config: where it is computed, with how much memory."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import ByteSize, Field, ValidatorFunctionWrapHandler, WrapValidator

from dpca.config.inputs import Local, Section, Text
from dpca.units import WALLTIME

LEAST_MEMORY = 2**20


def _in_full(given: Any, read: ValidatorFunctionWrapHandler) -> Any:
    """Refuse text of which pydantic would read only the beginning, and amounts so small that a unit must be missing."""
    if isinstance(given, str) and not re.fullmatch(r"\s*(\d+\.)?\d+\s*[a-zA-Z]*\s*", given):
        raise ValueError(given)
    amount = read(given)
    if amount < LEAST_MEMORY:
        raise ValueError(given)
    return amount


Amount = Annotated[ByteSize, WrapValidator(_in_full)]


class Tls(Section):
    """Paths of PEM files, as in Dask's own settings."""

    ca: Annotated[Local, Field(description="Certificate of the authority that signed the others.")]
    cert: Annotated[Local, Field(description="Certificate of this client.")]
    key: Annotated[Local, Field(description="Key of that certificate.")]


_CORES = Field(ge=1, description="Threads of each worker: the number of spans that it computes at the same time.")
_INTERFACE = Field(
    description="Network interface to listen on, such as ib0; null: the one that leads to the other machines."
)


class SlurmCluster(Section):
    """Workers in Slurm jobs that the run submits and replaces, by dask-jobqueue, whose option names these are.

    Options that are left out come from the site's jobqueue.yaml of Dask.
    """

    cores: Annotated[int, _CORES]
    memory: Annotated[Amount, Field(description="Memory of each worker, such as 16 GiB: what its job requests.")]
    walltime: Annotated[
        str,
        Field(
            pattern=WALLTIME,
            description="Walltime of each job, as for sbatch: 04:00:00. Workers retire after 85 % of it and are replaced; a span "
            "has to end within a tenth.",
        ),
    ]
    maximum: Annotated[int, Field(ge=1, description="Most workers at the same time.")]
    minimum: Annotated[int, Field(ge=0, description="Fewest workers at the same time.")] = 1
    queue: Annotated[Text | None, Field(description="Slurm partition.")] = None
    account: Annotated[Text | None, Field(description="Slurm account to charge.")] = None
    interface: Annotated[Text | None, _INTERFACE] = None
    job_extra_directives: Annotated[
        list[Text], Field(description="Further options for sbatch, such as --constraint=skylake.")
    ] = []
    job_script_prologue: Annotated[
        list[str], Field(description="Commands to run before a worker starts: module load ...")
    ] = []


class SlurmRunner(Section):
    """Tasks of one Slurm job, started by srun: a scheduler, the run and workers. `dpca submit` writes such a job."""

    workers: Annotated[int, Field(ge=1, description="Number of workers; the job step has two tasks more.")]
    cores: Annotated[int, _CORES] = 1
    memory: Annotated[Amount, Field(description="Memory of each worker, such as 16 GiB.")]
    interface: Annotated[Text | None, _INTERFACE] = None


class Cluster(Section):
    """A Dask cluster: one of scheduler, scheduler_file, slurm and slurm_runner."""

    scheduler: Annotated[
        Text | None,
        Field(description="Address of a running scheduler, such as tcp://host:8786, or tls://host:8786."),
    ] = None
    scheduler_file: Annotated[
        Local | None, Field(description="File to which a running scheduler wrote its address.")
    ] = None
    tls: Annotated[Tls | None, Field(description="Certificates, if that scheduler uses TLS.")] = None
    slurm: Annotated[SlurmCluster | None, Field(description="Workers in jobs that the run submits.")] = None
    slurm_runner: Annotated[SlurmRunner | None, Field(description="Workers in the job that the run is in.")] = None


class Compute(Section):
    """Where it is computed."""

    cluster: Annotated[
        Literal["local"] | Cluster,
        Field(
            description="local: the cores of this machine; or {scheduler: ADDRESS}, {scheduler_file: PATH}, {slurm: ...} or "
            "{slurm_runner: ...}."
        ),
    ] = "local"
    workers: Annotated[
        Literal["auto"] | Annotated[int, Field(ge=1)],
        Field(description="Number of threads on this machine; auto: one per core. The result does not depend on it."),
    ] = "auto"

    memory: Annotated[
        Literal["auto"] | Amount,
        Field(
            description="Memory of all processes on this machine, or of each worker of a cluster, such as 8 GiB. auto: half of the free"
            " memory. Limits of control groups and of Slurm are respected."
        ),
    ] = "auto"
    scratch: Annotated[
        Local | None,
        Field(description="Directory for a copy of the input, if its chunks need one; null: beside the result."),
    ] = None
