"""Operators along samples: what each does, against the same by other means, and what they refuse."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpca.derived.filters import Butterworth, Lanczos, RunningMean
from dpca.derived.fits import Detrend, LessCovariates
from dpca.derived.groups import Anomalies, Between, GroupMeans
from dpca.derived.hilbert import Analytic
from dpca.derived.operators import Center, Chain, Difference, SelectRows, Weights
from dpca.errors import ConfigError, DataError
from tests.derived.drawn import assert_close, operators
from tests.drawn import examples

NAMES = list(operators(40))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("n", [40, 61])
def test_it_does_what_it_is_called(name, n):
    operator, direct = operators(n)[name]
    x = np.random.default_rng(1).standard_normal((n, 7)) + 3
    for rows in (x, x + 1j * x[::-1]):
        expected = direct(rows)
        assert_close(operator.apply(rows), expected)
        assert operator.n_in == n
        assert operator.n_out == len(expected) == len(operator.rows(np.arange(n)))


@pytest.mark.parametrize("name", NAMES)
def test_its_adjoint_and_what_it_does_to_a_mean(name):
    operator, _ = operators(45)[name]
    dense = operator.apply(np.eye(45))
    assert_close(operator.adjoint(np.eye(operator.n_out)), dense.conj().T)
    if operator.gain is not None:
        np.testing.assert_allclose(dense @ np.ones(45), operator.gain, atol=1e-13)
    assert operator.removes_mean == (np.abs(dense.sum(1)).max() < 1e-13)


@given(
    seed=st.integers(0, 10**6), n=st.integers(40, 80), names=st.lists(st.sampled_from(NAMES), min_size=1, max_size=3)
)
@examples(40)
def test_a_chain_is_the_product_of_its_operators(seed, n, names):
    made, dense, left = [], np.eye(n), n
    for name in names:
        operator, direct = operators(left, seed)[name]
        made, dense, left = [*made, operator], direct(dense), operator.n_out
        if left < 22:
            break
    chain = Chain(n, tuple(made))
    rng = np.random.default_rng(seed)
    x, y = rng.standard_normal((n, 3)), rng.standard_normal((chain.n_out, 3))
    np.testing.assert_allclose(chain.apply(x), dense @ x, rtol=0, atol=1e-11)
    np.testing.assert_allclose(chain.adjoint(y), dense.conj().T @ y, rtol=0, atol=1e-11)
    if chain.gain is not None:
        np.testing.assert_allclose(dense @ np.ones(n), chain.gain, atol=1e-12)


def test_rows_keep_their_names():
    dates = np.arange("2000-01", "2005-01", dtype="M8[M]")
    years = dates.astype("M8[Y]")
    chain = Chain(60, (Anomalies(np.arange(60) % 12), SelectRows(np.arange(12, 60), 60), GroupMeans(years[12:])))
    assert chain.rows(dates).astype(str).tolist() == ["2001", "2002", "2003", "2004"]
    t = np.arange(60.0)
    assert Chain(60, (Difference(60), RunningMean(t[1:], 3))).rows(t).tolist() == t[2:-1].tolist()
    assert RunningMean(t, 12).rows(t)[0] == 6  # the later of the two in the middle, as xarray and pandas have it


def test_covariates_may_depend_on_each_other():
    rng = np.random.default_rng(0)
    z, x = rng.standard_normal((30, 2)), rng.standard_normal((30, 5))
    doubled = np.column_stack([z, z.sum(1), np.full(30, 7.0), 1e8 * z[:, 0]])
    assert_close(LessCovariates(doubled).apply(x), LessCovariates(z).apply(x))


def test_anomalies_of_equal_labels_of_any_kind():
    x = np.random.default_rng(0).standard_normal((6, 4))
    for labels in (["b", "a"] * 3, [2.5, -1.0] * 3, np.array(["2000", "1999"] * 3, "M8[Y]")):
        assert_close(Anomalies(np.asarray(labels)).apply(x), Anomalies(np.array([1, 0] * 3)).apply(x))


T = np.arange(30.0)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Butterworth(T, (None, 0.5)), "below 0.5 cycles"),
        (lambda: Butterworth(T, (0.2, 0.1)), "increasing frequencies"),
        (lambda: Butterworth(T, (None, None)), "increasing frequencies"),
        (lambda: Lanczos(T, (0.0, None), 5), "above 0"),
        (lambda: Butterworth(T[:9], (None, 0.1)), "extends the record by 15 samples"),
        (lambda: Butterworth(np.delete(T, 7), (None, 0.1)), "regular times, but the step is 2 after row 6"),
        (lambda: RunningMean(T[::-1], 3), "28 follows 29 at row 1"),
        (lambda: RunningMean(T, 31), "window is 31 samples, but 1 to 30"),
        (lambda: Lanczos(T, (None, 0.1), 4), "odd number"),
        (lambda: Detrend(T[:2], 1), "nothing is left"),
        (lambda: Detrend(np.repeat(T[:3], 10), 2), "all 3 distinct times"),
        (lambda: LessCovariates(np.random.default_rng(0).random((5, 4))), "fit all 5 samples"),
        (lambda: Anomalies(T), "a group of its own"),
        (lambda: Between(np.zeros(5)), "in one group"),
        (lambda: GroupMeans(np.zeros((5, 2))), "one a sample"),
        (lambda: Difference(3, 3), "1 to 2 is allowed"),
        (lambda: SelectRows(np.array([3]), 3), "samples 0 to 2"),
        (lambda: SelectRows(np.array([], int), 3), "at least one"),
        (lambda: Center(1), "nothing of them without their mean"),
        (lambda: Weights(np.array([1.0, 0.0])), "two have to be positive"),
        (lambda: Weights(np.array([1.0, 2.0, -1.0])), "0 or more"),
        (lambda: Analytic(9, "reflect"), "'none' or 'exp'"),
        (lambda: Chain(30, (Difference(30), Center(30))), "operator 2, Center, is made for 30 samples, but gets 29"),
    ],
)
def test_what_it_refuses(make, said):
    with pytest.raises(ConfigError) as caught:
        make()
    assert said in str(caught.value)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Detrend(np.array([0.0, np.nan, 2.0, 3.0])),
        lambda: LessCovariates(np.array([0.0, np.inf, 2.0, 3.0])),
        lambda: Weights(np.array([0.0, np.nan, 2.0, 3.0])),
        lambda: Anomalies(np.array([0.0, np.nan, 0.0, 3.0])),
        lambda: GroupMeans(np.array(["2000", "NaT"], "M8[Y]")),
    ],
)
def test_missing_values_are_named(make):
    with pytest.raises(DataError, match="sample 1 "):
        make()
