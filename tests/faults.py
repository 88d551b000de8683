"""A campaign of faults: runs that are disturbed at random moments, and what came of each after at most three resumes.

    python -m tests.faults --runs 200 --seed 0

Every run is a process of its own on a small dataset, on two threads or on a cluster of two workers. Where it is
disturbed is drawn from the seed: a step of the disk of that process or of a worker, a chunk, a file. Each must end in the
bits of the undisturbed run, or in the right typed error; a table says so.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import zarr
from distributed import LocalCluster

from dpca import durable
from tests.clusters import local_cluster

N, D, CHUNK = 10, 3000, 250

PRELUDE = """
import errno, os, signal, sys
import dpca.durable, dpca.passes, dpca.planning, dpca.slabs, dpca.sources.base, dpca.sources.zarr_array
dpca.slabs.TILE_WIDTH, dpca.planning.SLAB_BYTES, dpca.planning.SLAB_WIDTH = 1, 25_000, 1
dpca.sources.base.RETRY_SECONDS = (0, 0, 0)

from tests.faults import at, kill

def kill_group():
    os.killpg(os.getpgrp(), signal.SIGKILL)

def stop():
    os.kill(os.getpid(), signal.SIGTERM)

def full():
    raise OSError(errno.ENOSPC, "No space left on device")
"""


def at(step, act):
    """Do something to this process at a step of its disk."""

    class Disk(durable.Disk):
        count = 0

        def __getattribute__(self, name):
            if name in ("write", "rename", "unlink", "make_directory", "remove_tree", "flush_directory"):
                Disk.count += 1
                if Disk.count == step:
                    act()
            return super().__getattribute__(name)

    durable.DISK = Disk()


def kill():
    os.kill(os.getpid(), signal.SIGKILL)


MAIN = "\nfrom dpca.cli import main\nmain(sys.argv[1:])\n"


STEPS, STEPS_OF_A_WORKER = 330, 100
"""Steps of the disk in an undisturbed run, about."""


def prepare(place: Path) -> dict[str, bytes]:
    """Make the data and the undisturbed result; returns its bits."""
    rng = np.random.default_rng(0)
    zarr.create_array(place / "x.zarr", data=rng.normal(size=(N, D)), chunks=(N, CHUNK))
    (place / "c.yaml").write_text(
        f"input: {{uri: {place / 'x.zarr'}}}\nmodel: {{n_components: 3}}\ncompute: {{workers: 2}}\n"
        "output: {path: r}\n"
    )
    done = start(place, "", "run", "c.yaml")
    assert done.returncode == 0, done.stderr
    found = bits(place / "r")
    shutil.rmtree(place / "r")
    return found


def start(place: Path, what: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`dpca` in a process group of its own, disturbed."""
    (place / "run.py").write_text(PRELUDE + what + MAIN)
    command = [sys.executable, "run.py", *arguments]
    here = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]),
    }
    return subprocess.run(command, cwd=place, env=here, capture_output=True, text=True, start_new_session=True)


def bits(path: Path) -> dict[str, bytes]:
    """Everything in a result that does not tell of the way there."""
    found = {
        str(file.relative_to(path)): file.read_bytes()
        for file in sorted((path / "result.zarr").rglob("*"))
        if file.is_file()
    }
    return found | {"certificate.json": (path / "certificate.json").read_bytes()}


def chunk_that_fails(place: Path, number: int) -> tuple[Path, bytes, os.stat_result]:
    """Damage a chunk so that only its content tells."""
    path = place / "x.zarr" / "c" / "0" / str(number)
    content, facts = path.read_bytes(), path.stat()
    path.write_bytes(bytes(len(content)))
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    return path, content, facts


def heal(path: Path, content: bytes, facts: os.stat_result) -> None:
    """Undo it."""
    path.write_bytes(content)
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))


