"""Nothing in a file runs: no pickle, no plugin of blosc2, no object of YAML."""

import json
import os
import pickle
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import h5py
import hdf5plugin
import numpy as np
import pytest
import zarr

from dpca.errors import DpcaError
from dpca.sources import as_source, list_arrays, open_source
from dpca.sources.labels import read_labels
from tests.commands.calls import dpca
from tests.safety.common import X, config
from tests.stores import random_array


class Evil:
    """Leaves a mark when it is unpickled."""

    def __reduce__(self):
        return os.system, ("touch unpickled",)


@pytest.fixture
def evil():
    yield pickle.dumps(Evil())
    assert not Path("unpickled").exists()


PICKLED = {
    "compressor": {"compressor": {"id": "pickle"}},
    "filter": {"filters": [{"id": "pickle"}]},
    "filter among others": {
        "filters": [{"id": "delta", "dtype": "<f8"}, {"id": "pickle"}],
        "compressor": {"id": "zlib"},
    },
    "objects": {"filters": [{"id": "pickle"}], "dtype": "|O"},
}


def pickled(group, name, how, evil):
    """Make an array of Zarr version 2 whose chunk is a pickle."""
    path = Path(group, name, ".zarray")
    metadata = {"compressor": None, "filters": None, **json.loads(path.read_text()), **PICKLED[how], "fill_value": 0}
    path.write_text(json.dumps(metadata))
    chunk = "0.0" if len(metadata["shape"]) == 2 else "0"
    Path(group, name, chunk).write_bytes(zlib.compress(evil) if "among" in how else evil)


@pytest.mark.parametrize("how", PICKLED)
def test_a_pickle_in_zarr_is_refused_and_never_loaded(how, evil, capsys):
    group = zarr.create_group("x.zarr", zarr_format=2)
    group.create_array("x", data=X, compressors=None)
    pickled("x.zarr", "x", how, evil)
    for more in ((), ("--set", "input.array=x")):
        assert dpca("run", config("x.zarr"), *more) == 2
        shown = capsys.readouterr().err
        assert "x.zarr" in shown
        assert "can't be opened" in shown
        assert "pickle" in shown


@pytest.mark.parametrize("how", PICKLED)
def test_a_pickle_in_a_coordinate_or_a_result_is_never_loaded(how, evil):
    group = zarr.create_group("x.zarr", zarr_format=2)
    group.create_array("x", data=X, attributes={"_ARRAY_DIMENSIONS": ["time", "cell"]})
    group.create_array("time", data=np.arange(6.0), compressors=None)
    pickled("x.zarr", "time", how, evil)
    assert dpca("run", config("x.zarr"), "--set", "input.array=x") == 0
    assert "time" not in zarr.open_group("r/result.zarr")
    group = zarr.create_group("r/result.zarr", zarr_format=2, overwrite=True)
    group.create_array("components", data=X, compressors=None)
    pickled("r/result.zarr", "components", how, evil)
    np.save("new.npy", X)
    assert dpca("transform", "r", "new.npy", "--out", "out.zarr") != 0


def test_objects_in_npy_are_refused_and_never_loaded(evil, capsys):
    np.save("x.npy", np.array([[Evil(), Evil()]] * 3, object), allow_pickle=True)
    assert dpca("run", config("x.npy")) == 2
    assert "dtype" in capsys.readouterr().err


@pytest.fixture
def plugin():
    """A plugin of blosc2 that it would find by its name, in the working directory; leaves a mark."""
    Path("blosc2_openhtj2k.py").write_text("open('imported', 'w')")
    yield
    assert not Path("imported").exists()


OPENHTJ2K, INT_TRUNC = 36, 36
"""Numbers of a codec and of a filter that are plugins."""


