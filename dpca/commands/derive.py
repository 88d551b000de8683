"""The workflow behind `dpca derive`: analyses of kept Gram matrices, and their maps in one read of the data."""

from __future__ import annotations

import hashlib
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from dpca.analyses.answers import COMPONENT, Answer, mapped
from dpca.analyses.config import Derive
from dpca.analyses.kept import FittedPart, SourceResults
from dpca.analyses.kind import Context
from dpca.analyses.kinds.pca import Pca
from dpca.analyses.maps import columns_of_maps, precisions, with_maps
from dpca.analyses.memory import held, held_beside_maps, held_by_statistics, n_deviations, n_scaled
from dpca.analyses.rotation import with_rotation, without_maps
from dpca.analyses.steps import analysed, in_analysis
from dpca.commands.aside import Aside, building, check_same_fit
from dpca.commands.prepare import place_of, scratch_of
from dpca.commands.reporting import write_beside
from dpca.config.loading import Positioned
from dpca.errors import ConfigError, DpcaError, writing
from dpca.execution.clusters import connect
from dpca.execution.jobqueue import SlurmStep, in_step, joined
from dpca.execution.progress import Display, Progress, Vitals
from dpca.execution.stage import Executor, Runner, changed
from dpca.execution.watching import keep_to, vitals_of
from dpca.methods.decomposition import guarded
from dpca.methods.record import environment
from dpca.methods.recorded import paths_of
from dpca.methods.stages import Stages
from dpca.planning.disk import check_room
from dpca.planning.in_memory import eigensolve_threads, process_of
from dpca.planning.maps import MapsJob
from dpca.planning.runplan import HeldArray, MapColumns
from dpca.settings import OUTPUT
from dpca.sources import Source
from dpca.sources.credentials import without_secrets
from dpca.sources.groups import Groups, named
from dpca.store.derived import open_derived
from dpca.store.directory import ARRAYS, DERIVED, kind_at, write_documents
from dpca.store.outputs import FORMAT_VERSION, Outputs
from dpca.store.results import open_result
from dpca.store.synced import SyncedStore
from dpca.system.blas import blas_threads
from dpca.system.machine import Peak, release_memory, watched_memory

GRAM_SAMPLE = "gram_sample"
"""The axis of coefficients: the samples of the run, whatever rows the operators make of them."""


@dataclass(frozen=True)
class Derived:
    """Outcome of a command."""

    path: Path
    certificates: dict[str, dict[str, Any]]
    """Certificate of each analysis, by name."""
    bytes_read: int
    """Bytes of the data, decoded; 0 without maps."""
    seconds: float


