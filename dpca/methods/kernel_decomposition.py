"""The workflow of kernel PCA: one pass for the Gram matrix, then every requested kernel, in memory.

`model.kind: kernel_pca` and `dpca.KernelPCA` both call it. Where the matrix exists already, kept by an earlier run or
given as the input, there is no pass over data.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpca.config.model import Model
from dpca.errors import ConfigError, DataError, InputError
from dpca.execution.stage import Runner
from dpca.kernels import cases as kernel_cases
from dpca.kernels.cases import Case
from dpca.kernels.kernel import USES, Inner, Kernel, longest_row
from dpca.methods.decomposition import Decomposition, streamed
from dpca.methods.passes import Pass, not_exact
from dpca.methods.steps import Steps, Summed
from dpca.numerics.accumulators.factors import F64
from dpca.numerics.accumulators.tallies import Counts
from dpca.numerics.certificate import caveats, certify
from dpca.numerics.preprocess import is_beyond_float64
from dpca.numerics.spectrum import Spectrum
from dpca.planning.runplan import Attempt, RunPlan
from dpca.slabs import placed
from dpca.sources import Source
from dpca.store.outputs import Dims, Outputs, create_outputs, write_coordinates, write_spectrum

UNKNOWN = 32
"""Assumed error of products, in eps, where no sketch tells (earlier versions): up to 23 were measured."""
ROWS_BYTES = 2**25
"""Bytes of kernel values that are read together."""
SPECTRAL = ("singular_values", "explained_variance", "explained_variance_ratio", "projection_error")

OF_FEATURES = ("gram", "gram_mean_product", "gram_mean_norm2", "gram_sketch", "gram_norms2", "mean", "scale", "weights")
TABLE = ("variance_captured", "components_95", "effective_rank", "neighbour_accuracy")
OF_A_SWEEP = ("kernel", "gamma", "degree", "coef0", "n_components", *TABLE)


@dataclass(frozen=True)
class KernelDecomposition(Decomposition):
    """The results of all kernels; `spectrum` is that of the first."""

    cases: tuple[Case, ...]


@dataclass(frozen=True)
class _Solved:
    """All cases, and the pass that they were computed from."""

    summed: Summed
    cases: tuple[Case, ...]

    @property
    def attempt(self) -> Attempt:
        return self.summed.attempt

    @property
    def weakest(self) -> Spectrum:
        """The spectrum with the most components that are not supported."""
        return max((case.spectrum for case in self.cases), key=lambda spectrum: int(spectrum.lacking.sum()))


def decompose_kernels(
    source: Source,
    model: Model,
    made: RunPlan,
    outputs: Outputs,
    runner: Runner,
    *,
    scratch: str | None = None,
    keep_gram: bool = True,
    labels: NDArray[Any] | None = None,
    kept: Summed | None = None,
) -> KernelDecomposition:
    """Compute kernel PCA with every kernel of the model, and write its arrays.

    Parameters
    ----------
    source, model, made, outputs, runner, scratch, keep_gram : as in `dpca.methods.decomposition.decompose`
    labels : a label of each sample, (n_samples,), to measure how well neighbours in the scores agree
    kept : the sums of an earlier run; the arrays with feature axes are then in `outputs` already

    Raises
    ------
    ConfigError
        When a kernel has values that are not finite, or negative eigenvalues that the model refuses.
    InputError, DataError
        When a given kernel matrix is not square, not symmetric or not finite.
    """
    assert model.kernels is not None
    kernels, plan = model.kernels, made.plan
    if not plan.regular:
        outputs = Outputs(outputs.store, runner.executor.guard())
    attributes: dict[str, Any] = {"n_samples": plan.n_samples, "ddof": model.rules.ddof}
    if kernels.sweep:
        attributes["coordinates"] = "kernel gamma degree coef0"
    copied_absent, dims = 0, Dims.of(source.layout.dims, plan.samples_axis)
    if kept is None and not kernels.precomputed:
        create_outputs(outputs, plan, source, attributes)
    else:
        outputs.create(attributes)
    if kernels.precomputed:
        write_coordinates(outputs, source, dims, {plan.samples_axis: dims.sample})
    steps = Steps(source, model, made, outputs, dims, runner)
    if kernels.precomputed:
        for name in OF_FEATURES:
            outputs.remove(name)  # left by kernels that the run was started with
        solved = _of_matrix(steps, model, made, labels, source)
    elif kept is not None:
        solved = _solve(steps, model, made, labels, kept)
    else:
        began = time.perf_counter()
        with streamed(source, made, scratch, runner) as (streams, copied_absent):
            if made.copy is not None:
                steps.seconds["copy"] = time.perf_counter() - began
            work = Pass(streams, plan, model.rules, made.attempts[0].rung.dtype, outputs=outputs)
            solved = steps.climb(work, partial(_solve, steps, model, made, labels))
    summed = solved.summed
    if keep_gram and summed.found is not None:
        steps.write_gram(summed)
    _write(outputs, solved.cases, model, dims.sample)
    outputs.gather()
    outputs.finish()
    counts = summed.counts
    return KernelDecomposition(
        plan=plan,
        spectrum=solved.cases[0].spectrum,
        certificate=_certificate(solved, model),
        outputs=outputs,
        rung=solved.attempt.rung,
        choices=tuple(steps.choices),
        counts={
            "passes": steps.passes + kernels.precomputed,
            "absent_chunks": counts.absent_chunks + copied_absent,
            "missing_values": counts.n_missing,
            "constant_features": summed.n_constant,
            "empty_features": summed.n_empty,
            "retried_reads": steps.retries,
            "bytes_decoded": steps.bytes_decoded + source.layout.bytes * (made.copy is not None or kernels.precomputed),
            "bytes_copied_to_scratch": made.scratch_bytes,
        },
        seconds=steps.seconds,
        traffic=steps.traffic,
        work=steps.work,
        cases=solved.cases,
    )


def _solve(steps: Steps, model: Model, made: RunPlan, labels: NDArray[Any] | None, summed: Summed) -> _Solved:
    """All kernels of the model, from one Gram matrix."""
    assert model.kernels is not None
    n, d, inner = made.plan.n_samples, made.plan.n_features - summed.n_empty, _inner(summed)
    rung, cases, eps, request = summed.attempt.rung, [], _rounding(summed), _request(model)
    for kernel in model.kernels.cases(d, inner):
        most = min(n - 1, d) if kernel.name == "linear" else n - 1
        eigensolve = partial(steps.eigensolve, f"{rung.name} of kernel {kernel.digest}")
        try:
            matrix, noise = kernel.matrix(inner, eps)
            known = summed.sketch if kernel.name == "linear" and summed.sketch is not None else noise
            cases.append(kernel_cases.solve(kernel, matrix, known, request, most, eigensolve, labels))
        except ConfigError as error:
            if not model.kernels.sweep:
                raise
            cases.append(kernel_cases.failed(kernel, error.message, n, request))
    if all(case.problem for case in cases):
        raise ConfigError(
            f"no kernel of the sweep gave an answer: {cases[0].problem}", "Choose other parameters.", "model.kernel"
        )
    return _Solved(summed, tuple(cases))


def _of_matrix(steps: Steps, model: Model, made: RunPlan, labels: NDArray[Any] | None, source: Source) -> _Solved:
    """The one case of a kernel matrix that is the input; its values are as exact as their stored type."""
    kernel, eigensolve = Kernel("precomputed"), partial(steps.eigensolve, "precomputed")
    matrix = square_matrix(source)
    eps = float(np.finfo(source.layout.dtype).eps) if source.layout.dtype.kind == "f" else 0.0
    noise = eps * longest_row(matrix)
    case = kernel_cases.solve(kernel, matrix, noise, _request(model), len(matrix) - 1, eigensolve, labels)
    nothing = Summed(
        attempt=made.attempts[0], found=None, exact=True, counts=Counts(), squares=0.0, difference=0.0, n_constant=0
    )
    return _Solved(nothing, (case,))


def _request(model: Model) -> kernel_cases.Request:
    assert model.kernels is not None
    return kernel_cases.Request(
        model.n_components, model.rules.ddof, model.kernels.remove_zero_eig, model.kernels.indefinite
    )


def _rounding(summed: Summed) -> float:
    """Error of an inner product, relative to the lengths of its samples, as the sketch measures it."""
    eps = float(np.finfo(np.float64).eps)
    if summed.sketch is not None and summed.product is not None:
        gram = summed.found
        return max(eps, summed.sketch.entries(summed.product, np.diagonal(gram.matrix), gram.tally.squares))
    return eps if summed.exact else UNKNOWN * float(np.finfo(summed.attempt.rung.dtype).eps)


def _inner(summed: Summed) -> Inner:
    tally = summed.found.tally
    return Inner.of_fit(summed.found.matrix, tally.mean_product, tally.mean_norm2, tally.squares)


def kernel_rows(source: Source, axis: int = 0) -> Iterator[tuple[slice, F64]]:
    """Rows of a kernel matrix that is the input, some at a time: each sample along `axis` with all samples of a fit.

    Raises
    ------
    InputError
        When the array does not have two axes.
    DataError
        When a value is not finite.
    """
    layout = source.layout
    if len(layout.shape) != 2:
        raise InputError(
            f"{layout.name}: has {len(layout.shape)} axes, shape {layout.shape}, but a kernel matrix has two",
            "Give the array of kernel values, samples by samples.",
            key="input.uri",
        )
    n, across = layout.shape[axis], layout.shape[1 - axis]
    chunk, (factor, offset) = layout.chunk_shape[axis], layout.packing
    step = chunk * max(1, ROWS_BYTES // (8 * chunk * max(1, across)))
    with source.open() as reader:
        for start in range(0, n, step):
            rows = slice(start, min(start + step, n))
            region = placed((slice(0, across), slice(0, across)), axis, rows)
            raw = reader.read(region)
            if raw.dtype.kind in "iu" and is_beyond_float64(raw, layout.marked(raw)).any():
                raise not_exact(layout, raw, region)
            values = np.array(raw, np.float64)
            values[layout.marked(raw)] = np.nan
            values = values * factor + offset
            if not np.isfinite(values).all():
                at = np.argwhere(~np.isfinite(values))[0]
                at[axis] += start
                raise DataError(
                    f"{layout.name}: the value at index {at.tolist()} is not finite",
                    "A kernel is defined for every two samples: compute what is missing, or leave those samples out.",
                )
            yield rows, np.ascontiguousarray(values.T if axis else values)


def check_columns(source: Source, axis: int, n_samples: int) -> None:
    """Refuse kernel values of new samples, along `axis`, whose number is not that of the samples of a fit.

    Raises
    ------
    InputError
        Names both numbers.
    """
    shape = source.layout.shape
    if len(shape) == 2 and shape[1 - axis] != n_samples:
        raise InputError(
            f"{source.layout.name}: has shape {shape}, new samples along axis {axis}, but the kernel of each with the "
            f"{n_samples} of the fit has {n_samples} values",
            "Give k(x_new, x_i), a row for each new sample.",
        )


def square_matrix(source: Source) -> F64:
    """The kernel matrix of a fit, (n, n).

    Raises
    ------
    InputError, DataError
        As in `kernel_rows`; and when it is not square.
    """
    shape = source.layout.shape
    if len(shape) == 2 and shape[0] != shape[1]:
        raise InputError(
            f"{source.layout.name}: has shape {shape}, but the kernel of the samples with each other is square",
            "Give k(x_i, x_j) of all pairs; kernels of new samples with them are for transform.",
            key="input.uri",
        )
    matrix = np.empty(shape)
    for rows, values in kernel_rows(source):
        matrix[rows] = values
    return matrix


def _write(outputs: Outputs, cases: tuple[Case, ...], model: Model, sample: str) -> None:
    """Write scores, alpha, spectra, and means that centre kernels of new samples; a sweep has a dimension of cases."""
    assert model.kernels is not None
    for name in OF_A_SWEEP:
        outputs.remove(name)  # left by kernels that the run was started with
    if not model.kernels.sweep:
        (case,) = cases
        _write_case(outputs, case, model, sample)
        return
    spectra = [case.spectrum for case in cases]
    n, k = spectra[0].n_samples, max(spectrum.n_components for spectrum in spectra)
    for name in ("scores", "alpha"):
        outputs.remove(name)
        attributes = {"whitened": model.whiten} if name == "scores" else {}
        dims = ("kernel_case", sample, "component")
        outputs.create_array(name, (len(cases), n, k), (1, n, max(1, k)), np.float64, dims, attributes=attributes)
    for number, case in enumerate(cases):
        for name, values in (("scores", _scores(case.spectrum, model)), ("alpha", case.spectrum.alpha)):
            padded = np.full((1, n, k), np.nan if case.problem else 0.0)
            padded[0, :, : values.shape[1]] = values if not case.problem else np.nan
            outputs.write_part(name, (slice(number, number + 1), slice(0, n), slice(0, k)), padded)

    def write(name: str, values: list[F64], dim: str, beyond: float = 0.0) -> None:
        """Write a row for each case: its values, then `beyond` to fill it; NaN for a case without an answer."""
        padded = np.full((len(cases), max(map(len, values))), beyond)
        for row, value, case in zip(padded, values, cases, strict=True):
            row[: len(value)] = value
            if case.problem:
                row[...] = np.nan
        outputs.write(name, padded, ("kernel_case", dim))

    for name in SPECTRAL:
        beyond = np.nan if name == "projection_error" else 0.0
        write(name, [getattr(spectrum, name) for spectrum in spectra], "component", beyond)
    write("eigenvalues", [spectrum.eigenvalues for spectrum in spectra], "eigenvalue")
    write("kernel_mean", [case.centering.columns for case in cases], sample)
    documents = [case.document for case in cases]
    for name in TABLE:
        if any(document[name] is not None for document in documents):
            known = [np.nan if document["problem"] else document[name] for document in documents]
            outputs.write(name, np.array(known, np.float64), ("kernel_case",))
    outputs.write(
        "n_components",
        np.array([0 if case.problem else case.spectrum.n_components for case in cases]),
        ("kernel_case",),
    )
    for name in ("gamma", "degree", "coef0"):
        outputs.write(name, np.array([getattr(case.kernel, name) for case in cases]), ("kernel_case",))
    outputs.write_text("kernel", [case.kernel.name for case in cases], "kernel_case")


def _scores(spectrum: Spectrum, model: Model) -> F64:
    return spectrum.scaled / spectrum.whitening if model.whiten else spectrum.scaled


def _write_case(outputs: Outputs, case: Case, model: Model, sample: str) -> None:
    spectrum = case.spectrum
    outputs.write("scores", _scores(spectrum, model), (sample, "component"), {"whitened": model.whiten})
    outputs.write("alpha", spectrum.alpha, (sample, "component"))
    outputs.write("kernel_mean", case.centering.columns, (sample,))
    if case.accuracy is not None:
        outputs.write("neighbour_accuracy", case.accuracy, ())
    write_spectrum(outputs, spectrum)


def _certificate(solved: _Solved, model: Model) -> dict[str, Any]:
    """The certificate of the one kernel, or of all cases of a sweep."""
    assert model.kernels is not None
    documents = []
    for case in solved.cases:
        measured = certify(
            case.spectrum,
            solved.attempt.rung,
            solved.summed.exact,
            solved.summed.difference,
            solved.summed.squares,
            None,
            model.effective_samples,
        )
        n_components = {"chosen": case.spectrum.n_components, "reason": case.reason, "suggested": {}}
        documents.append({**measured, "case": case.document, "n_components": n_components})
    if not model.kernels.sweep:
        return documents[0]
    good = sum(not case.problem for case in solved.cases)
    first = documents[0]
    shared = ("format_version", "solver", "precision", "exact_products", "trace_check", "effective_samples")
    return {
        **{name: first[name] for name in shared},
        "cases": documents,
        "verdict": f"{good} of {len(documents)} kernels, from one Gram matrix ({first['solver']}, {first['precision']}); "
        f"total variance checked to {first['trace_check']:.1e}",
    }


def caveats_of_kernels(certificate: Mapping[str, Any]) -> list[str]:
    """What the user must be told about each kernel, in sentences."""
    sentences = []
    for document in certificate.get("cases", [certificate]):
        case = document["case"]
        kernel = Kernel(case["kernel"], **{name: case[name] for name in USES.get(case["kernel"], ())})
        sentences += case["notes"]
        if not case["problem"]:
            sentences += [f"kernel {kernel}: {sentence}" for sentence in caveats(document)]
    return sentences
