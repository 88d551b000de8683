"""dpca beside scanpy on cells by genes: a sparse matrix in AnnData, made here.

    python -m workflows.benchmarks.cells --cells 200000 --genes 2000
    python -m workflows.benchmarks.cells --depth 0.2

Writes counts of a negative binomial distribution, log(1 + x), as an .h5ad of rows (CSR), a part of the cells at a time. Then every
method runs in a process of its own; seconds and memory are of the whole process, imports and files included.
"""

import argparse
import json
import shutil
import sys
from pathlib import Path

import h5py
import numpy as np
import scipy.sparse
import zarr

from workflows.watch import watch

PART_VALUES, TYPES, DISPERSION, COMPONENTS = 20_000_000, 12, 0.5, 50
LIMIT_SECONDS, LIMIT_BYTES = 900, 2**35

CONFIG = """input: {{uri: {data}, array: X}}
model: {{n_components: {components}}}
compute: {{memory: 2GiB}}
output: {{path: {out}/result, report: false}}
"""
SCANPY = """import scanpy, json, sys
data, out, components, solver = sys.argv[1:]
cells = scanpy.read_h5ad(data)
scanpy.pp.pca(cells, n_comps=int(components), svd_solver=solver)
json.dump(cells.uns["pca"]["variance"].tolist(), open(f"{out}/variance.json", "w"))
del cells.X
cells.write_h5ad(f"{out}/pca.h5ad")
"""


def counts(rng: np.random.Generator, n_cells: int, means: np.ndarray) -> scipy.sparse.csr_array:
    """log(1 + x) of negative binomial counts, (n_cells, genes) float32: each cell is of a type, and has a depth."""
    rates = means[rng.integers(0, len(means), n_cells)] * rng.lognormal(0, 0.3, (n_cells, 1)).astype("f4")
    rates *= rng.standard_gamma(1 / DISPERSION, rates.shape, "f4") * DISPERSION
    return scipy.sparse.csr_array(np.log1p(rng.poisson(rates).astype("f4")))


def make(path: Path, n_cells: int, n_genes: int, depth: float = 1.0) -> float:
    """Write the cells, part by part, of means that are multiplied by `depth`; returns the share of values that are stored."""
    rng = np.random.default_rng(0)
    means = (rng.lognormal(-3.0, 1.0, n_genes) * rng.lognormal(0, 0.5, (TYPES, n_genes)) * depth).astype("f4")
    with h5py.File(path, "w") as file:
        file.attrs.update({"encoding-type": "anndata", "encoding-version": "0.1.0"})
        for name, length, prefix in (("obs", n_cells, "cell"), ("var", n_genes, "gene")):
            table = file.create_group(name)
            table.attrs.update({"encoding-type": "dataframe", "encoding-version": "0.2.0", "_index": "_index"})
            table.attrs["column-order"] = np.array([], "f8")
            labels = table.create_dataset("_index", data=[f"{prefix} {i}" for i in range(length)])
            labels.attrs.update({"encoding-type": "string-array", "encoding-version": "0.2.0"})
        group = file.create_group("X")
        group.attrs.update({"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": [n_cells, n_genes]})
        for name, dtype in (("data", "f4"), ("indices", "i4")):
            group.create_dataset(name, (0,), dtype, maxshape=(None,), chunks=(2**17,))
        ends: list[np.ndarray] = [np.zeros(1, "i8")]
        step = max(1, PART_VALUES // n_genes)
        for start in range(0, n_cells, step):
            part = counts(rng, min(step, n_cells - start), means)
            for name in ("data", "indices"):
                group[name].resize(int(ends[-1][-1]) + part.nnz, axis=0)
                group[name][-part.nnz :] = getattr(part, name)
            ends.append(ends[-1][-1] + part.indptr[1:].astype("i8"))
        indptr = np.concatenate(ends)  # as scipy has it: of the type of the indices, where it can be
        group["indptr"] = indptr.astype("i4") if indptr[-1] < 2**31 else indptr
        return float(ends[-1][-1] / n_cells / n_genes)


def variances(out: Path) -> np.ndarray:
    """What a method found."""
    if (out / "result").exists():
        return zarr.open_array(out / "result/result.zarr/explained_variance", mode="r")[...]
    return np.array(json.loads((out / "variance.json").read_text(encoding="utf-8")))


def main() -> None:
    """Make the cells, unless they are there, and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=int, default=200_000)
    parser.add_argument("--genes", type=int, default=2000)
    parser.add_argument("--depth", type=float, default=1.0, help="factor of the counts: fewer values are stored")
    parser.add_argument("--directory", type=Path, default=Path("dpca-bench"))
    parser.add_argument("--rounds", type=int, default=1)
    given = parser.parse_args()
    directory = given.directory.absolute()
    directory.mkdir(parents=True, exist_ok=True)
    data, out = directory / f"{given.cells}x{given.genes}x{given.depth:g}.h5ad", directory / "out"
    if not data.exists():
        aside = data.with_suffix(".partial")
        print(f"{100 * make(aside, given.cells, given.genes, given.depth):.1f} % of the values are stored", flush=True)
        aside.rename(data)
    config = directory / "cells.yaml"
    config.write_text(CONFIG.format(data=data, out=out, components=COMPONENTS), encoding="utf-8")
    scanpy = [sys.executable, "-c", SCANPY, str(data), str(out), str(COMPONENTS)]
    methods = {
        "dpca run": [sys.executable, "-m", "dpca", "run", str(config)],
        "scanpy.pp.pca, arpack": [*scanpy, "arpack"],
        "scanpy.pp.pca, covariance_eigh": [*scanpy, "covariance_eigh"],
    }
    print(
        "| method | seconds | CPU | memory | variances differ from the first by |\n| --- | --- | --- | --- | --- |",
        flush=True,
    )
    first = None
    for _ in range(given.rounds):
        for name, command in methods.items():
            shutil.rmtree(out, ignore_errors=True)
            out.mkdir()
            done = watch(command, LIMIT_SECONDS, LIMIT_BYTES)
            if done.code:
                print(f"| {name} | {(done.said.strip().splitlines() or ['?'])[-1][:200]} | | | |", flush=True)
                continue
            found = variances(out)
            first = found if first is None else first
            error = np.abs(found / first - 1).max()
            cost = f"{done.seconds:.1f} | {done.cpu_seconds:.1f}"
            print(f"| {name} | {cost} | {done.peak_bytes / 2**30:.2f} GiB | {error:.0e} |", flush=True)
    shutil.rmtree(out, ignore_errors=True)


if __name__ == "__main__":
    main()
