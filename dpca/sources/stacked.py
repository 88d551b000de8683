"""A view of samples that lie along several axes, such as times and members of an ensemble, along one."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpca.errors import InputError
from dpca.settings import INPUT
from dpca.slabs import extent
from dpca.sources.base import Layout, Reader, Region, SamplesAxis, Source, StackedAxes, size_of
from dpca.sources.coordinate import Auxiliary, Coordinate, Parts, Vector
from dpca.sources.dated import told_by
from dpca.sources.view import View, ViewReader

SAMPLE, SAMPLE_OF_AXES = "sample", "sample_of_axes"


def stacked(source: Source, samples_axis: SamplesAxis) -> Source:
    """The source, with one axis of samples in place of several; itself where one axis is told.

    Parameters
    ----------
    samples_axis : a number or a name; or several, of which the last changes fastest from sample to sample
    """
    if isinstance(samples_axis, int | str):
        return source
    axes = [source.layout.axis_of(axis) for axis in samples_axis]
    if len(set(axes)) < len(axes) or not axes:
        raise InputError(
            f"{source.layout.name}: {INPUT.samples_axis} is {list(samples_axis)}, "
            + ("which names an axis twice" if axes else "which names no axis"),
            "Name each axis of samples once.",
            key="input.samples_axis",
        )
    return StackedSource(source, axes)


def axes_among(dims: Sequence[Hashable], samples_axis: SamplesAxis, axis: int) -> tuple[int, ...]:
    """The numbers of the axes of samples among axes that have names.

    Parameters
    ----------
    axis : the number of the only one, where it was told by its number
    """
    if isinstance(samples_axis, int):
        return (axis,)
    axes = [samples_axis] if isinstance(samples_axis, str) else samples_axis
    return tuple(one % len(dims) if isinstance(one, int) else dims.index(one) for one in axes)


class StackedSource(View):
    """Several axes of an array as one, the samples, in C order of these axes as they are given.

    A range of samples is a box of the axes where the first ones stand still and the last ones are whole; any other is cut out
    of the box around it. The new axis is the first one, or the last, where these were last in storage, in this order.

    Parameters
    ----------
    source : an array
    axes : of the samples, at least one
    """

    def __init__(self, source: Source, axes: Sequence[int]) -> None:
        layout = source.layout
        self.axes, n_axes = tuple(axes), len(layout.shape)
        self.others = tuple(axis for axis in range(n_axes) if axis not in self.axes)
        self.last = bool(self.others) and self.axes == tuple(range(len(self.others), n_axes))
        self.lengths = tuple(layout.shape[axis] for axis in self.axes)
        self._copies = layout.order == "F" or any(after != before + 1 for before, after in pairwise(self.axes))
        super().__init__(source, self._layout(layout))

    @property
    def axis(self) -> int:
        """The axis of the samples in the view."""
        return len(self.others) if self.last else 0

    def _layout(self, layout: Layout) -> Layout:
        def placed(of_samples: Any, of_axes: Sequence[Any]) -> tuple[Any, ...]:
            others = tuple(of_axes[axis] for axis in self.others)
            return (*others, of_samples) if self.last else (of_samples, *others)

        sample = SAMPLE if SAMPLE not in layout.dims else SAMPLE_OF_AXES
        chunk = self._chunk(layout) if layout.chunked else 1
        shards = layout.shards and placed(math.prod(self.lengths), layout.shards)
        return replace(
            layout,
            shape=placed(math.prod(self.lengths), layout.shape),
            chunks=placed(chunk, layout.chunks),
            shards=shards,
            order="C",
            dims=placed(sample, layout.dims),
            stack=StackedAxes(
                -1 if self.last else 0, tuple(layout.dims[axis] or f"axis_{axis}" for axis in self.axes), self.lengths
            ),
        )

    def _chunk(self, layout: Layout) -> int | tuple[int, ...]:
        """Smallest number of samples, or numbers, that end where chunks of all axes do."""
        chunks = [layout.chunks[axis] for axis in self.axes]
        for number, (length, chunk) in enumerate(zip(self.lengths, chunks, strict=True)):
            below = math.prod(self.lengths[number + 1 :])
            whole = all(_is_whole(*one) for one in zip(self.lengths[number + 1 :], chunks[number + 1 :], strict=True))
            if isinstance(chunk, tuple):
                return tuple(one * below for one in chunk) if number == 0 else length * below
            if chunk > 1 or whole:
                even = number == 0 or length % chunk == 0
                return (chunk if whole and even else length if number else chunk) * below
        raise AssertionError("the last axis has whole axes after it")

    def box(self, region: Region) -> Region:
        """The smallest box of the axes of samples that holds a region of the view."""
        boxes = list(_boxes(self.lengths, region[self.axis].start, region[self.axis].stop))
        return tuple(
            slice(min(piece.start for piece in along), max(piece.stop for piece in along))
            for along in zip(*boxes, strict=True)
        )

    def behind(self, region: Region) -> Region:
        return self._placed(self.box(region), region)

    def parts(self, region: Region) -> list[Region]:
        """The regions of the source behind it that make a region of the view, in the order of its samples."""
        piece = region[self.axis]
        return [self._placed(box, region) for box in _boxes(self.lengths, piece.start, piece.stop)]

    def _placed(self, box: Region, region: Region) -> Region:
        """A box of the axes of samples, with the features of a region of the view, in the source behind it."""
        found: list[slice] = [slice(0, 0)] * (len(self.axes) + len(self.others))
        for axis, piece in (
            *zip(self.axes, box, strict=True),
            *zip(self.others, self._of_features(region), strict=True),
        ):
            found[axis] = piece
        return tuple(found)

    def _of_features(self, region: Region) -> Region:
        return region[:-1] if self.last else region[1:]

    def reader(self, reader: Reader) -> Reader:
        return _StackedReader(self, reader)

    @property
    def place(self) -> tuple[str | list[str], str | None] | None:
        return self._source.place

    def held(self, shape: tuple[int, ...]) -> dict[str, int]:
        boxes = list(_boxes(self.lengths, 0, shape[self.axis]))
        largest = max(boxes, key=lambda box: math.prod(extent(box)))
        held = self._source.held(extent(self._placed(largest, tuple(slice(0, length) for length in shape))))
        whole = shape[self.axis] == math.prod(self.lengths) and not self._copies
        return held if whole else {**held, "samples of several axes": size_of(shape, self.layout.dtype)}

    def fingerprint(self) -> dict[str, Any]:
        return {**self._source.fingerprint(), "samples_axes": list(self.axes)}


def _boxes(lengths: Sequence[int], start: int, stop: int) -> Iterator[Region]:
    """Boxes that together are a range of the elements of an array, in C order; one without any for an empty range."""
    if len(lengths) == 1 or start >= stop:
        yield (slice(start, max(start, stop)), *(slice(0, length) for length in lengths[1:]))
        return
    below, rest = math.prod(lengths[1:]), tuple(slice(0, length) for length in lengths[1:])
    while start < stop:
        first, begin = divmod(start, below)
        if begin or stop - start < below:
            end = min(begin + stop - start, below)
            yield from ((slice(first, first + 1), *box) for box in _boxes(lengths[1:], begin, end))
            start += end - begin
        else:
            n_whole = (stop - start) // below
            yield (slice(first, first + n_whole), *rest)
            start += n_whole * below


def _is_whole(length: int, chunk: int | tuple[int, ...]) -> bool:
    return chunk >= length if isinstance(chunk, int) else len(chunk) == 1


class _StackedReader(ViewReader):
    def __init__(self, source: StackedSource, reader: Reader) -> None:
        super().__init__(source.layout, reader)
        self._source = source

    def parts(self, region: Region) -> Iterable[Region]:
        return self._source.parts(region)

    def _read(self, region: Region) -> NDArray[Any]:
        source, parts = self._source, self._source.parts(region)
        if len(parts) == 1:
            return self._joined(self._reader.read(parts[0]))
        whole, at = np.empty(extent(region), self.layout.dtype), 0
        by_sample = np.moveaxis(whole, source.axis, 0)
        for part in parts:
            values = np.moveaxis(self._joined(self._reader.read(part)), source.axis, 0)
            by_sample[at : at + len(values)] = values
            at += len(values)
        return whole

    def _joined(self, values: NDArray[Any]) -> NDArray[Any]:
        """Values of the source behind it, with one axis of samples."""
        source, n_axes = self._source, len(self._source.axes)
        first = len(source.others) if source.last else 0
        moved = np.moveaxis(values, source.axes, tuple(range(first, first + n_axes)))
        lengths = moved.shape
        return moved.reshape(*lengths[:first], math.prod(lengths[first : first + n_axes]), *lengths[first + n_axes :])

    def coordinate(self, axis: int) -> Coordinate | None:
        """That of an axis of features; samples of several axes have none of their own, but those of `auxiliaries`."""
        source = self._source
        return None if axis == source.axis else self._reader.coordinate(source.others[axis - (not source.last)])

    def auxiliaries(self) -> Sequence[Auxiliary]:
        """The coordinate of each axis of samples, for each sample, and others along samples alone, or features alone."""
        source, names = self._source, self.layout.stack
        assert names is not None
        found: dict[str, Auxiliary] = {}
        for axis, name in zip(source.axes, names.names, strict=True):
            own = told_by(self._reader, axis)
            numbers = np.arange(source.lengths[source.axes.index(axis)])
            one = Coordinate(name, numbers, Parts.of(numbers.dtype)) if own is None else replace(own, name=name)
            found[name] = self._of_samples((axis,), one)
        for beside in self._reader.auxiliaries():
            if beside.coordinate.name in found:
                continue
            if beside.axes and {*beside.axes} <= {*source.axes}:
                found[beside.coordinate.name] = self._of_samples(beside.axes, beside.coordinate)
            elif {*beside.axes} <= {*source.others}:
                axes = tuple(source.others.index(axis) + (not source.last) for axis in beside.axes)
                found[beside.coordinate.name] = Auxiliary(axes, beside.coordinate)
        return list(found.values())

    def _of_samples(self, axes: Sequence[int], coordinate: Coordinate) -> Auxiliary:
        """A coordinate along some axes of samples, with a value for each sample."""
        source = self._source

        def read(piece: slice) -> NDArray[Any]:
            numbers = np.arange(piece.start, piece.stop)
            index = dict(zip(source.axes, np.unravel_index(numbers, source.lengths), strict=True))
            return np.asarray(np.asarray(coordinate.values[...])[tuple(index[axis] for axis in axes)])

        dtype, shape = coordinate.values.dtype, (math.prod(source.lengths),)
        vector = Vector(f"{self.layout.name}: {coordinate.name}", shape, dtype, read, Parts.of(dtype))
        return Auxiliary((source.axis,), replace(coordinate, values=vector, parts=vector.parts))
