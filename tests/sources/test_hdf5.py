import io
import pickle
import random
from pathlib import Path

import anndata
import fsspec
import h5py
import numpy as np
import pandas as pd
import pytest
import scipy.sparse

from dpca import PCA, KernelPCA
from dpca.errors import DataError, InputError, StorageError
from dpca.sources import as_source, open_source
from dpca.sources.cf import netcdf_fill
from tests.commands.calls import dpca
from tests.sources.test_zarr_array import whole
from tests.stores import random_array


@pytest.fixture
def file(tmp_path):
    with h5py.File(tmp_path / "f.h5", "w") as opened:
        yield opened


def test_the_only_wide_dataset_needs_no_name_and_others_are_listed(file):
    file["run/field"] = np.zeros((3, 4))
    file["run/time"] = np.zeros(3)
    file.close()
    assert open_source("f.h5").layout.name == "f.h5:run/field"
    assert open_source("f.h5", "/run/field").layout.shape == (3, 4)
    with pytest.raises(InputError, match=r"f\.h5: has no array 'field'; it holds run/field \(3, 4\), run/time \(3,\)"):
        open_source("f.h5", "field")
    with h5py.File("f.h5", "a") as opened:
        opened["other"] = np.zeros((2, 2))
    with pytest.raises(InputError, match=r"which array\? It holds other \(2, 2\)"):
        open_source("f.h5")


def test_chunks_that_were_never_written_are_counted(file):
    data = file.create_dataset("x", (4, 12), "f4", chunks=(4, 3), fillvalue=5, compression="gzip")
    data[:, 3:6] = 1
    file.close()
    values, absent = whole(open_source("f.h5"))
    assert absent == 3
    assert (values[:, :3] == 5).all()
    with pytest.raises(DataError, match=r"f\.h5:x: chunk \(0, 0\) was never written"):
        whole(open_source("f.h5", absent_chunks="error"))


def test_a_contiguous_dataset_without_storage_is_one_absent_chunk(file):
    file.create_dataset("x", (4, 12), "f4")
    file.close()
    assert whole(open_source("f.h5"))[1] == 1
    with pytest.raises(DataError, match="never written"):
        whole(open_source("f.h5", absent_chunks="error"))


def test_a_chunk_that_fails_to_decode_is_named(file, tmp_path):
    data = file.create_dataset("x", data=np.arange(48.0).reshape(4, 12), chunks=(2, 3), compression="gzip")
    offset = data.id.get_chunk_info_by_coord((2, 6)).byte_offset
    file.close()
    with open(tmp_path / "f.h5", "r+b") as raw:
        raw.seek(offset)
        raw.write(b"\xff" * 16)
    with pytest.raises(StorageError, match=r"f\.h5:x: chunk \(1, 2\), region \[2:4, 6:9\]"):
        whole(open_source("f.h5"))


def test_a_virtual_dataset_whose_file_is_gone_is_an_error_and_not_fill_values(tmp_path):
    with h5py.File(tmp_path / "part.h5", "w") as part:
        part["x"] = np.ones((2, 5))
    layout = h5py.VirtualLayout((2, 5), "f8")
    layout[:] = h5py.VirtualSource("part.h5", "x", (2, 5))
    with h5py.File(tmp_path / "v.h5", "w") as virtual:
        virtual.create_virtual_dataset("x", layout)
    assert (whole(open_source("v.h5"))[0] == 1).all()
    (tmp_path / "part.h5").unlink()
    with pytest.raises(InputError, match=r"source file part\.h5 is absent"):
        open_source("v.h5")


def test_netcdf_dimensions_and_coordinates(file):
    data = file.create_dataset("sst", data=np.zeros((3, 4)))
    file["time"] = np.array([1.0, 2.0, 3.0])
    file["time"].attrs["units"] = np.bytes_("days since 1990-01-01")
    file["time"].make_scale("time")
    file["cell"] = np.zeros(4)
    file["cell"].make_scale("This is a netCDF dimension but not a netCDF variable.         4")
    data.dims[0].attach_scale(file["time"])
    data.dims[1].attach_scale(file["cell"])
    data.attrs["_FillValue"] = np.array([-9e9])
    source = as_source(data)
    assert source.layout.dims == ("time", "cell")
    assert source.layout.missing_values == (-9e9,)
    with source.open() as reader:
        assert reader.coordinate(0).attributes == {"units": "days since 1990-01-01"}
        np.testing.assert_array_equal(reader.coordinate(0).values[:2], [1, 2])
        assert reader.coordinate(1) is None


