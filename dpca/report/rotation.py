"""The rotated components of a result in its report: their variances, what they are made of, and their maps."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpca.report import figures, findings, maps
from dpca.store.results import Result

SHOWN_PARTS = 3
"""Components that a rotated one is said to be made of, at most."""


def of_rotation(result: Result) -> dict[str, Any] | None:
    """The table of rotated components and their figures; None where nothing was rotated."""
    if "rotation_matrix" not in result.arrays:
        return None
    certificate = result.certificate["rotation"]
    matrix, share = (
        np.asarray(result.arrays[name][...], np.float64)
        for name in ("rotation_matrix", "rotated_explained_variance_ratio")
    )
    return {
        "kind": certificate["kind"],
        "said": _said(certificate, matrix.shape[0]),
        **made_of(matrix, share),
        "figures": [figure for one in result.each for figure in _figures(one, share)],
    }


def made_of(matrix: np.ndarray[Any, Any], share: np.ndarray[Any, Any]) -> dict[str, Any]:
    """The table of rotated components: their shares, and the components that they are made of."""
    return {
        "head": ["rotated component", "share", "made of components"],
        "rows": [[str(j + 1), f"{100 * share[j]:.2f} %", _parts(matrix[:, j])] for j in range(len(share))],
    }


def _said(certificate: dict[str, Any], n_components: int) -> str:
    k, kind = certificate["n_components"], certificate["kind"]
    words = [f"The first {k} of {n_components} components, rotated by {kind}; no data were read for it."]
    if certificate["normalize"] is not None:
        words.append(
            "Each feature counts the same (Kaiser's rule)."
            if certificate["normalize"]
            else "Features count as much as their loadings."
        )
    if kind != "varimax":
        words.append(
            f"Rotated scores are correlated, at most {certificate['factor_correlation']:.2f}, so that shares do not add up."
        )
    if not certificate["converged"]:
        words.append(f"The rotation had not converged after {certificate['iterations']} iterations.")
    return " ".join(words)


def _parts(column: np.ndarray[Any, Any]) -> str:
    """The components with the largest share in the squares of a column of the rotation matrix."""
    shares = column**2 / (column**2).sum()
    order = np.argsort(-shares, kind="stable")[:SHOWN_PARTS]
    return ", ".join(f"{number + 1} ({100 * shares[number]:.0f} %)" for number in order if shares[number] >= 0.01)


def _figures(result: Result, share: np.ndarray[Any, Any]) -> list[dict[str, Any]]:
    """The maps of one input that are small enough to be drawn."""
    array = result.arrays[result.named("rotated_components")]
    axes = [
        findings.axis_of(result, dim, f"feature axis {number}", 4 * maps.PIXELS)
        for number, dim in enumerate(array.dims[1:])
    ]
    count = min(maps.n_drawn(result), array.shape[0])
    shown = maps.drawn(result, array, [(number,) for number in range(count)])
    called = [f"{number}, {result.group}" if result.group else str(number) for number in range(1, count + 1)]
    return [
        {
            "number": called[number],
            "share": f"{100 * share[number]:.2f} %",
            "figure": figures.of_component(called[number], component, axes, name=f"rotated-{number}{result.group}"),
            "top": ", ".join(f"{extreme.name}: {extreme.value:.3g}" for extreme in component.top[:5]),
        }
        for number, component in enumerate(shown)
    ]
