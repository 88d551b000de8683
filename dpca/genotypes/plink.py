"""PLINK 1 binary files: a .bed of 2 bits a genotype, variant after variant, with its .bim and .fam."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any, ClassVar, Self, cast

import numpy as np
from numpy.typing import NDArray

from dpca.errors import InputError, StorageError
from dpca.genotypes.dosages import MISSING
from dpca.genotypes.tables import count_variants, read_variants, stem_of
from dpca.genotypes.variants import DIMS, Texts, Variants, texts
from dpca.settings import INPUT
from dpca.slabs import PANEL_WIDTH, SLAB_BYTES
from dpca.sources.base import Layout, Reader, Region
from dpca.sources.coordinate import Coordinate, Parts
from dpca.sources.facts import A, Facts, Kinds
from dpca.sources.file import FileSource, file_state
from dpca.system import regular

MAGIC, BY_VARIANT = b"\x6c\x1b", 1
HEADER_BYTES = 3
IN_A_BYTE = 4
NOBODY = "0"
"""Mark of a parent who is not known."""
DOSAGES = np.array([2, MISSING, 1, 0], np.int8)
"""Copies of the first allele of the .bim by code: 00, 01, 10, 11 (PLINK 1.9 file format reference, .bed)."""
TABLE = DOSAGES[(np.arange(256)[:, None] >> np.array([0, 2, 4, 6])) & 3].copy().view(np.uint32)[:, 0]
"""The four dosages of each byte, the lowest bits first, as one number."""


@dataclass(frozen=True)
class People(Facts):
    """The people of a .fam, in its order."""

    families: Texts
    """Family ids, (n,)."""
    ids: Texts
    """Ids within the family, (n,)."""
    names: Texts
    """Names that tell people apart: their ids; where these repeat in several families, family:id, (n,)."""
    founders: NDArray[np.bool_]
    """Whose father and mother are both 0, (n,)."""

    of_samples: ClassVar = True

    def of(self, chosen: NDArray[np.int64]) -> Self:
        return type(self)(*(getattr(self, one.name)[chosen] for one in fields(self)))

    def called(self, lines: Sequence[str]) -> Sequence[int | str]:
        """The numbers of people of family and id in a line, as plink's .in.id has them; ids alone stay. A first line with # is a header."""
        rows = [line.split() for line in lines[bool(lines) and lines[0].startswith("#") :]]
        if all(len(row) < 2 for row in rows):
            return lines[len(lines) - len(rows) :]
        places = {
            pair: number for number, pair in enumerate(zip(self.families.tolist(), self.ids.tolist(), strict=True))
        }
        unknown = next((row for row in rows if len(row) < 2 or (row[0], row[1]) not in places), None)
        if unknown is not None:
            raise InputError(
                f"{INPUT.samples} has {' '.join(unknown)!r}, but no person has this family and id, such as {self.families[0]} {self.ids[0]}",
                "Give family and id, FID and IID, of each, or the id alone.",
                key="input.samples",
            )
        return [places[row[0], row[1]] for row in rows]

    @classmethod
    def joined(cls, names: Sequence[str], each: Sequence[Self | None]) -> Self | None:  # noqa: ARG003  none is refused
        """The people of all files, one after another; None where those of a file are not known."""
        known = [one for one in each if one is not None]
        if len(known) < len(each):
            return None
        return cls(*(np.concatenate([getattr(one, field.name) for one in known]) for field in fields(cls)))


def read_people(path: str) -> People:
    """The people of a .fam."""
    return _people(path, file_state(path))


@lru_cache(maxsize=4)
def _people(path: str, _state: str) -> People:
    try:
        with regular.opened(path) as file:
            rows = [
                line.decode().split() for line in regular.lines_of(file) if line.strip() and not line.startswith(b"##")
            ]
    except (OSError, UnicodeDecodeError) as cause:
        raise InputError(f"{path}: can't be read: {cause}", "It belongs beside the genotypes.", "input.uri") from cause
    header = rows.pop(0) if rows and rows[0][0].startswith("#") else ["#FID", "IID", "PAT", "MAT"]
    names_of = {name.lstrip("#"): number for number, name in enumerate(header)}
    if "IID" not in names_of:
        raise InputError(f"{path}: its header has no column IID", "Write it again with plink2.", "input.uri")
    needed = max(names_of["IID"], names_of.get("FID", 0)) + 1
    short = next((number for number, row in enumerate(rows, 1) if len(row) < needed), None)
    if short is not None:
        raise InputError(
            f"{path}: line {short} has {len(rows[short - 1])} field, but a .fam has 6, the first two of them family and id",
            "Write it again with plink.",
            "input.uri",
        )
    family, ids = names_of.get("FID"), [row[names_of["IID"]] for row in rows]
    families = [NOBODY if family is None else row[family] for row in rows]
    names = ids if len(set(ids)) == len(ids) else [f"{family}:{one}" for family, one in zip(families, ids, strict=True)]
    name, count = Counter(names).most_common(1)[0] if names else ("", 0)
    if count > 1:
        raise InputError(
            f"{path}: {count} people are called {name} (family:id)",
            "Give each another id.",
            "input.uri",
        )
    parents = [names_of[name] for name in ("PAT", "MAT") if name in names_of]
    founders = np.array([all(row[at] == NOBODY for at in parents if at < len(row)) for row in rows], bool)
    return People(texts(families), texts(ids), texts(names), founders)


