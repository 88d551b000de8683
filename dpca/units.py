"""Amounts in words (disk in powers of 1000, memory in powers of 1024, times, shapes), walltimes, text without line breaks."""

from __future__ import annotations

import re


def describe_bytes(count: float) -> str:
    """1234567 as 1.23 MB (powers of 1000, as disks and networks count)."""
    return _scaled(count, 1000, ("B", "kB", "MB", "GB", "TB", "PB"))


def describe_memory(count: float) -> str:
    """1234567 as 1.18 MiB (powers of 1024, as memory is counted)."""
    return _scaled(count, 1024, ("B", "KiB", "MiB", "GiB", "TiB", "PiB"))


def describe_seconds(seconds: float) -> str:
    """75 as 1:15, 4000 as 1:06:40."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def _scaled(count: float, base: int, units: tuple[str, ...]) -> str:
    for unit in units:
        if count < 999.5 or unit == units[-1]:
            break
        count /= base
    return f"{count:.0f} {unit}" if unit == units[0] else f"{count:.3g} {unit}"


def by(shape: tuple[int, ...]) -> str:
    """A shape as people say it: 400 x 64 x 64."""
    return " x ".join(f"{length:,}" for length in shape)


def of_stored(n_stored: int | None) -> str:
    """Words after a number of samples where they were chosen: of 400."""
    return "" if n_stored is None else f" of {n_stored:,}"


def enough(n_bytes: int) -> str:
    """A memory budget of at least `n_bytes`, as written in a config."""
    return f"{-(-n_bytes // 2**20)} MiB" if n_bytes < 2**33 else f"{-(-n_bytes // 2**30)} GiB"


NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
"""Names of groups of features and of analyses: they are part of the names of arrays and dimensions of a result."""
PLAIN = r"^[^\x00-\x1f\x7f-\x9f]*$"
"""Pattern of text without control characters, such as line breaks, which would begin a new line in a script or a log."""


def is_plain(text: str) -> bool:
    """Whether a text has no control characters."""
    return re.fullmatch(PLAIN, text) is not None


def printable(text: str) -> str:
    """A text as it may be shown on a terminal: what is neither a sign, nor a line break or tab, as its escape in Python.

    Names in a file of others may hold sequences that set the title of a terminal, fill its clipboard, or hide what stands before.
    """
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() or sign in "\n\t" else ascii(sign)[1:-1] for sign in text)


_URL = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*:/|://|::")
"""How a URL begins, also once `Path` has taken one of its two slashes, or a chain of URLs goes on."""


def is_url(text: str) -> bool:
    """Whether a text is a URL, or a chain of them as in fsspec, and no path on this machine."""
    return _URL.search(text) is not None


WALLTIME = r"^(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?$"


def walltime_seconds(walltime: str) -> int:
    """Seconds of a walltime in any format of sbatch: minutes, MM:SS, HH:MM:SS, D-HH, D-HH:MM or D-HH:MM:SS."""
    match = re.match(WALLTIME, walltime)
    if match is None:
        raise ValueError(walltime)
    days, *rest = match.groups()
    parts = [int(part) for part in rest if part is not None]
    if days is None and len(parts) < 3:
        parts.insert(0, 0)  # without days, hours come first only where there are three
    hours, minutes, seconds = [*parts, 0, 0][:3]
    return 86400 * int(days or 0) + 3600 * hours + 60 * minutes + seconds
