"""A configuration to start with."""

from __future__ import annotations

import json
import os
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path, PurePosixPath
from typing import Any

from pydantic import BaseModel

from dpca.analyses.kept import SourceResults
from dpca.commands.inspection import CYCLES, cycle_of_samples, inspect
from dpca.commands.side_by_side import Beside, Given, beside, line_of, look_at_each, warnings_of
from dpca.config.compute import Compute
from dpca.config.inputs import Input
from dpca.config.schema import OF_LISTS, ModelSection, Output, Preprocess
from dpca.errors import InputError
from dpca.sources import expanded
from dpca.sources.base import SamplesAxis
from dpca.sources.credentials import without_credentials
from dpca.sources.regressors import Cycle
from dpca.store.directory import DERIVED, kind_at
from dpca.store.results import open_result
from dpca.units import by, of_stored

WIDTH = 100
PLAIN = re.compile(r"[A-Za-z/_][A-Za-z_][A-Za-z0-9./_-]*")
WORDS = frozenset(
    word for name in ("null", "true", "false", "yes", "no", "on", "off") for word in (name, name.title(), name.upper())
)
DEPENDS = ("preprocess.center",)
"""Keys whose default depends on another key: a value written down would not depend on it any more."""
SHOWN_OF_A_LIST = ("name", "uri", "array", "samples_axis", "weights")
"""Keys of an input that a list shows of each; others where they are not left at their default."""


MATTER = frozenset(
    {"input.uri", "input.array", "input.samples_axis", "preprocess.missing", "preprocess.scale", "preprocess.weights"}
    | {"model.n_components", "compute.memory", "compute.workers", "output.path", "output.gram", "output.report"}
)
"""Keys that are shown in any case; others where they are chosen, or asked for."""


def started(
    given: Given, array: str | None = None, samples_axis: SamplesAxis | None = None, every_key: bool = False
) -> tuple[str, list[str]]:
    """A configuration for what lies somewhere, and what to watch out for.

    Parameters
    ----------
    given, array, samples_axis : as for `dpca.commands.side_by_side.look`
    every_key : show all keys, not only those that matter for these data
    """
    if isinstance(given, str) and (kind := kind_at(Path(given))) is not None:
        return _of_result(given, kind), []
    found = beside(given, array, samples_axis)
    if found is not None:
        facts = look_at_each(found)
        listed = None if isinstance(given, Beside | Input) else given
        return _of_list(listed, found, facts, every_key), warnings_of(facts)
    assert not isinstance(given, Beside)
    facts = inspect(given, array, samples_axis)
    return _of_one(given, facts, every_key), facts["watch_out"]


def _of_result(path: str, kind: str) -> str:
    """A configuration of dpca derive for a finished result: analyses that its samples are for, and that need no further choice."""
    if kind == DERIVED:
        raise InputError(
            f"{path}: holds derived analyses, and init is for data, or for a result of dpca run", "Name one of these."
        )
    kept = SourceResults.of([(path, open_result(path))])
    axis, analyses = kept.axis(), dict[str, str]()
    k = min(10, max(1, kept.first.n_samples - 1))
    model = f"{{kind: pca, n_components: {k}}}"
    cycle = (
        None
        if kept.first.coordinate(axis.name) is None
        else cycle_of_samples(kept.recorded.source, kept.recorded.samples_axis)
    )
    if cycle is not None:
        analyses["anomalies"] = f"[{{anomalies: {{by: {cycle}}}}}]"
        analyses["detrended"] = f"[{{anomalies: {{by: {cycle}}}}}, {{detrend: {{degree: 1}}}}]"
        analyses["years"] = "[{means: {by: year}}]"
    else:
        analyses["all"] = "[]"
    lines = [
        f"# {kept.first.n_samples:,} samples of {kept.first.n_features:,} features, whose Gram matrix {path} keeps.",
        "# dpca derive analyses them without reading the data again; maps (components: true) take one read.",
        "# What samples and model may be: configs/derive.md.",
        "",
        f"from: {_yaml(path)}",
        "analyses:",
    ]
    for name, samples in analyses.items():
        lines += [
            f"  - name: {name}",
            f"    samples: {samples}",
            f"    model: {model if name != 'years' else '{kind: pca}'}",
        ]
    readable = bool(kept.first.manifest["asked"])  # not of values that were in the memory of a Python program
    return "\n".join(
        [
            *lines,
            f"components: {'true' if readable else 'false'}",
            "output:",
            f"  path: {_yaml(_free(path.rstrip('/') + '-derived'))}",
        ]
    )


