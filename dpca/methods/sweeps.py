"""Sweeps over what a pass has written: vectors are made orthonormal, and get their signs. No data are read."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dpca.execution.progress import Report
from dpca.execution.stage import Work
from dpca.methods.passes import damage_of
from dpca.slabs import Box, Plan, extent
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
    reads: tuple[str, ...] = ()
    """Names of the arrays that the pass has written."""

    def read(self, tile: Box) -> NDArray[Any]:
        """A tile of the only array that it reads."""
        (name,) = self.reads
        return self.outputs.read_part(name, tile)

    @property
    def n_parts(self) -> int:
        return self.plan.n_spans

    def part(self, span: int) -> tuple[Self, int]:
        return self, span

    def damage(self, span: int) -> str | None:
        return damage_of(self.outputs, self.writes, self.plan.tiles_of(span))


def orthogonalize_span(work: Sweep, transform: F64, span: int, report: Report) -> F64:
    """Write T W' for a span's components W'; returns the span's share of the new W'W, (n_components, n_components).

    With an inner product M there are two arrays, W' and W'M, and the share is that of W'MW.

    Parameters
    ----------
    transform : T, (k, k), of the k leading components, usually all
    """
    overlap = np.zeros_like(transform)
    for tile in work.plan.tiles_of(span):
        found = [work.outputs.read_part(name, tile)[: len(transform)] for name in work.reads]
        for start in range(0, math.prod(extent(tile)), work.plan.panel_width):
            values = []
            for components in found:
                piece = components.reshape(len(components), -1)[:, start : start + work.plan.panel_width]
                piece[...] = transform @ piece
                values.append(np.nan_to_num(piece).astype(np.float64))
            overlap += values[0] @ values[-1].T
        for name, components in zip(work.writes, found, strict=False):
            work.outputs.write_part(name, tile, components)
            report(components.nbytes)
        del found, components, piece
        release_memory()
    return overlap


def extremes_span(work: Sweep, transform: F64, span: int, report: Report) -> F64:
    """Largest entry of each rotated left singular vector, U T', of a span: negated and as it is, (2, n_components)."""
    extremes = np.zeros((2, len(transform)))
    for tile in work.plan.tiles_of(span):
        vectors = work.read(tile)
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
        vectors = work.read(tile)
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
