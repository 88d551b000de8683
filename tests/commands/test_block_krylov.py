"""dpca run with svd_solver: block_krylov: killed, resumed, with more passes, on clusters and in job arrays, as a user meets it."""

import json
import os
import shutil
import signal
import sys
from pathlib import Path

import numpy as np
import pytest
import zarr

from dpca import slabs
from dpca.errors import DataError
from dpca.methods import second_pass
from dpca.planning import search
from dpca.store import gram
from dpca.store.results import open_result
from tests.commands.calls import dpca
from tests.made import made
from tests.reference import dense_pca
from tests.resume.disturbed import START, disturbed, flipped, staged, truncated
from tests.stores import bits

N, D = 60, 6000
SMALL = START + "dpca.planning.search.PRODUCT_SLAB_BYTES = 60_000\n"
AT_SLAB = """
import dpca.methods.passes as passes
made, seen = passes.Slab, []
def counted(*facts):
    seen.append(1)
    if len(seen) == {slab}:
        os.kill(os.getpid(), signal.SIGKILL)
    return made(*facts)
passes.Slab = counted
"""


def in_small_slabs(patch):
    patch.setattr(slabs, "TILE_WIDTH", 1)
    patch.setattr(search, "PRODUCT_SLAB_BYTES", 60_000)


@pytest.fixture
def small(monkeypatch):
    """Slabs so small that there are ten spans."""
    in_small_slabs(monkeypatch)


def factors(shape, seed=0):
    g = np.random.default_rng(seed)
    x = g.standard_normal((shape[0], 12)) * 1.5 ** -np.arange(12) @ g.standard_normal((12, shape[1]))
    return (10 * x + 0.05 * g.standard_normal(shape) + g.uniform(-3, 3, shape[1])).astype("f4")


def written(shape=(N, D), chunks=(N, 600), keys=""):
    x = factors(shape)
    zarr.create_array("x.zarr", data=x, chunks=chunks)
    Path("c.yaml").write_text(
        f"input: {{uri: x.zarr}}\n{keys}\nmodel: {{n_components: 4, svd_solver: block_krylov, block_krylov: {{block: 6}}}}\noutput: {{path: r}}\n"
    )
    return x


def expected(shape, chunks):
    """What `written` leaves, and the result of a run in these slabs that nothing stopped."""
    written(shape, chunks)
    with pytest.MonkeyPatch.context() as patch:
        in_small_slabs(patch)
        assert dpca("run", "c.yaml", "--set", "output.path=expected") == 0


def certificate(path="r"):
    return json.loads(Path(path, "certificate.json").read_text())


def test_a_run_says_what_it_knows(small, capsys):
    x = written()
    assert dpca("run", "c.yaml") == 0
    said = capsys.readouterr()
    found = certificate()
    passes = found["block_krylov"]["passes"]
    assert f"4 of 4 components converged to 1e-06, 4 reliable, after {passes} passes" in said.out
    assert "after pass 1 of at most 12: 0 of 4 components are known to 1e-06" in said.err
    result = open_result("r")
    np.testing.assert_allclose(result.arrays["singular_values"][...], dense_pca(x).singular_values[:4], rtol=1e-6)
    assert "gram" not in result.arrays
    assert result.arrays["eigenvalues"].shape == (6,)
    status = json.loads(Path("r/status.json").read_text())
    assert status["state"] == "done"
    assert status["iteration"]["met"] == 4
    assert status["iteration"]["max_passes"] == 12
    assert len(status["iteration"]["bounds"]) == 4
    capsys.readouterr()
    assert dpca("status", "r") == 0
    assert "4 of 4 components converged to 1e-06, 4 reliable, after" in capsys.readouterr().out
    made(expected, (N, D), (N, 600))
    assert bits("r") == bits("expected")


@pytest.mark.long
@pytest.mark.parametrize("slab", [3, 14, 24, 28])
@pytest.mark.parametrize("windows", [False, True])
def test_a_killed_run_resumes_within_a_pass(small, slab, windows):
    written()
    how = ("--set", f"model.block_krylov.windows={str(windows).lower()}")
    assert dpca("run", "c.yaml", *how, "--set", "output.path=expected") == 0
    done = disturbed(AT_SLAB.format(slab=slab), "run", "c.yaml", *how, start=SMALL)
    assert done.returncode == -signal.SIGKILL, done.stderr
    before = sorted(Path("r/ledger").glob("*/parts/*/*.npz"))
    assert before
    assert dpca("run", "c.yaml", "--resume", *how) == 0
    assert bits("r") == bits("expected")


