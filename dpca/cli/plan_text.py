"""The forecast of a run as lines of text, for people (`dpca.planning.forecast` makes it)."""

from __future__ import annotations

from typing import Any

from dpca.units import by, describe_bytes, describe_memory, describe_seconds, of_stored

LISTED_BYTES = 2**20
"""Arrays smaller than this are counted, but not listed for people."""


def as_text(document: dict[str, Any], arrays: bool = False) -> str:
    """The document as lines of text, for people.

    Parameters
    ----------
    arrays : also the arrays that each stage holds in memory
    """
    output, scratch = document["output"], document["scratch"]
    lines = [
        *(f"{'' if number else 'input':<9}{_described(one)}" for number, one in enumerate(document["inputs"])),
        f"         {document['n_samples']:,}{of_stored(document['n_stored'])} samples, {document['n_features']:,} features, {document['n_components']} "
        + ("components" if document["kernels"] is None else f"components of each of {document['kernels']} kernels"),
        f"solver   {document['solver_reason']}",
        f"reads    {_reads(document)}",
        f"memory   {_in_all(document['memory'], bool(document['worst_case']))}",
        *(_of_stages(document["memory"]) if arrays else ()),
        f"disk     up to {describe_bytes(output['bytes'])} in {output['files']:,} files to {output['path']} ({describe_bytes(output['free_bytes'])} free)"
        + (
            f"; a copy of the input, {describe_bytes(scratch['bytes'])} of {describe_bytes(scratch['free_bytes'])} free at {scratch['path']}"
            if scratch["bytes"]
            else ""
        ),
        f"time     {_time(document)}",
    ]
    solvers = document.get("solvers", [])
    if len(solvers) > 1:
        lines.extend(f"{'' if number else 'solvers':<9}{_of_solver(one)}" for number, one in enumerate(solvers))
    lines.extend(f"{'' if number else 'advice':<9}{sentence}" for number, sentence in enumerate(document["advice"]))
    return "\n".join(lines)


def _reads(document: dict[str, Any]) -> str:
    """How often the data are read, at worst, and in which parts, in words."""
    whole = document["input"]["bytes"]

    def times(n_bytes: float) -> str:
        number = f"{n_bytes / whole:.3g}" if whole else "0"
        return f"{number} read" + "s" * (number != "1")

    read, worst = document["bytes_read"], sum(item["bytes"] for item in document["worst_case"])
    kept = ", then kept in memory" if document["reading"]["keeps_data"] else ""
    at_worst = f"; at worst {times(read + worst)}{_at_worst(document)}" if worst else ""
    streamed = "features" if document["keeps"] == "samples" else "samples"
    return (
        f"{times(read)} of {describe_bytes(whole)}{kept}{at_worst}; {document['slabs']:,} slabs of {describe_memory(document['slab_bytes'])} "
        f"({document['slab_width']:,} {streamed}), {document['tasks']} at a time"
    )


def _in_all(memory: dict[str, Any], more: bool) -> str:
    """The memory of a run, and of each kind of process where there are several, in words."""
    worst = f", at worst {describe_memory(memory['peak_bytes'])}," if more else ""
    others = [
        f"{process['count']} x {process['name']} {describe_memory(process['peak_bytes'])}"
        for process in memory["processes"]
        if process["name"] != "dpca"
    ]
    return (
        f"{describe_memory(memory['expected_peak_bytes'])}{worst} of {describe_memory(memory['budget_bytes'])}, {memory['budget_origin']}"
        + (f" ({', '.join(others)})" if others else "")
    )


def _of_stages(memory: dict[str, Any]) -> list[str]:
    """The larger arrays that each stage of each process holds."""
    lines = []
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
    return lines


def _time(document: dict[str, Any]) -> str:
    """The time of a run, of its stages, and what most of it goes to, in words."""
    time, rates = document["time"], document["time"]["rates"]
    stages = ", ".join(f"{name} {_duration(seconds)}" for name, seconds in time["stages"].items())
    of = {
        "reading": document["bytes_read"] / rates["read_bytes_per_second"],
        "products": document["flops"] / rates["product_flops_per_second"],
        "writing": document["output"]["bytes"] / rates["write_bytes_per_second"],
    }
    most = max(of, key=lambda name: of[name])
    return (
        f"about {_duration(time['seconds'])} ({stages}), most of it {most} (measured in one task: reading "
        f"{describe_bytes(rates['read_bytes_per_second'])}/s, products {rates['product_flops_per_second'] / 1e9:.3g} GFLOP/s, "
        f"disk {describe_bytes(rates['write_bytes_per_second'])}/s)"
    )


def _of_solver(found: dict[str, Any]) -> str:
    """Costs of a solver, in words."""
    if not found["fits"]:
        needed = found["memory_bytes"]
        return f"{found['solver']} does not fit" + (
            f": it needs {describe_memory(needed)}" if needed else f": {found['why']}"
        )
    worst = f" (at worst {found['worst_case_passes']})" if found["worst_case_passes"] > found["passes"] else ""
    return (
        f"{found['solver']}: {found['passes']} passes{worst}, {describe_bytes(found['bytes_read'])} read, {found['flops'] / 1e9:,.3g} GFLOP, "
        f"{describe_memory(found['memory_bytes'])}, about {_duration(found['seconds'])}"
    )


def _described(data: dict[str, Any]) -> str:
    """An input in words."""
    codec = "" if data["codec"] == "none" else f" ({data['codec']})"
    chunks = f" in chunks of {by(tuple(data['chunks']))}{codec}" if data["reading"] != "anywhere" else ""
    group = f"{data['group']}, " if data["group"] else ""
    return f"{group}{data['name']}: {by(tuple(data['shape']))} {data['dtype']}{chunks}, {describe_bytes(data['bytes'])}"


def _at_worst(document: dict[str, Any]) -> str:
    names = [item["name"] for item in document["worst_case"]]
    if document["solver"] == "block_krylov":
        return " (if components differ little from what is around them)" if names else ""
    rungs = [name for name in names if " of " not in name]
    return f" ({' and '.join(rungs)}, if components need them)" if names else ""


def _duration(seconds: float) -> str:
    return f"{seconds:.2g} s" if seconds < 60 else describe_seconds(seconds)
