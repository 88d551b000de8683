"""The components of an analysis, rotated, in a notebook: from its maps, which one read of the data makes."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dpca.analyses.rotation import arrays_of, n_rotated, rotation_of
from dpca.config.rotation import Rotation as Keys
from dpca.errors import ConfigError
from dpca.numerics.certificate import caveats_of_rotation
from dpca.numerics.fourth_moments import F64, held_to_solve
from dpca.numerics.rotation import OBLIQUE, Rotation
from dpca.sources import is_data_array
from dpca.store.outputs import COMPONENT, ROTATED_COMPONENT

if TYPE_CHECKING:
    from dpca.estimators.analysis import Analysis


@dataclass(frozen=True, eq=False)
class Rotated:
    """Rotated components of a pca of `dpca.open_gram`; `to_xarray()` has them."""

    _analysis: Analysis
    _rotation: Rotation
    certificate: dict[str, Any]
    """kind, n_components, asked, iterations, last_change, converged, not_reliable: as in the certificate of a run."""

    def to_xarray(self) -> Any:
        """rotated_scores, rotated_components, rotated_explained_variance with its ratio, rotation_matrix and, of oblique kinds, factor_correlation.

        Rotated components of maps that are large are Dask arrays.
        """
        analysis, rotation = self._analysis, self._rotation
        k, maps = len(rotation.variances), analysis.components()
        alone = is_data_array(maps)
        found = maps.to_dataset(name="components") if alone else maps
        found = found.isel({COMPONENT: slice(k)}).map(lambda one: _turned(one, rotation.to_components), keep_attrs=True)
        found = found.rename({name: f"rotated_{name}" for name in found.data_vars})
        found = found.assign_coords(analysis.scores.drop_vars(COMPONENT, errors="ignore").coords)
        for name, array in arrays_of(analysis._answer, rotation, self.certificate["kind"] in OBLIQUE).items():
            found[name] = (array.dims, array.values)
        return found

    def transform(self, X: Any, covariates: Any = None) -> Any:
        """Rotated scores of new samples, (n_samples, rotated components), as `Analysis.transform` gives scores."""
        scores, turn = self._analysis.transform(X, covariates), self._rotation.to_scores()
        if is_data_array(scores):
            return _turned(scores.isel({COMPONENT: slice(len(turn))}), turn.T).transpose(..., ROTATED_COMPONENT)
        return scores[:, : len(turn)] @ turn


def rotated(analysis: Analysis, keys: dict[str, Any]) -> Rotated:
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
        warnings.warn(sentence, UserWarning, stacklevel=3)
    return Rotated(analysis, rotation, certificate)


def _turned(values: Any, turn: F64) -> Any:
    """Values along `component`, turned: along `rotated_component`."""
    import xarray as xr

    matrix = xr.DataArray(turn, dims=(ROTATED_COMPONENT, COMPONENT))
    return xr.dot(matrix, values.drop_vars(COMPONENT, errors="ignore"), dim=COMPONENT).astype(values.dtype)
