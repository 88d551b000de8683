"""Data with a known answer, and the check of a result against it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import zarr
from numpy.typing import NDArray

from dpca.types import F64

RANK = 12
COMPONENTS = 10
OFFSET = 280.0
BLOCK = 8192
SEED = 20


@dataclass(frozen=True)
class Truth:
    """The factors of the data: X = 1 m' + U diag(sigma) W."""

    singular_values: F64
    """(RANK,), descending."""
    vectors: F64
    """U, (n_samples, RANK), orthonormal and orthogonal to 1."""
    components: NDArray[np.float32]
    """W, (RANK, n_features), orthonormal rows."""


def make(directory: Path, n_samples: int, n_features: int) -> Truth:
    """Write `data.zarr`, float32 (n_samples, n_features), of exact rank and known spectrum.

    The data differ from the truth only by the rounding of float32 at an offset of 280 (about 9e-6 per
    value).
    """
    rng = np.random.default_rng(SEED)
    sigma = np.sqrt(n_samples * n_features) * 0.8 ** np.arange(RANK)
    drawn = rng.standard_normal((n_samples, RANK))
    vectors = np.linalg.qr(drawn - drawn.mean(axis=0))[0]
    # Rows become orthonormal by the inverse Cholesky factor of their own Gram matrix.
    components = rng.standard_normal((RANK, n_features), np.float32)
    factor = np.linalg.cholesky(components.astype(np.float64) @ components.T.astype(np.float64))
    components = np.linalg.solve(factor, components).astype(np.float32)
    array = zarr.create_array(
        directory / "data.zarr",
        shape=(n_samples, n_features),
        chunks=(n_samples, BLOCK),
        dtype="float32",
        overwrite=True,
        dimension_names=("sample", "cell"),
    )
    weighted = (vectors * sigma).astype(np.float32)
    for start in range(0, n_features, BLOCK):
        block = components[:, start : start + BLOCK]
        array[:, start : start + BLOCK] = weighted @ block + np.float32(OFFSET)
    return Truth(sigma, vectors, components)


def write_config(directory: Path) -> Path:
    """The config of the demo: what a user would write."""
    path = directory / "demo.yaml"
    path.write_text(
        f"input:\n  uri: {directory / 'data.zarr'}\n"
        f"model:\n  n_components: {COMPONENTS}\n"
        f"output:\n  path: {directory / 'result'}\n",
        encoding="utf-8",
    )
    return path


def check(directory: Path, truth: Truth) -> tuple[list[str], bool]:
    """Compare a result with the truth.

    Returns
    -------
    lines, right : the measured errors with their limits, and whether all are within them

    Notes
    -----
    The rounding of the data is a perturbation E with |E| of about 9e-6 (sqrt(n) + sqrt(d)): singular values
    move by at most |E| (Weyl), subspaces by about |E| / gap (Wedin), so the limits follow from sigma.
    """
    result = zarr.open_group(directory / "result" / "result.zarr", mode="r")
    values = np.asarray(result["singular_values"])
    n, d = truth.vectors.shape[0], truth.components.shape[1]
    noise = np.finfo(np.float32).eps * OFFSET / np.sqrt(12) * (np.sqrt(n) + np.sqrt(d))
    sigma = truth.singular_values
    gap = float(-np.diff(sigma[: COMPONENTS + 1]).max())  # the smallest step between neighbours
    products = np.sqrt(4096) * np.finfo(np.float32).eps
    value_error = float((np.abs(values - sigma[:COMPONENTS]) / sigma[:COMPONENTS]).max())
    value_limit = noise / sigma[COMPONENTS - 1] + products * (sigma[0] / sigma[COMPONENTS - 1]) ** 2 / 2
    computed = np.asarray(result["components"]).astype(np.float64)
    planted = truth.components[:COMPONENTS].astype(np.float64)
    # The part of the planted subspace outside the computed one: its norm is the sine of the largest angle.
    missed = planted - (planted @ computed.T) @ computed
    angle = float(np.linalg.norm(missed @ missed.T, 2) ** 0.5)
    angle_limit = noise / gap + products * sigma[0] ** 2 / (sigma[COMPONENTS - 1] ** 2 - sigma[COMPONENTS] ** 2)
    rows = [
        ("singular values, relative error", value_error, value_limit),
        ("subspace of the components, sine of the largest angle", angle, angle_limit),
    ]
    lines = [f"  {name}: {error:.1e} (allowed {limit:.1e})" for name, error, limit in rows]
    right = all(error <= limit for _, error, limit in rows)
    return [*lines, "demo: right" if right else "demo: WRONG"], right
