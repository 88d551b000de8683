"""Centre, scale and fill one slab, in float64, a block that fits in cache at a time.

Every value is converted to float64, centred and scaled there, and rounded once, to the working precision of
the products: a mean that was itself rounded to float32 would cost more than the products do (relative error of
the Gram 1.7e-6 at mean 280 and spread 1, where the products cost 2.5e-8). In blocks of 2 MiB this runs at
2-4 GB/s of float32 a thread, since the block never leaves the cache; it includes the sum of squares, which
gives the total variance independently of the products, at no further read of the slab.

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

from dpca.slabs import Plan, split

F64 = NDArray[np.float64]

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


@dataclass
class FeaturePanel(Panel):
    """Some features, all samples of each: X_c over them, (n_samples, features)."""

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
    n_constant: int
    """Features without variation, counted only under scaling."""


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
        self._width = max(plan.panel_width, plan.block_width)
        self._block = np.empty(plan.n_kept * plan.block_width)
        # The kept side along rows where it is the fast one of storage: then nothing is transposed.
        shape = (self._width, plan.n_kept) if plan.kept_fastest else (plan.n_kept, self._width)
        self._panel = np.empty(shape, working_dtype)

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

    def _missing(self, block: F64, sentinel: NDArray[np.bool_] | None) -> NDArray[np.bool_]:
        """Where values are missing, once it is known that some value is not finite or the sentinel."""
        missing = np.isnan(block) if sentinel is None else sentinel | np.isnan(block)
        if self._rules.missing == "error" and missing.any():
            raise NotFinite
        if np.isinf(block).any():
            raise NotFinite
        return missing

    def _columns(self, stop: int) -> NDArray[Any]:
        return self._panel[:stop].T if self._plan.kept_fastest else self._panel[:, :stop]


class FeaturePanels(Standardizer):
    """Panels of features."""

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
        parts: list[FeaturePanel] = []
        filled = 0
        for start, stop, block, missing in self._blocks(raw):
            if filled + stop - start > self._width:
                yield _joined(parts, self._columns(filled))
                parts, filled = [], 0
            part = self._standardize(start, stop, block, missing)
            with np.errstate(over="ignore"):  # the product finds what became infinite
                self._columns(filled + stop - start)[:, filled:] = block
            parts.append(part)
            filled += stop - start
        if parts:
            yield _joined(parts, self._columns(filled))

    def again(self, raw: NDArray[Any], mean: F64, divisor: F64) -> Iterator[tuple[int, int, NDArray[Any]]]:
        """Preprocess a slab a second time, by what the first time gave.

        Where that says all, nothing is summed up again, and parts are a block wide, which stays in the cache.

        Yields
        ------
        start, stop, matrix : as of a panel
        """
        rules = self._rules
        if rules.scale != "none" or not (rules.center or rules.missing == "error"):
            yield from ((panel.start, panel.stop, panel.matrix) for panel in self.panels(raw))
            return
        for start, stop, block in self.apply(raw, mean, divisor):
            rounded = self._panel.reshape(-1)[: block.size]
            fast = self._plan.kept_fastest
            matrix = rounded.reshape(block.shape[::-1]).T if fast else rounded.reshape(block.shape)
            matrix[...] = block
            yield start, stop, matrix

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
        with np.errstate(over="ignore", invalid="ignore"):  # squares that overflow are found by whoever adds them up
            mean_product, mean_norm2 = block @ reduced, float(reduced @ reduced)
        return FeaturePanel(
            start=start,
            stop=stop,
            matrix=block,
            mean=np.where(empty, np.nan, mean),
            divisor=np.where(empty, np.nan, divisor),
            squares=_not_lost(np.einsum("nf,nf->", block, block), block) - n * float(left @ left),
            mean_product=mean_product - (float(left @ reduced) if integers else 0.0),
            mean_norm2=mean_norm2,
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


class SamplePanels(Standardizer):
    """Panels of samples.

    Parameters
    ----------
    as for Standardizer, and
    fill : what missing values of each feature are replaced by, (n_features,), NaN for a feature without any; None
        where values may not be missing
    about : means and factors for panels of X_c itself; None for the panel's own means, and no scaling
    """

    def __init__(self, *given: Any, fill: F64 | None = None, about: About | None = None, **named: Any) -> None:
        super().__init__(*given, **named)
        self._fill, self._about = fill, about

    def panels(self, raw: NDArray[Any]) -> Iterator[SamplePanel]:
        """Preprocess a slab; as `FeaturePanels.panels`."""
        for start, piece in self._pieces(raw):
            yield self._panel_of(start, piece)

    def present(self, raw: NDArray[Any]) -> Iterator[tuple[NDArray[np.int64], F64, int]]:
        """For each panel the number and the mean of each feature's present values, and how many are missing."""
        for _, piece in self._pieces(raw):
            count = np.zeros(self._plan.n_kept, np.int64)
            total = np.zeros(self._plan.n_kept)
            for start, stop, block, missing in self._blocks(piece):
                if missing is not None or not np.isfinite(_sums(block, 1)).all():
                    missing = self._missing(block, missing)
                    block[missing] = 0.0
                    count -= missing.sum(axis=1)
                count += stop - start
                total += _sums(block, 1)
            if not np.isfinite(total).all():
                raise NotFinite
            n_missing = piece.size - int(count.sum())
            yield count, np.divide(total, count, out=np.zeros_like(total), where=count > 0), n_missing

    def _pieces(self, raw: NDArray[Any]) -> Iterator[tuple[int, NDArray[Any]]]:
        """Parts of a slab, a panel wide."""
        data = np.moveaxis(raw, self._plan.samples_axis, 0)
        for start in range(0, len(data), self._width):
            yield start, np.moveaxis(data[start : start + self._width], 0, self._plan.samples_axis)

    def _filled(self, piece: NDArray[Any]) -> Iterator[tuple[int, int, F64, int]]:
        """Blocks without missing values, and how many were filled in."""
        for start, stop, block, missing in self._blocks(piece):
            n_missing = 0
            if missing is not None or not np.isfinite(_sums(block, 1)).all():
                missing = self._missing(block, missing)
                n_missing = int(missing.sum())
                if n_missing:
                    if self._fill is None:
                        raise NotFinite
                    np.copyto(block, np.nan_to_num(self._fill)[:, None], where=missing)
            yield start, stop, block, n_missing

    def _panel_of(self, start: int, piece: NDArray[Any]) -> SamplePanel:
        width = piece.shape[self._plan.samples_axis]
        about = self._about or self._own_means(piece, width)
        rounded = np.rint(about.offset) if self._integers else about.offset
        n_missing, squares, matrix = 0, np.zeros_like(rounded), self._columns(width)
        for first, last, block, filled in self._filled(piece):
            # In two steps: a mean that is rounded once is off by more than values that are close to it differ.
            block -= about.origin[:, None]
            block -= rounded[:, None]
            block *= about.factor[:, None]
            squares += _each_not_lost(np.einsum("mw,mw->m", block, block), block)
            if self._about is None and not self._rules.center:
                block += rounded[:, None]
                block += about.origin[:, None]
            with np.errstate(over="ignore"):  # the product finds what became infinite
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
        )

    def _own_means(self, piece: NDArray[Any], width: int) -> About:
        """Means of the samples of a piece, from how they differ from the first of them."""
        total, origin = np.zeros(self._plan.n_kept), np.zeros(0)
        for start, _, block, _ in self._filled(piece):
            if start == 0:
                origin = block[:, 0].copy()
            block -= origin[:, None]
            total += _sums(block, 1)
        if not np.isfinite(total).all():
            raise NotFinite
        return About(origin, total / width, np.ones_like(total))


