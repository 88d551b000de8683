"""The record of a run, or of a fit in Python: enough to repeat it, and to know what its bits depend on."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpca.config.inputs import ArrayFile, LabelsFile
from dpca.config.schema import Config
from dpca.derived.regressors import title_of
from dpca.methods.decomposition import Decomposition
from dpca.methods.kernel_decomposition import KernelDecomposition, caveats_of_kernels
from dpca.numerics.certificate import caveats
from dpca.numerics.dimension import BI_CROSS_VALIDATION
from dpca.numerics.panels import FeatureCounts
from dpca.planning.job import Job
from dpca.settings import PREPROCESS
from dpca.sources.cf import same_units
from dpca.sources.groups import Groups, named
from dpca.sources.regressors import fingerprint_of, fingerprint_of_labels
from dpca.store.unfinished import differences, without_place
from dpca.system.blas import blas_libraries
from dpca.system.machine import Peak
from dpca.units import describe_memory
from dpca.version import __version__

SAMPLES_AT_ONCE, AT_THE_MEAN = 100_000, 1e-6
"""Scores that are read at a time; and the share of the largest one below which those of a sample are 0."""
_LIBRARIES = ("numpy", "dask", "distributed", "zarr", "h5py", "hdf5plugin", "numcodecs", "psutil")


def fingerprint(groups: Groups) -> dict[str, Any]:
    """Fingerprint of the input, and of the samples axis along which it is read; of several inputs that of each, by name."""
    each = {group.name: {**group.source.fingerprint(), "samples_axis": group.samples_axis} for group in groups}
    return each[""] if len(groups) == 1 else each


def digest_of(values: NDArray[np.float64]) -> str:
    """Digest that tells values read beside the data, such as weights of samples, from others."""
    return hashlib.sha256(values.tobytes()).hexdigest()


def changes_of(before: dict[str, Any], groups: Groups) -> list[str]:
    """How the input differs from an earlier fingerprint of it, in words; its place does not matter."""
    return differences(without_place(before), without_place(fingerprint(groups)))


def fields_of(config: Config) -> dict[str, Any]:
    """Fingerprints of the files of weights and masks of the features and of covariates, by key, without their places."""
    preprocess = config.preprocess
    files: dict[str, Any] = {"weights": preprocess.weights, "mask": preprocess.filters.mask}
    for one in config.inputs:
        files |= {f"{key} of {one.name}": getattr(one, key) for key in ("weights", "mask") if one.name}
    found = {
        key: without_place(file.open().fingerprint()) for key, file in files.items() if isinstance(file, ArrayFile)
    }
    if preprocess.inner_product is not None:
        found["inner_product"] = without_place(preprocess.inner_product.fingerprint())
    regressed = preprocess.regress_out
    if regressed is not None and regressed.covariates is not None:
        found["covariates"] = without_place(fingerprint_of(regressed.covariates.uri, regressed.covariates.array))
    if regressed is not None and isinstance(regressed.by, LabelsFile):
        found["by"] = fingerprint_of_labels(regressed.by.at(PREPROCESS.regress_out.by.key))
    return found


def manifest_of(
    config: dict[str, Any],
    job: Job,
    found: Decomposition,
    *,
    identity: dict[str, Any],
    n_workers: int,
    seconds: float,
    peak: Peak,
    expected: dict[str, float] | None = None,
) -> dict[str, Any]:
    """The manifest of a result, except its run and its notes.

    Parameters
    ----------
    config : resolved, without secrets
    identity : `fingerprint` of the input
    seconds : duration of the whole run
    expected : forecast seconds of each stage, if there are any
    """
    groups, run_plan, gram, design = job.groups, job.run_plan, job.gram, job.model.design
    regressors = None if design is None else design.stored
    if gram is not None:
        regressors = gram.manifest.get("regressors")
    model = {**config["model"], "n_components": found.spectrum.n_components}
    several = len(groups) > 1
    inputs = [
        {
            **(identity[group.name] if several else identity),
            **({"group": group.name} if several else {}),
            "name": group.layout.name,
            "shape": list(group.layout.shape),
            "dtype": group.layout.dtype.str,
            "decoded_bytes": group.layout.bytes,
            "n_stored": group.layout.n_stored,
            "samples_axis": group.samples_axis,
            "units": group.layout.units,
            "long_name": group.layout.long_name,
        }
        for group in groups
    ]
    plans = [{**asdict(one.plan), "n_tiles": one.plan.n_tiles, "n_slabs": one.plan.n_slabs} for one in run_plan.inputs]
    readings = [one.reading for one in run_plan.inputs]
    return {
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "config": {**config, "model": model},
        "input": inputs[0] if not several else inputs,
        "plan": plans[0] if not several else plans,
        "reading": readings[0] if not several else readings,
        "gram_from": None if gram is None else str(gram.path),
        **({} if regressors is None else {"regressors": regressors}),
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


def unscaled(job: Job) -> list[str]:
    """A sentence on inputs of different units that lie side by side as they are."""
    groups, model = job.groups, job.model
    units = [group.layout.units for group in groups]
    same = all(same_units(units[0], one) for one in units[1:])
    if same or not all(units) or model.rules.scale != "none" or model.block_scaling != "none":
        return []
    listed = ", ".join(f"{group.name} ({unit})" for group, unit in zip(groups, units, strict=True))
    key, value = ("block_scaling", "first_eigenvalue") if model.kernels is None else ("scale", "std")
    return [
        f"{listed} have different units and are not scaled against each other: the one with the largest numbers decides. "
        f"Set {key} to {value} so that each counts alike"
    ]


def without_values(job: Job, found: Decomposition) -> list[str]:
    """A sentence on samples at the mean of all, where so many values were filled in that these have none: land, if samples are cells."""
    n_used = sum(group.n_features for group in job.groups) - FeatureCounts.of(found.counts).left_out
    if isinstance(found, KernelDecomposition) or not job.model.rules.centered or found.counts["filled_values"] < n_used:
        return []
    scores = found.outputs.array("scores")
    pieces = range(0, scores.shape[0], SAMPLES_AT_ONCE)
    sizes = np.concatenate([np.abs(scores[start : start + SAMPLES_AT_ONCE]).max(axis=1) for start in pieces])
    empty = np.flatnonzero(sizes <= AT_THE_MEAN * sizes.max(initial=0.0))
    if not empty.size:
        return []
    named_ones = ", ".join(map(str, empty[:5])) + (f" and {empty.size - 5:,} more" if empty.size > 5 else "")
    return [
        f"{empty.size:,} of {sizes.size:,} samples have no value, or lie at the mean of all ({named_ones}): they have scores of 0, and variances are divided "
        "by a number that counts them. Leave such samples out (input.samples of a config)"
    ]


def notes_of(job: Job, found: Decomposition) -> list[str]:
    """Notes about the result for the user, in sentences."""
    groups, run_plan, design = job.groups, job.run_plan, job.model.design
    of_kernels = isinstance(found, KernelDecomposition)
    notes = caveats_of_kernels(found.certificate) if of_kernels else caveats(found.certificate)
    counts = found.counts
    notes.extend(
        f"memory: planned with {describe_memory(process.budget.bytes)}, {process.budget.origin}"
        for process in run_plan.processes
        if process.budget.lowered
    )
    if design is not None:
        n, q = len(design.matrix), design.regression.n_parameters
        divided = ""
        if job.model.rules.by_group:
            divided = f", and what is left divided by its standard deviation in each {design.terms[0].name}"
        notes.append(
            f"{title_of(design.terms)} regressed out{divided}: {q} parameters, the mean included, were fitted to "
            f"{n:,} samples; variances are still divided by n - ddof (model.ddof: {q} takes them all off)"
        )
    notes.extend(unscaled(job))
    notes.extend(f"coordinate left out: {reason}" for reason in run_plan.left_out)
    notes.extend(dict.fromkeys(note for group in groups for note in group.source.notes))
    if counts["absent_chunks"]:
        notes.append(
            f"{named(groups)}: {counts['absent_chunks']} chunks were never written and read as fill values; "
            "input.absent_chunks: error refuses that"
        )
    if counts["retried_reads"]:
        notes.append(f"{counts['retried_reads']} reads failed and succeeded when they were tried again")
    if counts["filled_values"]:
        by = "their feature's mean" if design is None else "the fit of what was regressed out"
        notes.append(f"{counts['filled_values']:,} missing values were replaced by {by}")
        notes.extend(without_values(job, found))
    if counts["plausible_marks"]:
        every = dict.fromkeys(mark for group in groups for mark in group.layout.missing_values)
        marks = " or ".join(f"{mark:g}" for mark in every)
        notes.append(
            f"{counts['plausible_marks']:,} values equal to {marks} were taken for missing, though smaller and larger values lie "
            "beside them: if they are values, take them out of input.missing_values"
        )
    if counts["constant_features"]:
        notes.append(f"{counts['constant_features']:,} constant features could not be scaled and count as 0")
    if len(groups) > 1 and "variance_share" in found.outputs:
        shares = found.outputs.array("variance_share")[...]
        notes += [
            f"input {group.name} has no variance: it has no share in any component, and was not scaled against the others"
            for group, share in zip(groups, np.asarray(shares), strict=True)
            if not share.any()
        ]
    notes += _of_validation(found.certificate.get("n_components", {}).get(BI_CROSS_VALIDATION))
    notes += [
        f"{count:,} features were left out {reason}, and are NaN in the result"
        for reason, count in left_out(counts).items()
    ]
    return notes


def _of_validation(curve: dict[str, Any] | None) -> list[str]:
    """Caveats about bi-cross-validation."""
    if curve is None:
        return []
    if curve["undecided"]:
        return [
            f"bi-cross-validation gives no number: its error is smallest at {curve['n_components']} of {len(curve['errors']) - 1} components that "
            "were tried, as where noise is correlated along the samples (time series), or where there are as many components"
        ]
    if curve["n_components"] == 0:
        return [
            "bi-cross-validation found no component that predicts what was left out: the data look like noise to it"
        ]
    return []


def left_out(counts: Mapping[str, int]) -> dict[str, int]:
    """How many features were left out, by the reason in words."""
    reasons = {
        "empty_features": "since they have no value at all",
        "masked_features": "by the filters (mask, chromosomes, variants, exclude, min_distance)",
        "incomplete_features": "since too many of their values are missing",
        "steady_features": "since their variance is below min_variance",
        "monomorphic_features": "since all people have the same genotype there",
        "rare_features": "since their minor allele is rarer than min_minor_allele_frequency",
    }
    return {reason: counts[name] for name, reason in reasons.items() if counts.get(name)}


def environment() -> dict[str, Any]:
    """Environment that the bits of a result depend on besides input and plan: versions, BLAS, CPU."""
    return {
        **_machine(),
        "blas": [
            {key: info.get(key) for key in ("internal_api", "version", "architecture", "num_threads")}
            for info in blas_libraries()
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
