"""Power lost at every flush of every run, in turn: what is gone on with has the bits of a run that was never disturbed."""

import json
import os
import re
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import zarr

from dpca import PCA, slabs
from dpca.commands.apply import Placement, transform
from dpca.commands.run import run
from dpca.config.loading import load
from dpca.store.directory import ResultDirectory
from dpca.system.scratch import ScratchFolder
from tests.commands.calls import dpca
from tests.stores import contents
from workflows.campaigns.crashes import FLUSHES, unflushed, watched, without

pytestmark = pytest.mark.long

STRIDE = int(os.environ.get("DPCA_CRASH_STRIDE", "97"))
"""Of so many losses of power one is gone on from; of each (1) by make crashes, which takes minutes."""

SEEDS = range(5)
"""What is lost: all that was not flushed, nothing, and three times what is drawn."""

CASES = {
    "features stream by": ((5, 40), (5, 10), ()),
    "samples stream by": ((60, 3), (20, 3), ("preprocess.missing=mean",)),
    "components made orthonormal": ((6, 40), (6, 20), ("model.n_components=4",)),
}


@pytest.fixture
def config(request, monkeypatch):
    case = getattr(request, "param", "features stream by")
    shape, chunks, keys = CASES[case]
    rng = np.random.default_rng(0)
    x = rng.normal(size=shape)
    if "orthonormal" in case:
        left, right = np.linalg.qr(rng.normal(size=(6, 5)))[0], np.linalg.qr(rng.normal(size=(40, 5)))[0]
        x = (left * [1, 1e-2, 1e-3, 1e-4, 1e-5]) @ right.T
    monkeypatch.setattr(slabs, "TILE_WIDTH", 1)
    zarr.create_array("x.zarr", data=x, chunks=chunks)
    Path("out").mkdir()
    Path("c.yaml").write_text(
        "input: {uri: x.zarr}\nmodel: {n_components: 2, svd_solver: auto}\ncompute: {workers: 1}\noutput: {path: out/r}\n"
    )
    return load("c.yaml", keys)


every_case = pytest.mark.parametrize("config", CASES, indirect=True)


def losses(power):
    """What may be found after power was lost, the last moment first, and what was there until then."""
    for moment in reversed(power.moments):
        before = power.left(moment, seed=1)
        for seed in SEEDS:
            yield power.left(moment, seed), before


def result(files):
    """The result among files: its run, certificate and arrays; None where there is none."""
    if "r/manifest.json" not in files:
        return None
    try:
        run = json.loads(files["r/manifest.json"])["run"]
        certificate = json.loads(files["r/certificate.json"])
    except (ValueError, KeyError):
        return "half of a result"
    arrays = {
        path: content for path, content in files.items() if path.startswith("r/result.zarr/") and content is not None
    }
    return run, certificate, arrays


def is_whole(left, before, results):
    """Whether a result is found as it was; while one takes the place of another, either of them or none."""
    return result(left) in ([None, *results] if "r/ledger/commit.json" in before else [result(before)])


def go_on(config, older=None):
    """What comes of a run that is gone on with, or begun again where there is nothing, or an older result."""
    anew = ResultDirectory("out/r").unfinished() is None and result(contents("out")) == older
    run(config, resume=not anew, overwrite=anew)
    # A run that only has to be published writes no status.
    assert {*os.listdir("out/r"), "status.json"} == {"certificate.json", "manifest.json", "result.zarr", "status.json"}
    return result(contents("out"))[1:]


