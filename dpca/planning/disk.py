"""The disk that a result takes: its arrays, and whether there is room for them before anything is computed."""

from __future__ import annotations

import math
import os
from typing import Any

import numpy as np

from dpca.config.model import Model
from dpca.errors import OverBudgetError
from dpca.numerics.accumulators import krylov
from dpca.numerics.ladder import BLOCK_KRYLOV
from dpca.planning.job import Job
from dpca.planning.runplan import RunPlan
from dpca.settings import OUTPUT, Setting
from dpca.sources.groups import names_of_sums
from dpca.store.arrays import GROUP_SCALE, REGRESSION, REGRESSORS, names_of_components, of_group
from dpca.store.gram import shapes
from dpca.store.outputs import COMPONENT, ROTATED_COMPONENT
from dpca.system.machine import disk_of, free_disk
from dpca.units import describe_bytes


def check_room_for_result(job: Job, path: str | os.PathLike[str], key: str = "output.path") -> None:
    """Refuse a run whose result has no room on its disk, with the copy of its input, if there is one and it lies on the same disk.

    Where the spectrum decides how many components there are, room for one is enough to begin.

    Parameters
    ----------
    key : what names the path: output.path of a configuration, store in Python
    """
    asked = job.model.n_components
    arrays = arrays_of(job, None if asked is None or isinstance(asked, int) else 1)
    needed = sum(array["bytes"] for array in arrays)
    if job.run_plan.copies and disk_of(path) == disk_of(job.scratch.path):
        needed += job.run_plan.scratch_bytes
    check_room(
        needed,
        path,
        "ask for fewer components" + f", or for none ({OUTPUT.components.at(False)})" * (key == "output.path"),
        key,
    )


def check_room(needed: int, path: str | os.PathLike[str], other: str, key: str = "output.path") -> None:
    """Refuse to write more than the disk of a path has free.

    Parameters
    ----------
    needed : bytes, before compression
    other : what takes less, beside another path
    """
    free = free_disk(path)
    if needed > free:
        raise OverBudgetError(
            f"{os.fspath(path)}: takes up to {describe_bytes(needed)}, but its disk has {describe_bytes(free)} free",
            f"Choose another {Setting(key)}, or {other}.",
            key=key,
        )


def n_eigenvalues_of(run: RunPlan, model: Model) -> int:
    """The number of eigenvalues that are kept."""
    n, d = run.plan.n_samples, run.n_features
    if run.attempts[0].rung.solver == BLOCK_KRYLOV:
        return model.iteration.columns(model.most_components(n, d), min(n, d))
    leading = model.leading(run.plan.n_kept, d if run.plan.keeps == "samples" else n)
    return min(n, d) if leading is None else leading + krylov.FURTHER


def arrays_of(job: Job, n_components: int | None = None) -> list[dict[str, Any]]:
    """The arrays of the result, with the files of their chunks; coordinates of the inputs are not included.

    Parameters
    ----------
    n_components : None for the largest possible number, where the spectrum decides
    """
    run, groups, model = job.run_plan, job.groups, job.model
    plan, several = run.plan, len(groups)
    n, d, dtype = plan.n_samples, run.n_features, run.attempts[0].rung.dtype
    k = model.most_components(n, d) if n_components is None else n_components
    n_eigenvalues = n_eigenvalues_of(run, model)
    keep_gram = job.keep_gram and job.solver != BLOCK_KRYLOV
    samples = plan.keeps == "samples"
    # A chunk is one tile along the streamed side; along the kept side it is the whole array.
    scores = 1 if samples else plan.n_tiles
    cases = [model.kernels.n_cases] if model.kernels and model.kernels.sweep else []
    arrays = [
        ("scores", [*cases, n, k], "float64", scores),
        ("alpha", [*cases, n, k], "float64", scores),
        ("eigenvalues", [*cases, n if model.kernels else n_eigenvalues], "float64", 1),
    ]
    if model.kernels:
        arrays.append(("kernel_mean", [*cases, n], "float64", 1))
    if not samples:
        arrays.append(("left_vectors, until scores are written", [k, n], "float64", plan.n_tiles))
    arrays += [(name, [*cases, k], "float64", 1) for name in ("singular_values", "explained_variance")]
    arrays += [(name, [*cases, k], "float64", 1) for name in ("explained_variance_ratio", "projection_error")]
    arrays.append((COMPONENT, [k], "int64", 1))
    if keep_gram and samples and run.reads:
        n_groups = len(names_of_sums(groups))
        kept = shapes(
            n,
            run.attempts[0].rung.solver,
            model.rules.centered,
            n_groups,
            model.n_folds,
            model.rules.missing == "pairwise",
        )
        arrays += [(name, shape, "float64", max(1, -(-8 * math.prod(shape) // 2**26))) for name, shape in kept.items()]
    if model.rotation is not None:
        arrays.append((ROTATED_COMPONENT, [model.rotation.n_components or k], "int64", 1))
    if not run.reads:
        return _listed(arrays)
    if (n_groups := len(names_of_sums(groups))) > 1:
        arrays.append(("variance_share", [n_groups, k], "float64", 1))
    if several > 1:
        arrays.append(("block_factor", [several], "float64", 1))
    if model.design is not None:
        arrays.append((REGRESSORS, list(model.design.matrix.shape), "float64", 1))
    # Chunks that hold only zeros in the mean, or only ones in the others, are not written.
    found = model.rules.finds(any(group.weights is not None for group in groups))
    for group, own in zip(groups, run.plans, strict=True):
        features, tiles = list(own.feature_shape), own.n_tiles if samples else 1
        arrays += [
            (of_group(name, group.name), features, "float64", tiles * (name in found or not samples))
            for name in ("mean", "scale", "weights")
        ]
        if model.design is not None:
            rows = {REGRESSION: len(model.design.names)}
            rows |= {GROUP_SCALE: len(model.design.groups)} if model.rules.by_group else {}
            for name, p in rows.items():
                parts = -(-8 * p * own.tile_width // 2**26)
                arrays.append((of_group(name, group.name), [p, *features], "float64", tiles * parts))
        if job.components:
            parts = -(-k * (own.tile_width if samples else d) * dtype.itemsize // 2**26)
            arrays += [
                (of_group(name, group.name), [k, *features], dtype.name, tiles * parts)
                for name in names_of_components(model.unit > 0)
            ]
            if model.rotation is not None:
                rotated = [model.rotation.n_components or k, *features]
                arrays.append((of_group("rotated_components", group.name), rotated, dtype.name, tiles * parts))
    return _listed(arrays)


def _listed(arrays: list[tuple[str, list[int], str, int]]) -> list[dict[str, Any]]:
    """The arrays with their bytes, 0 where no chunk is written."""
    return [
        {
            "name": name,
            "shape": shape,
            "dtype": kind,
            "bytes": math.prod(shape) * np.dtype(kind).itemsize if files else 0,
            "files": files,
        }
        for name, shape, kind, files in arrays
    ]
