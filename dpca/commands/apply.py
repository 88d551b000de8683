"""The workflows behind `dpca transform` and `dpca reconstruct`: their output appears complete, or not at all."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dpca.commands.aside import building, check_same_fit, forgetting
from dpca.commands.export_maps import SPACE
from dpca.config.inputs import Input, Inputs
from dpca.config.loading import is_config, load_inputs
from dpca.errors import ConfigError, InputError
from dpca.execution.clusters import SchedulerPlace, connect
from dpca.execution.progress import Display, Progress, Vitals
from dpca.execution.stage import Executor, Runner, changed
from dpca.execution.watching import keep_to, vitals_of
from dpca.genotypes.aligned import AlignedSource
from dpca.genotypes.variants import Variants
from dpca.methods.alleles import found_shares, shrinkage_of, variants_of
from dpca.methods.applying import ScoredSamples
from dpca.methods.features import check_coordinates, check_features, coordinates_to_compare
from dpca.methods.projectors import (
    Absent,
    ByComponents,
    ByKernel,
    ByMatrix,
    FromComponents,
    FromTraining,
    KernelFit,
    Projector,
    Restorer,
    training_of,
)
from dpca.methods.record import digest_of, fingerprint
from dpca.methods.recorded import check_places, paths_of
from dpca.methods.regressed import regressors_of
from dpca.planning.disk import check_room
from dpca.planning.runplan import RunPlan
from dpca.planning.search import side_by_side
from dpca.settings import INPUT, OUTPUT
from dpca.slabs import TILE_BYTES, Cuts
from dpca.sources import Source, expanded, list_arrays
from dpca.sources.coordinate import Coordinate, Vector
from dpca.sources.credentials import without_credentials, without_secrets
from dpca.sources.finding import LabelledAxis
from dpca.sources.groups import FeatureGroup, check_same_samples
from dpca.sources.groups import named as names_of
from dpca.sources.nifti import VoxelSpace
from dpca.store.arrays import Dims, coordinates_to_copy, held_to_copy, stage_of, write_coordinates
from dpca.store.outputs import ROTATED_COMPONENT, Outputs, pending_name
from dpca.store.results import Result, open_result
from dpca.store.stored import SAMPLES_AXES, Stored
from dpca.store.synced import SyncedStore
from dpca.store.unfinished import differences
from dpca.system.machine import watched_memory

ROTATED = "rotated_scores"
Projecting = Literal["least_squares", "mean"]
LEAST_SQUARES: Projecting = "least_squares"
FOR_A_WHILE = "in the end or for a while it was another"
CALL_RATE, PROJECTION_ERROR = "call_rate", "projection_standard_error"
"""Share of the features of the fit of which a sample has a value, and the standard errors of scores by least squares."""


@dataclass(frozen=True)
class Placement:
    """The place where a command runs, and the memory that it may take."""

    memory: int | None = None
    """Bytes; None for half of what is free."""
    workers: int | None = None
    """Threads on this machine; None for all cores."""
    scheduler: SchedulerPlace | None = None
    """A running Dask scheduler; None for this machine."""
    display: Display | None = None


@dataclass(frozen=True)
class Applied:
    """The output of a command."""

    path: Path
    shape: tuple[int, ...]
    notes: tuple[str, ...] = ()
    """Notes for the user about it."""


def transform(
    result: str | Path,
    given: str | Inputs,
    out: str | Path,
    *,
    overwrite: bool,
    place: Placement,
    kernel_case: int | None = None,
    training: str | None = None,
    projection: Projecting | None = None,
) -> Applied:
    """Scores of new samples, as a Zarr group with `scores` (sample, component): whitened if the result's are.

    Where the result has rotated components, `rotated_scores` (sample, rotated_component) are beside them.

    Parameters
    ----------
    result : a result directory
    given : new samples: a URI (array, samples axis and marks of missing values as in the fit), a YAML file that
        says where they are (`dpca.config.loading.load_inputs`), or its contents; for a fit of several inputs, a list of these
        names
    out : the group to create
    kernel_case : the number of the kernel, for a result that has several
    training : where the training data of a kernel are now, if they were moved
    projection : of samples with missing values: least_squares on the values that they have, with arrays call_rate and
        projection_standard_error; or mean, which counts a missing value as the fit's mean. None: least_squares for genotypes, else mean
    """
    fit = open_result(result)
    wheres = _inputs_of(fit, given)
    groups = tuple(_new_samples(where, one) for where, one in zip(wheres, fit.each, strict=True))
    check_same_samples(groups)
    covariates = next((where.covariates for where in wheres if where.covariates is not None), None)
    by = next((where.by for where in wheres if where.by is not None), None)
    regressors = regressors_of(fit, groups, covariates, by)
    projectors = [
        _projector(one, group, kernel_case, training, regressors) for one, group in zip(fit.each, groups, strict=True)
    ]
    by_least_squares = _projects_by_least_squares(fit, projectors, projection)
    of_features = not isinstance(projectors[0], ByMatrix)
    paths = [path for where in wheres for path in where.paths]
    with (
        _running(place) as (executor, progress, keep_to_plan),
        building(Path(out), overwrite, [fit.place, *paths, *_training_path(fit, training)]) as aside,
    ):
        named = next((group for group in groups if group.layout.dims[group.samples_axis] is not None), None)
        of_names = named or groups[0]
        dims = fit.dims if named is None else Dims.of(named.layout.dims, named.samples_axis)
        axis = {of_names.samples_axis: dims.sample}
        coordinates, left_out = coordinates_to_copy(of_names.source, dims, axis)
        if of_features:
            for one, group in zip(fit.each, groups, strict=True):
                coordinates |= coordinates_to_compare(one, group.source, group.samples_axis)
        plans = [projector.plan(executor.workers(place.memory), coordinates) for projector in projectors]
        plan = side_by_side(plans)
        keep_to_plan(plan)
        if of_features:
            for one, group in zip(fit.each, groups, strict=True):
                check_coordinates(one, group.source, group.samples_axis)
        identity = fingerprint(groups)
        what = {"command": "transform", "fit": fit.run, "input": identity, "kernel_case": kernel_case}
        if regressors is not None:  # the fingerprint of new samples says nothing of their covariates
            what["regressors"] = digest_of(regressors)
        if by_least_squares:
            what["projection"] = LEAST_SQUARES
        sources = [source for projector in projectors for source in projector.sources]
        n_bytes = sum(group.layout.bytes for group in groups)
        ledger = aside.begin(what, plans, n_bytes, progress, sources)
        outputs = Outputs(SyncedStore(aside.arrays))
        uris = [without_secrets(where.uri) for where in wheres]
        outputs.unit = fit.unit_of_scores
        outputs.create({"result": str(result), "input": uris if len(uris) > 1 else uris[0]})
        missing = Absent(groups[0].n_samples)
        written = _WrittenScores(outputs, fit.whitening_of(kernel_case), to_rotated=fit.to_rotated, missing=missing)
        for projector in projectors:
            if isinstance(projector, ByComponents | ByKernel):
                projector.receive_measured = missing.of(projector.name)
        written.create(groups[0].n_samples, plans[0], dims.sample, fit.is_whitened)
        if by_least_squares:
            projectors[0].receive_measured = written.measuring(dims.sample, missing.of(projectors[0].name))  # type: ignore[attr-defined]
        write_coordinates(outputs, of_names.source, dims, axis)
        said = _shrinkage(fit, groups[0].source, outputs, by_least_squares)
        _project(projectors, written, Runner(executor, progress, ledger))
        with forgetting(aside):
            if differences(identity, fingerprint(groups)) or ledger.stale(sources):
                raise changed(names_of(groups), FOR_A_WHILE)
            for projector in projectors:
                projector.check_unchanged()
        check_same_fit(fit, aside)
        outputs.finish()
    notes = [note for group in groups for note in group.source.notes]
    notes += [f"coordinate left out: {reason}" for reason in left_out]
    shape = groups[0].n_samples, projectors[0].n_components
    return Applied(
        Path(out),
        shape,
        (
            *dict.fromkeys(notes),
            *said,
            *missing.on_samples_without_values(),
            *missing.on_replaced_values(by_least_squares),
            *_of_few_values(sorted(written.few)),
            *_of_no_value(sorted(written.zero)),
        ),
    )


def _project(projectors: Sequence[Projector], written: _WrittenScores, runner: Runner) -> None:
    """Write the scores of new samples: those of inputs side by side are each computed in an array, and added up."""
    if len(projectors) == 1:
        _projected(projectors[0], written, runner)
        return
    parts = [written.of_input(projector.name) for projector in projectors]
    for projector, part in zip(projectors, parts, strict=True):
        _projected(projector, part, runner)
    written.add_up(parts)


def _projected(projector: Projector, written: _WrittenScores, runner: Runner) -> None:
    projector.project(runner, written.receive)
    if damage := written.damage:  # of scores that were written before this command resumed
        assert runner.ledger is not None
        runner.progress.say(f"{damage}: they are computed again")
        runner.ledger.checkpoint(projector.name).clear()
        projector.project(runner, written.receive)


def _new_samples(where: Input, fit: Result) -> FeatureGroup:
    """New samples, of which there is at least one; genotypes in the variants of the fit."""
    source = where.open()
    axis, _ = _samples_of(source, where)
    reference = variants_of(fit)
    if source.about(Variants) is not None:
        if reference is None:
            raise InputError(
                f"{fit.name}: keeps no record of the alleles of its variants, so that it can't be told whether {source.layout.name} counts the same",
                f"Fit the genotypes as one input with {OUTPUT.components.at(True)}.",
                key="input.uri",
            )
        if axis != 0:
            raise InputError(
                f"{source.layout.name}: people lie along axis {axis}, but variants are matched by id along it",
                f"Leave samples_axis out, or {INPUT.variants}, where variants are those of the fit.",
                key="input.samples_axis",
            )
        source = AlignedSource(source, reference, fit.name)
    return FeatureGroup(source, axis, fit.group)


def _shrinkage(fit: Result, source: Source, outputs: Outputs, by_least_squares: bool) -> list[str]:
    """Write how much smaller projected scores of genotypes are than those of the fit, and say it."""
    found = shrinkage_of(fit)
    if found is None:
        return []
    if isinstance(source, AlignedSource) and "components" in fit.arrays and not by_least_squares:
        found *= found_shares(fit, source.matching.places >= 0)
    outputs.write("shrinkage", found, ("component",))
    return [
        "scores of people who were not in the fit are closer to 0 than they would be in it, by factors of about "
        + ", ".join(f"{value:.3f}" for value in found[:10].tolist())
        + (" ..." if len(found) > 10 else "")
        + " (array shrinkage): divide scores by these to compare them"
    ]


def _samples_of(source: Source, where: Input) -> tuple[int, int]:
    """The samples axis of new samples, and their number, which is not 0."""
    axis = source.layout.axis_of(where.samples_axis)
    n_samples = source.layout.shape[axis]
    if not n_samples:
        raise InputError(
            f"{source.layout.name}: has no samples along axis {axis} of shape {source.layout.shape}",
            "Give at least one; if samples lie along another axis, name it in a YAML file: uri, samples_axis.",
        )
    return axis, n_samples


@dataclass
class _WrittenScores:
    """Scores of new samples, written as they come."""

    outputs: Outputs
    whitening: NDArray[np.float64]
    """By which the scores of each component are divided, (n_components,)."""
    name: str = "scores"
    to_rotated: NDArray[np.float64] | None = None
    """The matrix that makes rotated scores of these; None where there are none."""
    missing: Absent | None = None
    """Missing values of the samples; None for the part of one of several inputs."""
    beside: tuple[str, ...] = ()
    """Arrays of what is measured of the samples."""
    few: set[int] = field(default_factory=set)
    """Numbers of the samples that have too few values for least squares."""
    zero: set[int] = field(default_factory=set)
    """Numbers of the samples whose scores are all 0."""

    def create(self, n_samples: int, plan: RunPlan | None, dim: str, whitened: bool) -> None:
        """Create the array, in chunks that hold whole groups of samples."""
        k = len(self.whitening)
        together = plan.groups.step if plan and plan.groups else n_samples
        chunks = max(1, min(together, TILE_BYTES // (8 * max(1, k)))), max(1, k)
        attributes, dims = {"whitened": whitened}, (dim, "component")
        self.outputs.create_array(self.name, (n_samples, k), chunks, np.float64, dims, attributes=attributes)
        if self.to_rotated is not None:
            k = self.to_rotated.shape[1]
            dims = dim, ROTATED_COMPONENT
            self.outputs.create_array(ROTATED, (n_samples, k), (chunks[0], k), np.float64, dims, attributes=attributes)

    def measuring(
        self, dim: str, receive: Callable[[slice, ScoredSamples], None]
    ) -> Callable[[slice, ScoredSamples], None]:
        """A receiver of what was measured by least squares, which writes it and hands it on.

        Parameters
        ----------
        dim : the name of the axis of samples
        """
        (n_samples, k), chunks = self.outputs.array(self.name).shape, self.outputs.array(self.name).chunks
        self.beside = (CALL_RATE, PROJECTION_ERROR)
        self.outputs.create_array(CALL_RATE, (n_samples,), chunks[:1], np.float64, (dim,))
        self.outputs.create_array(PROJECTION_ERROR, (n_samples, k), chunks, np.float64, (dim, "component"))

        def write(group: slice, measured: ScoredSamples) -> None:
            assert measured.standard_errors is not None
            known = np.where(measured.kept > 0, 1 - measured.absent / np.maximum(measured.kept, 1), np.nan)
            self.outputs.write_part(CALL_RATE, (group,), known)
            self.outputs.write_part(PROJECTION_ERROR, (group, slice(0, k)), measured.standard_errors / self.whitening)
            receive(group, measured)

        return write

    @property
    def damage(self) -> str | None:
        """Fault of what was written; None if it is intact."""
        names = [self.name, *self.beside] if self.to_rotated is None else [self.name, *self.beside, ROTATED]
        return next((found for name in names if (found := self.outputs.damage(name))), None)

    def of_input(self, name: str) -> _WrittenScores:
        """An array like this one, for the part that one of several inputs has in the scores, not whitened."""
        array = self.outputs.array(self.name)
        dims = [str(dim) for dim in array.metadata.dimension_names or ()]  # type: ignore[union-attr]
        part = _WrittenScores(self.outputs, np.ones_like(self.whitening), pending_name(self.name, name))
        self.outputs.create_array(part.name, array.shape, array.chunks, np.float64, dims)
        return part

    def add_up(self, parts: Sequence[_WrittenScores]) -> None:
        """Write the sum of the parts, and remove them."""
        n_samples, k = self.outputs.array(self.name).shape
        for group in Cuts.of(n_samples, self.outputs.array(self.name).chunks[0]).within(slice(0, n_samples)):
            region = (group, slice(0, k))
            self.receive(group, np.sum([self.outputs.read_part(part.name, region) for part in parts], axis=0))
        for part in parts:
            self.outputs.remove(part.name)

    def receive(self, group: slice, scores: NDArray[np.float64]) -> None:
        """Write the scores of a group of samples, not whitened."""
        scores = scores / self.whitening
        if self.missing is not None:
            self.few.update(
                (group.start + np.flatnonzero(np.isnan(scores).any(axis=1) & ~self.missing.everywhere[group])).tolist()
            )
            scores[self.missing.everywhere[group]] = np.nan
        self.zero.update(group.start + int(i) for i in np.flatnonzero(~scores.any(axis=1)))
        self.outputs.write_part(self.name, (group, slice(0, len(self.whitening))), scores)
        if self.to_rotated is not None:
            self.outputs.write_part(ROTATED, (group, slice(0, self.to_rotated.shape[1])), scores @ self.to_rotated)


def _of_few_values(samples: list[int]) -> tuple[str, ...]:
    """The note on samples that have too few values for least squares."""
    if not samples:
        return ()
    named = ", ".join(map(str, samples[:5])) + (f" and {len(samples) - 5} more" if len(samples) > 5 else "")
    return (
        f"sample{'s' * (len(samples) > 1)} {named}: too few values to tell the components apart by least squares, and NaN in the result",
    )


def _of_no_value(samples: list[int]) -> tuple[str, ...]:
    """The note on samples whose scores are exactly 0."""
    if not samples:
        return ()
    named = ", ".join(map(str, samples[:5])) + (f" and {len(samples) - 5} more" if len(samples) > 5 else "")
    one = len(samples) == 1
    return (
        f"sample{'' if one else 's'} {named}: all scores are 0, since {'it has' if one else 'they have'} no value other than the "
        "fit's mean",
    )


def reconstruct_samples(
    result: str | Path,
    out: str | Path,
    *,
    samples: str | None = None,
    n_components: int | None = None,
    components: str | None = None,
    overwrite: bool,
    place: Placement,
    kernel_case: int | None = None,
    training: str | None = None,
) -> Applied:
    """Samples of a result from their scores, as a Zarr group with `reconstruction` in the axes of the input.

    Parameters
    ----------
    result : a result directory
    out : the group to create
    samples : which samples, such as 0:10,57 (zero-based, the end not included); None for all
    n_components : how many components are used; None for all
    components : the numbers of those that are used, from 1 on, such as 1,2,5; None for the first n_components
    kernel_case, training : as for `transform`
    """
    fit = open_result(result)
    most = fit.n_components
    if n_components is not None and not 1 <= n_components <= most:
        raise ConfigError(
            f"--n-components is {n_components}, but {fit.name} has {most} components",
            f"Give a number from 1 to {most}.",
        )
    used = _components_of(components, fit, n_components)
    k = max(used, default=n_components or most)
    chosen = _chosen(samples, fit)
    notes: list[str] = []
    each = fit.each
    restorers = [_restorer(one, chosen, k, used, out, kernel_case, training, notes.append) for one in each]
    with (
        _running(place) as (executor, progress, keep_to_plan),
        building(Path(out), overwrite, [fit.place, *_training_path(fit, training)]) as aside,
    ):
        coordinates = {found.name: (along, found) for one in each for along, found in _coordinates_of(one, chosen)}
        held = held_to_copy({name: found for name, (_, found) in coordinates.items()})
        plans = [restorer.plan(executor.workers(place.memory), held) for restorer in restorers]
        keep_to_plan(side_by_side(plans))
        what: dict[str, Any] = {
            "command": "reconstruct",
            "fit": fit.run,
            "samples": samples,
            "n_components": k,
            "case": kernel_case,
        }
        if used:
            what["components"] = used
        sources = [source for restorer in restorers for source in restorer.sources]
        n_bytes = sum(restorer.n_bytes for restorer in restorers)
        ledger = aside.begin(what, plans, n_bytes, progress, sources)
        if ledger.empty:  # else some of it is there
            check_room(n_bytes, out, "restore fewer samples (--samples)", key="--out")
        outputs = Outputs(SyncedStore(aside.arrays))
        spaces = {
            one.named("reconstruction"): found.facts
            for one in each
            if (found := VoxelSpace.in_facts(one.fingerprint)) is not None and one.samples_axis == 0
        }
        components_used = {"components": used} if used else {}
        whole = np.array_equal(chosen, np.arange(fit.n_samples))
        lengths = {name: length * whole for name, length in fit.arrays.attributes.get(SAMPLES_AXES, {}).items()}
        axes = {SAMPLES_AXES: lengths} if lengths else {}
        outputs.create(
            {"result": str(result), "n_components": k, **components_used, **({SPACE: spaces} if spaces else {}), **axes}
        )
        for name, (along, coordinate) in coordinates.items():
            outputs.write_coordinate(name, coordinate, *along)
        outputs.name_coordinates([name for name, (along, _) in coordinates.items() if along != (name,)])
        for one, restorer in zip(each, restorers, strict=True):
            restorer.restore(outputs, one.dims.placed(one.samples_axis), Runner(executor, progress, ledger))
        with forgetting(aside):
            if ledger.stale(sources):
                raise changed(", ".join(source.layout.name for source in sources), FOR_A_WHILE)
            for restorer in restorers:
                restorer.check_unchanged()
        check_same_fit(fit, aside)
        outputs.finish()
    shape = restorers[0].shape if len(restorers) == 1 else (len(chosen), fit.n_features)
    return Applied(Path(out), shape, tuple(notes))


def _coordinates_of(fit: Result, chosen: NDArray[np.int64]) -> Iterator[tuple[tuple[str, ...], Coordinate]]:
    """The coordinates of a result, with the names of their axes; along the samples, those of the chosen ones."""
    dims = fit.dims.placed(fit.samples_axis)
    indexes = [((dim,), found) for dim in dims if (found := fit.coordinate(dim)) is not None]
    for along, found in [*indexes, *fit.auxiliaries()]:
        if fit.dims.sample in along:
            stored = found.values

            def rows(piece: slice, stored: Stored = stored) -> NDArray[Any]:
                return stored.rows(chosen[piece])

            chunks = replace(found.parts, chunk=1)  # of which a piece may need as many as are in hand at a time
            values = Vector(found.name, (len(chosen),), stored.dtype, rows, chunks)
            yield along, replace(found, values=values, parts=chunks)
        elif {*along} <= {*dims}:
            yield along, found


def _projects_by_least_squares(fit: Result, projectors: Sequence[Projector], asked: Projecting | None) -> bool:
    """Whether scores are those by least squares on the values that samples have; sets it."""
    (only,) = projectors if len(projectors) == 1 else (None,)
    possible = isinstance(only, ByComponents) and only.rules.center and not fit.has_inner_product
    if asked == LEAST_SQUARES and not possible:
        raise ConfigError(
            f"--projection is {LEAST_SQUARES}, but {fit.name} has no components of one centred input, in the usual inner product",
            "Leave it out: missing values count as the mean of the fit.",
        )
    of_genotypes = variants_of(fit) is not None
    if isinstance(only, ByComponents) and possible:
        only.least_squares = asked == LEAST_SQUARES or (asked is None and of_genotypes)
        if only.least_squares and only.rules.missing == "error":  # nothing is put in the place of missing values
            only.rules = replace(only.rules, missing="mean")
        return only.least_squares
    return False


def _projector(
    fit: Result,
    group: FeatureGroup,
    case: int | None,
    training: str | None,
    regressors: NDArray[np.float64] | None,
) -> Projector:
    """The projector that computes scores of new samples, or the part of one of several inputs in them."""
    source, axis = group.source, group.samples_axis
    if fit.kind != "kernel_pca":
        _refuse_of_kernels(fit, case, training)
        check_features(fit, source, axis, in_files=True)
        rules = fit.rules
        if isinstance(source, AlignedSource):  # variants that new people lack are missing, whatever the fit allowed
            rules = replace(rules, missing="mean")
        return ByComponents(fit.fitted.projecting, rules, source, axis, stage_of("transform", group.name), regressors)
    kernel = KernelFit.of(fit, case)
    if kernel.kernel.name == "precomputed":
        _refuse_training(fit, training)
        return ByMatrix(kernel, source, axis)
    if isinstance(source, AlignedSource) and (n := source.matching.n_found) < (d := len(source.matching.places)):
        raise InputError(
            f"{source.layout.name}: has {n:,} of {d:,} variants of {fit.name}, but a kernel needs all of them",
            "Give data with all variants, or fit a PCA.",
            key="input.uri",
        )
    check_features(fit, source, axis, in_files=True)
    trained = training_of(fit, _training(fit, training))
    return ByKernel(fit.fitted, fit.rules, kernel, trained, source, axis, (fit.regressors, regressors))


def _components_of(text: str | None, fit: Result, n_components: int | None) -> list[int]:
    """The numbers of components in a text such as 1,2,5; none where it is None, for the first ones."""
    if text is None:
        return []
    if n_components is not None:
        raise ConfigError("--components and --n-components are given, but one says which are used", "Leave one out.")
    words = [word.strip() for word in text.split(",")]
    numbers = [int(word) for word in words if re.fullmatch(r"[0-9]{1,9}", word)]
    if len(numbers) < len(words) or len({*numbers} & {*range(1, fit.n_components + 1)}) < len(numbers):
        raise ConfigError(
            f"--components is {text}, but {fit.name} has the components 1 to {fit.n_components}, each once",
            "Write it like 1,2,5.",
        )
    return sorted(numbers)


def _restorer(
    fit: Result,
    chosen: NDArray[np.int64],
    k: int,
    used: list[int],
    out: str | Path,
    case: int | None,
    training: str | None,
    say: Callable[[str], None],
) -> Restorer:
    """The restorer that computes samples from their scores."""
    if fit.kind != "kernel_pca":
        _refuse_of_kernels(fit, case, training)
        return FromComponents(fit, chosen, k, str(out), tuple(used))
    if used:
        raise ConfigError(
            f"--components is for results of pca, but {fit.name} is of kernel_pca",
            "Give --n-components, for the first ones.",
        )
    kernel = KernelFit.of(fit, case)
    if kernel.kernel.name == "precomputed":
        raise ConfigError(
            f"{fit.name}: is of a kernel matrix, which has no features: there are no samples to combine",
            "Run it with the samples and a kernel of theirs.",
        )
    kernel = kernel.leading(k)
    return FromTraining(fit, fit.fitted, kernel, kernel.scores[chosen], training_of(fit, _training(fit, training)), say)


def _training(fit: Result, given: str | None) -> Input | None:
    """The place of the training data now, if it was given."""
    if given is None:
        return None
    as_fitted = fit.asked_input
    chosen = {name: as_fitted.get(name) for name in ("samples", "sample_names")}
    where = _input_of(fit, given)
    if is_config(given):
        return where
    check_places(chosen, fit.name, "Give the training data in a YAML file, with their samples.")
    return Input.model_validate({**where.model_dump(), **chosen})


def _training_path(fit: Result, given: str | None) -> list[Path]:
    """The path of a kernel's training data, if they are on this machine."""
    if fit.kind != "kernel_pca":
        return []
    where = _training(fit, given)
    return paths_of(fit, where.uris if where else ())


