"""Memory and disk that a process may use on this machine, and memory that it uses.

Memory limits come from the machine itself, from control groups (version 1 and 2, at every level above the
process, since a batch system sets them on a parent) and from Slurm's environment, since Slurm may allot
memory without enforcing it by a group. The lowest limit counts.
"""

from __future__ import annotations

import ctypes
import math
import os
import resource
import shutil
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import psutil

from dpca.units import describe_memory

LIBRARIES_BYTES = 160 * 2**20
"""Interpreter and imported libraries: 66 to 110 MiB measured, plus the buffers of BLAS."""
SAMPLE_SECONDS, COUNT_SECONDS = 0.1, 1.0
"""How often the memory of a run is looked at, and counted where it is no higher than it was."""
HIGHER_BYTES = 2**20
"""By how much it has to be higher to be counted at once."""
ALLOCATOR_BYTES = 16 * 2**20
"""Larger blocks go back to the system when they are freed; the arena of a thread keeps no more than this."""
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
# Version 1 says "no limit" with the largest multiple of a page below 2^63.
_NO_LIMIT = 2**60


@dataclass(frozen=True)
class Limit:
    """A bound on memory."""

    bytes: int
    """Bytes that may be used in all."""
    free: int
    """Bytes of it that are free now."""
    name: str
    """The origin of the limit, in words."""


@dataclass(frozen=True)
class Budget:
    """The memory that a run may use."""

    bytes: int
    origin: str
    """The origin of the number, in words."""
    lowered: bool = False
    """Whether it is less than was asked for, because a limit is lower."""


def memory_limits(environ: Mapping[str, str] | None = None, root: Path = Path("/")) -> list[Limit]:
    """Every known limit on the memory of this process.

    Parameters
    ----------
    environ : used instead of os.environ
    root : the directory of proc and sys
    """
    memory = psutil.virtual_memory()
    limits = [Limit(memory.total, memory.available, "this machine's memory"), *_control_groups(root)]
    allotted = _slurm(os.environ if environ is None else environ)
    if allotted:
        limits.append(Limit(allotted, max(0, allotted - private_bytes()), "Slurm's allocation"))
    return limits