class GenotypeFile(FileSource):
    """A file of genotypes, people by variants, with a file of its people and one of its variants beside it.

    Parameters
    ----------
    path : the file
    people, variants : those beside it, by the word for each and their paths
    """

    def __init__(self, path: str | os.PathLike[str], people: tuple[str, str], variants: tuple[str, str]) -> None:
        super().__init__(path, dict([variants, people]))
        self.people_in, self.variants_in = people[1], variants[1]
        for beside in (self.variants_in, self.people_in):
            if not os.path.isfile(beside):
                raise InputError(
                    f"{beside}: is not there, beside {self.path}",
                    f"A .{self.kind} has a .{variants[0]} and a .{people[0]}.",
                    "input.uri",
                )

    @property
    def variants(self) -> Variants:
        """The variants of the file beside it."""
        return read_variants(self.variants_in)

    @property
    def knows(self) -> Kinds:
        return (Variants, People)

    def about(self, kind: type[A]) -> A | None:
        if kind is Variants:
            return cast(A, self.variants)
        return cast(A, read_people(self.people_in)) if kind is People else None

    def coordinate(self, axis: int) -> Coordinate | None:
        """Names of people, ids of variants."""
        if axis == 1:
            ids = self.variants.ids
            return Coordinate(DIMS[1], ids, ids.parts)
        names = read_people(self.people_in).names
        return Coordinate(DIMS[0], names, Parts.of(names.dtype))


class _BedReader(Reader):
    def __init__(self, layout: Layout, file: Any, source: BedSource) -> None:
        super().__init__(layout)
        self._file, self._source = file, source

    def expect(self, region: Region) -> None:
        from dpca.sources.base import read_ahead

        _, variants = region
        step = self._source.row_bytes
        read_ahead(self._file.fileno(), HEADER_BYTES + variants.start * step, (variants.stop - variants.start) * step)

    def _read(self, region: Region) -> NDArray[Any]:
        people, variants = region
        step, count = self._source.row_bytes, variants.stop - variants.start
        packed = os.pread(self._file.fileno(), count * step, HEADER_BYTES + variants.start * step)
        if len(packed) < count * step:
            raise StorageError(
                f"{self.layout.name}: ends within variant {variants.start + len(packed) // step}", "Restore it."
            )
        self._check_padding(np.frombuffer(packed, np.uint8)[step - 1 :: step], variants.start)
        out = self._buffer.view((count, step), np.dtype(np.uint32))
        np.take(TABLE, np.frombuffer(packed, np.uint8).reshape(count, step), out=out, mode="clip")
        return out.view(np.int8)[:, people].T

    def _check_padding(self, last: NDArray[np.uint8], first_variant: int) -> None:
        """Refuse bits behind the last person that are not 0: there are more people than the .fam has lines."""
        n = self._source.layout.shape[0]
        if n % IN_A_BYTE and (more := last >> (2 * (n % IN_A_BYTE))).any():
            raise StorageError(
                f"{self.layout.name}: has genotypes of more people than {self._source.people_in} has lines ({n:,}), the first at variant "
                f"{first_variant + int(np.argmax(more > 0))}",
                "The three files belong together: write them again.",
            )

    def coordinate(self, axis: int) -> Coordinate | None:
        return self._source.coordinate(axis)


class BedSource(GenotypeFile):
    """The dosages of a .bed, people by variants: copies of the first allele of its .bim, -1 where a call is missing."""

    kind = "bed"

    def __init__(self, path: str | os.PathLike[str]) -> None:
        stem = stem_of(os.fspath(path))
        super().__init__(path, ("fam", f"{stem}.fam"), ("bim", f"{stem}.bim"))
        n, d = len(read_people(self.people_in).names), count_variants(self.variants_in)
        self.row_bytes = -(-n // IN_A_BYTE)
        """Bytes of a variant."""
        self._check(n, d)
        self.layout = Layout(
            self.path,
            (n, d),
            np.dtype(np.int8),
            (max(1, n), together(n)),
            codec="2 bits a genotype",
            order="F",
            dims=DIMS,
            missing_values=(float(MISSING),),
        )

    def _check(self, n: int, d: int) -> None:
        with regular.opened(self.path) as file:
            head = file.read(HEADER_BYTES)
        if head[:2] != MAGIC:
            raise InputError(
                f"{self.path}: begins with bytes {head.hex(' ')}, but a .bed of PLINK 1 with 6c 1b",
                "Make one: plink2 --make-bed.",
                "input.uri",
            )
        if head[2:] != bytes([BY_VARIANT]):
            raise InputError(
                f"{self.path}: is stored person after person (its third byte is {head[2:].hex() or 'absent'}, not 01)",
                "Write it again: plink2 --make-bed stores variant after variant.",
                "input.uri",
            )
        size, expected = os.path.getsize(self.path), HEADER_BYTES + d * self.row_bytes
        if size != expected:
            raise InputError(
                f"{self.path}: has {size:,} bytes, but {d:,} variants of {self.variants_in} and {n:,} people of {self.people_in} make {expected:,}",
                "The three files belong together: write them again, or restore what was cut off.",
                "input.uri",
            )

    def held(self, shape: tuple[int, ...]) -> dict[str, int]:
        count = shape[1]
        return {
            "slab": IN_A_BYTE * self.row_bytes * count,
            "slab as stored, and its bytes as places in a table": (1 + 8) * self.row_bytes * count,
        }

    @contextmanager
    def open(self) -> Iterator[Reader]:
        with regular.opened(self.path) as file:
            yield _BedReader(self.layout, file, self)


def together(n_people: int) -> int:
    """Number of variants that are read together: a power of two, so that products are of as many."""
    fitting = max(1, SLAB_BYTES // max(1, n_people))
    return int(min(PANEL_WIDTH, 2 ** (fitting.bit_length() - 1)))
