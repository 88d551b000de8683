"""The search for a plan that fits the budget: how the input is read, by how many tasks, and what each task holds.

A plan is made before any data are read, and the run does not change it. It is the first of these that fits the
budget, in order of their cost in reads and disk:

1. ``columns``: whole chunks, all samples of a column of them at a time; each chunk is decoded once a pass.
2. ``parts``: parts of chunks, where storage gives a part at the cost of its own bytes (no compression).
3. ``copy``: one copy of the input in scratch, in chunks that can be read in parts (`dpca.planning.rechunk`).

Within each, the number of tasks is reduced before the width of slabs, since the width changes the last bits of
the result and the number of tasks does not. The names and sizes of arrays come from the modules that create
them (`held`), so that each size is stated beside the code that it describes.
"""

from __future__ import annotations

import math
import os
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from dpca.config.model import Model
from dpca.errors import InputError, OverBudgetError
from dpca.kernels import kernel as kernels
from dpca.numerics import backproject, preprocess, preview
from dpca.numerics.accumulators import SOLVERS
from dpca.numerics.ladder import Rung
from dpca.planning.rechunk import Copy, plan_copy
from dpca.planning.runplan import Array, Attempt, Process, RunPlan, Scratch, Settled, Stage, Workers
from dpca.slabs import SLAB_BYTES, Cuts, Plan, Side, axes_of, make_plan, placed
from dpca.sources.base import Layout, Region, Source
from dpca.store import ledger, outputs
from dpca.system.machine import Budget
from dpca.units import by, describe_bytes, describe_memory, enough

READINGS = {
    "columns": "columns of chunks, whole: each chunk is decoded once a pass",
    "anywhere": "slabs of any width: storage has no chunks, so each value is read once a pass",
    "parts": "parts of chunks, at the cost of their own bytes: each value is read once a pass",
    "copy": "a copy in scratch, made once: each chunk of the input is decoded once in all",
}

LIBRARIES_BYTES = 160 * 2**20
"""Interpreter and imported libraries: 66 to 110 MiB measured, plus the buffers of BLAS."""
TASK_BYTES = 24 * 2**20
"""Memory of a task besides its arrays: the stack of a thread, packing buffers of BLAS, overhead of the allocator."""
GOOD_CHUNK_BYTES = 8 * 2**20
"""A chunk size that is fast to read in any storage, for advice."""
SMALL_CHUNK_BYTES = 2**18
"""Chunks smaller than this take longer to open than to read."""
SLAB_WIDTH, LARGEST_SLAB_BYTES = 4096, 256 * 2**20
"""A slab is at least one panel wide, so that adding up its product is cheap, unless that takes more than 256 MiB."""
SLAB_SHIFTS = (0, 2, 4, 6)
"""Right shifts of the slab size to try: the full size, a quarter of it, and so on."""
SMALLEST_SLAB_BYTES = 2**20
COORDINATES = "coordinates"
"""The first stage, in which coordinates are copied or compared."""
THREADED_EIGENSOLVE = 1000
MAX_EIGENSOLVE_THREADS = 8
WAITING = 2
"""Submitted spans that are not added up yet, as a multiple of the running tasks, where memory allows."""


def plan_layout(layout: Layout, samples_axis: int, n_components: int, keeps: Side = "samples", **how: Any) -> Plan:
    """The cuts of a stored array; `how` goes to `dpca.slabs.make_plan`."""
    chunks = (1,) * len(layout.shape) if how.pop("divide", False) else layout.chunks
    return make_plan(
        layout.shape,
        layout.dtype.itemsize,
        chunks,
        samples_axis=samples_axis,
        keeps=keeps,
        shards=layout.shards,
        order=layout.order,
        n_components=n_components,
        **how,
    )


