import contextlib
import io
import json
import os
import pty
import re
import sys
import threading

import pytest

from dpca.errors import LockedError
from dpca.execution import progress
from dpca.execution.progress import LiveView, LogLines, Progress, Snapshot, Vitals, describe, display_for
from dpca.numerics.preview import Preview
from dpca.system import durable
from dpca.units import describe_bytes, describe_seconds


def test_a_log_gets_a_line_at_each_tenth_and_no_carriage_return():
    out = io.StringIO()
    lines = LogLines(out)
    lines.begin(Snapshot("gram", total_bytes=10_000_000))
    for done in range(1, 1001):
        lines.update(Snapshot("gram", done_bytes=10_000 * done, total_bytes=10_000_000, seconds=done / 10))
    tenths = [re.search(r"(\d+) %", line).group(1) for line in out.getvalue().splitlines()[1:]]
    assert tenths == [str(10 * tenth) for tenth in range(1, 11)]
    assert "\r" not in out.getvalue()
    assert "\x1b" not in out.getvalue()
    assert "gram: 50 % (5 MB), 100 kB/s, 0:50 passed, 0:50 left" in out.getvalue()


def test_a_quick_stage_gets_two_lines():
    out = io.StringIO()
    progress = Progress(LogLines(out), clock=lambda: 0.0)
    with progress.stage("gram", 10_000_000):
        for _ in range(1000):
            progress.advance(10_000)
    first, last = out.getvalue().splitlines()
    assert first == "dpca: gram: 10 MB to read"
    assert last.startswith("dpca: gram: 100 % (10 MB), ")


def test_a_slow_stage_gets_a_line_every_30_seconds():
    out = io.StringIO()
    lines = LogLines(out)
    lines.begin(Snapshot("gram", total_bytes=1000))
    for seconds in range(91):
        lines.update(Snapshot("gram", done_bytes=50, total_bytes=1000, seconds=float(seconds)))
    assert len(out.getvalue().splitlines()) == 1 + 3


def test_status_says_where_the_run_is(tmp_path):
    status = tmp_path / "status.json"
    clock = iter(range(100))
    progress = Progress(None, status, stages=3, clock=lambda: next(clock))
    with progress.stage("gram", 100):
        progress.advance(25)
        progress._write("running")
        found = json.loads(status.read_text())
        assert (found["state"], found["stage"], found["stage_number"], found["stages"]) == ("running", "gram", 1, 3)
        assert (found["done_bytes"], found["total_bytes"]) == (25, 100)
        assert found["seconds_left"] > 0
    progress.finish("failed", "a reason")
    found = json.loads(status.read_text())
    assert (found["state"], found["message"], found["seconds_left"]) == ("failed", "a reason", None)
    assert os.listdir(tmp_path) == ["status.json"]  # nothing is left of writing aside


def test_a_stage_that_reads_nothing_is_told_of_in_a_log_when_it_takes_long():
    out = io.StringIO()
    lines = LogLines(out)
    lines.begin(Snapshot("eigensolve"))
    for seconds in range(65):
        lines.update(Snapshot("eigensolve", seconds=float(seconds)))
    lines.end(Snapshot("eigensolve", seconds=65.0))
    assert out.getvalue().splitlines() == ["dpca: eigensolve: 0:30 passed", "dpca: eigensolve: 1:00 passed"]


def test_a_terminal_shows_all_that_is_known_in_place_and_keeps_a_line_of_what_ended():
    vitals = Vitals(300 * 2**20, 2 * 2**30, 3, 2**30, 4 * 2**30, "http://host:8787/status")
    ours, theirs = pty.openpty()
    screen = Screen(ours)
    with os.fdopen(theirs, "w") as terminal:
        view = display_for(terminal)
        assert isinstance(view, LiveView)
        view._console.width = 120
        seconds = [0.0]
        progress = Progress(view, stages=3, vitals=lambda: vitals, clock=lambda: seconds[0])
        with progress.stage("gram", 2_000_000, spans=20, done_spans=2):
            seconds[0] = 1.0
            progress.advance(1_000_000)
            progress.added(4)
            progress.show(Preview(4, 20, (0.412, 0.2)))
            progress._beat(_Once())
            view._live.refresh()
            seconds[0] = 8.0
            progress.advance(1_000_000)
    shown = screen.shown
    assert "stage 1 of 3, gram: 50 % of 2 MB, 1 MB/s, 0:01 left" in shown
    assert "4 of 20 spans; memory 300 MiB of 2 GiB; 3 workers, the fullest 1 GiB of 4 GiB" in shown
    assert "preview, partial, of 4 of 20 spans: 41.2, 20.0 % of the variance, by component" in shown
    assert shown.count("dpca: dashboard: http://host:8787/status") == 1
    assert shown.endswith("dpca: gram: 100 % (2 MB), 250 kB/s, 0:08 passed\r\n")


