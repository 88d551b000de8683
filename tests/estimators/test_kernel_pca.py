"""dpca.KernelPCA against scikit-learn's, PCA, and feature maps that can be written out."""

import pickle

import dask.array as da
import h5py
import numpy as np
import pytest
import xarray as xr
import zarr
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_matrix
from sklearn.base import clone
from sklearn.decomposition import PCA as SklearnPCA
from sklearn.decomposition import KernelPCA as SklearnKernelPCA
from sklearn.exceptions import NotFittedError
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.preprocessing import StandardScaler

import dpca
from dpca import KernelPCA
from dpca.errors import ConfigError, DataError, InputError
from dpca.methods import training
from dpca.methods.kernel_decomposition import caveats_of_kernels
from tests.clusters import local_cluster
from tests.drawn import examples
from tests.estimators.checks import all_checks_of
from tests.stores import counted, random_array


@all_checks_of(KernelPCA(2, kernel="rbf", fit_inverse_transform=True), KernelPCA())
def test_scikit_learns_checks(estimator, check):
    check(estimator)


def gammas(x):
    """At which kernels are neither the identity nor saturated."""
    distances = ((x[:, None] - x) ** 2).sum(-1)
    return {
        "rbf": 1 / np.median(distances[distances > 0]),
        "poly": 1 / np.abs(x @ x.T).max(),
        "sigmoid": 0.3 / np.abs(x @ x.T).max(),
    }


def compare(kernel, x, new, k=4, *, tolerance=1e-9, **keys):
    """Scores, those of new samples and pre-images are scikit-learn's, up to signs."""
    # A ridge that is far below the kernel of the scores would make the regression as good as singular.
    alpha = 1e-2 * np.abs(x @ x.T).max() if kernel == "linear" else 0.1
    given = {"gamma": gammas(x).get(kernel), "alpha": alpha, "fit_inverse_transform": True, **keys}
    ours = KernelPCA(k, kernel=kernel, **given)
    theirs = SklearnKernelPCA(k, kernel=kernel, eigen_solver="dense", **given)
    scores, expected = ours.fit_transform(x), theirs.fit_transform(x)
    separated = np.diff(theirs.eigenvalues_) / theirs.eigenvalues_[0]
    assert (separated < -1e-4).all(), "choose data whose eigenvalues differ"
    size = np.abs(expected).max()
    np.testing.assert_allclose(ours.eigenvalues_, theirs.eigenvalues_, rtol=tolerance)
    np.testing.assert_allclose(np.abs(scores), np.abs(expected), atol=tolerance * size)
    signs = np.sign((scores * expected).sum(0))
    projected = ours.transform(new)
    np.testing.assert_allclose(projected * signs, theirs.transform(new), atol=tolerance * size)
    np.testing.assert_allclose(ours.transform(x), scores, atol=tolerance * size)
    np.testing.assert_allclose(
        ours.inverse_transform(projected),
        theirs.inverse_transform(theirs.transform(new)),
        atol=10 * tolerance * np.abs(x).max(),
    )


KERNELS = ["linear", "poly", "rbf", "sigmoid", "cosine"]


@pytest.mark.parametrize("kernel", KERNELS)
def test_random_data_as_scikit_learn(kernel):
    rng = np.random.default_rng(1)
    x = rng.normal(size=(60, 200)) * np.geomspace(3, 0.1, 200) + rng.normal(size=200)
    compare(kernel, x[:45], x[45:])


@pytest.mark.parametrize("kernel", ["rbf", "cosine"])
def test_faces_as_scikit_learn(kernel, shared_data):
    faces = np.load(shared_data("orl-faces") / "faces_400x10304_u8.npy")[::4].astype(float)
    compare(kernel, faces[:80], faces[80:])


@pytest.mark.parametrize("kernel", ["linear", "poly", "sigmoid"])
def test_golub_as_scikit_learn(kernel, shared_data):
    values = np.load(shared_data("golub-expression") / "expression_72x7129_f64.npy")
    compare(kernel, values[:60], values[60:])


