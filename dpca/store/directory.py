"""The result directory: built in a folder of its own, and committed by moving its manifest into place last."""

from __future__ import annotations

import os
import shutil
import socket
from contextlib import suppress
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from dpca.errors import DataError, InputError, LedgerError, OutputExistsError, writing
from dpca.settings import OUTPUT, RESUME, Setting
from dpca.store.earlier import IN_ALL, manifest_of_run
from dpca.store.outputs import FORMAT_VERSION, Outputs
from dpca.store.stored import RESTORE
from dpca.store.unfinished import RUN, Begun
from dpca.system import durable, regular

READABLE = (1, 2)
"""Versions of results that can be read. Version 1 keeps no inventory of the arrays."""
ARRAYS, CERTIFICATE, MANIFEST, STATUS, LEDGER = (
    "result.zarr",
    "certificate.json",
    "manifest.json",
    "status.json",
    "ledger",
)
REPORT, TRAINING = "report.html", "training.zarr"
RUN_KIND, DERIVED = "run", "derived"
"""Kinds of manifests: of a run, or of analyses derived from one."""
LATER = "Read it with the version of dpca that its manifest.json names."
READABLE_CERTIFICATES = {RUN_KIND: (1, 2, 3), DERIVED: (1,)}
"""Versions of certificates that can be read, by the kind of the manifest."""
NAME_A_RESULT = "Name a result directory, one with a manifest.json."
OF_LAST_PASS = ("components*", "weighted_components*", "rotated_*", "left_vectors*")
"""Names of arrays that a run which goes on computes again."""
BEGUN, COMMIT, BATCH, PARTS = "run.json", "commit.json", "batch.json", "parts"


