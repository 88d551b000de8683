"""Genotypes in a report: relatives and people who are there twice, and regions that a component is made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpca.genotypes.variants import Variants, numbered, whole
from dpca.methods.alleles import variants_of
from dpca.report import findings
from dpca.store.arrays import CONVENTION
from dpca.store.gram import keeps_gram, read_products
from dpca.store.names import sample_names
from dpca.store.results import Result
from dpca.types import F64

BROAD = 10
"""A component counts as structure of the population where at least so many people make it up: 1 / sum of v^4."""
KINDS = (
    (0.8, "the same person twice, or identical twins"),
    (0.35, "parent and child, or siblings"),
    (0.175, "second degree"),
)
"""Correlations above which pairs are of a kind, twice the kinship: 1, 1/2 and 1/4 are expected (Manichaikul et al., Bioinformatics 26, 2010)."""
CERTAIN = 6.0
"""A correlation counts as one where it exceeds so many standard deviations of those of all pairs."""
MOST_PAIRS = 50
REGION = 2_000_000
"""Base pairs of a region."""
DOMINANT_SHARE, DOMINANT_RATIO = 0.05, 10.0
"""A region dominates a component with this share of its squared loadings, and so many times the share of its variants."""
SAMPLED = 2**22
"""Correlations that tell how far they scatter, about."""
TOGETHER = 2**20
"""Variants whose loadings are read at a time."""


@dataclass(frozen=True)
class Region:
    """The region with the largest share of a component."""

    component: int
    chromosome: str
    start: int
    """In base pairs."""
    share: float
    """Share of the component's squared loadings."""
    of_variants: float
    """Its share of the variants."""

    @property
    def dominates(self) -> bool:
        return self.share >= DOMINANT_SHARE and self.share >= DOMINANT_RATIO * self.of_variants


def of_genotypes(result: Result) -> dict[str, Any] | None:
    """The tables of relatives and regions; None where features were not scaled as dosages."""
    if CONVENTION not in result.arrays or result.kind != "pca":
        return None
    variants = variants_of(result)
    regions = [] if variants is None else regions_of(result, variants)
    return {
        "warnings": [_warning(region) for region in regions if region.dominates],
        "regions": [
            [
                str(region.component + 1),
                f"{region.chromosome}: {region.start / 1e6:g} to {(region.start + REGION) / 1e6:g} Mb",
                f"{100 * region.share:.2g} %",
                f"{100 * region.of_variants:.2g} %",
            ]
            for region in regions
        ],
        **_relatives(result),
    }


def chromosomes_of(result: Result) -> NDArray[Any] | None:
    """The chromosome of each variant, where these follow each other by chromosome; None for other features."""
    variants = variants_of(result) if "components" in result.arrays else None
    if variants is None:
        return None
    names, numbers = numbered(variants.chromosomes)
    changes = int((numbers[1:] != numbers[:-1]).sum())
    return np.array(names)[numbers] if changes < len(names) else None


def _warning(region: Region) -> str:
    return (
        f"component {region.component + 1} is dominated by one region: chromosome {region.chromosome}, {region.start / 1e6:g} to "
        f"{(region.start + REGION) / 1e6:g} Mb, has {100 * region.share:.2g} % of its squared loadings with {100 * region.of_variants:.2g} % of the "
        "variants. That is long-range linkage or an inversion, not ancestry: leave the region out, or thin variants (plink2 --indep-pairwise, "
        "preprocess.filters.variants)"
    )


