"""The components of an analysis, rotated, in a notebook: from its maps, which one read of the data makes."""

from __future__ import annotations

import html
from dataclasses import dataclass
from typing import Any, Protocol

from dpca.analyses.answers import Answer
from dpca.analyses.rotation import arrays_of, n_rotated, rotation_of
from dpca.config.rotation import Rotation as Keys
from dpca.errors import ConfigError
from dpca.estimators.opened import Made, Opened
from dpca.estimators.warned import warn
from dpca.numerics.certificate import caveats_of_rotation
from dpca.numerics.fourth_moments import held_to_solve
from dpca.numerics.rotation import OBLIQUE, RotationResult
from dpca.sources import is_data_array
from dpca.store.outputs import COMPONENT, ROTATED_COMPONENT
from dpca.types import F64

SHOWN = 5
"""Rotated components whose shares of the variance are shown in a line."""


class Analysed(Protocol):
    """The analysis that is rotated: `dpca.Analysis`."""

    @property
    def _answer(self) -> Answer: ...
    @property
    def _opened(self) -> Opened: ...
    @property
    def _made(self) -> list[Made]: ...
    @property
    def kind(self) -> str: ...
    def __getattr__(self, name: str) -> Any: ...
    def components(self) -> Any: ...
    def transform(self, X: Any, covariates: Any = None, by: Any = None) -> Any: ...


@dataclass(frozen=True, eq=False)
class Rotated:
    """Rotated components of a pca of `dpca.open_gram`: `components()` are those, `to_xarray()` has also what belongs to them."""

    _analysis: Analysed
    _rotation: RotationResult
    certificate: dict[str, Any]
    """kind, n_components, asked, iterations, last_change, converged, not_reliable: as in the certificate of a run."""

    def __repr__(self) -> str:
        first, *others = repr(self._analysis).splitlines()
        caveats = [f"caveat: {sentence}" for sentence in caveats_of_rotation(self.certificate)]
        turned = [self._told] if len(self._rotation.variances) else []
        head = f"<dpca {self.certificate['kind']} of {first.removeprefix('<dpca ')}"
        return "\n".join([head, *(f"  {line}" for line in turned), *others, *(f"  {line}" for line in caveats)])

    @property
    def _told(self) -> str:
        """How many were rotated, how it ended, and what each has of the variance."""
        ratio = arrays_of(self._analysis._answer, self._rotation, oblique=False)["rotated_explained_variance_ratio"]
        k, steps = len(ratio.values), self.certificate["iterations"]
        how = f"in {steps} iteration{'s' * (steps != 1)}" + ("" if self.certificate["converged"] else ", not converged")
        shares = ", ".join(f"{100 * share:.3g} %" for share in ratio.values[:SHOWN]) + (" ..." if k > SHOWN else "")
        return f"{k} component{'s' * (k != 1)} rotated {how}: {shares} of the variance"

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(repr(self))}</pre>"

    def components(self) -> Any:
        """The rotated components in the space of the features, as `Analysis.components` gives those that were rotated; no read more.

        Returns
        -------
        xarray.DataArray (rotated_component, features...); a Dataset of rotated_components_NAME where there are several groups of features.
        Dask arrays of maps that are large
        """
        found = self._turned_maps
        return found["rotated_components"] if list(found.data_vars) == ["rotated_components"] else found

    @property
    def _turned_maps(self) -> Any:
        """A Dataset of the rotated components of each group of features."""
        rotation, maps = self._rotation, self._analysis.components()
        found = maps.to_dataset(name="components") if is_data_array(maps) else maps
        found = found.isel({COMPONENT: slice(len(rotation.variances))})
        found = found.map(lambda one: _turned(one, rotation.to_components), keep_attrs=True)
        return found.rename({name: f"rotated_{name}" for name in found.data_vars})

    def to_xarray(self) -> Any:
        """rotated_scores, rotated_components, rotated_explained_variance with its ratio, rotation_matrix and, of oblique kinds, factor_correlation.

        Rotated components of maps that are large are Dask arrays.
        """
        analysis, rotation = self._analysis, self._rotation
        found = self._turned_maps.assign_coords(analysis.scores.drop_vars(COMPONENT, errors="ignore").coords)
        for name, array in arrays_of(analysis._answer, rotation, self.certificate["kind"] in OBLIQUE).items():
            found[name] = (array.dims, array.values)
        return found

    def transform(self, X: Any, covariates: Any = None, by: Any = None) -> Any:
        """Rotated scores of new samples, (n_samples, rotated components), as `Analysis.transform` gives scores."""
        scores, turn = self._analysis.transform(X, covariates, by), self._rotation.to_scores()
        if is_data_array(scores):
            return _turned(scores.isel({COMPONENT: slice(len(turn))}), turn.T).transpose(..., ROTATED_COMPONENT)
        return scores[:, : len(turn)] @ turn


def rotated(analysis: Analysed, keys: dict[str, Any]) -> Rotated:
    """The rotation of the maps of an analysis, which are made if they are not there.

    Raises
    ------
    ConfigError
        When the analysis is none of real components, all are zero, or a key is wrong.
    """
    if analysis.kind != "pca":
        raise ConfigError(
            f"{analysis.kind} can't be rotated: rotations are of orthonormal, real components",
            "Ask a pca for its rotated components.",
        )
    try:
        asked = Keys.model_validate(keys).asked
    except ValueError as cause:
        raise ConfigError(
            f"a rotation of {keys} is not one of varimax, promax, fastica and jade, with n_components, normalize, power and algorithm",
            "Pass one of these, such as rotated('varimax', n_components=8).",
        ) from cause
    analysis._opened.check(0, 8, held_to_solve(n_rotated(analysis._answer, asked)), "a rotation")
    analysis.components()
    made = analysis._made[0]
    rotation, certificate = rotation_of(made.answer, [made.of(part) for part in analysis._opened.kept.parts], asked)
    for sentence in caveats_of_rotation(certificate):
        warn(sentence)
    return Rotated(analysis, rotation, certificate)


def _turned(values: Any, turn: F64) -> Any:
    """Values along `component`, turned: along `rotated_component`."""
    import xarray as xr

    matrix = xr.DataArray(turn, dims=(ROTATED_COMPONENT, COMPONENT))
    return xr.dot(matrix, values.drop_vars(COMPONENT, errors="ignore"), dim=COMPONENT).astype(values.dtype)
