"""The use of a kernel fit with its training data: planned, then run.

New samples are projected by their inner products with the training samples, and both stream by together;
pre-images are linear combinations of the training samples, which stream by once more.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import zarr

from dpca.errors import writing
from dpca.execution.stage import Runner, Stage
from dpca.kernels.inner import Inner
from dpca.methods.against import PREIMAGE, Against, Combinations, Cross, cross_span, preimage_span
from dpca.methods.applying import Projection, ScoredSamples
from dpca.methods.projection import SampleGroups
from dpca.numerics import preprocess
from dpca.numerics.panels import Rules
from dpca.planning.cuts import plan_layout
from dpca.planning.processes import arranged
from dpca.planning.runplan import HeldArray, Process, RunPlan, Scratch, Workers
from dpca.planning.search import SLAB_SHIFTS, check_sharing, first_that_fits
from dpca.slabs import SLAB_BYTES, Cuts, Plan, block_width, common_chunks, extent
from dpca.sources import Source
from dpca.sources.base import Layout
from dpca.sources.missing import EVERY
from dpca.store.fitted import Fitted
from dpca.store.ledger import held_to_keep
from dpca.store.outputs import CHECKED, Outputs, held_to_write
from dpca.store.synced import SyncedStore
from dpca.types import F64

GROUP_SAMPLES = 2**13
"""Most new samples or pre-images in a group: the training data are read once for each group."""
NO_SCRATCH = Scratch("", 0)


@dataclass(frozen=True)
class TrainingPlan:
    """A plan of the training data, and one of other samples with the same cuts of features."""

    run_plan: RunPlan
    new: Plan


def plan_cross(
    training: Source,
    axis: int,
    new: Source,
    new_axis: int,
    dtype: np.dtype[Any],
    workers: Workers,
    coordinates: Mapping[str, int] = {},
    n_regressors: int = 0,
) -> TrainingPlan:
    """The plan of inner products of new samples with the samples of a fit.

    Slabs end where chunks of both end, so that each chunk is decoded once; if such slabs do not fit the memory, chunks
    of the training data decide, and chunks of the new samples may be decoded more than once.

    Parameters
    ----------
    training, axis : the training data, and their samples axis
    new, new_axis : new samples with the same features
    dtype : of the products
    coordinates : as in `dpca.methods.projection.plan_projection`
    n_regressors : how many coefficients of regressors, and scales of groups of samples, each feature has (`Regressed.n_rows`)
    """
    n = training.layout.shape[axis]

    def forecast(run_plan: RunPlan, threads: int) -> tuple[Process, ...]:
        assert run_plan.groups is not None
        m = run_plan.groups.step
        plan, other = run_plan.plan, _plan_beside(run_plan.plan, new.layout, new_axis, m)
        slab, beside = (_held(p, source) for p, source in ((plan, training), (other, new)))
        cross = 8 * m * n
        task = {
            **{f"training samples: {name}": size for name, size in slab.items()},
            **{f"new samples: {name}": size for name, size in beside.items()},
            "panels": (n + m) * max(plan.panel_width, plan.block_width) * dtype.itemsize,
            "blocks being centred": sum(sum(preprocess.held_to_apply(p).values()) for p in (plan, other)),
            "means and scales of a tile": 2 * 8 * (plan.tile_width + plan.slab_width),
            "coefficients of regressors, and a fit": 8 * n_regressors * (3 * plan.tile_width + plan.slab_width)
            + 8 * bool(n_regressors) * (n + m) * plan.block_width,
            "inner products of a span, and of a panel": cross + dtype.itemsize * m * n,
            "part being written to the ledger": held_to_keep(cross),
        }
        sums = [
            HeldArray("inner products", cross, 2 + run_plan.concurrency.window - run_plan.concurrency.n_tasks),
            HeldArray("kernel and its parts", 2 * cross),
        ]
        return arranged({"transform": task}, {"transform": sums}, [], workers, threads, coordinates)

    readings = _cross_readings(training.layout, axis, new.layout, new_axis)
    run_plan = first_that_fits(training.layout, readings, workers, NO_SCRATCH, forecast)
    check_sharing(training, replace(run_plan, groups=None))
    return TrainingPlan(run_plan, _plan_beside(run_plan.plan, new.layout, new_axis, _largest(run_plan)))


def _cross_readings(training: Layout, axis: int, new: Layout, new_axis: int) -> Iterator[RunPlan]:
    """Plans with slabs that suit both, then the training data; groups and slabs from large to small."""
    together = list(new.chunks[:new_axis] + new.chunks[new_axis + 1 :])
    together.insert(axis, 1)
    common = replace(
        training,
        chunks=tuple(
            mine if number == axis else common_chunks(length, mine, other)
            for number, (length, mine, other) in enumerate(zip(training.shape, training.chunks, together, strict=True))
        ),
    )
    along = Cuts.of(new.shape[new_axis], new.chunks[new_axis])
    seen = []
    for layout, divide in ((common, False), (training, False), (training, True)):
        if divide and not training.divisible:
            continue
        for shift, group in product(SLAB_SHIFTS, range(0, 14, 2)):
            groups = along.coarsen(GROUP_SAMPLES >> group)
            plan = plan_layout(layout, axis, 1, slab_bytes=SLAB_BYTES >> shift, divide=divide)
            if (plan, groups) not in seen:
                seen.append((plan, groups))
                yield RunPlan.of(plan, "parts" if divide else "columns", groups=groups)


def _largest(run_plan: RunPlan) -> int:
    assert run_plan.groups is not None
    return run_plan.groups.step


def _plan_beside(plan: Plan, layout: Layout, axis: int, n_samples: int) -> Plan:
    """A plan with the same cuts of features, for `n_samples` samples of another layout."""
    shape = list(plan.feature_shape)
    shape.insert(axis, n_samples)
    fastest = 0 if layout.order == "F" else len(shape) - 1
    return replace(
        plan,
        shape=tuple(shape),
        samples_axis=axis,
        kept_fastest=len(shape) > 1 and fastest == axis,
        block_width=block_width(n_samples),
    )


def _held(plan: Plan, source: Source) -> dict[str, int]:
    """Bytes that are held to read all samples of the largest slab, by name."""
    region = plan.region(tuple(slice(0, cut.step) for cut in plan.slabs))
    return source.held(extent(region))


def cross(
    training: Source,
    new: Source,
    fitted: Fitted,
    rules: Rules,
    dtype: np.dtype[Any],
    beside: TrainingPlan,
    runner: Runner,
    receive: Callable[[slice, Inner, ScoredSamples], None],
    regressors: tuple[F64 | None, F64 | None] = (None, None),
) -> None:
    """Inner products of new samples with the samples of a fit, less its means and divided by its scales, in one pass.

    Parameters
    ----------
    training, new, beside : the sources of `plan_cross`, and the plan that it returned
    fitted : means and divisors of the fit
    rules : of the fit
    dtype : of the products
    receive : called for each group of new samples, in order, with what belongs to them. It may be called again with the
        same group
    regressors : of the samples of the fit, (n, p), and of the new ones, if it subtracts a regression
    """
    run_plan = beside.run_plan
    assert run_plan.groups is not None
    empty = Cross.empty(0, run_plan.plan.n_samples)

    def receive_sums(group: slice, sums: Cross) -> None:
        receive(group, sums.inner, sums.measured)

    runner.run(
        Stage(
            name="transform",
            task=cross_span,
            work=Against(
                training,
                run_plan.plan,
                rules,
                dtype,
                groups=run_plan.groups,
                regressors=regressors[0],
                new=Projection(new, beside.new, rules, dtype, groups=run_plan.groups, regressors=regressors[1]),
            ),
            shared=(fitted,),
            empty=SampleGroups.of(run_plan, empty, Cross.add, receive_sums),
            merge=SampleGroups.add,
            like=empty,
            concurrency=run_plan.concurrency,
            n_bytes=training.layout.bytes * len(run_plan.groups) + new.layout.bytes,
        )
    )


def write_training(training: Source, axis: int, path: Path) -> None:
    """Copy training data to a new Zarr array, in chunks of all samples; what can't be read is an error, now and later.

    Parameters
    ----------
    axis : of the samples
    """
    layout = training.layout
    plan = plan_layout(layout, axis, 1)
    chunks = [cut.step for cut in plan.slabs]
    chunks.insert(axis, layout.shape[axis])
    low, high = layout.valid_range
    factor, offset = layout.packing
    attributes: dict[str, Any] = {
        **({"missing_value": list(layout.missing_values)} if layout.missing_values else {}),
        **({"valid_range": [low, high]} if (low, high) != EVERY else {}),
        **({"scale_factor": factor, "add_offset": offset} if (factor, offset) != (1.0, 0.0) else {}),
    }
    with writing(str(path)):
        array = zarr.create_array(
            SyncedStore(path),
            shape=layout.shape,
            chunks=tuple(chunks),
            dtype=layout.dtype.newbyteorder("="),
            compressors=CHECKED,
            dimension_names=layout.dims if any(layout.dims) else None,
            attributes=attributes,
        ).with_config({"write_empty_chunks": True})
        for tile in (tile for span in range(plan.n_spans) for tile in plan.tiles_of(span)):
            for region in map(plan.region, plan.slabs_of(tile)):
                part = training.restrict(region)
                part = part.with_blocks({key: future.result() for key, future in part.blocks.items()})
                with part.open() as reader:
                    array[region] = reader.read(region)


def plan_preimages(
    training: Source,
    axis: int,
    n_wanted: int,
    dtype: np.dtype[Any],
    workers: Workers,
    to_find: int,
    coordinates: Mapping[str, int] = {},
) -> RunPlan:
    """The plan of `n_wanted` pre-images; to find their weights takes `to_find` bytes.

    Parameters
    ----------
    coordinates : as in `dpca.methods.projection.plan_projection`
    """
    layout, n = training.layout, training.layout.shape[axis]

    def forecast(run_plan: RunPlan, threads: int) -> tuple[Process, ...]:
        plan, m = run_plan.plan, _largest(run_plan)
        slab = m * plan.slab_width * dtype.itemsize
        task = {
            **_held(plan, training),
            **preprocess.held(plan, dtype),
            "means and scales of a tile": 2 * 8 * (plan.tile_width + plan.slab_width),
            "weights of a group": m * n * dtype.itemsize,
            "samples of a slab": slab + 2 * m * plan.panel_width * 8,
            "chunk being written": held_to_write(slab),
        }
        sums = [HeldArray("weights, and what they are found with", to_find)]
        return arranged({"reconstruct": task}, {"reconstruct": sums}, [], workers, threads, coordinates)

    def readings() -> Iterator[RunPlan]:
        for divide in (False, True) if layout.divisible else (False,):
            for shift, group in product(SLAB_SHIFTS, range(0, 14, 2)):
                plan = plan_layout(layout, axis, 1, slab_bytes=SLAB_BYTES >> shift, divide=divide)
                groups = Cuts.of(n_wanted, min(n_wanted, max(1, GROUP_SAMPLES >> group)))
                yield RunPlan.of(plan, "parts" if divide else "columns", groups=groups)

    run_plan = first_that_fits(layout, readings(), workers, NO_SCRATCH, forecast)
    check_sharing(training, replace(run_plan, groups=None))
    return run_plan


def preimages(
    training: Source,
    fitted: Fitted,
    rules: Rules,
    wanted: Combinations,
    run_plan: RunPlan,
    dims: tuple[str, ...],
    outputs: Outputs,
    runner: Runner,
    dtype: np.dtype[Any],
) -> None:
    """Linear combinations of the training samples, written as an array of `outputs`, in the axes of the training data.

    Parameters
    ----------
    training, run_plan : the source of `plan_preimages`, and the plan that it returned
    fitted, rules : of the fit
    wanted : the combinations to compute
    dims : names of all dimensions
    dtype : of the products, and of what is written
    """
    assert run_plan.groups is not None
    plan, axis = run_plan.plan, run_plan.plan.samples_axis
    shape, chunks = list(plan.feature_shape), [cut.step for cut in plan.slabs]
    shape.insert(axis, len(wanted.weights))
    chunks.insert(axis, run_plan.groups.step)
    outputs.create_array(PREIMAGE, shape, chunks, dtype, dims, attributes=training.layout.of_values)
    runner.run(
        Stage(
            name="reconstruct",
            task=preimage_span,
            work=Against(training, plan, rules, dtype, outputs=outputs, writes=(PREIMAGE,), groups=run_plan.groups),
            shared=(fitted, wanted),
            empty=0,
            merge=operator.add,
            concurrency=run_plan.concurrency,
            n_bytes=training.layout.bytes * len(run_plan.groups),
        )
    )
