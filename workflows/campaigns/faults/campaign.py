"""The runs of the campaign: which cell each is, and what came of it."""

from __future__ import annotations

import logging
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from random import Random

import dask
from distributed import LocalCluster

from workflows.campaigns.faults import hooks
from workflows.campaigns.faults.cases import Case, Undisturbed, bits
from workflows.campaigns.faults.disturbances import FAULTS, ON_A_CLUSTER, damaged_result
from workflows.campaigns.faults.subjects import LARGE, RESULTS, SUBJECTS, Export, JobArray, Subject, prepare


def applies(subject: Subject, fault: str) -> bool:
    """Whether a cell of the tables can be: processes on a cluster do not read and write all themselves, nor do libraries in C."""
    if subject.on_a_cluster:
        return fault in ON_A_CLUSTER or fault.startswith(("kill -9", "SIG", "two", "stopped", "input"))
    if fault in ON_A_CLUSTER or (FAULTS[fault] is damaged_result and not subject.results):
        return False
    if subject.is_large:
        return fault.startswith(("kill", "disk", "slow")) and fault not in ON_A_CLUSTER
    if isinstance(subject, Export) and ("unfinished" in fault or ("a write" in fault and not subject.in_parts)):
        return False
    return bool(subject.reads) or not fault.startswith(("reads", "input", "kill -9, input"))


CELLS = [(subject, fault) for subject in SUBJECTS for fault in FAULTS if applies(SUBJECTS[subject], fault)]


def drawn(seed: int, number: int) -> tuple[str, str]:
    """The cell of a run."""
    order = Random(f"{seed} {number // len(CELLS)}").sample(CELLS, len(CELLS))
    return order[number % len(CELLS)]


def cluster(root: Path) -> LocalCluster:
    """Two workers in processes of their own, which are started again when they die, and listen on loopback alone.

    BLAS has as many threads in each as there are cores, as where workers are started without a nanny.
    """
    with dask.config.set({"distributed.nanny.pre-spawn-environ": {"MALLOC_TRIM_THRESHOLD_": 65536}}):
        return LocalCluster(
            n_workers=2,
            threads_per_worker=2,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            silence_logs=logging.CRITICAL,
            local_directory=str(root / "dask"),
        )


NOTHING = Undisturbed({}, {}, 1.0, 1, 1)
TRIES = 5
"""A run is tried so often, until something happens to it."""


def measured(root: Path, name: str) -> Undisturbed:
    """Carry out a command that nothing happens to; what it replaces is kept for others."""
    case = a_case(root, name, "undisturbed", NOTHING, Random(0))
    subject, made = case.subject, case.place / case.subject.made
    if subject.older:
        assert case.start(subject.older).ended_well, case.processes[-1].said
        shutil.copytree(made, root / "older" / name)
    before = bits(made)
    subject.before(case)
    with cluster(root) if subject.on_a_cluster else nullcontext() as case.cluster:
        process = case.begin(hooks.counted)
        seconds = process.seconds
        assert process.ended_well, process.said
    if isinstance(subject, JobArray):
        process = subject.go_on(case)
    counts = [int(path.read_text()) if (path := case.place.with_name(n)).exists() else 1 for n in ("writes", "reads")]
    found = Undisturbed(bits(made), before, seconds, *counts)
    assert process.ended_well, process.said
    assert found.bits, process.said
    shutil.rmtree(case.place.parent)
    return found


def a_case(root: Path, name: str, folder: str, undisturbed: Undisturbed, draw: Random) -> Case:
    """A place with what a command needs."""
    case = Case(root / f"{folder} {name}" / "place", SUBJECTS[name], undisturbed, draw)
    shutil.copytree(root / "data", case.place, ignore=lambda _, names: LARGE.difference(case.subject.roots) & {*names})
    return case


@dataclass(frozen=True)
class Outcome:
    """What came of a run."""

    number: int
    subject: str
    fault: str
    struck: bool
    verdict: str
    said: str
    """All that its processes said, if it was worth it."""


