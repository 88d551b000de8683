import contextlib
import random
from pathlib import Path

import numpy as np
import pytest

from dpca.errors import DpcaError, InputError, StorageError
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


HEADER = b"{'descr': '<f8', 'fortran_order': False, 'shape': (6, 40), }"


@pytest.mark.parametrize(
    "header",
    [
        HEADER.replace(b"(6, 40)", b"(-6, 40)"),
        HEADER.replace(b"(6, 40)", b"(6, '40')"),
        HEADER.replace(b"'<f8'", b"[]"),
        HEADER.replace(b"'<f8'", b"[('a', 3)]"),
        HEADER.replace(b"'<f8'", b"1" * 5000),
        HEADER.replace(b"'shape'", b"'\\N'"),
        HEADER.replace(b"}", b"("),
        HEADER.replace(b"'<f8'", b"[" * 3000),
        HEADER.replace(b"'<f8'", b"{}: 3"),
        b"",
        b"\0" * 40,
        b"\xff" * 40,
    ],
)
@pytest.mark.parametrize("version", [1, 2])
def test_whatever_is_no_header_is_an_error(header, version):
    length = len(header).to_bytes(2 * version, "little")
    Path("x.npy").write_bytes(b"\x93NUMPY" + bytes([version, 0]) + length + header + bytes(1920))
    with pytest.raises(InputError, match=r"x\.npy: (its \.npy header can't be read|values are of dtype)"):
        open_source("x.npy")


def test_changed_headers_are_errors_or_arrays():
    draw = random.Random(0)
    for _ in range(300):
        content = bytearray(b"\x93NUMPY\x01\0v\0" + HEADER.ljust(117) + b"\n" + bytes(1920))
        for _ in range(draw.choice((1, 2, 4))):
            content[draw.randrange(6, 75)] = draw.choice((0, 255, draw.randrange(256), *b"()[]{}',: 09-\\#"))
        Path("x.npy").write_bytes(content)
        with contextlib.suppress(DpcaError):
            whole(open_source("x.npy"))


def test_no_more_than_a_header_is_read_of_what_says_it_is_one():
    with open("x.npy", "wb") as file:
        file.write(b"\x93NUMPY\x02\0\xff\xff\xff\xff")
        file.truncate(2**40)
    with pytest.raises(InputError, match=r"x\.npy: its \.npy header can't be read"):
        open_source("x.npy")
