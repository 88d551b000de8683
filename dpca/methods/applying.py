"""Tasks that apply a fit: scores of new samples, and samples from scores."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dpca.execution.progress import Report
from dpca.methods.passes import Pass, damage_of
from dpca.methods.sweeps import Sweep
from dpca.numerics.accumulators.tallies import Counts
from dpca.numerics.feature_panels import counting
from dpca.numerics.least_squares import add_products, n_sums
from dpca.numerics.regression import Regressed
from dpca.numerics.sparse_panels import applied
from dpca.slabs import Box, Cuts, placed
from dpca.sources.base import Region
from dpca.store.fitted import Fitted
from dpca.store.stored import Stored
from dpca.types import F64


@dataclass(frozen=True)
class GroupedPass(Pass):
    """A pass for groups of samples, one after the other; a part is a group and a span of features."""

    groups: Cuts = field(default=Cuts(0, 1))
    """How the samples are divided into groups."""

    @property
    def n_parts(self) -> int:
        return len(self.groups) * self.plan.n_spans

    def group_of(self, part: int) -> slice:
        """The samples of a part."""
        return self.groups[part // self.plan.n_spans]

    def tiles(self, part: int) -> Iterator[Box]:
        return super().tiles(part % self.plan.n_spans)

    def region(self, part: int) -> Region:
        return super().region(part % self.plan.n_spans)

    def part(self, part: int) -> tuple[Self, int]:
        return super().part(part)[0], part


@dataclass(frozen=True)
class Projection(GroupedPass):
    """Settings that all parts of a pass over new samples share; `plan` is that of one group, the largest where sizes differ."""

    least_squares: bool = False
    """Whether products of components over the values that a sample has are added up, too (`dpca.numerics.least_squares`)."""

    def part(self, part: int) -> tuple[Self, int]:
        restricted, _ = super().part(part)
        if self.regressors is not None:
            restricted = replace(restricted, regressors=self.regressors[self.group_of(part)])
        return restricted, part

    def region(self, part: int) -> Region:
        return placed(super().region(part), self.plan.samples_axis, self.group_of(part))

    def region_of(self, slab: Box, part: int) -> Region:
        return placed(super().region_of(slab, part), self.plan.samples_axis, self.group_of(part))

    @property
    def _has_lines(self) -> bool:
        return self.source.lines_axis is not None and not self.least_squares


@dataclass(frozen=True)
class ScoredSamples:
    """Measurements of new samples beside their scores, (samples,) each."""

    squares: F64
    """Squared distances from the mean."""
    kept: F64
    """Number of features that the fit kept and that have a weight, the same for all."""
    absent: F64
    """Number of values of these that are missing."""
    standard_errors: F64 | None = None
    """Standard errors of scores by least squares, (samples, n_components)."""


N_MEASURED = 3
"""Squares, kept and absent."""


def projection_span(work: Projection, fitted: Fitted, part: int, report: Report) -> F64:
    """Scores ((Y - 1 m') diag(t)) W of a group of new samples over a span's features, and what belongs to them.

    Returns
    -------
    (samples of the group, n_components + N_MEASURED): after the scores those of `ScoredSamples`; for least squares after these the products of
    components over the values that a sample has
    """
    samples, k = work.group_of(part), fitted.components.shape[0]
    sums = np.zeros((samples.stop - samples.start, k + N_MEASURED + work.least_squares * n_sums(k)))
    scores, (squares, kept, absent), products = sums[:, :k], sums[:, k : k + N_MEASURED].T, sums[:, k + N_MEASURED :]
    standardizer = work.feature_panels()
    for tile, slabs in work.read(part, Counts(), report, as_lines=True):
        fitted_tile = fitted.of(tile)  # read once, since a stored chunk may be larger than a slab
        for slab in slabs:
            mean, scale, components = fitted_tile.flat(slab.inside)
            fit = work.baseline(fitted_tile.regressed(slab.inside))
            kept += np.count_nonzero(counting(mean, scale))
            if slab.lines is not None and (found := applied(slab.lines, mean, scale, components)) is not None:
                scores += found[0]
                squares += found[1]
                continue

            def receive_missing(
                start: int, stop: int, missing: NDArray[np.bool_] | None, components: F64 = components
            ) -> None:
                add_products(products, components[:, start:stop], missing)

            receive = receive_missing if work.least_squares else None
            for start, stop, block in slab.located(standardizer.apply(slab.raw, mean, scale, fit, absent, receive)):
                scores += block @ components[:, start:stop].T
                squares += np.einsum("nf,nf->n", block, block)
    return sums


@dataclass(frozen=True)
class Reconstruction(Sweep):
    """Settings that all parts of a reconstruction share; a part is a block of groups and a span of features."""

    dtype: np.dtype[Any] = field(default=np.dtype(np.float64))
    """Type of the values that are written."""
    groups: Cuts = field(default=Cuts(0, 1))
    n_blocks: int = 1
    """Number of blocks of groups; components are read once for each block."""

    @property
    def n_parts(self) -> int:
        return self.n_blocks * self.plan.n_spans

    def groups_of(self, block: int) -> Iterator[slice]:
        """The groups of a block."""
        first, last = (number * len(self.groups) // self.n_blocks for number in (block, block + 1))
        yield from (self.groups[number] for number in range(first, last))

    def damage(self, part: int) -> str | None:
        """Fault of a part that was written before; None if there is none."""
        block, span = divmod(part, self.plan.n_spans)
        slabs = (slab for tile in self.plan.tiles_of(span) for slab in self.plan.slabs_of(tile))
        return damage_of(
            self.outputs,
            self.writes,
            (self.placed(slab, samples) for slab in slabs for samples in self.groups_of(block)),
        )

    def placed(self, slab: Box, samples: slice) -> Region:
        """The region where a slab of a group of samples is written."""
        return placed(self.plan.region(slab), self.plan.samples_axis, samples)


@dataclass(frozen=True)
class Scores:
    """Scores of the samples to reconstruct."""

    values: Stored
    """(n_samples, n_components) at least."""
    factors: F64
    """By which the scores of each component are multiplied, to undo whitening, (n_components,)."""
    samples: NDArray[np.int64]
    """Numbers of the samples, in the order in which they are written."""
    regressors: F64 | None = None
    """Regressors of the samples of the fit, (n_samples, p), whose fit is added; None for none."""

    def of(self, group: slice) -> F64:
        """Scores of a group of the samples, (samples, n_components)."""
        values = self.values.rows(self.samples[group])
        return np.asarray(values[:, : len(self.factors)] * self.factors, np.float64)

    def restore(self, values: NDArray[Any], group: slice, mean: F64, regressed: Regressed | None) -> None:
        """Give a group of the samples back what was subtracted, in place; values are (samples, features...)."""
        if self.regressors is None or regressed is None:
            values += mean
        else:
            regressed.at(self.regressors[self.samples[group]]).give(values, mean)


def reconstruction_span(work: Reconstruction, fitted: Fitted, scores: Scores, part: int, report: Report) -> int:
    """Write a block of samples over a span's features: 1 m' + (Z W') diag(1/t), t = weight / scale, and the fit."""
    block, span = divmod(part, work.plan.n_spans)
    k = len(scores.factors)
    for tile in work.plan.tiles_of(span):
        for slab in work.plan.slabs_of(tile):
            fitted_slab = fitted.of(slab, k)
            components = fitted_slab.components.astype(work.dtype, copy=False)
            for samples in work.groups_of(block):
                values = np.tensordot(scores.of(samples).astype(work.dtype), components, axes=1)
                values *= fitted_slab.back(tuple(slice(None) for _ in slab))
                scores.restore(values, samples, fitted_slab.mean, fitted_slab.regression)
                region = work.placed(slab, samples)
                work.outputs.write_part(work.writes[0], region, np.moveaxis(values, 0, work.plan.samples_axis))
                report(values.nbytes)
    return 0


RECONSTRUCTION = "reconstruction"