def _of_one(given: str | Sequence[str] | Input, facts: Mapping[str, Any], every_key: bool) -> str:
    """A configuration for what was inspected: keys, their meaning, and values that run; options of a URL are left out."""
    dims, axis = facts["dims"], facts["samples_axis"]
    if isinstance(given, Input):
        where = given.model_dump(exclude={"storage_options"})
    else:
        where = {"uri": given if isinstance(given, str) else list(given)}
    first = facts["uri"] if isinstance(facts["uri"], str) else facts["uri"][0]
    name = _stem(first)
    if facts["array"]:
        name += "-" + re.sub(r"\W+", "-", facts["array"].strip("/"))
    chosen: dict[str, Any] = {
        **{f"input.{key}": value for key, value in where.items()},
        "input.array": facts["array"],
        "input.samples_axis": where.get("samples_axis", dims[axis] or axis),
        "input.members": facts["members"],
        "preprocess.missing": "mean" if _misses(facts) else "error",
        "preprocess.weights": "sqrt_cos_lat" if facts["latitudes"] else None,
        "output.path": _free(f"results/{name}"),
    }
    reasons = {
        "preprocess.missing": "Chosen here since values are missing: error would refuse them." * _misses(facts),
        "preprocess.weights": _reason_of_weights(facts),
    }
    if facts["genotypes"]:
        chosen |= {"preprocess.scale": {"binomial": "plink2"}, "preprocess.missing": "pairwise"}
        reasons["preprocess.scale"] = (
            "Chosen here since features are variants: as plink2 --pca does, with missing: pairwise."
        )
        reasons["preprocess.missing"] = "Chosen here as plink2 --pca does."
    lines = [
        f"# {by(tuple(facts['shape']))} {facts['dtype']}: {facts['n_samples']:,}{of_stored(facts['n_stored'])} samples of {facts['n_features']:,} features",
        f"# (samples: {facts['samples_axis_reason']}).",
        *_watch_out(facts["watch_out"]),
        *_section("input", Input, chosen, reasons, every_key),
    ]
    return "\n".join([*lines, *_further(chosen, reasons, every_key, facts["cycle"])])


def _of_list(given: str | Sequence[str] | None, found: Beside, facts: Mapping[str, Any], every_key: bool) -> str:
    """A configuration for inputs side by side, as for one; of keys of an input those that are chosen.

    Parameters
    ----------
    given : where they were found; None where they were listed
    facts : of `dpca.commands.side_by_side.look_at_each`
    """
    missing = [one["name"] for one in facts["inputs"] if _misses(one)]
    names = [one["name"] for one in facts["inputs"]]
    stem = [_stem(given if isinstance(given, str) else found.inputs[0].uris[0])] if found.in_one_place else []
    chosen: dict[str, Any] = {
        "preprocess.missing": "mean" if missing else "error",
        "preprocess.block_scaling": facts["block_scaling"],
        "output.path": _free(f"results/{'-'.join([*stem, *names][:4])}"),
    }
    reasons = {
        "preprocess.missing": f"Chosen here since values of {', '.join(missing)} are missing: error would refuse them."
        * bool(missing),
        "preprocess.block_scaling": f"Chosen here since {facts['block_scaling_reason']}.",
    }
    alone = found.each[0]
    lines = [
        f"# {len(names)} inputs side by side: {facts['n_samples']:,} samples, the same in all, of {facts['n_features']:,} features",
        f"# (samples: {found.axis_reason}).",
        *(line for one in facts["inputs"] for line in _comment(line_of(one), "#   ")),
        *_comment(
            f"To analyse one alone: {alone.facts['command']} prints its config. Or delete the others here, make input a mapping of "
            "the keys of the one that stays, without name, move its weights to preprocess.weights, and set block_scaling: none.",
            "# ",
        ),
        *_watch_out(warnings_of(facts)),
        f"\ninput:  # {_about(Input)}",
    ]
    reason = "sqrt_cos_lat is chosen where there are latitudes: null would count all cells alike."
    reason *= any(one["latitudes"] for one in facts["inputs"])
    explained: set[str] = set()
    for one, seen in zip(found.inputs, facts["inputs"], strict=True):
        values = one.model_dump(exclude={"storage_options"})
        if given is not None and expanded(given) == one.uris:
            values["uri"] = given if isinstance(given, str) else list(given)
        values["weights"] = values["weights"] or ("sqrt_cos_lat" if seen["latitudes"] else None)
        for key, field in Input.model_fields.items():
            if key not in SHOWN_OF_A_LIST and values.get(key, field.default) == field.default:
                continue
            if key not in explained:
                lines += _comment(
                    f"{field.description} {reason * (key == 'weights')}", "  # " if key == "name" else "    # "
                )
            lines.append(f"  {'-' if key == 'name' else ' '} {key}: {_yaml(values[key])}")
            explained.add(key)
    others = [key for key in Input.model_fields if key not in explained]
    lines += _comment(f"Further keys of an input, at their defaults (configs/README.md): {', '.join(others)}.", "  # ")
    cycles = {one["cycle"] for one in facts["inputs"]}
    return "\n".join([*lines, *_further(chosen, reasons, every_key, cycles.pop() if len(cycles) == 1 else None)])


