"""The command line: parses, calls one function, prints."""

from __future__ import annotations

import json
import math
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

# Imported inside the commands, so that none waits for a library that it does not need.
if TYPE_CHECKING:
    from dpca.apply import Applied, Place
    from dpca.batch import Waiting
    from dpca.results import Result
    from dpca.run import Finished

SHOWN_COMPONENTS = 10

# Read by `main`, which meets every error.
debug_option = click.option("--debug", is_flag=True, expose_value=False, help="Show tracebacks.")
overrides_option = click.option(
    "--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a key of the config."
)

array_option = click.option("--array", metavar="PATH", help="Which array inside; the largest if left out.")
samples_axis_option = click.option(
    "--samples-axis", metavar="AXIS", help="Number or dimension name; guessed if left out."
)


def out_option(command: Any) -> Any:
    """Where a command writes."""
    command = click.option("--overwrite", is_flag=True, help="Replace what --out holds, once the new one is whole.")(
        command
    )
    return click.option("--out", required=True, type=click.Path(path_type=Path), help="A Zarr group to make.")(command)


def where_options(command: Any) -> Any:
    """Where a command without a config runs, and what it may take."""
    for option in (
        click.option("--scheduler-file", metavar="PATH", help="The file that a running Dask scheduler wrote."),
        click.option("--scheduler", metavar="ADDRESS", help="A running Dask scheduler; else this machine."),
        click.option("--workers", type=click.IntRange(min=1), help="Threads on this machine; one a core if left out."),
        click.option("--memory", metavar="AMOUNT", help="Such as 8GiB; half of what is free if left out."),
    ):
        command = option(command)
    return command


def kernel_options(command: Any) -> Any:
    """Which kernel is applied, and to what."""
    for option in (
        click.option("--training", metavar="URI", help="Of kernels: where the training data are now, if they moved."),
        click.option("--kernel-case", metavar="I", type=int, help="Of a sweep: which kernel, by its number."),
    ):
        command = option(command)
    return command


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="dpca")
def commands() -> None:
    """Exact PCA of data with far more features than samples, larger than memory.

    \b
    Exit codes: 0 done, 1 failed while running, 2 bad config or input, 3 over budget, 130 interrupted.
    """


@commands.command()
@click.argument("config", type=click.Path(path_type=Path))
@click.option("--overwrite", is_flag=True, help="Replace an earlier result once the new one is whole.")
@click.option("--resume", is_flag=True, help="Go on with a run that did not end; begin one if there is none.")
@click.option("--keep-ledger", is_flag=True, help="Leave the finished parts beside the result.")
@click.option(
    "--from-gram",
    metavar="RESULT",
    type=click.Path(path_type=Path),
    help="Kernels of the Gram matrix that an earlier result keeps: no data are read.",
)
@overrides_option
@debug_option
def run(
    config: Path,
    overwrite: bool,
    resume: bool,
    keep_ledger: bool,
    from_gram: Path | None,
    overrides: tuple[str, ...],
) -> None:
    """Carry out a config.

    What is finished survives whatever ends the run; --resume goes on from there, to the same bits.

    \b
    Example: dpca run configs/quickstart.yaml --set model.n_components=30
    """
    from dpca.config_file import load
    from dpca.progress import display_for
    from dpca.run import run as carry_out

    if overwrite and resume:
        raise click.UsageError("--overwrite drops an unfinished run, --resume goes on with it: give one of them")
    finished = carry_out(
        load(config, overrides),
        overwrite=overwrite,
        resume=resume,
        keep_ledger=keep_ledger,
        from_gram=from_gram,
        display=display_for(),
    )
    _print_finished(finished)


