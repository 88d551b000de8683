"""Principal components of windows of rows that follow each other: extended EOFs, multichannel singular spectrum analysis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from dpca.analyses.answers import LAG, Answer, Maps, row_axis
from dpca.analyses.axis import Axis, Clock
from dpca.analyses.certificates import answer_of_maps
from dpca.analyses.kind import Components, Context, most_of, number_of
from dpca.analyses.kinds.components import OfComponents, spectrum_of
from dpca.analyses.samples import Samples
from dpca.config.schema import AUTO
from dpca.derived.extended import Extended, extended
from dpca.derived.operators import Chain, Matrix
from dpca.report import findings, maps
from dpca.report.derived_findings import PIXELS, Lead, lags
from dpca.report.figures import arranged, image_of, largest, panel_of, scale_of, width_of
from dpca.report.maps import Component, Picture
from dpca.report.marks import Figure, Image, Panel, Scale
from dpca.store.derived import StoredAnalysis
from dpca.store.stored import Stored
from dpca.types import F64


class ExtendedEof(OfComponents):
    """Components of windows of rows: extended EOFs, multichannel singular spectrum analysis."""

    title = "extended EOFs"
    matrices = 7

    kind: Literal["extended"]
    lags: Annotated[int, Field(ge=1, description="Rows in a window.")]
    step: Annotated[int, Field(ge=1, description="Their distance in rows.")] = 1
    n_components: Components = AUTO

    def run(self, rows: Samples, context: Context) -> Answer:
        clock = rows.axis.clock("extended EOF analysis")
        return of_extended(rows, extended(rows.transformed, self.lags, self.step, number_of(self.n_components)), clock)

    def columns(self, n: int) -> int:
        return self.lags * most_of(self.n_components, n)

    @property
    def of_factor(self) -> int:
        return 4 * self.lags  # that of a factor for each lag

    @classmethod
    def shown(cls, stored: StoredAnalysis, array: Stored, count: int, group: str = "") -> list[list[Lead]]:
        n_lags, k, *features = array.shape
        # A line of features makes one image of all lags.
        chosen = list(range(min(n_lags, PIXELS))) if len(features) == 1 else lags(n_lags)
        return [[(lag, number) for lag in chosen] for number in range(min(k, (count + 1) // 2))]


def of_extended(rows: Samples, found: Extended, clock: Clock) -> Answer:
    """Extended components, with a map a lag."""
    windows = len(found.scores)
    axis = row_axis(rows.axis)
    axis = axis if axis.values is None else axis.of(axis.values[:windows])
    scores_of = partial(_of_windows, rows.chain, found.lags, windows)
    maps = Maps(found.coefficients, (LAG,), "together", scores_of, found.scores)
    lags = Axis(LAG, found.lags.astype(np.int64), {"units": clock.step, "long_name": "lag in steps of the rows"})
    arrays = spectrum_of(found, axis, windows - 1)
    answer = answer_of_maps("extended", rows, found.error, found.amplification, found.rank, arrays, axis, maps)
    return replace(answer, coordinates={**answer.coordinates, LAG: lags})


def _of_windows(chain: Chain, lags: NDArray[np.intp], windows: int, projected: Matrix) -> Matrix:
    """Scores of windows, about their mean, from X W of each lag."""
    total = sum(chain.apply(one)[lag : lag + windows] for one, lag in zip(projected, lags, strict=True))
    return np.asarray(total - np.mean(total, axis=0))


def lagged(
    analysis: StoredAnalysis,
    components: list[Component],
    leads: list[Lead],
    pictures: tuple[maps.Picture, ...],
    axes: list[findings.DrawnAxis],
    name: str,
) -> tuple[str, Figure]:
    """The end of a caption, and the figure, of the maps of one component at several lags."""
    lags, step = np.asarray(analysis["lag"][...], np.float64), str(analysis["lag"].attributes["units"])
    chosen = [lead[0] for lead in leads]
    said = f", at lags in steps of {step}." + (
        "" if len(chosen) == len(lags) else f" {len(chosen)} of {len(lags)} lags."
    )
    if len(pictures[0].shape) == 1:
        values = np.stack([component.views[0] for component in components])
        label = f"lag (steps of {step})"
        return said, of_lagged_line(values, lags[chosen], label, pictures[0], axes[0], name)
    return said, of_lags(components, [f"lag {lags[number]:g}" for number in chosen], axes, name)


def of_lags(
    components: Sequence[Component],
    titles: Sequence[str],
    axes_of: list[findings.DrawnAxis],
    name: str,
    together: str = "",
) -> Figure:
    """Maps of one component at several lags, beside each other, in the same colours."""
    limit = largest([component.views[0] for component in components])
    panels = [
        panel_of(
            view := component.pictures[0],
            axes_of,
            (image_of(view, axes_of, component.views[0], (-limit, limit)),),
            together,
            f"{title}, {view.title}".removesuffix(", "),
        )
        for component, title in zip(components, titles, strict=True)
    ]
    rows = arranged(panels)
    return Figure(name, "maps at lags", rows, 280, width_of(rows[0]), about="Maps at several lags")


def of_lagged_line(
    values: F64, lags: F64, lag_label: str, view: Picture, axis: findings.DrawnAxis, name: str
) -> Figure:
    """A component of one axis of features at all lags, (lags, pixels), as an image."""
    limit, (left, right) = largest([values]), axis.edges(values.shape[1] * view.step[0])
    half = float((lags[-1] - lags[0]) / max(1, len(lags) - 1) / 2) or 0.5
    low, high = float(lags[0]) - half, float(lags[-1]) + half
    x = scale_of(axis, values.shape[1], view.step[0])
    panel = Panel(
        (Image(values, left, right, low, high, (-limit, limit)),),
        Scale(x.label, (left, right), whole=x.whole, marks=x.marks, names=x.names),
        Scale(lag_label, (low, high), whole=True),
    )
    return Figure(name, "lags", ((panel,),), 230, 700, about="A component at several lags")
