"""Each cell of the table of every kind of input and every command; `make crossings` prints it."""

import re

import pytest

from tests.crossings import COLUMNS, ROWS, Crossing, cell, expected


@pytest.mark.parametrize("row", ROWS)
def test_every_command_equals_the_oracle_or_refuses(row):
    of = Crossing(row)
    found = {column: cell(of, column) for column in COLUMNS}
    assert {c: said for c, said in found.items() if not re.search(expected(row, c), said, re.DOTALL)} == {}
