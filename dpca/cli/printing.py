"""The output of commands."""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, cast

import click

from dpca.units import printable

# Libraries are imported inside the functions, so that no command waits for a library that it does not need.
if TYPE_CHECKING:
    from dpca.commands.apply import Applied
    from dpca.commands.derive import Derived
    from dpca.commands.run import Finished
    from dpca.store.results import Result

SHOWN_COMPONENTS = 10
SHOWN_GROUPS = 6
"""Groups of features whose shares fit a line."""
WATCH_SECONDS = 1.0
"""How often a status is read: as often as a run writes it."""


class _Patient:
    """A standard stream that raises no error: once it can't be written to, further output is lost. What is written is `printable`.

    Parameters
    ----------
    made : function that makes a text one that may be shown
    """

    def __init__(self, stream: TextIO, lost: type[OSError], made: Callable[[str], str] = printable) -> None:
        self._stream, self._lost, self._made = stream, lost, made

    def write(self, text: str) -> int:
        with self._losing():
            self._stream.write(self._made(text))
        return len(text)

    @property
    def for_views(self) -> _Patient:
        """A stream for output that moves the cursor itself."""
        return _Patient(self._stream, self._lost, str)

    def flush(self) -> None:
        with self._losing():
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    @contextmanager
    def _losing(self) -> Iterator[None]:
        try:
            yield
        except self._lost:
            with suppress(OSError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())


