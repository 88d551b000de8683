"""Tables of variants: .bim and .pvar of plink, and .csv or .tsv; and a source whose features such a table describes."""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from io import BytesIO
from typing import Any, BinaryIO, cast

import numpy as np
from numpy.typing import NDArray

from dpca.errors import InputError
from dpca.genotypes.variants import DIMS, Variants, named_by_place, texts, vector
from dpca.sources.base import Reader, SamplesAxis, Source
from dpca.sources.coordinate import Coordinate, Parts, Vector
from dpca.sources.facts import A, Kinds
from dpca.sources.file import file_facts, file_state
from dpca.sources.named import feature_axis
from dpca.sources.view import View, ViewReader
from dpca.system import regular

COLUMNS = ("id", "chromosome", "position", "counted", "other")
"""Columns of a table of variants."""


def read_variants(path: str) -> Variants:
    """The variants of a file: .bim or .pvar of plink, or a table, .csv or .tsv, with the columns id, chromosome, position, counted and other."""
    return _table(path, file_state(path)) if path.endswith((".csv", ".tsv")) else _of_plink(path, file_state(path))


LINES = 2**13
"""Lines of a table of plink of which it is known where they begin."""
OF_BIM = {"chromosomes": 0, "ids": 1, "positions": 3, "counted": 4, "other": 5}
OF_PVAR = {"#CHROM": "chromosomes", "ID": "ids", "POS": "positions", "ALT": "counted", "REF": "other"}
"""Columns of a .pvar. Of dosages of PLINK 2 the alternate allele is counted, the first one of a .bim that it writes."""
FIELDS = 6


@dataclass(frozen=True)
class _Form:
    """The form of a table of variants of plink."""

    columns: Mapping[str, int]
    """Number of the column of each field."""
    n_header: int
    """Lines before the first variant."""
    n_fields: int
    words: str
    """Its columns, in words."""


_BIM = _Form(OF_BIM, 0, FIELDS, f"a .bim has {FIELDS}: chromosome, id, centimorgans, position, counted allele, other")


def _form_of(path: str) -> _Form:
    """The form of a table; a .pvar without a header is a .bim."""
    with opened_table(path) as file:
        for number, line in enumerate(regular.lines_of(file)):
            if line.startswith(b"##"):
                continue
            names = line.decode(errors="replace").split()
            if not line.startswith(b"#"):
                break
            if missing := [name for name in OF_PVAR if name not in names]:
                raise InputError(
                    f"{path}: line {number + 1} has no column {missing[0]}, but a .pvar has {', '.join(OF_PVAR)}",
                    "Write it again with plink2.",
                    key="input.uri",
                )
            columns = {field: names.index(name) for name, field in OF_PVAR.items()}
            return _Form(columns, number + 1, len(names), f"its header has {len(names)}: {', '.join(names)}")
    return _BIM


@contextmanager
def opened_table(path: str) -> Iterator[BinaryIO]:
    """A table of plink, which may be compressed by Zstandard; that is then in memory."""
    with ExitStack() as stack:
        try:
            file = _Unpacked(path) if path.endswith(".zst") else stack.enter_context(regular.opened(path))
        except OSError as cause:
            raise InputError(
                f"{path}: can't be read: {cause.strerror}", "Name a .bim, a .pvar, or a table of variants.", "input.uri"
            ) from None
        yield file


class _Unpacked(BytesIO):
    """A table as text that is not compressed."""

    def __init__(self, path: str) -> None:
        super().__init__(_unpacked(path, file_state(path)))
        self.name = path


@lru_cache(maxsize=2)
def _unpacked(path: str, _state: str) -> bytes:
    from numcodecs.zstd import Zstd

    with regular.opened(path) as file:
        try:
            return bytes(Zstd().decode(file.read()))
        except RuntimeError as cause:
            raise InputError(
                f"{path}: can't be decompressed: {cause}", "Restore it from its source.", "input.uri"
            ) from cause


