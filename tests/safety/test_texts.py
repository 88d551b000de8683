"""Texts of others in scripts and terminals: line breaks and signs that are not printable."""

import json
import os
from pathlib import Path

import h5py
import numpy as np
import pytest

from tests.commands.calls import dpca
from tests.made import made
from tests.safety.common import X, a_finished_run, config

BREAK = "x\n#SBATCH --wrap=evil\nevil"
PLACES = ("input.uri", "model.labels.uri", "compute.scratch", "output.path")
OF_CLUSTERS = {
    "scheduler": f"{{scheduler: {json.dumps(BREAK)}}}",
    "scheduler_file": f"{{scheduler_file: {json.dumps(BREAK)}}}",
    "tls.key": f"{{scheduler: 'tls://localhost:1', tls: {{ca: a, cert: b, key: {json.dumps(BREAK)}}}}}",
    "slurm.queue": f"{{slurm: {{cores: 1, memory: 1 GiB, walltime: '10:00', maximum: 1, queue: {json.dumps(BREAK)}}}}}",
    "slurm_runner.interface": f"{{slurm_runner: {{workers: 1, memory: 1 GiB, interface: {json.dumps(BREAK)}}}}}",
}


@pytest.mark.parametrize("key", [*PLACES, *(f"compute.cluster.{key}" for key in OF_CLUSTERS)])
def test_a_line_break_in_a_config_is_refused_at_its_line(key, capsys):
    """It would begin a line of a script: an option of sbatch, or a command."""
    value = OF_CLUSTERS.get(key.removeprefix("compute.cluster."), json.dumps(BREAK))
    given = key if key in PLACES else "compute.cluster"
    assert dpca("submit", config("x.npy"), "--dry-run", "--set", f"{given}={value}") == 2
    shown = capsys.readouterr()
    assert f"{key} is {BREAK!r}, but text without control characters" in shown.err
    assert not shown.out
    Path("c.yaml").write_text(f"input: {{uri: x.npy}}\noutput:\n  path: {json.dumps(BREAK)}\n")
    assert dpca("validate", "c.yaml") == 2
    assert "c.yaml:3:9: output.path is" in capsys.readouterr().err


@pytest.mark.parametrize("way", ["job", "array"])
def test_a_line_break_reaches_no_script_by_another_way(way, capsys):
    np.save("x.npy", X)
    submit = ("submit", os.path.abspath(config(os.path.abspath("x.npy"))), "--as", way, "--dry-run")
    for flag in ("--sbatch", "--sbatch-array", "--sbatch-finalize", "--job-script-prologue"):
        assert dpca(*submit, flag, BREAK) == 2
    assert dpca(*submit, "--set", "model={n_components: 2,\n evil: 3}") == 2
    assert dpca(*submit, "--set", "model={n_components:\n 2}") == 0
    assert not [
        line for line in capsys.readouterr().out.splitlines() if line.startswith("#") and "n_components" in line
    ]
    os.mkdir(BREAK)
    os.chdir(BREAK)
    assert dpca(*submit) == 2
    assert "has control characters" in capsys.readouterr().err


@pytest.mark.parametrize(
    "command",
    [
        ("transform", "r", "x.npy", "--out", BREAK),
        ("transform", "r", BREAK, "--out", "o"),
        ("transform", "r", "x.npy", "--out", "o", "--training", BREAK),
        ("report", "r", "--labels", BREAK),
        ("report", "r", "--groups", BREAK),
        ("export", "r", "--to", "csv", "--out", BREAK),
        ("run", BREAK),
        ("inspect", BREAK),
        ("demo", "--directory", BREAK),
    ],
)
def test_a_line_break_on_the_command_line_is_refused(command, capsys):
    assert dpca(*command) == 2
    assert f"{BREAK!r} has control characters" in capsys.readouterr().err


ESCAPES = {
    "title": "\x1b]0;mine\x07",
    "clipboard": "\x1b]52;c;ZWNobw==\x07",
    "one sign": "\x9b2J",
    "right to left": "\u202egnp.x",
}


@pytest.mark.parametrize("escape", ESCAPES)
def test_texts_of_others_are_printable(escape, capsys):
    """Names in files, headers of tables, and a status: on both streams of every command that shows them."""
    text = ESCAPES[escape]
    with h5py.File("x.h5", "w") as file:
        file[f"a{text}"], file[f"b{text}"] = X, X
    assert dpca("inspect", "x.h5") == 0
    assert dpca("run", config("x.h5")) == 2
    made(a_finished_run)
    Path("table.csv").write_text(f"id,{text}\n" + "".join(f"{row},1\n" for row in "abcdef"))
    assert dpca("run", "c.yaml", "--overwrite", "--set", "model.labels={uri: table.csv, column: no}") == 2
    status = json.loads(Path("r/status.json").read_text())
    Path("r/status.json").write_text(json.dumps({**status, "state": "failed", "message": f"m{text}", "stage": text}))
    dpca("status", "r")
    certificate = json.loads(Path("r/certificate.json").read_text())
    Path("r/certificate.json").write_text(json.dumps({**certificate, "verdict": f"v{text}"}))
    dpca("export", "r", "--to", "csv", "--out", "e.csv")
    shown = capsys.readouterr()
    assert "a" + ascii(text)[1:5] in shown.out + shown.err
    assert not [sign for sign in shown.out + shown.err if not sign.isprintable() and sign not in "\n\t"]
