"""Values that keys allow, in words, and what to do about others: where the types of the schema alone would say it unclearly."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dpca.config.schema import AUTO
from dpca.numerics.dimension import BI_CROSS_VALIDATION, RULES
from dpca.settings import MODEL, PREPROCESS, either

_AMOUNT = "an amount such as 8 GiB or 1.5 GiB"
_WEIGHTS = "sqrt_cos_lat, or an array {uri: PATH}"
_SAMPLES = "a list of numbers and labels, {start: 0, stop: 100, step: 2}, or the path of a file"
_RULES = (*RULES, BI_CROSS_VALIDATION)

ALLOWED = {
    "input": "a mapping of the keys of an input, or a list of two or more of these mappings",
    "preprocess.regress_out.trend": "an integer of 1 or more, the degree of a polynomial",
    "preprocess.regress_out.by": either(
        "the name of a coordinate of samples, such as run, or labels {uri: PATH}",
        "the name of a coordinate of samples, such as 'run', or a label for each sample",
    ),
    "preprocess.weights": either(_WEIGHTS, "'sqrt_cos_lat', an array or None"),
    "preprocess.inner_product": either("an array {uri: PATH}", "an array (..., k, k) or a sparse matrix (d, d)"),
    "preprocess.filters.mask": "an array {uri: PATH}",
    "preprocess.filters.chromosomes": "autosomes, or a list of chromosomes such as [1, 2, X]",
    "preprocess.filters.variants": "a list of ids, or the path of a file with one a line",
    "preprocess.filters.exclude": "a list of ids, of regions such as 6:25000000-35000000 and of long_range_ld_grch37 or 38, or the path of a file with one a line",
    "analyses.model.alpha": "auto, a number above 0 or a list of them",
    "preprocess.scale": either(
        "none, std, pareto, range, or {binomial: plink2}, {binomial: smartpca}, {binomial: snprelate}",
        "'none', 'std', 'pareto', 'range', or {'binomial': 'plink2'}, {'binomial': 'smartpca'}, {'binomial': 'snprelate'}",
    ),
    "preprocess.scale.reference": _SAMPLES,
    "input.name": "a letter, and then letters, digits, - and _",
    "input.weights": _WEIGHTS,
    "input.mask": "an array {uri: PATH}",
    "input.uri": "text without control characters (such as line breaks), or a list of such text,",
    "input.samples_axis": "an integer such as 0, a dimension's name, or a list of these where samples lie along several axes",
    "input.samples": _SAMPLES,
    "input.feature_shape": "a list of two integers or more, each of 1 or more, such as [112, 92]",
    "input.missing_values": "a list of numbers such as [-999] (NaN counts as missing anyway)",
    "compute.cluster": "local, {scheduler: ADDRESS}, {scheduler_file: PATH}, {slurm: ...} or {slurm_runner: ...}",
    "compute.workers": "auto or an integer of 1 or more",
    "compute.memory": f"auto or {_AMOUNT}",
    "compute.cluster.slurm.memory": _AMOUNT,
    "compute.cluster.slurm_runner.memory": _AMOUNT,
    "model.n_components": "an integer of 1 or more, a share of the variance between 0 and 1, "
    + either("or one of " + ", ".join((AUTO, *_RULES)), ", ".join(map(repr, (AUTO, *_RULES))) + " or None"),
    "output.groups": "{labels: {uri: PATH}}, {ranges: {NAME: [0, 500], OTHER: [500, 900]}}, {validation: 8}, or an integer from 2 to 64",
    "compute.cluster.slurm.walltime": "a time such as '04:00:00' (hours:minutes:seconds)",
    "model.kernel": either(
        "linear, poly, rbf, sigmoid, cosine, precomputed or a list of them",
        "'linear', 'poly', 'rbf', 'sigmoid', 'cosine', 'precomputed' or a function",
    ),
    "model.gamma": either("a number from 0, median, null or a list of them", "a number from 0, 'median' or None"),
    "model.degree": "a number from 0" + either(" or a list of them", ""),
    "model.coef0": "a number" + either(" or a list of them", ""),
    "model.fit_inverse_transform": either("true, false or fixed_point", "True, False or 'fixed_point'"),
}
"""Allowed values, where the messages for the members of a union would be unclear."""

_WRITE_AMOUNT = "Write a number with a point, and a unit; 1 MiB is the least."

REMEDIES = {
    "input": "Write input: {uri: PATH}.",
    "output": "Write output: {path: DIRECTORY}.",
    "input.sample_names": "Write sample_names: {uri: PATH}.",
    "input.feature_names": "Write feature_names: {uri: PATH}.",
    "model.labels": "Write labels: {uri: PATH}.",
    "model.rotation": either("Write rotation: {kind: varimax}.", "Pass rotation={'kind': 'varimax'}."),
    "preprocess.regress_out": f"{PREPROCESS.regress_out.set_to({'seasonal_cycle': 'month', 'trend': 1})}, or one of them.",
    "preprocess.weights": either("Write weights: {uri: PATH}.", "Pass one of these."),
    "preprocess.inner_product": either("Write inner_product: {uri: PATH}.", "Pass one of these."),
    "preprocess.sample_weights": "Write sample_weights: {uri: PATH}.",
    "compute.cluster": "Write slurm: {cores: 8, memory: 32 GiB, walltime: '04:00:00', maximum: 40} under cluster, or the like.",
    "compute.memory": _WRITE_AMOUNT,
    "compute.cluster.slurm.memory": _WRITE_AMOUNT,
    "compute.cluster.slurm_runner.memory": _WRITE_AMOUNT,
}
"""Remedies for errors that need more than a corrected value."""

_EXACT = "each solver here is exact, with an error of each eigenvalue"
_ALL = f"{MODEL.n_components.set_to(None)} for all."

HABITS: Mapping[str, Mapping[Any, str]] = {
    "model.svd_solver": dict.fromkeys(("full", "arpack", "randomized"), f"{MODEL.svd_solver.set_to(AUTO)}: {_EXACT}."),
    "preprocess.scale": {
        **dict.fromkeys((True, "standard"), f"{PREPROCESS.scale.set_to('std')}."),
        **dict.fromkeys((False, None), f"{PREPROCESS.scale.set_to('none')}."),
    },
    "preprocess.missing": {
        None: f"{PREPROCESS.missing.set_to('error')}.",
        **dict.fromkeys(("fill", "ignore"), f"{PREPROCESS.missing.set_to('mean')}."),
        "omit": f"{PREPROCESS.missing.set_to('drop')}.",
    },
    "model.precision": {
        "float32": f"{MODEL.precision.set_to('single')}.",
        "float64": f"{MODEL.precision.set_to('double')}.",
    },
    "model.n_components": {1.0: _ALL, "all": _ALL},
}
"""Values that other programs take, by key, and what to give instead."""


def meant(key: str, value: Any) -> str:
    """Advice for a value that another program takes, in a sentence; empty if no other does."""
    known = HABITS.get(key, {})
    if found := next((hint for habit, hint in known.items() if type(habit) is type(value) and habit == value), ""):
        return found
    whole = key == "model.n_components" and isinstance(value, float) and value.is_integer() and value > 1
    return f"{MODEL.n_components.set_to(int(value))}." if whole else ""
