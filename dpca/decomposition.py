"""PCA, whole: one pass for spectrum and scores, one more for components; more passes where digits are lacking.

The workflow behind both `dpca run` and `dpca.PCA`: it takes plain values and writes arrays through
`Outputs`; where those live, and what is kept beside them, is the caller's.
"""

from __future__ import annotations

import operator
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from dpca.accumulators import SOLVERS, Accumulator
from dpca.accumulators.factors import F64
from dpca.backproject import BackprojectionPartial, orthogonalizer
from dpca.certificate import certify, check_trace
from dpca.dimension import Chosen, Eigenvalues, choose, suggestions
from dpca.engine import Executor, run_pass
from dpca.errors import AssumptionError, PrecisionError
from dpca.model import Model, Rung
from dpca.outputs import Outputs, create_outputs, write_spectrum
from dpca.passes import Fitted, Pass, Sweep, backprojection_span, first_span, orthogonalize_span, projection_span
from dpca.preprocess import Rules
from dpca.progress import Progress
from dpca.rechunk import CopyTask, copy_unit
from dpca.runplan import Attempt, RunPlan
from dpca.slabs import Plan
from dpca.sources import Source
from dpca.spectrum import Spectrum, ranked, spectrum_of

P = TypeVar("P")

THREADED_EIGENSOLVE = 1000
MAX_EIGENSOLVE_THREADS = 8


@dataclass(frozen=True)
class Decomposition:
    """What came out, besides the arrays in `outputs`."""

    plan: Plan
    spectrum: Spectrum
    certificate: dict[str, Any]
    outputs: Outputs
    feature_dims: tuple[str, ...]
    rung: Rung
    """Solver and dtype of the products that gave the answer."""
    choices: tuple[str, ...]
    """Why that one, a sentence for each solver that was tried."""
    eigensolve_threads: int
    counts: dict[str, int]
    """absent_chunks, missing_values, constant_features, passes, bytes_decoded."""
    seconds: dict[str, float]
    """Of each stage."""

    @property
    def scores(self) -> NDArray[np.float64]:
        """Scores as asked for, whitened or not, (n_samples, n_components)."""
        whitened = bool(self.outputs.array("scores").attrs["whitened"])
        return self.spectrum.scores / self.spectrum.whitening if whitened else self.spectrum.scores


