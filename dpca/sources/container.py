"""Containers of arrays, HDF5 files and Zarr stores: what an array in one says of those beside it. HDF5 and Zarr implement `Container`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from dpca.sources.anndata_layout import beside_others, chosen, names_beside
from dpca.sources.auxiliary import CHARACTERS, ArrayBeside, as_text, auxiliaries_of, of_characters, paths_beside
from dpca.sources.base import Layout
from dpca.sources.cf import coordinate_of
from dpca.sources.coordinate import Auxiliary, Coordinate, Vector, VectorTooLarge

NamesBeside = Callable[[str, Callable[[str], Any]], dict[int, tuple[str, str]]]
"""Function as `dpca.sources.anndata_layout.names_beside`."""
Listed = tuple[str, tuple[int, ...], str, bool]
"""Path, shape and dtype of an array or sparse matrix, and whether it stands beside another one."""


class Container(ABC):
    """The groups and arrays of a file or store, by path; a node is one of these, as its library has it."""

    shown: str
    """Its path or URL, for error messages."""

    @abstractmethod
    def node(self, path: str) -> Any:
        """The node at a path, the root at ""; None where there is none, or it can't be used."""

    @abstractmethod
    def arrays(self) -> dict[str, Any]:
        """Every array by path; sparse matrices (`Sparse`) in place of the arrays that make them up."""

    @abstractmethod
    def is_array(self, node: Any) -> bool:
        """Whether a node is an array; false for None."""

    @abstractmethod
    def is_readable(self, array: Any) -> bool:
        """Whether values of an array are numbers or text."""

    @abstractmethod
    def attributes(self, node: Any) -> Mapping[str, Any]:
        """The attributes of a node."""

    @abstractmethod
    def dims(self, array: Any) -> Sequence[str | None]:
        """The names of an array's axes; empty where it says nothing of them."""

    @abstractmethod
    def along(self, path: str, axis: int, dim: str | None) -> tuple[str, Any]:
        """Name and array of the coordinate along an axis of the array at a path; None in place of the array where there is none.

        Parameters
        ----------
        dim : the name of the axis
        """

    @abstractmethod
    def vector(self, array: Any, name: str) -> Vector:
        """A small array, to be read in parts while the container is open; `name` in error messages. Large chunks are `VectorTooLarge`."""

    @abstractmethod
    def labels(self, path: str, name: str) -> Callable[[], Vector | None]:
        """A function that opens the array at a path, also when the container is closed; it gives None where values are neither numbers nor text."""

    def meant(self, array: str | None) -> str:
        """Path of the array or sparse matrix of that name; of the only one that can be meant, for None."""
        return chosen(self.shown, self.arrays(), array, self.node)

    def listed(self) -> list[Listed]:
        """Every array and sparse matrix."""
        arrays = self.arrays()
        beside = beside_others(arrays, self.node)
        return [(path, item.shape, str(item.dtype), path in beside) for path, item in arrays.items()]

    def beside(self, path: str, name: str) -> Any:
        """The array that the one at a path names, from the nearest group; None where there is none."""
        nodes = (self.node(at) for at in paths_beside(path, name))
        return next((node for node in nodes if self.is_array(node)), None)

    def names_beside(self, path: str, of: NamesBeside = names_beside) -> Iterator[tuple[int, str, str]]:
        """Axis, name and path of the labels along the axes of a matrix of AnnData, or as `of` finds them; none for any other array."""
        for axis, (name, at) in of(path, self.node).items():
            if self.is_array(self.node(at)):
                yield axis, name, at

    def coordinate(self, path: str, axis: int, layout: Layout, left_out: list[str]) -> Coordinate | None:
        """The coordinate along an axis of the array at a path.

        Parameters
        ----------
        layout : of that array
        left_out : to which the reason is added why it can't be read
        """
        name, array = self.along(path, axis, layout.dims[axis])
        if array is None or not self.is_readable(array):
            return None
        characters = array.dtype == CHARACTERS and len(array.shape) == 2
        if array.shape[: 1 + (not characters)] != (layout.shape[axis],):
            return None
        try:
            values = self.vector(array, f"{layout.name}, coordinate {name}")
        except VectorTooLarge as cause:
            left_out.append(str(cause))
            return None
        values = of_characters(values) if characters else as_text(values)
        return coordinate_of(name, values, self.attributes(array))

    def auxiliaries(
        self, path: str, attributes: Mapping[str, Any], layout: Layout, left_out: list[str]
    ) -> Sequence[Auxiliary]:
        """The coordinates of the array at a path that are no index; `attributes` are its own, other parameters as above."""
        group = self.node(path.strip("/").rpartition("/")[0])
        described = [attributes, {} if group is None else self.attributes(group)]
        return list(auxiliaries_of(layout, described, partial(self._auxiliary, path, layout), left_out))

    def _auxiliary(self, path: str, layout: Layout, name: str) -> ArrayBeside | None:
        array = self.beside(path, name)
        if array is None or not self.is_readable(array):
            return None
        values = self.vector(array, f"{layout.name}, coordinate {name}")
        return ArrayBeside(self.dims(array), values, self.attributes(array))
