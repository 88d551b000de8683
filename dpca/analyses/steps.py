"""Operators and models of a configuration, applied to samples."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dpca.analyses import feature_groups, projection, resampling, statistics
from dpca.analyses.answers import COMPONENT, Answer, Array, row_axis
from dpca.analyses.axis import Axis
from dpca.analyses.rotation import PANEL, n_rotated
from dpca.analyses.samples import By, Samples
from dpca.config.derive import (
    Analysis,
    Dmd,
    ExtendedEof,
    Filter,
    HilbertEof,
    OptimizedDmd,
    Pca,
    Select,
    Spod,
    Step,
)
from dpca.config.feature_groups import Cca, Mca, OfGroups, Similarity
from dpca.config.inputs import Covariates, Names, Range
from dpca.config.model import MOST_ROTATED
from dpca.config.resampling import Resampling
from dpca.config.schema import AUTO, DEFAULT_COMPONENTS, most_of
from dpca.config.statistics import Distances, Heritability, Manova, Pcoa, Permanova, Ridge, Statistic, Target
from dpca.derived.operators import F64
from dpca.derived.pca import UpTo
from dpca.derived.regressors import Column, Design
from dpca.derived.ridge import N_ALPHAS
from dpca.errors import ConfigError, DpcaError
from dpca.numerics import fourth_moments
from dpca.planning import runplan
from dpca.slabs import TILE_BYTES
from dpca.sources.groups import FeatureGroup
from dpca.sources.labels import Place, open_values, read_labels
from dpca.sources.regressors import covariates_of


def analysed(samples: Samples, recorded: FeatureGroup, analysis: Analysis, key: str, threads: int = 1) -> Answer:
    """The answer of one analysis.

    Parameters
    ----------
    samples : of the result
    recorded : the same as the result recorded them, by whose names rows of tables are found
    key : of the analysis in the configuration, for errors: analyses.0
    threads : for draws of rows, which give the same whatever their number
    """
    rows = samples
    if (chosen := analysis.features) is not None:
        with in_analysis(f"{key}.features", analysis.name):
            rows = rows.of_features(chosen.only, chosen.leave_out, chosen.weights, chosen.scaling)
    for number, step in enumerate(analysis.samples):
        name, _ = step.operator
        with in_analysis(f"{key}.samples.{number}.{name}", analysis.name):
            rows = _applied(rows, samples, recorded, step, f"{key}.samples.{number}.{name}")
    with in_analysis(f"{key}.model", analysis.name):
        if isinstance(analysis.model, OfGroups):
            return _of_groups(rows, analysis.model)
        if isinstance(analysis.model, Statistic):
            return _statistic(rows, samples, recorded, analysis.model, f"{key}.model")
        answer = _answered(rows, samples, analysis.model)
    if isinstance(analysis.model, Pca) and (asked := analysis.model.resampling) is not None:
        with in_analysis(f"{key}.model.resampling", analysis.name):
            drawn = _resampling(asked, samples.n, f"{key}.model.resampling")
            answer = resampling.with_resampling(rows.centred, answer, drawn, threads)
    if isinstance(analysis.model, Pca) and analysis.model.rotation is not None:
        with in_analysis(f"{key}.model.rotation", analysis.name):
            n_rotated(answer, analysis.model.rotation.asked)  # refused before the data are read
    return answer


def _resampling(asked: Resampling, n: int, key: str) -> resampling.Resampling:
    by = None if asked.by is None else _labels(asked.by, n, f"{key}.by")
    return resampling.Resampling(**{**dict(asked), "by": by})


@contextmanager
def in_analysis(key: str, name: str) -> Iterator[None]:
    """Name the analysis, and complete the key, of an error of this block."""
    try:
        yield
    except DpcaError as error:
        last = "" if not error.key or error.key.startswith("analyses.") else f".{error.key}"
        where = error.key if error.key == "time" or error.key.startswith("analyses.") else key + last
        raise type(error)(f"analysis {name}: {error.message}", error.remedy, where) from error.__cause__


def _applied(rows: Samples, samples: Samples, recorded: FeatureGroup, step: Step, key: str) -> Samples:
    """The rows after one more operator.

    Parameters
    ----------
    samples : all samples of the result, which labels are for
    """
    n = samples.n
    match step.operator:
        case "select", Select() as select:
            return _selected(rows, select, key)
        case "anomalies", grouping:
            return rows.anomalies(_labels(grouping.by, n, f"{key}.by"))
        case "between", grouping:
            return rows.between_groups(_labels(grouping.by, n, f"{key}.by"))
        case "means", grouping:
            return rows.means(_labels(grouping.by, n, f"{key}.by"))
        case "detrend", trend:
            return rows.detrend(trend.degree)
        case "difference", lag:
            return rows.difference(lag.lag)
        case "filter", Filter() as asked:
            band = None if asked.band is None else (asked.band[0], asked.band[1])
            return rows.filter(asked.kind, band, asked.order, asked.window)
        case "regress_out", Covariates() as asked:
            covariates, names = _covariates(recorded, asked, key)
            return rows.regress_out(covariates, names=names)
        case "weights", asked:
            with asked.open().open() as reader:
                values = np.asarray(reader.read(tuple(slice(0, length) for length in reader.layout.shape)), np.float64)
            return rows.weighted(values, asked.kind)
        case _:
            return rows.center()


def _covariates(recorded: FeatureGroup, asked: Covariates, key: str) -> tuple[F64, list[str]]:
    """Covariates of the samples of the result, (n, q), and what they are called."""
    columns = covariates_of(recorded, asked.uri, asked.array, asked.columns, asked.key, key, asked.categorical or ())
    design = Design.of([Column(name, values) for name, values in columns])
    return design.matrix, [name for name, _ in columns]


def _labels(by: str | Names, n_samples: int, key: str) -> By:
    if isinstance(by, str):
        return by
    return read_labels(by.uri, by.array, n_samples, column=by.column, key=key)


def _selected(rows: Samples, select: Select, key: str) -> Samples:
    if select.between is not None:
        if select.axis not in (None, rows.axis.name):
            raise ConfigError(
                f"samples are selected along {select.axis!r}, but their axis is {rows.axis.name!r}",
                f"Write {{{rows.axis.name}: [first, last]}}.",
            )
        return rows.between(*select.between)
    if select.samples is not None:
        return _chosen(rows, select.samples, key)
    part, values = next((name, value) for name, value in select if value is not None)
    return rows.where(part, values)


def _chosen(rows: Samples, samples: str | list[Any] | Range, key: str) -> Samples:
    if isinstance(samples, Range):
        return rows.rows(np.arange(rows.n)[slice(samples.start, samples.stop, samples.step)])
    if isinstance(samples, str):
        values: NDArray[Any] = np.asarray(open_values(Place(samples, key=key))[...])
        if values.dtype.kind in "biu":
            return rows.rows(values)
        samples = [str(value) for value in values.tolist()]
    if not any(isinstance(one, int) for one in samples):
        return rows.labelled(samples)
    return rows.rows(np.array([one if isinstance(one, int) else rows.place(one) for one in samples], np.intp))


def _answered(
    rows: Samples, samples: Samples, model: Pca | ExtendedEof | HilbertEof | Dmd | OptimizedDmd | Spod
) -> Answer:
    match model:
        case Pca():
            answer = rows.pca(_number(model.n_components), model.as_covariance, model.as_correlation)
            if rows.features is not None and len(rows.features.names) > 1:
                answer = feature_groups.shares_of(rows.centred, answer)
            return _with_left_out(answer, rows.centred, samples.axis) if model.left_out else answer
        case ExtendedEof():
            return rows.extended(model.lags, model.step, _number(model.n_components))
        case HilbertEof():
            return rows.hilbert(_number(model.n_components), model.padding, model.decay)
        case Dmd():
            return rows.dmd(_number(model.rank), model.modes)
        case OptimizedDmd():
            return rows.optimized_dmd(model.rank)
        case Spod():
            return rows.spod(model.block, model.overlap, model.window, model.frequencies, model.n_components)


def _of_groups(rows: Samples, model: OfGroups) -> Answer:
    match model:
        case Mca():
            return feature_groups.mca(rows, model.groups, _number(model.n_components), model.permutations, model.seed)
        case Cca():
            both, k = model.groups, None if model.n_components == AUTO else model.n_components
            return feature_groups.cca(rows, both, model.n_leading, k, model.permutations, model.seed)
        case Similarity():
            return feature_groups.similarities(rows, model.permutations, model.seed)


def _statistic(rows: Samples, samples: Samples, recorded: FeatureGroup, model: Statistic, key: str) -> Answer:
    n = samples.n
    match model:
        case Distances():
            return statistics.distances(rows)
        case Pcoa():
            return statistics.pcoa(rows, _number(model.n_components))
        case Permanova():
            strata = None if model.strata is None else _labels(model.strata, n, f"{key}.strata")
            by = _labels(model.by, n, f"{key}.by")
            return statistics.permanova(rows, by, model.permutations, model.seed, strata)
        case Manova():
            return statistics.manova(rows, _labels(model.by, n, f"{key}.by"), model.n_components)
        case Ridge():
            values, name = _target(recorded, model.target, f"{key}.target")
            left_out = samples.axis if model.left_out else None
            return statistics.ridge(rows, values, model.alpha, left_out, name)
        case Heritability():
            values, name = _target(recorded, model.target, f"{key}.target")
            asked = model.covariates
            covariates = None if asked is None else _covariates(recorded, asked, f"{key}.covariates")[0]
            return statistics.reml(rows, values, covariates, name)


def _target(recorded: FeatureGroup, asked: Target, key: str) -> tuple[NDArray[Any], str]:
    """A number for each sample of the result, and what it is called."""
    columns = [asked.column] if asked.column else None
    found = covariates_of(recorded, asked.uri, asked.array, columns, asked.key, key)
    if len(found) > 1:
        raise ConfigError(
            f"{asked.uri}: has {len(found)} numbers for each sample, but one is regressed on the rows",
            "Give an array of one dimension, or a table, and the name of a column.",
            key,
        )
    return found[0][1], asked.column or "target"


def _with_left_out(answer: Answer, rows: Samples, axis: Axis) -> Answer:
    """The answer with the scores of the samples that took no part."""
    others = projection.left_out(rows, axis)
    scores = projection.projected(rows, answer.its_maps.coefficients, None, others)
    name = f"{row_axis(axis).name}_left_out"
    arrays = {**answer.arrays, "scores_left_out": Array(scores, (name, COMPONENT))}
    coordinates = {**answer.coordinates, name: replace(others.axis, name=name)}
    return replace(answer, arrays=arrays, coordinates=coordinates)


def _number(asked: int | Literal["auto"]) -> int | UpTo:
    return UpTo(DEFAULT_COMPONENTS) if asked == AUTO else asked


_MATRICES: dict[str, int] = {"pca": 5, "extended": 7, "hilbert": 8, "dmd": 7, "optimized_dmd": 6, "spod": 4}
_MATRICES |= {"mca": 11, "cca": 11, "similarity": 7}
_MATRICES |= {"distances": 4, "pcoa": 5, "permanova": 4, "manova": 5, "ridge": 5, "heritability": 6}
"""Matrices of float64 over samples, besides K, at the peak of an analysis: A K A^H, copies and vectors of its eigensolve; measured
(tests/analyses/test_memory.py)."""


_OF_GROUPS = 4
"""And these more where a pca reads the matrices of groups of features."""


def held(
    n: int, analyses: Sequence[Analysis], solver: str = "gram_eigh", n_groups: int = 1, threads: int = 1
) -> list[runplan.Array]:
    """What the analyses of n samples hold, one after another.

    Parameters
    ----------
    solver : of the products that are kept, K or R
    n_groups : groups of features that have a matrix each
    threads : for draws of rows
    """
    of_factor = solver == "tsqr"
    largest = max(_MATRICES[one.model.kind] + of_factor * _of_factor(one.model) for one in analyses)
    largest += _OF_GROUPS * (n_groups > 1)
    columns = sum(columns_of(analysis.model) for analysis in analyses)
    draws = [resampling.held(n, columns_of(model), asked, threads) for model, asked in _drawn(analyses)]
    _, deviations = n_deviations(n, analyses)
    return [
        runplan.Array("Gram matrix", 8 * n * n),
        runplan.Array("products of rows, and their eigensolve", 8 * n * n, largest),
        runplan.Array("scores and coefficients of all analyses", 3 * 8 * n * columns),
        *([runplan.Array("draws of rows", max(draws))] if draws else []),
        *([runplan.Array("deviation columns of all analyses", 8 * n * deviations)] if deviations else []),
        *held_by_statistics(n, analyses),
    ]


def held_by_statistics(n: int, analyses: Sequence[Analysis]) -> list[runplan.Array]:
    """What answers without maps hold."""
    square = sum(isinstance(analysis.model, Distances) for analysis in analyses)
    vectors = sum(_vectors(analysis.model) for analysis in analyses if isinstance(analysis.model, Statistic))
    return [
        *([runplan.Array("distances", 8 * n * n, square)] if square else []),
        *([runplan.Array("statistics of all analyses", 8 * n * vectors)] if vectors else []),
    ]


def held_beside_maps(
    n: int, n_features: int, analyses: Sequence[Analysis], n_groups: int = 1, threads: int = 1
) -> list[runplan.Array]:
    """What a pass for maps finds taken beside the answers, and what follows it; parameters as of `held`."""
    found = []
    if n_groups > 1:  # measured: zarr's threads keep some of it for a while
        found.append(runplan.Array("what reading matrices of groups leaves", 8 * n * n, 2))
    if list(_drawn(analyses)):
        found.append(runplan.Array("what threads keep after draws", resampling.left_over(n, threads)))
    if rotation := max(_held_to_rotate(analysis, n_features) for analysis in analyses):
        found.append(runplan.Array("rotation", rotation))
    return found


def _drawn(analyses: Sequence[Analysis]) -> Iterator[tuple[Pca, resampling.Resampling]]:
    """Models whose rows are resampled, and how."""
    for one in analyses:
        if isinstance(one.model, Pca) and (asked := one.model.resampling) is not None:
            yield one.model, resampling.Resampling(**{**dict(asked), "by": None if asked.by is None else ""})


def n_deviations(n: int, analyses: Sequence[Analysis]) -> tuple[int, int]:
    """The most maps of standard errors, and columns of deviations and of rows beside maps, of n samples."""
    both = [(columns_of(model), asked) for model, asked in _drawn(analyses) if asked.standard_errors]
    correlated = sum(one.model.as_correlation for one in analyses if isinstance(one.model, Pca))
    return sum(k for k, _ in both), n * correlated + sum(resampling.n_deviations(n, k, asked) for k, asked in both)


def n_scaled(analyses: Sequence[Analysis]) -> int:
    """The most maps in the unit of the data, and as correlations."""
    models = [one.model for one in analyses if isinstance(one.model, Pca)]
    return sum(columns_of(model) * (model.as_covariance + model.as_correlation) for model in models)


def _held_to_rotate(analysis: Analysis, n_features: int) -> int:
    """Bytes that a rotation holds, after the pass for maps; 0 without one."""
    model = analysis.model
    if not isinstance(model, Pca) or model.rotation is None:
        return 0
    k = min(model.rotation.n_components or columns_of(model), MOST_ROTATED)
    chunk = 4 * min(TILE_BYTES, 8 * k * n_features)  # of maps: as read, as zarr's threads hold it, and turned twice
    return fourth_moments.held_to_solve(k) + sum(fourth_moments.held(k, PANEL).values()) + chunk


def _of_factor(model: Any) -> int:
    """Matrices more where R is kept: its singular value decomposition, of windows that of a factor for each lag."""
    match model:
        case ExtendedEof():
            return 4 * model.lags
        case HilbertEof():
            return 10
        case _:
            return 4


def _vectors(model: Statistic) -> int:
    """The most numbers for each row that a model gives, distances excepted."""
    match model:
        case Pcoa():
            return most_of(model.n_components)
        case Ridge():
            # Besides its arrays: of each alpha fitted values, errors and leverages while the best is chosen.
            count = N_ALPHAS if model.alpha == "auto" else len(model.alpha) if isinstance(model.alpha, list) else 1
            return 6 + 4 * count
        case Heritability():
            return 2
        case _:
            return 0


def columns_of(model: Pca | ExtendedEof | HilbertEof | Dmd | OptimizedDmd | Spod | OfGroups | Statistic) -> int:
    """The most real columns of coefficients that a model gives; 0 without maps."""
    match model:
        case Pca():
            return most_of(model.n_components)
        case ExtendedEof():
            return model.lags * most_of(model.n_components)
        case HilbertEof():
            return 2 * most_of(model.n_components)
        case Dmd() | OptimizedDmd():
            return 2 * most_of(model.rank)
        case Spod():
            n_frequencies = model.block // 2 + 1 if model.frequencies == "all" else len(model.frequencies)
            return 2 * n_frequencies * model.n_components
        case Mca():
            return 2 * most_of(model.n_components)
        case Cca():
            return 2 * min(most_of(model.n_components), model.n_leading)
        case _:
            return 0
