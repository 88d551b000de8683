"""Several arrays of the same samples in Python: dicts and Datasets in, the same out; and weights of samples."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpca import PCA, KernelPCA
from dpca.errors import ConfigError, DataError, InputError
from tests.drawn import examples
from tests.stores import random_array

N = 14


@pytest.fixture
def arrays():
    return {"wind": random_array(0, (N, 6, 7), "f8"), "sites": random_array(1, (N, 90), "f4").astype("f8")}


def side_by_side(arrays):
    return np.hstack([array.reshape(len(array), -1) for array in arrays.values()])


def test_a_dict_is_its_arrays_side_by_side(arrays):
    several, one = PCA(4).fit(arrays), PCA(4, svd_solver="gram_eigh").fit(side_by_side(arrays))
    np.testing.assert_allclose(several.singular_values_, one.singular_values_, rtol=1e-12)
    assert {name: array.shape for name, array in several.components_.items()} == {"wind": (4, 6, 7), "sites": (4, 90)}
    assert all(isinstance(array, np.ndarray) for array in several.components_.values())
    flat = np.hstack([array.reshape(4, -1) for array in several.components_.values()])
    np.testing.assert_allclose(flat, one.components_, atol=1e-10)
    np.testing.assert_allclose(several.variance_share_.sum(axis=0), 1, rtol=1e-10)
    np.testing.assert_allclose(several.transform(arrays), one.transform(side_by_side(arrays)), atol=1e-10)
    np.testing.assert_allclose(several.score_samples(arrays), one.score_samples(side_by_side(arrays)), rtol=1e-9)
    np.testing.assert_allclose(several.get_covariance(), one.get_covariance(), atol=1e-10)
    assert several.n_features_in_ == 6 * 7 + 90


@pytest.mark.parametrize("scaling", ["first_eigenvalue", "total_variance"])
def test_all_components_give_all_arrays_back(arrays, scaling):
    weights = {"sites": np.linspace(0.5, 2, 90)}
    pca = PCA(N - 1, block_scaling=scaling, scale="std", weights=weights).fit(arrays)
    back = pca.inverse_transform(pca.transform(arrays))
    for name, array in arrays.items():
        np.testing.assert_allclose(back[name], array, atol=1e-10)
    np.testing.assert_array_equal(pca.weights_["sites"], weights["sites"])


@pytest.mark.parametrize("in_order", [True, False])
def test_a_fit_of_several_is_saved_loaded_and_pickled(arrays, tmp_path, in_order):
    pca = PCA(3, block_scaling="first_eigenvalue", filters={"mask": {"sites": np.arange(90) > 5}}).fit(arrays)
    scores = pca.transform(arrays)
    new = arrays if in_order else dict(reversed(arrays.items()))
    pca.save(tmp_path / "saved")
    loaded = PCA.load(tmp_path / "saved")
    assert loaded.block_scaling == "first_eigenvalue"
    assert np.isnan(np.asarray(loaded.components_["sites"])[:, :6]).all()
    for other in (loaded, pickle.loads(pickle.dumps(pca)), pickle.loads(pickle.dumps(loaded))):
        np.testing.assert_allclose(other.transform(new), scores, atol=1e-12)
        back = other.inverse_transform(scores)
        np.testing.assert_allclose(back["wind"], pca.inverse_transform(scores)["wind"], atol=1e-12)
    again = PCA(**loaded.get_params()).fit(arrays)
    np.testing.assert_allclose(again.singular_values_, pca.singular_values_, rtol=1e-10)


def test_the_only_array_of_a_dict_is_that_array(arrays):
    x, weights = arrays["sites"], np.linspace(1, 3, 90)
    one = PCA(2, weights={"sites": weights}, filters={"mask": {"sites": weights > 1.1}}).fit({"sites": x})
    expected = PCA(2, weights=weights, filters={"mask": weights > 1.1}).fit(x)
    np.testing.assert_allclose(one.singular_values_, expected.singular_values_, rtol=1e-12)
    assert one.components_.shape == (2, 90)


def test_chunked_arrays_stay_lazy(arrays, tmp_path):
    zarr, da = pytest.importorskip("zarr"), pytest.importorskip("dask.array")
    given = {
        "wind": zarr.create_array(tmp_path / "w.zarr", data=arrays["wind"], chunks=(N, 2, 7)),
        "sites": da.from_array(arrays["sites"], chunks=(5, 30)),
    }
    pca = PCA(3, store=tmp_path / "fits").fit(given)
    assert hasattr(pca.components_["wind"], "compute")
    np.testing.assert_allclose(pca.transform(given), PCA(3).fit(arrays).transform(arrays), atol=1e-10)
    assert pca.inverse_transform(pca.transform(arrays))["sites"].compute().shape == (N, 90)


def test_a_dataset_comes_back_as_one():
    xr = pytest.importorskip("xarray")
    times = np.datetime64("2001-01-01") + np.arange(N)
    grid = {"lat": np.linspace(-60, 60, 5), "lon": np.arange(0, 360, 60.0)}
    data = xr.Dataset(
        {
            "tas": (("time", "lat", "lon"), random_array(0, (N, 5, 6), "f8"), {"units": "K"}),
            "rain": (("y", "time"), random_array(1, (9, N), "f8")),
        },
        coords={"time": times, **grid},
    )
    pca = PCA(N - 1, samples_axis="time", weights={"tas": "sqrt_cos_lat"}, block_scaling="total_variance").fit(data)
    scores = pca.transform(data.isel(time=slice(2, 6)))
    assert scores.dims == ("time", "component")
    np.testing.assert_array_equal(scores.time, times[2:6])
    back = pca.inverse_transform(scores)
    xr.testing.assert_allclose(back, data.isel(time=slice(2, 6)))
    assert back.tas.attrs == {"units": "K"}
    found = pca.to_xarray()
    assert found.components_tas.dims == ("component", "tas_lat", "tas_lon")
    np.testing.assert_array_equal(found.tas_lat, grid["lat"])
    assert found.mean_tas.attrs["units"] == "K"
    weighted = (data.tas - data.tas.mean("time")) * np.sqrt(np.cos(np.deg2rad(data.lat)))
    parts = [weighted.values.reshape(N, -1), (data.rain - data.rain.mean("time")).values.T]
    parts = [part / np.sqrt((part**2).sum() / (N - 1)) for part in parts]
    s = np.linalg.svd(np.hstack(parts), compute_uv=False)
    np.testing.assert_allclose(pca.singular_values_, s[: N - 1], rtol=1e-10)
    one = PCA(2, samples_axis="time").fit(data[["tas"]])  # a Dataset of one variable is that variable
    assert one.components_.shape == (2, 5, 6)


@pytest.mark.parametrize("turned", [False, True])
def test_variables_on_one_grid_share_its_dimensions(turned):
    xr = pytest.importorskip("xarray")
    grid = {"lat": np.linspace(-60, 60, 5), "lon": np.arange(0, 360, 60.0)}
    one, two = (xr.DataArray(random_array(n, (N, 5, 6), "f8"), coords={"time": range(N), **grid}) for n in range(2))
    other = two.isel(lat=slice(None, None, -1)) if turned else two
    found = PCA(2, samples_axis="time").fit({"one": one, "two": other}).to_xarray()
    lats = ("one_lat", "two_lat") if turned else ("lat", "lat")
    for name, lat in zip(("one", "two"), lats, strict=True):
        assert found[f"components_{name}"].dims == ("component", lat, "lon")
        np.testing.assert_array_equal(found[lat], {"one": one, "two": other}[name]["lat"])
    product = found.mean_one * found.mean_two
    assert product.ndim == (3 if turned else 2)
    if not turned:
        np.testing.assert_allclose(product, one.mean("time") * two.mean("time"), atol=1e-14)


def test_the_components_of_a_loaded_fit_have_the_coordinates_of_a_dataset(tmp_path):
    xr = pytest.importorskip("xarray")
    data = xr.Dataset(
        {name: (("time", "lat"), random_array(n, (N, 8), "f8")) for n, name in enumerate("ab")},
        coords={"time": np.arange(N) * 2, "lat": np.arange(8) * 10.0},
    )
    pca = PCA(2, samples_axis="time").fit(data)
    pca.save(tmp_path / "saved")
    loaded = PCA.load(tmp_path / "saved")
    xr.testing.assert_allclose(
        loaded.inverse_transform(pca.transform(data)), pca.inverse_transform(pca.transform(data))
    )


def test_what_can_not_be_side_by_side_is_refused(arrays):
    pca = PCA(2).fit(arrays)
    with pytest.raises(InputError, match=r"X has one array, but was fitted to 'sites' and 'wind'"):
        pca.transform(arrays["wind"])
    with pytest.raises(InputError, match=r"X has 'sites' and 'winds', but was fitted to 'sites' and 'wind'"):
        pca.transform({"winds": arrays["wind"], "sites": arrays["sites"]})
    with pytest.raises(InputError, match="has 9 samples along axis 0, but wind, .* has 14"):
        PCA(2).fit({**arrays, "sites": arrays["sites"][:9]})
    with pytest.raises(InputError, match="an array of the name 'a b'"):
        PCA(2).fit({"a b": arrays["wind"], "b": arrays["sites"]})
    with pytest.raises(InputError, match="X is empty"):
        PCA(2).fit({})
    with pytest.raises(ConfigError, match="X has several arrays, but weights or .* is one, ndarray"):
        PCA(2, weights=np.ones(90)).fit(arrays)
    with pytest.raises(InputError, match="sites: .*(3,)"):
        PCA(2, weights={"sites": np.ones(3)}).fit(arrays)
    for wrong in ({"weights": {"site": np.ones(90)}}, {"filters": {"mask": {"site": np.ones(90, bool)}}}):
        with pytest.raises(ConfigError, match="is for site, but X has wind, sites"):
            PCA(2, **wrong).fit(arrays)
    with pytest.raises(ConfigError, match="is for sites, but X is one array"):
        PCA(2, weights={"sites": np.ones(90)}).fit(arrays["sites"])
    with pytest.raises(ConfigError, match="which scales inputs against each other, but there is one"):
        PCA(2, block_scaling="total_variance").fit(arrays["sites"])
    with pytest.raises(InputError, match="X has 'sites', but was fitted to 'sites' and 'wind'"):
        pca.transform({"sites": arrays["sites"]})
    with pytest.raises(DataError, match="sites, the NumPy array: 1 missing"):
        PCA(2).fit({**arrays, "sites": np.where(np.arange(N)[:, None] * np.arange(90) == 1, np.nan, arrays["sites"])})
    with pytest.raises(ConfigError, match="block_scaling is 'mfa'"):
        PCA(2, block_scaling="mfa").fit(arrays)
    with pytest.raises(InputError, match="holds wind, sites"):
        KernelPCA(2).fit(arrays)


# Weights of samples.


@examples(6)
@given(st.integers(0, 2**20), st.sampled_from(["f4", "f8", "i2"]), st.sampled_from(["none", "std"]))
def test_a_weight_is_a_number_of_equal_samples(seed, dtype, scale):
    rng = np.random.default_rng(seed)
    x, weights = random_array(seed, (9, 25), dtype), rng.integers(0, 4, 9)
    weights[rng.integers(0, 9, 3)] += 1
    repeated = np.repeat(x, weights, axis=0)
    if (weights > 0).sum() < 4:
        return
    how = {"scale": scale, "precision": "double"}
    weighted, one = PCA(2, **how).fit(x, sample_weight=weights), PCA(2, **how).fit(repeated)
    np.testing.assert_allclose(weighted.explained_variance_, one.explained_variance_, rtol=1e-9)
    np.testing.assert_allclose(weighted.mean_, one.mean_, atol=1e-10)
    np.testing.assert_allclose(weighted.explained_variance_ratio_, one.explained_variance_ratio_, rtol=1e-9)
    if one.singular_values_[0] > 1.05 * one.singular_values_[1]:
        np.testing.assert_allclose(np.abs(weighted.transform(x)[:, 0]), np.abs(one.transform(x)[:, 0]), atol=1e-7)
    np.testing.assert_allclose(PCA(2, **how).fit_transform(x, sample_weight=weights), weighted.transform(x), atol=1e-9)


def test_reliabilities_have_no_scale(tmp_path):
    x, weights = random_array(0, (12, 30), "f8"), np.random.default_rng(0).uniform(0.5, 3, 12)
    first, second = (PCA(3, sample_weight_kind="reliability").fit(x, sample_weight=k * weights) for k in (1, 7))
    np.testing.assert_allclose(first.explained_variance_, second.explained_variance_, rtol=1e-12)
    first.save(tmp_path / "saved")
    loaded = PCA.load(tmp_path / "saved")
    assert loaded.sample_weight_kind == "reliability"
    np.testing.assert_array_equal(loaded.to_xarray().sample_weights, weights)
    np.testing.assert_allclose(loaded.transform(x), first.transform(x), atol=1e-12)


def test_weights_of_labelled_samples_belong_to_them():
    xr = pytest.importorskip("xarray")
    x = xr.DataArray(random_array(0, (12, 30), "f8"), dims=("day", "y"), coords={"day": np.arange(12)})
    weights = xr.DataArray(np.arange(1.0, 13), dims="day", coords={"day": np.arange(12)})
    pca = PCA(2, samples_axis="day").fit(x, sample_weight=weights)
    assert pca.fit_transform(x, sample_weight=weights.where(weights > 3, 0)).dims == ("day", "component")
    with pytest.raises(InputError, match="sample 0 of .* is 11, but 0 in X.*: the samples are in another order"):
        pca.fit(x, sample_weight=weights[::-1])


@pytest.mark.parametrize(
    ("weights", "told"),
    [
        (np.ones(5), r"sample_weight has shape \(5,\), but X has 12 samples"),
        (np.ones((12, 1)), r"sample_weight has shape \(12, 1\)"),
        (np.zeros(12), "sample_weight: all weights are zero"),
        (-np.ones(12), "the weight of sample 0 is -1"),
        (np.full(12, np.nan), "the weight of sample 0 is nan"),
    ],
    ids=str,
)
def test_weights_that_can_not_be_are_refused(weights, told):
    with pytest.raises((InputError, ConfigError), match=told):
        PCA(2).fit(random_array(0, (12, 30), "f8"), sample_weight=weights)
