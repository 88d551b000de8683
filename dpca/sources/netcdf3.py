"""Classic netCDF files, read by offset: versions CDF-1, CDF-2 (64-bit offsets) and CDF-5 (64-bit data).

The format: "The NetCDF Classic Format Specification", Unidata (appendix of the NetCDF Users Guide), and for CDF-5
"File Format Specification for CDF-5", PnetCDF. A header names dimensions and variables. A variable lies in one piece, unless
its first dimension is the record dimension: records of all such variables follow each other, padded to 4 bytes each.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpca.errors import InputError
from dpca.slabs import extent
from dpca.sources.anndata_layout import beside_others, chosen
from dpca.sources.auxiliary import ArrayBeside, auxiliaries_of
from dpca.sources.base import Layout, Reader, Region, Source, check_dtype, size_of
from dpca.sources.cf import about_values, cf_attributes, coordinate_of, netcdf_fill
from dpca.sources.coordinate import Auxiliary, Coordinate, Parts, Vector, VectorTooLarge
from dpca.sources.file import FileSource
from dpca.sources.runs import TOGETHER_BYTES, read_block
from dpca.system import regular

MAGICS = (b"CDF\x01", b"CDF\x02", b"CDF\x05")
HEADER_BYTES = 2**23
"""Most bytes of a header: one of ten thousand variables has two million."""
MOST_AXES = 64
"""Most axes, which NumPy has, too."""
TYPES = tuple(map(np.dtype, ("i1", "S1", ">i2", ">i4", ">f4", ">f8", "u1", ">u2", ">u4", ">i8", ">u8")))
"""From type 1 on: byte, char, short, int, float, double; those of CDF-5 alone are unsigned, or have 64 bits."""
N_CLASSIC_TYPES = 6
_DIMENSIONS, _VARIABLES, _ATTRIBUTES = 10, 11, 12
"""The tags of the lists of a header."""


@dataclass(frozen=True)
class Variable:
    """A variable, by what the header says of it."""

    dims: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    attrs: dict[str, Any]
    """Its attributes, by the name that h5py and zarr have for them."""
    begin: int
    """Byte at which its values begin."""
    step: int | None
    """Bytes from a record to the next; None where it has no record dimension."""

    @property
    def end(self) -> int:
        """Byte at which its values end."""
        if self.step is None:
            return self.begin + size_of(self.shape, self.dtype)
        n_records, *of_record = self.shape
        return self.begin + max(0, n_records - 1) * self.step + bool(n_records) * size_of(of_record, self.dtype)

    def read(self, file: Any, region: Region, target: NDArray[Any], name: str) -> None:
        """Fill a contiguous array of the region's shape and the stored dtype; errors as of `read_block`."""
        axes = (1,) * max(0, (1 if self.step is None else 2) - len(self.shape))
        whole = tuple(slice(0, 1) for _ in axes)
        target = target.reshape(target.shape + axes)
        read_block(file, self.begin, self.shape + axes, region + whole, target, name, self.step)


