"""The forecast of a run, from a short measurement: for `dpca plan`, and before a long run."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from dpca.commands.prepare import place_of, prepared
from dpca.config.loading import Loaded
from dpca.config.model import Solver
from dpca.config.schema import Config
from dpca.errors import ConfigError, OutputExistsError, OverBudgetError
from dpca.execution.jobqueue import SPAN_SHARE, SlurmJobs, check_here
from dpca.execution.partitions import Collecting
from dpca.execution.stage import Executor
from dpca.methods.extension import Extension
from dpca.methods.probe import probe
from dpca.numerics.ladder import BLOCK_KRYLOV
from dpca.planning.forecast import forecast
from dpca.planning.job import Job
from dpca.planning.runplan import ONE
from dpca.settings import COMPUTE
from dpca.store.directory import ResultDirectory
from dpca.units import describe_seconds

MANY = 2000
"""Number of samples (or features, where these are fewer) from which block Krylov is a choice beside the matrix."""
FORESEEN_BYTES = 16 * 10**9
"""Runs on at least this much data begin with a forecast: it takes a few seconds, the run a minute or more."""


def plan(loaded: Loaded, executor: Executor | None = None, extends: Extension | None = None) -> dict[str, Any]:
    """Plan of a run: reads, memory, disk and time (`dpca.planning.forecast`); measures for a few seconds.

    Parameters
    ----------
    executor : where it would run, instead of the place in the config; the measurement is made on this machine
    extends : the result that samples are added to
    """
    with prepared(loaded, executor=executor, extends=extends) as (job, where):
        document = _forecast(loaded.config, job, where)
        document["solvers"] = [_in_short(document), *_others(loaded.config, job, where)]
    try:
        ResultDirectory(loaded.config.output.path).check_free(overwrite=False)
    except OutputExistsError as error:
        document["advice"].append(f"a run will refuse its output.path: {error.message}. {error.remedy}")
    return document


def _in_short(document: dict[str, Any]) -> dict[str, Any]:
    """Costs of a solver, from its forecast."""
    return {
        "solver": document["solver"],
        "fits": True,
        "passes": len(document["passes"]),
        "worst_case_passes": document["worst_case_passes"],
        "bytes_read": document["bytes_read"],
        "flops": document["flops"],
        "memory_bytes": document["memory"]["expected_peak_bytes"],
        "seconds": document["time"]["seconds"],
    }


def _others(config: Config, job: Job, executor: Executor) -> list[dict[str, Any]]:
    """Costs of another solver, where it is a choice: block Krylov beside the matrix of many samples, and the reverse."""
    model, plan, solver = job.model, job.run_plan.plan, job.run_plan.attempts[0].rung.solver
    labelled = any(group.labels is not None for group in job.groups)
    if plan.n_kept < MANY or not job.run_plan.reads or model.needs_matrix is not None or labelled or solver == "tsqr":
        return []
    of_matrix: Solver = "gram_eigh" if plan.keeps == "samples" else "covariance_eigh"
    other = replace(model, solver=of_matrix if solver == BLOCK_KRYLOV else "block_krylov")
    memory = config.compute.memory
    try:
        beside = replace(job, model=other).planned(executor.workers(None if memory == "auto" else int(memory)))
    except OverBudgetError as error:
        return [{"solver": other.solver, "fits": False, "memory_bytes": error.needed_bytes, "why": error.message}]
    except ConfigError as error:  # such as a block that is too small
        return [{"solver": other.solver, "fits": False, "memory_bytes": None, "why": error.message}]
    return [_in_short(_forecast(config, beside, executor))]


def _forecast(config: Config, job: Job, executor: Executor) -> dict[str, Any]:
    """The forecast (`dpca.planning.forecast`) of a run, after a short measurement."""
    output, began = Path(config.output.path), time.perf_counter()
    here, measured = executor, job
    if executor.stand_in is not None:
        here, measured = executor.stand_in, replace(job, run_plan=replace(job.run_plan, concurrency=ONE))
    rates = [probe(measured.of_input(number), here, output) for number in range(len(job.groups))]
    return forecast(job, rates, config.output.path, probe_seconds=time.perf_counter() - began)


def foreseen(config: Config, job: Job, executor: Executor) -> dict[str, float] | None:
    """The forecast seconds of each stage of a run; None if the measurement is not worth the time."""
    place = place_of(config)
    if isinstance(place, SlurmJobs):
        check_here()
    elif job.n_bytes < FORESEEN_BYTES or isinstance(executor, Collecting):
        return None
    times = _forecast(config, job, executor)["time"]
    seconds = times["span_seconds"]
    if isinstance(place, SlurmJobs) and seconds > SPAN_SHARE * place.walltime_seconds:
        raise ConfigError(
            f"{COMPUTE.cluster.slurm.walltime} is {place.walltime}, but a span of this run takes about "
            f"{describe_seconds(seconds)} (measured here), and has to end within a tenth of it",
            f"Ask for {math.ceil(seconds / SPAN_SHARE / 60)} minutes or more.",
            key="compute.cluster.slurm.walltime",
        )
    return {**times["stages"], "total": times["seconds"]}
