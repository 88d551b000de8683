"""A campaign of faults: runs that are disturbed at random moments, and what came of each after at most three resumes.

    python -m workflows.campaigns.faults --runs 3 --seed 0
    python -m workflows.campaigns.faults --seed 0 --only 17

Every run is a process of its own, of dpca as it is, on data of several spans. What disturbs it, and when, is drawn from the
seed and the number of the run: a share of the time that an undisturbed one works, a write and how much of it, a file. All
must end in the bits of the undisturbed run, or in the right typed error; a table says so. `--only` repeats one. Moments in
time depend on the machine, so a failure of those may take a few repetitions.
"""

from __future__ import annotations

import argparse
import atexit
import errno
import io
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import dask
import numpy as np
import zarr
from distributed import LocalCluster

from dpca.system import durable
from workflows.campaigns import hostile

N, CHUNK, CHUNKS = 32, 2**16, 32
ROWS, WIDTH = 40, 1_500_000
"""Samples in chunks of a whole row, which do not fit 350 MiB in columns and are copied."""
PARTITIONS = 3
HANGING_SECONDS = 180.0
PRELUDE = "import sys\nfrom workflows.campaigns.faults import at_write, disk_full, kill\n"
MAIN = "\nfrom dpca.cli.app import main\nmain(sys.argv[1:])\n"


def at_write(step: int, share: float, act: Callable[[], None]) -> None:
    """In the process that is disturbed: do something within one of its writes, when a share of the file is written."""

    class Disk(durable.Disk):
        count = 0

        def write(self, path, save, flush=True, mode=durable.FILE):
            Disk.count += 1
            if Disk.count == step:
                content = io.BytesIO()
                save(content)
                part = content.getvalue()[: int(share * content.tell())]
                super().write(path, lambda file: file.write(part), flush=False, mode=mode)
                act()
            super().write(path, save, flush, mode)

    durable.DISK = Disk()
    atexit.register(lambda: Path("writes").write_text(str(Disk.count)))


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def disk_full() -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


