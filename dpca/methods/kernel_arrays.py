"""The arrays of kernel PCA: those of one kernel, or of a sweep, with a dimension of cases."""

from __future__ import annotations

import numpy as np

from dpca.config.model import Model
from dpca.kernels.cases import Case
from dpca.store.arrays import SPECTRAL, Dims, write_scores, write_spectrum
from dpca.store.outputs import Outputs
from dpca.types import F64

CASE = "kernel_case"
TABLE = ("variance_captured", "components_95", "effective_rank", "neighbour_accuracy")
OF_A_SWEEP = ("kernel", "gamma", "degree", "coef0", "n_components", *TABLE)


def write_cases(outputs: Outputs, cases: tuple[Case, ...], model: Model, dims: Dims) -> None:
    """Write scores, alpha, spectra, and means that centre kernels of new samples."""
    assert model.kernels is not None
    for name in OF_A_SWEEP:
        outputs.remove(name)  # left by kernels that the run was started with
    with outputs.together():
        if model.kernels.sweep:
            _write_scores(outputs, cases, model, dims)
            _write_spectra(outputs, cases, dims)
            _write_table(outputs, cases)
            return
        (case,) = cases
        write_scores(outputs, case.spectrum, dims, model.whiten)
        outputs.write("kernel_mean", case.centering.columns, (dims.sample,))
        if case.accuracy is not None:
            outputs.write("neighbour_accuracy", case.accuracy, ())
        write_spectrum(outputs, case.spectrum)


def _write_scores(outputs: Outputs, cases: tuple[Case, ...], model: Model, dims: Dims) -> None:
    """Write scores and alpha of all cases: 0 beyond the components of a case, NaN for a case without an answer."""
    n, k = cases[0].spectrum.n_samples, max(case.spectrum.n_components for case in cases)
    for name in ("scores", "alpha"):
        shape, chunks = (len(cases), n, k), (1, n, max(1, k))
        attributes = {"whitened": model.whiten} if name == "scores" else {}
        outputs.create_array(name, shape, chunks, np.float64, (CASE, dims.sample, "component"), attributes=attributes)
    for number, case in enumerate(cases):
        spectrum = case.spectrum
        for name, values in (("scores", spectrum.scores(model.whiten)), ("alpha", spectrum.alpha)):
            padded = np.full((1, n, k), np.nan if case.problem else 0.0)
            padded[0, :, : values.shape[1]] = values if not case.problem else np.nan
            outputs.write_part(name, (slice(number, number + 1), slice(0, n), slice(0, k)), padded)


def _write_spectra(outputs: Outputs, cases: tuple[Case, ...], dims: Dims) -> None:
    """Write the spectra of all cases, and the means that centre them."""

    def write(name: str, values: list[F64], dim: str, beyond: float = 0.0) -> None:
        """Write a row for each case: its values, then `beyond` to fill it; NaN for a case without an answer."""
        padded = np.full((len(cases), max(map(len, values))), beyond)
        for row, value, case in zip(padded, values, cases, strict=True):
            row[: len(value)] = value
            if case.problem:
                row[...] = np.nan
        outputs.write(name, padded, (CASE, dim))

    spectra = [case.spectrum for case in cases]
    for name in SPECTRAL:
        beyond = np.nan if name == "projection_error" else 0.0
        write(name, [getattr(spectrum, name) for spectrum in spectra], "component", beyond)
    write("eigenvalues", [spectrum.eigenvalues for spectrum in spectra], "eigenvalue")
    write("kernel_mean", [case.centering.columns for case in cases], dims.sample)


def _write_table(outputs: Outputs, cases: tuple[Case, ...]) -> None:
    """Write the kernel of each case, its parameters, and what its table says."""
    documents = [case.document for case in cases]
    for name in TABLE:
        if any(document[name] is not None for document in documents):
            known = [np.nan if document["problem"] else document[name] for document in documents]
            outputs.write(name, np.array(known, np.float64), (CASE,))
    n_components = [0 if case.problem else case.spectrum.n_components for case in cases]
    outputs.write("n_components", np.array(n_components), (CASE,))
    for name in ("gamma", "degree", "coef0"):
        outputs.write(name, np.array([case.kernel.parameters[name] for case in cases], np.float64), (CASE,))
    outputs.write_text("kernel", [case.kernel.name for case in cases], CASE)
