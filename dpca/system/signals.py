"""Signals that ask a run to stop: what is finished is kept, and it can be gone on with."""

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
"""SIGUSR1 is what Slurm is asked to send before the walltime ends."""
REPEAT_SECONDS = 2.0
"""How long the same signal counts as one, but Ctrl-C."""
GRACE_SECONDS = 0.5
"""For threads that have nothing left to do, to end."""
THREADS = "dpca-"
"""How threads are called that may be left behind when a run is told to stop."""


class Stopped(BaseException):
    """A signal asked the run to stop. No Exception, so that nothing takes it for a failure that it can handle."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name
        self.remedy = ""
        """How to go on, once that is known."""

    @property
    def exit_code(self) -> int:
        """130 for Ctrl-C, as shells have it, else 1."""
        return 130 if self.name == "SIGINT" else 1


@contextmanager
def stopping() -> Iterator[None]:
    """Raise `Stopped` in the main thread at the first such signal; a second leaves at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    stopped: tuple[str, float] | None = None

    def stop(number: int, _: FrameType | None) -> None:
        nonlocal stopped
        name, now = signal.Signals(number).name, time.monotonic()
        if stopped is not None:
            # A batch system may say the same twice, to a job and to its processes; a person says it again.
            if name == "SIGINT" or name != stopped[0] or now - stopped[1] > REPEAT_SECONDS:
                os._exit(Stopped(name).exit_code)
            return
        stopped = (name, now)
        raise Stopped(name)

    before = {name: signal.signal(getattr(signal, name), stop) for name in STOPPING if hasattr(signal, name)}
    try:
        yield
    finally:
        for name, handler in before.items():
            signal.signal(getattr(signal, name), handler)


def leave(code: int) -> None:
    """End the process with a code, without waiting for tasks that hang."""
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
