"""Leading eigenpairs of large matrices, and the proof that none was missed, against all eigenvalues in float64."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpca.numerics.accumulators import krylov
from dpca.numerics.accumulators.gram import eigh
from tests.drawn import examples

M = 360


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    """Matrices of tests are so small that a third of their dimensions would often not be enough."""
    monkeypatch.setattr(krylov, "MOST", 1)
    monkeypatch.setattr(krylov, "most_leading", lambda m: m // 10)


def of_eigenvalues(values, seed=0):
    """A symmetric matrix with these eigenvalues, descending, and its vectors."""
    vectors, _ = np.linalg.qr(np.random.default_rng(seed).standard_normal((len(values), len(values))))
    matrix = (vectors * values) @ vectors.T
    return (matrix + matrix.T) / 2, vectors


SPECTRA = {
    "slow decay": 1 / np.arange(1, M + 1),
    "steps": np.repeat(2.0 ** -np.arange(M / 4), 4),
    "few factors and noise": np.concatenate([[50, 20, 10, 5, 3], np.linspace(1.2, 0.8, M - 5)]),
    "fast decay, then a floor": np.maximum(10.0 ** -(np.arange(M) / 10), 1e-9),
}


@pytest.mark.parametrize(
    ("name", "k"),
    [
        *((name, 5) for name in SPECTRA),
        ("slow decay", 20),
        ("steps", 20),
        ("few factors and noise", 1),
        ("fast decay, then a floor", 1),
    ],
)
def test_leading_pairs_are_those_of_all(name, k):
    values = SPECTRA[name]
    matrix, _ = of_eigenvalues(values)
    found = krylov.leading(matrix, k)
    assert found is not None
    count = len(found.eigenvalues)
    assert k < count <= k + krylov.FURTHER
    np.testing.assert_allclose(found.eigenvalues, values[:count], atol=1e-13 * values[0])
    np.testing.assert_allclose(found.vectors.T @ found.vectors, np.eye(k), atol=1e-13)
    residuals = np.linalg.norm(matrix @ found.vectors - found.vectors * found.eigenvalues[:k], axis=0)
    assert residuals.max() <= 1e-13 * values[0]


@given(st.integers(0, 10**6), st.integers(1, 9), st.sampled_from([200, 250, 330]), st.floats(0, 3))
@examples(8)
def test_what_is_proved_is_true(seed, k, m, decay):
    """Whatever the spectrum: eigenvalues that are returned are the largest ones; of clusters that are too wide none are."""
    rng = np.random.default_rng(seed)
    values = np.sort(np.repeat(rng.random(m) * 10.0 ** (-decay * rng.random(m)), rng.integers(1, 12, m))[:m])[::-1]
    matrix, _ = of_eigenvalues(values, seed)
    found = krylov.leading(matrix, k)
    if found is not None:
        np.testing.assert_allclose(found.eigenvalues, values[: len(found.eigenvalues)], atol=1e-12 * values[0])


@pytest.mark.parametrize("hidden", [0, 3])
def test_a_pair_that_the_space_does_not_have_is_noticed(monkeypatch, hidden):
    """The first block is orthogonal to a leading vector, and stays so: all residuals are small, and a value is missing."""
    values = np.concatenate([[50, 20, 10, 5, 3, 2], np.linspace(1.2, 0.8, M - 6)])
    matrix, vectors = of_eigenvalues(values)
    plain = krylov.orthonormal_columns

    def without(rows):
        found, factor = plain(rows - np.outer(rows @ vectors[:, hidden], vectors[:, hidden]))
        return found, factor

    monkeypatch.setattr(krylov, "orthonormal_columns", without)
    ritz, _, _ = krylov.ritz_pairs(matrix, 3)
    assert abs(ritz[hidden] - values[hidden + 1]) < 1e-8
    assert krylov.leading(matrix, 3) is None


@pytest.mark.parametrize("above", [0, 1])
def test_no_more_are_proved_only_where_there_are_no_more(above):
    values = np.linspace(2, 1, M)
    matrix, vectors = of_eigenvalues(values)
    theta = (values[9] + values[10]) / 2
    rows = np.ascontiguousarray(vectors[:, : 10 - above].T)
    assert krylov.has_no_more(matrix, rows, values[: 10 - above], theta) is (above == 0)


def test_a_gap_below_rounding_proves_nothing():
    values = np.concatenate([[2, 1 + 1e-15], np.ones(M - 2)])
    matrix, vectors = of_eigenvalues(values)
    assert not krylov.has_no_more(matrix, np.ascontiguousarray(vectors[:, :2].T), values[:2], 1.0)


@pytest.mark.parametrize(
    "values",
    [
        np.zeros(M),
        np.ones(M),
        np.concatenate([[3.0, 2.0], np.zeros(M - 2)]),
        np.concatenate([np.full(30, 3.0), np.linspace(1, 0.5, M - 30)]),
        np.concatenate([[1e13], np.linspace(2, 1, M - 1)]),
    ],
    ids=["nothing", "all the same", "rank 2", "a cluster wider than a block", "below the rounding of the largest"],
)
def test_where_it_can_not_be_done_all_are_computed(values):
    matrix, _ = of_eigenvalues(values)
    factors = eigh(matrix, lambda *_: 5, leading=5)
    assert factors.complete
    np.testing.assert_allclose(factors.eigenvalues, values, atol=1e-13 * max(1.0, values[0]))


def test_eigenvalues_near_the_floor_have_all_computed():
    """Whether they count as zero follows from the most negative one, which a space does not know."""
    values = np.concatenate([[1.0, 1e-3, 1e-6, 3e-9], np.linspace(1e-9, -1e-9, M - 4)])
    matrix, _ = of_eigenvalues(values)
    assert eigh(matrix, lambda *_: 3, leading=3).complete
    values = np.concatenate([[1.0, 1e-3, 1e-6, 1e-7, 3e-8], np.linspace(1e-9, -1e-9, M - 5)])
    assert not eigh(of_eigenvalues(values)[0], lambda *_: 3, leading=3).complete


def test_the_same_matrix_has_the_same_bits():
    matrix, _ = of_eigenvalues(SPECTRA["slow decay"])
    one, other = krylov.leading(matrix, 5), krylov.leading(matrix.copy(), 5)
    assert one.vectors.tobytes() == other.vectors.tobytes()
    assert one.eigenvalues.tobytes() == other.eigenvalues.tobytes()
