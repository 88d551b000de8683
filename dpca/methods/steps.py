"""The steps of a decomposition: the passes, the eigensolve between them, and what is written after each.

`dpca.methods.decomposition` defines their order.
"""

from __future__ import annotations

import operator
import re
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import zip_longest
from typing import Any, Protocol, Self, TypeVar

import numpy as np
from threadpoolctl import threadpool_limits

from dpca.config.model import Model
from dpca.errors import DataError, PrecisionError
from dpca.execution.stage import Runner, Stage, Traffic
from dpca.methods.passes import (
    Pass,
    Sweep,
    components_span,
    extremes_span,
    first_span_of_features,
    first_span_of_samples,
    left_vectors_span,
    orthogonalize_span,
    present_span,
    scores_span,
    written_first,
)
from dpca.numerics.accumulators import SOLVERS, Accumulator, gram, tally_of
from dpca.numerics.accumulators.factors import F64, Factors
from dpca.numerics.accumulators.tallies import Counts, FeatureTally, Moments, Present, Standard
from dpca.numerics.backproject import BackprojectionPartial, Measured, Ritz, is_orthonormal, orthogonalizer
from dpca.numerics.certificate import check_products, confirmed
from dpca.numerics.dimension import Chosen, Eigenvalues, choose, suggestions
from dpca.numerics.ladder import Rung
from dpca.numerics.preprocess import Means
from dpca.numerics.preview import Preview, leading_shares
from dpca.numerics.sketch import SAFETY, Sketch, norms
from dpca.numerics.spectrum import Spectrum, judged, ranked, reciprocal, spectrum_of
from dpca.planning.runplan import Attempt, RunPlan
from dpca.planning.search import reads_means, second_pass
from dpca.sources import Source
from dpca.sources.base import Layout
from dpca.store.ledger import Damaged
from dpca.store.outputs import Dims, Outputs
from dpca.system.signals import THREADS

REFINED = 1e-4
"""Where a relative error of a singular value may be larger than this, the second pass runs in double precision: four
digits are more than statistics need, and it costs a quarter of that pass."""

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Summed:
    """The result of the first pass."""

    attempt: Attempt
    found: Any
    """The accumulator, while its matrix is needed."""
    exact: bool
    counts: Counts
    """Counts of what was met while the data were read."""
    squares: float
    """Sum of squares of X_c, added up without products."""
    difference: float
    """Relative difference between `squares` and the sum from products."""
    n_constant: int
    n_empty: int = 0
    """Features without any value."""
    sketch: Sketch | None = None
    """Sketch of the matrix; None where no data streamed by, or where an earlier version kept none."""
    product: F64 | None = None
    """The matrix times the columns of the sketch; None where there is none."""
    fill: Means | None = None
    """Where features are kept: what replaced missing values; None where no value may be missing."""
    standard: Standard | None = None
    """Where features are kept: their means and divisors."""


@dataclass(frozen=True, kw_only=True)
class Summary:
    """What the ledger keeps of the first pass beside its sum: all that the second pass needs, except the eigensolve."""

    exact: bool = False
    counts: Counts = field(default_factory=Counts)
    squares: float = 0.0
    difference: float = 0.0
    n_constant: int = 0
    n_empty: int = 0
    sketch: F64 = field(default_factory=lambda: np.empty((0, 0)))
    """The product of the sketch, (m, t)."""
    columns: F64 = field(default_factory=lambda: np.empty((0, 0)))
    """The columns of the sketch, (m, t), scaled as kept features are."""
    product: F64 = field(default_factory=lambda: np.empty((0, 0)))
    """The matrix times these columns, (m, t)."""
    standard: Standard = field(default_factory=Standard.nothing)
    """Means and divisors of kept features."""

    @classmethod
    def of(cls, summed: Summed) -> Self:
        """The summary of a pass that streamed the data."""
        assert summed.sketch is not None
        assert summed.product is not None
        return cls(
            exact=summed.exact,
            counts=summed.counts,
            squares=summed.squares,
            difference=summed.difference,
            n_constant=summed.n_constant,
            n_empty=summed.n_empty,
            sketch=summed.sketch.product,
            columns=summed.sketch.columns,
            product=summed.product,
            standard=summed.standard or Standard.nothing(),
        )

    def summed(self, attempt: Attempt, fill: Means | None) -> Summed:
        """The result of the pass, without its matrix."""
        return Summed(
            attempt=attempt,
            found=None,
            exact=self.exact,
            counts=self.counts,
            squares=self.squares,
            difference=self.difference,
            n_constant=self.n_constant,
            n_empty=self.n_empty,
            sketch=Sketch(self.columns, self.sketch),
            product=self.product,
            fill=fill,
            standard=self.standard if self.standard.mean.size else None,
        )


