"""Beside xeofs, on fields made here: weights by area, land, standardized features."""

import numpy as np
import pytest

from dpca import PCA

xeofs = pytest.importorskip("xeofs", reason="xeofs is not installed (extra benchmarks)")
xr = pytest.importorskip("xarray")

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def field():
    """Four waves of different strength over a grid with land, and noise."""
    rng = np.random.default_rng(0)
    lat, lon, n = np.linspace(-70, 70, 15), np.arange(0, 360, 15.0), 80
    waves = [np.cos(np.radians(k * lon + 3 * lat[:, None])) for k in range(1, 5)]
    values = np.tensordot(rng.normal(size=(n, 4)) * [8, 4, 2, 1], waves, axes=1) + 0.1 * rng.normal(size=(n, 15, 24))
    values[:, 5:8, 3:9] = np.nan
    return xr.DataArray(
        values + 280 + lat[:, None] / 10,
        dims=("time", "lat", "lon"),
        coords={"time": np.arange(n), "lat": ("lat", lat, {"units": "degrees_north"}), "lon": lon},
        name="sst",
    )


@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("standardized", [True, False])
def test_variances_components_and_scores_are_those_of_xeofs(field, weighted, standardized):
    theirs = xeofs.single.EOF(n_modes=4, use_coslat=weighted, standardize=standardized, solver="full").fit(
        field, dim="time"
    )
    weights = "sqrt_cos_lat" if weighted else None
    # xeofs divides by the standard deviation with divisor n, and takes n - 1 for variances.
    ours = PCA(4, samples_axis="time", missing="mean", weights=weights, scale="std" if standardized else "none").fit(
        field
    )
    found = ours.to_xarray()
    factor = len(field.time) / (len(field.time) - 1) if standardized else 1.0
    np.testing.assert_allclose(ours.explained_variance_ * factor, theirs.explained_variance(), rtol=1e-6)
    np.testing.assert_allclose(ours.explained_variance_ratio_, theirs.explained_variance_ratio(), rtol=1e-6)
    their_components, their_scores = theirs.components(), theirs.scores(normalized=False)
    for number in range(4):
        sign = np.sign(float((found.components[number] * their_components[number]).sum()))
        np.testing.assert_allclose(found.components[number], sign * their_components[number], atol=1e-6)
        scale = np.abs(their_scores[number]).max()
        np.testing.assert_allclose(
            found.scores[:, number] * np.sqrt(factor), sign * their_scores[number], atol=1e-6 * float(scale)
        )