def forged(frame, how):
    """A frame of blosc2, in which a header asks for a plugin."""
    found, start, length = bytearray(frame), int.from_bytes(frame[11:15], "big"), int.from_bytes(frame[39:47], "big")
    end = start + length
    if how == "offsets":
        # One block, whose compressed bytes are fewer than the eight of an offset.
        chunk = bytearray(found[end : end + 32]) + struct.pack("<iii", 36, 4, 0)
        chunk[2], chunk[22], chunk[12:16] = 0b11010101, OPENHTJ2K, struct.pack("<i", len(chunk))
        found[end : end + 40] = chunk
    elif how == "offset":
        # The offset of a second chunk, within the first one, which is as it was.
        second = bytearray(found[start : start + length])
        second[2], second[22] = second[2] & 0b11101 | 6 << 5, OPENHTJ2K
        found[end:end] = second
        found[39:47], found[end + length + 32 : end + length + 40] = (
            struct.pack(">q", 2 * length),
            struct.pack("<q", length),
        )
    elif how == "filter":
        found[start + 16] = INT_TRUNC
    elif how == "lazy":
        found[start + 31] |= 8
    elif how == "header":
        found[27], found[78] = 6, OPENHTJ2K
    elif how == "two chunks":
        found[30:38] = struct.pack(">q", 2 * int.from_bytes(frame[30:38], "big"))
    else:
        found[start + 2], found[start + 22] = found[start + 2] & 0b11101 | 6 << 5, OPENHTJ2K
    found[16:24] = struct.pack(">q", len(found))
    return bytes(found)


def with_plugin(group, name, values, how="data", behind=()):
    """A dataset of one chunk in which blosc2 is asked for a plugin; filters `behind` are applied to what blosc2 makes."""
    made = group.create_dataset("real", data=values, chunks=values.shape, **hdf5plugin.Blosc2())
    properties = made.id.get_create_plist()
    for code in behind:
        properties.set_filter(code, 0, ())
    dataset = h5py.Dataset(
        h5py.h5d.create(group.id, name.encode(), made.id.get_type(), made.id.get_space(), properties)
    )
    corner = (0,) * values.ndim
    dataset.id.write_direct_chunk(corner, forged(made.id.read_direct_chunk(corner)[1], how))
    del group["real"]
    return dataset


N_BIT = h5py.h5z.FILTER_NBIT
SMOOTH = np.arange(240.0).reshape(6, 40)
FORGED = {
    "data": {},
    "data, of one axis": {},
    "offsets": {"how": "offsets"},
    "offset": {"how": "offset"},
    "filter": {"how": "filter"},
    "lazy": {"how": "lazy"},
    "header": {"how": "header"},
    "two chunks": {"how": "two chunks"},
    "behind n-bit": {"behind": (N_BIT,)},
    "behind checksums and n-bit": {"behind": (h5py.h5z.FILTER_FLETCHER32, N_BIT)},
    "behind shuffle": {"behind": (h5py.h5z.FILTER_SHUFFLE,)},
}


def read_all(source):
    with source.open() as reader:
        return reader.read(tuple(slice(0, length) for length in source.layout.shape))


@pytest.mark.parametrize("virtually", [False, True])
@pytest.mark.parametrize("case", FORGED)
def test_blosc2_runs_no_plugin(plugin, case, virtually):
    with h5py.File("x.h5", "w") as file:
        with_plugin(file, "x", SMOOTH.reshape(-1) if "one axis" in case else SMOOTH, **FORGED[case])
        if virtually:
            layout = h5py.VirtualLayout(file["x"].shape, "f8")
            layout[...] = h5py.VirtualSource(".", "x", file["x"].shape)
            file.create_virtual_dataset("v", layout)
    name = "v" if virtually else "x"
    with pytest.raises(DpcaError, match=r"x\.h5:.*the chunk|x\.h5:.*blosc2"):
        read_all(open_source("x.h5", name))
    with h5py.File("x.h5") as file, pytest.raises(DpcaError):
        read_all(as_source(file[name]))
    if "one axis" not in case:
        assert dpca("run", config("x.h5"), "--set", f"input.array={name}") == 1


def test_blosc2_runs_no_plugin_of_what_is_beside_the_data(plugin):
    """Coordinates, labels, and a table of AnnData."""
    chosen = np.arange(40) % 2 == 0
    with h5py.File("x.h5", "w") as file:
        file["X"] = SMOOTH
        file.attrs["encoding-type"] = "anndata"
        table = file.create_group("var")
        table.attrs.update({"_index": "names", "column-order": ["chosen"]})
        with_plugin(table, "names", np.arange(40.0))
        with_plugin(table, "chosen", chosen)
        with_plugin(file, "y", np.arange(6.0))
        with_plugin(file, "time", np.arange(6.0)).make_scale("time")
        file["X"].dims[0].attach_scale(file["time"])
    with open_source("x.h5", "X").open() as reader:
        for axis in (0, 1):
            with pytest.raises(DpcaError, match=r"x\.h5:.*codec 36, a plugin of blosc2"):
                reader.coordinate(axis).values[...]
    with pytest.raises(DpcaError, match=r"x\.h5:y: .*codec 36, a plugin of blosc2"):
        read_labels("x.h5", "y", 6)
    with pytest.raises(DpcaError, match=r"x\.h5:.*codec 36, a plugin of blosc2"):
        open_source("x.h5", "X", column="chosen")
    for command in (("run", config("x.h5"), "--set", "input.array=X"), ("inspect", "x.h5")):
        dpca(*command)


