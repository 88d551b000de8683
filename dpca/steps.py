"""The steps of a decomposition: the passes, the eigensolve between them, and what is written after each.

`dpca.decomposition` says in which order they are taken.
"""

from __future__ import annotations

import operator
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import zip_longest
from typing import Any, Protocol, TypeVar

import numpy as np
from threadpoolctl import threadpool_limits

from dpca.accumulators import SOLVERS, Accumulator, gram, tally_of
from dpca.accumulators.factors import F64, Factors
from dpca.accumulators.tallies import Counts, FeatureTally, Moments, Present, Standard
from dpca.backproject import BackprojectionPartial, Measured, orthogonalizer
from dpca.certificate import check_products
from dpca.dimension import Chosen, Eigenvalues, choose, suggestions
from dpca.engine import run_stage
from dpca.errors import DataError, PrecisionError
from dpca.executors import Executor, Traffic
from dpca.ledger import Ledger
from dpca.model import Model, Rung
from dpca.outputs import Outputs
from dpca.passes import (
    LEFT_VECTORS,
    ORTHONORMAL,
    Pass,
    Sweep,
    components_span,
    first_span_of_features,
    first_span_of_samples,
    left_vectors_span,
    orthogonalize_span,
    present_span,
    scores_span,
    written_first,
)
from dpca.planning import reads_means
from dpca.preview import Preview, leading_shares
from dpca.progress import Progress
from dpca.runplan import Attempt, RunPlan
from dpca.signals import THREADS
from dpca.sources import Source
from dpca.sources.base import Layout
from dpca.spectrum import Spectrum, ranked, reciprocal, spectrum_of

P = TypeVar("P")
Merge = Callable[[P, P], P]


@dataclass(frozen=True, kw_only=True)
class Summed:
    """What the first pass gave."""

    attempt: Attempt
    found: Any
    """The accumulator, while its matrix is needed."""
    exact: bool
    squares: float
    """Sum of squares of X_c, added up without products."""
    difference: float
    """Relative, of what the products sum to from that."""
    n_constant: int
    fill: F64 | None = None
    """Where features are kept: what missing values were replaced by; None where there are none."""
    standard: Standard | None = None
    """Where features are kept: their means and divisors."""


@dataclass(frozen=True, kw_only=True)
class Solved(Summed):
    """What the first pass and the eigensolve gave."""

    spectrum: Spectrum
    chosen: Chosen
    suggested: dict[str, int | str]

    @property
    def weakest(self) -> Spectrum:
        """The spectrum that decides whether the solver supports what was asked for."""
        return self.spectrum


@dataclass(frozen=True)
class TaskSeconds:
    """What the tasks of a stage did, in all; also of a run that was gone on with."""

    reading: float
    """From the request for a slab until its values are there, decoded."""
    computing: float
    """The rest: preprocessing, products, writing."""
    tasks: int
    """At the same time."""


