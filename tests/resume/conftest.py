"""What the tests of runs that are ended and gone on with share."""

import shutil

import pytest

from tests.made import made
from tests.resume.disturbed import in_small_slabs, run_to_its_end, ten_spans
from tests.stores import bits


@pytest.fixture
def config(monkeypatch):
    """Ten spans of one slab each: float64, whose sums would tell another order."""
    made(ten_spans)
    in_small_slabs(monkeypatch)
    return "c.yaml"


@pytest.fixture
def finished(config):
    """The same, and its result."""
    made(run_to_its_end)
    return config


@pytest.fixture
def undisturbed(finished):
    """The bits of the result, which is gone."""
    found = bits("r")
    shutil.rmtree("r")
    return found
