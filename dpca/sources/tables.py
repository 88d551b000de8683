"""Tables of numbers in text: CSV and TSV, perhaps with a header and with names of rows, perhaps compressed by gzip.

A first read finds where rows begin, their names, and which columns are numbers. Rows are then parsed a block at a time, so that a block of rows is a
chunk of the layout: features in rows (genes by samples, with samples_axis: 1) stream, samples in rows are read once, or copied.
"""

from __future__ import annotations

import csv
import gzip
import re
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
from numpy.typing import NDArray

from dpca.errors import DataError, InputError
from dpca.sources.base import Layout, Reader, Region, size_of
from dpca.sources.coordinate import Coordinate, Parts
from dpca.sources.file import FileSource
from dpca.system import regular

DELIMITERS = "\t;,"
"""Separators of columns: the first of them is meant that divides all lines into as many columns."""
MISSING = frozenset(("", "na", "n/a", "nan", "null", "none", "."))
"""Words for a missing value, in lower case."""
TRIED_ROWS = 50
"""Rows whose values say which columns are numbers."""
TRIED_CHARACTERS = 2**22
"""Most characters of these, of three rows or more."""
_COMMA = re.compile(r"\s*[-+]?\d+,\d+\s*")
BLOCK_BYTES = 2**22
"""Values of the rows that are parsed together."""
SHOWN = 6
ROW, COLUMN = "row", "column"


