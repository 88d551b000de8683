"""The workflow behind `dpca run`: configuration in, result directory out."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dpca.commands.foresight import foreseen
from dpca.commands.prepare import inputs_of, place_of, prepared
from dpca.commands.reporting import write_beside
from dpca.config.loading import Loaded
from dpca.config.schema import OF_KERNELS, OF_PASSES, OF_PLACE, Config
from dpca.errors import (
    AssumptionError,
    ConfigError,
    DataError,
    DpcaError,
    InputError,
    LedgerError,
    LockedError,
    NotConverged,
    PrecisionError,
    StorageError,
    WorkerDied,
)
from dpca.execution.jobqueue import SlurmStep, in_step, joined
from dpca.execution.partitions import DecidedLedger, Ended, Incomplete, Partition, PreparedOutputs
from dpca.execution.progress import Display, Progress
from dpca.execution.stage import Executor, Runner, changed
from dpca.execution.watching import keep_to, vitals_of
from dpca.methods.decomposition import Decomposition, decompose
from dpca.methods.extension import Extension
from dpca.methods.kernel_decomposition import decompose_kernels
from dpca.methods.record import changes_of, digest_of, fields_of, fingerprint, manifest_of, notes_of
from dpca.numerics.certificate import not_converged
from dpca.planning.job import Job
from dpca.planning.runplan import Process
from dpca.settings import OUTPUT
from dpca.sources.credentials import in_text, without_credentials, without_secrets
from dpca.sources.dated import dates_elsewhere
from dpca.sources.groups import named
from dpca.store.arrays import dims_of
from dpca.store.directory import ResultDirectory
from dpca.store.ledger import Ledger
from dpca.store.outputs import Outputs
from dpca.store.results import open_result
from dpca.store.synced import SyncedStore
from dpca.store.unfinished import Begun, differences, without_free
from dpca.system import durable
from dpca.system.lock import Lock
from dpca.system.machine import Peak, watched_memory
from dpca.system.scratch import ScratchFolder
from dpca.system.signals import Stopped
from dpca.units import describe_memory

_MAX_PASSES = re.compile(r" --set '?model\.block_krylov\.max_passes=\S+")


@dataclass(frozen=True)
class Finished:
    """A run that has ended well, now or before."""

    path: Path
    seconds: float
    """The duration of this command."""
    unmet: NotConverged | None = None
    """Shortcoming of the result against the config; None if it lacks nothing."""

    def check(self) -> None:
        """Raise what the result lacks, once it has been shown."""
        if self.unmet is not None:
            raise self.unmet


@contextmanager
def _ready(
    loaded: Loaded,
    before: Begun | None,
    from_gram: str | Path | None,
    executor: Executor | None,
    extends: Extension | None,
) -> Iterator[tuple[Job, Executor, dict[str, float] | None]]:
    """`prepared`, for a run that begins or resumes; with the forecast of a run that begins, if there is one."""
    with prepared(loaded, before, from_gram, executor, extends) as (job, executor):
        expected = None
        if before is None and job.run_plan.reads:
            with loaded.located():
                expected = foreseen(loaded.config, job, executor)
        yield job, executor, expected


def run(
    loaded: Loaded,
    *,
    overwrite: bool = False,
    resume: bool = False,
    keep_ledger: bool = False,
    from_gram: str | Path | None = None,
    extends: Extension | None = None,
    executor: Executor | None = None,
    display: Display | None = None,
    waits: Callable[[Incomplete], None] = lambda _: None,
) -> Finished:
    """Carry out a configuration.

    Nothing is written before the input has been opened and checked, and the run planned; the result appears
    complete or not at all. A run that fails or is stopped leaves its finished parts, any earlier result as it
    was, and status.json with the reason.

    Parameters
    ----------
    overwrite : replace an earlier result once the new one is complete; discard an unfinished run
    resume : continue an unfinished run, if there is one
    keep_ledger : leave the finished parts beside the result
    from_gram : an earlier result of the same data, whose Gram matrix serves the kernels: no data are read
    extends : an earlier result of the first of the samples, to which the others are added
    executor : where it runs, instead of the place in the config
    waits : called under the lock, where parts are missing that others compute
    """
    began = time.perf_counter()
    config, directory = loaded.config, ResultDirectory(loaded.config.output.path)
    with ExitStack() as stack:
        place = place_of(config)
        if executor is None and isinstance(place, SlurmStep) and in_step():
            with loaded.located():
                executor = stack.enter_context(joined(place))
        with loaded.located():
            directory.check_no_links()
            before = (directory.unfinished() or _result_to_continue(directory, loaded)) if resume else None
            if resume and _already_finished(directory, before, loaded, keep_ledger, extends):
                if display is not None:
                    display.say(f"{directory.path}: is finished already, and nothing was left to compute")
                return finished_at(directory.path, loaded.command, time.perf_counter() - began)
            if before is None:
                directory.check_free(overwrite)
        job, executor, expected = stack.enter_context(_ready(loaded, before, from_gram, executor, extends))
        peak = stack.enter_context(watched_memory())
        lock = stack.enter_context(_locked(directory, before, loaded, overwrite))
        progress = _progress(directory, job, executor, lock, peak, display)
        under_way = _begun(loaded, directory, job, before, Runner(executor, progress), extends)
        try:
            under_way.set_up()
            try:
                decomposition = under_way.decompose()
            except Incomplete as error:
                waits(error)
                raise
            seconds = time.perf_counter() - began
            manifest = under_way.manifest(decomposition, seconds=seconds, peak=peak, expected=expected)
            directory.commit(decomposition.certificate, manifest, decomposition.outputs)
            under_way.scratch.remove()
            directory.publish(keep_ledger or not_converged(decomposition.certificate) is not None)
        except Incomplete as error:
            progress.finish("waiting", error.message)
            raise
        except BaseException as error:
            if lock.held():
                error = under_way.failed(error, from_gram)
                progress.finish(*_last_status(error))
            elif not isinstance(error, LockedError):
                error = LockedError(*lock.taken_over)
            raise error from error.__cause__
        progress.finish("done", open_result(directory.path).certificate["verdict"])
        finished = finished_at(directory.path, loaded.command, time.perf_counter() - began)
        if config.output.report:
            write_beside(directory.path, progress)
    return finished


def finished_at(path: Path, command: str, seconds: float) -> Finished:
    """The run whose result is in place.

    Parameters
    ----------
    command : that carried it out, for what it lacks
    """
    certificate = open_result(path).certificate
    if (unmet := not_converged(certificate)) is None:
        return Finished(path, seconds)
    components, found = certificate["components"], certificate["block_krylov"]
    unmet_ones = [c for c in components if not c["met"]]
    reachable = not any(c["bulk"] or c["imprecise"] or c["more_passes"] is None for c in unmet_ones)
    more = max((int(c["more_passes"] or 0) for c in unmet_ones), default=0)
    remedy = "The result is kept, and says so of each component"
    command = _MAX_PASSES.sub("", command)
    if reachable and more:
        remedy += f". About {more} {'pass' if more == 1 else 'passes'} more would do: {command} --resume --set model.block_krylov.max_passes={found['passes'] + more + 1} goes on"
    else:
        remedy += ": more passes alone would not do; the notes say what would"
    return Finished(path, seconds, NotConverged(f"{path}: {unmet}", f"{remedy}."))


def _result_to_continue(directory: ResultDirectory, loaded: Loaded) -> Begun | None:
    """How the run began whose result is here, but has not met its tolerance, if the config now allows it to go on; else None."""
    kept = directory.kept()
    if kept is None or not_converged(open_result(directory.path).certificate) is None:
        return None
    found, now = open_result(directory.path).certificate["block_krylov"], loaded.config.model.block_krylov
    more = now.max_passes > found["passes"] or now.tolerance > found["tolerance"]
    return kept if more and differences(kept.config["model"].get("block_krylov"), now.model_dump()) else None


def _progress(
    directory: ResultDirectory, job: Job, executor: Executor, lock: Lock, peak: Peak, display: Display | None
) -> Progress:
    """The progress of a run, which ends the run if it takes more memory than it may, or has lost its lock."""
    keep_to_budget = keep_to(job.run_plan.processes[0], peak) if executor.shares_memory else lambda: None

    def check() -> None:
        keep_to_budget()
        if lock.lost:
            lock.check()

    return Progress(display, directory.status, job.n_stages, check, vitals_of(job.run_plan, peak, executor), peak.enter)


def _begun(
    loaded: Loaded,
    directory: ResultDirectory,
    job: Job,
    before: Begun | None,
    runner: Runner,
    extends: Extension | None,
) -> _UnderWay:
    """The run that is begun or resumed; nothing is written yet.

    Parameters
    ----------
    before : the run to resume; the run begins anew if it can't resume because data have changed
    """
    now = _now(loaded.config, job, extends)
    for one, group in zip(loaded.config.inputs, job.groups, strict=True):
        if one.array is None and group.layout.name.startswith(f"{without_credentials(one.uris[0])}:"):
            runner.progress.say(f"{group.layout.name} is read, since input.array is not given")
    elsewhere = (
        dates_elsewhere(group.source, one.samples_axis)
        for one, group in zip(loaded.config.inputs, job.groups, strict=True)
    )
    notes = [sentence for sentence in elsewhere if sentence]
    begun = now
    if before is not None:
        with loaded.located():
            notes += before.check(directory.path, now, (*OF_KERNELS, *OF_PASSES))
        if _ledger(directory, before, job, runner.progress.say).forget_stale(job.sources):
            begun = replace(before, config=now.config)
        else:
            runner.progress.say("other data were read before than are there now: the run begins anew")
            before = None
    scratch = ScratchFolder.of(job.scratch.path, begun.run, directory.path)
    begun = replace(begun, scratch=str(scratch.path))
    runner = replace(runner, ledger=_ledger(directory, begun, job, runner.progress.say))
    return _UnderWay(loaded, directory, job, before, begun, now.input, scratch, runner, tuple(notes), extends)


def _now(config: Config, job: Job, extends: Extension | None = None) -> Begun:
    """The record of a run that begins now."""
    plan = job.run_plan.settled.as_json()
    settings, weights = _relevant(config, extends), job.model.sample_weights
    settings["preprocess"]["fields"] = fields_of(config)
    if weights is not None:  # they are read before the passes, so no part of these tells of them
        settings["preprocess"]["sample_weights"]["sha256"] = digest_of(weights.values)
    if job.model.design is not None:  # dates and covariates, too
        settings["preprocess"]["regress_out"]["sha256"] = digest_of(job.model.design.matrix)
    for group in job.groups:
        if group.labels is not None:
            settings["output"]["groups"]["sha256"] = group.labels.digest
    return Begun.now(settings, fingerprint(job.groups), plan)


def _ledger(directory: ResultDirectory, begun: Begun, job: Job, say: Callable[[str], None]) -> Ledger:
    return Ledger(directory.parts(begun.run).absolute(), begun.run, job.n_bytes, say)


@dataclass(frozen=True)
class _UnderWay:
    """A run in progress, begun or resumed, up to its result."""

    loaded: Loaded
    directory: ResultDirectory
    job: Job
    before: Begun | None
    """The run that is resumed."""
    begun: Begun
    input: dict[str, Any]
    """The fingerprint of the input at its present place."""
    scratch: ScratchFolder
    runner: Runner
    notes: tuple[str, ...]
    extends: Extension | None
    """The result that samples are added to, if they are."""

    @property
    def ledger(self) -> Ledger:
        """Its finished parts."""
        assert self.runner.ledger is not None
        return self.runner.ledger

    def set_up(self) -> None:
        """Prepare the directory."""
        directory, before, begun = self.directory, self.before, self.begun
        if before is None:
            directory.begin(begun)
        else:
            if directory.kept() is not None and not directory.staged_arrays(begun.run).exists():
                directory.reopen(begun)
            if before.scratch != begun.scratch:
                before.scratch_folder(directory.path).remove()
            if (before.config, before.scratch) != (begun.config, begun.scratch):
                directory.change(begun)
        if self.job.run_plan.copies:
            self.scratch.make()

    def decompose(self) -> Decomposition:
        """Compute what is asked for; refuse data that changed meanwhile."""
        outputs = Outputs(SyncedStore(self.directory.staged_arrays(self.begun.run).absolute()))
        decomposition = _decompose(self.job, outputs, self.runner, self.scratch.copy)
        if self.job.labels is not None:
            outputs.write_labels(self.job.labels, dims_of(self.job.groups)[0][0].sample)
            outputs.finish()
        _check_unchanged(self.begun, self.job, self.ledger)
        return decomposition

    def manifest(
        self, decomposition: Decomposition, *, seconds: float, peak: Peak, expected: dict[str, float] | None
    ) -> dict[str, Any]:
        """The manifest of the result.

        Parameters
        ----------
        expected : seconds of each stage, if they were forecast
        """
        job, begun = self.job, self.begun
        notes = [
            *self.notes,
            *notes_of(job, decomposition),
            *_of_kept_gram(job, decomposition),
        ]
        manifest = manifest_of(
            without_secrets(self.loaded.config.model_dump()),
            job,
            decomposition,
            identity=self.input,
            n_workers=self.runner.executor.n_workers,
            seconds=seconds,
            peak=peak,
            expected=expected,
        )
        return {
            "run": begun.run,
            "job": begun.job,
            "notes": notes,
            **manifest,
            "asked": begun.config,
            "fingerprint": begun.input,
            **({} if self.extends is None else {"extended": self.extends.record}),
        }

    def failed(self, error: BaseException, from_gram: str | Path | None) -> BaseException:
        """The error to raise for a run that failed or was stopped; if nothing is finished, its files are removed."""
        if self.ledger.empty:
            with suppress(OSError, StorageError):  # the disk may be what ended the run
                self.scratch.remove()
                self.directory.discard()
        if isinstance(error, WorkerDied):
            error = _with_plan(error, self.job.run_plan.processes[-1])
        return _explained(error, self.directory, self.ledger, self.loaded, from_gram)


def compute(loaded: Loaded, index: int, of: int, stage: str, say: Callable[[str], None]) -> Ended:
    """Carry out a partition of the current stage of a run: some of its spans, and nothing else.

    Nothing is locked: any number of partitions may run at a time, in any order, and repeatedly.

    Parameters
    ----------
    stage : that the process that adds up has opened
    """
    directory = ResultDirectory(loaded.config.output.path)
    directory.check_no_links()
    before = directory.unfinished()
    if before is None:
        raise LedgerError(f"{directory.path}: has no run that is under way", "Begin one with dpca batch init.")
    executor = Partition(index, of, stage)
    with prepared(loaded, before, executor=executor) as (job, _), watched_memory() as peak:
        begun = _now(loaded.config, job)
        with loaded.located():
            before.check(directory.path, begun)
        progress = Progress(check=keep_to(job.run_plan.processes[-1], peak))
        ledger = DecidedLedger(**vars(_ledger(directory, before, job, say)), opened=stage)
        outputs = PreparedOutputs(SyncedStore(directory.staged_arrays(before.run).absolute()))
        job = replace(job, run_plan=replace(job.run_plan, keeps_data=False))
        scratch = before.scratch_folder(directory.path)
        try:
            _decompose(job, outputs, Runner(executor, progress, ledger), scratch.copy)
        except Ended as ended:
            with loaded.located():
                _check_unchanged(begun, job)
            return ended
        except (FileNotFoundError, StorageError) as cause:  # files may be gone with the run
            now = directory.unfinished()
            if now is None or now.run != before.run:
                raise LedgerError(
                    f"{directory.path}: its run ended while this partition was computed",
                    "It is not needed any more.",
                ) from cause
            raise
    raise LedgerError(f"{directory.path}: all of its stages are complete", "End it with dpca batch finalize.")


def _decompose(job: Job, outputs: Outputs, runner: Runner, scratch: str) -> Decomposition:
    """PCA or kernel PCA, as asked for; `scratch` is this run's own place for copies."""
    job = replace(job, scratch=replace(job.scratch, path=scratch))
    return (decompose if job.model.kernels is None else decompose_kernels)(job, outputs, runner)