def _misses(facts: Mapping[str, Any]) -> bool:
    return bool(facts["values"] and facts["values"]["missing"])


def _reason_of_weights(facts: Mapping[str, Any]) -> str:
    latitudes = facts["latitudes"]
    return f"Chosen here since {latitudes} holds latitudes: null would count all cells alike." if latitudes else ""


def _further(
    chosen: Mapping[str, Any], reasons: Mapping[str, str], every_key: bool, cycle: Cycle | None
) -> Iterator[str]:
    """The lines of the sections after the input; of data with a seasonal cycle how to remove it, as a comment."""
    for name, model in (("preprocess", Preprocess), ("model", ModelSection), ("compute", Compute), ("output", Output)):
        yield from _section(name, model, chosen, reasons, every_key)
        if model is Preprocess and cycle is not None:
            yield from _comment(f"{CYCLES[cycle]}: to remove the seasonal cycle, take the # away.", "  # ")
            yield f"  # regress_out: {{seasonal_cycle: {cycle}}}"
    if not every_key:
        yield "\n# These are the keys that matter for these data. dpca init --all shows all keys."


def _section(
    name: str, model: type[BaseModel], chosen: Mapping[str, Any], reasons: Mapping[str, str], every_key: bool
) -> Iterator[str]:
    """The lines of a section: keys, explained; with the reason, where one was chosen."""
    yield f"\n{name}:  # {_about(model)}"
    for key, field in model.model_fields.items():
        path = f"{name}.{key}"
        if model is Input and key in OF_LISTS:
            continue
        matters = every_key or path in MATTER or reasons.get(path)
        if not matters and chosen.get(path, field.default) == field.default:
            continue
        yield from _comment(field.description or "", "  # ")
        yield from _comment(reasons.get(path, ""), "  # ")
        # A key that is commented out has the default that its comment explains, whatever else is changed.
        yield f"  {'# ' * (path in DEPENDS)}{key}: {_yaml(chosen.get(path, field.default))}"


def _about(model: type[BaseModel]) -> str:
    """Purpose of a section: the first line of its docstring."""
    return (model.__doc__ or "").splitlines()[0]


def _comment(text: str, indent: str) -> list[str]:
    """Lines of a comment; line breaks of what a file says become spaces, so that it can't write keys."""
    return textwrap.wrap(" ".join(text.split()), WIDTH, initial_indent=indent, subsequent_indent=indent)


def _watch_out(sentences: Sequence[str]) -> list[str]:
    return [
        line
        for sentence in sentences
        for line in textwrap.wrap(sentence, WIDTH, initial_indent="# Watch out: ", subsequent_indent="#   ")
    ]


def _stem(uri: str) -> str:
    """The name of a file without its suffix; of a pattern what is before its signs."""
    return re.split(r"[.*?[]", PurePosixPath(without_credentials(uri).rstrip("/")).name)[0].rstrip("-_") or "result"


def _free(path: str) -> str:
    """The path, with a number added if it exists already."""
    numbered = (path if number == 1 else f"{path}-{number}" for number in count(1))
    return next(place for place in numbered if not os.path.exists(place))


def _yaml(value: Any) -> str:
    """A scalar, an empty mapping or a section with its defaults as YAML: JSON, except for words that need no quotes."""
    value = value.model_dump(exclude_defaults=True) if isinstance(value, BaseModel) else value
    return value if isinstance(value, str) and PLAIN.fullmatch(value) and value not in WORDS else json.dumps(value)