@commands.command()
@click.argument("config", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Everything, for programs.")
@overrides_option
@debug_option
def plan(config: Path, as_json: bool, overrides: tuple[str, ...]) -> None:
    """What a run would read, hold, write and take; writes nothing.

    Measures for a few seconds: reads a slab in each task, and writes 16 MB that it removes. Exit code 3 if
    no plan fits the memory or the scratch.

    \b
    Example: dpca plan configs/quickstart.yaml --set compute.memory=2GiB
    """
    from dpca.config_file import load
    from dpca.errors import OverBudgetError
    from dpca.forecast import as_text
    from dpca.run import plan as make_plan

    try:
        document = make_plan(load(config, overrides))
    except OverBudgetError as error:
        if as_json:
            click.echo(json.dumps({"fits": False, "error": error.message, "remedy": error.remedy}, indent=2))
        raise
    click.echo(json.dumps(document, indent=2) if as_json else as_text(document))


@commands.command()
@click.argument("config", type=click.Path(path_type=Path))
@overrides_option
@debug_option
def validate(config: Path, overrides: tuple[str, ...]) -> None:
    """Check a config; reads no data.

    \b
    Example: dpca validate configs/quickstart.yaml
    """
    from dpca.config_file import load

    loaded = load(config, overrides)
    click.echo(f"{config}: valid")
    uri = loaded.config.input.uri
    if "://" not in uri and not Path(uri).exists():
        click.echo(f"dpca: note: its input {uri} does not exist here", err=True)


@commands.command()
@click.argument("uri")
@array_option
@samples_axis_option
@click.option("--json", "as_json", is_flag=True, help="Everything, for programs.")
@debug_option
def inspect(uri: str, array: str | None, samples_axis: str | None, as_json: bool) -> None:
    """What lies at a path or URL, and what to watch out for; reads metadata and one chunk.

    \b
    Example: dpca inspect data/faces.zarr
    """
    from dpca.inspection import as_text
    from dpca.inspection import inspect as look

    found = look(uri, array, _axis(samples_axis))
    click.echo(json.dumps(found, indent=2) if as_json else as_text(found))


@commands.command()
@click.argument("uri")
@array_option
@samples_axis_option
@debug_option
def init(uri: str, array: str | None, samples_axis: str | None) -> None:
    """Print a config for what lies at a path or URL: ready to run, every key explained.

    \b
    Example: dpca init data/faces.zarr > faces.yaml
    """
    from dpca.inspection import inspect as look
    from dpca.inspection import starting_config

    found = look(uri, array, _axis(samples_axis))
    click.echo(starting_config(found))
    for sentence in found["watch_out"]:
        click.echo(f"dpca: note: {sentence}", err=True)


@commands.command()
@click.argument("result", type=click.Path(path_type=Path))
@click.argument("given", metavar="INPUT")
@out_option
@kernel_options
@where_options
@debug_option
def transform(
    result: Path,
    given: str,
    out: Path,
    overwrite: bool,
    kernel_case: int | None,
    training: str | None,
    **where: Any,
) -> None:
    """Scores of new samples: INPUT is a path or URL, or a YAML file with the keys of a config's input.

    At a path or URL the array, the samples axis and the marks of missing values are those of the fit. Features
    have to be those of the fit too; the scores are whitened if the result's are.

    \b
    Example: dpca transform results/quickstart new.zarr --out scores.zarr
    """
    from dpca.apply import transform as apply

    place = _place(**where)
    applied = apply(result, given, out, overwrite=overwrite, place=place, kernel_case=kernel_case, training=training)
    _print_applied(applied, "scores")


@commands.command()
@click.argument("result", type=click.Path(path_type=Path))
@out_option
@click.option(
    "--samples", metavar="0:10,57", help="Which, counted from 0, ends of ranges not included; all if left out."
)
@click.option("--n-components", metavar="K", type=int, help="How many are used; all if left out.")
@kernel_options
@where_options
@debug_option
def reconstruct(
    result: Path,
    out: Path,
    overwrite: bool,
    samples: str | None,
    n_components: int | None,
    kernel_case: int | None,
    training: str | None,
    **where: Any,
) -> None:
    """Samples again from their scores, in the axes of the input: the mean and what the components explain.

    \b
    Example: dpca reconstruct results/quickstart --out smooth.zarr --samples 0:10 --n-components 5
    """
    from dpca.apply import reconstruct_samples

    place = _place(**where)
    applied = reconstruct_samples(
        result,
        out,
        samples=samples,
        n_components=n_components,
        overwrite=overwrite,
        place=place,
        kernel_case=kernel_case,
        training=training,
    )
    _print_applied(applied, "reconstruction")


@commands.command()
@click.argument("config", type=click.Path(path_type=Path))
@click.option("--dry-run", is_flag=True, help="Print the scripts; begin and submit nothing.")
@click.option(
    "--partitions", metavar="N", type=click.IntRange(min=1), help="Tasks of the array; one a span if left out."
)
@click.option(
    "--sbatch", "options", multiple=True, metavar="OPTION", help="Of sbatch, such as --partition=long; repeat it."
)
@click.option("--overwrite", is_flag=True, help="Replace an earlier result once the new one is whole.")
@overrides_option
@debug_option
def submit(
    config: Path,
    dry_run: bool,
    partitions: int | None,
    options: tuple[str, ...],
    overwrite: bool,
    overrides: tuple[str, ...],
) -> None:
    """A run as a job array of Slurm: memory and time from the plan, and a script that goes on from stage to stage.

    \b
    Example: dpca submit big.yaml --partitions 64 --sbatch=--account=physics --dry-run
    """
    from dpca.config_file import load
    from dpca.submit import submit as hand_over

    made = hand_over(
        load(config, overrides), config, partitions=partitions, options=options, overwrite=overwrite, dry_run=dry_run
    )
    if dry_run:
        for name, text in made.scripts.items():
            click.echo(f"# {made.directory / name}\n{text}")
        return
    array, last = made.jobs
    click.echo(f"submitted array {array}, and {last} after it; scripts and logs: {made.directory}")


@commands.group()
def batch() -> None:
    """A run as a job array: init, then partition and finalize in turn; no scheduler, no ports.

    \b
    Example: dpca batch init big.yaml --partitions 64
             dpca batch partition results/big --index $SLURM_ARRAY_TASK_ID
             dpca batch finalize results/big
    """


@batch.command(name="init")
@click.argument("config", type=click.Path(path_type=Path))
@click.option("--partitions", metavar="N", type=int, help="Tasks of the array; one a span if left out.")
@click.option("--overwrite", is_flag=True, help="Replace an earlier result once the new one is whole.")
@overrides_option
@debug_option
def batch_init(config: Path, partitions: int | None, overwrite: bool, overrides: tuple[str, ...]) -> None:
    """Begin a run: plan it, make its arrays, and say how many partitions there are.

    \b
    Example: dpca batch init big.yaml --partitions 64
    """
    from dpca.batch import init as begin
    from dpca.config_file import load

    loaded = load(config, overrides)
    _print_batch(begin(loaded, config, partitions=partitions, overwrite=overwrite), Path(loaded.config.output.path))


@batch.command(name="partition")
@click.argument("result", metavar="RUN", type=click.Path(path_type=Path))
@click.option("--index", required=True, type=int, help="Which, from 0.")
@debug_option
def batch_partition(result: Path, index: int) -> None:
    """Compute one partition of the stage that a run is in; again, in any order and beside others, as often as you like.

    \b
    Example: dpca batch partition results/big --index $SLURM_ARRAY_TASK_ID
    """
    from dpca.batch import partition

    ended = partition(result, index, lambda sentence: click.echo(f"dpca: {sentence}", err=True))
    words = [f"{len(ended.computed)} spans computed"] * bool(ended.computed or not ended.found)
    words += [f"{len(ended.found)} were there"] * bool(ended.found)
    click.echo(f"partition {index} of {ended.stage}: {', '.join(words)}")


@batch.command(name="finalize")
@click.argument("result", metavar="RUN", type=click.Path(path_type=Path))
@debug_option
def batch_finalize(result: Path) -> None:
    """Add up what partitions have computed: on to the next stage, or to the result.

    Exit code 1, and every one named, where partitions are missing or damaged.

    \b
    Example: dpca batch finalize results/big
    """
    from dpca.batch import finalize

    _print_batch(finalize(result), result)


@batch.command(name="status")
@click.argument("result", metavar="RUN", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Everything, for programs.")
@debug_option
def batch_status(result: Path, as_json: bool) -> None:
    """Which partitions of the stage that a run is in are missing.

    \b
    Example: dpca batch status results/big --json
    """
    from dpca.batch import status as look

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
    from dpca.batch import Waiting

    if not isinstance(found, Waiting):
        _print_finished(found)
        return
    if found.opened:
        click.echo(
            f"{place}: stage {found.stage} has {found.partitions} partitions: dpca batch partition {place} --index 0 to "
            f"{found.partitions - 1}, then dpca batch finalize {place}"
        )
        return
    _say(
        f"dpca: error: {place}: stage {found.stage}: partitions {_ranges(found.indices)} of {found.partitions} are missing or "
        "damaged",
        *(f"span {number}: {why}" for number, why in found.missing if why != "missing"),
        f"Compute them: dpca batch partition {place} --index I, for each; in Slurm sbatch --array={_ranges(found.indices)}.",
    )
    sys.exit(1)


def _ranges(numbers: list[int]) -> str:
    """0-3,7 for 0, 1, 2, 3, 7, as Slurm writes them."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


@commands.command()
@click.argument("result", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print status.json as it is.")
@debug_option
def status(result: Path, as_json: bool) -> None:
    """Progress of a run, from its status.json.

    \b
    Example: dpca status results/quickstart
    """
    from dpca.results import read_status
    from dpca.units import describe_bytes, describe_seconds

    found = read_status(result)
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    click.echo(f"{result}: {found['state']}" + (f" ({found['message']})" if found["message"] else ""))
    if found["state"] == "running":
        share = 100 * found["done_bytes"] // max(found["total_bytes"], 1)
        left = found["seconds_left"]
        click.echo(
            f"stage {found['stage_number']} of {found['stages']}, {found['stage']}: {share} % of "
            f"{describe_bytes(found['total_bytes'])}, {describe_bytes(found['bytes_per_second'])}/s"
            + (f", {describe_seconds(left)} left" if left is not None else "")
        )
    click.echo(f"started {found['started']}, updated {found['updated']}, on {found['host']}, process {found['pid']}")


@commands.command()
def schema() -> None:
    """JSON Schema of the config, for editors.

    \b
    Example: dpca schema > dpca.schema.json
    """
    from dpca.config import schema as config_schema

    click.echo(json.dumps(config_schema(), indent=2))


@commands.command()
@click.option("--directory", type=click.Path(path_type=Path), default=Path("dpca-demo"), show_default=True)
@click.option("--samples", default=500, show_default=True, type=click.IntRange(min=50))
@click.option("--features", default=500_000, show_default=True, type=click.IntRange(min=1000))
@debug_option
def demo(directory: Path, samples: int, features: int) -> None:
    """Make data with a known answer (1 GB), run on it, check the result against the answer.

    \b
    Example: dpca demo --features 100000
    """
    from dpca.demo import check, make, write_config

    click.echo(f"making {samples} x {features} float32 samples with a planted spectrum in {directory}")
    truth = make(directory, samples, features)
    config = write_config(directory)
    click.echo(f"$ dpca run {config} --overwrite")
    commands.main(["run", str(config), "--overwrite"], standalone_mode=False)
    click.echo("\nagainst the planted truth:")
    lines, right = check(directory, truth)
    for line in lines:
        click.echo(line)
    if not right:
        sys.exit(1)


def _axis(given: str | None) -> int | str | None:
    """An axis as a number where it is one."""
    return int(given) if given is not None and re.fullmatch(r"-?\d+", given) else given


def _place(memory: str | None, workers: int | None, scheduler: str | None, scheduler_file: str | None) -> Place:
    from dask.utils import parse_bytes

    from dpca.apply import Place
    from dpca.clusters import SchedulerPlace
    from dpca.errors import ConfigError
    from dpca.progress import display_for

    try:
        amount = None if memory is None else parse_bytes(memory)
    except ValueError:
        amount = 0
    if amount is not None and amount < 1:
        raise ConfigError(f"--memory is {memory!r}, but an amount such as 8GiB is allowed", "Write it like that.")
    if scheduler and scheduler_file:
        raise ConfigError("--scheduler and --scheduler-file are both given", "Give one of them.")
    where = SchedulerPlace(scheduler, scheduler_file) if scheduler or scheduler_file else None
    return Place(amount, workers, where, display_for())


def _print_applied(applied: Applied, array: str) -> None:
    shape = " x ".join(f"{length:,}" for length in applied.shape)
    click.echo(f"{applied.path}: {array}, {shape}")
    for note in applied.notes:
        click.echo(f"dpca: note: {note}", err=True)


def _print_finished(finished: Finished) -> None:
    """The spectrum, the verdict, where the result is; what must be known, on stderr."""
    from dpca.results import open_result

    result = open_result(finished.path)
    certificate, manifest = result.certificate, result.manifest
    _print_kernels(certificate) if "cases" in certificate else _print_components(result, certificate)
    accuracy = certificate.get("case", {}).get("neighbour_accuracy")
    if accuracy is not None:
        click.echo(f"neighbours: {accuracy:.4f} of the samples have one of their own label nearest, by their scores")
    click.echo(f"certificate: {certificate['verdict']}")
    plan, counts = manifest["plan"], manifest["counts"]
    n_samples = plan["shape"][plan["samples_axis"]]
    reads = counts["passes"]
    if manifest["keeps_data"]:  # or a part of them, where to keep more would have taken longer
        reads = counts["bytes_decoded"] / manifest["input"]["decoded_bytes"]
    click.echo(
        f"{n_samples} samples, {math.prod(plan['shape']) // n_samples} features, {reads:.3g} read{'s' * (reads != 1)}, "
        f"{finished.seconds:.1f} s; result: {finished.path}"
    )
    for note in manifest["notes"]:
        click.echo(f"dpca: note: {note}", err=True)


def _print_components(result: Result, certificate: dict[str, Any]) -> None:
    """A line for each of the first components."""
    sigma, variance, ratio = (
        result.arrays[name][...] for name in ("singular_values", "explained_variance", "explained_variance_ratio")
    )
    click.echo("component  singular value  explained variance   ratio  cumulative")
    for index, component in enumerate(certificate["components"][:SHOWN_COMPONENTS]):
        click.echo(
            f"{index:9d}  {sigma[index]:14.7g}  {variance[index]:18.7g}  {ratio[index]:6.4f}  "
            f"{ratio[: index + 1].sum():10.4f}" + ("" if component["reliable"] else "  not reliable")
        )
    if len(sigma) > SHOWN_COMPONENTS:
        click.echo(f"(and {len(sigma) - SHOWN_COMPONENTS} more)")


def _print_kernels(certificate: dict[str, Any]) -> None:
    """A line for each kernel of a sweep."""
    cases = [document["case"] for document in certificate["cases"]]
    labelled = any(case["neighbour_accuracy"] is not None for case in cases)
    click.echo(
        "case  kernel        gamma  degree   coef0  captured  for 95 %  effective rank" + "  neighbours" * labelled
    )
    for number, case in enumerate(cases):
        gamma, degree, coef0 = (
            "" if case[name] is None else f"{case[name]:.4g}" for name in ("gamma", "degree", "coef0")
        )
        line = f"{number:4d}  {case['kernel']:7}  {gamma:>10}  {degree:>6}  {coef0:>6}"
        if case["problem"]:
            click.echo(f"{line}  no answer, see the note")
            continue
        line += f"  {case['variance_captured']:8.4f}  {case['components_95']:8d}  {case['effective_rank']:14.1f}"
        click.echo(line + (f"  {case['neighbour_accuracy']:10.4f}" if labelled else ""))


def main(arguments: list[str] | None = None) -> None:
    """Entry point: turns errors and signals into a line, a remedy and an exit code."""
    from dpca.signals import leave, stopping

    given = sys.argv[1:] if arguments is None else arguments
    with stopping():
        code = _exit_code(given)
    leave(code)


def _exit_code(given: list[str]) -> int:
    from dpca.errors import DpcaError
    from dpca.signals import Stopped

    try:
        commands.main(given, prog_name="dpca", standalone_mode=False)
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except Stopped as stop:
        _say(f"dpca: stopped by {stop.name}", stop.remedy)
        return stop.exit_code
    except (KeyboardInterrupt, click.Abort):
        _say("dpca: interrupted")
        return 130
    except DpcaError as error:
        if "--debug" in given:
            raise
        _say(*(f"dpca: error: {line}" for line in error.message.splitlines()), error.remedy)
        return error.exit_code
    except Exception as error:
        if "--debug" in given:
            raise
        _say(
            f"dpca: error: unexpected {type(error).__name__}: {error}",
            "This is a defect of dpca, or of a library: run again with --debug and report it.",
        )
        return 1
    return 0


def _say(*lines: str) -> None:
    """Lines on stderr, the remedy indented."""
    for line in lines:
        if line:
            click.echo(line if line.startswith("dpca: ") else f"  {line}", err=True)
