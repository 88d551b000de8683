"""Classic netCDF: the values that xarray and scipy read, of every type, version and place of a variable."""

import contextlib
import os
import random
import struct
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from scipy.io import netcdf_file

from dpca import PCA
from dpca.errors import DpcaError, InputError
from dpca.sources import list_arrays, open_source
from dpca.sources.labels import read_labels
from dpca.sources.netcdf3 import TYPES
from tests.commands.calls import dpca
from tests.sources.test_zarr_array import whole
from tests.stores import random_array

STREAMED = -1
"""In place of a number of records: those that there are."""
N_RECORDS = 4


def netcdf3(path, version, dims, variables, n_records=N_RECORDS):
    """Write a file as the specification says: scipy writes neither version 5 nor streams.

    Parameters
    ----------
    dims : length by name; None for records
    variables : dimensions, values and attributes by name
    """
    counts, offsets = ("q", "q") if version == 5 else ("i", "i" if version == 1 else "q")

    def packed(*numbers, kind=counts):
        return struct.pack(f">{len(numbers)}{kind}", *numbers)

    def padded(content):
        return content + b"\0" * (-len(content) % 4)

    def name(text):
        return packed(len(text.encode())) + padded(text.encode())

    def listed(tag, items):
        return packed(tag if items else 0, kind="i") + packed(len(items)) + b"".join(items)

    def attribute(key, value):
        value = np.bytes_(value) if isinstance(value, str) else np.asarray(value)
        text = value.dtype.kind == "S"
        kind = 2 if text else TYPES.index(value.dtype.newbyteorder(">")) + 1
        content = value.tobytes() if text else value.astype(TYPES[kind - 1]).tobytes()
        size = len(content) if text else value.size
        return name(key) + packed(kind, kind="i") + packed(size) + padded(content)

    stored = {
        key: np.asarray(values, np.asarray(values).dtype.newbyteorder(">")) for key, (_, values, _) in variables.items()
    }
    of_records = [key for key, (axes, _, _) in variables.items() if axes and dims[axes[0]] is None]
    record = {key: stored[key][:1].tobytes() for key in of_records}

    def header(begins):
        described = [
            name(key)
            + packed(len(axes), *(list(dims).index(axis) for axis in axes))
            + listed(12, [attribute(*item) for item in attributes.items()])
            + packed(TYPES.index(stored[key].dtype) + 1, kind="i")
            + packed(min(len(padded(record.get(key, stored[key].tobytes()))), 2**31 - 4))
            + packed(begins.get(key, 0), kind=offsets)
            for key, (axes, _, attributes) in variables.items()
        ]
        return (
            b"CDF" + bytes([version]) + packed(n_records)
            + listed(10, [name(dim) + packed(length or 0) for dim, length in dims.items()])
            + listed(12, [attribute("title", "a test")])
            + listed(11, described)
        )  # fmt: skip

    begins, position, content = {}, len(header({})), b""
    for key in variables:
        if key not in of_records:
            begins[key] = position + len(content)
            content += padded(stored[key].tobytes())
    position += len(content)
    for key in of_records:
        begins[key], position = position, position + len(padded(record[key]))
    if of_records:
        padding = padded if len(of_records) > 1 else bytes
        for number in range(len(stored[of_records[0]])):
            content += b"".join(padding(stored[key][number : number + 1].tobytes()) for key in of_records)
    Path(path).write_bytes(header(begins) + content)


