"""scikit-learn's contract for estimators."""

import inspect
import pickle

import dask.array as da
import numpy as np
import pytest
import scipy.sparse
import xarray as xr
from sklearn.base import clone
from sklearn.decomposition import PCA as SklearnPCA
from sklearn.decomposition import IncrementalPCA
from sklearn.decomposition import KernelPCA as SklearnKernelPCA
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from dpca import PCA, KernelPCA
from dpca.errors import ConfigError, OverBudgetError, PrecisionError
from tests.estimators.checks import all_checks_of
from tests.stores import random_array
from workflows.claims.truth import centred, singular_values


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


@pytest.mark.parametrize(
    "of", [lambda x: x, da.from_array, xr.DataArray, scipy.sparse.csr_array], ids=["numpy", "dask", "xarray", "sparse"]
)
@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (PCA(3), SklearnPCA(3)),
        (KernelPCA(3, fit_inverse_transform=True), SklearnKernelPCA(3, fit_inverse_transform=True)),
    ],
    ids=["pca", "kernel_pca"],
)
@pytest.mark.parametrize("fitted_to", ["float32", "float64", "int32"])
@pytest.mark.parametrize("new", ["float32", "float64"])
def test_scores_and_samples_are_float32_where_scikit_learns_are(of, ours, theirs, fitted_to, new):
    x = np.random.default_rng(0).normal(size=(12, 6)) * 9
    ours, theirs, first, second = clone(ours), clone(theirs), x.astype(fitted_to), x.astype(new)
    assert ours.fit_transform(of(first)).dtype == theirs.fit_transform(first).dtype
    scores, samples = ours.transform(of(second)), ours.inverse_transform(ours.transform(of(second)))
    assert scores.dtype == ("float32" if fitted_to == new == "float32" else "float64")
    if fitted_to == new:
        assert scores.dtype == samples.dtype == theirs.transform(second).dtype
    np.testing.assert_allclose(np.abs(scores), np.abs(theirs.transform(second)), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("peer", "words"),
    [
        (SklearnPCA, "tol copy iterated_power n_oversamples power_iteration_normalizer"),
        (IncrementalPCA, "batch_size copy"),
        (SklearnKernelPCA, "eigen_solver max_iter n_jobs iterated_power"),
    ],
)
def test_arguments_that_are_not_needed_here_are_refused_by_name(peer, words):
    """All of scikit-learn's that there are no others of; PCA of scanpy and xeofs have some more."""
    of = KernelPCA if peer is SklearnKernelPCA else PCA
    there = {*inspect.signature(peer).parameters} - {*inspect.signature(of).parameters}
    assert {*words.split()} <= there
    for name in (*there, "n_modes", "use_coslat", "zero_center", "mask_var"):
        with pytest.raises(
            ConfigError, match=rf"{of.__name__} has no argument {name}, which .*\n.*(Leave it out|Pass )"
        ):
            of(**{name: None})
    with pytest.raises(TypeError, match="unexpected keyword argument 'n_component'"):
        of(n_component=3)


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


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_tables_with_columns_in_another_order_or_of_other_names_are_refused(library):
    """Of libraries that are not of the extra test by make peers."""
    module = pytest.importorskip(library, reason=f"{library} is not installed (make peers)")
    make = {"pandas": "DataFrame", "polars": "DataFrame", "pyarrow": "table"}[library]
    values = dict(zip("abcd", np.random.default_rng(0).normal(size=(4, 20)), strict=True))
    table = getattr(module, make)(values)
    found = PCA(2).fit(table)
    assert list(found.feature_names_in_) == list("abcd")
    np.testing.assert_allclose(found.transform(table), found.transform(np.array([*values.values()]).T))
    for names in ("dcba", "abce"):
        with pytest.raises(ValueError, match="feature names should match"):
            found.transform(getattr(module, make)({name: values.get(name, values["d"]) for name in names}))


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


N, D, RANK = 40, 500, 3
SOLVERS = {
    "default": ({}, 30),
    "single": ({"precision": "single"}, 0),
    "double": ({"precision": "double"}, 1e4),
    "tsqr": ({"svd_solver": "tsqr"}, 1e6),
    "block_krylov": ({"svd_solver": "block_krylov"}, 10),
}
"""Parameters, and up to which ratio of signal and noise the noise has to be known."""


