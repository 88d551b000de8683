"""Chunks that are decoded without zarr: the same values, or left to zarr."""

import contextlib
from pathlib import Path

import numcodecs
import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st

from dpca.errors import StorageError
from dpca.sources import open_source
from dpca.sources.zarr_chunks import ChunkFiles
from tests.drawn import examples
from tests.stores import random_array

STORED = {
    "zstd": {"compressors": zarr.codecs.ZstdCodec(level=1)},
    "zstd with a checksum": {"compressors": zarr.codecs.ZstdCodec(level=1, checksum=True)},
    "blosc": {"compressors": zarr.codecs.BloscCodec(cname="lz4", shuffle="shuffle")},
    "blosc of zstd": {"compressors": zarr.codecs.BloscCodec(cname="zstd", shuffle="bitshuffle")},
    "v2 zstd": {"zarr_format": 2, "compressors": numcodecs.Zstd(1)},
    "v2 blosc": {"zarr_format": 2, "compressors": numcodecs.Blosc()},
    "v2 big endian": {"zarr_format": 2, "compressors": numcodecs.Zstd(1), "dtype": ">f4"},
}
LEFT = {
    "gzip": {"compressors": zarr.codecs.GzipCodec()},
    "two codecs": {"compressors": [zarr.codecs.ZstdCodec(), zarr.codecs.Crc32cCodec()]},
    "none": {"compressors": None},
    "big endian": {"serializer": zarr.codecs.BytesCodec(endian="big")},
    "shards": {"shards": (6, 200)},
    "v2 filters": {"zarr_format": 2, "filters": [numcodecs.Shuffle(4)], "compressors": numcodecs.Zstd()},
    "v2 of Fortran's order": {"zarr_format": 2, "order": "F", "compressors": numcodecs.Zstd()},
}


@examples(20)
@given(st.data())
@pytest.mark.parametrize("kind", STORED)
def test_any_region_is_the_arrays(kind, tmp_path_factory, data):
    shape = tuple(data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=4), "shape"))
    chunks = tuple(data.draw(st.integers(1, length + 2)) for length in shape)
    how = dict(STORED[kind])
    dtype = how.pop("dtype", None) or data.draw(st.sampled_from(["f4", "f8", "i1", "u2", "?"]), "dtype")
    x = random_array(0, (*shape, 1), "f8")[..., 0].round().astype(dtype)
    path = tmp_path_factory.mktemp("x") / "x.zarr"
    zarr.create_array(path, shape=shape, dtype=dtype, chunks=chunks, fill_value=0, **how)[...] = x
    source = open_source(path)
    assert ChunkFiles.of(zarr.open_array(path, mode="r")) is not None
    with source.open() as reader, pytest.MonkeyPatch.context() as patch:
        patch.setattr(zarr.Array, "get_basic_selection", None)  # zarr is not asked
        for _ in range(3):
            starts = [data.draw(st.integers(0, length - 1)) for length in shape]
            region = tuple(
                slice(start, data.draw(st.integers(start + 1, length)))
                for start, length in zip(starts, shape, strict=True)
            )
            found = reader.read(region)
            assert found.dtype == x.dtype
            np.testing.assert_array_equal(found, x[region])


@pytest.mark.parametrize("kind", LEFT)
def test_what_only_zarr_can_read_is_left_to_zarr(kind):
    x = random_array(0, (6, 500), "f4")
    array = zarr.create_array("x.zarr", shape=x.shape, dtype="f4", chunks=(6, 100), **LEFT[kind])
    array[...] = x
    assert ChunkFiles.of(array) is None
    with open_source("x.zarr").open() as reader:
        np.testing.assert_array_equal(reader.read((slice(0, 6), slice(50, 420))), x[:, 50:420])


def chunk_of(codec, values):
    return codec.encode(np.ascontiguousarray(values))


DAMAGES = [
    lambda codec, x: chunk_of(codec, x)[:-7],
    lambda codec, x: b"",
    lambda codec, x: bytes(40),
    lambda codec, x: chunk_of(codec, x[:, :50]),  # whole, but of fewer values than the chunk has
    lambda codec, x: chunk_of(codec, np.hstack([x, x])),
    lambda codec, x: bytes([*chunk_of(codec, x)[:9], 255, *chunk_of(codec, x)[10:]]),
]


@pytest.mark.parametrize(
    ("codec", "damage", "local"),
    [
        *((codec, damage, True) for codec in (numcodecs.Zstd(1), numcodecs.Blosc()) for damage in DAMAGES),
        *((numcodecs.Zstd(1), damage, False) for damage in DAMAGES),
    ],
)
def test_a_chunk_that_is_not_what_it_should_be_never_becomes_values(codec, damage, local, monkeypatch):
    """A chunk before it has filled the memory that is used again. Not local: through zarr, as from another store."""
    x = random_array(0, (6, 200), "f4")
    zarr.create_array("x.zarr", shape=x.shape, dtype="f4", chunks=(6, 100), zarr_format=2, compressors=codec)[...] = x
    Path("x.zarr/0.1").write_bytes(damage(codec, x[:, :100]))
    if not local:
        monkeypatch.setattr(ChunkFiles, "of", lambda array: None)
    with open_source("x.zarr").open() as reader:
        np.testing.assert_array_equal(reader.read((slice(0, 6), slice(0, 100))), x[:, :100])
        with pytest.raises(StorageError, match=r"x\.zarr: chunk \(0, 1\), region \[0:6, 100:200\], could not be read"):
            reader.read((slice(0, 6), slice(100, 200)))


def test_a_frame_that_does_not_say_its_size_is_left_to_zarr():
    x = random_array(0, (6, 100), "f4")
    zarr.create_array("x.zarr", shape=x.shape, dtype="f4", chunks=(6, 100))[...] = x
    content = Path("x.zarr/c/0/0").read_bytes()
    assert content[4] >> 6 or content[4] & 0x20
    # Two frames, each of half the values: allowed by the format, and what neither header says.
    halves = [bytes(numcodecs.Zstd(1).encode(x.reshape(-1)[part])) for part in (slice(0, 300), slice(300, 600))]
    Path("x.zarr/c/0/0").write_bytes(b"".join(halves))
    with open_source("x.zarr").open() as reader, contextlib.suppress(StorageError):  # as zarr has it
        np.testing.assert_array_equal(reader.read((slice(0, 6), slice(0, 100))), x)


def test_absent_chunks_are_filled_and_counted():
    array = zarr.create_array("x.zarr", shape=(6, 500), dtype="f4", chunks=(6, 100), fill_value=7)
    array[:, 100:200] = 1
    with open_source("x.zarr").open() as reader:
        np.testing.assert_array_equal(reader.read((slice(0, 6), slice(0, 300)))[0], np.repeat([7, 1, 7], 100))
        assert reader.absent_chunks == 2
