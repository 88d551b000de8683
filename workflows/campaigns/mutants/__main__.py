"""Remove the guards one after the other, run the tests that reach each, and print which of them notices."""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue

from workflows.campaigns.mutants import reached
from workflows.campaigns.mutants.forked import Forking
from workflows.campaigns.mutants.guards import Guard, guards, marked, without

ROOT = Path(__file__).parents[3]
TESTS = "not clusters and not looks and not alone"
POWER = "tests/test_crashes.py"
"""The tests that lose power: in others nothing is flushed."""
ROUNDS = (
    "tests/system tests/store tests/safety tests/execution",
    "tests/test_crashes.py tests/commands/test_batch.py",
    "tests/sources tests/genotypes",
    "tests/commands",
    "tests/resume tests/estimators tests/methods",
    "tests",
)
"""Tests that may notice: those of a round run where none of the rounds before has."""
ROOMS = ("system", "store", "commands", "execution", "methods", "planning", "sources")
"""The guards of these come first, in this order."""
TOGETHER = 8
"""A second of tests that are to run may take so many seconds, and a minute more, before they hang."""


@dataclass(frozen=True)
class Test:
    """A test that passes where nothing is removed."""

    name: str
    seconds: float
    reached: frozenset[int]


def copied(place: Path) -> Path:
    """A copy of the working tree: of the files that git knows, or would add."""
    shutil.rmtree(place, ignore_errors=True)
    listing = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines():
        if (ROOT / name).is_file():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, place / name)
    return place


def all_guards(place: Path) -> list[Guard]:
    """The guards of dpca in a copy."""
    files = sorted(place.glob("dpca/**/*.py"))
    return [guard for file in files for guard in guards(str(file.relative_to(place)), file.read_text())]


def marked_copy(work: Path, code: Path, found: list[Guard]) -> Path:
    """A copy whose statements say when they are reached; what is known of tests is forgotten if these were other guards."""
    names, of = json.dumps([guard.name for guard in found]), work / "guards.json"
    if not of.exists() or of.read_text() != names:
        shutil.rmtree(work / "reached", ignore_errors=True)
    (work / "reached").mkdir(exist_ok=True)
    of.write_text(names)
    place = work / "marked"
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(code, place)
    for path in {guard.path for guard in found}:
        numbered = {number: guard for number, guard in enumerate(found) if guard.path == path}
        call = f"__import__({reached.__name__!r}, fromlist=['at']).at"
        (place / path).write_text(marked((place / path).read_text(), numbered, call))
    return place


def recorded(place: Path, folder: Path, found: Sequence[Guard], asked: Sequence[str], workers: int) -> list[Test]:
    """Every test that passes, with the guards that it reaches; those that are known are not run again.

    Parameters
    ----------
    place, folder : a marked copy, and where it is kept what its tests reach
    found : all guards
    asked : tests to run, as pytest takes them
    """
    os.environ[reached.FOLDER] = str(folder)
    how = ["-p", reached.__name__, "-n", str(workers), "-m", TESTS, "-q", "--tb=line"]
    with closing(Forking(place, place.with_name("copy-marked"))) as copy:
        said, _ = copy.pytest([*how, *asked])
    print(said[-2000:], flush=True)
    tests = []
    for file in folder.iterdir():
        if (about := reached.about(file)) is not None and about["passed"]:
            tests.append(Test(about["test"], about["seconds"], with_modules(reached.numbers(file), found)))
    return tests


def with_modules(numbers: frozenset[int], found: Sequence[Guard]) -> frozenset[int]:
    """Guards that a test reaches, with those outside of functions in the same modules: these run once, where it is imported."""
    modules = {found[number].path for number in numbers}
    return numbers | {number for number, guard in enumerate(found) if guard.path in modules and not guard.function}


def chosen(guard: Guard, number: int, tests: Iterable[Test], seconds: float) -> list[Test]:
    """The tests that reach a guard, as many as take so many seconds: those of its room and of the store first, then those of
    runs that go on, then others, the quick ones before the slow. Tests that lose power are all there is for a flush, and come last for
    what else changes the disk."""
    reaching = [test for test in tests if number in test.reached]
    power = sorted((test for test in reaching if test.name.startswith(POWER)), key=lambda test: test.seconds)
    if guard.kind == "flush":
        return power

    near = (f"tests/{Path(guard.path).parts[1]}/", "tests/store/", "tests/system/")

    def order(test: Test) -> tuple[bool, bool, float]:
        return not test.name.startswith(near), not test.name.startswith("tests/resume/"), test.seconds

    several, total = list[Test](), 0.0
    for test in sorted((test for test in reaching if test not in power), key=order):
        total += test.seconds
        if total > seconds and several:
            break
        several.append(test)
    return [*several, *(power if guard.kind in ("step", "by hand") else ())]


