"""Chunks of an HDF5 dataset that deflate has compressed, decoded by this thread alone.

HDF5 decodes under one lock for the whole process, so that threads wait for each other. Here only the stored bytes are
fetched under it, and libdeflate, which lets go of Python's lock, decompresses them. What has other filters, or a chunk to
which not all of them were applied, is left to HDF5.
"""

from __future__ import annotations

import math
from typing import Any, Self

import deflate
import h5py
import numpy as np
from numpy.typing import NDArray

from dpca.sources.base import Buffer, read_ahead

PLANE_BYTES = 2**14
"""Of each byte of the values, put in place together: all that is written stays in the cache meanwhile."""


class DeflatedChunks:
    """The chunks of a dataset. One thread at a time."""

    def __init__(self, dataset: h5py.Dataset, shuffled: bool) -> None:
        self._dataset, self._shuffled, self._decoded = dataset, shuffled, Buffer()
        # Only this driver of HDF5's has one plain file.
        self._file = dataset.file.id.get_vfd_handle() if dataset.file.driver == "sec2" else None

    @classmethod
    def of(cls, dataset: h5py.Dataset) -> Self | None:
        """None where HDF5 has to read."""
        if dataset.chunks is None or dataset.is_virtual or dataset.external:
            return None
        properties = dataset.id.get_create_plist()
        filters = [properties.get_filter(number)[0] for number in range(properties.get_nfilters())]
        if filters not in ([h5py.h5z.FILTER_DEFLATE], [h5py.h5z.FILTER_SHUFFLE, h5py.h5z.FILTER_DEFLATE]):
            return None
        return cls(dataset, len(filters) == 2 and dataset.dtype.itemsize > 1)

    def expect(self, corner: tuple[int, ...]) -> None:
        """Have the system read a chunk ahead, which has to be there, while this process computes."""
        if self._file is not None:
            stored = self._dataset.id.get_chunk_info_by_coord(corner)
            read_ahead(self._file, stored.byte_offset, stored.size)

    def read(self, corner: tuple[int, ...], inside: tuple[slice, ...], out: NDArray[Any]) -> bool:
        """Decode a part of a chunk; False where it is left to HDF5.

        Parameters
        ----------
        corner : where the chunk begins, which has to be there
        inside : the part
        out : of the part's shape

        Raises
        ------
        ValueError
            When it is not what was written.
        """
        shape, dtype = self._dataset.chunks, self._dataset.dtype
        mask, stored = self._dataset.id.read_direct_chunk(corner)
        if mask:
            return False
        n_bytes = math.prod(shape) * dtype.itemsize
        try:
            content = deflate.zlib_decompress(stored, n_bytes)
        except deflate.DeflateError as cause:
            raise ValueError(str(cause)) from cause
        if len(content) != n_bytes:
            raise ValueError(f"the chunk decodes to {len(content)} bytes, not {n_bytes}")
        if not self._shuffled:
            out[...] = np.frombuffer(content, dtype).reshape(shape)[inside]
            return True
        whole = out.shape == shape and out.flags.c_contiguous
        chunk = out if whole else self._decoded.view(shape, dtype)
        unshuffle(np.frombuffer(content, np.uint8), chunk.reshape(-1).view(np.uint8), dtype.itemsize)
        if not whole:
            out[...] = chunk[inside]
        return True


def unshuffle(planes: NDArray[np.uint8], out: NDArray[np.uint8], itemsize: int) -> None:
    """Values from their bytes, of which all first ones come first, then all second ones (HDF5's shuffle filter)."""
    source, target = planes.reshape(itemsize, -1), out.reshape(-1, itemsize)
    for start in range(0, len(target), PLANE_BYTES):
        part = slice(start, start + PLANE_BYTES)
        for number in range(itemsize):
            target[part, number] = source[number, part]
