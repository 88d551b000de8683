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
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpca.config.model import Model
from dpca.errors import AssumptionError
from dpca.execution.stage import Runner, Stage, Traffic
from dpca.methods.climb import climb
from dpca.methods.copying import CopyTask, copy_unit
from dpca.methods.dataset import Dataset
from dpca.methods.second_pass import SecondPass
from dpca.methods.solve import Solved, solve
from dpca.methods.stages import Stages, TaskSeconds
from dpca.numerics.accumulators.tallies import Counts
from dpca.numerics.certificate import certify
from dpca.numerics.ladder import Rung
from dpca.numerics.panels import FeatureCounts
from dpca.numerics.spectrum import Spectrum
from dpca.planning.footprint import second_pass
from dpca.planning.runplan import RunPlan
from dpca.slabs import Plan
from dpca.sources import Source
from dpca.sources.kept import KeptSource
from dpca.sources.weights import FeatureWeights
from dpca.store.arrays import Dims, create_outputs, write_scores, write_spectrum
from dpca.store.gram import write_gram
from dpca.store.outputs import Outputs
from dpca.system import durable


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


def decompose(
    source: Source,
    model: Model,
    run_plan: RunPlan,
    outputs: Outputs,
    runner: Runner,
    *,
    weights: FeatureWeights | None = None,
    scratch: str | None = None,
    components: bool = True,
    keep_gram: bool = True,
) -> Decomposition:
    """Compute a PCA and write its arrays.

    Parameters
    ----------
    source, run_plan : the input, and the plan of its passes (`dpca.planning.search.plan_run`)
    model : what to compute
    outputs : the group to create; its arrays and dimensions are those of a result directory
    runner : runs the stages: copy if the plan has one, those of the solver, eigensolve, components. With a ledger,
        `outputs` and `scratch` must belong to the same run
    weights : of the features; None for equal ones
    scratch : path of the copy of the input, where nothing exists yet; None only where no copy is planned
    components : whether to compute components; without them, the second pass is saved where samples are kept
    keep_gram : whether to write K, r and c, too, where samples are kept

    Raises
    ------
    DataError, StorageError
        When a value or a chunk can't be used, or when there is no space to write.
    PrecisionError
        When the precision of the products does not suffice for the data.
    AssumptionError
        When the spectrum contradicts the assumption of the requested rule; the arrays of the first pass are written.
    """
    plan = run_plan.plan
    if not plan.regular:
        outputs = Outputs(outputs.store, runner.executor.guard())
    dims = create_outputs(outputs, plan, source, {"n_samples": plan.n_samples, "ddof": model.rules.ddof})
    stages, data = Stages(runner), Dataset.of(source, plan, weights, model.sample_weights)
    with streamed(data, run_plan, scratch, stages) as (streams, copied_absent):
        completion = _Completion(stages, streams, model, run_plan, outputs, dims, components, keep_gram)
        solving = partial(solve, stages, streams, model, run_plan, components)
        solved = climb(stages, streams, model, run_plan, outputs, solving, completion)
    outputs.gather()
    outputs.finish()
    summary, weighted = solved.summary, model.sample_weights
    certificate = certify(
        solved.spectrum,
        solved.attempt.rung,
        exact=summary.exact,
        trace_difference=summary.difference,
        squares=summary.squares,
        measured=solved.measured,
        negative=solved.negative,
        effective_samples=model.effective_samples or (None if weighted is None else weighted.n_effective),
    )
    chosen = {"chosen": solved.spectrum.n_components, "reason": solved.chosen.reason, "suggested": solved.suggested}
    return Decomposition(
        plan=plan,
        spectrum=solved.spectrum,
        certificate={**certificate, "n_components": chosen},
        outputs=outputs,
        rung=solved.attempt.rung,
        counts=counts_of(stages, run_plan, summary.counts, copied_absent, summary.features),
        **stages.costs,
    )


