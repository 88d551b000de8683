"""What is missing: features without any value, masks, marks and valid ranges, means that keep their digits."""

import dask.array as da
import h5py
import numpy as np
import pytest
import zarr

from dpca import PCA, KernelPCA
from dpca.errors import DataError
from dpca.numerics.panels import Rules
from dpca.sources import open_source
from tests.runs import decompose_array


def with_holes(shape=(12, 40), share=0.1, seed=0):
    g = np.random.default_rng(seed)
    x = g.normal(size=shape)
    return x, g.random(shape) < share


def filled(x, mask):
    return np.where(mask, np.nan, x)


def values_of(x, **how):
    return PCA(3, missing="mean", **how).fit(x).singular_values_


@pytest.mark.parametrize("shape", [(60, 500), (300, 40)])
def test_features_without_any_value_are_no_features(shape):
    """Not to the likelihood, nor to rules about noise, nor to a default gamma, nor to the rank."""
    n, d = shape
    x = np.random.default_rng(0).normal(size=shape)
    wide = np.full((n, 4 * d), np.nan)
    wide[:, 1::4] = x
    fitted, alone = PCA(3, missing="mean").fit(wide), PCA(3).fit(x)
    np.testing.assert_allclose(fitted.score(wide), alone.score(x), rtol=1e-12)
    np.testing.assert_allclose(fitted.noise_variance_, alone.noise_variance_, rtol=1e-12)
    assert fitted.certificate_["n_components"]["suggested"] == alone.certificate_["n_components"]["suggested"]
    assert fitted.certificate_["largest_rank"] == alone.certificate_["largest_rank"]
    kernel = KernelPCA(2, kernel="rbf", missing="mean").fit(wide)
    assert kernel.gamma_ == 1 / d
    np.testing.assert_allclose(kernel.eigenvalues_, KernelPCA(2, kernel="rbf").fit(x).eigenvalues_, rtol=1e-12)


def test_more_components_than_features_with_values_are_zeros():
    x = np.full((20, 6), np.nan)
    x[:, :3] = np.random.default_rng(0).normal(size=(20, 3))
    fitted = PCA(5, missing="mean").fit(x)
    assert (fitted.singular_values_ > 0).sum() == 3
    assert fitted.certificate_["largest_rank"] == 3


@pytest.mark.parametrize("dtype", ["f8", "f4", "i2"])
@pytest.mark.parametrize("lazy", [False, True])
def test_what_is_masked_is_missing(dtype, lazy):
    x, mask = with_holes()
    x = (100 * x).astype(dtype)
    wanted = values_of(filled(x.astype(float), mask))
    x[mask] = 30000
    masked = np.ma.masked_array(x, mask)
    if lazy:
        masked = da.ma.masked_array(da.from_array(x, chunks=(12, 7)), mask=da.from_array(mask, chunks=(12, 7)))
    np.testing.assert_allclose(values_of(masked), wanted, rtol=1e-5 if dtype != "f8" else 1e-12)
    with pytest.raises(DataError, match=f"{mask.sum()} missing values|missing values"):
        PCA(3).fit(masked)
    np.testing.assert_allclose(values_of(np.ma.masked_array(x)), values_of(x), rtol=1e-6)


def test_new_samples_may_be_masked():
    x, mask = with_holes()
    fitted = PCA(3, missing="mean").fit(filled(x, mask))
    expected = fitted.transform(filled(x, mask))
    x[mask] = 1e20
    np.testing.assert_allclose(fitted.transform(np.ma.masked_array(x, mask)), expected)


def test_a_mask_that_a_dask_array_did_not_announce_is_refused():
    x = da.from_array((100 * with_holes()[0]).astype("i4"), chunks=(12, 10))
    surprise = x.map_blocks(lambda b: np.ma.masked_array(b, b > 100), meta=np.empty((0, 0), "i4"))
    with pytest.raises(DataError, match="masked, but its meta is not"):
        PCA(3, missing="mean").fit(surprise)


