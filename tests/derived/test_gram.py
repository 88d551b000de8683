"""A K A^H from K and from a factor of it: against the products of A X."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from dpca.derived.extended import extended
from dpca.derived.fits import Detrend
from dpca.derived.gram import FactorProducts, Products, products_of, transformed
from dpca.derived.groups import Anomalies, Between, GroupMeans
from dpca.derived.hilbert import Analytic, hilbert
from dpca.derived.operators import Center, Chain, SelectRows
from dpca.derived.pca import pca
from dpca.derived.spod import spod
from dpca.errors import ConfigError, DataError
from dpca.numerics.accumulators.gram import center_gram
from dpca.numerics.gram_matrix import GramMatrix, SummedFeatures
from dpca.numerics.ladder import Rung
from dpca.numerics.sketch import Sketch, random_columns
from tests.derived.drawn import operators, samples
from tests.drawn import examples

NAMES = list(operators(40))


@given(
    seed=st.integers(0, 10**6),
    n=st.integers(40, 80),
    names=st.lists(st.sampled_from(NAMES), max_size=2),
    mean=st.sampled_from([0.0, 5.0, 300.0]),
    dtype=st.sampled_from(["f4", "f8"]),
)
@examples(40)
def test_it_is_the_matrix_of_products(seed, n, names, mean, dtype):
    data, made, left = samples(seed, n, 100, mean, dtype), [], n
    for name in names:
        made.append(operators(left, seed)[name][0])
        left = made[-1].n_out
        if left < 22:
            break
    chain = Chain(n, tuple(made))
    rows = chain.apply(data.centred if chain.removes_mean else data.x)
    expected, sizes = rows @ rows.conj().T, (data.x**2).sum()
    assume(
        np.trace(expected).real > 1e-9 * sizes
    )  # as anomalies, and then what lies between the same groups, do not leave
    matrix = transformed(data.products, chain).products.matrix
    np.testing.assert_allclose(matrix, expected, rtol=0, atol=1e-13 * sizes)
    assert (matrix == matrix.conj().T).all(), "it is Hermitian to the bit"
    factor = transformed(data.factor, chain).products.factor
    np.testing.assert_allclose(factor @ factor.conj().T, expected, rtol=0, atol=1e-13 * sizes)


def test_what_removes_the_mean_does_not_see_it():
    near, far = samples(0, mean=0.0), samples(0, mean=1e7)
    chain = Chain(60, (Anomalies(np.arange(60) % 12), Detrend(np.arange(60.0))))
    far = Products(near.products.matrix, far.products.mean_product, far.products.mean_norm2)
    assert (transformed(far, chain).products.matrix == transformed(near.products, chain).products.matrix).all()


def test_amplification():
    data = samples(0)
    selected = transformed(data.products, Chain(60, (SelectRows(np.arange(10), 60),)))
    assert selected.amplification == pytest.approx(1.0)
    cycle = np.sin(np.pi * np.arange(60) / 6)[:, None]
    data = samples(0, mean=0.0)
    x = data.centred + 50 * cycle * np.ones(300)
    for removes in (Chain(60, (Anomalies(np.arange(60) % 12),)), Chain(60, (Center(60),))):
        found = transformed(Products(x @ x.T, np.zeros(60), 0.0), removes)
        left = np.linalg.norm(removes.apply(x)) ** 2
        assert found.amplification == pytest.approx(np.linalg.norm(x) ** 2 / left, rel=0.25)


def season(rng, n, d):
    return 60 * np.outer(np.sin(np.arange(n) * np.pi / 6), rng.standard_normal(d)) + rng.standard_normal((n, d))


def trend(rng, n, d):
    return np.outer(np.arange(n), np.abs(rng.standard_normal(d))) + 0.1 * rng.standard_normal((n, d))


def repeated(rng, n, d):
    return np.repeat(rng.standard_normal((n, d // 100)) + np.sin(np.arange(n) / 9)[:, None], 100, axis=1)


def in_single_precision(x):
    """What a run in single precision keeps of X_c, (n, d)."""
    n, d = x.shape
    single = x.astype("f4")
    parts = [(single[:, i : i + 500] @ single[:, i : i + 500].T).astype(float) for i in range(0, d, 500)]
    columns = random_columns(n, True)
    return GramMatrix(
        kept=center_gram(sum(parts)),
        mean_product=np.zeros(n),
        mean_norm2=0.0,
        norms2=(x**2).sum(1),
        features=SummedFeatures(d),
        rung=Rung("gram_eigh", np.dtype("f4")),
        exact=False,
        difference=0.0,
        sketch=Sketch(columns, x @ (x.T @ columns)),
    )


def eigenvalues(rows):
    return np.linalg.svd(rows - rows.mean(0), compute_uv=False)[:2] ** 2


@pytest.mark.parametrize(
    ("draw", "name"),
    [
        *((season, name) for name in (*(name for name in NAMES if "analytic" not in name), "season and trend")),
        *((trend, name) for name in ("detrend", "difference", "high-pass", "season and trend")),
        *((repeated, name) for name in ("center", "weights", "between", "running mean")),
    ],
)
def test_errors_of_products_in_single_precision_are_within_what_is_claimed(draw, name):
    n = 60
    x = draw(np.random.default_rng(3), n, 1500)
    x -= x.mean(0)
    if name == "season and trend":
        parts = (Anomalies(np.arange(n) % 12), Detrend(np.arange(n)))
    else:
        parts = (operators(n)[name][0],)
    products, chain = products_of(in_single_precision(x)), Chain(n, parts)
    chain = chain.then(Center(chain.n_out))
    rows, samples_ = chain.apply(x), transformed(products, chain)
    windows = np.hstack([rows[: len(rows) - 3], rows[3:]])
    for found, values in (
        (pca(samples_, 2), eigenvalues(rows)),
        (extended(samples_, 2, 3, 2), eigenvalues(windows)),
        (hilbert(products, chain, 2), eigenvalues(Analytic(len(rows)).apply(rows))),
    ):
        wrong = np.abs(found.eigenvalues / values - 1)
        assert (wrong <= found.error).all()
        assert found.error[0] < 1e3 * max(wrong[0], 1e-7), "and a claim is worth something"


def test_errors_of_spectral_components_are_within_what_is_claimed():
    for draw in (season, trend, repeated):
        x = draw(np.random.default_rng(3), 96, 1500)
        x -= x.mean(0)
        chain = Chain(96, (Center(96),))
        double = Products(x @ x.T, np.zeros(96), 0.0)
        found, truth = (
            spod(transformed(products, chain), np.arange(96.0), 24, n_components=3)
            for products in (products_of(in_single_precision(x)), double)
        )
        wrong = np.abs(found.energies - truth.energies) / truth.energies
        assert (wrong[found.energies > 0] <= found.error[found.energies > 0]).all()
        assert found.reliable[:, 0].sum() >= 2


@pytest.mark.parametrize("size", [1e3, 1e4])
def test_what_rounding_hides_is_not_called_reliable(size):
    n, d = 48, 400
    rng = np.random.default_rng(0)
    x = size * np.outer(np.tile(rng.standard_normal(12), 4), rng.standard_normal(d)) + rng.standard_normal((n, d))
    x -= x.mean(0)
    noise = rng.standard_normal((n, n)) * 3e-8
    matrix = x @ x.T
    matrix += np.sqrt(np.outer(matrix.diagonal(), matrix.diagonal())) * (noise + noise.T)
    chain = Chain(n, (Anomalies(np.arange(n) % 12),))
    double = pca(transformed(Products(x @ x.T, np.zeros(n), 0.0), chain), 30)
    factor = pca(transformed(FactorProducts(np.linalg.qr(x.T)[1].T, np.zeros(n), 0.0), chain), 30)
    if size == 1e4:
        with pytest.raises(DataError, match="precision: double"):
            transformed(Products(matrix, np.zeros(n), 0.0, 6e-8), chain)
    else:
        single = pca(transformed(Products(matrix, np.zeros(n), 0.0, 6e-8), chain))
        assert not single.reliable.any()
        assert single.rank < 30
    truth = np.linalg.svd(chain.apply(x), compute_uv=False)[:30] ** 2
    for found in (double, factor):
        assert found.reliable.all()
        assert (np.abs(found.eigenvalues / truth - 1) <= found.error).all()
    assert factor.error.max() < double.error.max() / 1e3


def test_memory_is_that_of_one_more_matrix():
    n = 1500
    matrix = np.eye(n)
    products, chain = (
        Products(matrix, np.zeros(n), 0.0),
        Chain(n, (Anomalies(np.arange(n) % 12), Detrend(np.arange(n)))),
    )
    tracemalloc.start()
    transformed(products, chain)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (
        peak < 1.8 * matrix.nbytes
    )  # of which blocks of 256 columns are 0.17 each, and half of that where several are held


def test_what_it_refuses():
    data = samples(0, n=20)
    with pytest.raises(ConfigError, match="made for 10 samples, but there are 20"):
        transformed(data.products, Chain(10))
    with pytest.raises(DataError, match="NaN or infinite"):
        Products(np.full((3, 3), np.nan), np.zeros(3), 0.0)
    with pytest.raises(ConfigError, match=r"shape \(3, 2\)"):
        Products(np.zeros((3, 2)), np.zeros(3), 0.0)
    constant = np.outer(np.arange(20) % 4 + 1.0, np.ones(5))
    constant -= constant.mean(0)
    for products in (Products(constant @ constant.T, np.zeros(20), 0.0), FactorProducts(constant, np.zeros(20), 0.0)):
        with pytest.raises(DataError, match="leave nothing"):
            transformed(products, Chain(20, (Anomalies(np.arange(20) % 4),)))


YEARS, MONTHS = np.arange(60) // 6, np.arange(60) % 6


@pytest.mark.parametrize(
    "operators",
    [
        (Anomalies(YEARS), GroupMeans(YEARS)),
        (Between(MONTHS), Anomalies(MONTHS)),
        (SelectRows([3, 3], 60), Center(2)),
    ],
    ids=["years", "months", "one twice"],
)
@pytest.mark.parametrize("mean", [0.0, 5.0, 1e4])
def test_what_rounding_leaves_of_nothing_is_nothing(operators, mean):
    for products in samples(0, mean=mean).both:
        with pytest.raises(DataError, match="the operators leave nothing"):
            transformed(products, Chain(60, operators))
