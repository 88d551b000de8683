"""Zarr arrays, version 2 and 3, sharded or not, with any codec that zarr reads."""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import product
from typing import Any, cast

import zarr
from numpy.typing import NDArray
from zarr.abc.store import RangeByteRequest
from zarr.buffer.cpu import NDBuffer
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync
from zarr.storage import LocalStore, ZipStore

from dpca.errors import DataError, InputError, StorageError
from dpca.settings import INPUT
from dpca.slabs import extent
from dpca.sources.anndata_layout import Sparse, names_beside
from dpca.sources.base import Layout, Reader, Region, Source, check_dtype, shifted, size_of, within
from dpca.sources.cf import cf_attributes
from dpca.sources.coordinate import Auxiliary, Coordinate
from dpca.sources.credentials import Secrets, without_credentials
from dpca.sources.file import file_state
from dpca.sources.formats import GROUPS
from dpca.sources.matrices import matrix_at, sparse_at, with_features
from dpca.sources.retries import tried_again
from dpca.sources.runs import read_block
from dpca.sources.sparse import SparseSource
from dpca.sources.zarr_chunks import ChunkFiles, codecs_of, key_of, order_of
from dpca.sources.zarr_container import ZarrContainer, attributes_of, named_axes
from dpca.sources.zarr_store import BAD_METADATA, Folder, Library, is_far, leaves, n_ahead, open_node, unknown, watched
from dpca.sources.zarr_witness import Witness, anywhere

TOGETHER_BYTES = 2**20
"""Chunks smaller than this are read together in one call, since a call costs as much as such a chunk."""
LISTED_CHUNKS = 100_000
"""Most chunks of an array whose store is listed for its size."""
STATED_CHUNKS, FETCHED_CHUNKS, FETCHED_BYTES = 20_000, 16, 4096
"""Chunks that a fingerprint looks at, in a directory (0.1 s) and in another store; bytes that it reads of each there."""
CHUNKS_AT_ONCE = 10
"""Chunks that zarr then processes at a time: its setting async.concurrency."""


