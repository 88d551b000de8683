"""The result directory: built in a folder of its own, and committed by moving its manifest into place last."""

from __future__ import annotations

import json
import os
import re
import socket
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from numpy.typing import NDArray

from dpca.errors import InputError, LedgerError, OutputExistsError, writing
from dpca.numerics.preprocess import Rules
from dpca.sources.coordinate import Coordinate
from dpca.store.fitted import Fitted
from dpca.store.outputs import FORMAT_VERSION, Dims, Outputs, SyncedStore
from dpca.store.stored import RESTORE, Arrays
from dpca.store.unfinished import RUN, Begun
from dpca.system import durable

READABLE = (1, FORMAT_VERSION)
"""Versions of results that can be read. Version 1 keeps no inventory of the arrays."""
ARRAYS, CERTIFICATE, MANIFEST, STATUS, LEDGER = (
    "result.zarr",
    "certificate.json",
    "manifest.json",
    "status.json",
    "ledger",
)
REPORT, TRAINING = "report.html", "training.zarr"
FIRST_YEAR = 1583
"""From this year on, the calendars that CF calls standard agree."""
MOST_SECONDS, TICK = 1e12, 1e-4
"""The largest distance from 1970 that is taken for a date; and the error of sums of fractions of a day, in seconds."""
NAME_A_RESULT = "Name a result directory, one with a manifest.json."
THE_FIT = "this estimator"
"""The name of a fit in memory, in errors."""
BEGUN, COMMIT, BATCH, PARTS = "run.json", "commit.json", "batch.json", "parts"


