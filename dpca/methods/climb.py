"""The climb up the ladder of solvers: each of the plan's attempts in turn, until one supports every requested component."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from itertools import zip_longest
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpca.errors import PrecisionError
from dpca.methods.dataset import Dataset
from dpca.methods.first_pass import FirstPass, Summed
from dpca.methods.stages import Stages
from dpca.numerics.ladder import Rung
from dpca.numerics.spectrum import Spectrum
from dpca.planning.job import Job
from dpca.planning.runplan import Attempt, RunPlan
from dpca.store.ledger import Damaged, Ledger
from dpca.store.outputs import Outputs


class RungResult(Protocol):
    """A decomposition that is computed from the sum of a pass."""

    @property
    def attempt(self) -> Attempt: ...
    @property
    def weakest(self) -> Spectrum:
        """The spectrum that decides whether the solver supports what was asked for."""
        ...

    @property
    def unread(self) -> str:
        """The rule for the number of components whose eigenvalues rounding hides; empty for none."""
        ...


D = TypeVar("D", bound=RungResult)


class Completion(Protocol[D]):
    """Steps after a decomposition that supports every component, by the error estimates of the first pass."""

    def write(self, solved: D) -> D:
        """Write the results of the first pass; returns them without the matrix of its sum, which nobody needs any more."""
        ...

    def complete(self, solved: D, suffix: str) -> D:
        """Run the second pass, which may refute the estimates; names of its stages have a suffix where it ran for another solver before."""
        ...


def climb(
    stages: Stages,
    data: Dataset,
    job: Job,
    outputs: Outputs,
    decompose: Callable[[Summed], D],
    completion: Completion[D] | None = None,
) -> D:
    """Run the first pass by each solver in turn until one supports every component.

    Parameters
    ----------
    outputs : where the first pass writes means and scales
    decompose : computes the decomposition in memory, from the sum of a pass
    completion : writes the results, and runs the second pass; None where there is neither
    """
    model, run_plan = job.model, job.run_plan
    stages.choose(model.reason(data.dtype, data.n_samples, data.n_features, len(data.names_of_sums)))
    first = FirstPass(stages, data, model, outputs, run_plan.spans_together)
    present = first.present(run_plan.attempts[0])
    solved: D | None = None
    written = again = False
    for attempt, following in zip_longest(run_plan.attempts, run_plan.attempts[1:]):
        name = attempt.rung.name
        if attempt is not run_plan.attempts[0]:
            stages.progress.expect(2)
        solved = None  # so that its matrix is not held while the next one is made
        try:
            solved = decompose(first.sum(attempt, present, written=written))
        except PrecisionError as error:
            if following is None:
                raise error.saying(f"{data.name}: {error.marked_message}") from error
            stages.choose(f"{name} failed ({error.message}), so {following.rung.name} is tried")
            continue
        written = True
        if following is not None and (solved.unread or not solved.weakest.suffices):
            why = f"rounding hides what {solved.unread} reads" if solved.unread else _lacking(solved.weakest)
            stages.choose(f"{name}: {why}, so {following.rung.name} is tried")
            continue
        if completion is None:
            break
        read_before = stages.reading
        if following is None or not _refuted(stages, attempt.rung):
            solved = completion.write(solved)  # so that no name holds the matrix during the second pass
            solved = completion.complete(solved, f"of {name}" if again else "")
            if following is None or solved.weakest.suffices:
                break
            _refute(stages.ledger, attempt.rung, stages.reading - read_before)
        again = True
        stages.choose(f"{name}: the second pass refuted it, so {following.rung.name} is tried")
    assert solved is not None  # the last attempt returned or raised
    stages.choose(_verdict(solved.attempt.rung, solved.weakest, run_plan))
    return solved


def _refuted(stages: Stages, rung: Rung) -> bool:
    """Whether the second pass of a solver was done before, and its result was not good enough; what it read is counted."""
    if stages.ledger is None or not (checkpoint := stages.ledger.checkpoint(f"{rung.name}, refuted")).has(0):
        return False
    with suppress(Damaged):  # that it was refuted is known all the same
        stages.count(checkpoint.load(0, stages.reading))
    return True


def _refute(ledger: Ledger | None, rung: Rung, reading: NDArray[np.float64]) -> None:
    """Record that the second pass refuted a solver, and what it read, so that a resumed run does not repeat it."""
    if ledger is not None:
        ledger.checkpoint(f"{rung.name}, refuted").keep(0, reading)


def _lacking(spectrum: Spectrum) -> str:
    """The first component that a solver does not support, and by how much, in words."""
    if not spectrum.lacking.any():
        return f"it can tell {spectrum.rank} eigenvalues from 0, where {spectrum.rank + spectrum.hidden} may differ from it"
    index = int(np.argmax(spectrum.lacking))
    ratio = spectrum.singular_values[index] / (spectrum.singular_values[0] or 1.0)
    size = f"a singular value of {ratio:.1e} of the largest" if ratio else "a singular value that can't be told from 0"
    return f"component {index + 1} has {size}, below the {spectrum.supported:.1e} that it supports"


def _verdict(rung: Rung, spectrum: Spectrum, run_plan: RunPlan) -> str:
    """Which solver gave the answer, and what it lacks, in words."""
    if spectrum.suffices:
        return f"{rung.name} supports every component that was asked for"
    if run_plan.too_large:
        return f"{rung.name}: {_lacking(spectrum)}; {run_plan.too_large[0].name} does not fit the memory"
    return f"{rung.name}: {_lacking(spectrum)}"