@every_case
def test_power_lost_at_any_moment_of_a_run(config):
    with watched("out") as power:
        run(config)
    new = result(contents("out"))
    found = list(losses(power))
    assert all(is_whole(left, before, [new]) for left, before in found)
    for left, _ in found[STRIDE // 2 :: STRIDE]:
        power.restart(left)
        with unflushed():
            assert go_on(config) == new[1:]
    assert len(power.moments) > 100


def replaced(config):
    """A run that replaces an older result, and both results."""
    with unflushed():
        run(load("c.yaml", ["model.n_components=1"]))
    old = result(contents("out"))
    with watched("out") as power:
        run(config, overwrite=True)
    return power, [old, result(contents("out"))]


@every_case
def test_power_lost_twice_and_while_an_older_result_is_replaced(config):
    power, results = replaced(config)
    found = list(losses(power))
    assert all(is_whole(left, before, results) for left, before in found)
    for left, _ in found[STRIDE :: 4 * STRIDE]:
        power.restart(left)
        with watched("out") as again:
            assert go_on(config, results[0]) == results[-1][1:]
        results = [*results[:2], result(contents("out"))]
        twice = list(losses(again))
        assert all(is_whole(left, before, results) for left, before in twice)
        again.restart(twice[len(twice) // 3][0])
        with unflushed():
            assert go_on(config, results[0]) == results[-1][1:]


def transform_into_t():
    transform("r", "x.zarr", "out/t", overwrite=False, place=Placement(workers=1))


def transformed():
    """Samples that are transformed by the result that is here, and what comes of it."""
    os.rename("out/r", "r")
    with watched("out") as power:
        transform_into_t()
    return power, contents("out")


def is_transformed(left, before, whole):
    """Whether all that was made is found, or nothing; once it was in its place, there or where it was made."""
    there = {path: content for path, content in left.items() if path.startswith("t/") and content is not None}
    aside = {re.sub(r"\.t\.partial/\w+/arrays/", "t/", path): content for path, content in left.items()}
    if "t" not in before:
        return there in ({}, whole)
    return there == whole or (".t.partial" in before and whole.items() <= aside.items())


def test_power_lost_while_samples_are_transformed(config):
    with unflushed():
        run(config)
    power, whole = transformed()
    found = list(losses(power))
    assert all(is_transformed(left, before, whole) for left, before in found)
    for left, _ in found[:: 1 + STRIDE // 4]:
        if "t" not in left:
            power.restart(left)
            with unflushed():
                transform_into_t()
            assert contents("out") == whole


FILES = {
    **{f"export --to {to}": f"export r --to {to} --out out/e" for to in ("csv", "plink", "png")},
    **{f"export --to {to}": f"export r --to {to} --out out/e.{to}" for to in ("npz", "hdf5", "netcdf")},
    "report": "report r --out out/e.html",
}
"""Commands that write files of a result."""
DIRECTORIES = {
    "derive": lambda: dpca("derive", "d.yaml"),
    "derive with maps": lambda: dpca("derive", "d.yaml", "--set", "components=true"),
    "save": lambda: PCA.load("r").save("out/saved") is None,
}
"""What makes a directory of a result."""


def exported(kind, overwrite):
    """What comes of the result that is here, and the files that were there before and after."""
    os.rename("out/r", "r")
    Path("d.yaml").write_text(
        "from: r\nanalyses: [{name: a, model: {kind: pca, n_components: 1}}]\noutput: {path: out/d, report: false}\n"
    )
    write, older = DIRECTORIES.get(kind), {}
    if write is None:
        command = FILES[kind].split()
        if overwrite:
            with unflushed():
                assert dpca(*command) == 0
            for name in contents("out"):
                Path("out", name).write_bytes(b"older")
            older, command = contents("out"), [*command, "--overwrite"]
        write = partial(dpca, *command)
    with watched("out") as power:
        assert write() == 0
    return power, older, contents("out")


def is_exported(power, older, whole):
    """Whether at any moment a file is there as it was, or whole, or not there yet; and all are whole once the command has ended."""
    for moment in power.moments:
        for seed in SEEDS:
            left = {name: content for name, content in power.left(moment, seed).items() if name in whole}
            as_ever = all(left[name] in (whole[name], older.get(name)) for name in left) and left.keys() >= older.keys()
            if not as_ever or (moment is power.moments[-1] and left != whole):
                return False
    return True


def kinds():
    """All that is made of a result, over older files, too; reports where what draws them is installed."""
    for kind, overwrite in [*product(FILES, [False, True]), *((kind, False) for kind in DIRECTORIES)]:
        yield pytest.param(kind, overwrite, marks=pytest.mark.looks if kind == "report" else ())


@pytest.mark.parametrize(("kind", "overwrite"), [*kinds()])
def test_power_lost_while_something_is_made_of_a_result(config, kind, overwrite):
    with unflushed():
        run(load("c.yaml", ["input.feature_shape=[5, 8]"]) if "png" in kind else config)
    assert is_exported(*exported(kind, overwrite))


def test_a_scratch_that_was_made_is_gone_after_a_loss_of_power_or_is_known_as_its_own():
    """Its run, which goes on, would refuse what it can't tell from the folder of another."""
    Path("out").mkdir()
    scratch = ScratchFolder.of("out", "a" * 32, "r")
    with watched("out") as power:
        scratch.make()
    for seed in range(20):
        power.restart(power.left(power.moments[-1], seed))
        with unflushed():
            scratch.make()
        assert scratch.is_own


@pytest.mark.parametrize("flush", FLUSHES)
def test_without_any_one_flush_a_result_is_lost_or_not_what_it_says(config, flush):
    with without(flush):
        ran, results = replaced(config)
        applied, scores = transformed()
        os.rename("r", "out/r")
        found = exported("export --to npz", overwrite=True)
    kept = all(is_whole(left, before, results) for left, before in losses(ran))
    assert not (
        kept and all(is_transformed(left, before, scores) for left, before in losses(applied)) and is_exported(*found)
    )


def test_power_lost_while_a_result_that_has_not_converged_is_gone_on_with(config):
    """More passes begin with arrays of the old result, which stays until the new one is whole."""
    more = load("c.yaml", ["model.svd_solver=block_krylov", "model.block_krylov={block: 2, tolerance: 1e-9}"])
    with unflushed():
        run(load("c.yaml", [*more.overrides, "model.block_krylov.max_passes=2"]))
    old = result(contents("out"))
    with watched("out") as power:
        run(more, resume=True)
    new = result(contents("out"))
    assert new[2] != old[2]
    found = list(losses(power))
    assert all(is_whole(left, before, [old, new]) for left, before in found)
    for left, _ in found[STRIDE // 3 :: STRIDE]:
        power.restart(left)
        with unflushed():
            run(more, resume=True)
        assert result(contents("out"))[2] == new[2]