def _already_finished(
    directory: ResultDirectory, before: Begun | None, loaded: Loaded, keep_ledger: bool, extends: Extension | None
) -> bool:
    """Whether nothing is left to compute: the result of this config and input is there, or only has to be published."""
    asked = _relevant(loaded.config, extends)
    with suppress(InputError):  # a result stays valid without its weights
        asked["preprocess"]["fields"] = fields_of(loaded.config)
    if before is not None:
        if directory.committed(before) is None or differences(_in_config(before.config, asked), asked):
            return False
        with _locked(directory, before, loaded, overwrite=False):
            before.scratch_folder(directory.path).remove()
            directory.publish(keep_ledger)
        return True
    if not directory.has_result:
        return False
    manifest = open_result(directory.path).manifest
    was = _in_config(manifest["asked"], asked)
    if open_result(directory.path).certificate.get("block_krylov") is not None and was:
        # When an iteration ends does not matter any more.
        was, asked = without_free(was, OF_PASSES), without_free(asked, OF_PASSES)
    changes = differences(was, asked)
    with suppress(InputError):  # a result stays valid without its input
        changes += changes_of(manifest["fingerprint"], inputs_of(loaded.config))
    if changes:
        raise LedgerError(
            f"{directory.path}: holds the result of another config or input: {'; '.join(changes[:5])}",
            f"Choose another {OUTPUT.path}, or replace it with --overwrite.",
            key="output.path",
        )
    with held(directory, loaded):
        directory.tidy()
    return True