@pytest.mark.parametrize("shape", [(N, D), (D, N)], ids=["wide", "tall"])
@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("signal", [1, 30, 1e3, 1e6])
def test_what_lies_beside_the_components_is_known_or_nan(solver, signal, shape):
    g, (n, d) = np.random.default_rng(0), shape
    x = signal * g.standard_normal((n, RANK)) @ g.standard_normal((RANK, d)) + 0.1 * g.standard_normal((n, d))
    x = x.astype("f4" if signal < 1e5 else "f8")
    parameters, most = SOLVERS[solver]
    found, exact = PCA(RANK, **parameters).fit(x), centred(x)
    true = singular_values(exact) ** 2 / (n - 1)
    beside, certificate = true[RANK:].sum(), found.certificate_
    noise = float(beside / (min(n, d) - RANK))
    for name, value in (("noise_variance", noise), ("projection_error", float(beside))):
        given = certificate[name]
        assert given["value"] is None or abs(given["value"] - value) <= min(given["error"], 0.01 * value)
    assert np.isnan(found.noise_variance_) == (certificate["noise_variance"]["value"] is None)
    assert not np.isnan(found.noise_variance_) or signal > most
    if np.isnan(found.noise_variance_):
        for refused in (lambda: found.score(x), found.get_covariance, found.get_precision):
            with pytest.raises(PrecisionError, match="too small to be known with two digits"):
                refused()
        return
    # Of the samples of the fit, sum z^2 / lambda = k (n - 1) / n, and |x|^2 - |z|^2 adds up to what is beside.
    log = np.log(true[:RANK].astype(float)).sum() + (d - RANK) * np.log(noise) + d * np.log(2 * np.pi)
    likelihood = -0.5 * (log + (n - 1) / n * (RANK + float(beside) / noise))
    given = certificate["log_likelihood"]
    assert abs(given["value"] - likelihood) <= given["error"]
    rounding = 1e-15 * float((exact**2).sum(axis=1).max()) / noise
    if rounding > 1:  # of |x|^2, whose distance from the components is what counts
        assert np.isnan(found.score_samples(x)).any()
    else:
        np.testing.assert_allclose(found.score(x), given["value"], atol=1e-6 + 2e-6 * d + rounding)


@pytest.mark.parametrize("solver", ["default", "tsqr", "block_krylov"])
def test_weights_of_frequency_are_samples_beside_the_components_too(solver):
    x, weights = np.random.default_rng(0).standard_normal((12, 30)), np.arange(12) % 4 + 1
    parameters, _ = SOLVERS[solver]
    weighted = PCA(3, **parameters).fit(x, sample_weight=weights)
    repeated = PCA(3, **parameters).fit(np.repeat(x, weights, axis=0))
    np.testing.assert_allclose(weighted.noise_variance_, repeated.noise_variance_, rtol=1e-6)
    np.testing.assert_allclose(weighted.score(x), repeated.score(x), rtol=1e-6)
    np.testing.assert_allclose(weighted.get_precision(), repeated.get_precision(), rtol=1e-5, atol=1e-6)
    given, expected = (one.certificate_["log_likelihood"]["value"] for one in (weighted, repeated))
    np.testing.assert_allclose(given, expected, rtol=1e-6)
    suggested = [one.certificate_["n_components"]["suggested"] for one in (weighted, repeated)]
    assert suggested[0].get("broken_stick") == suggested[1].get("broken_stick")


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


def test_a_class_of_ones_own_may_take_an_argument_of_a_peer():
    class Own(PCA):
        def __init__(self, **given):
            given.pop("tol", None)
            super().__init__(**given)

    assert Own(tol=1, n_components=2).n_components == 2


def test_scores_that_float32_can_not_hold_stay_double():
    x = np.random.default_rng(0).normal(size=(12, 400)).astype("f4") * np.float32(1e37)
    scores = PCA(2).fit_transform(x)
    assert scores.dtype == (np.float64 if np.abs(scores).max() > np.finfo(np.float32).max else np.float32)
    assert np.isfinite(scores).all()


@pytest.mark.parametrize(("kind", "method"), [(PCA, "transform"), (PCA, "score_samples"), (KernelPCA, "transform")])
def test_a_warning_names_the_line_that_called_dpca(kind, method):
    x = np.random.default_rng(0).normal(size=(8, 20))
    fit = kind(2, missing="drop").fit(x)
    x[0, 1] = np.nan
    with pytest.warns(UserWarning, match="1 missing value of 1 new sample") as found:
        getattr(fit, method)(x)
    assert [one.filename for one in found] == [__file__]
