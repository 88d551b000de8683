"""Samples known by their products alone, and the operators that are applied to them, by dates and names."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial
from threading import Lock
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dpca.analyses.answers import ProductAccuracy
from dpca.analyses.axis import Axis, in_order
from dpca.analyses.features import FeatureMatrices
from dpca.derived.filters import Band, Butterworth, Lanczos, RunningMean
from dpca.derived.fits import Detrend, LessCovariates
from dpca.derived.gram import AnyProducts, Transformed, transformed
from dpca.derived.groups import Anomalies, Between, GroupMeans
from dpca.derived.operators import Center, Chain, Difference, Operator, Remainder, SelectRows, Weights
from dpca.derived.pca import UpTo
from dpca.errors import ConfigError, InputError
from dpca.numerics.panels import BlockScaling
from dpca.numerics.weights import Kind, SampleWeights
from dpca.settings import OUTPUT, PREPROCESS

By = str | NDArray[Any]
"""A part of the dates, or a label for each sample of the run."""
Number = int | UpTo | None
"""Number of components: exactly so many, at most so many, or all."""
_READING = Lock()


class Unread:
    """Products that are read when they are first needed, once for all samples that share them. They are not pickled."""

    def __init__(self, n: int, read: Callable[[], AnyProducts]) -> None:
        self.n, self._read = n, read
        self._products: AnyProducts | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return Unread, (self.n, self._read)

    @property
    def products(self) -> AnyProducts:
        """The products themselves."""
        with _READING:
            if self._products is None:
                self._products = self._read()
        return self._products


@dataclass(frozen=True, eq=False)
class Samples:
    """A X: the samples of a run, and the operators that were applied to them. Nothing is computed before it is needed."""

    source: AnyProducts | Unread
    """The products of the samples of the run."""
    known: ProductAccuracy
    """Accuracy by which their errors are judged."""
    chain: Chain
    axis: Axis
    """Axis of the rows."""
    origin: NDArray[np.intp] | None
    """The sample of the run after which each row is named, (rows,); None where rows are means of several."""
    told: tuple[str, ...] = ()
    """The operators in words."""
    weights: SampleWeights | None = None
    """The weights that the rows were multiplied by."""
    features: FeatureMatrices | None = None
    """The groups of features that the products are the sum of, where they are known."""
    beside: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    """Coordinates of the samples of the run that are no index, such as the subject or the member that each is of, (n,)."""
    by: tuple[By | None, ...] = ()
    """Grouping of each operator, where it is known for all samples: a part of the dates; labels or covariates of the run's samples."""

    @classmethod
    def of(
        cls,
        products: AnyProducts | Unread,
        axis: Axis,
        known: ProductAccuracy,
        features: FeatureMatrices | None = None,
        beside: Mapping[str, NDArray[Any]] = {},
    ) -> Samples:
        """The samples as the run had them."""
        return cls(products, known, Chain(products.n), axis, np.arange(products.n), features=features, beside=beside)

    def __getstate__(self) -> dict[str, Any]:
        """Without what was computed: the products of rows are as large as K."""
        return {one.name: getattr(self, one.name) for one in fields(self)}

    @property
    def products(self) -> AnyProducts:
        """Products of the samples of the run."""
        return self.source.products if isinstance(self.source, Unread) else self.source

    @property
    def n(self) -> int:
        """Number of rows."""
        return self.chain.n_out

    @cached_property
    def transformed(self) -> Transformed:
        """The products of the rows."""
        return transformed(self.products, self.chain)

    @property
    def centred(self) -> Samples:
        """These rows about their mean; a filter or a difference leaves one, though it removes that of the samples."""
        if self.of_pairs:
            return self
        last = self.chain.operators[-1] if self.chain.operators else None
        about_mean = isinstance(last, Weights | Between) or (isinstance(last, Remainder) and last.removes_mean)
        return self if about_mean else self._centred

    @property
    def of_pairs(self) -> bool:
        """Whether products are divided by the number of features that two samples have: they are those of no samples."""
        return self.features is not None and self.features.shared is not None

    @property
    def groups_of_features(self) -> FeatureMatrices:
        """The groups of features of the samples' results: two or more."""
        features = self.features
        if features is None or len(features.names) < 2:
            raise ConfigError(
                f"{self.known.name}: has one group of features, and none to hold against it",
                f"Run with {OUTPUT.groups} (labels or ranges), with a list of inputs, or give several results of the same samples.",
                key="features",
            )
        return features

    @cached_property
    def _centred(self) -> Samples:
        # Never these rows themselves: products in a cycle of references would stay for a while.
        return self.center()

    def of_features(
        self,
        only: Sequence[str] | None = None,
        leave_out: Sequence[str] = (),
        weights: Mapping[str, float] | None = None,
        scaling: BlockScaling = "none",
    ) -> Samples:
        """These rows in some groups of features, weighted against each other (`dpca.analyses.features.FeatureMatrices.chosen`)."""
        found = self.groups_of_features.chosen(only, leave_out, weights, scaling)
        return replace(self, source=Unread(self.chain.n_in, partial(_products_of, found)), features=found)

    # Operators.

    def _then(self, operator: Operator, words: str, by: By | None = None) -> Samples:
        if self.of_pairs:
            raise ConfigError(
                f"{self.known.name}: ran with missing: pairwise, which divides each entry of the Gram matrix by a count of its own: it is that of "
                f"no samples, and operators along samples ({words}) can't act on it",
                f"Run again with {PREPROCESS.missing.at('mean')}.",
                key="steps",
            )
        if self.weights is not None:
            raise ConfigError(
                f"weights of samples are followed by another operator ({words})", "Put weights last.", key="weights"
            )
        axis, origin = self.axis, self.origin
        if operator.n_out != operator.n_in or isinstance(operator, SelectRows):
            axis = axis if axis.values is None else axis.of(operator.rows(axis.values))
            origin = None if origin is None else operator.rows(origin)
        return replace(
            self, chain=self.chain.then(operator), axis=axis, origin=origin, told=(*self.told, words), by=(*self.by, by)
        )

    def center(self) -> Samples:
        """Less the mean of all rows."""
        return self._then(Center(self.n), "less the mean")

    def rows(self, numbers: NDArray[Any], words: str = "") -> Samples:
        """Some rows, by their numbers, in this order."""
        numbers = np.asarray(numbers)
        if numbers.dtype.kind == "b":
            if numbers.shape != (self.n,):
                raise ConfigError(
                    f"a mask of shape {numbers.shape} selects samples, but there are {self.n}",
                    "Give one value for each.",
                )
            numbers = np.flatnonzero(numbers)
        return self._then(SelectRows(numbers, self.n), words or f"{len(numbers):,} of {self.n:,} samples")

    def between(self, start: Any, stop: Any) -> Samples:
        """The rows from one label to another, both included; of a date as much as is written: "1980" is all of it."""
        words = f"{self.axis.name} from {_shown(start, 'the first')} to {_shown(stop, 'the last')}"
        labelled = self.axis.labelled
        if labelled is not None and labelled.moments is not None:
            with _selecting():
                low, high = (None if limit is None else labelled.moment(limit) for limit in (start, stop))
            chosen = [
                number
                for number, moment in enumerate(labelled.moments)
                if (low is None or moment[: len(low)] >= low) and (high is None or moment[: len(high)] <= high)
            ]
        elif self.axis.values is not None and self.axis.values.dtype.kind in "iuf":
            values = self.axis.values.astype(np.float64)
            low_number, high_number = (
                empty if limit is None else self._number(limit) for limit, empty in ((start, -np.inf), (stop, np.inf))
            )
            chosen = np.flatnonzero((values >= low_number) & (values <= high_number)).tolist()
        else:
            first = 0 if start is None else self.place(start)
            last = self.n - 1 if stop is None else self.place(stop)
            chosen = list(range(first, last + 1))
        if not chosen:
            names = self.axis.names
            raise ConfigError(
                f"no sample has {words}: they are {names[0]} to {names[-1]}" if names else f"no sample has {words}",
                "Select some that exist.",
                key="select",
            )
        return self.rows(np.array(chosen), words)

    def labelled(self, labels: Sequence[Any]) -> Samples:
        """The rows with these labels, in this order; of a date as much as only one row has."""
        return self.rows(np.array([self.place(label) for label in labels], np.intp), f"{len(labels):,} samples by name")

    def where(self, part: str, values: Sequence[Any]) -> Samples:
        """The rows whose dates have some values of a part: month 12, 1 and 2."""
        parts = self.axis.part(part)
        unknown = [value for value in values if value not in parts.tolist()]
        if unknown:
            raise ConfigError(
                f"no sample has {part} {unknown[0]}; there are {', '.join(map(str, in_order(parts)[0].tolist()))}",
                "Select some that exist.",
                key="select",
            )
        return self.rows(np.isin(parts, values), f"{part} {', '.join(map(str, values))}")

    def _number(self, label: Any) -> float:
        try:
            return float(label)
        except ValueError:
            raise ConfigError(
                f"{label!r} is no number, but {self.axis.name!r} of the samples is", "Give a number.", key="select"
            ) from None

    def place(self, label: Any) -> int:
        """The number of the one row with a label."""
        names, wanted = self.axis.names, str(label)
        with _selecting():
            places = [] if self.axis.labelled is None else self.axis.labelled.places(label)
        if len(places) == 1:
            return places[0]
        if places:
            raise ConfigError(
                f"{wanted!r} is the label of {len(places):,} samples, the first of them number {places[0]}",
                "Give more of the date, or numbers.",
                key="select",
            )
        near = difflib.get_close_matches(wanted, names, n=1)
        called = f" (they are called {', '.join(names[:5])} ...)" if names else ": they have no coordinate"
        raise ConfigError(
            f"no sample is called {wanted!r}{called}",
            f"Did you mean {near[0]!r}?" if near else "Give labels as they are there, or numbers from 0.",
            key="select",
        )

    def labels(self, by: By) -> tuple[NDArray[Any], str]:
        """A label for each row, and the name of what it tells: a part of the dates, or a coordinate of the samples."""
        if isinstance(by, str) and by == self.axis.name and self.axis.values is not None:
            return self.axis.values, by
        if isinstance(by, str) and by in self.beside:
            if self.origin is None:
                raise ConfigError(
                    f"samples are grouped by {by!r}, which is known of the samples of the run, but rows are means of several here",
                    "Group by it before.",
                    key="by",
                )
            return self.beside[by][self.origin], by
        if isinstance(by, str):
            return self.axis.part(by, (self.axis.name, *self.beside)), by.rpartition(".")[2]
        labels = np.asarray(by)
        if labels.shape == (self.chain.n_in,) and self.origin is not None:
            return labels[self.origin], "label"
        if labels.shape != (self.n,):
            raise ConfigError(
                f"there are labels of shape {labels.shape}, but {self.chain.n_in:,} samples and {self.n:,} rows of them here",
                "Give a label for each sample of the result.",
                key="by",
            )
        return labels, "label"

    def _of_all(self, by: By) -> By | None:
        """Labels or covariates of an operator, if they are known for all samples of the run."""
        return by if isinstance(by, str) or len(by) == self.chain.n_in else None

    def anomalies(self, by: By) -> Samples:
        """Less the mean of the samples of the same group: of the same month, or label."""
        labels, name = self.labels(by)
        words = f"less the mean of each {name.replace('_', ' ')}"
        return self._then(Anomalies(labels), words, self._of_all(by))

    def between_groups(self, by: By) -> Samples:
        """The mean of each sample's group, less the mean of all."""
        labels, name = self.labels(by)
        return self._then(Between(labels), f"the mean of each {name.replace('_', ' ')} in place of its samples")

    def means(self, by: By) -> Samples:
        """A row for each group, their means: of each year, of each label."""
        labels, name = self.labels(by)
        operator, words = GroupMeans(labels), f"means of each {name.replace('_', ' ')}"
        names, codes = in_order(labels)
        operator = GroupMeans(codes) if name == "season" else operator
        # A month of a year is a date, as are the samples.
        axis = self.axis.of(names) if name == self.axis.name else Axis(name, names)
        axis = self.axis.of_months(names.tolist()) if name == "year_month" else axis
        return replace(self._then(operator, words), axis=axis, origin=None)

    def detrend(self, degree: int = 1) -> Samples:
        """Less a polynomial in time."""
        words = f"less a polynomial of degree {degree} in {self.axis.name}"
        return self._then(Detrend(self.axis.times("detrending"), degree), words)

    def difference(self, lag: int = 1) -> Samples:
        """Less the row that is `lag` rows before."""
        return self._then(Difference(self.n, lag), f"differences of lag {lag}")

    def filter(
        self,
        kind: Literal["butterworth", "lanczos", "running_mean"],
        band: Band | None = None,
        order: int | None = None,
        window: int | None = None,
    ) -> Samples:
        """Frequencies within a band, in cycles per step; or a running mean.

        Parameters
        ----------
        band : lowest and highest frequency that pass, None where there is no limit; for butterworth and lanczos
        order : of butterworth; 4 if None
        window : number of weights; for lanczos, odd, and for running_mean
        """
        given = {"band": band, "order": order, "window": window}
        needed = {"butterworth": ("band",), "lanczos": ("band", "window"), "running_mean": ("window",)}.get(kind)
        if needed is None:
            raise ConfigError(
                f"filter is {kind!r}, but butterworth, lanczos or running_mean is allowed", "Choose one.", key="kind"
            )
        allowed = (*needed, *(["order"] if kind == "butterworth" else []))
        absent = [name for name in needed if given[name] is None]
        beyond = [name for name, value in given.items() if value is not None and name not in allowed]
        if absent or beyond:
            problem = f"needs {' and '.join(absent)}" if absent else f"has no {beyond[0]}"
            raise ConfigError(
                f"filter {kind} {problem}", f"Its settings are {', '.join(allowed)}.", key=(absent + beyond)[0]
            )
        clock = self.axis.clock(f"filter {kind}")
        words = f"{kind.replace('_', ' ')}" + (f" of {window} samples" if window else "")
        operator: Operator
        if kind == "running_mean":
            assert window is not None
            return self._then(RunningMean(clock.times, window), words)
        assert band is not None
        low, high = band
        words += f" from {_shown(low, '0')} to {_shown(high, 'the highest')} cycles per {clock.step}"
        if kind == "lanczos":
            assert window is not None
            operator = Lanczos(clock.times, band, window)
        else:
            operator = Butterworth(clock.times, band, 4 if order is None else order)
        return self._then(operator, words)

    def regress_out(self, covariates: NDArray[Any], intercept: bool = True, names: Sequence[str] = ()) -> Samples:
        """Less the least-squares fit of covariates, (samples,) or (samples, covariates), and of a constant."""
        given = np.asarray(covariates)
        if given.dtype.kind not in "biuf":
            raise ConfigError(
                f"covariates have the type {given.dtype}, but numbers are allowed",
                "Make a column of 0 and 1 of each category, as pandas.get_dummies does.",
                key="regress_out",
            )
        values = given.astype(np.float64)
        if len(values) == self.chain.n_in and self.origin is not None:
            values = values[self.origin]
        if len(values) != self.n:
            raise ConfigError(
                f"there are covariates of {len(values):,} samples, but {self.n:,} rows here",
                "Give a row for each sample of the result.",
                key="regress_out",
            )
        called = ", ".join(names) or ("covariates" if values.ndim > 1 else "a covariate")
        return self._then(LessCovariates(values, intercept), f"less the fit of {called}", self._of_all(given))

    def weighted(self, weights: NDArray[Any], kind: Kind = "frequency") -> Samples:
        """Weighted by the samples' weights, about their weighted mean."""
        values = np.asarray(weights, np.float64)
        if len(values) == self.chain.n_in and self.origin is not None:
            values = values[self.origin]
        if len(values) != self.n:
            raise ConfigError(
                f"there are {len(values):,} weights, but {self.n:,} rows here", "Give one a sample.", key="weights"
            )
        found = self._then(Weights(values), f"weighted ({kind})")
        return replace(found, weights=SampleWeights(values, kind))

    def divisor(self, ddof: int = 1) -> float:
        """The divisor of variances."""
        return self.n - ddof if self.weights is None else self.weights.divisor(ddof)


def _products_of(features: FeatureMatrices) -> AnyProducts:
    return features.products


@contextmanager
def _selecting() -> Iterator[None]:
    """Errors of a label as those of what selects it."""
    try:
        yield
    except InputError as cause:
        raise ConfigError(cause.marked_message, cause.marked_remedy, key="select") from cause


def _shown(limit: Any, empty: str) -> str:
    return empty if limit is None else f"{limit:g}" if isinstance(limit, float) else str(limit)