def derive(
    loaded: Positioned[Derive],
    *,
    components: bool = False,
    overwrite: bool = False,
    display: Display | None = None,
) -> Derived:
    """Carry out a configuration of derived analyses; the result appears complete or not at all.

    What is finished of the read for maps survives any interruption: the same command goes on from there, to the same bits.

    Parameters
    ----------
    components : make maps, whatever the configuration says; an earlier result of the same configuration without maps is replaced
    overwrite : replace an earlier result, once the new one is complete
    """
    began, config = time.perf_counter(), loaded.config
    out, with_components = Path(config.output.path), _makes_maps(config, components)
    with _near(loaded):
        asked = _asked(config)
        kept = SourceResults.of([(name, open_result(path)) for name, path in config.paths], config.pair_by)
        runs = {result.name: result.run for result in kept.results}
        overwrite = overwrite or (with_components and _lacks_only_maps(out, asked, runs))
        groups = kept.open(config.places) if with_components else ()
        place = place_of(config)
    connecting = joined(place) if isinstance(place, SlurmStep) and in_step() else connect(place, _workers(config))
    with _near(loaded), connecting as executor, watched_memory() as peak:
        paths = [result.place for result in kept.results] + _paths(kept, groups, config.places)
        with building(out, overwrite, paths, named=OUTPUT.path) as aside:
            work = _Work(config, kept, groups, executor, peak, aside, display)
            answers = work.answers()
            release_memory()  # what reading and solving n x n matrices took, before the pass for maps
            if not mapped(answers):  # what was asked for has none, as its groups are labels within an input
                with_components, work.groups = False, ()
            manifest: dict[str, Any] = {
                "kind": DERIVED,
                "run": uuid.uuid4().hex,
                "from": dict(config.paths),
                "runs": runs,
            }
            counts = {"passes": 0, "bytes_decoded": 0}
            if with_components:
                _check_axes(answers, kept.parts)
            outputs = work.outputs(answers, {"asked": asked, "runs": runs})
            if with_components:
                answers, counts = work.maps(answers, outputs)
            answers = work.rotated(answers, outputs)
            for result in kept.results:
                check_same_fit(result, aside)
            _write(outputs, kept, answers)
            certificates = {name: answer.certificate for name, answer in answers.items()}
            certificate = {"format_version": 1, "analyses": certificates, "verdict": _verdict(answers)}
            manifest |= {
                "format_version": FORMAT_VERSION,
                "asked": asked,
                "config": without_secrets(config.model_dump(by_alias=True)),
                "fingerprint": kept.fingerprint,
                "counts": counts,
                "memory": work.memory,
                "seconds": {**work.stages.seconds, "total": time.perf_counter() - began},
                "workers": executor.n_workers,
                "environment": environment(),
                "arrays": outputs.inventory(finished=True),
            }
            with writing(str(out)):
                write_documents(aside.arrays, certificate, manifest)
        seconds = time.perf_counter() - began
        if config.output.report:
            write_beside(out, work.progress)
    return Derived(out, certificates, counts["bytes_decoded"], seconds)


def plan(loaded: Positioned[Derive], *, components: bool = False) -> dict[str, Any]:
    """Plan of a command: reads and memory; nothing is computed or written.

    Parameters
    ----------
    components : as of `derive`

    Returns
    -------
    dict with keys
        samples, features, analyses : how many
        solver, precision : of the kept products
        bytes_to_read : of the data, decoded; 0 without maps
        spans : how many parts the read has
        maps : the most real maps of all analyses
        copied_to_scratch : bytes of a copy that is made first, where chunks need one
        memory : bytes of each process in each stage, and budget
    """
    config = loaded.config
    with _near(loaded):
        kept = SourceResults.of([(name, open_result(path)) for name, path in config.paths], config.pair_by)
        groups = kept.open(config.places) if _makes_maps(config, components) else ()
        place = place_of(config)
    with _near(loaded), connect(place, _workers(config)) as executor:
        workers = executor.workers(_memory(config))
        n = kept.first.n_samples
        holding = held(n, config.analyses, *kept.sizes, workers.threads)
        process = process_of(kept.name, "analyses", holding, n, workers)
        q, scratch = sum(analysis.model.columns(n) for analysis in config.analyses), scratch_of(config)
        dtype = np.dtype(np.float64)
        errors, deviations = n_deviations(n, config.analyses)
        columns = MapColumns(q, errors, deviations, n_scaled(n, config.analyses))
        statistics = sum(array.bytes * array.count for array in held_by_statistics(n, config.analyses))
        run_plan = None
        if groups:
            beside = tuple(_beside_maps(config, kept, columns, statistics, workers.threads))
            job = MapsJob(groups, columns, dtype, kept.working_dtype, kept.n_regressors, beside, scratch)
            run_plan = job.planned(workers).run_plan
    processes = [process, *(run_plan.processes if run_plan else ())]
    return {
        "samples": n,
        "features": sum(part.result.n_features for part in kept.parts),
        "analyses": len(config.analyses),
        "solver": kept.first.manifest["numerics"]["solver"],
        "precision": "double" if kept.working_dtype == dtype else "single",
        "bytes_to_read": sum(group.layout.bytes for group in groups),
        "spans": run_plan.n_parts if run_plan else 0,
        "maps": q if groups else 0,
        "copied_to_scratch": run_plan.scratch_bytes if run_plan else 0,
        "memory": [
            {
                "process": one.name,
                "count": one.count,
                "budget": one.budget.bytes,
                "stages": {stage.name: stage.bytes for stage in one.stages},
            }
            for one in processes
        ],
    }


