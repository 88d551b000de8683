"""Block Krylov: lower and upper bounds of eigenvalues hold, on spectra of any kind, whatever the block missed."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpca.numerics.block_krylov import BULK, Iteration, Renewed, Space, found_in, most, random_block, relative
from dpca.numerics.sketch import Sketch, random_columns
from tests.drawn import examples

SPECTRA = {
    "white": lambda g, m: np.ones(m) + 0.05 * g.random(m),
    "decaying": lambda g, m: 10.0 ** -np.linspace(0, 12, m),
    "few and noise": lambda g, m: np.where(np.arange(m) < 6, 100.0 / (1 + np.arange(m)), 1 + 0.1 * g.random(m)),
    "equal values": lambda g, m: np.where(np.arange(m) < 9, 7.0, 1.0),
    "close pairs": lambda g, m: np.repeat(2.0 ** -np.arange(-(-m // 2)), 2)[:m] * (1 + 1e-9 * np.arange(m)),
    "low rank": lambda g, m: np.where(np.arange(m) < 4, 5.0 - np.arange(m), 0.0),
    "one far above": lambda g, m: np.where(np.arange(m) < 1, 1e9, 1 + 0.3 * g.random(m)),
    "nothing": lambda g, m: np.zeros(m),
}


def matrix_of(spectrum, m, seed):
    """A matrix with a known spectrum that maps the constant vector to 0."""
    g = np.random.default_rng(seed)
    values = np.sort(SPECTRA[spectrum](g, m - 1))[::-1]
    vectors = np.linalg.qr(np.hstack([np.ones((m, 1)), g.standard_normal((m, m - 1))]))[0][:, 1:]
    return (vectors * values) @ vectors.T, values


def passes_of(matrix, columns, dtype=np.float64, number=0):
    """The space after each pass."""
    m = len(matrix)
    space = Space(m, np.full(m, m**-0.5))
    block = random_block(m, columns, space.null, number)
    given_matrix = matrix.astype(dtype)
    while block is not None:
        product = (given_matrix @ block.astype(dtype)).astype(np.float64)
        space.add(block, product, chained=True)
        yield space
        if space.complete:
            return
        block = space.following(product)
    space.exhausted = True
    yield space


def sketch_of(matrix):
    columns = random_columns(len(matrix), True)
    return Sketch(columns, matrix @ columns)


@examples(16)
@given(
    st.sampled_from(list(SPECTRA)),
    st.integers(4, 90),
    st.integers(1, 6),
    st.integers(0, 30),
    st.sampled_from([np.float32, np.float64]),
    st.integers(0, 99),
)
def test_eigenvalues_lie_between_their_bounds_after_every_pass(spectrum, m, k, further, dtype, seed):
    matrix, true = matrix_of(spectrum, m, seed)
    k = min(k, m - 1)
    columns = min(k + further, m - 1)
    rounding = 1e-13 * float(true.max(initial=0.0))
    for number, space in enumerate(passes_of(matrix, columns, dtype, seed)):
        found = found_in(space, sketch_of(matrix), k, float(true.sum()), 1e-6)
        kept = true[: len(found.values)]
        assert (kept - found.values <= found.bounds(found.values) + rounding).all(), (number, kept, found)
        assert (found.values - kept <= found.products + rounding).all()  # from below, but for errors of products
        # An eigenvalue is within the residual of each Ritz value of K.
        theta = np.linalg.eigvalsh(space.projected)[::-1][: len(found.values)]
        nearest = np.abs(true[None] - theta[:, None]).min(axis=1)
        assert (nearest <= found.residuals + found.products + rounding + 1e-6 * (dtype == np.float32) * true[0]).all()
        if number == 8:
            break


@examples(10)
@given(st.sampled_from(["few and noise", "decaying", "close pairs"]), st.integers(30, 90), st.integers(0, 99))
def test_a_pass_in_double_with_the_vectors_makes_up_for_single_precision(spectrum, m, seed):
    matrix, true = matrix_of(spectrum, m, seed)
    *_, space = (space for _, space in zip(range(4), passes_of(matrix, 24, np.float32), strict=False))
    sketch = sketch_of(matrix)
    before = found_in(space, sketch, 4, float(true.sum()), 1e-12)
    after = found_in(
        space, sketch, 4, float(true.sum()), 1e-12, renewed=Renewed(space, before.vectors, matrix @ before.vectors)
    )
    assert (after.products < 1e-2 * before.products).all()
    assert (true[:4] - after.values <= after.bounds(after.values) + 1e-13 * true[0]).all()
    assert (after.bounds(after.values) <= before.bounds(before.values)).all()


def test_what_a_random_block_can_miss_is_bounded():
    """Blocks without oversampling, and with little: no eigenvalue of 400 draws is larger than what it is said to be at most."""
    g = np.random.default_rng(0)
    for _ in range(400):
        m, columns, passes = int(g.integers(10, 60)), int(g.integers(1, 6)), int(g.integers(2, 5))
        true = np.sort(10.0 ** (-4 * g.random(m)))[::-1]
        block = np.linalg.qr(g.standard_normal((m, columns)))[0]
        space = np.linalg.qr(np.hstack([true[:, None] ** power * block for power in range(passes)]))[0]
        roots = np.sqrt(true)[:, None] * space
        values = np.linalg.svd(np.linalg.qr(roots)[0].T * np.sqrt(true), compute_uv=False) ** 2
        at_most = most(values, columns, passes, m, float(true.sum()))
        assert (true[: columns + 1] <= at_most * (1 + 1e-12)).all()


def test_more_oversampling_and_more_passes_prove_more():
    true = np.where(np.arange(400) < 5, 10.0, 1.0) + 0.01 * np.random.default_rng(0).random(400)

    def certain(columns, passes):
        return most(np.sort(true)[::-1], columns, passes, 400, float(true.sum()))[5] / 1.01

    assert certain(30, 3) < certain(8, 3)
    assert certain(30, 6) < certain(30, 3) < 8
    assert certain(30, 12) < 1.2


def test_what_more_passes_would_give_is_foreseen():
    matrix, true = matrix_of("few and noise", 300, 0)
    spaces = passes_of(matrix, 26)
    for _ in range(2):
        space = next(spaces)
    found = found_in(space, sketch_of(matrix), 10, float(true.sum()), 1e-6)
    assert (found.more[:3] <= 6).all()
    assert (found.more[7:] > BULK).all()
    assert found.bulk[7:].all()
    for _ in range(int(found.more[:3].max())):
        space = next(spaces)
    after = found_in(space, sketch_of(matrix), 10, float(true.sum()), 1e-6)
    assert (after.relative[:3] <= 1e-6).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_space_that_has_all_eigenvalues_says_so(dtype):
    matrix, true = matrix_of("low rank", 60, 1)
    *_, space = passes_of(matrix, 10, dtype)
    found = found_in(space, sketch_of(matrix), 6, float(true.sum()), 1e-6)
    np.testing.assert_allclose(found.values[:4], true[:4], rtol=1e-6)
    assert (found.values[4:] <= 1e-6 * true[0]).all()
    assert (found.relative[:4] <= 1e-5).all()


def test_values_that_are_0_have_bounds_relative_to_the_largest():
    assert relative(np.array([4.0, 0.0]), np.array([2.0, 2.0])).tolist() == [0.5, 0.5]
    assert relative(np.zeros(2), np.zeros(2)).tolist() == [0.0, 0.0]
    assert relative(np.zeros(2), np.full(2, 1e9)).tolist() == [np.inf, np.inf]


def test_columns_of_a_block():
    assert Iteration().columns(10, 1000) == 30
    assert Iteration().columns(100, 1000) == 140
    assert Iteration().columns(3, 1000) == 23
    assert Iteration().columns(10, 12) == 12
    assert Iteration(block=15).columns(10, 1000) == 15


def test_blocks_are_the_same_at_every_call_and_independent_of_each_other():
    null = np.full(50, 50**-0.5)
    first, again, other = random_block(50, 4, null), random_block(50, 4, null), random_block(50, 4, null, 1)
    assert first.tobytes() == again.tobytes()
    np.testing.assert_allclose(first.T @ first, np.eye(4), atol=1e-12)
    np.testing.assert_allclose(null @ first, 0, atol=1e-14)
    assert np.abs(first.T @ other).max() < 0.6
