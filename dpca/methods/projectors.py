"""The ways to apply a result: new samples to scores, and scores to samples, by components or by kernels.

Each way is planned for the available workers, then run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from dpca.config.inputs import Input
from dpca.errors import ConfigError, DataError, InputError
from dpca.execution.stage import Runner
from dpca.kernels.inner import Centering, Inner
from dpca.kernels.kernel import Kernel
from dpca.kernels.kinds import kernel_of
from dpca.kernels.preimages import held_to_find, is_flat, weights_of
from dpca.methods.against import Combinations
from dpca.methods.applying import ScoredSamples, Scores
from dpca.methods.kernel_matrix import check_columns, kernel_rows
from dpca.methods.projection import plan_projection, plan_reconstruction, project, reconstruct
from dpca.methods.record import changes_of
from dpca.methods.recorded import input_of
from dpca.methods.training import TrainingPlan, cross, plan_cross, plan_preimages, preimages
from dpca.numerics.ladder import Rung
from dpca.numerics.panels import Rules
from dpca.planning.runplan import RunPlan, Workers
from dpca.settings import MODEL, PREPROCESS
from dpca.sources import Source
from dpca.sources.base import Layout, size_of
from dpca.sources.groups import alone
from dpca.sources.zarr_array import open_zarr
from dpca.store.arrays import stage_of
from dpca.store.directory import TRAINING
from dpca.store.fitted import Fitted
from dpca.store.gram import read_products, rung_of
from dpca.store.outputs import Outputs
from dpca.store.results import Result
from dpca.types import F64

Receive = Callable[[slice, F64], None]
"""Called with each group of samples, in order, and its scores, not whitened; may be called again with the same group."""


class Projector(Protocol):
    """A way from new samples to scores."""

    @property
    def name(self) -> str:
        """The name of its stage."""
        ...

    @property
    def n_components(self) -> int: ...
    @property
    def sources(self) -> tuple[Source, ...]:
        """The sources that are read."""
        ...

    def plan(self, workers: Workers, coordinates: Mapping[str, int] = {}) -> RunPlan | None:
        """The plan; None where nothing streams by.

        Parameters
        ----------
        coordinates : bytes that are held to copy or compare each coordinate before, by a name in words
        """
        ...

    def project(self, runner: Runner, receive: Receive) -> None:
        """Compute the scores."""
        ...

    def check_unchanged(self) -> None:
        """Raise an error if training data changed during the computation."""
        ...


class Absent:
    """The missing values of new samples, of all inputs: where one is missing, a sample counts as the mean of the fit."""

    def __init__(self, n_samples: int) -> None:
        self._n_samples = n_samples
        self._kept: dict[str, F64] = {}
        self._absent: dict[str, F64] = {}

    def of(self, name: str) -> Callable[[slice, ScoredSamples], None]:
        """Recorder of the samples of an input, by the name of its stage."""
        kept, absent = (found.setdefault(name, np.zeros(self._n_samples)) for found in (self._kept, self._absent))

        def receive(group: slice, measured: ScoredSamples) -> None:
            kept[group], absent[group] = measured.kept, measured.absent

        return receive

    @property
    def everywhere(self) -> NDArray[np.bool_]:
        """Mask of the samples without any value of a feature that the fit kept, (n_samples,): of them nothing is known."""
        kept, absent = (sum(found.values(), np.zeros(self._n_samples)) for found in (self._kept, self._absent))
        return np.asarray((absent == kept) & (kept > 0))

    def on_samples_without_values(self) -> list[str]:
        """The note on samples without any value; empty where there are none."""
        found = np.flatnonzero(self.everywhere)
        if not found.size:
            return []
        named = ", ".join(map(str, found[:5])) + (f" and {found.size - 5} more" if found.size > 5 else "")
        return [
            f"sample{'s' * (found.size > 1)} {named}: no value of a feature that the fit kept, and NaN in the result"
        ]

    def on_replaced_values(self, least_squares: bool = False) -> list[str]:
        """The note on missing values of other samples; empty where there are none."""
        absent = np.where(self.everywhere, 0, sum(self._absent.values(), np.zeros(self._n_samples)))
        if not absent.any():
            return []
        n, n_samples, worst = int(absent.sum()), int(np.count_nonzero(absent)), int(absent.argmax())
        said = (
            "were left out: scores are those by least squares on the values that there are (arrays call_rate, projection_standard_error)"
            if least_squares
            else "counted as what the fit expects there, so that scores are closer to 0 than with values"
        )
        return [
            f"{n:,} missing value{'s' * (n > 1)} of {n_samples:,} new sample{'s' * (n_samples > 1)}, most of sample {worst} "
            f"({int(absent[worst]):,}), {said}"
        ]


@dataclass
class ByComponents:
    """Scores of new samples by components; the samples are read once."""

    fitted: Fitted
    rules: Rules
    source: Source
    axis: int
    name: str = "transform"
    """The name of the stage."""
    regressors: F64 | None = None
    """Regressors of the samples, (samples, p), if the fit subtracts a regression."""
    receive_measured: Callable[[slice, ScoredSamples], None] | None = None
    """Called with each group before its scores, and with what belongs to them."""
    least_squares: bool = False
    """Whether scores are those by least squares on the values that there are."""
    run_plan: RunPlan = field(init=False)

    @property
    def n_components(self) -> int:
        return int(self.fitted.components.shape[0])

    @property
    def sources(self) -> tuple[Source, ...]:
        return (self.source,)

    def plan(self, workers: Workers, coordinates: Mapping[str, int] = {}) -> RunPlan:
        self.run_plan = plan_projection(self.source, self.axis, self.fitted, workers, coordinates, self.least_squares)
        return self.run_plan

    def project(self, runner: Runner, receive: Receive) -> None:
        def of_group(group: slice, scores: F64, measured: ScoredSamples) -> None:
            if self.receive_measured is not None:
                self.receive_measured(group, measured)
            receive(group, scores)

        project(
            self.source,
            self.fitted,
            self.rules,
            self.run_plan,
            runner,
            of_group,
            self.name,
            self.regressors,
            self.least_squares,
        )

    def check_unchanged(self) -> None:
        """Nothing to check: components are enough."""


class Restorer(Protocol):
    """A way from scores to samples."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def n_bytes(self) -> int: ...
    @property
    def sources(self) -> tuple[Source, ...]:
        """Sources that are read, see `Projector`."""
        ...

    def plan(self, workers: Workers, coordinates: Mapping[str, int] = {}) -> RunPlan:
        """The plan; parameters as in `Projector`."""
        ...

    def restore(self, outputs: Outputs, dims: tuple[str, ...], runner: Runner) -> None:
        """Write the samples."""
        ...

    def check_unchanged(self) -> None:
        """Check that data did not change, see `Projector`."""
        ...


