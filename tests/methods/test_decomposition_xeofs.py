"""Beside xeofs, on fields made here: weights by area, land, standardized features, several variables.

Of several variables, in double precision, all numbers agree to 13 digits of the largest; 11 are asked for.
"""

from pathlib import Path

import numpy as np
import pytest

from dpca import PCA
from tests.commands.calls import dpca

xeofs = pytest.importorskip("xeofs", reason="xeofs is not installed (make peers)")
xr = pytest.importorskip("xarray")

pytestmark = pytest.mark.filterwarnings("ignore")


def waves(scores, lat, lon, numbers, rng):
    """Waves of these wave numbers round the globe times scores (time, 4), and noise, (time, lat, lon)."""
    patterns = [np.cos(np.radians(k * lon + 3 * lat[:, None])) for k in numbers]
    values = np.tensordot(scores, patterns, axes=1)
    return xr.DataArray(
        values + 0.1 * rng.normal(size=values.shape) + 280 + lat[:, None] / 10,
        dims=("time", "lat", "lon"),
        coords={"time": np.arange(len(scores)), "lat": ("lat", lat, {"units": "degrees_north"}), "lon": lon},
    )


@pytest.fixture(scope="module")
def fields():
    """Four waves of different strength over a grid with land, and in another order and unit over a coarser one without."""
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(80, 4)) * [8, 4, 2, 1]
    sst = waves(scores, np.linspace(-70, 70, 15), np.arange(0, 360, 15.0), (1, 2, 3, 4), rng).rename("sst")
    sst[:, 5:8, 3:9] = np.nan
    slp = waves(scores, np.linspace(-80, 80, 9), np.arange(0, 360, 30.0), (4, 1, 3, 2), rng).rename("slp")
    return {"sst": sst, "slp": 20 * slp}


@pytest.fixture
def field(fields):
    return fields["sst"]


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


CONFIG = """
input:
  - {name: sst, uri: sst.nc, array: sst, samples_axis: time}
  - {name: slp, uri: slp.nc, array: slp, samples_axis: time}
"""


@pytest.mark.parametrize("block_scaling", ["none", "first_eigenvalue"])
@pytest.mark.parametrize("standardized", [True, False])
@pytest.mark.parametrize("weighted", [True, False])
def test_of_several_variables_too(fields, weighted, standardized, block_scaling):
    settings = {"use_coslat": weighted, "standardize": standardized, "solver": "full"}
    factors = dict.fromkeys(fields, 1.0)
    if block_scaling == "first_eigenvalue":  # xeofs has none: the weights of a variable are all one number
        for name, one in fields.items():
            largest = xeofs.single.EOF(n_modes=1, **settings).fit(one, dim="time").explained_variance()
            factors[name] = float(largest[0]) ** -0.5
    weights = [xr.full_like(one[0], factors[name]) for name, one in fields.items()]
    theirs = xeofs.single.EOF(n_modes=4, **settings).fit(list(fields.values()), dim="time", weights=weights)
    for name, one in fields.items():
        one.to_netcdf(f"{name}.nc", engine="h5netcdf")
    Path("c.yaml").write_text(
        CONFIG + f"preprocess: {{missing: mean, weights: {'sqrt_cos_lat' if weighted else 'null'}, "
        f"scale: {'std' if standardized else 'none'}, block_scaling: {block_scaling}}}\n"
        "model: {n_components: 4}\noutput: {path: r, report: false}\n"
    )
    assert dpca("run", "c.yaml") == 0
    ours = xr.open_zarr("r/result.zarr").load()
    # xeofs standardizes with divisor n; the leading variance of a variable, where it is divided by, has that divisor, too.
    ratio = len(ours.time) / (len(ours.time) - 1) if standardized and block_scaling == "none" else 1.0
    right = {"rtol": 1e-11, "atol": 0}
    np.testing.assert_allclose(ours.singular_values * np.sqrt(ratio), theirs.singular_values(), **right)
    np.testing.assert_allclose(ours.explained_variance * ratio, theirs.explained_variance(), **right)
    np.testing.assert_allclose(ours.explained_variance_ratio, theirs.explained_variance_ratio(), **right)
    their_scores = theirs.scores(normalized=False).transpose("time", "mode").values
    signs = np.sign((ours.scores.values * their_scores).sum(axis=0))
    found = ours.scores.values * np.sqrt(ratio)
    np.testing.assert_allclose(found, signs * their_scores, rtol=0, atol=1e-11 * np.abs(their_scores).max())
    for name, their_components in zip(fields, theirs.components(), strict=True):
        components = ours[f"components_{name}"].values
        np.testing.assert_allclose(components, signs[:, None, None] * their_components, rtol=0, atol=1e-11)
        share = np.nansum(their_components.values**2, axis=(1, 2))
        np.testing.assert_allclose(ours.variance_share.sel(group=name), share, rtol=0, atol=1e-11)
        land = np.isnan(fields[name][0].values)
        assert (np.isnan(components) == land).all()
