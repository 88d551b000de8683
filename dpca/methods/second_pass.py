"""The second pass over the data: the vectors of the streamed side, what is measured of them, and Ritz values.

Where samples are kept, it computes components, else scores. A sweep over what the pass has written follows: it makes
vectors orthonormal where they are not, and gives them their signs. Arrays have names of their own until all is written.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dpca.execution.stage import InTurn, Stage
from dpca.methods.dataset import Dataset
from dpca.methods.renamed import Renamed
from dpca.methods.solve import Solved, in_double, of_factors, without_missed
from dpca.methods.spans import components_span, left_vectors_span
from dpca.methods.stages import Stages
from dpca.methods.sweeps import Sweep, extremes_span, orthogonalize_span, scores_span
from dpca.numerics.accumulators.grouped import ByGroup, OfGroup, counted
from dpca.numerics.backproject import BackprojectionPartial, MeasuredFit, Ritz, is_orthonormal, orthogonalizer
from dpca.numerics.certificate import confirmed
from dpca.numerics.sketch import SAFETY, Sketch, norms
from dpca.numerics.spectrum import REFINED, Spectrum, judged, reciprocal
from dpca.numerics.weights import mean_of
from dpca.planning.job import Job
from dpca.planning.runplan import Attempt
from dpca.store.arrays import COMPONENTS, Dims, names_of_components, of_group
from dpca.store.meanings import IN_INNER_PRODUCT
from dpca.store.outputs import Outputs, pending_name
from dpca.types import F64

DOUBLE = np.dtype(np.float64)


def added_up(sums: Sequence[BackprojectionPartial], columns: F64) -> BackprojectionPartial:
    """The sum over groups; itself where there is one. `columns` are those of the sketch."""
    first, *others = sums
    if not others:
        return first
    m, k = first.projection.shape
    total = BackprojectionPartial.empty(m, k, columns)
    for one in sums:
        total.merge(one)
    return total


@dataclass(frozen=True)
class _Steps:
    """The pass and its sweep by name, and the arrays that they write."""

    second: str
    sweep: str
    between: tuple[str, ...]
    """The arrays that the pass writes and the sweep reads."""
    pending: tuple[str, ...]
    """Arrays that the sweep writes, until all is written."""
    final: tuple[str, ...]
    """Their names in the result."""
    renamed: Renamed
    """The arrays of all groups that get these names."""
    finished: bool
    """Whether both had finished before, so that nothing is written."""

    def to_write(self, *names: str) -> tuple[str, ...]:
        """The names of arrays that a stage has to write."""
        return () if self.finished else names


class SecondPass:
    """The second pass of one solver.

    Parameters
    ----------
    suffix : what names of stages end with, where another second pass ran before, or may follow
    """

    def __init__(
        self,
        stages: Stages,
        data: Dataset,
        job: Job,
        outputs: Outputs,
        dims: tuple[Dims, ...],
        *,
        suffix: str = "",
    ) -> None:
        self._stages, self._data, self._model, self._run_plan = stages, data, job.model, job.run_plan
        self._outputs, self._dims, self._suffix = outputs, dims, suffix
        self._plan = data.plan
        """How samples are cut, which is the same for all groups."""

    def components(self, solved: Solved) -> Solved:
        """Components from a second pass over features, made orthonormal if they are not.

        In double precision it gives Ritz values, too, and rotates components where that makes them more accurate.
        """
        final = names_of_components(self._model.unit > 0)
        steps = self._steps(solved, "components", "orthogonalize", final, final)
        attempt, stored = self._attempt(solved), solved.attempt.rung.dtype
        nonzero = solved.spectrum.singular_values > 0
        sums = self._back_projected(steps, solved, attempt).sums
        partial = added_up(sums, self._columns)
        # A matrix of pairs is the Gram matrix of no X: components are regressions on its vectors, and stay as they are.
        regressions = self._model.rules.missing == "pairwise"
        projection, weighted = partial.projection, self._data.sample_weights
        if self._model.rules.center:
            # H X_c = X_c: removes what rounding left of the means.
            projection = projection - mean_of(projection, self._data.shares)
        if weighted is not None:
            projection = projection * weighted.roots[:, None]
        refines = (attempt.rung.dtype == DOUBLE or solved.judge is not None) and not regressions
        ritz = Ritz.of(partial.overlap, projection, nonzero) if refines else None
        orthonormal = regressions or is_orthonormal(partial.overlap, nonzero, stored)
        spectrum, transform = solved.spectrum, None
        if ritz is not None:
            spectrum, transform = self._rotated(solved, ritz, partial, projection, orthonormal)
        elif not orthonormal:
            transform = orthogonalizer(partial.overlap, nonzero)
        overlap = partial.overlap
        if transform is not None:
            overlap = self._orthogonalized(steps, transform, attempt, stored)
            projection = projection @ transform.T
        self._publish(steps, steps.pending if transform is not None else steps.between)
        if regressions:
            return solved
        if len(sums) > 1:
            turn = np.eye(len(overlap)) if transform is None else transform
            solved = replace(solved, shares=np.array([np.diagonal(turn @ one.overlap @ turn.T) for one in sums]))
        measured = MeasuredFit(
            overlap=overlap,
            scores_overlap=spectrum.vectors.T @ spectrum.vectors,
            before=None if transform is None else partial.overlap,
            misfit=np.linalg.norm(projection - spectrum.scaled, axis=0),
            refined=ritz is not None and attempt.rung.dtype == DOUBLE,
        )
        return replace(solved, spectrum=confirmed(spectrum, measured), measured=measured)

    def scores(self, solved: Solved) -> Solved:
        """Scores and alpha from a second pass over samples, in double precision."""
        steps = self._steps(solved, "scores", "signs", ("left_vectors",), ("scores", "alpha"))
        spectrum, nonzero = solved.spectrum, solved.spectrum.singular_values > 0
        partial = self._left_vectors(steps, solved)
        ritz = Ritz.of(partial.overlap, partial.projection, nonzero)
        transform, signs = np.diag(nonzero.astype(float)), partial.signs
        if ritz is not None:
            transform = ritz.transform
            if ritz.turns:  # after the rotation, other entries may be the largest
                signs = self._signs(steps, transform, solved.attempt)
            scaled = solved if solved.judge is not None else self._with_scaled_sketch(solved, partial)
            spectrum = self._refined(scaled, ritz, partial, partial.projection)
        sigma, repair = spectrum.singular_values, transform.T * signs
        to_scores = sigma / spectrum.whitening if self._model.whiten else sigma
        overlap = self._scores_written(steps, repair * to_scores, repair * reciprocal(sigma), solved.attempt)
        self._publish(steps, steps.pending)
        spectrum = spectrum.signed(signs)
        weights = reciprocal(to_scores)
        scores_overlap = weights[:, None] * overlap * weights
        measured = MeasuredFit(
            overlap=spectrum.vectors.T @ spectrum.vectors,
            scores_overlap=scores_overlap,
            before=None if is_orthonormal(partial.overlap, nonzero, DOUBLE) else partial.overlap,
            misfit=np.linalg.norm(partial.projection @ repair - spectrum.scaled, axis=0),
            refined=ritz is not None,
        )
        return replace(solved, spectrum=confirmed(spectrum, measured), measured=measured)

    # The pass.

    def _attempt(self, solved: Solved) -> Attempt:
        """The attempt that the pass follows: in double precision where digits are lacking and that fits."""
        spectrum, attempt = solved.spectrum, solved.attempt
        if solved.judge is not None:
            return in_double(self._run_plan) or attempt if solved.judge.needs_double else attempt
        wanted = (spectrum.errors > REFINED) & (spectrum.singular_values > 0)
        noise = spectrum.noise_variance
        if wanted.any() or noise.error > REFINED * noise.value:
            return in_double(self._run_plan) or attempt
        return attempt

    def _back_projected(self, steps: _Steps, solved: Solved, attempt: Attempt) -> ByGroup[BackprojectionPartial]:
        """Write the components of all features, and measure those of each group."""
        alpha, stored = solved.spectrum.alpha, solved.attempt.rung.dtype
        if not steps.finished:
            for name in steps.between:
                self._create_components(name, stored, alpha.shape[1])
        writes = steps.to_write(*steps.between)
        nothing = (BackprojectionPartial.empty(len(alpha), alpha.shape[1], self._columns) for _ in self._data.groups)
        empty = ByGroup(tuple(nothing))
        data = replace(self._data, factors=solved.summary.factors.values)
        stage = Stage(
            name=steps.second,
            task=components_span,
            work=data.work(
                self._model.rules,
                attempt.rung,
                outputs=self._outputs,
                writes=writes,
                stored_dtype=stored,
                backwards=True,
            ),
            shared=(alpha.astype(attempt.rung.dtype),),
            empty=empty,
            merge=ByGroup.merge,
            like=OfGroup(0, empty.sums[0]),
            concurrency=attempt.concurrency,
            n_bytes=self._data.n_bytes,
        )
        return self._stages.read(stage, lambda sums: counted(one.counts for one in sums.sums))

    def _left_vectors(self, steps: _Steps, solved: Solved) -> BackprojectionPartial:
        """Write the left singular vectors of all samples, and measure them."""
        alpha, attempt = solved.spectrum.alpha, solved.attempt
        if not steps.finished:
            self._outputs.create_tiled(steps.between[0], self._plan, (self._sample,), DOUBLE, alpha.shape[1])
        rung = replace(attempt.rung, dtype=DOUBLE)
        writes = steps.to_write(*steps.between)
        stage = Stage(
            name=steps.second,
            task=left_vectors_span,
            work=self._data.work(self._model.rules, rung, outputs=self._outputs, writes=writes, backwards=True),
            shared=(alpha, solved.summed.fill, solved.summary.standard.about),
            empty=BackprojectionPartial.empty(len(alpha), alpha.shape[1], self._columns),
            merge=BackprojectionPartial.merge,
            concurrency=attempt.concurrency,
            n_bytes=self._data.n_bytes,
        )
        return self._stages.read(stage, lambda partial: partial.counts)

    def _create_components(self, name: str, stored: np.dtype[Any], k: int) -> None:
        """Create an array of components of each group."""
        for plan, dims in zip(self._data.plans, self._dims, strict=True):
            attributes = IN_INNER_PRODUCT if self._model.unit and name.startswith(COMPONENTS) else {}
            self._outputs.create_tiled(
                of_group(name, dims.group), plan, dims.features, stored, k, attributes=attributes
            )

    @property
    def _sample(self) -> str:
        """The name of the samples' axis, the same for all groups."""
        return self._dims[0].sample

    @property
    def _columns(self) -> F64:
        """The columns of the sketch, not scaled."""
        return self._data.random_columns(self._model.rules)

    # Its Ritz values.

    def _rotated(
        self, solved: Solved, ritz: Ritz, partial: BackprojectionPartial, projection: F64, orthonormal: bool
    ) -> tuple[Spectrum, F64 | None]:
        """The refined spectrum, and the rotation of the components; None where they stay as they are."""
        signs = replace(solved.spectrum, vectors=ritz.kept).signs
        refined = self._refined(solved, ritz, partial, projection)
        if orthonormal and not ritz.turns:
            return replace(refined, vectors=solved.spectrum.vectors), None
        transform = ritz.transform * signs[:, None]
        return replace(refined, coefficients=solved.spectrum.alpha @ transform.T).signed(signs), transform

    def _with_scaled_sketch(self, solved: Solved, partial: BackprojectionPartial) -> Solved:
        """The result with the sketch of scaled features: the first pass did not know the scales yet."""
        sketch, bounds, spectrum = Sketch(self._columns, partial.sketch), solved.bounds, solved.spectrum
        if solved.power == 2:
            bounds = sketch.residuals(spectrum.vectors, spectrum.eigenvalues[: spectrum.n_components])
        summed = replace(solved.summed, summary=replace(solved.summary, sketch=sketch))
        return replace(solved, summed=summed, bounds=bounds)

    def _refined(self, solved: Solved, ritz: Ritz, partial: BackprojectionPartial, projection: F64) -> Spectrum:
        """The spectrum with Ritz values and vectors instead of those of the first pass, and their errors.

        Parameters
        ----------
        projection : that of the pass, about the mean, and weighted as samples are
        """
        if solved.judge is not None:
            return solved.judge.refined(solved.spectrum, ritz, projection, partial.overlap)
        first, sketch, k = solved.spectrum, solved.summary.sketch, solved.spectrum.n_components
        squares = ritz.values**2
        bounds = sketch.residuals(ritz.kept, squares) if solved.power == 2 else solved.bounds
        checked = (partial.checked - self._columns.T @ partial.projection) @ ritz.transform.T
        products = SAFETY * norms(checked) * (1.0 if first.roots is None else float(first.roots.max()))
        of_groups = of_factors(first, solved.summary)
        products = products if of_groups is None else products + of_groups
        products = products + sketch.off
        vectors = np.where(ritz.values > 0, ritz.kept, first.vectors)
        refined = replace(first, eigenvalues=np.append(squares, first.eigenvalues[k:]), vectors=vectors)
        refined = judged(refined, bounds, solved.power, before=solved.bounds, products=products)
        refined = without_missed(refined, solved.missed)
        # A value that the first pass knew as well stays as it was when the number of components was chosen.
        better = refined.errors < first.errors
        values = np.append(np.where(better, squares, first.eigenvalues[:k]), first.eigenvalues[k:])
        errors = np.where(better, refined.errors, first.errors)
        off = np.where(better, refined.known_off, first.known_off)
        return replace(refined, eigenvalues=np.minimum.accumulate(values), errors=errors, off=off)

    # The sweeps.

    def _orthogonalized(self, steps: _Steps, transform: F64, attempt: Attempt, stored: np.dtype[Any]) -> F64:
        """Write T W' for components W'; returns its products W'W, (n_components, n_components)."""
        k = len(transform)
        self._stages.progress.expect(1)
        writes = steps.to_write(*steps.pending)
        for name in writes:
            self._create_components(name, stored, k)
        sweeps = [
            Sweep(
                plan,
                self._outputs,
                tuple(of_group(name, group) for name in writes),
                tuple(of_group(name, group) for name in steps.between),
            )
            for plan, group in zip(self._data.plans, self._data.names, strict=True)
        ]
        stage = Stage(
            name=steps.sweep,
            task=orthogonalize_span,
            work=InTurn.of(sweeps),
            shared=(transform,),
            empty=np.zeros_like(transform),
            merge=operator.iadd,
            concurrency=attempt.concurrency,
            n_bytes=len(steps.between) * k * self._data.n_features * stored.itemsize,
        )
        return self._stages.run(stage)

    def _signs(self, steps: _Steps, transform: F64, attempt: Attempt) -> F64:
        """Signs that make the largest entry of each rotated left singular vector positive, (n_components,)."""
        self._stages.progress.expect(1)
        stage: Stage[F64, F64] = Stage(
            name=_looked_for(steps.sweep),
            task=extremes_span,
            work=Sweep(self._plan, self._outputs, reads=steps.between),
            shared=(transform,),
            empty=np.zeros((2, len(transform))),
            merge=np.maximum,
            concurrency=attempt.concurrency,
            n_bytes=8 * len(transform) * self._plan.n_samples,
        )
        extremes = self._stages.run(stage)
        return np.where(extremes[0] > extremes[1], -1.0, 1.0)

    def _scores_written(self, steps: _Steps, to_scores: F64, to_alpha: F64, attempt: Attempt) -> F64:
        """Write scores and alpha of all samples; returns scores' scores, (n_components, n_components)."""
        k, of_sample = len(to_scores), (self._sample,)
        for name, final in zip(steps.to_write(*steps.pending), steps.final, strict=False):
            attributes = {"whitened": self._model.whiten} if final == "scores" else {}
            self._outputs.create_tiled(name, self._plan, of_sample, DOUBLE, k, component_axis=1, attributes=attributes)
        stage = Stage(
            name=steps.sweep,
            task=scores_span,
            work=Sweep(self._plan, self._outputs, steps.to_write(*steps.pending), steps.between),
            shared=(to_scores, to_alpha),
            empty=np.zeros((k, k)),
            merge=operator.iadd,
            concurrency=attempt.concurrency,
            n_bytes=8 * k * self._plan.n_samples,
        )
        return self._stages.run(stage)

    # What they write.

    def _steps(
        self, solved: Solved, second: str, sweep: str, between: tuple[str, ...], final: tuple[str, ...]
    ) -> _Steps:
        """The names of the pass and its sweep: each solver that reaches them has its own, also in a resumed run."""
        if self._suffix:
            second, sweep = (f"{name} {self._suffix}" for name in (second, sweep))
        between, pending = (
            tuple(pending_name(name, step) for name in names) for step, names in ((second, between), (sweep, final))
        )
        renamed = Renamed(
            self._outputs,
            self._stages.ledger,
            self._stages.progress.say,
            (second, sweep, _looked_for(sweep)),
            self._data.n_spans,
            self._of_groups(*final),
        )
        finished = renamed.are_there(self._of_groups(*between))
        return _Steps(second, sweep, between, pending, final, renamed, finished)

    def _publish(self, steps: _Steps, written: tuple[str, ...]) -> None:
        """Give the written arrays their names in the result, and remove what the sweep has read."""
        if not steps.finished:
            steps.renamed.rename(self._of_groups(*written))
        for name in self._of_groups(*steps.between):  # also what a run that was stopped meanwhile has left of them
            self._outputs.remove(name)

    def _of_groups(self, *names: str) -> tuple[str, ...]:
        """The names of arrays of each group."""
        return tuple(of_group(name, group) for name in names for group in self._data.names)


def _looked_for(sweep: str) -> str:
    """The name of the sweep that looks for signs, before another one writes."""
    return f"{sweep}, looked for"
