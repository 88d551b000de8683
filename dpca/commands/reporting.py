"""The report that a command writes beside its result, which is complete without it."""

from __future__ import annotations

from pathlib import Path

from dpca.execution.progress import Progress
from dpca.store.derived import open_derived
from dpca.store.directory import DERIVED, kind_at
from dpca.store.results import open_result


def write_beside(place: Path, progress: Progress) -> None:
    """Write report.html of a result of any kind; if that fails, say so."""
    try:
        from dpca.report.derived import write_derived_report
        from dpca.report.page import write_report
    except ImportError:
        progress.say("no report.html: what draws it is not installed (pip install jinja2 bokeh)")
        return
    progress.say("drawing report.html")
    try:
        if kind_at(place) == DERIVED:
            write_derived_report(open_derived(place))
        else:
            write_report(open_result(place))
    except Exception as error:
        progress.say(f"no report.html: {type(error).__name__}: {error}; dpca report {place} --debug tells more")
