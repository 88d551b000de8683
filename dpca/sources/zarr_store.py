"""Stores of Zarr arrays: what opens one, and what watches one that is read from, and asks it ahead."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from typing import Any, Literal

import zarr
from zarr.abc.store import ByteRequest, Store
from zarr.core.buffer import Buffer, BufferPrototype, default_buffer_prototype
from zarr.core.sync import sync
from zarr.storage import FsspecStore, LocalStore, MemoryStore, ObjectStore, StorePath, WrapperStore, ZipStore

from dpca.errors import InputError
from dpca.sources.credentials import Secrets, without_credentials

Library = Literal["fsspec", "obstore"]

AHEAD_BYTES = 64 * 2**20
"""What is asked for before it is needed, of a store that is no local one; two chunks at least."""
REQUESTS = 64
"""As many requests a reader has under way at most."""


class WatchedStore(WrapperStore[Store]):
    """A store that remembers which chunks it was asked for and does not hold, and looks at those that it does.

    It can be told which will be asked for, and then asks for them in time: a request takes as long as it does, but
    the next ones are under way meanwhile.
    """

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.absent: set[str] = set()
        self.check: Callable[[int, bytes], None] | None = None
        """Given the length and the first bytes of each chunk."""
        self._to_come: Iterator[str] = iter(())
        self._ahead: dict[str, asyncio.Task[Buffer | None]] = {}
        """Chunks that were asked for and not needed yet; touched in zarr's loop alone."""
        self._most_ahead = 0

    async def get(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None) -> Buffer | None:
        asked = self._ahead.pop(key, None) if byte_range is None else None
        self._ask_ahead()
        value = await (self._store.get(key, prototype, byte_range) if asked is None else asked)
        if value is None:
            self.absent.add(key)
        elif self.check is not None and byte_range is None:
            self.check(len(value), value[:16].to_bytes())
        return value

    def will_ask(self, keys: Iterator[str], n_ahead: int) -> None:
        """Say which chunks will be asked for whole, in turn, and how many may be there before they are."""

        async def begin() -> None:
            self._to_come, self._most_ahead = keys, n_ahead
            self._ask_ahead()

        sync(begin())

    def stop(self) -> None:
        """Give up what was asked for and is not needed."""

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
                self._ahead[key] = asyncio.ensure_future(self._store.get(key, default_buffer_prototype()))


def watched(array: zarr.Array[Any]) -> tuple[zarr.Array[Any], WatchedStore]:
    """An array to read from, and the store that it asks, which remembers what it does not hold."""
    store = WatchedStore(array.store)
    # By its metadata, which are here: to read them again would take as long as a chunk from a store that is far.
    inner = zarr.AsyncArray(metadata=array.metadata, store_path=StorePath(store, array.path), config=array.config)
    return zarr.Array(inner), store


def n_ahead(chunk_bytes: int) -> int:
    """How many chunks of a far store are asked for before they are needed."""
    return max(2, min(REQUESTS, AHEAD_BYTES // max(1, chunk_bytes)))


def is_far(store: Store) -> bool:
    """Whether each request to a store may take its time."""
    return not isinstance(store, LocalStore | MemoryStore | ZipStore)


def open_node(
    uri: str, storage_options: Mapping[str, Any] | None, library: Library = "fsspec"
) -> zarr.Array[Any] | zarr.Group:
    """The array or group at a path or URL.

    Parameters
    ----------
    library : what opens a URL
    storage_options : what that is given: of fsspec's file system, or of obstore's `from_url`

    Raises
    ------
    InputError
        When there is none.
    """
    shown, secrets = without_credentials(uri), Secrets.of(uri, storage_options)
    try:
        if "://" not in uri:
            return zarr.open(uri, mode="r")
        return zarr.open(_STORES[library](uri, dict(storage_options or {})), mode="r")
    except ImportError as cause:
        raise InputError(
            f"{shown}: {secrets.hidden(str(cause))}", "Install what the URL's protocol needs."
        ) from secrets.cause(cause)
    except Exception as cause:
        raise _none(uri, cause, shown, secrets.hidden(str(cause))) from secrets.cause(cause)


def _none(uri: str, cause: Exception, shown: str, why: str) -> InputError:
    """Of a place where zarr finds nothing."""
    if isinstance(cause, PermissionError):
        return InputError(f"{shown}: can't be read: {cause.strerror}", "Check its permissions.", key="input.uri")
    if "://" in uri:
        problem, remedy = f"{type(cause).__name__}: {why}", "Check the URL and input.storage_options."
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
        # botocore has 10 by default, which is then what a reader has under way.
        options["config_kwargs"] = {"max_pool_connections": REQUESTS, **options.get("config_kwargs", {})}
    return FsspecStore.from_url(uri, storage_options=options, read_only=True)


def _of_obstore(uri: str, options: dict[str, Any]) -> Store:
    from obstore.store import from_url

    return ObjectStore(from_url(uri, **options), read_only=True)


_STORES: dict[Library, Callable[[str, dict[str, Any]], Store]] = {"fsspec": _of_fsspec, "obstore": _of_obstore}


def arrays_of(group: zarr.Group, name: str) -> dict[str, zarr.Array[Any]]:
    """Every array below a group, by path.

    Raises
    ------
    InputError
        When one of them is of no kind that zarr knows.
    """
    try:
        return {path: item for path, item in group.members(max_depth=None) if isinstance(item, zarr.Array)}
    except (ValueError, TypeError, KeyError) as cause:
        raise unknown(f"{name}: an array in it", cause) from cause


def unknown(name: str, cause: Exception) -> InputError:
    """Of an array that zarr can't open: its dtype, or a codec such as pickle, which zarr does not load."""
    return InputError(
        f"{name} can't be opened: {cause}",
        "Store it with numbers, and with codecs that zarr knows; of another array in the same group give the path.",
        key="input.array",
    )


def leaves(path: str) -> bool:
    """Whether a path would leave the group that it starts from."""
    return ".." in path.replace("\\", "/").split("/")


def list_zarr(
    uri: str, storage_options: Mapping[str, Any] | None, library: Library = "fsspec"
) -> list[tuple[str, tuple[int, ...], str]]:
    """Path, shape and dtype of every array at a path or URL; none where it is itself an array."""
    node = open_node(uri, storage_options, library)
    if isinstance(node, zarr.Array):
        return []
    return [
        (path, item.shape, str(item.dtype)) for path, item in sorted(arrays_of(node, without_credentials(uri)).items())
    ]
