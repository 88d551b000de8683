"""The report of derived analyses: its text, tables and figures."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dpca.report import derived_figures as figures
from dpca.report import derived_findings as derived
from dpca.report import derived_groups as of_groups
from dpca.report import derived_resampling as resampling
from dpca.report import derived_statistics as statistics
from dpca.report import findings, rotation
from dpca.report.derived_findings import Lead, Unit
from dpca.report.figures import POSITION, identified, of_component, of_group_shares, of_order, scale_of, score
from dpca.report.findings import MOST_POINTS, SHOWN_SCORES, TOP, Component
from dpca.report.marks import Figure, Table
from dpca.report.rendering import as_yaml, link_to, memory_of, write_page
from dpca.store.arrays import of_group
from dpca.store.derived import Analysis, DerivedResult
from dpca.store.directory import REPORT
from dpca.store.names import names_along
from dpca.units import by, describe_bytes

KINDS = {
    "pca": "principal components",
    "extended": "extended EOFs",
    "hilbert": "complex EOFs",
    "dmd": "dynamic modes",
    "optimized_dmd": "optimized dynamic modes",
    "spod": "spectral components",
    **statistics.NAMES,
    **of_groups.NAMES,
}
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


@dataclass(frozen=True)
class _View:
    """An analysis, and how much of it is drawn."""

    analysis: Analysis
    n_maps: int
    """Of each group of features."""
    read_bytes: int
    """Of its maps, for their pictures."""
    drawn: bool
    """Whether it has figures."""

    def id(self, *words: str) -> str:
        """An id that no other figure has."""
        return identified(self.analysis.name, *words)


def _views(analyses: dict[str, Analysis]) -> list[_View]:
    n_groups = max(1, *(len(analysis.maps) for analysis in analyses.values()))
    count, each = derived.n_maps(len(analyses), n_groups), findings.READ_BYTES // (len(analyses) * n_groups)
    most = min(derived.MOST_ANALYSES, derived.MOST_FIGURES // n_groups or 1)
    return [_View(analysis, count, each, place < most) for place, analysis in enumerate(analyses.values())]


def _read_words(manifest: dict[str, Any]) -> str:
    n_bytes, seconds = manifest["counts"]["bytes_decoded"], manifest["seconds"]["total"]
    read = f"{describe_bytes(n_bytes)} of data read for maps" if n_bytes else "No data read"
    return f"{read}; {seconds:.1f} s."


def _overview(analysis: Analysis) -> list[str]:
    document = analysis.certificate
    maps, good, total = document["maps"], document.get("reliable_components"), document.get("components")
    residuals = [] if maps is None else [one for one in np.ravel(np.array(maps["residual_data"], float)) if one == one]
    return [
        link_to(analysis.name),
        KINDS[analysis.kind],
        "; ".join(document["samples"]) or "none",
        f"{document['rows']:,}",
        "-" if total is None else f"{good} of {total}",
        f"{document['amplification']:,.3g}",
        "none" if maps is None else f"{maps['orthogonality']:.0e}, {max(residuals, default=0.0):.0e}",
    ]


def _section(view: _View) -> dict[str, Any]:
    """What is shown of one analysis."""
    analysis = view.analysis
    document = analysis.certificate
    operators = "; ".join(filter(None, [document.get("features", ""), *document["samples"]]))
    tell = {
        "spod": _spectral,
        "dmd": _dynamic,
        "optimized_dmd": _dynamic,
        **dict.fromkeys(statistics.NAMES, _statistic),
        **dict.fromkeys(of_groups.NAMES, _pairs),
    }.get(analysis.kind, _components)
    contents, captions = tell(view)
    if not view.drawn:
        contents |= {"figures": [], "scores": None}
    verdict = document["verdict"]
    return {
        "id": analysis.name,
        "name": analysis.name,
        "kind": KINDS[analysis.kind],
        "told": f"{document['rows']:,} rows" + (f": {operators}" if operators else "") + f". {verdict}.",
        "caveat": f"{document['caveat']}." if document["caveat"] else "",
        "beside": [],
        "rows": None,
        **contents,
        **_maps(view, captions),
    }


def _components(view: _View) -> tuple[dict[str, Any], list[str]]:
    """Of components, real or complex; with the beginning of the caption of the maps of each."""
    found = derived.spectrum(view.analysis)
    is_complex = found.turns is not None
    shares, sums = 100 * found.ratio, 100 * np.cumsum(found.ratio)
    head = ["component", "reliable", "digits", "singular value", "share", "cumulative"]
    head += ["one turn, in rows"] * is_complex + ["residual of the map"] * bool(found.residuals)
    draws = resampling.draws_of(view.analysis)
    rows = [
        [
            str(number + 1),
            "yes" if found.reliable[number] else "no",
            f"{found.digits[number]:.1f}",
            f"{found.singular_values[number]:.6g}",
            f"{shares[number]:.2f} %",
            f"{sums[number]:.2f} %",
            *([f"{found.turns[number]:.4g}"] if found.turns is not None else []),
            *([_small(found.residuals[number])] if found.residuals else []),
        ]
        for number in derived.rows_shown(range(len(shares)))
    ]
    turn = " A turn is that of the score in the complex plane, on average: the period of what propagates."
    intervals, drawn, grouped = None if draws is None else draws.shares, list[Figure](), ""
    if view.drawn:
        drawn.append(figures.of_spectrum(found, view.id("spectrum"), intervals))
        drawn += [] if draws is None else [resampling.of_angles(draws, view.id("angles"))]
    if "variance_share" in view.analysis:
        names = of_groups.names_in(view.analysis, "group")
        parts = np.asarray(view.analysis["variance_share"][:, : findings.SHOWN_COMPONENTS], np.float64)
        drawn += [of_group_shares(parts, names, view.id("shares"))] if view.drawn else []
        grouped = " Beside it the share of each group of features in each component."
    contents = {
        "figures": drawn,
        "figures_caption": "The share of each component in the variance of the rows."
        + turn * is_complex
        + grouped
        + _first(len(rows), len(shares)),
        "table": {"caption": "Components", "head": head, "rows": rows},
        "beside": ([] if draws is None else [draws.table(derived.rows_shown(range(len(shares))))])
        + _rotated(view.analysis),
        **_scores(view, list(range(min(SHOWN_SCORES, len(shares)))), is_complex, phases=is_complex),
    }
    captions = [f"Component {number}, {share:.2f} % of the variance" for number, share in enumerate(shares, 1)]
    if "rotation_matrix" in view.analysis:
        of_rotated = np.asarray(view.analysis["rotated_explained_variance_ratio"][...], np.float64)
        captions += [
            f"Rotated component {n}, {100 * share:.2f} % of the variance" for n, share in enumerate(of_rotated, 1)
        ]
    return contents, captions


def _rotated(analysis: Analysis) -> list[dict[str, Any]]:
    """The table of rotated components, where there are some."""
    if "rotation_matrix" not in analysis:
        return []
    matrix, share = (
        np.asarray(analysis[name][...], np.float64) for name in ("rotation_matrix", "rotated_explained_variance_ratio")
    )
    words = f"Of {len(matrix)} components, the first {matrix.shape[1]} rotated by {analysis.certificate['rotation']['kind']}; no data were read for it."
    return [{"caption": "Rotated components", "words": words, **rotation.made_of(matrix, share)}]


def _statistic(view: _View) -> tuple[dict[str, Any], list[str]]:
    """Of statistics of rows; principal coordinates are components in a plane, too."""
    if view.analysis.kind != "pcoa":
        return statistics.contents(view.analysis, view.drawn, view.id), []
    contents, captions = _components(view)
    if view.drawn:
        scores = np.asarray(view.analysis["scores"][:, :2], np.float64)
        contents["figures"] = [*contents["figures"], statistics.of_plane(scores, view.id("plane"))]
    return contents, captions


def _pairs(view: _View) -> tuple[dict[str, Any], list[str]]:
    """Of groups of features against each other."""
    beginnings = of_groups.captions(view.analysis) if view.analysis.kind in ("mca", "cca") else []
    return of_groups.contents(view.analysis, view.drawn, view.id), beginnings


def _dynamic(view: _View) -> tuple[dict[str, Any], list[str]]:
    """Of dynamic modes."""
    found, unit = derived.modes(view.analysis)
    head = ["mode", "reliable", "digits", "frequency", "period", "growth", "|eigenvalue|", "amplitude"]
    caption = f"Modes, the strongest first; frequency and growth per {unit.name}, period in {unit.plural}"
    rows = [
        [
            ", ".join(str(number + 1) for number in mode.numbers),
            "yes" if mode.reliable else "no",
            f"{mode.digits:.1f}",
            f"{mode.frequency:.5g}",
            unit.period(mode.frequency) or "-",
            f"{mode.growth:+.4g}",
            f"{abs(mode.eigenvalue):.5g}",
            f"{mode.amplitude:.4g}",
        ]
        for mode in derived.rows_shown(found)
    ]
    drawn = [mode.numbers[0] for mode in found[:SHOWN_SCORES]]
    contents = {
        "figures": [
            figures.of_circle(found, view.id("circle")),
            figures.of_amplitudes(found, unit, view.id("amplitudes")),
        ]
        if view.drawn
        else [],
        "figures_caption": "Eigenvalues of one step: modes inside the circle decay, those outside grow; larger marks have larger amplitudes. "
        "Modes that are conjugates of each other are one in the table." + _first(len(rows), len(found)),
        "table": {"caption": caption, "head": head, "rows": rows},
        **_scores(view, drawn, is_complex=True, phases=False),
    }
    return contents, [_about(mode, unit) for mode in found]


def _spectral(view: _View) -> tuple[dict[str, Any], list[str]]:
    """Of spectral components."""
    analysis, (found, unit) = view.analysis, derived.density(view.analysis)
    peaks = list(found.peaks)
    head = [
        f"frequency (per {unit.name})",
        f"period ({unit.name})",
        "energy of mode 1",
        "its share",
        "reliable",
        "digits",
    ]
    rows = [
        [
            f"{found.frequencies[at]:.5g}",
            unit.period(found.frequencies[at]) or "-",
            f"{found.energies[at, 0]:.5g}",
            f"{100 * found.share(at):.1f} %",
            "yes" if found.reliable[at, 0] else "no",
            f"{found.digits[at, 0]:.1f}",
        ]
        for at in peaks[:TOP]
    ]
    words = [
        f"Energies at {len(found.frequencies):,} frequencies, a density of variance; numbers at peaks are periods."
    ]
    if not found.few:
        words.append(f"A peak is {derived.STANDS_OUT:g} times as high as the lowest point between it and a higher one.")
    words += [f"The first {derived.MOST_MODES} modes of {found.energies.shape[1]}."] * (
        found.energies.shape[1] > derived.MOST_MODES
    )
    for at in np.flatnonzero(found.frequencies == 0):
        words.append(f"Frequency 0, which the axis has no place for, has {found.energies[at, 0]:.4g} in mode 1.")
    about = [
        f"Frequency {found.frequencies[at]:.5g} per {unit.name}"
        + (f", period {unit.counted(period)}" if (period := unit.period(found.frequencies[at])) else "")
        + f": mode 1, {100 * found.share(at):.1f} % of the energy there"
        for at in peaks
    ]
    blocks, drawn = analysis["scores"], sorted(peaks[: derived.MOST_MAPS])
    scores: Figure | None = None
    if view.drawn and drawn:
        sizes = np.stack([np.abs(np.asarray(blocks[at, :, 0])) for at in drawn], axis=1)
        axis = findings.axis_of(analysis, blocks.dims[1], "block")
        labels = [f"{found.frequencies[at]:.4g}" for at in drawn]
        scores = figures.of_blocks(sizes, labels, axis, view.id("blocks"))
    contents: dict[str, Any] = {
        "figures": [figures.of_density(found, unit, derived.MOST_MODES, view.id("density"))] if view.drawn else [],
        "figures_caption": " ".join(words),
        "table": {
            "caption": "Frequencies, the strongest first" if found.few else "Peaks, the highest first",
            "head": head,
            "rows": rows,
        },
        "scores": scores,
        "scores_caption": f"Amplitude of mode 1 in each of {blocks.shape[1]:,} blocks, at the strongest peaks (frequency per {unit.name}).",
    }
    return contents, about


def _scores(view: _View, numbers: list[int], is_complex: bool, phases: bool) -> dict[str, Any]:
    """Scores over their coordinate."""
    scores = view.analysis["scores"]
    count, every = scores.shape[0], -(-scores.shape[0] // MOST_POINTS)
    part = "" if every == 1 else f" One of {every:,} rows is drawn."
    if not view.drawn or not numbers:
        return {"scores": None, "scores_caption": ""}
    axis = findings.axis_of(view.analysis, scores.dims[0], "row", MOST_POINTS)
    values = np.asarray(scores[:, : max(numbers) + 1])[::every]
    if not is_complex:
        return {
            **_real_scores(view, axis, values.astype(np.float64), every),
            "scores_caption": f"Scores of {count:,} rows.{part}",
        }
    shown = numbers[:3] if phases else numbers[:2]
    drawn = figures.of_complex_scores(
        values[:, shown], shown, axis, every, phases, view.id("scores"), "score" if phases else "mode"
    )
    below = ", and phase below" if phases else ""
    which = "Scores" if phases else "Modes"
    return {
        "scores": drawn,
        "scores_caption": f"{which} in {count:,} rows: real part, within the amplitude (dashed){below}.{part}",
    }


def _real_scores(view: _View, axis: findings.Axis, values: np.ndarray[Any, Any], every: int) -> dict[str, Any]:
    """The figure of scores, and the table of rows that it shows."""
    dim, count = view.analysis["scores"].dims[0], view.analysis["scores"].shape[0]
    columns = {score(number): column for number, column in enumerate(values.T)}
    columns[POSITION] = axis.positions(len(values), every)
    names = tuple(names_along(view.analysis, dim or "row", range(0, count, every)))
    rows = Table(f"row of {view.analysis.name}", names, columns, every=every)
    scale = scale_of(axis, len(values), every, view.id("rows"))
    return {"scores": of_order(values.shape[1], scale, view.id("scores"), rows.word), "rows": rows}


MOVING = {
    "hilbert": "Crests move to where the phase is larger: it tells how much later they come.",
    "spod": "Crests move to where the phase is smaller: it tells how much earlier they come.",
}
NO_PHASE = f"No phase is drawn where the amplitude is below {100 * figures.FAINT:g} % of the largest."
MOVING |= {"dmd": MOVING["spod"], "optimized_dmd": MOVING["spod"]}


def _maps(view: _View, captions: list[str]) -> dict[str, Any]:
    """The leading maps of each group of features, and what has to be said of them."""
    analysis = view.analysis
    if analysis.kind in (*statistics.NAMES, "similarity"):
        return {"maps": [], "how": ""}
    if not analysis.maps:
        return {"maps": [], "how": "No maps were made (components: false): dpca derive --components makes them."}
    if not view.drawn:
        return {"maps": [], "how": ""}
    shown, words, common = list[tuple[int, dict[str, Any]]](), list[str](), dict[str, None]()
    for group, array in analysis.maps.items():
        of_group, named = (f", {group}", f"{group}: ") if group else ("", "")
        asked = derived.wanted(analysis, array, view.n_maps, group)
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
    view: _View, group: str, chosen: list[list[Lead]]
) -> tuple[list[tuple[int, str, Figure]], list[str], list[str]]:
    """The place, the end of the caption, and the figure, of each map; and what has to be said of those of this group, and of all."""
    analysis, array = view.analysis, view.analysis.maps[group]
    ahead = len(chosen[0][0])
    pictures = findings.views_of(analysis, array, ahead, derived.PIXELS)
    axes = [
        findings.axis_of(analysis, dim, f"feature axis {number}", 4 * derived.PIXELS)
        for number, dim in enumerate(array.dims[ahead:])
    ]
    leads = [lead for one in chosen for lead in one]
    components = dict(zip(leads, findings.drawn(analysis, array, leads, derived.PIXELS), strict=True))
    if all(np.isnan(view).all() for component in components.values() for view in component.views):
        return [], ["This group of features was left out."], []
    together = view.id("maps", group)
    own = [f"The leading {len(chosen)} of {total}."] if len(chosen) < (total := _total(analysis)) else []
    step = max(max(picture.step) for picture in pictures)
    if step > 1:
        own.append(
            f"A pixel stands for {by(pictures[0].step)} features and shows the largest value among them, of either sign."
        )
    if pictures[0].cut:
        own.append("Other axes are cut in their middle.")
    found, said = list[tuple[int, str, Figure]](), list[str]()
    errors = dict[Lead, Component]()
    if (beside := resampling.errors_of(analysis, group)) is not None:
        errors = dict(zip(leads, findings.drawn(analysis, beside, leads, derived.PIXELS), strict=True))
    for place, one in enumerate(chosen):
        name = view.id("map", group, *map(str, one[0]))
        if analysis.kind == "extended":
            found.append((place, *_lagged(analysis, [components[lead] for lead in one], one, pictures, axes, name)))
            continue
        component = derived.as_real(components[one[0]])
        largest = ", ".join(f"{extreme.name}: {extreme.value:.3g}" for extreme in component.top[:MOST_SPELLED])
        if component.views[0].dtype.kind != "c":
            figure = of_component(str(one[0][-1] + 1), component, pictures, axes, name=name, together=together)
            found.append((place, f". Largest loadings: {largest}.", figure))
            if (error := errors.get(one[0])) is not None:
                most = ", ".join(f"{extreme.name}: {extreme.value:.3g}" for extreme in error.top[:MOST_SPELLED])
                figure = of_component(
                    str(one[0][-1] + 1), error, pictures, axes, name=f"{name}-error", together=together
                )
                found.append((place, f": standard error of each loading. Largest: {most}.", figure))
            continue
        said = [MOVING[analysis.kind], NO_PHASE]
        figure = figures.of_complex(component, pictures, axes, name, together)
        found.append((place, f". Largest amplitudes: {largest}.", figure))
    if (turned := analysis.get(of_group("rotated_components", group))) is not None:
        some = [(number,) for number in range(min(len(chosen), turned.shape[0]))]
        for number, component in enumerate(findings.drawn(analysis, turned, some, derived.PIXELS)):
            largest = ", ".join(f"{extreme.name}: {extreme.value:.3g}" for extreme in component.top[:MOST_SPELLED])
            name = view.id("rotated", group, str(number))
            figure = of_component(str(number + 1), component, pictures, axes, name=name, together=together)
            found.append((_total(analysis) + number, f". Largest loadings: {largest}.", figure))
    return found, own, said


def _lagged(
    analysis: Analysis,
    components: list[Component],
    leads: list[Lead],
    pictures: tuple[findings.Picture, ...],
    axes: list[findings.Axis],
    name: str,
) -> tuple[str, Figure]:
    """The end of a caption, and the figure, of the maps of one component at several lags."""
    lags, step = np.asarray(analysis["lag"][...], np.float64), str(analysis["lag"].attributes["units"])
    chosen = [lead[0] for lead in leads]
    said = f", at lags in steps of {step}." + (
        "" if len(chosen) == len(lags) else f" {len(chosen)} of {len(lags)} lags."
    )
    if len(pictures[0].axes) == 1:
        values = np.stack([component.views[0] for component in components])
        label = f"lag (steps of {step})"
        return said, figures.of_lagged_line(values, lags[chosen], label, pictures[0], axes[0], name)
    return said, figures.of_lags(components, [f"lag {lags[number]:g}" for number in chosen], pictures[0], axes, name)


def _total(analysis: Analysis) -> int:
    """How many peaks, modes or components an analysis has."""
    match analysis.kind:
        case "spod":
            return len(derived.density(analysis)[0].peaks)
        case "dmd" | "optimized_dmd":
            return len(derived.modes(analysis)[0])
        case "mca" | "cca":
            return int(analysis["scores"].shape[-1])
        case _:
            return int(analysis["explained_variance_ratio"].shape[0])


def _about(mode: derived.Mode, unit: Unit) -> str:
    period = unit.period(mode.frequency)
    return f"{mode.called}, " + (f"period {unit.counted(period)}" if period else "without oscillation")


def _first(count: int, total: int) -> str:
    return "" if count == total else f" The table has the first {count} of {total}."


def _small(value: float | None) -> str:
    return "-" if value is None else f"{value:.1e}"
