"""A report as one HTML file. The only file that knows Jinja (extra `report`)."""

from __future__ import annotations

import io
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, StrictUndefined
from numpy.typing import NDArray
from ruamel.yaml import YAML

from dpca import durable
from dpca.errors import InputError, writing
from dpca.report import figures, findings
from dpca.results import REPORT, Result, sample_names
from dpca.units import by, describe_bytes, describe_memory


def write_report(result: Result, labels: NDArray[Any] | None = None, out: Path | None = None) -> Path:
    """Write the report of a result.

    Parameters
    ----------
    labels : (n_samples,), what samples are coloured by
    out : the file; report.html in the result's directory if None

    Returns
    -------
    The file: it needs no other, and no network.

    Raises
    ------
    InputError
        When the result is of kernels, of which there is no report.
    """
    if result.kind != "pca":
        raise InputError(
            f"{result.path}: is of kernels, of which there is no report", "Name a result of model.kind: pca."
        )
    template = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True).from_string(
        (files("dpca.report") / "page.html.j2").read_text(encoding="utf-8")
    )
    place = result.path / REPORT if out is None else out
    text = template.render(document(result, labels))
    with writing(str(place)):
        durable.write(place, lambda file: file.write(text.encode()))
    return place


def document(result: Result, labels: NDArray[Any] | None) -> dict[str, Any]:
    """All that the page has: words, tables and figures."""
    manifest, scree = result.manifest, findings.scree(result)
    scores = np.asarray(result.arrays["scores"][...], np.float64)
    dims = result.arrays["scores"].metadata.dimension_names or ()
    sample_axis = findings.axis_of(result, dims[0] if dims else None, "sample")
    names = sample_names(result)
    return {
        "title": f"PCA of {manifest['input']['name']}",
        "verdict": _verdict(result, scree),
        "notes": manifest["notes"],
        "scree": [figures.of_eigenvalues(scree), figures.of_shares(scree)],
        "scree_caption": _of_scree(scree),
        "rows_of_components": _rows(result, scree),
        "scores": figures.of_scores(scores, labels),
        "scores_caption": f"{len(scores):,} samples" + ("" if labels is None else ", coloured by label") + ".",
        "order": figures.of_order(scores, sample_axis, labels),
        "extreme_samples": _extremes(scores, names),
        **_components(result, scree),
        "quality": _quality(result, names),
        "seconds": [[name, f"{value:.2f}"] for name, value in manifest["seconds"].items()],
        "work": _work(manifest),
        "memory": [
            [name, describe_memory(planned), describe_memory(manifest["memory"]["budget_bytes"][name])]
            for name, planned in manifest["memory"]["planned_bytes"].items()
        ],
        "config": _yaml(manifest["config"]),
        "secrets": ", with storage options filled in," if manifest["config"]["input"].get("storage_options") else "",
        "where": " where its input is" if "://" not in manifest["config"]["input"]["uri"] else "",
    }


def _verdict(result: Result, scree: findings.Scree) -> str:
    manifest, certificate = result.manifest, result.certificate
    plan, counts, k = manifest["plan"], manifest["counts"], scree.n_components
    n = plan["shape"][plan["samples_axis"]]
    captured = 100 * float(scree.ratio[:k].sum())
    words = [
        f"{n:,} samples of {int(np.prod(plan['shape'])) // n:,} features: {k} components have {captured:.1f} % of the variance",
        certificate["verdict"],
    ]
    filled, constant = counts["missing_values"], counts["constant_features"]
    if filled:
        words.append(f"{filled:,} missing values were filled in with their feature's mean")
    if constant:
        words.append(f"{constant:,} constant features count as 0")
    peak, planned = manifest["memory"]["peak_bytes_of_this_process"], manifest["memory"]["planned_bytes"]
    words.append(
        f"{counts['passes']} passes in {manifest['seconds']['total']:.1f} s; {describe_memory(peak)} of memory at the peak, where "
        f"{describe_memory(next(iter(planned.values())))} were planned"
    )
    return ". ".join(word[0].upper() + word[1:] for word in words) + "."


def _of_scree(scree: findings.Scree) -> str:
    edge = (
        "The dashed line is the edge of white noise (Marchenko and Pastur)."
        if scree.edge is not None
        else "What is left is no white noise, so there is no edge to draw, and rules that assume one do not apply."
    )
    said = ", ".join(f"{name} {value}" for name, value in scree.suggested.items())
    return f"Bars are sampling errors by North's rule of thumb. {edge} Rules for the number of components: {said}."


