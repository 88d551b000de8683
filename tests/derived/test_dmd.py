"""Dynamic modes from products, against the same on the snapshots."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpca.derived.dmd import dmd
from dpca.derived.gram import FactorProducts, Products, transformed
from dpca.derived.hilbert import Analytic
from dpca.derived.operators import Center, Chain
from dpca.derived.optimized_dmd import optimized_dmd
from dpca.errors import ConfigError
from tests.derived.drawn import STEP, Samples, assert_close, samples
from tests.drawn import examples

EXPONENTS = np.array([-0.02 + 2j, -0.02 - 2j, 0.01 + 0.7j, 0.01 - 0.7j, -0.3])


def plain(x):
    """Products of rows as they are."""
    return Products(x @ x.T, np.zeros(len(x)), 0.0), FactorProducts(np.linalg.qr(x.T)[1].T, np.zeros(len(x)), 0.0)


def of_system(n=60, d=90, noise=0.0, seed=0, times=None):
    """Snapshots of five modes, conjugate pairs but the last, with their maps."""
    rng = np.random.default_rng(seed)
    times = STEP * np.arange(n) if times is None else times
    maps = rng.standard_normal((2, d)) + 1j * rng.standard_normal((2, d))
    maps = np.stack([maps[0], maps[0].conj(), maps[1], maps[1].conj(), rng.standard_normal(d)])
    x = (np.exp(np.outer(times, EXPONENTS)) @ maps).real
    return x + noise * rng.standard_normal(x.shape), maps, times


def dmd_of(rows, rank, kind):
    """Tu et al. 2014, algorithm 2 (exact modes) and 1 (projected ones), on snapshots as columns."""
    q = rows.T
    u, s, vh = np.linalg.svd(q[:, :-1], full_matrices=False)
    u, s, v = u[:, :rank], s[:rank], vh[:rank].conj().T
    values, vectors = np.linalg.eig(u.conj().T @ q[:, 1:] @ v / s)
    modes = q[:, 1:] @ v / s @ vectors if kind == "exact" else u @ vectors
    modes /= np.linalg.norm(modes, axis=0)
    return values, modes, np.linalg.lstsq(modes, q[:, 0], rcond=None)[0]


def matched(values, others):
    return np.abs(np.asarray(values)[:, None] - others).argmin(1)


@given(seed=st.integers(0, 10**6), n=st.integers(40, 80), rank=st.integers(1, 6), is_complex=st.booleans())
@examples(10)
@pytest.mark.parametrize("kind", ["exact", "projected"])
def test_dmd_is_that_of_the_snapshots(kind, seed, n, rank, is_complex):
    data = samples(seed, n, 120)
    chain = Chain(n, (Center(n), Analytic(n)) if is_complex else (Center(n),))
    values, modes, amplitudes = dmd_of(chain.apply(data.x), rank, kind)
    for products in data.both:
        found = dmd(transformed(products, chain), data.times, rank, kind)
        order = matched(found.eigenvalues, values)
        assert sorted(order) == list(range(rank))
        np.testing.assert_allclose(found.eigenvalues, values[order], rtol=1e-9)
        parts = (data.centred.T @ found.coefficients) * found.amplitudes
        assert_close(parts, (modes * amplitudes)[:, order], 1e-7)
        assert (np.diff(found.amplitudes) <= 1e-9 * found.amplitudes[0]).all()


@given(
    seed=st.integers(0, 10**6),
    n=st.integers(40, 70),
    rank=st.integers(1, 6),
    delays=st.integers(2, 9),
    is_complex=st.booleans(),
)
@examples(10)
@pytest.mark.parametrize("kind", ["exact", "projected"])
def test_dmd_of_delays_is_that_of_windows_of_snapshots(kind, seed, n, rank, delays, is_complex):
    data = samples(seed, n, 120)
    chain = Chain(n, (Center(n), Analytic(n)) if is_complex else (Center(n),))
    rows = chain.apply(data.x)
    windows = np.hstack([rows[lag : n - delays + 1 + lag] for lag in range(delays)])
    values, modes, amplitudes = dmd_of(windows, rank, kind)
    for products in data.both:
        found = dmd(transformed(products, chain), data.times, rank, kind, delays)
        order = matched(found.eigenvalues, values)
        assert sorted(order) == list(range(rank))
        np.testing.assert_allclose(found.eigenvalues, values[order], rtol=1e-8)
        parts = data.centred.T @ found.coefficients
        np.testing.assert_allclose(np.linalg.norm(parts, axis=0), 1.0)
        assert_close(parts * found.amplitudes, (modes * amplitudes)[:120, order], 1e-6)
        assert found.scores.shape == (n, rank)


@pytest.mark.parametrize("kind", ["exact", "projected"])
def test_delays_find_more_frequencies_than_there_are_directions(kind):
    rng, n = np.random.default_rng(4), 80
    times = STEP * np.arange(n)
    exponents = np.array([-0.02 + 2j, 0.01 + 0.7j, 1.3j, -0.01 + 2.9j])
    exponents = np.concatenate([exponents, exponents.conj()])
    maps = rng.standard_normal((4, 2)) @ rng.standard_normal((2, 50))  # eight modes in two directions
    phases = np.exp(2j * np.pi * rng.random(4))[:, None]
    x = 2 * (np.exp(np.outer(times, exponents[:4])) @ (phases * maps)).real
    for products in plain(x):
        rows = transformed(products, Chain(n))
        without = dmd(rows, times, None, kind).exponents
        assert len(without) == 2
        assert np.abs(exponents[:, None] - without).min(axis=1).max() > 0.1
        found = dmd(rows, times, 8, kind, 8)
        order = matched(found.exponents, exponents)
        assert sorted(order) == list(range(8))
        assert (np.abs(found.eigenvalues / np.exp(exponents[order] * STEP) - 1) <= found.error).all()
        np.testing.assert_allclose(found.exponents, exponents[order], atol=1e-6)
        modes = x.T @ found.coefficients
        expected = np.concatenate([phases * maps, phases.conj() * maps])
        assert_close((modes * found.amplitudes).T, expected[order], 1e-5)
        assert_close(found.scores @ modes.T, x, 1e-5)


def test_a_linear_system_is_found_with_all_its_digits():
    x, maps, times = of_system()
    for products in plain(x):
        found = dmd(transformed(products, Chain(60)), times, 5)
        order = matched(found.exponents, EXPONENTS)
        np.testing.assert_allclose(found.exponents, EXPONENTS[order], atol=1e-10)
        np.testing.assert_allclose(found.frequencies, EXPONENTS[order].imag / 2 / np.pi, atol=1e-10)
        np.testing.assert_allclose(found.growth_rates, EXPONENTS[order].real, atol=1e-10)
        modes = x.T @ found.coefficients
        np.testing.assert_allclose(np.linalg.norm(modes, axis=0), 1.0)
        assert_close((modes * found.amplitudes).T, maps[order], 1e-9)
        assert_close(found.scores @ modes.T, x, 1e-9)
        assert found.rank == 5
        assert (np.abs(found.eigenvalues / np.exp(EXPONENTS[order] * STEP) - 1) <= found.error).all()


def test_pairs_of_conjugates_are_side_by_side():
    found = dmd(transformed(plain(of_system(noise=0.5)[0])[0], Chain(60)), STEP * np.arange(60), 13)
    j = 0
    while j < 13:
        if found.exponents[j].imag == 0 or np.isclose(abs(found.frequencies[j]), 1 / (2 * STEP)):
            j += 1
            continue
        assert found.exponents[j + 1] == pytest.approx(found.exponents[j].conj())
        assert found.exponents[j].imag > 0
        j += 2


def test_errors_of_single_precision_are_within_what_is_claimed():
    x, _, times = of_system(noise=0.01)
    double = plain(x)[0]
    sizes = np.sqrt(double.matrix.diagonal())
    noise = np.random.default_rng(1).standard_normal((60, 60))
    for rounding in (1e-8, 1e-6, 1e-4):
        matrix = double.matrix + rounding * np.outer(sizes, sizes) * (noise + noise.T) / 2
        for fit in (dmd, optimized_dmd):
            truth = fit(transformed(double, Chain(60)), times, 5)
            found = fit(transformed(Products(matrix, np.zeros(60), 0.0, rounding), Chain(60)), times, 5)
            order = matched(found.eigenvalues, truth.eigenvalues)
            wrong = np.abs(found.eigenvalues / truth.eigenvalues[order] - 1)
            assert (wrong <= found.error).all()
            assert found.reliable.tolist() == (found.error <= 1e-2).tolist()


def test_optimized_dmd_sees_through_noise_at_uneven_times():
    times = np.sort(np.random.default_rng(5).random(80)) * 30
    x, maps, _ = of_system(80, 90, 0.0, 0, times)
    maps = np.exp(EXPONENTS * times[0])[:, None] * maps
    for products in plain(x):
        found = optimized_dmd(transformed(products, Chain(80)), times, 5, EXPONENTS * 1.05)
        order = matched(found.exponents, EXPONENTS)
        np.testing.assert_allclose(found.exponents, EXPONENTS[order], atol=1e-9)
        modes = x.T @ found.coefficients
        assert_close((modes * found.amplitudes).T, maps[order], 1e-8)
        assert_close(found.scores @ modes.T, x, 1e-8)
    noisy, _, times = of_system(60, noise=0.3)
    samples_ = transformed(plain(noisy)[0], Chain(60))
    wrong = {
        fit.__name__: np.abs(EXPONENTS - (fitted := fit(samples_, times, 5).exponents)[matched(EXPONENTS, fitted)])[
            :4
        ].max()
        for fit in (dmd, optimized_dmd)
    }
    assert wrong["optimized_dmd"] < 0.5 * wrong["dmd"]


def test_optimized_dmd_has_the_least_residual():
    x, _, times = of_system(60, noise=0.3)
    found = optimized_dmd(transformed(plain(x)[0], Chain(60)), times, 5)
    u, s, _ = np.linalg.svd(x, full_matrices=False)
    scores = u[:, :5] * s[:5]

    def residual(exponents):
        columns = np.exp(np.outer(times, exponents))
        return np.linalg.norm(scores - columns @ np.linalg.lstsq(columns, scores, rcond=None)[0])

    least = residual(found.exponents)
    rng = np.random.default_rng(0)
    for _ in range(20):
        shift = 1e-4 * (rng.standard_normal(5) + 1j * rng.standard_normal(5))
        assert residual(found.exponents + shift) > least


def test_what_it_refuses():
    x, _, times = of_system()
    system = transformed(plain(x)[0], Chain(60))
    with pytest.raises(ConfigError, match="regular times, but the step is 0.6 after row 6"):
        dmd(system, np.where(np.arange(60) > 6, times + 0.1, times), 5)
    with pytest.raises(ConfigError, match=r"each of 60 rows.*shape \(59,\)"):
        dmd(system, times[1:], 5)
    with pytest.raises(ConfigError, match="rank is 7, but 1 to 5 is allowed"):
        dmd(system, times, 7)
    with pytest.raises(ConfigError, match="modes is 'exactly', but exact or projected"):
        dmd(system, times, 5, "exactly")
    for delays in (0, 60):
        with pytest.raises(ConfigError, match=f"delays is {delays}, but 1 to 59 is allowed for 60 rows"):
            dmd(system, times, 5, "exact", delays)
    with pytest.raises(ConfigError, match="rank is 31, but 60 rows allow 30"):
        optimized_dmd(system, times, 31)
    with pytest.raises(ConfigError, match="0 follows 0 at row 1"):
        optimized_dmd(system, np.zeros(60), 5)
    with pytest.raises(ConfigError, match="5 exponents are needed"):
        optimized_dmd(system, times, 5, EXPONENTS[:3])


def test_a_rank_below_the_number_of_snapshots_is_found():
    rng = np.random.default_rng(0)
    data = Samples(rng.standard_normal((60, 5)).cumsum(axis=0) @ rng.standard_normal((5, 300)), np.zeros(300))
    for products in data.both:
        found = dmd(transformed(products, Chain(60)), data.times)
        assert len(found.exponents) == 5
