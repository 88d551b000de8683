"""The result directory: built aside, and committed by renaming its manifest into place last."""

from __future__ import annotations

import json
import os
import platform
import shutil
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray
from threadpoolctl import threadpool_info

from dpca.errors import InputError, OutputExistsError, StorageError
from dpca.passes import Fitted
from dpca.preprocess import Rules
from dpca.progress import write_json
from dpca.sources.base import Coordinate

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


@dataclass(frozen=True)
class Result:
    """A finished result, open for reading."""

    path: Path
    manifest: dict[str, Any]
    arrays: Any
    """The Zarr group."""

    @property
    def samples_axis(self) -> int:
        return int(self.manifest["input"]["samples_axis"])

    @property
    def feature_shape(self) -> tuple[int, ...]:
        return tuple(int(length) for length in self.arrays["mean"].shape)

    @property
    def feature_dims(self) -> tuple[str, ...]:
        return tuple(self.arrays["mean"].metadata.dimension_names)

    @property
    def n_components(self) -> int:
        return int(self.manifest["config"]["model"]["n_components"])

    @property
    def rules(self) -> Rules:
        """Preprocessing of the fit."""
        given = self.manifest["config"]["preprocess"]
        return Rules(given["center"], given["scale"], given["missing"], self.manifest["config"]["model"]["ddof"])

    @property
    def whitening(self) -> NDArray[np.float64]:
        """What scores were divided by, (n_components,): 1 unless they are whitened."""
        deviation = np.sqrt(np.asarray(self.arrays["explained_variance"][...], np.float64))
        whitened = bool(self.arrays["scores"].attrs["whitened"])
        return np.where(whitened & (deviation > 0), deviation, 1.0)

    @property
    def fitted(self) -> Fitted:
        """Means, scales and components.

        Raises
        ------
        InputError
            When the result has no components.
        """
        if "components" not in self.arrays:
            raise InputError(
                f"{self.path}: has no components", "Run it again with output.components: true, and --overwrite."
            )
        return Fitted(*(self.arrays[name] for name in ("mean", "scale", "components")))

    def coordinate(self, name: str) -> Coordinate | None:
        """The coordinate along a dimension, where the input had one."""
        if name not in self.arrays:
            return None
        array = self.arrays[name]
        return Coordinate(name, array, dict(array.attrs))


def open_result(path: str | Path) -> Result:
    """Open a result directory.

    Raises
    ------
    InputError
        When there is none, when its run has not ended, or when another version of dpca wrote it.
    """
    place = Path(path)
    try:
        manifest = json.loads((place / MANIFEST).read_text(encoding="utf-8"))
        arrays = zarr.open_group(str(place / ARRAYS), mode="r")
    except FileNotFoundError:
        unfinished = (place / LEDGER).exists() or (place / STATUS).exists()
        raise InputError(
            f"{place}: is no result of dpca run"
            + (": its run has not ended well (see dpca status)" if unfinished else ""),
            "Name a result directory, one with a manifest.json.",
        ) from None
    except (OSError, ValueError) as cause:
        raise InputError(f"{place}: can't be read: {cause}", "Restore it, or run it again.") from cause
    if manifest.get("format_version") != FORMAT_VERSION:
        raise InputError(
            f"{place}: has format_version {manifest.get('format_version')}, but this dpca reads {FORMAT_VERSION}",
            "Read it with the version of dpca that its manifest.json names.",
        )
    return Result(place, manifest, arrays)


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
