"""Runs in processes of their own, that are disturbed, and what they leave."""

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import zarr

from dpca import slabs
from dpca.planning import search
from tests.commands.calls import HANGS, dpca
from tests.made import made
from tests.stores import random_array

N, D = 12, 6000


def ten_spans():
    """Data and a config, to be made: ten spans of one slab each, if slabs are small."""
    zarr.create_array("x.zarr", data=random_array(0, (N, D), "f8"), chunks=(N, 600), dimension_names=("time", "x"))
    Path("c.yaml").write_text("input: {uri: x.zarr}\nmodel: {n_components: 3}\noutput: {path: r}\n")


def whole_rows():
    """An input that is copied, to be made: whole rows, which do not fit the memory in columns."""
    zarr.create_array("rows.zarr", data=random_array(0, (40, 200_000), "f8"), chunks=(1, 200_000))
    Path("rows.yaml").write_text(
        "input: {uri: rows.zarr}\nmodel: {n_components: 3}\ncompute: {memory: 262 MiB, workers: 1}\noutput: {path: r}\n"
    )


def sparse_rows():
    """A sparse input by rows, to be made, of which a turned copy is made: its columns are streamed."""
    lines, width, each = 40, 500_000, 2_000
    rng = np.random.default_rng(0)
    group = zarr.create_group("rows.zarr").create_group(
        "X", attributes={"encoding-type": "csr_matrix", "shape": [lines, width]}
    )
    places = np.concatenate([np.sort(rng.choice(width, each, replace=False)) for _ in range(lines)])
    group.create_array("data", data=rng.integers(1, 9, len(places)).astype("f4"), chunks=(10_000,))
    group.create_array("indices", data=places.astype("i4"), chunks=(10_000,))
    group.create_array("indptr", data=np.arange(lines + 1) * each)
    Path("rows.yaml").write_text(
        "input: {uri: rows.zarr, array: X}\nmodel: {n_components: 3}\n"
        "compute: {memory: 400 MiB, workers: 1}\noutput: {path: r}\n"
    )


def run_to_its_end():
    """Ten spans with their result, to be made."""
    made(ten_spans)
    with pytest.MonkeyPatch.context() as patch:
        in_small_slabs(patch)
        assert dpca("run", "c.yaml") == 0


def in_small_slabs(monkeypatch):
    monkeypatch.setattr(slabs, "TILE_WIDTH", 1)
    monkeypatch.setattr(search, "SLAB_BYTES", 60_000)
    monkeypatch.setattr(search, "SLAB_WIDTH", 1)


START = """
import os, signal, sys, threading
import dpca.slabs, dpca.methods.spans, dpca.system.durable
import dpca.planning.search
dpca.slabs.TILE_WIDTH, dpca.planning.search.SLAB_BYTES, dpca.planning.search.SLAB_WIDTH = 1, 60_000, 1
"""
END = """
from dpca.cli.app import main
main(sys.argv[1:])
"""


def disturbed(what, *arguments, start=START):
    """`dpca` in a process of its own, after some Python."""
    Path("disturbed.py").write_text(start + what + END)
    command = [sys.executable, "disturbed.py", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=HANGS)


AT_SLAB = """
import dpca.numerics.feature_panels
seen = []
def counted(method):
    def counting(*arguments):
        seen.append(1)
        if len(seen) == {slab}:
            {action}
        yield from method(*arguments)
    return counting
for kind, name in ((dpca.numerics.preprocess.Standardizer, "_pieces"), (dpca.numerics.feature_panels.FeaturePanels, "apply")):
    setattr(kind, name, counted(getattr(kind, name)))
"""


def at_slab(slab, action):
    return AT_SLAB.format(slab=slab, action=action)


def parts():
    return sorted("/".join(path.parts[-2:]) for path in Path("r/ledger").glob("*/parts/*/*.npz"))


def killed(config, slab=14, workers="auto", how=()):
    how = (*how, "--set", f"compute.workers={workers}")
    done = disturbed(at_slab(slab, "os.kill(os.getpid(), signal.SIGKILL)"), "run", config, *how)
    assert done.returncode == -signal.SIGKILL, done.stderr


def run_until_a_kill(slab, workers):
    """Ten spans with what a run left that was killed, to be made."""
    made(ten_spans)
    killed("c.yaml", slab, workers)


def left_by_a_kill(slab=14, workers="auto"):
    """As of `killed`, of ten spans."""
    made(run_until_a_kill, slab, workers)


def staged(array="*"):
    """Files of the arrays under way."""
    return sorted(str(path) for path in Path("r/ledger").glob(f"*/result.zarr/{array}/c/**/*") if path.is_file())


def truncated(path):
    Path(path).write_bytes(Path(path).read_bytes()[:-5])


def flipped(path):
    content = bytearray(Path(path).read_bytes())
    content[len(content) // 2] ^= 1
    Path(path).write_bytes(content)


def in_turn(damaged, damage):
    """Damage each of some files of an unfinished run, one at a time; go on, and see that it has the same bits."""
    shutil.copytree("r", "before")
    for path in damaged:
        damage(path)
        yield path
        shutil.rmtree("r")
        shutil.copytree("before", "r")


def rewrite_a_chunk():
    array = zarr.open_array("x.zarr", mode="r+")
    array[:, 600:1200] = array[:, 600:1200] + 1.0
