"""Memory of each process of a run in each stage: names and sizes of arrays, from the modules that create them (`held`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpca.config.model import Model
from dpca.kernels import sweep as kernels
from dpca.numerics import backproject, bi_cross_validation, fourth_moments, preprocess, preview
from dpca.numerics.accumulators import SOLVERS, block_product
from dpca.numerics.division import Division
from dpca.numerics.ladder import BLOCK_KRYLOV, Rung
from dpca.numerics.rotation import Rotating
from dpca.planning.runplan import Footprint, HeldArray, Process, RunPlan, Workers
from dpca.slabs import Plan, extent
from dpca.sources.base import Layout, Source
from dpca.sources.feature_labels import FeatureLabels
from dpca.sources.weights import FeatureWeights
from dpca.store import ledger, outputs
from dpca.system.machine import LIBRARIES_BYTES

TASK_BYTES = 24 * 2**20
"""Memory of a task besides its arrays: the stack of a thread, packing buffers of BLAS, overhead of the allocator."""
COORDINATES = "coordinates"
"""The first stage, in which coordinates are copied or compared."""


@dataclass(frozen=True)
class Footprints:
    """Memory of the processes of a run, for any plan of it."""

    source: Source
    model: Model
    n_components: int
    workers: Workers
    components: bool
    """Whether components are written."""
    keep_gram: bool
    """Whether the Gram matrix is written."""
    coordinates: Mapping[str, int]
    """Bytes that are held to copy each coordinate, by name in words."""
    weights: FeatureWeights | None = None
    """Weights of the features."""
    labels: FeatureLabels | None = None
    """Named groups of features within the input."""
    n_groups: int = 1
    """Number of named groups of all inputs, each with a sum of its own."""
    n_inputs: int = 1
    """Number of inputs side by side."""

    @property
    def n_sums(self) -> int:
        """Number of sums that K is made of, and of those for validation beside them."""
        return self.n_groups + self.model.n_folds if self.n_groups > 1 else max(1, self.model.n_folds)

    def of(self, run: RunPlan, threads: int, rung: Rung) -> tuple[Process, ...]:
        """Memory of every process of a plan in each stage, with one of the solvers that may be tried."""
        if rung.solver == BLOCK_KRYLOV:
            return self._iterated(run, threads, rung)
        m, k, waiting = run.plan.n_kept, self.n_components, run.concurrency.window - run.concurrency.n_tasks
        tasks, matrices = self._tasks(run, rung), 2 if self._counts_pairs else 1
        solver = SOLVERS[rung.solver]
        sums = {
            rung.name: [
                *(HeldArray(name, size) for name, size in solver.held_to_merge(m).items()),
                HeldArray("sums of spans, to be added", 8 * m * m * matrices * self._cells(run.plan), 1 + waiting),
                *([HeldArray("pairs of missing values", 8 * m * m, 2)] if matrices > 1 else []),
                HeldArray("vectors of a preview", preview.held(m)),
            ],
        }
        if run.spans_together > 1:
            sums[rung.name].insert(0, HeldArray("sum of neighbouring spans", 8 * m * m * matrices))
        if self.n_sums > 1:
            sums[rung.name].insert(0, self._of_groups(m))
        for name in ("components", "scores"):
            if name in tasks:
                sums[name] = [
                    HeldArray("vectors and alpha", 2 * 8 * m * k),
                    HeldArray("overlap and projection", 8 * k * (m + k), self.n_inputs + (self.n_inputs > 1) + waiting),
                ]
        if "orthogonalize" in tasks:
            sums["orthogonalize"] = [HeldArray("overlap", 8 * k * k, 1 + waiting)]
        solve = self._solve(run.plan, rung)
        if self.model.rotation is not None:
            rotated = self.model.rotation.n_components or k
            if "fourth moments" in tasks:
                moments = HeldArray("fourth moments of spans", 8 * fourth_moments.n_sums(rotated), 1 + waiting)
                sums["fourth moments"] = [moments]
            turning = [HeldArray("fourth moments, by pairs, and turned", fourth_moments.held_to_solve(rotated))]
            if run.plan.keeps == "features":
                turning.append(HeldArray("components", 3 * 8 * k * m))
            solve = max(solve, turning, key=lambda arrays: sum(array.bytes for array in arrays))
        if self.n_sums > 1:
            solve.append(self._of_groups(m))
        if self.model.n_folds and run.plan.keeps == "samples":
            turns = self.model.design is not None
            solve += [HeldArray(name, size) for name, size in bi_cross_validation.held(m, solver.power, turns).items()]
        if self.labels is not None:
            held = HeldArray("labels of features", self.labels.nbytes)
            for arrays in (*sums.values(), solve):
                arrays.append(held)
        return arranged(tasks, sums, solve, self.workers, threads, self.coordinates)

    def _iterated(self, run: RunPlan, threads: int, rung: Rung) -> tuple[Process, ...]:
        """Footprint of block Krylov: of each pass there are two m x l arrays, and none of m x m."""
        m, k, waiting = run.plan.n_kept, self.n_components, run.concurrency.window - run.concurrency.n_tasks
        plan, settings, dtype = run.plan, self.model.iteration, rung.dtype
        columns = settings.columns(k, m)
        space = HeldArray("space, and its products", 2 * 8 * m * columns, settings.max_passes)
        block = HeldArray("block of vectors", 2 * 8 * m * columns)
        summed = [
            space,
            block,
            HeldArray("product, and its preview", 5 * 8 * m * columns),
            HeldArray("products of spans, to be added", 8 * m * columns * self.n_inputs, 1 + waiting),
        ]
        first, later = rung.name, f"{rung.name} passes"
        sums = {first: summed, later: summed}
        reader, panels = held_to_read(run, self.source), preprocess.held(plan, dtype)
        if self.weights is not None:
            slab = [cut.step for cut in plan.slabs] if plan.keeps == "samples" else plan.feature_shape
            reader = {**reader, **self.weights.held(slab)}
        if self.model.regression is not None:
            reader |= self.model.regression.held(plan)
        copy = run.only.copy
        tasks = {} if copy is None else {"copy": copy.held_to_write(self.source)}
        found = {"means and squares of a panel and a span": 2 * 8 * 4 * m}
        if plan.keeps == "samples":
            found = {
                "means, scales and weights of a tile": 3 * 8 * (plan.tile_width + plan.slab_width),
                "tile being written": outputs.held_to_write(8 * plan.tile_width),
            }
        elif reads_means(plan, self.model, self.source.layout):
            tasks["means"] = {**reader, **panels, **found}
        products = block_product.held(m, columns, max(plan.slab_width, plan.panel_width), dtype)
        multiplied = {**reader, **panels, **products, **found}
        tasks[first] = {**multiplied, "panel multiplied": 2 * 8 * m * columns}
        tasks[later] = multiplied
        if 0 < plan.samples_axis < len(plan.shape) - 1:
            values = m * plan.slab_width * self.source.layout.dtype.itemsize
            tasks[later] = {**multiplied, "slab, with its sides as two axes": values}
        if second_pass(plan, self.components) is not None:
            name, sweep = ("components", "orthogonalize") if plan.keeps == "samples" else ("scores", "signs")
            working = dtype if plan.keeps == "samples" else np.dtype(np.float64)
            tasks |= _to_stream(plan, name, sweep, k, working, reader)
            sums[name] = [
                space,
                HeldArray("vectors and alpha", 3 * 8 * m * k),
                HeldArray("overlap and projection", 8 * k * (m + k), self.n_inputs + (self.n_inputs > 1) + waiting),
            ]
            sums[sweep] = [space, HeldArray("overlap", 8 * k * k, 1 + waiting)]
        for name, held in tasks.items():
            if name != "copy":
                result = 8 * m * (columns if name in (first, later) else k)
                held["part being written to the ledger"] = ledger.held_to_keep(result)
        solve = [space, block, HeldArray("Ritz vectors, their products, and LAPACK's copies", 8 * 8 * m * columns)]
        if self.model.rotation is not None:
            rotated = self.model.rotation.n_components or k
            tasks |= _to_rotate(plan, self.model.rotation, k, dtype)
            if "fourth moments" in tasks:
                sums["fourth moments"] = [
                    HeldArray("fourth moments of spans", 8 * fourth_moments.n_sums(rotated), 1 + waiting)
                ]
            solve.append(HeldArray("fourth moments, by pairs, and turned", fourth_moments.held_to_solve(rotated)))
        return arranged(tasks, sums, solve, self.workers, threads, self.coordinates)

    @property
    def _counts_pairs(self) -> bool:
        """Whether features are counted that two samples have in common."""
        return self.model.rules.missing == "pairwise"

    def _of_groups(self, m: int) -> HeldArray:
        return HeldArray("sums of groups of features, one for each", 8 * m * m, self.n_sums)

    def _division(self, plan: Plan) -> Division:
        return Division.of(plan, 0, self.labels, self.model.n_folds)

    def _cells(self, plan: Plan) -> int:
        """The most sums that a task adds up."""
        return self._division(plan).most_cells(plan) if plan.keeps == "samples" else 1

    def _held_apart(self, plan: Plan) -> dict[str, int]:
        """Memory to have the features of a group beside each other."""
        if not self._division(plan).scattered:
            return {}
        values = plan.n_kept * plan.slab_width * self.source.layout.dtype.itemsize
        numbers = 4 * 8 * plan.slab_width + (0 if self.labels is None else self.labels.nbytes)
        return {"features of a slab, by group": 2 * values, "their groups": numbers}

    def _tasks(self, run: RunPlan, rung: Rung) -> dict[str, dict[str, int]]:
        """Memory of a task of each stage."""
        plan, m = run.plan, run.plan.n_kept
        reader, panels = held_to_read(run, self.source), preprocess.held(plan, rung.dtype)
        regression = self.model.regression
        if regression is not None:
            reader |= regression.held(plan)
        if self.weights is not None:
            slab = [cut.step for cut in plan.slabs] if plan.keeps == "samples" else plan.feature_shape
            reader = {**reader, **self.weights.held(slab)}
        cells, k = self._cells(plan), self.n_components
        first = {
            **reader,
            **panels,
            **{name: size * cells for name, size in SOLVERS[rung.solver].held(m, rung.dtype).items()},
        }
        if plan.keeps == "samples":
            first |= self._held_apart(plan)
        if self._counts_pairs:
            pairs = (12 * cells + 4) * m * m  # the sums, those of the span in hand, and one product
            first["pairs of missing values, and where a panel has them"] = pairs + 6 * m * plan.panel_width
        if run.spans_together > 1 and self.workers.processes:
            # Where a task of a worker adds spans up, one of them is in the place of the span in hand.
            first["sum of neighbouring spans"] = 8 * m * m * (2 if self._counts_pairs else 1)
        copy = run.only.copy
        tasks = {} if copy is None else {"copy": copy.held_to_write(self.source)}
        if plan.keeps == "samples":
            tasks[rung.name] = {
                **first,
                "means, scales and weights of a tile": 3 * 8 * (plan.tile_width + plan.slab_width),
                "tile being written": outputs.held_to_write(
                    8 * plan.tile_width * (1 if regression is None else regression.n_regressors)
                ),
            }
            if self.components:
                tasks |= _to_stream(plan, "components", "orthogonalize", k, rung.dtype, reader)
        else:
            counted = 2 * 8 * 4 * m  # means, squares and corrections of a panel, a span and the total
            if reads_means(plan, self.model, self.source.layout):
                tasks["means"] = {**reader, **panels, "means of a panel and a span": counted}
            tasks[rung.name] = {**first, "means and squares of a panel and a span": counted}
            tasks |= _to_stream(plan, "scores", "signs", k, np.dtype(np.float64), reader)
        rotation = self.model.rotation
        turned = {} if rotation is None else _to_rotate(plan, rotation, k, rung.dtype)
        for name, held in tasks.items():
            if name != "copy":
                result = 8 * m * m * cells if name == rung.name else 8 * m * k
                held["part being written to the ledger"] = ledger.held_to_keep(result)
        return tasks | turned

    def _solve(self, plan: Plan, rung: Rung) -> list[HeldArray]:
        """Memory of the eigensolve, or of the writing of the Gram matrix where that takes more."""
        m = plan.n_kept
        solve = held_to_solve(self.model, rung, m, self.n_components)
        pairs = [HeldArray("pairs of missing values", 8 * m * m, self.n_sums)] if self._counts_pairs else []
        if not (self.keep_gram and plan.keeps == "samples"):
            return [*solve, *pairs]
        written = [HeldArray("matrix", 8 * m * m), HeldArray("being written", outputs.held_to_write(8 * m * m)), *pairs]
        if pairs:
            written.append(HeldArray("features that two samples have", 8 * m * m, 2))
        solve = [*solve, *pairs]
        return max(solve, written, key=lambda arrays: sum(array.bytes for array in arrays))


def reads_means(plan: Plan, model: Model, layout: Layout) -> bool:
    """Whether a first pass finds the means that fill missing values: samples are streamed, and values may be missing."""
    return plan.keeps == "features" and model.rules.missing != "error" and layout.may_miss


def second_pass(plan: Plan, components: bool) -> str | None:
    """Name of the second pass, which finds the vectors of the streamed side; None without one. Scores are always found."""
    if plan.keeps == "features":
        return "scores"
    return "components" if components else None


def held_to_solve(model: Model, rung: Rung, m: int, k: int) -> list[HeldArray]:
    """Memory of the eigensolve; for kernels, including the Gram matrix that they are computed from."""
    held = SOLVERS[rung.solver].held_to_finish(m, k)
    if model.kernels:
        held["kernel matrix"] = 8 * m * m
        held |= kernels.held(m, k, model.kernels)
    return [HeldArray(name, size) for name, size in held.items()]


def held_to_read(run: RunPlan, source: Source) -> dict[str, int]:
    """Memory of a reader for the largest slab of an input."""
    plan, copy = run.only.plan, run.only.copy
    slab = extent(plan.region(tuple(slice(0, cut.step) for cut in plan.slabs)))
    return source.held(slab) if copy is None else copy.held_to_read(slab)


def arranged(
    tasks: dict[str, dict[str, int]],
    sums: dict[str, list[HeldArray]],
    solve: list[HeldArray],
    workers: Workers,
    threads: int,
    coordinates: Mapping[str, int],
) -> tuple[Process, ...]:
    """Memory of each process: first coordinates, then tasks with their arrays and the sums over spans, and the eigensolve."""
    libraries, first = HeldArray("interpreter and libraries", LIBRARIES_BYTES), copied_first(coordinates)

    def of_tasks(stage: str) -> list[HeldArray]:
        return [
            HeldArray("stack and BLAS buffers of a task", TASK_BYTES, threads),
            *(HeldArray(name, size, threads) for name, size in tasks[stage].items()),
        ]

    eigensolve = [Footprint("eigensolve", (libraries, *solve))] if solve else []
    if workers.processes == 0:
        stages = [Footprint(name, (libraries, *sums.get(name, ()), *of_tasks(name))) for name in tasks]
        return (Process("dpca", 1, (*first, *stages, *eigensolve), workers.budget),)
    # On a cluster the client holds the sums and the spans that wait to be added; workers hold the rest.
    client = [Footprint(name, (libraries, *arrays, arrays[-1])) for name, arrays in sums.items()]
    worker = [Footprint(name, (libraries, *of_tasks(name))) for name in tasks]
    return (
        Process("client", 1, (*first, *client, *eigensolve), workers.client_budget or workers.budget),
        Process("worker", workers.processes, tuple(worker), workers.budget),
    )


def copied_first(coordinates: Mapping[str, int]) -> list[Footprint]:
    """The stage in which coordinates are copied or compared one by one: its peak is the largest of them."""
    if not coordinates:
        return []
    name = max(coordinates, key=coordinates.__getitem__)
    libraries = HeldArray("interpreter and libraries", LIBRARIES_BYTES)
    # The stacks of zarr's threads are estimated as those of a task.
    return [
        Footprint(
            COORDINATES, (libraries, HeldArray("stacks of threads", TASK_BYTES), HeldArray(name, coordinates[name]))
        )
    ]


def _to_rotate(plan: Plan, rotation: Rotating, k: int, dtype: np.dtype[Any]) -> dict[str, dict[str, int]]:
    """Memory of the tasks of the sweeps of a rotation."""
    if plan.keeps == "features":
        tile = 8 * k * plan.tile_width
        return {"rotated scores": {"scores of a tile": 3 * tile, "tile being written": outputs.held_to_write(tile)}}
    rotated, tile = rotation.n_components or k, k * plan.tile_width * dtype.itemsize
    moments = fourth_moments.held(rotated, plan.panel_width)
    # As read, and as zarr's threads hold it.
    tasks = {"fourth moments": {"components of a tile": 2 * tile, **moments}}
    if rotation.kind == "promax":
        panel = 8 * rotated * plan.panel_width
        tasks["promax target"] = {"components of a tile": 2 * tile, "loadings of a panel": 8 * panel}
    tasks["rotated components"] = {
        "components of a tile": 3 * tile,
        "components of a panel": 3 * 8 * rotated * plan.panel_width,
        "tile being written": outputs.held_to_write(tile),
    }
    for name, held in tasks.items():
        sums = fourth_moments.n_sums(rotated) if name == "fourth moments" else rotated**2
        held["part being written to the ledger"] = ledger.held_to_keep(8 * sums)
    return tasks


def _to_stream(
    plan: Plan, name: str, sweep: str, k: int, dtype: np.dtype[Any], reader: dict[str, int]
) -> dict[str, dict[str, int]]:
    """Memory of the tasks of the second pass, and of the sweep over its result."""
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
