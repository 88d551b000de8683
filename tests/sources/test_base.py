"""What every source has to do, over all of them."""

import pickle
from pathlib import Path

import dask.array as da
import h5py
import hdf5plugin
import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st

from dpca.errors import InputError
from dpca.sources import as_source, open_source
from dpca.sources.base import check_dtype
from tests.drawn import examples
from tests.sources.test_netcdf3 import netcdf3
from tests.stores import random_array

CHUNKS = (3, 4, 2)


def _zarr(path, x, **options):
    zarr.create_array(path, data=x, **options)
    return open_source(path)


def _hdf5(path, x, **options):
    with h5py.File(path, "w") as file:
        file.create_dataset("group/x", data=x, **options)
    return open_source(path)


def _npy(path, x, fortran=False):
    np.save(path, np.asfortranarray(x) if fortran else x)
    return open_source(path)


def _netcdf3(path, x, records=False):
    netcdf3(path, 5, {"t": None if records else 7, "y": 5, "x": 6}, {"v": (("t", "y", "x"), x, {})}, len(x))
    return open_source(path)


SOURCES = {
    "zarr v2": lambda p, x: _zarr(p / "a.zarr", x, chunks=CHUNKS, zarr_format=2),
    "zarr v2 F order": lambda p, x: _zarr(p / "a.zarr", x, chunks=CHUNKS, zarr_format=2, order="F"),
    "zarr v3": lambda p, x: _zarr(p / "a.zarr", x, chunks=CHUNKS),
    "zarr v3 gzip": lambda p, x: _zarr(p / "a.zarr", x, chunks=CHUNKS, compressors=zarr.codecs.GzipCodec()),
    "zarr v3 blosc": lambda p, x: _zarr(p / "a.zarr", x, chunks=CHUNKS, compressors=zarr.codecs.BloscCodec()),
    "zarr v3 plain": lambda p, x: _zarr(p / "a.zarr", x, chunks=CHUNKS, compressors=None),
    "zarr v3 sharded": lambda p, x: _zarr(p / "a.zarr", x, chunks=CHUNKS, shards=(6, 8, 4)),
    "hdf5 contiguous": lambda p, x: _hdf5(p / "a.h5", x),
    "hdf5 chunked": lambda p, x: _hdf5(p / "a.h5", x, chunks=CHUNKS),
    "hdf5 gzip": lambda p, x: _hdf5(p / "a.h5", x, chunks=CHUNKS, compression="gzip", shuffle=True),
    "hdf5 lzf": lambda p, x: _hdf5(p / "a.h5", x, chunks=CHUNKS, compression="lzf"),
    "hdf5 zstd": lambda p, x: _hdf5(p / "a.h5", x, chunks=CHUNKS, compression=hdf5plugin.Zstd()),
    "hdf5 blosc": lambda p, x: _hdf5(p / "a.h5", x, chunks=CHUNKS, compression=hdf5plugin.Blosc()),
    "hdf5 bitshuffle": lambda p, x: _hdf5(p / "a.h5", x, chunks=CHUNKS, compression=hdf5plugin.Bitshuffle()),
    "npy": lambda p, x: _npy(p / "a.npy", x),
    "npy F order": lambda p, x: _npy(p / "a.npy", x, fortran=True),
    "netcdf classic": lambda p, x: _netcdf3(p / "a.nc", x),
    "netcdf classic, records": lambda p, x: _netcdf3(p / "a.nc", x, records=True),
    "dask": lambda p, x: as_source(da.from_array(x, chunks=((3, 2, 2), (4, 1), (2, 2, 2)))),
    "numpy": lambda p, x: as_source(x),
    "numpy F order": lambda p, x: as_source(np.asfortranarray(x)),
    "zarr.Array": lambda p, x: as_source(zarr.array(x, chunks=CHUNKS)),
    "h5py.Dataset": lambda p, x: as_source(h5py.File(p / "a.h5", "w").create_dataset("x", data=x, chunks=CHUNKS)),
}
SHAPE = (7, 5, 6)


@pytest.mark.parametrize("kind", SOURCES)
def test_every_region_of_every_source_is_the_array(kind, tmp_path):
    x = random_array(0, SHAPE, "f4")
    source = SOURCES[kind](tmp_path, x)
    assert source.layout.shape == SHAPE
    assert source.layout.dtype.newbyteorder("=") == np.float32

    @examples(25)
    @given(st.data())
    def regions(data):
        region = tuple(
            slice(*sorted(data.draw(st.lists(st.integers(0, length), min_size=2, max_size=2)))) for length in SHAPE
        )
        got = reader.read(region)
        np.testing.assert_array_equal(got, x[region])
        np.testing.assert_array_equal(part.read(region), x[region])

    whole = tuple(slice(0, length) for length in SHAPE)
    with source.open() as reader, source.restrict(whole).open() as part:
        regions()
        assert reader.absent_chunks == 0
    assert source.fingerprint()


