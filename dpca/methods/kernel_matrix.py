"""A kernel matrix that is the input: read, and checked."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dpca.errors import DataError, InputError
from dpca.methods.passes import not_exact
from dpca.numerics.preprocess import is_beyond_float64
from dpca.slabs import Cuts, placed
from dpca.sources import Source
from dpca.types import F64

ROWS_BYTES = 2**25
"""Bytes of kernel values that are read together."""


def kernel_rows(source: Source, axis: int = 0) -> Iterator[tuple[slice, F64]]:
    """Rows of a kernel matrix that is the input, some at a time: each sample along `axis` with all samples of a fit."""
    layout = source.layout
    if len(layout.shape) != 2:
        raise InputError(
            f"{layout.name}: has {len(layout.shape)} axes, shape {layout.shape}, but a kernel matrix has two",
            "Give the array of kernel values, samples by samples.",
            key="input.uri",
        )
    n, across = layout.shape[axis], layout.shape[1 - axis]
    factor, offset = layout.packing
    blocks = Cuts.of(n, layout.chunks[axis]).coarsen(max(1, ROWS_BYTES // (8 * max(1, across))))
    with source.open() as reader:
        for rows in blocks.within(slice(0, n)):
            region = placed((slice(0, across), slice(0, across)), axis, rows)
            raw = reader.read(region)
            if raw.dtype.kind in "iu" and is_beyond_float64(raw, layout.marked(raw)).any():
                raise not_exact(layout, raw, region)
            values = np.array(raw, np.float64)
            values[layout.marked(raw)] = np.nan
            values = values * factor + offset
            if not np.isfinite(values).all():
                at = np.argwhere(~np.isfinite(values))[0]
                at[axis] += rows.start
                raise DataError(
                    f"{layout.name}: the value at index {at.tolist()} is not finite",
                    "A kernel is defined for every two samples: compute what is missing, or leave those samples out.",
                )
            yield rows, np.ascontiguousarray(values.T if axis else values)


def check_columns(source: Source, axis: int, n_samples: int) -> None:
    """Refuse kernel values of new samples, along `axis`, whose number is not that of the samples of a fit."""
    shape = source.layout.shape
    if len(shape) == 2 and shape[1 - axis] != n_samples:
        raise InputError(
            f"{source.layout.name}: has shape {shape}, new samples along axis {axis}, but the kernel of each with the "
            f"{n_samples} of the fit has {n_samples} values",
            "Give k(x_new, x_i), a row for each new sample.",
        )


def square_matrix(source: Source) -> F64:
    """The kernel matrix of a fit, (n, n)."""
    shape = source.layout.shape
    if len(shape) == 2 and shape[0] != shape[1]:
        raise InputError(
            f"{source.layout.name}: has shape {shape}, but the kernel of the samples with each other is square",
            "Give k(x_i, x_j) of all pairs; kernels of new samples with them are for transform.",
            key="input.uri",
        )
    matrix = np.empty(shape)
    for rows, values in kernel_rows(source):
        matrix[rows] = values
    return matrix
