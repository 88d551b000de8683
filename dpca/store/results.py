"""A finished result: opened for reading, copied into memory, saved elsewhere."""

from __future__ import annotations

import math
import os
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpca.derived.regressors import grouped, terms_of
from dpca.errors import ConfigError, InputError, OutputExistsError, writing
from dpca.numerics.panels import Rules
from dpca.numerics.regression import Regressed
from dpca.numerics.rotation import RotationResult
from dpca.settings import OUTPUT, PREPROCESS
from dpca.sources.coordinate import Coordinate
from dpca.sources.credentials import check_local
from dpca.store.arrays import (
    COMPONENTS,
    CONVENTION,
    GROUP,
    GROUP_SCALE,
    REGRESSION,
    REGRESSORS,
    WEIGHTED_COMPONENTS,
    Dims,
    of_group,
)
from dpca.store.directory import (
    ARRAYS,
    ResultDirectory,
    SameRun,
    certificate_at,
    manifest_at,
    write_documents,
)
from dpca.store.earlier import certificate_of_run
from dpca.store.fitted import Fitted
from dpca.store.held import HeldArrays, HeldOutputs
from dpca.store.outputs import FORMAT_VERSION, Outputs
from dpca.store.stored import COORDINATES, LABELS, SAMPLES_AXES, Arrays
from dpca.store.synced import SyncedStore
from dpca.system import durable
from dpca.types import F64

THE_FIT = "this estimator"
"""The name of a fit in memory, in errors."""


