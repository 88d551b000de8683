"""Statistics of rows, beside the same computed on the samples: distances between them, refits without each, dense likelihoods."""

import numpy as np
import pytest
import scipy.linalg
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize
from scipy.spatial.distance import cdist
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from dpca.analyses.answers import ProductAccuracy
from dpca.analyses.axis import Axis
from dpca.analyses.samples import Samples
from dpca.derived.statistics import Grouped, arrangements
from dpca.errors import ConfigError, DataError
from tests.analyses import asked
from tests.derived.drawn import Samples as Drawn
from tests.derived.drawn import assert_close, beside, means, samples
from tests.drawn import examples

AXIS = Axis("time", np.arange(400.0), {"units": "days since 2000-01-15", "calendar": "standard"})


def known(precision="double", solver="gram_eigh"):
    return ProductAccuracy("results/sst", solver, precision, 8 * 60 * 300)


def rows_of(data, factor=False):
    n = len(data.x)
    return Samples.of(data.both[factor], AXIS.of(AXIS.values[:n]), known())


def in_groups(rng, n, g):
    """Labels of g groups of two rows or more."""
    return rng.permutation(np.concatenate([np.tile(np.arange(g), 2), rng.integers(0, g, n - 2 * g)]))


CHAINS = {
    "all": (lambda rows: rows, lambda x: x),
    "anomalies": (lambda rows: rows.anomalies(np.arange(rows.n) % 2), lambda x: x - means(x, np.arange(len(x)) % 2)),
    "detrended": (
        lambda rows: rows.detrend(),
        lambda x: beside(x, np.vander(np.arange(len(x)) / len(x), 2)),
    ),
}


def dense_permanova(x, labels):
    """F by the definition: sums of squared distances (Anderson 2001, equations 1 to 3)."""
    squares, n, g = cdist(x, x) ** 2, len(x), len(set(labels.tolist()))
    total = np.triu(squares, 1).sum() / n
    within = sum(
        np.triu(squares[np.ix_(labels == one, labels == one)], 1).sum() / (labels == one).sum()
        for one in set(labels.tolist())
    )
    return (total - within) / (g - 1) / (within / (n - g)), 1 - within / total


@given(
    n=st.integers(8, 40),
    g=st.integers(2, 4),
    d=st.sampled_from([3, 50]),
    chain=st.sampled_from(sorted(CHAINS)),
    factor=st.booleans(),
    seed=st.integers(0, 9),
)
@examples(25)
def test_permanova_is_that_of_distances(n, g, d, chain, factor, seed):
    data, labels = samples(seed, n, d), in_groups(np.random.default_rng(seed), n, g)
    ours, theirs = CHAINS[chain]
    found = asked.permanova(ours(rows_of(data, factor)), labels, 19, seed)
    f, r2 = dense_permanova(theirs(data.x), labels)
    assert found.certificate["pseudo_f"] == pytest.approx(f, rel=1e-8, abs=1e-9)
    assert found.certificate["r2"] == pytest.approx(r2, rel=1e-8, abs=1e-9)
    drawn = np.random.default_rng(seed)
    codes = np.unique(labels, return_inverse=True)[1]
    others = [dense_permanova(theirs(data.x), drawn.permutation(codes))[0] for _ in range(19)]
    assert_close(found.arrays["permuted_f"].values, np.array(others), 1e-8)


@pytest.mark.parametrize("g", [3, 20])
def test_permutations_are_the_same_in_few_and_many_groups_and_within_strata(g):
    """Both kinds of sums, over full and sparse members, in several blocks of permutations."""
    data, rng = samples(1, 60, 30), np.random.default_rng(0)
    labels, strata = in_groups(rng, 60, g), np.arange(60) % 2
    found = asked.permanova(rows_of(data), labels, 50, 3, strata)
    drawn, expected = np.random.default_rng(3), []
    for _ in range(50):
        permuted = labels.copy()
        for block in (0, 1):
            permuted[strata == block] = drawn.permutation(labels[strata == block])
        expected.append(dense_permanova(data.x, permuted)[0])
    assert_close(found.arrays["permuted_f"].values, np.array(expected), 1e-9)
    reached = sum(one >= found.certificate["pseudo_f"] for one in expected)
    assert found.certificate["p_value"] == (1 + reached) / 51
    assert asked.permanova(rows_of(data), labels, 50, 3, strata).certificate["p_value"] == (1 + reached) / 51