@pytest.mark.parametrize("kernel", ["poly", "rbf"])
@pytest.mark.parametrize("center", [False, True])
def test_scaled_features_as_a_pipeline_of_scikit_learn(kernel, center):
    """`center` is whether the kernel sees the means; a constant feature stays as it is."""
    x = random_array(3, (40, 30), "f8")
    x[:, 4] = 7.0
    scaler = StandardScaler(with_mean=center).fit(x)
    given = {"gamma": 0.02, "fit_inverse_transform": True, "alpha": 0.5}
    theirs = SklearnKernelPCA(3, kernel=kernel, eigen_solver="dense", **given).fit(scaler.transform(x))
    ours = KernelPCA(3, kernel=kernel, center=center, scale="std", ddof=0, **given).fit(x)
    expected = theirs.transform(scaler.transform(x[:7]))
    np.testing.assert_allclose(np.abs(ours.transform(x[:7])), np.abs(expected), atol=1e-10)
    back = scaler.inverse_transform(theirs.inverse_transform(expected))
    np.testing.assert_allclose(ours.inverse_transform(ours.transform(x[:7])), back, atol=1e-9)


def test_missing_values_are_the_features_mean():
    x = random_array(3, (20, 30), "f8")
    x[3, 4] = x[7, 8] = np.nan
    filled = np.where(np.isnan(x), np.nanmean(x, axis=0), x)
    ours = KernelPCA(3, kernel="rbf", missing="mean").fit(x)
    expected = KernelPCA(3, kernel="rbf").fit(filled)
    np.testing.assert_allclose(ours.eigenvalues_, expected.eigenvalues_, rtol=1e-12)
    np.testing.assert_allclose(ours.transform(x), expected.transform(filled), atol=1e-12)
    with pytest.raises(DataError, match="missing values"):
        KernelPCA(3, kernel="rbf").fit(x)


STORED = ["NumPy", "Dask", "Zarr", "HDF5"]


