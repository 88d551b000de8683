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
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpca.errors import DataError
from dpca.execution.progress import Report
from dpca.execution.stage import Work
from dpca.genotypes.dosages import COPIES, ROUNDING, explained
from dpca.numerics.accumulators.tallies import Counts
from dpca.numerics.division import WHOLE, Division
from dpca.numerics.dosages import DosagePanels, NotDosage
from dpca.numerics.feature_panels import FeaturePanels
from dpca.numerics.inner_products import Roots, least_eigenvalues
from dpca.numerics.panels import About, Means, Rules
from dpca.numerics.preprocess import NotExact, NotFinite, is_beyond_float64
from dpca.numerics.regression import Baseline, Regressed, Regression
from dpca.numerics.sample_panels import SamplePanels
from dpca.numerics.sketch import random_columns
from dpca.numerics.sparse_panels import SparsePanels, needs_stored_alone
from dpca.numerics.weights import SampleWeights
from dpca.settings import INPUT, PREPROCESS
from dpca.slabs import Box, Plan, extent
from dpca.sources.base import Layout, Reader, Region, Source, describe, size_of, within
from dpca.sources.inner_products import InnerProduct
from dpca.sources.lines import Lines
from dpca.sources.missing import EVERY
from dpca.sources.weights import FeatureWeights, equal_weights
from dpca.store.arrays import GROUP_SCALE, REGRESSION, of_group
from dpca.store.outputs import Outputs
from dpca.types import F64

P = TypeVar("P")


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
                return np.full(math.prod(extent(box)), self.factor) if weights is None else weights * self.factor

            yield multiplied

    @property
    def _inner_product(self) -> InnerProduct | None:
        """That of the features; None for the usual one."""
        return None if self.weights is None else self.weights.inner

    @contextmanager
    def inner(self) -> Iterator[Callable[[Box], Roots | None]]:
        """A function that returns the factors of the inner product of a box of features; None where it is the usual one."""
        inner = self._inner_product
        if inner is None:
            yield lambda _: None
            return
        with inner.open() as matrices_of:

            def roots_of(box: Box) -> Roots:
                matrices = matrices_of(box)
                least = least_eigenvalues(matrices)
                if not least.all():
                    raise inner.unusable(box, matrices, least == 0)
                return Roots.of(matrices, least, inner.grid(extent(box)))

            yield roots_of

    def masked(self) -> NDArray[np.bool_] | None:
        """Mask of the features that weights leave out, where features are kept, (n_features,); None without weights."""
        weights = None if self.weights is None else self.weights.of_all(self.plan.feature_shape)
        return None if weights is None else np.isnan(weights)

    def region_of(self, slab: Box, part: int) -> Region:
        """The region of the source that a part reads of a slab."""
        return self.plan.region(slab)

    def slab_regions(self, part: int) -> Iterator[Region]:
        """The regions that a part reads, in order."""
        return (self.region_of(slab, part) for tile in self.tiles(part) for slab in self.plan.slabs_of(tile))

    def read(
        self, part: int, counts: Counts, report: Report, *, as_lines: bool = False
    ) -> Iterator[tuple[Box, Iterator[Slab]]]:
        """The tiles of a part, each with its slabs, which are read as they are asked for.

        Parameters
        ----------
        counts : what was read is counted there
        report : called with the bytes of each slab when it has been used
        as_lines : whether slabs of a sparse matrix are wanted as lines, where they can be
        """
        with self.source.open() as reader:
            reader.will_read(self.slab_regions(part))
            for tile in self.tiles(part):
                yield tile, self._slabs(reader, tile, part, counts, report, as_lines and self._takes_lines)

    def _slabs(
        self, reader: Reader, tile: Box, part: int, counts: Counts, report: Report, as_lines: bool
    ) -> Iterator[Slab]:
        for box in self.plan.slabs_of(tile):
            region = self.region_of(box, part)
            began = time.perf_counter()
            lines = reader.read_lines(region) if as_lines else None
            raw = reader.read(region) if lines is None else None
            arrived = time.perf_counter()
            yield Slab(self, box, within(box, tile), region, lines, reader, raw)
            counts.read_seconds += arrived - began
            counts.compute_seconds += time.perf_counter() - arrived
            counts.bytes_read, counts.absent_chunks, counts.retries = (
                reader.bytes_read,
                reader.absent_chunks,
                reader.retries,
            )
            report(size_of(extent(region), self.source.layout.dtype))

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

    def of_features(self, name: str, tile: Region) -> F64:
        """The mean, the scale or the weights of a tile of features, as an earlier pass has written them: 0 or 1 where it finds none."""
        assert self.outputs is not None
        found = name in self.rules.finds(weighted=self.weights is not None)
        return self.outputs.read_part(of_group(name, self.name), tile, unwritten=not found)

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

    def baseline(self, regressed: Regressed | None) -> Baseline | None:
        """The fit that is subtracted from the samples for some features, flattened; None for nothing."""
        if self.regressors is None or regressed is None:
            return None
        return regressed.at(self.regressors).flat

    def values_of(self, name: str, box: Box) -> F64:
        """An array for what features have, by box: of a regression, a coefficient for each regressor, or a scale for each group."""
        shape, regression = extent(box), self.regression
        if regression is not None and name in (REGRESSION, GROUP_SCALE):
            shape = (regression.n_regressors if name == REGRESSION else len(regression.groups), *shape)
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
            and self._inner_product is None
            # A missing value is its feature's mean, which is not 0 in data that are not centred.
            and (self.rules.center or self.rules.missing == "error")
        )

    @property
    def _has_lines(self) -> bool:
        """Whether the data may be lines, along the side that is streamed."""
        return self.source.lines_axis in self.plan.streamed_axes

    @property
    def _takes_lines(self) -> bool:
        """Whether slabs of a sparse matrix are preprocessed by what is stored: nothing depends on each value."""
        layout = self.source.layout
        return (
            self._has_lines
            and layout.packing == (1.0, 0.0)
            and layout.valid_range == EVERY
            and not layout.missing_values
            and self.regression is None
            and self._inner_product is None
            and self.sample_weights is None
            and self.reference is None
            and self.n_known == 0
            and not self.division.scattered
            and needs_stored_alone(self.rules)
        )

    def sparse_panels(self, *, columns: F64 | None = None) -> SparsePanels:
        """Preprocessing of lines; `columns` as in SparsePanels."""
        return SparsePanels(self.plan, self.rules, self.working_dtype, columns)

    @property
    def _narrow(self) -> bool:
        """Whether values are 8-bit integers that are centred, so that products may be exact."""
        layout = self.source.layout
        narrow = layout.dtype.kind in "iub" and layout.dtype.itemsize == 1
        return narrow and layout.packing == (1.0, 0.0) and self.rules.center


