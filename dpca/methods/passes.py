"""Tasks of the passes: open the source, stream the slabs of a span, and return their sum.

These functions do not depend on a scheduler: they take plain values, run anywhere, and give the same when run again.
The task that reads a slab also uses it. Outputs with feature axes are written here, tile by tile; what is
returned is m x m, m x k or k x k, with m samples (or features) kept, however much data stream by.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from dpca.errors import DataError
from dpca.execution.progress import Report
from dpca.execution.stage import Work
from dpca.genotypes.dosages import COPIES, ROUNDING, explained
from dpca.numerics.accumulators import Accumulator, nothing, tally_of
from dpca.numerics.accumulators.block_product import BlockProduct, Product
from dpca.numerics.accumulators.grouped import Cell, OfCells, OfGroup
from dpca.numerics.accumulators.tallies import Counts, Present
from dpca.numerics.backproject import BackprojectionPartial
from dpca.numerics.division import WHOLE, Along, Division, of_features
from dpca.numerics.dosages import DosagePanels, NotDosage
from dpca.numerics.feature_panels import FeaturePanels
from dpca.numerics.known_panels import KnownRows
from dpca.numerics.panels import About, FeaturePanel, Means, Rules
from dpca.numerics.preprocess import NotExact, NotFinite, is_beyond_float64
from dpca.numerics.regression import Regression
from dpca.numerics.sample_panels import SamplePanels
from dpca.numerics.sketch import random_columns
from dpca.numerics.weights import SampleWeights
from dpca.settings import INPUT, PREPROCESS
from dpca.slabs import Box, Plan
from dpca.sources.base import Layout, Reader, Region, Source, describe, within
from dpca.sources.missing import EVERY
from dpca.sources.weights import FeatureWeights, equal_weights
from dpca.store.arrays import REGRESSION, of_group
from dpca.store.outputs import Outputs
from dpca.system.machine import release_memory
from dpca.types import F64


@dataclass(frozen=True)
class Pass(Work):
    """Settings that all spans of a pass share."""

    source: Source
    plan: Plan
    rules: Rules
    working_dtype: np.dtype[Any]
    solver: str = "gram_eigh"
    outputs: Outputs | None = None
    """Where arrays with the streamed axes are written; None where there are none."""
    writes: tuple[str, ...] = ()
    """Names of the arrays that spans write, each span its own tiles; of the only group, or of the group of that name."""
    group: int = 0
    """The number of the input, where there are several side by side."""
    division: Division = WHOLE
    """The sums that its features are added to."""
    name: str = ""
    """The name of the group, which the names of its arrays end with; empty for the only one."""
    factor: float = 1.0
    """Factor of the features of the group, against those of other groups."""
    stored_dtype: np.dtype[Any] | None = None
    """Type of the stored components; the working dtype if None."""
    weights: FeatureWeights | None = None
    """Weights of the features; None for equal ones."""
    sample_weights: SampleWeights | None = None
    """Weights of the samples; None for equal ones."""
    regression: Regression | None = None
    """The fit of regressors that is subtracted beside means; None for none."""
    reference: F64 | None = None
    """Samples of dosages whose means and frequencies are taken: 1, else 0; None for all."""
    regressors: F64 | None = None
    """Regressors of samples that a fit is applied to, (samples, p), of which it has the coefficients; None for none."""
    n_known: int = 0
    """Number of the first samples whose products are known, and not added up."""
    backwards: bool = False
    """Whether the last span comes first: what the pass before read last may still be in the page cache."""

    def tiles(self, span: int) -> Iterator[Box]:
        """The tiles of a span."""
        return self.plan.tiles_of(self._number(span))

    def region(self, span: int) -> Region:
        """The smallest region that holds a span's slabs."""
        return self.plan.region(self.plan.bounds_of(self._number(span)))

    def _number(self, span: int) -> int:
        """The number of a span in the plan."""
        return self.plan.n_spans - 1 - span if self.backwards else span

    @contextmanager
    def reading(self, span: int) -> Iterator[Reader]:
        """An open reader of the source, which knows which slabs it will be asked for."""
        with self.source.open() as reader:
            reader.will_read(self.slab_regions(span))
            yield reader

    def weighing(self) -> AbstractContextManager[Callable[[Box], F64 | None]]:
        """A function that returns the weights of a box of features, as `FeatureWeights.open`, times the group's factor."""
        weighing = equal_weights() if self.weights is None else self.weights.open()
        return weighing if self.factor == 1 else self._multiplied(weighing)

    @contextmanager
    def _multiplied(
        self, weighing: AbstractContextManager[Callable[[Box], F64 | None]]
    ) -> Iterator[Callable[[Box], F64 | None]]:
        with weighing as weights_of:

            def multiplied(box: Box) -> F64:
                weights = weights_of(box)
                return np.full(_size(box), self.factor) if weights is None else weights * self.factor

            yield multiplied

    def masked(self) -> NDArray[np.bool_] | None:
        """Mask of the features that weights leave out, where features are kept, (n_features,); None without weights."""
        weights = None if self.weights is None else self.weights.of_all(self.plan.feature_shape)
        return None if weights is None else np.isnan(weights)

    def slab_regions(self, span: int) -> Iterator[Region]:
        """The regions of the slabs of a span."""
        return (self.plan.region(slab) for tile in self.tiles(span) for slab in self.plan.slabs_of(tile))

    @property
    def n_parts(self) -> int:
        return self.plan.n_spans

    def part(self, span: int) -> tuple[Self, int]:
        region, weights = self.region(span), self.weights
        if weights is not None and self.plan.keeps == "samples":
            axis = self.plan.samples_axis
            weights = weights.restrict(region[:axis] + region[axis + 1 :])
        division = self.division
        if self.plan.keeps == "samples":
            division = division.restrict(self.plan.features_in(region))
        return replace(self, source=self.source.restrict(region), weights=weights, division=division), span

    def inputs(self, span: int) -> tuple[tuple[Source, Region], ...]:
        return ((self.source, self.region(span)), *(() if self.weights is None else self.weights.inputs))

    @property
    def read_seconds(self) -> float:
        return self.source.layout.read_seconds

    @property
    def blocks(self) -> Mapping[Any, Any]:
        return self.source.blocks

    def with_blocks(self, blocks: Mapping[Any, Any]) -> Self:
        return replace(self, source=self.source.with_blocks(blocks))

    def write(self, name: str, region: Region, values: NDArray[Any]) -> None:
        """Write a part of an output."""
        assert self.outputs is not None
        self.outputs.write_part(of_group(name, self.name), region, values)

    def damage(self, span: int) -> str | None:
        return damage_of(self.outputs, [of_group(name, self.name) for name in self.writes], self.tiles(span))

    @property
    def random_columns(self) -> F64:
        """The random matrix Omega of the sketch, (m, t)."""
        return columns_of(self.plan, self.rules)

    def feature_panels(self, *, rounded: bool = False, columns: F64 | None = None) -> FeaturePanels:
        """Preprocessing of features that stream by; `rounded` where a rounded mean may be subtracted."""
        panels = FeaturePanels if self.rules.convention is None else DosagePanels
        return panels(
            *self._as_stored,
            integers=rounded and self._narrow,
            columns=columns,
            sample_weights=self.sample_weights,
            regression=self.regression,
            reference=self.reference,
        )

    def fit(self, coefficients: F64 | None) -> tuple[F64, F64] | None:
        """The regressors of the samples, and their coefficients for some features, flattened; None where there are none."""
        if self.regressors is None or coefficients is None:
            return None
        return self.regressors, coefficients.reshape(len(coefficients), -1)

    def values_of(self, name: str, box: Box) -> F64:
        """An array for what features have, by box: of a regression, a coefficient for each regressor."""
        shape = _shape(box)
        if name == REGRESSION and self.regression is not None:
            shape = (self.regression.n_regressors, *shape)
        return np.empty(shape)

    def sample_panels(
        self,
        *,
        rounded: bool = False,
        columns: F64 | None = None,
        fill: Means | None = None,
        about: About | None = None,
    ) -> SamplePanels:
        """Preprocessing of samples that stream by; `columns`, `fill` and `about` as in SamplePanels."""
        return SamplePanels(
            *self._as_stored,
            integers=rounded and self._narrow,
            masked=self.masked(),
            columns=columns,
            fill=fill,
            about=about,
        )

    @property
    def _as_stored(
        self,
    ) -> tuple[Plan, Rules, np.dtype[Any], Sequence[float], tuple[float, float], tuple[float, float]]:
        """The beginning of the arguments of a Standardizer."""
        layout = self.source.layout
        return self.plan, self.rules, self.working_dtype, layout.missing_values, layout.valid_range, layout.packing

    @property
    def is_affine(self) -> bool:
        """Whether a known mean, and factors, are all that lies between stored values and X_c: the fast path applies."""
        layout = self.source.layout
        return (
            layout.packing == (1.0, 0.0)
            and layout.valid_range == EVERY
            and self.regression is None
            and self.factor == 1
            # A missing value is its feature's mean, which is not 0 in data that are not centred.
            and (self.rules.center or self.rules.missing == "error")
        )

    @property
    def _narrow(self) -> bool:
        """Whether values are 8-bit integers that are centred, so that products may be exact."""
        layout = self.source.layout
        narrow = layout.dtype.kind in "iub" and layout.dtype.itemsize == 1
        return narrow and layout.packing == (1.0, 0.0) and self.rules.center


