"""A result that stays in this process: its arrays are NumPy's, and are neither encoded nor copied to files."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpca.errors import InputError
from dpca.slabs import Box
from dpca.sources.coordinate import Coordinate, Parts
from dpca.store import meanings
from dpca.store.outputs import FORMAT_VERSION, Kind, Outputs, Whole, whole_region
from dpca.store.stored import COORDINATES, RESTORE, SAMPLES_AXES, Stored


@dataclass
class Held:
    """An array in memory, with the interface of `Stored`, and of a zarr.Array as far as `Outputs` uses it."""

    name: str
    values: NDArray[Any] | None
    """None where someone else has them now."""
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    chunks: tuple[int, ...]
    dims: tuple[str, ...]
    attributes: dict[str, Any]
    fill: Any = 0.0
    whole: bool = True
    """Whether it was written."""

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of its values."""
        return self.size * self.dtype.itemsize

    @property
    def text(self) -> bool:
        """Whether values are strings."""
        return self.dtype.kind not in "biufc"

    @property
    def metadata(self) -> Any:
        return SimpleNamespace(dimension_names=self.dims)

    @property
    def as_coordinate(self) -> Coordinate:
        """This array as a coordinate that is copied and compared piece by piece."""
        return Coordinate(self.name, self, Parts.of_rows(self.dtype, self.shape), self.attributes)

    def _all(self) -> NDArray[Any]:
        """The values, not to be changed."""
        if self.values is None:
            raise InputError(f"the values of {self.name} are not kept here", RESTORE)
        return self.values

    def __getitem__(self, region: Any) -> Any:
        """A copy of values, indexed as in NumPy."""
        found = self._all()[region]
        return found.copy() if isinstance(found, np.ndarray) else found

    def __setitem__(self, region: Any, values: Any) -> None:
        self._all()[region] = values
        self.whole = True

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self._all(), dtype)

    def rows(self, numbers: NDArray[np.int64]) -> NDArray[Any]:
        """Some rows, in any order."""
        return self._all()[numbers]

    def lazy(self) -> Any:
        """This array as a Dask array."""
        import dask.array as da

        return da.from_array(self._all(), chunks=self.shape)  # type: ignore[no-untyped-call]

    @property
    def described(self) -> dict[str, Any]:
        """Description of the array, see `dpca.store.stored.described`."""
        return {
            "shape": list(self.shape),
            "dtype": "text" if self.text else self.dtype.str,
            "chunks": list(self.chunks),
            "dims": list(self.dims),
            "attributes": dict(self.attributes),
        }


class HeldArrays(Mapping[str, Stored]):
    """The arrays of a result in memory, with the interface of `Arrays`."""

    def __init__(self, arrays: Mapping[str, Held], attributes: Mapping[str, Any]) -> None:
        self._arrays, self._attributes = dict(arrays), dict(attributes)

    @property
    def attributes(self) -> dict[str, Any]:
        return dict(self._attributes)

    def __getitem__(self, name: str) -> Stored:
        return self._arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._arrays))

    def __len__(self) -> int:
        return len(self._arrays)

    def let_go(self, name: str) -> None:
        """Release the values of an array: it can't be read any more."""
        if name in self._arrays:
            self._arrays[name] = replace(self._arrays[name], values=None)


@dataclass
class _Group:
    arrays: dict[str, Held] = field(default_factory=dict)
    attributes: dict[str, Any] = field(default_factory=dict)


