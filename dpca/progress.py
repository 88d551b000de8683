"""How far a run is: status.json always; a live bar on a terminal, sparse lines in a log."""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol, TextIO

from dpca.durable import write_briefly
from dpca.units import describe_bytes, describe_seconds

FORMAT_VERSION = 1
LINE_SECONDS = 30.0
SPARSE_SECONDS = 5.0
BEAT_SECONDS = 1.0


class Display(Protocol):
    """Where progress is shown."""

    def begin(self, stage: str, total: int) -> None: ...
    def update(self, done: int, total: int, seconds: float) -> None: ...
    def end(self) -> None: ...
    def say(self, sentence: str) -> None: ...


class Silent:
    """Shows nothing."""

    def begin(self, stage: str, total: int) -> None:
        pass

    def update(self, done: int, total: int, seconds: float) -> None:
        pass

    def end(self) -> None:
        pass

    def say(self, sentence: str) -> None:
        pass


class LogLines:
    """A line at each tenth, at least 5 and at most 30 seconds apart: nothing that a log file would garble."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def begin(self, stage: str, total: int) -> None:
        self._stage, self._tenth, self._line = stage, 0, 0.0
        print(f"dpca: {stage}: {describe_bytes(total)} to read", file=self._file, flush=True)

    def update(self, done: int, total: int, seconds: float) -> None:
        tenth = 10 * done // total if total else 10
        since = seconds - self._line
        if done < total and (since < SPARSE_SECONDS or (tenth == self._tenth and since < LINE_SECONDS)):
            return
        self._tenth, self._line = tenth, seconds
        rate = done / seconds if seconds > 0 else 0.0
        left = f", {describe_seconds((total - done) / rate)} left" if rate and done < total else ""
        print(
            f"dpca: {self._stage}: {100 * done // max(total, 1)} % ({describe_bytes(done)}), "
            f"{describe_bytes(rate)}/s, {describe_seconds(seconds)} passed{left}",
            file=self._file,
            flush=True,
        )

    def end(self) -> None:
        pass

    def say(self, sentence: str) -> None:
        print(f"dpca: {sentence}", file=self._file, flush=True)


class Bar:
    """A live bar with rate and time left, on a terminal."""

    def __init__(self, file: TextIO) -> None:
        from rich import progress
        from rich.console import Console

        self._file = file
        self._bar = progress.Progress(
            progress.TextColumn("{task.description:<16}"),
            progress.BarColumn(),
            progress.TaskProgressColumn(),
            progress.DownloadColumn(),
            progress.TransferSpeedColumn(),
            progress.TimeRemainingColumn(),
            console=Console(file=file),
        )

    def begin(self, stage: str, total: int) -> None:
        self._bar.start()
        self._task = self._bar.add_task(stage, total=total)

    def update(self, done: int, total: int, seconds: float) -> None:
        self._bar.update(self._task, completed=done)

    def end(self) -> None:
        self._bar.stop()

    def say(self, sentence: str) -> None:
        print(f"dpca: {sentence}", file=self._file, flush=True)


def display_for(file: TextIO | None = None) -> Display:
    """A bar if `file` (default: stderr) is a terminal, else lines."""
    file = sys.stderr if file is None else file
    return Bar(file) if file.isatty() else LogLines(file)


class Progress:
    """Counts the bytes of the stage in hand and tells a display and status.json.

    Parameters
    ----------
    display : where to show it
    status : the file status.json, or None to write none
    stages : how many stages the run will have
    check : called with each slab that is done; what it raises ends the run
    """

    def __init__(
        self,
        display: Display | None = None,
        status: Path | None = None,
        stages: int = 1,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self._check = check
        self._display = display or Silent()
        self._status, self._stages = status, stages
        self._lock = threading.RLock()
        self._number = self._done = self._total = 0
        self._stage = "starting"
        self._began = time.monotonic()
        self._started = _now()

    @contextmanager
    def stage(self, name: str, total: int = 0) -> Iterator[None]:
        """A stage of the run; `total` bytes are expected, 0 if it reads none."""
        with self._lock:
            self._number += 1
            self._stage, self._done, self._total, self._began = name, 0, total, time.monotonic()
        self._write("running")
        if not total:
            yield
            return
        self._display.begin(name, total)
        ended = threading.Event()
        beat = threading.Thread(target=self._beat, args=(ended,), daemon=True)
        beat.start()
        try:
            yield
        finally:
            ended.set()
            beat.join()
            self._display.end()

    def advance(self, n_bytes: int) -> None:
        """Count a slab that is done; called from any thread."""
        self._check()
        with self._lock:
            self._done += n_bytes
            if not self._total:
                return  # nothing was expected: what was finished before and found damaged is read again
            self._total = max(self._total, self._done)
            self._display.update(self._done, self._total, time.monotonic() - self._began)

    def say(self, sentence: str) -> None:
        """Show a sentence between stages."""
        self._display.say(sentence)

    def finish(self, state: str, message: str = "") -> None:
        """Write the last status: done, failed or interrupted."""
        self._write(state, message)

    def _beat(self, ended: threading.Event) -> None:
        while not ended.wait(BEAT_SECONDS):
            with self._lock:
                self._display.update(self._done, self._total, time.monotonic() - self._began)
            self._write("running")

    def _write(self, state: str, message: str = "") -> None:
        if self._status is None:
            return
        with self._lock:
            seconds = time.monotonic() - self._began
            rate = self._done / seconds if seconds > 0 else 0.0
            left = (self._total - self._done) / rate if rate and state == "running" else None
            # A disk that is full must not end a run that could say so itself.
            with suppress(OSError):
                write_briefly(
                    self._status,
                    {
                        "format_version": FORMAT_VERSION,
                        "state": state,
                        "stage": self._stage,
                        "stage_number": self._number,
                        "stages": self._stages,
                        "done_bytes": self._done,
                        "total_bytes": self._total,
                        "bytes_per_second": rate,
                        "seconds_left": left,
                        "started": self._started,
                        "updated": _now(),
                        "host": socket.gethostname(),
                        "pid": os.getpid(),
                        "message": message,
                    },
                )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
