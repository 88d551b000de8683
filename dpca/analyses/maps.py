"""The maps of any number of answers, in one pass over the data: W = X' C, with the measurements that certify them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpca.analyses.answers import COMPONENT, Answer, Maps
from dpca.derived.operators import Matrix
from dpca.execution.progress import Report
from dpca.execution.stage import InTurn, Stage
from dpca.methods.dataset import Dataset
from dpca.methods.passes import Pass
from dpca.methods.stages import Stages
from dpca.numerics.accumulators.grouped import ByGroup, OfGroup, counted
from dpca.numerics.accumulators.tallies import Counts
from dpca.numerics.backproject import sums_of_squares
from dpca.numerics.ladder import Rung
from dpca.numerics.panels import Rules
from dpca.numerics.spectrum import reciprocal
from dpca.planning.runplan import MapColumns, RunPlan
from dpca.slabs import TILE_BYTES, Plan, extent
from dpca.store.arrays import Dims, of_group
from dpca.store.fitted import Fitted
from dpca.store.outputs import Outputs
from dpca.types import F64

COMPONENTS, STANDARD_ERRORS = "components", "standard_errors"
AS_COVARIANCE, AS_CORRELATION = "as_covariance", "as_correlation"
LOSSY = 100.0
"""Where operators remove more than all but this share of the samples, single precision of the maps would lose digits that are there."""


@dataclass(frozen=True)
class Piece:
    """The maps of one answer among all columns."""

    name: str
    """Name of the array, behind that of its answer: seasonal/components."""
    columns: slice
    """Its columns among all: for each of the outer axis the real parts of all components, then the imaginary ones."""
    shape: tuple[int, ...]
    """(k,) or (outer, k)."""
    complex: bool

    @property
    def blocks(self) -> list[slice]:
        """Columns of each of the outer axis."""
        width = self.shape[-1] * (1 + self.complex)
        return [slice(start, start + width) for start in range(self.columns.start, self.columns.stop, width)]

    def of(self, columns: NDArray[Any]) -> NDArray[Any]:
        """The maps, (k or outer, k, ...), real or complex, from all real columns, (q, ...)."""
        own, beyond = columns[self.columns], columns.shape[1:]
        if not self.complex:
            return own.reshape(*self.shape, *beyond)
        parts = own.reshape(*self.shape[:-1], 2, self.shape[-1], *beyond)
        real, imaginary = np.moveaxis(parts, len(self.shape) - 1, 0)
        found: NDArray[Any] = np.empty(real.shape, np.result_type(own.dtype, np.complex64))
        found.real, found.imag = real, imaginary
        return found


@dataclass(frozen=True)
class Errors:
    """The maps of standard errors of one answer."""

    name: str
    """Name of the array, behind that of its answer."""
    maps: slice
    """The columns of the components that they are the errors of."""
    deviations: tuple[slice, ...]
    """Columns of deviations of each component: an error is the root of the sum of squares of their maps."""

    def piece(self, start: int) -> Piece:
        """Its maps among all that are stored, from a place on."""
        k = len(self.deviations)
        return Piece(self.name, slice(start, start + k), (k,), False)


@dataclass(frozen=True)
class Scaled:
    """The maps of one answer for one standard deviation of the score."""

    name: str
    """Name of the array, behind that of its answer."""
    maps: slice
    """The columns of the components that are scaled."""
    sizes: tuple[float, ...]
    """Factor of each component: the standard deviation of its score; for correlations the norm of its scores."""
    rows: slice | None
    """Columns of coefficients of the rows, the norm of whose values a correlation is divided by; None in the unit of the data."""

    def piece(self, start: int) -> Piece:
        """Its maps among all that are stored, from a place on."""
        k = len(self.sizes)
        return Piece(self.name, slice(start, start + k), (k,), False)


@dataclass(frozen=True)
class Stack:
    """The coefficients of all maps side by side, as real columns."""

    columns: NDArray[Any]
    """C, (n, q), in the precision of the products. Tasks get it as an argument of its own, which arrives aligned (`dpca.execution.engine`)."""
    sums: F64
    """1'C, (q,): what the mean is multiplied by."""
    pieces: tuple[Piece, ...]
    stored: np.dtype[Any]
    """Type in which real parts are stored."""
    deviations: NDArray[Any]
    """Coefficients of deviations and of rows, (n, Q), in the precision of the products; an argument of tasks, too."""
    errors: tuple[Errors, ...]
    scaled: tuple[Scaled, ...]

    @classmethod
    def of(cls, answers: Mapping[str, Answer], dtype: np.dtype[Any], stored: np.dtype[Any]) -> Stack:
        """The columns of some answers, by name."""
        columns, pieces, start = [], [], 0
        deviations, errors, scaled, at = [], list[Errors](), list[Scaled](), 0
        for name, answer in answers.items():
            own = _real(answer.its_maps)
            stop = start + own.shape[1]
            is_complex = answer.its_maps.dtype.kind == "c"
            pieces.append(Piece(f"{name}/{COMPONENTS}", slice(start, stop), answer.its_maps.shape, is_complex))
            columns.append(own)
            if (given := answer.its_maps.deviations) is not None:
                n, k, width = given.shape
                each = tuple(slice(at + number * width, at + (number + 1) * width) for number in range(k))
                errors.append(Errors(f"{name}/{STANDARD_ERRORS}", slice(start, stop), each))
                deviations.append(given.reshape(n, -1))
                at += k * width
            if (deviation := answer.its_maps.score_deviation) is not None:
                scaled.append(Scaled(f"{name}/{AS_COVARIANCE}", slice(start, stop), tuple(deviation), None))
            if (rows := answer.its_maps.rows) is not None:
                sizes = tuple(np.linalg.norm(answer.its_maps.scores, axis=0))
                own_rows = slice(at, at + rows.shape[1])
                scaled.append(Scaled(f"{name}/{AS_CORRELATION}", slice(start, stop), sizes, own_rows))
                deviations.append(rows)
                at = own_rows.stop
            start = stop
        together = np.hstack(columns)
        beside = np.hstack(deviations) if deviations else np.empty((len(together), 0))
        return cls(
            np.ascontiguousarray(together, dtype),
            np.asarray(together.sum(axis=0)),
            tuple(pieces),
            stored,
            np.ascontiguousarray(beside, dtype),
            tuple(errors),
            tuple(scaled),
        )

    @property
    def written(self) -> tuple[Piece, ...]:
        """All that is stored: maps, then standard errors, then maps for one standard deviation of the score."""
        found, start = list(self.pieces), self.n_columns
        for one in self._beside:
            found.append(one.piece(start))
            start = found[-1].columns.stop
        return tuple(found)

    @property
    def _beside(self) -> list[Errors | Scaled]:
        """Arrays that are stored after the maps, in this order."""
        return [*self.errors, *self.scaled]

    @property
    def n_errors(self) -> int:
        """How many maps of standard errors there are."""
        return sum(len(one.deviations) for one in self.errors)

    @property
    def n_scaled(self) -> int:
        """How many maps for one standard deviation of the score there are."""
        return sum(len(one.sizes) for one in self.scaled)

    def factors(self, answers: Mapping[str, Answer], n_parts: int) -> F64 | None:
        """Factors of the features of each part for each column, (parts, q); None where that is 1."""
        found = np.ones((n_parts, self.n_columns))
        for piece, answer in zip(self.pieces, answers.values(), strict=True):
            weighting = answer.its_maps.weighting
            given = None if weighting is None else weighting.factors
            if given is not None:
                for number, block in enumerate(piece.blocks):
                    found[:, block] = (given if given.ndim == 1 else given[:, number])[:, None]
        return None if (found == 1).all() else found

    def of_written(self, factors: NDArray[Any]) -> NDArray[Any]:
        """Factors of the features for each map that is stored, from those of all columns, (q,)."""
        return np.concatenate([factors, *(factors[one.maps] for one in self._beside)])

    def for_one_deviation(
        self,
        maps: NDArray[Any],
        rows: NDArray[Any],
        matrix: NDArray[Any],
        divisor: F64,
        factors: NDArray[Any] | None = None,
    ) -> NDArray[Any]:
        """Maps of some features for one standard deviation of the score, (n_scaled, w); NaN where a feature counts with 0.

        Parameters
        ----------
        maps : the components of these features, (q, w)
        rows : coefficients of deviations and of rows, (n, Q)
        matrix : of X_c, (n, w)
        divisor : 1 / t, by which X_c becomes the data about their mean, (w,)
        factors : what the features are multiplied by for each column, (q,); None for 1
        """
        found = [np.empty((0, matrix.shape[1]), self.stored)]
        for one in self.scaled:
            size = np.array(one.sizes) if factors is None else reciprocal(factors[one.maps]) * np.array(one.sizes)
            with np.errstate(divide="ignore", invalid="ignore"):
                if one.rows is None:
                    per_feature = np.where(np.isfinite(divisor), divisor, np.nan)
                else:
                    per_feature = 1 / np.sqrt(sums_of_squares(rows[:, one.rows], matrix))
                    per_feature[np.isinf(per_feature)] = np.nan  # a feature that does not vary
                found.append((size[:, None] * per_feature * maps[one.maps]).astype(self.stored))
        return np.concatenate(found)

    @property
    def n_columns(self) -> int:
        """q."""
        return len(self.sums)


