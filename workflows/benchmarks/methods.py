"""One method on one case, in a process of its own: `python -m workflows.benchmarks.methods METHOD CASE DATA OUT`.

Prints JSON: seconds without imports, bytes read, and the leading eigenvalues of the Gram matrix (or a file of vectors that have them);
passes over the data, where they are known.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from dask.utils import parse_bytes

Found = dict[str, Any]
METHODS: dict[str, Callable[..., Found]] = {}

WINDOWS, SPARE, EPOCHS, CHANGE = 64, 10, 40, 1e-4
"""PCAone's defaults: windows, columns beyond the components at least, passes at most, and the change of vectors at which it stops."""


def method(function: Callable[..., Callable[[], Found]]) -> Callable[..., Callable[[], Found]]:
    """Name a method: the function imports what it needs and returns what is then timed."""
    METHODS[function.__name__] = function
    return function


def lazy(case: Found, data: str) -> Any:
    """The data as a Dask array, features along one axis: in their own chunks, unless each is of one sample."""
    import dask.array as da

    x = stored(case, data)
    if case["chunks"][0] == 1:  # as Dask's own advice has it: products of all pairs of samples would be tasks
        x = x.rechunk({0: -1, 1: "auto"})
    return x.reshape(len(x), -1) if x.ndim > 2 else da.asarray(x)


def stored(case: Found, data: str) -> Any:
    """The data as a Dask array in their own chunks."""
    import dask.array as da
    import h5py

    return da.from_zarr(data) if data.endswith(".zarr") else da.from_array(h5py.File(data)["x"], chunks=case["chunks"])


def whole(data: str) -> Any:
    """The data in memory, integers as float32."""
    import h5py
    import zarr

    x = zarr.open_array(data, mode="r")[...] if data.endswith(".zarr") else h5py.File(data)["x"][...]
    x = x.astype("float32") if x.dtype.kind in "iu" else x
    return x.reshape(len(x), -1)


@method
def dpca(case: Found, data: str, out: str) -> Callable[[], Found]:
    """`dpca run`, report and all, in this process."""
    return _dpca(case, data, out, report=True)


@method
def dpca_without_report(case: Found, data: str, out: str) -> Callable[[], Found]:
    """The same with output.report: false."""
    return _dpca(case, data, out, report=False)


@method
def dpca_krylov(case: Found, data: str, out: str) -> Callable[[], Found]:
    """`dpca run` by block Krylov, report and all, to its usual tolerance."""
    return _dpca(case, data, out, report=True, solver="block_krylov")


@method
def dpca_krylov_without_report(case: Found, data: str, out: str) -> Callable[[], Found]:
    """The same with output.report: false."""
    return _dpca(case, data, out, report=False, solver="block_krylov")


@method
def dpca_gram(case: Found, data: str, out: str) -> Callable[[], Found]:
    """`dpca run` by the n x n matrix, report and all."""
    return _dpca(case, data, out, report=True, solver="gram_eigh")


@method
def dpca_gram_without_report(case: Found, data: str, out: str) -> Callable[[], Found]:
    """The same with output.report: false."""
    return _dpca(case, data, out, report=False, solver="gram_eigh")


def _dpca(case: Found, data: str, out: str, report: bool, solver: str = "auto") -> Callable[[], Found]:
    import zarr

    from dpca.cli.app import commands
    from dpca.errors import NotConverged

    config = Path(f"{out}.yaml")
    config.write_text(
        f"input: {{uri: {data}}}\nmodel: {{n_components: {case['components']}, svd_solver: {solver}}}\n"
        f"compute: {{memory: {case['memory']}}}\noutput: {{path: {out}, gram: false, report: {str(report).lower()}}}\n",
        encoding="utf-8",
    )

    def run() -> Found:
        with suppress(NotConverged):  # the result is there, and its bounds say so
            commands.main(["run", str(config)], standalone_mode=False)
        if report and not (Path(out) / "report.html").exists():
            raise RuntimeError("no report was drawn: install the extra `report`")
        manifest = json.loads((Path(out) / "manifest.json").read_text(encoding="utf-8"))
        sigma = zarr.open_group(f"{out}/result.zarr", mode="r")["singular_values"][...]
        found = {"eigenvalues": (sigma**2).tolist(), "stages": manifest["seconds"], "counts": manifest["counts"]}
        if not case.get("iterates"):
            return found
        components = json.loads((Path(out) / "certificate.json").read_text(encoding="utf-8"))["components"]
        return {
            **found,
            "passes": manifest["counts"]["passes"],
            "planned_bytes": sum(manifest["memory"]["planned_bytes"].values()),
            "reliable": [one["reliable"] for one in components],
            "bounds": [bound_of(one) for one in components],
        }

    return run