def one(
    place: Path, fault: str, draw: random.Random, cluster: LocalCluster
) -> tuple[subprocess.CompletedProcess[str], str, bool]:
    """A run with one fault, gone on with up to three times; returns the last process, the fault, and whether it struck."""
    step = draw.randrange(1, STEPS)
    acts = {
        "kill -9 of the run": "kill",
        "kill -9 of its process group": "kill_group",
        "SIGTERM": "stop",
        "disk full": "full",
    }
    struck = None
    if fault in acts:
        done = start(place, f"at({step}, {acts[fault]})\n", "run", "c.yaml")
    elif fault == "a failing chunk that heals":
        healing = chunk_that_fails(place, draw.randrange(D // CHUNK))
        done = start(place, "", "run", "c.yaml")
        heal(*healing)
    elif fault == "kill -9 of a worker":
        step = draw.randrange(1, STEPS_OF_A_WORKER)
        where = ("--set", f"compute.cluster={{scheduler: '{cluster.scheduler_address}'}}")
        with cluster.get_client() as client:
            client.wait_for_workers(2)
            victim = draw.choice(sorted(client.scheduler_info()["workers"]))
            client.run(at, step, kill, workers=[victim])
        done = start(place, "", "run", "c.yaml", *where)
        with cluster.get_client() as client:
            struck = victim not in client.scheduler_info()["workers"]
            client.run(at, 0, kill)  # one that was not reached strikes no later run
    else:
        done = start(place, f"at({step}, kill)\n", "run", "c.yaml")
        struck = damage(place, fault, draw)
    struck = done.returncode != 0 if struck is None else struck
    for _ in range(3):
        if done.returncode == 0:
            break
        done = start(place, "", "run", "c.yaml", "--resume")
    return done, f"{fault} at step {step}", struck


def damage(place: Path, fault: str, draw: random.Random) -> bool:
    """Damage a file that an unfinished run has left, if it has left any."""
    pattern = "*/parts/*/*.npz" if fault == "a corrupted part" else "*/result.zarr/*/c/**/*"
    files = [path for path in sorted((place / "r" / "ledger").glob(pattern)) if path.is_file()]
    if not files:
        return False
    path = draw.choice(files)
    content = path.read_bytes()
    if fault == "a corrupted part":
        at = draw.randrange(len(content))
        path.write_bytes(content[:at] + bytes([content[at] ^ (1 << draw.randrange(8))]) + content[at + 1 :])
    else:
        path.write_bytes(content[: draw.randrange(len(content))])
    return True


FAULTS = (
    "kill -9 of the run",
    "kill -9 of its process group",
    "kill -9 of a worker",
    "SIGTERM",
    "disk full",
    "a failing chunk that heals",
    "a corrupted part",
    "a truncated output",
)


def campaign(runs: int, seed: int, report: bool = True) -> dict[str, dict[str, int]]:
    """Run it; returns for each fault how many runs there were and how they ended."""
    draw = random.Random(seed)
    table, n_struck = {fault: {"runs": 0, "same bits": 0, "right error": 0, "lost": 0} for fault in FAULTS}, 0
    with tempfile.TemporaryDirectory(prefix="dpca-faults-") as directory, local_cluster(f"{directory}/dask") as cluster:
        place = Path(directory)
        undisturbed = prepare(place)
        for number in range(runs):
            fault = FAULTS[number % len(FAULTS)]
            done, what, struck = one(place, fault, draw, cluster)
            row, n_struck = table[fault], n_struck + struck
            row["runs"] += 1
            if done.returncode == 0 and bits(place / "r") == undisturbed:
                row["same bits"] += 1
            elif done.returncode in (1, 2) and "dpca: error: " in done.stderr and "defect" not in done.stderr:
                row["right error"] += 1
            else:
                row["lost"] += 1
                print(f"lost: run {number}, {what}: exit {done.returncode}\n{done.stderr[-2000:]}", file=sys.stderr)
            shutil.rmtree(place / "r", ignore_errors=True)
    if report:
        print("| fault | runs | same bits | right error | lost |\n| --- | --- | --- | --- | --- |")
        for fault, row in table.items():
            print(f"| {fault} | {row['runs']} | {row['same bits']} | {row['right error']} | {row['lost']} |")
        print(f"\nIn {n_struck} of {runs} runs the fault struck before the run had ended.")
    return table


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    found = campaign(given.runs, given.seed)
    sys.exit(any(row["lost"] for row in found.values()))
