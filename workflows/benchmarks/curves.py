"""Cost curves: time and memory against features, samples and workers, beside a model of what they should be.

    python -m workflows.benchmarks.curves

Prints the tables, writes all numbers to dpca-bench/curves.json and the figure to dpca-bench/curves.png. Every run is a
process of its own, on data of its own in the page cache, that are removed afterwards.
"""

import argparse
import json
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dpca.execution.stage import Executor, Stage, Work
from dpca.planning.runplan import Concurrency
from workflows.benchmarks.bench import once
from workflows.benchmarks.data import Case, make, read_all
from workflows.benchmarks.model import Machine, predicted
from workflows.benchmarks.roofline import floor

FEATURES = [100_000, 300_000, 1_000_000, 3_000_000, 10_000_000]
SAMPLES = [500, 1000, 2000, 4000, 8000]
FEW_SAMPLES, FEW_FEATURES = 100, 60_000
COMPONENTS = 20
CHUNK_BYTES = 8 * 2**20
ON_CLUSTER = [100_000, 200_000, 400_000, 800_000]
"""Features of the runs on a cluster of two workers, of which the bytes that they send are counted."""
EMPTY_SPANS = 400

Numbers = dict[str, Any]


def case_of(samples: int, features: int, memory: str) -> Case:
    """float32, zstd, in chunks of 8 MiB."""
    width = min(features, max(256, CHUNK_BYTES // (4 * samples)))
    shape, chunks = (samples, features), (samples, width)
    return Case(f"{samples} x {features:,}", shape, "float32", "zarr-zstd", chunks, COMPONENTS, memory, 1, ("dpca",))


def measured(samples: int, features: int, memory: str, directory: Path, repeats: int) -> Numbers:
    """One point of a curve: the median of several runs, and the floor in the same minute."""
    case = case_of(samples, features, memory)
    data = make(case, directory)
    document = {"components": case.components, "memory": case.memory}
    bottom = floor(case, data, directory, 1.0)
    runs = []
    for _ in range(repeats):
        read_all(data)
        runs.append(once("dpca", document, data, directory))
    shutil.rmtree(data)
    assert not any("failed" in run for run in runs), runs
    middle = statistics.median(run["seconds"] for run in runs)
    chosen = min(runs, key=lambda run: abs(run["seconds"] - middle))
    return {
        "samples": samples,
        "features": features,
        "bytes": case.bytes,
        "seconds": [run["seconds"] for run in runs],
        "stages": chosen["stages"],
        "peak_bytes": max(run["peak_bytes"] for run in runs),
        "floor": bottom,
    }


def moved(features: int, directory: Path) -> Numbers:
    """A run on a cluster of two worker processes: what Dask's own records say they sent to anyone and to each other."""
    from distributed import Client, LocalCluster

    import dpca.commands.run
    from dpca.config.loading import load

    case = case_of(FEW_SAMPLES, features, "1GiB")
    data, out = make(case, directory), directory / "on-cluster"
    shutil.rmtree(out, ignore_errors=True)
    with (
        tempfile.TemporaryDirectory() as local,
        LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            local_directory=local,
        ) as cluster,
        Client(cluster) as client,
    ):
        config = directory / "on-cluster.yaml"
        config.write_text(
            f"input: {{uri: {data}}}\nmodel: {{n_components: {COMPONENTS}}}\n"
            f"compute: {{cluster: {{scheduler: '{cluster.scheduler_address}'}}, memory: 1GiB}}\n"
            f"output: {{path: {out}, gram: false}}\n",
            encoding="utf-8",
        )
        dpca.commands.run.run(load(config))
        sent = client.run(lambda dask_worker: dask_worker.transfer_outgoing_bytes_total)
        received = client.run(lambda dask_worker: sum(entry["total"] for entry in dask_worker.transfer_incoming_log))
    manifest = json.loads((out / "manifest.json").read_text(encoding="utf-8"))
    shutil.rmtree(data)
    shutil.rmtree(out)
    return {
        "features": features,
        "bytes": case.bytes,
        "n_spans": manifest["plan"]["n_spans"],
        "sent_bytes": sum(sent.values()),
        "received_from_workers_bytes": sum(received.values()),
    }


def nothing(_part: object, _number: int, report: Callable[[int], None]) -> float:
    """A span without work."""
    report(0)
    return 0.0


class Nothing(Work):
    """A pass of spans without work."""

    n_parts = EMPTY_SPANS

    def part(self, number: int) -> "tuple[Nothing, int]":
        """The same."""
        return self, number


def overheads(directory: Path) -> dict[str, float]:
    """Seconds that a span costs beside its work: in threads, on a cluster, and in a ledger."""
    from distributed import Client, LocalCluster

    from dpca.execution.executors import Distributed, Threads
    from dpca.execution.progress import Progress
    from dpca.store.ledger import Ledger

    def of(executor: Executor, ledger: Ledger | None = None) -> float:
        began = time.perf_counter()
        stage = Stage(
            name="nothing",
            task=nothing,
            work=Nothing(),
            empty=0.0,
            merge=lambda total, found: total + found,
            concurrency=Concurrency(2, 4),
        )
        executor.run(stage, Progress(), ledger.checkpoint("nothing") if ledger else None)
        return (time.perf_counter() - began) / EMPTY_SPANS

    found = {"threads": of(Threads(2))}
    with tempfile.TemporaryDirectory(dir=directory) as kept:
        found["in a ledger"] = of(Threads(2), Ledger(Path(kept), "nothing", 10**9, lambda _: None))
    with (
        tempfile.TemporaryDirectory() as local,
        LocalCluster(
            n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address=None, local_directory=local
        ) as cluster,
        Client(cluster) as client,
    ):
        found["cluster"] = of(Distributed(client))
    return found


def table(heading: list[str], rows: list[list[str]]) -> str:
    """As Markdown."""
    lines = [heading, ["---"] * len(heading), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def rows_of(points: list[Numbers], machine: Machine) -> list[list[str]]:
    """Measured beside predicted."""
    rows = []
    for point in points:
        seconds = statistics.median(point["seconds"])
        expected = predicted(point["samples"], point["features"], COMPONENTS, machine)
        point["predicted"] = expected
        rows.append(
            [
                f"{point['samples']:,}",
                f"{point['features']:,}",
                f"{seconds:.1f} ({min(point['seconds']):.1f} to {max(point['seconds']):.1f})",
                f"{point['stages']['eigensolve']:.2f}",
                f"{point['peak_bytes'] / 2**20:.0f} MiB",
                f"{sum(expected.values()):.1f}",
                f"{seconds / sum(expected.values()):.2f}",
            ]
        )
    return rows


def figure(report: Numbers, path: Path) -> None:
    """Two panels: against features, against samples."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    def ticks(axis: Any, x: list[int]) -> None:
        axis.set_xticks(x, [f"{value:,}" for value in x], rotation=30)
        axis.set_xticks([], minor=True)

    drawn, axes = plt.subplots(1, 3, figsize=(12, 3.6), layout="constrained")
    for axis, name, over, title in (
        (axes[0], "features", "features", f"{FEW_SAMPLES} samples"),
        (axes[1], "samples", "samples", f"{FEW_FEATURES:,} features"),
    ):
        points = report[name]
        x = [point[over] for point in points]
        axis.loglog(x, [statistics.median(p["seconds"]) for p in points], "o-", color="C0", label="measured")
        axis.loglog(x, [sum(p["predicted"].values()) for p in points], "--", color="C0", label="model")
        if over == "samples":
            axis.loglog(x, [p["stages"]["eigensolve"] for p in points], "s:", color="C2", label="eigensolve of it")
        axis.set(title=title, xlabel=over, ylabel="seconds")
        axis.legend(frameon=False, loc="upper left")
        memory = axis.twinx()
        memory.loglog(x, [p["peak_bytes"] / 2**20 for p in points], "^-", color="C1")
        memory.set_ylabel("memory, MiB", color="C1")
        memory.set_ylim(50, 20_000)
        ticks(axis, x)
    points = report["cluster"]
    x = [point["features"] for point in points]
    axes[2].loglog(x, [p["bytes"] for p in points], "o--", color="C0", label="data")
    axes[2].loglog(x, [max(1, p["sent_bytes"]) for p in points], "s-", color="C1", label="sent by workers")
    axes[2].set(title=f"two workers, {FEW_SAMPLES} samples", xlabel="features", ylabel="bytes")
    ticks(axes[2], x)
    axes[2].legend(frameon=False, loc="center left")
    drawn.savefig(path, dpi=80)


def main() -> None:
    """Measure, print, draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--directory", type=Path, default=Path("dpca-bench"))
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--features", type=int, nargs="+", default=FEATURES)
    parser.add_argument("--samples", type=int, nargs="+", default=SAMPLES)
    parser.add_argument("--on-cluster", type=int, nargs="+", default=ON_CLUSTER)
    given = parser.parse_args()
    directory = given.directory.absolute()
    directory.mkdir(parents=True, exist_ok=True)
    report: Numbers = {"cores": os.cpu_count(), "load": os.getloadavg()}
    report["overheads"] = overheads(directory)
    report["features"] = [measured(FEW_SAMPLES, d, "1GiB", directory, given.repeats) for d in given.features]
    report["samples"] = [measured(n, FEW_FEATURES, "8GiB", directory, given.repeats) for n in given.samples]
    report["cluster"] = [moved(d, directory) for d in given.on_cluster]
    largest, span = max(report["samples"], key=lambda point: point["samples"]), report["overheads"]["in a ledger"]
    heading = ["samples", "features", "seconds", "eigensolve", "memory", "model, s", "measured / model"]
    for points in (report["features"], report["samples"]):
        machine = Machine.of(
            points[len(points) // 2], largest, span
        )  # the model knows the rates of the middle one alone
        print(table(heading, rows_of(points, machine)), end="\n\n", flush=True)
    print("\n".join(f"a span costs {1e3 * seconds:.2f} ms, {where}" for where, seconds in report["overheads"].items()))
    print()
    sent = [
        [
            f"{point['features']:,}",
            f"{point['bytes'] / 1e6:.0f}",
            str(point["n_spans"]),
            f"{point['sent_bytes'] / 1e3:.0f}",
            f"{point['received_from_workers_bytes'] / 1e3:.0f}",
        ]
        for point in report["cluster"]
    ]
    print(table(["features", "data, MB", "spans", "sent by workers, kB", "of it to workers, kB"], sent))
    (directory / "curves.json").write_text(json.dumps(report, indent=1), encoding="utf-8")
    figure(report, directory / "curves.png")


if __name__ == "__main__":
    main()
