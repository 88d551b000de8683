"""Spans without a scheduler: processes compute some spans of a stage and end; another process adds up the results.

Two executors, over a ledger that all processes share. Each goes through a run from its beginning and skips what is
finished, whatever the solver. The process that adds up also decides how to go on, and opens the next stage; a partition
computes parts of the stage that is open, and decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

from dpca.errors import ClusterError, ConfigError, DpcaError, StorageError
from dpca.execution.engine import Sum, TaskPart
from dpca.execution.executors import Threads
from dpca.execution.progress import Progress
from dpca.execution.stage import Alive, Stage
from dpca.planning.runplan import Workers
from dpca.store.ledger import Checkpoint, Damaged, Ledger
from dpca.store.outputs import Kind, Outputs, kind_of
from dpca.system.machine import memory_budget

MADE_AGAIN = "Check the disk. dpca batch finalize makes it again."

T = TypeVar("T")
P = TypeVar("P")


class Incomplete(DpcaError):
    """The error of a stage with missing or damaged parts."""

    def __init__(self, stage: str, n_parts: int, missing: list[tuple[int, str]], of_parts: int | None = None) -> None:
        super().__init__(f"stage {stage}: {len(missing)} of {n_parts} parts are not there")
        self.stage, self.n_parts, self.missing = stage, n_parts, missing
        self.of_parts = of_parts or n_parts
        """Parts of the pass that the stage is a piece of."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Incomplete, (self.stage, self.n_parts, self.missing, self.of_parts)


class Ended(Exception):
    """The end of a partition: all its parts are in the ledger."""

    def __init__(self, stage: str, computed: list[int], found: list[int]) -> None:
        super().__init__(stage)
        self.stage, self.computed, self.found = stage, computed, found


class NotOpened(Ended):
    """The end of a partition that has nothing to do yet: the process that adds up was stopped before it opened the next stage."""

    def __init__(self, stage: str) -> None:
        super().__init__(stage, [], [])


@dataclass(frozen=True)
class DecidedLedger(Ledger):
    """The ledger of a partition, which decides nothing: it may not have the sums that decisions follow from."""

    opened: str
    """The stage that partitions are to compute, as the process that adds up has said."""

    def complete(self, name: str, n_parts: int) -> bool:
        """Whether a stage is complete; the open one never is: arrays that its parts have written may be damaged."""
        return name != self.opened and super().complete(name, n_parts)

    def begin_again(self, *names: str) -> None:
        """The process that adds up discards."""
        raise NotOpened(self.opened)

    def once(self, name: str, compute: Callable[[], T], like: T) -> T:
        """The value of the process that adds up."""

        def undecided() -> T:
            raise NotOpened(self.opened)

        return super().once(name, undecided, like)


class _JobArray:
    """Base of the two executors: this process, one task at a time."""

    n_workers, shares_memory, traffic = 1, True, None
    adds_up = True

    @property
    def stand_in(self) -> Threads:
        return Threads(1)

    def workers(self, memory: int | None) -> Workers:
        # As on a cluster: computing parts and adding them up take different arrays.
        return Workers(1, 1, memory_budget(memory), memory_budget(memory))

    def alive(self) -> Alive:
        return Alive(1)

    def guard(self) -> NoReturn:
        raise ClusterError(
            "chunks of different lengths can't be worked on by processes that do not know of each other: two might write "
            "one chunk of a result",
            "Use dpca run.",
        )


class Collecting(_JobArray):
    """The executor that adds up what others have computed, and computes nothing; it names all missing parts at once."""

    def run(self, stage: Stage[T, P], progress: Progress, checkpoint: Checkpoint | None = None) -> T:
        """The result of a stage, as `Executor.run` gives it."""
        assert checkpoint is not None
        work, n_parts, missing = stage.work, stage.work.n_parts, list[tuple[int, str]]()
        (n_added, total), adding = checkpoint.begin(stage.empty), Sum(stage)
        for number in range(0 if work.writes else n_added, n_parts):
            there = number < n_added or checkpoint.has(number)
            damage = work.damage(number) if work.writes and there else None
            progress.advance(0)
            if not there:
                missing.append((number, "missing"))
            elif damage is not None:
                checkpoint.forget(number)  # its result still counts, where it is in the sum already
                missing.append((number, damage))
            elif number >= n_added:
                try:
                    partial = checkpoint.load(number, stage.types)
                except Damaged as found:
                    checkpoint.forget(number)
                    missing.append((number, str(found)))
                    continue
                if not missing:  # parts are added up in their order
                    total = adding.add(total, number, partial)
                    checkpoint.added(number, total, *adding.settled(number), stage.concurrency.window)
        if missing:
            raise Incomplete(stage.name, n_parts, missing, stage.of_parts)
        return total


@dataclass(frozen=True)
class Partition(_JobArray):
    """The executor that computes some parts of the first incomplete stage, and ends there."""

    index: int
    of: int
    """How many partitions a stage has."""
    opened: str
    """Field of `DecidedLedger` of the same name."""

    adds_up = False

    def run(self, stage: Stage[T, P], progress: Progress, checkpoint: Checkpoint | None = None) -> T:
        """The result of a stage that is complete, as `Executor.run` gives it.

        One that is complete is open again where arrays that its parts have written were damaged since.
        """
        assert checkpoint is not None
        work, n_parts = stage.work, stage.work.n_parts
        n_added, total = checkpoint.begin(stage.empty)
        if stage.name != self.opened:
            if n_added == n_parts:
                return total
            raise NotOpened(self.opened)
        if not 0 <= self.index < self.of:
            raise ConfigError(
                f"--index is {self.index}, but a stage has {self.of} partitions",
                f"Give a number from 0 to {self.of - 1}.",
            )
        present, computed = [], []
        for number in range(self.index, n_parts, self.of):
            added = number < n_added
            if (added or checkpoint.whole(number, stage.types)) and work.damage(number) is None:
                present.append(number)
                continue
            part = TaskPart(stage.task, *work.part(number), number, checkpoint, added)
            part.computed(stage.shared, progress.advance)
            computed.append(number)
        if n_added == n_parts and not computed:
            raise NotOpened(self.opened)
        raise Ended(stage.name, computed, present)


class PreparedOutputs(Outputs):
    """The arrays of a run, created by another process: only parts of them are written, where they are as they were created.

    Their metadata have no checksum, and two partitions that trusted damaged ones would write into the same chunks.
    """

    def __init__(self, *store: Any) -> None:
        super().__init__(*store)
        self._kinds: dict[str, tuple[Kind, tuple[str, ...]]] = {}

    def _create(self, name: str, kind: Kind, dims: tuple[str, ...], attributes: Mapping[str, Any]) -> None:
        self._kinds[name] = kind, dims

    def rename(self, name: str, new: str) -> None:
        self.remove(new)
        if name in self._kinds:
            self._kinds[new] = self._kinds.pop(name)

    def remove(self, name: str) -> None:
        self._kinds.pop(name, None)

    def array(self, name: str) -> Any:
        try:
            array = super().array(name)
        except StorageError as error:
            raise error.saying(error.marked_message, MADE_AGAIN) from error
        found = kind_of(array), tuple(array.metadata.dimension_names or ())  # type: ignore[union-attr]
        if self._kinds.get(name, found) != found:
            raise StorageError(f"{self.root}/{name}/zarr.json is damaged: it describes another array", MADE_AGAIN)
        return array

    def _nothing(self, *arguments: Any, **named: Any) -> None:
        pass

    create = create_group = name_coordinates = _nothing
    write = write_text = write_coordinate = write_stack = _put = copy = gather = finish = _nothing
