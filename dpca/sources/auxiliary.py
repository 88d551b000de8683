"""Coordinates of files that are no index, and those of characters: what an array in a file says of the arrays beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpca.sources.base import Layout
from dpca.sources.cf import coordinate_of, text_of
from dpca.sources.coordinate import Auxiliary, Vector, VectorTooLarge

CHARACTERS = np.dtype("S1")
"""The type of netCDF for text, with an axis along the characters of each."""


@dataclass(frozen=True)
class ArrayBeside:
    """An array beside the data."""

    dims: Sequence[str | None]
    """Names of its axes."""
    values: Vector
    attributes: Mapping[str, Any]


def auxiliaries_of(
    layout: Layout,
    attributes: Sequence[Mapping[str, Any]],
    beside: Callable[[str], ArrayBeside | None],
    left_out: list[str],
) -> Iterator[Auxiliary]:
    """The coordinates that attributes name (`coordinates`; CF conventions 1.11, section 5), along axes of the data.

    Parameters
    ----------
    attributes : of the array, and of its group, where xarray names those that belong to no array alone
    beside : the array of that name; None where there is none that can be a coordinate
    left_out : to which the reasons are added why some can't be read
    """
    texts = [text_of(of.get("coordinates")) for of in attributes]
    names = [name for text in texts if isinstance(text, str) for name in text.split()]
    for name in dict.fromkeys(names):
        try:
            found = beside(name)
        except VectorTooLarge as cause:
            left_out.append(str(cause))
            continue
        if found is None or found.dims == (name,):
            continue
        dims, values = tuple(found.dims), found.values
        if values.dtype.kind in "OSU" and dims and dims[-1] not in layout.dims:
            dims, values = dims[:-1], of_characters(values)
        axes = _axes_of(dims, layout)
        if axes is None:
            continue
        if values.shape == tuple(layout.shape[axis] for axis in axes):
            yield Auxiliary(axes, coordinate_of(name, as_text(values), found.attributes))


def _axes_of(dims: Sequence[str | None], layout: Layout) -> tuple[int, ...] | None:
    """The axes of the data with these names; where neither has names, the last ones, as NumPy broadcasts. None if there are none."""
    if not any(dims) and not any(layout.dims):
        return (
            tuple(range(len(layout.shape) - len(dims), len(layout.shape))) if len(dims) <= len(layout.shape) else None
        )
    found = tuple(layout.dims.index(dim) for dim in dims if dim in layout.dims and dim is not None)
    return found if len({*found}) == len(dims) else None


def paths_beside(array: str, name: str) -> list[str]:
    """Where an array that another one names may be: beside it, or in a group further out; the nearest first (CF 1.11, section 2.7)."""
    above = array.strip("/").split("/")[:-1]
    return ["/".join((*above[:level], name.strip("/"))) for level in reversed(range(len(above) + 1))]


def as_text(vector: Vector) -> Vector:
    """Bytes as text; others as they are."""
    if vector.dtype.kind != "S":
        return vector
    width = max(1, vector.dtype.itemsize)
    return replace(vector, dtype=np.dtype(f"U{width}"), read=lambda piece: _decoded(np.asarray(vector.read(piece))))


def of_characters(vector: Vector) -> Vector:
    """Texts whose characters lie along the last axis."""
    *shape, length = vector.shape

    def read(piece: slice) -> NDArray[Any]:
        values = _decoded(np.asarray(vector.read(piece)))
        texts: NDArray[Any] = np.empty(values.shape[:-1], object)
        for index in np.ndindex(texts.shape):
            texts[index] = "".join(values[index]).rstrip("\0 ")
        return texts

    dtype = np.dtype(object)
    parts = replace(vector.parts, width=max(1, length))
    return replace(vector, shape=tuple(shape), dtype=dtype, read=read, parts=parts)


def _decoded(values: NDArray[Any]) -> NDArray[Any]:
    return np.char.decode(values, "utf-8", "replace") if values.dtype.kind == "S" else values
