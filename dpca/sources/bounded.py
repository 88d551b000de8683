"""Compressed chunks, decoded into as many bytes as belong there and not one more.

How many that is follows from an array's metadata, and what it takes of memory is planned by that. zarr, numcodecs and HDF5
give a chunk as much as it asks for instead, of which a few kilobytes can ask for all that there is.
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
"""What a stored chunk may take beyond twice what it holds: no codec makes it larger than by its own headers."""
LZMA_BYTES = 2**27
"""Memory for the dictionary of lzma, which a chunk asks for, too; its highest preset takes half of it."""


HEAD_BYTES = 18
"""Of a chunk: the longest header."""
UNTOLD = -1
"""Of a chunk that does not say how many bytes it holds."""


class _Stream(Protocol):
    """What the standard library decompresses with."""

    def decompress(self, data: Any, max_length: int) -> bytes: ...
    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...


def most_stored(n_bytes: int) -> int:
    """The most that a chunk of so many bytes takes in storage."""
    return 2 * n_bytes + STORED_BEYOND


def check_stored(length: int, n_bytes: int) -> None:
    """Refuse a chunk by what it takes in storage, before it is fetched.

    Raises
    ------
    ValueError
        When no codec would make as much of it.
    """
    if length > most_stored(n_bytes):
        raise ValueError(f"the chunk takes {length} bytes in storage, where {n_bytes} belong once it is decoded")


def claims(found: int, n_bytes: int) -> ValueError:
    """Of a chunk that does not hold what belongs there."""
    return ValueError(f"the chunk claims {found} bytes where {n_bytes} belong")


def decode_into(codec: Any, stored: Bytes, out: Bytes) -> None:
    """Fill memory with a chunk, by a codec of `SIZES`.

    Parameters
    ----------
    codec : of numcodecs
    stored : (n,)
    out : (m,), contiguous

    Raises
    ------
    ValueError
        When the chunk claims another number of bytes, was cut short, or is damaged.
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
    codec : of numcodecs
    stored : (n,)
    n_bytes : what belongs there
    exact : whether less is refused, too

    Returns
    -------
    bytes or (m,) : what it holds

    Raises
    ------
    ValueError
        As `decode_into` does.
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
    """What compressed streams hold, one behind the other.

    Raises
    ------
    ValueError
        When that is more than belongs there; when one is damaged, or ends too early.
    """
    found, left, rest = [], n_bytes + 1, stored
    while len(rest):
        try:
            stream = begin()
            found.append(stream.decompress(rest, left))
        except (OSError, EOFError, zlib.error, lzma.LZMAError, MemoryError) as cause:
            raise ValueError(f"the chunk is damaged: {cause}") from cause
        left -= len(found[-1])
        if left <= 0:
            raise ValueError(f"the chunk claims more bytes than the {n_bytes} that belong there")
        if not stream.eof:
            raise ValueError("the chunk was truncated: it ends within a compressed stream")
        rest = stream.unused_data
    return found[0] if len(found) == 1 else b"".join(found)


def _of_blosc(stored: Bytes) -> int:
    """By the header of c-blosc (README_CHUNK_FORMAT), after its own length: beyond it numcodecs reads what lies behind."""
    header = stored[:16].tobytes()
    expected = int.from_bytes(header[12:16], "little")
    if len(stored) < 16 or len(stored) != expected:
        raise ValueError(f"the chunk has {len(stored)} bytes, but its header says {expected}: it was truncated")
    return int.from_bytes(header[4:8], "little")