class ResultDirectory:
    """A result at `path`, complete once it has a manifest.

    A run writes its arrays and finished parts to a folder of its own in `ledger/`, beside whatever an earlier run left.
    `publish` moves the arrays out of it; so whoever finds `manifest.json` finds the complete result that it describes.
    A task of a run that was stopped may still be working on some machine of a cluster: it writes to a folder that
    no other run reads.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    @property
    def status(self) -> Path:
        return self.path / STATUS

    def check_place(self, named: str = "output.path") -> None:
        """Refuse a path where no directory can be.

        Parameters
        ----------
        named : the key or the option that sets the path, for the message

        Raises
        ------
        OutputExistsError
            When the path, or what should be a directory above it, is something else, or can't be examined.
        """
        for place in (self.path, *self.path.absolute().parents):
            try:
                if place.is_dir():
                    return
                problem = "exists and is not a directory" if place.exists() else ""
            except PermissionError as cause:
                problem = f"can't be looked into: {cause.strerror}"
            if problem:
                raise OutputExistsError(f"{place}: {problem}", f"Choose another {named}.", key="output.path")

    @property
    def ledger(self) -> Path:
        """The folder where the current run keeps its finished parts."""
        return self.path / LEDGER

    def parts(self, run: str) -> Path:
        """The folder of a run's finished parts."""
        return self.ledger / run / PARTS

    def staged_arrays(self, run: str) -> Path:
        """The folder where a run writes its Zarr group."""
        return self.ledger / run / ARRAYS

    @property
    def begun(self) -> Path:
        """The record of how the current run began; it is removed first, so that a ledger without it does not count."""
        return self.path / LEDGER / BEGUN

    def unfinished(self) -> Begun | None:
        """How the run began that can be resumed; None if there is none.

        Raises
        ------
        LedgerError
            When its record can't be used.
        """
        begun = Begun.read(self.begun)
        if begun is None or begun.run == self._finished():
            return None  # the ledger was kept, or its removal was interrupted
        return begun

    def _finished(self) -> str | None:
        """The identifier of the run whose result is here."""
        run = _mapping(self.path / MANIFEST).get("run")
        return None if run is None else str(run)

    @property
    def has_result(self) -> bool:
        """Whether a complete result is here."""
        return (self.path / MANIFEST).exists()

    def check_free(self, overwrite: bool) -> None:
        """Refuse a directory that may not be replaced.

        Parameters
        ----------
        overwrite : an earlier result may be replaced, once the new one is complete, and an unfinished run discarded

        Raises
        ------
        OutputExistsError
            When something is there that may not be replaced. Files that dpca did not write may never be.
        """
        self.check_place()
        foreign = self._foreign()
        if foreign:
            raise OutputExistsError(
                f"{self.path}: exists and holds other files ({', '.join(foreign[:3])})",
                "Choose another output.path: dpca replaces nothing but its own results.",
                key="output.path",
            )
        batch = "dpca batch partition and dpca batch finalize" if (self.ledger / BATCH).exists() else ""
        if not overwrite and self.has_result:
            beside = ", and an unfinished run that is to replace it" if self.begun.exists() else ""
            raise OutputExistsError(
                f"{self.path}: holds a result already{beside}",
                f"Go on with that run with {batch or '--resume'}, or start it anew with --overwrite."
                if beside
                else "Choose another output.path, or replace it with --overwrite.",
                key="output.path",
            )
        if not overwrite and self.begun.exists():
            raise OutputExistsError(
                f"{self.path}: holds an unfinished run (see dpca {'batch ' * bool(batch)}status {self.path})",
                f"Go on with it with {batch or 'dpca run --resume'}, or start it anew with --overwrite.",
                key="output.path",
            )

    def _foreign(self) -> list[str]:
        """Names of the files that dpca did not write, if nothing shows that the directory is one of its own."""
        present = set(os.listdir(self.path)) if self.path.exists() else set()
        ledger = set(os.listdir(self.ledger)) if self.ledger.is_dir() else set()
        known = {BEGUN, COMMIT, BATCH, "scratch"}
        strange = [name for name in ledger - known if not (name.startswith(".") or RUN.fullmatch(name))]
        if strange:
            return [f"{LEDGER}/{name}" for name in sorted(strange)]
        manifest, status = _mapping(self.path / MANIFEST), _mapping(self.path / STATUS)
        if ledger or ("run" in manifest and "format_version" in manifest) or ("state" in status and "pid" in status):
            return []
        return sorted(name for name in present if not name.startswith(".") and name != LEDGER)

    def begin(self, begun: Begun) -> None:
        """Prepare the directory for a new run: the files of an unfinished one are discarded.

        Raises
        ------
        StorageError
            When the directory can't be written.
        """
        with writing(str(self.path)):
            with suppress(LedgerError):
                if dropped := Begun.read(self.begun):
                    dropped.scratch_folder(self.path).remove()
            self.discard()
            durable.make_directories(self.staged_arrays(begun.run))
            begun.write(self.begun)

    def change(self, begun: Begun) -> None:
        """Replace the record of the run, which resumes as `begun`: a result that it has committed is withdrawn."""
        with writing(str(self.path)):
            durable.remove(self.ledger / COMMIT)
            begun.write(self.begun)

    def commit(self, certificate: dict[str, Any], manifest: dict[str, Any]) -> None:
        """Declare what was built to be the result; from here on `publish` can always complete it."""
        with writing(str(self.path)):
            durable.remove_partials(self.ledger)  # left by workers that were killed while they wrote
            arrays = Outputs(str(self.staged_arrays(manifest["run"]))).inventory()
            document = {
                "certificate": certificate,
                "manifest": {"format_version": FORMAT_VERSION, **manifest, "arrays": arrays},
            }
            durable.write_checked(self.ledger / COMMIT, document)

    def committed(self, begun: Begun) -> dict[str, Any] | None:
        """The committed result of a run, which is not all in place yet; None if it can't be used."""
        try:
            document: dict[str, Any] = durable.read_checked(self.ledger / COMMIT)
        except (OSError, ValueError):
            return None
        if document["manifest"]["run"] != begun.run:
            return None
        staged = self.staged_arrays(begun.run)
        arrays = Outputs(str(staged if staged.exists() else self.path / ARRAYS))
        return document if arrays.inventory() == document["manifest"]["arrays"] and not arrays.damage_of_any() else None

    def publish(self, keep_ledger: bool = False) -> None:
        """Move what was committed into place; the manifest last. It can be repeated if it was interrupted anywhere.

        The old manifest is removed first: until the new one is there, the directory holds an unfinished run, never
        a manifest beside arrays that it does not describe.
        """
        with writing(str(self.path)):
            durable.remove_partials(self.path, deep=False)
            document = durable.read_checked(self.ledger / COMMIT)
            run = document["manifest"]["run"]
            if run != self._finished():
                durable.remove(self.path / MANIFEST)
                durable.remove(self.path / REPORT)
            if self.staged_arrays(run).exists():
                durable.remove(self.path / ARRAYS)
                durable.move(self.staged_arrays(run), self.path / ARRAYS)
            write_documents(self.path, document["certificate"], document["manifest"])
            if keep_ledger:
                durable.remove(self.ledger / COMMIT)  # the ledger is kept as a record, not to resume from
            else:
                self.discard()

    def tidy(self) -> None:
        """Remove the rest of a ledger whose removal was interrupted."""
        durable.remove_partials(self.path, deep=False)
        if (self.ledger / COMMIT).exists() or not self.begun.exists():
            self.discard()

    def discard(self) -> None:
        """Remove the ledger, its record first."""
        if self.ledger.exists():
            durable.remove(self.begun)
            durable.remove(self.ledger)


