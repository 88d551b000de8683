"""The plan of a run: how the input is read, what each process holds in each stage, which solvers are tried in turn.

Plain values; `dpca.planning.search` finds a plan that fits the budget.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, Self

import numpy as np
from pydantic import TypeAdapter

from dpca.numerics.ladder import Rung
from dpca.planning.rechunk import Copy, copy_in
from dpca.slabs import Cuts, Plan
from dpca.sources.base import Layout
from dpca.system.machine import Budget

Reading = Literal["columns", "parts", "copy"]


@dataclass(frozen=True)
class HeldArray:
    """An array, or several equal ones, that a process holds."""

    name: str
    bytes: int
    """Size of one of them."""
    count: int = 1


@dataclass(frozen=True)
class Footprint:
    """The arrays that a process holds at the same time in a stage."""

    name: str
    arrays: tuple[HeldArray, ...]

    @property
    def bytes(self) -> int:
        return sum(array.bytes * array.count for array in self.arrays)


@dataclass(frozen=True)
class Process:
    """A process of the run, with the arrays at its peak in each stage."""

    name: str
    count: int
    stages: tuple[Footprint, ...]
    budget: Budget
    """Memory that each of these processes may use."""

    @property
    def peak_bytes(self) -> int:
        return max(stage.bytes for stage in self.stages)

    @property
    def share(self) -> float:
        """Peak memory as a share of the budget."""
        return self.peak_bytes / max(1, self.budget.bytes)

    @property
    def peak_stage(self) -> Footprint:
        return max(self.stages, key=lambda stage: stage.bytes)


@dataclass(frozen=True)
class Workers:
    """Where tasks run."""

    processes: int
    """0 for threads of this process, else the worker processes of a cluster."""
    threads: int
    """Tasks at the same time in each."""
    budget: Budget
    """Memory of each of these processes."""
    client_budget: Budget | None = None
    """Memory of the client, which collects the results of a cluster's workers."""


@dataclass(frozen=True)
class Scratch:
    """Place for a copy of the input."""

    path: str
    free_bytes: int


@dataclass(frozen=True)
class Concurrency:
    """How much of a stage is in hand at the same time."""

    n_tasks: int
    """Tasks at the same time, on all processes."""
    window: int
    """Parts that may be submitted and not added up yet; at least `n_tasks`."""


@dataclass(frozen=True)
class Attempt:
    """A solver that a run may try, with as many tasks as fit the budget."""

    rung: Rung
    concurrency: Concurrency


@dataclass(frozen=True)
class MapColumns:
    """Columns that a pass makes of samples' coefficients."""

    maps: int
    """Real maps X' C, each of a column of coefficients."""
    errors: int = 0
    """Maps of standard errors: roots of sums of squares of others, which are not stored."""
    deviations: int = 0
    """Columns of coefficients of these others, and of rows that correlations are taken with."""
    scaled: int = 0
    """Maps that are written a second time: in the unit of the data, or as correlations."""

    @property
    def stored(self) -> int:
        """Real maps that are written."""
        return self.maps + self.errors + self.scaled


OPEN = Concurrency(0, 0)
"""The number of tasks is not planned yet."""
ONE = Concurrency(1, 1)
"""One task at a time."""


@dataclass(frozen=True)
class InputPlan:
    """How one input is read."""

    plan: Plan
    """How the passes cut what they read: the input, or its copy."""
    reading: Reading
    copy: Copy | None = None
    """The copy that is made first; None without one."""


TOGETHER, MANY = 64, 8
"""Spans that are added up first, where there are MANY times as many or more: on a cluster by workers, so that the client adds that many times less."""


