import numpy as np
import pytest

from dpca.numerics.accumulators import SOLVERS
from dpca.numerics.sketch import Sketch, random_columns
from dpca.numerics.spectrum import judged
from dpca.numerics.spectrum import spectrum_of as of_factors
from tests.numerics.test_gram import panel, tally_of


def spectrum_of(x, k=None, *, center=True, ddof=1, dtype=np.float64):
    """Of the Gram matrix, whose products are in `dtype`, judged by a sketch of the data."""
    x = x - x.mean(0) if center else x
    found = SOLVERS["gram_eigh"].empty(len(x), tally_of(len(x)))
    list(found.of_slab([panel(x.astype(dtype))]))
    found.close()
    columns = random_columns(len(x), center)
    sketch = Sketch(columns, x @ (x.T @ columns))
    if center:
        found.recenter()
    spectrum = of_factors(
        found.finish(lambda eigenvalues, floor, total: k or min(x.shape)),
        n_samples=len(x),
        n_features=x.shape[1],
        center=center,
        divisor=len(x) - ddof,
    )
    values = spectrum.eigenvalues[: spectrum.n_components]
    spectrum = judged(spectrum, sketch.residuals(spectrum.vectors, values), 2)
    return spectrum.signed(spectrum.signs)


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


@pytest.mark.parametrize(("n", "d"), [(8, 30), (8, 8), (30, 8), (2, 5), (5, 1)])
def test_identities_of_the_method_of_snapshots(n, d):
    x = normal(n, d)
    found = spectrum_of(x)
    centred = x - x.mean(0)
    rank = min(n - 1, d)
    assert found.rank == rank
    assert found.eigenvalues.shape == (min(n, d),)
    np.testing.assert_allclose(found.eigenvalues.sum(), (centred**2).sum())
    np.testing.assert_allclose(found.total, (centred**2).sum())
    np.testing.assert_allclose(np.linalg.norm(found.scaled, axis=0), found.singular_values, atol=1e-12)
    gram = centred @ centred.T
    np.testing.assert_allclose((found.alpha.T @ gram @ found.alpha)[:rank, :rank], np.eye(rank), atol=1e-9)
    components = found.alpha.T @ centred
    left = ((centred - found.scaled @ components) ** 2).sum()
    np.testing.assert_allclose(left / (n - 1), found.projection_error[-1], atol=1e-12)
    np.testing.assert_allclose(found.explained_variance_ratio.sum(), 1)


@pytest.mark.parametrize("ddof", [0, 1, 3])
def test_projection_error_is_what_the_first_components_leave(ddof):
    x = normal(10, 40)
    found = spectrum_of(x, 4, ddof=ddof)
    centred = x - x.mean(0)
    components = found.alpha.T @ centred
    for k in range(1, 5):
        left = ((centred - found.scaled[:, :k] @ components[:k]) ** 2).sum() / (10 - ddof)
        np.testing.assert_allclose(found.projection_error[k - 1], left)


def test_the_largest_entry_of_each_score_vector_is_positive():
    scores = spectrum_of(normal(12, 50)).scaled
    for column in scores.T[:11]:
        assert column[np.argmax(np.abs(column))] > 0


def test_duplicates_and_constants_give_zeros_not_noise():
    x = np.repeat(normal(4, 100), 3, axis=0)
    found = spectrum_of(x)
    assert found.rank == 3
    assert (found.singular_values[3:] == 0).all()
    assert (found.alpha[:, 3:] == 0).all()
    assert not found.reliable[3:].any()
    assert found.reliable[:3].all()


def test_data_without_variance_have_a_spectrum_of_zeros():
    found = spectrum_of(np.full((5, 9), 7.0))
    assert found.rank == 0
    for values in (found.singular_values, found.explained_variance_ratio, found.scaled, found.alpha, found.residuals):
        assert (values == 0).all()
    assert not found.reliable.any()


def test_without_centring_the_rank_may_be_n():
    assert spectrum_of(normal(5, 9), center=False).rank == 5


def test_reliability_follows_the_precision_of_the_products():
    u, v = np.linalg.qr(normal(6, 6))[0], np.linalg.qr(normal(40, 6, seed=1))[0]
    x = u * np.array([1, 1e-2, 1e-3, 1e-5, 1e-6, 1e-9]) @ v.T
    assert spectrum_of(x, center=False, dtype=np.float32).reliable.sum() == 2
    assert spectrum_of(x, center=False, dtype=np.float64).reliable.sum() == 5


def test_whitening_never_divides_by_zero():
    found = spectrum_of(np.repeat(normal(2, 9), 2, axis=0))
    whitened = found.scaled / found.whitening
    np.testing.assert_allclose(whitened[:, 0].std(ddof=1), 1)
    assert (whitened[:, 1:] == 0).all()
