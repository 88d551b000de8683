"""Features of the same samples in several sources: a run's inputs, side by side."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpca.errors import InputError
from dpca.sources.base import Layout, Reader, SamplesAxis, Source
from dpca.sources.calendars import as_names, is_time, moments
from dpca.sources.coordinate import Coordinate, difference
from dpca.sources.feature_labels import FeatureLabels
from dpca.sources.finding import paired_by
from dpca.sources.weights import FeatureWeights
from dpca.units import NAME


@dataclass(frozen=True)
class FeatureGroup:
    """Features that one source holds."""

    source: Source
    samples_axis: int
    """The number of the axis of samples."""
    name: str = ""
    """Empty for the only group of a run."""
    weights: FeatureWeights | None = None
    """Weights of the features; None for equal ones."""
    labels: FeatureLabels | None = None
    """The groups that its features are in, where each has a Gram matrix of its own; None for one of all."""

    @property
    def layout(self) -> Layout:
        return self.source.layout

    @property
    def unit(self) -> int:
        """Number of neighbouring features that an inner product has a matrix of; 0 for the usual one."""
        return 0 if self.weights is None else self.weights.unit

    @property
    def n_samples(self) -> int:
        return self.layout.shape[self.samples_axis]

    @property
    def n_features(self) -> int:
        return self.layout.n_values // max(1, self.n_samples)

    @property
    def sources(self) -> tuple[Source, ...]:
        """All that tasks read."""
        beside = () if self.weights is None else self.weights.inputs
        return (self.source, *(source for source, _ in beside))


Groups = tuple[FeatureGroup, ...]


def names_of_sums(groups: Sequence[FeatureGroup]) -> tuple[str, ...]:
    """Names of the groups of features that have a Gram matrix each: inputs side by side, or labels within one; one empty name for none."""
    return tuple(name for group in groups for name in ((group.name,) if group.labels is None else group.labels.names))


def alone(source: Source, samples_axis: SamplesAxis = 0, weights: FeatureWeights | None = None) -> Groups:
    """The only group of a run."""
    return (FeatureGroup(source, source.layout.axis_of(samples_axis), weights=weights),)


def parts_of(data: Any) -> dict[str, Any]:
    """The arrays of X by name: those of a dict or an xarray.Dataset; an array alone has no name, also as the only one of these."""
    # A subclass of dict may be something else, such as a sparse matrix of scipy.
    if not (type(data) is dict or ("xarray" in sys.modules and isinstance(data, sys.modules["xarray"].Dataset))):
        return {"": data}
    names = list(data)
    wrong = next((name for name in names if not (isinstance(name, str) and NAME.fullmatch(name))), None)
    if not names or wrong is not None:
        raise InputError(
            "X is empty: it holds no array" if not names else f"X has an array of the name {wrong!r}",
            "Give arrays by name; names begin with a letter, and have letters, digits, - and _.",
        )
    return {name: data[name] for name in names} if len(names) > 1 else {"": data[names[0]]}


def names_in(data: Any) -> tuple[str, ...]:
    """The names of the arrays of X, also of the only one of a dict or Dataset; one empty name where it is an array."""
    return ("",) if next(iter(parts_of(data).values())) is data else tuple(data)


def named(groups: Sequence[FeatureGroup]) -> str:
    """The name of the data in messages."""
    return ", ".join(group.layout.name for group in groups)


def check_same_samples(groups: Sequence[FeatureGroup]) -> None:
    """Refuse groups of different samples, or of the same ones in another order; reads no values.

    Where two groups have names or times of their samples, these have to be equal, whatever the units of times are.
    """
    first, *others = groups
    if not others:
        return  # the only input need not be opened for this
    for other in others:
        if other.n_samples != first.n_samples:
            raise InputError(
                f"input {other.name}: {other.layout.name} has {other.n_samples:,} samples along axis {other.samples_axis}, but "
                f"{first.name}, {first.layout.name}, has {first.n_samples:,}: inputs side by side are of the same samples",
                "Choose them with samples in both; or name another samples_axis.",
                key="input",
            )
    named_ones = [group for group in groups if has_names(group)]
    for other in named_ones[1:]:
        _check_names(named_ones[0], other)
    told = dict[str, FeatureGroup]()
    for group in groups:
        for name in _beside(group):
            if told.setdefault(name, group) is not group:
                _check_names(told[name], group, name)


def has_names(group: FeatureGroup) -> bool:
    """Whether the samples have names, times or other values of a coordinate."""
    with group.source.open() as reader:
        return reader.coordinate(group.samples_axis) is not None


def _beside(group: FeatureGroup) -> list[str]:
    """Names of the coordinates of samples that are no index, such as the subject of each."""
    with group.source.open() as reader:
        return [one.coordinate.name for one in reader.auxiliaries() if one.axes == (group.samples_axis,)]


def _told(reader: Reader, axis: int, name: str | None) -> Coordinate:
    """The coordinate of samples of that name that is no index; the index for None."""
    found = reader.coordinate(axis)
    if name is not None:
        found = next(
            one.coordinate for one in reader.auxiliaries() if one.axes == (axis,) and one.coordinate.name == name
        )
    assert found is not None
    return found


def _check_names(first: FeatureGroup, other: FeatureGroup, beside: str | None = None) -> None:
    with first.source.open() as one, other.source.open() as two:
        ours, others = _told(one, first.samples_axis, beside), _told(two, other.samples_axis, beside)
        numbers = not any(coordinate.text or is_time(coordinate.attributes) for coordinate in (ours, others))
        if numbers and (difference(others, ours) is None or (beside and not _in_another_order(ours, others))):
            return
        for number, (name, found) in enumerate(zip(_names_of(ours), _names_of(others), strict=True)):
            if name == found:
                continue
            present = found in set(_names_of(ours))
            raise InputError(
                f"input {other.name}: sample {number} of {other.layout.name} is {found}, but {name} in {first.name}, "
                f"{first.layout.name}: "
                + ("the samples are in another order" if present else "they are other samples"),
                "Choose the same samples, in the same order, with samples in both." + _by_dates(ours, others),
                key="input",
            )


def _by_dates(one: Coordinate, other: Coordinate) -> str:
    """Remedy for samples that share days or months, but not their moments."""
    pair = [moments(np.asarray(of.values[...]), of.attributes) for of in (one, other)]
    same = None if pair[0] is None or pair[1] is None else paired_by(pair[0], pair[1])
    if same is None:
        return ""
    return f" They share each {same}: run each input alone, and put the results beside each other by dpca derive with pair_by: {same}."


def _in_another_order(one: Coordinate, other: Coordinate) -> bool:
    """Whether numbers are the same ones in another order. Others need not be of other samples: each input may have its counts."""
    ours, theirs = (np.sort(np.asarray(of.values[...], np.float64)) for of in (one, other))
    return np.array_equal(ours, theirs, equal_nan=True)


def _names_of(coordinate: Coordinate) -> Iterator[Any]:
    """Names that tell samples apart along a coordinate: dates as text, names, or numbers."""
    for _, values in coordinate.pieces():
        found = np.asarray(values)
        told = is_time(coordinate.attributes) or found.dtype.kind not in "biuf"
        yield from as_names(found, coordinate.attributes) if told else found.tolist()


def dtype_of(groups: Sequence[FeatureGroup]) -> np.dtype[Any]:
    """The dtype of the values; where groups differ, one that holds all of them."""
    first, *others = (group.layout.dtype for group in groups)
    return first if all(dtype == first for dtype in others) else np.result_type(first, *others)
