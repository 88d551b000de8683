"""Chunks of a Zarr array in a local directory, decoded directly into memory that is used again.

zarr decodes each chunk into new memory, which the system has to clear first, and copies it from there.
"""

from __future__ import annotations

import os
import sys
from typing import Any, Self

import numcodecs
import numpy as np
import zarr
from numpy.typing import NDArray
from zarr.storage import LocalStore

from dpca.errors import StorageError
from dpca.sources.base import read_ahead
from dpca.sources.bounded import SIZES, check_stored, decode_into
from dpca.sources.zarr_store import Folder
from dpca.system.buffers import Buffer


class ChunkFiles:
    """The chunk files of an array. For one thread at a time."""

    def __init__(self, array: zarr.Array[Any], folder: Folder, codec: Any) -> None:
        self._array, self._folder, self._codec = array, folder, codec
        self._stored, self._decoded = Buffer(), Buffer()

    @classmethod
    def of(cls, array: zarr.Array[Any]) -> Self | None:
        """The chunk files of an array; None if only zarr can read them."""
        codecs, store = codecs_of(array), array.store
        if codecs is None or len(codecs) != 1 or getattr(codecs[0], "codec_id", None) not in SIZES:
            return None
        assert isinstance(store, LocalStore)
        return cls(array, Folder(store.root), codecs[0])

    def read(
        self, index: tuple[int, ...], shape: tuple[int, ...], inside: tuple[slice, ...], out: NDArray[Any]
    ) -> None:
        """Decode a part of a chunk.

        Parameters
        ----------
        index, shape : index and shape of the chunk
        inside : the part, relative to the chunk
        out : array of the part's shape
        """
        path, n_bytes = self._folder.file(key_of(self._array, index))
        whole = out.shape == shape and out.flags.c_contiguous
        chunk = out if whole else self._decoded.view(shape, out.dtype)
        check_stored(n_bytes, chunk.nbytes)
        stored = self._stored.view([n_bytes], np.dtype(np.uint8))
        with open(path, "rb", buffering=0) as file:
            if file.readinto(memoryview(stored)) != n_bytes:  # type: ignore[arg-type]
                raise ValueError(f"the chunk's file has less than its {n_bytes} bytes")
        decode_into(self._codec, stored, chunk.reshape(-1).view(np.uint8))
        if not whole:
            out[...] = chunk[inside]

    def expect(self, index: tuple[int, ...]) -> None:
        """Ask the system to read a chunk's file ahead while this process computes."""
        try:
            number = os.open(self._folder.file(key_of(self._array, index))[0], os.O_RDONLY)
        except (OSError, StorageError):
            return
        try:
            read_ahead(number)
        finally:
            os.close(number)


def codecs_of(array: zarr.Array[Any]) -> list[Any] | None:
    """Codecs of an array whose chunks are files in a local directory, with values in native byte order and C order.

    None for any other array; a codec that is not decoded here is a None in the list.
    """
    metadata: Any = array.metadata
    if not isinstance(array.store, LocalStore) or array.shards or order_of(array) == "F":
        return None
    if metadata.zarr_format == 2:
        return [*(metadata.filters or ()), *([metadata.compressor] if metadata.compressor else ())]
    first, *others = [codec.to_dict() for codec in metadata.codecs]
    # The metadata give no byte order if a value is a single byte.
    if first["name"] != "bytes" or first.get("configuration", {}).get("endian", sys.byteorder) != sys.byteorder:
        return None
    return [numcodecs.get_codec({"id": codec["name"]}) if codec["name"] in SIZES else None for codec in others]


def order_of(array: zarr.Array[Any]) -> str:
    """Order of the values in a chunk; "C" if at most one axis is longer than 1, since both orders are the same then."""
    lines = sum(length > 1 for length in array.chunks) < 2
    return "C" if lines or array.metadata.zarr_format != 2 else array.order


def key_of(array: zarr.Array[Any], index: tuple[int, ...]) -> str:
    """The key of a chunk in the array's store."""
    return f"{array.path}/{array.metadata.encode_chunk_key(index)}".lstrip("/")
