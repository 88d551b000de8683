"""Storage that gives a part of a chunk at the cost of its own bytes, and storage that does not."""

import io
import os

import h5py
import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st

from dpca.errors import DataError, DpcaError
from dpca.sources import as_source, open_source, runs
from tests.drawn import examples
from tests.stores import random_array

SHAPE, ROWS = (6, 5000), (1, 5000)


class CountingFile(io.FileIO):
    """Counts the bytes that are read."""

    n_read = 0

    def readinto(self, buffer):
        count = super().readinto(buffer)
        self.n_read += count
        return count


@pytest.fixture
def bytes_read(monkeypatch):
    """A list of the lengths of all reads by offset."""
    counts, preadv = [], os.preadv

    def counting(file, buffers, position):
        counts.append(preadv(file, buffers, position))
        return counts[-1]

    monkeypatch.setattr(runs.os, "preadv", counting)
    return counts


def read(source, region):
    with source.open() as reader:
        return reader.read(region).copy(), reader.absent_chunks


UNCOMPRESSED = {
    "v2": {"zarr_format": 2},
    "v2 big endian": {"zarr_format": 2, "dtype": ">f4"},
    "v3": {},
    "v3 of one byte": {"dtype": "i1"},
}


@examples(25)
@given(st.data())
@pytest.mark.parametrize("kind", UNCOMPRESSED)
def test_any_region_of_an_uncompressed_zarr_is_the_arrays(kind, tmp_path_factory, data):
    shape = tuple(data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=4)))
    chunks = tuple(data.draw(st.integers(1, length)) for length in shape)
    region = tuple(
        slice(*sorted((data.draw(st.integers(0, length)), data.draw(st.integers(0, length))))) for length in shape
    )
    how = dict(UNCOMPRESSED[kind])
    x = random_array(0, shape, how.pop("dtype", "f4"))
    path = tmp_path_factory.mktemp("x") / "x.zarr"
    zarr.create_array(path, data=x, chunks=chunks, compressors=None, **how)
    source = open_source(path)
    assert source.layout.divisible
    np.testing.assert_array_equal(read(source, region)[0], x[region])


@pytest.mark.parametrize("kind", UNCOMPRESSED)
def test_a_part_of_a_zarr_chunk_costs_its_own_bytes(kind, bytes_read):
    how = dict(UNCOMPRESSED[kind])
    x = random_array(0, SHAPE, how.pop("dtype", "f4"))
    zarr.create_array("x.zarr", data=x, chunks=ROWS, compressors=None, **how)
    part = read(open_source("x.zarr"), (slice(0, 6), slice(100, 300)))[0]
    np.testing.assert_array_equal(part, x[:, 100:300])
    assert sum(bytes_read) == part.nbytes
    assert len(bytes_read) == 6


def test_a_part_of_an_hdf5_chunk_costs_its_own_bytes():
    x = random_array(0, (6, 50_000), "f8")
    with h5py.File("x.h5", "w") as file:
        file.create_dataset("x", data=x, chunks=(1, 50_000))
    with CountingFile("x.h5") as counting, h5py.File(counting, "r", rdcc_nbytes=0) as file:
        source = as_source(file["x"])
        assert source.layout.divisible
        read(source, (slice(0, 6), slice(0, 1)))  # where the chunks are has been read now
        before = counting.n_read
        part = read(source, (slice(0, 6), slice(100, 300)))[0]
        np.testing.assert_array_equal(part, x[:, 100:300])
        assert counting.n_read - before == part.nbytes


def test_whoever_opened_an_hdf5_dataset_with_a_cache_gets_whole_chunks():
    with h5py.File("x.h5", "w") as file:
        assert not as_source(file.create_dataset("x", data=np.eye(6), chunks=(1, 6))).layout.divisible
    assert open_source("x.h5").layout.divisible


