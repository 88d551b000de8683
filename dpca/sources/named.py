"""A view with names of samples or features from a file of their own."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np

from dpca.errors import InputError
from dpca.sources.base import Layout, Reader, Source
from dpca.sources.calendars import as_names
from dpca.sources.coordinate import Coordinate
from dpca.sources.labels import Place, open_labels
from dpca.sources.view import View, ViewReader

SHOWN = 5


class NamedSource(View):
    """A source with another coordinate along one axis.

    Parameters
    ----------
    source : its names along that axis, if it has any, are replaced
    axis : of the samples, or the one of the features
    place : of the names
    of : samples or features

    Raises
    ------
    InputError
        When the names can't be read, or there is not one for each of them.
    """

    def __init__(self, source: Source, axis: int, place: Place, of: str) -> None:
        layout = source.layout
        dim = layout.dims[axis] or of[:-1]
        super().__init__(source, replace(layout, dims=(*layout.dims[:axis], dim, *layout.dims[axis + 1 :])))
        self.axis, self.of, self._place = axis, of, place
        names = self.coordinate()
        with source.open() as reader:
            if reader.coordinate(axis) is not None:
                self.notes += (f"{place.key}: the names in {place.shown} replace those that {layout.name} has",)
        if of == "samples":
            counts = Counter(as_names(np.asarray(names.values[...]), {}))
            again = [name for name, count in counts.items() if count > 1]
            if again:
                shown = ", ".join(map(repr, again[:SHOWN])) + " and others" * (len(again) > SHOWN)
                self.notes += (f"{place.key}: {shown} name more than one sample",)

    def coordinate(self) -> Coordinate:
        """The names."""
        names = open_labels(self._place, self.layout.shape[self.axis], self.of)
        return Coordinate(str(self.layout.dims[self.axis]), names, names.parts)

    def reader(self, reader: Reader) -> Reader:
        return _NamedReader(self, reader)


class _NamedReader(ViewReader):
    def __init__(self, source: NamedSource, reader: Reader) -> None:
        super().__init__(source.layout, reader)
        self._source = source

    def coordinate(self, axis: int) -> Coordinate | None:
        return self._source.coordinate() if axis == self._source.axis else self._reader.coordinate(axis)


def feature_axis(layout: Layout, samples_axis: int, key: str) -> int:
    """The one axis of features.

    Raises
    ------
    InputError
        When there are several.
    """
    axes = [axis for axis in range(len(layout.shape)) if axis != samples_axis]
    if len(axes) != 1:
        raise InputError(
            f"{layout.name}: has {len(axes)} axes of features, and {key} is for one",
            "Leave it out: the axes of the array keep their own coordinates.",
            key,
        )
    return axes[0]
