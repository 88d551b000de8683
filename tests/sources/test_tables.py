"""Tables of numbers in text, as people have them."""

from pathlib import Path

import numpy as np
import pytest

from dpca.errors import DataError, InputError
from dpca.sources import open_source
from tests.sources.test_zarr_array import whole

NAN = np.nan
TABLES = {
    "as R writes names of rows": ("g1\tg2\np1\t1\t2\np2\t3\t4\n", ["p1", "p2"], ["g1", "g2"], [[1, 2], [3, 4]], ""),
    "as pandas writes its index": (",a,b\n0,1,2\n1,3,4\n", ["0", "1"], ["a", "b"], [[1, 2], [3, 4]], ""),
    "mixed": (
        'id,sex,age,site,g\np1,f,30,"A, B",1e3\np2,m,,C,-2.5\n', ["p1", "p2"], ["age", "g"], [[30, 1000], [NAN, -2.5]],
        "2 columns are numbers, column 'id' has the names of rows, and columns of text are left out: sex, site",
    ),
    "missing values": ("n;a;b\nx;NA;\ny;nan;.5\nz;1;-inf\n", [*"xyz"], ["a", "b"], [[NAN, NAN], [NAN, 0.5], [1, -np.inf]], ""),
    "of Windows, with a mark of its order of bytes": ("\ufeffn,a,b\r\np,1,2\r\nq,3,4\r\n\r\n", ["p", "q"], ["a", "b"], [[1, 2], [3, 4]], ""),
    "of numbers alone": ("1,2,3\n4,5,6\n", None, None, [[1, 2, 3], [4, 5, 6]], "it has no header: its first line is a row"),
    "of columns that pandas counts": ("0,1,2\n4,5,6\n", None, ["0", "1", "2"], [[4, 5, 6]], ""),
    "of years": (
        "land,2001,2002\nA,4,5\n", ["A"], ["2001", "2002"], [[4, 5]],
        "its first line is taken as a header, although the names of columns are numbers: 2001, 2002",
    ),
    "with commas in texts": ('n;note;a;b\np;"x, y";1;2\nq;"z";3;4\n', ["p", "q"], ["a", "b"], [[1, 2], [3, 4]], "2 columns are numbers, column 'n' has the names of rows, and columns of text are left out: note"),
    "of quoted numbers": ('"n","a","b"\n"p","1","2"\n', ["p"], ["a", "b"], [[1, 2]], ""),
}  # fmt: skip


@pytest.mark.parametrize("what", TABLES)
def test_a_table_is_read_as_it_is_meant(what):
    content, rows, columns, values, remark = TABLES[what]
    Path("x.csv").write_bytes(content.encode())
    source = open_source("x.csv")
    np.testing.assert_array_equal(whole(source)[0], values)
    with source.open() as reader:
        named = [None if (one := reader.coordinate(axis)) is None else [*one.values[...]] for axis in (0, 1)]
    assert named == [rows, columns]
    assert " ".join(source.layout.remarks) == remark


REFUSED = {
    'name,a,b\n"x\ny",1,2\nz,3,4\n': "line 2 has a quoted text that does not end in it",
    "1,5;2,5;3,5\n4,5;5,5;6,5\n": "has '4,5', which seems to be a number with a decimal comma",
    "a,b\n1,2\n3\n": "line 3 has 1 values, but there are 2 columns",
    "a,b\n1,2\n3,4,5\n": "line 3 has 3 values, but there are 2 columns",
    "a,b\n" + "1,2\n" * 60 + "3,x\n": "line 62 has 'x' in column 'b', whose first values are numbers",
    "a,b\n" + "1,2\n" * 60 + "3,1_0\n": "line 62 has '1_0' in column 'b'",
    "a,b\n1,2\n\n3,4\n": "line 3 is empty, and rows follow it",
    "a,b\nx,y\n": "no column holds numbers alone",
    "a,b\n": "is a table of 0 rows",
    "a,b,c\n1,2,3,4,5\n": "its header has 3 columns, and the next line 5",
    "a\n1\n": "its first line has one column alone",
}


@pytest.mark.parametrize("content", REFUSED)
def test_what_is_no_table_is_refused_by_line_and_column(content):
    Path("x.csv").write_text(content)
    with pytest.raises((InputError, DataError), match=REFUSED[content]):
        whole(open_source("x.csv"))


def test_rows_are_read_a_block_at_a_time(monkeypatch):
    x = np.random.default_rng(0).normal(size=(1000, 3))
    Path("x.csv").write_text(
        "n,a,b,c\n" + "".join(f"r{n},{','.join(map(repr, row.tolist()))}\n" for n, row in enumerate(x))
    )
    monkeypatch.setattr("dpca.sources.tables.BLOCK_BYTES", 24 * 7)
    source = open_source("x.csv")
    assert source.layout.chunk_shape == (7, 3)
    with source.open() as reader:
        for start, stop in ((0, 1), (6, 8), (500, 700), (993, 1000)):
            np.testing.assert_array_equal(reader.read((slice(start, stop), slice(1, 3))), x[start:stop, 1:])
        assert reader.coordinate(0).values[...][-1] == "r999"


def test_a_line_may_be_longer_than_csv_allows_a_field_to_be():
    x = np.arange(60_000.0).reshape(2, 30_000)
    Path("x.csv").write_text(
        ",".join(f"g{n}" for n in range(30_000)) + "\n" + "".join(",".join(map(repr, row.tolist())) + "\n" for row in x)
    )
    np.testing.assert_array_equal(whole(open_source("x.csv"))[0], x)
