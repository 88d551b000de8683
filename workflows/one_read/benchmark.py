"""Eight analyses by one `dpca run` and one `dpca derive`, beside a script for each of what their users would pick.

    python -m workflows.one_read.benchmark [--gib 2] [--seconds 600] [--only NAME ...]

Each is a process of its own, one after another: seconds, also of CPU, and private memory are of the whole of it, imports and files
included. Bytes are what it read of files after its imports (rchar of /proc/self/io). A script of xeofs, scipy, PyDMD or PySPOD
reads the field into memory, once, which is the fastest way as long as it fits. Answers are compared with dpca's: singular values,
eigenvalues of DMD, energies relative to the largest; the first solver of xeofs is randomized, and PySPOD's window is symmetric.
"""

import argparse
import json
import os
import resource
import sys
import tempfile
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from workflows.benchmarks.data import read_all
from workflows.one_read.make import make
from workflows.watch import watch

CONFIGS = Path("configs")
Values = list[float]
INSTEAD = {"windows": "windows of 50 PCs", "spectrum": "spectrum, single"}
"""What is tried where a script takes too much: a lesser answer in less memory."""


def field(data: str) -> Any:
    """The field in memory."""
    import xarray as xr

    return xr.open_zarr(data, consolidated=False)["temperature"].load()


def anomalies_of(x: Any) -> Any:
    """Less the mean of the same five days in all years."""
    days = x.groupby("time.dayofyear")
    return (days - days.mean("time")).drop_vars("dayofyear")


def detrended(x: Any) -> Any:
    """The same, less a line."""
    from scipy import signal

    x = anomalies_of(x)
    return x.copy(data=signal.detrend(x.values, axis=0))


def banded(x: Any) -> Any:
    """Anomalies of some frequencies."""
    from scipy import signal

    x, sections = anomalies_of(x), signal.butter(3, (0.07, 0.14), "bandpass", fs=1, output="sos")
    return x.copy(data=signal.sosfiltfilt(sections, x.values, axis=0))


def winters(x: Any) -> Any:
    """Those of December to February."""
    x = detrended(x)
    return x.sel(time=x["time.season"] == "DJF")


def weighted(x: Any) -> np.ndarray:
    """Times the root of the cosine of latitude, features along one axis."""
    roots = np.sqrt(np.cos(np.deg2rad(x["lat"]))).astype(x.dtype)
    return (x * roots).transpose("time", "lat", "lon").values.reshape(len(x), -1)


def eof(x: Any, n_modes: int, kind: str = "EOF", **settings: Any) -> Values:
    """Singular values of a model of xeofs, its maps made."""
    import xeofs

    model = getattr(xeofs.single, kind)(n_modes=n_modes, use_coslat=True, random_state=0, **settings).fit(x, dim="time")
    model.components().load()
    return model.singular_values().values.astype(float).tolist()


def dmd(x: Any) -> Values:
    """Magnitudes of eigenvalues of PyDMD."""
    import pydmd

    return sorted(np.abs(pydmd.DMD(svd_rank=6, exact=True).fit(weighted(x).T).eigs).tolist())


def spod(x: Any, dtype: str) -> Values:
    """Leading energies of PySPOD: blocks of 96 steps, half of which the next one shares; two modes at each frequency, which it writes to files."""
    from pyspod.spod.standard import Standard

    with tempfile.TemporaryDirectory(dir=".") as place:
        settings = {"time_step": 1, "n_space_dims": 1, "n_variables": 1, "n_dft": 96, "overlap": 50}
        settings |= {"mean_type": "longtime", "dtype": dtype, "n_modes_save": 2, "savedir": str(Path(place).absolute())}
        energies = Standard(settings).fit(data_list=weighted(x)[:, :, None]).eigs.real[1:-1, 0]
    return (energies / energies.max()).tolist()


SCRIPTS: dict[str, tuple[str, Callable[[Any], Values]]] = {
    "anomalies": ("xeofs", lambda x: eof(detrended(x), 10)),
    "winters": ("xeofs", lambda x: eof(winters(x), 5)),
    "months": ("xeofs", lambda x: eof(banded(x), 5)),
    "years": ("xeofs", lambda x: eof(x.groupby("time.year").mean().rename(year="time"), 5)),
    "windows": ("xeofs", lambda x: eof(detrended(x), 6, "ExtendedEOF", tau=1, embedding=12)),
    "windows of 50 PCs": ("xeofs", lambda x: eof(detrended(x), 6, "ExtendedEOF", tau=1, embedding=12, n_pca_modes=50)),
    "waves": ("xeofs", lambda x: eof(detrended(x), 5, "HilbertEOF", padding="none")),
    "modes": ("pydmd", lambda x: dmd(detrended(x))),
    "spectrum": ("pyspod.spod.standard", lambda x: spod(detrended(x), "double")),
    "spectrum, single": ("pyspod.spod.standard", lambda x: spod(detrended(x), "single")),
}
"""By name, a package that is imported first, and what is done to the field."""


def commands(data: Path, out: Path) -> dict[str, list[str]]:
    """`dpca run` and `dpca derive`, with the configs of the workflow."""
    derived = ["--set", f"from={out}/run", "--set", f"output.path={out}/derived", "--set", "output.report=false"]
    read = ["--set", f"input.uri={data}", "--set", f"output.path={out}/run", "--set", "output.report=false"]
    return {
        "dpca run": ["run", str(CONFIGS / "one_read.yaml"), "--overwrite", *read],
        "dpca derive": ["derive", str(CONFIGS / "one_read-derived.yaml"), "--overwrite", *derived],
    }


def by_dpca(arguments: list[str]) -> Values:
    """A command; what it found is read from its result afterwards."""
    from dpca.cli.app import main as command

    try:
        command(arguments)
    except SystemExit as stop:
        if stop.code:
            raise
    return []