def held(plan: Plan, working_dtype: np.dtype[Any]) -> dict[str, int]:
    """Bytes of what a Standardizer holds, by name."""
    width = max(plan.panel_width, plan.block_width)
    return {"panel": plan.n_kept * width * working_dtype.itemsize, **held_to_apply(plan)}


def held_to_apply(plan: Plan) -> dict[str, int]:
    """Bytes of what a Standardizer holds that only applies given means and divisors: it touches no panel."""
    return {"block being centred, and where it is missing": (8 + 2) * plan.n_kept * plan.block_width}


def _sums(block: F64, axis: int = 0) -> F64:
    """Sums over samples; what is not finite in them says that some value is not, at no further read."""
    with np.errstate(over="ignore", invalid="ignore"):
        sums: F64 = block.sum(axis=axis)
    return sums


def _not_lost(squares: Any, block: F64) -> float:
    """A sum of squares, the smallest number there is where all of them underflow to 0."""
    return float(squares) or (SMALLEST if block.any() else 0.0)


def _each_not_lost(squares: F64, block: F64) -> F64:
    return squares if squares.all() else np.where((squares == 0) & block.any(axis=1), SMALLEST, squares)


def _joined(parts: list[FeaturePanel], matrix: NDArray[Any]) -> FeaturePanel:
    """One panel from the blocks that were copied into `matrix` side by side."""
    return FeaturePanel(
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