@pytest.mark.parametrize(
    "how",
    [
        {"compressors": zarr.codecs.ZstdCodec()},
        {"compressors": zarr.codecs.Crc32cCodec()},
        {"compressors": None, "shards": (2, 5000)},
        {"compressors": None, "serializer": zarr.codecs.BytesCodec(endian="big")},
        {"compressors": None, "zarr_format": 2, "order": "F", "chunks": (2, 5000)},
        {"compressors": None, "filters": zarr.codecs.TransposeCodec(order=(1, 0))},
    ],
    ids=["zstd", "checksum", "shards", "other byte order", "Fortran order", "transposed"],
)
def test_other_zarr_arrays_are_read_in_whole_chunks(how, bytes_read):
    x = random_array(0, SHAPE, "f4")
    zarr.create_array("x.zarr", data=x, **{"chunks": ROWS, **how})
    source = open_source("x.zarr")
    assert not source.layout.divisible
    np.testing.assert_array_equal(read(source, (slice(1, 3), slice(5, 70)))[0], x[1:3, 5:70])
    assert not bytes_read


def test_rows_in_fortran_order_are_rows(bytes_read):
    x = random_array(0, SHAPE, "f4")
    zarr.create_array("x.zarr", data=x, chunks=ROWS, compressors=None, zarr_format=2, order="F")
    source = open_source("x.zarr")
    assert source.layout.order == "C"
    np.testing.assert_array_equal(read(source, (slice(1, 3), slice(5, 70)))[0], x[1:3, 5:70])
    assert bytes_read == [260, 260]


def test_a_store_that_is_no_directory_is_read_in_whole_chunks():
    x = random_array(0, SHAPE, "f4")
    assert not as_source(zarr.create_array({}, data=x, chunks=ROWS, compressors=None)).layout.divisible


@pytest.mark.parametrize("fill", [7, 0, None])
@pytest.mark.parametrize("zarr_format", [2, 3])
def test_an_absent_chunk_is_counted_once_however_many_parts_it_is_read_in(zarr_format, fill):
    x = random_array(0, SHAPE, "f4")
    zarr.create_array("x.zarr", data=x, chunks=ROWS, compressors=None, zarr_format=zarr_format, fill_value=fill)
    os.unlink("x.zarr/2.0" if zarr_format == 2 else "x.zarr/c/2/0")
    source = open_source("x.zarr")
    counts = []
    for start in range(0, 5000, 1000):
        part, absent = read(source, (slice(0, 6), slice(start, start + 1000)))
        counts.append(absent)
        assert (part[2] == (fill or 0)).all()
        np.testing.assert_array_equal(part[3:], x[3:, start : start + 1000])
    assert counts == [1, 0, 0, 0, 0]
    with pytest.raises(DataError, match=r"chunk .* was never written, and absent_chunks is 'error'"):
        read(open_source("x.zarr", absent_chunks="error"), (slice(0, 6), slice(0, 10)))


def test_an_absent_hdf5_chunk_is_counted_once_however_many_parts_it_is_read_in():
    with h5py.File("x.h5", "w") as file:
        dataset = file.create_dataset("x", SHAPE, "f8", chunks=ROWS, fillvalue=5.0)
        dataset[0] = dataset[4] = 1.0
    source = open_source("x.h5")
    found = [read(source, (slice(0, 6), slice(start, start + 1000)))[1] for start in range(0, 5000, 1000)]
    assert found == [4, 0, 0, 0, 0]


def test_a_truncated_chunk_is_named_and_not_read_as_zeros():
    zarr.create_array("x.zarr", data=random_array(0, SHAPE, "f4"), chunks=ROWS, compressors=None)
    os.truncate("x.zarr/c/3/0", 19_000)
    source = open_source("x.zarr")
    read(source, (slice(0, 6), slice(0, 4000)))
    with pytest.raises(DpcaError, match=r"x\.zarr, chunk c/3/0: the file ends at byte 19000"):
        read(source, (slice(0, 6), slice(4000, 5000)))
