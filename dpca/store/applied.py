"""Output of dpca transform or dpca reconstruct, open for reading: arrays of samples and their coordinates, of no manifest."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import zarr

from dpca.errors import DataError
from dpca.sources.coordinate import Coordinate
from dpca.sources.zarr_store import BAD_METADATA, Directory
from dpca.store.stored import SAMPLES_AXES, Arrays, described

APPLIED = "result"
"""The attribute of such a group: the result that was applied."""


@dataclass(frozen=True)
class AppliedResult:
    """Scores of new samples, or samples that were reconstructed."""

    path: Path
    arrays: Arrays
    _place: tuple[int, int] | None
    """Device and number of the directory when it was opened."""
    labels: None = None
    """Labels, which a result may have; there are none."""

    @property
    def name(self) -> str:
        """The name in errors."""
        return str(self.path)

    @property
    def place(self) -> Path:
        return self.path

    @property
    def sample_dims(self) -> tuple[str, ...]:
        """Names of the axes of the samples of the scores, where these were several in the input; else of its only one."""
        return tuple(self.arrays.attributes.get(SAMPLES_AXES) or (self.arrays["scores"].dims[-2],))

    @cached_property
    def n_samples(self) -> int:
        """The number of new samples."""
        return self.arrays["scores"].shape[-2]

    def coordinate(self, name: str) -> Coordinate | None:
        """The coordinate along a dimension, where the new samples have one."""
        return self.arrays[name].as_coordinate if name in self.arrays else None

    def check_still(self) -> None:
        """Refuse what was read of several arrays if they were replaced meanwhile."""
        if _place_of(self.path) != self._place:
            raise DataError(
                f"{self.name}: was replaced while it was read", "Do it again with the scores that are there now."
            )


def applied_at(path: str | Path) -> AppliedResult | None:
    """Output of dpca transform or dpca reconstruct at a place; None where that is something else."""
    place = Path(path)
    try:
        identity = _place_of(place)
        group = zarr.open_group(Directory(str(place.absolute()), read_only=True), mode="r")
    except (OSError, *BAD_METADATA):
        return None
    if APPLIED not in group.attrs:
        return None
    # All chunks were written, also of zeros, so that one that is gone is noticed.
    inventory: dict[str, Any] = {
        name: {"array": described(array), "chunks_written": array.nchunks} for name, array in group.arrays()
    }
    return AppliedResult(place, Arrays(str(place.absolute()), str(place), inventory), identity)


def _place_of(path: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino
