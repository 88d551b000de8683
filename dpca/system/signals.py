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
from typing import Any

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
    timers: list[threading.Timer] = []

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
        timers.append(again)

    def send_again() -> None:
        main = threading.main_thread().ident
        if ignored and not over and main is not None and stopped is not None:
            signal.pthread_kill(main, getattr(signal, stopped[0]))

    before_hook, sys.unraisablehook = sys.unraisablehook, unraisable
    try:
        with _answering(stop):
            try:
                yield
            finally:
                over = True
                for timer in timers:  # or what comes again would meet the handlers of before
                    timer.join()
                if stopped is not None:
                    gc.collect()
    finally:
        sys.unraisablehook = before_hook


@contextmanager
def _answering(handler: Any) -> Iterator[None]:
    """In this block of the main thread the signals that interrupt a run have this handler; of other threads, theirs stay."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = [getattr(signal, name) for name in STOPPING if hasattr(signal, name)]
    before = [signal.getsignal(number) for number in numbers]
    try:
        for number in numbers:
            signal.signal(number, handler)
        yield
    finally:
        for number, handler_before in zip(numbers, before, strict=True):
            signal.signal(number, handler_before)


def _is_within(frame: FrameType | None, function: Callable[..., object]) -> bool:
    """Whether a frame is that of a function, or of what it has called."""
    while frame is not None and frame.f_code is not function.__code__:
        frame = frame.f_back
    return frame is not None


def leave(code: int) -> None:
    """End the process with an exit code, without waiting for threads that hang; a signal changes nothing of that any more."""
    until = time.monotonic() + GRACE_SECONDS
    with _answering(signal.SIG_IGN):
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