OF_A_GROUP = """
import ctypes, sys
import h5py, hdf5plugin
from dpca.sources.blosc2_frame import _FUNCTION, _Filter

frame, memory = sys.stdin.buffer.read(), ctypes.CDLL(None)
memory.malloc.restype, memory.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]

@_FUNCTION
def forge(flags, n_values, values, n_bytes, size, content):
    content[0], size[0] = memory.malloc(len(frame)), len(frame)
    ctypes.memmove(content[0], frame, len(frame))
    return len(frame)

forging = _Filter(1, hdf5plugin.Blosc2.filter_id, 1, 1, b"blosc2", None, None, forge)
h5py.h5z.register_filter(ctypes.addressof(forging))
set_filter = ctypes.CDLL(h5py.h5z.__file__).H5Pset_filter
set_filter.argtypes = [ctypes.c_int64, ctypes.c_int, ctypes.c_uint, ctypes.c_size_t, ctypes.c_void_p]
how = h5py.h5p.create(h5py.h5p.GROUP_CREATE)
assert set_filter(how.id, hdf5plugin.Blosc2.filter_id, 0, 4, (ctypes.c_uint * 4)(0, 0, 8, 1920)) == 0
with h5py.File("x.h5", "w", libver="latest") as file:
    group = h5py.Group(h5py.h5g.create(file.id, b"group", gcpl=how))
    for number in range(40):
        group.create_group(str(number))
"""


def test_blosc2_runs_no_plugin_of_the_names_in_a_group(plugin):
    """HDF5 stores many names in a heap, which may be compressed."""
    with h5py.File("y.h5", "w") as file:
        dataset = file.create_dataset("x", data=np.arange(240.0), chunks=(240,), **hdf5plugin.Blosc2())
        frame = forged(dataset.id.read_direct_chunk((0,))[1], "data")
    subprocess.run([sys.executable, "-c", OF_A_GROUP], input=frame, check=True)
    for look in (list_arrays, open_source, lambda path: open_source(path, "group/1")):
        with pytest.raises(DpcaError, match=r"x\.h5: its groups are not readable"):
            look("x.h5")


WRITTEN = {
    "noise": random_array(0, (300, 333), "f8"),
    "smooth": np.arange(300 * 333.0).reshape(300, 333),
    "zeros": np.zeros((300, 333)),
    "one value": np.full((300, 333), 3.5),
    "bytes": np.random.default_rng(0).integers(0, 256, (300, 333)).astype("u1"),
    "three axes": random_array(1, (41, 42 * 43), "f4").reshape(41, 42, 43),
    "small": random_array(2, (3, 5), "f4"),
}


@pytest.mark.parametrize("values", WRITTEN)
@pytest.mark.parametrize("cname", ["blosclz", "lz4", "lz4hc", "zlib", "zstd"])
def test_what_blosc2_writes_is_read(values, cname):
    """In two axes or more, blosc2 pads chunks to whole blocks."""
    values = WRITTEN[values]
    with h5py.File("x.h5", "w") as file:
        for filters in range(5):
            how = {"cname": cname, "clevel": (5, 0, 9)[filters % 3], "filters": filters}
            if filters == 4 and values.dtype.kind != "f":
                continue
            file.create_dataset(f"{filters}", data=values, chunks=values.shape, **hdf5plugin.Blosc2(**how))
            file.create_dataset(
                f"{filters}, of one axis", data=values.reshape(-1), chunks=True, **hdf5plugin.Blosc2(**how)
            )
        written = {name: dataset[...] for name, dataset in file.items()}
    for name, expected in written.items():
        np.testing.assert_array_equal(read_all(open_source("x.h5", name)), expected)


def test_yaml_makes_no_objects(capsys):
    np.save("x.npy", X)
    assert dpca("run", config("x.npy", "compute: !!python/object/apply:os.system ['touch unpickled']")) == 2
    assert "c.yaml:4" in capsys.readouterr().err
    assert not Path("unpickled").exists()