def precisions(answers: Iterable[Answer], working: np.dtype[Any]) -> tuple[np.dtype[Any], np.dtype[Any]]:
    """Types of the products, and of the stored maps: where operators remove most of the samples, single precision leaves few digits.

    Parameters
    ----------
    working : of the runs' products
    """
    most = max(answer.certificate["amplification"] for answer in answers)
    return np.dtype(np.float64) if most > LOSSY else working, working


def columns_of_maps(answers: Mapping[str, Answer]) -> MapColumns:
    """The real columns of all maps, and of deviations."""
    maps = [answer.its_maps for answer in answers.values()]
    shapes = [one.deviations.shape for one in maps if one.deviations is not None]
    return MapColumns(
        sum(math.prod(one.shape) * (1 + (one.dtype.kind == "c")) for one in maps),
        sum(k for _, k, _ in shapes),
        sum(k * width for _, k, width in shapes) + sum(one.rows.shape[1] for one in maps if one.rows is not None),
        sum(math.prod(one.shape) * ((one.score_deviation is not None) + (one.rows is not None)) for one in maps),
    )


def _real(maps: Maps) -> F64:
    """Coefficients as real columns, (n, q): of each of the outer axis the real parts, then the imaginary ones."""
    coefficients = maps.coefficients if maps.outer else maps.coefficients[None]
    if maps.dtype.kind == "c":
        coefficients = np.concatenate([coefficients.real, coefficients.imag], axis=2)
    return np.asarray(np.moveaxis(coefficients, 0, 1).reshape(coefficients.shape[1], -1), np.float64)


