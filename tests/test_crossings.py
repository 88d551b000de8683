"""Each cell of the table of every kind of input and every command; `make crossings` prints it."""

import os
import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.crossings import COLUMNS, MARK, ROWS, Crossing, cell, expected
from tests.stores import LINKS

VARIANTS = {
    "Zarr 2", "netCDF classic", "MATLAB 7.3", "engine of xarray", ".bed, plink2", ".h5ad, sparse", ".h5ad, few values, turned",
    ".nii.gz", ".nii.gz, 4-d", ".csv.gz", ".tsv, features in rows", "inner product, sparse", "missing: drop", "regress_out by groups",
    "regress_out, scale by a cycle", "scale: std, ddof 0", "scale: pareto", "scale: range",
}  # fmt: skip
"""Rows of which a row beside them has all but a reader or a formula, which have tests of their own: of `make long`."""


CASES = [
    *(pytest.param(row, "links", marks=[pytest.mark.long] * (row in VARIANTS)) for row in ROWS),
    pytest.param("npy", "no links", marks=pytest.mark.long),
]


@pytest.mark.parametrize(("row", "links"), CASES)
def test_every_command_equals_the_oracle_or_refuses(row, links, monkeypatch):
    monkeypatch.setattr(os, "link", LINKS[links])
    of = Crossing(row)
    drawn = find_spec("bokeh") is not None  # else a report refuses, and says what to install
    found = {column: cell(of, column) for column in COLUMNS if drawn or column != "report"}
    texts = [path for path in Path().rglob("*") if path.suffix in (".json", ".html", ".csv", ".slurm")]
    assert [path for path in texts if MARK.search(path.read_text(errors="replace"))] == []
    assert {c: said for c, said in found.items() if not re.search(expected(row, c), said, re.DOTALL)} == {}


def test_variants_are_rows():
    assert not VARIANTS - set(ROWS)
