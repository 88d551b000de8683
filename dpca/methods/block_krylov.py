"""The workflow of block Krylov: passes until what was asked for is certified, or no pass more would help; then the second pass.

Each pass multiplies K with a block of vectors (`dpca.methods.block_products`). What follows from its product is computed here, in memory, and kept in the ledger: the
findings so far, and the next block. The last pass is that for components (or scores), which multiplies K with the Ritz vectors, in double precision where
errors of single precision count: what it measures renews the space, so that it is a step of the iteration, too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar

import numpy as np

from dpca.errors import PrecisionError
from dpca.methods.block_products import FirstProduct, LaterProducts, product_of, with_sketch
from dpca.methods.dataset import Dataset
from dpca.methods.first_pass import Summary, Summed
from dpca.methods.solve import Solved, in_double, total_off
from dpca.methods.stages import Stages
from dpca.numerics.backproject import Ritz
from dpca.numerics.block_krylov import (
    CHANCE,
    Iteration,
    LeadingPairs,
    Renewed,
    Space,
    found_in,
    orthonormal,
    random_block,
    relative,
    without,
)
from dpca.numerics.certificate import ROUNDED, Certified
from dpca.numerics.dimension import Chosen
from dpca.numerics.spectrum import REFINED, Spectrum
from dpca.planning.job import Job
from dpca.planning.runplan import Attempt
from dpca.store.outputs import Outputs
from dpca.system.blas import blas_threads
from dpca.types import F64

T = TypeVar("T")

WINDOWED = 3
"""One column in so many is what windows have found."""
EARLY = 4
"""Before so many passes nothing is given up: values are not known well enough to foresee what they take."""
LOOKS = 2
"""Passes with an independent block."""
DOUBLE = np.dtype(np.float64)


class KrylovCompletion(Protocol):
    """Steps after the iteration (`dpca.methods.decomposition`)."""

    def write(self, solved: Solved) -> Solved: ...
    def complete(self, solved: Solved, suffix: str) -> Solved: ...


@dataclass(frozen=True)
class KrylovStep:
    """Decision after a pass: continue, restart or stop."""

    found: LeadingPairs
    goes_on: int
    """1 if another pass of the iteration follows, 0 if not."""
    restarts: int = 0
    """1 if the next block is an independent one."""
    lost: int = 0
    """1 if components that may be there can't be told from 0 in the precision of the products."""

    @classmethod
    def nothing(cls) -> KrylovStep:
        """Empty decision: the type template of the ledger."""
        none = np.zeros(0)
        return cls(LeadingPairs(none, none, none, none, none, none, none, none, np.zeros((0, 0))), 0)


@dataclass
class Judge:
    """Demands of the second pass on the iteration: how precise it has to be, and what its Ritz values are worth."""

    space: Space | None
    """None in a process that only computes parts of passes."""
    summary: Summary
    iteration: Iteration
    found: LeadingPairs
    passes: int
    """Reads of the data that multiplied, so far."""
    restart: F64 = field(default_factory=lambda: np.zeros(0))
    """Relative changes of the values by the passes with an independent block; empty without any."""

    @property
    def needs_double(self) -> bool:
        """Whether errors of products would keep a bound from meeting the tolerance, or hide what is beyond the components."""
        values, products = self.found.values, self.found.products
        wrong = products > self.iteration.tolerance / 4 * values
        beyond = self.summary.squares - float(values.sum())
        return bool((wrong & (values > 0)).any()) or float(products.sum()) > REFINED * beyond

    def refined(self, spectrum: Spectrum, ritz: Ritz, projection: F64, overlap: F64) -> Spectrum:
        """The spectrum with the Ritz values and vectors of the second pass, and their errors.

        Parameters
        ----------
        spectrum : what the pass was made of
        projection, overlap : X_c W (or X_c' U), (m, k), and W'W, of the pass
        """
        self.passes += 1
        values, before = ritz.values**2, spectrum
        spectrum = replace(before, vectors=np.where(ritz.values > 0, ritz.kept, before.vectors))
        if self.space is None:
            return replace(spectrum, eigenvalues=np.append(values, before.eigenvalues[before.n_components :]))
        nonzero = before.singular_values > 0
        vectors, sigma = before.vectors[:, nonzero], before.singular_values[nonzero]
        products = projection[:, nonzero] * sigma
        renewed = Renewed(self.space, vectors, products)
        k = min(spectrum.n_components, renewed.size)
        found = found_in(
            self.space,
            self.summary.sketch,
            k,
            self.summary.squares,
            self.iteration.tolerance,
            renewed=renewed,
            refines=True,
        )
        # W'W was computed from W, and is alpha'K alpha: products differ from one to the other by their errors.
        twice = np.einsum("mk,mk->k", vectors, products) / sigma**2
        off = np.abs(np.diagonal(overlap)[nonzero] - twice) / np.maximum(twice, np.finfo(float).tiny)
        errors = np.zeros(spectrum.n_components)
        errors[: len(found.products)] = found.products
        errors[: len(off)] += float(off.max(initial=0.0)) * values[: len(off)]
        self.found = replace(found, products=errors[:k])
        return judged(spectrum, values, self.found)