@dataclass(frozen=True, kw_only=True)
class Solved(Summed):
    """The result of the first pass and the eigensolve."""

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
    measured: Measured | None = None
    """Measurements of the second pass, once it is done."""

    @property
    def weakest(self) -> Spectrum:
        """The spectrum that decides whether the solver supports what was asked for."""
        return self.expected if self.measured is None else self.spectrum


@dataclass(frozen=True)
class TaskSeconds:
    """Total time of the tasks of a stage, including those before a run was resumed."""

    reading: float
    """From the request for a slab until its values are decoded in memory."""
    computing: float
    """The rest: preprocessing, products, writing."""
    tasks: int
    """Number of tasks at the same time."""


class Decomposed(Protocol):
    """A decomposition that is computed from the sums of a pass."""

    @property
    def attempt(self) -> Attempt: ...
    @property
    def weakest(self) -> Spectrum: ...


D = TypeVar("D", bound=Decomposed)


class Steps:
    """The steps of one decomposition, and what they cost."""

    def __init__(
        self,
        source: Source,
        model: Model,
        made: RunPlan,
        outputs: Outputs,
        dims: Dims,
        runner: Runner,
        components: bool = False,
    ) -> None:
        self._runner, self._components = runner, components
        self._source, self._model, self._made = source, model, made
        self.outputs, self._dims = outputs, dims
        self._progress, self._ledger = runner.progress, runner.ledger
        self.seconds: dict[str, float] = {}
        self.traffic: dict[str, Traffic] = {}
        self.work: dict[str, TaskSeconds] = {}
        self.choices: list[str] = []
        self.passes = self.bytes_decoded = self.retries = 0
        self._completed = 0
        """Number of solvers that reached a second pass, in this process or an earlier one."""

    # The first pass, and what follows from it.

    def climb(self, work: Pass, decompose: Callable[[Summed], D], complete: Callable[[Pass, D], D] | None = None) -> D:
        """Try the plan's solvers in turn until one supports every component that was asked for.

        Parameters
        ----------
        decompose : computes the decomposition in memory, from the sums of a pass
        complete : runs the second pass, if there is one, which may refute the error estimates of the first one
        """
        made, plan = self._made, self._made.plan
        self._choose(self._model.reason(self._source.layout.dtype, plan.n_samples, plan.n_features))
        present = self._present(work) if reads_means(plan, self._model, self._source.layout) else None
        solved: D | None = None
        if plan.keeps == "samples":
            work = replace(work, writes=written_first(work.rules))
        for attempt, following in zip_longest(made.attempts, made.attempts[1:]):
            if attempt is not made.attempts[0]:
                self._progress.expect(2)
            solved = None  # so that its matrix is not held while the next one is made
            work = replace(work, working_dtype=attempt.rung.dtype, solver=attempt.rung.solver)
            try:
                solved = decompose(self._sum(work, attempt, present))
            except PrecisionError as error:
                if following is None:
                    raise PrecisionError(f"{self._source.layout.name}: {error.message}", error.remedy) from error
                self._choose(f"{attempt.rung.name} failed ({error.message}), so {following.rung.name} is tried")
                continue
            work = replace(work, writes=())  # means and scales are written by now
            if following is not None and solved.weakest.lacking.any():
                self._choose(f"{attempt.rung.name}: {_lacking(solved.weakest)}, so {following.rung.name} is tried")
                continue
            if complete is None:
                break
            self._completed += 1
            if following is None or not self._refuted(attempt.rung):
                solved = complete(work, solved)
                if following is None or not solved.weakest.lacking.any():
                    break
                self._refute(attempt.rung)
            self._choose(f"{attempt.rung.name}: the second pass refuted it, so {following.rung.name} is tried")
        assert solved is not None  # the last attempt returned or raised
        self._choose(_verdict(solved.attempt.rung, solved.weakest, made))
        return solved

    def _present(self, work: Pass) -> Present:
        """Means of the values that are not missing."""
        attempt = self._made.attempts[0]
        stage = Stage(
            name="means",
            task=present_span,
            work=work,
            empty=Present.empty(work.plan.n_kept),
            merge=Present.merge,
            n_tasks=attempt.n_tasks,
            window=attempt.window,
            n_bytes=self._source.layout.bytes,
        )
        present = self._read(stage)
        self._count(stage, present.counts)
        return present

    def _sum(self, work: Pass, attempt: Attempt, present: Present | None) -> Summed:
        """Add up what a solver needs, and check it against sums without products."""
        solver, plan, rules = SOLVERS[attempt.rung.solver], work.plan, work.rules
        samples = plan.keeps == "samples"
        columns = work.random_columns
        fill = None if present is None else present.means
        if (summary := self._summary(attempt)) is not None:
            return summary.summed(attempt, fill)
        empty: Accumulator = solver.empty(plan.n_kept, tally_of(plan, rules.center, columns))
        stage = Stage(
            name=attempt.rung.name,
            task=first_span_of_features if samples else first_span_of_samples,
            work=work,
            shared=() if samples else (fill,),
            empty=empty,
            merge=solver.merge,
            preview=partial(self._preview, present),
            n_tasks=attempt.n_tasks,
            window=attempt.window,
            n_bytes=self._source.layout.bytes,
        )
        accumulator = self._read(stage)
        _check_present(self._source.layout, accumulator.tally.counts)
        by_products, tally = accumulator.squares(rules.center and samples), accumulator.tally
        self._count(stage, tally.counts)
        sketch = Sketch(columns, tally.sketch)
        if not tally.varies:  # all samples are equal: what centring leaves is rounding
            for sums in (accumulator.matrix, tally.sketch, tally.squares, by_products):
                sums[...] = 0.0
        difference = check_products(by_products.sum(keepdims=True), np.array([tally.total]), attempt.rung.dtype)
        standard: Standard | None = None
        if isinstance(tally, Moments):
            standard = Standard.of(tally, rules, present)
            squares = self._scaled(accumulator, by_products, tally, standard, attempt)
            n_constant, n_empty = int((standard.constant & ~standard.empty).sum()), int(standard.empty.sum())
            if rules.scale != "none":
                sketch = sketch.scaled(standard.about.factor)
        else:
            assert isinstance(tally, FeatureTally)
            squares, n_constant, n_empty = tally.total, tally.n_constant, tally.n_empty
        if rules.center and samples:
            accumulator.recenter()
            sketch.product[...] -= sketch.product.mean(axis=0)
        summed = Summed(
            attempt=attempt,
            found=accumulator,
            exact=accumulator.exact,
            counts=tally.counts,
            squares=squares,
            difference=difference,
            n_constant=n_constant,
            n_empty=n_empty,
            sketch=sketch,
            product=accumulator.times(sketch.columns),
            fill=fill,
            standard=standard,
        )
        if self._ledger is not None:
            self._ledger.once(_summary_of(attempt), lambda: Summary.of(summed), Summary())
        return summed

    def _summary(self, attempt: Attempt) -> Summary | None:
        """Summary of the first pass, for a process that must not hold its sum; None for others, or if not there yet."""
        if self._runner.executor.adds_up or self._ledger is None or self._model.kernels:
            return None
        if not self._ledger.checkpoint(attempt.rung.name).complete(self._made.plan.n_spans):
            return None
        checkpoint = self._ledger.checkpoint(_summary_of(attempt))
        try:
            return checkpoint.load(0, Summary()) if checkpoint.has(0) else None
        except Damaged:  # the sum gives it again
            return None

    def _preview(self, present: Present | None, found: Accumulator, spans: int) -> Preview:
        """The leading eigenvalues of what has been added up so far."""
        rules, tally, factors = self._model.rules, found.tally, None
        samples = self._made.plan.keeps == "samples"
        if isinstance(tally, Moments) and rules.scale != "none":
            factors = Standard.of(tally, rules, present).about.factor
        shares = leading_shares(found, rules.center and samples, factors)
        return Preview(spans, self._made.plan.n_spans, shares)

    def _scaled(
        self, found: Accumulator, by_products: F64, moments: Moments, standard: Standard, attempt: Attempt
    ) -> float:
        """Scale the kept features, if requested; returns the sum of squares of X_c after that."""
        if self._model.rules.scale == "none":
            return moments.total
        squares = moments.squares if moments.centered else moments.squares + moments.count * moments.mean**2
        factors = standard.about.factor
        # Once scaled, a small feature counts as much as any other, so what products lost of it must be known.
        check_products(by_products[factors > 0], squares[factors > 0], attempt.rung.dtype)
        found.scale(factors)
        return float((squares * factors**2).sum())

    def decomposed(self, summed: Summed) -> Solved:
        """The small decomposition in memory, with the chosen number of components and the numbers by other rules."""
        plan, center, rung = self._made.plan, self._model.rules.center, summed.attempt.rung
        n, d = plan.n_samples, plan.n_features - summed.n_empty
        sketch, power = summed.sketch, SOLVERS[rung.solver].power
        product = summed.product
        assert sketch is not None
        assert product is not None
        seen: list[tuple[Eigenvalues, Chosen]] = []

        def backward(eigenvalues: F64) -> float:
            """Backward error of a factor, below which no sigma counts; 0 where the solver squares sigma."""
            if power == 2:
                return 0.0
            return sketch.backward_error(product, float(np.sqrt(eigenvalues[0])))

        def choosing(eigenvalues: F64, floor: float, _: float) -> int:
            floor = max(floor, backward(eigenvalues) ** 2)
            values, rank, _ = ranked(eigenvalues, floor, n, d, center)
            # The total is added up without products: it has the digits of float64.
            given = Eigenvalues(values, rank, n, max(1, d - summed.n_constant), center, summed.squares)
            seen.append((given, choose(self._model.n_components, given)))
            return seen[-1][1].n_components

        factors = self.eigensolve(rung.name, lambda: summed.found.finish(choosing))
        if not seen:
            choosing(factors.eigenvalues, factors.floor, factors.total)  # the factors came from the ledger
        given, chosen = seen[-1]
        off = backward(factors.eigenvalues)
        spectrum = spectrum_of(
            replace(factors, floor=max(factors.floor, off**2), total=summed.squares),
            n_samples=n,
            n_features=d,
            center=center,
            ddof=self._model.rules.ddof,
        )
        if plan.keeps == "samples":
            spectrum = spectrum.signed(spectrum.signs)
        if power == 2:
            bounds = sketch.residuals(spectrum.vectors, spectrum.eigenvalues[: spectrum.n_components])
        else:
            bounds = np.full(spectrum.n_components, off)
        spectrum = judged(spectrum, bounds, power)
        missed = 0.0
        if power == 2 and (plan.keeps == "samples" or self._model.rules.scale == "none"):
            missed = sketch.missed(product, spectrum.vectors)
        spectrum = _without(spectrum, missed)
        second = second_pass(plan, self._components) is not None and self._in_double is not None
        return Solved(
            **vars(summed),
            spectrum=spectrum,
            chosen=chosen,
            suggested=suggestions(given),
            bounds=bounds,
            power=power,
            missed=missed,
            expected=_without(judged(spectrum, bounds, power, before=bounds), missed) if second else spectrum,
        )

    def _second_attempt(self, solved: Solved) -> Attempt:
        """The attempt that the second pass follows: in double precision where digits are lacking and that fits."""
        spectrum, attempt = solved.spectrum, solved.attempt
        wanted = (spectrum.errors > REFINED) & (spectrum.singular_values > 0)
        return self._in_double or attempt if wanted.any() else attempt

    @property
    def _in_double(self) -> Attempt | None:
        """The first of the plan's attempts in double precision."""
        return next((attempt for attempt in self._made.attempts if attempt.rung.dtype == np.float64), None)

    def eigensolve(self, name: str, finish: Callable[[], Factors]) -> Factors:
        """A small decomposition in memory, or its result from the ledger."""
        gram.load(self._made.plan.n_kept)

        def solve() -> Factors:
            stage = self._progress.stage("eigensolve")
            # In a thread, so that signals are handled while LAPACK runs.
            pool = ThreadPoolExecutor(1, THREADS)
            with self._timed("eigensolve"), stage, threadpool_limits(self._made.eigensolve_threads, user_api="blas"):
                solving = pool.submit(finish)
                pool.shutdown(wait=False)
                return solving.result()

        if self._ledger is None:
            return solve()
        return self._ledger.once(f"eigensolve of {name}", solve, Factors.nothing())

    # Arrays of the kept side, written before the second pass.

    def write_kept_samples(self, solved: Solved, keep_gram: bool) -> None:
        """Write scores and alpha, and the small matrix if it is to be kept."""
        self.write_scores(solved.spectrum)
        if keep_gram and solved.found is not None:
            self.write_gram(solved)

    def write_scores(self, spectrum: Spectrum) -> None:
        """Write scores and alpha from memory."""
        scores = spectrum.scaled / spectrum.whitening if self._model.whiten else spectrum.scaled
        self.outputs.write("scores", scores, (self._dims.sample, "component"), {"whitened": self._model.whiten})
        self.outputs.write("alpha", spectrum.alpha, (self._dims.sample, "component"))

    def write_gram(self, summed: Summed) -> None:
        """Write the small matrix, and what is needed to compute X X' from it."""
        outputs, accumulator = self.outputs, summed.found
        if summed.attempt.rung.solver == "tsqr":
            outputs.write("r_factor", accumulator.matrix, ("row", self._dims.sample))
        else:
            outputs.write("gram", accumulator.matrix, (self._dims.sample, self._dims.sample_b))
        outputs.write("gram_mean_product", accumulator.tally.mean_product, (self._dims.sample,))
        outputs.write("gram_mean_norm2", accumulator.tally.mean_norm2, ())
        if summed.sketch is not None:
            outputs.write("gram_sketch", summed.sketch.product, (self._dims.sample, "random_column"))
            outputs.write("gram_norms2", accumulator.tally.squares, (self._dims.sample,))

    def write_kept_features(self, solved: Solved) -> None:
        """Write means and scales."""
        assert solved.standard is not None
        outputs, standard = self.outputs, solved.standard
        shape = self._made.plan.feature_shape
        outputs.write("mean", standard.mean.reshape(shape), self._dims.features)
        outputs.write("scale", standard.divisor.reshape(shape), self._dims.features)
        outputs.write("weights", np.ones(shape), self._dims.features)

    def write_components(self, solved: Solved) -> None:
        """Write components from memory: 0 beyond the rank, NaN for a feature without any value."""
        assert solved.standard is not None
        spectrum = solved.spectrum
        values = np.where(spectrum.singular_values > 0, spectrum.vectors, 0.0).T
        values[:, solved.standard.empty] = np.nan
        values = values.astype(solved.attempt.rung.dtype).reshape(-1, *self._made.plan.feature_shape)
        self.outputs.write("components", values, ("component", *self._dims.features))

    # The second pass.

    def components(self, work: Pass, solved: Solved) -> Solved:
        """Components from a second pass over features, made orthonormal if they are not.

        In double precision it gives Ritz values, too, and rotates components where that makes them more accurate.
        """
        spectrum, attempt, plan, outputs = solved.spectrum, self._second_attempt(solved), work.plan, self.outputs
        k, dtype, stored = spectrum.n_components, attempt.rung.dtype, solved.attempt.rung.dtype
        nonzero = spectrum.singular_values > 0
        second, sweep = self._stages("components", "orthogonalize", solved)
        raw, turned = in_hand("components", second), in_hand("components", sweep)
        finished = self._over(second, sweep, raw, ["components"])
        if not finished:
            outputs.create_tiled(raw, plan, self._dims.features, stored, k)
        stage = Stage(
            name=second,
            task=components_span,
            work=replace(
                work,
                working_dtype=dtype,
                stored_dtype=stored,
                writes=() if finished else (raw,),
                backwards=True,
            ),
            shared=(spectrum.alpha.astype(dtype),),
            empty=BackprojectionPartial.empty(plan.n_kept, k, work.random_columns),
            merge=BackprojectionPartial.merge,
            n_tasks=attempt.n_tasks,
            window=attempt.window,
            n_bytes=self._source.layout.bytes,
        )
        partial = self._read(stage)
        self._count(stage, partial.counts)
        projection, overlap, before = partial.projection, partial.overlap, None
        if self._model.rules.center:
            projection = projection - projection.mean(axis=0)  # H X_c = X_c: removes what rounding left of the means
        orthonormal = is_orthonormal(overlap, nonzero, stored)
        ritz = Ritz.of(overlap, projection, nonzero) if dtype == np.float64 else None
        transform: F64 | None = None
        if ritz is not None:
            turns = ritz.turns or not orthonormal
            signs = replace(spectrum, vectors=ritz.kept).signs
            refined = self._refined(solved, ritz, partial)
            if turns:
                transform = ritz.transform * signs[:, None]
                refined = replace(refined, coefficients=spectrum.alpha @ transform.T).signed(signs)
            else:
                refined = replace(refined, vectors=spectrum.vectors)
            spectrum = refined
        elif not orthonormal:
            transform = orthogonalizer(overlap, nonzero)
        if transform is not None:
            self._progress.expect(1)
            if not finished:
                outputs.create_tiled(turned, plan, self._dims.features, stored, k)
            before = overlap
            overlap = self._run(
                Stage(
                    name=sweep,
                    task=orthogonalize_span,
                    work=Sweep(plan, outputs, () if finished else (turned,), raw),
                    shared=(transform,),
                    empty=np.zeros_like(overlap),
                    merge=operator.iadd,
                    n_tasks=attempt.n_tasks,
                    window=attempt.window,
                    n_bytes=k * plan.n_features * stored.itemsize,
                )
            )
            projection = projection @ transform.T
        if not finished:
            outputs.rename(raw if transform is None else turned, "components")
            outputs.remove(raw)
        measured = Measured(
            overlap=overlap,
            scores_overlap=spectrum.vectors.T @ spectrum.vectors,
            before=before,
            captured=projection.T @ projection,
            misfit=np.linalg.norm(projection - spectrum.scaled, axis=0),
            refined=ritz is not None,
        )
        return replace(solved, spectrum=confirmed(spectrum, measured), measured=measured)

    def scores(self, work: Pass, solved: Solved) -> Solved:
        """Scores and alpha from a second pass over samples, in double precision."""
        assert solved.standard is not None
        spectrum, attempt, plan, outputs = solved.spectrum, solved.attempt, work.plan, self.outputs
        k, nonzero, standard = spectrum.n_components, spectrum.singular_values > 0, solved.standard
        second, sweep = self._stages("scores", "signs", solved)
        left, written = in_hand("left_vectors", second), ("scores", "alpha")
        finished = self._over(second, sweep, left, written)
        if not finished:
            outputs.create_tiled(left, plan, (self._dims.sample,), np.float64, k)
        columns = work.random_columns
        stage = Stage(
            name=second,
            task=left_vectors_span,
            work=replace(work, working_dtype=np.dtype(np.float64), writes=() if finished else (left,), backwards=True),
            shared=(spectrum.alpha, solved.fill, standard.about),
            empty=BackprojectionPartial.empty(plan.n_kept, k, columns),
            merge=BackprojectionPartial.merge,
            n_tasks=attempt.n_tasks,
            window=attempt.window,
            n_bytes=self._source.layout.bytes,
        )
        partial = self._read(stage)
        self._count(stage, partial.counts)
        signs = partial.signs
        ritz = Ritz.of(partial.overlap, partial.projection, nonzero)
        transform = np.diag(nonzero.astype(float))
        if ritz is not None:
            transform = ritz.transform
            if ritz.turns:  # after the rotation, other entries may be the largest
                self._progress.expect(1)
                extremes = self._run(
                    Stage(
                        name=f"{sweep}, looked for",
                        task=extremes_span,
                        work=Sweep(plan, outputs, reads=left),
                        shared=(transform,),
                        empty=np.zeros((2, k)),
                        merge=np.maximum,
                        n_tasks=attempt.n_tasks,
                        window=attempt.window,
                        n_bytes=8 * k * plan.n_samples,
                    )
                )
                signs = np.where(extremes[0] > extremes[1], -1.0, 1.0)
            # The sketch of scaled features: the first pass did not know the scales yet.
            sketch = Sketch(columns, partial.sketch)
            before = solved.bounds
            if solved.power == 2:
                before = sketch.residuals(spectrum.vectors, spectrum.eigenvalues[:k])
            spectrum = self._refined(replace(solved, sketch=sketch, bounds=before), ritz, partial)
        sigma = spectrum.singular_values
        repair = transform.T * signs
        to_scores = sigma / spectrum.whitening if self._model.whiten else sigma
        pending = tuple(in_hand(name, sweep) for name in written)
        for name in () if finished else pending:
            attributes = {"whitened": self._model.whiten} if name == pending[0] else {}
            outputs.create_tiled(
                name, plan, (self._dims.sample,), np.float64, k, component_axis=1, attributes=attributes
            )
        overlap = self._run(
            Stage(
                name=sweep,
                task=scores_span,
                work=Sweep(plan, outputs, () if finished else pending, left),
                shared=(repair * to_scores, repair * reciprocal(sigma)),
                empty=np.zeros((k, k)),
                merge=operator.iadd,
                n_tasks=attempt.n_tasks,
                window=attempt.window,
                n_bytes=8 * k * plan.n_samples,
            )
        )
        if not finished:
            for name, final in zip(pending, written, strict=True):
                outputs.rename(name, final)
            outputs.remove(left)
        spectrum = spectrum.signed(signs)
        weights = reciprocal(to_scores)
        scores_overlap = weights[:, None] * overlap * weights
        measured = Measured(
            overlap=spectrum.vectors.T @ spectrum.vectors,
            scores_overlap=scores_overlap,
            before=None if is_orthonormal(partial.overlap, nonzero, np.dtype(np.float64)) else partial.overlap,
            captured=sigma[:, None] * scores_overlap * sigma,
            misfit=np.linalg.norm(partial.projection @ repair - spectrum.scaled, axis=0),
            refined=ritz is not None,
        )
        return replace(solved, spectrum=confirmed(spectrum, measured), measured=measured)

    def _refined(self, solved: Solved, ritz: Ritz, partial: BackprojectionPartial) -> Spectrum:
        """The spectrum with Ritz values and vectors instead of those of the first pass, and their errors."""
        first, sketch, k = solved.spectrum, solved.sketch, solved.spectrum.n_components
        assert sketch is not None
        squares = ritz.values**2
        bounds = sketch.residuals(ritz.kept, squares) if solved.power == 2 else solved.bounds
        checked = (partial.checked - sketch.columns.T @ partial.projection) @ ritz.transform.T
        products = SAFETY * norms(checked)
        vectors = np.where(ritz.values > 0, ritz.kept, first.vectors)
        refined = replace(first, eigenvalues=np.append(squares, first.eigenvalues[k:]), vectors=vectors)
        refined = judged(refined, bounds, solved.power, before=solved.bounds, products=products)
        refined = _without(refined, solved.missed)
        # A value that the first pass knew as well stays as it was when the number of components was chosen.
        better = refined.errors < first.errors
        values = np.append(np.where(better, squares, first.eigenvalues[:k]), first.eigenvalues[k:])
        errors = np.where(better, refined.errors, first.errors)
        return replace(refined, eigenvalues=np.minimum.accumulate(values), errors=errors)

    # What all steps share.

    def _choose(self, sentence: str) -> None:
        """Record why a solver was used or rejected, and report it."""
        self.choices.append(sentence)
        self._progress.say(sentence)

    @contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - began

    @contextmanager
    def _watched(self, name: str) -> Iterator[None]:
        """Count what a stage sends over the network of a cluster."""
        before = self._runner.executor.traffic
        yield
        after = self._runner.executor.traffic
        if before is not None and after is not None:
            self.traffic[name] = self.traffic.get(name, Traffic()) + (after - before)

    def _read(self, stage: Stage[T, Any]) -> T:
        """Run a stage that reads all of the data."""
        self.passes += 1
        return self._run(stage)

    def _run(self, stage: Stage[T, Any]) -> T:
        """Run a stage, and note what it costs."""
        with self._timed(stage.name), self._watched(stage.name):
            return self._runner.run(stage)

    def _count(self, stage: Stage[Any, Any], found: Counts) -> None:
        self.work[stage.name] = TaskSeconds(found.read_seconds, found.compute_seconds, stage.n_tasks)
        self.bytes_decoded += found.bytes_read
        self.retries += found.retries

    def _stages(self, second: str, sweep: str, solved: Solved) -> tuple[str, str]:
        """Names of the second pass and its sweep: each solver that reaches it has its own, also in a resumed run."""
        if self._completed == 1:
            return second, sweep
        return f"{second} of {solved.attempt.rung.name}", f"{sweep} of {solved.attempt.rung.name}"

    def _refuted(self, rung: Rung) -> bool:
        """Whether the second pass of a solver was done before, and its result was not good enough."""
        return self._ledger is not None and self._ledger.checkpoint(f"{rung.name}, refuted").has(0)

    def _refute(self, rung: Rung) -> None:
        """Record that the second pass refuted a solver, so that a resumed run does not repeat it."""
        if self._ledger is not None:
            self._ledger.checkpoint(f"{rung.name}, refuted").keep(0, np.zeros(0))

    def _over(self, stage: str, sweep: str, between: str, written: Sequence[str]) -> bool:
        """Whether a stage and its sweep had finished before, so that `between`, the array that links them, is removed.

        Then no part of them can be repeated alone: if one of the final arrays is damaged, both start again.
        """
        if self._ledger is None or between in self.outputs:
            return False
        if not self._ledger.checkpoint(stage).complete(self._made.plan.n_spans):
            return False
        damage = next((problem for name in written if (problem := self.outputs.damage(name))), None)
        if damage is None:
            return True
        self._progress.say(f"{damage}: it is computed again")
        for name in (stage, sweep):
            self._ledger.checkpoint(name).clear()
        return False