def _refuse_training(fit: Result, given: str | None) -> None:
    if given is not None:
        raise ConfigError(
            f"--training is {without_credentials(given)}, but {fit.name} is of a kernel matrix", "Leave it out."
        )


def _refuse_of_kernels(fit: Result, case: int | None, training: str | None) -> None:
    for option, given in (("--kernel-case", case), ("--training", training)):
        if given is not None:
            raise ConfigError(f"{option} is for results of kernel_pca, but {fit.name} is of pca", "Leave it out.")


def _inputs_of(fit: Result, given: str | Inputs) -> list[Input]:
    """The inputs of new samples, in the order of those of the fit."""
    found = given if isinstance(given, Input | list) else load_inputs(given) if is_config(given) else None
    names = fit.groups
    if names == ("",):
        return [
            _input_of(fit, str(given))
            if found is None
            else _one(found, f"{fit.name}: is of one input; the new samples")
        ]
    by_name = {one.name: one for one in found} if isinstance(found, list) else {}
    if {*by_name} != {*names}:
        has = f"a list of {', '.join(map(str, by_name))}" if by_name else "one input"
        raise ConfigError(
            f"{fit.name}: is of the inputs {', '.join(names)}, side by side, but new samples are given as {has}",
            "Give a YAML file with a list of inputs of these names.",
        )
    return [by_name[name] for name in names]


