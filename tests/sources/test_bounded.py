"""Chunks that claim more than belongs there, or less: an error that says so, before memory is taken."""

import os
import shutil
import struct
import zlib
from pathlib import Path

import h5py
import hdf5plugin
import numcodecs
import numpy as np
import pytest
import zarr
from zarr.codecs import BloscCodec, BytesCodec, Crc32cCodec, GzipCodec, ShardingCodec, ZstdCodec

from dpca.errors import InputError, StorageError
from dpca.sources import open_source
from dpca.sources.bounded import decode
from dpca.sources.coordinate import Parts
from dpca.sources.labels import read_labels
from tests.stores import random_array

X = np.round(random_array(0, (6, 200), "f8"), 2)
BOMB = bytes(numcodecs.Zstd(1).encode(bytes(2**25)))


def read(path, array=None, region=(slice(0, 6), slice(0, 100))):
    with open_source(path, array).open() as reader:
        return reader.read(region).copy()


def frame(*lengths):
    """A frame of zstd that does not say what it holds: blocks of zeros (RFC 8878, 3.1.1)."""
    blocks = [
        struct.pack("<I", length << 3 | 2 | (number == len(lengths) - 1))[:3] + b"\0"
        for number, length in enumerate(lengths)
    ]
    return b"\x28\xb5\x2f\xfd\x00\x58" + b"".join(blocks)


def told(length):
    return bytes(numcodecs.Zstd(1).encode(bytes(length)))


SKIPPED = b"\x53\x2a\x4d\x18" + struct.pack("<I", 3) + b"abc"


@pytest.mark.parametrize(
    "stored",
    [
        frame(800),
        frame(400, 400),
        frame(300) + frame(500),
        told(800),
        told(300) + told(500),
        told(300) + frame(500),
        frame(500) + told(300),
        SKIPPED + told(800),
        told(300) + SKIPPED + told(500),
    ],
)
def test_frames_of_zstd_hold_what_belongs_there_or_are_refused(stored):
    stored, codec = np.frombuffer(stored, np.uint8), numcodecs.Zstd()
    np.testing.assert_array_equal(decode(codec, stored, 800), np.zeros(800, np.uint8))
    for n_bytes in (799, 801, 1600, 10):
        with pytest.raises(ValueError, match=f"{n_bytes} (bytes that )?belong"):
            decode(codec, stored, n_bytes)
    with pytest.raises(ValueError, match="chunk"):
        decode(codec, stored[:-2], 800)


