"""Data that fit in memory are read once."""

import json
from importlib.util import find_spec
from pathlib import Path

import h5py
import numpy as np
import pytest
import scipy.sparse
import zarr

from dpca import PCA, KernelPCA
from dpca import slabs as dpca_slabs
from dpca.planning import search
from dpca.sources import as_source, open_source
from dpca.sources.kept import KeptSource, Slabs
from tests.commands.calls import dpca
from tests.stores import bits, counted, random_array

X = random_array(0, (20, 20_000), "f4")


def test_regions_are_lent_again_and_counted_once():
    zarr.create_array("x.zarr", data=X, chunks=(20, 1000))
    source = KeptSource(open_source("x.zarr"))
    regions = [(slice(0, 20), slice(start, start + 5000)) for start in (0, 5000)]
    with source.open() as reader:
        first = [reader.read(region) for region in regions]
        for region, values in zip(regions, first, strict=True):
            np.testing.assert_array_equal(values, X[region])
        assert reader.bytes_read == 2 * first[0].nbytes
    with source.restrict(regions[1]).open() as reader:
        assert reader.read(regions[1]) is first[1]
        assert reader.bytes_read == 0


def test_memory_is_given_out_and_counted_under_a_lock():
    class Watched(Slabs):
        def __setattr__(self, name, value):
            if name in ("_free", "_bytes") and "_lock" in self.__dict__:
                assert self._lock.locked(), name
            super().__setattr__(name, value)

    slabs = Watched()
    for start in (0, 5000):
        region = (slice(0, 20), slice(start, start + 5000))
        np.testing.assert_array_equal(slabs.keep(region, X[region], 1.0), X[region])


def test_lines_of_a_sparse_matrix_are_lent_again_and_counted_once():
    few, many = (
        scipy.sparse.random_array((40, 60), density=share, rng=np.random.default_rng(0)) for share in (0.05, 0.5)
    )
    for x, as_lines in ((few.tocsc(), True), (many.tocsc(), False)):
        source, region = KeptSource(as_source(x)), (slice(0, 40), slice(10, 40))
        for _ in range(2):
            with source.restrict(region).open() as reader:
                lines = reader.read_lines(region)
                assert (lines is not None) == as_lines
                values = (
                    reader.read(region)
                    if lines is None
                    else scipy.sparse.csr_array((lines.values, lines.places, lines.ends), lines.shape).toarray().T
                )
                np.testing.assert_array_equal(values, x.toarray()[region])
                counted_bytes = reader.bytes_read
        assert counted_bytes == 0


def test_what_takes_longer_to_keep_than_to_read_is_not_kept():
    slabs, regions = Slabs(tried_bytes=X.nbytes), [(slice(0, 20), slice(start, start + 1)) for start in range(3)]
    for region in regions[:2]:  # to find out
        assert slabs.keep(region, X, read_seconds=0.0) is not X
    assert slabs.keep(regions[2], X, read_seconds=0.0) is X
    assert [slabs.get(region) is None for region in regions] == [False, False, True]
    fast = Slabs(tried_bytes=X.nbytes)
    for region in regions:
        assert fast.keep(region, X, read_seconds=1e9) is not X


@pytest.mark.parametrize("tall", [False, True])
def test_a_run_reads_data_that_fit_once_and_others_once_a_pass_with_the_same_bits(tall, monkeypatch, capsys):
    zarr.create_array("x.zarr", data=X.T[:3000] if tall else X, chunks=(1000, 20) if tall else (20, 1000))
    monkeypatch.setattr(dpca_slabs, "TILE_WIDTH", 1)
    text = "input: {uri: x.zarr}\nmodel: {n_components: 3}\noutput: {path: r}\n"
    Path("c.yaml").write_text(text)
    assert dpca("run", "c.yaml") == 0
    assert "features, 1 read of the data, then kept in memory, " in capsys.readouterr().out
    if find_spec("bokeh") and find_spec("jinja2"):
        assert dpca("report", "r") == 0
        assert "1 read of the data, then kept in memory, " in Path("r/report.html").read_text()
    manifest = json.loads(Path("r/manifest.json").read_text())
    size = (X[:, :3000] if tall else X).nbytes
    assert manifest["keeps_data"]
    assert manifest["counts"]["bytes_decoded"] == size
    kept = bits("r")
    monkeypatch.setattr(search, "keeping_data", lambda made, source: made)
    assert dpca("run", "c.yaml", "--overwrite") == 0
    assert "features, 2 reads of the data, " in capsys.readouterr().out
    assert json.loads(Path("r/manifest.json").read_text())["counts"]["bytes_decoded"] == 2 * size
    assert bits("r") == kept