def _mapping(path: Path) -> dict[str, Any]:
    """The mapping in a JSON file; empty if the file is absent, damaged or holds no mapping."""
    try:
        return _mapping_of(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def _mapping_of(text: str) -> dict[str, Any]:
    """The mapping in a JSON text; empty if the text is damaged or holds no mapping."""
    try:
        document = json.loads(text)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


@dataclass(frozen=True)
class Result:
    """A finished result, open for reading."""

    path: Path | None
    """Its directory; None for a fit that is only in memory."""
    manifest: dict[str, Any]
    arrays: Arrays
    name: str
    """The name of the result in errors."""
    _certificate: dict[str, Any] | None = None

    @property
    def place(self) -> Path:
        """The directory of a result that has one."""
        assert self.path is not None
        return self.path

    @property
    def certificate(self) -> dict[str, Any]:
        """The certificate: what was measured about the result.

        Raises
        ------
        InputError
            When it is missing or damaged.
        """
        certificate = self._certificate
        if certificate is None:
            certificate = _mapping(self.place / CERTIFICATE)
        if "verdict" not in certificate:
            raise InputError(f"{self.name}: its {CERTIFICATE} is gone or damaged", RESTORE)
        return certificate

    @property
    def run(self) -> str:
        """The identifier of the run that made it."""
        return str(self.manifest["run"])

    @property
    def samples_axis(self) -> int:
        return int(self.manifest["input"]["samples_axis"])

    @property
    def kind(self) -> str:
        """pca or kernel_pca."""
        return str(self.manifest["config"]["model"]["kind"])

    @property
    def n_samples(self) -> int:
        return self.arrays["scores"].shape[-2]

    @property
    def feature_shape(self) -> tuple[int, ...]:
        return self.arrays["mean"].shape

    @property
    def dims(self) -> Dims:
        """Names of its axes."""
        features = self.arrays["mean"].dims if "mean" in self.arrays else ()
        return Dims(self.arrays["scores"].dims[-2], features)

    @property
    def n_components(self) -> int:
        return self.arrays["singular_values"].shape[-1]

    @property
    def rules(self) -> Rules:
        """The preprocessing of the fit."""
        preprocess = self.manifest["config"]["preprocess"]
        # For kernels, `center` only decides what they see: the data are streamed about their mean in any case.
        return Rules(
            preprocess["center"] or self.kind == "kernel_pca",
            preprocess["scale"],
            preprocess["missing"],
            self.manifest["config"]["model"]["ddof"],
        )

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
    def fitted(self) -> Fitted:
        """Means, scales and components; None instead of components for kernels, which have none.

        Raises
        ------
        InputError
            When the result has no components.
        """
        if self.kind == "kernel_pca":
            return Fitted(self.arrays["mean"], self.arrays["scale"], None)
        if "components" not in self.arrays:
            raise InputError(
                f"{self.name}: has no components", "Run it again with output.components: true, and --overwrite."
            )
        return Fitted(*(self.arrays[name] for name in ("mean", "scale", "components")))

    def coordinate(self, name: str) -> Coordinate | None:
        """The coordinate along a dimension, where the input had one."""
        if name not in self.arrays:
            return None
        return self.arrays[name].as_coordinate


def open_result(path: str | Path, name: str | None = None) -> Result:
    """Open a result directory.

    Parameters
    ----------
    name : its name in errors, if not its path

    Raises
    ------
    InputError
        When there is no result, when its run has not ended, or when a later version of dpca wrote it.
    """
    place = Path(path)
    manifest = _manifest_at(place)
    store = place.absolute() / ARRAYS
    if not store.is_dir():
        raise InputError(f"{place}: its {ARRAYS} is gone", RESTORE)
    called = name or str(place)
    check = partial(_check_still, place.absolute(), manifest["run"])
    arrays = Arrays(str(store), called, manifest.get("arrays"), check)
    _ = arrays.group  # an error in opening it is raised now
    return Result(place, manifest, arrays, called)


def in_memory(result: Result, values: Mapping[str, NDArray[Any]] | None = None) -> Result:
    """A copy of a result in the memory of this process; `values` replace the stored values of some arrays."""
    outputs = Outputs({})
    _copy(result, outputs, values or {})
    assert isinstance(outputs.store, dict)
    arrays = Arrays(outputs.store, THE_FIT, outputs.inventory())
    return Result(None, result.manifest, arrays, THE_FIT, result.certificate)


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

    Raises
    ------
    OutputExistsError
        When something is there.
    """
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
                "arrays": outputs.inventory(),
            }
            write_documents(aside, result.certificate, manifest)
            durable.move(aside, place)
        finally:
            durable.remove(aside)
    return place


def write_documents(place: Path, certificate: dict[str, Any], manifest: dict[str, Any]) -> None:
    """Write the documents of a result; the manifest last, which makes the result complete."""
    durable.write_json(place / CERTIFICATE, certificate)
    durable.write_json(place / MANIFEST, manifest)


def _copy(result: Result, outputs: Outputs, values: Mapping[str, NDArray[Any]]) -> None:
    outputs.create({**result.arrays.attributes, "format_version": FORMAT_VERSION})
    for name, stored in result.arrays.items():
        outputs.copy(name, stored, values.get(name))
    outputs.finish()


def _manifest_at(place: Path) -> dict[str, Any]:
    """The manifest of a result."""
    _check_directory(place)
    try:
        text = (place / MANIFEST).read_text(encoding="utf-8")
    except FileNotFoundError:
        if (place / LEDGER).exists() or (place / STATUS).exists():
            raise InputError(
                f"{place}: its run has not ended well (see dpca status {place})",
                "Go on with it with dpca run --resume.",
            ) from None
        raise InputError(f"{place}: is no result of dpca run", NAME_A_RESULT) from None
    except (OSError, ValueError) as cause:
        raise InputError(f"{place / MANIFEST}: can't be read: {cause}", RESTORE) from cause
    manifest = _mapping_of(text)
    if manifest.get("format_version", FORMAT_VERSION) not in READABLE:
        raise InputError(
            f"{place}: has format_version {manifest['format_version']}, but this dpca reads up to {FORMAT_VERSION}",
            "Read it with the version of dpca that its manifest.json names.",
        )
    if not {"format_version", "run", "config", "input", "asked", "fingerprint"} <= set(manifest):
        raise InputError(f"{place}: its {MANIFEST} is damaged", RESTORE)
    return manifest


def _check_still(place: Path, run: str) -> None:
    """Refuse a directory that holds another result by now, for example when an old pickled estimator is used."""
    found = _manifest_at(place)["run"]
    if found != run:
        raise InputError(f"{place}: holds the result of another run by now ({found}, not {run})", "Load or fit again.")


def _check_directory(place: Path) -> None:
    """Refuse a path that is no directory."""
    if not os.path.isdir(place):
        problem = "is a file, and no result of dpca run" if os.path.exists(place) else "does not exist"
        raise InputError(f"{place}: {problem}", NAME_A_RESULT)


def sample_names(result: Result, numbers: Sequence[int] | None = None) -> list[str]:
    """The names of all or some samples: from their coordinate, else their numbers."""
    return names_along(result, result.dims.sample, range(result.n_samples) if numbers is None else numbers)


def names_along(result: Result, dim: str, numbers: Sequence[int]) -> list[str]:
    """The names of some positions along a dimension: from its coordinate, else their numbers."""
    coordinate = result.coordinate(dim)
    if coordinate is None:
        return [str(number) for number in numbers]
    whole = len(numbers) == coordinate.values.shape[0]
    stored = np.asarray(coordinate.values[...] if whole else [coordinate.values[number] for number in numbers])
    times = moments(stored, coordinate.attributes)
    if times is not None:
        return [str(moment) for moment in times]
    return [f"{value:g}" if coordinate.values.dtype.kind == "f" else str(value) for value in stored]


_SINCE = re.compile(
    r"(day|hour|minute|second)s? since (\d{4}-\d\d?-\d\d?)(?:[T ](\d\d:\d\d)(?::00(?:\.0)?)?)?(?: ?(?:UTC|Z))?"
)
_SECONDS = {"day": 86400, "hour": 3600, "minute": 60, "second": 1}
_CALENDARS = ("standard", "gregorian", "proleptic_gregorian")


def moments(values: NDArray[Any], attributes: Mapping[str, Any]) -> NDArray[np.datetime64] | None:
    """Dates and times of a coordinate in the CF conventions' units of time since a date (4.4); None for other units.

    They are in days, seconds or milliseconds: the coarsest unit that keeps the stored precision. None also for model
    calendars, whose years have other lengths, and for times finer than a millisecond: these are left as numbers.
    """
    match = _SINCE.fullmatch(str(attributes.get("units", "")).strip())
    if match is None or values.dtype.kind not in "iuf" or attributes.get("calendar", "standard") not in _CALENDARS:
        return None
    unit, date, time = match.groups()
    year, month, day = (int(part) for part in date.split("-"))
    begins = np.datetime64(f"{year:04d}-{month:02d}-{day:02d}T{time or '00:00'}", "s")
    since_1970 = values.astype(np.float64) * _SECONDS[unit] + begins.astype(np.int64)
    if year < FIRST_YEAR or not (np.abs(since_1970) < MOST_SECONDS).all():
        return None
    stored_to = np.spacing(np.abs(values)) * _SECONDS[unit] if values.dtype.kind == "f" else 0.0
    for name, per_second in (("D", 1 / 86400), ("s", 1), ("ms", 1000)):
        ticks = np.round(since_1970 * per_second)
        if (np.abs(ticks / per_second - since_1970) <= np.maximum(stored_to, TICK)).all():
            return ticks.astype(np.int64).astype(f"datetime64[{name}]")
    return None


def read_status(path: Path) -> dict[str, Any]:
    """The contents of status.json; `killed` instead of `running` if the run's process was on this host and is gone.

    Raises
    ------
    InputError
        When the file is missing or can't be read.
    """
    _check_directory(path)
    status = _mapping(path / STATUS)
    if not {"state", "message", "stage", "host", "pid", "started", "updated"} <= set(status):
        if (path / MANIFEST).exists() and not (path / STATUS).exists():
            raise InputError(f"{path}: is a fit that was saved in Python: it has no run", "dpca report shows it.")
        raise InputError(f"{path}: has no readable {STATUS}", "Name a result directory of dpca run.")
    unfinished = (path / LEDGER / BEGUN).exists()
    if status["state"] == "running" and status["host"] == socket.gethostname() and not psutil.pid_exists(status["pid"]):
        status["state"], status["message"] = "killed", "" if unfinished else "nothing is kept"
    if unfinished and status["state"] in ("killed", "interrupted"):
        status["message"] = "; ".join(filter(None, [status["message"], "what is finished is kept: --resume goes on"]))
    return status
