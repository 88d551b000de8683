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
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial, reduce

from dpca.config.model import Model
from dpca.errors import ConfigError, OverBudgetError
from dpca.numerics.accumulators import SOLVERS
from dpca.numerics.ladder import BLOCK_KRYLOV, Rung
from dpca.planning.advice import Forecast, over_budget
from dpca.planning.cuts import SMALLEST_SLAB_BYTES, check_axis, plan_layout
from dpca.planning.footprint import footprint
from dpca.planning.in_memory import eigensolve_threads
from dpca.planning.memory import Needs, reads_means, second_pass
from dpca.planning.rechunk import Copy, plan_copy
from dpca.planning.runplan import (
    Attempt,
    Concurrency,
    Footprint,
    HeldArray,
    Process,
    RunPlan,
    Scratch,
    Settled,
    Workers,
)
from dpca.settings import MODEL, OUTPUT
from dpca.slabs import SLAB_BYTES, Cuts, Plan, Side, axes_of, placed
from dpca.sources.base import Layout, Source
from dpca.sources.groups import FeatureGroup, Groups, dtype_of, named, names_of_sums
from dpca.store.arrays import coordinates_to_copy, dims_of
from dpca.system.machine import LIBRARIES_BYTES, Budget
from dpca.units import describe_memory

READINGS = {
    "columns": "columns of chunks, whole: each chunk is decoded once a pass",
    "anywhere": "slabs of any width: storage has no chunks, so each value is read once a pass",
    "parts": "parts of chunks, at the cost of their own bytes: each value is read once a pass",
    "copy": "a copy in scratch, made once: each chunk of the input is decoded once in all",
}

Processes = tuple[Process, ...]

SMALL_CHUNK_BYTES = 2**18
"""Chunks smaller than this take longer to open than to read."""
SLAB_WIDTH, LARGEST_SLAB_BYTES = 4096, 256 * 2**20
"""A slab is at least one panel wide, so that adding up its product is cheap, unless that takes more than 256 MiB."""
PRODUCT_SLAB_BYTES = 32 * 2**20
"""Size of a slab that is multiplied with a block of vectors: wide enough that adding up m x l products is cheap."""
SLAB_SHIFTS = (0, 2, 4, 6)
"""Right shifts of the slab size to try: the full size, a quarter of it, and so on."""
WAITING = 2
"""Submitted spans that are not added up yet, as a multiple of the running tasks, where memory allows."""


