"""Small results of every kind, by the code of a commit: run by `make.py` as a program, in the folder where they go.

It calls what every commit has, the command line and the names that `dpca` exports. A commit that can't make one of the
results is one from before there was such a thing: nothing is left of it then.
"""

import contextlib
import io
import json
import os
import platform
import runpy
import shutil
import socket
import sys
from pathlib import Path

import numpy as np

N, D, K = 8, 20, 3
"""Samples, features, components."""
DATA, MODEL = {"uri": "data.npy"}, {"n_components": K}
CONFIGS = {
    "plain": {"input": DATA, "model": MODEL},
    "scaled": {
        "input": {"uri": "gaps.npy"},
        "model": MODEL | {"whiten": True},
        "preprocess": {"scale": "std", "missing": "mean"},
    },
    "dated": {"input": {"uri": "dated.zarr", "array": "sst", "samples_axis": "time"}, "model": MODEL},
    "tall": {"input": DATA | {"samples_axis": 1}, "model": MODEL},
    "tsqr": {"input": DATA, "model": MODEL | {"svd_solver": "tsqr"}},
    "bare": {"input": DATA, "model": MODEL, "output": {"path": "bare", "components": False, "gram": False}},
    "kernels": {"input": DATA, "model": MODEL | {"kind": "kernel_pca", "kernel": ["linear", "rbf"], "gamma": 0.01}},
    "sides": {
        "input": [{"name": "one", "uri": "data.npy"}, {"name": "two", "uri": "other.npy"}],
        "model": MODEL,
        "preprocess": {"block_scaling": "first_eigenvalue"},
    },
    "krylov": {"input": DATA, "model": {"n_components": 1, "svd_solver": "block_krylov"}},
}
"""Runs, by the names of their results; old keys alone, so that the first commits take them."""
PLAIN = [{"name": "plain", "model": {"kind": "pca"}}]
OTHERS = [
    {"name": "chosen", "samples": [{"select": {"samples": [0, 2, 4, 5, 7]}}], "model": {"kind": "pca"}},
    {"name": "lagged", "model": {"kind": "extended", "lags": 2, "n_components": 2}},
    {"name": "waves", "model": {"kind": "hilbert", "n_components": 2}},
    {"name": "modes", "model": {"kind": "dmd", "rank": 3}},
    {"name": "spectra", "model": {"kind": "spod", "block": 4, "n_components": 1}},
]
STATISTICS = [
    {"name": "between", "model": {"kind": "distances"}},
    {"name": "drawn", "model": {"kind": "pca", "n_components": 2, "resampling": {"kind": "jackknife"}}},
]
"""Derived analyses: those of the first version, of one read, and of later versions."""


def dpca(*arguments):
    """Carry out a command in this process; whether it ended well. What it said goes to standard error if it did not."""
    sys.argv, said, code = ["dpca", *arguments], io.StringIO(), None
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            runpy.run_module("dpca", run_name="__main__")
        except SystemExit as stop:
            code = stop.code
    if code:
        print("dpca", *arguments, said.getvalue(), file=sys.stderr)
    return not code


def write_config(name, **sections):
    Path(f"{name}.yaml").write_text(json.dumps({"compute": {"workers": 1}, "output": {"path": name}} | sections))


def run(name, *, command=("run",), options=(), **sections):
    """Carry out a run with the result `name`; whether it ended well."""
    write_config(name, **sections)
    if dpca(*command, f"{name}.yaml", *options):
        return True
    shutil.rmtree(name, ignore_errors=True)
    return False


def derive(name, analyses, components):
    """Make derived analyses of `dated`; whether they were made."""
    config = {"from": "dated", "analyses": analyses, "components": components, "output": {"path": name}}
    Path(f"{name}.yaml").write_text(json.dumps(config))
    return dpca("derive", f"{name}.yaml")


def killed_after(n_files):
    """Let this process end at once, as a kill does, when so many files of finished parts are written."""
    left, savez = iter(range(n_files)), np.savez

    def counted(*arguments, **arrays):
        if next(left, None) is None:
            os._exit(9)
        savez(*arguments, **arrays)

    np.savez = counted


def results():
    for name, sections in CONFIGS.items():
        run(name, **sections)
    dpca("transform", "plain", "new.npy", "--out", "scores")
    derive("derived", PLAIN, components=False)
    any(derive("maps", analyses, components=True) for analyses in ([*OTHERS, *STATISTICS], OTHERS))
    dpca("extend", "plain", "new.npy", "--output", "extended")


def python():
    """Models that Python saves, of values in memory."""
    from dpca import PCA, KernelPCA

    x = np.load("data.npy")
    PCA(n_components=K).fit(x).save("saved")
    KernelPCA(n_components=K, kernel="rbf", gamma=0.01).fit(x).save("saved-kernel")


def unfinished():
    killed_after(2)
    if run("unfinished", input=DATA, model=MODEL):
        shutil.rmtree("unfinished")  # there were no finished parts


def batch():
    run("batch", command=("batch", "init"), input=DATA, model=MODEL) and dpca(
        "batch", "partition", "batch", "--index", "0"
    )


if __name__ == "__main__":
    sys.modules["bokeh"] = None  # type: ignore[assignment]  # reports are for people
    socket.gethostname, platform.platform = lambda: "host", lambda *_, **__: "Linux"
    {"results": results, "python": python, "unfinished": unfinished, "batch": batch}[sys.argv[1]]()
