"""dpca plan: what it promises is what dpca run then does; over budget, both refuse with exit code 3."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
import zarr

from dpca import PCA, KernelPCA
from dpca.errors import OverBudgetError
from dpca.planning import disk
from tests.commands.calls import dpca, dpca_process, given, run, sets
from tests.made import made
from tests.stores import random_array


def planned(capsys, config, *keys):
    capsys.readouterr()
    assert dpca("plan", config, "--json", *sets(*keys)) == 0
    return json.loads(capsys.readouterr().out)


def files_in(path):
    return [file for file in Path(path).rglob("*") if file.is_file()]


@pytest.mark.parametrize(
    "keys",
    [
        [],
        ["output.components=false"],
        ["output.gram=false", "preprocess.scale=std", "model.precision=double"],
        ["preprocess.center=false"],
        ["input.samples_axis=lat", "preprocess.scale=std"],
    ],
)
def test_files_bytes_and_arrays_are_those_of_the_run(config, capsys, keys):
    document = planned(capsys, config, *keys)
    assert sorted(os.listdir()) == ["c.yaml", "x.zarr"]
    assert dpca("run", config, *sets(*keys)) == 0
    manifest = json.loads(Path("out/r/manifest.json").read_text())
    assert document["bytes_read"] == manifest["counts"]["bytes_decoded"]
    assert len(document["passes"]) == manifest["counts"]["passes"]
    assert document["memory"]["peak_bytes"] == manifest["memory"]["planned_bytes"]["dpca"]
    assert document["spans"] == manifest["plan"]["n_spans"]
    result = zarr.open_group("out/r/result.zarr", mode="r")
    for array in document["output"]["arrays"]:
        assert list(result[array["name"]].shape) == array["shape"]
        assert str(result[array["name"]].dtype) == array["dtype"]
    assert {name for name, _ in result.arrays()} == {array["name"] for array in document["output"]["arrays"]}
    assert len(files_in("out/r")) <= document["output"]["files"] <= len(files_in("out/r")) + 2
    stored = sum(file.stat().st_size for file in files_in("out/r/result.zarr") if "c" in file.parts)
    assert stored <= document["output"]["bytes"] + 1000


def test_flops_are_those_of_the_textbook(config, capsys):
    document = planned(capsys, config)
    n, d, k = 12, 600, 4
    assert [item["flops"] for item in document["passes"]] == [n * n * d, (4 * n * k + k * k) * d]
    assert document["flops"] == sum(item["flops"] for item in document["passes"]) + 9 * n**3


def test_memory_is_listed_array_by_array(config, capsys):
    document = planned(capsys, config, "compute.memory=1GiB", "compute.workers=2")
    assert document["memory"]["budget_bytes"] == 2**30
    (process,) = document["memory"]["processes"]
    stages = {stage["name"]: stage for stage in process["stages"]}
    assert set(stages) == {"gram", "gram in double", "tsqr", "eigensolve", "components", "orthogonalize"}
    for stage in stages.values():
        assert stage["bytes"] == sum(array["bytes"] * array["count"] for array in stage["arrays"])
    assert process["peak_bytes"] == max(stage["bytes"] for stage in stages.values())
    gram = {array["name"]: array for array in stages["gram"]["arrays"]}
    assert gram["Gram matrix"]["bytes"] == 8 * 12**2
    # LAPACK's syevd: 1 + 6 n + 2 n^2 reals of workspace and 3 + 5 n integers.
    assert any("workspace" in array["name"] for array in stages["eigensolve"]["arrays"])


def test_the_text_says_what_a_person_wants_to_know(config, capsys):
    assert dpca("plan", config, *sets("compute.memory=1GiB", "compute.workers=1")) == 0
    shown = capsys.readouterr().out
    assert "x.zarr: 12 x 20 x 30 float32 in chunks of 5 x 20 x 7 (zstd), 28.8 kB" in shown
    assert "12 samples, 600 features, 4 components\n" in shown
    assert "solver   gram: 12 x 12, the smaller side of 12 samples x 600 features; single precision, the rule" in shown
    assert "reads    1 read of 28.8 kB, then kept in memory; 1 slabs of" in shown
    assert "of 1 GiB, as asked for" in shown
    assert "disk     up to " in shown
    assert "most of it " in shown
    assert "interpreter and libraries" not in shown
    assert len(shown.splitlines()) <= 10
    for line in shown.splitlines():
        assert len(line) < 200
    assert dpca("plan", config, "--memory", *sets("compute.memory=1GiB", "compute.workers=1")) == 0
    assert "interpreter and libraries" in capsys.readouterr().out


def test_a_result_that_the_disk_has_no_room_for_is_refused_before_anything_is_read(config, capsys, monkeypatch):
    """By every command that writes one, and by a fit; a number of components that the spectrum decides may be small."""
    assert dpca("run", config) == 0
    Path("d.yaml").write_text("from: out/r\nanalyses: [{name: a, model: {kind: pca}}]\noutput: {path: d}\n")
    monkeypatch.setattr(disk, "free_disk", lambda path: 15_000)
    capsys.readouterr()
    again = sets("output.path=other")
    needed = ("takes up to ", "but its disk has 15 kB free")
    for command in (
        ("plan", config, *again),
        ("run", config, *again),
        ("reconstruct", "out/r", "--out", "back.zarr"),
        ("derive", "d.yaml"),
    ):
        assert dpca(*command) == 3, command
        said = capsys.readouterr().err
        assert all(words in said for words in needed), said
        assert not {"other", "back.zarr", "d"} & {*os.listdir()}
    x = zarr.open_array("x.zarr")
    monkeypatch.setattr(disk, "free_disk", lambda path: 100)
    for of in (PCA(4), KernelPCA(4)):
        with pytest.raises(OverBudgetError, match=r"(?s)takes up to .* its disk has 100 B free.*Choose another store"):
            of.fit(x)
    monkeypatch.setattr(disk, "free_disk", lambda path: 15_000)
    assert dpca("run", config, *again, *sets("model.n_components=broken_stick", "output.gram=false")) == 0


def test_time_is_measured_and_every_stage_has_some(config, capsys):
    document = planned(capsys, config)
    assert document["time"]["seconds"] == pytest.approx(sum(document["time"]["stages"].values()))
    assert all(seconds > 0 for seconds in document["time"]["stages"].values())
    assert all(rate > 0 and math.isfinite(rate) for rate in document["time"]["rates"].values())


def wide_rows(n_bytes):
    """Whole rows that are compressed: neither a column of chunks nor a part of one is cheap."""
    with h5py.File("rows.h5", "w") as file:
        dataset = file.create_dataset("x", (8, n_bytes // 8), "f4", chunks=(1, n_bytes // 8), compression="lzf")
        dataset[:] = random_array(0, (8, n_bytes // 8), "f4")
    return "input.uri=rows.h5"


@pytest.mark.parametrize(
    ("attributes", "keys"),
    [
        ({}, ["input.missing_values=[0, 50]"]),
        ({"valid_min": 200, "valid_max": 260}, ["input.missing_values=[0, 210]"]),
        ({"valid_range": [-30, -20]}, ["preprocess.missing=drop"]),
        ({}, ["preprocess.scale={binomial: plink2}", "preprocess.missing=pairwise"]),
        ({"scale_factor": 0.01, "add_offset": 0.5}, ["preprocess.scale={binomial: smartpca}"]),
        ({}, ["preprocess.scale={binomial: snprelate}", "input.samples_axis=1"]),
    ],
)
def test_time_is_measured_with_values_that_are_allowed(config, capsys, attributes, keys):
    array = zarr.create_array("y.zarr", data=np.ones((30, 99), "i2"), dimension_names=("time", "cell"))
    array.attrs.update(attributes)
    assert planned(capsys, config, "input={uri: y.zarr}", *keys)["time"]["seconds"] > 0


def test_a_copy_is_announced_with_the_disk_that_it_takes(config, capsys):
    uri = wide_rows(2**23)
    document = planned(capsys, config, uri, "compute.memory=245MiB", "compute.workers=1")
    assert document["reading"]["kind"] == "copy"
    assert [item["name"] for item in document["passes"]] == ["copy", "gram", "components"]
    assert document["bytes_read"] == 3 * document["input"]["bytes"]
    assert document["scratch"]["bytes"] >= document["input"]["bytes"]
    assert document["scratch"]["path"] == str(Path("out/r/ledger/scratch").absolute())
    assert document["time"]["stages"]["copy"] > 0
    assert any("need a copy in scratch" in sentence for sentence in document["advice"])
    Path("fast").mkdir()
    elsewhere = planned(capsys, config, uri, "compute.memory=245MiB", "compute.workers=1", "compute.scratch=fast")
    assert Path(elsewhere["scratch"]["path"]) == Path("fast").absolute()
    assert not os.listdir("fast")
    assert dpca("plan", config, *sets(uri, "compute.memory=245MiB", "compute.scratch=slow")) == 2
    assert "slow: is not a directory" in capsys.readouterr().err


@pytest.mark.long
def test_a_run_with_a_copy_keeps_to_its_plan_and_removes_it(config, capsys):
    keys = [wide_rows(2**23), "compute.memory=245MiB", "compute.workers=1", "compute.scratch=fast"]
    Path("fast").mkdir()
    document = planned(capsys, config, *keys)
    done = dpca_process("run", config, *sets(*keys))
    assert done.returncode == 0, done.stderr
    manifest = json.loads(Path("out/r/manifest.json").read_text())
    assert manifest["reading"] == "copy"
    assert manifest["counts"]["bytes_decoded"] == document["bytes_read"]
    assert manifest["counts"]["bytes_copied_to_scratch"] == document["scratch"]["bytes"]
    assert not files_in("fast")
    with h5py.File("rows.h5") as file:
        x = file["x"][...].astype("f8")
    x -= x.mean(0)
    found = zarr.open_group("out/r/result.zarr", mode="r")["singular_values"][:]
    np.testing.assert_allclose(found, np.sqrt(np.linalg.eigvalsh(x @ x.T)[::-1][:4]), rtol=1e-5)


@pytest.mark.parametrize("command", ["plan", "run"])
def test_over_budget_is_exit_code_3_with_the_budget_and_chunks_that_would_do(config, capsys, command):
    zarr.create_array("big.zarr", shape=(20, 2**24), chunks=(20, 2**24), dtype="f4")
    keys = sets("input.uri=big.zarr", "compute.memory=300MiB")
    assert dpca(command, config, *keys) == 3
    error, remedy = capsys.readouterr().err.splitlines()
    assert "big.zarr: the smallest plan takes" in error
    assert "but the budget is 300 MiB, as asked for" in error
    assert "chunks of 20 x 16,777,216 (1.25 GiB each)" in remedy
    enough = int(remedy.split("Set compute.memory to ")[1].split(" MiB")[0])
    assert not Path("out").exists()
    assert dpca("plan", config, *sets("input.uri=big.zarr", f"compute.memory={enough - 1}MiB")) == 3
    if command == "plan":
        capsys.readouterr()
        assert dpca("plan", config, "--json", *keys) == 3
        document = json.loads(capsys.readouterr().out)
        assert document["fits"] is False
        assert document["remedy"] == remedy.strip()


def test_more_samples_than_fit_say_how_many_would(config, capsys):
    zarr.create_array("tall.zarr", shape=(40_000, 60_000), chunks=(40_000, 100), dtype="f4")
    assert dpca("plan", config, *sets("input.uri=tall.zarr", "compute.memory=2GiB", "model.svd_solver=gram_eigh")) == 3
    shown = capsys.readouterr().err
    most = int(shown.split("With 2 GiB up to ")[1].split(" samples fit")[0])
    assert 5000 < most < 16_000


def test_a_budget_that_is_lowered_to_a_limit_says_so(config, capsys, monkeypatch):
    monkeypatch.setenv("SLURM_MEM_PER_NODE", "400")
    document = planned(capsys, config, "compute.memory=200GiB")
    assert document["memory"]["budget_bytes"] <= 400 * 2**20
    expected = "what is free of Slurm's allocation, 400 MiB, which is less than the 200 GiB asked for"
    assert any(expected in sentence for sentence in document["advice"])
    done = dpca_process("run", config, *sets("compute.memory=200GiB"))
    assert done.returncode == 0, done.stderr
    assert f", {expected}" in done.stderr
    monkeypatch.setenv("SLURM_MEM_PER_NODE", "100")
    capsys.readouterr()
    assert dpca("run", config, "--overwrite") == 3
    assert "free of Slurm's allocation" in capsys.readouterr().err


@pytest.fixture
def control_group():
    """A memory control group of the test's own, version 1, that may take 500 MiB."""
    group = Path(f"/sys/fs/cgroup/memory/dpca-test-{os.getpid()}")
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(500 * 2**20))
    except OSError as error:
        pytest.skip(f"no control group of version 1 can be made here: {error}")
    yield group
    group.rmdir()


