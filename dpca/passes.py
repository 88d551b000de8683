"""What one task does: open the source, stream a span's slabs through, and return what they add up to.

These functions know no scheduler: they take plain values, run anywhere, and do the same when run again.
The task that reads a slab is the one that uses it. Outputs with feature axes are written from here, tile
by tile; what is returned is n x n, n x k or k x k, however many features the span has.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpca.accumulators import SOLVERS, Accumulator
from dpca.accumulators.factors import Tally
from dpca.backproject import BackprojectionPartial
from dpca.errors import DataError
from dpca.outputs import Outputs
from dpca.preprocess import NotFinite, Panel, Rules, Standardizer
from dpca.slabs import Box, Plan
from dpca.sources.base import Reader, Region, Source, describe, is_marked, within

Report = Callable[[int], None]
"""Called with the bytes of each slab that is done. Raises `Cancelled` when the span should stop."""


@dataclass(frozen=True)
class Pass:
    """What every span of a pass shares."""

    source: Source
    plan: Plan
    rules: Rules
    working_dtype: np.dtype[Any]
    solver: str = "gram_eigh"
    outputs: Outputs | None = None
    """Where outputs with feature axes go; None where there are none."""

    def region(self, span: int) -> Region:
        """The smallest region that holds a span's slabs."""
        box: Box | None = None
        for tile in self.plan.tiles_of(span):
            box = (
                tile
                if box is None
                else tuple(slice(min(a.start, b.start), max(a.stop, b.stop)) for a, b in zip(box, tile, strict=True))
            )
        assert box is not None  # a span has a tile at least
        return self.plan.region(box)

    @property
    def n_parts(self) -> int:
        return self.plan.n_spans

    def part(self, span: int) -> Pass:
        """The same with what a span has to carry of its source, and no more."""
        return replace(self, source=self.source.restrict(self.region(span)))

    def write_tile(self, name: str, tile: Box, values: NDArray[Any]) -> None:
        """Write a tile of an output with feature axes."""
        assert self.outputs is not None
        self.outputs.write_tile(name, tile, values)

    def standardizer(self, integers: bool = False) -> Standardizer:
        """Preprocessing of this pass; `integers` where the mean need not be taken away whole."""
        layout = self.source.layout
        narrow = layout.dtype.kind in "iub" and layout.dtype.itemsize == 1 and layout.packing == (1.0, 0.0)
        integers = integers and narrow and self.rules.center and self.rules.scale == "none"
        return Standardizer(self.plan, self.rules, self.working_dtype, layout.missing_values, layout.packing, integers)


def first_span(work: Pass, span: int, report: Report) -> Accumulator:
    """First pass: add up what the solver needs of a span; write means and scales, where there are outputs."""
    found = SOLVERS[work.solver].empty(work.plan.n_samples)
    # H K H takes away what is left of the means, and is exact where the sums are.
    standardizer = work.standardizer(integers=True)
    with work.source.open() as reader:
        for tile in work.plan.tiles_of(span):
            mean, scale = np.empty(_shape(tile)), np.empty(_shape(tile))
            for slab, panels in _slabs(work, reader, standardizer, tile, found.tally, report):
                slab_mean, slab_scale = np.empty(_size(slab)), np.empty(_size(slab))
                for panel in found.of_slab(panels):
                    slab_mean[panel.start : panel.stop] = panel.mean
                    slab_scale[panel.start : panel.stop] = panel.divisor
                inside = within(slab, tile)
                mean[inside] = slab_mean.reshape(_shape(slab))
                scale[inside] = slab_scale.reshape(_shape(slab))
            if work.outputs is not None and (work.rules.center or work.rules.missing != "error"):
                work.write_tile("mean", tile, mean)
            if work.outputs is not None and (work.rules.scale != "none" or work.rules.missing != "error"):
                work.write_tile("scale", tile, scale)
        found.tally.absent_chunks = reader.absent_chunks
    return found.close()


def backprojection_span(work: Pass, alpha: NDArray[Any], span: int, report: Report) -> BackprojectionPartial:
    """Second pass: write the components of a span; measure them.

    Parameters
    ----------
    alpha : (n_samples, n_components), in the working dtype
    """
    n_components = alpha.shape[1]
    partial = BackprojectionPartial.empty(work.plan.n_samples, n_components)
    standardizer = work.standardizer()
    with work.source.open() as reader:
        for tile in work.plan.tiles_of(span):
            components = np.empty((n_components, *_shape(tile)), work.working_dtype)
            for slab, panels in _slabs(work, reader, standardizer, tile, partial, report):
                found = np.empty((n_components, _size(slab)), work.working_dtype)
                for panel in panels:
                    found[:, panel.start : panel.stop] = partial.add(panel, alpha)
                    # A feature without any value has no component: NaN, where 0 would claim one.
                    found[:, panel.start : panel.stop][:, np.isnan(panel.mean)] = np.nan
                components[(slice(None), *within(slab, tile))] = found.reshape(n_components, *_shape(slab))
            work.write_tile("components", tile, components)
    return partial


