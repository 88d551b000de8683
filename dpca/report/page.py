"""The report of a run: its text, tables and figures."""

from __future__ import annotations

from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpca.errors import InputError
from dpca.report import figures, findings, maps
from dpca.report.findings import MOST_POINTS
from dpca.report.genotypes import chromosomes_of, of_genotypes
from dpca.report.marks import Labels, Table
from dpca.report.rendering import as_yaml, memory_of, write_page
from dpca.report.rotation import of_rotation
from dpca.store.directory import REPORT
from dpca.store.names import sample_names
from dpca.store.results import Result
from dpca.units import by, describe_bytes, describe_memory


def write_report(
    result: Result, labels: NDArray[Any] | None = None, out: Path | None = None, groups: NDArray[Any] | None = None
) -> Path:
    """Write the report of a result.

    Parameters
    ----------
    labels : (n_samples,), which colour the samples; those in the result if None
    out : the file; report.html in the directory of the result if None
    groups : (n_features,), consecutive labels that divide the one axis of features; of genotypes their chromosomes if None

    Returns
    -------
    The file, which needs no other files and no network
    """
    groups = chromosomes_of(result) if groups is None else groups
    contents, samples = document(result, result.labels if labels is None else labels, groups)
    result.check_still()
    return write_page("page.html.j2", contents, result.place / REPORT if out is None else out, {"samples": samples})


def document(
    result: Result, labels: NDArray[Any] | None, groups: NDArray[Any] | None = None
) -> tuple[dict[str, Any], Table]:
    """The contents of the page, text, tables and figures, and the samples that figures show."""
    manifest, answers = result.manifest, findings.answers(result)
    shown = max(answers, key=lambda answer: answer.accuracy)  # the first answer without labels
    scree, quality = findings.scree(result, shown), findings.quality(result, shown)
    samples = _samples(result, shown, answers, labels, quality)
    every = samples.every
    sample_axis = findings.axis_of(result, result.dims.sample, "sample", MOST_POINTS)
    position = figures.scale_of(sample_axis, len(samples.names), every)
    of = "" if len(answers) == 1 else f" of kernel {shown.number}, {shown.kernel}"
    contents = {
        "title": f"{'Kernel PCA' if shown.kernel else 'PCA'} of {', '.join(one.input['name'] for one in result.each)}",
        "about": _about(result, sample_axis, shown),
        "answer": _answer(scree, shown, of),
        "verdict": _verdict(result, shown),
        "notes": result.notes,
        "sweep": _sweep(result, answers) if "cases" in result.certificate else None,
        "of": of,
        "scree": [
            figures.of_eigenvalues(scree),
            figures.of_shares(scree),
            *([] if scree.validation is None else [figures.of_validation(scree.validation)]),
        ],
        "scree_caption": _of_scree(scree, shown),
        "head_of_components": _head(result),
        "rows_of_components": _rows(result, shown, scree),
        "caption_of_components": _of_table(result),
        "scores": figures.of_scores(sum(name.startswith("score ") for name in samples.columns)),
        "scores_caption": f"{len(shown.scores):,} samples"
        + ("" if every == 1 else f", of which one of {every:,} is drawn")
        + ("" if labels is None else f", coloured by label ({len(np.unique(labels)):,})")
        + ".",
        "order": figures.of_order(shown.scores.shape[1], position),
        "extreme_samples": _extremes(result, shown.scores, labels),
        "groups": _groups(result),
        **_components(result, scree, groups),
        "genotypes": of_genotypes(result),
        "rotation": of_rotation(result),
        "quality": None if quality is None else _quality(result, quality),
        "seconds": _time(manifest),
        "work": _work(result),
        "memory": memory_of(manifest),
        "config": as_yaml(manifest["config"]),
        "secrets": ", with storage options filled in,"
        if any(one.asked_input.get("storage_options") for one in result.each)
        else "",
        "where": _where(result),
    }
    return contents, samples


