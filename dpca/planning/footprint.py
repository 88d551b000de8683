"""Memory of every process of a run in each stage."""

from __future__ import annotations

from dpca.numerics.ladder import BLOCK_KRYLOV, Rung
from dpca.planning.krylov_memory import KrylovMemory
from dpca.planning.matrix_memory import MatrixMemory
from dpca.planning.memory import Needs
from dpca.planning.processes import arranged
from dpca.planning.runplan import Process, RunPlan


def footprint(needs: Needs, run: RunPlan, threads: int, rung: Rung) -> tuple[Process, ...]:
    """Memory of every process of a plan in each stage, with one of the solvers that may be tried; `threads` tasks at a time."""
    solver = KrylovMemory if rung.solver == BLOCK_KRYLOV else MatrixMemory
    tasks, sums, solve = solver(needs, run, rung).stages()
    return arranged(tasks, sums, solve, needs.workers, threads, needs.coordinates)