def _rows(result: Result, scree: findings.Scree) -> list[list[str]]:
    sigma = np.asarray(result.arrays["singular_values"][...])
    cumulative = np.cumsum(scree.ratio)
    return [
        [
            str(component["index"]),
            f"{sigma[number]:.6g}",
            f"{100 * scree.ratio[number]:.2f} %",
            f"{100 * cumulative[number]:.2f} %",
            f"{component['digits']:.1f}",
            f"{100 * component['sampling_error']:.1f} %" + ("" if component["distinct"] else ", overlaps the next"),
            "yes" if component["reliable"] else "no",
        ]
        for number, component in enumerate(result.certificate["components"][: 2 * findings.SHOWN_COMPONENTS])
    ]


def _extremes(scores: NDArray[np.float64], names: list[str]) -> list[dict[str, Any]]:
    found = []
    for number in range(min(3, scores.shape[1])):
        order = np.argsort(scores[:, number])
        half = min(findings.TOP // 2, len(order) // 2)
        rows = [[names[i], f"{scores[i, number]:.4g}"] for i in [*order[::-1][:half], *order[:half][::-1]]]
        found.append({"caption": f"Extreme in score {number}", "rows": rows})
    return found


def _components(result: Result, scree: findings.Scree) -> dict[str, Any]:
    if "components" not in result.arrays:
        return {"components": [], "how": "The result has none (output.components: false)."}
    array = result.arrays["components"]
    views = findings.pictures(tuple(array.shape[1:]))
    axes = [
        findings.axis_of(result, dim, f"feature axis {number}")
        for number, dim in enumerate(array.metadata.dimension_names[1:])
    ]
    found = findings.components(result, findings.n_drawn(result))
    shown = [
        {
            "number": number,
            "figure": figures.of_component(number, component, views, axes),
            "share": f"{100 * scree.ratio[number]:.2f} %",
            "top": ", ".join(f"{extreme.name} {extreme.value:.3g}" for extreme in component.top[:5]),
        }
        for number, component in enumerate(found)
    ]
    return {"components": shown, "how": _how(result, views, len(found))}


def _how(result: Result, views: tuple[findings.Picture, ...], count: int) -> str:
    words = []
    if not count:
        return f"Each has {describe_bytes(result.arrays['components'].nbytes / result.n_components)}, too much to be drawn here."
    if count < result.n_components:
        words.append(f"The first {count} of {result.n_components}.")
    step = max(max(view.step) for view in views)
    if step > 1:
        words.append(f"A pixel stands for {by(views[0].step)} features: of them it has the value of largest magnitude.")
    if views[0].middle:
        words.append("Cut through the middle of each axis that is not shown.")
    return " ".join(words)


def _quality(result: Result, names: list[str]) -> dict[str, Any] | None:
    found = findings.quality(result, names)
    if found is None:
        return None

    def most(values: NDArray[np.float64], text: str) -> list[list[str]]:
        return [[names[i], format(values[i], text)] for i in np.argsort(-values)[: findings.TOP]]

    same = "No two samples are the same." if not found.n_same else f"{found.n_same:,} pairs of samples are the same."
    return {
        "figures": [figures.of_outliers(found), figures.of_similarity(found)],
        "caption": f"{same} A sample of high leverage decides a component by itself; one that lies outside is not described by any.",
        "pairs": [[a, b, f"{distance:.3g}"] for a, b, distance in found.pairs],
        "leverage": most(found.leverage, ".3f"),
        "outside": most(found.outside, ".1%"),
    }


def _work(manifest: dict[str, Any]) -> list[list[str]]:
    counts, plan = manifest["counts"], manifest["plan"]
    return [
        ["data", describe_bytes(manifest["input"]["decoded_bytes"])],
        ["decoded in all", describe_bytes(counts["bytes_decoded"])],
        ["spans", f"{plan['n_spans']:,}"],
        ["workers", str(manifest["workers"])],
        ["solver", f"{manifest['numerics']['solver']}, {manifest['numerics']['working_dtype']}"],
    ]


def _yaml(config: dict[str, Any]) -> str:
    written = io.StringIO()
    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    yaml.dump(_plain(config), written)
    return written.getvalue()


def _plain(value: Any) -> Any:
    """Without what is not set, so that the file reads well and is valid again."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items() if item not in (None, {}, [])}
    return value