def columns_of(plan: Plan, rules: Rules) -> F64:
    """The random matrix Omega of the sketch of a pass, (m, t)."""
    return random_columns(plan.n_kept, rules.centered and plan.keeps == "samples")


def damage_of(outputs: Outputs | None, names: Sequence[str], regions: Iterable[Box]) -> str | None:
    """Fault of parts of arrays that were written before; None if there is none."""
    if outputs is None or not names:
        return None
    damages = (outputs.damage(name, region) for region in regions for name in names)
    return next((damage for damage in damages if damage), None)


@dataclass(eq=False)
class Slab:
    """A slab in memory: the values that a pass has read of it."""

    work: Pass
    box: Box
    """On the streamed axes."""
    inside: Box
    """Its place in the tile."""
    region: Region
    """Its place in the source."""
    lines: Lines | None
    """Lines of a sparse matrix; None where values are dense, or were not wanted as lines."""
    reader: Reader
    values: NDArray[Any] | None

    @property
    def raw(self) -> NDArray[Any]:
        """Values as stored, dense; valid until the next slab is read."""
        if self.values is None:
            self.values = self.reader.read(self.region)
        return self.values

    @property
    def width(self) -> int:
        """Length on the streamed side."""
        return math.prod(extent(self.box))

    def located(self, panels: Iterator[P]) -> Iterator[P]:
        """Its panels; an error names the place of a value that can't be used."""
        try:
            yield from panels
        except NotFinite:
            raise _not_finite(self.work, self.raw, self.region) from None
        except NotExact:
            raise not_exact(self.work.source.layout, self.raw, self.region) from None
        except NotDosage:
            raise _not_dosage(self.work, self.raw, self.region) from None


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
    elif work.rules.missing == "land":
        refused = missing & ~missing.all(axis=work.plan.samples_axis, keepdims=True)
    if (refused & missing).any():
        names.append(f"missing values ({layout.marks})")
        remedy = (
            f"{PREPROCESS.missing.set_to('mean')} to fill missing values with their feature's mean, or repair the data."
        )
        if work.rules.missing == "land":
            remedy = (
                "Of these features other samples have values, and land leaves out those that are missing in all alone: "
                f"{PREPROCESS.missing.set_to('mean')} to fill them in, or {PREPROCESS.missing.at('drop')}, or repair the data."
            )
        elif work.rules.missing != "error":
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
