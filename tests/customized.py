"""Runs on several machines whose every Python does something at its spans, and notes which it computed."""

import os
from pathlib import Path

import pytest
import zarr

from tests.commands.calls import dpca_process
from tests.stores import random_array

CUSTOMIZED = """
import functools, os, time
import dpca.methods.spans, dpca.planning.search, dpca.slabs
dpca.slabs.TILE_WIDTH, dpca.planning.search.SLAB_BYTES, dpca.planning.search.SLAB_WIDTH = 1, 60_000, 1

def once(path):
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True

def during(original):
    @functools.wraps(original)
    def span_of(work, *arguments):
        span = arguments[-2]
        {act}
        found = original(work, *arguments)
        with open({log!r}, "a") as log:
            log.write(f"{{original.__name__}} {{span}}\\n")
        return found
    return span_of

for name in ("first_span_of_features", "components_span"):
    setattr(dpca.methods.spans, name, during(getattr(dpca.methods.spans, name)))
"""


@pytest.fixture
def customized(tmp_path, monkeypatch):
    """Every Python that is started from now on, here or on a node, cuts in small slabs, and acts at its spans."""

    def start(act="pass"):
        place = tmp_path / "customized"
        place.mkdir(exist_ok=True)
        (place / "sitecustomize.py").write_text(CUSTOMIZED.format(act=act, log=str(tmp_path / "spans.log")))
        monkeypatch.setenv("PYTHONPATH", f"{place}{os.pathsep}{os.getcwd()}")

    (tmp_path / "spans.log").touch()
    start()
    return start


def spans(name="first_span_of_features"):
    """The spans that were computed to their end, as often as they were."""
    lines = Path("spans.log").read_text().splitlines()
    return sorted(int(line.split()[1]) for line in lines if line.split()[0] == name)


def twenty_spans():
    """A config, and the result of a run on it."""
    zarr.create_array("x.zarr", data=random_array(0, (12, 12_000), "f8"), chunks=(12, 600))
    Path("c.yaml").write_text("input: {uri: x.zarr}\nmodel: {n_components: 3}\noutput: {path: r}\n")
    done = dpca_process("run", "c.yaml", "--set", "output.path=expected")
    assert done.returncode == 0, done.stderr
    Path("spans.log").write_text("")
    return "c.yaml"
