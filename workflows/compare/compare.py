"""dpca beside the six lines of Dask that an expert would write, on the demo's data, interleaved."""

import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

import dask.array as da
import numpy as np
import zarr

DATA, ROUNDS, COMPONENTS = Path("dpca-demo/data.zarr"), 3, 10


def plain_dask() -> np.ndarray:
    """Singular values, and components to Zarr."""
    x = da.from_zarr(DATA)
    x = x - x.mean(axis=0)
    values, vectors = np.linalg.eigh((x @ x.T).compute())
    sigma, v = np.sqrt(values[::-1][:COMPONENTS]), vectors[:, ::-1][:, :COMPONENTS]
    shutil.rmtree("dpca-demo/plain.zarr", ignore_errors=True)
    ((v / sigma).T.astype("float32") @ x).to_zarr("dpca-demo/plain.zarr")
    return sigma


def dpca() -> np.ndarray:
    """The same by `dpca run`, start-up of Python included."""
    command = [sys.executable, "-m", "dpca", "run", "dpca-demo/demo.yaml", "--overwrite"]
    subprocess.run(command, check=True, capture_output=True)
    return np.asarray(zarr.open_group("dpca-demo/result/result.zarr", mode="r")["singular_values"])


def main() -> None:
    """Print median seconds and the error against the planted singular values."""
    if not DATA.exists():
        sys.exit("compare: run `make demo` first: it makes the data")
    shape = zarr.open_array(DATA, mode="r").shape
    truth = np.sqrt(shape[0] * shape[1]) * 0.8 ** np.arange(COMPONENTS)
    seconds: dict[str, list[float]] = {}
    error: dict[str, float] = {}
    for _ in range(ROUNDS):
        for method in (dpca, plain_dask):
            began = time.perf_counter()
            sigma = method()
            seconds.setdefault(method.__name__, []).append(time.perf_counter() - began)
            error[method.__name__] = float((abs(sigma - truth) / truth).max())
    for name, times in seconds.items():
        print(
            f"{name:10s} {statistics.median(times):6.1f} s ({min(times):.1f} to {max(times):.1f}), error {error[name]:.0e}"
        )


main()
