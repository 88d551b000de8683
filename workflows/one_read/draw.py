"""What eight analyses of one read found, beside what was planted: a table, what was read for it, and a figure.

python -m workflows.one_read.draw RESULT DERIVED FIGURE.png
"""

import json
import sys
from pathlib import Path

import matplotlib as mpl
import numpy as np
import xarray as xr

mpl.use("Agg")
from matplotlib import pyplot as plt

from workflows.one_read.findings import ANALYSES, Derived, findings, nearest, opened, pair, planted, warmed
from workflows.one_read.make import MEMORY, PERIOD, WARMING, WAVES

FOUND, PLANTED = "#0072b2", "#e69f00"


def map_of(axis: plt.Axes, field: xr.DataArray, pattern: xr.DataArray, title: str) -> None:
    """Draw a map as colours, and contours of what was planted, with its sign."""
    field = field * np.sign(float((field * pattern).sum())) / float(np.abs(field).max())
    axis.pcolormesh(field["lon"], field["lat"], field, cmap="RdBu_r", vmin=-1, vmax=1, rasterized=True)
    levels = np.array([-0.8, -0.4, 0.4, 0.8]) * float(np.abs(pattern).max())
    axis.contour(pattern["lon"], pattern["lat"], pattern, levels, colors="black", linewidths=0.7)
    axis.set_xticks([0, 90, 180, 270, 360], ["0°", "90°E", "180°", "90°W", "0°"], size=7)
    axis.set_yticks([-60, 0, 60], ["60°S", "0°", "60°N"], size=7)
    axis.set_title(title, size=9)


def draw(derived: Derived, path: str) -> None:
    """Write the figure: colours and blue are what was found, contours and orange what was planted."""
    truth = planted(derived["anomalies"])
    figure, axes = plt.subplot_mosaic([ANALYSES[:4], ANALYSES[4:]], figsize=(14, 6), layout="constrained")
    for name, pattern in (("anomalies", "swing"), ("winters", "winter")):
        number, alike = nearest(derived[name], truth[pattern])
        map_of(
            axes[name],
            derived[name]["map"][number],
            truth[pattern],
            f"{name}: EOF {number + 1}, like the {pattern} by {alike:.3f}",
        )
    first = derived["months"]["map"][pair(derived["months"], truth["wave"])[0]]
    phase = np.angle((truth["wave"] * first).sum())
    map_of(
        axes["months"], first, (truth["wave"] * np.exp(-1j * phase)).real, "months: an EOF of the pair, and the wave"
    )

    years = warmed(derived["years"], truth["warming"])
    rate = np.polyfit(years["year"], years, 1)[0]
    middle = years["year"] - years["year"].mean()
    axes["years"].plot(years["year"], np.sign(rate) * years, "o-", color=FOUND, ms=3)
    axes["years"].plot(years["year"], WARMING * middle, color=PLANTED)
    axes["years"].set(ylabel="K")
    axes["years"].set_title(f"years: EOF 1, {abs(rate):.3f} K a year at the equator", size=9)

    windows, number = derived["windows"], pair(derived["windows"], truth["wave"])[0]
    equator = windows["map"][:, number].sel(lat=slice(-10, 10)).mean("lat")
    axes["windows"].pcolormesh(equator["lon"], windows["lag"], equator, cmap="RdBu_r", rasterized=True)
    crest = float(equator[0][: windows.sizes["lon"] // WAVES].idxmax("lon"))
    for start in range(-WAVES, WAVES):
        at = crest + 360 / WAVES * (start + windows["lag"] / PERIOD)
        axes["windows"].plot(at, windows["lag"], color="black", lw=0.7)
    axes["windows"].set(xlim=(0, 360), xlabel="longitude", ylabel="lag, steps")
    axes["windows"].set_title("windows: a component at the equator, and crests", size=9)

    number, alike = nearest(derived["waves"], truth["wave"])
    there = derived["waves"]["map"][number].sel(lat=slice(-10, 10)).mean("lat")
    longitude, phase = there["lon"].values, np.unwrap(np.angle(there.values))
    turned = np.deg2rad(WAVES * longitude)
    axes["waves"].plot(longitude, (turned - (turned - phase).mean()) / (2 * np.pi), color=PLANTED)
    axes["waves"].plot(longitude, phase / (2 * np.pi), color=FOUND)
    axes["waves"].set(xlabel="longitude", ylabel="phase at the equator, turns", xlim=(0, 360))
    axes["waves"].set_title(f"waves: EOF {number + 1}, like the wave by {alike:.3f}", size=9)

    found, circle = derived["modes"]["eigenvalues"].values, np.exp(2j * np.pi * np.linspace(0, 1, 200))
    right = np.array([MEMORY, *np.exp(2j * np.pi / PERIOD * np.array([1, -1]))])
    axes["modes"].plot(circle.real, circle.imag, color="0.7", lw=0.8)
    axes["modes"].plot(right.real, right.imag, "o", color=PLANTED, ms=9, mfc="none", mew=2)
    axes["modes"].plot(found.real, found.imag, "+", color=FOUND, ms=8, mew=2)
    axes["modes"].set(aspect="equal")
    axes["modes"].set_title("modes: eigenvalues of a step of DMD", size=9)

    spectrum = derived["spectrum"]
    axes["spectrum"].semilogy(spectrum["frequency"], spectrum["energies"][:, 0], color=FOUND, label="first")
    axes["spectrum"].semilogy(spectrum["frequency"], spectrum["energies"][:, 1], color=FOUND, lw=0.7, label="second")
    axes["spectrum"].axvline(1 / PERIOD, color=PLANTED, zorder=0)
    axes["spectrum"].set(xlabel="frequency, cycles a step", ylabel="energy")
    axes["spectrum"].set_title("spectrum: energies of SPOD", size=9)
    figure.savefig(path, dpi=80)


def main(result: str, derived: str, figure: str) -> None:
    """Print what was found and what was read for it, and draw."""
    analyses = opened(derived)
    print("| analysis | what | planted | found |\n| --- | --- | --- | --- |")
    for name, what, right, found in findings(analyses):
        print(f"| {name} | {what} | {right:g} | {found:.4g} |")
    for command, place in (("run", result), ("derive", derived)):
        manifest = json.loads((Path(place) / "manifest.json").read_text(encoding="utf-8"))
        print(f"dpca {command}: {manifest['counts']['bytes_decoded']:,} bytes of the field read")
    draw(analyses, figure)


if __name__ == "__main__":
    main(*sys.argv[1:])
