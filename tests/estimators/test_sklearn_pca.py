"""scikit-learn's own tests of PCA, from its wheel, on dpca.PCA. Those that do not apply are listed here, and not collected."""

import re
from collections.abc import Collection

import numpy as np
import pytest
import sklearn.decomposition.tests.test_pca as theirs

import dpca

# By the beginning of a test's name, parameters included.
NOT_APPLICABLE = {
    "test_pca_array_api_compliance": "array API: arrays of other libraries are handed to numpy.asarray",
    "test_pca_mle_array_api_compliance": "array API: arrays of other libraries are handed to numpy.asarray",
    "test_array_api_error_and_warnings_on_unsupported_params": "array API: arrays of other libraries go to numpy.asarray",
    "test_sparse_pca_solver_error": "every solver takes sparse input here",
    "test_pca_svd_solver_auto": "their choice among their solvers",
    "test_pca_solver_equivalence[float32": "scores are float64 for every input",
    "test_pca_dtype_preservation": "scores are float64 for every input; components are float32 for float32",
    "test_pca_score[": "a last assertion wants whitening of scores to change a sample's likelihood; it does not here",
    "test_pca_score3": "0 components are refused",
    "test_pca_validation": "0 components are refused, and messages name data and parameter in another order",
    "test_pca_zero_noise_variance_edge_cases": "the likelihood of 100 features without noise is an error here",
    "test_n_components_none[data1-arpack": "arpack keeps one component less",
    "test_n_components_none[data0-arpack": "arpack keeps one component less",
    "test_n_components_mle_error": "solvers that cannot take mle",
}


# Their solvers: one stands for all, since dpca's does not depend on them.
ALIKE = {"auto", "arpack", "randomized", "covariance_eigh"}


class PCA(dpca.PCA):
    """dpca.PCA with scikit-learn's parameters: every solver of theirs is exact here."""

    def __init__(
        self,
        n_components=None,
        *,
        copy=True,
        whiten=False,
        svd_solver="auto",
        tol=0.0,
        iterated_power="auto",
        n_oversamples=10,
        power_iteration_normalizer="auto",
        random_state=None,
    ):
        super().__init__(n_components, whiten=whiten, svd_solver=svd_solver, random_state=random_state)
        self.copy = copy
        self.tol = tol
        self.iterated_power = iterated_power
        self.n_oversamples = n_oversamples
        self.power_iteration_normalizer = power_iteration_normalizer

    def _fit(self, X, sample_weight=None):
        theirs, self.svd_solver = self.svd_solver, "auto"
        try:
            return super()._fit(X, sample_weight)
        finally:
            self.svd_solver = theirs


@pytest.fixture
def global_random_seed():
    return 42


@pytest.fixture(params=[np.float32, np.float64])
def global_dtype(request):
    return request.param


@pytest.fixture(autouse=True)
def _ours(monkeypatch):
    monkeypatch.setattr(theirs, "PCA", PCA)


def _collectable(function):
    """Their test, without the parameters where this pytest would warn of how they are given."""
    marks = getattr(function, "pytestmark", [])
    if all(mark.name != "parametrize" or isinstance(mark.args[1], Collection) for mark in marks):
        return function
    return lambda: pytest.fail("does not apply as it is: list it with its reason")


for _name, _function in vars(theirs).items():
    if re.match("test_", _name):
        globals()[_name] = _collectable(_function)
