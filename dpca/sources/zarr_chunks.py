"""Chunks of a Zarr array in a local directory, decoded straight into memory that is used again.

zarr decodes a chunk into memory of its own, which the system has to clear first, and copies it from there. Only what
can't go wrong unseen is done here: a chunk whose header does not promise exactly the bytes that are expected, or that
fails to decode, is left to zarr, which then says what is wrong with it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import numcodecs
import numpy as np
import zarr
from numpy.typing import NDArray
from zarr.storage import LocalStore

from dpca.sources.base import Buffer, read_ahead

Bytes = NDArray[np.uint8]


class ChunkFiles:
    """The chunk files of an array. One thread at a time."""

    def __init__(self, array: zarr.Array[Any], root: Path, codec: Any) -> None:
        self._array, self._root, self._codec = array, root, codec
        self._size = _SIZES[codec.codec_id]
        self._stored, self._decoded = Buffer(), Buffer()

    @classmethod
    def of(cls, array: zarr.Array[Any]) -> Self | None:
        """None where only zarr knows how to read a chunk."""
        codecs, store = codecs_of(array), array.store
        if codecs is None or len(codecs) != 1 or getattr(codecs[0], "codec_id", None) not in _SIZES:
            return None
        assert isinstance(store, LocalStore)
        return cls(array, store.root, codecs[0])

    def read(
        self, index: tuple[int, ...], shape: tuple[int, ...], inside: tuple[slice, ...], out: NDArray[Any]
    ) -> bool:
        """Decode a part of a chunk; False where it is left to zarr.

        Parameters
        ----------
        index, shape : of the chunk
        inside : the part
        out : of the part's shape

        Raises
        ------
        FileNotFoundError
            When it was never written.
        ValueError
            When it was truncated.
        """
        with open(self._root / key_of(self._array, index), "rb", buffering=0) as file:
            stored = self._stored.view([os.fstat(file.fileno()).st_size], np.dtype(np.uint8))
            if file.readinto(memoryview(stored)) != len(stored):  # type: ignore[arg-type]
                return False
        whole = out.shape == shape and out.flags.c_contiguous
        chunk = out if whole else self._decoded.view(shape, out.dtype)
        if self._size(stored) != chunk.nbytes:
            return False
        try:
            self._codec.decode(stored, out=chunk.reshape(-1).view(np.uint8))
        except (RuntimeError, ValueError):
            return False
        if not whole:
            out[...] = chunk[inside]
        return True

    def expect(self, index: tuple[int, ...]) -> None:
        """Have the system read a chunk's file ahead, while this process computes."""
        try:
            number = os.open(self._root / key_of(self._array, index), os.O_RDONLY)
        except OSError:
            return
        try:
            read_ahead(number)
        finally:
            os.close(number)


def codecs_of(array: zarr.Array[Any]) -> list[Any] | None:
    """The codecs of chunks that are files of their own in a local directory, values in this machine's and in C order.

    None for any other array; a codec may be None, one that is not read here.
    """
    metadata: Any = array.metadata
    if not isinstance(array.store, LocalStore) or array.shards or order_of(array) == "F":
        return None
    if metadata.zarr_format == 2:
        return [*(metadata.filters or ()), *([metadata.compressor] if metadata.compressor else ())]
    first, *others = [codec.to_dict() for codec in metadata.codecs]
    # Without an order in the metadata a value is a single byte.
    if first["name"] != "bytes" or first.get("configuration", {}).get("endian", sys.byteorder) != sys.byteorder:
        return None
    return [numcodecs.get_codec({"id": codec["name"]}) if codec["name"] in _SIZES else None for codec in others]


def order_of(array: zarr.Array[Any]) -> str:
    """Order of the values in a chunk; "C" where a chunk is a single line, since it makes no difference there."""
    lines = sum(length > 1 for length in array.chunks) < 2
    return "C" if lines or array.metadata.zarr_format != 2 else array.order


def key_of(array: zarr.Array[Any], index: tuple[int, ...]) -> str:
    """The key of a chunk in the array's store."""
    return f"{array.path}/{array.metadata.encode_chunk_key(index)}".lstrip("/")


def _of_blosc(stored: Bytes) -> int:
    """Bytes that a chunk decodes to, by the header of c-blosc (README_CHUNK_FORMAT)."""
    check_blosc(len(stored), stored[:16].tobytes())
    return int.from_bytes(stored[4:8].tobytes(), "little")


def check_blosc(length: int, header: bytes) -> None:
    """Refuse a chunk that was cut short: numcodecs does not look, and decodes what lies behind it in memory.

    Raises
    ------
    ValueError
        When it has not the length that its header says.
    """
    expected = int.from_bytes(header[12:16], "little")
    if length < 16 or length != expected:
        raise ValueError(f"the chunk has {length} bytes, but its header says {expected}: it was truncated")


def _of_zstd(stored: Bytes) -> int:
    """Bytes that a frame decodes to, by its header (RFC 8878, 3.1.1.1); -1 where it does not say."""
    if stored[:4].tobytes() != b"\x28\xb5\x2f\xfd":
        return -1
    descriptor = int(stored[4])
    single, length = bool(descriptor & 0x20), (0, 2, 4, 8)[descriptor >> 6]
    length = length or int(single)
    start = 5 + (not single) + (0, 1, 2, 4)[descriptor & 3]
    found = int.from_bytes(stored[start : start + length].tobytes(), "little")
    return (found + 256 if length == 2 else found) if length else -1


_SIZES: dict[str, Callable[[Bytes], int]] = {"blosc": _of_blosc, "zstd": _of_zstd}
"""Codecs that decode into given memory, and how a chunk says how much that is."""
