"""Every kind of input through every command: one table, whose cells equal a dense oracle or refuse with a sentence.

A new source or a new key is a row, a new command a column; `make crossings` prints the table. `tests/test_crossings.py` runs each cell.
"""

import contextlib
import gzip
import io
import json
import os
import re
import threading
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import dask.array as da
import h5py
import numpy as np
import scipy.linalg
import scipy.sparse
import xarray as xr
import yaml
import zarr

import dpca
from dpca import PCA
from dpca.planning import search
from dpca.slabs import SLAB_BYTES
from dpca.system import durable
from tests.commands.calls import dpca as command
from tests.genotypes.cohorts import Cohort, assert_same_vectors, write_plink

MARK = re.compile("[\ue000-\uf8ff]")
"""A setting in a text that no one has named for the reader."""
N, NEW, Y, X = 6, 2, 4, 6
ALL = N + NEW
FEATURES = (Y, X)
SEVERAL = ["time", "member"]
"""Axes of samples, where there are several."""


def fields():
    """Samples of features, far from the origin, of different variances."""
    g = np.random.default_rng(1)
    return 5 + g.standard_normal((ALL, *FEATURES)) * np.linspace(1, 3, Y * X).reshape(FEATURES)


def flat():
    return fields().reshape(ALL, -1)


def with_gaps():
    x = fields()
    x[1, 0, 2] = x[4, 3, 1] = x[N, 2, 2] = np.nan
    return x


def with_land():
    x = fields()
    x[:, 0, 2] = x[:, 3, 1] = np.nan
    return x


def counts():
    """Sparse counts of genes in cells."""
    g = np.random.default_rng(2)
    return (g.poisson(1.0, (ALL, Y * X)) * g.integers(0, 2, (ALL, Y * X))).astype("f8")


def few_counts():
    """Counts of which few are not zero: each feature has one."""
    values = np.zeros((ALL, Y * X))
    features = np.arange(Y * X)
    values[features * 5 % ALL, features] = 1 + features % 4
    return values


def dosages():
    """Copies of an allele that people have."""
    return np.random.default_rng(3).binomial(2, np.linspace(0.2, 0.8, Y * X), (ALL, Y * X)).astype("f8")


# Rows: how values are stored. `write(values, stem)` returns the keys of `input`, and an object of Python.


def npy(x, stem):
    np.save(f"{stem}.npy", x)
    return {"uri": f"{stem}.npy"}, np.load(f"{stem}.npy", mmap_mode="r")


def zarr_of(version):
    def write(x, stem):
        array = zarr.create_array(f"{stem}.zarr", data=x, chunks=(2, *x.shape[1:]), zarr_format=version)
        return {"uri": f"{stem}.zarr"}, array

    return write


def hdf5(x, stem):
    with h5py.File(f"{stem}.h5", "w") as file:
        file.create_dataset("a/x", data=x, chunks=(2, *x.shape[1:]), compression="gzip")
    return {"uri": f"{stem}.h5", "array": "a/x"}, h5py.File(f"{stem}.h5")["a/x"]


def matlab(x, stem):
    with h5py.File(f"{stem}.mat", "w", userblock_size=512) as file:
        file["x"] = x
    content = Path(f"{stem}.mat").read_bytes()
    Path(f"{stem}.mat").write_bytes(b"MATLAB 7.3 MAT-file".ljust(512) + content[512:])
    return {"uri": f"{stem}.mat"}, h5py.File(f"{stem}.mat")["x"]


def labelled(x, start=0, hours=24):
    """With names of axes, dates, an index and coordinates that are none."""
    times = np.datetime64("2001-01-01", "ns") + (start + np.arange(len(x))) * np.timedelta64(hours, "h")
    lat, lon = np.linspace(-60, 60, Y), np.arange(X) * 10.0
    area = ("lat", "lon"), np.outer(np.cos(np.deg2rad(lat)), np.ones(X))
    return xr.DataArray(
        x, coords={"time": times, "lat": lat, "lon": lon, "area": area}, dims=("time", "lat", "lon"), name="t"
    )


def netcdf(engine, ending):
    def write(x, stem):
        data = labelled(x, N if stem == "new" else 0)
        data.to_dataset().to_netcdf(f"{stem}.{ending}", engine=engine)
        return {"uri": f"{stem}.{ending}", "array": "t", "samples_axis": "time"}, data

    return write


def twice_a_day(x, stem):
    data = labelled(x, N if stem == "new" else 0, hours=12)
    data.to_dataset().to_netcdf(f"{stem}.nc", engine="h5netcdf")
    return {"uri": f"{stem}.nc", "array": "t", "samples_axis": "time"}, data


def by_engine(x, stem):
    """What xarray opens."""
    data = labelled(x, N if stem == "new" else 0)
    data.to_dataset().to_netcdf(f"{stem}.data", engine="h5netcdf")
    return {"uri": f"{stem}.data", "engine": "h5netcdf", "samples_axis": "time"}, data


