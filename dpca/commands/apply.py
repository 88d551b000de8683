"""The workflows behind `dpca transform` and `dpca reconstruct`: their output appears complete, or not at all."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import zarr
from numpy.typing import NDArray

from dpca.config.loading import load_input
from dpca.config.schema import Input
from dpca.errors import ConfigError, DataError, DpcaError, InputError, LockedError, OutputExistsError, writing
from dpca.execution.clusters import SchedulerPlace, connect
from dpca.execution.progress import Display, Progress, Vitals
from dpca.execution.stage import Executor, Runner, changed
from dpca.execution.watching import keep_to, vitals_of
from dpca.methods.features import check_coordinates, check_features, coordinates_to_compare
from dpca.methods.projectors import (
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
from dpca.planning.runplan import RunPlan
from dpca.slabs import TILE_BYTES
from dpca.sources import Source, list_arrays
from dpca.sources.base import Coordinate, Vector
from dpca.sources.credentials import without_credentials
from dpca.store.ledger import Ledger
from dpca.store.outputs import Dims, Outputs, SyncedStore, coordinates_to_copy, held_to_copy, write_coordinates
from dpca.store.results import Result, ResultDirectory, open_result
from dpca.store.stored import Stored
from dpca.store.unfinished import NUMERICS, differences
from dpca.system import durable
from dpca.system.lock import Lock
from dpca.system.machine import watched_memory
from dpca.system.signals import Stopped

T = TypeVar("T")


@dataclass(frozen=True)
class Place:
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
    """What the user must know about it."""


def transform(
    result: str | Path,
    given: str | Input,
    out: str | Path,
    *,
    overwrite: bool,
    place: Place,
    kernel_case: int | None = None,
    training: str | None = None,
) -> Applied:
    """Scores of new samples, as a Zarr group with `scores` (sample, component): whitened if the result's are.

    Parameters
    ----------
    result : a result directory
    given : new samples: a URI (array, samples axis and marks of missing values as in the fit), a YAML file that
        says where they are (`dpca.config.schema.load_input`), or its contents as an `Input`
    out : the group to create
    kernel_case : the number of the kernel, for a result that has several
    training : where the training data of a kernel are now, if they were moved

    Raises
    ------
    InputError, DataError
        When features are not those of the fit, or a value is not finite; when a kernel's training data are missing
        or changed.
    """
    fit = open_result(result)
    where = given if isinstance(given, Input) else _input_of(fit, given)
    source = where.open()
    axis = source.layout.axis_of(where.samples_axis)
    projector = _projector(fit, source, axis, kernel_case, training)
    of_features = not isinstance(projector, ByMatrix)
    n_samples = source.layout.shape[axis]
    if not n_samples:
        raise InputError(
            f"{source.layout.name}: has no samples along axis {axis} of shape {source.layout.shape}",
            "Give at least one; if samples lie along another axis, name it in a YAML file: uri, samples_axis.",
        )
    inside = [] if "://" in where.uri else [Path(where.uri)]
    with (
        _running(place) as (executor, progress, keep_to_plan),
        _building(Path(out), overwrite, [fit.place, *inside, *_training_path(fit, training)]) as aside,
    ):
        named = source.layout.dims[axis] is not None
        dims = Dims.of(source.layout.dims, axis) if named else fit.dims
        coordinates, left_out = coordinates_to_copy(source, dims, {axis: dims.sample})
        if of_features:
            coordinates |= coordinates_to_compare(fit, source, axis)
        plan = projector.plan(executor.workers(place.memory), coordinates)
        keep_to_plan(plan)
        if of_features:
            check_coordinates(fit, source, axis)
        what = {"command": "transform", "fit": fit.run, "input": source.fingerprint(), "kernel_case": kernel_case}
        ledger = aside.begin(what, plan, source.layout.bytes, progress, projector.sources)
        runner = Runner(executor, progress, ledger)
        outputs = Outputs(SyncedStore(aside.arrays))
        outputs.create({"result": str(result), "input": without_credentials(where.uri)})
        k = projector.n_components
        together = plan.groups.step if plan and plan.groups else n_samples
        rows = max(1, min(together, TILE_BYTES // (8 * max(1, k))))
        shape = (n_samples, k)
        of_scores, attributes = (dims.sample, "component"), {"whitened": fit.is_whitened}
        outputs.create_array("scores", shape, (rows, max(1, k)), np.float64, of_scores, attributes=attributes)
        write_coordinates(outputs, source, dims, {axis: dims.sample})
        whitening, alike = fit.whitening_of(kernel_case), set[int]()

        def receive(group: slice, scores: NDArray[np.float64]) -> None:
            alike.update(group.start + int(i) for i in np.flatnonzero(~scores.any(axis=1)))
            outputs.write_part("scores", (group, slice(0, k)), scores / whitening)

        projector.project(runner, receive)
        if damage := outputs.damage("scores"):  # of scores that were written before this command resumed
            progress.say(f"{damage}: they are computed again")
            ledger.checkpoint("transform").clear()
            projector.project(runner, receive)
        if differences(what["input"], source.fingerprint()) or ledger.stale(projector.sources):
            aside.forget()
            raise changed(source.layout.name, "in the end or for a while it was another")
        with _forgetting(aside):
            projector.check_unchanged()
        _check_same_fit(fit, aside)
        outputs.finish()
    notes = [f"coordinate left out: {reason}" for reason in left_out]
    return Applied(Path(out), shape, (*notes, *_of_no_value(sorted(alike))))


def _of_no_value(samples: list[int]) -> tuple[str, ...]:
    """The note on samples whose scores are exactly 0."""
    if not samples:
        return ()
    named = ", ".join(map(str, samples[:5])) + (f" and {len(samples) - 5} more" if len(samples) > 5 else "")
    one = len(samples) == 1
    return (
        f"sample{'' if one else 's'} {named}: all scores are 0, since {'it has' if one else 'they have'} no value, or no value "
        "other than the fit's mean",
    )


def reconstruct_samples(
    result: str | Path,
    out: str | Path,
    *,
    samples: str | None = None,
    n_components: int | None = None,
    overwrite: bool,
    place: Place,
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
    kernel_case, training : as for `transform`
    """
    fit = open_result(result)
    most = fit.n_components
    if n_components is not None and not 1 <= n_components <= most:
        raise ConfigError(
            f"--n-components is {n_components}, but {fit.name} has {most} components",
            f"Give a number from 1 to {most}.",
        )
    k = n_components or most
    chosen = _chosen(samples, fit.n_samples)
    notes: list[str] = []
    restorer = _restorer(fit, chosen, k, out, kernel_case, training, notes.append)
    dims = fit.dims.placed(fit.samples_axis)
    with (
        _running(place) as (executor, progress, keep_to_plan),
        _building(Path(out), overwrite, [fit.place, *_training_path(fit, training)]) as aside,
    ):
        coordinates = dict(_coordinates_of(fit, chosen))
        plan = restorer.plan(executor.workers(place.memory), held_to_copy(coordinates))
        keep_to_plan(plan)
        what = {"command": "reconstruct", "fit": fit.run, "samples": samples, "n_components": k, "case": kernel_case}
        ledger = aside.begin(what, plan, restorer.n_bytes, progress, restorer.sources)
        outputs = Outputs(SyncedStore(aside.arrays))
        outputs.create({"result": str(result), "n_components": k})
        for dim, coordinate in coordinates.items():
            outputs.write_coordinate(dim, coordinate)
        restorer.restore(outputs, dims, Runner(executor, progress, ledger))
        with _forgetting(aside):
            restorer.check_unchanged()
        _check_same_fit(fit, aside)
        outputs.finish()
    return Applied(Path(out), restorer.shape, tuple(notes))


