"""The progress of a run: always in status.json; as a live view on a terminal, as a few lines in a log."""

from __future__ import annotations

import math
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol, TextIO

from dpca.errors import LockedError
from dpca.numerics.preview import Preview
from dpca.system.durable import asking_as_here, write_briefly
from dpca.units import describe_bytes, describe_memory, describe_seconds, printable

FORMAT_VERSION = 1
LINE_SECONDS = 30.0
PATIENCE_SECONDS = 5.0
"""A fit in Python that takes no longer shows no progress."""
SPARSE_SECONDS = 5.0
BEAT_SECONDS = 1.0
BEAT_ENDS_SECONDS = 3.0
"""How long a query of the workers may delay the end of a stage: a scheduler that is gone answers late."""


Report = Callable[[int], None]
"""Called with the bytes of each slab that is done. Raises `Cancelled` when the span should stop."""


@dataclass(frozen=True)
class Vitals:
    """The memory that a run takes, and its workers."""

    memory_bytes: int
    """Memory of this process."""
    budget_bytes: int
    workers: int
    """The number of live workers of a scheduler, or of threads of this process."""
    fullest_bytes: int | None = None
    """Memory of the worker that takes the most; None for threads."""
    worker_budget_bytes: int | None = None
    dashboard: str | None = None
    """The address of Dask's dashboard, where there is one."""


@dataclass(frozen=True)
class Snapshot:
    """The progress of a run at one moment."""

    stage: str = "starting"
    stage_number: int = 0
    stages: int = 1
    done_bytes: int = 0
    total_bytes: int = 0
    """0 for a stage that reads nothing."""
    done_spans: int = 0
    """Spans that are added up."""
    total_spans: int = 0
    seconds: float = 0.0
    """Since the stage began."""
    vitals: Vitals | None = None
    preview: Preview | None = None
    iteration: Mapping[str, Any] | None = None
    """State of block Krylov: what is certain after the passes so far."""

    @property
    def bytes_per_second(self) -> float:
        return self.done_bytes / self.seconds if self.seconds > 0 else 0.0

    @property
    def seconds_left(self) -> float | None:
        rate = self.bytes_per_second
        return (self.total_bytes - self.done_bytes) / rate if rate else None

    @property
    def document(self) -> dict[str, Any]:
        """The snapshot as in status.json."""
        plain = {
            name: value
            for name, value in vars(self).items()
            if name not in ("vitals", "preview", "seconds", "iteration")
        }
        return {
            **plain,
            "stage_seconds": self.seconds,
            "bytes_per_second": self.bytes_per_second,
            "seconds_left": self.seconds_left,
            **({} if self.vitals is None else vars(self.vitals)),
            "preview": None if self.preview is None else vars(self.preview),
            **({} if self.iteration is None else {"iteration": dict(self.iteration)}),
        }


def describe(found: Mapping[str, Any]) -> list[str]:
    """The lines that show a snapshot's document to people; the document may be status.json, of any version."""
    share = 100 * found["done_bytes"] // max(found["total_bytes"], 1)
    name = f"stage {found['stage_number']} of {found['stages']}, {found['stage']}: "
    if not found["total_bytes"]:
        lines = [f"{name}{describe_seconds(found.get('stage_seconds', 0))} passed"]
    else:
        left = found["seconds_left"]
        lines = [
            f"{name}{share} % of {describe_bytes(found['total_bytes'])}, {describe_bytes(found['bytes_per_second'])}/s"
            + (f", {describe_seconds(left)} left" if left is not None else "")
        ]
    beside = []
    if found.get("total_spans"):
        beside.append(f"{found['done_spans']:,} of {found['total_spans']:,} spans")
    if "workers" in found:
        beside.append(f"memory {describe_memory(found['memory_bytes'])} of {describe_memory(found['budget_bytes'])}")
        beside.append(_of_workers(found))
    if beside:
        lines.append("; ".join(beside))
    if found.get("dashboard"):
        lines.append(f"dashboard {found['dashboard']}")
    if iteration := found.get("iteration"):
        lines.append(_of_iteration(iteration))
    preview = found.get("preview")
    if preview:
        shares = ", ".join(f"{100 * ratio:.1f}" for ratio in preview["explained_variance_ratio"])
        lines.append(
            f"preview, partial, of {preview['spans']:,} of {preview['n_spans']:,} spans: {shares} % of the variance, by component"
        )
    return lines


