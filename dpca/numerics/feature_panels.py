"""Preprocessing of features that stream by: all samples of each are there, so means and scales are final."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpca.numerics.panels import AppliedPanel, FeaturePanel
from dpca.numerics.preprocess import CONSTANT, NotFinite, Standardizer, all_constant, is_constant, not_lost, sums

F64 = NDArray[np.float64]

LEFT = 1e-6
"""The remaining mean after rounding is subtracted, too, where its squares exceed this share of the sum of squares."""


@dataclass(frozen=True)
class _Centred:
    """What was subtracted from the features of a block, and what was met there."""

    centre: F64
    """The mean, or the whole number that is nearest to it, (w,)."""
    present: Any
    """Number of values that are not missing: of each feature, (w,), or of all alike."""
    empty: NDArray[np.bool_]
    """Mask of features without any value."""
    n_missing: int
    integers: bool
    """Whether the block holds integers."""


class FeaturePanels(Standardizer):
    """Panels of features."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        n = self._plan.n_samples
        columns = np.empty((n, 0)) if self._columns is None else self._columns
        self._beside = np.vstack([np.full(n, 1 / n), columns.T])
        """1'/n, whose product with a block is the means, above Omega'."""

    def panels(self, raw: NDArray[Any]) -> Iterator[FeaturePanel]:
        """Preprocess a slab.

        Parameters
        ----------
        raw : the slab as stored, samples along the plan's samples axis; not written to

        Raises
        ------
        NotFinite
                At infinity, at a missing value under `missing: error`, and where a sum overflows.
        """
        for start, piece in self._pieces(raw):
            yield self._in_blocks(start, piece)

    def _as_stored(self, piece: NDArray[Any]) -> bool:
        """Whether stored values need only centring, and working precision represents each of them."""
        marked = self._marks and (piece.dtype.kind == "f" or self._marked(piece) is not None)
        plain = self._rules.center and self._rules.scale == "none" and self._packing == (1.0, 0.0)
        return plain and not marked and np.can_cast(piece.dtype, self._panel.dtype)

    def _subtract(self, piece: NDArray[Any], mean: NDArray[Any]) -> NDArray[Any]:
        """Centre a piece directly into the panel, without a copy in float64."""
        fast = self._plan.kept_fastest
        values = np.moveaxis(piece, self._plan.samples_axis, -1 if fast else 0)
        shape = (*values.shape[:-1], 1) if fast else values.shape[1:]
        np.subtract(values, mean.reshape(shape), out=self._panel[: values.size].reshape(values.shape))
        return self._matrix(mean.size)

    def _in_blocks(self, start: int, piece: NDArray[Any]) -> FeaturePanel:
        """Preprocess a piece by the rules in float64, block by block."""
        parts: list[FeaturePanel] = []
        matrix = self._matrix(math.prod(self._plan.features_in(piece.shape)))
        for first, last, block, missing in self._blocks(piece):
            parts.append(self._standardize(start + first, start + last, block, missing))
            with np.errstate(over="ignore"):  # the product detects infinite values
                matrix[:, first:last] = block
        return _joined(parts, matrix)

    def again(self, raw: NDArray[Any], mean: F64) -> Iterator[tuple[int, int, NDArray[Any]]]:
        """Preprocess a slab a second time; where it needs only centring, by the means of the first time.

        These are rounded to working precision: components change by the rounding error of the mean times the sum of
        each alpha, and that sum is 0 up to rounding.

        Parameters
        ----------
        raw : as for `panels`
        mean : means of the slab's features, flattened; NaN for a feature without any value

        Yields
        ------
        start, stop, matrix : as in a panel
        """
        for start, piece in self._pieces(raw):
            stop = start + math.prod(self._plan.features_in(piece.shape))
            matrix = None
            if self._as_stored(piece):
                with np.errstate(all="ignore"):
                    matrix = self._subtract(piece, mean[start:stop].astype(self._panel.dtype))
                    matrix = matrix if np.isfinite(matrix.sum()) else None
            yield start, stop, self._in_blocks(start, piece).matrix if matrix is None else matrix

    def apply(self, raw: NDArray[Any], mean: F64, divisor: F64) -> Iterator[tuple[int, int, F64]]:
        """Preprocess a slab of new samples by given means and divisors.

        Parameters
        ----------
        raw : as for `panels`
        mean, divisor : those of the slab's features, flattened. A missing value becomes 0, which is the mean

        Yields
        ------
        start, stop, block : float64, (n_samples, stop - start), valid until the next one
        """
        for start, stop, block, missing in self._blocks(raw):
            if missing is not None or not np.isfinite(sums(block)).all():
                missing = self._missing(block, missing)
            block -= np.nan_to_num(mean[start:stop])
            block[:, np.isnan(mean[start:stop])] = 0.0  # features that had no value in the fit
            scale = np.where(np.isnan(divisor[start:stop]), 1.0, divisor[start:stop])
            if (scale != 1).any():
                block /= scale
            if missing is not None and missing.any():
                if not self._rules.center:
                    raise NotFinite  # without centring, the training means that would fill it are not stored
                block[missing] = 0.0
            yield start, stop, block

    def applied(self, raw: NDArray[Any], mean: F64, divisor: F64) -> Iterator[AppliedPanel]:
        """Preprocess a slab by given means and divisors, as panels in working precision.

        Parameters
        ----------
        raw, mean, divisor : as for `apply`
        """
        rows = raw.shape[self._plan.samples_axis]
        reduced = np.nan_to_num(mean / divisor)
        for start, piece in self._pieces(raw):
            width = math.prod(self._plan.features_in(piece.shape))
            panel = AppliedPanel(
                self._panel[: rows * width].reshape(rows, width), np.zeros(rows), np.zeros(rows), start, start + width
            )
            along = slice(start, panel.stop)
            for first, last, block in self.apply(piece, mean[along], divisor[along]):
                with np.errstate(over="ignore"):  # the product detects infinite values
                    panel.matrix[:, first:last] = block
                panel.squares += np.einsum("nf,nf->n", block, block)
                panel.mean_product += block @ reduced[start + first : start + last]
            yield panel

    def _standardize(self, start: int, stop: int, block: F64, missing: NDArray[np.bool_] | None) -> FeaturePanel:
        """Fill, centre and scale a block in place."""
        about = self._centred(block, missing)
        centre, empty = about.centre, about.empty
        divisor, n_constant = np.ones(stop - start), 0
        if self._rules.scale == "std":
            divisor, n_constant = self._std(block, centre, about.present)
            block /= divisor
        if not self._rules.center:
            block += centre / divisor
            block[:, empty] = 0.0
            centre = np.zeros(stop - start)
        with np.errstate(over="ignore", invalid="ignore"):  # overflow is detected where the results are added up
            # One product for the remaining mean and the sketch, one for r and the sketch: their cost is reading the
            # block, and BLAS is faster in this order.
            combined = self._beside @ block
            remaining = combined[0].copy() if self._rules.center else np.zeros(stop - start)
            centre = centre + remaining * divisor
            combined[0] = reduced = centre / divisor
            products = combined @ block.T
            squares = self._squares(block, remaining, about.integers)
            mean_product, mean_norm2 = products[0] - float(remaining @ reduced), float(reduced @ reduced)
            clearly = float(squares.sum()) > float(len(block) * CONSTANT**2 * mean_norm2)
            varies = clearly or not all_constant(block - remaining, centre)
        return FeaturePanel(
            start=start,
            stop=stop,
            matrix=block,
            mean=np.where(empty, np.nan, centre),
            divisor=np.where(empty, np.nan, divisor),
            squares=not_lost(np.maximum(squares, 0.0), block),
            mean_product=mean_product,
            mean_norm2=mean_norm2,
            n_missing=about.n_missing,
            n_constant=n_constant,
            n_empty=int(empty.sum()),
            varies=varies,
            integers=about.integers,
            sketch=products[1:].T,
        )

    def _centred(self, block: F64, missing: NDArray[np.bool_] | None) -> _Centred:
        """Fill missing values of a block, and subtract the mean of each feature, in place."""
        n, scaled = len(block), self._rules.scale != "none"
        present: Any = n
        if missing is None:
            mean = sums(block) / n
        if missing is not None or not np.isfinite(mean).all():
            missing = self._missing(block, missing)
            block[missing] = 0.0
            present = n - missing.sum(axis=0)
            with np.errstate(invalid="ignore"):  # 0 / 0 gives the NaN that marks a feature without any value
                mean = sums(block) / present
            if np.isinf(mean).any():
                raise NotFinite
        empty = np.isnan(mean)
        centre = np.where(empty, 0.0, mean)
        integers = self._integers and missing is None and not scaled
        if integers:
            centre = np.rint(centre)
        block -= centre
        if missing is not None or scaled:  # else the remaining mean would not be the same for all
            if missing is not None:
                block[missing] = 0.0
            remaining = sums(block) / np.maximum(present, 1)
            block -= remaining
            centre = centre + remaining
        if missing is not None:
            block[missing] = 0.0
        return _Centred(centre, present, empty, 0 if missing is None else int(missing.sum()), integers)

    @staticmethod
    def _squares(block: F64, remaining: F64, integers: bool) -> F64:
        """Squared norms of the samples of a block less the remaining means, (n_samples,)."""
        squares: F64 = np.einsum("nf,nf->n", block, block)
        if integers:
            squares -= 2 * (block @ remaining) - float(remaining @ remaining)
        elif len(block) * float(remaining @ remaining) > LEFT * float(squares.sum()):
            block -= remaining  # in place: products of large constants would hold only the remaining means
            squares = np.einsum("nf,nf->n", block, block)
        return squares

    def _std(self, centred: F64, centre: F64, present: Any) -> tuple[F64, int]:
        """Standard deviations of centred values, 1 where there is no variation; sets constant features to exactly 0."""
        variance = np.einsum("nf,nf->f", centred, centred) / np.maximum(present - self._rules.ddof, 1)
        constant = is_constant(variance, centre, present, self._rules.ddof)
        centred[:, constant] = 0.0
        return np.where(constant, 1.0, np.sqrt(variance)), int((constant & (present > 0)).sum())


def _joined(parts: list[FeaturePanel], matrix: NDArray[Any]) -> FeaturePanel:
    """One panel made of the blocks that were copied side by side into `matrix`."""
    return FeaturePanel(
        start=parts[0].start,
        stop=parts[-1].stop,
        matrix=matrix,
        mean=np.concatenate([part.mean for part in parts]),
        divisor=np.concatenate([part.divisor for part in parts]),
        squares=np.sum([part.squares for part in parts], axis=0),
        mean_product=np.sum([part.mean_product for part in parts], axis=0),
        mean_norm2=sum(part.mean_norm2 for part in parts),
        n_missing=sum(part.n_missing for part in parts),
        n_constant=sum(part.n_constant for part in parts),
        n_empty=sum(part.n_empty for part in parts),
        varies=any(part.varies for part in parts),
        integers=all(part.integers for part in parts),
        sketch=np.sum([part.sketch for part in parts], axis=0),
    )
