"""Bi-cross-validation from Gram matrices of groups, against its definition on the data."""

from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.signal import lfilter

from dpca import PCA
from dpca.errors import AssumptionError
from dpca.numerics.bi_cross_validation import bi_cross_validation
from tests.drawn import examples


def direct(x, groups, row_folds, seed, most):
    """Errors by Owen and Perry's definition: A is predicted by B (D_k)^+ C."""
    n = len(x)
    order, errors = np.random.default_rng(seed).permutation(n), np.zeros(most + 1)
    for group in range(groups.max() + 1):
        left, rest = np.flatnonzero(groups == group), np.flatnonzero(groups != group)
        for number in range(row_folds):
            out = order[number::row_folds]
            kept = np.setdiff1d(np.arange(n), out)
            about = x - x[kept].mean(axis=0)
            a, b = about[np.ix_(out, left)], about[np.ix_(out, rest)]
            c, d = about[np.ix_(kept, left)], about[np.ix_(kept, rest)]
            u, s, vt = np.linalg.svd(d, full_matrices=False)
            k_most = int((s > 1e-6 * s[0]).sum())
            for k in range(most + 1):
                kk = min(k, k_most)
                errors[k] += np.sum((a - b @ (vt[:kk].T / s[:kk]) @ u[:, :kk].T @ c) ** 2)
    return errors / errors[0]


@given(st.integers(6, 30), st.integers(8, 60), st.integers(2, 5), st.integers(2, 4), st.integers(0, 9), st.booleans())
@examples(40)
def test_it_is_what_leaving_out_samples_and_features_gives(n, d, n_groups, row_folds, seed, as_factors):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, 2)) @ rng.standard_normal((2, d)) + rng.standard_normal((n, d)) + 5
    groups, centred = np.arange(d) % n_groups, x - x.mean(axis=0)
    parts = [centred[:, groups == number] for number in range(n_groups)]
    given_as = [np.linalg.qr(part.T, mode="complete")[1][:n] if as_factors else part @ part.T for part in parts]
    given_as = [np.vstack([one, np.zeros((n - len(one), n))]) for one in given_as]
    found = bi_cross_validation(given_as, 1 if as_factors else 2, row_folds=row_folds, seed=seed)
    expected = direct(x, groups, found.n_row_folds, seed, len(found.errors) - 1)
    np.testing.assert_allclose(found.errors, expected, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("n_factors", [0, 3])
def test_the_rule_finds_factors_in_unequal_noise_where_others_refuse(n_factors):
    rng = np.random.default_rng(1)
    x = rng.standard_normal((60, 3000)) * rng.lognormal(sigma=0.7, size=3000)
    x += 8 * rng.standard_normal((60, n_factors)) @ rng.standard_normal((n_factors, 3000))
    found = PCA("bi_cross_validation").fit(x)
    document = found.certificate_["n_components"]
    assert document["suggested"]["bi_cross_validation"] == n_factors
    assert document["bi_cross_validation"]["n_components"] == n_factors
    assert np.argmin(document["bi_cross_validation"]["errors"]) == n_factors
    assert isinstance(document["suggested"]["marchenko_pastur"], str)
    assert found.n_components_ == max(1, n_factors)


@pytest.mark.parametrize("solver", ["gram_eigh", "tsqr"])
def test_what_regressors_took_from_the_samples_is_no_reason_to_refuse(solver):
    for seed in (0, 1, 5, 9):
        rng = np.random.default_rng(seed)
        covariates = rng.standard_normal((40, 8))
        x = 3 * covariates @ rng.standard_normal((8, 1000)) + rng.standard_normal((40, 1000))
        x += 0.8 * rng.standard_normal((40, 3)) @ rng.standard_normal((3, 1000))
        found = PCA("bi_cross_validation", svd_solver=solver, regress_out={"covariates": covariates}).fit(x)
        assert found.n_components_ == 3


def test_noise_that_is_correlated_along_the_samples_is_refused():
    noise = lfilter([1], [1, -0.7], np.random.default_rng(2).standard_normal((80, 1500)), axis=0)
    with pytest.raises(AssumptionError, match="noise is correlated along the samples, as in time series"):
        PCA("bi_cross_validation").fit(noise)


@pytest.mark.parametrize("shape", [(3, 40), (2, 9), (5, 5)])
def test_few_samples_do_not_break_it(shape):
    x = np.random.default_rng(0).standard_normal(shape)
    with suppress(AssumptionError):  # where one component is all that could be tried, it can't be told from more
        assert PCA("bi_cross_validation").fit(x).n_components_ >= 1
    assert PCA("bi_cross_validation").fit(np.ones(shape)).n_components_ == 1  # nothing varies
