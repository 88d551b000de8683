"""Which tests reach which guards: a plugin of pytest, for a copy of dpca whose statements say when they are reached.

    DPCA_REACHED=FOLDER python -m pytest -p workflows.campaigns.mutants.reached ...

The folder gets a file for each test, also of what the processes do that it starts: the numbers of guards, and a line of JSON
with the name of the test, its seconds, and whether it passed. Tests that have one are not run again.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

FOLDER, PLACE = "DPCA_REACHED", "DPCA_REACHED_BY"
"""Variables of the environment: the folder, and the file of the test that runs."""
_seen: set[tuple[str, int]] = set()
_failed: set[str] = set()


def at(number: int) -> None:
    """Say that a guard is reached."""
    place = os.environ.get(PLACE)
    if place is None or (place, number) in _seen:
        return
    _seen.add((place, number))
    with suppress(OSError):  # of a test that fills the disk
        descriptor = os.open(place, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(descriptor, f"{number}\n".encode())
        finally:
            os.close(descriptor)


def place_of(test: str) -> Path:
    """The file of a test."""
    return Path(os.environ[FOLDER]) / hashlib.sha256(test.encode()).hexdigest()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items[:] = [item for item in items if about(place_of(item.nodeid)) is None]


def about(place: Path) -> dict[str, Any] | None:
    """The line of a test in its file; None if it has not ended."""
    lines = place.read_text().splitlines() if place.exists() else []
    return next((json.loads(line) for line in lines if line.startswith("{")), None)


def numbers(place: Path) -> frozenset[int]:
    """The guards that a test has reached; what it started may have gone on after its end."""
    return frozenset(int(line) for line in place.read_text().splitlines() if line.isdecimal())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    place = place_of(item.nodeid)
    place.unlink(missing_ok=True)
    os.environ[PLACE] = str(place)
    began = time.perf_counter()
    try:
        return (yield)
    finally:
        del os.environ[PLACE]
        seconds = time.perf_counter() - began
        passed = item.nodeid not in _failed
        with place.open("a") as file:
            file.write(json.dumps({"test": item.nodeid, "seconds": seconds, "passed": passed}) + "\n")


def pytest_runtest_logreport(report: Any) -> None:
    if not report.passed:
        _failed.add(report.nodeid)