@lru_cache(maxsize=4)
def _of_plink(path: str, _state: str) -> Variants:
    form, (starts, n_lines) = _form_of(path), _lines_of(path)
    n = max(0, n_lines - form.n_header)

    def columns(piece: slice, *fields: str) -> list[list[str]]:
        begin, end = piece.start + form.n_header, piece.stop + form.n_header
        first, last = begin // LINES, -(-end // LINES)
        with opened_table(path) as file:
            file.seek(starts[first])
            text = file.read(starts[last] - starts[first])
        lines = text.split(b"\n")[begin - first * LINES : end - first * LINES]
        rows = [line.split() for line in lines]
        wrong = next((at for at, row in enumerate(rows) if len(row) != form.n_fields), None)
        if wrong is not None:
            raise InputError(
                f"{path}: line {begin + wrong + 1} has {len(rows[wrong])} fields, but {form.words}",
                "Write it again with plink.",
                key="input.uri",
            )
        numbers = [form.columns[field] for field in fields]
        try:
            return [[row[number].decode() for row in rows] for number in numbers]
        except UnicodeDecodeError as cause:
            raise InputError(f"{path}: is not UTF-8: {cause}", "Write it again in UTF-8.", "input.uri") from None

    def read(field: str, piece: slice) -> NDArray[Any]:
        if field != "ids":
            (found,) = columns(piece, field)
            return _positions(path, found) if field == "positions" else texts(found)
        ids, chromosomes, positions, other, counted = columns(
            piece, "ids", "chromosomes", "positions", "other", "counted"
        )
        return named_by_place(texts(ids), texts(chromosomes), _positions(path, positions), texts(other), texts(counted))

    kinds = {field: np.int64 if field == "positions" else None for field in OF_BIM}
    return Variants(**{field: vector(path, n, partial(read, field), kind) for field, kind in kinds.items()})


def count_variants(path: str) -> int:
    """Number of variants of a .bim or .pvar."""
    return max(0, _lines_of(path)[1] - _form_of(path).n_header)


