"""What a file that someone else made must not be able to do, and what must never be written down."""

import contextlib
import http.server
import json
import os
import pickle
import resource
import shlex
import shutil
import signal
import stat
import struct
import subprocess
import sys
import threading
import zipfile
import zlib
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path

import fsspec
import h5py
import hdf5plugin
import numpy as np
import pytest
import zarr
from cryptography.x509 import load_pem_x509_certificates

from dpca import PCA, open_gram
from dpca.config.loading import Loaded
from dpca.errors import DpcaError, StorageError
from dpca.estimators.base import scratch_beside
from dpca.execution import jobqueue
from dpca.execution.clusters import local
from dpca.execution.jobqueue import make_keys, security_of
from dpca.planning.rechunk import copy_in
from dpca.sources import as_source, list_arrays, open_source
from dpca.sources.labels import read_labels
from dpca.store.results import open_result
from dpca.system import durable
from tests.commands.calls import dpca
from tests.genotypes.cohorts import cohort, write_plink
from tests.made import made
from tests.sources.test_netcdf3 import netcdf3
from tests.stores import random_array

X = random_array(0, (6, 40), "f8")


class Evil:
    """Leaves a mark when it is unpickled."""

    def __reduce__(self):
        return os.system, ("touch unpickled",)


@pytest.fixture
def evil():
    yield pickle.dumps(Evil())
    assert not Path("unpickled").exists()


def config(uri, *lines):
    Path("c.yaml").write_text(
        "\n".join([f"input: {{uri: {uri}}}", "model: {n_components: 2}", "output: {path: r}", *lines])
    )
    return "c.yaml"


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


@pytest.fixture
def outside(tmp_path):
    """A secret beside the folder that holds the data."""
    (tmp_path / "secret").write_bytes(X.tobytes())
    with h5py.File(tmp_path / "secret.h5", "w") as file:
        file["x"] = X
    zarr.create_array(tmp_path / "secret.zarr" / "x", data=X)
    folder = tmp_path / "data"
    folder.mkdir()
    os.chdir(folder)


@pytest.mark.parametrize("kind", ["zstd", "none", "gzip", "shards"])
@pytest.mark.parametrize("link", ["c/0/1", "c/0", "c", ""])
def test_links_in_zarr_do_not_leave_it(outside, kind, link):
    """Of a chunk, of a folder of chunks, of an array in a group."""
    how = {
        "zstd": {},
        "none": {"compressors": None},
        "gzip": {"compressors": zarr.codecs.GzipCodec()},
        "shards": {"shards": (6, 20), "chunks": (6, 10)},
    }[kind]
    for path in ("../other.zarr", "x.zarr"):
        zarr.create_group(path).create_array("x", data=X, **{"chunks": (6, 20), **how})
    place = Path("x.zarr/x", link)
    (shutil.rmtree if place.is_dir() else os.remove)(place)
    place.symlink_to(Path("../other.zarr/x", link).resolve(), target_is_directory=place.suffix == "")
    with open_source("x.zarr", "x").open() as reader, pytest.raises(StorageError, match="is a link to .*other.zarr"):
        reader.read((slice(0, 6), slice(20, 40)))
    if link:
        assert dpca("run", config("x.zarr")) == 1


def test_links_within_zarr_are_followed(outside):
    """Of equal chunks, and of the whole to where it lies."""
    zarr.create_array("x.zarr", data=np.hstack([X[:, :20]] * 2), chunks=(6, 20))
    os.remove("x.zarr/c/0/1")
    os.symlink("0", "x.zarr/c/0/1")
    os.symlink("x.zarr", "y.zarr")
    with open_source("y.zarr").open() as reader:
        np.testing.assert_array_equal(reader.read((slice(0, 6), slice(20, 40))), X[:, :20])


def test_a_chunk_that_is_no_file_is_not_waited_for(outside):
    zarr.create_array("x.zarr", data=X, chunks=(6, 20))
    os.remove("x.zarr/c/0/1")
    os.mkfifo("x.zarr/c/0/1")
    with open_source("x.zarr").open() as reader, pytest.raises(StorageError, match=r"c/0/1: is no file"):
        reader.read((slice(0, 6), slice(20, 40)))


