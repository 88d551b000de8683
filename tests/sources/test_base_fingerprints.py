"""Inputs that differ in one thing are told apart: no run goes on with the other one, and no result is taken for one of it."""

import os
from pathlib import Path

import dask.array as da
import h5py
import numpy as np
import pytest
import scipy.sparse
import zarr

from dpca.config.inputs import Input
from dpca.sources import as_source, open_source
from dpca.sources.labels import Place
from dpca.sources.regressors import fingerprint_of, fingerprint_of_labels
from dpca.store.unfinished import without_place
from tests import crossings
from tests.sources.test_netcdf3 import netcdf3
from tests.stores import random_array

X = random_array(0, (8, 24), "f4")
OLD = (10**18, 10**18)
"""A time of access and of modification: files are told apart although they have the same one, and the same size."""


def of_input(write, *inputs):
    """Fingerprints of inputs that are made once."""

    def made():
        write()
        return [Input(**one).open().fingerprint() for one in inputs]

    return made


def of_files(uri, array, *writes):
    """Fingerprints of a file that is written again, whose time says nothing."""

    def made():
        found = []
        for write in writes:
            write()
            for path in [uri, *Path(uri).rglob("*")]:
                os.utime(path, ns=OLD)
            found.append(open_source(uri, array).fingerprint())
        return found

    return made


def hdf5():
    with h5py.File("x.h5", "w") as file:
        file["a"], file["b"] = X, X + 1


def classic():
    netcdf3("x.nc", 1, {"t": 8, "x": 24}, {"a": (("t", "x"), X, {}), "b": (("t", "x"), X + 1, {})})


def by_engine():
    import xarray as xr

    xr.Dataset({"a": (("t", "x"), X), "b": (("t", "x"), X + 1)}).to_netcdf("x.data", engine="h5netcdf")


def two_files():
    for name, values in (("a.npy", X), ("b.npy", X + 1)):
        np.save(name, values)
        os.utime(name, ns=OLD)


def two_axes():
    zarr.create_array("x.zarr", data=X.reshape(2, 4, 24), dimension_names=("member", "time", "x"))


def annotated(make):
    """Of a file in which another choice of as many features was written."""

    def made():
        import anndata
        import pandas as pd

        found = []
        for first in (0, 1):
            chosen = pd.DataFrame({"chosen": np.arange(24) % 2 == first}, index=[f"g{n}" for n in range(24)])
            anndata.AnnData(make(X), var=chosen).write_h5ad("x.h5ad")
            os.utime("x.h5ad", ns=OLD)
            found.append(Input(uri="x.h5ad", features={"column": "chosen"}).open().fingerprint())
        return found

    return made


def in_zarr(values=X, version=3, **attributes):
    def write():
        array = zarr.create_array(
            "x.zarr", data=values, chunks=(8, 12), overwrite=True, zarr_format=version, compressors=None
        )
        array.attrs.update(attributes)

    return write


def variants():
    crossings.bed(np.ones((4, 6)), "x")
    found = []
    for before, after in (("", ""), ("rs1\t", "rs01\t")):
        Path("x.bim").write_text(
            Path("x.bim").read_text().replace(before, after) if before else Path("x.bim").read_text()
        )
        found.append(Input(uri="x.bed").open().fingerprint())
    return found


def table_of_variants():
    np.save("a.npy", X)
    found = []
    for name in ("v", "w"):
        rows = "".join(f"{name}{number},1,{number + 1},A,C\n" for number in range(24))
        Path("v.csv").write_text("id,chromosome,position,counted,other\n" + rows)
        os.utime("v.csv", ns=(OLD[0], OLD[0] + len(found)))
        found.append(Input(uri="a.npy", variants="v.csv").open().fingerprint())
    return found


def of_no_file():
    """Datasets of a file in memory, and one of another shape in its place."""
    with h5py.File("none.h5", "w", driver="core", backing_store=False) as file:
        file["a"], file["b"] = X, X
        found = [as_source(file[name]).fingerprint() for name in "ab"]
        del file["a"]
        file["a"] = X.T
        return [*found, as_source(file["a"]).fingerprint()]


def multiallelic():
    crossings.vcf_zarr(np.ones((4, 6)), "x")
    return [Input(uri="x.vcz", multiallelic=how).open().fingerprint() for how in ("error", "leave_out")]


def spaces():
    import nibabel

    return [
        as_source(nibabel.Nifti1Image(X.reshape(4, 3, 2, 8), np.diag([size, 2, 2, 1]))).fingerprint() for size in (2, 3)
    ]