@pytest.mark.long
def test_double_precision_takes_no_block_of_windows_from_the_attempt_before(small, capsys):
    x = written()
    x[0] *= 1e4
    zarr.create_array("x.zarr", data=x, chunks=(N, 600), overwrite=True)
    windowed = ("--set", "model.block_krylov.windows=true")
    assert dpca("run", "c.yaml", *windowed) == 0
    assert "double precision is tried" in capsys.readouterr().err
    assert dpca("run", "c.yaml", *windowed, "--set", "model.precision=double", "--set", "output.path=double") == 0
    values = [zarr.open_group(f"{path}/result.zarr", mode="r")["singular_values"][...] for path in ("r", "double")]
    assert values[0].tobytes() == values[1].tobytes()


@pytest.mark.long
def test_a_damaged_part_is_computed_again(small):
    written()
    assert dpca("run", "c.yaml", "--set", "output.path=expected") == 0
    done = disturbed(AT_SLAB.format(slab=24), "run", "c.yaml", start=SMALL)
    assert done.returncode == -signal.SIGKILL, done.stderr
    shutil.copytree("r", "before")
    for path in sorted(Path("r/ledger").glob("*/parts/*/*.npz")):
        truncated(path)
        assert dpca("run", "c.yaml", "--resume") == 0, path
        assert bits("r") == bits("expected"), path
        shutil.rmtree("r")
        shutil.copytree("before", "r")


@pytest.mark.parametrize(
    ("shape", "chunks"), [((N, D), (N, 600)), pytest.param((D, N), (600, N), marks=pytest.mark.long)]
)
def test_a_result_that_has_not_converged_is_kept_and_gone_on_with(small, shape, chunks, capsys):
    made(expected, shape, chunks)
    x = factors(shape)
    passes = certificate("expected")["block_krylov"]["passes"]
    few = ("--set", f"model.block_krylov.max_passes={passes - 2}")
    capsys.readouterr()
    assert dpca("run", "c.yaml", *few) == 1
    said = capsys.readouterr()
    assert f" not known to 1e-06 after {passes - 2} passes of at most {passes - 2}" in said.err
    assert "--resume --set model.block_krylov.max_passes=" in said.err
    assert "not converged: known to" in said.out
    kept = certificate()
    assert not kept["block_krylov"]["converged"]
    for component, exact in zip(kept["components"], dense_pca(x).singular_values, strict=False):
        value = component["singular_value"] ** 2
        assert abs(value - exact**2) <= component["bound"] * value
    assert dpca("run", "c.yaml", *few, "--resume") == 1  # nothing is left to do, and nothing is better
    reads = json.loads(Path("r/manifest.json").read_text())["counts"]["passes"]
    assert dpca("run", "c.yaml", "--resume") == 0
    assert bits("r") == bits("expected")
    assert json.loads(Path("r/manifest.json").read_text())["counts"]["passes"] > reads - 1
    assert sorted(path.name for path in Path("r").iterdir()) == [
        "certificate.json",
        "manifest.json",
        "result.zarr",
        "status.json",
    ]


