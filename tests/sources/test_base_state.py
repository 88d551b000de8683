"""What a source says of a region changes when that is rewritten."""

import os
import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest
import zarr

from dpca.sources import open_source
from tests.sources.test_netcdf3 import netcdf3
from tests.stores import random_array

X = random_array(0, (12, 40), "f4")
CHANGED, OTHER = (slice(0, 12), slice(10, 25)), (slice(0, 12), slice(30, 40))
"""Chunks of ten columns, of which the second is rewritten."""


def rewritten(kind):
    """A source of X, and what writes its second chunk again."""
    Path("d").mkdir(exist_ok=True)
    if kind.startswith("zarr"):
        shards = (12, 10) if "sharded" in kind else None
        array = zarr.create_array("d/x.zarr", data=X, chunks=(3, 5) if shards else (12, 10), shards=shards)
        uri = "d/x.zarr"
        if "zip" in kind:
            uri = shutil.make_archive("d/x.zarr", "zip", "d/x.zarr")

        def write():
            array[:, 10:20] = X[:, 10:20] + 1
            if "zip" in kind:
                shutil.make_archive("d/x.zarr", "zip", "d/x.zarr")

        return open_source(uri), write
    if kind == "npy":
        np.save("d/x.npy", X)
        return open_source("d/x.npy"), lambda: np.save("d/x.npy", X + 1)
    if kind == "netcdf classic":
        what = ("d/x.nc", 1, {"t": None, "x": 40})
        netcdf3(*what, {"x": (("t", "x"), X, {})}, len(X))
        return open_source("d/x.nc"), lambda: netcdf3(*what, {"x": (("t", "x"), X + 1, {})}, len(X))
    with h5py.File("d/x.h5", "w") as file:
        file.create_dataset("x", data=X, chunks=(12, 10))
    if kind == "hdf5, virtual":
        layout = h5py.VirtualLayout(X.shape, X.dtype)
        layout[:] = h5py.VirtualSource("x.h5", "x", X.shape)
        with h5py.File("d/v.h5", "w") as file:
            file.create_virtual_dataset("v", layout)

    def write():
        with h5py.File("d/x.h5", "r+") as file:
            file["x"][:, 10:20] = X[:, 10:20] + 1

    return open_source("d/v.h5" if "virtual" in kind else "d/x.h5"), write


@pytest.mark.parametrize(
    "kind", ["zarr", "zarr, sharded", "zarr, zip", "npy", "netcdf classic", "hdf5", "hdf5, virtual"]
)
def test_the_state_of_a_region_changes_when_it_is_rewritten(kind):
    source, write = rewritten(kind)
    before, beside = source.state(CHANGED), source.state(OTHER)
    assert before == source.state(CHANGED)
    shutil.copytree("d", "kept")  # with times
    write()
    assert source.state(CHANGED) != before
    # Of files the whole may have changed.
    assert (source.state(OTHER) == beside) == (kind in ("zarr", "zarr, sharded"))
    shutil.rmtree("d")
    os.replace("kept", "d")
    assert source.state(CHANGED) == before


def test_a_chunk_that_goes_is_another_state():
    source, _ = rewritten("zarr")
    before = source.state(CHANGED)
    os.remove("d/x.zarr/c/0/1")
    assert source.state(CHANGED) != before
    source, _ = rewritten("npy")
    os.remove("d/x.npy")
    assert source.state(CHANGED) == "absent"
