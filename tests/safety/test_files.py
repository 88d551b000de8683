"""What is no regular file, or claims to be large, is neither waited for nor read."""

import contextlib
import json
import os
import resource
import shutil
import signal
import zipfile
from pathlib import Path

import h5py
import numpy as np
import pytest
import zarr

from dpca import PCA
from dpca.errors import DpcaError
from dpca.sources import open_source
from tests.commands.calls import dpca
from tests.genotypes.cohorts import cohort, write_plink
from tests.made import made
from tests.safety.common import X, a_finished_run, config
from tests.sources.test_netcdf3 import netcdf3


@pytest.fixture
def in_time():
    """Fails a test that waits: a pipe has no other end here, and a device no end at all."""

    def late(*_):
        raise AssertionError("it waits")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(30)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def inputs_of_every_kind():
    """Data, and all that a configuration can name beside them, for six samples of forty features."""
    np.save("x.npy", X)
    zarr.create_group("x.zarr").create_array("x", data=X)
    with h5py.File("x.h5", "w") as file:
        file["x"] = X
    netcdf3("x.nc", 1, {"time": None, "x": 40}, {"x": (("time", "x"), X, {})}, len(X))
    Path("names.txt").write_text("".join(f"{row}\n" for row in "abcdef"))
    Path("table.csv").write_text("id,value\n" + "".join(f"{row},{at}\n" for at, row in enumerate("abcdef")))
    Path("samples.txt").write_text("0\n1\n2\n3\n")
    np.save("weights.npy", np.ones(40))
    np.save("sample_weights.npy", np.ones(6))
    np.save("mask.npy", np.ones(40, bool))
    header = "id,chromosome,position,counted,other\n"
    Path("variants.csv").write_text(header + "".join(f"v{at},1,{at + 1},A,C\n" for at in range(40)))
    Path("ids.txt").write_text("".join(f"v{at}\n" for at in range(40)))
    write_plink(cohort(n=6, d=40, special=False), "g")


BED = ("input.uri=g.bed", "preprocess={scale: {binomial: plink2}}")
NAMED: dict[str, tuple[str, ...]] = {
    "x.npy": (),
    "x.h5": ("input.uri=x.h5",),
    "x.nc": ("input.uri=x.nc",),
    "x.zarr/zarr.json": ("input={uri: x.zarr, array: x}",),
    "x.zarr/x/zarr.json": ("input={uri: x.zarr, array: x}",),
    "x.zarr/x/c/0/0": ("input={uri: x.zarr, array: x}",),
    "g.bed": BED,
    "g.bim": BED,
    "g.fam": BED,
    "names.txt": ("input.sample_names={uri: names.txt}",),
    "table.csv": ("model.labels={uri: table.csv, column: id}",),
    "samples.txt": ("input.samples=samples.txt",),
    "weights.npy": ("preprocess.weights={uri: weights.npy}",),
    "sample_weights.npy": ("preprocess.sample_weights={uri: sample_weights.npy}",),
    "mask.npy": ("preprocess.filters.mask={uri: mask.npy}",),
    "variants.csv": ("input.variants=variants.csv",),
    "ids.txt": ("input.variants=variants.csv", "preprocess.filters.variants=ids.txt"),
    "covariates": (
        "input.sample_names={uri: names.txt}",
        "preprocess.regress_out.covariates={uri: table.csv, columns: [value]}",
    ),
    "c.yaml": (),
    "scheduler.json": ("compute.cluster={scheduler_file: scheduler.json}",),
}
"""Files that a run reads, with the keys that name them."""
NO_FILE: dict[str, object] = {
    "pipe": os.mkfifo,
    "device": lambda path: os.symlink("/dev/zero", path),
    "holes": lambda path: (Path(path).touch(), os.truncate(path, 2**36)),
}


@pytest.mark.parametrize("kind", NO_FILE)
@pytest.mark.parametrize("name", NAMED)
def test_what_is_no_file_of_its_kind_is_refused_at_once(in_time, name, kind, capsys):
    made(inputs_of_every_kind)
    config("x.npy")
    path = {"covariates": "table.csv"}.get(name, name)
    Path(path).unlink(missing_ok=True)
    NO_FILE[kind](path)
    assert dpca("run", "c.yaml", *(word for key in NAMED[name] for word in ("--set", key))) in (1, 2)
    shown = capsys.readouterr().err
    assert path in shown or path.rpartition("/")[2] in shown, shown
    assert "defect" not in shown