@pytest.mark.parametrize(
    ("shape", "chunks"), [((N, D), (N, 600)), pytest.param((D, N), (600, N), marks=pytest.mark.long)]
)
def test_what_was_to_be_the_last_pass_is_stopped_and_is_not_the_last_any_more(small, shape, chunks, monkeypatch):
    """Half of what it was to write was there for ever, is in no result, and is in nobody's way."""
    made(expected, shape, chunks)
    name = "components_span" if shape == (N, D) else "left_vectors_span"
    span, left = getattr(second_pass, name), iter(range(3))

    def stopped(*arguments):
        if next(left, None) is None:
            raise DataError("stopped", "")
        return span(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(second_pass, name, stopped)
        assert dpca("run", "c.yaml", "--set", "model.block_krylov.max_passes=2") == 2
    assert staged("*_~in_hand_of_*")
    assert dpca("run", "c.yaml", "--resume") == 0
    assert bits("r") == bits("expected")


@pytest.mark.long
def test_going_on_may_be_killed_as_well(small):
    written()
    assert dpca("run", "c.yaml", "--set", "output.path=expected") == 0
    passes = certificate("expected")["block_krylov"]["passes"]
    few = ("--set", f"model.block_krylov.max_passes={passes - 1}")
    assert dpca("run", "c.yaml", *few) == 1
    first = bits("r")
    done = disturbed(AT_SLAB.format(slab=5), "run", "c.yaml", "--resume", start=SMALL)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert bits("r") == first  # the old result is there until the new one is whole
    assert dpca("run", "c.yaml", "--resume") == 0
    assert bits("r") == bits("expected")


def test_other_data_are_not_gone_on_with(small, capsys):
    written()
    assert dpca("run", "c.yaml", "--set", "model.block_krylov.max_passes=2") == 1
    array = zarr.open_array("x.zarr", mode="r+")
    array[:, :600] = array[:, :600] + 1
    capsys.readouterr()
    assert dpca("run", "c.yaml", "--resume") == 2
    assert "the input" in capsys.readouterr().err


@pytest.mark.long
@pytest.mark.parametrize(
    ("shape", "chunks", "keys", "spoil"),
    [
        ((N, D), (N, 600), "", None),
        ((D, N), (600, N), "", None),
        ((D, N), (600, N), "preprocess: {scale: std}", None),
        ((N, D), (N, 600), "", flipped),
        ((N, D), (N, 600), "", os.remove),
    ],
)
@pytest.mark.parametrize("further", ["", "model.block_krylov.windows=true", "model.block_krylov.restart=true"])
def test_a_job_array_has_the_bits_of_a_run(small, shape, chunks, keys, spoil, further, capsys):
    """Also where means are damaged that spans of its first pass have written, in whatever window they were."""
    written(shape, chunks, keys)
    how = ("--set", further) if further else ()
    assert dpca("run", "c.yaml", *how, "--set", "output.path=expected") == 0
    assert dpca("batch", "init", "c.yaml", *how, "--partitions", "3") == 0
    for _ in range(30):
        capsys.readouterr()
        assert dpca("batch", "status", "r", "--json") == 0
        if json.loads(capsys.readouterr().out)["state"] == "done":
            break
        means = sorted(Path("r").glob("ledger/*/result.zarr/mean/c/*"))
        if spoil and means and "pass 2" in json.loads(Path("r/ledger/batch.json").read_text())["document"]["stage"]:
            spoil(means[len(means) // 2])
            spoil = None
            assert dpca("batch", "finalize", "r") in (0, 1)
        for index in (2, 0, 1, 0):
            assert dpca("batch", "partition", "r", "--index", index) == 0
        assert dpca("batch", "finalize", "r") == 0
    assert spoil is None
    assert bits("r") == bits("expected")


CLUSTER = """
import sys
from distributed import LocalCluster
from dpca.cli.app import main
if __name__ == "__main__":
    import dpca.slabs, dpca.planning.search
    dpca.slabs.TILE_WIDTH, dpca.planning.search.PRODUCT_SLAB_BYTES = 1, 60_000
    with LocalCluster(n_workers=2, threads_per_worker=1, memory_limit="2GiB", dashboard_address=None) as cluster:
        main(["run", "c.yaml", "--set", f"compute.cluster={{scheduler: '{cluster.scheduler_address}'}}", "--set", "output.path=c"])
"""


@pytest.mark.long
@pytest.mark.parametrize(("shape", "chunks"), [((N, D), (N, 600)), ((D, N), (600, N))])
def test_a_dask_cluster_has_the_bits_of_threads(small, shape, chunks):
    import subprocess

    written(shape, chunks)
    assert dpca("run", "c.yaml") == 0
    Path("cluster.py").write_text(CLUSTER)
    done = subprocess.run([sys.executable, "cluster.py"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert bits("c") == bits("r")
    traffic = json.loads(Path("c/manifest.json").read_text())["network"]
    assert any(stage.startswith("block_krylov") for stage in traffic)


@pytest.mark.long
def test_the_plan_shows_both_solvers(capsys):
    n = 3000
    zarr.create_array("x.zarr", shape=(n, 4000), dtype="f4", chunks=(n, 300))
    Path("c.yaml").write_text("input: {uri: x.zarr}\nmodel: {n_components: 4}\noutput: {path: r}\n")
    for memory, first in (("4GiB", "gram_eigh"), ("350MiB", "block_krylov")):
        assert dpca("plan", "c.yaml", "--json", "--set", f"compute.memory={memory}") == 0
        document = json.loads(capsys.readouterr().out)
        mine, other = document["solvers"]
        assert (mine["solver"], document["solver"]) == (first, first)
        assert {mine["solver"], other["solver"]} == {"gram_eigh", "block_krylov"}
        assert mine["memory_bytes"] <= document["memory"]["budget_bytes"]
        assert other["fits"] == (first == "gram_eigh")
        krylov = mine if first == "block_krylov" else other
        assert krylov["passes"] == 5
        assert krylov["worst_case_passes"] == 12
        assert dpca("plan", "c.yaml", "--set", f"compute.memory={memory}") == 0
        text = capsys.readouterr().out
        assert "solvers  " in text
        assert ("gram_eigh does not fit: it needs" in text) == (first == "block_krylov")
    for process in document["memory"]["processes"]:
        for stage in process["stages"]:
            largest = max(array["bytes"] for array in stage["arrays"] if array["name"] != "interpreter and libraries")
            assert largest < 8 * n * n  # nothing of n x n


def test_what_needs_the_matrix_is_refused_with_the_number_of_samples_that_fits(small, capsys, monkeypatch):
    written()
    assert dpca("run", "c.yaml") == 0
    Path("d.yaml").write_text(
        "from: r\nanalyses: [{name: a, model: {kind: pca, n_components: 2}}]\noutput: {path: d}\n"
    )
    capsys.readouterr()
    assert dpca("derive", "d.yaml") == 2
    said = capsys.readouterr().err
    assert "r: keeps no Gram matrix of its samples (svd_solver was block_krylov, which makes no 60 x 60 matrix)" in said
    assert "Run it again with output.gram: true and model.svd_solver: gram_eigh" in said
    from dpca.system.machine import Budget

    monkeypatch.setattr(gram, "memory_budget", lambda: Budget(161 * 2**20, "of this test"))
    monkeypatch.setattr(gram, "LIBRARIES_BYTES", 161 * 2**20 - 8 * 3 * 50**2)
    assert dpca("derive", "d.yaml") == 2
    said = capsys.readouterr().err
    assert "up to about " in said
    assert "samples fit: choose so many with input.samples" in said
    Path("k.yaml").write_text(
        "input: {uri: x.zarr}\nmodel: {kind: kernel_pca, n_components: 2, svd_solver: block_krylov}\noutput: {path: k}\n"
    )
    assert dpca("run", "k.yaml") == 2
    assert "kernels are of the Gram matrix: auto or gram_eigh is allowed" in capsys.readouterr().err


def test_a_kernel_of_too_many_samples_says_how_many_fit(capsys):
    zarr.create_array("x.zarr", shape=(60_000, 70_000), dtype="f4", chunks=(60_000, 10))
    Path("k.yaml").write_text(
        "input: {uri: x.zarr}\nmodel: {kind: kernel_pca, kernel: rbf, n_components: 2}\ncompute: {memory: 4GiB}\noutput: {path: k}\n"
    )
    assert dpca("plan", "k.yaml") == 3
    said = capsys.readouterr().err
    assert "samples fit." in said
    assert "model.kind: kernel_pca needs the matrix, which model.svd_solver: block_krylov does not make" in said


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        ("block_krylov: {block: 3}", "model.block_krylov.block is 3, but 4 components are asked for"),
        ("block_krylov: {tolerance: 2}", "block_krylov.tolerance"),
        ("block_krylov: {pases: 3}", "max_passes"),
        (
            "block_krylov: {tolerance: 1.0e-9}, precision: single",
            "below what products in single precision can support: 1.19209e-07",
        ),
    ],
)
def test_bad_settings_name_their_line(small, keys, line, capsys):
    written()
    Path("c.yaml").write_text(
        f"input: {{uri: x.zarr}}\noutput: {{path: r}}\nmodel: {{n_components: 4, svd_solver: block_krylov, {keys}}}\n"
    )
    assert dpca("run", "c.yaml") == 2
    said = capsys.readouterr().err
    assert line in said
    assert "c.yaml:3" in said