def plan_run(
    source: Source,
    samples_axis: int | str,
    model: Model,
    *,
    workers: Workers,
    scratch: Scratch,
    components: bool = True,
    keep_gram: bool = True,
    settled: Settled | None = None,
) -> RunPlan:
    """The plan of a run; reads no values.

    Parameters
    ----------
    source, samples_axis, model : the input and the model
    workers : where tasks run, and with how much memory
    scratch : place for a copy of the input
    components, keep_gram : whether these are written
    settled : of a run to resume: everything that decides bits stays as it was, whatever the memory is now

    Raises
    ------
    InputError
        When the samples axis does not exist, when there are fewer than two samples or no features.
    ConfigError
        When the model requests what the data can't give.
    OverBudgetError
        When no plan fits. The error names the smallest budget that would suffice, and the largest array.
    """
    layout = source.layout
    axis = check_axis(layout, samples_axis)
    n_samples, n_features = layout.shape[axis], layout.n_values // layout.shape[axis]
    model.check(layout.name, n_samples, n_features)
    k = model.most_components(n_samples, n_features)
    keeps = model.keeps(n_samples, n_features)
    first, *later = settled.attempts if settled else model.ladder(layout.dtype, keeps)
    dims = outputs.Dims.of(layout.dims, axis)
    coordinates, left_out = outputs.coordinates_to_copy(source, dims, dict(enumerate(dims.placed(axis))))
    _check_side(layout, first, n_samples, n_features, k, workers)

    def forecast(run: RunPlan, threads: int, rung: Rung = first) -> tuple[Process, ...]:
        return _processes(run, rung, model, source, k, workers, threads, components, keep_gram, coordinates)

    readings = [settled.reading_of(layout)] if settled else _readings(layout, axis, keeps, k, workers.budget)
    run = first_that_fits(layout, readings, workers, scratch, forecast)
    check_sharing(source, run)
    attempts, too_large, processes = [Attempt(first, run.n_tasks, run.window)], [], run.processes
    for rung in later:
        for threads, n_tasks, window in _at_once(run.n_parts, workers):
            tried = replace(run, n_tasks=n_tasks, window=window)
            tried = replace(tried, processes=forecast(tried, threads, rung))
            if tried.fits:
                attempts.append(Attempt(rung, n_tasks, window))
                processes = _joined(processes, tried.processes)
                break
        else:
            if settled:
                raise _over_budget(layout, [tried], scratch, forecast)
            too_large.append(rung)
    threads = settled.eigensolve_threads if settled else eigensolve_threads(run.plan.n_kept)
    kept = _keeping_data(replace(run, processes=processes), source)
    if kept.fits and (second_pass(run.plan, components) or reads_means(run.plan, model, layout)):
        run, processes = _keeping_data(run, source), kept.processes
    return replace(
        run,
        eigensolve_threads=threads,
        attempts=tuple(attempts),
        too_large=settled.too_large if settled else tuple(too_large),
        processes=processes,
        expected_bytes=run.tightest.peak_bytes,
        left_out=left_out,
    )


def _keeping_data(run: RunPlan, source: Source) -> RunPlan:
    """A plan that keeps the data in memory, if the tasks share memory and the data are not there already."""
    in_memory = not source.held((1,) * len(source.layout.shape)) or source.blocks
    if in_memory or run.copy is not None or len(run.processes) > 1:
        return run
    data = Array("data, kept for the passes that follow", source.layout.bytes)
    stages = tuple(Stage(stage.name, (*stage.arrays, data)) for process in run.processes for stage in process.stages)
    return replace(run, processes=(replace(run.processes[0], stages=stages),), keeps_data=True)


def _check_side(layout: Layout, rung: Rung, n_samples: int, n_features: int, k: int, workers: Workers) -> None:
    """Refuse a solver that was requested by name, if its matrix is the larger one and does not fit."""
    keeps, other = ("features", "samples") if rung.solver == "covariance_eigh" else ("samples", "features")
    m, better = (n_features, n_samples) if keeps == "features" else (n_samples, n_features)
    budget = workers.client_budget or workers.budget
    needed, would = (
        LIBRARIES_BYTES + sum(SOLVERS[rung.solver].held_to_finish(size, k).values()) for size in (m, better)
    )
    if rung.solver == "tsqr" or better >= m or needed <= budget.bytes:
        return
    solver = "gram_eigh" if rung.solver == "covariance_eigh" else "covariance_eigh"
    raise OverBudgetError(
        f"{layout.name}: svd_solver is {rung.solver}, whose {m:,} x {m:,} matrix over {keeps} takes "
        f"{describe_memory(8 * m * m)}, and {describe_memory(needed)} with its eigensolve, but the budget is "
        f"{describe_memory(budget.bytes)}, {budget.origin}",
        f"Set model.svd_solver: {solver}, or auto: its matrix over {other} is {better:,} x {better:,} and takes "
        f"{describe_memory(would)} with its eigensolve.",
        key="model.svd_solver",
    )


