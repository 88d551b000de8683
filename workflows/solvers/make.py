"""Data whose singular values fall from 1 to 1e-6: what a solver loses can be seen.

python -m workflows.solvers.make DIRECTORY
"""

import argparse
from pathlib import Path

import numpy as np
import zarr

SAMPLES, FEATURES, COMPONENTS = 60, 20_000, 13
SIGMA = np.logspace(0, -6, COMPONENTS)


def make(directory: Path, seed: int = 0) -> None:
    """Write data.zarr (60 x 20,000) in float64, centred, with singular values 1, 10^-0.5, 0.1, ... 10^-6."""
    rng = np.random.default_rng(seed)
    left = np.linalg.qr(np.column_stack([np.ones(SAMPLES), rng.normal(size=(SAMPLES, COMPONENTS))]))[0][:, 1:]
    right = np.linalg.qr(rng.normal(size=(FEATURES, COMPONENTS)))[0]
    data = (left * SIGMA) @ right.T
    zarr.create_array(str(directory / "data.zarr"), data=data, chunks=(SAMPLES, 2000), overwrite=True)


def main() -> None:
    """From the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    given = parser.parse_args()
    given.directory.mkdir(parents=True, exist_ok=True)
    make(given.directory)


if __name__ == "__main__":
    main()