def _of_iteration(found: Mapping[str, Any]) -> str:
    """Certainty after the passes of block Krylov so far."""
    bounds, tolerance = found["bounds"], found["tolerance"]
    certain = None not in bounds and max(bounds, default=0.0) < 1
    worst = f"all to {max(bounds, default=0.0):.1g}" if certain else "not all of them are certain yet"
    return (
        f"after pass {found['passes']} of at most {found['max_passes']}: {found['met']} of {found['components']} components are known to "
        f"{tolerance:g}, {worst}"
    )


def _of_workers(found: Mapping[str, Any]) -> str:
    fullest, count = found["fullest_bytes"], found["workers"]
    if fullest is None:
        return f"{count} thread{'s' * (count != 1)}"
    return f"{count} worker{'s' * (count != 1)}, the fullest {describe_memory(fullest)} of {describe_memory(found['worker_budget_bytes'])}"


class Display(Protocol):
    """The place where progress is shown."""

    def begin(self, now: Snapshot) -> None: ...
    def update(self, now: Snapshot) -> None: ...
    def end(self, now: Snapshot) -> None: ...
    def say(self, sentence: str) -> None: ...


class Silent:
    """A display that shows nothing."""

    def begin(self, now: Snapshot) -> None:
        pass

    def update(self, now: Snapshot) -> None:
        pass

    def end(self, now: Snapshot) -> None:
        pass

    def say(self, sentence: str) -> None:
        pass


