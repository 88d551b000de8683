"""Dynamic mode decomposition, with exact or projected modes."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal

from pydantic import Field

from dpca.analyses.answers import Answer
from dpca.analyses.kind import Components, Context, most_of, number_of
from dpca.analyses.kinds.modes import OfModes, of_modes
from dpca.analyses.samples import Samples
from dpca.config.schema import AUTO
from dpca.derived.dmd import dmd


class Dmd(OfModes):
    """Dynamic modes."""

    title = "dynamic modes"
    matrices = 7

    kind: Literal["dmd"]
    rank: Components = AUTO
    modes: Annotated[
        Literal["exact", "projected"],
        Field(
            description="exact: eigenvectors of the operator from a row to the next; projected: in the span of the leading principal components "
            "of the rows but the last (Tu et al. 2014)."
        ),
    ] = "exact"
    delays: Annotated[
        int,
        Field(
            ge=1,
            description="Rows in a window: with more than 1, modes are of windows of rows that follow each other (higher order DMD): several "
            "frequencies are then told apart also where the features have fewer directions. A map is the part of a window's first row.",
        ),
    ] = 1

    def run(self, rows: Samples, context: Context) -> Answer:
        clock = rows.axis.clock("DMD")
        modes = dmd(rows.transformed, clock.times, number_of(self.rank), self.modes, self.delays)
        found = of_modes("dmd", rows, modes, clock.step)
        return replace(found, certificate={**found.certificate, "modes": self.modes, "delays": self.delays})

    def columns(self, n: int) -> int:
        return (1 + self.delays) * most_of(self.rank, n)

    @property
    def of_factor(self) -> int:
        return 4 * self.delays  # that of a factor for each delay
