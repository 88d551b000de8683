"""Optimized dynamic mode decomposition, in steps; where times are not regular, in units of their coordinate."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from dpca.analyses.answers import Answer
from dpca.analyses.axis import Clock
from dpca.analyses.kind import Context
from dpca.analyses.kinds.modes import OfModes, of_modes
from dpca.analyses.samples import Samples
from dpca.derived.optimized_dmd import optimized_dmd
from dpca.errors import ConfigError


class OptimizedDmd(OfModes):
    """Dynamic modes by a fit of exponentials to all rows, at any times."""

    title = "optimized dynamic modes"
    matrices = 6

    kind: Literal["optimized_dmd"]
    rank: Annotated[int, Field(ge=1, description="How many modes.")]

    def run(self, rows: Samples, context: Context) -> Answer:
        try:
            clock = rows.axis.clock("optimized DMD")
        except ConfigError:  # not regular, which the fit does not need: in units of the coordinate then
            clock = Clock(rows.axis.times("optimized DMD"), rows.axis.unit)
        found = optimized_dmd(rows.transformed, clock.times, self.rank)
        return of_modes("optimized_dmd", rows, found, clock.step)

    def columns(self, n: int) -> int:
        return 2 * self.rank
