"""Sweeps over what a pass has written: vectors are made orthonormal, and get their signs. No data are read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from dpca.execution.progress import Report
from dpca.execution.stage import Work
from dpca.methods.passes import damage_of
from dpca.slabs import Plan
from dpca.store.outputs import Outputs
from dpca.system.machine import release_memory
from dpca.types import F64


@dataclass(frozen=True)
class Sweep(Work):
    """Settings that all spans of a sweep share: it goes over an array that a pass has written, and reads no data.

    It reads one array and writes others, so that it can be repeated.
    """

    plan: Plan
    outputs: Outputs
    writes: tuple[str, ...] = ()
    """Names of the arrays that spans write, each span its own tiles."""
    reads: str = ""
    """Name of the array that the pass has written."""

    @property
    def n_parts(self) -> int:
        return self.plan.n_spans

    def part(self, span: int) -> tuple[Self, int]:
        return self, span

    def damage(self, span: int) -> str | None:
        return damage_of(self.outputs, self.writes, self.plan.tiles_of(span))


def orthogonalize_span(work: Sweep, transform: F64, span: int, report: Report) -> F64:
    """Write T W' for a span's components W'; returns the span's share of the new W'W, (n_components, n_components).

    Parameters
    ----------
    transform : T, (k, k), of the k leading components, usually all
    """
    overlap = np.zeros_like(transform)
    for tile in work.plan.tiles_of(span):
        components = work.outputs.read_part(work.reads, tile)[: len(transform)]
        rows = components.reshape(len(components), -1)
        for start in range(0, rows.shape[1], work.plan.panel_width):
            piece = rows[:, start : start + work.plan.panel_width]
            piece[...] = transform @ piece
            values = np.nan_to_num(piece).astype(np.float64)
            overlap += values @ values.T
        work.outputs.write_part(work.writes[0], tile, components)
        report(components.nbytes)
        del components, rows
        release_memory()
    return overlap


def extremes_span(work: Sweep, transform: F64, span: int, report: Report) -> F64:
    """Largest entry of each rotated left singular vector, U T', of a span: negated and as it is, (2, n_components)."""
    extremes = np.zeros((2, len(transform)))
    for tile in work.plan.tiles_of(span):
        vectors = work.outputs.read_part(work.reads, tile)
        rotated = transform @ vectors
        extremes = np.maximum(extremes, [-rotated.min(axis=1), rotated.max(axis=1)])
        report(vectors.nbytes)
    return extremes


def scores_span(work: Sweep, to_scores: F64, to_alpha: F64, span: int, report: Report) -> F64:
    """Write scores and alpha of a span from its left singular vectors U.

    Parameters
    ----------
    to_scores, to_alpha : (n_components, n_components); U times each is written

    Returns
    -------
    The share of the span in scores' scores, (n_components, n_components)
    """
    overlap = np.zeros_like(to_scores)
    for tile in work.plan.tiles_of(span):
        vectors = work.outputs.read_part(work.reads, tile)
        n_bytes = vectors.nbytes
        alpha = vectors.T @ to_alpha
        work.outputs.write_part(work.writes[1], tile, alpha)
        np.matmul(vectors.T, to_scores, out=alpha)
        del vectors
        overlap += alpha.T @ alpha
        work.outputs.write_part(work.writes[0], tile, alpha)
        del alpha
        release_memory()  # otherwise each thread of zarr keeps the memory of its last chunk
        report(n_bytes)
    return overlap
