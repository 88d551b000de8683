"""Commands on small data, each with what it makes and how it is gone on with."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import zarr
from zarr.codecs import ZstdCodec

from workflows.campaigns.faults.cases import Case, Process, bits

RESULT = "manifest.json"
X, NEW = ("x.zarr/c/**/*",), ("new.zarr/c/**/*",)
FIT = ("fit/**/*",)
"""A result that other commands read."""
LARGE = {"rows.zarr", "few.zarr", "tall.zarr", "square.zarr"}
"""Data that are copied only for whoever reads them."""
PARTITIONS = 3


@dataclass(frozen=True)
class Subject:
    """A command that is disturbed."""

    words: str
    made: str
    """The path of what it makes: a result, a group of arrays, or a pattern of files."""
    goes_on: str = ""
    """The option with which it goes on; empty where the same command does."""
    reads: tuple[str, ...] = X
    """Patterns of the data that it reads, as far as they have checksums."""
    results: tuple[str, ...] = ()
    """Patterns of the files of results that it reads."""
    older: str = ""
    """The command that made what is there before, and is replaced."""
    on_a_cluster: bool = False
    is_large: bool = False
    """Whether it takes so long that fewer faults are tried."""

    @property
    def roots(self) -> set[str]:
        """Names of the data and results that it reads."""
        return {pattern.partition("/")[0] for pattern in (*self.reads, *self.results)}

    def before(self, case: Case) -> None:
        """Prepare the directory."""

    def first(self, case: Case) -> str:
        return self.words

    def another(self, case: Case) -> str:
        """The command of somebody who does not know of the first; it replaces what is there."""
        return self.words if "--overwrite" in self.words else f"{self.words} --overwrite"

    def go_on(self, case: Case) -> Process | None:
        """What its user does next, whatever happened; None where nothing is left to do."""
        if not self.goes_on:
            return None if self.is_finished(case) else case.start(self.words)
        if self.older and not (case.place / self.made / "ledger" / "run.json").exists():
            return None if self.is_finished(case) else case.start(self.words)
        return case.start(f"{self.words.replace(' --overwrite', '')} {self.goes_on}")

    def is_finished(self, case: Case) -> bool:
        return bits(case.place / self.made) == case.undisturbed.bits

    def is_underway(self, place: Path) -> bool:
        """Whether something is about to take the place of what was there before."""
        return (place / self.made / "ledger" / "commit.json").exists() or (place / f".{self.made}.partial").exists()

    def has_begun(self, place: Path) -> bool:
        """Whether it has written down which data it reads; of those that change before, it knows nothing."""
        return any(place.glob(f"{self.made}/ledger/run.json")) or any(place.glob(f".{self.made}.partial/*/arrays"))

    def unfinished(self) -> tuple[str, ...]:
        """Patterns of the files of work that is not finished."""
        return (
            f"{self.made}/ledger/**/*",
            f"{self.made}/.lock/*",
            f"{self.made}/*.json",
            f".{self.made}.partial/**/*",
            "scratch/**/*",
        )


@dataclass(frozen=True)
class JobArray(Subject):
    """A job array: partitions of a stage, what adds them up, and so on to the result."""

    def before(self, case: Case) -> None:
        case.start(f"batch init {self.words} --partitions {PARTITIONS}").end()
        for _ in range(case.draw.randrange(2)):
            self.stage(case)

    def first(self, case: Case) -> str:
        number = case.draw.randrange(PARTITIONS + 1)
        if number < PARTITIONS:
            return f"batch partition {self.made} --index {number}"
        self.partitions(case)
        return f"batch finalize {self.made}"

    def another(self, case: Case) -> str:
        return f"batch init {self.words} --partitions {PARTITIONS} --overwrite"

    def partitions(self, case: Case) -> None:
        for process in [case.start(f"batch partition {self.made} --index {index}") for index in range(PARTITIONS)]:
            process.end()

    def stage(self, case: Case) -> Process:
        self.partitions(case)
        process = case.start(f"batch finalize {self.made}")
        process.end()
        return process

    def go_on(self, case: Case) -> Process:
        process = self.stage(case)
        while process.ended_well and not (case.place / self.made / RESULT).exists():
            process = self.stage(case)
        return process


@dataclass(frozen=True)
class Export(Subject):
    """Files that appear one by one, so that what goes on with it replaces those that are there."""

    @property
    def in_parts(self) -> bool:
        """Whether dpca writes them itself, and no library."""
        return "*" in self.made

    def go_on(self, case: Case) -> Process | None:
        return None if self.is_finished(case) else case.start(self.another(case))


def export(to: str, out: str) -> Subject:
    return Export(f"export fit --to {to} --out t", out, reads=(), results=FIT)


def run(config: str, *data: str, **more: Any) -> Subject:
    return Subject(f"run {config}.yaml", "r", "--resume", data or X, **more)


SUBJECTS: dict[str, Subject] = {
    "run": run("c"),
    "run, over an older result": Subject(
        "run c.yaml --overwrite", "r", "--resume", older="run c.yaml --set model.n_components=1"
    ),
    "run, of a covariance": run("tall", "tall.zarr/c/**/*"),
    "run, tsqr": run("tsqr"),
    "run, block Krylov": run("krylov", "square.zarr/c/**/*"),
    "run, of kernels": run("kernels"),
    "run, of HDF5 and .npy side by side, rotated": run("beside", "a.h5"),
    "run, of rows that are copied to scratch": run("rows", "rows.zarr/c/**/*", is_large=True),
    "run, of sparse rows that are turned": run(
        "few", "few.zarr/X/data/c/**/*", "few.zarr/X/ind*/c/**/*", is_large=True
    ),
    "run, on a cluster": run("c", on_a_cluster=True),
    "job array": JobArray("c.yaml", "r"),
    "job array, of a covariance": JobArray("tall.yaml", "r", reads=("tall.zarr/c/**/*",)),
    "job array, block Krylov": JobArray(
        "krylov.yaml --set model.block_krylov.windows=true", "r", reads=("square.zarr/c/**/*",)
    ),
    "extend": Subject("extend fit new.zarr --output r", "r", "--resume", (*X, *NEW), FIT),
    "derive": Subject("derive answers.yaml", "d", reads=(), results=FIT),
    "derive, with maps": Subject("derive maps.yaml", "d", results=FIT),
    "derive, with maps over answers": Subject(
        "derive maps.yaml --overwrite", "d", results=FIT, older="derive answers.yaml"
    ),
    "transform": Subject("transform fit new.zarr --out t.zarr", "t.zarr", reads=NEW, results=FIT),
    "transform, over an older one": Subject(
        "transform fit x.zarr --out t.zarr --overwrite",
        "t.zarr",
        results=FIT,
        older="transform fit new.zarr --out t.zarr",
    ),
    "transform, by a kernel": Subject(
        "transform kernels new.zarr --out t.zarr --kernel-case 1", "t.zarr", reads=(*X, *NEW), results=("kernels/**/*",)
    ),
    "reconstruct": Subject("reconstruct fit --out t.zarr", "t.zarr", reads=(), results=FIT),
    "export to netcdf": export("netcdf", "t"),
    "export to hdf5": export("hdf5", "t"),
    "export to csv": export("csv", "t-*.csv"),
}
RESULTS = ("run c.yaml --set output.path=fit", "run kernels.yaml --set output.path=kernels")
"""Commands that make results which others read."""


def prepare(place: Path) -> None:
    """Make the data and the configs."""
    rng = np.random.default_rng(0)

    def values(*shape: int) -> Any:
        """Five components and noise."""
        rows = rng.normal(size=(shape[0], 5)) * [9, 7, 5, 3, 2]
        return np.round(rows @ rng.normal(size=(5, shape[1])) + rng.normal(size=shape), 2).astype("f4")

    def store(name: str, array: Any, chunks: tuple[int, ...], within: str = "") -> None:
        codec = ZstdCodec(checksum=True)
        zarr.create_array(place / name, name=within, data=array, chunks=chunks, compressors=codec)

    def config(name: str, **sections: Any) -> None:
        said = {"compute": {"workers": 2}, "output": {"path": "r", "report": False}, **sections}
        (place / f"{name}.yaml").write_text(json.dumps(said))

    def input_of(uri: str) -> dict[str, str]:
        return {"uri": uri, "absent_chunks": "error"}

    store("x.zarr", values(24, 24_000), (24, 2000))
    store("new.zarr", values(4, 24_000), (4, 2000))
    store("tall.zarr", values(8000, 30), (800, 30))
    store("square.zarr", values(240, 3000), (240, 300))
    with h5py.File(place / "a.h5", "w") as file:
        file.create_dataset("x", data=values(24, 6000), chunks=(24, 500), compression="gzip", fletcher32=True)
    np.save(place / "b.npy", values(24, 3000))
    config("c", input=input_of("x.zarr"), model={"n_components": 3})
    config("tall", input=input_of("tall.zarr"), model={"n_components": 3})
    config("tsqr", input=input_of("x.zarr"), model={"n_components": 3, "svd_solver": "tsqr"})
    config("krylov", input=input_of("square.zarr"), model={"n_components": 4, "svd_solver": "block_krylov"})
    config(
        "kernels",
        input=input_of("x.zarr"),
        model={"kind": "kernel_pca", "kernel": ["rbf", "poly"], "n_components": 3},
    )
    config(
        "beside",
        input=[{"name": "a", "uri": "a.h5"}, {"name": "b", "uri": "b.npy"}],
        preprocess={"scale": "std"},
        model={"n_components": 3, "rotation": {"kind": "varimax"}},
    )
    analyses = [
        {"name": "all", "model": {"kind": "pca", "n_components": 3}},
        {"name": "waves", "model": {"kind": "hilbert", "n_components": 2}},
        {
            "name": "half",
            "samples": [{"select": {"samples": list(range(12))}}],
            "model": {"kind": "pca", "n_components": 2},
        },
    ]
    for name, with_maps in (("answers", False), ("maps", True)):
        said = {"from": "fit", "time": "index", "analyses": analyses, "components": with_maps}
        config(name, **said, output={"path": "d", "report": False})
    # Rows that do not fit the memory in columns, and are copied.
    store("rows.zarr", rng.integers(-99, 99, (24, 250_000)).astype("f4"), (1, 250_000))
    config(
        "rows",
        input={"uri": "rows.zarr"},
        compute={"workers": 1, "memory": "215 MiB", "scratch": "scratch"},
        model={"n_components": 3},
    )
    # Sparse ones of which each has 500 values.
    ends = np.arange(25) * 500
    attributes = {"encoding-type": "csr_matrix", "shape": [24, 250_000]}
    zarr.create_group(place / "few.zarr").create_group("X", attributes=attributes)
    store("few.zarr", rng.integers(1, 99, ends[-1]).astype("f4"), (1000,), "X/data")
    places = [np.sort(rng.choice(250_000, 500, replace=False)) for _ in range(24)]
    store("few.zarr", np.concatenate(places).astype("i4"), (1000,), "X/indices")
    store("few.zarr", ends, (25,), "X/indptr")
    config(
        "few",
        input={"uri": "few.zarr", "array": "X"},
        compute={"workers": 1, "memory": "300 MiB", "scratch": "scratch"},
        model={"n_components": 3},
    )
    (place / "scratch").mkdir()
