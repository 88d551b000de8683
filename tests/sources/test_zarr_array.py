import numpy as np
import pytest
import xarray as xr
import zarr

from dpca.errors import DataError, InputError, StorageError
from dpca.sources import open_source
from dpca.sources.credentials import Secrets, without_credentials
from dpca.sources.zarr_array import ZarrSource


def whole(source):
    with source.open() as reader:
        values = reader.read(tuple(slice(0, length) for length in source.layout.shape)).copy()
        return values, reader.absent_chunks


@pytest.fixture
def group(tmp_path):
    made = zarr.create_group(tmp_path / "g.zarr")
    made.create_array("fields/sst", shape=(4, 6), dtype="f4", chunks=(2, 3), dimension_names=("time", "cell"))[:] = 1
    made.create_array("fields/time", shape=(4,), dtype="i4", dimension_names=("time",))[:] = [1, 2, 3, 4]
    return made


def test_the_only_wide_array_of_a_group_needs_no_name(group):
    source = open_source("g.zarr")
    assert source.layout.name == "g.zarr:fields/sst"
    assert source.layout.dims == ("time", "cell")


def test_several_arrays_must_be_told_apart(group):
    group.create_array("fields/ice", shape=(4, 6), dtype="f4")
    with pytest.raises(InputError, match=r"which array\? It holds fields/ice \(4, 6\), fields/sst \(4, 6\)"):
        open_source("g.zarr")
    assert open_source("g.zarr", "fields/ice").layout.name == "g.zarr:fields/ice"


@pytest.mark.parametrize("name", ["wind", "fields", "../other", "fields/sst/deeper"])
def test_an_absent_array_is_named_with_those_that_exist(group, name):
    with pytest.raises(InputError, match=r"has no array .*; it holds fields/sst") as caught:
        open_source("g.zarr", name)
    assert repr(name) in str(caught.value)


def test_an_array_has_no_arrays_inside(tmp_path):
    zarr.create_array(tmp_path / "a.zarr", data=np.zeros((2, 2)))
    with pytest.raises(InputError, match="is itself an array"):
        open_source("a.zarr", "x")


@pytest.mark.parametrize("shards", [None, (4, 8)])
def test_absent_chunks_read_as_the_fill_value_and_are_counted(tmp_path, shards):
    array = zarr.create_array(
        tmp_path / "a.zarr", shape=(4, 16), chunks=(4, 4), shards=shards, dtype="f4", fill_value=7
    )
    array[:, :4] = 1
    values, absent = whole(open_source("a.zarr"))
    assert absent == (3 if shards is None else 1)
    assert (values[:, 8:] == 7).all()
    with pytest.raises(DataError, match=r"a\.zarr: chunk '.*' was never written, and absent_chunks is 'error'"):
        whole(open_source("a.zarr", absent_chunks="error"))


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_a_chunk_that_fails_to_decode_is_named(tmp_path, zarr_format):
    zarr.create_array(tmp_path / "a.zarr", data=np.ones((4, 9)), chunks=(2, 3), zarr_format=zarr_format)
    chunk = tmp_path / "a.zarr" / ("c/1/2" if zarr_format == 3 else "1.2")
    chunk.write_bytes(b"this is no zstd frame")
    with pytest.raises(StorageError, match=r"a\.zarr: chunk \(1, 2\), region \[2:4, 6:9\]"):
        whole(open_source("a.zarr"))


def test_coordinates_come_with_their_units(group):
    group["fields/time"].attrs["units"] = "days since 1990-01-01"
    with open_source("g.zarr").open() as reader:
        found = reader.coordinate(0)
        assert found.name == "time"
        assert found.attributes == {"units": "days since 1990-01-01"}
        np.testing.assert_array_equal(found.values[1:3], [2, 3])
        assert reader.coordinate(1) is None


