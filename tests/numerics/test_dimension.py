import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.decomposition import PCA as SklearnPCA

from dpca import PCA
from dpca.errors import AssumptionError, ConfigError
from dpca.numerics.dimension import (
    NOT_KNOWN,
    NOT_MET,
    RULES,
    Eigenvalues,
    allowed_misfit,
    broken_stick,
    choose,
    distribution_of,
    gavish_donoho,
    marchenko_pastur,
    mle,
    noise_misfit,
    suggestions,
)

WHITE = ("gavish_donoho", "marchenko_pastur")


def eigenvalues_of(x, center=True):
    n, d = x.shape
    x = x - x.mean(0) if center else x
    values = np.zeros(min(n, d))
    sigma = np.linalg.svd(x, compute_uv=False)
    most = min(n - center, d)
    values[:most] = sigma[:most] ** 2
    return Eigenvalues(values, int((values > 0).sum()), n, d, center, values.sum())


def noise(n, d, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d))


def signal(n, d, k, strength=3.0, seed=1):
    rng = np.random.default_rng(seed)
    return strength * rng.normal(size=(n, k)) @ rng.normal(size=(k, d))


def smooth(n, d, correlation=0.9, seed=0):
    x = noise(n, d, seed)
    for j in range(1, d):
        x[:, j] = correlation * x[:, j - 1] + math.sqrt(1 - correlation**2) * x[:, j]
    return x


def unequal(n, d, seed=0):
    return noise(n, d, seed) * np.exp(np.random.default_rng(seed + 1).normal(size=d))


@pytest.mark.parametrize(
    ("n", "d", "k"), [(20, 3000, 3), (60, 3000, 1), (60, 3000, 8), (200, 2000, 3), (300, 60, 1), (300, 60, 8)]
)
def test_signal_in_white_noise_is_counted(n, d, k):
    found = suggestions(eigenvalues_of(noise(n, d) + signal(n, d, k)))
    assert found["gavish_donoho"] == found["marchenko_pastur"] == k


@pytest.mark.parametrize("kind", [smooth, unequal])
@pytest.mark.parametrize(("n", "d"), [(30, 3000), (60, 3000), (200, 2000)])
def test_noise_that_is_not_white_is_said_to_be_so_and_not_counted(kind, n, d):
    """Counting would take dozens of its components for signal."""
    given = eigenvalues_of(kind(n, d) + signal(n, d, 3))
    assert [RULES[name](given) for name in WHITE] == [NOT_MET, NOT_MET]
    assert noise_misfit(given) > allowed_misfit(given.most)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(("n", "d", "k"), [(20, 2000, 0), (30, 20_000, 3), (60, 2000, 20), (200, 2000, 60)])
def test_white_noise_passes_for_white_beneath_any_number_of_signals(n, d, k, seed):
    given = eigenvalues_of(noise(n, d, seed) + signal(n, d, k, seed=seed + 9))
    assert noise_misfit(given) <= allowed_misfit(given.most)


def test_pure_noise_has_no_component_and_a_model_one():
    given = eigenvalues_of(noise(200, 2000))
    assert gavish_donoho(given) == 0
    assert marchenko_pastur(given) <= 1
    assert choose("gavish_donoho", given).n_components == 1


def test_thresholds_are_those_of_the_papers():
    """Gavish and Donoho, table IV: omega(beta); and the median of the Marchenko-Pastur distribution."""
    for beta, omega in [(0.05, 1.5194), (0.1, 1.6089), (0.5, 2.1711), (1.0, 2.8582)]:
        p, q = round(1000 * beta), 1000
        given = Eigenvalues(np.ones(p), p, p, q, False, p)
        at, cumulative = distribution_of(given.beta)
        median = np.interp(0.5, cumulative, at)
        optimal = 2 * (beta + 1) + 8 * beta / (beta + 1 + math.sqrt(beta**2 + 14 * beta + 1))
        assert math.sqrt(optimal / median) == pytest.approx(omega, abs=2e-4)