@contextmanager
def _locked(directory: ResultDirectory, before: Begun | None, loaded: Loaded, overwrite: bool) -> Iterator[Lock]:
    """Lock the directory, and check that it did not change before it was locked."""
    with held(directory, loaded) as lock:
        if before is None:
            with loaded.located():
                directory.check_free(overwrite)
        else:
            now = directory.unfinished() or directory.kept()
            if now is None or now.run != before.run:
                raise LockedError(
                    f"{directory.path}: another run has just ended there", "Look at it (see dpca status)."
                )
        yield lock


@contextmanager
def held(directory: ResultDirectory, loaded: Loaded) -> Iterator[Lock]:
    """The lock of the directory of a run, for as long as it is changed."""
    lock = Lock(directory.path)
    with loaded.located():
        lock.acquire()
    try:
        with durable.asking(lock.check):
            yield lock
    finally:
        lock.release()


def _check_unchanged(begun: Begun, job: Job, ledger: Ledger | None = None) -> None:
    """Refuse a result of data that changed while they were read, even if only for a while."""
    changes = changes_of(begun.input, job.groups)
    if not changes and ledger is not None and ledger.stale(job.sources):
        changes = ["it is now what it was at first, but was not between"]
    if changes:
        raise changed(named(job.groups), "; ".join(changes))