@pytest.mark.parametrize("kind", [kind for kind in SOURCES if kind != "h5py.Dataset"])
def test_a_part_of_a_source_travels_and_keeps_the_addresses_of_the_whole(kind, tmp_path):
    import cloudpickle

    x = random_array(0, SHAPE, "i2")
    source = SOURCES[kind](tmp_path, x)
    region = (slice(0, 7), slice(1, 4), slice(2, 6))
    travelled = pickle.loads(cloudpickle.dumps(source.restrict(region)))
    inner = (slice(2, 7), slice(2, 4), slice(2, 3))
    with travelled.open() as reader:
        np.testing.assert_array_equal(reader.read(inner), x[inner])


DTYPES = {
    "zarr v2": ["f2", "f4", "f8", ">f4", "i1", "i2", "i4", "i8", ">i2", "u1", "u2", "u4", "u8", "?"],
    "zarr v3": ["f4", "i8", "u2", "?"],
    "hdf5 gzip": ["f2", "f8", ">i2", "i1", "u4", "?"],
    "npy": [">f4", "i4", "u8", "?"],
    "dask": ["i2", "?"],
    "numpy": [">i2", "?"],
}
"""Every dtype, and of each kind of source one of each size of those that it decodes itself."""


@pytest.mark.parametrize(("kind", "dtype"), [(kind, dtype) for kind, dtypes in DTYPES.items() for dtype in dtypes])
def test_every_real_dtype_is_read_as_it_is(kind, dtype, tmp_path):
    x = random_array(0, SHAPE, dtype)
    source = SOURCES[kind](tmp_path, x)
    with source.open() as reader:
        np.testing.assert_array_equal(reader.read(tuple(slice(0, length) for length in SHAPE)), x)


@pytest.mark.parametrize("dtype", ["c8", "c16", "U3", "S3", "O", "M8[s]", "m8[s]", [("a", "f4")], "g"])
def test_other_dtypes_are_refused_by_name(dtype):
    dtype = np.dtype(dtype)
    with pytest.raises(InputError, match="array x: values are of dtype") as caught:
        check_dtype("array x", dtype)
    assert str(dtype) in str(caught.value)


def test_refusal_names_the_file_and_array(tmp_path):
    zarr.create_array(tmp_path / "c.zarr", data=np.zeros((3, 4), "c8"))
    with pytest.raises(InputError, match=r"c\.zarr: values are of dtype complex64"):
        open_source(tmp_path / "c.zarr")
    with h5py.File(tmp_path / "s.h5", "w") as file:
        file.create_dataset("names", data=np.full((3, 2), b"abc"))
    with pytest.raises(InputError, match=r"s\.h5:names: values are of dtype \|S3"):
        open_source(tmp_path / "s.h5")
    np.save(tmp_path / "o.npy", np.array([[None, 1]], object), allow_pickle=True)
    with pytest.raises(InputError, match=r"o\.npy: values are of dtype object"):
        open_source(tmp_path / "o.npy")


def test_what_a_file_holds_counts_and_not_its_suffix(tmp_path):
    np.save(tmp_path / "x.npy", np.ones((3, 4)))
    (tmp_path / "x.npy").rename(tmp_path / "x.dat")
    assert open_source(tmp_path / "x.dat").layout.shape == (3, 4)
    (tmp_path / "x.txt").write_text("1,2,3")
    with pytest.raises(InputError, match=r"x\.txt: is neither Zarr nor HDF5 nor netCDF nor \.npy"):
        open_source(tmp_path / "x.txt")
    (tmp_path / "zero.npy").write_bytes(b"")
    with pytest.raises(InputError, match=r"zero\.npy: is empty \(0 bytes\)"):
        open_source(tmp_path / "zero.npy")
    (tmp_path / "old.nc").write_bytes(b"CDF\x01 and more")
    with pytest.raises(InputError, match=r"old\.nc: its netCDF header can't be read: the file ends within it"):
        open_source(tmp_path / "old.nc")
    (tmp_path / "x.h5").write_bytes(b"not HDF5 at all")
    with pytest.raises(InputError, match=r"x\.h5: not readable as HDF5"):
        open_source(tmp_path / "x.h5")


