"""A view with names of samples or features from a file of their own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpca.errors import InputError
from dpca.settings import Setting
from dpca.sources.base import Layout, Reader, Source
from dpca.sources.calendars import as_names, conversion, is_time
from dpca.sources.cf import coordinate_of
from dpca.sources.coordinate import Coordinate, Parts
from dpca.sources.labels import Place, open_labels, open_values
from dpca.sources.view import View, ViewReader

SHOWN = 5


class NamedSource(View):
    """A source with another coordinate along one axis.

    Parameters
    ----------
    source : its names along that axis, if it has any, are replaced
    axis : of the samples, or the one of the features
    places : of the names, of samples in one file or several
    of : samples or features
    """

    def __init__(self, source: Source, axis: int, places: Sequence[Place], of: str) -> None:
        layout = source.layout
        dim = layout.dims[axis] or of[:-1]
        super().__init__(source, replace(layout, dims=(*layout.dims[:axis], dim, *layout.dims[axis + 1 :])))
        self.axis, self.of, self._places = axis, of, places
        names = self.coordinate()
        with source.open() as reader:
            if reader.coordinate(axis) is not None:
                self.notes += (
                    f"{places[0].key}: the names in {', '.join(one.shown for one in places)} replace those that {layout.name} has",
                )
        if of == "samples":
            counts = Counter(as_names(np.asarray(names.values[...]), names.attributes))
            again = [name for name, count in counts.items() if count > 1]
            if again:
                shown = ", ".join(map(repr, again[:SHOWN])) + " and others" * (len(again) > SHOWN)
                self.notes += (f"{places[0].key}: {shown} name more than one sample",)

    def coordinate(self) -> Coordinate:
        """The names; numbers with units of time are dates."""
        dim, length = str(self.layout.dims[self.axis]), self.layout.shape[self.axis]
        if len(self._places) == 1:
            names = open_labels(self._places[0], length, self.of)
            return coordinate_of(dim, names, names.attributes)
        each = [coordinate_of(dim, vector, vector.attributes) for vector in map(open_values, self._places)]
        values = _end_to_end(each, [place.shown for place in self._places], self._places[0].key)
        if values.shape != (length,):
            raise InputError(
                f"{', '.join(place.shown for place in self._places)}: hold names of shape {values.shape}, but there are {length:,} {self.of}",
                f"Give a name for each of the {self.of}, in their order.",
                self._places[0].key,
            )
        return Coordinate(dim, values, Parts.of(values.dtype), each[0].attributes)

    def reader(self, reader: Reader) -> Reader:
        return _NamedReader(self, reader)


def _end_to_end(each: Sequence[Coordinate], names: Sequence[str], key: str) -> NDArray[Any]:
    """The values of coordinates, times in the units of the first."""
    first, found = each[0], list[NDArray[Any]]()
    for one, name in zip(each, names, strict=True):
        values = np.asarray(one.values[...])
        if is_time(one.attributes) or is_time(first.attributes):
            convert = conversion(one.attributes, first.attributes)
            if convert is None and dict(one.attributes) != dict(first.attributes):
                raise InputError(
                    f"{name}: counts {one.attributes.get('units', 'nothing that is told')!r}, which can't be converted to that of {names[0]}: "
                    f"{first.attributes.get('units', 'nothing that is told')!r}",
                    "Give dates in one calendar.",
                    key,
                )
            values = values if convert is None else convert(values)
        found.append(values)
    return np.concatenate(found)


class _NamedReader(ViewReader):
    def __init__(self, source: NamedSource, reader: Reader) -> None:
        super().__init__(source.layout, reader)
        self._source = source

    def coordinate(self, axis: int) -> Coordinate | None:
        return self._source.coordinate() if axis == self._source.axis else self._reader.coordinate(axis)


def feature_axis(layout: Layout, samples_axis: int, key: str) -> int:
    """The one axis of features."""
    axes = [axis for axis in range(len(layout.shape)) if axis != samples_axis]
    if len(axes) != 1:
        raise InputError(
            f"{layout.name}: has {len(axes)} axes of features, and {Setting(key)} is for one",
            "Leave it out: the axes of the array keep their own coordinates.",
            key,
        )
    return axes[0]
