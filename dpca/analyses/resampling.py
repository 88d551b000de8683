"""How much principal components would differ with other samples: intervals, standard errors and angles, from draws of the rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from dpca.analyses.answers import COMPONENT, DRAW, LIMIT, Answer, Array, row_axis
from dpca.analyses.axis import Axis, in_order
from dpca.analyses.kind import UNDER, Labels
from dpca.analyses.samples import By, Samples
from dpca.analyses.statistics import labels_of, of_all_rows, unweighted
from dpca.config.given import made_of
from dpca.config.inputs import Names, Section
from dpca.derived.gram import matrix_of
from dpca.derived.resampling import Bootstrap, LeaveOut, Resampled, Scheme, cut, resampled
from dpca.derived.statistics import coded
from dpca.errors import ConfigError
from dpca.types import F64

DRAWS, LEVEL = 1000, 0.95
DISTINCT = 0.15
"""A component whose instability is above this is not told from its neighbours: that of two that mix freely is about 0.2."""
FEW = 20
"""Number of units below which draws say little."""
KEPT_BY_THREAD = 2**26
ALIKE = 0.2
"""Correlation of rows that follow each other, in the scores of a component, from which on they are no draws of their own."""


class Resampling(Section):
    """Intervals, standard errors and angles of principal components, from draws of the rows; they read no data."""

    kind: Annotated[
        Literal["bootstrap", "jackknife", "leave_out"],
        Field(
            description="bootstrap: as many rows as there are, drawn with replacement; jackknife: all but one; leave_out: all but a group (by)."
        ),
    ] = "bootstrap"
    draws: Annotated[int, Field(ge=1, description="Of the bootstrap; 2 / (1 - level) at least.")] = 1000
    block: Annotated[
        int,
        Field(
            ge=1,
            description="Number of rows in a row that are drawn together, for time series whose neighbouring rows are alike. The first "
            "row follows the last.",
        ),
    ] = 1
    by: Annotated[
        Labels | None,
        Field(
            description="A part of the samples' dates, or a label for each sample of the result: groups that are drawn, or left out, whole."
        ),
    ] = None
    seed: Annotated[int, Field(ge=0, description="Of the bootstrap: the same seed draws the same.")] = 0
    level: Annotated[float, Field(gt=0, lt=1, description="Of the intervals.")] = 0.95
    align: Annotated[
        Literal["order", "procrustes"],
        Field(
            description="How components of a draw are matched, for scores and maps. order: each with the most similar component, and "
            "its sign. procrustes: all are rotated together to be as similar as possible. Variances are always in order of "
            "size."
        ),
    ] = "order"
    standard_errors: Annotated[
        bool,
        Field(description="Also a map of the standard error of every loading, standard_errors, in the read for maps."),
    ] = False
    columns: Annotated[
        int | None,
        Field(
            ge=1,
            description="Deviation columns of these maps for each component; null: as many as draws or rows, which is exact. With fewer the "
            "certificate has the share of the variance that is lost.",
        ),
    ] = None

    @classmethod
    def of(cls, **arguments: Any) -> Resampling:
        """The settings with the arguments of a Python program."""
        return made_of(cls, arguments, UNDER)

    @property
    def labels(self) -> By:
        """`by` as rows take it: labels of a file were read before."""
        assert not isinstance(self.by, Names | None)
        return self.by

    def scheme(self, rows: Samples) -> tuple[Scheme, Axis]:
        """How the rows are drawn, and the names of the draws."""
        self._check(rows.n)
        axis, codes = Axis(DRAW, None), None
        if self.by is not None:
            names, codes = coded(labels_of(rows, self.labels))
            names, codes = in_order(names[codes])
            if len(names) < 2:
                raise ConfigError(
                    f"all {rows.n:,} rows have the label {names[0]}, and there is no other group",
                    "Give labels that differ.",
                    key="by",
                )
            axis = Axis(DRAW, names)
        if self.kind == "bootstrap":
            return Bootstrap(rows.n, self.draws, self.seed, self.block, codes), Axis(DRAW, None)
        if codes is None:
            values = rows.axis.values
            return LeaveOut(np.arange(rows.n)), Axis(DRAW, values, rows.axis.attributes)
        return LeaveOut(codes), axis

    def _check(self, n: int) -> None:
        if self.kind == "leave_out" and self.by is None:
            raise ConfigError("groups are left out, but none are given", "Give by.", key="by")
        if self.kind == "jackknife" and self.by is not None:
            raise ConfigError(
                "the jackknife leaves out single rows, but groups are given", "Choose kind leave_out.", key="by"
            )
        if self.block != 1 and (self.kind != "bootstrap" or self.by is not None):
            raise ConfigError(
                f"blocks of {self.block} rows are drawn, but only a bootstrap without groups draws blocks",
                "Leave block out.",
                key="block",
            )
        if not 1 <= self.block <= n // 2:
            raise ConfigError(
                f"blocks have {self.block} of {n:,} rows, but 1 to {n // 2} is allowed", "Give fewer.", key="block"
            )
        least = int(np.ceil(2 / (1 - self.level) - 1e-9))  # 1 - 0.9 is less than 0.1
        if self.kind == "bootstrap" and self.draws < least:
            raise ConfigError(
                f"there are {self.draws:,} draws, but intervals of level {self.level:g} need {least:,}: a limit lies between draws",
                "Draw more, or lower the level.",
                key="draws",
            )
        if self.columns is not None and not self.standard_errors:
            raise ConfigError(
                f"columns is {self.columns}, but no standard_errors are asked for", "Leave columns out.", key="columns"
            )


def held(n: int, n_components: int, asked: Resampling, threads: int) -> int:
    """Bytes that resampling n rows takes beside their products, at most."""
    number = asked.draws if asked.kind == "bootstrap" else n
    share = 0.5 if asked.kind == "bootstrap" and asked.by is None else 1.0
    found = int(4 * 8 * share * n * n * threads)  # products of the rows of a draw, and their eigensolve
    found += 8 * n * n_components * (number + 8 * threads)  # scores
    if asked.standard_errors:
        found += 8 * n * n_components * number + 3 * 8 * n * number  # coefficients, and a QR of those of a component
    return found


def left_over(n: int, threads: int) -> int:
    """Bytes that threads keep after their draws: glibc gives the end of a thread's heap, of up to 64 MB, to none but the next thread."""
    return threads * min(KEPT_BY_THREAD, 2 * 8 * n * n)


