"""Annotated matrices (AnnData) as X: a layer, the features of a mask, and results where scanpy has them. AnnData itself is not imported here."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dpca.errors import ConfigError, InputError


def is_annotated(data: Any) -> bool:
    """Whether an object is AnnData, which none can be where its package is not imported."""
    return "anndata" in sys.modules and isinstance(data, sys.modules["anndata"].AnnData)


@dataclass(frozen=True, eq=False)
class Annotated:
    """The features of AnnData that a fit used."""

    layer: str | None
    """Name of the layer; None for X."""
    mask: str | None
    """Column of `var` that chose features; None where an array did, or none were left out."""
    var_names: NDArray[Any]
    """Names of all features that there were."""
    places: NDArray[np.int64]
    """Numbers of those that are used."""

    @classmethod
    def of(cls, data: Any, layer: str | None, mask: Any) -> Self:
        """Those of AnnData.

        Parameters
        ----------
        layer : name of a layer; None for X
        mask : name of a boolean column of `var`, or a mask (n_vars,); None for all features
        """
        chosen = np.ones(data.n_vars, bool)
        if isinstance(mask, str):
            if mask not in data.var:
                raise InputError(
                    f"mask is {mask!r}, but var of the AnnData object has the columns {', '.join(map(str, data.var.columns[:12])) or 'none'}",
                    "Name a boolean one of them.",
                )
            chosen = np.asarray(data.var[mask])
        elif mask is not None:
            chosen = np.asarray(mask)
        if chosen.dtype != bool or chosen.shape != (data.n_vars,):
            raise InputError(
                f"mask is of dtype {chosen.dtype} and shape {chosen.shape}, but bool and ({data.n_vars},) are allowed",
                "Give True for the features that are used.",
            )
        return cls(layer, mask if isinstance(mask, str) else None, np.asarray(data.var_names), np.flatnonzero(chosen))

    def matrix(self, data: Any) -> Any:
        """Their values in AnnData, (n_obs, features), in their order."""
        if self.layer is not None and self.layer not in data.layers:
            raise InputError(
                f"layer is {self.layer!r}, but the AnnData object has the layers {', '.join(data.layers) or 'none'}",
                "Name one of them, or leave it out for X.",
            )
        places, names = self.places, self.var_names[self.places]
        if not np.array_equal(np.asarray(data.var_names), self.var_names):
            places = data.var_names.get_indexer(names) if data.var_names.is_unique else np.full(len(names), -1)
            if (places < 0).any() or len(np.unique(places)) < len(places):
                raise InputError(
                    f"the AnnData object lacks {int((places < 0).sum()):,} of the {len(names):,} features of the fit, or has some twice",
                    "Give one with the var_names of the fit, each once.",
                )
        values = data.X if self.layer is None else data.layers[self.layer]
        return values if np.array_equal(places, np.arange(data.n_vars)) else values[:, places]

    def leave(self, data: Any, scores: Any, components: NDArray[Any], variance: Any, ratio: Any, center: bool) -> None:
        """Put a fit where scanpy has it: obsm["X_pca"], varm["PCs"], of zeros for features that were not used, and uns["pca"]."""
        loadings = np.zeros((data.n_vars, components.shape[0]), components.dtype)
        loadings[self.places] = components.T
        params: dict[str, Any] = {
            "zero_center": center,
            "use_highly_variable": self.mask == "highly_variable",
            "mask_var": self.mask,
        }
        data.obsm["X_pca"], data.varm["PCs"] = np.asarray(scores), loadings
        data.uns["pca"] = {
            "params": params if self.layer is None else {**params, "layer": self.layer},
            "variance": np.asarray(variance),
            "variance_ratio": np.asarray(ratio),
        }


def matrix_in(data: Any, fitted: Annotated | None) -> Any:
    """X; of AnnData the values of the features of a fit, if that was of AnnData."""
    return fitted.matrix(data) if fitted is not None and is_annotated(data) else data


def check_plain(layer: str | None, mask: Any) -> None:
    """Refuse a layer and a mask of what is no AnnData."""
    if layer is not None or mask is not None:
        raise ConfigError(
            "layer and mask are of AnnData, but X is none",
            "Leave them out; filters={'mask': ...} leaves features of arrays out.",
        )
