"""Documents of results that earlier versions wrote, brought up to what is written today: no other file knows their layouts.

These are functions of plain values. A key that came later is given what was the case before there was such a key: the default
of a setting, a count of 0, or null where nobody knows. CONTRIBUTING.md says what may change, and how.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from pydantic import BaseModel

from dpca.config.inputs import Input
from dpca.config.schema import AUTO, OF_PLACE, ModelSection, Output, Preprocess

IN_ALL = frozenset({"format_version", "config", "input", "plan", "numerics", "counts", "seconds", "environment"})
"""Keys of the manifest of a run in every version."""
DESCRIBING = ("group", "name", "shape", "dtype", "decoded_bytes", "n_stored", "units", "long_name")
"""Keys of the record of an input that are not of its fingerprint."""
ESTIMATED = "digits of this result are estimates from the precision, not measured: an earlier version of dpca made it"
"""Said of certificates before format 3."""


def manifest_of_run(found: Mapping[str, Any]) -> dict[str, Any]:
    """The manifest of a run, or of a fit in Python, as it is written today, from one of any version."""
    inputs, several = _listed(found["input"]), isinstance(found["input"], list)
    prints = [{key: value for key, value in one.items() if key not in DESCRIBING} for one in inputs]
    config = _filled(found["config"], {"preprocess": Preprocess, "model": ModelSection, "output": Output})
    counts, memory = found["counts"], found.get("memory")
    manifest = {
        "run": hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()[:32],
        "made": None,
        "fingerprint": {one["group"]: own for one, own in zip(inputs, prints, strict=True)} if several else prints[0],
        "notes": [],
        "reading": "columns",
        "gram_from": None,
        "keeps_data": False,
        "forecast_seconds": None,
        "task_seconds": {},
        **found,
        "config": config,
        "input": [_described(one) for one in inputs] if several else _described(inputs[0]),
        "counts": {"filled_values": counts["missing_values"], **counts},
        "memory": None if memory is None else {"planned_bytes_of_stages": {}, "peak_bytes_of_stages": {}, **memory},
        "asked": _asked(found["asked"] if "asked" in found else _relevant(config)),
    }
    if manifest["asked"] and "made" not in found and manifest["asked"]["model"]["n_components"] is None:
        manifest["asked"]["model"]["n_components"] = AUTO  # which was written as null, and null means all since then
    return manifest


def certificate_of_run(found: Mapping[str, Any], manifest: Mapping[str, Any]) -> dict[str, Any]:
    """The certificate of a run as it is written today, from one of any version.

    Parameters
    ----------
    manifest : as `manifest_of_run` gives it
    """
    if found["format_version"] > 2:
        return dict(found)
    if "cases" in found:  # of several kernels
        return {**found, "cases": [certificate_of_run(one, manifest) for one in found["cases"]], "caveat": ESTIMATED}
    inputs, numerics = _listed(manifest["input"]), manifest["numerics"]
    n = inputs[0]["shape"][inputs[0]["samples_axis"]]
    d = sum(math.prod(one["shape"]) // n for one in inputs)
    unknown = {"digits": None, "orthogonality": None, "gap": None, "distinct": None, "sampling_error": math.sqrt(2 / n)}
    return {
        "solver": numerics["solver"],
        "precision": "single" if numerics["working_dtype"] == "float32" else "double",
        "exact_products": False,
        "largest_rank": min(n - bool(manifest["config"]["preprocess"]["center"]), d),
        "none_missed": "all computed",
        "refined": False,
        "orthogonality_before": None,
        "scores_orthogonality": None,
        "effective_samples": n,
        "n_components": {"chosen": len(found["components"]), "reason": "not recorded", "suggested": {}},
        **found,
        "components": [{**unknown, "residual_small": one.get("residual_gram"), **one} for one in found["components"]],
        "caveat": ESTIMATED,
    }


def _described(found: Mapping[str, Any]) -> dict[str, Any]:
    """The record of an input."""
    n_bytes = math.prod(found["shape"]) * np.dtype(found["dtype"]).itemsize
    return {"decoded_bytes": n_bytes, "n_stored": None, "units": "", "long_name": "", **found}


def _filled(
    found: Mapping[str, Any], sections: Mapping[str, type[BaseModel]], without: Collection[str] = ()
) -> dict[str, Any]:
    """Settings with the defaults of keys that came later, in some sections and in those of inputs; without some keys of inputs."""
    inputs = [_under(one, _defaults(Input, without)) for one in _listed(found["input"])]
    filled = {name: _under(found[name], _defaults(section)) for name, section in sections.items()}
    return {**found, **filled, "input": inputs if isinstance(found["input"], list) else inputs[0]}


def _asked(found: Mapping[str, Any]) -> dict[str, Any]:
    """Settings that were asked for, as they are written today; nothing was, of values in memory."""
    if not found:
        return {}
    filled = _filled(found, {"preprocess": Preprocess, "model": ModelSection}, OF_PLACE)
    return {**filled, "preprocess": {"fields": {}, **filled["preprocess"]}}


def _relevant(config: Mapping[str, Any]) -> dict[str, Any]:
    """Settings that a run was asked for, where it recorded only how they were resolved."""
    of_input = {key: value for key, value in config["input"].items() if key not in OF_PLACE}
    output = {name: config["output"][name] for name in ("components", "gram")}
    return {"input": of_input, "preprocess": config["preprocess"], "model": config["model"], "output": output}


def _defaults(section: type[BaseModel], without: Collection[str] = ()) -> dict[str, Any]:
    """The defaults of the keys of a section that have one, in plain values."""
    fields = {name: field for name, field in section.model_fields.items() if not field.is_required()}
    values = {name: field.get_default(call_default_factory=True) for name, field in fields.items()}
    return {
        name: value.model_dump() if isinstance(value, BaseModel) else value
        for name, value in values.items()
        if name not in without
    }


def _under(found: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """A mapping with the defaults of what it lacks, also in mappings in it."""
    inner = {
        name: _under(found[name], value)
        for name, value in defaults.items()
        if isinstance(value, Mapping) and isinstance(found.get(name), Mapping)
    }
    return {**defaults, **found, **inner}


def _listed(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else [value]