def eigensolve_threads(m: int) -> int:
    """BLAS threads of the eigensolve: 1 for small m, where more do not help, so that its bits are the same on any machine."""
    return 1 if m < THREADED_EIGENSOLVE else min(os.cpu_count() or 1, MAX_EIGENSOLVE_THREADS)


def reads_means(plan: Plan, model: Model, layout: Layout) -> bool:
    """Whether a first pass finds the means that fill missing values: samples are streamed, and values may be missing."""
    return plan.keeps == "features" and model.rules.missing != "error" and layout.may_miss


def second_pass(plan: Plan, components: bool) -> str | None:
    """Name of the second pass, which finds the vectors of the streamed side; None without one. Scores are always found."""
    if plan.keeps == "features":
        return "scores"
    return "components" if components else None


def n_stages(run: RunPlan, model: Model, layout: Layout, components: bool) -> int:
    """Number of stages of a run, if its first attempt is the only one and its components need no repair."""
    stages = 2 + (run.copy is not None)
    if model.kernels:
        return stages - 1 - (not run.reads) + model.kernels.n_cases
    if run.plan.keeps == "samples":
        return stages + components
    return stages + 2 + reads_means(run.plan, model, layout)


def check_axis(layout: Layout, samples_axis: int | str) -> int:
    """The samples axis as a number; checks that the array has features and at least two samples."""
    axis = layout.axis_of(samples_axis)
    features = [length for other, length in enumerate(layout.shape) if other != axis]
    if not features or 0 in features:
        raise InputError(
            f"{layout.name}: an array of shape {layout.shape} with samples along axis {axis} has no features",
            "PCA needs at least one value per sample besides the samples axis.",
            key="input.uri",
        )
    if layout.shape[axis] < 2:
        raise InputError(
            f"{layout.name}: has {layout.shape[axis]} sample(s) along axis {axis} of shape {layout.shape}, "
            "but PCA needs at least 2",
            "If samples lie along another axis, set input.samples_axis.",
            key="input.samples_axis",
        )
    return axis


def first_that_fits(
    layout: Layout,
    readings: Iterable[RunPlan],
    workers: Workers,
    scratch: Scratch,
    forecast: Callable[[RunPlan, int], tuple[Process, ...]],
) -> RunPlan:
    """The first plan, with the most tasks, that fits the budget.

    Parameters
    ----------
    layout : of the data, for errors
    readings : plans in order of preference, with tasks and processes still open
    workers, scratch : available resources
    forecast : `forecast(run, threads)` gives what every process of a plan holds

    Raises
    ------
    OverBudgetError
        When no plan fits.
    """
    tried: list[RunPlan] = []
    for reading in readings:
        wanted: RunPlan | None = None
        for threads, n_tasks, window in _at_once(reading.n_parts, workers):
            run = replace(reading, n_tasks=n_tasks, window=window)
            run = replace(run, processes=forecast(run, threads))
            wanted = wanted or run
            if run.fits and run.scratch_bytes <= scratch.free_bytes:
                return replace(run, wanted_tasks=wanted.n_tasks, wanted_bytes=wanted.tightest.peak_bytes)
            tried.append(run)
    raise _over_budget(layout, tried, scratch, forecast)


def _at_once(n_parts: int, workers: Workers) -> Iterator[tuple[int, int, int]]:
    """Tasks in each process, tasks in all, and submitted spans, from many to few."""
    for threads in range(min(workers.threads, n_parts), 0, -1):
        at_once = threads * max(1, workers.processes)
        for ahead in (WAITING, 1):
            window = min(ahead * at_once, n_parts)
            yield min(threads, window), min(at_once, window), window