def decompose(
    source: Source,
    model: Model,
    made: RunPlan,
    outputs: Outputs,
    executor: Executor,
    progress: Progress,
    *,
    scratch: str | None = None,
    components: bool = True,
    keep_gram: bool = True,
) -> Decomposition:
    """Compute a PCA and write its arrays.

    Parameters
    ----------
    source, made : the input, and how to go through it (`dpca.planning.plan_run`)
    model : what is asked for
    outputs : the group to make; its arrays and dimensions are the result directory's
    executor : where tasks run
    progress : told of the stages: copy where the plan has one, gram, eigensolve, components
    scratch : where a copy of the input goes, a path that does not exist; None only where none is planned
    components : False for one pass only
    keep_gram : write K, r and c too

    Raises
    ------
    DataError, StorageError
        At a value or a chunk that can't be used, or where there is no room to write.
    PrecisionError
        When the products can't carry the data.
    """
    plan, rules = made.plan, model.rules
    n_bytes = source.layout.bytes
    if not plan.regular:
        outputs = Outputs(outputs.store, executor.guard())
    dims = create_outputs(outputs, plan, source, {"n_samples": plan.n_samples, "ddof": rules.ddof})
    steps = _Steps(executor, progress)
    measured: BackprojectionPartial | None = None
    repaired: NDArray[np.float64] | None = None

    began = time.perf_counter()
    with streamed(source, made, scratch, executor, progress) as (streams, copied_absent):
        if made.copy is not None:
            steps.seconds["copy"] = time.perf_counter() - began
        work = Pass(streams, plan, rules, made.attempts[0].rung.dtype, outputs=outputs)
        for attempt, following in zip_longest(made.attempts, made.attempts[1:]):
            work = replace(work, working_dtype=attempt.rung.dtype, solver=attempt.rung.solver)
            try:
                found = steps.first_pass(work, attempt, n_bytes)
            except PrecisionError as error:
                if following is None:
                    raise PrecisionError(f"{source.layout.name}: {error.message}", error.remedy) from error
                steps.choose(f"{attempt.rung.name} failed ({error.message}), so {following.rung.name} is tried")
                continue
            spectrum, chosen, suggested = steps.solve(found, plan, model, attempt.rung)
            work = replace(work, outputs=None)  # means and scales are written
            if following is None or not spectrum.lacking.any():
                break
            steps.choose(f"{attempt.rung.name}: {_lacking(spectrum)}, so {following.rung.name} is tried")
        steps.choose(_verdict(attempt.rung, spectrum, made))
        n_components = spectrum.n_components
        write_spectrum(outputs, spectrum, model.whiten)
        if keep_gram:
            outputs.write(*_kept(attempt.rung, found))
            outputs.write("gram_mean_product", found.tally.mean_product, ("sample",))
            outputs.write("gram_mean_norm2", found.tally.mean_norm2, ())
        if chosen.problem:
            raise AssumptionError(
                f"{source.layout.name}: model.n_components is {model.n_components}: {chosen.problem}. The noise is not white: "
                "its eigenvalues do not follow Marchenko and Pastur's distribution",
                "Set model.n_components to a number, a share of the variance such as 0.9, or broken_stick, which finds "
                f"{suggested['broken_stick']} here.",
                key="model.n_components",
            )
        tally, exact, difference = found.tally, found.exact, steps.trace_difference
        del found

        if components:
            outputs.create_tiled("components", plan, dims, attempt.rung.dtype, n_components)
            alpha = spectrum.alpha.astype(attempt.rung.dtype)
            with steps.timed("components"), progress.stage("components", n_bytes):
                measured = steps.sum_up(
                    backprojection_span,
                    replace(work, outputs=outputs),
                    alpha,
                    total=BackprojectionPartial.empty(plan.n_samples, n_components),
                    merge=BackprojectionPartial.merge,
                    attempt=attempt,
                )
            steps.bytes_decoded += measured.bytes_read
            transform = orthogonalizer(measured.overlap, spectrum.singular_values > 0, attempt.rung.dtype)
            if transform is not None:
                size = n_components * plan.n_features * attempt.rung.dtype.itemsize
                with steps.timed("orthogonalize"), progress.stage("orthogonalize", size):
                    repaired = steps.sum_up(
                        orthogonalize_span,
                        Sweep(plan, outputs),
                        transform,
                        total=np.zeros_like(measured.overlap),
                        merge=operator.iadd,
                        attempt=attempt,
                    )
                measured.projection = measured.projection @ transform.T
    outputs.finish()
    counts = {
        "passes": steps.passes + components,
        "absent_chunks": tally.absent_chunks + copied_absent,
        "missing_values": tally.n_missing,
        "constant_features": tally.n_constant,
        "bytes_decoded": steps.bytes_decoded + (n_bytes if made.copy else 0),
        "bytes_copied_to_scratch": made.scratch_bytes,
    }
    return Decomposition(
        plan=plan,
        spectrum=spectrum,
        certificate={
            **certify(
                spectrum, attempt.rung, exact, difference, tally.squares, measured, repaired, model.effective_samples
            ),
            "n_components": {"chosen": n_components, "reason": chosen.reason, "suggested": suggested},
        },
        outputs=outputs,
        feature_dims=dims,
        rung=attempt.rung,
        choices=tuple(steps.choices),
        eigensolve_threads=eigensolve_threads(plan.n_samples),
        counts=counts,
        seconds=steps.seconds,
    )


class _Steps:
    """The steps of one decomposition, and what they cost."""

    def __init__(self, executor: Executor, progress: Progress) -> None:
        self._executor, self._progress = executor, progress
        self.seconds: dict[str, float] = {}
        self.choices: list[str] = []
        self.passes = self.bytes_decoded = 0
        self.trace_difference = 0.0

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - began

    def choose(self, sentence: str) -> None:
        """Record why a solver was taken or left, and say so."""
        self.choices.append(sentence)
        self._progress.say(sentence)

    def sum_up(
        self,
        task: Callable[..., P],
        work: Any,
        *shared: Any,
        total: P,
        merge: Callable[[P, P], P],
        attempt: Attempt,
    ) -> P:
        """`run_pass` with what the plan says of an attempt."""
        return run_pass(
            task,
            work,
            *shared,
            total=total,
            merge=merge,
            executor=self._executor,
            progress=self._progress.advance,
            n_tasks=attempt.n_tasks,
            window=attempt.window,
        )

    def first_pass(self, work: Pass, attempt: Attempt, n_bytes: int) -> Accumulator:
        """Add up what a solver needs; checks it against the sum of squares."""
        self.passes += 1
        solver, name = SOLVERS[attempt.rung.solver], attempt.rung.name
        with self.timed(name), self._progress.stage(name, n_bytes):
            found = self.sum_up(
                first_span, work, total=solver.empty(work.plan.n_samples), merge=solver.merge, attempt=attempt
            )
            self.bytes_decoded += found.tally.bytes_read
            self.trace_difference = check_trace(found.trace(work.rules.center), found.tally.squares, attempt.rung.dtype)
        return found

    def solve(
        self, found: Accumulator, plan: Plan, model: Model, rung: Rung
    ) -> tuple[Spectrum, Chosen, dict[str, int | str]]:
        """The small decomposition in memory; how many components were chosen, and what other rules say."""
        n, d, center = plan.n_samples, plan.n_features, model.rules.center
        seen: list[tuple[Eigenvalues, Chosen]] = []

        def choosing(eigenvalues: F64, floor: float, total: float) -> int:
            values, rank, _ = ranked(eigenvalues, floor, n, d, center)
            given = Eigenvalues(values, rank, n, max(1, d - found.tally.n_constant), center, total)
            seen.append((given, choose(model.n_components, given)))
            return seen[-1][1].n_components

        threads = eigensolve_threads(n)
        with self.timed("eigensolve"), self._progress.stage("eigensolve"), threadpool_limits(threads, user_api="blas"):
            factors = found.finish(center, choosing)
        ((given, chosen),) = seen
        spectrum = spectrum_of(
            factors,
            n_samples=n,
            n_features=d,
            center=center,
            ddof=model.rules.ddof,
            working_dtype=np.dtype(np.float64) if found.exact else rung.dtype,
        )
        return spectrum, chosen, suggestions(given)


