"""Preprocessing: centre, scale and fill one slab, from stored values to panels of X_c in the precision of the products.

All steps are computed in float64, in blocks that stay in the cache, and rounded to working precision once. The same
float64 values give two sums without another read of the slab: the sum of squares, which is the total variance
independently of the products, and the sketch, which measures the error of the products (`dpca.numerics.sketch`).

A float64 mean is itself rounded, possibly by more than the differences between values that are close to it. So it is
subtracted in two steps: after the first the remaining mean is small, and is then computed with full relative precision.

Where features are streamed (`FeaturePanels`), a slab holds all samples of its features, so that their means are exact
and local. Where samples are streamed (`SamplePanels`), a panel is centred by its own means, and the sum over panels
is corrected for their differences; or it is centred by the means of all samples, once those are known.
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
"""A feature is constant if its standard deviation is at most this times its mean: only rounding varies."""

LEFT = 1e-6
"""The remaining mean after rounding is subtracted, too, where its squares exceed this share of the sum of squares."""
SMALLEST = float(np.finfo(np.float64).smallest_subnormal)


@dataclass(frozen=True)
class Rules:
    """The preprocessing of each feature, in this order: fill, centre by its mean, divide by its scale."""

    center: bool = True
    """Subtract the mean of the present values."""
    scale: Literal["none", "std"] = "none"
    """"std" divides by the standard deviation of the present values, with divisor (number of them - ddof)."""
    missing: Literal["error", "mean"] = "error"
    """"mean" replaces a missing value by its feature's mean; "error" refuses it."""
    ddof: int = 1


class NotFinite(Exception):
    """A block holds NaN or infinity where that is not allowed. The caller knows the region and names it."""


class NotExact(Exception):
    """A block holds integers that float64 can't represent. The caller knows the region and names it."""


LARGEST_INTEGER = 2**53
"""float64 represents every integer below this."""


@dataclass
class Panel:
    """A preprocessed part of a slab; valid until the next panel."""

    start: int
    stop: int
    """The part of the streamed side, as flattened indices within the slab."""
    matrix: NDArray[Any]
    """Kept side by this part of the streamed side, (m, stop - start), in working precision; either axis may be contiguous."""
    n_missing: int
    integers: bool
    """Whether `matrix` holds integers: it is centred by rounded means, so that products may be exact."""
    sketch: F64
    """X_c X_c' Omega over this part, (m, t), in float64; includes the means that remain in `matrix` if it holds integers."""


@dataclass
class FeaturePanel(Panel):
    """Some features with all their samples: columns of X_c, (n_samples, features)."""

    mean: F64
    """Mean of the present values; 0 without centring, NaN where no value is present."""
    divisor: F64
    """Scale that values were divided by; 1 for a constant feature, NaN where no value is present."""
    squares: F64
    """Sum of squares of each sample about the mean, (n_samples,), in float64 before rounding."""
    mean_product: F64
    """X_c m~ with m~ = mean / divisor, (n_samples,)."""
    mean_norm2: float
    """m~' m~."""
    n_constant: int
    """Features without variation; counted only with scaling."""
    n_empty: int
    """Features without any value."""
    varies: bool
    """Whether any feature varies by more than rounding."""


@dataclass
class AppliedPanel:
    """Some features of new samples, preprocessed by the means and divisors of a fit; valid until the next panel."""

    matrix: NDArray[Any]
    """(samples, features), in working precision."""
    squares: F64
    """Sum of squares of each sample, in float64 before rounding."""
    mean_product: F64
    """Product of each sample with m~ = mean / divisor, also in float64 before rounding."""
    start: int
    stop: int


@dataclass
class SamplePanel(Panel):
    """Some samples with all their features: columns of X_c', about the means of these samples, (n_features, samples)."""

    origin: F64
    """The first of these samples, (n_features,)."""
    offset: F64
    """Mean of these samples minus their origin: differences keep the digits that a mean far from 0 would lose."""
    squares: F64
    """Sum of squares of each feature about these means, in float64 without products."""
    left: F64 | None
    """The part of the mean that remains in `matrix` where it was centred by a rounded mean; else None."""


@dataclass(frozen=True)
class Means:
    """Means of features, each in two parts, to keep the digits that a mean far from 0 would lose."""

    origin: F64
    offset: F64
    """The mean is origin + offset, (n_features,) each."""


@dataclass(frozen=True)
class About:
    """Means and factors to centre and scale samples with, where features are kept."""

    origin: F64
    """The mean is origin + offset, (n_features,) each."""
    offset: F64
    factor: F64
    """Factor that each feature is multiplied by, (n_features,)."""