def n_deviations(n: int, n_components: int, asked: Resampling) -> int:
    """The most deviation columns of all components."""
    if not asked.standard_errors:
        return 0
    number = asked.draws if asked.kind == "bootstrap" else n
    return n_components * min(n, number, asked.columns or n)


def with_resampling(rows: Samples, answer: Answer, asked: Resampling, threads: int = 1) -> Answer:
    """A pca with what draws of its rows say of it.

    Arrays `explained_variance_interval`, `explained_variance_ratio_interval` and `scores_interval` have a lower and an upper limit;
    each has a `..._standard_error`, and the first two `..._of_draws`. `subspace_angle` and `congruence` tell how alike draws are to all rows.

    Parameters
    ----------
    rows : of the answer, about their mean
    """
    rows = unweighted(rows, "resampling is")
    scheme, axis = asked.scheme(rows)
    values = answer.arrays["eigenvalues"].values, answer.arrays["scores"].values
    moved = rows.transformed
    found = resampled(moved, *values, scheme, asked.level, asked.align, asked.standard_errors, threads)
    deviations, lost = found.deviations, None
    if deviations is not None and asked.columns is not None and asked.columns < deviations.shape[2]:
        deviations, lost = cut(deviations, matrix_of(moved.products), asked.columns)
    maps = answer.its_maps
    if deviations is not None:
        of_samples = np.asarray(rows.chain.adjoint(deviations.reshape(len(deviations), -1)))
        norms2 = [np.vdot(one, moved.products.cross(one)).real for one in np.moveaxis(deviations, 1, 0)]
        maps = replace(
            maps, deviations=of_samples.reshape(-1, *deviations.shape[1:]), deviations_norm2=np.array(norms2)
        )
    told = _told(rows, values[1], scheme, asked, found, lost)
    certificate = {**answer.certificate, "resampling": told}
    caveats = [answer.certificate["caveat"], *_caveats(rows, told)]
    certificate["caveat"] = "; ".join(filter(None, caveats))
    certificate["verdict"] += f", {told['draws']:,} draws ({told['words']})"
    row, coordinates = row_axis(rows.axis).name, dict(answer.coordinates)
    coordinates[LIMIT] = Axis(LIMIT, np.array(["lower", "upper"]))
    if axis.values is not None:
        coordinates[DRAW] = axis
    arrays = {**answer.arrays, **_arrays(found, row, asked.level)}
    return replace(answer, arrays=arrays, coordinates=coordinates, maps=maps, certificate=certificate)


def _arrays(found: Resampled, row: str, level: float) -> dict[str, Array]:
    arrays, of_level = dict[str, Array](), {"level": level}
    for name, one in (("explained_variance", found.variances), ("explained_variance_ratio", found.shares)):
        arrays[f"{name}_interval"] = Array(one.interval, (LIMIT, COMPONENT), of_level)
        arrays[f"{name}_standard_error"] = Array(one.standard_error, (COMPONENT,))
        arrays[f"{name}_of_draws"] = Array(one.of_draws, (DRAW, COMPONENT))
    arrays["scores_interval"] = Array(found.scores_interval, (LIMIT, row, COMPONENT), of_level)
    arrays["scores_standard_error"] = Array(found.scores_standard_error, (row, COMPONENT))
    angle = {
        "units": "degree",
        "long_name": "largest angle between the leading components up to this one and those of all rows",
    }
    arrays["subspace_angle"] = Array(found.angles, (DRAW, COMPONENT), angle)
    alike = {"long_name": "product of the component with that of all rows"}
    arrays["congruence"] = Array(found.congruence, (DRAW, COMPONENT), alike)
    return arrays


