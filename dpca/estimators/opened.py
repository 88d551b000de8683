"""The data behind a kept Gram matrix, in a notebook: maps of analyses in one read, new samples on analyses."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpca.analyses.answers import Answer
from dpca.analyses.axis import Axis
from dpca.analyses.kept import FittedPart, SourceResults
from dpca.analyses.maps import COMPONENTS, precisions, with_maps
from dpca.analyses.samples import Samples
from dpca.config.inputs import Input
from dpca.errors import DataError, InputError, OverBudgetError
from dpca.estimators.base import in_python, memory_bytes, new_directory, say_of_new_samples, scratch_beside
from dpca.execution.clusters import on_client
from dpca.execution.progress import Progress
from dpca.execution.stage import Executor, Runner, changed
from dpca.kernels.inner import Inner
from dpca.methods.applying import ScoredSamples
from dpca.methods.decomposition import guarded
from dpca.methods.features import check_coordinates, check_features
from dpca.methods.projectors import Absent, ByComponents
from dpca.methods.regressed import regressors_in
from dpca.methods.stages import Stages
from dpca.methods.training import cross, plan_cross
from dpca.planning.runplan import HeldArray, MapColumns, Workers
from dpca.sources import Source, as_source
from dpca.sources.groups import FeatureGroup, Groups, check_same_samples, named, parts_of
from dpca.sources.stacked import stacked
from dpca.store.arrays import of_group
from dpca.store.outputs import Outputs
from dpca.store.stored import Arrays
from dpca.store.synced import UnsyncedStore
from dpca.system.machine import memory_budget
from dpca.units import describe_memory, enough

OTHER_DATA = 1e-4
"""A larger residual of the first component is no rounding: data that were passed are other ones."""


@dataclass(frozen=True, eq=False)
class Opened:
    """State that all objects of one `open_gram` share."""

    kept: SourceResults
    samples: Samples
    """All samples of the run."""
    memory: int | str | None
    client: Any
    store: str | os.PathLike[str] | None
    given: Groups | None = None
    """The data, where the caller has passed them; None where they are read where the results say."""

    def __getstate__(self) -> dict[str, Any]:
        """Neither a client nor data are pickled."""
        return {**self.__dict__, "client": None, "given": None}

    @property
    def data(self) -> Groups:
        """The data of the results."""
        return self.kept.open() if self.given is None else self.given

    def connected(self) -> AbstractContextManager[Executor]:
        """Where passes run."""
        return on_client(self.client)

    def check(self, n_rows: int, matrices: int, beside: int = 0, what: str = "an analysis") -> None:
        """Refuse an analysis of so many rows that does not fit the memory.

        Parameters
        ----------
        matrices : of float64 over these rows that it holds, besides K
        beside : bytes that it holds beside them
        what : it is called
        """
        budget = memory_budget(memory_bytes(self.memory))
        needed = 8 * (self.samples.n**2 + matrices * n_rows**2) + beside
        if needed > budget.bytes:
            raise OverBudgetError(
                f"{self.kept.name}: {what} of {n_rows:,} rows of {self.samples.n:,} samples takes {describe_memory(needed)}, but the "
                f"budget is {describe_memory(budget.bytes)}, {budget.origin}",
                f"{'Ask for fewer draws or components' if beside else 'Select fewer rows'}, or open it with memory='{enough(needed)}'.",
            )

    def workers(self, executor: Executor) -> Workers:
        """Workers and memory of passes."""
        return executor.workers(memory_bytes(self.memory))


@dataclass(frozen=True, eq=False)
class Made:
    """Maps of an analysis, in files."""

    answer: Answer
    """With what was measured of them."""
    arrays: Arrays
    name: str
    """Name of their group."""
    side: int | None = None
    """Which of the sides of an analysis of two groups of features is meant; None for all."""

    def of(self, part: FittedPart, what: str = COMPONENTS) -> Any:
        """The map of a group of features: (k, features...) or (lags or frequencies, k, features...); or its standard errors."""
        found = self.arrays[of_group(f"{self.name}/{what}", part.name)]
        return found if self.side is None else OfSide(found, self.side)


@dataclass(frozen=True)
class OfSide:
    """Stored maps of two sides, (2, k, features...), as those of one, (k, features...)."""

    maps: Any
    side: int

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.maps.shape[1:])

    @property
    def attributes(self) -> dict[str, Any]:
        """Attributes of both sides."""
        return dict(self.maps.attributes)

    @property
    def chunks(self) -> tuple[int, ...]:
        """Chunks that are read at once."""
        return (self.maps.chunks[0] * self.maps.chunks[1], *self.maps.chunks[2:])

    @property
    def dtype(self) -> np.dtype[Any]:
        dtype: np.dtype[Any] = self.maps.dtype
        return dtype

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __getitem__(self, box: tuple[slice, ...]) -> NDArray[Any]:
        found: NDArray[Any] = np.asarray(self.maps[(slice(self.side, self.side + 1), *box)])
        of_side: NDArray[Any] = found[0]
        return of_side


def made_of(opened: Opened, asked: Sequence[Answer], held: Sequence[HeldArray]) -> list[Made]:
    """The maps of answers, in one read of the data.

    Parameters
    ----------
    held : what this process holds meanwhile
    """
    kept = opened.kept
    answers = {f"analysis_{number}": answer for number, answer in enumerate(asked)}

    def beside(columns: MapColumns) -> list[HeldArray]:
        n_numbers = opened.samples.n * (3 * columns.maps + 2 * columns.deviations)
        return [*held, HeldArray("answers of all analyses", 8 * n_numbers)]

    job = kept.maps_of(answers, opened.data, scratch_beside(opened.store), beside)
    with opened.connected() as executor:
        with in_python():
            job = job.planned(opened.workers(executor))
        place = new_directory(opened.store, COMPONENTS)
        try:
            stages = Stages(Runner(executor, Progress()))
            outputs = guarded(Outputs(UnsyncedStore(place / "maps.zarr")), job.run_plan, stages.runner)
            outputs.create({})
            found, _ = kept.make_maps(job, answers, stages, outputs, job.scratch.path)
            _check_unchanged(opened, job.groups)
            if opened.given is not None:
                _check_residuals(kept, found)
        except BaseException:
            shutil.rmtree(place, ignore_errors=True)
            raise
    arrays = Arrays(str(place / "maps.zarr"), f"components of {kept.name}", outputs.inventory())
    return [Made(with_maps(answer, found[name]), arrays, name) for name, answer in answers.items()]


def scores_on(
    opened: Opened, answer: Answer, made: Made | None, groups: Groups, covariates: Any = None, by: Any = None
) -> NDArray[np.float64]:
    """X_c W of new samples, (m, k): by their products with the data, in one read of both, or by maps, if there are any.

    Parameters
    ----------
    groups : the new samples, by group of features
    covariates, by : of them, as for `dpca.PCA.transform`, where a run has regressed some out
    """
    kept = opened.kept
    coefficients, weighting = answer.its_maps.coefficients, answer.its_maps.weighting
    given = None if weighting is None else weighting.factors
    factors = np.ones(len(kept.parts)) if given is None else given
    scores = np.zeros((groups[0].n_samples, coefficients.shape[1]))
    with in_python(), opened.connected() as executor:
        workers, runner = opened.workers(executor), Runner(executor, Progress())
        regressors = [regressors_in(part.result, groups, covariates, by) for part in kept.parts]
        missing = Absent(len(scores))
        if made is not None:
            for part, new, own, factor in zip(kept.parts, groups, regressors, factors, strict=True):
                if factor:
                    scores += factor * _by_components(part, made.of(part), new, own, workers, runner, missing)
            return _of_those_with_values(scores, missing, kept)
        data, (dtype, _) = opened.data, precisions([answer], kept.working_dtype)
        for part, old, new, own, factor in zip(kept.parts, data, groups, regressors, factors, strict=True):
            if not factor:
                continue
            regression, both = part.result.regression, (part.result.regressors, own)
            p = 0 if regression is None else regression.n_rows
            places = old.source, old.samples_axis, new.source, new.samples_axis
            beside = plan_cross(*places, dtype, workers, n_regressors=p)
            found = np.empty_like(scores)

            take_note = missing.of(part.name)

            def receive(
                samples: slice,
                inner: Inner,
                measured: ScoredSamples,
                found: NDArray[np.float64] = found,
                take_note: Callable[[slice, ScoredSamples], None] = take_note,
            ) -> None:
                found[samples] = inner.products @ coefficients
                take_note(samples, measured)

            cross(old.source, new.source, part.fitted, part.result.rules, dtype, beside, runner, receive, both)
            scores += factor**2 * found
    _check_unchanged(opened, data)
    return _of_those_with_values(scores, missing, kept)


def _of_those_with_values(scores: NDArray[np.float64], missing: Absent, kept: SourceResults) -> NDArray[np.float64]:
    """Scores, NaN for new samples without any value, with a warning."""
    scores[missing.everywhere] = np.nan
    say_of_new_samples(missing, kept.parts[0].result.rules.missing)
    return scores


def _by_components(
    part: FittedPart,
    components: Any,
    new: FeatureGroup,
    regressors: NDArray[np.float64] | None,
    workers: Workers,
    runner: Runner,
    missing: Absent,
) -> NDArray[np.float64]:
    """X_c W of new samples, by W; these alone are read."""
    fitted = replace(part.fitted, components=components)
    scores = np.empty((new.n_samples, components.shape[0]))

    def receive(samples: slice, found: NDArray[np.float64]) -> None:
        scores[samples] = found

    where = new.source, new.samples_axis
    projector = ByComponents(
        fitted, part.result.rules, *where, regressors=regressors, receive_measured=missing.of(part.name)
    )
    projector.plan(workers)
    projector.project(runner, receive)
    return scores


def new_samples(kept: SourceResults, X: Any) -> Groups:
    """New samples by group of features."""
    parts, names = parts_of(X), [part.name for part in kept.parts]
    if {*parts} != {*names}:
        given, wanted = (" and ".join(map(repr, sorted(some))) if any(some) else "one array" for some in (parts, names))
        raise InputError(f"X has {given}, but {kept.name} has {wanted}", "Give the same, in any order.")
    groups = []
    for part in kept.parts:
        given = parts[part.name]
        asked = part.result.asked_input["samples_axis"]
        source = given.open() if isinstance(given, Input) else stacked(as_source(given), asked)
        axis = _axis_in(part, source)
        check_features(part.result, source, axis)
        check_coordinates(part.result, source, axis)
        groups.append(FeatureGroup(source, axis, part.name))
    check_same_samples(groups)
    return tuple(groups)


def _axis_in(part: FittedPart, source: Source) -> int:
    """The samples axis of new samples: by name if their axes have names, otherwise as in the data of the result."""
    asked = part.result.asked_input["samples_axis"]
    by_name = not isinstance(asked, int) and any(source.layout.dims)
    return source.layout.axis_of(asked) if by_name else part.result.samples_axis


def axis_of(groups: Groups, ours: Axis) -> Axis:
    """The coordinate of new samples, under the name of those of the run."""
    for group in groups:
        with group.source.open() as reader:
            coordinate = reader.coordinate(group.samples_axis)
            if coordinate is not None:
                return Axis.of_coordinate(ours.name, coordinate)
    return Axis(ours.name, None)


def data_of(kept: SourceResults, X: Any) -> Groups:
    """The data of results, as the caller passes them."""
    groups, n = new_samples(kept, X), kept.first.n_samples
    if groups[0].n_samples != n:
        raise InputError(
            f"data has {groups[0].n_samples:,} samples, but {kept.name} has {n:,}", "Pass the data of the fit."
        )
    return groups


def _check_residuals(kept: SourceResults, found: Mapping[str, Mapping[str, Any]]) -> None:
    """Refuse data that a caller has passed and whose leading maps do not give the scores: they are not those of the fit."""
    first = [np.ravel(np.array(one["residual_data"], float))[0] for one in found.values()]
    if max(first) > OTHER_DATA:
        raise DataError(
            f"data is not what {kept.name} was made of: scores from it differ by {max(first):.0%}",
            "Pass the same values that the fit had.",
        )


def _check_unchanged(opened: Opened, groups: Groups) -> None:
    kept = opened.kept
    if opened.given is None and (changes := kept.changes(groups)):
        raise changed(named(groups), "; ".join(changes[:5]))
