"""Answers of derived analyses in one form, whatever the kind: named arrays, coefficients of maps, and a certificate."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from dpca.analyses.axis import Axis
from dpca.derived.operators import Matrix
from dpca.types import F64
from dpca.units import describe_bytes

COMPONENT, LAG, FREQUENCY, BLOCK, ROW = "component", "lag", "frequency", "block", "row"
ALPHA, H2 = "alpha", "h2"
DRAW, LIMIT = "draw", "limit"
OF_THE_UNIT = frozenset({"pca", "extended", "hilbert"})
"""Kinds of analyses whose scores have the unit of the samples."""
TAKEN = frozenset({COMPONENT, LAG, FREQUENCY, BLOCK, ALPHA, H2, DRAW, LIMIT})


@dataclass(frozen=True)
class ProductAccuracy:
    """Accuracy of the products of the samples, and the cost of more."""

    name: str
    """Name of the result, or of the results."""
    solver: str
    precision: Literal["single", "double"]
    n_bytes: int
    """Size of the data, which a run in higher precision reads again."""

    @property
    def remedy(self) -> str:
        """The way to more digits, with its cost."""
        again = f"one read of {describe_bytes(self.n_bytes)}"
        if self.precision == "single":
            return f"run {self.name} again with model.precision: double ({again}), and derive from that"
        if self.solver != "tsqr":
            return f"run {self.name} again with model.svd_solver: tsqr ({again}, 3 to 4 times the computation), and derive from that"
        return "the data have no more digits: leave out what removes nearly all of the variance"


@dataclass(frozen=True, eq=False)
class Array:
    """An array with the names of its axes."""

    values: NDArray[Any]
    dims: tuple[str, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)


class Weighting(Protocol):
    """How groups of features count in an analysis."""

    @property
    def factors(self) -> F64 | None:
        """Factors of the features of each part of the data, (parts,), or (parts, outer); a part with 0 has no map. None for 1."""
        ...


@dataclass(frozen=True, eq=False)
class Maps:
    """The coefficients of maps in the samples, and what their maps are measured by."""

    coefficients: Matrix
    """C, (n, k), or (outer, n, k): maps are X' C, where 1'C = 0 also X_c' C."""
    outer: tuple[str, ...]
    """The axis before the samples': lag or frequency."""
    orthonormal: Literal["each", "together", "no"]
    """Whether W^H W is the identity: for each of the outer axis, summed over it, or not at all: then its diagonal is 1. See `overlaps`."""
    scores_of: Callable[[Matrix], Matrix]
    """Scores of the analysis from X W, (n, k) or (outer, n, k); of modes X W itself."""
    scores: Matrix
    """Its scores, from products."""
    weighting: Weighting | None = None
    """How groups of features count; None where all count as they are."""
    deviations: F64 | None = None
    """Coefficients of maps whose squares sum to those of the standard errors of maps, (n, k, r); of real ones without an outer axis."""
    deviations_norm2: F64 | None = None
    """The sum of squares of these maps of each component, as products give it, (k,)."""
    overlaps: F64 | None = None
    """W^H W as products give it, for each of the outer axis, (outer, k, k), where that is not the identity; None where it is."""
    score_deviation: F64 | None = None
    """Standard deviation of each score, (k,), where maps are also wanted in the unit of the data; else None."""
    rows: F64 | None = None
    """Coefficients of the rows in the samples, A^H, (n, rows), where maps are also wanted as correlations; else None."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """complex128 or float64."""
        return self.coefficients.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths of the axes of maps before those of features: (k,) or (outer, k)."""
        return (*self.coefficients.shape[:-2], self.coefficients.shape[-1])

    @property
    def dims(self) -> tuple[str, ...]:
        """Names of these axes."""
        return (*self.outer, COMPONENT)


@dataclass(frozen=True, eq=False)
class Answer:
    """Result of an analysis: arrays, coefficients of maps, certificate."""

    kind: str
    arrays: Mapping[str, Array]
    coordinates: Mapping[str, Axis]
    """Coordinates of the axes of the arrays: dates, lags, frequencies."""
    maps: Maps | None
    """None where it has no components in the space of the features."""
    certificate: dict[str, Any]

    def unit(self, of_samples: str | None) -> str | None:
        """The unit of its scores, given that of the samples; None where it is another, or not known."""
        same = self.kind in OF_THE_UNIT and (self.maps is None or self.maps.weighting is None)
        return of_samples if same else None

    @property
    def its_maps(self) -> Maps:
        """The maps of an answer that has some."""
        assert self.maps is not None
        return self.maps


def mapped(answers: Mapping[str, Answer]) -> dict[str, Answer]:
    """Those that have components in the space of the features."""
    return {name: answer for name, answer in answers.items() if answer.maps is not None}


def row_axis(axis: Axis) -> Axis:
    """The axis of rows under a name that no other axis has."""
    return replace(axis, name=ROW) if axis.name in TAKEN else axis