def test_a_real_control_group_bounds_the_budget(config, control_group):
    script = (
        f"import os; open('{control_group}/cgroup.procs', 'w').write(str(os.getpid()))\n"
        "from dpca.cli.app import main; main(['plan', 'c.yaml', '--json', '--set', 'compute.memory=200GiB'])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    memory = json.loads(done.stdout)["memory"]
    assert 450 * 2**20 < memory["budget_bytes"] <= 500 * 2**20
    assert f"what is free of control group /{control_group.name}, 500 MiB" in memory["budget_origin"]


def test_a_million_chunks_are_planned_without_listing_them(config, capsys):
    shape = (1000, 1_000_000)
    zarr.create_array("many.zarr", shape=shape, chunks=(10, 100), dtype="f4")
    document = planned(capsys, config, "input.uri=many.zarr", "compute.memory=1GiB", "compute.workers=2")
    assert document["reading"]["kind"] == "columns"
    assert document["slab_width"] % 100 == 0
    assert document["spans"] < 200
    assert any("chunks of 10 x 100 are 3.91 KiB each" in sentence for sentence in document["advice"])


def test_an_output_path_that_a_run_would_refuse_is_told(config, capsys):
    assert not any("refuse" in sentence for sentence in planned(capsys, config)["advice"])
    made(run, given)
    advice = planned(capsys, config)["advice"]
    assert advice[-1].startswith("a run will refuse its output.path: out/r: holds a result already.")


def test_a_coordinate_that_is_too_large_is_named_and_one_in_huge_chunks_left_out(capsys):
    group = zarr.create_group("named.zarr")
    group.create_array("x", data=np.eye(5, 200_000, dtype="f4"), chunks=(5, 8192), dimension_names=("time", "gene"))
    names = np.strings.add("g" * 60, np.arange(200_000).astype("U6")).astype("T")
    group.create_array("gene", data=names, chunks=(200_000,))
    group.create_array("time", shape=(5,), dtype="f8", chunks=(2**40,))
    Path("n.yaml").write_text("input: {uri: named.zarr, array: x}\noutput: {path: r}\n")
    assert dpca("run", "n.yaml", "--set", "compute.memory=220 MiB") == 3
    said = capsys.readouterr().err
    assert "most in coordinates, for coordinate gene, copied in pieces" in said
    assert "Stored in smaller chunks, that coordinate would take less" in said
    assert dpca("plan", "n.yaml", "--set", "compute.memory=1 GiB") == 0
    assert (
        "a coordinate will be left out of the result: named.zarr:x, coordinate time has chunks of"
        in capsys.readouterr().out
    )
    assert dpca("run", "n.yaml", "--set", "compute.memory=1 GiB") == 0
    assert "dpca: note: coordinate left out: named.zarr:x, coordinate time has chunks of" in capsys.readouterr().err
    assert str(zarr.open_array("r/result.zarr/gene")[199_999]) == "g" * 60 + "199999"
