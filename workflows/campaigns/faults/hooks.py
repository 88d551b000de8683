"""What happens within a process of dpca: each function changes it before its command begins."""

from __future__ import annotations

import errno
import io
import os
import resource
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from dpca import slabs
from dpca.planning import search
from dpca.sources import base
from dpca.system import durable, lock


def in_small_slabs() -> None:
    """Cut small data into several spans, as large ones are."""
    slabs.TILE_WIDTH, search.SLAB_WIDTH = 1, 1
    search.SLAB_BYTES = search.PRODUCT_SLAB_BYTES = 200_000


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def disk_full() -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def at_write(step: int, share: float, act: Callable[[], None], on: bool = False) -> None:
    """Do something within a write of dpca, when a share of the file is written, and `on` from then in every one.

    A file that a library writes comes to the disk when it is flushed.
    """
    lock, count = threading.Lock(), 0

    def is_it() -> bool:
        nonlocal count
        with lock:
            count += 1
            return count == step or (on and count > step)

    class Disk(durable.Disk):
        def write(self, path: Path, save: Any, flush: bool = True, mode: int = durable.FILE) -> None:
            if is_it():
                content = io.BytesIO()
                save(content)
                part = content.getvalue()[: int(share * content.tell())]
                super().write(path, lambda file: file.write(part), flush=False, mode=mode)
                act()
            super().write(path, save, flush, mode)

        def flush_path(self, path: Path) -> None:
            if path.is_file() and is_it():
                act()
            super().flush_path(path)

    durable.DISK = Disk()


def counted() -> None:
    """Write down how many files dpca writes, and how many regions of data it reads."""
    counts = {"writes": 0, "reads": 0}

    def say(name: str) -> None:
        counts[name] += 1
        Path(f"../{name}").write_text(str(counts[name]))

    class Disk(durable.Disk):
        def write(self, *given: Any, **more: Any) -> None:
            say("writes")
            super().write(*given, **more)

        def flush_path(self, path: Path) -> None:
            if path.is_file():
                say("writes")
            super().flush_path(path)

    durable.DISK = Disk()
    before_reads(lambda: say("reads"))


def before_reads(act: Callable[[], object]) -> None:
    """Do something before every read of data; a read that it fails is tried again as any other."""
    as_it_is = base.tried_again

    def tried_again(read: Callable[[], Any], *given: Any, **more: Any) -> Any:
        def after() -> Any:
            act()
            return read()

        return as_it_is(after, *given, **more)

    base.tried_again = tried_again


def failing_reads(first: int, times: int) -> None:
    """Reads that the storage fails, of which there are so many from one on."""
    count = 0

    def fail() -> None:
        nonlocal count
        count += 1
        if first <= count < first + times:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    before_reads(fail)


def slow(seed: int, most: float) -> None:
    """Storage that takes up to so many seconds for whatever it is asked."""
    draw = Random(seed)

    class Disk(durable.Disk):
        def write(self, *given: Any, **more: Any) -> None:
            time.sleep(draw.uniform(0, most))
            super().write(*given, **more)

    durable.DISK = Disk()
    before_reads(lambda: time.sleep(draw.uniform(0, most)))


def limited(n_bytes: int) -> None:
    """No file may grow beyond so many bytes, whichever library writes it."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, n_bytes))


def impatient() -> None:
    """Take over what does not move for a few seconds, instead of a quarter of a minute."""
    lock.BEAT_SECONDS, lock.STALE_SECONDS = 0.4, 3.0
