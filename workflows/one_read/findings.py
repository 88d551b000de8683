"""What the eight analyses of one read found, beside what was planted."""

import numpy as np
import xarray as xr

from workflows.one_read.make import MEMORY, PERIOD, WARMING, patterns

Derived = dict[str, xr.Dataset]
ANALYSES = ("anomalies", "winters", "months", "years", "windows", "waves", "modes", "spectrum")
SLOW = 0.05
"""Below this frequency, in cycles a step, the swing has more energy than the wave."""


def opened(place: str) -> Derived:
    """The analyses of a derived result, their maps in kelvins: components are of values times the root of the cosine of latitude."""
    found = {name: xr.open_zarr(f"{place}/result.zarr", group=name, decode_times=False) for name in ANALYSES}
    return {
        name: one.assign(map=one["components"] / np.sqrt(np.cos(np.deg2rad(one["lat"])))) for name, one in found.items()
    }


def planted(one: xr.Dataset) -> dict[str, xr.DataArray]:
    """What was planted, (lat, lon); the wave as one complex map, of which exp(-2 pi i step / PERIOD) times it has the real part."""
    found = patterns(one["lat"].values, one["lon"].values)
    found["wave"] = found["wave"] + 1j * found.pop("later")
    axes = {axis: one[axis] for axis in ("lat", "lon")}
    return {name: xr.DataArray(values, axes, ("lat", "lon")) for name, values in found.items()}


def likeness(field: xr.DataArray, other: xr.DataArray) -> float:
    """Cosine of the angle between two maps, weighted by area: 1 where they are proportional, whatever the sign or phase."""
    a, b = (one.values * np.sqrt(np.cos(np.deg2rad(one["lat"].values)))[:, None] for one in (field, other))
    return float(np.abs(np.vdot(a, b)) / (np.linalg.norm(a) * np.linalg.norm(b)))


def nearest(one: xr.Dataset, pattern: xr.DataArray) -> tuple[int, float]:
    """The component whose map is most like a pattern, and how much it is."""
    alike = [likeness(field, pattern) for field in one["map"]]
    return int(np.argmax(alike)), max(alike)


def pair(one: xr.Dataset, wave: xr.DataArray) -> list[int]:
    """The two components that a wave takes."""
    maps = one["map"].isel(lag=0, missing_dims="ignore")
    return [
        int(k)
        for k in np.argsort([-np.hypot(likeness(field, wave.real), likeness(field, wave.imag)) for field in maps])[:2]
    ]


def period(turning: np.ndarray) -> float:
    """Steps in which a complex series turns round once."""
    return float(2 * np.pi / abs(np.polyfit(np.arange(len(turning)), np.unwrap(np.angle(turning)), 1)[0]))


def period_of_pair(one: xr.Dataset, wave: xr.DataArray) -> float:
    """That of the two components' scores about each other."""
    first, second = one["scores"].values[:, pair(one, wave)].T
    return period(first + 1j * second)


def warmed(years: xr.Dataset, pattern: xr.DataArray) -> xr.DataArray:
    """Kelvins at the equator in each year, by the component that is the warming."""
    number, _ = nearest(years, pattern)
    return years["scores"][:, number] * years["map"][number].sel(lat=slice(-5, 5)).mean()


def findings(derived: Derived) -> list[tuple[str, str, float, float]]:
    """Of each analysis: a question, the planted answer, and what it found."""
    truth = planted(derived["anomalies"])
    wave, waves = truth["wave"], derived["waves"]
    warming = warmed(derived["years"], truth["warming"])
    frequencies, eigenvalues = (derived["modes"][name].values for name in ("frequencies", "eigenvalues"))
    turning, slow = (
        np.argmax(np.where(which, np.abs(eigenvalues), 0)) for which in (frequencies > 0, frequencies == 0)
    )
    of_wave, alike = nearest(waves, wave)
    energy = derived["spectrum"]["energies"][:, 0].values
    frequency = derived["spectrum"]["frequency"].values
    peak = frequency[np.argmax(np.where(frequency > SLOW, energy, 0))]
    return [
        ("anomalies", "likeness to the swing", 1, nearest(derived["anomalies"], truth["swing"])[1]),
        ("winters", "likeness to the pattern of winters", 1, nearest(derived["winters"], truth["winter"])[1]),
        ("months", "period of the wave, in steps", PERIOD, period_of_pair(derived["months"], wave)),
        (
            "years",
            "warming at the equator, in kelvins a year",
            WARMING,
            abs(np.polyfit(warming["year"], warming, 1)[0]),
        ),
        ("windows", "period of the wave", PERIOD, period_of_pair(derived["windows"], wave)),
        ("waves", "likeness to the wave, with its phases", 1, alike),
        ("waves", "period of the wave", PERIOD, period(waves["scores"].values[:, of_wave])),
        ("modes", "period of the wave", PERIOD, 1 / frequencies[turning]),
        ("modes", "what is left of the wave a step later", 1, abs(eigenvalues[turning])),
        ("modes", "what is left of the swing a step later", MEMORY, abs(eigenvalues[slow])),
        ("spectrum", "period of the highest peak, but for slow ones", PERIOD, 1 / peak),
    ]
