"""The lock of a directory: one run at a time, also across hosts on a shared filesystem.

It compares no clocks and no modification times, and needs no flock, which network filesystems support badly. A lock is a
file `lock.<number>` with the name of its owner, a random word, and a counter that grows while the owner lives. It is made
by a hard link from a complete file to that name, which fails if the name is taken (also over NFS); on disks that know none
(memory cards, some shared folders) an empty file takes the name, and is written then. A process that finds a
lock watches it by its own clock: while the counter grows, the owner lives. A lock unchanged for `STALE_SECONDS` is taken
over by making the next number, which only one process can. An owner that slept meanwhile finds a higher number, or another
owner in its own file, and stops: it asks (`Lock.check`) before each step by which it replaces or removes a name (`durable.asking`),
since it may sleep between any two of them, while another publishes what it was about to publish.
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

from dpca.errors import LockedError, OutputExistsError, writing
from dpca.settings import OUTPUT
from dpca.system import durable, regular

BEAT_SECONDS = 2.0
STALE_SECONDS = 15.0
POLL_SECONDS = 0.2

_NAME = re.compile(r"lock\.(\d+)")


class Lock:
    """The right to change a directory.

    Parameters
    ----------
    path : the directory; the lock's file is in its subdirectory `.lock`
    out : what is written under the lock if that is not a run: the path of --out
    """

    def __init__(self, path: Path, out: Path | None = None) -> None:
        self._path, self._directory, self._out = path, path / ".lock", out
        self._owner = uuid.uuid4().hex
        self._number = self._count = 0
        self._ended = threading.Event()
        self._lost = False

    def acquire(self) -> None:
        """Take the lock."""
        while True:
            self._check_no_link()
            try:
                known = {self._read(number).get("owner") for number in self._numbers()}
                number, held = self._highest()
            except NotADirectoryError:
                raise OutputExistsError(
                    f"{self._directory}: is a file, where dpca keeps its lock", "Remove it.", key="output.path"
                ) from None
            if number and not _died_here(held) and self._moves(number, held):
                where = f"process {held.get('pid')} on {held.get('host')}" if held else "another process"
                if self._out:
                    raise LockedError(
                        f"{self._out}: another command is writing it, {where}",
                        "Wait for it, stop it, or choose another --out.",
                    )
                raise LockedError(
                    f"{self._path}: a run is going on there, in {where}",
                    f"Wait for it (see dpca status), stop it, or choose another {OUTPUT.path}.",
                    key="output.path",
                )
            if self._make(number + 1) and self._alone(known | {held.get("owner")}):
                break
        for old in self._numbers():
            if old < self._number:
                (self._directory / f"lock.{old}").unlink(missing_ok=True)
        threading.Thread(target=self._beat, daemon=True).start()

    def check(self) -> None:
        """Refuse to go on if the lock was taken over while this process slept."""
        if not self.held():
            raise LockedError(*self.taken_over)

    @property
    def taken_over(self) -> tuple[str, str]:
        """Message and remedy for a lock that was taken over."""
        return (
            f"{self._path}: another run has taken it over, since this one did not move for a while",
            "Leave it to the other, or start this one again with --resume when that has ended.",
        )

    @property
    def lost(self) -> bool:
        """Whether the lock was taken over, as of the last look at it; reads no file."""
        return self._lost

    def held(self) -> bool:
        """Whether this process still holds the lock; reads its file."""
        number, held = self._highest()
        self._lost |= number != self._number or bool(held and held.get("owner") != self._owner)
        return not self._lost

    def release(self) -> None:
        """Release the lock."""
        self._ended.set()
        with suppress(OSError, OutputExistsError):
            self._check_no_link()
            if not self._lost and self._read(self._number).get("owner") == self._owner:
                for partial in self._directory.glob(".*.partial"):
                    partial.unlink(missing_ok=True)  # left by owners that were killed
                (self._directory / f"lock.{self._number}").unlink(missing_ok=True)
                self._directory.rmdir()  # fails if another process already waits in it

    def _check_no_link(self) -> None:
        """Refuse a link: files of its lock would be made and removed in the directory that it leads to."""
        durable.check_no_links([self._directory], "Remove the link: dpca makes a directory of its own.")

    def _alone(self, known: set[Any]) -> bool:
        """Whether all other locks belong to `known`, dead owners; if not, this lock is released again.

        While this process waited to make the next number, the holder may have released its lock, and a newcomer begun at 1.
        """
        for number in self._numbers():
            owner = self._read(number).get("owner")
            if owner is not None and owner != self._owner and owner not in known:
                (self._directory / f"lock.{self._number}").unlink(missing_ok=True)
                return False
        return True

    def _make(self, number: int) -> bool:
        """Make the lock with this number; returns False if another process was faster."""
        complete, named = self._directory / f".{self._owner}.partial", self._directory / f"lock.{number}"
        shown = self._out or self._path
        with writing(str(shown)):
            try:
                durable.make_directories(self._directory.parent)  # the directory itself stays when the lock goes
                self._directory.mkdir(exist_ok=True)
            except PermissionError as cause:
                raise OutputExistsError(
                    f"{shown}: may not be written: {cause.strerror}",
                    f"Choose another {'--out' if self._out else OUTPUT.path}.",
                    key="output.path",
                ) from cause
            content = json.dumps(self._content())
            try:
                complete.write_text(content, encoding="utf-8")
                linked = durable.link(complete, named)
                if not linked:
                    named.write_text(content, encoding="utf-8")
            except (FileExistsError, FileNotFoundError):
                return False  # another was faster, or the previous owner has just removed the directory
            finally:
                complete.unlink(missing_ok=True)
        self._number = number
        return True

    def _beat(self) -> None:
        path = self._directory / f"lock.{self._number}"
        while not self._ended.wait(BEAT_SECONDS):
            self._count += 1
            with suppress(OSError):  # a full disk fails the run elsewhere, with a message
                if not self.held():
                    return
                durable.write_briefly(path, self._content())

    def _content(self) -> dict[str, Any]:
        return {"owner": self._owner, "count": self._count, **_this_process()}

    def _numbers(self) -> list[int]:
        try:
            names = os.listdir(self._directory)
        except FileNotFoundError:
            return []
        return [int(match[1]) for name in names if (match := _NAME.fullmatch(name))]

    def _highest(self) -> tuple[int, dict[str, Any]]:
        number = max(self._numbers(), default=0)
        return number, self._read(number) if number else {}

    def _read(self, number: int) -> dict[str, Any]:
        try:
            content = regular.read_json(self._directory / f"lock.{number}")
        except (OSError, ValueError):
            return {}
        return content if isinstance(content, dict) else {}

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
    """Identity of this process, with the boot and the PID namespace in which it is valid."""
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
    """Whether the holder is gone, if it ran in this boot and PID namespace: then nobody has to wait for it."""
    here = _this_process()
    if not held.get("boot") or any(held.get(key) != here.get(key) for key in ("host", "boot", "processes")):
        return False
    try:
        process = psutil.Process(int(held["pid"]))
        # The start time of a process shifts a little if the clock was set since.
        reused = abs(process.create_time() - float(held["began"])) > 2
        return reused or bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True
    except (psutil.Error, KeyError, ValueError):
        return False
