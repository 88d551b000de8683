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
import time
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
from dpca.methods.copying import CopyTask, copy_unit
from dpca.methods.passes import Pass
from dpca.methods.steps import Solved, Steps, TaskSeconds
from dpca.numerics.certificate import certify
from dpca.numerics.ladder import Rung
from dpca.numerics.spectrum import Spectrum
from dpca.planning.runplan import RunPlan
from dpca.slabs import Plan
from dpca.sources import Source
from dpca.sources.kept import KeptSource
from dpca.store.outputs import Outputs, create_outputs, write_spectrum
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
    made: RunPlan,
    outputs: Outputs,
    runner: Runner,
    *,
    scratch: str | None = None,
    components: bool = True,
    keep_gram: bool = True,
) -> Decomposition:
    """Compute a PCA and write its arrays.

    Parameters
    ----------
    source, made : the input, and the plan of its passes (`dpca.planning.search.plan_run`)
    model : what to compute
    outputs : the group to create; its arrays and dimensions are those of a result directory
    runner : runs the stages: copy if the plan has one, those of the solver, eigensolve, components. With a ledger,
        `outputs` and `scratch` must belong to the same run
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
    plan, n_bytes = made.plan, source.layout.bytes
    if not plan.regular:
        outputs = Outputs(outputs.store, runner.executor.guard())
    dims = create_outputs(outputs, plan, source, {"n_samples": plan.n_samples, "ddof": model.rules.ddof})
    steps = Steps(source, model, made, outputs, dims, runner, components)
    began = time.perf_counter()
    with streamed(source, made, scratch, runner) as (streams, copied_absent):
        if made.copy is not None:
            steps.seconds["copy"] = time.perf_counter() - began
        work = Pass(streams, plan, model.rules, made.attempts[0].rung.dtype, outputs=outputs)
        solved = steps.climb(work, steps.decomposed, partial(_complete, steps, source, model, components, keep_gram))
    outputs.gather()
    outputs.finish()
    certificate = certify(
        solved.spectrum,
        solved.attempt.rung,
        solved.exact,
        solved.difference,
        solved.squares,
        solved.measured,
        model.effective_samples,
    )
    chosen = {"chosen": solved.spectrum.n_components, "reason": solved.chosen.reason, "suggested": solved.suggested}
    return Decomposition(
        plan=plan,
        spectrum=solved.spectrum,
        certificate={**certificate, "n_components": chosen},
        outputs=outputs,
        rung=solved.attempt.rung,
        choices=tuple(steps.choices),
        counts={
            "passes": steps.passes,
            "absent_chunks": solved.counts.absent_chunks + copied_absent,
            "missing_values": solved.counts.n_missing,
            "constant_features": solved.n_constant,
            "empty_features": solved.n_empty,
            "retried_reads": steps.retries,
            "bytes_decoded": steps.bytes_decoded + (n_bytes if made.copy else 0),
            "bytes_copied_to_scratch": made.scratch_bytes,
        },
        seconds=steps.seconds,
        traffic=steps.traffic,
        work=steps.work,
    )


def _complete(
    steps: Steps, source: Source, model: Model, components: bool, keep_gram: bool, work: Pass, solved: Solved
) -> Solved:
    """Write the results of the first pass, run the second one, and write what it changed."""
    samples = work.plan.keeps == "samples"
    if samples:
        steps.write_kept_samples(solved, keep_gram)
    else:
        steps.write_kept_features(solved)
    write_spectrum(steps.outputs, solved.spectrum)
    if solved.chosen.problem:
        raise _assumption_not_met(source, model, solved)
    solved = replace(solved, found=None)  # the small matrix is not needed any more
    if samples and not components:
        return solved
    solved = steps.components(work, solved) if samples else steps.scores(work, solved)
    write_spectrum(steps.outputs, solved.spectrum)
    if samples:
        steps.write_scores(solved.spectrum)
    elif components:
        steps.write_components(solved)
    return solved


def _assumption_not_met(source: Source, model: Model, solved: Solved) -> AssumptionError:
    return AssumptionError(
        f"{source.layout.name}: model.n_components is {model.n_components}: {solved.chosen.problem}. The noise is not "
        "white: its eigenvalues do not follow Marchenko and Pastur's distribution",
        "Set model.n_components to a number, a share of the variance such as 0.9, or broken_stick, which finds "
        f"{solved.suggested['broken_stick']} here.",
        key="model.n_components",
    )


@contextmanager
def streamed(
    source: Source,
    made: RunPlan,
    scratch: str | None,
    runner: Runner,
) -> Iterator[tuple[Source, int]]:
    """The source that the passes of a plan read: the input, or a copy of it that is made first and removed at the end.

    With a ledger, the copy is left if a pass fails, so that the run can resume with it.

    Yields
    ------
    source, absent : the source, and how many absent chunks the copy met
    """
    if made.copy is None:
        yield KeptSource(source) if made.keeps_data else source, 0
        return
    assert scratch is not None
    finished, ledger = False, runner.ledger
    try:
        if made.copy.create(scratch) and ledger:
            ledger.checkpoint("copy").clear()  # the copy that it describes is gone
        absent = runner.run(
            Stage(
                name="copy",
                task=copy_unit,
                work=CopyTask(source, made.copy, scratch, synced=ledger is not None),
                empty=0,
                merge=operator.add,
                n_tasks=made.n_tasks,
                window=made.window,
                n_bytes=source.layout.bytes,
            )
        )
        yield made.copy.open(scratch), absent
        finished = True
    finally:
        if finished or ledger is None:
            with suppress(OSError):
                durable.remove(Path(scratch))