def _input_of(fit: Result, given: str) -> Input:
    """The input of new samples, or of training data, from a URI or a YAML file."""
    if is_config(given):
        return _one(load_inputs(given), given)
    as_fitted = fit.asked_input
    names = ["samples_axis", "gaps", "members", "features", "feature_shape", "absent_chunks", "missing_values"]
    names += ["engine", "engine_options"]
    if as_fitted.get("engine") or as_fitted["array"] in [item["path"] for item in list_arrays(expanded(given)[0])]:
        names.append("array")
    return Input(uri=given, **{name: as_fitted[name] for name in names if name in as_fitted})


def _one(where: Inputs, given: str) -> Input:
    """The only input of a YAML file."""
    if isinstance(where, list):
        raise ConfigError(f"{given}: are a list of inputs, but one is asked for", "Give the keys of one input.")
    return where


def _chosen(text: str | None, fit: Result) -> NDArray[np.int64]:
    """The sample numbers of a text such as 0:10,57, or of names and dates such as 1999-02."""
    n_samples = fit.n_samples
    if text is None:
        return np.arange(n_samples)
    ranges: list[NDArray[np.int64]] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(?:(\d+)|(\d*):(\d*))\s*", part)
        if match is None:
            ranges.append(_called(part.strip(), text, fit))
            continue
        single, first, last = match.groups()
        start = int(single if single is not None else first or 0)
        stop = start + 1 if single is not None else int(last or n_samples)
        if max(start + 1, stop) > n_samples:
            raise ConfigError(
                f"--samples {text}: {part!r} is not among the {n_samples} samples",
                f"Numbers from 0 to {n_samples - 1} are allowed; a range may end at {n_samples}.",
            )
        if start >= stop:
            raise ConfigError(
                f"--samples {text}: {part!r} is empty: a range ends before its second number", "Write it like 0:10,57."
            )
        ranges.append(np.arange(start, stop))
    return np.concatenate(ranges)


