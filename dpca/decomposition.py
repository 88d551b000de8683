"""PCA by the Gram matrix, whole: one pass for spectrum and scores, one more for components.

The workflow behind both `dpca run` and `dpca.PCA`: it takes plain values and writes arrays through
`Outputs`; where those live, and what is kept beside them, is the caller's.
"""

from __future__ import annotations

import operator
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from dpca.accumulators import gram
from dpca.accumulators.gram import GramPartial
from dpca.backproject import BackprojectionPartial
from dpca.backproject import merge as merge_backprojections
from dpca.certificate import certify, check_trace
from dpca.engine import Executor, run_pass
from dpca.errors import PrecisionError
from dpca.model import Model, working_dtype
from dpca.outputs import Outputs, create_outputs, write_spectrum
from dpca.passes import Fitted, Pass, backprojection_span, gram_span, projection_span
from dpca.planning import RunPlan
from dpca.preprocess import Rules
from dpca.progress import Progress
from dpca.rechunk import CopyTask, copy_unit
from dpca.slabs import Plan
from dpca.sources import Source
from dpca.spectrum import Spectrum, center_gram, solve

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
    working_dtype: np.dtype[Any]
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
    plan = made.plan
    dtype = working_dtype(source.layout.dtype, model.precision)
    n_components = model.n_components or min(plan.n_samples, plan.n_features)
    n_bytes = source.layout.bytes
    seconds: dict[str, float] = {}
    if not plan.regular:
        outputs = Outputs(outputs.store, executor.guard())
    dims = create_outputs(outputs, plan, source, {"n_samples": plan.n_samples, "ddof": model.rules.ddof})
    how: dict[str, Any] = {"executor": executor, "progress": progress.advance}
    how |= {"n_tasks": made.n_tasks, "window": made.window}

    began = time.perf_counter()
    with streamed(source, made, scratch, executor, progress) as (streams, copied_absent):
        if made.copy is not None:
            seconds["copy"] = time.perf_counter() - began
        work = Pass(streams, plan, model.rules, dtype, outputs)

        began = time.perf_counter()
        with progress.stage("gram", n_bytes):
            try:
                partial = run_pass(gram_span, work, total=GramPartial.empty(plan.n_samples), merge=gram.merge, **how)
                trace_difference = check_trace(float(np.trace(partial.gram)), partial.squares, dtype)
            except PrecisionError as error:
                raise PrecisionError(f"{source.layout.name}: {error.message}", error.remedy) from error
        seconds["gram"] = time.perf_counter() - began

        began = time.perf_counter()
        threads = eigensolve_threads(plan.n_samples)
        with progress.stage("eigensolve"), threadpool_limits(threads, user_api="blas"):
            centred = center_gram(partial.gram) if model.rules.center else partial.gram
            spectrum = solve(
                centred,
                n_features=plan.n_features,
                n_components=n_components,
                center=model.rules.center,
                ddof=model.rules.ddof,
                working_dtype=dtype,
            )
        write_spectrum(outputs, spectrum, model.whiten)
        if keep_gram:
            outputs.write("gram", centred, ("sample", "sample_b"))
            outputs.write("gram_mean_product", partial.mean_product, ("sample",))
            outputs.write("gram_mean_norm2", partial.mean_norm2, ())
        seconds["eigensolve"] = time.perf_counter() - began
        counts = {
            "passes": 1 + components,
            "absent_chunks": partial.absent_chunks + copied_absent,
            "missing_values": partial.n_missing,
            "constant_features": partial.n_constant,
            "bytes_decoded": partial.bytes_read + (n_bytes if made.copy else 0),
            "bytes_copied_to_scratch": made.scratch_bytes,
        }
        del partial, centred

        measured: BackprojectionPartial | None = None
        if components:
            began = time.perf_counter()
            outputs.create_tiled("components", plan, dims, dtype, n_components)
            with progress.stage("components", n_bytes):
                measured = run_pass(
                    backprojection_span,
                    work,
                    spectrum.alpha.astype(dtype),
                    total=BackprojectionPartial.empty(plan.n_samples, n_components),
                    merge=merge_backprojections,
                    **how,
                )
            counts["bytes_decoded"] += measured.bytes_read
            seconds["components"] = time.perf_counter() - began
    outputs.finish()
    return Decomposition(
        plan=plan,
        spectrum=spectrum,
        certificate=certify(spectrum, trace_difference, measured),
        outputs=outputs,
        feature_dims=dims,
        working_dtype=dtype,
        eigensolve_threads=threads,
        counts=counts,
        seconds=seconds,
    )


def project(
    source: Source,
    fitted: Fitted,
    rules: Rules,
    made: RunPlan,
    executor: Executor,
    progress: Progress,
    *,
    scratch: str | None = None,
) -> NDArray[np.float64]:
    """Scores of new samples, ((Y - 1 m') diag(t)) W, in one pass over them.

    Parameters
    ----------
    source, made : new samples with the features of the fit in the same axes, and `plan_projection` of them
    fitted : means, scales and components of the fit
    rules : of the fit
    scratch : as for `decompose`

    Returns
    -------
    (n_samples, n_components) float64, not whitened
    """
    with (
        streamed(source, made, scratch, executor, progress) as (streams, _),
        progress.stage("transform", source.layout.bytes),
    ):
        return run_pass(
            projection_span,
            Pass(streams, made.plan, rules, np.dtype(np.float64)),
            fitted,
            total=np.zeros((made.plan.n_samples, fitted.components.shape[0])),
            merge=operator.iadd,
            executor=executor,
            progress=progress.advance,
            n_tasks=made.n_tasks,
            window=made.window,
        )


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
