"""Cases of runs, of what is applied to new samples, and of both estimators."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path
from typing import Any

from workflows.campaigns.same_bits.places import DATA, HANGING_SECONDS, SAID, Case, Failed, Place, check, ending

KILLS = 5
"""How many runs may end before they are killed."""


def one_run(uri: str, certificate: Mapping[str, Any] | None = None, **sections: Mapping[str, Any]) -> Case:
    """A run, and what its certificate must say for the case to be what it is for."""

    def case(place: Place) -> None:
        place.run(uri, **sections)
        for key, value in (certificate or {}).items():
            found = place.certificate()[key]
            check(found == value, f"{key} of the certificate is {found}, not {value}")

    return case


def repaired(place: Place) -> None:
    """Nearly the same samples: on to double precision, components that are made orthonormal in the end."""
    place.run("twice.zarr", model={"n_components": 10})
    found = place.certificate()
    check(found["precision"] == "double" and found["orthogonality_before"] is not None, "nothing had to be repaired")


def read_as(reading: str, uri: str, memory: str) -> Case:
    """A run that reads chunks of whole rows in a certain way, for want of memory."""

    def case(place: Place) -> None:
        (place.path / "scratch").mkdir()
        place.run(uri, compute={"memory": memory, "scratch": "scratch"})
        check(place.manifest()["reading"] == reading, f"it was read in {place.manifest()['reading']}")

    return case


def narrow(place: Place) -> None:
    """A run in slabs that are narrower, for want of memory."""
    place.run("wide.zarr", compute={"memory": "201 MiB"})
    check(place.manifest()["plan"]["n_slabs"] > 5, "slabs are as wide as ever")


def dimension(place: Place) -> None:
    """How many components there are is found in the run."""
    for to, n_components in (("share", 0.95), ("broken-stick", "broken_stick"), ("rank", "rank")):
        place.run("wide.zarr", to=to, model={"n_components": n_components})
    found = [len(place.certificate(to)["components"]) for to in ("share", "broken-stick", "rank")]
    check(1 < found[0] < 31 and found[2] == 31, f"they find {found} components")


FIELD = {"array": "field", "samples_axis": "time"}
WHERE = ("--memory", "1GiB", "--workers", "2")


def applied(place: Place) -> None:
    """New samples and samples again, of PCA."""
    place.run("wide.zarr", model={"whiten": True}, preprocess={"scale": "std"})
    place.dpca("transform", "r", f"{DATA}/new.zarr", "--out", "scores.zarr", *WHERE)
    place.dpca("reconstruct", "r", "--out", "samples.zarr", "--samples", "0:10,17", "--n-components", "2", *WHERE)


def applied_tall(place: Place) -> None:
    """The same where features are fewer."""
    place.run("tall.zarr", preprocess={"scale": "std"})
    place.dpca("transform", "r", f"{DATA}/tall.zarr", "--out", "scores.zarr", *WHERE)
    place.dpca("reconstruct", "r", "--out", "samples.zarr", "--samples", "5:5000", *WHERE)


def kernel(**model: Any) -> dict[str, Any]:
    return {"kind": "kernel_pca", **model}


def kernel_applied(place: Place) -> None:
    """New samples, and samples again by regression and as those whose images are nearest."""
    for to, how in (("regression", True), ("fixed-point", "fixed_point")):
        model = kernel(kernel="rbf", gamma="median", fit_inverse_transform=how, alpha=0.1)
        place.run("wide.zarr", to=to, model=model)
        place.dpca("reconstruct", to, "--out", f"of-{to}.zarr", "--samples", "0:6", *WHERE)
    place.dpca("transform", "regression", f"{DATA}/new.zarr", "--out", "scores.zarr", *WHERE)
    place.run("wide.zarr", to="linear", model=kernel(kernel="linear"))
    place.dpca("reconstruct", "linear", "--out", "of-linear.zarr", *WHERE)


def sweep(place: Place) -> None:
    """Kernels of one Gram matrix, in one run and of what it keeps, and new samples for one of them."""
    many = {"kernel": ["linear", "poly", "rbf", "sigmoid", "cosine"], "gamma": ["median", 1e-5], "degree": [2, 3]}
    place.run("wide.zarr", model=kernel(**many, labels={"uri": f"{DATA}/labels.npy"}))
    place.dpca("transform", "r", f"{DATA}/new.zarr", "--out", "scores.zarr", "--kernel-case", "3", *WHERE)
    model = kernel(kernel=["rbf", "poly"], gamma=[None, 1e-6])
    place.run("wide.zarr", "--from-gram", "r", to="more", model=model)


def precomputed(place: Place) -> None:
    place.run("kernel.npy", model=kernel(kernel="precomputed"))
    place.dpca("transform", "r", f"{DATA}/kernel-new.npy", "--out", "scores.zarr")


def exported(place: Place) -> None:
    """A result with coordinates, in every format."""
    place.run("field.zarr", input=FIELD)
    for to in ("npz", "csv", "netcdf", "hdf5", "anndata"):
        place.dpca("export", "r", "--to", to)


def array(place: Place) -> None:
    """A run as a job array, until it is published."""
    place.dpca("batch", "init", place.config("wide.zarr"), "--partitions", "2")
    for _ in range(6):
        for index in range(2):
            place.dpca("batch", "partition", "r", "--index", str(index))
        place.dpca("batch", "finalize", "r")
        if (place.path / "r" / "manifest.json").exists():
            return
    raise Failed("it does not come to an end")


def killed(place: Place) -> None:
    """A run that is killed when its first part is there, and gone on with."""
    config, result = place.config("wide.zarr", compute={"workers": 1}), place.path / "r"
    for _ in range(KILLS):
        with (place.path.parent / "killed.log").open("w+") as log:
            process = place.start("-m", "dpca", "run", config, stdout=log)
            with ending(process):
                until = time.monotonic() + HANGING_SECONDS
                while process.poll() is None and not any(result.glob("ledger/*/parts/*/*.npz")):
                    check(time.monotonic() < until, "it finishes no part")
                    time.sleep(0.001)
            log.seek(0)
            ended = process.returncode
            check(ended in (0, -signal.SIGKILL), f"it ended with {ended}: {log.read()[-SAID:].strip()}")
        if not (result / "manifest.json").exists():
            break
        shutil.rmtree(result)
    else:
        raise Failed("it always ends before it is killed")
    check(any(result.glob("ledger/*/parts/*/*.npz")), "nothing of it is left")
    place.dpca("run", config, "--resume")


CLUSTER = """
import sys
from distributed import LocalCluster