@dataclass(frozen=True)
class Sweep:
    """What every span of a sweep over components shares; it reads no data."""

    plan: Plan
    outputs: Outputs
    source: None = None

    @property
    def n_parts(self) -> int:
        return self.plan.n_spans

    def part(self, span: int) -> Sweep:
        """The same: there is nothing to leave out."""
        return self


def orthogonalize_span(work: Sweep, transform: NDArray[np.float64], span: int, report: Report) -> NDArray[np.float64]:
    """Replace a span's components W' by T W'; returns what it adds to W'W, (n_components, n_components)."""
    overlap = np.zeros_like(transform)
    for tile in work.plan.tiles_of(span):
        components = work.outputs.read_tile("components", tile)
        rows = components.reshape(len(components), -1)
        for start in range(0, rows.shape[1], work.plan.panel_features):
            piece = rows[:, start : start + work.plan.panel_features]
            piece[...] = transform @ piece
            found = np.nan_to_num(piece).astype(np.float64)
            overlap += found @ found.T
        work.outputs.write_tile("components", tile, components)
        report(components.nbytes)
    return overlap


@dataclass(frozen=True)
class Fitted:
    """What new samples are projected with: arrays with feature axes, sliced by box (NumPy or Zarr)."""

    mean: Any
    scale: Any
    components: Any


def projection_span(work: Pass, fitted: Fitted, span: int, report: Report) -> NDArray[np.float64]:
    """Scores of new samples over a span's features, ((Y - 1 m') diag(t)) W, and in a last column their squared norms.

    Returns
    -------
    (n_samples, n_components + 1)
    """
    scores = np.zeros((work.plan.n_samples, fitted.components.shape[0] + 1))
    standardizer = work.standardizer()
    with work.source.open() as reader:
        for tile in work.plan.tiles_of(span):
            for slab in work.plan.slabs_of(tile):
                raw = reader.read(work.plan.region(slab))
                mean = np.asarray(fitted.mean[slab], np.float64).reshape(-1)
                scale = np.asarray(fitted.scale[slab], np.float64).reshape(-1)
                components = np.asarray(fitted.components[(slice(None), *slab)], np.float64)
                components = np.nan_to_num(components.reshape(len(components), -1))
                try:
                    for start, stop, block in standardizer.apply(raw, mean, scale):
                        scores[:, :-1] += block @ components[:, start:stop].T
                        scores[:, -1] += np.einsum("nf,nf->n", block, block)
                except NotFinite:
                    raise _not_finite(work, raw, slab) from None
                report(raw.nbytes)
    return scores


def _slabs(
    work: Pass,
    reader: Reader,
    standardizer: Standardizer,
    tile: Box,
    counts: Tally | BackprojectionPartial,
    report: Report,
) -> Iterator[tuple[Box, Iterator[Panel]]]:
    """The slabs of a tile, each with its panels; turns NotFinite into an error that says where."""
    for slab in work.plan.slabs_of(tile):
        raw = reader.read(work.plan.region(slab))

        def panels(raw: NDArray[Any] = raw, slab: Box = slab) -> Iterator[Panel]:
            try:
                yield from standardizer.panels(raw)
            except NotFinite:
                raise _not_finite(work, raw, slab) from None

        yield slab, panels()
        counts.bytes_read += raw.nbytes
        report(raw.nbytes)


def _not_finite(work: Pass, raw: NDArray[Any], slab: Box) -> DataError:
    """Name the first value of a slab that is missing or infinite, in the array's own indices."""
    layout, region = work.source.layout, work.plan.region(slab)
    missing = np.isnan(raw) if raw.dtype.kind == "f" else np.zeros(raw.shape, bool)
    missing |= is_marked(raw, layout.missing_values)
    infinite = np.isinf(raw) if raw.dtype.kind == "f" else np.zeros(raw.shape, bool)
    wrong, names = (missing | infinite), []
    if not wrong.any():
        return DataError(
            f"{layout.name}: values in region {describe(region)} are so large that their sum overflows float64",
            "Store the data in other units.",
        )
    if missing.any():
        marks = " or ".join(["NaN", *(f"{mark:g}" for mark in layout.missing_values)])
        names.append(f"missing values ({marks})")
    if infinite.any():
        names.append("infinities")
    first = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
    index = [int(position) + piece.start for position, piece in zip(first, region, strict=True)]
    remedy = "Set preprocess.missing: mean to fill missing values with their feature's mean, or repair the data."
    return DataError(
        f"{layout.name}: {int(wrong.sum())} {' and '.join(names)} in region {describe(region)}, the first at index "
        f"{index} (sample {index[work.plan.samples_axis]}): {raw[first]}",
        "Infinities are never filled in: repair the data." if infinite.any() else remedy,
    )


def _shape(box: Box) -> tuple[int, ...]:
    return tuple(piece.stop - piece.start for piece in box)


def _size(box: Box) -> int:
    return math.prod(_shape(box))
