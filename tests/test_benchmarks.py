"""The benchmark: its cases load, and a small one runs as the large ones do."""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import zarr
from ruamel.yaml import YAML
from threadpoolctl import threadpool_limits

from workflows.benchmarks.bench import break_even, judged, measure, table
from workflows.benchmarks.data import (
    Case,
    Streamed,
    block_of,
    dense_eigenvalues,
    lobpcg_eigenvalues,
    make,
    make_bed,
    remove,
    ritz_values,
)
from workflows.benchmarks.methods import METHODS

ROOT = Path(__file__).parents[1]
CASES = sorted((ROOT / "configs" / "benchmarks").glob("*.yaml"))


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.name)
def test_every_case_loads_and_names_methods_that_exist(path):
    case = Case.of(YAML(typ="safe").load(path))
    assert set(case.methods) <= set(METHODS)
    assert case.bytes > 0


SMALL = {
    "zarr": "store: zarr-zstd\nshape: [60, 20000]\nchunks: [60, 2000]\ndtype: float32\n",
    "cold, two feature axes": "store: zarr-zstd\nshape: [60, 100, 200]\nchunks: [20, 30, 70]\ndtype: float64\ncold: true\n",
    "shuffle": "store: hdf5-gzip-shuffle\nshape: [60, 20000]\nchunks: [60, 2000]\ndtype: float32\n",
}


