"""Arrays of the same samples, whose features can be analysed side by side."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import PurePosixPath
from typing import Any

from dpca.commands.inspection import FORMAT_VERSION, as_text, guess_samples_axis, inspect
from dpca.config.inputs import Input
from dpca.config.model import Model
from dpca.config.schema import Config, Output
from dpca.config.together import check_together
from dpca.errors import ConfigError, DpcaError, InputError
from dpca.planning.cuts import check_axis
from dpca.planning.runplan import Scratch, Workers
from dpca.planning.search import plan_run
from dpca.sources import Source, expanded, list_arrays, open_source
from dpca.sources.anndata_layout import OBS_NAMES, VAR_NAMES
from dpca.sources.base import Layout, SamplesAxis
from dpca.sources.credentials import without_credentials
from dpca.sources.dated import SAMPLE_NAMES
from dpca.sources.groups import FeatureGroup, check_same_samples, has_names
from dpca.system.machine import memory_budget
from dpca.units import NAME, by, describe_bytes, describe_memory


@dataclass(frozen=True)
class FoundInput:
    """An input, and what is there."""

    input: Input
    group: FeatureGroup

    @property
    def facts(self) -> dict[str, Any]:
        """Facts from its metadata, and the command that proposes a config for it alone."""
        layout, words = self.group.layout, ["dpca", "init", *map(without_credentials, self.input.uris)]
        words += [] if self.input.array is None else ["--array", self.input.array]
        if guess_samples_axis(self.group.source)[0] != self.group.samples_axis:
            words += ["--samples-axis", str(self.input.samples_axis)]
        return {
            "name": self.group.name,
            "array": self.input.array,
            "shape": list(layout.shape),
            "dims": list(layout.dims),
            "dtype": str(layout.dtype),
            "units": layout.units,
            "command": shlex.join(words),
        }


@dataclass(frozen=True)
class Beside:
    """Inputs of the same samples."""

    each: tuple[FoundInput, ...]
    axis_reason: str = "as told"
    """Why their samples lie along these axes."""

    @property
    def inputs(self) -> list[Input]:
        return [one.input for one in self.each]

    @property
    def groups(self) -> tuple[FeatureGroup, ...]:
        return tuple(one.group for one in self.each)

    @property
    def in_one_place(self) -> bool:
        """Whether the same files hold all of them."""
        return len({tuple(one.uris) for one in self.inputs}) == 1


Given = str | Sequence[str] | Input | Beside
"""A path or URL; several that are joined along the samples, or lie side by side; or the input of a config, one or a list."""


def look(given: Given, array: str | None = None, samples_axis: SamplesAxis | None = None) -> dict[str, Any]:
    """Describe what lies somewhere: one array, and which could be beside it; or inputs that are in different places, each.

    Parameters
    ----------
    array, samples_axis : as for `dpca.commands.inspection.inspect`

    Returns
    -------
    dict of `look_at_each` for a list of inputs, and for files with different arrays of the same samples; else of `inspect`,
    with the key
        side_by_side : of each array that could be analysed beside the others: name, array, shape, dims, dtype, units, and
            the command that proposes a config for it alone; empty where there are none, or where `array` is given
    """
    found = beside(given, array, samples_axis)
    if found is not None and (isinstance(given, Beside) or not found.in_one_place):
        return look_at_each(found)
    assert not isinstance(given, Beside)
    if found is None:
        return inspect(given, array, samples_axis) | {"side_by_side": []}
    largest = max(found.each, key=lambda one: one.group.layout.n_values)
    return inspect(given, largest.input.array, samples_axis) | {"side_by_side": [one.facts for one in found.each]}


def look_at_each(found: Beside) -> dict[str, Any]:
    """Describe inputs side by side; reads metadata, one chunk, and the first and the last sample of each.

    Returns
    -------
    dict with keys
        format_version : 1
        inputs : for each the dict of `inspect`, with its name
        n_samples, n_features, bytes : of all
        block_scaling, block_scaling_reason : what to choose for preprocess.block_scaling, and why
        peak_bytes : memory that one task takes which reads them; null if it is too much
        watch_out : warnings that concern all, as sentences
    """
    each = [{"name": one.name, **inspect(one, told=found.axis_reason)} for one in found.inputs]
    n_samples, n_features = found.groups[0].n_samples, sum(group.n_features for group in found.groups)
    scaling, reason = _block_scaling(each)
    peak_bytes, problems = None, []
    try:
        asked, here = Model(max(1, min(20, n_samples, n_features))), Workers(0, 1, memory_budget())
        run_plan = plan_run(found.groups, asked, workers=here, scratch=Scratch("scratch", 2**63))
        peak_bytes = run_plan.tightest.peak_bytes
    except DpcaError as error:
        problems.append(f"{error.message}. {error.remedy}")
    return {
        "format_version": FORMAT_VERSION,
        "inputs": each,
        "n_samples": n_samples,
        "n_features": n_features,
        "bytes": sum(group.layout.bytes for group in found.groups),
        "block_scaling": scaling,
        "block_scaling_reason": reason,
        "peak_bytes": peak_bytes,
        "watch_out": problems,
    }


def _block_scaling(each: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    """Choice for preprocess.block_scaling, and the reason, as a part of a sentence."""
    units = list(dict.fromkeys(one["units"].strip() for one in each))
    seen = "; ".join(
        f"{one['name']} from {one['values']['minimum']:.4g} to {one['values']['maximum']:.4g} {one['units']}".rstrip()
        for one in each
        if one["values"] and "mean" in one["values"]
    )
    seen = f" (seen: {seen})" if seen else ""
    if units[0] and len(units) == 1:
        return (
            "none",
            f"all are in {units[0]}{seen}: values compare as they are, and an input counts by its own variance, where "
            "total_variance would make all count the same",
        )
    known = f"units differ, {', '.join(unit or 'unknown' for unit in units)}" if any(units) else "units are not known"
    return (
        "total_variance",
        f"{known}{seen}: all count the same, where with none the one with the largest numbers and the most features would "
        "make the first components",
    )


def text_of(facts: Mapping[str, Any]) -> str:
    """The text of what `look` found, for people."""
    if "inputs" not in facts:
        beside = facts["side_by_side"]
        lines = [f"{'beside' * (not number):8} {line_of(one)}; {one['command']}" for number, one in enumerate(beside)]
        if lines:
            lines.append("         (the same samples: dpca init without --array proposes them side by side)")
        return "\n".join([as_text(facts), *lines])
    lines = [line for one in facts["inputs"] for line in (f"name     {one['name']}", as_text(one), "")]
    lines += [
        f"together {len(facts['inputs'])} inputs side by side: {facts['n_samples']:,} samples, the same in all, of "
        f"{facts['n_features']:,} features, {describe_bytes(facts['bytes'])}",
        f"scaling  preprocess.block_scaling: {facts['block_scaling']}, since {facts['block_scaling_reason']}",
    ]
    if facts["peak_bytes"] is not None:
        lines.append(
            f"reading  one after another in each pass; {describe_memory(facts['peak_bytes'])} of memory for one task"
        )
    return "\n".join([*lines, *(f"watch    {sentence}" for sentence in facts["watch_out"])])


def line_of(facts: Mapping[str, Any]) -> str:
    """An input in a line: name, shape, dimensions, dtype and units."""
    dims = f" ({', '.join(dim or '?' for dim in facts['dims'])})" if any(facts["dims"]) else ""
    return f"{facts['name']}: {by(tuple(facts['shape']))}{dims} {facts['dtype']}, {facts['units'] or 'units unknown'}"


def warnings_of(facts: Mapping[str, Any]) -> list[str]:
    """The warnings of `look`; one that concerns some of several inputs is there once, with their names in front."""
    concerned: dict[str, list[str]] = {}
    for one in facts.get("inputs", ()):
        for sentence in one["watch_out"]:
            concerned.setdefault(sentence, []).append(one["name"])
    return [*facts["watch_out"], *(f"{', '.join(names)}: {sentence}" for sentence, names in concerned.items())]


def listed(inputs: Sequence[Input]) -> Beside:
    """The inputs of a config's list, opened."""
    check_together(Config(input=list(inputs), output=Output(path="results/side-by-side")))
    each = tuple(_opened(one) for one in inputs)
    check_same_samples([one.group for one in each])
    return Beside(each)