READABLE = {
    "checksum behind": {"compressors": [ZstdCodec(), Crc32cCodec()]},
    "compressed twice": {"compressors": [GzipCodec(), ZstdCodec()]},
    "compressed twice, in shards": {"compressors": [ZstdCodec(), BloscCodec()], "shards": (6, 200)},
    "shards of a value": {"compressors": GzipCodec(), "chunks": (1, 1), "shards": (6, 200)},
    "shards, compressed": {
        "serializer": ShardingCodec(chunk_shape=(3, 50), codecs=[BytesCodec(), ZstdCodec()]),
        "compressors": GzipCodec(),
    },
    "v2 filters": {"zarr_format": 2, "filters": [numcodecs.Delta("f8"), numcodecs.Shuffle(8)], "compressors": numcodecs.LZ4()},
    "v2 filter of another type": {
        "zarr_format": 2,
        "filters": [numcodecs.FixedScaleOffset(0, 100, "f8", "i4"), numcodecs.Zlib(), numcodecs.CRC32()],
        "compressors": numcodecs.LZMA(preset=9),
    },
    "v2 bits": {"zarr_format": 2, "filters": [numcodecs.BitRound(50)], "compressors": numcodecs.BZ2()},
    "v2 gzip": {"zarr_format": 2, "compressors": numcodecs.GZip()},
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:Combining a `sharding_indexed` codec")
@pytest.mark.parametrize("how", READABLE)
def test_whatever_zarr_can_write_is_read(how):
    zarr.create_array("x.zarr", **{"shape": X.shape, "dtype": "f8", "chunks": (6, 100), **READABLE[how]})[...] = X
    np.testing.assert_allclose(read("x.zarr", region=(slice(0, 6), slice(30, 170))), X[:, 30:170], rtol=1e-9)


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize(
    "how", [{}, {"shards": (6, 200)}, {"zarr_format": 2}, {"compressors": [ZstdCodec(), Crc32cCodec()]}]
)
def test_a_bomb_in_zarr_is_refused_by_what_it_claims(how, zipped):
    zarr.create_array(
        "x.zarr",
        data=X,
        chunks=(6, 100),
        **{"compressors": numcodecs.Zstd() if "zarr_format" in how else ZstdCodec(), **how},
    )
    chunk = Path("x.zarr", "0.0" if "zarr_format" in how else "c/0/0")
    content = BOMB
    if "shards" in how:
        index = np.array([[0, len(BOMB)], [0, len(BOMB)]], "<u8").tobytes()
        content += bytes(numcodecs.CRC32C(location="end").encode(index))
    if isinstance(how.get("compressors"), list):
        content = bytes(numcodecs.CRC32C(location="end").encode(content))
    chunk.write_bytes(content)
    with pytest.raises(StorageError, match=r"x\..*: chunk \(0, 0\), region.*claims 33554432 bytes where 4800 belong"):
        read(archive("x.zarr") if zipped else "x.zarr")


def archive(path):
    return shutil.make_archive(path.removesuffix(".zarr"), "zip", path)


def test_a_place_in_a_shard_beyond_what_a_shard_takes_is_refused():
    zarr.create_array("x.zarr", data=X, chunks=(6, 50), shards=(6, 200))
    index = np.array([[0, 2**62], [5, 2**64 - 8], [2**40, 2**40], [7, 3]], "<u8").tobytes()
    Path("x.zarr/c/0/0").write_bytes(bytes(40) + bytes(numcodecs.CRC32C(location="end").encode(index)))
    for start in (0, 50, 100, 150):
        with pytest.raises(StorageError, match="could not be read"):
            read("x.zarr", region=(slice(0, 6), slice(start, start + 50)))


@pytest.mark.parametrize("codec", [GzipCodec(), ZstdCodec(), None])
def test_a_file_of_a_terabyte_is_no_chunk(codec):
    zarr.create_array("x.zarr", data=X, chunks=(6, 100), shards=None if codec else (6, 200), compressors=codec)
    with open("x.zarr/c/0/0", "r+b") as file:
        file.truncate(2**40)
    with pytest.raises(StorageError, match="1099511627776 bytes"):
        read("x.zarr")


def coordinate_of(group):
    with open_source(group, "x").open() as reader:
        return reader.coordinate(1)


def test_a_coordinate_is_held_to_its_own_size():
    group = zarr.create_group("x.zarr")
    group.create_array("x", data=X, dimension_names=("time", "name"))
    group.create_array("name", data=np.array([f"n{number}" for number in range(200)], "T"), chunks=(100,))
    assert list(coordinate_of("x.zarr").values[98:102]) == ["n98", "n99", "n100", "n101"]
    Path("x.zarr/name/c/1").write_bytes(BOMB)
    assert list(coordinate_of("x.zarr").values[3:5]) == ["n3", "n4"]
    with pytest.raises(StorageError, match=r"x\.zarr:x, coordinate name: can't be read: .*claims 33554432 bytes"):
        coordinate_of("x.zarr").values[...]
    group.create_array("name", shape=(200,), dtype="f8", chunks=(2**40,), overwrite=True)
    assert coordinate_of("x.zarr") is None


@pytest.mark.parametrize("form", [2, 3])
def test_a_large_chunk_of_text_says_what_it_takes(form):
    """By its header: a plan knows it before the chunk is decoded."""
    names = np.array([f"n{number:040d}" for number in range(20_000)], "T")
    group = zarr.create_group("x.zarr", zarr_format=form)
    dims = {"attributes": {"_ARRAY_DIMENSIONS": ["a", "name"]}} if form == 2 else {"dimension_names": ("a", "name")}
    group.create_array("x", shape=(2, 20_000), dtype="f4", **dims)
    group.create_array("name", shape=(20_000,), dtype=str, chunks=(15_000,))[:] = names
    found = coordinate_of("x.zarr")
    assert found.parts == Parts(46, 15_000, 4 + 45 * 15_000)
    pieces = list(found.pieces())
    assert [piece.stop - piece.start for piece, _ in pieces] == [8192, 8192, 3616]
    assert np.concatenate([values for _, values in pieces]).tolist() == names.tolist()


def test_labels_are_held_to_their_own_size():
    group = zarr.create_group("x.zarr")
    group.create_array("y", data=np.arange(6))
    group.create_array("many", shape=(2**50,), dtype="i8", chunks=(2**20,))
    assert list(read_labels("x.zarr", "y", 6)) == list(range(6))
    with pytest.raises(InputError, match=r"labels of shape \(1125899906842624,\), but there are 6 samples"):
        read_labels("x.zarr", "many", 6)
    Path("x.zarr/y/c/0").write_bytes(BOMB)
    with pytest.raises(StorageError, match=r"x\.zarr: can't be read: .*claims 33554432 bytes where 48 belong"):
        read_labels("x.zarr", "y", 6)
    with h5py.File("y.h5", "w") as file:
        file.create_dataset("y", data=np.arange(6), chunks=(6,), compression="gzip")
        file["y"].id.write_direct_chunk((0,), zlib.compress(bytes(2**25)))
        file.create_dataset("good", data=[f"n{number}" for number in range(6)])
        file.create_dataset("many", shape=(2**50,), chunks=(2**20,), dtype="i8")
    assert list(read_labels("y.h5", "good", 6)) == [f"n{number}" for number in range(6)]
    with pytest.raises(InputError, match=r"labels of shape \(1125899906842624,\)"):
        read_labels("y.h5", "many", 6)
    with pytest.raises(StorageError, match=r"y\.h5:y: can't be read: .*more bytes than the 48 that belong there"):
        read_labels("y.h5", "y", 6)
    with h5py.File("v.h5", "w") as file:
        file["y"] = h5py.ExternalLink("y.h5", "good")
    with pytest.raises(InputError, match=r"v\.h5: labels can't be read from y: its values lie in another file"):
        read_labels("v.h5", "y", 6)
    with open("many.npy", "wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<f8", "fortran_order": False, "shape": (2**50,)})
    with pytest.raises(InputError, match=r"many\.npy: (holds labels of shape|labels can't be read)"):
        read_labels("many.npy", None, 6)