def test_data_that_do_not_fit_the_budget_are_not_kept(capsys):
    zarr.create_array("x.zarr", shape=(100, 2**20), dtype="f4", chunks=(100, 10_000))
    Path("c.yaml").write_text("input: {uri: x.zarr}\nmodel: {n_components: 3}\noutput: {path: r}\n")
    for memory, keeps in (("400MiB", False), ("1GiB", True)):
        assert dpca("plan", "c.yaml", "--json", "--set", f"compute.memory={memory}") == 0
        document = json.loads(capsys.readouterr().out)
        assert document["reading"]["keeps_data"] == keeps
        assert document["bytes_read"] == (1 if keeps else 2) * 400 * 2**20
        assert document["memory"]["peak_bytes"] <= document["memory"]["budget_bytes"]
    assert dpca("plan", "c.yaml", "--json", "--set", "output.components=false") == 0
    assert not json.loads(capsys.readouterr().out)["reading"]["keeps_data"]  # one pass needs nothing kept


def test_the_estimator_reads_a_store_once():
    array, reads = counted(zarr.create_array({}, data=X, chunks=(20, 1000)))
    fit = PCA(3).fit(array)
    assert set(reads.values()) == {1}
    with h5py.File("x.h5", "w") as file:
        file.create_dataset("x", data=X, chunks=(20, 1000), compression="gzip")
        np.testing.assert_array_equal(PCA(3).fit(file["x"]).components_, fit.components_)


def test_absent_chunks_are_counted_each_time_that_a_region_is_lent():
    zarr.create_array("x.zarr", shape=(20, 4000), chunks=(20, 1000), dtype="f4")[:, 2000:] = X[:, :2000]
    source, regions = KeptSource(open_source("x.zarr")), [np.s_[0:20, 0:3000], np.s_[0:20, 3000:4000]]
    for _ in range(2):
        with source.open() as reader:
            for region in regions:
                reader.read(region)
            assert reader.absent_chunks == 2


@pytest.mark.long
@pytest.mark.parametrize(("kind", "tall"), [("zarr", False), ("zarr", True), ("hdf5", False)])
def test_chunks_that_were_never_written_are_counted_whichever_passes_read_them(kind, tall, monkeypatch):
    """As many by each solver and precision, from memory as from files; a climb reads kept slabs again."""
    n, d = (600, 40) if tall else (40, 600)
    u, _, vt = np.linalg.svd(random_array(0, (n, d), "f8"), full_matrices=False)
    x = (u * np.geomspace(1, 1e-9, len(vt))) @ vt  # single precision does not do
    x[:20, 20:40] = 0
    if kind == "zarr":
        stored = zarr.create_array("x.zarr", shape=x.shape, dtype="f8", chunks=(20, 20), fill_value=0)
        stored[...] = x
    else:
        stored = h5py.File("x.h5", "w").create_dataset("x", x.shape, "f8", chunks=(20, 20))
        for rows in range(0, n, 20):
            for columns in range(0, d, 20):
                if (rows, columns) != (0, 20):
                    stored[rows : rows + 20, columns : columns + 20] = x[rows : rows + 20, columns : columns + 20]
    ways = [(solver, precision) for solver in ("auto", "gram_eigh", "block_krylov") for precision in ("auto", "double")]
    for kept in (True, False):
        if not kept:
            monkeypatch.setattr(search, "keeping_data", lambda made, source: made)
        for missing in ("error", "mean"):
            for solver, precision in [*ways, ("tsqr", "double")]:
                if solver == "block_krylov" and missing == "mean":
                    continue
                fitted = PCA(12, svd_solver=solver, precision=precision, missing=missing).fit(stored)
                manifest = fitted._result.manifest
                assert manifest["keeps_data"] == kept
                assert (manifest["counts"]["absent_chunks"], solver, precision) == (1, solver, precision)
            for precision in ("auto", "double"):
                fitted = KernelPCA(5, precision=precision, missing=missing).fit(stored)
                assert fitted._result.manifest["counts"]["absent_chunks"] == 1
