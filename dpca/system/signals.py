"""Signals that interrupt a run: finished parts are kept, and the run can be resumed."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

STOPPING = ("SIGTERM", "SIGINT", "SIGUSR1")
"""Signals that interrupt a run; Slurm is asked to send SIGUSR1 before the walltime ends."""
REPEAT_SECONDS = 2.0
"""Seconds in which a repeated signal, other than Ctrl-C, counts as the same one."""
GRACE_SECONDS = 0.5
"""Seconds for idle threads to end."""
THREADS = "dpca-"
"""Prefix in the names of threads that may be left running when a run is interrupted."""


class Stopped(BaseException):
    """A signal interrupted the run. It is no Exception, so that no handler takes it for an ordinary failure."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name
        self.remedy = ""
        """How to resume, once that is known."""

    @property
    def exit_code(self) -> int:
        """130 for Ctrl-C, as in shells, else 1."""
        return 130 if self.name == "SIGINT" else 1


_asked: str | None = None
"""The signal that asked this process to stop, until it has."""


def check_stopped() -> None:
    """Raise `Stopped` again, where a signal came while Python ignores errors: in a finalizer, as of a future that is let go of."""
    if _asked is not None:
        raise Stopped(_asked)


@contextmanager
def stopping() -> Iterator[None]:
    """Raise `Stopped` in the main thread at the first such signal; a second one ends the process at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    stopped: tuple[str, float] | None = None

    def stop(number: int, _: FrameType | None) -> None:
        nonlocal stopped
        global _asked
        name, now = signal.Signals(number).name, time.monotonic()
        if stopped is not None:
            # A batch system may send a signal twice, to the job and to its processes; a second Ctrl-C is meant.
            if name == "SIGINT" or name != stopped[0] or now - stopped[1] > REPEAT_SECONDS:
                os._exit(Stopped(name).exit_code)
            return
        stopped, _asked = (name, now), name
        raise Stopped(name)

    before = {name: signal.signal(getattr(signal, name), stop) for name in STOPPING if hasattr(signal, name)}
    try:
        yield
    finally:
        _forget()
        for name, handler in before.items():
            signal.signal(getattr(signal, name), handler)


def _forget() -> None:
    global _asked
    _asked = None


def leave(code: int) -> None:
    """End the process with an exit code, without waiting for threads that hang."""
    until = time.monotonic() + GRACE_SECONDS
    for thread in threading.enumerate():
        if thread.name.startswith(THREADS):
            thread.join(max(0.0, until - time.monotonic()))
    if any(thread.name.startswith(THREADS) for thread in threading.enumerate()):
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)
    if code:
        sys.exit(code)
