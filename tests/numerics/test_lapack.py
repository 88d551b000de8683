import ctypes

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpca.numerics.accumulators import gram, lapack
from dpca.numerics.accumulators.lapack import Tridiagonal
from tests.reference import assert_right, dense_pca
from tests.runs import decompose_array

EPS = np.finfo(float).eps

SPECTRA = {
    "of noise": lambda m, rng: rng.uniform(0, 1, m),
    "graded": lambda m, rng: 10.0 ** -np.arange(m),
    "clustered": lambda m, rng: np.where(np.arange(m) < m // 2, 1.0, 1.0 + 1e-14 * np.arange(m)),
    "of low rank": lambda m, rng: np.where(np.arange(m) < 2, [1.0 + i for i in range(m)], 0.0),
    "all the same": lambda m, rng: np.ones(m),
    "zero": lambda m, rng: np.zeros(m),
    "indefinite": lambda m, rng: rng.normal(size=m),
}


@given(st.sampled_from(sorted(SPECTRA)), st.integers(1, 60), st.integers(0, 10**6), st.data())
def test_eigenvalues_and_chosen_vectors_of_any_spectrum(kind, m, seed, data):
    rng = np.random.default_rng(seed)
    values = np.sort(SPECTRA[kind](m, rng))
    q = np.linalg.qr(rng.normal(size=(m, m)))[0]
    matrix = (q * values) @ q.T
    matrix = (matrix + matrix.T) / 2
    before, k = matrix.copy(), data.draw(st.integers(0, m))
    reduced = Tridiagonal(matrix)
    vectors, scale = reduced.leading(k), max(1e-300, np.abs(values).max())
    np.testing.assert_array_equal(matrix, before)
    np.testing.assert_allclose(reduced.eigenvalues, values, rtol=0, atol=20 * m * EPS * scale)
    assert vectors.shape == (m, k)
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(k), atol=1e3 * m * EPS)
    np.testing.assert_allclose(
        matrix @ vectors, vectors * reduced.eigenvalues[::-1][:k], rtol=0, atol=50 * m * EPS * scale
    )


@pytest.mark.parametrize(("shape", "solver"), [((30, 500), "gram_eigh"), ((500, 30), "covariance_eigh")])
@pytest.mark.parametrize("rank", [30, 4])
def test_a_decomposition_is_right_where_the_matrix_is_large(shape, solver, rank, monkeypatch):
    monkeypatch.setattr(gram, "LARGE", 1)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(shape[0], rank)) @ rng.normal(size=(rank, shape[1])) + rng.normal(size=shape[1])
    found = decompose_array(x, 5, solver=solver)
    components = np.asarray(found.outputs.array("components")[...])
    scores = np.asarray(found.outputs.array("scores")[...])
    sigma = found.spectrum.singular_values
    assert_right({"singular_values": sigma, "scores": scores, "components": components}, dense_pca(x), np.float64)


KEEPS_THE_LOCK = 4
"""FUNCFLAG_PYTHONAPI of ctypes."""


def test_other_threads_run_meanwhile(monkeypatch):
    """A signal is answered, and the lock of a run kept, however long LAPACK takes: each routine releases the interpreter."""
    routine, called = lapack.routine_of, {}

    def recorded(name):
        called[name] = routine(name)
        return called[name]

    monkeypatch.setattr(lapack, "routine_of", recorded)
    Tridiagonal(np.eye(5)).leading(2)
    assert set(called) == {"dsytrd", "dsterf", "dstemr", "dormtr"}
    assert not [name for name, function in called.items() if type(function)._flags_ & KEEPS_THE_LOCK]
    assert ctypes.PYFUNCTYPE(None)._flags_ & KEEPS_THE_LOCK


@pytest.mark.parametrize("routine", ["dsterf", "dstemr"])
def test_where_a_routine_gives_up_numpy_finds_every_vector(routine, monkeypatch):
    call = lapack.call_routine

    def failing(name, *arguments):
        if name == routine:
            raise lapack.LapackError(f"{name} gave up")
        call(name, *arguments)

    monkeypatch.setattr(lapack, "call_routine", failing)
    x = np.random.default_rng(0).normal(size=(20, 50))
    found = gram.eigh(x @ x.T, lambda eigenvalues, floor, total: 3, large=10)
    np.testing.assert_allclose(found.eigenvalues, np.linalg.svd(x, compute_uv=False) ** 2, rtol=1e-12)
    assert found.residuals.max() < 1e-13