def whose():
    import dpca
    return dpca.__file__

how = {"n_workers": 2, "threads_per_worker": 1, "host": "127.0.0.1", "dashboard_address": "127.0.0.1:0"}
with LocalCluster(**how, memory_limit="2GiB", local_directory=sys.argv[1]) as cluster, cluster.get_client() as client:
    client.wait_for_workers(2)
    print(cluster.scheduler_address, *client.run(whose).values(), sep="\\n", end="\\n\\n", flush=True)
    sys.stdin.read()
"""
"""A scheduler and workers, until nobody needs them."""


@contextmanager
def cluster(place: Place) -> Iterator[str]:
    """The address of a scheduler whose workers have this code."""
    with (
        tempfile.TemporaryDirectory(prefix="dpca-dask-") as directory,
        (place.path.parent / "cluster.log").open("w+") as log,
    ):
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": log}
        process = place.start("-c", CLUSTER, directory, **pipes)
        with ending(process):
            assert process.stdin is not None
            assert process.stdout is not None
            alarm = threading.Timer(HANGING_SECONDS, os.killpg, (process.pid, signal.SIGKILL))
            alarm.start()
            try:  # until an empty line, or its end
                said = list(takewhile(bool, (line.strip() for line in process.stdout)))
            finally:
                alarm.cancel()
            log.seek(0)
            check(len(said) == 3, f"the cluster does not start: {log.read()[-SAID:].strip()}")
            check(all(place.code in Path(file).parents for file in said[1:]), f"workers have the code of {said[1:]}")
            yield said[0]
            process.stdin.close()
            process.wait(HANGING_SECONDS)


PYTHON = """
import sys
import dask.array as da, numpy as np, zarr
from dpca import PCA, KernelPCA

x, new = (zarr.open_array(f"../../data/{name}.zarr", mode="r") for name in ("wide", "new"))
how, client = {"memory": "1 GiB"}, None
if sys.argv[1] == "numpy":
    x, new = x[...], new[...]
elif sys.argv[1] != "zarr":
    x, new = da.from_zarr(x), da.from_zarr(new)
if sys.argv[1] == "client":
    from distributed import Client
    client = how["client"] = Client(sys.argv[2])

