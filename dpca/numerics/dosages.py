"""Genotypes as dosages: copies of one allele, 0 to 2, centred and divided by a deviation that follows from its frequency.

Of g copies in n people, with the mean m of those present, an allele has the frequency p = m / 2. Each convention subtracts m, and
divides by

plink2 : sqrt(2 p (1 - p)) (Yang et al., American Journal of Human Genetics 88, 2011, eq. 3, which GCTA and plink 2 follow)
snprelate : sqrt(p (1 - p)) (Zheng et al., Bioinformatics 28, 2012)
smartpca : sqrt(q (1 - q)) with q = (1 + sum of g) / (2 + 2 n) (Price et al., Nature Genetics 38, 2006; of smartpca with
    altnormstyle: NO. Its default, of Patterson, Price and Reich, PLoS Genetics 2:e190, 2006, eq. 3, is snprelate's formula)

A variant of which all people have the same homozygous genotype tells nothing and is left out. It still counts among the variants that
two people have in common, as for plink 2.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpca.genotypes.dosages import COPIES, MISSING, ROUNDING
from dpca.numerics.feature_panels import FeaturePanels
from dpca.numerics.inner_products import Roots
from dpca.numerics.panels import Convention, FeatureCounts, FeaturePanel
from dpca.numerics.preprocess import (
    NotFinite,
    cleared,
    in_memory_order,
    not_lost,
    of_zeros,
    places_of,
    rows_alike,
    squares_of_rows,
    sums,
)
from dpca.types import F64


class NotDosage(Exception):
    """A block holds a value that is not between 0 and 2. The caller knows the region and names it."""


def deviation(convention: Convention, total: F64, present: F64) -> F64:
    """Divisor of centred dosages, (features,); 0 or NaN where nothing varies.

    Parameters
    ----------
    total : copies among the people whose frequency counts, (features,)
    present : number of these people without a missing call, (features,)
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        added = 1.0 if convention == "smartpca" else 0.0
        frequency = (total + added) / (COPIES * (present + added))
    variance = frequency * (1.0 - frequency)
    found: F64 = np.sqrt(2.0 * variance if convention == "plink2" else variance)
    return found


def of_convention(convention: Convention, n_samples: int, n_counted: int, total: float) -> float:
    """Factor of Z Z', so that its eigenvalues are those that the program of a convention prints.

    plink2 divides by the number of variants; smartpca and SNPRelate scale the trace to n - 1.

    Parameters
    ----------
    n_counted : number of variants
    total : the trace of Z Z'
    """
    if convention == "plink2":
        return 1.0 / max(1, n_counted)
    return (n_samples - 1) / total if total else 1.0


class DosagePanels(FeaturePanels):
    """Panels of dosages. They lie close to 0, so that one subtraction of the mean loses nothing."""

    def _blocks(
        self, raw: NDArray[Any], masked: NDArray[np.bool_] | None = None
    ) -> Iterator[tuple[int, int, F64, NDArray[np.bool_] | None]]:
        """Blocks as of a Standardizer, with 0 in place of missing values; refuses what is no dosage."""
        # What integers are is seen before they are copied, a chunk of them at once.
        whole = raw.dtype.kind in "iub" and self._packing == (1.0, 0.0) and raw.size > 0
        plain = whole and raw.max() <= COPIES and (raw.min() >= 0 or (raw.min() == MISSING and self._marks_missing))
        for start, stop, block, missing in super()._blocks(raw, masked):
            if not whole and not np.isfinite(sums(block)).all():
                missing = self._missing(block, missing)
            if missing is not None:
                if self._rules.missing == "error":
                    raise NotFinite
                cleared(block, missing)
            if not plain and (block.min() < -ROUNDING or block.max() > COPIES + ROUNDING):
                raise NotDosage
            yield start, stop, block, missing

    @property
    def _marks_missing(self) -> bool:
        """Whether -1 marks a missing call."""
        return float(MISSING) in self._missing_values

    def _standardize(
        self,
        start: int,
        stop: int,
        block: F64,
        missing: NDArray[np.bool_] | None,
        weights: F64 | None,
        roots: Roots | None,
    ) -> FeaturePanel:
        """Fill, centre, scale and weight a block in place; features that are left out become 0. Variants have no inner product."""
        rules, n, width = self._rules, len(block), stop - start
        assert rules.convention is not None
        masked = np.zeros(width, bool) if weights is None else np.isnan(weights)
        reference = np.ones(n) if self._reference is None else self._reference
        zero = rows_alike(block if weights is None else block[:, weights > 0], 0.0)
        if missing is not None:
            zero &= ~missing.any(axis=1)
        total = reference @ block
        n_missing = n_absent = np.zeros(width, np.int64)
        if missing is not None:
            places, by_feature = places_of(missing), missing.flags.f_contiguous
            of_feature = places // n if by_feature else places % width
            n_missing = n_absent = np.bincount(of_feature, minlength=width)
            if self._reference is not None:
                of_sample = places % n if by_feature else places // width
                n_absent = np.bincount(of_feature[reference[of_sample] > 0], minlength=width)
        present = reference.sum() - n_absent
        features, uncounted, alike = self._of_kinds(masked, total, present, n_missing)
        gone = uncounted | alike
        mean = np.where(gone, 0.0, total / np.maximum(present, 1.0))
        divisor = np.where(gone, 1.0, deviation(rules.convention, total, present))
        given = np.ones(width) if weights is None else np.where(gone, 0.0, weights)
        factor = np.where(gone, 0.0, given / divisor)
        block -= mean
        block *= factor
        if missing is not None:
            in_memory_order(block)[places] = 0.0
        level = mean * factor
        combined = self._beside @ block
        combined[0] = level
        products = combined @ block.T
        squares, mean_norm2 = squares_of_rows(block), float(level @ level)
        squares, mean_product = of_zeros(zero, not_lost(squares, block), products[0], mean_norm2)
        return FeaturePanel(
            start=start,
            stop=stop,
            matrix=block,
            mean=np.where(gone, np.nan, mean),
            divisor=np.where(gone, np.nan, divisor),
            weights=np.where(gone, np.nan, given),
            squares=squares,
            mean_product=mean_product,
            mean_norm2=mean_norm2,
            n_missing=0 if missing is None else int(n_missing.sum()),
            n_filled=0 if missing is None else int(n_missing[~gone].sum()),
            features=features,
            absent=self._absent(missing, uncounted),
            varies=bool(squares.any()),
            integers=False,
            sketch=products[1:].T,
        )

    def _of_kinds(
        self, masked: NDArray[np.bool_], total: F64, present: F64, n_missing: NDArray[np.int64]
    ) -> tuple[FeatureCounts, NDArray[np.bool_], NDArray[np.bool_]]:
        """The number of variants of each kind, the mask of those that are left out, and of those where all people are alike.

        Parameters
        ----------
        total, present : as for `deviation`
        n_missing : number of missing calls among all samples, (features,)
        """
        rules, n = self._rules, self._plan.n_samples
        minor = np.minimum(total, COPIES * present - total)
        kinds = {
            "masked": masked,
            "empty": present == 0,
            "incomplete": rules.too_few(n - n_missing, n),
            # A frequency that is the limit, but for its rounding, is kept.
            "rare": minor < rules.min_minor_allele_frequency * COPIES * present * (1 - 1e-12),
        }
        counts, gone = FeatureCounts(), np.zeros(masked.shape, bool)
        for name, mask in kinds.items():
            setattr(counts, name, int((mask & ~gone).sum()))
            gone |= mask
        alike = minor <= 0
        counts.monomorphic = int((alike & ~gone).sum())
        return counts, gone, alike & ~gone
