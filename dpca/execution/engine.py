"""Runs the spans of a pass and adds up what they return.

How Dask carries a pass, and why
--------------------------------
A pass is S tasks, one a span, however many chunks the data have. A task opens the source and streams its
slabs through buffers of its own; the blocks themselves are no tasks. Two other ways are natural in Dask,
and wrong at scale:

- A graph that loads each block in one task and multiplies it in another lets the scheduler put the two on
  different workers, so in the end the whole dataset crosses the network.
- A tree with an n x n partial for every chunk moves n^2 values a chunk. With n = 2,000 and chunks of
  1,000 features a partial is four times the chunk (float64 against float32).

A span sums its n x n partial in place and only that leaves the task, so what travels is S n^2 values,
independent of the number of features: spans grow with them instead (`dpca.slabs`).

Spans are submitted in order, at most `window` ahead of the oldest that is not added up yet, and partials
are added to the total in the order of spans. So the number of partials that exist at any time is known
beforehand (a graph handed over whole may hold as many as it has spans), and the bits of the sum are the
same whatever finished first: floating-point addition is not associative.

On this machine tasks run in a pool of threads, on a cluster through a Dask client (`dpca.execution.executors`). One BLAS thread a task: two tasks with one thread each beat one with two
by 1.4-1.6 (measured), and the number of BLAS threads changes the bits.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, Protocol, TypeVar

from dpca.errors import DataError, StorageError, WorkerDied
from dpca.execution.executors import Executor, Future
from dpca.execution.progress import Progress, Report
from dpca.numerics.preview import Preview, is_due
from dpca.sources.base import Region, Source, describe
from dpca.store.ledger import Damaged, Ledger, Read, Receipt, Stage
from dpca.system.machine import bound_allocator, release_memory

LOOK_SECONDS = 5.0
"""How often to look at what is waited for, besides when something is done."""

P = TypeVar("P")
T = TypeVar("T")


class Work(Protocol):
    """What all tasks of a pass share, and the part of it that one of them needs."""

    @property
    def source(self) -> Any: ...
    @property
    def n_parts(self) -> int: ...
    @property
    def writes(self) -> tuple[str, ...]:
        """What tasks write besides what they return."""
        ...

    def part(self, number: int, /) -> Any: ...
    def inputs(self, number: int, /) -> tuple[tuple[Source, Region], ...]:
        """What a part reads of the data."""
        ...

    def damage(self, number: int, /) -> str | None:
        """What is wrong with what a part has written before; None where it is whole."""
        ...


class AtOnce(Protocol):
    """How much of a pass is under way at a time, as a plan says."""

    @property
    def n_tasks(self) -> int: ...
    @property
    def window(self) -> int: ...


def run_stage(
    name: str,
    n_bytes: int,
    task: Callable[..., P],
    work: Work,
    *shared: Any,
    total: T,
    merge: Callable[[T, P], T],
    executor: Executor,
    progress: Progress,
    at_once: AtOnce,
    ledger: Ledger | None = None,
    like: Any = None,
    preview: Callable[[T, int], Preview] | None = None,
) -> T:
    """`run_pass` as a stage with a name, from what a ledger holds of it.

    Parameters
    ----------
    name, n_bytes : of the stage, and what it reads in all
    preview : what the sum over so many parts would come to; asked for now and then
    at_once : a plan, or one of its attempts
    ledger : where finished parts are kept and found again
    task, work, shared, total, merge, executor, progress, like : as for `run_pass`
    """
    stage, n_parts = ledger.stage(name) if ledger else None, work.n_parts
    found = stage.n_found(n_parts) if stage else 0
    if found:
        progress.say(f"{name}: {found} of {n_parts} spans were finished before")

    def added(count: int, total: T) -> None:
        progress.added(count)
        if preview is not None and is_due(count, n_parts):
            progress.show(preview(total, count))

    with progress.stage(name, n_bytes * (n_parts - found) // n_parts, n_parts, found):
        return run_pass(
            task,
            work,
            *shared,
            total=total,
            merge=merge,
            executor=executor,
            progress=progress.advance,
            n_tasks=at_once.n_tasks,
            window=at_once.window,
            stage=stage,
            like=like,
            say=progress.say,
            added=added,
        )


def run_pass(
    task: Callable[..., P],
    work: Work,
    *shared: Any,
    total: T,
    merge: Callable[[T, P], T],
    executor: Executor,
    progress: Report,
    n_tasks: int,
    window: int,
    stage: Stage | None = None,
    like: Any = None,
    say: Callable[[str], None] = lambda _: None,
    added: Callable[[int, T], None] = lambda *_: None,
) -> T:
    """Run a task for each part of a pass, in general a span, and add up what they return, in their order.

    With a stage of a ledger, a task writes what it found there and returns a receipt; what is there already is not
    computed again, unless what the task wrote besides is damaged.

    Parameters
    ----------
    task : called as `task(work.part(number), *shared, number, report)`
    work : source, plan and rules
    shared : what all tasks get besides, such as alpha
    total : what partials are added to, empty
    merge : `merge(total, partial)` returns the sum; it may change the total in place
    progress : called with the bytes of each slab that is done, from any thread
    n_tasks : tasks at the same time
    window : parts submitted and not yet added up, at least `n_tasks`
    stage : where finished parts are kept, if they are
    like : of the types of what tasks return; None if those are the total's
    say : told when no worker is there
    added : told how many parts are in the sum, and the sum, whenever one is added
    """
    n_parts = work.n_parts
    like = total if like is None else like
    if stage is not None and (by_parts := getattr(executor, "by_parts", None)):
        found: T = by_parts(task, work, shared, total, merge, stage, like, progress, window)
        return found
    begin, total = stage.begin(total) if stage else (0, total)
    first = 0 if work.writes else begin  # what was added up before is looked at, if it wrote anything
    watch = _Watch(work.source.layout.read_seconds if work.source is not None else math.inf)

    def advance(n_bytes: int) -> None:
        watch.rewind()
        progress(n_bytes)

    n_added = 0
    with executor.session(advance, n_tasks) as session:
        arguments = [session.share(value) for value in shared]

        def submit(number: int) -> Future:
            part = work.part(number)
            futures = getattr(part, "futures", {})
            return session.submit(
                _call,
                task,
                part,
                list(futures),
                list(futures.values()),
                arguments,
                number,
                stage,
                number < begin,
                executor.shares_memory,
            )

        def add(total: T, found: Any) -> T:
            nonlocal n_added
            if stage is None:
                total, n_added = merge(total, found), n_added + 1
                added(n_added, total)
                return total
            number = found.number
            if found.damage:
                stage.say(f"{found.damage}: it is computed again")
            if number < begin:
                return total
            try:
                partial = stage.load(number, like) if found.found is None else found.found
            except Damaged as damage:
                stage.lost(damage, number)
                submit(number).result()
                partial = stage.load(number, like)
            total = merge(total, partial)
            stage.added(number, total, number == n_parts - 1, window)
            added(number + 1, total)
            return total

        def explain(number: int, error: BaseException) -> BaseException:
            if type(error).__name__ != "KilledWorker":  # of distributed, which may not be there
                return error
            deaths = getattr(error, "allowed_failures", 3) + 1
            return WorkerDied(
                f"{_named(work, number)} was given up: every worker that took it died, {deaths} times over ({error})",
                "Look into the workers' logs: memory that ran out, a chunk that kills its reader, or jobs that were "
                "cancelled or preempted. What other spans found is kept.",
            )

        def stalled(number: int) -> BaseException:
            return StorageError(
                f"{_named(work, number)} hangs: no slab was read within {watch.seconds:g} s",
                "See whether the storage answers; input.read_seconds sets how long it may be silent.",
                key="input.read_seconds",
            )

        waiting = False

        def look() -> None:
            nonlocal waiting
            if not session.waits():
                waiting = False
                return
            if not waiting:
                say("no worker is there; waiting for one")
            waiting = True
            watch.rewind()  # nobody reads, so storage is not what is silent

        return fold(submit, range(first, n_parts), total, add, window, explain, watch, stalled, look)


def _named(work: Any, number: int) -> str:
    """A part of a pass, in words."""
    region = f", region {describe(work.region(number))}," if hasattr(work, "region") else ""
    return (f"{work.source.layout.name}: " if work.source is not None else "") + f"span {number}{region}"


class _Watch:
    """How long nothing has happened."""

    def __init__(self, seconds: float = math.inf) -> None:
        self.seconds = seconds
        self.rewind()

    def rewind(self) -> None:
        self._began = time.monotonic()

    @property
    def left(self) -> float | None:
        """Seconds until it has been too long; None for ever."""
        return None if self.seconds == math.inf else max(0.0, self.seconds - (time.monotonic() - self._began))


def fold(
    submit: Callable[[int], Future],
    numbers: Iterable[int],
    total: T,
    merge: Callable[[T, Any], T],
    window: int,
    explain: Callable[[int, BaseException], BaseException] = lambda _, error: error,
    watch: _Watch | None = None,
    stalled: Callable[[int], BaseException] = lambda number: TimeoutError(number),
    before_look: Callable[[], None] = lambda: None,
) -> T:
    """Submit numbers in order, at most `window` ahead of the sum, and add up their results in order.

    One that fails ends it at once, whatever those before it are doing; `explain` says with what error.
    So does none that goes on, when nothing has happened for too long by the `watch`; `before_look` may rewind it.
    """
    watch = watch or _Watch()
    pending: deque[tuple[int, Future]] = deque()
    changed: SimpleQueue[None] = SimpleQueue()  # one entry for each that is done

    def settle(total: T) -> T:
        while True:
            while not pending[0][1].done():
                with suppress(Empty):
                    changed.get(timeout=LOOK_SECONDS if watch.left is None else min(watch.left, LOOK_SECONDS))
                look()
            check()
            try:
                found = [pending[0][1].result(timeout=LOOK_SECONDS)]
            except TimeoutError:
                # On a cluster what was done is not any more when the worker that has it dies: it is done again.
                look()
                continue
            watch.rewind()
            pending.popleft()
            # No name holds on to what was added up while the next is waited for.
            return merge(total, found.pop())

    def look() -> None:
        check()
        before_look()
        if watch.left == 0.0:
            raise stalled(pending[0][0])

    def check() -> None:
        for number, future in pending:
            error = future.exception() if future.done() else None
            if error is not None:
                raise explain(number, error)

    for number in numbers:
        if len(pending) == window:
            total = settle(total)
        pending.append((number, submit(number)))
        pending[-1][1].add_done_callback(lambda _: changed.put(None))
    while pending:
        total = settle(total)
    return total


def part_of(
    task: Callable[..., P],
    part: Work,
    shared: Sequence[Any],
    number: int,
    stage: Stage,
    added: bool,
    report: Report,
) -> P:
    """One part of a stage, in this process; `added` where what it found counts already, and only what it writes is lacking.

    Raises
    ------
    DataError
        When what it reads changed meanwhile.
    """
    bound_allocator()
    before = _reads(part, number)
    found = task(part, *shared, number, report)
    after = _reads(part, number)
    for was, now in zip(before, after, strict=True):
        if was != now:
            region = describe(tuple(slice(*piece) for piece in now.region))
            raise changed(now.source, f"region {region}")
    if not added:
        stage.keep(number, found, after)
    return found


def _reads(part: Work, number: int) -> list[Read]:
    """What a part reads, in the state that it is in now."""
    return [read for source, region in part.inputs(number) if (read := Read.of(source, region)) is not None]


def changed(name: str, what: str) -> DataError:
    """Of data that were not the same all the time that they were read."""
    return DataError(
        f"{name}: changed while it was read: {what}",
        "When nobody writes to it any more, restore it and go on (dpca run: with --resume), or start anew with --overwrite.",
    )


def _call(
    task: Callable[..., P],
    work: Any,
    keys: list[Any],
    blocks: list[Any],
    arguments: list[Any],
    number: int,
    stage: Stage | None,
    added: bool,
    shared: bool,
    report: Report,
) -> P | Receipt:
    """A task, or what is in the ledger of it: from a run before, or from a worker that died before its receipt was seen."""
    damage = None
    if stage and (added or stage.has(number)):
        damage = work.damage(number)
        report(0)  # to look at what was written is no silence of the storage
        if damage is None:
            return Receipt(number)
    if keys:
        work = work.supply(dict(zip(keys, blocks, strict=True)))
    bound_allocator()
    release_memory()  # what the span before has left
    if not stage:
        return task(work, *arguments, number, report)
    found = part_of(task, work, arguments, number, stage, added, report)
    return Receipt(number, damage, found if shared and not added else None)