def test_packed_values_and_their_sentinel_are_known(tmp_path):
    attributes = {"scale_factor": 0.1, "add_offset": 273.0, "_FillValue": -999}
    array = zarr.create_array(tmp_path / "a.zarr", data=np.ones((2, 2), "i2"), attributes=attributes)
    layout = ZarrSource(array).layout
    assert (layout.packing, layout.missing_values) == ((0.1, 273.0), (-999.0,))


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("s3://key:secret@host/bucket/x.zarr?token=1", "s3://host/bucket/x.zarr"),
        ("https://example.org/x.zarr", "https://example.org/x.zarr"),
        ("https://example.org:443/x@y.zarr#part", "https://example.org:443/x@y.zarr"),
        ("simplecache::s3://key:secret@bucket/x.zarr?token=1", "simplecache::s3://bucket/x.zarr"),
        ("zip://x.zarr::s3://key:secret@bucket/x.zip", "zip://x.zarr::s3://bucket/x.zip"),
        ("s3://key:sec/r?et@bucket/x.zarr", "s3://bucket/x.zarr"),
        ("http://user:secret@[fe80::1]:9000/x.zarr", "http://[fe80::1]:9000/x.zarr"),
        ("data/x@y.zarr", "data/x@y.zarr"),
    ],
)
def test_credentials_never_show(uri, shown):
    assert without_credentials(uri) == shown
    assert not any(word in shown for word in Secrets.of(uri).words)


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("dtype", ["f4", "i2"])
def test_fill_values_are_known_as_xarray_writes_them(zarr_format, dtype):
    """Version 3 keeps that of a float in base64, version 2 keeps it in the metadata of the array alone."""
    values = np.where(np.arange(40).reshape(4, 10) % 7, np.arange(40.0).reshape(4, 10), np.nan)
    mark = np.dtype(dtype).type(-9999)
    encoding = {"v": {"_FillValue": mark, "dtype": dtype}}
    data = xr.Dataset({"v": (("time", "x"), values)})
    data.to_zarr("ocean.zarr", zarr_format=zarr_format, consolidated=False, encoding=encoding)
    source = open_source("ocean.zarr", "v")
    assert source.layout.missing_values == (-9999.0,)
    with source.open() as reader:
        stored = reader.read((slice(0, 4), slice(0, 10)))
    np.testing.assert_array_equal(stored == -9999, np.isnan(values))


def test_a_fill_value_of_version_2_that_xarray_did_not_write_marks_nothing():
    zarr.create_array("x.zarr", data=np.zeros((3, 4), "i2"), chunks=(3, 4), zarr_format=2, fill_value=0)
    assert open_source("x.zarr").layout.missing_values == ()


def test_marks_are_rounded_as_the_values_were():
    array = zarr.create_array("x.zarr", data=np.array([[1e20, 1.0]], "f4"), chunks=(1, 2))
    array.attrs["_FillValue"] = array.attrs["missing_value"] = 1e20
    (mark,) = open_source("x.zarr").layout.missing_values
    assert mark == float(np.float32(1e20))
    assert open_source("x.zarr", missing_values=[-99, 1e20]).layout.missing_values == (mark, -99.0)


@pytest.mark.parametrize("dims", [["x"], [1, 2], "xy", ["a", "b", "c"]])
def test_names_of_dimensions_that_can_be_none_are_not_taken(dims):
    array = zarr.create_array("x.zarr", data=np.eye(3), chunks=(3, 3), zarr_format=2)
    array.attrs["_ARRAY_DIMENSIONS"] = dims
    assert open_source("x.zarr").layout.dims == (None, None)


@pytest.mark.parametrize("stored", ["compressed", "uncompressed", "sharded"])
@pytest.mark.parametrize(
    ("how", "error", "said"),
    [("error", DataError, "was never written"), ("damage", StorageError, "is gone from the copy")],
)
@pytest.mark.parametrize("region", [slice(0, 4), slice(2, 4), slice(6, 8)])
def test_an_absent_chunk_is_met_in_any_part_of_it(tmp_path, stored, how, error, said, region):
    more = {"compressed": {}, "uncompressed": {"compressors": None}, "sharded": {"shards": (8, 8)}}[stored]
    array = zarr.create_array(tmp_path / "x.zarr", shape=(16, 8), chunks=(8, 8), dtype="f4", **more)
    array[8:] = 1
    with ZarrSource(array, "x.zarr", how).open() as reader:
        reader.read((slice(8, 16), slice(0, 8)))
        with pytest.raises(error, match=said):
            reader.read((region, slice(0, 8)))
