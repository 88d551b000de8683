"""Memory of a run, stage by stage: names and sizes of arrays, from the modules that create them (`held`).

What all solvers share is here; a solver with an n x n matrix is in `matrix_memory`, block Krylov in `krylov_memory`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpca.config.model import Model
from dpca.numerics import backproject, fourth_moments, preprocess, sparse_lines
from dpca.numerics.ladder import Rung
from dpca.numerics.rotation import Rotating
from dpca.numerics.sketch import COLUMNS
from dpca.planning.processes import Sums, Tasks
from dpca.planning.runplan import HeldArray, RunPlan, Workers
from dpca.slabs import Plan, extent
from dpca.sources.base import Layout, Source
from dpca.sources.feature_labels import FeatureLabels
from dpca.sources.weights import FeatureWeights
from dpca.store import ledger, outputs


@dataclass(frozen=True)
class Needs:
    """Facts of a run that its memory depends on, whichever its plan is."""

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
        n_folds = self.model.n_folds
        return self.n_groups + n_folds if self.n_groups > 1 else max(1, n_folds)


class SolverMemory:
    """Memory of the stages of a run with one of the solvers that may be tried."""

    def __init__(self, needs: Needs, run: RunPlan, rung: Rung) -> None:
        self.needs, self.run, self.rung = needs, run, rung
        self.model, self.plan = needs.model, run.plan
        self.m, self.k = run.plan.n_kept, needs.n_components

    @property
    def waiting(self) -> int:
        """The most results of tasks that wait to be added up."""
        return self.run.concurrency.window - self.run.concurrency.n_tasks

    def reader(self) -> dict[str, int]:
        """Arrays of a task that reads a slab, its weights and regressors included."""
        reader = held_to_read(self.run, self.needs.source)
        if self.model.regression is not None:
            reader |= self.model.regression.held(self.plan, self.model.rules.by_group)
        if self.needs.weights is not None:
            slab = [cut.step for cut in self.plan.slabs] if self.plan.keeps == "samples" else self.plan.feature_shape
            reader = {**reader, **self.needs.weights.held(slab)}
        copy = self.run.only.copy
        lines_axis = self.needs.source.lines_axis if copy is None else copy.lines_axis
        if lines_axis in self.plan.streamed_axes:
            reader |= sparse_lines.held(self.m, self.plan.slab_width, self._vectors + COLUMNS)
        return reader

    @property
    def _vectors(self) -> int:
        """The most vectors that a slab is multiplied with."""
        return self.k

    def copying(self) -> Tasks:
        """The tasks of a copy in scratch, if there is one."""
        copy = self.run.only.copy
        return {} if copy is None else {"copy": copy.held_to_write(self.needs.source)}

    def in_ledger(self, tasks: Tasks, results: Mapping[str, int]) -> None:
        """Add to the tasks what writing their results takes.

        Parameters
        ----------
        results : bytes of a task's result, by stage; (m, n_components) in double precision where a stage is not named
        """
        for name, held in tasks.items():
            if name != "copy":
                result = results.get(name, 8 * self.m * self.k)
                held["part being written to the ledger"] = ledger.held_to_keep(result)

    def overlap(self) -> HeldArray:
        """The sums of a second pass."""
        n_inputs = self.needs.n_inputs
        count = n_inputs + (n_inputs > 1) + self.waiting
        return HeldArray("overlap and projection", 8 * self.k * (self.m + self.k), count)

    def swept(self) -> HeldArray:
        """The sums of a sweep over what a second pass has written."""
        return HeldArray("overlap", 8 * self.k * self.k, 1 + self.waiting)

    def rotating(self, rotation: Rotating, tasks: Tasks, sums: Sums) -> HeldArray:
        """Add the stages of a rotation to tasks and sums; returns what turning holds."""
        rotated = rotation.n_components or self.k
        tasks |= _to_rotate(self.plan, rotation, self.k, self.rung.dtype)
        if "fourth moments" in tasks:
            moments = HeldArray("fourth moments of spans", 8 * fourth_moments.n_sums(rotated), 1 + self.waiting)
            sums["fourth moments"] = [moments]
        return HeldArray("fourth moments, by pairs, and turned", fourth_moments.held_to_solve(rotated))


def reads_means(plan: Plan, model: Model, layout: Layout) -> bool:
    """Whether a first pass finds the means that fill missing values: samples are streamed, and values may be missing."""
    return plan.keeps == "features" and model.rules.missing != "error" and layout.may_miss


def second_pass(plan: Plan, components: bool) -> str | None:
    """Name of the second pass, which finds the vectors of the streamed side; None without one. Scores are always found."""
    if plan.keeps == "features":
        return "scores"
    return "components" if components else None


def held_to_read(run: RunPlan, source: Source) -> dict[str, int]:
    """Memory of a reader for the largest slab of an input."""
    plan, copy = run.only.plan, run.only.copy
    slab = extent(plan.region(tuple(slice(0, cut.step) for cut in plan.slabs)))
    return source.held(slab) if copy is None else copy.held_to_read(slab)


def _to_rotate(plan: Plan, rotation: Rotating, k: int, dtype: np.dtype[Any]) -> Tasks:
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


def held_to_stream(
    plan: Plan, name: str, sweep: str, k: int, dtype: np.dtype[Any], reader: dict[str, int], unit: int = 0
) -> Tasks:
    """Memory of the tasks of the second pass, and of the sweep over its result; `unit` is that of an inner product."""
    tile = (1 + (unit > 0)) * k * plan.tile_width * dtype.itemsize
    if unit:
        reader = {**reader, "components of a slab, and in the inner product": 4 * 8 * k * plan.slab_width}
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
