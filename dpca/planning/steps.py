"""The stages of a job in order, with what each costs: the plan, the forecast and the progress count the same list."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from dpca.config.model import Model
from dpca.numerics.accumulators.border import Border
from dpca.numerics.ladder import BLOCK_KRYLOV, Rung
from dpca.planning.memory import reads_means, second_pass
from dpca.planning.runplan import RunPlan
from dpca.sources.base import Layout

EXPECTED_PASSES = 5
"""Reads that block Krylov takes for components that differ clearly, that for components included; up to max_passes for others."""

Kind = Literal["copy", "means", "matrix", "product", "again", "eigensolve", "second", "signs"]
READING: frozenset[Kind] = frozenset(["copy", "means", "matrix", "product", "again", "second"])
"""Steps that read the data, or their copy."""


@dataclass(frozen=True)
class PlannedStep:
    """A stage of a job for one input."""

    name: str
    kind: Kind
    """`matrix`: a kernel matrix is read; `product`: the first pass of a solver, `again`: a further one; `second`: components or scores."""
    flops: int = 0

    @property
    def reads(self) -> bool:
        """Whether it reads the data."""
        return self.kind in READING


def steps_of(run: RunPlan, model: Model, layout: Layout, components: bool) -> list[PlannedStep]:
    """The steps for one input, if the first solver supports every component.

    Parameters
    ----------
    run, layout : the plan of this input alone, and how it is stored
    components : whether components are written
    """
    return [*_steps(run, model, layout, components)]


def _steps(run: RunPlan, model: Model, layout: Layout, components: bool) -> Iterator[PlannedStep]:
    first, last = run.attempts[0].rung, _second(run, model, components)
    for _ in range(run.copies):
        yield PlannedStep("copy", "copy")
    if not run.reads:
        yield PlannedStep("kernel matrix", "matrix")
    else:
        if reads_means(run.plan, model, layout):
            yield PlannedStep("means", "means")
        yield PlannedStep(first.name, "product", _flops(run, model, first))
        if first.solver == BLOCK_KRYLOV:
            expected = max(1, min(EXPECTED_PASSES, model.iteration.max_passes) - len(last))
            yield from _further(run, model, range(2, expected + 1))
    for _ in range(model.kernels.n_cases if model.kernels else 1):
        yield PlannedStep("eigensolve", "eigensolve")
    if run.reads:
        yield from last
        if run.plan.keeps == "features":
            yield PlannedStep("signs", "signs")


def worst_steps(run: RunPlan, model: Model, components: bool) -> list[PlannedStep]:
    """Further passes for one input, if components turn out to be smaller than each solver but the last supports."""
    first, *later = (attempt.rung for attempt in run.attempts)
    last = _second(run, model, components) if run.reads else []
    if first.solver == BLOCK_KRYLOV:
        settings = model.iteration
        begun = max(1, min(EXPECTED_PASSES, settings.max_passes) - len(last))
        return [*_further(run, model, range(begun + 1, settings.max_passes - len(last) + 1))]
    found = []
    for rung in later:
        found.append(PlannedStep(rung.name, "product", _flops(run, model, rung, known=False)))
        # A second pass may refute the solver before it.
        found += [PlannedStep(f"{one.name} of {rung.name}", "second", one.flops) for one in last]
    return found


def _further(run: RunPlan, model: Model, passes: range) -> Iterator[PlannedStep]:
    """Passes of block Krylov after the first one, by number."""
    first = run.attempts[0].rung
    for number in passes:
        yield PlannedStep(f"{first.name} pass {number}", "again", _flops(run, model, first))


def _second(run: RunPlan, model: Model, components: bool) -> list[PlannedStep]:
    """The second pass, if there is one: X_c' alpha and X_c W take 2 m k flops each (Golub and Van Loan, table 1.1.2); W'W is symmetric, k^2."""
    name, plan = second_pass(run.plan, components), run.plan
    if name is None:
        return []
    k = model.most_components(plan.n_samples, plan.n_features)
    return [PlannedStep(name, "second", (4 * plan.n_kept * k + k * k) * _streamed(run))]


def _flops(run: RunPlan, model: Model, rung: Rung, known: bool = True) -> int:
    """Flops of a pass of a solver: m^2 d for a symmetric product, 2 m^2 d for a QR factorization (Golub and Van Loan, 5.2), 4 m l d with a block.

    Parameters
    ----------
    known : whether products of an earlier run are used
    """
    plan, m = run.plan, run.plan.n_kept
    if rung.solver == BLOCK_KRYLOV:
        k = model.most_components(plan.n_samples, plan.n_features)
        return 4 * m * model.iteration.columns(k, min(plan.n_samples, plan.n_features)) * _streamed(run)
    if known and (n_known := model.n_known(rung)):
        return Border.flops(n_known, m) * _streamed(run)
    return (2 if rung.solver == "tsqr" else 1) * m * m * _streamed(run)


def _streamed(run: RunPlan) -> int:
    """Length of the streamed side."""
    return run.plan.n_samples * run.plan.n_features // run.plan.n_kept
