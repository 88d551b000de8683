"""The variants that a config chooses: by chromosome, by id, and by their distance from each other."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Literal

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