def keep(name, made, **arrays):
    attributes = {key: getattr(made, key) for key in vars(made) if key.endswith("_") and key != "certificate_"}
    arrays |= {key: value for key, value in attributes.items() if value is not None}
    np.savez(f"{name}.npz", **{key: np.asarray(value) for key, value in arrays.items()})
    made.save(name)

made = PCA(n_components=4, **how)
first = made.fit_transform(x)
scores = made.transform(new)
keep("pca", made, first=first, scores=scores, samples=made.inverse_transform(scores), likelihood=made.score_samples(new))
made = KernelPCA(n_components=4, kernel="rbf", gamma="median", fit_inverse_transform=True, alpha=0.1, **how)
first = made.fit_transform(x)
scores = made.transform(new)
keep("kernel-pca", made, first=first, scores=scores, samples=made.inverse_transform(scores))
if client is not None:
    client.close()
"""
"""Both estimators, and everything that they have and give."""


def in_python(kind: str) -> Case:
    def case(place: Place) -> None:
        place.python(PYTHON, kind)

    return case


def on_a_cluster(place: Place) -> None:
    """On a Dask scheduler that is there: run, transform, and in Python."""
    with cluster(place) as address:
        # Workers have threads of their own.
        config = place.config("wide.zarr", compute={"workers": "auto"})
        place.dpca("run", config, "--set", f"compute.cluster={{scheduler: '{address}'}}")
        new = f"{DATA}/new.zarr"
        place.dpca("transform", "r", new, "--out", "scores.zarr", "--memory", "1GiB", "--scheduler", address)
        place.python(PYTHON, "client", address)


CASES: dict[str, Case] = {
    "wide-float32": one_run("wide.zarr", {"solver": "gram_eigh", "precision": "single"}),
    "wide-float64": one_run("wide64.zarr", {"solver": "gram_eigh", "precision": "double"}),
    "wide-in-double": one_run("wide.zarr", {"precision": "double"}, model={"precision": "double"}),
    "spectrum-alone": one_run("wide.zarr", output={"components": False, "gram": False}, model={"ddof": 0}),
    "not-centred": one_run("wide.zarr", preprocess={"center": False}),
    "tall": one_run("tall.zarr", {"solver": "covariance_eigh"}),
    "tsqr": one_run("wide64.zarr", {"solver": "tsqr"}, model={"svd_solver": "tsqr", "n_components": 5}),
    "tsqr-tall-scaled": one_run(
        "tall.zarr",
        {"solver": "tsqr"},
        model={"svd_solver": "tsqr", "n_components": 5},
        preprocess={"scale": "std"},
    ),
    "uint8-scaled": one_run(
        "pixels.zarr", preprocess={"scale": "std", "missing": "mean"}, input={"missing_values": [255]}
    ),
    "small-integers": one_run("genotypes.zarr", {"precision": "single", "exact_products": True}),
    "missing": one_run("missing.zarr", preprocess={"missing": "mean", "scale": "std"}),
    "missing-tall": one_run("missing-tall.zarr", {"solver": "covariance_eigh"}, preprocess={"missing": "mean"}),
    "packed-hdf5": one_run("packed.nc", input=FIELD, preprocess={"missing": "mean"}),
    "fortran-npy": one_run("fortran.npy"),
    "field-3d": one_run("field.zarr", input=FIELD, model={"effective_samples": 20}),
    "rows-copied": read_as("copy", "rows.zarr", "215 MiB"),
    "rows-in-parts": read_as("parts", "rows-plain.zarr", "205 MiB"),
    "small-memory": narrow,
    "dimension": dimension,
    "climb-and-repair": repaired,
    "climb-to-tsqr": one_run("steep.zarr", {"solver": "tsqr"}, model={"n_components": 14}),
    "second-pass-refines": one_run("steep32.zarr", {"precision": "single", "refined": True}, model={"n_components": 8}),
    "transform-reconstruct": applied,
    "transform-reconstruct-tall": applied_tall,
    "kernel-sweep-from-gram": sweep,
    "kernel-rbf-preimages": kernel_applied,
    "kernel-precomputed": precomputed,
    "exports": exported,
    "job-array": array,
    "killed-and-resumed": killed,
    "python-numpy": in_python("numpy"),
    "python-dask": in_python("dask"),
    "python-zarr": in_python("zarr"),
    "dask-scheduler": on_a_cluster,
}
