"""The command line: parses, calls one function, prints."""

from __future__ import annotations

import errno
import json
import os
import re
import sys
import traceback
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dpca.cli.batch import batch, submit
from dpca.cli.options import (
    PATH,
    URI,
    array_option,
    debug_option,
    kernel_options,
    out_option,
    overrides_option,
    samples_axis_option,
    where_options,
)
from dpca.cli.printing import (
    patient_streams,
    print_applied,
    print_derived,
    print_finished,
    print_plan_of_derived,
    print_plan_of_extension,
    say,
)
from dpca.version import __version__

# Libraries are imported inside the commands, so that none waits for a library that it does not need.
if TYPE_CHECKING:
    from dpca.commands.apply import Placement, Projecting
    from dpca.commands.export import Format
    from dpca.commands.side_by_side import Given
    from dpca.system.signals import Stopped


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__)
def commands() -> None:
    """Exact PCA of data with far more features than samples, larger than memory.

    \b
    From a file to a picture: dpca inspect x.zarr; dpca init x.zarr > x.yaml; dpca run x.yaml
    Examples of commands use what `dpca demo` makes: dpca init dpca-demo/data.zarr > demo.yaml
    Completion, also of keys of --set: eval "$(_DPCA_COMPLETE=bash_source dpca)" (zsh_source, fish_source)
    \b
    Exit codes: 0 done, 1 failed while running, 2 bad config or input, 3 over budget, 130 interrupted.
    """