def _explained(
    error: BaseException, directory: ResultDirectory, ledger: Ledger, loaded: Loaded, from_gram: str | Path | None
) -> BaseException:
    """The error that ended a run, with its place in the config and the way to resume."""
    option = "" if from_gram is None else f" --from-gram {from_gram}"
    go_on = f"What is finished is kept: {loaded.command}{option} --resume goes on."
    if isinstance(error, Stopped) and not ledger.empty:
        error.remedy = go_on
    if not isinstance(error, DpcaError):
        return error
    located = loaded.locate(error)
    if ledger.empty:
        return located
    if isinstance(error, AssumptionError):
        return _first_pass_kept(located, directory.staged_arrays(ledger.run))
    # Corrected data are other data, and another precision gives other products: finished parts can't be used.
    again = "" if isinstance(error, DataError) else go_on
    if isinstance(error, PrecisionError):
        again = "Then start it anew with --overwrite."
    elif isinstance(error, ConfigError) and (error.key or "").removeprefix("model.") in OF_KERNELS:
        again = "What is finished is kept: correct the config, and --resume goes on."
    return located.saying(located.marked_message, f"{located.marked_remedy} {again}".strip()).with_traceback(
        error.__traceback__
    )


def _with_plan(error: WorkerDied, worker: Process) -> WorkerDied:
    """The error of a worker that died, with its planned memory and its budget."""
    return error.saying(
        f"{error.marked_message}; the plan has {describe_memory(worker.peak_bytes)} for a worker, which may take "
        f"{describe_memory(worker.budget.bytes)}, {worker.budget.origin}"
    )


