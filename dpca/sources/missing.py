"""Marks of missing values, valid ranges, and masks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpca.errors import DataError

EVERY = (-math.inf, math.inf)
"""The valid range that contains every value."""


def as_stored(marks: Iterable[float], dtype: np.dtype[Any]) -> tuple[float, ...]:
    """Markers of missing values, rounded to the type of the array, without duplicates and NaN, which needs no marker."""
    with np.errstate(over="ignore"):
        rounded = [float(np.asarray(mark).astype(dtype)) if dtype.kind == "f" else float(mark) for mark in marks]
    return tuple(dict.fromkeys(mark for mark in rounded if not np.isnan(mark)))


def is_marked(
    values: NDArray[Any], marks: Sequence[float], valid: tuple[float, float] | None = None
) -> NDArray[np.bool_]:
    """Mask of the values that equal a marker or are outside the valid range."""
    marked = np.zeros(values.shape, bool)
    for mark in marks:
        marked |= values == mark
    if valid is not None and valid != EVERY:
        marked |= (values < valid[0]) | (values > valid[1])
    return marked


def type_of_masked(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The floating-point type for masked values of a type: it can hold NaN where they are masked."""
    if dtype.kind == "f":
        return dtype
    return np.dtype(np.float32 if dtype.itemsize <= 2 else np.float64)


def keeps_values(found: np.dtype[Any], declared: np.dtype[Any]) -> bool:
    """Whether every value of one type is a value of the other: NumPy's "safe" takes int64 for float64, too, which rounds it."""
    rounds = found.kind in "iu" and declared.kind == "f" and found.itemsize >= declared.itemsize
    return np.can_cast(found, declared, "safe") and not rounds


def unmasked(values: Any, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Values as the given type, with NaN in place of masked ones."""
    if not isinstance(values, np.ma.MaskedArray):
        return np.asarray(values).astype(dtype, copy=False)
    mask = np.ma.getmaskarray(values)
    if dtype.kind != "f" and mask.any():
        raise DataError(
            "a block of the array is masked, but its meta is not, which promised that none would be",
            "Call map_blocks(numpy.ma.asarray, meta=numpy.ma.array([], dtype=x.dtype)) on it, or fill it: da.ma.filled.",
        )
    if values.dtype.kind in "iu" and (np.abs(values.astype(np.float64)) >= 2**53).any():
        raise DataError(
            "masked integers are 2**53 or more in magnitude, where float64 rounds them",
            "Subtract a whole number from the feature where the data are made.",
        )
    filled = np.array(values.data, dtype)
    if mask.any():
        filled[mask] = np.nan
    return filled
