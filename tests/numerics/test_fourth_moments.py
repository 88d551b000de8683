"""Rotations from fourth moments are those of the loops over loadings that textbooks and scikit-learn have."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.decomposition import FastICA

from dpca.numerics.fourth_moments import FourthMoments, added, members, n_sums
from dpca.numerics.rotation import Rotating, RotationResult, add_targets, promax


def maps_of(seed=0, k=4, d=600, n=30):
    """Orthonormal maps of a mixture of k sources with heavy tails, and explained variances."""
    rng = np.random.default_rng(seed)
    sources = rng.laplace(size=(k, d))
    x = rng.normal(size=(n, k)) @ sources + 0.01 * rng.normal(size=(n, d))
    _, s, vt = np.linalg.svd(x - x.mean(0), full_matrices=False)
    return vt[:k], s[:k] ** 2 / (n - 1)


def moments_of(loadings, maps):
    sums = np.zeros(n_sums(len(maps)))
    for piece in np.array_split(maps, 3, axis=1):
        added(sums, loadings.of_maps(piece))
    return FourthMoments.of(sums, len(maps))


def varimax_of(loadings):
    """Kaiser's criterion by the usual loop over the loadings, (d, k)."""
    turn = np.eye(loadings.shape[1])
    for _ in range(1000):
        turned = loadings @ turn
        left, _, right = np.linalg.svd(loadings.T @ (turned**3 - turned * (turned**2).mean(0)))
        turn = left @ right
    return turn


def up_to_order_and_sign(a, b):
    """Columns of b in the order, and with the signs, of those of a that they are nearest to."""
    products = (a / np.linalg.norm(a, axis=0)).T @ (b / np.linalg.norm(b, axis=0))
    order = np.abs(products).argmax(1)
    assert sorted(order) == [*range(a.shape[1])]
    return b[:, order] * np.sign(products[np.arange(a.shape[1]), order])


@settings(deadline=None, max_examples=30)
@given(k=st.integers(1, 5), d=st.integers(0, 1200), cut=st.integers(0, 1200), seed=st.integers(0, 9))
def test_the_sums_are_the_moments_of_all_degrees_up_to_four_wherever_features_are_cut(k, d, cut, seed):
    loadings = np.random.default_rng(seed).normal(size=(k, d))
    sums = np.zeros(n_sums(k))
    added(sums, loadings[:, :cut])
    added(sums, loadings[:, cut:])
    found = FourthMoments.of(sums, k)
    columns = np.vstack([np.ones(d), loadings])
    full = np.einsum("af,bf,cf,df->abcd", *[columns] * 4)
    a, b = members(k + 1)
    np.testing.assert_allclose(found.pairs, full[a, b][:, a, b], atol=1e-9, rtol=1e-12)
    np.testing.assert_allclose(found.second, loadings @ loadings.T, atol=1e-9)
    turn = np.random.default_rng(1).normal(size=(k, 2))
    cubes = loadings @ (turn.T @ loadings).T ** 3
    np.testing.assert_allclose(found.fourth.cubes(turn), cubes, atol=1e-8, rtol=1e-10)


@pytest.mark.parametrize("normalize", [True, False])
def test_varimax_is_that_of_the_loop_over_loadings_without_features_that_have_none(normalize):
    maps, variances = maps_of()
    loadings = (maps * np.sqrt(variances)[:, None]).T
    rows = loadings / np.linalg.norm(loadings, axis=1)[:, None] if normalize else loadings
    with_gaps = np.insert(maps, [0, 7], np.nan, axis=1)
    if normalize:
        with_gaps = np.insert(with_gaps, [3, 9], [[0, 1e-15]], axis=1)
    asked = Rotating("varimax", normalize=normalize)
    found, how = asked.turn(moments_of(asked.loadings(variances, maps.shape[1]), with_gaps), variances)
    assert how.converged
    np.testing.assert_allclose(found.matrix, varimax_of(rows), atol=1e-8)