class Standardizer:
    """Turns slabs into panels, in its own buffers, which are allocated once.

    Parameters
    ----------
    plan : sizes of panels and blocks, which side is kept, and which axis of storage is the fast one
    rules : how to preprocess
    working_dtype : dtype of the products, float32 or float64
    missing_values, valid_range : marks of missing values besides NaN, compared with stored values, as in a Layout
    packing : scale_factor and add_offset of stored values
    integers : whether means are rounded before they are subtracted, so that integers stay integers; whoever uses the
        panels then removes the remaining part of the means
    columns : Omega of the sketch, (m, t); None for no sketch
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
        """The blocks of a slab as float64 copies, (m, width), with a mask of the values that are marked as missing."""
        plan = self._plan
        kept, streamed = plan.kept_axes, plan.streamed_axes
        m = math.prod(raw.shape[axis] for axis in kept)  # the last group of new samples may be smaller
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
        """Mask of the values that are marked as missing; None if there are none."""
        if not self._marks:
            return None
        low, high = self._valid_range
        marked = (values < low) | (values > high)
        for mark in self._missing_values:
            marked |= values == mark
        return marked if marked.any() else None

    def _missing(self, block: F64, sentinel: NDArray[np.bool_] | None) -> NDArray[np.bool_]:
        """Mask of missing values, for a block in which some value is not finite or is marked."""
        missing = np.isnan(block) if sentinel is None else sentinel | np.isnan(block)
        if self._rules.missing == "error" and missing.any():
            raise NotFinite
        if np.isinf(block).any():
            raise NotFinite
        return missing

    def _pieces(self, raw: NDArray[Any]) -> Iterator[tuple[int, NDArray[Any]]]:
        """Parts of a slab, each a panel wide, with their first index."""
        streamed = self._plan.streamed_axes
        for box, start, _ in split([raw.shape[axis] for axis in streamed], self._width):
            part = [slice(None)] * raw.ndim
            for axis, along in zip(streamed, box, strict=True):
                part[axis] = along
            yield start, raw[tuple(part)]

    def _matrix(self, width: int) -> NDArray[Any]:
        """The panel buffer, (m, width): its columns are contiguous where the kept side is contiguous in storage."""
        m = self._plan.n_kept
        panel = self._panel[: m * width]
        return panel.reshape(width, m).T if self._plan.kept_fastest else panel.reshape(m, width)


@dataclass(frozen=True)
class _Centred:
    """What was subtracted from the features of a block, and what was met there."""

    centre: F64
    """The mean, or the whole number that is nearest to it, (w,)."""
    present: Any
    """Number of values that are not missing: of each feature, (w,), or of all alike."""
    empty: NDArray[np.bool_]
    """Mask of features without any value."""
    n_missing: int
    integers: bool
    """Whether the block holds integers."""


class FeaturePanels(Standardizer):
    """Panels of features."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        n = self._plan.n_samples
        columns = np.empty((n, 0)) if self._columns is None else self._columns
        self._beside = np.vstack([np.full(n, 1 / n), columns.T])
        """1'/n, whose product with a block is the means, above Omega'."""

    def panels(self, raw: NDArray[Any]) -> Iterator[FeaturePanel]:
        """Preprocess a slab.

        Parameters
        ----------
        raw : the slab as stored, samples along the plan's samples axis; not written to

        Raises
        ------
        NotFinite
                At infinity, at a missing value under `missing: error`, and where a sum overflows.
        """
        for start, piece in self._pieces(raw):
            yield self._in_blocks(start, piece)

    def _as_stored(self, piece: NDArray[Any]) -> bool:
        """Whether stored values need only centring, and working precision represents each of them."""
        marked = self._marks and (piece.dtype.kind == "f" or self._marked(piece) is not None)
        plain = self._rules.center and self._rules.scale == "none" and self._packing == (1.0, 0.0)
        return plain and not marked and np.can_cast(piece.dtype, self._panel.dtype)

    def _subtract(self, piece: NDArray[Any], mean: NDArray[Any]) -> NDArray[Any]:
        """Centre a piece directly into the panel, without a copy in float64."""
        fast = self._plan.kept_fastest
        values = np.moveaxis(piece, self._plan.samples_axis, -1 if fast else 0)
        shape = (*values.shape[:-1], 1) if fast else values.shape[1:]
        np.subtract(values, mean.reshape(shape), out=self._panel[: values.size].reshape(values.shape))
        return self._matrix(mean.size)

    def _in_blocks(self, start: int, piece: NDArray[Any]) -> FeaturePanel:
        """Preprocess a piece by the rules in float64, block by block."""
        parts: list[FeaturePanel] = []
        matrix = self._matrix(math.prod(self._plan.features_in(piece.shape)))
        for first, last, block, missing in self._blocks(piece):
            parts.append(self._standardize(start + first, start + last, block, missing))
            with np.errstate(over="ignore"):  # the product detects infinite values
                matrix[:, first:last] = block
        return _joined(parts, matrix)

    def again(self, raw: NDArray[Any], mean: F64) -> Iterator[tuple[int, int, NDArray[Any]]]:
        """Preprocess a slab a second time; where it needs only centring, by the means of the first time.

        These are rounded to working precision: components change by the rounding error of the mean times the sum of
        each alpha, and that sum is 0 up to rounding.

        Parameters
        ----------
        raw : as for `panels`
        mean : means of the slab's features, flattened; NaN for a feature without any value

        Yields
        ------
        start, stop, matrix : as in a panel
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
        mean, divisor : those of the slab's features, flattened. A missing value becomes 0, which is the mean

        Yields
        ------
        start, stop, block : float64, (n_samples, stop - start), valid until the next one
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
                    raise NotFinite  # without centring, the training means that would fill it are not stored
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
                with np.errstate(over="ignore"):  # the product detects infinite values
                    panel.matrix[:, first:last] = block
                panel.squares += np.einsum("nf,nf->n", block, block)
                panel.mean_product += block @ reduced[start + first : start + last]
            yield panel

    def _standardize(self, start: int, stop: int, block: F64, missing: NDArray[np.bool_] | None) -> FeaturePanel:
        """Fill, centre and scale a block in place."""
        about = self._centred(block, missing)
        centre, empty = about.centre, about.empty
        divisor, n_constant = np.ones(stop - start), 0
        if self._rules.scale == "std":
            divisor, n_constant = self._std(block, centre, about.present)
            block /= divisor
        if not self._rules.center:
            block += centre / divisor
            block[:, empty] = 0.0
            centre = np.zeros(stop - start)
        with np.errstate(over="ignore", invalid="ignore"):  # overflow is detected where the results are added up
            # One product for the remaining mean and the sketch, one for r and the sketch: their cost is reading the
            # block, and BLAS is faster in this order.
            combined = self._beside @ block
            remaining = combined[0].copy() if self._rules.center else np.zeros(stop - start)
            centre = centre + remaining * divisor
            combined[0] = reduced = centre / divisor
            products = combined @ block.T
            squares = self._squares(block, remaining, about.integers)
            mean_product, mean_norm2 = products[0] - float(remaining @ reduced), float(reduced @ reduced)
            clearly = float(squares.sum()) > float(len(block) * CONSTANT**2 * mean_norm2)
            varies = clearly or not _all_constant(block - remaining, centre)
        return FeaturePanel(
            start=start,
            stop=stop,
            matrix=block,
            mean=np.where(empty, np.nan, centre),
            divisor=np.where(empty, np.nan, divisor),
            squares=_not_lost(np.maximum(squares, 0.0), block),
            mean_product=mean_product,
            mean_norm2=mean_norm2,
            n_missing=about.n_missing,
            n_constant=n_constant,
            n_empty=int(empty.sum()),
            varies=varies,
            integers=about.integers,
            sketch=products[1:].T,
        )

    def _centred(self, block: F64, missing: NDArray[np.bool_] | None) -> _Centred:
        """Fill missing values of a block, and subtract the mean of each feature, in place."""
        n, scaled = len(block), self._rules.scale != "none"
        present: Any = n
        if missing is None:
            mean = _sums(block) / n
        if missing is not None or not np.isfinite(mean).all():
            missing = self._missing(block, missing)
            block[missing] = 0.0
            present = n - missing.sum(axis=0)
            with np.errstate(invalid="ignore"):  # 0 / 0 gives the NaN that marks a feature without any value
                mean = _sums(block) / present
            if np.isinf(mean).any():
                raise NotFinite
        empty = np.isnan(mean)
        centre = np.where(empty, 0.0, mean)
        integers = self._integers and missing is None and not scaled
        if integers:
            centre = np.rint(centre)
        block -= centre
        if missing is not None or scaled:  # else the remaining mean would not be the same for all
            if missing is not None:
                block[missing] = 0.0
            remaining = _sums(block) / np.maximum(present, 1)
            block -= remaining
            centre = centre + remaining
        if missing is not None:
            block[missing] = 0.0
        return _Centred(centre, present, empty, 0 if missing is None else int(missing.sum()), integers)

    @staticmethod
    def _squares(block: F64, remaining: F64, integers: bool) -> F64:
        """Squared norms of the samples of a block less the remaining means, (n_samples,)."""
        squares: F64 = np.einsum("nf,nf->n", block, block)
        if integers:
            squares -= 2 * (block @ remaining) - float(remaining @ remaining)
        elif len(block) * float(remaining @ remaining) > LEFT * float(squares.sum()):
            block -= remaining  # in place: products of large constants would hold only the remaining means
            squares = np.einsum("nf,nf->n", block, block)
        return squares

    def _std(self, centred: F64, centre: F64, present: Any) -> tuple[F64, int]:
        """Standard deviations of centred values, 1 where there is no variation; sets constant features to exactly 0."""
        variance = np.einsum("nf,nf->f", centred, centred) / np.maximum(present - self._rules.ddof, 1)
        constant = is_constant(variance, centre, present, self._rules.ddof)
        centred[:, constant] = 0.0
        return np.where(constant, 1.0, np.sqrt(variance)), int((constant & (present > 0)).sum())


def is_constant(variance: F64, mean: F64, n_present: Any, ddof: int) -> NDArray[np.bool_]:
    """Mask of the features without a scale: they vary by rounding alone, or have too few values."""
    constant: NDArray[np.bool_] = (variance <= (CONSTANT * mean) ** 2) | (n_present <= ddof)
    return constant


class SamplePanels(Standardizer):
    """Panels of samples.

    Parameters
    ----------
    as for Standardizer, and
    fill : means of the present values, which replace missing ones; None where values may not be missing
    about : means and factors for panels of X_c itself; None for the panel's own means and no scaling
    """

    def __init__(self, *arguments: Any, fill: Means | None = None, about: About | None = None, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._fill, self._about = fill, about

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
        """Blocks of a piece minus an origin, with missing values filled in; the number of those, and the origin.

        The default origin is the first sample, with the fill in place of its missing values.
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
            # In two steps: a mean that is rounded once may be off by more than the differences between close values.
            block -= rounded[:, None]
            block *= about.factor[:, None]
            squares += _not_lost(np.einsum("mw,mw->m", block, block), block)
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
            integers=self._integers and not n_missing,
            origin=about.origin,
            offset=about.offset,
            squares=squares - width * left**2,
            left=left if self._integers else None,
            sketch=sketch,
        )

    def _own_means(self, piece: NDArray[Any], width: int) -> About:
        """Means of the samples of a piece, from their differences from the first sample."""
        total, origin = np.zeros(self._plan.n_kept), np.zeros(0)
        for _, _, block, _, first in self._differences(piece, None):
            total += _sums(block, 1)
            origin = first
        if not np.isfinite(total).all():
            raise NotFinite
        return About(origin, total / width, np.ones_like(total))


