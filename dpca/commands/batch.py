"""A run as a job array: no scheduler, no ports, a shared file system.

`init` begins a run and says how many partitions its first stage has; `partition` computes one; `finalize` adds up the
finished ones. A run has several stages, so the last two alternate until the result is published.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from dpca.commands.run import Finished, compute, finished_at, held, run
from dpca.config.loading import Loaded, load
from dpca.errors import ConfigError, LedgerError, writing
from dpca.execution.partitions import Collecting, Ended, Incomplete
from dpca.store.directory import BATCH, ResultDirectory
from dpca.store.ledger import Ledger
from dpca.store.unfinished import record_at
from dpca.system import durable

FORMAT_VERSION = 2
"""Version 1 had no checksum."""


@dataclass(frozen=True)
class Waiting:
    """A stage that waits for its partitions."""

    stage: str
    n_parts: int
    """The number of spans of the stage, which the partitions share."""
    partitions: int
    missing: tuple[tuple[int, str], ...]
    """The missing spans, each with the reason."""
    opened: bool
    """Whether the previous stage has just been completed, so that nothing of this one is expected yet."""

    @property
    def indices(self) -> list[int]:
        """The partitions with missing spans."""
        return sorted({number % self.partitions for number, _ in self.missing})

    @property
    def document(self) -> dict[str, Any]:
        """The stage in plain values."""
        return {
            "state": "waiting",
            "stage": self.stage,
            "partitions": self.partitions,
            "partitions_missing": self.indices,
            "spans": self.n_parts,
            "spans_missing": [{"span": number, "why": why} for number, why in self.missing],
        }


def init(loaded: Loaded, config: Path, *, partitions: int | None = None, overwrite: bool = False) -> Waiting | Finished:
    """Begin a run: do everything except what partitions compute.

    Parameters
    ----------
    loaded, config : the configuration, and its file, which partitions read again
    partitions : how many a stage has; None for one per span of the plan
    overwrite : as for `dpca.commands.run.run`
    """
    if partitions is not None and partitions < 1:
        raise ConfigError(f"--partitions is {partitions}", "Give 1 or more.")
    loaded.check_overrides()
    document: dict[str, Any] = {
        "format_version": FORMAT_VERSION,
        "directory": os.getcwd(),
        "config": str(config.absolute()),
        "overrides": list(loaded.overrides),
    }

    def record(error: Incomplete) -> None:
        document["partitions"] = min(partitions or error.of_parts, error.of_parts)
        _write_stage(loaded, document, error)

    try:
        return run(loaded, overwrite=overwrite, executor=Collecting(), waits=record)
    except Incomplete as error:
        return _waiting(document, error, opened=True)


def is_under_way(place: Path) -> bool:
    """Whether a run as a job array has begun in `place`, and not ended."""
    return (place / "ledger" / BATCH).exists() and ResultDirectory(place).unfinished() is not None


def begun_with(place: Path, partitions: int | None) -> int:
    """The number of partitions of a run under way."""
    n = int(_read(place)["partitions"])
    if partitions not in (None, n):
        raise ConfigError(
            f"--partitions is {partitions}, but the run under way in {place} was begun with {n}",
            "Leave it out, or begin anew with --overwrite.",
        )
    return n


def go_on_with(place: Path, loaded: Loaded) -> None:
    """Change the compute section, such as its memory, for the rest of a run."""
    with held(ResultDirectory(place), loaded):  # or the stage that another has opened meanwhile would be forgotten
        document = _read(place)
        before, now = (
            [given for given in overrides if not given.startswith("compute")]
            for overrides in (document["overrides"], loaded.overrides)
        )
        if before != now:
            begun = " ".join(f"--set {given}" for given in before) or "no --set"
            raise ConfigError(
                f"the run under way in {place} was begun with {begun}", "Say the same, or begin anew with --overwrite."
            )
        _write(place, {**document, "overrides": list(loaded.overrides)})


def partition(place: Path, index: int, say: Callable[[str], None]) -> Ended | None:
    """Compute a partition of the current stage of a run; parts that are there already are not computed again.

    Returns
    -------
    What was computed; None where the run has ended well, as for a task that Slurm starts again after the end
    """
    if _has_ended(place):
        return None
    loaded, document = _begun(place)
    return compute(loaded, index, document["partitions"], document["stage"], say)


def finalize(place: Path) -> Waiting | Finished:
    """Add up what partitions have computed, as far as possible: to the next stage, or to the result."""
    if _has_ended(place):
        return finished_at(place, "dpca run CONFIG", 0.0)
    loaded, document = _begun(place)
    before = document["stage"]
    try:
        return run(loaded, resume=True, executor=Collecting(), waits=partial(_write_stage, loaded, document))
    except Incomplete as error:
        return _waiting(document, error, opened=error.stage != before)


def status(place: Path) -> dict[str, Any]:
    """The finished part of the current stage of a run, by the files in its ledger; they are not read or checked."""
    directory = ResultDirectory(place)
    if _has_ended(place):
        return {"state": "done", "result": str(place)}
    document, before = _read(place), directory.unfinished()
    if before is None:
        raise _none(place)
    stage = Ledger(directory.parts(before.run), before.run, 0, lambda _: None).checkpoint(document["stage"])
    n_parts = int(document["n_parts"])
    missing = [(number, "missing") for number in range(n_parts) if not (number < stage.n_added or stage.has(number))]
    return Waiting(document["stage"], n_parts, int(document["partitions"]), tuple(missing), False).document


def _has_ended(place: Path) -> bool:
    """Whether a result is there, and no run under way that would replace it."""
    return ResultDirectory(place).has_result and not (place / "ledger" / BATCH).exists()


def _waiting(document: dict[str, Any], error: Incomplete, opened: bool) -> Waiting:
    partitions = min(int(document["partitions"]), error.n_parts)
    return Waiting(error.stage, error.n_parts, partitions, tuple(error.missing), opened)


def _write_stage(loaded: Loaded, document: dict[str, Any], error: Incomplete) -> None:
    """Record the stage that partitions are to compute."""
    document |= {"stage": error.stage, "n_parts": error.n_parts}
    _write(Path(loaded.config.output.path), document)


def _write(place: Path, document: dict[str, Any]) -> None:
    with writing(str(place)):
        durable.write_checked(place / "ledger" / BATCH, document)


def _read(place: Path) -> dict[str, Any]:
    """The record of how a run was begun."""
    try:
        return record_at(place / "ledger" / BATCH, FORMAT_VERSION)
    except (FileNotFoundError, NotADirectoryError):
        raise _none(place) from None
    except (OSError, ValueError) as cause:
        raise LedgerError(
            f"{place}: its {BATCH} can't be read: {cause}", "Begin anew with dpca batch init --overwrite."
        ) from cause


def _none(place: Path) -> LedgerError:
    return LedgerError(
        f"{place}: holds no run of dpca batch that is under way", "Begin one with dpca batch init CONFIG."
    )


def _begun(place: Path) -> tuple[Loaded, dict[str, Any]]:
    """The configuration of a run, read in the folder where it was begun, for relative paths; `place` may be a copy."""
    document, here = _read(place), place.absolute()
    try:
        os.chdir(document["directory"])
    except OSError as cause:
        raise LedgerError(
            f"{place}: was begun in {document['directory']}, where relative paths of its config start, but that is gone: "
            f"{cause.strerror}",
            "Make the directory again, with what the config names in it, or begin anew with dpca batch init --overwrite.",
        ) from cause
    loaded = load(document["config"], document["overrides"])
    return loaded.at(here), document
