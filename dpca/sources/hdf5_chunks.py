"""Chunks of an HDF5 dataset: those of common codecs are decoded here, others are checked before HDF5 decodes them.

HDF5 decodes under one lock for the whole process, so that threads wait for each other. Here only the stored bytes are
fetched under that lock, and libdeflate, zstd or blosc, which release Python's lock, decompress them. Chunks with other
filters, and chunks to which not all filters were applied, are left to HDF5. HDF5 allocates as much memory as a chunk asks
for; if the chunk holds less than belongs there, or its filter fails, HDF5 silently returns whatever is in that memory.
Therefore `StoredChunks` checks them first.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from contextlib import suppress
from itertools import product
from typing import Any, Self

import deflate
import h5py
import numcodecs
import numpy as np
from numpy.typing import NDArray

from dpca.sources.base import read_ahead
from dpca.sources.blosc2_frame import decoded_size
from dpca.sources.bounded import SIZES, Bytes, claims, decode, most_stored
from dpca.system.buffers import Buffer

PLANE_BYTES = 2**14
"""Number of values that are unshuffled at a time, so few that the written memory stays in the cache."""


class DecodedChunks:
    """The chunks of a dataset, decoded here. For one thread at a time."""

    def __init__(self, dataset: h5py.Dataset, code: int, shuffled: bool) -> None:
        self._dataset, self._code, self._shuffled = dataset, code, shuffled
        self._stored, self._decoded = Buffer(), Buffer()
        # Only this driver of HDF5 reads a single plain file.
        self._file = dataset.file.id.get_vfd_handle() if dataset.file.driver == "sec2" else None

    @classmethod
    def of(cls, dataset: h5py.Dataset) -> Self | None:
        """The chunks of a dataset; None if HDF5 has to read them."""
        filters = [code for code, _ in filters_of(dataset)]
        if not filters or filters[-1] not in _CODECS or filters[:-1] not in ([], [h5py.h5z.FILTER_SHUFFLE]):
            return None
        return cls(dataset, filters[-1], len(filters) == 2 and dataset.dtype.itemsize > 1)

    def expect(self, corner: tuple[int, ...]) -> None:
        """Ask the system to read a chunk ahead while this process computes."""
        if self._file is not None:
            stored = self._dataset.id.get_chunk_info_by_coord(corner)
            if stored.byte_offset is not None:
                read_ahead(self._file, stored.byte_offset, stored.size)

    def read(self, corner: tuple[int, ...], inside: tuple[slice, ...], out: NDArray[Any]) -> bool:
        """Decode a part of a chunk; returns False if the chunk is left to HDF5.

        Parameters
        ----------
        corner : where the chunk begins
        inside : the part, relative to the chunk
        out : array of the part's shape
        """
        shape, dtype = self._dataset.chunks, self._dataset.dtype
        n_bytes = math.prod(shape) * dtype.itemsize
        fetched = _fetched(self._dataset, corner, self._stored, n_bytes)
        if fetched is None or fetched[0] or _is_foreign(self._code, fetched[1]):
            return False
        content = _CODECS[self._code](fetched[1], n_bytes, True)
        if not self._shuffled:
            out[...] = np.frombuffer(content, dtype).reshape(shape)[inside]
            return True
        whole = out.shape == shape and out.flags.c_contiguous
        chunk = out if whole else self._decoded.view(shape, dtype)
        unshuffle(np.frombuffer(content, np.uint8), chunk.reshape(-1).view(np.uint8), dtype.itemsize)
        if not whole:
            out[...] = chunk[inside]
        return True


class StoredChunks:
    """The chunks of a dataset as stored, whose decoded size is checked before HDF5 decodes them.

    Only filters of HDF5 itself and the lossless ones of hdf5plugin are known; others are not checked. blosc2, which could run code
    (`dpca.sources.blosc2_frame`), decodes nothing that was not.
    """

    def __init__(self, dataset: h5py.Dataset, filters: list[tuple[int, tuple[int, ...]]]) -> None:
        self._dataset, self._filters, self._stored = dataset, filters, Buffer()
        self._bytes = math.prod(dataset.chunks) * stored_itemsize(dataset)

    @classmethod
    def of(cls, dataset: h5py.Dataset) -> Self | None:
        """The stored chunks of a dataset; None if it has no filters."""
        filters = filters_of(dataset)
        return cls(dataset, filters) if filters else None

    def check(self, region: tuple[slice, ...]) -> None:
        """Check every chunk that a region touches."""
        chunks = self._dataset.chunks
        axes = [range(p.start // step, -(-p.stop // step)) for p, step in zip(region, chunks, strict=True)]
        for index in product(*axes):
            corner = tuple(number * step for number, step in zip(index, chunks, strict=True))
            fetched = _fetched(self._dataset, corner, self._stored, self._bytes)
            if fetched is not None:
                self._check(*fetched)

    def _check(self, mask: int, stored: Bytes) -> None:
        """Undo filters from the last to the first, until the decoded size of the chunk is known."""
        applied = [filter_ for number, filter_ in enumerate(self._filters) if not mask >> number & 1]
        for left in range(len(applied) - 1, -1, -1):
            (code, values), before = applied[left], [code for code, _ in applied[:left]]
            exact = set(before) <= _SAME_SIZE
            n_bytes = self._bytes + 4 * before.count(h5py.h5z.FILTER_FLETCHER32) if exact else most_stored(self._bytes)
            if code == h5py.h5z.FILTER_FLETCHER32:
                stored = stored[:-4]
            elif code in _CODECS and not _is_foreign(code, stored):
                stored = np.frombuffer(_CODECS[code](stored, n_bytes, exact), np.uint8)
            elif code in _CLAIMS:
                size = _CLAIMS[code](stored, values)
                if size > n_bytes or (exact and size != n_bytes):
                    raise claims(size, n_bytes)
                if not _COMPRESSING.isdisjoint(before):
                    raise ValueError("what two of the dataset's filters have compressed in turn is not read")
                return
            elif code not in _SAME_SIZE:
                if BLOSC2 in before:
                    raise ValueError(
                        f"what blosc2 has compressed is not read behind filter {code}, which hides its headers"
                    )
                return
        if len(stored) != self._bytes:
            raise claims(len(stored), self._bytes)


def _fetched(dataset: h5py.Dataset, corner: tuple[int, ...], memory: Buffer, n_bytes: int) -> tuple[int, Bytes] | None:
    """Mask of the filters that a chunk skipped, and its stored bytes; None if it was never written."""
    room = memory.view([most_stored(n_bytes)], np.dtype(np.uint8))
    try:
        mask, stored = dataset.id.read_direct_chunk(corner, out=room)
    except RuntimeError:
        if dataset.id.get_chunk_info_by_coord(corner).byte_offset is None:
            return None
        raise
    return int(mask), room[: len(stored)]


def stored_itemsize(dataset: h5py.Dataset) -> int:
    """Bytes of a value in a chunk; for text of variable length, bytes of its length and of its address in the file."""
    string = h5py.check_string_dtype(dataset.dtype)
    if string is None or string.length is not None:
        return int(dataset.dtype.itemsize)
    of_address, _ = dataset.file.id.get_create_plist().get_sizes()
    return 4 + int(of_address) + 4


def filters_of(dataset: h5py.Dataset) -> list[tuple[int, tuple[int, ...]]]:
    """Numbers and parameters of a dataset's filters, in the order in which they were applied."""
    if dataset.chunks is None or dataset.is_virtual:
        return []
    properties = dataset.id.get_create_plist()
    filters = (properties.get_filter(number) for number in range(properties.get_nfilters()))
    return [(code, values) for code, _, values, _ in filters]