def noticed(copy: Forking, guard: Guard, tests: list[Test]) -> str:
    """The test that fails without a guard, with what it says; empty if all pass."""
    file = copy.place / guard.path
    source = file.read_text()
    file.write_text(without(source, guard))
    limit = 60 + TOGETHER * sum(test.seconds for test in tests)
    try:
        said, ended = copy.pytest(["-x", "-v", "--tb=no", *(test.name for test in tests)], limit)
    finally:
        if copy.is_whole:
            file.write_text(source)
        else:
            copy.close()
            copy.begin()
    begun = re.findall(r"^(tests/\S+::.*?)(?: (PASSED|SKIPPED|XFAIL|FAILED|ERROR).*)?$", said, re.MULTILINE)
    if failed := [test for test, how in begun if how in ("FAILED", "ERROR")]:
        return str(failed[0])
    if failure := re.search(r"^ERROR (.+)$", said, re.MULTILINE):  # it can't be imported
        return failure[1]
    if not ended:
        return f"{begun[-1][0] if begun else 'the first test'} - hangs"
    if re.search(r"^=+ .*passed.* =+$", said, re.MULTILINE):
        return ""
    if "while loading conftest" in said:
        return "every test - dpca can't be imported"
    raise SystemExit(f"{guard.name}: pytest fails: {said[-2000:]}")


@dataclass
class Campaign:
    """Guards that are looked for, and what is known of each.

    Parameters
    ----------
    copies : calls of pytest in copies of the working tree, one for each guard that is removed at a time
    """

    copies: list[Forking]
    known: Path
    """The file of `by`."""
    seconds: float
    """The most that the tests of a guard may take."""
    by: dict[str, str]
    """What notices a guard, by its name; empty where nothing does."""
    tried: dict[str, set[str]] = field(default_factory=dict)

    def look(self, wanted: Iterable[tuple[int, Guard]], tests: list[Test]) -> None:
        """Look for tests that notice guards, of those that were not tried before."""
        free: SimpleQueue[Forking] = SimpleQueue()
        for copy in self.copies:
            free.put(copy)

        def one(number: int, guard: Guard) -> None:
            before = self.tried.setdefault(guard.name, set())
            several = [test for test in chosen(guard, number, tests, self.seconds) if test.name not in before]
            copy, began = free.get(), time.monotonic()
            try:
                self.by[guard.name] = noticed(copy, guard, several) if several else ""
            finally:
                free.put(copy)
            before.update(test.name for test in several)
            self.known.write_text(json.dumps(self.by, indent=1))
            said = f"{time.monotonic() - began:5.0f} s  {len(several):4} tests  {guard.name}"
            print(f"{said}\n        {self.by[guard.name] or 'NOTHING'}", flush=True)

        with ThreadPoolExecutor(len(self.copies)) as pool:
            futures = [pool.submit(one, *each) for each in wanted if not self.by.get(each[1].name)]
            try:
                for future in futures:
                    future.result()
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                for copy in self.copies:
                    copy.close()
                raise


def main(given: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m workflows.campaigns.mutants", description=__doc__)
    parser.add_argument("tests", nargs="*", help="rounds of tests that may notice, each as pytest takes them")
    parser.add_argument("--only", default="", metavar="NAME", help="guards whose name has this in it")
    parser.add_argument("--list", action="store_true", help="print the names of the guards, and do nothing")
    parser.add_argument("--seconds", type=float, default=60, help="of tests a guard, as long as they take alone")
    parser.add_argument("--workers", type=int, default=2, help="guards at a time")
    parser.add_argument("--work", type=Path, default=Path("build/mutants"), help="a folder for what is known")
    asked = parser.parse_args(given)
    if asked.list:
        print("\n".join(f"{one.kind:10} {one.name}" for one in all_guards(ROOT) if asked.only in one.name))
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(130))
    work = asked.work.absolute()
    code = copied(work / "code")
    found = all_guards(code)
    wanted = [(number, guard) for number, guard in enumerate(found) if asked.only in guard.name]
    wanted.sort(key=lambda one: (one[1].kind == "lock", *(f"/{room}/" not in one[1].path for room in ROOMS), one[0]))
    place, known = marked_copy(work, code, found), work / "noticed.json"
    by = json.loads(known.read_text()) if known.exists() else {}
    if asked.only:  # these again
        by = {name: test for name, test in by.items() if asked.only not in name}
    with ExitStack() as stack:
        forking = (Forking(code, work / f"copy-{number}") for number in range(asked.workers))
        copies = [stack.enter_context(closing(one)) for one in forking]
        campaign = Campaign(copies, known, asked.seconds, by)
        for several in asked.tests or ROUNDS:
            campaign.look(wanted, recorded(place, work / "reached", found, several.split(), asked.workers))
    print(table([guard for _, guard in wanted], campaign.by))
    return int(any(not campaign.by.get(guard.name) for _, guard in wanted))


def table(found: Iterable[Guard], by: Mapping[str, str]) -> str:
    """The guards, and what notices that each is gone."""
    lines = ["", "| guard | kind | noticed by |", "| --- | --- | --- |"]
    lines += [
        f"| {one.name} | {one.kind} | {by.get(one.name, '').partition(' - ')[0] or '**nothing**'} |" for one in found
    ]
    return "\n".join([*lines, "", "One again: python -m workflows.campaigns.mutants --only NAME"])


if __name__ == "__main__":
    sys.exit(main())
