"""A finished result of derived analyses: a group of arrays for each, beside their certificates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpca.errors import InputError
from dpca.sources.coordinate import Coordinate
from dpca.store.directory import ARRAYS, DERIVED, SameRun, certificate_at, kind_at, manifest_at
from dpca.store.stored import Arrays, Stored


@dataclass(frozen=True)
class StoredAnalysis(Mapping[str, Stored]):
    """The arrays of one analysis, by name, with its certificate."""

    name: str
    certificate: dict[str, Any]
    all_arrays: Arrays
    """Arrays of all analyses."""

    @property
    def kind(self) -> str:
        """That of its model: pca, permanova."""
        return str(self.certificate["kind"])

    @property
    def maps(self) -> dict[str, Stored]:
        """The arrays of maps by group of features; empty where none were made."""
        return {
            name.removeprefix("components").removeprefix("_"): self[name]
            for name in self
            if name == "components" or name.startswith("components_")
        }

    def coordinate(self, name: str) -> Coordinate | None:
        """The coordinate along a dimension, where there is one."""
        return self[name].as_coordinate if name in self else None

    def __getitem__(self, name: str) -> Stored:
        return self.all_arrays[f"{self.name}/{name}"]

    def __iter__(self) -> Iterator[str]:
        prefix = f"{self.name}/"
        return (name.removeprefix(prefix) for name in self.all_arrays if name.startswith(prefix))

    def __len__(self) -> int:
        return len(list(iter(self)))


@dataclass(frozen=True)
class DerivedResult:
    """A result of `dpca derive`, open for reading."""

    path: Path
    manifest: dict[str, Any]
    certificate: dict[str, Any]
    """`analyses` has the certificate of each, by name."""
    arrays: Arrays

    @property
    def name(self) -> str:
        """In errors."""
        return str(self.path)

    @property
    def analyses(self) -> dict[str, StoredAnalysis]:
        """By name, in the order of the configuration."""
        return {
            name: StoredAnalysis(name, certificate, self.arrays)
            for name, certificate in self.certificate["analyses"].items()
        }


def open_derived(path: str | Path) -> DerivedResult:
    """Open a result of derived analyses."""
    place = Path(path)
    if kind_at(place) != DERIVED:
        manifest_at(place)  # says what is wrong with it, if anything is
        raise InputError(
            f"{place}: is a result of dpca run, and has no derived analyses", "Make some with dpca derive."
        )
    manifest, certificate = manifest_at(place, DERIVED), certificate_at(place, str(place), DERIVED)
    same = SameRun(str(place), place.absolute(), manifest["run"], DERIVED)
    arrays = Arrays(str(place.absolute() / ARRAYS), str(place), manifest["arrays"], same)
    _ = arrays.group  # an error in opening it is raised now
    return DerivedResult(place, manifest, certificate, arrays)
