"""Memory of a run whose solver decomposes a matrix: Gram, covariance, or the triangle of a QR factorization."""

from __future__ import annotations

import numpy as np

from dpca.config.model import Model
from dpca.kernels import sweep as kernels
from dpca.numerics import bi_cross_validation, preprocess, preview
from dpca.numerics.accumulators import SOLVERS
from dpca.numerics.division import Division
from dpca.numerics.ladder import Rung
from dpca.planning.memory import SolverMemory, held_to_stream, reads_means
from dpca.planning.processes import Sums, Tasks
from dpca.planning.runplan import HeldArray
from dpca.store import outputs


class MatrixMemory(SolverMemory):
    """Memory of a solver that adds up an m x m matrix."""

    def stages(self) -> tuple[Tasks, Sums, list[HeldArray]]:
        """Arrays of the tasks, of the sums, and of the eigensolve."""
        plan, m, k, model = self.plan, self.m, self.k, self.model
        tasks, sums, solve = self._tasks(), Sums(), self._solve()
        sums[self.rung.name] = self._summed()
        for name in ("components", "scores"):
            if name in tasks:
                sums[name] = [HeldArray("vectors and alpha", 2 * 8 * m * k), self.overlap()]
        if "orthogonalize" in tasks:
            sums["orthogonalize"] = [self.swept()]
        if model.rotation is not None:
            turning = [self.rotating(model.rotation, tasks, sums)]
            if plan.keeps == "features":
                turning.append(HeldArray("components", 3 * 8 * k * m))
            solve = max(solve, turning, key=_bytes)
        if self.needs.n_sums > 1:
            solve.append(self._of_groups())
        if model.n_folds and plan.keeps == "samples":
            held = bi_cross_validation.held(m, SOLVERS[self.rung.solver].power, model.design is not None)
            solve += [HeldArray(name, size) for name, size in held.items()]
        if self.needs.labels is not None:
            held_labels = HeldArray("labels of features", self.needs.labels.nbytes)
            for arrays in (*sums.values(), solve):
                arrays.append(held_labels)
        return tasks, sums, solve

    def _summed(self) -> list[HeldArray]:
        """Arrays that adding up the matrices of spans takes."""
        m, matrices = self.m, 2 if self._counts_pairs else 1
        summed = [
            *(HeldArray(name, size) for name, size in SOLVERS[self.rung.solver].held_to_merge(m).items()),
            HeldArray("sums of spans, to be added", 8 * m * m * matrices * self._cells, 1 + self.waiting),
            *([HeldArray("pairs of missing values", 8 * m * m, 2)] if matrices > 1 else []),
            HeldArray("vectors of a preview", preview.held(m)),
        ]
        if self.run.spans_together > 1:
            summed.insert(0, HeldArray("sum of neighbouring spans", 8 * m * m * matrices))
        if self.needs.n_sums > 1:
            summed.insert(0, self._of_groups())
        return summed

    def _tasks(self) -> Tasks:
        plan, m, k, rung, model = self.plan, self.m, self.k, self.rung, self.model
        reader, panels = self.reader(), preprocess.held(plan, rung.dtype)
        tasks, first = self.copying(), {**reader, **panels, **self._accumulated()}
        if plan.keeps == "samples":
            n_regressors = 1 if model.regression is None else model.regression.n_regressors
            tasks[rung.name] = {
                **first,
                "means, scales and weights of a tile": 3 * 8 * (plan.tile_width + plan.slab_width),
                "tile being written": outputs.held_to_write(8 * plan.tile_width * n_regressors),
            }
            if self.needs.components:
                tasks |= held_to_stream(plan, "components", "orthogonalize", k, rung.dtype, reader, model.unit)
        else:
            counted = 2 * 8 * 4 * m  # means, squares and corrections of a panel, a span and the total
            if reads_means(plan, model, self.needs.source.layout):
                tasks["means"] = {**reader, **panels, "means of a panel and a span": counted}
            tasks[rung.name] = {**first, "means and squares of a panel and a span": counted}
            tasks |= held_to_stream(plan, "scores", "signs", k, np.dtype(np.float64), reader)
        self.in_ledger(tasks, {rung.name: 8 * m * m * self._cells})
        return tasks

    def _accumulated(self) -> dict[str, int]:
        """Arrays of a task that adds up the matrix of a span."""
        plan, m, cells = self.plan, self.m, self._cells
        held = {name: size * cells for name, size in SOLVERS[self.rung.solver].held(m, self.rung.dtype).items()}
        if plan.keeps == "samples":
            held |= self._held_apart()
        if self._counts_pairs:
            pairs = (12 * cells + 4) * m * m  # the sums, those of the span in hand, and one product
            held["pairs of missing values, and where a panel has them"] = pairs + 6 * m * plan.panel_width
        if self.run.spans_together > 1 and self.needs.workers.processes:
            # Where a task of a worker adds spans up, one of them is in the place of the span in hand.
            held["sum of neighbouring spans"] = 8 * m * m * (2 if self._counts_pairs else 1)
        return held

    def _solve(self) -> list[HeldArray]:
        """Memory of the eigensolve, or of the writing of the Gram matrix where that takes more."""
        m = self.m
        solve = held_to_solve(self.model, self.rung, m, self.k)
        pairs = [HeldArray("pairs of missing values", 8 * m * m, self.needs.n_sums)] if self._counts_pairs else []
        solve += pairs
        if not (self.needs.keep_gram and self.plan.keeps == "samples"):
            return solve
        written = [HeldArray("matrix", 8 * m * m), HeldArray("being written", outputs.held_to_write(8 * m * m)), *pairs]
        if pairs:
            written.append(HeldArray("features that two samples have", 8 * m * m, 2))
        return max(solve, written, key=_bytes)

    @property
    def _counts_pairs(self) -> bool:
        """Whether features are counted that two samples have in common."""
        return self.model.rules.missing == "pairwise"

    def _of_groups(self) -> HeldArray:
        return HeldArray("sums of groups of features, one for each", 8 * self.m * self.m, self.needs.n_sums)

    @property
    def _division(self) -> Division:
        return Division.of(self.plan, 0, self.needs.labels, self.model.n_folds)

    @property
    def _cells(self) -> int:
        """The most sums that a task adds up."""
        return self._division.most_cells(self.plan) if self.plan.keeps == "samples" else 1

    def _held_apart(self) -> dict[str, int]:
        """Memory to have the features of a group beside each other."""
        if not self._division.scattered:
            return {}
        plan, labels = self.plan, self.needs.labels
        values = plan.n_kept * plan.slab_width * self.needs.source.layout.dtype.itemsize
        numbers = 4 * 8 * plan.slab_width + (0 if labels is None else labels.nbytes)
        return {"features of a slab, by group": 2 * values, "their groups": numbers}


def held_to_solve(model: Model, rung: Rung, m: int, k: int) -> list[HeldArray]:
    """Memory of the eigensolve; for kernels, including the Gram matrix that they are computed from."""
    held = SOLVERS[rung.solver].held_to_finish(m, k)
    if model.kernels:
        held["kernel matrix"] = 8 * m * m
        held |= kernels.held(m, k, model.kernels)
    return [HeldArray(name, size) for name, size in held.items()]


def _bytes(arrays: list[HeldArray]) -> int:
    return sum(array.bytes for array in arrays)
