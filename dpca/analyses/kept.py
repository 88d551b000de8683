"""The samples of finished results, as their Gram matrices have them, and the data that they were read from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dpca.analyses.answers import Answer, ProductAccuracy
from dpca.analyses.axis import Axis
from dpca.analyses.features import FeatureMatrices
from dpca.analyses.maps import Backprojection, columns_of_maps, precisions
from dpca.analyses.samples import Samples, Unread
from dpca.derived.feature_groups import weighted_sum
from dpca.derived.gram import AnyProducts, Products, products_of
from dpca.errors import ConfigError, DataError, DpcaError, InputError
from dpca.methods.dataset import Dataset
from dpca.methods.decomposition import streamed
from dpca.methods.kept_gram import RecordedSource
from dpca.methods.record import changes_of
from dpca.methods.recorded import input_of
from dpca.methods.stages import Stages
from dpca.numerics.gram_matrix import GramMatrix
from dpca.numerics.panels import FeatureCounts, Rules
from dpca.numerics.weights import SampleWeights
from dpca.planning.maps import MapsJob
from dpca.planning.runplan import HeldArray, MapColumns, Scratch
from dpca.settings import OUTPUT, PREPROCESS
from dpca.sources.coordinate import Coordinate, difference
from dpca.sources.finding import PAIRING, Pairing, paired_by
from dpca.sources.groups import FeatureGroup, Groups
from dpca.store.arrays import Dims
from dpca.store.fitted import Fitted
from dpca.store.gram import SHARED, keeps_gram, no_matrix, read_gram, read_group, read_shared, rung_of
from dpca.store.meanings import common_unit
from dpca.store.outputs import Outputs
from dpca.store.results import Result
from dpca.types import F64
from dpca.units import NAME

Time = Literal["auto", "index"]


@dataclass(frozen=True)
class FittedPart:
    """A group of features of a result: where its data are, and what made X_c of them."""

    result: Result
    """With this group alone."""
    name: str
    """Empty where it is the only one of all results."""

    @property
    def fitted(self) -> Fitted:
        """Means, scales and weights."""
        mean, scale, weights = (self.result.arrays[self.result.named(name)] for name in ("mean", "scale", "weights"))
        return Fitted(mean, scale, weights, None, self.result.factor, self.result.regression)

    @property
    def unit(self) -> dict[str, Any]:
        """The attributes of its mean that say the unit of the data."""
        attributes = self.result.arrays[self.result.named("mean")].attributes
        return {"units": attributes["units"]} if "units" in attributes else {}

    @property
    def dims(self) -> Dims:
        """Names of its axes."""
        dims = self.result.dims
        plain = replace(dims, features=tuple(map(dims.plain, dims.features)), group="")
        if self.name and self.name == self.result.group:
            return dims  # of groups of one result, which may share axes
        return plain.of_features(self.name) if self.name else plain

    @property
    def coordinates(self) -> dict[str, Axis]:
        """Coordinates of its axes, where they have any."""
        pairs = zip(self.result.dims.features, self.dims.features, strict=True)
        found = {ours: self.result.coordinate(theirs) for theirs, ours in pairs}
        return {name: Axis.of_coordinate(name, one) for name, one in found.items() if one is not None}

    def open(self, data: Sequence[str] = ()) -> FeatureGroup:
        """Its data, unchanged since.

        Parameters
        ----------
        data : where they are now; none to read them where the result says that they are
        """
        result = self.result
        where = input_of(
            result, data, "Name it in the key `data` of the configuration, or leave maps out (components: false)."
        )
        try:
            source = where.open()
        except DpcaError as cause:
            if not (data or result.manifest["asked"]):
                raise DataError(
                    f"{result.name}: was fitted to values in the memory of a Python program, and components need these again",
                    "Pass them: dpca.open_gram(..., data=X). In dpca derive, set components: false: all else needs no data.",
                ) from cause
            raise DataError(
                f"{result.name}: maps need its data again, which can't be opened at {where.uri}: {cause.marked_message}",
                "Put them back, or leave maps out (components: false): all else needs no data.",
            ) from cause
        group = FeatureGroup(source, result.samples_axis, self.name)
        changes = changes_of(self._fingerprint, (replace(group, name=""),))
        if changes:
            raise DataError(
                f"{source.layout.name}: changed since {result.name} was made of it: {'; '.join(changes[:5])}",
                "Restore it, or run again; without maps (components: false) the kept Gram matrix is enough.",
            )
        return group

    @property
    def _fingerprint(self) -> dict[str, Any]:
        recorded: dict[str, Any] = self.result.manifest["fingerprint"]
        return recorded[self.result.group] if self.result.group else recorded


@dataclass(frozen=True)
class SourceResults:
    """Results of the same samples, whose features are beside each other."""

    results: tuple[Result, ...]
    parts: tuple[FittedPart, ...]
    prefixes: tuple[str, ...] = ("",)
    """Beginnings of the names of the features of each result; empty for the only one."""

    @classmethod
    def of(cls, results: Sequence[tuple[str, Result]], pair_by: Pairing = "moment") -> SourceResults:
        """The results, each with the name that its features get where there are several.

        Parameters
        ----------
        pair_by : how much of their dates samples have to share
        """
        found = tuple(result for _, result in results)
        for result in found:
            _check_usable(result, alone=len(found) == 1)
        _check_same_samples(found, pair_by)
        parts = [
            FittedPart(one, _joined(name if len(found) > 1 else "", one.group))
            for name, result in results
            for one in result.each
        ]
        names = [part.name for part in parts]
        double = next((name for name in names if names.count(name) > 1), None)
        wrong = double if double is not None else next((n for n in names if n and not NAME.fullmatch(n)), None)
        if wrong is not None:
            raise ConfigError(
                f"from: the features of {len(found)} results would be called {', '.join(names)}, but each needs a name of its own, of "
                "letters, digits, - and _",
                "Write from: {NAME: PATH, OTHER: PATH}.",
                key="from",
            )
        return cls(found, tuple(parts), tuple(name if len(found) > 1 else "" for name, _ in results))

    @property
    def name(self) -> str:
        """In errors."""
        return ", ".join(result.name for result in self.results)

    @property
    def first(self) -> Result:
        """The first of several results: its samples' coordinate counts."""
        return self.results[0]

    @property
    def n_bytes(self) -> int:
        """Bytes of all data, decoded."""
        return sum(int(part.result.input["decoded_bytes"]) for part in self.parts)

    @property
    def rules(self) -> Rules:
        """Rules of the run: whether it centred, and what it did with missing values."""
        return self.first.rules

    @property
    def working_dtype(self) -> np.dtype[Any]:
        """The widest precision of the runs' products, in which components were stored."""
        return max(
            (np.dtype(result.manifest["numerics"]["working_dtype"]) for result in self.results),
            key=lambda d: d.itemsize,
        )

    def axis(self, time: Time = "auto") -> Axis:
        """The samples' coordinate; `index` numbers them instead."""
        name, n = self.first.dims.sample, self.first.n_samples
        if time == "index":
            return Axis(name, np.arange(n), {"units": "sample"})
        coordinate = self.first.coordinate(name)
        return Axis(name, None) if coordinate is None else Axis.of_coordinate(name, coordinate)

    def samples(self, time: Time = "auto") -> Samples:
        """The samples as the runs had them; the Gram matrices are read when they are first needed."""
        unread = Unread(self.first.n_samples, self.products)
        return Samples.of(unread, self.axis(time), self.known, self.features, self._beside)

    @property
    def _beside(self) -> dict[str, NDArray[Any]]:
        """The coordinates of the samples that are no index."""
        found = ((dims, one) for dims, one in self.first.auxiliaries() if dims == (self.first.dims.sample,))
        return {one.name: np.asarray(Axis.of_coordinate(one.name, one).values) for _, one in found}

    @property
    def sizes(self) -> tuple[str, int]:
        """Sizes that the memory of analyses depends on: the solver of the products, and the number of groups of features."""
        return self.known.solver, len(self.features.names)

    @property
    def features(self) -> FeatureMatrices:
        """The groups of features that a Gram matrix is kept of each: of each result, or of each of its inputs or labels."""
        names, parts, first = list[str](), list[int](), 0
        for prefix, result in zip(self.prefixes, self.results, strict=True):
            own, inputs = result.names_of_sums, result.groups
            names += [_joined(prefix, name) for name in own]
            parts += [first + (number if len(inputs) > 1 else 0) for number in range(len(own))]
            first += len(inputs)
        divisor = float(self.first.n_samples - int(self.first.manifest["config"]["model"]["ddof"]))
        return FeatureMatrices(tuple(names), tuple(parts), self.group, divisor, self.shared if self.pairwise else None)

    @property
    def pairwise(self) -> bool:
        """Whether products were divided by the number of features that two samples have."""
        return any(result.rules.missing == "pairwise" for result in self.results)

    def shared(self, name: str) -> tuple[F64, int]:
        """Number of features of a group that both of two samples have, (n, n), and how many count there."""
        (result,) = self.results
        return read_shared(result, result.names_of_sums.index(name))

    def group(self, name: str) -> AnyProducts:
        """The products of the samples in one group of features; reads its Gram matrix."""
        for prefix, result in zip(self.prefixes, self.results, strict=True):
            for number, own in enumerate(result.names_of_sums):
                if _joined(prefix, own) == name:
                    gram = _alike(result, read_group(result, number))
                    if result.rules.missing == "pairwise":  # as it was before it was divided
                        counts, total = read_shared(result)
                        gram = replace(gram, kept=gram.kept * (counts / total), sketch=None)
                    return products_of(gram)
        raise KeyError(name)

    def products(self) -> AnyProducts:
        """The products of the samples; reads the Gram matrices, and no data."""
        if self.pairwise:
            gram = _gram_of(self.first)
            return Products(gram.matrix, np.zeros(gram.n_samples), 0.0, gram.rounding)
        products = [products_of(_gram_of(result)) for result in self.results]
        return weighted_sum(products, [1.0] * len(products))

    @property
    def known(self) -> ProductAccuracy:
        """Accuracy of the products, from the certificates."""
        rungs = [(rung_of(result), result.certificate["exact_products"]) for result in self.results]
        weakest, exact = min(rungs, key=lambda one: (one[0].dtype.itemsize, one[0].solver == "tsqr"))
        single = weakest.dtype.itemsize < 8 and not exact
        return ProductAccuracy(self.name, weakest.solver, "single" if single else "double", self.n_bytes)

    @property
    def n_features(self) -> int:
        """Number of features that the runs did not leave out."""
        return sum(result.n_features - FeatureCounts.of(result.manifest["counts"]).left_out for result in self.results)

    def open(self, data: Mapping[str, Sequence[str]] = {}) -> Groups:
        """The data, unchanged since the runs.

        Parameters
        ----------
        data : where those of an input are now, by its name, empty for the only one; others are read where the results say
        """
        names = [part.name for part in self.parts]
        if unknown := [name for name in data if name not in names]:
            has = f"the inputs {', '.join(names)}" if len(names) > 1 else "one input, which has no name"
            raise ConfigError(
                f"data is of {', '.join(unknown) or 'one input'}, but {self.name} has {has}",
                "Write data: {NAME: PLACE} for several inputs, and data: PLACE for one.",
                key="data",
            )
        return tuple(part.open(data.get(part.name, ())) for part in self.parts)

    def maps_of(
        self,
        answers: Mapping[str, Answer],
        groups: Groups,
        scratch: Scratch,
        held: Callable[[MapColumns], list[HeldArray]],
    ) -> MapsJob:
        """The pass over the data that makes the maps of answers.

        Parameters
        ----------
        held : the arrays that this process holds beside so many maps
        """
        if any(answer.its_maps.score_deviation is not None for answer in answers.values()):
            for result in self.results:
                result.check_unit()
        columns = columns_of_maps(answers)
        dtype, stored = precisions(answers.values(), self.working_dtype)
        return MapsJob(groups, columns, dtype, stored, self.n_regressors, tuple(held(columns)), scratch)

    def make_maps(
        self, job: MapsJob, answers: Mapping[str, Answer], stages: Stages, outputs: Outputs, copies: str
    ) -> tuple[dict[str, dict[str, Any]], int]:
        """Make the maps of answers; also how many absent chunks copies of the data met.

        Parameters
        ----------
        copies : path of copies of the data, if the plan has any
        """
        data = Dataset(job.groups, job.run_plan.plans)
        with streamed(data, job.run_plan, copies, stages) as (streams, absent):
            return self._backprojection(job, answers, data).run(stages, streams, job.run_plan, outputs), absent

    def _backprojection(self, job: MapsJob, answers: Mapping[str, Answer], data: Dataset) -> Backprojection:
        fitted, dims = tuple(part.fitted for part in self.parts), tuple(part.dims for part in self.parts)
        regressors = tuple(part.result.regressors for part in self.parts)
        units = tuple(part.unit for part in self.parts)
        return Backprojection(data, fitted, self.rules, answers, dims, regressors, units, job.dtype, job.stored)

    @property
    def unit(self) -> str | None:
        """The unit of centred, scaled and weighted data; None where results have several, or do not know it."""
        return common_unit(result.unit_of_scores or "" for result in self.results)

    @property
    def n_regressors(self) -> int:
        """The most coefficients of regressors, and scales of groups of samples, that a run has of each feature."""
        return max(0 if one is None else one.n_rows for one in (part.result.regression for part in self.parts))

    @property
    def recorded(self) -> FeatureGroup:
        """The samples of the first result, as it recorded them: their names and dates, and no values."""
        first = self.parts[0].result
        return FeatureGroup(RecordedSource(first), first.samples_axis)

    @property
    def fingerprint(self) -> dict[str, Any]:
        """Fingerprint of the data, when the runs began."""
        return {part.name: part._fingerprint for part in self.parts}

    def changes(self, groups: Groups) -> list[str]:
        """How the data differ from those of the runs by now, in words."""
        return [
            change
            for part, group in zip(self.parts, groups, strict=True)
            for change in changes_of(part._fingerprint, (replace(group, name=""),))
        ]


