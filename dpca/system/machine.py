"""What this machine lets a process have, and what a process has taken.

Memory limits come from the machine itself, from control groups (version 1 and 2, at every level above the
process, since a batch system sets them on a parent) and from Slurm's environment, where it allots memory
without enforcing it by a group. The lowest one counts.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import psutil

from dpca.units import describe_memory

SAMPLE_SECONDS = 0.1
ALLOCATOR_BYTES = 16 * 2**20
"""Blocks larger than this go back to the system when they are freed; a thread's arena keeps no more."""
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
# Version 1 says "no limit" with the largest multiple of a page below 2^63.
_NO_LIMIT = 2**60


@dataclass(frozen=True)
class Limit:
    """A bound on memory."""

    bytes: int
    """What may be used in all."""
    free: int
    """What is left of it now."""
    name: str
    """Who sets it."""


@dataclass(frozen=True)
class Budget:
    """The memory that a run may use."""

    bytes: int
    origin: str
    """Where the figure comes from, in words."""
    lowered: bool = False
    """Whether less than was asked for, since a limit is lower."""


def memory_limits(environ: Mapping[str, str] | None = None, root: Path = Path("/")) -> list[Limit]:
    """Every bound on the memory of this process that can be found.

    Parameters
    ----------
    environ : instead of os.environ
    root : where /proc and /sys are
    """
    memory = psutil.virtual_memory()
    limits = [Limit(memory.total, memory.available, "this machine's memory"), *_control_groups(root)]
    allotted = _slurm(os.environ if environ is None else environ)
    if allotted:
        limits.append(Limit(allotted, max(0, allotted - private_bytes()), "Slurm's allocation"))
    return limits


def memory_budget(asked: int | None = None, limits: list[Limit] | None = None) -> Budget:
    """The memory to plan with: what is asked for, or half of what is free; never more than a limit.

    Parameters
    ----------
    asked : bytes, or None for half of what is free
    limits : instead of `memory_limits()`
    """
    limits = memory_limits() if limits is None else limits
    lowest = min(limits, key=lambda limit: limit.bytes)
    if asked is None:
        tightest = min(limits, key=lambda limit: limit.free)
        return Budget(tightest.free // 2, f"half of the {describe_memory(tightest.free)} free of {tightest.name}")
    if asked > lowest.bytes:
        # Others may be in the same group: what they hold is not to be had.
        mine = min(lowest.bytes, lowest.free + private_bytes())
        origin = f"what is free of {lowest.name}, {describe_memory(lowest.bytes)}, which is less than the "
        return Budget(mine, f"{origin}{describe_memory(asked)} asked for", lowered=True)
    return Budget(asked, "as asked for")


def free_disk(path: str | os.PathLike[str]) -> int:
    """Bytes that can be written at a path, or where its first directory that exists is."""
    place = Path(path).absolute()
    while not place.exists():
        place = place.parent
    return shutil.disk_usage(place).free


def private_bytes(pid: int | None = None) -> int:
    """Private memory of a process: pages that no other process shares; the page cache is not in it."""
    try:
        with open(f"/proc/{pid or os.getpid()}/smaps_rollup", encoding="ascii") as file:
            return 1024 * sum(int(line.split()[1]) for line in file if line.startswith("Private_"))
    except OSError:
        uss: int = psutil.Process(pid).memory_full_info().uss
        return uss


@lru_cache
def bound_allocator() -> None:
    """Have glibc return freed memory, for the rest of this process; elsewhere this does nothing.

    By default it learns to keep blocks of up to 32 MiB, and up to 64 MiB in the arena of each thread, so what
    one chunk took stays taken while the next stage of the run takes its own: 410 MiB instead of 280 at
    n = 2000. Fixed thresholds cost no time that could be measured (mallopt(3)).
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, ALLOCATOR_BYTES)
        mallopt(_M_TRIM_THRESHOLD, ALLOCATOR_BYTES)


def release_memory() -> None:
    """Have glibc return what was freed in the arenas of all threads, a millisecond's work; elsewhere this does nothing."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


class Peak:
    """The private memory of this process."""

    bytes = 0
    """The most that was seen."""
    now = 0

    def __init__(self) -> None:
        self.stages: dict[str, int] = {}
        """The most that was seen in each stage."""
        self._stage = ""

    def enter(self, stage: str) -> None:
        """What is seen from now on is of this stage."""
        self._stage = stage
        self.look()

    def look(self) -> None:
        """Take a sample."""
        stage, self.now = self._stage, private_bytes()
        self.bytes = max(self.bytes, self.now)
        self.stages[stage] = max(self.stages.get(stage, 0), self.now)


@contextmanager
def watched_memory(seconds: float = SAMPLE_SECONDS) -> Iterator[Peak]:
    """Sample the private memory of this process while the block runs, and when it ends."""
    peak, ended = Peak(), threading.Event()

    def sample() -> None:
        while True:
            peak.look()
            if ended.wait(seconds):
                return

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        ended.set()
        thread.join()
        peak.look()  # what came after the last sample counts


def _control_groups(root: Path) -> Iterator[Limit]:
    """Limits of the control groups that this process is in, and of the groups around them."""
    try:
        lines = (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            mounts, names = ["sys/fs/cgroup", "sys/fs/cgroup/unified"], ("memory.max", "memory.current")
        elif "memory" in controllers.split(","):
            mounts, names = ["sys/fs/cgroup/memory"], ("memory.limit_in_bytes", "memory.usage_in_bytes")
        else:
            continue
        for mount in mounts:
            group = root / mount / path.lstrip("/")
            # A container may see its own group as the root of the mount, under a path that is not there.
            for level in (group, *group.parents):
                limit, used = (_number(level / name) for name in names)
                if limit is not None and used is not None and limit < _NO_LIMIT:
                    used -= _reclaimable(level / "memory.stat")
                    yield Limit(limit, max(0, limit - used), f"control group {_shown(level, root / mount)}")
                if level == root / mount:
                    break


def _shown(level: Path, mount: Path) -> str:
    return "/" if level == mount else f"/{level.relative_to(mount)}"


def _number(path: Path) -> int | None:
    try:
        text = path.read_text(encoding="ascii").strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None  # "max" is no limit


def _reclaimable(stat: Path) -> int:
    """Page cache that the kernel drops before it refuses memory: it counts as used, but is free."""
    try:
        found = dict(line.split() for line in stat.read_text(encoding="ascii").splitlines())
    except (OSError, ValueError):
        return 0
    return int(found.get("total_inactive_file", found.get("inactive_file", 0)))


def _slurm(environ: Mapping[str, str]) -> int | None:
    """Memory that Slurm allots on this node, in bytes; its variables count in MiB, 0 means all."""
    per_node, per_cpu = environ.get("SLURM_MEM_PER_NODE", ""), environ.get("SLURM_MEM_PER_CPU", "")
    cpus = environ.get("SLURM_CPUS_ON_NODE", "1")
    if per_node.isdigit() and int(per_node):
        return int(per_node) * 2**20
    if per_cpu.isdigit() and int(per_cpu) and cpus.isdigit():
        return int(per_cpu) * int(cpus) * 2**20
    return None
