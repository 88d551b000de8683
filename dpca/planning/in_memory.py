"""The plan of what is computed in memory, without a pass over data: an eigensolve of a matrix that exists, or analyses of it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from dpca.config.model import Model
from dpca.errors import OverBudgetError
from dpca.numerics.ladder import Rung
from dpca.planning.cuts import check_axis, plan_layout
from dpca.planning.matrix_memory import held_to_solve
from dpca.planning.processes import copied_first
from dpca.planning.runplan import ONE, Attempt, Footprint, HeldArray, Process, RunPlan, Workers
from dpca.settings import COMPUTE
from dpca.sources.groups import FeatureGroup
from dpca.store.arrays import Dims, coordinates_to_copy
from dpca.system.machine import LIBRARIES_BYTES
from dpca.units import describe_memory, enough

THREADED_EIGENSOLVE = 1000
MAX_EIGENSOLVE_THREADS = 8


def eigensolve_threads(m: int) -> int:
    """BLAS threads of the eigensolve: 1 for small m, where more do not help, so that its bits are the same on any machine."""
    return 1 if m < THREADED_EIGENSOLVE else min(os.cpu_count() or 1, MAX_EIGENSOLVE_THREADS)


def plan_in_memory(group: FeatureGroup, model: Model, rung: Rung, workers: Workers) -> RunPlan:
    """The plan for kernels whose matrix exists already, in the input or in an earlier result: no data are streamed."""
    layout = group.layout
    axis = check_axis(layout, group.samples_axis)
    n = layout.shape[axis]
    model.check(layout.name, n, layout.n_values // n)
    plan = plan_layout(layout, axis, 1, divide=True)
    dims = Dims.of(layout.dims, axis)
    coordinates, left_out = coordinates_to_copy(group.source, dims, {axis: dims.sample})
    held = held_to_solve(model, rung, n, model.most_components(n, n))
    process = process_of(layout.name, "eigensolve", held, n, workers, coordinates)
    return RunPlan.of(
        plan,
        "columns",
        concurrency=ONE,
        processes=(process,),
        attempts=(Attempt(rung, ONE),),
        eigensolve_threads=eigensolve_threads(n),
        reads=False,
        expected_bytes=process.peak_bytes,
        left_out=left_out,
    )


def process_of(
    name: str, stage: str, arrays: Sequence[HeldArray], n: int, workers: Workers, coordinates: Mapping[str, int] = {}
) -> Process:
    """The process that holds some arrays over n samples in a stage without data."""
    libraries = HeldArray("interpreter and libraries", LIBRARIES_BYTES)
    called, budget = (
        ("client", workers.client_budget or workers.budget) if workers.processes else ("dpca", workers.budget)
    )
    process = Process(called, 1, (*copied_first(coordinates), Footprint(stage, (libraries, *arrays))), budget)
    if process.peak_bytes > budget.bytes:
        raise OverBudgetError(
            f"{name}: {process.peak_stage.name} of {n:,} samples takes {describe_memory(process.peak_bytes)}, but the budget is "
            f"{describe_memory(budget.bytes)}, {budget.origin}",
            f"Run it where {enough(process.peak_bytes)} may be had."
            if budget.lowered
            else f"Set {COMPUTE.memory} to {enough(process.peak_bytes)} or more.",
            key="compute.memory",
        )
    return process
