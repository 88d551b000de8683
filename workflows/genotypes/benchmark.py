"""The ten leading components of a simulated cohort by dpca and by plink 2, from the same .bed, in one run of this script.

2000 people of three populations, 500,000 variants, 1 % of the calls missing. Every program is its whole command, on two threads; each is
run several times in turn, and the fastest time of each counts. Their digits are compared with those of `plink2 --pca 10`.
"""

from __future__ import annotations

import argparse
import glob
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray

from workflows.genotypes.make import write_bed

K = 10
CONFIG = """
input: {{uri: {bed}}}
preprocess: {{scale: {{binomial: plink2}}, missing: pairwise}}
model: {{n_components: {k}, precision: {precision}}}
compute: {{workers: 2}}
output: {{path: {out}, components: false, report: false}}
"""


def commands(stem: Path, folder: Path) -> dict[str, list[str]]:
    """The command of each program that is installed, by its name."""
    found = {}
    for precision in ("auto", "double"):
        config = folder / f"{precision}.yaml"
        config.write_text(CONFIG.format(bed=f"{stem}.bed", k=K, precision=precision, out=folder / precision))
        found[f"dpca, precision {precision}"] = [sys.executable, "-m", "dpca", "run", str(config), "--overwrite"]
    of_plink = ["--bfile", str(stem), "--threads", "2"]
    if plink2 := shutil.which("plink2"):
        found["plink2 --pca"] = [plink2, *of_plink, "--pca", str(K), "--out", str(folder / "exact")]
        found["plink2 --pca approx"] = [plink2, *of_plink, "--pca", str(K), "approx", "--out", str(folder / "approx")]
    if pcaone := shutil.which("PCAone"):
        out = str(folder / "pcaone")
        found["PCAone (winSVD, out of core)"] = [
            pcaone,
            "-b",
            str(stem),
            "-k",
            str(K),
            "-n",
            "2",
            "-d",
            "2",
            "-m",
            "2",
            "-o",
            out,
        ]
    return found


def blas_of_plink2() -> str:
    """The library of matrix products that Debian's plink2 uses."""
    links = glob.glob("/etc/alternatives/libblas.so.3-*")
    return os.path.realpath(links[0]) if links else "unknown"


def timed(command: list[str]) -> float:
    """Seconds that a command takes."""
    began = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return time.perf_counter() - began


def of_plink(stem: Path) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The eigenvalues and vectors that plink 2 printed."""
    rows = [line.split() for line in Path(f"{stem}.eigenvec").read_text().splitlines()[1:]]
    return np.loadtxt(f"{stem}.eigenval"), np.array([row[-K:] for row in rows], float)


def of_dpca(path: Path) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The eigenvalues and vectors of a result."""
    arrays: Any = zarr.open_group(str(path / "result.zarr"), mode="r")
    scores = arrays["scores"][...]
    return arrays["convention_eigenvalues"][:K], scores / np.linalg.norm(scores, axis=0)


def differences(ours: tuple[Any, Any], theirs: tuple[Any, Any]) -> dict[str, float]:
    """How far eigenvalues are apart, relatively, and vectors, of the two separated components and of the others."""
    signs = np.sign((ours[1] * theirs[1]).sum(axis=0))
    vectors = np.abs(ours[1] * signs - theirs[1]).max(axis=0)
    return {
        "eigenvalues": float(np.abs(ours[0] / theirs[0] - 1).max()),
        "vectors 1 and 2": float(vectors[:2].max()),
        "vectors 3 to 10": float(vectors[2:].max()),
    }


def main() -> None:
    """Print the times, their ratios, and how far the digits are apart."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--people", type=int, default=2000)
    parser.add_argument("--variants", type=int, default=500_000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--json", type=Path, help="Write the figures to this file, too.")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="dpca-genotypes-") as name:
        folder = Path(name)
        stem = folder / "cohort"
        write_bed(stem, asked.people, asked.variants, 0.01, seed=0, relatives=False)
        seconds: dict[str, list[float]] = {}
        for _ in range(asked.rounds):
            for program, command in commands(stem, folder).items():
                seconds.setdefault(program, []).append(timed(command))
        best = {program: min(times) for program, times in seconds.items()}
        figures: dict[str, Any] = {"seconds": best, "blas of plink2": blas_of_plink2()}
        print(
            f"{asked.people:,} people, {asked.variants:,} variants; plink2 multiplies with {figures['blas of plink2']}"
        )
        for program, value in best.items():
            beside = best["plink2 --pca"] / value if "plink2 --pca" in best else float("nan")
            print(f"{program:30} {value:7.1f} s   {beside:5.2f} times plink2 --pca")
        if "plink2 --pca" in best:
            exact = of_plink(folder / "exact")
            others = {"plink2 --pca approx": of_plink(folder / "approx")}
            others |= {f"dpca, precision {one}": of_dpca(folder / one) for one in ("auto", "double")}
            figures["differences"] = {program: differences(found, exact) for program, found in others.items()}
            for program, found in figures["differences"].items():
                print(f"{program:30} " + ", ".join(f"{what} {value:.1e}" for what, value in found.items()))
        if asked.json:
            asked.json.write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
