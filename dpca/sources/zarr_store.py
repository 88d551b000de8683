"""Stores of Zarr arrays: how they are opened, and a wrapper that checks reads and requests chunks ahead."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import zarr
from zarr.abc.store import ByteRequest, RangeByteRequest, Store
from zarr.core.buffer import Buffer, BufferPrototype, default_buffer_prototype
from zarr.core.sync import sync
from zarr.storage import FsspecStore, LocalStore, MemoryStore, ObjectStore, StorePath, WrapperStore, ZipStore

from dpca.errors import InputError, StorageError
from dpca.settings import INPUT
from dpca.sources.credentials import CHAINED, Secrets, without_credentials
from dpca.sources.zarr_codecs import bounded, stored_at_most
from dpca.system import regular

Library = Literal["fsspec", "obstore"]

PROTOCOLS = frozenset(
    {"file", "local", "memory", "http", "https", "ftp", "sftp", "ssh", "smb", "hdfs", "webhdfs"}
    | {"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl", "oci", "oss", "hf"}
    | {"zip", "simplecache", "filecache", "blockcache", "reference"}
)
"""Those of places of files. fsspec knows others that run programs, or ask other services in the name of the user."""

AHEAD_BYTES = 64 * 2**20
"""Bytes that are requested ahead from a store that is not local; two chunks at least."""
METADATA, METADATA_BYTES = ("zarr.json", ".zarray", ".zattrs", ".zgroup", ".zmetadata"), 2**24
"""Keys of metadata, and the largest size that is read: consolidated metadata of ten thousand arrays are as large."""
BAD_METADATA = (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, RecursionError)
"""Exceptions that zarr raises for invalid metadata."""
CHECKED_DIRECTORIES = 1024
"""Number of directories that are remembered as checked to lie in the store."""
REQUESTS = 64
"""Most requests that a reader has in progress."""


class Folder:
    """The files of a local store; links are followed only if they lead into the store.

    Otherwise the author of the store could make dpca read any other file as a chunk.
    """

    def __init__(self, root: Path) -> None:
        self.root, self._real = root, os.path.realpath(root)
        # One check for each directory, not for each chunk.
        self._directory = lru_cache(CHECKED_DIRECTORIES)(self._check)

    def file(self, key: str) -> tuple[str, int]:
        """Path and size in bytes of the file of a key."""
        path = os.path.join(self.root, key)
        facts = os.lstat(path)
        if stat.S_ISLNK(facts.st_mode):
            self._check(path)
            facts = os.stat(path)
        self._directory(os.path.dirname(path))
        if not stat.S_ISREG(facts.st_mode):
            raise StorageError(f"{path}: is no file", "Restore the chunk from its source.")
        return path, facts.st_size

    def _check(self, path: str) -> None:
        real = os.path.realpath(path)
        if os.path.commonpath((real, self._real)) != self._real:
            raise StorageError(
                f"{path}: is a link to {real}, which is not in {self._real}",
                "Copy what it leads to into the store, or name the place that holds all of it.",
                key="input.uri",
            )


class WatchedStore(WrapperStore[Store]):
    """A store that remembers which requested chunks are absent, and refuses chunks that are too large.

    Parameters
    ----------
    at_most : most bytes that a chunk takes in storage

    Chunks that are announced by `will_ask` are requested ahead: each request takes as long as before, but the
    next ones are already in progress.
    """

    def __init__(self, store: Store, at_most: int) -> None:
        super().__init__(store)
        self.absent: set[str] = set()
        self.folder = Folder(store.root) if isinstance(store, LocalStore) else None
        """The files of the store, if it is local."""
        self._at_most = at_most
        self._to_come: Iterator[str] = iter(())
        self._ahead: dict[str, asyncio.Task[Buffer | None]] = {}
        """Requests for chunks that are not needed yet; used only in zarr's event loop."""
        self._most_ahead = 0

    async def get(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None) -> Buffer | None:
        asked = self._ahead.pop(key, None) if byte_range is None else None
        self._ask_ahead()
        value = await (self._fetch(key, prototype, byte_range) if asked is None else asked)
        if value is None:
            self.absent.add(key)
        return value

    async def _fetch(
        self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        """A value of the store; refuses one that is longer than a chunk can be."""
        if isinstance(byte_range, RangeByteRequest):
            self._check(key, byte_range.end - byte_range.start)
        if self.folder is not None:
            with suppress(FileNotFoundError):
                self._check(key, self.folder.file(key)[1])
        elif byte_range is None and isinstance(self._store, ZipStore):
            # For a whole value, zipfile unpacks all that is there, whatever size the archive states.
            byte_range = RangeByteRequest(0, self._at_most + 1)
        value = await self._store.get(key, prototype, byte_range)
        if value is not None:
            self._check(key, len(value))
        return value

    def _check(self, key: str, length: int) -> None:
        if not 0 <= length <= self._at_most:
            raise ValueError(f"{key} has {length} bytes, where a chunk has {self._at_most} at most")

    def will_ask(self, keys: Iterator[str], n_ahead: int) -> None:
        """Announce the chunks that will be requested whole, in order, and how many may be requested ahead."""

        async def begin() -> None:
            self._to_come, self._most_ahead = keys, n_ahead
            self._ask_ahead()

        sync(begin())

    def stop(self) -> None:
        """Cancel requests for chunks that are not needed any more."""

        async def give_up() -> None:
            self._to_come = iter(())
            while self._ahead:
                _, asked = self._ahead.popitem()
                asked.cancel()
                with suppress(asyncio.CancelledError, Exception):
                    await asked

        if self._ahead:
            sync(give_up())

    def _ask_ahead(self) -> None:
        for key in islice(self._to_come, max(0, self._most_ahead - len(self._ahead))):
            if key not in self._ahead:
                self._ahead[key] = asyncio.ensure_future(self._fetch(key, default_buffer_prototype()))


def watched(array: zarr.Array[Any]) -> tuple[zarr.Array[Any], WatchedStore]:
    """The array with checks on what it reads, and its store, which remembers absent chunks.

    The data may come from someone else: chunks must lie in the store, and decode to no more bytes than belong there.
    """
    store = WatchedStore(array.store, stored_at_most(array))
    # With the metadata at hand: reading them again would take as long as a chunk from a remote store.
    metadata = bounded(array.metadata)
    inner = zarr.AsyncArray(metadata=metadata, store_path=StorePath(store, array.path), config=array.config)
    return zarr.Array(inner), store


def n_ahead(chunk_bytes: int) -> int:
    """Number of chunks that are requested ahead from a remote store."""
    return max(2, min(REQUESTS, AHEAD_BYTES // max(1, chunk_bytes)))


def is_far(store: Store) -> bool:
    """Whether a store is remote, so that each request may be slow."""
    return not isinstance(store, LocalStore | MemoryStore | ZipStore)


class Directory(LocalStore):
    """A local store that refuses metadata that are too large, or no files: zarr would wait for a pipe."""

    async def get(
        self, key: str, prototype: BufferPrototype | None = None, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        path = self.root / key
        if path.name in METADATA and os.path.lexists(path):
            try:
                regular.opened(path, METADATA_BYTES).close()
            except FileNotFoundError:  # a link to nothing
                pass
            except OSError as cause:
                raise ValueError(f"{key} can't be read: {cause.strerror}") from cause
        return await super().get(key, prototype, byte_range)


class _Archive(ZipStore):
    """`Directory` for an archive, whose metadata may unpack to more than its own size."""

    async def get(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None) -> Buffer | None:
        if os.path.basename(key) not in METADATA:
            return await super().get(key, prototype, byte_range)
        value = await super().get(key, prototype, RangeByteRequest(0, METADATA_BYTES + 1))
        _check_metadata(key, 0 if value is None else len(value))
        return value


def _check_metadata(key: str, length: int) -> None:
    if length > METADATA_BYTES:
        raise ValueError(f"{key} is larger than {METADATA_BYTES} bytes, and no metadata are")


def open_node(
    uri: str, storage_options: Mapping[str, Any] | None, library: Library = "fsspec"
) -> zarr.Array[Any] | zarr.Group:
    """The array or group at a path or URL.

    Parameters
    ----------
    library : the library that opens a URL
    storage_options : options of fsspec's file system, or of obstore's `from_url`
    """
    shown, secrets = without_credentials(uri), Secrets.of(uri, storage_options)
    try:
        if "://" not in uri:
            return zarr.open(_Archive(uri) if os.path.isfile(uri) else Directory(uri, read_only=True), mode="r")
        _check_protocols(uri, shown)
        with secrets.kept():
            return zarr.open(_STORES[library](uri, dict(storage_options or {})), mode="r")
    except InputError:
        raise
    except ImportError as cause:
        raise InputError(
            f"{shown}: {secrets.hidden(str(cause))}", "Install what the URL's protocol needs."
        ) from secrets.cause(cause)
    except Exception as cause:
        raise _none(uri, cause, shown, secrets.hidden(str(cause))) from secrets.cause(cause)


def _check_protocols(uri: str, shown: str) -> None:
    """Refuse a URL, or a chain of them, with a protocol that is none of places of files."""
    for link in CHAINED.split(uri):
        protocol = link.partition("://")[0]
        if protocol not in PROTOCOLS:
            raise InputError(
                f"{shown}: has the protocol {protocol}, but {', '.join(sorted(PROTOCOLS))} are allowed",
                "Copy the data to such a place; or open them in Python, and fit the Dask array.",
                key="input.uri",
            )


def _none(uri: str, cause: Exception, shown: str, why: str) -> InputError:
    """The error for a path or URL where zarr can't open anything."""
    if isinstance(cause, PermissionError):
        return InputError(f"{shown}: can't be read: {cause.strerror}", "Check its permissions.", key="input.uri")
    if "://" in uri:
        problem, remedy = f"{type(cause).__name__}: {why}", f"Check the URL and {INPUT.storage_options}."
        if uri.endswith((".npy", ".h5", ".hdf5", ".nc")):
            remedy = "At a URL only Zarr can be read: copy the file here, or store it as Zarr."
        return InputError(f"{shown}: no Zarr array or group could be opened there: {problem}", remedy, key="input.uri")
    if os.path.isfile(os.path.join(uri, "manifest.json")) and os.path.isdir(os.path.join(uri, "result.zarr")):
        return InputError(
            f"{uri}: is a result of dpca", f"Its arrays are in {os.path.join(uri, 'result.zarr')}.", key="input.uri"
        )
    if isinstance(cause, FileNotFoundError):
        return InputError(
            f"{uri}: holds no Zarr array or group (no zarr.json, .zarray or .zgroup)",
            "Name a Zarr store, or a single .npy or HDF5 file.",
            key="input.uri",
        )
    return InputError(
        f"{uri}: can't be opened as Zarr: {type(cause).__name__}: {why}", "Check what is there.", key="input.uri"
    )


def _of_fsspec(uri: str, options: dict[str, Any]) -> Store:
    if uri.split("://")[0] in ("s3", "s3a"):
        # botocore allows 10 connections by default, which would limit the requests of a reader.
        options["config_kwargs"] = {"max_pool_connections": REQUESTS, **options.get("config_kwargs", {})}
    return FsspecStore.from_url(uri, storage_options=options, read_only=True)


def _of_obstore(uri: str, options: dict[str, Any]) -> Store:
    from obstore.store import from_url

    return ObjectStore(from_url(uri, **options), read_only=True)


_STORES: dict[Library, Callable[[str, dict[str, Any]], Store]] = {"fsspec": _of_fsspec, "obstore": _of_obstore}


def unknown(name: str, cause: Exception) -> InputError:
    """The error for an array that zarr can't open, for its dtype or for a codec such as pickle, which zarr does not load."""
    return InputError(
        f"{name} can't be opened: {cause if isinstance(cause, ValueError) else repr(cause)}",
        "Store it with numbers, and with codecs that zarr knows; of another array in the same group give the path.",
        key="input.array",
    )


def leaves(path: str) -> bool:
    """Whether a path would leave the group that it starts from."""
    return ".." in path.replace("\\", "/").split("/")
