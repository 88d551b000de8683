"""Slices of mean and components, and the scores against age.

python -m workflows.brains.draw RESULT FIGURE.png
"""

import sys

import matplotlib as mpl
import numpy as np
import xarray as xr

mpl.use("Agg")
from matplotlib import pyplot as plt

COMPONENTS = 3
SLICES = (("x", 0.29), ("y", 0.55), ("z", 0.33))
"""Where, as a share of each axis: through the temporal lobe."""


def draw(result: xr.Dataset, path: str) -> None:
    """Write the figure."""
    maps = [("mean", result["mean"])]
    maps += [(f"component {k + 1}", result["components"][k]) for k in range(COMPONENTS)]
    figure, axes = plt.subplots(len(maps), 4, figsize=(8.5, 8), layout="constrained", width_ratios=(1, 1, 1, 1.7))
    side = max(result["mean"].shape) / 2
    for row, (title, volume) in zip(axes, maps, strict=True):
        limit = float(np.nanmax(np.abs(volume)))
        colours = {"cmap": "gray", "vmin": 0} if title == "mean" else {"cmap": "RdBu_r", "vmin": -limit}
        for axis, (name, share) in zip(row, SLICES, strict=False):
            plane = volume.isel({name: int(share * volume.sizes[name])}).values.T
            high, wide = np.array(plane.shape) / 2
            axis.imshow(plane, origin="lower", extent=(-wide, wide, -high, high), vmax=limit, **colours)
            axis.set(xticks=[], yticks=[], xlim=(-side, side), ylim=(-side, side))
            axis.set_frame_on(False)
        row[0].set_ylabel(title)
    for axis, (name, _) in zip(axes[0], SLICES, strict=False):
        axis.set_title(f"across {name}", size=10)
    ratio = 100 * result["explained_variance_ratio"].values
    axes[0, 3].plot(np.arange(1, len(ratio) + 1), ratio, "o", color="#0072b2")
    axes[0, 3].set(xlabel="component", ylabel="variance, %", xticks=range(1, len(ratio) + 1), ylim=(0, None))
    ages = result["labels"].values.astype(float)
    for axis, scores in zip(axes[1:, 3], result["scores"].values.T, strict=False):
        axis.scatter(ages, scores, s=10, color="#0072b2")
        axis.set(ylabel="score")
        axis.set_title(f"r = {np.corrcoef(ages, scores)[0, 1]:.2f}", size=10)
    axes[-1, 3].set_xlabel("age")
    figure.savefig(path, dpi=90)


if __name__ == "__main__":
    place, target = sys.argv[1:]
    draw(xr.open_zarr(f"{place}/result.zarr").load(), target)
