"""Runs a stage task by task, and adds up the results of the tasks.

How a pass runs on Dask, and why
--------------------------------
A pass is S tasks, one per span, however many chunks the data have. A task opens the source and streams its
slabs through buffers of its own; blocks are not tasks of their own. Two other designs are natural in Dask,
but do not scale:

- A graph that loads each block in one task and multiplies it in another lets the scheduler put the two on
  different workers, so that in the end the whole dataset crosses the network.
- A tree with an n x n partial for every chunk moves n^2 values per chunk. With n = 2,000 and chunks of
  1,000 features a partial is four times the chunk (float64 against float32).

A span sums its n x n partial in place and only this partial leaves the task, so S n^2 values are transferred,
whatever the number of features: with more features, spans are larger (`dpca.slabs`).

Spans are submitted in order, at most `window` ahead of the oldest that is not added up yet, and partials
are added to the total in the order of spans. So the number of partials that exist at any time is bounded
in advance (a graph submitted as a whole may hold one for each span), and the bits of the sum are the
same whichever span finishes first: floating-point addition is not associative.

Where spans are many (`runplan.TOGETHER`), neighbours are added up first: on a cluster, once they are in the ledger, by a task of a worker, so
that the client reads and adds one n x n sum for 64 spans. Which spans are added up together is part of the plan, and the sums of
neighbours are added in their order, so that the bits are the same on a cluster, on one machine and in a job array.

One BLAS thread per task: two tasks with one thread each are 1.4-1.6 times as fast as one task with two (measured),
and the number of BLAS threads changes the bits. So a part counts only if it was computed with one from its beginning to its end.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass, replace
from itertools import islice
from queue import Empty, SimpleQueue
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from dpca.errors import StorageError, WorkerDied
from dpca.execution.marks import Mark, marked
from dpca.execution.progress import Progress, Report
from dpca.execution.stage import Stage, Together, Work, changed
from dpca.numerics.preview import is_due
from dpca.settings import INPUT
from dpca.sources.base import describe
from dpca.store.ledger import Checkpoint, Damaged, Read, Receipt
from dpca.system.blas import blas_threads, with_one_thread
from dpca.system.machine import bound_allocator, release_memory

LOOK_SECONDS = 5.0
"""How often to check on pending tasks, besides when one finishes."""

P = TypeVar("P")
T = TypeVar("T")


class Future(Protocol):
    """The common interface of the futures of a thread pool and of Dask."""

    def done(self) -> bool: ...
    def result(self, timeout: float | None = None) -> Any: ...
    def exception(self) -> BaseException | None: ...
    def add_done_callback(self, function: Callable[[Any], Any], /) -> Any: ...
    def cancel(self) -> Any: ...


@dataclass(frozen=True)
class Session:
    """The interface to an executor while a stage runs."""

    submit: Callable[..., Future]
    """Start `function(*arguments, report)`."""
    share: Callable[[Any], Any]
    """Turn a value into an argument for many tasks that is sent to each worker only once."""
    waits: Callable[[], str] = lambda: ""
    """Why no task can go on at the moment, in a sentence; empty if some can."""
    stuck: Callable[[Sequence[Any]], list[int]] = lambda _: []
    """Which of the futures have to be submitted again, since those who have them do not begin them."""
    grown: Callable[[int], int] = lambda window: window
    """The window, from the planned one, for the workers that there are now."""
    explain: Callable[[BaseException], BaseException] = lambda error: error
    """The error to raise in place of one that a task, or what runs it, has raised."""


class TaskExecutor(ABC):
    """Base of the executors that tasks are submitted to: threads, and a Dask scheduler."""

    shares_memory: bool
    adds_up = True

    @abstractmethod
    def session(self, progress: Report, n_tasks: int) -> AbstractContextManager[Session]:
        """The session of a stage with at most `n_tasks` tasks at a time; on exit, tasks that still run are stopped."""

    def run(self, stage: Stage[T, P], progress: Progress, checkpoint: Checkpoint | None = None) -> T:
        """Run of a stage, see `Executor.run`."""
        n_added, total = checkpoint.begin(stage.empty) if checkpoint else (0, stage.empty)
        # If tasks write arrays, these are checked for the parts in the sum, too.
        first = 0 if stage.work.writes else n_added
        watch = Watch(stage.work.read_seconds)

        def report(n_bytes: int) -> None:
            watch.rewind()
            progress.advance(n_bytes)

        kind = _Tasks if stage.together is None or checkpoint is None or self.shares_memory else TasksAddedUp
        with ExitStack() as stack:
            marks: tuple[Mark, ...] = ()
            if not self.shares_memory:
                places = checkpoint.directory if checkpoint else None, stage.work.place
                marks = stack.enter_context(marked(*places))
            session = stack.enter_context(self.session(report, stage.concurrency.n_tasks))
            stack.enter_context(blas_threads(1))  # for what this process adds up
            tasks = kind(stage, checkpoint, n_added, session, progress, watch, self.shares_memory, marks)
            return fold(
                tasks,
                range(first, stage.work.n_parts),
                total,
                lambda: session.grown(stage.concurrency.window),
                watch,
            )


@dataclass(frozen=True)
class TaskPart:
    """One part of a stage, as it is sent to a task."""

    task: Callable[..., Any]
    work: Work
    """The work restricted to the part."""
    number_in_work: int
    number: int
    """Its number in the stage."""
    checkpoint: Checkpoint | None
    added: bool
    """Whether its result is in the sum already, so that only the arrays that it writes may be missing."""
    hands_over: bool = False
    """Whether the receipt holds the result, too: where the task shares memory with the process that adds up."""
    marks: tuple[Mark, ...] = ()
    """Files to be seen where the part writes, or other parts do."""

    def found_or_computed(self, shared: Sequence[Any], report: Report) -> Any:
        """The receipt of a part: of an earlier run or a dead worker if the checkpoint has it, else computed now."""
        for mark in self.marks:
            mark.check()
        damage = None
        if self.checkpoint and (self.added or self.checkpoint.has(self.number)):
            damage = self.work.damage(self.number_in_work)
            report(0)  # checking what was written is not a silence of the storage
            if damage is None:
                return Receipt(self.number)
        result = self.computed(shared, report)
        if self.checkpoint is None:
            return result
        return Receipt(self.number, damage, result if self.hands_over and not self.added else None)

    def computed(self, shared: Sequence[Any], report: Report) -> Any:
        """The result of the part, which is also written to the checkpoint."""
        bound_allocator()
        release_memory()  # which the part before has left over
        before = self._reads() if self.checkpoint else []
        result = with_one_thread(lambda: self.task(self.work, *shared, self.number_in_work, report))
        if self.checkpoint is None:
            return result
        after = self._reads()
        for was, now in zip(before, after, strict=True):
            if was != now:
                region = describe(tuple(slice(*piece) for piece in now.region))
                raise changed(now.source, f"region {region}")
        if not self.added:
            self.checkpoint.keep(self.number, result, after)
        return result

    def _reads(self) -> list[Read]:
        """The regions that the part reads, in their present states."""
        regions = self.work.inputs(self.number_in_work)
        return [read for source, region in regions if (read := Read.of(source, region)) is not None]


def _run_part(part: TaskPart, keys: list[Any], blocks: list[Any], shared: list[Any], report: Report) -> Any:
    """A task. Futures of blocks and shared values are arguments of their own, so that Dask replaces them by values."""
    if keys:
        part = replace(part, work=part.work.with_blocks(dict(zip(keys, blocks, strict=True))))
    return part.found_or_computed([_aligned(value) for value in shared], report)


def _aligned(value: Any) -> Any:
    """An array as NumPy would allocate it: one that came over the network may begin at any byte, and then NumPy copies it before BLAS sees
    it, in another order, which gives other last bits."""
    return value.copy() if isinstance(value, np.ndarray) and not value.flags.aligned else value


class Calls(ABC, Generic[T]):
    """Numbered calls, with the way to add up their results."""

    @abstractmethod
    def submit(self, number: int) -> Future: ...
    @abstractmethod
    def add(self, total: T, found: Any) -> T: ...

    def explain(self, number: int, error: BaseException, beside: Sequence[int]) -> BaseException:
        """The error to raise when a call fails, while calls `beside` it have not finished either."""
        return error

    def stalled(self, number: int) -> BaseException:
        """The error to raise when nothing happens for too long."""
        return TimeoutError(number)

    def look(self) -> None:
        """Called now and then while results are awaited."""

    def stuck(self, futures: Sequence[Future]) -> list[int]:
        """Which of the futures have to be submitted again."""
        return []


class _Tasks(Calls[T]):
    """The tasks of a stage."""

    def __init__(
        self,
        stage: Stage[T, Any],
        checkpoint: Checkpoint | None,
        n_added: int,
        session: Session,
        progress: Progress,
        watch: Watch,
        shares_memory: bool,
        marks: tuple[Mark, ...],
    ) -> None:
        self._stage, self._checkpoint, self._n_added = stage, checkpoint, n_added
        self._session, self._progress, self._watch, self._shares_memory = session, progress, watch, shares_memory
        self._shared = [session.share(value) for value in stage.shared]
        self._sum, self._marks = Sum(stage), marks
        self._waiting = False

    def submit(self, number: int) -> Future:
        work, number_in_work = self._stage.work.part(number)
        added = self._checkpoint is not None and number < self._n_added
        part = TaskPart(
            self._stage.task, work, number_in_work, number, self._checkpoint, added, self._shares_memory, self._marks
        )
        blocks = work.blocks
        return self._session.submit(_run_part, part, list(blocks), list(blocks.values()), self._shared)

    def add(self, total: T, found: Any) -> T:
        if self._checkpoint is None:
            self._n_added += 1
            return self._merged(total, self._n_added - 1, found)
        number = found.number
        if found.damage:
            self._progress.say(f"{found.damage}: it is computed again")
        if number < self._n_added:
            return total
        return self._merged(total, number, self.loaded(number) if found.found is None else found.found)

    def loaded(self, number: int) -> Any:
        """A part that is in the checkpoint, or was, and is computed again."""
        assert self._checkpoint is not None
        try:
            return self._checkpoint.load(number, self._stage.types)
        except Damaged as damage:
            self._checkpoint.lost(damage, number)
            self.submit(number).result()
            return self._checkpoint.load(number, self._stage.types)

    def _merged(self, total: T, number: int, partial: Any) -> T:
        total = self._sum.add(total, number, partial)
        if self._checkpoint is not None:
            self._checkpoint.added(number, total, *self._sum.settled(number), self._stage.concurrency.window)
        self._tell(number + 1, total)
        return total

    def _tell(self, count: int, total: T) -> None:
        """Say how far the sum is, and now and then what it comes to."""
        self._progress.added(count)
        if self._stage.preview is not None and is_due(count, self._stage.work.n_parts):
            self._progress.show(self._stage.preview(total, count))

    def explain(self, number: int, error: BaseException, beside: Sequence[int]) -> BaseException:
        if type(error).__name__ != "KilledWorker":  # a class of distributed, which may not be imported
            return self._session.explain(error)
        deaths = getattr(error, "allowed_failures", 3) + 1
        # Dask counts a death for every task that the worker had, so the one that it gives up need not be the cause.
        others = "; ".join(
            f"span {other}, region {region}" for other in beside if (region := _region(self._stage.work, other))
        )
        cause = f"; what those workers also had, and may be the cause: {others}" if others else ""
        return WorkerDied(
            f"{_named(self._stage.work, number)} was given up: every worker that took it died, {deaths} times over"
            f"{cause} ({error})",
            "Look into the workers' logs: memory that ran out, a chunk that kills its reader, or jobs that were "
            "cancelled or preempted. What other spans found is kept.",
        )

    def stalled(self, number: int) -> BaseException:
        return StorageError(
            f"{_named(self._stage.work, number)} hangs: no slab was read within {self._watch.seconds:g} s",
            f"See whether the storage answers; {INPUT.read_seconds} sets how long it may be silent.",
            key="input.read_seconds",
        )

    def look(self) -> None:
        reason = self._session.waits()
        if reason and not self._waiting:
            self._progress.say(f"{reason}; waiting for one")
        self._waiting = bool(reason)
        if reason:
            self._watch.rewind()  # nobody reads, so the storage is not to blame

    def stuck(self, futures: Sequence[Future]) -> list[int]:
        return self._session.stuck(futures)


class Sum(Generic[T]):
    """Adds parts to the sum of a stage, in their order: one by one, or first those that are added up together."""

    def __init__(self, stage: Stage[T, Any]) -> None:
        self._stage, self._beside = stage, list[T]()

    def add(self, total: T, number: int, partial: Any) -> T:
        """The sum with a part more, or the same, where neighbours of the part are still to come."""
        stage, together = self._stage, self._stage.together
        if together is None:
            return stage.merge(total, partial)
        beside = self._beside.pop() if self._beside else together.nothing()
        beside = stage.merge(beside, partial)
        if number == stage.neighbours(number)[-1]:
            return together.join(total, beside)
        self._beside.append(beside)
        return total

    def settled(self, number: int) -> tuple[bool, bool]:
        """Whether a part was the last of those that are added up together, and whether it was the last of all."""
        return number == self._stage.neighbours(number)[-1], number == self._stage.work.n_parts - 1


class TasksAddedUp(_Tasks[T]):
    """The tasks of a stage, and tasks that add up what they leave in the checkpoint, so that this process adds a sum for many parts."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._adding = deque[tuple[range, Future | None]]()

    def add(self, total: T, found: Any) -> T:
        if found.damage:
            self._progress.say(f"{found.damage}: it is computed again")
        if found.number < self._n_added:
            return total
        self._progress.added(found.number + 1)
        numbers, last = self._stage.neighbours(found.number), found.number == self._stage.work.n_parts - 1
        if found.number == numbers[-1]:
            self._adding.append((numbers, self._submit_sum(numbers)))
        while self._adding and (last or self._adding[0][1] is None or self._adding[0][1].done()):
            total = self.joined(total, *self._adding.popleft())
        return total

    def _submit_sum(self, numbers: range) -> Future | None:
        """Have parts added up; None where they were before."""
        checkpoint, stage = self._checkpoint, self._stage
        assert checkpoint is not None
        assert stage.together is not None
        if checkpoint.has_sum_of(numbers):
            return None
        return self._session.submit(_add_up, checkpoint, numbers, stage.together, stage.merge)

    def _awaited(self, adding: Future, numbers: range) -> bool:
        while True:
            try:
                return bool(adding.result(timeout=LOOK_SECONDS))
            except TimeoutError:
                self._watch.rewind()  # the storage is not to blame
                self.look()
                if self.stuck([adding]) and (again := self._submit_sum(numbers)) is not None:
                    adding.cancel()
                    adding = again
            except Exception as error:
                raise self.explain(numbers[0], error, numbers[1:]) from error

    def joined(self, total: T, numbers: range, adding: Future | None) -> T:
        """The sum with what a task has added up; where that is damaged, part by part."""
        checkpoint, stage = self._checkpoint, self._stage
        assert checkpoint is not None
        assert stage.together is not None
        whole = adding is None or self._awaited(adding, numbers)
        try:
            beside = checkpoint.load_sum_of(numbers, stage.empty) if whole else None
        except Damaged as damage:
            checkpoint.say(f"{damage}: its parts are added up again")
            beside = None
        if beside is None:
            for number in numbers:
                total = self._merged(total, number, self.loaded(number))
            return total
        total = stage.together.join(total, beside)
        for number in numbers:
            checkpoint.added(number, total, *self._sum.settled(number), stage.concurrency.window)
        self._tell(numbers[-1] + 1, total)
        return total