class ZarrReader(Reader):
    """A reader of a Zarr array."""

    def __init__(
        self, layout: Layout, array: zarr.Array[Any], absent: str, secrets: Secrets, witness: Witness | None
    ) -> None:
        super().__init__(layout, secrets)
        self._witness = witness
        self._array, self._store = watched(array)
        self._bare = array.store
        self._container = ZarrContainer(array.store, secrets=secrets)
        self._files = ChunkFiles.of(array)
        self._absent = absent
        self._filled: set[str] = set()
        """Absent chunks that the region in hand met, also those that begin in another."""
        # A chunk is read once, but a shard perhaps by several slabs: remember which shards were counted.
        self._counted: set[str] | None = set() if layout.shards else None

    def will_read(self, regions: Iterable[Region]) -> None:
        if not is_far(self._bare):
            super().will_read(regions)
            return
        packed = self.layout.shards or self.layout.chunk_shape
        n_bytes = size_of(packed, self.layout.dtype)
        keys = (key_of(self._array, index) for region in regions for index in self._whole(region, packed))
        self._store.will_ask(keys, n_ahead(n_bytes))

    def _whole(self, region: Region, packed: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        """Indices of the chunks or shards of a region that zarr will request whole, in order."""
        axes = []
        for piece, step, chunk, length in zip(region, packed, self.layout.chunk_shape, self.layout.shape, strict=True):
            first, last = piece.start // step, -(-piece.stop // step)
            if self.layout.shards:
                # zarr requests ranges of a shard that is read in part, or ends beyond the array by a chunk or more.
                chunks = chunk * -(-length // chunk)
                first, last = -(-piece.start // step), min(last, chunks // step)
                last = last if piece.stop == length else min(last, piece.stop // step)
            axes.append(range(first, max(first, last)))
        yield from product(*axes)

    def close(self) -> None:
        """End the requests made ahead."""
        self._store.stop()

    def _read(self, region: Region) -> NDArray[Any]:
        out = self._buffer.view(extent(region), self.layout.in_storage)
        if not out.size:
            return out
        if self.layout.divisible:
            self._read_parts(region, out)
        elif self._files is not None:
            self._read_files(self._files, region, out)
        else:
            # Large chunks one by one: zarr would decode ten at the same time, each into memory of its own.
            small = self.layout.chunk_bytes < TOGETHER_BYTES
            for piece in self._calls(region) if small else (piece for _, piece in self._chunks_in(region)):
                place = out[within(piece, region)]
                self._array.get_basic_selection(piece, out=NDBuffer.from_numpy_array(place))
        if self._store.absent or self._filled:
            self._count_absent()
        return out

    def expect(self, region: Region) -> None:
        # For smaller chunks the request costs as much time as it saves.
        if self._files is not None and self.layout.chunk_bytes >= TOGETHER_BYTES:
            for index, _ in self._chunks_in(region):
                self._files.expect(index)

    def _read_files(self, files: ChunkFiles, region: Region, out: NDArray[Any]) -> None:
        """Read a region of an array in a local store, chunk by chunk."""
        shape = self.layout.chunk_shape
        for index, piece in self._chunks_in(region):
            target = out[within(piece, region)]
            inside = shifted(piece, [number * length for number, length in zip(index, shape, strict=True)])
            try:
                files.read(index, shape, inside, target)
            except FileNotFoundError:
                self._fill_absent(index, piece, target)

    def _read_parts(self, region: Region, out: NDArray[Any]) -> None:
        """Read a region of an uncompressed array in a local store, by offset into the files of its chunks."""
        chunks, folder = self.layout.chunk_shape, cast(Folder, self._store.folder)
        for index, piece in self._chunks_in(region):
            target = out[within(piece, region)]
            inside = shifted(piece, [number * chunk for number, chunk in zip(index, chunks, strict=True)])
            key = key_of(self._array, index)
            try:
                with open(folder.file(key)[0], "rb", buffering=0) as file:
                    read_block(file, 0, chunks, inside, target, f"{self.layout.name}, chunk {key}")
            except FileNotFoundError:
                self._fill_absent(index, piece, target)

    def _fill_absent(self, index: tuple[int, ...], piece: Region, target: NDArray[Any]) -> None:
        # An array of version 2 may have no fill value; zarr then fills with zeros.
        target[...] = 0 if self._array.fill_value is None else self._array.fill_value
        key = key_of(self._array, index)
        self._filled.add(key)
        if self._begins_in(index, piece):
            self._store.absent.add(key)

    def _count_absent(self) -> None:
        """Check all absent chunks that were met; those that begin in the region are counted."""
        absent, self._filled = self._store.absent | self._filled, set()
        if self._absent == "damage":
            raise StorageError(
                f"{self.layout.name}: {min(absent)} is gone from the copy that was made of it",
                "See who removes files there.",
            )
        if self._witness is not None:
            self._witness.check_absent(absent, self._array, self.layout.name)
        if self._absent == "error":
            raise DataError(
                f"{self.layout.name}: chunk {min(absent)!r} was never written, and absent_chunks is 'error'",
                f"Write it, or set {INPUT.absent_chunks.at('fill')} to read it as the array's fill value "
                f"({self._array.fill_value}).",
            )
        absent = self._store.absent
        if self._counted is not None:
            absent = absent - self._counted
            self._counted |= absent
        self.absent_chunks += len(absent)
        self._store.absent = set()

    def coordinate(self, axis: int) -> Coordinate | None:
        if self.layout.dims[axis] is None or not self._array.path:
            return None
        return self._container.coordinate(self._array.path, axis, self.layout, self.left_out)

    def auxiliaries(self) -> Sequence[Auxiliary]:
        if not (path := self._array.path):
            return ()
        return self._container.auxiliaries(path, attributes_of(self._array), self.layout, self.left_out)


class ZarrSource(Source):
    """A Zarr array.

    Parameters
    ----------
    array : zarr.Array
        Open for reading.
    name : str
        Name in error messages.
    absent_chunks : "fill", "error" or "damage"
        What an absent chunk is. Zarr may omit chunks that contain only the fill value, so their absence
        is no error by itself. For a sharded array, shards are counted. dpca writes all chunks of a copy that it
        makes, so there an absent one is damage.
    """

    def __init__(
        self,
        array: zarr.Array[Any],
        name: str = "the Zarr array",
        absent_chunks: str = "fill",
        secrets: Secrets | None = None,
    ) -> None:
        array = anywhere(array)
        self._array, self._absent, self._secrets = array, absent_chunks, secrets or Secrets()
        self._witness: Witness | None = None
        dtype = check_dtype(name, array.dtype)
        attributes = attributes_of(array)
        names = named_axes(array)
        if names is None:
            beside = names_beside(array.path, ZarrContainer(array.store).node)
            names = tuple(beside.get(axis, (None,))[0] for axis in range(array.ndim))
        if array.metadata.zarr_format == 2 and "_ARRAY_DIMENSIONS" in attributes and array.fill_value is not None:
            # xarray stores the _FillValue of version 2 there, and masks such values when it reads.
            attributes.setdefault("_FillValue", array.fill_value)
        self.layout = Layout(
            name,
            array.shape,
            chunks=tuple(max(1, chunk) for chunk in array.chunks),
            shards=array.shards,
            divisible=codecs_of(array) == [],
            codec=_codec(array),
            order=order_of(array),
            dims=names,
            **cf_attributes(name, attributes, dtype),
        )

    def like(self, layout: Layout) -> ZarrSource:
        """This array with the layout of another: its markers of missing values, packing, dimensions and name."""
        copy = object.__new__(ZarrSource)
        copy.__dict__.update(self.__dict__, layout=layout)
        return copy

    def __getstate__(self) -> dict[str, Any]:
        # For another process, perhaps on another host.
        self._witness = self._witness or Witness.of(self._array)
        return self.__dict__

    def held(self, shape: tuple[int, ...]) -> dict[str, int]:
        ahead: dict[str, int] = {}
        packed = self.layout.shards or self.layout.chunk_shape
        whole = not self.layout.shards or all(
            part >= min(step, length) for part, step, length in zip(shape, packed, self.layout.shape, strict=True)
        )
        if is_far(self._array.store) and whole:
            chunk = size_of(packed, self.layout.dtype)
            ahead = {"chunks asked for ahead": n_ahead(chunk) * chunk}
        return {**self.held_of(self.layout, shape), **ahead}

    @staticmethod
    def held_of(layout: Layout, shape: tuple[int, ...]) -> dict[str, int]:
        """`held` for an array that does not exist yet."""
        slab, chunk = {"slab": size_of(shape, layout.dtype)}, layout.chunk_bytes
        if layout.divisible:
            return slab
        at_once = 1 if chunk >= TOGETHER_BYTES else CHUNKS_AT_ONCE
        return {
            **slab,
            "bookkeeping of chunks": layout.bookkeeping_bytes,
            "chunks as stored": at_once * chunk,
            "chunks as decoded": at_once * chunk,
        }

    @contextmanager
    def open(self) -> Iterator[Reader]:
        if self._witness is not None:
            self._witness.check(self._array, self.layout.name)
        reader = ZarrReader(self.layout, self._array, self._absent, self._secrets, self._witness)
        try:
            yield reader
        finally:
            reader.close()

    def beside(self, name: str) -> Source:
        found = ZarrContainer(self._array.store).beside(self._array.path, name)
        assert found is not None
        return ZarrSource(found, f"{self.layout.name}, coordinate {name}", secrets=self._secrets)

    def stored_bytes(self) -> int | None:
        # The store has to be listed, which is slow for a million chunks or over a network.
        return self._array.nbytes_stored() if isinstance(self._array.store, LocalStore) and self._few() else None

    def _few(self) -> bool:
        return self._array.nchunks <= LISTED_CHUNKS

    @property
    def place(self) -> tuple[str, str | None] | None:
        store = self._array.store
        root = store.root if isinstance(store, LocalStore) else store.path if isinstance(store, ZipStore) else None
        return None if root is None else (os.path.abspath(root), self._array.path or None)

    def fingerprint(self) -> dict[str, Any]:
        metadata = json.dumps(self._array.metadata.to_dict(), sort_keys=True, default=str)
        return {
            "kind": f"zarr v{self._array.metadata.zarr_format}",
            "uri": self.layout.name,
            "metadata_sha256": hashlib.sha256(metadata.encode()).hexdigest(),
            "chunks_sha256": self._chunks_digest(tuple(slice(0, length) for length in self.layout.shape)),
        }

    def state(self, region: Region) -> str | None:
        # For a copy that dpca made, the state of its original was recorded when it was made.
        return None if self._absent == "damage" else self._chunks_digest(region)

    def _chunks_digest(self, region: Region) -> str:
        """Digest of the sizes and modification times of chunk files (or of the archive), or of the first bytes of chunks.

        It samples up to `STATED_CHUNKS` chunks of a local store, `FETCHED_CHUNKS` of another one, evenly over the
        region. A rewrite of a chunk that was not sampled, or that keeps its size and time, is not noticed.
        """
        store = self._array.store
        if isinstance(store, ZipStore):
            return hashlib.sha256(file_state(store.path).encode()).hexdigest()
        local = isinstance(store, LocalStore)
        packed = self.layout.shards or self.layout.chunk_shape
        grid = [range(piece.start // step, -(-piece.stop // step)) for piece, step in zip(region, packed, strict=True)]
        total = math.prod(map(len, grid))
        count = min(total, STATED_CHUNKS if local else FETCHED_CHUNKS)
        keys = []
        for number in range(count):
            index: list[int] = []
            rest = number * total // count
            for positions in reversed(grid):
                rest, position = divmod(rest, len(positions))
                index.append(positions[position])
            keys.append(key_of(self._array, tuple(reversed(index))))
        digest = hashlib.sha256()
        for key, state in zip(keys, self._stated(keys) if local else self._fetched(keys), strict=True):
            digest.update(f"{key} {state}\n".encode())
        return digest.hexdigest()

    def _stated(self, keys: Sequence[str]) -> Iterator[str]:
        """The states of chunks in a directory."""
        root = cast(LocalStore, self._array.store).root
        return (file_state(root / key) for key in keys)

    def _fetched(self, keys: Sequence[str]) -> Iterator[str]:
        """The states of chunks in another store, all requested together."""
        store, prototype, first = self._array.store, default_buffer_prototype(), RangeByteRequest(0, FETCHED_BYTES)

        async def fetch() -> list[Any]:
            return await asyncio.gather(*(store.get(key, prototype, first) for key in keys))

        chunks = tried_again(
            lambda: sync(fetch()),
            lambda cause: StorageError(
                f"{self.layout.name}: its chunks can't be looked at: {self._secrets.hidden(str(cause))}",
                "See whether the store answers, and with these rights.",
            ),
            self._secrets,
        )
        for chunk in chunks:
            yield "absent" if chunk is None else hashlib.sha256(chunk.to_bytes()).hexdigest()


def open_zarr(
    uri: str,
    array: str | None = None,
    absent_chunks: str = "fill",
    storage_options: Mapping[str, Any] | None = None,
    library: Library = "fsspec",
    column: str | None = None,
    of_format: Mapping[str, Any] = {},
) -> Source:
    """The source of an array or sparse matrix at a path or URL; of a group of a known format, of its data.

    Parameters
    ----------
    column : of AnnData's table of features, which chooses some; None for all
    of_format : settings of the format of a group (`dpca.sources.formats`)
    """
    shown, node = without_credentials(uri), open_node(uri, storage_options, library)
    secrets = Secrets.of(uri, storage_options)
    if isinstance(node, zarr.Array):
        if array is not None:
            raise InputError(f"{shown}: is itself an array, so it has no array {array!r}", f"Leave {INPUT.array} out.")
        alone = ZarrSource(node, shown, absent_chunks, secrets)
        return alone if column is None else with_features(ZarrContainer(node.store), node.path, alone, column)
    container = ZarrContainer(node.store, shown, secrets, node)

    def source(path: str) -> ZarrSource:
        return ZarrSource(container.array(path), f"{shown}:{path}", absent_chunks, secrets)

    known = next((one for one in GROUPS if array in (None, one.array)), None)
    if known is not None and container.is_array(container.node(known.array)):
        return known.open(source(known.array), ZarrContainer(node.store, shown, secrets).vector_at, of_format)
    if array is None and Sparse.of(node) is not None:
        return matrix_at(container, "", shown, source, column)
    path = array if array is not None and _is_array(container, array) else container.meant(array)
    return matrix_at(container, path, f"{shown}:{path}", source, column)


def _is_array(container: ZarrContainer, path: str) -> bool:
    """Whether there is an array of that name; refuses one that zarr can't open."""
    if leaves(path):
        return False
    if container.is_array(container.node(path)):
        return True
    try:
        container.group.get(path)
    except BAD_METADATA as cause:
        raise unknown(f"{container.shown}:{path}", cause) from cause
    return False


def of_group(node: zarr.Group, matrix: Sparse) -> SparseSource:
    """The source of a sparse matrix that is an open group."""
    name, container = "the sparse matrix", ZarrContainer(node.store)
    return sparse_at(
        container,
        node.path,
        name,
        matrix,
        lambda path: ZarrSource(container.array(path), f"{name}/{path.rpartition('/')[2]}"),
    )


def _codec(array: zarr.Array[Any]) -> str:
    """Names of the compression codecs, as in the metadata."""
    metadata: Any = array.metadata
    if metadata.zarr_format == 2:
        names = [codec.get_config()["id"] for codec in (*(metadata.filters or ()), metadata.compressor) if codec]
    else:
        names = [codec.to_dict()["name"] for codec in cast(Any, array.compressors)]
    return ", ".join(names) or "none"