def counts_of(
    stages: Stages, run_plan: RunPlan, counts: Counts, copied_absent: int, features: FeatureCounts
) -> dict[str, int]:
    """What was counted while the data were read, for the manifest.

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
    model: Model
    run_plan: RunPlan
    outputs: Outputs
    dims: Dims
    components: bool
    keep_gram: bool

    def write(self, solved: Solved) -> Solved:
        """Write the results of the first pass, and drop its matrix."""
        if self.data.keeps_samples:
            self._write_scores(solved)
            if self.keep_gram and solved.summed.gram is not None:
                write_gram(self.outputs, solved.summed.gram, self.dims)
        else:
            self._write_standard(solved)
        if self.data.sample_weights is not None:
            self.outputs.write("sample_weights", self.data.sample_weights.values, (self.dims.sample,))
        write_spectrum(self.outputs, solved.spectrum)
        if solved.chosen.problem:
            raise self._assumption_not_met(solved)
        return replace(solved, summed=solved.summed.without_matrix())

    def complete(self, solved: Solved, again: bool) -> Solved:
        """Run the second pass, if there is one, and write what it changed."""
        if second_pass(self.run_plan.plan, self.components) is None:
            return solved
        second = SecondPass(self.stages, self.data, self.model, self.run_plan, self.outputs, self.dims, again=again)
        if self.data.keeps_samples:
            solved = second.components(solved)
            self._write_scores(solved)
        else:
            solved = second.scores(solved)
            if self.components:
                self._write_components(solved)
        write_spectrum(self.outputs, solved.spectrum)
        return solved

    def _write_scores(self, solved: Solved) -> None:
        write_scores(self.outputs, solved.spectrum, self.dims, self.model.whiten)

    def _write_standard(self, solved: Solved) -> None:
        """Write means and divisors of kept features."""
        standard, shape = solved.summary.standard, self.run_plan.plan.feature_shape
        for name, values in (("mean", standard.mean), ("scale", standard.divisor), ("weights", standard.weights)):
            self.outputs.write(name, values.reshape(shape), self.dims.features)

    def _write_components(self, solved: Solved) -> None:
        """Write components of kept features: 0 beyond the rank, NaN for a feature that is left out."""
        spectrum = solved.spectrum
        values = np.where(spectrum.singular_values > 0, spectrum.vectors, 0.0).T
        values[:, solved.summary.standard.left_out] = np.nan
        values = values.astype(solved.attempt.rung.dtype).reshape(-1, *self.run_plan.plan.feature_shape)
        self.outputs.write("components", values, ("component", *self.dims.features))

    def _assumption_not_met(self, solved: Solved) -> AssumptionError:
        return AssumptionError(
            f"{self.data.name}: model.n_components is {self.model.n_components}: {solved.chosen.problem}. The noise is not "
            "white: its eigenvalues do not follow Marchenko and Pastur's distribution",
            "Set model.n_components to a number, a share of the variance such as 0.9, or broken_stick, which finds "
            f"{solved.suggested['broken_stick']} here.",
            key="model.n_components",
        )


@contextmanager
def streamed(data: Dataset, run_plan: RunPlan, scratch: str | None, stages: Stages) -> Iterator[tuple[Dataset, int]]:
    """The data as the passes of a plan read them: the input, or a copy of it that is made first and removed at the end.

    With a ledger, the copy is left if a pass fails, so that the run can resume with it.

    Yields
    ------
    data, absent : what is read, and how many absent chunks the copy met
    """
    source, ledger = data.only.source, stages.ledger
    if run_plan.copy is None:
        yield data.read_from(KeptSource(source)) if run_plan.keeps_data else data, 0
        return
    assert scratch is not None
    finished = False
    try:
        if run_plan.copy.create(scratch) and ledger:
            ledger.checkpoint("copy").clear()  # the copy that it describes is gone
        stage = Stage(
            name="copy",
            task=copy_unit,
            work=CopyTask(source, run_plan.copy, scratch, synced=ledger is not None),
            empty=0,
            merge=operator.add,
            concurrency=run_plan.concurrency,
            n_bytes=data.n_bytes,
        )
        absent = stages.run(stage)
        stages.bytes_decoded += data.n_bytes
        yield data.read_from(run_plan.copy.open(scratch)), absent
        finished = True
    finally:
        if finished or ledger is None:
            with suppress(OSError):
                durable.remove(Path(scratch))
