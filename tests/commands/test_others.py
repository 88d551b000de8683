"""The commands besides run, plan, inspect and init; what all commands share."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import zarr

from dpca.cli import printing
from dpca.cli.printing import status_lines
from dpca.execution.progress import Progress
from dpca.store import directory
from dpca.store.directory import read_status
from tests.commands.calls import X, dpca, given, run
from tests.made import made


def test_debug_shows_the_traceback(config, capsys):
    """Before the message, which is the same as without it."""
    assert dpca("run", config, "--debug", "--set", "input.uri=no") == 2
    shown = capsys.readouterr().err
    assert shown.index("Traceback (most recent call last)") < shown.index("dpca: error: ")
    assert "no: does not exist" in shown


def test_validate(config, capsys):
    assert dpca("validate", config) == 0
    assert capsys.readouterr().out == "c.yaml: valid\n"
    assert dpca("validate", config, "--set", "model.n_component=3") == 2
    assert "Did you mean model.n_components?" in capsys.readouterr().err
    assert dpca("validate", config, "--set", "input.uri=no.zarr") == 0
    assert "its input no.zarr does not exist here" in capsys.readouterr().err


def test_status(config, capsys):
    assert dpca("status", "out/r") == 2
    assert "out/r: does not exist" in capsys.readouterr().err
    assert dpca("status", config) == 2
    assert "c.yaml: is a file, and no result of dpca run" in capsys.readouterr().err
    made(run, given)
    capsys.readouterr()
    assert dpca("status", "out/r") == 0
    assert "out/r: done (4 of 4 components reliable" in capsys.readouterr().out
    status = json.loads(Path("out/r/status.json").read_text())
    status.update(state="running", message="", done_bytes=5, total_bytes=10, seconds_left=75.0, bytes_per_second=2e6)
    Path("out/r/status.json").write_text(json.dumps(status))
    assert dpca("status", "out/r") == 0
    assert "stage 3 of 3, components: 50 % of 10 B, 2 MB/s, 1:15 left" in capsys.readouterr().out
    assert dpca("status", "out/r", "--json") == 0
    assert json.loads(capsys.readouterr().out)["total_bytes"] == 10


def test_schema(capsys):
    assert dpca("schema") == 0
    assert json.loads(capsys.readouterr().out)["properties"]["model"]


def test_usage_errors_exit_2(capsys):
    assert dpca("run") == 2
    assert dpca("fly") == 2
    assert dpca("--help") == 0
    assert "Exit codes" in capsys.readouterr().out


def test_a_demo_where_no_directory_can_be(capsys):
    Path("afile").write_text("")
    assert dpca("demo", "--directory", "afile", "--samples", "60", "--features", "3000") == 2
    assert "afile: exists and is not a directory\n  Choose another --directory." in capsys.readouterr().err


def test_demo(capsys, monkeypatch):
    assert dpca("demo", "--samples", "60", "--features", "3000") == 0
    shown = capsys.readouterr().out
    assert "$ dpca run dpca-demo/demo.yaml --overwrite" in shown
    assert "demo: right" in shown
    result = zarr.open_group("dpca-demo/result/result.zarr", mode="r+")
    result["singular_values"][3] *= 1.01
    from dpca.commands.demo import check, make

    assert check(Path("dpca-demo"), make(Path("dpca-demo"), 60, 3000))[1] is False


def test_status_shows_what_the_spectrum_would_be_so_far(config, capsys, monkeypatch):
    for name, value in {
        "slabs.TILE_WIDTH": 1,
        "planning.search.SLAB_BYTES": 1000,
        "planning.search.SLAB_WIDTH": 1,
    }.items():
        monkeypatch.setattr(f"dpca.{name}", value)
    show, seen = Progress.show, []

    def shown(self, preview):
        show(self, preview)
        seen.append("\n".join(status_lines(Path("out/r"), read_status(Path("out/r")))))

    monkeypatch.setattr(Progress, "show", shown)
    assert dpca("run", config, "--set", "compute.workers=1") == 0
    assert re.search(
        r"stage 1 of 3, gram: \d+ % of 28.8 kB.*\n\d+ of (\d+) spans.*\n"
        r"preview, partial, of \d of \1 spans: [\d.]+(, [\d.]+)+ % of the variance, by component\n",
        seen[0],
    ), seen[0]
    dpca("status", "out/r")
    assert "preview" not in capsys.readouterr().out


@pytest.mark.parametrize(("state", "code"), [("done", 0), ("failed", 1)])
def test_a_status_is_watched_until_the_run_has_ended(capsys, monkeypatch, state, code):
    made(run, given)
    last = json.loads(Path("out/r/status.json").read_text()) | {"state": state}
    running = last | {"state": "running", "total_bytes": 100, "seconds_left": None, "message": ""}
    seen = iter([running | {"done_bytes": done} for done in (10, 12, 50)] + [last])
    monkeypatch.setattr(directory, "read_status", lambda _: next(seen))
    monkeypatch.setattr(printing, "WATCH_SECONDS", 0)
    capsys.readouterr()
    assert dpca("status", "out/r", "--watch") == code
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(";")[0] for line in lines] == ["out/r: running"] * 2 + [f"out/r: {state} ({last['message']})"]
    assert "10 % of 100 B" in lines[0]
    assert "50 % of 100 B" in lines[1]


def test_shells_complete(monkeypatch):
    done = subprocess.run(
        [sys.executable, "-m", "dpca"],
        env={**os.environ, "_DPCA_COMPLETE": "bash_source"},
        capture_output=True,
        text=True,
    )
    assert "_dpca_completion" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("inspect", "x.zarr", "--samples-axis", "nope"), "--samples-axis is 'nope'"),
        (("inspect", "g.zarr", "--array", "nope"), "Set --array to one of them."),
        (("init", "nothing.npy"), "Check the path;"),
        (("export", "out/r", "--to", "csv", "--labels", "none.txt"), "(and --labels-array)"),
        (("transform", "out/r", "g.zarr", "--out", "s.zarr"), "Set array, in a YAML file, to one of them."),
        (("transform", "out/r", "x.zarr", "--out", "s.zarr", "--scheduler", "host"), "--scheduler is 'host'"),
    ],
)
def test_commands_without_a_config_name_their_own_options(capsys, arguments, words):
    made(run, given)
    zarr.create_group("g.zarr").create_array("a", data=X, chunks=X.shape)
    zarr.open_group("g.zarr").create_array("b", data=X, chunks=X.shape)
    capsys.readouterr()
    assert dpca(*arguments) == 2
    said = capsys.readouterr().err
    assert words in said
    for key in ("input.", "model.", "compute."):
        assert key not in said
