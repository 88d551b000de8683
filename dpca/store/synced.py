"""A Zarr store whose files are on disk when a write returns."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import BinaryIO

from zarr.core.buffer import Buffer
from zarr.core.common import AccessModeLiteral
from zarr.storage import LocalStore

from dpca.errors import writing
from dpca.system import durable

_CHUNK = re.compile(r"(?:(.+)/)?c(?:/\d+)*")
"""The key of a chunk; its group is the key of the array."""


class SyncedStore(LocalStore):
    """A directory whose files are synced to disk as soon as they are written; the ledger relies on it.

    Once the directory, or an array in it, is removed, nothing is written there: a late task can't bring it back.
    """

    async def _open(self, *, mode: AccessModeLiteral | None = None) -> None:
        if not self.read_only:
            await asyncio.to_thread(durable.make_directories, self.root)  # zarr would make it for everyone to write
        await super()._open(mode=mode)

    def set_sync(self, key: str, value: Buffer) -> None:
        self._check_writable()
        self._put(key, value)

    async def set(self, key: str, value: Buffer) -> None:
        self._check_writable()
        await asyncio.to_thread(self._put, key, value)

    async def set_if_not_exists(self, key: str, value: Buffer) -> None:
        if not await self.exists(key):
            await self.set(key, value)

    def delete_sync(self, key: str) -> None:
        self._check_writable()
        with writing(str(self.root / key)):
            durable.remove(self.root / key)

    async def delete(self, key: str) -> None:
        await asyncio.to_thread(self.delete_sync, key)

    async def delete_dir(self, prefix: str) -> None:
        if (self.root / prefix).exists():
            await self.delete(prefix)

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        async for name in super().list_dir(prefix):
            if not durable.is_partial(name):  # what another process writes, or has left: zarr would warn of it
                yield name

    def _save(self, path: Path, save: Callable[[BinaryIO], object]) -> None:
        durable.write(path, save)

    def _put(self, key: str, value: Buffer) -> None:
        path, view = self.root / key, value.as_buffer_like()
        match = _CHUNK.fullmatch(key)
        array = self.root / match[1] if match and match[1] else self.root
        if not array.is_dir():
            raise FileNotFoundError(f"{array} is gone")
        with writing(str(array if match else path.parent)):
            durable.make_directories(path.parent)
            self._save(path, lambda file: file.write(view))


class UnsyncedStore(SyncedStore):
    """A directory that a power failure may lose: of a fit in Python, which ends with its process."""

    def _save(self, path: Path, save: Callable[[BinaryIO], object]) -> None:
        durable.write_unflushed(path, save)
