"""Amounts and shapes in words: bytes on disk in powers of 1000, memory in powers of 1024, times."""

from __future__ import annotations


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


def enough(n_bytes: int) -> str:
    """A budget that holds so much, as a config may say it."""
    return f"{-(-n_bytes // 2**20)} MiB" if n_bytes < 2**33 else f"{-(-n_bytes // 2**30)} GiB"
