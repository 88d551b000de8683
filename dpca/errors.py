"""Every error that dpca raises on purpose: what happened, and what to do about it."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

from dpca.settings import YAML, Setting, Surface


class DpcaError(Exception):
    """An error with a remedy.

    Parameters
    ----------
    message : str
        One sentence: the file, array, region or config line, the value found, the value allowed.
    remedy : str
        What the user can do. May be empty.
    key : str or Setting
        The configuration key at fault, such as model.n_components; empty if there is none. `dpca run`
        adds the line of the file that sets it.

    Both texts may name settings by a `Setting`. `message` and `remedy` have them in the words of the reader, which `for_readers_of` chooses;
    `marked_message` and `marked_remedy` are what to make other texts of.
    """

    exit_code = 1
    _surface = YAML

    def __new__(cls, *args: Any, **_: Any) -> Self:
        # Of Exception alone: Dask makes an error again by its __new__, and that of MemoryError refuses a class of two bases.
        return Exception.__new__(cls, *args)

    def __init__(self, message: str, remedy: str = "", key: str | Setting = "") -> None:
        # All three go to args, so that the error survives pickling between a worker and the client.
        super().__init__(message, remedy, key.key if isinstance(key, Setting) else key)

    @property
    def message(self) -> str:
        """The sentence about what happened, in the words of the reader."""
        return self._surface.words(self.marked_message)

    @property
    def remedy(self) -> str:
        """The advice, in the words of the reader."""
        return self._surface.words(self.marked_remedy)

    @property
    def marked_message(self) -> str:
        """The sentence, with marks of settings."""
        return str(self.args[0])

    @property
    def marked_remedy(self) -> str:
        """The advice, with marks of settings."""
        return str(self.args[1])

    @property
    def key(self) -> str:
        """The configuration key at fault; empty if there is none."""
        return str(self.args[2])

    def saying(self, message: str, remedy: str | None = None, key: str | Setting | None = None) -> Self:
        """This error in other words, or about another key; what else it has stays."""
        said = self._again()
        at = self.key if key is None else key
        said.args = (
            message,
            self.marked_remedy if remedy is None else remedy,
            at.key if isinstance(at, Setting) else at,
        )
        return said

    def about(self, setting: Setting, instead_of: Setting) -> Self:
        """This error about another setting than the one that it names."""
        old, new = str(instead_of), str(setting)
        return self.saying(self.marked_message.replace(old, new), self.marked_remedy.replace(old, new), setting)

    def for_readers_of(self, surface: Surface) -> Self:
        """This error in the words of a place where settings are given."""
        said = self._again()
        said._surface = surface
        return said

    def _again(self) -> Self:
        # Not copy.copy: a library that makes errors picklable, as Dask's do, lets copies share what they hold.
        again = type(self).__new__(type(self), *self.args)
        again.__dict__.update(self.__dict__)
        return again

    def __str__(self) -> str:
        return f"{self.message}\n{self.remedy}" if self.remedy else self.message


class ConfigError(DpcaError, ValueError):
    """The configuration, or an argument, has a value that is not allowed."""

    exit_code = 2


class InputError(DpcaError, ValueError):
    """The input is absent, ambiguous or of a kind that PCA is not defined for."""

    exit_code = 2


class DataError(DpcaError, ValueError):
    """A value in the data (NaN, infinity) that the configuration does not allow."""

    exit_code = 2


class StorageError(DpcaError):
    """A stored chunk that could not be read or decoded, or a result that could not be written."""


class NotSeenError(StorageError):
    """Data that a worker does not see where the process that sent it there saw them."""


class DiskFullError(StorageError):
    """The disk is full, or the user's share of it."""


class PrecisionError(DpcaError, ArithmeticError):
    """The requested precision is too low for the data: the result would be wrong."""


class NotConverged(DpcaError, ArithmeticError):
    """An iteration ended before every component was known to the tolerance; its result is there, and says which ones are."""


class AssumptionError(DpcaError, ValueError):
    """A rule was requested whose assumption the data contradict."""

    exit_code = 2


class OutputExistsError(DpcaError, ValueError):
    """The output path holds something that the run may not replace."""

    exit_code = 2


class LockedError(DpcaError):
    """Another run is going on in the same directory."""

    exit_code = 2


class LedgerError(DpcaError, ValueError):
    """A run that can't be resumed: the input, the config or the program is not the one it began with."""

    exit_code = 2


class ClusterError(DpcaError):
    """The scheduler or its workers cannot be reached or stopped working."""


class WorkerDied(ClusterError):
    """Every worker that tried to compute one particular span died."""


class OverBudgetError(DpcaError, MemoryError):
    """The run would take more memory or scratch space than it may.

    Parameters
    ----------
    needed_bytes : memory with which it would fit; None if that is not known
    """

    exit_code = 3

    def __init__(
        self, message: str, remedy: str = "", key: str | Setting = "", needed_bytes: int | None = None
    ) -> None:
        super().__init__(message, remedy, key)
        self.needed_bytes = needed_bytes


class Cancelled(DpcaError):
    """A span was cancelled because another one failed or the user interrupted the run."""


@contextmanager
def writing(what: str) -> Iterator[None]:
    """Turn a failure to write inside this block into an error that says what was being written.

    Raises
    ------
    DiskFullError
        When the disk, or the user's share of it, is full.
    StorageError
        For any other failure of the file system.
    """
    try:
        yield
    except OSError as cause:
        if cause.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFullError(
                f"{what}: could not be written: {cause.strerror}", "Free some space, or write to another disk."
            ) from cause
        reason, remedy = _REASONS.get(
            cause.errno or 0, (cause.strerror or str(cause), "Check the disk and its permissions.")
        )
        raise StorageError(f"{what}: could not be written: {reason}", remedy) from cause


_REASONS = {
    errno.ENOENT: ("its directory does not exist", "Make it, or write elsewhere."),
    errno.ENOTDIR: ("what should be its directory is a file", "Write elsewhere."),
    errno.EISDIR: ("it is a directory", "Name a file in it."),
}
"""Reason and remedy for failures to write that are not due to the disk, by error number."""
