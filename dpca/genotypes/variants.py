"""The variants of genotypes: their ids, places and alleles, read in parts; and the names of chromosomes."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from dpca.errors import InputError
from dpca.sources.coordinate import Coordinate, Parts, Vector
from dpca.sources.facts import Facts
from dpca.sources.joined_coordinates import check_same_of

DIMS = ("sample", "variant")
TEXT = np.dtypes.StringDType()
Texts = NDArray[Any]
UNNAMED = (".", "")
"""Ids of variants that have none."""


@dataclass(frozen=True, eq=False)
class Variants(Facts):
    """Variants of a source, in its order; read in parts, by indexing."""

    ids: Vector
    """(d,)."""
    chromosomes: Vector
    """Names, (d,)."""
    positions: Vector
    """In base pairs, (d,)."""
    counted: Vector
    """The allele whose copies are counted, (d,)."""
    other: Vector
    """The other one, (d,)."""

    of_samples: ClassVar = False

    def __len__(self) -> int:
        return int(self.ids.shape[0])

    def of(self, chosen: NDArray[np.int64]) -> Self:
        raise AssertionError("variants are chosen by a mask of the features")

    @classmethod
    def joined(cls, names: Sequence[str], each: Sequence[Self | None]) -> Self | None:
        """Those of the first; the others have to count the same alleles."""
        check_same_of(names, ["no variants" if one is None else "variants" for one in each])
        first = each[0]
        for name, variants in zip(names[1:], each[1:], strict=True):
            if first is not None and variants is not None:
                _check_alleles(names[0], first, name, variants)
        return first


def _check_alleles(first: str, reference: Variants, name: str, variants: Variants) -> None:
    """Refuse genotypes that count other alleles than those of the first file do."""
    for field in ("counted", "other"):
        vectors = getattr(reference, field), getattr(variants, field)
        pieces = (Coordinate(field, one, one.parts).pieces() for one in vectors)
        for (piece, ours), (_, theirs) in zip(*pieces, strict=True):
            if (differ := np.asarray(ours != theirs)).any():
                at = int(np.argmax(differ))
                raise InputError(
                    f"{name}: {field} allele {theirs[at]} of variant {variants.ids[piece][at]}, but {ours[at]} in {first}",
                    "Merge the files with plink, which turns swapped alleles, or write them with the same alleles first "
                    "(plink2 --ref-allele).",
                    key="input.uri",
                )


def vector(name: str, length: int, read: Callable[[slice], Any], dtype: Any = None) -> Vector:
    """A vector of text, or of numbers of a type, that a function reads in parts."""
    kind = TEXT if dtype is None else np.dtype(dtype)
    return Vector(name, (length,), kind, read, Parts.of(kind))


def texts(values: Sequence[str] | NDArray[Any]) -> Texts:
    """Names as an array of text of any length."""
    found = np.asarray(values) if len(values) else np.empty(0, TEXT)
    return (np.char.decode(found, "utf-8") if found.dtype.kind == "S" else found).astype(TEXT)


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
