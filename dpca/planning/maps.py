"""The plan of a pass that makes maps of samples' coefficients, for derived analyses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import Any

import numpy as np

from dpca.numerics import backproject, preprocess
from dpca.numerics.ladder import Rung
from dpca.planning.memory import held_to_read
from dpca.planning.processes import arranged
from dpca.planning.runplan import UNPLANNED, Attempt, HeldArray, MapColumns, RunPlan, Scratch, Workers
from dpca.planning.search import Processes, check_sharing, first_that_fits, joined_processes, readings_of
from dpca.sources.base import Source
from dpca.sources.groups import FeatureGroup, Groups
from dpca.store.ledger import held_to_keep
from dpca.store.outputs import held_to_write


@dataclass(frozen=True)
class MapsJob:
    """Maps X' C of samples' coefficients C, from one pass over the data: `dpca derive` and maps of `open_gram` carry one."""

    groups: Groups
    """The data, side by side."""
    columns: MapColumns
    dtype: np.dtype[Any]
    """Type of the products."""
    stored: np.dtype[Any]
    """Type of the maps."""
    n_regressors: int
    """Most coefficients of regressors, and scales of groups of samples, that a run has of each feature."""
    beside: tuple[HeldArray, ...]
    """Arrays that this process holds meanwhile."""
    scratch: Scratch
    """Place for copies of the data."""
    run_plan: RunPlan = UNPLANNED

    def planned(self, workers: Workers) -> MapsJob:
        """This job with a plan; reads no values."""
        forecast = partial(self._forecast, workers=workers)
        found = []
        for group in self.groups:
            alone = partial(forecast, of=(group,))
            possible = readings_of(group.layout, group.samples_axis, "samples", self.columns.stored, workers.budget)
            found.append(first_that_fits(group.layout, possible, workers, self.scratch, alone).only)
        layout = self.groups[0].layout
        run = first_that_fits(layout, [RunPlan(tuple(found))], workers, self.scratch, forecast)
        for number, group in enumerate(self.groups):
            check_sharing(group.source, run.of_input(number))
        attempt = Attempt(Rung("gram_eigh", self.dtype), run.concurrency)
        return replace(self, run_plan=replace(run, attempts=(attempt,), expected_bytes=run.tightest.peak_bytes))

    def _forecast(
        self, run: RunPlan, threads: int, workers: Workers, of: Sequence[FeatureGroup] | None = None
    ) -> Processes:
        """Memory of each process, for some of the inputs; None for all."""
        groups, n, columns = self.groups if of is None else of, self.groups[0].n_samples, self.columns
        waiting = run.concurrency.window - run.concurrency.n_tasks
        n_bytes = 8 * columns.maps * (n + columns.maps)
        sums = [*self.beside, HeldArray("overlap and projection of maps", n_bytes, 1 + len(groups) + waiting)]
        held = [
            arranged(self._tasks(run.of_input(number), group.source), {"components": sums}, [], workers, threads, {})
            for number, group in enumerate(groups)
        ]
        return reduce(joined_processes, held)

    def _tasks(self, run: RunPlan, source: Source) -> dict[str, dict[str, int]]:
        """Memory of the tasks of the pass."""
        plan, copy, columns = run.plan, run.only.copy, self.columns
        dtype, stored, p = self.dtype, self.stored, self.n_regressors
        n, q, tile = plan.n_kept, columns.maps, columns.stored * plan.tile_width * stored.itemsize
        together = min(columns.deviations, backproject.TOGETHER)
        tasks = {} if copy is None else {"copy": copy.held_to_write(source)}
        tasks["components"] = {
            **held_to_read(run, source),
            **preprocess.held(plan, dtype),
            "means and scales of a tile": 2 * 8 * (plan.tile_width + 2 * plan.slab_width),
            "coefficients of regressors, and a fit": 8 * p * (3 * plan.tile_width + plan.slab_width)
            + 8 * bool(p) * n * plan.block_width,
            "coefficients": n * (q + columns.deviations) * dtype.itemsize,
            "overlap and projection of a span": 8 * q * (q + n),
            "maps of a slab": columns.stored * plan.slab_width * stored.itemsize,
            "products of a panel": q * (q + n + 2 * plan.panel_width) * dtype.itemsize,
            "deviations of a panel": (2 * together + columns.errors + 2 * columns.scaled) * plan.panel_width * 8,
            "maps of a tile, as columns and as they are stored": 2 * tile,
            "tile being written": held_to_write(tile),
            "part being written to the ledger": held_to_keep(8 * q * (q + n)),
        }
        return tasks