class _Work:
    """Work of a command: analyses in memory, then one pass over the data."""

    def __init__(
        self,
        config: Derive,
        kept: SourceResults,
        groups: Groups,
        executor: Executor,
        peak: Peak,
        aside: Aside,
        display: Display | None,
    ) -> None:
        self.config, self.kept, self.groups, self.executor = config, kept, groups, executor
        self.workers = executor.workers(_memory(config))
        self._peak, self._aside, self._jobs = peak, aside, list[MapsJob]()
        n = kept.first.n_samples
        holding = held(n, config.analyses, *kept.sizes, self.workers.threads)
        self._process = process_of(kept.name, "analyses", holding, n, self.workers)
        self.progress = Progress(
            display, check=self._check, vitals=self._vitals, entered=peak.enter, stages=1 + bool(groups)
        )
        self.stages = Stages(Runner(executor, self.progress))

    def _check(self) -> None:
        """End the command if it takes more memory than it may."""
        if self.executor.shares_memory:
            keep_to(self._jobs[-1].run_plan.processes[0] if self._jobs else self._process, self._peak)()

    def _vitals(self) -> Vitals | None:
        return vitals_of(self._jobs[-1].run_plan, self._peak, self.executor)() if self._jobs else None

    @property
    def _sources(self) -> list[Source]:
        """All that tasks read."""
        return [source for group in self.groups for source in group.sources]

    @property
    def memory(self) -> dict[str, Any]:
        """Planned and measured memory, for the manifest."""
        processes = self._jobs[-1].run_plan.processes if self._jobs else (self._process,)
        return {
            "planned_bytes": {process.name: process.peak_bytes for process in processes},
            "planned_bytes_of_stages": {
                stage.name: stage.bytes
                for stage in (*self._process.stages, *(s for p in processes[:1] for s in p.stages))
            },
            "budget_bytes": {process.name: process.budget.bytes for process in processes},
            "peak_bytes_of_this_process": self._peak.bytes,
            "peak_bytes_of_stages": {name: n_bytes for name, n_bytes in self._peak.stages.items() if name},
        }

    def answers(self) -> dict[str, Answer]:
        """The answers by name; the Gram matrix is released after them."""
        threads = eigensolve_threads(self.kept.first.n_samples)
        with blas_threads(threads), self.stages.timed("analyses"), self.progress.stage("analyses"):
            samples, kept = self.kept.samples(self.config.time), self.kept
            context = Context(samples, kept.recorded, "", self.workers.threads, kept.n_features)
            return {
                analysis.name: analysed(analysis, replace(context, key=f"analyses.{number}"))
                for number, analysis in enumerate(self.config.analyses)
            }

    def outputs(self, answers: Mapping[str, Answer], what: dict[str, Any]) -> Outputs:
        """The group to write to; with maps also their plan, and the ledger of what was finished of the same command before."""
        self._jobs.extend([self._job(answers)] if self.groups else [])
        plans = [job.run_plan for job in self._jobs]
        ledger = self._aside.begin(
            {
                "command": "derive",
                **what,
                "input": self.kept.fingerprint if self.groups else None,
                # Labels, covariates and weights may have changed, which the configuration does not tell.
                "coefficients": {name: _digest(answer) for name, answer in mapped(answers).items()},
            },
            plans,
            sum(group.layout.bytes for group in self.groups),
            self.progress,
            self._sources,
        )
        if plans and ledger.empty:  # else some of the maps are there
            _, stored = precisions(mapped(answers).values(), self.kept.working_dtype)
            n_maps = columns_of_maps(mapped(answers)).stored
            needed = n_maps * stored.itemsize * sum(group.n_features for group in self.groups)
            check_room(needed, self.config.output.path, "ask for fewer components, or for none (components: false)")
        before, self.stages = self.stages, Stages(Runner(self.executor, self.progress, ledger))
        self.stages.seconds.update(before.seconds)
        outputs = Outputs(SyncedStore(self._aside.arrays / ARRAYS))
        if plans:
            outputs = guarded(outputs, plans[0], self.stages.runner)
        names = " ".join(analysis.name for analysis in self.config.analyses)
        outputs.create({"from": ", ".join(path for _, path in self.config.paths), "analyses": names})
        return outputs

    def _job(self, answers: Mapping[str, Answer]) -> MapsJob:
        """The pass that makes the maps of answers."""
        n_bytes = sum(
            array.values.nbytes for one in answers.values() if one.maps is None for array in one.arrays.values()
        )
        scratch, threads = scratch_of(self.config, self._aside.path), self.workers.threads

        def beside(columns: MapColumns) -> list[HeldArray]:
            return _beside_maps(self.config, self.kept, columns, n_bytes, threads)

        return self.kept.maps_of(mapped(answers), self.groups, scratch, beside).planned(self.workers)

    def maps(self, answers: dict[str, Answer], outputs: Outputs) -> tuple[dict[str, Answer], dict[str, int]]:
        """The answers with maps, which one pass over the data makes; and what it counted."""
        kept, (job,) = self.kept, self._jobs
        copies = f"{job.scratch.path}/dpca-{self._aside.word}"
        found, absent = kept.make_maps(job, mapped(answers), self.stages, outputs, copies)
        ledger, changes = self.stages.ledger, kept.changes(self.groups)
        if not changes and ledger is not None and ledger.stale(self._sources):
            changes = ["it is now what it was at first, but was not between"]
        if changes:
            self._aside.forget()
            raise changed(named(self.groups), "; ".join(changes[:5]))
        counts = {"passes": self.stages.passes, "bytes_decoded": self.stages.bytes_decoded, "absent_chunks": absent}
        made = {name: with_maps(answer, found[name]) if name in found else answer for name, answer in answers.items()}
        return made, counts

    def rotated(self, answers: dict[str, Answer], outputs: Outputs) -> dict[str, Answer]:
        """The answers with rotated components, where they were asked for; sweeps over maps write these."""
        found, dims = dict(answers), [part.dims for part in self.kept.parts]
        for number, analysis in enumerate(self.config.analyses):
            answer = answers[analysis.name]
            if not isinstance(analysis.model, Pca) or (asked := analysis.model.rotation) is None:
                continue
            if answer.certificate["maps"] is None:
                found[analysis.name] = without_maps(answer)
                continue
            with in_analysis(f"analyses.{number}.model.rotation", analysis.name), self.stages.timed("rotation"):
                found[analysis.name] = with_rotation(analysis.name, answer, dims, asked.asked, outputs)
        return found


