"""Files that are whole or absent, also after a crash of the machine.

A file is written under a temporary name, flushed to the disk and renamed into place; then its directory is flushed,
since an unflushed directory may lose the rename (POSIX promises no more). dpca changes a result directory only through
`DISK`, except for its lock, so that a test can kill it at every single step.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import stat
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from dpca.errors import DpcaError, OutputExistsError
from dpca.system import regular

T = TypeVar("T")

FILE, DIRECTORY = 0o664, 0o775
"""The most that a file and a directory allow, whatever the umask of the process: never that all users write."""
TRIES = 100
"""How often it is tried to remove a directory in which files come and go."""
OWN_FILE, OWN_DIRECTORY = 0o600, 0o700
"""Modes of what is for its user alone."""


_ASKED: ContextVar[Callable[[], None] | None] = ContextVar("_ASKED", default=None)


@contextmanager
def asking(check: Callable[[], None] | None) -> Iterator[None]:
    """In this block `check` is called before each step by which a name is replaced or removed; it raises where that may not be.

    So it is in threads that have the context of this one, as those by which zarr writes, and in functions of `asking_as_here`.
    """
    token = _ASKED.set(check)
    try:
        yield
    finally:
        _ASKED.reset(token)


def asking_as_here(function: Callable[..., T]) -> Callable[..., T]:
    """A function for another thread, which asks there as this thread does now; all else of the context stays that of the other."""
    check = _ASKED.get()

    def there(*arguments: Any) -> T:
        with asking(check):
            return function(*arguments)

    return there


def _ask() -> None:
    if (check := _ASKED.get()) is not None:
        check()


class Disk:
    """The single steps by which dpca changes directories."""

    def write(self, path: Path, save: Callable[[BinaryIO], object], flush: bool = True, mode: int = FILE) -> None:
        """Write a new file, and flush it if `flush`."""
        with open(path, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            save(file)
            file.flush()
            if flush:
                os.fsync(file.fileno())

    def rename(self, source: Path, target: Path) -> None:
        """Rename a file, replacing another one, or a directory to a free name."""
        _ask()
        os.replace(source, target)

    def link(self, source: Path, target: Path) -> bool:
        """Give a file a second name, as `durable.link` does."""
        return link(source, target)

    def unlink(self, path: Path) -> None:
        """Remove a file, if it exists."""
        _ask()
        path.unlink(missing_ok=True)

    def make_directory(self, path: Path, mode: int = DIRECTORY) -> None:
        """Make one directory, unless it exists."""
        path.mkdir(mode=mode, exist_ok=True)

    def remove_directory(self, path: Path) -> None:
        """Remove an empty directory."""
        _ask()
        path.rmdir()

    def remove_tree(self, path: Path) -> None:
        """Remove a directory with everything in it, in any order, if it exists; also while a late task still writes there.

        What takes its place meanwhile stays: another process may have published its result, while this one slept.
        """
        number = _number(path)
        for left in reversed(range(TRIES if number else 0)):
            _ask()
            try:
                shutil.rmtree(path)
                return
            except OSError as cause:
                now = _number(path)
                if now is None:
                    return
                if not left or now != number or cause.errno not in (errno.ENOTEMPTY, errno.ENOENT):
                    raise

    def flush_path(self, path: Path) -> None:
        """Flush the content of a file, or the list of names in a directory."""
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def link(source: Path, target: Path) -> bool:
    """Give a file a second name, which must be free. Where no file has two, an empty file takes the name, and False is returned."""
    try:
        os.link(source, target)
    except FileExistsError:
        # Over NFS a request that is sent twice finds its own link (open(2), O_EXCL).
        if source.stat().st_nlink < 2:
            raise
    except FileNotFoundError:
        raise
    except OSError:  # on memory cards, for instance
        os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, FILE))
        return False
    return True


def _number(path: Path) -> int | None:
    """The inode of a directory; None if it is gone."""
    try:
        return path.stat().st_ino
    except FileNotFoundError:
        return None


DISK = Disk()


def write(path: Path, save: Callable[[BinaryIO], object], mode: int = FILE) -> None:
    """Write a file, replacing an old one: a reader finds the old or the new content, never a part.

    A link of its name is replaced, and what it leads to stays as it is.

    Parameters
    ----------
    save : function that writes the content to the open file
    """
    _replace(path, save, flush=True, mode=mode)
    DISK.flush_path(path.parent)


def write_unflushed(path: Path, save: Callable[[BinaryIO], object]) -> None:
    """Write a file, as `write` does, for content that a power failure may lose."""
    _replace(path, save, flush=False)


def write_briefly(path: Path, value: Any) -> None:
    """Write JSON, as `write_unflushed` does: a status."""
    write_unflushed(path, _json(value))


def write_json(path: Path, value: Any) -> None:
    """Write JSON, as `write` does; NaN and infinity are refused."""
    write(path, _json(value))


def write_checked(path: Path, value: Any) -> None:
    """Write JSON with its checksum, as `write` does."""
    write_json(path, {"sha256": digest(value), "document": value})


def read_checked(path: Path) -> Any:
    """The value that `write_checked` wrote."""
    stored = read_json(path)
    if not isinstance(stored, dict) or stored.get("sha256") != digest(stored.get("document")):
        raise ValueError("its checksum is wrong")
    return stored["document"]


def read_json(path: Path) -> Any:
    """The value in a file of JSON."""
    return regular.read_json(path)


def digest(value: Any) -> str:
    """The checksum of a value that JSON can hold."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _json(value: Any) -> Callable[[BinaryIO], object]:
    text = (json.dumps(value, indent=2, allow_nan=False) + "\n").encode()
    return lambda file: file.write(text)