def columns_of(plan: Plan, rules: Rules) -> F64:
    """The random matrix Omega of the sketch of a pass, (m, t)."""
    return random_columns(plan.n_kept, rules.centered and plan.keeps == "samples")


def first_span_of_features(work: Pass, span: int, report: Report) -> OfCells:
    """First pass over features: add up what the solver needs; write means and scales, where there are outputs."""
    begin = partial(nothing, work.solver, work.plan, work.rules, work.random_columns, work.n_known)
    # H K H removes what is left of the means, and is exact where the sums are exact.
    return _features_added_up(work, begin, work.feature_panels(rounded=True, columns=work.random_columns), span, report)


def first_product_of_features(work: Pass, block: F64, span: int, report: Report) -> OfCells:
    """First pass over features by block Krylov: add up K Q; write means and scales, where there are outputs.

    Parameters
    ----------
    block : Q, (n_samples, l)
    """
    begin = partial(product_with, block, work.plan, work.rules, work.random_columns)
    return _features_added_up(work, begin, work.feature_panels(columns=work.random_columns), span, report)


def product_with(block: F64, plan: Plan, rules: Rules, columns: F64) -> Accumulator:
    """The product with a block of vectors over no data: of the contract it has what passes use, since no m x m matrix is there to solve."""
    return cast(Accumulator, BlockProduct.after(block, tally_of(plan, rules, columns)))


