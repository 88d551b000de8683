"""New people's dosages in the variants of a reference: matched by id, turned where alleles are swapped, missing where there is none."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dpca.errors import InputError
from dpca.sources.base import Reader, Region, Source, size_of
from dpca.sources.coordinate import Coordinate, Vector
from dpca.sources.genotypes import COPIES, DIMS, MISSING, Variants
from dpca.sources.view import View, ViewReader

UNKNOWN = ("0", ".", "")
"""What stands for an allele that nobody has, in a .bim or a VCF."""
SPREAD = 4
"""Variants are read together where they lie among at most this many times as many."""


@dataclass(frozen=True, eq=False)
class Matching:
    """Where the variants of a reference are in other data."""

    places: NDArray[np.int64]
    """Of each variant of the reference, its number in the other data; -1 where it is not there, (d,)."""
    swapped: NDArray[np.bool_]
    """Where the other allele is counted there, (d,)."""
    n_other: int
    """Number of variants that are there with other alleles, and so can't be used."""

    @property
    def n_found(self) -> int:
        """Number of variants that both have."""
        return int((self.places >= 0).sum())

    @classmethod
    def of(cls, reference: Variants, other: Variants) -> Matching:
        """Variants are the same where their ids and their two alleles are; where one allele is unknown, the other one has to be.

        Ids are compared by hashes of 64 bits, which take less memory than names.
        """
        hashes = _hashes(other.ids)
        order = np.argsort(hashes, kind="stable")
        hashes, theirs = hashes[order], (other.counted[...], other.other[...])
        places, swapped, n_other = np.full(len(reference), -1, np.int64), np.zeros(len(reference), bool), 0
        for piece, ids in Coordinate(DIMS[1], reference.ids, reference.ids.parts).pieces():
            wanted = _hash(ids)
            firsts, lasts = np.searchsorted(hashes, wanted), np.searchsorted(hashes, wanted, "right")
            ours = zip(reference.counted[piece].tolist(), reference.other[piece].tolist(), strict=True)
            for number, (pair, first, last) in enumerate(
                zip(ours, firsts.tolist(), lasts.tolist(), strict=True), piece.start
            ):
                for place in order[first:last].tolist():
                    turned = _swapped(pair, (str(theirs[0][place]), str(theirs[1][place])))
                    if turned is not None:
                        places[number], swapped[number] = place, turned
                        break
                else:
                    n_other += last > first
        return cls(places, swapped, int(n_other))


def _hash(names: NDArray[Any]) -> NDArray[np.int64]:
    return np.fromiter(map(hash, names.tolist()), np.int64, len(names))


def _hashes(ids: Vector) -> NDArray[np.int64]:
    """Of each name, in this process."""
    found = np.empty(ids.shape[0], np.int64)
    for piece, names in Coordinate(DIMS[1], ids, ids.parts).pieces():
        found[piece] = _hash(names)
    return found


def _swapped(ours: tuple[str, str], theirs: tuple[str, str]) -> bool | None:
    """Whether two variants count different alleles; None where they have other alleles."""
    for turned, pair in ((False, theirs), (True, theirs[::-1])):
        same = [a == b for a, b in zip(ours, pair, strict=True)]
        known = [not (a in UNKNOWN or b in UNKNOWN) for a, b in zip(ours, pair, strict=True)]
        if all(same) or (any(same) and not all(known)):
            return turned
    return None


