"""Tasks that read the training data of a kernel fit again: inner products with new samples, pre-images."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dpca.errors import PrecisionError
from dpca.execution.progress import Report
from dpca.kernels.inner import Inner
from dpca.methods.applying import ScoredSamples
from dpca.methods.passes import Pass, damage_of, located_panels
from dpca.numerics.feature_panels import counting
from dpca.settings import INPUT
from dpca.slabs import Box, Cuts, placed
from dpca.sources.base import Region, Source, within
from dpca.store.fitted import Fitted
from dpca.types import F64

PREIMAGE = "reconstruction"


@dataclass(frozen=True)
class Against(Pass):
    """Settings that all parts share; a part is a group of other samples and a span of features, group after group."""

    groups: Cuts = field(default=Cuts(0, 1))
    """How the other samples are divided into groups."""
    new: Pass | None = None
    """The pass over the other samples, where they are data; their features are cut as those of the training data."""

    @property
    def n_parts(self) -> int:
        return len(self.groups) * self.plan.n_spans

    def of_part(self, part: int) -> tuple[slice, int]:
        """The group and the span of a part."""
        group, span = divmod(part, self.plan.n_spans)
        return self.groups[group], span

    def region(self, part: int) -> Region:
        return super().region(self.of_part(part)[1])

    def new_region(self, part: int) -> Region:
        """The smallest region of the other samples that holds a part."""
        assert self.new is not None
        samples, span = self.of_part(part)
        return placed(self.new.region(span), self.new.plan.samples_axis, samples)

    def part(self, part: int) -> tuple[Self, int]:
        restricted, _ = super().part(part)
        if self.new is not None:
            source, of_all = self.new.source.restrict(self.new_region(part)), self.new.regressors
            regressors = None if of_all is None else of_all[self.of_part(part)[0]]
            restricted = replace(restricted, new=replace(self.new, source=source, regressors=regressors))
        return restricted, part

    def inputs(self, part: int) -> tuple[tuple[Source, Region], ...]:
        new = () if self.new is None else ((self.new.source, self.new_region(part)),)
        return (*super().inputs(part), *new)

    @property
    def read_seconds(self) -> float:
        return min(super().read_seconds, self.new.read_seconds if self.new else math.inf)

    @property
    def blocks(self) -> Mapping[Any, Any]:
        return {**super().blocks, **(self.new.blocks if self.new else {})}

    def with_blocks(self, blocks: Mapping[Any, Any]) -> Self:
        updated = super().with_blocks(blocks)
        return updated if self.new is None else replace(updated, new=self.new.with_blocks(blocks))

    def damage(self, part: int) -> str | None:
        samples, span = self.of_part(part)
        slabs = (slab for tile in self.tiles(span) for slab in self.plan.slabs_of(tile))
        regions = (placed(self.plan.region(slab), self.plan.samples_axis, samples) for slab in slabs)
        return damage_of(self.outputs, self.writes, regions)


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
    samples, span = work.of_part(part)
    m, n = samples.stop - samples.start, work.plan.n_samples
    sums, product = Cross.empty(m, n), np.empty((m, n), work.working_dtype)
    old_panels, new_panels = work.feature_panels(), work.new.feature_panels()
    axis = work.new.plan.samples_axis
    with work.reading(span) as old, work.new.source.open() as new:
        new.will_read(placed(region, axis, samples) for region in work.new.slab_regions(span))
        for tile in work.tiles(span):
            fitted_tile, coefficients = fitted.of_mean(tile), fitted.regressed(tile)
            for slab in work.plan.slabs_of(tile):
                inside = within(slab, tile)
                mean, divisor = (values[inside].reshape(-1) for values in fitted_tile)
                of_slab = None if coefficients is None else coefficients[(slice(None), *inside)]
                region, beside = work.plan.region(slab), placed(work.new.plan.region(slab), axis, samples)
                raw, other = old.read(region), new.read(beside)
                sums.kept += np.count_nonzero(counting(mean, divisor))
                theirs = new_panels.applied(other, mean, divisor, work.new.fit(of_slab), sums.absent)
                for x, y in zip(
                    located_panels(work, raw, region, old_panels.applied(raw, mean, divisor, work.fit(of_slab))),
                    located_panels(work.new, other, beside, theirs),
                    strict=True,
                ):
                    sums.products += _product(y.matrix, x.matrix, product)
                    sums.rows += y.squares
                    sums.columns += x.squares
                    sums.row_mean_product += y.mean_product
                    sums.column_mean_product += x.mean_product
                    sums.mean_norm2 += x.mean_norm2
                report(raw.nbytes + other.nbytes)
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
    samples, span = work.of_part(part)
    weights = wanted.weights[samples].astype(work.working_dtype)
    means = wanted.means[samples, None]
    panels = work.feature_panels()
    with work.reading(span) as reader:
        for tile in work.tiles(span):
            fitted_tile = fitted.of_mean(tile)
            for slab in work.plan.slabs_of(tile):
                mean, divisor = (values[within(slab, tile)].reshape(-1) for values in fitted_tile)
                region = work.plan.region(slab)
                raw = reader.read(region)
                values = np.empty((len(weights), mean.size), work.working_dtype)
                for panel in located_panels(work, raw, region, panels.applied(raw, mean, divisor)):
                    along = slice(panel.start, panel.stop)
                    values[:, along] = (weights @ panel.matrix) * divisor[along] + means * mean[along]
                _write(work, slab, samples, values)
                report(raw.nbytes)
    return 0


def _write(work: Against, slab: Box, samples: slice, values: NDArray[Any]) -> None:
    axis = work.plan.samples_axis
    shape = [piece.stop - piece.start for piece in slab]
    work.write(
        PREIMAGE,
        placed(work.plan.region(slab), axis, samples),
        np.moveaxis(values.reshape(len(values), *shape), 0, axis),
    )
