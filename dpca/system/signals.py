"""Signals that interrupt a run: finished parts are kept, and the run can be resumed."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

STOPPING = ("SIGTERM", "SIGINT", "SIGUSR1")
"""Signals that interrupt a run; Slurm is asked to send SIGUSR1 before the walltime ends."""
REPEAT_SECONDS = 2.0
"""Seconds in which a repeated signal, other than Ctrl-C, counts as the same one."""
AGAIN_SECONDS = 0.01
"""Seconds after which a signal that came while Python ignores errors is sent again."""
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


@contextmanager
def stopping() -> Iterator[None]:
    """Raise `Stopped` in the main thread at the first such signal; a second one ends the process at once.

    What a signal raises in a finalizer, as of a future that is let go of, Python reports and ignores: it is raised again a moment later.
    Nothing is said of objects that it left half made, whose finalizers fail.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    stopped: tuple[str, float] | None = None
    ignored = over = False

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal stopped, ignored
        name, now = signal.Signals(number).name, time.monotonic()
        if over:
            return
        if stopped is not None and not ignored:
            # A batch system may send a signal twice, to the job and to its processes; a second Ctrl-C is meant.
            if name == "SIGINT" or name != stopped[0] or now - stopped[1] > REPEAT_SECONDS:
                os._exit(Stopped(name).exit_code)
            return
        stopped, ignored = stopped or (name, now), _is_within(frame, unraisable)
        if ignored:
            come_again()
        else:
            raise Stopped(stopped[0])

    def unraisable(found: sys.UnraisableHookArgs) -> None:
        nonlocal ignored
        if stopped is None:
            before_hook(found)
        elif isinstance(found.exc_value, Stopped):
            ignored = True
            come_again()

    def come_again() -> None:
        again = threading.Timer(AGAIN_SECONDS, send_again)
        again.daemon = True
        again.start()

    def send_again() -> None:
        main = threading.main_thread().ident
        if ignored and main is not None and stopped is not None:
            signal.pthread_kill(main, getattr(signal, stopped[0]))

    before_hook, sys.unraisablehook = sys.unraisablehook, unraisable
    before = {name: signal.getsignal(getattr(signal, name)) for name in STOPPING if hasattr(signal, name)}
    try:
        for name in before:
            signal.signal(getattr(signal, name), stop)
        yield
    finally:
        over = True
        if stopped is not None:
            gc.collect()
        for name, handler in before.items():
            signal.signal(getattr(signal, name), handler)
        sys.unraisablehook = before_hook


def _is_within(frame: FrameType | None, function: Callable[..., object]) -> bool:
    """Whether a frame is that of a function, or of what it has called."""
    while frame is not None and frame.f_code is not function.__code__:
        frame = frame.f_back
    return frame is not None


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