def _coordinates_of(fit: Result, chosen: NDArray[np.int64]) -> Iterator[tuple[str, Coordinate]]:
    """The coordinates of a result by dimension; along the samples, those of the chosen ones."""
    for dim in fit.dims.placed(fit.samples_axis):
        found = fit.coordinate(dim)
        if found is not None and dim == fit.dims.sample:
            stored = found.values

            def rows(piece: slice, stored: Stored = stored) -> NDArray[Any]:
                return stored.rows(chosen[piece])

            chunks = replace(found.parts, chunk=1)  # of which a piece may need as many as are in hand at a time
            found = replace(found, values=Vector(dim, (len(chosen),), stored.dtype, rows, chunks), parts=chunks)
        if found is not None:
            yield dim, found


def _projector(fit: Result, source: Source, axis: int, case: int | None, training: str | None) -> Projector:
    """The projector that computes scores of new samples."""
    if fit.kind != "kernel_pca":
        _refuse_of_kernels(fit, case, training)
        check_features(fit, source, axis, in_files=True)
        return ByComponents(fit.fitted, fit.rules, source, axis)
    kernel = KernelFit.of(fit, case)
    if kernel.kernel.name == "precomputed":
        _refuse_training(fit, training)
        return ByMatrix(kernel, source, axis)
    check_features(fit, source, axis, in_files=True)
    return ByKernel(fit.fitted, fit.rules, kernel, training_of(fit, _training(fit, training)), source, axis)