def beside(given: Given, array: str | None = None, samples_axis: SamplesAxis | None = None) -> Beside | None:
    """The arrays of the same samples, two or more, that lie somewhere; None if there are none, or one was chosen.

    Samples count as the same where their dimension has the same name, or both have a coordinate, and nothing says that they
    differ. Left out are arrays that describe others (coordinates, bounds), that have fewer than two axes or no numbers, and
    those of AnnData. An array that several files hold is one input, joined along the samples.
    """
    if isinstance(given, Beside):
        if array is not None or samples_axis is not None:
            raise ConfigError(
                "the array or the axis of samples is given for a list of inputs, each of which has its own",
                "Leave --array and --samples-axis out.",
            )
        return given
    return None if array is not None or isinstance(given, Input) else _found(given, samples_axis)


def _found(given: str | Sequence[str], samples_axis: SamplesAxis | None) -> Beside | None:
    uris = expanded(given)
    arrays = {uri: list_arrays(uri) for uri in uris}
    places: dict[str | None, list[str]] = {}
    for uri in uris:
        for path in _of_data(arrays[uri]):
            places.setdefault(path, []).append(uri)
    if len(places) < 2:
        return None
    found = {path: _source(of[0], path, samples_axis) for path, of in places.items()}
    sources = {path: source for path, source in found.items() if source is not None}
    if not sources:
        return None
    lead = max(sources, key=lambda path: _likely(sources[path].layout))
    opened = _each(sources, places, sources[lead], samples_axis)
    same = [path for path in opened if lead in opened and _same(opened[lead].group, opened[path].group)]
    if not {uri for path in same for uri in places[path]} >= {*uris}:
        holders = [[path for path in opened if uri in places[path]] for uri in uris]
        joined = len(arrays[uris[0]]) < 2 or any(len(of) == len(uris) for of in places.values())
        if joined or not all(holders):
            return None
        same = list(dict.fromkeys(max(paths, key=lambda path: sources[path].layout.n_values) for paths in holders))
        check_same_samples([opened[path].group for path in same])
    reason = "as told" if samples_axis is not None else guess_samples_axis(sources[lead])[1]
    return Beside(tuple(opened[path] for path in same), reason) if len(same) > 1 else None


