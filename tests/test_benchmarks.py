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


@pytest.mark.parametrize("case", SMALL)
def test_a_small_case_is_measured_with_its_error(case, tmp_path):
    Path("small.yaml").write_text(
        f"name: small\n{SMALL[case]}components: 5\nmemory: 1GiB\nrounds: 1\nmethods: [dpca, plain_dask]\n"
    )
    command = [sys.executable, "-m", "workflows.benchmarks.bench", "small.yaml", "--seconds", "0.01"]
    done = subprocess.run(
        command, capture_output=True, text=True, env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}
    )
    assert done.returncode == 0, done.stderr
    assert "| dpca |" in done.stdout
    assert ("times h5py's own rate" in done.stdout) == (case in ("gzip", "shuffle"))
    assert ("alone, cold" in done.stdout) == case.startswith("cold")
    (case,) = json.loads(Path("dpca-bench/bench.json").read_text())["cases"]
    assert case["methods"]["dpca"][0]["error"] < 1e-5
    assert case["methods"]["plain_dask"][0]["error"] < 1e-3
    assert case["methods"]["dpca"][0]["bytes_read"] > 60 * 20000 * 4
    assert case["floor"][0]["seconds"] > 0