@contextmanager
def patient_streams() -> Iterator[None]:
    """Keep commands from failing because nobody reads their output: with closed streams, or pipes without a reader.

    Output on stderr is also lost if a disk is full; results on stdout then raise an error.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:  # else the first opened file would become the stream
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, "w" if number else "r", encoding="utf-8", closefd=False))
    before = sys.stdout, sys.stderr
    sys.stdout = cast(TextIO, _Patient(sys.stdout, BrokenPipeError))
    sys.stderr = cast(TextIO, _Patient(sys.stderr, OSError))
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def print_derived(derived: Derived) -> None:
    """Print what was derived, a line for each analysis; on stderr what the user must know about it."""
    from dpca.units import describe_bytes

    width = max(map(len, derived.certificates))
    for name, certificate in derived.certificates.items():
        click.echo(f"{name:{width}}  {certificate['kind']:13}  {certificate['verdict']}")
    read = f"{describe_bytes(derived.bytes_read)} of data read" if derived.bytes_read else "no data read"
    click.echo(f"{derived.path}: {len(derived.certificates)} analyses in {derived.seconds:.1f} s, {read}")
    for name, certificate in derived.certificates.items():
        if certificate["caveat"]:
            say(f"{name}: {certificate['caveat']}")


def print_plan_of_derived(document: dict[str, Any]) -> None:
    """Print what a command of derived analyses would read and hold."""
    from dpca.units import describe_bytes, describe_memory

    click.echo(
        f"{document['analyses']} analyses of {document['samples']:,} samples x {document['features']:,} features, from the Gram matrix "
        f"of {document['solver']} in {document['precision']} precision"
    )
    if document["maps"]:
        copied = (
            f", {describe_bytes(document['copied_to_scratch'])} copied to scratch first"
            if document["copied_to_scratch"]
            else ""
        )
        click.echo(
            f"one read of {describe_bytes(document['bytes_to_read'])} in {document['spans']} spans, for {document['maps']} maps at most{copied}"
        )
    else:
        click.echo("no data read")
    for process in document["memory"]:
        for stage, n_bytes in process["stages"].items():
            click.echo(
                f"  {process['process']}, {stage}: {describe_memory(n_bytes)} of {describe_memory(process['budget'])}"
            )


def print_plan_of_extension(document: dict[str, Any]) -> None:
    """Print what an extension by samples would read, make, hold and write."""
    from dpca.cli.plan_text import as_text
    from dpca.units import describe_bytes

    found = document["extended"]
    click.echo(
        f"extends  {found['result']}: {found['n_samples']:,} samples by {found['n_new']:,}; the first pass reads "
        f"{describe_bytes(found['bytes'])} of old and {describe_bytes(found['new_bytes'])} of new data once, and makes products "
        f"of {found['flops'] / 1e9:,.3g} GFLOP, where a run from scratch would make {found['flops_from_scratch'] / 1e9:,.3g}"
    )
    click.echo(as_text(document))


def print_applied(applied: Applied, array: str) -> None:
    """Print where the output of `transform` or `reconstruct` is; its notes on stderr."""
    shape = " x ".join(f"{length:,}" for length in applied.shape)
    click.echo(f"{applied.path}: {array}, {shape}")
    for note in applied.notes:
        click.echo(f"dpca: note: {note}", err=True)


def print_finished(finished: Finished) -> None:
    """Print the spectrum, the verdict and the place of the result; its notes on stderr."""
    from dpca.store.directory import REPORT
    from dpca.store.results import open_result
    from dpca.units import of_stored

    result = open_result(finished.path)
    certificate, manifest = result.certificate, result.manifest
    _print_kernels(certificate) if "cases" in certificate else _print_components(result, certificate)
    accuracy = certificate.get("case", {}).get("neighbour_accuracy")
    if accuracy is not None:
        click.echo(f"neighbours: {accuracy:.4f} of the samples have one of their own label nearest, by their scores")
    click.echo(f"certificate: {certificate['verdict']}")
    inputs = [one.input for one in result.each]
    n_samples = result.n_samples
    n_features = sum(math.prod(one["shape"]) // n_samples for one in inputs)
    click.echo(
        f"{n_samples}{of_stored(inputs[0].get('n_stored'))} samples, {n_features} features, {result.reads}, "
        f"{finished.seconds:.1f} s; result: {finished.path}"
    )
    if (finished.path / REPORT).exists():
        click.echo(f"report: {finished.path / REPORT}")
    for note in manifest["notes"]:
        click.echo(f"dpca: note: {note}", err=True)


def _print_components(result: Result, certificate: dict[str, Any]) -> None:
    """Print a line for each of the first components."""
    sigma, variance, ratio = (
        result.arrays[name][...] for name in ("singular_values", "explained_variance", "explained_variance_ratio")
    )
    groups = result.names_of_sums if "variance_share" in result.arrays else ()
    groups = groups if len(groups) <= SHOWN_GROUPS else ()
    shares: Any = result.arrays["variance_share"][...] if groups else None
    widths = [max(6, len(name)) for name in groups]
    head = "".join(f"  {name:>{width}}" for name, width in zip(groups, widths, strict=True))
    # Other programs print eigenvalues that their conventions scale.
    convention, eigenvalues = result.of_convention or ("", None)
    called = f"{convention} eigenvalue"
    own = "" if eigenvalues is None else f"  {called}"
    click.echo(f"component  singular value  explained variance   ratio  cumulative{own}{head}")
    for index, component in enumerate(certificate["components"][:SHOWN_COMPONENTS]):
        click.echo(
            f"{index + 1:9d}  {sigma[index]:14.7g}  {variance[index]:18.7g}  {ratio[index]:6.4f}  "
            f"{ratio[: index + 1].sum():10.4f}"
            + ("" if eigenvalues is None else f"  {eigenvalues[index]:{len(called)}.6g}")
            + "".join(f"  {shares[group, index]:{width}.4f}" for group, width in enumerate(widths))
            + ("" if component["reliable"] else "  not reliable")
            + _known(component)
        )
    if len(sigma) > SHOWN_COMPONENTS:
        click.echo(f"(and {len(sigma) - SHOWN_COMPONENTS} more)")


def _known(component: dict[str, Any]) -> str:
    """How far a component of block Krylov that has not converged is known; nothing for others."""
    from dpca.numerics.certificate import LEAST_KNOWN

    if component.get("met", True) or component["singular_value"] == 0:
        return ""
    bound = component["bound"]
    known = f"known to {bound:.1g}" if bound is not None and bound < LEAST_KNOWN else "only a lower bound"
    known = f"  not converged: {known}"
    return f"{known}, in the bulk" if component["bulk"] else known


def _print_kernels(certificate: dict[str, Any]) -> None:
    """Print a line for each kernel of a sweep."""
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


def status_lines(place: Path, found: dict[str, Any]) -> list[str]:
    """The lines of a status, for people."""
    from dpca.execution.progress import describe

    lines = [f"{place}: {found['state']}" + (f" ({found['message']})" if found["message"] else "")]
    if found["state"] == "running":
        lines += describe(found)
    return [
        *lines,
        f"started {found['started']}, updated {found['updated']}, on {found['host']}, process {found['pid']}",
    ]


def print_status(place: Path, found: dict[str, Any]) -> None:
    """Print a status, for people."""
    for line in status_lines(place, found):
        click.echo(line)


def watch_status(place: Path, read: Callable[[], dict[str, Any]]) -> str:
    """Show a status until its run has ended: in place on a terminal, else a line for each tenth of a stage.

    Returns
    -------
    The final state of the run.
    """
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    live = Live(console=Console(), refresh_per_second=4) if sys.stdout.isatty() else None
    before: tuple[Any, ...] = ()
    with live or nullcontext():
        while True:
            found = read()
            now = (
                found["state"],
                found.get("stage"),
                10 * found.get("done_bytes", 0) // max(1, found.get("total_bytes", 1)),
            )
            if live is not None:
                live.update(Text("\n".join(status_lines(place, found))))
            elif now != before:
                click.echo("; ".join(status_lines(place, found)[:2]))
            before = now
            if found["state"] != "running":
                return str(found["state"])
            time.sleep(WATCH_SECONDS)


def say(*lines: str) -> None:
    """Print lines on stderr, the remedy indented; credentials are redacted in any text."""
    from dpca.sources.credentials import in_text

    for line in map(in_text, lines):
        if line:
            click.echo(line if line.startswith("dpca: ") else f"  {line}", err=True)