def _joined(first: tuple[Process, ...], second: tuple[Process, ...]) -> tuple[Process, ...]:
    """Processes with the stages of both; where two stages have the same name, the larger one."""

    def stages(a: Process, b: Process) -> tuple[Stage, ...]:
        by_name = {stage.name: stage for stage in a.stages}
        for stage in b.stages:
            by_name[stage.name] = max(stage, by_name.get(stage.name, stage), key=lambda stage: stage.bytes)
        return tuple(by_name.values())

    return tuple(replace(a, stages=stages(a, b)) for a, b in zip(first, second, strict=True))


def _readings(layout: Layout, axis: int, keeps: Side, n_components: int, budget: Budget) -> Iterator[RunPlan]:
    m = math.prod(layout.shape[other] for other in axes_of(keeps, len(layout.shape), axis))
    panel = min(LARGEST_SLAB_BYTES, SLAB_WIDTH * m * layout.dtype.itemsize)
    largest = max(SLAB_BYTES, panel)
    sizes = sorted({max(min(SMALLEST_SLAB_BYTES, largest), largest >> shift) for shift in SLAB_SHIFTS}, reverse=True)
    seen: list[Plan] = []
    for divide in (False, True) if layout.divisible else (False,):
        for size in sizes:
            plan = plan_layout(layout, axis, n_components, keeps, slab_bytes=size, divide=divide)
            if plan not in seen:
                seen.append(plan)
                yield RunPlan(plan, "parts" if divide else "columns", None, 0, 0)
    if not layout.chunked:
        return  # storage that can be cut anywhere was already tried with the smallest cuts
    copies: list[Copy] = []
    for band in (budget.bytes, 0):  # 0: the narrowest band, whatever it takes of the budget
        copy = plan_copy(layout, axes_of(keeps, len(layout.shape), axis), band)
        if copy is not None and copy not in copies:
            copies.append(copy)
    for size in sizes:
        for copy in copies:
            plan = plan_layout(copy.layout, axis, n_components, keeps, slab_bytes=size, divide=True)
            yield RunPlan(plan, "copy", copy, 0, 0)


def _processes(
    run: RunPlan,
    rung: Rung,
    model: Model,
    source: Source,
    k: int,
    workers: Workers,
    threads: int,
    components: bool,
    keep_gram: bool,
    coordinates: Mapping[str, int],
) -> tuple[Process, ...]:
    """What every process of a plan holds in each stage, with one of the solvers that may be tried."""
    plan, m = run.plan, run.plan.n_kept
    solver = SOLVERS[rung.solver]
    waiting = run.window - run.n_tasks
    reader = held_to_read(run, source)
    tasks = {} if run.copy is None else {"copy": run.copy.held_to_write(source)}
    first = {**reader, **preprocess.held(plan, rung.dtype), **solver.held(m, rung.dtype)}
    sums = {
        rung.name: [
            *(Array(name, size) for name, size in solver.held_to_merge(m).items()),
            Array("sums of spans, to be added", 8 * m * m, 1 + waiting),
            Array("vectors of a preview", preview.held(m)),
        ],
    }
    if plan.keeps == "samples":
        tasks[rung.name] = {
            **first,
            "means and scales of a tile": 2 * 8 * (plan.tile_width + plan.slab_width),
            "tile being written": outputs.held_to_write(8 * plan.tile_width),
        }
        if components:
            tasks |= _to_stream(plan, "components", "orthogonalize", k, rung.dtype, reader)
    else:
        counted = 2 * 8 * 4 * m  # means, squares and corrections of a panel, a span and the total
        if reads_means(plan, model, source.layout):
            tasks["means"] = {**reader, **preprocess.held(plan, rung.dtype), "means of a panel and a span": counted}
        tasks[rung.name] = {**first, "means and squares of a panel and a span": counted}
        tasks |= _to_stream(plan, "scores", "signs", k, np.dtype(np.float64), reader)
    for name in ("components", "scores"):
        if name in tasks:
            sums[name] = [
                Array("vectors and alpha", 2 * 8 * m * k),
                Array("overlap and projection", 8 * k * (m + k), 1 + waiting),
            ]
    if "orthogonalize" in tasks:
        sums["orthogonalize"] = [Array("overlap", 8 * k * k, 1 + waiting)]
    for name in (rung.name, "means", "components", "scores", "orthogonalize", "signs"):
        if name in tasks:
            tasks[name]["part being written to the ledger"] = ledger.held_to_keep(
                8 * m * m if name == rung.name else 8 * m * k
            )
    solve = held_to_solve(model, rung, m, k)
    if keep_gram and plan.keeps == "samples":
        written = [Array("matrix", 8 * m * m), Array("being written", outputs.held_to_write(8 * m * m))]
        solve = max(solve, written, key=lambda arrays: sum(array.bytes for array in arrays))
    return arranged(tasks, sums, solve, workers, threads, coordinates)


