"""Every error that dpca raises on purpose: what happened, and what to do about it."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager


class DpcaError(Exception):
    """An error with a remedy.

    Parameters
    ----------
    message : str
        One sentence: the file, array, region or config line, the value found, the value allowed.
    remedy : str
        What the user can do. May be empty.
    key : str
        The configuration key that is at fault, such as model.n_components, if one is. `dpca run` adds
        the line of the file that sets it.
    """

    exit_code = 1

    def __init__(self, message: str, remedy: str = "", key: str = "") -> None:
        # All go to args, so that the error survives the pickling between a worker and the client.
        super().__init__(message, remedy, key)
        self.message = message
        self.remedy = remedy
        self.key = key

    def __str__(self) -> str:
        return f"{self.message}\n{self.remedy}" if self.remedy else self.message


class ConfigError(DpcaError, ValueError):
    """The configuration, or an argument, is not what is allowed."""

    exit_code = 2


class InputError(DpcaError, ValueError):
    """The input is absent, ambiguous or of a kind that PCA is not defined for."""

    exit_code = 2


class DataError(DpcaError, ValueError):
    """A value inside the data (NaN, infinity) that the configuration does not allow."""

    exit_code = 2


class StorageError(DpcaError):
    """A stored chunk that could not be read or decoded, or a result that could not be written."""


class DiskFullError(StorageError):
    """There is no room left where something was being written."""


class PrecisionError(DpcaError, ArithmeticError):
    """The arithmetic asked for cannot carry the data: the answer would be wrong."""


class AssumptionError(DpcaError, ValueError):
    """A rule was asked for whose assumption the data contradict."""

    exit_code = 2


class OutputExistsError(DpcaError, ValueError):
    """The output path holds something that the run was not allowed to replace."""

    exit_code = 2


class LockedError(DpcaError):
    """Another run is going on in the same directory."""

    exit_code = 2


class LedgerError(DpcaError, ValueError):
    """A run that can't be gone on with: the input, the config or the program is not what it began with."""

    exit_code = 2


class ClusterError(DpcaError):
    """The scheduler or its workers cannot be reached or stopped working."""


class WorkerDied(ClusterError):
    """Every worker that took a span died."""


class OverBudgetError(DpcaError, MemoryError):
    """The run would take more memory or scratch than it may."""

    exit_code = 3


class Cancelled(DpcaError):
    """A span was told to stop because another one failed or the user interrupted the run."""


@contextmanager
def writing(what: str) -> Iterator[None]:
    """Turn a failure to write into an error that says what was being written.

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
"""Why a file can't be written, and what to do, where that is no matter of the disk."""
