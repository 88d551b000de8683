"""A process that has loaded what dpca and its tests import, and forks for each call of pytest, which takes a second less."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

LOADED = "numpy scipy.linalg zarr dask.array distributed h5py hdf5plugin hypothesis psutil pydantic click pytest xarray"
ALWAYS = ["-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning"]
"""Arguments of each call: pytest warns of plugins that are loaded already."""
LOOK_SECONDS = 0.05


class Forking:
    """Calls of pytest in a copy of dpca.

    Parameters
    ----------
    code, place : what is copied, and where to
    """

    def __init__(self, code: Path, place: Path) -> None:
        self._code, self.place, self._said = code, place, place.with_name(f"{place.name}.txt")
        self.begin()

    def begin(self) -> None:
        """Copy the code, and start the process."""
        shutil.rmtree(self.place, ignore_errors=True)
        shutil.copytree(self._code, self.place)
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(self._said)],
            cwd=self.place,
            # Byte code is kept, whatever the shell says: each process would compile dpca anew.
            env={
                **os.environ,
                "PYTHONPATH": str(self.place),
                "OPENBLAS_NUM_THREADS": "1",
                "PYTHONDONTWRITEBYTECODE": "",
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def pytest(self, arguments: Iterable[str], seconds: float | None = None) -> tuple[str, bool]:
        """What pytest says, and whether it ended in time; what it started ends with it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([[*ALWAYS, *arguments], seconds]) + "\n")
        self._process.stdin.flush()
        ended: bool = json.loads(self._process.stdout.readline())
        return self._said.read_text(errors="replace"), ended

    @property
    def is_whole(self) -> bool:
        """Whether all of the code is there: without its guards, it may remove itself."""
        return all((self.place / file.relative_to(self._code)).exists() for file in self._code.glob("**/*.py"))

    def close(self) -> None:
        """End, with the tests that run."""
        self._process.terminate()
        self._process.wait()


def _main(said: str) -> None:
    for name in LOADED.split():
        import_module(name)
    for line in sys.stdin:
        arguments, seconds = json.loads(line)
        pid = os.fork()
        if not pid:
            _carry_out(arguments, said)

        def end(*_: Any, pid: int = pid) -> None:
            os.killpg(pid, signal.SIGKILL)
            os._exit(1)

        signal.signal(signal.SIGTERM, end)
        print(json.dumps(_ended(pid, seconds)), flush=True)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _carry_out(arguments: list[str], said: str) -> None:
    os.setsid()
    nothing, output = os.open(os.devnull, os.O_RDONLY), os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for number, descriptor in enumerate((nothing, output, output)):
        os.dup2(descriptor, number)
    import pytest

    code = pytest.main(arguments)
    sys.stdout.flush()
    os._exit(code)


def _ended(pid: int, seconds: float | None) -> bool:
    """Whether a process ends in time; if not, it is ended."""
    began = time.monotonic()
    while os.waitpid(pid, os.WNOHANG) == (0, 0):
        if seconds is not None and time.monotonic() - began > seconds:
            os.killpg(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return False
        time.sleep(LOOK_SECONDS)
    return True


if __name__ == "__main__":
    _main(sys.argv[1])