@commands.command()
@click.argument("config", type=PATH)
@click.option("--overwrite", is_flag=True, help="Replace an earlier result when the new one is complete.")
@click.option("--resume", is_flag=True, help="Continue an unfinished run; start one if there is none.")
@click.option("--keep-ledger", is_flag=True, help="Keep the finished parts (ledger) beside the result.")
@click.option(
    "--from-gram",
    metavar="RESULT",
    type=PATH,
    help="Compute kernels from the Gram matrix of an earlier result, without reading data.",
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
    """Run a config.

    A run can be interrupted at any time. --resume continues it, and the result is the same. A job that
    Slurm has requeued resumes by itself.

    \b
    Example: dpca run demo.yaml --set model.n_components=30
    """
    from dpca.commands.run import resumes_after_requeue
    from dpca.commands.run import run as carry_out
    from dpca.config.loading import load
    from dpca.execution.progress import display_for

    if overwrite and resume:
        raise click.UsageError("--overwrite drops an unfinished run, --resume goes on with it: give one of them")
    loaded = load(config, overrides)
    if resumes_after_requeue(Path(loaded.config.output.path), overwrite):
        overwrite, resume = False, True
    finished = carry_out(
        loaded,
        overwrite=overwrite,
        resume=resume,
        keep_ledger=keep_ledger,
        from_gram=from_gram,
        display=display_for(),
    )
    print_finished(finished)
    finished.check()


@commands.command()
@click.argument("config", type=PATH)
@click.option("--overwrite", is_flag=True, help="Replace an earlier result when the new one is complete.")
@click.option("--components", is_flag=True, help="Make the maps, also for a result without them.")
@click.option(
    "--plan", "only_plan", is_flag=True, help="Only say how much would be read and how much memory is needed."
)
@overrides_option
@debug_option
def derive(config: Path, overwrite: bool, components: bool, only_plan: bool, overrides: tuple[str, ...]) -> None:
    """Analyse the Gram matrix of a result: anomalies, filters, lags, modes. Only maps need the data.

    Maps of all analyses are made in one read of the data. After an interruption the same command continues.

    \b
    Example: dpca init results/data > derived.yaml; dpca derive derived.yaml
    """
    from dpca.analyses.config import load_derive
    from dpca.commands.derive import derive as carry_out
    from dpca.commands.derive import plan as make_plan
    from dpca.execution.progress import display_for

    loaded = load_derive(config, overrides)
    if only_plan:
        print_plan_of_derived(make_plan(loaded, components=components))
        return
    print_derived(carry_out(loaded, components=components, overwrite=overwrite, display=display_for()))


@commands.command()
@click.argument("result", type=PATH)
@click.argument("given", metavar="INPUT...", type=URI, nargs=-1, required=True)
@click.option("--output", required=True, type=PATH, help="A new directory for the result of all samples.")
@click.option("--overwrite", is_flag=True, help="Replace the result in --output when the new one is complete.")
@click.option("--resume", is_flag=True, help="Continue an unfinished extension; start one if there is none.")
@click.option("--keep-ledger", is_flag=True, help="Keep the finished parts (ledger) beside the result.")
@click.option("--allow-repeats", is_flag=True, help="Allow new samples with names or values of old ones.")
@click.option(
    "--data",
    metavar="URI",
    type=URI,
    multiple=True,
    help="Where the old samples are now. Repeat it for each file, in order.",
)
@click.option(
    "--plan",
    "only_plan",
    is_flag=True,
    help="Only say how much would be read and written, and how much memory is needed.",
)
@click.option("--json", "as_json", is_flag=True, help="With --plan: print everything as JSON, for programs.")
@overrides_option
@debug_option
def extend(
    result: Path,
    given: tuple[str, ...],
    output: Path,
    overwrite: bool,
    resume: bool,
    keep_ledger: bool,
    allow_repeats: bool,
    data: tuple[str, ...],
    only_plan: bool,
    as_json: bool,
    overrides: tuple[str, ...],
) -> None:
    """Add samples to a finished run. The result equals a run on all files, up to rounding.

    INPUT is one or several files like those of the run, with further samples; or a YAML file with the keys of a config's
    input, or with a list of inputs. Old and new data are read twice. Only products with new samples are computed. The old
    result stays.

    \b
    Example: dpca extend results/data new.zarr --output results/more    (new.zarr: more samples of the same features)
    """
    from dpca.commands.extend import Asked
    from dpca.commands.extend import extend as carry_out
    from dpca.commands.extend import plan as make_plan
    from dpca.commands.run import resumes_after_requeue
    from dpca.execution.progress import display_for

    if as_json and not only_plan:
        raise click.UsageError("--json is given without --plan: give that too, or leave it out")
    if overwrite and resume:
        raise click.UsageError("--overwrite drops an unfinished run, --resume goes on with it: give one of them")
    asked = Asked(result, given, output, allow_repeats, overrides, data)
    if only_plan:
        document = make_plan(asked)
        if as_json:
            click.echo(json.dumps(document, indent=2))
        else:
            print_plan_of_extension(document)
        return
    if resumes_after_requeue(output, overwrite):
        overwrite, resume = False, True
    finished = carry_out(asked, overwrite=overwrite, resume=resume, keep_ledger=keep_ledger, display=display_for())
    print_finished(finished)
    finished.check()


@commands.command()
@click.argument("config", type=PATH)
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON, for programs.")
@click.option("--memory", "arrays", is_flag=True, help="Also the arrays that each stage holds in memory.")
@overrides_option
@debug_option
def plan(config: Path, as_json: bool, arrays: bool, overrides: tuple[str, ...]) -> None:
    """Say how often a run would read the data, and how much memory, disk and time it would take.

    It measures for a few seconds: it reads a small part of the data, and writes 16 MB and removes them. Exit code 3
    if the memory or the disk is too small.

    \b
    Example: dpca plan demo.yaml --set compute.memory=2GiB
    """
    from dpca.cli.plan_text import as_text
    from dpca.commands.foresight import plan as make_plan
    from dpca.config.loading import load
    from dpca.errors import OverBudgetError

    try:
        document = make_plan(load(config, overrides))
    except OverBudgetError as error:
        if as_json:
            click.echo(json.dumps({"fits": False, "error": error.message, "remedy": error.remedy}, indent=2))
        raise
    click.echo(json.dumps(document, indent=2) if as_json else as_text(document, arrays))


@commands.command()
@click.argument("config", type=PATH)
@overrides_option
@debug_option
def validate(config: Path, overrides: tuple[str, ...]) -> None:
    """Check a config; reads no data.

    \b
    Example: dpca validate demo.yaml
    """
    from dpca.config.loading import load

    loaded = load(config, overrides)
    click.echo(f"{config}: valid")
    for path in (path for one in loaded.config.inputs for path in one.paths):
        if not path.exists():
            click.echo(f"dpca: note: its input {path} does not exist here", err=True)


@commands.command()
@click.argument("uri", type=URI, nargs=-1, required=True)
@array_option
@samples_axis_option
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON, for programs.")
@debug_option
def inspect(uri: tuple[str, ...], array: str | None, samples_axis: str | None, as_json: bool) -> None:
    """Describe the data at a path or URL, and say what to watch out for.

    Reads metadata, one chunk, the first and the last sample.

    Several files, or a pattern in quotes, are joined along the samples; where they hold different arrays, each is described.
    URI may be a YAML file with the keys of a config's input, or with a list of inputs, too.

    \b
    Example: dpca inspect dpca-demo/data.zarr
    """
    from dpca.commands.side_by_side import look, text_of

    facts = look(_given(uri), array, _axis(samples_axis))
    click.echo(json.dumps(facts, indent=2) if as_json else text_of(facts))


@commands.command()
@click.argument("uri", type=URI, nargs=-1, required=True)
@array_option
@samples_axis_option
@click.option("--all", "every_key", is_flag=True, help="Show all keys, not only those that matter for these data.")
@debug_option
def init(uri: tuple[str, ...], array: str | None, samples_axis: str | None, every_key: bool) -> None:
    """Print a config for what lies at a path or URL: ready to run, its keys explained (dpca schema --markdown lists all).

    Several files, or a pattern in quotes, are joined along the samples. Arrays of the same samples, in one file or in
    several, become inputs side by side; --array chooses one.
    URI may be a YAML file with the keys of a config's input, or with a list of inputs, too; or a finished result, for a config of
    dpca derive.

    \b
    Example: dpca init dpca-demo/data.zarr > demo.yaml
    """
    from dpca.commands.starting import started

    text, notes = started(_given(uri), array, _axis(samples_axis), every_key)
    click.echo(text)
    for sentence in notes:
        click.echo(f"dpca: note: {sentence}", err=True)


@commands.command()
@click.argument("result", type=PATH)
@click.argument("given", metavar="INPUT", type=URI)
@out_option
@click.option(
    "--projection",
    type=click.Choice(["least_squares", "mean"]),
    help="Of samples with missing values: least squares on the values that there are, or the fit's means in their place. "
    "Default: least_squares for genotypes, else mean.",
)
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
    projection: Projecting | None,
    **where: Any,
) -> None:
    """Compute scores of new samples. INPUT is a path or URL, or a YAML file with the keys of a config's input.

    For a path or URL, the array, the samples axis and the marks of missing values are those of the fit. The features
    have to be those of the fit. Scores are whitened if those of the result are.

    \b
    Example: dpca transform results/data dpca-demo/data.zarr --out scores.zarr
    """
    from dpca.commands.apply import transform as apply

    place = _place(**where)
    applied = apply(
        result,
        given,
        out,
        overwrite=overwrite,
        place=place,
        kernel_case=kernel_case,
        training=training,
        projection=projection,
    )
    print_applied(applied, "scores")


