"""Centre, scale and fill one slab, in float64, a block that fits in cache at a time.

All samples of a feature are in its slab, so its mean is exact and local. Every value is converted to
float64, centred and scaled there, and rounded once, to the working precision of the products: a mean
that was itself rounded to float32 would cost more than the products do (relative error of the Gram
1.7e-6 at mean 280 and spread 1, where the products cost 2.5e-8). In blocks of 2 MiB this runs at 2-4 GB/s
of float32 a thread, since the block never leaves the cache; it includes the sum of squares, which gives
the total variance independently of the products, at no further read of the slab.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dpca.slabs import Plan, split

F64 = NDArray[np.float64]


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


@dataclass
class Panel:
    """Some features of a slab, preprocessed; valid until the next panel."""

    start: int
    stop: int
    """Which features, in the slab's flattened order."""
    matrix: NDArray[Any]
    """X_c over these features, (n_samples, stop - start), in working precision; either axis may be the contiguous one."""
    mean: F64
    """Mean of the present values; 0 without centring, NaN where no value is present."""
    divisor: F64
    """What values were divided by; 1 for a constant feature, NaN where no value is present."""
    squares: float
    """Sum of the squares of `matrix`, from float64 before rounding."""
    mean_product: F64
    """X_c m~ with m~ = mean / divisor, (n_samples,)."""
    mean_norm2: float
    """m~' m~."""
    n_missing: int
    n_constant: int
    """Features without variation, counted only under scaling."""
    integers: bool = False
    """Whether `matrix` holds integers: centred by their means rounded, so that products may be exact."""