def _features_added_up(
    work: Pass, begin: Callable[[], Accumulator], standardizer: FeaturePanels, span: int, report: Report
) -> OfCells:
    """The sums of a span of features, each of which begins as `begin` returns it."""
    plan, counts = work.plan, Counts()
    sums = dict[Cell, Accumulator]()
    with work.reading(span) as reader, work.weighing() as weights_of:
        for tile in work.tiles(span):
            found = {name: work.values_of(name, tile) for name in work.writes}
            for slab, raw, located in slabs_read(work, reader, tile, counts, report):
                of_slab = {name: work.values_of(name, (slice(0, _size(slab)),)) for name in found}
                weights = weights_of(slab)
                for cell, along in work.division.cells(slab, plan.feature_shape, span):
                    some, own = raw, weights
                    if along is not None:
                        some = of_features(raw, plan.samples_axis, plan.kept_fastest, along)
                        own = None if weights is None else weights[along]
                    if cell not in sums:
                        sums[cell] = begin()
                    for panel in sums[cell].of_slab(located(standardizer.panels(some, own))):
                        assert isinstance(panel, FeaturePanel)
                        of_panel = {"mean": panel.mean, "scale": panel.divisor, "weights": panel.weights}
                        place = _of_slab(along, panel.start, panel.stop)
                        for name, values in of_slab.items():
                            values[..., place] = of_panel.get(name, panel.regression)
                for name, values in of_slab.items():
                    inside: tuple[Any, ...] = (..., *within(slab, tile))
                    found[name][inside] = values.reshape(*values.shape[:-1], *_shape(slab))
            for name, values in found.items():
                work.write(name, tile, values)
    counts.n_plausible = standardizer.n_plausible
    found_sums = OfCells.of(sums)
    found_sums.sums[0].tally.counts.merge(counts)
    return found_sums


