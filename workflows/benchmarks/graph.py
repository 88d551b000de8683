"""What reaches a scheduler, of arrays with ever more chunks: tasks, their bytes, memory, time.

    python -m workflows.benchmarks.graph

The array lies in a store that makes its chunks up, on a cluster of two workers with a scheduler in a process of its own.
"""

import argparse
import pickle
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
from distributed import Client

from dpca import PCA
from workflows.benchmarks.made_up import array_of
from workflows.watch import private_bytes


@contextmanager
def cluster() -> Iterator[tuple[Client, psutil.Process]]:
    """A client, and the process of its scheduler."""
    with tempfile.TemporaryDirectory() as place:
        file = str(Path(place) / "scheduler.json")
        here = ["--dashboard-address", "127.0.0.1:0"]
        found = ["--scheduler-file", file]
        dask = [sys.executable, "-m"]
        commands = [
            [*dask, "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0", *found],
            *[
                [
                    *dask,
                    "distributed.cli.dask_worker",
                    "--nthreads",
                    "1",
                    "--no-nanny",
                    *found,
                    "--local-directory",
                    place,
                ]
            ]
            * 2,
        ]
        running = [subprocess.Popen([*command, *here], stderr=subprocess.DEVNULL) for command in commands]
        try:
            while not Path(file).exists():
                time.sleep(0.1)
            with Client(scheduler_file=file) as client:
                client.wait_for_workers(2)
                yield client, psutil.Process(running[0].pid)
        finally:
            for process in running:
                process.kill()
                process.wait()


def measure(n_chunks: int) -> list[str]:
    """A fit, and what it took beside the work."""
    array, sizes, submitting = array_of(n_chunks), [], 0.0
    with cluster() as (client, scheduler), tempfile.TemporaryDirectory() as store:
        submit, me = client.submit, psutil.Process()

        def counted(*arguments: Any, **named: Any) -> Any:
            nonlocal submitting
            sizes.append(len(pickle.dumps(arguments[1:])))
            began = time.perf_counter()
            try:
                return submit(*arguments, **named)
            finally:
                submitting += time.perf_counter() - began

        client.submit = counted
        before = private_bytes(me)
        load = sum(scheduler.cpu_times()[:2])
        began = time.perf_counter()
        PCA(2, client=client, store=store).fit(array)
        seconds = time.perf_counter() - began
        load = sum(scheduler.cpu_times()[:2]) - load
        return [
            f"{n_chunks:,}",
            f"{array.nbytes / 1e9:.3g} GB",
            f"{len(sizes)}",
            f"{max(sizes):,} bytes",
            f"{1000 * submitting / len(sizes):.2g} ms",
            f"{(private_bytes(me) - before) / 2**20:.0f} MiB",
            f"{private_bytes(scheduler) / 2**20:.0f} MiB",
            f"{load:.1f} s of {seconds:.0f} s",
        ]


def main() -> None:
    """A line for each size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chunks", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    heading = ["chunks", "data", "tasks", "largest task", "to submit one", "client takes", "scheduler", "its CPU time"]
    print("| " + " | ".join(heading) + " |")
    print("| " + " | ".join(["---"] * len(heading)) + " |")
    measure(1000)  # libraries are loaded, and memory touched, the first time
    for n_chunks in parser.parse_args().chunks:
        print("| " + " | ".join(measure(n_chunks)) + " |", flush=True)


if __name__ == "__main__":
    main()
