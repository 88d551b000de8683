"""Scripts for Slurm, with memory and time from the plan, and with the order of the jobs.

There are two ways: a job array (`dpca.commands.batch`), which opens no ports; or one job for the run, on its own
cores, with workers in jobs of their own, or with workers in its tasks, as compute.cluster says.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Literal

from dpca.commands.batch import begun_with, go_on_with, init, is_under_way
from dpca.commands.foresight import plan
from dpca.commands.prepare import beside, place_of
from dpca.config.loading import Loaded, load
from dpca.errors import ClusterError, ConfigError, writing
from dpca.execution.jobqueue import OF_SCRIPTS, SlurmStep
from dpca.execution.partitions import Collecting
from dpca.settings import COMPUTE
from dpca.store.directory import ResultDirectory
from dpca.system import durable
from dpca.units import is_plain

ARRAY, FINALIZE, JOB = "array.sbatch", "finalize.sbatch", "job.sbatch"
MEMORY_MARGIN, MEMORY_BESIDE = 1.2, 128 * 2**20
"""Slurm counts shared libraries too, which a plan does not."""
CLIENT_SHARE = 2
"""The client of a cluster takes half of the free memory of its machine."""
TIME_MARGIN, LEAST_MINUTES, LEAST_WAITING_MINUTES = 3, 10, 60
"""A node may be slower than this one, and its storage busier; and a run whose workers are jobs waits for them."""
SIGNAL_SECONDS = 120
SPANS_A_JOB = 10
"""A job lasts for at least so many spans: the one that is unfinished when it ends is computed again."""
SECOND_PASS = (
    "components",
    "orthogonalize",
    "scores",
    "signs",
    "fourth moments",
    "promax target",
    "rotated components",
    "rotated scores",
)
"""Stages whose tasks hold no m x m matrix; the names of those that follow another solver begin so, too."""
MOST_TASKS = 1000
"""Slurm's default for MaxArraySize allows no more."""

Way = Literal["array", "job"]

STOPPABLE = """\
# Slurm sends SIGUSR1 to this shell before the walltime ends: what runs is told to stop, and the job to come again.
stoppable() {
    trap 'ending=yes; kill -USR1 $run' USR1
    trap : TERM  # Slurm sends it to all processes of a job
    "$@" &
    run=$!
    if [ "$ending" ]; then kill -USR1 $run; fi
    while wait $run; kill -0 $run 2>/dev/null; do :; done
    wait $run
    code=$?
    trap - USR1 TERM
    if [ $code -ne 0 ] && [ "$ending" ] && [ "${SLURM_RESTART_COUNT:-0}" -lt 100 ]; then exec scontrol requeue "$SLURM_JOB_ID"; fi
    return $code
}
"""


@dataclass(frozen=True)
class ForSlurm:
    """Options for Slurm beside what the plan says."""

    options: Sequence[str] = ()
    """Options of sbatch for all jobs, such as --partition=long."""
    array: Sequence[str] = ()
    """Further ones of the array alone."""
    finalize: Sequence[str] = ()
    """Further ones of the job that adds up alone."""
    at_once: int | None = None
    """Tasks of the array that run at the same time; None for as many as Slurm lets run."""
    job_script_prologue: Sequence[str] = ()
    """Lines of shell before dpca is started: module load ..."""

    def check(self, way: Way) -> None:
        """Refuse what would not do what it says."""
        of_sbatch = {"--sbatch": self.options, "--sbatch-array": self.array, "--sbatch-finalize": self.finalize}
        given = {**of_sbatch, "--job-script-prologue": self.job_script_prologue}
        for flag, text in ((flag, text) for flag, texts in given.items() for text in texts):
            if not is_plain(text):
                raise ConfigError(
                    f"{flag} is {text!r}, but text without control characters (such as line breaks) is allowed",
                    f"Repeat {flag}.",
                )
            if flag in of_sbatch and text.startswith(("--array", "-a")):
                raise ConfigError(
                    f"{flag} is {text!r}, but the tasks of the array are those of the plan, and other jobs have none",
                    "Say how many there are with --partitions, and how many run at the same time with --at-once.",
                )
        if way == "job" and (self.array or self.finalize or self.at_once is not None):
            raise ConfigError(
                "--at-once, --sbatch-array and --sbatch-finalize are for a job array, but this is one job",
                "Leave them out, or use --as array.",
            )