@dataclass
class FromComponents:
    """Samples from their scores and components."""

    fit: Result
    chosen: NDArray[np.int64]
    n_components: int
    out: str
    used: tuple[int, ...] = ()
    """Numbers of the components that are used, from 1 on; none for all."""
    run_plan: RunPlan = field(init=False)

    @property
    def layout(self) -> Layout:
        """Layout of the array to write."""
        components, axis = self.fit.fitted.components, self.fit.samples_axis
        shape, chunks = list(self.fit.feature_shape), list(components.chunks[1:])
        shape.insert(axis, len(self.chosen))
        chunks.insert(axis, 1)
        name = stage_of(f"the reconstruction {self.out}", self.fit.group)
        return Layout(
            name,
            tuple(shape),
            components.dtype,
            tuple(chunks),
            dims=self.fit.dims.placed(axis),
            units=self.fit.units,
            long_name=self.fit.long_name,
        )

    @property
    def shape(self) -> tuple[int, ...]:
        return self.layout.shape

    @property
    def n_bytes(self) -> int:
        return self.layout.bytes

    @property
    def sources(self) -> tuple[()]:
        """No sources: scores and components are enough."""
        return ()

    def plan(self, workers: Workers, coordinates: Mapping[str, int] = {}) -> RunPlan:
        fit = self.fit
        self.run_plan = plan_reconstruction(
            self.layout, fit.samples_axis, fit.fitted, self.n_components, workers, coordinates
        )
        return self.run_plan

    def restore(self, outputs: Outputs, dims: tuple[str, ...], runner: Runner) -> None:
        factors = self.fit.whitening[: self.n_components]
        if self.used:
            factors = np.where(np.isin(np.arange(1, self.n_components + 1), self.used), factors, 0.0)
        scores = Scores(self.fit.arrays["scores"], factors, self.chosen, self.fit.regressors)
        reconstruct(self.fit.fitted, scores, self.layout, self.run_plan, outputs, runner, self.fit.group)

    def check_unchanged(self) -> None:
        """Nothing to check: components are enough."""


