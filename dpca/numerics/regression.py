"""The least-squares fit of regressors to each feature, which the first pass subtracts: X_c = (I - Q Q') X; of all samples together, or of each group alone.

What is left may then be divided, in each group of samples, by its standard deviation there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dpca.numerics.preprocess import is_constant
from dpca.slabs import Box, Plan
from dpca.types import F64

EPS = float(np.finfo(np.float64).eps)
UNKNOWN = 1e-10
"""The values that are present say nothing of a direction that has a smaller share of its squares at them."""
CONVERGED = 1e-10
"""Where values are missing, the fit is iterated until its residual is this share of the first; a second fit finds the rest."""


@dataclass(frozen=True)
class Fit:
    """The fit to the features of a block."""

    constant: F64
    """Mean of all that was subtracted, (w,)."""
    coefficients: F64
    """Coefficients of each regressor, (p, w)."""
    level: F64
    """The size of what was subtracted, (w,): what varies by its rounding alone is constant."""
    size: F64
    """The size of the fit's rounding errors over eps, (w,): its root mean square times the root of its number of terms."""
    scales: F64 | None = None
    """Divisors of each feature in each group of samples after that, (groups, w); None for nothing. Level and size are then divided, too."""
    left: F64 | None = None
    """Sum of squares of what was left before the division, (w,)."""


@dataclass(frozen=True, eq=False)
class LeastSquares:
    """The least-squares fit of regressors to some samples: a projector on what they explain."""

    basis: F64
    """Q, orthonormal, (n, q); the first column is constant."""
    to_coefficients: F64
    """Matrix that turns coefficients of the other columns of Q into those of the regressors, (p, q - 1)."""

    def subtract(self, values: F64, missing: NDArray[np.bool_] | None) -> F64:
        """Subtract the fit, in place; returns its coefficients in Q, (q, w). Missing values become 0, which is the fit.

        It is done twice: what one fit leaves of itself is its rounding error, which may be large beside what remains.

        Parameters
        ----------
        values : (n, w), less a mean
        missing : where values are missing, and 0: the fit is to the others; None for nowhere
        """
        total = np.zeros((self.basis.shape[1], values.shape[1]))
        for _ in range(2):
            found = self.basis.T @ values
            if missing is not None:
                found = self._solved(found, missing, EPS**2 * np.einsum("nf,nf->f", values, values))
            values -= self.basis @ found
            if missing is not None:
                values[missing] = 0.0
            total += found
        return total

    def _solved(self, products: F64, missing: NDArray[np.bool_], rounding: F64) -> F64:
        """The b of Q'P Q b = Q'P x for each feature, where P takes the values that are present, by conjugate gradients.

        Of its matrix nothing is held, whose eigenvalues are the shares that are present, of each group of samples. There
        are few different ones, and each iteration finds one. Of a group without a value nothing is found: 0.

        Parameters
        ----------
        products : Q'P x, (q, w)
        rounding : squares of what the products of each feature have as rounding errors, (w,)
        """
        found, residual = np.zeros_like(products), products.copy()
        direction, squares = residual.copy(), np.einsum("qf,qf->f", products, products)
        enough = np.maximum(CONVERGED**2 * squares, len(self.basis) * rounding)
        for _ in range(len(products)):
            if (squares <= enough).all():
                break
            image = self.basis @ direction
            image[missing] = 0.0
            image = self.basis.T @ image
            curvature = np.einsum("qf,qf->f", direction, image)
            going = (squares > enough) & (curvature > UNKNOWN * np.einsum("qf,qf->f", direction, direction))
            enough[~going] = np.inf
            step = np.divide(squares, curvature, out=np.zeros_like(squares), where=going)
            found += step * direction
            residual -= step * image
            before, squares = squares, np.einsum("qf,qf->f", residual, residual)
            direction = residual + np.divide(squares, before, out=np.zeros_like(squares), where=going) * direction
        return found


