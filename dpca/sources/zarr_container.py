"""The groups and arrays of a Zarr store: names, coordinates and labels beside an array, xarray and AnnData included."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import zarr
from zarr.abc.store import RangeByteRequest, Store
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync

from dpca.sources.anndata_layout import Sparse, without_parts
from dpca.sources.bounded import HEAD_BYTES, UNTOLD, claimed_by
from dpca.sources.container import Container, Listed
from dpca.sources.coordinate import PIECE_VALUES, Parts, Vector
from dpca.sources.credentials import Secrets, without_credentials
from dpca.sources.formats import GROUPS
from dpca.sources.zarr_chunks import key_of
from dpca.sources.zarr_codecs import last_codec
from dpca.sources.zarr_store import BAD_METADATA, Library, WatchedStore, open_node, unknown, watched

READ_KINDS = "biufSUT"
"""Kinds of dtypes of coordinates: numbers and text."""
ASKED_CHUNKS = 16
"""Chunks of an array of text whose size is asked for."""


class ZarrContainer(Container):
    """A Zarr store.

    Parameters
    ----------
    group : the group whose arrays are meant, with its consolidated metadata, if it has any; others are looked up in the store
    """

    def __init__(
        self, store: Store, shown: str = "", secrets: Secrets | None = None, group: zarr.Group | None = None
    ) -> None:
        self._store, self.shown, self._secrets, self._group = store, shown, secrets or Secrets(), group
        self._nodes: dict[str, Any] = {}
        """Nodes met so far: each costs a round trip."""

    @property
    def group(self) -> zarr.Group:
        """The group whose arrays are meant."""
        assert self._group is not None
        return self._group

    def node(self, path: str) -> Any:
        """The node at a path; invalid metadata count as absent."""
        if path not in self._nodes:
            self._nodes[path] = self._found(path)
        return self._nodes[path]

    def _found(self, path: str) -> zarr.Array[Any] | zarr.Group | None:
        try:
            if self._group is not None:
                return self._group.get(path) if path else self._group
            return zarr.open(self._store, path=path, mode="r")
        except (FileNotFoundError, *BAD_METADATA):
            return None

    def array(self, path: str) -> zarr.Array[Any]:
        """The array at a path where there is one."""
        found = self.node(path)
        assert isinstance(found, zarr.Array)
        return found

    def arrays(self) -> dict[str, zarr.Array[Any] | Sparse]:
        try:
            items = {
                path: item if isinstance(item, zarr.Array) else Sparse.of(item)
                for path, item in self.group.members(max_depth=None)
            }
        except BAD_METADATA as cause:
            raise unknown(f"{self.shown}: an array in it", cause) from cause
        return without_parts({path: item for path, item in items.items() if item is not None})

    def is_array(self, node: Any) -> bool:
        return isinstance(node, zarr.Array)

    def is_readable(self, array: Any) -> bool:
        return _is_readable(array)

    def attributes(self, node: Any) -> Mapping[str, Any]:
        return attributes_of(node) if isinstance(node, zarr.Array) else dict(node.attrs)

    def dims(self, array: Any) -> Sequence[str | None]:
        return named_axes(array) or ()

    def along(self, path: str, axis: int, dim: str | None) -> tuple[str, Any]:
        """The array that AnnData names, else the one beside the matrix with the dimension's name."""
        for of, name, at in self.names_beside(path):
            if of == axis and name == dim:
                return name, self.node(at)
        found = None if dim is None else self.node(f"{path.rpartition('/')[0]}/{dim}".lstrip("/"))
        return dim or "", found if self.is_array(found) else None

    def vector(self, array: Any, name: str) -> Vector:
        return vector_of(array, name, self._secrets)

    def labels(self, path: str, name: str) -> Callable[[], Vector | None]:
        return partial(_labels, self.array(path), name, self._secrets)

    def vector_at(self, path: str) -> Vector | None:
        """The array at a path; None where there is none."""
        array = self.node(path)
        return vector_of(array, f"{self.shown}:{path}", self._secrets) if isinstance(array, zarr.Array) else None


def list_zarr(uri: str, storage_options: Mapping[str, Any] | None, library: Library = "fsspec") -> list[Listed]:
    """Path, shape and dtype of every array at a path or URL, and whether it stands beside another one; empty if one array is there, or a group of a known format."""
    node = open_node(uri, storage_options, library)
    if isinstance(node, zarr.Array) or any(known.array in node for known in GROUPS):  # the others describe that one
        return []
    return sorted(ZarrContainer(node.store, without_credentials(uri), group=node).listed())


def _labels(array: zarr.Array[Any], name: str, secrets: Secrets) -> Vector | None:
    """Labels along an axis; None where they are neither text nor numbers."""
    return vector_of(array, name, secrets) if _is_readable(array) else None


def _is_readable(array: zarr.Array[Any]) -> bool:
    return getattr(array.dtype, "kind", "O") in READ_KINDS


def vector_of(array: zarr.Array[Any], name: str, secrets: Secrets | None = None) -> Vector:
    """A small array beside the data, read in parts."""
    watching, store = watched(array)
    parts = parts_of(array, store)
    Vector.check(name, parts)
    whole = array.ndim == 0
    return Vector(
        name, array.shape, array.dtype, lambda piece: watching[... if whole else piece], parts, secrets or Secrets()
    )


def parts_of(array: zarr.Array[Any], store: WatchedStore) -> Parts:
    """The parts in which an array can be read along its first axis; large chunks of text state their own size.

    Parameters
    ----------
    store : the store of its chunks
    """
    if array.ndim > 1:
        return Parts.of_rows(array.dtype, array.shape, (array.shards or array.chunks)[0])
    parts = Parts.of(array.dtype, math.prod(array.shards or array.chunks))
    if array.dtype.kind not in "OT" or parts.chunk <= PIECE_VALUES or array.shards:
        return parts
    codec_id, first = last_codec(array.metadata), RangeByteRequest(0, HEAD_BYTES)

    async def sizes(keys: Sequence[str]) -> list[int]:
        if codec_id is None:
            return await asyncio.gather(*(store.getsize(key) for key in keys))
        heads = await asyncio.gather(*(store.get(key, default_buffer_prototype(), first) for key in keys))
        return [0 if head is None else claimed_by(codec_id, head.to_bytes()) for head in heads]

    count = min(array.nchunks, ASKED_CHUNKS)
    try:
        n_bytes = sync(sizes([key_of(array, (number * array.nchunks // count,)) for number in range(count)]))
    except (OSError, ValueError):  # an error that reading the array will explain
        return parts
    if not n_bytes or UNTOLD in n_bytes:
        return parts
    return Parts(max(1, -(-max(n_bytes) // parts.chunk)), parts.chunk, max(n_bytes))


def attributes_of(array: zarr.Array[Any]) -> dict[str, Any]:
    """Attributes of an array; empty if its metadata hold something else in their place."""
    attributes: Any = array.metadata.attributes
    return dict(attributes) if isinstance(attributes, Mapping) else {}


def named_axes(array: zarr.Array[Any]) -> tuple[str | None, ...] | None:
    """The names of the axes of an array; None where its metadata have none."""
    names: Any = getattr(array.metadata, "dimension_names", None) or attributes_of(array).get("_ARRAY_DIMENSIONS")
    named = isinstance(names, list | tuple) and len(names) == array.ndim and _are_names(names)
    return tuple(names) if named else None


def _are_names(names: Sequence[Any]) -> bool:
    return all(name is None or isinstance(name, str) for name in names)
