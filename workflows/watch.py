"""A command, watched: how long it takes and how much private memory its processes hold."""

import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

SAMPLE_SECONDS = 0.05


@dataclass(frozen=True)
class Watched:
    """What a command took."""

    seconds: float
    peak_bytes: int
    said: str
    code: int
    cpu_seconds: float
    """Of its processes together, in the system, too."""


def private_bytes(root: psutil.Process) -> int:
    """Private memory of a process and all its descendants."""
    total = 0
    for process in [root, *root.children(recursive=True)]:
        try:
            rollup = Path(f"/proc/{process.pid}/smaps_rollup").read_text(encoding="ascii")
        except OSError:  # it has just ended
            continue
        total += sum(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Private_"))
    return 1024 * total


def _cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def watch(command: list[str], limit_seconds: float | None = None, limit_bytes: int | None = None) -> Watched:
    """Run a command to its end, or until it takes more than it may; private memory is sampled 20 times a second."""
    began, cpu, peak = time.perf_counter(), _cpu_of_children(), 0
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(command, stdout=said, stderr=said)
        while process.poll() is None:
            try:
                peak = max(peak, private_bytes(psutil.Process(process.pid)))
            except psutil.NoSuchProcess:
                break
            if (limit_bytes and peak > limit_bytes) or (limit_seconds and time.perf_counter() - began > limit_seconds):
                for child in psutil.Process(process.pid).children(recursive=True):
                    child.kill()
                process.kill()
            time.sleep(SAMPLE_SECONDS)
        code = process.wait()
        seconds = time.perf_counter() - began
        said.seek(0)
        return Watched(seconds, peak, said.read(), code, _cpu_of_children() - cpu)


def watched(command: list[str]) -> tuple[float, int]:
    """Seconds and peak private memory of a command; what it says is shown only if it fails."""
    done = watch(command)
    if done.code:
        sys.exit(f"{done.said}\n{' '.join(command)} failed with {done.code}")
    return done.seconds, done.peak_bytes