def test_a_virtual_dataset_has_the_chunks_of_what_is_behind_it():
    with h5py.File("all.h5", "w") as file:
        stacked, joined, odd = (h5py.VirtualLayout(shape, "f4") for shape in ((3, 1000), (6, 400), (3, 10)))
        for index in range(3):
            with h5py.File(f"{index}.h5", "w") as part:
                part.create_dataset("row", data=np.arange(1000, dtype="f4"), chunks=(200,), compression="gzip")
                part.create_dataset("block", data=np.ones((2, 400), "f4"), chunks=(1, 400), compression="gzip")
            stacked[index] = h5py.VirtualSource(f"{index}.h5", "row", (1000,))
            joined[2 * index : 2 * index + 2] = h5py.VirtualSource(f"{index}.h5", "block", (2, 400))
            odd[index] = h5py.VirtualSource(f"{index}.h5", "row", (1000,))[5 * index : 5 * index + 10]
        for name, layout in {"stacked": stacked, "joined": joined, "odd": odd}.items():
            file.create_virtual_dataset(name, layout)
    found = {name: open_source("all.h5", name).layout for name in ("stacked", "joined", "odd")}
    assert found["stacked"].chunks == (1, 200)
    assert found["joined"].chunks == (1, 400)
    assert "deflate" in found["joined"].codec
    with open_source("all.h5", "stacked").open() as reader:
        np.testing.assert_array_equal(reader.read((slice(0, 3), slice(100, 300)))[2], np.arange(100, 300))


@pytest.mark.parametrize("of", ["itself", "itself by name", "each other", "each other in files", "a long row"])
def test_a_virtual_dataset_that_is_a_part_of_itself_is_an_error(of):
    """HDF5 would follow it until the stack ends, and take the process with it."""

    def virtual(file, name, part, path="."):
        layout = h5py.VirtualLayout((6, 40), "f8")
        layout[:] = h5py.VirtualSource(path, part, (6, 40))
        file.create_virtual_dataset(name, layout)

    with h5py.File("x.h5", "w") as file, h5py.File("y.h5", "w") as other:
        if of == "a long row":
            for number in range(40):
                virtual(file, "x" if number == 0 else str(number), str(number + 1))
            file["40"] = np.zeros((6, 40))
        else:
            part, path = {
                "each other": ("y", "."),
                "each other in files": ("y", "y.h5"),
                "itself by name": ("x", "x.h5"),
            }.get(of, ("x", "."))
            virtual(file, "x", part, path)
            virtual({".": file}.get(path, other), "y", "x", "." if path == "." else "x.h5")
    with pytest.raises(InputError, match=r"x\.h5:/.*: is a virtual dataset that is a part of (itself|more than 16)"):
        open_source("x.h5", "x")
    with h5py.File("x.h5") as file, pytest.raises(InputError, match="is a virtual dataset that is a part of"):
        as_source(file["x"])


def test_a_virtual_dataset_of_virtual_ones_is_read():
    with h5py.File("x.h5", "w") as file:
        file["a"] = np.arange(240.0).reshape(6, 40)
        for name, part in (("b", "a"), ("c", "b")):
            layout = h5py.VirtualLayout((12, 40), "f8")
            for half in (slice(0, 6), slice(6, 12)):
                layout[half] = h5py.VirtualSource(".", part, (12 if part == "b" else 6, 40))[:6]
            file.create_virtual_dataset(name, layout)
    np.testing.assert_array_equal(whole(open_source("x.h5", "c"))[0], np.tile(np.arange(240.0).reshape(6, 40), (2, 1)))


def test_a_virtual_dataset_without_its_part_is_an_error():
    with h5py.File("x.h5", "w") as file:
        layout = h5py.VirtualLayout((6, 40), "f8")
        layout[:] = h5py.VirtualSource(".", "gone", (6, 40))
        file.create_virtual_dataset("x", layout)
    with pytest.raises(InputError, match=r"x\.h5:/x: is a virtual dataset, and its source x\.h5:gone is absent"):
        open_source("x.h5", "x")


