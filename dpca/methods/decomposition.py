"""The workflow of PCA: one pass for the spectrum, one for the side that streams by; more where digits are lacking.

`dpca run` and `dpca.PCA` both call it. It takes plain values and writes arrays through `Outputs`; the caller
decides where these are stored, and what is kept beside them.

==================  ================================  ====================================
                    samples kept (d >= n)             features kept (d < n)
==================  ================================  ====================================
before              --                                means, where values may be missing
first pass gives    scores, alpha, means, scales      components, means, scales
second pass gives   components                        scores, alpha
==================  ================================  ====================================
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpca.errors import AssumptionError
from dpca.execution.stage import Runner, Stage, Traffic
from dpca.methods.block_krylov import iterate
from dpca.methods.climb import climb
from dpca.methods.copying import CopyTask, copy_unit
from dpca.methods.dataset import Dataset
from dpca.methods.rotating import Rotator
from dpca.methods.second_pass import SecondPass
from dpca.methods.solve import Solved, solve
from dpca.methods.stages import Stages, TaskSeconds
from dpca.numerics.accumulators.grouped import shares
from dpca.numerics.accumulators.tallies import Counts
from dpca.numerics.certificate import certify
from dpca.numerics.dimension import BI_CROSS_VALIDATION
from dpca.numerics.dosages import of_convention
from dpca.numerics.ladder import BLOCK_KRYLOV, Rung
from dpca.numerics.panels import FeatureCounts
from dpca.numerics.spectrum import Spectrum
from dpca.planning.job import Job
from dpca.planning.rechunk import Copy
from dpca.planning.runplan import RunPlan
from dpca.settings import COMPUTE, MODEL
from dpca.slabs import Plan
from dpca.sources import Source
from dpca.sources.kept import KeptSource
from dpca.store.arrays import (
    GROUP,
    Dims,
    create_outputs,
    of_group,
    stage_of,
    unit_of,
    units_of,
    write_genotypes,
    write_scores,
    write_spectrum,
)
from dpca.store.gram import write_gram
from dpca.store.outputs import Outputs
from dpca.system import durable
from dpca.types import F64


@dataclass(frozen=True)
class Decomposition:
    """The result of a PCA, besides the arrays in `outputs`."""

    plan: Plan
    spectrum: Spectrum
    certificate: dict[str, Any]
    outputs: Outputs
    rung: Rung
    """Solver and dtype of the products that gave the answer."""
    choices: tuple[str, ...]
    """Why this solver was used, a sentence for each one that was tried."""
    counts: dict[str, int]
    """absent_chunks, missing_values, constant_features, passes, bytes_decoded."""
    seconds: dict[str, float]
    """Duration of each stage."""
    traffic: dict[str, Traffic]
    """Network traffic of each stage that has any."""
    work: dict[str, TaskSeconds]
    """Time that the tasks of each pass took."""

    @property
    def scores(self) -> NDArray[np.float64]:
        """Scores, whitened if the model says so, (n_samples, n_components)."""
        return np.asarray(self.outputs.array("scores")[...], np.float64)

    @property
    def rotated_scores(self) -> NDArray[np.float64]:
        """Rotated scores, (n_samples, rotated components), where there was a rotation."""
        return np.asarray(self.outputs.array("rotated_scores")[...], np.float64)


def decompose(job: Job, outputs: Outputs, runner: Runner) -> Decomposition:
    """Compute a PCA and write its arrays.

    Parameters
    ----------
    job : of which nothing exists yet at `scratch`, unless this run made it
    outputs : the group to create; its arrays and dimensions are those of a result directory
    runner : runs the stages: copy if the plan has one, those of the solver, eigensolve, components. With a ledger, `outputs` and
        the job's scratch must belong to the same run
    """
    groups, model, run_plan, components = job.groups, job.model, job.run_plan, job.components
    plan = run_plan.plan
    outputs = guarded(outputs, run_plan, runner)
    attributes = {"n_samples": plan.n_samples, "ddof": model.rules.ddof}
    outputs.unit = None if model.unit else unit_of(groups, model.rules, model.block_scaling)
    dims = create_outputs(outputs, run_plan.plans, groups, attributes, model.rules, model.design)
    if len(groups) == 1:
        write_genotypes(outputs, groups[0].source, dims[0], of_variants=components)
    stages = Stages(runner)
    data = Dataset(
        groups, run_plan.plans, model.sample_weights, model.reference, model.regression, n_folds=model.n_folds
    )
    with streamed(data, run_plan, job.scratch.path, stages) as (streams, copied_absent):
        completion = _Completion(stages, streams, job, outputs, dims)
        certified = None
        if job.solver == BLOCK_KRYLOV:
            solved, certified = iterate(stages, streams, job, outputs, completion)
        else:
            solved = climb(stages, streams, job, outputs, partial(solve, stages, streams, job), completion)
    summary, weighted = solved.summary, model.sample_weights
    certificate = certify(
        solved.spectrum,
        solved.attempt.rung,
        exact=summary.exact,
        trace_difference=summary.difference,
        measured=solved.measured,
        negative=solved.negative,
        effective_samples=model.effective_samples or (None if weighted is None else weighted.n_effective),
        iterated=certified,
        weight=None if weighted is None else weighted.total,
        off=summary.sketch.off,
    )
    if model.rotation is not None:
        rotator = Rotator(stages, data, model.rotation, outputs, dims, model.whiten)
        certificate["rotation"] = rotator.rotate(solved, certificate)
    outputs.gather()
    outputs.finish()
    chosen = {"chosen": solved.spectrum.n_components, "reason": solved.chosen.reason, "suggested": solved.suggested}
    if solved.curve is not None:
        chosen[BI_CROSS_VALIDATION] = solved.curve.as_json
    return Decomposition(
        plan=plan,
        spectrum=solved.spectrum,
        certificate={**certificate, "n_components": chosen},
        outputs=outputs,
        rung=solved.attempt.rung,
        counts=counts_of(stages, run_plan, summary.counts, copied_absent, summary.features),
        **stages.costs,
    )


def guarded(outputs: Outputs, run_plan: RunPlan, runner: Runner) -> Outputs:
    """The outputs, with a lock for writing where tasks may write into the same chunks."""
    if all(plan.regular for plan in run_plan.plans):
        return outputs
    return outputs.guarded_by(runner.executor.guard())


def counts_of(
    stages: Stages, run_plan: RunPlan, counts: Counts, copied_absent: int, features: FeatureCounts
) -> dict[str, int]:
    """Counts while the data were read, for the manifest.

    Parameters
    ----------
    counts : of the first pass
    copied_absent : absent chunks that a copy met
    features : numbers of features that are constant or left out
    """
    return {
        "passes": stages.passes,
        "absent_chunks": counts.absent_chunks + copied_absent,
        "missing_values": counts.n_missing,
        "filled_values": counts.n_filled,
        "plausible_marks": counts.n_plausible,
        **features.as_counts(),
        "retried_reads": stages.retries,
        "bytes_decoded": stages.bytes_decoded,
        "bytes_copied_to_scratch": run_plan.scratch_bytes,
    }


@dataclass(frozen=True)
class _Completion:
    """The arrays of a PCA, and its second pass."""

    stages: Stages
    data: Dataset
    job: Job
    outputs: Outputs
    dims: tuple[Dims, ...]
    """Names of the axes, of each group."""

    def write(self, solved: Solved) -> Solved:
        """Write the results of the first pass, and drop its matrix."""
        with self.outputs.together():
            self._write_first_pass(solved)
        if solved.chosen.problem:
            raise self._assumption_not_met(solved)
        return replace(solved, summed=solved.summed.without_matrix())

    def _write_first_pass(self, solved: Solved) -> None:
        if self.data.keeps_samples:
            self._write_scores(solved)
            if self.job.keep_gram and solved.summed.gram is not None:
                write_gram(self.outputs, solved.summed.gram, self._dims, solved.summed.groups, solved.summed.folds)
        else:
            self._write_standard(solved)
        if len(self.data.names) > 1:
            self.outputs.write("block_factor", solved.summary.factors.values, (GROUP,))
        if solved.summed.groups:
            spectrum = solved.spectrum
            matrices = tuple(one.kept for one in solved.summed.groups)
            values = spectrum.eigenvalues[: spectrum.n_components]
            self._write_shares(shares(matrices, solved.power, spectrum.vectors, values))
        if self.data.sample_weights is not None:
            self.outputs.write("sample_weights", self.data.sample_weights.values, (self._dims.sample,))
        write_spectrum(self.outputs, solved.spectrum, self._of_convention(solved))

    def complete(self, solved: Solved, suffix: str) -> Solved:
        """Run the second pass, if there is one, and write what it changed."""
        if self.job.second_pass is None:
            return solved
        second = SecondPass(self.stages, self.data, self.job, self.outputs, self.dims, suffix=suffix)
        solved = second.components(solved) if self.data.keeps_samples else second.scores(solved)
        with self.outputs.together():
            if self.data.keeps_samples:
                self._write_scores(solved)
                if solved.shares is not None:
                    self._write_shares(solved.shares)
            elif self.job.components:
                self._write_components(solved)
            write_spectrum(self.outputs, solved.spectrum, self._of_convention(solved))
        return solved

    def _of_convention(self, solved: Solved) -> float | None:
        """Factor of eigenvalues by the convention of dosages; None for other data."""
        convention, summary = self.job.model.rules.convention, solved.summary
        if convention is None:
            return None
        n_counted = self.data.n_features - summary.features.uncounted
        return of_convention(convention, self.data.n_samples, n_counted, summary.squares)

    @property
    def _dims(self) -> Dims:
        """Names of the axes of the first group, which the samples' is common to all."""
        return self.dims[0]

    def _write_shares(self, found: F64) -> None:
        """Write the share of each group in the variance of each component."""
        self.outputs.write("variance_share", found, (GROUP, "component"))

    def _write_scores(self, solved: Solved) -> None:
        write_scores(self.outputs, solved.spectrum, self._dims, self.job.model.whiten)

    def _write_standard(self, solved: Solved) -> None:
        """Write means and divisors of kept features."""
        standard, shape = solved.summary.standard, self.job.run_plan.plan.feature_shape
        units = units_of(self.data.groups[0].layout, self.job.model.rules)
        for name, values in (("mean", standard.mean), ("scale", standard.divisor), ("weights", standard.weights)):
            self.outputs.write(name, values.reshape(shape), self._dims.features, units.get(name))

    def _write_components(self, solved: Solved) -> None:
        """Write components of kept features: 0 beyond the rank, NaN for a feature that is left out."""
        spectrum = solved.spectrum
        values = np.where(spectrum.singular_values > 0, spectrum.vectors, 0.0).T
        values[:, solved.summary.standard.left_out] = np.nan
        values = values.astype(solved.attempt.rung.dtype).reshape(-1, *self.job.run_plan.plan.feature_shape)
        self.outputs.write("components", values, ("component", *self._dims.features))

    def _assumption_not_met(self, solved: Solved) -> AssumptionError:
        why = "The noise is not white: its eigenvalues do not follow Marchenko and Pastur's distribution"
        if solved.curve is not None and self.job.model.n_components == BI_CROSS_VALIDATION:
            why = (
                f"The error of what is left out is smallest at {solved.curve.n_components} of {len(solved.curve.errors) - 1} components that were "
                "tried: noise is correlated along the samples, as in time series, or there are as many components"
            )
        if solved.unread:
            return AssumptionError(
                f"{self.data.name}: {MODEL.n_components} is {self.job.model.n_components}, which reads eigenvalues that rounding of the products in "
                f"{solved.attempt.rung.name} hides",
                f"{MODEL.precision.set_to('double')}, or leave it and {MODEL.svd_solver} to auto, with a larger {COMPUTE.memory} if they are so already.",
                key="model.n_components",
            )
        return AssumptionError(
            f"{self.data.name}: {MODEL.n_components} is {self.job.model.n_components}: {solved.chosen.problem}. {why}",
            f"Set {MODEL.n_components} to a number, a share of the variance such as 0.9, or broken_stick, which finds "
            f"{solved.suggested['broken_stick']} here.",
            key="model.n_components",
        )