def of_members(x, stem):
    """Times of two members of an ensemble, between their latitudes and longitudes."""
    data = labelled(x[::2], N // 2 if stem == "new" else 0)
    members = xr.concat(
        [data, data.copy(data=x[1::2])], xr.Variable("member", ["b", "a"]), coords="minimal", compat="override"
    )
    data = members.transpose("member", "lat", "time", "lon")
    data.to_dataset().to_netcdf(f"{stem}.members", engine="h5netcdf")
    return {"uri": f"{stem}.members", "array": "t", "samples_axis": SEVERAL}, data


def end_to_end(x, stem):
    parts = np.array_split(x, 2)
    arrays = [zarr.create_array(f"{stem}{number}.zarr", data=part) for number, part in enumerate(parts)]
    return {"uri": f"{stem}?.zarr"}, da.concatenate([da.from_zarr(array) for array in arrays])


def side_by_side(x, stem):
    parts = {"a": x[:, :1], "b": x[:, 1:].reshape(len(x), -1)}
    for name, part in parts.items():
        zarr.create_array(f"{stem}-{name}.zarr", data=part)
    return [{"name": name, "uri": f"{stem}-{name}.zarr"} for name in parts], parts


def bed(x, stem):
    d = x.shape[1]
    of = Cohort(
        x.T.astype(np.int8), ["1"] * d, list(range(100, 100 + d)), [f"rs{n}" for n in range(d)],
        [f"{stem}{n}" for n in range(len(x))], ["f"] * len(x), [("A", "G")] * d,
    )  # fmt: skip
    write_plink(of, stem)
    return {"uri": f"{stem}.bed"}, f"{stem}.bed"


def pgen(x, stem):
    import pgenlib

    n, d = x.shape
    writer = pgenlib.PgenWriter(f"{stem}.pgen".encode(), n, variant_ct=d, nonref_flags=False)
    for column in x.T.astype(np.int8):
        writer.append_biallelic(np.ascontiguousarray(column))
    writer.close()
    variants = [f"1\t{100 + n}\trs{n}\tG\tA" for n in range(d)]
    Path(f"{stem}.pvar").write_text("\n".join(["##fileformat=VCFv4.2", "#CHROM\tPOS\tID\tREF\tALT", *variants]) + "\n")
    Path(f"{stem}.psam").write_text("\n".join(["#IID\tSEX", *(f"{stem}{number}\tNA" for number in range(n))]) + "\n")
    return {"uri": f"{stem}.pgen"}, f"{stem}.pgen"


def vcf_zarr(x, stem):
    group, text, d = zarr.open_group(f"{stem}.vcz", mode="w"), np.dtypes.StringDType(), x.shape[1]
    calls = np.stack([x.T >= 1, x.T >= 2], axis=-1).astype(np.int8)
    group.create_array("call_genotype", data=calls, chunks=(8, 4, 2))
    beside = {
        "variant_contig": np.zeros(d, np.int8),
        "contig_id": np.array(["1"], text),
        "variant_position": np.arange(d, dtype=np.int32) + 100,
        "variant_allele": np.array([["A", "G"]] * d, text),
        "variant_id": np.array([f"rs{n}" for n in range(d)], text),
        "sample_id": np.array([f"{stem}{n}" for n in range(len(x))], text),
    }
    for name, values in beside.items():
        group.create_array(name, shape=values.shape, dtype=str if values.dtype == text else values.dtype)[...] = values
    return {"uri": f"{stem}.vcz"}, f"{stem}.vcz"


def anndata_of(make):
    def write(x, stem):
        import anndata
        import pandas as pd

        obs = pd.DataFrame(
            {"cluster": pd.Categorical(["a", "b"] * (len(x) // 2))}, index=[f"{stem}{n}" for n in range(len(x))]
        )
        made = anndata.AnnData(make(x), obs=obs, var=pd.DataFrame(index=[f"g{n}" for n in range(x.shape[1])]))
        made.obsp["connectivities"] = scipy.sparse.csr_matrix(np.ones((len(x), len(x))))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made.write_h5ad(f"{stem}.h5ad")
        return {"uri": f"{stem}.h5ad"}, make(x)

    return write


def nifti(ending):
    def write(x, stem):
        """An image a sample; in Python those of nibabel, in memory."""
        import nibabel

        images = [nibabel.Nifti1Image(one[..., None], np.diag([2.0, 2, 2, 1])) for one in x]
        for number, image in enumerate(images):
            image.to_filename(f"{stem}{number}.nii{ending}")
        return {"uri": f"{stem}[0-9].nii{ending}"}, images

    return write


def nifti_series(ending):
    def write(x, stem):
        import nibabel

        image = nibabel.Nifti1Image(np.moveaxis(x[..., None], 0, -1), np.eye(4))
        image.header.set_xyzt_units("mm", "sec")
        image.to_filename(f"{stem}.nii{ending}")
        return {"uri": f"{stem}.nii{ending}"}, f"{stem}.nii{ending}"

    return write


def pictures(x, stem):
    import tifffile

    for number, one in enumerate(x):
        Path(stem).mkdir(exist_ok=True)
        tifffile.imwrite(f"{stem}/{stem}{number}.tif", one)
    return {"uri": stem}, stem


def table(separator, ending, turned=False):
    def write(x, stem):
        """With names of samples and of features, either way around."""
        names, features = [f"{stem}{n}" for n in range(len(x))], [f"g{n}" for n in range(x.shape[1])]
        rows = (
            [[f"g{n}", *x[:, n]] for n in range(x.shape[1])]
            if turned
            else [[names[n], *one] for n, one in enumerate(x)]
        )
        lines = [["name", *(names if turned else features)], *rows]
        content = "\n".join(separator.join(map(str, line)) for line in lines).encode()
        path = f"{stem}{ending}"
        Path(path).write_bytes(gzip.compress(content) if ending.endswith(".gz") else content)
        return {"uri": path, **({"samples_axis": 1} if turned else {})}, path

    return write


def parquet(x, stem):
    import pandas as pd

    rows = [f"{stem}{n}" for n in range(len(x))]
    pd.DataFrame(x, index=rows, columns=[f"g{n}" for n in range(x.shape[1])]).to_parquet(
        f"{stem}.parquet", row_group_size=3
    )
    return {"uri": f"{stem}.parquet"}, f"{stem}.parquet"


def of_10x(x, stem):
    """Genes by cells, stored by cells, as Cell Ranger does."""
    matrix = scipy.sparse.csc_matrix(x.T.astype("i4"))
    with h5py.File(f"{stem}.h5", "w") as file:
        for name in ("data", "indices", "indptr"):
            file[f"matrix/{name}"] = getattr(matrix, name)
        file["matrix/shape"] = np.array(matrix.shape, "i4")
        file["matrix/barcodes"] = np.array([f"{stem}{n}".encode() for n in range(len(x))])
        for name in ("id", "name"):
            file[f"matrix/features/{name}"] = np.array([f"{name}{n}".encode() for n in range(x.shape[1])])
    return {"uri": f"{stem}.h5"}, f"{stem}.h5"


def in_memory_store(x, stem):
    """An object store of this process, by fsspec."""
    zarr.create_array(f"memory://crossings/{os.getpid()}/{stem}.zarr", data=x, chunks=(2, *x.shape[1:]), overwrite=True)
    url = f"memory://crossings/{os.getpid()}/{stem}.zarr"
    return {"uri": url}, zarr.open_array(url, mode="r")


# Oracles: X_c of all samples by the fit to the first ones, dense.

Oracle = Callable[[np.ndarray], np.ndarray]


def by_mean(x):
    return x - x[:N].mean(axis=0)


def scaled(divisor):
    return lambda x: by_mean(x) / divisor(x[:N])


def filled(x):
    there = np.isfinite(x[:N])
    return np.nan_to_num(x - np.where(there, x[:N], 0).sum(axis=0) / np.maximum(there.sum(axis=0), 1))


def dropped(x):
    whole = np.isfinite(x[:N]).all(axis=0)
    return filled(np.where(whole, x, 0.0))


def without(x):
    z = np.column_stack([np.ones(ALL), COVARIATE])
    return x - z @ np.linalg.lstsq(z[:N], x[:N], rcond=None)[0]


def within(*columns):
    """Less the fit of a constant and of columns in each of two groups alone."""

    def oracle(x):
        left = np.empty_like(x)
        for group in range(2):
            own = np.flatnonzero(np.arange(ALL) % 2 == group)
            z, old = np.column_stack([np.ones(len(own)), *(column[own] for column in columns)]), own < N
            left[own] = x[own] - z @ np.linalg.lstsq(z[old], x[own][old], rcond=None)[0]
        return left

    return oracle


def in_inner_product(x):
    """Products of these are those of X_c in the inner product."""
    return by_mean(x) @ scipy.linalg.block_diag(*np.linalg.cholesky(MATRICES).reshape(-1, 3, 3))


def z_scored(oracle, groups):
    """What an oracle leaves, over its standard deviation in each group."""

    def scaled_by(x):
        left = oracle(x)
        for group in np.unique(groups):
            own = np.flatnonzero(groups == group)
            left[own] /= left[own[own < N]].std(axis=0, ddof=1)
        return left

    return scaled_by


def of_weighted_mean(x):
    return x - np.average(x[:N], axis=0, weights=SAMPLE_WEIGHTS[:N])


def balanced(x):
    c, parts = by_mean(x), (slice(0, X), slice(X, None))
    return np.hstack([c[:, part] / np.sqrt((c[:N, part] ** 2).sum() / (N - 1)) for part in parts])


def of_plink(x):
    p = x[:N].mean(axis=0) / 2
    return np.where((p > 0) & (p < 1), (x - 2 * p) / np.sqrt(np.maximum(2 * p * (1 - p), 1e-300)), 0.0)


g = np.random.default_rng(4)
WEIGHTS = g.uniform(0.5, 2, FEATURES)
SAMPLE_WEIGHTS = g.uniform(0.5, 2, ALL)
COVARIATE = g.standard_normal(ALL)
LABELS = np.array(["ab"[number % 2] for number in range(ALL)])
MASK = g.random(FEATURES) > 0.2
MATRICES = g.standard_normal((Y, X // 3, 3, 4))
MATRICES = MATRICES @ MATRICES.swapaxes(-2, -1)
"""An inner product of each three neighbouring features."""


def sparse_inner_product():
    return scipy.sparse.block_diag(MATRICES.reshape(-1, 3, 3), format="csr")


def side_files():
    """What configs name beside the data."""
    np.save("weights.npy", WEIGHTS)
    np.save("sample_weights.npy", SAMPLE_WEIGHTS[:N])
    np.save("covariate.npy", COVARIATE[:N, None])
    np.save("mask.npy", MASK)
    np.save("matrices.npy", MATRICES)
    scipy.sparse.save_npz("matrix.npz", sparse_inner_product())
    Path("labels.txt").write_text("\n".join(LABELS[:N]))


@dataclass(frozen=True)
class Row:
    """A kind of input."""

    write: Callable[..., Any] = field(default_factory=lambda: zarr_of(3))
    values: Callable[[], np.ndarray] = fields
    keys: Mapping[str, Any] = field(default_factory=dict)
    """Of the config, beside input, model.n_components and output."""
    oracle: Oracle = by_mean
    root: Any = 1.0
    """Of the weights of samples."""
    python: Mapping[str, Any] = field(default_factory=dict)
    """Parameters of PCA."""
    fit: Mapping[str, Any] = field(default_factory=dict)
    """Of its method fit."""
    new: Mapping[str, Any] = field(default_factory=dict)
    """Keys of the input of new samples."""
    beside: Mapping[str, np.ndarray] = field(default_factory=dict)
    """Arguments of `transform`, with a value for each of all samples."""
    used: Callable[[np.ndarray], np.ndarray] = lambda x: np.ones(x.shape[1], bool)
    """The features that can be restored, (d,)."""
    slab_bytes: int = SLAB_BYTES
    """Size of a slab; of larger data it is less than all of them."""


def preprocess(**keys):
    return {"preprocess": keys}


ROWS = {
    "npy": Row(npy),
    "Zarr 2": Row(zarr_of(2)),
    "Zarr 3": Row(),
    "HDF5": Row(hdf5),
    "MATLAB 7.3": Row(matlab),
    "netCDF classic": Row(netcdf("scipy", "cdf")),
    "netCDF-4": Row(netcdf("h5netcdf", "nc")),
    "engine of xarray": Row(by_engine),
    "several axes of samples": Row(of_members, python={"samples_axis": tuple(SEVERAL)}),
    "end to end": Row(end_to_end),
    "side by side": Row(side_by_side),
    "object store": Row(in_memory_store),
    ".bed": Row(bed, dosages),
    ".bed, plink2": Row(bed, dosages, preprocess(scale={"binomial": "plink2"}), of_plink),
    ".pgen": Row(pgen, dosages),
    "VCF Zarr": Row(vcf_zarr, dosages),
    ".h5ad": Row(anndata_of(lambda x: x), counts),
    ".h5ad, sparse": Row(anndata_of(scipy.sparse.csr_matrix), counts),
    ".h5ad, few values": Row(anndata_of(scipy.sparse.csc_matrix), few_counts),
    ".h5ad, few values, turned": Row(anndata_of(scipy.sparse.csr_matrix), few_counts, slab_bytes=256),
    "10x .h5": Row(of_10x, counts),
    ".nii": Row(nifti("")),
    ".nii.gz": Row(nifti(".gz")),
    ".nii, 4-d": Row(nifti_series("")),
    ".nii.gz, 4-d": Row(nifti_series(".gz")),
    "TIFF": Row(pictures),
    ".csv": Row(table(",", ".csv"), counts),
    ".csv.gz": Row(table(",", ".csv.gz"), flat),
    ".tsv, features in rows": Row(table("\t", ".tsv", turned=True), flat, python={"samples_axis": 1}),
    "Parquet": Row(parquet, flat),
    "labels": Row(keys={"model": {"labels": {"uri": "labels.txt"}}}),
    "weights": Row(
        keys=preprocess(weights={"uri": "weights.npy"}),
        oracle=lambda x: by_mean(x) * WEIGHTS.ravel(), python={"weights": WEIGHTS},
    ),
    "inner product": Row(
        keys=preprocess(inner_product={"uri": "matrices.npy"}), oracle=in_inner_product, python={"inner_product": MATRICES},
    ),
    "inner product, sparse": Row(
        npy, flat, preprocess(inner_product={"uri": "matrix.npz"}), in_inner_product, python={"inner_product": sparse_inner_product()},
    ),
    "sample weights": Row(
        keys=preprocess(sample_weights={"uri": "sample_weights.npy"}), oracle=of_weighted_mean,
        root=np.sqrt(SAMPLE_WEIGHTS[:N])[:, None], fit={"sample_weight": SAMPLE_WEIGHTS[:N]},
    ),
    "mask": Row(
        keys=preprocess(filters={"mask": {"uri": "mask.npy"}}), oracle=lambda x: by_mean(x) * MASK.ravel(),
        python={"filters": {"mask": MASK}}, used=lambda x: MASK.ravel(),
    ),
    "missing: mean": Row(values=with_gaps, keys=preprocess(missing="mean"), oracle=filled, python={"missing": "mean"}),
    "missing: drop": Row(
        values=with_gaps, keys=preprocess(missing="drop"), oracle=dropped, python={"missing": "drop"},
        used=lambda x: np.isfinite(x[:N]).all(axis=0),
    ),
    "missing: land": Row(
        values=with_land, keys=preprocess(missing="land"), oracle=dropped, python={"missing": "land"},
        used=lambda x: np.isfinite(x[:N]).all(axis=0),
    ),
    "missing: pairwise": Row(values=with_gaps, keys=preprocess(missing="pairwise"), oracle=filled, python={"missing": "pairwise"}),
    "regress_out": Row(
        keys=preprocess(regress_out={"covariates": {"uri": "covariate.npy"}}), oracle=without,
        python={"regress_out": {"covariates": COVARIATE[:N, None]}},
        new={"covariates": {"uri": "new_covariate.npy"}}, beside={"covariates": COVARIATE[:, None]},
    ),
    "regress_out by groups": Row(
        of_members, keys=preprocess(regress_out={"by": "member"}), oracle=within(),
        python={"samples_axis": tuple(SEVERAL), "regress_out": {"by": "member"}},
    ),
    "regress_out by labels": Row(
        keys=preprocess(regress_out={"covariates": {"uri": "covariate.npy"}, "by": {"uri": "labels.txt"}}), oracle=within(COVARIATE),
        python={"regress_out": {"covariates": COVARIATE[:N, None], "by": LABELS[:N]}},
        new={"covariates": {"uri": "new_covariate.npy"}, "by": {"uri": "new_labels.txt"}},
        beside={"covariates": COVARIATE[:, None], "by": LABELS},
    ),
    "regress_out, scale by labels": Row(
        side_by_side,
        keys=preprocess(regress_out={"by": {"uri": "labels.txt"}, "scale": "std"}), oracle=z_scored(within(), LABELS),
        python={"regress_out": {"by": LABELS[:N], "scale": "std"}},
        new={"by": {"uri": "new_labels.txt"}}, beside={"by": LABELS},
    ),
    "regress_out, scale by a cycle": Row(
        twice_a_day, keys=preprocess(regress_out={"seasonal_cycle": "hour", "scale": "std"}), oracle=z_scored(within(), LABELS),
        python={"samples_axis": "time", "regress_out": {"seasonal_cycle": "hour", "scale": "std"}},
    ),
    "block_scaling": Row(
        side_by_side, keys=preprocess(block_scaling="total_variance"), oracle=balanced, python={"block_scaling": "total_variance"}
    ),
    "groups": Row(keys={"output": {"groups": 2}}),
    "center: false": Row(keys=preprocess(center=False), oracle=lambda x: x, python={"center": False}),
    "scale: std": Row(keys=preprocess(scale="std"), oracle=scaled(lambda x: x.std(0, ddof=1)), python={"scale": "std"}),
    "scale: std, ddof 0": Row(
        keys=preprocess(scale="std", scale_ddof=0),
        oracle=scaled(lambda x: x.std(0)), python={"scale": "std", "scale_ddof": 0}
    ),
    "scale: pareto": Row(
        keys=preprocess(scale="pareto"), oracle=scaled(lambda x: np.sqrt(x.std(0, ddof=1))), python={"scale": "pareto"}
    ),
    "scale: range": Row(keys=preprocess(scale="range"), oracle=scaled(lambda x: np.ptp(x, axis=0)), python={"scale": "range"}),
}  # fmt: skip


class Crossing:
    """A row in a directory of its own: files, config, oracle, and what commands left."""

    def __init__(self, name: str) -> None:
        self.name, self.row = name, ROWS[name]
        self.x = self.row.values()
        side_files()
        self.input, self.object = self.row.write(self.x[:N], "x")
        self.new_input, self.new_object = self.row.write(self.x[N:], "new")
        np.save("new_covariate.npy", COVARIATE[N:, None])
        Path("new_labels.txt").write_text("\n".join(LABELS[N:]))
        self.config("c.yaml")

    def config(self, path: str, output: str = "r", **more: Any) -> str:
        keys = {key: dict(value) for key, value in self.row.keys.items()}
        keys["output"] = {**keys.get("output", {}), "path": output, "report": False}
        keys["model"] = {
            "n_components": self.k,
            "precision": "double",
            **keys.get("model", {}),
            **more.pop("model", {}),
        }
        Path(path).write_text(yaml.safe_dump({"input": self.input, **keys, **more}, sort_keys=False))
        return path

    @property
    def flat(self):
        return self.x.reshape(ALL, -1)

    @cached_property
    def centred(self):
        return self.row.oracle(self.flat)

    @cached_property
    def svd(self):
        """Of X_c of the fit."""
        if self.name == "missing: pairwise":
            return pairwise(self.flat[:N])
        return np.linalg.svd(self.row.root * self.centred[:N], full_matrices=False)

    @cached_property
    def k(self) -> int:
        s = np.linalg.svd(self.row.root * self.centred[:N], compute_uv=False)
        return int((s > 1e-9 * s[0]).sum())

    @cached_property
    def scores(self):
        """Of all samples."""
        return self.centred @ self.svd[2][: self.k].T

    def run(self) -> None:
        """Have a result here."""
        if not Path("r").exists():
            ok("run", "c.yaml", "--keep-ledger")

    def fitted(self, **parameters):
        with of_dpca_alone():
            return PCA(self.k, precision="double", **{**self.row.python, **parameters}).fit(self.object, **self.row.fit)

    def new_file(self) -> str:
        """New samples, as `transform` and `extend` take them."""
        new = [
            {**one, **self.row.new}
            for one in (self.new_input if isinstance(self.new_input, list) else [self.new_input])
        ]
        Path("new.yaml").write_text(yaml.safe_dump(new if len(new) > 1 else new[0]))
        return "new.yaml"

    def beside(self, samples):
        """Arguments of `transform` for some samples."""
        return {name: values[samples] for name, values in self.row.beside.items()}

    def rows(self, scores):
        """Scores with one axis of samples."""
        return np.asarray(scores).reshape(-1, np.shape(scores)[-1])

    def is_spectrum(self, found, of=None) -> None:
        np.testing.assert_allclose(found, (self.svd[1] if of is None else of)[: len(found)], rtol=1e-8, atol=1e-8)

    def are_scores(self, found, expected) -> None:
        assert_same_vectors(np.asarray(found), expected, atol=1e-7)


def pairwise(x):
    """Of products of the pairs of values that two samples have, each divided by their number and times the number of features."""
    c, there = filled(np.vstack([x, x[:NEW]]))[:N], np.isfinite(x).astype(float)
    values, vectors = np.linalg.eigh((c @ c.T) / (there @ there.T) * x.shape[1])
    values, vectors = np.maximum(values[::-1], 0), vectors[:, ::-1]
    s = np.sqrt(values)
    return vectors, s, (vectors / np.where(s > 1e-9, s, np.inf)).T @ c


@contextlib.contextmanager
def of_dpca_alone():
    """Without dpca's own warnings, of samples without a value and the like, which other tests assert; those of libraries stay errors."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=UserWarning, module=r"tests\.crossings|__main__")
        yield


class Refused(Exception):
    """A command ended with a sentence."""


def said(*arguments: Any) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = command(*arguments)
    assert not MARK.search(out.getvalue() + err.getvalue()), "a setting without a name"
    return code or 0, out.getvalue(), err.getvalue()


def ok(*arguments: Any) -> str:
    code, out, err = said(*arguments)
    if code:
        assert code in (2, 3), err
        raise Refused(err)
    assert "defect of dpca" not in err
    return out


def arrays(path: str) -> dict[str, Any]:
    """The arrays of a result, each of which says what it is, but for coordinates that are the user's own; components count from 1."""
    group = zarr.open_group(path, mode="r")
    for name, array in group.arrays():
        dims = array.metadata.dimension_names or ()
        own = dims == (name,) or name in group.attrs.get("coordinates", "").split()
        assert own or array.attrs.get("long_name"), f"{name} has no long_name"
        if name == "component":
            assert array[...].tolist() == [*range(1, array.shape[0] + 1)]
        elif "component" in dims:
            assert "component" in group, f"the components of {name} have no numbers"
    return {name: array[...] for name, array in group.arrays()}


# Columns: what a user does.


def inspect(of: Crossing) -> None:
    for one in of.input if isinstance(of.input, list) else [of.input]:
        array, uri = ("--array", one["array"]) if "array" in one else (), one["uri"]
        if "engine" in one:
            uri = "in.yaml"
            Path(uri).write_text(yaml.safe_dump(one))
        axis = one.get("samples_axis", 0)
        axis = ",".join(axis) if isinstance(axis, list) else axis
        facts = json.loads(ok("inspect", uri, *array, "--samples-axis", axis, "--json"))
        assert facts["n_samples"] == N
    assert ok("inspect", uri, *array)


def init(of: Crossing) -> None:
    """The config as it comes out, run."""
    Path("in.yaml").write_text(yaml.safe_dump(of.input))
    named = isinstance(of.input, list) or "engine" in of.input or of.input.get("samples_axis") == SEVERAL
    Path("i.yaml").write_text(ok("init", "in.yaml" if named else of.input["uri"]))
    asked = yaml.safe_load(Path("i.yaml").read_text())
    ok("validate", "i.yaml")
    out = asked["output"]["path"]
    ok(
        "run",
        "i.yaml",
        "--set",
        "output.report=false",
        "--set",
        "model.n_components=2",
        "--set",
        "model.precision=double",
    )
    x, how = of.flat, asked.get("preprocess", {})
    if how.get("scale") == {"binomial": "plink2"}:
        c = of_plink(x)
    else:
        c = filled(x) if how.get("missing") == "mean" else by_mean(x)
    if how.get("weights") == "sqrt_cos_lat":
        c = c * np.repeat(np.sqrt(np.cos(np.deg2rad(np.linspace(-60, 60, Y)))), X)
    if how.get("block_scaling") == "total_variance":
        c = balanced(x)
    np.testing.assert_allclose(
        arrays(f"{out}/result.zarr")["singular_values"], np.linalg.svd(c[:N], compute_uv=False)[:2], rtol=1e-8
    )


def plan(of: Crossing) -> None:
    assert json.loads(ok("plan", "c.yaml", "--json"))
    assert ok("plan", "c.yaml")


def run(of: Crossing) -> None:
    of.run()
    found = arrays("r/result.zarr")
    of.is_spectrum(found["singular_values"])
    of.are_scores(
        found["scores"], of.scores[:N] if of.name != "missing: pairwise" else (of.svd[0] * of.svd[1])[:, : of.k]
    )


def bits(path: str) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in sorted(Path(path).rglob("*")) if file.is_file()}


class Stopping(durable.Disk):
    """Stops at a write of the thread that an interrupt reaches."""

    def __init__(self, at: int) -> None:
        self.left = at

    def write(self, path, save, flush=True, mode=durable.FILE):
        if threading.current_thread() is threading.main_thread():
            self.left -= 1
            if not self.left:  # once: in zarr's thread, which a task waits for, an interrupt would end its loop
                raise KeyboardInterrupt
        super().write(path, save, flush, mode)


def stop_and_resume(of: Crossing) -> None:
    of.run()
    kept = durable.DISK
    durable.DISK = Stopping(6)
    try:
        code, _, err = said("run", "c.yaml", "--set", "output.path=stopped")
    finally:
        durable.DISK = kept
    assert code == 130, err
    ok("run", "c.yaml", "--set", "output.path=stopped", "--resume")
    assert bits("stopped/result.zarr") == bits("r/result.zarr")


def status(of: Crossing) -> None:
    of.run()
    assert json.loads(ok("status", "r", "--json"))["state"] == "done"


def report(of: Crossing) -> None:
    of.run()
    ok("report", "r", "--out", "r.html")
    assert "<html" in Path("r.html").read_text()[:500]


def transform(of: Crossing) -> None:
    of.run()
    ok("transform", "r", of.new_file(), "--out", "s.zarr")
    scores = arrays("r/result.zarr")["scores"]
    signs = np.sign((scores * of.scores[:N]).sum(axis=0))
    np.testing.assert_allclose(arrays("s.zarr")["scores"], of.scores[N:] * signs, atol=1e-7)


def reconstruct(of: Crossing) -> None:
    of.run()
    ok("reconstruct", "r", "--out", "back.zarr")
    parts = [values for name, values in sorted(arrays("back.zarr").items()) if name.startswith("reconstruction")]
    turned = isinstance(of.input, dict) and of.input.get("samples_axis") == 1
    found, expected = np.hstack([(part.T if turned else part).reshape(N, -1) for part in parts]), of.flat[:N]
    if of.name == "missing: pairwise":  # whose components are not those of the samples
        u, s, v = of.svd
        expected = np.nanmean(expected, axis=0) + (u * s)[:, : of.k] @ v[: of.k] + 0 * expected
    known = np.isfinite(expected) & of.row.used(of.flat)
    np.testing.assert_allclose(found[known], expected[known], atol=1e-7)


def export(to: str, read: Callable[[str], Mapping[str, Any]]) -> Callable[[Crossing], None]:
    def column(of: Crossing) -> None:
        of.run()
        ok("export", "r", "--to", to, "--out", f"e-{to}")
        found, stored = read(f"e-{to}"), arrays("r/result.zarr")
        assert len(found) > 1
        for name in found:
            np.testing.assert_allclose(
                np.asarray(found[name], float).reshape(stored[name].shape), stored[name], rtol=1e-12
            )

    return column


def csv(path: str) -> dict[str, Any]:
    import pandas as pd

    scores, spectrum = pd.read_csv(f"{path}-scores.csv"), pd.read_csv(f"{path}-spectrum.csv")
    of_components = [name for name in scores if re.fullmatch(r"score_\d+", str(name))]
    return {"scores": scores[of_components], "singular_values": spectrum["singular_values"]}


def npz(path: str) -> Mapping[str, Any]:
    found = np.load(path)
    return {name: found[name] for name in ("scores", "singular_values")}


def of_hdf5(path: str) -> dict[str, Any]:
    with h5py.File(path) as file:
        return {name: file[name][...] for name in ("scores", "singular_values")}


def of_netcdf(path: str) -> dict[str, Any]:
    with xr.open_dataset(path, engine="h5netcdf") as found:
        return {name: found[name].values for name in ("scores", "singular_values")}


def of_anndata(path: str) -> dict[str, Any]:
    import anndata

    found = anndata.read_h5ad(path)
    return {"scores": found.obsm["X_pca"], "explained_variance": found.uns["pca"]["variance"]}


def extend(of: Crossing) -> None:
    of.run()
    ok("extend", "r", of.new_file(), "--output", "more")
    found = arrays("more/result.zarr")["singular_values"]
    global N
    whole, N = N, ALL
    try:
        expected = np.linalg.svd(of.row.oracle(of.flat), compute_uv=False)
    finally:
        N = whole
    of.is_spectrum(found, expected)


def derive(of: Crossing) -> None:
    of.run()
    model = {
        "name": "one",
        "samples": [{"select": {"samples": [0, 1, 3, 5]}}],
        "model": {"kind": "pca", "n_components": 2},
    }
    Path("d.yaml").write_text(
        yaml.safe_dump({"from": "r", "analyses": [model], "components": True, "output": {"path": "d"}})
    )
    ok("derive", "d.yaml")
    some = of.centred[[0, 1, 3, 5]]
    some = some - some.mean(axis=0)
    found = arrays("d/result.zarr/one")
    np.testing.assert_allclose(found["singular_values"], np.linalg.svd(some, compute_uv=False)[:2], rtol=1e-8)


def from_gram(of: Crossing) -> None:
    of.run()
    of.config("k.yaml", "k", model={"kind": "kernel_pca", "kernel": "rbf", "gamma": 0.01, "n_components": 3})
    ok("run", "k.yaml", "--from-gram", "r")
    x = of.centred[:N] if of.name != "center: false" else of.flat[:N]
    kernel = np.exp(-0.01 * ((x[:, None] - x[None]) ** 2).sum(-1))
    h = np.eye(N) - 1 / N
    values = np.linalg.eigvalsh(h @ kernel @ h)[::-1][:3]
    np.testing.assert_allclose(arrays("k/result.zarr")["singular_values"] ** 2, values, rtol=1e-8)


def batch(of: Crossing) -> None:
    of.run()
    ok("batch", "init", "c.yaml", "--partitions", "2", "--set", "output.path=b")
    for _ in range(9):
        for index in range(2):
            with contextlib.suppress(Refused):  # a stage may have one partition
                ok("batch", "partition", "b", "--index", index)
        ok("batch", "finalize", "b")
        if Path("b/manifest.json").exists():
            break
    found, stored = arrays("b/result.zarr"), arrays("r/result.zarr")
    for name in ("singular_values", "scores"):
        np.testing.assert_allclose(found[name], stored[name], rtol=1e-9, atol=1e-9)


def submit(of: Crossing) -> None:
    assert "#SBATCH" in ok("submit", "c.yaml", "--dry-run")


def in_python(of: Crossing) -> None:
    fitted = of.fitted()
    of.is_spectrum(fitted.singular_values_)
    new = of.beside(slice(N, None))
    signs = np.sign((of.rows(fitted.transform(of.object, **of.beside(slice(0, N)))) * of.scores[:N]).sum(axis=0))
    with of_dpca_alone():
        found = fitted.transform(of.new_object, **new)
    np.testing.assert_allclose(of.rows(found), of.scores[N:] * np.asarray(signs), atol=1e-7)


def save_and_load(of: Crossing) -> None:
    fitted = of.fitted()
    fitted.save("saved")
    loaded = PCA.load("saved")
    np.testing.assert_array_equal(loaded.singular_values_, fitted.singular_values_)
    new = of.beside(slice(N, None))
    with of_dpca_alone():
        np.testing.assert_allclose(
            loaded.transform(of.new_object, **new), fitted.transform(of.new_object, **new), atol=1e-10
        )


def load(of: Crossing) -> None:
    of.run()
    loaded = PCA.load("r")
    of.is_spectrum(loaded.singular_values_)
    new = of.beside(slice(N, None))
    signs = np.sign((np.asarray(arrays("r/result.zarr")["scores"]) * of.scores[:N]).sum(axis=0))
    with of_dpca_alone():
        found = loaded.transform(of.new_object, **new)
    np.testing.assert_allclose(of.rows(found), of.scores[N:] * signs, atol=1e-7)


def open_gram(of: Crossing) -> None:
    of.run()
    found = dpca.open_gram("r").pca(2)
    plain = of.centred[:N] - of.centred[:N].mean(axis=0)
    expected = of.svd[1] if of.name == "missing: pairwise" else np.linalg.svd(plain, compute_uv=False)
    np.testing.assert_allclose(np.asarray(found.to_xarray()["singular_values"]), expected[:2], rtol=1e-8)


COLUMNS: dict[str, Callable[[Crossing], None]] = {
    "inspect": inspect,
    "init": init,
    "plan": plan,
    "run": run,
    "resume": stop_and_resume,
    "status": status,
    "report": report,
    "transform": transform,
    "reconstruct": reconstruct,
    "export csv": export("csv", csv),
    "export npz": export("npz", npz),
    "export hdf5": export("hdf5", of_hdf5),
    "export netcdf": export("netcdf", of_netcdf),
    "export anndata": export("anndata", of_anndata),
    "extend": extend,
    "derive": derive,
    "from-gram": from_gram,
    "batch": batch,
    "submit": submit,
    "PCA": in_python,
    "save": save_and_load,
    "load": load,
    "open_gram": open_gram,
}

DEPENDS = r"which depends on all samples: the kept Gram matrix has that of the old ones\s+Run on all files together"
IN_PYTHON = ("PCA", "save", "load")
REFUSED: list[tuple[str, tuple[str, ...], str]] = [
    (
        "side by side|block_scaling|regress_out, scale by labels",
        ("export anndata",),
        "is of the inputs a, b, side by side, but AnnData has one table of features",
    ),
    (
        "side by side|block_scaling|regress_out, scale by labels",
        ("from-gram",),
        "--from-gram is for results of one input, but input is a list",
    ),
    ("object store", ("extend",), "only a path is read because a result names it.*Name the old samples with --data"),
    ("object store", ("derive",), "only a path is read because a result names it.*Name it in the key `data`"),
    (
        r"\.bed.*|\.pgen|VCF Zarr",
        IN_PYTHON,
        "is a file of genotypes, whose chromosomes and alleles count, but arrays of dosages are allowed",
    ),
    ("sample weights", ("extend",), "ran with preprocess.sample_weights, and there are none of the new samples"),
    ("sample weights", ("from-gram",), "weights of samples are not defined for kernels here"),
    ("missing: mean", ("extend",), "ran with 2 missing values, which were replaced by the means of the old samples"),
    (r"missing: (drop|land|pairwise)|scale: .*|\.bed, plink2", ("extend",), DEPENDS),
    (
        "missing: pairwise",
        ("derive",),
        "operators along samples .* can't act on it\\s+Run again with preprocess.missing: mean",
    ),
    ("missing: pairwise", ("from-gram",), "missing is 'pairwise', which divides the Gram matrix entry by entry"),
    ("regress_out.*", ("extend",), "ran with preprocess.regress_out, whose fit is to the old samples"),
    ("labels", ("extend",), "ran with model.labels, and there are none of the new samples"),
    ("groups", ("extend",), "ran with groups of features for validation, which are not extended"),
    ("groups", ("from-gram",), "output.groups is set, but model.kind is kernel_pca"),
    ("center: false", ("from-gram",), "its Gram matrix is not about the mean, in which distances lose digits"),
]
"""Rows, as a pattern; columns; the sentence with which they refuse, as a pattern."""


def expected(row: str, column: str) -> str:
    """The pattern of what a cell does."""
    found = [sentence for rows, columns, sentence in REFUSED if re.fullmatch(rows, row) and column in columns]
    return found[0] if found else "="


def cell(of: Crossing, column: str) -> str:
    """What a cell does: `=`, or the sentence with which it refuses."""
    try:
        with patch.object(search, "SLAB_BYTES", of.row.slab_bytes), patch.object(search, "SLAB_WIDTH", 1):
            COLUMNS[column](of)
    except (Refused, dpca.errors.DpcaError) as refused:
        return str(refused)
    return "="


def main() -> None:
    """Print the table."""
    width, sentences = max(map(len, ROWS)), dict[str, int]()
    print(" " * width, *COLUMNS, sep="  ")
    for name in ROWS:
        with TemporaryDirectory() as place, contextlib.chdir(place):
            of, line = Crossing(name), []
            for column in COLUMNS:
                try:
                    found = cell(of, column)
                except Exception as error:
                    found = f"WRONG {type(error).__name__} {error}"
                number = "=" if found == "=" else str(sentences.setdefault(found, len(sentences) + 1))
                line.append(number.center(len(column)))
        print(name.ljust(width), *line, sep="  ", flush=True)
    for sentence, number in sentences.items():
        print(f"\n{number}: {sentence}")


if __name__ == "__main__":
    main()