@dataclass
class MeasuredMaps:
    """Measurements of maps while they are made: sums over features."""

    overlap: F64
    """W'W of each block of columns, flattened, one after another."""
    projection: F64
    """X_c W, (n, q)."""
    of_mean: F64
    """m~'W, (q,)."""
    squares: F64
    """Sum of squares of each map of standard errors, (n_errors,)."""
    counts: Counts = field(default_factory=Counts)

    @classmethod
    def empty(cls, stack: Stack, n: int) -> MeasuredMaps:
        """Sums of no features, of n samples."""
        q = len(stack.sums)
        size = sum((block.stop - block.start) ** 2 for piece in stack.pieces for block in piece.blocks)
        return cls(np.zeros(size), np.zeros((n, q)), np.zeros(q), np.zeros(stack.n_errors))

    def add(
        self, stack: Stack, columns: NDArray[Any], matrix: NDArray[Any], mean: F64, factors: NDArray[Any] | None = None
    ) -> NDArray[Any]:
        """The maps of some features, (q, w), rounded as they are stored.

        Parameters
        ----------
        factors : what the features are multiplied by for each column, (q,); None for 1
        columns : of the stack
        matrix : of X_c, (n, w)
        mean : m~ of these features, (w,)
        """
        maps: NDArray[Any] = columns.T @ matrix
        if stack.sums.any():
            maps += np.outer(stack.sums, mean).astype(maps.dtype)
        if factors is not None:
            maps *= factors[:, None].astype(maps.dtype)
        if maps.dtype != stack.stored:
            maps = maps.astype(stack.stored).astype(maps.dtype)
        start = 0
        for piece in stack.pieces:
            for block in piece.blocks:
                own = maps[block]
                stop = start + len(own) ** 2
                self.overlap[start:stop] += (own @ own.T).ravel()
                start = stop
        projected, of_mean = matrix @ maps.T, maps @ mean
        self.projection += projected if factors is None else projected * factors
        self.of_mean += of_mean if factors is None else of_mean * factors
        return maps

    def add_errors(
        self, stack: Stack, deviations: NDArray[Any], matrix: NDArray[Any], factors: NDArray[Any] | None = None
    ) -> NDArray[Any]:
        """The standard errors of maps of some features, (n_errors, w), rounded as they are stored; parameters as of `add`.

        Parameters
        ----------
        deviations : of the stack
        """
        found = np.empty((stack.n_errors, matrix.shape[1]), stack.stored)
        rows = iter(found)
        for one in stack.errors:
            for number, columns in enumerate(one.deviations):
                root = np.sqrt(sums_of_squares(deviations[:, columns], matrix))
                next(rows)[:] = root if factors is None else root * factors[one.maps][number]
        self.squares += (found.astype(np.float64) ** 2).sum(axis=1)
        return found

    def merge(self, other: MeasuredMaps) -> MeasuredMaps:
        """Add those of other features, in place."""
        self.overlap += other.overlap
        self.projection += other.projection
        self.of_mean += other.of_mean
        self.squares += other.squares
        self.counts.merge(other.counts)
        return self

    def overlaps(self, stack: Stack) -> list[list[Matrix]]:
        """W^H W of each piece, for each of its outer axis, (k, k)."""
        found, start = list[list[Matrix]](), 0
        for piece in stack.pieces:
            own = []
            for block in piece.blocks:
                width = block.stop - block.start
                own.append(_hermitian(self.overlap[start : start + width**2].reshape(width, width), piece.complex))
                start += width**2
            found.append(own)
        return found