class AlignedSource(View):
    """The dosages of a source in the variants of a reference, in its order; missing where the source has none.

    Parameters
    ----------
    source : people by variants
    reference : the variants
    name : of the reference, in errors

    Raises
    ------
    InputError
        When they have no variant in common.
    """

    def __init__(self, source: Source, reference: Variants, name: str) -> None:
        layout, theirs = source.layout, source.variants
        assert theirs is not None
        found = Matching.of(reference, theirs)
        if not found.n_found:
            raise InputError(
                f"{layout.name}: has no variant of {name}, whose ids are such as {reference.ids[0:1][0]}; its own are such as {theirs.ids[0:1][0]}"
                + (f" ({found.n_other:,} have the same id and other alleles)" if found.n_other else ""),
                "Name variants alike in both (plink2 --set-all-var-ids), and give alleles of the same strand.",
                key="input.uri",
            )
        marks = tuple(dict.fromkeys((*layout.missing_values, float(MISSING))))
        super().__init__(
            source, replace(layout, shape=(layout.shape[0], len(reference)), dims=DIMS, missing_values=marks)
        )
        self._reference, self.matching, self._first = reference, found, 0
        n, d = found.n_found, len(reference)
        self.notes += (
            f"{n:,} of {d:,} variants of {name} are in {layout.name}"
            + (
                f", {int(found.swapped.sum()):,} of them with alleles swapped, which were turned"
                if found.swapped.any()
                else ""
            )
            + (f"; {found.n_other:,} are there with other alleles, and were not used" if found.n_other else "")
            + (f". For the other {d - n:,} everyone was given the mean of the reference" if n < d else ""),
        )

    @property
    def variants(self) -> Variants:
        return self._reference

    def _of(self, region: Region) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        piece = slice(region[1].start - self._first, region[1].stop - self._first)
        return self.matching.places[piece], self.matching.swapped[piece]

    def behind(self, region: Region) -> Region:
        places, _ = self._of(region)
        used = places[places >= 0]
        return (region[0], slice(int(used.min()), int(used.max()) + 1) if used.size else slice(0, 0))

    def restrict(self, region: Region) -> Self:
        part = copy.copy(self)
        places, swapped = self._of(region)
        part.matching, part._first = replace(self.matching, places=places, swapped=swapped), region[1].start
        part._source = self._source.restrict(self.behind(region))
        return part

    def held(self, shape: tuple[int, ...]) -> dict[str, int]:
        inside = self._source.held((shape[0], min(SPREAD * shape[1], self._source.layout.shape[1])))
        return {
            "dosages by the variants of the reference": 2 * size_of(shape, self.layout.dtype),
            "places of variants": 9 * len(self.matching.places),
            **{f"{name}, of new people": size for name, size in inside.items()},
        }

    def reader(self, reader: Reader) -> Reader:
        return _AlignedReader(self, reader)

    def reads(self, region: Region) -> Iterator[tuple[slice, NDArray[np.int64]]]:
        """What is read of the source for a region: a range of its variants, and the places in the region that it is for."""
        places, _ = self._of(region)
        wanted = np.flatnonzero(places >= 0)
        wanted = wanted[np.argsort(places[wanted], kind="stable")]
        start, most = 0, SPREAD * max(1, len(places))
        while start < len(wanted):
            stop = int(np.searchsorted(places[wanted], places[wanted[start]] + most))
            yield slice(int(places[wanted[start]]), int(places[wanted[stop - 1]]) + 1), wanted[start:stop]
            start = stop


class _AlignedReader(ViewReader):
    def __init__(self, source: AlignedSource, reader: Reader) -> None:
        super().__init__(source.layout, reader)
        self._source = source

    def parts(self, region: Region) -> list[Region]:
        return [(region[0], variants) for variants, _ in self._source.reads(region)]

    def _read(self, region: Region) -> NDArray[Any]:
        places, swapped = self._source._of(region)
        people, width = region[0].stop - region[0].start, region[1].stop - region[1].start
        out = self._buffer.view((width, people), self.layout.dtype)
        out[...] = MISSING
        for variants, wanted in self._source.reads(region):
            values = self._reader.read((region[0], variants))
            out[wanted] = values.T[places[wanted] - variants.start]
        turned = out[swapped]
        dosage = (turned >= 0) & (turned <= COPIES) & ~self._source._source.layout.marked(turned)
        out[swapped] = np.where(dosage, COPIES - turned, turned)
        return out.T

    def coordinate(self, axis: int) -> Coordinate | None:
        ids = self._source.variants.ids
        return Coordinate(DIMS[1], ids, ids.parts) if axis == 1 else self._reader.coordinate(axis)
