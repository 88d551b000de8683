"""Stores that count and stores that fail; and a disk whose user sleeps."""

import errno
import json
import os
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import zarr
from zarr.abc.store import RangeByteRequest
from zarr.storage import WrapperStore

from dpca.sources.zarr_array import FETCHED_BYTES
from dpca.system import durable

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


CHANGES = ("rename", "unlink", "remove_tree")
"""Steps by which names are replaced and removed."""


class Slept(durable.Disk):
    """One of the steps of some kinds is taken late, whatever thread takes it: something else happens before."""

    def __init__(self, step, meanwhile, kinds):
        self.left, self._lock = step, threading.Lock()
        for kind in kinds:
            setattr(self, kind, self._late(getattr(super(), kind), meanwhile))

    def _late(self, take, meanwhile):
        def late(*arguments):
            with self._lock:
                self.left -= 1
                now = self.left == -1
            if now:
                with ThreadPoolExecutor(1) as other:
                    other.submit(meanwhile).result()
            take(*arguments)

        return late


@contextmanager
def before_step(step, meanwhile, kinds=CHANGES):
    """Something that another thread does before a step of what this block does, numbered from 0; a function that says whether there was such a step."""
    disk, durable.DISK = durable.DISK, Slept(step, meanwhile, kinds)
    slept = durable.DISK
    try:
        yield lambda: slept.left < 0
    finally:
        durable.DISK = disk


def no_links(*_):
    """os.link, on disks that give no file a second name: memory cards, some shared folders."""
    raise PermissionError(errno.EPERM, "Operation not permitted")


def linked_twice(source, target, link=os.link):
    """os.link over NFS, where a request whose answer was lost is sent again."""
    link(source, target)
    link(source, target)


LINKS = {"links": os.link, "no links": no_links, "links made twice": linked_twice}
"""How disks give a file a second name."""