def bound_of(component: Found) -> float | None:
    """The relative error of an eigenvalue that a certificate grants; None for any."""
    if "bound" in component:
        bound: float | None = component["bound"]
        return bound
    return 2 * 10.0 ** -component["digits"]


@method
def plain_dask(case: Found, data: str, out: str) -> Callable[[], Found]:
    """The six lines that an expert would write."""
    import dask.array  # noqa: F401
    import numpy as np

    def run() -> Found:
        x, k = lazy(case, data), case["components"]
        x = x.astype("float32") if x.dtype.kind in "iu" else x
        x = x - x.mean(axis=0)
        values, vectors = np.linalg.eigh((x @ x.T).compute())
        values, v = values[::-1][:k], vectors[:, ::-1][:, :k]
        ((v / np.sqrt(values)).T.astype(x.dtype) @ x).to_zarr(f"{out}/components.zarr")
        return {"eigenvalues": values.tolist()}

    return run


@method
def dpca_fit(case: Found, data: str, out: str) -> Callable[[], Found]:
    """dpca.PCA of an array that is in memory already."""
    from dpca import PCA

    return _fit(PCA(case["components"]), whole(data), out)


@method
def dpca_fit_dask(case: Found, data: str, out: str) -> Callable[[], Found]:
    """dpca.PCA of a Dask array."""
    from dpca import PCA

    return _fit(PCA(case["components"]), lazy(case, data), out)


@method
def sklearn_fit(case: Found, data: str, out: str) -> Callable[[], Found]:
    """scikit-learn's PCA with its defaults, of an array that is in memory already."""
    from sklearn.decomposition import PCA

    return _fit(PCA(case["components"]), whole(data), out)


def _fit(estimator: Any, x: Any, out: str) -> Callable[[], Found]:
    import numpy as np

    def run() -> Found:
        fit = estimator.fit(x)
        np.save(f"{out}/components.npy", fit.components_)
        return {"eigenvalues": (fit.singular_values_.astype(float) ** 2).tolist()}

    return run


@method
def numpy_dual(case: Found, data: str, out: str) -> Callable[[], Found]:
    """The four lines for more features than samples, of an array that is in memory already."""
    import numpy as np

    x = whole(data)

    def run() -> Found:
        c = x - x.mean(axis=0)
        values, vectors = np.linalg.eigh(c @ c.T)
        values, vectors = values[::-1][: case["components"]], vectors[:, ::-1][:, : case["components"]]
        np.save(f"{out}/components.npy", (vectors / np.sqrt(values)).T @ c)
        return {"eigenvalues": values.astype(float).tolist()}

    return run


@method
def sklearn_randomized(case: Found, data: str, out: str) -> Callable[[], Found]:
    """scikit-learn's PCA, randomized, on all of the data in memory."""
    import numpy as np
    from sklearn.decomposition import PCA

    def run() -> Found:
        fit = PCA(case["components"], svd_solver="randomized", random_state=0).fit(whole(data))
        np.save(f"{out}/components.npy", fit.components_)
        return {"eigenvalues": (fit.singular_values_.astype(float) ** 2).tolist()}

    return run


@method
def sklearn_arpack(case: Found, data: str, out: str) -> Callable[[], Found]:
    """scikit-learn's PCA by arpack, on all of the data in memory."""
    import numpy as np
    from sklearn.decomposition import PCA

    def run() -> Found:
        fit = PCA(case["components"], svd_solver="arpack", random_state=0).fit(whole(data))
        np.save(f"{out}/components.npy", fit.components_)
        return {"eigenvalues": (fit.singular_values_.astype(float) ** 2).tolist()}

    return run


