import numpy as np
import pytest

from dpca.errors import InputError, StorageError
from dpca.sources import open_source
from tests.sources.test_zarr_array import whole


def test_a_truncated_file_is_an_error_and_not_zeros(tmp_path):
    np.save("x.npy", np.ones((10, 100)))
    with open("x.npy", "r+b") as file:
        file.truncate(5000)
    with pytest.raises(StorageError, match=r"x\.npy: the file ends at byte 5000"):
        whole(open_source("x.npy"))


def test_a_damaged_header_is_an_error():
    with open("x.npy", "wb") as file:
        file.write(b"\x93NUMPY\x01\x00\x10\x00{'descr': oh no}")
    with pytest.raises(InputError, match=r"x\.npy: its \.npy header can't be read"):
        open_source("x.npy")


def test_a_file_is_an_array_without_arrays_inside():
    np.save("x.npy", np.ones((2, 3)))
    with pytest.raises(InputError, match="is itself an array"):
        open_source("x.npy", "a")
