"""The plan of a pass that makes maps of samples' coefficients, for derived analyses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce
from typing import Any

import numpy as np

from dpca.numerics import backproject, preprocess
from dpca.numerics.ladder import Rung
from dpca.planning.footprint import arranged, held_to_read
from dpca.planning.runplan import Attempt, HeldArray, MapColumns, RunPlan, Scratch, Workers
from dpca.planning.search import Processes, check_sharing, first_that_fits, joined_processes, readings_of
from dpca.sources.base import Source
from dpca.sources.groups import FeatureGroup, Groups
from dpca.store.ledger import held_to_keep
from dpca.store.outputs import held_to_write


def plan_maps(
    groups: Groups,
    columns: MapColumns,
    dtype: np.dtype[Any],
    stored: np.dtype[Any],
    *,
    workers: Workers,
    scratch: Scratch,
    beside: Sequence[HeldArray] = (),
    n_regressors: int = 0,
    coordinates: Mapping[str, int] = {},
) -> RunPlan:
    """The plan of one pass that makes maps X' C of samples' coefficients C; reads no values.

    Parameters
    ----------
    groups : the data, side by side
    dtype, stored : of the products, and of the maps
    workers, scratch : as for `plan_run`
    beside : what this process holds meanwhile
    n_regressors : how many regressors the runs have subtracted, at most
    coordinates : as in `dpca.methods.projection.plan_projection`
    """
    n = groups[0].n_samples

    def forecast(run: RunPlan, threads: int, of: Sequence[FeatureGroup] = groups) -> Processes:
        waiting = run.concurrency.window - run.concurrency.n_tasks
        sums = [
            *beside,
            HeldArray("overlap and projection of maps", 8 * columns.maps * (n + columns.maps), 1 + len(of) + waiting),
        ]
        held = [
            arranged(
                _maps_tasks(run.of_input(number), group.source, columns, dtype, stored, n_regressors),
                {"components": sums},
                [],
                workers,
                threads,
                coordinates,
            )
            for number, group in enumerate(of)
        ]
        return reduce(joined_processes, held)

    found = []
    for group in groups:
        alone = partial(forecast, of=(group,))
        possible = readings_of(group.layout, group.samples_axis, "samples", columns.stored, workers.budget)
        found.append(first_that_fits(group.layout, possible, workers, scratch, alone).only)
    run = first_that_fits(groups[0].layout, [RunPlan(tuple(found))], workers, scratch, forecast)
    for number, group in enumerate(groups):
        check_sharing(group.source, run.of_input(number))
    rung = Rung("gram_eigh", dtype)
    return replace(run, attempts=(Attempt(rung, run.concurrency),), expected_bytes=run.tightest.peak_bytes)


def _maps_tasks(
    run: RunPlan, source: Source, columns: MapColumns, dtype: np.dtype[Any], stored: np.dtype[Any], p: int
) -> dict[str, dict[str, int]]:
    """Memory of the tasks of the pass."""
    plan, copy = run.plan, run.only.copy
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