@contextmanager
def streamed(data: Dataset, run_plan: RunPlan, scratch: str | None, stages: Stages) -> Iterator[tuple[Dataset, int]]:
    """The data as the passes of a plan read them: the inputs, or copies of them that are made first and removed at the end.

    With a ledger, copies are left if a pass fails, so that the run can resume with them.

    Yields
    ------
    data, absent : what is read, and how many absent chunks the copies met
    """
    if run_plan.keeps_data:
        yield data.read_from([KeptSource(group.source) for group in data.groups]), 0
        return
    with ExitStack() as copies:
        absent, sources = 0, []
        for group, how in zip(data.groups, run_plan.inputs, strict=True):
            source = group.source
            if how.copy is not None:
                assert scratch is not None
                place = of_group(scratch, group.name)
                copies.enter_context(_left_on_failure(place, kept=stages.ledger is not None))
                absent += _copied(source, group.name, how.copy, place, run_plan, stages)
                source = how.copy.open(place)
            sources.append(source)
        yield data.read_from(sources), absent


def _copied(source: Source, name: str, copy: Copy, place: str, run_plan: RunPlan, stages: Stages) -> int:
    """Copy an input to scratch; returns how many absent chunks it met."""
    ledger, stage_name = stages.ledger, stage_of("copy", name)
    if copy.create(place) and ledger:
        ledger.checkpoint(stage_name).clear()  # the copy that it describes is gone
    stage = Stage(
        name=stage_name,
        task=copy_unit,
        work=CopyTask(source, copy, place, synced=ledger is not None),
        empty=0,
        merge=operator.add,
        concurrency=run_plan.concurrency,
        n_bytes=source.layout.bytes,
    )
    absent = stages.run(stage)
    stages.bytes_decoded += source.layout.bytes
    return absent


@contextmanager
def _left_on_failure(place: str, kept: bool) -> Iterator[None]:
    """Remove a copy at the end; if what is done with it fails, only where it is not `kept`."""
    finished = False
    try:
        yield
        finished = True
    finally:
        if finished or not kept:
            with suppress(OSError):
                durable.remove(Path(place))
