"""Options that commands share."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem


class _Place(click.Path):
    """A path or URL that fits in one line: without control characters."""

    def __init__(self, path_type: type, urls: bool = False) -> None:
        super().__init__(path_type=path_type, readable=not urls)
        self._urls = urls

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        from dpca.units import is_plain, is_url

        text = os.fspath(value)
        if not is_plain(text):
            self.fail(f"{text!r} has control characters (such as line breaks)", param, ctx)
        if is_url(text) and not self._urls:
            self.fail("is a URL, where only a path on this machine can be", param, ctx)
        return super().convert(value, param, ctx)


PATH, URI = _Place(Path), _Place(str, urls=True)

# Read by `main`, which handles all errors.
debug_option = click.option("--debug", is_flag=True, expose_value=False, help="Show tracebacks.")


def _keys(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The keys of a config that begin as what is typed, for completion in a shell."""
    from dpca.analyses.config import Derive
    from dpca.config.explaining import keys_at
    from dpca.config.schema import Config

    model: Any = Derive if ctx.info_name == "derive" else Config
    *before, _last = incomplete.split(".")
    keys = [".".join([*before, key]) for key in keys_at(tuple(before), model)]
    return [
        CompletionItem(key + ("." if keys_at((*before, key.rpartition(".")[2]), model) else "="))
        for key in keys
        if key.startswith(incomplete)
    ]


overrides_option = click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    shell_complete=_keys,
    help="Override a key of the config, such as model.n_components=30. dpca schema --markdown lists all keys.",
)

array_option = click.option(
    "--array", metavar="PATH", help="Array inside the file. Default: the one that a run would take, or the largest."
)
samples_axis_option = click.option(
    "--samples-axis",
    metavar="AXIS",
    help="Axis of the samples: its number or name; several as time,member. Default: a guess, dates first.",
)


def out_option(command: Any) -> Any:
    """The options for where a command writes."""
    command = click.option("--overwrite", is_flag=True, help="Replace --out when the new output is complete.")(command)
    return click.option("--out", required=True, type=PATH, help="The Zarr group to write.")(command)


def where_options(command: Any) -> Any:
    """The options for where a command without a config runs, and for its memory."""
    for option in (
        click.option(
            "--scheduler-file", metavar="PATH", type=_Place(str), help="File that a running Dask scheduler wrote."
        ),
        click.option(
            "--scheduler", metavar="ADDRESS", help="Address of a running Dask scheduler. Default: this machine."
        ),
        click.option(
            "--workers", type=click.IntRange(min=1), help="Threads on this machine. Default: one for each core."
        ),
        click.option("--memory", metavar="AMOUNT", help="Memory, such as 8GiB. Default: half of the free memory."),
    ):
        command = option(command)
    return command


def kernel_options(command: Any) -> Any:
    """The options for the kernel to apply, and for its training data."""
    for option in (
        click.option(
            "--training", metavar="URI", type=URI, help="For kernels: where the training data are now, if they moved."
        ),
        click.option("--kernel-case", metavar="I", type=int, help="For several kernels: the number of one."),
    ):
        command = option(command)
    return command