class LogLines:
    """Lines of plain text for a log: one for each tenth of a stage, at least 5 and at most 30 seconds apart."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def begin(self, now: Snapshot) -> None:
        self._tenth, self._line = 0, 0.0
        if now.total_bytes:
            self.say(f"{now.stage}: {describe_bytes(now.total_bytes)} to read")

    def update(self, now: Snapshot) -> None:
        done, total, since = now.done_bytes, now.total_bytes, now.seconds - self._line
        tenth = 10 * done // total if total else self._tenth
        ended = total and done >= total
        if not ended and (since < SPARSE_SECONDS or (tenth == self._tenth and since < LINE_SECONDS)):
            return
        self._tenth, self._line = tenth, now.seconds
        self.say(_progressed(now))

    def end(self, now: Snapshot) -> None:
        pass

    def say(self, sentence: str) -> None:
        print(f"dpca: {sentence}", file=self._file, flush=True)


class LiveView:
    """A live view on a terminal: a bar, memory, workers and the preview; and a line for each stage that has ended."""

    def __init__(self, file: TextIO) -> None:
        from rich.console import Console

        self._console = Console(file=getattr(file, "for_views", file))
        self._now = Snapshot()

    def begin(self, now: Snapshot) -> None:
        from rich.live import Live

        self._now = now
        self._live = Live(
            console=self._console,
            get_renderable=self._view,
            transient=True,
            refresh_per_second=4,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._live.start()

    def update(self, now: Snapshot) -> None:
        self._now = now

    def end(self, now: Snapshot) -> None:
        self._now = now
        self._live.stop()
        if now.done_bytes:
            self.say(_progressed(now))

    def say(self, sentence: str) -> None:
        self._console.print(printable(f"dpca: {sentence}"), markup=False, highlight=False, soft_wrap=True)

    def _view(self) -> Any:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        now, bar = self._now, Table.grid()
        if now.total_bytes:
            bar.add_row(ProgressBar(now.total_bytes, now.done_bytes, width=min(60, self._console.width)))
        return Group(*(Text(printable(line), overflow="fold") for line in describe(now.document)), bar)


class Patient:
    """A display that shows what takes longer than some seconds, and nothing before.

    Parameters
    ----------
    display : what shows it
    seconds : how long it shows nothing
    clock : seconds, from any origin
    """

    def __init__(
        self, display: Display, seconds: float = PATIENCE_SECONDS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._display, self._clock, self._shown = display, clock, False
        self._from = clock() + seconds

    def begin(self, now: Snapshot) -> None:
        self._shown = self._clock() >= self._from
        if self._shown:
            self._display.begin(now)

    def update(self, now: Snapshot) -> None:
        if not self._shown:
            self.begin(now)
        if self._shown:
            self._display.update(now)

    def end(self, now: Snapshot) -> None:
        if self._shown:
            self._display.end(now)
        self._shown = False

    def say(self, sentence: str) -> None:
        if self._clock() >= self._from:
            self._display.say(sentence)


def display_of_fit(verbose: bool | None, file: TextIO | None = None) -> Display:
    """The display of a fit in Python: with None a view on a terminal of what takes longer than some seconds, and nothing elsewhere."""
    file = sys.stderr if file is None else file
    if verbose is None:
        return Patient(LiveView(file)) if file.isatty() else Silent()
    return display_for(file) if verbose else Silent()


def display_for(file: TextIO | None = None) -> Display:
    """A live view if `file` (default: stderr) is a terminal, else lines."""
    file = sys.stderr if file is None else file
    return LiveView(file) if file.isatty() else LogLines(file)


def _progressed(now: Snapshot) -> str:
    """A line about the progress, for a log."""
    if not now.total_bytes:
        return f"{now.stage}: {describe_seconds(now.seconds)} passed"
    left = now.seconds_left if now.done_bytes < now.total_bytes else None
    return (
        f"{now.stage}: {100 * now.done_bytes // now.total_bytes} % ({describe_bytes(now.done_bytes)}), "
        f"{describe_bytes(now.bytes_per_second)}/s, {describe_seconds(now.seconds)} passed"
        + (f", {describe_seconds(left)} left" if left is not None else "")
    )


class Progress:
    """The byte count of the current stage, which is passed on to a display and status.json.

    Parameters
    ----------
    display : where to show it
    status : the file status.json, or None to write none
    stages : how many stages the run will have
    check : called after each slab; an error that it raises ends the run
    vitals : returns the memory and workers of the run; called every second
    entered : called with the name of each stage that begins
    clock : seconds, from any origin
    beat_ends_seconds : how long a query of the workers may delay the end of a stage
    """

    def __init__(
        self,
        display: Display | None = None,
        status: Path | None = None,
        stages: int = 1,
        check: Callable[[], None] = lambda: None,
        vitals: Callable[[], Vitals | None] = lambda: None,
        entered: Callable[[str], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
        beat_ends_seconds: float = BEAT_ENDS_SECONDS,
    ) -> None:
        self._check, self._vitals, self._entered, self._clock = check, vitals, entered, clock
        self._beat_ends_seconds = beat_ends_seconds
        self._display = display or Silent()
        self._status = status
        self._lock = threading.RLock()
        self._snapshot = Snapshot(stages=stages)
        self._began = clock()
        self._started = _now()

    @contextmanager
    def stage(self, name: str, total: int = 0, spans: int = 0, done_spans: int = 0) -> Iterator[None]:
        """A stage of the run.

        Parameters
        ----------
        total : the expected number of bytes, 0 if the stage reads none
        spans, done_spans : how many spans it has, and how many of them were finished before
        """
        self._entered(name)
        with self._lock:
            before, self._began = self._snapshot, self._clock()
            self._snapshot = Snapshot(
                name, before.stage_number + 1, before.stages, 0, total, done_spans, spans, vitals=before.vitals
            )
            self._snapshot = replace(self._snapshot, iteration=before.iteration)
        self._write("running")
        self._display.begin(self._snapshot)
        ended = threading.Event()
        beat = threading.Thread(target=asking_as_here(self._beat), args=(ended,), daemon=True)
        beat.start()
        try:
            yield
        finally:
            with self._lock:
                ended.set()
            beat.join(self._beat_ends_seconds)
            self._display.end(self._timed())

    def expect(self, stages: int) -> None:
        """Add a number of stages to those that were planned."""
        with self._lock:
            self._snapshot = replace(self._snapshot, stages=self._snapshot.stages + stages)

    def advance(self, n_bytes: int) -> None:
        """Count a finished slab; called from any thread."""
        self._check()
        with self._lock:
            now = self._timed()
            if not now.total_bytes:
                return  # no bytes were expected: parts that were finished, but damaged, are read again
            done = now.done_bytes + n_bytes
            self._snapshot = replace(now, done_bytes=done, total_bytes=max(now.total_bytes, done))
            self._display.update(self._snapshot)

    def added(self, spans: int) -> None:
        """Set the number of spans that are added up."""
        with self._lock:
            self._snapshot = replace(self._snapshot, done_spans=max(spans, self._snapshot.done_spans))

    def show(self, preview: Preview) -> None:
        """Show the preview of a pass so far."""
        with self._lock:
            self._snapshot = replace(self._snapshot, preview=preview)
        self._write("running")

    def judge(self, passes: int, max_passes: int, bounds: Sequence[float], tolerance: float, components: int) -> None:
        """Set what is certain after a pass of block Krylov, and show it.

        Parameters
        ----------
        bounds : largest relative error of each eigenvalue; infinite where nothing is certain
        components : the number that was asked for, which may be more than there are
        """
        certain = [float(bound) if bound < math.inf else None for bound in bounds]
        met = sum(bound is not None and bound <= tolerance for bound in certain)
        document = {
            "passes": passes,
            "max_passes": max_passes,
            "tolerance": tolerance,
            "components": components,
            "met": met,
            "bounds": certain,
        }
        with self._lock:
            self._snapshot = replace(self._snapshot, iteration=document)
        self._write("running")
        self.say(_of_iteration(document))

    def say(self, sentence: str) -> None:
        """Show a sentence."""
        self._display.say(sentence)

    def finish(self, state: str, message: str = "") -> None:
        """Write the last status: done, failed or interrupted."""
        self._write(state, message)

    def _timed(self) -> Snapshot:
        with self._lock:
            return replace(self._snapshot, seconds=self._clock() - self._began)

    def _beat(self, ended: threading.Event) -> None:
        while True:
            vitals = self._vitals()
            with self._lock:
                if ended.is_set():
                    return
                known = self._snapshot.vitals and self._snapshot.vitals.dashboard
                if vitals and vitals.dashboard and vitals.dashboard != known:
                    self._display.say(f"dashboard: {vitals.dashboard}")
                self._snapshot = replace(self._snapshot, vitals=vitals)
                self._display.update(self._timed())
                self._write("running")
            if ended.wait(BEAT_SECONDS):
                return

    def _write(self, state: str, message: str = "") -> None:
        if self._status is None:
            return
        with self._lock:
            document = self._timed().document
            if state != "running":
                document["seconds_left"] = None
            # A full disk must not end the run here, nor a lock that another run has taken over: the run can report that itself.
            with suppress(OSError, LockedError):
                write_briefly(
                    self._status,
                    {
                        "format_version": FORMAT_VERSION,
                        "state": state,
                        **document,
                        "started": self._started,
                        "updated": _now(),
                        "host": socket.gethostname(),
                        "pid": os.getpid(),
                        "message": message,
                    },
                )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
