import h5py
import numpy as np
import pytest

from dpca.errors import DataError, InputError, StorageError
from dpca.sources import as_source, open_source
from tests.sources.test_zarr_array import whole


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