@pytest.mark.parametrize("kind", ["hdf5", "zarr", "copied"])
def test_integers_that_netcdf_says_are_unsigned_are(kind):
    x = np.random.default_rng(0).integers(0, 256, (12, 40), "u1")
    attributes = {"_Unsigned": "true", "_FillValue": -1}
    if kind == "hdf5":
        with h5py.File("x.nc", "w") as file:
            file.create_dataset("x", data=x.view("i1"), chunks=(5, 8), compression="gzip")
            file["x"].attrs.update({"_Unsigned": np.bytes_("true"), "_FillValue": np.int8(-1)})
    else:
        zarr.create_array("x.nc", data=x.view("i1"), chunks=(5, 8)).attrs.update(attributes)
    source = open_source("x.nc")
    assert (source.layout.dtype, source.layout.missing_values) == (np.uint8, (255.0,))
    if kind == "copied":
        from dpca.planning.rechunk import copy_in

        copy = copy_in(source.layout, (0,), (12, 10))
        copy.create("copy.zarr")
        with source.open() as reader:
            zarr.open_array("copy.zarr", mode="r+")[...] = reader.read((slice(0, 12), slice(0, 40)))
        source = copy.open("copy.zarr")
    found = decompose_array(source, 3, rules=Rules(missing="mean"))
    assert found.counts["missing_values"] == (x == 255).sum()
    np.testing.assert_allclose(found.spectrum.singular_values, values_of(filled(x.astype(float), x == 255)), rtol=1e-6)


RANGES = {
    "valid_range": ({"valid_range": np.array([10, 200], "i2")}, (10, 200)),
    "valid_min": ({"valid_min": np.int16(10)}, (10, 1000)),
    "valid_max": ({"valid_max": np.int16(200)}, (-1000, 200)),
    "both": ({"valid_min": np.int16(10), "valid_max": np.int16(200)}, (10, 200)),
    "unpacked": ({"valid_range": np.array([1.0, 20.0]), "scale_factor": 0.1, "add_offset": 0.0}, (10, 200)),
    "unpacked, negative factor": (
        {"valid_min": np.float64(-20.0), "valid_max": np.float64(-1.0), "scale_factor": -0.1, "add_offset": 0.0},
        (10, 200),
    ),
}


@pytest.mark.parametrize("name", RANGES)
def test_values_outside_the_valid_range_of_a_file_are_missing(name):
    attributes, (low, high) = RANGES[name]
    x = np.random.default_rng(0).integers(0, 256, (12, 40)).astype("i2")
    with h5py.File("x.nc", "w") as file:
        file.create_dataset("x", data=x).attrs.update(attributes)
    outside = (x < low) | (x > high)
    found = decompose_array(open_source("x.nc"), 3, rules=Rules(missing="mean"))
    assert found.counts["missing_values"] == outside.sum()
    factor = attributes.get("scale_factor", 1.0)
    np.testing.assert_allclose(
        found.spectrum.singular_values, abs(factor) * values_of(filled(x.astype(float), outside)), rtol=1e-6
    )
    with pytest.raises(DataError, match="outside the valid range"):
        decompose_array(open_source("x.nc"), 3)


@pytest.mark.parametrize("offset", [1e8, 1e12])
@pytest.mark.parametrize("shape", [(30, 200), (200, 30)])
def test_missing_values_are_filled_with_a_mean_that_keeps_its_digits(offset, shape):
    x, mask = with_holes(shape)
    far = filled(offset + x, mask)
    near = far - offset
    np.testing.assert_allclose(values_of(far), values_of(near), rtol=1e-13)


def test_samples_that_are_all_equal_have_no_components():
    for x in (np.full((6, 40), 3.7), np.full((6, 40), 3.7, "f4"), np.full((60, 4), 3.7), np.full((3, 50), 1e9 / 3)):
        fitted = PCA(2).fit(x)
        assert (fitted.singular_values_ == 0).all()
        assert fitted.certificate_["rank"] == 0
        assert (fitted.explained_variance_ratio_ == 0).all()


