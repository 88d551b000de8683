"""Centre, scale and fill one slab: values as stored become panels of X_c in the precision of the products.

All of it is done in float64, in blocks that never leave the cache, and rounded to working precision once. From the
same float64 values come what is added up beside the products, at no further read of the slab: the sum of squares, which
gives the total variance independently of them, and the sketch, which tells how far they are off (`dpca.numerics.sketch`).

A mean of float64 values is itself rounded, by more than values that are close to it differ. So it is taken away in
two steps: what is left of it after the first is small, and its mean has digits of its own.

Where features stream by (`FeaturePanels`), all samples of a feature are in its slab, so that its mean is exact
and local. Where samples do (`SamplePanels`), a panel is centred by its own means, and whoever adds panels up
accounts for how they differ; or by the means of all, once those are known.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dpca.numerics import sketch as sketches
from dpca.slabs import Plan, split

F64 = NDArray[np.float64]

CONSTANT = 4 * np.finfo(np.float64).eps
"""A feature whose standard deviation is at most this times its mean is constant: it differs by rounding alone."""

LEFT = 1e-6
"""What is left of rounded means is taken away, too, where its squares are more than this part of all."""
SMALLEST = float(np.finfo(np.float64).smallest_subnormal)


@dataclass(frozen=True)
class Rules:
    """What is done to each feature, in this order: fill, centre by its mean, divide by its scale."""

    center: bool = True
    """Subtract the mean of the present values."""
    scale: Literal["none", "std"] = "none"
    """"std" divides by the standard deviation of the present values, with divisor (their number - ddof)."""
    missing: Literal["error", "mean"] = "error"
    """"mean" replaces a missing value by its feature's mean; "error" refuses it."""
    ddof: int = 1


class NotFinite(Exception):
    """A block holds NaN or infinity where it may not. The caller knows the region and names it."""


class NotExact(Exception):
    """A block holds integers that float64 does not. The caller knows the region and names it."""


LARGEST_INTEGER = 2**53
"""float64 holds every integer below this."""


@dataclass
class Panel:
    """A part of a slab, preprocessed; valid until the next panel."""

    start: int
    stop: int
    """Which part, in the slab's flattened order of what is streamed."""
    matrix: NDArray[Any]
    """The kept side by this part, (m, stop - start), in working precision; either axis may be the contiguous one."""
    n_missing: int
    integers: bool
    """Whether `matrix` holds integers: centred by means that were rounded, so that products may be exact."""
    sketch: F64
    """X_c X_c' Omega over this part, (m, t), in float64; with what rounding means to integers leaves in `matrix`."""


@dataclass
class FeaturePanel(Panel):
    """Some features, all samples of each: X_c over them, (n_samples, features)."""

    mean: F64
    """Mean of the present values; 0 without centring, NaN where no value is present."""
    divisor: F64
    """What values were divided by; 1 for a constant feature, NaN where no value is present."""
    squares: F64
    """Sums of squares of each sample about the mean, (n_samples,), from float64 before rounding."""
    mean_product: F64
    """X_c m~ with m~ = mean / divisor, (n_samples,)."""
    mean_norm2: float
    """m~' m~."""
    n_constant: int
    """Features without variation, counted only under scaling."""
    n_empty: int
    """Features without any value."""
    varies: bool
    """Whether any feature has variation beyond what rounding makes of one value."""


@dataclass
class AppliedPanel:
    """Some features of samples, preprocessed by the means and divisors of a fit; valid until the next one."""

    matrix: NDArray[Any]
    """(samples, features), in working precision."""
    squares: F64
    """Sum of squares of each sample, in float64 before rounding."""
    mean_product: F64
    """Product of each sample with m~ = mean / divisor, likewise."""
    start: int
    stop: int


@dataclass
class SamplePanel(Panel):
    """Some samples, all features of each: their X_c' about their own means, (n_features, samples)."""

    origin: F64
    """The first of these samples, (n_features,)."""
    offset: F64
    """Mean of these samples less their origin: differences keep the digits that a mean far from 0 would lose."""
    squares: F64
    """Sum of squares about these means of each feature, in float64 without products."""
    left: F64 | None
    """What of the mean is left in `matrix`, where it was centred by its mean rounded."""


@dataclass(frozen=True)
class Means:
    """Of each feature, in two parts, so that they keep the digits that a mean far from 0 would lose."""

    origin: F64
    offset: F64
    """The mean is origin + offset, (n_features,) each."""