def _add_up(
    checkpoint: Checkpoint, numbers: range, together: Together[T], merge: Callable[[T, Any], T], report: Report
) -> bool:
    """A task that adds up parts which are in the checkpoint, and keeps the sum there; False where one is damaged."""
    bound_allocator()
    release_memory()

    def added() -> T | None:
        beside = together.nothing()
        types = together.like(beside)
        for number in numbers:
            try:
                beside = merge(beside, checkpoint.load(number, types))
            except Damaged:
                return None
            report(0)
        return beside

    beside = with_one_thread(added)
    if beside is None:
        return False
    checkpoint.keep_sum_of(numbers, beside)
    return True


def _region(work: Work, number: int) -> str:
    """The first region that a part of a stage reads, for messages; empty if it reads none."""
    inputs = work.inputs(number)
    return describe(inputs[0][1]) if inputs else ""


def _named(work: Work, number: int) -> str:
    """The name of a part of a stage, for messages."""
    region = _region(work, number)
    return f"{work.inputs(number)[0][0].layout.name}: span {number}, region {region}," if region else f"span {number}"


class Watch:
    """A timer of the seconds since something last happened."""

    def __init__(self, seconds: float = math.inf) -> None:
        self.seconds = seconds
        self.rewind()

    def rewind(self) -> None:
        self._began = time.monotonic()

    @property
    def left(self) -> float | None:
        """Seconds until the limit is reached; None if there is no limit."""
        return None if self.seconds == math.inf else max(0.0, self.seconds - (time.monotonic() - self._began))


