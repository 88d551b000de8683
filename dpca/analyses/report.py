"""The report of derived analyses: its text, tables and figures."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from dpca.analyses.kind import AnalysisView
from dpca.analyses.kinds import KINDS
from dpca.analyses.kinds.extended import lagged
from dpca.report import derived_figures as figures
from dpca.report import derived_findings as derived
from dpca.report import derived_resampling as resampling
from dpca.report import maps
from dpca.report.derived_findings import Lead
from dpca.report.figures import identified, of_component
from dpca.report.findings import axis_of
from dpca.report.maps import Component
from dpca.report.marks import Figure
from dpca.report.rendering import as_yaml, link_to, memory_of, write_page
from dpca.store.arrays import of_group
from dpca.store.derived import DerivedResult, StoredAnalysis
from dpca.store.directory import REPORT
from dpca.units import by, describe_bytes

MOST_SPELLED = 5
"""Largest number of features that a caption names."""


def write_derived_report(result: DerivedResult, out: Path | None = None) -> Path:
    """Write the report of derived analyses.

    Parameters
    ----------
    out : the file; report.html in the directory of the result if None

    Returns
    -------
    The file, which needs no other files and no network
    """
    contents = document(result)
    tables = {one["rows"].word: one["rows"] for one in contents["analyses"] if one["rows"] is not None}
    return write_page("derived.html.j2", contents, result.path / REPORT if out is None else out, tables)


def document(result: DerivedResult) -> dict[str, Any]:
    """The contents of the page: text, tables and figures."""
    manifest, analyses = result.manifest, result.analyses
    views = _views(analyses)
    sections = list(map(_section, views))
    caveats = {name: analysis.certificate["caveat"] for name, analysis in analyses.items()}
    beyond = [view for view in views if not view.drawn]
    return {
        "title": f"Analyses derived from {', '.join(manifest['from'].values())}",
        "verdict": f"{result.certificate['verdict']}. {_read_words(manifest)}",
        "overview": {
            "head": ["analysis", "kind", "operators on the samples", "rows", "reliable", "amplification", "maps"],
            "rows": [_overview(analysis) for analysis in analyses.values()],
            "caption": "Reliable: at least two digits are right. Amplification: rounding errors are this many times larger than in the run; 1 is ideal. "
            "Maps: how far they are from orthogonal (modes: from length 1), and the largest residual. Maps have length 1: they are not in the unit of the data.",
        },
        "notes": [f"{name}: {caveat}." for name, caveat in caveats.items() if caveat]
        + ([f"drawn are the first {len(sections) - len(beyond)} of {len(sections)} analyses."] if beyond else []),
        "analyses": sections,
        "seconds": [[name, f"{seconds:.2f}"] for name, seconds in manifest["seconds"].items()],
        "work": [
            ["reads of the data", str(manifest["counts"]["passes"])],
            ["decoded in all", describe_bytes(manifest["counts"]["bytes_decoded"])],
            ["workers", str(manifest["workers"])],
        ],
        "memory": memory_of(manifest),
        "config": as_yaml(manifest["config"]),
        "where": " and ".join(manifest["from"].values()) + (" are" if len(manifest["from"]) > 1 else " is"),
    }


def _lengths(analyses: dict[str, StoredAnalysis]) -> str:
    """The lengths of maps, in words."""
    weights = [name for name, one in analyses.items() if KINDS[one.kind].maps_are_weights]
    if len(weights) == len(analyses):
        return "Maps are weights of features: centred samples times these are the scores."
    beside = f", but for {', '.join(weights)}, whose maps are weights of features" if weights else ""
    return f"Maps have length 1{beside}: they are not in the unit of the data."


def _views(analyses: dict[str, StoredAnalysis]) -> list[AnalysisView]:
    n_groups = max(1, *(len(analysis.maps) for analysis in analyses.values()))
    count, each = derived.n_maps(len(analyses), n_groups), maps.READ_BYTES // (len(analyses) * n_groups)
    most = min(derived.MOST_ANALYSES, derived.MOST_FIGURES // n_groups or 1)
    return [
        AnalysisView(analysis, count, each, place < most, identified)
        for place, analysis in enumerate(analyses.values())
    ]


def _read_words(manifest: dict[str, Any]) -> str:
    n_bytes, seconds = manifest["counts"]["bytes_decoded"], manifest["seconds"]["total"]
    read = f"{describe_bytes(n_bytes)} of data read for maps" if n_bytes else "No data read"
    return f"{read}; {seconds:.1f} s."


def _overview(analysis: StoredAnalysis) -> list[str]:
    document = analysis.certificate
    maps, good, total = document["maps"], document.get("reliable_components"), document.get("components")
    residuals = [] if maps is None else [one for one in np.ravel(np.array(maps["residual_data"], float)) if one == one]
    return [
        link_to(analysis.name),
        KINDS[analysis.kind].title,
        "; ".join(document["samples"]) or "none",
        f"{document['rows']:,}",
        "-" if total is None else f"{good} of {total}",
        f"{document['amplification']:,.3g}",
        "none" if maps is None else f"{maps['orthogonality']:.0e}, {max(residuals, default=0.0):.0e}",
    ]


def _section(view: AnalysisView) -> dict[str, Any]:
    """Contents of one analysis."""
    analysis = view.analysis
    document = analysis.certificate
    operators = "; ".join(filter(None, [document.get("features", ""), *document["samples"]]))
    kind = KINDS[analysis.kind]
    contents, captions = kind.section(view)
    if not view.drawn:
        contents |= {"figures": [], "scores": None}
    verdict = document["verdict"]
    return {
        "id": analysis.name,
        "name": analysis.name,
        "kind": kind.title,
        "told": f"{document['rows']:,} rows" + (f": {operators}" if operators else "") + f". {verdict}.",
        "caveat": f"{document['caveat']}." if document["caveat"] else "",
        "beside": [],
        "rows": None,
        **contents,
        **_maps(view, captions),
    }


NO_PHASE = f"No phase is drawn where the amplitude is below {100 * figures.FAINT:g} % of the largest."


def _maps(view: AnalysisView, captions: list[str]) -> dict[str, Any]:
    """The leading maps of each group of features, and what has to be said of them."""
    analysis, kind = view.analysis, KINDS[view.analysis.kind]
    if not kind.has_maps:
        return {"maps": [], "how": ""}
    if not analysis.maps:
        return {"maps": [], "how": "No maps were made (components: false): dpca derive --components makes them."}
    if not view.drawn:
        return {"maps": [], "how": ""}
    shown, words, common = list[tuple[int, dict[str, Any]]](), list[str](), dict[str, None]()
    for group, array in analysis.maps.items():
        of_group, named = (f", {group}", f"{group}: ") if group else ("", "")
        asked = kind.shown(analysis, array, view.n_maps, group)
        if not asked:
            continue
        chosen = derived.affordable(array, asked, view.read_bytes)
        if not chosen:
            each = describe_bytes(array.nbytes / math.prod(array.shape[: len(asked[0][0])]))
            words.append(f"{named}A map has {each}, too much to be drawn here.")
            continue
        drawn, own, said = _drawn(view, group, chosen)
        for place, caption, figure in drawn:
            shown.append((place, {"figure": figure, "caption": f"{captions[place]}{of_group}{caption}"}))
        words += [named + " ".join(own)] * bool(own)
        common |= dict.fromkeys(said)
    shown.sort(key=lambda item: item[0])
    return {"maps": [drawn for _, drawn in shown], "how": " ".join([*words, *common])}


def _drawn(
    view: AnalysisView, group: str, chosen: list[list[Lead]]
) -> tuple[list[tuple[int, str, Figure]], list[str], list[str]]:
    """The place, the end of the caption, and the figure, of each map; and what has to be said of those of this group, and of all."""
    analysis, array = view.analysis, view.analysis.maps[group]
    ahead = len(chosen[0][0])
    axes = [
        axis_of(analysis, dim, f"feature axis {number}", 4 * derived.PIXELS)
        for number, dim in enumerate(array.dims[ahead:])
    ]
    leads = [lead for one in chosen for lead in one]
    components = dict(zip(leads, maps.drawn(analysis, array, leads, derived.PIXELS), strict=True))
    pictures = components[leads[0]].pictures
    if all(np.isnan(view).all() for component in components.values() for view in component.views):
        return [], ["This group of features was left out."], []
    together = view.id("maps", group)
    own = (
        [f"The leading {len(chosen)} of {total}."]
        if len(chosen) < (total := KINDS[analysis.kind].n_maps(analysis))
        else []
    )
    step = max(max(picture.step) for picture in pictures)
    if step > 1:
        own.append(
            f"A pixel stands for {by(pictures[0].step)} features and shows the largest value among them, of either sign."
        )
    if pictures[0].cut:
        own.append("Other axes are cut where the largest loading is.")
    found, said = list[tuple[int, str, Figure]](), list[str]()
    errors = dict[Lead, Component]()
    if (beside := resampling.errors_of(analysis, group)) is not None:
        errors = dict(zip(leads, maps.drawn(analysis, beside, leads, derived.PIXELS), strict=True))
    for place, one in enumerate(chosen):
        name = view.id("map", group, *map(str, one[0]))
        if analysis.kind == "extended":
            found.append((place, *lagged(analysis, [components[lead] for lead in one], one, pictures, axes, name)))
            continue
        component = derived.as_real(components[one[0]])
        largest = ", ".join(f"{extreme.name}: {extreme.value:.3g}" for extreme in component.top[:MOST_SPELLED])
        if component.views[0].dtype.kind != "c":
            figure = of_component(str(one[0][-1] + 1), component, axes, name=name, together=together)
            found.append((place, f". Largest loadings: {largest}.", figure))
            if (error := errors.get(one[0])) is not None:
                most = ", ".join(f"{extreme.name}: {extreme.value:.3g}" for extreme in error.top[:MOST_SPELLED])
                figure = of_component(str(one[0][-1] + 1), error, axes, name=f"{name}-error", together=together)
                found.append((place, f": standard error of each loading. Largest: {most}.", figure))
            continue
        said = [KINDS[analysis.kind].crests, NO_PHASE]
        figure = figures.of_complex(component, axes, name, together)
        found.append((place, f". Largest amplitudes: {largest}.", figure))
    if (turned := analysis.get(of_group("rotated_components", group))) is not None:
        some = [(number,) for number in range(min(len(chosen), turned.shape[0]))]
        for number, component in enumerate(maps.drawn(analysis, turned, some, derived.PIXELS)):
            largest = ", ".join(f"{extreme.name}: {extreme.value:.3g}" for extreme in component.top[:MOST_SPELLED])
            name = view.id("rotated", group, str(number))
            figure = of_component(str(number + 1), component, axes, name=name, together=together)
            found.append((KINDS[analysis.kind].n_maps(analysis) + number, f". Largest loadings: {largest}.", figure))
    return found, own, said