@dataclass(frozen=True)
class KernelFit:
    """A kernel of a result, with all that is needed to apply it."""

    kernel: Kernel
    alpha: F64
    scores: F64
    """Not whitened, (n, n_components)."""
    centering: Centering
    rung: Rung
    inverse: bool | str
    """How pre-images are found: fit_inverse_transform."""
    ridge: float
    """Ridge parameter of the regression that finds pre-images."""

    @classmethod
    def of(cls, result: Result, case: int | None) -> KernelFit:
        """One kernel of a result."""
        certificate = result.certificate
        number, document = _case(result, certificate, case)
        entry = document["case"]
        parameters = {name: entry[name] for name in ("gamma", "degree", "coef0") if entry[name] is not None}
        arrays = result.arrays

        def array(name: str) -> F64:
            return np.asarray(arrays[name][... if number is None else number], np.float64)

        columns, config = array("kernel_mean"), result.manifest["config"]
        return cls(
            kernel_of(entry["kernel"], about_mean=config["preprocess"]["center"], **parameters),
            array("alpha"),
            array("scores") * result.whitening_of(number),
            Centering(columns, float(columns.mean())),
            rung_of(result),
            config["model"]["fit_inverse_transform"],
            config["model"]["alpha"],
        )

    def leading(self, n_components: int) -> KernelFit:
        """This projector with the first components only."""
        return replace(self, alpha=self.alpha[:, :n_components], scores=self.scores[:, :n_components])

    def project(self, matrix: F64) -> F64:
        """Scores of new samples from their kernel with the samples of the fit, (m, n), which is centred in place."""
        return np.asarray(self.centering.apply(matrix) @ self.alpha, np.float64)


def _case(result: Result, certificate: dict[str, Any], case: int | None) -> tuple[int | None, dict[str, Any]]:
    """The number of a case, None where there is only one, and its certificate."""
    if "cases" not in certificate:
        if case not in (None, 0):
            raise ConfigError(f"--kernel-case is {case}, but {result.name} has one kernel", "Leave it out.")
        return None, certificate
    documents = certificate["cases"]
    if case is None and len(documents) > 1:
        raise ConfigError(
            f"{result.name}: has {len(documents)} kernels, and --kernel-case says which",
            f"Give a number from 0 to {len(documents) - 1}, in the order of its table.",
        )
    number = case or 0
    if not 0 <= number < len(documents):
        raise ConfigError(
            f"--kernel-case is {case}, but {result.name} has {len(documents)} kernels",
            f"Give a number from 0 to {len(documents) - 1}.",
        )
    if documents[number]["case"]["problem"]:
        raise ConfigError(
            f"{result.name}: kernel case {number} has no answer: {documents[number]['case']['problem']}",
            "Take another.",
        )
    return number, documents[number]


@dataclass(frozen=True)
class Training:
    """The training data of a kernel fit, needed again for new samples and for pre-images."""

    source: Source
    axis: int
    """Axis of the samples."""
    of: str
    """Name of the fit in error messages."""
    fingerprint: dict[str, Any] | None
    """Taken at the time of the fit; None for a copy in the result, whose checksums show damage."""

    def check_unchanged(self) -> None:
        """Refuse training data that changed since the fit."""
        if self.fingerprint is None:
            return
        changes = changes_of(self.fingerprint, alone(self.source, self.axis))
        if changes:
            raise DataError(
                f"{self.source.layout.name}: the training data of {self.of} changed since it was made: "
                f"{'; '.join(changes[:5])}",
                "Restore them, or run or fit it again.",
            )


def training_of(result: Result, moved_to: Input | None = None) -> Training:
    """The training data of a result, as they were when it was made.

    Parameters
    ----------
    moved_to : where they are now, if they were moved
    """
    if result.path is not None and result.manifest.get("training") and moved_to is None:
        # The copy lies beside the arrays, also after the result was moved.
        copy = open_zarr(str(result.path.absolute() / TRAINING), absent_chunks="damage")
        return Training(copy, result.samples_axis, result.name, None)
    if len(result.groups) > 1:
        raise ConfigError(
            f"{result.name}: is of kernels of several inputs ({', '.join(result.groups)}), which can't be applied to new samples",
            "Fit kernels of one input; PCA of several can be applied.",
        )
    where = moved_to or input_of(result, remedy="Name them with --training (training=... in Python).")
    try:
        source = where.open()
    except InputError as cause:
        raise DataError(
            f"{result.name}: a kernel needs its training data again, which can't be opened at {where.uri}: {cause.marked_message}",
            "Put them back, or say where they are now with --training.",
        ) from cause
    training = Training(source, result.samples_axis, result.name, result.manifest["fingerprint"])
    training.check_unchanged()
    return training


