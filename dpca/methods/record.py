"""The record of a run, or of a fit in Python: enough to repeat it, and to know what its bits depend on."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import asdict
from functools import cache
from importlib.metadata import version
from typing import Any

from threadpoolctl import threadpool_info

from dpca import __version__
from dpca.config.schema import ArrayFile, Preprocess
from dpca.methods.decomposition import Decomposition
from dpca.methods.kernel_decomposition import KernelDecomposition, caveats_of_kernels
from dpca.numerics.certificate import caveats
from dpca.planning.runplan import RunPlan
from dpca.sources import Source
from dpca.store.unfinished import differences, without_place
from dpca.system.machine import Peak
from dpca.units import describe_memory

_LIBRARIES = ("numpy", "dask", "distributed", "zarr", "h5py", "hdf5plugin", "numcodecs", "psutil")


def fingerprint(source: Source, samples_axis: int) -> dict[str, Any]:
    """Fingerprint of the input, and of the samples axis along which it is read."""
    return {**source.fingerprint(), "samples_axis": samples_axis}


def changes_of(before: dict[str, Any], source: Source, samples_axis: int) -> list[str]:
    """How the input differs from an earlier fingerprint of it, in words; its place does not matter."""
    return differences(without_place(before), without_place(fingerprint(source, samples_axis)))


def fields_of(preprocess: Preprocess) -> dict[str, Any]:
    """Fingerprints of the files of weights and mask of the features, by key, without their places.

    Raises
    ------
    InputError
        When one can't be opened.
    """
    named = {"weights": preprocess.weights, "mask": preprocess.filters.mask}
    return {key: without_place(file.open().fingerprint()) for key, file in named.items() if isinstance(file, ArrayFile)}


def manifest_of(
    config: dict[str, Any],
    source: Source,
    run_plan: RunPlan,
    found: Decomposition,
    *,
    identity: dict[str, Any],
    n_workers: int,
    seconds: float,
    peak: Peak,
    expected: dict[str, float] | None = None,
    gram_from: str | None = None,
) -> dict[str, Any]:
    """The manifest of a result, except its run and its notes.

    Parameters
    ----------
    config : resolved, without secrets
    identity : `fingerprint` of the input
    seconds : duration of the whole run
    expected : forecast seconds of each stage, if there are any
    gram_from : the result whose Gram matrix was used, if one was
    """
    layout = source.layout
    model = {**config["model"], "n_components": found.spectrum.n_components}
    return {
        "config": {**config, "model": model},
        "input": {
            **identity,
            "name": layout.name,
            "shape": list(layout.shape),
            "dtype": layout.dtype.str,
            "decoded_bytes": layout.bytes,
            "n_stored": layout.n_stored,
            "samples_axis": found.plan.samples_axis,
        },
        "plan": {**asdict(run_plan.plan), "n_tiles": run_plan.plan.n_tiles, "n_slabs": run_plan.plan.n_slabs},
        "reading": run_plan.reading,
        "gram_from": gram_from,
        "keeps_data": run_plan.keeps_data,
        "memory": {
            "planned_bytes": {process.name: process.peak_bytes for process in run_plan.processes},
            "budget_bytes": {process.name: process.budget.bytes for process in run_plan.processes},
            "peak_bytes_of_this_process": peak.bytes,
            "planned_bytes_of_stages": {stage.name: stage.bytes for stage in run_plan.processes[0].stages},
            "peak_bytes_of_stages": {name: n_bytes for name, n_bytes in peak.stages.items() if name},
        },
        "numerics": {
            "solver": found.rung.solver,
            "working_dtype": found.rung.dtype.name,
            "choices": list(found.choices),
            "accumulator_dtype": "float64",
            "blas_threads": {"passes": 1, "eigensolve": run_plan.eigensolve_threads},
        },
        "workers": n_workers,
        "forecast_seconds": expected,
        "task_seconds": {stage: vars(work) for stage, work in found.work.items()},
        "network": {stage: vars(traffic) for stage, traffic in found.traffic.items()},
        "counts": found.counts,
        "seconds": {**found.seconds, "total": seconds},
        "environment": environment(),
    }


def notes_of(source: Source, run_plan: RunPlan, found: Decomposition) -> list[str]:
    """What the user must know about the result, in sentences."""
    of_kernels = isinstance(found, KernelDecomposition)
    notes = caveats_of_kernels(found.certificate) if of_kernels else caveats(found.certificate)
    counts = found.counts
    notes.extend(
        f"memory: planned with {describe_memory(process.budget.bytes)}, {process.budget.origin}"
        for process in run_plan.processes
        if process.budget.lowered
    )
    notes.extend(f"coordinate left out: {reason}" for reason in run_plan.left_out)
    notes.extend(source.notes)
    if counts["absent_chunks"]:
        notes.append(
            f"{source.layout.name}: {counts['absent_chunks']} chunks were never written and read as fill values; "
            "input.absent_chunks: error refuses that"
        )
    if counts["retried_reads"]:
        notes.append(f"{counts['retried_reads']} reads failed and succeeded when they were tried again")
    if counts["missing_values"]:
        notes.append(
            f"{counts['missing_values']:,} missing values were replaced by their feature's mean, except in features that were left out"
        )
    if counts["plausible_marks"]:
        marks = " or ".join(f"{mark:g}" for mark in source.layout.missing_values)
        notes.append(
            f"{counts['plausible_marks']:,} values equal to {marks} were taken for missing, though smaller and larger values lie "
            "beside them: if they are values, take them out of input.missing_values"
        )
    if counts["constant_features"]:
        notes.append(f"{counts['constant_features']:,} constant features could not be scaled and count as 0")
    notes += [
        f"{count:,} features were left out {reason}, and are NaN in the result"
        for reason, count in left_out(counts).items()
    ]
    return notes


def left_out(counts: Mapping[str, int]) -> dict[str, int]:
    """How many features were left out, by the reason in words."""
    reasons = {
        "empty_features": "since they have no value at all",
        "masked_features": "by the mask",
        "incomplete_features": "since too many of their values are missing",
        "steady_features": "since their variance is below min_variance",
    }
    return {reason: counts[name] for name, reason in reasons.items() if counts.get(name)}


def environment() -> dict[str, Any]:
    """What the bits of a result depend on besides input and plan: versions, BLAS, CPU."""
    return {
        **_machine(),
        "blas": [
            {key: info.get(key) for key in ("internal_api", "version", "architecture", "num_threads")}
            for info in threadpool_info()
            if info.get("user_api") == "blas"
        ],
    }


@cache
def _machine() -> dict[str, Any]:
    """The part of the environment that does not change while this process lives."""
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpu": _cpu(),
        "libraries": {"dpca": __version__, **{name: version(name) for name in _LIBRARIES}},
    }


def _cpu() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            names = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
        return names[0] if names else platform.processor()
    except OSError:
        return platform.processor()
