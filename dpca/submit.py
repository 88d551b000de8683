"""A job array's scripts for Slurm: what the plan says of memory and time, and what follows what."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpca.batch import init, is_under_way
from dpca.config_file import Loaded, load
from dpca.errors import ClusterError, writing
from dpca.partitions import Collecting
from dpca.run import plan

ARRAY, FINALIZE = "array.sbatch", "finalize.sbatch"
MEMORY_MARGIN, MEMORY_BESIDE = 1.2, 128 * 2**20
"""Slurm counts shared libraries too, which a plan does not."""
TIME_MARGIN, LEAST_MINUTES = 3, 10
"""A node may be slower than this one, and its storage busier."""
SIGNAL_SECONDS = 120


@dataclass(frozen=True)
class Submission:
    """Scripts, and what became of them."""

    directory: Path
    scripts: dict[str, str]
    """By name."""
    jobs: tuple[str, ...] = ()
    """Numbers of the array and of what follows it; none of a dry run."""


def scripts(loaded: Loaded, document: dict[str, Any], partitions: int | None, options: Sequence[str]) -> Submission:
    """The sbatch scripts of a run.

    Parameters
    ----------
    loaded : the configuration
    document : of `dpca.run.plan`, for one task at a time
    partitions : tasks of the array; None for one a span
    options : further options of sbatch, such as --partition=long
    """
    place = Path(loaded.config.output.path).absolute()
    directory = place.with_name(f"{place.name}.slurm")
    n = min(partitions or document["spans"], document["spans"])
    stages = dict(document["time"]["stages"])
    solving = stages.pop("eigensolve", 0.0)
    megabytes = int((document["memory"]["peak_bytes"] * MEMORY_MARGIN + MEMORY_BESIDE) / 2**20) + 1
    here, dpca = shlex.quote(os.getcwd()), shlex.join([sys.executable, "-m", "dpca"])
    run = shlex.quote(str(place))

    def script(job: str, minutes: int, log: str, *more: str, body: str) -> str:
        lines = [
            f"--job-name={job}-{place.name}",
            *more,
            "--ntasks=1 --cpus-per-task=1",
            f"--mem={megabytes}M",
            f"--time={minutes}",
            f"--signal=B:USR1@{SIGNAL_SECONDS}",
            "--requeue --open-mode=append",
            f"--output={directory}/{log}",
            *options,
        ]
        head = "\n".join(f"#SBATCH {line}" for line in lines)
        return f"#!/bin/bash\n{head}\n\ncd {here} || exit\n{body}\n"

    array = script(
        "dpca",
        max(LEAST_MINUTES, int(TIME_MARGIN * max(stages.values()) / n / 60) + 1),
        "%A_%a.log",
        f"--array=0-{n - 1}",
        body=f'exec {dpca} batch partition {run} --index "$SLURM_ARRAY_TASK_ID"',
    )
    after = f"sbatch --parsable {shlex.quote(str(directory / ARRAY))}"
    follow = f"sbatch --parsable --dependency=afterany:$array {shlex.quote(str(directory / FINALIZE))}"
    again = f"sbatch --parsable --begin=now+30 --dependency=afterany:$array {shlex.quote(str(directory / FINALIZE))}"
    finalize = script(
        "dpca-finalize",
        max(LEAST_MINUTES, int(TIME_MARGIN * solving / 60) + 1),
        "finalize-%j.log",
        body=(
            "# A task that was requeued may still be at work, whatever the dependency says.\n"
            "array=${SLURM_JOB_DEPENDENCY#*:} array=${array%%[!0-9]*}\n"
            'if [ -n "$array" ] && [ -n "$(squeue --noheader --jobs "$array" 2>/dev/null)" ]; then\n'
            f"    exec {again}\n"
            "fi\n"
            f"# Names what is missing and ends with 1; then: sbatch --array=... {ARRAY}, and this again.\n"
            f"{dpca} batch finalize {run} || exit\n"
            "# Each stage is an array of its own: scores and spectrum, components, what components need besides.\n"
            f'if {dpca} batch status {run} --json | grep -q \'"state": "waiting"\'; then\n'
            f"    array=$({after}) && {follow}\n"
            "fi"
        ),
    )
    return Submission(directory, {ARRAY: array, FINALIZE: finalize})


def submit(
    loaded: Loaded,
    config: Path,
    *,
    partitions: int | None = None,
    options: Sequence[str] = (),
    overwrite: bool = False,
    dry_run: bool = False,
) -> Submission:
    """Begin a run as a job array, or go on with one, and hand its scripts to Slurm.

    Parameters
    ----------
    loaded, config : the configuration, and its file
    partitions, options : as of `scripts`
    overwrite : as of `dpca.run.run`
    dry_run : make the scripts only; nothing is written or begun

    Raises
    ------
    DpcaError
        As `dpca.batch.init` does.
    ClusterError
        When sbatch is not there, or refuses.
    """
    document = plan(loaded, Collecting())
    made = scripts(loaded, document, partitions, options)
    if dry_run:
        return made
    if loaded.config.compute.memory == "auto":
        # In an allocation that was made for the plan, half of what is free would not be enough for it.
        loaded = load(config, [*loaded.overrides, f"compute.memory={document['memory']['peak_bytes']}B"])
    place = Path(loaded.config.output.path)
    if not is_under_way(place) or overwrite:
        init(loaded, config, partitions=partitions, overwrite=overwrite)
    with writing(str(made.directory)):
        made.directory.mkdir(parents=True, exist_ok=True)
        for name, text in made.scripts.items():
            (made.directory / name).write_text(text, encoding="utf-8")
    array = _sbatch(made.directory / ARRAY)
    last = _sbatch(made.directory / FINALIZE, f"--dependency=afterany:{array}")
    return Submission(made.directory, made.scripts, (array, last))


def _sbatch(script: Path, *options: str) -> str:
    """The number of a job."""
    try:
        done = subprocess.run(
            ["sbatch", "--parsable", *options, str(script)], capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        raise ClusterError(
            "sbatch is not here", "Run this where Slurm's commands are, or print the scripts with --dry-run."
        ) from None
    if done.returncode:
        raise ClusterError(
            f"sbatch refused {script}: {done.stderr.strip()}", "Correct it (--sbatch sets options), and again."
        )
    return done.stdout.strip().partition(";")[0]
