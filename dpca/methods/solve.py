"""The eigensolve of a PCA: from the sum of the first pass to a spectrum with its errors, in memory."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

import numpy as np

from dpca.config.model import Model
from dpca.methods.dataset import Dataset
from dpca.methods.first_pass import Summary, Summed
from dpca.methods.stages import Stages
from dpca.numerics.accumulators import SOLVERS
from dpca.numerics.accumulators.factors import Factors
from dpca.numerics.backproject import MeasuredFit, Ritz
from dpca.numerics.bi_cross_validation import Curve, bi_cross_validation
from dpca.numerics.dimension import BI_CROSS_VALIDATION, NOT_KNOWN, NOT_MET, Chosen, Eigenvalues, choose, suggestions
from dpca.numerics.spectrum import Spectrum, judged, ranked, spectrum_of
from dpca.planning.job import Job
from dpca.planning.runplan import Attempt, RunPlan
from dpca.types import F64


class Judging(Protocol):
    """Judge of Ritz values of a second pass by more than their own residuals (`dpca.methods.block_krylov.Judge`)."""

    @property
    def needs_double(self) -> bool:
        """Whether errors of products count."""
        ...

    def refined(self, spectrum: Spectrum, ritz: Ritz, projection: F64, overlap: F64) -> Spectrum:
        """The spectrum with these values and vectors, and their errors."""
        ...


@dataclass(frozen=True, kw_only=True)
class Solved:
    """The results of the first pass and of the eigensolve."""

    summed: Summed
    spectrum: Spectrum
    chosen: Chosen
    suggested: dict[str, int | str]
    bounds: F64
    """Largest error of lambda where the solver squares sigma, otherwise of sigma, (n_components,)."""
    power: int
    """2 where the solver squares sigma, otherwise 1."""
    missed: float
    """Upper bound of an eigenvalue that may have been missed."""
    expected: Spectrum
    """The spectrum, with the errors that a second pass in double precision would leave where one follows."""
    curve: Curve | None = None
    """Bi-cross-validation, where groups of features were added up for it."""
    negative: F64 | None = None
    """Negative eigenvalues of a matrix of pairs; None for the Gram matrix of an X, which has none."""
    measured: MeasuredFit | None = None
    """Measurements of the second pass, once it is done."""
    shares: F64 | None = None
    """The share of each group of several in each component, (groups, n_components); None before it is known."""
    judge: Judging | None = None
    """Judge of the second pass of block Krylov; None for other solvers."""

    @property
    def attempt(self) -> Attempt:
        return self.summed.attempt

    @property
    def summary(self) -> Summary:
        return self.summed.summary

    @property
    def weakest(self) -> Spectrum:
        """The spectrum that decides whether the solver supports what was asked for."""
        return self.expected if self.measured is None else self.spectrum

    @property
    def unread(self) -> str:
        """The rule for the number of components whose eigenvalues rounding hides; empty for none."""
        return self.chosen.reason if self.chosen.problem == NOT_KNOWN else ""


def in_double(run_plan: RunPlan) -> Attempt | None:
    """The first of the plan's attempts in double precision."""
    return next((attempt for attempt in run_plan.attempts if attempt.rung.dtype == np.float64), None)


def without_missed(spectrum: Spectrum, missed: float) -> Spectrum:
    """The spectrum, where eigenvalues that are not above `missed` have an infinite error."""
    kept = spectrum.eigenvalues[: spectrum.n_components]
    found, off = kept > missed, spectrum.known_off
    return replace(
        spectrum,
        errors=np.where(found, spectrum.errors, np.inf),
        off=np.where(found, off, np.maximum(off, missed)),
    )


def of_factors(spectrum: Spectrum, summary: Summary) -> F64 | None:
    """Errors of sigma by those of the factors that groups are multiplied by, (n_components,); None where there are none."""
    return summary.factors.error * spectrum.singular_values if summary.factors.error else None


def total_off(summary: Summary) -> float:
    """How far the total variance may be off by rounding of what was subtracted, and by errors of the groups' factors."""
    return 2 * float(np.sqrt(summary.squares)) * summary.sketch.off + 2 * summary.factors.error * summary.squares