def _last_status(error: BaseException) -> tuple[str, str]:
    """The state and message of a run that did not end well."""
    if isinstance(error, Stopped | KeyboardInterrupt):
        return "interrupted", f"stopped by {error}"
    return "failed", in_text(error.message if isinstance(error, DpcaError) else f"{type(error).__name__}: {error}")


def resumes_after_requeue(place: Path, overwrite: bool) -> bool:
    """Whether this is a requeued job that has something to resume, whatever its options say.

    Parameters
    ----------
    overwrite : whether the job was told to replace what is there: then only what the same job began counts
    """
    if os.environ.get("SLURM_RESTART_COUNT", "0") in ("", "0"):
        return False
    directory, job = ResultDirectory(place), os.environ.get("SLURM_JOB_ID")
    before = directory.unfinished()
    begun_by = before.job if before else open_result(place).manifest.get("job") if directory.has_result else None
    return not overwrite or (job is not None and begun_by == job)


def _relevant(config: Config, extends: Extension | None = None) -> dict[str, Any]:
    """The settings that decide the result: not where it is computed, nor where data are read and written."""
    resolved: dict[str, Any] = without_secrets(config.model_dump())
    del resolved["compute"]
    for one in [resolved["input"]] if isinstance(resolved["input"], dict) else resolved["input"]:
        for name in OF_PLACE:
            del one[name]
    output = resolved["output"]
    resolved["output"] = {name: output[name] for name in ("components", "gram")}
    if output["groups"] is not None:
        resolved["output"]["groups"] = output["groups"]
    if extends is not None:
        resolved["extended"] = extends.asked
    return resolved


