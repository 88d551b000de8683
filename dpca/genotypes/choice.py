"""The variants that a config chooses: by chromosome, by id, by region, and by their distance from each other."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from dpca.errors import InputError
from dpca.genotypes.variants import DIMS, Variants, numbered, plain_chromosome, whole
from dpca.settings import PREPROCESS
from dpca.sources.coordinate import Coordinate, Vector
from dpca.system import regular

Chromosomes = Literal["autosomes", "all"] | Sequence[int | str]
_AUTOSOME = re.compile(r"(?:chr)?0*([1-9]|1[0-9]|2[0-2])", re.IGNORECASE)
_HAPLOID = ("X", "Y", "M", "MT", "23", "24", "26")
_NO_AUTOSOMES_EITHER = ("XY", "PAR1", "PAR2", "0", "25")
"""Parts of X and Y of which everybody has two copies, and what lies nowhere known."""
_OF_PEOPLE = 26
"""plink numbers X, Y, XY and MT of people from 23 to 26; species with chromosomes of a larger number have others there."""

_REGION = re.compile(r"(\w+):([\d,]+)-([\d,]+)")


class ChromosomeRegion(NamedTuple):
    """A piece of a chromosome, in base pairs; both ends belong to it."""

    chromosome: str
    begin: int
    end: int

    def __str__(self) -> str:
        return f"{self.chromosome}:{self.begin}-{self.end}"


def _regions(text: str) -> tuple[ChromosomeRegion, ...]:
    return tuple(
        ChromosomeRegion(*(kind(word) for kind, word in zip((str, int, int), line.split(), strict=True)))
        for line in text.splitlines()
    )


LONG_RANGE = {
    "long_range_ld_grch37": _regions("""1 48000000 52000000
2 86000000 100500000
2 134500000 138000000
2 183000000 190000000
3 47500000 50000000
3 83500000 87000000
3 89000000 97500000
5 44500000 50500000
5 98000000 100500000
5 129000000 132000000
5 135500000 138500000
6 25000000 35000000
6 57000000 64000000
6 140000000 142500000
7 55000000 66000000
8 7000000 13000000
8 43000000 50000000
8 112000000 115000000
10 37000000 43000000
11 46000000 57000000
11 87500000 90500000
12 33000000 40000000
12 109500000 112000000
20 32000000 34500000"""),
    "long_range_ld_grch38": _regions("""1 47761740 51761740
