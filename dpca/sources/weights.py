"""Weights of features, inner products, and masks of those that are left out: arrays that broadcast to the feature axes, read in parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from dpca.errors import DataError, InputError
from dpca.settings import PREPROCESS
from dpca.slabs import Box, extent
from dpca.sources.base import Layout, Reader, Region, SamplesAxis, Source, describe
from dpca.sources.coordinate import difference
from dpca.sources.inner_products import InnerProduct, inner_product_of
from dpca.sources.latitudes import sqrt_cos_lat
from dpca.sources.memory import MemorySource
from dpca.types import F64


@dataclass(frozen=True)
class Field:
    """An array that broadcasts to the feature axes."""

    source: Source
    axes: tuple[int | None, ...]
    """For each feature axis the axis of the source; None where the source has none, or one of length 1."""
    invert: bool = False
    """Whether features are left out where a mask is true, instead of used."""

    @classmethod
    def of(cls, source: Source, shape: Sequence[int], dims: Sequence[str | None], key: str) -> Self:
        """The field of a source: its axes are matched by their names if all have one, otherwise from the last one backwards.

        Parameters
        ----------
        shape, dims : of the feature axes
        key : key of the configuration, for errors
        """
        layout = source.layout
        numbers = range(len(layout.shape))
        named = all(layout.dims) and all(dim in dims for dim in layout.dims)
        if not named and all(layout.dims) and all(dims):
            raise _no_broadcast(layout, shape, dims, key)
        places = (
            [dims.index(dim) for dim in layout.dims]
            if named
            else [axis + len(shape) - len(numbers) for axis in numbers]
        )
        axes: list[int | None] = [None] * len(shape)
        for axis, place in zip(numbers, places, strict=True):
            if place < 0 or layout.shape[axis] not in (1, shape[place]):
                raise _no_broadcast(layout, shape, dims, key)
            if layout.shape[axis] > 1:
                axes[place] = axis
        return cls(source, tuple(axes))

    def region(self, box: Box) -> Region:
        """The region of the source for a box of features."""
        region = [slice(0, 1)] * len(self.source.layout.shape)
        for piece, axis in zip(box, self.axes, strict=True):
            if axis is not None:
                region[axis] = piece
        return tuple(region)

    def read(self, reader: Reader, box: Box) -> NDArray[Any]:
        """The values for a box of features, of the shape of the box."""
        values = reader.read(self.region(box))
        values = np.where(self.source.layout.marked(values), np.nan, values.astype(np.float64))
        if self.source.layout.packing != (1.0, 0.0):
            factor, offset = self.source.layout.packing
            values = values * factor + offset
        order = [axis for axis in self.axes if axis is not None]
        rest = [axis for axis in range(values.ndim) if axis not in order]
        values = values.transpose([*order, *rest])
        shape = [1 if axis is None else piece.stop - piece.start for piece, axis in zip(box, self.axes, strict=True)]
        return np.broadcast_to(values.reshape(shape), extent(box))


@dataclass(frozen=True)
class FeatureWeights:
    """Weights of features, and a mask of those that are left out."""

    weights: Field | None = None
    masks: tuple[Field, ...] = ()
    """True, or another number than 0, where a feature is used; 0 or NaN where it is left out. It is used where all of them use it."""
    inner: InnerProduct | None = None
    """Matrices of neighbouring features, which come after the weights; None for the usual inner product."""

    @property
    def unit(self) -> int:
        """Number of neighbouring features that an inner product has a matrix of; 0 for the usual one."""
        return 0 if self.inner is None else self.inner.unit

    @contextmanager
    def open(self) -> Iterator[Callable[[Box], F64 | None]]:
        """A function that returns the weights of a box of features, flattened: NaN where a feature is left out."""
        with ExitStack() as stack:
            of_weights = None if self.weights is None else stack.enter_context(self.weights.source.open())
            of_masks = [stack.enter_context(mask.source.open()) for mask in self.masks]

            def of(box: Box) -> F64 | None:
                values = np.ones(extent(box))
                used = np.ones(values.shape, bool)
                for mask, reader in zip(self.masks, of_masks, strict=True):
                    used &= (np.nan_to_num(mask.read(reader, box)) != 0) != mask.invert
                if self.weights is not None and of_weights is not None:
                    values = self.weights.read(of_weights, box)
                    wrong = used & ~((values >= 0) & (values < np.inf))
                    if wrong.any():
                        raise _unusable(self.weights.source.layout, box, values, wrong)
                return np.where(used, values, np.nan).reshape(-1)

            yield of

    def restrict(self, box: Box) -> FeatureWeights:
        """These restricted to a box, for a task that needs no more."""
        weights, *masks = (
            field and replace(field, source=field.source.restrict(field.region(box)))
            for field in (self.weights, *self.masks)
        )
        inner = self.inner and self.inner.restrict(box)
        return FeatureWeights(weights, tuple(mask for mask in masks if mask is not None), inner)

    def of_all(self, shape: Sequence[int]) -> F64 | None:
        """The weights of all features, flattened; for few features."""
        with self.open() as weights_of:
            return weights_of(tuple(slice(0, length) for length in shape))

    @property
    def inputs(self) -> tuple[tuple[Source, Region], ...]:
        """The arrays, each with its whole region."""
        fields = [field for field in (self.weights, *self.masks) if field is not None]
        arrays = tuple((field.source, tuple(slice(0, n) for n in field.source.layout.shape)) for field in fields)
        return arrays if self.inner is None else (*arrays, self.inner.input)

    def held(self, shape: Sequence[int]) -> dict[str, int]:
        """Bytes that are held for a box of features of this shape, by name."""
        held = {"weights of a slab": 4 * 8 * int(np.prod(shape))}
        for name, field in (("weights", self.weights), *(("mask", mask) for mask in self.masks)):
            if field is not None:
                region = [1] * len(field.source.layout.shape)
                for length, axis in zip(shape, field.axes, strict=True):
                    if axis is not None:
                        region[axis] = length
                held |= {f"{name}: {part}": size for part, size in field.source.held(tuple(region)).items()}
        return held if self.inner is None else held | self.inner.held(shape)


def weights_of(
    source: Source,
    samples_axis: SamplesAxis,
    weights: Source | Literal["sqrt_cos_lat"] | None,
    mask: Source | None,
    invert: bool = False,
    inner: Source | Any = None,
) -> FeatureWeights | None:
    """The weights, the mask and the inner product of the features of a source; None if there is none of them.

    Parameters
    ----------
    invert : whether the mask is true where features are left out
    inner : an array of matrices, or a sparse matrix of scipy
    """
    axis = source.layout.axis_of(samples_axis)
    if weights == "sqrt_cos_lat":
        weights = sqrt_cos_lat(source, axis)
    shape, dims = list(source.layout.shape), list(source.layout.dims)
    del shape[axis], dims[axis]
    fields = [
        None if array is None else Field.of(array, shape, dims, f"preprocess.{key}")
        for array, key in ((weights, "weights"), (mask, "filters.mask"))
    ]
    for field, key in zip(fields, ("weights", "filters.mask"), strict=True):
        if field is not None:
            _check_coordinates(field, source, axis, f"preprocess.{key}")
    for array in (one for one in (weights, mask) if isinstance(one, Source)):
        for kind in array.knows:
            if not kind.of_samples and kind in source.knows:  # such as where voxels lie
                kind.joined([source.layout.name, array.layout.name], [source.about(kind), array.about(kind)])
    of_weights, of_mask = fields
    masks = () if of_mask is None else (replace(of_mask, invert=invert),)
    found = FeatureWeights(
        of_weights, masks, None if inner is None else inner_product_of(inner, shape, source.layout.name)
    )
    return None if found == FeatureWeights() else found


def masked_by(weights: FeatureWeights | None, mask: NDArray[np.bool_], name: str) -> FeatureWeights:
    """Weights with a further mask, (features,), of the only feature axis; `name` is that of the mask in errors."""
    field = Field(MemorySource(mask, name=name), (0,))
    before = weights or FeatureWeights()
    return replace(before, masks=(*before.masks, field))


def _check_coordinates(field: Field, source: Source, samples_axis: int, key: str) -> None:
    """Refuse a field whose coordinates differ from those of the features: they are matched by position."""
    of_features = [axis for axis in range(len(source.layout.shape)) if axis != samples_axis]
    with source.open() as data, field.source.open() as reader:
        places = dict(zip(of_features, field.axes, strict=True))
        pairs = [
            (data.coordinate(axis), None if own is None else reader.coordinate(own)) for axis, own in places.items()
        ]
        beside = {(one.coordinate.name, one.axes): one.coordinate for one in reader.auxiliaries()}
        for one in data.auxiliaries():
            along = tuple(own for axis in one.axes if (own := places.get(axis)) is not None)
            pairs += [(one.coordinate, beside.get((one.coordinate.name, along)))] if one.axes else []
        for ours, theirs in pairs:
            if ours is None or theirs is None or ours.name != theirs.name or ours.values.shape != theirs.values.shape:
                continue
            if (differs := difference(theirs, ours)) is not None:
                raise InputError(
                    f"{field.source.layout.name}: position {differs.index} along {ours.name!r} is {differs.found!r}, but "
                    f"{source.layout.name} has {differs.expected!r} there ({differs.count} differ)",
                    "Give it along the coordinates of the input, in their order.",
                    key=key,
                )


@contextmanager
def equal_weights() -> Iterator[Callable[[Box], F64 | None]]:
    """`FeatureWeights.open` where every feature has the weight 1."""
    yield lambda _: None


def _no_broadcast(layout: Layout, shape: Sequence[int], dims: Sequence[str | None], key: str) -> InputError:
    names, own = (f" ({', '.join(map(str, of))})" if any(of) else "" for of in (dims, layout.dims))
    return InputError(
        f"{layout.name}: has shape {layout.shape}{own}, which does not broadcast to the feature axes {tuple(shape)}{names}",
        "Give an array with the shape of the feature axes, or with lengths of 1 for axes along which it is constant; axes that "
        "have names have to have those of the feature axes.",
        key=key,
    )


def _unusable(layout: Layout, box: Box, values: F64, wrong: NDArray[np.bool_]) -> DataError:
    first = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
    index = [int(place) + piece.start for place, piece in zip(first, box, strict=True)]
    return DataError(
        f"{layout.name}: the weight of feature {index} is {values[first]:g}, and {int(wrong.sum())} in region {describe(box)} are "
        "negative or not finite",
        f"Give weights of 0 or more; {PREPROCESS.filters.mask} leaves features out.",
        key="preprocess.weights",
    )
