"""EOFs 1 and 2 of both variables as maps, their PCs beside what was planted, and the variance of each EOF by variable.

python -m workflows.climate_eof.draw RESULT INDICES.nc FIGURE.png
"""

import sys

import matplotlib as mpl
import numpy as np
import xarray as xr

mpl.use("Agg")
from matplotlib import pyplot as plt

PLANTED = ("enso", "nao")
"""The index that each EOF is of."""
SHOWN = {"sst": ("sea surface temperature", "K", 1), "slp": ("sea level pressure", "hPa", 100)}
"""Title, unit, and how much of what is stored it is."""
WEST = 25
"""Longitude of the left edge: no ocean of interest is cut."""
COLOURS = {"sst": "#d55e00", "slp": "#0072b2"}


def eof(result: xr.Dataset, number: int, group: str) -> xr.DataArray:
    """An EOF as a map, (lat, lon), in the unit of the variable, for one standard deviation of its PC.

    Components are of anomalies times the root of the cosine of latitude and the factor of their variable: both are divided out.
    """
    weighted = result[f"components_{group}"][number] / result[f"weights_{group}"]
    deviation = np.sqrt(result["explained_variance"][number])
    return deviation * weighted / result["block_factor"].sel(group=group)


def map_of(axis: plt.Axes, field: xr.DataArray, land: xr.DataArray, limit: float) -> mpl.collections.QuadMesh:
    """Draw a field, with land in grey where there is no value, and coasts."""
    field, land = (one.assign_coords(lon=(one["lon"] - WEST) % 360 + WEST).sortby("lon") for one in (field, land))
    mesh = axis.pcolormesh(field["lon"], field["lat"], field, cmap="RdBu_r", vmin=-limit, vmax=limit, rasterized=True)
    axis.contour(land["lon"], land["lat"], land, [0.5], colors="0.25", linewidths=0.6)
    axis.set(xlim=(WEST, WEST + 360), ylim=(-70, 82), facecolor="0.85")
    axis.set_xticks([60, 120, 180, 240, 300, 360], ["60°E", "120°E", "180°", "120°W", "60°W", "0°"], size=7)
    axis.set_yticks([-60, -30, 0, 30, 60], ["60°S", "30°S", "0°", "30°N", "60°N"], size=7)
    return mesh


def draw(result: xr.Dataset, indices: xr.Dataset, path: str) -> None:
    """Write the figure; indices (time) are what was planted."""
    share = result["variance_share"] * result["explained_variance_ratio"]
    figure = plt.figure(figsize=(10, 8.6), layout="constrained")
    upper, lower = figure.subfigures(2, 1, height_ratios=(1.6, 1))
    maps = upper.subplots(2, 2)
    below = lower.subplot_mosaic([["pc1", "scree"], ["pc2", "scree"]], width_ratios=(2.4, 1))
    land = np.isnan(eof(result, 0, "sst")).astype(float)
    signs = [np.sign(np.corrcoef(result["scores"][:, k], indices[name])[0, 1]) for k, name in enumerate(PLANTED)]
    for group, column in zip(SHOWN, maps.T, strict=True):
        title, unit, size = SHOWN[group]
        fields = [signs[k] * eof(result, k, group) / size for k in range(len(PLANTED))]
        limit = max(float(np.nanquantile(np.abs(field), 0.99)) for field in fields)
        for k, (axis, field) in enumerate(zip(column, fields, strict=True)):
            mesh = map_of(axis, field, land, limit)
            axis.set_title(
                f"EOF {k + 1}, {float(result['variance_share'].sel(group=group)[k]):.0%} of it in {title}", size=9
            )
        bar = upper.colorbar(mesh, ax=column, location="bottom", shrink=0.8, aspect=40, extend="both")
        bar.set_label(f"{unit} for one standard deviation of the PC", size=8)
        bar.ax.tick_params(labelsize=7)
    for k, name in enumerate(PLANTED):
        scores = signs[k] * result["scores"][:, k] / np.sqrt(result["explained_variance"][k])
        r = float(np.corrcoef(scores, indices[name])[0, 1])
        axis = below[f"pc{k + 1}"]
        axis.plot(result["time"], scores, color="0.15", lw=1, label=f"PC {k + 1}")
        axis.plot(indices["time"], indices[name], color="#e69f00", lw=1, label=f"{name.upper()} as planted")
        axis.set(xlim=(result["time"].values[0], result["time"].values[-1]), ylabel="std. deviations")
        axis.set_title(f"r = {r:.2f}", size=9, loc="left")
        axis.legend(ncols=2, fontsize=8, loc="lower right", bbox_to_anchor=(1, 0.98), borderpad=0.1, frameon=False)
    number, foot = np.arange(1, result.sizes["component"] + 1), 0
    for group in SHOWN:
        part = 100 * share.sel(group=group).values
        below["scree"].bar(number, part, bottom=foot, color=COLOURS[group], label=SHOWN[group][0], width=0.7)
        foot = foot + part
    below["scree"].set(xlabel="EOF", ylabel="variance, %", xticks=number)
    below["scree"].legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=90)


if __name__ == "__main__":
    place, planted, target = sys.argv[1:]
    draw(xr.open_zarr(f"{place}/result.zarr").load(), xr.open_dataset(planted, engine="h5netcdf"), target)