def _restorer(
    fit: Result,
    chosen: NDArray[np.int64],
    k: int,
    out: str | Path,
    case: int | None,
    training: str | None,
    say: Callable[[str], None],
) -> Restorer:
    """The restorer that computes samples from their scores."""
    if fit.kind != "kernel_pca":
        _refuse_of_kernels(fit, case, training)
        return FromComponents(fit, chosen, k, str(out))
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
    return None if given is None else _input_of(fit, given)


def _training_path(fit: Result, given: str | None) -> list[Path]:
    """The path of a kernel's training data, if they are on this machine."""
    where = _training(fit, given)
    uri = where.uri if where else fit.manifest["config"]["input"]["uri"]
    return [] if fit.kind != "kernel_pca" or "://" in uri else [Path(uri)]


def _refuse_training(fit: Result, given: str | None) -> None:
    if given is not None:
        raise ConfigError(
            f"--training is {without_credentials(given)}, but {fit.name} is of a kernel matrix", "Leave it out."
        )


@contextmanager
def _forgetting(aside: _Aside) -> Iterator[None]:
    """Discard the finished parts if the data changed while they were read."""
    try:
        yield
    except DataError:
        aside.forget()
        raise


def _refuse_of_kernels(fit: Result, case: int | None, training: str | None) -> None:
    for option, given in (("--kernel-case", case), ("--training", training)):
        if given is not None:
            raise ConfigError(f"{option} is for results of kernel_pca, but {fit.name} is of pca", "Leave it out.")


def _input_of(fit: Result, given: str) -> Input:
    """The input of new samples, from a URI or a YAML file."""
    if given.endswith((".yaml", ".yml")) and os.path.isfile(given):
        return load_input(given)
    as_fitted = fit.manifest["config"]["input"]
    names = ["samples_axis", "absent_chunks", "missing_values"]
    if as_fitted["array"] in [item["path"] for item in list_arrays(given)]:
        names.append("array")
    return Input(uri=given, **{name: as_fitted[name] for name in names})


def _chosen(text: str | None, n_samples: int) -> NDArray[np.int64]:
    """The sample numbers of a text such as 0:10,57."""
    if text is None:
        return np.arange(n_samples)
    ranges: list[NDArray[np.int64]] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(?:(\d+)|(\d*):(\d*))\s*", part)
        if match is None:
            problem = "counts from the end" if "-" in part else "is neither a number nor a range"
            raise ConfigError(f"--samples {text}: {part!r} {problem}", "Count from 0, and write it like 0:10,57.")
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


def _check_same_fit(fit: Result, aside: _Aside) -> None:
    """Refuse output that was computed from a result that was replaced meanwhile."""
    if open_result(fit.place).run != fit.run:
        aside.forget()
        raise DataError(f"{fit.name}: was replaced while it was read", "Do it again with the result that is there now.")


_WORD = re.compile(r"[0-9a-f]{64}")
"""The names of directories with finished work."""


class _Aside:
    """A directory beside the output: finished parts stay there, so that the same command can resume."""

    def __init__(self, out: Path) -> None:
        self.path = self._work = out.with_name(f".{out.name}.partial")

    @property
    def arrays(self) -> Path:
        return self._work / "arrays"

    def begin(
        self,
        what: dict[str, Any],
        made: RunPlan | None,
        n_bytes: int,
        progress: Progress,
        sources: Sequence[Source],
    ) -> Ledger:
        """Resume what the same command has left, if plan and data are the same; else begin anew."""
        plan = {"plan": asdict(made.plan), "groups": asdict(made.groups) if made.groups else None} if made else {}
        word = durable.digest({**what, **plan, "numerics": NUMERICS})
        # A folder of its own, so that late tasks of another command on a cluster do not write to it.
        self._work = self.path / word
        with writing(str(self.path)):
            self.path.chmod(0o700)  # the contents are trusted
            for other in self.path.glob("*"):
                if other != self._work and _WORD.fullmatch(other.name):
                    durable.remove(other)
            durable.make_directories(self.arrays)
            durable.remove_partials(self._work)
        ledger = Ledger(self._work / "parts", word, n_bytes, progress.say)
        if ledger.forget_stale(sources):
            return ledger
        self.forget()
        return self.begin(what, made, n_bytes, progress, sources)

    def check_own(self) -> None:
        """Refuse a place that is a link, or another user's: its contents are trusted as this command's own.

        Raises
        ------
        OutputExistsError
            When it is.
        """
        if not os.path.lexists(self.path):
            return
        facts = os.lstat(self.path)
        if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.geteuid():
            whose = "another user's" if stat.S_ISDIR(facts.st_mode) else "no directory"
            raise OutputExistsError(
                f"{self.path}: is {whose}, where what is finished would be kept", "Remove it, or choose another --out."
            )

    def leave(self, above: list[Path]) -> None:
        """Remove the directory, and those above that were made for it, unless they hold something."""
        for directory in (self.path, *above):
            with suppress(OSError):
                durable.DISK.remove_directory(directory)

    @property
    def worth_keeping(self) -> bool:
        """Whether any part is finished."""
        return any(self._work.glob("parts/*/*.npz"))

    def forget(self) -> None:
        """Discard what is finished."""
        if self._work != self.path:
            durable.remove(self._work)


