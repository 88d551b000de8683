"""Whether another process sees the same Zarr array: where its files are not there, zarr reads every chunk as the fill value."""

from __future__ import annotations

import copy
import hashlib
import math
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import zarr
from zarr.abc.store import Store
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync
from zarr.storage import LocalStore, MemoryStore, StorePath, ZipStore

from dpca.errors import NotSeenError
from dpca.sources.credentials import in_text
from dpca.sources.zarr_chunks import key_of
from dpca.sources.zarr_store import METADATA

LISTED_CHUNKS, SENT_CHUNKS = 1_000_000, 10_000
"""Most chunks of a local store that are listed, and most absent ones that are sent by name."""
PROBED_CHUNKS = 16
"""Chunks of a store that is not local that are looked for, evenly spaced, until one is there."""
_SEEN: set[tuple[str, Witness]] = set()
"""Witnesses that were found in this process: the store, and its contents."""


@dataclass(frozen=True)
class Witness:
    """Sight that a process had of an array in a store."""

    path: str
    sha256: str
    """Digest of its metadata, as stored."""
    chunk: str | None
    """The key of a chunk; None where none was found."""
    absent: frozenset[str] | None
    """Keys of all chunks that nobody wrote; None where they are not known."""

    @classmethod
    def of(cls, array: zarr.Array[Any]) -> Witness | None:
        """Sight of this process; None of an array in memory, which travels with its chunks."""
        if isinstance(array.store, MemoryStore):
            return None
        return cls(array.path, _digest(array) or "", next(_chunks(array), None), _absent(array, SENT_CHUNKS))

    def check(self, array: zarr.Array[Any], name: str, all_chunks: bool = False) -> None:
        """Refuse an array that another process saw, and this one does not see.

        Parameters
        ----------
        name : of the array, for the message
        all_chunks : whether to look for every chunk now, as nobody will when it is read
        """
        seen = (str(array.store), self)
        if seen in _SEEN:
            return
        found = _digest(array)
        problem = None
        if found is None:
            problem = "there is no such array"
        elif found != self.sha256:
            problem = "there is another array"
        elif self.chunk is not None and not sync(array.store.exists(self.chunk)):
            problem = f"its chunk {self.chunk} is not there"
        if problem:
            raise _not_seen(array, name, problem)
        if all_chunks and self.absent is not None and (absent := _absent(array)) is not None:
            self.check_absent(absent, array, name)
        _SEEN.add(seen)

    def check_absent(self, keys: Iterable[str], array: zarr.Array[Any], name: str) -> None:
        """Refuse chunks that are absent here, but were there for the process that saw the array."""
        if self.absent is not None and (lost := set(keys) - self.absent):
            raise _not_seen(array, name, f"chunk {min(lost)} is not there")


def _not_seen(array: zarr.Array[Any], name: str, problem: str) -> NotSeenError:
    return NotSeenError(
        f"{name}: does not see {in_text(str(array.store_path))} as the process does that began: {problem}",
        "Mount the place on every host, by the same path, or give data that all workers see.",
    )


def made_absolute(store: Any) -> None:
    """Have a store, which others may have too, name its place by an absolute path."""
    if isinstance(store, LocalStore):
        store.root = store.root.absolute()
    elif isinstance(store, ZipStore):
        store.path = store.path.absolute()


def anywhere(array: zarr.Array[Any]) -> zarr.Array[Any]:
    """The array by an absolute path, which means the same in a process that was started elsewhere."""
    store = array.store
    if not isinstance(store, LocalStore) or store.root.is_absolute():
        made_absolute(store)  # a copy of a ZipStore would be another open file
        return array
    store = copy.copy(store)
    made_absolute(store)
    place = StorePath(store, array.path)
    return zarr.Array(zarr.AsyncArray(metadata=array.metadata, store_path=place, config=array.config))


def _digest(array: zarr.Array[Any]) -> str | None:
    name = "zarr.json" if array.metadata.zarr_format == 3 else ".zarray"
    found = sync(_get(array.store, f"{array.path}/{name}".lstrip("/")))
    return None if found is None else hashlib.sha256(found).hexdigest()


async def _get(store: Store, key: str) -> bytes | None:
    found = await store.get(key, default_buffer_prototype())
    return None if found is None else found.to_bytes()


def _chunks(array: zarr.Array[Any]) -> Iterator[str]:
    """Keys of chunks that are there."""
    if isinstance(array.store, LocalStore):
        root = array.store.root
        yield from (str(path.relative_to(root)) for path in _files(root / array.path))
        return
    counts = _grid(array)
    for number in range(PROBED_CHUNKS):
        key = key_of(array, tuple(number * count // PROBED_CHUNKS for count in counts))
        if sync(array.store.exists(key)):
            yield key


def _absent(array: zarr.Array[Any], most: float = math.inf) -> frozenset[str] | None:
    """Keys of the chunks of a local store that are not there; None where they are more than `most`, or it is none."""
    counts = _grid(array)
    if not isinstance(array.store, LocalStore) or (n_chunks := math.prod(counts)) > LISTED_CHUNKS:
        return None
    there = set(_chunks(array))
    if n_chunks - len(there) > most:
        return None
    keys = (key_of(array, index) for index in product(*map(range, counts))) if len(there) < n_chunks else ()
    return frozenset(key for key in keys if key not in there)


def _grid(array: zarr.Array[Any]) -> list[int]:
    """Numbers of chunks, or shards, along each axis."""
    packed = array.shards or array.chunks
    return [-(-length // max(1, step)) for length, step in zip(array.shape, packed, strict=True)]


def _files(directory: Path) -> Iterator[Path]:
    """Files of chunks below a directory, one by one: a listing may have a million."""
    try:
        entries = os.scandir(directory)
    except OSError:
        return
    with entries:
        for entry in entries:
            if entry.is_dir():
                yield from _files(Path(entry.path))
            elif entry.name not in METADATA and not entry.name.startswith("."):
                yield Path(entry.path)
