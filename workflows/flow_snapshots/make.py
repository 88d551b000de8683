"""The wake of a cylinder: a vortex street that travels downstream, as velocities on a stretched grid.

    python -m workflows.flow_snapshots.make DIRECTORY

Nothing is solved. The mean is potential flow about the cylinder less a wake; two staggered rows of Lamb-Oseen vortices of
opposite sign are carried along, each growing with age. Lengths are in diameters, velocities in those of the free stream.
"""

import argparse
from pathlib import Path

import numpy as np
import zarr

PERIOD, SPEED = 5.0, 0.9  # a Strouhal number of 0.2; vortices are slower than the stream
SPACING = PERIOD * SPEED  # of a row, in x
HALF_HEIGHT = 0.281 * SPACING / 2  # von Karman's ratio
CIRCULATION, CORE, VISCOSITY = 1.6, 0.35, 0.006
PERIODS = 11  # a whole number, and prime to that of snapshots: no two have the same phase
NOISE = 0.01


def step(x: np.ndarray) -> np.ndarray:
    """From 0 to 1 between 0 and 1, smoothly."""
    x = np.clip(x, 0, 1)
    return x * x * (3 - 2 * x)


def axes(rows: int, columns: int) -> tuple[np.ndarray, np.ndarray]:
    """y and x of the cells' centres, dense about the cylinder."""
    y = np.sinh(np.linspace(-1, 1, rows) * 2.0) / np.sinh(2.0) * 5
    x = np.sinh(np.linspace(np.arcsinh(-3 / 4), np.arcsinh(15 / 4), columns)) * 4
    return y, x


def mean_flow(y: np.ndarray, x: np.ndarray) -> np.ndarray:
    """u and v of what does not change, (2, *y.shape)."""
    r2 = np.maximum(x * x + y * y, 0.25)
    u = 1 - 0.25 * (x * x - y * y) / r2**2
    v = -0.5 * x * y / r2**2
    width = 0.5 + 0.06 * np.maximum(x, 0)
    return np.stack([u - 0.6 * step(x + 0.5) * np.exp(-((y / width) ** 2)) / (1 + 0.15 * np.maximum(x, 0)), v])


def vortices(time: float, y: np.ndarray, x: np.ndarray) -> np.ndarray:
    """u and v of both rows at a time, (2, *y.shape)."""
    total = np.zeros((2, *y.shape))
    for sign in (-1, 1):  # clockwise above, counterclockwise below, half a spacing later
        for number in range(6):
            at = SPACING * ((time / PERIOD + (sign + 1) / 4) % 1 + number)
            strength = sign * CIRCULATION * step((at - 0.5) / 3) * step((27 - at) / 6)
            dx, dy = x - at, y + sign * HALF_HEIGHT
            r2 = dx * dx + dy * dy + 1e-12
            swirl = strength / (2 * np.pi) * -np.expm1(-r2 / (CORE**2 + 4 * VISCOSITY * at / SPEED)) / r2
            total += [-swirl * dy, swirl * dx]
    return total


def make(directory: Path, snapshots: int = 200, rows: int = 128, columns: int = 320, seed: int = 0) -> None:
    """Write wake.zarr: velocity (time, direction, y, x) in float32, NaN in the cylinder; fluid, and root_area of cells."""
    rng = np.random.default_rng(seed)
    y, x = axes(rows, columns)
    grid = np.meshgrid(y, x, indexing="ij")
    fluid = np.hypot(*grid) > 0.5
    root_area = np.sqrt(np.gradient(y)[:, None] * np.gradient(x))
    time = np.arange(snapshots) * PERIODS * PERIOD / snapshots
    group = zarr.create_group(str(directory / "wake.zarr"), overwrite=True)
    velocity = group.create_array(
        "velocity",
        shape=(snapshots, 2, rows, columns),
        dtype="f4",
        chunks=(snapshots, 1, 16, 64),
        dimension_names=("time", "direction", "y", "x"),
    )
    steady = mean_flow(*grid)
    field = np.stack([steady + vortices(now, *grid) for now in time])
    field += rng.normal(scale=NOISE, size=field.shape)
    velocity[...] = np.where(fluid, field, np.nan)
    for name, values, names in (
        ("time", time, ("time",)),
        ("y", y, ("y",)),
        ("x", x, ("x",)),
        ("fluid", fluid, ("y", "x")),
        ("root_area", root_area, ("y", "x")),
    ):
        group.create_array(name, data=values, dimension_names=names)


def main() -> None:
    """From the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    given = parser.parse_args()
    given.directory.mkdir(parents=True, exist_ok=True)
    make(given.directory)


if __name__ == "__main__":
    main()
