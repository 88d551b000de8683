"""Scores of a cohort by population, with new people among them; and the loadings of the leading components along the genome.

python -m workflows.genotypes.draw RESULT PROJECTED.zarr NEW.csv FIGURE.png
"""

import csv
import sys

import matplotlib as mpl
import numpy as np
import xarray as xr

mpl.use("Agg")
from matplotlib import pyplot as plt

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
COMPONENTS = 2


def draw(result: xr.Dataset, projected: xr.Dataset, populations: list[str], path: str) -> None:
    """Write the figure."""
    figure, axes = plt.subplots(1 + COMPONENTS, 1, figsize=(7.5, 8), layout="constrained", height_ratios=(3, 1, 1))
    labels = np.array(result["labels"].values.tolist())
    divided = projected["scores"].values / projected["shrinkage"].values
    for colour, name in zip(COLOURS, np.unique(labels), strict=False):
        own, theirs = result["scores"].values[labels == name], divided[np.array(populations) == name]
        axes[0].scatter(own[:, 0], own[:, 1], s=12, color=colour, label=name)
        axes[0].scatter(theirs[:, 0], theirs[:, 1], s=36, facecolors="none", edgecolors=colour, label=f"{name}, new")
    axes[0].set(xlabel="score 1", ylabel="score 2")
    axes[0].legend(frameon=False, fontsize=8)
    chromosomes = np.array(result["variant_chromosome"].values.tolist())
    starts = np.flatnonzero(np.r_[True, chromosomes[1:] != chromosomes[:-1]])
    for number, axis in enumerate(axes[1:]):
        loadings = np.abs(result["components"].values[number])
        for colour, start, stop in zip(
            COLOURS[:2] * len(starts), starts, [*starts[1:], len(chromosomes)], strict=False
        ):
            axis.plot(np.arange(start, stop), loadings[start:stop], ".", markersize=1, color=colour)
        axis.set(ylabel=f"|component {number + 1}|", xlim=(0, len(chromosomes)), ylim=(0, None))
        middles = (starts + np.r_[starts[1:], len(chromosomes)]) / 2
        axis.set_xticks(middles, [chromosomes[start] for start in starts], fontsize=7)
    axes[-1].set_xlabel("chromosome")
    figure.savefig(path, dpi=90)


if __name__ == "__main__":
    place, new, table, target = sys.argv[1:]
    with open(table, encoding="utf-8") as file:
        of_new = [row["population"] for row in csv.DictReader(file)]
    draw(xr.open_zarr(f"{place}/result.zarr").load(), xr.open_zarr(new).load(), of_new, target)
