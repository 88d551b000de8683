"""Draws of rows from products alone, beside the same draws of the rows themselves, decomposed by another routine."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpca.derived.gram import FactorProducts, Products, transformed
from dpca.derived.operators import Center, Chain
from dpca.derived.pca import pca
from dpca.derived.resampling import Bootstrap, LeaveOut, angles_between, congruence_of, cut, resampled, turned

N, D, K = 40, 90, 3
NUMBERS = np.arange(N)
SCHEMES = {
    "bootstrap": Bootstrap(N, 30, seed=3),
    "blocks": Bootstrap(N, 30, seed=3, block=6),
    "groups": Bootstrap(N, 30, seed=3, codes=NUMBERS // 3),
    "jackknife": LeaveOut(NUMBERS),
    "groups left out": LeaveOut(NUMBERS // 9),
}


def rows_of(seed=0, n=N, d=D, spread=(9.0, 6.0, 3.5), factor=False):
    """Rows with a few large components, far from 0, and their products."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, d))
    x[:, : len(spread)] += rng.standard_normal((n, len(spread))) * spread
    x = x @ np.linalg.qr(rng.standard_normal((d, d)))[0] + 4.0
    c, mean = x - x.mean(axis=0), x.mean(axis=0)
    of_mean = c @ mean, float(mean @ mean)
    products = FactorProducts(np.linalg.qr(c.T)[1].T, *of_mean) if factor else Products(c @ c.T, *of_mean)
    rows = transformed(products, Chain(n, (Center(n),)))
    found = pca(rows, K)
    return x, rows, found


def refitted(x, found, draw, align):
    """Variances, shares, components and scores of a draw, by the SVD of its rows; aligned with components that are given."""
    drawn = x[draw.rows]
    mean = drawn.mean(axis=0)
    _, sizes, vt = np.linalg.svd(drawn - mean, full_matrices=False)
    overlap = found.T @ vt[: K + 5].T
    components = vt[: K + 5].T @ turned(overlap, align)
    shares, alike = sizes[:K] ** 2 / (sizes**2).sum(), np.diagonal(overlap @ turned(overlap, "order"))
    return sizes[:K] ** 2 / (len(drawn) - 1), shares, components, (x - mean) @ components, alike


@pytest.mark.parametrize("align", ["order", "procrustes"])
@pytest.mark.parametrize("name", SCHEMES)
def test_draws_are_those_of_the_rows_themselves(name, align):
    scheme, (x, rows, found) = SCHEMES[name], rows_of(factor=name == "blocks")
    components = (x - x.mean(axis=0)).T @ found.coefficients
    each = [refitted(x, components, draw, align) for draw in scheme.draws()]
    variances, shares, maps, scores, alike = map(np.array, zip(*each, strict=True))
    assert len(variances) == scheme.number
    got = resampled(rows, found.eigenvalues, found.scores, scheme, align=align, of_maps=True)
    np.testing.assert_allclose(got.variances.of_draws, variances, rtol=1e-11)
    np.testing.assert_allclose(got.shares.of_draws, shares, rtol=1e-11)
    expected = np.sqrt((scheme.deviations(scores, found.scores) ** 2).sum(axis=0))
    np.testing.assert_allclose(got.scores_standard_error, expected, rtol=1e-9)
    expected = np.sqrt((scheme.deviations(maps, components) ** 2).sum(axis=0))
    both = np.einsum("nf,nkr->fkr", x - x.mean(axis=0), got.deviations)
    np.testing.assert_allclose(np.sqrt((both**2).sum(axis=2)), expected, rtol=1e-8)
    assert got.deviations.shape[2] == min(N, scheme.number)
    assert not got.lacking.any()
    assert not got.unmatched.any()
    np.testing.assert_allclose(got.congruence, alike, rtol=1e-10)


def test_errors_of_known_form():
    """Of the bootstrap the standard deviation of draws, of the jackknife the root of (n - 1) / n of the sum of squares."""
    _, rows, found = rows_of()
    for name, factor in (("bootstrap", 1 / 29), ("jackknife", (N - 1) / N)):
        got = resampled(rows, found.eigenvalues, found.scores, SCHEMES[name])
        draws = got.variances.of_draws
        expected = np.sqrt(factor * np.square(draws - draws.mean(axis=0)).sum(axis=0))
        np.testing.assert_allclose(got.variances.standard_error, expected, rtol=1e-10)


def test_a_mean_that_is_known_exactly():
    """Pseudo-values of a mean are means of groups, whatever the sizes of these: the formula of unequal groups is exact there."""
    rng = np.random.default_rng(0)
    values, codes = rng.standard_normal(23), np.repeat([0, 1, 2, 3, 4], [2, 8, 4, 3, 6])
    scheme = LeaveOut(codes)
    left = np.array([values[draw.rows].mean() for draw in scheme.draws()])
    pseudo, mean, h = scheme._pseudo(left[:, None], values.mean(keepdims=True))
    np.testing.assert_allclose(pseudo[:, 0], [values[codes == code].mean() for code in range(5)])
    np.testing.assert_allclose(mean, values.mean())
    expected = np.square(pseudo - mean)[:, 0] / (h[:, 0] - 1)
    np.testing.assert_allclose(
        (scheme.deviations(left[:, None], values.mean(keepdims=True)) ** 2).sum(), expected.mean()
    )


