"""The error for data that no plan fits: what would fit, and what to change."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import replace

from dpca.errors import OverBudgetError
from dpca.planning.cuts import SMALLEST_SLAB_BYTES, better_chunks, plan_layout
from dpca.planning.processes import COORDINATES
from dpca.planning.runplan import ONE, Process, RunPlan, Scratch
from dpca.settings import COMPUTE
from dpca.sources.base import Layout
from dpca.units import by, describe_bytes, describe_memory, enough

Forecast = Callable[[RunPlan, int], tuple[Process, ...]]
"""Forecast of what every process of a plan holds, called as `forecast(run, threads)`."""


def over_budget(layout: Layout, tried: list[RunPlan], scratch: Scratch, forecast: Forecast) -> OverBudgetError:
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
            f"Set {COMPUTE.scratch} to a directory with {need} free, or {COMPUTE.memory} to "
            f"{enough(process.peak_bytes)} or more to read them in place.",
            key="compute.scratch",
        )
    budget, stage = process.budget, process.peak_stage
    _, *arrays = stage.arrays  # the first is the interpreter and libraries
    largest = max(arrays, key=lambda array: array.bytes * array.count)
    plan, m = smallest.plan, smallest.plan.n_kept
    on = "" if process.name == "dpca" else f" in each {process.name}"
    remedy = f"Set {COMPUTE.memory} to {enough(process.peak_bytes)} or more"
    if process.name == "client":
        remedy = f"Run the client where {enough(process.peak_bytes)} are free"
    elif budget.lowered:
        remedy = f"Run it where {enough(process.peak_bytes)} may be had"
    if enough(with_copy.tightest.peak_bytes) != enough(process.peak_bytes):
        remedy += (
            f", or to {enough(with_copy.tightest.peak_bytes)} and {COMPUTE.scratch} to a directory with "
            f"{describe_bytes(with_copy.scratch_bytes)} free"
        )
    remedy += "."
    if stage.name == COORDINATES:
        remedy += " Stored in smaller chunks, that coordinate would take less."
    several = len(smallest.inputs) > 1
    if not several and 8 * m * m > budget.bytes // 16 and (fewer := _fewer(layout, smallest, forecast)) > 1:
        remedy += f" With {describe_memory(budget.bytes)} up to {fewer} {plan.keeps} fit."
    if (
        not several
        and layout.chunked
        and (better := _with_better_chunks(layout, smallest, forecast)) < 0.9 * process.peak_bytes
    ):
        remedy += (
            f" What hurts are chunks of {by(layout.chunk_shape)} ({describe_memory(layout.chunk_bytes)} each); "
            f"chunks of {by(better_chunks(layout, plan.samples_axis, plan.keeps))} would do with {describe_memory(better)}."
        )
    remedy += "".join(f" {remark[0].upper()}{remark[1:]}." for remark in layout.remarks)
    return OverBudgetError(
        f"{layout.name}: the smallest plan takes {describe_memory(process.peak_bytes)} of memory{on} (most in "
        f"{stage.name}, for {largest.name}: {describe_memory(largest.bytes * largest.count)}), but the budget is "
        f"{describe_memory(budget.bytes)}, {budget.origin}",
        remedy,
        key="compute.memory",
        needed_bytes=process.peak_bytes,
    )


def _fewer(layout: Layout, run: RunPlan, forecast: Forecast) -> int:
    """How many entries of the kept side would fit, if that is one axis; 0 if it has more axes."""
    if len(run.plan.kept_axes) > 1:
        return 0
    (axis,) = run.plan.kept_axes
    one = run.only

    def fits(m: int) -> bool:
        part = replace(layout, shape=(*layout.shape[:axis], m, *layout.shape[axis + 1 :]))
        cuts = plan_layout(part, run.plan.samples_axis, 1, run.plan.keeps, slab_bytes=SMALLEST_SLAB_BYTES)
        plan = replace(cuts, tiles=run.plan.tiles)
        tried = replace(run, inputs=(replace(one, plan=plan),), concurrency=ONE)
        return replace(tried, processes=forecast(tried, 1)).fits

    return bisect_left(range(1, run.plan.n_kept), True, key=lambda m: not fits(m))


def _with_better_chunks(layout: Layout, run: RunPlan, forecast: Forecast) -> int:
    """Peak memory of a plan if the input were stored in suitable chunks."""
    plan = run.plan
    chunks = better_chunks(layout, plan.samples_axis, plan.keeps)
    stored = replace(layout, chunks=chunks, shards=None, divisible=False)
    cuts = plan_layout(stored, plan.samples_axis, 1, plan.keeps, slab_bytes=SMALLEST_SLAB_BYTES)
    cuts = replace(cuts, tiles=plan.tiles)  # the tiles of the result stay as they are
    processes = forecast(RunPlan.of(cuts, "columns", concurrency=ONE), 1)
    return max(processes, key=lambda process: process.share).peak_bytes
