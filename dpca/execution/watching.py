"""The memory of a running process against its plan: a check that ends the run in time, and figures to show."""

from __future__ import annotations

from collections.abc import Callable

from dpca.errors import OverBudgetError
from dpca.execution.progress import Vitals
from dpca.execution.stage import Executor
from dpca.planning.runplan import Process, RunPlan
from dpca.settings import COMPUTE
from dpca.system.machine import Peak
from dpca.units import describe_memory


def keep_to(process: Process, peak: Peak) -> Callable[[], None]:
    """A check that ends the run if it takes more memory than its budget."""

    def check() -> None:
        if peak.bytes > process.budget.bytes:
            raise OverBudgetError(
                f"the run took {describe_memory(peak.bytes)} of memory where {describe_memory(process.peak_bytes)} "
                f"was planned; it was stopped at its budget of {describe_memory(process.budget.bytes)}",
                f"This is a defect of dpca: report it with the output of dpca plan. A larger {COMPUTE.memory} helps.",
            )

    return check


def vitals_of(plan: RunPlan, peak: Peak, executor: Executor) -> Callable[[], Vitals]:
    """A function that returns the memory and the workers of a run."""
    here, workers = plan.processes[0].budget.bytes, plan.processes[-1].budget.bytes

    def look() -> Vitals:
        alive = executor.alive()
        budget = None if executor.shares_memory else workers
        return Vitals(peak.now, here, alive.workers, alive.fullest_bytes, budget, alive.dashboard)

    return look