@dataclass(frozen=True)
class Result:
    """A finished result, open for reading."""

    path: Path | None
    """Its directory; None for a fit that is only in memory."""
    manifest: dict[str, Any]
    arrays: Arrays | HeldArrays
    name: str
    """The name of the result in errors."""
    _certificate: dict[str, Any] | None = None
    group: str = ""
    """The group of features that is looked at, of several; empty for all, and where there is only one."""

    @property
    def groups(self) -> tuple[str, ...]:
        """The names of the groups of features; one of them, empty, where there was one input."""
        inputs = self.manifest["input"]
        return tuple(str(one["group"]) for one in inputs) if isinstance(inputs, list) else ("",)

    @property
    def reads(self) -> str:
        """How often the run read its data, in words; what it keeps in memory it reads once."""
        counts, data = self.manifest["counts"], self.manifest["input"]
        times, kept = f"{counts['passes']}", ""
        if self.manifest["keeps_data"]:  # or a part of them, where keeping more would have taken longer
            n_bytes = sum(one["decoded_bytes"] for one in (data if isinstance(data, list) else [data]))
            times, kept = f"{counts['bytes_decoded'] / n_bytes:.3g}", ", then kept in memory"
        return f"{times} read{'s' * (times != '1')} of the data{kept}"

    @property
    def names_of_sums(self) -> tuple[str, ...]:
        """The names of the groups of features that a Gram matrix was added up of each: the inputs, or labels within the only one."""
        return tuple(str(name) for name in self.arrays[GROUP][...]) if GROUP in self.arrays else self.groups

    @property
    def each(self) -> tuple[Result, ...]:
        """The result with each of its groups of features alone: its mean, components and dimensions are those of the group."""
        return tuple(replace(self, group=group) for group in self.groups)

    @property
    def input(self) -> dict[str, Any]:
        """The record of the input; of several, that of the group, or the first."""
        inputs = self.manifest["input"]
        if not isinstance(inputs, list):
            return dict(inputs)
        return dict(next(one for one in inputs if self.group in ("", one["group"])))

    @property
    def fingerprint(self) -> dict[str, Any]:
        """Identity of the input when it was read; of several, that of the group, or the first."""
        found: dict[str, Any] = self.manifest["fingerprint"]
        return dict(found[self.group or self.groups[0]]) if len(self.groups) > 1 else found

    @property
    def asked_input(self) -> dict[str, Any]:
        """The section `input` of the config; of a list, that of the group, or the first."""
        inputs = self.manifest["config"]["input"]
        if not isinstance(inputs, list):
            return dict(inputs)
        return dict(next(one for one in inputs if self.group in ("", one["name"])))

    def named(self, name: str) -> str:
        """The name of an array with feature axes."""
        return of_group(name, self.group)

    @property
    def place(self) -> Path:
        """The directory of a result that has one."""
        assert self.path is not None
        return self.path

    def check_still(self) -> None:
        """Refuse what was read of several arrays if the result was replaced meanwhile: it may be of both."""
        if self.path is not None:
            SameRun(self.name, self.path, self.run)()

    @property
    def filled_values(self) -> int:
        """Missing values that were replaced."""
        return int(self.manifest["counts"]["filled_values"])

    @property
    def certificate(self) -> dict[str, Any]:
        """The certificate: what was measured about the result."""
        if self._certificate is not None:
            return self._certificate
        return certificate_of_run(certificate_at(self.place, self.name), self.manifest)

    @property
    def notes(self) -> list[str]:
        """Notes for the user about it, in sentences."""
        caveat = self.certificate.get("caveat")
        return [*self.manifest["notes"], *([caveat] if caveat else [])]

    @property
    def run(self) -> str:
        """The identifier of the run that made it."""
        return str(self.manifest["run"])

    @property
    def samples_axis(self) -> int:
        return int(self.input["samples_axis"])

    @property
    def sample_dims(self) -> tuple[str, ...]:
        """The names of the axes of its samples, where these are several in the input; else of its only one."""
        return tuple(self.arrays.attributes.get(SAMPLES_AXES) or (self.dims.sample,))

    @property
    def kind(self) -> str:
        """pca or kernel_pca."""
        return str(self.manifest["config"]["model"]["kind"])

    @property
    def n_samples(self) -> int:
        return self.arrays["scores"].shape[-2]

    @property
    def feature_shape(self) -> tuple[int, ...]:
        """The lengths of the feature axes, of the only group."""
        return self.arrays[self.named("mean")].shape

    @property
    def units(self) -> str:
        """Units of the values of the only group; empty where they are not known."""
        mean = self.named("mean")
        return str(self.arrays[mean].attributes.get("units", "")) if mean in self.arrays else ""

    @property
    def long_name(self) -> str:
        """Name of the values of the only group, in words; empty where that is not known, and in results of earlier versions."""
        return str(self.input["long_name"])

    @property
    def unit_of_scores(self) -> str | None:
        """The unit of centred, scaled and weighted data; None where it is not known, and in results of earlier versions."""
        return self.arrays["singular_values"].attributes.get("units")

    @property
    def n_features(self) -> int:
        """The number of features, in all groups."""
        return sum(math.prod(one.feature_shape) for one in ([self] if self.group else self.each))

    @property
    def dims(self) -> Dims:
        """Names of its axes."""
        mean = self.named("mean")
        features = self.arrays[mean].dims if mean in self.arrays else ()
        return Dims(self.arrays["scores"].dims[-2], features, self.group)

    @property
    def labels(self) -> NDArray[Any] | None:
        """The label of each sample, (n_samples,), if the run had any."""
        if LABELS not in self.arrays:
            return None
        stored = self.arrays[LABELS]
        return np.array(stored[...].tolist()) if stored.text else np.asarray(stored[...])

    @property
    def n_components(self) -> int:
        return self.arrays["singular_values"].shape[-1]

    @property
    def rules(self) -> Rules:
        """The preprocessing of the fit."""
        preprocess = self.manifest["config"]["preprocess"]
        # For kernels, `center` only decides what they see: the data are streamed about their mean in any case.
        center = preprocess["center"] or self.kind == "kernel_pca"
        return Rules.of(preprocess, self.manifest["config"]["model"]["ddof"], center=center)

    def check_unit(self) -> None:
        """Refuse maps in the unit of the data where these were divided by scales that differ from sample to sample."""
        if self.rules.by_group:
            raise ConfigError(
                f"{self.name}: has no maps in the unit of the data (as_covariance), since {PREPROCESS.regress_out.scale} has divided each feature "
                "by a standard deviation of its own in each group of samples",
                "Multiply components by group_scale of the group that you want to see, or ask for as_correlation.",
            )

    @property
    def of_convention(self) -> tuple[str, NDArray[np.float64]] | None:
        """The convention that dosages were scaled by, and the eigenvalues as its program prints them; None for other data, and kernels."""
        scale = self.manifest["config"]["preprocess"]["scale"]
        if self.kind != "pca" or CONVENTION not in self.arrays or not isinstance(scale, Mapping):
            return None
        return str(scale["binomial"]), np.asarray(self.arrays[CONVENTION][...], np.float64)

    @property
    def is_whitened(self) -> bool:
        """Whether scores were divided by their standard deviations."""
        return bool(self.arrays["scores"].attributes["whitened"])

    @property
    def whitening(self) -> NDArray[np.float64]:
        """The divisors of the scores, (n_components,): 1 unless they are whitened."""
        return self.whitening_of(None)

    def whitening_of(self, case: int | None) -> NDArray[np.float64]:
        """The divisors of the scores of one of several kernels."""
        return self.deviations(case) if self.is_whitened else np.ones(self.n_components)

    def deviations(self, case: int | None = None) -> NDArray[np.float64]:
        """The divisors of whitening, (n_components,): the standard deviations of the scores, 1 where these are 0."""
        variance = np.asarray(self.arrays["explained_variance"][...], np.float64)
        deviation = np.sqrt(variance if variance.ndim == 1 else variance[case or 0])
        return np.where(deviation > 0, deviation, 1.0)

    @property
    def to_rotated(self) -> F64 | None:
        """The matrix that makes rotated scores of scores, (n_components, rotated ones); None where nothing was rotated.

        Both are whitened, or neither is.
        """
        if "rotation_matrix" not in self.arrays:
            return None
        matrix, variances = (
            np.asarray(self.arrays[name][...], np.float64) for name in ("rotation_matrix", "explained_variance")
        )
        k = matrix.shape[1]
        matrix[:k] = RotationResult(variances[:k], matrix[:k]).to_scores(self.is_whitened)
        return matrix

    @property
    def fitted(self) -> Fitted:
        """Means, scales and components; None instead of components for kernels, which have none."""
        mean, scale, weights = (self.arrays[self.named(name)] for name in ("mean", "scale", "weights"))
        if self.kind == "kernel_pca":
            return Fitted(mean, scale, weights, None, self.factor, self.regression)
        if self.named("components") not in self.arrays:
            raise InputError(
                f"{self.name}: has no components", f"Run it again with {OUTPUT.components.at(True)}, and --overwrite."
            )
        dual = self.arrays[self.named(WEIGHTED_COMPONENTS)] if self.has_inner_product else None
        return Fitted(mean, scale, weights, self.arrays[self.named(COMPONENTS)], self.factor, self.regression, dual)

    @property
    def has_inner_product(self) -> bool:
        """Whether components are orthonormal in an inner product of their own."""
        return self.named(WEIGHTED_COMPONENTS) in self.arrays

    @property
    def regression(self) -> Regressed | None:
        """Stored coefficients of what was subtracted beside the mean, and divisors in groups of samples; None for nothing."""
        coefficients, scales = (self.arrays.get(self.named(name)) for name in (REGRESSION, GROUP_SCALE))
        if coefficients is None:
            return None
        first = None if scales is None else grouped(terms_of(self.manifest["regressors"]))
        return Regressed(coefficients, scales, () if first is None else first.members)

    @property
    def regressors(self) -> F64 | None:
        """The regressors of the samples of the fit, (n_samples, p); None where it subtracts no regression."""
        return np.asarray(self.arrays[REGRESSORS][...], np.float64) if REGRESSORS in self.arrays else None

    @property
    def factor(self) -> float:
        """Factor of the features of the group, against those of other groups."""
        if "block_factor" not in self.arrays:
            return 1.0
        return float(np.asarray(self.arrays["block_factor"][...], np.float64)[self.groups.index(self.group)])

    def coordinate(self, name: str) -> Coordinate | None:
        """The coordinate along a dimension, where the input had one."""
        if name not in self.arrays:
            return None
        return self.arrays[name].as_coordinate

    def auxiliaries(self) -> Iterator[tuple[tuple[str, ...], Coordinate]]:
        """The coordinates that are no index, with the names of their axes."""
        for name in str(self.arrays.attributes.get(COORDINATES, "")).split():
            if name in self.arrays:
                yield self.arrays[name].dims, self.arrays[name].as_coordinate