def _beside_maps(
    config: Derive, kept: SourceResults, columns: MapColumns, n_bytes: int, threads: int
) -> list[HeldArray]:
    """Memory that is taken when the pass for maps begins.

    Parameters
    ----------
    n_bytes : of answers without maps
    """
    n, (_, n_groups) = kept.first.n_samples, kept.sizes
    n_bytes += 8 * n * (3 * columns.maps + 2 * columns.deviations)
    answers = HeldArray("answers of all analyses", n_bytes)
    return [answers, *held_beside_maps(n, kept.n_features, config.analyses, n_groups, threads)]


def _check_axes(answers: Mapping[str, Answer], parts: Sequence[FittedPart]) -> None:
    """Refuse features whose axes are called as those that an analysis has beside them: their lengths would not agree in one group."""
    for name, answer in mapped(answers).items():
        own = {COMPONENT, *answer.its_maps.dims, *(dim for array in answer.arrays.values() for dim in array.dims)}
        for part in parts:
            if both := sorted(own.intersection(part.dims.features)):
                raise ConfigError(
                    f"analysis {name}: has an axis {both[0]}, and so have the features of the data",
                    "Give that dimension of the data another name, and run again, or leave out what has the axis in the analysis.",
                )


def _write(outputs: Outputs, kept: SourceResults, answers: Mapping[str, Answer]) -> None:
    """Write what analyses found, each to a group of its name, with its coordinates; maps are there already."""
    with outputs.together():
        for name, answer in answers.items():
            outputs.unit = answer.unit(kept.unit)
            outputs.create_group(name, {"kind": answer.kind, "samples": answer.certificate["samples"]})
            for array, found in answer.arrays.items():
                outputs.write(f"{name}/{array}", found.values, found.dims, found.attributes)
            if answer.maps is not None:
                axes = (*answer.maps.outer, GRAM_SAMPLE, COMPONENT)
                outputs.write(f"{name}/coefficients", answer.maps.coefficients, axes)
            for dim, axis in answer.coordinates.items():
                if axis.values is not None and axis.values.dtype.kind in "biuf":
                    outputs.write(f"{name}/{dim}", axis.values, (dim,), axis.attributes)
                elif axis.values is not None:
                    outputs.write_text(f"{name}/{dim}", [str(value) for value in axis.values.tolist()], dim)
            if answer.certificate["maps"] is None:
                continue
            for part in kept.parts:
                for theirs, ours in zip(part.result.dims.features, part.dims.features, strict=True):
                    if (coordinate := part.result.coordinate(theirs)) is not None:
                        outputs.write_coordinate(f"{name}/{ours}", coordinate, ours)
    outputs.finish()