KINDS = {1: 6, 2: 6, 5: len(TYPES)}
"""The number of types by version."""
PLACES = {
    "fixed": {"fixed": ("y", "x")},
    "records of one": {"records": ("t", "y", "x")},
    "records between others": {"before": ("t",), "records": ("t", "y", "x"), "after": ("t", "y")},
    "records far apart": {"records": ("t", "y", "x"), "far": ("t", "z")},
    "numbers far apart": {"records": ("t",), "far": ("t", "z")},
    "streamed": {"before": ("t",), "records": ("t", "y", "x")},
}
LENGTHS = {"t": None, "y": 3, "x": 5, "z": 3000}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("version", KINDS)
def test_every_region_of_every_variable_is_what_was_written(version, place):
    draw = random.Random(0)
    for dtype in [kind for kind in TYPES[: KINDS[version]] if kind.kind != "S"]:
        variables = {
            key: (axes, random_array(at, [LENGTHS[axis] or N_RECORDS for axis in axes], dtype), {})
            for at, (key, axes) in enumerate(PLACES[place].items())
        }
        netcdf3("x.cdf", version, LENGTHS, variables, STREAMED if place == "streamed" else N_RECORDS)
        if version != 5 and place != "streamed":
            with netcdf_file("x.cdf", mmap=False) as file:  # the writer above is right
                for key, (_, values, _) in variables.items():
                    np.testing.assert_array_equal(file.variables[key].data, values)
        for key, (axes, values, _) in variables.items():
            source = open_source("x.cdf", key)
            assert (source.layout.dims, source.layout.shape, source.layout.dtype) == (axes, values.shape, dtype)
            with source.open() as reader:
                for _ in range(6):
                    region = tuple(slice(*sorted((draw.randint(0, n), draw.randint(0, n)))) for n in values.shape)
                    np.testing.assert_array_equal(reader.read(region), values[region])


def nemo(path="nemo.nc", start=0, version=None):
    """Months of two fields on a curvilinear grid, as NEMO's server of files names and describes what stands beside them."""
    values = 280 + random_array(start, (6, 8, 10), "f8")
    values[:, 2, 3] = np.nan
    grid = np.meshgrid(np.linspace(-30, 30, 10), np.linspace(40, 60, 8))
    where = {"coordinates": "time_centered nav_lat nav_lon", "units": "degC"}
    seconds = {"units": "seconds since 1900-01-01 00:00:00", "calendar": "gregorian"}
    times = 2629800.0 * (np.arange(start, start + 6) + 1200.5)
    fields = xr.Dataset(
        {
            "tos": (("time_counter", "y", "x"), values, where),
            "nav_lat": (("y", "x"), grid[1].astype("f4"), {"units": "degrees_north", "bounds": "bounds_lat"}),
            "nav_lon": (("y", "x"), grid[0].astype("f4"), {"units": "degrees_east"}),
            "bounds_lat": (("y", "x", "nvertex"), np.zeros((8, 10, 4), "f4")),
            "bounds_lon": (("y", "x", "nvertex"), np.zeros((8, 10, 4), "f4")),
            "time_centered": (("time_counter",), times, seconds),
            "time_centered_bounds": (("time_counter", "axis_nbounds"), np.zeros((6, 2))),
            "time_counter_bounds": (("time_counter", "axis_nbounds"), np.zeros((6, 2))),
            "name": (("time_counter",), [f"month {number}" for number in range(6)]),
        },
        {"time_counter": ("time_counter", times, {**seconds, "bounds": "time_counter_bounds"})},
    )
    fields.tos.encoding = {"dtype": "i2", "scale_factor": 0.01, "add_offset": 280.0, "_FillValue": np.int16(-32767)}
    fields.to_netcdf(path, engine="scipy", unlimited_dims=["time_counter"], format=version)
    return xr.load_dataset(path, engine="scipy")


