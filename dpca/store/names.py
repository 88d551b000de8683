"""The names of samples and features of a result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from dpca.sources.calendars import as_names
from dpca.sources.coordinate import Coordinate
from dpca.store.results import Result


class Labelled(Protocol):
    """An object with coordinates: a result, or an analysis that was derived."""

    def coordinate(self, name: str, /) -> Coordinate | None:
        """The coordinate along a dimension, if there is one."""


def sample_names(result: Result, numbers: Sequence[int] | None = None) -> list[str]:
    """The names of all or some samples: from their coordinate, or those of several axes, else their numbers."""
    along = names_by_axis(result, result.sample_dims, range(result.n_samples) if numbers is None else numbers)
    return list(map(" ".join, along))


def names_by_axis(result: Labelled, dims: Sequence[str], numbers: Sequence[int]) -> list[tuple[str, ...]]:
    """The names of some samples along each of their axes."""
    return list(zip(*(names_along(result, dim, numbers) for dim in dims), strict=True))


def names_along(result: Labelled, dim: str, numbers: Sequence[int]) -> list[str]:
    """The names of some positions along a dimension: from its coordinate, else their numbers."""
    coordinate = result.coordinate(dim)
    if coordinate is None:
        return [str(number) for number in numbers]
    if isinstance(numbers, range):
        at, parts = np.array(numbers, np.int64), []
        for piece, values in coordinate.pieces():
            parts.append(values[at[(at >= piece.start) & (at < piece.stop)] - piece.start])
        return as_names(np.concatenate(parts), coordinate.attributes)
    return as_names(np.asarray([coordinate.values[number] for number in numbers]), coordinate.attributes)
