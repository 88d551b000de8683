"""Genotypes as dosages: copies of one allele, 0 to 2, of each person at each variant.

Every source of genotypes looks alike: people by variants, int8, -1 for a missing call, whatever way around storage has them. Below
-1 are codes of calls that are no dosage, which only matter where the variant is used: reading does not fail for the others.
"""

from __future__ import annotations

from typing import Literal

from dpca.settings import INPUT, PREPROCESS
from dpca.sources.base import Code

COPIES = 2
"""Largest dosage: one copy on each of two chromosomes."""
ROUNDING = 1e-6
"""Dosages that were packed or imputed may be so much below 0 or above 2."""
MISSING, NOT_DIPLOID, MULTIALLELIC = -1, -2, -3
"""Marks in place of a dosage."""
Multiallelic = Literal["error", "leave_out", "count"]
"""Calls of a third allele are refused; variants with more than two alleles have no dosage; or all alleles but the first count alike."""

CODES: tuple[Code, ...] = (
    Code(
        NOT_DIPLOID,
        "a call with another number of alleles than 2",
        f"Leave such variants out (X, Y, MT): {PREPROCESS.filters.chromosomes.at('autosomes')}.",
    ),
    Code(
        MULTIALLELIC,
        "a call of a third allele",
        f"{INPUT.multiallelic.set_to('leave_out')}, or count, which counts all alleles but the first.",
    ),
)
"""Calls that are no dosage."""


def explained(value: float, codes: tuple[Code, ...]) -> tuple[str, str]:
    """A value that is no dosage in words, and what to do.

    Parameters
    ----------
    codes : what values of its array may stand for
    """
    known = next((code for code in codes if code.value == value), None)
    if known is not None:
        return known.words, known.remedy
    return repr(
        value
    ), f"Give copies of one allele, from 0 to 2; name marks of missing calls in {INPUT.missing_values}."
