"""How features are divided among sums of their own: into named groups, and into folds for validation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpca.numerics.accumulators.grouped import Cell
from dpca.slabs import Box, Plan, extent
from dpca.sources.feature_labels import FeatureLabels

Along = slice | NDArray[np.intp]
"""Some of the features of a slab, flattened."""
UNITS = 4
"""Where there are fewer spans than two a fold, each fold has this many runs of features that follow each other."""


@dataclass(frozen=True)
class Division:
    """The division of the features of one input."""

    first: int = 0
    """The number of its first named group among those of all inputs."""
    labels: FeatureLabels | None = None
    """The named groups in it; None for one of all its features."""
    n_folds: int = 0
    """Folds for validation, 0 for none."""
    unit: int = 0
    """How many features of a fold follow each other; 0 where all of a span are in one."""

    @classmethod
    def of(cls, plan: Plan, first: int, labels: FeatureLabels | None, n_folds: int) -> Division:
        """The division of an input that is cut by a plan: folds are spans that lie between each other, if there are enough."""
        runs = UNITS * max(n_folds, 1)
        unit = 0 if plan.n_spans >= 2 * n_folds else max(1, plan.n_features // runs)
        return cls(first, labels, n_folds, unit)

    def restrict(self, region: Box) -> Division:
        """That of a region of the feature axes."""
        return self if self.labels is None else replace(self, labels=self.labels.restrict(region))

    def cells(self, box: Box, feature_shape: tuple[int, ...], span: int) -> Iterator[tuple[Cell, Along | None]]:
        """The groups that features of a box are in, and which of them; None for all."""
        own = self.first, span % self.n_folds if self.n_folds and not self.unit else 0
        numbers = self._numbers(box, feature_shape)
        if numbers is None:
            yield own, None
            return
        present = np.unique(numbers)
        for number in present:
            named, fold = divmod(int(number), max(self.n_folds, 1))
            cell = self.first + named, fold if self.unit else own[1]
            yield cell, None if len(present) == 1 else _together(np.flatnonzero(numbers == number))

    def most_cells(self, plan: Plan) -> int:
        """The most groups that a span of a plan has features of."""
        return 1 if self.labels is None and not self.unit else _most_cells(self, plan)

    @property
    def scattered(self) -> bool:
        """Whether features of a slab may have to be copied to be beside each other."""
        return self.labels is not None or self.unit > 0

    def _numbers(self, box: Box, feature_shape: tuple[int, ...]) -> NDArray[np.int64] | None:
        """For each feature of a box, flattened, the number of its named group times the folds, and of its fold."""
        if self.labels is None and not self.unit:
            return None
        found = np.zeros(int(np.prod(extent(box))), np.int64)
        if self.labels is not None:
            found += self.labels.of(box)
        found *= max(self.n_folds, 1)
        if self.unit:
            axes = np.ix_(*(np.arange(piece.start, piece.stop) for piece in box))
            order = np.ravel_multi_index(axes, feature_shape).reshape(-1)
            found += order // self.unit % self.n_folds
        return found


@lru_cache(maxsize=64)
def _most_cells(division: Division, plan: Plan) -> int:
    """`Division.most_cells`, kept: a plan is tried several times, and looking at all labels takes seconds where they are many."""
    found = 1
    for span in range(plan.n_spans):
        cells = {cell for tile in plan.tiles_of(span) for cell, _ in division.cells(tile, plan.feature_shape, span)}
        found = max(found, len(cells))
    return found


WHOLE = Division()
"""All features in one sum."""


def of_features(raw: NDArray[Any], samples_axis: int, fastest: bool, along: Along) -> NDArray[Any]:
    """Some features of a slab as a slab: they lie along its last feature axis, and the others have length 1.

    Parameters
    ----------
    fastest : whether neighbouring values in storage are of different samples
    """
    place, ahead = (-1, (1,) * (raw.ndim - 2)) if fastest else (0, (1,) * (raw.ndim - 2))
    values = np.moveaxis(raw, samples_axis, place)
    n = raw.shape[samples_axis]
    if fastest:
        chosen = values.reshape(-1, n)[along]
        return np.moveaxis(chosen.reshape(*ahead, -1, n), -1, samples_axis)
    chosen = values.reshape(n, -1)[:, along]
    return np.moveaxis(chosen.reshape(n, *ahead, -1), 0, samples_axis)


def _together(numbers: NDArray[np.intp]) -> Along:
    """Numbers that follow each other as a slice, which takes no copy."""
    first, last = int(numbers[0]), int(numbers[-1])
    return slice(first, last + 1) if last - first + 1 == len(numbers) else numbers
