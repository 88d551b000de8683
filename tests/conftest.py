import contextlib
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from dpca.execution import jobqueue
from dpca.execution.clusters import local
from dpca.sources import retries
from dpca.system import machine
from tests.drawn import examples

# No deadline: speed is not a property that a test asserts. The same examples every time, so that a suite that passed
# passes again; `make properties` draws others, and prints how to repeat what fails.
slow = [HealthCheck.too_slow]
settings.register_profile("same", deadline=None, suppress_health_check=slow, derandomize=True)
settings.register_profile(
    "random", deadline=None, suppress_health_check=slow, print_blob=True, max_examples=examples(100).max_examples
)
settings.load_profile(os.environ.get("DPCA_PROPERTIES", "same"))

SHARED = Path(os.environ.get("DPCA_SHARED_DATA", Path(__file__).parents[2] / "shared" / "data"))


def pytest_configure(config):
    """Processes that tests start, too, take a warning of a library for an error.

    All but one, which dpca filters where it arises: another thread may undo that (warnings.catch_warnings is for one thread).
    """
    os.environ.setdefault("PYTHONWARNINGS", "error,ignore:Consolidated metadata is currently not part:UserWarning")


def pytest_collection_modifyitems(config, items):
    """Do not run tests of scikit-learn that do not apply, or that differ by the name of a solver alone."""

    def applies(item):
        refused, alike = getattr(item.module, "NOT_APPLICABLE", {}), getattr(item.module, "ALIKE", set())
        solvers = set(map(str, getattr(getattr(item, "callspec", None), "params", {}).values()))
        return not any(f"{item.name}[".startswith(name) for name in refused) and not solvers & alike

    chosen = [item for item in items if applies(item)]
    config.hook.pytest_deselected(items=[item for item in items if item not in set(chosen)])
    items[:] = chosen


@pytest.fixture
def shared_data():
    """A folder of the real datasets; the test skips where it is absent."""

    def find(name):
        folder = SHARED / name
        if not folder.is_dir():
            pytest.skip(f"real data absent: no folder {name} (set DPCA_SHARED_DATA to where it is)")
        return folder

    return find


@pytest.fixture(autouse=True)
def _in_own_directory(tmp_path, monkeypatch):
    """Every test runs in a directory of its own: relative paths are part of what is tested."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch):
    """Reads that fail are tried again at once."""
    monkeypatch.setattr(retries, "RETRY_SECONDS", (0, 0, 0))


@pytest.fixture(autouse=True)
def _no_flushes(monkeypatch):
    """Nothing waits for the disk: power stays on but in the tests that lose it, which look at every flush."""
    monkeypatch.setattr("os.fsync", lambda number: None)


@pytest.fixture(autouse=True)
def _no_counts(monkeypatch):
    """Commands have the system count the pages of their process, which takes 16 ms in that of all tests: how many are resident it knows at once."""
    monkeypatch.setattr(machine, "private_bytes", lambda pid=None: machine.resident_bytes())


@pytest.fixture(autouse=True)
def _no_reports(monkeypatch):
    """They take two seconds each, where what draws them is installed: only their own tests make them."""
    for command in ("run", "derive"):
        monkeypatch.setattr(f"dpca.commands.{command}.write_beside", lambda *_: None)


@pytest.fixture
def sbatch(monkeypatch):
    """A Slurm that takes any job, and runs none: workers that it would start are threads here."""
    Path("bin").mkdir()
    Path("bin/sbatch").write_text("#!/bin/sh\necho 7\n")
    Path("bin/sbatch").chmod(0o755)
    monkeypatch.setenv("PATH", f"{os.path.abspath('bin')}:{os.environ['PATH']}")
    monkeypatch.setattr(jobqueue, "jobs_of", lambda place: contextlib.nullcontext(local(1)))
