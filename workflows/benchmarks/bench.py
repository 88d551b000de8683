"""dpca beside what a user would pick instead, on the same data, in turn: time, memory, bytes read, error.

    python -m workflows.benchmarks.bench configs/benchmarks/*.yaml

Prints a table for each case and writes all that was measured to dpca-bench/bench.json. Every method runs in a process of
its own: `whole` is all of it, as a user waits for it, `CPU` the processor time of that, `seconds` is without imports. dpca draws its report, but for the row that says so. Errors are of eigenvalues, the largest relative one of any. Where
the case says `iterates: true`, the table has passes, planned memory, errors of 10 and of all components, and whether certificates are right. Before
each run the data are read into the page cache, or evicted from it where the case says `cold: true`.
"""

import argparse
import json
import math
import os
import shutil
import statistics
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from ruamel.yaml import YAML

from workflows.benchmarks.data import (
    Case,
    evict,
    exact_eigenvalues,
    files_of,
    make,
    make_bed,
    read_all,
    remove,
    ritz_values,
)
from workflows.benchmarks.roofline import floor, floor_of_pass
from workflows.benchmarks.startup import measure as start_up
from workflows.watch import Watched, watch

LIMIT_SECONDS = 600
EXACT = 1e-12
"""The relative error of exact eigenvalues themselves."""


def once(name: str, document: dict[str, Any], data: Path, directory: Path) -> dict[str, Any]:
    """One run of one method."""
    out = directory / "out"
    shutil.rmtree(out, ignore_errors=True)
    command = [sys.executable, "-m", "workflows.benchmarks.methods", name, json.dumps(document), str(data), str(out)]
    done = watch(command, LIMIT_SECONDS, int(0.9 * psutil.virtual_memory().available))
    lines = [line for line in done.said.splitlines() if line.startswith("RESULT ")]
    found: dict[str, Any] = {} if done.code or not lines else json.loads(lines[-1].removeprefix("RESULT "))
    if "vectors" in found:
        try:
            found["eigenvalues"] = ritz_values(data, np.loadtxt(found.pop("vectors"), ndmin=2))
        except (OSError, ValueError) as error:
            found = {"failed": f"its vectors can't be read: {error}"}
    shutil.rmtree(out, ignore_errors=True)
    if not found:
        return {"failed": why(done)}
    if "failed" in found:
        return found
    return {**found, "whole": done.seconds, "cpu": done.cpu_seconds, "peak_bytes": done.peak_bytes}


def why(done: Watched) -> str:
    """What ended a method."""
    if done.code == -9:
        return f"stopped after {done.seconds:.0f} s and {done.peak_bytes / 2**30:.1f} GiB"
    return (done.said.strip().splitlines() or ["?"])[-1][:200]


def error_of(found: list[float], exact: list[float]) -> float:
    """The largest relative error of an eigenvalue."""
    return max(abs(value - true) / true for value, true in zip(found, exact, strict=False))


def judged(run: dict[str, Any], exact: list[float]) -> dict[str, Any]:
    """Of a run with a certificate: how many components are certified, and whether each is as close to the exact value as it says."""
    if "bounds" not in run:
        return {}
    rows = zip(run["eigenvalues"], run["bounds"], exact, strict=False)
    hold = all(bound is None or abs(value - true) <= (bound + EXACT) * true for value, bound, true in rows)
    return {"certified": sum(run["reliable"]), "bounds_hold": hold}


