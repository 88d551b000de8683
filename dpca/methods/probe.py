"""A short measurement of what the steps of a run cost on this machine: reading, products, back-projection, writing.

Each task of the probe reads two slabs that the run will read, does the work of both passes with a panel, and
times each step; all tasks run at the same time, as in the run. The probe reads a few slabs, and writes 16 MB,
which it removes; it takes the memory that the run would take.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dpca.errors import writing
from dpca.execution.progress import Progress
from dpca.execution.stage import Executor, Stage, Work
from dpca.genotypes.dosages import COPIES
from dpca.methods.passes import Pass
from dpca.methods.spans import product_with
from dpca.numerics.accumulators import gram, nothing
from dpca.numerics.accumulators.block_product import Product
from dpca.numerics.backproject import BackprojectionPartial
from dpca.numerics.known_panels import KnownRows
from dpca.numerics.ladder import BLOCK_KRYLOV
from dpca.numerics.panels import Means, Rules, SlabPanel
from dpca.planning.cuts import plan_layout
from dpca.planning.forecast import Rates
from dpca.planning.job import Job
from dpca.planning.runplan import Concurrency, RunPlan
from dpca.planning.steps import EXPECTED_PASSES
from dpca.slabs import Plan, split
from dpca.sources import Source
from dpca.sources.base import Layout
from dpca.system.blas import blas_threads
from dpca.types import F64

MAX_TASKS = 16
MAX_CHUNKS = 1024
WRITTEN_BYTES = 16 * 2**20
EIGENSOLVE_SAMPLES = 600
SAMPLE_ROWS = 20_000


@dataclass(frozen=True)
class ProbeTask(Work):
    """Settings that all tasks of the probe share."""

    work: Pass
    run_plan: RunPlan
    looks: Plan
    """The plan of the run, or one with narrower slabs where a slab has so many chunks that to read it takes long."""
    n_components: int
    n_tasks: int
    columns: int | None = None
    """Columns of the block that block Krylov multiplies with; None for other solvers."""

    @property
    def n_parts(self) -> int:
        return self.n_tasks

    @property
    def source(self) -> Source:
        return self.work.source

    def part(self, number: int) -> tuple[Self, int]:
        # The bands of a copy lie apart; its source is in files, or is the whole graph of a Dask array.
        if self.run_plan.copies:
            return self, number
        span = replace(self.work, plan=self.looks).region(self.span(number))
        return replace(self, work=replace(self.work, source=self.source.restrict(span))), number

    def slabs(self, number: int) -> Iterator[tuple[slice, ...]]:
        """Two regions to read one after the other; twice the same where there is only one."""
        copy = self.run_plan.only.copy
        if copy is not None:
            band = number * copy.n_units // self.n_parts
            return map(copy.region, (band, min(band + 1, copy.n_units - 1)))
        plan = self.looks
        slabs = (plan.region(slab) for tile in plan.tiles_of(self.span(number)) for slab in plan.slabs_of(tile))
        first = next(slabs)
        return iter((first, next(slabs, first)))

    def span(self, number: int) -> int:
        """The span that a task of the probe reads from."""
        return number * self.looks.n_spans // self.n_parts


def probe(job: Job, executor: Executor, output: Path) -> Rates:
    """Measure the speed of each step of a job with one input.

    Parameters
    ----------
    executor : where it is measured
    output : where the result will go
    """
    (group,), model, run_plan = job.groups, job.model, job.run_plan
    plan, layout = run_plan.plan, group.layout
    looks, slab_bytes = plan, plan.slab_width * plan.n_kept * layout.dtype.itemsize
    if run_plan.only.reading == "columns" and layout.chunked and slab_bytes > MAX_CHUNKS * layout.chunk_bytes:
        looks = plan_layout(layout, plan.samples_axis, 1, plan.keeps, slab_bytes=MAX_CHUNKS * layout.chunk_bytes)
    rung = run_plan.attempts[0].rung
    work = Pass(
        group.source,
        plan,
        model.rules,
        rung.dtype,
        rung.solver,
        regression=model.regression,
        n_known=model.n_known(rung),
    )
    n_tasks = max(1, min(run_plan.concurrency.n_tasks, MAX_TASKS, plan.n_spans))
    k = model.most_components(plan.n_samples, plan.n_features) if job.second_pass else 0
    columns = None
    if rung.solver == BLOCK_KRYLOV:
        most = model.most_components(plan.n_samples, plan.n_features)
        columns = model.iteration.columns(most, min(plan.n_samples, plan.n_features))
    stage = Stage(
        name="probe",
        task=probe_task,
        work=ProbeTask(work, run_plan, looks, k, n_tasks, columns),
        empty=Rates(0.0, 0.0, 0.0, 0.0, 0.0, 0.0),
        merge=Rates.merge,
        concurrency=Concurrency(n_tasks, n_tasks),
    )
    rates = executor.run(stage, Progress())
    place = Path(job.scratch.path).parent if run_plan.copies else output
    if columns is None:
        solving = _eigensolve_seconds(plan.n_kept, run_plan.eigensolve_threads)
    else:
        solving = _between_passes_seconds(plan.n_kept, columns, run_plan.eigensolve_threads)
    return replace(rates, write=_write_seconds(place), eigensolve=solving)


def probe_task(task: ProbeTask, number: int, report: Callable[[int], None]) -> Rates:
    """Time the steps in one task."""
    work, read = task.work, 0.0
    with work.source.open() as reader:
        for region in task.slabs(number):  # only the second counts: at the first, memory and libraries are cold
            began = time.perf_counter()
            n_bytes = reader.read(region).nbytes
            read = (time.perf_counter() - began) / max(1, n_bytes)
            report(n_bytes)
    # The speed of the other steps does not depend on values, so small integers are used.
    plan = work.plan
    box = next(split([cut.step for cut in plan.slabs], plan.panel_width))[0]
    shape = tuple(piece.stop - piece.start for piece in plan.region(box))
    raw = np.resize(_values(work.source.layout, work.rules), shape)
    kept_samples, m = plan.keeps == "samples", plan.n_kept
    columns, zero_means = work.random_columns, Means(np.zeros(m), np.zeros(m))
    standardizer = (
        work.feature_panels(rounded=True, columns=columns)
        if kept_samples
        else work.sample_panels(columns=columns, fill=zero_means)
    )
    block = None if task.columns is None else np.ones((m, task.columns))
    solver = (
        nothing(work.solver, plan, work.rules, columns, work.n_known)
        if block is None
        else product_with(block, plan, work.rules, columns)
    )
    measured = BackprojectionPartial.empty(m, task.n_components, columns)
    alpha = np.ones((m, task.n_components), work.working_dtype)

    def per_value(step: Callable[[Iterator[SlabPanel]], object]) -> float:
        began = time.perf_counter()
        step(standardizer.panels(raw))
        return (time.perf_counter() - began) / raw.size

    def accumulate(panels: Iterator[SlabPanel]) -> None:
        for _ in solver.of_slab(panels):
            pass
        solver.close()

    def project_back(panels: Iterator[SlabPanel]) -> None:
        for panel in panels:
            measured.add(panel.matrix, alpha)

    per_value(accumulate)  # once unmeasured: memory is slow when it is used for the first time
    product = per_value(accumulate)
    backprojection = per_value(project_back) if task.n_components else 0.0
    again = 0.0 if block is None else _seconds_of_later(work, block, raw)
    return Rates(read, product, backprojection, 0.0, 0.0, again)


def _values(layout: Layout, rules: Rules) -> NDArray[Any]:
    """Values as they are stored, in its dtype, none of which is missing or refused: dosages where these are asked for.

    There are about a hundred, in a period that few shapes have, so that features vary.
    """
    low, high = layout.valid_range
    values = np.arange(101) + min(max(0.0, low), high)
    if rules.convention is not None:
        factor, offset = layout.packing
        values = (np.arange(101) % (COPIES + 1) - offset) / factor
    values = np.clip(values, low, high).astype(layout.dtype)
    present: NDArray[Any] = values[~layout.marked(values)]
    return present if present.size else values


def _seconds_of_later(work: Pass, block: F64, raw: NDArray[Any]) -> float:
    """Seconds per value of a later pass of block Krylov, where means and factors are all that it needs."""
    own = block.astype(work.working_dtype)
    found, about = Product.empty(len(block), block.shape[1]), np.zeros(raw.size // len(block))
    seconds = 0.0
    for _ in range(2):  # once unmeasured
        began = time.perf_counter()
        mean = about if work.plan.keeps == "samples" else np.zeros(len(block))
        rows = KnownRows(raw, work.plan, mean, work.working_dtype, work.source.layout.missing_values)
        found.add(own, rows.width, rows)
        seconds = time.perf_counter() - began
    return seconds / raw.size


def _write_seconds(place: Path) -> float:
    """Seconds to write a byte to the disk of a directory, or of its nearest parent that exists."""
    while not place.exists():
        place = place.absolute().parent
    block = os.urandom(2**20)
    began = time.perf_counter()
    with writing(str(place)), tempfile.TemporaryFile(dir=place) as file:
        for _ in range(WRITTEN_BYTES // len(block)):
            file.write(block)
        file.flush()
        os.fsync(file.fileno())
    return (time.perf_counter() - began) / WRITTEN_BYTES


def _between_passes_seconds(m: int, columns: int, threads: int) -> float:
    """Seconds of what block Krylov does in memory in so many passes as are expected, extrapolated from fewer rows."""
    rows = min(m, SAMPLE_ROWS)
    block = np.random.default_rng(0).standard_normal((rows, columns))
    with blas_threads(threads):
        began = time.perf_counter()
        np.linalg.qr(block)
        block.T @ block
        seconds = time.perf_counter() - began
    # Each block is made orthogonal to those before, twice, and Ritz vectors are made of all of them.
    return seconds * m / rows * 4 * EXPECTED_PASSES**2


def _eigensolve_seconds(m: int, threads: int) -> float:
    """Seconds of an m x m eigensolve, extrapolated from a smaller one by the cube of the ratio of their sizes.

    From `gram.LARGE` on, where only some vectors are computed, half of that (measured).
    """
    n = min(m, EIGENSOLVE_SAMPLES)
    matrix = np.random.default_rng(0).standard_normal((n, n))
    matrix += matrix.T
    with blas_threads(threads):
        began = time.perf_counter()
        np.linalg.eigh(matrix)
        return (time.perf_counter() - began) * (m / n) ** 3 / (1 if m < gram.LARGE else 2)
