"""Calling the commands, and what their tests share."""

import subprocess
import sys
from pathlib import Path

import zarr

from dpca.cli.app import main
from tests.stores import random_array

X = random_array(0, (12, 20, 30), "f4")
HANGS = 600
"""Seconds after which a process of a test is ended, and that test alone fails: what hangs for longer ends all tests."""


def dpca(*arguments):
    """In this process, which is faster; `test_as_a_process` shows that it is the same."""
    try:
        main([str(argument) for argument in arguments])
    except SystemExit as stop:
        return stop.code
    return 0


def dpca_process(*arguments):
    """In a process of its own, for what depends on its memory or environment."""
    command = [sys.executable, "-m", "dpca", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=HANGS)


def sets(*keys):
    """Keys of a configuration, as a command takes them."""
    return [word for key in keys for word in ("--set", key)]


def given():
    """What the fixture `config` gives."""
    zarr.create_array("x.zarr", data=X, chunks=(5, 20, 7), dimension_names=("time", "lat", "lon"))
    Path("c.yaml").write_text("input:\n  uri: x.zarr\nmodel:\n  n_components: 4\noutput:\n  path: out/r\n")


def run(write, *keys):
    """What `write()` leaves, and the result of its c.yaml: for `made`, wherever a test only reads it."""
    write()
    assert dpca("run", "c.yaml", *sets(*keys)) == 0
