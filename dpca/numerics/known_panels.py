"""Rows of X_c from a slab whose means and scales are known: one subtraction in working precision, for some rows at a time.

The float64 blocks of `dpca.numerics.preprocess` find means, scales, squares and the sketch; a pass that multiplies the same data again needs
none of these. Products with vectors that sum to 0 over the samples do not see the rounding of a mean. Scales are not applied to the
values, but to the vectors that they are multiplied by.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpca.slabs import Plan
from dpca.types import F64

EXACT_BYTES = {"b": 1, "u": 2, "i": 2, "f": 4}
"""Values of wider types are subtracted in float64, where products run in single precision."""


class KnownRows:
    """The rows of a slab, kept side by streamed side, less their means.

    Parameters
    ----------
    raw : the slab as stored, which is not written to
    plan : its sides
    mean : of streamed features, (width,), or of kept ones, (m,)
    dtype : working precision
    missing_values : stored values that mark a missing one, which becomes 0, as NaN does
    left_out : mask of streamed features that are 0, (width,); None for none
    """

    def __init__(
        self,
        raw: NDArray[Any],
        plan: Plan,
        mean: F64,
        dtype: np.dtype[Any],
        missing_values: Sequence[float] = (),
        left_out: NDArray[np.bool_] | None = None,
    ) -> None:
        self._fast, self._over_samples = plan.kept_fastest, plan.keeps == "samples"
        kept, streamed = plan.kept_axes, plan.streamed_axes
        m = plan.n_kept
        order = (*streamed, *kept) if self._fast else (*kept, *streamed)
        flat = raw.transpose(order).reshape((-1, m) if self._fast else (m, -1))
        self._values = flat.T if self._fast else flat
        self._left_out, self._marks = left_out, missing_values
        self._may_miss = raw.dtype.kind == "f"
        wide = dtype == np.float32 and raw.dtype.itemsize > EXACT_BYTES[raw.dtype.kind]
        self._mean = mean.astype(np.float64 if wide else dtype)
        self._wide, self._dtype = wide, dtype
        self._buffer = np.empty(0, dtype)

    @property
    def width(self) -> int:
        """Streamed length of the slab."""
        return int(self._values.shape[1])

    def __call__(self, rows: slice) -> NDArray[Any]:
        """Some rows, (rows, width); valid until the next call."""
        values = self._values[rows]
        n, width = values.shape
        if self._buffer.size < n * width:
            self._buffer = np.empty(n * width, self._dtype)
        flat = self._buffer[: n * width]
        found = flat.reshape(width, n).T if self._fast else flat.reshape(n, width)
        mean = self._mean if self._over_samples else self._mean[rows, None]
        with np.errstate(over="ignore", invalid="ignore"):  # products detect infinite values
            if self._wide:
                np.subtract(values, mean, out=found, dtype=np.float64, casting="same_kind")
            else:
                np.copyto(found, values, casting="same_kind")
                found -= mean
        for mark in self._marks:
            missing = values == mark
            if missing.any():
                found[missing] = 0
        if self._may_miss:
            missing = np.isnan(found)
            if missing.any():
                found[missing] = 0
        if self._left_out is not None:
            found[:, self._left_out] = 0
        return found