@examples(10)
@given(
    n=st.integers(4, 30),
    m=st.integers(1, 12),
    features=st.sampled_from([(50,), (6, 17), (300,)]),
    dtype=st.sampled_from(["f4", "f8", "u1", "i2"]),
    kind=st.sampled_from(STORED),
    axis=st.sampled_from([0, -1]),
    kernel=st.sampled_from(KERNELS),
    seed=st.integers(0, 5),
)
def test_any_source_shape_and_dtype(n, m, features, dtype, kind, axis, kernel, seed, tmp_path_factory):
    place = tmp_path_factory.mktemp("any")
    x, new = random_array(seed, (n, *features), dtype), random_array(seed + 10, (m, *features), dtype)
    flat = np.concatenate([x, new]).reshape(n + m, -1).astype(float)
    given = {"gamma": gammas(flat[:n]).get(kernel)}
    k = 2
    theirs = SklearnKernelPCA(k, kernel=kernel, eigen_solver="dense", **given).fit(flat[:n])
    chunks = (max(1, n // 2), *(max(1, length // 2) for length in features))

    def stored(name, values):
        values = np.moveaxis(values, 0, axis)
        ordered = chunks if axis == 0 else (*chunks[1:], chunks[0])
        ordered = tuple(min(a, b) for a, b in zip(ordered, values.shape, strict=True))
        if kind == "Dask":
            return da.from_array(values, chunks=ordered)
        if kind == "Zarr":
            return zarr.create_array(str(place / f"{name}.zarr"), data=values, chunks=ordered)
        if kind == "HDF5":
            file = h5py.File(place / f"{name}.h5", "w")
            return file.create_dataset("x", data=values, chunks=ordered, compression="gzip")
        return values

    ours = KernelPCA(k, kernel=kernel, samples_axis=axis % (1 + len(features)), **given)
    scores = ours.fit_transform(stored("x", x))
    single = dtype != "f8"
    size = np.sqrt(theirs.eigenvalues_[0])
    expected = theirs.transform(flat[:n])
    gap = (theirs.eigenvalues_[0] - theirs.eigenvalues_[1]) / theirs.eigenvalues_[0]
    noise = (1e-5 if single else 1e-9) / max(gap, 1e-9)
    np.testing.assert_allclose(np.abs(scores[:, 0]), np.abs(expected[:, 0]), atol=noise * size)
    projected = np.abs(theirs.transform(flat[n:])[:, 0])
    np.testing.assert_allclose(np.abs(ours.transform(stored("new", new))[:, 0]), projected, atol=noise * size)


def test_a_shift_that_single_precision_holds_exactly_changes_nothing():
    """On a grid of 1/64, shifted by 2^14: distances keep their digits, which X X' in single precision would lose."""
    rng = np.random.default_rng(0)
    x = (np.round(rng.normal(size=(50, 4000)) * 64) / 64).astype(np.float32)
    shifted = x + np.float32(2**14)
    np.testing.assert_array_equal(shifted - np.float32(2**14), x)
    gamma = 1 / (2 * 4000)
    plain = KernelPCA(5, kernel="rbf", gamma=gamma, precision="single").fit(x)
    moved = KernelPCA(5, kernel="rbf", gamma=gamma, precision="single").fit(shifted)
    exact = SklearnKernelPCA(5, kernel="rbf", gamma=gamma, eigen_solver="dense").fit(x.astype(float))
    np.testing.assert_allclose(plain.eigenvalues_, exact.eigenvalues_, rtol=1e-6)
    np.testing.assert_allclose(moved.eigenvalues_, exact.eigenvalues_, rtol=1e-6)
    np.testing.assert_allclose(np.abs(moved.transform(shifted)), np.abs(exact.transform(x.astype(float))), atol=1e-4)

    gram = shifted @ shifted.T  # in single precision, as one would
    squares = np.diagonal(gram)
    naive = np.exp(-gamma * (squares[:, None] + squares - 2 * gram).clip(0).astype(float))
    centred = naive - naive.mean(0) - naive.mean(1)[:, None] + naive.mean()
    assert np.abs(np.linalg.eigvalsh(centred)[::-1][:5] / exact.eigenvalues_ - 1).max() > 1e-2


def test_the_linear_kernel_is_pca():
    x, new = random_array(0, (30, 200), "f8"), random_array(1, (5, 200), "f8")
    kernel, pca = KernelPCA(6).fit(x), dpca.PCA(6).fit(x)
    np.testing.assert_allclose(np.sqrt(kernel.eigenvalues_), pca.singular_values_, rtol=1e-12)
    np.testing.assert_allclose(kernel.transform(new), pca.transform(new), atol=1e-11)
    np.testing.assert_allclose(
        kernel.inverse_transform(kernel.transform(new)), pca.inverse_transform(pca.transform(new)), atol=1e-11
    )


def test_degree_two_is_pca_of_all_products():
    """(x'z + 1)^2 has the feature map of 1, sqrt(2) x_i and all products; the parabola of the lecture notes lies in it."""
    t = np.linspace(-1, 1, 41)
    parabola = np.column_stack([t, t**2])
    square = random_array(2, (41, 4), "f8")
    for x in (parabola, square):
        d = x.shape[1]
        pairs = [x[:, i] * x[:, j] * (1 if i == j else np.sqrt(2)) for i in range(d) for j in range(i, d)]
        images = np.column_stack([*(np.sqrt(2) * x.T), *pairs])
        expected = SklearnPCA(3, svd_solver="full").fit_transform(images)
        found = KernelPCA(3, kernel="poly", degree=2, gamma=1.0, coef0=1.0).fit_transform(x)
        np.testing.assert_allclose(np.abs(found), np.abs(expected), atol=1e-10)


def test_each_chunk_is_read_once_for_a_fit_and_once_for_a_transform(tmp_path):
    x, new = random_array(0, (20, 900), "f4"), random_array(1, (7, 900), "f4")
    stored = zarr.create_array(str(tmp_path / "x.zarr"), data=x, chunks=(10, 40))
    other = zarr.create_array(str(tmp_path / "new.zarr"), data=new, chunks=(3, 60))
    counting, reads = counted(stored)
    fit = KernelPCA(3, kernel="rbf", gamma=1e-3, precision="double").fit(counting)
    chunks = {key for key in reads if isinstance(key, str)}  # beside looks at some chunks' first bytes
    assert len(chunks) == 2 * 23
    assert {reads[key] for key in chunks} == {1}
    reads.clear()
    beside, new_reads = counted(other)
    fit.transform(beside)
    assert {reads[key] for key in chunks} == {1}
    assert len(new_reads) == 3 * 15
    assert set(new_reads.values()) == {1}


def test_new_samples_in_groups(monkeypatch, tmp_path):
    """The training data stream by once for each; the scores are the same."""
    x, new = random_array(0, (20, 900), "f8"), random_array(1, (11, 900), "f8")
    stored = zarr.create_array(str(tmp_path / "x.zarr"), data=x, chunks=(10, 40))
    fit = KernelPCA(3, kernel="rbf", gamma=1e-3, fit_inverse_transform=True).fit(stored)
    together = fit.transform(new)
    back = np.asarray(fit.inverse_transform(together))
    monkeypatch.setattr(training, "GROUP_SAMPLES", 4)
    monkeypatch.setattr(training, "SLAB_BYTES", 20 * 80 * 8)
    np.testing.assert_allclose(fit.transform(new), together, atol=1e-13)
    np.testing.assert_allclose(np.asarray(fit.inverse_transform(together)), back, atol=1e-12)


@pytest.mark.parametrize("processes", [False, pytest.param(True, marks=pytest.mark.long)])
def test_on_a_cluster_bits_are_the_same(processes, tmp_path):
    x, new = random_array(0, (20, 900), "f8"), random_array(1, (7, 900), "f8")
    stored = zarr.create_array(str(tmp_path / "x.zarr"), data=x, chunks=(10, 40))
    here = KernelPCA(3, kernel="rbf", gamma=1e-3, fit_inverse_transform=True).fit(stored)
    expected = here.transform(new), np.asarray(here.inverse_transform(here.transform(new)))
    with local_cluster(tmp_path, processes=processes) as cluster, cluster.get_client() as client:
        there = KernelPCA(3, kernel="rbf", gamma=1e-3, fit_inverse_transform=True, client=client).fit(stored)
        np.testing.assert_array_equal(there.eigenvectors_, here.eigenvectors_)
        np.testing.assert_array_equal(there.transform(new), expected[0])
        np.testing.assert_array_equal(np.asarray(there.inverse_transform(expected[0])), expected[1])
        kept = da.from_array(new, chunks=(7, 300)).persist()
        np.testing.assert_array_equal(there.transform(kept), expected[0])


@pytest.mark.parametrize("kind", STORED)
def test_precomputed(kind, tmp_path):
    x, new = random_array(0, (30, 8), "f8"), random_array(1, (5, 8), "f8")
    gram, cross = x @ x.T, new @ x.T
    if kind == "Dask":
        gram, cross = da.from_array(gram, chunks=11), da.from_array(cross, chunks=2)
    elif kind == "Zarr":
        gram = zarr.create_array(str(tmp_path / "k.zarr"), data=gram, chunks=(7, 8))
        cross = zarr.create_array(str(tmp_path / "c.zarr"), data=cross, chunks=(2, 30))
    elif kind == "HDF5":
        file = h5py.File(tmp_path / "k.h5", "w")
        gram, cross = file.create_dataset("k", data=gram), file.create_dataset("c", data=cross)
    ours = KernelPCA(4, kernel="precomputed").fit(gram)
    expected = KernelPCA(4).fit(x)
    np.testing.assert_allclose(ours.eigenvalues_, expected.eigenvalues_, rtol=1e-10)
    np.testing.assert_allclose(ours.transform(cross), expected.transform(new), atol=1e-10)


def test_kernel_matrices_that_are_none():
    with pytest.raises(
        InputError, match=r"has shape \(3, 4\), but the kernel of the samples with each other is square"
    ):
        KernelPCA(kernel="precomputed").fit(np.ones((3, 4)))
    lopsided = np.eye(6)
    lopsided[2, 4] = 0.5
    with pytest.raises(
        InputError,
        match=r"precomputed is not symmetric: it is 0.5 between samples 2 and 4, but 0 between 4 and 2\nStore both",
    ):
        KernelPCA(kernel="precomputed").fit(lopsided)
    lopsided[2, 4] = np.nan
    with pytest.raises(DataError, match=r"the value at index \[2, 4\] is not finite"):
        KernelPCA(kernel="precomputed").fit(lopsided)
    fit = KernelPCA(kernel="precomputed").fit(np.eye(6))
    with pytest.raises(InputError, match="of the fit has 6 values"):
        fit.transform(da.ones((2, 5)))


def laplacian(gram, squared_distances, width):
    return np.exp(-np.sqrt(squared_distances) / width)


@pytest.mark.parametrize(
    ("n_features", "of", "options"),
    [
        (200, np.asarray, {}),
        (200, lambda x: x.astype("f4"), {}),
        (200, lambda x: x.astype("f4") * np.float32(1e-3), {"precision": "single"}),
        (9000, csr_matrix, {}),
        (9000, lambda x: x + np.pi * (x > 0), {"scale": "std"}),
    ],
)
def test_a_sample_of_zeros_has_a_cosine_of_0_without_error(n_features, of, options):
    x = np.random.default_rng(0).poisson(0.3, (20, n_features)).astype(float)
    x[3] = 0.0
    given = of(x)
    seen = np.asarray(given if isinstance(given, np.ndarray) else x, np.float64)
    if options.get("scale") == "std":
        deviation = seen.std(0, ddof=1)
        seen = seen / np.where(deviation > 0, deviation, 1)
    expected = SklearnKernelPCA(4, kernel="cosine", eigen_solver="dense").fit(seen)
    found = KernelPCA(4, kernel="cosine", **options).fit(given)
    assert all(c["reliable"] for c in found.certificate_["components"])
    np.testing.assert_allclose(found.eigenvalues_, expected.eigenvalues_, rtol=1e-5)
    new = given[:5]
    np.testing.assert_allclose(
        np.abs(found.transform(new)), np.abs(found.eigenvectors_[:5]) * np.sqrt(found.eigenvalues_), atol=1e-5
    )


def test_a_sample_that_rounding_hides_is_not_called_one_of_zeros():
    x = np.random.default_rng(0).poisson(0.3, (20, 200)).astype(float)
    x[3] = 1e-17
    found = KernelPCA(4, kernel="cosine").fit(x)
    assert not any(c["digits"] for c in found.certificate_["components"])


def squared(gram):
    return (gram + 1) ** 2


def test_a_function_of_the_gram_matrix():
    x, new = random_array(0, (30, 8), "f8"), random_array(1, (5, 8), "f8")
    ours = KernelPCA(4, kernel=squared).fit(x)
    expected = KernelPCA(4, kernel="poly", degree=2, gamma=1.0, coef0=1.0).fit(x)
    np.testing.assert_allclose(ours.transform(new), expected.transform(new), rtol=1e-9)
    distances = np.sqrt(((x[:, None] - x) ** 2).sum(-1))
    ours = KernelPCA(4, kernel=laplacian, kernel_params={"width": 3.0}).fit(x)
    expected = SklearnKernelPCA(4, kernel="precomputed", eigen_solver="dense").fit(np.exp(-distances / 3))
    np.testing.assert_allclose(ours.eigenvalues_, expected.eigenvalues_, rtol=1e-10)
    with pytest.raises(ConfigError, match=r"kernel <lambda>\(\) gave an array of shape \(30,\)"):
        KernelPCA(4, kernel=lambda gram: gram[0]).fit(x)


def linear(gram):
    """Which is not; the name decides nothing."""
    return (gram / 3 + 1) ** 2


def test_a_function_may_be_called_like_a_kernel():
    x = random_array(0, (30, 3), "f8")
    expected = KernelPCA(6, kernel="poly", degree=2, gamma=1 / 3, coef0=1.0).fit(x)
    np.testing.assert_allclose(KernelPCA(6, kernel=linear).fit(x).eigenvalues_, expected.eigenvalues_, rtol=1e-10)
    with pytest.raises(ConfigError, match="gave values of dtype complex128, but real numbers are allowed"):
        KernelPCA(2, kernel=lambda gram: gram * 1j).fit(x)


def test_an_array_in_memory_that_changes_after_the_fit_changes_nothing():
    x = xr.DataArray(random_array(0, (12, 50), "f8"), dims=("a", "b"))
    fit = KernelPCA(2, kernel="rbf").fit(x)
    before = fit.transform(random_array(1, (3, 50), "f8"))
    x.values[...] = 0.0
    np.testing.assert_array_equal(fit.transform(random_array(1, (3, 50), "f8")), before)


def test_negative_eigenvalues_are_refused_where_they_are_asked_for():
    x = random_array(0, (20, 6), "f8")
    with pytest.raises(ConfigError, match="There are significant negative eigenvalues, the smallest -"):
        KernelPCA(kernel="sigmoid", gamma=0.5).fit(x)
    assert KernelPCA(2, kernel="sigmoid", gamma=0.5).fit(x).eigenvalues_.min() > 0


def test_duplicates_and_constants():
    x = np.repeat(random_array(0, (5, 40), "f8"), 3, axis=0)
    fit = KernelPCA(kernel="rbf").fit(x)
    assert len(fit.eigenvalues_) == 4
    np.testing.assert_allclose(fit.transform(x)[::3], fit.transform(x)[1::3], atol=1e-12)
    many = random_array(1, (20, 40), "f8")[np.random.default_rng(0).integers(0, 20, 100)]
    for gamma in (1e-3, 1e-6, 1e-9):  # where the kernel is nearly constant, means round as much as values
        found = KernelPCA(kernel="rbf", gamma=gamma).fit(many)
        assert len(found.eigenvalues_) == len(np.unique(many, axis=0)) - 1
    assert KernelPCA(kernel="rbf").fit_transform(np.ones((6, 10))).shape == (6, 0)
    np.testing.assert_array_equal(KernelPCA(2, kernel="rbf").fit_transform(np.ones((6, 10))), 0)


def test_single_precision_goes_on_to_double_where_components_need_it():
    rng = np.random.default_rng(0)
    x = (rng.normal(size=(40, 6)) * np.array([1, 0.1, 0.01, 1e-5, 1e-6, 1e-7])).astype("f4")
    found = KernelPCA(6, kernel="linear").fit(x)
    assert found.certificate_["precision"] == "double"
    exact = np.linalg.svd(x - x.astype(float).mean(0), compute_uv=False) ** 2
    np.testing.assert_allclose(found.eigenvalues_[:4], exact[:4], rtol=1e-5)
    single = KernelPCA(6, kernel="linear", precision="single").fit(x)
    assert [c["reliable"] for c in single.certificate_["components"]] == [True] * 3 + [False] * 3


def one_apart(g):
    return np.where(np.arange(20)[:, None] == 7, 1e4, 1.0) * g.standard_normal((20, 200))


def near_pairs(g):
    some = g.standard_normal((20, 200))
    return np.where(np.arange(20)[:, None] % 2, np.roll(some, 1, 0) + 1e-5 * g.standard_normal((20, 200)), some)


def alike(g):
    """Most samples, to products in single precision."""
    return np.where(np.arange(20)[:, None] < 2, 1e3, 0.0) + 1e-2 * g.standard_normal((20, 200))


def tight_clusters(g):
    return 10 * g.standard_normal((3, 200))[np.arange(20) % 3] + 1e-4 * g.standard_normal((20, 200))


@pytest.mark.parametrize("data", [one_apart, near_pairs, alike, tight_clusters])
@pytest.mark.parametrize("options", [{"kernel": "rbf", "gamma": "median"}, {"kernel": "poly"}, {"kernel": "cosine"}])
def test_all_components_are_those_of_double_precision_where_single_hides_some(data, options):
    x = data(np.random.default_rng(0)).astype("f4")
    double = KernelPCA(precision="double", **options).fit(x)
    found = KernelPCA(**options).fit(x)
    assert len(found.eigenvalues_) == len(double.eigenvalues_)
    assert all(c["reliable"] for c in found.certificate_["components"])


def test_components_that_errors_hide_are_told():
    x = one_apart(np.random.default_rng(0)).astype("f4")
    found = KernelPCA(kernel="rbf", precision="single").fit(x)
    assert len(found.eigenvalues_) == 0
    (note,) = caveats_of_kernels(found.certificate_)
    assert "up to 19 further components were left out, since errors of its values are up to" in note
    assert "0 of at most 19 can be told from rounding" in found.certificate_["n_components"]["reason"]


def test_training_data_that_changed_are_an_error(tmp_path):
    place = str(tmp_path / "x.zarr")
    x = zarr.create_array(place, data=random_array(0, (12, 50), "f8"), chunks=(12, 10))
    fit, linear = KernelPCA(2, kernel="rbf").fit(x), KernelPCA(2).fit(x)
    zarr.create_array(place, data=random_array(5, (12, 50), "f8"), chunks=(12, 25), overwrite=True)
    with pytest.raises(DataError, match="training data of this estimator changed since it was made"):
        fit.transform(random_array(1, (3, 50), "f8"))
    with pytest.raises(DataError, match="training data of this estimator changed since it was made"):
        linear.inverse_transform(np.zeros((1, 2)))


def test_other_features_are_refused_before_anything_is_read():
    fit = KernelPCA(2, kernel="rbf").fit(da.ones((12, 5, 10)) * da.arange(12)[:, None, None])
    with pytest.raises(InputError, match=r"has 50 features a sample .* fitted to 5 \(feature_0\) x 10 \(feature_1\)"):
        fit.transform(np.ones((3, 50)))


def test_pre_images_need_their_regression():
    fit = KernelPCA(2, kernel="rbf").fit(random_array(0, (12, 50), "f8"))
    with pytest.raises(NotFittedError, match="needs fit_inverse_transform=True"):
        fit.inverse_transform(np.zeros((3, 2)))


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        ({"kernel": "rfb"}, r"kernel is 'rfb', but 'linear', 'poly'.*\nDid you mean rbf"),
        ({"gamma": -1.0}, "gamma is -1.0, but a number from 0, 'median' or None is allowed"),
        ({"degree": "two"}, "degree is 'two', but a number from 0 is allowed"),
        ({"alpha": -0.5}, "alpha is -0.5, but at least 0 is allowed"),
        ({"n_components": "mle"}, "n_components is mle, a rule for noise in linear PCA"),
        ({"n_components": 13}, "n_components is 13, but .* from 1 to n_samples = 12 is allowed"),
    ],
)
def test_parameters_that_are_not_allowed(keys, sentence):
    with pytest.raises(ConfigError, match=sentence):
        KernelPCA(**keys).fit(random_array(0, (12, 50), "f8"))


