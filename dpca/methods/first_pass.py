"""The first pass over the data: what a solver needs is added up, checked, and kept with a summary of it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Self

import numpy as np

from dpca.config.model import Model
from dpca.errors import DataError
from dpca.execution.stage import Stage, Together
from dpca.methods.dataset import Dataset
from dpca.methods.spans import first_span_of_features, first_span_of_samples, present_span
from dpca.methods.stages import Stages
from dpca.numerics.accumulators import Accumulator, nothing
from dpca.numerics.accumulators.border import Border, repeated
from dpca.numerics.accumulators.gram import GramAccumulator
from dpca.numerics.accumulators.grouped import BlockFactors, GroupedMatrices, OfCells, weigh
from dpca.numerics.accumulators.tallies import Counts, FeatureTally, Moments, Present, Standard
from dpca.numerics.certificate import check_products
from dpca.numerics.gram_matrix import GramMatrix, SummedFeatures
from dpca.numerics.panels import FeatureCounts, Means
from dpca.numerics.preview import Preview, leading_shares
from dpca.numerics.sketch import Sketch
from dpca.numerics.weights import mean_of
from dpca.planning.memory import reads_means
from dpca.planning.runplan import Attempt
from dpca.settings import INPUT, PREPROCESS
from dpca.store.arrays import GROUP_SCALE, REGRESSION
from dpca.store.ledger import Damaged
from dpca.store.outputs import Outputs
from dpca.types import F64


@dataclass(frozen=True, kw_only=True)
class Summary:
    """Record of the first pass in the ledger, beside its sum: all that the second pass needs, except the eigensolve."""

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
    factors: BlockFactors = field(default_factory=lambda: BlockFactors(np.ones(1)))
    """Factors of the features of each input."""
    divided: bool = False
    """Whether entries of K were divided by other numbers of features than the one of all: some pair of samples lacks some."""


@dataclass(frozen=True, kw_only=True)
class Summed:
    """The result of the first pass."""

    attempt: Attempt
    summary: Summary
    accumulator: Accumulator | None
    """The sum; None where it is not needed any more, and in a process that must not hold it."""
    groups: tuple[GramMatrix, ...] = ()
    """K_g of each named group of several, scaled as in the sum; none where there is one group, or no sum."""
    folds: tuple[F64, ...] = ()
    """K_f of each fold, or R_f; none where none was asked for, or there is no sum."""
    gram: GramMatrix | None
    """The sum as a Gram matrix, where samples are kept."""
    fill: Means | None
    """Where features are kept: what replaced missing values; None where no value may be missing."""

    def without_matrix(self) -> Self:
        """This result without the matrix of the sum."""
        return replace(self, accumulator=None, groups=(), folds=(), gram=None)


class FirstPass:
    """The first pass by each of the solvers that a run tries."""

    def __init__(self, stages: Stages, data: Dataset, model: Model, outputs: Outputs, together: int = 1) -> None:
        self._stages, self._data, self._model, self._outputs = stages, data, model, outputs
        self._rules, self._together = model.rules, together
        self._columns = data.random_columns(model.rules)
        self._shares = data.shares
        """Share of each sample in the means, (n_samples,); None where they are equal."""
        self._weights = None if data.keeps_samples else data.weights_of_all()
        """Weights of kept features, (n_features,)."""

    def present(self, attempt: Attempt) -> Present | None:
        """Means of the values that are not missing, by a pass of its own; None where no value may be missing."""
        data = self._data
        pairs = zip(data.plans, data.groups, strict=True)
        if not any(reads_means(plan, self._model, group.layout) for plan, group in pairs):
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
        """
        fill = None if present is None else present.means
        if (summary := self._kept(attempt)) is not None:
            return Summed(attempt=attempt, summary=summary, accumulator=None, gram=None, fill=fill)
        sums = self._added_up(attempt, present, written)
        if sums.counts.n_missing == self._data.n_values:
            raise _nothing_present(self._data)
        if self._data.keeps_samples:
            accumulator, summary = self._over_samples(sums, attempt)
        else:
            (accumulator,) = sums.sums
            summary = self._over_features(accumulator, attempt, present)
        if self._stages.ledger is not None:
            self._stages.ledger.once(_name_of_summary(attempt), lambda: summary, Summary())
        return Summed(
            attempt=attempt,
            summary=summary,
            accumulator=accumulator,
            groups=self._of_groups(sums, attempt, summary),
            folds=tuple(one.matrix for one in sums.for_validation),
            gram=self._gram(accumulator, attempt, summary),
            fill=fill,
        )

    def _added_up(self, attempt: Attempt, present: Present | None, written: bool) -> GroupedMatrices:
        """The sum over all spans, of each group."""
        data, samples, n_known = self._data, self._data.keeps_samples, self._model.n_known(attempt.rung)
        writes = self._to_write if samples and not written else ()
        begin = partial(nothing, attempt.rung.solver, data.plan, self._rules, self._columns, n_known)
        start = partial(GroupedMatrices.empty, len(data.names_of_sums), data.n_folds, begin)
        empty = start()
        stage = Stage(
            name=attempt.rung.name,
            task=first_span_of_features if samples else first_span_of_samples,
            work=data.work(self._rules, attempt.rung, outputs=self._outputs, writes=writes, n_known=n_known),
            shared=() if samples else (None if present is None else present.means,),
            empty=empty,
            merge=GroupedMatrices.merge,
            like=of_span(empty),
            preview=partial(self._preview, present),
            together=None if self._together == 1 else Together(self._together, start, GroupedMatrices.join, of_span),
            concurrency=attempt.concurrency,
            n_bytes=data.n_bytes,
        )
        sums = self._stages.read(stage, lambda sums: sums.counts)
        return self._bordered(sums) if n_known else sums

    @property
    def _to_write(self) -> tuple[str, ...]:
        """Arrays that the pass writes of features that stream by."""
        writes = self._rules.finds(self._data.weighted)
        if not writes or self._data.regression is None:
            return writes
        return (*writes, REGRESSION, *((GROUP_SCALE,) if self._rules.by_group else ()))

    def _bordered(self, sums: GroupedMatrices) -> GroupedMatrices:
        """The matrices of all samples, with the products that were known."""
        known = self._model.known
        assert known is not None
        tallies = [one.tally for one in sums.sums if isinstance(one.tally, FeatureTally)]
        if not known.repeats and (same := repeated(known.n_samples, tallies)) is not None:
            new, old = same
            raise DataError(
                f"{self._data.name}: new sample {new - known.n_samples} has the values of sample {old}, which is already in",
                "Leave it out; or, if samples may be alike, add --resume --allow-repeats: the first pass is not read again.",
            )
        borders = [one for one in sums.sums if isinstance(one, Border)]
        return GroupedMatrices(
            tuple(
                border.whole(partial(known.rows, number), self._rules.center) for number, border in enumerate(borders)
            )
        )

    def _over_samples(self, sums: GroupedMatrices, attempt: Attempt) -> tuple[Accumulator, Summary]:
        """The sum over the groups, and its summary; the sums are centred, weighted and scaled in place."""
        rules, data, weighted = self._rules, self._data, self._data.sample_weights
        difference = max(self._confirmed(one, attempt) for one in sums.every)
        features = self._left_out(sums)
        for one in sums.every:
            if rules.center:
                one.recenter(self._shares)
                one.tally.sketch -= mean_of(one.tally.sketch, self._shares)
            if weighted is not None:
                one.scale(weighted.roots)
        divided = rules.missing == "pairwise" and any(
            isinstance(one.tally, FeatureTally) and one.tally.absent.any() for one in sums.sums
        )
        if divided:
            self._divide(sums, features)
        factors = BlockFactors(np.ones(len(data.groups)))
        if self._model.block_scaling != "none":
            factors = BlockFactors.of(
                sums.sums,
                self._model.block_scaling,
                data.divisor(rules.ddof),
                [self._squares(one) for one in sums.sums],
                [self._sketch(one) for one in sums.sums],
            )
            for one, factor in zip(sums.sums, factors.values, strict=True):
                weigh(one, float(factor))
        total = sums.total()
        sketch = self._sketch(total)
        if isinstance(total, GramAccumulator) and divided:
            total.semidefinite = False
        summary = Summary(
            exact=total.exact,
            counts=total.tally.counts,
            squares=self._squares(total),
            difference=difference,
            features=features,
            sketch=sketch,
            product=self._image(total, sketch),
            factors=factors,
            divided=divided,
        )
        return total, summary

    def _image(self, one: Accumulator, sketch: Sketch) -> F64:
        """The product of a sum with the columns of the sketch."""
        return one.times(sketch.columns)

    def _sketch(self, one: Accumulator) -> Sketch:
        """The sketch of a sum over samples, weighted as they are."""
        assert isinstance(one.tally, FeatureTally)
        sketch, weighted = Sketch(self._columns, one.tally.sketch, one.tally.off), self._data.sample_weights
        return sketch if weighted is None else sketch.weighted(weighted.roots)

    def _squares(self, one: Accumulator) -> float:
        """The sum of squares of X_c of a sum over samples, added up without products, weighted as they are."""
        tally, weighted = one.tally, self._data.sample_weights
        return tally.total if weighted is None else float(tally.squares @ weighted.values)

    def _confirmed(self, one: Accumulator, attempt: Attempt) -> float:
        """The relative difference between the squares of a sum from products and without; 0 everywhere if nothing varies."""
        tally, over_samples = one.tally, self._data.keeps_samples
        if not tally.varies:  # all samples are equal: what centring leaves is rounding
            for products in (one.matrix, tally.sketch, tally.squares):
                products[...] = 0.0
        compared = one.compared(self._rules.center and over_samples, self._shares, self._columns)
        return check_products(*compared, attempt.rung.dtype)

    def _left_out(self, sums: GroupedMatrices) -> FeatureCounts:
        """The features that are constant or left out, in all groups."""
        features = FeatureCounts()
        for one in sums.sums:
            assert isinstance(one.tally, FeatureTally)
            features.merge(one.tally.features)
        self._check_left(features)
        return features

    def _check_left(self, features: FeatureCounts) -> None:
        """Refuse data of which nothing is left, and gaps beside land."""
        if self._rules.missing == "land" and features.incomplete:
            raise _gaps(self._data, features)
        if features.left_out == self._data.n_features:
            raise _nothing_left(self._data, features)

    def _over_features(self, accumulator: Accumulator, attempt: Attempt, present: Present | None) -> Summary:
        """The summary of a sum over samples, which is scaled in place."""
        moments = accumulator.tally
        assert isinstance(moments, Moments)
        difference = self._confirmed(accumulator, attempt)
        sketch, standard = Sketch(self._columns, moments.sketch), self._standard(moments, present)
        nothing = standard.about.factor == 0
        if nothing.any():  # the sketch is of all features; errors in those without a weight stay in it
            sketch.product[...] -= accumulator.times(np.where(nothing[:, None], sketch.columns, 0.0))
        by_products = accumulator.squares(False)
        squares = self._scaled(accumulator, by_products, moments, standard, attempt)
        if (standard.about.factor != 1).any():
            sketch = sketch.scaled(standard.about.factor)
        self._check_left(standard.features)
        if present is not None:
            moments.counts.n_filled = int((self._data.plan.n_samples - present.count)[~nothing].sum())
        return Summary(
            exact=accumulator.exact,
            counts=moments.counts,
            squares=squares,
            difference=difference,
            features=standard.features,
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
        data = self._data
        if not data.keeps_samples:
            return None
        features = SummedFeatures(data.n_features, summary.features, data.names)
        pairs = self._rules.missing == "pairwise"
        return _gram_of(accumulator, attempt, summary, features, summary.sketch, summary.counts, pairs)

    def _of_groups(self, sums: GroupedMatrices, attempt: Attempt, summary: Summary) -> tuple[GramMatrix, ...]:
        """The sums of several named groups as Gram matrices."""
        found = []
        for one, size in zip(sums.named, self._data.sizes_of_sums[: len(sums.named)], strict=True):
            tally = one.tally
            assert isinstance(tally, FeatureTally)
            features = SummedFeatures(size, tally.features)
            pairs = self._rules.missing == "pairwise"
            found.append(_gram_of(one, attempt, summary, features, self._sketch(one), tally.counts, pairs))
        return tuple(found)

    def _divide(self, sums: GroupedMatrices, features: FeatureCounts) -> None:
        """K_g times d over the number of features that both samples have, of all groups, in place.

        The sketches follow: they measured errors of the products, which are multiplied by d over that number, too. The
        largest of these factors stands for all.
        """
        used, shared = self._data.n_features - features.uncounted, None
        for one in sums.sums:  # folds beside them are of the same features
            assert isinstance(one.tally, FeatureTally)
            of_group = one.tally.shared(0)
            shared = of_group if shared is None else shared + of_group
        assert shared is not None
        shared += used
        empty = np.flatnonzero(np.diagonal(shared) <= 0)
        if empty.size:
            called = [self._data.sample(int(one)) for one in empty[:5]] + ["..."] * (empty.size > 5)
            raise DataError(
                f"{self._data.name}: {', '.join(called)}: without any value in the {used:,} features that are used ({empty.size} of "
                f"{self._data.n_samples:,} samples)",
                f"Leave such samples out ({INPUT.samples}); with {PREPROCESS.missing.at('mean')} they would lie at the mean of all.",
                key="preprocess.missing",
            )
        if not shared.all():
            first, other = (int(index) for index in np.unravel_index(int(np.argmin(shared)), shared.shape))
            raise DataError(
                f"{self._data.name}: {self._data.sample(first)} and {self._data.sample(other)} have no feature in common, so their product is unknown",
                f"Leave one of them out, or set {PREPROCESS.missing.at('mean')}.",
                key="preprocess.missing",
            )
        for one in sums.every:
            one.tally.squares *= used / np.diagonal(shared)
            one.tally.sketch -= one.times(self._columns)
            one.tally.sketch *= used / float(shared.min())
            one.matrix *= used / shared
            one.tally.sketch += one.times(self._columns)

    def _standard(self, moments: Moments, present: Present | None) -> Standard:
        """Means and divisors of kept features."""
        return Standard.of(moments, self._rules, present, self._weights)

    def _kept(self, attempt: Attempt) -> Summary | None:
        """The summary in the ledger, for a process that must not hold the sum; None for others, or if there is none yet."""
        ledger = self._stages.ledger
        if self._stages.runner.executor.adds_up or ledger is None or self._model.kernels:
            return None
        if not ledger.complete(attempt.rung.name, self._data.n_spans):
            return None
        checkpoint = ledger.checkpoint(_name_of_summary(attempt))
        try:
            return checkpoint.load(0, Summary()) if checkpoint.has(0) else None
        except Damaged:  # the sum gives it again
            return None

    def _preview(self, present: Present | None, sums: GroupedMatrices, spans: int) -> Preview:
        """The leading eigenvalues of what has been added up so far; none where groups are scaled, or known products added, at the end."""
        unfinished = isinstance(sums.sums[0], Border)
        if unfinished or self._model.block_scaling != "none":
            return Preview(spans, self._data.n_spans, ())
        rules, tally, factors = self._rules, sums.sums[0].tally, None
        if isinstance(tally, Moments):
            factors = self._standard(tally, present).about.factor
            factors = None if (factors == 1).all() else factors
        shares = leading_shares(sums, rules.center and self._data.keeps_samples, factors)
        return Preview(spans, self._data.n_spans, shares)


def of_span(empty: GroupedMatrices) -> OfCells:
    """A value of the types that a span gives."""
    one = np.zeros(1, np.int64)
    return OfCells(one, one, empty.sums[:1])


def _gram_of(
    one: Accumulator,
    attempt: Attempt,
    summary: Summary,
    features: SummedFeatures,
    sketch: Sketch,
    counts: Counts,
    pairs: bool,
) -> GramMatrix:
    tally = one.tally
    assert isinstance(tally, FeatureTally)
    return GramMatrix(
        kept=one.matrix,
        mean_product=tally.mean_product,
        mean_norm2=tally.mean_norm2,
        norms2=tally.squares,
        features=features,
        rung=attempt.rung,
        exact=summary.exact,
        difference=summary.difference,
        sketch=sketch,
        counts=counts,
        absent=tally.absent if pairs else None,
    )


def _name_of_summary(attempt: Attempt) -> str:
    """Name of the checkpoint of a summary."""
    return f"summary of {attempt.rung.name}"


def _nothing_left(data: Dataset, features: FeatureCounts) -> DataError:
    """The error for data of which preprocessing leaves nothing."""
    reasons = {
        f"by {PREPROCESS.filters} (mask, chromosomes, variants, exclude, min_distance)": features.masked,
        "without any value": features.empty,
        "with more missing values than allowed": features.incomplete,
        f"with less variance than {PREPROCESS.filters.min_variance}": features.steady,
        "of which all have the same genotype": features.monomorphic,
        f"with a minor allele rarer than {PREPROCESS.filters.min_minor_allele_frequency}": features.rare,
    }
    counted = ", ".join(f"{count:,} {reason}" for reason, count in reasons.items() if count)
    return DataError(
        f"{data.name}: all {data.n_features:,} features are left out: {counted}",
        f"Loosen the filters, or fill missing values with {PREPROCESS.missing.at('mean')}.",
        key="preprocess.filters",
    )


def _gaps(data: Dataset, features: FeatureCounts) -> DataError:
    """The error for missing values of features that have others."""
    return DataError(
        f"{data.name}: {features.incomplete:,} of {data.n_features:,} features miss some of their values, and {PREPROCESS.missing.at('land')} leaves out "
        f"those alone that miss all ({features.empty:,})",
        f"{PREPROCESS.missing.set_to('mean')} to fill them in, or {PREPROCESS.missing.at('drop')} to leave these features out, too.",
        key="preprocess.missing",
    )


def _nothing_present(data: Dataset) -> DataError:
    """The error for data without any value."""
    return DataError(
        f"{data.name}: all {data.n_values:,} values are missing: there is nothing to analyse",
        f"Look at the file, and at {INPUT.missing_values}.",
    )