def _hermitian(overlap: F64, is_complex: bool) -> Matrix:
    """W^H W of W = A + i B, from the products of [A, B]."""
    if not is_complex:
        return overlap
    k = len(overlap) // 2
    real = overlap[:k, :k] + overlap[k:, k:]
    return np.asarray(real + 1j * (overlap[:k, k:] - overlap[k:, :k]))


@dataclass(frozen=True)
class MapsPass(Pass):
    """The pass over one group of features."""

    fitted: Fitted | None = None
    """Means and divisors of the run; these and nothing else make X_c of the data."""
    factors_of_columns: F64 | None = None
    """Factors of the features of this part for each column, (q,); None for 1."""


def maps_span(
    work: MapsPass, stack: Stack, columns: NDArray[Any], deviations: NDArray[Any], span: int, report: Report
) -> OfGroup[MeasuredMaps]:
    """Write the maps of a span of features, and measure them. A feature that the run left out is NaN.

    Parameters
    ----------
    stack, columns, deviations : the coefficients, (n, q) and (n, Q), and what they are
    """
    assert work.fitted is not None
    factors = work.factors_of_columns
    q = stack.n_columns
    measured, standardizer = MeasuredMaps.empty(stack, len(columns)), work.feature_panels()
    for tile, slabs in work.read(span, measured.counts, report):
        (means, divisors), regressed = work.fitted.of_mean(tile), work.fitted.regressed(tile)
        n_errors = q + stack.n_errors
        found = np.empty((n_errors + stack.n_scaled, *extent(tile)), stack.stored)
        for slab in slabs:
            mean, divisor = means[slab.inside].reshape(-1), divisors[slab.inside].reshape(-1)
            of_slab = np.empty((len(found), mean.size), stack.stored)
            reduced = np.nan_to_num(standardizer.reduced(mean, divisor))
            fit = work.baseline(None if regressed is None else regressed.of(slab.inside))
            for panel in slab.located(standardizer.applied(slab.raw, mean, divisor, fit)):
                own = slice(panel.start, panel.stop)
                of_slab[:q, own] = measured.add(stack, columns, panel.matrix, reduced[own], factors)
                of_slab[q:n_errors, own] = measured.add_errors(stack, deviations, panel.matrix, factors)
                of_slab[n_errors:, own] = stack.for_one_deviation(
                    of_slab[:q, own], deviations, panel.matrix, divisor[own], factors
                )
            of_slab[:, np.isnan(mean)] = np.nan
            if factors is not None:  # left out: 0 would look like a map
                of_slab[np.flatnonzero(stack.of_written(factors) == 0)] = np.nan
            found[(slice(None), *slab.inside)] = of_slab.reshape(-1, *extent(slab.box))
        for piece in stack.written:
            work.write(piece.name, tile, piece.of(found))
    return OfGroup(work.group, measured)