@pytest.mark.parametrize("version", ["NETCDF3_CLASSIC", "NETCDF3_64BIT"])
def test_commands_take_a_file_as_xarray_does(version, capsys):
    expected = nemo(version=version)
    assert [item["path"] for item in list_arrays("nemo.nc") if not item["describes"] and len(item["shape"]) > 1] == [
        "tos"
    ]
    assert dpca("inspect", "nemo.nc") == 0
    shown = capsys.readouterr().out
    assert "array    tos" in shown
    assert "6 x 8 x 10 (time_counter, y, x)" in shown
    assert "a guess" not in shown
    assert dpca("init", "nemo.nc") == 0
    text = capsys.readouterr().out
    assert "_bounds" not in text
    assert "bounds_l" not in text
    Path("c.yaml").write_text(text)
    keys = ("--set", "output.path=r", "--set", "preprocess.missing=mean", "--set", "model.n_components=3")
    assert dpca("plan", "c.yaml", *keys) == 0
    assert dpca("run", "c.yaml", *keys, "--set", "model.precision=double") == 0
    assert "weights: sqrt_cos_lat" in text  # of nav_lat(y, x)
    keys = {"missing": "mean", "weights": "sqrt_cos_lat", "precision": "double"}
    fitted = PCA(3, samples_axis="time_counter", **keys).fit(expected.tos)
    found, of_xarray = PCA.load("r").to_xarray().load(), fitted.to_xarray()
    for name in ("time_counter", "time_centered", "nav_lat", "nav_lon"):
        np.testing.assert_array_equal(found.coords[name], expected.coords[name])
    np.testing.assert_allclose(found.singular_values, of_xarray.singular_values, rtol=1e-6)
    np.testing.assert_allclose(found.components, of_xarray.components, atol=1e-5)
    assert dpca("transform", "r", "nemo.nc", "--out", "s.zarr") == 0
    np.testing.assert_allclose(xr.open_zarr("s.zarr").scores, found.scores, atol=1e-5)


def test_files_follow_each_other_and_are_not_those_of_before(capsys):
    expected = xr.concat(
        [nemo("a1.nc"), nemo("a2.nc", 6)], "time_counter", data_vars="minimal", coords="minimal", compat="override"
    )
    Path("c.yaml").write_text(
        "input: {uri: a*.nc, array: tos, samples_axis: time_counter}\npreprocess: {missing: mean}\n"
        "model: {n_components: 3}\noutput: {path: r}\n"
    )
    assert dpca("run", "c.yaml") == 0
    np.testing.assert_array_equal(PCA.load("r").to_xarray().time_counter, expected.time_counter)
    before = open_source("a2.nc", "tos")
    fingerprint, state = before.fingerprint(), before.state(())
    assert dpca("run", "c.yaml", "--resume") == 0
    nemo("a2.nc", 7)
    assert open_source("a2.nc", "tos").fingerprint() != fingerprint
    assert before.state(()) != state


def test_texts_and_numbers_beside_the_data_are_labels():
    nemo()
    assert read_labels("nemo.nc", "name", 6).tolist() == [f"month {number}" for number in range(6)]
    assert len(read_labels("nemo.nc", "time_centered", 6)) == 6
    with pytest.raises(InputError, match=r"nemo\.nc: has no array 'x'; it holds .*tos"):
        read_labels("nemo.nc", "x", 6)
    with pytest.raises(InputError, match=r"nemo\.nc: has no array 'x'; it holds .*tos \(6, 8, 10\)"):
        open_source("nemo.nc", "x")


UNWRITTEN = {
    ">i2": -32767,
    ">i4": -2147483647,
    ">f4": 9.969209968386869e36,
    ">f8": 9.969209968386869e36,
    ">u8": 2**64 - 2,
}


@pytest.mark.parametrize("dtype", UNWRITTEN)
def test_what_was_never_written_is_missing(dtype):
    """netCDF fills it with values of its own, unless the file names one (netcdf.h)."""
    values = random_array(0, (4, 5), dtype)
    values[1:, 2] = UNWRITTEN[dtype]
    for attributes, missing in (({}, 3), ({"_FillValue": np.array([7], dtype)}, 0)):
        netcdf3("x.nc", 5, {"t": 4, "x": 5}, {"v": (("t", "x"), values, attributes)})
        layout = open_source("x.nc").layout
        assert layout.marked(values.astype("f8")).sum() == missing