def plan_run(
    groups: Groups,
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
    groups, model : the inputs, side by side, and the model
    workers : where tasks run, and with how much memory
    scratch : place for copies of the inputs
    components, keep_gram : whether these are written
    settled : of a run to resume: everything that decides bits stays as it was, whatever the memory is now
    """
    for group in groups:
        check_axis(group.layout, group.samples_axis)
    n_samples, n_features = groups[0].n_samples, sum(group.n_features for group in groups)
    n_groups = len(names_of_sums(groups))
    model.check(named(groups), n_samples, n_features, n_groups)
    planned = partial(
        _planned, groups, model, workers=workers, scratch=scratch, components=components, keep_gram=keep_gram
    )
    if settled is not None:
        return planned(settled.attempts, settled=settled)
    _check_labels(groups, model)
    ladder = model.ladder(dtype_of(groups), model.keeps(n_samples, n_features, n_groups))
    try:
        return planned(ladder)
    except OverBudgetError as error:
        if model.solver != "auto" or error.needed_bytes is None:  # what is lacking may be scratch
            raise
        labelled = any(group.labels is not None for group in groups)
        needs = (str(OUTPUT.groups), OUTPUT.groups.key) if labelled else model.needs_matrix
        if needs is not None:
            raise _with_reason(error, *needs) from None
        model.check_iteration(n_samples, n_features)
        try:
            return planned(model.iterated(dtype_of(groups)))
        except OverBudgetError as without:
            # The one that needs less says what to do.
            raise min((error, without), key=lambda one: one.needed_bytes or math.inf) from None


def _side_of_products(layout: Layout, group: FeatureGroup, smaller: Side) -> Side:
    """The side that block Krylov keeps: the smaller one, unless chunks make its slabs large, and those of the other side small."""
    other: Side = "features" if smaller == "samples" else "samples"
    axis = layout.axis_of(group.samples_axis)

    def slab_bytes(keeps: Side) -> int:
        kept = axes_of(keeps, len(layout.shape), axis)
        chunks = layout.chunk_shape
        return layout.dtype.itemsize * math.prod(
            length if number in kept else chunks[number] for number, length in enumerate(layout.shape)
        )

    mine = slab_bytes(smaller)
    return other if mine > PRODUCT_SLAB_BYTES and 4 * slab_bytes(other) < mine else smaller


def _check_labels(groups: Groups, model: Model) -> None:
    """Refuse groups of features for a solver that makes no matrix."""
    if model.solver == BLOCK_KRYLOV and any(group.labels is not None for group in groups):
        raise ConfigError(
            f"svd_solver is block_krylov, which makes no n x n matrix, but {OUTPUT.groups} needs one for each group",
            f"Leave {OUTPUT.groups} out, or set {MODEL.svd_solver.at('auto')}, where the matrices fit the memory.",
            key="output.groups",
        )


def _with_reason(error: OverBudgetError, needs: str, key: str) -> OverBudgetError:
    """The error of a matrix that does not fit, where no other solver would do."""
    remedy = error.marked_remedy
    if key == MODEL.n_components.key:
        remedy += f" With a number for {MODEL.n_components}, {MODEL.svd_solver.at('block_krylov')} needs no matrix."
    else:
        remedy += f" {needs} needs the matrix, which {MODEL.svd_solver.at('block_krylov')} does not make."
    return error.saying(error.marked_message, remedy)


def _planned(
    groups: Groups,
    model: Model,
    ladder: Sequence[Rung],
    *,
    workers: Workers,
    scratch: Scratch,
    components: bool,
    keep_gram: bool,
    settled: Settled | None = None,
) -> RunPlan:
    """The plan of a run with these solvers; arguments and errors as of `plan_run`."""
    layout, n_samples = groups[0].layout, groups[0].n_samples
    n_features = sum(group.n_features for group in groups)
    n_groups = len(names_of_sums(groups))
    k = model.most_components(n_samples, n_features)
    keeps = model.keeps(n_samples, n_features, n_groups)
    first, *later = ladder
    columns = None
    if first.solver == BLOCK_KRYLOV:
        columns = model.iteration.columns(k, min(n_samples, n_features))
        if len(groups) == 1 and model.keeps(2, 1) == "features":  # else the samples are kept, whatever the sizes
            keeps = settled.inputs[0].plan.keeps if settled else _side_of_products(layout, groups[0], keeps)
    copied = [
        coordinates_to_copy(group.source, dims, names)
        for group, dims, names in zip(groups, *dims_of(groups), strict=True)
    ]
    if columns is None:
        _check_side(layout, first, n_samples, n_features, k, workers)
    needs = [
        Needs(
            group.source,
            model,
            k,
            workers,
            components,
            keep_gram,
            coordinates,
            group.weights,
            group.labels,
            n_groups,
            len(groups),
        )
        for group, (coordinates, _) in zip(groups, copied, strict=True)
    ]

    def forecast(run: RunPlan, threads: int, rung: Rung = first, of: Sequence[Needs] = needs) -> Processes:
        """Forecast of each stage by the input that takes the most."""
        held = (footprint(one, run.of_input(number), threads, rung) for number, one in enumerate(of))
        return reduce(joined_processes, held)

    readings = []
    for number, group in enumerate(groups):
        alone = partial(forecast, of=needs[number : number + 1])
        at_most = max(k, 0 if model.design is None else len(model.design.names))
        possible: Iterable[RunPlan] = readings_of(
            group.layout, group.samples_axis, keeps, at_most, workers.budget, columns, max(1, group.unit)
        )
        if settled:
            possible = [RunPlan((settled.inputs[number].of(group.layout),))]
        readings.append(first_that_fits(group.layout, possible, workers, scratch, alone).only)
    together = settled.together if settled else 1 if needs[0].n_sums > 1 else None
    run = first_that_fits(layout, [RunPlan(tuple(readings), together=together)], workers, scratch, forecast)
    for number, group in enumerate(groups):
        check_sharing(group.source, run.of_input(number))
    attempts, too_large, processes = [Attempt(first, run.concurrency)], [], run.processes
    for rung in later:
        for threads, concurrency in _concurrencies(run.n_parts, workers):
            tried = replace(run, concurrency=concurrency)
            tried = replace(tried, processes=forecast(tried, threads, rung))
            if tried.fits:
                attempts.append(Attempt(rung, concurrency))
                processes = joined_processes(processes, tried.processes)
                break
        else:
            if settled:
                raise over_budget(layout, [tried], scratch, forecast)
            too_large.append(rung)
    threads = settled.eigensolve_threads if settled else eigensolve_threads(run.plan.n_kept)
    if columns is not None:  # tall matrices: memory, not cores, decides how long they take
        threads = 1
    kept = keeping_data(replace(run, processes=processes), groups)
    if kept.fits and (columns is not None or second_pass(run.plan, components) or reads_means(run.plan, model, layout)):
        run, processes = keeping_data(run, groups), kept.processes
    return replace(
        run,
        eigensolve_threads=threads,
        attempts=tuple(attempts),
        too_large=settled.too_large if settled else tuple(too_large),
        processes=processes,
        expected_bytes=run.tightest.peak_bytes,
        left_out=tuple(reason for _, left_out in copied for reason in left_out),
    )


def keeping_data(run: RunPlan, groups: Groups) -> RunPlan:
    """A plan that keeps the data in memory, if the tasks share memory and the data are not there already."""
    there = any(group.source.in_memory or group.source.blocks for group in groups)
    if there or run.copies or len(run.processes) > 1:
        return run
    data = HeldArray("data, kept for the passes that follow", sum(group.layout.bytes for group in groups))
    stages = tuple(
        Footprint(stage.name, (*stage.arrays, data)) for process in run.processes for stage in process.stages
    )
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
        f"{MODEL.svd_solver.set_to(solver)}, or auto: its matrix over {other} is {better:,} x {better:,} and takes "
        f"{describe_memory(would)} with its eigensolve.",
        key="model.svd_solver",
    )


def first_that_fits(
    layout: Layout,
    readings: Iterable[RunPlan],
    workers: Workers,
    scratch: Scratch,
    forecast: Forecast,
) -> RunPlan:
    """The first plan, with the most tasks, that fits the budget.

    Parameters
    ----------
    layout : of the data, for errors
    readings : plans in order of preference, with tasks and processes still open
    workers, scratch : available resources
    forecast : `forecast(run, threads)` gives what every process of a plan holds
    """
    tried: list[RunPlan] = []
    for reading in readings:
        wanted: RunPlan | None = None
        for threads, concurrency in _concurrencies(reading.n_parts, workers):
            run = replace(reading, concurrency=concurrency)
            run = replace(run, processes=forecast(run, threads))
            wanted = wanted or run
            if run.fits and run.scratch_bytes <= scratch.free_bytes:
                return replace(run, wanted_tasks=wanted.concurrency.n_tasks, wanted_bytes=wanted.tightest.peak_bytes)
            tried.append(run)
    raise over_budget(layout, tried, scratch, forecast)


def _concurrencies(n_parts: int, workers: Workers) -> Iterator[tuple[int, Concurrency]]:
    """Tasks in each process, and all tasks and submitted parts, from many to few."""
    for threads in range(min(workers.threads, n_parts), 0, -1):
        at_once = threads * max(1, workers.processes)
        for ahead in (WAITING, 1):
            window = min(ahead * at_once, n_parts)
            yield min(threads, window), Concurrency(min(at_once, window), window)


def side_by_side(plans: Sequence[RunPlan | None]) -> RunPlan | None:
    """One plan for one input after another: of each process and stage what takes the most; None if nothing streams by."""
    made = [plan for plan in plans if plan is not None]
    if len(made) < 2:
        return made[0] if made else None
    inputs = tuple(one for plan in made for one in plan.inputs)
    return replace(made[0], inputs=inputs, processes=reduce(joined_processes, (plan.processes for plan in made)))


def joined_processes(first: tuple[Process, ...], second: tuple[Process, ...]) -> tuple[Process, ...]:
    """Processes with the stages of both; where two stages have the same name, the larger one."""

    def stages(a: Process, b: Process) -> tuple[Footprint, ...]:
        by_name = {stage.name: stage for stage in a.stages}
        for stage in b.stages:
            by_name[stage.name] = max(stage, by_name.get(stage.name, stage), key=lambda stage: stage.bytes)
        return tuple(by_name.values())

    return tuple(replace(a, stages=stages(a, b)) for a, b in zip(first, second, strict=True))


def readings_of(
    layout: Layout,
    axis: int,
    keeps: Side,
    n_components: int,
    budget: Budget,
    columns: int | None = None,
    unit: int = 1,
) -> Iterator[RunPlan]:
    """The ways to read an input, without a copy first, with wide slabs first; `unit` as for `dpca.slabs.make_plan`."""
    cuts = partial(plan_layout, samples_axis=axis, n_components=n_components, keeps=keeps, columns=columns, unit=unit)
    m = math.prod(layout.shape[other] for other in axes_of(keeps, len(layout.shape), axis))
    panel = min(LARGEST_SLAB_BYTES, SLAB_WIDTH * m * layout.dtype.itemsize)
    largest = max(SLAB_BYTES, panel) if columns is None else PRODUCT_SLAB_BYTES
    sizes = sorted({max(min(SMALLEST_SLAB_BYTES, largest), largest >> shift) for shift in SLAB_SHIFTS}, reverse=True)
    copies: list[Copy] = []
    if layout.chunked:  # storage that can be cut anywhere is read with the smallest cuts already
        for band in (budget.bytes, 0):  # 0: the narrowest band, whatever it takes of the budget
            copy = plan_copy(layout, axes_of(keeps, len(layout.shape), axis), band)
            if copy is not None and copy not in copies:
                copies.append(copy)
    # A sparse copy is read as lines; without it, all of the matrix would be made dense, as one slab.
    sparse = [copy for copy in copies if copy.lines_axis is not None and layout.bytes > largest]
    for copy in sparse:
        for size in sizes:
            yield RunPlan.of(cuts(copy.layout, slab_bytes=size, divide=True), "copy", copy)
    seen: list[Plan] = []
    for divide in (False, True) if layout.divisible else (False,):
        for size in sizes:
            plan = cuts(layout, slab_bytes=size, divide=divide)
            if plan not in seen:
                seen.append(plan)
                yield RunPlan.of(plan, "parts" if divide else "columns")
    for size in sizes:
        for copy in copies:
            if copy not in sparse:
                yield RunPlan.of(cuts(copy.layout, slab_bytes=size, divide=True), "copy", copy)


def check_sharing(source: Source, run: RunPlan) -> None:
    """Refuse a lazy array if computing each slab, or each copied band, computes most of the whole array."""
    copy = run.only.copy
    if copy is not None:
        source.check_sharing(map(copy.region, range(copy.n_units)), copy.n_units)
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


def reading_of(run: RunPlan, layout: Layout) -> str:
    """A key of READINGS; storage without chunks is read in slabs of any width."""
    reading = run.only.reading
    return "anywhere" if reading == "columns" and not layout.chunked else reading
