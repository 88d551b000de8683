"""The results of some thirty runs by another commit's code and by that of the working tree, byte by byte.

    python -m workflows.campaigns.same_bits --base COMMIT [--only CASE] [--keep DIRECTORY]

For changes that must not change a digit. Cases use what users use: the command line, `dpca.PCA` and `dpca.KernelPCA`, so
that modules may go anywhere. Each is carried out twice in folders of its own, by processes that find one code or the other,
from data that are made once. Compared are all arrays, what Zarr says of them, certificates and exported files; not what
tells of the way there (`manifest.json`, `status.json`). A case that is not what it is for any more (of a run that should go
on to another solver, and does not), or fails, or leaves nothing to compare, has failed, also where both codes agree.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import zarr

ROOT = Path(__file__).parents[2]
SIDES = ("base", "here")
"""Folders of the code of the other commit and of this one, and of what each made."""
DATA = "../../data"
"""As cases see them."""
HANGING_SECONDS = 180.0
KILLS = 5
"""How many runs may end before they are killed."""
SAID = 1000
"""Characters of what a process said last, in an error."""
SHOWN = 4
"""Differences of a case that are printed."""


class Failed(Exception):
    """A case that did not come to an end, or is not what it is for."""


# What a case does.


@dataclass(frozen=True)
class Place:
    """The folder of one case, made by one code."""

    path: Path
    code: Path
    """The directory that `dpca` is in."""

    def start(self, *command: str, **how: Any) -> subprocess.Popen[str]:
        """A process of Python that finds this code, in a process group of its own."""
        found = os.pathsep.join(filter(None, [str(self.code), os.environ.get("PYTHONPATH")]))
        how = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, **how}
        return subprocess.Popen(
            [sys.executable, *command],
            cwd=self.path,
            env={**os.environ, "PYTHONPATH": found},
            text=True,
            errors="replace",
            start_new_session=True,
            **how,
        )

    def call(self, *command: str) -> str:
        """The same, to its end; what it said."""
        process = self.start(*command)
        with ending(process):
            try:
                said, _ = process.communicate(timeout=HANGING_SECONDS)
            except subprocess.TimeoutExpired:
                raise Failed(f"{described(command)} hangs") from None
        if process.returncode != 0:
            raise Failed(f"{described(command)} ended with {process.returncode}: {said[-SAID:].strip()}")
        return said

    def dpca(self, *arguments: str) -> None:
        self.call("-m", "dpca", *arguments)

    def python(self, program: str, *arguments: str) -> str:
        return self.call("-c", program, *arguments)

    def config(self, uri: str, *, to: str = "r", **sections: Mapping[str, Any]) -> str:
        """Write the configuration of a run; returns its name.

        Parameters
        ----------
        uri : of the input, among the data
        to : where the result goes
        sections : keys besides
        """
        said: dict[str, Any] = {
            "input": {"uri": f"{DATA}/{uri}", **sections.get("input", {})},
            "preprocess": dict(sections.get("preprocess", {})),
            "model": {"n_components": 3, **sections.get("model", {})},
            "compute": {"workers": 2, "memory": "1 GiB", **sections.get("compute", {})},
            "output": {"path": to, "report": False, **sections.get("output", {})},
        }
        name = f"{to}.yaml"
        (self.path / name).write_text(json.dumps({key: values for key, values in said.items() if values}))
        return name

    def run(self, uri: str, *options: str, to: str = "r", **sections: Mapping[str, Any]) -> None:
        """`dpca run` of such a configuration."""
        self.dpca("run", self.config(uri, to=to, **sections), *options)

    def certificate(self, of: str = "r") -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.path / of / "certificate.json").read_text())
        return found

    def manifest(self, of: str = "r") -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.path / of / "manifest.json").read_text())
        return found


Case = Callable[[Place], None]


def described(command: Sequence[str]) -> str:
    return " ".join(word if "\n" not in word else "..." for word in command)


@contextmanager
def ending(process: subprocess.Popen[str]) -> Iterator[None]:
    """A process, and what it started, that do not outlive this."""
    try:
        yield
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def check(right: bool, problem: str) -> None:
    if not right:
        raise Failed(problem)


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


# The data.


def prepare(place: Path) -> None:
    """Make the data of all cases: several slabs of 8 MiB each, the last one narrower."""
    rng = np.random.default_rng(0)

    def normal(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape, np.float32)

    def store(name: str, values: np.ndarray, chunks: tuple[int, ...], **how: Any) -> None:
        zarr.create_array(place / name, data=values, chunks=chunks, **how)

    def steep(n: int, d: int, least: float) -> np.ndarray:
        """Singular values from 1 to `least`, about."""
        return np.linalg.qr(normal(n, n).astype("f8"))[0] * np.logspace(0, np.log10(least), n) @ normal(n, d)

    place.mkdir()
    wide = normal(32, 6) * [6, 5, 3, 2, 1.5, 1] @ normal(6, 250_000) + normal(32, 250_000) + 3 * normal(250_000)
    store("wide.zarr", wide.astype("f4"), (16, 30_000))
    store("new.zarr", (wide[[3, 20, 9, 31, 0]] + 0.25 * normal(5, 250_000)).astype("f4"), (5, 50_000))
    np.save(place / "labels.npy", np.arange(32) % 3)
    wide64 = normal(24, 130_000) * np.linspace(1, 3, 24)[:, None] + np.linspace(0, 9, 130_000)
    store("wide64.zarr", wide64, (24, 20_000), zarr_format=2)
    tall = normal(150_000, 5) * [5, 4, 3, 2, 1] @ normal(5, 48) + normal(150_000, 48) + np.linspace(-3, 9, 48)
    store("tall.zarr", tall.astype("f4"), (20_000, 24))
    gaps = np.where(rng.random(tall.shape, np.float32) < 0.02, np.float32(np.nan), tall.astype("f4"))
    store("missing-tall.zarr", gaps, (20_000, 48))
    gaps = np.where(rng.random((32, 180_000), np.float32) < 0.02, np.float32(np.nan), wide[:, :180_000].astype("f4"))
    gaps[:, 70_000:70_500], gaps[:, 100_000] = np.nan, 7  # features without values, and one that is constant
    store("missing.zarr", gaps, (32, 20_000))
    pixels = np.clip(90 + 40 * normal(48, 1) + 30 * normal(48, 400_000), 0, 255)
    store("pixels.zarr", pixels.astype("u1"), (48, 50_000))
    shares = np.linspace(0.1, 0.5, 48)[:, None] * rng.random(400_000, np.float32)
    store("genotypes.zarr", rng.binomial(2, shares).astype("i1"), (48, 50_000))
    np.save(place / "fortran.npy", np.asfortranarray(wide[:, 40_000:200_000].astype("f4")))
    store("rows.zarr", np.round(wide[:24], 1).astype("f4"), (1, 250_000))
    store("rows-plain.zarr", wide[:24].astype("f4"), (1, 250_000), compressors=None)
    twice = normal(12, 400_000)
    twice[6:] = twice[:6] + 1e-3 * twice[6:]
    store("twice.zarr", twice, (12, 60_000))
    store("steep.zarr", steep(16, 160_000, 1e-13), (16, 30_000))
    store("steep32.zarr", steep(16, 300_000, 1e-5).astype("f4"), (16, 60_000))
    points = normal(87, 4).astype("f8")
    matrix = np.exp(-0.2 * ((points[:, None] - points) ** 2).sum(axis=2))
    np.save(place / "kernel.npy", matrix[:80, :80])
    np.save(place / "kernel-new.npy", matrix[80:, :80])
    fields(place, normal(25, 6) * [9, 7, 5, 4, 3, 2] @ normal(6, 300 * 1200) + normal(25, 300 * 1200) + 280)


def fields(place: Path, values: np.ndarray) -> None:
    """A field over time: in Zarr with time between the others, in shards, and in NetCDF, as packed integers with gaps."""
    field = values.astype("f4").reshape(25, 300, 1200)
    said = {
        "time": (31 * np.arange(25.0), {"units": "days since 2001-01-15", "calendar": "standard"}),
        "lat": (np.linspace(-60, 60, 300), {"units": "degrees_north"}),
        "lon": (np.linspace(0, 359.7, 1200), {"units": "degrees_east"}),
    }
    group = zarr.create_group(place / "field.zarr")
    kept = group.create_array(
        "field", shape=(300, 25, 1200), dtype="f4", chunks=(50, 25, 300), shards=(100, 25, 600),
        dimension_names=("lat", "time", "lon"), attributes={"units": "K"},
    )  # fmt: skip
    kept[...] = field.transpose(1, 0, 2)
    packed = np.round((field - 280) / 0.01).clip(-32000, 32000).astype("i2")
    packed[:, 40:90, 100:400], packed[3, ::7, ::11] = -32768, -32768  # land, and gaps
    with h5py.File(place / "packed.nc", "w") as file:
        how = {"compression": "gzip", "compression_opts": 1, "shuffle": True, "fillvalue": -32768}
        dataset = file.create_dataset("field", data=packed, chunks=(25, 30, 600), **how)
        dataset.attrs.update({"scale_factor": 0.01, "add_offset": 280.0, "_FillValue": np.int16(-32768)})
        for axis, (name, (coordinate, attributes)) in enumerate(said.items()):
            group.create_array(name, data=coordinate, dimension_names=(name,), attributes=attributes)
            file[name] = coordinate
            file[name].attrs.update(attributes)
            file[name].make_scale(name)
            dataset.dims[axis].attach_scale(file[name])


# What they made.


@dataclass(frozen=True)
class Comparison:
    """What one case made by one code beside what it made by the other."""

    n_arrays: int
    """In either."""
    differences: tuple[str, ...]


WAY_THERE = ("manifest.json", "status.json")
"""Files that tell of it: when, where, how long, in what memory."""
OF_ZARR = ("zarr.json", ".zarray", ".zattrs", ".zgroup", ".zmetadata")


def compare(base: Path, here: Path) -> Comparison:
    """Everything in two folders."""
    stored = arrays_in(base) | arrays_in(here)
    n_arrays, found = len(stored), []
    for name in sorted(stored):
        files = files_in(base / name) | files_in(here / name)
        if problem := one_sided(base / name, here / name):
            found.append(f"{name} {problem}")
        elif any(not same_file(base / name / file, here / name / file) for file in files):
            found.append(f"{name}: {difference(read(base / name), read(here / name))}")
    for name in sorted(files_in(base) | files_in(here)):
        pair = base / name, here / name
        if Path(name).name in WAY_THERE or stored & set(map(str, Path(name).parents)):
            continue
        inside = ARCHIVES.get(pair[0].suffix)
        if problem := one_sided(*pair):
            found.append(f"{name} {problem}")
        elif inside is not None:
            one, other = map(inside, pair)
            n_arrays += len(one | other)
            found += [f"{name}, {text}" for text in differences(one, other)]
        elif not same_file(*pair):
            found.append(f"{name}: {difference_of_texts(*pair)}")
    return Comparison(n_arrays, tuple(found))


def arrays_in(place: Path) -> set[str]:
    """The Zarr arrays below a folder."""
    return {
        str(file.parent.relative_to(place))
        for pattern in ("**/zarr.json", "**/.zarray")
        for file in place.glob(pattern)
        if file.name == ".zarray" or json.loads(file.read_text())["node_type"] == "array"
    }


def files_in(place: Path) -> set[str]:
    return {str(file.relative_to(place)) for file in place.rglob("*") if file.is_file()}


def one_sided(base: Path, here: Path) -> str:
    if base.exists() and here.exists():
        return ""
    return "is not there any more" if base.exists() else "was not there before"


def same_file(base: Path, here: Path) -> bool:
    """By bytes; of what Zarr says of an array or a group, by its content."""
    if not (base.exists() and here.exists()):
        return False
    one, other = base.read_bytes(), here.read_bytes()
    return one == other or (base.name in OF_ZARR and content(one) == content(other))


def content(document: bytes) -> str:
    """A JSON as it is always written, whatever the order of its keys; as text, in which true is not 1."""
    return json.dumps(json.loads(document), sort_keys=True)


def read(path: Path) -> np.ndarray:
    return np.asarray(zarr.open_array(path, mode="r")[...])


def differences(base: Mapping[str, Any], here: Mapping[str, Any]) -> Iterator[str]:
    """Of arrays by name."""
    for name in sorted({*base, *here}):
        if name not in base or name not in here:
            yield f"{name} {'is not there any more' if name in base else 'was not there before'}"
        elif not same_values(base[name], here[name]):
            yield f"{name}: {difference(base[name], here[name])}"


def same_values(base: np.ndarray, here: np.ndarray) -> bool:
    """To the bit."""
    if (base.dtype, base.shape) != (here.dtype, here.shape):
        return False
    return bool(base.tolist() == here.tolist() if base.dtype.hasobject else base.tobytes() == here.tobytes())


def difference(base: np.ndarray, here: np.ndarray) -> str:
    """How two arrays differ, in words."""
    if (base.dtype, base.shape) != (here.dtype, here.shape):
        return f"{here.dtype} {here.shape}, was {base.dtype} {base.shape}"
    if same_values(base, here):
        return "the same values in other bytes, or what is said of them"
    if not (n_other := np.sum(base != here) - np.sum((base != base) & (here != here))):
        return "the same values in other bits"
    try:
        one, other = base.astype("f8"), here.astype("f8")
    except (TypeError, ValueError):  # no numbers
        return f"{n_other} of {base.size} values differ"
    if (np.isnan(one) != np.isnan(other)).any():
        return f"{int((np.isnan(one) != np.isnan(other)).sum())} of {base.size} values are NaN in one alone"
    with np.errstate(invalid="ignore"):
        off = np.nan_to_num(np.abs(one - other))
    return (
        f"{n_other} of {base.size} values differ, by {off.max():.3g} at most, "
        f"where the largest is {np.nanmax(np.abs(one)):.3g}"
    )


def difference_of_texts(base: Path, here: Path) -> str:
    """Where two files differ: a JSON by its keys."""
    if base.suffix != ".json":
        return "differs"
    one, other = (dict(leaves(json.loads(path.read_text()))) for path in (base, here))
    keys = [key for key in {**one, **other} if key not in one or key not in other or repr(one[key]) != repr(other[key])]
    if not keys:
        return "the same values in other bytes"
    first = ", ".join(f"{key} {other.get(key, 'nothing')}, was {one.get(key, 'nothing')}" for key in keys[:2])
    return f"{len(keys)} of {len(one)} values differ: {first}"


def leaves(document: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """Every value of a JSON document, and where it is."""
    if isinstance(document, dict):
        for name, value in document.items():
            yield from leaves(value, f"{key}.{name}".lstrip("."))
    elif isinstance(document, list):
        for index, value in enumerate(document):
            yield from leaves(value, f"{key}[{index}]")
    else:
        yield key, document


def of_npz(path: Path) -> dict[str, np.ndarray]:
    with np.load(path) as archive:
        return dict(archive)


def of_csv(path: Path) -> dict[str, np.ndarray]:
    """Columns by their names, as text."""
    with path.open(newline="", encoding="utf-8") as file:
        names, *rows = csv.reader(file)
    return {name: np.array(column, object) for name, column in zip(names, zip(*rows, strict=True), strict=True)}


def of_hdf5(path: Path) -> dict[str, np.ndarray]:
    """Datasets, and what is said of them."""
    found = {}
    with h5py.File(path) as file:

        def visit(name: str, item: h5py.Dataset | h5py.Group) -> None:
            if isinstance(item, h5py.Dataset):
                found[name] = np.asarray(item[...])
            if said := sorted((key, repr(item.attrs[key])) for key in item.attrs):
                found[f"attributes of {name}"] = np.array(said)

        visit("/", file)
        file.visititems(visit)
    return found


ARCHIVES: dict[str, Callable[[Path], dict[str, np.ndarray]]] = {
    ".npz": of_npz,
    ".csv": of_csv,
    ".nc": of_hdf5,
    ".h5": of_hdf5,
    ".h5ad": of_hdf5,
}
"""Files that hold arrays, and times of writing beside them, or the like."""


# All of it.


def code_of(commit: str, place: Path) -> None:
    """Put the package of a commit somewhere."""
    done = subprocess.run(["git", "archive", commit, "dpca"], cwd=ROOT, capture_output=True)
    if done.returncode:
        raise SystemExit(f"git archive {commit} dpca: {done.stderr.decode(errors='replace').strip()}")
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(place, filter="data")
    for name in ("dpca", "gram-pca"):  # the distribution was called dpca once, and asks for its own version
        about = place / f"{name.replace('-', '_')}-0.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0\n")


def code_here(place: Path) -> None:
    """The same of the working tree, so that nothing that is changed meanwhile is seen."""
    shutil.copytree(ROOT / "dpca", place / "dpca", ignore=shutil.ignore_patterns("__pycache__"))


def carried_out(name: str, place: Place) -> str:
    """Carry out a case by one code; what went wrong, if anything did."""
    try:
        place.path.mkdir(parents=True)
        CASES[name](place)
    except Failed as error:
        return str(error)
    except Exception as error:  # such as a key that a certificate does not have
        return f"{type(error).__name__}: {error}"
    return ""


def outcome(name: str, places: Sequence[Place]) -> tuple[int, str]:
    """Carry out a case by both codes; how many arrays were compared, and "same" or what is the matter."""
    with ThreadPoolExecutor(len(places)) as pool:
        problems = list(pool.map(lambda place: carried_out(name, place), places))
    if any(problems):
        return 0, "\n".join(
            f"FAILED, {side}: {problem}" for side, problem in zip(SIDES, problems, strict=True) if problem
        )
    found = compare(*(place.path for place in places))
    if not found.n_arrays:
        return 0, "FAILED: nothing to compare"
    if not found.differences:
        return found.n_arrays, "same"
    more = [f"and {len(found.differences) - SHOWN} more"] if len(found.differences) > SHOWN else []
    return found.n_arrays, "\n".join(["DIFFERS", *found.differences[:SHOWN], *more])


def campaign(base: str, root: Path, names: Sequence[str], keeps: bool) -> list[str]:
    """Carry out cases and print what came of each; returns those that are not the same.

    Parameters
    ----------
    base : the other commit
    root : a directory to work in
    keeps : whether what cases make stays there
    """
    codes = [root / "code" / side for side in SIDES]
    code_of(base, codes[0])
    code_here(codes[1])
    for code in codes:
        found = Place(root, code).python("import dpca; print(dpca.__file__)").strip()
        check(code in Path(found).parents, f"{found} is found, not the code in {code}")
    prepare(root / "data")
    wrong = []
    for name in names:
        n_arrays, found = outcome(name, [Place(root / code.name / name, code) for code in codes])
        if not keeps:
            for side in SIDES:
                shutil.rmtree(root / side / name, ignore_errors=True)
        print(f"{name:<28}{n_arrays:>5} arrays  {found}".replace("\n", f"\n{'':<42}"), flush=True)
        if found != "same":
            wrong.append(name)
    return wrong


def main() -> bool:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", required=True, metavar="COMMIT", help="Whose results are the right ones.")
    parser.add_argument("--only", action="append", choices=CASES, metavar="CASE", help="One of them; may be repeated.")
    parser.add_argument("--keep", type=Path, metavar="DIRECTORY", help="A new one, in which all that was made stays.")
    given = parser.parse_args()
    if given.keep is not None and given.keep.exists():
        parser.error(f"--keep {given.keep}: exists already")
    kept = tempfile.TemporaryDirectory(prefix="dpca-same-") if given.keep is None else nullcontext(given.keep)
    names = [name for name in CASES if given.only is None or name in given.only]
    with kept as directory:
        try:
            wrong = campaign(given.base, Path(directory).resolve(), names, given.keep is not None)
        except Failed as error:
            raise SystemExit(str(error)) from None
    print(f"\n{len(names) - len(wrong)} of {len(names)} are the same" + (f"; not {', '.join(wrong)}" if wrong else ""))
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