class Standardizer:
    """Turns slabs into panels, with buffers of its own that are allocated once.

    Parameters
    ----------
    plan : sizes of panels and blocks, and which axis of storage is the fast one
    rules : what to do
    working_dtype : float32 or float64, of the products
    missing_values : marks of missing values besides NaN, compared with stored values
    packing : scale_factor and add_offset of stored values
    integers : leave integers as they are, where no value is missing: subtract the mean rounded. What is left of
        the mean, at most 1/2, is for whoever uses the panels to take away
    """

    def __init__(
        self,
        plan: Plan,
        rules: Rules,
        working_dtype: np.dtype[Any],
        missing_values: Sequence[float] = (),
        packing: tuple[float, float] = (1.0, 0.0),
        integers: bool = False,
    ) -> None:
        self._plan, self._rules = plan, rules
        self._missing_values, self._packing, self._integers = missing_values, packing, integers
        n, features = plan.n_samples, max(plan.panel_features, plan.block_features)
        self._block = np.empty(n * plan.block_features)
        # Features along rows where samples are the fast axis of storage: then nothing is transposed.
        shape = (features, n) if plan.samples_fastest else (n, features)
        self._panel = np.empty(shape, working_dtype)

    def panels(self, raw: NDArray[Any]) -> Iterator[Panel]:
        """Preprocess a slab.

        Parameters
        ----------
        raw : the slab as stored, samples along the plan's samples axis; not written to

        Raises
        ------
        NotFinite
                At infinity, at NaN (or the sentinel) under `missing: error`, and where a sum overflows.
        """
        limit = self._panel.shape[0] if self._plan.samples_fastest else self._panel.shape[1]
        parts: list[Panel] = []
        filled = 0
        for start, stop, block, missing in self._blocks(raw):
            if filled + stop - start > limit:
                yield _joined(parts, self._columns(filled))
                parts, filled = [], 0
            part = self._standardize(start, stop, block, missing)
            with np.errstate(over="ignore"):  # the product finds what became infinite
                self._columns(filled + stop - start)[:, filled:] = block
            parts.append(part)
            filled += stop - start
        if parts:
            yield _joined(parts, self._columns(filled))

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
            block /= np.where(np.isnan(divisor[start:stop]), 1.0, divisor[start:stop])
            if missing is not None and missing.any():
                if not self._rules.center:
                    raise NotFinite  # without centring the training means are not kept to fill it with
                block[missing] = 0.0
            yield start, stop, block

    def _blocks(self, raw: NDArray[Any]) -> Iterator[tuple[int, int, F64, NDArray[np.bool_] | None]]:
        """float64 copies (n_samples, features) of a slab's blocks, and where the sentinel stands."""
        n, last = self._plan.n_samples, self._plan.samples_fastest
        data = np.moveaxis(raw, self._plan.samples_axis, -1 if last else 0)
        shape = data.shape[:-1] if last else data.shape[1:]
        factor, offset = self._packing
        for box, start, stop in split(shape, self._plan.block_features):
            values = data[(*box, slice(None))] if last else data[(slice(None), *box)]
            flat = self._block[: n * (stop - start)]
            np.copyto(flat.reshape(values.shape), values)
            block = flat.reshape(stop - start, n).T if last else flat.reshape(n, stop - start)
            missing = None
            if self._missing_values:
                found = block == self._missing_values[0]
                for mark in self._missing_values[1:]:
                    found |= block == mark
                missing = found if found.any() else None
            if self._packing != (1.0, 0.0):
                block *= factor
                block += offset
            yield start, stop, block, missing

    def _standardize(self, start: int, stop: int, block: F64, missing: NDArray[np.bool_] | None) -> Panel:
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
        integers = self._integers and missing is None
        block -= np.rint(centre) if integers else centre
        if missing is not None:
            block[missing] = 0.0
        divisor, n_constant = np.ones(stop - start), 0
        if rules.scale == "std":
            divisor, n_constant = self._std(block, centre, present)
            block /= divisor
        if not rules.center:
            block += centre / divisor
            block[:, empty] = 0.0
            mean = centre = np.zeros(stop - start)
        reduced = centre / divisor
        left = centre - np.rint(centre) if integers else np.zeros(1)
        return Panel(
            start=start,
            stop=stop,
            matrix=block,
            mean=np.where(empty, np.nan, mean),
            divisor=np.where(empty, np.nan, divisor),
            squares=float(np.einsum("nf,nf->", block, block)) - n * float(left @ left),
            mean_product=block @ reduced - (float(left @ reduced) if integers else 0.0),
            mean_norm2=float(reduced @ reduced),
            n_missing=0 if missing is None else int(missing.sum()),
            n_constant=n_constant,
            integers=integers,
        )

    def _std(self, centred: F64, centre: F64, present: Any) -> tuple[F64, int]:
        """Standard deviations of centred values, 1 where there is no variation; constants become exactly 0."""
        n = self._plan.n_samples
        variance = np.einsum("nf,nf->f", centred, centred) / np.maximum(present - self._rules.ddof, 1)
        # Rounding leaves a constant feature with a variance of at most (n eps mean)^2 (as in scikit-learn).
        constant = variance <= (n * np.finfo(np.float64).eps * centre) ** 2
        constant |= np.broadcast_to(present <= self._rules.ddof, constant.shape)
        centred[:, constant] = 0.0
        return np.where(constant, 1.0, np.sqrt(variance)), int(constant.sum())

    def _missing(self, block: F64, sentinel: NDArray[np.bool_] | None) -> NDArray[np.bool_]:
        """Where values are missing, once it is known that some value is not finite or the sentinel."""
        missing = np.isnan(block) if sentinel is None else sentinel | np.isnan(block)
        if self._rules.missing == "error" and missing.any():
            raise NotFinite
        if np.isinf(block).any():
            raise NotFinite
        return missing

    def _columns(self, stop: int) -> NDArray[Any]:
        return self._panel[:stop].T if self._plan.samples_fastest else self._panel[:, :stop]


def held(plan: Plan, working_dtype: np.dtype[Any]) -> dict[str, int]:
    """Bytes of what a Standardizer holds, by name."""
    width = max(plan.panel_features, plan.block_features)
    return {"panel": plan.n_samples * width * working_dtype.itemsize, **held_to_apply(plan)}


def held_to_apply(plan: Plan) -> dict[str, int]:
    """Bytes of what a Standardizer holds that only applies given means and divisors: it touches no panel."""
    return {"block being centred, and where it is missing": (8 + 2) * plan.n_samples * plan.block_features}


def _sums(block: F64) -> F64:
    """Sums over samples; what is not finite in them says that some value is not, at no further read."""
    with np.errstate(over="ignore", invalid="ignore"):
        sums: F64 = block.sum(axis=0)
    return sums


def _joined(parts: list[Panel], matrix: NDArray[Any]) -> Panel:
    """One panel from the blocks that were copied into `matrix` side by side."""
    return Panel(
        start=parts[0].start,
        stop=parts[-1].stop,
        matrix=matrix,
        mean=np.concatenate([part.mean for part in parts]),
        divisor=np.concatenate([part.divisor for part in parts]),
        squares=sum(part.squares for part in parts),
        mean_product=np.sum([part.mean_product for part in parts], axis=0),
        mean_norm2=sum(part.mean_norm2 for part in parts),
        n_missing=sum(part.n_missing for part in parts),
        n_constant=sum(part.n_constant for part in parts),
        integers=all(part.integers for part in parts),
    )