def test_broken_stick_of_four_pieces():
    # Expected shares of p = 4: 0.5208, 0.2708, 0.1458, 0.0625 (Jackson 1993, table 1 gives the sums).
    def of(*values):
        return broken_stick(Eigenvalues(np.array(values), 4, 5, 4, True, sum(values)))

    assert of(0.60, 0.30, 0.07, 0.03) == 2
    assert of(0.50, 0.30, 0.15, 0.05) == 1
    assert of(0.53, 0.20, 0.15, 0.12) == 1


@given(st.floats(0.01, 0.99), st.integers(0, 100))
def test_a_share_of_the_variance_takes_the_fewest_that_exceed_it(share, seed):
    given = eigenvalues_of(noise(8, 30, seed))
    k = choose(share, given).n_components
    assert given.ratio[:k].sum() > share - 1e-12
    assert k == 1 or given.ratio[: k - 1].sum() <= share + 1e-12


@pytest.mark.parametrize("seed", range(4))
def test_minka_as_scikit_learn_has_it(seed):
    x = noise(300, 12, seed) + signal(300, 12, 4, 2.0, seed)
    expected = SklearnPCA("mle", svd_solver="full").fit(x).n_components_
    assert mle(eigenvalues_of(x)) == expected == 4


def test_rank_is_that_of_the_data():
    x = np.repeat(noise(5, 200), 4, axis=0)
    for dtype in ("f4", "f8"):
        assert PCA("rank").fit(x.astype(dtype)).n_components_ == 4


@pytest.mark.parametrize(
    ("asked", "expected"), [(3, 3), (0.5, None), ("rank", 39), ("broken_stick", 3), ("gavish_donoho", 3), (None, 40)]
)
def test_the_estimator_takes_every_way_of_asking(asked, expected):
    x = noise(40, 2000) + signal(40, 2000, 3)
    found = PCA(asked).fit(x)
    expected = SklearnPCA(asked).fit(x).n_components_ if expected is None else expected
    assert found.n_components_ == expected
    assert found.components_.shape == (expected, 2000)
    assert found.certificate_["n_components"]["suggested"]["marchenko_pastur"] == 3


@pytest.mark.parametrize("rule", ["rank", "gavish_donoho", "marchenko_pastur", "broken_stick", "mle"])
@pytest.mark.parametrize("strength", [1, 100, 1e4])
def test_a_rule_reads_no_eigenvalue_that_rounding_hides(rule, strength):
    shape = (200, 40) if rule == "mle" else (40, 2000)
    x = (noise(*shape) + strength * signal(*shape, 3)).astype("f4")
    known = PCA(rule, precision="double").fit(x)
    found = PCA(rule).fit(x)
    assert found.n_components_ == known.n_components_ == (39 if rule == "rank" else 3)
    single = PCA(1, precision="single").fit(x).certificate_["n_components"]["suggested"][rule]
    assert single in (known.n_components_, NOT_KNOWN)
    if single == NOT_KNOWN:
        with pytest.raises(AssumptionError, match="reads eigenvalues that rounding of the products in"):
            PCA(rule, precision="single").fit(x)


def test_a_rule_whose_assumption_is_not_met_is_an_error_that_names_others():
    with pytest.raises(
        AssumptionError, match=r"(?s)marchenko_pastur: assumption not met.*broken_stick, which finds 3 here"
    ):
        PCA("marchenko_pastur").fit(smooth(60, 3000) + signal(60, 3000, 3))


def test_minka_for_wide_data_is_an_error_that_names_others():
    with pytest.raises(ConfigError, match="(?s)12 samples and 50 features.*gavish_donoho") as caught:
        PCA("mle").fit(noise(12, 50))
    assert caught.value.key == "model.n_components"


@pytest.mark.parametrize("asked", [0, 1.0, 1.5, -0.1, True, "scree", [3]])
def test_other_ways_of_asking_are_refused(asked):
    with pytest.raises(ConfigError, match=r"n_components is"):
        PCA(asked).fit(noise(5, 9))