@dataclass(frozen=True, eq=False)
class FitPart:
    """Samples that are fitted alone."""

    samples: slice | NDArray[np.intp]
    """Their numbers."""
    least_squares: LeastSquares
    regressors: slice
    """The regressors that it has coefficients of."""
    mean: int | None = None
    """Number of the regressor that is 1 at these samples and 0 at others; None for the part of all samples."""


@dataclass(frozen=True, eq=False)
class Regression:
    """The fits to the samples of a run: one, or one of each group. It is small, and every task has it."""

    parts: tuple[FitPart, ...]
    n_samples: int
    n_regressors: int
    """The number of regressors, p, which may depend on each other; the constant is none of them."""
    groups: tuple[NDArray[np.intp], ...] = ()
    """Numbers of the samples of each group in which what is left may be divided; those of the parts, where there are several."""

    @classmethod
    def of_all(cls, least_squares: LeastSquares, groups: Sequence[NDArray[np.intp]] = ()) -> Self:
        """That of all samples together."""
        n, p = len(least_squares.basis), len(least_squares.to_coefficients)
        return cls((FitPart(slice(0, n), least_squares, slice(0, p)),), n, p, tuple(groups))

    @property
    def n_parameters(self) -> int:
        """The number of independent regressors, q, the constant included."""
        return sum(part.least_squares.basis.shape[1] for part in self.parts)

    @property
    def apart(self) -> bool:
        """Whether each part loses a mean of its own."""
        return self.parts[0].mean is not None

    def complement(self, scaled: bool) -> F64:
        """Orthonormal columns, (n, q), that all that is left is orthogonal to.

        Parameters
        ----------
        scaled : whether it is divided in each group: it then stays orthogonal to what was fitted there alone, which of groups of a common fit is
            the mean
        """
        if scaled and not self.apart:
            means = [(own, np.full((len(own), 1), len(own) ** -0.5)) for own in self.groups]
            return self._placed(means)
        return self._placed([(part.samples, part.least_squares.basis) for part in self.parts])

    def _placed(self, bases: Sequence[tuple[slice | NDArray[np.intp], F64]]) -> F64:
        found, start = np.zeros((self.n_samples, sum(basis.shape[1] for _, basis in bases))), 0
        for own, basis in bases:
            found[own, start : start + basis.shape[1]] = basis
            start += basis.shape[1]
        return found

    def loses_means(self, divided: bool) -> bool:
        """Whether each group loses a mean of its own before anything else: means may differ by far more than is left, which this would round.

        Parameters
        ----------
        divided : whether what is left is divided in each group
        """
        return self.apart or divided

    def subtract(
        self, block: F64, centre: F64, missing: NDArray[np.bool_] | None = None, divide_by: int | None = None
    ) -> Fit:
        """Subtract the fit from a block, in place, and divide it in each group; missing values become 0, which is the fit.

        Parameters
        ----------
        block : (n, w), less `centre`, the means, (w,); these are 0 where groups lose means of their own (`loses_means`)
        missing : where values are missing, and 0 in the block: the fit is to the others; None for nowhere
        divide_by : ddof of the standard deviations in each group that it is divided by; None for no division
        """
        width = block.shape[1]
        means, deviations, shares = np.zeros((0, width)), np.zeros((0, width)), np.ones((1, width))
        if self.loses_means(divide_by is not None):
            means, shares = self._lose_means(block, missing)
            centre = (shares * means).sum(axis=0)
            deviations = np.where(shares > 0, means - centre, 0.0)  # of a group without a value nothing is known
        coefficients, squares = np.zeros((self.n_regressors, width)), np.zeros((len(self.parts), width))
        sizes, constants = np.zeros(width), np.zeros((len(self.parts), width))
        for number, part in enumerate(self.parts):
            values, absent = block[part.samples], None if missing is None else missing[part.samples]
            total = part.least_squares.subtract(values, absent)
            if self.apart:  # else these are the block
                block[part.samples] = values
            basis = part.least_squares.basis
            squares[number] = np.einsum("qf,qf->f", total, total)
            sizes += basis.shape[1] * squares[number] / self.n_samples
            if len(deviations) and not self.apart:
                total += self._of_groups @ deviations
            coefficients[part.regressors] = part.least_squares.to_coefficients @ total[1:]
            constants[number] = total[0] * basis[0, 0]
        if self.apart:
            constants = np.where(shares > 0, deviations + constants, 0.0)
        constant = (shares * constants).sum(axis=0) if self.apart else constants[0]
        for number, part in enumerate(self.parts):
            if part.mean is not None:
                coefficients[part.mean] = np.where(shares[number] > 0, constants[number] - constant, 0.0)
        size, constant = np.sqrt(sizes), centre + constant
        level = np.hypot(constant, size)
        if self.apart:
            level = np.hypot(np.hypot.reduce(np.sqrt(shares) * means), size)
        fit = Fit(constant, coefficients, level, size)
        return fit if divide_by is None else self._divided(block, missing, fit, means, squares, divide_by)

    def _lose_means(self, block: F64, missing: NDArray[np.bool_] | None) -> tuple[F64, F64]:
        """Subtract the mean of each group, in place; returns these, (groups, w), and the share of each group in those that have values, (groups, w)."""
        means, shares = np.zeros((2, len(self.groups), block.shape[1]))
        for number, own in enumerate(self.groups):
            values, absent = block[own], None if missing is None else missing[own]
            present: Any = len(own) if absent is None else np.maximum(len(own) - absent.sum(axis=0), 1)
            for _ in range(2):  # as means of all samples are, in two steps
                step = values.sum(axis=0) / present
                values -= step
                if absent is not None:
                    values[absent] = 0.0
                means[number] += step
            block[own] = values
            shares[number] = len(own) if absent is None else len(own) * ~absent.all(axis=0)
        return means, shares / np.maximum(shares.sum(axis=0), 1)

    @cached_property
    def _of_groups(self) -> F64:
        """Coefficients in Q of samples that are 1 in a group, and 0 in others, (q, groups)."""
        basis = self.parts[0].least_squares.basis
        return np.stack([basis[own].sum(axis=0) for own in self.groups], axis=1)

    def _divided(
        self, block: F64, missing: NDArray[np.bool_] | None, fit: Fit, means: F64, squares: F64, ddof: int
    ) -> Fit:
        """Divide what is left in each group by its standard deviation there, in place: 0 where a feature is constant in it, divided by 1.

        Parameters
        ----------
        means : of each group, (groups, w)
        squares : sums of squares of the fit of each part about these, (parts, w)
        """
        counts = np.array([len(own) for own in self.groups])[:, None]
        left = np.array([np.einsum("nf,nf->f", own, own) for own in map(block.__getitem__, self.groups)])
        present: Any = counts if missing is None else counts - [missing[own].sum(axis=0) for own in self.groups]
        variance = left / np.maximum(present - ddof, 1)
        # Products round by what they are of: a fit, and, with it, what is left of all samples that are fitted together.
        rounding = np.sqrt(self._leverages * (squares + (left if self.apart else left.sum(axis=0))))
        level = np.hypot(means, rounding)
        constant = is_constant(variance, level, present - ddof)
        scales = np.where(constant, 1.0, np.sqrt(variance))
        for own, scale, gone in zip(self.groups, scales, constant, strict=True):
            values = block[own] / scale
            values[:, gone] = 0.0
            block[own] = values
        share = np.where(constant, 0.0, counts / self.n_samples / scales**2)
        of_all = (np.sqrt((share * one**2).sum(axis=0)) for one in (level, rounding))
        return replace(fit, scales=scales, left=left.sum(axis=0), **dict(zip(("level", "size"), of_all, strict=True)))

    @cached_property
    def _leverages(self) -> F64:
        """Mean over the samples of each group of the squares of the rows of Q, (groups, 1)."""
        found = np.empty(self.n_samples)
        for part in self.parts:
            found[part.samples] = np.einsum("nq,nq->n", part.least_squares.basis, part.least_squares.basis)
        return np.array([[found[own].mean()] for own in self.groups])

    def held(self, plan: Plan, scaled: bool) -> dict[str, int]:
        """Bytes that a task holds, by name of the array; `scaled` where what is left is divided in groups."""
        n, p, q, width = self.n_samples, self.n_regressors, self.n_parameters, plan.block_width
        bases = sum(part.least_squares.basis.size + part.least_squares.to_coefficients.size for part in self.parts)
        rows = p + scaled * len(self.groups)
        of_groups = 10 * len(self.groups) * self.loses_means(scaled)
        return {
            "regressors": 8 * (bases + n),
            "fit to a block": 8 * (2 * n + 6 * max(q, p) + of_groups) * width,
            "coefficients of regressors of a tile": 8
            * rows
            * (plan.tile_width + 2 * plan.slab_width + 2 * plan.panel_width),
        }


