"""Memory of a run of block Krylov: of each pass there are two m x l arrays, and none of m x m."""

from __future__ import annotations

import numpy as np

from dpca.numerics import preprocess
from dpca.numerics.accumulators import block_product
from dpca.planning.memory import SolverMemory, held_to_stream, reads_means, second_pass
from dpca.planning.processes import Sums, Tasks
from dpca.planning.runplan import HeldArray
from dpca.store import outputs


class KrylovMemory(SolverMemory):
    """Memory of block Krylov."""

    def stages(self) -> tuple[Tasks, Sums, list[HeldArray]]:
        """Arrays of the tasks, of the sums, and of the eigensolve."""
        block_bytes = 8 * self.m * self._columns
        space = HeldArray("space, and its products", 2 * block_bytes, self.model.iteration.max_passes)
        block = HeldArray("block of vectors", 2 * block_bytes)
        summed = [
            space,
            block,
            HeldArray("product, and its preview", 5 * block_bytes),
            HeldArray("products of spans, to be added", block_bytes * self.needs.n_inputs, 1 + self.waiting),
        ]
        tasks, sums = self._tasks(), {self._first: summed, self._later: summed}
        if (second := second_pass(self.plan, self.needs.components)) is not None:
            vectors = HeldArray("vectors and alpha", 3 * 8 * self.m * self.k)
            sums[second] = [space, vectors, self.overlap()]
            sums[self._sweep] = [space, self.swept()]
        solve = [space, block, HeldArray("Ritz vectors, their products, and LAPACK's copies", 8 * block_bytes)]
        if self.model.rotation is not None:
            solve.append(self.rotating(self.model.rotation, tasks, sums))
        return tasks, sums, solve

    def _tasks(self) -> Tasks:
        plan, m, dtype, columns = self.plan, self.m, self.rung.dtype, self._columns
        reader, panels, tasks = self.reader(), preprocess.held(plan, dtype), self.copying()
        layout, samples = self.needs.source.layout, plan.keeps == "samples"
        found = {"means and squares of a panel and a span": 2 * 8 * 4 * m}
        if samples:
            found = {
                "means, scales and weights of a tile": 3 * 8 * (plan.tile_width + plan.slab_width),
                "tile being written": outputs.held_to_write(8 * plan.tile_width),
            }
        elif reads_means(plan, self.model, layout):
            tasks["means"] = {**reader, **panels, **found}
        products = block_product.held(m, columns, max(plan.slab_width, plan.panel_width), dtype)
        multiplied = {**reader, **panels, **products, **found}
        tasks[self._first] = {**multiplied, "panel multiplied": 2 * 8 * m * columns}
        tasks[self._later] = dict(multiplied)
        if 0 < plan.samples_axis < len(plan.shape) - 1:
            values = m * plan.slab_width * layout.dtype.itemsize
            tasks[self._later]["slab, with its sides as two axes"] = values
        if (second := second_pass(plan, self.needs.components)) is not None:
            working = dtype if samples else np.dtype(np.float64)
            tasks |= held_to_stream(plan, second, self._sweep, self.k, working, reader, self.model.unit)
        self.in_ledger(tasks, dict.fromkeys((self._first, self._later), 8 * m * columns))
        return tasks

    @property
    def _first(self) -> str:
        return self.rung.name

    @property
    def _later(self) -> str:
        return f"{self.rung.name} passes"

    @property
    def _sweep(self) -> str:
        return "orthogonalize" if self.plan.keeps == "samples" else "signs"

    @property
    def _vectors(self) -> int:
        return max(self.k, self._columns)

    @property
    def _columns(self) -> int:
        """l, the number of columns of the block."""
        return self.model.iteration.columns(self.k, self.m)
