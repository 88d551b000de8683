"""Preprocessing of features that stream by: all samples of each are there, so means and scales are final."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpca.numerics.inner_products import USUAL, Roots
from dpca.numerics.panels import AppliedPanel, FeatureCounts, FeaturePanel, Rules
from dpca.numerics.preprocess import (
    CONSTANT,
    NotFinite,
    Standardizer,
    all_constant,
    cleared,
    is_constant,
    not_lost,
    of_zeros,
    rows_alike,
    scale_of,
    squares_of_rows,
    sums,
)
from dpca.numerics.regression import Baseline, Fit, Regression
from dpca.numerics.weights import SampleWeights
from dpca.types import F64

LEFT = 1e-6
"""The remaining mean after rounding is subtracted, too, where its squares exceed this share of the sum of squares."""


@dataclass(frozen=True)
class Centred:
    """Means that were subtracted from the features of a block, and what was met there."""

    centre: F64
    """The mean, or the whole number that is nearest to it, (w,)."""
    present: Any
    """Number of values that are not missing: of each feature, (w,), or of all alike."""
    divisor: Any
    """Divisor of the variance of the present values: of each feature, (w,), or of all alike."""
    empty: NDArray[np.bool_]
    """Mask of features without any value."""
    missing: NDArray[np.bool_] | None
    """Mask of the missing values; None if there are none."""
    integers: bool
    """Whether the block holds integers."""
    fit: Fit | None
    """The fit of regressors that was subtracted, too."""

    @property
    def size(self) -> F64:
        """The size of what was subtracted, whose rounding is no variation, (w,); divided as the values."""
        return self.centre if self.fit is None else self.fit.level

    @property
    def scales(self) -> F64 | None:
        """Divisors in each group of samples, (groups, w); None for none."""
        return None if self.fit is None else self.fit.scales


class FeaturePanels(Standardizer):
    """Panels of features.

    Parameters
    ----------
    as for Standardizer, and
    sample_weights : weights of the samples in means and scales; None for equal ones
    regression : what is subtracted beside means; None for nothing
    reference : of dosages: 1 for the samples whose means and frequencies are taken, else 0, (n_samples,); None for all
    """

    def __init__(
        self,
        *arguments: Any,
        sample_weights: SampleWeights | None = None,
        regression: Regression | None = None,
        reference: F64 | None = None,
        **named: Any,
    ) -> None:
        super().__init__(*arguments, **named)
        self._regression, self._reference = regression, reference
        n = self._plan.n_samples
        columns = np.empty((n, 0)) if self._columns is None else self._columns
        self._sample_weights = sample_weights
        shares = np.full(n, 1 / n) if sample_weights is None else sample_weights.shares
        self._beside = np.vstack([shares, columns.T])
        """1'/n, or shares of the weights, whose product with a block is the means, above Omega'."""

    def panels(
        self, raw: NDArray[Any], weights: F64 | None = None, roots: Roots | None = None
    ) -> Iterator[FeaturePanel]:
        """Preprocess a slab.

        Parameters
        ----------
        raw : the slab as stored, samples along the plan's samples axis; not written to
        weights : of the slab's features, flattened; NaN for a feature that is left out. None for weights of 1
        roots : of the inner product of the slab's features; None for the usual one
        """
        for start, piece in self._pieces(raw):
            along = slice(start, start + math.prod(self._plan.features_in(piece.shape)))
            yield self._in_blocks(
                start,
                piece,
                None if weights is None else weights[along],
                None if roots is None else roots.of_features(along),
            )

    def _as_stored(self, piece: NDArray[Any]) -> bool:
        """Whether stored values need only centring, and working precision represents each of them."""
        marked = self._marks and (piece.dtype.kind == "f" or self._marked(piece) is not None)
        plain = self._rules.center and self._rules.scale == "none" and self._packing == (1.0, 0.0)
        plain = plain and self._regression is None
        return plain and not marked and np.can_cast(piece.dtype, self._working_dtype)

    def _subtract(self, piece: NDArray[Any], mean: NDArray[Any]) -> NDArray[Any]:
        """Centre a piece directly into the panel, without a copy in float64."""
        fast = self._plan.kept_fastest
        values = np.moveaxis(piece, self._plan.samples_axis, -1 if fast else 0)
        shape = (*values.shape[:-1], 1) if fast else values.shape[1:]
        np.subtract(values, mean.reshape(shape), out=self._panel(values.size).reshape(values.shape))
        return self._matrix(mean.size)

    def _in_blocks(self, start: int, piece: NDArray[Any], weights: F64 | None, roots: Roots | None) -> FeaturePanel:
        """Preprocess a piece by the rules in float64, block by block; `weights` and `roots` are those of the piece."""
        parts: list[FeaturePanel] = []
        matrix = self._matrix(math.prod(self._plan.features_in(piece.shape)))
        for first, last, block, missing in self._blocks(piece, None if weights is None else np.isnan(weights)):
            of_block = None if weights is None else weights[first:last]
            within = None if roots is None else roots.of_features(slice(first, last))
            parts.append(self._standardize(start + first, start + last, block, missing, of_block, within))
            with np.errstate(over="ignore"):  # the product detects infinite values
                matrix[:, first:last] = block
        return _joined(parts, matrix)

    def again(
        self, raw: NDArray[Any], mean: F64, weights: F64 | None = None, roots: Roots | None = None
    ) -> Iterator[tuple[int, int, NDArray[Any]]]:
        """Preprocess a slab a second time; where it needs only centring, by the means of the first time.

        These are rounded to working precision: components change by the rounding error of the mean times the sum of
        each alpha, and that sum is 0 up to rounding.

        Parameters
        ----------
        raw : as for `panels`
        mean : means of the slab's features, flattened; NaN for a feature that the first time left out
        weights, roots : as for `panels`

        Yields
        ------
        start, stop, matrix : as in a panel
        """
        for start, piece in self._pieces(raw):
            stop = start + math.prod(self._plan.features_in(piece.shape))
            matrix, gone = None, np.isnan(mean[start:stop])
            given = None if weights is None else weights[start:stop]
            if gone.any():
                given = np.where(gone, np.nan, 1.0 if given is None else given)
            within = None if roots is None else roots.of_features(slice(start, stop))
            if given is None and within is None and self._as_stored(piece):
                with np.errstate(all="ignore"):
                    matrix = self._subtract(piece, mean[start:stop].astype(self._working_dtype))
                    matrix = matrix if np.isfinite(matrix.sum()) else None
            yield start, stop, self._in_blocks(start, piece, given, within).matrix if matrix is None else matrix

    def apply(
        self,
        raw: NDArray[Any],
        mean: F64,
        divisor: F64,
        fit: Baseline | None = None,
        absent: F64 | None = None,
        receive_missing: Callable[[int, int, NDArray[np.bool_] | None], None] | None = None,
    ) -> Iterator[tuple[int, int, F64]]:
        """Preprocess a slab of new samples by given means and divisors.

        Parameters
        ----------
        raw : as for `panels`
        mean, divisor : those of the slab's features, flattened; `divisor` is 1 / t = scale / weight, infinite where the
            weight is 0. A missing value becomes 0, which is the mean (or the fit), and so does a feature that the fit left out
        fit : what is subtracted beside the means of the slab's features, and what these are divided by in groups; None for nothing
        absent : to which the number of missing values of each sample is added, (n_samples,), of features that count
            (`counting`)
        receive_missing : called for each block with its first and its last feature and the mask of missing values, before it; None for a mask
            without any

        Yields
        ------
        start, stop, block : float64, (n_samples, stop - start), valid until the next one
        """
        for start, stop, block, missing in self._blocks(raw, np.isnan(mean)):
            if missing is not None or not np.isfinite(sums(block)).all():
                missing = self._missing(block, missing)
            block -= np.nan_to_num(mean[start:stop])
            if fit is not None:
                fit.take(block, slice(start, stop))
            scale = np.where(np.isnan(divisor[start:stop]), 1.0, divisor[start:stop])
            if (scale != 1).any():
                block /= scale
            if missing is not None and missing.any():
                if not self._rules.center:
                    raise NotFinite  # without centring, the training means that would fill it are not stored
                cleared(block, missing)
                if absent is not None:
                    absent += missing[:, counting(mean[start:stop], divisor[start:stop])].sum(axis=1)
            if receive_missing is not None:
                receive_missing(start, stop, missing)
            yield start, stop, block

    def applied(
        self,
        raw: NDArray[Any],
        mean: F64,
        divisor: F64,
        fit: Baseline | None = None,
        absent: F64 | None = None,
    ) -> Iterator[AppliedPanel]:
        """Preprocess a slab by given means and divisors, as panels in working precision.

        Parameters
        ----------
        raw, mean, divisor, fit, absent : as for `apply`
        """
        rows = raw.shape[self._plan.samples_axis]
        reduced = np.nan_to_num(self.reduced(mean, divisor))
        for start, piece in self._pieces(raw):
            width = math.prod(self._plan.features_in(piece.shape))
            panel = AppliedPanel(
                self._panel(rows * width).reshape(rows, width), np.zeros(rows), np.zeros(rows), start, start + width
            )
            along = slice(start, panel.stop)
            of_piece = None if fit is None else fit.of(along)
            for first, last, block in self.apply(piece, mean[along], divisor[along], of_piece, absent):
                with np.errstate(over="ignore"):  # the product detects infinite values
                    panel.matrix[:, first:last] = block
                level = reduced[start + first : start + last]
                squares, norm2 = squares_of_rows(block), float(level @ level)
                squares, mean_product = of_zeros(rows_alike(block, -level), squares, block @ level, norm2)
                panel.squares += squares
                panel.mean_product += mean_product
                panel.mean_norm2 += norm2
            yield panel

    def reduced(self, mean: F64, divisor: F64) -> F64:
        """m~, what the mean of each feature became, (w,): 0 where groups of samples have divisors of their own, so that it has none."""
        return np.zeros_like(mean) if self._rules.by_group else mean / divisor

    def _standardize(
        self,
        start: int,
        stop: int,
        block: F64,
        missing: NDArray[np.bool_] | None,
        weights: F64 | None,
        roots: Roots | None,
    ) -> FeaturePanel:
        """Fill, centre, scale and weight a block in place; features that are left out become 0."""
        zero = rows_alike(block if weights is None else block[:, weights > 0], 0.0)
        about = self._centred(block, missing)
        if about.missing is not None:
            zero &= ~about.missing.any(axis=1)
        if about.fit is not None:
            zero[:] = False
        divisor, features, gone = self._scaled(block, about, weights)
        centre = np.where(gone, 0.0, about.centre)
        if not self._rules.center:
            block += centre / divisor
            centre = np.zeros(stop - start)
        given, back = np.ones(stop - start), divisor
        if weights is not None:
            given = np.where(gone, 0.0, weights)
            block *= given
            # 1 / t, t = weight / scale; where t = 0 the feature is 0, and its mean stays as it is.
            back = np.divide(divisor, given, out=np.full_like(divisor, np.inf), where=given > 0)
        inner = USUAL if roots is None else roots
        rounding = inner.multiply(block)
        with np.errstate(over="ignore", invalid="ignore"):  # overflow is detected where the results are added up
            # One product for the remaining mean and the sketch, one for r and the sketch: their cost is reading the
            # block, and BLAS is faster in this order.
            combined = self._beside @ block
            remaining = combined[0].copy() if self._rules.center else np.zeros(stop - start)
            if about.scales is None:  # else it is rounding, in no unit of the data
                centre = centre + np.where(np.isfinite(back), inner.undone(remaining[None])[0] * back, 0.0)
            combined[0] = reduced = inner.times(self.reduced(centre, back)[None])[0]
            products = combined @ block.T
            squares = self._squares(block, remaining, about.integers)
            mean_norm2 = float(reduced @ reduced)
            squares = not_lost(np.maximum(squares, 0.0), block)
            squares, mean_product = of_zeros(zero, squares, products[0] - float(remaining @ reduced), mean_norm2)
            level = inner.bound((centre if about.fit is None else about.size) / back)
            fit = np.zeros(0) if about.fit is None else inner.bound(about.fit.size / back)
            clearly = float(squares.sum()) > float(len(block) * CONSTANT**2 * float(level @ level))
            varies = clearly or not all_constant(block - remaining, level)
        return FeaturePanel(
            start=start,
            stop=stop,
            matrix=block,
            mean=np.where(gone, np.nan, centre),
            divisor=np.where(gone, np.nan, divisor),
            weights=np.where(gone, np.nan, given),
            squares=squares,
            mean_product=mean_product,
            mean_norm2=mean_norm2,
            n_missing=0 if about.missing is None else int(about.missing.sum()),
            n_filled=0 if about.missing is None else int(about.missing[:, ~gone].sum()),
            features=features,
            absent=self._absent(about.missing, gone),
            varies=varies,
            integers=about.integers and roots is None and bool((gone | (given == 1)).all()),
            sketch=products[1:].T,
            regression=None if about.fit is None else np.where(gone, np.nan, about.fit.coefficients),
            group_scale=None if about.scales is None else np.where(gone, np.nan, about.scales),
            fitted=len(block) * float(fit @ fit) + rounding,
        )

    def _centred(self, block: F64, missing: NDArray[np.bool_] | None) -> Centred:
        """Fill missing values of a block, and subtract the mean of each feature, in place."""
        n, weighted, rules = len(block), self._sample_weights, self._rules
        regression = self._regression
        # Else no variance is needed, and nothing is subtracted beside the mean.
        scaled = rules.scale != "none" or rules.min_variance > 0 or regression is not None
        present: Any = n
        total: Any = n if weighted is None else weighted.total
        if missing is None:
            mean = self._total(block) / total
        if missing is not None or not np.isfinite(mean).all():
            missing = self._missing(block, missing)
            cleared(block, missing)
            present = n - missing.sum(axis=0)
            total = present if weighted is None else weighted.values @ ~missing
            with np.errstate(invalid="ignore"):  # 0 / 0 gives the NaN that marks a feature without any value
                mean = self._total(block) / total
            if np.isinf(mean).any():
                raise NotFinite
        empty = np.isnan(mean)
        centre = np.where(empty, 0.0, mean)
        integers = self._integers and missing is None and not scaled
        if integers:
            centre = np.rint(centre)
        if regression is not None and regression.loses_means(rules.by_group):
            centre = np.zeros_like(centre)
        else:
            block -= centre
            if missing is not None or scaled:  # else the remaining mean would not be the same for all
                if missing is not None:
                    cleared(block, missing)
                remaining = self._total(block) / np.where(empty, 1.0, total)
                block -= remaining
                centre = centre + remaining
            if missing is not None:
                cleared(block, missing)
        fit = None
        if regression is not None:
            fit = regression.subtract(block, centre, missing, rules.ddof_of_features if rules.by_group else None)
            centre = fit.constant
        divisor: Any = present - self._rules.ddof_of_features
        if weighted is not None:
            divisor = weighted.divisors(np.ones((n, 1)) if missing is None else ~missing, self._rules.ddof_of_features)
        return Centred(centre, present, divisor, empty, missing, integers, fit)

    def _absent(self, missing: NDArray[np.bool_] | None, gone: NDArray[np.bool_]) -> NDArray[np.bool_] | None:
        """Where values are missing in features that are used, if that is counted."""
        if self._rules.missing != "pairwise":
            return None
        if missing is not None:
            return missing & ~gone
        n = self._plan.n_samples
        return np.zeros((gone.size, n), bool).T if self._plan.kept_fastest else np.zeros((n, gone.size), bool)

    def _total(self, block: F64) -> F64:
        """Sums over samples, weighted where they are."""
        if self._sample_weights is None:
            return sums(block)
        with np.errstate(over="ignore", invalid="ignore"):
            return self._sample_weights.values @ block

    @staticmethod
    def _squares(block: F64, remaining: F64, integers: bool) -> F64:
        """Squared norms of the samples of a block less the remaining means, (n_samples,)."""
        squares: F64 = squares_of_rows(block)
        if integers:
            squares -= 2 * (block @ remaining) - float(remaining @ remaining)
        elif len(block) * float(remaining @ remaining) > LEFT * float(squares.sum()):
            block -= remaining  # in place: products of large constants would hold only the remaining means
            squares = squares_of_rows(block)
        return squares

    def _scaled(
        self, centred: F64, about: Centred, weights: F64 | None
    ) -> tuple[F64, FeatureCounts, NDArray[np.bool_]]:
        """Divide centred values by their scale, and leave features out, in place.

        Returns
        -------
        The divisors, 1 without variation; the number of features of each kind; the mask of those left out
        """
        rules, variance, spread = self._rules, np.zeros(about.empty.shape), np.zeros(about.empty.shape)
        if rules.scale != "none" or rules.min_variance > 0:
            if self._sample_weights is None:
                squares = np.einsum("nf,nf->f", centred, centred)
            else:
                squares = self._sample_weights.values @ np.square(centred)
            variance = squares / np.where(about.divisor > 0, about.divisor, 1)
            # The mean lies between the smallest and the largest value, so the 0 of a missing one is neither.
            spread = centred.max(axis=0) - centred.min(axis=0) if rules.scale == "range" else variance
        left = None if about.fit is None else about.fit.left
        before = None if left is None else left / np.where(about.divisor > 0, about.divisor, 1)
        found = divided(rules, variance, spread, about, len(centred), weights, before)
        if rules.scale != "none":
            centred[:, found.constant] = 0.0
            centred /= found.divisor
        centred[:, found.gone] = 0.0
        return found.divisor, found.counts, found.gone


@dataclass(frozen=True)
class Divided:
    """The divisors of features, and which of them are left out."""

    divisor: F64
    """1 for a constant feature, (w,)."""
    constant: NDArray[np.bool_]
    """Mask of features without variation, if they are scaled."""
    gone: NDArray[np.bool_]
    """Mask of those that are left out."""
    counts: FeatureCounts


def divided(
    rules: Rules,
    variance: F64,
    spread: F64,
    about: Centred,
    n_samples: int,
    weights: F64 | None,
    before: F64 | None = None,
) -> Divided:
    """The divisors of features by the rules.

    Parameters
    ----------
    variance, spread : of the present values, (w,), as for `scale_of`; not used where the rules ask for neither
    about : what was subtracted
    weights : of the features, (w,); NaN for one that is left out. None for weights of 1
    before : variance before anything was divided in groups of samples, (w,); None where that is `variance`
    """
    masked = np.zeros(variance.shape, bool) if weights is None else np.isnan(weights)
    empty = about.empty
    counts, gone = FeatureCounts(masked=int(masked.sum()), empty=int((empty & ~masked).sum())), masked | empty
    if rules.is_whole or rules.max_missing < 1:
        incomplete = rules.too_few(about.present, n_samples) & ~gone
        if rules.missing == "land" and incomplete.any():
            raise NotFinite
        counts.incomplete, gone = int(incomplete.sum()), gone | incomplete
    if rules.min_variance > 0:
        steady = ((variance if before is None else before) < rules.min_variance) & ~gone
        counts.steady, gone = int(steady.sum()), gone | steady
    divisor, constant = np.ones(variance.shape), np.zeros(variance.shape, bool)
    if rules.scale != "none":
        constant = is_constant(variance, about.size, about.divisor)
        divisor = scale_of(rules.scale, variance, spread, constant)
        counts.constant = int((constant & ~gone).sum())
    return Divided(divisor, constant, gone, counts)


def counting(mean: F64, divisor: F64) -> NDArray[np.bool_]:
    """Mask of the features that the scores of new samples depend on: those that the fit kept, of a weight that is not 0."""
    return np.isfinite(mean) & np.isfinite(divisor)


def _joined(parts: list[FeaturePanel], matrix: NDArray[Any]) -> FeaturePanel:
    """One panel made of the blocks that were copied side by side into `matrix`."""
    features = FeatureCounts()
    for part in parts:
        features.merge(part.features)
    return FeaturePanel(
        start=parts[0].start,
        stop=parts[-1].stop,
        matrix=matrix,
        mean=np.concatenate([part.mean for part in parts]),
        divisor=np.concatenate([part.divisor for part in parts]),
        weights=np.concatenate([part.weights for part in parts]),
        squares=_added([part.squares for part in parts]),
        mean_product=_added([part.mean_product for part in parts]),
        mean_norm2=sum(part.mean_norm2 for part in parts),
        n_missing=sum(part.n_missing for part in parts),
        n_filled=sum(part.n_filled for part in parts),
        features=features,
        absent=None if parts[0].absent is None else np.hstack([part.absent for part in parts]),  # type: ignore[misc]
        varies=any(part.varies for part in parts),
        integers=all(part.integers for part in parts),
        sketch=_added([part.sketch for part in parts]),
        regression=None if parts[0].regression is None else np.hstack([part.regression for part in parts]),  # type: ignore[misc]
        group_scale=None if parts[0].group_scale is None else np.hstack([part.group_scale for part in parts]),  # type: ignore[misc]
        fitted=sum(part.fitted for part in parts),
    )


def _added(arrays: list[F64]) -> F64:
    """Their sum, in their order, without an array that holds all of them."""
    first, *others = arrays
    if not others:
        return first
    total: F64 = first + others[0]
    for one in others[1:]:
        total += one
    return total