@dataclass(frozen=True)
class Submission:
    """Scripts, and the jobs that were submitted from them."""

    directory: Path
    scripts: dict[str, str]
    """The texts of the scripts, by name."""
    jobs: tuple[str, ...] = ()
    """The numbers of the jobs, one for each script; none after a dry run."""


def array_scripts(
    loaded: Loaded, document: dict[str, Any], partitions: int | None = None, asked: ForSlurm = ForSlurm()
) -> dict[str, str]:
    """The scripts of a job array, and of the job that follows it.

    Parameters
    ----------
    loaded : the configuration
    document : the result of `dpca.commands.foresight.plan`, for one task at a time
    partitions : tasks of the array; None for one per span, but at most 1000
    asked : of Slurm, beside that
    """
    place = Path(loaded.config.output.path).absolute()
    directory = beside(loaded.config.output.path)
    n = n_partitions(document, partitions)
    stages = dict(document["time"]["stages"])
    solving = stages.pop("eigensolve", 0.0)
    run, (first, second, finalizing) = shlex.quote(str(place)), _memory_of_array(document)
    array = _script(
        f"dpca-{place.name}",
        _minutes(max(max(stages.values()) / n, SPANS_A_JOB / TIME_MARGIN * document["time"]["span_seconds"])),
        directory / "%A_%a.log",
        [
            f"--array=0-{n - 1}" + (f"%{asked.at_once}" if asked.at_once is not None else ""),
            "--ntasks=1 --cpus-per-task=1",
            f"--mem={first}M",
        ],
        (*asked.options, *asked.array),
        asked.job_script_prologue,
        f'stoppable {_dpca()} batch partition {run} --index "$SLURM_ARRAY_TASK_ID"\n',
    )
    second_pass = " | ".join(f"""*'"stage": "{name}'*""" for name in SECOND_PASS)
    sbatch, after = "sbatch --parsable", "--dependency=afterany:$array"
    scripts = {name: shlex.quote(str(directory / name)) for name in (ARRAY, FINALIZE)}
    finalize = _script(
        f"dpca-finalize-{place.name}",
        _minutes(solving),
        directory / "finalize-%j.log",
        ["--ntasks=1 --cpus-per-task=1", f"--mem={finalizing}M"],
        (*asked.options, *asked.finalize),
        asked.job_script_prologue,
        "# A task that was requeued may still be at work, whatever the dependency says.\n"
        "array=${SLURM_JOB_DEPENDENCY#*:} array=${array%%[!0-9]*}\n"
        'if [ -n "$array" ] && [ -n "$(squeue --noheader --jobs "$array" 2>/dev/null)" ]; then\n'
        f"    exec {sbatch} --begin=now+30 {after} {scripts[FINALIZE]}\n"
        "fi\n"
        f"# Names what is missing and ends with 1; then: sbatch --array=... {ARRAY}, and this again.\n"
        f"stoppable {_dpca()} batch finalize {run} || exit\n"
        "# Each stage is an array of its own: scores and spectrum, components, what components need besides.\n"
        f"status=$({_dpca()} batch status {run} --json)\n"
        f"memory={first}M  # of a task that adds up a matrix, or copies\n"
        f"case $status in {second_pass}) memory={second}M ;; esac\n"
        'if printf %s "$status" | grep -q \'"state": "waiting"\'; then\n'
        f"    array=$({sbatch} --mem=$memory {scripts[ARRAY]}) && {sbatch} {after} {scripts[FINALIZE]}\n"
        "fi\n",
    )
    return {ARRAY: array, FINALIZE: finalize}


