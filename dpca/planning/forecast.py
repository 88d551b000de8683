"""What a plan comes to: bytes, flops, files, seconds, advice. A document of plain values, for people and --json."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpca.config.model import Model
from dpca.numerics.accumulators.gram import eigensolve_flops
from dpca.numerics.ladder import Rung
from dpca.numerics.sketch import COLUMNS
from dpca.planning.runplan import RunPlan, Scratch
from dpca.planning.search import READINGS, SMALL_CHUNK_BYTES, better_chunks, reading_of, reads_means, second_pass
from dpca.sources.base import Layout, Source
from dpca.system.machine import free_disk
from dpca.units import by, describe_bytes, describe_memory, describe_seconds, enough

FORMAT_VERSION = 1
LISTED_BYTES = 2**20
"""Arrays smaller than this are summed, but not listed for people."""


@dataclass(frozen=True)
class Rates:
    """Seconds that steps take, each on its own in one task while the others run."""

    read: float
    """Per byte of the input as decoded, reading included."""
    product: float
    """Per value: centring it and its share of the Gram matrix."""
    backprojection: float
    """Per value: centring it again and its share of all components."""
    write: float
    """Per byte to the disk of the result, or of scratch where a copy goes there."""
    eigensolve: float
    """Of the whole eigensolve: that of a smaller matrix, times the cube of the ratio."""

    def merge(self, other: Rates) -> Rates:
        """The slower of two tasks in each step."""
        return Rates(*(max(pair) for pair in zip(vars(self).values(), vars(other).values(), strict=True)))


def forecast(
    source: Source,
    model: Model,
    made: RunPlan,
    rates: Rates,
    scratch: Scratch,
    output_path: str,
    *,
    components: bool,
    keep_gram: bool,
    probe_seconds: float,
) -> dict[str, Any]:
    """Everything that `dpca plan` tells.

    Parameters
    ----------
    source, model, made, rates, scratch : of the run (`dpca.planning.search`, `dpca.methods.probe`)
    output_path : the result directory
    components, keep_gram : what is to be written
    probe_seconds : what it took to measure the rates

    Returns
    -------
    dict with keys
        format_version : 1
        fits : true
        input : name, shape, dtype, chunks, codec, bytes as decoded
        n_samples, n_features, working_dtype
        n_components : or the most that there can be, where the spectrum will tell
        kernels : how many cases of kernels there are; null of PCA
        reading : columns, anywhere, parts or copy; and what that means
        keeps : the side that is whole in every slab, samples or features; the other streams by
        slabs, tiles, spans : how many; slab_width (features, or samples where those stream by) and slab_bytes of the
            largest slab
        tasks : at the same time, on all processes
        solver : that is tried first; solver_reason says why
        passes : name, bytes and flops of each read
        worst_case_passes, worst_case : how many there are, and those that are added, if components that were asked
            for turn out to be smaller than the first solver supports, and second passes refute each solver in turn
        bytes_read, flops : in all, the eigensolve included
        output : the most files and bytes (before compression), and for each array its shape, dtype and chunk files
        scratch : bytes, path and bytes free there
        memory : budget_bytes and where it is from; expected_peak_bytes, and peak_bytes if solvers follow the first;
            for every process each stage's arrays
        time : seconds in all, of each stage, and of a span of the slower pass in one task; the rates that were
            measured, and probe_seconds, what that took
        advice : sentences
    """
    plan, layout = made.plan, source.layout
    n, d = plan.n_samples, plan.n_features
    k = model.most_components(n, d)
    m, streamed = plan.n_kept, n * d // plan.n_kept
    first, *later = (attempt.rung for attempt in made.attempts)
    dtype = first.dtype
    passes: list[dict[str, Any]] = [{"name": first.name, "bytes": layout.bytes, "flops": _flops(first, m, streamed)}]
    if reads_means(plan, model, layout):
        passes.insert(0, {"name": "means", "bytes": layout.bytes, "flops": 0})
    second = second_pass(plan, components)
    if second:
        # X_c' alpha and X_c W take 2 m k each a feature, W'W k^2 (Golub and Van Loan, table 1.1.2).
        passes.append({"name": second, "bytes": layout.bytes, "flops": (4 * m * k + 2 * k * k) * streamed})
    if not made.reads:
        passes = [{"name": "kernel matrix", "bytes": layout.bytes, "flops": 0}]
    n_cases = model.kernels.n_cases if model.kernels else 1
    if made.copy is not None:
        passes.insert(0, {"name": "copy", "bytes": layout.bytes, "flops": 0})
    if made.keeps_data:
        passes[1:] = [{**item, "bytes": 0} for item in passes[1:]]
    again = 0 if made.keeps_data else layout.bytes
    worst = []
    for rung in later:
        worst.append({"name": rung.name, "bytes": again, "flops": _flops(rung, m, streamed)})
        if second:  # which may refute the solver before
            flops = passes[-1]["flops"]
            worst.append({"name": f"{second} of {rung.name}", "bytes": again, "flops": flops})
    arrays = _arrays(made, model, dtype, k, components, keep_gram)
    output_bytes = sum(array["bytes"] for array in arrays)
    seconds = _seconds(made, model, layout, rates, output_bytes, components)
    process = made.tightest
    reading = reading_of(made, layout)
    return {
        "format_version": FORMAT_VERSION,
        "fits": True,
        "input": {
            "name": layout.name,
            "shape": list(layout.shape),
            "dtype": str(layout.dtype),
            "chunks": list(layout.chunk_shape),
            "codec": layout.codec,
            "bytes": layout.bytes,
        },
        "n_samples": n,
        "n_features": d,
        "n_components": k,
        "kernels": model.kernels.n_cases if model.kernels else None,
        "solver": first.solver,
        "solver_reason": model.reason(layout.dtype, n, d),
        "keeps": plan.keeps,
        "working_dtype": dtype.name,
        "reading": {
            "kind": reading,
            "meaning": READINGS[reading]
            + ("; kept in memory, where that is faster than to read them again" if made.keeps_data else ""),
            "keeps_data": made.keeps_data,
        },
        "slabs": plan.n_slabs,
        "slab_width": plan.slab_width,
        "slab_bytes": plan.slab_width * m * layout.dtype.itemsize,
        "tiles": plan.n_tiles,
        "spans": plan.n_spans,
        "tasks": made.n_tasks,
        "passes": passes,
        "worst_case_passes": len(passes) + len(worst),
        "worst_case": worst,
        "bytes_read": sum(item["bytes"] for item in passes),
        "flops": sum(item["flops"] for item in passes) + n_cases * eigensolve_flops(m),
        "output": {
            "path": output_path,
            "bytes": output_bytes,
            "free_bytes": free_disk(output_path),
            "files": sum(array["files"] for array in arrays) + len(arrays) + 4,
            "arrays": arrays,
            "beside": ["certificate.json", "manifest.json", "status.json"],
        },
        "scratch": {"path": scratch.path, "bytes": made.scratch_bytes, "free_bytes": scratch.free_bytes},
        "memory": {
            "budget_bytes": process.budget.bytes,
            "budget_origin": process.budget.origin,
            "expected_peak_bytes": made.expected_bytes,
            "peak_bytes": process.peak_bytes,
            "processes": [
                {
                    "name": item.name,
                    "count": item.count,
                    "peak_bytes": item.peak_bytes,
                    "stages": [
                        {"name": stage.name, "bytes": stage.bytes, "arrays": [vars(array) for array in stage.arrays]}
                        for stage in item.stages
                    ],
                }
                for item in made.processes
            ],
        },
        "time": {
            "seconds": sum(seconds.values()),
            "stages": seconds,
            "span_seconds": _span_seconds(made, layout, rates, output_bytes),
            "rates": _rates(rates, m),
            "probe_seconds": probe_seconds,
        },
        "advice": _advice(made, layout, output_bytes, output_path),
    }


def _flops(rung: Rung, m: int, streamed: int) -> int:
    """Of a first pass: a symmetric product takes m^2 d, a QR factorization 2 m^2 d (Golub and Van Loan, 5.2)."""
    return (2 if rung.solver == "tsqr" else 1) * m * m * streamed


def _arrays(
    made: RunPlan, model: Model, dtype: np.dtype[Any], k: int, components: bool, keep_gram: bool
) -> list[dict[str, Any]]:
    """The arrays of the result, with the files of their chunks; coordinates of the input are not among them."""
    plan = made.plan
    n, d, features = plan.n_samples, plan.n_features, list(plan.feature_shape)
    samples = plan.keeps == "samples"
    # Along the side that streams by a chunk is a tile; along the one that is kept an array is written whole.
    scores, tiles = (1, plan.n_tiles) if samples else (plan.n_tiles, 1)
    cases = [model.kernels.n_cases] if model.kernels and model.kernels.sweep else []
    found = [
        ("scores", [*cases, n, k], "float64", scores),
        ("alpha", [*cases, n, k], "float64", scores),
        ("eigenvalues", [*cases, n if model.kernels else min(n, d)], "float64", 1),
    ]
    if model.kernels:
        found.append(("kernel_mean", [*cases, n], "float64", 1))
    if not samples:
        found.append(("left_vectors, until scores are written", [k, n], "float64", plan.n_tiles))
    found += [(name, [*cases, k], "float64", 1) for name in ("singular_values", "explained_variance")]
    found += [(name, [*cases, k], "float64", 1) for name in ("explained_variance_ratio", "projection_error")]
    rules = model.rules
    means = rules.center or rules.missing != "error"
    if keep_gram and samples and made.reads:
        kept = "r_factor" if made.attempts[0].rung.solver == "tsqr" else "gram"
        found += [(kept, [n, n], "float64", -(-8 * n * n // 2**26))]
        found += [("gram_mean_product", [n], "float64", 1), ("gram_mean_norm2", [], "float64", 1)]
        found += [("gram_norms2", [n], "float64", 1)]
        found += [("gram_sketch", [n, min(COLUMNS, n - rules.center)], "float64", 1)]
    if not made.reads:
        return _listed(found)
    # Chunks of zeros in the mean, and of ones in the others, are not written.
    found.append(("mean", features, "float64", tiles * means))
    scaled = not samples or rules.scale != "none" or rules.missing != "error"
    found.append(("scale", features, "float64", tiles * scaled))
    found.append(("weights", features, "float64", tiles * (not samples)))
    if components:
        parts = -(-k * (plan.tile_width if samples else d) * dtype.itemsize // 2**26)
        found.append(("components", [k, *features], dtype.name, tiles * parts))
    return _listed(found)


def _listed(found: list[tuple[str, list[int], str, int]]) -> list[dict[str, Any]]:
    """Arrays with their bytes, 0 where none of their chunks is written."""
    return [
        {
            "name": name,
            "shape": shape,
            "dtype": kind,
            "bytes": math.prod(shape) * np.dtype(kind).itemsize if files else 0,
            "files": files,
        }
        for name, shape, kind, files in found
    ]


def _seconds(
    made: RunPlan, model: Model, layout: Layout, rates: Rates, output_bytes: int, components: bool
) -> dict[str, float]:
    """Seconds of each stage: the work of all tasks, shared evenly."""
    at_once = min(made.n_tasks, made.plan.n_spans)
    read, seconds = rates.read * layout.bytes / at_once, {}
    if made.copy is not None:
        seconds["copy"] = read + rates.write * made.scratch_bytes
        # The copy is not compressed: reading it costs what writing it did, at most.
        read = min(read, rates.write * made.scratch_bytes)
    again = 0.0 if made.keeps_data else read
    if reads_means(made.plan, model, layout):
        seconds["means"] = read
        read = again
    if not made.reads:
        return {"kernel matrix": rates.read * layout.bytes, "eigensolve": rates.eigensolve}
    seconds[made.attempts[0].rung.name] = read + rates.product * layout.n_values / at_once
    seconds["eigensolve"] = rates.eigensolve * (model.kernels.n_cases if model.kernels else 1)
    second = second_pass(made.plan, components)
    if second:
        seconds[second] = again + rates.backprojection * layout.n_values / at_once + rates.write * output_bytes
        if second == "scores":
            seconds["signs"] = (
                3
                * rates.write
                * 8
                * made.plan.n_samples
                * model.most_components(made.plan.n_samples, made.plan.n_features)
            )
    return seconds


def _span_seconds(made: RunPlan, layout: Layout, rates: Rates, output_bytes: int) -> float:
    """Seconds of a span in one task, of the slower pass."""
    work = rates.read * layout.bytes + max(rates.product, rates.backprojection) * layout.n_values
    return (work + rates.write * output_bytes) / made.n_parts


def _rates(rates: Rates, m: int) -> dict[str, float]:
    """What the probe measured, in the units that people know; of one task while the others run."""
    return {
        "read_bytes_per_second": 1 / rates.read,
        "product_flops_per_second": m / rates.product,
        "write_bytes_per_second": 1 / rates.write,
    }


def _advice(made: RunPlan, layout: Layout, output_bytes: int, output_path: str) -> list[str]:
    """What would make the run cheaper, where something would."""
    found = []
    plan, process = made.plan, made.tightest
    better = by(better_chunks(layout, plan.samples_axis, plan.keeps))
    if made.reading == "copy":
        found.append(
            f"chunks of {by(layout.chunk_shape)} need a copy in scratch ({describe_bytes(made.scratch_bytes)}); stored in "
            f"chunks of {better}, the input would need none"
        )
    elif made.reading == "parts":
        found.append(
            f"columns of chunks of {by(layout.chunk_shape)} do not fit the budget, so parts of chunks are read; "
            f"chunks of {better} would be read whole"
        )
    if layout.chunked and layout.chunk_bytes < min(SMALL_CHUNK_BYTES, layout.bytes):
        found.append(
            f"chunks of {by(layout.chunk_shape)} are {describe_memory(layout.chunk_bytes)} each: opening one costs as "
            f"much as reading it; chunks of {better} would be read faster"
        )
    if made.n_tasks < made.wanted_tasks and made.wanted_tasks <= plan.n_spans:
        found.append(
            f"only {made.n_tasks} of {made.wanted_tasks} tasks at a time fit the budget; with compute.memory: "
            f"{enough(made.wanted_bytes)} all would"
        )
    found += [
        f"{rung.name} does not fit the memory: components that need it would be marked as not reliable"
        for rung in made.too_large
    ]
    found += [f"a coordinate will be left out of the result: {reason}" for reason in made.left_out]
    if process.budget.lowered:
        found.append(f"the budget is {process.budget.origin}")
    if output_bytes > free_disk(output_path):
        found.append(
            f"the result takes up to {describe_bytes(output_bytes)}, but {output_path} has "
            f"{describe_bytes(free_disk(output_path))} free: choose another output.path"
        )
    return found


def as_text(document: dict[str, Any]) -> str:
    """The document in lines, for people."""
    given, memory, output, scratch = (document[key] for key in ("input", "memory", "output", "scratch"))
    codec = "" if given["codec"] == "none" else f" ({given['codec']})"
    chunks = f" in chunks of {by(tuple(given['chunks']))}{codec}" if document["reading"]["kind"] != "anywhere" else ""
    stages, streamed = document["time"]["stages"], "features" if document["keeps"] == "samples" else "samples"
    rates = document["time"]["rates"]
    lines = [
        f"input    {given['name']}: {by(tuple(given['shape']))} {given['dtype']}{chunks}, {describe_bytes(given['bytes'])}",
        f"         {document['n_samples']:,} samples, {document['n_features']:,} features, {document['n_components']} "
        + ("components" if document["kernels"] is None else f"components of each of {document['kernels']} kernels"),
        f"solver   {document['solver_reason']}",
        f"reading  {document['reading']['meaning']}",
        f"         {document['slabs']:,} slabs of {describe_memory(document['slab_bytes'])} "
        f"({document['slab_width']:,} {streamed}) in {document['tiles']:,} tiles and {document['spans']:,} spans, "
        f"{document['tasks']} at a time",
        f"passes   {len(document['passes'])} (at worst {document['worst_case_passes']}{_at_worst(document)}): "
        + ", ".join(
            f"{item['name']} {describe_bytes(item['bytes'])}"
            + (f" and {item['flops'] / 1e9:,.3g} GFLOP" if item["flops"] else "")
            for item in document["passes"]
        ),
        f"writes   up to {describe_bytes(output['bytes'])} in {output['files']:,} files to {output['path']} "
        f"({describe_bytes(output['free_bytes'])} free)",
        f"scratch  {describe_bytes(scratch['bytes'])} of {describe_bytes(scratch['free_bytes'])} free at {scratch['path']}"
        if scratch["bytes"]
        else "scratch  none",
        f"memory   {describe_memory(memory['expected_peak_bytes'])}"
        + (f", at worst {describe_memory(memory['peak_bytes'])}," if document["worst_case"] else "")
        + f" of {describe_memory(memory['budget_bytes'])}, {memory['budget_origin']}",
    ]
    for process in memory["processes"]:
        if process["name"] != "dpca":
            lines.append(f"         {process['count']} x {process['name']}: {describe_memory(process['peak_bytes'])}")
        for stage in process["stages"]:
            lines.append(f"           {stage['name']}: {describe_memory(stage['bytes'])}")
            lines.extend(
                f"             {describe_memory(array['bytes'] * array['count']):>9}  "
                + (f"{array['count']} x " if array["count"] > 1 else "")
                + array["name"]
                for array in stage["arrays"]
                if array["bytes"] * array["count"] >= LISTED_BYTES
            )
    lines.append(
        f"time     about {_duration(document['time']['seconds'])}: "
        + ", ".join(f"{name} {_duration(value)}" for name, value in stages.items())
        + f" (measured in one task: reading {describe_bytes(rates['read_bytes_per_second'])}/s, products "
        f"{rates['product_flops_per_second'] / 1e9:.3g} GFLOP/s, disk {describe_bytes(rates['write_bytes_per_second'])}/s)"
    )
    lines.extend(f"advice   {sentence}" for sentence in document["advice"] or ["none: this is a good way to read it"])
    return "\n".join(lines)


def _at_worst(document: dict[str, Any]) -> str:
    names = [item["name"] for item in document["worst_case"]]
    rungs = [name for name in names if " of " not in name]
    again = ", each with a second pass" if len(names) > len(rungs) else ""
    return f": {' and '.join(rungs)}{again}, if components need them" if names else ""


def _duration(seconds: float) -> str:
    return f"{seconds:.2g} s" if seconds < 60 else describe_seconds(seconds)
