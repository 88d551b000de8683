"""Sources that are a file each, whose size and time of change tell one state of it from another."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any, ClassVar

from dpca.errors import InputError
from dpca.sources.base import Region, Source
from dpca.system import regular


class FileSource(Source):
    """A file, and perhaps others beside it that describe it.

    Parameters
    ----------
    path : the file
    beside : others that it is read with, by a word for each
    """

    kind: ClassVar[str]
    """Its format, in a fingerprint."""

    def __init__(self, path: str | os.PathLike[str], beside: dict[str, str] | None = None) -> None:
        self.path, self._beside = os.fspath(path), beside or {}

    def stored_bytes(self) -> int | None:
        return os.path.getsize(self.path)

    @property
    def place(self) -> tuple[str, str | None] | None:
        return os.path.abspath(self.path), None

    def fingerprint(self) -> dict[str, Any]:
        others = {name: file_facts(path) for name, path in self._beside.items()}
        return {"kind": self.kind, "uri": self.path, **file_facts(self.path), **others}

    def state(self, region: Region) -> str | None:
        return file_state(self.path)


def file_facts(path: str | Path) -> dict[str, Any]:
    """Size and modification time of a file: they change with nearly every rewrite, and are cheap to get."""
    stat = os.stat(path)
    return {"bytes": stat.st_size, "modified_ns": stat.st_mtime_ns}


def file_state(path: str | Path) -> str:
    """`file_facts` as one line; "absent" if there is no file."""
    try:
        facts = file_facts(path)
    except FileNotFoundError:
        return "absent"
    return " ".join(map(str, facts.values()))


def fingerprint_of_bytes(path: str, key: str = "") -> dict[str, Any]:
    """Fingerprint of a file that is small, whatever it holds: a digest of its bytes.

    Parameters
    ----------
    key : key of the configuration that names it, for errors
    """
    try:
        with regular.opened(path) as file:
            return {"sha256": hashlib.file_digest(file, "sha256").hexdigest()}
    except OSError as cause:
        raise InputError(f"{path}: can't be read: {cause.strerror}", "Put it back.", key=key) from cause