@dataclass(frozen=True)
class RunPlan:
    """The plan of a run: its steps and its memory."""

    inputs: tuple[InputPlan, ...]
    """How each of the inputs is read, one after another in each pass."""
    concurrency: Concurrency = OPEN
    groups: Cuts | None = None
    """Groups of samples that are projected together; `plan` is for one group. None except for projections."""
    processes: tuple[Process, ...] = ()
    attempts: tuple[Attempt, ...] = ()
    """Solvers to try in turn, until one supports every component; the first is expected to."""
    too_large: tuple[Rung, ...] = ()
    """Solvers that would follow, but do not fit the budget."""
    eigensolve_threads: int = 1
    """BLAS threads of the eigensolve, which change its bits."""
    together: int | None = None
    """Spans in a row whose sums are added up before they are added to the others, which changes bits; by `spans_together` if None."""
    reads: bool = True
    """Whether data are streamed: False where the matrix to decompose exists already."""
    keeps_data: bool = False
    """Whether data stay in memory for the later passes."""
    expected_bytes: int = 0
    """Peak memory of the tightest process, if the first attempt is the only one."""
    wanted_tasks: int = 0
    """Number of tasks at the same time with unlimited memory."""
    wanted_bytes: int = 0
    """Peak memory of the tightest process with that many tasks."""
    left_out: tuple[str, ...] = ()
    """Coordinates that are not copied to the result, each with the reason."""

    @classmethod
    def of(cls, plan: Plan, reading: Reading, copy: Copy | None = None, **others: Any) -> Self:
        """The plan for one input; `others` are further fields."""
        return cls((InputPlan(plan, reading, copy),), **others)

    @property
    def plan(self) -> Plan:
        """How the first input is cut: what is the same for all is in it, such as the number of samples."""
        return self.inputs[0].plan

    @property
    def plans(self) -> tuple[Plan, ...]:
        """How the inputs are cut."""
        return tuple(one.plan for one in self.inputs)

    @property
    def only(self) -> InputPlan:
        """How the input of a run with one is read."""
        (one,) = self.inputs
        return one

    def of_input(self, number: int) -> RunPlan:
        """The plan with one of its inputs alone."""
        return replace(self, inputs=(self.inputs[number],))

    @property
    def copies(self) -> bool:
        """Whether any input is copied first."""
        return any(one.copy is not None for one in self.inputs)

    @property
    def n_features(self) -> int:
        return sum(plan.n_features for plan in self.plans)

    @property
    def n_parts(self) -> int:
        """Number of tasks in a pass."""
        return sum(plan.n_spans for plan in self.plans) * (1 if self.groups is None else len(self.groups))

    @property
    def spans_together(self) -> int:
        """How many spans in a row are added up first: 1 unless there are many."""
        if self.together is not None:
            return self.together
        return TOGETHER if self.n_parts >= MANY * TOGETHER else 1

    @property
    def tightest(self) -> Process:
        """The process with the largest share of its budget, which may exceed 1."""
        return max(self.processes, key=lambda process: process.share)

    @property
    def fits(self) -> bool:
        return all(process.peak_bytes <= process.budget.bytes for process in self.processes)

    @property
    def scratch_bytes(self) -> int:
        return sum(one.copy.bytes for one in self.inputs if one.copy)

    @property
    def settled(self) -> Settled:
        """The part of the plan that decides the bits of the result."""
        return Settled(
            tuple(SettledInput(one.plan, one.reading, one.copy.unit if one.copy else None) for one in self.inputs),
            tuple(attempt.rung for attempt in self.attempts),
            self.too_large,
            self.eigensolve_threads,
            self.spans_together,
        )


UNPLANNED = RunPlan(())


@dataclass(frozen=True)
class SettledInput:
    """How an input is read, as it is stored."""

    plan: Plan
    reading: Reading
    copy_chunks: tuple[int, ...] | None

    def of(self, layout: Layout) -> InputPlan:
        """The plan for an input of this layout."""
        copy = copy_in(layout, self.plan.kept_axes, self.copy_chunks) if self.copy_chunks else None
        return InputPlan(self.plan, self.reading, copy)


@dataclass(frozen=True)
class Settled:
    """The part of a plan that decides the bits of a result; it is stored for a run to resume with."""

    inputs: tuple[SettledInput, ...]
    attempts: tuple[Rung, ...]
    too_large: tuple[Rung, ...]
    eigensolve_threads: int
    together: int = 1

    def as_json(self) -> dict[str, Any]:
        """These settings as plain values."""
        rungs = {
            name: [[rung.solver, rung.dtype.name] for rung in getattr(self, name)] for name in ("attempts", "too_large")
        }
        return {**asdict(self), **rungs}

    @classmethod
    def of_json(cls, stored: dict[str, Any]) -> Settled:
        """The settings from plain values."""
        attempts, too_large = (
            tuple(Rung(str(solver), np.dtype(dtype)) for solver, dtype in stored[name])
            for name in ("attempts", "too_large")
        )
        inputs = tuple(
            SettledInput(
                TypeAdapter(Plan).validate_python(one["plan"]),
                one["reading"],
                None if one["copy_chunks"] is None else tuple(map(int, one["copy_chunks"])),
            )
            for one in stored["inputs"]
        )
        if not inputs:
            raise ValueError("it has no input")
        return cls(inputs, attempts, too_large, int(stored["eigensolve_threads"]), int(stored.get("together", 1)))