def held_to_solve(model: Model, rung: Rung, m: int, k: int) -> list[Array]:
    """What the eigensolve holds; for kernels, including the Gram matrix that they are computed from."""
    held = SOLVERS[rung.solver].held_to_finish(m, k)
    if model.kernels:
        held["kernel matrix"] = 8 * m * m
        held |= kernels.held(m, k, model.kernels)
    return [Array(name, size) for name, size in held.items()]


def plan_in_memory(source: Source, samples_axis: int | str, model: Model, rung: Rung, workers: Workers) -> RunPlan:
    """The plan for kernels whose matrix exists already, in the input or in an earlier result: no data are streamed.

    Raises
    ------
    ConfigError
        When the model requests what the data can't give.
    OverBudgetError
        When the eigensolve does not fit.
    """
    layout = source.layout
    axis = check_axis(layout, samples_axis)
    n = layout.shape[axis]
    model.check(layout.name, n, layout.n_values // n)
    plan = plan_layout(layout, axis, 1, divide=True)
    dims = outputs.Dims.of(layout.dims, axis)
    coordinates, left_out = outputs.coordinates_to_copy(source, dims, {axis: dims.sample})
    libraries = Array("interpreter and libraries", LIBRARIES_BYTES)
    stage = Stage("eigensolve", (libraries, *held_to_solve(model, rung, n, model.most_components(n, n))))
    name, budget = (
        ("client", workers.client_budget or workers.budget) if workers.processes else ("dpca", workers.budget)
    )
    process = Process(name, 1, (*copied_first(coordinates), stage), budget)
    if process.peak_bytes > budget.bytes:
        raise OverBudgetError(
            f"{layout.name}: {process.peak_stage.name} of {n:,} samples takes {describe_memory(process.peak_bytes)}, but the budget is "
            f"{describe_memory(budget.bytes)}, {budget.origin}",
            f"Run it where {enough(process.peak_bytes)} may be had."
            if budget.lowered
            else f"Set compute.memory to {enough(process.peak_bytes)} or more.",
            key="compute.memory",
        )
    return RunPlan(
        plan,
        "columns",
        None,
        1,
        1,
        processes=(process,),
        attempts=(Attempt(rung, 1, 1),),
        eigensolve_threads=eigensolve_threads(n),
        reads=False,
        expected_bytes=process.peak_bytes,
        left_out=left_out,
    )


def _to_stream(
    plan: Plan, name: str, sweep: str, k: int, dtype: np.dtype[Any], reader: dict[str, int]
) -> dict[str, dict[str, int]]:
    """What the tasks of the second pass hold, and the tasks of the sweep over its result."""
    tile = k * plan.tile_width * dtype.itemsize
    return {
        name: {
            **reader,
            **preprocess.held(plan, dtype),
            **backproject.held(plan.n_kept, k, plan.slab_width, dtype),
            "vectors of a tile": tile,
            "tile being written": outputs.held_to_write(tile),
        },
        sweep: {
            # One copy as read, one as written, and one that zarr's threads hold until the tile is written.
            "vectors of a tile": 3 * tile,
            "vectors of a panel": 3 * 8 * k * plan.panel_width,
            "tile being written": outputs.held_to_write(tile),
        },
    }


def held_to_read(run: RunPlan, source: Source) -> dict[str, int]:
    """What a reader holds for the largest slab."""
    slab = _extent(run.plan.region(tuple(slice(0, cut.step) for cut in run.plan.slabs)))
    return source.held(slab) if run.copy is None else run.copy.held_to_read(slab)


def arranged(
    tasks: dict[str, dict[str, int]],
    sums: dict[str, list[Array]],
    solve: list[Array],
    workers: Workers,
    threads: int,
    coordinates: Mapping[str, int],
) -> tuple[Process, ...]:
    """What each process holds: first coordinates, then tasks with their arrays and the sums over spans, and the eigensolve."""
    libraries, first = Array("interpreter and libraries", LIBRARIES_BYTES), copied_first(coordinates)

    def of_tasks(stage: str) -> list[Array]:
        return [
            Array("stack and BLAS buffers of a task", TASK_BYTES, threads),
            *(Array(name, size, threads) for name, size in tasks[stage].items()),
        ]

    eigensolve = [Stage("eigensolve", (libraries, *solve))] if solve else []
    if workers.processes == 0:
        stages = [Stage(name, (libraries, *sums.get(name, ()), *of_tasks(name))) for name in tasks]
        return (Process("dpca", 1, (*first, *stages, *eigensolve), workers.budget),)
    # On a cluster the client holds the sums and the spans that wait to be added; workers hold the rest.
    client = [Stage(name, (libraries, *arrays, arrays[-1])) for name, arrays in sums.items()]
    worker = [Stage(name, (libraries, *of_tasks(name))) for name in tasks]
    return (
        Process("client", 1, (*first, *client, *eigensolve), workers.client_budget or workers.budget),
        Process("worker", workers.processes, tuple(worker), workers.budget),
    )


def copied_first(coordinates: Mapping[str, int]) -> list[Stage]:
    """The stage in which coordinates are copied or compared one by one: its peak is the largest of them."""
    if not coordinates:
        return []
    name = max(coordinates, key=coordinates.__getitem__)
    libraries = Array("interpreter and libraries", LIBRARIES_BYTES)
    # The stacks of zarr's threads are estimated as those of a task.
    return [Stage(COORDINATES, (libraries, Array("stacks of threads", TASK_BYTES), Array(name, coordinates[name])))]


def check_sharing(source: Source, run: RunPlan) -> None:
    """Refuse a lazy array if computing each slab, or each copied band, computes most of the whole array."""
    if run.copy is not None:
        source.check_sharing(map(run.copy.region, range(run.copy.n_units)), run.copy.n_units)
        return
    plan, groups = run.plan, run.groups or Cuts(run.plan.n_samples, run.plan.n_samples)
    slabs = (
        plan.region(slab) if run.groups is None else placed(plan.region(slab), plan.samples_axis, group)
        for group in groups.within(slice(0, groups.length))
        for span in range(plan.n_spans)
        for tile in plan.tiles_of(span)
        for slab in plan.slabs_of(tile)
    )
    source.check_sharing(slabs, plan.n_slabs * len(groups))


def _over_budget(
    layout: Layout, tried: list[RunPlan], scratch: Scratch, forecast: Callable[[RunPlan, int], tuple[Process, ...]]
) -> OverBudgetError:
    """The error that says why no plan fits, and what would."""
    copied = [run for run in tried if run.scratch_bytes > scratch.free_bytes]
    smallest = min((run for run in tried if run not in copied), key=lambda run: run.tightest.share)
    with_copy = min(copied, key=lambda run: run.tightest.share) if copied else smallest
    process = smallest.tightest
    if with_copy.fits:
        need = describe_bytes(with_copy.scratch_bytes)
        return OverBudgetError(
            f"{layout.name}: its chunks, {by(layout.chunk_shape)}, have to be copied to scratch, which takes {need}, "
            f"but {scratch.path} has {describe_bytes(scratch.free_bytes)} free",
            f"Set compute.scratch to a directory with {need} free, or compute.memory to "
            f"{enough(process.peak_bytes)} or more to read them in place.",
            key="compute.scratch",
        )
    budget, stage = process.budget, process.peak_stage
    _, *arrays = stage.arrays  # the first is the interpreter and libraries
    largest = max(arrays, key=lambda array: array.bytes * array.count)
    plan, m = smallest.plan, smallest.plan.n_kept
    on = "" if process.name == "dpca" else f" in each {process.name}"
    remedy = f"Set compute.memory to {enough(process.peak_bytes)} or more"
    if process.name == "client":
        remedy = f"Run the client where {enough(process.peak_bytes)} are free"
    elif budget.lowered:
        remedy = f"Run it where {enough(process.peak_bytes)} may be had"
    if enough(with_copy.tightest.peak_bytes) != enough(process.peak_bytes):
        remedy += (
            f", or to {enough(with_copy.tightest.peak_bytes)} and compute.scratch to a directory with "
            f"{describe_bytes(with_copy.scratch_bytes)} free"
        )
    remedy += "."
    if stage.name == COORDINATES:
        remedy += " Stored in smaller chunks, that coordinate would take less."
    if 8 * m * m > budget.bytes // 16 and (fewer := _fewer(layout, smallest, forecast)) > 1:
        remedy += f" With {describe_memory(budget.bytes)} up to {fewer} {plan.keeps} fit."
    if layout.chunked and (better := _with_better_chunks(layout, smallest, forecast)) < 0.9 * process.peak_bytes:
        remedy += (
            f" What hurts are chunks of {by(layout.chunk_shape)} ({describe_memory(layout.chunk_bytes)} each); "
            f"chunks of {by(better_chunks(layout, plan.samples_axis, plan.keeps))} would do with {describe_memory(better)}."
        )
    return OverBudgetError(
        f"{layout.name}: the smallest plan takes {describe_memory(process.peak_bytes)} of memory{on} (most in "
        f"{stage.name}, for {largest.name}: {describe_memory(largest.bytes * largest.count)}), but the budget is "
        f"{describe_memory(budget.bytes)}, {budget.origin}",
        remedy,
        key="compute.memory",
    )


def _fewer(layout: Layout, run: RunPlan, forecast: Callable[[RunPlan, int], tuple[Process, ...]]) -> int:
    """How many entries of the kept side would fit, if that is one axis; 0 if it has more axes."""
    if len(run.plan.kept_axes) > 1:
        return 0
    (axis,) = run.plan.kept_axes

    def fits(m: int) -> bool:
        part = replace(layout, shape=(*layout.shape[:axis], m, *layout.shape[axis + 1 :]))
        cuts = plan_layout(part, run.plan.samples_axis, 1, run.plan.keeps, slab_bytes=SMALLEST_SLAB_BYTES)
        tried = replace(run, plan=replace(cuts, tiles=run.plan.tiles), n_tasks=1, window=1)
        return replace(tried, processes=forecast(tried, 1)).fits

    return bisect_left(range(1, run.plan.n_kept), True, key=lambda m: not fits(m))


def _with_better_chunks(layout: Layout, run: RunPlan, forecast: Callable[[RunPlan, int], tuple[Process, ...]]) -> int:
    """Peak memory of a plan if the input were stored in suitable chunks."""
    plan = run.plan
    chunks = better_chunks(layout, plan.samples_axis, plan.keeps)
    stored = replace(layout, chunks=chunks, shards=None, divisible=False)
    cuts = plan_layout(stored, plan.samples_axis, 1, plan.keeps, slab_bytes=SMALLEST_SLAB_BYTES)
    cuts = replace(cuts, tiles=plan.tiles)  # the tiles of the result stay as they are
    processes = forecast(replace(run, plan=cuts, copy=None, reading="columns", n_tasks=1, window=1), 1)
    return max(processes, key=lambda process: process.share).peak_bytes


def reading_of(run: RunPlan, layout: Layout) -> str:
    """A key of READINGS; storage without chunks is read in slabs of any width."""
    return "anywhere" if run.reading == "columns" and not layout.chunked else run.reading


def better_chunks(
    layout: Layout, samples_axis: int, keeps: Side = "samples", n_bytes: int = GOOD_CHUNK_BYTES
) -> tuple[int, ...]:
    """Suitable chunks for an array: all samples of as many features as fit into `n_bytes`, or the reverse."""
    plan = plan_layout(layout, samples_axis, 1, keeps, divide=True, slab_bytes=n_bytes)
    return _extent(plan.region(tuple(cut[0] for cut in plan.slabs)))


def _extent(region: Region) -> tuple[int, ...]:
    return tuple(piece.stop - piece.start for piece in region)
