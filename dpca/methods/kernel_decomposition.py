"""The workflow of kernel PCA: one pass for the Gram matrix, then every requested kernel, in memory.

`model.kind: kernel_pca` and `dpca.KernelPCA` both call it. Where the matrix exists already, kept by an earlier run or
given as the input, there is no pass over data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpca.config.model import Model
from dpca.errors import ConfigError, PrecisionError
from dpca.execution.stage import Runner
from dpca.kernels import cases as kernel_cases
from dpca.kernels.cases import Case
from dpca.kernels.inner import Inner, row_lengths
from dpca.kernels.kernel import Kernel
from dpca.kernels.kinds import USES, kernel_of
from dpca.kernels.kinds.linear import Precomputed
from dpca.kernels.sweep import Kernels
from dpca.methods.climb import climb
from dpca.methods.dataset import Dataset
from dpca.methods.decomposition import Decomposition, counts_of, guarded, streamed
from dpca.methods.first_pass import Summed
from dpca.methods.kernel_arrays import write_cases
from dpca.methods.kernel_matrix import square_matrix
from dpca.methods.stages import Stages
from dpca.numerics.accumulators.factors import Factors
from dpca.numerics.accumulators.tallies import Counts
from dpca.numerics.certificate import caveats, certify
from dpca.numerics.gram_matrix import GramMatrix, SummedFeatures
from dpca.numerics.sketch import Sketch
from dpca.numerics.spectrum import Spectrum
from dpca.planning.job import Job
from dpca.planning.runplan import Attempt, RunPlan
from dpca.sources import Source
from dpca.store.arrays import (
    GROUP_SCALE,
    REGRESSION,
    REGRESSORS,
    create_outputs,
    dims_of,
    write_coordinates,
    write_genotypes,
)
from dpca.store.gram import ALL, read_gram, write_gram
from dpca.store.outputs import REGRESSOR, SAMPLE_GROUP, Outputs
from dpca.store.results import Result
from dpca.types import F64

ADOPTED = ("mean", "scale", "weights", REGRESSION, REGRESSORS, REGRESSOR, GROUP_SCALE, SAMPLE_GROUP)
OF_FEATURES = (*ALL, "mean", "scale", "weights")
"""Arrays that a result of a kernel matrix does not have."""


@dataclass(frozen=True)
class KernelDecomposition(Decomposition):
    """The results of all kernels; `spectrum` is that of the first."""

    cases: tuple[Case, ...]


@dataclass(frozen=True)
class _Solved:
    """All cases, and what they were computed from."""

    attempt: Attempt
    cases: tuple[Case, ...]
    gram: GramMatrix | None
    """None where the kernel matrix is the input."""

    @property
    def weakest(self) -> Spectrum:
        """The spectrum with the most components that are not supported."""
        spectra = [case.spectrum for case in self.cases]
        return max(spectra, key=lambda spectrum: int(spectrum.lacking.sum()) + spectrum.hidden)

    @property
    def unread(self) -> str:
        """None: the rules for kernels read the rank alone."""
        return ""


def decompose_kernels(job: Job, outputs: Outputs, runner: Runner) -> KernelDecomposition:
    """Compute kernel PCA with every kernel of the model, and write its arrays.

    Parameters
    ----------
    job, outputs, runner : as in `dpca.methods.decomposition.decompose`. Labels measure how well neighbours in the scores agree; of an earlier
        result whose Gram matrix is used, the arrays with feature axes are taken over, too
    """
    groups, model, run_plan = job.groups, job.model, job.run_plan
    if job.gram is not None:
        _adopt(job.gram, outputs)
    kept = None if job.gram is None else read_gram(job.gram)
    assert model.kernels is not None
    kernels, plan = model.kernels, run_plan.plan
    outputs = guarded(outputs, run_plan, runner)
    attributes: dict[str, Any] = {"n_samples": plan.n_samples, "ddof": model.rules.ddof}
    if kernels.sweep:
        attributes["coordinates"] = "kernel gamma degree coef0"
    copied_absent, dims, source = 0, dims_of(groups)[0][0], groups[0].source
    if kept is None and not kernels.precomputed:
        create_outputs(outputs, run_plan.plans, groups, attributes, model.rules, model.design)
        write_genotypes(outputs, source, dims, of_variants=True)
    else:
        outputs.create(attributes)
    if kernels.precomputed:
        write_coordinates(outputs, source, dims, {plan.samples_axis: dims.sample})
    stages, data = (
        Stages(runner),
        Dataset(groups, run_plan.plans, reference=model.reference, regression=model.regression),
    )
    cases = _Cases(stages, model, run_plan, job.labels)
    if kernels.precomputed:
        for name in OF_FEATURES:
            outputs.remove(name)  # left by kernels that the run was started with
        solved = cases.of_matrix(source)
    elif kept is not None:
        solved = cases.of_gram(kept, replace(run_plan.attempts[0], rung=kept.rung))
    else:
        with streamed(data, run_plan, job.scratch.path, stages) as (streams, copied_absent):
            solved = climb(stages, streams, job, outputs, cases.of_sum)
    gram = solved.gram
    if job.keep_gram and gram is not None:
        write_gram(outputs, gram, dims)
    write_cases(outputs, solved.cases, model, dims)
    outputs.gather()
    outputs.finish()
    counts, features = (Counts(), SummedFeatures(0)) if gram is None else (gram.counts, gram.features)
    return KernelDecomposition(
        plan=plan,
        spectrum=solved.cases[0].spectrum,
        certificate=_certificate(solved, model),
        outputs=outputs,
        rung=solved.attempt.rung,
        counts=counts_of(stages, run_plan, counts, copied_absent, features.counts),
        **stages.costs,
        cases=solved.cases,
    )


def _adopt(result: Result, outputs: Outputs) -> None:
    """Copy the arrays of a result that have feature axes, and its coordinates."""
    for name in (*ADOPTED, *result.dims.placed(result.samples_axis)):
        if name in result.arrays:
            outputs.copy(name, result.arrays[name])


@dataclass(frozen=True)
class _Cases:
    """Computes all kernels of a model from a matrix over the samples."""

    stages: Stages
    model: Model
    run_plan: RunPlan
    labels: NDArray[Any] | None

    def of_sum(self, summed: Summed) -> _Solved:
        """All kernels, from the sum of a first pass."""
        assert summed.gram is not None
        return self.of_gram(summed.gram, summed.attempt)

    def of_gram(self, gram: GramMatrix, attempt: Attempt) -> _Solved:
        """All kernels, from one Gram matrix."""
        kernels, inner, cases = self._kernels, Inner.of_gram(gram), list[Case]()
        n, d = gram.n_samples, gram.features.present
        for kernel in kernels.cases(d, inner):
            most = min(n - 1, d) if kernel.name == "linear" else n - 1
            try:
                matrix, noise = kernel.matrix(inner, gram.rounding)
                sketch = gram.sketch if kernel.name == "linear" else None
                name = f"{gram.rung.name} of kernel {kernel.digest}"
                cases.append(self._solve(name, kernel, matrix, noise, most, sketch))
            except (ConfigError, PrecisionError) as error:
                if not kernels.sweep:
                    raise
                failed = kernel_cases.failed(kernel, error.message, n, self._request)
                if isinstance(error, PrecisionError):  # another solver may give an answer
                    failed = replace(failed, spectrum=replace(failed.spectrum, hidden=n - 1))
                cases.append(failed)
        if all(case.problem for case in cases):
            error_type = PrecisionError if any(case.spectrum.hidden for case in cases) else ConfigError
            raise error_type(
                f"no kernel of the sweep gave an answer: {cases[0].problem}", "Choose other parameters.", "model.kernel"
            )
        return _Solved(attempt, tuple(cases), gram)

    def of_matrix(self, source: Source) -> _Solved:
        """The one case of a kernel matrix that is the input; its values are as exact as their stored type."""
        matrix, layout = square_matrix(source), source.layout
        self.stages.passes += 1
        self.stages.bytes_decoded += layout.bytes
        eps = float(np.finfo(layout.dtype).eps) if layout.dtype.kind == "f" else 0.0
        noise = eps * row_lengths(matrix)
        case = self._solve("precomputed", Precomputed(), matrix, noise, len(matrix) - 1)
        return _Solved(self.run_plan.attempts[0], (case,), None)

    @property
    def _kernels(self) -> Kernels:
        assert self.model.kernels is not None
        return self.model.kernels

    @property
    def _request(self) -> kernel_cases.Request:
        kernels, model = self._kernels, self.model
        return kernel_cases.Request(model.n_components, model.rules.ddof, kernels.remove_zero_eig, kernels.indefinite)

    def _solve(
        self, name: str, kernel: Kernel, matrix: F64, noise: F64, most: int, sketch: Sketch | None = None
    ) -> Case:
        """One case; `most` is the largest possible rank."""

        def eigensolve(finish: Callable[[], Factors]) -> Factors:
            return self.stages.eigensolve(name, finish, len(matrix), self.run_plan.eigensolve_threads)

        return kernel_cases.solve(kernel, matrix, noise, self._request, most, eigensolve, self.labels, sketch)


def _certificate(solved: _Solved, model: Model) -> dict[str, Any]:
    """The certificate of the one kernel, or of all cases of a sweep."""
    assert model.kernels is not None
    documents, gram = [], solved.gram
    for case in solved.cases:
        measured = certify(
            case.spectrum,
            solved.attempt.rung,
            exact=True if gram is None else gram.exact,
            trace_difference=0.0 if gram is None else gram.difference,
            effective_samples=model.effective_samples,
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
    """Caveats about each kernel, in sentences."""
    sentences = []
    for document in certificate.get("cases", [certificate]):
        case = document["case"]
        kernel = kernel_of(case["kernel"], **{name: case[name] for name in USES.get(case["kernel"], ())})
        sentences += case["notes"]
        if not case["problem"]:
            sentences += [f"kernel {kernel}: {sentence}" for sentence in caveats(document)]
    return sentences
