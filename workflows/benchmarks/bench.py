"""dpca beside what a user would pick instead, on the same data, in turn: time, memory, bytes read, error.

    python -m workflows.benchmarks.bench configs/benchmarks/*.yaml

Prints a table for each case and writes all that was measured to dpca-bench/bench.json. Every method runs in a process of
its own: `whole` is all of it, as a user waits for it, `seconds` is without imports. dpca draws its report, but for the row that says so. Errors are of eigenvalues, the largest relative one of any. Before
each run the data are read into the page cache, or evicted from it where the case says `cold: true`.
"""

import argparse
import json
import os
import shutil
import statistics
import sys
from pathlib import Path
from typing import Any

import psutil
from ruamel.yaml import YAML

from workflows.benchmarks.data import Case, evict, exact_eigenvalues, files_of, make, read_all
from workflows.benchmarks.roofline import floor
from workflows.benchmarks.startup import measure as start_up
from workflows.watch import Watched, watch

LIMIT_SECONDS = 600


def once(name: str, document: dict[str, Any], data: Path, directory: Path) -> dict[str, Any]:
    """One run of one method."""
    out = directory / "out"
    shutil.rmtree(out, ignore_errors=True)
    command = [sys.executable, "-m", "workflows.benchmarks.methods", name, json.dumps(document), str(data), str(out)]
    done = watch(command, LIMIT_SECONDS, int(0.9 * psutil.virtual_memory().available))
    shutil.rmtree(out, ignore_errors=True)
    lines = [line for line in done.said.splitlines() if line.startswith("RESULT ")]
    if done.code or not lines:
        return {"failed": why(done)}
    found: dict[str, Any] = json.loads(lines[-1].removeprefix("RESULT "))
    return {**found, "whole": done.seconds, "peak_bytes": done.peak_bytes}


def why(done: Watched) -> str:
    """What ended a method."""
    if done.code == -9:
        return f"stopped after {done.seconds:.0f} s and {done.peak_bytes / 2**30:.1f} GiB"
    return (done.said.strip().splitlines() or ["?"])[-1][:200]


def error_of(found: list[float], exact: list[float]) -> float:
    """The largest relative error of an eigenvalue."""
    return max(abs(value - true) / true for value, true in zip(found, exact, strict=False))


def measure(case: Case, document: dict[str, Any], directory: Path, seconds: float) -> dict[str, Any]:
    """All methods on a case, interleaved."""
    data, exact = make(case, directory), exact_eigenvalues(case, directory)
    rounds: dict[str, list[dict[str, Any]]] = {name: [] for name in case.methods}
    floors = []
    for _ in range(case.rounds):
        evict(data)
        disk = read_all(data)
        floors.append({**floor(case, data, directory, seconds), "disk_bytes_per_second": disk})
        for name, runs in rounds.items():
            if not any("failed" in run for run in runs):
                evict(data) if case.cold else read_all(data)
                runs.append(once(name, document, data, directory))
    for runs in rounds.values():
        for run in runs:
            if "failed" not in run:
                run["error"] = error_of(run.pop("eigenvalues"), exact)
    stored = sum(path.stat().st_size for path in files_of(data))
    return {"case": document, "bytes": case.bytes, "stored_bytes": stored, "floor": floors, "methods": rounds}


def median(values: list[float]) -> float:
    """Of what the rounds gave."""
    return statistics.median(values)


def table(measured: dict[str, Any]) -> str:
    """As Markdown."""
    bottom = median([found["seconds"] for found in measured["floor"]])
    first = measured["floor"][0]
    lines = [
        f"{measured['case']['name']}: floor {bottom:.2f} s (decode {first['decode_bytes_per_second'] / 1e9:.2f} GB/s, syrk "
        f"{first['syrk_flops_per_second'] / 1e9:.0f} GFLOP/s, back-projection "
        f"{first['projection_flops_per_second'] / 1e9:.0f} GFLOP/s, write {first['write_bytes_per_second'] / 1e6:.0f} MB/s; "
        f"disk, cold, {first['disk_bytes_per_second'] / 1e9:.2f} GB/s)",
        "",
        "| method | whole | seconds | of the floor | memory | read | error |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, runs in measured["methods"].items():
        if failed := [run["failed"] for run in runs if "failed" in run]:
            lines.append(f"| {name} | {failed[0]} | | | | | |")
            continue
        seconds = [run["seconds"] for run in runs]
        lines.append(
            f"| {name.replace('_', ' ')} | {median([run['whole'] for run in runs]):.2f} s | {median(seconds):.2f} ({min(seconds):.2f} to "
            f"{max(seconds):.2f}) | {median(seconds) / bottom:.2f} | {max(run['peak_bytes'] for run in runs) / 2**30:.2f} GiB | "
            f"{median([run['bytes_read'] for run in runs]) / 1e9:.2f} GB | {max(run['error'] for run in runs):.0e} |"
        )
    stages = [
        run["stages"]
        for run in (measured["methods"].get("dpca") or measured["methods"].get("dpca_without_report", []))
        if "stages" in run
    ]
    if stages:
        parts = {name: median([stage[name] for stage in stages]) for name in stages[0]}
        lines += ["", "dpca's stages: " + ", ".join(f"{name} {seconds:.2f} s" for name, seconds in parts.items())]
        if not measured["case"]["store"].startswith("zarr"):
            ratios = [
                found["reader_bytes_per_second"] / found["decode_bytes_per_second"] for found in measured["floor"]
            ]
            lines.append(f"dpca decodes at {median(ratios):.1f} times h5py's own rate")
        if measured["case"].get("cold"):
            disk = measured["stored_bytes"] / median([found["disk_bytes_per_second"] for found in measured["floor"]])
            lines.append(f"to read the stored {measured['stored_bytes'] / 1e9:.2f} GB alone, cold: {disk:.2f} s")
    return "\n".join(lines)


def main() -> None:
    """Measure the cases that are named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", type=Path, nargs="+")
    parser.add_argument("--directory", type=Path, default=Path("dpca-bench"))
    parser.add_argument("--methods", nargs="+", help="these alone")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--seconds", type=float, default=2.0, help="for each rate of the roofline")
    parser.add_argument("--keep", action="store_true", help="keep the data for another time")
    given = parser.parse_args()
    given.directory.mkdir(parents=True, exist_ok=True)
    started = start_up(given.directory.absolute())
    print("; ".join(f"{name} {seconds:.2f} s" for name, seconds in started.items()), end="\n\n", flush=True)
    found = []
    for path in given.cases:
        document = YAML(typ="safe").load(path)
        document["methods"] = given.methods or document["methods"]
        document["rounds"] = given.rounds or document["rounds"]
        case = Case.of(dict(document))
        found.append(measure(case, document, given.directory.absolute(), given.seconds))
        print(table(found[-1]), flush=True)
        print(flush=True)
        if not given.keep:
            data = case.path(given.directory)
            shutil.rmtree(data) if data.is_dir() else data.unlink()
    report = {"cores": os.cpu_count(), "load": os.getloadavg(), "start_up": started, "cases": found}
    (given.directory / "bench.json").write_text(json.dumps(report, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