def test_p_values_are_uniform_where_labels_mean_nothing():
    """Of 300 draws of labels, the share of p values up to 5 % lies within three standard errors of it."""
    data, rng = samples(2, 30, 40), np.random.default_rng(5)
    rows = rows_of(data)
    found = [
        asked.permanova(rows, rng.permutation(np.arange(30) % 3), 99, seed).certificate["p_value"]
        for seed in range(300)
    ]
    assert abs(np.mean(np.array(found) <= 0.05) - 0.05) < 3 * np.sqrt(0.05 * 0.95 / 300)


def test_few_arrangements_are_told():
    groups = Grouped.of(np.array([0, 0, 1, 1]))
    assert arrangements(groups) == 3
    assert arrangements(groups, np.array([0, 1, 0, 1])) == 2
    assert arrangements(Grouped.of(np.array([0, 0, 1, 1, 1]))) == 10
    found = asked.permanova(rows_of(samples(0, 4, 30)), np.array(list("aabb")))
    assert "only be" not in found.certificate["caveat"]
    assert "arranged in 3 ways" in found.certificate["caveat"]
    assert found.certificate["p_value"] > 0.25


@given(n=st.integers(12, 40), g=st.integers(2, 4), k=st.integers(1, 5), factor=st.booleans(), seed=st.integers(0, 9))
@examples(25)
def test_manova_is_that_of_sums_of_squares_of_scores(n, g, k, factor, seed):
    data, labels = samples(seed, n, 80), in_groups(np.random.default_rng(seed), n, g)
    found = asked.manova(rows_of(data, factor), labels, k)
    u, s, _ = np.linalg.svd(data.centred, full_matrices=False)
    z = u[:, :k] * s[:k]
    within = z - means(z, labels)
    e, h = within.T @ within, means(z, labels).T @ means(z, labels)
    roots = np.linalg.eigvals(np.linalg.solve(e, h)).real
    expected = [
        np.linalg.det(e) / np.linalg.det(e + h),
        np.trace(h @ np.linalg.inv(e + h)),
        np.trace(h @ np.linalg.inv(e)),
        roots.max(),
    ]
    np.testing.assert_allclose(found.arrays["statistic"].values, expected, rtol=1e-7)
    assert found.maps is None
    assert found.coordinates["test"].values.tolist() == list(found.certificate["tests"])


def test_manova_of_two_groups_and_one_score_is_the_t_test():
    """All four are exact then, and one: F(1, n - 2) = t^2."""
    from scipy.stats import ttest_ind

    for n in (4, 5, 6, 30):
        data, labels = samples(3, n, 80), np.arange(n) % 2
        found = asked.manova(rows_of(data), labels, 1)
        scores = np.linalg.svd(data.centred, full_matrices=False)[0][:, 0]
        t = ttest_ind(scores[labels == 0], scores[labels == 1])
        np.testing.assert_allclose(found.arrays["f_value"].values, t.statistic**2, rtol=1e-9)
        np.testing.assert_allclose(found.arrays["p_value"].values, t.pvalue, rtol=1e-9)


@given(n=st.integers(12, 40), g=st.integers(2, 4), k=st.integers(1, 5), factor=st.booleans(), seed=st.integers(0, 9))
@examples(25)
def test_discriminants_are_scikit_learns_of_the_leading_scores(n, g, k, factor, seed):
    data, labels = samples(seed, n, 80), in_groups(np.random.default_rng(seed), n, g)
    found = asked.discriminant(rows_of(data, factor), labels, k)
    u, s, _ = np.linalg.svd(data.centred, full_matrices=False)
    model = LinearDiscriminantAnalysis().fit(u[:, :k] * s[:k], labels)
    expected, scores = model.transform(u[:, :k] * s[:k]), found.arrays["scores"].values
    np.testing.assert_allclose(scores, expected * np.sign((expected * scores).sum(axis=0)), rtol=1e-6, atol=1e-7)
    ratio = found.arrays["between_group_variance_ratio"].values
    np.testing.assert_allclose(ratio, model.explained_variance_ratio_, rtol=1e-7)
    maps = data.centred.T @ found.maps.coefficients
    np.testing.assert_allclose(data.centred @ maps, scores, atol=1e-9)
    np.testing.assert_allclose(maps.T @ maps, found.maps.overlaps[0], rtol=1e-7, atol=1e-12)


