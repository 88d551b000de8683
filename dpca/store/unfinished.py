"""Conditions for a run to resume: its input, its config, its arithmetic must match."""

from __future__ import annotations

import json
import os
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from dpca.errors import LedgerError, writing
from dpca.system import durable
from dpca.system.blas import blas_libraries
from dpca.system.scratch import ScratchFolder

FORMAT_VERSION = 3
RUN = re.compile(r"[0-9a-f]{32}")
"""The identifier of a run, which is the name of its folder."""
NUMERICS = 7
"""Increased with every change of dpca after which the same plan may give other bits, or another name to arrays on the way."""


@dataclass(frozen=True)
class Begun:
    """The record of how a run began: everything that its finished parts depend on."""

    run: str
    """A random identifier of the run."""
    config: dict[str, Any]
    """The settings that decide the result, resolved."""
    input: dict[str, Any]
    """The fingerprint of the input."""
    numerics: dict[str, Any]
    plan: dict[str, Any]
    """The part of the plan that decides the bits of the result, in plain values."""
    scratch: str = ""
    """The folder of the copy of the input, according to the run."""
    job: str | None = None
    """The job of a batch system in which it began."""

    @classmethod
    def now(cls, config: dict[str, Any], fingerprint: dict[str, Any], plan: dict[str, Any]) -> Begun:
        """The record of a run that begins now, in this process."""
        job = os.environ.get("SLURM_JOB_ID")
        return cls(uuid.uuid4().hex, _plain(config), _plain(fingerprint), _numerics(), _plain(plan), job=job)

    def scratch_folder(self, output: Path) -> ScratchFolder:
        """The folder of its copy of the input; the folder of another run is left alone."""
        return replace(ScratchFolder.of("", self.run, output), path=Path(self.scratch))

    def write(self, path: Path) -> None:
        """Write the record durably."""
        with writing(str(path)):
            durable.write_checked(path, self.as_json())

    def as_json(self) -> dict[str, Any]:
        """The record in plain values."""
        return {
            "format_version": FORMAT_VERSION,
            "run": self.run,
            "config": self.config,
            "input": self.input,
            "numerics": self.numerics,
            "plan": self.plan,
            "scratch": self.scratch,
            "job": self.job,
        }

    @classmethod
    def read(cls, path: Path) -> Begun | None:
        """The record of the run of a ledger; None if there is none."""
        try:
            stored = record_at(path, FORMAT_VERSION)
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as cause:
            raise useless(path, str(cause)) from cause
        try:
            for name in ("config", "input", "numerics", "plan"):
                if not isinstance(stored[name], dict):
                    raise useless(path, f"its {name} is no mapping")
            if not isinstance(stored["config"].get("model", {}), dict):
                raise useless(path, "its config.model is no mapping")
            return cls(
                run_of(stored),
                stored["config"],
                stored["input"],
                stored["numerics"],
                stored["plan"],
                str(stored["scratch"]),
                stored.get("job"),
            )
        except (KeyError, TypeError, ValueError) as cause:
            if isinstance(cause, LedgerError):
                raise
            raise useless(path, f"{type(cause).__name__}: {cause}") from cause

    def check_version(self, place: Path) -> None:
        """Refuse to resume what a version of dpca with other arithmetic began."""
        if (found := self.numerics.get("version")) != NUMERICS:
            raise LedgerError(
                f"{place}: its run was begun by a version of dpca with other arithmetic ({found}, now {NUMERICS}): parts of both "
                "would not add up to the bits of either",
                "Start anew with --overwrite, or go on with the version of before.",
            )

    def check(self, place: Path, now: Begun, free: Sequence[str] = ()) -> list[str]:
        """Refuse to resume what has changed since; return notes on smaller changes.

        Parameters
        ----------
        free : keys of the model that may differ, such as labels or block_krylov.max_passes
        """
        for what, before, after, remedy in (
            (
                "the config changed",
                without_free(self.config, free),
                without_free(now.config, free),
                "Set it back, or start anew with --overwrite.",
            ),
            (
                f"the input {now.input['uri']} changed" if "uri" in now.input else "an input changed",
                without_place(self.input),
                without_place(now.input),
                "Restore it, or start anew with --overwrite: parts of two inputs can't be added up.",
            ),
            (
                "the arithmetic changed",
                _without(self.numerics, "cpu"),
                _without(now.numerics, "cpu"),
                "Go on with the libraries of before, or start anew with --overwrite: parts would not have the same bits.",
            ),
        ):
            changes = differences(before, after)
            if changes:
                raise LedgerError(f"{place}: {what} since the run began: {'; '.join(changes[:5])}", remedy)
        changes = differences(self.numerics.get("cpu"), now.numerics["cpu"])
        return [
            f"begun on another kind of CPU ({'; '.join(changes)}): the last bits may differ from those of a run on one kind"
        ] * bool(changes)


