"""New people's dosages in the variants of a reference: matched by id, turned where alleles are swapped, missing where there is none."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self, cast

import numpy as np
from numpy.typing import NDArray

from dpca.errors import InputError
from dpca.genotypes.dosages import COPIES, MISSING, ROUNDING
from dpca.genotypes.variants import DIMS, Variants, numbered, plain_chromosome, whole
from dpca.sources.base import Layout, Reader, Region, Source, size_of
from dpca.sources.coordinate import Auxiliary, Coordinate, Vector
from dpca.sources.facts import A, Kinds
from dpca.sources.missing import EVERY
from dpca.sources.view import View, ViewReader

UNKNOWN = ("0", ".", "")
"""Marks of an allele that nobody has, in a .bim or a VCF."""
SPREAD = 4
"""Variants are read together where they lie among at most this many times as many."""


@dataclass(frozen=True, eq=False)
class Matching:
    """Where the variants of a reference are in other data."""

    places: NDArray[np.int64]
    """Number of each variant of the reference in the other data; -1 where it is not there, (d,)."""
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

        Of an id that repeats, chromosome and position have to be the same, too. A variant is the same as one other at most. Ids are
        compared by hashes of 64 bits, which take less memory than names.
        """
        hashes, repeated = _hashes(other.ids), _repeated(_hashes(reference.ids))
        repeated |= _repeated(hashes)
        order = np.argsort(hashes, kind="stable")
        hashes, theirs = hashes[order], (whole(other.counted), whole(other.other))
        placed = _Placed(reference, other) if repeated else None
        taken, n_other = np.zeros(len(hashes), bool), 0
        places, swapped = np.full(len(reference), -1, np.int64), np.zeros(len(reference), bool)
        for piece, ids in Coordinate(DIMS[1], reference.ids, reference.ids.parts).pieces():
            wanted = _hash(ids)
            firsts, lasts = np.searchsorted(hashes, wanted), np.searchsorted(hashes, wanted, "right")
            ours = zip(reference.counted[piece].tolist(), reference.other[piece].tolist(), strict=True)
            for number, (pair, first, last) in enumerate(
                zip(ours, firsts.tolist(), lasts.tolist(), strict=True), piece.start
            ):
                for place in order[first:last].tolist():
                    if taken[place] or (placed and int(hashes[first]) in repeated and not placed.same(number, place)):
                        continue
                    turned = _swapped(pair, (str(theirs[0][place]), str(theirs[1][place])))
                    if turned is not None:
                        places[number], swapped[number], taken[place] = place, turned, True
                        break
                else:
                    n_other += last > first
        return cls(places, swapped, int(n_other))


class _Placed:
    """Where variants lie."""

    def __init__(self, *both: Variants) -> None:
        self._positions = [whole(variants.positions) for variants in both]
        self._chromosomes = list[tuple[list[str], NDArray[np.int32]]](numbered(one.chromosomes) for one in both)

    def same(self, ours: int, theirs: int) -> bool:
        """Whether a variant of the first lies where one of the second does."""
        names = [
            plain_chromosome(called[codes[at]])
            for (called, codes), at in zip(self._chromosomes, (ours, theirs), strict=True)
        ]
        return names[0] == names[1] and bool(self._positions[0][ours] == self._positions[1][theirs])


def _repeated(hashes: NDArray[np.int64]) -> set[int]:
    """Those that are there more than once."""
    ordered = np.sort(hashes)
    return set(ordered[1:][ordered[1:] == ordered[:-1]].tolist())


def _hash(names: NDArray[Any]) -> NDArray[np.int64]:
    return np.fromiter(map(hash, names.tolist()), np.int64, len(names))


def _hashes(ids: Vector) -> NDArray[np.int64]:
    """Hash of each name, in this process."""
    found = np.empty(ids.shape[0], np.int64)
    for piece, names in Coordinate(DIMS[1], ids, ids.parts).pieces():
        found[piece] = _hash(names)
    return found


def _swapped(ours: tuple[str, str], theirs: tuple[str, str]) -> bool | None:
    """Whether two variants count different alleles; None where they have other alleles."""
    for turned, pair in ((False, theirs), (True, theirs[::-1])):
        known = [not (a in UNKNOWN or b in UNKNOWN) for a, b in zip(ours, pair, strict=True)]
        same = [both and a == b for a, b, both in zip(ours, pair, known, strict=True)]
        if any(same) and all(one or not both for one, both in zip(same, known, strict=True)):
            return turned
    return None


