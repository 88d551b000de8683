import io
import json
import os
import pty
import re

import pytest

from dpca.progress import Bar, LogLines, Progress, display_for
from dpca.units import describe_bytes, describe_seconds


def test_a_log_gets_a_line_at_each_tenth_and_no_carriage_return():
    out = io.StringIO()
    lines = LogLines(out)
    lines.begin("gram", 10_000_000)
    for done in range(1, 1001):
        lines.update(10_000 * done, 10_000_000, done / 10)
    tenths = [re.search(r"(\d+) %", line).group(1) for line in out.getvalue().splitlines()[1:]]
    assert tenths == [str(10 * tenth) for tenth in range(1, 11)]
    assert "\r" not in out.getvalue()
    assert "\x1b" not in out.getvalue()
    assert "gram: 50 % (5 MB), 100 kB/s, 0:50 passed, 0:50 left" in out.getvalue()


def test_a_quick_stage_gets_two_lines():
    out = io.StringIO()
    progress = Progress(LogLines(out))
    with progress.stage("gram", 10_000_000):
        for _ in range(1000):
            progress.advance(10_000)
    first, last = out.getvalue().splitlines()
    assert first == "dpca: gram: 10 MB to read"
    assert last.startswith("dpca: gram: 100 % (10 MB), ")


def test_a_slow_stage_gets_a_line_every_30_seconds():
    out = io.StringIO()
    lines = LogLines(out)
    lines.begin("gram", 1000)
    for seconds in range(91):
        lines.update(50, 1000, float(seconds))
    assert len(out.getvalue().splitlines()) == 1 + 3


def test_status_says_where_the_run_is(tmp_path):
    status = tmp_path / "status.json"
    progress = Progress(None, status, stages=3)
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


def test_a_terminal_gets_a_bar_and_a_pipe_gets_lines():
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w") as terminal:
        bar = display_for(terminal)
        assert isinstance(bar, Bar)
        progress = Progress(bar)
        with progress.stage("gram", 2_000_000):
            progress.advance(2_000_000)
    shown = os.read(ours, 65536).decode()
    os.close(ours)
    assert "gram" in shown
    assert "100%" in shown
    assert "2.0/2.0 MB" in shown
    assert isinstance(display_for(io.StringIO()), LogLines)


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (1500, "1.5 kB"), (2.5e9, "2.5 GB"), (999_600, "1 MB"), (4e15, "4 PB")],
)
def test_bytes_are_described_in_powers_of_1000(count, text):
    assert describe_bytes(count) == text


def test_seconds_are_described_as_a_clock():
    assert [describe_seconds(s) for s in (5, 75, 4000)] == ["0:05", "1:15", "1:06:40"]