class _Header:
    """The bytes of a header, taken one after another; none are read beyond `HEADER_BYTES`.

    Its methods raise ValueError, which says what is wrong.
    """

    def __init__(self, file: Any, n_bytes: int) -> None:
        self._file, self._left = file, HEADER_BYTES
        self._n_bytes = n_bytes
        version = self._take(4)
        if version not in MAGICS:
            raise ValueError(f"it begins with {version!r}")
        self._count_bytes = 8 if version == MAGICS[2] else 4
        self._offset_bytes = 4 if version == MAGICS[0] else 8
        self._types = TYPES if version == MAGICS[2] else TYPES[:N_CLASSIC_TYPES]

    def variables(self) -> dict[str, Variable]:
        """The variables, by name."""
        n_records = self._count()
        dims = [(self._name(), self._count()) for _ in self._listed(_DIMENSIONS)]
        if len({name for name, _ in dims}) < len(dims):
            raise ValueError("two dimensions have the same name")
        self._attributes()  # of the file
        found = [(self._name(), self._described(dims)) for _ in self._listed(_VARIABLES)]
        of_records = [variable for _, variable in found if variable.step is not None]
        step = sum(_padded(_record_bytes(variable)) for variable in of_records)
        if len(of_records) == 1:  # alone, it is not padded
            step = _record_bytes(of_records[0])
        if n_records == 2 ** (8 * self._count_bytes) - 1:
            n_records = self._streamed(of_records, step)
        return {
            name: variable
            if variable.step is None
            else replace(variable, shape=(n_records, *variable.shape[1:]), step=step)
            for name, variable in found
        }

    def _streamed(self, of_records: list[Variable], step: int) -> int:
        """The number of whole records up to the end of the file, where the header leaves it open."""
        if not of_records:
            return 0
        last = max(of_records, key=lambda variable: variable.begin)
        return max(0, (self._n_bytes - last.begin - _record_bytes(last)) // step + 1)

    def _described(self, dims: list[tuple[str, int]]) -> Variable:
        """Description after the name of a variable; the length of records is not known yet."""
        n_axes = self._count()
        if n_axes > MOST_AXES:
            raise ValueError(f"a variable has {n_axes} dimensions, and {MOST_AXES} at most are allowed")
        numbers = [self._count() for _ in range(n_axes)]
        if max(numbers, default=-1) >= len(dims):
            raise ValueError(f"a variable has dimension {max(numbers)}, but there are {len(dims)}")
        names, shape = tuple(dims[number][0] for number in numbers), tuple(dims[number][1] for number in numbers)
        if 0 in shape[1:]:
            raise ValueError("a variable has the record dimension, of length 0, in another place than the first")
        attributes, dtype = self._attributes(), self._type()
        self._count()  # its size, which follows from the shape, and has too few digits for a large variable
        begin = self._number(self._offset_bytes)
        return Variable(names, shape, dtype, attributes, begin, 0 if shape[:1] == (0,) else None)

    def _attributes(self) -> dict[str, Any]:
        return {self._name(): self._values() for _ in self._listed(_ATTRIBUTES)}

    def _values(self) -> Any:
        """The value of an attribute: a text, or an array of numbers in the byte order of this machine."""
        dtype, count = self._type(), self._count()
        content = self._padded_bytes(count * dtype.itemsize)
        if dtype.kind == "S":
            return content.decode(errors="replace").rstrip("\0")
        return np.frombuffer(content, dtype).astype(dtype.newbyteorder("="))

    def _listed(self, tag: int) -> range:
        """The numbers of the items of a list."""
        found, count = self._number(4), self._count()
        if found != tag and (found or count):
            raise ValueError(f"a list has the tag {found}, not {tag}")
        return range(count)

    def _type(self) -> np.dtype[Any]:
        number = self._number(4)
        if not 1 <= number <= len(self._types):
            raise ValueError(f"values are of type {number}, and types 1 to {len(self._types)} are allowed")
        return self._types[number - 1]

    def _name(self) -> str:
        return self._padded_bytes(self._count()).decode(errors="replace")

    def _padded_bytes(self, count: int) -> bytes:
        return self._take(_padded(count))[:count]

    def _count(self) -> int:
        return self._number(self._count_bytes)

    def _number(self, n_bytes: int) -> int:
        return int.from_bytes(self._take(n_bytes), "big")

    def _take(self, n_bytes: int) -> bytes:
        if n_bytes > self._left:
            raise ValueError(f"it is longer than {HEADER_BYTES} bytes")
        self._left -= n_bytes
        content: bytes = self._file.read(n_bytes)
        if len(content) < n_bytes:
            raise ValueError("the file ends within it")
        return content


def _padded(n_bytes: int) -> int:
    return -(-n_bytes // 4) * 4


def _record_bytes(variable: Variable) -> int:
    return size_of(variable.shape[1:], variable.dtype)


def variables_of(path: str) -> dict[str, Variable]:
    """The variables of a file, by name."""
    try:
        with regular.opened(path) as file:
            return _Header(file, os.fstat(file.fileno()).st_size).variables()
    except ValueError as cause:
        raise InputError(
            f"{path}: its netCDF header can't be read: {cause}",
            "It is damaged or truncated: copy it again from its source.",
            key="input.uri",
        ) from cause


class _Netcdf3Reader(Reader):
    def __init__(self, source: Netcdf3Source, file: Any) -> None:
        super().__init__(source.layout)
        self._file, self._path, self._variable = file, source.path, source.variable
        self._indexes, self._others = source.indexes, source.others

    def _read(self, region: Region) -> NDArray[Any]:
        out = self._buffer.view(extent(region), self.layout.in_storage)
        self._variable.read(self._file, region, out, self.layout.name)
        return out

    def coordinate(self, axis: int) -> Coordinate | None:
        dim = self._variable.dims[axis]
        if (variable := self._indexes.get(dim)) is None:
            return None
        try:
            vector = _vector_of(self._path, variable, f"{self.layout.name}, coordinate {dim}")
        except VectorTooLarge as cause:
            self.left_out.append(str(cause))
            return None
        return coordinate_of(dim, vector, variable.attrs)

    def auxiliaries(self) -> Sequence[Auxiliary]:
        def beside(name: str) -> ArrayBeside | None:
            if (variable := self._others.get(name)) is None:
                return None
            vector = _vector_of(self._path, variable, f"{self.layout.name}, coordinate {name}")
            return ArrayBeside(variable.dims[: len(vector.shape)], vector, variable.attrs)

        return list(auxiliaries_of(self.layout, [self._variable.attrs], beside, self.left_out))


class Netcdf3Source(FileSource):
    """A variable of a classic netCDF file, which each task opens anew.

    Parameters
    ----------
    path : the file
    array : name of the variable; may be left out if only one has two or more axes
    """

    kind = "netcdf3"

    def __init__(self, path: str | Path, array: str | None = None) -> None:
        super().__init__(path)
        variables = variables_of(self.path)
        self._array = chosen(self.path, variables, array, _no_node)
        self.variable = variable = variables[self._array]
        self.indexes = {
            dim: variables[dim] for dim in variable.dims if dim in variables and _is_coordinate(dim, variables[dim])
        }
        """The coordinates, by dimension."""
        said = str(variable.attrs.get("coordinates", "")).split()
        self.others = {name: variables[name] for name in said if name in variables and name not in variable.dims}
        """Those that are no index, by name."""
        name = f"{self.path}:{self._array}"
        check_dtype(name, variable.dtype)
        _check_whole(self.path, name, variable)
        self.layout = Layout(
            name,
            variable.shape,
            chunks=(1,) * len(variable.shape),
            dims=variable.dims,
            **cf_attributes(name, variable.attrs, variable.dtype, netcdf_fill(variable.dtype)),
        )

    def held(self, shape: tuple[int, ...]) -> dict[str, int]:
        slab = {"slab": size_of(shape, self.layout.dtype)}
        return slab if self.variable.step is None else {**slab, "records that are read together": TOGETHER_BYTES}

    @contextmanager
    def open(self) -> Iterator[Reader]:
        with regular.opened(self.path) as file:
            yield _Netcdf3Reader(self, file)

    def beside(self, name: str) -> Source:
        return Netcdf3Source(self.path, name)

    def stored_bytes(self) -> int | None:
        return self.layout.bytes

    @property
    def place(self) -> tuple[str, str | None] | None:
        return os.path.abspath(self.path), self._array

    def fingerprint(self) -> dict[str, Any]:
        return {**super().fingerprint(), "array": self._array}


def _is_coordinate(dim: str, variable: Variable) -> bool:
    """Whether a variable with the name of a dimension has a value for each entry along it: a number, or a text of characters."""
    return variable.dims[:1] == (dim,) and len(variable.dims) <= 1 + (variable.dtype.kind == "S")


def _check_whole(path: str, name: str, variable: Variable) -> None:
    """Refuse a variable that ends after its file does."""
    n_bytes = os.path.getsize(path)
    if variable.end > n_bytes:
        raise InputError(
            f"{name}: the file has {n_bytes:,} bytes, but by its header values of shape {variable.shape} end at byte "
            f"{variable.end:,}",
            "It was truncated: copy it again from its source.",
            key="input.uri",
        )


def list_variables(path: str) -> list[tuple[str, tuple[int, ...], str, bool]]:
    """Name, shape and dtype of every variable of a file, and whether it stands beside another one."""
    variables = variables_of(path)
    beside = beside_others(variables, _no_node)
    return [(name, variable.shape, str(variable.dtype), name in beside) for name, variable in variables.items()]


def _no_node(path: str) -> None:
    """Node at a path of groups: none, since this format has no groups."""


def read_vector(path: str, array: str) -> Vector | None:
    """A small variable of a file, which is opened anew for each read; None if there is no such variable."""
    variable = variables_of(path).get(array.strip("/"))
    if variable is None:
        return None
    _check_whole(path, f"{path}:{array}", variable)
    return replace(_vector_of(path, variable, f"{path}:{array}"), attributes=about_values(variable.attrs))


def _vector_of(path: str, variable: Variable, name: str) -> Vector:
    """A variable as a small array, in the byte order of this machine; characters along its last axis are one text."""
    length, text = math.prod(variable.shape[1:]), variable.dtype.kind == "S"
    dtype = np.dtype(f"U{max(1, length)}") if text else variable.dtype.newbyteorder("=")
    shape = variable.shape[:1] if text else variable.shape
    parts = Parts.of_rows(dtype, shape)
    Vector.check(name, parts)

    def read(piece: slice) -> NDArray[Any]:
        region = (piece, *(slice(0, size) for size in variable.shape[1:]))[: len(variable.shape)]
        stored: NDArray[Any] = np.empty([part.stop - part.start for part in region], variable.dtype)
        with regular.opened(path) as file:
            variable.read(file, region, stored, name)
        if not text:
            return stored.astype(dtype)
        return np.char.decode(stored.reshape(len(stored), -1).view(f"S{max(1, length)}")[:, 0], "utf-8", "replace")

    return Vector(name, shape, dtype, read, parts)
