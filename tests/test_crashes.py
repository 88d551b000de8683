"""Power lost at every step of every run, in turn: what is gone on with has the bits of a run that was never disturbed."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import zarr

from dpca import durable
from dpca.config_file import load
from dpca.run import run
from tests.crashes import Crash, FailingDisk, Hasty

STRIDE = int(os.environ.get("DPCA_CRASH_STRIDE", "61"))
"""1 for every step (make crashes), which takes minutes."""

CASES = {
    "features stream by": ((5, 40), (5, 10), ()),
    "samples stream by": ((60, 3), (20, 3), ("preprocess.missing=mean",)),
    "components made orthonormal": ((6, 40), (6, 20), ("model.n_components=4",)),
}


def bits(path):
    """Everything that a result holds, but what tells of the way there."""
    found = {}
    for file in sorted(Path(path, "result.zarr").rglob("*")):
        if file.is_file():
            found[str(file.relative_to(path))] = file.read_bytes()
    certificate = json.loads(Path(path, "certificate.json").read_text())
    return found | {"certificate": certificate}


@pytest.fixture(params=CASES)
def config(request, monkeypatch):
    shape, chunks, keys = CASES[request.param]
    rng = np.random.default_rng(0)
    x = rng.normal(size=shape)
    if "orthonormal" in request.param:
        left, right = np.linalg.qr(rng.normal(size=(6, 5)))[0], np.linalg.qr(rng.normal(size=(40, 5)))[0]
        x = (left * [1, 1e-2, 1e-3, 1e-4, 1e-5]) @ right.T
    monkeypatch.setattr(durable, "DISK", Hasty())
    monkeypatch.setattr("dpca.slabs.TILE_WIDTH", 1)
    zarr.create_array("x.zarr", data=x, chunks=chunks)
    Path("c.yaml").write_text(
        "input: {uri: x.zarr}\nmodel: {n_components: 2, svd_solver: auto}\ncompute: {workers: 1}\noutput: {path: r}\n"
    )
    return load("c.yaml", keys)


def disturbed(config, disk, **how):
    """Run on a disk; whether it came to an end."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(durable, "DISK", disk)
        try:
            run(config, **how)
        except Crash:
            return False
        finally:
            disk.close()
    return True


@pytest.mark.parametrize("keep", [False, True], ids=["names lost", "names kept"])
def test_power_lost_at_any_step(config, keep):
    run(config)
    undisturbed = bits("r")
    shutil.rmtree("r")
    step, done = STRIDE // 2 * keep, False
    while not done:
        done = disturbed(config, FailingDisk(step, keep))
        if not done and Path("r", "manifest.json").exists():
            assert bits("r") == undisturbed  # a manifest stands beside what it describes, always
        run(config, resume=True)
        assert bits("r") == undisturbed, f"step {step}"
        assert sorted(os.listdir("r")) == ["certificate.json", "manifest.json", "result.zarr", "status.json"]
        shutil.rmtree("r")
        step += STRIDE
    assert step > 100


@pytest.mark.parametrize("keep", [False, True], ids=["names lost", "names kept"])
def test_power_lost_twice_and_while_an_older_result_is_replaced(config, keep):
    run(config)
    undisturbed = bits("r")
    for step in range(3, 400, 5 * STRIDE):
        if not disturbed(config, FailingDisk(step, keep), overwrite=True):
            disturbed(config, FailingDisk(2 * step, keep), resume=True)
        if not Path("r", "manifest.json").exists():
            assert Path("r", "ledger").exists()
        run(config, resume=True)
        assert bits("r") == undisturbed, f"step {step}"
