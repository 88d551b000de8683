"""Running the stages of a decomposition, and recording what they cost."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpca.execution.stage import Runner, Stage, Traffic
from dpca.numerics.accumulators import gram
from dpca.numerics.accumulators.factors import Factors
from dpca.numerics.accumulators.tallies import Counts
from dpca.system.blas import blas_threads
from dpca.system.signals import THREADS

T = TypeVar("T")


@dataclass(frozen=True)
class TaskSeconds:
    """Total time of the tasks of a stage, including those before a run was resumed."""

    reading: float
    """From the request for a slab until its values are decoded in memory."""
    computing: float
    """The rest: preprocessing, products, writing."""
    tasks: int
    """Number of tasks at the same time."""


class Stages:
    """The stages of one decomposition: each is run here, and what it costs is noted."""

    def __init__(self, runner: Runner) -> None:
        self.runner, self.progress, self.ledger = runner, runner.progress, runner.ledger
        self.seconds: dict[str, float] = {}
        self.traffic: dict[str, Traffic] = {}
        self.work: dict[str, TaskSeconds] = {}
        self.choices: list[str] = []
        """Why solvers were used or rejected, in sentences."""
        self.passes = self.bytes_decoded = self.retries = 0

    @property
    def costs(self) -> dict[str, Any]:
        """Choices, and seconds, traffic and work of each stage, by these names."""
        return {
            "choices": tuple(self.choices),
            "seconds": self.seconds,
            "traffic": self.traffic,
            "work": self.work,
        }

    def choose(self, sentence: str) -> None:
        """Record why a solver was used or rejected, and report it."""
        self.choices.append(sentence)
        self.progress.say(sentence)

    def run(self, stage: Stage[T, Any]) -> T:
        """Run a stage."""
        with self.timed(stage.name), self._watched(stage.name):
            return self.runner.run(stage)

    def read(self, stage: Stage[T, Any], counts_of: Callable[[T], Counts], passes: int = 1) -> T:
        """Run a stage that reads data.

        Parameters
        ----------
        counts_of : gives the counts of its sum
        passes : 1 if it reads all of the data, or the last that is left of them; 0 for another part
        """
        self.passes += passes
        result = self.run(stage)
        counts = counts_of(result)
        n_tasks = stage.concurrency.n_tasks
        self.work[stage.name] = TaskSeconds(counts.read_seconds, counts.compute_seconds, n_tasks)
        self.bytes_decoded += counts.bytes_read
        self.retries += counts.retries
        return result

    @property
    def reading(self) -> NDArray[np.float64]:
        """Counts of reads so far: passes, bytes and reads that were tried again, (3,)."""
        return np.array([self.passes, self.bytes_decoded, self.retries], np.float64)

    def count(self, reading: NDArray[np.float64]) -> None:
        """Add what an earlier process of the same run has counted, and this one does not read again."""
        passes, n_bytes, retries = map(int, reading)
        self.passes, self.bytes_decoded, self.retries = (
            self.passes + passes,
            self.bytes_decoded + n_bytes,
            self.retries + retries,
        )

    def eigensolve(self, name: str, finish: Callable[[], Factors], m: int, n_threads: int) -> Factors:
        """A small decomposition in memory, m x m, with a number of BLAS threads; or its result from the ledger."""
        gram.load(m)
        return self.in_memory("eigensolve", name, finish, Factors.nothing(), n_threads)

    def in_memory(self, what: str, name: str, compute: Callable[[], T], like: T, n_threads: int) -> T:
        """Value that is computed in memory from the sum of a stage, with a number of BLAS threads; or its result from the ledger.

        Parameters
        ----------
        what : the name of the computation
        name : of the stage
        like : a value of the types of the result
        """

        def computed() -> T:
            stage = self.progress.stage(what)
            # In a thread, so that signals are handled while LAPACK runs.
            pool = ThreadPoolExecutor(1, THREADS)
            with self.timed(what), stage, blas_threads(n_threads):
                computing = pool.submit(compute)
                pool.shutdown(wait=False)
                return computing.result()

        if self.ledger is None:
            return computed()
        return self.ledger.once(f"{what} of {name}", computed, like)

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Add the time of what is done to the seconds of a name."""
        began = time.perf_counter()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - began

    @contextmanager
    def _watched(self, name: str) -> Iterator[None]:
        """Count what a stage sends over the network of a cluster."""
        before = self.runner.executor.traffic
        yield
        after = self.runner.executor.traffic
        if before is not None and after is not None:
            self.traffic[name] = self.traffic.get(name, Traffic()) + (after - before)
