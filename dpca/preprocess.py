"""Centre, scale and fill one slab: values as stored become panels of X_c in the precision of the products.

Mostly the mean is all that values have to lose, and working precision holds each of them. Then they go from storage
straight into the panel, less their mean rounded to working precision: H K H takes away exactly what is left of it,
and what else is summed up accounts for it. Everything else (missing values, scales, packed values, float64 that is to
be multiplied in single precision) is done in float64, in blocks of 2 MiB that never leave the cache, and rounded once.

Means are float64 sums. The sum of squares is added up without the products, at no further read of the slab, and
gives the total variance independently of them.

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

Rounding = Literal["precision", "integers"]

UNDERFLOW = {size: float(np.finfo(f"f{size}").tiny) * 2**24 for size in (4, 8)}
"""A sum of squares below this may have lost digits to products that underflow, by the size of a float."""

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
    rounding : whether a mean may be rounded before it is subtracted: to what the working precision holds, so that
        nothing is converted to float64, or to an integer, so that integers stay integers. What is left of the mean
        is for whoever uses the panels to take away
    """

    def __init__(
        self,
        plan: Plan,
        rules: Rules,
        working_dtype: np.dtype[Any],
        missing_values: Sequence[float] = (),
        packing: tuple[float, float] = (1.0, 0.0),
        rounding: Rounding | None = None,
    ) -> None:
        self._plan, self._rules = plan, rules
        self._missing_values, self._packing, self._rounding = missing_values, packing, rounding
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
            if self._packing != (1.0, 0.0):
                block *= factor
                block += offset
            yield start, stop, block, missing

    def _marked(self, values: NDArray[Any]) -> NDArray[np.bool_] | None:
        """Where one of the marks of missing values stands; None where none does."""
        found: NDArray[np.bool_] | None = None
        for mark in self._missing_values:
            found = values == mark if found is None else found | (values == mark)
        return found if found is not None and found.any() else None

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
            yield (self._directly(start, piece) if self._rounding else None) or self._in_blocks(start, piece)

    def _directly(self, start: int, piece: NDArray[Any]) -> FeaturePanel | None:
        """Centre values by means rounded, from storage straight into the panel; None where it takes more than that."""
        if not self._as_stored(piece):
            return None
        n, dtype = self._plan.n_samples, self._panel.dtype
        with np.errstate(over="ignore", invalid="ignore"):
            mean = piece.sum(axis=self._plan.samples_axis, dtype=np.float64).reshape(-1) / n
        if not np.isfinite(mean).all():
            return None
        integers = self._rounding == "integers"
        rounded = (np.rint(mean) if integers else mean).astype(dtype)
        with np.errstate(all="ignore"):
            matrix = self._subtract(piece, rounded)
            squares = float(np.einsum("nf,nf->n", matrix, matrix).sum(dtype=np.float64))
            # Of integers the raw Gram matrix is exact, too.
            mean_product = self._in_double(matrix, mean) if integers else matrix @ mean.astype(dtype)
            mean_norm2 = float(mean @ mean)
        lost = squares < n * UNDERFLOW[dtype.itemsize] and not integers
        if lost or not np.isfinite(squares) or not np.isfinite(mean_product).all():
            return None  # float64 holds more
        left = mean - rounded
        return FeaturePanel(
            start=start,
            stop=start + mean.size,
            matrix=matrix,
            mean=mean,
            divisor=np.ones_like(mean),
            squares=squares - n * float(left @ left),
            mean_product=mean_product - float(left @ mean),
            mean_norm2=mean_norm2,
            n_missing=0,
            n_constant=0,
            integers=integers,
        )

    def _as_stored(self, piece: NDArray[Any]) -> bool:
        """Whether the mean is all that values as stored have to lose, and working precision holds each of them."""
        marked = self._missing_values and (piece.dtype.kind == "f" or self._marked(piece) is not None)
        plain = self._rules.center and self._rules.scale == "none" and self._packing == (1.0, 0.0)
        return plain and not marked and np.can_cast(piece.dtype, self._panel.dtype)

    def _subtract(self, piece: NDArray[Any], mean: NDArray[Any]) -> NDArray[Any]:
        """Into the panel, with no copy on the way."""
        fast = self._plan.kept_fastest
        values = np.moveaxis(piece, self._plan.samples_axis, -1 if fast else 0)
        shape = (*values.shape[:-1], 1) if fast else values.shape[1:]
        np.subtract(values, mean.reshape(shape), out=self._panel[: values.size].reshape(values.shape))
        return self._matrix(mean.size)

    def _in_double(self, matrix: NDArray[Any], vector: F64) -> F64:
        """Their product, whatever the panel's precision."""
        found, width = np.zeros(len(matrix)), self._plan.block_width
        for start in range(0, len(vector), width):
            some = matrix[:, start : start + width]
            block = self._block[: some.size].reshape(some.shape)
            np.copyto(block, some)
            found += block @ vector[start : start + width]
        return found

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
        block -= centre
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
        with np.errstate(over="ignore", invalid="ignore"):  # squares that overflow are found by whoever adds them up
            mean_product, mean_norm2 = block @ reduced, float(reduced @ reduced)
        return FeaturePanel(
            start=start,
            stop=stop,
            matrix=block,
            mean=np.where(empty, np.nan, mean),
            divisor=np.where(empty, np.nan, divisor),
            squares=_not_lost(np.einsum("nf,nf->", block, block), block),
            mean_product=mean_product,
            mean_norm2=mean_norm2,
            n_missing=0 if missing is None else int(missing.sum()),
            n_constant=n_constant,
            integers=False,
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
        self._rounded = self._rounding == "integers"

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
        rounded = np.rint(about.offset) if self._rounded else about.offset
        n_missing, squares, matrix = 0, np.zeros_like(rounded), self._matrix(width)
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
            integers=self._rounded and not n_missing,
            origin=about.origin,
            offset=about.offset,
            squares=squares - width * left**2,
            left=left if self._rounded else None,
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