def test_what_is_constant_is_the_same_to_gram_matrix_and_covariance():
    x = 1e8 + 1e-6 * np.random.default_rng(0).normal(size=(8, 100))
    ranks = {
        solver: PCA(7, scale="std", svd_solver=solver).fit(x).certificate_["rank"]
        for solver in ("gram_eigh", "covariance_eigh")
    }
    assert ranks == {"gram_eigh": 7, "covariance_eigh": 7}
    x[:, :90] = 1e8 / 3
    for solver in ("gram_eigh", "covariance_eigh"):
        found = decompose_array(x, 7, rules=Rules(scale="std"), solver=solver)
        assert found.counts["constant_features"] == 90
        assert found.spectrum.rank == 7


def test_a_constant_of_any_size_beside_other_features_takes_nothing_from_them():
    """Such as a time in nanoseconds: what rounding leaves of its mean is larger than they are."""
    g = np.random.default_rng(0)
    x = g.normal(size=(12, 300))
    wide = np.column_stack([np.full(12, 1.6e18 / 3), x, np.full(12, -1e15 / 7)])
    for given in (x.astype("f4"), x):
        far = wide.astype(given.dtype)
        found, alone = PCA(5).fit(far), PCA(5).fit(given)
        np.testing.assert_allclose(
            found.singular_values_, alone.singular_values_, rtol=1e-6 if given.itemsize == 4 else 1e-13
        )
        assert found.certificate_["reliable_components"] == 5
    tall = np.column_stack([np.full(300, 1.6e18 / 3), g.normal(size=(300, 12))])
    np.testing.assert_allclose(PCA(5).fit(tall).singular_values_, PCA(5).fit(tall[:, 1:]).singular_values_, rtol=1e-12)


@pytest.mark.parametrize(("mark", "plausible"), [(0.0, True), (-99.0, False)])
@pytest.mark.parametrize("shape", [(6, 40), (40, 6)])
def test_a_mark_that_may_be_a_value_is_counted(tmp_path, shape, mark, plausible):
    x = np.random.default_rng(0).integers(-9, 9, shape).astype("f4")
    x[x == 0] = mark
    np.save(tmp_path / "x.npy", x)
    source = open_source(tmp_path / "x.npy", missing_values=[mark])
    found = decompose_array(source, 3, rules=Rules(missing="mean"), n_spans=3)
    assert found.counts["missing_values"] == (x == mark).sum()
    assert found.counts["plausible_marks"] == ((x == mark).sum() if plausible else 0)


FIELDS = np.random.default_rng(0).normal(size=(12, 5, 6)) + 3
LAND = np.zeros((5, 6), bool)
LAND[1:3, 2] = LAND[4, 0] = True


@pytest.mark.parametrize("few", [False, True], ids=["features stream", "samples stream"])
@pytest.mark.parametrize("of", [PCA, KernelPCA])
@pytest.mark.parametrize("scale", ["none", "std"])
def test_land_is_left_out_and_a_gap_is_refused(few, of, scale):
    x = np.repeat(FIELDS, 8, axis=0) + np.random.default_rng(1).normal(size=(96, 1, 1)) if few else FIELDS.copy()
    x[:, LAND] = np.nan
    model = of(3, missing="land", scale=scale, precision="double")
    found = model.fit(x)
    flat = x[:, ~LAND]
    centred = (flat - flat.mean(axis=0)) / (flat.std(axis=0, ddof=1) if scale == "std" else 1)
    s = np.linalg.svd(centred, compute_uv=False)[:3]
    np.testing.assert_allclose(np.asarray(found._result.arrays["singular_values"][...]), s, rtol=1e-9)
    x[7, 3, 3] = np.nan
    with pytest.raises(
        DataError, match=r"(1 missing values.*index \[7, 3, 3\]|1 of 30 features miss some)(.|\n)*missing='mean'"
    ):
        model.fit(x)


@pytest.mark.parametrize("shape", [(9, 60), (60, 9)])
def test_samples_without_any_value_are_told_of_since_variances_count_them(shape):
    """Cells of land, where samples are cells."""
    x, mask = with_holes(shape)
    mask[[2, 5]] = True
    with pytest.warns(UserWarning, match=r"2 of \d+ samples have no value, or lie at the mean of all \(2, 5\)"):
        PCA(3, missing="mean").fit(filled(x, mask))


def test_samples_with_a_value_are_not_said_to_have_none(recwarn):
    PCA(3, missing="mean").fit(filled(*with_holes(share=0.5)))
    assert not recwarn.list
