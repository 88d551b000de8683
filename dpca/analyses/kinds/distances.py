"""Euclidean distances of the rows from each other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import numpy as np

from dpca.analyses import kernels
from dpca.analyses.answers import Answer, Array, row_axis
from dpca.analyses.certificates import why_so_few
from dpca.analyses.kind import AnalysisView, Contents, Context, Kind
from dpca.analyses.samples import Samples
from dpca.analyses.statistics import amplification, answered
from dpca.report.figures import largest
from dpca.report.marks import Figure, Image, Panel, Scale
from dpca.types import F64

PIXELS = 400
"""Most rows and columns of the image of distances."""
BLOCK_BYTES = 2**24
"""Size of the distances that are read at a time."""


class Distances(Kind):
    """Euclidean distances of the rows from each other; a matrix of rows by rows."""

    title = "distances"
    matrices = 4
    squares = 1

    kind: Literal["distances"]

    def run(self, rows: Samples, context: Context) -> Answer:
        found, error = kernels.distances(rows)
        axis, known_above = row_axis(rows.axis), kernels.nearest_known(error)
        pairs = found[np.triu_indices(rows.n, 1)]
        near = int(np.count_nonzero(pairs < known_above))
        caveat = ""
        if near:
            left = why_so_few(rows.known, amplification(rows), "they are small beside the norms of the rows")
            caveat = f"{near:,} of {len(pairs):,} distances are below {known_above:.3g}, where they have less than two digits: {left}"
        low, middle, high = (float(one) for one in np.quantile(pairs, [0.0, 0.5, 1.0]))
        other = f"{axis.name}_b"
        return answered(
            "distances",
            rows,
            {"distances": Array(found, (axis.name, other), {"known_above": known_above})},
            [axis, replace(axis, name=other)],
            f"{len(pairs):,} distances from {low:.5g} to {high:.5g}, median {middle:.5g}",
            [caveat],
            known_above=known_above,
        )

    @classmethod
    def section(cls, view: AnalysisView) -> tuple[Contents, list[str]]:
        array = view.analysis["distances"]
        n = array.shape[0]
        step = -(-n // PIXELS)
        table = {
            "caption": "Distances",
            "head": ["rows", "known above"],
            "rows": [[f"{n:,}", f"{view.analysis.certificate['known_above']:.3g}"]],
        }
        part = "" if step == 1 else f" One of {step:,} rows is drawn."
        values = thinned(array, step)
        caption = f"Distances of {n:,} rows from each other, in their order.{part}"
        return view.contents(table, {"0": lambda name: of_distances(values, step, name)}, caption), []


def thinned(array: Any, step: int) -> F64:
    """Every so many rows and columns of a stored matrix, which is read in blocks."""
    n = array.shape[0]
    block = step * max(1, BLOCK_BYTES // (8 * n * step))
    parts = [np.asarray(array[start : start + block])[::step, ::step] for start in range(0, n, block)]
    return np.concatenate(parts).astype(np.float64)


def of_distances(values: F64, step: int, name: str) -> Figure:
    """Distances as an image."""
    edge = len(values) * step - 0.5
    image = Image(values, -0.5, edge, -0.5, edge, (0.0, largest([values])), "sequential", "distance")
    panel = Panel((image,), Scale("row", (-0.5, edge), whole=True), Scale("row", (edge, -0.5), whole=True), ratio=1.0)
    return Figure(name, "distances", ((panel,),), 360, 460, about="Distances of rows from each other")
