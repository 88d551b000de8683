"""Principal coordinates of the Euclidean distances (Gower, Biometrika 53, 1966): the scores and the spectrum of PCA, without maps."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np

from dpca.analyses.answers import Answer
from dpca.analyses.kind import AnalysisView, Components, Contents, Context, most_of, number_of
from dpca.analyses.kinds.components import OfComponents, points
from dpca.analyses.kinds.pca import components
from dpca.analyses.samples import Samples
from dpca.config.schema import AUTO
from dpca.report.marks import Figure, Panel, Scale
from dpca.types import F64


class Pcoa(OfComponents):
    """Principal coordinates of these distances: the scores and the spectrum of pca, without maps."""

    title = "principal coordinates"
    matrices = 5
    has_maps = False

    kind: Literal["pcoa"]
    n_components: Components = AUTO

    def run(self, rows: Samples, context: Context) -> Answer:
        found = components(rows, number_of(self.n_components))
        return replace(found, kind="pcoa", maps=None, certificate={**found.certificate, "kind": "pcoa"})

    def columns(self, n: int) -> int:
        return 0

    def vectors(self, n: int) -> int:
        return most_of(self.n_components, n)

    @classmethod
    def section(cls, view: AnalysisView) -> tuple[Contents, list[str]]:
        contents, captions = super().section(view)
        if view.drawn:
            scores = np.asarray(view.analysis["scores"][:, :2], np.float64)
            contents["figures"] = [*contents["figures"], of_plane(scores, view.id("plane"))]
        return contents, captions


def of_plane(scores: F64, name: str) -> Figure:
    """The first coordinate against the second."""
    second = scores[:, 1] if scores.shape[1] > 1 else np.zeros(len(scores))
    panel = Panel(
        (points(scores[:, 0], second),),
        Scale("coordinate 0"),
        Scale("coordinate 1" if scores.shape[1] > 1 else ""),
        ratio=float(np.clip(np.ptp(second) / (np.ptp(scores[:, 0]) or 1.0), 0.4, 1.5)),
    )
    return Figure(name, "plane", ((panel,),), 320, 420, about="Principal coordinates")