def _of_slab(along: Along | None, start: int, stop: int) -> Along:
    """Where features of a panel lie in their slab, if this is a panel of some of them."""
    if along is None:
        return slice(start, stop)
    return slice(along.start + start, along.start + stop) if isinstance(along, slice) else along[start:stop]


def first_span_of_samples(work: Pass, fill: Means | None, span: int, report: Report) -> OfCells:
    """First pass over samples: add up what the solver needs.

    Parameters
    ----------
    fill : what replaces the missing values of each feature; None where no value may be missing
    """
    accumulator = nothing(work.solver, work.plan, work.rules, work.random_columns, work.n_known)
    # A QR factorization can't remove what a rounded mean left.
    return _samples_added_up(work, accumulator, fill, work.solver != "tsqr", span, report)


def first_product_of_samples(work: Pass, fill: Means | None, block: F64, span: int, report: Report) -> OfCells:
    """First pass over samples by block Krylov: add up S Q, and the moments.

    Parameters
    ----------
    fill : as for `first_span_of_samples`
    block : Q, (n_features, l)
    """
    accumulator = product_with(block, work.plan, work.rules, work.random_columns)
    return _samples_added_up(work, accumulator, fill, False, span, report)


def _samples_added_up(
    work: Pass, accumulator: Accumulator, fill: Means | None, rounded: bool, span: int, report: Report
) -> OfCells:
    """The sum of a span of samples."""
    standardizer = work.sample_panels(rounded=rounded, columns=work.random_columns, fill=fill)
    with work.reading(span) as reader:
        for tile in work.tiles(span):
            for _, raw, located in slabs_read(work, reader, tile, accumulator.tally.counts, report):
                for _ in accumulator.of_slab(located(standardizer.panels(raw))):
                    pass
    accumulator.tally.counts.n_plausible = standardizer.n_plausible
    return OfCells.of({(0, 0): accumulator})


def product_of_features(work: Pass, block: NDArray[Any], span: int, report: Report) -> Product:
    """A later pass over features by block Krylov: X_c (X_c' Q) of a span, about the means that the first pass has written.

    Parameters
    ----------
    block : Q, (n_samples, l), in working precision
    """
    found, layout, plan = Product.empty(len(block), block.shape[1]), work.source.layout, work.plan
    standardizer = None if work.is_affine else work.feature_panels()
    assert work.outputs is not None
    with work.reading(span) as reader, work.weighing() as weights_of:
        for tile in work.tiles(span):
            mean, scale, weights = (
                work.outputs.read_part(of_group(name, work.name), tile) for name in ("mean", "scale", "weights")
            )
            for slab, raw, located in slabs_read(work, reader, tile, found.counts, report):
                if standardizer is None:
                    about, factor = (of_tile[within(slab, tile)].reshape(-1) for of_tile in (mean, weights / scale))
                    gone = np.isnan(about)
                    left_out = gone if gone.any() else None
                    about, factor = np.where(gone, 0.0, about), np.where(gone, 0.0, factor)
                    rows = KnownRows(raw, plan, about, work.working_dtype, layout.missing_values, left_out)
                    found.add(block, rows.width, rows, None if (factor == 1).all() else factor)
                    continue
                for panel in located(standardizer.panels(raw, weights_of(slab))):
                    found.add(block, panel.stop - panel.start, panel.matrix.__getitem__)
    return found


