"""Energies of the modes, their vorticity, and how the first two turn about each other.

python -m workflows.flow_snapshots.draw RESULT FIGURE.png
"""

import sys

import matplotlib as mpl
import numpy as np
import xarray as xr

mpl.use("Agg")
from matplotlib import pyplot as plt

from workflows.flow_snapshots.make import PERIOD

MODES = 4


def modes(result: xr.Dataset) -> xr.DataArray:
    """Modes as velocities (component, direction, y, x): components are of velocities times the root of area."""
    return result["components"] / result["weights"]


def vorticity(velocity: xr.DataArray) -> xr.DataArray:
    """dv/dx - du/dy of (..., direction, y, x)."""
    return velocity.isel(direction=1).differentiate("x") - velocity.isel(direction=0).differentiate("y")


def draw(result: xr.Dataset, path: str) -> None:
    """Write the figure."""
    energy = result["explained_variance_ratio"].values
    number = np.arange(1, len(energy) + 1)
    figure, axes = plt.subplot_mosaic(
        [["energy", "sum", "portrait"], ["maps"] * 3], figsize=(10, 7), layout="constrained", height_ratios=(1, 1.5)
    )
    axes["energy"].semilogy(number, energy, "o", color="#0072b2")
    axes["energy"].set(xlabel="mode", ylabel="share of kinetic energy", xticks=number)
    axes["sum"].plot(number, 100 * np.cumsum(energy), "o-", color="#0072b2")
    axes["sum"].set(xlabel="modes", ylabel="kinetic energy together, %", xticks=number, ylim=(0, 103))
    scores = result["scores"].values
    points = axes["portrait"].scatter(scores[:, 0], scores[:, 1], s=12, c=result["time"] % PERIOD, cmap="twilight")
    figure.colorbar(points, ax=axes["portrait"], label="phase, in D / U")
    axes["portrait"].set(xlabel="score 1", ylabel="score 2", aspect="equal")
    where = axes["maps"].get_subplotspec()
    axes["maps"].remove()
    inner = where.subgridspec(2, 2)
    curls = vorticity(modes(result.isel(component=slice(MODES))))
    for curl, cell in zip(curls, inner, strict=False):
        axis = figure.add_subplot(cell)
        limit = float(np.nanquantile(np.abs(curl), 0.995))
        axis.pcolormesh(curl["x"], curl["y"], curl, cmap="RdBu_r", vmin=-limit, vmax=limit, rasterized=True)
        axis.add_patch(plt.Circle((0, 0), 0.5, color="0.4"))
    for k, axis in enumerate(figure.axes[-MODES:]):
        axis.set(title=f"vorticity of mode {k + 1} ({energy[k]:.1%})", aspect="equal", xlim=(-2, 15), ylim=(-3, 3))
    figure.savefig(path, dpi=80)


if __name__ == "__main__":
    place, target = sys.argv[1:]
    draw(xr.open_zarr(f"{place}/result.zarr").load(), target)
