"""Tasks that read the training data of a kernel fit again: inner products with new samples, pre-images."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dpca.errors import PrecisionError
from dpca.execution.progress import Report
from dpca.kernels.inner import Inner
from dpca.methods.applying import GroupedPass, Projection, ScoredSamples
from dpca.methods.passes import damage_of
from dpca.numerics.accumulators.tallies import Counts
from dpca.numerics.feature_panels import counting
from dpca.settings import INPUT
from dpca.slabs import Box, extent, placed
from dpca.sources.base import Region, Source
from dpca.store.fitted import Fitted
from dpca.types import F64

PREIMAGE = "reconstruction"


@dataclass(frozen=True)
class Against(GroupedPass):
    """Settings that all parts of a pass over the training data share, for groups of other samples."""

    new: Projection | None = None
    """The pass over the other samples, where they are data; their features are cut as those of the training data."""

    def part(self, part: int) -> tuple[Self, int]:
        restricted, _ = super().part(part)
        return (restricted if self.new is None else replace(restricted, new=self.new.part(part)[0])), part

    def inputs(self, part: int) -> tuple[tuple[Source, Region], ...]:
        return (*super().inputs(part), *(() if self.new is None else self.new.inputs(part)))

    @property
    def read_seconds(self) -> float:
        return min(super().read_seconds, self.new.read_seconds if self.new else math.inf)

    @property
    def blocks(self) -> Mapping[Any, Any]:
        return {**super().blocks, **(self.new.blocks if self.new else {})}

    def with_blocks(self, blocks: Mapping[Any, Any]) -> Self:
        updated = super().with_blocks(blocks)
        return updated if self.new is None else replace(updated, new=self.new.with_blocks(blocks))

    def written(self, slab: Box, part: int) -> Region:
        """The region of the samples that a part writes of a slab."""
        return placed(self.plan.region(slab), self.plan.samples_axis, self.group_of(part))

    def damage(self, part: int) -> str | None:
        slabs = (slab for tile in self.tiles(part) for slab in self.plan.slabs_of(tile))
        return damage_of(self.outputs, self.writes, (self.written(slab, part) for slab in slabs))


@dataclass
class Cross:
    """Inner products of new samples with the samples of a fit, over some features; both less the mean of the fit."""

    products: F64
    """Products of m new samples with the n samples of the fit, (m, n)."""
    rows: F64
    """Squared norms of the new samples, (m,); `columns` has those of the fit, (n,)."""
    columns: F64
    row_mean_product: F64
    """Products of the new samples with the mean, (m,); `column_mean_product` has those of the fit, (n,)."""
    column_mean_product: F64
    kept: F64
    """Field of `ScoredSamples` for the new samples, (m,); so is `absent`."""
    absent: F64
    mean_norm2: float = 0.0

    @classmethod
    def empty(cls, m: int, n: int) -> Self:
        """An empty sum: no features yet."""
        return cls(np.zeros((m, n)), np.zeros(m), np.zeros(n), np.zeros(m), np.zeros(n), np.zeros(m), np.zeros(m))

    def add(self, other: Cross) -> Self:
        """Add the sums of another span, in place."""
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)
        return self

    @property
    def inner(self) -> Inner:
        """These sums in the form that kernels take."""
        sums = {name: value for name, value in vars(self).items() if name not in ("kept", "absent")}
        return Inner(**sums)

    @property
    def measured(self) -> ScoredSamples:
        """Measurements of the new samples beside their scores."""
        return ScoredSamples(self.rows, self.kept, self.absent)


def cross_span(work: Against, fitted: Fitted, part: int, report: Report) -> Cross:
    """Inner products of a group of new samples with the samples of the fit, over a span's features; both are read once.

    Parameters
    ----------
    fitted : means and divisors of the fit
    """
    assert work.new is not None
    samples = work.group_of(part)
    m, n = samples.stop - samples.start, work.plan.n_samples
    sums, product = Cross.empty(m, n), np.empty((m, n), work.working_dtype)
    old_panels, new_panels = work.feature_panels(), work.new.feature_panels()
    both = zip(work.read(part, Counts(), report), work.new.read(part, Counts(), report), strict=True)
    for (tile, slabs), (_, others) in both:
        fitted_tile, regressed = fitted.of_mean(tile), fitted.regressed(tile)
        for slab, other in zip(slabs, others, strict=True):
            mean, divisor = (values[slab.inside].reshape(-1) for values in fitted_tile)
            of_slab = None if regressed is None else regressed.of(slab.inside)
            sums.kept += np.count_nonzero(counting(mean, divisor))
            ours = old_panels.applied(slab.raw, mean, divisor, work.baseline(of_slab))
            theirs = new_panels.applied(other.raw, mean, divisor, work.new.baseline(of_slab), sums.absent)
            for x, y in zip(slab.located(ours), other.located(theirs), strict=True):
                sums.products += _product(y.matrix, x.matrix, product)
                sums.rows += y.squares
                sums.columns += x.squares
                sums.row_mean_product += y.mean_product
                sums.column_mean_product += x.mean_product
                sums.mean_norm2 += x.mean_norm2
    return sums


def _product(y: NDArray[Any], x: NDArray[Any], out: NDArray[Any]) -> NDArray[Any]:
    """Y X'; in double precision where the working precision overflows."""
    with np.errstate(over="ignore", invalid="ignore"):
        np.matmul(y, x.T, out=out)
        if np.isfinite(out.sum()):
            return out
        wide: NDArray[Any] = y.astype(np.float64) @ x.T.astype(np.float64)
        if np.isfinite(wide.sum()):
            return wide
    raise PrecisionError(
        f"values too large for products with the training data, which are fitted in {y.dtype}",
        f"See whether some of the new samples' values mark missing ones ({INPUT.missing_values}), or have other units.",
    )


@dataclass(frozen=True)
class Combinations:
    """Combinations of the training samples: A X_c, (m, n) times (n, features), scaled back, plus b times the mean."""

    weights: F64
    """A, (m, n)."""
    means: F64
    """b, (m,)."""


def preimage_span(work: Against, fitted: Fitted, wanted: Combinations, part: int, report: Report) -> int:
    """Write (A X_c) diag(scale) + b m' over a span's features, for a group of rows of A."""
    samples, axis = work.group_of(part), work.plan.samples_axis
    weights = wanted.weights[samples].astype(work.working_dtype)
    means = wanted.means[samples, None]
    panels = work.feature_panels()
    for tile, slabs in work.read(part, Counts(), report):
        fitted_tile = fitted.of_mean(tile)
        for slab in slabs:
            mean, divisor = (values[slab.inside].reshape(-1) for values in fitted_tile)
            values = np.empty((len(weights), mean.size), work.working_dtype)
            for panel in slab.located(panels.applied(slab.raw, mean, divisor)):
                along = slice(panel.start, panel.stop)
                values[:, along] = (weights @ panel.matrix) * divisor[along] + means * mean[along]
            rows = values.reshape(len(values), *extent(slab.box))
            work.write(PREIMAGE, work.written(slab.box, part), np.moveaxis(rows, 0, axis))
    return 0