def product_of_samples(
    work: Pass, block: F64, fill: Means | None, about: About, sketched: bool, span: int, report: Report
) -> Product:
    """A later pass over samples by block Krylov: X_c' (X_c Q) of a span.

    Parameters
    ----------
    block : Q, (n_features, l)
    fill : as for `first_span_of_samples`
    about : means and factors of each feature
    sketched : whether the sketch of scaled features is added up, too
    """
    columns = work.random_columns
    found = Product.empty(len(block), block.shape[1], columns.shape[1] if sketched else 0)
    known = work.is_affine and fill is None and not sketched
    standardizer = work.sample_panels(columns=columns if sketched else None, fill=fill, about=about)
    factor, mean, layout = about.factor[:, None], about.origin + about.offset, work.source.layout
    own = (factor * block if known else block).astype(work.working_dtype)
    with work.reading(span) as reader:
        for tile in work.tiles(span):
            for _, raw, located in slabs_read(work, reader, tile, found.counts, report):
                if known:
                    rows = KnownRows(raw, work.plan, mean, work.working_dtype, layout.missing_values)
                    found.add(own, rows.width, rows)
                    continue
                for panel in located(standardizer.panels(raw)):
                    found.add(own, panel.stop - panel.start, panel.matrix.__getitem__)
                    if sketched:
                        found.sketch += panel.sketch
    if known:
        found.matrix *= factor
    return found


def present_span(work: Pass, span: int, report: Report) -> Present:
    """Pass before the first one over samples: the mean of each feature's values that are not missing."""
    present, standardizer = Present.empty(work.plan.n_kept), work.sample_panels()
    with work.reading(span) as reader:
        for tile in work.tiles(span):
            for _, raw, located in slabs_read(work, reader, tile, present.counts, report):
                for counted in located(standardizer.present(raw)):
                    present.add(*counted)
    return present


def components_span(work: Pass, alpha: NDArray[Any], span: int, report: Report) -> OfGroup[BackprojectionPartial]:
    """Second pass over features: write the components W' = alpha' X_c of a span, and measure them.

    Parameters
    ----------
    alpha : (n_samples, n_components), in the working dtype
    """
    stored = work.working_dtype if work.stored_dtype is None else work.stored_dtype
    measured = BackprojectionPartial.empty(work.plan.n_kept, alpha.shape[1], work.random_columns)
    standardizer = work.feature_panels()
    with work.reading(span) as reader, work.weighing() as weights_of:
        for tile in work.tiles(span):
            components = np.empty((alpha.shape[1], *_shape(tile)), stored)
            assert work.outputs is not None
            means = work.outputs.read_part(of_group("mean", work.name), tile)
            for slab, raw, located in slabs_read(work, reader, tile, measured.counts, report):
                mean = means[within(slab, tile)].reshape(-1)
                slab_components = np.empty((alpha.shape[1], _size(slab)), stored)
                for start, stop, matrix in located(standardizer.again(raw, mean, weights_of(slab))):
                    slab_components[:, start:stop] = measured.add(matrix, alpha, stored)
                # A feature that was left out has no component: NaN, since 0 would look like one.
                slab_components[:, np.isnan(mean)] = np.nan
                components[(slice(None), *within(slab, tile))] = slab_components.reshape(-1, *_shape(slab))
            work.write(work.writes[0], tile, components)
    return OfGroup(work.group, measured)


def left_vectors_span(
    work: Pass, alpha: F64, fill: Means | None, about: About, span: int, report: Report
) -> BackprojectionPartial:
    """Second pass over samples: write the left singular vectors U = X_c alpha of a span, and measure them.

    Parameters
    ----------
    alpha : (n_features, n_components)
    fill : as for `first_span_of_samples`
    about : means and factors of each feature
    """
    columns = work.random_columns
    measured = BackprojectionPartial.empty(work.plan.n_kept, alpha.shape[1], columns)
    standardizer = work.sample_panels(columns=columns, fill=fill, about=about)
    with work.reading(span) as reader:
        for tile in work.tiles(span):
            vectors = np.empty((alpha.shape[1], *_shape(tile)))
            for slab, raw, located in slabs_read(work, reader, tile, measured.counts, report):
                slab_vectors = vectors[(slice(None), *within(slab, tile))]
                for panel in located(standardizer.panels(raw)):
                    slab_vectors[:, panel.start : panel.stop] = measured.add(panel.matrix, alpha)
                    measured.sketch += panel.sketch
            work.write(work.writes[0], tile, vectors)
    return measured


