"""Twenty-five years of five-day means by a formula: a field of temperature, 2 GiB, with a known answer to every question asked of it.

    python -m workflows.one_read.make DIRECTORY [--gib 2]

It is a mean, six patterns times series, and noise that no other value shares: a seasonal cycle, a warming, a standing pattern that lasts
(`swing`), one that winters alone have (`winter`), and a wave that travels east. It is written a block of the grid at a time.
"""

import argparse
from pathlib import Path

import numpy as np
import zarr
from scipy.signal import lfilter

FIRST_YEAR, YEARS = 1980, 25
STEPS = 73  # five days each: a year of models, without 29 February
PERIOD = 9.6  # of the wave, in steps: 48 days, and no fraction of a year
WAVES = 3  # of it round the globe
MEMORY = 0.97  # of the swing: what is left of it a step later
WARMING = 0.06  # kelvins a year at the equator
NOISE = 1.0
CHUNKS = (5 * STEPS, 32, 64)

LATITUDE = {"standard_name": "latitude", "units": "degrees_north"}
LONGITUDE = {"standard_name": "longitude", "units": "degrees_east"}
TIME = {"standard_name": "time", "units": f"days since {FIRST_YEAR}-01-01", "calendar": "noleap"}


def grid(rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Latitudes and longitudes of the centres of cells, twice as many of these."""
    degrees = 180 / rows
    return np.arange(-90 + degrees / 2, 90, degrees), np.arange(degrees / 2, 360, degrees)


def days(years: int = YEARS) -> np.ndarray:
    """The middle of each step, in days."""
    return 5 * np.arange(STEPS * years) + 2


def is_winter(years: int = YEARS) -> np.ndarray:
    """Whether a step is in December, January or February."""
    day = days(years) % 365
    return (day < 59) | (day >= 334)


def series(years: int = YEARS, seed: int = 0) -> dict[str, np.ndarray]:
    """What each pattern is multiplied by, (steps,)."""
    rng, step = np.random.default_rng(seed), np.arange(STEPS * years)
    line = np.linspace(-1, 1, len(step))
    swing = lfilter([1], [1, -MEMORY], rng.standard_normal(len(step) + 500))[500:]
    swing -= swing.mean() + line * (line @ swing) / (line @ line)  # neither mean nor trend
    winter = is_winter(years) * lfilter([1], [1, -0.8], rng.standard_normal(len(step)))
    return {
        "season": np.cos(2 * np.pi * (step / STEPS - 0.55)),
        "warming": line * years / 2,
        "swing": swing / swing.std(),
        "winter": winter / winter[is_winter(years)].std(),
        "wave": np.cos(2 * np.pi * step / PERIOD),
        "later": np.sin(2 * np.pi * step / PERIOD),
    }


def patterns(latitude: np.ndarray, longitude: np.ndarray) -> dict[str, np.ndarray]:
    """What each series is multiplied by, (latitude, longitude), in kelvins; the wave is cos(WAVES longitude - 2 pi step / PERIOD)."""
    north, east = np.meshgrid(np.deg2rad(latitude), np.deg2rad(longitude), indexing="ij")

    def bump(at: tuple[float, float], high: float, wide: float) -> np.ndarray:
        away = (longitude - at[1] + 180) % 360 - 180
        return np.exp(-(((latitude - at[0]) / high) ** 2))[:, None] * np.exp(-((away / wide) ** 2))

    band = np.exp(-((latitude / 20) ** 2))[:, None]
    return {
        "season": 12 * np.sin(north),
        "warming": WARMING * (1 + np.sin(north) ** 4),
        "swing": 2.5 * bump((0, 240), 12, 45) - 1.2 * bump((0, 140), 15, 35),
        "winter": 2.0 * (bump((62, 330), 10, 40) - bump((38, 325), 10, 35)),
        "wave": 0.85 * band * np.cos(WAVES * east),
        "later": 0.85 * band * np.sin(WAVES * east),
    }


def make(directory: Path, gib: float = 2.0, years: int = YEARS, seed: int = 0) -> None:
    """Write field.zarr: temperature (time, lat, lon) in float32, with its coordinates; held are all steps of one block of the grid."""
    rows = 4 * max(round(np.sqrt(gib * 2**30 / (8 * STEPS * years)) / 4), 4)
    latitude, longitude = grid(rows)
    names = ("time", "lat", "lon")
    group = zarr.create_group(str(directory / "field.zarr"), overwrite=True)
    coordinates = ((days(years), TIME), (latitude, LATITUDE), (longitude, LONGITUDE))
    for name, (values, attributes) in zip(names, coordinates, strict=True):
        group.create_array(name, data=values, dimension_names=(name,), attributes=attributes)
    shape = (STEPS * years, rows, 2 * rows)
    field = group.create_array(
        "temperature", shape=shape, dtype="f4", chunks=CHUNKS, dimension_names=names, attributes={"units": "K"}
    )
    along_time = np.stack(list(series(years, seed).values()), axis=1)
    mean = 288 - 40 * np.sin(np.deg2rad(latitude)) ** 2
    for number, (i, j) in enumerate(np.ndindex(*(-(-n // c) for n, c in zip(shape[1:], CHUNKS[1:], strict=True)))):
        south, west = slice(CHUNKS[1] * i, CHUNKS[1] * (i + 1)), slice(CHUNKS[2] * j, CHUNKS[2] * (j + 1))
        of_block = np.stack(list(patterns(latitude[south], longitude[west]).values()))
        noise = np.random.default_rng((seed, number)).standard_normal((shape[0], *of_block.shape[1:]), "f4")
        block = np.tensordot(along_time, of_block, axes=1) + mean[south, None] + NOISE * noise
        field[:, south, west] = block.astype("f4")


def main() -> None:
    """From the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--gib", type=float, default=2.0, help="size of the field, in GiB")
    given = parser.parse_args()
    given.directory.mkdir(parents=True, exist_ok=True)
    make(given.directory, given.gib)


if __name__ == "__main__":
    main()