@dataclass(frozen=True)
class About:
    """What samples are centred and scaled by, where features are kept."""

    origin: F64
    """The mean is origin + offset, (n_features,) each."""
    offset: F64
    factor: F64
    """What each feature is multiplied by, (n_features,)."""


class Standardizer:
    """Turns slabs into panels, with buffers of its own that are allocated once.

    Parameters
    ----------
    plan : sizes of panels and blocks, which side is kept, and which axis of storage is the fast one
    rules : what to do
    working_dtype : float32 or float64, of the products
    missing_values, valid_range : marks of missing values besides NaN, compared with stored values, as of a Layout
    packing : scale_factor and add_offset of stored values
    integers : whether means are rounded before they are subtracted, so that integers stay integers. What is left of
        them is for whoever uses the panels to take away
    columns : Omega of the sketch, (m, t); None where none is wanted
    """

    def __init__(
        self,
        plan: Plan,
        rules: Rules,
        working_dtype: np.dtype[Any],
        missing_values: Sequence[float] = (),
        valid_range: tuple[float, float] = (-math.inf, math.inf),
        packing: tuple[float, float] = (1.0, 0.0),
        integers: bool = False,
        columns: F64 | None = None,
    ) -> None:
        self._plan, self._rules = plan, rules
        self._missing_values, self._valid_range = missing_values, valid_range
        self._packing, self._integers = packing, integers
        self._marks = bool(missing_values) or valid_range != (-math.inf, math.inf)
        self._columns = columns
        self._width = max(plan.panel_width, plan.block_width)
        self._block = np.empty(plan.n_kept * plan.block_width)
        self._panel = np.empty(plan.n_kept * self._width, working_dtype)

    def _blocks(self, raw: NDArray[Any]) -> Iterator[tuple[int, int, F64, NDArray[np.bool_] | None]]:
        """float64 copies (m, width) of a slab's blocks, and where the sentinel stands."""
        plan = self._plan
        kept, streamed = plan.kept_axes, plan.streamed_axes
        m = math.prod(raw.shape[axis] for axis in kept)  # of new samples the last group may be smaller
        data = raw.transpose((*streamed, *kept) if plan.kept_fastest else (*kept, *streamed))
        factor, offset = self._packing
        for box, start, stop in split([raw.shape[axis] for axis in streamed], plan.block_width):
            values = data[box] if plan.kept_fastest else data[(..., *box)]  # type: ignore[arg-type]
            flat = self._block[: m * (stop - start)]
            np.copyto(flat.reshape(values.shape), values)
            block = flat.reshape(stop - start, m).T if plan.kept_fastest else flat.reshape(m, stop - start)
            missing = self._marked(block)
            if raw.dtype.kind in "iu" and raw.dtype.itemsize == 8 and is_beyond_float64(block, missing).any():
                raise NotExact
            if self._packing != (1.0, 0.0):
                block *= factor
                block += offset
            yield start, stop, block, missing

    def _marked(self, values: NDArray[Any]) -> NDArray[np.bool_] | None:
        """Where one of the marks of missing values stands; None where none does."""
        if not self._marks:
            return None
        low, high = self._valid_range
        found = (values < low) | (values > high)
        for mark in self._missing_values:
            found |= values == mark
        return found if found.any() else None

    def _missing(self, block: F64, sentinel: NDArray[np.bool_] | None) -> NDArray[np.bool_]:
        """Where values are missing, once it is known that some value is not finite or the sentinel."""
        missing = np.isnan(block) if sentinel is None else sentinel | np.isnan(block)
        if self._rules.missing == "error" and missing.any():
            raise NotFinite
        if np.isinf(block).any():
            raise NotFinite
        return missing

    def _pieces(self, raw: NDArray[Any]) -> Iterator[tuple[int, NDArray[Any]]]:
        """Parts of a slab, a panel wide."""
        streamed = self._plan.streamed_axes
        for box, start, _ in split([raw.shape[axis] for axis in streamed], self._width):
            part = [slice(None)] * raw.ndim
            for axis, along in zip(streamed, box, strict=True):
                part[axis] = along
            yield start, raw[tuple(part)]

    def _matrix(self, width: int) -> NDArray[Any]:
        """The panel, (m, width): its columns contiguous where the kept side is the fast one of storage."""
        m = self._plan.n_kept
        panel = self._panel[: m * width]
        return panel.reshape(width, m).T if self._plan.kept_fastest else panel.reshape(m, width)