1 125169943 125170022
1 144106678 144106709
1 181955019 181955047
2 85919365 100517106
2 87416141 87416186
2 87417804 87417863
2 87418924 87418981
2 89917298 89917322
2 135275091 135275210
2 182427027 189427029
2 207609786 207609808
3 47483505 49987563
3 83368158 86868160
5 44464140 51168409
5 129636407 132636409
6 25391792 33424245
6 26726947 26726981
6 57788603 58453888
6 61109122 61357029
6 61424410 61424451
6 139637169 142137170
7 54964812 66897578
7 62182500 62277073
8 8105067 12105082
8 43025699 48924888
8 47303500 47317337
8 110918594 113918595
9 40365644 40365693
9 64198500 64200392
9 88958735 88959017
10 36671065 43184546
10 41693521 41885273
11 88127183 91127184
12 32955798 41319931
12 34639034 34639084
14 87391719 87391996
14 94658026 94658080
17 43159541 43159574
20 4031884 4032441
20 33948532 36438183
22 30060084 30060162
22 42980497 42980522"""),
}
"""Regions of long-range linkage disequilibrium (Price et al., AJHG 83, 2008; Anderson et al., Nature Protocols 5, 2010), as listed by build in
"Regions of high linkage disequilibrium (LD)", Genome Analysis Wiki, University of Michigan."""


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
    exclude: str | Sequence[str] | None = None,
    min_distance: int | None = None,
    used: NDArray[np.bool_] | None = None,
) -> NDArray[np.bool_]:
    """Mask of the variants that a configuration chooses, (d,).

    Parameters
    ----------
    name : of the data, in errors
    chromosomes : names of chromosomes, or those whose name is a number up to 22
    ids : of variants, or the path of a file with one a line
    exclude : ids of variants, regions and names of lists of regions (`Excluded`), or the path of a file of them
    min_distance : in base pairs; of two variants of a chromosome that are closer, the later one is left out, as in plink's --bp-space
    used : mask of those that are used by other filters, so that distances are between them; None for all
    """
    chosen = np.ones(len(variants), bool) if used is None else used.copy()
    if chromosomes is not None:
        chosen &= _of_chromosomes(name, variants, chromosomes)
    if ids is not None:
        chosen &= _of_ids(name, variants, ids)
    if exclude is not None:
        chosen &= ~Excluded.of(exclude).among(name, variants)
    if min_distance is not None:
        chosen = _thinned(variants, chosen, min_distance)
    if not chosen.any():
        raise InputError(
            f"{name}: none of {len(variants):,} variants is left by {PREPROCESS.filters}",
            "Loosen chromosomes, variants, exclude or min_distance.",
            key="preprocess.filters",
        )
    return chosen


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
    return {words[0] for words in _words(ids, "preprocess.filters.variants")} if isinstance(ids, str) else set(ids)


def _words(path: str, key: str) -> list[list[str]]:
    """The words of each line of a file."""
    try:
        with regular.opened(path) as file:
            words = [line.decode().split() for line in regular.lines_of(file) if line.strip()]
            return [row for row in words if not row[0].startswith("#")]
    except (OSError, UnicodeDecodeError) as cause:
        raise InputError(f"{path}: can't be read: {cause}", "Give a text file with one id a line.", key=key) from cause


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


@dataclass(frozen=True)
class Excluded:
    """Variants that are left out."""

    ids: frozenset[str]
    regions: tuple[ChromosomeRegion, ...]

    @classmethod
    def of(cls, given: str | Sequence[str]) -> Self:
        """Those of a list of ids, of regions such as 6:25000000-35000000 and of names in `LONG_RANGE`, or of a file of them."""
        ids, regions = set[str](), list[ChromosomeRegion]()
        for words in (
            _words(given, "preprocess.filters.exclude") if isinstance(given, str) else ([one] for one in given)
        ):
            if words[0].lower() in LONG_RANGE:
                regions += LONG_RANGE[words[0].lower()]
            elif (match := _REGION.fullmatch(words[0])) is not None:
                regions.append(
                    ChromosomeRegion(match[1], int(match[2].replace(",", "")), int(match[3].replace(",", "")))
                )
            elif len(words) > 2 and words[1].isdigit() and words[2].isdigit():
                regions.append(ChromosomeRegion(words[0], int(words[1]), int(words[2])))
            else:
                ids.add(words[0])
        wrong = next((one for one in regions if one.begin > one.end), None)
        if wrong is not None:
            raise InputError(
                f"{PREPROCESS.filters.exclude} has the region {wrong}, which ends before it begins",
                "Turn its ends.",
                key="preprocess.filters.exclude",
            )
        return cls(frozenset(ids), tuple(regions))

    def found(self, variants: Variants) -> tuple[NDArray[np.bool_], list[str]]:
        """Mask of those variants that are left out, and the ids and regions, but for those of lists by name, in which there is none."""
        found, there = np.zeros(len(variants), bool), set[str]()
        if self.ids:
            for piece, names in Coordinate(DIMS[1], variants.ids, variants.ids.parts).pieces():
                found[piece] = [one in self.ids for one in names.tolist()]
                there |= self.ids.intersection(names.tolist())
        absent = sorted(self.ids - there)
        if self.regions:
            called, numbers = numbered(variants.chromosomes)
            plain = {plain_chromosome(one): number for number, one in enumerate(called)}
            positions, listed = whole(variants.positions), {one for regions in LONG_RANGE.values() for one in regions}
            for region in self.regions:
                number = plain.get(plain_chromosome(region.chromosome), -1)
                inside = (numbers == number) & (positions >= region.begin) & (positions <= region.end)
                absent += [str(region)] * (region not in listed and not inside.any())
                found |= inside
        return found, absent

    def among(self, name: str, variants: Variants) -> NDArray[np.bool_]:
        """Mask of those variants that are left out; refuses ids and regions in which there is none at all, as of other names or coordinates."""
        found, _ = self.found(variants)
        if not found.any():
            what = " and ".join(kind for kind, given in (("ids", self.ids), ("regions", self.regions)) if given)
            raise InputError(
                f"{name}: none of its {len(variants):,} variants is in the {what} of {PREPROCESS.filters.exclude}",
                "Check that names of variants and of chromosomes, and the coordinates (GRCh37 or 38), are those of the data; or leave it out.",
                key="preprocess.filters.exclude",
            )
        return found


def excluded_in_words(variants: Variants, given: str | Sequence[str]) -> str:
    """How many variants are left out, and which ids and regions have none, in words."""
    found, absent = Excluded.of(given).found(variants)
    more = f" and {len(absent) - 5:,} more" if len(absent) > 5 else ""
    nothing = f"; there is none of {', '.join(absent[:5])}{more}" if absent else ""
    return f"{int(found.sum()):,} of {len(variants):,} variants were left out by {PREPROCESS.filters.exclude}{nothing}"


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
