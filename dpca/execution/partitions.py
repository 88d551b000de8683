"""Spans without a scheduler: a process computes some of a stage and ends; another looks at what is there, and adds it up.

Two executors for `dpca.execution.engine.run_pass`, over a ledger that all processes see. Either goes through a run from its
beginning and finds what is finished, so that a partition knows by itself which stage it is of, whatever the solver.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

from threadpoolctl import threadpool_limits

from dpca.errors import ClusterError, ConfigError, DpcaError
from dpca.execution.engine import Work, part_of
from dpca.execution.executors import Alive, Threads
from dpca.execution.progress import Report
from dpca.planning.runplan import Workers
from dpca.store.ledger import Damaged, Stage
from dpca.store.outputs import Outputs
from dpca.system.machine import memory_budget

T = TypeVar("T")
P = TypeVar("P")


class Incomplete(DpcaError):
    """A stage of which parts are missing or damaged."""

    def __init__(self, stage: str, n_parts: int, missing: list[tuple[int, str]]) -> None:
        super().__init__(f"stage {stage}: {len(missing)} of {n_parts} parts are not there")
        self.stage, self.n_parts, self.missing = stage, n_parts, missing


class Ended(Exception):
    """A partition has done its part."""

    def __init__(self, stage: str, computed: list[int], found: list[int]) -> None:
        super().__init__(stage)
        self.stage, self.computed, self.found = stage, computed, found


class _ByParts:
    """What both have of an executor: this process, one task at a time."""

    n_workers, shares_memory, traffic = 1, True, None

    @property
    def stand_in(self) -> Threads:
        return Threads(1)

    def workers(self, memory: int | None) -> Workers:
        return Workers(0, 1, memory_budget(memory))

    def alive(self) -> Alive:
        return Alive(1)

    def guard(self) -> NoReturn:
        raise ClusterError(
            "chunks of different lengths can't be worked on by processes that do not know of each other: two might write "
            "one chunk of a result",
            "Use dpca run.",
        )

    def session(self, progress: Report, n_tasks: int) -> NoReturn:
        raise AssertionError("stages are gone through by parts")


class Collecting(_ByParts):
    """Adds up what others have computed, and computes nothing; all that is missing is told at once."""

    def by_parts(
        self,
        task: Callable[..., P],
        work: Work,
        shared: tuple[Any, ...],
        total: T,
        merge: Callable[[T, P], T],
        stage: Stage,
        like: Any,
        report: Report,
        window: int,
    ) -> T:
        """A stage, as of `dpca.execution.engine.run_pass`.

        Raises
        ------
        Incomplete
            Names every part that is missing or damaged.
        """
        begin, total = stage.begin(total)
        n_parts, missing = work.n_parts, list[tuple[int, str]]()
        for number in range(0 if work.writes else begin, n_parts):
            damage = work.damage(number) if work.writes and (number < begin or stage.has(number)) else None
            report(0)
            if number >= begin and not stage.has(number):
                missing.append((number, "missing"))
            elif damage is not None:
                stage.forget(number)  # what it found counts again, where it is in the sum already
                missing.append((number, damage))
            elif number >= begin:
                try:
                    partial = stage.load(number, like)
                except Damaged as found:
                    stage.forget(number)
                    missing.append((number, str(found)))
                    continue
                if not missing:  # parts are added up in their order
                    total = merge(total, partial)
                    stage.added(number, total, number == n_parts - 1, window)
        if missing:
            raise Incomplete(stage.name, n_parts, missing)
        return total


@dataclass(frozen=True)
class Partition(_ByParts):
    """Computes some parts of the first stage that is not complete, and ends there."""

    index: int
    of: int
    """How many partitions a stage has."""

    def by_parts(
        self,
        task: Callable[..., P],
        work: Work,
        shared: tuple[Any, ...],
        total: T,
        merge: Callable[[T, P], T],
        stage: Stage,
        like: Any,
        report: Report,
        window: int,
    ) -> T:
        """A stage, as of `dpca.execution.engine.run_pass`.

        Raises
        ------
        Ended
            When this partition's parts are in the ledger, now or before.
        """
        n_parts = work.n_parts
        begin, total = stage.begin(total)
        if begin == n_parts:
            return total
        if not 0 <= self.index < self.of:
            raise ConfigError(
                f"--index is {self.index}, but a stage has {self.of} partitions",
                f"Give a number from 0 to {self.of - 1}.",
            )
        found, computed = [], []
        with threadpool_limits(1, user_api="blas"):
            for number in range(self.index, n_parts, self.of):
                added = number < begin
                there = (added or stage.whole(number, like)) and work.damage(number) is None
                if there:
                    found.append(number)
                    continue
                if not added:
                    stage.forget(number)
                part_of(task, work.part(number), shared, number, stage, added, report)
                computed.append(number)
        raise Ended(stage.name, computed, found)


class Prepared(Outputs):
    """The arrays of a run that others have made: parts are written, and nothing else is."""

    def _nothing(self, *arguments: Any, **named: Any) -> None:
        pass

    create = create_tiled = create_array = write = write_text = write_coordinate = _nothing
    copy = rename = remove = gather = finish = _nothing