@pytest.mark.parametrize(
    "given", [{"scale": "std"}, {"weights": np.ones(12)}, {"filters": {"mask": np.ones(12, bool)}}]
)
def test_a_kernel_matrix_has_no_features_to_preprocess(given):
    with pytest.raises(ConfigError, match=f"{next(iter(given))} is set|'std', but the input is a kernel matrix"):
        KernelPCA(kernel="precomputed", **given).fit(np.eye(12))


def test_a_sweep_is_refused_and_a_parameter_that_the_kernel_has_not_does_no_harm():
    x = random_array(0, (12, 50), "f8")
    for sweep in ({"gamma": [0.1, 1.0]}, {"kernel": ["rbf", "poly"]}):
        with pytest.raises(ConfigError, match="but one value is allowed"):
            KernelPCA(**{"kernel": "rbf", **sweep}).fit(x)
    plain, searched = (KernelPCA(2, **how).fit(x).eigenvalues_ for how in ({}, {"gamma": 3.0, "degree": 5}))
    np.testing.assert_array_equal(plain, searched)


def test_clone_and_pickle(tmp_path):
    x = zarr.create_array(str(tmp_path / "x.zarr"), data=random_array(0, (12, 50), "f8"), chunks=(12, 10))
    fit = KernelPCA(2, kernel="rbf", gamma="median").fit(x)
    again = pickle.loads(pickle.dumps(fit))
    np.testing.assert_array_equal(again.transform(x), fit.transform(x))
    assert clone(fit).get_params() == fit.get_params()
    assert fit.gamma_ > 0


