"""Private memory of `dpca run`, sampled, against what `dpca plan` promised and against the budget.

Makes random float32 data of each size asked for in a directory of its own, runs on them, and prints a table.
Sums the private memory of every process of the run, 20 times a second.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import zarr

from workflows.watch import watched

RANK = 8


def make(path: Path, n_samples: int, n_features: int, chunks: tuple[int, int]) -> None:
    """Random data of rank 8 and noise, block by block."""
    array = zarr.create_array(path, shape=(n_samples, n_features), chunks=chunks, dtype="float32")
    scores = np.random.default_rng(0).standard_normal((n_samples, RANK), np.float32)
    # A block is made whole chunks at a time, of as many samples or features as 64 MB hold.
    rows = max(chunks[0], 2**24 // chunks[1] // chunks[0] * chunks[0])

    def fill(box: tuple[int, int]) -> None:
        row, start = box
        height, width = min(rows, n_samples - row), min(chunks[1], n_features - start)
        rng = np.random.default_rng(start)
        block = scores[row : row + height] @ rng.standard_normal((RANK, width), np.float32)
        block += np.random.default_rng((row, start)).standard_normal((height, width), np.float32)
        array[row : row + height, start : start + width] = block

    boxes = [(row, start) for start in range(0, n_features, chunks[1]) for row in range(0, n_samples, rows)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(fill, boxes))


def measure(
    directory: Path, n_samples: int, n_features: int, chunks: tuple[int, int], memory: str, n_components: int
) -> tuple[str, bool]:
    """Make the data if they are not there, plan, run.

    Returns
    -------
    row, kept : a row of the table, and whether measured <= planned <= budget
    """
    name = f"{n_samples}x{n_features}-{chunks[0]}x{chunks[1]}"
    data, config, result = (directory / f"{name}{suffix}" for suffix in (".zarr", ".yaml", ""))
    if not data.exists():
        directory.mkdir(parents=True, exist_ok=True)
        making = directory / f".{name}.zarr"
        shutil.rmtree(making, ignore_errors=True)
        make(making, n_samples, n_features, chunks)
        making.rename(data)
    config.write_text(
        f"input: {{uri: {data}}}\nmodel: {{n_components: {n_components}}}\ncompute: {{memory: {memory}}}\noutput: {{path: {result}}}\n",
        encoding="utf-8",
    )
    dpca = [sys.executable, "-m", "dpca"]
    planned = subprocess.run([*dpca, "plan", config, "--json"], capture_output=True, text=True)
    if planned.returncode:
        sys.exit(planned.stderr)
    plan = json.loads(planned.stdout)
    seconds, peak = watched([*dpca, "run", str(config), "--overwrite"])
    manifest = json.loads((result / "manifest.json").read_text(encoding="utf-8"))
    stages = manifest["seconds"]
    shutil.rmtree(result)
    planned, budget = plan["memory"]["expected_peak_bytes"], plan["memory"]["budget_bytes"]
    row = (
        f"| {n_samples} | {n_features} | {chunks[0]} x {chunks[1]} | {plan['solver']}, {manifest['counts']['passes']} | {plan['reading']['kind']} | "
        f"{plan['input']['bytes'] / 1e9:.3g} | {planned / 2**20:.0f} | {peak / 2**20:.0f} | {seconds:.0f} | "
        f"{plan['time']['seconds']:.0f} | {stages['eigensolve']:.2g} |"
    )
    return row, peak <= planned <= budget


def main() -> None:
    """Measure every combination of samples and features."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, nargs="+", default=[1000])
    parser.add_argument("--features", type=int, nargs="+", default=[4_000_000])
    parser.add_argument("--chunks", type=int, nargs=2, help="samples and features of a chunk; all and 4096 if left out")
    parser.add_argument("--memory", default="2 GiB")
    parser.add_argument("--components", type=int, default=20)
    parser.add_argument("--directory", type=Path, default=Path("dpca-memory"))
    parser.add_argument("--keep", action="store_true", help="keep the data for another time")
    given = parser.parse_args()
    rows, promises = [], []
    for n_samples in given.samples:
        for n_features in given.features:
            chunks = tuple(given.chunks or (n_samples, 4096))
            row, kept = measure(given.directory, n_samples, n_features, chunks, given.memory, given.components)
            rows.append(row)
            promises.append(kept)
            if not given.keep:
                shutil.rmtree(given.directory)
    print(f"compute.memory: {given.memory}")
    print(
        "| n | d | chunks | solver, reads | reading | GB | planned MiB | measured MiB | s | expected s | eigensolve s |"
    )
    print("| --- " * 11 + "|")
    print("\n".join(rows))
    if not all(promises):
        sys.exit("measure: a promise was not kept")


main()
