"""The benchmark: its cases load, and a small one runs as the large ones do."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from workflows.benchmarks.data import Case
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
    "gzip": "store: hdf5-gzip\nshape: [60, 20000]\nchunks: [60, 2000]\ndtype: float32\n",
    "shuffle": "store: hdf5-gzip-shuffle\nshape: [60, 20000]\nchunks: [60, 2000]\ndtype: float32\n",
}


@pytest.mark.long
def test_small_cases_are_measured_with_their_errors(tmp_path):
    for name, text in SMALL.items():
        Path(f"{name}.yaml").write_text(
            f"name: {name}\n{text}components: 5\nmemory: 1GiB\nrounds: 1\nmethods: [dpca_without_report, plain_dask]\n"
        )
    paths = [f"{name}.yaml" for name in SMALL]
    command = [sys.executable, "-m", "workflows.benchmarks.bench", *paths, "--seconds", "0.01"]
    done = subprocess.run(
        command, capture_output=True, text=True, env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("| dpca without report |") == len(SMALL)
    assert done.stdout.count("times h5py's own rate") == 2
    assert done.stdout.count("alone, cold") == 1
    report = json.loads(Path("dpca-bench/bench.json").read_text())
    assert all(seconds > 0 for seconds in report["start_up"].values())
    for case in report["cases"]:
        assert case["methods"]["dpca_without_report"][0]["error"] < 1e-5
        assert case["methods"]["plain_dask"][0]["error"] < 1e-3
        assert case["methods"]["dpca_without_report"][0]["bytes_read"] > 60 * 20000 * 4
        assert case["floor"][0]["seconds"] > 0
