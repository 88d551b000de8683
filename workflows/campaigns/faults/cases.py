"""A command of dpca in a process of its own that something happens to, and what came of it."""

from __future__ import annotations

import os
import re
import shlex
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from multiprocessing import get_context
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from distributed import LocalCluster

from dpca.cli.app import main
from workflows.campaigns.faults.hooks import in_small_slabs

if TYPE_CHECKING:
    from workflows.campaigns.faults.subjects import Subject

HANGING_SECONDS = 180.0
# Processes are forked from one that has imported all of dpca, and done nothing: the start is most of what a small command costs.
FORKS = get_context("forkserver")
FORKS.set_forkserver_preload(
    [f"dpca.commands.{name}" for name in ("run", "extend", "derive", "apply", "export", "batch")]
    + [
        "dpca.analyses.config",
        "dpca.execution.clusters",
        "dpca.sources.hdf5",
        "h5netcdf",
        "xarray.backends.h5netcdf_",
        "pandas",
        "sparse",
        "workflows.campaigns.faults.cases",
    ]
)

Hook = Callable[[], object]
"""Changes a process before its command begins; of a function of `hooks`, as it travels there."""


def carry_out(place: Path, words: list[str], log: Path, hooks: tuple[Hook, ...]) -> None:
    """Be `dpca`."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # without a traceback where dpca has not begun, or has ended
    os.setsid()
    os.chdir(place)
    said = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(said, 1)
    os.dup2(said, 2)
    sys.argv = ["dpca", *words]
    for hook in (in_small_slabs, *hooks):
        hook()
    main(words)


class Process:
    """`dpca`, as it was called."""

    def __init__(self, place: Path, words: str, log: Path, hooks: tuple[Hook, ...]) -> None:
        self.words, self._log, self.began = words, log, time.monotonic()
        self.killed = self.told = False
        """Whether it was killed, or asked to stop. One that had ended its work may then be ended by the signal itself."""
        self._process = FORKS.Process(target=carry_out, args=(place, shlex.split(words), log, hooks))
        self._process.start()

    @property
    def runs(self) -> bool:
        return self._process.exitcode is None

    def signalled(self, number: signal.Signals) -> bool:
        """Send a signal to it, once it is `dpca`, if it runs; whether it did."""
        while self.runs and not self._log.exists():
            time.sleep(0.001)
        if not self.runs:
            return False
        assert self._process.pid is not None
        try:
            os.kill(self._process.pid, number)
        except ProcessLookupError:  # it has ended, and the server that forks has not said so yet
            return False
        self.killed |= number is signal.SIGKILL
        self.told |= number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)
        return True

    def goes_on_in(self, seconds: float) -> None:
        """Let it go on after so many seconds, whatever is done meanwhile, if it was stopped."""

        assert self._process.pid is not None
        pid = self._process.pid

        def go_on() -> None:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

        threading.Timer(seconds, go_on).start()

    def end(self) -> int:
        """Wait for it; one that hangs is ended, with the code 124."""
        self._process.join(HANGING_SECONDS)
        if self.runs:
            self._process.kill()
            self._process.join()
            self._hung = True
        return 124 if getattr(self, "_hung", False) else self._process.exitcode or 0

    @property
    def seconds(self) -> float:
        """How long it ran."""
        self.end()
        return time.monotonic() - self.began

    @property
    def said(self) -> str:
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    @property
    def ended_well(self) -> bool:
        return self.end() == 0

    @property
    def ended_rightly(self) -> bool:
        """Whether it ended well, in a sentence that is one of dpca's, or as it was told to."""
        code, said = self.end(), self.said
        if "Traceback" in said or "defect" in said:
            return False
        if self.killed or code == 0:
            return True
        if self.told and ("dpca: stopped by SIG" in said or code in (-signal.SIGTERM, -signal.SIGINT, -signal.SIGUSR1)):
            return True
        return code in (1, 2, 3) and "dpca: error: " in said


@dataclass(frozen=True)
class Undisturbed:
    """A command that nothing happened to."""

    bits: Mapping[str, str]
    older: Mapping[str, str]
    """Bits of what was there before, that it replaces."""
    seconds: float
    writes: int
    reads: int


