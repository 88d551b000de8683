"""Decoding of compressed chunks into the bytes that belong there, and not one more.

The array's metadata give their number, and memory is planned by it. zarr, numcodecs and HDF5 allocate what the chunk
itself claims instead, and a chunk of a few kilobytes can claim all memory.
"""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable
from typing import Any, Protocol

import numcodecs
import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]

STORED_BEYOND = 2**20
"""Bytes that a stored chunk may take beyond twice its decoded size: codecs enlarge it by their headers at most."""
LZMA_BYTES = 2**27
"""Most memory for the dictionary of lzma, whose size the chunk states; lzma's highest preset takes half of this."""


HEAD_BYTES = 18
"""Length of the longest header of a chunk."""
UNTOLD = -1
"""Stands for the decoded size of a chunk that does not state it."""


class _Stream(Protocol):
    """A decompressor of the standard library."""

    def decompress(self, data: Any, max_length: int) -> bytes: ...
    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...


def most_stored(n_bytes: int) -> int:
    """Most bytes that a chunk of `n_bytes` decoded bytes takes in storage."""
    return 2 * n_bytes + STORED_BEYOND


def check_stored(length: int, n_bytes: int) -> None:
    """Refuse a chunk by its stored size, before it is fetched."""
    if length > most_stored(n_bytes):
        raise ValueError(f"the chunk takes {length} bytes in storage, where {n_bytes} belong once it is decoded")


def claims(found: int, n_bytes: int) -> ValueError:
    """The error for a chunk that does not hold the bytes that belong there."""
    return ValueError(f"the chunk claims {found} bytes where {n_bytes} belong")


def decode_into(codec: Any, stored: Bytes, out: Bytes) -> None:
    """Decode a chunk into given memory, by a codec of `SIZES`.

    Parameters
    ----------
    codec : a codec of numcodecs
    stored : (n,), the chunk as stored
    out : (m,), contiguous
    """
    claimed = SIZES[codec.codec_id](stored)
    if claimed not in (len(out), UNTOLD):
        raise claims(claimed, len(out))
    try:
        codec.decode(stored, out=out)
    except (RuntimeError, ValueError) as cause:
        raise ValueError(f"the chunk does not decode to the {len(out)} bytes that belong there: {cause}") from cause


def decode(codec: Any, stored: Bytes, n_bytes: int, exact: bool = True) -> Any:
    """Decode a chunk, by a codec of `BOUNDED`.

    Parameters
    ----------
    codec : a codec of numcodecs
    stored : (n,), the chunk as stored
    n_bytes : decoded size, at most
    exact : whether fewer bytes are refused, too

    Returns
    -------
    bytes or (m,) : the decoded content
    """
    if codec.codec_id in SIZES:
        size = n_bytes
        if not exact and (size := SIZES[codec.codec_id](stored)) == UNTOLD:
            raise ValueError("the chunk does not say how many bytes it holds, and nothing else does")
        if size > n_bytes:
            raise claims(size, n_bytes)
        out = np.empty(size, np.uint8)
        decode_into(codec, stored, out)
        return out
    content = unpacked(lambda: _STREAMS[codec.codec_id](codec), stored, n_bytes)
    if exact and len(content) != n_bytes:
        raise claims(len(content), n_bytes)
    return content


def unpacked(begin: Callable[[], _Stream], stored: Any, n_bytes: int) -> bytes:
    """The content of concatenated compressed streams."""
    contents, left, rest = [], n_bytes + 1, stored
    while len(rest):
        try:
            stream = begin()
            contents.append(stream.decompress(rest, left))
        except (OSError, EOFError, zlib.error, lzma.LZMAError, MemoryError) as cause:
            raise ValueError(f"the chunk is damaged: {cause}") from cause
        left -= len(contents[-1])
        if left <= 0:
            raise ValueError(f"the chunk claims more bytes than the {n_bytes} that belong there")
        if not stream.eof:
            raise ValueError("the chunk was truncated: it ends within a compressed stream")
        rest = stream.unused_data
    return contents[0] if len(contents) == 1 else b"".join(contents)


def _of_blosc(stored: Bytes) -> int:
    """Decoded size by c-blosc's header (README_CHUNK_FORMAT). Checks the stored length: numcodecs would read past the end."""
    header = stored[:16].tobytes()
    expected = int.from_bytes(header[12:16], "little")
    if len(stored) < 16 or len(stored) != expected:
        raise ValueError(f"the chunk has {len(stored)} bytes, but its header says {expected}: it was truncated")
    return int.from_bytes(header[4:8], "little")