@method
def scipy_svds(case: Found, data: str, out: str) -> Callable[[], Found]:
    """arpack as scipy's svds uses it, of products in float32 that are streamed: X_c (X_c' q) in one pass for each vector."""
    import numpy as np
    from scipy.sparse.linalg import eigsh

    from workflows.benchmarks.data import Streamed

    def run() -> Found:
        k = Streamed(Path(data), np.float32)
        v0 = np.random.default_rng(0).standard_normal(k.array.shape[0]).astype(np.float32)
        values, vectors = eigsh(k.operator(), case["components"], v0=v0)
        np.save(f"{out}/vectors.npy", vectors)
        return {"eigenvalues": values[::-1].astype(float).tolist(), "passes": k.passes}

    return run


@method
def winsvd(case: Found, data: str, out: str) -> Callable[[], Found]:
    """The windowed randomized SVD of PCAone, as its paper has it and with its defaults, of products in float32 that are streamed as arpack's are.

    Z. Li, J. Meisner and A. Albrechtsen, Fast and accurate out-of-core PCA framework for large scale biobank data, Genome Research 33, 2023,
    algorithm 2. Passes and errors are those of the algorithm; the speed of PCAone only its program has.
    """
    return _winsvd(case, data, out, CHANGE)


@method
def winsvd_closer(case: Found, data: str, out: str) -> Callable[[], Found]:
    """The same, until vectors change by 1e-8 instead of 1e-4."""
    return _winsvd(case, data, out, CHANGE**2)