@commands.command()
@click.argument("result", type=PATH)
@out_option
@click.option(
    "--samples",
    metavar="0:10,57",
    help="Numbers from 0, with ends of ranges not included; or names; or dates, also shortened as 1999-02. Default: all.",
)
@click.option("--n-components", metavar="K", type=int, help="Number of components to use. Default: all.")
@click.option(
    "--components", metavar="1,2,5", help="Components to use, by their numbers from 1 on, in place of the first ones."
)
@kernel_options
@where_options
@debug_option
def reconstruct(
    result: Path,
    out: Path,
    overwrite: bool,
    samples: str | None,
    n_components: int | None,
    components: str | None,
    kernel_case: int | None,
    training: str | None,
    **where: Any,
) -> None:
    """Reconstruct samples from their scores, along the axes of the input: the mean plus what the components explain.

    \b
    Example: dpca reconstruct results/data --out smooth.zarr --samples 0:10 --n-components 5
    """
    from dpca.commands.apply import reconstruct_samples

    place = _place(**where)
    applied = reconstruct_samples(
        result,
        out,
        samples=samples,
        n_components=n_components,
        components=components,
        overwrite=overwrite,
        place=place,
        kernel_case=kernel_case,
        training=training,
    )
    print_applied(applied, "reconstruction")