def _told(
    rows: Samples, scores: F64, scheme: Scheme, asked: Resampling, found: Resampled, lost: F64 | None
) -> dict[str, Any]:
    """Entries of the certificate about draws.

    Returns
    -------
    dict with keys
        kind, draws, seed, block, level, align : as they were asked for
        units : of how many rows, blocks or groups each draw is made
        words : the same in words
        angle, congruence : medians over draws, of each component
        instability : expected squared distance of each component, of length 1, from that of other samples
        distinct : whether a component is told from its neighbours, in most draws
        lacking : draws with too few components for a variance of this order
        unmatched : draws that have no scores and maps beside those of a component
        correlation : of the scores of each component with those of the row before; null where groups or blocks are drawn
        deviation_columns, lost : of maps of standard errors for each component, and the share of the variance that columns left out had; null
    """
    units = rows.n
    if asked.by is not None:
        units = len(np.unique(labels_of(rows, asked.labels)))
    elif asked.block > 1:
        units = -(-rows.n // asked.block)
    what = {"jackknife": "each leaves out one row", "leave_out": f"each leaves out one of {units:,} groups"}
    drawn = (
        f"{units:,} groups"
        if asked.by is not None
        else f"{units:,} blocks of {asked.block} rows"
        if asked.block > 1
        else "rows"
    )
    with np.errstate(invalid="ignore"):
        angle, congruence = np.median(found.angles, axis=0), np.median(found.congruence, axis=0)
    columns, words = None, what.get(asked.kind, f"bootstrap of {drawn}, seed {asked.seed}")
    if asked.standard_errors:
        columns = min(rows.n, scheme.number, asked.columns or rows.n)
    if lost is not None and not np.isnan(lost).all():
        words += f"; standard errors from {columns} columns lack {100 * np.nanmin(lost):.2g} to {100 * np.nanmax(lost):.2g} % of the variance"
    return {
        "kind": asked.kind,
        "draws": scheme.number,
        "seed": asked.seed if asked.kind == "bootstrap" else None,
        "block": asked.block,
        "level": asked.level,
        "align": asked.align,
        "units": units,
        "words": words,
        "angle": _listed(angle),
        "congruence": _listed(congruence),
        "instability": _listed(found.instability),
        "distinct": [bool(one <= DISTINCT) for one in found.instability],
        "lacking": found.lacking.tolist(),
        "unmatched": found.unmatched.tolist(),
        "correlation": [_correlation(score) for score in scores.T] if units == rows.n else None,
        "deviation_columns": columns,
        "lost": None if lost is None else _listed(lost),
    }


def _caveats(rows: Samples, told: dict[str, Any]) -> list[str]:
    """Caveats about draws."""
    found = list[str]()
    if lacking := [number for number, count in enumerate(told["lacking"]) if count]:
        most = max(told["lacking"])
        found.append(
            f"{_named(lacking)} not there in up to {most:,} of {told['draws']:,} draws: no intervals of variances and shares"
        )
    if unmatched := [number for number, count in enumerate(told["unmatched"]) if count]:
        most = max(told["unmatched"])
        found.append(
            f"{_named(unmatched)} like none of up to {most:,} of {told['draws']:,} draws: no standard errors of scores and maps"
        )
    mixed = [number for number, one in enumerate(told["distinct"]) if not one and number not in (*lacking, *unmatched)]
    if mixed:
        found.append(
            f"{_named(mixed)} not told from neighbours (instability above {DISTINCT:g}): the span of several may be certain (subspace_angle), "
            "but no theory says how often intervals of single ones cover"
        )
    if told["units"] < FEW:
        found.append(f"draws are of {told['units']} units, which is few")
    correlation = np.array(told["correlation"] or [0.0])
    if (alike := np.flatnonzero(correlation > max(ALIKE, 3 / np.sqrt(rows.n)))).size:
        blocks = (
            "draw blocks of them (block), or groups (by)"
            if told["kind"] == "bootstrap"
            else "leave out runs of them (leave_out), or draw blocks (bootstrap)"
        )
        found.append(
            f"rows that follow each other are alike in the scores of {_components(alike)} (correlation up to "
            f"{correlation.max():.2f}), so that intervals are too narrow: {blocks}"
        )
    if beforehand := of_all_rows(rows):
        found.append(f"operators ({beforehand}) were made of all rows, not of each draw")
    return found


def _named(numbers: Sequence[int]) -> str:
    return f"{_components(numbers)} {'is' if len(numbers) == 1 else 'are'}"


def _components(numbers: Iterable[int]) -> str:
    """Components in words, from 1 on, given their positions."""
    listed = [str(number + 1) for number in numbers]
    return f"component{'s' if len(listed) > 1 else ''} {', '.join(listed)}"


def _correlation(score: F64) -> float:
    """Correlation of a score with that of the row before."""
    size = float(score @ score)
    return float(score[1:] @ score[:-1]) / size if size else 0.0


def _listed(values: F64) -> list[float | None]:
    return [None if np.isnan(one) else float(one) for one in values]