def _of_scaleoffset(stored: Bytes, values: tuple[int, ...]) -> int:
    """Decoded size by the filter's parameters (number and size of values); the chunk states the stored bits of a value."""
    n_values, size, bits = values[2], values[4], int.from_bytes(stored[:4].tobytes(), "little")
    if len(stored) < 21 + n_values * min(bits, 8 * size) // 8:
        raise ValueError("the chunk was truncated: it has fewer bits than its header says")
    return n_values * size


def _of_lzf(stored: Bytes, _: tuple[int, ...]) -> int:
    """Decoded size by the lengths of the runs (liblzf): there is no header."""
    content, position, total = stored.tobytes(), 0, 0
    end = len(content) - 1
    while position < end:
        control = content[position]
        if control < 32:  # a run of control + 1 literal bytes
            total += control + 1
            position += control + 2
        elif control < 224:  # a copy of earlier bytes
            total += (control >> 5) + 2
            position += 2
        else:
            total += content[position + 1] + 9
            position += 3
    if position != end + 1:
        raise ValueError("the chunk was truncated: it ends within a run of lzf")
    return total


def _of_szip(stored: Bytes, _: tuple[int, ...]) -> int:
    return int.from_bytes(stored[:4].tobytes(), "little")


def _of_lz4(stored: Bytes, _: tuple[int, ...]) -> int:
    """Decoded size by the header: bytes in all, bytes of a block; then the blocks follow, each after its length."""
    total, block = int.from_bytes(stored[:8].tobytes(), "big"), int.from_bytes(stored[8:12].tobytes(), "big")
    _check_blocks(stored, -(-total // max(1, block)), 0)
    return total


def _of_bitshuffle(stored: Bytes, values: tuple[int, ...]) -> int:
    """`_of_lz4` for bitshuffle that also compresses; a block has a multiple of eight values, and the rest are stored as is."""
    if len(values) < 5 or not values[4]:
        return len(stored)
    total, block = int.from_bytes(stored[:8].tobytes(), "big"), int.from_bytes(stored[8:12].tobytes(), "big")
    n_values, size = total // values[2], max(8, block // values[2])
    _check_blocks(stored, n_values // size + (n_values % size >= 8), n_values % 8 * values[2])
    return total


def _check_blocks(stored: Bytes, n_blocks: int, rest: int) -> None:
    """Refuse a chunk whose blocks do not end where it ends: its filter would read past the end."""
    position = 12
    for _ in range(n_blocks):
        if position >= len(stored):
            break
        position += 4 + int.from_bytes(stored[position : position + 4].tobytes(), "big")
    if position + rest != len(stored):
        raise ValueError("the chunk was truncated, or is damaged: its blocks do not end where it does")


def _inflated(stored: Bytes, n_bytes: int, exact: bool) -> Any:
    with suppress(deflate.DeflateError):
        content = deflate.zlib_decompress(stored, n_bytes)
        if len(content) == n_bytes:
            return content
    return decode(numcodecs.Zlib(), stored, n_bytes, exact)  # shorter content, or an error that says what is wrong


def _unlzf(stored: Bytes, n_bytes: int, exact: bool) -> Any:
    out = np.empty(n_bytes, np.uint8)
    size = LZF_DECOMPRESS(stored.ctypes.data, len(stored), out.ctypes.data, n_bytes)
    if not size or (exact and size != n_bytes):
        raise claims(_of_lzf(stored, ()), n_bytes)
    return out[:size]


def _is_foreign(code: int, stored: Bytes) -> bool:
    """Whether blosc compressed the chunk with snappy, which only HDF5's blosc may support."""
    return code == BLOSC and len(stored) > 2 and int(stored[2]) >> 5 == 2


def _of_h5py() -> Any:
    """The decompressor of liblzf inside h5py, which does not document it; None if h5py does not export it."""
    try:
        lzf = ctypes.CDLL(h5py.h5z.__file__).lzf_decompress
    except (AttributeError, OSError):
        return None
    lzf.argtypes, lzf.restype = (ctypes.c_void_p, ctypes.c_uint, ctypes.c_void_p, ctypes.c_uint), ctypes.c_uint
    return lzf


LZF_DECOMPRESS = _of_h5py()
BLOSC, LZ4, BZIP2, BITSHUFFLE, ZSTD, BLOSC2 = 32001, 32004, 307, 32008, 32015, 32026
"""Filter numbers, as registered with the HDF Group."""
_SAME_SIZE = {h5py.h5z.FILTER_SHUFFLE, h5py.h5z.FILTER_FLETCHER32}
"""Filters that keep the size, except for the four bytes of a checksum."""
_CODECS: dict[int, Callable[[Bytes, int, bool], Any]] = {
    h5py.h5z.FILTER_DEFLATE: _inflated,
    BZIP2: lambda stored, n_bytes, exact: decode(numcodecs.BZ2(), stored, n_bytes, exact),
    ZSTD: lambda stored, n_bytes, exact: decode(numcodecs.Zstd(), stored, n_bytes, exact),
    BLOSC: lambda stored, n_bytes, exact: decode(numcodecs.Blosc(), stored, n_bytes, exact),
    **({h5py.h5z.FILTER_LZF: _unlzf} if LZF_DECOMPRESS else {}),
}
"""Filters that can be undone here."""
_CLAIMS: dict[int, Callable[[Bytes, tuple[int, ...]], int]] = {
    h5py.h5z.FILTER_SZIP: _of_szip,
    h5py.h5z.FILTER_SCALEOFFSET: _of_scaleoffset,
    h5py.h5z.FILTER_LZF: _of_lzf,
    BLOSC: lambda stored, _: SIZES["blosc"](stored),
    LZ4: _of_lz4,
    BITSHUFFLE: _of_bitshuffle,
    BLOSC2: lambda stored, values: decoded_size(stored, values[2]),
}
"""Filters whose decoded size is known before decoding."""
_COMPRESSING = {*_CODECS, *_CLAIMS} - {h5py.h5z.FILTER_SCALEOFFSET}


def unshuffle(planes: NDArray[np.uint8], out: NDArray[np.uint8], itemsize: int) -> None:
    """Undo HDF5's shuffle filter, which stores the first bytes of all values, then all second bytes, and so on."""
    source, target = planes.reshape(itemsize, -1), out.reshape(-1, itemsize)
    for start in range(0, len(target), PLANE_BYTES):
        part = slice(start, start + PLANE_BYTES)
        for number in range(itemsize):
            target[part, number] = source[number, part]
