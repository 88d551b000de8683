"""A Dask scheduler and a client beside a thousand workers, which sleep in place of reading: what a span costs the two.

    python -m workflows.benchmarks.workers --workers 1000 --spans 4096

Workers live in a few processes of this machine, each with a thread for one task. A span reports its slabs as one that reads does, and leaves
an n x n sum, made from a seed, in a ledger on this machine's disk. With `--late`, the first span takes so many seconds, and all others wait
behind it. The processor time of the client and of the scheduler is theirs alone, whatever the workers take beside them.
"""

import argparse
import asyncio
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
import psutil
from distributed import Client, Worker

from dpca.execution.executors import Distributed
from dpca.execution.progress import Progress
from dpca.execution.stage import Runner, Stage, Together, Work
from dpca.numerics.accumulators.gram import GramAccumulator
from dpca.numerics.accumulators.tallies import FeatureTally
from dpca.numerics.sketch import COLUMNS
from dpca.planning.runplan import MANY, TOGETHER, Concurrency
from dpca.store.ledger import Ledger
from workflows.watch import private_bytes

PROCESSES = 4
"""Processes that workers live in."""
SLAB_BYTES = 2**26
QUIET = {
    "DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED": "False",
    "DASK_DISTRIBUTED__ADMIN__SYSTEM_MONITOR__INTERVAL": "60s",
    "DASK_DISTRIBUTED__ADMIN__TICK__INTERVAL": "5s",
}
"""Settings of workers that look at themselves seldom: a thousand that share two cores would do nothing else."""
LARGE = 4000
"""Samples whose parts are written to a ledger and read."""
KEPT = 2**62
"""Data so large that the ledger keeps all parts."""


@dataclass
class Sum:
    """An n x n sum."""

    matrix: np.ndarray
    bytes_read: int = 0

    @classmethod
    def nothing(cls, n: int) -> Self:
        """Zeros."""
        return cls(np.zeros((n, n)))

    def merge(self, other: "Sum") -> Self:
        """Add another one, in place."""
        self.matrix += other.matrix
        self.bytes_read += other.bytes_read
        return self


@dataclass(frozen=True)
class Asleep(Work):
    """Spans that sleep for as long as reading would take."""

    n: int
    n_spans: int
    slabs: int
    seconds: float
    """Of a span."""
    late: float = 0.0
    """Of the first one, besides."""

    @property
    def n_parts(self) -> int:
        return self.n_spans

    def part(self, number: int, /) -> tuple[Work, int]:
        return self, number


def span(work: Asleep, number: int, report: Any) -> Sum:
    """A task: slab by slab."""
    for _ in range(work.slabs):
        time.sleep(work.seconds / work.slabs)
        report(SLAB_BYTES)
    time.sleep(0 if number else work.late)
    return Sum(np.random.default_rng(number).standard_normal((work.n, work.n)), work.slabs * SLAB_BYTES)


async def live(scheduler: str, count: int, place: str) -> None:
    """Workers in this process, for as long as their scheduler is there."""
    workers = [
        Worker(scheduler, nthreads=1, local_directory=place, memory_limit=0, dashboard=False) for _ in range(count)
    ]
    for few in range(0, count, 25):
        await asyncio.gather(*workers[few : few + 25])
    await asyncio.gather(*(worker.finished() for worker in workers))


@contextmanager
def cluster(n_workers: int) -> Iterator[tuple[Client, psutil.Process]]:
    """A client of a scheduler with so many workers, and the scheduler's process."""
    with tempfile.TemporaryDirectory() as place:
        file = str(Path(place) / "scheduler.json")
        here = ["--host", "127.0.0.1", "--port", "0", "--dashboard-address", "127.0.0.1:0", "--scheduler-file", file]
        running = [
            subprocess.Popen([sys.executable, "-m", "distributed.cli.dask_scheduler", *here], stderr=subprocess.DEVNULL)
        ]
        try:
            while not Path(file).exists():
                time.sleep(0.1)
            with Client(scheduler_file=file) as client:
                counts = [len(range(number, n_workers, PROCESSES)) for number in range(PROCESSES)]
                living = [sys.executable, "-m", "workflows.benchmarks.workers", "--scheduler", client.scheduler.address]
                running += [
                    subprocess.Popen(
                        [*living, "--workers", str(count), "--place", place],
                        stderr=subprocess.DEVNULL,
                        env={**os.environ, **QUIET},
                    )
                    for count in counts
                    if count
                ]
                client.wait_for_workers(n_workers, timeout=600)
                yield client, psutil.Process(running[0].pid)
        finally:
            for process in running:
                process.kill()
                process.wait()