@commands.command()
@click.argument("result", type=PATH)
@click.option("--out", type=PATH, help="Name of the file. Default: report.html in the result.")
@click.option(
    "--labels",
    metavar="URI",
    type=URI,
    help="A label for each sample, instead of those in the result: Zarr, HDF5, .npy, text (one a line) or a table.",
)
@click.option("--labels-array", metavar="PATH", help="Array inside that file.")
@click.option("--labels-column", metavar="NAME", help="Column of a table, .csv or .tsv.")
@click.option(
    "--groups", metavar="URI", type=URI, help="A label for each feature of one axis, sorted, such as chromosomes."
)
@click.option("--groups-array", metavar="PATH", help="Array inside that file.")
@click.option("--overwrite", is_flag=True, help="Replace a file that is not a report.")
@debug_option
def report(
    result: Path,
    out: Path | None,
    labels: str | None,
    labels_array: str | None,
    labels_column: str | None,
    groups: str | None,
    groups_array: str | None,
    overwrite: bool,
) -> None:
    """Write a report of a result, one HTML file: spectrum, scores, maps, unusual samples, time and memory.

    It needs no other file and no network, so it can be mailed. A run writes one, unless output.report is false. For derived
    analyses it has an overview, and the spectrum, scores and maps of each.

    \b
    Example: dpca report results/data
    """
    from dpca.commands.reporting import check_out
    from dpca.errors import InputError
    from dpca.sources.labels import read_labels
    from dpca.store.derived import open_derived
    from dpca.store.directory import DERIVED, kind_at
    from dpca.store.results import open_result

    derived = kind_at(result) == DERIVED
    for option, value, of in (("--labels", labels, "samples"), ("--groups", groups, "features")):
        if derived and value is not None:
            raise InputError(
                f"{option}: is of the {of} of a run, but {result} holds analyses derived from one",
                "Leave it out, or name the result of the run.",
            )
    _check_with(
        ("--labels-array", labels_array, "--labels", labels),
        ("--labels-column", labels_column, "--labels", labels),
        ("--groups-array", groups_array, "--groups", groups),
    )
    if out is not None:
        check_out(out, overwrite)
    try:  # each imports what it draws alone
        if derived:
            from dpca.analyses.report import write_derived_report

            click.echo(write_derived_report(open_derived(result), out))
            return
        from dpca.report.page import write_report
    except ImportError as cause:
        raise InputError(
            f"a report needs {cause.name}, which is not installed",
            "pip install '.[report]' in the clone, or pip install jinja2 bokeh.",
        ) from cause
    opened = open_result(result)
    values = None if labels is None else read_labels(labels, labels_array, opened.n_samples, column=labels_column)
    divided = None if groups is None else read_labels(groups, groups_array, opened.n_features, "features")
    click.echo(write_report(opened, values, out, divided))


@commands.command()
@click.argument("result", type=PATH)
@click.option(
    "--to",
    required=True,
    type=click.Choice(["netcdf", "hdf5", "csv", "npz", "anndata", "plink", "grm", "nifti", "png"]),
    help="csv: two tables, the scores with the names of the samples, and the spectrum.",
)
@click.option("--out", type=PATH, help="Name of the file. Default: beside the result.")
@click.option(
    "--labels",
    metavar="URI",
    type=URI,
    help="For csv and anndata: a label for each sample, instead of those in the result.",
)
@click.option("--labels-array", metavar="PATH", help="Array inside that file.")
@click.option("--labels-column", metavar="NAME", help="Column of a table, .csv or .tsv.")
@click.option(
    "--as-covariance",
    is_flag=True,
    help="For netcdf: also maps in the unit of the data, for one standard deviation of each score.",
)
@click.option(
    "--as-correlation", is_flag=True, help="For netcdf: also the correlation of each feature with each score."
)
@click.option("--overwrite", is_flag=True, help="Replace an existing file.")
@debug_option
def export(
    result: Path,
    to: Format,
    out: Path | None,
    labels: str | None,
    labels_array: str | None,
    labels_column: str | None,
    as_covariance: bool,
    as_correlation: bool,
    overwrite: bool,
) -> None:
    """Write a result, or the output of transform or reconstruct, in a format of other programs.

    \b
    Example: dpca export results/data --to csv
    """
    from dpca.commands.export import export as write
    from dpca.sources.labels import read_labels
    from dpca.store.applied import applied_at
    from dpca.store.results import open_result

    _check_with(
        ("--labels-array", labels_array, "--labels", labels), ("--labels-column", labels_column, "--labels", labels)
    )
    if labels is not None and to not in ("csv", "anndata"):
        raise click.UsageError(f"--labels is for csv and anndata, but --to is {to}: leave it out")
    opened = applied_at(result) or open_result(result)
    values = None if labels is None else read_labels(labels, labels_array, opened.n_samples, column=labels_column)
    maps = {"as_covariance": as_covariance, "as_correlation": as_correlation}
    for path in write(opened, to, out, values, overwrite, **maps):
        click.echo(path)