def test_an_absent_file_is_named(tmp_path):
    with pytest.raises(InputError, match=r"nowhere\.zarr: does not exist") as caught:
        open_source("nowhere.zarr")
    assert str(tmp_path) in caught.value.remedy
    (tmp_path / "empty.zarr").mkdir()
    with pytest.raises(InputError, match=r"empty\.zarr: holds no Zarr array or group \(no zarr\.json"):
        open_source("empty.zarr")
    (tmp_path / "r" / "result.zarr").mkdir(parents=True)
    (tmp_path / "r" / "manifest.json").write_text("{}")
    with pytest.raises(InputError, match=r"^r: is a result of dpca\nIts arrays are in r/result\.zarr\.$"):
        open_source("r")
    with pytest.raises(InputError, match=r"~/x\.npy: does not exist\n~ is not expanded: write the whole path\.$"):
        open_source("~/x.npy")
    (tmp_path / "x.h5").write_text("")
    with pytest.raises(
        InputError, match=r"x\.h5/a/t: does not exist: x\.h5 is a file\nSet input\.uri: x\.h5 and input\.array: a/t\.$"
    ):
        open_source("x.h5/a/t")


def test_a_url_of_what_is_no_zarr():
    for uri, remedy in (("memory://x.npy", "At a URL only Zarr can be read"), ("memory://x", "Check the URL and")):
        with pytest.raises(InputError, match="no Zarr array or group could be opened there") as caught:
            open_source(uri)
        assert remedy in caught.value.remedy


@pytest.mark.parametrize("kind", ["zarr", "h5"])
def test_a_container_without_anything_of_two_axes(kind):
    file = zarr.open_group("g.zarr", mode="w") if kind == "zarr" else h5py.File("g.h5", "w")
    with pytest.raises(InputError, match=r"holds no array of two axes or more \(no "):
        open_source(f"g.{kind}")
    file.create_dataset("v", shape=(12,), dtype="f4") if kind == "h5" else file.create_array(
        "v", shape=(12,), dtype="f4"
    )
    with pytest.raises(InputError, match=r"holds no array of two axes or more \(v \(12,\)\)\nPCA needs samples and"):
        open_source(f"g.{kind}")


@pytest.mark.parametrize("axis", [3, -4, "time"])
def test_a_samples_axis_that_does_not_exist_is_an_error(axis):
    layout = as_source(np.zeros(SHAPE)).layout
    with pytest.raises(InputError, match="samples_axis is") as caught:
        layout.axis_of(axis)
    assert caught.value.key == "input.samples_axis"


def test_axes_by_number_from_either_end_and_by_name():
    xarray = pytest.importorskip("xarray")
    layout = as_source(xarray.DataArray(np.zeros(SHAPE), dims=("lat", "time", "lon"))).layout
    assert [layout.axis_of(axis) for axis in (0, 2, -1, -3, "time")] == [0, 2, 2, 0, 1]


@pytest.mark.parametrize("kind", ["zarr", "hdf5"])
@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("scale_factor", "0.01", "'0.01'"),
        ("scale_factor", float("nan"), "nan"),
        ("scale_factor", 0.0, "0.0"),
        ("scale_factor", [1.0, 2.0], r"\[1\. ?0?, 2\. ?0?\]|\[1. 2.\]|array\(\[1., 2.\]\)"),
        ("add_offset", float("inf"), "inf"),
        ("add_offset", "", "''"),
        ("add_offset", "273 K", "'273 K'"),
        ("missing_value", "-999", "'-999'"),
        ("_FillValue", "1e20", "'1e20'"),
        ("valid_min", "0", "'0'"),
    ],
)
def test_values_are_unpacked_by_numbers_alone(kind, name, value, shown):
    """What is no number was once taken for none, and stored values for those that were meant."""
    if kind == "zarr":
        zarr.create_array("x.zarr", data=np.ones((6, 40), "i2"), attributes={name: value})
    else:
        with h5py.File("x.h5", "w") as file:
            file.create_dataset("x", data=np.ones((6, 40), "i2")).attrs[name] = value
    with pytest.raises(InputError, match=rf"attribute {name} is .*({shown}).*, but a (finite )?number.* is allowed"):
        open_source("x.zarr" if kind == "zarr" else "x.h5")


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_an_array_in_a_zip_is_read_whatever_lies_beside_it(zarr_format):
    x = random_array(0, (6, 40), "f8")
    with zarr.storage.ZipStore("x.zip", mode="w") as store:
        group = zarr.create_group(store, zarr_format=zarr_format)
        group.create_array("x", data=x, chunks=(6, 10))
        group.create_array("records", shape=(5,), dtype=np.dtype([("a", "i4"), ("b", "f8")]))
    for array in (None, "x"):
        source = pickle.loads(pickle.dumps(open_source("x.zip", array)))
        with source.open() as reader:
            np.testing.assert_array_equal(reader.read((slice(0, 6), slice(5, 40))), x[:, 5:])
    with pytest.raises(InputError, match=r"x\.zip:records: values are of dtype \[\('a'"):
        open_source("x.zip", "records")
    Path("y.zip").write_bytes(b"no archive")
    with pytest.raises(InputError, match=r"y\.zip: can't be opened as Zarr: BadZipFile"):
        open_source("y.zip")