@dataclass(frozen=True, eq=False)
class Regressed:
    """Coefficients of what a run has subtracted from features beside their means, and divisors in groups of samples: stored, or in memory."""

    coefficients: Any
    """Coefficients of the regressors, (p, features...)."""
    scales: Any = None
    """Divisor in each group, (groups, features...); None where nothing is divided."""
    members: tuple[int, ...] = ()
    """For each group the number of the regressor that is 1 at its samples, and 0 at others."""

    @property
    def n_rows(self) -> int:
        """Numbers of each feature."""
        return int(self.coefficients.shape[0]) + len(self.members)

    def of(self, box: Box) -> Regressed:
        """Those of a box of features, in memory."""
        scales = None if self.scales is None else np.asarray(self.scales[(slice(None), *box)], np.float64)
        return replace(self, coefficients=np.asarray(self.coefficients[(slice(None), *box)], np.float64), scales=scales)

    def at(self, regressors: F64) -> Baseline:
        """These for some samples.

        Parameters
        ----------
        regressors : of the samples, (samples, p)
        """
        groups = None if self.scales is None else np.asarray(regressors[:, list(self.members)].argmax(axis=1))
        return Baseline(regressors, self.coefficients, groups, self.scales)


@dataclass(frozen=True, eq=False)
class Baseline:
    """The fit of some samples to some features, which is subtracted beside the means, and their divisors."""

    regressors: F64
    """Regressors of the samples, (samples, p)."""
    coefficients: F64
    """Coefficients of the regressors, (p, features...)."""
    groups: NDArray[np.intp] | None
    """Number of the group of each sample, (samples,); None where nothing is divided."""
    scales: F64 | None
    """Divisor in each group, (groups, features...)."""

    @property
    def flat(self) -> Baseline:
        """That of features along one axis."""
        return self._each(lambda one: one.reshape(len(one), -1))

    def of(self, along: slice) -> Baseline:
        """That of some features, along one axis."""
        return self._each(lambda one: one[:, along])

    def _each(self, of: Callable[[F64], F64]) -> Baseline:
        return replace(
            self, coefficients=of(self.coefficients), scales=None if self.scales is None else of(self.scales)
        )

    def take(self, block: F64, along: slice) -> None:
        """Subtract and divide, in place; of a feature that the fit left out nothing.

        Parameters
        ----------
        block : some features of the samples, (samples, w), less the means
        along : which
        """
        block -= self.regressors @ np.nan_to_num(self.coefficients[:, along])
        if self.scales is not None:
            block /= np.nan_to_num(self.scales[:, along], nan=1.0)[self.groups]

    def give(self, values: NDArray[Any], mean: F64) -> None:
        """Multiply and add, the means, too, in place.

        Parameters
        ----------
        values : (samples, features...)
        mean : of the features, (features...)
        """
        if self.scales is not None:
            values *= self.scales[self.groups]
        values += mean + np.tensordot(self.regressors, self.coefficients, axes=1)