def fold(
    calls: Calls[T],
    numbers: Iterable[int],
    total: T,
    window: Callable[[], int],
    watch: Watch | None = None,
    look_seconds: float = LOOK_SECONDS,
) -> T:
    """Submit calls in order, at most `window()` ahead of the sum, and add up their results in order.

    A failed call raises its error at once, even while earlier calls still run. So does a time without any result that
    is longer than the watch allows.

    Parameters
    ----------
    calls, numbers : the calls, and the numbers of those to submit
    total : the sum to add to
    window : how many calls may be submitted and not added up yet, now
    watch : the longest time without a result; none if None
    look_seconds : how often to check on all pending calls; on one that finishes at once
    """
    watch, to_come, looked = watch or Watch(), iter(numbers), Watch(look_seconds)
    pending: dict[int, Future] = {}  # in the order of their numbers
    done: SimpleQueue[int] = SimpleQueue()  # one entry for each finished call

    def submit(number: int) -> None:
        pending[number] = future = calls.submit(number)
        future.add_done_callback(lambda _: done.put(number))

    def fill() -> None:
        for number in islice(to_come, max(0, max(1, window()) - len(pending))):
            submit(number)

    def add_oldest(total: T) -> T:
        oldest = next(iter(pending))
        while True:
            while not pending[oldest].done():
                seconds = look_seconds if watch.left is None else min(watch.left, look_seconds)
                if not heard(seconds) or looked.left == 0.0:
                    look()
            heard(0.0)
            try:
                results = [pending[oldest].result(timeout=look_seconds)]
            except TimeoutError:
                # On a cluster a finished result is lost if the worker that holds it dies: it is computed again.
                look()
                continue
            except Exception:
                raise_failures()  # it was lost, and failed when it was computed again
                raise
            watch.rewind()
            del pending[oldest]
            # No name keeps the added result in memory while the next one is awaited.
            return calls.add(total, results.pop())

    def heard(seconds: float) -> bool:
        """Whether a call has finished within so many seconds; only calls that have are looked at, since a thousand may be under way."""
        found = False
        with suppress(Empty):
            while True:
                number = done.get_nowait() if found or not seconds else done.get(timeout=seconds)
                found = True
                future = pending.get(number)
                if future is not None and future.done() and future.exception() is not None:
                    raise_failures()
        return found

    def look() -> None:
        looked.rewind()
        raise_failures()
        calls.look()
        numbers = list(pending)
        for position in calls.stuck(list(pending.values())):
            before = pending[numbers[position]]
            submit(numbers[position])
            before.cancel()
        fill()
        if watch.left == 0.0:
            raise calls.stalled(numbers[0])

    def raise_failures() -> None:
        for number, future in pending.items():
            error = future.exception() if future.done() else None
            if error is not None:
                beside = [
                    other
                    for other, its in pending.items()
                    if other != number and not (its.done() and its.exception() is None)
                ]
                raise calls.explain(number, error, beside)

    fill()
    while pending:
        total = add_oldest(total)
        fill()
    return total