@pytest.mark.long
def test_small_cases_are_measured_with_their_errors(tmp_path):
    in_python = ["dpca_fit", "dpca_fit_dask", "numpy_dual", "sklearn_fit"]
    for name, text in SMALL.items():
        methods = ["dpca_without_report", "plain_dask", *(in_python if name == "zarr" else [])]
        Path(f"{name}.yaml").write_text(
            f"name: {name}\n{text}components: 5\nmemory: 1GiB\nrounds: 1\nmethods: [{', '.join(methods)}]\n"
        )
    paths = [f"{name}.yaml" for name in SMALL]
    command = [sys.executable, "-m", "workflows.benchmarks.bench", *paths, "--seconds", "0.01"]
    done = subprocess.run(
        command, capture_output=True, text=True, env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("| dpca without report |") == len(SMALL)
    assert done.stdout.count("times h5py's own rate") == 1
    assert done.stdout.count("alone, cold") == 1
    report = json.loads(Path("dpca-bench/bench.json").read_text())
    assert all(seconds > 0 for seconds in report["start_up"].values())
    for case in report["cases"]:
        assert case["methods"]["dpca_without_report"][0]["error"] < 1e-5
        assert all(run["error"] < 1e-3 and run["cpu"] > 0 for (run,) in case["methods"].values())
        assert case["methods"]["dpca_without_report"][0]["bytes_read"] > 60 * 20000 * 4
        assert case["floor"][0]["seconds"] > 0


ITERATED = {
    "populations": {"shape": [300, 2000], "dtype": "int8", "chunks": [300, 100]},
    "fields": {"shape": [300, 2000], "dtype": "float32", "chunks": [100, 500]},
}
PACKAGES = {"dpca_krylov": "bokeh", "dpca_gram": "bokeh", "dask_ml_randomized": "dask_ml"}
"""What methods need that may not be installed."""
PEERS = {
    "populations": ["scipy_svds", "winsvd", "winsvd_closer"],
    "fields": [
        "sklearn_arpack",
        "sklearn_randomized",
        *(name for name, package in PACKAGES.items() if find_spec(package)),
    ],
}
"""Each method beside dpca's on one of the data: it takes either alike, and PCAone one of them."""
LOOSE = {"winsvd": 1e-2, "winsvd_closer": 1e-5, "sklearn_randomized": 1e-2, "dask_ml_randomized": 1}
"""Errors beyond those of the others."""
STAND_IN = f"""#!{sys.executable}
import sys
import numpy as np
stem, out = (sys.argv[1 + sys.argv.index(option)] for option in ("-b", "-o"))
k = int(sys.argv[1 + sys.argv.index("-k")])
n = len(open(stem + ".fam").readlines())
raw = np.fromfile(stem + ".bed", np.uint8)[3:].reshape(len(open(stem + ".bim").readlines()), -1)
codes = np.stack([raw >> shift & 3 for shift in (0, 2, 4, 6)], axis=-1).reshape(len(raw), -1)[:, :n]
x = np.array([2.0, np.nan, 1.0, 0.0])[codes].T
np.savetxt(out + ".eigvecs", np.linalg.svd(x - x.mean(axis=0))[0][:, :k], fmt="%.6g", delimiter="\\t")
print("stops at epoch=7")
"""
"""Takes and gives what PCAone does."""


def iterated(data, **changed):
    document = {"name": data, "store": "zarr-zstd", "data": data, "components": 5, "memory": "1GiB", "rounds": 1}
    return {**document, "iterates": True, "methods": ["dpca_krylov"], **ITERATED[data], **changed}


@pytest.fixture(params=ITERATED)
def stored(request, tmp_path):
    case = Case.of(iterated(request.param))
    return case, make(case, tmp_path)


def test_data_are_streamed_as_they_are_made(stored):
    case, data = stored
    with threadpool_limits(1, user_api="blas"):  # as they were made: more threads may round in another way
        made = np.hstack([block_of(case, start, stop) for _, start, stop in case.blocks])
    np.testing.assert_array_equal(zarr.open_array(data, mode="r")[...], made)
    x = made - made.mean(axis=0, dtype=float)
    k, q = Streamed(data), np.random.default_rng(0).standard_normal((case.samples, 3))
    np.testing.assert_allclose(k @ q, x @ (x.T @ q), rtol=1e-9)
    assert k.passes == 1


def test_eigenvalues_by_lobpcg_are_those_of_the_dense_matrix(stored):
    case, data = stored
    exact = dense_eigenvalues(case, data)
    assert min(-np.diff(exact) / exact[1:]) > 1e-3
    np.testing.assert_allclose(lobpcg_eigenvalues(data, case.components), exact, rtol=1e-12)


def test_genotypes_are_written_as_a_bed_and_removed_with_the_data(tmp_path):
    case = Case.of(iterated("populations"))
    data = make(case, tmp_path)
    assert set(np.unique(zarr.open_array(data, mode="r")[...])) == {0, 1, 2}
    make_bed(case, tmp_path)
    assert data.with_suffix(".bed").stat().st_size == 3 + case.features * -(-case.samples // 4)
    remove(case, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_vectors_are_worth_the_eigenvalues_that_they_have(stored):
    case, data = stored
    x = zarr.open_array(data, mode="r")[...].astype(float)
    vectors = np.linalg.svd(x - x.mean(axis=0), full_matrices=False)[0][:, :5]
    rounded = np.array([[float(f"{value:.6g}") for value in row] for row in vectors])
    np.testing.assert_allclose(ritz_values(data, rounded), dense_eigenvalues(case, data), rtol=1e-9)


def test_a_bound_that_does_not_hold_is_found_out():
    run = {"eigenvalues": [2.0, 1.0], "bounds": [1e-6, None], "reliable": [True, False]}
    assert judged(run, [2.0 + 1e-6, 1.5]) == {"certified": 1, "bounds_hold": True}
    assert judged(run, [2.0 + 1e-5, 1.0]) == {"certified": 1, "bounds_hold": False}
    assert judged({"eigenvalues": [2.0]}, [2.0]) == {}


def test_the_break_even_lies_where_a_line_through_two_cases_crosses_one():
    def case(samples, krylov, gram):
        methods = {"dpca_krylov": [{"seconds": krylov}], "dpca_gram": [{"seconds": gram}]}
        return {"case": {"shape": [samples, 10]}, "methods": methods}

    assert break_even([case(5000, 20.0, 10.0), case(20_000, 10.0, 20.0)]).endswith("break-even at some 10,000")
    three = [case(1000, 20.0, 10.0), case(5000, 20.0, 10.0), case(20_000, 10.0, 20.0)]
    assert break_even(three).endswith("2.00 of the time at 5,000 samples, 0.50 at 20,000; break-even at some 10,000")
    assert break_even([case(5000, 9.0, 10.0), case(20_000, 10.0, 20.0)]).endswith("no break-even between them")
    assert break_even([case(5000, 9.0, 10.0)]) is None


@pytest.mark.long
@pytest.mark.parametrize("data", ITERATED)
def test_small_cases_of_iterations_are_measured_with_their_passes(data, tmp_path, monkeypatch):
    program = tmp_path / "bin" / "PCAone"
    program.parent.mkdir()
    program.write_text(STAND_IN)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    named = ["dpca_krylov_without_report", "dpca_gram_without_report", "pcaone", *PEERS[data]]
    document = iterated(data, methods=named)
    measured = measure(Case.of(dict(document)), document, tmp_path, 0.01)
    methods = {name: runs[0] for name, runs in measured["methods"].items()}
    if data == "fields":
        assert methods.pop("pcaone") == {"failed": "other data than genotypes it reads as text alone"}
    assert not [run for run in methods.values() if "failed" in run]
    for name, run in methods.items():
        assert run["error"] < LOOSE.get(name, 1e-5), name
        assert run["error_of_10"] == run["error"]
        if name.startswith("dpca"):
            assert run["bounds_hold"]
            assert run["planned_bytes"] > 0
    assert methods["dpca_krylov_without_report"]["certified"] >= 4
    assert 3 <= methods["dpca_krylov_without_report"]["passes"] <= 12
    assert methods["dpca_gram_without_report"]["passes"] == 2
    if data == "populations":
        assert methods["scipy_svds"]["passes"] > 12
        assert 2 < methods["winsvd"]["passes"] <= methods["winsvd_closer"]["passes"]
        assert methods["pcaone"]["passes"] == 7
    shown = table(measured)
    assert shown.count(" of 5 | yes |") == sum(name.startswith("dpca") for name in methods)
    assert "5 of 5 within what both are certain of" in shown