@pytest.mark.parametrize(("power", "normalize"), [(2.0, True), (2.5, True), (4.0, True), (2.5, False), (3.0, False)])
def test_promax_is_the_regression_on_a_power_of_varimax(power, normalize):
    maps, variances = maps_of(1)
    asked = Rotating("promax", normalize=normalize, power=power)
    how = asked.loadings(variances, maps.shape[1])
    moments = moments_of(how, maps)
    found, _ = asked.turn(moments, variances)
    targets = np.zeros((4, 4))
    for piece in np.array_split(maps, 3, axis=1):
        add_targets(targets, how.of_maps(piece), found.matrix, power)
    matrix = promax(moments, found.matrix, targets)
    turned = (maps.T * np.sqrt(variances)) / (
        np.linalg.norm(maps.T * np.sqrt(variances), axis=1)[:, None] if normalize else 1
    )
    turned = turned @ found.matrix
    oblique = np.linalg.lstsq(turned, np.abs(turned) ** (power - 1) * turned, rcond=None)[0]
    oblique = oblique @ np.diag(np.sqrt(np.diag(np.linalg.inv(oblique.T @ oblique))))
    np.testing.assert_allclose(matrix, found.matrix @ oblique, atol=1e-9)
    np.testing.assert_allclose(np.diag(RotationResult(variances, matrix).factor_correlation), 1)


@pytest.mark.parametrize("algorithm", ["parallel", "deflation"])
def test_fastica_is_that_of_scikit_learn(algorithm):
    maps, variances = maps_of(2, d=5000)
    asked = Rotating("fastica", algorithm=algorithm)
    found, how = asked.turn(moments_of(asked.loadings(variances, 5000), maps), variances)
    assert how.converged
    np.testing.assert_allclose(np.linalg.norm(found.to_components, axis=1), 1)
    centred = maps.T - maps.mean(axis=1)
    values, vectors = np.linalg.eigh(centred.T @ centred / len(centred))
    white = centred @ (vectors / np.sqrt(values)) @ vectors.T
    peer = FastICA(algorithm=algorithm, fun="cube", whiten=False, tol=1e-8, max_iter=500, w_init=np.eye(4))
    sources = peer.fit_transform(white)
    ours = centred @ found.to_components.T
    peers = up_to_order_and_sign(ours, sources)
    correlations = np.einsum("fj,fj->j", ours / ours.std(0), peers / peers.std(0)) / len(ours)
    # By deflation the first source decides what is left for the others, which begin elsewhere here.
    assert (1 - correlations).max() < (1e-6 if algorithm == "parallel" else 0.01)


def test_jade_makes_the_cumulants_as_diagonal_as_no_other_rotation():
    maps, variances = maps_of(3, k=3)
    asked = Rotating("jade")
    found, how = asked.turn(moments_of(asked.loadings(variances, 600), maps), variances)
    assert how.converged
    sources = (found.to_components @ maps).T
    sources = (sources - sources.mean(0)) / sources.std(0)
    np.testing.assert_allclose(sources.T @ sources / 600, np.eye(3), atol=1e-10)  # an orthogonal turn of whitened maps

    def off(z):
        """The criterion of Cardoso and Souloumiac (1993), over all cumulant matrices."""
        eye = np.eye(z.shape[1])
        cumulants = np.einsum("fa,fb,fc,fd->abcd", z, z, z, z) / len(z)
        cumulants -= sum(
            np.einsum(f"{ab},{cd}->abcd", eye, eye) for ab, cd in (("ab", "cd"), ("ac", "bd"), ("ad", "bc"))
        )
        return (cumulants**2).sum() - sum((cumulants[i, i] ** 2).sum() for i in range(z.shape[1]))

    best, rng = off(sources), np.random.default_rng(0)
    for size in (1e-3, 1e-2, 0.1, 1.0):
        for _ in range(20):
            skew = size * rng.normal(size=(3, 3))
            turn = np.linalg.qr(np.eye(3) + skew - skew.T)[0]
            assert off(sources @ turn) >= best - 1e-9


def test_ica_is_refused_where_a_map_is_the_same_everywhere():
    maps, variances = maps_of(4)
    maps[2] = maps[2].mean()
    asked = Rotating("jade")
    assert asked.turn(moments_of(asked.loadings(variances, 600), maps), variances) is None


@pytest.mark.parametrize("kind", ["varimax", "fastica", "jade"])
def test_one_component_stays_as_it_is(kind):
    maps, variances = maps_of(5)
    asked = Rotating(kind)
    found, how = asked.turn(moments_of(asked.loadings(variances[:1], 600), maps[:1]), variances[:1])
    np.testing.assert_allclose(np.abs(found.matrix), 1)
    assert how.converged


def test_noise_that_has_no_one_rotation_is_said_not_to_have_converged():
    maps = np.linalg.qr(np.random.default_rng(0).normal(size=(2000, 12)))[0].T
    asked = Rotating("fastica")
    _, how = asked.turn(moments_of(asked.loadings(np.ones(12), 2000), maps), np.ones(12))
    assert not how.converged
