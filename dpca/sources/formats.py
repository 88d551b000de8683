"""Formats that rooms above bring: files that are an array each, and Zarr groups with one array that the others describe."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dpca.sources.base import Source
from dpca.sources.coordinate import Vector


@dataclass(frozen=True)
class FileFormat:
    """A format of files that are an array each."""

    name: str
    recognizes: Callable[[str, bytes], bool]
    """Whether a file is one, by its path and its first bytes."""
    open: Callable[[str], Source]


@dataclass(frozen=True)
class GroupFormat:
    """A format of Zarr groups with one array of data, which the others describe."""

    array: str
    """The path of that array in the group."""
    open: Callable[[Source, Callable[[str], Vector | None], Mapping[str, Any]], Source]
    """Source of the data, of that of the array, a function that gives the vector of another array of the group, and settings of the format."""


FILES: list[FileFormat] = []
GROUPS: list[GroupFormat] = []


def register(one: FileFormat | GroupFormat) -> None:
    """Add a format to those that are recognized."""
    if isinstance(one, FileFormat):
        FILES.append(one)
    else:
        GROUPS.append(one)