def _digest(answer: Answer) -> str:
    """Digest that tells the coefficients of an answer from others."""
    maps = answer.its_maps
    found = hashlib.sha256(np.ascontiguousarray(maps.coefficients).tobytes())
    for beside in (maps.deviations, maps.score_deviation, maps.rows):
        if beside is not None:
            found.update(np.ascontiguousarray(beside).tobytes())
    return found.hexdigest()


def _verdict(answers: Mapping[str, Answer]) -> str:
    counted = [answer.certificate for answer in answers.values() if "components" in answer.certificate]
    good, total = (sum(one[key] for one in counted) for key in ("reliable_components", "components"))
    return f"{len(answers)} analyses from one Gram matrix" + (
        f": {good} of {total} components reliable" if total else ""
    )


def _makes_maps(config: Derive, components: bool) -> bool:
    """Whether any analysis has components in the space of the features, and they are asked for."""
    return (config.components or components) and any(analysis.model.has_maps for analysis in config.analyses)


def _asked(config: Derive) -> dict[str, Any]:
    """The settings that decide the analyses: not whether maps are made of them, nor where."""
    asked: dict[str, Any] = without_secrets(config.model_dump(by_alias=True, mode="json"))
    return {key: asked[key] for key in ("time", "analyses")}


def _lacks_only_maps(out: Path, asked: dict[str, Any], runs: dict[str, str]) -> bool:
    """Whether a place holds these analyses of the same results, without maps."""
    if kind_at(out) != DERIVED:
        return False
    before = open_derived(out)
    made = any(certificate["maps"] for certificate in before.certificate["analyses"].values())
    same = before.manifest["asked"] == asked and sorted(before.manifest["runs"].values()) == sorted(runs.values())
    return same and not made


def _workers(config: Derive) -> int | None:
    return None if config.compute.workers == "auto" else config.compute.workers


def _memory(config: Derive) -> int | None:
    return None if config.compute.memory == "auto" else int(config.compute.memory)


def _paths(kept: SourceResults, groups: Groups, data: Mapping[str, Sequence[str]]) -> list[Path]:
    """The paths of the data on this machine."""
    if not groups:
        return []
    return [path for part in kept.parts for path in paths_of(part.result, data.get(part.name, ()))]


@contextmanager
def _near(loaded: Positioned[Derive]) -> Iterator[None]:
    """Put the line of the key that is at fault in front of an error; where it is not set, that of the section it is in."""
    try:
        yield
    except DpcaError as error:
        parts = error.key.split(".") if error.key else []
        for length in range(len(parts), 0, -1):
            located = loaded.locate(error.saying(error.marked_message, key=".".join(parts[:length])))
            if located.marked_message != error.marked_message:
                raise located from error.__cause__
        raise
