"""Each cell of the table of every kind of input and every command; `make crossings` prints it."""

import os
import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.crossings import COLUMNS, MARK, ROWS, Crossing, cell, expected
from tests.stores import LINKS


@pytest.mark.parametrize(("row", "links"), [*((row, "links") for row in ROWS), (next(iter(ROWS)), "no links")])
def test_every_command_equals_the_oracle_or_refuses(row, links, monkeypatch):
    monkeypatch.setattr(os, "link", LINKS[links])
    of = Crossing(row)
    drawn = find_spec("bokeh") is not None  # else a report refuses, and says what to install
    found = {column: cell(of, column) for column in COLUMNS if drawn or column != "report"}
    texts = [path for path in Path().rglob("*") if path.suffix in (".json", ".html", ".csv", ".slurm")]
    assert [path for path in texts if MARK.search(path.read_text(errors="replace"))] == []
    assert {c: said for c, said in found.items() if not re.search(expected(row, c), said, re.DOTALL)} == {}