def test_compressed_names_of_any_length_are_read():
    with h5py.File("n.h5", "w") as file:
        file.create_dataset("x", data=np.eye(2, 100))
        names = [f"n{number}" for number in range(100)]
        file.create_dataset("gene", data=names, dtype=h5py.string_dtype(), chunks=(50,), compression="gzip")
        file["gene"].make_scale("gene")
        file["x"].dims[1].attach_scale(file["gene"])
    with open_source("n.h5", "x").open() as reader:
        assert list(reader.coordinate(1).values[40:60]) == names[40:60]


def shorter(**how):
    """A netCDF-4 file whose variable v ends after 10 of 15 times; its values, with NaN for the others."""
    values = np.arange(60).reshape(10, 6)
    with h5py.File("x.nc", "w") as file:
        file.create_dataset("time", data=np.arange(15.0), maxshape=(None,), chunks=(8,))
        file["time"].attrs["units"] = "days since 2000-01-01"
        file["time"].make_scale("time")
        attributes = how.pop("attributes", {})
        for name, length in (("v", 10), ("w", 15)):
            file.create_dataset(name, (length, 6), maxshape=(None, 6), **{"dtype": "f4", "chunks": (4, 5), **how})
            file[name].dims[0].attach_scale(file["time"])
            file[name].attrs.update(attributes)
        file["v"][...] = values
    return np.concatenate([values, np.full((5, 6), np.nan)])


SHORTER = {
    "not compressed": {},
    "gzip": {"compression": "gzip"},
    "scattered": {"chunks": (15, 1)},
    "integers": {"dtype": "i2", "attributes": {"_FillValue": np.int16(-5)}},
    "integers that netCDF fills": {"dtype": "i4", "fillvalue": -2147483647},
    "packed": {"dtype": "i2", "attributes": {"_FillValue": np.int16(-5), "scale_factor": 1.0}},
}


@pytest.mark.parametrize("how", SHORTER)
def test_a_variable_has_the_length_of_its_unlimited_dimension_and_what_is_beyond_is_missing(how):
    expected, draw = shorter(**SHORTER[how]), random.Random(0)
    source = open_source("x.nc", "v")
    assert source.layout.shape == (15, 6)
    with source.open() as reader:
        np.testing.assert_array_equal(reader.coordinate(0).values[...], np.arange(15))
        for _ in range(20):
            region = tuple(slice(*sorted((draw.randint(0, n), draw.randint(0, n)))) for n in (15, 6))
            reader.will_read([region])
            found = reader.read(region).astype("f8")
            found[source.layout.marked(found)] = np.nan
            np.testing.assert_array_equal(found, expected[region])


def test_a_variable_is_refused_where_nothing_can_stand_for_what_is_beyond_it(capsys):
    shorter(dtype="i2")
    with pytest.raises(
        InputError, match=r"x\.nc:v: it holds 10 of the 15 entries along its unlimited dimension 'time', and"
    ):
        open_source("x.nc", "v")
    expected = shorter()
    assert dpca("inspect", "x.nc", "--array", "v") == 0
    assert "it holds 10 of the 15 entries" in capsys.readouterr().out
    Path("c.yaml").write_text("input: {uri: x.nc, array: v}\nmodel: {n_components: 2}\noutput: {path: r}\n")
    assert dpca("run", "c.yaml") != 0
    assert "missing" in capsys.readouterr().err
    # A dataset in Python is as long as it says.
    with h5py.File("x.nc") as file:
        np.testing.assert_array_equal(whole(as_source(file["v"]))[0], expected[:10])


@pytest.mark.parametrize("dtype", ["f4", "f8", "i2", "i4"])
def test_chunks_that_netcdf_never_wrote_are_missing(dtype, capsys):
    """Where a file names no _FillValue, netCDF sets the fill value of HDF5 to its own (netcdf.h)."""
    with h5py.File("x.nc", "w") as file:
        data = file.create_dataset("v", (6, 40), dtype, chunks=(6, 20), fillvalue=netcdf_fill(np.dtype(dtype)))
        data[:, :20] = random_array(0, (6, 20), dtype)
        file["w"], file["w"].attrs["_FillValue"] = data[...], np.array([-9], dtype)
    layout = open_source("x.nc", "v").layout
    assert layout.marked(whole(open_source("x.nc", "v"))[0]).sum() == 120
    assert not open_source("x.nc", "w").layout.marked(whole(open_source("x.nc", "w"))[0]).any()
    Path("c.yaml").write_text("input: {uri: x.nc, array: v}\nmodel: {n_components: 2}\noutput: {path: r}\n")
    assert dpca("run", "c.yaml") == 2
    assert "120 missing values" in capsys.readouterr().err
    assert dpca("run", "c.yaml", "--overwrite", "--set", "preprocess.missing=mean") == 0
    assert PCA.load("r").explained_variance_[0] < 1e6


