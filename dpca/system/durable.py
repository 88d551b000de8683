"""Files that are whole or absent, and stay so through a crash of the machine.

A file is written aside, flushed to the disk and renamed into place; then its directory is flushed, since a
rename, too, is lost with an unflushed directory (POSIX promises no more). `DISK` is the only way in which dpca
changes what is in a result directory, but for its lock, so that a test can end it at every single step.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO


class Disk:
    """The steps by which directories change."""

    def write(self, path: Path, save: Callable[[BinaryIO], object], flush: bool = True) -> None:
        """Write a new file, and flush it."""
        with open(path, "xb") as file:
            save(file)
            file.flush()
            if flush:
                os.fsync(file.fileno())

    def rename(self, source: Path, target: Path) -> None:
        """Rename a file over another, or a directory to where none is."""
        os.replace(source, target)

    def unlink(self, path: Path) -> None:
        """Remove a file, if it is there."""
        path.unlink(missing_ok=True)

    def make_directory(self, path: Path) -> None:
        """Make one directory, unless it is there."""
        path.mkdir(exist_ok=True)

    def remove_directory(self, path: Path) -> None:
        """Remove an empty directory."""
        path.rmdir()

    def remove_tree(self, path: Path) -> None:
        """Remove a directory with all that is in it, in any order; none if it is not there."""
        if path.exists():
            shutil.rmtree(path)

    def flush_directory(self, path: Path) -> None:
        """Flush the names in a directory."""
        number = os.open(path, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)


DISK = Disk()


def write(path: Path, save: Callable[[BinaryIO], object]) -> None:
    """Write a file, replacing what was there: a reader finds the old or the new, never half.

    Parameters
    ----------
    save : writes the content to the file that it is given
    """
    _replace(path, save, flush=True)
    DISK.flush_directory(path.parent)


def write_briefly(path: Path, value: Any) -> None:
    """Write JSON that may be lost with the power, such as a status: a reader finds the old or the new, never half."""
    _replace(path, _json(value), flush=False)


def write_json(path: Path, value: Any) -> None:
    """Write JSON, as `write` does; NaN and infinity are refused."""
    write(path, _json(value))


def write_checked(path: Path, value: Any) -> None:
    """Write JSON with its checksum, as `write` does."""
    write_json(path, {"sha256": digest(value), "document": value})


def read_checked(path: Path) -> Any:
    """What `write_checked` wrote.

    Raises
    ------
    FileNotFoundError
        When it is not there.
    ValueError
        When it is not what was written.
    """
    stored = read_json(path)
    if not isinstance(stored, dict) or stored.get("sha256") != digest(stored.get("document")):
        raise ValueError("its checksum is wrong")
    return stored["document"]


def read_json(path: Path) -> Any:
    """What JSON holds.

    Raises
    ------
    OSError, ValueError
        When it is not there, or no JSON.
    """
    return json.loads(path.read_text(encoding="utf-8"))


def digest(value: Any) -> str:
    """The checksum of what JSON can hold."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _json(value: Any) -> Callable[[BinaryIO], object]:
    text = (json.dumps(value, indent=2, allow_nan=False) + "\n").encode()
    return lambda file: file.write(text)


def _replace(path: Path, save: Callable[[BinaryIO], object], flush: bool) -> None:
    aside = path.with_name(f".{path.name}.{uuid.uuid4().hex}.partial")
    try:
        DISK.write(aside, save, flush)
        DISK.rename(aside, path)
    except OSError:
        DISK.unlink(aside)
        raise


def remove_partials(path: Path, deep: bool = True) -> None:
    """Remove what a process that was killed had begun to write, in a directory, and if `deep` in those inside."""
    for directory, inside, names in os.walk(path):
        if not deep:
            inside.clear()
        for name in names:
            if name.startswith(".") and name.endswith(".partial"):
                DISK.unlink(Path(directory) / name)


def make_directories(path: Path) -> None:
    """Make a directory and those above it that are missing."""
    if path.is_dir():
        return
    make_directories(path.parent)
    DISK.make_directory(path)
    DISK.flush_directory(path.parent)


def move(source: Path, target: Path) -> None:
    """Rename, durably; a directory only to where none is.

    The old name, if it was in another directory, may be found again beside the new one after a crash.
    """
    DISK.rename(source, target)
    DISK.flush_directory(target.parent)


def remove(path: Path) -> None:
    """Remove a file, a link, or a directory with all that is in it, of which links are not followed; nothing if it is not there."""
    if path.is_dir() and not path.is_symlink():
        DISK.remove_tree(path)
    else:
        DISK.unlink(path)
    if path.parent.is_dir():
        DISK.flush_directory(path.parent)
