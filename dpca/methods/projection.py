"""How a fit is applied: new samples to scores, and scores back to samples, each planned and then run."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self, TypeVar

import numpy as np

from dpca.execution.stage import Runner, Stage
from dpca.methods.applying import (
    N_MEASURED,
    RECONSTRUCTION,
    Projection,
    Reconstruction,
    ScoredSamples,
    Scores,
    projection_span,
    reconstruction_span,
)
from dpca.numerics import preprocess, sparse_lines
from dpca.numerics.least_squares import SOLVED_VALUES, n_sums, solved
from dpca.numerics.panels import Rules
from dpca.planning.cuts import plan_layout
from dpca.planning.memory import held_to_read
from dpca.planning.processes import arranged
from dpca.planning.runplan import HeldArray, Process, RunPlan, Scratch, Workers
from dpca.planning.search import SLAB_SHIFTS, check_sharing, first_that_fits
from dpca.slabs import SLAB_BYTES, Cuts
from dpca.sources import Source
from dpca.sources.base import Layout, size_of
from dpca.store.arrays import of_group, stage_of
from dpca.store.fitted import Fitted
from dpca.store.outputs import Outputs, held_to_write
from dpca.types import F64

P = TypeVar("P")

GROUP_SAMPLES = 2**14
"""Most new samples in a group: components are read once for each group, so large groups make that cheap."""
CHUNK_BYTES = 2**24
"""Target size of a chunk of a reconstruction."""
PARTS = 32
"""Wanted number of parts of a reconstruction, where there are enough groups of samples."""
NO_SCRATCH = Scratch("", 0)


def plan_projection(
    source: Source,
    samples_axis: int,
    fitted: Fitted,
    workers: Workers,
    coordinates: Mapping[str, int] = {},
    least_squares: bool = False,
) -> RunPlan:
    """The plan of a projection of new samples.

    Parameters
    ----------
    least_squares : whether scores are those by least squares on the values that there are
    coordinates : bytes that are held to copy or compare each coordinate before, by a name in words
    """

    n_components, itemsize = fitted.components.shape[0], fitted.components.dtype.itemsize

    def forecast(run_plan: RunPlan, threads: int) -> tuple[Process, ...]:
        plan = run_plan.plan
        tile = n_components * plan.tile_width * itemsize
        pairs = n_sums(n_components) if least_squares else 0
        scores = 8 * plan.n_samples * (n_components + N_MEASURED + pairs)
        task = {
            **held_to_read(run_plan, source),
            **preprocess.held_to_apply(plan),
            "components of a tile": tile,
            "components as stored and decoded": 2 * max(fitted.chunk_bytes, tile) if fitted.chunk_bytes else 0,
            "components of a slab": 2 * 8 * n_components * plan.slab_width,
            **held_of_regression(fitted, plan.tile_width, 2 * plan.slab_width, plan.n_samples * plan.block_width),
            **({} if source.lines_axis is None else sparse_lines.held(plan.n_samples, plan.slab_width, n_components)),
            "scores of a span": 2 * scores,
            **(
                {"products of components, and what is missing": 8 * plan.block_width * (3 * pairs + 2 * plan.n_samples)}
                if pairs
                else {}
            ),
        }
        sums = [HeldArray("scores", scores, 2 + run_plan.concurrency.window - run_plan.concurrency.n_tasks)]
        if pairs:
            sums.append(HeldArray("equations of samples that are solved together", 6 * 8 * SOLVED_VALUES))
        return arranged({"transform": task}, {"transform": sums}, [], workers, threads, coordinates)

    readings = _projection_readings(source.layout, samples_axis, n_components)
    run_plan = first_that_fits(source.layout, readings, workers, NO_SCRATCH, forecast)
    check_sharing(source, run_plan)
    return run_plan


def held_of_regression(fitted: Fitted, width: int, more: int, fit: int) -> dict[str, int]:
    """Bytes of the coefficients and scales of so many features, as stored and decoded, and of a fit; none without a regression.

    Parameters
    ----------
    more : features of which they are copied again
    fit : values of the fit
    """
    if fitted.regression is None:
        return {}
    rows, stored = fitted.regression.n_rows, getattr(fitted.regression.coefficients, "chunks", None)
    tile = rows * width
    decoded = 0 if stored is None else 2 * max(math.prod(stored), tile)
    return {"coefficients of regressors, and a fit": 8 * (tile + decoded + rows * more + fit)}


def _projection_readings(layout: Layout, axis: int, n_components: int) -> Iterator[RunPlan]:
    """Plans with groups of samples from large to small: the larger the groups, the fewer times components are read."""
    along = layout.chunks[axis]
    column = size_of(layout.chunk_shape, layout.dtype) // layout.chunk_shape[axis]
    for divide in (False, True) if layout.divisible else (False,):
        for shift in SLAB_SHIFTS:
            fitting = GROUP_SAMPLES if divide else max(1, (SLAB_BYTES >> shift) // column)
            groups = Cuts.of(layout.shape[axis], 1 if divide else along)
            groups = groups.coarsen(min(GROUP_SAMPLES >> shift, fitting))
            group = replace(
                layout,
                shape=(*layout.shape[:axis], groups.step, *layout.shape[axis + 1 :]),
                chunks=(*layout.chunks[:axis], 1, *layout.chunks[axis + 1 :]),
            )
            plan = plan_layout(group, axis, n_components, slab_bytes=SLAB_BYTES >> shift, divide=divide)
            yield RunPlan.of(plan, "parts" if divide else "columns", groups=groups)


def project(
    source: Source,
    fitted: Fitted,
    rules: Rules,
    run_plan: RunPlan,
    runner: Runner,
    receive: Callable[[slice, F64, ScoredSamples], None],
    name: str = "transform",
    regressors: F64 | None = None,
    least_squares: bool = False,
) -> None:
    """Scores of new samples, ((Y - 1 m') diag(t)) W, and what belongs to them, in one pass.

    Parameters
    ----------
    source, run_plan : new samples with the features of the fit in the same axes, and their `plan_projection`
    fitted : means, scales and components of the fit
    rules : preprocessing of the fit
    regressors : of the new samples, (samples, p), if the fit subtracts a regression
    least_squares : whether scores are those by least squares on the values that there are
    receive : called for each group of samples, in order, with the group, its scores (samples, n_components), not
        whitened, and what belongs to them, all float64. It may be called again with the same group
    """
    assert run_plan.groups is not None

    k = fitted.components.shape[0]

    def split(group: slice, sums: F64) -> None:
        scores, measured = sums[:, :k], ScoredSamples(*sums[:, k : k + N_MEASURED].T)
        if least_squares:
            n_values = measured.kept - measured.absent
            scores, errors = solved(scores, measured.squares, sums[:, k + N_MEASURED :], n_values)
            measured = replace(measured, standard_errors=errors)
        receive(group, scores, measured)

    runner.run(
        Stage(
            name=name,
            task=projection_span,
            work=Projection(
                source,
                run_plan.plan,
                rules,
                np.dtype(np.float64),
                groups=run_plan.groups,
                regressors=regressors,
                least_squares=least_squares,
            ),
            shared=(fitted,),
            empty=SampleGroups.of(run_plan, np.zeros((0, 0)), operator.add, split),
            merge=SampleGroups.add,
            like=np.zeros((0, 0)),
            concurrency=run_plan.concurrency,
            n_bytes=source.layout.bytes,
        )
    )


@dataclass
class SampleGroups:
    """Sums over the spans of each group of samples, one group after the other; each complete sum is handed over."""

    n_added: int
    sum: Any
    """Sum of the current group; `empty` before its first span."""
    _empty: Any
    _groups: Cuts
    _n_spans: int
    _join: Callable[[Any, Any], Any]
    _receive: Callable[[slice, Any], None]

    @classmethod
    def of(cls, run_plan: RunPlan, empty: P, join: Callable[[P, P], P], receive: Callable[[slice, P], None]) -> Self:
        """The groups of a plan.

        Parameters
        ----------
        empty : an empty sum, of the types that a span returns
        join : adds a span to the sum, which it may change
        receive : called with each group, in order, and its sum
        """
        assert run_plan.groups is not None
        return cls(0, empty, empty, run_plan.groups, run_plan.plan.n_spans, join, receive)

    def add(self, partial: Any) -> Self:
        """Add a span; spans must come in order."""
        begins = self.n_added % self._n_spans == 0
        self.sum = partial if begins else self._join(self.sum, partial)
        self.n_added += 1
        if self.n_added % self._n_spans == 0:
            self._receive(self._groups[self.n_added // self._n_spans - 1], self.sum)
            self.sum = self._empty
        return self


def plan_reconstruction(
    layout: Layout,
    samples_axis: int,
    fitted: Fitted,
    n_components: int,
    workers: Workers,
    coordinates: Mapping[str, int] = {},
) -> RunPlan:
    """The plan of a reconstruction.

    Parameters
    ----------
    layout : of the array to write; its chunks are those of the stored components, and 1 along the samples
    coordinates : as in `plan_projection`
    """

    def forecast(run_plan: RunPlan, threads: int) -> tuple[Process, ...]:
        plan = run_plan.plan
        chunk = size_of((plan.n_samples, plan.slab_width), layout.dtype)
        slab = n_components * plan.slab_width * layout.dtype.itemsize
        task = {
            "components of a slab": 2 * slab,
            "components as stored and decoded": 2 * max(fitted.chunk_bytes, slab),
            "means, scales and weights of a slab": 8 * 8 * plan.slab_width,
            "samples of a slab": 2 * chunk,
            **held_of_regression(fitted, plan.slab_width, 0, plan.n_samples * plan.slab_width),
            "chunk being written": held_to_write(chunk),
        }
        chosen = [HeldArray("numbers of the samples", 8 * layout.shape[samples_axis])]
        return arranged({"reconstruct": task}, {"reconstruct": chosen}, [], workers, threads, coordinates)

    return first_that_fits(layout, _reconstruction_readings(layout, samples_axis), workers, NO_SCRATCH, forecast)


def _reconstruction_readings(layout: Layout, axis: int) -> Iterator[RunPlan]:
    row = size_of(layout.chunk_shape, layout.dtype)
    for shift in SLAB_SHIFTS:
        groups = Cuts.of(layout.shape[axis], max(1, (CHUNK_BYTES >> shift) // row))
        group = replace(layout, shape=(*layout.shape[:axis], groups.step, *layout.shape[axis + 1 :]))
        plan = plan_layout(group, axis, 1, slab_bytes=CHUNK_BYTES >> shift)
        yield RunPlan.of(plan, "columns", groups=groups)


def _n_blocks(run_plan: RunPlan) -> int:
    """Number of blocks of groups of samples, more than one where there are few spans: each block reads the components.

    It does not depend on the number of tasks, since a reconstruction may resume with another number.
    """
    assert run_plan.groups is not None
    return min(len(run_plan.groups), max(1, PARTS // run_plan.plan.n_spans))


def reconstruct(
    fitted: Fitted,
    scores: Scores,
    layout: Layout,
    run_plan: RunPlan,
    outputs: Outputs,
    runner: Runner,
    group: str = "",
) -> None:
    """Samples from their scores, X^ = 1 m' + (Z W') diag(scale), written as an array of `outputs`.

    Parameters
    ----------
    fitted : means, scales and components of the fit
    scores : those of the requested samples, with as many components as are to be used
    layout, run_plan : of the array to write, with names of all its dimensions, and its `plan_reconstruction`
    group : the name of the group of features, of several
    """
    assert run_plan.groups is not None
    plan, axis = run_plan.plan, run_plan.plan.samples_axis
    chunks = [cut.step for cut in plan.slabs]
    chunks.insert(axis, plan.n_samples)
    name = of_group(RECONSTRUCTION, group)
    outputs.create_array(
        name, layout.shape, chunks, layout.dtype, [str(dim) for dim in layout.dims], attributes=layout.of_values
    )
    work = Reconstruction(
        plan, outputs, (name,), dtype=layout.dtype, groups=run_plan.groups, n_blocks=_n_blocks(run_plan)
    )
    runner.run(
        Stage(
            name=stage_of("reconstruct", group),
            task=reconstruction_span,
            work=work,
            shared=(fitted, scores),
            empty=0,
            merge=operator.add,
            concurrency=run_plan.concurrency,
            n_bytes=layout.bytes,
        )
    )
