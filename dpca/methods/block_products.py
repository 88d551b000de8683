"""The passes of block Krylov over the data: the first, which also finds means, scales and the sketch; and later ones, which only multiply."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from dpca.execution.stage import Stage, Work
from dpca.methods.dataset import Dataset
from dpca.methods.first_pass import FirstPass, Summary, of_span
from dpca.methods.spans import (
    first_product_of_features,
    first_product_of_samples,
    product_of_features,
    product_of_samples,
    product_with,
)
from dpca.methods.stages import Stages
from dpca.numerics import block_krylov
from dpca.numerics.accumulators import Accumulator
from dpca.numerics.accumulators.block_product import BlockProduct, Product
from dpca.numerics.accumulators.grouped import GroupedMatrices
from dpca.numerics.accumulators.tallies import Moments, Present
from dpca.numerics.certificate import check_products
from dpca.numerics.gram_matrix import GramMatrix
from dpca.numerics.panels import Means, Rules
from dpca.numerics.preview import COMPONENTS, Preview
from dpca.numerics.sketch import Sketch
from dpca.numerics.weights import mean_of
from dpca.planning.runplan import Attempt
from dpca.store.outputs import Outputs
from dpca.types import F64

Once = Callable[[str, Callable[[], F64], F64], F64]
SHUFFLED = 26
"""Seed of the order in which windows go over the spans."""


@dataclass(frozen=True)
class Some(Work):
    """Some parts of a work, in an order of their own."""

    work: Work
    numbers: tuple[int, ...]
    writes: tuple[str, ...] = ()

    @property
    def read_seconds(self) -> float:
        return self.work.read_seconds

    @property
    def place(self) -> str | None:
        return self.work.place

    @property
    def n_parts(self) -> int:
        return len(self.numbers)

    def part(self, number: int) -> tuple[Work, int]:
        return self.work.part(self.numbers[number])

    def inputs(self, number: int) -> Any:
        return self.work.inputs(self.numbers[number])

    def damage(self, number: int) -> str | None:
        return self.work.damage(self.numbers[number])


def windows(n_spans: int) -> Iterator[tuple[int, ...]]:
    """The spans in a random order, which is the same at every call, in windows of 1, 1, 2, 4 ... of them."""
    order = np.random.default_rng([n_spans, SHUFFLED]).permutation(n_spans).tolist()
    start, size = 0, 1
    while start < n_spans:
        # The last window takes what would be less than half of one.
        stop = start + size if n_spans - start - size >= size else n_spans
        yield tuple(order[start:stop])
        start, size = stop, max(1, stop)


class FirstProduct(FirstPass):
    """The first pass of block Krylov, whose sum is K Q; where features are kept and scaled, the moments alone, with no columns in Q.

    Each window has a block of its own, so that after windows there is no product of one block: `block` is then what the next pass begins with.
    """

    def begin(self, block: F64, roots: F64 | None, once: Once, *, windowed: bool) -> None:
        """Choose what to multiply with.

        Parameters
        ----------
        block : Q, (m, l), orthonormal
        roots : square roots of weights of samples, (n_samples,); None for none
        once : called with a name, a function, and a value of the types that it returns: what is computed in memory, or its value in the ledger
        windowed : whether the block is improved window by window
        """
        self._block, self._roots, self._once, self._windowed = block, roots, once, windowed
        self._compared = 0.0

    @property
    def block(self) -> F64:
        """The block, as windows have left it."""
        return self._block

    def _added_up(self, attempt: Attempt, present: Present | None, written: bool) -> GroupedMatrices:
        if not self._windowed:
            return self._multiplied(attempt, present, self._block, attempt.rung.name, None)
        total: GroupedMatrices | None = None
        of_windows = list(windows(self._data.n_spans))
        for number, spans in enumerate(of_windows):
            name = f"{attempt.rung.name}, window {number + 1} of {len(of_windows)}"
            last = number + 1 == len(of_windows)
            sums = self._multiplied(attempt, present, self._block, name, spans, passes=int(last))
            product = sum(one.matrix for one in sums.sums)
            self._compared = max([self._compared, *(self._differs(one, attempt) for one in sums.sums)])
            improve = partial(self._improved, np.asarray(product))
            self._block = self._once(f"{attempt.rung.name}, block after window {number + 1}", improve, self._block)
            total = sums if total is None else total.join(sums)
        assert total is not None
        return total

    def _improved(self, product: F64) -> F64:
        """An orthonormal basis of the product of a window; the block before where it is 0."""
        product = about_mean(product, self._data, self._rules)
        if self._roots is not None:
            product = product * self._roots[:, None]
        # The strongest directions first.
        return np.asarray(np.linalg.svd(product, full_matrices=False)[0], np.float64) if product.any() else self._block

    def _multiplied(
        self,
        attempt: Attempt,
        present: Present | None,
        block: F64,
        name: str,
        spans: tuple[int, ...] | None,
        passes: int = 1,
    ) -> GroupedMatrices:
        """The product over all spans, or some, of each group; `passes` as of `Stages.read`."""
        data, samples = self._data, self._data.keeps_samples
        writes = self._to_write if samples else ()
        work: Work = data.work(self._rules, attempt.rung, outputs=self._outputs, writes=writes)
        if spans is not None:
            work = Some(work, spans, work.writes)
        own = block if self._roots is None else block * self._roots[:, None]
        begin = partial(product_with, own, data.plan, self._rules, self._columns)
        empty = GroupedMatrices.empty(len(data.names_of_sums), 0, begin)
        means = None if present is None else present.means
        stage = Stage(
            name=name,
            task=first_product_of_features if samples else first_product_of_samples,
            work=work,
            shared=(own,) if samples else (means, own),
            empty=empty,
            merge=GroupedMatrices.merge,
            like=of_span(empty),
            preview=partial(self._so_far, own, work.n_parts),
            of_parts=data.n_spans,
            concurrency=attempt.concurrency,
            n_bytes=data.n_bytes if spans is None else data.n_bytes * len(spans) // data.n_spans,
        )
        return self._stages.read(stage, lambda sums: sums.counts, passes)

    def _so_far(self, block: F64, n_spans: int, sums: GroupedMatrices, spans: int) -> Preview:
        total = sum(one.tally.total for one in sums.sums)
        product = about_mean(np.asarray(sum(one.matrix for one in sums.sums)), self._data, self._rules)
        return Preview(spans, n_spans, leading_shares(block, product, total))

    def _differs(self, one: Accumulator, attempt: Attempt) -> float:
        if not one.matrix.shape[1] or not one.tally.varies:
            return 0.0
        over_samples = self._rules.center and self._data.keeps_samples
        return check_products(*one.compared(over_samples, self._shares, self._columns), attempt.rung.dtype)

    def _confirmed(self, one: Accumulator, attempt: Attempt) -> float:
        tally = one.tally
        if not tally.varies:  # all samples are equal: what centring leaves is rounding
            for products in (one.matrix, tally.sketch, tally.squares):
                products[...] = 0.0
        return self._compared if self._windowed else self._differs(one, attempt)

    def _image(self, one: Accumulator, sketch: Sketch) -> F64:
        return np.zeros((len(sketch.columns), 0))

    def _over_features(self, accumulator: Accumulator, attempt: Attempt, present: Present | None) -> Summary:
        moments = accumulator.tally
        assert isinstance(moments, Moments)
        difference, standard = self._confirmed(accumulator, attempt), self._standard(moments, present)
        self._check_left(standard.features)
        factors = standard.about.factor
        squares = moments.squares if moments.centered else moments.squares + moments.count * moments.mean**2
        return Summary(
            exact=False,
            counts=moments.counts,
            squares=float((squares * factors**2).sum()),
            difference=difference,
            features=standard.features,
            sketch=Sketch(self._columns, moments.sketch),
            product=np.zeros((len(factors), 0)),
            standard=standard,
        )

    def _of_groups(self, sums: GroupedMatrices, attempt: Attempt, summary: Summary) -> tuple[GramMatrix, ...]:
        return ()

    def _gram(self, accumulator: Accumulator, attempt: Attempt, summary: Summary) -> None:
        return None


def product_of(accumulator: Accumulator | None) -> F64 | None:
    """K Q of a first pass; None in a process that does not have the sum."""
    if accumulator is None:
        return None
    assert isinstance(accumulator, BlockProduct)
    return accumulator.matrix


class LaterProducts:
    """The passes after the first.

    Parameters
    ----------
    stages, data, rules, outputs : of the run; `outputs` has the means and scales of streamed features
    summary : of the first pass
    fill : where features are kept, what replaces missing values; None where none may be missing
    """

    def __init__(
        self, stages: Stages, data: Dataset, rules: Rules, outputs: Outputs, summary: Summary, fill: Means | None
    ) -> None:
        self._stages, self._data, self._rules, self._outputs = stages, data, rules, outputs
        self.summary, self._fill = summary, fill
        self._roots = None if data.sample_weights is None else data.sample_weights.roots[:, None]

    def multiply(self, block: F64, name: str, attempt: Attempt, *, sketched: bool = False) -> Product:
        """K Q, by one read of the data.

        Parameters
        ----------
        block : Q, (m, l)
        name : of the stage
        sketched : whether the sketch is added up, too
        """
        data, samples, dtype = self._data, self._data.keeps_samples, attempt.rung.dtype
        own = block if self._roots is None else block * self._roots
        columns = data.random_columns(self._rules).shape[1] if sketched else 0
        shared: tuple[Any, ...] = (own.astype(dtype),)
        if not samples:
            shared = (own, self._fill, self.summary.standard.about, sketched)
        stage = Stage(
            name=name,
            task=product_of_features if samples else product_of_samples,
            work=data.work(self._rules, attempt.rung, outputs=self._outputs),
            shared=shared,
            empty=Product.empty(len(block), block.shape[1], columns),
            merge=Product.merge,
            preview=partial(self._so_far, own),
            concurrency=attempt.concurrency,
            n_bytes=data.n_bytes,
        )
        found: Product = self._stages.read(stage, lambda product: product.counts)
        if self._roots is not None:
            found.matrix *= self._roots
        return found

    def _so_far(self, block: F64, product: Product, spans: int) -> Preview:
        total = self.summary.squares * spans / self._data.n_spans
        matrix = about_mean(product.matrix, self._data, self._rules)
        return Preview(spans, self._data.n_spans, leading_shares(block, matrix, total))


def about_mean(product: F64, data: Dataset, rules: Rules) -> F64:
    """K Q without the mean over samples that rounding leaves."""
    return product - mean_of(product, data.shares) if rules.center and data.keeps_samples else product


def leading_shares(block: F64, product: F64, total: float) -> tuple[float, ...]:
    """Shares of the sum of squares that the leading components have at least, from K Q of the spans so far."""
    if not (total > 0 and block.shape[1] and np.isfinite(product).all()):
        return ()
    space = block_krylov.Space(len(block))
    columns = block_krylov.orthonormal(block)
    turn = np.linalg.lstsq(block, columns, rcond=None)[0]
    space.add(columns, product @ turn, chained=True)
    return tuple(min(1.0, float(value / total)) for value in space.halves[:COMPONENTS] if value > 0)


def with_sketch(summary: Summary, sketch: F64, columns: F64) -> Summary:
    """A summary with the sketch of scaled features."""
    return replace(summary, sketch=Sketch(columns, sketch))
