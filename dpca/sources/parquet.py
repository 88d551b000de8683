"""Tables of Parquet: columns of numbers, read a group of rows and a column at a time. The only file that knows pyarrow (extra `tables`)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpca.errors import DataError, InputError
from dpca.sources.base import Layout, Reader, Region, size_of
from dpca.sources.coordinate import Coordinate, Parts, Vector
from dpca.sources.file import FileSource
from dpca.sources.tables import COLUMN, ROW, left_out
from dpca.system import regular

TOGETHER = 64
"""Columns that are read at a time."""
EXACT = 2**53


class ParquetSource(FileSource):
    """The columns of a table that are numbers, (rows, columns): in float32 where all are, else in float64; null is NaN.

    The first column of text has the names of the rows, as has the index of pandas; further columns of text are left out.
    """

    kind = "parquet"

    def __init__(self, path: str | Path) -> None:
        super().__init__(path)
        try:
            import pyarrow as pa
            from pyarrow.parquet import ParquetFile
        except ImportError as cause:
            raise InputError(
                f"{self.path}: is a table of Parquet, which pyarrow reads, and that is not installed",
                "pip install pyarrow, or pip install '.[tables]' in the clone.",
                key="input.uri",
            ) from cause
        try:
            with regular.opened(self.path) as opened, ParquetFile(opened) as file:
                schema, metadata = file.schema_arrow, file.metadata
        except (OSError, pa.ArrowException) as cause:
            raise InputError(
                f"{self.path}: can't be read as Parquet: {cause}", "Restore it from its source.", key="input.uri"
            ) from cause
        twice = (
            next((name for name in schema.names if schema.names.count(name) > 1), None)
            if len({*schema.names}) < len(schema.names)
            else None
        )
        if twice is not None:
            raise InputError(f"{self.path}: has two columns {twice!r}", "Give each another name.", key="input.uri")
        indexes = [name for name in (schema.pandas_metadata or {}).get("index_columns", ()) if isinstance(name, str)]
        kinds = pa.types
        numeric = (kinds.is_integer, kinds.is_floating, kinds.is_boolean, kinds.is_decimal)
        self.columns = [one.name for one in schema if one.name not in indexes and any(is_(one.type) for is_ in numeric)]
        others = [name for name in indexes if name in schema.names]
        others += [one.name for one in schema if one.name not in {*self.columns, *others}]
        if not self.columns:
            raise InputError(
                f"{self.path}: no column holds numbers", "PCA needs numbers: name another file.", key="input.uri"
            )
        self.names_in = others[0] if others else None
        single = all(
            kinds.is_float32(schema.field(name).type) or kinds.is_float16(schema.field(name).type)
            for name in self.columns
        )
        groups = tuple(metadata.row_group(number).num_rows for number in range(metadata.num_row_groups))
        self.groups = tuple(length for length in groups if length)
        """Lengths of the groups of rows."""
        self.group_numbers = tuple(number for number, length in enumerate(groups) if length)
        rows = set(self.groups[:-1]) | {max(self.groups, default=1)}
        shape = sum(groups), len(self.columns)
        self.layout = Layout(
            self.path,
            shape,
            np.dtype(np.float32 if single else np.float64),
            (self.groups if len(rows) > 1 else max(1, *rows), min(TOGETHER, shape[1])),
            codec="parquet",
            order="F",
            dims=(ROW, COLUMN),
            remarks=left_out(shape[1], f"column {self.names_in!r}", others[1:]),
        )

    def held(self, shape: tuple[int, ...]) -> dict[str, int]:
        rows = max(self.groups, default=1)
        return {
            "slab": size_of(shape, self.layout.dtype),
            "columns as they are stored, decoded and converted": 3 * 8 * rows * min(TOGETHER, shape[1]),
            "description of all columns": 2**11 * (self.layout.shape[1] * len(self.groups) + 1),
        }

    @contextmanager
    def open(self) -> Iterator[Reader]:
        from pyarrow.parquet import ParquetFile

        with regular.opened(self.path) as opened, ParquetFile(opened) as file:
            yield _ParquetReader(self, file)


class _ParquetReader(Reader):
    def __init__(self, source: ParquetSource, file: Any) -> None:
        super().__init__(source.layout)
        self._source, self._file = source, file

    def _read(self, region: Region) -> NDArray[Any]:
        rows, columns = region
        out = self._buffer.view((rows.stop - rows.start, columns.stop - columns.start), self.layout.dtype)
        begin = 0
        for number, length in zip(self._source.group_numbers, self._source.groups, strict=True):
            first, last = max(rows.start, begin), min(rows.stop, begin + length)
            for start in range(columns.start, columns.stop, TOGETHER) if first < last else ():
                names = self._source.columns[start : min(start + TOGETHER, columns.stop)]
                table = self._file.read_row_group(number, columns=names, use_threads=False)
                for place, name in enumerate(names, start - columns.start):
                    values = self._numbers(name, table.column(name))
                    out[first - rows.start : last - rows.start, place] = values[first - begin : last - begin]
            begin += length
        return out

    def _numbers(self, name: str, column: Any) -> NDArray[Any]:
        """The values of a column, NaN for null."""
        import pyarrow as pa

        kind = column.type
        if pa.types.is_boolean(kind):
            column = column.cast(pa.int8())
        elif pa.types.is_decimal(kind):
            column = column.cast(pa.float64())
        if pa.types.is_integer(kind) and kind.bit_width == 64:
            plain = column.drop_null().to_numpy()
            if len(plain) and (int(plain.max()) > EXACT or int(plain.min()) < -EXACT):
                raise DataError(
                    f"{self.layout.name}: column {name!r} has integers beyond 2^53, which float64 does not hold",
                    "Store them as floats.",
                )
        if not pa.types.is_floating(column.type):
            column = column.cast(pa.float64())
        values: NDArray[Any] = column.to_numpy()
        return values

    def coordinate(self, axis: int) -> Coordinate | None:
        """Names of rows and of columns."""
        text = np.dtypes.StringDType()
        if axis == 1:
            columns = np.array(self._source.columns, text)
            return Coordinate(COLUMN, columns, Parts.of(text))
        if (name := self._source.names_in) is None:
            return None
        values = self._file.read(columns=[name], use_threads=False).column(0).to_pylist()
        names = np.array(list(map(str, values)), text)
        vector = Vector(self.layout.name, names.shape, names.dtype, lambda piece: names[piece], Parts.of(text))
        return Coordinate(ROW, vector, vector.parts)