@pytest.mark.parametrize(("nearby", "reliable"), [(0.5, True), (1e-2, True), (1e-5, False)])
def test_discriminants_know_how_well_the_space_of_the_components_is_told_from_the_next(nearby, reliable):
    """Of two components that are nearly as large, products in single precision know the space of the first badly: the error says so."""
    rng = np.random.default_rng(0)
    n, labels = 40, np.arange(40) % 3
    u = np.linalg.qr(np.column_stack([np.ones(n), rng.standard_normal((n, 12))]))[0][:, 1:]
    matrix = (u * np.r_[9.0, 5.0, 5.0 * (1 - nearby), np.linspace(1, 0.1, 9)]) @ u.T
    noise = rng.standard_normal((n, n)) * 1e-7 * np.sqrt(np.outer(np.diag(matrix), np.diag(matrix)))

    def of(products):
        exact = rows_of(samples(0, n, 20)).products
        rows = Samples.of(
            type(exact)(products, np.zeros(n), 0.0, rounding=3e-7), AXIS.of(AXIS.values[:n]), known("single")
        )
        return asked.discriminant(rows, labels, 2)

    found, exact = of(matrix + (noise + noise.T) / 2), of(matrix)
    rho2 = [one.arrays["canonical_correlations"].values ** 2 for one in (found, exact)]
    off = np.abs(rho2[0] / (1 - rho2[0]) / (rho2[1] / (1 - rho2[1])) - 1)
    assert (off <= 10.0 ** -(found.arrays["digits"].values - 0.1)).all()
    assert found.certificate["reliable"] == [reliable] * 2


def test_discriminants_of_groups_without_a_spread_are_refused():
    data = samples(0, 4, 50)
    alike = type(data)(np.repeat(data.x, 5, axis=0), data.mean)
    with pytest.raises(DataError, match="the spread within groups is 0 there"):
        asked.discriminant(rows_of(alike), np.repeat(np.arange(4), 5), 3)


def refitted(x, y, alpha, row):
    """The prediction for a row by a ridge regression on all others, in the features."""
    others = np.arange(len(y)) != row
    mean, centre = y[others].mean(), x[others].mean(0)
    z = x[others] - centre
    w = np.linalg.solve(z.T @ z + alpha * np.eye(x.shape[1]), z.T @ (y[others] - mean))
    return mean + (x[row] - centre) @ w


@given(
    n=st.integers(5, 25),
    d=st.sampled_from([2, 40]),
    alpha=st.sampled_from([0.01, 3.0, 1e4]),
    factor=st.booleans(),
    seed=st.integers(0, 9),
)
@examples(25)
def test_ridge_predicts_each_row_as_a_refit_without_it(n, d, alpha, factor, seed):
    rng = np.random.default_rng(seed)
    x, y = rng.standard_normal((n, d)), rng.standard_normal(n) + 3
    data = type(samples())(x, x.mean(0))
    found = asked.ridge(rows_of(data, factor), y, alpha)
    expected = np.array([refitted(x, y, alpha, row) for row in range(n)])
    np.testing.assert_allclose(found.arrays["leave_one_out"].values, expected, rtol=1e-7, atol=1e-8)
    error = np.mean((y - expected) ** 2)
    assert found.certificate["mean_squared_error"] == pytest.approx(error, rel=1e-7)
    assert found.certificate["r2"] == pytest.approx(1 - error / y.var(), rel=1e-6, abs=1e-9)
    assert "digits" not in found.certificate["caveat"]


@pytest.mark.parametrize("share", [1e-14, 1e-12, 1e-10, 1e-4])
def test_small_ridges_lose_nothing_of_what_is_left_out(share):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((30, 200))
    x -= x.mean(axis=0)
    values, vectors = np.linalg.eigh(x @ x.T)
    alpha = share * float(values[1:].mean())
    y = rng.standard_normal(30) + x[:, 0]
    # (y - Hy) / (1 - h) = (P y) / diag(P), with P = (K + alpha)^-1 about the mean, of which alpha is no small part.
    inverse = (vectors[:, 1:] / (values[1:] + alpha)) @ vectors[:, 1:].T
    expected = np.mean((inverse @ (y - y.mean()) / np.diagonal(inverse)) ** 2)
    for factor in (False, True):
        data = Drawn(x, np.zeros(200))
        found = asked.ridge(rows_of(data, factor), y, [alpha])
        np.testing.assert_allclose(found.certificate["mean_squared_error"], expected, rtol=1e-9)


