"""Genotypes as dosages: copies of one allele, 0 to 2, of each person at each variant; and what is known of the variants.

Every source of genotypes looks alike: people by variants, int8, -1 for a missing call, whatever way around storage has them. Below
-1 are codes of calls that are no dosage, which only matter where the variant is used: reading does not fail for the others.
"""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dpca.errors import InputError
from dpca.settings import INPUT, PREPROCESS
from dpca.sources.base import Reader, Source
from dpca.sources.coordinate import Coordinate, Parts, Vector
from dpca.sources.npy import file_facts, file_state
from dpca.sources.variants import Variants
from dpca.sources.view import View, ViewReader
from dpca.system import regular

COPIES = 2
"""Largest dosage: one copy on each of two chromosomes."""
ROUNDING = 1e-6
"""Dosages that were packed or imputed may be so much below 0 or above 2."""
MISSING, NOT_DIPLOID, MULTIALLELIC = -1, -2, -3
"""Marks in place of a dosage."""
Multiallelic = Literal["error", "leave_out", "count"]
"""Calls of a third allele are refused; variants with more than two alleles have no dosage; or all alleles but the first count alike."""
DIMS = ("sample", "variant")
CALLS = "call_genotype"
"""The array of a VCF Zarr that holds its calls."""
TEXT = np.dtypes.StringDType()
Texts = NDArray[Any]

_WRONG = {
    NOT_DIPLOID: (
        "a call with another number of alleles than 2",
        f"Leave such variants out (X, Y, MT): {PREPROCESS.filters.chromosomes.at('autosomes')}.",
    ),
    MULTIALLELIC: (
        "a call of a third allele",
        f"{INPUT.multiallelic.set_to('leave_out')}, or count, which counts all alleles but the first.",
    ),
}


def explained(value: float, of_calls: bool) -> tuple[str, str]:
    """A value that is no dosage in words, and what to do.

    Parameters
    ----------
    of_calls : whether it may stand for a call of alleles
    """
    other = (
        f"{value!r}",
        f"Give copies of one allele, from 0 to 2; name marks of missing calls in {INPUT.missing_values}.",
    )
    return _WRONG.get(int(value), other) if of_calls and value == int(value) else other


def vector(name: str, length: int, read: Callable[[slice], Any], dtype: Any = None) -> Vector:
    """A vector of text, or of numbers of a type, that a function reads in parts."""
    kind = TEXT if dtype is None else np.dtype(dtype)
    return Vector(name, (length,), kind, read, Parts.of(kind))


def texts(values: Sequence[str] | NDArray[Any]) -> Texts:
    """Names as an array of text of any length."""
    found = np.asarray(values) if len(values) else np.empty(0, TEXT)
    return (np.char.decode(found, "utf-8") if found.dtype.kind == "S" else found).astype(TEXT)


Chromosomes = Literal["autosomes", "all"] | Sequence[int | str]
_AUTOSOME = re.compile(r"(?:chr)?0*([1-9]|1[0-9]|2[0-2])", re.IGNORECASE)


UNNAMED = (".", "")
"""Ids of variants that have none."""


def named_by_place(names: Texts, chromosomes: Texts, positions: NDArray[Any], other: Texts, counted: Texts) -> Texts:
    """Ids, where a variant without one is called chromosome:position:other:counted, as the alleles of a VCF follow each other."""
    unnamed = np.flatnonzero(np.isin(names, texts(UNNAMED)))
    if not unnamed.size:
        return names
    columns = [part[unnamed].tolist() for part in (chromosomes, positions, other, counted)]
    found = names.copy()
    found[unnamed] = texts([":".join(map(str, row)) for row in zip(*columns, strict=True)])
    return found


def whole(vector: Vector) -> NDArray[Any]:
    """All of a vector, which is read in pieces: text takes many times as much memory while it is read."""
    found = np.empty(vector.shape, vector.dtype)
    for piece, values in Coordinate(DIMS[1], vector, vector.parts).pieces():
        found[piece] = values
    return found


def plain_chromosome(name: str) -> str:
    """The name of a chromosome without `chr` and zeros before it: chr01 is 1."""
    return re.sub(r"^(?:chr)?0*(?=.)", "", name, flags=re.IGNORECASE).upper()


_HAPLOID = ("X", "Y", "M", "MT", "23", "24", "26")
_NO_AUTOSOMES_EITHER = ("XY", "PAR1", "PAR2", "0", "25")
"""Parts of X and Y of which everybody has two copies, and what lies nowhere known."""
_OF_PEOPLE = 26
"""plink numbers X, Y, XY and MT of people from 23 to 26; species with chromosomes of a larger number have others there."""