class TableSource(FileSource):
    """The columns of a table that are numbers, (rows, columns) in float64; a missing value is NaN.

    The first column of text has the names of the rows, as has one without a name; further columns of text are left out.
    """

    kind = "table"

    def __init__(self, path: str | Path) -> None:
        super().__init__(path)
        self._packed = self.path.lower().endswith(".gz")
        try:
            with self.opened() as file:
                self._scan(file)
        except (OSError, EOFError, UnicodeDecodeError, zlib.error, csv.Error) as cause:
            raise InputError(
                f"{self.path}: can't be read as a table: {cause}",
                "Restore it, or write it again, in UTF-8.",
                "input.uri",
            ) from cause

    def _scan(self, file: BinaryIO) -> None:
        """Find rows, columns and names."""
        head, n_characters = list[str](), 0
        for line, _ in islice(_lines(file), TRIED_ROWS + 1):
            head.append(line)
            n_characters += len(line)
            if len(head) > 2 and n_characters > TRIED_CHARACTERS:
                break
        self.delimiter = _delimiter(head, self.path)
        rows = list(csv.reader(head, delimiter=self.delimiter))
        first = [word.strip() for word in rows[0]] if rows else []
        counted = first == list(map(str, range(len(first))))  # as pandas names columns that have no names
        self.has_header = counted or any(_number(word) is None for word in first) or "" in first[:1]
        body = rows[self.has_header :]
        if not body or len(body[0]) < 2:
            raise InputError(
                f"{self.path}: is a table of {len(body)} rows and {len(body[0]) if body else len(first)} columns, but several of each are needed",
                "Separate columns by commas in .csv, by tabs in .tsv.",
                key="input.uri",
            )
        self.n_columns = len(body[0])
        header = first if self.has_header else []
        if header and len(header) == self.n_columns - 1:  # as R writes names of rows
            header = ["", *header]
        if header and len(header) != self.n_columns:
            raise InputError(
                f"{self.path}: its header has {len(header)} columns, and the next line {self.n_columns}",
                "Correct it.",
                key="input.uri",
            )
        of_text = [
            number
            for number in range(self.n_columns)
            if any(_number(row[number]) is None for row in body if len(row) == self.n_columns)
        ]
        comma = next(
            (row[number] for number in of_text for row in body if len(row) > number and _COMMA.fullmatch(row[number])),
            None,
        )
        if comma is not None:
            raise InputError(
                f"{self.path}: has {comma!r}, which seems to be a number with a decimal comma",
                "Write it with points.",
                key="input.uri",
            )
        if header and not header[0] and 0 not in of_text:
            of_text.insert(0, 0)
        self.numbers = [number for number in range(self.n_columns) if number not in of_text]
        if not self.numbers:
            raise InputError(
                f"{self.path}: no column holds numbers alone", "PCA needs numbers: name another file.", key="input.uri"
            )
        self._names_in = of_text[0] if of_text else None
        self.columns = [header[number] for number in self.numbers] if header else None
        self._find_rows(file)
        shape = self._n_rows, len(self.numbers)
        others = [header[number] if header else f"number {number}" for number in of_text[1:]]
        of_rows = f"column {header[of_text[0]]!r}" if header and of_text and header[of_text[0]] else "the first column"
        self.layout = Layout(
            self.path,
            shape,
            np.dtype(np.float64),
            (shape[0] if self._packed else min(shape[0], self.rows_together), shape[1]),
            codec="text, gzip" if self._packed else "text",
            dims=(ROW, COLUMN),
            remarks=(*left_out(shape[1], of_rows, others), *self._of_header(header)),
        )

    def _of_header(self, header: Sequence[str]) -> tuple[str, ...]:
        """Remarks on the first line, where it may be a header or a row."""
        if not header:
            return ("it has no header: its first line is a row",)
        names = [header[number] for number in self.numbers]
        if any(_number(name) is None for name in names) or names == list(map(str, range(len(names)))):
            return ()
        return (
            f"its first line is taken as a header, although the names of columns are numbers: {', '.join(names[:SHOWN])}",
        )

    @cached_property
    def rows_together(self) -> int:
        """Rows of a block."""
        return max(1, BLOCK_BYTES // (8 * len(self.numbers)))

    def _find_rows(self, file: BinaryIO) -> None:
        """Where blocks of rows begin, how many rows there are, and their names."""
        file.seek(0)
        starts, names, n, at, empty = [], [], 0, 0, 0
        for number, (line, stop) in enumerate(_lines(file)):
            start, at = at, stop
            if number < self.has_header:
                continue
            if not line.strip():
                empty += 1
                continue
            if empty:
                raise DataError(f"{self.path}: line {number} is empty, and rows follow it", "Remove it.")
            if line.count('"') % 2:
                raise DataError(
                    f"{self.path}: line {number + 1} has a quoted text that does not end in it",
                    "Take line breaks out of texts.",
                )
            if n % self.rows_together == 0:
                starts.append(start)
            if self._names_in is not None:
                names.append(self._name(line))
            n += 1
        self._starts, self._n_rows = [*starts, at], n
        self._names = np.array(names, np.dtypes.StringDType()) if names else None

    def _name(self, line: str) -> str:
        assert self._names_in is not None
        words = line.rstrip("\r\n").split(self.delimiter, self._names_in + 1)
        if '"' in line:
            words = next(csv.reader([line], delimiter=self.delimiter))
        return words[self._names_in].strip() if len(words) > self._names_in else ""

    @contextmanager
    def opened(self) -> Iterator[BinaryIO]:
        """The file, as text that is not compressed."""
        with regular.opened(self.path) as file:
            if not self._packed:
                yield file
                return
            with gzip.GzipFile(fileobj=file) as text:
                yield cast(BinaryIO, text)

    def held(self, shape: tuple[int, ...]) -> dict[str, int]:
        rows = min(self.layout.shape[0], self.rows_together)
        return {
            "slab": size_of(shape, self.layout.dtype),
            "rows as text, as lines and as numbers": 8 * size_of((rows, self.n_columns), self.layout.dtype),
        }

    @contextmanager
    def open(self) -> Iterator[Reader]:
        with self.opened() as file:
            yield _TableReader(self, file)

    def block(self, file: BinaryIO, number: int) -> NDArray[np.float64]:
        """The values of a block of rows, parsed."""
        start, stop = self._starts[number : number + 2]
        file.seek(start)
        lines = [
            line
            for line in file.read(stop - start).decode("utf-8-sig" if start == 0 else "utf-8").split("\n")
            if line.strip()
        ]
        first = number * self.rows_together
        if len(lines) != min(self.rows_together, self._n_rows - first):
            raise DataError(
                f"{self.path}: was changed while it was read", "Do it again with the file that is there now."
            )
        try:
            values = np.loadtxt(
                lines, np.float64, comments=None, delimiter=self.delimiter, usecols=self.numbers, ndmin=2, quotechar='"'
            )
        except ValueError:  # a word for a missing value, or one that is no number
            return self._by_word(lines, first)
        if any(line.count(self.delimiter) != self.n_columns - 1 for line in lines):
            self._by_word(lines, first)  # finds lines that are too long; a separator within quotes is none
        return values

    def _by_word(self, lines: Sequence[str], first: int) -> NDArray[np.float64]:
        out = np.empty((len(lines), len(self.numbers)))
        for at, row in enumerate(csv.reader(lines, delimiter=self.delimiter)):
            line = first + at + 1 + self.has_header
            if len(row) != self.n_columns:
                raise DataError(
                    f"{self.path}: line {line} has {len(row)} values, but there are {self.n_columns} columns",
                    "Correct the line; a value that holds the separator is quoted.",
                )
            for place, number in enumerate(self.numbers):
                if (value := _number(row[number])) is None:
                    called = repr(self.columns[place]) if self.columns else f"number {number}"
                    raise DataError(
                        f"{self.path}: line {line} has {row[number]!r} in column {called}, whose first values are numbers",
                        f"Correct it; a missing value is empty, or one of {', '.join(sorted(MISSING - {''}))}.",
                    )
                out[at, place] = value
        return out

    def coordinate(self, axis: int) -> Coordinate | None:
        """Names of rows and of columns."""
        names = self._names if axis == 0 else self.columns
        if names is None:
            return None
        values = np.array(names, np.dtypes.StringDType())
        return Coordinate((ROW, COLUMN)[axis], values, Parts.of(values.dtype))


class _TableReader(Reader):
    def __init__(self, source: TableSource, file: BinaryIO) -> None:
        super().__init__(source.layout)
        self._source, self._file = source, file

    def _read(self, region: Region) -> NDArray[Any]:
        rows, columns = region
        out = self._buffer.view((rows.stop - rows.start, columns.stop - columns.start), self.layout.dtype)
        step = self._source.rows_together
        for number in range(rows.start // step, -(-rows.stop // step)):
            values, begin = self._source.block(self._file, number), number * step
            first, last = max(rows.start, begin), min(rows.stop, begin + len(values))
            out[first - rows.start : last - rows.start] = values[first - begin : last - begin, columns]
        return out

    def coordinate(self, axis: int) -> Coordinate | None:
        return self._source.coordinate(axis)


def left_out(n_columns: int, of_rows: str, others: Sequence[str]) -> tuple[str, ...]:
    """Which columns of a table are numbers, where some are left out.

    Parameters
    ----------
    of_rows : what has the names of the rows
    others : names of the columns that are left out
    """
    named = ", ".join(others[:SHOWN]) + " and others" * (len(others) > SHOWN)
    said = (
        f"{n_columns:,} columns are numbers, {of_rows} has the names of rows, and columns of text are left out: {named}"
    )
    return (said,) if others else ()


def _lines(file: BinaryIO) -> Iterator[tuple[str, int]]:
    """The lines of a file, each with the byte that follows it."""
    at = 0
    for number, line in enumerate(file):
        at += len(line)
        yield line.decode("utf-8" if number else "utf-8-sig"), at


def _delimiter(lines: Sequence[str], path: str) -> str:
    """The sign that separates columns; a header may have one column less than rows have."""
    for sign in DELIMITERS:
        if not lines or sign not in lines[0]:  # a whole line is longer than csv allows a field to be
            continue
        counts = [len(row) for row in csv.reader(lines, delimiter=sign)]
        if len({*counts[1:]}) <= 1 and max(counts) > 1 and 0 <= counts[-1] - counts[0] <= 1:
            return sign
    found = next((sign for sign in DELIMITERS if lines and sign in lines[0]), None)
    if found is None:
        raise InputError(
            f"{path}: its first line has one column alone",
            "Separate columns by commas in .csv, by tabs in .tsv.",
            key="input.uri",
        )
    return found


def _number(word: str) -> float | None:
    """The number that a word is, NaN for a missing value; None for another text."""
    word = word.strip()
    if word.lower() in MISSING:
        return np.nan
    try:
        return None if "_" in word else float(word)
    except ValueError:
        return None