def test_ridge_of_a_selection_predicts_the_rest():
    data, rng = samples(4, 60, 90), np.random.default_rng(0)
    y = data.x @ rng.standard_normal(90) + rng.standard_normal(60)
    chosen, alphas = np.flatnonzero(np.arange(60) % 4), [1e-1, 1e1, 1e3]
    rows = rows_of(data).rows(chosen)
    found = asked.ridge(rows, y, alphas, AXIS.of(AXIS.values[:60]))
    x, centre = data.x[chosen], data.x[chosen].mean(0)
    alpha = found.certificate["alpha"]
    w = np.linalg.solve(
        (x - centre).T @ (x - centre) + alpha * np.eye(90), (x - centre).T @ (y[chosen] - y[chosen].mean())
    )
    left = np.arange(60) % 4 == 0
    assert_close(found.arrays["predicted_left_out"].values, y[chosen].mean() + (data.x[left] - centre) @ w, 1e-8)
    assert_close(found.arrays["fitted"].values, y[chosen].mean() + (x - centre) @ w, 1e-8)
    assert found.coordinates["time_left_out"].values.tolist() == np.flatnonzero(left).tolist()
    errors = [np.mean([(y[row] - refitted(x, y[chosen], a, at)) ** 2 for at, row in enumerate(chosen)]) for a in alphas]
    np.testing.assert_allclose(found.arrays["mean_squared_error"].values, errors, rtol=1e-7)
    assert alpha == alphas[int(np.argmin(errors))]
    # Where y is given for the rows alone it is the same.
    again = asked.ridge(rows, y[chosen], alphas)
    np.testing.assert_array_equal(again.arrays["fitted"].values, found.arrays["fitted"].values)


def test_what_is_said_of_ridge():
    data, rng = samples(5, 40, 60), np.random.default_rng(1)
    noise, labels = rng.standard_normal(40), np.arange(40) % 4
    signal = data.centred @ rng.standard_normal(60)
    signal += 0.3 * signal.std() * noise
    found = asked.ridge(rows_of(data), signal)
    assert len(found.arrays["r2"].values) == 33
    assert found.certificate["caveat"] == ""
    found = asked.ridge(rows_of(data), signal, [1e10, 1e12])
    assert "smallest alpha, 1e+10, is the best" in found.certificate["caveat"]
    found = asked.ridge(rows_of(data), rng.permutation(noise), 1e-3)
    assert "no better than its mean" in found.certificate["caveat"]
    found = asked.ridge(rows_of(data).anomalies(labels), noise, 1e3)
    assert "were made of all rows before one was left out" in found.certificate["caveat"]
    assert found.certificate["target"] == "target"


def dense_likelihood(g, x, y, h2):
    """At the best variance: Patterson and Thompson's, with the constant of orthonormal contrasts."""
    n, q = x.shape
    v = h2 * g + (1 - h2) * np.eye(n)
    inverse = np.linalg.inv(v)
    information = x.T @ inverse @ x
    p = inverse - inverse @ x @ np.linalg.solve(information, x.T @ inverse)
    variance = y @ p @ y / (n - q)
    determinants = [np.linalg.slogdet(one)[1] for one in (v, information, x.T @ x)]
    return -0.5 * (
        (n - q) * (np.log(2 * np.pi * variance) + 1) + determinants[0] + determinants[1] - determinants[2]
    ), variance


