"""Forty years of monthly anomalies by a formula: sea surface temperature, which land does not have, and sea level pressure.

    python -m workflows.climate_eof.make DIRECTORY

Each is a sum of patterns times indices, and of noise that neighbours share and that lasts for months. El Niño (ENSO) is in both: a
warm tongue in the eastern Pacific, and the seesaw of pressure with it. The North Atlantic Oscillation (NAO) is in pressure, and
a warming is in temperature.
"""

import argparse
from pathlib import Path

import numpy as np
import xarray as xr
from scipy.ndimage import gaussian_filter1d
from scipy.signal import lfilter

from workflows.climate_eof.land import is_land

FIRST_YEAR, YEARS, DEGREES = 1981, 40, 2.0
PERIOD, DAMPING = 45, 0.97  # of ENSO, in months, and a month
NOISE = {"sst": (0.3, 0.3, 8, 0.7), "slp": (40, 160, 10, 0.2)}
"""Its size at the equator and at the poles, in K or Pa; how wide it is, in degrees; how much of it is left a month later."""

TIME = {"standard_name": "time", "axis": "T"}
LATITUDE = {"standard_name": "latitude", "units": "degrees_north", "axis": "Y"}
LONGITUDE = {"standard_name": "longitude", "units": "degrees_east", "axis": "X"}
VARIABLES = {
    "sst": {"standard_name": "sea_surface_temperature_anomaly", "units": "K", "cell_methods": "time: mean"},
    "slp": {"standard_name": "air_pressure_at_mean_sea_level_anomaly", "units": "Pa", "cell_methods": "time: mean"},
}


def grid(degrees: float) -> tuple[np.ndarray, np.ndarray]:
    """Latitudes and longitudes of the centres of cells."""
    return np.arange(-90 + degrees / 2, 90, degrees), np.arange(degrees / 2, 360, degrees)


def patterns(latitude: np.ndarray, longitude: np.ndarray) -> dict[str, dict[str, np.ndarray]]:
    """What one standard deviation of each index is in each variable, (latitude, longitude), in K and in Pa."""

    def bump(north: float, east: float, high: float, wide: float) -> np.ndarray:
        away = (longitude - east + 180) % 360 - 180
        return np.exp(-(((latitude - north) / high) ** 2))[:, None] * np.exp(-((away / wide) ** 2))

    horseshoe = bump(28, 180, 14, 40) + bump(-28, 190, 14, 45)
    return {
        "enso": {
            "sst": 1.1 * bump(0, 248, 8, 50) - 0.35 * horseshoe + 0.2 * bump(0, 70, 15, 25),
            "slp": 200 * (bump(-8, 125, 22, 40) - bump(-15, 240, 22, 40)) - 150 * bump(45, 200, 12, 25),
        },
        "nao": {"slp": 450 * (bump(38, 330, 11, 35) - 1.3 * bump(66, 335, 11, 40))},
        "warming": {"sst": 0.10 + 0.06 * np.tanh(latitude / 30)[:, None] * np.ones(len(longitude))},
    }


def indices(rng: np.random.Generator, months: int) -> dict[str, np.ndarray]:
    """A series of each, (months,), with mean 0 and standard deviation 1."""
    swing = [1, -2 * DAMPING * np.cos(2 * np.pi / PERIOD), DAMPING**2]
    series = {
        "enso": lfilter([1], swing, rng.standard_normal(months + 120))[120:],
        "nao": lfilter([1], [1, -0.3], rng.standard_normal(months)),
        "warming": np.arange(months, dtype=float),
    }
    return {name: (values - values.mean()) / values.std() for name, values in series.items()}


def noise(rng: np.random.Generator, months: int, latitude: np.ndarray, longitudes: int, name: str) -> np.ndarray:
    """Noise of a variable (months, latitude, longitude), as wide in the north as at the equator."""
    tropical, polar, width, memory = NOISE[name]
    white = np.fft.rfft(rng.standard_normal((months, len(latitude), longitudes), dtype="f4"))
    arc = np.deg2rad(width) / np.cos(np.deg2rad(latitude))
    smooth = np.fft.irfft(white * np.exp(-((np.arange(white.shape[-1]) * arc[:, None]) ** 2) / 2), longitudes)
    smooth = gaussian_filter1d(smooth, width / (latitude[1] - latitude[0]), axis=1)
    smooth /= smooth.std(axis=(0, 2), keepdims=True)
    smooth[0] /= np.sqrt(1 - memory**2)  # as if the months before had been
    lasting = lfilter([np.sqrt(1 - memory**2)], [1, -memory], smooth, axis=0)
    return (tropical + (polar - tropical) * np.sin(np.deg2rad(latitude)) ** 2)[:, None] * lasting


def make(directory: Path, years: int = YEARS, degrees: float = DEGREES, seed: int = 0) -> None:
    """Write sst_1981.nc and so on, packed in 16 bits, NaN on land; slp.nc in float32; and indices.nc, what was planted."""
    rng = np.random.default_rng(seed)
    latitude, longitude = grid(degrees)
    months = 12 * years
    time = np.arange(f"{FIRST_YEAR}-01", f"{FIRST_YEAR + years}-01", dtype="M8[M]").astype("M8[ns]") + np.timedelta64(
        14, "D"
    )
    axes = {"time": ("time", time, TIME), "lat": ("lat", latitude, LATITUDE), "lon": ("lon", longitude, LONGITUDE)}
    planted, series = patterns(latitude, longitude), indices(rng, months)
    fields = {}
    for name, attributes in VARIABLES.items():
        values = noise(rng, months, latitude, len(longitude), name)
        for mode, of in planted.items():
            values += series[mode][:, None, None] * of.get(name, 0)
        by_month = values.reshape(years, 12, *values.shape[1:])
        by_month -= by_month.mean(axis=0)  # anomalies: from the mean of the same month in all years
        fields[name] = xr.DataArray(values, axes, ("time", "lat", "lon"), name, attributes)
    days = {"units": "days since 1981-01-01", "calendar": "standard", "dtype": "i4"}
    packed = {"dtype": "i2", "scale_factor": 0.01, "add_offset": 0.0, "_FillValue": -32768, "zlib": True}
    packed["chunksizes"] = (12, len(latitude), len(longitude))
    sea = fields["sst"].where(~is_land(latitude, longitude))
    for year, of_year in sea.groupby("time.year"):
        of_year.to_netcdf(directory / f"sst_{year}.nc", engine="h5netcdf", encoding={"sst": packed, "time": days})
    fields["slp"].to_netcdf(directory / "slp.nc", engine="h5netcdf", encoding={"slp": {"dtype": "f4"}, "time": days})
    xr.Dataset({name: ("time", values) for name, values in series.items()}, {"time": axes["time"]}).to_netcdf(
        directory / "indices.nc", engine="h5netcdf", encoding={"time": days}
    )


def main() -> None:
    """From the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    given = parser.parse_args()
    given.directory.mkdir(parents=True, exist_ok=True)
    make(given.directory)


if __name__ == "__main__":
    main()