def _in_config(settings: dict[str, Any], asked: dict[str, Any]) -> dict[str, Any]:
    """Settings of a run without what is not in its config, nor in what is `asked` now."""
    preprocess = dict(settings.get("preprocess", {}))
    if "fields" not in asked["preprocess"]:
        preprocess.pop("fields", None)
    for key in ("sample_weights", "regress_out"):
        if (given := preprocess.get(key)) is not None:
            preprocess[key] = {name: value for name, value in given.items() if name != "sha256"}
    output = dict(settings.get("output", {}))
    if isinstance(output.get("groups"), dict):
        output["groups"] = {name: value for name, value in output["groups"].items() if name != "sha256"}
    return {**settings, "preprocess": preprocess, "output": output} if settings else settings


def _first_pass_kept(error: DpcaError, arrays: Path) -> DpcaError:
    """The error of a run that ended after its first pass, with what is left of the run."""
    return error.saying(
        f"{error.marked_message}; there is no result, but its first pass is finished and kept: eigenvalues, singular values and "
        f"what else it gives are in {arrays}",
        f"{error.marked_remedy} Then start it anew with --overwrite, which removes what was kept.",
    )


def _of_kept_gram(job: Job, decomposition: Decomposition) -> list[str]:
    """The note on a Gram matrix of less precision than asked for, kept by an earlier result."""
    if job.gram is None or job.model.precision != "double" or decomposition.certificate["precision"] != "single":
        return []
    return [
        f"model.precision is double, but the Gram matrix that {job.gram.path} keeps is of products in single "
        "precision: its digits are what there is; run without --from-gram for more"
    ]
