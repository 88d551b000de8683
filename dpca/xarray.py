"""The accessor `dpca` of xarray: `import dpca.xarray`, and then `data.dpca.pca(dim="time", n_components=10)`."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import xarray as xr

from dpca.estimators.pca import PCA


class Accessor:
    """Analyses of a DataArray, or of the variables of a Dataset side by side, along a dimension of samples."""

    def __init__(self, data: xr.DataArray | xr.Dataset) -> None:
        self._data = data

    def pca(self, dim: Hashable | Sequence[Hashable], n_components: Any = 20, **parameters: Any) -> xr.Dataset:
        """PCA of the samples along a dimension, or several; all others are features. Two reads of the data, block by block where they are lazy.

        Parameters
        ----------
        dim : the dimension of the samples, such as "time"; or several, such as ("time", "member"), whose scores have these dimensions
        n_components, parameters : as of `dpca.PCA`: weights="sqrt_cos_lat", scale="std", missing="land" and others

        Returns
        -------
        What `PCA.to_xarray` gives: scores, components, mean, explained_variance_ratio and others, along the dimensions of the data

        Raises
        ------
        InputError, ConfigError, DataError
            As of `dpca.PCA.fit`; a dimension that is not there is named.
        """
        axis = tuple(map(str, dim)) if isinstance(dim, tuple | list) else str(dim)
        found: xr.Dataset = PCA(n_components, samples_axis=axis, **parameters).fit(self._data).to_xarray()
        return found


xr.register_dataarray_accessor("dpca")(Accessor)
xr.register_dataset_accessor("dpca")(Accessor)