def not_autosomal(chromosomes: Vector, diploid: bool) -> list[str]:
    """The names of the chromosomes that are no autosomes; none where that would be all.

    Parameters
    ----------
    diploid : whether regions of X and Y of which everybody has two copies, and variants of no known place, stay, as in plink2 --pca
    """
    names = {name: plain_chromosome(name) for name in numbered(chromosomes)[0]}
    others = {*_HAPLOID, *(() if diploid else _NO_AUTOSOMES_EITHER)}
    if any(plain.isdigit() and int(plain) > _OF_PEOPLE for plain in names.values()):
        others = {one for one in others if one == "0" or not one.isdigit()}
    found = [name for name, plain in names.items() if plain in others]
    return found if len(found) < len(names) else []


def chosen_variants(
    name: str,
    variants: Variants,
    chromosomes: Chromosomes | None = None,
    ids: str | Sequence[str] | None = None,
    min_distance: int | None = None,
    used: NDArray[np.bool_] | None = None,
) -> NDArray[np.bool_]:
    """Mask of the variants that a configuration chooses, (d,).

    Parameters
    ----------
    name : of the data, in errors
    chromosomes : names of chromosomes, or those whose name is a number up to 22
    ids : of variants, or the path of a file with one a line
    min_distance : in base pairs; of two variants of a chromosome that are closer, the later one is left out, as in plink's --bp-space
    used : mask of those that are used by other filters, so that distances are between them; None for all
    """
    chosen = np.ones(len(variants), bool) if used is None else used.copy()
    if chromosomes is not None:
        chosen &= _of_chromosomes(name, variants, chromosomes)
    if ids is not None:
        chosen &= _of_ids(name, variants, ids)
    if min_distance is not None:
        chosen = _thinned(variants, chosen, min_distance)
    if not chosen.any():
        raise InputError(
            f"{name}: none of {len(variants):,} variants is left by {PREPROCESS.filters}",
            "Loosen chromosomes, variants or min_distance.",
            key="preprocess.filters",
        )
    return chosen


def numbered(chromosomes: Vector) -> tuple[list[str], NDArray[np.int32]]:
    """The different chromosomes, as the first variant of each calls it, and the number of each variant's among them, (d,).

    Names of one chromosome, such as 1 and chr1, have one number.
    """
    plain, called, found = dict[str, int](), list[str](), np.empty(chromosomes.shape, np.int32)
    for piece, names in Coordinate(DIMS[1], chromosomes, chromosomes.parts).pieces():
        different, firsts, codes = np.unique(np.array(names.tolist()), return_index=True, return_inverse=True)
        numbers = np.empty(len(different), np.int32)
        for at in np.argsort(firsts).tolist():
            name = str(different[at])
            short = plain_chromosome(name)
            if short not in plain:
                plain[short] = len(plain)
                called.append(name)
            numbers[at] = plain[short]
        found[piece] = numbers[codes]
    return called, found


def _of_chromosomes(name: str, variants: Variants, wanted: Chromosomes) -> NDArray[Any]:
    found, numbers = numbered(variants.chromosomes)
    if wanted == "all":
        return np.ones(len(variants), bool)
    if wanted == "autosomes":
        return np.array([_AUTOSOME.fullmatch(one) is not None for one in found])[numbers]
    plain = [plain_chromosome(one) for one in found]
    asked = [plain_chromosome(str(one)) for one in wanted]
    unknown = next((str(one) for one, short in zip(wanted, asked, strict=True) if short not in plain), None)
    if unknown is not None:
        raise InputError(
            f"{name}: has no variant of chromosome {unknown}; its chromosomes are {', '.join(found[:30])}",
            "Name some of these.",
            key="preprocess.filters.chromosomes",
        )
    return np.array([one in asked for one in plain])[numbers]


def _listed(ids: str | Sequence[str]) -> set[str]:
    """Ids of variants, or those of a file."""
    if not isinstance(ids, str):
        return set(ids)
    try:
        with regular.opened(ids) as file:
            return {line.split()[0].decode() for line in regular.lines_of(file) if line.strip()}
    except (OSError, UnicodeDecodeError) as cause:
        raise InputError(
            f"{ids}: can't be read: {cause}",
            "Give a text file with one id a line.",
            key="preprocess.filters.variants",
        ) from cause


def n_listed(variants: Variants, ids: str | Sequence[str]) -> str:
    """How many of some ids are there, in words."""
    wanted, there = _listed(ids), set[str]()
    for _, names in Coordinate(DIMS[1], variants.ids, variants.ids.parts).pieces():
        there |= wanted.intersection(names.tolist())
    return f"{len(there):,} of {len(wanted):,} ids"