def judged(spectrum: Spectrum, values: F64, found: LeadingPairs) -> Spectrum:
    """The spectrum with some values, and the errors that their bounds leave."""
    k = spectrum.n_components
    bounds = np.full(k, np.inf)
    bounds[: len(found.upper)] = found.bounds(values[: len(found.upper)])
    errors = np.sqrt(1 + relative(values, bounds)) - 1
    largest = float(values.max(initial=0.0))
    noise = float(found.products.max(initial=0.0))
    supported = min(1.0, float(np.sqrt(noise / (0.02 * largest)))) if largest > 0 else 1.0
    return replace(
        spectrum,
        eigenvalues=np.append(values, np.minimum(found.further, values[-1] if k else np.inf)),
        errors=np.where(values > 0, errors, np.inf),
        off=np.where(values > 0, bounds, np.maximum(bounds, noise)),
        residuals=np.append(found.residuals, np.zeros(max(0, k - len(found.residuals))))[:k] / (largest or 1.0),
        supported=max(supported, 1e-12),
    )


def iterate(
    stages: Stages,
    data: Dataset,
    job: Job,
    outputs: Outputs,
    completion: KrylovCompletion,
) -> tuple[Solved, Certified]:
    """Decompose by block Krylov, and write the results.

    Parameters
    ----------
    outputs : where the first pass writes means and scales
    """
    first, *further = job.run_plan.attempts
    found = _Iteration(stages, data, job, outputs, first, climbs=bool(further)).run(completion)
    for attempt in further if found is None else ():
        found = _Iteration(stages, data, job, outputs, attempt, climbs=False).run(completion)
    assert found is not None  # the last one does not climb
    return found


