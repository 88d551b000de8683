import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dpca.numerics.accumulators.tsqr import Tsqr, waiting_rows
from tests.numerics.test_gram import panel, tally_of


def factored(matrices):
    found = Tsqr.empty(len(matrices[0]), tally_of(len(matrices[0])))
    assert len(list(found.of_slab(panel(matrix) for matrix in matrices))) == len(matrices)
    return found.close()


@given(st.integers(1, 12), st.lists(st.integers(1, 90), min_size=1, max_size=6), st.data())
def test_r_of_any_partition_and_merge_order_has_the_singular_values_of_the_whole(n, widths, data):
    x = np.random.default_rng(sum(widths)).normal(size=(n, sum(widths)))
    parts = np.split(x, np.cumsum(widths)[:-1], axis=1)
    at = data.draw(st.integers(1, len(parts)))
    found = factored(parts[:at])
    if parts[at:]:
        found = found.merge(factored(parts[at:]))
    np.testing.assert_allclose(found.matrix.T @ found.matrix, x @ x.T, atol=1e-12 * np.trace(x @ x.T))
    np.testing.assert_allclose(found.squares(False).sum(), (x**2).sum())
    np.testing.assert_allclose(found.tally.total, (x**2).sum())
    factors = found.finish(lambda eigenvalues, floor, total: n)
    sigma = np.zeros(n)
    sigma[: min(x.shape)] = np.linalg.svd(x, compute_uv=False)
    np.testing.assert_allclose(np.sqrt(factors.eigenvalues), sigma, atol=1e-13 * sigma[0])
    np.testing.assert_allclose(factors.vectors.T @ factors.vectors, np.eye(n), atol=1e-13)
    assert factors.residuals.max() < 1e-13


def test_rows_are_factored_together_in_bounded_memory():
    assert waiting_rows(500) == 2000
    assert waiting_rows(4000) * 8 * 4000 <= 2**27
    assert waiting_rows(20_000) == 20_000


def test_merge_leaves_the_other_alone():
    total, other = factored([np.ones((2, 3))]), factored([np.eye(2)])
    before = other.matrix.copy()
    total.merge(other)
    np.testing.assert_array_equal(other.matrix, before)