@dataclass
class Case:
    """One run of the campaign: a directory with the data, what it draws from, and the processes that it started."""

    place: Path
    subject: Subject
    undisturbed: Undisturbed
    draw: Random
    cluster: LocalCluster | None = None
    """Where its commands run, if not on this machine alone."""
    processes: list[Process] = field(default_factory=list)
    struck: bool = False
    tries: int = 0
    """How often it was tried before, and had ended before anything happened: each time it happens in half the time."""
    damaged: list[Damage] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    """What was damaged, and how."""
    wrong: list[str] = field(default_factory=list)
    """The first is what came of it."""
    hooks: tuple[Hook, ...] = ()
    """Of every process."""

    def begin(self, *hooks: Hook) -> Process:
        """Start what is disturbed."""
        return self.start(self.subject.first(self), *hooks)

    def start(self, words: str, *hooks: Hook) -> Process:
        if self.cluster is not None:
            where = f"compute.cluster={{scheduler: '{self.cluster.scheduler_address}'}}"
            words = f'{words} --set "{where}" --set compute.workers=auto'
        log = self.place.with_name(f"log-{len(self.processes)}")
        self.processes.append(Process(self.place, words, log, (*self.hooks, *hooks)))
        return self.processes[-1]

    def moment(self, process: Process, least: float = 0.0, most: float = 1.2) -> None:
        """Wait until a process is somewhere in its work; or has ended."""
        until = process.began + self.undisturbed.seconds * self.draw.uniform(least, most) / 2**self.tries
        while process.runs and time.monotonic() < until:
            time.sleep(0.002)

    def a_file(self, *patterns: str) -> Path | None:
        """One of those that are there: of each kind, by its name without numbers, as likely as of another."""
        kinds: dict[str, list[Path]] = {}
        for path in sorted({path for pattern in patterns for path in self.place.glob(pattern) if path.is_file()}):
            kinds.setdefault(re.sub("[0-9a-f]{8,}|[0-9]+", "#", path.name), []).append(path)
        return self.draw.choice(self.draw.choice(list(kinds.values()))) if kinds else None

    def damage(self, path: Path | None, how: str = "flip cut remove") -> None:
        """Flip a bit of a file, cut it short, or remove it."""
        if path is not None:
            self.struck = True
            self.damaged.append(Damage(path, self.draw.choice(how.split()), self.draw))
            self.told.append(f"{path.relative_to(self.place)}, {self.damaged[-1].how}")

    def repair(self) -> None:
        """Have the files as they were before they were damaged, with their times."""
        while self.damaged:
            self.damaged.pop().undo()

    def check(self) -> None:
        """Say what is wrong with what is there, after all processes have ended, and how each of them did."""
        self.wrong += [f"lost: {one.words} ended with {one.end()}" for one in self.processes if not one.ended_rightly]
        found, whole = bits(self.place / self.subject.made), self.undisturbed.bits
        known = found in (whole, self.undisturbed.older) or (
            "*" in self.subject.made and found.items() <= whole.items()
        )
        if found and not known and not self.damaged:
            self.wrong.append("falsified: what is there has other bits")
        made = self.place / self.subject.made
        harmed = any(made in damage.path.parents for damage in self.damaged)  # by this campaign
        if not found and self.undisturbed.older and not harmed and not self.subject.is_underway(self.place):
            self.wrong.append("lost: what was there before is gone")

    @property
    def is_whole(self) -> bool:
        return bits(self.place / self.subject.made) == self.undisturbed.bits


class Damage:
    """A file that is not as it was."""

    def __init__(self, path: Path, how: str, draw: Random) -> None:
        self.path, self.how = path, how
        self._content, self._time = path.read_bytes(), path.stat().st_mtime_ns
        self._after: bytes | None = None
        if how == "remove":
            path.unlink()
            return
        if how == "cut":
            self._after = self._content[: draw.randrange(max(1, len(self._content)))]
        else:
            after = bytearray(self._content or b"\0")
            after[draw.randrange(len(after))] ^= 1 << draw.randrange(8)
            self._after = bytes(after)
        # Written over, as storage that is damaged does; mapped files see it.
        path.write_bytes(self._after)

    def undo(self) -> None:
        """Restore the file, unless dpca has replaced or removed what it was a part of."""
        now = self.path.read_bytes() if self.path.exists() else None
        if now == self._after and self.path.parent.is_dir():
            self.path.write_bytes(self._content)
            os.utime(self.path, ns=(self._time, self._time))


def bits(path: Path) -> dict[str, str]:
    """Everything in what a command made that does not tell of the way there, as digests; nothing of what is not complete."""
    files = path.rglob("*") if path.is_dir() else path.parent.glob(path.name)
    if path.is_dir() and not {"zarr.json", "manifest.json"} & {*os.listdir(path)}:
        return {}
    names = {str(file.relative_to(path.parent)): file for file in files if file.is_file() and file.suffix != ".partial"}
    return {
        name: sha256(file.read_bytes()).hexdigest()
        for name, file in sorted(names.items())
        if not {"ledger", ".lock", "status.json", "manifest.json", "report.html"} & {*Path(name).parts}
    }