def _memory_of_array(document: dict[str, Any]) -> tuple[int, int, int]:
    """Megabytes of a task that adds up a matrix, of a task of the second pass, and of finalizing."""
    finalizing, tasks = document["memory"]["processes"]
    second = [stage["bytes"] for stage in tasks["stages"] if stage["name"] in SECOND_PASS]
    first = [stage["bytes"] for stage in tasks["stages"] if stage["name"] not in SECOND_PASS]
    return _megabytes(max(first)), _megabytes(max(second, default=0)), _megabytes(finalizing["peak_bytes"])


def n_partitions(document: dict[str, Any], asked: int | None) -> int:
    """The number of tasks of an array: by default one per span, up to Slurm's limit."""
    return min(asked or MOST_TASKS, int(document["spans"]))


def job_script(
    loaded: Loaded, config: Path, document: dict[str, Any], asked: ForSlurm = ForSlurm(), overwrite: bool = False
) -> dict[str, str]:
    """The script of one job for a whole run.

    Parameters
    ----------
    loaded, config : the configuration, and its file
    document : the result of `dpca.commands.foresight.plan`
    asked, overwrite : as for `submit`
    """
    compute, place = loaded.config.compute, place_of(loaded.config)
    peaks = {process["name"]: process["peak_bytes"] for process in document["memory"]["processes"]}
    seconds, least = sum(document["time"]["stages"].values()), LEAST_MINUTES
    overrides, srun = list(loaded.overrides), ""
    if isinstance(place, SlurmStep):
        tasks = f"--ntasks={place.n_tasks} --cpus-per-task={place.cores}"
        srun = f"srun --kill-on-bad-exit=1 {tasks} "
        most = max(place.memory, peaks["worker"], CLIENT_SHARE * peaks["client"])
        resources = [tasks, f"--mem-per-cpu={_megabytes(most) // place.cores + 1}M"]
    elif place is not None:
        least = LEAST_WAITING_MINUTES
        resources = ["--ntasks=1 --cpus-per-task=1", f"--mem={_megabytes(CLIENT_SHARE * peaks['client'])}M"]
    else:
        cores = compute.workers
        if cores == "auto":
            cores = document["tasks"]
            overrides.append(f"compute.workers={cores}")
        resources = [f"--ntasks=1 --cpus-per-task={cores}", f"--mem={_megabytes(peaks['dpca'])}M"]
        if compute.memory == "auto":
            overrides.append(f"compute.memory={document['memory']['peak_bytes']}B")
    arguments = shlex.join([str(config.absolute()), *(word for value in overrides for word in ("--set", value))])
    run = f"{_dpca()} run {arguments}"
    name, directory = Path(loaded.config.output.path).name, beside(loaded.config.output.path)
    return {
        JOB: _script(
            f"dpca-{name}",
            _minutes(seconds, least),
            directory / "%j.log",
            resources,
            asked.options,
            asked.job_script_prologue,
            "# Requeued it goes on with what is finished; by hand it is this too, with --resume.\n"
            f"stoppable {srun}{run} {'--overwrite' if overwrite else '--resume'}\n",
        )
    }


