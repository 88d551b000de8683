"""An array in a store that makes its chunks up: as many as one likes, and no disk."""

from collections.abc import AsyncIterator
from functools import lru_cache
from typing import Any

import numpy as np
import zarr
from zarr.abc.store import ByteRequest, Store
from zarr.core.buffer import Buffer, BufferPrototype, default_buffer_prototype
from zarr.storage import MemoryStore

N_SAMPLES, WIDTH, N_FEW = 100, 16, 61


@lru_cache
def few() -> list[bytes]:
    """Chunks of noise."""
    rng = np.random.default_rng(0)
    return [rng.standard_normal((N_SAMPLES, WIDTH), np.float32).tobytes() for _ in range(N_FEW)]


class MadeUp(Store):
    """An array whose chunks come from a few, by their number; it travels as its metadata."""

    def __init__(self, metadata: dict[str, bytes]) -> None:
        super().__init__(read_only=True)
        self._metadata = metadata

    async def get(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None) -> Buffer | None:
        found = self._metadata.get(key)
        if found is None and key.startswith("c/"):
            found = few()[int(key.rpartition("/")[2]) % N_FEW]
        return None if found is None else prototype.buffer.from_bytes(found)

    async def exists(self, key: str) -> bool:
        return await self.get(key, default_buffer_prototype()) is not None

    async def get_partial_values(self, prototype: BufferPrototype, key_ranges: Any) -> list[Buffer | None]:
        return [await self.get(key, prototype, byte_range) for key, byte_range in key_ranges]

    async def set(self, key: str, value: Buffer) -> None:
        raise NotImplementedError

    async def delete(self, key: str) -> None:
        raise NotImplementedError

    async def _none(self) -> AsyncIterator[str]:
        for key in ():
            yield key

    def list(self) -> AsyncIterator[str]:
        return self._none()

    def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        return self._none()

    def list_dir(self, prefix: str) -> AsyncIterator[str]:
        return self._none()

    def __eq__(self, other: object) -> bool:
        return self is other

    supports_writes = supports_deletes = supports_partial_writes = supports_listing = False


def array_of(n_chunks: int) -> Any:
    """100 samples in so many chunks of 16 features."""
    memory = MemoryStore()
    zarr.create_array(
        memory, shape=(N_SAMPLES, n_chunks * WIDTH), chunks=(N_SAMPLES, WIDTH), dtype="f4", compressors=None
    )
    metadata = {key: value.to_bytes() for key, value in memory._store_dict.items()}
    return zarr.open_array(MadeUp(metadata), mode="r")