def _lacking(spectrum: Spectrum) -> str:
    """Which component is the first that a solver does not support, and by how much."""
    index = int(np.argmax(spectrum.lacking))
    ratio = spectrum.singular_values[index] / spectrum.singular_values[0]
    size = f"a singular value of {ratio:.1e} of the largest" if ratio else "a singular value that can't be told from 0"
    return f"component {index} has {size}, below the {spectrum.supported:.1e} that it supports"


def _verdict(rung: Rung, spectrum: Spectrum, made: RunPlan) -> str:
    """What the answer is from, and what it lacks."""
    if not spectrum.lacking.any():
        return f"{rung.name} supports every component that was asked for"
    if made.too_large:
        return f"{rung.name}: {_lacking(spectrum)}; {made.too_large[0].name} does not fit the memory"
    return f"{rung.name}: {_lacking(spectrum)}"


def _kept(rung: Rung, found: Accumulator) -> tuple[str, NDArray[np.float64], tuple[str, ...]]:
    """Name, values and dimensions of the matrix that is kept."""
    if rung.solver == "tsqr":
        return "r_factor", found.matrix, ("row", "sample")
    return "gram", found.matrix, ("sample", "sample_b")


def project(
    source: Source,
    fitted: Fitted,
    rules: Rules,
    made: RunPlan,
    executor: Executor,
    progress: Progress,
    *,
    scratch: str | None = None,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Scores of new samples, ((Y - 1 m') diag(t)) W, and their squared distances from the mean, in one pass.

    Parameters
    ----------
    source, made : new samples with the features of the fit in the same axes, and `plan_projection` of them
    fitted : means, scales and components of the fit
    rules : of the fit
    scratch : as for `decompose`

    Returns
    -------
    scores, squares : (n_samples, n_components) and (n_samples,) float64; scores not whitened
    """
    with (
        streamed(source, made, scratch, executor, progress) as (streams, _),
        progress.stage("transform", source.layout.bytes),
    ):
        found = run_pass(
            projection_span,
            Pass(streams, made.plan, rules, np.dtype(np.float64)),
            fitted,
            total=np.zeros((made.plan.n_samples, fitted.components.shape[0] + 1)),
            merge=operator.iadd,
            executor=executor,
            progress=progress.advance,
            n_tasks=made.n_tasks,
            window=made.window,
        )
        return found[:, :-1], found[:, -1]


@contextmanager
def streamed(
    source: Source, made: RunPlan, scratch: str | None, executor: Executor, progress: Progress
) -> Iterator[tuple[Source, int]]:
    """What the passes of a plan read: the input, or a copy of it that is made first and removed at the end.

    Yields
    ------
    source, absent : and how many absent chunks the copy met
    """
    if made.copy is None:
        yield source, 0
        return
    assert scratch is not None
    try:
        made.copy.create(scratch)
        with progress.stage("copy", source.layout.bytes):
            absent = run_pass(
                copy_unit,
                CopyTask(source, made.copy, scratch),
                total=0,
                merge=operator.add,
                executor=executor,
                progress=progress.advance,
                n_tasks=made.n_tasks,
                window=made.window,
            )
        yield made.copy.open(scratch), absent
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def eigensolve_threads(n_samples: int) -> int:
    """BLAS threads of the eigensolve: 1 for a small n, where more do not help, so that its bits are the same everywhere."""
    return 1 if n_samples < THREADED_EIGENSOLVE else min(os.cpu_count() or 1, MAX_EIGENSOLVE_THREADS)