@given(
    n=st.integers(20, 40),
    d=st.sampled_from([10, 200]),
    q=st.integers(0, 2),
    true=st.sampled_from([0.0, 0.3, 0.8]),
    factor=st.booleans(),
    seed=st.integers(0, 9),
)
@examples(25)
def test_reml_is_the_maximum_of_the_restricted_likelihood(n, d, q, true, factor, seed):
    rng = np.random.default_rng(seed)
    x, z = rng.standard_normal((n, d)) + 2, rng.standard_normal((n, q))
    y = np.sqrt(true / d) * (x - 2) @ rng.standard_normal(d) + np.sqrt(1 - true) * rng.standard_normal(n) + z.sum(1)
    data = type(samples())(x, x.mean(0))
    found = asked.heritability(rows_of(data, factor), y, z if q else None).certificate
    centred = data.centred
    g = centred @ centred.T
    g /= np.trace(g) / n
    fixed = np.hstack([np.ones((n, 1)), z])
    highest = 1 - 1e-6
    points = np.linspace(0, highest, 101)
    values = [dense_likelihood(g, fixed, y, h2)[0] for h2 in points]
    at = int(np.argmax(values))
    ends = points[max(at - 1, 0)], points[min(at + 1, 100)]
    best = optimize.minimize_scalar(
        lambda h2: -dense_likelihood(g, fixed, y, h2)[0], bounds=ends, options={"xatol": 1e-9}
    ).x
    assert found["h2"] == pytest.approx(best, abs=2e-6)
    if not found["at_boundary"]:
        likelihood, variance = dense_likelihood(g, fixed, y, found["h2"])
        assert found["log_likelihood"] == pytest.approx(likelihood, rel=1e-9, abs=1e-8)
        assert found["variance_of_rows"] + found["residual_variance"] == pytest.approx(variance, rel=1e-8)
        step = 1e-3 * min(found["h2"], 1 - found["h2"])
        around = [dense_likelihood(g, fixed, y, found["h2"] + one)[0] for one in (-step, 0, step)]
        curvature = (around[0] - 2 * around[1] + around[2]) / step**2
        assert found["standard_error"] == pytest.approx(np.sqrt(-1 / curvature), rel=1e-3)
    null = dense_likelihood(g, fixed, y, 0.0)[0]
    assert found["log_likelihood_at_0"] == pytest.approx(null, rel=1e-9, abs=1e-8)


def test_at_the_end_of_what_is_possible_there_is_no_standard_error():
    data = samples(6, 40, 200)
    near = scipy.linalg.eigh(data.centred @ data.centred.T)[1]
    none = asked.heritability(rows_of(data), near[:, 1])  # the direction in which rows vary least
    assert none.certificate["h2"] == 0
    assert none.certificate["p_value"] == 1
    assert none.certificate["standard_error"] is None
    assert "h2 = 0, the end of what is possible" in none.certificate["caveat"]
    everything = asked.heritability(rows_of(data), near[:, -1])
    assert everything.certificate["at_boundary"]
    assert "h2 = 1, the end" in everything.certificate["caveat"]


def test_the_ridge_of_reml_is_the_best_linear_unbiased_prediction():
    data, rng = samples(7, 50, 100), np.random.default_rng(2)
    y = data.centred @ rng.standard_normal(100) / 30 + rng.standard_normal(50)
    rows = rows_of(data)
    found = asked.heritability(rows, y).certificate
    g = data.centred @ data.centred.T / found["scale"]
    v = found["variance_of_rows"] * g + found["residual_variance"] * np.eye(50)
    predicted = y.mean() + found["variance_of_rows"] * g @ np.linalg.solve(v, y - y.mean())
    assert np.trace(g) == pytest.approx(50)
    assert_close(asked.ridge(rows, y, found["alpha_of_ridge"]).arrays["fitted"].values, predicted, 1e-9)


@pytest.mark.parametrize("factor", [False, True])
def test_distances_and_principal_coordinates(factor):
    data = samples(8, 40, 60)
    rows = rows_of(data, factor)
    found, points = asked.distances(rows), asked.pcoa(rows)
    expected = cdist(data.x, data.x)
    assert_close(found.arrays["distances"].values, expected, 1e-6)
    scores = points.arrays["scores"].values
    assert_close(cdist(scores, scores), expected, 1e-7)
    assert (points.kind, points.maps, points.certificate["kind"]) == ("pcoa", None, "pcoa")
    np.testing.assert_array_equal(asked.pca(rows).arrays["scores"].values, scores)
    twice = rows.rows(np.array([0, 0, 1, 2]))
    assert "1 of 6 distances are below" in asked.distances(twice).certificate["caveat"]