def values_of(derived: Path) -> dict[str, Values]:
    """What the analyses of dpca found, to compare with."""
    import zarr

    group = zarr.open_group(str(derived / "result.zarr"), mode="r")
    found = {
        name: group[f"{name}/singular_values"][...].tolist()
        for name in ("anomalies", "winters", "months", "years", "windows", "waves")
    }
    energies = group["spectrum/energies"][1:-1, 0]
    found["modes"] = sorted(np.abs(group["modes/eigenvalues"][...]).tolist())
    return found | {"spectrum": (energies / energies.max()).tolist()}


def bytes_read() -> int:
    """Of this process, from disk or page cache."""
    lines = Path("/proc/self/io").read_text(encoding="ascii").split()
    return int(lines[lines.index("rchar:") + 1])


def once(words: list[str]) -> None:
    """In a process of its own: a command of dpca, or a script, and what it read."""
    package, work = SCRIPTS.get(words[0], (f"dpca.commands.{words[1]}", None))
    import_module(package)
    before = bytes_read()
    values = by_dpca(words[1:]) if work is None else work(field(words[1]))
    read, used = bytes_read() - before, resource.getrusage(resource.RUSAGE_SELF)
    found = {"bytes_read": read, "cpu_seconds": used.ru_utime + used.ru_stime, "values": values}
    print("\nRESULT " + json.dumps(found), flush=True)


def measured(words: list[str], seconds: float, most: int) -> dict[str, Any]:
    """Seconds, memory and what is printed; or why there is none."""
    done = watch([sys.executable, "-m", "workflows.one_read.benchmark", "--once", *words], seconds, most)
    found = {"seconds": done.seconds, "peak_bytes": done.peak_bytes}
    results = [line.removeprefix("RESULT ") for line in done.said.splitlines() if line.startswith("RESULT ")]
    if done.code or not results:
        last = (done.said.strip().splitlines() or ["killed"])[-1][:120]
        why = f"more than {most / 2**30:.0f} GiB" if done.peak_bytes > most else last
        why = f"more than {seconds:g} s" if done.seconds > seconds else why
        return {**found, "failed": why}
    return {**found, **json.loads(results[-1])}


def line(name: str, found: dict[str, Any], stored: int) -> str:
    """A row of the table."""
    memory = f"{found['peak_bytes'] / 2**30:.1f} GiB"
    if "failed" in found:
        return f"| {name} | stopped after {found['seconds']:.0f} s: {found['failed']} | | | {memory} | |"
    error = f"{found['error']:.0e}" if "error" in found else ""
    read = f"{found['bytes_read'] / 1e9:.2f} GB, {found['bytes_read'] / stored:.1f} times"
    return f"| {name} | {found['seconds']:.1f} | {found['cpu_seconds']:.1f} | {read} | {memory} | {error} |"


def main() -> None:
    """Make the field, unless it is there, and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gib", type=float, default=2.0, help="size of the field, in GiB")
    parser.add_argument("--seconds", type=float, default=600, help="after which a process is stopped")
    parser.add_argument(
        "--memory", type=float, help="private memory, in GiB, above which it is stopped; 90 %% of what is free"
    )
    parser.add_argument("--only", nargs="+", choices=SCRIPTS, help="these scripts beside dpca")
    parser.add_argument("--directory", type=Path, default=Path("dpca-bench"))
    parser.add_argument("--once", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.once:
        once(given.once)
        return
    place = given.directory.absolute() / f"one_read-{given.gib:g}"
    data = place / "field.zarr"
    if not (place / "made").exists():
        place.mkdir(parents=True, exist_ok=True)
        make(place, given.gib)
        (place / "made").touch()
    stored = sum(path.stat().st_size for path in data.rglob("*") if path.is_file())
    report: dict[str, Any] = {
        "gib": given.gib,
        "stored_bytes": stored,
        "cores": os.cpu_count(),
        "load": os.getloadavg(),
        "measured": {},
    }
    print(
        f"{stored / 1e9:.2f} GB stored\n\n| | seconds | of CPU | read | memory | differs from dpca by |\n| --- | --- | --- | --- | --- | --- |",
        flush=True,
    )

    def measure(name: str, words: list[str], compared: Values | None = None) -> bool:
        read_all(data)
        free = 0.9 * psutil.virtual_memory().available
        found = measured(words, given.seconds, int(given.memory * 2**30 if given.memory else free))
        if values := found.pop("values", None):
            found["error"] = float(np.abs(np.array(values) / np.array(compared) - 1).max())
        report["measured"][name] = found
        print(line(name, found, stored), flush=True)
        return "failed" not in found

    def total(name: str, names: list[str]) -> None:
        done = [report["measured"][one] for one in names if "failed" not in report["measured"][one]]
        sums = {key: sum(found[key] for found in done) for key in ("seconds", "cpu_seconds", "bytes_read")}
        print(line(name, {**sums, "peak_bytes": max(found["peak_bytes"] for found in done)}, stored), flush=True)

    for name, words in commands(data, place).items():
        if not measure(name, ["dpca", *words]):
            sys.exit("dpca failed")
    total("dpca, all eight", ["dpca run", "dpca derive"])
    right = values_of(place / "derived")
    chosen = given.only or [name for name in SCRIPTS if name not in INSTEAD.values()]
    for name in chosen:
        if not measure(name, [name, str(data)], right[name]) and name in INSTEAD:
            measure(INSTEAD[name], [INSTEAD[name], str(data)], right[name])
    total("scripts that ended", [name for name in report["measured"] if not name.startswith("dpca")])
    (given.directory / "one_read.json").write_text(json.dumps(report, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