def _of_ids(name: str, variants: Variants, ids: str | Sequence[str]) -> NDArray[np.bool_]:
    where = ids if isinstance(ids, str) else "the list"
    wanted, found = _listed(ids), np.zeros(len(variants), bool)
    for piece, names in Coordinate(DIMS[1], variants.ids, variants.ids.parts).pieces():
        found[piece] = [one in wanted for one in names.tolist()]
    if not found.any():
        raise InputError(
            f"{name}: none of the {len(wanted):,} ids of {where} is one of its {len(variants):,} variants, such as {variants.ids[0:1][0]}",
            "Check that both name variants alike.",
            key="preprocess.filters.variants",
        )
    return found


def _thinned(variants: Variants, chosen: NDArray[np.bool_], min_distance: int) -> NDArray[np.bool_]:
    """The mask without variants that are closer than this to the one before of their chromosome that stays."""
    thinned, last, places = np.zeros_like(chosen), dict[int, int](), np.flatnonzero(chosen)
    positions, (_, chromosomes) = whole(variants.positions), numbered(variants.chromosomes)
    order = places[np.lexsort((positions[places], chromosomes[places]))]
    for place, chromosome, position in zip(
        order.tolist(), chromosomes[order].tolist(), positions[order].tolist(), strict=True
    ):
        if chromosome not in last or position - last[chromosome] >= min_distance:
            thinned[place], last[chromosome] = True, position
    return thinned


COLUMNS = ("id", "chromosome", "position", "counted", "other")
"""Columns of a table of variants."""


def read_variants(path: str) -> Variants:
    """The variants of a file: .bim of plink, or a table, .csv or .tsv, with the columns id, chromosome, position, counted and other."""
    return _table(path, file_state(path)) if path.endswith((".csv", ".tsv")) else _bim(path, file_state(path))


LINES = 2**13
"""Lines of a .bim of which it is known where they begin."""
OF_BIM = {"chromosomes": 0, "ids": 1, "positions": 3, "counted": 4, "other": 5}
FIELDS = 6


@lru_cache(maxsize=4)
def _bim(path: str, _state: str) -> Variants:
    starts, n = _lines_of(path)

    def columns(piece: slice, *numbers: int) -> list[list[str]]:
        first, last = piece.start // LINES, -(-piece.stop // LINES)
        with regular.opened(path) as file:
            file.seek(starts[first])
            text = file.read(starts[last] - starts[first])
        lines = text.split(b"\n")[piece.start - first * LINES : piece.stop - first * LINES]
        rows = [line.split() for line in lines]
        wrong = next((at for at, row in enumerate(rows) if len(row) != FIELDS), None)
        if wrong is not None:
            raise InputError(
                f"{path}: line {piece.start + wrong + 1} has {len(rows[wrong])} fields, but a .bim has {FIELDS}: chromosome, id, "
                "centimorgans, position, counted allele, other",
                "Write it again with plink.",
                key="input.uri",
            )
        try:
            return [[row[number].decode() for row in rows] for number in numbers]
        except UnicodeDecodeError as cause:
            raise InputError(f"{path}: is not UTF-8: {cause}", "Write it again in UTF-8.", "input.uri") from None

    def read(field: str, piece: slice) -> NDArray[Any]:
        if field != "ids":
            (found,) = columns(piece, OF_BIM[field])
            return _positions(path, found) if field == "positions" else texts(found)
        ids, chromosomes, positions, other, counted = columns(
            piece, *(OF_BIM[name] for name in ("ids", "chromosomes", "positions", "other", "counted"))
        )
        return named_by_place(texts(ids), texts(chromosomes), _positions(path, positions), texts(other), texts(counted))

    kinds = {field: np.int64 if field == "positions" else None for field in OF_BIM}
    return Variants(**{field: vector(path, n, partial(read, field), kind) for field, kind in kinds.items()})


def count_lines(path: str) -> int:
    """Number of lines of a file."""
    return _lines_of(path)[1]


def _lines_of(path: str) -> tuple[list[int], int]:
    """Where each LINES-th line of a file begins, and the end of the file; and the number of lines."""
    starts, n, at, last = [0], 0, 0, b"\n"
    try:
        file = regular.opened(path)
    except OSError as cause:
        raise InputError(
            f"{path}: can't be read: {cause.strerror}", "Name a .bim, or a table of variants.", "input.uri"
        ) from None
    with file:
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
        return read_variants(self._path)

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