def _lines_of(path: str) -> tuple[list[int], int]:
    """Where each LINES-th line of a file begins, and the end of the file; and the number of lines."""
    starts, n, at, last = [0], 0, 0, b"\n"
    with opened_table(path) as file:
        while block := file.read(regular.LINE_BYTES):
            ends = np.flatnonzero(np.frombuffer(block, np.uint8) == ord("\n"))
            numbers = n + 1 + np.arange(len(ends))
            starts += (at + 1 + ends[numbers % LINES == 0]).tolist()
            if not len(ends) and len(block) == regular.LINE_BYTES:
                raise InputError(
                    f"{path}: line {n + 1} has more than {regular.LINE_BYTES} bytes, which no line of a table has",
                    "Name a .bim, or a table of variants.",
                    "input.uri",
                )
            n, at, last = n + len(ends), at + len(block), block[-1:]
    n += last != b"\n"
    return [*starts[: -(-n // LINES)], at], n


def _positions(path: str, found: Sequence[str]) -> NDArray[np.int64]:
    try:
        return np.array(found, np.int64) if found else np.empty(0, np.int64)
    except (ValueError, OverflowError):
        return np.array([_position(path, one) for one in found], np.int64)


def _position(path: str, text: str) -> int:
    """A position in base pairs; R writes 100000 as 1e+05."""
    if re.fullmatch(r"[+-]?\d{1,18}", text):
        return int(text)
    try:
        number = float(text)
    except ValueError:
        number = np.nan
    if not number.is_integer() or abs(number) >= 2**53:
        raise InputError(f"{path}: {text!r} is no position in base pairs", "Give whole numbers.", "input.uri")
    return int(number)


@lru_cache(maxsize=4)
def _table(path: str, _state: str) -> Variants:
    try:
        with regular.opened(path) as file:
            lines = (line.decode() for line in regular.lines_of(file))
            reader = csv.DictReader(lines, delimiter="," if path.endswith(".csv") else "\t")
            missing = [name for name in COLUMNS if name not in (reader.fieldnames or ())]
            if missing:
                raise InputError(
                    f"{path}: has no column {missing[0]!r}, but a table of variants has {', '.join(COLUMNS)}",
                    "Name them so in its first line.",
                    key="input.variants",
                )
            rows = []
            for row in reader:
                rows.append([row[name] for name in COLUMNS])
                if None in rows[-1]:
                    raise InputError(
                        f"{path}: line {reader.line_num} has no {COLUMNS[rows[-1].index(None)]}",
                        f"Give {', '.join(COLUMNS)} in each line.",
                        key="input.variants",
                    )
    except (OSError, UnicodeDecodeError) as cause:
        raise InputError(
            f"{path}: can't be read: {cause}", "Give a .bim, or a table of variants.", "input.variants"
        ) from cause
    columns: dict[str, Any] = dict(zip(COLUMNS, zip(*rows, strict=True) if rows else [()] * len(COLUMNS), strict=True))
    return of_arrays(
        path,
        ids=texts(columns["id"]),
        chromosomes=texts(columns["chromosome"]),
        positions=_positions(path, columns["position"]),
        counted=texts(columns["counted"]),
        other=texts(columns["other"]),
    )


def of_arrays(name: str, **arrays: NDArray[Any]) -> Variants:
    """The variants of arrays in memory; `name` is theirs in errors."""

    def read(values: NDArray[Any], piece: slice) -> NDArray[Any]:
        return values[piece]

    vectors = {
        field: Vector(name, values.shape, values.dtype, partial(read, values), Parts.of(values.dtype))
        for field, values in arrays.items()
    }
    return Variants(**vectors)


def stem_of(path: str) -> str:
    """The path of a .bed, .bim or .fam without this suffix."""
    return os.path.splitext(path)[0]


class WithVariants(View):
    """A source of which a table beside it says what variants its features are.

    Parameters
    ----------
    axis : of the features
    path : of the table
    """

    def __init__(self, source: Source, axis: int, path: str) -> None:
        layout, dims = source.layout, list(source.layout.dims)
        dims[axis] = DIMS[1]
        super().__init__(source, replace(layout, dims=tuple(dims)))
        self._axis, self._path = axis, path
        if len(self.variants) != layout.shape[axis]:
            raise InputError(
                f"{path}: has {len(self.variants):,} variants, but {layout.name} has {layout.shape[axis]:,} features",
                "Give a row for each feature, in their order.",
                key="input.variants",
            )

    @property
    def variants(self) -> Variants:
        """The variants of the table."""
        return read_variants(self._path)

    @property
    def knows(self) -> Kinds:
        return (Variants, *(kind for kind in super().knows if kind is not Variants))

    def about(self, kind: type[A]) -> A | None:
        return cast(A, self.variants) if kind is Variants else super().about(kind)

    def reader(self, reader: Reader) -> Reader:
        return _WithVariantsReader(self, reader)

    def fingerprint(self) -> dict[str, Any]:
        return {**super().fingerprint(), "variants": file_facts(self._path)}

    def coordinate(self, axis: int) -> Coordinate | None:
        """The ids, along the axis of the features."""
        ids = self.variants.ids
        return Coordinate(DIMS[1], ids, ids.parts) if axis == self._axis else None


class _WithVariantsReader(ViewReader):
    def __init__(self, source: WithVariants, reader: Reader) -> None:
        super().__init__(source.layout, reader)
        self._source = source

    def coordinate(self, axis: int) -> Coordinate | None:
        return self._source.coordinate(axis) or self._reader.coordinate(axis)


def with_variants(source: Source, samples_axis: SamplesAxis, path: str) -> Source:
    """A source whose features are the variants of a table."""
    axis = feature_axis(source.layout, source.layout.axis_of(samples_axis), "input.variants")
    return WithVariants(source, axis, path)