class FeaturePanels(Standardizer):
    """Panels of features."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        n = self._plan.n_samples
        columns = np.empty((n, 0)) if self._columns is None else self._columns
        self._beside = np.vstack([np.full(n, 1 / n), columns.T])
        """What gives a feature's mean, and Omega'."""

    def panels(self, raw: NDArray[Any]) -> Iterator[FeaturePanel]:
        """Preprocess a slab.

        Parameters
        ----------
        raw : the slab as stored, samples along the plan's samples axis; not written to

        Raises
        ------
        NotFinite
                At infinity, at NaN (or the sentinel) under `missing: error`, and where a sum overflows.
        """
        for start, piece in self._pieces(raw):
            yield self._in_blocks(start, piece)

    def _as_stored(self, piece: NDArray[Any]) -> bool:
        """Whether the mean is all that values as stored have to lose, and working precision holds each of them."""
        marked = self._marks and (piece.dtype.kind == "f" or self._marked(piece) is not None)
        plain = self._rules.center and self._rules.scale == "none" and self._packing == (1.0, 0.0)
        return plain and not marked and np.can_cast(piece.dtype, self._panel.dtype)

    def _subtract(self, piece: NDArray[Any], mean: NDArray[Any]) -> NDArray[Any]:
        """Into the panel, with no copy on the way."""
        fast = self._plan.kept_fastest
        values = np.moveaxis(piece, self._plan.samples_axis, -1 if fast else 0)
        shape = (*values.shape[:-1], 1) if fast else values.shape[1:]
        np.subtract(values, mean.reshape(shape), out=self._panel[: values.size].reshape(values.shape))
        return self._matrix(mean.size)

    def _in_blocks(self, start: int, piece: NDArray[Any]) -> FeaturePanel:
        """Whatever the rules ask for, in float64."""
        parts: list[FeaturePanel] = []
        matrix = self._matrix(math.prod(self._plan.features_in(piece.shape)))
        for first, last, block, missing in self._blocks(piece):
            parts.append(self._standardize(start + first, start + last, block, missing))
            with np.errstate(over="ignore"):  # the product finds what became infinite
                matrix[:, first:last] = block
        return _joined(parts, matrix)

    def again(self, raw: NDArray[Any], mean: F64) -> Iterator[tuple[int, int, NDArray[Any]]]:
        """Preprocess a slab a second time, by the means that the first time gave, where they are all there is to it.

        They are rounded to working precision: components change by what is left times the sum of each alpha, which is
        0 but for rounding.

        Parameters
        ----------
        raw : as for `panels`
        mean : of the slab's features, flattened; NaN for one without any value

        Yields
        ------
        start, stop, matrix : as of a panel
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
        mean, divisor : of the slab's features, flattened. A missing value becomes 0, which is the mean

        Yields
        ------
        start, stop, block : float64 (n_samples, stop - start), valid until the next one
        """
        for start, stop, block, missing in self._blocks(raw):
            if missing is not None or not np.isfinite(_sums(block)).all():
                missing = self._missing(block, missing)
            block -= np.nan_to_num(mean[start:stop])
            block[:, np.isnan(mean[start:stop])] = 0.0  # features that had no value in the fit
            scale = np.where(np.isnan(divisor[start:stop]), 1.0, divisor[start:stop])
            if (scale != 1).any():
                block /= scale
            if missing is not None and missing.any():
                if not self._rules.center:
                    raise NotFinite  # without centring the training means are not kept to fill it with
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
                with np.errstate(over="ignore"):  # the product finds what became infinite
                    panel.matrix[:, first:last] = block
                panel.squares += np.einsum("nf,nf->n", block, block)
                panel.mean_product += block @ reduced[start + first : start + last]
            yield panel

    def _standardize(self, start: int, stop: int, block: F64, missing: NDArray[np.bool_] | None) -> FeaturePanel:
        """Fill, centre and scale a block in place."""
        rules, n = self._rules, self._plan.n_samples
        present: Any = n
        if missing is None:
            mean = _sums(block) / n
        if missing is not None or not np.isfinite(mean).all():
            missing = self._missing(block, missing)
            block[missing] = 0.0
            present = n - missing.sum(axis=0)
            with np.errstate(invalid="ignore"):  # 0 / 0 is what marks a feature without any value
                mean = _sums(block) / present
            if np.isinf(mean).any():
                raise NotFinite
        empty = np.isnan(mean)
        centre = np.where(empty, 0.0, mean)
        integers = self._integers and missing is None and rules.scale == "none"
        if integers:
            centre = np.rint(centre)
        block -= centre
        if missing is not None or rules.scale != "none":  # what is left of the mean would not be the same for all
            if missing is not None:
                block[missing] = 0.0
            left = _sums(block) / np.maximum(present, 1)
            block -= left
            centre = centre + left
        if missing is not None:
            block[missing] = 0.0
        divisor, n_constant = np.ones(stop - start), 0
        if rules.scale == "std":
            divisor, n_constant = self._std(block, centre, present)
            block /= divisor
        if not rules.center:
            block += centre / divisor
            block[:, empty] = 0.0
            centre = np.zeros(stop - start)
        with np.errstate(over="ignore", invalid="ignore"):  # what overflows is found by whoever adds it up
            # One product for what is left of the mean and the sketch, one for r and the sketch: going through the
            # block is what they cost, and this is the order that BLAS is faster in.
            combined = self._beside @ block
            left = combined[0].copy() if rules.center else np.zeros(stop - start)
            centre = centre + left * divisor
            combined[0] = reduced = centre / divisor
            products = combined @ block.T
            squares = np.einsum("nf,nf->n", block, block)
            if integers:
                squares -= 2 * (block @ left) - float(left @ left)
            elif n * float(left @ left) > LEFT * float(squares.sum()):
                block -= left  # where constants are large, what is left of their means would be all that products see
                squares = np.einsum("nf,nf->n", block, block)
            mean_product, mean_norm2 = products[0] - float(left @ reduced), float(reduced @ reduced)
            some = float(squares.sum()) > float(n * CONSTANT**2 * mean_norm2)
            varies = some or not _all_constant(block - left, centre)
        return FeaturePanel(
            start=start,
            stop=stop,
            matrix=block,
            mean=np.where(empty, np.nan, centre),
            divisor=np.where(empty, np.nan, divisor),
            squares=_not_lost(np.maximum(squares, 0.0), block),
            mean_product=mean_product,
            mean_norm2=mean_norm2,
            n_missing=0 if missing is None else int(missing.sum()),
            n_constant=n_constant,
            n_empty=int(empty.sum()),
            varies=varies,
            integers=integers,
            sketch=products[1:].T,
        )

    def _std(self, centred: F64, centre: F64, present: Any) -> tuple[F64, int]:
        """Standard deviations of centred values, 1 where there is no variation; constants become exactly 0."""
        variance = np.einsum("nf,nf->f", centred, centred) / np.maximum(present - self._rules.ddof, 1)
        constant = is_constant(variance, centre, present, self._rules.ddof)
        centred[:, constant] = 0.0
        return np.where(constant, 1.0, np.sqrt(variance)), int((constant & (present > 0)).sum())


def is_constant(variance: F64, mean: F64, n_present: Any, ddof: int) -> NDArray[np.bool_]:
    """Which features have no variation to be scaled by: what rounding makes of one value, or too few values."""
    found: NDArray[np.bool_] = (variance <= (CONSTANT * mean) ** 2) | (n_present <= ddof)
    return found


class SamplePanels(Standardizer):
    """Panels of samples.

    Parameters
    ----------
    as for Standardizer, and
    fill : what missing values are replaced by, the mean of those that are present; None where values may not be missing
    about : means and factors for panels of X_c itself; None for the panel's own means, and no scaling
    """

    def __init__(self, *given: Any, fill: Means | None = None, about: About | None = None, **named: Any) -> None:
        super().__init__(*given, **named)
        self._fill, self._about = fill, about

    def panels(self, raw: NDArray[Any]) -> Iterator[SamplePanel]:
        """Preprocess a slab; as `FeaturePanels.panels`."""
        for start, piece in self._pieces(raw):
            yield self._panel_of(start, piece)

    def present(self, raw: NDArray[Any]) -> Iterator[tuple[NDArray[np.int64], Means, int]]:
        """For each panel the number and the mean of each feature's present values, and how many are missing."""
        for _, piece in self._pieces(raw):
            count, origin = self._mean_of_present(piece, np.zeros(self._plan.n_kept))
            if not np.isfinite(origin).all():
                raise NotFinite
            # Its own rounding is in what values differ from it by.
            _, offset = self._mean_of_present(piece, origin)
            yield count, Means(origin, offset), piece.size - int(count.sum())

    def _mean_of_present(self, piece: NDArray[Any], origin: F64) -> tuple[NDArray[np.int64], F64]:
        """How many values of each feature are present, and the mean of what they differ from `origin` by; 0 of none."""
        count, total = np.zeros(self._plan.n_kept, np.int64), np.zeros(self._plan.n_kept)
        for start, stop, block, missing in self._blocks(piece):
            block -= origin[:, None]
            if missing is not None or not np.isfinite(_sums(block, 1)).all():
                missing = self._missing(block, missing)
                block[missing] = 0.0
                count -= missing.sum(axis=1)
            count += stop - start
            total += _sums(block, 1)
        return count, np.divide(total, count, out=np.zeros_like(total), where=count > 0)

    def _differences(self, piece: NDArray[Any], origin: F64 | None) -> Iterator[tuple[int, int, F64, int, F64]]:
        """Blocks of a piece less an origin, missing values filled in; how many were, and the origin.

        Without one it is the first sample, or the fill where that misses a value.
        """
        for start, stop, block, missing in self._blocks(piece):
            if missing is not None or not np.isfinite(_sums(block, 1)).all():
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
        sketch = np.zeros((len(rounded), 0)) if self._columns is None else np.zeros_like(self._columns)
        for first, last, block, filled, _ in self._differences(piece, about.origin):
            # In two steps: a mean that is rounded once is off by more than values that are close to it differ.
            block -= rounded[:, None]
            block *= about.factor[:, None]
            squares += _not_lost(np.einsum("mw,mw->m", block, block), block)
            if self._about is None and not self._rules.center:
                block += rounded[:, None]
                block += about.origin[:, None]
            with np.errstate(over="ignore", invalid="ignore"):  # the product finds what became infinite
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
            integers=self._integers and not n_missing,
            origin=about.origin,
            offset=about.offset,
            squares=squares - width * left**2,
            left=left if self._integers else None,
            sketch=sketch,
        )

    def _own_means(self, piece: NDArray[Any], width: int) -> About:
        """Means of the samples of a piece, from how they differ from the first of them."""
        total, origin = np.zeros(self._plan.n_kept), np.zeros(0)
        for _, _, block, _, first in self._differences(piece, None):
            total += _sums(block, 1)
            origin = first
        if not np.isfinite(total).all():
            raise NotFinite
        return About(origin, total / width, np.ones_like(total))


