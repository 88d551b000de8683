"""The accessor of xarray gives what the estimator does."""

import numpy as np
import pytest
import xarray as xr

import dpca.xarray  # noqa: F401  which registers it
from dpca import PCA
from dpca.errors import InputError

FIELD = xr.DataArray(
    np.random.default_rng(0).normal(size=(4, 12, 5)),
    dims=("lat", "time", "lon"),
    coords={"lat": np.linspace(-60, 60, 4)},
    name="t",
)


@pytest.mark.parametrize("data", [FIELD, FIELD.chunk({"lon": 2}), xr.Dataset({"a": FIELD, "b": 2 * FIELD})])
def test_it_gives_the_dataset_of_the_fit(data):
    found = data.dpca.pca(dim="time", n_components=3, weights="sqrt_cos_lat", scale="std")
    expected = PCA(3, samples_axis="time", weights="sqrt_cos_lat", scale="std").fit(data).to_xarray()
    xr.testing.assert_identical(found.load(), expected.load())
    with pytest.raises(InputError, match="samples_axis is 'tim', but the array has dimensions 'lat', 'time', 'lon'"):
        data.dpca.pca("tim")
