"""A job: the data, the model, what is written, and the plan of the passes, as one frozen value."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpca.config.model import Model
from dpca.numerics.ladder import BLOCK_KRYLOV, Rung
from dpca.planning.in_memory import plan_in_memory
from dpca.planning.memory import second_pass
from dpca.planning.runplan import UNPLANNED, RunPlan, Scratch, Settled, Workers
from dpca.planning.search import plan_run
from dpca.planning.steps import PlannedStep, steps_of, worst_steps
from dpca.sources import Source
from dpca.sources.groups import FeatureGroup, Groups
from dpca.store.gram import rung_of
from dpca.store.results import Result

NOWHERE = Scratch("", 0)
"""No place for copies of the input."""


@dataclass(frozen=True)
class Job:
    """A decomposition to compute. `dpca run`, the parts of a job array, `dpca extend`, forecasts and fits in Python carry one."""

    groups: Groups
    """The inputs, side by side."""
    model: Model
    run_plan: RunPlan = UNPLANNED
    scratch: Scratch = NOWHERE
    """Place for copies of the inputs."""
    components: bool = True
    """Whether components are written; kernels have none with feature axes."""
    keep_gram: bool = True
    """Whether K, r and c are written, where samples are kept."""
    labels: NDArray[Any] | None = None
    """A label of each sample, (n_samples,)."""
    gram: Result | None = None
    """The result whose Gram matrix is used, so that no data are read; None for none."""

    def planned(self, workers: Workers, settled: Settled | None = None) -> Job:
        """This job with a plan; reads no values.

        Parameters
        ----------
        settled : of a run to resume: everything that decides bits stays as it was, whatever the memory is now
        """
        kernels = self.model.kernels
        if self.gram is not None or (kernels is not None and kernels.precomputed):
            rung = Rung("gram_eigh", np.dtype(np.float64)) if self.gram is None else rung_of(self.gram)
            return replace(self, run_plan=plan_in_memory(self.groups[0], self.model, rung, workers))
        run_plan = plan_run(
            self.groups,
            self.model,
            workers=workers,
            scratch=self.scratch,
            components=self.components,
            keep_gram=self.keep_gram,
            settled=settled,
        )
        return replace(self, run_plan=run_plan)

    def of_input(self, number: int) -> Job:
        """This job with one of its inputs alone."""
        return replace(self, groups=(self.groups[number],), run_plan=self.run_plan.of_input(number))

    @property
    def each(self) -> list[tuple[RunPlan, FeatureGroup]]:
        """The plan of each input alone, and the input."""
        return [(self.run_plan.of_input(number), group) for number, group in enumerate(self.groups)]

    @property
    def sources(self) -> list[Source]:
        """All that tasks read."""
        return [source for group in self.groups for source in group.sources]

    @property
    def n_bytes(self) -> int:
        """Size of the inputs after decoding."""
        return sum(group.layout.bytes for group in self.groups)

    @property
    def solver(self) -> str:
        """The solver that is tried first."""
        return self.run_plan.attempts[0].rung.solver

    @property
    def second_pass(self) -> str | None:
        """Name of the second pass over the data; None without one."""
        return second_pass(self.run_plan.plan, self.components)

    @property
    def steps(self) -> list[list[PlannedStep]]:
        """The steps for each input, if the first solver supports every component."""
        return [steps_of(run, self.model, group.layout, self.components) for run, group in self.each]

    def worst_of(self, run: RunPlan) -> list[PlannedStep]:
        """Further passes for an input, with its own plan, if each solver but the last fails."""
        return worst_steps(run, self.model, self.components)

    @property
    def n_stages(self) -> int:
        """Number of stages, as far as they are known at first: all inputs are copied, and then read in the same stages."""
        first, *others = self.steps
        copies = sum(step.kind == "copy" for steps in others for step in steps)
        not_counted = {
            "again",
            "matrix",
            *(["eigensolve"] if self.solver == BLOCK_KRYLOV else []),
        }  # others are added as they follow
        return copies + sum(step.kind not in not_counted for step in first)