def submit(
    loaded: Loaded,
    config: Path,
    *,
    way: Way | None = None,
    partitions: int | None = None,
    asked: ForSlurm = ForSlurm(),
    overwrite: bool = False,
    dry_run: bool = False,
) -> Submission:
    """Hand a run to Slurm: begin or resume it as a job array, or submit one job for it.

    Parameters
    ----------
    loaded, config : the configuration, and its file
    way : None for an array where compute.cluster is local, else a job
    partitions, asked : as for `array_scripts`
    overwrite : as for `dpca.commands.run.run`
    dry_run : make the scripts only; nothing is written or begun
    """
    local = loaded.config.compute.cluster == "local"
    way = way or ("array" if local else "job")
    if way == "array" and not local:
        raise ConfigError(
            f"a job array needs no cluster, but {COMPUTE.cluster} is not local",
            f"Leave out --as array, or set {COMPUTE.cluster}: local.",
            key="compute.cluster",
        )
    if way == "job" and partitions is not None:
        raise ConfigError(f"--partitions is {partitions}, but a job is no array", "Leave it out, or use --as array.")
    asked.check(way)
    if not dry_run and shutil.which("sbatch") is None:
        raise ClusterError(
            "sbatch is not here", "Run this where Slurm's commands are, or print the scripts with --dry-run."
        )
    loaded.check_overrides()
    place, directory = ResultDirectory(loaded.config.output.path), beside(loaded.config.output.path)
    if way == "array" and is_under_way(place.path) and not overwrite:
        partitions = begun_with(place.path, partitions)
    elif not dry_run and (overwrite or place.unfinished() is None):
        place.check_free(overwrite)
    if not dry_run:
        durable.check_own(directory, *OF_SCRIPTS)
    document = plan(loaded, Collecting() if way == "array" else None)
    if way == "array":
        submission = Submission(directory, array_scripts(loaded, document, partitions, asked))
    else:
        submission = Submission(directory, job_script(loaded, config, document, asked, overwrite))
    if dry_run:
        return submission
    if way == "array":
        if loaded.config.compute.memory == "auto":
            # The allocation is made for the plan: the default, half of the free memory, would not be enough.
            loaded = load(config, [*loaded.overrides, f"compute.memory={document['memory']['peak_bytes']}B"])
        if is_under_way(place.path) and not overwrite:
            go_on_with(place.path, loaded)
        else:
            init(loaded, config, partitions=n_partitions(document, partitions), overwrite=overwrite)
    with writing(str(directory)):
        durable.make_own(directory, *OF_SCRIPTS)
        for name, text in submission.scripts.items():
            durable.write(directory / name, partial(_save, text), durable.OWN_FILE)  # lines of shell may hold passwords
    jobs: list[str] = []
    for name in submission.scripts:
        try:
            jobs.append(_sbatch(directory / name, *(f"--dependency=afterany:{job}" for job in jobs)))
        except ClusterError:
            for job in jobs:  # an array is of no use without the job that follows
                subprocess.run(["scancel", job], capture_output=True, check=False)
            raise
    return Submission(directory, submission.scripts, tuple(jobs))


def _save(text: str, file: BinaryIO) -> None:
    file.write(text.encode())


def _script(
    name: str,
    minutes: int,
    log: Path,
    resources: Sequence[str],
    options: Sequence[str],
    prologue: Sequence[str],
    body: str,
) -> str:
    lines = [
        f"--job-name={shlex.quote(name)}",
        *resources,
        f"--time={minutes}",
        f"--signal=B:USR1@{SIGNAL_SECONDS}",
        "--requeue --open-mode=append",
        f"--output={shlex.quote(str(log.parent).replace('%', '%%'))}/{log.name}",
        *options,
    ]
    head = "\n".join(f"#SBATCH {line}" for line in lines)
    before = "".join(f"{line}\n" for line in prologue)
    return f"#!/bin/bash\n{head}\n\n{STOPPABLE}\n{before}cd {shlex.quote(os.getcwd())} || exit\n{body}"


def _dpca() -> str:
    # With -P, no module is imported from the folder of the job: one that lies beside the data may be called numpy.py.
    return shlex.join([sys.executable, "-P", "-m", "dpca"])


def _megabytes(n_bytes: int) -> int:
    """The megabytes to request for a planned number of bytes."""
    return int((n_bytes * MEMORY_MARGIN + MEMORY_BESIDE) / 2**20) + 1


def _minutes(seconds: float, least: int = LEAST_MINUTES) -> int:
    """The minutes to request for a forecast number of seconds."""
    return max(least, int(TIME_MARGIN * seconds / 60) + 1)


def _sbatch(script: Path, *options: str) -> str:
    """Submit a script; returns the number of the job."""
    done = subprocess.run(["sbatch", "--parsable", *options, str(script)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise ClusterError(
            f"sbatch refused {script}: {done.stderr.strip()}",
            "Correct it (--sbatch sets options), or see whether Slurm answers (sinfo); then again.",
        )
    return done.stdout.strip().partition(";")[0]