def _of_zstd(stored: Bytes) -> int:
    """Decoded size by the headers of all frames (RFC 8878, 3.1.1); UNTOLD where one does not state it.

    numcodecs then requires the output to be filled; with a stated size that is too small it would leave the rest as it was.
    """
    total = position = 0
    while position < len(stored):
        header = stored[position : position + 18].tobytes()
        if header[1:4] == b"\x2a\x4d\x18" and header[0] & 0xF0 == 0x50:  # a skippable frame
            position += 8 + int.from_bytes(header[4:8], "little")
            continue
        if header[:4] != b"\x28\xb5\x2f\xfd" or len(header) < 6:
            raise ValueError("the chunk is damaged: it is no frame of zstd")
        size, length = _frame(header)
        if size == UNTOLD:
            return UNTOLD
        total += size
        position += length
        last = False
        while not last and position + 3 <= len(stored):
            block = int.from_bytes(stored[position : position + 3].tobytes(), "little")
            last = bool(block & 1)
            position += 3 + (1 if block >> 1 & 3 == 1 else block >> 3)  # a block of one repeated byte
        position += 4 * (header[4] >> 2 & 1)  # a checksum
        if not last or position > len(stored):
            raise ValueError("the chunk was truncated: it ends within a frame of zstd")
    return total


def claimed_by(codec_id: str, head: bytes) -> int:
    """Decoded size stated in the first `HEAD_BYTES` of a chunk, for several frames that of the first; or UNTOLD."""
    if codec_id == "blosc" and len(head) >= 8:
        return int.from_bytes(head[4:8], "little")
    if codec_id == "lz4" and len(head) >= 4:
        return int.from_bytes(head[:4], "little")
    if codec_id == "zstd" and head[:4] == b"\x28\xb5\x2f\xfd" and len(head) >= 6:
        return _frame(head)[0]
    return UNTOLD


def _frame(header: bytes) -> tuple[int, int]:
    """Decoded size that a frame of zstd states, or UNTOLD, and the offset of its blocks."""
    descriptor = header[4]
    single, length = bool(descriptor & 0x20), (0, 2, 4, 8)[descriptor >> 6]
    length = length or int(single)
    start = 5 + (not single) + (0, 1, 2, 4)[descriptor & 3]
    size = int.from_bytes(header[start : start + length], "little") + (256 if length == 2 else 0)
    return (size if length else UNTOLD), start + length


def _of_lz4(stored: Bytes) -> int:
    """Decoded size by the four bytes that numcodecs puts before a block."""
    if len(stored) < 4:
        raise ValueError(f"the chunk has {len(stored)} bytes: it was truncated")
    return int.from_bytes(stored[:4].tobytes(), "little")


def _lzma(codec: Any) -> _Stream:
    if codec.format != lzma.FORMAT_RAW:
        return lzma.LZMADecompressor(codec.format, LZMA_BYTES)
    if any(options.get("dict_size", 0) > LZMA_BYTES for options in codec.filters or ()):
        raise ValueError(f"the array's metadata ask for a dictionary of lzma above {LZMA_BYTES} bytes")
    return lzma.LZMADecompressor(codec.format, filters=codec.filters)


SIZES: dict[str, Callable[[Bytes], int]] = {"blosc": _of_blosc, "zstd": _of_zstd, "lz4": _of_lz4}
"""Codecs that decode into given memory, with functions that read the decoded size from a chunk."""
_STREAMS: dict[str, Callable[[Any], Any]] = {
    "zlib": lambda _: zlib.decompressobj(),
    "gzip": lambda _: zlib.decompressobj(16 + zlib.MAX_WBITS),
    "bz2": lambda _: bz2.BZ2Decompressor(),
    "lzma": _lzma,
}
"""Codecs that decode piece by piece, with functions that make a decompressor."""
BOUNDED = frozenset((*SIZES, *_STREAMS))


class BoundedCodec(numcodecs.abc.Codec):  # type: ignore[misc]
    """A codec of numcodecs that refuses to decode to more bytes than belong there.

    Parameters
    ----------
    codec : one of `BOUNDED`
    n_bytes, exact : as in `decode`
    """

    def __init__(self, codec: Any, n_bytes: int, exact: bool) -> None:
        self.codec_id = codec.codec_id
        self._codec, self._n_bytes, self._exact = codec, n_bytes, exact

    def encode(self, buf: Any) -> Any:
        return self._codec.encode(buf)

    def decode(self, buf: Any, out: Any = None) -> Any:
        stored = numcodecs.compat.ensure_contiguous_ndarray(buf).view(np.uint8)
        content = decode(self._codec, stored, self._n_bytes, self._exact)
        return content if out is None else numcodecs.compat.ndarray_copy(content, out)

    def get_config(self) -> dict[str, Any]:
        return dict(self._codec.get_config())
