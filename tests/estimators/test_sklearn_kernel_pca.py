"""scikit-learn's own tests of KernelPCA, from its wheel, on dpca.KernelPCA; those that do not apply are listed here."""

import re

import pytest
import sklearn.decomposition.tests.test_kernel_pca as theirs

import dpca

# By the beginning of a test's name, parameters included.
NOT_APPLICABLE = {
    "test_kernel_pca[": "a callable is of the Gram matrix here, not of two samples; tests/estimators/test_kernel_pca.py has the rest",
    "test_kernel_pca_sparse": "the linear kernel has an inverse here without fit_inverse_transform: PCA's",
    "test_kernel_pca_raise_not_fitted_error": "the linear kernel has an inverse here without fit_inverse_transform: PCA's",
    "test_precomputed_kernel_not_psd[randomized": "an error of their randomized solver",
    "test_kernel_pca_solvers_equivalence": "their solvers against each other, which are one here",
}

# Their solvers: "auto" stands for all, since dpca's does not depend on them.
ALIKE = {"dense", "arpack", "randomized"}

# Of the classifier beside.
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


class KernelPCA(dpca.KernelPCA):
    """dpca.KernelPCA with scikit-learn's parameters: every solver of theirs is exact here."""

    def __init__(
        self,
        n_components=None,
        *,
        kernel="linear",
        gamma=None,
        degree=3,
        coef0=1,
        kernel_params=None,
        alpha=1.0,
        fit_inverse_transform=False,
        eigen_solver="auto",
        tol=0,
        max_iter=None,
        iterated_power="auto",
        remove_zero_eig=False,
        random_state=None,
        copy_X=True,
        n_jobs=None,
    ):
        super().__init__(
            n_components,
            kernel=kernel,
            gamma=gamma,
            degree=degree,
            coef0=coef0,
            kernel_params=kernel_params,
            alpha=alpha,
            fit_inverse_transform=fit_inverse_transform,
            remove_zero_eig=remove_zero_eig,
            random_state=random_state,
            copy_X=copy_X,
        )
        self.eigen_solver = eigen_solver
        self.tol = tol
        self.max_iter = max_iter
        self.iterated_power = iterated_power
        self.n_jobs = n_jobs


@pytest.fixture
def global_random_seed():
    return 42


@pytest.fixture(autouse=True)
def _ours(monkeypatch):
    monkeypatch.setattr(theirs, "KernelPCA", KernelPCA)


for _name, _function in vars(theirs).items():
    if re.match("test_", _name):
        globals()[_name] = _function
