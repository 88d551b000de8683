"""The commands for clusters: job arrays, and scripts for Slurm."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dpca.cli.options import PATH, debug_option, overrides_option
from dpca.cli.printing import print_finished, say

if TYPE_CHECKING:
    from dpca.commands.batch import Waiting
    from dpca.commands.run import Finished
    from dpca.commands.submit import Way


@click.command()
@click.argument("config", type=PATH)
@click.option("--dry-run", is_flag=True, help="Print the scripts and submit nothing.")
@click.option(
    "--as",
    "way",
    type=click.Choice(["array", "job"]),
    help="array: a job array, which opens no ports. job: one job with the whole run. Default: array, if compute.cluster is "
    "local.",
)
@click.option(
    "--partitions",
    metavar="N",
    type=click.IntRange(min=1),
    help="Number of tasks in the Slurm job array. Default: one for each part of the data (dpca plan shows how many).",
)
@click.option(
    "--at-once",
    metavar="N",
    type=click.IntRange(min=1),
    help="Number of tasks that run at the same time. Default: all.",
)
@click.option(
    "--sbatch",
    "options",
    multiple=True,
    metavar="OPTION",
    help="Option of sbatch for all jobs, such as --partition=long. Repeat it for several.",
)
@click.option("--sbatch-array", multiple=True, metavar="OPTION", help="Option of sbatch for the array only.")
@click.option(
    "--sbatch-finalize",
    multiple=True,
    metavar="OPTION",
    help="Option of sbatch for the job that adds up the parts, such as a short queue.",
)
@click.option(
    "--job-script-prologue",
    "prologue",
    multiple=True,
    metavar="LINE",
    help="Shell command before dpca starts, such as module load. Repeat it for several.",
)
@click.option("--overwrite", is_flag=True, help="Replace an earlier result when the new one is complete.")
@overrides_option
@debug_option
def submit(
    config: Path,
    dry_run: bool,
    way: Way | None,
    partitions: int | None,
    at_once: int | None,
    options: tuple[str, ...],
    sbatch_array: tuple[str, ...],
    sbatch_finalize: tuple[str, ...],
    prologue: tuple[str, ...],
    overwrite: bool,
    overrides: tuple[str, ...],
) -> None:
    """Submit a run to Slurm, with memory and time from the plan.

    array: a job array for each stage. job: the cores of one job, or the workers of compute.cluster. A job that is
    preempted or reaches its walltime is requeued and continues.

    \b
    Example: dpca submit big.yaml --partitions 64 --at-once 8 --sbatch=--account=physics --dry-run
    """
    from dpca.commands.submit import ForSlurm
    from dpca.commands.submit import submit as hand_over
    from dpca.config.loading import load

    job = hand_over(
        load(config, overrides),
        config,
        way=way,
        partitions=partitions,
        asked=ForSlurm(options, sbatch_array, sbatch_finalize, at_once, prologue),
        overwrite=overwrite,
        dry_run=dry_run,
    )
    if dry_run:
        for name, text in job.scripts.items():
            click.echo(f"# {job.directory / name}\n{text}")
        return
    first, *later = job.jobs
    submitted = f"array {first}, and {later[0]} after it" if later else f"job {first}"
    click.echo(f"submitted {submitted}; scripts and logs: {job.directory}")


@click.group()
def batch() -> None:
    """Run as a job array, without a scheduler and without ports: init, then partition and finalize in turn.

    \b
    Example: dpca batch init big.yaml --partitions 64
             dpca batch partition results/big --index $SLURM_ARRAY_TASK_ID
             dpca batch finalize results/big
    """


@batch.command(name="init")
@click.argument("config", type=PATH)
@click.option(
    "--partitions",
    metavar="N",
    type=int,
    help="Number of tasks in the Slurm job array. Default: one for each part of the data (dpca plan shows how many).",
)
@click.option("--overwrite", is_flag=True, help="Replace an earlier result when the new one is complete.")
@overrides_option
@debug_option
def batch_init(config: Path, partitions: int | None, overwrite: bool, overrides: tuple[str, ...]) -> None:
    """Begin a run: plan it, make its arrays, and say how many partitions there are.

    \b
    Example: dpca batch init big.yaml --partitions 64
    """
    from dpca.commands.batch import init as begin
    from dpca.config.loading import load

    loaded = load(config, overrides)
    _print_batch(begin(loaded, config, partitions=partitions, overwrite=overwrite), Path(loaded.config.output.path))


@batch.command(name="partition")
@click.argument("result", metavar="RUN", type=PATH)
@click.option("--index", required=True, type=int, help="Which, from 0.")
@debug_option
def batch_partition(result: Path, index: int) -> None:
    """Compute one partition of the current stage of a run; in any order, in parallel, and as often as you like.

    \b
    Example: dpca batch partition results/big --index $SLURM_ARRAY_TASK_ID
    """
    from dpca.commands.batch import partition
    from dpca.execution.partitions import NotOpened

    ended = partition(result, index, lambda sentence: click.echo(f"dpca: {sentence}", err=True))
    if ended is None:
        click.echo(f"partition {index}: nothing to do, {result} is a result that is whole")
        return
    if isinstance(ended, NotOpened):
        click.echo(f"partition {index} of {ended.stage}: nothing to do before dpca batch finalize has gone on")
        return
    words = [f"{len(ended.computed)} spans computed"] * bool(ended.computed or not ended.found)
    words += [f"{len(ended.found)} were there"] * bool(ended.found)
    click.echo(f"partition {index} of {ended.stage}: {', '.join(words)}")


@batch.command(name="finalize")
@click.argument("result", metavar="RUN", type=PATH)
@debug_option
def batch_finalize(result: Path) -> None:
    """Add up what partitions have computed: on to the next stage, or to the result.

    Exit code 1 if partitions are missing or damaged; it names all of them.

    \b
    Example: dpca batch finalize results/big
    """
    from dpca.commands.batch import finalize

    _print_batch(finalize(result), result)


@batch.command(name="status")
@click.argument("result", metavar="RUN", type=PATH)
@click.option("--json", "as_json", is_flag=True, help="Everything, for programs.")
@debug_option
def batch_status(result: Path, as_json: bool) -> None:
    """Which partitions of the current stage of a run are missing.

    \b
    Example: dpca batch status results/big --json
    """
    from dpca.commands.batch import status as look

    found = look(result)
    if as_json:
        click.echo(json.dumps(found, indent=2))
    elif found["state"] == "done":
        click.echo(f"{result}: done")
    else:
        missing = found["partitions_missing"]
        click.echo(
            f"{result}: stage {found['stage']}, {found['partitions'] - len(missing)} of {found['partitions']} partitions are "
            f"there" + (f"; missing: {_ranges(missing)}" if missing else ", dpca batch finalize goes on")
        )


def _print_batch(found: Finished | Waiting, place: Path) -> None:
    from dpca.commands.batch import Waiting

    if not isinstance(found, Waiting):
        print_finished(found)
        found.check()
        return
    if found.opened:
        click.echo(
            f"{place}: stage {found.stage} has {found.partitions} partitions: dpca batch partition {place} --index 0 to "
            f"{found.partitions - 1}, then dpca batch finalize {place}"
        )
        return
    say(
        f"dpca: error: {place}: stage {found.stage}: partitions {_ranges(found.indices)} of {found.partitions} are missing or "
        "damaged",
        *(f"span {number}: {why}" for number, why in found.missing if why != "missing"),
        f"Compute them: dpca batch partition {place} --index I, for each; in Slurm sbatch --array={_ranges(found.indices)} YOUR_SCRIPT.",
    )
    sys.exit(1)


def _ranges(numbers: list[int]) -> str:
    """The numbers as Slurm writes them: 0-3,7 for 0, 1, 2, 3, 7."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)
