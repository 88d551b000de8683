"""Principal, extended and complex components from products, against a dense SVD of the samples."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpca.derived.extended import extended
from dpca.derived.gram import FactorProducts, Products, transformed
from dpca.derived.groups import Anomalies
from dpca.derived.hilbert import Analytic, hilbert
from dpca.derived.operators import Center, Chain, SelectRows, Weights
from dpca.derived.pca import pca, project
from dpca.errors import ConfigError
from tests.derived.drawn import assert_close, assert_same_up_to_phase, operators, samples
from tests.drawn import examples

K = 4


def assert_components(found, rows, maps):
    """Spectrum, scores, and maps, (d, k), of rows, (p, d), by SVD."""
    u, s, vh = np.linalg.svd(rows, full_matrices=False)
    np.testing.assert_allclose(found.eigenvalues, s[:K] ** 2, rtol=1e-11)
    assert found.total == pytest.approx((s**2).sum(), rel=1e-11)
    assert_same_up_to_phase(found.scores, u[:, :K] * s[:K])
    assert_same_up_to_phase(maps, vh[:K].conj().T)
    largest = found.scores[np.abs(found.scores).argmax(0), np.arange(K)]
    np.testing.assert_allclose(largest, np.abs(largest), rtol=1e-12)
    assert found.reliable.all()


@given(seed=st.integers(0, 10**6), n=st.integers(40, 80), name=st.sampled_from(list(operators(40))))
@examples(20)
def test_pca(seed, n, name):
    data = samples(seed, n, 120)
    operator, direct = operators(n, seed)[name]
    rows = direct(data.x)
    for products in data.both:
        found = pca(transformed(products, Chain(n, (operator,))), K)
        assert_components(found, rows, data.x.T @ found.coefficients)
    np.testing.assert_allclose(found.explained_variance(ddof=0), found.eigenvalues / len(rows))
    np.testing.assert_allclose(found.explained_variance(divisor=7.0), found.eigenvalues / 7)
    ratio = found.eigenvalues / (np.abs(rows) ** 2).sum()
    np.testing.assert_allclose(found.explained_variance_ratio, ratio)


@given(
    seed=st.integers(0, 10**6), n=st.integers(40, 80), lags=st.integers(1, 8), step=st.integers(1, 4), x=st.booleans()
)
@examples(10)
def test_extended(seed, n, lags, step, x):
    data, windows = samples(seed, n, 60), n - (lags - 1) * step
    chain = Chain(n, (Anomalies(np.arange(n) % 4),) if x else ())
    rows = chain.apply(data.x)
    beside = np.hstack([rows[lag * step : lag * step + windows] for lag in range(lags)])
    for products in data.both:
        found = extended(transformed(products, chain), lags, step, K)
        maps = np.concatenate([data.x.T @ coefficients for coefficients in found.coefficients])
        assert_components(found, beside - beside.mean(0), maps)
        assert found.lags.tolist() == [lag * step for lag in range(lags)]


@given(seed=st.integers(0, 10**6), n=st.integers(40, 80), padding=st.sampled_from(["none", "exp"]))
@examples(8)
def test_hilbert(seed, n, padding):
    data = samples(seed, n, 100)
    direct = operators(n)["analytic" if padding == "none" else "analytic, padded"][1]
    rows = direct(data.centred)
    for products in data.both:
        found = hilbert(products, Chain(n), K, padding)
        assert_components(found, rows - rows.mean(0), data.centred.T @ found.coefficients)


def test_complex_rows_are_sums_of_components():
    data = samples(2, 40, 60)
    found = hilbert(data.products, Chain(40))
    rows = Center(40).apply(Analytic(40).apply(data.centred))
    assert_close(found.scores @ (data.centred.T @ found.coefficients).conj().T, rows, 1e-10)


def test_a_wave_has_one_complex_component_with_its_phase():
    t, place = np.arange(48.0), np.linspace(0, 2 * np.pi, 90, endpoint=False)
    x = np.cos(2 * np.pi * t[:, None] / 12 - place)
    found = hilbert(Products(x @ x.T, np.zeros(48), 0.0), Chain(48))
    assert found.rank == 1
    assert found.explained_variance_ratio[0] == pytest.approx(1.0)
    phases = np.unwrap(np.angle((x.T @ found.coefficients)[:, 0]))
    np.testing.assert_allclose(np.diff(phases), 2 * np.pi / 90, atol=1e-9)


def test_equal_eigenvalues_and_equal_samples():
    x = np.repeat(np.eye(6), 2, axis=0)
    x -= x.mean(0)
    for products in (Products(x @ x.T, np.zeros(12), 0.0), FactorProducts(x, np.zeros(12), 0.0)):
        found = pca(transformed(products, Chain(12, (Center(12),))))
        assert found.rank == 5
        np.testing.assert_allclose(found.eigenvalues, 2.0)
        maps = x.T @ found.coefficients
        np.testing.assert_allclose(maps.T @ maps, np.eye(5), atol=1e-14)


def test_samples_that_a_selection_leaves_out_are_projected():
    data, n = samples(3, 50, 80), 50
    kept, left = np.arange(0, 50, 2), np.arange(1, 50, 2)
    mean, origin = data.x[kept].mean(0), np.zeros(50)
    origin[kept] = 1 / len(kept)
    for products in data.both:
        found = pca(transformed(products, Chain(n, (SelectRows(kept, n), Center(len(kept))))), K)
        cross = data.centred @ data.centred.T
        maps = data.centred.T @ found.coefficients
        scores = project(products, found.coefficients, cross[left], origin)
        assert_close(scores, (data.x[left] - mean) @ maps, 1e-11)
        assert_close(project(products, found.coefficients, cross[kept], origin), found.scores, 1e-11)


def test_new_samples_are_projected_on_anomalies():
    data, n = samples(4, 48, 80), 48
    months, new = np.arange(48) % 12, samples(5, 7, 80).x
    origin = (months == np.array([0, 3, 3, 11, 5, 6, 7])[:, None]) / 4
    found = pca(transformed(data.products, Chain(n, (Anomalies(months),))), K)
    scores = project(data.products, found.coefficients, (new - data.mean) @ data.centred.T, origin)
    assert_close(scores, (new - origin @ data.x) @ (data.centred.T @ found.coefficients), 1e-11)


def test_weighted_scores_are_those_of_the_samples_times_roots():
    data, weights = samples(6, 40, 60), np.random.default_rng(0).random(40) + 0.1
    found = pca(transformed(data.products, Chain(40, (Weights(weights),))), K)
    cross, shares = data.centred @ data.centred.T, weights / weights.sum()
    scores = project(data.products, found.coefficients, cross, shares)
    assert_close(np.sqrt(weights)[:, None] * scores, found.scores, 1e-11)


def test_what_it_refuses():
    data = samples(0, 30, 10)  # ten features: rank 10
    centred = transformed(data.products, Chain(30, (Center(30),)))
    with pytest.raises(ConfigError, match="n_components is 11, but 1 to 10 is allowed"):
        pca(centred, 11)
    assert pca(centred).rank == pca(transformed(data.factor, Chain(30, (Center(30),)))).rank == 10
    with pytest.raises(ConfigError, match="1 windows are left"):
        extended(centred, 30)
    with pytest.raises(ConfigError, match="step 0"):
        extended(centred, 3, 0)
    with pytest.raises(ConfigError, match="n_components is 0"):
        hilbert(data.products, Chain(30), 0)
    kept = pca(transformed(data.products, Chain(30)), 2)
    with pytest.raises(ConfigError, match="operators that keep the mean"):
        project(data.products, kept.coefficients, np.zeros((1, 30)), np.full(30, 1 / 30))
    with pytest.raises(ConfigError, match="sum to 2"):
        project(data.products, pca(centred, 2).coefficients, np.zeros((1, 30)), np.full(30, 1 / 15))