@dataclass(frozen=True)
class Sweep(Work):
    """Settings that all spans of a sweep share: it goes over an array that a pass has written, and reads no data.

    It reads one array and writes others, so that it can be repeated.
    """

    plan: Plan
    outputs: Outputs
    writes: tuple[str, ...] = ()
    """Names of the arrays that spans write, each span its own tiles."""
    reads: str = ""
    """Name of the array that the pass has written."""

    @property
    def n_parts(self) -> int:
        return self.plan.n_spans

    def part(self, span: int) -> tuple[Self, int]:
        return self, span

    def damage(self, span: int) -> str | None:
        return damage_of(self.outputs, self.writes, self.plan.tiles_of(span))


def orthogonalize_span(work: Sweep, transform: F64, span: int, report: Report) -> F64:
    """Write T W' for a span's components W'; returns the span's share of the new W'W, (n_components, n_components).

    Parameters
    ----------
    transform : T, (k, k), of the k leading components, usually all
    """
    overlap = np.zeros_like(transform)
    for tile in work.plan.tiles_of(span):
        components = work.outputs.read_part(work.reads, tile)[: len(transform)]
        rows = components.reshape(len(components), -1)
        for start in range(0, rows.shape[1], work.plan.panel_width):
            piece = rows[:, start : start + work.plan.panel_width]
            piece[...] = transform @ piece
            values = np.nan_to_num(piece).astype(np.float64)
            overlap += values @ values.T
        work.outputs.write_part(work.writes[0], tile, components)
        report(components.nbytes)
        del components, rows
        release_memory()
    return overlap


def extremes_span(work: Sweep, transform: F64, span: int, report: Report) -> F64:
    """Largest entry of each rotated left singular vector, U T', of a span: negated and as it is, (2, n_components)."""
    extremes = np.zeros((2, len(transform)))
    for tile in work.plan.tiles_of(span):
        vectors = work.outputs.read_part(work.reads, tile)
        rotated = transform @ vectors
        extremes = np.maximum(extremes, [-rotated.min(axis=1), rotated.max(axis=1)])
        report(vectors.nbytes)
    return extremes


def scores_span(work: Sweep, to_scores: F64, to_alpha: F64, span: int, report: Report) -> F64:
    """Write scores and alpha of a span from its left singular vectors U.

    Parameters
    ----------
    to_scores, to_alpha : (n_components, n_components); U times each is written

    Returns
    -------
    The share of the span in scores' scores, (n_components, n_components)
    """
    overlap = np.zeros_like(to_scores)
    for tile in work.plan.tiles_of(span):
        vectors = work.outputs.read_part(work.reads, tile)
        n_bytes = vectors.nbytes
        alpha = vectors.T @ to_alpha
        work.outputs.write_part(work.writes[1], tile, alpha)
        np.matmul(vectors.T, to_scores, out=alpha)
        del vectors
        overlap += alpha.T @ alpha
        work.outputs.write_part(work.writes[0], tile, alpha)
        del alpha
        release_memory()  # otherwise each thread of zarr keeps the memory of its last chunk
        report(n_bytes)
    return overlap


P = TypeVar("P")


def damage_of(outputs: Outputs | None, names: Sequence[str], regions: Iterable[Box]) -> str | None:
    """Fault of parts of arrays that were written before; None if there is none."""
    if outputs is None or not names:
        return None
    damages = (outputs.damage(name, region) for region in regions for name in names)
    return next((damage for damage in damages if damage), None)


def slabs_read(
    work: Pass, reader: Reader, tile: Box, counts: Counts, report: Report
) -> Iterator[tuple[Box, NDArray[Any], Callable[[Iterator[P]], Iterator[P]]]]:
    """The slabs of a tile, each with its values and a function that adds the place to errors of its panels."""
    for slab in work.plan.slabs_of(tile):
        region = work.plan.region(slab)
        began = time.perf_counter()
        raw = reader.read(region)
        arrived = time.perf_counter()
        yield slab, raw, partial(located_panels, work, raw, region)
        counts.read_seconds += arrived - began
        counts.compute_seconds += time.perf_counter() - arrived
        counts.bytes_read, counts.absent_chunks, counts.retries = (
            reader.bytes_read,
            reader.absent_chunks,
            reader.retries,
        )
        report(raw.nbytes)