X = random_array(0, (8, 300), "f8")
WITHOUT_A_FILE = {
    "in memory": lambda: h5py.File(io.BytesIO(), "w"),
    "by the driver core": lambda: h5py.File("x.h5", "w", driver="core", backing_store=False),
    "of another file's name": lambda: (Path("x.h5").write_bytes(b"mine"), h5py.File("x.h5", "w", driver="core", backing_store=False))[1],
    "of fsspec": lambda: h5py.File(fsspec.open("memory://x.h5", "wb+").open(), "w"),
    "in parts": lambda: h5py.File("x%d.h5", "w", driver="family", memb_size=4096),
    "in two": lambda: h5py.File("x", "w", driver="split"),
}  # fmt: skip


@pytest.mark.parametrize("how", WITHOUT_A_FILE)
@pytest.mark.parametrize("filters", [{}, {"chunks": (8, 100), "compression": "gzip"}])
def test_an_open_dataset_needs_no_file_of_its_name(how, filters):
    with WITHOUT_A_FILE[how]() as file:
        dataset = file.create_dataset("x", data=X, **filters)
        np.testing.assert_array_equal(whole(as_source(dataset))[0], X)
        fitted = PCA(2).fit(dataset)
        np.testing.assert_allclose(fitted.transform(dataset), PCA(2).fit_transform(X), atol=1e-8)
        np.testing.assert_allclose(KernelPCA(2).fit(dataset).eigenvalues_[0], fitted.singular_values_[0] ** 2)
        with pytest.raises(InputError, match=r"the h5py dataset /x: its file is open in this process alone"):
            pickle.dumps(as_source(dataset))
        fitted.save("r")
    np.testing.assert_array_equal(PCA.load("r").singular_values_, fitted.singular_values_)


def test_a_matrix_of_anndata_needs_no_file_either():
    made = anndata.AnnData(scipy.sparse.csr_matrix(X), pd.DataFrame(index=[f"cell {number}" for number in range(8)]))
    made.write_h5ad("x.h5ad")
    with h5py.File(io.BytesIO(Path("x.h5ad").read_bytes())) as file, as_source(file["X"]).open() as reader:
        assert reader.coordinate(0).values[1:2].tolist() == ["cell 1"]


def test_an_empty_dataset_is_refused(capsys):
    with h5py.File("x.h5", "w") as file:
        file["x"] = h5py.Empty("f4")
        with pytest.raises(InputError, match=r"x\.h5:x: is an empty dataset \(h5py\.Empty\), without any axis"):
            PCA(2).fit(file["x"])
        file["y"] = X
    assert dpca("inspect", "x.h5", "--array", "x") == 2
    assert dpca("inspect", "x.h5") == 0
    Path("c.yaml").write_text("input: {uri: x.h5}\nmodel: {labels: {uri: x.h5, array: x}}\noutput: {path: r}\n")
    assert dpca("run", "c.yaml") == 2
    assert "it is empty (h5py.Empty)" in capsys.readouterr().err


def test_a_file_of_matlab_is_hdf5_behind_a_block_of_its_own(capsys):
    with h5py.File("x.mat", "w", userblock_size=512) as file:
        file["x"], file["names"] = X, np.arange(8.0)
        file["x"].attrs["MATLAB_class"] = np.bytes_("double")
    with open("x.mat", "r+b") as raw:
        raw.write(b"MATLAB 7.3 MAT-file, Platform: GLNXA64, Created on: Thu Nov 26".ljust(124) + b"\0\2IM")
    assert dpca("inspect", "x.mat") == 0
    assert "8 x 300 float64" in capsys.readouterr().out
    Path("c.yaml").write_text(
        "input: {uri: x.mat, array: x}\nmodel: {n_components: 2, labels: {uri: x.mat, array: names}}\noutput: {path: r}\n"
    )
    assert dpca("run", "c.yaml") == 0
    np.testing.assert_allclose(PCA.load("r").singular_values_, PCA(2).fit(X).singular_values_)
