"""One run at a time on a directory, also across hosts on a shared filesystem.

No clocks are compared, no modification times and no flock, which network filesystems keep badly. A lock is a file
`lock.<number>` that names its owner, a random word, and counts up while the owner lives. It is made by linking a
file that is whole already to that name, which fails where the name is taken (also over NFS). Who finds one watches
it on a clock of its own: while the counter moves the owner lives. One that has not moved for `STALE_SECONDS` is
taken over by making the next number, which only one can. An owner that sleeps through that finds a higher number,
or another's name in its own file, and stops.
"""

from __future__ import annotations

import json
import os
import re
import socket
import threading
import time
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from dpca.errors import LockedError, writing

BEAT_SECONDS = 2.0
STALE_SECONDS = 15.0
POLL_SECONDS = 0.2

_NAME = re.compile(r"lock\.(\d+)")


class Lock:
    """The right to change a directory.

    Parameters
    ----------
    path : the directory; the lock's file is in `.lock` inside
    """

    def __init__(self, path: Path) -> None:
        self._path, self._directory = path, path / ".lock"
        self._owner = uuid.uuid4().hex
        self._number = self._count = 0
        self._ended = threading.Event()
        self._lost = False

    def acquire(self) -> None:
        """Take the lock.

        Raises
        ------
        LockedError
            When a run that lives holds it. Takes up to `STALE_SECONDS` to know, unless the holder was on this machine.
        """
        while True:
            number, held = self._highest()
            if number and not _died_here(held) and self._moves(number, held):
                where = f"process {held.get('pid')} on {held.get('host')}" if held else "another process"
                raise LockedError(
                    f"{self._path}: a run is going on there, in {where}",
                    "Wait for it (see dpca status), stop it, or choose another output.path.",
                    key="output.path",
                )
            if self._make(number + 1):
                break
        for old in range(1, self._number):
            (self._directory / f"lock.{old}").unlink(missing_ok=True)
        threading.Thread(target=self._beat, daemon=True).start()

    def check(self) -> None:
        """Find out that the lock was taken over while this process slept.

        Raises
        ------
        LockedError
            When it is.
        """
        number, held = self._highest()
        if self._lost or number != self._number or (held and held.get("owner") != self._owner):
            self._lost = True
            raise LockedError(
                f"{self._path}: another run has taken it over, since this one did not move for a while",
                "Leave it to the other, or start this one again with --resume when that has ended.",
            )

    def release(self) -> None:
        """Let others have it."""
        self._ended.set()
        with suppress(OSError):
            if not self._lost and self._read(self._number).get("owner") == self._owner:
                (self._directory / f"lock.{self._number}").unlink(missing_ok=True)
                self._directory.rmdir()  # unless another has begun to wait in it

    def _make(self, number: int) -> bool:
        """Make the lock of a number; False if another was faster."""
        whole = self._directory / f".lock.{self._owner}"
        with writing(str(self._directory)):
            self._directory.mkdir(parents=True, exist_ok=True)
            try:
                whole.write_text(self._content(), encoding="utf-8")
                os.link(whole, self._directory / f"lock.{number}")
            except (FileExistsError, FileNotFoundError):
                return False  # the latter where the last owner has just removed the directory
            finally:
                whole.unlink(missing_ok=True)
        self._number = number
        return True

    def _beat(self) -> None:
        path = self._directory / f"lock.{self._number}"
        while not self._ended.wait(BEAT_SECONDS):
            self._count += 1
            with suppress(OSError):  # a full disk ends the run elsewhere, and says so
                if self._highest()[0] != self._number:
                    self._lost = True
                    return
                whole = self._directory / f".lock.{self._owner}"
                whole.write_text(self._content(), encoding="utf-8")
                os.replace(whole, path)

    def _content(self) -> str:
        return json.dumps({"owner": self._owner, "count": self._count, **_this_process()})

    def _highest(self) -> tuple[int, dict[str, Any]]:
        try:
            names = os.listdir(self._directory)
        except FileNotFoundError:
            return 0, {}
        found = [int(match[1]) for name in names if (match := _NAME.fullmatch(name))]
        number = max(found, default=0)
        return number, self._read(number) if number else {}

    def _read(self, number: int) -> dict[str, Any]:
        try:
            found = json.loads((self._directory / f"lock.{number}").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def _moves(self, number: int, held: dict[str, Any]) -> bool:
        """Whether the lock changes while it is watched."""
        until = time.monotonic() + STALE_SECONDS
        while time.monotonic() < until:
            time.sleep(POLL_SECONDS)
            now, content = self._highest()
            if now == 0:
                return False  # released
            if now != number or (content and content != held):
                return True
        return False


def _this_process() -> dict[str, Any]:
    """What tells a process from any other: of this boot, among the processes that it can see."""
    with suppress(OSError):
        return {
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "began": psutil.Process().create_time(),
            "boot": Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip(),
            "processes": os.readlink("/proc/self/ns/pid"),
        }
    return {"host": socket.gethostname(), "pid": os.getpid()}


def _died_here(held: dict[str, Any]) -> bool:
    """Whether the holder was a process of this boot that this one would see, and is gone. No need to wait then."""
    here = _this_process()
    if not held.get("boot") or any(held.get(key) != here.get(key) for key in ("host", "boot", "processes")):
        return False
    try:
        process = psutil.Process(int(held["pid"]))
        # The time of a process's start is off by a little when the clock was set since.
        reused = abs(process.create_time() - float(held["began"])) > 2
        return reused or bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True
    except (psutil.Error, KeyError, ValueError):
        return False
