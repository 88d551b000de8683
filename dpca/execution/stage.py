"""A stage: one pass over the parts of some work, as a value; and the interface of the executors that run it.

The code that makes a stage does not know where it runs, and an executor does not know what the stage computes.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, Self, TypeVar

from dpca.errors import DataError
from dpca.execution.progress import Progress
from dpca.numerics.preview import Preview
from dpca.planning.runplan import Concurrency, Workers
from dpca.sources.base import Region, Source
from dpca.store.ledger import Checkpoint, Ledger
from dpca.store.outputs import Outputs

P = TypeVar("P")
T = TypeVar("T")


class Work(ABC):
    """Description that all tasks of a stage share; each task is sent the work restricted to its part."""

    writes: tuple[str, ...] = ()
    """Arrays that tasks write, besides the results that they return."""

    @property
    def read_seconds(self) -> float:
        """After how many seconds without a new slab the storage counts as hanging; infinite where nothing is read."""
        return math.inf

    @property
    @abstractmethod
    def n_parts(self) -> int:
        """The number of parts, and so of tasks."""

    @abstractmethod
    def part(self, number: int, /) -> tuple[Work, int]:
        """The work restricted to one part, and the number of the part in it."""

    def inputs(self, number: int, /) -> tuple[tuple[Source, Region], ...]:
        """The regions of data that a part reads."""
        return ()

    @property
    def place(self) -> str | None:
        """The directory of the result that parts write to, sooner or later; None where they write nothing, or to memory."""
        outputs: Outputs | None = getattr(self, "outputs", None)
        return outputs.directory if outputs is not None else None

    def damage(self, number: int, /) -> str | None:
        """Fault of the output of a part that was finished before; None if it is intact."""
        return None

    @property
    def blocks(self) -> Mapping[Any, Any]:
        """Futures of the blocks on a cluster that a part needs, by key."""
        return {}

    def with_blocks(self, blocks: Mapping[Any, Any], /) -> Self:
        """The work with the blocks themselves in place of those futures."""
        return self


@dataclass(frozen=True)
class InTurn(Work):
    """Several works as one: all parts of the first, then those of the next."""

    works: tuple[Work, ...]
    writes: tuple[str, ...] = ()

    @classmethod
    def of(cls, works: Sequence[Work]) -> Self:
        """The works, one after another."""
        return cls(tuple(works), tuple(dict.fromkeys(name for work in works for name in work.writes)))

    @property
    def read_seconds(self) -> float:
        return min(work.read_seconds for work in self.works)

    @property
    def n_parts(self) -> int:
        return sum(work.n_parts for work in self.works)

    @property
    def place(self) -> str | None:
        return next((place for work in self.works if (place := work.place)), None)

    def part(self, number: int) -> tuple[Work, int]:
        work, own = self._located(number)
        return work.part(own)

    def inputs(self, number: int) -> tuple[tuple[Source, Region], ...]:
        work, own = self._located(number)
        return work.inputs(own)

    def damage(self, number: int) -> str | None:
        work, own = self._located(number)
        return work.damage(own)

    def _located(self, number: int) -> tuple[Work, int]:
        """The work that has a part, and the number of the part in it."""
        for work in self.works:
            if number < work.n_parts:
                return work, number
            number -= work.n_parts
        raise IndexError(number)


@dataclass(frozen=True)
class Together(Generic[T]):
    """Sums in two levels: of so many parts in a row, by tasks where these run on other machines; and of these sums.

    The bits depend on the number, which is part of the plan, and not on who adds up.
    """

    number: int
    nothing: Callable[[], T]
    """The sum over no parts."""
    join: Callable[[T, T], T]
    """Returns the sum of both; it may change the first in place."""
    like: Callable[[T], Any]
    """A value of the types that tasks return, from the sum over no parts."""


@dataclass(frozen=True)
class Stage(Generic[T, P]):
    """One pass."""

    name: str
    """The name for people, and of the checkpoint."""
    task: Callable[..., P]
    """Called as `task(work, *shared, number, report)`: computes a part of the work that `part` has returned."""
    work: Work
    empty: T
    """The initial sum: the results of tasks are added to it, in the order of parts."""
    merge: Callable[[T, P], T]
    """Returns the sum of both; it may change the first in place."""
    concurrency: Concurrency
    shared: tuple[Any, ...] = ()
    """Further arguments of all tasks, such as alpha."""
    n_bytes: int = 0
    """Bytes that the stage reads in all, for the display."""
    like: Any = None
    """A value of the types that tasks return; None if the sum has the same types."""
    preview: Callable[[T, int], Preview] | None = None
    """The preview of the result from a sum and its number of parts; called now and then."""
    of_parts: int | None = None
    """Parts of the pass that the stage is a piece of; None where it is a pass by itself."""
    together: Together[T] | None = None
    """How parts are added up with their neighbours first; None where each is added to the sum by itself."""

    @property
    def types(self) -> Any:
        """A value of the types that tasks return."""
        return self.empty if self.like is None else self.like

    def neighbours(self, number: int) -> range:
        """The parts that a part is added up with, itself included, before they are added to the sum."""
        many = 1 if self.together is None else self.together.number
        first = number - number % many
        return range(first, min(first + many, self.work.n_parts))


class Executor(Protocol):
    """The interface of the executors, which run stages."""

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
        """Whether this process has the sum at the end of a stage; else its results have to come from the ledger."""
        ...

    def workers(self, memory: int | None) -> Workers:
        """The workers, for planning; `memory` is what a process may take, in bytes, None for the default."""
        ...

    @property
    def traffic(self) -> Traffic | None:
        """The bytes transferred so far; None if there is no network between tasks."""
        ...

    def alive(self) -> Alive:
        """The workers that are alive now."""
        ...

    @property
    def stand_in(self) -> Executor | None:
        """The executor for short measurements, if this one must not be started for them; it runs one task at a time."""
        ...

    def guard(self) -> Any:
        """A lock that all tasks can take, as a context manager that can be sent to them."""
        ...

    def run(self, stage: Stage[T, P], progress: Progress, checkpoint: Checkpoint | None = None) -> T:
        """Compute the parts of a stage and add them up, in their order.

        With a checkpoint each task writes its result there; a part that is there already is computed again only if
        other output of its task is damaged.
        """
        ...


@dataclass(frozen=True)
class Traffic:
    """Bytes of data that were transferred over a network."""

    between_workers: int = 0
    from_workers: int = 0
    """To the scheduler, or through it to the client."""

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(self.between_workers + other.between_workers, self.from_workers + other.from_workers)

    def __sub__(self, other: Traffic) -> Traffic:
        return Traffic(self.between_workers - other.between_workers, self.from_workers - other.from_workers)


@dataclass(frozen=True)
class Alive:
    """The workers of a run at one moment."""

    workers: int
    """The number of workers of a scheduler, or of threads of this process."""
    fullest_bytes: int | None = None
    """Memory of the worker that takes the most; None for threads."""
    dashboard: str | None = None
    """The address of the scheduler's dashboard, if it has one."""


@dataclass(frozen=True)
class Runner:
    """The executor of the stages of a run, with the display of progress and the ledger of finished parts."""

    executor: Executor
    progress: Progress
    ledger: Ledger | None = None

    def run(self, stage: Stage[T, P]) -> T:
        """The sum over all parts of a stage, including those that were finished before."""
        checkpoint, n_parts = self.ledger.checkpoint(stage.name) if self.ledger else None, stage.work.n_parts
        n_done = checkpoint.n_found(n_parts) if checkpoint else 0
        if n_done:
            self.progress.say(f"{stage.name}: {n_done} of {n_parts} spans were finished before")
        n_bytes = stage.n_bytes * (n_parts - n_done) // n_parts
        with self.progress.stage(stage.name, n_bytes, n_parts, n_done):
            return self.executor.run(stage, self.progress, checkpoint)


def changed(name: str, what: str) -> DataError:
    """The error for data that changed while they were read."""
    return DataError(
        f"{name}: changed while it was read: {what}",
        "When nobody writes to it any more, restore it and go on (dpca run: with --resume), or start anew with --overwrite.",
    )
