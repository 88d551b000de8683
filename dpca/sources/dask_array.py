"""Dask arrays, lazy or persisted. Each span carries only its own part of the graph."""

from __future__ import annotations

import traceback
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import accumulate, product
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

import dask.array as da
import numpy as np
import zarr
from dask._task_spec import DataNode
from numpy.typing import NDArray
from scipy.sparse import issparse

from dpca.errors import DataError, DpcaError, InputError, NotSeenError, StorageError
from dpca.slabs import extent
from dpca.sources.base import Layout, Reader, Region, Source, check_dtype, describe, size_of, within
from dpca.sources.coordinate import Auxiliary, Coordinate
from dpca.sources.dask_graph import Futures, Graph, computed, graph_of, is_future, needed, objects_in
from dpca.sources.memory import of_auxiliary
from dpca.sources.missing import keeps_values, type_of_masked, unmasked
from dpca.sources.zarr_witness import Witness, made_absolute

SHARING_PROBES = 8
SHARING_LIMIT = 2.0
IMPORTS_BYTES = 24 * 2**20
"""dask.array imports pandas and xarray where they are installed, 75 MiB in all: more than the allowance for libraries."""
GONE = ("cancelled", "lost", "error")
"""States of a block on a cluster that will never be there."""
FRAMES = 4
"""Lines of code that the message of a function that failed quotes."""


class _Stores:
    """The Zarr arrays that a graph reads, and what the process that began saw of them."""

    def __init__(self, arrays: Iterable[zarr.Array[Any]]) -> None:
        self._arrays = tuple(arrays)
        for array in self._arrays:
            made_absolute(array.store)
        self._witnesses: tuple[Witness | None, ...] | None = None

    def __getstate__(self) -> dict[str, Any]:
        # For another process, perhaps on another host.
        if self._witnesses is None:
            self._witnesses = tuple(map(Witness.of, self._arrays))
        return self.__dict__

    def check(self, name: str) -> None:
        """Refuse arrays that this process does not see, or not all chunks of."""
        for array, witness in zip(self._arrays, self._witnesses or (), strict=False):
            if witness is not None:
                witness.check(array, name, all_chunks=True)


class _DaskReader(Reader):
    def __init__(self, source: DaskSource) -> None:
        super().__init__(source.layout, coordinates=source.coordinates, auxiliaries=source.auxiliaries)
        self._source = source

    def _read(self, region: Region) -> NDArray[Any]:
        # The task that accumulates a slab also computes it, in its own thread. Its blocks are put together here: where one is
        # smaller than declared, Dask would leave memory that nobody wrote.
        source, shape = self._source, extent(region)
        values = self._buffer.view(shape, self.layout.dtype)
        places = list(source.places_of(region))
        keys = [source.key(index) for index, _ in places]
        found = source.values_of(keys)
        for _, whole in places:
            try:
                block = next(found)
            except DpcaError:
                raise
            except Exception as cause:
                if isinstance(cause, OSError | MemoryError):
                    raise
                raise self._failed(whole, cause) from cause
            block = self._checked(block, whole)
            both = tuple(
                slice(max(piece.start, at.start), min(piece.stop, at.stop))
                for piece, at in zip(region, whole, strict=True)
            )
            values[within(both, region)] = unmasked(_dense(block, within(both, whole)), self.layout.dtype)
        return values

    def _checked(self, block: Any, whole: Region) -> Any:
        """A block, sparse or not, if it is what the array declares."""
        where, dtype = f"{self.layout.name}: the block of region {describe(whole)}", self._source.dtype
        if not hasattr(block, "dtype"):
            raise DataError(
                f"{where} is a {type(block).__module__}.{type(block).__name__}, and no array of NumPy, nor a sparse one",
                "Have its function return arrays: numpy.asarray(...).",
            )
        values: Any = block if isinstance(block, np.ma.MaskedArray) or _is_sparse(block) else np.asarray(block)
        shape = extent(whole)
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

    def _failed(self, whole: Region, cause: Exception) -> DataError:
        """The error for a block whose own functions fail, with the end of their traceback."""
        frames = [
            frame for frame in traceback.extract_tb(cause.__traceback__) if not _is_of(frame.filename, "dask", "dpca")
        ]
        lines = "".join(traceback.format_list(frames[-FRAMES:])).rstrip()
        return DataError(
            f"{self.layout.name}: a function of its own failed for the block of region {describe(whole)}: "
            f"{type(cause).__name__}: {cause}",
            f"It failed here:\n{lines}" if lines else "Compute the block alone: x.blocks[...].compute().",
        )

    def _explain(self, region: Region, cause: Exception) -> StorageError:
        kind = NotSeenError if isinstance(cause, FileNotFoundError) else StorageError
        return kind(
            f"{self.layout.name}: region {describe(region)} could not be computed: {type(cause).__name__}: {cause}",
            "See whether what its functions read is there, for this process, too, and by the same path.",
        )