@commands.command()
@click.argument("result", type=PATH)
@click.option("--json", "as_json", is_flag=True, help="Print status.json.")
@click.option("--watch", is_flag=True, help="Wait until the run has ended. Exit code 1 if it failed.")
@debug_option
def status(result: Path, as_json: bool, watch: bool) -> None:
    """Show the progress of a run, from its status.json.

    \b
    Example: dpca status results/data --watch
    """
    from dpca.cli.printing import print_status, watch_status
    from dpca.store.directory import read_status

    if watch:
        if watch_status(result, lambda: read_status(result)) != "done":
            sys.exit(1)
        return
    document = read_status(result)
    if as_json:
        click.echo(json.dumps(document, indent=2))
        return
    print_status(result, document)


@commands.command()
@click.option("--derive", "of_derive", is_flag=True, help="For the config of dpca derive, instead of dpca run.")
@click.option("--markdown", is_flag=True, help="Print tables, for people.")
def schema(of_derive: bool, markdown: bool) -> None:
    """JSON Schema of the config, for editors.

    \b
    Example: dpca schema > dpca.schema.json
    """
    from dpca.analyses import config as derive
    from dpca.config import schema as run
    from dpca.config.reference import reference

    document = derive.schema() if of_derive else run.schema()
    if not markdown:
        click.echo(json.dumps(document, indent=2))
    else:
        click.echo(reference(document, root="derive", elsewhere=("compute",)) if of_derive else reference(document))


@commands.command()
@click.option("--directory", type=PATH, default=Path("dpca-demo"), show_default=True)
@click.option("--samples", default=500, show_default=True, type=click.IntRange(min=50))
@click.option("--features", default=500_000, show_default=True, type=click.IntRange(min=1000))
@debug_option
def demo(directory: Path, samples: int, features: int) -> None:
    """Make data with a known answer (1 GB), run on it, check the result against the answer.

    \b
    Example: dpca demo --features 100000
    """
    from dpca.commands.demo import check, make, write_config
    from dpca.errors import writing
    from dpca.store.directory import ResultDirectory

    ResultDirectory(directory).check_place("--directory")
    click.echo(f"making {samples} x {features} float32 samples with a planted spectrum in {directory}")
    with writing(str(directory)):
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


def _check_with(*pairs: tuple[str, str | None, str, str | None]) -> None:
    """Refuse options that are given without another one that they need."""
    for name, given, other, needed in pairs:
        if given is not None and needed is None:
            raise click.UsageError(f"{name} is given without {other}: give that too, or leave it out")


def _given(given: tuple[str, ...]) -> Given:
    """Paths and URLs as they are; of a YAML file the input that it describes, or the list of them."""
    from dpca.commands.side_by_side import listed
    from dpca.config.loading import is_config, load_inputs

    if len(given) > 1:
        return list(given)
    if not is_config(given[0]):
        return given[0]
    found = load_inputs(given[0])
    return listed(found) if isinstance(found, list) else found


def _axis(given: str | None) -> int | str | list[int | str] | None:
    """The axis, as a number if it is one; several where commas are between them."""
    if given is None:
        return None
    axes = [int(one) if re.fullmatch(r"-?\d+", one) else one for one in given.split(",")]
    return axes if len(axes) > 1 else axes[0]