def measure(case: Case, document: dict[str, Any], directory: Path, seconds: float) -> dict[str, Any]:
    """All methods on a case, interleaved."""
    data, exact = make(case, directory), exact_eigenvalues(case, directory)
    if "pcaone" in case.methods and case.data == "populations" and shutil.which("PCAone"):
        make_bed(case, directory)
    rounds: dict[str, list[dict[str, Any]]] = {name: [] for name in case.methods}
    floors = []
    for _ in range(case.rounds):
        evict(data)
        disk = read_all(data)
        rates = floor_of_pass(case, data, seconds) if case.iterates else floor(case, data, directory, seconds)
        floors.append({**rates, "disk_bytes_per_second": disk})
        for name, runs in rounds.items():
            if not any("failed" in run for run in runs):
                evict(data) if case.cold else read_all(data)
                runs.append(once(name, document, data, directory))
    for runs in rounds.values():
        for run in runs:
            if "failed" not in run:
                if case.iterates:
                    run.update(judged(run, exact))
                    run["error_of_10"] = error_of(run["eigenvalues"][:10], exact)
                    run["error"] = error_of(run["eigenvalues"], exact)
                else:
                    run["error"] = error_of(run.pop("eigenvalues"), exact)
    stored = sum(path.stat().st_size for path in files_of(data))
    return {"case": document, "bytes": case.bytes, "stored_bytes": stored, "floor": floors, "methods": rounds}


def median(values: list[float]) -> float:
    """Of what the rounds gave."""
    return statistics.median(values)


def table(measured: dict[str, Any]) -> str:
    """As Markdown."""
    return table_of_passes(measured) if measured["case"].get("iterates") else table_of_floor(measured)


