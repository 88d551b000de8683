"""The workflow behind `dpca extend`: samples are added to a finished run.

It is a run on the old and the new files, joined along the samples, with the config of the old run: only its first pass makes fewer
products (`dpca.numerics.accumulators.border`).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpca.commands.foresight import plan as plan_run
from dpca.commands.run import Finished
from dpca.commands.run import run as carry_out
from dpca.config.inputs import Input
from dpca.config.loading import Loaded, is_config, load_inputs, load_values
from dpca.config.schema import Config
from dpca.errors import ConfigError, InputError
from dpca.execution.progress import Display
from dpca.execution.stage import Executor
from dpca.methods.extension import Extension
from dpca.methods.kept_gram import place_of
from dpca.methods.recorded import check_places
from dpca.sources import expanded
from dpca.sources.credentials import without_credentials
from dpca.store.results import Result, open_result

MAY_CHANGE = ("compute", "output", "model.n_components", "input.gaps", "input.storage_options", "input.library")
"""Keys that may be set: the kept products do not depend on them."""


@dataclass(frozen=True)
class Asked:
    """The result to be extended, and the new samples."""

    result: Path
    given: tuple[str, ...]
    """New samples: paths and URLs that follow each other; or a YAML file with an input, or a list of them."""
    output: Path
    """A new directory, for the result of all samples."""
    repeats: bool = False
    """Whether new samples may have names or values of old ones."""
    overrides: tuple[str, ...] = ()
    """KEY=VALUE for keys of the config that may change; how and where to compute is of the caller, not of the result."""
    data: tuple[str, ...] = ()
    """Where the old samples are now; none to read them where the result says that they are."""


def extend(
    asked: Asked,
    *,
    overwrite: bool = False,
    resume: bool = False,
    keep_ledger: bool = False,
    executor: Executor | None = None,
    display: Display | None = None,
) -> Finished:
    """Add samples to a finished run: the result is that of a run on all of them, to rounding.

    Parameters
    ----------
    overwrite, resume, keep_ledger, executor, display : as of `dpca.commands.run.run`
    """
    loaded, extends = _prepared(asked)
    return carry_out(
        loaded,
        overwrite=overwrite,
        resume=resume,
        keep_ledger=keep_ledger,
        extends=extends,
        executor=executor,
        display=display,
    )


def plan(asked: Asked) -> dict[str, Any]:
    """Plan of `extend`, as `dpca.commands.foresight.plan`; with a key more.

    Returns
    -------
    dict with the keys of `dpca.planning.forecast.forecast`, and
        extended : result, n_samples and bytes of the old samples, n_new and new_bytes of the others, which the first pass reads once each;
            flops of the products of the pass, and those that a run from scratch would make
    """
    loaded, extends = _prepared(asked)
    document = plan_run(loaded, extends=extends)
    old, n = extends.result, document["n_samples"]
    known, d = old.n_samples, document["n_features"]
    n_bytes = sum(one["bytes"] for one in document["inputs"])
    first = next(one for one in document["passes"] if one["flops"])
    document["extended"] = {
        "result": str(asked.result),
        "n_samples": known,
        "n_new": n - known,
        "bytes": n_bytes * known // n,
        "new_bytes": n_bytes - n_bytes * known // n,
        "flops": first["flops"],
        "flops_from_scratch": n * n * d,
    }
    return document


def _prepared(asked: Asked) -> tuple[Loaded, Extension]:
    """The config of a run on all samples, and what is known of the old ones, after both were checked; no values are read."""
    result = open_result(asked.result)
    if os.path.realpath(asked.output) == os.path.realpath(asked.result):
        raise ConfigError(
            f"--output is {asked.output}, the result that is extended, and which the new one is made from",
            "Name a new directory: the old result stays.",
        )
    extends = Extension(result, asked.repeats)
    extends.check_config()
    for override in asked.overrides:
        key = override.partition("=")[0].strip()
        if not any(key == free or key.startswith(f"{free}.") for free in MAY_CHANGE):
            raise ConfigError(
                f"--set {key}: the products that {result.name} keeps are of its own config",
                f"Set one of {', '.join(MAY_CHANGE)}, or run on all files together.",
            )
    words = ("extend", str(asked.result), *asked.given, "--output", str(asked.output))
    words += ("--allow-repeats",) * asked.repeats
    words += tuple(word for place in asked.data for word in ("--data", place))
    before = _config_of(result, asked.data)
    added = _added(result, asked.given)
    sections = before["input"] if isinstance(before["input"], list) else [before["input"]]
    with_new = [{**one, "uri": [*_listed(one["uri"]), *added[one.get("name")]]} for one in sections]
    values = {**before, "input": with_new if len(with_new) > 1 else with_new[0]}
    loaded = load_values(values | {"output": {**before["output"], "path": str(asked.output)}}, asked.overrides, words)
    with loaded.located():
        extends.check_data(Config.model_validate(before), loaded.config)
    return loaded, extends


def _config_of(result: Result, data: tuple[str, ...]) -> dict[str, Any]:
    """The config of a result as it was asked for: the number of components may have followed from a rule.

    Without its section `compute`, which has commands and addresses: whoever wrote the manifest does not say what is run here.
    """
    config: dict[str, Any] = {name: section for name, section in result.manifest["config"].items() if name != "compute"}
    n_components = result.manifest["asked"]["model"]["n_components"]
    config["model"] = {**config["model"], "n_components": n_components}
    inputs = config["input"] if isinstance(config["input"], list) else [config["input"]]
    inputs = [{**one, "storage_options": {}} for one in inputs]  # they were not recorded
    if data:
        if len(inputs) > 1:
            raise ConfigError(
                f"--data is given, but {result.name} is of the inputs {', '.join(result.groups)}, side by side",
                "Put the data back where the result says, or run on all files together.",
            )
        inputs[0]["uri"] = list(data) if len(data) > 1 else data[0]
    for one in inputs:
        recorded = {key: value for key, value in one.items() if key != "uri" or not data}
        check_places(recorded, result.name, "Name the old samples with --data, or run on all files together.")
    check_places({key: config.get(key) for key in ("preprocess", "model")}, result.name, "Run on all files together.")
    return {**config, "input": inputs if len(inputs) > 1 else inputs[0]}


def _listed(uri: str | Sequence[str]) -> list[str]:
    return [uri] if isinstance(uri, str) else list(uri)


def _added(result: Result, given: Sequence[str]) -> dict[str | None, list[str]]:
    """The new files of each input of a result, by its name; None for the only one."""
    names = result.groups
    if len(given) != 1 or not is_config(given[0]):
        if len(names) > 1:
            raise ConfigError(
                f"{result.name}: is of the inputs {', '.join(names)}, side by side, but new samples are given as one",
                "Give a YAML file with a list of inputs of these names.",
            )
        return {None: _new(result, expanded(list(given)))}
    found = load_inputs(given[0])
    inputs = found if isinstance(found, list) else [found]
    by_name = {one.name: one for one in inputs}
    expects = {None} if names == ("",) else {*names}
    if {*by_name} != expects or len(by_name) != len(inputs):
        raise ConfigError(
            f"{given[0]}: has {', '.join(str(name or 'one input without a name') for name in by_name)}, but {result.name} is of "
            + (", ".join(names) if names != ("",) else "one input without a name"),
            "Give the same inputs, with their new files.",
        )
    for one, of in zip((by_name[name or None] for name in names), result.each, strict=True):
        _check_keys(given[0], one, of)
    return {name: _new(result, one.uris) for name, one in by_name.items()}


def _new(result: Result, uris: list[str]) -> list[str]:
    """Files, after none of them was found among those of a result."""
    old = {place_of(uri) for one in result.each for uri in _listed(one.asked_input["uri"])}
    for uri in uris:
        if place_of(uri) in old:
            raise InputError(
                f"{without_credentials(uri)}: is among the data of {result.name} already", "Name the new ones."
            )
    return uris


def _check_keys(given: str, one: Input, of: Result) -> None:
    """Refuse keys of an input that differ from those of the fit: all files are read in one way."""
    before = of.asked_input
    for key in one.model_fields_set - {"uri", "name", "storage_options", "library"}:
        if getattr(one, key) != getattr(Input.model_validate({**before, "storage_options": {}}), key):
            raise ConfigError(
                f"{given}: {key} is {getattr(one, key)!r}, but {before.get(key)!r} in {of.name}",
                "Leave it out: new files are read as the old ones are.",
            )