def memory_budget(asked: int | None = None, limits: list[Limit] | None = None) -> Budget:
    """The memory to plan with: the amount asked for, or half of the free memory; never more than a limit.

    Parameters
    ----------
    asked : bytes, or None for half of the free memory
    limits : used instead of `memory_limits()`
    """
    limits = memory_limits() if limits is None else limits
    lowest = min(limits, key=lambda limit: limit.bytes)
    if asked is None:
        tightest = min(limits, key=lambda limit: limit.free)
        return Budget(tightest.free // 2, f"half of the {describe_memory(tightest.free)} free of {tightest.name}")
    if asked > lowest.bytes:
        # Other processes may be in the same group: the memory that they hold is not available.
        mine = min(lowest.bytes, lowest.free + private_bytes())
        origin = f"what is free of {lowest.name}, {describe_memory(lowest.bytes)}, which is less than the "
        return Budget(mine, f"{origin}{describe_memory(asked)} asked for", lowered=True)
    return Budget(asked, "as asked for")


def free_disk(path: str | os.PathLike[str]) -> int:
    """Free bytes on the disk of a path, or of its nearest directory that exists."""
    return shutil.disk_usage(_existing(path)).free


def disk_of(path: str | os.PathLike[str]) -> int:
    """Number that tells the disk of a path, or of its nearest directory that exists, from others."""
    return os.stat(_existing(path)).st_dev


def _existing(path: str | os.PathLike[str]) -> Path:
    place = Path(path).absolute()
    while not place.exists():
        place = place.parent
    return place


def private_bytes(pid: int | None = None) -> int:
    """Private memory of a process in bytes: pages that no other process shares, without the page cache."""
    try:
        with open(f"/proc/{pid or os.getpid()}/smaps_rollup", encoding="ascii") as file:
            return 1024 * sum(int(line.split()[1]) for line in file if line.startswith("Private_"))
    except OSError:
        uss: int = psutil.Process(pid).memory_full_info().uss
        return uss


@lru_cache
def bound_allocator() -> None:
    """Make glibc return freed memory to the system, from now on; without glibc this does nothing.

    By default glibc learns to keep blocks of up to 32 MiB, and up to 64 MiB in the arena of each thread, so that
    memory freed by one stage of the run is still taken when the next stage allocates its own: 410 MiB instead of
    280 at n = 2000. Fixed thresholds cost no measurable time (mallopt(3)).
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, ALLOCATOR_BYTES)
        mallopt(_M_TRIM_THRESHOLD, ALLOCATOR_BYTES)


def release_memory() -> None:
    """Make glibc return freed memory of all arenas now, which takes about 1 ms; without glibc this does nothing."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def resident_bytes() -> int:
    """Memory of this process without mapped files, as the system counts it: at once, but some MB off where there are many cores."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            _, resident, of_files, *_ = map(int, file.read().split())
    except OSError:
        return private_bytes()
    return (resident - of_files) * resource.getpagesize()


class Peak:
    """The private memory of this process, sampled.

    To count it, the system walks over all pages, which takes 8 ms for 300 MB (measured), and holds up threads that ask for memory. So it is counted
    where the resident memory, which is known at once, is higher than at any sample before in the stage, and else once a second.
    """

    bytes = 0
    """The largest sample."""
    now = 0

    def __init__(self) -> None:
        self.stages: dict[str, int] = {}
        """The largest sample of each stage, except of those that were over before one was taken."""
        self._stage, self._counted = "", -math.inf
        self._highest: dict[str, int] = {}
        """The highest resident memory of each stage so far."""

    def enter(self, stage: str) -> None:
        """Begin a stage: the samples from now on belong to it. A stage that ends before the next one has none."""
        self._stage = stage

    def look(self) -> None:
        """Take a sample, and count the memory if that may be higher than it was."""
        higher = resident_bytes() > self._highest.get(self._stage, -HIGHER_BYTES) + HIGHER_BYTES
        if higher or time.monotonic() - self._counted >= COUNT_SECONDS:
            self.count()

    def count(self) -> None:
        """Take a sample, and count the memory."""
        stage, resident, self._counted = self._stage, resident_bytes(), time.monotonic()
        self.now = private_bytes()
        self._highest[stage] = max(self._highest.get(stage, 0), resident)
        self.bytes = max(self.bytes, self.now)
        self.stages[stage] = max(self.stages.get(stage, 0), self.now)


@contextmanager
def watched_memory(seconds: float = SAMPLE_SECONDS) -> Iterator[Peak]:
    """Sample the private memory of this process when the block begins, while it runs, and when it ends."""
    peak, ended = Peak(), threading.Event()
    peak.look()

    def sample() -> None:
        while not ended.wait(seconds):
            peak.look()

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        ended.set()
        thread.join()
        peak.count()  # memory taken since the last sample counts, too


def _control_groups(root: Path) -> Iterator[Limit]:
    """Limits of the control groups of this process, and of the groups above them."""
    for mount, level, version in _groups(root, "memory"):
        names = ("memory.limit_in_bytes", "memory.usage_in_bytes") if version == 1 else ("memory.max", "memory.current")
        limit, used = (_number(level / name) for name in names)
        if limit is not None and used is not None and limit < _NO_LIMIT:
            used -= _reclaimable(level / "memory.stat")
            yield Limit(limit, max(0, limit - used), f"control group {_shown(level, mount)}")


def _groups(root: Path, controller: str) -> Iterator[tuple[Path, Path, int]]:
    """The control groups of this process that limit something, and those above them: mount, directory, version."""
    try:
        lines = (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            mounts, version = ["sys/fs/cgroup", "sys/fs/cgroup/unified"], 2
        elif controller in controllers.split(","):
            mounts, version = [f"sys/fs/cgroup/{controller}", f"sys/fs/cgroup/{controllers}"], 1
        else:
            continue
        for mount in dict.fromkeys(mounts):
            group = root / mount / path.lstrip("/")
            # A container may see its own group as the root of the mount, and a path that does not exist there.
            for level in (group, *group.parents):
                yield root / mount, level, version
                if level == root / mount:
                    break


def cores(root: Path = Path("/")) -> int:
    """Cores that this process may use, by its affinity and by the quotas of its control groups, rounded up.

    `dask.system.cpu_count` looks at the innermost group alone, and importing Dask takes longer than a small run.
    """
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    for _, level, version in _groups(root, "cpu"):
        if version == 1:
            quota, period = _number(level / "cpu.cfs_quota_us"), _number(level / "cpu.cfs_period_us")
        else:
            quota, period = _quota(level / "cpu.max")
        if quota and period and quota > 0:
            count = min(count, -(-quota // period))
    return count


def _quota(path: Path) -> tuple[int | None, int | None]:
    """Microseconds that a group may use, and in how many; None where there is no limit."""
    try:
        quota, period = path.read_text(encoding="utf-8").split()
        return int(quota), int(period)
    except (OSError, ValueError):  # "max" is no limit
        return None, None


def _shown(level: Path, mount: Path) -> str:
    return "/" if level == mount else f"/{level.relative_to(mount)}"


def _number(path: Path) -> int | None:
    try:
        text = path.read_text(encoding="ascii").strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None  # "max" is no limit


def _reclaimable(stat: Path) -> int:
    """Bytes of page cache that the kernel drops before it refuses memory: counted as used, but in fact free."""
    try:
        values = dict(line.split() for line in stat.read_text(encoding="ascii").splitlines())
    except (OSError, ValueError):
        return 0
    return int(values.get("total_inactive_file", values.get("inactive_file", 0)))


def _slurm(environ: Mapping[str, str]) -> int | None:
    """Memory that Slurm allots on this node, in bytes; its variables are in MiB, and 0 means all."""
    per_node, per_cpu = environ.get("SLURM_MEM_PER_NODE", ""), environ.get("SLURM_MEM_PER_CPU", "")
    cpus = environ.get("SLURM_CPUS_ON_NODE", "1")
    if per_node.isdigit() and int(per_node):
        return int(per_node) * 2**20
    if per_cpu.isdigit() and int(per_cpu) and cpus.isdigit():
        return int(per_cpu) * int(cpus) * 2**20
    return None