def test_single_precision_is_told_where_operators_leave_too_little():
    """Rows that are left of a trend a thousand times as large."""
    data, labels = samples(9, 60, 300, mean=0.0), np.arange(60) % 3
    x = data.x + 400 * np.arange(60)[:, None] * np.ones(300)
    large = type(data)(x, x.mean(0))
    single = Samples.of(
        type(large.products)(
            large.products.matrix, large.products.mean_product, large.products.mean_norm2, rounding=1e-8
        ),
        AXIS.of(AXIS.values[:60]),
        known("single"),
    )
    y = np.random.default_rng(0).standard_normal(60)
    rows = single.detrend()
    for found in (
        asked.permanova(rows, labels, 9),
        asked.ridge(rows, y, 1.0),
        asked.heritability(rows, y),
    ):
        assert "less than two digits" in found.certificate["caveat"]
        assert "the operators leave 1 part in" in found.certificate["caveat"]
        assert "model.precision: double" in found.certificate["caveat"]
        assert found.certificate["error"] > 0.01
    assert asked.permanova(single, labels, 9).certificate["caveat"] == ""


def _float(n=30):
    return np.random.default_rng(0).standard_normal(n)


BAD = {
    "one group": (lambda rows: asked.permanova(rows, np.zeros(30)), ConfigError, "all 30 rows have the label 0"),
    "groups of one": (lambda rows: asked.manova(rows, np.arange(30), 2), ConfigError, "so have 29 others"),
    "one alone": (
        lambda rows: asked.permanova(rows, np.array(["a"] + 14 * ["b"] + 15 * ["c"])),
        ConfigError,
        "label a has one row alone",
    ),
    "missing label": (
        lambda rows: asked.permanova(rows, np.array([None, *("ab" * 15)][:30], object)),
        DataError,
        "label of row 0 is missing",
    ),
    "NaN label": (lambda rows: asked.permanova(rows, np.full(30, np.nan)), DataError, "row 0 is missing"),
    "few labels": (lambda rows: asked.permanova(rows, np.zeros(29)), ConfigError, "shape (29,), but 30 samples"),
    "permutations": (
        lambda rows: asked.permanova(rows, np.arange(30) % 2, -1),
        ConfigError,
        "permutations is -1",
    ),
    "k of discriminants": (
        lambda rows: asked.discriminant(rows, np.arange(30) % 2, 29),
        ConfigError,
        "in 29 components, but at most 28 can be: 30 rows in 2 groups",
    ),
    "k": (lambda rows: asked.manova(rows, np.arange(30) % 2, 29), ConfigError, "n_components is 29, but 1 to 28"),
    "alpha": (lambda rows: asked.ridge(rows, _float(), -1.0), ConfigError, "alpha is -1"),
    "alpha 0": (
        lambda rows: asked.ridge(rows, _float(), [1.0, 0.0]),
        ConfigError,
        "alpha is [1.0, 0.0], but auto, a number above 0 or a list of them is allowed",
    ),
    "alpha text": (lambda rows: asked.ridge(rows, _float(), "best"), ConfigError, "alpha is 'best'"),
    "constant": (lambda rows: asked.ridge(rows, np.ones(30)), DataError, "target is 1 for all 30 rows"),
    "short": (lambda rows: asked.ridge(rows, _float(29)), ConfigError, "target has shape (29,)"),
    "wide": (lambda rows: asked.ridge(rows, np.ones((30, 2))), ConfigError, "target has shape (30, 2)"),
    "infinite": (
        lambda rows: asked.ridge(rows, np.where(np.arange(30) == 4, np.inf, 1.0)),
        DataError,
        "target of sample 2000-01-19 is inf",
    ),
    "text": (lambda rows: asked.heritability(rows, np.array(["1.5"] * 29 + ["NA"])), DataError, "2000-02-13 is NA"),
    "fitted": (lambda rows: asked.heritability(rows, _float(), _float()[:, None]), DataError, "does not vary beside"),
    "weights": (
        lambda rows: asked.permanova(rows.weighted(np.arange(30) + 1.0), np.arange(30) % 2),
        ConfigError,
        "these have weights",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_named(name):
    ask, error, said = BAD[name]
    with pytest.raises(error) as caught:
        ask(rows_of(samples(0, 30, 50)))
    assert said in str(caught.value)