FILTERS = {
    "deflate": ({"compression": "gzip"}, lambda content: zlib.compress(content)),
    "shuffle, deflate": ({"compression": "gzip", "shuffle": True}, lambda content: zlib.compress(content)),
    "deflate, fletcher32": (
        {"compression": "gzip", "fletcher32": True},
        lambda content: bytes(numcodecs.Fletcher32().encode(zlib.compress(content))),
    ),
    "scaleoffset, deflate": ({"compression": "gzip", "scaleoffset": 2}, lambda content: zlib.compress(3000 * content)),
    "lzf": (
        {"compression": "lzf"},
        lambda content: b"".join(b"\x1f" + content[at : at + 32] for at in range(0, len(content), 32)),
    ),
    "zstd": (dict(hdf5plugin.Zstd()), lambda content: bytes(numcodecs.Zstd().encode(content))),
    "blosc": (dict(hdf5plugin.Blosc()), lambda content: bytes(numcodecs.Blosc().encode(content))),
    "bzip2": (dict(hdf5plugin.BZip2()), lambda content: bytes(numcodecs.BZ2().encode(content))),
}  # fmt: skip


@pytest.mark.parametrize("behind", ["", "virtual"])
@pytest.mark.parametrize("filters", FILTERS)
@pytest.mark.parametrize("times", [0.5, 2])
def test_a_chunk_of_hdf5_that_holds_more_or_less_is_refused(filters, times, behind):
    """Of less HDF5 itself makes values of whatever lies behind."""
    how, encode = FILTERS[filters]
    with h5py.File("x.h5", "w") as file:
        dataset = file.create_dataset("x", data=X, chunks=(6, 100), **how)
        content = X[:, :100].tobytes()
        dataset.id.write_direct_chunk((0, 100), encode((content * 2)[: int(times * len(content))]))
    if behind:
        layout = h5py.VirtualLayout((2, *X.shape), "f8")
        layout[0], layout[1] = h5py.VirtualSource("x.h5", "x", X.shape), h5py.VirtualSource("x.h5", "x", X.shape)
        with h5py.File("v.h5", "w") as file:
            file.create_virtual_dataset("x", layout)
    path, lead = ("v.h5", (slice(1, 2),)) if behind else ("x.h5", ())
    good = read(path, "x", (*lead, slice(0, 6), slice(0, 100)))
    np.testing.assert_allclose(good.reshape(6, 100), X[:, :100], atol=0.01)
    if filters == "scaleoffset, deflate" and times < 1:
        return  # a chunk of fewer bits, which says so
    with pytest.raises(StorageError, match="bytes where|more bytes than the"):
        read(path, "x", (*lead, slice(0, 6), slice(90, 110)))


