"""Nothing is read outside of the folder of the data, by links, parts of virtual datasets or names; and none is written there."""

import os
import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest
import zarr

from dpca.errors import DpcaError, StorageError
from dpca.sources import as_source, open_source
from dpca.store.results import open_result
from tests.commands.calls import dpca
from tests.safety.common import X, config


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