def _called(label: str, text: str, fit: Result) -> NDArray[np.int64]:
    """The numbers of all samples with a label."""
    coordinate = fit.coordinate(fit.dims.sample)
    if coordinate is not None:
        labelled = LabelledAxis(coordinate.name, np.asarray(coordinate.values[...]), coordinate.attributes)
        with suppress(InputError):  # no date of theirs
            if places := labelled.places(label):
                return np.array(places)
    if re.fullmatch(r"-\d+", label):
        raise ConfigError(
            f"--samples {text}: {label!r} counts from the end", "Count from 0, and write it like 0:10,57."
        )
    names = "" if coordinate is None else f" (they are called {', '.join(labelled.names[:3])} ...)"
    raise ConfigError(
        f"--samples {text}: {label!r} is neither a number nor a range, and no sample is called so{names}",
        "Count from 0, and write it like 0:10,57, or give names or dates as they are there.",
    )


@contextmanager
def _running(place: Placement) -> Iterator[tuple[Executor, Progress, Any]]:
    """An executor, progress that checks the memory budget, and a function that sets the plan with this budget."""
    kept: list[Any] = []
    looks: list[Callable[[], Vitals]] = []
    with connect(place.scheduler, place.workers) as executor, watched_memory() as peak:

        def check() -> None:
            for one in kept:
                one()

        progress = Progress(place.display, check=check, vitals=lambda: looks[-1]() if looks else None)

        def keep(run_plan: RunPlan | None) -> None:
            if run_plan is None:
                return
            looks.append(vitals_of(run_plan, peak, executor))
            if executor.shares_memory:
                kept.append(keep_to(run_plan.processes[0], peak))

        yield executor, progress, keep