def cpu(process: psutil.Process) -> float:
    """Seconds of a processor so far."""
    return float(sum(process.cpu_times()[:2]))


def travelled() -> int:
    """Bytes through the network of this machine alone so far: all of them come from the scheduler, or go there."""
    return int(psutil.net_io_counters(pernic=True)["lo"].bytes_sent)


def measure(work: Asleep, n_workers: int, window: int | None) -> list[str]:
    """A pass, and what it took, as the cells of a line."""
    with cluster(n_workers) as (client, scheduler), tempfile.TemporaryDirectory() as place:
        me, executor = psutil.Process(), Distributed(client)
        nothing = partial(Sum.nothing, work.n)
        together = (
            Together(TOGETHER, nothing, Sum.merge, lambda beside: beside) if work.n_spans >= MANY * TOGETHER else None
        )
        concurrency = Concurrency(n_workers, window or min(2 * n_workers, work.n_spans))
        stage = Stage("asleep", span, work, nothing(), Sum.merge, concurrency, together=together)
        runner = Runner(executor, Progress(), Ledger(Path(place), "a run", KEPT, print))
        before = cpu(me), cpu(scheduler), travelled(), private_bytes(scheduler)
        began = time.perf_counter()
        found = runner.run(stage)
        seconds = time.perf_counter() - began
        after = cpu(me), cpu(scheduler), travelled(), private_bytes(scheduler)
        assert found.bytes_read == work.n_spans * work.slabs * SLAB_BYTES
        spent = [late - early for early, late in zip(before, after, strict=True)]
        least = max(work.seconds * -(-work.n_spans // n_workers), work.seconds + work.late)
        return [
            f"{n_workers:,}",
            f"{concurrency.window:,}",
            f"{work.n_spans:,}",
            f"{seconds:.1f} s of {least:.1f}",
            f"{1e3 * spent[0] / work.n_spans:.1f} ms",
            f"{1e3 * spent[1] / work.n_spans:.1f} ms",
            f"{spent[2] / work.n_spans / 1e3:.0f} kB",
            f"{after[3] / 2**20:.0f} MiB",
            f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10:.0f} MiB",
        ]


def of_ledger(n: int) -> str:
    """What a part of a pass over n samples takes in the ledger, in a sentence."""
    part = GramAccumulator.empty(n, FeatureTally.empty(n, COLUMNS))
    part.matrix += np.arange(n) + np.arange(n)[:, None]
    with tempfile.TemporaryDirectory() as place:
        checkpoint = Ledger(Path(place), "a run", KEPT, print).checkpoint("parts")
        moments = [time.perf_counter()]
        for step in (lambda: checkpoint.keep(0, part), lambda: checkpoint.load(0, part), lambda: part.merge(part)):
            step()
            moments.append(time.perf_counter())
        size = sum(path.stat().st_size for path in Path(checkpoint.directory).iterdir())
    write, read, add = np.diff(moments)
    return f"a part of n = {n:,} is {size / 1e6:.0f} MB, written in {write:.2f} s, read in {read:.2f} s, added in {add:.2f} s"


HEADING = [
    "workers",
    "window",
    "spans",
    "seconds, and at least",
    "client, CPU a span",
    "scheduler, CPU a span",
    "through the scheduler, a span",
    "scheduler's memory",
    "client's peak",
]


def main() -> None:
    """A line for each window."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=1000)
    parser.add_argument("--spans", type=int, default=4096)
    parser.add_argument("--n", type=int, default=100, help="samples")
    parser.add_argument("--slabs", type=int, default=40, help="of a span")
    parser.add_argument("--seconds", type=float, default=20.0, help="of a span")
    parser.add_argument("--late", type=float, default=0.0, help="seconds that the first span takes besides")
    parser.add_argument("--windows", type=int, nargs="+", default=[0], help="0: the planned one")
    parser.add_argument("--scheduler", help=argparse.SUPPRESS)
    parser.add_argument("--place", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.scheduler:
        asyncio.run(live(given.scheduler, given.workers, given.place))
        return
    print(of_ledger(LARGE), end="\n\n", flush=True)
    print("| " + " | ".join(HEADING) + " |")
    print("| " + " | ".join(["---"] * len(HEADING)) + " |")
    for window in given.windows:
        work = Asleep(given.n, given.spans, given.slabs, given.seconds, given.late)
        print("| " + " | ".join(measure(work, given.workers, window or None)) + " |", flush=True)


if __name__ == "__main__":
    main()