OF_FILES = {
    **dict.fromkeys((".nc", ".nc4", ".cdf"), "netcdf"),
    **dict.fromkeys((".h5", ".hdf5"), "hdf5"),
    **dict.fromkeys((".npy", ".npz"), "npz"),
    **dict.fromkeys((".csv", ".tsv", ".txt"), "csv"),
    ".h5ad": "anndata",
    **dict.fromkeys((".eigenvec", ".eigenval"), "plink"),
    **dict.fromkeys((".mat", ".parquet", ".zip", ".html"), ""),
}
"""Endings of names of files, and the format that dpca export calls so; empty where it has none."""


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

    def check_place(self, named: str | Setting = OUTPUT.path) -> None:
        """Refuse a path where no directory can be.

        Parameters
        ----------
        named : the key or the option that sets the path, for the message
        """
        self.check_name(named)
        for place in (self.path, *self.path.absolute().parents):
            try:
                if place.is_dir():
                    return
                problem = "exists and is not a directory" if place.exists() else ""
            except PermissionError as cause:
                problem = f"can't be looked into: {cause.strerror}"
            if problem:
                raise OutputExistsError(f"{place}: {problem}", f"Choose another {named}.", key="output.path")

    def check_name(self, named: str | Setting = OUTPUT.path, exports: bool = True) -> None:
        """Refuse the name of a file of another format, which would be a directory.

        Parameters
        ----------
        exports : whether dpca export writes files of what is made
        """
        suffix = self.path.suffix.lower()
        if suffix in OF_FILES:
            stem = self.path.with_suffix("")
            raise OutputExistsError(
                f"{self.path}: {suffix} is the name of a file, but a directory is made",
                f"Name a directory, such as {stem}"
                + (
                    f"; dpca export {stem} --to {OF_FILES[suffix]} writes a file of it."
                    if exports and OF_FILES[suffix]
                    else "."
                ),
                key=named,
            )

    def check_no_links(self) -> None:
        """Refuse a ledger that is a link, or has a link for the folder of a run, of a stage or of an array: others' files could be behind it."""
        inside = (path for depth in ("*", "*/*", "*/*/*") for path in self.ledger.glob(depth))
        durable.check_no_links((self.ledger, *inside), f"Remove the link, or choose another {OUTPUT.path}.")

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

    def kept(self) -> Begun | None:
        """How the run began whose result is here, and whose ledger was kept beside it; None if there is none."""
        begun = Begun.read(self.begun)
        return begun if begun is not None and begun.run == self._finished() else None

    def unfinished(self) -> Begun | None:
        """How the run began that can be resumed; None if there is none."""
        begun = Begun.read(self.begun)
        if begun is None or (begun.run == self._finished() and not self.staged_arrays(begun.run).exists()):
            return None  # the ledger was kept, or its removal was interrupted
        return begun

    def _finished(self) -> str | None:
        """The identifier of the run whose result is here."""
        run = mapping(self.path / MANIFEST).get("run")
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
        """
        self.check_place()
        foreign = self._foreign()
        if foreign:
            raise OutputExistsError(
                f"{self.path}: exists and holds other files ({', '.join(foreign[:3])})",
                f"Choose another {OUTPUT.path}: dpca replaces nothing but its own results.",
                key="output.path",
            )
        batch = "dpca batch partition and dpca batch finalize" if (self.ledger / BATCH).exists() else ""
        if not overwrite and self.has_result:
            beside = ", and an unfinished run that is to replace it" if self.begun.exists() else ""
            raise OutputExistsError(
                f"{self.path}: holds a result already{beside}",
                f"Go on with that run with {batch or '--resume'}, or start it anew with --overwrite."
                if beside
                else f"Choose another {OUTPUT.path}, or replace it with --overwrite.",
                key="output.path",
            )
        if not overwrite and self.begun.exists():
            raise OutputExistsError(
                f"{self.path}: holds an unfinished run (see dpca {'batch ' * bool(batch)}status {self.path})",
                f"Go on with it with {batch or RESUME}, or start it anew with --overwrite.",
                key="output.path",
            )

    def _foreign(self) -> list[str]:
        """Names of the files that dpca did not write, if nothing shows that the directory is one of its own."""
        present = set(os.listdir(self.path)) if self.path.exists() else set()
        ledger = set(os.listdir(self.ledger)) if self.ledger.is_dir() else set()
        known = {BEGUN, COMMIT, BATCH, "scratch", *((PARTS, ARRAYS) if BEGUN in ledger else ())}  # which lay there once
        strange = [name for name in ledger - known if not (name.startswith(".") or RUN.fullmatch(name))]
        if strange:
            return [f"{LEDGER}/{name}" for name in sorted(strange)]
        manifest, status = mapping(self.path / MANIFEST), mapping(self.path / STATUS)
        own = "format_version" in manifest and ("run" in manifest or set(manifest) >= IN_ALL)
        if ledger or own or ("state" in status and "pid" in status):
            return []
        return sorted(name for name in present if not name.startswith(".") and name != LEDGER)

    def begin(self, begun: Begun) -> None:
        """Prepare the directory for a new run: the files of an unfinished one are discarded."""
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

    def commit(self, certificate: dict[str, Any], manifest: dict[str, Any], outputs: Outputs) -> None:
        """Declare what was built to be the result; from here on `publish` can always complete it."""
        with writing(str(self.path)):
            durable.remove_partials(self.ledger)  # left by workers that were killed while they wrote
            arrays = outputs.inventory(finished=True)
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
            staged = self.staged_arrays(document["manifest"]["run"])
            if staged.exists():
                for name in (MANIFEST, REPORT, ARRAYS):
                    durable.remove(self.path / name)
                durable.move(staged, self.path / ARRAYS)
            write_documents(self.path, document["certificate"], document["manifest"])
            if keep_ledger:
                # The ledger is kept as a record, or for more passes; what is not done by a job array any more is not said to be.
                for name in (COMMIT, BATCH):
                    durable.remove(self.ledger / name)
            else:
                self.discard()

    def reopen(self, begun: Begun) -> None:
        """Make a run whose ledger was kept one that goes on, as `begun`: its result stays until the new one is whole.

        The arrays of the result, except those of its last pass, are those that the run goes on with.
        """
        staged = self.staged_arrays(begun.run)
        with writing(str(self.path)):
            durable.remove(staged)
            durable.make_directories(staged.parent)
            aside = staged.with_name(f".{staged.name}.partial")
            durable.remove(aside)
            for path in sorted((self.path / ARRAYS).rglob("*")):
                place = path.relative_to(self.path / ARRAYS)
                if path.is_file() and not any(fnmatch(place.parts[0], name) for name in OF_LAST_PASS):
                    durable.make_directories((aside / place).parent)
                    with path.open("rb") as stored:
                        durable.write(aside / place, partial(shutil.copyfileobj, stored))
            durable.move(aside, staged)
            begun.write(self.begun)

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


def mapping(path: Path) -> dict[str, Any]:
    """The mapping in a JSON file; empty if the file is absent, damaged or holds no mapping."""
    try:
        return mapping_of(regular.read_text(path))
    except (OSError, ValueError):
        return {}


def mapping_of(text: str) -> dict[str, Any]:
    """The mapping in a JSON text; empty if the text is damaged or holds no mapping."""
    try:
        document = regular.parsed(text)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def kind_at(place: Path) -> str | None:
    """Kind of result by the manifest at a place; None where there is none."""
    manifest = mapping(place / MANIFEST)
    return str(manifest.get("kind", RUN_KIND)) if "format_version" in manifest else None


def manifest_at(place: Path, kind: str = RUN_KIND) -> dict[str, Any]:
    """The manifest of a result.

    Parameters
    ----------
    kind : what it has to describe
    """
    _check_directory(place)
    try:
        text = regular.read_text(place / MANIFEST)
    except FileNotFoundError:
        if (place / LEDGER).exists() or (place / STATUS).exists():
            raise InputError(
                f"{place}: its run has not ended well (see dpca status {place})",
                f"Go on with it with {RESUME}.",
            ) from None
        raise InputError(f"{place}: is no result of dpca run", NAME_A_RESULT) from None
    except (OSError, ValueError) as cause:
        raise InputError(f"{place / MANIFEST}: can't be read: {cause}", RESTORE) from cause
    manifest = mapping_of(text)
    if manifest.get("format_version", FORMAT_VERSION) not in READABLE:
        raise InputError(
            f"{place}: has format_version {manifest['format_version']}, but this dpca reads up to {FORMAT_VERSION}",
            LATER,
        )
    if manifest.get("kind", RUN_KIND) != kind and "kind" in manifest:
        sources = ", ".join(map(str, manifest.get("from", {}).values()))
        raise InputError(
            f"{place}: holds analyses derived from {sources}, and is no result of dpca run",
            f"Name {sources.replace(', ', ' or ')}. dpca report shows what was derived; xarray.open_zarr({str(place / ARRAYS)!r}, group=NAME) opens an analysis.",
        )
    try:
        if not set(manifest) >= (IN_ALL if kind == RUN_KIND else {"format_version", "run", "arrays", "from"}):
            raise KeyError
        return manifest_of_run(manifest) if kind == RUN_KIND else manifest
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, ZeroDivisionError):
        raise InputError(f"{place}: its {MANIFEST} is damaged", RESTORE) from None


def certificate_at(place: Path, name: str, kind: str = RUN_KIND) -> dict[str, Any]:
    """The certificate of a result, of any version.

    Parameters
    ----------
    name : of the result, in errors
    kind : that of its manifest
    """
    found = mapping(place / CERTIFICATE)
    readable, needed = READABLE_CERTIFICATES[kind], "verdict" if kind == RUN_KIND else "analyses"
    if not {"format_version", needed} <= set(found):
        raise InputError(f"{name}: its {CERTIFICATE} is gone or damaged", RESTORE)
    if found["format_version"] not in readable:
        raise InputError(
            f"{name}: its {CERTIFICATE} has format_version {found['format_version']}, but this dpca reads up to {readable[-1]}",
            LATER,
        )
    return found


def check_replaces_no_part(file: Path) -> None:
    """Refuse a file that is there, and is a part of a result, whatever may be replaced."""
    if not os.path.lexists(file):
        return
    inside = next((above for above in file.resolve().parents if kind_at(above) is not None), None)
    if inside is not None:
        raise OutputExistsError(f"{file}: is a part of the result {inside}", "Name another file with --out.")


class SameRun:
    """A check that a directory still holds the result of a run, to be made after each read of its arrays.

    The manifest goes before arrays are replaced (`ResultDirectory.publish`): what was read while it was there is of its run.

    Parameters
    ----------
    name : of the result in errors
    place, kind : where it is, and the kind of its manifest
    run : the identifier of the run
    """

    def __init__(self, name: str, place: Path, run: str, kind: str = RUN_KIND) -> None:
        self._name, self._place, self._run, self._kind = name, place, run, kind
        self._seen: tuple[int, int, int] | None = None
        """Facts about the file of the manifest when it was read last."""

    def __call__(self) -> None:
        seen = self._facts()
        if seen is not None and seen == self._seen:
            return
        found = str(manifest_at(self._place, self._kind)["run"])
        if found != self._run:
            raise DataError(
                f"{self._name}: was replaced while it was read: it holds the result of another run by now",
                "Open it again, or do it again with the result that is there now.",
            )
        self._seen = seen

    def _facts(self) -> tuple[int, int, int] | None:
        try:
            found = os.stat(self._place / MANIFEST)
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size


def _check_directory(place: Path) -> None:
    """Refuse a path that is no directory."""
    if not os.path.isdir(place):
        problem = "is a file, and no result of dpca run" if os.path.exists(place) else "does not exist"
        raise InputError(f"{place}: {problem}", NAME_A_RESULT)


def write_documents(place: Path, certificate: dict[str, Any], manifest: dict[str, Any]) -> None:
    """Write the documents of a result; the manifest last, which makes the result complete."""
    durable.write_json(place / CERTIFICATE, certificate)
    durable.write_json(place / MANIFEST, manifest)


def read_status(path: Path) -> dict[str, Any]:
    """The contents of status.json; `killed` instead of `running` if the run's process was on this host and is gone."""
    _check_directory(path)
    status = mapping(path / STATUS)
    if not {"state", "message", "stage", "host", "pid", "started", "updated"} <= set(status):
        if kind_at(path) == DERIVED:
            raise InputError(f"{path}: holds analyses that dpca derive has finished: no run", "dpca report shows them.")
        if (path / MANIFEST).exists() and not (path / STATUS).exists():
            raise InputError(f"{path}: is a fit that was saved in Python: it has no run", "dpca report shows it.")
        raise InputError(f"{path}: has no readable {STATUS}", "Name a result directory of dpca run.")
    unfinished = (path / LEDGER / BEGUN).exists()
    if status["state"] == "running" and status["host"] == socket.gethostname() and not psutil.pid_exists(status["pid"]):
        status["state"], status["message"] = "killed", "" if unfinished else "nothing is kept"
    if unfinished and status["state"] in ("killed", "interrupted"):
        status["message"] = "; ".join(filter(None, [status["message"], _how_it_goes_on(path)]))
    return status


def _how_it_goes_on(path: Path) -> str:
    """A sentence on what is finished of a run that has ended early: whether it can be resumed."""
    try:
        if (begun := Begun.read(path / LEDGER / BEGUN)) is not None:
            begun.check_version(path)
    except LedgerError as error:
        return f"what is finished can't be gone on with: {error.message.removeprefix(f'{path}: ')}"
    return "what is finished is kept: --resume goes on"
