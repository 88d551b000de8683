"""What dpca takes before it computes: `dpca --help`, `dpca plan` beside its probe, and a tiny dataset from end to end."""

import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

REPEATS = 3


def seconds_of(*arguments: str) -> tuple[float, str]:
    """Of the command, in a process of its own, and what it prints."""
    began = time.perf_counter()
    done = subprocess.run([sys.executable, "-m", "dpca", *arguments], capture_output=True, text=True, check=True)
    return time.perf_counter() - began, done.stdout


def measure(directory: Path) -> dict[str, float]:
    """Medians of several."""
    data, config = directory / "tiny.npy", directory / "tiny.yaml"
    np.save(data, np.random.default_rng(0).standard_normal((20, 5000)))
    config.write_text(f"input: {{uri: {data}}}\noutput: {{path: {directory / 'tiny'}}}\n", encoding="utf-8")

    def plan() -> float:
        seconds, said = seconds_of("plan", str(config), "--json")
        return seconds - float(json.loads(said)["time"]["probe_seconds"])

    found = {
        "dpca --help": lambda: seconds_of("--help")[0],
        "dpca plan, beside its probe": plan,
        "dpca run of 20 x 5000": lambda: seconds_of("run", str(config), "--overwrite")[0],
        "without its report": lambda: seconds_of("run", str(config), "--overwrite", "--set", "output.report=false")[0],
    }
    return {name: statistics.median(once() for _ in range(REPEATS)) for name, once in found.items()}