@pytest.mark.parametrize("zipped", [False, True])
def test_metadata_that_are_too_large_to_be_any_are_not_read(zipped):
    zarr.create_array("x.zarr", data=X)
    if zipped:
        with zipfile.ZipFile("x.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("zarr.json", bytes(2**25))
    else:
        os.truncate("x.zarr/zarr.json", 2**40)
    with pytest.raises(DpcaError, match=r"zarr\.json .* 16777216"):
        open_source("x.zip" if zipped else "x.zarr")


@pytest.mark.parametrize("change", [{"attributes": 3}, {"attributes": [1]}, {"chunk_grid": None}, {"shape": [6, "x"]}])
def test_metadata_of_any_kind_are_an_error_or_left_aside(change):
    zarr.create_group("x.zarr").create_array("x", data=X, dimension_names=("time", None))
    zarr.open_group("x.zarr").create_array("time", data=np.arange(6.0))
    for name in ("time", "x"):
        path = Path("x.zarr", name, "zarr.json")
        path.write_text(json.dumps(json.loads(path.read_text()) | change))
        with contextlib.suppress(DpcaError), open_source("x.zarr", "x").open() as reader:
            np.testing.assert_array_equal(reader.read((slice(0, 6), slice(0, 40))), X)
            reader.coordinate(0)


@pytest.mark.parametrize("array", ["../secret.zarr/x", "../../secret.zarr/x", "a/../../secret.zarr/x"])
def test_a_path_in_zarr_does_not_leave_it(outside, array, capsys):
    zarr.create_group("x.zarr").create_array("a/x", data=X)
    assert dpca("run", config("x.zarr"), "--set", f"input.array={array}") == 2
    assert f"x.zarr: has no array {array!r}; it holds a/x (6, 40)" in capsys.readouterr().err


def virtual(file, part, name="x", path="x"):
    """A virtual dataset of one part."""
    layout = h5py.VirtualLayout(X.shape, "f8")
    layout[:] = h5py.VirtualSource(part, name, X.shape)
    file.create_virtual_dataset(path, layout)


def pattern(file, part, name="x"):
    """A virtual dataset that grows: %b in a name of its parts stands for their numbers."""
    rows, growing = h5py.h5s.create_simple(X.shape), (h5py.h5s.UNLIMITED, X.shape[1])
    whole = h5py.h5s.create_simple(X.shape, growing)
    whole.select_hyperslab((0, 0), (h5py.h5s.UNLIMITED, 1), (X.shape[0], 1), X.shape)
    properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    properties.set_virtual(whole, part.encode(), name.encode(), rows)
    space = h5py.h5s.create_simple(X.shape, growing)
    h5py.h5d.create(file.id, b"x", h5py.h5t.IEEE_F64LE, space, properties)


def stored_outside(file):
    file.create_dataset("x", X.shape, "f8", external=[("../secret", 0, X.nbytes)])


def external_link(file, name="x"):
    file[name] = h5py.ExternalLink("../secret.h5", "x")


def soft_link(file):
    file["there"] = h5py.ExternalLink("../secret.h5", "/")
    file["link"] = h5py.SoftLink("/there/x")


def one_of_a_pattern(file):
    os.symlink("../secret.h5", "p0.h5")
    file["x"] = np.zeros_like(X)


def dataset_of_a_pattern(file):
    external_link(file, "x0")
    file["x%b"] = np.zeros_like(X)


ELSEWHERE = r"is a link to another file|secret(\.h5)?, which is not in|has its values in external storage, .*secret"
OUTSIDE = {
    "external link": (external_link, None, ELSEWHERE),
    "link to a folder": (lambda file: file.update({"group": h5py.ExternalLink("../secret.h5", "/")}), None, ELSEWHERE),
    "external storage": (stored_outside, None, ELSEWHERE),
    "external storage, absolute": (
        lambda file: file.create_dataset("x", X.shape, "f8", external=[(os.path.abspath("../secret"), 0, X.nbytes)]),
        None,
        ELSEWHERE,
    ),
    "virtual": (lambda file: virtual(file, "../secret.h5"), None, ELSEWHERE),
    "virtual, of a virtual one": (
        lambda file: virtual(file, "part.h5"), lambda part: virtual(part, "../secret.h5"), ELSEWHERE
    ),
    "virtual, of a link in the same file": (
        lambda file: [external_link(file, "link"), virtual(file, ".", "link")], None, ELSEWHERE
    ),
    "virtual, of a link to a link in the same file": (
        lambda file: [soft_link(file), virtual(file, ".", "link")], None, ELSEWHERE
    ),
    "virtual, through a link in the same file": (
        lambda file: [soft_link(file), virtual(file, ".", "there/x")], None, ELSEWHERE
    ),
    "virtual, of a link": (lambda file: virtual(file, "part.h5"), external_link, ELSEWHERE),
    "virtual, of a soft link": (lambda file: virtual(file, "part.h5", "link"), soft_link, ELSEWHERE),
    "virtual, of external storage": (lambda file: virtual(file, "part.h5"), stored_outside, ELSEWHERE),
    "virtual, of a virtual one of a link in its file": (
        lambda file: virtual(file, "part.h5"),
        lambda part: [external_link(part, "link"), virtual(part, ".", "link")],
        ELSEWHERE,
    ),
    "pattern of files": (lambda file: pattern(file, "p%b.h5"), one_of_a_pattern, r"the pattern p%b\.h5 in place of"),
    "pattern of datasets": (
        lambda file: pattern(file, "part.h5", "x%b"), dataset_of_a_pattern, "the pattern x%b in place of"
    ),
    "virtual, of a file of another folder of that name": (
        lambda file: virtual(file, "secret.h5"), None, r"its source file secret\.h5 is absent"
    ),
    "virtual, of a virtual one, of a file of another folder of that name": (
        lambda file: virtual(file, "part.h5"),
        lambda part: virtual(part, "secret.h5"),
        r"its source file secret\.h5 is absent",
    ),
}  # fmt: skip
"""What is in a file, what is in one beside it that it may name, and the error."""


def make(kind):
    """Write these files, and return the error."""
    write, beside, error = OUTSIDE[kind]
    if beside is not None:
        with h5py.File("p%b.h5" if kind == "pattern of files" else "part.h5", "w") as part:
            beside(part)
    with h5py.File("x.h5", "w", libver="latest") as file:
        write(file)
    return error


@pytest.mark.parametrize("kind", OUTSIDE)
def test_hdf5_does_not_read_what_lies_elsewhere(outside, kind):
    """HDF5 looks for parts of virtual datasets in the current directory as well: here it is the secret's."""
    error = make(kind)
    os.chdir("..")
    with pytest.raises(DpcaError, match=rf"(x|part)\.h5:.*({error})"):
        open_source("data/x.h5", "group/x" if kind == "link to a folder" else "x")


LINKED = ("virtual, of a link", "virtual, of a soft link", "virtual, through a link", "pattern")


@pytest.mark.parametrize("kind", [kind for kind in OUTSIDE if kind.startswith(LINKED)])
def test_what_hdf5_opens_for_an_open_virtual_dataset_is_what_is_checked(outside, kind):
    error = make(kind)
    with h5py.File("x.h5") as file, pytest.raises(DpcaError, match=error):
        as_source(file["x"])


def test_hdf5_does_not_look_for_parts_by_a_prefix(outside, monkeypatch):
    with h5py.File("secret.h5", "w") as part:
        part["x"] = np.zeros_like(X)
    with h5py.File("x.h5", "w") as file:
        virtual(file, "secret.h5")
    open_source("x.h5")
    monkeypatch.setenv("HDF5_VDS_PREFIX", os.path.abspath(".."))
    with pytest.raises(DpcaError, match=r"x\.h5:/x: .*HDF5 would look for its parts in .*\nUnset HDF5_VDS_PREFIX"):
        open_source("x.h5")


def test_a_virtual_dataset_of_files_beside_it_is_read_and_a_change_of_them_is_noticed():
    Path("parts").mkdir()
    layout = h5py.VirtualLayout(X.shape, "f8")
    for row in range(6):
        with h5py.File(f"parts/{row}.h5", "w") as file:
            file["x"] = X[row]
        layout[row] = h5py.VirtualSource(f"parts/{row}.h5", "x", X[row].shape)
    with h5py.File("x.h5", "w") as file:
        file.create_virtual_dataset("x", layout)
    source = open_source("x.h5")
    before = source.fingerprint()
    with source.open() as reader:
        np.testing.assert_array_equal(reader.read((slice(0, 6), slice(0, 40))), X)
    with h5py.File("parts/3.h5", "w") as file:
        file["x"] = X[3] + 1
        file["more"] = X
    assert source.fingerprint() != before


NAMES = ["../../evil", "a/b", "..", ".", "zarr.json", "__proto__", "/etc", "", "c", "scores"]


@pytest.mark.parametrize("name", NAMES)
def test_dimension_names_of_the_input_are_no_paths_of_the_result(name):
    group = zarr.create_group("x.zarr")
    group.create_array("x", data=X, dimension_names=("time", name))
    for path in (name, "b"):
        try:
            group.create_array(path, data=np.arange(40.0), dimension_names=(name,))
        except (ValueError, OSError, TypeError):
            continue
    before = {path for path in Path().rglob("*") if "x.zarr" not in path.parts}
    assert dpca("run", config("x.zarr"), "--set", "input.array=x") == 0
    written = {path for path in Path().rglob("*") if "x.zarr" not in path.parts} - before
    assert {path.parts[0] for path in written} == {"r", "c.yaml"}
    fit = open_result("r")
    assert fit.arrays["components"].shape == (2, 40)
    np.testing.assert_allclose(
        np.asarray(fit.arrays["scores"]).T @ np.asarray(fit.arrays["scores"]),
        np.diag(np.asarray(fit.arrays["singular_values"]) ** 2),
        atol=1e-9,
    )


LISTENING = """
import psutil, sys
import dpca.methods.spans
span, seen = dpca.methods.spans.first_span_of_features, []
def looking(*arguments):
    seen.append([found for found in psutil.Process().net_connections("inet") if found.status == psutil.CONN_LISTEN])
    return span(*arguments)
import dpca.methods.first_pass
dpca.methods.first_pass.first_span_of_features = looking
from dpca.cli.app import main
main(sys.argv[1:])
assert seen == [[]], seen
"""


def test_a_run_on_this_machine_listens_nowhere():
    np.save("x.npy", X)
    done = subprocess.run([sys.executable, "-c", LISTENING, "run", config("x.npy")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_key_of_a_run_is_its_users_and_clocks_of_nodes_may_differ(tmp_path):
    """On Slurm: tests/slurm has what listens there, and whom it answers."""
    keys = tmp_path / "the keys"
    keys.mkdir()
    make_keys(keys)
    assert [stat.S_IMODE(path.stat().st_mode) for path in keys.iterdir()] == [0o600, 0o600]
    (certificate,) = load_pem_x509_certificates((keys / "certificate.pem").read_bytes())
    assert certificate.not_valid_before_utc < datetime.now(UTC) - timedelta(hours=1)
    security = security_of(keys, in_scripts=True)
    assert security.get_listen_args("scheduler")["require_encryption"]
    words = " ".join(filter(None, security.get_tls_config_for_role("worker").values()))
    assert set(shlex.split(words)) == {str(path) for path in keys.iterdir()}


SECRETS = ("hunter2", "s3cr3t", "t0ken", "pr0logue")
PROLOGUE = "export AWS_SECRET_ACCESS_KEY=pr0logue"
URI = "memory://user:s3cr3t@bucket/x.zarr?sig=t0ken"


@pytest.fixture
def far():
    """An array at a URL with credentials, and labels beside it; zarr warns of the one, and of the other."""
    for uri, values in ((URI, X), (URI.replace("x.zarr", "y.zarr"), np.arange(6))):
        zarr.create_array(uri, data=values, chunks=(6, 4)[: values.ndim], overwrite=True)
        fsspec.filesystem("memory").pipe(f"{uri.partition('/')[2][1:]}/.zarray", b"of another version")
    Path("c.yaml").write_text(
        f"input:\n  uri: '{URI}'\n  storage_options: {{key: hunter2}}\n"
        f"model: {{n_components: 2, labels: {{uri: '{URI.replace('x.zarr', 'y.zarr')}'}}}}\noutput: {{path: r}}\n"
        "compute: {cluster: {slurm: {cores: 1, memory: 1 GiB, walltime: '4:00:00', maximum: 1, "
        f"job_script_prologue: [module load python, {PROLOGUE}]}}}}}}\n"
    )


@pytest.fixture
def sbatch(monkeypatch):
    """A Slurm that takes any job, and runs none: workers that it would start are threads here."""
    Path("bin").mkdir()
    Path("bin/sbatch").write_text("#!/bin/sh\necho 7\n")
    Path("bin/sbatch").chmod(0o755)
    monkeypatch.setenv("PATH", f"{os.path.abspath('bin')}:{os.environ['PATH']}")
    monkeypatch.setattr(jobqueue, "jobs_of", lambda place: contextlib.nullcontext(local(1)))


def assert_kept(*texts):
    """No secret is in any of these texts, nor in a file but the config."""
    files = (path for path in Path().rglob("*") if path.is_file() and path.name != "c.yaml")
    found = [*texts, *(path.read_bytes().decode("latin-1") for path in files)]
    for secret in SECRETS:
        assert not any(secret in text for text in found), (secret, [text for text in found if secret in text][:1])


ABSENT = {uri: f"{uri}.uri={URI.replace('x.zarr', 'z.zarr')}" for uri in ("input", "model.labels")}


@pytest.mark.parametrize("fails", ["", "input", "model.labels", "read"])
@pytest.mark.filterwarnings("default::zarr.errors.ZarrUserWarning")
def test_secrets_are_in_no_file_and_no_message(far, sbatch, fails, capfd, monkeypatch, recwarn):
    """Of URLs user, password and query, all storage options and lines of shell; also where something fails, or a library warns."""
    if fails == "read":
        from zarr.storage import FsspecStore

        get = FsspecStore.get

        async def failing(self, key, *arguments, **how):
            if "x.zarr" in self.path and "/c/" in f"/{key}":
                raise OSError(f"403 for {self.path}/{key} with key hunter2")
            return await get(self, key, *arguments, **how)

        monkeypatch.setattr(FsspecStore, "get", failing)
    changed = ("--set", ABSENT[fails]) if fails in ABSENT else ()
    assert dpca("run", "c.yaml", "--keep-ledger", "--debug", *changed) == {"": 0, "read": 1}.get(fails, 2)
    if not fails:
        assert dpca("transform", "r", URI, "--out", "out.zarr") == 0
        assert dpca("transform", "r", URI, "--out", "out.zarr", "--training", URI) == 2
        assert dpca("run", "c.yaml", "--resume") == 0
        assert dpca("run", "c.yaml", "--overwrite") == 0
        assert dpca("status", "r") == 0
        assert dpca("plan", "c.yaml", "--json") == 0
        assert dpca("validate", "c.yaml") == 0
        assert dpca("inspect", URI, "--json") == 0
        for to in ("csv", "npz", "hdf5", "netcdf", "anndata"):
            assert dpca("export", "r", "--to", to, "--out", f"e.{to}") == 0
        Path("d.yaml").write_text("{from: r, analyses: [{name: a, model: {kind: pca}}], output: {path: d}}")
        assert dpca("derive", "d.yaml") == 2  # the storage options are not recorded, without which no map is made
        assert dpca("derive", "d.yaml", "--set", "components=false") == 0
        for wrong in (
            "input.storage_options=[hunter2]",
            "compute.cluster={slurm: {job_script_prologue: [pr0logue], cores: 0}}",
        ):
            assert dpca("run", "c.yaml", "--set", wrong) == 2
        assert dpca("batch", "init", "c.yaml", "--set", "output.path=b") == 0
        for _ in range(5):
            dpca("batch", "partition", "b", "--index", "0")
            dpca("batch", "finalize", "b")
        assert Path("b/manifest.json").exists()
        recorded = json.loads(Path("r/manifest.json").read_text())["config"]["compute"]["cluster"]["slurm"]
        assert recorded["job_script_prologue"] == ["(hidden)", "(hidden)"]
        assert dpca("submit", "c.yaml", "--as", "job", "--dry-run") == 0
    shown, warned = capfd.readouterr(), [str(warning.message) for warning in recwarn]
    assert fails == "input" or any("(hidden)" in text for text in warned)
    assert_kept(shown.out, shown.err, *warned)


GIVEN = [
    ABSENT["input"],
    ABSENT["model.labels"],
    f"model.labels={{uri: '{URI}'}}",
    f"input={{uri: '{URI}', storage_options: {{key: hunter2}}}}",
    "input.storage_options.key=hunter2",
    f"compute.cluster.slurm.job_script_prologue=['{PROLOGUE}']",
]


@pytest.mark.parametrize("given", GIVEN)
@pytest.mark.parametrize("command", [("submit", "--as", "job", "--dry-run"), ("batch", "init")])
def test_secrets_of_the_command_line_are_refused_where_they_would_be_written(far, command, given, capsys):
    assert dpca(*command, "c.yaml", "--set", given) == 2
    shown = capsys.readouterr()
    assert "would be written into a script" in shown.err
    assert_kept(shown.out, shown.err)


@pytest.mark.parametrize(
    "given",
    [
        *GIVEN,
        f"input.uri=[{URI}",
        "input={storage_options: {key: hunter2",
        f"inputs={URI}",
        f"compute.cluster.slurm.job_script_prologue=[{PROLOGUE}",
        f"compute.cluster={{slurm: {{job_script_prologue: [{PROLOGUE}",
    ],
)
def test_secrets_of_the_command_line_are_not_shown(given):
    assert_kept(Loaded(None, overrides=(given,), words=("extend", "r", URI)).command)


TLS = f"scheduler: 'tls://user:s3cr3t@localhost:1', tls: {{ca: a, cert: b, key: '{URI}'}}"
LOCAL = {
    "output.path": f"output.path={URI}",
    "compute.scratch": f"compute.scratch={URI}",
    "a chain": f"compute.scratch=simplecache::{URI}",
    "input.variants": f"input.variants={URI}",
    "compute.cluster.scheduler_file": f"compute.cluster={{scheduler_file: '{URI}'}}",
    "compute.cluster.tls.key": f"compute.cluster={{{TLS}}}",
}
"""Keys that name a file or a folder of this machine."""
ANYWHERE = {
    "preprocess.filters.variants": f"preprocess.filters.variants={URI}",
    "input.samples": f"input.samples={URI}",
    "input.sample_names": f"input.sample_names={{uri: '{URI}'}}",
    "preprocess.weights": f"preprocess.weights={{uri: '{URI}'}}",
    "preprocess.sample_weights": f"preprocess.sample_weights={{uri: '{URI}'}}",
    "preprocess.filters.mask": f"preprocess.filters.mask={{uri: '{URI}'}}",
    "covariates": f"preprocess.regress_out.covariates={{uri: '{URI}', columns: [a]}}",
    "by": f"preprocess.regress_out.by={{uri: '{URI}'}}",
    "by, a name": f"preprocess.regress_out.by={URI}",
    "output.groups": f"output.groups={{labels: {{uri: '{URI}'}}}}",
    "compute.cluster.scheduler": "compute.cluster={scheduler: 'tcp://user:s3cr3t@localhost/?sig=t0ken'}",
    "no such key": f"compute.no={URI}",
    "no value": URI,
    "twice": "input={uri: x.npy, storage_options: {key: hunter2, key: s3cr3t}}",
    "an alias": "input={uri: x.npy, storage_options: {key: *hunter2}}",
}
"""Other keys that name a place, and what is wrong with a value."""


@pytest.mark.parametrize("key", [*LOCAL, *ANYWHERE])
@pytest.mark.parametrize("command", [("run",), ("plan", "--json"), ("validate",), ("submit", "--dry-run")])
def test_a_key_shows_no_secret_where_it_is_wrong(key, command, capfd):
    """Also with the traceback; and no folder is made by the name of a URL."""
    np.save("x.npy", X)
    config(os.path.abspath("x.npy"))
    before = set(Path().iterdir())
    code = dpca(command[0], "c.yaml", *command[1:], "--debug", "--set", {**LOCAL, **ANYWHERE}[key])
    assert code == 2 or command[0] == "validate"
    shown = capfd.readouterr()
    assert_kept(shown.out, shown.err)
    if key in LOCAL:
        assert "is a URL, where only a path on this machine can be" in shown.err
        assert set(Path().iterdir()) == before


ARGUMENTS = [
    ("run", URI),
    ("status", URI),
    ("derive", "d.yaml", "--set", f"from={URI}"),
    ("derive", "d.yaml", "--set", f"output.path={URI}"),
    ("transform", "r", "x.npy", "--out", URI),
    ("transform", "r", "x.npy", "--out", "o", "--scheduler-file", URI),
    ("reconstruct", "r", "--out", URI),
    ("extend", "r", "x.npy", "--output", URI),
    ("report", "r", "--out", URI),
    ("export", "r", "--to", "csv", "--out", URI),
    ("demo", "--directory", URI),
    ("batch", "finalize", URI),
]


@pytest.mark.parametrize("command", ARGUMENTS, ids=" ".join)
def test_a_url_is_no_place_on_this_machine(command, capsys):
    Path("d.yaml").write_text("{from: r, analyses: [{name: a, model: {kind: pca}}], output: {path: d}}")
    assert dpca(*command, "--debug") == 2
    shown = capsys.readouterr()
    assert "is a URL, where only a path on this machine can be" in shown.err
    assert_kept(shown.out, shown.err)
    assert {path.name for path in Path().iterdir()} == {"d.yaml"}


@pytest.mark.parametrize("path", [URI, Path(URI)])
def test_a_url_is_no_place_of_a_fit(path):
    with pytest.raises(DpcaError, match="store is a URL") as caught:
        PCA(n_components=2, store=path).fit(X)
    with pytest.raises(DpcaError, match="path is a URL") as other:
        PCA(n_components=2).fit(X).save(path)
    with pytest.raises(DpcaError, match="the result is a URL") as third:
        open_gram(path)
    with pytest.raises(DpcaError, match="the result is a URL") as fourth:
        PCA.load(path)
    assert_kept(*(str(one.value) for one in (caught, other, third, fourth)))
    assert not list(Path().iterdir())


def test_a_config_that_is_begun_has_the_url_that_it_needs_but_names_no_folder_by_it(capsys):
    """It is the one place that credentials may stand in."""
    uri = "memory://user:s3cr3t@bucket"
    zarr.create_array(uri, data=X, overwrite=True)
    assert dpca("init", uri) == 0
    assert [line for line in capsys.readouterr().out.splitlines() if "s3cr3t" in line] == [f'  uri: "{uri}"']


def array_at(path, chunks):
    zarr.create_array(path, data=X, chunks=chunks)
    return zarr.open_array(path, mode="r")


def derive_config():
    Path("d.yaml").write_text("{from: r, analyses: [{name: a, model: {kind: pca}}], output: {path: d}}")
    return "d.yaml"


def fitted():
    pca = PCA(n_components=2, store="fits").fit(array_at("z.zarr", (6, 10)))
    pca.save("saved")
    return 0


def mapped():
    return 0 if open_gram("r", store="maps").pca(2).components() is not None else 1


WRITERS = {
    "run": lambda: dpca("run", "c.yaml", "--keep-ledger", "--set", "output.path=new"),
    "batch": lambda: dpca("batch", "init", "c.yaml", "--set", "output.path=b"),
    "transform": lambda: dpca("transform", "r", "x.npy", "--out", "t"),
    "reconstruct": lambda: dpca("reconstruct", "r", "--out", "t"),
    "derive": lambda: dpca("derive", derive_config()),
    "extend": lambda: dpca("extend", "r", "y.npy", "--output", "more"),
    "submit an array": lambda: dpca("submit", "c.yaml", "--set", "output.path=s"),
    "submit a job": lambda: dpca("submit", "c.yaml", "--as", "job", "--set", "output.path=s"),
    "a fit": fitted,
    "maps": mapped,
    **{
        f"export {to}": lambda to=to: dpca("export", "r", "--to", to, "--out", f"e.{to}")
        for to in ("csv", "npz", "hdf5", "netcdf", "anndata")
    },
}


@pytest.fixture
def umask():
    """Sets the mask of what this process makes."""
    before = os.umask(0o022)
    yield os.umask
    os.umask(before)


def a_run_to_write_from():
    np.save("x.npy", X)
    np.save("y.npy", X + 1)
    assert dpca("run", config("x.npy", "compute: {memory: 1 GiB}")) == 0


@pytest.mark.parametrize(
    ("name", "mask"), [*product(WRITERS, [0o000, 0o077]), *product(["run", "submit a job"], [0o002, 0o022])]
)
def test_what_is_written_is_not_for_everyone_to_write(sbatch, umask, name, mask):
    """Whatever the umask; and where that lets no one else read, no one else can."""
    made(a_run_to_write_from)
    before = set(Path().rglob("*"))
    umask(mask)
    assert WRITERS[name]() == 0
    written = [path for path in Path().rglob("*") if path not in before]
    inputs = ("x.npy", "y.npy", "z.zarr", "d.yaml")
    modes = {str(path): stat.S_IMODE(path.lstat().st_mode) for path in written if path.parts[0] not in inputs}
    assert modes
    assert {path: oct(mode) for path, mode in modes.items() if mode & (mask | 0o002)} == {}
    own = {path: oct(mode) for path, mode in modes.items() if Path(path).parts[0].endswith(".slurm")}
    assert set(own.values()) <= {"0o700", "0o600"}
    assert bool(own) == name.startswith("submit")


@pytest.mark.parametrize("mask", [0o000, 0o002, 0o022])
def test_a_copy_of_the_data_is_its_users_alone(umask, mask, monkeypatch):
    """In the directory for temporary files, where estimators make it, and wherever else one is made."""
    monkeypatch.setattr("tempfile.tempdir", os.getcwd())
    source = as_source(array_at("z.zarr", (2, 40)))
    umask(mask)
    scratch = Path(scratch_beside(None).path)
    assert copy_in(source.layout, (0,), (6, 10)).create(str(scratch))
    assert scratch.parent == Path.cwd()
    assert oct(stat.S_IMODE(scratch.stat().st_mode)) == "0o700"


def other_users(path):
    """A folder of another user."""
    if os.geteuid():
        pytest.skip("needs root, to make what another user owns")
    path.mkdir()
    os.chown(path, 12345, 12345)


def linked(path):
    Path("behind").mkdir()
    path.symlink_to(Path("behind").resolve())


@pytest.mark.parametrize("made", [other_users, linked])
@pytest.mark.parametrize("way", ["array", "job"])
def test_scripts_are_written_into_no_folder_of_others(sbatch, made, way, capsys):
    np.save("x.npy", X)
    config(os.path.abspath("x.npy"))
    made(Path("r.slurm"))
    assert dpca("submit", "c.yaml", "--as", way) == 2
    assert "where scripts and logs would be kept" in capsys.readouterr().err
    assert not list(Path("r.slurm").iterdir())
    assert not Path("r").exists()


def test_a_script_that_is_a_link_is_replaced_and_what_it_leads_to_is_not(sbatch):
    np.save("x.npy", X)
    config(os.path.abspath("x.npy"))
    Path("r.slurm").mkdir()
    Path("mine").write_text("mine")
    Path("r.slurm/job.sbatch").symlink_to(Path("mine").resolve())
    assert dpca("submit", "c.yaml", "--as", "job") == 0
    assert Path("mine").read_text() == "mine"
    assert not Path("r.slurm/job.sbatch").is_symlink()
    assert stat.S_IMODE(os.stat("r.slurm").st_mode) == 0o700


LINKS = [".lock", "ledger", "ledger/RUN", "ledger/RUN/parts", "ledger/RUN/result.zarr"]
LEFT = ["lock.1", ".x.partial", "inside/.x.partial", "0.npz", "run.json"]


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize(
    "command", [("run",), ("run", "--resume"), ("run", "--overwrite"), ("partition",), ("finalize",)]
)
def test_nothing_is_removed_behind_a_link(command, link, capsys):
    """In a result that someone else has made, or can write to."""
    np.save("x.npy", X)
    assert dpca("batch", "init", config("x.npy")) == 0
    (run,) = (path.name for path in Path("r/ledger").iterdir() if path.is_dir())
    place = Path("r", link.replace("RUN", run))
    Path("behind").mkdir()
    if place.exists():
        shutil.copytree(place, "behind", dirs_exist_ok=True)
        shutil.rmtree(place)
    for name in LEFT:
        Path("behind", name).parent.mkdir(exist_ok=True)
        Path("behind", name).touch()
    place.symlink_to(Path("behind").resolve())
    before = {path: path.stat().st_mtime_ns for path in Path("behind").rglob("*")}
    if command[0] == "run":
        assert dpca(*command, "c.yaml") == 2
    else:
        code = dpca("batch", command[0], "r", *("--index", "0") * (command[0] == "partition"))
        assert code == 2 or (command[0], link) == ("partition", ".lock")
    assert {path: path.stat().st_mtime_ns for path in Path("behind").rglob("*")} == before
    if (command[0], link) != ("partition", ".lock") and command != ("run",):
        assert f"{place}: is a link, where dpca writes and removes files" in capsys.readouterr().err


BREAK = "x\n#SBATCH --wrap=evil\nevil"
PLACES = ("input.uri", "model.labels.uri", "compute.scratch", "output.path")
OF_CLUSTERS = {
    "scheduler": f"{{scheduler: {json.dumps(BREAK)}}}",
    "scheduler_file": f"{{scheduler_file: {json.dumps(BREAK)}}}",
    "tls.key": f"{{scheduler: 'tls://localhost:1', tls: {{ca: a, cert: b, key: {json.dumps(BREAK)}}}}}",
    "slurm.queue": f"{{slurm: {{cores: 1, memory: 1 GiB, walltime: '10:00', maximum: 1, queue: {json.dumps(BREAK)}}}}}",
    "slurm_runner.interface": f"{{slurm_runner: {{workers: 1, memory: 1 GiB, interface: {json.dumps(BREAK)}}}}}",
}


@pytest.mark.parametrize("key", [*PLACES, *(f"compute.cluster.{key}" for key in OF_CLUSTERS)])
def test_a_line_break_in_a_config_is_refused_at_its_line(key, capsys):
    """It would begin a line of a script: an option of sbatch, or a command."""
    value = OF_CLUSTERS.get(key.removeprefix("compute.cluster."), json.dumps(BREAK))
    given = key if key in PLACES else "compute.cluster"
    assert dpca("submit", config("x.npy"), "--dry-run", "--set", f"{given}={value}") == 2
    shown = capsys.readouterr()
    assert f"{key} is {BREAK!r}, but text without control characters" in shown.err
    assert not shown.out
    Path("c.yaml").write_text(f"input: {{uri: x.npy}}\noutput:\n  path: {json.dumps(BREAK)}\n")
    assert dpca("validate", "c.yaml") == 2
    assert "c.yaml:3:9: output.path is" in capsys.readouterr().err


@pytest.mark.parametrize("way", ["job", "array"])
def test_a_line_break_reaches_no_script_by_another_way(way, capsys):
    np.save("x.npy", X)
    submit = ("submit", os.path.abspath(config(os.path.abspath("x.npy"))), "--as", way, "--dry-run")
    for flag in ("--sbatch", "--sbatch-array", "--sbatch-finalize", "--job-script-prologue"):
        assert dpca(*submit, flag, BREAK) == 2
    assert dpca(*submit, "--set", "model={n_components: 2,\n evil: 3}") == 2
    assert dpca(*submit, "--set", "model={n_components:\n 2}") == 0
    assert not [
        line for line in capsys.readouterr().out.splitlines() if line.startswith("#") and "n_components" in line
    ]
    os.mkdir(BREAK)
    os.chdir(BREAK)
    assert dpca(*submit) == 2
    assert "has control characters" in capsys.readouterr().err


@pytest.mark.parametrize(
    "command",
    [
        ("transform", "r", "x.npy", "--out", BREAK),
        ("transform", "r", BREAK, "--out", "o"),
        ("transform", "r", "x.npy", "--out", "o", "--training", BREAK),
        ("report", "r", "--labels", BREAK),
        ("report", "r", "--groups", BREAK),
        ("export", "r", "--to", "csv", "--out", BREAK),
        ("run", BREAK),
        ("inspect", BREAK),
        ("demo", "--directory", BREAK),
    ],
)
def test_a_line_break_on_the_command_line_is_refused(command, capsys):
    assert dpca(*command) == 2
    assert f"{BREAK!r} has control characters" in capsys.readouterr().err


class Asked(http.server.BaseHTTPRequestHandler):
    """Answers every request with 404, and notes it."""

    def do_GET(self):
        self.server.seen.append(self.path)
        self.send_error(404)

    do_HEAD = do_GET

    def log_message(self, *_):
        pass


@pytest.fixture
def network():
    """The address of a server on this machine, which nobody may ask."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Asked) as server:
        server.seen = []
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()
        assert not server.seen


def a_pca():
    np.save("x.npy", X)
    assert dpca("run", config("x.npy")) == 0


def a_kernel_pca():
    np.save("x.npy", X)
    assert (
        dpca(
            "run",
            config("x.npy"),
            "--set",
            "model={n_components: 2, kind: kernel_pca, kernel: rbf, fit_inverse_transform: true}",
        )
        == 0
    )


def rewritten(change):
    """Change the config that a manifest records."""
    manifest = json.loads(Path("r/manifest.json").read_text())
    change(manifest["config"])
    Path("r/manifest.json").write_text(json.dumps(manifest))


DERIVE = "from: r\nanalyses: [{name: a, model: {kind: pca, n_components: 1}}]\noutput: {path: d}\n"
READ_AGAIN = {
    "transform of a kernel": (a_kernel_pca, ("transform", "r", "new.npy", "--out", "t.zarr")),
    "reconstruct of a kernel": (a_kernel_pca, ("reconstruct", "r", "--out", "t.zarr")),
    "derive with maps": (a_pca, ("derive", "d.yaml")),
    "plan of derive": (a_pca, ("derive", "d.yaml", "--plan")),
    "extend": (a_pca, ("extend", "r", "new.npy", "--output", "e")),
    "plan of extend": (a_pca, ("extend", "r", "new.npy", "--output", "e", "--plan")),
}
"""Commands that read the data of a result again."""
PLACES_OF_OTHERS = ("http://{}/x.zarr", "reference::http://{}/x.json", "simplecache::http://{}/x.zarr")


@pytest.mark.parametrize("place", PLACES_OF_OTHERS)
@pytest.mark.parametrize("command", READ_AGAIN)
def test_a_url_is_not_asked_because_a_result_names_it(network, command, place, capsys):
    make, call = READ_AGAIN[command]
    made(make)
    np.save("new.npy", X + 1)
    Path("d.yaml").write_text(DERIVE)
    rewritten(lambda found: found["input"].update(uri=place.format(network)))
    assert dpca(*call) in (1, 2)
    assert "only a path is read because a result names it" in capsys.readouterr().err


@pytest.mark.parametrize("command", READ_AGAIN)
def test_a_place_that_the_caller_names_is_read(command):
    make, call = READ_AGAIN[command]
    made(make)
    np.save("new.npy", X + 1)
    Path("d.yaml").write_text(f"{DERIVE}data: {os.path.abspath('x.npy')}\n")
    rewritten(lambda found: found["input"].update(uri="http://127.0.0.1:1/x.zarr"))
    named = {
        "transform": ("--training", "x.npy"),
        "reconstruct": ("--training", "x.npy"),
        "extend": ("--data", "x.npy"),
    }
    assert dpca(*call, *named.get(call[0], ())) == 0


COMPUTE_OF_OTHERS = {
    "prologue": {
        "slurm": {"cores": 1, "memory": 2**30, "walltime": "10:00", "maximum": 1, "job_script_prologue": ["touch run"]}
    },
    "scheduler": {"scheduler": "tcp://{}"},
}


@pytest.mark.parametrize("what", COMPUTE_OF_OTHERS)
@pytest.mark.parametrize("plan", [(), ("--plan",)])
def test_how_to_compute_is_not_taken_from_a_result(network, what, plan):
    """A prologue is run by a shell, and Dask unpickles what a scheduler sends."""
    made(a_pca)
    np.save("new.npy", X + 1)
    cluster = json.loads(json.dumps(COMPUTE_OF_OTHERS[what]).replace("{}", network))
    rewritten(lambda found: found["compute"].update(cluster=cluster))
    assert dpca("extend", "r", "new.npy", "--output", "e", *plan) == 0
    if not plan:
        assert open_result("e").manifest["config"]["compute"]["cluster"] == "local"


def test_a_job_imports_nothing_from_the_folder_that_it_is_started_in(capsys):
    np.save("x.npy", X)
    assert dpca("submit", config("x.npy"), "--as", "job", "--dry-run") == 0
    script = capsys.readouterr().out.partition("\n")[2]
    for module in ("numpy", "dask", "zarr", "json"):
        Path(f"{module}.py").write_text("open('imported', 'w')")
    subprocess.run(["bash", "-c", script], check=True, capture_output=True)
    assert not Path("imported").exists()
    assert open_result("r").n_components == 2


@pytest.fixture
def in_time():
    """Fails a test that waits: a pipe has no other end here, and a device no end at all."""

    def late(*_):
        raise AssertionError("it waits")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(30)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def inputs_of_every_kind():
    """Data, and all that a configuration can name beside them, for six samples of forty features."""
    np.save("x.npy", X)
    zarr.create_group("x.zarr").create_array("x", data=X)
    with h5py.File("x.h5", "w") as file:
        file["x"] = X
    netcdf3("x.nc", 1, {"time": None, "x": 40}, {"x": (("time", "x"), X, {})}, len(X))
    Path("names.txt").write_text("".join(f"{row}\n" for row in "abcdef"))
    Path("table.csv").write_text("id,value\n" + "".join(f"{row},{at}\n" for at, row in enumerate("abcdef")))
    Path("samples.txt").write_text("0\n1\n2\n3\n")
    np.save("weights.npy", np.ones(40))
    np.save("sample_weights.npy", np.ones(6))
    np.save("mask.npy", np.ones(40, bool))
    header = "id,chromosome,position,counted,other\n"
    Path("variants.csv").write_text(header + "".join(f"v{at},1,{at + 1},A,C\n" for at in range(40)))
    Path("ids.txt").write_text("".join(f"v{at}\n" for at in range(40)))
    write_plink(cohort(n=6, d=40, special=False), "g")


BED = ("input.uri=g.bed", "preprocess={scale: {binomial: plink2}}")
NAMED: dict[str, tuple[str, ...]] = {
    "x.npy": (),
    "x.h5": ("input.uri=x.h5",),
    "x.nc": ("input.uri=x.nc",),
    "x.zarr/zarr.json": ("input={uri: x.zarr, array: x}",),
    "x.zarr/x/zarr.json": ("input={uri: x.zarr, array: x}",),
    "x.zarr/x/c/0/0": ("input={uri: x.zarr, array: x}",),
    "g.bed": BED,
    "g.bim": BED,
    "g.fam": BED,
    "names.txt": ("input.sample_names={uri: names.txt}",),
    "table.csv": ("model.labels={uri: table.csv, column: id}",),
    "samples.txt": ("input.samples=samples.txt",),
    "weights.npy": ("preprocess.weights={uri: weights.npy}",),
    "sample_weights.npy": ("preprocess.sample_weights={uri: sample_weights.npy}",),
    "mask.npy": ("preprocess.filters.mask={uri: mask.npy}",),
    "variants.csv": ("input.variants=variants.csv",),
    "ids.txt": ("input.variants=variants.csv", "preprocess.filters.variants=ids.txt"),
    "covariates": (
        "input.sample_names={uri: names.txt}",
        "preprocess.regress_out.covariates={uri: table.csv, columns: [value]}",
    ),
    "c.yaml": (),
    "scheduler.json": ("compute.cluster={scheduler_file: scheduler.json}",),
}
"""Files that a run reads, with the keys that name them."""
NO_FILE: dict[str, object] = {
    "pipe": os.mkfifo,
    "device": lambda path: os.symlink("/dev/zero", path),
    "holes": lambda path: (Path(path).touch(), os.truncate(path, 2**36)),
}


@pytest.mark.parametrize("kind", NO_FILE)
@pytest.mark.parametrize("name", NAMED)
def test_what_is_no_file_of_its_kind_is_refused_at_once(in_time, name, kind, capsys):
    made(inputs_of_every_kind)
    config("x.npy")
    path = {"covariates": "table.csv"}.get(name, name)
    Path(path).unlink(missing_ok=True)
    NO_FILE[kind](path)
    assert dpca("run", "c.yaml", *(word for key in NAMED[name] for word in ("--set", key))) in (1, 2)
    shown = capsys.readouterr().err
    assert path in shown or path.rpartition("/")[2] in shown, shown
    assert "defect" not in shown


OF_RESULTS = (
    "manifest.json",
    "certificate.json",
    "status.json",
    "result.zarr/zarr.json",
    "result.zarr/scores/zarr.json",
    "ledger/run.json",
)
READING = (
    ("report", "r"),
    ("status", "r"),
    ("transform", "r", "x.npy", "--out", "t.zarr"),
    ("reconstruct", "r", "--out", "t.zarr"),
    ("export", "r", "--to", "csv", "--out", "e.csv"),
    ("extend", "r", "new.npy", "--output", "e"),
    ("run", "c.yaml", "--resume"),
    ("run", "c.yaml", "--set", "output.path=s", "--from-gram", "r"),
)


def a_finished_run():
    np.save("x.npy", X)
    np.save("new.npy", X + 1)
    assert dpca("run", config("x.npy"), "--keep-ledger") == 0


@pytest.mark.parametrize("kind", ["pipe", "device", "holes", "deep"])
@pytest.mark.parametrize("name", OF_RESULTS)
def test_documents_of_results_that_are_none_are_not_waited_for(in_time, name, kind, capsys):
    """Every command that reads a result answers, with an error or from what it does not need."""
    made(a_finished_run)
    Path("r", name).unlink()
    if kind == "deep":
        Path("r", name).write_text("[" * 200_000)
    else:
        NO_FILE[kind](Path("r", name))
    for call in READING:
        assert dpca(*call) in (0, 1, 2), call
        assert "defect" not in capsys.readouterr().err, call
        for made_by in ("t.zarr", "e", "s"):
            shutil.rmtree(made_by, ignore_errors=True)
        Path("e.csv").unlink(missing_ok=True)


@pytest.mark.parametrize("written", ["as it was", "as many as it would have"])
@pytest.mark.parametrize("name", ["scores", "components"])
def test_an_array_of_a_result_that_claims_to_be_large_takes_no_memory(name, written):
    """Its metadata and the manifest agree, and its chunks are not there."""
    made(a_finished_run)
    long = 2**31
    for path in (Path("r/result.zarr/zarr.json"), Path(f"r/result.zarr/{name}/zarr.json")):
        document = json.loads(path.read_text())
        metadata = (
            document["consolidated_metadata"]["metadata"][name] if path.parent.name == "result.zarr" else document
        )
        metadata["shape"][-1 if name == "components" else 0] = long
        path.write_text(json.dumps(document))
    manifest = json.loads(Path("r/manifest.json").read_text())
    entry = manifest["arrays"][name]
    entry["array"]["shape"] = metadata["shape"]
    if written != "as it was":
        entry["chunks_written"] = -(-long // entry["array"]["chunks"][-1 if name == "components" else 0])
    Path("r/manifest.json").write_text(json.dumps(manifest))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(DpcaError, match=f"its {name} has 1 chunks, but an array of shape"):
        PCA.load("r")
    for call in READING:
        if call[0] in ("transform", "reconstruct") or (call[0] == "export" and name == "scores"):
            assert dpca(*call) == 2
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2**18  # KiB


ESCAPES = {
    "title": "\x1b]0;mine\x07",
    "clipboard": "\x1b]52;c;ZWNobw==\x07",
    "one sign": "\x9b2J",
    "right to left": "\u202egnp.x",
}


@pytest.mark.parametrize("escape", ESCAPES)
def test_texts_of_others_are_printable(escape, capsys):
    """Names in files, headers of tables, and a status: on both streams of every command that shows them."""
    text = ESCAPES[escape]
    with h5py.File("x.h5", "w") as file:
        file[f"a{text}"], file[f"b{text}"] = X, X
    assert dpca("inspect", "x.h5") == 0
    assert dpca("run", config("x.h5")) == 2
    made(a_finished_run)
    Path("table.csv").write_text(f"id,{text}\n" + "".join(f"{row},1\n" for row in "abcdef"))
    assert dpca("run", "c.yaml", "--overwrite", "--set", "model.labels={uri: table.csv, column: no}") == 2
    status = json.loads(Path("r/status.json").read_text())
    Path("r/status.json").write_text(json.dumps({**status, "state": "failed", "message": f"m{text}", "stage": text}))
    dpca("status", "r")
    certificate = json.loads(Path("r/certificate.json").read_text())
    Path("r/certificate.json").write_text(json.dumps({**certificate, "verdict": f"v{text}"}))
    dpca("export", "r", "--to", "csv", "--out", "e.csv")
    shown = capsys.readouterr()
    assert "a" + ascii(text)[1:5] in shown.out + shown.err
    assert not [sign for sign in shown.out + shown.err if not sign.isprintable() and sign not in "\n\t"]


@pytest.mark.parametrize(
    "uri", ["github://org:repo@main/x.zarr", "simplecache::dask::file://x.zarr", "data:,x://x", "jupyter://x/y.zarr"]
)
def test_a_protocol_that_is_of_no_files_is_refused(uri, capsys):
    assert dpca("run", config(json.dumps(uri))) == 2
    assert "has the protocol" in capsys.readouterr().err


def test_a_pipe_in_place_of_a_part_is_not_waited_for(in_time, capsys):
    layout = h5py.VirtualLayout(X.shape, "f8")
    layout[:] = h5py.VirtualSource("part.h5", "x", X.shape)
    with h5py.File("x.h5", "w") as file:
        file.create_virtual_dataset("x", layout)
    os.mkfifo("part.h5")
    assert dpca("run", config("x.h5")) == 2
    assert "part.h5: not readable as HDF5" in capsys.readouterr().err


@pytest.mark.parametrize("there", ["x.npy", "r/manifest.json", "r/result.zarr/zarr.json", "other.html"])
def test_a_report_and_an_export_replace_nothing_of_others(there, capsys):
    made(a_finished_run)
    Path("other.html").write_text("<!doctype html><title>mine</title>")
    before = Path(there).read_bytes()
    for call in (("report", "r"), ("export", "r", "--to", "npz")):
        assert dpca(*call, "--out", there) == 2
        if there.startswith("r/"):
            assert dpca(*call, "--out", there, "--overwrite") == 2
            assert "is a part of the result" in capsys.readouterr().err
    assert Path(there).read_bytes() == before


def test_an_output_that_is_replaced_is_whole_at_every_step(monkeypatch):
    """Stopped anywhere, what has its name is the old one or the new one, and the same command ends well."""
    made(a_finished_run)
    np.save("more.npy", X * 2)
    expected = []
    for data, out in (("x.npy", "t.zarr"), ("more.npy", "n.zarr")):
        assert dpca("transform", "r", data, "--out", out) == 0
        expected.append(zarr.open_array(f"{out}/scores")[...])
    for at in range(20):
        steps = iter(range(1000))

        def stopped(original, steps=steps, at=at):
            def step(*arguments):
                of_output = any(str(one).endswith(("t.zarr", "replaced")) for one in arguments)
                if of_output and next(steps) == at:
                    raise KeyboardInterrupt
                return original(*arguments)

            return step

        with monkeypatch.context() as patch:
            for name in ("rename", "unlink", "remove_tree", "remove_directory"):
                patch.setattr(durable.Disk, name, stopped(getattr(durable.Disk, name)))
            ended = dpca("transform", "r", "more.npy", "--out", "t.zarr", "--overwrite")
        if Path("t.zarr").exists():
            scores = zarr.open_array("t.zarr/scores")[...]
            assert any(np.array_equal(scores, known) for known in expected)
        if ended == 0:
            break
        assert dpca("transform", "r", "x.npy", "--out", "t.zarr", "--overwrite") == 0
        np.testing.assert_array_equal(zarr.open_array("t.zarr/scores")[...], expected[0])
    assert ended == 0
    assert at >= 3