def labels():
    found = []
    for content in ("a\nb\n", "a\nc\n"):
        Path("labels.txt").write_text(content)
        os.utime("labels.txt", ns=OLD)
        found.append(fingerprint_of_labels(Place("labels.txt")))
    return found


def covariates():
    """A table, and categories, by what they hold."""
    found = []
    for content in ("site\na\nb\n", "site\na\nc\n"):
        Path("c.csv").write_text(content)
        os.utime("c.csv", ns=OLD)
        found.append(fingerprint_of("c.csv", None))
    import anndata
    import pandas as pd

    for values in (["a", "b"], ["a", "c"]):
        obs = pd.DataFrame({"site": pd.Categorical(values)}, index=["0", "1"])
        anndata.AnnData(X[:2], obs=obs).write_h5ad("c.h5ad")
        os.utime("c.h5ad", ns=OLD)
        found.append(fingerprint_of("c.h5ad", "obs/site"))
    return found


INPUTS = {
    "array of HDF5": of_input(hdf5, {"uri": "x.h5", "array": "a"}, {"uri": "x.h5", "array": "b"}),
    "array of netCDF": of_input(classic, {"uri": "x.nc", "array": "a"}, {"uri": "x.nc", "array": "b"}),
    "array of an engine": of_input(
        by_engine, *({"uri": "x.data", "array": name, "engine": "h5netcdf"} for name in "ab")
    ),
    "shape of the features": of_input(
        two_files, *({"uri": "a.npy", "feature_shape": shape} for shape in ([4, 6], [6, 4]))
    ),
    "chosen samples": of_input(
        two_files, *({"uri": "a.npy", "samples": chosen} for chosen in ([0, 1], [0, 2], [1, 0]))
    ),
    "order of the files": of_input(two_files, {"uri": ["a.npy", "b.npy"]}, {"uri": ["b.npy", "a.npy"]}),
    "axes of the samples": of_input(
        two_axes, *({"uri": "x.zarr", "samples_axis": axes} for axes in (["member", "time"], ["time", "member"]))
    ),
    "chosen features": annotated(np.asarray),
    "chosen features, sparse": annotated(scipy.sparse.csr_matrix),
    "version of Zarr": of_files("x.zarr", None, in_zarr(), in_zarr(version=2)),
    "metadata of Zarr": of_files("x.zarr", None, in_zarr(), in_zarr(scale_factor=2.0), in_zarr(scale_factor=3.0)),
    "shape in memory": lambda: [as_source(X.reshape(shape)).fingerprint() for shape in ((8, 24), (24, 8))],
    "type in memory": lambda: [as_source(X.astype(dtype)).fingerprint() for dtype in ("f4", "i4")],
    "Dask arrays": lambda: [as_source(da.from_array(X + n, chunks=(8, 12))).fingerprint() for n in range(2)],
    "shape of a Dask array": lambda: [
        as_source(da.ones(shape, chunks=shape, name="x")).fingerprint() for shape in ((8, 24), (24, 8))
    ],
    "datasets of no file": of_no_file,
    "variants": variants,
    "table of variants": table_of_variants,
    "alleles": multiallelic,
    "space of images": spaces,
    "labels": labels,
    "covariates": covariates,
}


@pytest.mark.parametrize("what", INPUTS)
def test_inputs_that_differ_in_one_thing_are_told_apart(what):
    found = [without_place(one) for one in INPUTS[what]()]
    for number, one in enumerate(found):
        assert one not in found[:number]


@pytest.mark.parametrize("suffix", [".npy", ".zarr", ".h5", ".nc"])
def test_a_file_that_was_written_again_is_another_one_and_a_copy_is_not(suffix):
    write = {
        ".npy": lambda: np.save("x.npy", X),
        ".zarr": in_zarr(),
        ".h5": hdf5,
        ".nc": classic,
    }[suffix]
    array = "a" if suffix in (".h5", ".nc") else None
    write()
    before = without_place(open_source(f"x{suffix}", array).fingerprint())
    os.system(f"cp -a x{suffix} y{suffix}")
    assert without_place(open_source(f"y{suffix}", array).fingerprint()) == before
    files = [path for path in [Path(f"x{suffix}"), *Path(f"x{suffix}").rglob("*")] if path.is_file()]
    for file in files:
        os.utime(file, ns=OLD)
    assert without_place(open_source(f"x{suffix}", array).fingerprint()) != before