def _joined(name: str, group: str) -> str:
    return "_".join(filter(None, (name, group)))


def _check_usable(result: Result, alone: bool) -> None:
    config = result.manifest["config"]
    if config["model"].get("kernel") in ("precomputed", ["precomputed"]):
        raise InputError(
            f"{result.name}: is of a kernel matrix, and has no samples that operators could act on",
            "Run on the samples themselves.",
            key="from",
        )
    if config["preprocess"].get("missing") == "pairwise" and not (alone and SHARED in result.arrays):
        raise InputError(
            f"{result.name}: ran with missing: pairwise, which divides each entry of the Gram matrix by a count of its own, and "
            + ("is beside others" if not alone else "an earlier version kept no counts"),
            f"Run again with {PREPROCESS.missing.at('mean')}.",
            key="from",
        )
    if result.rules.of_reference and result.rules.missing != "pairwise":
        raise InputError(
            f"{result.name}: is about the mean of some people ({PREPROCESS.scale.reference}), where derived analyses are about that of all",
            "Run again without the reference, or with missing: pairwise.",
            key="from",
        )
    if not keeps_gram(result):
        why = (
            "it kept features, not samples"
            if "gram_eigh" not in str(result.manifest["numerics"]["solver"])
            else f"{OUTPUT.gram} was false"
        )
        raise no_matrix(result, " of its samples", why, key="from", then=", from which derived analyses follow")