def test_same_bits_for_any_number_of_threads_and_the_same_seed():
    _, rows, found = rows_of()
    first, *others = (
        resampled(rows, found.eigenvalues, found.scores, Bootstrap(N, 40, seed), of_maps=True, threads=threads)
        for threads, seed in ((1, 5), (2, 5), (7, 5), (1, 6))
    )
    for number, other in enumerate(others):
        same = [
            np.array_equal(getattr(first, name), getattr(other, name))
            for name in ("angles", "congruence", "scores_interval", "deviations")
        ]
        assert same == [number < 2] * 4
        assert np.array_equal(first.variances.interval, other.variances.interval) == (number < 2)


def test_draws_are_those_of_a_generator_that_others_have():
    generator = np.random.default_rng(11)
    for draw in Bootstrap(9, 4, seed=11).draws():
        np.testing.assert_array_equal(draw.rows, generator.choice(9, 9))


@settings(max_examples=60, deadline=None)
@given(st.integers(4, 40), st.integers(1, 12), st.integers(0, 99))
def test_blocks_go_round_and_fill_the_record(n, block, seed):
    for draw in Bootstrap(n, 3, seed, min(block, n)).draws():
        assert len(draw.rows) == n
        assert ((draw.rows >= 0) & (draw.rows < n)).all()
        for unit in np.split(draw.rows, draw.starts[1:]):
            np.testing.assert_array_equal(np.diff(unit) % n, 1 % n)


@pytest.mark.parametrize("align", ["order", "procrustes"])
def test_components_that_changed_places_are_found_again(align):
    """Signs and order of a draw are those of all rows; turned within a plane, the plane is known and its axes are not."""
    overlap = np.array([[0, -0.99, 0.01], [0.98, 0, 0.05]])
    turn = turned(overlap, align)
    np.testing.assert_allclose(congruence_of(overlap), [0.99, 0.98], atol=1e-3)
    np.testing.assert_allclose(turn[:2], [[0, 1], [-1, 0]], atol=1e-12)
    angle = np.radians(30)
    plane = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
    np.testing.assert_allclose(angles_between(plane), [30, 0], atol=1e-5)
    np.testing.assert_allclose(plane @ turned(plane, "procrustes"), np.eye(2), atol=1e-12)
    np.testing.assert_allclose(congruence_of(plane), np.cos(angle))


def test_fewer_columns_lose_what_is_said():
    x, rows, found = rows_of()
    got = resampled(rows, found.eigenvalues, found.scores, SCHEMES["bootstrap"], of_maps=True)
    maps = (x - x.mean(axis=0)).T
    of_all = (np.einsum("fn,nkr->fkr", maps, got.deviations) ** 2).sum(axis=2)
    for columns in (1, 5, 30):
        few, lost = cut(got.deviations, rows.products.matrix, columns)
        assert few.shape == (N, K, columns)
        left = (np.einsum("fn,nkr->fkr", maps, few) ** 2).sum(axis=2)
        assert (left <= of_all * (1 + 1e-9)).all()
        np.testing.assert_allclose(1 - left.sum(axis=0) / of_all.sum(axis=0), lost, atol=1e-10)
        singular = np.linalg.svd(np.moveaxis(np.einsum("fn,nkr->fkr", maps, got.deviations), 1, 0), compute_uv=False)
        np.testing.assert_allclose(
            lost, (singular[:, columns:] ** 2).sum(axis=1) / (singular**2).sum(axis=1), atol=1e-10
        )


@pytest.mark.parametrize("align", ["order", "procrustes"])
@pytest.mark.parametrize("n", [2, 3, 4])
def test_components_that_draws_do_not_have_get_no_interval(n, align):
    """A draw of three rows may have the same one three times."""
    rows, found = rows_of_few(n)
    for scheme in (Bootstrap(n, 60), LeaveOut(np.arange(n))):
        got = resampled(rows, found.eigenvalues, found.scores, scheme, align=align, of_maps=True)
        unmatched, lacking = got.unmatched > 0, got.lacking > 0
        assert unmatched.all() or (n == 4 and isinstance(scheme, LeaveOut))
        assert np.isnan(got.deviations).all(axis=(0, 2)).tolist() == unmatched.tolist()
        assert np.isnan(got.scores_interval).all(axis=(0, 1)).tolist() == unmatched.tolist()
        assert lacking.tolist() == [False, n < 4][: len(lacking)] or isinstance(scheme, Bootstrap) or n == 2
        assert np.isnan(got.variances.of_draws).any(axis=0).tolist() == lacking.tolist()
        assert np.isnan(got.variances.interval).any(axis=0)[lacking].all()
        assert not (got.shares.interval > 1).any()


def rows_of_few(n):
    x = np.random.default_rng(0).standard_normal((n, 20))
    c = x - x.mean(axis=0)
    rows = transformed(Products(c @ c.T, np.zeros(n), 0.0), Chain(n, (Center(n),)))
    return rows, pca(rows, min(2, n - 1))


def test_repeated_rows_and_constant_columns():
    """Rows that are there twice leave fewer components, and constant columns nothing: no number is wrong, none is invented."""
    rng = np.random.default_rng(1)
    x = np.repeat(rng.standard_normal((10, 30)), 2, axis=0)
    x[:, :20] = 1e6
    c = x - x.mean(axis=0)
    rows = transformed(
        Products(c @ c.T, c @ x.mean(axis=0), float(x.mean(axis=0) @ x.mean(axis=0))), Chain(20, (Center(20),))
    )
    found = pca(rows, 3)
    got = resampled(rows, found.eigenvalues, found.scores, LeaveOut(np.arange(20) // 2))
    for number, draw in enumerate(LeaveOut(np.arange(20) // 2).draws()):
        expected = np.linalg.svd(x[draw.rows] - x[draw.rows].mean(axis=0), compute_uv=False)[:3] ** 2 / 17
        np.testing.assert_allclose(got.variances.of_draws[number], expected, rtol=1e-9)
