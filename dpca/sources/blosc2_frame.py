"""Headers of chunks that blosc2 compressed, read before HDF5 decodes them.

A codec or filter that is no part of blosc2 itself is looked for by its name: blosc2 starts `python -c "import blosc2_NAME"`,
which runs a file of that name in the working directory. So only what is built in may be decoded. Chunks are checked before HDF5
decodes them (`hdf5_chunks.StoredChunks`), which tells what is wrong. HDF5's filter itself is guarded as well: HDF5 decodes more
than chunks, such as the names in a group when they are listed.

A frame (README_CFRAME_FORMAT of c-blosc2) holds a header, chunks (README_CHUNK_FORMAT), one more chunk with the offsets of
these, and a trailer. Of HDF5 it has one chunk, at offset 0; if all values are 0, none. blosc2 stores that one offset as it is.
"""

from __future__ import annotations

import ctypes
import math
import os
from typing import Any

import h5py
import hdf5plugin
import numpy as np

from dpca.sources.bounded import Bytes

CODECS = {0: "blosclz", 1: "lz4", 3: "zlib", 4: "zstd"}
"""Numbers in the headers of chunks; lz4hc is decoded as lz4. A frame's header has others, below `END_OF_CODECS`."""
END_OF_CODECS = 6
FILTERS = ("none", "shuffle", "bitshuffle", "delta", "trunc_prec")
FRAME_BYTES, CHUNK_BYTES, OFFSET_BYTES = 87, 32, 8
"""Lengths: of a frame's header without metalayers, of a chunk's header, of an offset."""


def decoded_size(stored: Bytes, value_bytes: int) -> int:
    """Bytes that HDF5's blosc2 filter makes of a stored chunk.

    Parameters
    ----------
    value_bytes : size of a value, by the parameters of the filter
    """
    if len(stored) < FRAME_BYTES or stored[2:9].tobytes() != b"b2frame" or _big(stored, 16, 8) != len(stored):
        raise _damaged("it is no frame of blosc2")
    start, total, compressed = _big(stored, 11, 4), _big(stored, 30, 8), _big(stored, 39, 8)
    if start < FRAME_BYTES or not 0 < total == _big(stored, 58, 4):
        raise _damaged("its frame of blosc2 has not one chunk")
    if stored[27] & 15 >= END_OF_CODECS:
        raise _plugin("codec", int(stored[78]))
    _check_filters(stored[71:77])
    data, offsets = _chunk(stored, start) if compressed else stored[:0], _chunk(stored, start + compressed)
    # A chunk of zeros is not stored: the highest bit of its offset is set.
    as_is = len(offsets) == CHUNK_BYTES + OFFSET_BYTES and offsets[2] & 2 and not offsets[31]
    at_start = not offsets[CHUNK_BYTES:].any() and len(data) == compressed and _little(data, 4) == total
    if not as_is or not (at_start if compressed else offsets[-1] & 128):
        raise _damaged("its frame of blosc2 does not begin with its only chunk")
    shape = _shape(stored[:start])
    if shape is None:
        return total
    size = math.prod(shape) * value_bytes
    if value_bytes != _big(stored, 48, 4) or total > size << len(shape):
        raise _damaged(f"its frame of blosc2 has {total} bytes for shape {shape}")
    return size


def _chunk(frame: Bytes, start: int) -> Bytes:
    """A chunk of a frame, header included."""
    header = frame[start : start + CHUNK_BYTES]
    stop = start + (_little(header, 12) if len(header) == CHUNK_BYTES else 0)
    if not start + CHUNK_BYTES <= stop <= len(frame):
        raise _damaged("a chunk in its frame of blosc2 ends beyond it")
    if header[2] & 5 != 5 or header[31] & 8:
        raise _damaged("a chunk in its frame of blosc2 has a short header, or is elsewhere")
    if int(header[2]) >> 5 not in CODECS:
        raise _plugin("codec", int(header[22]))
    _check_filters(header[16:22])
    return frame[start:stop]


