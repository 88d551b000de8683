"""Stores that count and stores that fail."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import zarr
from zarr.abc.store import RangeByteRequest
from zarr.storage import WrapperStore

from dpca.sources.zarr_array import FETCHED_BYTES

METADATA = ("zarr.json", ".zarray", ".zattrs", ".zgroup", ".zmetadata")


class CountingStore(WrapperStore):
    """Counts the reads of each chunk, by key; a sharded array's by key and byte range, but not what a fingerprint looks at."""

    def __init__(self, store, reads=None):
        super().__init__(store)
        self.reads = Counter() if reads is None else reads

    def _with_store(self, store):
        return type(self)(store, self.reads)

    async def get(self, key, prototype, byte_range=None):
        if not key.endswith(METADATA) and byte_range != RangeByteRequest(0, FETCHED_BYTES):
            self.reads[key if byte_range is None else (key, repr(byte_range))] += 1
        return await self._store.get(key, prototype, byte_range)


def counted(array):
    """The same Zarr array over a store that counts, and the counts."""
    store = CountingStore(array.store)
    return zarr.open_array(store, path=array.path, mode="r"), store.reads


def random_array(seed, shape, dtype):
    """Values that fit a dtype, with different means and spreads for each feature."""
    rng = np.random.default_rng(seed)
    dtype = np.dtype(dtype)
    values = rng.standard_normal(shape) * rng.uniform(0.5, 2, shape) + rng.uniform(-3, 3, shape[1:])
    if dtype.kind == "b":
        return values > 0
    if dtype.kind in "iu":
        return np.clip(
            np.round(20 * values + (60 if dtype.kind == "u" else 0)), 0 if dtype.kind == "u" else -100, 120
        ).astype(dtype)
    return values.astype(dtype)


def bits(path):
    """Everything that a result holds, but what tells of the way there."""
    certificate = json.loads(Path(path, "certificate.json").read_text())
    return contents(Path(path, "result.zarr")) | {"certificate": certificate}


def contents(path):
    """All files in a directory."""
    return {str(file.relative_to(path)): file.read_bytes() for file in sorted(Path(path).rglob("*")) if file.is_file()}
