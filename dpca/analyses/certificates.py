"""Certificates of derived analyses: how many digits are right, and what would give more."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from dpca.analyses.answers import COMPONENT, Answer, Array, Maps, ProductAccuracy
from dpca.analyses.axis import Axis
from dpca.analyses.samples import Samples
from dpca.numerics.sketch import RELIABLE, SMALLEST
from dpca.types import F64

NEARLY_ALL = 10.0
"""From this amplification on, what operators remove is the reason where digits are lacking."""


def answer_of_maps(
    kind: str,
    rows: Samples,
    errors: F64,
    amplification: float,
    rank: int,
    arrays: dict[str, Array],
    axis: Axis | None,
    maps: Maps,
) -> Answer:
    """The answer of an analysis with maps.

    Parameters
    ----------
    errors : of its eigenvalues, relative
    amplification, rank : as in the certificate
    axis : of the rows; None where no array is along them
    """
    coordinates = {} if axis is None or axis.values is None else {axis.name: axis}
    if "digits" not in arrays:
        arrays["digits"] = Array(digits_of(errors), (COMPONENT,))
    if rows.features is not None and rows.features.weights:
        maps = replace(maps, weighting=rows.features)
    return Answer(kind, arrays, coordinates, maps, _certificate(kind, rows, errors, amplification, rank))


def _certificate(kind: str, rows: Samples, errors: F64, amplification: float, rank: int) -> dict[str, Any]:
    """The certificate of an analysis, before its maps are made.

    Returns
    -------
    dict with keys
        kind, samples : the analysis, and the operators in words
        rows : how many there are
        solver, precision : of the products of the run
        amplification : how much of the samples the operators remove: what errors of K weigh more here than there
        rank : number of components that can be told from rounding; of spod the largest over frequencies
        digits : decimal digits of each eigenvalue, from the measured error of K's entries; a list for each frequency of spod
        reliable : whether it has two digits or more
        reliable_components, components : how many are reliable, of how many
        caveat : what to do where some are not; empty otherwise
        maps : null until they are made (`dpca.analyses.maps`)
        verdict : a summary in words
    """
    known, reliable = rows.known, errors <= RELIABLE
    counted = np.isfinite(errors)
    good, total = int(reliable.sum()), int(counted.sum())
    caveat = ""
    if good < total:
        least = float(digits_of(errors[counted]).min())
        left = why_so_few(
            known, amplification, f"{known.solver} in {known.precision} precision does not know them beside the first"
        )
        caveat = f"{total - good} of {total} components have less than two digits (the least {least:g}): {left}"
    return {
        **of_rows(kind, rows, amplification),
        "rank": rank,
        "digits": digits_of(errors).tolist(),
        "reliable": reliable.tolist(),
        "reliable_components": good,
        "components": total,
        "caveat": caveat,
        "maps": None,
        "verdict": f"{good} of {total} components reliable ({known.solver}, {known.precision}), amplification {amplification:,.3g}",
    }


def of_rows(kind: str, rows: Samples, amplification: float) -> dict[str, Any]:
    """Entries that the certificates of all analyses begin with."""
    known = rows.known
    return {
        "kind": kind,
        "features": "" if rows.features is None else rows.features.told,
        "samples": list(rows.told),
        "rows": rows.n,
        "solver": known.solver,
        "precision": known.precision,
        "amplification": amplification,
    }


def why_so_few(known: ProductAccuracy, amplification: float, otherwise: str) -> str:
    """Why digits are lacking, and what would give more.

    Parameters
    ----------
    otherwise : why, where operators do not remove nearly all
    """
    if amplification < NEARLY_ALL:
        return f"{otherwise}; {known.remedy}"
    return (
        f"the operators leave 1 part in {amplification:,.3g} of the samples, and what is left has the errors of {known.solver} in "
        f"{known.precision} precision as if it were as large; {known.remedy}"
    )


def digits_of(errors: F64) -> F64:
    """Correct decimal digits for relative errors, rounded down to a tenth."""
    return np.asarray(np.floor(10 * np.abs(np.log10(np.clip(errors, SMALLEST, 1.0)))) / 10)
