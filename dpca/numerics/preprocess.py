"""Preprocessing: centre, scale and fill one slab, from stored values to panels of X_c in the precision of the products.

All steps are computed in float64, in blocks that stay in the cache, and rounded to working precision once. The same
float64 values give two sums without another read of the slab: the sum of squares, which is the total variance
independently of the products, and the sketch, which measures the error of the products (`dpca.numerics.sketch`).

A float64 mean is itself rounded, possibly by more than the differences between values that are close to it. So it is
subtracted in two steps: after the first the remaining mean is small, and is then computed with full relative precision.

Where features are streamed (`dpca.numerics.feature_panels`), a slab holds all samples of its features, so that their
means are exact and local. Where samples are streamed (`dpca.numerics.sample_panels`), a panel is centred by its own
means, and the sum over panels is corrected for their differences; or it is centred by the means of all samples, once
those are known.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpca.numerics import sketch as sketches
from dpca.numerics.panels import Rules, Scale
from dpca.slabs import Plan, split
from dpca.sources.missing import EVERY
from dpca.system.buffers import Buffer
from dpca.types import F64

CONSTANT = 4 * np.finfo(np.float64).eps
"""A feature is constant if its standard deviation is at most this times its mean: only rounding varies."""

SMALLEST = float(np.finfo(np.float64).smallest_subnormal)


class NotFinite(Exception):
    """A block holds NaN or infinity where that is not allowed. The caller knows the region and names it."""


class NotExact(Exception):
    """A block holds integers that float64 can't represent. The caller knows the region and names it."""


LARGEST_INTEGER = 2**53
"""float64 represents every integer below this."""


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
        valid_range: tuple[float, float] = EVERY,
        packing: tuple[float, float] = (1.0, 0.0),
        integers: bool = False,
        columns: F64 | None = None,
    ) -> None:
        self._plan, self._rules = plan, rules
        self._missing_values, self._valid_range = missing_values, valid_range
        self._packing, self._integers = packing, integers
        self._marks = bool(missing_values) or valid_range != EVERY
        self._columns = columns
        self.n_plausible = 0
        """Values so far that were taken for marks of missing ones, though smaller and larger values lie beside them."""
        self._width = max(plan.panel_width, plan.block_width)
        self._block_memory, self._panel_memory = Buffer(), Buffer()
        self._working_dtype = working_dtype

    def _blocks(
        self, raw: NDArray[Any], masked: NDArray[np.bool_] | None = None
    ) -> Iterator[tuple[int, int, F64, NDArray[np.bool_] | None]]:
        """The blocks of a slab as float64 copies, (m, width), with a mask of the values that are marked as missing.

        Features of the slab that are `masked` are 0, whatever is stored, and have no missing values.
        """
        plan = self._plan
        kept, streamed = plan.kept_axes, plan.streamed_axes
        m = math.prod(raw.shape[axis] for axis in kept)  # the last group of new samples may be smaller
        data = raw.transpose((*streamed, *kept) if plan.kept_fastest else (*kept, *streamed))
        factor, offset = self._packing
        for box, start, stop in split([raw.shape[axis] for axis in streamed], plan.block_width):
            values = data[box] if plan.kept_fastest else data[(..., *box)]  # type: ignore[arg-type]
            flat = self._block_memory.view([plan.n_kept * plan.block_width], np.dtype(np.float64))[: m * (stop - start)]
            np.copyto(flat.reshape(values.shape), values)
            block = self._placed(flat, m)
            left_out = None if masked is None else np.s_[:, masked[start:stop]] if plan.keeps == "samples" else masked
            marked = self._marked(values)
            missing = None if marked is None else self._placed(marked.reshape(-1), m)
            if left_out is not None:
                block[left_out] = np.nan  # which is not beyond float64
                if missing is not None:
                    missing[left_out] = False
            if raw.dtype.kind in "iu" and raw.dtype.itemsize == 8 and is_beyond_float64(block, missing).any():
                raise NotExact
            if self._packing != (1.0, 0.0):
                block *= factor
                block += offset
            if left_out is not None:
                block[left_out] = 0.0
            yield start, stop, block, missing

    def _placed(self, flat: NDArray[Any], m: int) -> NDArray[Any]:
        """Values in the order of storage as a block, (m, width)."""
        return flat.reshape(-1, m).T if self._plan.kept_fastest else flat.reshape(m, -1)

    def _marked(self, values: NDArray[Any]) -> NDArray[np.bool_] | None:
        """Mask of the stored values that are marked as missing, in C order; None if there are none."""
        if not self._marks:
            return None
        low, high = self._valid_range
        marked = np.zeros(values.shape, bool)
        if self._valid_range != EVERY:
            marked |= (values < low) | (values > high)
        by_mark = [(mark, values == self._as_they_are(mark, values.dtype)) for mark in self._missing_values]
        for _, equal in by_mark:
            marked |= equal
        if not marked.any():
            return None
        smallest, largest = values.min(), values.max()
        if any(not (mark <= smallest or mark >= largest) for mark in self._missing_values):  # also where one is NaN
            others = values[~marked]
            smallest, largest = (np.fmin.reduce(others), np.fmax.reduce(others)) if others.size else (np.nan, np.nan)
            self.n_plausible += sum(int(equal.sum()) for mark, equal in by_mark if smallest < mark < largest)
        return marked

    @staticmethod
    def _as_they_are(mark: float, dtype: np.dtype[Any]) -> Any:
        """A mark in the type of stored integers, where it is one: comparing them with a float would copy them."""
        whole = dtype.kind in "iu" and float(mark).is_integer() and np.iinfo(dtype).min <= mark <= np.iinfo(dtype).max
        return dtype.type(int(mark)) if whole else mark

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

    def _panel(self, size: int) -> NDArray[Any]:
        """The first values of the panel buffer."""
        return self._panel_memory.view([self._plan.n_kept * self._width], self._working_dtype)[:size]

    def _matrix(self, width: int) -> NDArray[Any]:
        """The panel buffer, (m, width): its columns are contiguous where the kept side is contiguous in storage."""
        m = self._plan.n_kept
        panel = self._panel(m * width)
        return panel.reshape(width, m).T if self._plan.kept_fastest else panel.reshape(m, width)


