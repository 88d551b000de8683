"""The code of a commit, the folder of a case, the processes of one code in it, and what is checked of them."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
DATA = "../../data"
"""As cases see them."""
HANGING_SECONDS = 180.0
SAID = 1000
"""Characters of what a process said last, in an error."""


class Failed(Exception):
    """A case that did not come to an end, or is not what it is for."""


def code_of(commit: str, place: Path) -> None:
    """Put the package of a commit somewhere."""
    done = subprocess.run(["git", "archive", commit, "dpca"], cwd=ROOT, capture_output=True)
    if done.returncode:
        raise SystemExit(f"git archive {commit} dpca: {done.stderr.decode(errors='replace').strip()}")
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(place, filter="data")
    for name in ("dpca", "gram-pca"):  # the distribution was called dpca once, and asks for its own version
        about = place / f"{name.replace('-', '_')}-0.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0\n")


@dataclass(frozen=True)
class Place:
    """The folder of one case, made by one code."""

    path: Path
    code: Path
    """The directory that `dpca` is in."""

    def start(self, *command: str, **how: Any) -> subprocess.Popen[str]:
        """A process of Python that finds this code, in a process group of its own."""
        found = os.pathsep.join(filter(None, [str(self.code), os.environ.get("PYTHONPATH")]))
        how = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, **how}
        return subprocess.Popen(
            [sys.executable, *command],
            cwd=self.path,
            env={**os.environ, "PYTHONPATH": found},
            text=True,
            errors="replace",
            start_new_session=True,
            **how,
        )

    def call(self, *command: str) -> str:
        """The same, to its end; what it said."""
        process = self.start(*command)
        with ending(process):
            try:
                said, _ = process.communicate(timeout=HANGING_SECONDS)
            except subprocess.TimeoutExpired:
                raise Failed(f"{described(command)} hangs") from None
        if process.returncode != 0:
            raise Failed(f"{described(command)} ended with {process.returncode}: {said[-SAID:].strip()}")
        return said

    def dpca(self, *arguments: str) -> str:
        return self.call("-m", "dpca", *arguments)

    def python(self, program: str, *arguments: str) -> str:
        return self.call("-c", program, *arguments)

    def config(self, uri: str, *, to: str = "r", **sections: Mapping[str, Any]) -> str:
        """Write the configuration of a run; returns its name.

        Parameters
        ----------
        uri : of the input, among the data
        to : where the result goes
        sections : keys besides
        """
        said: dict[str, Any] = {
            "input": {"uri": f"{DATA}/{uri}", **sections.get("input", {})},
            "preprocess": dict(sections.get("preprocess", {})),
            "model": {"n_components": 3, **sections.get("model", {})},
            "compute": {"workers": 2, "memory": "1 GiB", **sections.get("compute", {})},
            "output": {"path": to, "report": False, **sections.get("output", {})},
        }
        name = f"{to}.yaml"
        (self.path / name).write_text(json.dumps({key: values for key, values in said.items() if values}))
        return name

    def run(self, uri: str, *options: str, to: str = "r", **sections: Mapping[str, Any]) -> None:
        """`dpca run` of such a configuration."""
        self.dpca("run", self.config(uri, to=to, **sections), *options)

    def certificate(self, of: str = "r") -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.path / of / "certificate.json").read_text())
        return found

    def manifest(self, of: str = "r") -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.path / of / "manifest.json").read_text())
        return found


Case = Callable[[Place], None]


def described(command: Sequence[str]) -> str:
    return " ".join(word if "\n" not in word else "..." for word in command)


@contextmanager
def ending(process: subprocess.Popen[str]) -> Iterator[None]:
    """A process, and what it started, that do not outlive this."""
    try:
        yield
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def check(right: bool, problem: str) -> None:
    if not right:
        raise Failed(problem)
