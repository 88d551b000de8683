"""Inner products of features: components, scores and claimed errors against a dense decomposition in them."""

import dask.array as da
import numpy as np
import pytest
import scipy.linalg
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st

from dpca import PCA
from dpca.errors import ConfigError, DataError, InputError
from dpca.slabs import make_plan
from tests.drawn import examples
from tests.genotypes.cohorts import assert_same_vectors


@st.composite
def cases(draw):
    """Samples, matrices of neighbouring features, and parameters of a fit."""
    g = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n, k, rows, per_row = (draw(st.integers(*limits)) for limits in ((3, 9), (1, 5), (1, 3), (1, 6)))
    x = g.standard_normal((n, rows, per_row * k)) * np.logspace(0, -2, n)[:, None, None]
    x = (x + draw(st.sampled_from([0.0, 1e4]))).astype(draw(st.sampled_from(["f4", "f8"])))
    shape = draw(st.sampled_from([(), (per_row,), (1, per_row), (rows, per_row)]))
    a = g.standard_normal((*shape, k, k + 2))
    parameters = {
        "center": draw(st.booleans()),
        "scale": draw(st.sampled_from(["none", "std"])),
        "weights": draw(st.sampled_from([None, g.uniform(0.5, 2, (rows, per_row * k))])),
        "svd_solver": draw(st.sampled_from(["auto", "gram_eigh", "tsqr"])),
        "precision": "double",
    }
    axis, width = draw(st.integers(0, 2)), draw(st.integers(1, per_row * k))
    return x, a @ a.swapaxes(-2, -1), parameters, axis, width