def table_of_passes(measured: dict[str, Any]) -> str:
    """Of methods that read the data several times."""
    first = measured["floor"][0]
    k = measured["case"]["components"]
    lines = [
        f"{measured['case']['name']}: floor of a pass {median([found['seconds'] for found in measured['floor']]):.2f} s (decode "
        f"{first['decode_bytes_per_second'] / 1e9:.2f} GB/s, products of blocks {first['pass_flops_per_second'] / 1e9:.0f} GFLOP/s; disk, "
        f"cold, {first['disk_bytes_per_second'] / 1e9:.2f} GB/s)",
        "",
        f"| method | passes | whole | seconds | memory | planned | error of {min(10, k)} | error of {k} | certified | bounds hold |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, runs in measured["methods"].items():
        if failed := [run["failed"] for run in runs if "failed" in run]:
            lines.append(f"| {name.replace('_', ' ')} | {failed[0]} | | | | | | | | | |")
            continue
        planned = runs[0].get("planned_bytes")
        certified = [f"{min(run['certified'] for run in runs)} of {k}" for run in runs[:1] if "certified" in run]
        hold = ["yes" if all(run["bounds_hold"] for run in runs) else "NO" for run in runs[:1] if "bounds_hold" in run]
        cells = [
            name.replace("_", " "),
            str(runs[0].get("passes") or ""),
            f"{median([run['whole'] for run in runs]):.2f} s",
            f"{median([run['cpu'] for run in runs]):.2f} s",
            f"{median([run['seconds'] for run in runs]):.2f}",
            f"{max(run['peak_bytes'] for run in runs) / 2**30:.2f} GiB",
            "" if planned is None else f"{planned / 2**30:.2f} GiB",
            f"{max(run['error_of_10'] for run in runs):.0e}",
            f"{max(run['error'] for run in runs):.0e}",
            *(certified or [""]),
            *(hold or [""]),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    krylov, gram = (of_dpca(measured, name) for name in ("dpca_krylov", "dpca_gram"))
    if krylov:
        parts: dict[str, float] = {}
        for name in krylov[0]["stages"]:
            seconds = median([run["stages"][name] for run in krylov])
            short = "products" if name.startswith("block_krylov") else name.split(" after ")[0]
            parts[short] = parts.get(short, 0.0) + seconds
        lines += ["", "dpca's stages: " + ", ".join(f"{name} {seconds:.2f} s" for name, seconds in parts.items())]
        for name, runs in measured["methods"].items():
            if not name.startswith("dpca_krylov") and not any("failed" in run for run in runs):
                lines.append(
                    f"dpca krylov takes {ratio(krylov, runs):.2f} times as long as {name.replace('_', ' ')}, and its error is "
                    f"{max(run['error'] for run in krylov):.0e} beside {max(run['error'] for run in runs):.0e}"
                )
    if krylov and gram:
        lines.append(agreement(krylov[0], gram[0]))
    return "\n".join(lines)


def of_dpca(measured: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """Runs of a method of dpca, with its report or without; none where one failed."""
    runs = measured["methods"].get(name) or measured["methods"].get(f"{name}_without_report", [])
    return [] if any("failed" in run for run in runs) else runs


def ratio(runs: list[dict[str, Any]], others: list[dict[str, Any]]) -> float:
    """Seconds of some runs over those of others, without imports."""
    return median([run["seconds"] for run in runs]) / median([run["seconds"] for run in others])


def agreement(krylov: dict[str, Any], gram: dict[str, Any]) -> str:
    """Whether two results of dpca are as close to each other as their certificates say, in words."""
    pairs = list(zip(krylov["eigenvalues"], gram["eigenvalues"], strict=False))
    off = [abs(one - other) / other for one, other in pairs]
    bounds = zip(krylov["bounds"], gram["bounds"], strict=False)
    granted = [math.inf if None in both else sum(both) + EXACT for both in bounds]
    within = sum(difference <= bound for difference, bound in zip(off, granted, strict=True))
    return f"dpca krylov and dpca gram differ by {max(off):.0e} at most, {within} of {len(off)} within what both are certain of"


def break_even(measured: list[dict[str, Any]]) -> str | None:
    """From how many samples on block Krylov is faster than the Gram matrix, read off a line through two cases; None without two.

    Of several cases these are the first two beside each other of which one is faster and the other slower.
    """
    found = []
    for one in measured:
        krylov, gram = (of_dpca(one, name) for name in ("dpca_krylov", "dpca_gram"))
        if krylov and gram:
            found.append((one["case"]["shape"][0], ratio(krylov, gram)))
    found.sort()
    if len(found) < 2 or found[0][0] == found[-1][0]:
        return None
    apart = (pair for pair in pairwise(found) if (pair[0][1] - 1) * (pair[1][1] - 1) < 0)
    (n, first), (more, last) = next(apart, (found[0], found[-1]))
    said = f"block Krylov over the Gram matrix: {first:.2f} of the time at {n:,} samples, {last:.2f} at {more:,}"
    if (first - 1) * (last - 1) >= 0:
        return f"{said}; no break-even between them"
    at = n * (more / n) ** (math.log(first) / math.log(first / last))
    return f"{said}; break-even at some {at:,.0f}"


def table_of_floor(measured: dict[str, Any]) -> str:
    """Of methods beside the floor of two passes."""
    bottom = median([found["seconds"] for found in measured["floor"]])
    first = measured["floor"][0]
    lines = [
        f"{measured['case']['name']}: floor {bottom:.2f} s (decode {first['decode_bytes_per_second'] / 1e9:.2f} GB/s, syrk "
        f"{first['syrk_flops_per_second'] / 1e9:.0f} GFLOP/s, back-projection "
        f"{first['projection_flops_per_second'] / 1e9:.0f} GFLOP/s, write {first['write_bytes_per_second'] / 1e6:.0f} MB/s; "
        f"disk, cold, {first['disk_bytes_per_second'] / 1e9:.2f} GB/s)",
        "",
        "| method | whole | CPU | seconds | of the floor | memory | read | error |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, runs in measured["methods"].items():
        if failed := [run["failed"] for run in runs if "failed" in run]:
            lines.append(f"| {name} | {failed[0]} | | | | | | |")
            continue
        seconds = [run["seconds"] for run in runs]
        lines.append(
            f"| {name.replace('_', ' ')} | {median([run['whole'] for run in runs]):.2f} s | "
            f"{median([run['cpu'] for run in runs]):.2f} s | {median(seconds):.2f} ({min(seconds):.2f} to "
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
            remove(case, given.directory)
    if (line := break_even(found)) is not None:
        print(line, flush=True)
    report = {"cores": os.cpu_count(), "load": os.getloadavg(), "start_up": started, "cases": found}
    (given.directory / "bench.json").write_text(json.dumps(report, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