def _check_filters(filters: Bytes) -> None:
    if filters.max() >= len(FILTERS):
        raise _plugin("filter", int(filters.max()))


def _shape(header: Bytes) -> tuple[int, ...] | None:
    """The shape in the metalayer "b2nd" of a frame (README_B2ND_METALAYER); None without it.

    Of two axes or more, chunks are padded to whole blocks along each axis, at most to twice the length; HDF5 gets this shape.
    """
    place = 94
    for _ in range(_big(header, 92, 2)):
        length = int(header[place]) & 31 if place < len(header) else 0
        name, at = header[place + 1 : place + 1 + length].tobytes(), _big(header, place + 2 + length, 4)
        place += length + 6
        if name in (b"b2nd", b"caterva"):
            ndim = int(header[at + 7]) if at + 7 < len(header) else 0
            return tuple(_big(header, at + 10 + 9 * axis, 8) for axis in range(ndim))
    return None


def _big(content: Bytes, start: int, length: int) -> int:
    return int.from_bytes(content[start : start + length].tobytes(), "big")


def _little(content: Bytes, start: int) -> int:
    return int.from_bytes(content[start : start + 4].tobytes(), "little")


def _damaged(why: str) -> ValueError:
    return ValueError(f"the chunk was truncated, or is damaged: {why}")


def _plugin(what: str, found: int) -> ValueError:
    return ValueError(
        f"the chunk asks for {what} {found}, a plugin of blosc2, which would run code; only codecs {', '.join(CODECS.values())} and "
        f"filters {', '.join(FILTERS)} are read. Write the array with one of them, if you trust the file"
    )


_FUNCTION = ctypes.CFUNCTYPE(
    ctypes.c_size_t,
    ctypes.c_uint,
    ctypes.c_size_t,
    ctypes.POINTER(ctypes.c_uint),
    ctypes.c_size_t,
    ctypes.POINTER(ctypes.c_size_t),
    ctypes.POINTER(ctypes.c_void_p),
)
"""H5Z_func_t: flags, number of parameters, parameters, bytes of the content, of its memory, and the content; returns bytes, 0 if it fails."""


class _Filter(ctypes.Structure):
    """H5Z_class2_t."""

    _fields_ = [
        ("version", ctypes.c_int),
        ("code", ctypes.c_int),
        ("encodes", ctypes.c_uint),
        ("decodes", ctypes.c_uint),
        ("name", ctypes.c_char_p),
        ("can_apply", ctypes.c_void_p),
        ("set_local", ctypes.c_void_p),
        ("function", _FUNCTION),
    ]


def _guarded() -> _Filter | None:
    """HDF5's blosc2 filter, registered anew so that it fails where `decoded_size` does; None if hdf5plugin has none."""
    place = hdf5plugin.get_config().registered_filters.get("blosc2", "")
    if not os.path.isfile(place):
        return None
    about = ctypes.CDLL(place).H5PLget_plugin_info
    about.restype = ctypes.POINTER(_Filter)
    its = about().contents

    def function(flags: int, n_values: int, values: Any, n_bytes: int, memory: Any, content: Any) -> int:
        if flags & h5py.h5z.FLAG_REVERSE:
            stored = np.ctypeslib.as_array((ctypes.c_uint8 * n_bytes).from_address(content[0]))
            try:
                decoded_size(stored, values[2] if n_values > 2 else 0)
            except ValueError:
                return 0
        return int(its.function(flags, n_values, values, n_bytes, memory, content))

    guarded = _Filter(
        its.version, its.code, its.encodes, its.decodes, its.name, its.can_apply, its.set_local, _FUNCTION(function)
    )
    h5py.h5z.register_filter(ctypes.addressof(guarded))
    return guarded


GUARDED = _guarded()
"""Kept, since HDF5 calls it."""
