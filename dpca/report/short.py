"""A result in short, for a cell of a notebook: what it is, its spectrum, its first scores and maps. Needs nothing that is not installed anyway."""

from __future__ import annotations

from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpca.report import figures, findings, maps
from dpca.report.marks import Labels, Table
from dpca.report.static import MOST_POINTS, as_svg
from dpca.store.results import Result

MOST_BYTES = 2**26
"""Size of the components that are read for their maps."""
MAPS = 2


def as_html(result: Result, labels: NDArray[Any] | None = None) -> str:
    """A few lines of HTML with pictures: eigenvalues, scores, and the first components of at most `MOST_BYTES`.

    Parameters
    ----------
    labels : (n_samples,), which colour the samples; those in the result if None
    """
    labels = result.labels if labels is None else labels
    answers = findings.answers(result)
    shown = max(answers, key=lambda answer: answer.accuracy)
    scree, every = findings.scree(result, shown), -(-result.n_samples // MOST_POINTS)
    k = scree.n_components
    which = "" if len(answers) == 1 else f" of kernel {shown.number}, {shown.kernel},"
    words = (
        f"{result.n_samples:,} samples: {k} component{'s' * (k != 1)}{which} ha{'ve' if k != 1 else 's'} "
        f"{100 * float(scree.ratio[:k].sum()):.1f} % of the variance. {shown.document['verdict']}."
    )
    drawn = [as_svg(figures.of_eigenvalues(scree), {})]
    scores = findings.every_row(result, shown, every)[:, :2]
    if (figure := figures.of_scores(scores.shape[1])) is not None:
        columns = {figures.score(number): column for number, column in enumerate(scores.T)}
        of_label = None if labels is None else Labels.of(np.asarray(labels)[::every])
        drawn.append(as_svg(figure, {"samples": Table("sample", (), columns, of_label, every)}))
    for one in result.each:
        drawn += _first_maps(one) if one.named("components") in one.arrays else []
    beside = "".join(f'<div style="flex: 1 1 300px; max-width: 440px">{svg}</div>' for svg in drawn)
    return f'<p>{escape(words)}</p><div style="display: flex; flex-wrap: wrap; gap: 1em">{beside}</div>'


def _first_maps(result: Result) -> list[str]:
    """The first components of one input, as svg; none where they are large."""
    array = result.arrays[result.named("components")]
    count = min(MAPS, maps.n_drawn(result, MOST_BYTES))
    axes = [findings.axis_of(result, dim, f"feature axis {axis}") for axis, dim in enumerate(array.dims[1:])]
    called = f", {result.group}" if result.group else ""
    return [
        as_svg(figures.of_component(f"{number}{called}", component, axes, unit=result.units), {})
        for number, component in enumerate(maps.components(result, count), 1)
    ]
