"""Sizes to which the chunks of a Zarr array decode, by its metadata; and codecs that enforce them."""

from __future__ import annotations

import asyncio
import copy
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numcodecs
import numpy as np
from zarr.abc.codec import ArrayBytesCodec, BytesBytesCodec, Codec
from zarr.codecs import BytesCodec, ShardingCodec
from zarr.core.array_spec import ArraySpec
from zarr.core.buffer import Buffer
from zarr.core.buffer.cpu import as_numpy_array_wrapper

from dpca.sources.bounded import BOUNDED, BoundedCodec, decode, most_stored
from dpca.sources.coordinate import TEXT_BYTES

INDEX_BYTES = 64
"""Further bytes of a chunk in a shard: its entry in the index, and the headers of its codecs."""


def bounded(metadata: Any) -> Any:
    """The metadata of an array, with codecs that refuse to decode to more bytes than belong in a chunk.

    Codecs that zarr knows only through other packages are left unchanged.
    """
    if metadata.zarr_format == 3:
        return replace(metadata, codecs=tuple(_bounded(metadata.codecs)))
    size, exact = _belonging(math.prod(metadata.chunks), metadata.dtype)
    changed = copy.copy(metadata)
    kept: list[Any] = []
    for codec in (*(metadata.filters or ()), metadata.compressor):
        limited = codec is not None and codec.codec_id in BOUNDED
        kept.append(BoundedCodec(codec, size if exact else most_stored(size), exact) if limited else codec)
        if limited:
            exact = False
        elif codec is not None:
            size, exact = _filtered(codec, size, exact)
    object.__setattr__(changed, "filters", tuple(kept[:-1]) or None)
    object.__setattr__(changed, "compressor", kept[-1])
    return changed


def stored_at_most(array: Any) -> int:
    """Most bytes that a chunk, or a shard, of an array takes in storage."""
    packed = array.shards or array.chunks
    n_chunks = math.prod(packed) // max(1, math.prod(array.chunks))
    data_type = array.metadata.dtype if array.metadata.zarr_format == 2 else array.metadata.data_type
    size, _ = _belonging(math.prod(packed), data_type)
    return int(most_stored(size) + INDEX_BYTES * n_chunks)


def last_codec(metadata: Any) -> str | None:
    """Name in numcodecs of the codec that decodes a stored chunk first; None if nothing is compressed."""
    if metadata.zarr_format == 2:
        codecs = [*(metadata.filters or ()), *([metadata.compressor] if metadata.compressor else ())]
        return None if codecs[-1:] == [] or codecs[-1].codec_id == "vlen-utf8" else str(codecs[-1].codec_id)
    last = metadata.codecs[-1]
    return None if isinstance(last, ArrayBytesCodec) else str(last.to_dict()["name"]).removeprefix("numcodecs.")


def _belonging(n_values: int, data_type: Any) -> tuple[int, bool]:
    """Bytes of values before any codec, and whether that is exact: texts vary in length."""
    native = data_type.to_native_dtype()
    return (n_values * TEXT_BYTES, False) if native.kind in "OT" else (n_values * native.itemsize, True)


_SAME_SIZE = frozenset(("shuffle", "bitround"))
_CHECKSUMS = frozenset(("crc32", "crc32c", "adler32", "fletcher32", "jenkins_lookup3"))


def _filtered(codec: Any, size: int, exact: bool) -> tuple[int, bool]:
    """Bytes of values after a filter of numcodecs, and whether that is exact."""
    config = codec.get_config()
    before = config.get("dtype", config.get("decode_dtype"))
    after = config.get("astype", config.get("encode_dtype"))
    if before is not None and after is not None:
        return size // max(1, np.dtype(before).itemsize) * np.dtype(after).itemsize, exact
    if codec.codec_id in _CHECKSUMS:
        return size + 4, exact
    return size, exact and codec.codec_id in _SAME_SIZE


@dataclass(frozen=True)
class _Bounded(BytesBytesCodec):
    """A codec of Zarr version 3 that refuses to decode to more bytes than belong there."""

    codec: Any
    """The codec of zarr."""
    numcodec: Any
    """This codec in numcodecs."""
    before: tuple[Codec, ...]
    """The codecs applied before it: the one that turns values into bytes, then codecs of bytes."""
    is_fixed_size = False

    async def _decode_single(self, chunk_bytes: Buffer, chunk_spec: ArraySpec) -> Buffer:
        first, *others = self.before
        size, exact = _belonging(math.prod(chunk_spec.shape), chunk_spec.dtype)
        exact = exact and isinstance(first, BytesCodec)
        for codec in others:
            try:
                size = codec.compute_encoded_size(size, chunk_spec)
            except NotImplementedError:
                exact = False
        how = partial(decode, self.numcodec, n_bytes=size if exact else most_stored(size), exact=exact)
        return await asyncio.to_thread(as_numpy_array_wrapper, how, chunk_bytes, chunk_spec.prototype)

    def compute_encoded_size(self, input_byte_length: int, chunk_spec: ArraySpec) -> int:
        raise NotImplementedError

    def to_dict(self) -> Any:
        return self.codec.to_dict()


def _bounded(codecs: Iterable[Codec]) -> Iterator[Codec]:
    before: tuple[Codec, ...] = ()
    for codec in codecs:
        if isinstance(codec, ShardingCodec):
            codec = replace(codec, codecs=tuple(_bounded(codec.codecs)))
        numcodec = _of_numcodecs(codec) if isinstance(codec, BytesBytesCodec) else None
        yield codec if numcodec is None else _Bounded(codec, numcodec, before)
        if isinstance(codec, ArrayBytesCodec | BytesBytesCodec):
            before = (*before, codec)


def _of_numcodecs(codec: BytesBytesCodec) -> Any:
    """The equivalent in numcodecs of a codec of bytes; None if its output can't be bounded."""
    described: Any = codec.to_dict()
    name = described["name"].removeprefix("numcodecs.")
    if name not in BOUNDED:
        return None
    config = described.get("configuration", {}) if described["name"] != name or name == "lzma" else {}
    return numcodecs.get_codec({"id": name, **config})