def is_beyond_float64(values: NDArray[Any], missing: NDArray[np.bool_] | None = None) -> NDArray[np.bool_]:
    """Mask of integers that are too large for float64, except marks of missing values."""
    large: NDArray[np.bool_] = np.abs(values.astype(np.float64, copy=False)) >= LARGEST_INTEGER
    return large if missing is None else large & ~missing


def held(plan: Plan, working_dtype: np.dtype[Any]) -> dict[str, int]:
    """Bytes that a Standardizer holds, by name of the array."""
    width = max(plan.panel_width, plan.block_width)
    products = {"random columns, and products with them": 6 * 8 * sketches.COLUMNS * (plan.n_kept + plan.block_width)}
    return {"panel": plan.n_kept * width * working_dtype.itemsize, **held_to_apply(plan), **products}


def held_to_apply(plan: Plan) -> dict[str, int]:
    """Bytes that a Standardizer holds if it only applies given means and divisors: it uses no panel buffer."""
    return {"block being centred, and where it is missing": (8 + 2) * plan.n_kept * plan.block_width}


def _all_constant(block: F64, mean: F64) -> bool:
    """Whether every feature of a centred block varies by rounding alone."""
    return bool((np.abs(block).max(axis=0) <= CONSTANT * np.abs(mean)).all())


def _sums(block: F64, axis: int = 0) -> F64:
    """Sums over samples; a sum that is not finite shows that some value is not, without another pass over the block."""
    with np.errstate(over="ignore", invalid="ignore"):
        sums: F64 = block.sum(axis=axis)
    return sums


def _not_lost(squares: F64, block: F64) -> F64:
    """Sums of squares of each row; the smallest positive number where they underflow to 0 but the row is not zero."""
    return squares if squares.all() else np.where((squares == 0) & block.any(axis=1), SMALLEST, squares)


def _joined(parts: list[FeaturePanel], matrix: NDArray[Any]) -> FeaturePanel:
    """One panel made of the blocks that were copied side by side into `matrix`."""
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
