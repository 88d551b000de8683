"""Spectral components from products: against Welch's method and a dense SVD at each frequency."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import signal

from dpca.derived.filters import RunningMean
from dpca.derived.gram import FactorProducts, Products, transformed
from dpca.derived.groups import Between
from dpca.derived.hilbert import Analytic
from dpca.derived.operators import Center, Chain
from dpca.derived.spod import spod
from dpca.errors import ConfigError
from tests.derived.drawn import STEP, assert_close, assert_same_up_to_phase, samples
from tests.drawn import examples


@given(
    seed=st.integers(0, 10**6),
    n=st.integers(40, 80),
    block=st.integers(6, 20),
    overlap=st.integers(0, 5),
    window=st.sampled_from(["hamming", "boxcar", ("tukey", 0.3)]),
    is_complex=st.booleans(),
)
@examples(20)
def test_it_is_an_svd_of_the_blocks_at_each_frequency(seed, n, block, overlap, window, is_complex):
    data = samples(seed, n, 30)
    chain = Chain(n, (Center(n), Analytic(n)) if is_complex else (Center(n),))
    rows, values = chain.apply(data.x), signal.get_window(window, block)
    starts = range(0, n - block + 1, block - overlap)
    scale = np.sqrt(STEP / (values**2).sum() / len(starts))
    sums = scale * np.stack([np.fft.fft(values[:, None] * rows[i : i + block], axis=0) for i in starts], axis=1)
    frequencies = np.fft.fftfreq(block, STEP)
    if not is_complex:
        sums, frequencies = sums[: block // 2 + 1], np.fft.rfftfreq(block, STEP)
        sums[1 : (block + 1) // 2] *= np.sqrt(2)
    for products in data.both:
        given_window = values if isinstance(window, tuple) else window
        found = spod(transformed(products, chain), data.times, block, overlap, given_window)
        np.testing.assert_allclose(found.frequencies, frequencies, rtol=1e-12)
        assert found.starts.tolist() == list(starts)
        modes = np.einsum("nd,fnk->fdk", data.centred, found.coefficients)
        for f, blocks in enumerate(sums):
            u, s, vh = np.linalg.svd(blocks, full_matrices=False)
            k = min(found.energies.shape[1], len(s))
            np.testing.assert_allclose(found.energies[f, :k], s[:k] ** 2, atol=1e-12 * s[0] ** 2)
            assert (found.energies[f, k:] == 0).all()
            assert found.total[f] == pytest.approx((s**2).sum())
            assert_close(found.scores[f] @ modes[f].T, blocks, 1e-7)
            assert_same_up_to_phase(found.scores[f][:, :1], u[:, :1] * s[0], 1e-8)
            assert_same_up_to_phase(modes[f][:, :1], vh[:1].T, 1e-7)
        assert found.reliable[:, 0].all()


@pytest.mark.parametrize(
    "of_groups", [Between(np.arange(60) % 6), Chain(60, (Between(np.arange(60) // 20), Center(60)))]
)
def test_errors_of_rows_that_are_alike_add_up_in_a_block(of_groups):
    """Rows that are means of groups repeat the errors of their samples: a block of equal rows has them all."""
    beyond, rounding = [], 1e-5
    for seed in range(40):
        g = np.random.default_rng(seed)
        x = g.standard_normal((60, 50)) * np.logspace(0, -1, 60)[:, None]
        x -= x.mean(axis=0)
        sizes, noise = np.linalg.norm(x, axis=1), np.triu(g.standard_normal((60, 60)))
        noise = rounding * np.outer(sizes, sizes) * (noise + np.triu(noise, 1).T)
        chain = of_groups if isinstance(of_groups, Chain) else Chain(60, (of_groups,))
        true, found = (
            spod(transformed(Products(x @ x.T + off, np.zeros(60), 0.0, rounding), chain), np.arange(60.0), 12)
            for off in (0.0, noise)
        )
        known = np.isfinite(found.error) & (true.energies > 0)
        off = np.abs(found.energies - true.energies)[known] / true.energies[known]
        beyond.append((off / found.error[known])[true.energies[known] > 1e-3 * true.energies.max()].max())
    assert np.max(beyond) < 2
    assert np.median(beyond) > 0.02  # and no more is claimed than has to be


def test_errors_of_rows_that_cancel_in_a_block_are_left():
    """A season of the length of a block is nothing at other frequencies, but the products of its rows were rounded: a factor shows by how much."""
    beyond = []
    for seed in range(40):
        g, times = np.random.default_rng(seed), np.arange(60.0)
        x = 285 + 60 * np.outer(np.sin(times * np.pi / 6), g.standard_normal(400)) + g.standard_normal((60, 400))
        x -= x.mean(axis=0)
        chain = Chain(60, (RunningMean(times, 4), Center(57)))
        double, true = (
            spod(transformed(products, chain), times[:57], 12, window="hann", frequencies=[0.25])
            for products in (
                Products(x @ x.T, np.zeros(60), 0.0),
                FactorProducts(np.linalg.qr(x.T)[1].T, np.zeros(60), 0.0),
            )
        )
        beyond.append((np.abs(double.energies / true.energies - 1) / double.error).max())
    assert np.max(beyond) < 1
    assert np.median(beyond) > 0.02


@pytest.mark.parametrize("block", [16, 17])
def test_energies_sum_to_welchs_spectral_density(block):
    data = samples(1, 80, 40)
    found = spod(transformed(data.products, Chain(80, (Center(80),))), data.times, block, window="hann")
    frequencies, density = signal.welch(data.centred, 1 / STEP, "hann", block, detrend=False, axis=0, scaling="density")
    np.testing.assert_allclose(found.frequencies, frequencies)
    np.testing.assert_allclose(found.energies.sum(1), density.sum(1), rtol=1e-11)
    np.testing.assert_allclose(found.total, density.sum(1), rtol=1e-11)


def test_some_frequencies_and_components():
    data = samples(2, 80, 40)
    rows = transformed(data.products, Chain(80, (Center(80),)))
    every = spod(rows, data.times, 16)
    some = spod(rows, data.times, 16, frequencies=[0.49, 0.26, 0.24], n_components=2)
    assert some.frequencies.tolist() == [0.25, 0.5]
    assert_close(some.energies, every.energies[[2, 4], :2])
    assert_close(some.coefficients, every.coefficients[[2, 4], :, :2])
    assert some.scores.shape == (2, len(some.starts), 2)


def test_a_wave_is_one_mode_at_its_frequency():
    t, place = STEP * np.arange(96), np.linspace(0, 2 * np.pi, 50, endpoint=False)
    x = np.cos(2 * np.pi * 0.25 * t[:, None] - place) + 1e-4 * np.random.default_rng(0).standard_normal((96, 50))
    data = samples(0, 96, 50)
    data = type(data)(x, x.mean(0))
    found = spod(transformed(data.products, Chain(96, (Center(96),))), t, 32)
    at = int(found.total.argmax())
    assert found.frequencies[at] == 0.25
    assert found.energies[at, 0] > 0.999 * found.total[at]
    mode = data.centred.T @ found.coefficients[at][:, 0]
    np.testing.assert_allclose(np.diff(np.unwrap(np.angle(mode))), -2 * np.pi / 50, atol=1e-2)


def test_what_is_not_there_is_0():
    data = samples(3, 64, 40)
    found = spod(transformed(data.products, Chain(64, (Center(64),))), data.times, 16, 0, "boxcar")
    assert found.rank[0] == 3, "means of four blocks sum to 0"
    assert found.energies[0, 3] == 0
    assert (found.coefficients[0][:, 3] == 0).all()
    assert not found.reliable[0, 3]
    assert found.reliable[:, :3].all()


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"block": 81}, "block is 81 rows, but 2 to 80"),
        ({"block": 60, "overlap": 10}, "one block of 60"),
        ({"overlap": 16}, "0 to 15"),
        ({"frequencies": [1.01]}, "0 to 1 cycles"),
        ({"frequencies": [-0.1]}, "0 to 1 cycles"),
        ({"frequencies": []}, "0 to 1 cycles"),
        ({"window": "round"}, "window is 'round'"),
        ({"window": np.ones(15)}, r"\(16,\) is allowed"),
        ({"n_components": 10}, "9 blocks have 1 to 9"),
        ({"times": np.arange(80.0) ** 2}, "regular times"),
        ({"times": np.arange(79.0)}, "each of 80 rows"),
    ],
)
def test_what_it_refuses(changed, said):
    data = samples(4, 80, 20)
    rows = transformed(data.products, Chain(80, (Center(80),)))
    with pytest.raises(ConfigError, match=said):
        spod(rows, **({"times": data.times, "block": 16} | changed))
