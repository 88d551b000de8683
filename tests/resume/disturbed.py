"""Runs in processes of their own, that are disturbed, and what they leave."""

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import zarr

N, D = 12, 6000


def in_small_slabs(monkeypatch):
    monkeypatch.setattr("dpca.slabs.TILE_WIDTH", 1)
    monkeypatch.setattr("dpca.planning.search.SLAB_BYTES", 60_000)
    monkeypatch.setattr("dpca.planning.search.SLAB_WIDTH", 1)


START = """
import os, signal, sys, threading
import dpca.slabs, dpca.methods.passes, dpca.system.durable
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
    return subprocess.run(command, capture_output=True, text=True)


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
