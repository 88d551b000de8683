"""Rotation of the components of a PCA: one sweep over them adds up moments, one writes them rotated. No data are read.

Promax needs a sweep between the two, for its target. The moments are of the components as they are stored, after any repair
by the second pass. Where features are kept, components are in memory, and the sweeps that write go over scores.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpca.errors import AssumptionError
from dpca.execution.progress import Report
from dpca.execution.stage import InTurn, Stage
from dpca.methods.dataset import Dataset
from dpca.methods.renamed import Renamed
from dpca.methods.solve import Solved
from dpca.methods.stages import Stages
from dpca.methods.sweeps import Sweep, orthogonalize_span
from dpca.numerics.fourth_moments import FourthMoments, Loadings, added, n_sums
from dpca.numerics.rotation import OBLIQUE, Rotating, RotationResult, add_targets, mixed, promax
from dpca.numerics.spectrum import Spectrum
from dpca.numerics.turns import Turn
from dpca.settings import MODEL
from dpca.store.arrays import Dims, of_group
from dpca.store.outputs import COMPONENT, ROTATED_COMPONENT, Outputs, pending_name
from dpca.system.blas import blas_threads
from dpca.types import F64

DOUBLE = np.dtype(np.float64)


def moments_span(work: Sweep, loadings: Loadings, span: int, report: Report) -> F64:
    """The fourth moments of the loadings of a span's components, (n_sums(k),)."""
    sums = np.zeros(n_sums(len(loadings.scales)))
    for piece in _loadings_of(work, loadings, span, report):
        added(sums, piece)
    return sums


def targets_span(work: Sweep, loadings: Loadings, turn: F64, power: float, span: int, report: Report) -> F64:
    """The share of a span in what the target of promax needs, (k, k)."""
    sums = np.zeros_like(turn)
    for piece in _loadings_of(work, loadings, span, report):
        add_targets(sums, piece, turn, power)
    return sums


def _loadings_of(work: Sweep, loadings: Loadings, span: int, report: Report) -> Any:
    for tile in work.plan.tiles_of(span):
        components = work.read(tile)
        yield from pieces_of(components, loadings, work.plan.panel_width)
        report(components.nbytes)


def pieces_of(components: NDArray[Any], loadings: Loadings, width: int) -> Any:
    """The loadings of the leading components, (k, at most `width`) at a time."""
    rows = components[: len(loadings.scales)].reshape(len(loadings.scales), -1)
    for start in range(0, rows.shape[1], width):
        yield loadings.of_maps(rows[:, start : start + width])


def extremes_of_scores_span(work: Sweep, turn: F64, span: int, report: Report) -> F64:
    """Largest entry of each column of the rotated scores of a span: negated and as it is, (2, k)."""
    extremes = np.full((2, len(turn)), -np.inf)
    for tile in work.plan.tiles_of(span):
        scores = work.read(tile)
        rotated = scores[:, : len(turn)] @ turn
        extremes = np.maximum(extremes, [-rotated.min(axis=0), rotated.max(axis=0)])
        report(scores.nbytes)
    return extremes


def scores_rotated_span(work: Sweep, turn: F64, span: int, report: Report) -> int:
    """Write the rotated scores of a span."""
    for tile in work.plan.tiles_of(span):
        scores = work.read(tile)
        work.outputs.write_part(work.writes[0], tile, scores[:, : len(turn)] @ turn)
        report(scores.nbytes)
    return 0


