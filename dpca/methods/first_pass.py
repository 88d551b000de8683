"""The first pass over the data: what a solver needs is added up, checked, and kept with a summary of it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Self

import numpy as np

from dpca.config.model import Model
from dpca.errors import DataError
from dpca.execution.stage import Stage
from dpca.methods.dataset import Dataset
from dpca.methods.passes import first_span_of_features, first_span_of_samples, present_span
from dpca.methods.stages import Stages
from dpca.numerics.accumulators import SOLVERS, Accumulator, tally_of
from dpca.numerics.accumulators.factors import F64
from dpca.numerics.accumulators.gram import Gram
from dpca.numerics.accumulators.tallies import Counts, FeatureTally, Moments, Present, Standard
from dpca.numerics.certificate import check_products
from dpca.numerics.gram_matrix import Features, GramMatrix
from dpca.numerics.panels import FeatureCounts, Means
from dpca.numerics.preview import Preview, leading_shares
from dpca.numerics.sketch import Sketch
from dpca.numerics.weights import mean_of
from dpca.planning.footprint import reads_means
from dpca.planning.runplan import Attempt
from dpca.store.ledger import Damaged
from dpca.store.outputs import Outputs


@dataclass(frozen=True, kw_only=True)
class Summary:
    """What the ledger keeps of the first pass beside its sum: all that the second pass needs, except the eigensolve."""

    exact: bool = False
    """Whether no product was rounded."""
    counts: Counts = field(default_factory=Counts)
    """Counts of what was met while the data were read."""
    squares: float = 0.0
    """Sum of squares of X_c, added up without products."""
    difference: float = 0.0
    """Relative difference between `squares` and the sum from products."""
    features: FeatureCounts = field(default_factory=FeatureCounts)
    sketch: Sketch = field(default_factory=lambda: Sketch(np.empty((0, 0)), np.empty((0, 0))))
    """Sketch of the matrix; where features are kept, scaled as they are."""
    product: F64 = field(default_factory=lambda: np.empty((0, 0)))
    """The matrix times the columns of the sketch, (m, t)."""
    standard: Standard = field(default_factory=Standard.nothing)
    """Where features are kept: their means and divisors; else of no features."""


@dataclass(frozen=True, kw_only=True)
class Summed:
    """The result of the first pass."""

    attempt: Attempt
    summary: Summary
    accumulator: Accumulator | None
    """The sum; None where it is not needed any more, and in a process that must not hold it."""
    gram: GramMatrix | None
    """The sum as a Gram matrix, where samples are kept."""
    fill: Means | None
    """Where features are kept: what replaced missing values; None where no value may be missing."""

    def without_matrix(self) -> Self:
        """The same result, without the matrix of the sum."""
        return replace(self, accumulator=None, gram=None)


class FirstPass:
    """The first pass by each of the solvers that a run tries."""

    def __init__(self, stages: Stages, data: Dataset, model: Model, outputs: Outputs) -> None:
        self._stages, self._data, self._model, self._outputs = stages, data, model, outputs
        self._rules = model.rules
        self._columns = data.random_columns(model.rules)
        self._shares = None if data.sample_weights is None else data.sample_weights.shares
        """Share of each sample in the means, (n_samples,); None where they are equal."""
        self._weights = None if data.keeps_samples else data.weights_of_all()
        """Weights of kept features, (n_features,)."""

    def present(self, attempt: Attempt) -> Present | None:
        """Means of the values that are not missing, by a pass of its own; None where no value may be missing."""
        data = self._data
        if not any(reads_means(group.plan, self._model, group.source.layout) for group in data.groups):
            return None
        stage = Stage(
            name="means",
            task=present_span,
            work=data.work(self._rules, attempt.rung),
            empty=Present.empty(data.n_kept),
            merge=Present.merge,
            concurrency=attempt.concurrency,
            n_bytes=data.n_bytes,
        )
        return self._stages.read(stage, lambda present: present.counts)

    def sum(self, attempt: Attempt, present: Present | None, *, written: bool = False) -> Summed:
        """Add up what a solver needs, and check it against sums without products.

        Parameters
        ----------
        present : what `present` returned
        written : whether an earlier solver has written means and scales

        Raises
        ------
        PrecisionError
            When the products lost the data.
        DataError
            When a value can't be used, or when there is none.
        """
        fill = None if present is None else present.means
        if (summary := self._kept(attempt)) is not None:
            return Summed(attempt=attempt, summary=summary, accumulator=None, gram=None, fill=fill)
        accumulator = self._added_up(attempt, present, written)
        summary = self._checked(accumulator, attempt, present)
        if self._stages.ledger is not None:
            self._stages.ledger.once(_name_of_summary(attempt), lambda: summary, Summary())
        gram = self._gram(accumulator, attempt, summary)
        return Summed(attempt=attempt, summary=summary, accumulator=accumulator, gram=gram, fill=fill)

    def _added_up(self, attempt: Attempt, present: Present | None, written: bool) -> Accumulator:
        """The sum over all spans."""
        solver, data, samples = SOLVERS[attempt.rung.solver], self._data, self._data.keeps_samples
        weighted = any(group.weights is not None for group in data.groups)
        writes = self._rules.finds(weighted) if samples and not written else ()
        stage = Stage(
            name=attempt.rung.name,
            task=first_span_of_features if samples else first_span_of_samples,
            work=data.work(self._rules, attempt.rung, outputs=self._outputs, writes=writes),
            shared=() if samples else (None if present is None else present.means,),
            empty=solver.empty(data.n_kept, tally_of(data.groups[0].plan, self._rules, self._columns)),
            merge=solver.merge,
            preview=partial(self._preview, present),
            concurrency=attempt.concurrency,
            n_bytes=data.n_bytes,
        )
        return self._stages.read(stage, lambda accumulator: accumulator.tally.counts)

    def _checked(self, accumulator: Accumulator, attempt: Attempt, present: Present | None) -> Summary:
        """The summary of a sum, which is centred and scaled in place."""
        rules, tally = self._rules, accumulator.tally
        samples = self._data.keeps_samples
        if tally.counts.n_missing == self._data.n_values:
            raise _nothing_present(self._data)
        by_products = accumulator.squares(rules.center and samples, self._shares)
        sketch = Sketch(self._columns, tally.sketch)
        if not tally.varies:  # all samples are equal: what centring leaves is rounding
            for sums in (accumulator.matrix, tally.sketch, tally.squares, by_products):
                sums[...] = 0.0
        difference = check_products(by_products.sum(keepdims=True), np.array([tally.total]), attempt.rung.dtype)
        standard = Standard.nothing()
        if isinstance(tally, Moments):
            standard = self._standard(tally, present)
            nothing = standard.about.factor == 0
            if nothing.any():  # the sketch is of all features; errors in those without a weight stay in it
                sketch.product[...] -= accumulator.times(np.where(nothing[:, None], sketch.columns, 0.0))
            squares, features = self._scaled(accumulator, by_products, tally, standard, attempt), standard.features
            if (standard.about.factor != 1).any():
                sketch = sketch.scaled(standard.about.factor)
        else:
            assert isinstance(tally, FeatureTally)
            squares, features = tally.total, tally.features
        if features.left_out == self._data.n_features:
            raise _nothing_left(self._data, features)
        if rules.center and samples:
            accumulator.recenter(self._shares)
            sketch.product[...] -= mean_of(sketch.product, self._shares)
        if self._data.sample_weights is not None:
            roots = self._data.sample_weights.roots
            accumulator.scale(roots)
            sketch = sketch.scaled(roots)
            squares = float(tally.squares @ self._data.sample_weights.values)
        if rules.missing == "pairwise" and isinstance(accumulator, Gram):
            self._divide(accumulator, sketch)
            squares = float(np.trace(accumulator.matrix))
        return Summary(
            exact=accumulator.exact,
            counts=tally.counts,
            squares=squares,
            difference=difference,
            features=features,
            sketch=sketch,
            product=accumulator.times(sketch.columns),
            standard=standard,
        )

    def _scaled(
        self, accumulator: Accumulator, by_products: F64, moments: Moments, standard: Standard, attempt: Attempt
    ) -> float:
        """Scale and weight the kept features; returns the sum of squares of X_c after that."""
        factors = standard.about.factor
        if (factors == 1).all():
            return moments.total
        squares = moments.squares if moments.centered else moments.squares + moments.count * moments.mean**2
        # Once scaled, a small feature counts as much as any other, so what products lost of it must be known.
        check_products(by_products[factors > 0], squares[factors > 0], attempt.rung.dtype)
        accumulator.scale(factors)
        return float((squares * factors**2).sum())

    def _gram(self, accumulator: Accumulator, attempt: Attempt, summary: Summary) -> GramMatrix | None:
        """The sum as a Gram matrix; None where it is over features."""
        data, tally = self._data, accumulator.tally
        if not isinstance(tally, FeatureTally):
            return None
        names = tuple(group.name for group in data.groups)
        return GramMatrix(
            kept=accumulator.matrix,
            mean_product=tally.mean_product,
            mean_norm2=tally.mean_norm2,
            norms2=tally.squares,
            features=Features(data.n_features, summary.features, names),
            rung=attempt.rung,
            exact=summary.exact,
            difference=summary.difference,
            sketch=summary.sketch,
            counts=summary.counts,
        )

    def _divide(self, accumulator: Gram, sketch: Sketch) -> None:
        """K times d over the number of features that both samples have, in place.

        The sketch follows: it measured errors of the products, which are multiplied by d over that number, too. The
        largest of these factors stands for all.
        """
        assert isinstance(accumulator.tally, FeatureTally)
        used = self._data.n_features - accumulator.tally.features.left_out
        shared = accumulator.tally.shared(used)
        if not shared.all():
            one, other = (int(index) for index in np.unravel_index(int(np.argmin(shared)), shared.shape))
            raise DataError(
                f"{self._data.name}: samples {one} and {other} have no feature in common, so their product is unknown",
                "Leave one of them out, or set preprocess.missing: mean.",
                key="preprocess.missing",
            )
        sketch.product[...] -= accumulator.times(sketch.columns)
        sketch.product[...] *= used / float(shared.min())
        accumulator.matrix *= used / shared
        sketch.product[...] += accumulator.times(sketch.columns)
        accumulator.semidefinite = False

    def _standard(self, moments: Moments, present: Present | None) -> Standard:
        """Means and divisors of kept features."""
        return Standard.of(moments, self._rules, present, self._weights)

    def _kept(self, attempt: Attempt) -> Summary | None:
        """The summary in the ledger, for a process that must not hold the sum; None for others, or if there is none yet."""
        ledger = self._stages.ledger
        if self._stages.runner.executor.adds_up or ledger is None or self._model.kernels:
            return None
        if not ledger.checkpoint(attempt.rung.name).complete(self._data.n_spans):
            return None
        checkpoint = ledger.checkpoint(_name_of_summary(attempt))
        try:
            return checkpoint.load(0, Summary()) if checkpoint.has(0) else None
        except Damaged:  # the sum gives it again
            return None

    def _preview(self, present: Present | None, accumulator: Accumulator, spans: int) -> Preview:
        """The leading eigenvalues of what has been added up so far."""
        rules, tally, factors = self._rules, accumulator.tally, None
        if isinstance(tally, Moments):
            factors = self._standard(tally, present).about.factor
            factors = None if (factors == 1).all() else factors
        shares = leading_shares(accumulator, rules.center and self._data.keeps_samples, factors)
        return Preview(spans, self._data.n_spans, shares)


def _name_of_summary(attempt: Attempt) -> str:
    """Name of the checkpoint of a summary."""
    return f"summary of {attempt.rung.name}"


def _nothing_left(data: Dataset, features: FeatureCounts) -> DataError:
    """The error for data of which preprocessing leaves nothing."""
    reasons = {
        "by preprocess.filters.mask": features.masked,
        "without any value": features.empty,
        "with more missing values than allowed": features.incomplete,
        "with less variance than preprocess.filters.min_variance": features.steady,
    }
    counted = ", ".join(f"{count:,} {reason}" for reason, count in reasons.items() if count)
    return DataError(
        f"{data.name}: all {data.n_features:,} features are left out: {counted}",
        "Loosen the filters, or fill missing values with preprocess.missing: mean.",
        key="preprocess.filters",
    )


def _nothing_present(data: Dataset) -> DataError:
    """The error for data without any value."""
    return DataError(
        f"{data.name}: all {data.n_values:,} values are missing: there is nothing to analyse",
        "Look at the file, and at input.missing_values.",
    )
