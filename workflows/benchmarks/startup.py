"""What whole processes take for small data: commands of dpca, and a first fit in Python beside scikit-learn's."""

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

REPEATS = 5
FIT = """
import numpy as np
x = np.load({data!r})
from {package} import PCA
PCA(5, svd_solver={solver!r}).fit(x)
"""


def seconds_of(*arguments: str) -> tuple[float, str]:
    """Of Python with these arguments, in a process of its own, and what it prints."""
    began = time.perf_counter()
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=True)
    return time.perf_counter() - began, done.stdout


def measure(directory: Path) -> dict[str, float]:
    """Medians of several, measured in turn."""
    rng = np.random.default_rng(0)
    tiny, small, square = (directory / f"{name}.npy" for name in ("tiny", "small", "square"))
    np.save(tiny, rng.standard_normal((20, 5000)))
    np.save(small, rng.standard_normal((50, 5000)))
    np.save(square, rng.standard_normal((3000, 8000), dtype=np.float32))
    config = directory / "tiny.yaml"
    config.write_text(f"input: {{uri: {tiny}}}\noutput: {{path: {directory / 'tiny'}}}\n", encoding="utf-8")

    def command(*arguments: str) -> float:
        return seconds_of("-m", "dpca", *arguments)[0]

    def plan() -> float:
        seconds, said = seconds_of("-m", "dpca", "plan", str(config), "--json")
        return seconds - float(json.loads(said)["time"]["probe_seconds"])

    def fit(package: str, data: Path, solver: str = "auto") -> float:
        return seconds_of("-c", FIT.format(package=package, data=str(data), solver=solver))[0]

    cases: dict[str, Callable[[], float]] = {
        "dpca --help": lambda: command("--help"),
        "dpca plan, beside its probe": plan,
        "dpca run of 20 x 5000": lambda: command("run", str(config), "--overwrite"),
        "without its report": lambda: command("run", str(config), "--overwrite", "--set", "output.report=false"),
        "dpca.PCA(5) of 50 x 5000": lambda: fit("dpca", small),
        "scikit-learn's": lambda: fit("sklearn.decomposition", small),
        "dpca.PCA(5) of 3000 x 8000 float32 noise": lambda: fit("dpca", square),
        "scikit-learn's by arpack": lambda: fit("sklearn.decomposition", square, "arpack"),
    }
    found: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(REPEATS):
        for name, once in cases.items():
            found[name].append(once())
    return {name: statistics.median(seconds) for name, seconds in found.items()}
