"""The result directory: built aside, and committed by renaming its manifest into place last."""

from __future__ import annotations

import os
import platform
import shutil
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_info

from dpca.errors import OutputExistsError, StorageError
from dpca.progress import write_json

FORMAT_VERSION = 1
ARRAYS, CERTIFICATE, MANIFEST, STATUS, LEDGER = (
    "result.zarr",
    "certificate.json",
    "manifest.json",
    "status.json",
    "ledger",
)
LAST_OF_SPECTRUM = "eigenvalues"
_LIBRARIES = ("dpca", "numpy", "dask", "distributed", "zarr", "h5py", "hdf5plugin", "numcodecs", "psutil")


class ResultDirectory:
    """A result at `path`, complete once it has a manifest.

    While a run is under way its arrays grow in `ledger/`, beside whatever an earlier run left. `publish`
    moves them out; a reader that finds `manifest.json` finds the result that it describes, whole.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    @property
    def staged_arrays(self) -> Path:
        """Where the run in hand writes its Zarr group."""
        return self.path / LEDGER / ARRAYS

    @property
    def status(self) -> Path:
        return self.path / STATUS

    def check_place(self) -> None:
        """Refuse a path where no directory can be.

        Raises
        ------
        OutputExistsError
            When the path, or what should be a directory above it, is something else.
        """
        for place in (self.path, *self.path.absolute().parents):
            if place.is_dir():
                return
            if place.exists():
                raise OutputExistsError(
                    f"{place}: exists and is not a directory", "Choose another output.path.", key="output.path"
                )

    def begin(self, overwrite: bool) -> None:
        """Make the directory ready for a run.

        Parameters
        ----------
        overwrite : replace an earlier result, once the new one is whole; drop an unfinished run

        Raises
        ------
        OutputExistsError
            When something is there that may not be replaced. Files that dpca did not write never are.
        StorageError
            When the directory can't be made.
        """
        self.check_place()
        present = set(os.listdir(self.path)) if self.path.exists() else set()
        own = {ARRAYS, CERTIFICATE, MANIFEST, STATUS, LEDGER}
        foreign = sorted(name for name in present - own if not name.startswith("."))
        if foreign and not present & {MANIFEST, LEDGER, STATUS}:
            raise OutputExistsError(
                f"{self.path}: exists and holds other files ({', '.join(foreign[:3])})",
                "Choose another output.path: dpca replaces nothing but its own results.",
                key="output.path",
            )
        if not overwrite and MANIFEST in present:
            raise OutputExistsError(
                f"{self.path}: holds a result already",
                "Choose another output.path, or replace it with --overwrite.",
                key="output.path",
            )
        if not overwrite and LEDGER in present:
            raise OutputExistsError(
                f"{self.path}: holds an unfinished run, which may still be going on (see dpca status {self.path})",
                "Start it anew with --overwrite.",
                key="output.path",
            )
        try:
            self.discard()
            self.staged_arrays.parent.mkdir(parents=True)
        except OSError as cause:
            raise StorageError(
                f"{self.path}: can't be written: {cause.strerror}", "Choose another output.path."
            ) from cause

    def publish(self, certificate: dict[str, Any], manifest: dict[str, Any]) -> None:
        """Move what was built into place; the manifest last.

        The old manifest goes first: between the two moments there is an unfinished run, never a manifest
        beside arrays that it does not describe.
        """
        (self.path / MANIFEST).unlink(missing_ok=True)
        arrays = self.path / ARRAYS
        if arrays.exists():
            shutil.rmtree(arrays)
        os.replace(self.staged_arrays, arrays)
        write_json(self.path / CERTIFICATE, certificate)
        write_json(self.path / MANIFEST, {"format_version": FORMAT_VERSION, **manifest})
        self.discard()

    def has_spectrum(self) -> bool:
        """Whether the run in hand has finished its first pass and the eigensolve."""
        return (self.staged_arrays / LAST_OF_SPECTRUM).exists()

    def discard(self) -> None:
        """Remove what an unfinished run left."""
        ledger = self.path / LEDGER
        if ledger.exists():
            shutil.rmtree(ledger)


def environment() -> dict[str, Any]:
    """What the bits of a result depend on besides input and plan: versions, BLAS, CPU."""
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpu": _cpu(),
        "libraries": {name: version(name) for name in _LIBRARIES},
        "blas": [
            {key: info.get(key) for key in ("internal_api", "version", "architecture", "num_threads")}
            for info in threadpool_info()
            if info.get("user_api") == "blas"
        ],
    }


def as_plain(plan: Any) -> dict[str, Any]:
    """A plan as JSON holds it, with the numbers that follow from it."""
    return {**asdict(plan), "n_tiles": plan.n_tiles, "n_slabs": plan.n_slabs}


def _cpu() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            names = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
        return names[0] if names else platform.processor()
    except OSError:
        return platform.processor()