class Decomposed(Protocol):
    """What comes of what a pass summed up."""

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
        dims: tuple[str, ...],
        executor: Executor,
        progress: Progress,
        ledger: Ledger | None,
    ) -> None:
        self._ledger = ledger
        self._source, self._model, self._made = source, model, made
        self._outputs, self._dims = outputs, dims
        self._executor, self._progress = executor, progress
        self.seconds: dict[str, float] = {}
        self.traffic: dict[str, Traffic] = {}
        self.work: dict[str, TaskSeconds] = {}
        self.choices: list[str] = []
        self.passes = self.bytes_decoded = self.retries = 0

    # The first pass, and what follows from it.

    def solve(self, work: Pass) -> Solved:
        """A PCA, by the first of the plan's solvers that supports every component that was asked for."""
        return self.climb(work, self._decomposed)

    def climb(self, work: Pass, decompose: Callable[[Summed], D]) -> D:
        """Try the plan's solvers in turn until one supports every component that was asked for."""
        made, plan = self._made, self._made.plan
        self._choose(self._model.reason(self._source.layout.dtype, plan.n_samples, plan.n_features))
        present = self._present(work) if reads_means(plan, self._model, self._source.layout) else None
        solved: D | None = None
        if plan.keeps == "samples":
            work = replace(work, writes=written_first(work.rules))
        for attempt, following in zip_longest(made.attempts, made.attempts[1:]):
            if attempt is not made.attempts[0]:
                self._progress.expect(2)
            solved = None  # its matrix is not held while the next one is made
            work = replace(work, working_dtype=attempt.rung.dtype, solver=attempt.rung.solver)
            try:
                solved = decompose(self._sum(work, attempt, present))
            except PrecisionError as error:
                if following is None:
                    raise PrecisionError(f"{self._source.layout.name}: {error.message}", error.remedy) from error
                self._choose(f"{attempt.rung.name} failed ({error.message}), so {following.rung.name} is tried")
                continue
            work = replace(work, writes=())  # means and scales are written
            if following is None or not solved.weakest.lacking.any():
                break
            self._choose(f"{attempt.rung.name}: {_lacking(solved.weakest)}, so {following.rung.name} is tried")
        assert solved is not None  # the last attempt returned or raised
        self._choose(_verdict(solved.attempt.rung, solved.weakest, made))
        return solved

    def _present(self, work: Pass) -> Present:
        """Means of the present values."""
        found = self._read(
            "means",
            self._made.attempts[0],
            present_span,
            work,
            total=Present.empty(work.plan.n_kept),
            merge=Present.merge,
        )
        self._count("means", self._made.attempts[0], found.counts)
        return found

    def _sum(self, work: Pass, attempt: Attempt, present: Present | None) -> Summed:
        """Add up what a solver needs, and check it against sums without products."""
        solver, plan, rules = SOLVERS[attempt.rung.solver], work.plan, work.rules
        samples = plan.keeps == "samples"
        total: Accumulator = solver.empty(plan.n_kept, tally_of(plan, rules.center))
        fill = None if present is None else present.mean
        found = self._read(
            attempt.rung.name,
            attempt,
            first_span_of_features if samples else first_span_of_samples,
            work,
            *(() if samples else (fill,)),
            total=total,
            merge=solver.merge,
            preview=partial(self._preview, present),
        )
        _check_present(self._source.layout, found.tally.counts)
        by_products, tally = found.squares(rules.center and samples), found.tally
        self._count(attempt.rung.name, attempt, tally.counts)
        difference = check_products(by_products.sum(keepdims=True), np.array([tally.total]), attempt.rung.dtype)
        standard: Standard | None = None
        if isinstance(tally, Moments):
            standard = Standard.of(tally, rules, present)
            squares = self._scaled(found, by_products, tally, standard, attempt)
            n_constant = int(standard.constant.sum())
        else:
            assert isinstance(tally, FeatureTally)
            squares, n_constant = tally.total, tally.n_constant
        if rules.center and samples:
            found.recenter()
        return Summed(
            attempt=attempt,
            found=found,
            exact=found.exact,
            squares=squares,
            difference=difference,
            n_constant=n_constant,
            fill=fill,
            standard=standard,
        )

    def _preview(self, present: Present | None, found: Accumulator, spans: int) -> Preview:
        """What has been added up so far."""
        rules, tally, factors = self._model.rules, found.tally, None
        samples = self._made.plan.keeps == "samples"
        if isinstance(tally, Moments) and rules.scale != "none":
            factors = Standard.of(tally, rules, present).about.factor
        shares = leading_shares(found, rules.center and samples, factors)
        return Preview(spans, self._made.plan.n_spans, shares)

    def _scaled(
        self, found: Accumulator, by_products: F64, moments: Moments, standard: Standard, attempt: Attempt
    ) -> float:
        """Scale the kept features, if they are to be; returns the sum of squares of X_c then."""
        if self._model.rules.scale == "none":
            return moments.total
        squares = moments.squares if moments.centered else moments.squares + moments.count * moments.mean**2
        factors = standard.about.factor
        # A small feature counts as much as any other now, so what products lost of it must be known.
        check_products(by_products[factors > 0], squares[factors > 0], attempt.rung.dtype)
        found.scale(factors)
        return float((squares * factors**2).sum())

    def _decomposed(self, summed: Summed) -> Solved:
        """The small decomposition in memory; how many components were chosen, and what other rules say."""
        plan, center, rung = self._made.plan, self._model.rules.center, summed.attempt.rung
        n, d = plan.n_samples, plan.n_features
        seen: list[tuple[Eigenvalues, Chosen]] = []

        def choosing(eigenvalues: F64, floor: float, total: float) -> int:
            values, rank, _ = ranked(eigenvalues, floor, n, d, center)
            given = Eigenvalues(values, rank, n, max(1, d - summed.n_constant), center, total)
            seen.append((given, choose(self._model.n_components, given)))
            return seen[-1][1].n_components

        factors = self.eigensolve(rung.name, lambda: summed.found.finish(choosing))
        if not seen:
            choosing(factors.eigenvalues, factors.floor, factors.total)  # from what was found before
        given, chosen = seen[-1]
        spectrum = spectrum_of(
            factors,
            n_samples=n,
            n_features=d,
            center=center,
            ddof=self._model.rules.ddof,
            working_dtype=np.dtype(np.float64) if summed.exact else rung.dtype,
        )
        return Solved(
            **vars(summed),
            spectrum=spectrum.signed(spectrum.signs) if plan.keeps == "samples" else spectrum,
            chosen=chosen,
            suggested=suggestions(given),
        )

    def eigensolve(self, name: str, finish: Callable[[], Factors]) -> Factors:
        """A small decomposition in memory, or what the ledger holds of it."""
        gram.load(self._made.plan.n_kept)

        def solve() -> Factors:
            stage = self._progress.stage("eigensolve")
            # In a thread, so that a signal is answered while LAPACK runs.
            pool = ThreadPoolExecutor(1, THREADS)
            with self._timed("eigensolve"), stage, threadpool_limits(self._made.eigensolve_threads, user_api="blas"):
                solving = pool.submit(finish)
                pool.shutdown(wait=False)
                return solving.result()

        if self._ledger is None:
            return solve()
        return self._ledger.once(f"eigensolve of {name}", solve, Factors.nothing())

    # What is written of the kept side, before the second pass.

    def write_kept_samples(self, solved: Solved, keep_gram: bool) -> None:
        """Scores and alpha, and the small matrix if it is to be kept."""
        spectrum, outputs = solved.spectrum, self._outputs
        scores = spectrum.scaled / spectrum.whitening if self._model.whiten else spectrum.scaled
        outputs.write("scores", scores, ("sample", "component"), {"whitened": self._model.whiten})
        outputs.write("alpha", spectrum.alpha, ("sample", "component"))
        if keep_gram:
            self.write_gram(solved)

    def write_gram(self, summed: Summed) -> None:
        """The small matrix, and what makes X X' of it."""
        outputs, found = self._outputs, summed.found
        if summed.attempt.rung.solver == "tsqr":
            outputs.write("r_factor", found.matrix, ("row", "sample"))
        else:
            outputs.write("gram", found.matrix, ("sample", "sample_b"))
        outputs.write("gram_mean_product", found.tally.mean_product, ("sample",))
        outputs.write("gram_mean_norm2", found.tally.mean_norm2, ())

    def write_kept_features(self, solved: Solved, components: bool) -> None:
        """Means, scales and components."""
        assert solved.standard is not None
        spectrum, outputs, standard = solved.spectrum, self._outputs, solved.standard
        shape = self._made.plan.feature_shape
        outputs.write("mean", standard.mean.reshape(shape), self._dims)
        outputs.write("scale", standard.divisor.reshape(shape), self._dims)
        outputs.write("weights", np.ones(shape), self._dims)
        if components:
            self._write_components(spectrum, standard, solved.attempt.rung)

    def _write_components(self, spectrum: Spectrum, standard: Standard, rung: Rung) -> None:
        """Components from memory: 0 beyond the rank, NaN for a feature without any value."""
        values = np.where(spectrum.singular_values > 0, spectrum.vectors, 0.0).T
        values[:, np.isnan(standard.mean)] = np.nan
        values = values.astype(rung.dtype).reshape(-1, *self._made.plan.feature_shape)
        self._outputs.write("components", values, ("component", *self._dims))

    # The second pass.

    def components(self, work: Pass, solved: Solved) -> Measured:
        """Components from a second pass over features; made orthonormal where they are not."""
        spectrum, attempt, plan, outputs = solved.spectrum, solved.attempt, work.plan, self._outputs
        k, dtype = spectrum.n_components, attempt.rung.dtype
        over = self._over("components", "orthogonalize", ORTHONORMAL, ["components"])
        outputs.create_tiled("components", plan, self._dims, dtype, k)
        partial = self._read(
            "components",
            attempt,
            components_span,
            replace(work, working_dtype=dtype, writes=() if over else ("components",), backwards=True),
            spectrum.alpha.astype(dtype),
            total=BackprojectionPartial.empty(plan.n_kept, k),
            merge=BackprojectionPartial.merge,
        )
        self._count("components", attempt, partial.counts)
        projection, overlap, before = partial.projection, partial.overlap, None
        if self._model.rules.center:
            projection = projection - projection.mean(axis=0)  # H X_c = X_c: what rounding left of the means goes
        transform = orthogonalizer(overlap, spectrum.singular_values > 0, dtype)
        if transform is not None:
            self._progress.expect(1)
            if not over:
                outputs.create_tiled(ORTHONORMAL, plan, self._dims, dtype, k)
            before = overlap
            overlap = self._sum_up(
                "orthogonalize",
                k * plan.n_features * dtype.itemsize,
                attempt,
                orthogonalize_span,
                Sweep(plan, outputs, () if over else (ORTHONORMAL,)),
                transform,
                total=np.zeros_like(overlap),
                merge=operator.iadd,
            )
            if not over:
                outputs.rename(ORTHONORMAL, "components")
            projection = projection @ transform.T
        return Measured(
            overlap=overlap,
            scores_overlap=spectrum.vectors.T @ spectrum.vectors,
            before=before,
            captured=projection.T @ projection,
            misfit=np.linalg.norm(projection - spectrum.scaled, axis=0),
        )

    def scores(self, work: Pass, solved: Solved, components: bool) -> tuple[Measured, Spectrum]:
        """Scores and alpha from a second pass over samples, in double precision; the spectrum with its signs."""
        assert solved.standard is not None
        spectrum, attempt, plan, outputs = solved.spectrum, solved.attempt, work.plan, self._outputs
        k, sigma, standard = spectrum.n_components, spectrum.singular_values, solved.standard
        over = self._over("scores", "signs", LEFT_VECTORS, ["scores", "alpha"])
        if not over:
            outputs.create_tiled(LEFT_VECTORS, plan, ("sample",), np.float64, k)
        partial = self._read(
            "scores",
            attempt,
            left_vectors_span,
            replace(work, working_dtype=np.dtype(np.float64), writes=() if over else (LEFT_VECTORS,), backwards=True),
            spectrum.alpha,
            solved.fill,
            standard.about,
            total=BackprojectionPartial.empty(plan.n_kept, k),
            merge=BackprojectionPartial.merge,
        )
        self._count("scores", attempt, partial.counts)
        signs = partial.signs
        # As the components of a Gram matrix: what a sigma_j of little weight takes from the stronger ones goes.
        transform = orthogonalizer(partial.overlap, sigma > 0, np.dtype(np.float64))
        repair = (np.eye(k) if transform is None else transform).T * signs
        to_scores = sigma / spectrum.whitening if self._model.whiten else sigma
        for name in ("scores", "alpha"):
            outputs.create_tiled(name, plan, ("sample",), np.float64, k, component_axis=1)
        outputs.array("scores").attrs["whitened"] = self._model.whiten
        overlap = self._sum_up(
            "signs",
            8 * k * plan.n_samples,
            attempt,
            scores_span,
            Sweep(plan, outputs, () if over else ("scores", "alpha")),
            repair * to_scores,
            repair * reciprocal(sigma),
            total=np.zeros((k, k)),
            merge=operator.iadd,
        )
        outputs.remove(LEFT_VECTORS)
        spectrum = spectrum.signed(signs)
        if components:
            self._write_components(spectrum, standard, attempt.rung)
        weights = reciprocal(to_scores)
        scores_overlap = weights[:, None] * overlap * weights
        measured = Measured(
            overlap=spectrum.vectors.T @ spectrum.vectors,
            scores_overlap=scores_overlap,
            before=None if transform is None else partial.overlap,
            captured=sigma[:, None] * scores_overlap * sigma,
            misfit=np.linalg.norm(partial.projection @ repair - spectrum.scaled, axis=0),
        )
        return measured, spectrum

    # What every step does.

    def _choose(self, sentence: str) -> None:
        """Record why a solver was taken or left, and say so."""
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
        before = self._executor.traffic
        yield
        after = self._executor.traffic
        if before is not None and after is not None:
            self.traffic[name] = self.traffic.get(name, Traffic()) + (after - before)

    def _read(
        self,
        name: str,
        attempt: Attempt,
        task: Callable[..., P],
        work: Any,
        *shared: Any,
        total: P,
        merge: Merge[P],
        preview: Callable[[P, int], Preview] | None = None,
    ) -> P:
        """A stage that reads all of the data."""
        self.passes += 1
        size = self._source.layout.bytes
        return self._sum_up(name, size, attempt, task, work, *shared, total=total, merge=merge, preview=preview)

    def _sum_up(
        self,
        name: str,
        n_bytes: int,
        attempt: Attempt,
        task: Callable[..., P],
        work: Any,
        *shared: Any,
        total: P,
        merge: Merge[P],
        preview: Callable[[P, int], Preview] | None = None,
    ) -> P:
        """A stage, with what the plan says of an attempt."""
        with self._timed(name), self._watched(name):
            return run_stage(
                name,
                n_bytes,
                task,
                work,
                *shared,
                total=total,
                merge=merge,
                executor=self._executor,
                progress=self._progress,
                at_once=attempt,
                ledger=self._ledger,
                preview=preview,
            )

    def _count(self, stage: str, attempt: Attempt, found: Counts) -> None:
        self.work[stage] = TaskSeconds(found.read_seconds, found.compute_seconds, attempt.n_tasks)
        self.bytes_decoded += found.bytes_read
        self.retries += found.retries

    def _over(self, stage: str, sweep: str, between: str, written: list[str]) -> bool:
        """Whether a stage and the sweep over what it wrote, `between`, had ended before, and that is gone.

        Then no part of it can be done alone: where what the sweep has written is damaged, both begin anew.
        """
        if self._ledger is None or between in self._outputs:
            return False
        if not self._ledger.stage(sweep).complete(self._made.plan.n_spans):
            return False
        damage = next((found for name in written if (found := self._outputs.damage(name))), None)
        if damage is None:
            return True
        self._progress.say(f"{damage}: it is computed again")
        for name in (stage, sweep):
            self._ledger.stage(name).clear()
        return False


def _check_present(layout: Layout, counts: Counts) -> None:
    """Refuse data without any value."""
    if counts.n_missing == layout.n_values:
        raise DataError(
            f"{layout.name}: all {counts.n_missing:,} values are missing: there is nothing to analyse",
            "Look at the file, and at input.missing_values.",
        )


def _lacking(spectrum: Spectrum) -> str:
    """Which component is the first that a solver does not support, and by how much."""
    index = int(np.argmax(spectrum.lacking))
    ratio = spectrum.singular_values[index] / spectrum.singular_values[0]
    size = f"a singular value of {ratio:.1e} of the largest" if ratio else "a singular value that can't be told from 0"
    return f"component {index} has {size}, below the {spectrum.supported:.1e} that it supports"


def _verdict(rung: Rung, spectrum: Spectrum, made: RunPlan) -> str:
    """What the answer is from, and what it lacks."""
    if not spectrum.lacking.any():
        return f"{rung.name} supports every component that was asked for"
    if made.too_large:
        return f"{rung.name}: {_lacking(spectrum)}; {made.too_large[0].name} does not fit the memory"
    return f"{rung.name}: {_lacking(spectrum)}"