def _check_same_samples(results: tuple[Result, ...], pair_by: Pairing) -> None:
    first, *others = results
    for other in others:
        if other.n_samples != first.n_samples:
            raise InputError(
                f"{other.name}: has {other.n_samples:,} samples, but {first.name} has {first.n_samples:,}",
                "Results beside each other have the same samples.",
                key="from",
            )
        ours, theirs = (one.coordinate(one.dims.sample) for one in (first, other))
        if ours is not None and theirs is not None:
            axes = [Axis.of_coordinate(one.name, one) for one in (ours, theirs)]
            _check_dates(first, other, axes[0], axes[1], pair_by)
        for ours, theirs in _texts_beside(first, other):
            if differ := difference(theirs, ours):
                raise _other_samples(first, other, differ.index, differ.found, differ.expected)


def _check_dates(first: Result, other: Result, ours: Axis, theirs: Axis, pair_by: Pairing) -> None:
    """Refuse samples of other dates, whatever their units are; and others that are not equal."""
    one, two = (None if axis.labelled is None else axis.labelled.moments for axis in (ours, theirs))
    if one is None or two is None:
        found = difference(theirs.as_coordinate, ours.as_coordinate)
        if found is not None:
            raise _other_samples(first, other, found.index, found.found, found.expected)
        if ours.attributes.get("units") != theirs.attributes.get("units"):
            raise InputError(
                f"{other.name}: samples count {theirs.attributes.get('units')!r}, but {ours.attributes.get('units')!r} in {first.name}",
                "Results beside each other have the same samples.",
                key="from",
            )
        return
    ends, same = PAIRING[pair_by], paired_by(one, two)
    differ = [number for number in range(len(one)) if one[number][:ends] != two[number][:ends]]
    if differ:
        raise _other_samples(first, other, differ[0], theirs.names[differ[0]], ours.names[differ[0]], same)
    if pair_by != "moment" and (same is None or PAIRING[same] < ends):
        raise ConfigError(
            f"pair_by is {pair_by}, but {first.name} has several samples of one {pair_by}",
            "Pair by what tells samples apart: moment, or day.",
            key="pair_by",
        )


def _other_samples(
    first: Result, other: Result, number: Any, found: Any, expected: Any, same: Pairing | None = None
) -> InputError:
    how = f"; pair_by: {same} takes these for the same." if same else "."
    return InputError(
        f"{other.name}: sample {number} is {found!r}, but {expected!r} in {first.name}",
        f"Results beside each other have the same samples{how}",
        key="from",
    )


def _texts_beside(first: Result, other: Result) -> Iterator[tuple[Coordinate, Coordinate]]:
    """Pairs of names of samples that are no index, such as the subject of each. Numbers may be of the values, and differ."""
    found = {one.name: one for dims, one in other.auxiliaries() if dims == (other.dims.sample,)}
    for dims, one in first.auxiliaries():
        if dims == (first.dims.sample,) and one.name in found and one.text:
            yield one, found[one.name]


def _gram_of(result: Result) -> GramMatrix:
    """The Gram matrix of samples that all count alike: operators weigh them, if any do."""
    return _alike(result, read_gram(result))


def _alike(result: Result, gram: GramMatrix) -> GramMatrix:
    if "sample_weights" not in result.arrays:
        return gram
    return gram.unweighted(SampleWeights(np.asarray(result.arrays["sample_weights"][...], np.float64)).roots)