class HeldOutputs(Outputs):
    """A group of arrays under construction that stays in this process; threads write to it."""

    def __init__(self) -> None:
        super().__init__("")
        self._group = _Group()

    @property
    def directory(self) -> None:
        return None

    def _called(self, name: str) -> str:
        return name

    def guarded_by(self, guard: AbstractContextManager[Any]) -> HeldOutputs:
        """This group itself: tasks write different places of arrays, which have no chunks that they could share."""
        return self

    @property
    def result(self) -> HeldArrays:
        """The arrays, for reading."""
        return HeldArrays(self._group.arrays, self._group.attributes)

    def create(self, attributes: Mapping[str, Any]) -> None:
        self._group.attributes = {"format_version": FORMAT_VERSION, **attributes}

    def _put(self, arrays: Mapping[str, Whole]) -> None:
        for name, whole in arrays.items():
            self._count(name, whole.values.shape, whole.dims)
        for name, whole in {**arrays, **self._numbers()}.items():
            values = (
                whole.values.astype(np.dtypes.StringDType()) if whole.dtype is str else whole.values.astype(whole.dtype)
            )
            self._keep(name, values, whole.chunks or values.shape, whole.dims, whole.attributes)

    def _keep(
        self, name: str, values: NDArray[Any], chunks: Sequence[int], dims: Sequence[str], attributes: Mapping[str, Any]
    ) -> None:
        about = meanings.described(name, attributes, self.unit)
        self._group.arrays[name] = Held(name, values, values.shape, values.dtype, tuple(chunks), tuple(dims), about)

    def _create(self, name: str, kind: Kind, dims: tuple[str, ...], attributes: Mapping[str, Any]) -> None:
        shape, chunks, dtype, fill = kind
        # Made here and not by the first writer: several threads may be the first. Zeros take no memory before.
        values = np.full(shape, fill, dtype) if fill else np.zeros(shape, dtype)
        self._group.arrays[name] = Held(
            name, values, values.shape, values.dtype, chunks, dims, dict(attributes), fill, whole=False
        )

    def write_part(self, name: str, region: Box, values: NDArray[Any]) -> None:
        array = self.array(name)
        array[whole_region(array, region)] = values

    def read_part(self, name: str, region: Box, unwritten: bool = False) -> NDArray[Any]:
        array = self.array(name)
        return np.ascontiguousarray(array[whole_region(array, region)])

    def damage(self, name: str, region: Box | None = None) -> str | None:
        return None

    def inventory(self, finished: bool = False) -> dict[str, Any]:
        return {
            name: {"array": one.described, "chunks_written": int(one.whole)}
            for name, one in sorted(self._group.arrays.items())
        }

    def __contains__(self, name: str) -> bool:
        return name in self._group.arrays

    def remove(self, name: str) -> None:
        self._group.arrays.pop(name, None)

    def rename(self, name: str, new: str) -> None:
        self._group.arrays[new] = replace(self._group.arrays.pop(name), name=new)

    def copy(self, name: str, stored: Stored, values: NDArray[Any] | None = None) -> None:
        found = np.array(stored[...] if values is None else values, stored.dtype)
        self._count(name, stored.shape, stored.dims)
        self._group.arrays[name] = Held(
            name,
            found,
            stored.shape,
            stored.dtype,
            stored.chunks,
            stored.dims,
            stored.attributes,
            stored.fill,
            stored.whole or values is not None,
        )

    def write_coordinate(self, name: str, coordinate: Coordinate, *dims: str) -> None:
        values = np.asarray(coordinate.values[...])
        values = (
            values.astype(np.dtypes.StringDType()) if coordinate.text else values.astype(values.dtype.newbyteorder("="))
        )
        about = meanings.described(name, coordinate.attributes, None)
        own = dims or ((name,) if values.shape else ())
        self._group.arrays[name] = Held(name, values, values.shape, values.dtype, values.shape, own, about)

    def name_coordinates(self, names: Sequence[str], samples_axes: Mapping[str, int] = {}) -> None:
        if names:
            said = str(self._group.attributes.get(COORDINATES, "")).split()
            self._group.attributes[COORDINATES] = " ".join(dict.fromkeys([*said, *names]))
            if samples_axes:
                self._group.attributes[SAMPLES_AXES] = dict(samples_axes)

    def array(self, name: str) -> Any:
        return self._group.arrays[name]

    def gather(self) -> None:
        """Nothing: chunks are no files."""

    def finish(self) -> None:
        if self._unnumbered:
            self._put({})
