"""Labels and targets of rows, and the form of answers, for analyses that are statistics of the rows.

All are of the rows about their mean. Sums of squares are off by no more than the norm of the errors of their products (`dpca.derived.rounding`);
each certificate has what follows for its statistic as `error`, relative.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dpca.analyses.answers import Answer, Array
from dpca.analyses.axis import Axis, in_order
from dpca.analyses.certificates import of_rows, why_so_few
from dpca.analyses.samples import By, Samples
from dpca.derived.operators import Center, SelectRows
from dpca.derived.statistics import Grouped
from dpca.errors import ConfigError, DataError
from dpca.numerics.sketch import RELIABLE, SMALLEST
from dpca.types import F64


def target_of(rows: Samples, given: ArrayLike, name: str = "target") -> F64:
    """A number for each row, (rows,).

    Parameters
    ----------
    given : of the samples of the run, or of the rows
    """
    values = np.asarray(given)
    if values.shape == (rows.chain.n_in,) and rows.origin is not None:
        values = values[rows.origin]
    if values.shape != (rows.n,):
        raise ConfigError(
            f"{name} has shape {values.shape}, but there are {rows.chain.n_in:,} samples, and {rows.n:,} rows of them here",
            "Give a number for each sample of the result.",
            key="target",
        )
    found = np.full(rows.n, np.nan)
    for number, one in enumerate(values.tolist()):
        try:
            found[number] = one
        except (TypeError, ValueError):
            break
    wrong = np.flatnonzero(~np.isfinite(found))
    if wrong.size:
        at, names = int(wrong[0]), rows.axis.names
        raise DataError(
            f"{name} of sample {names[at] if names else at} is {values[at]}, which is no finite number"
            + (f", and so of {len(wrong) - 1:,} others" if len(wrong) > 1 and values.dtype.kind in "fc" else ""),
            "Select the samples that have one, or fill it in.",
            key="target",
        )
    return found


def unweighted(rows: Samples, what: str) -> Samples:
    """Rows as they are."""
    if rows.weights is not None:
        raise ConfigError(
            f"{what} of rows that count alike, but these have weights", "Leave the weights out.", key="weights"
        )
    return rows


def labels_of(rows: Samples, by: By, key: str = "by") -> Any:
    """A label for each row; errors have this key."""
    try:
        return rows.labels(by)[0]
    except ConfigError as error:
        raise ConfigError(error.marked_message, error.marked_remedy, key) from error.__cause__


def of_all_rows(rows: Samples) -> str:
    """The operators that were made of all rows, in words."""
    pairs = zip(rows.chain.operators, rows.told, strict=True)
    return "; ".join(words for operator, words in pairs if not isinstance(operator, SelectRows | Center))


def grouped(rows: Samples, by: By) -> Grouped:
    """Rows by their labels, seasons in the order of the year."""
    found = Grouped.of(labels_of(rows, by))
    return Grouped(*in_order(found.names[found.codes]))


def amplification(rows: Samples) -> float:
    """How much more errors of products weigh in these rows, about their mean, than in the samples."""
    return rows.centred.transformed.amplification


def inexact(rows: Samples, error: float, what: str) -> str:
    """Caveat where the errors of products leave fewer than two digits."""
    if error <= RELIABLE:
        return ""
    why = f"the products are of {rows.known.solver} in {rows.known.precision} precision"
    return f"{what} may have less than two digits (relative error up to {error:.1g}): " + why_so_few(
        rows.known, amplification(rows), why
    )


def plain(value: float) -> float | None:
    """A number for JSON, which has no NaN and no infinity."""
    return float(value) if np.isfinite(value) else None


def answered(
    kind: str,
    rows: Samples,
    arrays: Mapping[str, Array],
    axes: Sequence[Axis],
    verdict: str,
    caveats: Sequence[str],
    **own: Any,
) -> Answer:
    """The answer of an analysis without maps; `own` are entries of its certificate."""
    if "error" in own:
        own["error"] = max(own["error"], SMALLEST)
    certificate = {
        **of_rows(kind, rows, amplification(rows)),
        **own,
        "caveat": "; ".join(filter(None, caveats)),
        "maps": None,
        "verdict": verdict,
    }
    coordinates = {axis.name: axis for axis in axes if axis.values is not None}
    return Answer(kind, arrays, coordinates, None, certificate)
