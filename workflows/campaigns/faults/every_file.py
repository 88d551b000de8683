"""Commands that are killed at some moments, and then every kind of file of what they left, damaged one at a time."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from random import Random

from workflows.campaigns.faults import hooks
from workflows.campaigns.faults.campaign import Outcome, a_case, measured, outcome_of, ready
from workflows.campaigns.faults.cases import Case, Undisturbed
from workflows.campaigns.faults.subjects import PARTITIONS, RESULT, SUBJECTS, Export, JobArray

Damaged = tuple[Path, str, Undisturbed, str, Path, str]
"""A directory with unfinished work, whose it is, its moment, and a file that is to be damaged somehow."""


def left(root: Path, name: str, undisturbed: Undisturbed, moments: int) -> Iterator[tuple[str, Case]]:
    """What a command leaves that is killed within some of its writes; a job array after each of its commands."""
    subject = SUBJECTS[name]
    if isinstance(subject, JobArray):
        case = a_case(root, name, "left", undisturbed, Random(0))
        case.start(f"batch init {subject.words} --partitions {PARTITIONS}").end()
        while not (case.place / subject.made / RESULT).exists():
            for words in (f"partition {subject.made} --index 1", "", f"finalize {subject.made}"):
                yield words.partition(" ")[0] or "partitions", case
                case.start(f"batch {words}").end() if words else subject.partitions(case)
        return
    for step in sorted({max(1, round(undisturbed.writes * (at + 1) / moments)) for at in range(moments)}):
        case = a_case(root, name, f"left by {step}", undisturbed, Random(0))
        if subject.older:
            shutil.copytree(root / "older" / name, case.place / subject.made)
        if case.begin(partial(hooks.at_write, step, 0.5, hooks.kill)).end() and not subject.is_finished(case):
            yield f"write {step} of {undisturbed.writes}", case


def damaged(root: Path, moments: int, name: str) -> list[Damaged]:
    """All that is tried of a command."""
    undisturbed, found = measured(root, name), list[Damaged]()
    for number, (moment, case) in enumerate(left(root, name, undisturbed, moments)):
        place = root / f"{name}, moment {number}"
        shutil.copytree(case.place, place)
        kinds: dict[str, Path] = {}
        for pattern in case.subject.unfinished():
            for path in (path.relative_to(place) for path in sorted(place.glob(pattern)) if path.is_file()):
                kinds.setdefault(re.sub(r"[0-9a-f]{8,}|[0-9]+\b", "#", str(path)), path)
        for _, path in sorted(kinds.items()):
            found += [(place, name, undisturbed, moment, path, how) for how in ("cut", "remove", "flip")]
    return found


def tried(root: Path, number: int, one: Damaged) -> Outcome:
    """Damage a file, and go on."""
    place, name, undisturbed, moment, path, how = one
    case = Case(root / f"file {number}" / "place", SUBJECTS[name], undisturbed, Random(number))
    shutil.copytree(place, case.place)
    case.damage(case.place / path, how)
    return outcome_of(case, number, name, f"{how}; {path}, killed at {moment}")


def every_file(moments: int, jobs: int, only: int | None = None) -> Iterator[Outcome]:
    """What came of each kind of file of each command, but for those on clusters and exports.

    Parameters
    ----------
    moments : at which each command is killed
    """
    with ready(jobs) as (root, pool):
        names = [name for name, one in SUBJECTS.items() if not one.on_a_cluster and not isinstance(one, Export)]
        found = [one for of_name in pool.map(partial(damaged, root, moments), names) for one in of_name]
        runs = [pool.submit(tried, root, number, one) for number, one in enumerate(found) if only in (None, number)]
        for run in runs:
            yield run.result()