def _replace(path: Path, save: Callable[[BinaryIO], object], flush: bool, mode: int = FILE) -> None:
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.partial")
    try:
        DISK.write(temporary, save, flush, mode)
        DISK.rename(temporary, path)
    except (OSError, DpcaError):
        temporary.unlink(missing_ok=True)
        raise


def is_partial(name: str) -> bool:
    """Whether a name is that of a file that is being written, or was when its process was killed."""
    return name.startswith(".") and name.endswith(".partial")


def remove_partials(path: Path, deep: bool = True) -> None:
    """Remove the temporary files of killed processes from a directory, and, if `deep`, from those below it; links are not followed.

    A directory that is a link itself is looked into unless `deep`: it is a result that its user has put elsewhere.
    """
    if deep and path.is_symlink():
        return
    for directory, inside, names in os.walk(path):
        if not deep:
            inside.clear()
        for name in names:
            if is_partial(name):
                DISK.unlink(Path(directory) / name)


def make_directories(path: Path) -> None:
    """Make a directory, and missing directories above it."""
    if path.is_dir():
        return
    make_directories(path.parent)
    DISK.make_directory(path)
    DISK.flush_path(path.parent)


def make_own(path: Path, what: str, remedy: str) -> None:
    """Make a directory that only its user can look into, and missing directories above it; one that is the user's already becomes such.

    A power failure may lose it, with what is in it: copies, scripts and keys are made again.

    Parameters
    ----------
    what, remedy : as of `check_own`
    """
    make_directories(path.parent)
    with suppress(FileExistsError):
        DISK.make_directory(path, OWN_DIRECTORY)
    check_own(path, what, remedy)
    path.chmod(OWN_DIRECTORY)


def check_own(path: Path, what: str, remedy: str) -> None:
    """Refuse a path, if something is there, that is a link, no directory, or a directory of another user.

    Parameters
    ----------
    what : is kept there, for the message
    remedy : what the user can do
    """
    if not os.path.lexists(path):
        return
    facts = os.lstat(path)
    own = stat.S_ISDIR(facts.st_mode) and facts.st_uid == os.geteuid()
    if not own:
        whose = "another user's" if stat.S_ISDIR(facts.st_mode) else "no directory"
        whose = "a link" if stat.S_ISLNK(facts.st_mode) else whose
        raise OutputExistsError(f"{path}: is {whose}, where {what} would be kept", remedy)


def check_no_links(paths: Iterable[Path], remedy: str) -> None:
    """Refuse directories that are links: what is written or removed in them would be elsewhere."""
    for path in paths:
        if path.is_symlink():
            raise OutputExistsError(f"{path}: is a link, where dpca writes and removes files of its own", remedy)


def move(source: Path, target: Path) -> None:
    """Rename durably; a directory only to a free name.

    After a crash the old name, if it was in another directory, may exist beside the new one.
    """
    DISK.rename(source, target)
    DISK.flush_path(target.parent)


def put(source: Path, target: Path, overwrite: bool) -> None:
    """Give a file that some library has written its name, once its content is on the disk; a FileExistsError says that it is taken, unless `overwrite`."""
    DISK.flush_path(source)
    if not overwrite and DISK.link(source, target):
        DISK.unlink(source)
    else:
        DISK.rename(source, target)
    DISK.flush_path(target.parent)


def remove(path: Path) -> None:
    """Remove a file, a link, or a directory with everything in it, if it exists; links are not followed."""
    if path.is_dir() and not path.is_symlink():
        DISK.remove_tree(path)
    else:
        DISK.unlink(path)
    if path.parent.is_dir():
        DISK.flush_path(path.parent)