def record_at(path: Path, version: int) -> dict[str, Any]:
    """A record that `durable.write_checked` wrote, of a format's version; a ValueError says what is wrong with another."""
    found = durable.read_json(path)
    plain = isinstance(found, dict) and "format_version" in found  # the first versions had no checksum
    document: dict[str, Any] = found if plain else durable.read_checked(path)
    if not isinstance(document, dict) or "format_version" not in document:
        raise ValueError("it has no format_version")
    if document["format_version"] != version or plain:
        raise ValueError(
            f"its format_version is {document['format_version']}, not {version}: another version of dpca wrote it"
        )
    return document


def run_of(document: dict[str, Any]) -> str:
    """The identifier of a run, which is the name of its folder."""
    run = str(document["run"])
    if not RUN.fullmatch(run):
        raise ValueError(f"run is {run!r}")
    return run


def differences(before: Any, after: Any, name: str = "") -> list[str]:
    """The differences between two documents, key by key: `model.ddof: 1, now 0`."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        keys = [*before, *(key for key in after if key not in before)]
        return [
            sentence
            for key in keys
            for sentence in differences(before.get(key), after.get(key), f"{name}.{key}" if name else str(key))
        ]
    if before == after:
        return []
    if _are_mappings(before) and _are_mappings(after) and len(before) == len(after):
        pairs = enumerate(zip(before, after, strict=True))
        return [sentence for number, pair in pairs for sentence in differences(*pair, f"{name}.{number}")]
    file, _, fact = name.rpartition(".")
    of = f"{file.removeprefix('files.')}: " if file else ""
    if fact == "modified_ns":
        was, now = (_moment(value) for value in (before, after))
        return [f"{of}the file was written at {was}, now at {now} (a copy keeps its time by cp -p or rsync -t)"]
    if fact == "chunks_sha256" and before is None:
        return [f"{of}an earlier version did not record the sizes and times of its chunk files"]
    if fact == "chunks_sha256":
        return [f"{of}sizes or times of its chunk files are others (a copy keeps times by cp -p or rsync -t)"]
    return [f"{name}: {_shown(before)}, now {_shown(after)}"]


def _are_mappings(values: Any) -> bool:
    return isinstance(values, list) and all(isinstance(one, Mapping) for one in values)


def _moment(nanoseconds: Any) -> str:
    try:
        return str(datetime.fromtimestamp(nanoseconds / 1e9, UTC))
    except (TypeError, ValueError, OverflowError, OSError):  # none is known, or it is none
        return "some time"


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _numerics() -> dict[str, Any]:
    """Arithmetic that the bits of a sum depend on besides the plan. The kind of CPU decides which BLAS kernels run."""
    loaded = blas_libraries()
    # SciPy may have loaded a BLAS of its own, which multiplies nothing here.
    blas = [info for info in loaded if Path(str(info.get("filepath"))).parent.name.startswith("numpy")] or loaded
    return {
        "version": NUMERICS,
        "numpy": np.__version__,
        "blas": [f"{info.get('internal_api')} {info.get('version')}" for info in blas],
        "cpu": {"architecture": [info.get("architecture") for info in blas]},
    }


def without_place(fingerprint: dict[str, Any]) -> dict[str, Any]:
    """A fingerprint without the location of the input: only its contents have to match."""
    return _without(fingerprint, "uri")


def without_free(config: dict[str, Any], free: Sequence[str]) -> dict[str, Any]:
    """The settings without keys of the model that are free, also of mappings in it: `block_krylov.max_passes`."""
    model = {}
    for name, value in config.get("model", {}).items():
        if name in free:
            continue
        inner = [key.partition(".")[2] for key in free if key.startswith(f"{name}.")]
        model[name] = {key: one for key, one in value.items() if key not in inner} if inner else value
    return {**config, "model": model}


def _without(document: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in document.items() if name != key}


def _plain(document: dict[str, Any]) -> dict[str, Any]:
    """The document as it is after writing to JSON and reading back."""
    plain: dict[str, Any] = json.loads(json.dumps(document))
    return plain


def useless(path: Path, reason: str) -> LedgerError:
    """The error for a record that can't be used."""
    return LedgerError(f"{path}: can't be used: {reason}", "Start anew with --overwrite.")
