"""Times of samples: what analyses in time need of them."""

from __future__ import annotations

import numpy as np

from dpca.derived.operators import finite
from dpca.errors import ConfigError
from dpca.types import F64

IRREGULAR = 1e-6
"""Steps of time that differ by more than this share are not regular."""


def increasing(times: F64, n: int, what: str) -> F64:
    """Times as float64, one a row, increasing, (n,).

    Parameters
    ----------
    times : in any unit
    n : number of rows
    what : the analysis that needs them, for the error
    """
    found = finite(times, "times")
    if found.shape != (n,) or n < 2:
        raise ConfigError(
            f"{what} needs a time for each of {n} rows, and two rows or more, but times have shape {found.shape}",
            "Give the times of the rows that the operators leave.",
        )
    wrong = np.flatnonzero(np.diff(found) <= 0)
    if wrong.size:
        at = int(wrong[0])
        raise ConfigError(
            f"{what} needs times that increase, but {found[at + 1]:g} follows {found[at]:g} at row {at + 1}",
            "Select the samples in the order of their times, each once.",
        )
    return found


def regular_step(times: F64, n: int, what: str) -> float:
    """The step of regular times.

    Parameters
    ----------
    times, n, what : as of `increasing`
    """
    found = increasing(times, n, what)
    steps = np.diff(found)
    step, rounding = float(np.median(steps)), 4 * float(np.spacing(np.abs(found).max()))
    wrong = np.flatnonzero(np.abs(steps - step) > IRREGULAR * step + rounding)
    if wrong.size:
        at = int(wrong[0])
        raise ConfigError(
            f"{what} needs regular times, but the step is {steps[at]:g} after row {at} (time {found[at]:g}), and {step:g} elsewhere",
            "Select samples without a gap, or number them (months have different lengths in days).",
        )
    return float((found[-1] - found[0]) / (n - 1))