OF_RESULTS = (
    "manifest.json",
    "certificate.json",
    "status.json",
    "result.zarr/zarr.json",
    "result.zarr/scores/zarr.json",
    "ledger/run.json",
)
READING = (
    ("report", "r"),
    ("status", "r"),
    ("transform", "r", "x.npy", "--out", "t.zarr"),
    ("reconstruct", "r", "--out", "t.zarr"),
    ("export", "r", "--to", "csv", "--out", "e.csv"),
    ("extend", "r", "new.npy", "--output", "e"),
    ("run", "c.yaml", "--resume"),
    ("run", "c.yaml", "--set", "output.path=s", "--from-gram", "r"),
)


@pytest.mark.parametrize("kind", ["pipe", "device", "holes", "deep"])
@pytest.mark.parametrize("name", OF_RESULTS)
def test_documents_of_results_that_are_none_are_not_waited_for(in_time, name, kind, capsys):
    """Every command that reads a result answers, with an error or from what it does not need."""
    made(a_finished_run)
    Path("r", name).unlink()
    if kind == "deep":
        Path("r", name).write_text("[" * 200_000)
    else:
        NO_FILE[kind](Path("r", name))
    for call in READING:
        assert dpca(*call) in (0, 1, 2), call
        assert "defect" not in capsys.readouterr().err, call
        for made_by in ("t.zarr", "e", "s"):
            shutil.rmtree(made_by, ignore_errors=True)
        Path("e.csv").unlink(missing_ok=True)


@pytest.mark.parametrize("written", ["as it was", "as many as it would have"])
@pytest.mark.parametrize("name", ["scores", "components"])
def test_an_array_of_a_result_that_claims_to_be_large_takes_no_memory(name, written):
    """Its metadata and the manifest agree, and its chunks are not there."""
    made(a_finished_run)
    long = 2**31
    for path in (Path("r/result.zarr/zarr.json"), Path(f"r/result.zarr/{name}/zarr.json")):
        document = json.loads(path.read_text())
        metadata = (
            document["consolidated_metadata"]["metadata"][name] if path.parent.name == "result.zarr" else document
        )
        metadata["shape"][-1 if name == "components" else 0] = long
        path.write_text(json.dumps(document))
    manifest = json.loads(Path("r/manifest.json").read_text())
    entry = manifest["arrays"][name]
    entry["array"]["shape"] = metadata["shape"]
    if written != "as it was":
        entry["chunks_written"] = -(-long // entry["array"]["chunks"][-1 if name == "components" else 0])
    Path("r/manifest.json").write_text(json.dumps(manifest))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(DpcaError, match=f"its {name} has 1 chunks, but an array of shape"):
        PCA.load("r")
    for call in READING:
        if call[0] in ("transform", "reconstruct") or (call[0] == "export" and name == "scores"):
            assert dpca(*call) == 2
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2**18  # KiB


@pytest.mark.parametrize("zipped", [False, True])
def test_metadata_that_are_too_large_to_be_any_are_not_read(zipped):
    zarr.create_array("x.zarr", data=X)
    if zipped:
        with zipfile.ZipFile("x.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("zarr.json", bytes(2**25))
    else:
        os.truncate("x.zarr/zarr.json", 2**40)
    with pytest.raises(DpcaError, match=r"zarr\.json .* 16777216"):
        open_source("x.zip" if zipped else "x.zarr")


@pytest.mark.parametrize("change", [{"attributes": 3}, {"attributes": [1]}, {"chunk_grid": None}, {"shape": [6, "x"]}])
def test_metadata_of_any_kind_are_an_error_or_left_aside(change):
    zarr.create_group("x.zarr").create_array("x", data=X, dimension_names=("time", None))
    zarr.open_group("x.zarr").create_array("time", data=np.arange(6.0))
    for name in ("time", "x"):
        path = Path("x.zarr", name, "zarr.json")
        path.write_text(json.dumps(json.loads(path.read_text()) | change))
        with contextlib.suppress(DpcaError), open_source("x.zarr", "x").open() as reader:
            np.testing.assert_array_equal(reader.read((slice(0, 6), slice(0, 40))), X)
            reader.coordinate(0)


@pytest.mark.parametrize(
    "uri", ["github://org:repo@main/x.zarr", "simplecache::dask::file://x.zarr", "data:,x://x", "jupyter://x/y.zarr"]
)
def test_a_protocol_that_is_of_no_files_is_refused(uri, capsys):
    assert dpca("run", config(json.dumps(uri))) == 2
    assert "has the protocol" in capsys.readouterr().err


def test_a_pipe_in_place_of_a_part_is_not_waited_for(in_time, capsys):
    layout = h5py.VirtualLayout(X.shape, "f8")
    layout[:] = h5py.VirtualSource("part.h5", "x", X.shape)
    with h5py.File("x.h5", "w") as file:
        file.create_virtual_dataset("x", layout)
    os.mkfifo("part.h5")
    assert dpca("run", config("x.h5")) == 2
    assert "part.h5: not readable as HDF5" in capsys.readouterr().err
