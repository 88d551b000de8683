"""The spans of passes over the data: what one task computes, and writes, of the slabs that it reads.

These functions do not depend on a scheduler: they take plain values, run anywhere, and give the same when run again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from dpca.execution.progress import Report
from dpca.methods.passes import Pass
from dpca.numerics.accumulators import Accumulator, nothing, tally_of
from dpca.numerics.accumulators.block_product import BlockProduct, Product
from dpca.numerics.accumulators.grouped import Cell, OfCells, OfGroup
from dpca.numerics.accumulators.tallies import Counts, Present
from dpca.numerics.backproject import BackprojectionPartial
from dpca.numerics.division import Along, of_features
from dpca.numerics.feature_panels import FeaturePanels
from dpca.numerics.inner_products import Roots
from dpca.numerics.known_panels import KnownRows
from dpca.numerics.panels import About, FeaturePanel, Means, Rules
from dpca.slabs import Plan, extent
from dpca.store.arrays import GROUP_SCALE, REGRESSION
from dpca.types import F64


def first_span_of_features(work: Pass, span: int, report: Report) -> OfCells:
    """First pass over features: add up what the solver needs; write means and scales, where there are outputs."""
    begin = partial(nothing, work.solver, work.plan, work.rules, work.random_columns, work.n_known)
    # H K H removes what is left of the means, and is exact where the sums are exact.
    panels = work.feature_panels(rounded=True, columns=work.random_columns)
    return _features_added_up(work, begin, panels, span, report)


def first_product_of_features(work: Pass, block: F64, span: int, report: Report) -> OfCells:
    """First pass over features by block Krylov: add up K Q; write means and scales, where there are outputs.

    Parameters
    ----------
    block : Q, (n_samples, l)
    """
    begin = partial(product_with, block, work.plan, work.rules, work.random_columns)
    panels = work.feature_panels(columns=work.random_columns)
    return _features_added_up(work, begin, panels, span, report)


def product_with(block: F64, plan: Plan, rules: Rules, columns: F64) -> Accumulator:
    """The product with a block of vectors over no data: of the contract it has what passes use, since no m x m matrix is there to solve."""
    return cast(Accumulator, BlockProduct.after(block, tally_of(plan, rules, columns)))


def _features_added_up(
    work: Pass, begin: Callable[[], Accumulator], standardizer: FeaturePanels, span: int, report: Report
) -> OfCells:
    """The sums of a span of features, each of which begins as `begin` returns it."""
    plan, counts, sparse = work.plan, Counts(), work.sparse_panels(columns=work.random_columns)
    sums = dict[Cell, Accumulator]()
    with work.weighing() as weights_of, work.inner() as roots_of:
        for tile, slabs in work.read(span, counts, report, as_lines=work.solver != "tsqr"):
            found = {name: work.values_of(name, tile) for name in work.writes}
            for slab in slabs:
                of_slab = {name: work.values_of(name, (slice(0, slab.width),)) for name in found}
                weights, roots = weights_of(slab.box), roots_of(slab.box)
                for cell, along in work.division.cells(slab.box, plan.feature_shape, span):
                    own = weights if along is None or weights is None else weights[along]
                    if cell not in sums:
                        sums[cell] = begin()
                    panels: Iterator[FeaturePanel]
                    if slab.lines is not None and (stored := sparse.of_features(slab.lines, own)) is not None:
                        panels = iter([stored])
                    else:
                        some = slab.raw
                        if along is not None:
                            some = of_features(some, plan.samples_axis, plan.kept_fastest, along)
                        panels = slab.located(standardizer.panels(some, own, roots))
                    for panel in sums[cell].of_slab(panels):
                        assert isinstance(panel, FeaturePanel)
                        of_panel = {
                            "mean": panel.mean,
                            "scale": panel.divisor,
                            "weights": panel.weights,
                            REGRESSION: panel.regression,
                            GROUP_SCALE: panel.group_scale,
                        }
                        place = _of_slab(along, panel.start, panel.stop)
                        for name, values in of_slab.items():
                            values[..., place] = of_panel[name]
                inside: tuple[Any, ...] = (..., *slab.inside)
                for name, values in of_slab.items():
                    found[name][inside] = values.reshape(*values.shape[:-1], *extent(slab.box))
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
    sparse = work.sparse_panels(columns=work.random_columns)
    for _, slabs in work.read(span, accumulator.tally.counts, report, as_lines=work.solver != "tsqr"):
        for slab in slabs:
            stored = None if slab.lines is None else sparse.of_samples(slab.lines)
            panels = slab.located(standardizer.panels(slab.raw)) if stored is None else iter([stored])
            for _ in accumulator.of_slab(panels):
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
    standardizer, sparse = None if work.is_affine else work.feature_panels(), work.sparse_panels()
    own = block.astype(np.float64)
    with work.weighing() as weights_of, work.inner() as roots_of:
        for tile, slabs in work.read(span, found.counts, report, as_lines=True):
            mean, scale, weights = (work.of_features(name, tile) for name in ("mean", "scale", "weights"))
            for slab in slabs:
                if slab.lines is not None:
                    about, factor = (of_tile[slab.inside].reshape(-1) for of_tile in (mean, weights / scale))
                    if (part := sparse.known(slab.lines, about, factor)) is not None:
                        found.add_lines(own, part)
                        continue
                if standardizer is None:
                    about, factor = (of_tile[slab.inside].reshape(-1) for of_tile in (mean, weights / scale))
                    gone = np.isnan(about)
                    left_out = gone if gone.any() else None
                    about, factor = np.where(gone, 0.0, about), np.where(gone, 0.0, factor)
                    rows = KnownRows(slab.raw, plan, about, work.working_dtype, layout.missing_values, left_out)
                    found.add(block, rows.width, rows, None if (factor == 1).all() else factor)
                    continue
                panels = standardizer.panels(slab.raw, weights_of(slab.box), roots_of(slab.box))
                for panel in slab.located(panels):
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
    own, sparse = (factor * block if known else block).astype(work.working_dtype), work.sparse_panels()
    for _, slabs in work.read(span, found.counts, report, as_lines=True):
        for slab in slabs:
            if slab.lines is not None and (part := sparse.about(slab.lines, about)) is not None:
                if known:  # factors are applied to the block, and to the sum
                    part = replace(part, factor=np.ones(len(factor)))
                found.add_lines(factor * block if known else block, part, columns if sketched else None)
                continue
            if known:
                rows = KnownRows(slab.raw, work.plan, mean, work.working_dtype, layout.missing_values)
                found.add(own, rows.width, rows)
                continue
            for panel in slab.located(standardizer.panels(slab.raw)):
                found.add(own, panel.stop - panel.start, panel.matrix.__getitem__)
                if sketched:
                    found.sketch += panel.sketch
    if known:
        found.matrix *= factor
    return found


def present_span(work: Pass, span: int, report: Report) -> Present:
    """Pass before the first one over samples: the mean of each feature's values that are not missing."""
    present, standardizer = Present.empty(work.plan.n_kept), work.sample_panels()
    for _, slabs in work.read(span, present.counts, report):
        for slab in slabs:
            for counted in slab.located(standardizer.present(slab.raw)):
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
    standardizer, sparse = work.feature_panels(), work.sparse_panels()
    with work.weighing() as weights_of, work.inner() as roots_of:
        for tile, slabs in work.read(span, measured.counts, report, as_lines=True):
            found = [np.empty((alpha.shape[1], *extent(tile)), stored) for _ in work.writes]
            means = work.of_features("mean", tile)
            for slab in slabs:
                mean = means[slab.inside].reshape(-1)
                of_slab, weights = np.empty((alpha.shape[1], slab.width), stored), weights_of(slab.box)
                roots = roots_of(slab.box)
                if slab.lines is not None and (panel := sparse.of_features(slab.lines, weights)) is not None:
                    assert panel.lines is not None
                    of_slab[...] = measured.add_lines(panel.lines, alpha, stored)
                else:
                    for start, stop, matrix in slab.located(standardizer.again(slab.raw, mean, weights, roots)):
                        of_slab[:, start:stop] = measured.add(matrix, alpha, stored)
                kinds = [of_slab] if roots is None else of_inner(of_slab, roots)
                for components, of_kind in zip(found, kinds, strict=True):
                    # A feature that was left out has no component: NaN, since 0 would look like one.
                    of_kind[:, np.isnan(mean)] = np.nan
                    components[(slice(None), *slab.inside)] = of_kind.reshape(-1, *extent(slab.box))
            for name, components in zip(work.writes, found, strict=True):
                work.write(name, tile, components)
    return OfGroup(work.group, measured)


def of_inner(components: NDArray[Any], roots: Roots) -> list[NDArray[Any]]:
    """The maps that are orthonormal in an inner product, of the components of the features times its factors; and what scores are products with."""
    rows = components.astype(np.float64)
    return [found.astype(components.dtype) for found in (roots.undone(rows), roots.times_transposed(rows))]


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
    standardizer, sparse = work.sample_panels(columns=columns, fill=fill, about=about), work.sparse_panels()
    for tile, slabs in work.read(span, measured.counts, report, as_lines=True):
        vectors = np.empty((alpha.shape[1], *extent(tile)))
        for slab in slabs:
            of_slab = vectors[(slice(None), *slab.inside)]
            if slab.lines is not None and (part := sparse.about(slab.lines, about)) is not None:
                of_slab[...] = measured.add_lines(part, alpha, vectors.dtype, sketched=True)
                continue
            for panel in slab.located(standardizer.panels(slab.raw)):
                of_slab[:, panel.start : panel.stop] = measured.add(panel.matrix, alpha)
                measured.sketch += panel.sketch
        work.write(work.writes[0], tile, vectors)
    return measured
