"""The workflow behind `dpca run`: configuration in, result directory out."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpca.certificate import caveats
from dpca.clusters import connect
from dpca.config import DEFAULT_COMPONENTS, Config, Loaded
from dpca.decomposition import Decomposition, Model, decompose, plan_for
from dpca.errors import DpcaError
from dpca.outputs import Outputs
from dpca.preprocess import Rules
from dpca.progress import Display, Progress
from dpca.results import ResultDirectory, as_plain, environment
from dpca.slabs import Plan
from dpca.sources import Source, open_source
from dpca.sources.zarr_array import without_credentials


@dataclass(frozen=True)
class Finished:
    """A run that ended well."""

    path: Path
    decomposition: Decomposition
    notes: list[str]
    """What the user must be told besides the verdict."""
    seconds: float


def prepare(loaded: Loaded) -> tuple[Source, Plan, Model]:
    """Open the input and plan the run; reads no values.

    Raises
    ------
    InputError, ConfigError
        With the line of the configuration that is at fault, where one is.
    """
    config = loaded.config
    given = config.input
    try:
        source = open_source(given.uri, given.array, given.absent_chunks, given.storage_options)
        plan = plan_for(source, given.samples_axis, config.model.n_components or 1)
        n_components = config.model.n_components or min(DEFAULT_COMPONENTS, plan.n_samples, plan.n_features)
        plan = plan_for(source, given.samples_axis, n_components)
        _check_ddof(config.model.ddof, plan.n_samples)
    except DpcaError as error:
        raise loaded.locate(error) from error.__cause__
    rules = Rules(config.preprocess.center, config.preprocess.scale, config.preprocess.missing, config.model.ddof)
    return source, plan, Model(n_components, rules, config.model.precision, config.model.whiten)


def run(loaded: Loaded, *, overwrite: bool = False, display: Display | None = None) -> Finished:
    """Carry out a configuration.

    Nothing is written before the input has been opened and found fit; the result appears whole or not at
    all. A run that fails leaves status.json, which says why, and any earlier result as it was.

    Raises
    ------
    DpcaError
        Of the kind that says whose fault it is: its `exit_code` is the command's.
    """
    began = time.perf_counter()
    config = loaded.config
    source, plan, model = prepare(loaded)
    directory = ResultDirectory(config.output.path)
    try:
        directory.begin(overwrite)
    except DpcaError as error:
        raise loaded.locate(error) from error.__cause__
    progress = Progress(display, directory.status, stages=3 if config.output.components else 2)
    cluster = config.compute.cluster
    scheduler = None if cluster == "local" else cluster.scheduler
    workers = None if config.compute.workers == "auto" else config.compute.workers
    try:
        with connect(scheduler, workers) as executor:
            found = decompose(
                source,
                model,
                plan,
                Outputs(str(directory.staged_arrays.absolute())),
                executor,
                progress,
                components=config.output.components,
                keep_gram=config.output.gram,
            )
            n_workers = executor.n_workers
        seconds = time.perf_counter() - began
        directory.publish(found.certificate, _manifest(config, source, found, n_workers, seconds))
    except BaseException as error:
        directory.discard()
        state = "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
        progress.finish(state, error.message if isinstance(error, DpcaError) else f"{type(error).__name__}: {error}")
        raise
    progress.finish("done", found.certificate["verdict"])
    return Finished(directory.path, found, _notes(source, found), seconds)


def _check_ddof(ddof: int, n_samples: int) -> None:
    from dpca.errors import ConfigError

    if ddof >= n_samples:
        raise ConfigError(
            f"ddof is {ddof}, but it has to be less than n_samples = {n_samples}", "Set it to 1 or 0.", key="model.ddof"
        )


def _notes(source: Source, found: Decomposition) -> list[str]:
    notes = list(caveats(found.certificate))
    counts = found.counts
    if counts["absent_chunks"]:
        notes.append(
            f"{source.layout.name}: {counts['absent_chunks']} chunks were never written and read as fill values"
        )
    if counts["missing_values"]:
        notes.append(f"{counts['missing_values']} missing values were replaced by their feature's mean")
    if counts["constant_features"]:
        notes.append(f"{counts['constant_features']} constant features could not be scaled and count as 0")
    return notes


def _manifest(config: Config, source: Source, found: Decomposition, n_workers: int, seconds: float) -> dict[str, Any]:
    """Enough to repeat the run, and to know what its bits depend on."""
    resolved = config.model_dump()
    resolved["input"]["uri"] = without_credentials(resolved["input"]["uri"])
    resolved["input"]["storage_options"] = dict.fromkeys(resolved["input"]["storage_options"], "(not kept)")
    resolved["model"]["n_components"] = found.spectrum.n_components
    layout = source.layout
    return {
        "config": resolved,
        "input": {
            **source.fingerprint(),
            "name": layout.name,
            "shape": list(layout.shape),
            "dtype": layout.dtype.str,
            "samples_axis": found.plan.samples_axis,
        },
        "plan": as_plain(found.plan),
        "numerics": {
            "solver": "gram_eigh",
            "working_dtype": found.working_dtype.name,
            "accumulator_dtype": "float64",
            "blas_threads": {"passes": 1, "eigensolve": found.eigensolve_threads},
        },
        "workers": n_workers,
        "counts": found.counts,
        "seconds": {**found.seconds, "total": seconds},
        "environment": environment(),
    }