@pytest.mark.filterwarnings("ignore:.* missing values? of .* new sample:UserWarning")
@pytest.mark.parametrize("missing", ["mean", "drop"])
@pytest.mark.parametrize("kernel", ["linear", "rbf", "cosine"])
def test_new_samples_without_any_value_are_nan(kernel, missing):
    x, new = random_array(0, (20, 30), "f8"), random_array(1, (4, 30), "f8")
    x[3, 7], new[1], new[2, :5] = np.nan, np.nan, np.nan
    fitted = KernelPCA(3, kernel=kernel, missing=missing).fit(x)
    with pytest.warns(UserWarning, match="sample 1: no value of a feature that the fit kept, and NaN in the result"):
        scores = fitted.transform(new)
    filled = np.where(np.isnan(new), np.nan_to_num(fitted.mean_), new)
    assert np.flatnonzero(np.isnan(scores).all(axis=1)).tolist() == [1]
    np.testing.assert_allclose(np.delete(scores, 1, 0), np.delete(fitted.transform(filled), 1, 0), atol=1e-9)


class OfTwo:
    def __call__(self, x, y):
        return float(x @ y)


@pytest.mark.parametrize(
    ("kernel", "params", "said"),
    [
        (lambda x, y: float(x @ y), {}, r"kernel <lambda>\(\) can't be called so \(missing a required argument: 'y'\)"),
        (OfTwo(), {}, "kernel callable.. can't be called so .missing a required argument: 'y'"),
        (np.dot, {}, "kernel dot.. can't be called so"),
        (rbf_kernel, {"gamma": 0.1}, "kernel rbf_kernel.. is a function of samples"),
        (lambda gram: gram, {"power": 2}, "unexpected keyword argument 'power'"),
    ],
)
def test_a_function_of_two_samples_is_told_how_kernels_are_called(kernel, params, said):
    with pytest.raises(ConfigError, match=said) as refused:
        KernelPCA(2, kernel=kernel, kernel_params=params).fit(random_array(0, (8, 5), "f8"))
    assert "with the inner products X X' of all samples, (n, n), as its only argument" in refused.value.message
    assert "pairwise_kernels(X, metric=function)" in refused.value.remedy


def test_functions_that_say_their_parameters_or_do_not():
    x = random_array(0, (8, 5), "f8")
    expected = KernelPCA(2).fit(x).eigenvalues_
    for kernel in (np.positive, abs, lambda gram, *more: gram, lambda gram, **more: gram):
        assert np.isfinite(KernelPCA(2, kernel=kernel).fit(x).eigenvalues_).all()
    np.testing.assert_allclose(KernelPCA(2, kernel=np.positive).fit(x).eigenvalues_, expected)
    distances = KernelPCA(
        2,
        kernel=lambda gram, squared_distances, gamma: np.exp(-gamma * squared_distances),
        kernel_params={"gamma": 0.1},
    )
    np.testing.assert_allclose(distances.fit(x).eigenvalues_, KernelPCA(2, kernel="rbf", gamma=0.1).fit(x).eigenvalues_)