def _winsvd(case: Found, data: str, out: str, change: float) -> Callable[[], Found]:
    import numpy as np

    from workflows.benchmarks.data import Streamed

    def run() -> Found:
        k, count = Streamed(Path(data), np.float32, together=1), case["components"]
        samples, features = k.array.shape
        columns = min(count + max(count, SPARE), samples - 1)
        shuffled = np.random.default_rng(1).permutation(len(k.parts))
        n_windows = min(WINDOWS, len(shuffled))
        of_windows = [[k.parts[number] for number in some] for some in np.array_split(shuffled, n_windows)]
        omega = np.random.default_rng(2).standard_normal((samples, columns))
        along, before = np.zeros((features, columns)), None
        halves = [np.zeros((samples, columns)), np.zeros((samples, columns))]
        for epoch in range(EPOCHS):
            band = min(2 ** (epoch + 1), n_windows)
            if band == n_windows:
                halves = [np.zeros_like(half) for half in halves]
            inside = 0
            for number, parts in enumerate(of_windows):
                halves[inside >= band // 2] += k.times(omega, parts, along)
                inside += 1
                if number + 1 >= band and inside in (band // 2, band):
                    total = halves[0] + halves[1]
                    omega = np.linalg.qr(total)[0]
                    ended = inside == band
                    halves[0 if ended else 1][...] = 0
                    inside = 0 if ended else inside
            # The eigenvectors of (X'Omega)(X'Omega)' on its span: from X'Omega = Q R, and X X'Omega R^-1.
            triangle = np.linalg.qr(along, mode="r")
            vectors, sigma, _ = np.linalg.svd(np.linalg.solve(triangle.T, total.T).T, full_matrices=False)
            vectors = vectors[:, :count]
            explained = 0.0 if before is None else float(np.linalg.norm(before.T @ vectors, axis=0).mean())
            if 1 - explained < change and 2**epoch >= n_windows:
                break
            before = vectors
        np.save(f"{out}/vectors.npy", vectors)
        return {"eigenvalues": (sigma[:count] ** 2).tolist(), "passes": epoch + 1}

    return run


@method
def pcaone(case: Found, data: str, out: str) -> Callable[[], Found]:
    """PCAone's winSVD out of core, on genotypes as PLINK has them; from 0.5.1 on, where it can do without scaling.

    It writes six digits, fewer than its vectors are worth, so that its error is that of the eigenvalues of K on their span.
    """
    program, stem = shutil.which("PCAone"), Path(data).with_suffix("")
    if program is None:
        sys.exit("PCAone is not found")
    if not stem.with_suffix(".bed").exists():
        sys.exit("other data than genotypes it reads as text alone")
    command = [
        program,
        "-b",
        str(stem),
        "-k",
        str(case["components"]),
        "--svd",
        "2",
        "--scale",
        "0",
        "-n",
        str(os.cpu_count()),
    ]
    command += ["-m", f"{parse_bytes(case['memory']) / 2**30:g}", "-o", f"{out}/pcaone"]

    def run() -> Found:
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{done.stdout}{done.stderr}")
        epochs = re.findall(r"stops at epoch\D*(\d+)", done.stdout + done.stderr)
        return {"vectors": f"{out}/pcaone.eigvecs", "passes": int(epochs[-1]) if epochs else None}

    return run


@method
def sklearn_incremental(case: Found, data: str, out: str) -> Callable[[], Found]:
    """scikit-learn's IncrementalPCA, batches of samples from memory."""
    import numpy as np
    from sklearn.decomposition import IncrementalPCA

    def run() -> Found:
        fit = IncrementalPCA(case["components"], batch_size=5 * case["components"]).fit(whole(data))
        np.save(f"{out}/components.npy", fit.components_)
        return {"eigenvalues": (fit.singular_values_.astype(float) ** 2).tolist()}

    return run


@method
def dask_ml_randomized(case: Found, data: str, out: str) -> Callable[[], Found]:
    """dask-ml's PCA, randomized."""
    return _dask_ml("randomized", case, data, out)


@method
def dask_ml_tsqr(case: Found, data: str, out: str) -> Callable[[], Found]:
    """dask-ml's PCA by TSQR, which wants tall data: of the transpose, centred beforehand."""
    return _dask_ml("tsqr", case, data, out)


def _dask_ml(solver: str, case: Found, data: str, out: str) -> Callable[[], Found]:
    import numpy as np
    from dask_ml.decomposition import PCA

    def run() -> Found:
        x = lazy(case, data).rechunk({0: -1, 1: -1} if solver == "randomized" else {0: -1})
        x = x.astype("float32") if x.dtype.kind in "iu" else x
        fit = PCA(case["components"], svd_solver=solver, random_state=0).fit(x)
        np.save(f"{out}/components.npy", np.asarray(fit.components_))
        return {"eigenvalues": (np.asarray(fit.singular_values_, float) ** 2).tolist()}

    return run


@method
def svd_compressed(case: Found, data: str, out: str) -> Callable[[], Found]:
    """da.linalg.svd_compressed with two power iterations, of the centred data."""
    import dask.array as da
    import numpy as np

    def run() -> Found:
        x = lazy(case, data)
        x = x - x.mean(axis=0)
        _, s, v = da.linalg.svd_compressed(x, case["components"], n_power_iter=2, seed=0)
        s, v = da.compute(s, v)
        np.save(f"{out}/components.npy", v)
        return {"eigenvalues": (s.astype(float) ** 2).tolist()}

    return run


@method
def xeofs_eof(case: Found, data: str, out: str) -> Callable[[], Found]:
    """xeofs' EOF, as its documentation has it for large data."""
    import numpy as np
    import xarray as xr
    import xeofs

    def run() -> Found:
        values = stored(case, data)
        dims = ("time", "lat", "lon")[: values.ndim]
        coords = {dim: np.arange(length) for dim, length in zip(dims, values.shape, strict=True)}  # it can't do without
        x = xr.DataArray(values, dims=dims, name="x", coords=coords)
        model = xeofs.single.EOF(n_modes=case["components"], random_state=0)
        model.fit(x, dim="time")
        np.save(f"{out}/components.npy", model.components().values)
        return {"eigenvalues": (model.singular_values().values.astype(float) ** 2).tolist()}

    return run


def bytes_read() -> int:
    """Of this process, from disk or page cache."""
    lines = Path("/proc/self/io").read_text(encoding="ascii").split()
    return int(lines[lines.index("rchar:") + 1])


def main() -> None:
    """Run it."""
    name, case, data, out = sys.argv[1:]
    if not name.startswith("dpca") or name.startswith("dpca_fit"):
        Path(out).mkdir(parents=True)
    run = METHODS[name](json.loads(case), data, out)
    before, began = bytes_read(), time.perf_counter()
    found = run()
    seconds = time.perf_counter() - began
    print("RESULT " + json.dumps({**found, "seconds": seconds, "bytes_read": bytes_read() - before}))


if __name__ == "__main__":
    main()
