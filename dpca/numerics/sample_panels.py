"""Preprocessing of samples that stream by: the means of all samples are known only at the end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpca.numerics.panels import About, Means, SamplePanel
from dpca.numerics.preprocess import NotFinite, Standardizer, not_lost, squares_of_rows, sums
from dpca.types import F64


class SamplePanels(Standardizer):
    """Panels of samples.

    Parameters
    ----------
    as for Standardizer, and
    fill : means of the present values, which replace missing ones; None where values may not be missing
    about : means and factors for panels of X_c itself; None for the panel's own means and no scaling
    masked : mask of features whose values are not looked at, (m,); None for none
    """

    def __init__(
        self,
        *arguments: Any,
        fill: Means | None = None,
        about: About | None = None,
        masked: NDArray[np.bool_] | None = None,
        **named: Any,
    ) -> None:
        super().__init__(*arguments, **named)
        self._fill, self._about, self._masked = fill, about, masked

    def panels(self, raw: NDArray[Any]) -> Iterator[SamplePanel]:
        """Preprocess a slab, as `FeaturePanels.panels` does."""
        for start, piece in self._pieces(raw):
            yield self._panel_of(start, piece)

    def present(self, raw: NDArray[Any]) -> Iterator[tuple[NDArray[np.int64], Means, int]]:
        """For each panel: number and mean of each feature's present values, and the number of missing ones."""
        for _, piece in self._pieces(raw):
            count, origin = self._mean_of_present(piece, np.zeros(self._plan.n_kept))
            if not np.isfinite(origin).all():
                raise NotFinite
            # The rounding error of this mean is part of the differences from it, so their mean corrects it.
            _, offset = self._mean_of_present(piece, origin)
            yield count, Means(origin, offset), piece.size - int(count.sum())

    def _mean_of_present(self, piece: NDArray[Any], origin: F64) -> tuple[NDArray[np.int64], F64]:
        """Number of each feature's present values, and the mean of their differences from `origin`; 0 if there are none."""
        count, total = np.zeros(self._plan.n_kept, np.int64), np.zeros(self._plan.n_kept)
        for start, stop, block, missing in self._blocks(piece, self._masked):
            block -= origin[:, None]
            if missing is not None or not np.isfinite(sums(block, 1)).all():
                missing = self._missing(block, missing)
                block[missing] = 0.0
                count -= missing.sum(axis=1)
            count += stop - start
            total += sums(block, 1)
        return count, np.divide(total, count, out=np.zeros_like(total), where=count > 0)

    def _differences(self, piece: NDArray[Any], origin: F64 | None) -> Iterator[tuple[int, int, F64, int, F64]]:
        """Blocks of a piece minus an origin, with missing values filled in; the number of those, and the origin.

        The default origin is the first sample, with the fill in place of its missing values.
        """
        for start, stop, block, missing in self._blocks(piece, self._masked):
            if missing is not None or not np.isfinite(sums(block, 1)).all():
                missing = self._missing(block, missing)
            n_missing = 0 if missing is None else int(missing.sum())
            if origin is None:
                origin = block[:, 0].copy()
                if missing is not None and self._fill is not None:
                    origin = np.where(missing[:, 0], self._fill.origin, origin)
            block -= origin[:, None]
            if missing is not None and n_missing:
                if self._fill is None:
                    raise NotFinite
                filled = (self._fill.origin - origin) + self._fill.offset
                np.copyto(block, filled[:, None], where=missing)
            yield start, stop, block, n_missing, origin

    def _panel_of(self, start: int, piece: NDArray[Any]) -> SamplePanel:
        width = piece.shape[self._plan.samples_axis]
        about = self._about or self._own_means(piece, width)
        rounded = np.rint(about.offset) if self._integers else about.offset
        n_missing, squares, matrix = 0, np.zeros_like(rounded), self._matrix(width)
        low, high = np.zeros_like(rounded), np.zeros_like(rounded)  # the first sample is the origin
        sketch = np.zeros((len(rounded), 0)) if self._columns is None else np.zeros_like(self._columns)
        for first, last, block, filled, _ in self._differences(piece, about.origin):
            if self._rules.scale == "range" and self._about is None:
                low, high = np.minimum(low, block.min(axis=1)), np.maximum(high, block.max(axis=1))
            # In two steps: a mean that is rounded once may be off by more than the differences between close values.
            block -= rounded[:, None]
            block *= about.factor[:, None]
            squares += not_lost(squares_of_rows(block), block)
            if self._about is None and not self._rules.center:
                block += rounded[:, None]
                block += about.origin[:, None]
            with np.errstate(over="ignore", invalid="ignore"):  # the product detects infinite values
                if self._columns is not None:
                    sketch += ((self._columns.T @ block) @ block.T).T
                matrix[:, first:last] = block
            n_missing += filled
        left = about.offset - rounded
        return SamplePanel(
            start=start,
            stop=start + width,
            matrix=matrix,
            n_missing=n_missing,
            n_filled=n_missing,
            integers=self._integers and not n_missing,
            origin=about.origin,
            offset=about.offset,
            squares=squares - width * left**2,
            low=low,
            high=high,
            left=left if self._integers else None,
            sketch=sketch,
        )

    def _own_means(self, piece: NDArray[Any], width: int) -> About:
        """Means of the samples of a piece, from their differences from the first sample."""
        total, origin, counted = np.zeros(self._plan.n_kept), np.zeros(0), self.n_plausible
        for _, _, block, _, first in self._differences(piece, None):
            total += sums(block, 1)
            origin = first
        self.n_plausible = counted  # the panel goes over the same values again
        if not np.isfinite(total).all():
            raise NotFinite
        return About(origin, total / width, np.ones_like(total))
