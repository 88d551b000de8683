"""Whether a worker sees the directory where a result is made: each is asked for a file that the process that began has written."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from dpca.errors import NotSeenError, writing
from dpca.settings import OUTPUT

_seen: set[str] = set()
"""The marks that this process has seen."""


@dataclass(frozen=True)
class Mark:
    """A file that is there for as long as a stage runs."""

    path: str

    def check(self) -> None:
        """Refuse to compute where the mark is not seen."""
        if self.path in _seen:
            return
        with suppress(OSError):
            os.listdir(os.path.dirname(self.path))  # a file system of a network may remember what was there before
        if not os.path.exists(self.path):
            raise NotSeenError(
                f"does not see {os.path.dirname(self.path)} as the process does that began, which makes the result there",
                f"Make it in a directory that all workers see by the same path: store='DIRECTORY' in Python, {OUTPUT.path} of a config.",
                key="output.path",
            )
        _seen.add(self.path)


@contextmanager
def marked(*directories: str | None) -> Iterator[tuple[Mark, ...]]:
    """Marks in these directories, which are removed in the end; a directory that contains another one needs none."""
    places = [Path(place) for place in directories if place is not None]
    with ExitStack() as stack:
        marks = []
        for place in places:
            if any(other != place and other.is_relative_to(place) for other in places):
                continue
            path = place / f".seen-{uuid.uuid4().hex}"
            with writing(str(path)):
                path.touch()
            stack.callback(path.unlink, missing_ok=True)
            marks.append(Mark(str(path)))
        yield tuple(marks)