def _of_zstd(stored: Bytes) -> int:
    """By the headers of its frames (RFC 8878, 3.1.1), which may be several; UNTOLD where one does not say.

    numcodecs then holds it to fill what it decodes into; else it would leave a part of that as it was.
    """
    total = position = 0
    while position < len(stored):
        header = stored[position : position + 18].tobytes()
        if header[1:4] == b"\x2a\x4d\x18" and header[0] & 0xF0 == 0x50:  # of one to be skipped
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
            position += 3 + (1 if block >> 1 & 3 == 1 else block >> 3)  # one byte that is repeated
        position += 4 * (header[4] >> 2 & 1)  # a checksum
        if not last or position > len(stored):
            raise ValueError("the chunk was truncated: it ends within a frame of zstd")
    return total


def claimed_by(codec_id: str, head: bytes) -> int:
    """What a chunk says in its first `HEAD_BYTES` that it holds: of several frames the first one; UNTOLD where it does not."""
    if codec_id == "blosc" and len(head) >= 8:
        return int.from_bytes(head[4:8], "little")
    if codec_id == "lz4" and len(head) >= 4:
        return int.from_bytes(head[:4], "little")
    if codec_id == "zstd" and head[:4] == b"\x28\xb5\x2f\xfd" and len(head) >= 6:
        return _frame(head)[0]
    return UNTOLD


def _frame(header: bytes) -> tuple[int, int]:
    """What a frame of zstd says that it holds, UNTOLD where it does not, and where its blocks begin."""
    descriptor = header[4]
    single, length = bool(descriptor & 0x20), (0, 2, 4, 8)[descriptor >> 6]
    length = length or int(single)
    start = 5 + (not single) + (0, 1, 2, 4)[descriptor & 3]
    size = int.from_bytes(header[start : start + length], "little") + (256 if length == 2 else 0)
    return (size if length else UNTOLD), start + length


def _of_lz4(stored: Bytes) -> int:
    """By the four bytes that numcodecs puts before a block."""
    if len(stored) < 4:
        raise ValueError(f"the chunk has {len(stored)} bytes: it was truncated")
    return int.from_bytes(stored[:4].tobytes(), "little")


def _lzma(codec: Any) -> _Stream:
    if codec.format != lzma.FORMAT_RAW:
        return lzma.LZMADecompressor(codec.format, LZMA_BYTES)
    if any(of.get("dict_size", 0) > LZMA_BYTES for of in codec.filters or ()):
        raise ValueError(f"the array's metadata ask for a dictionary of lzma above {LZMA_BYTES} bytes")
    return lzma.LZMADecompressor(codec.format, filters=codec.filters)


SIZES: dict[str, Callable[[Bytes], int]] = {"blosc": _of_blosc, "zstd": _of_zstd, "lz4": _of_lz4}
"""Codecs that decode into given memory, and how many bytes a chunk says that it holds."""
_STREAMS: dict[str, Callable[[Any], Any]] = {
    "zlib": lambda _: zlib.decompressobj(),
    "gzip": lambda _: zlib.decompressobj(16 + zlib.MAX_WBITS),
    "bz2": lambda _: bz2.BZ2Decompressor(),
    "lzma": _lzma,
}
"""Codecs that decode piece by piece."""
BOUNDED = frozenset((*SIZES, *_STREAMS))


class BoundedCodec(numcodecs.abc.Codec):  # type: ignore[misc]
    """A codec of numcodecs that decodes to what belongs there.

    Parameters
    ----------
    codec : one of `BOUNDED`
    n_bytes, exact : as `decode` has them
    """

    def __init__(self, codec: Any, n_bytes: int, exact: bool) -> None:
        self.codec_id = codec.codec_id
        self._codec, self._n_bytes, self._exact = codec, n_bytes, exact

    def encode(self, buf: Any) -> Any:
        return self._codec.encode(buf)

    def decode(self, buf: Any, out: Any = None) -> Any:
        stored = numcodecs.compat.ensure_contiguous_ndarray(buf).view(np.uint8)
        found = decode(self._codec, stored, self._n_bytes, self._exact)
        return found if out is None else numcodecs.compat.ndarray_copy(found, out)

    def get_config(self) -> dict[str, Any]:
        return dict(self._codec.get_config())
