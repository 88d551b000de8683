"""The first two scores of some kernels of a sweep, coloured by label, side by side.

python -m workflows.kernels.draw RESULT LABELS.npy FIGURE.png
"""

import sys

import matplotlib as mpl
import numpy as np
import xarray as xr

mpl.use("Agg")
from matplotlib import pyplot as plt

COLOURS, MARKS = ("#0072b2", "#e69f00", "#009e73"), "osD"


def chosen(result: xr.Dataset) -> list[int]:
    """The linear kernel, and the other whose scores separate labels best."""
    kernels = list(result["kernel"].values)
    accuracy = np.where(np.array(kernels) == "linear", -1.0, result["neighbour_accuracy"].values)
    return [kernels.index("linear"), int(np.nanargmax(accuracy))]


def draw(result: xr.Dataset, labels: np.ndarray, path: str) -> None:
    """Write the figure."""
    cases = chosen(result)
    figure, axes = plt.subplots(1, len(cases), figsize=(9, 4), layout="constrained")
    for axis, case in zip(axes, cases, strict=True):
        of_case = result.isel(kernel_case=case)
        for label, colour, mark in zip(np.unique(labels), COLOURS, MARKS, strict=False):
            scores = of_case["scores"].values[labels == label]
            axis.scatter(
                scores[:, 0], scores[:, 1], s=10, color=colour, marker=mark, alpha=0.7, label=f"shell {label + 1}"
            )
        gamma = float(of_case["gamma"])
        name = str(of_case["kernel"].values) + ("" if np.isnan(gamma) else f", gamma {gamma:.3g}")
        ratio = of_case["explained_variance_ratio"].values
        axis.set(title=name, xlabel=f"component 1 ({ratio[0]:.0%})", ylabel=f"component 2 ({ratio[1]:.0%})")
    axes[0].legend(frameon=False)
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    place, label_path, target = sys.argv[1:]
    draw(xr.open_zarr(f"{place}/result.zarr").load(), np.load(label_path), target)