def create_maps(
    outputs: Outputs,
    plan: Plan,
    dims: Dims,
    stack: Stack,
    axes: Mapping[str, tuple[str, ...]],
    unit: Mapping[str, Any] = {},
) -> None:
    """Create the arrays of maps of one group of features: a task writes whole chunks.

    Parameters
    ----------
    axes : names of those before the features' in the maps of each answer, by the name of the array; of others `component`
    unit : attributes of the data of these features that say their unit
    """
    told = {
        AS_COVARIANCE: {"long_name": "data for one standard deviation of the score", **unit},
        AS_CORRELATION: {"long_name": "correlation of data and score", "units": "1"},
    }
    tile = [cut.step for cut in plan.tiles]
    for piece in stack.written:
        dtype = np.result_type(stack.stored, np.complex64) if piece.complex else stack.stored
        together = max(1, TILE_BYTES // (math.prod(tile) * np.dtype(dtype).itemsize))
        chunks, rest = list[int](), together
        for length in reversed(piece.shape):
            chunks.insert(0, max(1, min(length, rest)))
            rest //= length
        outputs.create_array(
            of_group(piece.name, dims.group),
            (*piece.shape, *plan.streamed_shape),
            (*chunks, *tile),
            dtype,
            (*axes.get(piece.name, (COMPONENT,)), *dims.features),
            attributes=told.get(piece.name.rpartition("/")[2], {}),
        )


@dataclass(frozen=True)
class Backprojection:
    """One pass for the maps of all answers."""

    data: Dataset
    fitted: tuple[Fitted, ...]
    """Means and divisors of each group."""
    rules: Rules
    answers: Mapping[str, Answer]
    dims: tuple[Dims, ...]
    """Names of the axes of each group."""
    regressors: tuple[F64 | None, ...]
    """Regressors of the samples whose fit the run of each group subtracted, (n, p)."""
    units: tuple[Mapping[str, Any], ...]
    """Attributes of the data of each group that say their unit."""
    dtype: np.dtype[Any]
    """Type of the products."""
    stored: np.dtype[Any]

    @cached_property
    def stack(self) -> Stack:
        """The coefficients side by side."""
        return Stack.of(self.answers, self.dtype, self.stored)

    def run(self, stages: Stages, streams: Dataset, run_plan: RunPlan, outputs: Outputs) -> dict[str, dict[str, Any]]:
        """Make the maps; returns what was measured of those of each answer (`measured`).

        Parameters
        ----------
        streams : the data as they are read
        """
        stack, rung = self.stack, Rung("gram_eigh", self.dtype)
        axes = {f"{name}/{COMPONENTS}": answer.its_maps.dims for name, answer in self.answers.items()}
        for plan, dims, unit in zip(streams.plans, self.dims, self.units, strict=True):
            create_maps(outputs, plan, dims, stack, axes, unit)
        names = tuple(piece.name for piece in stack.written)
        of_all = streams.work(self.rules, rung, outputs=outputs, writes=names)
        factors = stack.factors(self.answers, len(self.fitted))
        works = [
            MapsPass(
                **{**vars(work), "weights": None, "factor": 1.0, "regressors": regressors},
                fitted=fitted,
                factors_of_columns=None if factors is None else factors[part],
            )
            for part, (work, fitted, regressors) in enumerate(
                zip(of_all.works, self.fitted, self.regressors, strict=True)
            )
        ]
        columns, deviations = stack.columns, stack.deviations
        empty = ByGroup(tuple(MeasuredMaps.empty(stack, len(columns)) for _ in works))
        stage = Stage(
            name=COMPONENTS,
            task=maps_span,
            work=InTurn.of(works),
            shared=(replace(stack, columns=columns[:0], deviations=deviations[:0]), columns, deviations),
            empty=empty,
            merge=ByGroup.merge,
            like=OfGroup(0, empty.sums[0]),
            concurrency=run_plan.concurrency,
            n_bytes=streams.n_bytes,
        )
        sums = stages.read(stage, lambda found: counted(one.counts for one in found.sums))
        total, *others = sums.sums
        for other in others:
            total.merge(other)
        overlaps = total.overlaps(stack)
        projected = total.projection + total.of_mean
        found = {
            name: measured(answer.its_maps, overlap, _complex_of(piece, projected))
            for (name, answer), piece, overlap in zip(self.answers.items(), stack.pieces, overlaps, strict=True)
        }
        start = 0
        for name, answer in self.answers.items():
            if (expected := answer.its_maps.deviations_norm2) is not None:
                squares = total.squares[start : start + len(expected)]
                start += len(expected)
                relative = np.abs(squares - expected) / np.where(expected > 0, expected, 1.0)
                found[name]["standard_errors"] = _listed(relative)
        return found


def _complex_of(piece: Piece, projected: F64) -> Matrix:
    """X W of a piece, (n, k) or (outer, n, k), from all real columns, (n, q)."""
    found = piece.of(projected.T)  # (k, n) or (outer, k, n)
    return np.swapaxes(found, -1, -2)


def measured(maps: Maps, overlaps: Sequence[Matrix], projected: Matrix) -> dict[str, Any]:
    """Comparison of maps with what they should be.

    Parameters
    ----------
    overlaps : W^H W, (k, k), for each of the outer axis
    projected : X W

    Returns
    -------
    dict with keys
        orthogonality : largest entry of |W^H W - I|, maps that are zero excepted; of modes |norm - 1|; of directions of cca, which are not
            orthogonal, |W^H W - D| relative to their norms, with D as products give it
        standard_errors : where there are some, relative error of their sum of squares over all features, against what products give
        residual_data : |A X w - lambda^(1/2) u| / lambda^(1/2) of each component; of modes |X w - K c| / |K c|. A list for each frequency
            of spod, null where a map is zero
    """
    found, expected = maps.scores_of(projected), maps.scores
    sizes = np.linalg.norm(expected, axis=-2)
    with np.errstate(invalid="ignore", divide="ignore"):
        residuals = np.linalg.norm(found - expected, axis=-2) / sizes
    there = sizes > 0
    if maps.orthonormal == "together":
        overlaps = [np.sum(overlaps, axis=0)]
    largest = 0.0
    for number, (overlap, kept) in enumerate(zip(overlaps, np.atleast_2d(there), strict=True)):
        off = np.abs(overlap - np.eye(len(overlap)))
        if maps.overlaps is not None:
            norms = np.sqrt(np.diagonal(maps.overlaps[number]))
            off = np.abs(overlap - maps.overlaps[number]) / np.outer(norms, norms)
        if maps.orthonormal == "no":
            off = np.diag(np.diagonal(off))
        largest = max(largest, float(np.where(np.outer(kept, kept), off, 0.0).max(initial=0.0)))
    shown = np.where(there, residuals, np.nan)
    return {"orthogonality": largest, "residual_data": _listed(shown)}


def _listed(values: F64) -> list[Any]:
    """Nested lists, None in place of NaN."""
    if values.ndim > 1:
        return [_listed(row) for row in values]
    return [None if np.isnan(value) else float(value) for value in values]


def with_maps(answer: Answer, found: Mapping[str, Any]) -> Answer:
    """The answer with what was measured of its maps."""
    certificate = {**answer.certificate, "maps": dict(found)}
    flat = [value for value in np.ravel(np.array(found["residual_data"], float)) if not np.isnan(value)]
    what = "norms of modes 1" if answer.its_maps.orthonormal == "no" else "maps orthogonal"
    what = what if answer.its_maps.overlaps is None else "products of maps those of the samples"
    words = f", {what} to {found['orthogonality']:.1e}, largest residual {max(flat, default=0.0):.1e}"
    return replace(answer, certificate={**certificate, "verdict": certificate["verdict"] + words})