class Screen(threading.Thread):
    """Reads all that is written to a terminal, while it is written: a full one would block who writes."""

    def __init__(self, terminal):
        super().__init__(daemon=True)
        self._terminal, self._pieces = terminal, []
        self.start()

    def run(self):
        with contextlib.suppress(OSError):  # EIO at the end, on Linux
            while piece := os.read(self._terminal, 65536):
                self._pieces.append(piece)

    @property
    def shown(self):
        """Everything, after the other end is closed."""
        self.join()
        os.close(self._terminal)
        return b"".join(self._pieces).decode()


class _Once:
    """An event that stops the beat after one."""

    def is_set(self):
        return False

    def wait(self, seconds):
        return True


def test_a_pipe_gets_lines():
    assert isinstance(display_for(io.StringIO()), LogLines)


def test_a_look_at_workers_that_hangs_holds_up_nothing():
    answered = threading.Event()
    progress = Progress(vitals=lambda: answered.wait() and None, beat_ends_seconds=0.0)
    with progress.stage("gram", 100):
        progress.advance(100)
    answered.set()


def test_the_status_of_a_run_that_has_taken_over_is_not_replaced(tmp_path, monkeypatch):
    """Not by a stage that begins or ends, and not by its beat, which is another thread."""
    monkeypatch.setattr(progress, "BEAT_SECONDS", 0)
    beats = iter(range(3))
    beaten = threading.Event()

    def vitals():
        if next(beats, None) is None:
            beaten.set()

    def taken_over():
        raise LockedError("r: another run has taken it over", "")

    running = Progress(status=tmp_path / "status.json", vitals=vitals)
    with durable.asking(taken_over), running.stage("gram"):
        assert beaten.wait(60)
    assert not list(tmp_path.iterdir())
    with running.stage("components"):
        assert json.loads((tmp_path / "status.json").read_text())["state"] == "running"


def test_spans_that_were_finished_before_stay_counted_while_they_are_added_up():
    progress = Progress()
    with progress.stage("gram", 100, spans=20, done_spans=13):
        progress.added(1)
        assert progress._snapshot.done_spans == 13
        progress.added(14)
        assert progress._snapshot.done_spans == 14


def test_a_status_of_an_earlier_version_is_described():
    old = {"stage": "gram", "stage_number": 1, "stages": 3, "done_bytes": 5, "total_bytes": 10}
    assert describe({**old, "bytes_per_second": 1.0, "seconds_left": 5.0}) == [
        "stage 1 of 3, gram: 50 % of 10 B, 1 B/s, 0:05 left"
    ]


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (1500, "1.5 kB"), (2.5e9, "2.5 GB"), (999_600, "1 MB"), (4e15, "4 PB")],
)
def test_bytes_are_described_in_powers_of_1000(count, text):
    assert describe_bytes(count) == text


def test_seconds_are_described_as_a_clock():
    assert [describe_seconds(s) for s in (5, 75, 4000)] == ["0:05", "1:15", "1:06:40"]


class Watched(Progress):
    """Notes what of its state is changed, or looked at, without its lock."""

    free: list

    def __init__(self, **given):
        self.__dict__["free"] = []
        super().__init__(**given)

    def _is_shared(self, name):
        return name in ("_snapshot", "_began") and "_started" in self.__dict__  # it is made by now

    def __setattr__(self, name, value):
        if self._is_shared(name) and not self._lock._is_owned():
            self.free.append((sys._getframe(1).f_code.co_name, name))
        super().__setattr__(name, value)

    def __getattribute__(self, name):
        if name == "_began" and super().__getattribute__("_is_shared")(name) and not self._lock._is_owned():
            self.free.append((sys._getframe(1).f_code.co_name, name))
        return super().__getattribute__(name)


def test_what_threads_share_is_changed_and_written_under_one_lock(tmp_path, monkeypatch):
    watched, written = None, threading.Event()

    def write(path, document):
        if not watched._lock._is_owned():
            watched.free.append("status")
        written.set()

    class Ended(threading.Event):
        def set(self):
            if sys._getframe(1).f_code.co_name == "stage" and not watched._lock._is_owned():
                watched.free.append("the end of the stage")
            super().set()

    monkeypatch.setattr("dpca.execution.progress.threading.Event", Ended)
    monkeypatch.setattr("dpca.execution.progress.write_briefly", write)
    watched = Watched(status=tmp_path / "status.json", vitals=lambda: Vitals(1, 2, 3))
    watched.expect(2)
    with watched.stage("gram", 100, 4):
        watched.advance(50)
        watched.added(2)
        watched.show(Preview(2, 4, (0.5, 0.25)))
        watched.judge(1, 3, [0.1, 0.2], 1e-6, 2)
        written.clear()
        assert written.wait(60)  # by the thread that writes each second
    watched.finish("done")
    assert watched.free == []
