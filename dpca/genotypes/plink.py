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
from dpca.genotypes.tables import count_lines, read_variants, stem_of
from dpca.genotypes.variants import DIMS, Texts, Variants, texts
from dpca.slabs import PANEL_WIDTH, SLAB_BYTES
from dpca.sources.base import Layout, Reader, Region, Source
from dpca.sources.coordinate import Coordinate, Parts
from dpca.sources.facts import A, Facts, Kinds
from dpca.sources.npy import file_facts, file_state
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
            rows = [line.decode().split() for line in regular.lines_of(file) if line.strip()]
    except (OSError, UnicodeDecodeError) as cause:
        raise InputError(f"{path}: can't be read: {cause}", "A .fam belongs beside the .bed.", "input.uri") from cause
    short = next((number for number, row in enumerate(rows, 1) if len(row) < 2), None)
    if short is not None:
        raise InputError(
            f"{path}: line {short} has {len(rows[short - 1])} field, but a .fam has 6, the first two of them family and id",
            "Write it again with plink.",
            "input.uri",
        )
    families, ids = [row[0] for row in rows], [row[1] for row in rows]
    names = ids if len(set(ids)) == len(ids) else [f"{family}:{one}" for family, one in zip(families, ids, strict=True)]
    name, count = Counter(names).most_common(1)[0] if names else ("", 0)
    if count > 1:
        raise InputError(
            f"{path}: {count} people are called {name} (family:id)",
            "Give each another id.",
            "input.uri",
        )
    founders = np.array([all(parent == NOBODY for parent in row[2:4]) for row in rows], bool)
    return People(texts(families), texts(ids), texts(names), founders)


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
                f"{self.layout.name}: has genotypes of more people than {self._source.fam} has lines ({n:,}), the first at variant "
                f"{first_variant + int(np.argmax(more > 0))}",
                "The three files belong together: write them again.",
            )

    def coordinate(self, axis: int) -> Coordinate | None:
        if axis == 1:
            ids = self._source.variants.ids
            return Coordinate(DIMS[1], ids, ids.parts)
        names = read_people(self._source.fam).names
        return Coordinate(DIMS[0], names, Parts.of(names.dtype))


class BedSource(Source):
    """The dosages of a .bed, people by variants: copies of the first allele of its .bim, -1 where a call is missing."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = os.fspath(path)
        self.bim, self.fam = (f"{stem_of(self._path)}{suffix}" for suffix in (".bim", ".fam"))
        for beside in (self.bim, self.fam):
            if not os.path.isfile(beside):
                raise InputError(
                    f"{beside}: is not there, beside {self._path}", "A .bed has a .bim and a .fam.", "input.uri"
                )
        n, d = len(read_people(self.fam).names), count_lines(self.bim)
        self.row_bytes = -(-n // IN_A_BYTE)
        """Bytes of a variant."""
        self._check(n, d)
        self.layout = Layout(
            self._path,
            (n, d),
            np.dtype(np.int8),
            (max(1, n), _together(n)),
            codec="2 bits a genotype",
            order="F",
            dims=DIMS,
            missing_values=(float(MISSING),),
        )

    def _check(self, n: int, d: int) -> None:
        with regular.opened(self._path) as file:
            head = file.read(HEADER_BYTES)
        if head[:2] != MAGIC:
            raise InputError(
                f"{self._path}: begins with bytes {head.hex(' ')}, but a .bed of PLINK 1 with 6c 1b",
                "Make one: plink2 --make-bed.",
                "input.uri",
            )
        if head[2:] != bytes([BY_VARIANT]):
            raise InputError(
                f"{self._path}: is stored person after person (its third byte is {head[2:].hex() or 'absent'}, not 01)",
                "Write it again: plink2 --make-bed stores variant after variant.",
                "input.uri",
            )
        size, expected = os.path.getsize(self._path), HEADER_BYTES + d * self.row_bytes
        if size != expected:
            raise InputError(
                f"{self._path}: has {size:,} bytes, but {d:,} variants of {self.bim} and {n:,} people of {self.fam} make {expected:,}",
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
        with regular.opened(self._path) as file:
            yield _BedReader(self.layout, file, self)

    @property
    def variants(self) -> Variants:
        """The variants of the .bim."""
        return read_variants(self.bim)

    @property
    def knows(self) -> Kinds:
        return (Variants, People)

    def about(self, kind: type[A]) -> A | None:
        if kind is Variants:
            return cast(A, self.variants)
        return cast(A, read_people(self.fam)) if kind is People else None

    def stored_bytes(self) -> int | None:
        return os.path.getsize(self._path)

    @property
    def place(self) -> tuple[str, str | None] | None:
        return os.path.abspath(self._path), None

    def fingerprint(self) -> dict[str, Any]:
        beside = {name: file_facts(getattr(self, name)) for name in ("bim", "fam")}
        return {"kind": "bed", "uri": self._path, **file_facts(self._path), **beside}

    def state(self, region: Region) -> str | None:
        return file_state(self._path)


def _together(n_people: int) -> int:
    """Number of variants that are read together: a power of two, so that products are of as many."""
    fitting = max(1, SLAB_BYTES // max(1, n_people))
    return int(min(PANEL_WIDTH, 2 ** (fitting.bit_length() - 1)))
