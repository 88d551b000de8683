"""Memory of analyses, and how many columns their maps have: all are said before anything is computed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dpca.analyses import resampling
from dpca.analyses.config import AnalysisSection
from dpca.analyses.kinds.pca import Pca
from dpca.analyses.rotation import PANEL
from dpca.config.model import MOST_ROTATED
from dpca.numerics import fourth_moments
from dpca.planning import runplan
from dpca.slabs import TILE_BYTES

_OF_GROUPS = 4
"""Matrices more where a pca reads those of groups of features."""


def held(
    n: int, analyses: Sequence[AnalysisSection], solver: str = "gram_eigh", n_groups: int = 1, threads: int = 1
) -> list[runplan.HeldArray]:
    """Arrays that the analyses of n samples hold, one after another.

    Parameters
    ----------
    solver : of the products that are kept, K or R
    n_groups : groups of features that have a matrix each
    threads : for draws of rows
    """
    of_factor = solver == "tsqr"
    largest = max(one.model.matrices + of_factor * one.model.of_factor for one in analyses)
    largest += _OF_GROUPS * (n_groups > 1)
    columns = sum(analysis.model.columns(n) for analysis in analyses)
    draws = [resampling.held(n, model.columns(n), asked, threads) for model, asked in _drawn(analyses)]
    _, deviations = n_deviations(n, analyses)
    return [
        runplan.HeldArray("Gram matrix", 8 * n * n),
        runplan.HeldArray("products of rows, and their eigensolve", 8 * n * n, largest),
        runplan.HeldArray("scores and coefficients of all analyses", 3 * 8 * n * columns),
        *([runplan.HeldArray("draws of rows", max(draws))] if draws else []),
        *([runplan.HeldArray("deviation columns of all analyses", 8 * n * deviations)] if deviations else []),
        *held_by_statistics(n, analyses),
    ]


def held_by_statistics(n: int, analyses: Sequence[AnalysisSection]) -> list[runplan.HeldArray]:
    """Arrays that answers without maps hold."""
    square = sum(analysis.model.squares for analysis in analyses)
    vectors = sum(analysis.model.vectors(n) for analysis in analyses)
    return [
        *([runplan.HeldArray("distances", 8 * n * n, square)] if square else []),
        *([runplan.HeldArray("statistics of all analyses", 8 * n * vectors)] if vectors else []),
    ]


def held_beside_maps(
    n: int, n_features: int, analyses: Sequence[AnalysisSection], n_groups: int = 1, threads: int = 1
) -> list[runplan.HeldArray]:
    """Arrays that a pass for maps finds beside the answers, and that follow it; parameters as of `held`."""
    found = []
    if n_groups > 1:  # measured: zarr's threads keep some of it for a while
        found.append(runplan.HeldArray("what reading matrices of groups leaves", 8 * n * n, 2))
    if list(_drawn(analyses)):
        found.append(runplan.HeldArray("what threads keep after draws", resampling.left_over(n, threads)))
    if rotation := max(_held_to_rotate(analysis, n, n_features) for analysis in analyses):
        found.append(runplan.HeldArray("rotation", rotation))
    return found


def _drawn(analyses: Sequence[AnalysisSection]) -> Iterator[tuple[Pca, resampling.Resampling]]:
    """Models whose rows are resampled, and how."""
    for one in analyses:
        if isinstance(one.model, Pca) and (asked := one.model.resampling) is not None:
            yield one.model, asked


def n_deviations(n: int, analyses: Sequence[AnalysisSection]) -> tuple[int, int]:
    """The most maps of standard errors, and columns of deviations and of rows beside maps, of n samples."""
    both = [(model.columns(n), asked) for model, asked in _drawn(analyses) if asked.standard_errors]
    correlated = sum(one.model.as_correlation for one in analyses if isinstance(one.model, Pca))
    return sum(k for k, _ in both), n * correlated + sum(resampling.n_deviations(n, k, asked) for k, asked in both)


def n_scaled(n: int, analyses: Sequence[AnalysisSection]) -> int:
    """The most maps in the unit of the data, and as correlations."""
    models = [one.model for one in analyses if isinstance(one.model, Pca)]
    return sum(model.columns(n) * (model.as_covariance + model.as_correlation) for model in models)


def _held_to_rotate(analysis: AnalysisSection, n: int, n_features: int) -> int:
    """Bytes that a rotation holds, after the pass for maps; 0 without one."""
    model = analysis.model
    if not isinstance(model, Pca) or model.rotation is None:
        return 0
    k = min(model.rotation.n_components or model.columns(n), MOST_ROTATED)
    chunk = 4 * min(TILE_BYTES, 8 * k * n_features)  # of maps: as read, as zarr's threads hold it, and turned twice
    return fourth_moments.held_to_solve(k) + sum(fourth_moments.held(k, PANEL).values()) + chunk
