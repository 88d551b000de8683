"""scikit-learn's contract for estimators."""

import pickle

import dask.array as da
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.decomposition import PCA as SklearnPCA
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from dpca import PCA
from dpca.errors import OverBudgetError, PrecisionError
from tests.estimators.checks import all_checks_of
from tests.stores import random_array


def more_repeated_than_given(estimator):
    """None keeps min(n_samples, n_features) of the samples that are given, which are more where they are repeated."""
    kinds = ("dense", "sparse") if estimator.n_components is None else ()
    return {f"check_sample_weight_equivalence_on_{kind}_data": "the number of components is another" for kind in kinds}


@all_checks_of(PCA(2), PCA(), PCA(1, whiten=True), expected_failed_checks=more_repeated_than_given)
def test_scikit_learns_checks(estimator, check):
    check(estimator)


def test_it_works_in_a_pipeline_and_survives_clone_and_pickle():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 60)
    x = rng.normal(size=(60, 500)) + 2 * np.outer(y, rng.normal(size=500))
    pipeline = make_pipeline(PCA(5, whiten=True), LogisticRegression()).fit(x, y)
    assert pipeline.score(x, y) > 0.9
    assert clone(pipeline[0]).get_params() == pipeline[0].get_params()
    again = pickle.loads(pickle.dumps(pipeline))
    np.testing.assert_array_equal(again.predict(x), pipeline.predict(x))


def test_output_can_be_a_table_with_names():
    pd = pytest.importorskip("pandas")
    x = pd.DataFrame(np.random.default_rng(0).normal(size=(20, 4)), columns=list("abcd"), index=range(5, 25))
    found = PCA(2).set_output(transform="pandas").fit(x)
    assert list(found.feature_names_in_) == list("abcd")
    scores = found.transform(x)
    assert list(scores.columns) == ["pca0", "pca1"]
    assert list(scores.index) == list(x.index)
    with pytest.raises(ValueError, match="feature names should match"):
        found.transform(x[list("dcba")])


@pytest.mark.parametrize(("n", "d", "k"), [(200, 8, 3), (200, 8, 8), (30, 100, 5), (12, 40, 1)])
def test_likelihood_covariance_and_precision_are_scikit_learns(n, d, k):
    x = np.random.default_rng(0).normal(size=(n, d)) * np.linspace(0.5, 2, d)
    ours, theirs = PCA(k).fit(x), SklearnPCA(k, svd_solver="full").fit(x)
    np.testing.assert_allclose(ours.noise_variance_, theirs.noise_variance_, atol=1e-14)
    np.testing.assert_allclose(ours.get_covariance(), theirs.get_covariance(), atol=1e-12)
    np.testing.assert_allclose(ours.get_precision(), theirs.get_precision(), rtol=1e-9, atol=1e-11)
    new = x[::2] + 0.1
    np.testing.assert_allclose(ours.score_samples(new), theirs.score_samples(new), rtol=1e-9)
    np.testing.assert_allclose(ours.score(new), theirs.score(new), rtol=1e-9)


def test_the_likelihood_of_wide_data_needs_no_matrix_of_their_width():
    x = random_array(0, (30, 200_000), "f4")
    found = PCA(4).fit(da.from_array(x, chunks=(30, 50_000)))
    scores = found.score_samples(da.from_array(x, chunks=(10, 100_000)))
    np.testing.assert_allclose(scores, PCA(4).fit(x).score_samples(x), rtol=1e-6)
    with pytest.raises(OverBudgetError, match="covariance of 200000 x 200000 takes 894 GiB"):
        found.get_covariance()


def test_a_likelihood_that_is_not_defined_is_an_error():
    x = np.random.default_rng(0).normal(size=(5, 40))
    with pytest.raises(PrecisionError, match="likelihood of 40 features is not defined with 4 components"):
        PCA(5).fit(x).score(x)
