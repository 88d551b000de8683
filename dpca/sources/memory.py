"""NumPy arrays, already in memory and read without a copy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dpca.sources.base import Layout, Reader, Region, Source, check_dtype, shifted, size_of
from dpca.sources.coordinate import Auxiliary, Coordinate
from dpca.sources.missing import type_of_masked, unmasked


class _MemoryReader(Reader):
    def __init__(
        self,
        layout: Layout,
        array: NDArray[Any],
        offset: tuple[int, ...],
        coordinates: Mapping[int, Coordinate],
        auxiliaries: Sequence[Auxiliary],
    ) -> None:
        super().__init__(layout, coordinates=coordinates, auxiliaries=auxiliaries)
        self._array, self._offset = array, offset

    def _read(self, region: Region) -> NDArray[Any]:
        values = self._array[shifted(region, self._offset)]
        return unmasked(values, self.layout.dtype) if isinstance(values, np.ma.MaskedArray) else values


class MemorySource(Source):
    """A NumPy array; masked values count as missing."""

    def __init__(
        self,
        array: NDArray[Any],
        dims: tuple[str | None, ...] = (),
        name: str = "the NumPy array",
        coordinates: Mapping[int, Coordinate] = {},
        auxiliaries: Sequence[Auxiliary] = (),
        units: str = "",
        long_name: str = "",
    ) -> None:
        dtype = check_dtype(name, array.dtype)
        dtype = type_of_masked(dtype) if isinstance(array, np.ma.MaskedArray) else dtype
        fortran = array.flags.f_contiguous and not array.flags.c_contiguous
        order = "F" if fortran else "C"
        self.layout = Layout(
            name, array.shape, dtype, (1,) * array.ndim, order=order, dims=dims, units=units, long_name=long_name
        )
        self._array, self._coordinates, self._auxiliaries = array, coordinates, auxiliaries
        self._offset = (0,) * array.ndim

    def copied(self) -> MemorySource:
        """This source over a copy of the array."""
        labels = self._coordinates, self._auxiliaries, self.layout.units, self.layout.long_name
        return MemorySource(self._array.copy(order="K"), self.layout.dims, self.layout.name, *labels)

    @property
    def in_memory(self) -> bool:
        return True

    def restrict(self, region: Region) -> Self:
        part = object.__new__(type(self))
        part.layout, part._coordinates, part._auxiliaries = self.layout, {}, ()
        part._array = self._array[shifted(region, self._offset)]
        part._offset = tuple(piece.start for piece in region)
        return part

    def held(self, shape: tuple[int, ...]) -> dict[str, int]:
        if isinstance(self._array, np.ma.MaskedArray):
            return {"slab, and where it is masked": 2 * size_of(shape, self.layout.dtype)}
        return {}  # read in place

    @contextmanager
    def open(self) -> Iterator[Reader]:
        yield _MemoryReader(self.layout, self._array, self._offset, self._coordinates, self._auxiliaries)

    def beside(self, name: str) -> Source:
        return of_auxiliary(name, self.layout, self._auxiliaries)

    def stored_bytes(self) -> int | None:
        return self.layout.bytes

    def fingerprint(self) -> dict[str, Any]:
        return {"kind": "numpy", "shape": list(self.layout.shape), "dtype": np.dtype(self.layout.dtype).str}


def of_auxiliary(name: str, layout: Layout, auxiliaries: Sequence[Auxiliary]) -> MemorySource:
    """The coordinate of that name, which is in memory, as a source."""
    one = next(one for one in auxiliaries if one.coordinate.name == name)
    dims = tuple(layout.dims[axis] for axis in one.axes)
    return MemorySource(np.asarray(one.coordinate.values), dims, f"{layout.name}, coordinate {name}")
