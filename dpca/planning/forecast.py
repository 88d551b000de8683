"""The forecast of a plan: bytes, flops, files, seconds and advice, as plain values for people and --json."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from dpca.config.model import Model
from dpca.numerics.accumulators import krylov
from dpca.numerics.accumulators.gram import eigensolve_flops
from dpca.numerics.ladder import BLOCK_KRYLOV
from dpca.planning.cuts import better_chunks
from dpca.planning.disk import arrays_of, n_eigenvalues_of
from dpca.planning.job import Job
from dpca.planning.runplan import RunPlan
from dpca.planning.search import READINGS, SMALL_CHUNK_BYTES, reading_of
from dpca.planning.steps import Kind, PlannedStep
from dpca.sources.base import Layout
from dpca.sources.groups import FeatureGroup, dtype_of, named, names_of_sums
from dpca.system.machine import free_disk
from dpca.units import by, describe_bytes, describe_memory, enough

FORMAT_VERSION = 1


@dataclass(frozen=True)
class Rates:
    """Seconds of each step, measured separately, in one task while the other tasks run."""

    read: float
    """Per decoded byte of the input, including its reading."""
    product: float
    """Per value: its centring and its share of the Gram matrix."""
    backprojection: float
    """Per value: its second centring and its share of all components."""
    write: float
    """Per byte to the disk of the result, or to scratch if a copy is written there."""
    eigensolve: float
    """Seconds of the whole eigensolve: the time of a smaller matrix, times the cube of the ratio of sizes."""
    again: float = 0.0
    """Per value: its share of the products of a later pass of block Krylov."""

    def merge(self, other: Rates) -> Rates:
        """The rates of the slower of two tasks in each step."""
        return Rates(*(max(pair) for pair in zip(vars(self).values(), vars(other).values(), strict=True)))


def forecast(job: Job, rates: Sequence[Rates], output_path: str, *, probe_seconds: float) -> dict[str, Any]:
    """The document that `dpca plan` prints.

    Parameters
    ----------
    rates : those of each group (`dpca.methods.probe`)
    output_path : the result directory
    probe_seconds : time of the measurement of the rates

    Returns
    -------
    dict with keys
        format_version : 1
        fits : true
        inputs : of each input name, shape, dtype, chunks, codec, decoded bytes; its group, "" for the only one; its features;
            reading, slabs, tiles and spans as below
        input : the only one, or name and bytes of all
        n_samples, n_features, working_dtype; n_stored, the number of samples in storage where some were chosen
        n_components : or the largest possible number, where the spectrum decides
        kernels : number of kernels; null for PCA
        reading : columns, anywhere, parts or copy; and what that means
        keeps : the side that is whole in every slab, samples or features; the other side is streamed
        slabs, tiles, spans : their numbers; slab_width (features, or samples where these are streamed) and slab_bytes of
            the largest slab
        tasks : number of tasks at the same time, on all processes
        solver : the solver that is tried first; solver_reason says why
        passes : name, bytes and flops of each pass
        worst_case_passes, worst_case : number of passes, and the additional ones, if requested components turn out to be
            smaller than the first solver supports, and second passes refute each solver in turn
        bytes_read, flops : totals, including the eigensolve
        output : upper bounds of files and bytes (before compression), and shape, dtype and chunk files of each array
        scratch : bytes, path and free bytes there
        memory : budget_bytes and where it comes from; expected_peak_bytes, and peak_bytes if solvers follow the first;
            for every process the arrays of each stage
        time : seconds in all, of each stage, and of a span of the slower pass in one task; the measured rates, and
            probe_seconds, the time of the measurement
        solvers : of this solver, and of another one that is a choice: solver, fits, passes, worst_case_passes, bytes_read, flops,
            memory_bytes, seconds; of one that does not fit, memory_bytes and why. Only of `dpca plan`
        advice : sentences
    """
    run, groups, model = job.run_plan, job.groups, job.model
    plan, layout = run.plan, groups[0].layout
    n, d = plan.n_samples, run.n_features
    k, first = model.most_components(n, d), run.attempts[0].rung
    inputs = [_input(group, one) for one, group in job.each]
    expected = job.steps
    passes = _summed(
        [_reads_of(one, group.layout, steps) for (one, group), steps in zip(job.each, expected, strict=True)]
    )
    worst = _summed([_reads_of(one, group.layout, job.worst_of(one), begun=True) for one, group in job.each])
    n_cases = model.kernels.n_cases if model.kernels else 1
    leading = model.leading(plan.n_kept, d if plan.keeps == "samples" else plan.n_samples)
    iterates, n_eigenvalues = first.solver == BLOCK_KRYLOV, n_eigenvalues_of(run, model)
    arrays = arrays_of(job)
    output_bytes = sum(array["bytes"] for array in arrays)
    shares = [group.layout.bytes / max(1, sum(other.layout.bytes for other in groups)) for group in groups]
    seconds = _added(
        [
            _seconds(steps, one, model, group.layout, rate, share * output_bytes)
            for steps, (one, group), rate, share in zip(expected, job.each, rates, shares, strict=True)
        ]
    )
    if "eigensolve" in seconds:
        seconds["eigensolve"] *= (1 if leading is None or iterates else krylov.SHARE) / len(groups)
    return {
        "format_version": FORMAT_VERSION,
        "fits": True,
        "inputs": inputs,
        "input": inputs[0]
        if len(inputs) == 1
        else {"name": named(groups), "bytes": sum(one["bytes"] for one in inputs)},
        "n_samples": n,
        "n_stored": layout.n_stored,
        "n_features": d,
        "n_components": k,
        "kernels": model.kernels.n_cases if model.kernels else None,
        "solver": first.solver,
        "solver_reason": model.reason(
            dtype_of(groups), n, d, len(names_of_sums(groups)), iterates=plan.keeps if iterates else None
        ),
        "keeps": plan.keeps,
        "working_dtype": first.dtype.name,
        "reading": _readings(inputs, run),
        **{name: sum(one[name] for one in inputs) for name in ("slabs", "tiles", "spans")},
        **{name: max(one[name] for one in inputs) for name in ("slab_width", "slab_bytes")},
        "tasks": run.concurrency.n_tasks,
        "passes": passes,
        "worst_case_passes": len(passes) + len(worst),
        "worst_case": worst,
        "bytes_read": sum(item["bytes"] for item in passes),
        "flops": sum(item["flops"] for item in passes)
        + (0 if iterates else n_cases * eigensolve_flops(plan.n_kept, leading is not None)),
        "output": {
            "path": output_path,
            "bytes": output_bytes,
            "free_bytes": free_disk(output_path),
            "files": sum(array["files"] for array in arrays) + len(arrays) + 4,
            "arrays": arrays,
            "beside": ["certificate.json", "manifest.json", "status.json"],
        },
        "scratch": {
            "path": job.scratch.path,
            "bytes": run.scratch_bytes,
            "free_bytes": job.scratch.free_bytes,
        },
        "memory": _memory(run),
        "time": {
            "seconds": sum(seconds.values()),
            "stages": seconds,
            "span_seconds": max(
                _span_seconds(one, group.layout, rate, share * output_bytes)
                for (one, group), rate, share in zip(job.each, rates, shares, strict=True)
            ),
            "rates": _rates(reduce(Rates.merge, rates), 4 * n_eigenvalues if iterates else plan.n_kept),
            "probe_seconds": probe_seconds,
        },
        "advice": _advice(job),
    }


def _input(group: FeatureGroup, run: RunPlan) -> dict[str, Any]:
    """An input, and how it is read."""
    layout, plan = group.layout, run.plan
    return {
        "name": layout.name,
        "group": group.name,
        "shape": list(layout.shape),
        "dtype": str(layout.dtype),
        "chunks": list(layout.chunk_shape),
        "codec": layout.codec,
        "bytes": layout.bytes,
        "n_features": plan.n_features,
        "reading": reading_of(run, layout),
        "slabs": plan.n_slabs,
        "slab_width": plan.slab_width,
        "slab_bytes": plan.slab_width * plan.n_kept * layout.dtype.itemsize,
        "tiles": plan.n_tiles,
        "spans": plan.n_spans,
    }


def _summed(passes: Sequence[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """The passes over several groups: bytes and flops are added up by name."""
    found: dict[str, dict[str, Any]] = {}
    for one in (one for group in passes for one in group):
        same = found.setdefault(one["name"], {"name": one["name"], "bytes": 0, "flops": 0})
        same["bytes"] += one["bytes"]
        same["flops"] += one["flops"]
    return list(found.values())


def _added(seconds: Sequence[dict[str, float]]) -> dict[str, float]:
    """The sum of the seconds of each stage."""
    return {name: sum(one.get(name, 0.0) for one in seconds) for one in seconds for name in one}


def _reads_of(run: RunPlan, layout: Layout, steps: Sequence[PlannedStep], begun: bool = False) -> list[dict[str, Any]]:
    """The steps that read an input: name, bytes and flops of each.

    Parameters
    ----------
    begun : whether others have read it before, so that it may be in memory
    """
    again = 0 if run.keeps_data else layout.bytes
    reading = [step for step in steps if step.reads]
    return [
        {"name": step.name, "bytes": again if begun or number else layout.bytes, "flops": step.flops}
        for number, step in enumerate(reading)
    ]


def _readings(inputs: Sequence[dict[str, Any]], run: RunPlan) -> dict[str, Any]:
    """How the inputs are read, and what that means."""
    kinds = list(dict.fromkeys(one["reading"] for one in inputs))
    kept = "; kept in memory, where that is faster than to read them again" if run.keeps_data else ""
    return {
        "kind": ", ".join(kinds),
        "meaning": "; ".join(READINGS[kind] for kind in kinds) + kept,
        "keeps_data": run.keeps_data,
    }


def _memory(run: RunPlan) -> dict[str, Any]:
    """The budget, and what each process holds in each stage."""
    tightest = run.tightest
    processes = [
        {
            "name": process.name,
            "count": process.count,
            "peak_bytes": process.peak_bytes,
            "stages": [
                {"name": stage.name, "bytes": stage.bytes, "arrays": [vars(array) for array in stage.arrays]}
                for stage in process.stages
            ],
        }
        for process in run.processes
    ]
    return {
        "budget_bytes": tightest.budget.bytes,
        "budget_origin": tightest.budget.origin,
        "expected_peak_bytes": run.expected_bytes,
        "peak_bytes": tightest.peak_bytes,
        "processes": processes,
    }


def _seconds(
    steps: Sequence[PlannedStep], run: RunPlan, model: Model, layout: Layout, rates: Rates, output_bytes: float
) -> dict[str, float]:
    """Seconds of each stage: the work is divided evenly among the tasks."""
    plan, at_once = run.plan, min(run.concurrency.n_tasks, run.plan.n_spans)
    written = rates.write * run.scratch_bytes
    k, values = model.most_components(plan.n_samples, plan.n_features), layout.n_values / at_once
    read, seconds = rates.read * layout.bytes / at_once, dict[str, float]()
    # A copy is not compressed: reading it takes at most as long as writing it.
    of_copy = min(read, written) if run.copies else read
    again = 0.0 if run.keeps_data else of_copy
    costs: dict[Kind, float] = {
        "copy": read + written,
        "means": of_copy,
        "matrix": rates.read * layout.bytes,
        "product": (again if any(step.kind == "means" for step in steps) else of_copy) + rates.product * values,
        "again": again + rates.again * values,
        "eigensolve": rates.eigensolve,
        "second": again + rates.backprojection * values + rates.write * output_bytes,
        "signs": 3 * rates.write * 8 * plan.n_samples * k,
    }
    for step in steps:
        name = f"{run.attempts[0].rung.name} passes" if step.kind == "again" else step.name
        seconds[name] = seconds.get(name, 0.0) + costs[step.kind]
    return seconds


def _span_seconds(run: RunPlan, layout: Layout, rates: Rates, output_bytes: float) -> float:
    """Seconds of a span of the slower pass in one task."""
    work = rates.read * layout.bytes + max(rates.product, rates.backprojection) * layout.n_values
    return (work + rates.write * output_bytes) / run.n_parts


def _rates(rates: Rates, flops: int) -> dict[str, float]:
    """The measured rates in familiar units, for one task while the others run; `flops` are those of the first pass, for each value."""
    return {
        "read_bytes_per_second": 1 / rates.read,
        "product_flops_per_second": flops / rates.product,
        "write_bytes_per_second": 1 / rates.write,
    }


def _advice(job: Job) -> list[str]:
    """Suggestions that would make the run cheaper, if any."""
    run = job.run_plan
    process = run.tightest
    sentences = [sentence for one, group in job.each for sentence in _advice_on(one, group.layout)]
    sentences = list(dict.fromkeys(sentences))
    if run.concurrency.n_tasks < run.wanted_tasks and run.wanted_tasks <= run.n_parts:
        sentences.append(
            f"only {run.concurrency.n_tasks} of {run.wanted_tasks} tasks at a time fit the budget; with compute.memory: "
            f"{enough(run.wanted_bytes)} all would"
        )
    sentences += [
        f"{rung.name} does not fit the memory: components that need it would be marked as not reliable"
        for rung in run.too_large
    ]
    sentences += [f"a coordinate will be left out of the result: {reason}" for reason in run.left_out]
    if process.budget.lowered:
        sentences.append(f"the budget is {process.budget.origin}")
    return sentences


def _advice_on(run: RunPlan, layout: Layout) -> list[str]:
    """Suggestions on how an input is stored."""
    sentences, plan, reading = list(layout.remarks), run.plan, run.only.reading
    better = by(better_chunks(layout, plan.samples_axis, plan.keeps))
    few = layout.few_values
    if few is not None and run.only.copy is not None and run.only.copy.lines_axis is not None:
        stored, streamed = ("rows", "columns")[few.axis], ("columns", "rows")[few.axis]
        sentences.append(
            f"its values lie by {stored}, but its {streamed} are streamed: a copy in scratch ({describe_bytes(run.scratch_bytes)}) has them by "
            f"{streamed}; stored so (X.{('tocsc', 'tocsr')[few.axis]}()), the input would need none"
        )
    elif reading == "copy":
        sentences.append(
            f"chunks of {by(layout.chunk_shape)} need a copy in scratch ({describe_bytes(run.scratch_bytes)}); stored in "
            f"chunks of {better}, the input would need none"
        )
    elif reading == "parts":
        sentences.append(
            f"columns of chunks of {by(layout.chunk_shape)} do not fit the budget, so parts of chunks are read; "
            f"chunks of {better} would be read whole"
        )
    if layout.chunked and layout.chunk_bytes < min(SMALL_CHUNK_BYTES, layout.bytes):
        sentences.append(
            f"chunks of {by(layout.chunk_shape)} are {describe_memory(layout.chunk_bytes)} each: opening one costs as "
            f"much as reading it; chunks of {better} would be read faster"
        )
    return sentences