def _each(
    sources: Mapping[str | None, Source],
    places: Mapping[str | None, list[str]],
    lead: Source,
    samples_axis: SamplesAxis | None,
) -> dict[str | None, FoundInput]:
    """The arrays as inputs, by path, without those that can't be analysed alone.

    Samples lie along the axis that was told; else along the dimension that `lead` has them on, where there is one; else
    along that which is guessed.
    """
    dim, found = lead.layout.dims[guess_samples_axis(lead)[0]], dict[str | None, FoundInput]()
    names = _names({path: places[path][0] for path in sources})
    for (path, source), name in zip(sources.items(), names, strict=True):
        layout = source.layout
        told = dim if samples_axis is None and dim in layout.dims else samples_axis
        axis = guess_samples_axis(source)[0] if told is None else layout.axis_of(told)
        with suppress(InputError):
            found[path] = _opened(
                Input(name=name, uri=places[path], array=path, samples_axis=layout.dims[axis] or axis)
            )
    return found


def _of_data(arrays: Sequence[Mapping[str, Any]]) -> list[str | None]:
    """The paths of arrays that may be data; None for a file that is an array itself."""
    return [one["path"] for one in arrays if len(one["shape"]) > 1 and not one["describes"]] if arrays else [None]


def _source(uri: str, path: str | None, samples_axis: SamplesAxis | None) -> Source | None:
    """An array of numbers; None for another, for AnnData's, and for one without the axis that was told."""
    try:
        source = open_source(uri, path)
        source.layout.axis_of(0 if samples_axis is None else samples_axis)
    except InputError:
        return None
    return None if {OBS_NAMES, VAR_NAMES} & {*source.layout.dims} else source


def _likely(layout: Layout) -> tuple[bool, int]:
    """How likely an array is what is looked for: one with a dimension named as samples are, and a large one."""
    return any(dim and dim.lower() in SAMPLE_NAMES for dim in layout.dims), layout.n_values


def _opened(one: Input) -> FoundInput:
    """An input, opened; gaps between its files are for `inspect` to tell."""
    source = one.model_copy(update={"gaps": "allow"}).open()
    axis = check_axis(source.layout, one.samples_axis)
    return FoundInput(one, FeatureGroup(source, axis, one.name or ""))


def _same(lead: FeatureGroup, other: FeatureGroup) -> bool:
    """Whether there is reason to take the samples of two groups for the same, and none against it."""
    dim = lead.layout.dims[lead.samples_axis]
    alike = dim is not None and dim == other.layout.dims[other.samples_axis]
    try:
        check_same_samples((lead, other))
    except InputError:
        return False
    return alike or (has_names(lead) and has_names(other))


def _names(uris: Mapping[str | None, str]) -> list[str]:
    """A name for each array, valid as that of an input: the last part of its path, or of its file's; with a number if it is taken."""
    names: list[str] = []
    for path, uri in uris.items():
        last = PurePosixPath(path).name if path else PurePosixPath(uri.rstrip("/")).name.split(".")[0]
        name = re.sub(r"[^A-Za-z0-9_-]+", "-", last).strip("-")
        name = name if NAME.fullmatch(name) else f"x{name}"
        numbered = (name if number == 1 else f"{name}-{number}" for number in count(1))
        names.append(next(one for one in numbered if one not in names))
    return names
