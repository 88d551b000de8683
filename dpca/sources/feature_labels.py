"""The group that each feature of an input is in: chromosomes, regions of a brain, layers of a model."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpca.errors import ConfigError, InputError
from dpca.settings import OUTPUT, PREPROCESS
from dpca.slabs import Box, extent
from dpca.units import NAME

KEY = OUTPUT.groups
MOST = 1000
"""More groups than this are labels of something else, most likely."""
Ranges = Mapping[str, Sequence[int]]
"""For each group its name, and the first number of its features and the one behind the last."""


@dataclass(frozen=True, eq=False)
class FeatureLabels:
    """The number of the group of each feature, along the feature axes, or along one of them."""

    names: tuple[str, ...]
    """Names of the groups, in the order in which they first occur."""
    numbers: NDArray[np.integer[Any]]
    """Number of the group, with one axis for each feature axis; of length 1 where the group does not change along it."""
    shape: tuple[int, ...]
    """Lengths of the feature axes."""
    origin: tuple[int, ...] = ()
    """Where `numbers` begin along each axis, if they are those of a part."""

    @property
    def nbytes(self) -> int:
        """Memory that they take."""
        return int(self.numbers.nbytes)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Number of features of each group."""
        each = math.prod(self.shape) // self.numbers.size
        return tuple((np.bincount(self.numbers.ravel(), minlength=len(self.names)) * each).tolist())

    @cached_property
    def digest(self) -> str:
        """Digest that tells these labels from others."""
        found = hashlib.sha256(repr((self.names, self.numbers.shape)).encode())
        found.update(np.ascontiguousarray(self.numbers).tobytes())
        return found.hexdigest()

    def restrict(self, region: Box) -> FeatureLabels:
        """Those of a region of the feature axes, which is then asked for by the same numbers of features as before."""
        inside = self._inside(region)
        origin = tuple(
            start + (piece.start if length > 1 else 0)
            for start, piece, length in zip(self._origin, inside, self.numbers.shape, strict=True)
        )
        return replace(self, numbers=self.numbers[inside].copy(), origin=origin)

    def of(self, box: Box) -> NDArray[np.integer[Any]]:
        """The numbers of the groups of the features of a box, flattened."""
        lengths = extent(box)
        return np.broadcast_to(self.numbers[self._inside(box)], lengths).reshape(-1)

    @property
    def _origin(self) -> tuple[int, ...]:
        return self.origin or (0,) * self.numbers.ndim

    def _inside(self, box: Box) -> Box:
        return tuple(
            slice(0, 1) if length == 1 and whole > 1 else slice(piece.start - start, piece.stop - start)
            for piece, start, length, whole in zip(box, self._origin, self.numbers.shape, self.shape, strict=True)
        )


def of_ranges(ranges: Ranges, shape: Sequence[int], axis: int, name: str) -> FeatureLabels:
    """Groups of features that follow each other along a feature axis.

    Parameters
    ----------
    shape : lengths of the feature axes
    axis : the number of one of these
    name : of the data, for errors
    """
    length = shape[axis]
    numbers = np.full(length, -1, _dtype(len(ranges)))
    for number, (group, (start, stop)) in enumerate(ranges.items()):
        if not 0 <= start < stop <= length:
            raise ConfigError(
                f"{KEY.ranges}.{group} is [{start}, {stop}], but 0 to {length} along the axis of {length:,} features of {name} is allowed",
                "Give the first number, and the one behind the last.",
                key=f"{KEY.ranges.key}.{group}",
            )
        taken = numbers[start:stop]
        if (taken >= 0).any():
            first = start + int(np.argmax(taken >= 0))
            other = list(ranges)[int(numbers[first])]
            raise ConfigError(
                f"{KEY.ranges}: feature {first} of {name} is in {other} and in {group}, but groups do not overlap",
                "Give each feature one group.",
                key=f"{KEY.ranges.key}.{group}",
            )
        taken[...] = number
    if (numbers < 0).any():
        first = int(np.argmax(numbers < 0))
        raise ConfigError(
            f"{KEY.ranges}: feature {first} of {name} is in no group, and {int((numbers < 0).sum()):,} are not in all",
            "Give each feature a group.",
            key=KEY.ranges,
        )
    return _checked(FeatureLabels(tuple(ranges), _along(numbers, shape, axis), tuple(shape)), name)


def of_labels(
    labels: NDArray[Any], shape: Sequence[int], axis: int | None, name: str, place: str, key: str = KEY.key
) -> FeatureLabels:
    """Groups of features by a label for each of them, or for each along a feature axis.

    Parameters
    ----------
    place, key : where labels are, and the key of the configuration that says so, for errors
    shape : lengths of the feature axes
    axis : the number of one of these; None for the only one as long as there are labels
    name : of the data, for errors
    """
    if labels.dtype.kind == "f" and np.isnan(labels).any():
        raise InputError(
            f"{place}: the label of feature {int(np.argmax(np.isnan(labels.ravel())))} is NaN",
            f"Give each feature a label; leave features out with {PREPROCESS.filters.mask}.",
            key,
        )
    fitting = [number for number, length in enumerate(shape) if labels.shape == (length,)]
    if axis is None and labels.shape == tuple(shape):
        placed = labels
    elif len(fitting) == 1 or axis in fitting:
        placed = _along(labels, shape, fitting[0] if axis is None else axis)
    else:
        of = f"its axis {axis} of {shape[axis]:,} features" if axis is not None else f"its feature axes {tuple(shape)}"
        raise InputError(
            f"{place}: has labels of shape {labels.shape}, which does not fit {name}: {of}"
            + (", of which several are that long" if len(fitting) > 1 else ""),
            f"Give a label for each feature, or for each along one axis, which {KEY.axis} names.",
            key,
        )
    found, first, numbers = np.unique(placed, return_index=True, return_inverse=True)
    if len(found) > MOST:
        raise InputError(
            f"{place}: has {len(found):,} different labels, but at most {MOST:,} groups are allowed, each with a matrix of its own",
            "Give labels that many features share.",
            key,
        )
    order = np.argsort(first)
    names = tuple(_called(found[one]) for one in order)
    renumbered = np.empty(len(found), _dtype(len(found)))
    renumbered[order] = np.arange(len(found))
    numbers = renumbered[numbers.reshape(placed.shape)]
    return _checked(FeatureLabels(names, numbers, tuple(shape)), name, place)


def _called(label: Any) -> str:
    """A label as the name of a group: text, or a number as people write it."""
    if isinstance(label, np.floating) and float(label).is_integer():
        return str(int(label))
    return str(label.decode() if isinstance(label, bytes) else label)


def _along(values: NDArray[Any], shape: Sequence[int], axis: int) -> NDArray[Any]:
    """Values along one axis, with the others of length 1."""
    return values.reshape([-1 if number == axis else 1 for number in range(len(shape))])


def _dtype(n: int) -> type[np.integer[Any]]:
    return np.int8 if n < 2**7 else np.int16


def _checked(labels: FeatureLabels, name: str, origin: str = "ranges") -> FeatureLabels:
    if len(labels.names) < 2:
        raise ConfigError(
            f"{KEY}: {origin} put all features of {name} into one group, {labels.names[0]}",
            "Give two groups or more, or leave it out.",
            key=KEY,
        )
    wrong = next((one for one in labels.names if not one or NAME.fullmatch(f"g{one}") is None), None)
    if wrong is not None:
        raise ConfigError(
            f"{KEY}: a group of features of {name} is called {wrong!r}, but letters, digits, - and _ are allowed",
            "Give it another name.",
            key=KEY,
        )
    return labels
