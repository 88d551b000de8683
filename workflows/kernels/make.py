"""Concentric shells, turned into many dimensions: no plane separates them, and no linear component does.

    python -m workflows.kernels.make DIRECTORY

Points on three spheres about one centre, in five dimensions that lie anywhere in `features` of them, with noise in each.
"""

import argparse
from pathlib import Path

import numpy as np
import zarr

RADII, DIMENSIONS = (1.0, 2.0, 3.0), 5
NOISE = 0.001


def make(directory: Path, samples: int = 600, features: int = 100_000, seed: int = 0) -> None:
    """Write data.zarr (samples, features) in float32, and labels.npy, which shell each sample is of."""
    rng = np.random.default_rng(seed)
    shell = np.arange(samples) % len(RADII)
    points = rng.normal(size=(samples, DIMENSIONS))
    points *= (np.array(RADII)[shell] / np.linalg.norm(points, axis=1))[:, None]
    axes, _ = np.linalg.qr(rng.normal(size=(features, DIMENSIONS)))
    data = zarr.create_array(
        str(directory / "data.zarr"),
        shape=(samples, features),
        dtype="f4",
        chunks=(samples, 4000),
        dimension_names=("sample", "feature"),
        overwrite=True,
    )
    for start in range(0, features, 4000):
        part = slice(start, min(start + 4000, features))
        noise = rng.normal(scale=NOISE, size=(samples, part.stop - part.start))
        data[:, part] = (points @ axes[part].T + noise).astype("f4")
    np.save(directory / "labels.npy", shell)


def main() -> None:
    """From the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--samples", type=int, default=600)
    parser.add_argument("--features", type=int, default=100_000)
    given = parser.parse_args()
    given.directory.mkdir(parents=True, exist_ok=True)
    make(given.directory, given.samples, given.features)


if __name__ == "__main__":
    main()