@dataclass
class ByKernel:
    """Scores of new samples by their kernel with the training samples; both are read once."""

    fitted: Fitted
    """Means and scales."""
    rules: Rules
    kernel: KernelFit
    training: Training
    source: Source
    axis: int
    regressors: tuple[F64 | None, F64 | None] = (None, None)
    """Regressors of the training samples and of the new ones, if the fit subtracts a regression."""
    receive_measured: Callable[[slice, ScoredSamples], None] | None = None
    """Field of `ByComponents` of the same name."""
    beside: TrainingPlan = field(init=False)
    name: ClassVar[str] = "transform"

    @property
    def n_components(self) -> int:
        return int(self.kernel.alpha.shape[1])

    @property
    def sources(self) -> tuple[Source, ...]:
        return self.training.source, self.source

    def plan(self, workers: Workers, coordinates: Mapping[str, int] = {}) -> RunPlan:
        training, dtype, regression = self.training, self.kernel.rung.dtype, self.fitted.regression
        p = 0 if regression is None else regression.n_rows
        self.beside = plan_cross(training.source, training.axis, self.source, self.axis, dtype, workers, coordinates, p)
        return self.beside.run_plan

    def project(self, runner: Runner, receive: Receive) -> None:
        def of_group(group: slice, inner: Inner, measured: ScoredSamples) -> None:
            if self.receive_measured is not None:
                self.receive_measured(group, measured)
            eps = float(np.finfo(self.kernel.rung.dtype).eps)
            receive(group, self.kernel.project(self.kernel.kernel.of_new(inner, eps)))

        cross(
            self.training.source,
            self.source,
            self.fitted,
            self.rules,
            self.kernel.rung.dtype,
            self.beside,
            runner,
            of_group,
            self.regressors,
        )

    def check_unchanged(self) -> None:
        self.training.check_unchanged()


@dataclass
class ByMatrix:
    """Scores of new samples from given kernel values."""

    kernel: KernelFit
    source: Source
    axis: int
    name: ClassVar[str] = "transform"

    @property
    def n_components(self) -> int:
        return int(self.kernel.alpha.shape[1])

    @property
    def sources(self) -> tuple[Source, ...]:
        return (self.source,)

    def plan(self, workers: Workers, coordinates: Mapping[str, int] = {}) -> None:
        check_columns(self.source, self.axis, len(self.kernel.alpha))

    def project(self, runner: Runner, receive: Receive) -> None:
        for rows, values in kernel_rows(self.source, self.axis):
            receive(rows, self.kernel.project(values))

    def check_unchanged(self) -> None:
        """Nothing to check: there are no training data."""


@dataclass
class FromTraining:
    """Samples from scores of a kernel, as linear combinations of the training samples: one read of these."""

    result: Result
    fitted: Fitted
    """Means and scales."""
    kernel: KernelFit
    points: F64
    """Scores, not whitened, (n_points, n_components), of as many components as the kernel has."""
    training: Training
    say: Callable[[str], None] | None = None
    """Called with notes for the user about the samples."""
    run_plan: RunPlan = field(init=False)

    def __post_init__(self) -> None:
        kernel = self.kernel.kernel
        if self.fitted.regression is not None:
            raise ConfigError(
                f"{self.result.name}: is a kernel PCA after {PREPROCESS.regress_out}, which can't reconstruct samples",
                "Reconstruct from kind: pca, which adds the fit; or compute anomalies before, and fit kernels to these.",
            )
        if kernel.name != "linear" and not self.kernel.inverse:
            raise ConfigError(
                f"{self.result.name}: samples of kernel {kernel} can't be reconstructed: its {MODEL.fit_inverse_transform} is "
                "false",
                f"Run it again with {MODEL.fit_inverse_transform.at(True)} and --from-gram {self.result.path}, which reads no data.",
            )

    @property
    def shape(self) -> tuple[int, ...]:
        shape = list(self.result.feature_shape)
        shape.insert(self.training.axis, len(self.points))
        return tuple(shape)

    @property
    def n_bytes(self) -> int:
        return size_of(self.shape, self.kernel.rung.dtype)

    @property
    def sources(self) -> tuple[Source, ...]:
        return (self.training.source,)

    def plan(self, workers: Workers, coordinates: Mapping[str, int] = {}) -> RunPlan:
        kernel, training, m = self.kernel, self.training, len(self.points)
        to_find = held_to_find(kernel.inverse, m, *kernel.alpha.shape)
        dtype = kernel.rung.dtype
        self.run_plan = plan_preimages(training.source, training.axis, m, dtype, workers, to_find, coordinates)
        return self.run_plan

    def restore(self, outputs: Outputs, dims: tuple[str, ...], runner: Runner) -> None:
        preimages(
            self.training.source,
            self.fitted,
            self.result.rules,
            self._combinations(),
            self.run_plan,
            dims,
            outputs if self.run_plan.plan.regular else outputs.guarded_by(runner.executor.guard()),
            runner,
            self.kernel.rung.dtype,
        )

    def check_unchanged(self) -> None:
        self.training.check_unchanged()

    def _combinations(self) -> Combinations:
        fit, how = self.kernel, self.kernel.inverse
        gram = read_products(self.result) if how == "fixed_point" else None
        if self.say is not None and how is True and is_flat(fit.kernel, fit.scores):
            self.say(
                f"kernel {fit.kernel} is the same between all scores, so that ridge regression gives the mean for each; "
                "model.fit_inverse_transform: fixed_point would not"
            )
        found = weights_of(
            fit.kernel, how, self.points, fit.scores, fit.alpha, fit.ridge, gram, self.say or (lambda _: None)
        )
        return Combinations(*found)
