"""Chunks that are decoded without HDF5: the same values, or left to HDF5."""

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpca.errors import StorageError
from dpca.sources import open_source
from dpca.sources.hdf5_chunks import DecodedChunks, unshuffle
from tests.drawn import examples
from tests.stores import random_array


@examples(30)
@given(st.data())
@pytest.mark.parametrize("shuffle", [False, True])
def test_any_region_is_the_datasets(shuffle, tmp_path_factory, data):
    shape = tuple(data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=4), "shape"))
    chunks = tuple(data.draw(st.integers(1, length)) for length in shape)
    dtype = data.draw(st.sampled_from(["f4", ">f4", "f8", "i1", "u2", ">i4"]))
    x = random_array(0, (*shape, 1), "f8")[..., 0].round().astype(dtype)
    path = tmp_path_factory.mktemp("x") / "x.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=x, chunks=chunks, compression="gzip", shuffle=shuffle)
    with open_source(path, "x").open() as reader, pytest.MonkeyPatch.context() as patch:
        patch.setattr(h5py.Dataset, "read_direct", None)  # HDF5 is not asked to decode
        for _ in range(3):
            starts = [data.draw(st.integers(0, length - 1)) for length in shape]
            region = tuple(
                slice(start, data.draw(st.integers(start + 1, length)))
                for start, length in zip(starts, shape, strict=True)
            )
            found = reader.read(region)
            assert found.dtype == x.dtype
            np.testing.assert_array_equal(found, x[region])


def test_a_large_chunk_is_put_together_from_its_bytes():
    x = random_array(0, (3, 40_001), "f8")
    planes = x.view(np.uint8).reshape(-1, 8).T.reshape(-1).copy()
    out = np.empty(x.nbytes, np.uint8)
    unshuffle(planes, out, 8)
    np.testing.assert_array_equal(out.view("f8").reshape(x.shape), x)


@pytest.mark.parametrize(
    "how",
    [
        {"compression": "gzip", "fletcher32": True},
        {"compression": "gzip", "scaleoffset": 2},
        {"fletcher32": True},
        {"shuffle": True},
        {},
    ],
)
def test_other_filters_are_left_to_hdf5(how):
    x = np.round(random_array(0, (6, 500), "f4"), 1)
    with h5py.File("x.h5", "w") as file:
        dataset = file.create_dataset("x", data=x, chunks=(6, 100), **how)
        assert DecodedChunks.of(dataset) is None
        assert DecodedChunks.of(file.create_dataset("whole", data=x)) is None
    with open_source("x.h5", "x").open() as reader:
        np.testing.assert_allclose(reader.read((slice(0, 6), slice(50, 420))), x[:, 50:420], atol=0.01)


def test_a_chunk_to_which_a_filter_was_not_applied_is_left_to_hdf5():
    x = random_array(0, (6, 200), "f4")
    with h5py.File("x.h5", "w") as file:
        dataset = file.create_dataset("x", data=x, chunks=(6, 100), compression="gzip")
        dataset.id.write_direct_chunk((0, 100), x[:, 100:].tobytes(), filter_mask=1)
    with open_source("x.h5").open() as reader:
        np.testing.assert_array_equal(reader.read((slice(0, 6), slice(0, 200))), x)


def test_absent_chunks_are_filled():
    with h5py.File("x.h5", "w") as file:
        dataset = file.create_dataset("x", (6, 300), "f4", chunks=(6, 100), compression="gzip", fillvalue=7)
        dataset[:, 100:200] = 1
    with open_source("x.h5").open() as reader:
        np.testing.assert_array_equal(reader.read((slice(0, 6), slice(0, 300)))[0], np.repeat([7, 1, 7], 100))
        assert reader.absent_chunks == 2


@pytest.mark.parametrize("damage", ["bits", "shorter", "fewer values"])
def test_a_damaged_chunk_never_becomes_values(damage):
    x = random_array(0, (6, 200), "f4")
    with h5py.File("x.h5", "w") as file:
        dataset = file.create_dataset("x", data=x, chunks=(6, 100), compression="gzip")
        content = dataset.id.read_direct_chunk((0, 100))[1]
        if damage == "bits":
            content = content[:200] + bytes([content[200] ^ 255]) + content[201:]
        elif damage == "shorter":
            content = content[:-40]
        else:
            other = file.create_dataset("y", data=x[:, :50], chunks=(6, 50), compression="gzip")
            content = other.id.read_direct_chunk((0, 0))[1]
        dataset.id.write_direct_chunk((0, 100), content)
    with open_source("x.h5", "x").open() as reader:
        np.testing.assert_array_equal(reader.read((slice(0, 6), slice(0, 100))), x[:, :100])
        with pytest.raises(StorageError, match=r"x\.h5:x: chunk \(0, 1\), region \[0:6, 100:200\], could not be read"):
            reader.read((slice(0, 6), slice(100, 200)))