@dataclass(frozen=True)
class Rotator:
    """The rotation of a decomposition whose arrays are written."""

    stages: Stages
    data: Dataset
    asked: Rotating
    outputs: Outputs
    dims: tuple[Dims, ...]
    """Names of the axes, of each group."""
    whiten: bool
    """Whether scores are whitened, as the rotated ones then are."""

    def rotate(self, solved: Solved, certificate: dict[str, Any]) -> dict[str, Any]:
        """Write the rotated arrays.

        Parameters
        ----------
        certificate : of the components

        Returns
        -------
        What the certificate says of the rotation; where all components are zero, and nothing is written, the first three alone:
            kind : as asked for
            n_components : how many leading components were rotated: at most those that are not zero
            asked : how many were asked for; null for all
            normalize, power, algorithm : as asked for; null where they do not apply
            iterations, last_change, converged : of the iteration, in which no entry of its matrix changed by more than last_change
            overlap_error : largest difference between the products of rotated components and what the rotation gives for
                components that are orthonormal; null where features are kept
            factor_correlation : largest correlation of two rotated scores, by the rotation
            not_reliable : the rotated components that are not reliable
        """
        spectrum = solved.spectrum
        n_nonzero = int((spectrum.singular_values > 0).sum())
        k = min(self.asked.n_components or n_nonzero, n_nonzero)
        told = {"kind": self.asked.kind, "n_components": k, "asked": self.asked.n_components}
        if not k:
            return told
        variances = spectrum.explained_variance[:k]
        found = self._found(solved, variances)
        rotation = RotationResult(variances, found.matrix)
        overlap_error = None
        if self.data.keeps_samples:
            with blas_threads(1):
                rotated = spectrum.scores(self.whiten)[:, :k] @ rotation.to_scores(self.whiten)
            signs = rotation.signs(rotated.min(axis=0), rotated.max(axis=0))
            rotation, rotated = rotation.signed(signs), rotated * signs
            self.outputs.write("rotated_scores", rotated, (self._sample, ROTATED_COMPONENT), {"whitened": self.whiten})
            overlap = self._components_written(solved, rotation.to_components)
            overlap_error = float(np.abs(overlap - rotation.to_components @ rotation.to_components.T).max())
        else:
            rotation = self._scores_rotated(solved, rotation)
            array = self.outputs.array("components")
            components = np.asarray(array[:k])
            shape = components.shape
            turned = rotation.to_components @ components.reshape(k, -1).astype(np.float64)
            dims = (ROTATED_COMPONENT, *self.dims[0].features)
            self.outputs.write("rotated_components", turned.astype(array.dtype).reshape(shape), dims)
        self._write(rotation, spectrum)
        asked, correlation = self.asked, rotation.factor_correlation
        return told | {
            "normalize": asked.normalize if asked.of_loadings else None,
            "power": asked.power if asked.kind == "promax" else None,
            "algorithm": asked.algorithm if asked.kind == "fastica" else None,
            "iterations": found.iterations,
            "last_change": float(found.change),
            "converged": found.converged,
            "overlap_error": overlap_error,
            "factor_correlation": float(np.abs(correlation - np.diag(np.diagonal(correlation))).max()),
            "not_reliable": mixed(certificate, k),
        }

    def _write(self, rotation: RotationResult, spectrum: Spectrum) -> None:
        """Write what has no axis of features or samples."""
        variance, share = rotation.explained_variance, spectrum.divisor / spectrum.total
        matrix = np.zeros((spectrum.n_components, len(variance)))  # 0 for components that are not rotated
        matrix[: len(variance)] = rotation.matrix
        with self.outputs.together():
            self.outputs.write("rotated_explained_variance", variance, (ROTATED_COMPONENT,))
            self.outputs.write("rotated_explained_variance_ratio", variance * share, (ROTATED_COMPONENT,))
            self.outputs.write("rotation_matrix", matrix, (COMPONENT, ROTATED_COMPONENT))
            if self.asked.kind in OBLIQUE:
                both = (ROTATED_COMPONENT, f"{ROTATED_COMPONENT}_b")
                self.outputs.write("factor_correlation", rotation.factor_correlation, both)

    # From components to a rotation.

    def _found(self, solved: Solved, variances: F64) -> Turn:
        """The rotation matrix, with explained variances descending, and how it was found."""
        k, stored = len(variances), solved.attempt.rung.dtype
        loadings = self.asked.loadings(variances, self.data.n_features)

        def sums(name: str, task: Callable[..., F64], shape: tuple[int, ...], *shared: Any) -> F64:
            if not self.data.keeps_samples:
                return self._in_memory(task, shape, loadings, *shared)
            self.stages.progress.expect(1)
            return self.stages.run(
                Stage(
                    name=name,
                    task=task,
                    work=InTurn.of(self._sweeps()),
                    shared=(loadings, *shared),
                    empty=np.zeros(shape),
                    merge=operator.iadd,
                    concurrency=solved.attempt.concurrency,
                    n_bytes=solved.spectrum.n_components * self.data.n_features * stored.itemsize,
                )
            )

        moments = sums("fourth moments", moments_span, (n_sums(k),))
        oblique = self.asked.kind == "promax"
        first = self._once("rotation", lambda: self._turned(FourthMoments.of(moments, k), variances, oblique))
        if not oblique:
            return first
        targets = sums("promax target", targets_span, (k, k), first.matrix, self.asked.power)

        def turned() -> Turn:
            matrix = promax(FourthMoments.of(moments, k), first.matrix, targets)
            return replace(first, matrix=RotationResult(variances, matrix).ordered.matrix)

        return self._once("rotation to promax", turned)

    def _once(self, name: str, compute: Callable[[], Turn]) -> Turn:
        """A small computation, with one BLAS thread, so that its bits do not depend on their number; or its result from the ledger."""

        def single() -> Turn:
            with self.stages.timed("rotation"), blas_threads(1):
                return compute()

        ledger = self.stages.ledger
        return single() if ledger is None else ledger.once(name, single, Turn(np.zeros((0, 0))))

    def _turned(self, moments: FourthMoments, variances: F64, unordered: bool) -> Turn:
        found = self.asked.turn(moments, variances)
        if found is None:
            raise AssumptionError(
                f"{self.data.name}: {MODEL.rotation.kind} is {self.asked.kind}, but a combination of the {len(variances)} leading "
                "components has the same value in all features: independent components are not defined",
                "Rotate fewer components (n_components of the rotation), or use varimax.",
                key="model.rotation.kind",
            )
        rotation, turn = found
        return replace(turn, matrix=rotation.matrix if unordered else rotation.ordered.matrix)

    def _in_memory(self, task: Callable[..., F64], shape: tuple[int, ...], loadings: Loadings, *shared: Any) -> F64:
        """These sums over components in memory."""
        sums = np.zeros(shape)
        with blas_threads(1):
            for piece in pieces_of(np.asarray(self.outputs.array("components")[...]), loadings, 4096):
                if task is moments_span:
                    added(sums, piece)
                else:
                    add_targets(sums, piece, *shared)
        return sums

    # From a rotation to rotated arrays.

    def _components_written(self, solved: Solved, turn: F64) -> F64:
        """Write the rotated components; returns their products, (k, k)."""
        stage, final = "rotated components", "rotated_components"
        pending, stored = pending_name(final, stage), solved.attempt.rung.dtype
        renamed = self._renamed(stage, final, self.data.n_spans)
        writes = () if renamed.are_there(self._of_groups(pending)) else (pending,)
        for plan, dims in zip(self.data.plans, self.dims, strict=True):
            if writes:
                name, features = of_group(pending, dims.group), dims.features
                self.outputs.create_tiled(name, plan, features, stored, len(turn), component_dim=ROTATED_COMPONENT)
        self.stages.progress.expect(1)
        overlap = self.stages.run(
            Stage(
                name=stage,
                task=orthogonalize_span,
                work=InTurn.of(self._sweeps(*writes)),
                shared=(turn,),
                empty=np.zeros_like(turn),
                merge=operator.iadd,
                concurrency=solved.attempt.concurrency,
                n_bytes=solved.spectrum.n_components * self.data.n_features * stored.itemsize,
            )
        )
        if writes:
            renamed.rename(self._of_groups(pending))
        return overlap

    def _scores_rotated(self, solved: Solved, rotation: RotationResult) -> RotationResult:
        """Write the rotated scores of samples that stream by; returns the rotation with its signs."""
        stage, final, k = "rotated scores", "rotated_scores", len(rotation.variances)
        pending, plan = pending_name(final, stage), self.data.plan
        concurrency, n_bytes = solved.attempt.concurrency, 8 * solved.spectrum.n_components * plan.n_samples
        self.stages.progress.expect(2)
        extremes: F64 = self.stages.run(
            Stage(
                name="signs of rotated scores",
                task=extremes_of_scores_span,
                work=Sweep(plan, self.outputs, reads=("scores",)),
                shared=(rotation.to_scores(self.whiten),),
                empty=np.full((2, k), -np.inf),
                merge=np.maximum,
                concurrency=concurrency,
                n_bytes=n_bytes,
            )
        )
        rotation = rotation.signed(rotation.signs(-extremes[0], extremes[1]))
        renamed = self._renamed(stage, final, plan.n_spans)
        writes = () if renamed.are_there(self._of_groups(pending)) else (pending,)
        for name in writes:
            self.outputs.create_tiled(
                name,
                plan,
                (self._sample,),
                DOUBLE,
                k,
                component_axis=1,
                attributes={"whitened": self.whiten},
                component_dim=ROTATED_COMPONENT,
            )
        self.stages.run(
            Stage(
                name=stage,
                task=scores_rotated_span,
                work=Sweep(plan, self.outputs, writes, ("scores",)),
                shared=(rotation.to_scores(self.whiten),),
                empty=0,
                merge=operator.add,
                concurrency=concurrency,
                n_bytes=n_bytes,
            )
        )
        if writes:
            renamed.rename(self._of_groups(pending))
        return rotation

    def _sweeps(self, *writes: str) -> Sequence[Sweep]:
        """Sweeps over the components of each group."""
        return [
            Sweep(
                plan,
                self.outputs,
                tuple(of_group(name, group) for name in writes),
                (of_group("components", group),),
            )
            for plan, group in zip(self.data.plans, self.data.names, strict=True)
        ]

    def _renamed(self, stage: str, final: str, n_parts: int) -> Renamed:
        """The rotated arrays that a sweep writes."""
        return Renamed(
            self.outputs, self.stages.ledger, self.stages.progress.say, (stage,), n_parts, self._of_groups(final)
        )

    def _of_groups(self, name: str) -> tuple[str, ...]:
        return tuple(of_group(name, group) for group in self.data.names)

    @property
    def _sample(self) -> str:
        return self.dims[0].sample