@pytest.mark.parametrize(
    "how",
    [
        {"scaleoffset": 2},
        {"scaleoffset": 2, "compression": "lzf"},
        {"compression": "szip"},
        {"compression": "lzf", "shuffle": True, "fletcher32": True},
        dict(hdf5plugin.LZ4()),
        dict(hdf5plugin.LZ4(nbytes=1024)),
        dict(hdf5plugin.Bitshuffle()),
        dict(hdf5plugin.Bitshuffle(nelems=64, cname="zstd")),
        dict(hdf5plugin.Bitshuffle(cname="none")),
        dict(hdf5plugin.Blosc2()),
        dict(hdf5plugin.Blosc(cname="snappy")),
        dict(hdf5plugin.Zstd()) | {"shuffle": True},
        dict(hdf5plugin.Zfp(reversible=True)),
    ],
)
@pytest.mark.parametrize("values", [X, np.zeros((6, 203)), np.round(random_array(1, (3, 1007), "f4"), 1)])
def test_whatever_hdf5_can_write_is_read(how, values):
    with h5py.File("x.h5", "w") as file:
        file.create_dataset("x", data=values, chunks=(values.shape[0], 101), **how)
    np.testing.assert_allclose(
        read("x.h5", region=tuple(slice(0, length) for length in values.shape)), values, atol=0.01
    )


def test_a_part_of_a_virtual_dataset_is_looked_at_where_it_is_used():
    with h5py.File("x.h5", "w") as file:
        file.create_dataset("x", data=X, chunks=(6, 50), compression="gzip")
        file["x"].id.write_direct_chunk((0, 150), zlib.compress(bytes(8)))
        layout = h5py.VirtualLayout((6, 100), "f8")
        layout[:, :60], layout[:, 60:] = (
            h5py.VirtualSource(".", "x", X.shape)[piece] for piece in (np.s_[:, 60:120], np.s_[:, 120:160])
        )
        file.create_virtual_dataset("v", layout)
        layout = h5py.VirtualLayout((6, 100), "f8")
        layout[...] = h5py.VirtualSource(".", "x", X.shape)[:, ::2]
        file.create_virtual_dataset("strided", layout)
    np.testing.assert_array_equal(read("x.h5", "v", (slice(0, 6), slice(0, 90))), X[:, 60:150])
    for array in ("v", "strided"):
        with pytest.raises(StorageError, match="claims 8 bytes where 2400 belong"):
            read("x.h5", array, (slice(0, 6), slice(90, 100)))


def test_a_checksum_may_lie_within_what_is_compressed():
    properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    properties.set_chunk((6, 100))
    properties.set_fletcher32()
    properties.set_deflate(4)
    with h5py.File("x.h5", "w") as file:
        h5py.h5d.create(file.id, b"x", h5py.h5t.IEEE_F64LE, h5py.h5s.create_simple(X.shape), properties)
        file["x"][...] = X
        file["x"].id.write_direct_chunk((0, 100), zlib.compress(bytes(4800)))
    np.testing.assert_array_equal(read("x.h5"), X[:, :100])
    with pytest.raises(StorageError, match="claims 4800 bytes where 4804 belong"):
        read("x.h5", region=(slice(0, 6), slice(100, 200)))


def test_a_part_of_a_virtual_dataset_may_grow():
    with h5py.File("x.h5", "w", libver="latest") as file:
        file.create_dataset("x", data=X, chunks=(6, 100), maxshape=(None, 200), compression="gzip")
        layout = h5py.VirtualLayout(X.shape, "f8", maxshape=(None, 200))
        source = h5py.VirtualSource(".", "x", X.shape, maxshape=(None, 200))
        layout[: h5py.h5s.UNLIMITED, :] = source[: h5py.h5s.UNLIMITED, :]
        file.create_virtual_dataset("v", layout)
    np.testing.assert_array_equal(read("x.h5", "v"), X[:, :100])


def test_no_more_is_stored_of_a_chunk_than_it_can_take():
    with h5py.File("x.h5", "w") as file:
        file.create_dataset("x", data=X, chunks=(6, 100), compression="gzip")
        file["x"].id.write_direct_chunk((0, 0), os.urandom(2**21))
    with pytest.raises(StorageError, match="2097152 bytes required"):
        read("x.h5")
