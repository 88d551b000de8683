"""What a plan of a run is: how its input is read, who holds what in which stage, what is tried in turn.

Plain values. `dpca.planning.search` finds one that fits the budget.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from pydantic import TypeAdapter

from dpca.numerics.ladder import Rung
from dpca.planning.rechunk import Copy, copy_in
from dpca.slabs import Cuts, Plan
from dpca.sources.base import Layout
from dpca.system.machine import Budget

Reading = Literal["columns", "parts", "copy"]


@dataclass(frozen=True)
class Array:
    """An array, or several alike, that a process holds."""

    name: str
    bytes: int
    """Of one of them."""
    count: int = 1


@dataclass(frozen=True)
class Stage:
    """What a process holds at the same time."""

    name: str
    arrays: tuple[Array, ...]

    @property
    def bytes(self) -> int:
        return sum(array.bytes * array.count for array in self.arrays)


@dataclass(frozen=True)
class Process:
    """A process of the run and the most that it holds in each stage."""

    name: str
    count: int
    stages: tuple[Stage, ...]
    budget: Budget
    """What each of them may take."""

    @property
    def peak_bytes(self) -> int:
        return max(stage.bytes for stage in self.stages)

    @property
    def share(self) -> float:
        """Of its budget, at the peak."""
        return self.peak_bytes / max(1, self.budget.bytes)

    @property
    def peak_stage(self) -> Stage:
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
    """Memory of the process that asks a cluster's for results."""


@dataclass(frozen=True)
class Scratch:
    """Where a copy of the input may go."""

    path: str
    free_bytes: int


@dataclass(frozen=True)
class Attempt:
    """A solver that a run may try, and how many of its tasks fit the budget."""

    rung: Rung
    n_tasks: int
    """Tasks at the same time, on all processes."""
    window: int
    """Spans that are submitted and not added up yet."""


@dataclass(frozen=True)
class RunPlan:
    """What a run will do and hold."""

    plan: Plan
    """The cuts of what the passes read: the input, or its copy."""
    reading: Reading
    copy: Copy | None
    """The copy that is made first, if one is."""
    n_tasks: int
    """Tasks at the same time, on all processes."""
    window: int
    """Spans that are submitted and not added up yet."""
    groups: Cuts | None = None
    """Of a projection: the samples that are projected together; `plan` is of such a group."""
    processes: tuple[Process, ...] = ()
    attempts: tuple[Attempt, ...] = ()
    """What to try in turn, until one supports every component; the first is expected to."""
    too_large: tuple[Rung, ...] = ()
    """What might have been tried after those, did it fit the budget."""
    eigensolve_threads: int = 1
    """BLAS threads of the eigensolve, which change its bits."""
    reads: bool = True
    """Whether data stream by: not where the matrix that is decomposed is there already."""
    keeps_data: bool = False
    """Whether what is read stays in memory for the passes that follow."""
    expected_bytes: int = 0
    """What the tightest process holds at most, if the first attempt is the only one."""
    wanted_tasks: int = 0
    """Tasks at the same time if memory were no matter."""
    wanted_bytes: int = 0
    """What the tightest process would then hold."""
    left_out: tuple[str, ...] = ()
    """Coordinates that are not copied to the result, with the reason."""

    @property
    def n_parts(self) -> int:
        """Tasks of a pass."""
        return self.plan.n_spans * (1 if self.groups is None else len(self.groups))

    @property
    def tightest(self) -> Process:
        """The process that comes closest to its budget, or exceeds it most."""
        return max(self.processes, key=lambda process: process.share)

    @property
    def fits(self) -> bool:
        return all(process.peak_bytes <= process.budget.bytes for process in self.processes)

    @property
    def scratch_bytes(self) -> int:
        return self.copy.bytes if self.copy else 0

    @property
    def settled(self) -> Settled:
        """What of it decides bits."""
        return Settled(
            self.plan,
            self.reading,
            self.copy.unit if self.copy else None,
            tuple(attempt.rung for attempt in self.attempts),
            self.too_large,
            self.eigensolve_threads,
        )


@dataclass(frozen=True)
class Settled:
    """What of a plan decides the bits of a result, and is kept for a run that is gone on with."""

    plan: Plan
    reading: Reading
    copy_chunks: tuple[int, ...] | None
    attempts: tuple[Rung, ...]
    too_large: tuple[Rung, ...]
    eigensolve_threads: int

    def reading_of(self, layout: Layout) -> RunPlan:
        """The plan of an input, tasks and processes left open."""
        copy = copy_in(layout, self.copy_chunks) if self.copy_chunks else None
        return RunPlan(self.plan, self.reading, copy, 0, 0)

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        rungs = {
            name: [[rung.solver, rung.dtype.name] for rung in getattr(self, name)] for name in ("attempts", "too_large")
        }
        return {**asdict(self), **rungs}

    @classmethod
    def of_json(cls, stored: dict[str, Any]) -> Settled:
        """From plain values.

        Raises
        ------
        ValueError, KeyError, TypeError
            When they are not those of `as_json`.
        """
        attempts, too_large = (
            tuple(Rung(str(solver), np.dtype(dtype)) for solver, dtype in stored[name])
            for name in ("attempts", "too_large")
        )
        chunks = stored["copy_chunks"]
        return cls(
            TypeAdapter(Plan).validate_python(stored["plan"]),
            stored["reading"],
            None if chunks is None else tuple(map(int, chunks)),
            attempts,
            too_large,
            int(stored["eigensolve_threads"]),
        )