def solve(stages: Stages, data: Dataset, job: Job, summed: Summed) -> Solved:
    """The decomposition of a sum, with the chosen number of components and the numbers by other rules."""
    model, run_plan = job.model, job.run_plan
    summary, rules, rung = summed.summary, model.rules, summed.attempt.rung
    power = SOLVERS[rung.solver].power
    choice = _Choice(data, model, summary, power)
    leading = model.leading(data.n_kept, data.n_features if data.keeps_samples else data.n_samples)

    def finish() -> Factors:
        assert summed.accumulator is not None
        return summed.accumulator.finish(choice.of, leading)

    if data.n_folds:
        basis = None if data.regression is None else data.regression.complement(rules.by_group)
        validate = partial(bi_cross_validation, summed.folds, power, basis=basis)
        choice.curve = stages.in_memory(
            "bi-cross-validation", rung.name, validate, Curve.nothing(), run_plan.eigensolve_threads
        )
    factors = stages.eigensolve(rung.name, finish, data.n_kept, run_plan.eigensolve_threads)
    if choice.last is None:
        choice.of(factors.eigenvalues, factors.floor, factors.total)  # the factors came from the ledger
    assert choice.last is not None
    given, chosen = choice.last
    off = choice.backward_error(factors.eigenvalues)
    spectrum = spectrum_of(
        replace(factors, floor=max(factors.floor, off**2), total=summary.squares),
        n_samples=data.n_samples,
        n_features=data.n_features - summary.features.left_out,
        center=rules.centered,
        divisor=data.divisor(rules.ddof),
        roots=None if data.sample_weights is None else data.sample_weights.roots,
        dimension=data.dimension(data.n_features - summary.features.left_out),
        total_off=total_off(summary),
    )
    if data.keeps_samples:
        spectrum = spectrum.signed(spectrum.signs)
    if power == 2:
        bounds = summary.sketch.residuals(spectrum.vectors, spectrum.eigenvalues[: spectrum.n_components])
    else:
        bounds = np.full(spectrum.n_components, off)
    products = of_factors(spectrum, summary)
    spectrum = judged(spectrum, bounds, power, products=products)
    missed = 0.0
    if power == 2 and (data.keeps_samples or (summary.standard.about.factor == 1).all()):
        missed = summary.sketch.missed(summary.product, spectrum.vectors)
    spectrum = expected = without_missed(spectrum, missed)
    refines = rules.missing != "pairwise" and in_double(run_plan) is not None
    if refines and job.second_pass is not None:
        expected = without_missed(judged(spectrum, bounds, power, before=bounds, products=products), missed)
    return Solved(
        summed=summed,
        spectrum=spectrum,
        chosen=chosen,
        suggested=(suggestions(given) if spectrum.complete else {})
        | ({} if choice.validated is None else {BI_CROSS_VALIDATION: choice.validated}),
        curve=choice.curve,
        bounds=bounds,
        power=power,
        missed=missed,
        expected=expected,
        negative=factors.eigenvalues[factors.eigenvalues < 0] if summary.divided else None,
    )


@dataclass
class _Choice:
    """The choice of the number of components, which is made during the eigensolve, from the eigenvalues."""

    data: Dataset
    model: Model
    summary: Summary
    power: int
    curve: Curve | None = None
    last: tuple[Eigenvalues, Chosen] | None = field(default=None, init=False)
    """Eigenvalues of the last choice, and the choice."""

    def of(self, eigenvalues: F64, floor: float, _: float) -> int:
        """The number of components."""
        n, d, center = (
            self.data.n_samples,
            self.data.n_features - self.summary.features.left_out,
            self.model.rules.centered,
        )
        off = self.backward_error(eigenvalues)
        values, rank, _ = ranked(eigenvalues, max(floor, off**2), n, d, center)
        errors = 2 * np.sqrt(values) * off + off**2 if self.power == 1 else np.full(values.size, self.products_off)
        # A sample that stands for several, by its frequency, is as many for a rule, with eigenvalues of 0.
        more = np.zeros(self.data.dimension(d) - values.size)
        # The total is added up without products: it has the digits of float64.
        given = Eigenvalues(
            values=np.append(values, more),
            rank=rank,
            n_samples=self.data.n_counted,
            n_features=max(1, d - self.summary.features.constant),
            center=center,
            total=self.summary.squares,
            errors=np.append(errors, more),
        )
        self.last = given, choose(self.model.n_components, given, self.validated)
        return self.last[1].n_components

    @property
    def products_off(self) -> float:
        """How far rounding in the products may move any eigenvalue."""
        nothing = np.empty((self.data.n_kept, 0))
        return 0.0 if self.summary.exact else self.summary.sketch.missed(self.summary.product, nothing)

    @property
    def validated(self) -> int | str | None:
        """The number by bi-cross-validation, or why it gives none; None where nothing was added up for it."""
        if self.curve is None:
            return None
        return NOT_MET if self.curve.undecided else self.curve.n_components

    def backward_error(self, eigenvalues: F64) -> float:
        """Backward error of a factor, below which no sigma counts; 0 where the solver squares sigma."""
        if self.power == 2:
            return 0.0
        return self.summary.sketch.backward_error(self.summary.product, float(np.sqrt(eigenvalues[0])))