def _encoding(layout: Layout) -> dict[str, Any]:
    """How dosages are given: as they are stored, with a mark for a variant that is absent; as numbers, NaN where they are packed."""
    kind = layout.dtype.kind
    if kind == "i" and layout.packing == (1.0, 0.0) and layout.valid_range == EVERY:
        own = float(MISSING)
        mark = own if own in layout.missing_values else float(np.iinfo(layout.dtype).min)
        return {"missing_values": (*(one for one in layout.missing_values if one != mark), mark)}
    return {"dtype": np.dtype(np.float64), "packing": (1.0, 0.0), "missing_values": (), "valid_range": EVERY}


class AlignedSource(View):
    """The dosages of a source in the variants of a reference, in its order; missing where the source has none.

    Parameters
    ----------
    source : people by variants
    reference : the variants
    name : of the reference, in errors
    """

    def __init__(self, source: Source, reference: Variants, name: str) -> None:
        layout, theirs = source.layout, source.about(Variants)
        assert theirs is not None
        found = Matching.of(reference, theirs)
        if not found.n_found:
            raise InputError(
                f"{layout.name}: has no variant of {name}, whose ids are such as {reference.ids[0:1][0]}; its own are such as {theirs.ids[0:1][0]}"
                + (f" ({found.n_other:,} have the same id and other alleles)" if found.n_other else ""),
                "Name variants alike in both (plink2 --set-all-var-ids), and give alleles of the same strand.",
                key="input.uri",
            )
        shape = (layout.shape[0], len(reference))
        super().__init__(source, replace(layout, shape=shape, dims=DIMS, stored_dtype=None, **_encoding(layout)))
        self.reference, self.matching, self._first = reference, found, 0
        n, d = found.n_found, len(reference)
        self.notes += (
            f"{n:,} of {d:,} variants of {name} are in {layout.name}"
            + (
                f", {int(found.swapped.sum()):,} of them with alleles swapped, which were turned"
                if found.swapped.any()
                else ""
            )
            + (f"; {found.n_other:,} are there with other alleles, and were not used" if found.n_other else "")
            + (f". For the other {d - n:,} calls of everyone are missing" if n < d else ""),
        )

    @property
    def knows(self) -> Kinds:
        return (Variants, *(kind for kind in super().knows if kind is not Variants))

    def about(self, kind: type[A]) -> A | None:
        return cast(A, self.reference) if kind is Variants else super().about(kind)

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
            "dosages by the variants of the reference": 4 * size_of(shape, self.layout.dtype),
            "places of variants": 9 * len(self.matching.places),
            **{f"{name}, of new people": size for name, size in inside.items()},
        }

    def reader(self, reader: Reader) -> Reader:
        return _AlignedReader(self, reader)

    def reads(self, region: Region) -> Iterator[tuple[slice, NDArray[np.int64]]]:
        """Reads of the source for a region: a range of its variants, and the places in the region that it is for."""
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
        out, stored = self._buffer.view((width, people), self.layout.dtype), self._reader.layout
        out[...] = self.layout.missing_values[-1] if self.layout.missing_values else np.nan
        for variants, wanted in self._source.reads(region):
            values = self._reader.read((region[0], variants)).T[places[wanted] - variants.start]
            if not self.layout.missing_values:
                factor, offset = stored.packing
                values = np.where(stored.marked(values), np.nan, values * factor + offset)
            out[wanted] = values
        turned = out[swapped]
        dosage = (turned >= -ROUNDING) & (turned <= COPIES + ROUNDING) & ~self.layout.marked(turned)
        out[swapped] = np.where(dosage, COPIES - turned, turned)
        return out.T

    def coordinate(self, axis: int) -> Coordinate | None:
        ids = self._source.reference.ids
        return Coordinate(DIMS[1], ids, ids.parts) if axis == 1 else self._reader.coordinate(axis)

    def auxiliaries(self) -> Sequence[Auxiliary]:
        return [one for one in self._reader.auxiliaries() if 1 not in one.axes]