class _Iteration:
    """One decomposition by block Krylov."""

    def __init__(
        self,
        stages: Stages,
        data: Dataset,
        job: Job,
        outputs: Outputs,
        attempt: Attempt,
        *,
        climbs: bool,
    ) -> None:
        model = job.model
        self._stages, self._data, self._model, self._run_plan = stages, data, model, job.run_plan
        self._outputs = outputs
        self._iteration = model.iteration
        self._attempt, self._name, self._climbs = attempt, attempt.rung.name, climbs
        self._last = job.second_pass is not None
        """Whether a second pass follows."""
        assert isinstance(model.n_components, int)
        self._k = model.n_components
        self._passes = 0
        weighted, samples = data.sample_weights, data.keeps_samples
        self._roots = None if weighted is None else weighted.roots
        null = None
        if samples and model.rules.centered:
            null = np.ones(data.n_kept) if self._roots is None else self._roots
            null = null / np.linalg.norm(null)
        self._space = Space(data.n_kept, null)
        self._adds_up = stages.runner.executor.adds_up

    def run(self, completion: KrylovCompletion) -> tuple[Solved, Certified] | None:
        """All passes; None where components can't be told from 0 in this precision, and another follows."""
        stages, model, data = self._stages, self._model, self._data
        n_groups, keeps = len(data.names_of_sums), data.plan.keeps
        if self._attempt is self._run_plan.attempts[0]:
            stages.choose(model.reason(data.dtype, data.n_samples, data.n_features, n_groups, iterates=keeps))
        try:
            summary, fill, block, product = self._first()
        except PrecisionError as error:
            if self._climbs:
                stages.choose(f"{self._name} failed ({error.message}), so double precision is tried")
                return None
            raise error.saying(f"{data.name}: {error.marked_message}") from error
        later = LaterProducts(stages, data, model.rules, self._outputs, summary, fill)
        if not summary.squares > 0:  # nothing varies
            block, product = block[:, :1], np.zeros((data.n_kept, 1))
        restart = np.zeros(0)
        passes_since_restart = values_before_restart = None
        while True:
            if product is None:
                product, summary = self._multiplied(later, block, summary)
            if self._adds_up:
                self._space.add(block, product, chained=passes_since_restart is None)
            turn = self._turn(summary, passes_since_restart)
            self._tell(turn.found)
            product = None
            if self._climbs and turn.lost and (self._passes > 1 or not turn.goes_on):
                stages.choose(
                    f"{self._name}: components can't be told from errors of products, so double precision is tried"
                )
                return None
            if turn.goes_on or turn.restarts:
                if turn.restarts:
                    passes_since_restart, values_before_restart = 0, turn.found.values
                elif passes_since_restart is not None:
                    passes_since_restart += 1
                block = self._next(passes_since_restart)
                if block.shape[1]:
                    stages.progress.expect(1)
                    continue
                self._space.exhausted = True
                turn = self._turn(summary, passes_since_restart, exhausted=True)
                self._tell(turn.found)
            if values_before_restart is not None:
                both = min(len(values_before_restart), len(turn.found.values))
                was, now = values_before_restart[:both], turn.found.values[:both]
                restart = np.abs(now / np.where(was > 0, was, max(float(was.max(initial=0.0)), 1e-300)) - (was > 0))
            solved, judge = self._solved(summary, fill, turn.found, restart)
            solved = completion.write(solved)
            solved = completion.complete(solved, f"after pass {self._passes}")
            if not self._again(judge, turn):
                return solved, self._certified(solved, judge)
            stages.choose(f"the last pass left {self._unmet(judge.found)}: one more pass of the iteration follows")
            block = self._next(None)
            if not block.shape[1]:
                return solved, self._certified(solved, judge)
            stages.progress.expect(2)

    # The passes.

    def _first(self) -> tuple[Summary, Any, F64, F64 | None]:
        """The first pass: its summary, what fills missing values, the block, and its product; None where it has none."""
        data, rules = self._data, self._model.rules
        first = FirstProduct(self._stages, data, self._model, self._outputs)
        present = first.present(self._attempt)
        dimensions = min(self._space.dimensions, data.n_features if data.keeps_samples else data.n_samples)
        columns = self._iteration.columns(self._k, dimensions)
        block = random_block(data.n_kept, columns, self._space.null)
        alone = not data.keeps_samples and (rules.scale != "none" or rules.filters or data.weighted)
        windowed = self._iteration.windows and not alone
        first.begin(block[:, :0] if alone else block, self._roots, self._once, windowed=windowed)
        summed = first.sum(self._attempt, present)
        self._sketched = not alone
        if alone:
            return summed.summary, summed.fill, block, None
        self._passes = 1
        if windowed:
            return summed.summary, summed.fill, self._mixed(first.block, block), None
        product = product_of(summed.accumulator)
        if product is None:  # of no use in a process that adds nothing up
            product = np.zeros_like(block)
        return summed.summary, summed.fill, block, product

    def _mixed(self, improved: F64, random: F64) -> F64:
        """Block of vectors that windows have found, and Gaussian columns beside it: what they never met, and all that is proved, is in these alone."""
        columns = random.shape[1]
        self._space.random = columns - columns // WINDOWED
        first = without(improved[:, : columns // WINDOWED], self._space.null)
        return orthonormal(np.hstack([first, random[:, : self._space.random]]))

    def _multiplied(self, later: LaterProducts, block: F64, summary: Summary) -> tuple[F64, Summary]:
        """The product of a later pass, and the summary with the sketch, where that had to wait for scales."""
        self._passes += 1
        name = f"{self._name} pass {self._passes}"
        found = later.multiply(block, name, self._attempt, sketched=not self._sketched)
        if not self._sketched:
            columns = self._data.random_columns(self._model.rules)
            summary = with_sketch(summary, found.sketch, columns)
            later.summary = summary
            self._sketched = True
        return found.matrix, summary

    def _next(self, looks: int | None) -> F64:
        """The block of the next pass, (m, l); of no columns where there is nothing more to find."""

        def following() -> F64:
            space = self._space
            last = space.products[-1]
            if looks == 0:
                last = random_block(space.m, space.columns, space.null, number=1)
            block = space.following(last)
            return np.zeros((space.m, 0)) if block is None else block

        name = f"{self._name} block of pass {self._passes + 1}" + (", independent" if looks == 0 else "")
        return self._once(name, following, np.zeros((0, 0)))

    def _once(self, name: str, compute: Callable[[], T], like: T) -> T:
        """Value that is computed in memory between passes, or the one in the ledger."""

        def computed() -> T:
            with (
                self._stages.timed("eigensolve"),
                blas_threads(self._run_plan.eigensolve_threads),
            ):
                return compute()

        ledger = self._stages.ledger
        return computed() if ledger is None else ledger.once(name, computed, like)

    # What they find.

    def _turn(self, summary: Summary, looks: int | None, exhausted: bool = False) -> KrylovStep:
        """Findings so far, and whether to go on."""
        settings = self._iteration
        name = (
            f"{self._name} after pass {self._passes} of {settings.max_passes} to {settings.tolerance:g}"
            + (" with a restart" if settings.restart else "")
            + (", nothing more" if exhausted else "")
        )

        def compute() -> KrylovStep:
            k = min(self._k, self._space.size)
            refines = self._last and in_double(self._run_plan) is not None
            found = found_in(self._space, summary.sketch, k, summary.squares, settings.tolerance, refines=refines)
            lost = self._lost(summary, found)
            if exhausted:
                return KrylovStep(found, 0, lost=lost)
            left = settings.max_passes - self._passes - self._last
            if looks is not None:
                return KrylovStep(found, int(looks + 1 < LOOKS and left > 0), lost=lost)
            goes_on = left > 0 and self._pending(found, left)
            restarts = settings.restart and not goes_on and left > 0
            return KrylovStep(found, int(goes_on), int(restarts), lost)

        return self._once(name, compute, KrylovStep.nothing())

    def _pending(self, found: LeadingPairs, left: int) -> bool:
        """Whether another pass of the iteration would help a component that has not met the tolerance."""
        if self._space.complete or self._space.exhausted:
            return False
        if self._passes < 2:  # nothing is proved of the values yet
            return True
        met = self._met(found)
        reachable = found.more <= left + self._last
        if self._passes < EARLY:
            reachable = np.ones_like(met)
        wanted = ~met & reachable
        if self._last and (found.last[wanted] <= self._iteration.tolerance).all():
            return False  # the last pass is a step, too
        return bool(wanted.any())

    def _met(self, found: LeadingPairs) -> Any:
        """Which components have a bound within the tolerance; errors of products are those of the last pass, where that is in double."""
        noise = found.noise
        if self._last and in_double(self._run_plan) is not None:
            found = replace(found, products=np.zeros_like(found.products))
        tolerance = self._iteration.tolerance
        return found.relative <= np.where(found.values > 0, tolerance, tolerance + ROUNDED * noise)

    def _again(self, judge: Judge, turn: KrylovStep) -> bool:
        """Whether the last pass did not do what was expected of it, and there are passes left to make up for it."""
        self._passes = judge.passes
        space = judge.space
        name = f"{self._name} again after pass {self._passes} of {self._iteration.max_passes} to {self._iteration.tolerance:g}"
        if not self._last or (space is not None and (space.complete or space.exhausted)):
            return False

        def decide() -> Any:
            left = self._iteration.max_passes - judge.passes - 1
            expected = self._met(turn.found) | (turn.found.last <= self._iteration.tolerance)
            unmet = judge.found.relative > self._iteration.tolerance
            return np.array([left > 0 and (expected & unmet & (judge.found.more <= left)).any()], np.int64)

        return bool(self._once(name, decide, np.zeros(1, np.int64))[0])

    def _tell(self, found: LeadingPairs) -> None:
        """Say what is known after a pass."""
        settings = self._iteration
        self._stages.progress.judge(
            self._passes, settings.max_passes, found.relative.tolist(), settings.tolerance, self._k
        )

    def _lost(self, summary: Summary, found: LeadingPairs) -> int:
        """1 if components that may be there are 0 as far as products can tell, or known too badly for a last pass in double to mend."""
        data = self._data
        limit = min(data.n_samples - self._model.rules.centered, data.n_features - summary.features.left_out)
        # A vector that is off by e gives a value that is off by e^2 after a last pass in double.
        clear = found.products <= np.sqrt(self._iteration.tolerance) * found.values
        known = (found.values > 0) & (clear | found.bulk)
        return int(summary.squares > 0 and int(known.sum()) < min(self._k, limit))

    def _unmet(self, found: LeadingPairs) -> str:
        """The number of components that have not met the tolerance, in words."""
        return (
            f"{int((found.relative > self._iteration.tolerance).sum())} components above {self._iteration.tolerance:g}"
        )

    # The result.

    def _solved(self, summary: Summary, fill: Any, found: LeadingPairs, restart: F64) -> tuple[Solved, Judge]:
        """The result of the iteration, in the form that the second pass takes."""
        data, model, k = self._data, self._model, self._k
        values, vectors = np.zeros(k), np.zeros((data.n_kept, k))
        values[: len(found.values)] = found.values
        vectors[:, : found.vectors.shape[1]] = found.vectors
        vectors = _completed(vectors, values > 0)
        n, d = data.n_samples, data.n_features - summary.features.left_out
        limit = min(n - model.rules.centered, d)
        positive = int((np.append(values, found.further) > 0).sum())
        spectrum = Spectrum(
            eigenvalues=values,
            vectors=vectors,
            total=summary.squares,
            rank=min(positive, limit),
            largest_rank=limit,
            errors=np.full(k, np.inf),
            supported=1.0,
            n_samples=n,
            divisor=data.divisor(model.rules.ddof),
            residuals=np.zeros(k),
            roots=self._roots,
            complete=False,
            dimension=data.dimension(d),
            n_features=d,
            total_off=total_off(summary),
        )
        spectrum = judged(spectrum, values, found)
        if data.keeps_samples:
            spectrum = spectrum.signed(spectrum.signs)
        judge = Judge(self._space if self._adds_up else None, summary, self._iteration, found, self._passes, restart)
        solved = Solved(
            summed=Summed(attempt=self._attempt, summary=summary, accumulator=None, gram=None, fill=fill),
            spectrum=spectrum,
            chosen=Chosen(k, "as asked for"),
            suggested={},
            bounds=np.zeros(k),
            power=2,
            missed=0.0,
            expected=spectrum,
            judge=judge,
        )
        return solved, judge

    def _certified(self, solved: Solved, judge: Judge) -> Certified:
        """Entries of the certificate about the iteration."""
        spectrum, found, settings = solved.spectrum, judge.found, self._iteration
        k = spectrum.n_components
        values = spectrum.eigenvalues[:k]

        def of_all(array: F64, fill: float) -> F64:
            return np.append(array, np.full(max(0, k - len(array)), fill))[:k]

        # What no Ritz vector is left for is 0 only where the space has all eigenvalues.
        whole = self._space.complete or self._space.exhausted
        upper = of_all(found.upper, 0.0 if whole else np.inf) + float(found.products.max(initial=0.0))
        bounds = np.where(values > 0, np.square(1 + spectrum.errors) - 1, relative(values, np.maximum(upper, 0.0)))
        return Certified(
            bounds=bounds,
            residuals=relative(values, of_all(found.residuals, 0.0)),
            products=relative(values, of_all(found.products, 0.0)),
            upper=values * (1 + np.where(values > 0, bounds, 0.0)),
            further=found.further,
            more=of_all(found.more, 0.0),
            later=of_all(found.later, 0.0),
            tolerance=settings.tolerance,
            passes=judge.passes,
            max_passes=settings.max_passes,
            block=self._space.columns or self._iteration.columns(self._k, self._space.dimensions),
            chance=CHANCE,
            windows=settings.windows,
            restart=judge.restart,
            restarts=settings.restart,
            noise=found.noise,
        )


def _completed(vectors: F64, there: Any) -> F64:
    """Orthonormal columns, where those that are not `there` become arbitrary ones, which are orthogonal to the others."""
    missing = ~there
    if not missing.any():
        return vectors
    given = vectors[:, there]
    random = np.random.default_rng(0).standard_normal((len(vectors), int(missing.sum())))
    basis = np.linalg.qr(np.hstack([given, random]))[0]
    completed = vectors.copy()
    completed[:, missing] = basis[:, given.shape[1] :]
    return completed