HEADER = {
    "ends within the list of dimensions": (lambda content: content[:30], "the file ends within it"),
    "no tag": (lambda content: content[:11] + b"\x09" + content[12:], "a list has the tag 9, not 10"),
    "as many dimensions as bytes can say": (lambda content: content[:12] + b"\xff" * 4 + content[16:], "type|ends|longer|tag"),
    "a name of 4 GB": (lambda content: content[:16] + b"\xff" * 4 + content[20:], "longer than"),
    "a dimension of 4 GB": (lambda content: content.replace(b"y\0\0\0\0\0\0\4", b"y\0\0\0\xff\xff\xff\xff"), "end at byte"),
    "an unknown type": (lambda content: content.replace(b"\0\0\0\6\0\0\0\xa0", b"\0\0\0\x0c\0\0\0\xa0"), "type 12"),
    "a negative begin": (
        lambda content: content.replace(b"\0\0\0\xa0" + content[content.index(b"\0\0\0\xa0") + 4 :][:4], b"\0\0\0\xa0\xff\xff\xff\xff"),
        "end at byte 4,294,",
    ),
    "a dimension that there is not": (lambda content: content.replace(b"v\0\0\0\0\0\0\2", b"v\0\0\0\0\0\0\2" + b"\0\0\0\x77")[: len(content)], "has dimension 119, but there are 2"),
    "100 axes": (lambda content: content.replace(b"v\0\0\0\0\0\0\2", b"v\0\0\0\0\0\0\x64"), "has 100 dimensions"),
    "values that end before": (lambda content: content[:-8], "but by its header values of shape"),
}  # fmt: skip


@pytest.mark.parametrize("what", HEADER)
def test_what_is_damaged_or_truncated_is_refused_in_a_sentence(what, capsys):
    change, sentence = HEADER[what]
    netcdf3("whole.nc", 1, {"x": 5, "y": 4}, {"v": (("y", "x"), random_array(0, (4, 5), ">f8"), {})})
    content = Path("whole.nc").read_bytes()
    Path("x.nc").write_bytes(change(content))
    assert change(content) != content
    with pytest.raises(InputError, match=rf"x\.nc.*({sentence})"):
        open_source("x.nc")
    assert dpca("inspect", "x.nc") == 2
    assert "defect" not in capsys.readouterr().err


@pytest.mark.parametrize("version", KINDS)
def test_changed_headers_are_errors_or_arrays(version):
    draw = random.Random(0)
    netcdf3(
        "whole.nc",
        version,
        LENGTHS,
        {"v": (("t", "y", "x"), np.ones((4, 3, 5)), {"scale_factor": 2.0}), "w": (("t",), np.ones(4), {})},
    )
    whole_content = Path("whole.nc").read_bytes()
    for _ in range(150):
        content = bytearray(whole_content)
        for _ in range(draw.choice((1, 2, 4))):
            content[draw.randrange(4, 180)] = draw.choice((0, 1, 255, 127, draw.randrange(256)))
        Path("x.nc").write_bytes(content)
        with contextlib.suppress(DpcaError):
            whole(open_source("x.nc", "v"))


def test_no_more_than_a_header_is_read_of_what_says_it_is_one():
    Path("x.nc").write_bytes(b"CDF\x05" + bytes(8) + b"\0\0\0\x0a" + b"\x7f" * 8)
    os.truncate("x.nc", 2**40)
    with pytest.raises(InputError, match=r"x\.nc: its netCDF header can't be read"):
        open_source("x.nc")
    netcdf3("x.nc", 1, LENGTHS, {"v": (("t", "y"), np.ones((4, 3)), {})}, n_records=2**31 - 1)
    with pytest.raises(
        InputError, match=r"x\.nc:v: the file has \d+ bytes, but by its header values of shape \(2147483647, 3\)"
    ):
        open_source("x.nc")