def _place(memory: str | None, workers: int | None, scheduler: str | None, scheduler_file: str | None) -> Placement:
    from dask.utils import parse_bytes

    from dpca.commands.apply import Placement
    from dpca.errors import ConfigError
    from dpca.execution.clusters import SchedulerPlace
    from dpca.execution.progress import display_for

    try:
        amount = None if memory is None else parse_bytes(memory)
    except ValueError:
        amount = 0
    if amount is not None and amount < 1:
        raise ConfigError(f"--memory is {memory!r}, but an amount such as 8GiB is allowed", "Write it like that.")
    if scheduler and scheduler_file:
        raise ConfigError("--scheduler and --scheduler-file are both given", "Give one of them.")
    where = SchedulerPlace(scheduler, scheduler_file) if scheduler or scheduler_file else None
    return Placement(amount, workers, where, display_for())


commands.add_command(batch)
commands.add_command(submit)


OTHERS_WRITE = 0o002
"""The bit of a umask by which no command makes a file, also by a library, that all users may write."""


def main(arguments: list[str] | None = None) -> None:
    """Entry point: turns errors and signals into a line, a remedy and an exit code."""
    from dpca.system.signals import Stopped, leave, stopping

    os.umask(os.umask(0) | OTHERS_WRITE)
    given = sys.argv[1:] if arguments is None else arguments
    with patient_streams():
        try:
            with stopping():
                code = _exit_code(given)
        except Stopped as stop:  # in the moment in which the command began or ended
            code = _exit_code_of(stop)
        leave(code)


_OF_INPUT = {"input.array": "--array", "input.samples_axis": "--samples-axis", "input.uri": "the path"}
_OF_LABELS = {
    "model.labels.array": "--labels-array",
    "model.labels.column": "--labels-column",
    "model.labels": "--labels",
}
_OF_PLACE = {"compute.cluster.scheduler": "--scheduler", "compute.memory": "--memory"}
_OF_SAMPLES = {
    "input.array": "array, in a YAML file,",
    "input.samples_axis": "samples_axis, in a YAML file,",
    "input.uri": "the path",
}
OPTIONS = {
    "inspect": _OF_INPUT,
    "init": _OF_INPUT,
    "report": _OF_LABELS,
    "export": _OF_LABELS,
    "extend": {
        "input.gaps": "--set input.gaps",
        "output.path": "--output",
        "resume": "--resume",
        "input.uri": "INPUT",
    },
    "transform": {**_OF_PLACE, **_OF_SAMPLES},
    "reconstruct": _OF_PLACE,
}
"""The options that correspond to keys of a config, by command; these commands have no config."""


def _exit_code_of(stop: Stopped) -> int:
    say(f"dpca: stopped by {stop.name}", stop.remedy)
    return stop.exit_code


def _exit_code(given: list[str]) -> int:
    from dpca.errors import DpcaError
    from dpca.settings import Surface
    from dpca.system.signals import Stopped

    def debug(error: Exception) -> None:
        if "--debug" in given:
            from dpca.sources.credentials import in_text

            click.echo(in_text("".join(traceback.format_exception(error))), err=True)

    try:
        commands.main(given, prog_name="dpca", standalone_mode=False)
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.ClickException as error:
        from dpca.sources.credentials import in_text

        shown = StringIO()
        error.show(shown)
        click.echo(in_text(shown.getvalue()), nl=False, err=True)
        return error.exit_code
    except Stopped as stop:
        return _exit_code_of(stop)
    except (KeyboardInterrupt, click.Abort):
        say("dpca: interrupted")
        return 130
    except DpcaError as error:
        debug(error)
        told = error.for_readers_of(Surface(names=OPTIONS.get(given[0] if given else "", {})))
        say(*(f"dpca: error: {line}" for line in told.message.splitlines()), *told.remedy.splitlines())
        return error.exit_code
    except Exception as error:
        debug(error)
        if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
            say(
                f"dpca: error: {str(error.filename)[:80]}...: its name is longer than the file system takes",
                "Choose a shorter one: most take 255 bytes for a name, and 4096 for a whole path.",
            )
            return 2
        say(
            f"dpca: error: unexpected {type(error).__name__}: {error}",
            "This is a defect of dpca, or of a library: run again with --debug and report it.",
        )
        return 1
    return 0
