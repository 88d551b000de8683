"""Dask arrays, lazy or persisted. Each span carries only its own part of the graph."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Self

import dask.array as da
import numpy as np
from dask.array.core import slices_from_chunks
from dask.base import optimize
from dask.core import flatten, get_dependencies
from dask.local import get_sync
from numpy.typing import NDArray

from dpca.errors import DataError, InputError
from dpca.sources.base import Layout, Reader, Region, Source, check_dtype, describe, shifted, size_of
from dpca.sources.coordinate import Coordinate
from dpca.sources.missing import keeps_values, type_of_masked, unmasked

SHARING_PROBES = 8
SHARING_LIMIT = 2.0
IMPORTS_BYTES = 24 * 2**20
"""dask.array imports pandas and xarray where they are installed, 75 MiB in all: more than the allowance for libraries."""


class _DaskReader(Reader):
    def __init__(
        self,
        layout: Layout,
        array: da.Array,
        offset: tuple[int, ...],
        coordinates: Mapping[int, Coordinate],
    ) -> None:
        super().__init__(layout, coordinates=coordinates)
        self._array, self._offset = array, offset

    def _read(self, region: Region) -> NDArray[Any]:
        # The task that accumulates a slab also computes it, in its own thread. Its blocks are put together here: where one is
        # smaller than declared, Dask would leave memory that nobody wrote.
        (slab,) = optimize(self._array[shifted(region, self._offset)])
        blocks = get_sync(dict(slab.__dask_graph__() or {}), list(flatten(slab.__dask_keys__())))
        values = self._buffer.view(slab.shape, self.layout.dtype)
        for place, block in zip(slices_from_chunks(slab.chunks), blocks, strict=True):
            values[place] = unmasked(self._checked(block, place, region), self.layout.dtype)
        return values

    def _checked(self, block: Any, place: Region, region: Region) -> NDArray[Any]:
        """A block at a place in a region, if it is what the array declares.

        Raises
        ------
        DataError
            When it is no array, has another shape, or a dtype whose values the declared one can't keep.
        """
        whole = tuple(slice(p.start + r.start, p.stop + r.start) for p, r in zip(place, region, strict=True))
        where, dtype = f"{self.layout.name}: the block of region {describe(whole)}", self._array.dtype
        if not hasattr(block, "dtype") or hasattr(block, "toarray"):
            raise DataError(
                f"{where} is a {type(block).__module__}.{type(block).__name__}, and no array of NumPy",
                "Convert blocks: x.map_blocks(lambda block: block.toarray(), dtype=x.dtype, meta=numpy.empty((0, 0)))."
                if hasattr(block, "toarray")
                else "Have its function return arrays: numpy.asarray(...).",
            )
        values: NDArray[Any] = block if isinstance(block, np.ma.MaskedArray) else np.asarray(block)
        shape = tuple(piece.stop - piece.start for piece in place)
        if values.shape != shape:
            raise DataError(
                f"{where} has shape {values.shape}, but {shape} is declared",
                "Declare the shapes that blocks have, in da.from_delayed or as chunks= of map_blocks.",
            )
        if not keeps_values(values.dtype, dtype):
            raise DataError(
                f"{where} is of dtype {values.dtype}, but {dtype} is declared, which can't keep all of its values",
                "Declare the dtype that blocks have, in da.from_delayed or as dtype= of map_blocks, or convert blocks there.",
            )
        return values


class DaskSource(Source):
    """A Dask array.

    The graph is optimized once; each span culls it to its own blocks, so that the data sent to a worker do
    not grow with the array. Blocks held by a cluster (`persist`) are passed to the span's task as inputs.
    This is no dataclass on purpose: Dask would look inside one and merge the graphs again.

    Raises
    ------
    InputError
        When chunk sizes are unknown, or when slabs share so much of the graph that computing one slab
        computes most of it.
    """

    def __init__(
        self,
        array: da.Array,
        dims: tuple[str | None, ...] = (),
        name: str = "the Dask array",
        coordinates: Mapping[int, Coordinate] = {},
    ) -> None:
        if any(np.isnan(size) for sizes in array.chunks for size in sizes):
            raise InputError(
                f"{name}: has unknown chunk sizes, chunks {array.chunks}", "Call compute_chunk_sizes() on it first."
            )
        dtype = check_dtype(name, array.dtype)
        dtype = type_of_masked(dtype) if isinstance(array._meta, np.ma.MaskedArray) else dtype
        self.layout = Layout(name, array.shape, dtype, array.chunks, dims=dims)
        # Optimizing drops futures from the graph and keeps only their keys.
        self._futures = {key: value for key, value in dict(array.__dask_graph__() or {}).items() if _is_future(value)}
        (self._array,) = optimize(array)
        self._offset, self._coordinates = (0,) * array.ndim, coordinates

    def check_sharing(self, regions: Iterable[Region], n_regions: int) -> None:
        """Refuse an array whose slabs each need most of the graph, such as x - x.mean().

        Counts the tasks of a few slabs, evenly spaced: if slabs shared nothing, all together would have as
        many tasks as the whole graph. x - x.mean(axis=0) shares along samples only, and is accepted.
        """
        total = len(dict(self._array.__dask_graph__() or {}))
        step = max(1, n_regions // SHARING_PROBES)
        counts = [_tasks(self._array[region]) for number, region in enumerate(regions) if number % step == 0]
        if not counts:
            return
        # A slab adds a slicing task, and perhaps an alias, for each of its blocks: allow for these.
        computed = sum(counts) / len(counts) * n_regions
        if n_regions > 1 and computed > SHARING_LIMIT * (total + len(counts)) + 4 * self._array.npartitions:
            raise InputError(
                f"{self.layout.name}: its slabs share ancestors: computing them one by one runs about "
                f"{computed:,.0f} tasks where the whole graph has {total:,}",
                "Call persist() on it if it fits memory, or write it to Zarr once and give that. "
                "(dpca centres by itself: x - x.mean() is not needed.)",
            )

    def restrict(self, region: Region) -> Self:
        part = object.__new__(type(self))
        part.layout, part._coordinates = self.layout, {}
        (part._array,) = optimize(self._array[shifted(region, self._offset)])
        part._offset = tuple(piece.start for piece in region)
        part._futures = {}
        if self._futures:
            graph = {**dict(part._array.__dask_graph__() or {}), **dict.fromkeys(self._futures)}
            needed = {*flatten(part._array.__dask_keys__())}.union(*(get_dependencies(graph, key) for key in graph))
            part._futures = {key: value for key, value in self._futures.items() if key in needed}
        return part

    @property
    def blocks(self) -> Mapping[Any, Any]:
        return self._futures

    def with_blocks(self, blocks: Mapping[Any, NDArray[Any]]) -> Self:
        part = object.__new__(type(self))
        part.layout, part._coordinates, part._offset, part._futures = self.layout, {}, self._offset, {}
        graph = {**dict(self._array.__dask_graph__() or {}), **blocks}
        part._array = da.Array(graph, self._array.name, self._array.chunks, meta=self._array._meta)
        return part

    def __getstate__(self) -> dict[str, Any]:
        # Futures travel as inputs of the task, and Dask replaces them by their blocks.
        return {**self.__dict__, "_futures": {}}

    def held(self, shape: tuple[int, ...]) -> dict[str, int]:
        # Dask computes blocks and joins them; intermediate values of the graph are not counted.
        size = size_of(shape, self.layout.dtype)
        return {"slab": size, "blocks that Dask computes": size, "Dask's imports, shared by the tasks": IMPORTS_BYTES}

    @contextmanager
    def open(self) -> Iterator[Reader]:
        yield _DaskReader(self.layout, self._array, self._offset, self._coordinates)

    def fingerprint(self) -> dict[str, Any]:
        return {"kind": "dask", "name": self._array.name, "shape": list(self.layout.shape)}


def _tasks(array: da.Array) -> int:
    (culled,) = optimize(array)
    return len(dict(culled.__dask_graph__() or {}))


def _is_future(value: Any) -> bool:
    # By name, without an import: a persisted array exists only where distributed is loaded already.
    return type(value).__name__ == "Future" and type(value).__module__.startswith("distributed")