def dense(x, matrices, center, scale, weights, **_):
    """X_c, (n, d), and the matrix over all features."""
    c = x.astype(np.float64).reshape(len(x), -1)
    mean, deviations = c.mean(axis=0), c.std(axis=0, ddof=1)
    c = c - mean * center
    c = (c / deviations if scale == "std" else c) * (1.0 if weights is None else weights.ravel())
    k = matrices.shape[-1]
    blocks = np.broadcast_to(matrices, (x.shape[1], x.shape[2] // k, k, k)).reshape(-1, k, k)
    return c, scipy.linalg.block_diag(*blocks)


@given(cases())
@examples(20)
def test_fits_in_an_inner_product_are_those_of_a_dense_decomposition(case):
    x, matrices, parameters, axis, width = case
    c, matrix = dense(x, matrices, **parameters)
    stored = np.moveaxis(x, 0, axis)
    chunks = tuple(width if number == stored.ndim - 1 - (axis == 2) else -1 for number in range(stored.ndim))
    fit = PCA(min(len(x), c.shape[1]), inner_product=matrices, samples_axis=axis, **parameters)
    scores = fit.fit_transform(da.from_array(stored, chunks))
    factor = np.linalg.cholesky(matrix)
    u, s, v = np.linalg.svd(c @ factor, full_matrices=False)
    for number, of in enumerate(fit.certificate_["components"]):
        if of["reliable"]:
            error = abs(fit.singular_values_[number] / s[number] - 1)
            assert error <= 10 ** -of["digits"] + 4e-15 * s[0] / s[number]
    good = np.array([of["reliable"] and of["gap"] > 1e-4 for of in fit.certificate_["components"]])
    maps = np.asarray(fit.components_).reshape(len(good), -1)[good]
    np.testing.assert_allclose(maps @ matrix @ maps.T, np.eye(len(maps)), atol=1e-8)
    np.testing.assert_allclose(
        np.asarray(fit.weighted_components_).reshape(len(good), -1)[good],
        maps @ matrix,
        atol=1e-8 * np.abs(matrix).max(),
    )
    assert_same_vectors(maps.T, np.linalg.solve(factor.T, v[good].T), atol=1e-6)
    assert_same_vectors(scores[:, good], (u * s)[:, good], atol=1e-6 * s[0])
    np.testing.assert_allclose(
        fit.transform(stored)[:, good], np.asarray(scores)[:, good], atol=1e-7 * s[0] + 1e-7 * np.abs(x).max()
    )
    if all(good) and len(good) == c.shape[1]:
        np.testing.assert_allclose(fit.inverse_transform(scores), stored, rtol=1e-6, atol=1e-6 * np.abs(x).max())


def test_errors_that_ill_conditioned_matrices_make_are_claimed():
    """Samples that lie where the matrix is small: its factor has a few digits there, which no other product shows."""
    matrix, g = scipy.linalg.hilbert(8), np.random.default_rng(0)
    small = np.linalg.eigh(matrix)[1][:, :2]
    x = (g.standard_normal((6, 30, 2)) @ small.T).reshape(6, -1)
    fit = PCA(5, inner_product=matrix, precision="double").fit(x)
    exact = matrix.astype(np.longdouble)
    c = x.astype(np.longdouble)
    c -= c.mean(axis=0)
    products = sum(c[:, at : at + 8] @ exact @ c[:, at : at + 8].T for at in range(0, 240, 8))
    errors = np.abs(fit.singular_values_ / np.sqrt(np.linalg.eigvalsh(products.astype(float))[::-1][:5]) - 1)
    digits = np.array([of["digits"] for of in fit.certificate_["components"]])
    assert (errors > 1e-12).any()
    assert (errors <= 10**-digits).all()


@given(
    st.integers(1, 7), st.integers(1, 12), st.integers(1, 40), st.integers(1, 9), st.sampled_from("CF"), st.booleans()
)
@examples(60)
def test_no_cut_divides_a_unit(unit, n_units, chunk, n, order, sharded):
    shape = (n, 3, unit * n_units)
    shards = (n, 1, 2 * chunk) if sharded else None
    plan = make_plan(
        shape, 8, (n, 1, chunk), shards=shards, order=order, slab_bytes=8 * n * 25, unit=unit, tile_width=11
    )
    assert plan.panel_width % unit == plan.block_width % unit == 0
    for span in range(plan.n_spans):
        for tile in plan.tiles_of(span):
            for box in (tile, *plan.slabs_of(tile)):
                assert box[-1].start % unit == box[-1].stop % unit == 0


X = np.random.default_rng(1).standard_normal((5, 2, 6))
M = np.stack([np.eye(3) + 0.5] * 2)


@pytest.mark.parametrize(
    ("matrices", "error", "sentence"),
    [
        (M[:, :2, :2][:, :, :1], InputError, r"has shape \(2, 2, 1\), but the features of .* have shape \(2, 6\)"),
        (np.eye(4), InputError, r"has shape \(4, 4\), [^~]*whose length k divides"),
        (np.stack([np.eye(3)] * 3), InputError, r"have \(2, 2\) matrices of 3 x 3\s+Give an array of shape \(2, 2, 3, 3\)"),
        (-M, DataError, r"matrix \[0\] begins with .* 2 of those read are not finite, not symmetric, or not positive definite"),
        (np.triu(M), DataError, "not symmetric"),
        (np.full((3, 3), 1.0), DataError, "not positive definite"),
        (scipy.sparse.eye_array(5), InputError, r"matrix of shape \(5, 5\), but there are 12 features"),
        (scipy.sparse.diags_array([1.0, 2.0, 1.0], offsets=[-1, 0, 1], shape=(12, 12)), InputError, "couples feature [^~]* square roots; the lumped"),
        ("matrix.npz", ConfigError, "inner_product is 'matrix.npz', but an array"),
    ],
)  # fmt: skip
def test_what_is_no_inner_product_of_the_features_is_refused(matrices, error, sentence):
    with pytest.raises(error, match=sentence):
        PCA(2, inner_product=matrices).fit(X)


@pytest.mark.parametrize(
    ("parameters", "sentence"),
    [
        ({"missing": "pairwise"}, "whose products leave out features one by one"),
        ({"rotation": "varimax"}, "it turns components that are orthonormal in the usual one"),
        ({"svd_solver": "covariance_eigh"}, "samples stream by there"),
        ({"scale": {"binomial": "plink2"}}, "variants have none"),
    ],
)
def test_what_is_not_defined_in_an_inner_product_is_refused(parameters, sentence):
    with pytest.raises(ConfigError, match=sentence):
        PCA(2, inner_product=M, **parameters).fit(np.abs(X))


def test_several_arrays_have_no_inner_product():
    with pytest.raises(ConfigError, match="several inputs or groups of features: it is of all features of one input"):
        PCA(2, inner_product=M).fit({"a": X, "b": X})


def test_methods_of_the_usual_inner_product_are_refused():
    fit = PCA(2, inner_product=M).fit(X)
    for method in (fit.get_covariance, fit.get_precision, lambda: fit.score_samples(X)):
        with pytest.raises(ConfigError, match="is of probabilistic PCA, whose noise is alike in all features"):
            method()


def test_a_sparse_matrix_is_the_inner_product_of_its_blocks():
    matrix = scipy.sparse.block_diag([M[0]] * 4)
    sparse, dense = (PCA(3, inner_product=given).fit(X) for given in (matrix, M[0]))
    np.testing.assert_array_equal(sparse.singular_values_, dense.singular_values_)
    np.testing.assert_array_equal(sparse.components_, dense.components_)


def test_a_feature_that_is_left_out_has_no_component():
    x = X.copy()
    x[0, 1, 2] = np.nan
    fit = PCA(3, inner_product=M[0], missing="drop", precision="double").fit(x)
    assert np.isnan(fit.components_[:, 1, 2]).all()
    assert np.isfinite(fit.components_).sum() == 33
    c = x.reshape(5, -1) - x.reshape(5, -1).mean(axis=0)
    c[:, 8] = 0
    s = np.linalg.svd(c @ np.linalg.cholesky(scipy.linalg.block_diag(*[M[0]] * 4)), compute_uv=False)
    np.testing.assert_allclose(fit.singular_values_, s[:3], rtol=1e-12)
    np.testing.assert_allclose(fit.transform(np.where(np.isnan(x), 0, x)), fit.transform(x), atol=1e-12)


def test_another_fit_of_a_loaded_one_needs_its_inner_product_again(tmp_path):
    fit = PCA(2, inner_product=M).fit(X)
    fit.save(tmp_path / "fit")
    loaded = PCA.load(tmp_path / "fit")
    np.testing.assert_allclose(loaded.transform(X), fit.transform(X), rtol=1e-12)
    with pytest.raises(ConfigError, match="inner_product is 'not kept with the fit', but an array"):
        loaded.fit(X)
