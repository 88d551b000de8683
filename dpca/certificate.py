"""What was measured about the answer, in plain numbers and in one line of words.

Every figure is a measurement of this run: none costs a read of its own.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dpca.backproject import BackprojectionPartial
from dpca.errors import PrecisionError
from dpca.spectrum import Spectrum

FORMAT_VERSION = 1
TRACE_LIMIT = 1e-3


def check_trace(trace: float, squares: float, working_dtype: Any) -> float:
    """Relative difference of trace(K) and the total sum of squares, which was added up without products.

    Raises
    ------
    PrecisionError
        When they differ by more than 1e-3: the products lost the data, by underflow for instance.
    """
    difference = abs(trace - squares) / squares if squares else abs(trace)
    if difference > TRACE_LIMIT:
        raise PrecisionError(
            f"products in {np.dtype(working_dtype)} lost the data: they sum to a total of {trace:.6g}, "
            f"where float64 without products gives {squares:.6g}",
            "Set model.precision: double, or store the data in other units.",
        )
    return difference


def certify(spectrum: Spectrum, trace_difference: float, measured: BackprojectionPartial | None) -> dict[str, Any]:
    """The certificate of a decomposition.

    Parameters
    ----------
    spectrum : the n x n side
    trace_difference : from `check_trace`
    measured : from the back-projection, or None when no components were asked for

    Returns
    -------
    dict with keys
        format_version : 1
        rank : eigenvalues that differ from rounding
        largest_rank : what the rank can be at most, min(n - 1, d) for centred data
        supported_ratio : smallest sigma_j / sigma_1 that the working precision supports
        trace_check : relative difference of trace(K) and the independently summed total
        orthogonality : largest entry of |W'W - I| over components of nonzero sigma; null without components
        components : for each its index, singular_value, residual_gram = |K v - lambda v| / lambda_1,
            residual_data = |X_c w - sigma v| / sigma (null without components), reliable
        reliable_components : how many are
        verdict : all of it in words
    """
    sigma, reliable = spectrum.singular_values, spectrum.reliable
    orthogonality: float | None = None
    data_side: list[float | None] = [None] * sigma.size
    if measured is not None:
        nonzero = sigma > 0
        overlap = measured.overlap[np.ix_(nonzero, nonzero)]
        orthogonality = float(np.abs(overlap - np.eye(len(overlap))).max(initial=0.0))
        difference = np.linalg.norm(measured.projection - spectrum.scores, axis=0)
        data_side = [float(r / s) if s > 0 else None for r, s in zip(difference, sigma, strict=True)]
    certificate = {
        "format_version": FORMAT_VERSION,
        "rank": spectrum.rank,
        "largest_rank": spectrum.largest_rank,
        "supported_ratio": spectrum.supported,
        "trace_check": trace_difference,
        "orthogonality": orthogonality,
        "components": [
            {
                "index": index,
                "singular_value": float(sigma[index]),
                "residual_gram": float(spectrum.residuals[index]),
                "residual_data": data_side[index],
                "reliable": bool(reliable[index]),
            }
            for index in range(sigma.size)
        ],
        "reliable_components": int(reliable.sum()),
    }
    return {**certificate, "verdict": _verdict(certificate)}


def _verdict(certificate: dict[str, Any]) -> str:
    components = certificate["components"]
    total, good = len(components), certificate["reliable_components"]
    words = [f"{good} of {total} components reliable"]
    residuals = [c["residual_data"] for c in components if c["reliable"] and c["residual_data"] is not None]
    if certificate["orthogonality"] is not None:
        words.append(f"orthogonal to {certificate['orthogonality']:.1e}")
    if residuals:
        words.append(f"largest residual {max(residuals):.1e}")
    words.append(f"total variance checked to {certificate['trace_check']:.1e}")
    return ", ".join(words)


def caveats(certificate: dict[str, Any]) -> list[str]:
    """What the user must be told: which components are not to be trusted, why, and what helps."""
    components = certificate["components"]
    single = certificate["supported_ratio"] > 1e-6
    remedy = "set model.precision: double" if single else "ask for fewer components"
    weak = [c["index"] for c in components if not c["reliable"] and c["singular_value"] > 0]
    zero = [c["index"] for c in components if c["singular_value"] == 0]
    found = []
    if weak:
        found.append(
            f"components {_runs(weak)} have singular values below {certificate['supported_ratio']:.1e} of the largest, "
            f"less than the Gram matrix supports in {'single' if single else 'double'} precision: {remedy}"
        )
    if zero:
        lost = single and zero[0] < certificate["largest_rank"]
        found.append(
            f"components {_runs(zero)} can't be told from rounding (numerical rank {certificate['rank']}): their "
            "singular values and components are zero" + (f"; to see whether they really are, {remedy}" if lost else "")
        )
    return found


def _runs(indices: list[int]) -> str:
    return str(indices[0]) if len(indices) == 1 else f"{indices[0]} to {indices[-1]}"