def _samples(
    result: Result,
    shown: findings.Solution,
    answers: list[findings.Solution],
    labels: NDArray[Any] | None,
    quality: findings.Quality | None,
) -> Table:
    """The samples that figures show, with what these show of them."""
    n = result.n_samples
    every = -(-n // MOST_POINTS)
    scores = findings.every_row(result, shown, every)
    columns = {figures.score(number): values for number, values in enumerate(scores.T)}
    if len(answers) > 1:
        for answer in answers[: findings.SHOWN_COMPONENTS]:
            own = answer.scores[::every, :2].T
            columns |= dict(zip(figures.of_kernel(answer.number), own, strict=False))
    axis = findings.axis_of(result, result.dims.sample, "sample", MOST_POINTS)
    columns[figures.POSITION] = axis.positions(len(scores), every)
    if quality is not None:
        place = np.full(n, np.nan)
        place[quality.order] = np.arange(len(quality.order))
        columns |= {
            "leverage": quality.leverage[::every],
            "share that components leave": quality.outside[::every],
            figures.PLACE: place[::every],
        }
    names = tuple(sample_names(result, range(0, n, every)))
    of_label = None if labels is None else Labels.of(np.asarray(labels)[::every])
    return Table("sample", names, columns, of_label, every)


def _where(result: Result) -> str:
    """Files that are needed besides the config to run it again."""
    if any(one.input["kind"].endswith(("numpy", "dask")) for one in result.each):
        return ", with the data, which were in memory, stored and named as its input"
    return "" if all("://" in str(one.asked_input["uri"]) for one in result.each) else " where its input is"


def _about(result: Result, samples: findings.DrawnAxis, shown: findings.Solution) -> str:
    """The data: what they are, in which unit, how many, from when to when; and when which version analysed them."""
    named = [
        f"{one.group + ': ' if one.group else ''}{one.long_name or ''}{f' ({one.units})' if one.units else ''}".strip()
        for one in result.each
    ]
    known = "; ".join(filter(None, named))
    size = f"{result.n_samples:,} samples"
    if shown.kernel is None or shown.kernel.name != "precomputed":
        size += f" of {result.n_features:,} features" + (
            f" in {len(result.groups)} inputs" if len(result.groups) > 1 else ""
        )
    if samples.time is not None and samples.first is not None and samples.last is not None:
        first, last = samples.dates(np.array([samples.first, samples.last]))
        size += f", {first} to {last}"
    manifest = result.manifest
    made = f", {manifest['made'][:10]}" if manifest["made"] else ""
    version = manifest["environment"]["libraries"].get("dpca", "")
    return f"{known + '. ' if known else ''}{size}. dpca {version}{made}."


def _answer(scree: findings.Scree, shown: findings.Solution, of: str) -> str:
    """Answer to what a reader asks first: how many components stand out, and what share of the variance they have."""
    k = scree.n_components
    whose = of or (f" of kernel {shown.kernel}" if shown.kernel else "")
    if not k or not scree.ratio[:k].any():
        return f"No component{whose} has any variance."
    standing, words = scree.n_standing, ""
    if standing is not None:
        rule = "" if scree.edge is not None else " (broken-stick rule)"
        words = (
            f"{standing} of {k} component{'s' * (k != 1)}{whose} stand{'s' * (standing == 1)} out from noise{rule}. "
        )
    first, together = 100 * float(scree.ratio[0]), 100 * float(scree.ratio[:k].sum())
    words += f"The first has {first:.1f} % of the variance"
    if standing is not None and 1 < standing < k:
        words += f", these {standing} together {100 * float(scree.ratio[:standing].sum()):.1f} %"
    return words + (f", all {k} together {together:.1f} %." if k > 1 else ".")


def _verdict(result: Result, shown: findings.Solution) -> str:
    """How well it is known, and what it took; notes say what was left out or filled in."""
    manifest, certificate = result.manifest, result.certificate
    good, k = shown.document["reliable_components"], len(shown.document["components"])
    words = [
        f"{f'All {k}' if good == k else f'{good} of {k}'} components are reliable: at least two digits are right"
        if "cases" not in certificate
        else certificate["verdict"]
    ]
    took = f"{result.reads}, {manifest['seconds']['total']:.1f} s"
    if (memory := manifest["memory"]) is not None:
        peak, planned = memory["peak_bytes_of_this_process"], next(iter(memory["planned_bytes"].values()))
        took += f", {describe_memory(peak)} of memory at most ({describe_memory(planned)} were planned)"
    words.append(took)
    return ". ".join(word[0].upper() + word[1:] for word in words) + "."


def _sweep(result: Result, solved: list[findings.Solution]) -> dict[str, Any]:
    """The table of all kernels, and a figure of the first two scores of each."""
    answers = {answer.number: answer for answer in solved}
    rows = []
    for number, document in enumerate(result.certificate["cases"]):
        case = document["case"]
        if number not in answers:
            rows.append([str(number), case["kernel"], f"no answer: {case['problem']}", "", "", ""])
            continue
        accuracy = case["neighbour_accuracy"]
        rows.append(
            [
                str(number),
                str(answers[number].kernel),
                f"{100 * case['variance_captured']:.1f} %",
                str(case["components_95"]),
                f"{case['effective_rank']:.1f}",
                "" if accuracy is None else f"{100 * accuracy:.1f} %",
            ]
        )
    drawn = solved[: findings.SHOWN_COMPONENTS]
    first = "" if len(drawn) == len(solved) else f"The first {len(drawn)} of {len(solved)} kernels. "
    return {
        "rows": rows,
        "figure": figures.of_kernels(drawn),
        "caption": f"{first}Score 2 against score 1 of each kernel, each in its own units. The table has the share of the variance in the "
        "components, the number of components with 95 % of it, and the effective rank. With labels it also has how often the nearest neighbour "
        "of a sample has the same label.",
    }


def _of_scree(scree: findings.Scree, shown: findings.Solution) -> str:
    bars = "Bars are sampling errors (North's rule of thumb)."
    if not scree.complete and (found := shown.document.get("block_krylov")) is not None:
        return (
            f"{len(scree.ratio)} eigenvalues that block Krylov found. The table says how well those of the components are known; those after them are "
            f"lower bounds. A component was missed with a probability of {_chance(found)}. {bars} The edge of noise and rules for the number of components "
            "need all eigenvalues (svd_solver: gram_eigh, if the matrix fits the memory)."
        )
    if not scree.complete:
        return (
            f"The first {scree.n_shown} eigenvalues; it is proved that no larger one was missed. {bars} The edge of noise and rules for the number of "
            "components need all of them (output.spectrum: all)."
        )
    positive = int(np.count_nonzero(scree.eigenvalues > 0))
    part = "" if scree.n_shown == positive else f"The first {scree.n_shown} of {positive} eigenvalues. "
    if shown.kernel:
        return f"{part}Eigenvalues of the centred kernel matrix. {bars}"
    edge = (
        "The dashed line is the edge of white noise (Marchenko and Pastur): components above it stand out."
        if scree.edge is not None
        else "The remaining eigenvalues do not look like white noise; gavish_donoho and marchenko_pastur are not used."
    )
    said = ", ".join(f"{name} {value}" for name, value in scree.suggested.items())
    if scree.validation is not None:
        edge += " Bi-cross-validation: values were left out and predicted from other samples and other features. Shown is the error, relative to "
        edge += "a prediction by the mean. It assumes that groups of features far from each other do not share noise."
    return f"{part}{bars} {edge} Numbers of components by rules: {said}."


def _head(result: Result) -> list[str]:
    of_convention = result.of_convention
    own = [] if of_convention is None else [f"{of_convention[0]} eigenvalue"]
    met = ["converged"] if "block_krylov" in result.certificate else []
    unit = "" if result.unit_of_scores in (None, "1") else f" ({result.unit_of_scores})"
    return [
        *("component", "reliable", *met, *own, "% of the variance", "cumulative"),
        *(f"standard deviation{unit}", "digits", "sampling error"),
    ]


def _of_table(result: Result) -> str:
    """Explanation of the columns of the table of components."""
    words = ["Reliable: at least two digits of the singular value are right."]
    if (found := result.certificate.get("block_krylov")) is not None:
        words.append(f"Converged: the relative error of the eigenvalue is at most {found['tolerance']:g}.")
    words.append("Standard deviation: of the score. Digits: how many are right.")
    words.append("Sampling error: how much the variance would differ with other samples (North and others, 1982).")
    return " ".join(words)


def _rows(result: Result, shown: findings.Solution, scree: findings.Scree) -> list[list[str]]:
    of_convention, cumulative = result.of_convention, np.cumsum(scree.ratio)
    variance = np.asarray(result.arrays["explained_variance"][shown.at], np.float64)
    deviations = np.sqrt(variance)
    return [
        [
            str(number + 1),
            "yes" if component["reliable"] else "no",
            *([("yes" if component["met"] else "no")] if "met" in component else []),
            *([] if of_convention is None else [f"{of_convention[1][number]:.6g}"]),
            f"{100 * scree.ratio[number]:.2f} %",
            f"{100 * cumulative[number]:.2f} %",
            f"{deviations[number]:.4g}",
            "-" if component["digits"] is None else f"{component['digits']:.1f}",
            f"{100 * component['sampling_error']:.1f} %"
            + (", overlaps the next" if component["distinct"] is False else ""),
        ]
        for number, component in enumerate(shown.document["components"][: 2 * findings.SHOWN_COMPONENTS])
    ]


def _extremes(result: Result, scores: NDArray[np.float64], labels: NDArray[Any] | None) -> list[dict[str, Any]]:
    tables = []
    for number in range(min(3, scores.shape[1])):
        order = np.argsort(scores[:, number])
        half = min(findings.TOP // 2, len(order) // 2)
        extreme = [int(i) for i in (*order[::-1][:half], *order[:half][::-1])]
        names = sample_names(result, extreme)
        rows = [
            [name, *([] if labels is None else [str(labels[i])]), f"{scores[i, number]:.4g}"]
            for i, name in zip(extreme, names, strict=True)
        ]
        head = ["sample", *([] if labels is None else ["label"]), "score"]
        tables.append({"caption": f"Largest and smallest in score {number + 1}", "head": head, "rows": rows})
    return tables


def _groups(result: Result) -> dict[str, Any] | None:
    """The share of each group of features in each component, of inputs side by side or labels; None where there is one."""
    if "variance_share" not in result.arrays:
        return None
    shares = np.asarray(result.arrays["variance_share"][...], np.float64)[:, : findings.SHOWN_COMPONENTS]
    names, scaling = result.names_of_sums, result.manifest["config"]["preprocess"]["block_scaling"]
    said = "."
    if "block_factor" in result.arrays:
        factors = np.asarray(result.arrays["block_factor"][...], np.float64)
        multiplied = ", ".join(f"{name} {factor:.4g}" for name, factor in zip(names, factors, strict=True))
        said = (
            ". Inputs are not scaled against each other."
            if scaling == "none"
            else f", multiplied by {multiplied} ({scaling})."
        )
    rows = [
        [str(number), *(f"{100 * share:.1f} %" for share in of_component)]
        for number, of_component in enumerate(shares.T, 1)
    ]
    return {
        "figure": figures.of_group_shares(shares, names),
        "head": ["component", *names],
        "rows": rows,
        "caption": f"How much of the variance of each component each {'input' if len(result.groups) > 1 else 'group of features'} has{said}",
    }


def _components(result: Result, scree: findings.Scree, groups: NDArray[Any] | None) -> dict[str, Any]:
    if any(one.named("components") not in result.arrays for one in result.each):
        if groups is not None:
            raise InputError(
                f"{result.name}: has no components, whose features groups could divide", "Leave out --groups."
            )
        kernels = result.kind == "kernel_pca"
        return {
            "components": [],
            "how": "Components of a kernel have no features: they are known by their scores."
            if kernels
            else "The result has none (output.components: false).",
        }
    if groups is not None and len(result.groups) > 1:
        raise InputError(
            f"{result.name}: is of several inputs, which are its groups of features", "Leave out --groups."
        )
    drawn = [_drawn(one, scree, groups, maps.VOXELS // len(result.each)) for one in result.each]
    together = [
        component for of_number in zip_longest(*(shown for shown, _ in drawn)) for component in of_number if component
    ]
    how = [
        (f"{name}: " if name else "") + words for name, (_, words) in zip(result.groups, drawn, strict=True) if words
    ]
    return {"components": together, "how": " ".join(how)}


def _drawn(
    result: Result, scree: findings.Scree, groups: NDArray[Any] | None, voxels: int
) -> tuple[list[dict[str, Any]], str]:
    """The components of one input, each with its figure, and what has to be said of the figures.

    Parameters
    ----------
    voxels : as of `maps.components`
    """
    array, divided = result.arrays[result.named("components")], None
    if groups is not None:
        if array.shape[1:] != groups.shape:
            raise InputError(
                f"--groups: holds labels of shape {groups.shape}, but features have shape {tuple(array.shape[1:])}",
                "Give a label for each feature of a result whose features have one axis.",
            )
        divided = findings.groups_of(groups)
    axes = [
        findings.axis_of(result, dim, f"feature axis {number}", 4 * maps.PIXELS)
        for number, dim in enumerate(array.dims[1:])
    ]
    drawn = maps.components(result, maps.n_drawn(result), voxels)
    called = [f"{number}, {result.group}" if result.group else str(number) for number in range(1, len(drawn) + 1)]
    unit = result.units
    standing = scree.n_components if scree.n_standing is None else scree.n_standing
    shown = [
        {
            "number": called[number],
            "figure": figures.of_component(called[number], component, axes, divided, unit=unit),
            "share": f"{100 * scree.ratio[number]:.2f} %",
            "top": ", ".join(f"{extreme.name}: {extreme.value:.3g}" for extreme in component.top[:5]),
            "folded": number >= max(1, standing),  # one is shown in any case
        }
        for number, component in enumerate(drawn)
    ]
    words = _how(result, drawn[0].pictures if drawn else (), len(drawn), divided)
    scrolled = [component.whole for component in drawn if component.whole is not None]
    return shown, f"{words} {_of_sliders(scrolled, len(drawn))}".strip()


def _of_sliders(scrolled: list[maps.Sliced], count: int) -> str:
    """A sentence about sliders, if there are some."""
    if not scrolled:
        return ""
    coarse = (
        f", each of which shows the largest values of {by(scrolled[0].step)} features"
        if max(scrolled[0].step) > 1
        else ""
    )
    of = f" of the first {len(scrolled)} components" if len(scrolled) < count else ""
    return f"Sliders move to other slices{of}{coarse}."


def _how(
    result: Result, views: tuple[maps.Picture, ...], count: int, groups: findings.FeatureRanges | None = None
) -> str:
    words = []
    if not count:
        n_bytes = result.arrays[result.named("components")].nbytes / result.n_components
        return f"Each has {describe_bytes(n_bytes)}, too much to be drawn here."
    unit = f"in {result.units}, the unit of the data" if result.units else "in the unit of the data"
    words.append(
        f"Maps are {unit}: they show the change of the data for one standard deviation of the score "
        "(components * sqrt(explained_variance) * scale / weights)."
    )
    if count < result.n_components:
        words.append(f"The first {count} of {result.n_components}.")
    if views[0].places is not None:
        words.append(
            "Features are drawn where they are on the earth; a pixel shows the largest value in it, of either sign."
        )
    step = max(max(view.step) for view in views)
    if step > 1:
        words.append(
            f"A pixel stands for {by(views[0].step)} features and shows the largest value among them, of either sign."
        )
    if views[0].cut:
        words.append(
            "Three axes are shown as slices through the largest loading; thin lines say where."
            if len(views) > 1
            else "Other axes are cut where the largest loading is."
        )
    if groups is not None:
        words.append("Absolute values. Colours and marks change from group to group.")
    return " ".join(words)


def _quality(result: Result, facts: findings.Quality) -> dict[str, Any]:
    def most(values: NDArray[np.float64], text: str) -> list[list[str]]:
        order = [int(i) for i in np.argsort(-values)[: findings.TOP]]
        return [[name, format(values[i], text)] for i, name in zip(order, sample_names(result, order), strict=True)]

    same = "No two samples are the same." if not facts.n_same else f"{facts.n_same:,} pairs of samples are the same."
    return {
        "figures": [figures.of_outliers(facts), figures.of_similarity(facts)],
        "caption": f"{same} A sample of high leverage decides a component almost alone. The components do not describe a sample with a large share outside.",
        "pairs": [[*sample_names(result, (a, b)), f"{distance:.3g}"] for a, b, distance in facts.pairs],
        "leverage": most(facts.leverage, ".3f"),
        "outside": most(facts.outside, ".1%"),
    }


def _time(manifest: dict[str, Any]) -> list[list[str]]:
    """For each stage: seconds, forecast, mean seconds of its tasks in reading and in computing, and the larger of the two."""
    forecast, tasks, rows = manifest["forecast_seconds"] or {}, manifest["task_seconds"], []
    for name, seconds in manifest["seconds"].items():
        cells = [f"{forecast[name]:.2f}"] if name in forecast else ["-"]
        if name in tasks:
            each = [tasks[name][kind] / max(1, tasks[name]["tasks"]) for kind in ("reading", "computing")]
            cells += [f"{value:.2f}" for value in (*each, max(each))]
        else:
            cells += ["-"] * 3
        rows.append([name, f"{seconds:.2f}", *cells])
    return rows


def _work(result: Result) -> list[list[str]]:
    manifest, inputs = result.manifest, [one.input for one in result.each]
    plans = manifest["plan"] if isinstance(manifest["plan"], list) else [manifest["plan"]]
    each = [[f"data, {one['group']}", describe_bytes(one["decoded_bytes"])] for one in inputs if "group" in one]
    return [
        ["data", describe_bytes(sum(one["decoded_bytes"] for one in inputs))],
        *each,
        ["reads", result.reads],
        ["decoded in all", describe_bytes(manifest["counts"]["bytes_decoded"])],
        ["parts of the data", f"{sum(plan['n_spans'] for plan in plans):,}"],
        ["workers", str(manifest["workers"])],
        ["solver", f"{manifest['numerics']['solver']}, {manifest['numerics']['working_dtype']}"],
        *_of_iteration(result.certificate.get("block_krylov")),
    ]


def _chance(found: dict[str, Any]) -> str:
    """The chance that a bound of block Krylov fails, in words."""
    return "not known, since windows changed the first block" if found["chance"] is None else f"{found['chance']:g}"


def _of_iteration(found: dict[str, Any] | None) -> list[list[str]]:
    """Report of block Krylov; nothing of other solvers."""
    if found is None:
        return []
    restart = found["restart"]
    return [
        [
            "reads of block Krylov",
            f"{found['passes']} of at most {found['max_passes']}, with blocks of {found['block']} vectors",
        ],
        ["tolerance", f"{found['tolerance']:g}, the largest relative error of an eigenvalue that has converged"],
        ["probability that an error bound is wrong", _chance(found)],
        *([] if restart is None else [["change by an independent block", f"{restart:.1g}"]]),
    ]