def in_memory_order(block: NDArray[Any]) -> NDArray[Any]:
    """The values of a block, or of its mask, one after another as they lie in memory: a view."""
    return (block.T if block.flags.f_contiguous else block).reshape(-1)


def places_of(mask: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Where a mask is true, in the order of memory: much faster than indexing with it where that is seldom."""
    return np.flatnonzero(in_memory_order(mask))


def cleared(block: F64, missing: NDArray[np.bool_]) -> F64:
    """The block with 0 in place of its missing values, in place; mask and block lie in memory in the same order."""
    in_memory_order(block)[places_of(missing)] = 0.0
    return block


def is_constant(variance: F64, mean: F64, divisor: Any) -> NDArray[np.bool_]:
    """Mask of the features without a scale: they vary by rounding alone, or have too few values (the divisor is not positive)."""
    constant: NDArray[np.bool_] = (variance <= (CONSTANT * mean) ** 2) | (divisor <= 0)
    return constant


def scale_of(scale: Scale, variance: F64, spread: F64, constant: NDArray[np.bool_]) -> F64:
    """The divisor of each feature by the rule `scale`; 1 where it is constant.

    Parameters
    ----------
    variance, spread : of the present values; `spread` is the largest less the smallest, used by "range" alone
    """
    if scale == "none":
        return np.ones_like(variance)
    deviation = np.sqrt(variance)
    divisor = {"std": deviation, "pareto": np.sqrt(deviation), "range": spread}[str(scale)]
    return np.where(constant, 1.0, divisor)


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


def all_constant(block: F64, mean: F64) -> bool:
    """Whether every feature of a centred block varies by rounding alone."""
    return bool((np.abs(block).max(axis=0) <= CONSTANT * np.abs(mean)).all())


def sums(block: F64, axis: int = 0) -> F64:
    """Sums over samples; a sum that is not finite shows that some value is not, without another pass over the block."""
    with np.errstate(over="ignore", invalid="ignore"):
        total: F64 = block.sum(axis=axis)
    return total


def squares_of_rows(block: F64) -> F64:
    """Sums of squares of each row, (m,)."""
    if block.strides[1] != block.itemsize:
        return np.asarray(np.einsum("mw,mw->m", block, block))
    with np.errstate(over="ignore", invalid="ignore"):  # as einsum, which is three times as slow here
        return np.asarray(np.linalg.vecdot(block, block))


def rows_alike(block: F64, values: F64 | float) -> NDArray[np.bool_]:
    """Which rows of a block, (n, w), have these values everywhere; only rows that do so far are looked at further on."""
    values, rows = np.broadcast_to(values, block.shape[1:]), np.arange(len(block))
    start, width = 0, 1
    while rows.size and start < len(values):
        along = slice(start, start + width)
        rows = rows[(block[rows, along] == values[along]).all(axis=1)]
        start, width = along.stop, 16 * width
    alike = np.zeros(len(block), bool)
    alike[rows] = True
    return alike


def of_zeros(zero: NDArray[np.bool_], squares: F64, mean_product: F64, mean_norm2: float) -> tuple[F64, F64]:
    """Squared norms about the mean m~, and products with it, by which samples of zeros are known later: |m~|^2 and -|m~|^2 to the bit.

    Sums over features keep that, as all three are added up in the same order. No other sample may have it.
    """
    alone = (mean_product == -mean_norm2) & (mean_norm2 > 0)
    mean_product = np.where(alone, np.nextafter(mean_product, np.inf), mean_product)
    return np.where(zero, mean_norm2, squares), np.where(zero, -mean_norm2, mean_product)


def not_lost(squares: F64, block: F64) -> F64:
    """Sums of squares of each row; the smallest positive number where they underflow to 0 but the row is not zero."""
    return squares if squares.all() else np.where((squares == 0) & block.any(axis=1), SMALLEST, squares)
