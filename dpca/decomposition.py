"""PCA by the Gram matrix, whole: one pass for spectrum and scores, one more for components.

The workflow behind both `dpca run` and `dpca.PCA`: it takes plain values and writes arrays through
`Outputs`; where those live, and what is kept beside them, is the caller's.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from dpca.accumulators import gram
from dpca.backproject import BackprojectionPartial
from dpca.backproject import merge as merge_backprojections
from dpca.certificate import certify, check_trace
from dpca.engine import Executor, run_pass
from dpca.errors import ConfigError, InputError, PrecisionError
from dpca.outputs import Outputs, create_outputs, write_spectrum
from dpca.passes import Fitted, Pass, backprojection_span, gram_span, projection_span
from dpca.preprocess import Rules
from dpca.progress import Progress
from dpca.slabs import Plan, make_plan
from dpca.sources import Source
from dpca.spectrum import Spectrum, center_gram, solve

Precision = Literal["auto", "single", "double"]
Solver = Literal["auto", "gram_eigh"]

THREADED_EIGENSOLVE = 1000
MAX_EIGENSOLVE_THREADS = 8


@dataclass(frozen=True)
class Model:
    """What is asked for."""

    n_components: int | None = None
    """How many components; None for min(n_samples, n_features)."""
    rules: Rules = field(default_factory=Rules)
    """Preprocessing of each feature."""
    precision: Precision = "auto"
    """Of the products; accumulators are float64 always."""
    whiten: bool = False
    """Divide scores by the square root of their explained variance."""


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


def working_dtype(dtype: np.dtype[Any], precision: Precision) -> np.dtype[Any]:
    """The dtype of products.

    "auto" is float32 for bool, float16, float32 and integers of up to 16 bits, whose values float32 holds
    exactly, and float64 for wider types.
    """
    if precision == "auto":
        narrow = dtype.kind == "b" or (dtype.kind in "iu" and dtype.itemsize <= 2)
        precision = "single" if narrow or (dtype.kind == "f" and dtype.itemsize <= 4) else "double"
    return np.dtype(np.float32 if precision == "single" else np.float64)


def plan_for(source: Source, samples_axis: int | str, n_components: int | None) -> Plan:
    """The plan of a source, after checking that PCA is defined for it.

    Raises
    ------
    InputError
        When the samples axis does not exist, when there are fewer than two samples or no features.
    ConfigError
        When n_components exceeds min(n_samples, n_features).
    """
    layout = source.layout
    axis = layout.axis_of(samples_axis)
    if layout.shape[axis] < 2:
        raise InputError(
            f"{layout.name}: has {layout.shape[axis]} sample(s) along axis {axis} of shape {layout.shape}, "
            "but PCA needs at least 2",
            "If samples lie along another axis, set input.samples_axis.",
            key="input.samples_axis",
        )
    plan = make_plan(
        layout.shape,
        layout.dtype.itemsize,
        layout.chunks,
        samples_axis=axis,
        shards=layout.shards,
        order=layout.order,
        n_components=n_components or layout.shape[axis],
    )
    most = min(plan.n_samples, plan.n_features)
    if n_components is not None and not 1 <= n_components <= most:
        raise ConfigError(
            f"n_components is {n_components}, but {layout.name} has {plan.n_samples} samples and "
            f"{plan.n_features} features: from 1 to min(n_samples, n_features) = {most} is allowed",
            f"Set model.n_components to {most} or less"
            + (", or input.samples_axis if samples lie along another axis." if n_components > plan.n_samples else "."),
            key="model.n_components",
        )
    shared = getattr(source, "check_sharing", None)
    if shared is not None:
        slabs = (
            plan.region(slab)
            for span in range(plan.n_spans)
            for tile in plan.tiles_of(span)
            for slab in plan.slabs_of(tile)
        )
        shared(slabs, plan.n_slabs)
    return plan


def decompose(
    source: Source,
    model: Model,
    plan: Plan,
    outputs: Outputs,
    executor: Executor,
    progress: Progress,
    *,
    components: bool = True,
    keep_gram: bool = True,
) -> Decomposition:
    """Compute a PCA and write its arrays.

    Parameters
    ----------
    source, plan : the input, and how to go through it (`plan_for`)
    model : what is asked for
    outputs : the group to make; its arrays and dimensions are the result directory's
    executor : where spans run
    progress : told of three stages: gram, eigensolve, components
    components : False for one pass only
    keep_gram : write K, r and c too

    Raises
    ------
    DataError, StorageError
        At a value or a chunk that can't be used.
    PrecisionError
        When the products can't carry the data.
    """
    dtype = working_dtype(source.layout.dtype, model.precision)
    n_components = model.n_components or min(plan.n_samples, plan.n_features)
    n_bytes = int(np.prod(plan.shape)) * source.layout.dtype.itemsize
    seconds: dict[str, float] = {}
    if not plan.regular:
        outputs = Outputs(outputs.store, executor.guard())
    dims = create_outputs(outputs, plan, source, {"n_samples": plan.n_samples, "ddof": model.rules.ddof})
    work = Pass(source, plan, model.rules, dtype, outputs)

    began = time.perf_counter()
    with progress.stage("gram", n_bytes):
        try:
            partial = run_pass(gram_span, work, merge=gram.merge, executor=executor, progress=progress.advance)
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
        "absent_chunks": partial.absent_chunks,
        "missing_values": partial.n_missing,
        "constant_features": partial.n_constant,
        "bytes_decoded": partial.bytes_read,
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
                merge=merge_backprojections,
                executor=executor,
                progress=progress.advance,
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
    source: Source, fitted: Fitted, rules: Rules, samples_axis: int, executor: Executor, progress: Progress
) -> NDArray[np.float64]:
    """Scores of new samples, ((Y - 1 m') diag(t)) W, in one pass over them.

    Parameters
    ----------
    source : new samples with the features of the fit, in the same axes
    fitted : means, scales and components of the fit
    rules, samples_axis : of the fit

    Returns
    -------
    (n_samples, n_components) float64, not whitened
    """
    layout = source.layout
    plan = make_plan(
        layout.shape,
        layout.dtype.itemsize,
        layout.chunks,
        samples_axis=samples_axis,
        shards=layout.shards,
        order=layout.order,
        n_components=fitted.components.shape[0],
    )
    work = Pass(source, plan, rules, np.dtype(np.float64), Outputs(""))
    n_bytes = int(np.prod(plan.shape)) * layout.dtype.itemsize
    with progress.stage("transform", n_bytes):
        return run_pass(projection_span, work, fitted, merge=np.add, executor=executor, progress=progress.advance)


def eigensolve_threads(n_samples: int) -> int:
    """BLAS threads of the eigensolve: 1 for a small n, where more do not help, so that its bits are the same everywhere."""
    return 1 if n_samples < THREADED_EIGENSOLVE else min(os.cpu_count() or 1, MAX_EIGENSOLVE_THREADS)