def located_panels(work: Pass, raw: NDArray[Any], region: Region, panels: Iterator[P]) -> Iterator[P]:
    """The panels of a region; an error names the place of a value that can't be used."""
    try:
        yield from panels
    except NotFinite:
        raise _not_finite(work, raw, region) from None
    except NotExact:
        raise not_exact(work.source.layout, raw, region) from None
    except NotDosage:
        raise _not_dosage(work, raw, region) from None


def not_exact(layout: Layout, raw: NDArray[Any], region: Region) -> DataError:
    """The error that names the first integer of a region that float64 can't hold."""
    beyond = is_beyond_float64(raw, layout.marked(raw))
    first = np.unravel_index(int(np.argmax(beyond)), raw.shape)
    index = [int(position) + piece.start for position, piece in zip(first, region, strict=True)]
    return DataError(
        f"{layout.name}: {int(beyond.sum())} integers of {raw.dtype} in region {describe(region)} are 2**53 or more in "
        f"magnitude, where float64 rounds them, the first at index {index}: {raw[first]}",
        "Subtract a whole number from the feature where the data are made (from times in nanoseconds the first one), or "
        f"name the value in {INPUT.missing_values} if it marks a missing one.",
        key="input.uri",
    )


def _not_dosage(work: Pass, raw: NDArray[Any], region: Region) -> DataError:
    """The error that names the first value of a region that is no dosage, in the array's own indices."""
    layout = work.source.layout
    factor, offset = layout.packing
    values = raw * factor + offset
    wrong = ((values < -ROUNDING) | (values > COPIES + ROUNDING)) & ~layout.marked(raw)
    first = np.unravel_index(int(np.argmax(wrong)), raw.shape)
    index = [int(position) + piece.start for position, piece in zip(first, region, strict=True)]
    what, remedy = explained(float(values[first]), layout.codes)
    return DataError(
        f"{layout.name}: {int(wrong.sum())} values in region {describe(region)} are no dosages from 0 to {COPIES}, the first at index "
        f"{index} (sample {index[work.plan.samples_axis]}): {what}",
        remedy,
        key="input.uri",
    )


def _not_finite(work: Pass, raw: NDArray[Any], region: Region) -> DataError:
    """The error that names the first missing or infinite value of a region, in the array's own indices."""
    layout = work.source.layout
    missing = np.isnan(raw) if raw.dtype.kind == "f" else np.zeros(raw.shape, bool)
    missing |= layout.marked(raw)
    infinite = np.isinf(raw) if raw.dtype.kind == "f" else np.zeros(raw.shape, bool)
    wrong, names = (missing | infinite), []
    if not wrong.any():
        return DataError(
            f"{layout.name}: values in region {describe(region)} are so large that their sum overflows float64",
            "Store the data in other units.",
        )
    refused = missing | infinite
    if work.rules.missing != "error" and infinite.any():
        refused = infinite  # missing values are filled in
    if (refused & missing).any():
        names.append(f"missing values ({layout.marks})")
        remedy = (
            f"{PREPROCESS.missing.set_to('mean')} to fill missing values with their feature's mean, or repair the data."
        )
        if work.rules.missing != "error":
            remedy = "Fill them in: a fit without centring keeps no means that could."
    if infinite.any():
        names.append("infinities")
        remedy = "Infinities are never filled in: repair the data."
    first = np.unravel_index(int(np.argmax(refused)), refused.shape)
    index = [int(position) + piece.start for position, piece in zip(first, region, strict=True)]
    return DataError(
        f"{layout.name}: {int(refused.sum())} {' and '.join(names)} in region {describe(region)}, the first at index "
        f"{index} (sample {index[work.plan.samples_axis]}): {raw[first]}",
        remedy,
    )


def _shape(box: Box) -> tuple[int, ...]:
    return tuple(piece.stop - piece.start for piece in box)


def _size(box: Box) -> int:
    return math.prod(_shape(box))