def outcome(root: Path, undisturbed: dict[str, Undisturbed], seed: int, cell: tuple[str, str], number: int) -> Outcome:
    """Carry out a run; again, where it had ended well before anything happened."""
    found = _tried(root, undisturbed, seed, cell, number, 0)
    for tries in range(1, TRIES):
        if found.struck or found.verdict != "same bits":
            break
        found = _tried(root, undisturbed, seed, cell, number, tries)
    return found


def _tried(
    root: Path, undisturbed: dict[str, Undisturbed], seed: int, cell: tuple[str, str], number: int, tries: int
) -> Outcome:
    subject, fault = cell
    draw = Random(f"{seed} {number}{f' {tries}' if tries else ''}")
    case = a_case(root, subject, f"{number}", undisturbed[subject], draw)
    case.tries = tries
    if case.subject.older:
        shutil.copytree(root / "older" / subject, case.place / case.subject.made)
    with cluster(root) if case.subject.on_a_cluster else nullcontext() as case.cluster:
        case.subject.before(case)
        FAULTS[fault](case)
        return outcome_of(case, number, subject, fault)


def outcome_of(case: Case, number: int, subject: str, fault: str) -> Outcome:
    """What came of what happened to a command, once its user has gone on; its place is removed."""
    verdict = verdict_of(case)
    case.repair()
    if not verdict.startswith("lost") and (other := next(others(case), None)):
        verdict = f"lost: {other}, which was only to be read, is another"
    said = "".join(f"-- dpca {one.words}: {one.end()}\n{one.said[-1500:]}\n" for one in case.processes)
    said += f"-- damaged: {', '.join(case.told)}\n" if case.told else ""
    shutil.rmtree(case.place.parent)
    return Outcome(number, subject, fault, case.struck, verdict, said)


def others(case: Case) -> Iterator[Path]:
    """Files that were only to be read, and are not as they were."""
    data = case.place.parent.parent / "data"
    for name in case.subject.roots:
        for path in (path.relative_to(data) for path in (data / name).rglob("*") if path.is_file()):
            if not (case.place / path).exists() or (case.place / path).read_bytes() != (data / path).read_bytes():
                yield path


def verdict_of(case: Case) -> str:
    """What its user meets who goes on, and repairs what is damaged if that is refused."""
    for process in case.processes:
        process.end()
    case.check()
    was_damaged, refused = bool(case.damaged), False
    for _ in range(1 + was_damaged):
        process = case.subject.go_on(case)
        well = process is None or process.ended_well
        case.check()
        if case.wrong or (well and case.is_whole):
            break
        if well:
            case.wrong.append("falsified: it ended well, with other bits")
        if not case.damaged:
            case.wrong.append("lost: it can't be gone on with")
        refused = True
        case.repair()
    return case.wrong[0] if case.wrong else "refused" if refused else "same bits"


def campaign(
    numbers: Sequence[int], seed: int, jobs: int = 1, cells: Sequence[tuple[str, str]] = ()
) -> Iterator[Outcome]:
    """Carry out runs, some at a time.

    Parameters
    ----------
    cells : of the runs, instead of those that are drawn
    """
    with ready(jobs) as (root, pool):
        chosen = list(cells) or [drawn(seed, number) for number in numbers]
        names = list(dict.fromkeys(name for name, _ in chosen))
        undisturbed = dict(zip(names, pool.map(partial(measured, root), names), strict=True))
        runs = [
            pool.submit(outcome, root, undisturbed, seed, cell, number)
            for cell, number in zip(chosen, numbers, strict=True)
        ]
        for one in runs:
            yield one.result()


@contextmanager
def ready(jobs: int) -> Iterator[tuple[Path, ProcessPoolExecutor]]:
    """A directory with the data and the results that commands read, and processes that disturb them."""
    with (
        tempfile.TemporaryDirectory(prefix="dpca-faults-") as directory,
        ProcessPoolExecutor(jobs, get_context("spawn")) as pool,
    ):
        root = Path(directory)
        (root / "data").mkdir()
        prepare(root / "data")
        for words in RESULTS:
            process = Case(root / "data", SUBJECTS["run"], NOTHING, Random(0)).start(words)
            assert process.ended_well, process.said
        yield root, pool