@contextmanager
def _building(out: Path, overwrite: bool, others: list[Path]) -> Iterator[_Aside]:
    """A directory beside `out` to build in; on success what was built is renamed to `out`.

    Raises
    ------
    OutputExistsError
        When something is there that may not be replaced: without `overwrite`, or not written by such a command; when
        no directory can be there; or when `out` is, holds or lies in one of `others`.
    LockedError
        While another such command works on it.
    """
    out = Path(os.path.abspath(out))
    for other in map(Path.resolve, others):
        place = out.resolve()
        if place == other or place in other.parents or other in place.parents:
            raise OutputExistsError(f"{out}: is, holds or lies in {other}, which is read", "Choose another --out.")
    _check_free(out, overwrite)
    ResultDirectory(out.parent).check_place("--out")
    aside = _Aside(out)
    missing = [parent for parent in aside.path.parents if not parent.exists()]
    lock = Lock(aside.path, out)
    aside.check_own()
    try:
        lock.acquire()
        aside.check_own()
        _check_free(out, overwrite)  # another command may have ended since
        yield aside
        lock.check()
        with writing(str(out)):
            durable.remove_partials(aside.arrays)  # left by workers that were killed while they wrote
            durable.remove(out)
            durable.move(aside.arrays, out)
        aside.forget()
        lock.release()
        aside.leave([])
    except LockedError:
        raise
    except BaseException as error:
        kept = aside.worth_keeping
        if not kept and lock.held():
            aside.forget()
        lock.release()
        if not kept:
            aside.leave(missing)
        elif isinstance(error, Stopped):
            error.remedy = _GO_ON
        elif isinstance(error, DpcaError):
            raise type(error)(error.message, f"{error.remedy} {_GO_ON}".strip(), error.key) from error.__cause__
        raise


def _check_free(out: Path, overwrite: bool) -> None:
    """Refuse a path that holds something that may not be replaced."""
    if not os.path.lexists(out) or (overwrite and _is_ours(out)):
        return
    raise OutputExistsError(
        f"{out}: exists already" + ("" if _is_ours(out) else ", and dpca did not write it"),
        "Choose another --out" + (", or replace it with --overwrite." if _is_ours(out) else "."),
    )


_GO_ON = "What is finished is kept: the same command again goes on from there."


def _is_ours(path: Path) -> bool:
    """Whether the path holds the output of a transform or a reconstruction."""
    try:
        return "result" in zarr.open_group(str(path), mode="r").attrs
    except (OSError, ValueError, KeyError):
        return False


@contextmanager
def _running(place: Place) -> Iterator[tuple[Executor, Progress, Any]]:
    """An executor, progress that checks the memory budget, and a function that sets the plan with this budget."""
    kept: list[Any] = []
    looks: list[Callable[[], Vitals]] = []
    try:
        with connect(place.scheduler, place.workers) as executor, watched_memory() as peak:

            def check() -> None:
                for one in kept:
                    one()

            progress = Progress(place.display, check=check, vitals=lambda: looks[-1]() if looks else None)

            def keep(made: RunPlan | None) -> None:
                if made is None:
                    return
                looks.append(vitals_of(made, peak, executor))
                if executor.shares_memory:
                    kept.append(keep_to(made.processes[0], peak))

            yield executor, progress, keep
    except DpcaError as error:
        message, remedy = (text.replace("compute.memory", "--memory") for text in (error.message, error.remedy))
        raise type(error)(message, remedy, error.key) from error.__cause__