def _is_sparse(block: Any) -> bool:
    """Whether a block is a sparse matrix of SciPy, or a sparse array of the package sparse."""
    return issparse(block) or type(block).__module__.split(".")[0] == "sparse"


def _dense(block: Any, part: Region) -> NDArray[Any]:
    """A part of a block, dense: of a sparse one that part alone."""
    if not _is_sparse(block):
        chosen: NDArray[Any] = block[part]
        return chosen
    whole = all(piece.stop - piece.start == length for piece, length in zip(part, block.shape, strict=True))
    if not whole:
        block = (block.tocsr() if issparse(block) else block)[part]
    dense: NDArray[Any] = block.toarray() if issparse(block) else block.todense()
    return dense


class DaskSource(Source):
    """A Dask array, of arrays of NumPy or of sparse blocks, which become dense one after the other.

    The graph is optimized once; each span has the part that its own blocks depend on, so that the data sent to a worker do
    not grow with the array. Blocks held by a cluster (`persist`) are passed to the span's task as inputs.
    This is no dataclass on purpose: Dask would look inside one and merge the graphs again.
    """

    def __init__(
        self,
        array: da.Array,
        dims: tuple[str | None, ...] = (),
        name: str = "the Dask array",
        coordinates: Mapping[int, Coordinate] = MappingProxyType({}),
        auxiliaries: Sequence[Auxiliary] = (),
        units: str = "",
        long_name: str = "",
    ) -> None:
        if any(np.isnan(size) for sizes in array.chunks for size in sizes):
            raise InputError(
                f"{name}: has unknown chunk sizes, chunks {array.chunks}", "Call compute_chunk_sizes() on it first."
            )
        self.dtype = check_dtype(name, array.dtype)
        kept = type_of_masked(self.dtype) if isinstance(array._meta, np.ma.MaskedArray) else self.dtype
        self.layout = Layout(name, array.shape, kept, array.chunks, dims=dims, units=units, long_name=long_name)
        self.coordinates, self.auxiliaries = coordinates, auxiliaries
        self._name, self._n_blocks = array.name, array.npartitions
        self._sparse = _is_sparse(array._meta)
        self._ends = tuple(tuple(accumulate(sizes)) for sizes in array.chunks)
        self._graph, self._futures = graph_of(array, name)
        self._check_futures()
        self._stores = _Stores(filter(None, map(_zarr_in, objects_in(self._graph))))

    def _check_futures(self) -> None:
        gone = next((future for future in self._futures.values() if future.status in GONE), None)
        if gone is not None:
            raise InputError(
                f"{self.layout.name}: a block that was persisted on a cluster is not there any more: its state is {gone.status}",
                "Persist the array again, on a cluster that runs, or give it as it was before.",
            )

    # Blocks.

    def key(self, index: tuple[int, ...]) -> tuple[Any, ...]:
        """The key of a block."""
        return (self._name, *index)

    def places_of(self, region: Region) -> Iterator[tuple[tuple[int, ...], Region]]:
        """Index and whole region of each block that a region touches."""
        axes = []
        for piece, ends in zip(region, self._ends, strict=True):
            first, last = bisect_right(ends, piece.start), bisect_left(ends, piece.stop)
            axes.append(
                [
                    (number, slice(ends[number - 1] if number else 0, ends[number]))
                    for number in range(first, last + 1)
                    if piece.stop > piece.start and ends[number] > (ends[number - 1] if number else 0)
                ]
            )
        for choice in product(*axes):
            yield tuple(number for number, _ in choice), tuple(piece for _, piece in choice)

    def values_of(self, keys: list[Any]) -> Iterator[Any]:
        """The values of blocks, one after another."""
        graph, futures = needed(self._graph, self._futures, keys)
        blocks = {key: value.result() for key, value in futures.items()}  # of a cluster, where threads compute
        return computed(graph, blocks, keys)

    def check_sharing(self, regions: Iterable[Region], n_regions: int) -> None:
        """Refuse an array whose slabs each need most of the graph, such as x - x.mean().

        Counts the tasks of a few slabs, evenly spaced: if slabs shared nothing, all together would have as
        many tasks as the whole graph. x - x.mean(axis=0) shares along samples only, and is accepted.
        """
        total = len(self._graph)
        step = max(1, n_regions // SHARING_PROBES)
        counts = [len(self._needed(region)[0]) for number, region in enumerate(regions) if number % step == 0]
        if not counts:
            return
        # A block is computed again for each slab that has a part of it.
        run = sum(counts) / len(counts) * n_regions
        if n_regions > 1 and run > SHARING_LIMIT * total + 4 * self._n_blocks:
            raise InputError(
                f"{self.layout.name}: its slabs share ancestors: computing them one by one runs about "
                f"{run:,.0f} tasks where the whole graph has {total:,}",
                "Call persist() on it if it fits memory, or write it to Zarr once and give that. "
                "(dpca centres by itself: x - x.mean() is not needed.)",
            )

    def _needed(self, region: Region) -> tuple[Graph, Futures]:
        return needed(self._graph, self._futures, (self.key(index) for index, _ in self.places_of(region)))

    def restrict(self, region: Region) -> Self:
        return self._with(*self._needed(region))

    def _with(self, graph: Graph, futures: Futures) -> Self:
        part = object.__new__(type(self))
        part.__dict__ = {**self.__dict__, "coordinates": {}, "auxiliaries": (), "_graph": graph, "_futures": futures}
        return part

    @property
    def blocks(self) -> Mapping[Any, Any]:
        return self._futures

    def with_blocks(self, blocks: Mapping[Any, NDArray[Any]]) -> Self:
        there = {key: block for key, block in blocks.items() if not is_future(block)}
        graph = {**self._graph, **{key: DataNode(key, block) for key, block in there.items()}}
        return self._with(graph, {key: block for key, block in blocks.items() if is_future(block)})

    def __getstate__(self) -> dict[str, Any]:
        # Futures travel as inputs of the task, and Dask replaces them by their blocks.
        return {**self.__dict__, "_futures": {}, "coordinates": {}, "auxiliaries": ()}

    def held(self, shape: tuple[int, ...]) -> dict[str, int]:
        # Dask computes blocks and joins them; intermediate values of the graph are not counted.
        size = size_of(shape, self.layout.dtype)
        dense = {"a sparse block, made dense": size} if self._sparse else {}
        return {
            "slab": size,
            "blocks that Dask computes": size,
            **dense,
            "Dask's imports, shared by the tasks": IMPORTS_BYTES,
        }

    @contextmanager
    def open(self) -> Iterator[Reader]:
        self._stores.check(self.layout.name)
        yield _DaskReader(self)

    def beside(self, name: str) -> Source:
        return of_auxiliary(name, self.layout, self.auxiliaries)

    def fingerprint(self) -> dict[str, Any]:
        return {"kind": "dask", "name": self._name, "shape": list(self.layout.shape)}


def _is_of(path: str, *packages: str) -> bool:
    """Whether a file is one of these packages'."""
    return not set(packages).isdisjoint(Path(path).parts)


def _zarr_in(found: Any) -> zarr.Array[Any] | None:
    """The Zarr array that an object reads from: itself, or one within the layers that xarray puts around it."""
    while type(found).__module__.startswith("xarray."):
        found = next((inner for name in ("array", "_array") if (inner := getattr(found, name, None)) is not None), None)
    return found if isinstance(found, zarr.Array) else None
