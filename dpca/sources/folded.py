"""A view of flattened features, such as the pixels of images, in the shape that they had."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpca.errors import InputError
from dpca.settings import INPUT
from dpca.slabs import Cuts, extent
from dpca.sources.base import Layout, Reader, Region, Source, size_of
from dpca.sources.coordinate import Auxiliary, Coordinate
from dpca.sources.view import View, ViewReader

KEY = "input.feature_shape"


class FoldedSource(View):
    """The one axis of features of an array as several axes, in C order.

    A box of them that is one of one after the other, then a range, then whole, is a range of the stored axis. Such are the
    slabs of every plan (`dpca.slabs.grow`), so that nothing is read twice; any other box is cut out of the range around it.

    Parameters
    ----------
    source : an array of two axes
    samples_axis : 0 or 1
    shape : of the features of a sample
    """

    def __init__(self, source: Source, samples_axis: int, shape: Sequence[int]) -> None:
        layout, shape, axis = source.layout, tuple(shape), 1 - samples_axis
        if len(layout.shape) != 2:
            raise InputError(
                f"{layout.name}: {INPUT.feature_shape} is {list(shape)}, but the array has shape {layout.shape}, and only one axis "
                "of features can be given a shape",
                "Leave it out: features keep the axes that the array has.",
                key=KEY,
            )
        if math.prod(shape) != layout.shape[axis]:
            raise InputError(
                f"{layout.name}: {INPUT.feature_shape} is {list(shape)}, which is {math.prod(shape):,} features, but there are "
                f"{layout.shape[axis]:,}",
                "Give a shape of as many.",
                key=KEY,
            )
        super().__init__(source, _folded(layout, axis, shape))
        self.axis, self.feature_shape = axis, shape

    @property
    def folds(self) -> slice:
        """The axes of the features among those of the view."""
        return slice(self.axis, self.axis + len(self.feature_shape))

    def box(self, region: Region) -> Region:
        """The part of a region along the features."""
        return region[self.folds]

    def behind(self, region: Region) -> Region:
        box = self.box(region)
        start = _number((piece.start for piece in box), self.feature_shape)
        last = _number((piece.stop - 1 for piece in box), self.feature_shape)
        stop = start if any(piece.start >= piece.stop for piece in box) else last + 1
        return (*region[: self.axis], slice(start, stop), *region[self.folds.stop :])

    def reader(self, reader: Reader) -> Reader:
        return _FoldedReader(self, reader)

    def held(self, shape: tuple[int, ...]) -> dict[str, int]:
        behind = tuple(piece.stop - piece.start for piece in self.behind(tuple(slice(0, n) for n in shape)))
        cut_out = {} if math.prod(behind) == math.prod(shape) else {"box": size_of(shape, self.layout.dtype)}
        return {**self._source.held(behind), **cut_out}

    def fingerprint(self) -> dict[str, Any]:
        return {**self._source.fingerprint(), "feature_shape": list(self.feature_shape)}


def _number(index: Iterable[int], shape: Iterable[int]) -> int:
    """The number of an element in C order."""
    number = 0
    for at, length in zip(index, shape, strict=True):
        number = number * length + at
    return number


def _folded(layout: Layout, axis: int, shape: tuple[int, ...]) -> Layout:
    """The layout of an array whose axis `axis` is folded to a shape."""

    def placed(of_axes: tuple[Any, ...], folded: tuple[Any, ...]) -> tuple[Any, ...]:
        return (*of_axes[:axis], *folded, *of_axes[axis + 1 :])

    shards = layout.shards and placed(layout.shards, _boxes(layout.shape[axis], layout.shards[axis], shape))
    return replace(
        layout,
        shape=placed(layout.shape, shape),
        chunks=placed(layout.chunks, _boxes(layout.shape[axis], layout.chunks[axis], shape)),
        shards=shards,
        order="C",  # in which boxes of features are ranges
        dims=placed(layout.dims, (None,) * len(shape)),
    )


def _boxes(length: int, chunks: int | tuple[int, ...], shape: tuple[int, ...]) -> tuple[int, ...]:
    """The smallest boxes of a folded axis that end where chunks of it do."""
    cuts = Cuts.of(length, chunks)
    if cuts.edges is not None:
        return shape
    for axis in reversed(range(len(shape))):
        below = math.prod(shape[axis + 1 :])
        step = math.lcm(cuts.step, below) // below
        if shape[axis] % step == 0:
            return (*(1,) * axis, step, *shape[axis + 1 :])
    return (min(step, shape[0]), *shape[1:])


class _FoldedReader(ViewReader):
    def __init__(self, source: FoldedSource, reader: Reader) -> None:
        super().__init__(source.layout, reader)
        self._source = source

    def parts(self, region: Region) -> Iterable[Region]:
        return [self._source.behind(region)]

    def _read(self, region: Region) -> NDArray[Any]:
        source, behind = self._source, self._source.behind(region)
        values, flat = self._reader.read(behind), behind[source.axis]
        lengths = extent(region)
        if math.prod(lengths) == values.size:
            return values.reshape(lengths)
        box = np.ix_(*(np.arange(piece.start, piece.stop) for piece in source.box(region)))
        inside = np.ravel_multi_index(box, source.feature_shape) - flat.start
        cut_out: NDArray[Any] = values.take(inside, axis=source.axis)
        return cut_out

    def coordinate(self, axis: int) -> Coordinate | None:
        folded = self._source.axis <= axis < self._source.folds.stop
        return None if folded else self._reader.coordinate(1 - self._source.axis)

    def auxiliaries(self) -> Sequence[Auxiliary]:
        """Those of the axis that is not folded."""
        behind, here = 1 - self._source.axis, 0 if self._source.axis else self._source.folds.stop
        return [Auxiliary((here,), one.coordinate) for one in self._reader.auxiliaries() if one.axes == (behind,)]
