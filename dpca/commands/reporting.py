"""The report that a command writes beside its result, which is complete without it."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from dpca.errors import OutputExistsError
from dpca.execution.progress import Progress
from dpca.store.derived import open_derived
from dpca.store.directory import DERIVED, check_replaces_no_part, kind_at
from dpca.store.results import open_result
from dpca.system import regular

GENERATOR, HEAD_BYTES = b'<meta name="generator" content="dpca">', 4096
"""Beginning of a report, and the bytes that it is in."""


def write_beside(place: Path, progress: Progress) -> None:
    """Write report.html of a result of any kind; if that fails, say so."""
    try:
        write = _writer(kind_at(place) == DERIVED)
    except ImportError:
        progress.say("no report.html: what draws it is not installed (pip install '.[report]')")
        return
    progress.say("drawing report.html")
    try:
        write(place)
    except Exception as error:
        progress.say(f"no report.html: {type(error).__name__}: {error}; dpca report {place} --debug tells more")


def check_out(file: Path, overwrite: bool) -> None:
    """Refuse to replace a file that is no report of dpca, unless `overwrite`, and what is a part of a result."""
    if not os.path.lexists(file):
        return
    with suppress(OSError), regular.opened(file) as found:
        if GENERATOR in found.read(HEAD_BYTES):
            return
    check_replaces_no_part(file)
    if not overwrite:
        raise OutputExistsError(
            f"{file}: exists, and is no report of dpca", "Name another with --out, or replace it with --overwrite."
        )


def _writer(derived: bool) -> Callable[[Path], Path]:
    """Writer of a report; of the two kinds only the one that is asked for is imported, since analyses take a second."""
    if derived:
        from dpca.analyses.report import write_derived_report

        return lambda place: write_derived_report(open_derived(place))
    from dpca.report.page import write_report

    return lambda place: write_report(open_result(place))
