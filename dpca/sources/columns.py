"""Text files of names and labels: one a line, or a column of a table whose first row names its columns."""

from __future__ import annotations

import csv
import difflib
import os
from collections.abc import Iterator
from itertools import islice
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from dpca.errors import InputError
from dpca.settings import INPUT, Setting
from dpca.sources.coordinate import Parts, Vector
from dpca.sources.finding import LabelledAxis
from dpca.system import regular

DELIMITERS = {".csv": ",", ".tsv": "\t"}
"""Separator of the columns of a table, by the suffix of its file."""
OTHERS = {";": "semicolon", "\t": "tab", ",": "comma"}
"""Signs that may separate columns in a file whose suffix says otherwise."""
MARKED_ROWS = 2**13
"""The place in the file is kept of every so many rows, so that parts are read without what precedes them."""
_TEXT = np.dtypes.StringDType()


class TextTable:
    """Some columns of a text file; its rows are read as they are needed.

    Parameters
    ----------
    path : the file; a table where its suffix is .csv or .tsv, and columns are named
    columns : their names; none for a file with one value a line
    key : the key of the configuration that names the file
    """

    def __init__(self, path: str, columns: tuple[str, ...], key: str) -> None:
        self.path, self.columns, self.key = path, columns, key
        self._delimiter = DELIMITERS.get(os.path.splitext(path)[1].lower())
        if columns and self._delimiter is None:
            raise InputError(
                f"{path}: has no columns with names: it is neither .csv nor .tsv",
                "Leave the column out, or rename the file.",
                key,
            )
        self._header: list[str] = []
        if self._delimiter is not None:
            with regular.opened(path) as file:
                self._header = [name.strip() for name in next(csv.reader(_lines(file), delimiter=self._delimiter), [])]
            if not columns and len(self._header) < 2:  # one value a line, in a file that is called a table
                self._delimiter, self._header = None, []
        if self._delimiter is not None:
            self._numbers = self._found()

    def _found(self) -> list[int]:
        """The numbers of the columns."""
        held = ", ".join(self._header[:20]) + (f" and {len(self._header) - 20} more" if len(self._header) > 20 else "")
        if not self.columns:
            raise InputError(f"{self.path}: which column? It has {held}", f"Set {Setting(self.key).column}.", self.key)
        for column in self.columns:
            near = difflib.get_close_matches(column, self._header, n=1)
            if self._header.count(column) != 1:
                other = next((f"{name}s" for sign, name in OTHERS.items() if sign in held), None)
                if other and len(self._header) == 1:
                    raise InputError(
                        f"{self.path}: has one column alone, {held!r}, which seems to hold several, separated by {other}",
                        "Separate them by commas in .csv, and by tabs in .tsv.",
                        self.key,
                    )
                count = self._header.count(column)
                raise InputError(
                    f"{self.path}: has {f'{count} columns' if count else 'no column'} {column!r}; it has {held}",
                    f"Did you mean {near[0]}?" if near and not count else "Name one of them.",
                    self.key,
                )
        return [self._header.index(column) for column in self.columns]

    def rows(self, file: BinaryIO, start: int = 0) -> Iterator[tuple[int, list[str]]]:
        """The number of each row's last line, counted from that of the first one, and its values without space around.

        Empty lines at the end are none.

        Parameters
        ----------
        file : open for reading
        start : where a row begins in it, in bytes; 0 for the first row
        """
        file.seek(start)
        empty = 0
        for line, row in self._parsed(file, start):
            if not any(row):
                empty += 1
                continue
            for number in range(line - empty, line):
                yield number, [""] * len(row)
            empty = 0
            yield line, row

    def _parsed(self, file: BinaryIO, start: int) -> Iterator[tuple[int, list[str]]]:
        lines = _lines(file)
        if self._delimiter is None:
            for number, text in enumerate(lines, 1):
                yield number, [text.strip()]
            return
        reader = csv.reader(lines, delimiter=self._delimiter, strict=True)
        if not start:
            next(reader)
        try:
            for row in reader:
                if row and len(row) != len(self._header):
                    raise InputError(
                        f"{self.path}: line {reader.line_num} has {len(row)} values, but there are {len(self._header)} columns",
                        "Correct the line; a value that holds the separator is quoted.",
                        self.key,
                    )
                yield reader.line_num, [row[number].strip() for number in self._numbers] if any(row) else []
        except csv.Error as cause:
            raise InputError(
                f"{self.path}: line {reader.line_num} can't be read: {cause}", "Correct it.", self.key
            ) from cause


def _lines(file: BinaryIO) -> Iterator[str]:
    """The lines of a file, which are read one by one, so that its position is that of the next."""
    for number, line in enumerate(regular.lines_of(file)):
        yield line.decode("utf-8" if number else "utf-8-sig")


def column_of(path: str, column: str | None, of: str, key: str) -> Vector:
    """The values of a text file or of a column of a table, in the order of its rows; read in parts.

    Parameters
    ----------
    of : what they belong to, samples or features
    key : the key of the configuration that names the file
    """
    table = TextTable(path, () if column is None else (column,), key)
    marks: list[int] = []
    count = 0
    with regular.opened(path) as file:
        rows, more = table.rows(file), True
        while more:
            marks.append(file.tell() if marks else 0)
            more = False
            for line, (value, *_) in islice(rows, MARKED_ROWS):
                if not value:
                    empty = "is empty" if column is None else f"has nothing in column {column!r}"
                    raise InputError(
                        f"{path}: line {line} {empty}, so {of[:-1]} {count} has no label",
                        f"Give each of the {of} one.",
                        key,
                    )
                count, more = count + 1, True

    def read(piece: slice) -> NDArray[Any]:
        first = piece.start // MARKED_ROWS
        with regular.opened(path) as file:
            inside = islice(table.rows(file, marks[first]), piece.start - first * MARKED_ROWS, None)
            values = [value for _, (value, *_) in islice(inside, piece.stop - piece.start)]
        return np.array(values, _TEXT)

    return Vector(path, (count,), _TEXT, read, Parts.of(_TEXT))


def matched(path: str, column: str, id_column: str, known: LabelledAxis, key: str) -> NDArray[Any]:
    """The values of a column for the samples, (n,), found by another column, in any order of rows."""
    names, found = known.names, dict[int, str]()
    with regular.opened(path) as file:
        for line, (name, value) in TextTable(path, (id_column, column), key).rows(file):
            try:
                places = known.places(name)
            except InputError:  # no date of theirs
                continue
            again = any(place in found for place in places)
            if places and (again or not value):
                problem = "again" if again else f"without {column}"
                raise InputError(
                    f"{path}: line {line} has {name!r} of column {id_column!r} {problem}",
                    "Give each sample one row, with a value.",
                    key,
                )
            found |= dict.fromkeys(places, value)
    missing = [name for number, name in enumerate(names) if number not in found]
    if missing:
        raise InputError(
            f"{path}: has no row for {len(missing):,} of {len(names):,} samples in column {id_column!r}: "
            + ", ".join(map(repr, missing[:5]))
            + (" and others" if len(missing) > 5 else ""),
            f"Give each a row, or choose the samples that have one with {INPUT.samples}.",
            key,
        )
    return np.array([found[number] for number in range(len(names))])