def _summary_of(attempt: Attempt) -> str:
    """Name of the checkpoint of a summary."""
    return f"summary of {attempt.rung.name}"


def in_hand(name: str, stage: str) -> str:
    """Name of an array while a stage writes it: a task that comes late, after the stage, writes where nobody reads."""
    return re.sub(r"\W+", "_", f"{name} in hand of {stage}")


def _check_present(layout: Layout, counts: Counts) -> None:
    """Refuse data without any value."""
    if counts.n_missing == layout.n_values:
        raise DataError(
            f"{layout.name}: all {counts.n_missing:,} values are missing: there is nothing to analyse",
            "Look at the file, and at input.missing_values.",
        )


def _without(spectrum: Spectrum, missed: float) -> Spectrum:
    """The spectrum, where eigenvalues that are not above `missed` have an infinite error."""
    kept = spectrum.eigenvalues[: spectrum.n_components]
    return replace(spectrum, errors=np.where(kept > missed, spectrum.errors, np.inf))


def _lacking(spectrum: Spectrum) -> str:
    """The first component that a solver does not support, and by how much, in words."""
    index = int(np.argmax(spectrum.lacking))
    ratio = spectrum.singular_values[index] / (spectrum.singular_values[0] or 1.0)
    size = f"a singular value of {ratio:.1e} of the largest" if ratio else "a singular value that can't be told from 0"
    return f"component {index} has {size}, below the {spectrum.supported:.1e} that it supports"


def _verdict(rung: Rung, spectrum: Spectrum, made: RunPlan) -> str:
    """Which solver gave the answer, and what it lacks, in words."""
    if not spectrum.lacking.any():
        return f"{rung.name} supports every component that was asked for"
    if made.too_large:
        return f"{rung.name}: {_lacking(spectrum)}; {made.too_large[0].name} does not fit the memory"
    return f"{rung.name}: {_lacking(spectrum)}"
