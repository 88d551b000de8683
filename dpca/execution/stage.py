"""A stage: one pass over the parts of some work, as a value; and what can run one.

Whoever makes a stage does not know where it runs, and whoever runs it does not know what it computes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, Self, TypeVar

from dpca.errors import DataError
from dpca.execution.progress import Progress
from dpca.numerics.preview import Preview
from dpca.planning.runplan import Workers
from dpca.sources.base import Region, Source
from dpca.store.ledger import Checkpoint, Ledger

P = TypeVar("P")
T = TypeVar("T")


class Work(ABC):
    """What all tasks of a stage have in common; travels to them, restricted to what one of them needs."""

    writes: tuple[str, ...] = ()
    """What tasks write besides what they return."""

    @property
    @abstractmethod
    def n_parts(self) -> int:
        """How many tasks there are."""

    @abstractmethod
    def part(self, number: int, /) -> Self:
        """The work, restricted to one of its parts."""

    def inputs(self, number: int, /) -> tuple[tuple[Source, Region], ...]:
        """The regions of data that a part reads."""
        return ()

    def damage(self, number: int, /) -> str | None:
        """What is wrong with the output of a part that was finished before; None where it is whole."""
        return None

    @property
    def blocks(self) -> Mapping[Any, Any]:
        """Futures of blocks that live on a cluster and that a part needs, by key."""
        return {}

    def with_blocks(self, blocks: Mapping[Any, Any], /) -> Self:
        """The work with the blocks that those futures stood for."""
        return self


@dataclass(frozen=True)
class Stage(Generic[T, P]):
    """One pass."""

    name: str
    """As people read it, and as its checkpoint is called."""
    task: Callable[..., P]
    """Called as `task(part, *shared, number, report)`: computes one part."""
    work: Work
    empty: T
    """What the results of tasks are added to, in the order of parts."""
    merge: Callable[[T, P], T]
    """Returns the sum of both; it may change the first in place."""
    n_tasks: int
    """Tasks at the same time."""
    window: int
    """Parts submitted and not yet added up, at least `n_tasks`."""
    shared: tuple[Any, ...] = ()
    """What all tasks get besides, such as alpha."""
    n_bytes: int = 0
    """Read in all, for the display."""
    like: Any = None
    """A value of the types that tasks return; None where those are the types of the sum."""
    preview: Callable[[T, int], Preview] | None = None
    """What a sum over so many parts would come to; asked for now and then."""

    @property
    def types(self) -> Any:
        """A value of the types that tasks return."""
        return self.empty if self.like is None else self.like


class Executor(Protocol):
    """Where stages run."""

    @property
    def n_workers(self) -> int:
        """Tasks that can run at the same time."""
        ...

    @property
    def shares_memory(self) -> bool:
        """Whether tasks run in this process and see its memory."""
        ...

    @property
    def adds_up(self) -> bool:
        """Whether this process has the sum of a stage in the end; else what is made of it has to come from the ledger."""
        ...

    def workers(self, memory: int | None) -> Workers:
        """Where tasks run, for planning; `memory` in bytes is what a process may take, None for the default."""
        ...

    @property
    def traffic(self) -> Traffic | None:
        """What has travelled so far; None where there is no network between tasks."""
        ...

    def alive(self) -> Alive:
        """Who computes now."""
        ...

    @property
    def stand_in(self) -> Executor | None:
        """Where a short measurement is made instead, if nothing can be started for it; one task at a time."""
        ...

    def guard(self) -> Any:
        """A lock that all tasks can take, as a context manager that travels to them."""
        ...

    def run(self, stage: Stage[T, P], progress: Progress, checkpoint: Checkpoint | None = None) -> T:
        """Compute the parts of a stage and add them up, in their order.

        With a checkpoint a task writes its result there; what is there already is not computed again, unless what the
        task wrote besides is damaged.
        """
        ...


@dataclass(frozen=True)
class Traffic:
    """Bytes of data that have travelled over a network."""

    between_workers: int = 0
    from_workers: int = 0
    """To the scheduler, or through it to the client."""

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(self.between_workers + other.between_workers, self.from_workers + other.from_workers)

    def __sub__(self, other: Traffic) -> Traffic:
        return Traffic(self.between_workers - other.between_workers, self.from_workers - other.from_workers)


@dataclass(frozen=True)
class Alive:
    """Who computes, at a moment."""

    workers: int
    """Workers of a scheduler, or threads of this process."""
    fullest_bytes: int | None = None
    """Memory of the worker that takes most of it; None for threads."""
    dashboard: str | None = None
    """The address of the scheduler's dashboard, where it has one."""


@dataclass(frozen=True)
class Runner:
    """Where the stages of a run are computed, who is told, and where finished parts are kept."""

    executor: Executor
    progress: Progress
    ledger: Ledger | None = None

    def run(self, stage: Stage[T, P]) -> T:
        """The sum over all parts of a stage, those that were finished before included."""
        checkpoint, n_parts = self.ledger.checkpoint(stage.name) if self.ledger else None, stage.work.n_parts
        found = checkpoint.n_found(n_parts) if checkpoint else 0
        if found:
            self.progress.say(f"{stage.name}: {found} of {n_parts} spans were finished before")
        n_bytes = stage.n_bytes * (n_parts - found) // n_parts
        with self.progress.stage(stage.name, n_bytes, n_parts, found):
            return self.executor.run(stage, self.progress, checkpoint)


def changed(name: str, what: str) -> DataError:
    """The error of data that changed while they were read."""
    return DataError(
        f"{name}: changed while it was read: {what}",
        "When nobody writes to it any more, restore it and go on (dpca run: with --resume), or start anew with --overwrite.",
    )