def is_beyond_float64(values: NDArray[Any], missing: NDArray[np.bool_] | None = None) -> NDArray[np.bool_]:
    """Where integers are so large that float64 rounds them, and not marks of missing values."""
    large: NDArray[np.bool_] = np.abs(values.astype(np.float64, copy=False)) >= LARGEST_INTEGER
    return large if missing is None else large & ~missing


def held(plan: Plan, working_dtype: np.dtype[Any]) -> dict[str, int]:
    """Bytes of what a Standardizer holds, by name."""
    width = max(plan.panel_width, plan.block_width)
    products = {"random columns, and products with them": 6 * 8 * sketches.COLUMNS * (plan.n_kept + plan.block_width)}
    return {"panel": plan.n_kept * width * working_dtype.itemsize, **held_to_apply(plan), **products}


def held_to_apply(plan: Plan) -> dict[str, int]:
    """Bytes of what a Standardizer holds that only applies given means and divisors: it touches no panel."""
    return {"block being centred, and where it is missing": (8 + 2) * plan.n_kept * plan.block_width}


def _all_constant(block: F64, mean: F64) -> bool:
    """Whether every feature of a centred block differs from its mean by rounding alone."""
    return bool((np.abs(block).max(axis=0) <= CONSTANT * np.abs(mean)).all())


def _sums(block: F64, axis: int = 0) -> F64:
    """Sums over samples; what is not finite in them says that some value is not, at no further read."""
    with np.errstate(over="ignore", invalid="ignore"):
        sums: F64 = block.sum(axis=axis)
    return sums


def _not_lost(squares: F64, block: F64) -> F64:
    """Sums of squares of each row, the smallest number there is where all of them underflow to 0."""
    return squares if squares.all() else np.where((squares == 0) & block.any(axis=1), SMALLEST, squares)


def _joined(parts: list[FeaturePanel], matrix: NDArray[Any]) -> FeaturePanel:
    """One panel from the blocks that were copied into `matrix` side by side."""
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