@dataclass
class Process:
    """`dpca` in a process group of its own."""

    popen: subprocess.Popen[bytes]
    log: Path
    spared: bool = True
    """Whether it was left to end by itself."""
    told: bool = False
    """Whether it was asked to stop. One that had ended its work may then be ended by the signal itself."""

    @property
    def runs(self) -> bool:
        return self.popen.poll() is None

    def signalled(self, number: signal.Signals, group: bool = False) -> bool:
        """Send a signal, if it runs; whether it did."""
        if not self.runs:
            return False
        (os.killpg if group else os.kill)(self.popen.pid, number)
        self.spared &= number is not signal.SIGKILL
        self.told |= number in (signal.SIGTERM, signal.SIGINT)
        return True

    def end(self) -> int:
        """Wait for it; one that hangs is ended, with the code 124."""
        try:
            return self.popen.wait(HANGING_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(self.popen.pid, signal.SIGKILL)
            self.popen.wait()
            return 124

    @property
    def said(self) -> str:
        return self.log.read_text(errors="replace")

    @property
    def ended_rightly(self) -> bool:
        """Whether it ended well, in an error that is one of dpca's, or as it was told to."""
        code = self.end()
        if self.told and ("dpca: stopped by SIG" in self.said or code in (-signal.SIGTERM, -signal.SIGINT)):
            return True
        return code == 0 or (code in (1, 2) and "dpca: error: " in self.said and "defect" not in self.said)


@dataclass
class Case:
    """One run of the campaign: a directory with the data, what it draws from, and the processes that it started."""

    place: Path
    draw: random.Random
    seconds: float
    """That an undisturbed run works."""
    writes: int
    """That it makes."""
    cluster: LocalCluster | None = None
    """Where it runs, if not on this machine alone."""
    processes: list[Process] = field(default_factory=list)
    struck: bool = False

    @property
    def where(self) -> tuple[str, ...]:
        """The arguments for that."""
        if self.cluster is None:
            return ()
        cluster = f"compute.cluster={{scheduler: '{self.cluster.scheduler_address}'}}"
        return "--set", cluster, "--set", "compute.workers=auto"

    def start(self, *arguments: str, what: str = "") -> Process:
        (self.place / "run.py").write_text(PRELUDE + what + MAIN)
        here = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
        log = self.place / f"log-{len(self.processes)}"
        with log.open("wb") as file:
            popen = subprocess.Popen(
                [sys.executable, "run.py", *arguments],
                cwd=self.place,
                env={**os.environ, "PYTHONPATH": here},
                stdout=file,
                stderr=file,
                start_new_session=True,
            )
        self.processes.append(Process(popen, log))
        return self.processes[-1]

    def moment(self, process: Process, begins: str = "r/ledger/run.json", share: float | None = None) -> None:
        """Wait until a process is somewhere in its work, which begins when there is a file; or has ended."""
        while process.runs and not list(self.place.glob(begins)):
            time.sleep(0.002)
        until = time.monotonic() + self.seconds * (self.draw.random() if share is None else share)
        while process.runs and time.monotonic() < until:
            time.sleep(0.002)

    def resumed(self, *arguments: str) -> Process:
        """What was disturbed is gone on with, up to three times."""
        process = self.start(*arguments)
        for _ in range(2):
            if process.end() == 0:
                break
            process = self.start(*arguments)
        process.end()
        return process

    def a_file(self, pattern: str) -> Path | None:
        """One of those that are there."""
        files = sorted(path for path in self.place.glob(pattern) if path.is_file())
        return self.draw.choice(files) if files else None


RUN, RESUME = ("run", "c.yaml"), ("run", "c.yaml", "--resume")
COPIED = "scratch/dpca-*/copy.zarr/c/**/*"


def signalled(number: signal.Signals, group: bool = False) -> Callable[[Case], None]:
    """A run that gets a signal at any moment."""

    def fault(case: Case) -> None:
        process = case.start(*RUN, *case.where)
        case.moment(process)
        case.struck = process.signalled(number, group)
        process.end()
        case.resumed(*RESUME, *case.where)

    return fault


def within_a_write(act: str) -> Callable[[Case], None]:
    """A run that something happens to while it writes a file."""

    def fault(case: Case) -> None:
        step, share = case.draw.randrange(1, case.writes), case.draw.random()
        process = case.start(*RUN, what=f"at_write({step}, {share}, {act})\n")
        case.struck = process.end() != 0
        process.spared = act != "kill"
        case.resumed(*RESUME)

    return fault


def dead_worker(case: Case) -> None:
    assert case.cluster is not None
    with case.cluster.get_client() as client:
        client.wait_for_workers(2)
        victim = case.draw.choice(sorted(client.run(os.getpid).values()))
    process = case.start(*RUN, *case.where)
    case.moment(process)
    case.struck = process.runs
    os.kill(victim, signal.SIGKILL)
    if process.end() != 0:
        case.resumed(*RESUME)


def lost_scheduler(case: Case) -> None:
    """The run goes on without one: where it runs makes no difference to its bits."""
    assert case.cluster is not None
    process = case.start(*RUN, *case.where)
    case.moment(process)
    case.struck = process.runs
    case.cluster.sync(case.cluster.scheduler.close)
    process.end()
    case.resumed(*RESUME)


def failing_chunk(case: Case) -> None:
    """Until the run has ended a chunk has only zeros, and its time."""
    with damaged(case, lambda content: bytes(len(content)), keeps_time=True) as change:
        change()
        case.struck = case.start(*RUN).end() != 0
    case.resumed(*RESUME)


@contextmanager
def damaged(case: Case, damage: Callable[[bytes], bytes], keeps_time: bool = False) -> Iterator[Callable[[], None]]:
    """Change a chunk of the input when it is called, and in the end restore it with its time."""
    path = case.draw.choice(sorted((case.place / "x.zarr" / "c" / "0").glob("[0-9]*")))
    content, time_ns = path.read_bytes(), path.stat().st_mtime_ns
    try:
        yield lambda: replaced(path, damage(content), time_ns if keeps_time else time.time_ns())
    finally:
        replaced(path, content, time_ns)


def replaced(path: Path, content: bytes, time_ns: int) -> None:
    """At once, for whoever reads it meanwhile."""
    aside = path.with_name(f".{path.name}")
    aside.write_bytes(content)
    os.utime(aside, ns=(time_ns, time_ns))
    aside.replace(path)


def changing_chunk(killed: bool) -> Callable[[Case], None]:
    """A chunk that holds other values from some moment on, until the run has ended."""

    def fault(case: Case) -> None:
        other = (case.place / "other").read_bytes()
        with damaged(case, lambda _: other) as change:
            process = case.start(*RUN)
            case.moment(process, share=0.5 * case.draw.random())
            case.struck = process.runs
            change()
            if killed:
                case.moment(process, share=0.5 * case.draw.random())
                process.signalled(signal.SIGKILL)
            process.end()
        case.resumed(*(RESUME if case.struck else RUN), *(() if case.struck else ("--resume",)))

    return fault


def damaged_after_kill(pattern: str, how: str) -> Callable[[Case], None]:
    """A run that is killed, and of what it left something is damaged."""

    def fault(case: Case) -> None:
        copies = "copy" in pattern
        config = "rows.yaml" if copies else "c.yaml"
        process = case.start("run", config)
        case.moment(process, pattern, share=0.5 * case.draw.random())
        process.signalled(signal.SIGKILL)
        process.end()
        if (path := case.a_file(pattern)) is not None:
            case.struck = True
            damage(case, path, how)
        case.resumed("run", config, "--resume")

    return fault


def damage(case: Case, path: Path, how: str) -> None:
    """Flip a bit of a file, cut it short, or remove it."""
    how = case.draw.choice(how.split())
    content = path.read_bytes()
    if how == "remove":
        path.unlink(missing_ok=True)
    elif how == "cut":
        path.write_bytes(content[: case.draw.randrange(max(1, len(content)))])
    else:
        at = case.draw.randrange(len(content))
        path.write_bytes(content[:at] + bytes([content[at] ^ (1 << case.draw.randrange(8))]) + content[at + 1 :])


def damaged_copy(case: Case) -> None:
    """While the run reads it, or still writes it."""
    process = case.start("run", "rows.yaml")
    case.moment(process, COPIED)
    path = case.a_file(COPIED)
    if path is not None and process.runs:
        case.struck = True
        damage(case, path, "remove cut")
    process.end()
    case.resumed("run", "rows.yaml", "--resume")


def at_the_same_time(first: Sequence[str], second: Sequence[str], begins: str) -> Callable[[Case], None]:
    """Two processes on one output; the second begins somewhere in the work of the first."""

    def fault(case: Case) -> None:
        one = case.start(*first)
        if case.draw.random() < 0.5:
            case.moment(one, begins)
        two = case.start(*second)
        case.struck = one.runs
        codes = one.end(), two.end()
        if 0 not in codes:
            case.resumed(*second)

    return fault


def late_partition(case: Case) -> None:
    """A partition is stopped in the middle of its stage, computed again by another process, and goes on at a later time."""
    case.start("batch", "init", "c.yaml", "--partitions", str(PARTITIONS)).end()
    late, held_in = None, case.draw.randrange(2)
    goes_on = case.draw.choice(("before", "after", "at the end"))
    for stage in range(6):
        running = []
        for index in range(PARTITIONS):
            process = case.start("batch", "partition", "r", "--index", str(index))
            if stage == held_in and index == 0:
                case.moment(process, share=0.3 + 0.7 * case.draw.random() / PARTITIONS)
                case.struck = process.signalled(signal.SIGSTOP)
                late = process
            else:
                running.append(process)
        for process in running:
            process.end()
        if late is not None and stage == held_in:
            if goes_on == "before":
                late.signalled(signal.SIGCONT)
            case.start("batch", "partition", "r", "--index", "0").end()
        case.start("batch", "finalize", "r").end()
        if late is not None and goes_on == "after":
            late.signalled(signal.SIGCONT)
        if (case.place / "r" / "manifest.json").exists():
            break
    if late is not None:
        late.signalled(signal.SIGCONT)
        late.end()
    case.start(*RESUME).end()


def removed_chunk(case: Case) -> None:
    """Of the published result, before it is applied."""
    shutil.copytree(case.place / "fit", case.place / "r")
    path = case.a_file("r/result.zarr/*/c/**/*")
    assert path is not None
    path.unlink()
    case.struck = True
    case.start("transform", "r", "new.zarr", "--out", "t.zarr").end()


TRANSFORM = ("transform", "fit", "x.zarr", "--out", "t.zarr")
FAULTS: dict[str, Callable[[Case], None]] = {
    "kill -9 of the run": signalled(signal.SIGKILL),
    "kill -9 of its process group": signalled(signal.SIGKILL, group=True),
    "kill -9 within a write": within_a_write("kill"),
    "SIGTERM": signalled(signal.SIGTERM),
    "disk full within a write": within_a_write("disk_full"),
    "a failing chunk that heals": failing_chunk,
    "a chunk that changes and is restored": changing_chunk(killed=False),
    "a chunk that changes, kill -9, and is restored": changing_chunk(killed=True),
    "a corrupted part": damaged_after_kill("r/ledger/*/parts/*/*.npz", "flip cut"),
    "a truncated output": damaged_after_kill("r/ledger/*/result.zarr/*/c/**/*", "cut"),
    "a damaged copy in scratch, while it is read": damaged_copy,
    "a damaged copy in scratch, before --resume": damaged_after_kill(COPIED, "remove cut"),
    "two runs at a time": at_the_same_time(RUN, RUN, "r/ledger/run.json"),
    "two runs at a time, one with --overwrite": at_the_same_time(RUN, (*RUN, "--overwrite"), "r/ledger/run.json"),
    "two transforms at a time": at_the_same_time(TRANSFORM, TRANSFORM, ".t.zarr.partial/*"),
    "two transforms at a time, one with --overwrite": at_the_same_time(
        TRANSFORM, (*TRANSFORM, "--overwrite"), ".t.zarr.partial/*"
    ),
    "a partition that comes late": late_partition,
    "a chunk of the result that is gone": removed_chunk,
}
ON_A_CLUSTER: dict[str, Callable[[Case], None]] = {
    "kill -9 of a worker": dead_worker,
    "kill -9 of the run, on a cluster": signalled(signal.SIGKILL),
    "SIGTERM, on a cluster": signalled(signal.SIGTERM),
    "SIGINT, on a cluster": signalled(signal.SIGINT),
    "the end of the scheduler": lost_scheduler,
}
FAULTS |= ON_A_CLUSTER
HOSTILE = "a damaged or made-up chunk of 17 formats"


def prepare(place: Path, n_chunks: int, copied: bool) -> tuple[dict[str, dict[str, bytes]], float, int]:
    """Make the data and what is undisturbed; returns its bits by what is made, the seconds of a run, and its writes."""
    rng = np.random.default_rng(0)
    shape = (N, n_chunks * CHUNK)
    array = zarr.create_array(place / "x.zarr", shape=shape, chunks=(N, CHUNK), dtype="f4")
    for start in range(0, shape[1], CHUNK):
        array[:, start : start + CHUNK] = np.round(rng.normal(size=(N, CHUNK)), 2)
    new = zarr.create_array(place / "new.zarr", shape=(2, shape[1]), chunks=(2, CHUNK), dtype="f4")
    new[...] = array[:2]
    # Of other values, the same length and kind.
    (place / "other").write_bytes((place / "x.zarr" / "c" / "0" / "0").read_bytes())
    array[:, :CHUNK] = np.asarray(array[:, :CHUNK]) + 1
    if copied:
        rows = zarr.create_array(place / "rows.zarr", shape=(ROWS, WIDTH), chunks=(1, WIDTH), dtype="f4")
        for row in range(ROWS):
            rows[row] = rng.normal(size=WIDTH)
    said = "model: {n_components: 3}\noutput: {path: r, report: false}\n"
    (place / "c.yaml").write_text(f"input: {{uri: x.zarr}}\ncompute: {{workers: 2}}\n{said}")
    (place / "rows.yaml").write_text(
        f"input: {{uri: rows.zarr}}\ncompute: {{workers: 1, memory: 350 MiB, scratch: scratch}}\n{said}"
    )
    (place / "scratch").mkdir()
    case = Case(place, random.Random(), 0.0, 0)
    undisturbed = {}
    for config in ("rows.yaml", "c.yaml") if copied else ("c.yaml",):
        process = case.start("run", config, what="at_write(0, 0, kill)\n")
        case.moment(process)
        began = time.monotonic()
        assert process.end() == 0, process.said
        seconds = time.monotonic() - began
        undisturbed[config] = bits(place / "r")
        if config == "rows.yaml":
            shutil.rmtree(place / "r")
    shutil.copytree(place / "r", place / "fit")
    for fit, samples in (("r", "new.zarr"), ("fit", "x.zarr")):  # whose name is in what they write
        process = case.start("transform", fit, samples, "--out", "t.zarr")
        assert process.end() == 0, process.said
        undisturbed[samples] = bits(place / "t.zarr")
        shutil.rmtree(place / "t.zarr")
    shutil.rmtree(place / "r")
    return undisturbed, seconds, int((place / "writes").read_text())


def bits(path: Path) -> dict[str, bytes]:
    """Everything in a result that does not tell of the way there."""
    arrays = path / "result.zarr" if (path / "result.zarr").exists() else path
    found = {str(file.relative_to(path)): file.read_bytes() for file in sorted(arrays.rglob("*")) if file.is_file()}
    certificate = path / "certificate.json"
    return found | ({certificate.name: certificate.read_bytes()} if certificate.exists() else {})


def outcome(case: Case, undisturbed: dict[str, dict[str, bytes]]) -> str:
    """What came of it: every process that was spared must have ended well, or in a right error."""
    if not all(process.ended_rightly for process in case.processes if process.spared):
        return "lost"
    made = next((path for name in ("t.zarr", "r") if bits(path := case.place / name)), None)
    ended_well = case.processes[-1].end() == 0 or any(process.end() == 0 for process in case.processes[-2:])
    if made is not None and ended_well and bits(made) in undisturbed.values():
        return "same bits"
    return "lost" if ended_well else "right error"


def cluster(directory: str) -> LocalCluster:
    """Two workers in processes of their own, which are started again when they die, and listen on loopback alone.

    BLAS has as many threads in each as there are cores, as where workers are started without a nanny.
    """
    with dask.config.set({"distributed.nanny.pre-spawn-environ": {"MALLOC_TRIM_THRESHOLD_": 65536}}):
        return LocalCluster(
            n_workers=2,
            threads_per_worker=2,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            local_directory=f"{directory}/dask",
        )


def campaign(
    runs: int, seed: int, faults: Sequence[str] = tuple(FAULTS), only: int | None = None, n_chunks: int = CHUNKS
) -> dict[str, Counter[str]]:
    """Run it; returns for each fault how many runs there were, how many it struck before they had ended, and how they ended.

    Parameters
    ----------
    runs : of each fault
    only : the number of a single run
    n_chunks : of the data
    """
    table: dict[str, Counter[str]] = {fault: Counter() for fault in faults}
    with tempfile.TemporaryDirectory(prefix="dpca-faults-") as directory:
        place = Path(directory)
        undisturbed, seconds, writes = prepare(place, n_chunks, any("copy" in fault for fault in faults))
        there = set(os.listdir(place))
        for number in range(runs * len(faults)) if only is None else [only]:
            fault, draw = faults[number % len(faults)], random.Random(f"{seed} {number}")
            case = Case(place, draw, seconds, writes)
            if fault in ON_A_CLUSTER:
                with cluster(directory) as case.cluster:
                    FAULTS[fault](case)
            else:
                FAULTS[fault](case)
            found = outcome(case, undisturbed)
            table[fault].update(["runs", *["struck"] * case.struck, found])
            if found == "lost" or only is not None:
                print(
                    f"{found}: {fault}; repeat it: python -m workflows.campaigns.faults --seed {seed} --only {number}",
                    file=sys.stderr,
                )
                for process in case.processes:
                    print(f"-- {process.popen.args[2:]}: {process.end()}\n{process.said[-1500:]}", file=sys.stderr)  # type: ignore[index]
            for name in set(os.listdir(place)) - there:
                path = place / name
                shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink()
            for path in (place / "scratch").iterdir():
                shutil.rmtree(path)
    return table


COLUMNS = ("runs", "struck", "same bits", "right error", "lost")


def main() -> bool:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3, help="Of each fault.")
    parser.add_argument("--chunks", type=int, default=5000, help="Damaged or made-up ones.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, help="The number of a single run, to repeat it.")
    given = parser.parse_args()
    table = campaign(given.runs, given.seed, only=given.only)
    if given.only is not None:
        return any(row["lost"] for row in table.values())
    chunks = hostile.campaign(given.chunks, given.seed, report=False)
    table[HOSTILE] = Counter(
        {
            "runs": chunks.total(),
            "struck": chunks.total(),
            "same bits": chunks["same values"],
            "right error": chunks["right error"],
            "lost": chunks["lost"],
        }
    )
    print(f"| fault | {' | '.join(COLUMNS)} |\n|{' --- |' * (1 + len(COLUMNS))}")
    for fault, row in table.items():
        print(f"| {fault} | {' | '.join(str(row[column]) for column in COLUMNS)} |")
    print(f"\n{chunks['other values']} chunks read as other values, of formats that keep no checksum.")
    return any(row["lost"] for row in table.values())


if __name__ == "__main__":
    sys.exit(main())
