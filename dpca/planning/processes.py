"""The processes of a run with their memory in each stage, put together from what tasks, sums and the eigensolve hold."""

from __future__ import annotations

from collections.abc import Mapping

from dpca.planning.runplan import Footprint, HeldArray, Process, Workers
from dpca.system.machine import LIBRARIES_BYTES

TASK_BYTES = 24 * 2**20
"""Memory of a task besides its arrays: the stack of a thread, packing buffers of BLAS, overhead of the allocator."""
COORDINATES = "coordinates"
"""The first stage, in which coordinates are copied or compared."""

Tasks = dict[str, dict[str, int]]
"""Bytes of each array that a task holds, by stage and name."""
Sums = dict[str, list[HeldArray]]
"""Arrays of the process that adds up the results of tasks, by stage."""


def arranged(
    tasks: Tasks,
    sums: Sums,
    solve: list[HeldArray],
    workers: Workers,
    threads: int,
    coordinates: Mapping[str, int],
) -> tuple[Process, ...]:
    """Memory of each process: first coordinates, then tasks with their arrays and the sums over spans, and the eigensolve."""
    libraries, first = HeldArray("interpreter and libraries", LIBRARIES_BYTES), copied_first(coordinates)

    def of_tasks(stage: str) -> list[HeldArray]:
        return [
            HeldArray("stack and BLAS buffers of a task", TASK_BYTES, threads),
            *(HeldArray(name, size, threads) for name, size in tasks[stage].items()),
        ]

    eigensolve = [Footprint("eigensolve", (libraries, *solve))] if solve else []
    if workers.processes == 0:
        stages = [Footprint(name, (libraries, *sums.get(name, ()), *of_tasks(name))) for name in tasks]
        return (Process("dpca", 1, (*first, *stages, *eigensolve), workers.budget),)
    # On a cluster the client holds the sums and the spans that wait to be added; workers hold the rest.
    client = [Footprint(name, (libraries, *arrays, arrays[-1])) for name, arrays in sums.items()]
    worker = [Footprint(name, (libraries, *of_tasks(name))) for name in tasks]
    return (
        Process("client", 1, (*first, *client, *eigensolve), workers.client_budget or workers.budget),
        Process("worker", workers.processes, tuple(worker), workers.budget),
    )


def copied_first(coordinates: Mapping[str, int]) -> list[Footprint]:
    """The stage in which coordinates are copied or compared one by one: its peak is the largest of them."""
    if not coordinates:
        return []
    name = max(coordinates, key=coordinates.__getitem__)
    libraries = HeldArray("interpreter and libraries", LIBRARIES_BYTES)
    # The stacks of zarr's threads are estimated as those of a task.
    return [
        Footprint(
            COORDINATES, (libraries, HeldArray("stacks of threads", TASK_BYTES), HeldArray(name, coordinates[name]))
        )
    ]