def open_result(path: str | Path, name: str | None = None) -> Result:
    """Open a result directory.

    Parameters
    ----------
    name : its name in errors, if not its path

    Raises
    ------
    ConfigError, InputError
        When the path is a URL; when there is no result, when its run has not ended, or when a later version of dpca wrote it.
    """
    check_local(name or path, "the result")
    place = Path(path)
    manifest = manifest_at(place)
    store = place.absolute() / ARRAYS
    called = name or str(place)
    arrays = Arrays(str(store), called, manifest.get("arrays"), SameRun(called, place.absolute(), manifest["run"]))
    _ = arrays.group  # an error in opening it is raised now
    return Result(place, manifest, arrays, called)


def in_memory(result: Result, values: Mapping[str, NDArray[Any]] | None = None) -> Result:
    """A copy of a result in the memory of this process; `values` replace the stored values of some arrays."""
    outputs = HeldOutputs()
    _copy(result, outputs, values or {})
    return Result(None, result.manifest, outputs.result, THE_FIT, result.certificate)


def save_result(
    result: Result,
    place: Path,
    values: Mapping[str, NDArray[Any]],
    beside: Callable[[Path], Mapping[str, Any]] = lambda _: {},
) -> Path:
    """Write a result to a new directory: completely, or not at all.

    Parameters
    ----------
    values : replace the stored values of some arrays
    beside : writes further files to the directory that it is given, and returns their entries in the manifest
    """
    check_local(place, "path")
    ResultDirectory(place).check_name("path")
    if os.path.lexists(place):
        raise OutputExistsError(f"{place}: exists already", "Choose another path.")
    place = place.absolute()
    aside = place.with_name(f".{place.name}.{uuid.uuid4().hex}.partial")
    with writing(str(place)):
        durable.make_directories(aside)
        try:
            outputs = Outputs(SyncedStore(aside / ARRAYS))
            _copy(result, outputs, values)
            manifest = {
                **result.manifest,
                "format_version": FORMAT_VERSION,
                **beside(aside),
                "arrays": outputs.inventory(finished=True),
            }
            write_documents(aside, result.certificate, manifest)
            durable.move(aside, place)
        finally:
            durable.remove(aside)
    return place


def _copy(result: Result, outputs: Outputs, values: Mapping[str, NDArray[Any]]) -> None:
    outputs.create({**result.arrays.attributes, "format_version": FORMAT_VERSION})
    for name, stored in result.arrays.items():
        outputs.copy(name, stored, values.get(name))
    outputs.finish()
    result.check_still()
