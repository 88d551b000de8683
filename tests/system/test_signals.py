"""Signals that stop a command, whenever they come."""

import signal
import subprocess
import sys
import threading

import pytest

from dpca.cli import app
from dpca.system import signals
from dpca.system.signals import Stopped, stopping


class Finalized:
    def __init__(self, finalize):
        self._finalize = finalize

    def __del__(self):
        self._finalize()


def fail():
    raise AttributeError("half made")


@pytest.fixture
def said(monkeypatch):
    """Kinds of the errors of which Python says that it ignores them."""
    found = []
    monkeypatch.setattr(sys, "unraisablehook", lambda ignored: found.append(ignored.exc_type))
    return found


def test_a_signal_that_comes_in_a_finalizer_is_not_lost(said):
    """Python reports what its handler raises there, and goes on; also where it comes again in another one."""

    def hurt():
        Finalized(lambda: signal.raise_signal(signal.SIGTERM))
        Finalized(lambda: threading.Event().wait(60))
        threading.Event().wait(60)

    with stopping(), pytest.raises(Stopped, match="SIGTERM"):
        hurt()
    assert not said


@pytest.mark.parametrize("first", [False, True])
def test_a_signal_that_comes_while_python_reports_what_it_ignores_is_not_lost(monkeypatch, first):
    """Whether it is the first, or comes again after a finalizer: what it raises there would be reported by nobody."""
    start = threading.Timer.start

    def hurt(*_):
        signal.raise_signal(signal.SIGTERM)

    def started(timer):
        monkeypatch.setattr(threading.Timer, "start", start)
        start(timer)
        hurt()

    monkeypatch.setattr(sys, "unraisablehook", hurt)
    if not first:
        monkeypatch.setattr(threading.Timer, "start", started)

    def wait():
        Finalized(fail if first else hurt)
        threading.Event().wait(60)

    with stopping(), pytest.raises(Stopped, match="SIGTERM"):
        wait()


def test_of_what_a_signal_left_half_made_nothing_is_said(said):
    with stopping():
        Finalized(fail)
        assert said == [AttributeError]
        circle = [Finalized(fail)]
        circle.append(circle)
        del circle
        with pytest.raises(Stopped):
            signal.raise_signal(signal.SIGINT)
        Finalized(fail)
    assert said == [AttributeError]
    Finalized(fail)
    assert said == [AttributeError] * 2


@pytest.mark.parametrize("name", signals.STOPPING)
def test_a_signal_in_the_last_finalizer_of_a_command_does_not_come_again_after_it(monkeypatch, name):
    """What had the signals before, Python itself, would end the process, or begin a traceback."""
    monkeypatch.setattr(signals.gc, "collect", lambda: 0)  # the memory of all tests takes longer than the signal
    came, number = [], getattr(signal, name)
    before = signal.signal(number, lambda *_: came.append(name))
    try:
        with stopping():
            Finalized(lambda: signal.raise_signal(number))
        threading.Event().wait(5 * signals.AGAIN_SECONDS)
    finally:
        signal.signal(number, before)
    assert not came


@pytest.mark.parametrize("name", signals.STOPPING)
def test_a_signal_while_the_process_leaves_its_idle_threads_changes_nothing(name):
    code = f"""
import os, signal, threading, time
from dpca.system.signals import leave
def idle():
    while signal.getsignal(signal.{name}) is not signal.SIG_IGN:
        pass
    os.kill(os.getpid(), signal.{name})
    threading.Event().wait()
threading.Thread(target=idle, name="dpca-idle", daemon=True).start()
leave(3)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (3, "")


def test_a_signal_at_any_moment_of_a_command_is_answered_in_a_sentence(monkeypatch, capsys):
    """At every line of the code around commands: where they begin, and where they end."""
    monkeypatch.setattr(signals.gc, "collect", lambda: 0)  # the memory of all tests takes long
    files, before = {app.__file__, signals.__file__}, signal.signal(signal.SIGTERM, lambda *_: None)

    def ended_after(line):
        """How a command ended to which the signal came at that line; whether it had so many."""
        lines = iter(range(line))

        def trace(frame, event, _):
            if frame.f_code.co_filename not in files and "contextlib" not in frame.f_code.co_filename:
                return None
            if event == "line" and next(lines, None) is None:
                sys.settrace(None)
                signal.raise_signal(signal.SIGTERM)
            return trace

        sys.settrace(trace)
        try:
            app.main(["--version"])
            return 0, next(lines, None) is None
        except SystemExit as ended:
            return ended.code, True
        finally:
            sys.settrace(None)

    try:
        found = []
        while not found or found[-1][1]:
            found.append(ended_after(len(found)))
            assert (found[-1][0] == 1) == ("stopped by SIGTERM" in capsys.readouterr().err)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert [code for code, _ in found].count(1) > 20
