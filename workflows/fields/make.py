"""A field over an ocean: two standing waves and a seasonal cycle, on a grid with land, where nothing is measured.

    python -m workflows.fields.make DIRECTORY

Conventions are those of climate data: time, latitude and longitude as coordinates with units, packed as float32, NaN on land.
"""

import argparse
from pathlib import Path

import numpy as np
import zarr

MONTHS, LATITUDES, LONGITUDES = 480, 90, 180


def make(directory: Path, seed: int = 0) -> None:
    """Write ocean.zarr, a group with the variable sst (time, latitude, longitude)."""
    rng = np.random.default_rng(seed)
    latitude = np.linspace(-89, 89, LATITUDES)
    longitude = np.linspace(1, 359, LONGITUDES)
    months = np.arange(MONTHS)
    phi, lam = np.meshgrid(np.deg2rad(latitude), np.deg2rad(longitude), indexing="ij")
    seasons = np.sin(phi) * 8
    warm_pool = 1.5 * np.exp(-((phi / 0.2) ** 2) - ((lam - 3.8) / 0.7) ** 2)
    dipole = np.cos(2 * phi) * np.sin(lam)
    land = (np.cos(3 * lam) * np.cos(phi) + 0.4 * np.sin(5 * phi + lam)) > 0.8
    slow = np.cumsum(rng.normal(size=(2, MONTHS)), axis=1)
    slow = (slow - slow.mean(axis=1)[:, None]) / slow.std(axis=1)[:, None]
    group = zarr.create_group(str(directory / "ocean.zarr"), overwrite=True)
    sst = group.create_array(
        "sst",
        shape=(MONTHS, LATITUDES, LONGITUDES),
        dtype="f4",
        chunks=(MONTHS, 15, 30),
        dimension_names=("time", "latitude", "longitude"),
    )
    field = 15 + 12 * np.cos(phi) + np.cos(2 * np.pi * months / 12)[:, None, None] * seasons
    field += slow[0][:, None, None] * warm_pool + slow[1][:, None, None] * dipole
    field += rng.normal(scale=0.3, size=field.shape)
    field[:, land] = np.nan
    sst[...] = field
    sst.attrs["units"] = "degree_Celsius"
    for name, values, units in (
        ("time", np.round(30.4375 * months), "days since 1980-01-15"),
        ("latitude", latitude, "degrees_north"),
        ("longitude", longitude, "degrees_east"),
    ):
        group.create_array(name, data=values, dimension_names=(name,)).attrs["units"] = units


def main() -> None:
    """From the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    given = parser.parse_args()
    given.directory.mkdir(parents=True, exist_ok=True)
    make(given.directory)


if __name__ == "__main__":
    main()