def regions_of(result: Result, variants: Variants) -> list[Region]:
    """For each of the leading components the region with the largest share of its squared loadings; reads these once."""
    names, chromosomes = numbered(variants.chromosomes)
    code = chromosomes.astype(np.int64) << 32 | (whole(variants.positions) // REGION)
    codes, window = np.unique(code, return_inverse=True)
    windows = np.stack([codes >> 32, codes & (2**32 - 1)])
    array = result.arrays["components"]
    k = min(array.shape[0], findings.SHOWN_COMPONENTS)
    sums, counts = np.zeros((k, windows.shape[1])), np.zeros(windows.shape[1])
    for start in range(0, len(variants), max(1, TOGETHER // k)):
        piece = slice(start, min(start + max(1, TOGETHER // k), len(variants)))
        loadings = np.asarray(array[slice(0, k), piece], np.float64)
        used = ~np.isnan(loadings[0])
        counts += np.bincount(window[piece][used], minlength=len(counts))
        for number in range(k):
            sums[number] += np.bincount(window[piece], np.nan_to_num(loadings[number]) ** 2, len(counts))
    totals, found = sums.sum(axis=1), []
    for number in np.flatnonzero(totals > 0).tolist():
        at = int(np.argmax(sums[number]))
        chromosome, place = windows[:, at]
        share, of_variants = float(sums[number, at] / totals[number]), float(counts[at] / counts.sum())
        found.append(Region(number, names[chromosome], int(place) * REGION, share, of_variants))
    return found


def _relatives(result: Result) -> dict[str, Any]:
    """The pairs of people who are more alike than their populations make them, as rows of a table."""
    if not keeps_gram(result):
        return {"pairs": [], "pairs_said": "The result keeps no Gram matrix, which would tell relatives."}
    correlations, removed = residual_correlations(result)
    least = max(KINDS[-1][0], CERTAIN * noise_of(correlations))
    found = [
        (row, row + 1 + int(at))
        for row in range(len(correlations))
        for at in np.flatnonzero(correlations[row, row + 1 :] > least)
    ]
    order = sorted(found, key=lambda pair: -correlations[pair])
    pairs = order[:MOST_PAIRS]
    rows = [
        [
            *sample_names(result, pair),
            f"{correlations[pair]:.3f}",
            next(kind for limit, kind in KINDS if correlations[pair] > limit),
        ]
        for pair in pairs
    ]
    said = (
        f"{len(order):,} pair{'s' * (len(order) != 1)} of people {'are' if len(order) != 1 else 'is'} more alike than {least:.3g}"
        + (f", of which {MOST_PAIRS} are shown" if len(order) > MOST_PAIRS else "")
        + f": correlations of what {removed} component{'s' * (removed != 1)} of {BROAD} people or more leave of relationships"
    )
    return {"pairs": rows, "pairs_said": f"{said}."}


def noise_of(correlations: F64) -> float:
    """The standard deviation of correlations of people who are not related, by the median of squares of those of some rows."""
    n = len(correlations)
    every = -(-(n**2) // SAMPLED)
    some = np.concatenate([np.delete(correlations[row], row) for row in range(0, n, every)])
    return float(np.sqrt(np.median(some**2)) / 0.6745) if some.size else 0.0


def residual_correlations(result: Result) -> tuple[F64, int]:
    """K less its components that many people make up, as correlations, (n, n), and how many were subtracted.

    Structure of the population makes people of one population alike; what is left of it is twice the kinship, as in PC-Relate (Conomos et
    al., American Journal of Human Genetics 98, 2016), with the same frequencies for all.
    """
    matrix = read_products(result)
    scores = np.asarray(result.arrays["scores"][...], np.float64)
    lengths2 = np.einsum("nk,nk->k", scores, scores)
    vectors = np.divide(scores, np.sqrt(lengths2), out=np.zeros_like(scores), where=lengths2 > 0)
    eigenvalues = np.asarray(result.arrays["singular_values"][...], np.float64) ** 2
    broad = (lengths2 > 0) & ((vectors**4).sum(axis=0) * BROAD <= 1)
    vectors, eigenvalues = vectors[:, broad], eigenvalues[broad]
    matrix -= (vectors * eigenvalues) @ vectors.T
    lengths = np.sqrt(np.maximum(np.diagonal(matrix), 0.0))
    scale = np.divide(1.0, lengths, out=np.zeros_like(lengths), where=lengths > 0)
    matrix *= scale[:, None]
    matrix *= scale
    return matrix, int(broad.sum())
