"""What the tests of runs that are ended and gone on with share."""

import shutil
from pathlib import Path

import pytest
import zarr

from tests.commands.calls import dpca
from tests.resume.disturbed import D, N, in_small_slabs
from tests.stores import bits, random_array


@pytest.fixture
def config(monkeypatch):
    """Ten spans of one slab each: float64, whose sums would tell another order."""
    zarr.create_array("x.zarr", data=random_array(0, (N, D), "f8"), chunks=(N, 600), dimension_names=("time", "x"))
    Path("c.yaml").write_text("input: {uri: x.zarr}\nmodel: {n_components: 3}\noutput: {path: r}\n")
    in_small_slabs(monkeypatch)
    return "c.yaml"


@pytest.fixture
def undisturbed(config):
    assert dpca("run", config) == 0
    found = bits("r")
    shutil.rmtree("r")
    return found
