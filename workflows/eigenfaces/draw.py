"""Mean face, eigenfaces, scores by person, and a face from 5, 20 and 80 components.

python -m workflows.eigenfaces.draw RESULT FACES.zarr FIGURE.png
"""

import sys

import matplotlib as mpl
import numpy as np
import xarray as xr
import zarr

mpl.use("Agg")
from matplotlib import pyplot as plt

EIGENFACES, PICTURE = 7, 128
PAIRS = ((0, 1), (3, 6))
"""Components whose scores are drawn: those of light, and two of people."""


def rebuilt(result: xr.Dataset, picture: int, n_components: int) -> np.ndarray:
    """A picture (rows, columns) from its first scores."""
    scores = result["scores"].values[picture, :n_components]
    return result["mean"].values + np.tensordot(scores, result["components"].values[:n_components], 1)


def draw(result: xr.Dataset, faces: np.ndarray, path: str) -> None:
    """Write the figure; faces are (pictures, pixels)."""
    shape = result["mean"].shape
    top = [("mean face", result["mean"].values)]
    ratio = result["explained_variance_ratio"].values
    top += [(f"{k + 1}: {ratio[k]:.1%}", result["components"].values[k]) for k in range(EIGENFACES)]
    kept = [k for k in (5, 20, 80) if k <= result.sizes["component"]]
    again = [("picture", faces[PICTURE].reshape(shape))]
    again += [(f"k = {k}", rebuilt(result, PICTURE, k)) for k in kept]
    figure = plt.figure(figsize=(10, 6.6), layout="constrained")
    upper, lower = figure.subfigures(2, 1, height_ratios=(1, 2))
    for axis, (title, image) in zip(upper.subplots(1, len(top)), top, strict=True):
        axis.imshow(image, cmap="gray")
        axis.set_title(title, size=9)
        axis.set_axis_off()
    pictures, clouds = lower.subfigures(1, 2, width_ratios=(1, 2))
    for axis, (title, image) in zip(pictures.subplots(2, 2).flat, again, strict=False):
        axis.imshow(image, cmap="gray", vmin=0, vmax=255)
        axis.set_title(title, size=9)
        axis.set_axis_off()
    scores, labels = result["scores"].values, result["labels"].values
    for axis, (a, b) in zip(clouds.subplots(1, len(PAIRS)), PAIRS, strict=True):
        for number, label in enumerate(np.unique(labels)):
            of_label = scores[labels == label]
            axis.scatter(of_label[:, a], of_label[:, b], s=9, color=f"C{number}", label=label)
        axis.set(xlabel=f"component {a + 1}", ylabel=f"component {b + 1}")
        axis.tick_params(labelsize=7)
    figure.legend(*axis.get_legend_handles_labels(), loc="outside lower right", ncols=8, frameon=False, fontsize=8)
    figure.savefig(path, dpi=90)


if __name__ == "__main__":
    place, data, target = sys.argv[1:]
    draw(xr.open_zarr(f"{place}/result.zarr").load(), zarr.open_array(data, mode="r")[:], target)
